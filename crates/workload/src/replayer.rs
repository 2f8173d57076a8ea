//! The state machine of one thread that replays the recorded requests of a program.
//!
//! The caller uses the state machine like a [`crate::worker::Worker`]. The trace is read while
//! requests are issued, and at most 4096 requests are kept in memory. A request is issued when its
//! gap has passed and few enough requests of its lane are outstanding. A request that is longer
//! than a slot is issued in pieces, one after another, and counts as one request.

use std::collections::VecDeque;

use ioengine::{Clock, Completion, Engine, Error as EngineError, ErrorKind, Op, Request};

use crate::content;
use crate::error;
use crate::plan::WorkerPlan;
use crate::random::mix;
use crate::replay::{Pace, ReplayOperation, ReplayRequest, ReplayRequests};
use crate::sample::{Failure, Sample};
use crate::spec::{Content, Workload};
use crate::worker::{HANG_NS, RETRIES_MAX, State, TICK_NS, TargetCall};

/// If the next request is due in less than this time, the thread polls for completions instead of
/// sleeping (ns).
const POLL_NS: u64 = 120_000;
/// Maximum number of requests that are read ahead. Reading ahead lets one lane continue while
/// another lane waits.
const READ_AHEAD_MAX: usize = 4096;

/// The requests of one thread of the program, and the progress of their replay.
#[derive(Debug, Default)]
struct Lane {
    /// Requests that were read from the trace but not issued yet.
    next: VecDeque<ReplayRequest>,
    in_flight: u32,
    /// Time at which the lane's last request was issued (ns). For a request that waited for no
    /// completion, this is the time at which the request was due.
    issued_ns: u64,
    /// Time of the lane's last completion (ns).
    completed_ns: u64,
    /// Time at which the gap before the next request began (ns). The gap begins when few enough
    /// requests of the lane are outstanding. None if the gap has not begun yet.
    allowed_ns: Option<u64>,
}

impl Lane {
    /// Returns the due time of the lane's next request (ns). None if the request must still wait
    /// for a completion, or if `next` is empty.
    #[inline]
    fn due_ns(&mut self, pace: Pace) -> Option<u64> {
        let head = self.next.front()?;
        let from_ns = match (self.allowed_ns, head.outstanding_max) {
            (Some(allowed_ns), _) => allowed_ns,
            (None, None) => self.issued_ns,
            (None, Some(most)) if self.in_flight <= most => self.issued_ns.max(self.completed_ns),
            (None, Some(_)) => return None,
        };
        self.allowed_ns = Some(from_ns);
        Some(from_ns.saturating_add(pace.gap_ns(head.gap_ns)))
    }

    /// Removes and returns the next request, which is issued at `now_ns` and was due at `due_ns`.
    #[inline]
    fn take(&mut self, now_ns: u64, due_ns: u64) -> Option<ReplayRequest> {
        let request = self.next.pop_front()?;
        self.allowed_ns = None;
        self.issued_ns = if request.outstanding_max.is_none() { due_ns } else { now_ns };
        Some(request)
    }

    #[inline]
    fn complete(&mut self, now_ns: u64) {
        self.in_flight -= 1;
        self.completed_ns = now_ns;
    }
}

/// The request that is outstanding in a slot.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    lane: u32,
    op: Op,
    stamp_ns: u64,
    offset: u64,
    bytes: u64,
    moved: u64,
    retries: u32,
    in_flight: bool,
}

/// The state machine of one thread that replays the recorded requests of a program.
pub struct Replayer<E, C> {
    engine: E,
    clock: C,
    source: ReplayRequests,
    source_ended: bool,
    pace: Pace,
    /// Number of requests, in all lanes together, that were read but not issued yet.
    read_ahead: usize,
    lanes: Vec<Lane>,
    /// Index of the lane that gets free slots first. This is the lane that most recently found no
    /// free slot, so all lanes get slots.
    first_lane: usize,
    /// The call on the target that the caller must make, with the index of the lane to which the
    /// call belongs. None if no call is due.
    call: Option<(usize, TargetCall)>,
    slot_bytes: u64,
    granule_bytes: u64,
    region_offset: u64,
    region_bytes: u64,
    is_folded: bool,
    takes_only_awaited: bool,
    cut_short: bool,
    /// Whether the last step returned [`State::Waiting`]. The next step then reads the clock,
    /// because `now_ns` is out of date.
    waited: bool,
    /// Clock reading after the last call into the engine, or after the last wait (ns).
    now_ns: u64,
    last_reap_ns: u64,
    hang_ns: u64,
    outstanding: Vec<Outstanding>,
    free: Vec<u32>,
    again: Vec<Request>,
    batch: Vec<Request>,
    /// Completions that the engine returned but that were not processed yet.
    done: Vec<Completion>,
    sample: Sample,
}

impl<E: Engine, C: Clock> Replayer<E, C> {
    /// Creates the replayer of one worker, and fills the buffers of `engine` if there are writes.
    /// Requests are widened so that their offsets and lengths are multiples of `granule_bytes`.
    ///
    /// # Errors
    /// The workload has no replay, or the requests of the replay cannot be read.
    pub fn new(
        mut engine: E,
        clock: C,
        workload: &Workload,
        plan: &WorkerPlan,
        granule_bytes: u32,
    ) -> Result<Self, EngineError> {
        let unread = |why: String| EngineError::new(ErrorKind::Io, why);
        let replay = workload.replay.as_ref().ok_or_else(|| unread("no replay".to_owned()))?;
        let source = replay.source.as_ref();
        let source = source.ok_or_else(|| {
            unread("a stored run does not contain its trace, so it cannot be replayed".to_owned())
        })?;
        let source = source.requests(plan.number).map_err(unread)?;
        let slots = engine.slots();
        for slot in (0..slots).filter(|_| E::MOVES_DATA && workload.writes()) {
            let memory = engine.buffer(slot);
            match workload.content {
                Content::Zero => memory.fill(0),
                _ => content::fill(memory, mix(plan.seed, slot.into())),
            }
        }
        let idle = Outstanding {
            lane: 0,
            op: Op::Read,
            stamp_ns: 0,
            offset: 0,
            bytes: 0,
            moved: 0,
            retries: 0,
            in_flight: false,
        };
        Ok(Replayer {
            hang_ns: if engine.gives_up() { u64::MAX } else { HANG_NS },
            source,
            source_ended: false,
            pace: replay.description.pace,
            read_ahead: 0,
            lanes: Vec::new(),
            first_lane: 0,
            call: None,
            slot_bytes: u64::from(workload.request_bytes),
            granule_bytes: u64::from(granule_bytes.max(1)),
            region_offset: plan.region_offset,
            region_bytes: plan.region_bytes,
            is_folded: replay.description.folded,
            takes_only_awaited: replay.takes_only_awaited,
            cut_short: false,
            waited: false,
            now_ns: 0,
            last_reap_ns: 0,
            outstanding: vec![idle; slots as usize],
            free: (0..slots).rev().collect(),
            again: Vec::with_capacity(slots as usize),
            batch: Vec::with_capacity(slots as usize),
            done: Vec::with_capacity(slots as usize),
            sample: Sample::new(workload.interval_ns),
            engine,
            clock,
        })
    }

    /// Starts the replay at `start_ns`.
    pub fn start(&mut self, start_ns: u64) {
        (self.now_ns, self.last_reap_ns, self.sample.start_ns) = (start_ns, start_ns, start_ns);
    }

    /// Makes one call into the engine. If `stop` is true, no new requests are issued.
    ///
    /// # Errors
    /// The rest of the trace cannot be read, the I/O engine cannot continue, or a request hangs.
    pub fn step(&mut self, stop: bool) -> Result<State, EngineError> {
        if std::mem::take(&mut self.waited) {
            self.now_ns = self.clock.now_ns();
        }
        self.cut_short |= stop || self.sample.errors > 0;
        self.batch.clear();
        self.batch.append(&mut self.again);
        let resent = self.batch.len();
        let due_ns = match self.cut_short || self.call.is_some() {
            true => u64::MAX,
            false => self.issue()?,
        };
        if let Some((_, call)) = self.call.filter(|_| self.batch.is_empty() && !self.cut_short) {
            return Ok(State::CallDue(call));
        }
        let computes = self.lanes.len() == 1 && due_ns != u64::MAX;
        let has_outstanding = self.engine.in_flight() > 0 || !self.done.is_empty();
        if self.batch.is_empty() && (computes || !has_outstanding) {
            return Ok(self.idle(due_ns));
        }
        let stamp_ns = self.clock.now_ns();
        for request in &self.batch[resent..] {
            self.outstanding[request.slot as usize].stamp_ns = stamp_ns;
        }
        self.sample.submit_calls += u64::from(!self.batch.is_empty());
        let until_ns = due_ns.min(stamp_ns + TICK_NS);
        // If a request is due soon, the thread polls, because a kernel timer would wake the thread
        // too late.
        let is_due_soon = due_ns.saturating_sub(stamp_ns) < POLL_NS;
        let wait = self.call.is_none() || self.cut_short;
        let awaited = self.awaited();
        let left = self.done.len();
        let missing = awaited.saturating_sub(left as u32);
        self.engine.submit_and_wait(
            &self.batch,
            if wait && !is_due_soon { missing } else { 0 },
            Some(until_ns),
            &mut self.done,
        )?;
        self.now_ns = self.clock.now_ns();
        if !self.batch.is_empty() && self.engine.in_flight() == 0 {
            self.sample.at_once += (self.done.len() - left) as u64;
        }
        let taken = if self.takes_only_awaited { awaited as usize } else { usize::MAX };
        self.waited = wait && self.done.is_empty();
        self.reap(taken)?;
        if self.now_ns.saturating_sub(self.last_reap_ns) > self.hang_ns && self.is_hung() {
            return Err(error::hangs(self.engine.in_flight(), HANG_NS / 1_000_000_000));
        }
        Ok(if self.waited { State::Waiting } else { State::Running })
    }

    /// Reads requests until each lane has a request, or until [`READ_AHEAD_MAX`] requests are in
    /// memory.
    fn read_on(&mut self) -> Result<(), EngineError> {
        let has_next = |lane: &Lane| !lane.next.is_empty();
        while !self.source_ended
            && self.read_ahead < READ_AHEAD_MAX
            && (self.lanes.is_empty() || !self.lanes.iter().all(has_next))
        {
            match self.source.next() {
                None => self.source_ended = true,
                Some(Err(why)) => return Err(EngineError::new(ErrorKind::Io, why)),
                Some(Ok(request)) => {
                    let lane = request.lane as usize;
                    if lane >= self.lanes.len() {
                        let start_ns = self.sample.start_ns;
                        self.lanes.resize_with(lane + 1, || Lane {
                            issued_ns: start_ns,
                            ..Lane::default()
                        });
                    }
                    self.lanes[lane].next.push_back(request);
                    self.read_ahead += 1;
                }
            }
        }
        Ok(())
    }

    /// Adds due requests to the batch while there are free slots. Returns the due time of the next
    /// request (ns), or `u64::MAX` if all lanes wait for completions or no slot is free. If a flush
    /// or a hint is due, stores it in `call`. The lane of this call issues nothing until the caller
    /// has made the call.
    ///
    /// # Errors
    /// The requests cannot be read.
    fn issue(&mut self) -> Result<u64, EngineError> {
        self.read_on()?;
        let mut next_due_ns = u64::MAX;
        for turn in 0..self.lanes.len() {
            let index = (self.first_lane + turn) % self.lanes.len();
            while let Some(due_ns) = self.lanes[index].due_ns(self.pace) {
                if due_ns > self.now_ns {
                    next_due_ns = next_due_ns.min(due_ns);
                    break;
                }
                let head = self.lanes[index].next.front();
                if let Some(call) = head.and_then(|head| self.call_of(head)) {
                    self.call.get_or_insert((index, call));
                    break;
                }
                let Some(slot) = self.free.pop() else {
                    self.first_lane = index;
                    return Ok(u64::MAX);
                };
                if let Some(request) = self.lanes[index].take(self.now_ns, due_ns) {
                    self.read_ahead -= 1;
                    self.submit(slot, index, request);
                }
                if self.lanes[index].next.is_empty() {
                    self.read_on()?;
                }
            }
        }
        Ok(next_due_ns)
    }

    /// Assigns a slot to a request, and adds the first piece of the request to the batch.
    fn submit(&mut self, slot: u32, lane: usize, request: ReplayRequest) {
        let op = if request.operation == ReplayOperation::Write { Op::Write } else { Op::Read };
        let (offset, bytes) = self.place(request.offset, request.bytes);
        self.lanes[lane].in_flight += 1;
        self.outstanding[slot as usize] = Outstanding {
            lane: lane as u32,
            op,
            stamp_ns: 0,
            offset,
            bytes,
            moved: 0,
            retries: 0,
            in_flight: true,
        };
        let length = bytes.min(self.slot_bytes) as u32;
        self.batch.push(Request { offset, length, within: 0, slot, file: 0, op });
    }

    /// Returns the offset in the target and the length of a request (bytes), after widening the
    /// request to whole granules and moving it into the region.
    fn place(&self, offset: u64, bytes: u64) -> (u64, u64) {
        let granule = self.granule_bytes;
        let start = offset / granule * granule;
        let end = offset.saturating_add(bytes).div_ceil(granule).saturating_mul(granule);
        let room = self.region_bytes / granule * granule;
        let bytes = (end - start).clamp(granule, room.max(granule));
        let start = if self.is_folded && room > 0 { start % room } else { start };
        (self.region_offset + start.min(room.saturating_sub(bytes)), bytes)
    }

    /// Returns the call on the target that a flush or a hint requires. None for reads and writes.
    fn call_of(&self, request: &ReplayRequest) -> Option<TargetCall> {
        match request.operation {
            ReplayOperation::Read | ReplayOperation::Write => None,
            ReplayOperation::Flush { data_only } => Some(TargetCall::Flush { data_only }),
            ReplayOperation::Advise(hint) => {
                let (offset, bytes) = match request.bytes {
                    0 => (0, 0),
                    bytes => self.place(request.offset, bytes),
                };
                Some(TargetCall::Advise { hint, offset, bytes })
            }
        }
    }

    /// Returns how many completions to wait for: 1 if there are several lanes, otherwise as many as
    /// the next request needs. The program reaped these completions together, so the replay also
    /// reaps them together, and their latencies end at the same time.
    fn awaited(&self) -> u32 {
        let [lane] = self.lanes.as_slice() else { return 1 };
        let most = lane.next.front().and_then(|head| head.outstanding_max);
        most.map_or(1, |most| lane.in_flight.saturating_sub(most)).max(1)
    }

    /// Waits until the next request is due. Returns `Done` if the replay has ended. Completions are
    /// not reaped during the wait, because the program did not reap completions during this gap
    /// either.
    fn idle(&mut self, due_ns: u64) -> State {
        if self.cut_short || (self.source_ended && self.read_ahead == 0) {
            return State::Done;
        }
        if due_ns <= self.now_ns {
            return State::Running;
        }
        self.clock.wait_until(due_ns.min(self.now_ns + TICK_NS));
        self.now_ns = self.clock.now_ns();
        self.waited = due_ns > self.now_ns;
        if self.waited { State::Waiting } else { State::Running }
    }

    /// Returns the time by which the next step must run (ns).
    pub(crate) fn wake_up_ns(&mut self, now_ns: u64) -> u64 {
        let tick_ns = now_ns + TICK_NS;
        if self.free.is_empty() || self.cut_short {
            return tick_ns;
        }
        let pace = self.pace;
        let due = self.lanes.iter_mut().filter_map(|lane| lane.due_ns(pace));
        due.fold(tick_ns, u64::min)
    }

    /// Processes at most `most` completions.
    fn reap(&mut self, most: usize) -> Result<(), EngineError> {
        if self.done.is_empty() {
            return Ok(());
        }
        self.sample.reap_calls += 1;
        self.last_reap_ns = self.now_ns;
        let (mut bytes, mut requests) = (0, 0);
        let taken = most.min(self.done.len());
        for index in 0..taken {
            let Completion { slot, result } = self.done[index];
            let outstanding = &mut self.outstanding[slot as usize];
            if !outstanding.in_flight {
                return Err(error::completed_twice(outstanding.op, outstanding.offset));
            }
            if result > 0 {
                outstanding.moved += result as u64;
            } else if !self.may_retry(slot, result) {
                self.fail(slot, result);
                continue;
            }
            let outstanding = self.outstanding[slot as usize];
            if outstanding.moved < outstanding.bytes {
                self.submit_next_piece(slot, result);
                continue;
            }
            let latency_ns = self.now_ns.saturating_sub(outstanding.stamp_ns);
            let operation = &mut self.sample.operations[outstanding.op as usize];
            operation.requests += 1;
            operation.bytes += outstanding.bytes;
            operation.latency.record(latency_ns);
            bytes += outstanding.bytes;
            requests += 1;
            self.release(slot);
        }
        self.done.drain(..taken);
        let since_start = self.now_ns.saturating_sub(self.sample.start_ns);
        self.sample.series.add(since_start, bytes, requests);
        Ok(())
    }

    /// Counts a retry and returns true if a request failed with EAGAIN or EINTR and may be retried.
    /// Returns false after another error, after too many retries, and when the replay is ending.
    fn may_retry(&mut self, slot: u32, result: i32) -> bool {
        let outstanding = &mut self.outstanding[slot as usize];
        let transient = result == -libc::EAGAIN || result == -libc::EINTR;
        if !transient || self.cut_short || outstanding.retries >= RETRIES_MAX {
            return false;
        }
        outstanding.retries += 1;
        self.sample.retries += 1;
        true
    }

    /// Queues the next piece of a request for submission.
    fn submit_next_piece(&mut self, slot: u32, result: i32) {
        let Outstanding { offset, bytes, moved, op, .. } = self.outstanding[slot as usize];
        let is_short = result > 0 && moved % self.slot_bytes != 0;
        self.sample.short_transfers += u64::from(is_short);
        let length = (bytes - moved).min(self.slot_bytes) as u32;
        self.again.push(Request { offset: offset + moved, length, within: 0, slot, file: 0, op });
    }

    /// Counts a failed request. A request that is not retried because the replay is ending does not
    /// count.
    fn fail(&mut self, slot: u32, result: i32) {
        let Outstanding { op, offset, .. } = self.outstanding[slot as usize];
        let is_given_up = self.cut_short && (result == -libc::EAGAIN || result == -libc::EINTR);
        if !is_given_up {
            self.sample.errors += 1;
            self.sample.first_error.get_or_insert(Failure { op, offset, errno: -result });
        }
        self.release(slot);
    }

    fn release(&mut self, slot: u32) {
        let outstanding = &mut self.outstanding[slot as usize];
        outstanding.in_flight = false;
        self.lanes[outstanding.lane as usize].complete(self.now_ns);
        self.free.push(slot);
    }

    /// Checks whether any request has been in flight longer than the hang limit.
    pub(crate) fn is_hung(&self) -> bool {
        self.outstanding.iter().any(|request| {
            request.in_flight && self.now_ns.saturating_sub(request.stamp_ns) > self.hang_ns
        })
    }

    /// Flushes with the engine and returns true. Returns false if requests are in flight or the
    /// engine does not support flushes. The caller must then flush the target.
    ///
    /// # Errors
    /// The flush failed.
    pub fn flush(&mut self) -> Result<bool, EngineError> {
        if self.engine.in_flight() > 0 { Ok(false) } else { self.engine.flush() }
    }

    /// Records that the call that was due on the target began at `begun_ns` and has just ended.
    pub fn called(&mut self, begun_ns: u64) {
        self.now_ns = self.clock.now_ns();
        self.last_reap_ns = self.now_ns;
        let Some((index, call)) = self.call.take() else { return };
        if let TargetCall::Flush { .. } = call {
            self.sample.flushes.record(self.now_ns.saturating_sub(begun_ns));
        }
        let lane = &mut self.lanes[index];
        if lane.take(begun_ns, begun_ns).is_some() {
            self.read_ahead -= 1;
        }
        lane.completed_ns = self.now_ns;
    }

    /// Returns the measurements so far.
    pub fn sample(&self) -> &Sample {
        &self.sample
    }

    /// Ends the replay and returns the sample and the engine. Drop the engine only after the meters
    /// have been read, so that its teardown is not measured.
    pub fn finish(mut self) -> (Sample, E) {
        self.sample.end_ns = self.last_reap_ns.max(self.sample.start_ns);
        (self.sample, self.engine)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::plan;
    use crate::replay::{Replay, ReplayDescription, ReplaySource};
    use crate::worker::tests::{OneServer, VirtualClock};
    use ioengine::{EngineKind, HostTarget};
    use proptest::prelude::*;

    #[derive(Debug)]
    struct InMemory(Vec<Result<ReplayRequest, String>>);

    impl ReplaySource for InMemory {
        fn requests(&self, _: u32) -> Result<ReplayRequests, String> {
            Ok(Box::new(self.0.clone().into_iter()))
        }
    }

    fn request(lane: u32, gap_ns: u64, outstanding_max: Option<u32>) -> ReplayRequest {
        let operation = ReplayOperation::Read;
        ReplayRequest { lane, operation, offset: 0, bytes: 4096, gap_ns, outstanding_max }
    }

    fn flush(lane: u32) -> ReplayRequest {
        let operation = ReplayOperation::Flush { data_only: true };
        ReplayRequest { operation, bytes: 0, ..request(lane, 0, Some(0)) }
    }

    fn workload(requests: Vec<Result<ReplayRequest, String>>, pace: Pace, depth: u32) -> Workload {
        let description = ReplayDescription {
            trace: "test".to_owned(),
            fingerprint: 0,
            requests: requests.len() as u64,
            bytes: 0,
            recorded_ns: 0,
            pace,
            changes: String::new(),
            folded: true,
        };
        Workload {
            engine_kind: EngineKind::Null,
            request_bytes: 4096,
            depth,
            region_bytes: 1 << 20,
            replay: Some(Replay {
                description,
                span_bytes: 0,
                new_ranges: Vec::new(),
                takes_only_awaited: false,
                source: Some(Arc::new(InMemory(requests))),
            }),
            ..Workload::default()
        }
    }

    /// Replays requests on a simulated device that serves one request at a time, each in
    /// `service_ns`. Calls on the target take 500 ns. Returns the sample and the time at which each
    /// service began.
    fn replayed(
        requests: Vec<Result<ReplayRequest, String>>,
        pace: Pace,
        depth: u32,
        service_ns: u64,
    ) -> Result<(Sample, Vec<u64>), EngineError> {
        replayed_of(&workload(requests, pace, depth), service_ns)
    }

    fn replayed_of(
        workload: &Workload,
        service_ns: u64,
    ) -> Result<(Sample, Vec<u64>), EngineError> {
        let depth = workload.depth;
        let planned = plan::resolve(workload, &HostTarget::null(1 << 20)).unwrap();
        let clock = VirtualClock::default();
        let begun = std::cell::RefCell::new(Vec::new());
        let serve = |begin: u64| {
            begun.borrow_mut().push(begin);
            service_ns
        };
        let engine = OneServer::new(&clock, depth, 4096, serve);
        let worker = &planned.workers[0];
        let mut replayer = Replayer::new(engine, clock.clone(), workload, worker, 512)?;
        replayer.start(0);
        loop {
            match replayer.step(false)? {
                State::Done => break,
                State::CallDue(_) => {
                    let begun_ns = clock.now_ns();
                    clock.sleep_until(begun_ns + 500);
                    replayer.called(begun_ns);
                }
                State::Running => {}
                // The time of the next completion is not known here, so time advances by 1 ns.
                State::Waiting => clock.sleep_until(clock.now_ns() + 1),
            }
        }
        let (sample, _) = replayer.finish();
        Ok((sample, begun.into_inner()))
    }

    const AS_RECORDED: Pace = Pace::Gaps { speed: 1.0 };

    #[test]
    fn requests_wait_for_those_before_them_and_for_the_programs_own_time() {
        let gaps = [0, 30, 70].map(|gap_ns| Ok(request(0, gap_ns, Some(0))));
        let (sample, begun) = replayed(gaps.to_vec(), AS_RECORDED, 4, 100).unwrap();
        assert_eq!(begun, [0, 130, 300]);
        assert_eq!((sample.requests(), sample.end_ns), (3, 400));
        let (_, begun) = replayed(gaps.to_vec(), Pace::Gaps { speed: 10.0 }, 4, 100).unwrap();
        assert_eq!(begun, [0, 103, 210]);
        let (_, begun) = replayed(gaps.to_vec(), Pace::Fast, 4, 100).unwrap();
        assert_eq!(begun, [0, 100, 200]);
    }

    #[test]
    fn as_many_requests_stay_outstanding_as_the_program_had() {
        let requests = (0..8).map(|at: u32| Ok(request(0, 0, Some(at.min(2))))).collect();
        let (sample, _) = replayed(requests, Pace::Fast, 4, 100).unwrap();
        // Three requests share the device, so each request takes three service times.
        assert_eq!(sample.latency().quantile(1.0), Some(300));
        assert_eq!(sample.end_ns, 800);
    }

    #[test]
    fn an_open_loop_keeps_its_times_although_the_device_is_slower() {
        let requests = (0..4).map(|_| Ok(request(0, 50, None))).collect();
        let (sample, begun) = replayed(requests, AS_RECORDED, 8, 120).unwrap();
        assert_eq!(begun, [50, 170, 290, 410]);
        assert_eq!(sample.requests(), 4);
    }

    #[test]
    fn a_flush_holds_its_lane_and_counts() {
        let requests = vec![Ok(request(0, 0, Some(0))), Ok(flush(0)), Ok(request(0, 20, Some(0)))];
        let (sample, begun) = replayed(requests, AS_RECORDED, 1, 100).unwrap();
        assert_eq!(begun, [0, 100 + 500 + 20]);
        assert_eq!((sample.flushes.count(), sample.requests()), (1, 2));
    }

    #[test]
    fn an_advice_is_given_in_its_turn_and_is_no_flush() {
        let operation = ReplayOperation::Advise(ioengine::Hint::DontNeed);
        let advice = ReplayRequest { operation, bytes: 0, ..request(0, 0, Some(0)) };
        let requests = vec![Ok(request(0, 0, Some(0))), Ok(advice), Ok(request(0, 0, Some(0)))];
        let (sample, begun) = replayed(requests, AS_RECORDED, 1, 100).unwrap();
        assert_eq!(begun, [0, 600]);
        assert_eq!((sample.flushes.count(), sample.requests()), (0, 2));
    }

    #[test]
    fn completions_are_taken_as_the_program_took_them() {
        // Four requests are issued at once. Before each further request, the program waits for one
        // completion and then computes for 30 ns. The device completes one request every 10 ns.
        let first = (0..4).map(|at| Ok(request(0, 0, Some(at))));
        let requests: Vec<_> = first.chain((0..4).map(|_| Ok(request(0, 30, Some(3))))).collect();
        let of = |takes_only_awaited| {
            let mut workload = workload(requests.clone(), AS_RECORDED, 4);
            workload.replay.as_mut().unwrap().takes_only_awaited = takes_only_awaited;
            let (sample, _) = replayed_of(&workload, 10).unwrap();
            assert_eq!(sample.requests(), 8);
            (sample.end_ns, sample.latency().quantile(0.75))
        };
        let (end_ns, latency_ns) = of(true);
        let (other_end_ns, other_latency_ns) = of(false);
        assert_eq!(end_ns, other_end_ns);
        assert!(latency_ns > other_latency_ns, "{latency_ns:?} and {other_latency_ns:?}");
    }

    #[test]
    fn a_lane_that_waits_does_not_hold_up_another() {
        let slow = |gap_ns| Ok(request(0, gap_ns, Some(0)));
        let mut requests = vec![slow(0)];
        requests.extend((0..5).map(|_| Ok(request(1, 0, Some(0)))));
        requests.push(slow(5000));
        let (_, begun) = replayed(requests, AS_RECORDED, 2, 100).unwrap();
        assert_eq!(begun.len(), 7);
        assert!(begun[5] < 1000, "{begun:?}");
        assert!(begun[6] >= 5100, "{begun:?}");
    }

    #[test]
    fn a_long_request_is_issued_in_pieces_and_counts_once() {
        let long = ReplayRequest { bytes: 10_000, offset: 100, ..request(0, 0, Some(0)) };
        let (sample, begun) = replayed(vec![Ok(long)], AS_RECORDED, 1, 100).unwrap();
        assert_eq!(begun.len(), 3);
        // Bytes 100 to 10,100 are widened to whole granules of 512 bytes: bytes 0 to 10,240.
        assert_eq!((sample.requests(), sample.bytes()), (1, 10_240));
        assert_eq!((sample.short_transfers, sample.latency().quantile(0.5)), (0, Some(300)));
    }

    #[test]
    fn a_trace_that_cannot_be_read_on_ends_the_replay_with_its_error() {
        let requests = vec![Ok(request(0, 0, Some(0))), Err("damaged; record again".to_owned())];
        let error = replayed(requests, AS_RECORDED, 1, 100).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }

    proptest! {
        #[test]
        fn every_request_is_issued_once_within_the_region(
            made in proptest::collection::vec(
                (0..3_u32, 0..300_u64, proptest::option::of(0..3_u32), 0..3_u64 << 20, 1..9000_u64),
                0..40,
            ),
            depth in 1..4_u32,
        ) {
            let requests: Vec<_> = made
                .iter()
                .map(|(lane, gap_ns, outstanding_max, offset, bytes)| {
                    let (offset, bytes) = (*offset, *bytes);
                    Ok(ReplayRequest { offset, bytes, ..request(*lane, *gap_ns, *outstanding_max) })
                })
                .collect();
            let (sample, _) = replayed(requests.clone(), AS_RECORDED, depth, 100).unwrap();
            prop_assert_eq!(sample.requests(), requests.len() as u64);
            prop_assert_eq!(sample.errors, 0);
        }
    }
}
