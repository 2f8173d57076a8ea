//! The half-power point: the smallest request size that delivers more than half of the peak rate.
//!
//! [`measured`] finds the half-power point among measured points. [`fit`] derives it from a
//! pipeline model with a start-up time: a request of S bytes takes T = f + s S, so the rate S / T
//! approaches 1 / s for large requests and reaches half of this at S = f / s. Hockney calls 1 / s
//! "r-infinity" and f / s "n-one-half" (Hockney and Jesshope, Parallel Computers 2, 1988).
//! [`plateau`] finds the peak rate if the caller does not know it.
//!
//! The same functions work with queue depth instead of size. The time is then the depth divided by
//! requests per second.

use crate::interval::Interval;
use crate::lsq::{self, FitError, Point};
use crate::quantile::median;

/// Maximum difference between a rate on the plateau and the highest rate, as a share of the highest
/// rate.
const PLATEAU_TOLERANCE: f64 = 0.10;

const NS_PER_S: f64 = 1e9;

/// Returns the peak rate: the median of all rates within 10% of the highest confirmed rate. A rate
/// is confirmed if the next lower rate is within 10% of it. The rates may be in any order.
///
/// A single high rate, for example from a cache, is ignored. On a curve S / (f + s S) measured at
/// doubling sizes, the result is at least 80% of the asymptote. `None` if no rate is confirmed,
/// because the rate was still rising or there are too few points. Rates that are not finite and
/// positive are ignored.
pub fn plateau(rates: &[f64]) -> Option<f64> {
    let mut falling: Vec<f64> =
        rates.iter().copied().filter(|r| r.is_finite() && *r > 0.0).collect();
    falling.sort_by(|a, b| b.total_cmp(a));
    let near = |rate: f64, top: f64| rate >= top * (1.0 - PLATEAU_TOLERANCE);
    let top = falling.windows(2).position(|pair| near(pair[1], pair[0]))?;
    let on_it: Vec<f64> =
        falling[top..].iter().copied().take_while(|&r| near(r, falling[top])).collect();
    median(&on_it)
}

/// Returns the smallest measured size (or depth) whose rate exceeds half of the peak rate `pap`. A
/// size does not qualify if the rate of the next larger size is half of `pap` or less.
///
/// The points (size or depth, rate in the unit of `pap`) may be in any order. If a size occurs
/// several times, all of its rates must exceed half of `pap`. `None` if no size qualifies, or if
/// `pap` is not finite and positive.
pub fn measured(points: &[(u64, f64)], pap: f64) -> Option<u64> {
    if !pap.is_finite() || pap <= 0.0 {
        return None;
    }
    let mut rising = points.to_vec();
    rising.sort_by_key(|&(size, _)| size);
    let sizes: Vec<(u64, bool)> = rising
        .chunk_by(|a, b| a.0 == b.0)
        .map(|same| (same[0].0, same.iter().all(|&(_, rate)| rate > pap / 2.0)))
        .collect();
    let stands = |&i: &usize| sizes[i].1 && sizes.get(i + 1).is_none_or(|next| next.1);
    (0..sizes.len()).find(stands).map(|i| sizes[i].0)
}

/// Returns the two sizes between which the half-power point lies, for rates with intervals. At the
/// first size, the upper bound of the rate exceeds half of `pap`. At the second size, the lower
/// bound of the rate exceeds half of `pap`. Both sizes are found as in [`measured`]. They are equal
/// if no interval contains half of `pap`.
///
/// Each size must occur only once. `None` if there is no second size, or if `pap` is not finite and
/// positive.
pub fn measured_between(points: &[(u64, Interval)], pap: f64) -> Option<(u64, u64)> {
    let ends = |of: fn(&Interval) -> f64| -> Vec<(u64, f64)> {
        points.iter().map(|(size, rate)| (*size, of(rate))).collect()
    };
    let surely = measured(&ends(|rate| rate.low), pap)?;
    let perhaps = measured(&ends(|rate| rate.high), pap)?;
    Some((perhaps.min(surely), surely))
}

/// The time that requests of one size take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizePoint {
    /// Request size in bytes.
    pub request_bytes: u64,
    /// Time per request (ns): elapsed time divided by completed requests. At depth 1 this is the
    /// latency.
    pub time_ns: f64,
    /// Relative error of `time_ns` (0.03 for 3%).
    pub relative_error: f64,
}

/// The fitted time of a request, T = f + s S, and the results derived from it.
#[derive(Clone, Debug, PartialEq)]
pub struct HalfPowerFit {
    /// f: fixed time per request (ns), with its 95% interval. The value may be slightly negative if
    /// noise hides the fixed time.
    pub fixed_ns: Interval,
    /// s: time per byte (ns), with its 95% interval.
    pub ns_per_byte: Interval,
    /// f / s: the size (bytes) that reaches half of the asymptotic rate (n-one-half), with its 95%
    /// interval by the delta method. The size is negative if `fixed_ns` is negative.
    pub half_power_bytes: Interval,
    /// 1 / s: the asymptotic rate of large requests (r-infinity), in bytes per second.
    pub asymptote_bytes_per_s: f64,
    /// Coefficient of determination (R squared) of the weighted fit, 0 to 1.
    pub r2: f64,
    /// Measured minus fitted time (ns), in the order of the points.
    pub residuals: Vec<f64>,
}

impl HalfPowerFit {
    /// Returns the size (bytes) at which the fitted rate is half of a given peak rate, PAP (bytes
    /// per second): S / (f + s S) = PAP / 2 at S = f / (2 / PAP - s).
    ///
    /// `None` if the asymptotic rate does not exceed PAP / 2, if the fixed time is not positive
    /// (the rate of every size then exceeds PAP / 2), or if `pap_bytes_per_s` is not finite and
    /// positive.
    pub fn fit_against(&self, pap_bytes_per_s: f64) -> Option<f64> {
        if !pap_bytes_per_s.is_finite() || pap_bytes_per_s <= 0.0 {
            return None;
        }
        let spare_ns_per_byte = 2.0 * NS_PER_S / pap_bytes_per_s - self.ns_per_byte.value;
        let positive = self.fixed_ns.value > 0.0 && spare_ns_per_byte > 0.0;
        positive.then(|| self.fixed_ns.value / spare_ns_per_byte)
    }
}

/// Fits T = f + s S by least squares. Points with a smaller error have more weight. Relative errors
/// below [`lsq::RELATIVE_ERROR_MIN`] count as this minimum.
///
/// # Errors
/// [`FitError`] if there are fewer than three points, all points have the same request size, a time
/// is not positive, or the time does not rise with the size (there is then no asymptotic rate).
pub fn fit(points: &[SizePoint]) -> Result<HalfPowerFit, FitError> {
    let weighted: Vec<Point> = points
        .iter()
        .map(|p| Point::with_relative_error(p.request_bytes as f64, p.time_ns, p.relative_error))
        .collect();
    let line = lsq::line(&weighted)?;
    if line.slope.value <= 0.0 {
        return Err(FitError::NotRising { ns_per_byte: line.slope.value });
    }
    Ok(HalfPowerFit {
        fixed_ns: line.intercept,
        ns_per_byte: line.slope,
        half_power_bytes: line.intercept_over_slope(),
        asymptote_bytes_per_s: NS_PER_S / line.slope.value,
        r2: line.r2,
        residuals: line.residuals,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    /// Returns the times of requests of 4 KiB to 4 MiB. Each time deviates from the model by at
    /// most the share `noise`.
    fn times(fixed_ns: f64, ns_per_byte: f64, noise: f64, seed: u64) -> Vec<SizePoint> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..11)
            .map(|i| {
                let request_bytes = 4096_u64 << i;
                let off = noise * (2.0 * (random.next_u64() as f64 / u64::MAX as f64) - 1.0);
                let time_ns = (fixed_ns + ns_per_byte * request_bytes as f64) * (1.0 + off);
                SizePoint { request_bytes, time_ns, relative_error: noise }
            })
            .collect()
    }

    #[test]
    fn a_rate_whose_interval_lies_across_the_half_leaves_two_sizes() {
        let known = |size, value: f64| (size, Interval::symmetric(value, 2.0));
        let clear = [known(4, 20.0), known(8, 40.0), known(16, 60.0), known(32, 100.0)];
        assert_eq!(measured_between(&clear, 100.0), Some((16, 16)));
        let across = [known(4, 20.0), known(8, 49.0), known(16, 60.0), known(32, 100.0)];
        assert_eq!(measured_between(&across, 100.0), Some((8, 16)));
        assert_eq!(measured_between(&clear, 300.0), None);
    }

    #[test]
    fn a_device_of_fifty_us_and_a_us_per_kib_has_its_half_power_point_at_fifty_kib() {
        let f = fit(&times(50_000.0, 1000.0 / 1024.0, 0.0, 1)).unwrap();
        assert!((f.half_power_bytes.value / 51_200.0 - 1.0).abs() < 1e-9);
        assert!((f.asymptote_bytes_per_s / 1.024e9 - 1.0).abs() < 1e-9);
        assert!((f.fit_against(f.asymptote_bytes_per_s).unwrap() / 51_200.0 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_half_power_point_lies_in_its_interval_about_as_often_as_stated() {
        let inside = (0..300)
            .filter(|&seed| {
                let f = fit(&times(50_000.0, 1.0, 0.05, seed)).unwrap();
                f.half_power_bytes.contains(50_000.0)
            })
            .count();
        assert!((270..=299).contains(&inside), "{inside} of 300");
    }

    #[test]
    fn a_higher_peak_asks_for_a_larger_request_until_it_is_out_of_reach() {
        let f = fit(&times(50_000.0, 1.0, 0.0, 1)).unwrap();
        let at = |pap| f.fit_against(pap);
        // For a peak of 1.6 GB/s, the size is 50 us / (2 / 1.6 - 1) ns = 200 kB. No size reaches
        // half of a peak of 2.1 GB/s, because the asymptotic rate is 1 GB/s.
        assert!((at(1.6e9).unwrap() / 200_000.0 - 1.0).abs() < 1e-6);
        assert!(at(0.5e9) < at(1.6e9));
        assert_eq!((at(2.1e9), at(0.0), at(f64::NAN)), (None, None, None));
    }

    #[test]
    fn a_negative_fixed_time_is_shown_and_reaches_every_peak_at_no_size() {
        let times = [(1000, 900.0), (2000, 2000.0), (4000, 4200.0)];
        let points = times.map(|(request_bytes, time_ns)| SizePoint {
            request_bytes,
            time_ns,
            relative_error: 0.03,
        });
        let f = fit(&points).unwrap();
        assert!(f.fixed_ns.value < 0.0 && f.half_power_bytes.value < 0.0);
        assert_eq!(f.fit_against(1e8), None);
    }

    #[test]
    fn a_time_that_does_not_rise_with_the_size_has_no_half_power_point() {
        let mut points = times(50_000.0, 1.0, 0.0, 1);
        points.iter_mut().for_each(|p| p.time_ns = 1e9 - p.request_bytes as f64);
        assert!(
            matches!(fit(&points), Err(FitError::NotRising { ns_per_byte }) if ns_per_byte < 0.0)
        );
        points.truncate(2);
        assert_eq!(fit(&points), Err(FitError::TooFewPoints { points: 2 }));
    }

    #[test]
    fn the_measured_point_exceeds_half_strictly() {
        let points = [(64, 900.0), (4, 100.0), (16, 500.0), (32, 700.0)];
        assert_eq!(measured(&points, 1000.0), Some(32));
        assert_eq!(measured(&points, 999.0), Some(16));
        assert_eq!(measured(&points, 1800.0), None);
        assert_eq!(measured(&points, 0.0), None);
        assert_eq!(measured(&[], 1000.0), None);
    }

    #[test]
    fn a_lucky_small_size_is_contradicted_by_the_next() {
        let points = [(4, 600.0), (8, 400.0), (16, 700.0), (32, 800.0), (64, 300.0)];
        assert_eq!(measured(&points, 1000.0), Some(16));
        assert_eq!(measured(&[(4, 600.0), (4, 400.0), (8, 600.0)], 1000.0), Some(8));
        assert_eq!(measured(&[(4, 600.0), (8, f64::NAN)], 1000.0), None);
    }

    #[test]
    fn the_plateau_is_where_rates_agree_not_where_one_stands_out() {
        assert_eq!(plateau(&[100.0, 200.0, 400.0, 700.0, 980.0, 1000.0, 990.0]), Some(990.0));
        assert_eq!(plateau(&[500.0, 9000.0, 510.0, 505.0]), Some(505.0));
        assert_eq!(plateau(&[100.0, 200.0, 400.0]), None);
        assert_eq!(plateau(&[100.0, f64::NAN, f64::INFINITY, 0.0]), None);
        assert_eq!(plateau(&[0.0, 0.0]), None);
    }

    proptest! {
        #[test]
        fn fixed_over_marginal_time_is_recovered(
            fixed in 1e3..1e6f64, per_byte in 0.05..10.0f64,
        ) {
            let f = fit(&times(fixed, per_byte, 0.0, 1)).unwrap();
            prop_assert!((f.half_power_bytes.value / (fixed / per_byte) - 1.0).abs() < 1e-6);
            prop_assert!(f.half_power_bytes.contains(f.half_power_bytes.value));
            prop_assert!(f.r2 > 0.999_999);
        }

        #[test]
        fn the_size_fitted_against_a_peak_delivers_half_of_it(
            fixed in 1e3..1e6f64, per_byte in 0.05..10.0f64, share in 0.01..1.9f64,
        ) {
            let f = fit(&times(fixed, per_byte, 0.0, 1)).unwrap();
            let pap = share * f.asymptote_bytes_per_s;
            let size = f.fit_against(pap).unwrap();
            let rate = size / (f.fixed_ns.value + f.ns_per_byte.value * size) * NS_PER_S;
            prop_assert!((rate / (pap / 2.0) - 1.0).abs() < 1e-9);
        }

        #[test]
        fn a_climbing_curve_at_doubling_sizes_has_its_plateau_near_the_asymptote(
            half_power in 1e3..1e7f64, largest in 10..31,
        ) {
            let rates: Vec<f64> =
                (9..=largest).map(|i| 2.0_f64.powi(i)).map(|s| s / (half_power + s)).collect();
            let still_climbing = rates[rates.len() - 2] < 0.9 * rates[rates.len() - 1];
            prop_assert_eq!(plateau(&rates).is_none(), still_climbing);
            prop_assert!(plateau(&rates).is_none_or(|found| (0.8..=1.0).contains(&found)));
        }
    }
}
