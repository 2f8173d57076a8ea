//! What a protocol does on an open connection: it turns requests into messages, and the bytes of
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

/// What the receiver does next with the bytes of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Passes the next bytes to [`Protocol::took`].
    Take(usize),
    /// Passes the next bytes up to and including the first `end` to [`Protocol::took`]. If they are
    /// more than `bytes_max` bytes, the server broke the protocol.
    Until { end: &'static [u8], bytes_max: usize },
    /// Stores the next bytes in a slot, then passes them to [`Protocol::filled`].
    Fill { slot: u32, within: u32, length: u32 },
    /// Reports a completion; the next bytes are the beginning of a message.
    Complete(Completion),
    /// Nothing more in this message; the next bytes are the beginning of a message.
    Next,
}

/// The state of one protocol on one connection.
pub(crate) trait Protocol: Debug + Send + Sync {
    /// The most requests that one connection can have outstanding.
    fn outstanding_max(&self) -> u32 {
        u32::MAX
    }

    /// Whether the server accepts another request at this moment.
    fn has_room(&self) -> bool {
        true
    }

    /// Whether a flush on this connection makes durable what was written on any connection. If
    /// not, each connection must flush what was written on it.
    fn flushes_for_all(&self) -> bool {
        true
    }

    /// Adds the message of a request to `out`. `payload` is the memory of the request. A protocol
    /// with a maximum size shortens a larger request.
    fn request(&mut self, request: &Request, payload: &[u8], out: &mut Outbox);

    /// Adds the message that makes everything written durable, to be completed with
    /// [`FLUSH_SLOT`]. False if the server has no such message.
    fn flush(&mut self, out: &mut Outbox) -> bool;

    /// Size of the beginning of a message (bytes). Its content determines how to continue.
    fn header_bytes(&self) -> usize;

    /// Prepares for a new connection after the old one ended between two messages, and adds the
    /// messages of the outstanding requests to `out`. Returns false, the default, if the end of the
    /// connection is an error.
    fn reconnect(&mut self, _out: &mut Outbox) -> bool {
        false
    }

    /// Continues with the bytes asked for by [`Step::Take`] or [`Step::Until`].
    ///
    /// # Errors
    /// The server broke the protocol; the connection cannot be used any more.
    fn took(&mut self, bytes: &[u8], out: &mut Outbox) -> Result<Step, Error>;

    /// Continues after [`Step::Fill`] with the bytes that are now in the slot.
    ///
    /// # Errors
    /// As [`Protocol::took`].
    fn filled(&mut self, payload: &[u8], out: &mut Outbox) -> Result<Step, Error>;
}

/// Messages on their way to the server.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(super) parts: VecDeque<Part>,
}

/// A piece of a message.
#[derive(Debug)]
pub(super) enum Part {
    /// Bytes, of which the first `sent` are sent.
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

    /// Adds bytes of a slot in flight, from `within` on.
    pub(crate) fn slot(&mut self, slot: u32, within: u32, length: u32) {
        if length > 0 {
            self.parts.push_back(Part::Slot { slot, within, length });
        }
    }

    /// Whether bytes of a slot are still to be sent.
    pub(super) fn holds(&self, slot: u32) -> bool {
        let is_of = |part: &Part| matches!(part, Part::Slot { slot: of, .. } if *of == slot);
        self.parts.iter().any(is_of)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}
