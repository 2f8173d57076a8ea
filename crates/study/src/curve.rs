//! Analyses points by request size: the peak rate, the half-power size, and the CPU cost per
//! request and per byte.
//!
//! This module also compares two points and decides whether they differ by more than noise.

use analysis::costmodel::{self, CostModel, CostPoint};
use analysis::halfpower;
use lab::evidence::{Evidence, MeasuredPoint};
use survey::half_power::{self, REPEATABLE};

use crate::conclusion::words_of_times;

/// The measured plateau is used as the peak if the highest rate is at most this many times the rate
/// of the plateau.
const PLATEAU_REACH: f64 = 1.25;
/// Two rates are "the same" if they differ by at most this share.
const SAME: f64 = 0.1;
/// A request size "reaches" the peak if its rate is at least this share of the highest rate.
const AT_PEAK: f64 = 0.9;

/// The minimum and the maximum relative error that are assumed for a CPU time.
const CPU_ERRORS: (f64, f64) = (0.03, 0.5);

/// Fits a cost model (a fixed cost per request and a cost per KiB) to the costs that `of` returns.
/// None if no costs were measured or the fit fails.
pub fn cost_model(
    points: &[&MeasuredPoint],
    of: impl Fn(&MeasuredPoint) -> Option<f64>,
) -> Option<CostModel> {
    let cost_point = |point: &&MeasuredPoint| {
        let error = point.summary.requests_per_s.half_width_relative();
        let relative_error = error.clamp(CPU_ERRORS.0, CPU_ERRORS.1);
        Some(CostPoint { request_bytes: point.bytes(), cpu_ns: of(point)?, relative_error })
    };
    let points: Vec<CostPoint> = points.iter().filter_map(cost_point).collect();
    costmodel::fit(&points).ok()
}

/// Returns the usable points with these flags, sorted by request size.
pub fn by_size<'a>(evidence: &'a Evidence, flags: &[(&str, &str)]) -> Vec<&'a MeasuredPoint> {
    let mut points = evidence.all(flags);
    points.sort_by_key(|point| point.bytes());
    points
}

/// Returns the peak advertised performance for a curve (bytes per second), and its source. The peak
/// is `--pap`. If this is not set, it is the slowest advertised rate of a link. If no such rate is
/// known, it is the measured plateau, or without a plateau the highest measured rate.
pub fn pap(evidence: &Evidence, curve: &[&MeasuredPoint]) -> Option<(f64, String)> {
    let rates: Vec<f64> = curve.iter().map(|point| point.rate()).collect();
    let highest = rates.iter().copied().reduce(f64::max)?;
    if let Some(stated) = evidence.pap_bytes_per_s {
        return Some((stated, "stated with --pap".to_owned()));
    }
    let links = evidence.targets.first().map(|target| target.links.as_slice()).unwrap_or_default();
    if let Some(link) = links.iter().min_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s)) {
        return Some((link.bytes_per_s, format!("advertised by the {}", link.component)));
    }
    let plateau = halfpower::plateau(&rates).filter(|plateau| highest <= plateau * PLATEAU_REACH);
    Some(match plateau {
        Some(plateau) => (plateau, "the measured plateau".to_owned()),
        None => (highest, "the highest measured rate".to_owned()),
    })
}

/// Returns the half-power size (bytes) twice: the smallest measured request size whose rate exceeds
/// half of the peak, and the size from a fit. The fit models the time of a request of S bytes as
/// T = f + s S.
pub fn half_power(curve: &[&MeasuredPoint], pap: f64) -> (Option<u64>, Option<f64>) {
    let rates: Vec<(u64, f64)> = curve.iter().map(|point| (point.bytes(), point.rate())).collect();
    let fitted = half_power::fit(curve).ok().and_then(|fit| fit.fit_against(pap));
    (halfpower::measured(&rates, pap), fitted)
}

/// Returns the smallest request size whose rate is at least 90% of the highest rate (bytes).
pub fn reaches_peak(curve: &[&MeasuredPoint]) -> Option<u64> {
    let top = curve.iter().map(|point| point.rate()).reduce(f64::max)?;
    curve.iter().find(|point| point.rate() >= AT_PEAK * top).map(|point| point.bytes())
}

/// Returns the share of one CPU that the process uses, from the CPU time charged to it.
pub fn utilisation(point: &MeasuredPoint) -> Option<f64> {
    point.cpu_ns().map(|ns| ns * point.requests_per_s() / 1e9)
}

/// Checks whether the rates of two points differ by more than noise: their intervals do not
/// overlap, and the rates differ by more than [`REPEATABLE`].
pub fn differ(one: &MeasuredPoint, other: &MeasuredPoint) -> bool {
    let (a, b) = (one.summary.bytes_per_s, other.summary.bytes_per_s);
    let apart = a.low > b.high || b.low > a.high;
    apart && (a.value - b.value).abs() > REPEATABLE * a.value.max(b.value)
}

/// The result of a comparison of two rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Comparison {
    /// The rates differ by at most 10%, even if noise is taken into account.
    Same,
    /// The rates differ by more than noise. The value is the first rate divided by the second.
    Times(f64),
    /// Noise hides whether the rates differ. The value is the uncertainty of their ratio (share).
    Unclear(f64),
}

/// Compares the rate of a point with the rate of another point.
pub fn compare(one: &MeasuredPoint, other: &MeasuredPoint) -> Comparison {
    let (a, b) = (one.summary.bytes_per_s, other.summary.bytes_per_s);
    if differ(one, other) {
        return Comparison::Times(a.value / b.value.max(1.0));
    }
    let (low, high) = (a.low / b.high.max(1.0), a.high / b.low.max(1.0));
    let wide = (1.0 - low).max(high - 1.0);
    if wide <= SAME { Comparison::Same } else { Comparison::Unclear(wide) }
}

impl Comparison {
    /// Returns the ratio of the two rates. None if noise hides the ratio.
    pub fn times(self) -> Option<f64> {
        match self {
            Comparison::Same => Some(1.0),
            Comparison::Times(times) => Some(times),
            Comparison::Unclear(_) => None,
        }
    }

    /// Formats the comparison: "1.20 times", "the same within 10%" or "no measurable difference
    /// (±30%)".
    pub fn words(self) -> String {
        match self {
            Comparison::Same => "the same within 10%".to_owned(),
            Comparison::Times(times) => words_of_times(times),
            Comparison::Unclear(wide) if wide.is_finite() && wide < 10.0 => {
                format!("no measurable difference (±{:.0}%)", 100.0 * wide)
            }
            Comparison::Unclear(_) => "no measurable difference".to_owned(),
        }
    }

    /// If noise makes a claim about the two points untestable, returns a text that says so. None if
    /// the claim can be tested.
    pub fn noise(self) -> Option<String> {
        let words = self.words();
        let remedy = "measure for longer (--runtime, --trials)";
        matches!(self, Comparison::Unclear(_)).then(|| format!("noise: {words}; {remedy}"))
    }
}

/// Finds the step of a latency curve, whose points are (position, latency in ns). Returns the last
/// position before the step, the first position after it, and the latency that separates low from
/// high (ns). None if the last latency is less than `gain` times the first, or if the curve does
/// not rise in one step.
pub fn edge(curve: &[(u64, f64)], gain: f64) -> Option<(u64, u64, f64)> {
    let (low, high) = (curve.first()?.1, curve.last()?.1);
    if high < gain * low {
        return None;
    }
    let threshold_ns = (low * high).sqrt();
    let above = curve.iter().rev().take_while(|(_, ns)| *ns >= threshold_ns).count();
    let (below, above) = curve.split_at(curve.len() - above);
    let in_order = below.iter().all(|(_, ns)| *ns < threshold_ns);
    in_order.then_some((below.last()?.0, above.first()?.0, threshold_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::units;
    use lab::evidence::testing::{cell, evidence};
    use lab::machine::{LinkFacts, TargetFacts};

    /// Builds points of a device that takes 50 us for each request plus 1 ns for each byte.
    fn model() -> Evidence {
        let sizes = ["4k", "16k", "64k", "256k", "1m"];
        let points = sizes.map(|bs| {
            let bytes = units::parse_size(bs).unwrap() as f64;
            cell((bytes * 1e9 / (50_000.0 + bytes)) as u64, &[("bs", bs)])
        });
        evidence(points.to_vec())
    }

    #[test]
    fn the_half_power_size_is_found_by_measurement_and_by_fit() {
        let evidence = model();
        let curve = by_size(&evidence, &[]);
        let (measured, fitted) = half_power(&curve, 1e9);
        assert_eq!(measured, Some(64 << 10));
        assert!((fitted.unwrap() / 50_000.0 - 1.0).abs() < 0.02, "{fitted:?}");
        assert_eq!(reaches_peak(&curve), Some(1 << 20));
    }

    #[test]
    fn the_peak_is_stated_or_advertised_or_measured() {
        let mut evidence = model();
        let source = |evidence: &Evidence| pap(evidence, &by_size(evidence, &[])).unwrap().1;
        assert_eq!(source(&evidence), "the highest measured rate");
        let link =
            LinkFacts { component: "SATA link".into(), bytes_per_s: 6e8, source: "x".into() };
        evidence.targets.push(TargetFacts { links: vec![link], ..TargetFacts::default() });
        assert_eq!(source(&evidence), "advertised by the SATA link");
        evidence.pap_bytes_per_s = Some(1e9);
        assert_eq!(source(&evidence), "stated with --pap");
    }

    #[test]
    fn overlapping_intervals_do_not_differ() {
        let (mut one, other) = (cell(1000, &[]), cell(1100, &[]));
        assert!(differ(&one, &other));
        one.summary.bytes_per_s.high = 1150.0;
        assert!(!differ(&one, &other));
        assert!(!differ(&cell(1000, &[]), &cell(1020, &[])));
    }

    #[test]
    fn an_edge_lies_between_the_last_low_and_the_first_high_point() {
        let ends = |curve: &[(u64, f64)]| edge(curve, 1.5).map(|(low, high, _)| (low, high));
        assert_eq!(ends(&[(1, 10.0), (2, 11.0), (4, 90.0), (8, 100.0)]), Some((2, 4)));
        assert_eq!(ends(&[(1, 10.0), (2, 90.0), (4, 11.0), (8, 100.0)]), None);
        assert_eq!(ends(&[(1, 10.0), (2, 12.0)]), None);
        assert_eq!(ends(&[]), None);
    }

    #[test]
    fn rates_are_the_same_only_if_known_to_be_close() {
        let (mut one, other) = (cell(1020, &[]), cell(1000, &[]));
        assert_eq!(compare(&one, &other), Comparison::Same);
        assert_eq!(compare(&cell(1500, &[]), &other), Comparison::Times(1.5));
        (one.summary.bytes_per_s.low, one.summary.bytes_per_s.high) = (900.0, 1300.0);
        let unclear = compare(&one, &other);
        assert_eq!(unclear.words(), "no measurable difference (±30%)");
        assert_eq!(unclear.times(), None);
        assert!(unclear.noise().is_some() && Comparison::Same.noise().is_none());
    }
}
