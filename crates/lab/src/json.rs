//! The JSON documents that the program prints. They are a stable interface for other programs:
//! fields never change their name or unit.
//!
//! Times are in nanoseconds, and sizes in bytes. `halfpower generate schema` generates the JSON
//! Schema in `docs/schema` from these types.

use std::collections::BTreeMap;

use analysis::histogram::Histogram;
use analysis::interval::Interval;
use ioengine::Op;
use schemars::JsonSchema;
use serde::Serialize;

use crate::console;
use crate::journal::settings::Change;
use crate::machine::{Host, TargetFacts};
use crate::point::{Point, Trial, Verdict};
use crate::rank_trial::{self, RankTrial, RanksSummary};
use crate::recorder::{HostSettingDocument, JSON_SCHEMA};
use crate::workload_document::WorkloadDocument;

/// The program that wrote the document.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Program {
    /// Version of halfpower.
    pub version: String,
    /// Version of the document's JSON schema.
    pub schema: u32,
}

impl Program {
    /// Returns the versions of this program and of its JSON schema.
    pub fn this() -> Program {
        Program { version: env!("CARGO_PKG_VERSION").to_owned(), schema: JSON_SCHEMA }
    }
}

/// One measured workload with its host and target, as printed by `run --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunDocument {
    /// The program that wrote the document.
    pub halfpower: Program,
    /// The machine that ran the measurement.
    pub host: Host,
    /// The target, or the first of several targets.
    pub target: TargetFacts,
    /// All targets; absent if there is only one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetFacts>,
    /// Host settings that were changed for the run and restored after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_settings: Vec<HostSettingDocument>,
    /// The measured workload with its trials and results.
    #[serde(flatten)]
    pub point: PointDocument,
}

/// Several measured workloads with their host and target, as printed by `sweep --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SweepDocument {
    /// The program that wrote the document.
    pub halfpower: Program,
    /// The machine that ran the measurement.
    pub host: Host,
    /// The target, or the first of several targets.
    pub target: TargetFacts,
    /// Host settings that were changed for the run and restored after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_settings: Vec<HostSettingDocument>,
    /// The measured workloads with their trials and results, in the order of the sweep.
    pub points: Vec<PointDocument>,
}

/// One workload with its trials and results.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PointDocument {
    /// The measured workload.
    pub workload: WorkloadDocument,
    /// All trials of the workload.
    pub trials: Vec<TrialDocument>,
    /// Results over all trials.
    pub summary: SummaryDocument,
    /// Whether the results can be trusted.
    pub verdict: VerdictDocument,
}

/// Latencies of a trial, or of all trials of a workload (ns).
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct LatencyDocument {
    /// Arithmetic mean of the latencies.
    pub mean: u64,
    /// Minimum latency.
    pub min: u64,
    /// Median latency.
    pub p50: u64,
    /// 90th percentile of the latencies.
    pub p90: u64,
    /// 99th percentile of the latencies.
    pub p99: u64,
    /// 99.9th percentile of the latencies.
    pub p99_9: u64,
    /// Maximum latency.
    pub max: u64,
    /// Latency at each percentile that was requested with --percentile. Present only in the
    /// `latency_ns` of `summary`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentiles_ns: Option<BTreeMap<String, u64>>,
}

/// CPU time of a trial (ns).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CpuDocument {
    /// CPU time charged to the process.
    pub process: u64,
    /// User time, which is included in `process`.
    pub user: u64,
    /// System time, which is included in `process`.
    pub system: u64,
    /// Busy time of the machine, summed over all CPUs; null if unknown.
    pub machine: Option<u64>,
    /// CPU time that the trial took from the soaker, a load that uses all idle CPU time. The
    /// background load is subtracted. Null if no soaker ran.
    pub soaker: Option<u64>,
}

/// Counters of the block device during a trial.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeviceDocument {
    /// Number of completed read requests.
    pub reads: u64,
    /// Number of read requests that the kernel merged with other requests.
    pub read_merges: u64,
    /// Number of bytes read from the device.
    pub read_bytes: u64,
    /// Number of completed write requests.
    pub writes: u64,
    /// Number of write requests that the kernel merged with other requests.
    pub write_merges: u64,
    /// Number of bytes written to the device.
    pub write_bytes: u64,
}

/// One interval of the time series of a trial.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SeriesDocument {
    /// Start of the interval, counted from the start of the measured phase (ns).
    pub start_ns: u64,
    /// Length of the interval (ns).
    pub length_ns: u64,
    /// Number of bytes completed in the interval.
    pub bytes: u64,
    /// Number of requests completed in the interval.
    pub requests: u64,
}

/// The period of a closed-loop trial in which the queue was full.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FullQueueDocument {
    /// Start of the period, counted from the start of the trial (ns).
    pub start_ns: u64,
    /// End of the period, counted from the start of the trial (ns).
    pub end_ns: u64,
    /// Throughput while the queue was full (bytes per second).
    pub throughput_bytes_per_s: f64,
    /// Requests per second while the queue was full.
    pub requests_per_s: f64,
}

/// One trial: a timed execution of the workload.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TrialDocument {
    /// Start time (ns since 1970).
    pub started_unix_ns: i64,
    /// Whether a soaker, a load that uses all idle CPU time, ran during the trial.
    pub soaked: bool,
    /// Number of bytes that the trial read and wrote.
    pub bytes: u64,
    /// Number of completed requests.
    pub requests: u64,
    /// Number of failed requests.
    pub errors: u64,
    /// Number of transfers that were shorter than requested. Further requests transferred the
    /// remaining bytes.
    pub short_transfers: u64,
    /// Number of requests reissued after EAGAIN or EINTR; absent if the trial was read from the
    /// database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u64>,
    /// Length of the trial, including the final flush (ns).
    pub elapsed_ns: u64,
    /// Latencies of reads and writes together.
    pub latency_ns: LatencyDocument,
    /// CPU time used during the trial.
    pub cpu_ns: CpuDocument,
    /// Time from the start until the last write completed, without the final flush (ns); null if
    /// there was no final flush.
    pub accepted_ns: Option<u64>,
    /// The period in which the queue was full. Rates of a closed-loop trial are computed over this
    /// period, because the queue fills before this period and drains after it. Absent if the
    /// period is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_queue: Option<FullQueueDocument>,
    /// Latencies of the flushes between writes (--fsync, --fdatasync); absent if there were no such
    /// flushes. They add to the length of the trial but not to the latency of a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_latency_ns: Option<LatencyDocument>,
    /// Number of flushes between writes; absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flushes: Option<u64>,
    /// Number of calls that submitted requests.
    pub submit_calls: u64,
    /// Number of calls that collected completions.
    pub reap_calls: u64,
    /// Number of instructions retired; null if the host does not count them.
    pub instructions: Option<u64>,
    /// Number of CPU cycles; null if the host does not count them.
    pub cycles: Option<u64>,
    /// Counters of the block device; null if there is no block device.
    pub device: Option<DeviceDocument>,
    /// Number of the target's bytes in the page cache, before and after the target was evicted.
    /// Null if the target was not evicted or the numbers are unknown.
    pub resident_bytes: Option<ResidentDocument>,
    /// Features and buffers that the I/O engine used; absent if the trial was read from the
    /// database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<SetupDocument>,
    /// Time series of the completed bytes and requests.
    pub series: Vec<SeriesDocument>,
    /// Summary of the ranks, which are the processes of the trial; absent if there was only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks_summary: Option<RanksSummary>,
    /// Result of each rank (process); absent if there was only one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankTrial>,
    /// Whether the trial can be trusted.
    pub verdict: VerdictDocument,
}

/// Features and buffers that an I/O engine used.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SetupDocument {
    /// Flags and registrations, for example `DEFER_TASKRUN, registered buffers`.
    pub features: String,
    /// Total size of the buffers (bytes).
    pub buffer_bytes: u64,
    /// Size of the buffers that are on huge pages (bytes).
    pub huge_bytes: u64,
}

/// Number of a target's bytes in the page cache, before and after the target was evicted.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResidentDocument {
    /// Number of bytes in the page cache before the eviction.
    pub before: u64,
    /// Number of bytes in the page cache after the eviction.
    pub after: u64,
}

/// A median with its 95% confidence interval.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct IntervalDocument {
    /// Median of the measured values.
    pub median: f64,
    /// Lower end of the confidence interval.
    pub low: f64,
    /// Upper end of the confidence interval.
    pub high: f64,
}

/// Lower and upper bounds of a CPU cost (ns).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BoundsDocument {
    /// Lower bound: the CPU time charged to the process; null if unknown.
    pub lower: Option<f64>,
    /// Upper bound: the lower bound plus the CPU time that was not charged to the process; null if
    /// this time was not measured.
    pub upper: Option<f64>,
}

/// How much a soaker changes the results. A soaker is a load that uses all idle CPU time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DisturbanceDocument {
    /// Throughput with a soaker, divided by throughput without a soaker.
    pub throughput: f64,
    /// CPU time charged per request with a soaker, divided by that without a soaker.
    pub cpu: f64,
}

/// Results over all trials of a point.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SummaryDocument {
    /// Throughput (bytes per second).
    pub throughput_bytes_per_s: IntervalDocument,
    /// Requests per second.
    pub requests_per_s: IntervalDocument,
    /// Latencies of all trials in which no soaker ran (see `soaked`).
    pub latency_ns: LatencyDocument,
    /// Separate results for reads and writes; absent unless the workload mixes both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_operation: Option<ByOperationDocument>,
    /// CPU time per request (ns).
    pub cpu_ns_per_request: BoundsDocument,
    /// CPU time per byte (ns).
    pub cpu_ns_per_byte: BoundsDocument,
    /// How much the soaker changed the results; null if no trial ran with a soaker.
    pub soaker_disturbance: Option<DisturbanceDocument>,
}

/// Separate results for the reads and the writes of a mixed workload.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ByOperationDocument {
    /// Results of the reads.
    pub read: OperationDocument,
    /// Results of the writes.
    pub write: OperationDocument,
}

/// Results of either the reads or the writes of a mixed workload.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OperationDocument {
    /// Number of bytes transferred by these requests.
    pub bytes: u64,
    /// Number of completed requests.
    pub requests: u64,
    /// Throughput (bytes per second).
    pub throughput_bytes_per_s: f64,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Latencies of these requests.
    pub latency_ns: LatencyDocument,
}

/// Whether a result can be trusted, and if not, why.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VerdictDocument {
    /// State of the result: valid, suspect or invalid.
    pub state: String,
    /// Reasons for the state, one sentence each.
    pub reasons: Vec<String>,
}

impl From<&Verdict> for VerdictDocument {
    fn from(verdict: &Verdict) -> Self {
        VerdictDocument { state: verdict.state.word().to_owned(), reasons: verdict.reasons.clone() }
    }
}

impl HostSettingDocument {
    /// Returns the document of a changed host setting.
    pub fn of(change: &Change) -> HostSettingDocument {
        HostSettingDocument {
            name: change.name.clone(),
            path: change.path.display().to_string(),
            old: change.old.clone(),
            new: change.wanted.clone().unwrap_or_default(),
        }
    }
}

impl From<&Histogram> for LatencyDocument {
    fn from(histogram: &Histogram) -> Self {
        let quantile = |q| histogram.quantile(q).unwrap_or(0);
        LatencyDocument {
            mean: histogram.mean().unwrap_or(0.0).round() as u64,
            min: histogram.min().unwrap_or(0),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p99_9: quantile(0.999),
            max: histogram.max().unwrap_or(0),
            percentiles_ns: None,
        }
    }
}

impl From<Interval> for IntervalDocument {
    fn from(interval: Interval) -> Self {
        IntervalDocument { median: interval.value, low: interval.low, high: interval.high }
    }
}

impl From<&Trial> for TrialDocument {
    fn from(trial: &Trial) -> Self {
        let live = trial.live.as_deref();
        let flushes = live.map(|live| &live.flushes).filter(|flushes| flushes.count() > 0);
        TrialDocument {
            started_unix_ns: trial.started_unix_ns,
            soaked: trial.soaked,
            bytes: trial.bytes(),
            requests: trial.requests(),
            errors: trial.errors,
            short_transfers: trial.short_transfers,
            retries: live.map(|live| live.retries),
            elapsed_ns: trial.elapsed_ns,
            latency_ns: (&trial.latency()).into(),
            cpu_ns: CpuDocument {
                process: trial.cpu.process_ns,
                user: trial.cpu.user_ns,
                system: trial.cpu.system_ns,
                machine: trial.cpu.machine_ns,
                soaker: trial.soaker_ns,
            },
            accepted_ns: trial.accepted_ns,
            full_queue: trial.full_queue.map(|full| FullQueueDocument {
                start_ns: full.start_ns,
                end_ns: full.end_ns,
                throughput_bytes_per_s: full.bytes_per_s,
                requests_per_s: full.requests_per_s,
            }),
            flush_latency_ns: flushes.map(LatencyDocument::from),
            flushes: flushes.map(Histogram::count),
            submit_calls: trial.submit_calls,
            reap_calls: trial.reap_calls,
            instructions: trial.cpu.instructions,
            cycles: trial.cpu.cycles,
            device: trial.device.map(|device| DeviceDocument {
                reads: device.reads,
                read_merges: device.read_merges,
                read_bytes: device.read_sectors.saturating_mul(512),
                writes: device.writes,
                write_merges: device.write_merges,
                write_bytes: device.write_sectors.saturating_mul(512),
            }),
            resident_bytes: trial.scrub.and_then(|scrub| {
                let (before, after) = (scrub.resident_before_bytes?, scrub.resident_after_bytes?);
                Some(ResidentDocument { before, after })
            }),
            setup: live.map(|live| SetupDocument {
                features: live.setup.features.clone(),
                buffer_bytes: live.setup.buffer_bytes,
                huge_bytes: live.setup.huge_bytes,
            }),
            series: trial
                .series
                .iter()
                .map(|point| SeriesDocument {
                    start_ns: point.start_ns,
                    length_ns: point.length_ns,
                    bytes: point.bytes,
                    requests: point.requests,
                })
                .collect(),
            ranks_summary: rank_trial::summary(&trial.ranks),
            ranks: trial.ranks.clone(),
            verdict: (&trial.verdict).into(),
        }
    }
}

impl From<&Point> for PointDocument {
    fn from(point: &Point) -> Self {
        let summary = point.summary();
        let request = point.key.request_bytes() as f64;
        let per_byte = |cost: Option<f64>| cost.map(|ns| ns / request);
        PointDocument {
            workload: (&point.key).into(),
            trials: point.trials.iter().map(TrialDocument::from).collect(),
            summary: SummaryDocument {
                throughput_bytes_per_s: summary.bytes_per_s.into(),
                requests_per_s: summary.requests_per_s.into(),
                latency_ns: (&summary.latency).into(),
                by_operation: (point.key.operation() == "mix").then(|| by_operation(point)),
                cpu_ns_per_request: BoundsDocument {
                    lower: summary.cpu_lower_ns,
                    upper: summary.cpu_upper_ns,
                },
                cpu_ns_per_byte: BoundsDocument {
                    lower: per_byte(summary.cpu_lower_ns),
                    upper: per_byte(summary.cpu_upper_ns),
                },
                soaker_disturbance: point
                    .disturbance()
                    .map(|(throughput, cpu)| DisturbanceDocument { throughput, cpu }),
            },
            verdict: (&summary.verdict).into(),
        }
    }
}

impl PointDocument {
    /// Adds the requested latency percentiles to the summary.
    #[must_use]
    pub fn with_percentiles(mut self, point: &Point, percentiles: &[f64]) -> PointDocument {
        let latency = point.latency(None);
        let named = |p: &f64| (p.to_string(), latency.quantile(p / 100.0).unwrap_or(0));
        self.summary.latency_ns.percentiles_ns = Some(percentiles.iter().map(named).collect());
        self
    }
}

fn by_operation(point: &Point) -> ByOperationDocument {
    let trials = point.unsoaked();
    // The read rate and the write rate are computed over the same time as the total rate, so that
    // their sum is the total rate.
    let seconds = |trial: &&Trial| trial.requests() as f64 / trial.requests_per_s().max(1e-9);
    let elapsed_s: f64 = trials.iter().map(seconds).sum();
    let of = |op: Op| {
        let directions = || trials.iter().map(|t| &t.directions[op as usize]);
        let bytes = directions().map(|d| d.bytes).fold(0, u64::saturating_add);
        let requests = directions().map(|d| d.requests).fold(0, u64::saturating_add);
        OperationDocument {
            bytes,
            requests,
            throughput_bytes_per_s: bytes as f64 / elapsed_s.max(1e-9),
            requests_per_s: requests as f64 / elapsed_s.max(1e-9),
            latency_ns: (&point.latency(Some(op))).into(),
        }
    };
    ByOperationDocument { read: of(Op::Read), write: of(Op::Write) }
}

/// Formats a document as indented JSON.
pub fn print(document: &impl Serialize) -> String {
    serde_json::to_string_pretty(document).expect("all keys of a document are strings")
}

/// Prints a result to stdout: as JSON, or as lines of text.
pub fn answer(as_json: bool, document: &impl Serialize, lines: impl FnOnce() -> Vec<String>) {
    if as_json {
        console::data(&print(document));
    } else {
        lines().iter().for_each(|line| console::data(line));
    }
}

/// Returns the title `name`, and the fields of a value as pairs of name and value. Omits fields
/// that are null.
pub fn facts(name: &str, of: &impl Serialize) -> (String, Vec<(String, String)>) {
    (name.to_owned(), rows("", &serde_json::to_value(of).unwrap_or_default()))
}

/// Flattens a JSON value into pairs of name and value: `{"a_b": {"c": 1}}` becomes
/// `("a b c", "1")`. Omits nulls and empty strings.
fn rows(prefix: &str, value: &serde_json::Value) -> Vec<(String, String)> {
    use serde_json::Value;
    let joined = |key: &str| {
        let name = key.replace('_', " ");
        if prefix.is_empty() { name } else { format!("{prefix} {name}") }
    };
    match value {
        Value::Null => Vec::new(),
        Value::Object(fields) => {
            fields.iter().flat_map(|(key, value)| rows(&joined(key), value)).collect()
        }
        Value::Array(items) => items.iter().flat_map(|item| rows(prefix, item)).collect(),
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) => vec![(prefix.to_owned(), text.clone())],
        other => vec![(prefix.to_owned(), other.to_string())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::testing::point;
    use ioengine::target::DeviceCounters;

    #[test]
    fn the_largest_integers_of_the_database_are_printed() {
        let most = i64::MAX as u64;
        let mut point = point(&[most, most, most]);
        point.key.workload.read_percent = 50;
        for trial in &mut point.trials {
            trial.directions[1].requests = most;
            trial.device = Some(DeviceCounters {
                read_sectors: most,
                write_sectors: most,
                ..DeviceCounters::default()
            });
        }
        let document = PointDocument::from(&point);
        assert_eq!(document.trials[0].device.as_ref().unwrap().read_bytes, u64::MAX);
        let writes = document.summary.by_operation.unwrap().write;
        assert_eq!(writes.requests, u64::MAX);
    }

    #[test]
    fn json_is_flattened_into_rows_without_nulls() {
        let value = serde_json::json!({"a_b": {"c": 1, "d": null}, "e": "x"});
        assert_eq!(rows("", &value), [("a b c".into(), "1".into()), ("e".into(), "x".into())]);
    }
}
