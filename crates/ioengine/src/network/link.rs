//! Moves the bytes of one connection: messages out, replies in, payload directly to and from slots.
//!
//! A link never blocks except in [`Link::wait`], [`Link::wait_once`] and [`Link::flush`]. It checks
//! that every payload belongs to a request that is outstanding and fits it; anything else ends the
//! connection.

use std::net::SocketAddr;
use std::time::Duration;

use crate::clock::{Clock, Monotonic};
use crate::error::Error;
use crate::network::protocol::{FLUSH_SLOT, Outbox, Part, Protocol, Step};
use crate::network::wire::{PIECES_MAX, Piece, Poll, TICK, Wire, violated};
use crate::request::{Completion, Request};

/// Size of the buffer for headers and small payloads (bytes).
const INPUT_BYTES: usize = 16 << 10;

/// The memory of the requests that are outstanding, by slot.
#[derive(Debug)]
pub(crate) struct Slots {
    lent: Vec<Option<Piece>>,
}

// SAFETY: a piece is memory of the engine's buffers, lent to this engine until it is taken back.
unsafe impl Send for Slots {}
// SAFETY: a shared reference only reads a piece, to send it. Receiving takes a unique one.
unsafe impl Sync for Slots {}

impl Slots {
    /// The state of `count` slots, none of which has an outstanding request.
    pub(crate) fn new(count: u32) -> Slots {
        Slots { lent: vec![None; count as usize] }
    }

    /// Marks a slot as outstanding.
    ///
    /// # Safety
    /// The memory must be valid for `length` bytes and used by nobody else until [`Slots::end`].
    pub(crate) unsafe fn begin(&mut self, slot: u32, memory: *mut u8, length: u32) {
        self.lent[slot as usize] = Some(Piece { memory, length: length as usize });
    }

    /// Ends a request. False if the slot is not outstanding.
    fn end(&mut self, slot: u32) -> bool {
        self.lent.get_mut(slot as usize).and_then(Option::take).is_some()
    }

    /// Part of the memory of an outstanding request, to be received into. None if the request does
    /// not have that part.
    fn part_mut(&mut self, slot: u32, within: u32, length: u32) -> Option<Piece> {
        self.part(slot, within, length)
    }

    /// Part of the memory of an outstanding request, to be sent from. None if the request does not
    /// have that part.
    fn part(&self, slot: u32, within: u32, length: u32) -> Option<Piece> {
        let whole = (*self.lent.get(slot as usize)?)?;
        let (within, length) = (within as usize, length as usize);
        if within.checked_add(length)? > whole.length {
            return None;
        }
        // SAFETY: `within` is inside the memory.
        Some(Piece { memory: unsafe { whole.memory.add(within) }, length })
    }

    /// The memory of an outstanding request.
    pub(crate) fn payload(&self, slot: u32) -> &[u8] {
        let Some(Some(piece)) = self.lent.get(slot as usize) else { return &[] };
        // SAFETY: the slot is outstanding, so its memory is lent to this engine.
        unsafe { std::slice::from_raw_parts(piece.memory, piece.length) }
    }
}

/// Bytes that were received but not yet processed.
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

    /// The free space after the available bytes: at least `wanted` bytes. If there is less, the
    /// available bytes are moved to the front, or the buffer grows.
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

/// What one call received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TakenIn {
    /// Nothing had arrived.
    Nothing,
    /// Everything that had arrived; there was room for more.
    Rest,
    /// As much as there was room for; more may have arrived.
    All,
}

/// One connection, with its requests.
#[derive(Debug)]
pub(crate) struct Link {
    wire: Wire,
    /// The address that a new connection goes to.
    peer: Option<SocketAddr>,
    protocol: Box<dyn Protocol>,
    outbox: Outbox,
    input: Input,
    step: Step,
    /// How much of a [`Step::Fill`] is done (bytes).
    moved: usize,
    outstanding: u32,
    /// Whether a byte was moved, or a request was added to an idle connection, since `heard_ns` was
    /// set.
    is_alive: bool,
    /// When `is_alive` was last found to be true and reset (ns).
    heard_ns: u64,
    clock: Monotonic,
}

impl Link {
    /// Takes over a connection after its set-up.
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

    /// Requests without a reply.
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// How many requests the connection keeps outstanding at most.
    pub(crate) fn outstanding_max(&self) -> u32 {
        self.protocol.outstanding_max()
    }

    /// The last time when [`Link::note`] found that bytes were moved, or that a request was added
    /// to an idle connection (ns).
    pub(crate) fn heard_ns(&self) -> u64 {
        self.heard_ns
    }

    /// Fails if the server has answered "try again later" for longer than its time limit.
    pub(crate) fn check_patience(&self, waited: Duration) -> Result<(), Error> {
        if waited > self.wire.timeout { Err(self.wire.busy()) } else { Ok(()) }
    }

    /// Whether another request can be added now.
    pub(crate) fn has_room(&self) -> bool {
        self.outstanding < self.protocol.outstanding_max() && self.protocol.has_room()
    }

    /// Adds a request, whose slot must be outstanding in `slots`.
    pub(crate) fn add(&mut self, request: &Request, slots: &Slots) {
        self.is_alive |= self.outstanding == 0;
        self.outstanding += 1;
        self.protocol.request(request, slots.payload(request.slot), &mut self.outbox);
    }

    /// Whether a flush on this connection makes durable what was written on any connection.
    pub(crate) fn flushes_for_all(&self) -> bool {
        self.protocol.flushes_for_all()
    }

    /// Adds the message that makes everything written durable, to be completed with
    /// [`FLUSH_SLOT`]. False if the server has no such message.
    pub(crate) fn add_flush(&mut self) -> bool {
        let is_added = self.protocol.flush(&mut self.outbox);
        self.is_alive |= is_added && self.outstanding == 0;
        self.outstanding += u32::from(is_added);
        is_added
    }

    /// Makes everything written on this connection durable, and waits for that.
    ///
    /// # Errors
    /// The flush failed, or the connection.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        let is_added = self.add_flush();
        let (mut slots, mut done) = (Slots::new(0), Vec::new());
        while is_added && done.is_empty() {
            self.send(&slots)?;
            self.wait(&mut slots, &mut done)?;
        }
        done.iter().try_for_each(|completion| self.flushed(completion))
    }

    /// Checks the completion of a flush.
    pub(crate) fn flushed(&self, completion: &Completion) -> Result<(), Error> {
        let outcome = completion.outcome();
        outcome.map_err(|e| Error::io(format!("flushing {}", self.wire.name), e))?;
        Ok(())
    }

    /// Sends as much as the connection takes now.
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
            // SAFETY: the bytes belong to the outbox, the slots are outstanding.
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

    /// Goes on with a new connection after an error of the old one, if that error came between two
    /// messages and the protocol has no state on the connection. Does not wait until the new
    /// connection is established: the messages are sent when it is.
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

    /// Receives what has arrived, without waiting.
    pub(crate) fn receive(
        &mut self,
        slots: &mut Slots,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        self.receive_by(slots, done, false)
    }

    /// Waits up to [`TICK`] for the server and receives what has arrived. Fails if the server was
    /// silent for too long, as [`Link::note`].
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

    /// Whether [`Link::wait_once`] is possible: nothing is to be sent, and something will come.
    pub(crate) fn can_wait_once(&self) -> bool {
        self.outbox.is_empty() && self.expects()
    }

    /// Waits up to [`TICK`] for the server and receives, in one system call.
    pub(crate) fn wait_once(
        &mut self,
        slots: &mut Slots,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        self.receive_by(slots, done, true)
    }

    /// Adds the connection to those that `poll` waits for.
    pub(crate) fn add_to(&self, poll: &mut Poll) {
        poll.add(&self.wire, !self.outbox.is_empty());
    }

    /// To be called with the time after messages were sent and received. Fails if the server has
    /// been silent for longer than its time limit.
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

    /// Whether the server has something to send: a reply, or permission for another request.
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
        // A pending completion ends the loop: it waits until no bytes of its slot are left to send.
        while self.expects() && !matches!(self.step, Step::Complete(_)) {
            // Only the first call may wait: the caller looks at its deadline in between.
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
            if taken != TakenIn::All {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Receives once: into the slot that is being filled, and what follows into the input buffer.
    fn take_in(&mut self, slots: &mut Slots, blocking: bool) -> Result<TakenIn, Error> {
        let (filling, wanted) = match self.step {
            Step::Fill { slot, within, length } => {
                let part = slots.part_mut(slot, within, length).ok_or_else(|| self.unknown())?;
                // SAFETY: `moved` is at most the length of the part.
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
        Ok(if received < room { TakenIn::Rest } else { TakenIn::All })
    }

    /// Processes what was received, until more bytes are needed.
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
                    // SAFETY: as above; nothing else uses the memory during the call.
                    let filled = unsafe { std::slice::from_raw_parts(part.memory, part.length) };
                    self.protocol.filled(filled, &mut self.outbox)?
                }
                // The server may end a write before all its data is sent. A message that was begun
                // must still be sent whole, so its memory must stay lent.
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
        violated(&self.wire.name, "answered a request that is not outstanding")
    }
}
