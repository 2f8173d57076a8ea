//! The S3 client: reads an object that is used as a target.
//!
//! Source: RFC 9112 (HTTP/1.1), RFC 9110, sections 14 (range requests) and 15 (status codes), and
//! the Amazon S3 API Reference: HeadObject and GetObject. Each read is a GET with the header Range.
//! Connections are kept alive, and each has one request at a time. If the server closes a
//! connection between two responses, the connection is opened again, and the latency of the next
//! request includes the reconnection. Objects cannot be written in place, so writes are refused.
//! TLS is not supported.

mod sign;
mod xml;
mod http;
mod body;
mod message;
mod connection;
mod refusal;
#[cfg(test)]
pub(super) mod test_server;
#[cfg(test)]
mod tests;

pub(super) use connection::{Connection, Reply, Sink};
pub(super) use message::{Call, Endpoint, Method};
pub(super) use refusal::{code, refusal};
pub(super) use sign::encoded;
pub(super) use xml::{escaped, leaves};

use crate::error::Error;
use crate::network::protocol::{Opened, Outbox, Protocol, Step};
use crate::network::wire::{Wire, violated};
use crate::network::{Access, Address, RemoteInfo};
use crate::request::{Completion, Op, Request};
use body::{Body, Next};
use http::{
    Framing, HEAD_BYTES_MAX, HEAD_END, Head, LINE_BYTES_MAX, LINE_END, STATUS_BYTES, Status,
};

/// The maximum size of a request (bytes). S3 allows larger requests, but the result of a request
/// must fit into 31 bits.
const REQUEST_BYTES_MAX: u32 = 1 << 30;
/// A body that is not stored is read in pieces of at most this size (bytes).
const SKIPPED_BYTES: u64 = 4 << 10;
/// The maximum size of the body of an error response (bytes). S3 servers send less than 1 KiB.
const ERROR_BYTES_MAX: u64 = 64 << 10;
/// The maximum number of interim responses to one request.
const INTERIMS_MAX: u32 = 4;

/// The state of one connection.
#[derive(Debug)]
struct S3 {
    address: Address,
    endpoint: Endpoint,
    /// The path of the object.
    path: String,
    size_bytes: u64,
    /// The outstanding request. None if no request is outstanding, or if the body of the response
    /// is being received.
    pending: Option<Pending>,
    stage: Stage,
    /// Whether the server has answered on this connection.
    answered: bool,
}

/// An outstanding request. `interims` is the number of interim (1xx) responses to it so far.
#[derive(Clone, Copy, Debug)]
struct Pending {
    slot: u32,
    offset: u64,
    length: u32,
    interims: u32,
}

/// The part of a response that the next bytes belong to.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The beginning of the status line.
    Status,
    /// The rest of the header.
    Head(Status),
    /// A part of the body, or a line of the chunked encoding.
    Body(Receiving),
}

/// A body that is being received.
#[derive(Clone, Copy, Debug)]
struct Receiving {
    request: Pending,
    body: Body,
    /// The number of payload bytes that have arrived.
    moved: u64,
    /// The maximum size of the payload (bytes). If the body is stored in the slot, this is also the
    /// minimum size. A payload of another size violates the protocol.
    moved_max: u64,
    /// The result of a request whose body is skipped. None if the body is stored in the slot.
    result: Option<i32>,
    /// The size of the part that is being received (bytes). 0 if the next bytes are a line of the
    /// chunked encoding.
    part: u32,
}

/// Opens the object: reads its size, and checks that it can be read.
pub(super) fn open(wire: Wire, access: &Access) -> Result<Opened, Error> {
    if access.writable {
        let remedy = "use `rw=read`, or measure PUT with `halfpower study objects`";
        return Err(wire.refused("objects cannot be written in place", remedy));
    }
    let (_, key) = access.address.first_and_rest();
    if key.is_empty() {
        let what = "the address contains no object key";
        return Err(wire.refused(what, "use s3://HOST[:PORT]/BUCKET/KEY"));
    }
    let mut endpoint = Endpoint::new(access, false)?;
    let path = endpoint.path(key);
    let mut connection = Connection::over(wire, &access.address);
    let head = head_of(&mut connection, &mut endpoint, &path, access)?;
    let Some(size_bytes) = head.length else {
        return Err(violated(&access.address.to_string(), "did not report the size of the object"));
    };
    let (wire, answered) = connection.into_wire()?;
    let protocol = S3 {
        address: access.address.clone(),
        path,
        size_bytes,
        pending: None,
        stage: Stage::Status,
        answered,
        endpoint,
    };
    let signed = if protocol.endpoint.is_signed() { "signed" } else { "anonymous" };
    let closes = if head.closes { ", closed by the server after each request" } else { "" };
    let info = RemoteInfo {
        size_bytes,
        block_bytes: 1,
        request_bytes_max: REQUEST_BYTES_MAX,
        features: format!(
            "S3 over HTTP/1.1, {signed}, 1 outstanding request per connection{closes}"
        ),
    };
    Ok(Opened { wire, protocol: Box::new(protocol), info })
}

/// Makes a HEAD request for the object, and returns the header of the response.
fn head_of(
    connection: &mut Connection,
    endpoint: &mut Endpoint,
    path: &str,
    access: &Access,
) -> Result<Head, Error> {
    let mut ask = |call: Call| {
        let message = endpoint.message(&call);
        connection.exchange(call.method, &message, &[], &mut Sink::Text(1))
    };
    let reply = ask(Call::new(Method::Head, path))?;
    if reply.head.status == 200 {
        return Ok(reply.head);
    }
    // A response to HEAD has no body, so only the response to a read contains the reason for an
    // error.
    let first_byte = Call { range: Some((0, 0)), ..Call::new(Method::Get, path) };
    let explained = ask(first_byte)?;
    let told = if explained.is_success() { &reply } else { &explained };
    Err(refusal(access, "opening the object", told))
}

/// Returns the error number for the HTTP status of a failed read. Returns 0 for a read past the end
/// of the object.
fn errno(status: u16) -> i32 {
    match status {
        400 => libc::EINVAL,
        401 | 403 => libc::EACCES,
        404 | 410 => libc::ENOENT,
        416 => 0,
        // The server is too busy, so the worker repeats the request.
        408 | 429 | 503 => libc::EAGAIN,
        _ => libc::EIO,
    }
}

impl S3 {
    fn violated(&self, what: &str) -> Error {
        violated(&self.address.to_string(), what)
    }

    /// Adds the message of a request.
    fn send(&mut self, request: Pending, out: &mut Outbox) {
        let last = request.offset.saturating_add(u64::from(request.length) - 1);
        let range = Some((request.offset, last));
        let call = Call { range, ..Call::new(Method::Get, &self.path) };
        out.bytes(self.endpoint.message(&call));
        self.pending = Some(request);
    }

    /// Processes the header of a response. Decides whether the body is stored in the slot or
    /// skipped.
    fn begin_body(&mut self, head: &Head) -> Result<Step, Error> {
        let Some(request) = self.pending.take() else {
            return Err(self.violated("sent a reply to a request that is not outstanding"));
        };
        if (100..200).contains(&head.status) {
            if request.interims == INTERIMS_MAX {
                return Err(self.violated("sends too many interim responses"));
            }
            self.pending = Some(Pending { interims: request.interims + 1, ..request });
            self.stage = Stage::Status;
            return Ok(Step::Next);
        }
        if head.framing == Framing::UntilClosed {
            let what = format!("sent a body without its length (HTTP status {})", head.status);
            return Err(self.violated(&what));
        }
        let length = u64::from(request.length);
        let (moved_max, result) = match head.status {
            200 | 206 => match self.expected(head, request)? {
                Some(bytes) => (bytes, None),
                // The size of the object has changed, so the object was replaced.
                None => (length.max(ERROR_BYTES_MAX), Some(-libc::ESTALE)),
            },
            status => (ERROR_BYTES_MAX, Some(-errno(status))),
        };
        let body = Body::new(head.framing);
        self.receive(Receiving { request, body, moved: 0, moved_max, result, part: 0 })
    }

    /// Returns how many bytes the body of a successful response must have. None if the size of the
    /// object has changed since it was opened.
    fn expected(&self, head: &Head, request: Pending) -> Result<Option<u64>, Error> {
        let length = u64::from(request.length);
        if head.status == 200 {
            // Status 200 means that the body is the whole object. This is accepted only if the
            // whole object was requested.
            let whole = request.offset == 0 && length == self.size_bytes;
            return match head.length {
                Some(bytes) if whole && bytes == length => Ok(Some(length)),
                _ => Err(self.violated("ignores the Range header of a request")),
            };
        }
        let Some(range) = head.range else {
            return Err(self.violated("sent a part of an object without its Content-Range"));
        };
        if range.total.is_some_and(|total| total != self.size_bytes) {
            return Ok(None);
        }
        let bytes = range.last.saturating_sub(range.first).saturating_add(1);
        if range.first != request.offset || bytes > length {
            return Err(self.violated("sent another part of the object, not the requested part"));
        }
        if head.length.is_some_and(|told| told != bytes) {
            return Err(self.violated("sent a body whose length differs from its Content-Range"));
        }
        Ok(Some(bytes))
    }

    /// Returns the step that receives the next part of a body. At the end of the body, completes
    /// the request.
    fn receive(&mut self, mut now: Receiving) -> Result<Step, Error> {
        let left = match now.body.next() {
            Next::End => return self.complete(now),
            Next::Line => {
                self.stage = Stage::Body(Receiving { part: 0, ..now });
                return Ok(Step::Until { end: LINE_END, bytes_max: LINE_BYTES_MAX });
            }
            Next::Payload(left) => left,
        };
        if left > now.moved_max - now.moved {
            return Err(self.violated("sent more than was requested"));
        }
        let within = now.moved as u32;
        let part = if now.result.is_some() { left.min(SKIPPED_BYTES) } else { left };
        now.part = part as u32;
        self.stage = Stage::Body(now);
        Ok(match now.result {
            Some(_) => Step::Take(part as usize),
            None => Step::Fill { slot: now.request.slot, within, length: now.part },
        })
    }

    fn complete(&mut self, now: Receiving) -> Result<Step, Error> {
        if now.result.is_none() && now.moved < now.moved_max {
            return Err(self.violated("sent less than it announced"));
        }
        (self.stage, self.answered) = (Stage::Status, true);
        let result = now.result.unwrap_or(now.moved as i32);
        Ok(Step::Complete(Completion { slot: now.request.slot, result }))
    }

    /// Counts a part of the body that was received, and returns the next step.
    fn moved(&mut self, mut now: Receiving) -> Result<Step, Error> {
        now.body.moved(u64::from(now.part));
        now.moved += u64::from(now.part);
        self.receive(now)
    }
}

impl Protocol for S3 {
    fn outstanding_max(&self) -> u32 {
        1
    }

    fn request(&mut self, request: &Request, _payload: &[u8], out: &mut Outbox) {
        debug_assert_eq!(request.op, Op::Read, "the engine refuses writes to a read-only target");
        let length = request.length.clamp(1, REQUEST_BYTES_MAX);
        let Request { slot, offset, .. } = *request;
        self.send(Pending { slot, offset, length, interims: 0 }, out);
    }

    fn flush(&mut self, _out: &mut Outbox) -> bool {
        false
    }

    fn header_bytes(&self) -> usize {
        STATUS_BYTES
    }

    fn reconnect(&mut self, out: &mut Outbox) -> bool {
        // The request is sent again only if the server answered a request on the old connection. A
        // server that closed the old connection without an answer would probably close the next
        // connection without an answer too.
        let Some(request) = self.pending.filter(|_| self.answered) else { return false };
        self.answered = false;
        self.send(request, out);
        true
    }

    fn took(&mut self, bytes: &[u8], _out: &mut Outbox) -> Result<Step, Error> {
        match self.stage {
            Stage::Status => {
                let status = http::status(bytes).map_err(|flaw| self.violated(flaw))?;
                self.stage = Stage::Head(status);
                Ok(Step::Until { end: HEAD_END, bytes_max: HEAD_BYTES_MAX })
            }
            Stage::Head(status) => {
                let head = http::head(status, bytes, false).map_err(|flaw| self.violated(flaw))?;
                self.begin_body(&head)
            }
            Stage::Body(mut now) if now.part == 0 => {
                now.body.line(bytes).map_err(|flaw| self.violated(flaw))?;
                self.receive(now)
            }
            Stage::Body(now) => self.moved(now),
        }
    }

    fn filled(&mut self, _payload: &[u8], _out: &mut Outbox) -> Result<Step, Error> {
        match self.stage {
            Stage::Body(now) => self.moved(now),
            Stage::Status | Stage::Head(_) => Err(self.violated("sent data that was not expected")),
        }
    }
}
