//! The `network` I/O engine: sends requests for a file, disk or object to a server.
//!
//! Each worker has its own connection. If the protocol limits the outstanding requests per
//! connection, a worker opens as many connections as its queue depth needs. The worker's thread
//! itself sends requests and receives replies.
//!
//! A server that is too busy asks the client to try again later. The engine then waits before it
//! completes the request with EAGAIN, so that the worker can resubmit the request at once. The wait
//! grows with each such reply.
//!
//! Each worker flushes over its own connections, because on some servers a flush covers only the
//! writes of the same connection. Workers do not wait for each other's flushes.

use std::collections::VecDeque;
use std::time::Duration;

use crate::buffer::SlotBuffers;
use crate::clock::{Clock, Monotonic};
use crate::engine::{Engine, EngineSpec, Setup};
use crate::error::Error;
use crate::network::{Access, Link, Poll, RemoteInfo, Slots, TICK, connect};
use crate::request::{Completion, Op, Request};

/// The first and the longest pause before a request is retried because the server was too busy.
/// Each pause is twice as long as the previous pause.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(128)];

/// The number of successive "too busy" replies to the request of a slot, and the time of the first
/// of them (ns).
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
    /// The requests that wait until a connection can take another request.
    waiting: VecDeque<Request>,
    in_flight: u32,
    /// For each slot, the "too busy" replies to its request.
    busy: Vec<Busy>,
    /// The completions of requests for which the server was too busy, each with the time when its
    /// pause ends (ns).
    pausing: Vec<(u64, Completion)>,
    clock: Monotonic,
    /// The most recent reading of the clock (ns).
    now_ns: u64,
    poll: Poll,
    /// The memory of the slots. This field is dropped last, because `slots` points into it.
    buffers: SlotBuffers,
}

impl Network {
    /// Opens the connections of one worker.
    ///
    /// # Errors
    /// If the server cannot be reached, or refuses to open the target.
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

    /// Queues a request. Completes it at once if it is unaligned, starts at or past the end of the
    /// target, or is a write to a target that is open read-only.
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

    /// Sends waiting requests on connections that can take another request.
    fn dispatch(&mut self) -> Result<(), Error> {
        while let Some(request) = self.waiting.front() {
            let roomy = self.links.iter_mut().filter(|link| link.has_room());
            // Among idle connections, the one that was idle for longest is used, because a server
            // may close a connection that is idle for too long.
            let least_used = |link: &&mut Link| (link.outstanding(), link.heard_ns());
            let Some(link) = roomy.min_by_key(least_used) else { break };
            link.add(request, &self.slots);
            self.waiting.pop_front();
        }
        self.links.iter_mut().try_for_each(|link| link.send(&self.slots))
    }

    /// Waits for a reply, but not beyond the deadline, and receives all replies that have arrived.
    fn receive(&mut self, until_ns: Option<u64>, done: &mut Vec<Completion>) -> Result<(), Error> {
        let pause_ns = self.pausing.iter().map(|(until_ns, _)| *until_ns).min();
        let until_ns = until_ns.into_iter().chain(pause_ns).min();
        let left_ns = until_ns.map_or(u64::MAX, |until| until.saturating_sub(self.now_ns));
        let wait = Duration::from_nanos(left_ns).min(TICK);
        match &mut self.links[..] {
            // With a single connection, one system call both waits and receives. It is used only if
            // at least two TICKs are left, because the kernel may extend the wait by up to a TICK.
            [link] if wait.is_zero() => link.receive(&mut self.slots, done)?,
            [link] if Duration::from_nanos(left_ns) >= 2 * TICK && link.can_wait_once() => {
                link.wait_once(&mut self.slots, done)?;
            }
            _ => self.poll_and_receive(wait, done)?,
        }
        self.now_ns = self.clock.now_ns();
        self.links.iter_mut().try_for_each(|link| link.note(self.now_ns))
    }

    /// Processes the new completions in `done`, which start at index `first`. If the server was too
    /// busy for a request, moves the completion of the request to `pausing`. Moves completions
    /// whose pause has ended back to `done`. Then takes back the slots of all new completions in
    /// `done`.
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

    /// Waits for at most `wait` until data arrives on any connection, and receives the data.
    fn poll_and_receive(
        &mut self,
        wait: Duration,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        self.poll.clear();
        // Only connections that expect a reply are polled, because an idle connection that the
        // server has closed would end the wait.
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

    /// Flushes all connections at the same time. If a flush covers all connections, sends only one
    /// flush.
    fn flush(&mut self) -> Result<bool, Error> {
        self.now_ns = self.clock.now_ns();
        // If one flush covers all connections, only the first connection sends a flush.
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
