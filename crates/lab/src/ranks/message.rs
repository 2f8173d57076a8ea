//! The messages between ranks, as JSON, and samples in the form in which they travel.
//!
//! Times in messages are of `CLOCK_MONOTONIC`, the clock that all processes of a host share. Counts
//! and histograms arrive exactly as they were sent.

use analysis::histogram::{Exact, Histogram};
use cpucost::CpuUsage;
use ioengine::Op;
use ioengine::engine::Setup;
use ioengine::target::DeviceCounters;
use serde::{Deserialize, Serialize};
use workload::sample::{Failure, FullQueue, Interval, OperationSample, Sample, Series};

use crate::point::{State, Verdict};
use crate::rank_trial::RankTrial;

/// A message from one rank to another, or from a relay to its worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// A rank introduces itself to rank 0.
    Hello(Hello),
    /// Rank 0 asks a rank for its clocks; the number of the question comes back with the answer.
    Ping(u32),
    /// The clocks of a rank.
    Pong(Pong),
    /// Rank 0 tells every rank the hosts of all ranks.
    Hosts(Vec<String>),
    /// A rank is ready to start a trial, which this text describes.
    Ready(String),
    /// All ranks start at this time of the receiver's clock (ns).
    Go(u64),
    /// The result of a trial of one rank.
    Result(Box<RankResult>),
    /// The result of a trial of all ranks.
    Merged(Box<MergedResult>),
    /// A value that ranks agree on or collect, as JSON.
    Value(String),
    /// A relay reports that a rank ended, and how.
    Lost(u32, String),
    /// A relay reports that the user or the launcher stops the run.
    Interrupt,
}

/// What a rank says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Name of the host.
    pub host: String,
    /// Version of the program.
    pub version: String,
    /// Names the monotonic clock of the rank: equal for ranks that share one.
    pub clock_domain: String,
}

/// The clocks of a rank at one moment.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Pong {
    /// Number of the question.
    pub number: u32,
    /// `CLOCK_MONOTONIC` (ns).
    pub monotonic_ns: u64,
    /// Wall clock (ns since 1970).
    pub unix_ns: i64,
}

/// The result of a trial of one rank.
#[derive(Debug, Serialize, Deserialize)]
pub struct RankResult {
    /// The measurements.
    pub sample: SampleMessage,
    /// Names the block devices whose counters the sample has; empty if unknown.
    pub devices: String,
    /// What the rank's own checks found.
    pub verdict: VerdictMessage,
    /// The first damaged block.
    pub damage: Option<String>,
}

/// The result of a trial of all ranks.
#[derive(Debug, Serialize, Deserialize)]
pub struct MergedResult {
    /// The merged measurements.
    pub sample: SampleMessage,
    /// The share of each rank.
    pub ranks: Vec<RankTrial>,
    /// What the checks of all ranks found.
    pub verdict: VerdictMessage,
    /// The first damaged block of a rank.
    pub damage: Option<String>,
}

/// A verdict as it travels.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VerdictMessage {
    invalid: Vec<String>,
    suspect: Vec<String>,
    noted: Vec<String>,
}

impl From<&Verdict> for VerdictMessage {
    fn from(verdict: &Verdict) -> VerdictMessage {
        let reasons = verdict.reasons.clone();
        match verdict.state {
            State::Invalid => VerdictMessage { invalid: reasons, ..VerdictMessage::default() },
            State::Suspect => VerdictMessage { suspect: reasons, ..VerdictMessage::default() },
            State::Valid => VerdictMessage { noted: reasons, ..VerdictMessage::default() },
        }
    }
}

impl From<&VerdictMessage> for Verdict {
    fn from(message: &VerdictMessage) -> Verdict {
        let mut verdict = Verdict::default();
        let VerdictMessage { invalid, suspect, noted } = message;
        let all = [(State::Invalid, invalid), (State::Suspect, suspect), (State::Valid, noted)];
        for (state, reasons) in all {
            reasons.iter().for_each(|reason| verdict.add(state, reason.clone()));
        }
        verdict
    }
}

/// A histogram as it travels: the lower bound and count of each bucket that is not empty, and the
/// exact figures (overflow, minimum, maximum, sum).
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct HistogramMessage {
    buckets: Vec<(u64, u64)>,
    exact: Option<(u64, u64, u64, u128)>,
}

impl From<&Histogram> for HistogramMessage {
    fn from(histogram: &Histogram) -> HistogramMessage {
        let buckets = histogram.buckets().map(|bucket| (bucket.low_ns, bucket.count)).collect();
        let exact = histogram.exact().map(|exact| {
            let Exact { overflow, min_ns, max_ns, sum_ns } = exact;
            (overflow, min_ns, max_ns, sum_ns)
        });
        HistogramMessage { buckets, exact }
    }
}

impl HistogramMessage {
    fn histogram(&self) -> Result<Histogram, String> {
        let exact = self.exact.map(|(overflow, min_ns, max_ns, sum_ns)| Exact {
            overflow,
            min_ns,
            max_ns,
            sum_ns,
        });
        let restored = Histogram::from_buckets(self.buckets.iter().copied(), exact);
        restored.map_err(|error| error.to_string())
    }
}

/// Reads or writes of a sample: bytes, requests, latencies.
type OperationMessage = (u64, u64, HistogramMessage);
/// A full queue: start and end (ns), bytes and requests per second.
type FullQueueMessage = (u64, u64, f64, f64);

/// A sample as it travels; without the log of requests.
#[derive(Debug, Serialize, Deserialize)]
pub struct SampleMessage {
    operations: [OperationMessage; 2],
    start_ns: u64,
    accepted_ns: Option<u64>,
    end_ns: u64,
    full_queue: Option<FullQueueMessage>,
    flushes: HistogramMessage,
    errors: u64,
    /// Whether the first failed request was a write, its offset and error number.
    first_error: Option<(bool, u64, i32)>,
    /// Short transfers, retries, requests completed at once, requests never issued, calls that
    /// submitted, calls that reaped, verified blocks, damaged blocks.
    counts: [u64; 8],
    interval_ns: u64,
    /// Bytes and requests of each interval.
    intervals: Vec<(u64, u64)>,
    cpu: CpuMessage,
    /// Reads, merged, sectors; writes, merged, sectors.
    device: Option<[u64; 6]>,
    /// Features, bytes of buffers, bytes on huge pages.
    setup: (String, u64, u64),
    interrupted: bool,
    became_steady: Option<bool>,
}

/// CPU use as it travels: elapsed, process, user, system and available time (ns), and what a host
/// may not count: machine, interrupts, other programs, stolen, waiting (ns), instructions, cycles.
#[derive(Debug, Serialize, Deserialize)]
struct CpuMessage([u64; 5], [Option<u64>; 7]);

impl From<&CpuUsage> for CpuMessage {
    fn from(cpu: &CpuUsage) -> CpuMessage {
        CpuMessage(
            [cpu.elapsed_ns, cpu.process_ns, cpu.user_ns, cpu.system_ns, cpu.available_ns],
            [
                cpu.machine_ns,
                cpu.interrupt_ns,
                cpu.others_user_ns,
                cpu.stolen_ns,
                cpu.run_delay_ns,
                cpu.instructions,
                cpu.cycles,
            ],
        )
    }
}

impl From<&CpuMessage> for CpuUsage {
    fn from(message: &CpuMessage) -> CpuUsage {
        let CpuMessage(times, optional) = message;
        let [elapsed_ns, process_ns, user_ns, system_ns, available_ns] = *times;
        let [
            machine_ns,
            interrupt_ns,
            others_user_ns,
            stolen_ns,
            run_delay_ns,
            instructions,
            cycles,
        ] = *optional;
        CpuUsage {
            elapsed_ns,
            process_ns,
            user_ns,
            system_ns,
            machine_ns,
            interrupt_ns,
            others_user_ns,
            stolen_ns,
            run_delay_ns,
            available_ns,
            instructions,
            cycles,
        }
    }
}

impl SampleMessage {
    /// A sample with its times converted by `time`.
    pub fn new(sample: &Sample, time: impl Fn(u64) -> u64) -> SampleMessage {
        let operation = |operation: &OperationSample| {
            (operation.bytes, operation.requests, HistogramMessage::from(&operation.latency))
        };
        let full = |full: FullQueue| {
            (time(full.start_ns), time(full.end_ns), full.bytes_per_s, full.requests_per_s)
        };
        let device = |d: DeviceCounters| {
            [d.reads, d.read_merges, d.read_sectors, d.writes, d.write_merges, d.write_sectors]
        };
        let [reads, writes] = &sample.operations;
        SampleMessage {
            operations: [operation(reads), operation(writes)],
            start_ns: time(sample.start_ns),
            accepted_ns: sample.accepted_ns.map(&time),
            end_ns: time(sample.end_ns),
            full_queue: sample.full_queue.map(full),
            flushes: HistogramMessage::from(&sample.flushes),
            errors: sample.errors,
            first_error: sample
                .first_error
                .map(|error| (error.op == Op::Write, error.offset, error.errno)),
            counts: [
                sample.short_transfers,
                sample.retries,
                sample.at_once,
                sample.never_issued,
                sample.submit_calls,
                sample.reap_calls,
                sample.verified_blocks,
                sample.damaged_blocks,
            ],
            interval_ns: sample.series.interval_ns,
            intervals: sample.series.intervals.iter().map(|i| (i.bytes, i.requests)).collect(),
            cpu: CpuMessage::from(&sample.cpu),
            device: sample.device.map(device),
            setup: (
                sample.setup.features.clone(),
                sample.setup.buffer_bytes,
                sample.setup.huge_bytes,
            ),
            interrupted: sample.interrupted,
            became_steady: sample.became_steady,
        }
    }

    /// The sample with its times converted by `time`.
    ///
    /// # Errors
    /// A histogram that contradicts itself.
    pub fn sample(&self, time: impl Fn(u64) -> u64) -> Result<Sample, String> {
        let operation = |(bytes, requests, latency): &OperationMessage| {
            let latency = latency.histogram()?;
            Ok::<_, String>(OperationSample { bytes: *bytes, requests: *requests, latency })
        };
        let [
            short_transfers,
            retries,
            at_once,
            never_issued,
            submit_calls,
            reap_calls,
            verified,
            damaged,
        ] = self.counts;
        let full = |(start, end, bytes_per_s, requests_per_s)| FullQueue {
            start_ns: time(start),
            end_ns: time(end),
            bytes_per_s,
            requests_per_s,
        };
        let device =
            |[reads, read_merges, read_sectors, writes, write_merges, write_sectors]: [u64; 6]| {
                DeviceCounters {
                    reads,
                    read_merges,
                    read_sectors,
                    writes,
                    write_merges,
                    write_sectors,
                }
            };
        let intervals =
            self.intervals.iter().map(|&(bytes, requests)| Interval { bytes, requests });
        Ok(Sample {
            operations: [operation(&self.operations[0])?, operation(&self.operations[1])?],
            start_ns: time(self.start_ns),
            accepted_ns: self.accepted_ns.map(&time),
            end_ns: time(self.end_ns),
            full_queue: self.full_queue.map(full),
            flushes: self.flushes.histogram()?,
            errors: self.errors,
            first_error: self.first_error.map(|(is_write, offset, errno)| Failure {
                op: if is_write { Op::Write } else { Op::Read },
                offset,
                errno,
            }),
            short_transfers,
            retries,
            at_once,
            never_issued,
            submit_calls,
            reap_calls,
            verified_blocks: verified,
            damaged_blocks: damaged,
            series: Series { interval_ns: self.interval_ns.max(1), intervals: intervals.collect() },
            cpu: CpuUsage::from(&self.cpu),
            device: self.device.map(device),
            setup: Setup {
                features: self.setup.0.clone(),
                buffer_bytes: self.setup.1,
                huge_bytes: self.setup.2,
            },
            interrupted: self.interrupted,
            became_steady: self.became_steady,
            ..Sample::new(self.interval_ns)
        })
    }
}
