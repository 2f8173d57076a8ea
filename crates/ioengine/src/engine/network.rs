//! The `network` I/O engine: requests to a file, disk or object of a server, over connections of
//! its own.
//!
//! Each worker has its own connection. If the protocol allows only a few outstanding requests on
//! one connection, a worker has as many connections as its depth needs. Sending and receiving
//! happen in the worker's thread, so the CPU time of a request is that of the system calls and of
//! the protocol, without any hand-over to another thread.
//!
//! A server that is too busy asks the client to try again later. The engine then completes the
//! request with EAGAIN, but only after a pause, so that the worker can submit it again at once. The
//! pause grows each time.
//!
//! A worker flushes over its own connections. On some servers a flush covers only the writes of the
//! same connection, and this way it covers all writes of the worker there, too. As with fsync of a
//! file, workers do not wait for each other.

use std::collections::VecDeque;
use std::time::Duration;

use crate::buffer::SlotBuffers;
use crate::clock::{Clock, Monotonic};
use crate::engine::{Engine, EngineSpec, Setup};
use crate::error::Error;
use crate::network::{Access, Link, Poll, RemoteInfo, Slots, TICK, connect};
use crate::request::{Completion, Op, Request};

/// If the server is too busy for a request, the request pauses before it is tried again. These are
/// the first pause and the longest one; each pause is twice as long as the one before it.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(128)];

/// How often in a row the server was too busy for the request of a slot, and since when.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    times: u32,
    since_ns: u64,
}

/// The `network` I/O engine.
#[derive(Debug)]
pub struct Network {
    links: Vec<Link>,
    info: RemoteInfo,
    writable: bool,
    slots: Slots,
    /// Requests that no connection has room for.
    waiting: VecDeque<Request>,
    in_flight: u32,
    /// For each slot.
    busy: Vec<Busy>,
    /// Requests that the server was too busy for, each with the time when its pause ends (ns).
    pausing: Vec<(u64, Completion)>,
    clock: Monotonic,
    /// The time when the current call began, or after the last wait in it (ns).
    now_ns: u64,
    poll: Poll,
    /// Dropped last: the slots point into it.
    buffers: SlotBuffers,
}

impl Network {
    /// Opens the connections of one worker.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses to open the target.
    pub fn new(access: &Access, spec: &EngineSpec) -> Result<Network, Error> {
        let (depth, bytes) = (spec.depth, spec.slot_bytes as usize);
        let buffers = SlotBuffers::shared(depth, 0, bytes, spec.pages, false)?;
        let (first, info) = connect(access)?;
        let count = depth.div_ceil(first.outstanding_max().max(1));
        let mut links = vec![first];
        for _ in 1..count {
            links.push(connect(access)?.0);
        }
        let slots = Slots::new(buffers.slots());
        Ok(Network {
            links,
            info,
            writable: access.writable,
            slots,
            waiting: VecDeque::with_capacity(depth as usize),
            in_flight: 0,
            busy: vec![Busy::default(); depth as usize],
            pausing: Vec::with_capacity(depth as usize),
            clock: Monotonic::new(),
            now_ns: 0,
            poll: Poll::default(),
            buffers,
        })
    }

    /// Accepts a request, or completes it at once where no message is needed: a request that is not
    /// aligned, a write on a target opened for reading, a request at or past the end.
    fn accept(&mut self, request: &Request, done: &mut Vec<Completion>) {
        let rest = self.info.size_bytes.saturating_sub(request.offset);
        let length = request.length.min(u32::try_from(rest).unwrap_or(u32::MAX));
        let block_bytes = self.info.block_bytes.max(1);
        let is_aligned = |bytes: u64| bytes.is_multiple_of(block_bytes.into());
        let at_once = match request.op {
            _ if !is_aligned(request.offset) || !is_aligned(request.length.into()) => {
                Some(-libc::EINVAL)
            }
            Op::Write if !self.writable => Some(-libc::EBADF),
            Op::Write if length == 0 => Some(-libc::ENOSPC),
            _ if length == 0 => Some(0),
            _ => None,
        };
        if let Some(result) = at_once {
            return done.push(Completion { slot: request.slot, result });
        }
        let request = Request { length, ..*request };
        let memory = self.buffers.lend(&request);
        // SAFETY: the slot is lent until its completion is reaped.
        unsafe { self.slots.begin(request.slot, memory, length) };
        self.waiting.push_back(request);
        self.in_flight += 1;
    }

    /// Gives waiting requests to connections with room, and sends.
    fn dispatch(&mut self) -> Result<(), Error> {
        while let Some(request) = self.waiting.front() {
            let roomy = self.links.iter_mut().filter(|link| link.has_room());
            // Of several idle connections, use the one that was idle for longest. Otherwise the
            // server might close a connection that is never used.
            let least_used = |link: &&mut Link| (link.outstanding(), link.heard_ns());
            let Some(link) = roomy.min_by_key(least_used) else { break };
            link.add(request, &self.slots);
            self.waiting.pop_front();
        }
        self.links.iter_mut().try_for_each(|link| link.send(&self.slots))
    }

    /// Takes what has arrived, after waiting for it until the deadline at most.
    fn receive(&mut self, until_ns: Option<u64>, done: &mut Vec<Completion>) -> Result<(), Error> {
        let pause_ns = self.pausing.iter().map(|(until_ns, _)| *until_ns).min();
        let until_ns = until_ns.into_iter().chain(pause_ns).min();
        let left_ns = until_ns.map_or(u64::MAX, |until| until.saturating_sub(self.now_ns));
        let wait = Duration::from_nanos(left_ns).min(TICK);
        match &mut self.links[..] {
            // With a single connection, one system call waits and receives. The kernel may round
            // its time limit up, by less than TICK.
            [link] if wait.is_zero() => link.receive(&mut self.slots, done)?,
            [link] if Duration::from_nanos(left_ns) >= 2 * TICK && link.can_wait_once() => {
                link.wait_once(&mut self.slots, done)?;
            }
            _ => self.poll_and_receive(wait, done)?,
        }
        self.now_ns = self.clock.now_ns();
        self.links.iter_mut().try_for_each(|link| link.note(self.now_ns))
    }

    /// Of the completions from `first` on, holds back those of requests that the server was too
    /// busy for, and adds held ones whose pause has ended. Then takes back their slots.
    fn settle(&mut self, first: usize, done: &mut Vec<Completion>) -> Result<(), Error> {
        let mut kept = first;
        for at in first..done.len() {
            let completion = done[at];
            let busy = &mut self.busy[completion.slot as usize];
            if completion.result == -libc::EAGAIN {
                let since_ns = if busy.times == 0 { self.now_ns } else { busy.since_ns };
                let waited = Duration::from_nanos(self.now_ns.saturating_sub(since_ns));
                self.links[0].check_patience(waited)?;
                let pause = PAUSES[1].min(PAUSES[0] * (1 << busy.times.min(7)));
                *busy = Busy { times: busy.times + 1, since_ns };
                self.pausing.push((self.now_ns + pause.as_nanos() as u64, completion));
                continue;
            }
            if busy.times > 0 {
                *busy = Busy::default();
            }
            done[kept] = completion;
            kept += 1;
        }
        done.truncate(kept);
        let now_ns = self.now_ns;
        done.extend(self.pausing.extract_if(.., |(until_ns, _)| *until_ns <= now_ns).map(|p| p.1));
        for completion in &done[first..] {
            self.buffers.take_back(completion.slot);
            self.in_flight -= 1;
        }
        Ok(())
    }

    /// Waits for all connections, and receives from those where something has arrived.
    fn poll_and_receive(
        &mut self,
        wait: Duration,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        self.poll.clear();
        // Only connections that expect something are polled: one that is idle and that the server
        // has closed would end the wait.
        let busy = |link: &&mut Link| link.expects();
        self.links.iter_mut().filter(busy).for_each(|link| link.add_to(&mut self.poll));
        self.poll.wait(wait)?;
        for (index, link) in self.links.iter_mut().filter(busy).enumerate() {
            if self.poll.can_receive(index) {
                link.receive(&mut self.slots, done)?;
            }
        }
        Ok(())
    }
}

impl Engine for Network {
    fn slots(&self) -> u32 {
        self.buffers.slots()
    }

    fn gives_up(&self) -> bool {
        true
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        self.buffers.slot_mut(slot)
    }

    fn setup(&self) -> Setup {
        let (buffer_bytes, huge_bytes) = self.buffers.pages();
        let connections = match self.links.len() {
            1 => "1 connection".to_owned(),
            count => format!("{count} connections"),
        };
        let features = format!("{}, {connections}", self.info.features);
        Setup { features, buffer_bytes, huge_bytes }
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Flushes the connections that have writes to make durable, all at the same time.
    fn flush(&mut self) -> Result<bool, Error> {
        self.now_ns = self.clock.now_ns();
        // If one flush covers all connections, the first connection can send it: it has written if
        // any has, because a request goes to the connection that was idle longest.
        let count = if self.links[0].flushes_for_all() { 1 } else { self.links.len() };
        let (begun_ns, mut pause) = (self.now_ns, PAUSES[0]);
        loop {
            let mut left = 0;
            for link in &mut self.links[..count] {
                left += usize::from(link.add_flush());
            }
            let mut done = Vec::with_capacity(left);
            while done.len() < left {
                self.links.iter_mut().try_for_each(|link| link.send(&self.slots))?;
                self.receive(None, &mut done)?;
            }
            if done.iter().all(|completion| completion.result != -libc::EAGAIN) {
                done.iter().try_for_each(|completion| self.links[0].flushed(completion))?;
                return Ok(true);
            }
            let waited = Duration::from_nanos(self.now_ns.saturating_sub(begun_ns));
            self.links[0].check_patience(waited)?;
            self.clock.sleep(pause);
            pause = PAUSES[1].min(pause * 2);
        }
    }

    fn submit_and_wait(
        &mut self,
        batch: &[Request],
        at_least: u32,
        until_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        let first = done.len();
        self.now_ns = self.clock.now_ns();
        batch.iter().for_each(|request| self.accept(request, done));
        let wanted = at_least.min(self.in_flight + (done.len() - first) as u32) as usize;
        let until_ns = if at_least == 0 { Some(0) } else { until_ns };
        loop {
            self.dispatch()?;
            if self.in_flight == 0 || (at_least > 0 && done.len() - first >= wanted) {
                return Ok(());
            }
            let before = done.len();
            self.receive(until_ns, done)?;
            self.settle(before, done)?;
            if until_ns.is_some_and(|until| self.now_ns >= until) {
                return self.dispatch();
            }
        }
    }
}
