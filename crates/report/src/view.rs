//! The input of a survey report: plain numbers and texts.
//!
//! The program fills a [`SurveyView`] from its results, and [`crate::survey_page`] creates the page
//! from this view. Rates are in bytes or requests per second, times in nanoseconds, sizes in bytes.
//! A section without data is left out of the page.

use crate::model::{Advice, Finding, KeyFigure, State, Verdict};

/// A value with its 95% confidence interval. All three numbers have the same unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The estimated value: a median or the result of a fit.
    pub value: f64,
    /// Lower end of the 95% interval.
    pub low: f64,
    /// Upper end of the 95% interval.
    pub high: f64,
}

/// All contents of a survey report.
#[derive(Debug, Clone, PartialEq)]
pub struct SurveyView {
    /// Description of the measured target: path, file system and device.
    pub target: String,
    /// Description of the machine.
    pub host: String,
    /// Date of the survey, formatted for readers.
    pub date: String,
    /// Whether the survey can be trusted.
    pub verdict: Verdict,
    /// Four to six key figures for the top of the page.
    pub key_figures: Vec<KeyFigure>,
    /// Findings, with the most important finding first.
    pub findings: Vec<Finding>,
    /// Recommended changes, with the largest gain first.
    pub advice: Vec<Advice>,
    /// Advice rules that a survey does not check. Each line names one rule and the study that
    /// checks this rule.
    pub rules_without_experiment: Vec<String>,
    /// All measured points. The charts of throughput, depth and CPU time are drawn from these.
    pub points: Vec<PointView>,
    /// PAP (peak advertised or assumed performance) of each operation.
    pub pap: Vec<PapView>,
    /// Half-power points, one for each curve.
    pub half_power: Vec<HalfPowerView>,
    /// Fits of CPU cost as a function of request size.
    pub cost_models: Vec<CostModelView>,
    /// Latency distributions of selected points.
    pub distributions: Vec<DistributionView>,
    /// Throughput over time of selected trials.
    pub time_series: Vec<TimeSeriesView>,
    /// Rates of the pipeline's components. None if they were not measured.
    pub ladder: Option<LadderView>,
    /// Overhead of halfpower itself, as pairs of name and value.
    pub instrument: Vec<(String, String)>,
    /// Groups of facts about the run. Each group has a heading and a list of names with values.
    pub provenance: Vec<(String, Vec<(String, String)>)>,
}

/// Access pattern of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Each request starts at the end of the previous request.
    Sequential,
    /// Each request starts at a random offset.
    Random,
}

/// A workload with the results of its trials.
#[derive(Debug, Clone, PartialEq)]
pub struct PointView {
    /// Access pattern.
    pub pattern: Pattern,
    /// Operation: `read`, `write` or a mix.
    pub operation: String,
    /// Caching mode: `buffered`, `direct` ...
    pub caching: String,
    /// Request size in bytes.
    pub request_bytes: u64,
    /// Number of requests outstanding per thread.
    pub depth: u32,
    /// Number of threads.
    pub threads: u32,
    /// Throughput (bytes/s).
    pub throughput_bytes_per_s: Estimate,
    /// Request rate (requests/s).
    pub requests_per_s: Estimate,
    /// Median latency (ns). None if not measured.
    pub latency_p50_ns: Option<f64>,
    /// 99th percentile of latency (ns). None if not measured.
    pub latency_p99_ns: Option<f64>,
    /// 99.9th percentile of latency (ns). None if not measured.
    pub latency_p99_9_ns: Option<f64>,
    /// CPU time per request that the kernel charges to the process (ns). None if not measured.
    pub cpu_lower_ns_per_request: Option<f64>,
    /// CPU time per request that the whole machine spends because of the workload (ns). None if not
    /// measured.
    pub cpu_upper_ns_per_request: Option<f64>,
    /// Number of trials.
    pub trials: u32,
    /// Whether this point can be trusted.
    pub state: State,
}

/// The reference rate (PAP) of an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct PapView {
    /// Operation: `read`, `write` or a mix.
    pub operation: String,
    /// Reference rate (bytes/s).
    pub bytes_per_s: f64,
    /// Source of the rate: stated by the user, advertised by the link, or measured as the highest
    /// plateau.
    pub source: String,
}

/// The half-power point of one curve.
#[derive(Debug, Clone, PartialEq)]
pub struct HalfPowerView {
    /// Operation: `read`, `write` or a mix.
    pub operation: String,
    /// Caching mode.
    pub caching: String,
    /// Number of requests outstanding per thread.
    pub depth: u32,
    /// Smallest measured request size whose throughput exceeds PAP/2 (bytes). None if no size
    /// reaches it.
    pub measured_bytes: Option<u64>,
    /// Half-power point of the fitted model T = f + s S (bytes). In the model, T is the time that a
    /// request of S bytes takes. None if the fit has no half-power point.
    pub fitted_bytes: Option<f64>,
    /// Throughput at the measured half-power point (bytes/s). None if there is no such point.
    pub throughput_bytes_per_s: Option<f64>,
    /// Why there is no half-power point, or how certain it is. May be empty.
    pub remark: String,
}

/// Fit of CPU cost: a fixed cost per request plus a marginal cost per KiB.
#[derive(Debug, Clone, PartialEq)]
pub struct CostModelView {
    /// Operation: `read`, `write` or a mix.
    pub operation: String,
    /// Caching mode.
    pub caching: String,
    /// Fixed cost per request (ns).
    pub fixed_ns: Estimate,
    /// Marginal cost per KiB (ns).
    pub marginal_ns_per_kib: Estimate,
    /// Share of the variance that the fit explains (0 to 1).
    pub r2: f64,
    /// Measured and fitted cost at each request size.
    pub residuals: Vec<ResidualView>,
}

/// One request size of a cost fit, with measured and fitted cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResidualView {
    /// Request size in bytes.
    pub request_bytes: u64,
    /// Measured CPU time per request (ns).
    pub measured_ns: f64,
    /// Fitted CPU time per request (ns).
    pub fitted_ns: f64,
}

/// The latency distribution of one point.
#[derive(Debug, Clone, PartialEq)]
pub struct DistributionView {
    /// Name of the point.
    pub name: String,
    /// Latencies (ns), each with the share of requests that took at most this long. Latencies and
    /// shares ascend. Long lists are thinned out for drawing.
    pub cumulative: Vec<(f64, f64)>,
    /// Number of requests.
    pub requests: u64,
}

/// Throughput within one trial.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeSeriesView {
    /// Name of the trial.
    pub name: String,
    /// Throughput of each interval: the end of the interval (s since the start of the trial), and
    /// the throughput in the interval (bytes/s).
    pub samples: Vec<(f64, f64)>,
}

/// Advertised and delivered rates of the pipeline's components.
#[derive(Debug, Clone, PartialEq)]
pub struct LadderView {
    /// The components in pipeline order.
    pub rungs: Vec<RungView>,
    /// Text that names the bottleneck and the evidence for it.
    pub conclusion: String,
}

/// A component of the pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct RungView {
    /// Name of the component.
    pub component: String,
    /// Advertised rate (bytes/s). None if unknown.
    pub pap_bytes_per_s: Option<f64>,
    /// Delivered rate (bytes/s). None if unknown.
    pub rap_bytes_per_s: Option<f64>,
    /// Whether the component is the bottleneck.
    pub binding: bool,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::Tone;

    pub(crate) fn estimate(value: f64) -> Estimate {
        Estimate { value, low: value * 0.9, high: value * 1.1 }
    }

    pub(crate) fn point(
        operation: &str,
        caching: &str,
        request_bytes: u64,
        depth: u32,
    ) -> PointView {
        let rate = request_bytes as f64 * f64::from(depth) * 1e4;
        PointView {
            pattern: Pattern::Sequential,
            operation: operation.to_string(),
            caching: caching.to_string(),
            request_bytes,
            depth,
            threads: 1,
            throughput_bytes_per_s: estimate(rate),
            requests_per_s: estimate(rate / request_bytes as f64),
            latency_p50_ns: Some(1e5),
            latency_p99_ns: Some(3e5),
            latency_p99_9_ns: Some(9e5),
            cpu_lower_ns_per_request: Some(3e3),
            cpu_upper_ns_per_request: Some(4e3),
            trials: 3,
            state: State::Valid,
        }
    }

    /// Returns a survey without measurements.
    pub(crate) fn empty() -> SurveyView {
        SurveyView {
            target: "/mnt/data".to_string(),
            host: "host".to_string(),
            date: "today".to_string(),
            verdict: Verdict { state: State::Valid, reasons: Vec::new(), in_doubt: None },
            key_figures: Vec::new(),
            findings: Vec::new(),
            advice: Vec::new(),
            rules_without_experiment: Vec::new(),
            points: Vec::new(),
            pap: Vec::new(),
            half_power: Vec::new(),
            cost_models: Vec::new(),
            distributions: Vec::new(),
            time_series: Vec::new(),
            ladder: None,
            instrument: Vec::new(),
            provenance: Vec::new(),
        }
    }

    fn finding(word: &str) -> Finding {
        let [id, headline, detail] = [(); 3].map(|()| word.to_string());
        Finding { id, headline, detail, tone: Tone::Warn }
    }

    fn over_time(word: &str) -> TimeSeriesView {
        let samples = vec![(0.1, 1e9), (0.2, 1.1e9), (0.3, 1.05e9)];
        TimeSeriesView { name: word.to_string(), samples }
    }

    /// Returns a survey in which every field is filled. Most texts are `word`.
    pub(crate) fn full(word: &str) -> SurveyView {
        let text = || word.to_string();
        let mut points = Vec::new();
        for caching in ["direct", "buffered"] {
            for size in [4096, 65_536, 1 << 20] {
                points.extend([1, 4, 16].map(|depth| point(word, caching, size, depth)));
            }
        }
        let random =
            |depth| PointView { pattern: Pattern::Random, ..point(word, word, 8192, depth) };
        points.extend([1, 8, 64].map(random));
        let residual =
            |request_bytes| ResidualView { request_bytes, measured_ns: 3.1e3, fitted_ns: 3e3 };
        SurveyView {
            target: text(),
            host: text(),
            verdict: Verdict {
                state: State::Suspect,
                reasons: vec![text()],
                in_doubt: Some(text()),
            },
            key_figures: vec![KeyFigure { label: text(), value: text(), note: text() }],
            findings: vec![finding(word)],
            advice: vec![Advice {
                id: text(),
                text: text(),
                gain: text(),
                how: text(),
                evidence: text(),
            }],
            rules_without_experiment: vec![text()],
            points,
            pap: vec![PapView { operation: text(), bytes_per_s: 4e9, source: text() }],
            half_power: vec![HalfPowerView {
                operation: text(),
                caching: "direct".to_string(),
                depth: 16,
                measured_bytes: Some(65_536),
                fitted_bytes: Some(50_000.0),
                throughput_bytes_per_s: Some(2.1e9),
                remark: text(),
            }],
            cost_models: vec![CostModelView {
                operation: text(),
                caching: text(),
                fixed_ns: estimate(3e3),
                marginal_ns_per_kib: estimate(12.0),
                r2: 0.99,
                residuals: [4096, 65_536, 1 << 20].map(residual).to_vec(),
            }],
            distributions: vec![DistributionView {
                name: text(),
                cumulative: vec![(1e5, 0.5), (2e5, 0.99), (4e5, 0.9999), (9e5, 1.0)],
                requests: 10_000,
            }],
            time_series: vec![over_time(word)],
            ladder: Some(LadderView {
                rungs: vec![RungView {
                    component: text(),
                    pap_bytes_per_s: Some(4e9),
                    rap_bytes_per_s: Some(3e9),
                    binding: true,
                }],
                conclusion: text(),
            }),
            instrument: vec![(text(), text())],
            provenance: vec![(text(), vec![(text(), text())])],
            ..empty()
        }
    }

    #[test]
    fn the_full_sample_has_something_in_every_part() {
        let (full, empty) = (full("x"), empty());
        assert!(full.points.len() > empty.points.len() && full.ladder.is_some());
        assert!(!full.rules_without_experiment.is_empty() && !full.instrument.is_empty());
    }
}
