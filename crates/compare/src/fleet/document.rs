//! The output of `fleet --json`, from which the terminal and the page are made as well.

use lab::json::Program;
use schemars::JsonSchema;
use serde::Serialize;

use super::contrast::Contrast;

/// The output of `fleet --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetDocument {
    /// The program.
    pub halfpower: Program,
    /// The databases.
    pub databases: Vec<String>,
    /// Rates that differ by at most this share count as equal.
    pub tolerated: f64,
    /// Number of results (a workload in a run) that were compared.
    pub results: usize,
    /// Number of these that are suspect.
    pub suspect: usize,
    /// Number of results that were left out because they are invalid.
    pub invalid: usize,
    /// The models, that with the most hosts first.
    pub models: Vec<FleetModel>,
}

/// All hosts with a target of one model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetModel {
    /// The model.
    pub model: String,
    /// The hosts, the oddest first.
    pub hosts: Vec<FleetHost>,
    /// The workloads that at least five hosts measured.
    pub workloads: Vec<FleetWorkload>,
    /// Workloads that fewer hosts measured, so that they are not compared.
    pub too_few_hosts: Vec<String>,
    /// What several odd hosts have in common and few others have.
    pub distinguishing: Vec<Distinguishing>,
}

/// A host with a target.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct FleetHost {
    /// Name of the host.
    pub host: String,
    /// The target on it: device and file system, or simulated system.
    pub target: String,
    /// Whether it is odd.
    pub verdict: Oddness,
    /// Probability that a host like the others differs as much in any of its values, after
    /// correction for all hosts; null if none is compared.
    pub probability: Option<f64>,
    /// Number of workloads in which it is compared.
    pub workloads: usize,
    /// Number of workloads in which it is odd.
    pub odd: usize,
    /// Geometric mean of the ratios of its rates to the medians; null if none is compared.
    pub ratio: Option<f64>,
    /// Start of the first run with its present odd values (ns since 1970), the earliest of all
    /// these values; null if it has had them since its first run.
    pub since_unix_ns: Option<i64>,
    /// Means over its workloads that are odd.
    pub contrasts: Vec<FleetContrast>,
    /// Workloads whose trials have two levels; only of an odd host whose trials scatter.
    pub levels: Vec<FleetLevels>,
    /// Doubts about its results that few other hosts have; only of an odd host.
    pub doubts: Vec<FleetDoubt>,
    /// Facts that few other hosts have; only of an odd host.
    pub unusual: Vec<UnusualFact>,
    /// Facts that changed in the first run of its present values; only of an odd host.
    pub changed: Vec<ChangedFact>,
}

/// Whether a host is odd.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Oddness {
    /// Slower than the others in at least one workload, and not faster in any.
    Slower,
    /// Slower in some workloads and faster in others.
    SlowerAndFaster,
    /// Not slower, but with a higher tail of latency or more scatter between trials.
    Unsteady,
    /// Faster than the others in at least one workload, and not slower in any.
    Faster,
    /// Like the others.
    Alike,
    /// No workload of it was measured on enough hosts.
    #[default]
    NotCompared,
}

impl Oddness {
    /// Whether the host is odd.
    pub fn is_odd(self) -> bool {
        !matches!(self, Oddness::Alike | Oddness::NotCompared)
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Oddness::Slower => "slower",
            Oddness::SlowerAndFaster => "slower and faster",
            Oddness::Unsteady => "unsteady",
            Oddness::Faster => "faster",
            Oddness::Alike => "like the others",
            Oddness::NotCompared => "not compared",
        }
    }
}

/// A workload on all hosts of a model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetWorkload {
    /// The workload in words.
    pub workload: String,
    /// Median rate of the hosts (bytes per second).
    pub median_bytes_per_s: f64,
    /// The percentile of latency that is compared, such as 99.9; null with too few requests.
    pub tail_percentile: Option<f64>,
    /// The hosts that measured it.
    pub hosts: Vec<FleetResult>,
}

/// A workload on one host.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetResult {
    /// Name of the host.
    pub host: String,
    /// The target on it.
    pub target: String,
    /// Number of runs since the last change of the rate.
    pub runs: usize,
    /// What is compared, the rate first.
    pub values: Vec<FleetValue>,
}

impl FleetResult {
    /// The value of a quantity; None if it is not compared.
    pub fn value(&self, quantity: FleetQuantity) -> Option<&FleetValue> {
        self.values.iter().find(|value| value.quantity == quantity)
    }

    /// Whether the host is odd in this workload.
    pub fn is_odd(&self) -> bool {
        self.values.iter().any(|value| value.is_odd)
    }
}

/// What is compared in a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FleetQuantity {
    /// Rate of the runs since its last change: their median (bytes per second).
    Rate,
    /// The tail of latency since its last change: the median of the runs (ns).
    TailLatency,
    /// Scatter between the trials of a run: their mean distance from the median, as a share.
    Scatter,
    /// The last change of the rate: the rate after it divided by the rate before.
    Change,
}

/// A value of a host in a workload among those of all hosts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetValue {
    /// What it is.
    pub quantity: FleetQuantity,
    /// The value.
    pub value: f64,
    /// The value divided by the median of all hosts.
    pub ratio: f64,
    /// Lower bound of the ratio (95%).
    pub ratio_low: f64,
    /// Upper bound of the ratio (95%).
    pub ratio_high: f64,
    /// Probability that a host like the others is as far from the median, for this value alone. Of
    /// tails and scatter only higher values count.
    pub probability: f64,
    /// Whether the host is odd and this is one of its odd values.
    pub is_odd: bool,
    /// Start of the first run since the last change (ns since 1970); null if it never changed.
    pub since_unix_ns: Option<i64>,
}

/// A mean over workloads in which a host is odd.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetContrast {
    /// Which mean, or ratio of means.
    pub contrast: Contrast,
    /// The mean divided by the median of all hosts.
    pub ratio: f64,
    /// Lower bound of the ratio (95%).
    pub ratio_low: f64,
    /// Upper bound of the ratio (95%).
    pub ratio_high: f64,
    /// Probability that a host like the others is as far from the median, for this mean alone.
    pub probability: f64,
}

/// Trials that are either fast or slow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetLevels {
    /// The workload in words.
    pub workload: String,
    /// Median of the slow trials (bytes per second).
    pub low_bytes_per_s: f64,
    /// Median of the fast trials (bytes per second).
    pub high_bytes_per_s: f64,
    /// Share of the trials that are slow.
    pub share_low: f64,
    /// Number of trials.
    pub trials: usize,
}

/// A doubt about the results of a host that few other hosts have.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetDoubt {
    /// The workload in words.
    pub workload: String,
    /// The reason, as in the newest run that has it.
    pub reason: String,
    /// Number of runs with this reason since the host became odd.
    pub runs_with: usize,
    /// Number of runs since then.
    pub runs: usize,
    /// Number of other hosts that have it in at least half of their runs.
    pub others_with: usize,
    /// Number of other hosts.
    pub others: usize,
}

/// A fact that few hosts of a model have.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UnusualFact {
    /// Name of the fact.
    pub fact: String,
    /// Its value.
    pub value: String,
    /// Number of hosts with this value.
    pub hosts_with: usize,
    /// The most frequent value; null if most hosts do not have the fact.
    pub usual: Option<String>,
    /// Number of hosts with the most frequent value, or without the fact.
    pub hosts_with_usual: usize,
    /// Number of hosts.
    pub hosts: usize,
}

/// A fact that changed together with a rate.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChangedFact {
    /// Name of the fact.
    pub fact: String,
    /// Value in the last run before.
    pub before: String,
    /// Value in the first run after.
    pub after: String,
}

/// A fact that several odd hosts have and few others.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Distinguishing {
    /// Which odd hosts.
    pub hosts: Oddness,
    /// Name of the fact.
    pub fact: String,
    /// Its value.
    pub value: String,
    /// Number of these odd hosts with the value.
    pub odd_with: usize,
    /// Number of these odd hosts.
    pub odd: usize,
    /// Number of other hosts with the value.
    pub others_with: usize,
    /// Number of other hosts.
    pub others: usize,
    /// Probability that chance explains this, for this fact alone.
    pub probability: f64,
}
