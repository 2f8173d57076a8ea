//! Defines the output of `fleet --json`. The output for the terminal and the page are made from the
//! same document.

use lab::json::Program;
use schemars::JsonSchema;
use serde::Serialize;

use super::contrast::Contrast;

/// The output of `fleet --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetDocument {
    /// The program that made the document.
    pub halfpower: Program,
    /// Paths of the databases.
    pub databases: Vec<String>,
    /// Rates that differ by at most this share count as equal.
    pub tolerated: f64,
    /// Number of results that were compared. A result is one workload in one run.
    pub results: usize,
    /// Number of compared results that are suspect.
    pub suspect: usize,
    /// Number of results that were left out because they are invalid.
    pub invalid: usize,
    /// The models. The model with the most hosts is first.
    pub models: Vec<FleetModel>,
}

/// All hosts whose targets are of the same model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetModel {
    /// Name of the model.
    pub model: String,
    /// The hosts, sorted by verdict. Slower hosts are first.
    pub hosts: Vec<FleetHost>,
    /// The workloads that at least five hosts measured.
    pub workloads: Vec<FleetWorkload>,
    /// Workloads that are not compared because fewer than five hosts measured them.
    pub too_few_hosts: Vec<String>,
    /// Facts that several odd hosts have and few other hosts have.
    pub distinguishing: Vec<Distinguishing>,
}

/// A host and one of its targets.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct FleetHost {
    /// Name of the host.
    pub host: String,
    /// The target on the host: device and file system, or simulated system.
    pub target: String,
    /// Whether and how the host is odd.
    pub verdict: Oddness,
    /// Probability that all differences of the host from the other hosts are due to chance,
    /// corrected for the number of hosts. Null if no value of the host is compared.
    pub probability: Option<f64>,
    /// Number of workloads in which the host is compared.
    pub workloads: usize,
    /// Number of workloads in which the host is odd.
    pub odd: usize,
    /// Mean rate of the host relative to the median of all hosts (1 if equal). It is the geometric
    /// mean over the compared workloads. Null if no workload is compared.
    pub ratio: Option<f64>,
    /// Start of the first run in which the host was odd (ns since 1970). Null if the host is not
    /// odd, or has been odd since its first run.
    pub since_unix_ns: Option<i64>,
    /// Means over workloads, and ratios of such means, in which the host is odd.
    pub contrasts: Vec<FleetContrast>,
    /// Workloads whose trials are either fast or slow (bimodal). Empty unless the host is odd
    /// because its trials scatter.
    pub levels: Vec<FleetLevels>,
    /// Reasons why results of the host are suspect. Reasons that are common on other hosts are left
    /// out. Empty unless the host is odd.
    pub doubts: Vec<FleetDoubt>,
    /// Facts that few other hosts have. Empty unless the host is odd.
    pub unusual: Vec<UnusualFact>,
    /// Facts that changed in the run in which the host became odd. Empty unless the host is odd.
    pub changed: Vec<ChangedFact>,
}

/// Whether and how a host is odd.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Oddness {
    /// Slower than the other hosts in at least one workload, and not faster in any.
    Slower,
    /// Slower than the other hosts in some workloads, and faster in others.
    SlowerAndFaster,
    /// As fast as the other hosts, but with a higher tail latency or more scatter between trials.
    Unsteady,
    /// Faster than the other hosts in at least one workload, and not slower in any.
    Faster,
    /// Not different from the other hosts.
    Alike,
    /// None of the host's workloads was measured on enough hosts.
    #[default]
    NotCompared,
}

impl Oddness {
    /// Checks whether the host is odd in any way.
    pub fn is_odd(self) -> bool {
        !matches!(self, Oddness::Alike | Oddness::NotCompared)
    }

    /// Returns the verdict in words, for output.
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
    /// Description of the workload.
    pub workload: String,
    /// Median rate of the hosts (bytes per second).
    pub median_bytes_per_s: f64,
    /// Latency percentile that is compared, such as 99.9. Null if too few hosts have enough
    /// requests.
    pub tail_percentile: Option<f64>,
    /// Results of the hosts that measured the workload.
    pub hosts: Vec<FleetResult>,
}

/// The result of a workload on one host.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetResult {
    /// Name of the host.
    pub host: String,
    /// The target on the host.
    pub target: String,
    /// Number of runs since the last change of the rate.
    pub runs: usize,
    /// The values that are compared, the rate first.
    pub values: Vec<FleetValue>,
}

impl FleetResult {
    /// Returns the value of a quantity. None if the quantity is not compared.
    pub fn value(&self, quantity: FleetQuantity) -> Option<&FleetValue> {
        self.values.iter().find(|value| value.quantity == quantity)
    }

    /// Checks whether the host is odd in this workload.
    pub fn is_odd(&self) -> bool {
        self.values.iter().any(|value| value.is_odd)
    }
}

/// A quantity that is compared in a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FleetQuantity {
    /// Median rate of the runs since the last change of the rate (bytes per second).
    Rate,
    /// Median tail latency of the runs since the last change of the tail latency (ns).
    TailLatency,
    /// Scatter of the trials of a run: the mean deviation of their rates from the median rate, as a
    /// share of the median.
    Scatter,
    /// Change of the rate, relative to the change on all hosts at the same time. The rate after the
    /// last change is divided by the rate before this change. This ratio is divided by its median
    /// over all hosts.
    Change,
}

/// A value of a host in a workload, compared with the values of all hosts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetValue {
    /// The quantity.
    pub quantity: FleetQuantity,
    /// The value of the host, in the unit of the quantity.
    pub value: f64,
    /// The value divided by the median of all hosts.
    pub ratio: f64,
    /// Lower bound of the ratio (95%).
    pub ratio_low: f64,
    /// Upper bound of the ratio (95%).
    pub ratio_high: f64,
    /// Probability that a host without a fault is at least as far from the median as this host
    /// (p-value). The probability is not corrected for the number of values. The tests of tail
    /// latency and scatter are one-sided, because only higher values are odd.
    pub probability: f64,
    /// Whether the host is odd in this value.
    pub is_odd: bool,
    /// Start of the first run after the last change (ns since 1970). Null if the value never
    /// changed.
    pub since_unix_ns: Option<i64>,
}

/// A mean over workloads, or a ratio of two such means, in which a host is odd.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetContrast {
    /// The mean or ratio in which the host is odd.
    pub contrast: Contrast,
    /// Value of the host divided by the median of all hosts.
    pub ratio: f64,
    /// Lower bound of the ratio (95%).
    pub ratio_low: f64,
    /// Upper bound of the ratio (95%).
    pub ratio_high: f64,
    /// Probability that a host without a fault is at least as far from the median as this host
    /// (p-value). The probability is not corrected for the number of values.
    pub probability: f64,
}

/// A workload whose trials are either fast or slow (bimodal).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetLevels {
    /// Description of the workload.
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

/// A reason why results of a host are suspect. Reasons that are common on other hosts are left out.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetDoubt {
    /// Description of the workload.
    pub workload: String,
    /// Text of the reason, from the newest run that has the reason.
    pub reason: String,
    /// Number of runs with this reason since the host became odd.
    pub runs_with: usize,
    /// Number of runs since the host became odd.
    pub runs: usize,
    /// Number of other hosts that have this reason in at least half of their runs.
    pub others_with: usize,
    /// Number of other hosts.
    pub others: usize,
}

/// A fact that few hosts of a model have.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UnusualFact {
    /// Name of the fact.
    pub fact: String,
    /// Value of the fact.
    pub value: String,
    /// Number of hosts with this value.
    pub hosts_with: usize,
    /// Most frequent value of the fact. Null if the hosts without the fact are at least as many as
    /// the hosts with this value.
    pub usual: Option<String>,
    /// Number of hosts with the most frequent value. If `usual` is null, number of hosts without
    /// the fact.
    pub hosts_with_usual: usize,
    /// Number of hosts of the model.
    pub hosts: usize,
}

/// A fact that changed when the host became odd.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChangedFact {
    /// Name of the fact.
    pub fact: String,
    /// Value in the last run before the change.
    pub before: String,
    /// Value in the first run after the change.
    pub after: String,
}

/// A fact that several odd hosts have and few other hosts have.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Distinguishing {
    /// Verdict on the odd hosts.
    pub hosts: Oddness,
    /// Name of the fact.
    pub fact: String,
    /// Value of the fact.
    pub value: String,
    /// Number of odd hosts with this verdict that have the value.
    pub odd_with: usize,
    /// Number of odd hosts with this verdict.
    pub odd: usize,
    /// Number of hosts without this verdict that have the value.
    pub others_with: usize,
    /// Number of hosts without this verdict.
    pub others: usize,
    /// Probability that the hosts share the fact by chance, not corrected for the number of facts.
    pub probability: f64,
}
