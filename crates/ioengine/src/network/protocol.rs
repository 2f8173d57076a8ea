//! The interface of a network protocol. A protocol turns requests into messages, and the bytes of
//! replies into completions. It does no I/O.

use std::collections::VecDeque;
use std::fmt::Debug;

use crate::error::Error;
use crate::network::RemoteInfo;
use crate::network::wire::Wire;
use crate::request::{Completion, Request};

/// The slot number in the completion of a flush.
pub(crate) const FLUSH_SLOT: u32 = u32::MAX;

/// A connection after its set-up.
pub(crate) struct Opened {
    pub wire: Wire,
    pub protocol: Box<dyn Protocol>,
    pub info: RemoteInfo,
}

/// What the receiver does next with the bytes from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Passes this many bytes to [`Protocol::took`].
    Take(usize),
    /// Passes the next bytes up to and including the first `end` to [`Protocol::took`]. If these
    /// are more than `bytes_max` bytes, the server has violated the protocol.
    Until { end: &'static [u8], bytes_max: usize },
    /// Stores the next `length` bytes in the memory of a slot, beginning at offset `within`. Then
    /// passes them to [`Protocol::filled`].
    Fill { slot: u32, within: u32, length: u32 },
    /// Reports a completion. The next bytes are the beginning of a message.
    Complete(Completion),
    /// Does nothing. The message has ended, and the next bytes are the beginning of a message.
    Next,
}

/// The state of one protocol on one connection.
pub(crate) trait Protocol: Debug + Send + Sync {
    /// Returns the maximum number of outstanding requests on one connection.
    fn outstanding_max(&self) -> u32 {
        u32::MAX
    }

    /// Returns whether the server accepts another request at this moment.
    fn has_room(&self) -> bool {
        true
    }

    /// Returns whether a flush on this connection covers the writes of all connections. If not,
    /// each connection must flush its own writes.
    fn flushes_for_all(&self) -> bool {
        true
    }

    /// Adds the message of a request to `out`. `payload` is the memory of the request. A request
    /// that is larger than the protocol allows is shortened.
    fn request(&mut self, request: &Request, payload: &[u8], out: &mut Outbox);

    /// Adds a flush message, which makes all writes durable. The completion of the flush has the
    /// slot number [`FLUSH_SLOT`]. Returns false if the server does not support a flush.
    fn flush(&mut self, out: &mut Outbox) -> bool;

    /// Returns the size of a message header (bytes). The receiver first passes this many bytes of
    /// each message to [`Protocol::took`], which returns the next step.
    fn header_bytes(&self) -> usize;

    /// Prepares for a new connection after the old connection ended between two messages. Adds the
    /// messages of the outstanding requests to `out` again, and returns true. Returns false if the
    /// caller must not reconnect and must report the end of the old connection as an error. The
    /// default implementation returns false.
    fn reconnect(&mut self, _out: &mut Outbox) -> bool {
        false
    }

    /// Processes the bytes that [`Step::Take`] or [`Step::Until`] requested, and returns the next
    /// step.
    ///
    /// # Errors
    /// The server violated the protocol. The connection cannot be used any more.
    fn took(&mut self, bytes: &[u8], out: &mut Outbox) -> Result<Step, Error>;

    /// Returns the next step after [`Step::Fill`]. `payload` contains the bytes that were stored in
    /// the slot.
    ///
    /// # Errors
    /// The server violated the protocol. The connection cannot be used any more.
    fn filled(&mut self, payload: &[u8], out: &mut Outbox) -> Result<Step, Error>;
}

/// Messages that have not been sent completely.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(super) parts: VecDeque<Part>,
}

/// A piece of a message.
#[derive(Debug)]
pub(super) enum Part {
    /// Bytes that are stored here. The first `sent` of them have been sent.
    Bytes { bytes: Vec<u8>, sent: usize },
    /// Bytes in the memory of a slot.
    Slot { slot: u32, within: u32, length: u32 },
}

impl Outbox {
    /// Adds bytes.
    pub(crate) fn bytes(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.parts.push_back(Part::Bytes { bytes, sent: 0 });
        }
    }

    /// Adds `length` bytes from the memory of an outstanding slot, beginning at offset `within`.
    pub(crate) fn slot(&mut self, slot: u32, within: u32, length: u32) {
        if length > 0 {
            self.parts.push_back(Part::Slot { slot, within, length });
        }
    }

    /// Returns whether some bytes of a slot have not been sent yet.
    pub(super) fn holds(&self, slot: u32) -> bool {
        let is_of = |part: &Part| matches!(part, Part::Slot { slot: of, .. } if *of == slot);
        self.parts.iter().any(is_of)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}
