//! The half-power point of one curve over request size: by data, by a fit, and how much of it is
//! the path's, which is what the host computes for a request on its way to the device and back.

use analysis::halfpower::{self, HalfPowerFit, SizePoint};
use analysis::interval::Interval;
use ioengine::Caching;

/// Where one curve over request size passes half of PAP.
#[derive(Clone, Debug)]
pub struct HalfPower {
    /// read or write.
    pub operation: &'static str,
    /// Caching mode.
    pub caching: Caching,
    /// Requests outstanding.
    pub depth: u32,
    /// Smallest measured size whose rate exceeds half of PAP.
    pub measured: Option<u64>,
    /// The smallest size that may exceed it and the smallest that surely does, by the intervals of
    /// their rates, where these are two sizes.
    pub between: Option<(u64, u64)>,
    /// Rate at the measured size [bytes per second].
    pub rate: Option<f64>,
    /// The same from the fit T = f + s S (bytes).
    pub fitted: Option<f64>,
    /// The fit itself, or why there is none.
    pub fit: Result<HalfPowerFit, String>,
    /// The path's part in it, of curves of one request at a time.
    pub path: Option<PathShare>,
    /// Why it was never reached.
    pub reason: Option<String>,
}

/// The path's part in a half-power point: one request at a time, the device waits while the host
/// computes, so that the time of a request is that of the device and that of the path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathShare {
    /// Fixed time of a request: f of the fit (ns).
    pub fixed_ns: f64,
    /// CPU time that the host takes of it (ns).
    pub path_ns: f64,
    /// Whether that is what the whole machine computed (the upper bound, by the soaker), or only
    /// what was charged to the process, which leaves servers and kernel threads out.
    pub whole_machine: bool,
    /// The half-power size of the device without the path (bytes).
    pub device_bytes: Option<f64>,
}

/// What was measured of one request size.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Request size (bytes).
    pub request_bytes: u64,
    /// Bytes per second.
    pub bytes_per_s: Interval,
    /// CPU charged to the process for each request (ns).
    pub cpu_lower_ns: Option<f64>,
    /// CPU that the machine lost for each request (ns).
    pub cpu_upper_ns: Option<f64>,
}

/// Sizes on which a line is fitted.
const SIZES_MIN: usize = 3;

impl HalfPower {
    /// Of a curve, its points in the order of size.
    pub fn of(
        operation: &'static str,
        caching: Caching,
        depth: u32,
        points: &[Measured],
        pap: f64,
    ) -> HalfPower {
        let known: Vec<(u64, Interval)> =
            points.iter().map(|point| (point.request_bytes, point.bytes_per_s)).collect();
        let rates: Vec<(u64, f64)> = known.iter().map(|(size, rate)| (*size, rate.value)).collect();
        let measured = halfpower::measured(&rates, pap);
        let between = halfpower::measured_between(&known, pap);
        let fit = fit_of(points, |_| Some(0.0));
        let best = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let share = 100.0 * best / pap;
        let reason = measured.is_none().then(|| match best > pap / 2.0 {
            true => "one size exceeds half of PAP, but the next larger does not".to_owned(),
            false => format!("its best is {share:.0}% of PAP at any size measured"),
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

    /// That two sizes are possible, in words.
    pub fn in_doubt(&self) -> Option<String> {
        let (perhaps, surely) = self.between?;
        let [perhaps, surely] = [perhaps, surely].map(units::size);
        Some(format!("{perhaps} or {surely}: the interval of the rate includes half of PAP"))
    }
}

impl PathShare {
    /// In words.
    pub fn text(&self) -> String {
        let share = self.path_ns / self.fixed_ns * 100.0;
        let (path, fixed) = (units::time(self.path_ns), units::time(self.fixed_ns));
        let who = match self.whole_machine {
            true => "the host computes",
            false => "the program is charged with",
        };
        let device = self.device_bytes.map(|bytes| {
            let size = units::size(bytes.round() as u64);
            format!("; without it the device would reach half of the peak at {size}")
        });
        format!(
            "of the {fixed} that every request takes, {who} {path} (the path, {share:.0}%){}",
            device.unwrap_or_default()
        )
    }
}

/// T = f + s S over one curve, less the time that `less_ns` says: T is elapsed time over requests
/// completed.
fn fit_of(
    points: &[Measured],
    less_ns: impl Fn(&Measured) -> Option<f64>,
) -> Result<HalfPowerFit, String> {
    let size_points: Vec<SizePoint> = points
        .iter()
        .filter(|point| point.bytes_per_s.value > 0.0)
        .filter_map(|point| {
            let whole_ns = point.request_bytes as f64 * 1e9 / point.bytes_per_s.value;
            Some(SizePoint {
                request_bytes: point.request_bytes,
                time_ns: whole_ns - less_ns(point)?,
                relative_error: relative_error(&point.bytes_per_s),
            })
        })
        .collect();
    halfpower::fit(&size_points).map_err(|error| error.to_string())
}

/// The half width of an interval, at least the papers' 3%.
pub fn relative_error(interval: &Interval) -> f64 {
    let width = interval.half_width_relative();
    if width.is_finite() { width.max(0.03) } else { 1.0 }
}

/// The path's part, by the CPU time of the machine where enough points have it.
fn path(points: &[Measured], whole: &HalfPowerFit, pap: f64) -> Option<PathShare> {
    let upper = |point: &Measured| point.cpu_upper_ns;
    let whole_machine = points.iter().filter(|point| upper(point).is_some()).count() >= SIZES_MIN;
    let cpu = |point: &Measured| match whole_machine {
        true => upper(point),
        false => point.cpu_lower_ns,
    };
    let device = fit_of(points, cpu).ok()?;
    let fixed_ns = whole.fixed_ns.value;
    let path_ns = fixed_ns - device.fixed_ns.value;
    let told = fixed_ns > 0.0 && (0.0..=fixed_ns).contains(&path_ns);
    told.then(|| PathShare {
        fixed_ns,
        path_ns,
        whole_machine,
        device_bytes: device.fit_against(pap),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of one request at a time, of 400 us of the device and `cpu_ns` of the path for each
    /// request and 10 ns for each byte, against a PAP of 100 MB/s.
    fn found(cpu_ns: f64) -> HalfPower {
        let points = [4_u64, 8, 16, 32, 64, 128, 256, 1024].map(|kib| {
            let bytes = (kib << 10) as f64;
            let rate = bytes / (400e-6 + cpu_ns / 1e9 + bytes / 100e6);
            Measured {
                request_bytes: kib << 10,
                bytes_per_s: Interval::symmetric(rate, rate * 0.005),
                cpu_lower_ns: Some(cpu_ns),
                cpu_upper_ns: None,
            }
        });
        HalfPower::of("read", Caching::Direct, 1, &points, 100e6)
    }

    #[test]
    fn the_path_is_told_from_the_device() {
        let found = found(80_000.0);
        let path = found.path.unwrap();
        assert!((path.fixed_ns / 480e3 - 1.0).abs() < 0.05, "{path:?}");
        assert!((path.path_ns / 80e3 - 1.0).abs() < 0.05, "{path:?}");
        // f / s of the device alone: 400 us of 100 MB/s.
        assert!((path.device_bytes.unwrap() / 40e3 - 1.0).abs() < 0.05, "{path:?}");
        assert!((found.fitted.unwrap() / 48e3 - 1.0).abs() < 0.05, "{found:?}");
        assert!(path.text().contains("charged with 80 us (the path, 17%)"), "{}", path.text());
    }

    #[test]
    fn a_size_whose_rate_lies_across_the_half_is_named_with_the_next() {
        // 64 KiB in 655 us and as long for the rest: half of PAP just so.
        let across = found(255_400.0);
        assert_eq!(across.between, Some((64 << 10, 128 << 10)), "{across:?}");
        assert!(across.in_doubt().unwrap().starts_with("64 KiB or 128 KiB"));
        assert_eq!(found(80_000.0).between, None);
    }
}
