//! The JSON document of `survey --json`. Its schema is published in `docs/schema`.
//!
//! Rates are in bytes per second, times in nanoseconds.

use analysis::interval::Interval;
use analysis::ladder::Rung;
use ioengine::Op;
use lab::evidence::MeasuredPoint;
use lab::json::{PointDocument, Program, VerdictDocument};
use lab::machine::{Host, TargetFacts};
use report::model::Finding;
use schemars::JsonSchema;
use serde::Serialize;

use crate::advice::{self, Advice};
use crate::findings;
use crate::half_power::{HalfPower, PathShare};
use crate::insight::{Cost, HalfPowerDepth, Insight, Pap};
use crate::survey_data::{Facts, SurveyData};
use crate::visits::SecondVisit;

/// The document that `survey --json` prints.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SurveyDocument {
    /// The program that wrote the document.
    pub halfpower: Program,
    /// The host that ran the survey.
    pub host: Host,
    /// The target of the survey.
    pub target: TargetFacts,
    /// Every measured point with its trials.
    pub points: Vec<PointDocument>,
    /// Peak rate (PAP) of each operation: the rate stated with --pap, the advertised rate of a
    /// link, or the highest rate measured.
    pub pap: Vec<Pap>,
    /// Half-power request size of each curve of sequential requests.
    pub half_power: Vec<HalfPowerDocument>,
    /// Half-power depth of each request size.
    pub half_power_depth: Vec<HalfPowerDepth>,
    /// CPU cost of a request at depth 1: a fixed cost, and a cost per KiB.
    pub cost_model: Vec<CostDocument>,
    /// The bottleneck ladder: the components between memory and device, with their rates.
    pub ladder: Vec<RungDocument>,
    /// The out-of-box settings: buffered requests of 64 KiB, one at a time.
    pub out_of_box: SettingsDocument,
    /// The best settings. Several settings can be, within noise, as fast as the fastest setting. Of
    /// these, the best setting has the least data in flight.
    pub best: SettingsDocument,
    /// The findings as text.
    pub findings: Vec<FindingDocument>,
    /// At least one piece of advice. Advice that improves throughput precedes advice that saves CPU
    /// time. Within each group, the greatest gain is first (gains within a factor of 1.5 count as
    /// equal).
    pub advice: Vec<Advice>,
    /// Advice rules whose gain a survey cannot measure. Each rule is listed with the study that
    /// measures the gain.
    pub advice_without_experiment: Vec<SilentDocument>,
    /// Overhead of halfpower itself, and measurements that this host does not allow.
    pub instrument: InstrumentDocument,
    /// The blocks that sequential trials accessed.
    pub coverage: CoverageDocument,
    /// The verdict on the survey.
    pub verdict: VerdictDocument,
    /// Bytes written, including the test file; 0 if the target is simulated.
    pub written_bytes: u64,
    /// Duration of the survey (ns).
    pub elapsed_ns: u64,
    /// The files that the survey wrote.
    pub wrote: WroteDocument,
}

/// The blocks that sequential trials accessed. Trials access fresh blocks until all blocks were
/// accessed, then the least recently accessed blocks.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CoverageDocument {
    /// Size of the test file or region.
    pub region_bytes: u64,
    /// Bytes accessed by reads. May exceed the size of the region, because blocks are reused.
    pub read_bytes: u64,
    /// Bytes accessed by writes. May exceed the size of the region, because blocks are reused.
    pub written_bytes: u64,
    /// Ratio of the rate of a second read of the same blocks to the rate of the first read. Null if
    /// the second read was not clearly faster, or if this was not tested.
    pub second_visit_times: Option<f64>,
}

/// The half-power size of one curve: the request size at which the rate exceeds half of the peak.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HalfPowerDocument {
    /// The operation: read or write.
    pub operation: String,
    /// Caching mode.
    pub caching: String,
    /// Queue depth: the number of outstanding requests.
    pub depth: u32,
    /// Smallest measured size with a rate above half of the peak. Null if there is no such size.
    pub request_bytes_measured: Option<u64>,
    /// Half-power size according to the fit T = f + s S, where T is the time of a request of S
    /// bytes. Null if the fit gives no such size.
    pub request_bytes_fitted: Option<f64>,
    /// Request size f/s at which the fitted rate reaches half of its asymptote (Hockney's
    /// n-one-half). Null if there is no fit.
    pub request_bytes_half_asymptote: Option<ValueDocument>,
    /// Smallest measured size whose rate may exceed half of the peak, because the upper end of the
    /// rate's interval exceeds it. Null if the intervals leave no doubt about the half-power size.
    pub request_bytes_perhaps: Option<u64>,
    /// Smallest measured size whose rate certainly exceeds half of the peak, because the lower end
    /// of the rate's interval exceeds it. Null if the intervals leave no doubt about the half-power
    /// size.
    pub request_bytes_surely: Option<u64>,
    /// How much of the fixed time per request is CPU time of the I/O path. Null at depths above 1,
    /// and if unknown.
    pub path: Option<PathShare>,
    /// Rate at `request_bytes_measured`.
    pub throughput_bytes_per_s: Option<f64>,
    /// Peak rate of the operation.
    pub pap_bytes_per_s: f64,
    /// Source of the peak rate, as text.
    pub pap_source: String,
    /// Why the measured or the fitted size is null.
    pub reason: Option<String>,
}

/// An estimated value with its 95% interval.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ValueDocument {
    /// The estimated value.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl From<Interval> for ValueDocument {
    fn from(interval: Interval) -> Self {
        ValueDocument { value: interval.value, low: interval.low, high: interval.high }
    }
}

/// The CPU cost of a request, fitted as a fixed cost plus a cost per KiB.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CostDocument {
    /// The operation: read or write.
    pub operation: String,
    /// Caching mode.
    pub caching: String,
    /// Fixed CPU time per request.
    pub fixed_ns: ValueDocument,
    /// Additional CPU time per KiB of a request.
    pub marginal_ns_per_kib: ValueDocument,
    /// Share of the variance that the fit explains (R squared).
    pub r2: f64,
}

/// A component of the bottleneck ladder.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RungDocument {
    /// Name of the component.
    pub component: String,
    /// Advertised or stated rate. Null if unknown.
    pub pap_bytes_per_s: Option<f64>,
    /// Measured rate. Null if the component was not measured separately.
    pub rap_bytes_per_s: Option<f64>,
    /// Whether the component limits the fastest reads.
    pub binding: bool,
}

/// The settings of reads and of writes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SettingsDocument {
    /// Setting of reads; null if no reads were measured.
    pub read: Option<SettingDocument>,
    /// Setting of writes; null if no writes were measured.
    pub write: Option<SettingDocument>,
}

/// A setting with its measured rate and CPU time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SettingDocument {
    /// Caching mode.
    pub caching: String,
    /// Request size.
    pub request_bytes: u64,
    /// Queue depth: the number of outstanding requests.
    pub depth: u32,
    /// Measured rate with this setting.
    pub throughput_bytes_per_s: ValueDocument,
    /// CPU time of the process per request.
    pub cpu_ns_per_request: Option<f64>,
}

/// A finding.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FindingDocument {
    /// Identifier. `halfpower explain` with this identifier explains the finding.
    pub id: String,
    /// The finding as text.
    pub text: String,
}

impl From<&Finding> for FindingDocument {
    fn from(finding: &Finding) -> FindingDocument {
        FindingDocument { id: finding.id.clone(), text: finding.text() }
    }
}

/// A rule of advice whose gain only a study measures.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SilentDocument {
    /// Name of the rule.
    pub id: String,
    /// Paper and section that state the rule.
    pub paper: String,
    /// Name of the study that measures the gain.
    pub experiment: String,
}

/// Overhead of halfpower itself, and measurements that this host does not allow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InstrumentDocument {
    /// CPU time of halfpower itself per request, measured on the null I/O engine with full
    /// statistics.
    pub null_cpu_ns_per_request: Option<f64>,
    /// Measurements that are not available on this host.
    pub missing: Vec<String>,
}

/// The files that the survey wrote.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct WroteDocument {
    /// Path of the database. Null with --no-store, or if the database could not be written.
    pub db: Option<String>,
    /// Path of the HTML page. Null if no page was requested, or if it could not be written.
    pub html: Option<String>,
}

/// Builds the document of a survey.
pub fn of(data: &SurveyData, insight: &Insight<'_>, wrote: WroteDocument) -> SurveyDocument {
    let binding = insight.binding.as_ref().map(|binding| binding.index);
    let rung = |(index, rung): (usize, &Rung)| RungDocument {
        component: rung.component.clone(),
        pap_bytes_per_s: rung.pap_bytes_per_s,
        rap_bytes_per_s: rung.rap_bytes_per_s,
        binding: binding == Some(index),
    };
    SurveyDocument {
        halfpower: Program::this(),
        host: data.evidence.host.clone(),
        target: data.target().clone(),
        points: insight.seen.iter().map(|point| PointDocument::from(&point.point)).collect(),
        pap: insight.pap.clone(),
        half_power: insight.half_power.iter().map(|h| half_power(insight, h)).collect(),
        half_power_depth: insight.half_power_depth.clone(),
        cost_model: costs(insight),
        ladder: insight.rungs.iter().enumerate().map(rung).collect(),
        out_of_box: settings(|op| insight.out_of_box(op)),
        best: settings(|op| insight.best(op)),
        findings: findings_of(data, insight),
        advice: advice::of(insight),
        advice_without_experiment: silent(),
        instrument: InstrumentDocument {
            null_cpu_ns_per_request: data.facts.floor_ns_per_request,
            missing: data.facts.missing.clone(),
        },
        coverage: coverage(&data.facts),
        verdict: (&insight.verdict).into(),
        written_bytes: data.facts.written_bytes,
        elapsed_ns: data.facts.elapsed_ns,
        wrote,
    }
}

fn coverage(facts: &Facts) -> CoverageDocument {
    CoverageDocument {
        region_bytes: facts.region_bytes,
        read_bytes: facts.visits.read_bytes,
        written_bytes: facts.visits.written_bytes,
        second_visit_times: facts.second_visit.as_ref().and_then(SecondVisit::times_faster),
    }
}

fn half_power(insight: &Insight<'_>, found: &HalfPower) -> HalfPowerDocument {
    let pap = insight.pap.iter().find(|pap| pap.operation == found.operation);
    let fit = found.fit.as_ref();
    let no_fit = || match fit {
        Err(why) => Some(format!("no fit: {why}")),
        Ok(_) if found.fitted.is_none() => {
            Some("the fitted curve never reaches half of the peak".to_owned())
        }
        Ok(_) => None,
    };
    HalfPowerDocument {
        operation: found.operation.to_string(),
        caching: found.caching.name().to_owned(),
        depth: found.depth,
        request_bytes_measured: found.measured,
        request_bytes_fitted: found.fitted,
        request_bytes_half_asymptote: fit.ok().map(|fit| fit.half_power_bytes.into()),
        request_bytes_perhaps: found.between.map(|(perhaps, _)| perhaps),
        request_bytes_surely: found.between.map(|(_, surely)| surely),
        path: found.path,
        throughput_bytes_per_s: found.rate,
        pap_bytes_per_s: pap.map_or(0.0, |pap| pap.bytes_per_s),
        pap_source: pap.map(|pap| pap.source.clone()).unwrap_or_default(),
        reason: found.reason.clone().or_else(no_fit),
    }
}

fn costs(insight: &Insight<'_>) -> Vec<CostDocument> {
    let document = |cost: &Cost| CostDocument {
        operation: cost.operation.to_string(),
        caching: cost.caching.name().to_owned(),
        fixed_ns: cost.model.fixed_ns.into(),
        marginal_ns_per_kib: cost.model.marginal_ns_per_kib.into(),
        r2: cost.model.r2,
    };
    insight.costs.iter().map(document).collect()
}

fn settings<'a, 'b: 'a>(choose: impl Fn(Op) -> Option<&'a MeasuredPoint>) -> SettingsDocument {
    let document = |point: &MeasuredPoint| SettingDocument {
        caching: point.key().caching.name().to_owned(),
        request_bytes: point.key().request_bytes(),
        depth: point.key().depth(),
        throughput_bytes_per_s: point.summary.bytes_per_s.into(),
        cpu_ns_per_request: point.summary.cpu_lower_ns,
    };
    SettingsDocument {
        read: choose(Op::Read).map(document),
        write: choose(Op::Write).map(document),
    }
}

fn findings_of(data: &SurveyData, insight: &Insight<'_>) -> Vec<FindingDocument> {
    findings::of(data, insight).iter().map(FindingDocument::from).collect()
}

fn silent() -> Vec<SilentDocument> {
    let document = |(rule, experiment): (advice::Rule, String)| SilentDocument {
        id: rule.id,
        paper: rule.paper,
        experiment,
    };
    advice::silent().into_iter().map(document).collect()
}
