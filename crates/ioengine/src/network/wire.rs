//! A TCP connection to a server: blocking, with a time limit, while it is set up; then polled.
//!
//! The set-up of a protocol sends and receives whole messages. Afterwards the connection is handed
//! to a `Link`, which uses the functions that do not block.

use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::network::Address;

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest message during the set-up of a connection (bytes).
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Socket buffers in each direction (bytes). Without them, large requests wait for the window.
const SOCKET_BYTES: libc::c_int = 4 << 20;
/// The longest wait for the server at a time, so that deadlines are looked at. Less than half of the
/// longest wait of a worker, whose requests can therefore be waited for inside
/// [`Wire::wait_and_receive`].
pub(crate) const TICK: Duration = Duration::from_millis(20);

/// A TCP connection with the name of its server, for error messages.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    /// The server's address.
    pub(super) name: String,
    /// How long to wait for an answer.
    pub(super) timeout: Duration,
}

/// One end of a buffer that data is received into, or sent from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub memory: *mut u8,
    pub length: usize,
}

impl Wire {
    /// Connects to the server of an address.
    ///
    /// # Errors
    /// The name cannot be resolved, or no address of the server answers.
    pub(crate) fn connect(address: &Address) -> Result<Wire, Error> {
        let server = address.server();
        let addresses = server.to_socket_addrs().map_err(|source| {
            Error::io(format!("finding the server {}", address.host), source)
                .of_kind(ErrorKind::Usage)
                .with_remedy("check the name of the server")
        })?;
        let mut last = io::Error::from_raw_os_error(libc::EADDRNOTAVAIL);
        for socket_address in addresses {
            match TcpStream::connect_timeout(&socket_address, CONNECT_TIMEOUT) {
                Ok(stream) => return Wire::over(stream, address),
                Err(error) => last = error,
            }
        }
        Err(Error::io(format!("connecting to {server}"), last)
            .of_kind(ErrorKind::Io)
            .with_remedy("check that the server runs and that the port is right"))
    }

    /// Uses a connected stream.
    pub(crate) fn over(stream: TcpStream, address: &Address) -> Result<Wire, Error> {
        let name = address.to_string();
        let set = |result: io::Result<()>| {
            result.map_err(|e| Error::io(format!("setting up the connection to {name}"), e))
        };
        // Fails on a socket that is not TCP, which has no delay either.
        let _ = stream.set_nodelay(true);
        set(stream.set_read_timeout(Some(address.timeout)))?;
        set(stream.set_write_timeout(Some(address.timeout)))?;
        let bytes = SOCKET_BYTES;
        for option in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
            // SAFETY: the descriptor is open, and the value is a c_int that outlives the call.
            // A kernel that grants less is no error.
            let _ = unsafe {
                libc::setsockopt(
                    stream.as_raw_fd(),
                    libc::SOL_SOCKET,
                    option,
                    (&raw const bytes).cast(),
                    size_of_val(&bytes) as libc::socklen_t,
                )
            };
        }
        Ok(Wire { stream, name, timeout: address.timeout })
    }

    /// Sends a whole message during the set-up.
    pub(crate) fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.stream.write_all(message).map_err(|error| self.broken(error))
    }

    /// Receives `length` bytes during the set-up.
    ///
    /// # Errors
    /// The connection broke, the server did not answer in time, or the length is implausible.
    pub(crate) fn receive(&mut self, length: usize) -> Result<Vec<u8>, Error> {
        if length > MESSAGE_BYTES_MAX {
            return Err(self.violated(&format!("announced a message of {length} bytes")));
        }
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).map_err(|error| self.broken(error))?;
        Ok(bytes)
    }

    /// Sends a message that consists of two parts, in as few packets as possible.
    pub(super) fn send_both(&mut self, first: &[u8], second: &[u8]) -> io::Result<()> {
        let mut parts = [IoSlice::new(first), IoSlice::new(second)];
        let mut left = &mut parts[..];
        while left.iter().any(|part| !part.is_empty()) {
            match self.stream.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::BrokenPipe.into()),
                Ok(count) => IoSlice::advance_slices(&mut left, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for the server, and copies what has arrived without taking it. 0: the server has
    /// closed the connection.
    pub(super) fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.peek(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Receives as many bytes as fit into `buffer`.
    ///
    /// # Errors
    /// The connection broke, or the server did not answer in time.
    pub(super) fn receive_into(&mut self, buffer: &mut [u8]) -> Result<(), Error> {
        self.stream.read_exact(buffer).map_err(|error| self.broken(error))
    }

    /// The server did something that the protocol does not allow.
    pub(crate) fn violated(&self, what: &str) -> Error {
        violated(&self.name, what)
    }

    /// The server refused to open the target.
    pub(crate) fn refused(&self, what: impl Into<String>, remedy: &str) -> Error {
        Error::new(ErrorKind::Usage, format!("{}: {}", self.name, what.into())).with_remedy(remedy)
    }

    /// A failure of the connection, or silence.
    pub(super) fn broken(&self, error: io::Error) -> Error {
        let name = &self.name;
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                let seconds = self.timeout.as_secs();
                Error::new(ErrorKind::Io, format!("{name} did not answer for {seconds} s"))
                    .with_remedy("check the server and the network, or raise ?timeout=SECONDS")
            }
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => {
                Error::new(ErrorKind::Io, format!("{name} closed the connection"))
                    .with_remedy("look into the log of the server")
            }
            _ => Error::io(format!("the connection to {name} broke"), error)
                .of_kind(ErrorKind::Io)
                .with_remedy("check the server and the network"),
        }
    }

    /// Ends the set-up: from now on, a blocking wait takes at most [`TICK`].
    pub(super) fn set_tick(&self) -> Result<(), Error> {
        self.stream.set_read_timeout(Some(TICK)).map_err(|error| self.broken(error))
    }

    /// Whether something has arrived that nobody has received, which may be the end of the
    /// connection.
    pub(super) fn has_news(&self) -> bool {
        let mut poll = Poll::default();
        poll.add(self, false);
        poll.wait(Duration::ZERO).is_err() || poll.can_receive(0)
    }

    /// Sends from several pieces without blocking. None: nothing can be sent now.
    ///
    /// # Safety
    /// Each piece must be readable for its length.
    pub(super) unsafe fn send_now(&self, pieces: &[Piece]) -> Result<Option<usize>, Error> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: passed on to the caller.
        self.moved(unsafe { self.message_call(pieces, flags, send_message) })
    }

    /// Receives into several pieces without blocking. None: nothing has arrived.
    ///
    /// # Safety
    /// Each piece must be writable for its length, and not in use elsewhere.
    pub(super) unsafe fn receive_now(&self, pieces: &[Piece]) -> Result<Option<usize>, Error> {
        // SAFETY: passed on to the caller.
        unsafe { self.receive_with(pieces, libc::MSG_DONTWAIT) }
    }

    /// As [`Wire::receive_now`], but waits up to [`TICK`] for the first byte.
    ///
    /// # Safety
    /// As for [`Wire::receive_now`].
    pub(super) unsafe fn wait_and_receive(&self, pieces: &[Piece]) -> Result<Option<usize>, Error> {
        // SAFETY: passed on to the caller.
        unsafe { self.receive_with(pieces, 0) }
    }

    unsafe fn receive_with(&self, pieces: &[Piece], flags: i32) -> Result<Option<usize>, Error> {
        // SAFETY: passed on to the caller; recvmsg changes only the header's own fields.
        let moved = unsafe { self.message_call(pieces, flags, libc::recvmsg) };
        match self.moved(moved)? {
            Some(0) => Err(self.broken(io::ErrorKind::UnexpectedEof.into())),
            moved => Ok(moved),
        }
    }

    unsafe fn message_call(
        &self,
        pieces: &[Piece],
        flags: libc::c_int,
        call: SendOrReceive,
    ) -> libc::ssize_t {
        const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut vectors = [EMPTY; PIECES_MAX];
        let count = pieces.len().min(PIECES_MAX);
        for (vector, piece) in vectors.iter_mut().zip(pieces) {
            *vector = libc::iovec { iov_base: piece.memory.cast(), iov_len: piece.length };
        }
        // SAFETY: an all-zero msghdr is valid: no name, no control data.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = vectors.as_mut_ptr();
        header.msg_iovlen = count as _;
        // SAFETY: the header and its vectors outlive the call; the memory is the caller's duty.
        unsafe { call(self.stream.as_raw_fd(), &raw mut header, flags) }
    }

    fn moved(&self, result: libc::ssize_t) -> Result<Option<usize>, Error> {
        if result >= 0 {
            return Ok(Some(result as usize));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(None),
            _ => Err(self.broken(error)),
        }
    }
}

/// recvmsg(2), or sendmsg(2) with the same signature.
type SendOrReceive =
    unsafe extern "C" fn(libc::c_int, *mut libc::msghdr, libc::c_int) -> libc::ssize_t;

/// The most pieces of one call.
pub(super) const PIECES_MAX: usize = 32;

/// sendmsg(2) with the signature of recvmsg(2).
unsafe extern "C" fn send_message(
    descriptor: libc::c_int,
    header: *mut libc::msghdr,
    flags: libc::c_int,
) -> libc::ssize_t {
    // SAFETY: passed on to the caller.
    unsafe { libc::sendmsg(descriptor, header, flags) }
}

/// The server `name` broke the protocol.
pub(crate) fn violated(name: &str, what: &str) -> Error {
    Error::new(ErrorKind::Io, format!("{name}: the server {what}"))
        .with_remedy("this is no valid answer: check that the port belongs to this protocol")
}

/// Waits for one of several connections; its memory is used again by the next wait.
#[derive(Debug, Default)]
pub(crate) struct Poll {
    entries: Vec<libc::pollfd>,
}

impl Poll {
    /// Forgets the connections of the last wait.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Adds a connection, which is waited for until it can be received from, or with
    /// `wants_to_send` until it can be sent to.
    pub(super) fn add(&mut self, wire: &Wire, wants_to_send: bool) {
        let events = libc::POLLIN | if wants_to_send { libc::POLLOUT } else { 0 };
        self.entries.push(libc::pollfd { fd: wire.stream.as_raw_fd(), events, revents: 0 });
    }

    /// Waits until a connection is ready, or the time is over. Interruptions by signals end the
    /// wait early.
    pub(crate) fn wait(&mut self, wait: Duration) -> Result<(), Error> {
        let time = libc::timespec {
            tv_sec: wait.as_secs() as libc::time_t,
            tv_nsec: wait.subsec_nanos().into(),
        };
        // SAFETY: the entries and the time outlive the call; a null mask changes no signal mask.
        let ready = unsafe {
            libc::ppoll(
                self.entries.as_mut_ptr(),
                self.entries.len() as libc::nfds_t,
                &raw const time,
                std::ptr::null(),
            )
        };
        let error = io::Error::last_os_error();
        if ready < 0 && error.raw_os_error() != Some(libc::EINTR) {
            return Err(Error::io("waiting for the server", error));
        }
        Ok(())
    }

    /// Whether the connection that was added as number `index` has something to receive, which may
    /// be its end.
    pub(crate) fn can_receive(&self, index: usize) -> bool {
        self.entries.get(index).is_some_and(|entry| entry.revents & !libc::POLLOUT != 0)
    }
}
