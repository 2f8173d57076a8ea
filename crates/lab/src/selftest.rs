//! The self-test: measures reference devices with known properties and compares the results.
//!
//! Every quantity is measured with the same code as any run. The overhead of the path to the device
//! (system calls, FUSE, wake-ups) is measured alternately on the same device with zero delay, and
//! subtracted from the measured times. The overhead is printed, so that it cannot hide an error.

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
    /// The measured value; if bounds were measured, the middle between them.
    pub measured: Option<f64>,
    /// Measured lower and upper bound; null for a single value.
    pub bounds: Option<(f64, f64)>,
    /// Overhead of the path at zero delay, which was subtracted.
    pub path: Option<f64>,
    /// Relative error: measured / truth - 1.
    pub error: Option<f64>,
    /// Maximum absolute value of `error`; for bounds, the maximum distance between them as a share
    /// of the lower bound.
    pub tolerance: f64,
    /// Whether the error is within the tolerance. Bounds must also enclose the truth.
    pub pass: bool,
    /// Why the quantity could not be measured on this host, with the remedy.
    pub skipped: Option<String>,
}

/// Maximum overhead of the path, as a share of the truth.
const PATH_SHARE_MAX: f64 = 0.1;

impl Quantity {
    /// A measured value with its true value.
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
            // Written so that NaN fails.
            pass: error.abs() <= tolerance,
            skipped: None,
        }
    }

    /// A true value with measured bounds, which must enclose it and be close enough to each other.
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

    /// A quantity that cannot be measured here.
    pub fn skipped(name: &str, unit: &str, truth: f64, why: String) -> Quantity {
        let value = Quantity::value(name, unit, (truth, f64::NAN), 0.0);
        Quantity { measured: None, error: None, pass: true, skipped: Some(why), ..value }
    }

    /// Adds the subtracted overhead of the path. A large overhead fails, because it could hide an
    /// error.
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
        assert!(!of((101.0, 105.0)), "truth below");
        assert!(!of((90.0, 99.0)), "truth above");
        assert!(!of((90.0, 110.0)), "too far apart");
        assert!(!of((f64::NAN, 110.0)));
    }
}
