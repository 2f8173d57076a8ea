//! The half-power point of one curve of rate against request size, as measured and from a fit. It
//! also computes which part of the time of a request is the I/O path, that is, CPU time of the
//! host.

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
    /// read or write.
    pub operation: Op,
    /// Caching mode.
    pub caching: Caching,
    /// Requests outstanding.
    pub depth: u32,
    /// Smallest measured size whose rate exceeds half of the peak.
    pub measured: Option<u64>,
    /// The smallest size that may exceed half of the peak and the smallest that certainly does, by
    /// the intervals of the rates. `None` if these sizes are equal or one of them does not exist.
    pub between: Option<(u64, u64)>,
    /// Rate at the measured size [bytes per second].
    pub rate: Option<f64>,
    /// The half-power size by the fit T = f + s S (bytes).
    pub fitted: Option<f64>,
    /// The fit, or why there is none.
    pub fit: Result<HalfPowerFit, String>,
    /// The share of the I/O path in the time of a request; at depth 1 only.
    pub path: Option<PathShare>,
    /// Why no measured size was found.
    pub reason: Option<String>,
}

/// The share of the I/O path in the time of a request. At depth 1 the device is idle while the host
/// computes, so the time of a request is the sum of device time and path time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PathShare {
    /// Fixed time of a request: f of the fit (ns).
    pub fixed_ns: f64,
    /// CPU time of the host in the time of a request (ns).
    pub path_ns: f64,
    /// Whether `path_ns` is the CPU time of the whole machine (the soaker's upper bound). Otherwise
    /// it is the CPU time of the process, without servers and kernel threads.
    pub whole_machine: bool,
    /// Half-power size of the device without the path, from the fit (bytes); null if there is no
    /// such size.
    #[serde(rename = "request_bytes_of_device")]
    pub device_bytes: Option<f64>,
}

/// Repeatability of the papers' measurements (share). Smaller differences do not count, and
/// narrower intervals are widened to it.
pub const REPEATABLE: f64 = 0.03;
/// Minimum number of sizes for a fit.
const SIZES_MIN: usize = 3;

impl HalfPower {
    /// Evaluates a curve; `points` are in ascending order of size, `pap` is the peak [bytes per
    /// second].
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
                "one size exceeds half of the peak, but the next larger does not".to_owned()
            } else {
                format!("no size exceeds half of the peak (best: {share:.0}%)")
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

    /// If the intervals leave two half-power sizes possible: both sizes as text, with the reason.
    pub fn in_doubt(&self) -> Option<String> {
        let (perhaps, surely) = self.between?;
        let [perhaps, surely] = [perhaps, surely].map(units::size);
        Some(format!(
            "{perhaps} or {surely}, because the interval of the rate includes half of the peak"
        ))
    }
}

impl PathShare {
    /// One sentence for users.
    pub fn text(&self) -> String {
        let share = self.path_ns / self.fixed_ns * 100.0;
        let (path, fixed) = (units::time(self.path_ns), units::time(self.fixed_ns));
        let whose = if self.whole_machine { "machine" } else { "program" };
        let device = self.device_bytes.map(|bytes| {
            let size = units::size(bytes.round() as u64);
            format!("; without it, the device would reach half of the peak at {size}")
        });
        format!(
            "{path} of the fixed {fixed} per request ({share:.0}%) is CPU time of the {whose}{}",
            device.unwrap_or_default()
        )
    }
}

/// Fits T = f + s S to one curve.
///
/// # Errors
/// Too few sizes, or times that do not rise with the size.
pub fn fit(points: &[&MeasuredPoint]) -> Result<HalfPowerFit, String> {
    fit_of(points, |_| Some(0.0))
}

/// Fits the CPU time charged to the process as a fixed cost per request plus a cost per KiB; `None`
/// if too few points have CPU times.
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

/// Fits T = f + s S to one curve. T is elapsed time divided by completed requests, minus
/// `subtracted_ns`; points for which `subtracted_ns` is `None` are left out.
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

/// Relative half width of an interval, at least [`REPEATABLE`]; 1 if the interval is unknown.
fn relative_error(interval: &Interval) -> f64 {
    let width = interval.half_width_relative();
    if width.is_finite() { width.max(REPEATABLE) } else { 1.0 }
}

/// The share of the I/O path in the time of a request. It uses the CPU time of the whole machine if
/// enough points have it, otherwise that of the process.
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

    /// Reads at depth 1 that take 400 us in the device, `cpu_ns` in the I/O path and 10 ns per
    /// byte, with a peak of 100 MB/s.
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
        // f / s of the device alone is 400 us times 100 MB/s.
        assert!((path.device_bytes.unwrap() / 40e3 - 1.0).abs() < 0.05, "{path:?}");
        assert!((found.fitted.unwrap() / 48e3 - 1.0).abs() < 0.05, "{found:?}");
        assert!(path.text().contains("(17%) is CPU time of the program"), "{}", path.text());
    }

    #[test]
    fn a_size_whose_interval_includes_half_is_reported_with_the_next() {
        // 64 KiB take 655 us for the bytes and another 655 us for the rest, which gives exactly
        // half of the peak.
        let across = found(255_400.0);
        assert_eq!(across.between, Some((64 << 10, 128 << 10)), "{across:?}");
        assert!(across.in_doubt().unwrap().starts_with("64 KiB or 128 KiB"));
        assert_eq!(found(80_000.0).between, None);
    }
}
