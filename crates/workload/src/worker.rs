//! A worker is a state machine that prepares, submits and reaps the requests of one thread.
//!
//! A worker is generic over [`Engine`] and [`Clock`], so the same code runs on devices and in
//! simulations. Each [`Worker::step`] makes at most one call into the engine, and does not
//! allocate, lock or print. It reads the clock before and after the call. The reading before the
//! call is the submission time of all requests in the batch.
//!
//! Free slots are refilled at once, but each call submits only a few requests (`BatchSize`). The
//! device can then start on one request while the next is prepared, and the block layer does not
//! merge neighbouring requests. The batches grow, up to the queue depth, only if all requests
//! complete within the submitting call.
//!
//! The worker also handles incomplete results, for all engines. It continues short transfers. It
//! retries a request that fails with EAGAIN or EINTR, a limited number of times. Any other failure
//! is counted and ends the run.

use ioengine::{Clock, Completion, Engine, Error as EngineError, Op, Request};

use crate::arrival::Arrivals;
use crate::batch_size::BatchSize;
use crate::content;
use crate::error;
use crate::full_queue::FullQueueMeter;
use crate::log::Log;
use crate::pattern::Offsets;
use crate::plan::WorkerPlan;
use crate::random::{Stream, mix};
use crate::sample::{Failure, Sample};
use crate::skew::Sizes;
use crate::spec::{Content, Workload};
pub use crate::state::{State, TargetCall};
use crate::think::Thinking;
use crate::written::{Expectations, Expected, Marker};

/// Maximum time for which one step waits (ns). A longer wait would delay a stop of the trial.
pub(crate) const TICK_NS: u64 = 50_000_000;
/// Time after which a request counts as hung (ns). Not used if a time limit will end the trial or
/// if the engine has its own timeout.
pub(crate) const HANG_NS: u64 = 60_000_000_000;
/// Maximum time after the end of a trial in which an open loop still issues overdue requests (ns).
const BACKLOG_NS: u64 = 10_000_000_000;
/// Maximum count of requests that were due but never issued. Counting stops there, because the
/// requested rate is then far out of reach.
const OWED_MAX: u64 = 10_000_000;
/// Maximum number of retries of a request after EAGAIN or EINTR.
pub(crate) const RETRIES_MAX: u32 = 10_000;

/// Value that is mixed into the worker's seed to get the seed of the request sizes.
const SIZE_SEED: u64 = 0x512E;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    WarmUp,
    Measure,
    Drain,
}

/// The request of a slot. If `in_flight` is false, the request is complete.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    stamp_ns: u64,
    offset: u64,
    length: u32,
    moved: u32,
    retries: u32,
    op: Op,
    in_flight: bool,
}

/// Consecutive completions with the same submission time and direction, which are counted together.
#[derive(Clone, Copy, Debug)]
struct CompletionRun {
    op: Op,
    stamp_ns: u64,
    count: u64,
    bytes: u64,
}

/// A state machine that prepares, submits and reaps the requests of one thread in a trial.
#[derive(Debug)]
pub struct Worker<E, C> {
    engine: E,
    clock: C,
    offsets: Offsets,
    batch_size: BatchSize,
    arrivals: Option<Arrivals>,
    thinking: Option<Thinking>,
    sizes: Option<Sizes>,
    log: Option<Log>,
    /// Whether the workload has one request size and no pauses, log, zones or `expectations`. A
    /// separate loop is compiled for this common case.
    plain: bool,
    choice: Stream,
    read_percent: u8,
    request_bytes: u32,
    content: Content,
    block_bytes: usize,
    seed: u64,
    limit_bytes: u64,
    issued_bytes: u64,
    issued: u64,
    /// Number of writes between two flushes.
    flush_every: u64,
    /// Number of writes to issue before the next flush.
    writes_to_flush: u64,
    flushes_data_only: bool,
    /// A free slot whose next write needs a zone reset first. None if no reset is due.
    reset_slot: Option<u32>,
    /// Whether all slots write to the same zone, which is reset only when no request is in flight.
    shares_zone: bool,
    measure_from_ns: u64,
    limit_ns: u64,
    stopped_ns: u64,
    /// Records the blocks of verified writes. None if the blocks are not recorded.
    marker: Option<Marker>,
    /// Expected content of each block for verified reads. None if all blocks must be valid.
    expectations: Option<Expectations>,
    end_ns: u64,
    phase: Phase,
    /// Whether the trial was stopped or a request failed. Overdue requests are then not issued.
    cut_short: bool,
    now_ns: u64,
    last_reap_ns: u64,
    /// Time after which a request counts as hung (ns).
    hang_ns: u64,
    outstanding: Vec<Outstanding>,
    free: Vec<u32>,
    again: Vec<Request>,
    batch: Vec<Request>,
    done: Vec<Completion>,
    full_queue: FullQueueMeter,
    sample: Sample,
}

impl<E: Engine, C: Clock> Worker<E, C> {
    /// Creates a worker that submits its requests to `engine`, and fills the buffers for writes.
    pub fn new(mut engine: E, clock: C, workload: &Workload, plan: &WorkerPlan) -> Self {
        let slots = engine.slots();
        for slot in (0..slots).filter(|_| E::MOVES_DATA) {
            let memory = engine.buffer(slot);
            match workload.content {
                Content::Zero => memory.fill(0),
                _ if workload.writes() => content::fill(memory, mix(plan.seed, slot.into())),
                _ => {}
            }
        }
        let (stamp_ns, offset, length, moved, retries) = (0, 0, 0, 0, 0);
        let (op, in_flight) = (Op::Read, false);
        let written = |writes| workload.written.as_ref().filter(|_| workload.writes() == writes);
        let marker = written(true).map(|written| written.marker(plan.target, workload.seed));
        let expectations = written(false).map(|written| written.expectations(plan.target));
        let idle = Outstanding { stamp_ns, offset, length, moved, retries, op, in_flight };
        Worker {
            offsets: Offsets::new(workload, plan),
            batch_size: BatchSize::new(workload.pattern, slots as usize),
            arrivals: None,
            thinking: workload.think.map(|think| Thinking::new(think, slots)),
            sizes: Sizes::new(&workload.request_sizes, mix(plan.seed, SIZE_SEED)),
            log: workload.log.map(|most| Log::new(plan.number, slots, most)),
            plain: workload.request_sizes.is_empty()
                && workload.think.is_none()
                && workload.log.is_none()
                && plan.zones.is_none()
                && expectations.is_none(),
            choice: Stream::new(plan.seed ^ 0x5EED),
            read_percent: workload.read_percent,
            request_bytes: workload.request_bytes,
            content: workload.content,
            block_bytes: content::block_bytes(workload.request_bytes).unwrap_or(0),
            seed: workload.seed,
            limit_bytes: plan.limit_bytes.unwrap_or(u64::MAX),
            issued_bytes: 0,
            issued: 0,
            flush_every: workload.flush_every.map_or(u64::MAX, |every| u64::from(every.writes)),
            writes_to_flush: workload.flush_every.map_or(u64::MAX, |every| u64::from(every.writes)),
            flushes_data_only: workload.flush_every.is_some_and(|every| every.data_only),
            reset_slot: None,
            shares_zone: workload.options.zone_append,
            measure_from_ns: 0,
            limit_ns: u64::MAX,
            stopped_ns: 0,
            marker,
            expectations,
            end_ns: u64::MAX,
            phase: Phase::Measure,
            cut_short: false,
            now_ns: 0,
            last_reap_ns: 0,
            hang_ns: if engine.gives_up() { u64::MAX } else { HANG_NS },
            outstanding: vec![idle; slots as usize],
            free: (0..slots).rev().collect(),
            again: Vec::with_capacity(slots as usize),
            batch: Vec::with_capacity(slots as usize),
            done: Vec::with_capacity(slots as usize),
            full_queue: FullQueueMeter::new(slots, workload.keeps_queue_full()),
            sample: Sample::new(workload.interval_ns),
            engine,
            clock,
        }
    }

    /// Starts the trial at `start_ns`. Requests that complete before `measure_from_ns` are not
    /// measured.
    pub fn start(
        &mut self,
        start_ns: u64,
        measure_from_ns: u64,
        workload: &Workload,
        plan: &WorkerPlan,
    ) {
        self.now_ns = start_ns;
        self.last_reap_ns = start_ns;
        self.sample.start_ns = start_ns;
        self.limit_ns = workload.limit_ns.unwrap_or(u64::MAX);
        self.phase = if measure_from_ns > start_ns { Phase::WarmUp } else { Phase::Measure };
        self.measure_from(measure_from_ns);
        self.arrivals = plan.rate.map(|rate| Arrivals::new(start_ns, rate));
    }

    /// Sets the end of the warm-up. The time limit of the trial counts from there.
    #[inline]
    pub fn measure_from(&mut self, measure_from_ns: u64) {
        self.measure_from_ns = measure_from_ns;
        self.end_ns = measure_from_ns.saturating_add(self.limit_ns);
    }

    /// Submits requests and processes completions, with at most one call into the engine. If `stop`
    /// is true, no new requests are issued.
    ///
    /// # Errors
    /// If the I/O engine cannot continue, a request hangs, or a request completes twice.
    #[inline]
    pub fn step(&mut self, stop: bool) -> Result<State, EngineError> {
        self.update_phase(stop);
        if let Some(thinking) = &mut self.thinking {
            thinking.wake(self.now_ns, &mut self.free);
        }
        self.batch.clear();
        self.batch.append(&mut self.again);
        if self.may_flush() {
            let data_only = self.flushes_data_only;
            return Ok(State::CallDue(TargetCall::Flush { data_only }));
        }
        let resent = self.batch.len();
        if self.phase != Phase::Drain || self.has_backlog() {
            if self.plain { self.issue::<true>() } else { self.issue_any() }
        }
        if let Some(call) = self.reset_call() {
            return Ok(State::CallDue(call));
        }
        if self.batch.is_empty() && self.engine.in_flight() == 0 {
            return Ok(self.idle());
        }
        let stamp_ns = self.clock.now_ns();
        if self.arrivals.is_none() {
            for request in &self.batch[resent..] {
                self.outstanding[request.slot as usize].stamp_ns = stamp_ns;
            }
        }
        if let Some(log) = &mut self.log {
            self.batch[resent..].iter().for_each(|request| log.submit(request.slot, stamp_ns));
        }
        self.sample.submit_calls += u64::from(!self.batch.is_empty());
        let until = self.wake_up_ns(stamp_ns);
        self.done.clear();
        let wait = !self.has_more_to_issue();
        self.engine.submit_and_wait(&self.batch, u32::from(wait), Some(until), &mut self.done)?;
        self.now_ns = self.clock.now_ns();
        if !self.batch.is_empty() && self.engine.in_flight() == 0 {
            self.sample.at_once += self.done.len() as u64;
        }
        if wait {
            self.batch_size.reconsider();
        } else {
            self.batch_size.learn(self.done.len() >= self.batch.len());
        }
        if self.plain {
            self.reap::<true>()?;
        } else {
            self.reap_any()?;
        }
        if self.now_ns.saturating_sub(self.last_reap_ns) > self.hang_ns && self.is_hung() {
            return Err(error::hangs(self.engine.in_flight(), HANG_NS / 1_000_000_000));
        }
        Ok(if wait && self.done.is_empty() { State::Waiting } else { State::Running })
    }

    /// Returns true if all writes before the next flush were issued.
    #[inline]
    fn flush_is_due(&self) -> bool {
        self.writes_to_flush == 0
    }

    /// Returns true if a flush is due and all requests are complete, so that the flush covers them.
    #[inline]
    fn may_flush(&self) -> bool {
        let idle = self.batch.is_empty() && self.engine.in_flight() == 0;
        self.flush_is_due() && !self.cut_short && idle
    }

    /// Returns the zone reset that is due. None if no reset is due, if the batch has requests, or
    /// if the trial is over. If all slots share a zone, also None while requests are in flight.
    #[inline]
    fn reset_call(&self) -> Option<TargetCall> {
        let may_be_written = self.shares_zone && self.engine.in_flight() > 0;
        let is_free = self.batch.is_empty() && self.phase != Phase::Drain && !may_be_written;
        let slot = self.reset_slot.filter(|_| is_free)?;
        let (offset, bytes) = self.offsets.reset_due(slot)?;
        Some(TargetCall::ResetZone { offset, bytes })
    }

    /// Records that a flush or zone reset for this worker began at `begun_ns` and has just ended.
    /// Its duration is part of the trial.
    #[cold]
    pub fn called(&mut self, begun_ns: u64) {
        self.now_ns = self.clock.now_ns();
        self.last_reap_ns = self.now_ns;
        if let Some(slot) = self.reset_slot.take() {
            return self.offsets.was_reset(slot);
        }
        self.sample.flushes.record(self.now_ns.saturating_sub(begun_ns));
        self.writes_to_flush = self.flush_every;
    }

    /// Makes the writes of this worker durable. Returns false if the engine cannot flush, so that
    /// the caller must flush the target.
    ///
    /// # Errors
    /// If the flush fails.
    pub fn flush(&mut self) -> Result<bool, EngineError> {
        self.engine.flush()
    }

    /// Returns true if a request exceeds the hang limit and no time limit will end the trial.
    #[cold]
    pub(crate) fn is_hung(&self) -> bool {
        let time_will_end_it = self.phase != Phase::Drain && self.limit_ns != u64::MAX;
        let overdue = |request: &Outstanding| {
            request.in_flight && self.now_ns.saturating_sub(request.stamp_ns) > self.hang_ns
        };
        !time_will_end_it && self.outstanding.iter().any(overdue)
    }

    /// Ends the current phase at its time or byte limit, after a failure, or if `stop` is true.
    #[inline]
    fn update_phase(&mut self, stop: bool) {
        if self.phase == Phase::WarmUp && (self.now_ns >= self.measure_from_ns || stop) {
            self.phase = Phase::Measure;
            // The byte limit of the measured phase includes requests that are already in flight.
            let in_flight = self.outstanding.iter().filter(|request| request.in_flight);
            self.issued_bytes = in_flight.map(|request| u64::from(request.length)).sum();
            self.sample.restart(self.now_ns);
            self.full_queue.restart();
            self.log.iter_mut().for_each(Log::restart);
        }
        self.cut_short |= stop || self.sample.errors > 0;
        let over = self.phase == Phase::Measure
            && (self.now_ns >= self.end_ns || self.issued_bytes >= self.limit_bytes);
        if (over || stop || self.sample.errors > 0) && self.phase != Phase::Drain {
            self.phase = Phase::Drain;
            self.stopped_ns = self.now_ns;
            self.full_queue.stop(self.engine.in_flight());
        }
    }

    /// Returns true if an open loop must still issue requests that were due before the end of the
    /// trial, so that a stall at the end counts like any other stall. The worker issues such
    /// requests for a quarter of the trial's duration (at most 10 s) after the end. Requests that
    /// are not issued by then are only counted.
    #[inline]
    fn has_backlog(&self) -> bool {
        let Some(arrivals) = self.arrivals.as_ref().filter(|_| !self.cut_short) else {
            return false;
        };
        let backlog_ns = (self.limit_ns / 4).min(BACKLOG_NS);
        arrivals.next_due_ns() < self.end_ns && self.now_ns < self.end_ns.saturating_add(backlog_ns)
    }

    /// Returns true if a closed loop can issue more requests without waiting for a completion.
    #[inline]
    fn has_more_to_issue(&self) -> bool {
        let wanted = self.issued_bytes < self.limit_bytes || self.phase == Phase::WarmUp;
        let closed = self.arrivals.is_none() && self.phase != Phase::Drain;
        closed && wanted && !self.free.is_empty() && !self.flush_is_due()
    }

    /// This function is not inlined, so that the loop for plain workloads stays small.
    #[inline(never)]
    fn issue_any(&mut self) {
        self.issue::<false>();
    }

    #[inline(never)]
    fn reap_any(&mut self) -> Result<(), EngineError> {
        self.reap::<false>()
    }

    /// Adds new requests to the batch, as long as slots are free. An open loop adds all requests
    /// that are due. A closed loop adds requests up to the batch size.
    #[inline]
    fn issue<const PLAIN: bool>(&mut self) {
        let room = if self.arrivals.is_some() { usize::MAX } else { self.batch_size.now };
        while self.batch.len() < room
            && !self.flush_is_due()
            && (self.issued_bytes < self.limit_bytes || self.phase == Phase::WarmUp)
        {
            let Some(slot) = self.free.pop() else { break };
            if !PLAIN && self.offsets.is_done(slot) {
                continue;
            }
            if !PLAIN && self.offsets.reset_due(slot).is_some() {
                self.free.push(slot);
                self.reset_slot = Some(slot);
                break;
            }
            let due_ns = match &mut self.arrivals {
                None => 0,
                Some(arrivals) => {
                    let due_ns = arrivals.next_due_ns();
                    if due_ns > self.now_ns || due_ns >= self.end_ns {
                        self.free.push(slot);
                        break;
                    }
                    arrivals.take();
                    due_ns
                }
            };
            let op = match self.read_percent {
                100 => Op::Read,
                0 => Op::Write,
                share if self.choice.percent(share) => Op::Read,
                _ => Op::Write,
            };
            let length = if PLAIN { self.request_bytes } else { self.draw_length() };
            let offset = match PLAIN {
                true => self.offsets.next_offset(length),
                false => self.offsets.next_offset_of(slot, length),
            };
            if !PLAIN && self.skips_unwritten(offset, length) {
                self.free.push(slot);
                continue;
            }
            if op == Op::Write {
                self.writes_to_flush -= 1;
            }
            if op == Op::Write && E::MOVES_DATA {
                self.prepare::<PLAIN>(slot, offset, length);
            }
            let (stamp_ns, moved, retries, in_flight) = (due_ns, 0, 0, true);
            self.outstanding[slot as usize] =
                Outstanding { stamp_ns, offset, length, moved, retries, op, in_flight };
            self.batch.push(Request { offset, length, within: 0, slot, file: 0, op });
            self.issued_bytes += u64::from(length);
            self.issued += 1;
        }
    }

    /// Returns true if a verified read must be skipped because none of its blocks was written. The
    /// bytes of a skipped read count as issued.
    fn skips_unwritten(&mut self, offset: u64, length: u32) -> bool {
        let expectations = self.expectations.as_ref();
        let passes = expectations.is_some_and(|these| !these.any(offset, length.into()));
        self.issued_bytes += if passes { u64::from(length) } else { 0 };
        passes
    }

    /// Returns the length of the next request. If sizes vary, the last request is shortened so that
    /// the trial does not exceed its byte limit.
    fn draw_length(&mut self) -> u32 {
        let Some(sizes) = &mut self.sizes else { return self.request_bytes };
        let warming_up = self.phase == Phase::WarmUp;
        let left = if warming_up { u64::MAX } else { self.limit_bytes - self.issued_bytes };
        sizes.draw().min(u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Fills the buffer of a slot with the content for a write at `offset`.
    #[inline]
    fn prepare<const PLAIN: bool>(&mut self, slot: u32, offset: u64, length: u32) {
        let number = self.issued;
        let whole = self.engine.buffer(slot);
        let memory = if PLAIN { whole } else { &mut whole[..length as usize] };
        match self.content {
            Content::Random => content::stamp(memory, offset, number),
            Content::Zero if self.read_percent > 0 => memory.fill(0),
            Content::Zero => {}
            Content::Verified => content::seal(memory, self.block_bytes, offset, self.seed, number),
        }
    }

    /// Sleeps until the next request is due. Returns `Done` if no more requests are to be issued.
    /// Called when no request is in flight.
    #[cold]
    fn idle(&mut self) -> State {
        let Some(due_ns) = self.due_ns().filter(|_| self.phase != Phase::Drain) else {
            return State::Done;
        };
        self.clock.sleep_until(due_ns.min(self.now_ns + TICK_NS).min(self.end_ns));
        self.now_ns = self.clock.now_ns();
        State::Waiting
    }

    /// Returns the earliest time of the next request (ns): its due time in an open loop, the end of
    /// the next pause in a closed loop. None if the request must wait for a completion.
    #[inline]
    fn due_ns(&self) -> Option<u64> {
        match (&self.arrivals, &self.thinking) {
            (Some(arrivals), _) => Some(arrivals.next_due_ns()),
            (None, Some(thinking)) => Some(thinking.next_ns()?.min(self.end_ns)),
            (None, None) => None,
        }
    }

    /// Returns the time by which the next step must run (ns).
    #[inline]
    pub(crate) fn wake_up_ns(&self, now_ns: u64) -> u64 {
        let tick = now_ns + TICK_NS;
        // A due request of an open loop cannot be issued while no slot is free.
        let waits_for_slot = self.arrivals.is_some() && self.free.is_empty();
        let may_issue = self.phase != Phase::Drain && !self.flush_is_due() && !waits_for_slot;
        match self.due_ns() {
            Some(due_ns) if may_issue => tick.min(due_ns),
            _ => tick,
        }
    }

    /// Processes the completions of one call.
    #[inline]
    fn reap<const PLAIN: bool>(&mut self) -> Result<(), EngineError> {
        if self.done.is_empty() {
            return Ok(());
        }
        self.sample.reap_calls += 1;
        self.last_reap_ns = self.now_ns;
        let (mut bytes, mut requests) = (0, 0);
        let mut run = CompletionRun { op: Op::Read, stamp_ns: 0, count: 0, bytes: 0 };
        for index in 0..self.done.len() {
            let completion = self.done[index];
            let outstanding = self.outstanding[completion.slot as usize];
            if !outstanding.in_flight {
                return Err(error::completed_twice(outstanding.op, outstanding.offset));
            }
            let length = if PLAIN { self.request_bytes } else { outstanding.length };
            if completion.result as u32 != length - outstanding.moved {
                self.handle_incomplete(completion);
                continue;
            }
            if self.content == Content::Verified {
                match (outstanding.op, &self.marker) {
                    (Op::Read, _) => self.verify(completion.slot, outstanding.offset),
                    (Op::Write, Some(marker)) => {
                        marker.mark(outstanding.offset, u64::from(length));
                    }
                    (Op::Write, None) => {}
                }
            }
            self.outstanding[completion.slot as usize].in_flight = false;
            if PLAIN {
                self.free.push(completion.slot);
            } else {
                self.release_slot(completion.slot, false);
            }
            let (Outstanding { op, stamp_ns, .. }, length) = (outstanding, u64::from(length));
            if stamp_ns == run.stamp_ns && op == run.op {
                run.count += 1;
                run.bytes += length;
            } else {
                self.count(run);
                bytes += run.bytes;
                requests += run.count;
                run = CompletionRun { op, stamp_ns, count: 1, bytes: length };
            }
        }
        self.count(run);
        bytes += run.bytes;
        requests += run.count;
        let since_start = self.now_ns.saturating_sub(self.sample.start_ns);
        self.sample.series.add(since_start, bytes, requests);
        self.full_queue.add(self.now_ns, bytes, requests);
        Ok(())
    }

    /// Logs a finished request. Frees its slot, or starts the pause after which the slot is free.
    fn release_slot(&mut self, slot: u32, failed: bool) {
        if let Some(log) = &mut self.log {
            let Outstanding { op, offset, length, .. } = self.outstanding[slot as usize];
            log.complete(slot, self.now_ns, (op, offset, length), failed);
        }
        let thinking = self.thinking.as_mut();
        if !thinking.is_some_and(|thinking| thinking.holds(slot, self.now_ns)) {
            self.free.push(slot);
        }
    }

    /// Adds completions with the same submission time and direction to the sample.
    #[inline]
    fn count(&mut self, run: CompletionRun) {
        if run.count > 0 {
            let operation = &mut self.sample.operations[run.op as usize];
            operation.requests += run.count;
            operation.bytes += run.bytes;
            operation.latency.record_n(self.now_ns.saturating_sub(run.stamp_ns), run.count);
        }
    }

    /// Handles an incomplete result: continues a short transfer, retries, or counts a failure.
    #[cold]
    fn handle_incomplete(&mut self, completion: Completion) {
        let outstanding = &mut self.outstanding[completion.slot as usize];
        let transient = matches!(completion.result, r if r == -libc::EAGAIN || r == -libc::EINTR);
        if completion.result > 0 {
            outstanding.moved += completion.result as u32;
            self.sample.short_transfers += 1;
        } else if transient && self.cut_short {
            // The trial was stopped, so the request is neither retried nor counted.
            outstanding.in_flight = false;
            self.release_slot(completion.slot, true);
            return;
        } else if transient && outstanding.retries < RETRIES_MAX {
            outstanding.retries += 1;
            self.sample.retries += 1;
        } else {
            let Outstanding { op, offset, .. } = *outstanding;
            let failure = Failure { op, offset, errno: -completion.result };
            self.sample.errors += 1;
            self.sample.first_error.get_or_insert(failure);
            outstanding.in_flight = false;
            self.release_slot(completion.slot, true);
            return;
        }
        let Outstanding { offset, length, moved, op, .. } = *outstanding;
        self.again.push(Request {
            offset: offset + u64::from(moved),
            length: length - moved,
            within: moved,
            slot: completion.slot,
            file: 0,
            op,
        });
    }

    /// Verifies the blocks of a completed read.
    fn verify(&mut self, slot: u32, offset: u64) {
        let memory = self.engine.buffer(slot);
        let expectations = self.expectations.as_ref();
        let expected = |at| expectations.map_or(Expected::Sealed, |these| these.of(at));
        let checked = content::check(memory, self.block_bytes, offset, expected);
        self.sample.verified_blocks += checked.blocks;
        self.sample.damaged_blocks += checked.damaged;
        self.sample.first_damage = self.sample.first_damage.or(checked.first);
    }

    /// Returns the time at the end of the last call or sleep (ns).
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns the measurements so far.
    pub fn sample(&self) -> &Sample {
        &self.sample
    }

    /// Counts the requests of an open loop that were due before the trial's end but never issued.
    fn count_never_issued(&mut self) -> u64 {
        let bounded = self.end_ns != u64::MAX && self.issued_bytes < self.limit_bytes;
        let Some(arrivals) = self.arrivals.as_mut().filter(|_| bounded && !self.cut_short) else {
            return 0;
        };
        let mut count_never_issued = 0;
        while arrivals.next_due_ns() < self.end_ns && count_never_issued < OWED_MAX {
            arrivals.take();
            count_never_issued += 1;
        }
        count_never_issued
    }

    /// Returns the sample and the engine. The engine must be kept until the meters have been read.
    pub fn finish(mut self) -> (Sample, E) {
        self.sample.end_ns = self.last_reap_ns.max(self.sample.start_ns);
        self.sample.full_queue = self.full_queue.window();
        // The trial includes the idle time or the pauses that follow the last completion.
        if self.arrivals.is_some() || self.thinking.is_some() {
            self.sample.end_ns = self.sample.end_ns.max(self.stopped_ns);
        }
        self.sample.never_issued = self.count_never_issued();
        if let Some(log) = self.log {
            log.give(&mut self.sample);
        }
        (self.sample, self.engine)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;
    use std::rc::Rc;
    use std::sync::{Arc, Mutex};

    use ioengine::engine::Faulty;
    use ioengine::fault::Fault;
    use ioengine::zones::Zones;

    use super::*;
    use crate::arrival::tests::{constant, poisson};
    use crate::spec::{Arrival, FlushEvery, SizeShare, Think};

    /// Virtual clock that a worker and its engine share.
    #[derive(Clone, Default)]
    pub(crate) struct VirtualClock(pub(crate) Rc<Cell<u64>>);

    impl Clock for VirtualClock {
        fn now_ns(&self) -> u64 {
            self.0.get()
        }
        fn sleep_until(&self, until_ns: u64) {
            self.0.set(self.0.get().max(until_ns));
        }
    }

    /// An engine that serves one request at a time. `service_ns` returns the service time of a
    /// request, given the time at which its service begins.
    pub(crate) struct OneServer<S> {
        clock: VirtualClock,
        service_ns: S,
        free_at_ns: u64,
        due: RefCell<BTreeMap<(u64, u32), Completion>>,
        buffers: Vec<Vec<u8>>,
    }

    impl<S> OneServer<S> {
        pub(crate) fn new(
            clock: &VirtualClock,
            slots: u32,
            slot_bytes: u32,
            service_ns: S,
        ) -> Self {
            OneServer {
                clock: clock.clone(),
                service_ns,
                free_at_ns: 0,
                due: RefCell::default(),
                buffers: vec![vec![0; slot_bytes as usize]; slots as usize],
            }
        }
    }

    impl<S: FnMut(u64) -> u64> Engine for OneServer<S> {
        fn slots(&self) -> u32 {
            self.buffers.len() as u32
        }
        fn buffer(&mut self, slot: u32) -> &mut [u8] {
            &mut self.buffers[slot as usize]
        }
        fn in_flight(&self) -> u32 {
            self.due.borrow().len() as u32
        }
        fn submit_and_wait(
            &mut self,
            batch: &[Request],
            at_least: u32,
            until_ns: Option<u64>,
            done: &mut Vec<Completion>,
        ) -> Result<(), EngineError> {
            let mut due = self.due.borrow_mut();
            for request in batch {
                let begin = self.free_at_ns.max(self.clock.now_ns());
                self.free_at_ns = begin + (self.service_ns)(begin);
                let completion = Completion { slot: request.slot, result: request.length as i32 };
                due.insert((self.free_at_ns, request.slot), completion);
            }
            if at_least > 0
                && let Some(((at, _), _)) = due.first_key_value()
            {
                self.clock.sleep_until((*at).min(until_ns.unwrap_or(u64::MAX)));
            }
            let now = self.clock.now_ns();
            while due.first_key_value().is_some_and(|((at, _), _)| *at <= now) {
                done.extend(due.pop_first().map(|(_, completion)| completion));
            }
            Ok(())
        }
    }

    fn workload(depth: u32, limit_ns: u64) -> Workload {
        Workload {
            request_bytes: 4096,
            depth,
            region_bytes: 1 << 30,
            limit_ns: Some(limit_ns),
            ..Workload::default()
        }
    }

    fn plan_for(workload: &Workload) -> WorkerPlan {
        let rate = match workload.arrival {
            Arrival::Constant { requests_per_s } => Some(constant(requests_per_s, 0.0)),
            Arrival::Poisson { requests_per_s } => Some(poisson(requests_per_s, 1)),
            Arrival::Closed => None,
        };
        WorkerPlan {
            region_offset: 0,
            region_bytes: workload.region_bytes,
            start_bytes: 0,
            seed: 1,
            cpu: None,
            limit_bytes: workload.limit_bytes,
            rate,
            target: 0,
            number: 0,
            cursor: None,
            zones: None,
        }
    }

    fn serve(workload: &Workload, service_ns: impl FnMut(u64) -> u64) -> Sample {
        let clock = VirtualClock::default();
        let engine = OneServer {
            clock: clock.clone(),
            service_ns,
            free_at_ns: 0,
            due: RefCell::default(),
            buffers: vec![vec![0; 4096]; workload.depth as usize],
        };
        drive(engine, clock, workload)
    }

    fn drive<E: Engine>(engine: E, clock: VirtualClock, workload: &Workload) -> Sample {
        let plan = plan_for(workload);
        let mut worker = Worker::new(engine, clock, workload, &plan);
        worker.start(0, workload.warm_up_ns, workload, &plan);
        while worker.step(false).unwrap() != State::Done {}
        worker.finish().0
    }

    #[test]
    fn a_closed_loop_keeps_its_depth_and_obeys_littles_law() {
        let sample = serve(&workload(4, 1_000_000_000), |_| 100_000);
        let in_flight = sample.requests_per_s() * sample.latency().mean().unwrap() / 1e9;
        assert!((in_flight - 4.0).abs() < 0.01, "{in_flight} in flight");
        assert!((sample.requests_per_s() - 10_000.0).abs() < 5.0);
    }

    #[test]
    fn periodic_flushes_wait_for_all_earlier_writes() {
        let workload = Workload {
            read_percent: 0,
            limit_ns: None,
            limit_bytes: Some(67 * 4096),
            flush_every: Some(FlushEvery { writes: 16, data_only: false }),
            ..workload(3, 0)
        };
        let (clock, plan) = (VirtualClock::default(), plan_for(&workload));
        let engine = OneServer {
            clock: clock.clone(),
            service_ns: |_| 100_000,
            free_at_ns: 0,
            due: RefCell::default(),
            buffers: vec![vec![0; 4096]; 3],
        };
        let mut worker = Worker::new(engine, clock.clone(), &workload, &plan);
        worker.start(0, 0, &workload, &plan);
        let mut flushes = 0;
        loop {
            match worker.step(false).unwrap() {
                State::Done => break,
                State::CallDue(_) => {
                    flushes += 1;
                    assert_eq!(worker.engine.in_flight(), 0);
                    assert_eq!(worker.sample().requests(), 16 * flushes);
                    let begun_ns = clock.now_ns();
                    clock.sleep_until(begun_ns + 5_000_000);
                    worker.called(begun_ns);
                }
                State::Running | State::Waiting => {}
            }
        }
        let (sample, _) = worker.finish();
        assert_eq!((flushes, sample.flushes.count()), (4, 4));
        assert_eq!(sample.flushes.min(), Some(5_000_000));
        // The trial consists of 67 serial writes of 100 us each and of four flushes of 5 ms each.
        // The latencies of the writes do not include the flushes.
        assert_eq!(sample.elapsed_ns(), 67 * 100_000 + 4 * 5_000_000);
        assert!(sample.latency().max() < Some(400_000));
    }

    #[test]
    fn full_zones_are_reset_before_they_are_written_again() {
        let zones = Zones {
            zone_bytes: 8 * 4096,
            capacity_bytes: 8 * 4096,
            sequential_from_bytes: 0,
            open_max: None,
        };
        let workload = Workload {
            read_percent: 0,
            limit_ns: None,
            // The limit is two passes over the four zones.
            limit_bytes: Some(2 * 4 * 8 * 4096),
            region_bytes: 4 * 8 * 4096,
            ..workload(2, 0)
        };
        let plan = WorkerPlan { zones: Some(zones), ..plan_for(&workload) };
        let clock = VirtualClock::default();
        let engine = OneServer::new(&clock, 2, 4096, |_| 100_000);
        let mut worker = Worker::new(engine, clock.clone(), &workload, &plan);
        worker.start(0, 0, &workload, &plan);
        let mut resets = Vec::new();
        loop {
            match worker.step(false).unwrap() {
                State::Done => break,
                State::CallDue(TargetCall::ResetZone { offset, bytes }) => {
                    assert_eq!(bytes, zones.zone_bytes);
                    resets.push(offset / bytes);
                    let begun_ns = clock.now_ns();
                    clock.sleep_until(begun_ns + 1_000_000);
                    worker.called(begun_ns);
                }
                state => assert!(matches!(state, State::Running | State::Waiting), "{state:?}"),
            }
        }
        resets.sort_unstable();
        assert_eq!(resets, [0, 1, 2, 3]);
        let (sample, _) = worker.finish();
        assert_eq!((sample.requests(), sample.flushes.count()), (64, 0));
    }

    #[test]
    fn what_happens_in_the_warm_up_is_not_counted() {
        let mut workload = workload(1, 1_000_000_000);
        workload.warm_up_ns = 1_000_000_000;
        // Requests are ten times slower during the warm-up than after it.
        let slow = |at| if at < 1_000_000_000 { 1_000_000 } else { 100_000 };
        let sample = serve(&workload, slow);
        assert!((sample.requests_per_s() - 10_000.0).abs() < 20.0, "{}", sample.requests_per_s());
        assert!(sample.latency().quantile(0.9).unwrap() < 110_000);
    }

    #[test]
    fn a_stall_of_an_open_loop_counts_for_every_request_due_in_it() {
        let mut workload = workload(64, 1_000_000_000);
        workload.arrival = Arrival::Constant { requests_per_s: 1000.0 };
        // The first request after 0.5 s takes 200 ms. All other requests take 10 us.
        let mut stalled = false;
        let stall = move |at: u64| {
            let now = at >= 500_000_000 && !stalled;
            stalled |= now;
            if now { 200_000_000 } else { 10_000 }
        };
        let sample = serve(&workload, stall);
        let latency = sample.latency();
        // Of the 1000 requests, 200 are due during the stall. Their waiting times are spread evenly
        // from 200 ms to 0.
        let waited = latency.buckets().filter(|b| b.low_ns > 1_000_000).map(|b| b.count);
        let waited: u64 = waited.sum();
        assert!((sample.elapsed_ns() as f64 / 1e9 - 1.0).abs() < 0.01, "the whole second counts");
        assert!((190..=205).contains(&waited), "{waited} requests waited");
        let p90 = latency.quantile(0.9).unwrap();
        assert!((90_000_000..110_000_000).contains(&p90), "p90 {p90}");
    }

    #[test]
    fn poisson_arrivals_wait_as_the_pollaczek_khinchine_formula_says() {
        // With one server and a constant service time, the mean wait is load x service /
        // (2 (1 - load)) (Pollaczek and Khinchine). It does not matter whether requests queue in
        // the device or wait for a free slot.
        let service_ns = 100_000;
        for load in [0.3, 0.5, 0.8] {
            for depth in [1, 64] {
                let mut workload = workload(depth, 200_000_000_000);
                workload.arrival = Arrival::Poisson { requests_per_s: load * 10_000.0 };
                let sample = serve(&workload, |_| service_ns);
                let wait_ns = sample.latency().mean().unwrap() - service_ns as f64;
                let expected_ns = load * service_ns as f64 / (2.0 * (1.0 - load));
                let off = wait_ns / expected_ns - 1.0;
                assert!(off.abs() < 0.02, "load {load}, depth {depth}: relative error {off:+.3}");
                let requests = load * 10_000.0 * 200.0;
                assert!((sample.requests() as f64 / requests - 1.0).abs() < 0.01);
            }
        }
    }

    #[test]
    fn constant_arrivals_below_the_servers_rate_never_wait() {
        let mut workload = workload(4, 1_000_000_000);
        workload.arrival = Arrival::Constant { requests_per_s: 8_000.0 };
        let sample = serve(&workload, |_| 100_000);
        assert_eq!(
            (sample.latency().min(), sample.latency().max()),
            (Some(100_000), Some(100_000))
        );
    }

    #[test]
    fn a_stall_at_the_end_of_an_open_loop_counts_like_any_other() {
        let mut workload = workload(1, 1_000_000_000);
        workload.arrival = Arrival::Constant { requests_per_s: 1000.0 };
        // One request in the last tenth of the trial takes 150 ms, so it completes after the end.
        let mut stalled = false;
        let sample = serve(&workload, move |at: u64| {
            let now = at >= 900_000_000 && !stalled;
            stalled |= now;
            if now { 150_000_000 } else { 10_000 }
        });
        assert_eq!((sample.requests(), sample.never_issued), (1000, 0));
        let latency = sample.latency();
        let waited = latency.buckets().filter(|b| b.low_ns > 1_000_000);
        let waited: u64 = waited.map(|b| b.count).sum();
        assert!((95..=105).contains(&waited), "{waited} requests waited");
    }

    #[test]
    fn an_unreachable_backlog_is_only_counted() {
        let mut workload = workload(1, 1_000_000_000);
        workload.arrival = Arrival::Constant { requests_per_s: 1000.0 };
        // The server reaches a tenth of the requested rate: 100 requests during the trial of one
        // second, and 25 during the quarter of a second after the trial.
        let sample = serve(&workload, |_| 10_000_000);
        assert!((120..=130).contains(&sample.requests()), "{}", sample.requests());
        assert_eq!(sample.requests() + sample.never_issued, 1000);
    }

    #[test]
    fn short_transfers_are_continued_and_eagain_is_issued_again() {
        let clock = VirtualClock::default();
        let inner = OneServer {
            clock: clock.clone(),
            service_ns: |_| 1000,
            free_at_ns: 0,
            due: RefCell::default(),
            buffers: vec![vec![0; 4096]; 1],
        };
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let faulty = Faulty::new(inner, move |number, request: &Request| {
            log.lock().unwrap().push((request.offset, request.within, request.length));
            match number {
                0 => Fault::Short(1024),
                1 => Fault::Errno(libc::EAGAIN),
                _ => Fault::None,
            }
        });
        let mut workload = workload(1, 1_000_000);
        workload.limit_bytes = Some(2 * 4096);
        let sample = drive(faulty, clock, &workload);
        assert_eq!((sample.requests(), sample.errors), (2, 0));
        assert_eq!((sample.short_transfers, sample.retries), (1, 1));
        assert_eq!(
            asked.lock().unwrap()[..3],
            [(0, 0, 4096), (1024, 1024, 3072), (1024, 1024, 3072)]
        );
    }

    fn worker_on(
        workload: &Workload,
        service_ns: impl FnMut(u64) -> u64,
    ) -> Worker<impl Engine, VirtualClock> {
        let clock = VirtualClock::default();
        let engine = OneServer {
            clock: clock.clone(),
            service_ns,
            free_at_ns: 0,
            due: RefCell::default(),
            buffers: vec![vec![0; 4096]; workload.depth as usize],
        };
        let plan = plan_for(workload);
        let mut worker = Worker::new(engine, clock, workload, &plan);
        worker.start(0, 0, workload, &plan);
        worker
    }

    fn faulty_worker(
        depth: u32,
        fault_of: impl FnMut(u64, &Request) -> Fault + Send + Sync + 'static,
    ) -> Worker<impl Engine, VirtualClock> {
        let clock = VirtualClock::default();
        let inner = OneServer {
            clock: clock.clone(),
            service_ns: |_| 1000,
            free_at_ns: 0,
            due: RefCell::default(),
            buffers: vec![vec![0; 4096]; depth as usize],
        };
        let workload = workload(depth, 1_000_000);
        let plan = plan_for(&workload);
        let mut worker = Worker::new(Faulty::new(inner, fault_of), clock, &workload, &plan);
        worker.start(0, 0, &workload, &plan);
        worker
    }

    fn end_of<E: Engine>(mut worker: Worker<E, VirtualClock>) -> Result<Sample, String> {
        loop {
            match worker.step(false) {
                Ok(State::Running | State::Waiting) => {}
                Ok(State::CallDue(_)) => return Err("no flush was requested".to_owned()),
                Ok(State::Done) => return Ok(worker.finish().0),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    #[test]
    fn a_request_that_completes_twice_is_never_counted_twice() {
        let twice = |number, _: &Request| if number == 7 { Fault::Twice } else { Fault::None };
        let error = end_of(faulty_worker(2, twice)).unwrap_err();
        assert!(error.contains("read at offset 28672 was completed twice"), "{error}");
    }

    #[test]
    fn completions_out_of_order_are_each_counted_once() {
        let late = |number, _: &Request| if number % 3 == 0 { Fault::Late(2) } else { Fault::None };
        let sample = end_of(faulty_worker(8, late)).unwrap();
        let counted = sample.requests();
        assert!(counted >= 1000, "{counted}");
        assert_eq!(counted, sample.latency().count());
    }

    #[test]
    fn a_device_that_never_answers_ends_a_run_with_or_without_a_limit_of_time() {
        let never = |_| 1 << 60;
        for limit_ns in [Some(1_000_000_000), None] {
            let mut workload = workload(1, 0);
            workload.limit_ns = limit_ns;
            workload.limit_bytes = Some(1 << 20);
            let error = end_of(worker_on(&workload, never)).unwrap_err();
            assert!(error.contains("has not answered 1 requests for 60 s"), "{error}");
        }
    }

    #[test]
    fn a_slow_open_loop_is_not_taken_for_a_device_that_hangs() {
        let mut workload = workload(4, 1_000_000_000_000);
        workload.arrival = Arrival::Constant { requests_per_s: 0.01 };
        let sample = end_of(worker_on(&workload, |_| 100_000)).unwrap();
        assert_eq!(sample.requests(), 10);
    }

    /// An engine that enforces its own timeout for requests.
    struct Limited<E>(E);

    impl<E: Engine> Engine for Limited<E> {
        fn slots(&self) -> u32 {
            self.0.slots()
        }
        fn buffer(&mut self, slot: u32) -> &mut [u8] {
            self.0.buffer(slot)
        }
        fn in_flight(&self) -> u32 {
            self.0.in_flight()
        }
        fn gives_up(&self) -> bool {
            true
        }
        fn submit_and_wait(
            &mut self,
            batch: &[Request],
            at_least: u32,
            until_ns: Option<u64>,
            done: &mut Vec<Completion>,
        ) -> Result<(), EngineError> {
            self.0.submit_and_wait(batch, at_least, until_ns, done)
        }
    }

    #[test]
    fn an_engine_with_its_own_time_limit_may_wait_for_longer() {
        let workload = Workload { limit_ns: None, limit_bytes: Some(8192), ..workload(1, 0) };
        let clock = VirtualClock::default();
        let server = OneServer {
            clock: clock.clone(),
            service_ns: |_| 100_000_000_000,
            free_at_ns: 0,
            due: RefCell::default(),
            buffers: vec![vec![0; 4096]; 1],
        };
        // `drive` would panic if the worker reported a hang.
        assert_eq!(drive(Limited(server), clock, &workload).requests(), 2);
    }

    #[test]
    fn the_first_failed_request_is_named_and_ends_the_run() {
        let clock = VirtualClock::default();
        let inner = OneServer {
            clock: clock.clone(),
            service_ns: |_| 1000,
            free_at_ns: 0,
            due: RefCell::default(),
            buffers: vec![vec![0; 4096]; 2],
        };
        let faulty = Faulty::new(inner, |number, _: &Request| match number {
            5 => Fault::Errno(libc::EIO),
            _ => Fault::None,
        });
        let sample = drive(faulty, clock, &workload(1, u64::MAX / 2));
        assert_eq!((sample.requests(), sample.errors), (5, 1));
        let failure = sample.first_error.unwrap();
        assert_eq!((failure.errno, failure.offset), (libc::EIO, 5 * 4096));
    }

    #[test]
    fn pausing_slots_obey_the_interactive_response_time_law() {
        // Requests take 100 us each and are served serially. Pauses take 1 ms. Five users never
        // queue, and twenty users saturate the server.
        for (users, requests, per_s) in
            [(5, 1, 5e9 / 1.1e6), (20, 1, 10_000.0), (1, 3, 3e9 / 1.3e6)]
        {
            let mut workload = workload(users, 10_000_000_000);
            workload.think = Some(Think { pause_ns: 1_000_000, requests });
            let sample = serve(&workload, |_| 100_000);
            let off = sample.requests_per_s() / per_s - 1.0;
            assert!(
                off.abs() < 0.002,
                "{users} users, {requests} requests: relative error {off:+.4}"
            );
        }
    }

    #[test]
    fn a_pause_is_kept_to_the_nanosecond_and_counts_to_the_end() {
        let mut workload = workload(1, 5_000_000_000);
        workload.think = Some(Think { pause_ns: 999_900_000, requests: 1 });
        workload.log = Some(10);
        let sample = serve(&workload, |_| 100_000);
        let began: Vec<u64> = sample.log.iter().map(|request| request.submit_ns).collect();
        assert_eq!(began, [0, 1, 2, 3, 4].map(|second| second * 1_000_000_000));
        assert_eq!(sample.elapsed_ns(), 5_000_000_000);
    }

    fn halves() -> Vec<SizeShare> {
        [1024, 4096].map(|request_bytes| SizeShare { request_bytes, percent: 50 }).to_vec()
    }

    #[test]
    fn bytes_of_varied_sizes_are_counted_request_by_request_and_end_at_the_limit() {
        let mut workload = workload(8, u64::MAX / 2);
        workload.request_sizes = halves();
        workload.limit_bytes = Some(1 << 20);
        workload.log = Some(4000);
        workload.read_percent = 50;
        let sample = serve(&workload, |_| 1000);
        assert_eq!(sample.bytes(), 1 << 20);
        assert_eq!(sample.series.intervals.iter().map(|i| i.bytes).sum::<u64>(), 1 << 20);
        assert_eq!(sample.log.len() as u64, sample.requests());
        for op in [Op::Read, Op::Write] {
            let logged = || sample.log.iter().filter(|request| request.op == op);
            let counted = &sample.operations[op as usize];
            let bytes: u64 = logged().map(|request| u64::from(request.length)).sum();
            assert_eq!((bytes, logged().count() as u64), (counted.bytes, counted.requests));
        }
        let small = sample.log.iter().filter(|request| request.length == 1024).count();
        assert!((150..270).contains(&small), "{small} of {}", sample.requests());
        // The requests form one sequential stream: each starts where the previous request ends.
        let mut all = sample.log.clone();
        all.sort_by_key(|request| request.offset);
        assert!(all.windows(2).all(|p| p[0].offset + u64::from(p[0].length) == p[1].offset));
    }

    #[test]
    fn a_short_transfer_of_a_small_request_is_continued_to_its_own_end() {
        let clock = VirtualClock::default();
        let inner = OneServer {
            clock: clock.clone(),
            service_ns: |_| 1000,
            free_at_ns: 0,
            due: RefCell::default(),
            buffers: vec![vec![0; 4096]; 1],
        };
        let short = |number: u64, request: &Request| match number % 2 {
            0 if request.length > 512 => Fault::Short(512),
            _ => Fault::None,
        };
        let mut workload = workload(1, u64::MAX / 2);
        workload.request_sizes = halves();
        workload.limit_bytes = Some(64 << 10);
        workload.log = Some(100);
        let sample = drive(Faulty::new(inner, short), clock, &workload);
        assert_eq!((sample.bytes(), sample.errors), (64 << 10, 0));
        assert!(sample.short_transfers > 5 && sample.log.len() as u64 == sample.requests());
    }

    #[test]
    fn a_full_log_keeps_its_first_requests_and_counts_the_others() {
        let mut workload = workload(2, u64::MAX / 2);
        workload.limit_bytes = Some(10 * 4096);
        workload.log = Some(4);
        let sample = serve(&workload, |_| 1000);
        assert_eq!((sample.log.len(), sample.log_lost, sample.requests()), (4, 6, 10));
        let first = sample.log[0];
        assert_eq!((first.submit_ns, first.complete_ns, first.offset), (0, 1000, 0));
        assert_eq!((first.length, first.op, first.failed), (4096, Op::Read, false));
    }

    #[test]
    fn the_log_has_the_submission_time_not_the_due_time() {
        let mut workload = workload(1, 10_000_000);
        workload.arrival = Arrival::Constant { requests_per_s: 1000.0 };
        workload.log = Some(10);
        // The service time is twice the time between arrivals, so each request waits for the
        // previous request.
        let sample = serve(&workload, |_| 2_000_000);
        let began: Vec<u64> = sample.log.iter().map(|request| request.submit_ns).collect();
        assert_eq!(began[..4], [0, 2, 4, 6].map(|ms| ms * 1_000_000));
    }

    #[test]
    fn what_happens_in_the_warm_up_is_not_logged() {
        let mut workload = workload(1, 10_000);
        workload.warm_up_ns = 10_000;
        workload.log = Some(100);
        let sample = serve(&workload, |_| 1000);
        assert!(sample.log.iter().all(|request| request.complete_ns > 10_000));
        assert_eq!(sample.log.len() as u64, sample.requests());
    }

    #[test]
    fn a_failed_request_is_logged_as_failed() {
        let eio = |number, _: &Request| match number {
            3 => Fault::Errno(libc::EIO),
            _ => Fault::None,
        };
        let clock = VirtualClock::default();
        let inner = OneServer {
            clock: clock.clone(),
            service_ns: |_| 1000,
            free_at_ns: 0,
            due: RefCell::default(),
            buffers: vec![vec![0; 4096]; 1],
        };
        let mut workload = workload(1, 1_000_000);
        workload.log = Some(100);
        let sample = drive(Faulty::new(inner, eio), clock, &workload);
        let failed: Vec<bool> = sample.log.iter().map(|request| request.failed).collect();
        assert_eq!(failed, [false, false, false, true]);
    }
}
