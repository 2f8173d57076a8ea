//! What a trial yields: counts, bytes, latency histograms, a series and the CPU it took.

use analysis::histogram::Histogram;
use cpucost::CpuUsage;
use ioengine::Op;
use ioengine::engine::Setup;
use ioengine::target::DeviceCounters;

use crate::content::Mismatch;

/// Intervals in a series at the most; beyond it pairs are joined and the interval doubles, so
/// that a run of any length takes the same memory.
pub const INTERVALS_MAX: usize = 1024;

/// What was read, or what was written.
#[derive(Clone, Debug, Default)]
pub struct OperationSample {
    /// Bytes moved.
    pub bytes: u64,
    /// Requests completed.
    pub requests: u64,
    /// Time from submission (or from when it was due) to reaping (ns).
    pub latency: Histogram,
}

/// One interval of the series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Bytes completed in it.
    pub bytes: u64,
    /// Requests completed in it.
    pub requests: u64,
}

/// Bytes and requests over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// Length of each interval (ns).
    pub interval_ns: u64,
    /// From the start of the measured phase on.
    pub intervals: Vec<Interval>,
}

impl Series {
    /// An empty series with room for all it will hold.
    pub fn new(interval_ns: u64) -> Series {
        let intervals = Vec::with_capacity(INTERVALS_MAX);
        Series { interval_ns: interval_ns.max(1), intervals }
    }

    /// Counts into the interval that holds `since_start_ns`.
    pub fn add(&mut self, since_start_ns: u64, bytes: u64, requests: u64) {
        while since_start_ns / self.interval_ns >= INTERVALS_MAX as u64 {
            self.join_pairs();
        }
        let index = (since_start_ns / self.interval_ns) as usize;
        if index >= self.intervals.len() {
            self.intervals.resize(index + 1, Interval::default());
        }
        self.intervals[index].bytes += bytes;
        self.intervals[index].requests += requests;
    }

    fn join_pairs(&mut self) {
        let joined = self.intervals.len().div_ceil(2);
        for index in 0..joined {
            let one = self.intervals[2 * index];
            let two = self.intervals.get(2 * index + 1).copied().unwrap_or_default();
            self.intervals[index] =
                Interval { bytes: one.bytes + two.bytes, requests: one.requests + two.requests };
        }
        self.intervals.truncate(joined);
        self.interval_ns *= 2;
    }

    /// Adds another worker's series, interval by interval.
    pub fn merge(&mut self, other: &Series) {
        let mut other = other.clone();
        while self.interval_ns < other.interval_ns {
            self.join_pairs();
        }
        while other.interval_ns < self.interval_ns {
            other.join_pairs();
        }
        let longer = self.intervals.len().max(other.intervals.len());
        self.intervals.resize(longer, Interval::default());
        for (mine, theirs) in self.intervals.iter_mut().zip(&other.intervals) {
            mine.bytes += theirs.bytes;
            mine.requests += theirs.requests;
        }
    }
}

/// What a closed loop gets while its queue is full.
///
/// Over a whole trial the rate is too low: at first the queue fills, and a device that works on
/// requests side by side completes nothing for as long as one takes; at the end the outstanding
/// requests complete with fewer and fewer beside them. Neither is part of this window. It begins
/// when as many requests have completed as are outstanding, ends before the first slot is left
/// empty, and holds whole turns of the queue, so that devices that complete requests in groups are
/// not cut within a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FullQueue {
    /// Begin [ns of the clock].
    pub start_ns: u64,
    /// End [ns of the clock].
    pub end_ns: u64,
    /// Bytes per second in it.
    pub bytes_per_s: f64,
    /// Requests per second in it.
    pub requests_per_s: f64,
}

/// Windows of several workers are one where this share of each is common to them.
const COMMON_SHARE: f64 = 0.98;

impl FullQueue {
    /// Length (ns).
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Requests completed in it.
    pub fn requests(&self) -> f64 {
        self.requests_per_s * self.length_ns() as f64 / 1e9
    }

    /// The window in which two workers both have their queues full: their rates add. `None` where
    /// one of them ran for a good part of its time without the other.
    fn with(self, other: FullQueue) -> Option<FullQueue> {
        let both = FullQueue {
            start_ns: self.start_ns.max(other.start_ns),
            end_ns: self.end_ns.min(other.end_ns),
            bytes_per_s: self.bytes_per_s + other.bytes_per_s,
            requests_per_s: self.requests_per_s + other.requests_per_s,
        };
        let longer_ns = self.length_ns().max(other.length_ns());
        (both.length_ns() as f64 >= COMMON_SHARE * longer_ns as f64).then_some(both)
    }
}

/// The first request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Read or write.
    pub op: Op,
    /// Position (bytes).
    pub offset: u64,
    /// The system's error number; 0 for an end of file where there should be data.
    pub errno: i32,
}

/// One request as it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedRequest {
    /// Number of the worker, counted over all targets.
    pub worker: u32,
    /// Read or write.
    pub op: Op,
    /// Whether it failed.
    pub failed: bool,
    /// Position (bytes).
    pub offset: u64,
    /// Length that was asked for (bytes).
    pub length: u32,
    /// Before the call that submitted it first [ns of the clock].
    pub submit_ns: u64,
    /// After the call that brought it back whole [ns of the clock].
    pub complete_ns: u64,
}

/// One worker's part, or all of them merged.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Reads and writes, in the order of [`Op`].
    pub operations: [OperationSample; 2],
    /// Start of the measured phase [ns of the clock].
    pub start_ns: u64,
    /// When the last write was accepted, where a flush followed [ns of the clock].
    pub accepted_ns: Option<u64>,
    /// End, flush included [ns of the clock].
    pub end_ns: u64,
    /// The part of it in which the queue was full: of closed loops without pauses and flushes that
    /// have several requests outstanding and are long enough.
    pub full_queue: Option<FullQueue>,
    /// How long each flush in the midst of writing took (ns).
    pub flushes: Histogram,
    /// Requests that failed.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<Failure>,
    /// Transfers that fell short and were continued.
    pub short_transfers: u64,
    /// Requests issued again after EAGAIN or EINTR.
    pub retries: u64,
    /// Requests that came back in calls which had submitted some of them and left nothing
    /// outstanding: whatever the depth, the device never had more than what it did within the call.
    pub at_once: u64,
    /// Requests of an open loop that were due before its end and never issued.
    pub never_issued: u64,
    /// Calls that submitted something, and calls that reaped something.
    pub submit_calls: u64,
    /// See `submit_calls`.
    pub reap_calls: u64,
    /// Blocks checked by content.
    pub verified_blocks: u64,
    /// Blocks that failed the check.
    pub damaged_blocks: u64,
    /// The first of them.
    pub first_damage: Option<Mismatch>,
    /// Requests of the measured phase where they are recorded, those of each worker in the order
    /// of their completion.
    pub log: Vec<LoggedRequest>,
    /// Requests that found no more room there.
    pub log_lost: u64,
    /// Bytes and requests over time.
    pub series: Series,
    /// CPU of the measured phase; zero in a single worker's part.
    pub cpu: CpuUsage,
    /// What the device counted in the measured phase.
    pub device: Option<DeviceCounters>,
    /// What the engines got of what they asked for; bytes over all workers.
    pub setup: Setup,
    /// Whether the run was cut short from outside.
    pub interrupted: bool,
    /// Whether the rate became steady, where that was waited for.
    pub became_steady: Option<bool>,
}

impl Sample {
    /// Nothing measured yet.
    pub fn new(interval_ns: u64) -> Sample {
        Sample {
            operations: Default::default(),
            start_ns: 0,
            accepted_ns: None,
            end_ns: 0,
            full_queue: None,
            flushes: Histogram::default(),
            errors: 0,
            first_error: None,
            short_transfers: 0,
            retries: 0,
            at_once: 0,
            never_issued: 0,
            submit_calls: 0,
            reap_calls: 0,
            verified_blocks: 0,
            damaged_blocks: 0,
            first_damage: None,
            log: Vec::new(),
            log_lost: 0,
            series: Series::new(interval_ns),
            cpu: CpuUsage::default(),
            device: None,
            setup: Setup::default(),
            interrupted: false,
            became_steady: None,
        }
    }

    /// Forgets all that was counted, for the end of the warm-up; keeps the memory.
    pub fn restart(&mut self, start_ns: u64) {
        for operation in &mut self.operations {
            operation.bytes = 0;
            operation.requests = 0;
            operation.latency.clear();
        }
        self.flushes.clear();
        self.series.intervals.clear();
        self.start_ns = start_ns;
        self.short_transfers = 0;
        self.retries = 0;
        self.at_once = 0;
        self.submit_calls = 0;
        self.reap_calls = 0;
    }

    /// Bytes moved both ways.
    pub fn bytes(&self) -> u64 {
        self.operations.iter().map(|operation| operation.bytes).sum()
    }

    /// Requests completed both ways.
    pub fn requests(&self) -> u64 {
        self.operations.iter().map(|operation| operation.requests).sum()
    }

    /// Length of the measured phase, flush included (ns).
    pub fn elapsed_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Time to the last accepted write, where a flush followed (ns).
    pub fn accepted_after_ns(&self) -> Option<u64> {
        self.accepted_ns.map(|at| at.saturating_sub(self.start_ns))
    }

    /// Bytes per second while the queue was full; over the measured phase where that is not known,
    /// or where a flush at the end belongs to it.
    pub fn bytes_per_s(&self) -> f64 {
        let full = self.full_queue.filter(|_| self.accepted_ns.is_none());
        full.map_or_else(|| per_second(self.bytes(), self.elapsed_ns()), |full| full.bytes_per_s)
    }

    /// Requests per second, over the same time.
    pub fn requests_per_s(&self) -> f64 {
        let full = self.full_queue.filter(|_| self.accepted_ns.is_none());
        let whole = || per_second(self.requests(), self.elapsed_ns());
        full.map_or_else(whole, |full| full.requests_per_s)
    }

    /// Latencies of reads and writes together.
    pub fn latency(&self) -> Histogram {
        let mut all = self.operations[0].latency.clone();
        all.merge(&self.operations[1].latency);
        all
    }

    /// Adds another worker's part: counts add, the measured phase spans both.
    pub fn merge(&mut self, other: &Sample) {
        for (mine, theirs) in self.operations.iter_mut().zip(&other.operations) {
            mine.bytes += theirs.bytes;
            mine.requests += theirs.requests;
            mine.latency.merge(&theirs.latency);
        }
        self.start_ns = self.start_ns.min(other.start_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
        self.accepted_ns = self.accepted_ns.max(other.accepted_ns);
        let windows = self.full_queue.zip(other.full_queue);
        self.full_queue = windows.and_then(|(mine, theirs)| mine.with(theirs));
        self.flushes.merge(&other.flushes);
        self.errors += other.errors;
        self.first_error = self.first_error.or(other.first_error);
        self.short_transfers += other.short_transfers;
        self.retries += other.retries;
        self.at_once += other.at_once;
        self.never_issued += other.never_issued;
        self.submit_calls += other.submit_calls;
        self.reap_calls += other.reap_calls;
        self.verified_blocks += other.verified_blocks;
        self.damaged_blocks += other.damaged_blocks;
        self.first_damage = self.first_damage.or(other.first_damage);
        self.log.extend_from_slice(&other.log);
        self.log_lost += other.log_lost;
        self.series.merge(&other.series);
        self.setup.buffer_bytes += other.setup.buffer_bytes;
        self.setup.huge_bytes += other.setup.huge_bytes;
        self.interrupted |= other.interrupted;
    }
}

fn per_second(count: u64, elapsed_ns: u64) -> f64 {
    if elapsed_ns == 0 { 0.0 } else { count as f64 * 1e9 / elapsed_ns as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn merged_series_hold_everything_in_the_interval_in_which_it_happened(
            parts in proptest::collection::vec(
                proptest::collection::vec((0_u64..200_000, 0_u64..1000, 0_u64..10), 0..50), 1..5,
            ),
            interval_ns in 1_u64..300,
        ) {
            let series = parts.iter().map(|events| {
                let mut series = Series::new(interval_ns);
                events.iter().for_each(|&(at, bytes, requests)| series.add(at, bytes, requests));
                series
            });
            let merged = series.reduce(|mut sum, part| {
                sum.merge(&part);
                sum
            });
            let merged = merged.unwrap();
            prop_assert!(merged.intervals.len() <= INTERVALS_MAX);
            let mut expected = vec![Interval::default(); merged.intervals.len()];
            for &(at, bytes, requests) in parts.iter().flatten() {
                let interval = &mut expected[(at / merged.interval_ns) as usize];
                interval.bytes += bytes;
                interval.requests += requests;
            }
            prop_assert_eq!(merged.intervals, expected);
        }
    }

    #[test]
    fn a_long_series_doubles_its_interval_and_loses_nothing() {
        let mut series = Series::new(10);
        for at in 0..100_000 {
            series.add(at, 2, 1);
        }
        assert!(series.intervals.len() <= INTERVALS_MAX);
        assert_eq!(series.intervals.iter().map(|i| i.bytes).sum::<u64>(), 200_000);
        assert_eq!(series.interval_ns, 160);
        assert_eq!(series.intervals[0].requests, 160);
    }

    #[test]
    fn series_of_different_intervals_merge() {
        let (mut coarse, mut fine) = (Series::new(20), Series::new(10));
        coarse.add(25, 1, 1);
        fine.add(5, 1, 1);
        fine.add(15, 1, 1);
        fine.add(25, 1, 1);
        coarse.merge(&fine);
        assert_eq!(coarse.intervals.iter().map(|i| i.requests).collect::<Vec<_>>(), [2, 2]);
    }
}
