//! What a survey hands to the report: plain numbers and texts, nothing derived.
//!
//! The program fills a [`SurveyView`] from its own results; [`crate::survey_page`] arranges it.
//! Rates are bytes or requests per second, times nanoseconds, sizes bytes. Whatever is left empty
//! leaves its section out of the page.

use crate::model::{Advice, Finding, KeyFigure, State, Verdict};

/// A value with the interval around it, in one unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The median, or the fitted value.
    pub value: f64,
    /// Lower end of the 95% interval.
    pub low: f64,
    /// Upper end of the 95% interval.
    pub high: f64,
}

/// Everything a survey report shows.
#[derive(Debug, Clone, PartialEq)]
pub struct SurveyView {
    /// What was measured: path, file system, device.
    pub target: String,
    /// Where it was measured.
    pub host: String,
    /// When, ready to print.
    pub date: String,
    /// Whether the survey can be trusted.
    pub verdict: Verdict,
    /// Four to six numbers for the first screen.
    pub key_figures: Vec<KeyFigure>,
    /// What was found, most important first.
    pub findings: Vec<Finding>,
    /// What to change, best gain first.
    pub advice: Vec<Advice>,
    /// Rules that a survey does not price, one line each.
    pub rules_without_experiment: Vec<String>,
    /// Every point measured; the charts of rate, depth and CPU are drawn from these.
    pub points: Vec<PointView>,
    /// The peak advertised (or assumed) performance, one for each operation.
    pub pap: Vec<PapView>,
    /// Half-power points.
    pub half_power: Vec<HalfPowerView>,
    /// Fits of CPU cost against request size.
    pub cost_models: Vec<CostModelView>,
    /// Latency distributions of chosen points.
    pub distributions: Vec<DistributionView>,
    /// Throughput over time within chosen trials.
    pub time_series: Vec<TimeSeriesView>,
    /// The components of the pipeline; none when it was not measured.
    pub ladder: Option<LadderView>,
    /// What the instrument itself costs: name and value.
    pub instrument: Vec<(String, String)>,
    /// Groups of facts: heading, then name and value.
    pub provenance: Vec<(String, Vec<(String, String)>)>,
}

/// The order in which a point visits its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Each request follows the one before it.
    Sequential,
    /// Requests at random places.
    Random,
}

/// One workload with what its trials gave.
#[derive(Debug, Clone, PartialEq)]
pub struct PointView {
    /// Order of access.
    pub pattern: Pattern,
    /// `read`, `write` or a mix.
    pub operation: String,
    /// Caching mode: `buffered`, `direct` ...
    pub caching: String,
    /// Bytes of each request.
    pub request_bytes: u64,
    /// Requests outstanding per thread.
    pub depth: u32,
    /// Threads.
    pub threads: u32,
    /// Rate in bytes.
    pub throughput_bytes_per_s: Estimate,
    /// Rate in requests.
    pub requests_per_s: Estimate,
    /// Median latency.
    pub latency_p50_ns: Option<f64>,
    /// 99th percentile of latency.
    pub latency_p99_ns: Option<f64>,
    /// 99.9th percentile of latency.
    pub latency_p99_9_ns: Option<f64>,
    /// What the system charged to the process.
    pub cpu_lower_ns_per_request: Option<f64>,
    /// What the whole machine lost.
    pub cpu_upper_ns_per_request: Option<f64>,
    /// Trials made.
    pub trials: u32,
    /// Whether this point can be trusted.
    pub state: State,
}

/// The rate against which an operation is judged.
#[derive(Debug, Clone, PartialEq)]
pub struct PapView {
    /// `read`, `write` or a mix.
    pub operation: String,
    /// The rate.
    pub bytes_per_s: f64,
    /// Where it comes from: stated, advertised by the link, highest plateau measured.
    pub source: String,
}

/// Where one curve passes half of PAP.
#[derive(Debug, Clone, PartialEq)]
pub struct HalfPowerView {
    /// `read`, `write` or a mix.
    pub operation: String,
    /// Caching mode.
    pub caching: String,
    /// Requests outstanding per thread.
    pub depth: u32,
    /// Smallest measured request size above PAP/2; none when it was never reached.
    pub measured_bytes: Option<u64>,
    /// The same from the fit T = f + s S.
    pub fitted_bytes: Option<f64>,
    /// The rate at the measured half-power point.
    pub throughput_bytes_per_s: Option<f64>,
    /// Why there is none, or how sure it is; may be empty.
    pub remark: String,
}

/// CPU cost as fixed plus marginal cost.
#[derive(Debug, Clone, PartialEq)]
pub struct CostModelView {
    /// `read`, `write` or a mix.
    pub operation: String,
    /// Caching mode.
    pub caching: String,
    /// Cost of a request of no bytes.
    pub fixed_ns: Estimate,
    /// Cost of each further KiB.
    pub marginal_ns_per_kib: Estimate,
    /// Share of the variance the fit explains.
    pub r2: f64,
    /// Each point of the fit.
    pub residuals: Vec<ResidualView>,
}

/// One point of a cost fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResidualView {
    /// Bytes of each request.
    pub request_bytes: u64,
    /// CPU per request, measured.
    pub measured_ns: f64,
    /// CPU per request, by the fit.
    pub fitted_ns: f64,
}

/// The latency distribution of one point.
#[derive(Debug, Clone, PartialEq)]
pub struct DistributionView {
    /// Which point.
    pub name: String,
    /// Latency in nanoseconds and the share of requests at or below it, both ascending. Long
    /// lists are thinned for drawing.
    pub cumulative: Vec<(f64, f64)>,
}

/// Throughput within one trial.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeSeriesView {
    /// Which trial.
    pub name: String,
    /// Seconds since the trial began, and bytes per second in the interval that ended then.
    pub samples: Vec<(f64, f64)>,
}

/// Advertised and delivered rates along the pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct LadderView {
    /// The components in pipeline order.
    pub rungs: Vec<RungView>,
    /// Which component binds, and the evidence.
    pub conclusion: String,
}

/// One component.
#[derive(Debug, Clone, PartialEq)]
pub struct RungView {
    /// Its name.
    pub component: String,
    /// Advertised rate.
    pub pap_bytes_per_s: Option<f64>,
    /// Delivered rate.
    pub rap_bytes_per_s: Option<f64>,
    /// Whether this one limits the whole.
    pub binding: bool,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::Tone;

    pub(crate) fn estimate(value: f64) -> Estimate {
        Estimate { value, low: value * 0.9, high: value * 1.1 }
    }

    /// A point of plausible numbers, which a test changes where it matters.
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

    /// A survey that measured nothing.
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

    /// A survey with something in every part, all its texts derived from `word`.
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
            findings: vec![Finding { headline: text(), detail: text(), tone: Tone::Warn }],
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
            }],
            time_series: vec![TimeSeriesView {
                name: text(),
                samples: vec![(0.1, 1e9), (0.2, 1.1e9), (0.3, 1.05e9)],
            }],
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
