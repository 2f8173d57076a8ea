//! The result of a trial: counts, bytes, latency histograms, a time series and the CPU time used.

use analysis::histogram::Histogram;
use cpucost::CpuUsage;
use ioengine::Op;
use ioengine::engine::Setup;
use ioengine::target::DeviceCounters;

use crate::content::Mismatch;

/// Maximum number of intervals in a series. When a series becomes longer, pairs of intervals are
/// merged and the interval length doubles, so that memory does not grow with the length of a run.
pub const INTERVALS_MAX: usize = 1024;

/// Counts and latencies of all reads, or of all writes.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OperationSample {
    /// Number of bytes transferred.
    pub bytes: u64,
    /// Number of completed requests.
    pub requests: u64,
    /// Latencies (ns). A latency begins when the request is submitted, or in an open loop when the
    /// request is due. It ends when the completion is reaped.
    pub latency: Histogram,
}

/// Counts of one interval of a [`Series`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Interval {
    /// Number of bytes completed in the interval.
    pub bytes: u64,
    /// Number of requests completed in the interval.
    pub requests: u64,
}

/// Completed bytes and requests over time, in intervals of equal length.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Series {
    /// Length of each interval (ns).
    pub interval_ns: u64,
    /// The intervals. The first interval begins at the start of the measured phase.
    pub intervals: Vec<Interval>,
}

impl Series {
    /// Creates an empty series and allocates memory for the maximum number of intervals.
    pub fn new(interval_ns: u64) -> Series {
        let intervals = Vec::with_capacity(INTERVALS_MAX);
        Series { interval_ns: interval_ns.max(1), intervals }
    }

    /// Adds counts to the interval that contains the time `since_start_ns`, counted from the start
    /// of the measured phase.
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
        let merged_count = self.intervals.len().div_ceil(2);
        for index in 0..merged_count {
            let one = self.intervals[2 * index];
            let two = self.intervals.get(2 * index + 1).copied().unwrap_or_default();
            self.intervals[index] =
                Interval { bytes: one.bytes + two.bytes, requests: one.requests + two.requests };
        }
        self.intervals.truncate(merged_count);
        self.interval_ns *= 2;
    }

    /// Adds another worker's series to this series, interval by interval.
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

/// The rate of a closed loop in a time window in which the queue is full.
///
/// The rate over a whole trial is lower. At the start, a parallel device completes nothing until
/// the latency of one request has passed. At the end, the last requests run at decreasing queue
/// depth. The window excludes the start and the end of the trial. A turn is as many completions as
/// the queue has slots. The window begins after at least one turn and ends before the first slot
/// stays empty. The window consists of whole turns, because some devices complete requests in
/// groups.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FullQueue {
    /// Start of the window (ns of the clock).
    pub start_ns: u64,
    /// End of the window (ns of the clock).
    pub end_ns: u64,
    /// Throughput in the window (bytes per second).
    pub bytes_per_s: f64,
    /// Request rate in the window (requests per second).
    pub requests_per_s: f64,
}

/// Minimum overlap of the windows of two workers, as a fraction of the longer window. With less
/// overlap, the windows are not combined.
const COMMON_SHARE: f64 = 0.98;

impl FullQueue {
    /// Returns the length of the window (ns).
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Returns the number of requests completed in the window.
    pub fn requests(&self) -> f64 {
        self.requests_per_s * self.length_ns() as f64 / 1e9
    }

    /// Combines the windows of two workers. The result is the overlap of the windows, with the sum
    /// of the rates. None if the overlap is too short.
    fn combined_with(self, other: FullQueue) -> Option<FullQueue> {
        let overlap = FullQueue {
            start_ns: self.start_ns.max(other.start_ns),
            end_ns: self.end_ns.min(other.end_ns),
            bytes_per_s: self.bytes_per_s + other.bytes_per_s,
            requests_per_s: self.requests_per_s + other.requests_per_s,
        };
        let longer_ns = self.length_ns().max(other.length_ns());
        (overlap.length_ns() as f64 >= COMMON_SHARE * longer_ns as f64).then_some(overlap)
    }
}

/// The first request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Failure {
    /// Whether the request was a read or a write.
    pub op: Op,
    /// Offset of the request (bytes).
    pub offset: u64,
    /// Error number (errno) of the failure, or 0 for an unexpected end of file.
    pub errno: i32,
}

/// An entry of the request log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedRequest {
    /// Number of the worker that issued the request. Workers are numbered across all targets.
    pub worker: u32,
    /// Whether the request was a read or a write.
    pub op: Op,
    /// Whether the request failed.
    pub failed: bool,
    /// Offset of the request (bytes).
    pub offset: u64,
    /// Length of the request (bytes).
    pub length: u32,
    /// Time just before the call that first submitted the request (ns of the clock).
    pub submit_ns: u64,
    /// Time just after the call that returned the completion of the request (ns of the clock).
    pub complete_ns: u64,
}

/// The measurements of one worker, or of all workers merged.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Sample {
    /// Counts and latencies of reads (index 0) and of writes (index 1).
    pub operations: [OperationSample; 2],
    /// Start of the measured phase (ns of the clock).
    pub start_ns: u64,
    /// Time at which the last write completed, before the final flush (ns of the clock). None if
    /// there was no final flush.
    pub accepted_ns: Option<u64>,
    /// End of the measured phase, including the final flush (ns of the clock).
    pub end_ns: u64,
    /// The window in which the queue was full. None for open loops and replays, and for workloads
    /// with depth 1, think time or periodic flushes. Also None if the trial is too short, or if the
    /// windows of the workers overlap too little.
    pub full_queue: Option<FullQueue>,
    /// Durations of the periodic flushes (ns).
    pub flushes: Histogram,
    /// Number of failed requests.
    pub errors: u64,
    /// The first failed request. None if no request failed.
    pub first_error: Option<Failure>,
    /// Number of short transfers that were continued.
    pub short_transfers: u64,
    /// Number of times that a request was submitted again after EAGAIN or EINTR.
    pub retries: u64,
    /// Number of requests that a submitting call returned as complete. A call counts only if no
    /// request was in flight after the call. If this number includes most requests, the device
    /// rarely has more requests in flight than one call submits, even if the queue depth is larger.
    pub at_once: u64,
    /// Number of requests of an open loop that were due before the end but never issued.
    pub never_issued: u64,
    /// Number of calls that submitted at least one request.
    pub submit_calls: u64,
    /// Number of calls that reaped at least one completion.
    pub reap_calls: u64,
    /// Number of blocks whose content was verified.
    pub verified_blocks: u64,
    /// Number of blocks that failed verification.
    pub damaged_blocks: u64,
    /// The first damaged block. None if no block was damaged.
    pub first_damage: Option<Mismatch>,
    /// The logged requests of the measured phase, grouped by worker. The requests of a worker are
    /// in order of completion. Empty if the log is disabled.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub log: Vec<LoggedRequest>,
    /// Number of requests that were not logged because the log was full.
    pub log_lost: u64,
    /// Completed bytes and requests over time.
    pub series: Series,
    /// CPU time of the measured phase, of all workers together. Zero in the sample of a single
    /// worker.
    pub cpu: CpuUsage,
    /// Increase of the device counters during the measured phase. None if the counters are unknown.
    pub device: Option<DeviceCounters>,
    /// Features that the engines use, and the total size of the buffers of all workers.
    pub setup: Setup,
    /// Whether the caller stopped the run early.
    pub interrupted: bool,
    /// Whether the rate became steady. None if the workload does not require a steady rate.
    pub became_steady: Option<bool>,
}

impl Sample {
    /// Creates an empty sample and allocates memory for all latencies, so that recording never
    /// allocates.
    pub fn new(interval_ns: u64) -> Sample {
        let operation =
            || OperationSample { latency: Histogram::new(), ..OperationSample::default() };
        Sample {
            operations: [operation(), operation()],
            start_ns: 0,
            accepted_ns: None,
            end_ns: 0,
            full_queue: None,
            flushes: Histogram::new(),
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

    /// Discards the counts and latencies of the warm-up. Failed requests and verified blocks of the
    /// warm-up still count. The allocated memory is kept.
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

    /// Converts all times to another clock by calling `time` on each.
    pub fn convert_times(&mut self, time: impl Fn(u64) -> u64) {
        (self.start_ns, self.end_ns) = (time(self.start_ns), time(self.end_ns));
        self.accepted_ns = self.accepted_ns.map(&time);
        if let Some(full) = &mut self.full_queue {
            (full.start_ns, full.end_ns) = (time(full.start_ns), time(full.end_ns));
        }
    }

    /// Returns the number of bytes read and written.
    pub fn bytes(&self) -> u64 {
        self.operations.iter().map(|operation| operation.bytes).sum()
    }

    /// Returns the number of completed reads and writes.
    pub fn requests(&self) -> u64 {
        self.operations.iter().map(|operation| operation.requests).sum()
    }

    /// Returns the duration of the measured phase, including the final flush (ns).
    pub fn elapsed_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Returns the time from the start of the measured phase to the last completed write (ns). None
    /// if there was no final flush.
    pub fn accepted_after_ns(&self) -> Option<u64> {
        self.accepted_ns.map(|at| at.saturating_sub(self.start_ns))
    }

    /// Returns the throughput while the queue was full (bytes per second). If the queue was never
    /// full for long enough, or if there was a final flush, returns the throughput of the whole
    /// measured phase.
    pub fn bytes_per_s(&self) -> f64 {
        let full = self.full_queue.filter(|_| self.accepted_ns.is_none());
        full.map_or_else(|| per_second(self.bytes(), self.elapsed_ns()), |full| full.bytes_per_s)
    }

    /// Returns the number of requests per second over the same time as `bytes_per_s`.
    pub fn requests_per_s(&self) -> f64 {
        let full = self.full_queue.filter(|_| self.accepted_ns.is_none());
        let whole = || per_second(self.requests(), self.elapsed_ns());
        full.map_or_else(whole, |full| full.requests_per_s)
    }

    /// Returns one histogram with the latencies of all reads and writes.
    pub fn latency(&self) -> Histogram {
        let mut all = self.operations[0].latency.clone();
        all.merge(&self.operations[1].latency);
        all
    }

    /// Merges another worker's sample into this sample. Counts are added, and the measured phase
    /// spans the phases of both samples.
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
        self.full_queue = windows.and_then(|(mine, theirs)| mine.combined_with(theirs));
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
        fn merging_series_keeps_every_event_in_its_interval(
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
