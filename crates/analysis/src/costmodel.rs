//! Models CPU time as a fixed cost per request plus a cost per byte.
//!
//! The model for a request of S bytes, cost(S) = fixed + marginal S, is fitted by weighted least
//! squares. The fixed part covers the system call, the interrupt and the file system. The marginal
//! part covers copying and page handling. The caller chooses how the CPU time is measured. The time
//! that the operating system charged is a lower bound. The time that a soaker loses is an upper
//! bound, where a soaker is a busy loop that takes all spare CPU time.

use crate::interval::Interval;
use crate::lsq::{self, FitError, Point};

const BYTES_PER_KIB: f64 = 1024.0;

/// The CPU cost of requests of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostPoint {
    /// Request size in bytes.
    pub request_bytes: u64,
    /// CPU time of one request in nanoseconds.
    pub cpu_ns: f64,
    /// Relative error of `cpu_ns` (0.03 for 3%).
    pub relative_error: f64,
}

/// The measured and the fitted cost of requests of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Residual {
    /// Request size in bytes.
    pub request_bytes: u64,
    /// Measured CPU time of one request in nanoseconds.
    pub measured_ns: f64,
    /// CPU time of one request according to the model, in nanoseconds.
    pub fitted_ns: f64,
}

/// The fitted cost of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct CostModel {
    /// Fixed cost per request (ns), with its 95% interval.
    pub fixed_ns: Interval,
    /// Cost per KiB (ns), with its 95% interval. If the CPU never touches the data (direct I/O),
    /// the cost may be near zero or even slightly negative.
    pub marginal_ns_per_kib: Interval,
    /// Coefficient of determination (R squared) of the weighted fit, 0 to 1.
    pub r2: f64,
    /// Measured and fitted cost of each point, in the order of the points.
    pub residuals: Vec<Residual>,
}

/// Fits the cost model. Points with a smaller error have more weight. Relative errors below
/// [`lsq::RELATIVE_ERROR_MIN`] count as this minimum.
///
/// # Errors
/// [`FitError`] if there are fewer than three points, all points have the same request size, or the
/// CPU time of a point is not positive (the trial was then too short for the CPU clock).
pub fn fit(points: &[CostPoint]) -> Result<CostModel, FitError> {
    let kib = |p: &CostPoint| p.request_bytes as f64 / BYTES_PER_KIB;
    let weighted: Vec<Point> = points
        .iter()
        .map(|p| Point::with_relative_error(kib(p), p.cpu_ns, p.relative_error))
        .collect();
    let line = lsq::line(&weighted)?;
    let residuals = points
        .iter()
        .map(|p| Residual {
            request_bytes: p.request_bytes,
            measured_ns: p.cpu_ns,
            fitted_ns: line.at(kib(p)),
        })
        .collect();
    Ok(CostModel {
        fixed_ns: line.intercept,
        marginal_ns_per_kib: line.slope,
        r2: line.r2,
        residuals,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the costs of requests of 4 KiB to 1 MiB. They deviate from the model by the shares
    /// in `off`, which are used in turn.
    fn costs(fixed_ns: f64, ns_per_kib: f64, off: &[f64]) -> Vec<CostPoint> {
        (0..9)
            .map(|i| {
                let kib = 4_u64 << i;
                let off = 1.0 + off[i % off.len()];
                let cpu_ns = (fixed_ns + ns_per_kib * kib as f64) * off;
                CostPoint { request_bytes: kib * 1024, cpu_ns, relative_error: 0.02 }
            })
            .collect()
    }

    #[test]
    fn small_noise_leaves_the_costs_within_their_intervals() {
        let model = fit(&costs(1500.0, 40.0, &[0.01, -0.01, 0.005, -0.008])).unwrap();
        assert!(model.fixed_ns.contains(1500.0), "{model:?}");
        assert!(model.marginal_ns_per_kib.contains(40.0), "{model:?}");
        assert!(model.r2 > 0.99 && model.fixed_ns.half_width_relative() < 0.05);
    }

    #[test]
    fn residuals_stand_beside_their_request_size() {
        let model = fit(&costs(1000.0, 10.0, &[0.0])).unwrap();
        let last = model.residuals[8];
        assert_eq!((last.request_bytes, last.measured_ns), (1 << 20, 11_240.0));
        assert!((last.fitted_ns - 11_240.0).abs() < 1e-6);
    }

    #[test]
    fn cost_that_does_not_depend_on_size_is_a_valid_model() {
        let model = fit(&costs(2000.0, 0.0, &[0.01, -0.01])).unwrap();
        assert!(model.marginal_ns_per_kib.contains(0.0));
    }

    #[test]
    fn a_point_without_cost_is_an_error() {
        let mut points = costs(1000.0, 10.0, &[0.0]);
        points[4].cpu_ns = 0.0;
        assert_eq!(fit(&points), Err(FitError::UnusablePoint { index: 4 }));
    }

    proptest! {
        #[test]
        fn generated_costs_are_recovered(fixed in 100.0..1e5f64, per_kib in 0.1..1e3f64) {
            let model = fit(&costs(fixed, per_kib, &[0.0])).unwrap();
            prop_assert!((model.fixed_ns.value / fixed - 1.0).abs() < 1e-6);
            prop_assert!((model.marginal_ns_per_kib.value / per_kib - 1.0).abs() < 1e-6);
        }
    }
}
