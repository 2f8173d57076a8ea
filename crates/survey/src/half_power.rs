//! Finds the half-power point of a curve of rate versus request size: the smallest measured size
//! whose rate exceeds half of the peak, and an estimate from a fit. Also computes how much of the
//! time of a request is CPU time of the I/O path.

use analysis::costmodel::{self, CostModel, CostPoint};
use analysis::halfpower::{self, HalfPowerFit, SizePoint};
use analysis::interval::Interval;
use analysis::units;
use ioengine::{Caching, Op};
use lab::evidence::MeasuredPoint;
use schemars::JsonSchema;
use serde::Serialize;

/// The request size at which one curve exceeds half of the peak (RAP > PAP/2).
#[derive(Clone, Debug)]
pub struct HalfPower {
    /// The operation: read or write.
    pub operation: Op,
    /// Caching mode.
    pub caching: Caching,
    /// Queue depth: the number of outstanding requests.
    pub depth: u32,
    /// Smallest measured size whose rate exceeds half of the peak (bytes). None if there is no such
    /// size.
    pub measured: Option<u64>,
    /// The two sizes between which the half-power size lies (bytes). At the first size, the upper
    /// bound of the rate's confidence interval exceeds half of the peak. At the second size, the
    /// lower bound also exceeds half of the peak. None if the two sizes are equal, or if there is
    /// no second size.
    pub between: Option<(u64, u64)>,
    /// Rate at the size `measured` [bytes per second].
    pub rate: Option<f64>,
    /// Half-power size computed from `fit` (bytes). None if there is no fit or no such size.
    pub fitted: Option<f64>,
    /// The fit T = f + s S, where T is the time and S the size of a request, or the reason why
    /// there is no fit.
    pub fit: Result<HalfPowerFit, String>,
    /// How much of the fixed time of a request is CPU time of the I/O path. None if the depth is
    /// above 1, or if this cannot be computed.
    pub path: Option<PathShare>,
    /// Why `measured` is None. None if `measured` has a value.
    pub reason: Option<String>,
}

/// How much of the fixed time of a request is CPU time of the I/O path. Only computed for depth 1,
/// where the device is idle while the host computes. So the time of a request is the sum of device
/// time and CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PathShare {
    /// Fixed time of a request (ns): f in the fit T = f + s S, where T is the time and S the size
    /// of a request.
    pub fixed_ns: f64,
    /// The part of `fixed_ns` that is CPU time of the host (ns).
    pub path_ns: f64,
    /// Whether `path_ns` is the CPU time of the whole machine, which is an upper bound. Otherwise
    /// `path_ns` is the CPU time of the process, without the CPU time of servers and kernel threads
    /// that handle the I/O.
    pub whole_machine: bool,
    /// Request size at which the device would reach half of its peak rate if the I/O path needed no
    /// CPU time (bytes), estimated by a fit. Null if the fit yields no such size.
    #[serde(rename = "request_bytes_of_device")]
    pub device_bytes: Option<f64>,
}

/// Repeatability of the measurements in the papers: 3%, as a share. Smaller differences are
/// ignored. Confidence intervals whose relative half width is smaller are widened to this value.
pub const REPEATABLE: f64 = 0.03;
/// Minimum number of sizes for a fit.
const SIZES_MIN: usize = 3;

impl HalfPower {
    /// Finds the half-power point of a curve. The `points` must be in ascending order of size, and
    /// `pap` is the peak rate [bytes per second].
    pub fn of(
        operation: Op,
        caching: Caching,
        depth: u32,
        points: &[&MeasuredPoint],
        pap: f64,
    ) -> HalfPower {
        let known: Vec<(u64, Interval)> =
            points.iter().map(|point| (point.bytes(), point.summary.bytes_per_s)).collect();
        let rates: Vec<(u64, f64)> = known.iter().map(|(size, rate)| (*size, rate.value)).collect();
        let measured = halfpower::measured(&rates, pap);
        let between = halfpower::measured_between(&known, pap);
        let fit = fit(points);
        let best = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let share = 100.0 * best / pap;
        let reason = measured.is_none().then(|| {
            if best > pap / 2.0 {
                "one size reaches half of the peak, but the next larger size does not".to_owned()
            } else {
                format!("no request size reaches half of the peak (best: {share:.0}%)")
            }
        });
        HalfPower {
            operation,
            caching,
            depth,
            measured,
            between: between.filter(|(perhaps, surely)| perhaps < surely),
            rate: measured.and_then(|size| rates.iter().find(|(s, _)| *s == size)).map(|p| p.1),
            fitted: fit.as_ref().ok().and_then(|fit| fit.fit_against(pap)),
            path: fit.as_ref().ok().filter(|_| depth == 1).and_then(|fit| path(points, fit, pap)),
            fit,
            reason,
        }
    }

    /// Formats the two possible half-power sizes with the reason, for users. None if the intervals
    /// of the rates leave only one size.
    pub fn in_doubt(&self) -> Option<String> {
        let (perhaps, surely) = self.between?;
        let [perhaps, surely] = [perhaps, surely].map(units::size);
        Some(format!(
            "{perhaps} or {surely}, because the confidence interval of a rate includes half of the \
             peak"
        ))
    }
}

impl PathShare {
    /// Formats the times as a sentence for users.
    pub fn text(&self) -> String {
        let share = self.path_ns / self.fixed_ns * 100.0;
        let (path, fixed) = (units::time(self.path_ns), units::time(self.fixed_ns));
        let whose = if self.whole_machine { "machine" } else { "program" };
        let device = self.device_bytes.map(|bytes| {
            let size = units::size(bytes.round() as u64);
            format!("; without this CPU time, the device would reach half of the peak at {size}")
        });
        format!(
            "the fixed time per request is {fixed}, of which {path} ({share:.0}%) is CPU time of \
             the {whose}{}",
            device.unwrap_or_default()
        )
    }
}

/// Fits T = f + s S to one curve, where T is the time and S the size of a request.
///
/// # Errors
/// If there are too few sizes, or if the times do not increase with the size.
pub fn fit(points: &[&MeasuredPoint]) -> Result<HalfPowerFit, String> {
    fit_of(points, |_| Some(0.0))
}

/// Fits a fixed cost plus a cost per KiB to the CPU time per request that is charged to the
/// process. None if the fit fails, for example because too few points have CPU times.
pub fn cost_model(points: &[&MeasuredPoint]) -> Option<CostModel> {
    let cost = |point: &&MeasuredPoint| {
        Some(CostPoint {
            request_bytes: point.bytes(),
            cpu_ns: point.cpu_ns()?,
            relative_error: relative_error(&point.summary.bytes_per_s),
        })
    };
    let costs: Vec<CostPoint> = points.iter().filter_map(cost).collect();
    costmodel::fit(&costs).ok()
}

/// Fits T = f + s S to one curve, where S is the request size. T is elapsed time divided by
/// completed requests, minus `subtracted_ns`. Points for which `subtracted_ns` returns None are
/// left out.
fn fit_of(
    points: &[&MeasuredPoint],
    subtracted_ns: impl Fn(&MeasuredPoint) -> Option<f64>,
) -> Result<HalfPowerFit, String> {
    let size_points: Vec<SizePoint> = points
        .iter()
        .filter(|point| point.rate() > 0.0)
        .filter_map(|point| {
            let whole_ns = point.bytes() as f64 * 1e9 / point.rate();
            Some(SizePoint {
                request_bytes: point.bytes(),
                time_ns: whole_ns - subtracted_ns(point)?,
                relative_error: relative_error(&point.summary.bytes_per_s),
            })
        })
        .collect();
    halfpower::fit(&size_points).map_err(|error| error.to_string())
}

/// Returns the relative half width of an interval, but at least [`REPEATABLE`]. Returns 1 if the
/// interval is unknown.
fn relative_error(interval: &Interval) -> f64 {
    let width = interval.half_width_relative();
    if width.is_finite() { width.max(REPEATABLE) } else { 1.0 }
}

/// Computes how much of the fixed time of a request is CPU time of the I/O path. Uses the CPU time
/// of the whole machine if enough points have it, otherwise the CPU time of the process.
fn path(points: &[&MeasuredPoint], whole: &HalfPowerFit, pap: f64) -> Option<PathShare> {
    let upper = |point: &MeasuredPoint| point.summary.cpu_upper_ns;
    let whole_machine = points.iter().filter(|point| upper(point).is_some()).count() >= SIZES_MIN;
    let cpu = |point: &MeasuredPoint| if whole_machine { upper(point) } else { point.cpu_ns() };
    let device = fit_of(points, cpu).ok()?;
    let fixed_ns = whole.fixed_ns.value;
    let path_ns = fixed_ns - device.fixed_ns.value;
    let is_plausible = fixed_ns > 0.0 && (0.0..=fixed_ns).contains(&path_ns);
    is_plausible.then(|| PathShare {
        fixed_ns,
        path_ns,
        whole_machine,
        device_bytes: device.fit_against(pap),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::evidence::testing::cell;

    /// Returns the half-power point of an example device at depth 1. A read takes 400 us in the
    /// device, `cpu_ns` in the I/O path, and 10 ns per byte. So the peak is 100 MB/s.
    fn found(cpu_ns: f64) -> HalfPower {
        let points = [4_u64, 8, 16, 32, 64, 128, 256, 1024].map(|kib| {
            let bytes = (kib << 10) as f64;
            let rate = bytes / (400e-6 + cpu_ns / 1e9 + bytes / 100e6);
            let mut measured = cell(1, &[("bs", &format!("{kib}k"))]);
            measured.summary.bytes_per_s = Interval::symmetric(rate, rate * 0.005);
            (measured.summary.cpu_lower_ns, measured.summary.cpu_upper_ns) = (Some(cpu_ns), None);
            measured
        });
        let points: Vec<&MeasuredPoint> = points.iter().collect();
        HalfPower::of(Op::Read, Caching::Direct, 1, &points, 100e6)
    }

    #[test]
    fn the_path_is_separated_from_the_device() {
        let found = found(80_000.0);
        let path = found.path.unwrap();
        assert!((path.fixed_ns / 480e3 - 1.0).abs() < 0.05, "{path:?}");
        assert!((path.path_ns / 80e3 - 1.0).abs() < 0.05, "{path:?}");
        // Without CPU time, the half-power size f / s is 400 us divided by 10 ns per byte, which is
        // 40 kB.
        assert!((path.device_bytes.unwrap() / 40e3 - 1.0).abs() < 0.05, "{path:?}");
        assert!((found.fitted.unwrap() / 48e3 - 1.0).abs() < 0.05, "{found:?}");
        assert!(path.text().contains("(17%) is CPU time of the program"), "{}", path.text());
    }

    #[test]
    fn a_size_whose_interval_includes_half_is_reported_with_the_next() {
        // A request of 64 KiB takes 655 us for the transfer and 400 + 255 us of fixed time, so the
        // rate is half of the peak.
        let across = found(255_400.0);
        assert_eq!(across.between, Some((64 << 10, 128 << 10)), "{across:?}");
        assert!(across.in_doubt().unwrap().starts_with("64 KiB or 128 KiB"));
        assert_eq!(found(80_000.0).between, None);
    }
}
