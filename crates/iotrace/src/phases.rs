//! Splits the latency of each request of a load into phases, such as the time in the device.
//!
//! Each request of the load is found in the trace by its location on the disk, its direction (read
//! or write) and its time. If the kernel split the request, the phases are those of the part that
//! completed last, because the request completes with this part. The phases follow each other
//! without gaps and do not overlap. Time that the events do not explain is reported as the
//! remainder.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use crate::event::Op;
use crate::extent::{Extent, SECTOR_BYTES, sectors_of};
use crate::lifecycle::{Lifecycles, Part, Uring};
use crate::tracer::Trace;

/// Maximum difference between the clocks of the load and of the kernel (ns).
const SLACK_NS: u64 = 20_000;

/// A request as the load logged it. Times are those of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppRequest {
    /// Time at which the load submitted the request (ns).
    pub submit_ns: u64,
    /// Time at which the load reaped the completion of the request (ns).
    pub reaped_ns: u64,
    /// Offset of the request in the file or on the device (bytes).
    pub offset: u64,
    /// Length of the request (bytes).
    pub bytes: u64,
    /// Whether the request is a write.
    pub write: bool,
    /// The `user_data` with which the load submitted the request to io_uring. None if unknown.
    pub user_data: Option<u64>,
}

impl AppRequest {
    fn latency_ns(&self) -> u64 {
        self.reaped_ns.saturating_sub(self.submit_ns)
    }
}

/// A phase of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// From the load's submission until io_uring takes the request. Without io_uring, this phase
    /// ends when the block layer takes the request, so it includes the time in the file system.
    Submit,
    /// From the end of `Submit` until the request enters the I/O scheduler. Without a scheduler,
    /// this phase ends when the request is issued to the driver. It includes throttling, waiting
    /// for a tag, plugging and, with io_uring, the time in the file system.
    Queue,
    /// Time in the I/O scheduler. Zero if the request bypasses the scheduler.
    Scheduler,
    /// From the issue of the request to the driver until the driver reports its completion.
    Device,
    /// From the driver's report until the load's thread is woken. If the thread did not sleep, this
    /// phase ends when io_uring adds the completion to the completion queue.
    Completion,
    /// From the end of `Completion` until the load reaps the completion.
    WakeUp,
    /// `Completion` and `WakeUp` together, if no event in the trace separates them.
    CompletionAndWakeUp,
}

impl Phase {
    /// All phases, in the order in which a request passes through them.
    pub const ALL: [Phase; 7] = [
        Phase::Submit,
        Phase::Queue,
        Phase::Scheduler,
        Phase::Device,
        Phase::Completion,
        Phase::WakeUp,
        Phase::CompletionAndWakeUp,
    ];

    /// Returns the name that reports use for the phase.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Submit => "submit",
            Phase::Queue => "queue",
            Phase::Scheduler => "scheduler",
            Phase::Device => "device",
            Phase::Completion => "completion",
            Phase::WakeUp => "wake-up",
            Phase::CompletionAndWakeUp => "completion and wake-up",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a request was not found in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unmatched {
    /// The location of the request on the disk is not known completely.
    NoPlace,
    /// The trace shows no block I/O at the location of the request during the time when the request
    /// was in flight. The request was served from a cache, or events were lost.
    NoDeviceRequest,
    /// Some events of the request are missing.
    Incomplete,
    /// The device served the request, but no io_uring request in the trace matches it.
    NoUringRequest,
}

impl Unmatched {
    /// Returns the reason as text.
    pub fn name(self) -> &'static str {
        match self {
            Unmatched::NoPlace => "unknown position on the disk",
            Unmatched::NoDeviceRequest => "no request to the device",
            Unmatched::Incomplete => "events missing",
            Unmatched::NoUringRequest => "no matching io_uring request",
        }
    }
}

/// Statistics of the time that requests spent in a phase.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseTime {
    /// The phase.
    pub phase: Phase,
    /// Number of requests that passed through the phase. This includes requests that spent no time
    /// in the phase.
    pub requests: u64,
    /// Mean time of a request in the phase (ns).
    pub mean_ns: f64,
    /// Median time of a request in the phase (ns).
    pub p50_ns: u64,
    /// 99th percentile of the requests' time in the phase (ns).
    pub p99_ns: u64,
    /// Maximum time of a request in the phase (ns).
    pub max_ns: u64,
    /// Sum of the times of all requests in the phase (ns).
    pub total_ns: u64,
    /// `total_ns` divided by the sum of the latencies of all requests of the load.
    pub share: f64,
    /// Fraction of [`Phases::wall_ns`] during which at least one request was in the phase.
    pub utilisation: f64,
}

/// The result of [`split`]: the time that the requests of a load spent in each phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phases {
    /// Number of requests of the load.
    pub requests: u64,
    /// Number of requests that were found in the trace.
    pub matched: u64,
    /// Number of requests that were not found in the trace, for each reason.
    pub unmatched: Vec<(Unmatched, u64)>,
    /// Statistics of each phase through which a request passed, in order of time.
    pub times: Vec<PhaseTime>,
    /// Sum of the latencies of all requests (ns).
    pub total_ns: u64,
    /// Part of `total_ns` that no phase explains (ns). This is the sum of two parts: the latencies
    /// of requests that were not found in the trace, and the errors of the other requests. If
    /// timestamps are out of order, the ends of phases are moved. The error of a request is the
    /// largest time by which the end of one of its phases was moved.
    pub remainder_ns: u64,
    /// Time from the first submission until the load reaped the last completion (ns).
    pub wall_ns: u64,
    /// Number of requests that were split into several device requests.
    pub split: u64,
    /// Number of requests that were merged with other requests.
    pub merged: u64,
    /// Number of requests that a worker thread of io_uring executed.
    pub punted: u64,
    /// Number of requests that the driver requeued at least once.
    pub requeued: u64,
    /// Number of trace events that were lost.
    pub lost: u64,
}

impl Phases {
    /// Returns the fraction of the requests that were found, or 1 if there are no requests.
    pub fn matched_share(&self) -> f64 {
        share(self.matched, self.requests, 1.0)
    }

    /// Returns the fraction of `total_ns` that no phase explains.
    pub fn remainder_share(&self) -> f64 {
        share(self.remainder_ns, self.total_ns, 0.0)
    }

    /// Returns the statistics of a phase, or None if no request passed through the phase.
    pub fn time(&self, phase: Phase) -> Option<&PhaseTime> {
        self.times.iter().find(|time| time.phase == phase)
    }
}

fn share(part: u64, whole: u64, of_nothing: f64) -> f64 {
    if whole == 0 { of_nothing } else { part as f64 / whole as f64 }
}

/// Splits the latencies of a load's requests into phases. `extents` contains the locations of the
/// load's target on the disk, and must be sorted by offset.
pub fn split(trace: &Trace, requests: &[AppRequest], extents: &[Extent]) -> Phases {
    let lifecycles = Lifecycles::follow(&trace.events);
    let mut order: Vec<&AppRequest> = requests.iter().collect();
    order.sort_by_key(|request| request.submit_ns);
    let mut finder = Finder::new(&lifecycles, extents, trace.uring);
    let found: Vec<_> = order.iter().map(|request| finder.find(request)).collect();
    let mut totals = Totals::default();
    for (request, found) in order.iter().zip(found) {
        match found.and_then(|found| finder.with_uring(request, found)) {
            Ok(path) => totals.add(request, &path, &lifecycles),
            Err(reason) => totals.give_up(request, reason),
        }
    }
    totals.finish(&order, trace.lost.total())
}

/// The bio, the part and the io_uring request that belong to a request of the load, as indices. If
/// the request was split, the bio and the part are those that completed last.
#[derive(Clone, Copy, Debug)]
struct RequestPath {
    bio: usize,
    part: usize,
    uring: Option<usize>,
    /// Number of device requests that the request was split into.
    pieces: usize,
    merged: bool,
    requeued: bool,
}

/// Matches requests of the load with the bios and io_uring requests in the trace.
struct Finder<'a> {
    lifecycles: &'a Lifecycles,
    extents: &'a [Extent],
    /// Indices of the bios that are not yet matched, by direction and first sector.
    free: BTreeMap<(Op, u64), VecDeque<usize>>,
    uring: bool,
    claimed: Vec<bool>,
}

impl<'a> Finder<'a> {
    fn new(lifecycles: &'a Lifecycles, extents: &'a [Extent], uring: bool) -> Finder<'a> {
        let mut free: BTreeMap<_, VecDeque<usize>> = BTreeMap::new();
        for (index, bio) in lifecycles.bios.iter().enumerate() {
            free.entry((bio.range.op, bio.range.sector)).or_default().push_back(index);
        }
        Finder { lifecycles, extents, free, uring, claimed: vec![false; lifecycles.urings.len()] }
    }

    /// Finds the path of a request through the block layer. The field `uring` of the path is set if
    /// the thread that submitted the bio was submitting an io_uring request at that time.
    fn find(&mut self, request: &AppRequest) -> Result<RequestPath, Unmatched> {
        let pieces = sectors_of(self.extents, request.offset, request.bytes);
        let sectors: u64 = pieces.iter().map(|(_, sectors)| *sectors).sum();
        if sectors != request.bytes.div_ceil(SECTOR_BYTES) || sectors == 0 {
            return Err(Unmatched::NoPlace);
        }
        let (mut bios, mut incomplete) = (Vec::new(), false);
        for (first, sectors) in pieces {
            incomplete |= self.claim(request, first, first + sectors, &mut bios);
        }
        let length = |bio: &usize| u64::from(self.lifecycles.bios[*bio].range.sectors);
        if bios.iter().map(length).sum::<u64>() != sectors {
            let seen = incomplete || !bios.is_empty();
            return Err(if seen { Unmatched::Incomplete } else { Unmatched::NoDeviceRequest });
        }
        let path = self.path(&bios).ok_or(Unmatched::Incomplete)?;
        if let Some(uring) = path.uring {
            self.claimed[uring] = true;
        }
        Ok(path)
    }

    /// Moves the bios of a request in the sectors `from..to` from `free` to `bios`. A bio
    /// is moved only if it is complete and does not extend beyond `to`. Returns true if, at one of
    /// these sectors, bios were submitted while the request was in flight, but none of these bios
    /// can be moved.
    fn claim(&mut self, request: &AppRequest, from: u64, to: u64, bios: &mut Vec<usize>) -> bool {
        let op = if request.write { Op::Write } else { Op::Read };
        let earliest = request.submit_ns.saturating_sub(SLACK_NS);
        let latest = request.reaped_ns.saturating_add(SLACK_NS);
        let (mut at, mut incomplete) = (from, false);
        while at < to {
            let Some((&(_, sector), queue)) = self.free.range_mut((op, at)..(op, to)).next() else {
                break;
            };
            let bio_of = |index: &usize| &self.lifecycles.bios[*index];
            // Requests are processed in order of submission, so no later request can match a bio
            // from before `earliest`.
            while queue.front().is_some_and(|index| bio_of(index).queued_ns < earliest) {
                queue.pop_front();
            }
            let in_time = || queue.iter().take_while(|index| bio_of(index).queued_ns <= latest);
            let fits = |index: &usize| sector + u64::from(bio_of(index).range.sectors) <= to;
            let done = |index: &usize| self.lifecycles.is_done(bio_of(index));
            let found = in_time().position(|index| fits(index) && done(index));
            incomplete |= found.is_none() && in_time().next().is_some();
            let claimed = found.and_then(|position| queue.remove(position));
            at = sector + claimed.map_or(1, |index| u64::from(bio_of(&index).range.sectors));
            bios.extend(claimed);
        }
        incomplete
    }

    fn path(&self, bios: &[usize]) -> Option<RequestPath> {
        let lifecycles = self.lifecycles;
        let parts =
            bios.iter().flat_map(|bio| lifecycles.bios[*bio].parts.iter().map(|p| (*bio, *p)));
        let (bio, part) = parts.clone().max_by_key(|(_, part)| lifecycles.completed_ns(*part))?;
        let mut carriers: Vec<usize> =
            parts.filter_map(|(_, part)| lifecycles.parts[part].request).collect();
        carriers.sort_unstable();
        let own = carriers.len();
        carriers.dedup();
        let carried: u32 = carriers.iter().map(|index| lifecycles.requests[*index].parts).sum();
        Some(RequestPath {
            bio,
            part,
            uring: lifecycles.bios[bio].uring,
            pieces: carriers.len(),
            merged: carried as usize > own,
            requeued: carriers.iter().any(|index| lifecycles.requests[*index].requeues > 0),
        })
    }

    /// Adds the io_uring request to a path that has no completed io_uring request. Such a path
    /// occurs if another thread, such as a worker thread of io_uring, submitted the bio. Chooses
    /// the first unclaimed io_uring request that was submitted before the bio and completed after
    /// the bio.
    fn with_uring(
        &mut self,
        request: &AppRequest,
        path: RequestPath,
    ) -> Result<RequestPath, Unmatched> {
        if !self.uring {
            return Ok(path);
        }
        let urings = &self.lifecycles.urings;
        if path.uring.is_some_and(|index| urings[index].completed_ns.is_some()) {
            return Ok(path);
        }
        let queued_ns = self.lifecycles.bios[path.bio].queued_ns;
        let done_ns = self.lifecycles.completed_ns(path.part).unwrap_or(u64::MAX);
        let earliest = request.submit_ns.saturating_sub(SLACK_NS);
        let latest = request.reaped_ns.saturating_add(SLACK_NS);
        let fits = |uring: &Uring| {
            let in_time = uring.completed_ns.is_some_and(|at| at >= done_ns && at <= latest);
            in_time && request.user_data.is_none_or(|name| name == uring.user_data)
        };
        let first = urings.partition_point(|uring| uring.submitted_ns < earliest);
        let candidates =
            (first..urings.len()).take_while(|index| urings[*index].submitted_ns <= queued_ns);
        let found = candidates.into_iter().find(|i| !self.claimed[*i] && fits(&urings[*i]));
        let index = found.ok_or(Unmatched::NoUringRequest)?;
        self.claimed[index] = true;
        Ok(RequestPath { uring: Some(index), ..path })
    }
}

#[derive(Debug, Default)]
struct Totals {
    phases: Phases,
    /// For each phase, the times at which each request entered and left the phase (ns).
    spans: [Vec<(u64, u64)>; Phase::ALL.len()],
    unmatched: BTreeMap<Unmatched, u64>,
}

impl Totals {
    fn give_up(&mut self, request: &AppRequest, reason: Unmatched) {
        *self.unmatched.entry(reason).or_default() += 1;
        let remainder_ns = &mut self.phases.remainder_ns;
        *remainder_ns = remainder_ns.saturating_add(request.latency_ns());
    }

    fn add(&mut self, request: &AppRequest, path: &RequestPath, lifecycles: &Lifecycles) {
        let phases = &mut self.phases;
        phases.matched += 1;
        phases.split += u64::from(path.pieces > 1);
        phases.merged += u64::from(path.merged);
        phases.requeued += u64::from(path.requeued);
        let uring = path.uring.map(|index| &lifecycles.urings[index]);
        phases.punted += u64::from(uring.is_some_and(|uring| uring.punted));
        let mut from = request.submit_ns;
        let mut contradiction = 0;
        for (phase, end_ns) in phase_ends(request, path, uring, lifecycles) {
            let to = end_ns.clamp(from, request.reaped_ns.max(from));
            contradiction = contradiction.max(to.abs_diff(end_ns));
            self.spans[phase as usize].push((from, to));
            from = to;
        }
        let unexplained_ns = contradiction.min(request.latency_ns());
        phases.remainder_ns = phases.remainder_ns.saturating_add(unexplained_ns);
    }

    fn finish(mut self, order: &[&AppRequest], lost: u64) -> Phases {
        let mut phases = std::mem::take(&mut self.phases);
        phases.requests = order.len() as u64;
        phases.lost = lost;
        phases.unmatched = self.unmatched.into_iter().collect();
        phases.total_ns = sum(order.iter().map(|request| request.latency_ns()));
        let start = order.first().map_or(0, |request| request.submit_ns);
        let end = order.iter().map(|request| request.reaped_ns).max().unwrap_or(start);
        phases.wall_ns = end.saturating_sub(start);
        for (phase, spans) in Phase::ALL.into_iter().zip(&mut self.spans) {
            phases.times.extend(phase_time(phase, spans, phases.total_ns, phases.wall_ns));
        }
        phases
    }
}

/// Returns the phases of a request in order of time, each with the time at which it ended (ns).
fn phase_ends(
    request: &AppRequest,
    path: &RequestPath,
    uring: Option<&Uring>,
    lifecycles: &Lifecycles,
) -> Vec<(Phase, u64)> {
    let bio = &lifecycles.bios[path.bio];
    let part: &Part = &lifecycles.parts[path.part];
    let carrier = part.request.map(|index| &lifecycles.requests[index]);
    let issued_ns = carrier.map_or(bio.queued_ns, |carrier| carrier.issued_ns);
    let completed_ns = lifecycles.completed_ns(path.part).unwrap_or(issued_ns);
    let (thread, until_ns) = match uring {
        Some(uring) => (uring.thread, uring.completed_ns.unwrap_or(request.reaped_ns)),
        None => (bio.thread, request.reaped_ns),
    };
    let woken_ns = lifecycles.woken_ns(thread, completed_ns, until_ns);
    let noticed_ns = woken_ns.or(uring.and_then(|uring| uring.completed_ns));
    let mut phase_ends = vec![
        (Phase::Submit, uring.map_or(bio.queued_ns, |uring| uring.submitted_ns)),
        (Phase::Queue, part.inserted_ns.unwrap_or(issued_ns)),
        (Phase::Scheduler, issued_ns),
        (Phase::Device, completed_ns),
    ];
    match noticed_ns {
        Some(noticed_ns) => {
            phase_ends.push((Phase::Completion, noticed_ns));
            phase_ends.push((Phase::WakeUp, request.reaped_ns));
        }
        None => phase_ends.push((Phase::CompletionAndWakeUp, request.reaped_ns)),
    }
    phase_ends
}

fn phase_time(
    phase: Phase,
    spans: &mut [(u64, u64)],
    total_ns: u64,
    wall_ns: u64,
) -> Option<PhaseTime> {
    let mut lengths: Vec<u64> = spans.iter().map(|(from, to)| to - from).collect();
    lengths.sort_unstable();
    let max_ns = *lengths.last()?;
    let total = sum(lengths.iter().copied());
    // This is the nearest-rank percentile.
    let quantile = |percent: usize| lengths[(lengths.len() * percent).div_ceil(100).max(1) - 1];
    Some(PhaseTime {
        phase,
        requests: lengths.len() as u64,
        mean_ns: total as f64 / lengths.len() as f64,
        p50_ns: quantile(50),
        p99_ns: quantile(99),
        max_ns,
        total_ns: total,
        share: share(total, total_ns, 0.0),
        utilisation: share(union_ns(spans), wall_ns, 0.0),
    })
}

/// Adds the values. The sum saturates instead of overflowing, because damaged timestamps may be
/// huge.
fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

/// Returns the total time that is covered by at least one of the spans (ns).
fn union_ns(spans: &mut [(u64, u64)]) -> u64 {
    spans.sort_unstable();
    let (mut union, mut covered_to) = (0, 0);
    for (from, to) in spans {
        union += to.saturating_sub((*from).max(covered_to));
        covered_to = covered_to.max(*to);
    }
    union
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Range, UringRequest, What};
    use crate::tracer::Lost;

    const LOAD: i32 = 10;
    const OTHER: i32 = 77;
    const FILE: [Extent; 1] = [Extent { offset: 0, bytes: 1 << 20, sector: 1000 }];

    fn range(sector: u64, sectors: u32) -> Range {
        Range { dev: 1, sector, sectors, op: Op::Read }
    }

    fn uring(request: u64) -> UringRequest {
        UringRequest { ring: 1, request, user_data: request }
    }

    fn trace(uring: bool, events: &[(u64, i32, What)]) -> Trace {
        let event = |(at_ns, thread, what): &(u64, i32, What)| Event {
            at_ns: *at_ns,
            cpu: 0,
            thread: *thread,
            what: *what,
        };
        let mut events: Vec<Event> = events.iter().map(event).collect();
        events.sort_by_key(|event| event.at_ns);
        Trace { events, lost: Lost::default(), uring, bytes: 0 }
    }

    fn read(submit_ns: u64, reaped_ns: u64, offset: u64, bytes: u64) -> AppRequest {
        AppRequest { submit_ns, reaped_ns, offset, bytes, write: false, user_data: None }
    }

    /// Returns all events of a request that is submitted at 100,000 ns and reaped at 121,000 ns.
    /// The phases of the request take 1, 2, 3, 4, 5 and 6 us.
    fn one() -> Vec<(u64, i32, What)> {
        let place = range(1008, 8);
        vec![
            (101_000, LOAD, What::UringSubmitted(uring(5))),
            (101_500, LOAD, What::BioQueued(place)),
            (102_000, LOAD, What::Accepted(place)),
            (103_000, LOAD, What::Inserted(place)),
            (106_000, OTHER, What::Issued(place)),
            (110_000, OTHER, What::Completed(place)),
            (115_000, OTHER, What::Woken(LOAD)),
            (120_000, LOAD, What::UringCompleted(uring(5))),
        ]
    }

    fn times(phases: &Phases) -> Vec<(Phase, u64)> {
        phases.times.iter().map(|time| (time.phase, time.total_ns)).collect()
    }

    #[test]
    fn each_phase_gets_exactly_its_time() {
        let phases = split(&trace(true, &one()), &[read(100_000, 121_000, 4096, 4096)], &FILE);
        let expected = [
            (Phase::Submit, 1_000),
            (Phase::Queue, 2_000),
            (Phase::Scheduler, 3_000),
            (Phase::Device, 4_000),
            (Phase::Completion, 5_000),
            (Phase::WakeUp, 6_000),
        ];
        assert_eq!(times(&phases), expected);
        assert_eq!((phases.matched, phases.remainder_ns, phases.wall_ns), (1, 0, 21_000));
        let shares: f64 = phases.times.iter().map(|time| time.share).sum();
        assert!((shares - 1.0).abs() < 1e-12);
        let device = phases.time(Phase::Device).unwrap();
        assert_eq!((device.p50_ns, device.p99_ns, device.max_ns), (4_000, 4_000, 4_000));
        assert!((device.utilisation - 4.0 / 21.0).abs() < 1e-12);
    }

    #[test]
    fn a_delay_in_one_layer_lengthens_that_phase_and_no_other() {
        let asked = |late: u64| read(100_000, 121_000 + late, 4096, 4096);
        let plain = times(&split(&trace(true, &one()), &[asked(0)], &FILE));
        let starts = [101_000, 103_000, 106_000, 110_000, 115_000, 121_000];
        for (delayed, start) in starts.into_iter().enumerate() {
            let mut events = one();
            for event in events.iter_mut().filter(|event| event.0 >= start) {
                event.0 += 50_000;
            }
            let late = times(&split(&trace(true, &events), &[asked(50_000)], &FILE));
            for (number, (before, after)) in plain.iter().zip(&late).enumerate() {
                let delay = if number == delayed { 50_000 } else { 0 };
                assert_eq!(after.1, before.1 + delay, "{} of {delayed}", after.0);
            }
        }
    }

    #[test]
    fn without_a_scheduler_its_phase_takes_no_time() {
        let mut events = one();
        events.retain(|event| !matches!(event.2, What::Inserted(_)));
        let phases = split(&trace(true, &events), &[read(100_000, 121_000, 4096, 4096)], &FILE);
        let of = |phase| phases.time(phase).unwrap().total_ns;
        assert_eq!((of(Phase::Queue), of(Phase::Scheduler)), (5_000, 0));
    }

    #[test]
    fn the_submit_phase_of_a_blocking_read_ends_in_the_block_layer() {
        let mut events = one();
        let of_ring =
            |what: &What| matches!(what, What::UringSubmitted(_) | What::UringCompleted(_));
        events.retain(|event| !of_ring(&event.2));
        let asked = [read(100_000, 121_000, 4096, 4096)];
        let phases = split(&trace(false, &events), &asked, &FILE);
        let of = |phase| phases.time(phase).unwrap().total_ns;
        assert_eq!((of(Phase::Submit), of(Phase::Queue)), (1_500, 1_500));
        assert_eq!((of(Phase::Completion), of(Phase::WakeUp)), (5_000, 6_000));
        events.retain(|event| !matches!(event.2, What::Woken(_)));
        let phases = split(&trace(false, &events), &asked, &FILE);
        assert_eq!(times(&phases)[4..], [(Phase::CompletionAndWakeUp, 11_000)]);
    }

    #[test]
    fn a_second_completion_of_a_waking_thread_has_no_completion_phase() {
        let place = range(1016, 8);
        let mut events = one();
        events.extend([
            (101_600, LOAD, What::UringSubmitted(uring(6))),
            (101_700, LOAD, What::BioQueued(place)),
            (101_800, LOAD, What::Accepted(place)),
            (101_900, LOAD, What::Issued(place)),
            (117_000, OTHER, What::Completed(place)),
            (120_500, LOAD, What::UringCompleted(uring(6))),
        ]);
        let asked = [read(100_000, 121_000, 8192, 4096)];
        let phases = split(&trace(true, &events), &asked, &FILE);
        let of = |phase| phases.time(phase).unwrap().total_ns;
        assert_eq!((of(Phase::Completion), of(Phase::WakeUp)), (0, 4_000));
    }

    #[test]
    fn the_last_part_of_a_split_request_counts() {
        let (first, second) = (range(1000, 8), range(1008, 8));
        let events = [
            (1_000, LOAD, What::BioQueued(range(1000, 16))),
            (1_100, LOAD, What::Accepted(first)),
            (1_200, LOAD, What::Accepted(second)),
            (1_300, LOAD, What::Issued(second)),
            (1_400, LOAD, What::Issued(first)),
            (5_000, OTHER, What::Completed(second)),
            (9_000, OTHER, What::Completed(range(1000, 4))),
            (9_500, OTHER, What::Completed(range(1004, 4))),
        ];
        let phases = split(&trace(false, &events), &[read(0, 10_000, 0, 8192)], &FILE);
        assert_eq!((phases.matched, phases.split, phases.merged), (1, 1, 0));
        assert_eq!(phases.time(Phase::Device).unwrap().total_ns, 9_500 - 1_400);
    }

    #[test]
    fn merged_requests_share_the_device_phase() {
        let whole = range(1000, 16);
        let events = [
            (1_000, LOAD, What::BioQueued(range(1008, 8))),
            (1_100, LOAD, What::Accepted(range(1008, 8))),
            (1_200, LOAD, What::Inserted(range(1008, 8))),
            (2_000, LOAD, What::BioQueued(range(1000, 8))),
            (2_100, LOAD, What::Merged(range(1000, 8))),
            (4_000, LOAD, What::Issued(whole)),
            (9_000, OTHER, What::Completed(whole)),
        ];
        let asked = [read(500, 10_000, 4096, 4096), read(1_500, 10_000, 0, 4096)];
        let phases = split(&trace(false, &events), &asked, &FILE);
        assert_eq!((phases.matched, phases.merged, phases.split), (2, 2, 0));
        let of = |phase| phases.time(phase).unwrap();
        assert_eq!(of(Phase::Device).total_ns, 10_000);
        assert_eq!(of(Phase::Scheduler).total_ns, (4_000 - 1_200) + (4_000 - 2_100));
        assert!((of(Phase::Device).utilisation - 5_000.0 / 9_500.0).abs() < 1e-12, "counted once");
    }

    #[test]
    fn a_requeued_request_waits_until_it_is_issued_again() {
        let place = range(1000, 8);
        let events = [
            (1_000, LOAD, What::BioQueued(place)),
            (1_100, LOAD, What::Accepted(place)),
            (1_200, LOAD, What::Inserted(place)),
            (1_300, LOAD, What::Issued(place)),
            (1_400, LOAD, What::Requeued(place)),
            (6_000, LOAD, What::Issued(place)),
            (9_000, OTHER, What::Completed(place)),
        ];
        let phases = split(&trace(false, &events), &[read(0, 10_000, 0, 4096)], &FILE);
        assert_eq!(phases.requeued, 1);
        assert_eq!(phases.time(Phase::Scheduler).unwrap().total_ns, 6_000 - 1_200);
        assert_eq!(phases.time(Phase::Device).unwrap().total_ns, 3_000);
    }

    #[test]
    fn a_request_punted_to_a_worker_thread_is_found() {
        let place = range(1000, 8);
        let events = [
            (1_000, LOAD, What::UringSubmitted(uring(5))),
            (1_100, LOAD, What::BioQueued(place)),
            (1_200, LOAD, What::UringPunted(uring(5))),
            (3_000, OTHER, What::BioQueued(place)),
            (3_100, OTHER, What::Accepted(place)),
            (3_200, OTHER, What::Issued(place)),
            (9_000, OTHER, What::Completed(place)),
            (9_500, LOAD, What::UringCompleted(uring(5))),
        ];
        let phases = split(&trace(true, &events), &[read(900, 10_000, 0, 4096)], &FILE);
        assert_eq!((phases.matched, phases.punted), (1, 1), "{phases:?}");
        let of = |phase| phases.time(phase).unwrap().total_ns;
        assert_eq!((of(Phase::Submit), of(Phase::Queue), of(Phase::Device)), (100, 2_200, 5_800));
        assert_eq!((of(Phase::Completion), of(Phase::WakeUp)), (500, 500));
        let named = AppRequest { user_data: Some(6), ..read(900, 10_000, 0, 4096) };
        let phases = split(&trace(true, &events), &[named], &FILE);
        assert_eq!(phases.unmatched, [(Unmatched::NoUringRequest, 1)], "other user_data");
    }

    #[test]
    fn requests_at_the_same_location_are_matched_in_order() {
        let place = range(1000, 8);
        let events = [
            (1_000, LOAD, What::BioQueued(place)),
            (1_100, LOAD, What::Accepted(place)),
            (1_200, LOAD, What::Issued(place)),
            (2_000, OTHER, What::BioQueued(place)),
            (2_100, OTHER, What::Accepted(place)),
            (2_200, OTHER, What::Issued(place)),
            (4_000, OTHER, What::Completed(place)),
            (8_000, OTHER, What::Completed(place)),
        ];
        let asked = [read(1_900, 9_000, 0, 4096), read(900, 5_000, 0, 4096)];
        let phases = split(&trace(false, &events), &asked, &FILE);
        assert_eq!(phases.matched, 2);
        assert_eq!(phases.time(Phase::Device).unwrap().total_ns, 2_800 + 5_800);
    }

    #[test]
    fn unmatched_requests_are_remainder_with_a_reason() {
        let mut events = one();
        events.extend([(200_000, LOAD, What::BioQueued(range(1016, 8)))]);
        let asked = [
            read(100_000, 121_000, 4096, 4096),
            read(150_000, 155_000, 4096, 4096),
            read(190_000, 210_000, 8192, 4096),
            read(190_000, 191_000, 1 << 30, 4096),
        ];
        let phases = split(&trace(true, &events), &asked, &FILE);
        let reasons =
            [(Unmatched::NoPlace, 1), (Unmatched::NoDeviceRequest, 1), (Unmatched::Incomplete, 1)];
        assert_eq!(phases.unmatched, reasons);
        assert_eq!((phases.matched_share(), phases.remainder_ns), (0.25, 5_000 + 20_000 + 1_000));
        assert!((phases.remainder_share() - 26.0 / 47.0).abs() < 1e-12);
    }

    #[test]
    fn a_write_is_not_taken_for_a_read_of_the_same_place() {
        let asked = AppRequest { write: true, ..read(100_000, 121_000, 4096, 4096) };
        let phases = split(&trace(true, &one()), &[asked], &FILE);
        assert_eq!(phases.unmatched, [(Unmatched::NoDeviceRequest, 1)]);
    }

    #[test]
    fn contradictory_timestamps_are_remainder() {
        let late = [read(101_800, 121_800, 4096, 4096)];
        let phases = split(&trace(true, &one()), &late, &FILE);
        assert_eq!((phases.matched, phases.remainder_ns), (1, 800));
        assert_eq!(times(&phases)[..2], [(Phase::Submit, 0), (Phase::Queue, 1_200)]);
    }

    #[test]
    fn without_requests_nothing_is_missing() {
        let phases = split(&trace(true, &[]), &[], &[]);
        assert_eq!((phases.matched_share(), phases.remainder_share()), (1.0, 0.0));
        assert!(phases.times.is_empty());
    }
}
