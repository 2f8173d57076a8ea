//! A keep-alive connection that makes one request at a time and waits for its response.
//!
//! Source: RFC 9112. This connection is used while a target is opened, and by the object client.
//! Each response is timed. If the server has closed the connection between two requests, the
//! connection is opened again. Peeking finds the end of a header before the header is read, so that
//! the bytes after the header stay in the socket. The body can then be received directly into the
//! memory of the caller.

use std::io;

use crate::clock::{Clock, Monotonic};
use crate::error::Error;
use crate::network::Address;
use crate::network::s3::body::{Body, Next};
use crate::network::s3::http::{
    self, Framing, HEAD_BYTES_MAX, HEAD_END, Head, LINE_BYTES_MAX, LINE_END, STATUS_BYTES,
};
use crate::network::s3::message::Method;
use crate::network::wire::Wire;

/// The maximum number of bytes that are read from the body of an error response.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// The number of bytes in one peek for the end of a header. The headers of S3 servers are shorter.
const PEEK_BYTES: usize = 1 << 10;
/// The remedy if the server accepts only TLS connections.
pub(super) const TLS_REMEDY: &str =
    "use the plain HTTP port of the server, or a tunnel such as stunnel in front of it";
/// The maximum number of bytes by which [`Reply::text`] grows before each receive call.
const PIECE_BYTES: usize = 64 << 10;
/// The maximum number of interim responses to one request.
const INTERIMS_MAX: usize = 4;

/// Where the body of a successful response is stored.
#[derive(Debug)]
pub(in crate::network) enum Sink<'a> {
    /// The body is stored in this memory. A longer body is an error.
    Memory(&'a mut [u8]),
    /// The body is stored in [`Reply::text`]. A body of more than this many bytes is an error.
    Text(usize),
}

/// A response.
#[derive(Debug)]
pub(in crate::network) struct Reply {
    pub head: Head,
    /// The body. Empty if the body was stored in [`Sink::Memory`]. The body of an error response
    /// may be incomplete.
    pub text: Vec<u8>,
    /// The size of the body (bytes).
    pub bytes: u64,
    /// When the first byte arrived (ns on the connection's clock).
    pub first_byte_ns: u64,
    /// When the last byte arrived (ns on the connection's clock).
    pub end_ns: u64,
}

impl Reply {
    /// Returns whether the status says that the request succeeded (RFC 9110, section 15.3).
    pub(in crate::network) fn is_success(&self) -> bool {
        (200..300).contains(&self.head.status)
    }
}

/// A connection to one server.
#[derive(Debug)]
pub(in crate::network) struct Connection {
    address: Address,
    /// The TCP connection. None if it has ended.
    wire: Option<Wire>,
    /// Whether the server has answered on this connection.
    answered: bool,
    reconnects: u64,
    /// Whether the set-up of the target has ended, so that the time limit of the set-up no longer
    /// applies.
    is_set_up: bool,
    clock: Monotonic,
}

/// Why a response could not be received.
enum Failure {
    /// The connection ended before the first byte of the response.
    Ended(io::Error),
    /// The response could not be received for another reason.
    Other(Error),
}

impl Connection {
    /// Creates a connection from a TCP connection that has just been opened.
    pub(in crate::network) fn over(wire: Wire, address: &Address) -> Connection {
        let (address, clock) = (address.clone(), Monotonic::new());
        let is_set_up = wire.is_set_up();
        Connection { address, wire: Some(wire), answered: false, reconnects: 0, is_set_up, clock }
    }

    /// Returns the current time (ns on the connection's clock).
    pub(in crate::network) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Returns how often the connection was opened again.
    pub(in crate::network) fn reconnects(&self) -> u64 {
        self.reconnects
    }

    /// Returns the TCP connection, and whether the server has answered on it. If the connection has
    /// ended, a new one is opened.
    pub(super) fn into_wire(mut self) -> Result<(Wire, bool), Error> {
        match self.wire.take() {
            Some(wire) => Ok((wire, self.answered)),
            None => Ok((self.connect()?, false)),
        }
    }

    /// Makes a request with the payload `body`, and waits for the response. A response with an
    /// error status is returned like any other.
    ///
    /// # Errors
    /// The server cannot be reached, does not answer, does not speak HTTP/1.1, or sends more than
    /// fits into the sink. The next request then uses a new connection.
    pub(in crate::network) fn exchange(
        &mut self,
        method: Method,
        message: &[u8],
        body: &[u8],
        sink: &mut Sink,
    ) -> Result<Reply, Error> {
        let mut wire = self.take_wire()?;
        let mut reply = self.attempt(&mut wire, method, message, body, sink);
        if let Err(Failure::Ended(_)) = reply
            && self.answered
            && method.is_idempotent()
        {
            // The server has closed the idle connection before the request arrived.
            wire = self.connect()?;
            reply = self.attempt(&mut wire, method, message, body, sink);
        }
        let reply = reply.map_err(|failure| match failure {
            Failure::Ended(error) => wire.broken(error),
            Failure::Other(error) => error,
        })?;
        self.answered = true;
        self.wire = (!reply.head.closes).then_some(wire);
        Ok(reply)
    }

    /// Takes the TCP connection. Opens a new one if the server has closed the connection or has
    /// sent unexpected bytes.
    fn take_wire(&mut self) -> Result<Wire, Error> {
        match self.wire.take() {
            Some(wire) if !self.answered || !wire.has_news() => Ok(wire),
            _ => self.connect(),
        }
    }

    fn connect(&mut self) -> Result<Wire, Error> {
        let wire = Wire::connect(&self.address)?;
        self.answered = false;
        self.reconnects += 1;
        Ok(if self.is_set_up { wire.after_set_up() } else { wire })
    }

    fn attempt(
        &self,
        wire: &mut Wire,
        method: Method,
        message: &[u8],
        body: &[u8],
        sink: &mut Sink,
    ) -> Result<Reply, Failure> {
        let (mut head, first_byte_ns) = match wire.send_both(message, body) {
            Ok(()) => self.head(wire, method)?,
            // A server may refuse a request and close the connection before it has read the whole
            // request. The response may have arrived nevertheless.
            Err(error) if has_ended(&error) => match self.head(wire, method) {
                Ok((head, first_byte_ns)) => (Head { closes: true, ..head }, first_byte_ns),
                Err(_) => return Err(Failure::Ended(error)),
            },
            Err(error) => return Err(Failure::Other(wire.broken(error))),
        };
        let succeeds = (200..300).contains(&head.status);
        let mut filling = Filling { memory: None, text: Vec::new(), size: 0, filled: 0 };
        match sink {
            Sink::Memory(memory) if succeeds => {
                filling.size = memory.len();
                filling.memory = Some(memory);
            }
            Sink::Text(bytes_max) if succeeds => filling.size = *bytes_max,
            _ => filling.size = ERROR_BYTES_MAX,
        }
        let complete = receive_body(wire, &self.clock, head.framing, &mut filling)?;
        if succeeds && !complete {
            let what = format!("the server sent more than {} bytes", filling.size);
            let error = wire.refused(what, "check the size of the object");
            return Err(Failure::Other(error));
        }
        // The rest of a long error message is not read, so the connection cannot be used again.
        head.closes |= !complete;
        let (bytes, end_ns) = (filling.filled as u64, self.clock.now_ns());
        filling.text.truncate(filling.filled);
        Ok(Reply { head, text: filling.text, bytes, first_byte_ns, end_ns })
    }

    /// Receives the header of a response. Returns the header, and when its first byte arrived (ns).
    fn head(&self, wire: &mut Wire, method: Method) -> Result<(Head, u64), Failure> {
        for _ in 0..=INTERIMS_MAX {
            let (bytes, first_byte_ns) = until(wire, &self.clock, HEAD_END, HEAD_BYTES_MAX)?;
            let flawed = |flaw| Failure::Other(wire.violated(flaw));
            let (start, rest) = bytes.split_at_checked(STATUS_BYTES).unwrap_or((&bytes, &[]));
            let status = http::status(start).map_err(flawed)?;
            let head = http::head(status, rest, method == Method::Head).map_err(flawed)?;
            if !status.is_interim() {
                return Ok((head, first_byte_ns));
            }
        }
        Err(Failure::Other(wire.violated("sends too many interim responses")))
    }
}

/// Returns whether an error means that the server has closed the connection.
fn has_ended(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
    )
}

/// Receives the bytes up to and including `end`. Returns these bytes, and the time at which the
/// first byte arrived (ns).
fn until(
    wire: &mut Wire,
    clock: &Monotonic,
    end: &[u8],
    bytes_max: usize,
) -> Result<(Vec<u8>, u64), Failure> {
    let (mut bytes, mut first_byte_ns) = (Vec::new(), None);
    while bytes.len() < bytes_max {
        let before = bytes.len();
        bytes.resize((before + PEEK_BYTES).min(bytes_max), 0);
        let arrived = match wire.peek(&mut bytes[before..]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            other => other,
        };
        let arrived = arrived.map_err(|error| match before {
            0 if has_ended(&error) => Failure::Ended(error),
            _ => Failure::Other(wire.broken(error)),
        })?;
        let first_byte_ns = *first_byte_ns.get_or_insert_with(|| clock.now_ns());
        bytes.truncate(before + arrived);
        if http::is_tls(&bytes) {
            let what = "the server answered with TLS, which halfpower does not support";
            return Err(Failure::Other(wire.refused(what, TLS_REMEDY)));
        }
        let searched = before.saturating_sub(end.len() - 1);
        let found = bytes[searched..].windows(end.len()).position(|window| window == end);
        if let Some(at) = found {
            bytes.truncate(searched + at + end.len());
        }
        wire.receive_into(&mut bytes[before..]).map_err(Failure::Other)?;
        if found.is_some() {
            return Ok((bytes, first_byte_ns));
        }
    }
    let what = format!("sent a header of more than {bytes_max} bytes");
    Err(Failure::Other(wire.violated(&what)))
}

/// The memory for a body.
struct Filling<'a> {
    /// The caller's memory. None if the body is stored in `text`, which grows as bytes arrive.
    memory: Option<&'a mut [u8]>,
    text: Vec<u8>,
    /// The maximum size of the body (bytes).
    size: usize,
    filled: usize,
}

impl Filling<'_> {
    /// Returns the memory for the next `left` bytes, or for fewer if not all of them fit. The
    /// result is empty if nothing more fits.
    fn room(&mut self, left: u64) -> &mut [u8] {
        let fits = (self.size - self.filled).min(usize::try_from(left).unwrap_or(usize::MAX));
        match &mut self.memory {
            Some(memory) => &mut memory[self.filled..][..fits],
            None => {
                let fits = fits.min(PIECE_BYTES);
                self.text.resize(self.filled + fits, 0);
                &mut self.text[self.filled..]
            }
        }
    }
}

/// Receives a body. Returns false if the body does not fit. In that case the connection cannot be
/// used any more.
fn receive_body(
    wire: &mut Wire,
    clock: &Monotonic,
    framing: Framing,
    filling: &mut Filling,
) -> Result<bool, Failure> {
    if matches!(framing, Framing::Length(length) if length > filling.size as u64) {
        return Ok(false);
    }
    let mut body = Body::new(framing);
    loop {
        let mut left = match body.next() {
            Next::End => return Ok(true),
            Next::Payload(left) => left,
            Next::Line => {
                let (line, _) = until(wire, clock, LINE_END, LINE_BYTES_MAX)?;
                body.line(&line).map_err(|flaw| Failure::Other(wire.violated(flaw)))?;
                continue;
            }
        };
        if body.ends_with_connection() {
            let mut scratch = [0; PEEK_BYTES];
            left = wire.peek(&mut scratch).map_err(|e| Failure::Other(wire.broken(e)))? as u64;
            if left == 0 {
                return Ok(true);
            }
        }
        let room = filling.room(left);
        if room.is_empty() {
            return Ok(false);
        }
        wire.receive_into(room).map_err(Failure::Other)?;
        let count = room.len();
        filling.filled += count;
        body.moved(count as u64);
    }
}
