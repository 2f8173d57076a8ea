//! How far to trust what a calibrated system says of a load: by the errors that it made on the
//! points near that load.

use schemars::JsonSchema;
use serde::Serialize;
use simulator::CalibrationPoint;
use workload::{Pattern, Workload};

use crate::score::Errors;

/// Points are near whose size and depth lie within this factor of those of the load.
const NEAR: f64 = 4.0;
/// Shares of reads that differ by no more are the same mix (percent).
const SAME_MIX: u8 = 20;
/// An error of this size makes no difference to a decision.
const SMALL: f64 = 0.1;

/// What the trust in an answer rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Points near the load that were held out of the fit.
    HeldOut,
    /// Points near the load, all of which were fitted.
    Fitted,
    /// Nothing: the load lies outside of what was calibrated.
    Outside,
}

/// How far to trust the throughput of a calibrated system under a load.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TrustDocument {
    /// What the trust rests on.
    pub basis: Basis,
    /// Whether the system was changed since: the errors were found without the change.
    pub is_changed: bool,
    /// In what the load lies outside of what was calibrated; empty where it does not.
    pub outside: Vec<String>,
    /// Number of points near the load.
    pub points: usize,
    /// Mean of their absolute errors, as a share; null where there is none.
    pub mean_error: Option<f64>,
    /// The worst of their absolute errors, as a share; null where there is none.
    pub worst_error: Option<f64>,
    /// Least throughput, if it is off by as large a factor as the worst of these points (bytes per
    /// second).
    pub low_bytes_per_s: Option<f64>,
    /// Most throughput, if it is off by as large a factor (bytes per second).
    pub high_bytes_per_s: Option<f64>,
}

impl TrustDocument {
    /// Whether the answer can be relied on within 10%.
    pub fn is_good(&self) -> bool {
        let is_known = self.basis == Basis::HeldOut && !self.is_changed;
        is_known && self.worst_error.is_some_and(|error| error <= SMALL)
    }

    /// In a sentence.
    pub fn text(&self) -> String {
        if self.basis == Basis::Outside {
            return format!(
                "no error is known: {}, outside of what was calibrated",
                self.outside.join("; ")
            );
        }
        let percent = |share: Option<f64>| format!("{:.1}%", share.unwrap_or(0.0) * 100.0);
        let (mean, worst) = (percent(self.mean_error), percent(self.worst_error));
        let what = match self.basis {
            Basis::HeldOut => units::counted(self.points as u64, "held-out point"),
            _ => format!("{}, none held out", units::counted(self.points as u64, "fitted point")),
        };
        let change = match self.is_changed {
            true => ", all measured without the change of the system",
            false => "",
        };
        format!(
            "error {mean} on average, {worst} at the worst, of the nearest points ({what}){change}"
        )
    }
}

/// The trust in `bytes_per_s` of a load, by the points of a calibration; `None` without any.
/// `is_changed` says whether the system was changed after it was calibrated.
pub fn trust(
    points: &[CalibrationPoint],
    load: &Workload,
    bytes_per_s: f64,
    is_changed: bool,
) -> Option<TrustDocument> {
    if points.is_empty() {
        return None;
    }
    let (size, outstanding) = (u64::from(load.request_bytes), load.depth * load.threads);
    let like: Vec<&CalibrationPoint> = points.iter().filter(|point| is_like(point, load)).collect();
    let outside = outside(&like, load);
    let within = |a: f64, b: f64| (a / b).max(b / a) <= NEAR;
    let is_near = |point: &&&CalibrationPoint| {
        within(point.request_bytes as f64, size as f64)
            && within(f64::from(point.outstanding), f64::from(outstanding))
    };
    let mut near: Vec<&CalibrationPoint> = like.iter().filter(is_near).copied().collect();
    let held_out = near.iter().any(|point| point.held_out);
    near.retain(|point| point.held_out == held_out);
    let mut outside = outside;
    if near.is_empty() && outside.is_empty() {
        let (size, factor) = (units::size(size), NEAR);
        outside.push(format!(
            "no point was measured within a factor of {factor} of {size} and {outstanding} \
             outstanding requests"
        ));
    }
    let basis = match (outside.is_empty(), held_out) {
        (false, _) => Basis::Outside,
        (true, true) => Basis::HeldOut,
        (true, false) => Basis::Fitted,
    };
    let pairs = near.iter().map(|p| (p.simulated_bytes_per_s, p.measured_bytes_per_s));
    let errors = Errors::of(pairs);
    let known = basis != Basis::Outside;
    let ratio = |p: &&CalibrationPoint| p.measured_bytes_per_s / p.simulated_bytes_per_s;
    let factor = near.iter().map(ratio).map(|r| r.max(1.0 / r)).fold(1.0, f64::max);
    Some(TrustDocument {
        basis,
        is_changed,
        outside,
        points: near.len(),
        mean_error: known.then_some(errors.mean),
        worst_error: known.then_some(errors.worst),
        low_bytes_per_s: known.then_some(bytes_per_s / factor),
        high_bytes_per_s: known.then_some(bytes_per_s * factor),
    })
}

/// Whether a point visits blocks in the same order and moves data in the same direction.
fn is_like(point: &CalibrationPoint, load: &Workload) -> bool {
    let pattern = match load.pattern {
        Pattern::Sequential => "sequential",
        Pattern::Random => "random",
        Pattern::Strided { .. } => "strided",
    };
    let is_mix = |percent: u8| (1..100).contains(&percent);
    let mix = is_mix(point.read_percent) && is_mix(load.read_percent);
    let same_direction = match mix {
        true => point.read_percent.abs_diff(load.read_percent) <= SAME_MIX,
        false => point.read_percent == load.read_percent,
    };
    point.pattern == pattern && same_direction
}

/// In what a load lies outside of the points of its kind.
fn outside(like: &[&CalibrationPoint], load: &Workload) -> Vec<String> {
    let range = |of: fn(&CalibrationPoint) -> u64| {
        let values = || like.iter().map(|point| of(point));
        values().min().zip(values().max())
    };
    let sizes = range(|point| point.request_bytes);
    let depths = range(|point| u64::from(point.outstanding));
    let (Some((smallest, largest)), Some((least, most))) = (sizes, depths) else {
        return vec![format!("{} requests were not measured", load.rw())];
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
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random reads, measured at 1e6 bytes/s: size, outstanding, held out, simulated over measured.
    fn points(all: &[(u64, u32, bool, f64)]) -> Vec<CalibrationPoint> {
        let point = |&(request_bytes, outstanding, held_out, ratio): &(u64, u32, bool, f64)| {
            CalibrationPoint {
                read_percent: 100,
                pattern: "random".to_owned(),
                request_bytes,
                outstanding,
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
    fn an_error_near_the_load_is_told_and_one_far_away_is_not() {
        let near = trust(&grid(), &load(4096, 16), 1e8, false).unwrap();
        assert_eq!((near.basis, near.points), (Basis::HeldOut, 2));
        assert!((near.worst_error.unwrap() - 1.8).abs() < 1e-9 && !near.is_good());
        assert!((near.low_bytes_per_s.unwrap() - 1e8 / 2.8).abs() < 1.0, "{near:?}");
        assert!((near.high_bytes_per_s.unwrap() - 2.8e8).abs() < 1.0, "{near:?}");
        let far = trust(&grid(), &load(65_536, 2), 1e8, false).unwrap();
        assert_eq!((far.basis, far.points), (Basis::HeldOut, 1));
        assert!(far.is_good(), "{far:?}");
        let changed = trust(&grid(), &load(65_536, 2), 1e8, true).unwrap();
        assert!(!changed.is_good() && changed.text().contains("without the change"), "{changed:?}");
        let fitted = trust(&grid(), &load(65_536, 16), 1e8, false).unwrap();
        assert_eq!(fitted.basis, Basis::Fitted);
        assert!(fitted.text().contains("none held out"), "{}", fitted.text());
    }

    #[test]
    fn a_load_outside_of_what_was_calibrated_is_trusted_in_nothing() {
        let deep = trust(&grid(), &load(4096, 32), 1e8, false).unwrap();
        assert_eq!((deep.basis, deep.worst_error), (Basis::Outside, None));
        let text = deep.text();
        assert!(text.contains("32 outstanding requests (measured: 1 to 16)"), "{text}");
        let large = trust(&grid(), &load(1 << 20, 4), 1e8, false).unwrap().text();
        assert!(large.contains("requests of 1 MiB (measured: 4 KiB to 64 KiB)"), "{large}");
        let writes = Workload { read_percent: 0, ..load(4096, 4) };
        let writes = trust(&grid(), &writes, 1e8, false).unwrap().text();
        assert!(writes.contains("randwrite requests were not measured"), "{writes}");
        let sequential = Workload { pattern: Pattern::Sequential, ..load(4096, 4) };
        assert_eq!(trust(&grid(), &sequential, 1e8, false).unwrap().basis, Basis::Outside);
    }

    #[test]
    fn a_gap_between_the_points_is_outside_of_them() {
        let sparse = points(&[(4096, 1, true, 1.0), (1 << 20, 1, false, 1.0)]);
        let between = trust(&sparse, &load(65_536, 1), 1e8, false).unwrap();
        assert_eq!(between.basis, Basis::Outside);
        assert!(between.text().contains("within a factor of 4 of 64 KiB"), "{}", between.text());
    }

    #[test]
    fn a_system_that_was_not_calibrated_is_not_judged() {
        assert_eq!(trust(&[], &load(4096, 1), 1e8, false), None);
    }
}
