//! Sends and receives frames on the socket between a worker and its relay.
//!
//! A frame consists of the number of a rank, the length of a message, and the message. In a frame
//! from a worker, the rank is the receiver of the message. In a frame to a worker, the rank is the
//! sender. The rank and the length are 32-bit little-endian integers.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::ranks::message::Message;

/// Maximum length of a message (bytes). Even the merged result of thousands of ranks is much
/// shorter.
const MESSAGE_BYTES_MAX: u32 = 256 << 20;

/// Size of a frame header (bytes). The header contains the rank and the length of the message.
const HEAD_BYTES: u64 = 8;

/// Writes a frame that contains the rank `peer` and a message.
///
/// # Errors
/// The other end of the socket is closed, or the message is too long.
pub fn write_frame(out: &mut impl Write, peer: u32, message: &[u8]) -> io::Result<()> {
    let too_long = || io::Error::other("the message is too long");
    let length = u32::try_from(message.len()).map_err(|_| too_long())?;
    if length > MESSAGE_BYTES_MAX {
        return Err(too_long());
    }
    let mut frame = Vec::with_capacity(8 + message.len());
    frame.extend_from_slice(&peer.to_le_bytes());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(message);
    out.write_all(&frame)
}

/// Reads a frame, and returns the rank and the message in it. Returns None at the end of the
/// stream.
///
/// # Errors
/// The stream ends within a frame, or the frame is too long.
pub fn read_frame(input: &mut impl Read) -> io::Result<Option<(u32, Vec<u8>)>> {
    let mut head = Vec::new();
    match input.by_ref().take(HEAD_BYTES).read_to_end(&mut head)? as u64 {
        0 => return Ok(None),
        HEAD_BYTES => {}
        _ => return Err(io::ErrorKind::UnexpectedEof.into()),
    }
    let number = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let (peer, length) = (number(&head[..4]), number(&head[4..]));
    if length > MESSAGE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the frame is too long"));
    }
    let mut message = Vec::new();
    let read = input.take(u64::from(length)).read_to_end(&mut message)?;
    if read < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some((peer, message)))
}

/// The result of waiting for a message from the relay.
#[derive(Debug)]
pub enum Heard {
    /// A message, and the rank that sent it.
    Message(u32, Message),
    /// No message arrived within the time limit.
    Nothing,
    /// The relay has closed the connection.
    Closed,
}

/// A worker's end of the socket to its relay. A separate thread reads from the socket, so that an
/// interrupt takes effect while the worker measures.
#[derive(Debug)]
pub struct Link {
    stream: UnixStream,
    inbox: Receiver<(u32, Message)>,
}

impl Link {
    /// Starts the thread that reads from the socket. The thread sets `interrupt` when it receives
    /// [`Message::Interrupt`] and when the stream ends.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn new(stream: UnixStream, interrupt: &Interrupt) -> Outcome<Link> {
        let cannot =
            |error| Failure::failed(format!("starting a thread: {error}; raise ulimit -u"));
        let mut reader = stream.try_clone().map_err(cannot)?;
        let (sender, inbox) = channel();
        let interrupt = interrupt.clone();
        let read = move || {
            while let Ok(Some((peer, message))) = read_frame(&mut reader) {
                let Ok(message) = serde_json::from_slice(&message) else { break };
                if matches!(message, Message::Interrupt) {
                    interrupt.set();
                } else if sender.send((peer, message)).is_err() {
                    return;
                }
            }
            interrupt.set();
        };
        thread::Builder::new().name("ranks".to_owned()).spawn(read).map_err(cannot)?;
        Ok(Link { stream, inbox })
    }

    /// Sends a message to a rank.
    ///
    /// # Errors
    /// The relay has ended.
    pub fn send(&self, to: u32, message: &Message) -> Outcome<()> {
        let text =
            serde_json::to_vec(message).map_err(|error| Failure::failed(error.to_string()))?;
        write_frame(&mut &self.stream, to, &text).map_err(|_| {
            Failure::failed(
                "the relay process of this rank has ended; check the messages of the launcher",
            )
        })
    }

    /// Returns the next message. Waits at most `limit`.
    pub fn hear(&self, limit: Duration) -> Heard {
        match self.inbox.recv_timeout(limit) {
            Ok((from, message)) => Heard::Message(from, message),
            Err(RecvTimeoutError::Timeout) => Heard::Nothing,
            Err(RecvTimeoutError::Disconnected) => Heard::Closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_arrive_as_they_were_sent(
            frames in proptest::collection::vec(
                (0_u32..5000, proptest::collection::vec(0_u8..=255, 0..200)), 0..20,
            ),
        ) {
            let mut stream = Vec::new();
            for (peer, message) in &frames {
                write_frame(&mut stream, *peer, message).unwrap();
            }
            let mut input = stream.as_slice();
            let mut read = Vec::new();
            while let Some(frame) = read_frame(&mut input).unwrap() {
                read.push(frame);
            }
            prop_assert_eq!(read, frames);
        }

        #[test]
        fn a_stream_that_ends_within_a_frame_is_an_error(
            message in proptest::collection::vec(0_u8..=255, 0..64),
            left in 1_usize..72,
        ) {
            let mut stream = Vec::new();
            write_frame(&mut stream, 1, &message).unwrap();
            stream.truncate(left);
            let is_whole = left >= 8 + message.len();
            prop_assert_eq!(read_frame(&mut stream.as_slice()).is_ok(), is_whole);
        }

        #[test]
        fn damaged_frames_are_refused_and_take_no_memory(
            bytes in proptest::collection::vec(0_u8..=255, 0..64),
        ) {
            let mut input = bytes.as_slice();
            while let Ok(Some((_, message))) = read_frame(&mut input) {
                prop_assert!(message.len() <= bytes.len());
            }
        }
    }
}
