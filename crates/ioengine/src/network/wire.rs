//! A TCP connection to a server.
//!
//! The set-up of a protocol sends and receives whole messages, with functions that block up to a
//! time limit. Afterwards, a `Link` uses the functions that do not block.

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::clock::{Clock, Monotonic};
use crate::error::{Error, ErrorKind};
use crate::network::Address;

/// The maximum time until a TCP connection is established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for a whole set-up is twice the timeout that the address specifies, but at least
/// this time.
const SETUP_MIN: Duration = Duration::from_secs(10);
/// The time between two checks of the interrupt flag during the set-up.
const LOOK: Duration = Duration::from_millis(100);
/// The maximum size of a message during the set-up (bytes).
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// The maximum length of a server's text in a message to the user (bytes).
const TEXT_BYTES_MAX: usize = 200;
/// The requested size of the socket's send and receive buffers (bytes). With the default size,
/// large requests wait for the TCP window.
const SOCKET_BYTES: libc::c_int = 4 << 20;
/// The maximum time that one system call waits for the server. Deadlines are checked between these
/// calls. A worker uses [`Wire::wait_and_receive`] only for waits of at least two ticks. The
/// worker's maximum wait must therefore be longer than two ticks. Otherwise a worker would never
/// use [`Wire::wait_and_receive`].
pub(crate) const TICK: Duration = Duration::from_millis(20);

/// The flag that the program sets when the user interrupts it.
static INTERRUPT: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Makes every connection abort its set-up when the flag `interrupt` is set. Only the first call of
/// this function has an effect.
pub fn end_set_up_with(interrupt: Arc<AtomicBool>) {
    let _ = INTERRUPT.set(interrupt);
}

fn is_interrupted() -> bool {
    INTERRUPT.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// A TCP connection, with the server's address for error messages.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    clock: Monotonic,
    /// The time by which the set-up must have ended (ns). None after the set-up.
    set_up_until_ns: Option<u64>,
    /// The address of the target, for error messages.
    pub(super) name: String,
    /// The time limit for an answer of the server.
    pub(super) timeout: Duration,
}

/// A piece of memory to send, or to receive into.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub memory: *mut u8,
    pub length: usize,
}

impl Wire {
    /// Connects to the server of an address.
    ///
    /// # Errors
    /// The name of the server cannot be resolved, or no connection can be established to any of its
    /// addresses.
    pub(crate) fn connect(address: &Address) -> Result<Wire, Error> {
        let server = address.server();
        let addresses = server.to_socket_addrs().map_err(|source| {
            Error::io(format!("resolving the name {}", address.host), source)
                .of_kind(ErrorKind::Usage)
                .with_remedy("check the name of the server")
        })?;
        let mut last = io::Error::from_raw_os_error(libc::EADDRNOTAVAIL);
        for peer in addresses {
            match reach(&peer) {
                Ok(stream) => return Wire::over(stream, address),
                Err(error) => last = error,
            }
        }
        if is_interrupted() {
            let what = format!("interrupted while waiting for {address}");
            return Err(Error::new(ErrorKind::Io, what));
        }
        Err(Error::io(format!("connecting to {server}"), last)
            .of_kind(ErrorKind::Io)
            .with_remedy("check that the server runs and that the port is right"))
    }

    /// Creates a connection from a connected stream, and starts the time limit of the set-up.
    pub(crate) fn over(stream: TcpStream, address: &Address) -> Result<Wire, Error> {
        let name = address.to_string();
        let set = |result: io::Result<()>| {
            result.map_err(|e| Error::io(format!("setting up the connection to {name}"), e))
        };
        // This call fails on a socket that is not TCP. Such a socket does not delay messages
        // anyway.
        let _ = stream.set_nodelay(true);
        set(stream.set_read_timeout(Some(LOOK)))?;
        set(stream.set_write_timeout(Some(LOOK)))?;
        enlarge_buffers(&stream);
        let (clock, timeout) = (Monotonic::new(), address.timeout);
        let set_up = SETUP_MIN.max(2 * timeout).as_nanos() as u64;
        let set_up_until_ns = Some(clock.now_ns().saturating_add(set_up));
        Ok(Wire { stream, clock, set_up_until_ns, name, timeout })
    }

    /// Ends the set-up, so that its time limit no longer applies. Calls still block.
    pub(super) fn after_set_up(mut self) -> Wire {
        self.set_up_until_ns = None;
        self
    }

    pub(super) fn is_set_up(&self) -> bool {
        self.set_up_until_ns.is_none()
    }

    /// Returns the address of the server's socket. None if the connection is not TCP.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.stream.peer_addr().ok()
    }

    /// Begins another connection to the same server. This function returns before the connection is
    /// established. Until then, no bytes can be sent.
    ///
    /// # Errors
    /// The connection attempt fails at once, for example because the network is unreachable.
    pub(super) fn again(&self, peer: SocketAddr) -> Result<Wire, Error> {
        let stream = begin_connection(&peer).map_err(|error| self.broken(error))?;
        // This call fails on a socket that is not TCP.
        let _ = stream.set_nodelay(true);
        enlarge_buffers(&stream);
        let (clock, timeout) = (self.clock, self.timeout);
        let wire = Wire { stream, clock, set_up_until_ns: None, name: self.name.clone(), timeout };
        wire.set_tick()?;
        Ok(wire)
    }

    /// Repeats a blocking call on the socket until the call succeeds or fails. Returns an error if
    /// the server is silent for longer than the time limit, if the set-up takes too long, or if the
    /// user interrupts the set-up.
    fn patiently<T>(&self, mut call: impl FnMut(&TcpStream) -> io::Result<T>) -> io::Result<T> {
        let begun_ns = self.clock.now_ns();
        let silent_until_ns = begun_ns.saturating_add(self.timeout.as_nanos() as u64);
        let until_ns = silent_until_ns.min(self.set_up_until_ns.unwrap_or(u64::MAX));
        loop {
            let error = match call(&self.stream) {
                Err(error) => error,
                done => return done,
            };
            match error.kind() {
                _ if self.set_up_until_ns.is_some() && is_interrupted() => {
                    return Err(io::Error::other("interrupted"));
                }
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock if self.clock.now_ns() < until_ns => {}
                io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                _ => return Err(error),
            }
        }
    }

    /// Returns an error if the time limit of the set-up has passed. Without this check, a server
    /// that sends slowly could prolong the set-up.
    fn check_set_up(&self) -> io::Result<()> {
        let is_over = self.set_up_until_ns.is_some_and(|until| self.clock.now_ns() >= until);
        if is_over { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    /// Sends a whole message during the set-up.
    pub(crate) fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.send_both(message, &[]).map_err(|error| self.broken(error))
    }

    /// Receives `length` bytes during the set-up.
    ///
    /// # Errors
    /// The connection broke, the server did not answer in time, or the length is too large.
    pub(crate) fn receive(&mut self, length: usize) -> Result<Vec<u8>, Error> {
        if length > MESSAGE_BYTES_MAX {
            return Err(self.violated(&format!("announced a message of {length} bytes (too long)")));
        }
        let mut bytes = vec![0; length];
        self.receive_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Sends a message that consists of two parts, in as few packets as possible.
    pub(super) fn send_both(&mut self, first: &[u8], second: &[u8]) -> io::Result<()> {
        let mut parts = [IoSlice::new(first), IoSlice::new(second)];
        let mut left = &mut parts[..];
        while left.iter().any(|part| !part.is_empty()) {
            match self.patiently(|mut stream| stream.write_vectored(left))? {
                0 => return Err(io::ErrorKind::BrokenPipe.into()),
                count => IoSlice::advance_slices(&mut left, count),
            }
            self.check_set_up()?;
        }
        Ok(())
    }

    /// Waits for the server, and copies received bytes without removing them from the socket.
    /// Returns the number of bytes, or 0 if the server has closed the connection.
    pub(super) fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.patiently(|stream| stream.peek(buffer))
    }

    /// Fills `buffer` with received bytes.
    ///
    /// # Errors
    /// The connection broke, or the server did not answer in time.
    pub(super) fn receive_into(&mut self, buffer: &mut [u8]) -> Result<(), Error> {
        let mut filled = 0;
        while filled < buffer.len() {
            let read = self.patiently(|mut stream| stream.read(&mut buffer[filled..]));
            match read.map_err(|error| self.broken(error))? {
                0 => return Err(self.broken(io::ErrorKind::UnexpectedEof.into())),
                count => filled += count,
            }
            self.check_set_up().map_err(|error| self.broken(error))?;
        }
        Ok(())
    }

    /// Returns the error for a server that violated the protocol.
    pub(crate) fn violated(&self, what: &str) -> Error {
        violated(&self.name, what)
    }

    /// Returns the error for a target that the server or this client refuses to open.
    pub(crate) fn refused(&self, what: impl Into<String>, remedy: &str) -> Error {
        Error::new(ErrorKind::Usage, format!("{}: {}", self.name, what.into())).with_remedy(remedy)
    }

    /// Returns the error for a server that was too busy for longer than the time limit.
    pub(super) fn busy(&self) -> Error {
        let (name, seconds) = (&self.name, self.timeout.as_secs());
        Error::new(ErrorKind::Io, format!("{name}: the server was too busy for {seconds} s"))
            .with_remedy(
                "use a smaller `depth` and fewer `threads`, or use a longer ?timeout=SECONDS in \
                 the address",
            )
    }

    /// Returns the error for a set-up that takes too long.
    fn slow(&self) -> Error {
        let seconds = SETUP_MIN.max(2 * self.timeout).as_secs();
        let what = format!("{} did not set up the connection in {seconds} s", self.name);
        Error::new(ErrorKind::Io, what).with_remedy(
            "check the server and the network, or use a longer ?timeout=SECONDS in the address",
        )
    }

    /// Returns the error for a connection that failed, or for a server that did not answer.
    pub(super) fn broken(&self, error: io::Error) -> Error {
        let name = &self.name;
        match error.kind() {
            io::ErrorKind::TimedOut if self.check_set_up().is_err() => self.slow(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                let seconds = self.timeout.as_secs();
                Error::new(ErrorKind::Io, format!("{name} did not answer for {seconds} s"))
                    .with_remedy(
                        "check the server and the network, or use a longer ?timeout=SECONDS in \
                         the address",
                    )
            }
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => {
                Error::new(ErrorKind::Io, format!("{name} closed the connection"))
                    .with_remedy("check the log of the server")
            }
            io::ErrorKind::Other if is_interrupted() => {
                Error::new(ErrorKind::Io, format!("interrupted while waiting for {name}"))
            }
            _ => Error::io(format!("the connection to {name} broke"), error)
                .of_kind(ErrorKind::Io)
                .with_remedy("check the server and the network"),
        }
    }

    /// Limits each blocking receive to [`TICK`].
    pub(super) fn set_tick(&self) -> Result<(), Error> {
        self.stream.set_read_timeout(Some(TICK)).map_err(|error| self.broken(error))
    }

    /// Returns true if bytes have arrived, or if the connection has ended.
    pub(super) fn has_news(&self) -> bool {
        let mut poll = Poll::default();
        poll.add(self, false);
        poll.wait(Duration::ZERO).is_err() || poll.can_receive(0)
    }

    /// Sends several pieces without blocking. Returns the number of bytes that were sent. None if
    /// nothing can be sent now.
    ///
    /// # Safety
    /// Each piece must be readable for its length.
    pub(super) unsafe fn send_now(&self, pieces: &[Piece]) -> Result<Option<usize>, Error> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the caller promises that the pieces are valid.
        self.moved(unsafe { self.message_call(pieces, flags, send_message) })
    }

    /// Receives into several pieces without blocking. Returns the number of bytes that were
    /// received. None if nothing has arrived.
    ///
    /// # Safety
    /// Each piece must be writable for its length, and nothing else may use it.
    pub(super) unsafe fn receive_now(&self, pieces: &[Piece]) -> Result<Option<usize>, Error> {
        // SAFETY: the caller promises that the pieces are valid.
        unsafe { self.receive_with(pieces, libc::MSG_DONTWAIT) }
    }

    /// Receives into several pieces like [`Wire::receive_now`], but waits up to [`TICK`] for the
    /// first byte.
    ///
    /// # Safety
    /// Each piece must be writable for its length, and nothing else may use it.
    pub(super) unsafe fn wait_and_receive(&self, pieces: &[Piece]) -> Result<Option<usize>, Error> {
        // SAFETY: the caller promises that the pieces are valid.
        unsafe { self.receive_with(pieces, 0) }
    }

    unsafe fn receive_with(&self, pieces: &[Piece], flags: i32) -> Result<Option<usize>, Error> {
        // SAFETY: the caller promises that the pieces are valid. Besides the pieces, recvmsg
        // changes only the fields of the header.
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
        // SAFETY: an all-zero msghdr is valid and means no name and no control data.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = vectors.as_mut_ptr();
        header.msg_iovlen = count as _;
        // SAFETY: the header and its vectors outlive the call. The caller promises that the pieces
        // are valid.
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

/// The type of recvmsg(2) and of [`send_message`].
type SendOrReceive =
    unsafe extern "C" fn(libc::c_int, *mut libc::msghdr, libc::c_int) -> libc::ssize_t;

/// The maximum number of pieces that one call sends or receives.
pub(super) const PIECES_MAX: usize = 32;

/// Calls sendmsg(2). `header` is mutable so that this function has the same type as recvmsg(2).
unsafe extern "C" fn send_message(
    descriptor: libc::c_int,
    header: *mut libc::msghdr,
    flags: libc::c_int,
) -> libc::ssize_t {
    // SAFETY: the caller promises that the header and its pieces are valid.
    unsafe { libc::sendmsg(descriptor, header, flags) }
}

/// Opens a TCP connection, and waits until the connection is established.
pub(super) fn reach(peer: &SocketAddr) -> io::Result<TcpStream> {
    let (clock, stream) = (Monotonic::new(), begin_connection(peer)?);
    let until_ns = clock.now_ns() + CONNECT_TIMEOUT.as_nanos() as u64;
    let mut entry = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    while entry.revents == 0 {
        if is_interrupted() {
            return Err(io::Error::other("interrupted"));
        }
        if clock.now_ns() >= until_ns {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // SAFETY: the entry outlives the call. If a signal interrupts the call, the loop goes on.
        unsafe { libc::poll(&raw mut entry, 1, LOOK.as_millis() as libc::c_int) };
    }
    match stream.take_error()? {
        Some(error) => Err(error),
        None => Ok(stream),
    }
}

/// Begins a TCP connection. The connection is established when the socket becomes writable.
fn begin_connection(peer: &SocketAddr) -> io::Result<TcpStream> {
    let family = if peer.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is passed.
    let descriptor = unsafe { libc::socket(family, kind, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and belongs to nobody else.
    let stream = TcpStream::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
    let connect = |name: *const libc::sockaddr, bytes: usize| {
        // SAFETY: the name has `bytes` bytes and outlives the call.
        unsafe { libc::connect(descriptor, name, bytes as libc::socklen_t) }
    };
    let connected = match peer {
        SocketAddr::V4(peer) => {
            let name = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: peer.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(peer.ip().octets()) },
                sin_zero: [0; 8],
            };
            connect((&raw const name).cast(), size_of_val(&name))
        }
        SocketAddr::V6(peer) => {
            let name = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: peer.port().to_be(),
                sin6_flowinfo: peer.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: peer.ip().octets() },
                sin6_scope_id: peer.scope_id(),
            };
            connect((&raw const name).cast(), size_of_val(&name))
        }
    };
    let error = io::Error::last_os_error();
    if connected < 0 && error.raw_os_error() != Some(libc::EINPROGRESS) {
        return Err(error);
    }
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Requests large socket buffers. It is not an error if the kernel grants less.
fn enlarge_buffers(stream: &TcpStream) {
    let bytes = SOCKET_BYTES;
    for option in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
        // SAFETY: the descriptor is open, and the value is a c_int that outlives the call.
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
}

/// Returns the beginning of a text from a server. Control characters and line ends are escaped, so
/// that the text cannot control a terminal.
pub(super) fn printable(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(TEXT_BYTES_MAX)]);
    let mut shown = String::new();
    for c in text.chars() {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}') {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns the error for a server that violated the protocol. `name` is the address of the target.
/// `what` completes a sentence that begins with "the server".
pub(crate) fn violated(name: &str, what: &str) -> Error {
    Error::new(ErrorKind::Io, format!("{name}: the server {what}"))
        .with_remedy("check that the address has the right protocol and port")
}

/// Waits until one of several connections is ready.
#[derive(Debug, Default)]
pub(crate) struct Poll {
    entries: Vec<libc::pollfd>,
}

impl Poll {
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Adds a connection. The wait ends when something can be received from this connection. With
    /// `wants_to_send`, the wait also ends when something can be sent.
    pub(super) fn add(&mut self, wire: &Wire, wants_to_send: bool) {
        let events = libc::POLLIN | if wants_to_send { libc::POLLOUT } else { 0 };
        self.entries.push(libc::pollfd { fd: wire.stream.as_raw_fd(), events, revents: 0 });
    }

    /// Waits until a connection is ready or `wait` has passed. A signal ends the wait early.
    pub(crate) fn wait(&mut self, wait: Duration) -> Result<(), Error> {
        let time =
            libc::timespec { tv_sec: wait.as_secs() as _, tv_nsec: wait.subsec_nanos().into() };
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

    /// Returns true if bytes have arrived on a connection, or if the connection has ended. `index`
    /// is the number of connections that were added before this one.
    pub(crate) fn can_receive(&self, index: usize) -> bool {
        self.entries.get(index).is_some_and(|entry| entry.revents & !libc::POLLOUT != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn served() -> (TcpListener, SocketAddr, Address) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = listener.local_addr().unwrap();
        let address = format!("nbd://127.0.0.1:{}/x?timeout=5", peer.port());
        (listener, peer, address.parse().unwrap())
    }

    #[test]
    fn another_connection_begins_without_waiting_for_the_server() {
        let (listener, peer, address) = served();
        // The server accepts no connection, and its backlog is full after a few connections.
        // SAFETY: the descriptor is open, and no memory is passed.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let wire = Wire::connect(&address).unwrap();
        let _waiting: Vec<TcpStream> = (0..4).map(|_| begin_connection(&peer).unwrap()).collect();
        let again = wire.again(wire.peer().unwrap()).unwrap();
        let mut byte = [7];
        let piece = Piece { memory: byte.as_mut_ptr(), length: 1 };
        // SAFETY: the byte outlives both calls.
        let (sent, received) =
            unsafe { (again.send_now(&[piece]).unwrap(), again.receive_now(&[piece]).unwrap()) };
        assert_eq!((sent, received), (None, None), "the connection is not established yet");
    }

    #[test]
    fn a_server_that_is_never_silent_cannot_prolong_the_set_up() {
        let (listener, _, address) = served();
        let mut wire = Wire::connect(&address).unwrap();
        wire.set_up_until_ns = Some(wire.clock.now_ns() + 200_000_000);
        let (mut server, _) = listener.accept().unwrap();
        std::thread::spawn(move || {
            let clock = Monotonic::new();
            while server.write_all(b"x").is_ok() {
                clock.sleep(Duration::from_millis(5));
            }
        });
        let error = wire.receive(1 << 20).unwrap_err().to_string();
        assert!(error.contains("did not set up the connection in"), "{error}");
    }

    #[test]
    fn text_of_a_server_is_one_line_without_orders_to_a_terminal() {
        assert_eq!(printable(b"no\nhalfpower: \x1b[2Jx"), "no\\nhalfpower: \\u{1b}[2Jx");
        assert_eq!(printable("größe".as_bytes()), "größe");
    }
}
