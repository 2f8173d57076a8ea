//! Transfers the bytes of one connection: sends messages, receives replies, and transfers payload
//! directly between the socket and the memory of the requests.
//!
//! Only [`Link::wait`], [`Link::wait_once`] and [`Link::flush`] block. A link checks that received
//! data belongs to an outstanding request and fits into the memory of this request. If not, the
//! connection fails.

use std::net::SocketAddr;
use std::time::Duration;

use crate::clock::{Clock, Monotonic};
use crate::error::Error;
use crate::network::protocol::{FLUSH_SLOT, Outbox, Part, Protocol, Step};
use crate::network::wire::{PIECES_MAX, Piece, Poll, TICK, Wire, violated};
use crate::request::{Completion, Request};

/// The size of the buffer for headers and small payloads (bytes).
const INPUT_BYTES: usize = 16 << 10;

/// The memory of the outstanding requests, by slot number.
#[derive(Debug)]
pub(crate) struct Slots {
    lent: Vec<Option<Piece>>,
}

// SAFETY: a piece is memory of the engine's buffers, which is lent to this value until it is taken
// back.
unsafe impl Send for Slots {}
// SAFETY: with a shared reference, a piece is only read, to send it. Receiving data into a piece
// needs a unique reference.
unsafe impl Sync for Slots {}

impl Slots {
    /// Creates `count` slots without outstanding requests.
    pub(crate) fn new(count: u32) -> Slots {
        Slots { lent: vec![None; count as usize] }
    }

    /// Begins a request: marks its slot as outstanding, and stores where its memory is.
    ///
    /// # Safety
    /// The memory must be valid for `length` bytes, and no other code may use it until
    /// [`Slots::end`].
    pub(crate) unsafe fn begin(&mut self, slot: u32, memory: *mut u8, length: u32) {
        self.lent[slot as usize] = Some(Piece { memory, length: length as usize });
    }

    /// Ends a request. Returns false if the slot has no outstanding request.
    fn end(&mut self, slot: u32) -> bool {
        self.lent.get_mut(slot as usize).and_then(Option::take).is_some()
    }

    /// Returns `length` bytes of the memory of a request, beginning at offset `within`, to receive
    /// data into them. None if the slot has no outstanding request, or if the bytes are not inside
    /// the memory.
    fn part_mut(&mut self, slot: u32, within: u32, length: u32) -> Option<Piece> {
        self.part(slot, within, length)
    }

    /// Returns `length` bytes of the memory of a request, beginning at offset `within`, to send
    /// them. None if the slot has no outstanding request, or if the bytes are not inside the
    /// memory.
    fn part(&self, slot: u32, within: u32, length: u32) -> Option<Piece> {
        let whole = (*self.lent.get(slot as usize)?)?;
        let (within, length) = (within as usize, length as usize);
        if within.checked_add(length)? > whole.length {
            return None;
        }
        // SAFETY: the check above ensures that `within` is inside the memory.
        Some(Piece { memory: unsafe { whole.memory.add(within) }, length })
    }

    /// Returns the memory of an outstanding request. Empty if the slot has no outstanding request.
    pub(crate) fn payload(&self, slot: u32) -> &[u8] {
        let Some(Some(piece)) = self.lent.get(slot as usize) else { return &[] };
        // SAFETY: the slot is outstanding, so its memory is lent to this engine.
        unsafe { std::slice::from_raw_parts(piece.memory, piece.length) }
    }
}

/// The bytes that were received but not yet processed.
#[derive(Debug)]
struct Input {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    fn available(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Returns the free space after the available bytes. If the available bytes and the free space
    /// have fewer than `wanted` bytes together, first moves the available bytes to the front of the
    /// buffer. If that is not enough, also enlarges the buffer.
    fn free(&mut self, wanted: usize) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start + wanted > self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if wanted > self.bytes.len() {
            let mut larger = vec![0; wanted];
            larger[..self.end].copy_from_slice(&self.bytes[..self.end]);
            self.bytes = larger.into();
        }
        &mut self.bytes[self.end..]
    }
}

/// How much data one system call received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TakenIn {
    Nothing,
    /// All data that had arrived was received.
    AllArrived,
    /// The buffers are full. More data may have arrived.
    UpToRoom,
}

/// One connection and its outstanding requests.
#[derive(Debug)]
pub(crate) struct Link {
    wire: Wire,
    /// The address of the server, to reconnect after an error. None if the address is unknown.
    peer: Option<SocketAddr>,
    protocol: Box<dyn Protocol>,
    outbox: Outbox,
    input: Input,
    step: Step,
    /// The number of bytes that have arrived for the current [`Step::Fill`].
    moved: usize,
    outstanding: u32,
    /// Whether there was activity since the last call of [`Link::note`]: bytes were sent or
    /// received, or a request was added while none was outstanding.
    is_alive: bool,
    /// The time of the last call of [`Link::note`] that found activity (ns).
    heard_ns: u64,
    clock: Monotonic,
}

impl Link {
    /// Creates a link from a connection whose set-up is complete.
    pub(crate) fn new(wire: Wire, protocol: Box<dyn Protocol>) -> Result<Link, Error> {
        wire.set_tick()?;
        let (peer, wire) = (wire.peer(), wire.after_set_up());
        let clock = Monotonic::new();
        let step = Step::Take(protocol.header_bytes());
        let input = Input { bytes: vec![0; INPUT_BYTES].into(), start: 0, end: 0 };
        Ok(Link {
            wire,
            peer,
            protocol,
            outbox: Outbox::default(),
            input,
            step,
            moved: 0,
            outstanding: 0,
            is_alive: false,
            heard_ns: clock.now_ns(),
            clock,
        })
    }

    /// Returns the number of requests without a reply.
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Returns the maximum number of requests that the connection keeps outstanding.
    pub(crate) fn outstanding_max(&self) -> u32 {
        self.protocol.outstanding_max()
    }

    /// Returns the time of the last call of [`Link::note`] that found activity on the connection
    /// (ns).
    pub(crate) fn heard_ns(&self) -> u64 {
        self.heard_ns
    }

    /// Returns an error if `waited` exceeds the time limit of the connection. `waited` is the
    /// time since the first of the server's successive "too busy" replies to a request, or since
    /// the start of a flush to which the server replied "too busy".
    pub(crate) fn check_patience(&self, waited: Duration) -> Result<(), Error> {
        if waited > self.wire.timeout { Err(self.wire.busy()) } else { Ok(()) }
    }

    /// Returns true if another request can be added now.
    pub(crate) fn has_room(&self) -> bool {
        self.outstanding < self.protocol.outstanding_max() && self.protocol.has_room()
    }

    /// Adds a request. Its slot must be marked as outstanding in `slots`.
    pub(crate) fn add(&mut self, request: &Request, slots: &Slots) {
        self.is_alive |= self.outstanding == 0;
        self.outstanding += 1;
        self.protocol.request(request, slots.payload(request.slot), &mut self.outbox);
    }

    /// Returns true if a flush on this connection also covers the writes of all other connections.
    pub(crate) fn flushes_for_all(&self) -> bool {
        self.protocol.flushes_for_all()
    }

    /// Adds a flush, which makes all earlier writes durable. Its completion has the slot number
    /// [`FLUSH_SLOT`]. Returns false if the server does not support a flush.
    pub(crate) fn add_flush(&mut self) -> bool {
        let is_added = self.protocol.flush(&mut self.outbox);
        self.is_alive |= is_added && self.outstanding == 0;
        self.outstanding += u32::from(is_added);
        is_added
    }

    /// Makes all earlier writes on this connection durable, and waits for the completion.
    ///
    /// # Errors
    /// The flush or the connection failed.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        let is_added = self.add_flush();
        let (mut slots, mut done) = (Slots::new(0), Vec::new());
        while is_added && done.is_empty() {
            self.send(&slots)?;
            self.wait(&mut slots, &mut done)?;
        }
        done.iter().try_for_each(|completion| self.flushed(completion))
    }

    /// Returns an error if the completion of a flush contains an error.
    pub(crate) fn flushed(&self, completion: &Completion) -> Result<(), Error> {
        let outcome = completion.outcome();
        outcome.map_err(|e| Error::io(format!("flushing {}", self.wire.name), e))?;
        Ok(())
    }

    /// Sends as many bytes as possible without waiting.
    pub(crate) fn send(&mut self, slots: &Slots) -> Result<(), Error> {
        while !self.outbox.is_empty() {
            let mut pieces = [Piece { memory: std::ptr::null_mut(), length: 0 }; PIECES_MAX];
            let mut count = 0;
            for (piece, part) in pieces.iter_mut().zip(&self.outbox.parts) {
                *piece = match part {
                    Part::Bytes { bytes, sent } => Piece {
                        memory: bytes[*sent..].as_ptr().cast_mut(),
                        length: bytes.len() - sent,
                    },
                    Part::Slot { slot, within, length } => {
                        slots.part(*slot, *within, *length).ok_or_else(|| self.unknown())?
                    }
                };
                count += 1;
            }
            // SAFETY: the bytes belong to the outbox, and the slots are outstanding.
            let sent = match unsafe { self.wire.send_now(&pieces[..count]) } {
                Ok(Some(sent)) => sent,
                Ok(None) => break,
                Err(error) => {
                    self.reconnect(error)?;
                    continue;
                }
            };
            self.is_alive = true;
            self.sent(sent);
        }
        Ok(())
    }

    /// Replaces the connection after `error`. Returns `error` if the connection cannot be replaced:
    /// if the error occurred within a message, if the protocol has state on the connection, or if
    /// the address of the server is unknown. Does not wait until the new connection is established.
    /// Messages in the outbox are sent when the new connection is established.
    fn reconnect(&mut self, error: Error) -> Result<(), Error> {
        let between = self.step == Step::Take(self.protocol.header_bytes());
        if !between || !self.input.available().is_empty() {
            return Err(error);
        }
        self.outbox.parts.clear();
        let Some(peer) = self.peer.filter(|_| self.protocol.reconnect(&mut self.outbox)) else {
            return Err(error);
        };
        self.wire = self.wire.again(peer)?;
        Ok(())
    }

    /// Removes the first `count` bytes from the outbox, because they were sent.
    fn sent(&mut self, mut count: usize) {
        while let Some(part) = self.outbox.parts.front_mut() {
            let left = match part {
                Part::Bytes { bytes, sent } => bytes.len() - *sent,
                Part::Slot { length, .. } => *length as usize,
            };
            if left > count {
                match part {
                    Part::Bytes { sent, .. } => *sent += count,
                    Part::Slot { within, length, .. } => {
                        *within += count as u32;
                        *length -= count as u32;
                    }
                }
                return;
            }
            count -= left;
            self.outbox.parts.pop_front();
        }
    }

    /// Receives the data that has arrived, without waiting.
    pub(crate) fn receive(
        &mut self,
        slots: &mut Slots,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        self.receive_by(slots, done, false)
    }

    /// Waits up to [`TICK`] for the server and receives the data that has arrived. Returns an error
    /// if the server was silent for longer than the time limit.
    pub(crate) fn wait(
        &mut self,
        slots: &mut Slots,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        if self.can_wait_once() {
            self.wait_once(slots, done)?;
        } else {
            let mut poll = Poll::default();
            self.add_to(&mut poll);
            poll.wait(TICK)?;
            self.receive_by(slots, done, false)?;
        }
        self.note(self.clock.now_ns())
    }

    /// Returns true if [`Link::wait_once`] may be called: there is nothing to send, and the server
    /// is expected to send something.
    pub(crate) fn can_wait_once(&self) -> bool {
        self.outbox.is_empty() && self.expects()
    }

    /// Waits up to [`TICK`] for data from the server and receives the data, in one system call.
    pub(crate) fn wait_once(
        &mut self,
        slots: &mut Slots,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        self.receive_by(slots, done, true)
    }

    /// Makes `poll` wait for this connection too.
    pub(crate) fn add_to(&self, poll: &mut Poll) {
        poll.add(&self.wire, !self.outbox.is_empty());
    }

    /// Returns an error if the server has been silent for longer than the time limit. Must be
    /// called after messages were sent and received, with the current time.
    pub(crate) fn note(&mut self, now_ns: u64) -> Result<(), Error> {
        if std::mem::take(&mut self.is_alive) {
            self.heard_ns = now_ns;
        }
        let silence = Duration::from_nanos(now_ns.saturating_sub(self.heard_ns));
        if self.expects() && silence > self.wire.timeout {
            return Err(self.wire.broken(std::io::ErrorKind::TimedOut.into()));
        }
        Ok(())
    }

    /// Returns true if the server is expected to send something: a reply, or permission for another
    /// request.
    pub(crate) fn expects(&self) -> bool {
        self.outstanding > 0 || !self.protocol.has_room()
    }

    fn receive_by(
        &mut self,
        slots: &mut Slots,
        done: &mut Vec<Completion>,
        mut blocking: bool,
    ) -> Result<(), Error> {
        self.digest(slots, done)?;
        // A completion is pending until all bytes of its slot are sent. No further message is
        // processed until then, so a pending completion ends the loop.
        while self.expects() && !matches!(self.step, Step::Complete(_)) {
            // Only the first call may wait, because the caller must check its deadline after each
            // wait.
            let taken = match self.take_in(slots, std::mem::take(&mut blocking)) {
                Ok(taken) => taken,
                Err(error) => {
                    self.reconnect(error)?;
                    self.send(slots)?;
                    continue;
                }
            };
            self.is_alive |= taken != TakenIn::Nothing;
            self.digest(slots, done)?;
            if taken != TakenIn::UpToRoom {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Receives with one system call. If the next bytes are data for a slot, they are stored there.
    /// All further bytes are stored in the input buffer.
    fn take_in(&mut self, slots: &mut Slots, blocking: bool) -> Result<TakenIn, Error> {
        let (filling, wanted) = match self.step {
            Step::Fill { slot, within, length } => {
                let part = slots.part_mut(slot, within, length).ok_or_else(|| self.unknown())?;
                // SAFETY: `moved` is not more than the length of the part.
                let memory = unsafe { part.memory.add(self.moved) };
                (Some(Piece { memory, length: part.length - self.moved }), 1)
            }
            Step::Take(count) => (None, count),
            Step::Until { bytes_max, .. } => (None, bytes_max),
            _ => (None, 1),
        };
        let free = self.input.free(wanted);
        let behind = Piece { memory: free.as_mut_ptr(), length: free.len() };
        let both = [filling.unwrap_or(behind), behind];
        let pieces = if filling.is_some() { &both[..] } else { &both[..1] };
        // SAFETY: the slot is outstanding, and the buffer belongs to this link.
        let received = unsafe {
            if blocking {
                self.wire.wait_and_receive(pieces)
            } else {
                self.wire.receive_now(pieces)
            }
        }?;
        let Some(received) = received else { return Ok(TakenIn::Nothing) };
        let room: usize = pieces.iter().map(|piece| piece.length).sum();
        let into_slot = filling.map_or(0, |piece| piece.length.min(received));
        self.moved += into_slot;
        self.input.end += received - into_slot;
        Ok(if received < room { TakenIn::AllArrived } else { TakenIn::UpToRoom })
    }

    /// Processes the received bytes, until more bytes are needed.
    fn digest(&mut self, slots: &mut Slots, done: &mut Vec<Completion>) -> Result<(), Error> {
        loop {
            let available = self.input.end - self.input.start;
            let next = match self.step {
                Step::Take(count) if count > available => return Ok(()),
                Step::Take(count) => {
                    let bytes = &self.input.available()[..count];
                    let next = self.protocol.took(bytes, &mut self.outbox)?;
                    self.input.start += count;
                    next
                }
                Step::Until { end, bytes_max } => {
                    let bytes = self.input.available();
                    let found = bytes.windows(end.len()).position(|window| window == end);
                    let Some(count) = found.map(|at| at + end.len()).filter(|c| *c <= bytes_max)
                    else {
                        if found.is_none() && available < bytes_max {
                            return Ok(());
                        }
                        let what = format!("sent a header of more than {bytes_max} bytes");
                        return Err(violated(&self.wire.name, &what));
                    };
                    let next = self.protocol.took(&bytes[..count], &mut self.outbox)?;
                    self.input.start += count;
                    next
                }
                Step::Fill { slot, within, length } => {
                    let part =
                        slots.part_mut(slot, within, length).ok_or_else(|| self.unknown())?;
                    let now = (part.length - self.moved).min(available);
                    // SAFETY: the slot is outstanding, and the target range is inside the part.
                    unsafe {
                        let memory = part.memory.add(self.moved);
                        let bytes = self.input.available().as_ptr();
                        std::ptr::copy_nonoverlapping(bytes, memory, now);
                    }
                    self.input.start += now;
                    self.moved += now;
                    if self.moved < part.length {
                        return Ok(());
                    }
                    // SAFETY: the slot is outstanding, and no other code uses its memory during the
                    // call.
                    let filled = unsafe { std::slice::from_raw_parts(part.memory, part.length) };
                    self.protocol.filled(filled, &mut self.outbox)?
                }
                // The server may complete a write before all its data is sent. A message that was
                // begun must be sent in full, so its memory must stay lent until then.
                Step::Complete(completion) if self.outbox.holds(completion.slot) => return Ok(()),
                Step::Complete(completion) => {
                    self.complete(completion, slots, done)?;
                    Step::Next
                }
                Step::Next => Step::Take(self.protocol.header_bytes()),
            };
            self.step = next;
            self.moved = 0;
        }
    }

    fn complete(
        &mut self,
        completion: Completion,
        slots: &mut Slots,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        let is_ours = completion.slot == FLUSH_SLOT || slots.end(completion.slot);
        if !is_ours || self.outstanding == 0 {
            return Err(self.unknown());
        }
        self.outstanding -= 1;
        done.push(completion);
        Ok(())
    }

    fn unknown(&self) -> Error {
        violated(&self.wire.name, "sent a reply to a request that is not outstanding")
    }
}
