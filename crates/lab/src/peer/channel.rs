//! The encrypted connection between a peer and its client: handshake and frames.
//!
//! The client first sends eight bytes that identify the protocol. Every further message is a frame,
//! which consists of a length (two bytes, big-endian) and that many bytes of data.
//!
//! The handshake is Noise `NNpsk0` with the shared key. The client's first message proves that the
//! client knows the key, and the server's answer proves that the server knows it. Each connection
//! derives new encryption keys from these two messages. Therefore an attacker who replays a
//! recorded first message cannot encrypt the next frame.
//!
//! Each frame must be complete before a deadline. Therefore a client cannot block the server by
//! sending one byte per second.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ioengine::{Clock, Monotonic};
use snow::{Builder, HandshakeState, TransportState};

use crate::peer::key::Key;

/// The first bytes that a client sends. They identify the protocol.
pub const MAGIC: &[u8; 8] = b"HPPEER1\n";
/// Name of the Noise protocol: handshake pattern and cryptographic algorithms.
const NOISE: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Position of the shared key in the handshake (the 0 in `psk0`).
const PSK_AT: u8 = 0;
/// Length of each handshake message: a public key and an authentication tag (bytes).
pub const HANDSHAKE_BYTES: usize = 48;
/// Length of the authentication tag of each encrypted frame (bytes).
const TAG_BYTES: usize = 16;
/// Maximum length of a frame (bytes).
const FRAME_BYTES_MAX: usize = 65_535;
/// Maximum length of a message (bytes).
pub const MESSAGE_BYTES_MAX: usize = FRAME_BYTES_MAX - TAG_BYTES;
/// Time limit for sending a frame, and for receiving the rest of a frame after its first byte.
const FRAME_TIME: Duration = Duration::from_secs(5);

/// Why a connection ended.
#[derive(Debug)]
pub enum ChannelError {
    /// The other side closed the connection.
    Closed,
    /// The other side did not send a whole frame in time.
    TimedOut,
    /// The other side has another key, or does not use the protocol.
    WrongKey,
    /// The other side broke the protocol.
    Violated(&'static str),
    /// Another I/O error occurred.
    Io(io::Error),
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChannelError::Closed => f.write_str("the connection was closed"),
            ChannelError::TimedOut => f.write_str("there was no answer in time"),
            ChannelError::WrongKey => f.write_str("the other side has another key"),
            ChannelError::Violated(what) => write!(f, "the protocol was violated: {what}"),
            ChannelError::Io(error) => f.write_str(&ioengine::error::cause(error)),
        }
    }
}

impl From<io::Error> for ChannelError {
    fn from(error: io::Error) -> ChannelError {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => ChannelError::TimedOut,
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe => ChannelError::Closed,
            _ => ChannelError::Io(error),
        }
    }
}

impl From<snow::Error> for ChannelError {
    /// Converts an error of the Noise library, which means that the library was used incorrectly.
    fn from(error: snow::Error) -> ChannelError {
        ChannelError::Io(io::Error::other(error.to_string()))
    }
}

/// An authenticated, encrypted connection.
#[derive(Debug)]
pub struct Channel {
    wire: Wire,
    noise: TransportState,
}

impl Channel {
    /// Performs the handshake as the client.
    ///
    /// # Errors
    /// The server has another key, does not use the protocol, or does not answer in time.
    pub fn connect(stream: TcpStream, key: &Key, limit: Duration) -> Result<Channel, ChannelError> {
        let mut wire = Wire::new(stream)?;
        let until_ns = wire.after(limit);
        let (mut noise, first) = begin(key)?;
        wire.write(MAGIC)?;
        wire.write_frame(&first)?;
        let answer = wire.read_frame(HANDSHAKE_BYTES, until_ns)?;
        noise
            .read_message(&answer, &mut [0; HANDSHAKE_BYTES])
            .map_err(|_| ChannelError::WrongKey)?;
        Ok(Channel { wire, noise: into_transport(noise)? })
    }

    /// Performs the handshake as the server.
    ///
    /// # Errors
    /// The client has another key, does not use the protocol, or is too slow.
    pub fn accept(stream: TcpStream, key: &Key, limit: Duration) -> Result<Channel, ChannelError> {
        let mut wire = Wire::new(stream)?;
        let until_ns = wire.after(limit);
        let mut magic = [0; MAGIC.len()];
        wire.read(&mut magic, until_ns)?;
        if magic != *MAGIC {
            return Err(ChannelError::Violated("the client is not a halfpower program"));
        }
        let first = wire.read_frame(HANDSHAKE_BYTES, until_ns)?;
        let (noise, answer) = answer(key, &first)?;
        wire.write_frame(&answer)?;
        Ok(Channel { wire, noise })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The message is too long, or the other side closed the connection or does not read from it.
    pub fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        let mut frame = vec![0; message.len() + TAG_BYTES];
        let encrypted = self.noise.write_message(message, &mut frame);
        encrypted.map_err(|_| ChannelError::Violated("a message is too long"))?;
        self.wire.write_frame(&frame)
    }

    /// Receives a message. Returns None if the other side closed the connection.
    ///
    /// # Errors
    /// No message begins within the time `wait`. Or the message is longer than `bytes_max`,
    /// incomplete, or not encrypted with the key of the connection.
    pub fn receive(
        &mut self,
        wait: Duration,
        bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, ChannelError> {
        let mut first = [0; 1];
        match self.wire.read(&mut first, self.wire.after(wait)) {
            Err(ChannelError::Closed) => return Ok(None),
            read => read?,
        }
        let until_ns = self.wire.after(FRAME_TIME);
        let frame = self.wire.rest_of_frame(first[0], bytes_max + TAG_BYTES, until_ns)?;
        let mut message = vec![0; frame.len()];
        let length = self.noise.read_message(&frame, &mut message).map_err(|_| {
            ChannelError::Violated("a frame is not encrypted with the key of the connection")
        })?;
        message.truncate(length);
        Ok(Some(message))
    }

    /// Returns a second handle to the TCP connection, so that another thread can close it.
    ///
    /// # Errors
    /// The process has no free file descriptor.
    pub fn stream(&self) -> io::Result<TcpStream> {
        self.wire.stream.try_clone()
    }
}

fn builder(key: &Key) -> Result<Builder<'_>, ChannelError> {
    let parameters = NOISE.parse()?;
    let builder = Builder::new(parameters).prologue(MAGIC)?;
    Ok(builder.psk(PSK_AT, key.bytes())?)
}

/// Starts the client's handshake. Returns the state of the handshake and the first message.
fn begin(key: &Key) -> Result<(HandshakeState, Vec<u8>), ChannelError> {
    let mut noise = builder(key)?.build_initiator()?;
    let mut first = vec![0; HANDSHAKE_BYTES];
    let length = noise.write_message(&[], &mut first)?;
    first.truncate(length);
    Ok((noise, first))
}

/// Answers the first message of a client. Returns the state of the connection and the answer.
///
/// # Errors
/// The client has another key.
pub(crate) fn answer(key: &Key, first: &[u8]) -> Result<(TransportState, Vec<u8>), ChannelError> {
    let mut noise = builder(key)?.build_responder()?;
    noise.read_message(first, &mut [0; HANDSHAKE_BYTES]).map_err(|_| ChannelError::WrongKey)?;
    let mut answer = vec![0; HANDSHAKE_BYTES];
    let length = noise.write_message(&[], &mut answer)?;
    answer.truncate(length);
    Ok((into_transport(noise)?, answer))
}

fn into_transport(noise: HandshakeState) -> Result<TransportState, ChannelError> {
    Ok(noise.into_transport_mode()?)
}

/// The TCP connection, with deadlines for reads and writes.
#[derive(Debug)]
struct Wire {
    stream: TcpStream,
    clock: Monotonic,
}

impl Wire {
    fn new(stream: TcpStream) -> Result<Wire, ChannelError> {
        // If this fails, frames are delayed but still sent.
        let _ = stream.set_nodelay(true);
        stream.set_write_timeout(Some(FRAME_TIME))?;
        Ok(Wire { stream, clock: Monotonic::new() })
    }

    /// Returns the current time plus `duration` (ns of the clock).
    fn after(&self, duration: Duration) -> u64 {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.clock.now_ns().saturating_add(ns)
    }

    /// Reads until the buffer is full. Fails if the deadline passes before that.
    fn read(&mut self, buffer: &mut [u8], until_ns: u64) -> Result<(), ChannelError> {
        let mut done = 0;
        while done < buffer.len() {
            let left_ns = until_ns.saturating_sub(self.clock.now_ns());
            if left_ns == 0 {
                return Err(ChannelError::TimedOut);
            }
            self.stream.set_read_timeout(Some(Duration::from_nanos(left_ns.max(1000))))?;
            match self.stream.read(&mut buffer[done..]) {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn read_frame(&mut self, bytes_max: usize, until_ns: u64) -> Result<Vec<u8>, ChannelError> {
        let mut first = [0; 1];
        self.read(&mut first, until_ns)?;
        self.rest_of_frame(first[0], bytes_max, until_ns)
    }

    /// Reads the rest of a frame after its first byte, which is `first`.
    fn rest_of_frame(
        &mut self,
        first: u8,
        bytes_max: usize,
        until_ns: u64,
    ) -> Result<Vec<u8>, ChannelError> {
        let mut second = [0; 1];
        self.read(&mut second, until_ns)?;
        let length = usize::from(u16::from_be_bytes([first, second[0]]));
        if length > bytes_max {
            return Err(ChannelError::Violated("a frame is too long"));
        }
        let mut frame = vec![0; length];
        self.read(&mut frame, until_ns)?;
        Ok(frame)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ChannelError> {
        Ok(self.stream.write_all(bytes)?)
    }

    fn write_frame(&mut self, frame: &[u8]) -> Result<(), ChannelError> {
        let too_long = |_| ChannelError::Violated("a message is too long");
        let length = u16::try_from(frame.len()).map_err(too_long)?;
        self.write(&[&length.to_be_bytes(), frame].concat())
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Returns the first bytes that a client sends: the identification of the protocol and the
    /// first frame of the handshake.
    pub fn first_bytes(key: &Key) -> Vec<u8> {
        let (_, first) = begin(key).unwrap();
        [&MAGIC[..], &(first.len() as u16).to_be_bytes(), &first].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    const SOON: Duration = Duration::from_secs(20);

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn connected(client: &Key, server: &Key) -> [Result<Channel, ChannelError>; 2] {
        let (there, here) = pair();
        thread::scope(|scope| {
            let serving = scope.spawn(|| Channel::accept(here, server, SOON));
            [Channel::connect(there, client, SOON), serving.join().unwrap()]
        })
    }

    #[test]
    fn messages_of_any_length_up_to_the_limit_arrive_in_both_directions() {
        let key = Key::new([7; 32]);
        let [Ok(mut client), Ok(mut server)] = connected(&key, &key) else { panic!() };
        for length in [0, 1, 5000, MESSAGE_BYTES_MAX] {
            let message = vec![3; length];
            let sent = message.clone();
            thread::scope(|scope| {
                scope.spawn(|| client.send(&sent).unwrap());
                assert_eq!(server.receive(SOON, MESSAGE_BYTES_MAX).unwrap(), Some(message));
            });
            server.send(b"yes").unwrap();
            assert_eq!(client.receive(SOON, 3).unwrap(), Some(b"yes".to_vec()));
        }
        assert!(client.send(&vec![0; MESSAGE_BYTES_MAX + 1]).is_err());
        drop(client);
        assert_eq!(server.receive(SOON, 10).unwrap(), None);
    }

    #[test]
    fn another_key_is_told_apart_on_the_server_and_gets_no_answer() {
        let [client, server] = connected(&Key::new([1; 32]), &Key::new([2; 32]));
        assert!(matches!(server, Err(ChannelError::WrongKey)), "{server:?}");
        assert!(matches!(client, Err(ChannelError::Closed)), "{client:?}");
    }

    #[test]
    fn a_frame_that_is_longer_than_allowed_is_refused_before_it_is_read() {
        let key = Key::new([7; 32]);
        let [Ok(mut client), Ok(mut server)] = connected(&key, &key) else { panic!() };
        client.send(&[0; 100]).unwrap();
        let refused = server.receive(SOON, 99);
        assert!(matches!(refused, Err(ChannelError::Violated("a frame is too long"))));
    }

    #[test]
    fn a_frame_that_was_changed_or_sent_again_is_refused() {
        for changed in [true, false] {
            let key = Key::new([7; 32]);
            let [Ok(mut client), Ok(mut server)] = connected(&key, &key) else { panic!() };
            let mut frame = vec![0; 5 + TAG_BYTES];
            client.noise.write_message(b"hello", &mut frame).unwrap();
            if !changed {
                client.wire.write_frame(&frame).unwrap();
                assert_eq!(server.receive(SOON, 99).unwrap(), Some(b"hello".to_vec()));
            }
            frame[0] ^= u8::from(changed);
            client.wire.write_frame(&frame).unwrap();
            let refused = server.receive(SOON, 99);
            assert!(matches!(refused, Err(ChannelError::Violated(_))), "{refused:?}");
        }
    }

    #[test]
    fn a_frame_without_its_end_times_out() {
        let (mut client, server) = pair();
        client.write_all(&MAGIC[..3]).unwrap();
        let limit = Duration::from_millis(50);
        let accepted = Channel::accept(server, &Key::new([7; 32]), limit);
        assert!(matches!(accepted, Err(ChannelError::TimedOut)), "{accepted:?}");
    }
}
