//! The self-test: measures reference devices whose properties are known, and compares the measured
//! values with the true values.
//!
//! The measurements use the same code as any run. Measured times include the overhead of the I/O
//! path (system calls, FUSE, wake-ups). This overhead is measured on a device with zero delay, in
//! trials that alternate with those on the reference device, and is subtracted. It is also printed.
//! If it is more than 10% of the true value, the quantity fails, because a large overhead could
//! hide an error.

pub mod devices;
pub mod document;
pub mod throttled;
pub mod apparatus;
pub mod quantities;

use schemars::JsonSchema;
use serde::Serialize;

/// One quantity: its true value, the measured value, and whether the error is small enough.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Quantity {
    /// Name of the quantity.
    pub quantity: String,
    /// Unit of `truth` and `measured`.
    pub unit: String,
    /// The true value.
    pub truth: f64,
    /// The measured value, or the midpoint of the measured bounds. Null if skipped.
    pub measured: Option<f64>,
    /// Measured lower and upper bound. Null if a single value was measured.
    pub bounds: Option<(f64, f64)>,
    /// Overhead of the I/O path, which was measured on a device with zero delay and subtracted.
    /// Null if nothing was subtracted.
    pub path: Option<f64>,
    /// Relative error: measured / truth - 1. Null if skipped.
    pub error: Option<f64>,
    /// Maximum absolute value of `error`. If bounds were measured, maximum distance between the
    /// bounds, as a share of the lower bound.
    pub tolerance: f64,
    /// Whether the error is within the tolerance. If bounds were measured, whether they enclose the
    /// true value and are close enough together. True if skipped.
    pub pass: bool,
    /// Why the quantity could not be measured on this host, with the remedy. Null if it was
    /// measured.
    pub skipped: Option<String>,
}

/// Maximum overhead of the I/O path, as a share of the true value.
const PATH_SHARE_MAX: f64 = 0.1;

impl Quantity {
    /// Compares a measured value with the true value.
    pub fn value(
        name: &str,
        unit: &str,
        (truth, measured): (f64, f64),
        tolerance: f64,
    ) -> Quantity {
        let error = measured / truth - 1.0;
        Quantity {
            quantity: name.to_owned(),
            unit: unit.to_owned(),
            truth,
            measured: Some(measured),
            bounds: None,
            path: None,
            error: Some(error),
            tolerance,
            // This comparison is false for NaN, so NaN fails.
            pass: error.abs() <= tolerance,
            skipped: None,
        }
    }

    /// Compares measured bounds with the true value. The bounds must enclose the true value, and
    /// differ by no more than the tolerance.
    pub fn within(
        name: &str,
        unit: &str,
        truth: f64,
        (low, high): (f64, f64),
        tolerance: f64,
    ) -> Quantity {
        let value = Quantity::value(name, unit, (truth, (low + high) / 2.0), tolerance);
        let pass = low <= truth && truth <= high && high / low - 1.0 <= tolerance;
        Quantity { bounds: Some((low, high)), pass, ..value }
    }

    /// Describes a quantity that cannot be measured on this host.
    pub fn skipped(name: &str, unit: &str, truth: f64, why: String) -> Quantity {
        let value = Quantity::value(name, unit, (truth, f64::NAN), 0.0);
        Quantity { measured: None, error: None, pass: true, skipped: Some(why), ..value }
    }

    /// Sets the overhead of the I/O path that was subtracted. The quantity fails if the overhead is
    /// more than 10% of the true value, because a large overhead could hide an error.
    #[must_use]
    pub fn with_path(self, path: f64) -> Quantity {
        let small = path.abs() <= PATH_SHARE_MAX * self.truth;
        Quantity { path: Some(path), pass: self.pass && small, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_close_enough_passes() {
        let of = |measured| Quantity::value("x", "s", (100.0, measured), 0.05).pass;
        assert!(of(104.9) && of(95.1));
        assert!(!of(105.1) && !of(94.0) && !of(f64::NAN));
    }

    #[test]
    fn a_large_path_overhead_fails() {
        let of = |path| Quantity::value("x", "s", (100.0, 100.0), 0.05).with_path(path).pass;
        assert!(of(9.0));
        assert!(!of(50.0) && !of(-50.0) && !of(f64::NAN));
    }

    #[test]
    fn bounds_must_enclose_the_truth_and_be_close_together() {
        let of = |bounds| Quantity::within("x", "s", 100.0, bounds, 0.15).pass;
        assert!(of((95.0, 105.0)));
        assert!(!of((101.0, 105.0)), "the truth is below the bounds");
        assert!(!of((90.0, 99.0)), "the truth is above the bounds");
        assert!(!of((90.0, 110.0)), "the bounds are too far apart");
        assert!(!of((f64::NAN, 110.0)));
    }
}
