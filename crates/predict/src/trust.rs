//! Estimates the error of the prediction of a calibrated system for a load. The estimate uses the
//! errors at the calibration points that have a similar request size and depth.

use analysis::units;
use schemars::JsonSchema;
use serde::Serialize;
use simulator::CalibrationPoint;
use workload::{Pattern, Workload};

use crate::score::Errors;

/// A calibration point is near a load if its request size, depth and number of hosts each differ
/// from those of the load by at most this factor.
const NEAR_FACTOR: f64 = 4.0;
/// Two mixes of reads and writes are comparable if their percentages of reads differ by at most
/// this value (percentage points).
const MIX_TOLERANCE: u8 = 20;
/// Largest relative error of a prediction that counts as good.
const GOOD_ERROR: f64 = 0.1;

/// The points from which the error is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Held-out points near the load are used.
    HeldOut,
    /// Fitted points near the load are used, because no point near the load was held out.
    Fitted,
    /// No points are used, because the load is outside the calibrated range.
    Outside,
}

/// The estimated error of the predicted throughput of a load.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TrustDocument {
    /// The points from which the error is estimated.
    pub basis: Basis,
    /// Whether the system was changed after its calibration. If so, the errors are those of the
    /// system before the change.
    pub is_changed: bool,
    /// How the load differs from the calibrated range. Empty if the load is within the range.
    pub outside: Vec<String>,
    /// Number of calibration points near the load.
    pub points: usize,
    /// Mean absolute error of the points near the load, as a share. Null if the load is outside the
    /// range.
    pub mean_error: Option<f64>,
    /// Largest absolute error of the points near the load, as a share. Null if the load is outside
    /// the range.
    pub worst_error: Option<f64>,
    /// Lower end of the error range: the predicted throughput divided by the largest factor between
    /// prediction and measurement at the points near the load (bytes per second). Null if the load
    /// is outside the range.
    pub low_bytes_per_s: Option<f64>,
    /// Upper end of the error range: the predicted throughput times the largest factor between
    /// prediction and measurement at the points near the load (bytes per second). Null if the load
    /// is outside the range.
    pub high_bytes_per_s: Option<f64>,
}

impl TrustDocument {
    /// Returns true if the system is unchanged and predicts all held-out points near the load
    /// within 10%.
    pub fn is_good(&self) -> bool {
        let is_known = self.basis == Basis::HeldOut && !self.is_changed;
        is_known && self.worst_error.is_some_and(|error| error <= GOOD_ERROR)
    }

    /// Formats the estimate as one sentence for users.
    pub fn text(&self) -> String {
        if self.basis == Basis::Outside {
            return format!(
                "error unknown, because the load is outside the calibrated range: {}",
                self.outside.join("; ")
            );
        }
        let percent = |share: Option<f64>| format!("{:.1}%", share.unwrap_or(0.0) * 100.0);
        let (mean, worst) = (percent(self.mean_error), percent(self.worst_error));
        let what = match self.basis {
            Basis::HeldOut => units::counted(self.points as u64, "held-out point"),
            _ => format!(
                "{}, no points were held out",
                units::counted(self.points as u64, "fitted point")
            ),
        };
        let change = if self.is_changed { ", measured before the system was changed" } else { "" };
        format!(
            "error at the calibration points near the load: {mean} on average, {worst} at most \
             ({what}){change}"
        )
    }
}

/// Estimates the error of the throughput `bytes_per_s` that was predicted for a load on each of
/// `hosts` hosts. `is_changed` is true if the system was changed after the calibration. Returns
/// `None` if there are no calibration points.
pub fn trust(
    points: &[CalibrationPoint],
    load: &Workload,
    hosts: u32,
    bytes_per_s: f64,
    is_changed: bool,
) -> Option<TrustDocument> {
    if points.is_empty() {
        return None;
    }
    let size = match &load.replay {
        Some(replay) => replay.description.mean_bytes(),
        None => u64::from(load.request_bytes),
    };
    let outstanding = load.depth * load.threads;
    let like: Vec<&CalibrationPoint> = points.iter().filter(|point| is_like(point, load)).collect();
    let outside = outside(&like, load, hosts);
    let within = |a: f64, b: f64| (a / b).max(b / a) <= NEAR_FACTOR;
    let is_near = |point: &&&CalibrationPoint| {
        within(point.request_bytes as f64, size as f64)
            && within(f64::from(point.outstanding), f64::from(outstanding))
            && within(f64::from(point.hosts), f64::from(hosts))
    };
    let mut near: Vec<&CalibrationPoint> = like.iter().filter(is_near).copied().collect();
    let held_out = near.iter().any(|point| point.held_out);
    near.retain(|point| point.held_out == held_out);
    let mut outside = outside;
    if near.is_empty() && outside.is_empty() {
        let (size, factor) = (units::size(size), NEAR_FACTOR);
        let hosts =
            if hosts > 1 { format!(" and number of hosts ({hosts})") } else { String::new() };
        outside.push(format!(
            "no measured point has about the same request size ({size}) and number of outstanding \
             requests ({outstanding}){hosts}, each within a factor of {factor}"
        ));
    }
    let basis = if !outside.is_empty() {
        Basis::Outside
    } else if held_out {
        Basis::HeldOut
    } else {
        Basis::Fitted
    };
    let pairs = near.iter().map(|p| (p.simulated_bytes_per_s, p.measured_bytes_per_s));
    let errors = Errors::of(pairs);
    let is_known = basis != Basis::Outside;
    let ratio = |p: &&CalibrationPoint| p.measured_bytes_per_s / p.simulated_bytes_per_s;
    let factor = near.iter().map(ratio).map(|r| r.max(1.0 / r)).fold(1.0, f64::max);
    Some(TrustDocument {
        basis,
        is_changed,
        outside,
        points: near.len(),
        mean_error: is_known.then_some(errors.mean),
        worst_error: is_known.then_some(errors.worst),
        low_bytes_per_s: is_known.then_some(bytes_per_s / factor),
        high_bytes_per_s: is_known.then_some(bytes_per_s * factor),
    })
}

/// Checks whether a point has the same access pattern and direction as the load.
fn is_like(point: &CalibrationPoint, load: &Workload) -> bool {
    let pattern = match load.pattern {
        Pattern::Sequential => "sequential",
        Pattern::Random => "random",
        Pattern::Strided { .. } => "strided",
    };
    let is_mix = |percent: u8| (1..100).contains(&percent);
    let mix = is_mix(point.read_percent) && is_mix(load.read_percent);
    let same_direction = if mix {
        point.read_percent.abs_diff(load.read_percent) <= MIX_TOLERANCE
    } else {
        point.read_percent == load.read_percent
    };
    point.pattern == pattern && same_direction
}

/// Describes which properties of the load are outside the range of the points in `like`. The
/// properties are request size, depth and number of hosts.
fn outside(like: &[&CalibrationPoint], load: &Workload, hosts: u32) -> Vec<String> {
    let range = |of: fn(&CalibrationPoint) -> u64| {
        let values = || like.iter().map(|point| of(point));
        values().min().zip(values().max())
    };
    let sizes = range(|point| point.request_bytes);
    let depths = range(|point| u64::from(point.outstanding));
    let (Some((smallest, largest)), Some((least, most))) = (sizes, depths) else {
        return vec![format!("no {} requests were measured", load.rw())];
    };
    let mut found = Vec::new();
    let size = u64::from(load.request_bytes);
    if !(smallest..=largest).contains(&size) {
        let [size, smallest, largest] = [size, smallest, largest].map(units::size);
        found.push(format!("requests of {size} (measured: {smallest} to {largest})"));
    }
    let outstanding = u64::from(load.depth) * u64::from(load.threads);
    if !(least..=most).contains(&outstanding) {
        found.push(format!("{outstanding} outstanding requests (measured: {least} to {most})"));
    }
    if let Some((least, most)) = range(|point| u64::from(point.hosts))
        && !(least..=most).contains(&u64::from(hosts))
    {
        let hosts = units::counted(hosts.into(), "host");
        found.push(format!("{hosts} (measured: {least} to {most})"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns points of random reads with a measured rate of 1e6 bytes/s. Each tuple holds the
    /// request size, the number of outstanding requests, whether the point is held out, and the
    /// simulated rate divided by the measured rate.
    fn points(all: &[(u64, u32, bool, f64)]) -> Vec<CalibrationPoint> {
        let point = |&(request_bytes, outstanding, held_out, ratio): &(u64, u32, bool, f64)| {
            CalibrationPoint {
                read_percent: 100,
                pattern: "random".to_owned(),
                request_bytes,
                outstanding,
                hosts: 1,
                held_out,
                measured_bytes_per_s: 1e6,
                simulated_bytes_per_s: 1e6 * ratio,
            }
        };
        all.iter().map(point).collect()
    }

    fn load(request_bytes: u32, depth: u32) -> Workload {
        Workload { pattern: Pattern::Random, request_bytes, depth, ..Workload::default() }
    }

    fn grid() -> Vec<CalibrationPoint> {
        points(&[
            (4096, 1, false, 1.01),
            (4096, 4, true, 1.05),
            (4096, 16, true, 2.8),
            (65_536, 1, true, 0.97),
            (65_536, 4, false, 1.0),
            (65_536, 16, false, 1.02),
        ])
    }

    #[test]
    fn only_errors_of_points_near_the_load_count() {
        let near = trust(&grid(), &load(4096, 16), 1, 1e8, false).unwrap();
        assert_eq!((near.basis, near.points), (Basis::HeldOut, 2));
        assert!((near.worst_error.unwrap() - 1.8).abs() < 1e-9 && !near.is_good());
        assert!((near.low_bytes_per_s.unwrap() - 1e8 / 2.8).abs() < 1.0, "{near:?}");
        assert!((near.high_bytes_per_s.unwrap() - 2.8e8).abs() < 1.0, "{near:?}");
        let far = trust(&grid(), &load(65_536, 2), 1, 1e8, false).unwrap();
        assert_eq!((far.basis, far.points), (Basis::HeldOut, 1));
        assert!(far.is_good(), "{far:?}");
        let changed = trust(&grid(), &load(65_536, 2), 1, 1e8, true).unwrap();
        assert!(
            !changed.is_good() && changed.text().contains("before the system was changed"),
            "{changed:?}"
        );
        let fitted = trust(&grid(), &load(65_536, 16), 1, 1e8, false).unwrap();
        assert_eq!(fitted.basis, Basis::Fitted);
        assert!(fitted.text().contains("no points were held out"), "{}", fitted.text());
    }

    #[test]
    fn a_load_outside_the_calibrated_range_has_no_known_error() {
        let deep = trust(&grid(), &load(4096, 32), 1, 1e8, false).unwrap();
        assert_eq!((deep.basis, deep.worst_error), (Basis::Outside, None));
        let text = deep.text();
        assert!(text.contains("32 outstanding requests (measured: 1 to 16)"), "{text}");
        let large = trust(&grid(), &load(1 << 20, 4), 1, 1e8, false).unwrap().text();
        assert!(large.contains("requests of 1 MiB (measured: 4 KiB to 64 KiB)"), "{large}");
        let writes = Workload { read_percent: 0, ..load(4096, 4) };
        let writes = trust(&grid(), &writes, 1, 1e8, false).unwrap().text();
        assert!(writes.contains("no randwrite requests were measured"), "{writes}");
        let sequential = Workload { pattern: Pattern::Sequential, ..load(4096, 4) };
        assert_eq!(trust(&grid(), &sequential, 1, 1e8, false).unwrap().basis, Basis::Outside);
    }

    #[test]
    fn more_hosts_than_were_measured_are_outside() {
        let mut grid = grid();
        grid.iter_mut().step_by(2).for_each(|point| point.hosts = 4);
        let four = trust(&grid, &load(4096, 16), 4, 1e8, false).unwrap();
        assert_eq!((four.basis, four.points), (Basis::HeldOut, 2));
        let eight = trust(&grid, &load(4096, 16), 8, 1e8, false).unwrap();
        assert!(eight.text().contains("8 hosts (measured: 1 to 4)"), "{}", eight.text());
    }

    #[test]
    fn a_load_in_a_gap_between_points_is_outside() {
        let sparse = points(&[(4096, 1, true, 1.0), (1 << 20, 1, false, 1.0)]);
        let between = trust(&sparse, &load(65_536, 1), 1, 1e8, false).unwrap();
        assert_eq!(between.basis, Basis::Outside);
        let text = between.text();
        assert!(text.contains("size (64 KiB) and") && text.contains("a factor of 4"), "{text}");
    }

    #[test]
    fn a_system_that_was_not_calibrated_has_no_error_estimate() {
        assert_eq!(trust(&[], &load(4096, 1), 1, 1e8, false), None);
    }
}
