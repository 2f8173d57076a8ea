//! Defines the comparison as a JSON document. The fields of this document are a stable interface:
//! new fields may be added, but existing fields never change their meaning.

use analysis::interval::Interval;
use lab::json::Program;
use schemars::JsonSchema;
use serde::Serialize;

use crate::limit::{self, Limit};
use crate::quantity::Quantity;
use crate::verdict::{Change, Comparison, PointChange, Verdict};

/// The output of `compare --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ComparisonsDocument {
    /// The program that made the comparison.
    pub halfpower: Program,
    /// The first side is the baseline. The list has one comparison for each of the other sides.
    pub comparisons: Vec<ComparisonDocument>,
    /// Changes for the worse that exceed a limit of `--fail-on`.
    pub regressions: Vec<RegressionDocument>,
}

/// A change for the worse that exceeds its limit.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RegressionDocument {
    /// Name of the side that is worse than the baseline.
    pub after: String,
    /// Description of the workload.
    pub workload: String,
    /// The quantity that became worse.
    pub quantity: Quantity,
    /// Value of the worse side divided by the value of the baseline.
    pub ratio: f64,
}

/// The comparison of a side with the baseline.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ComparisonDocument {
    /// Name of the baseline.
    pub before: String,
    /// Name of the side that is compared with the baseline.
    pub after: String,
    /// Maximum change that counts as no change, as a share (0.05 is 5%).
    pub tolerated: f64,
    /// One sentence for each run of the two sides that has a verdict other than valid.
    pub doubts: Vec<String>,
    /// Settings that have one value in all points of the baseline and a different value in all
    /// points of the other side.
    pub settings: Vec<DifferenceDocument>,
    /// Facts about the program, the host and the target that differ between the sides.
    pub facts: Vec<DifferenceDocument>,
    /// Conclusions of surveys or studies that differ between the sides.
    pub conclusions: Vec<DifferenceDocument>,
    /// The points that both sides measured.
    pub points: Vec<PointChangeDocument>,
    /// Workloads that only the baseline measured.
    pub only_before: Vec<String>,
    /// Workloads that only the other side measured.
    pub only_after: Vec<String>,
}

/// A setting, fact or conclusion that differs, with its values on both sides.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DifferenceDocument {
    /// Name of the setting, fact or conclusion.
    pub name: String,
    /// Value of the baseline.
    pub before: String,
    /// Value of the other side.
    pub after: String,
}

/// The comparison of one point.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PointChangeDocument {
    /// Description of the workload.
    pub workload: String,
    /// One change for each quantity that both sides measured.
    pub changes: Vec<ChangeDocument>,
}

/// The comparison of one quantity of a point. Rates are in bytes per second, times in ns.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChangeDocument {
    /// The quantity that is compared.
    pub quantity: Quantity,
    /// Median of the baseline's trials.
    pub before: f64,
    /// Median of the other side's trials.
    pub after: f64,
    /// Value of the other side divided by the value of the baseline.
    pub ratio: f64,
    /// Lower bound of the 95% confidence interval of the ratio. Null if each side has only one
    /// trial.
    pub ratio_low: Option<f64>,
    /// Upper bound of the 95% confidence interval of the ratio. Null if each side has only one
    /// trial.
    pub ratio_high: Option<f64>,
    /// Effect size: the logarithm of the ratio, divided by the standard deviation of single trials.
    /// Null if the trials do not vary, or if each side has only one trial.
    pub effect_size: Option<f64>,
    /// Probability that the difference is due to chance, corrected for the number of points.
    pub probability: f64,
    /// Number of trials of the side that has fewer trials.
    pub trials: u32,
    /// Whether the trials of both sides were compared in pairs.
    pub paired: bool,
    /// Conclusion from the trials.
    pub verdict: Verdict,
    /// Number of further trials that each side needs for a clear verdict. Null if the verdict is
    /// clear, or if more than 10,000 trials would be needed.
    pub more_trials: Option<u32>,
}

impl ComparisonsDocument {
    /// Creates the document for comparisons that share one baseline.
    pub fn of(comparisons: &[Comparison], limits: &[Limit]) -> ComparisonsDocument {
        let regressions = comparisons.iter().flat_map(|comparison| {
            let found = limit::exceeded(comparison, limits).into_iter();
            found.map(|(point, change)| RegressionDocument {
                after: comparison.after_name.clone(),
                workload: point.workload.clone(),
                quantity: change.quantity,
                ratio: change.ratio.value,
            })
        });
        ComparisonsDocument {
            halfpower: Program::this(),
            comparisons: comparisons.iter().map(ComparisonDocument::from).collect(),
            regressions: regressions.collect(),
        }
    }
}

impl From<&Comparison> for ComparisonDocument {
    fn from(comparison: &Comparison) -> ComparisonDocument {
        let differences = |all: &[(String, String, String)]| {
            let of = |(name, before, after): &(String, String, String)| DifferenceDocument {
                name: name.clone(),
                before: before.clone(),
                after: after.clone(),
            };
            all.iter().map(of).collect()
        };
        ComparisonDocument {
            before: comparison.before_name.clone(),
            after: comparison.after_name.clone(),
            tolerated: comparison.tolerated,
            doubts: comparison.doubts.clone(),
            settings: differences(&comparison.settings),
            facts: differences(&comparison.facts),
            conclusions: differences(&comparison.conclusions),
            points: comparison.points.iter().map(PointChangeDocument::from).collect(),
            only_before: comparison.only_before.clone(),
            only_after: comparison.only_after.clone(),
        }
    }
}

impl From<&PointChange> for PointChangeDocument {
    fn from(point: &PointChange) -> PointChangeDocument {
        let changes = point.changes.iter().map(ChangeDocument::from).collect();
        PointChangeDocument { workload: point.workload.clone(), changes }
    }
}

impl From<&Change> for ChangeDocument {
    fn from(change: &Change) -> ChangeDocument {
        let Interval { value, low, high } = change.ratio;
        let has_interval = change.test.is_some();
        let deviation = change.test.map(|test| test.deviation).filter(|sd| *sd > 0.0);
        ChangeDocument {
            quantity: change.quantity,
            before: change.before,
            after: change.after,
            ratio: value,
            ratio_low: has_interval.then_some(low),
            ratio_high: has_interval.then_some(high),
            effect_size: deviation.map(|deviation| value.ln() / deviation),
            probability: change.probability,
            trials: change.test.map_or(1, |test| test.trials),
            paired: change.test.is_some_and(|test| test.paired),
            verdict: change.verdict,
            more_trials: change.more_trials,
        }
    }
}
