//! Detects a rising or falling trend in a series.
//!
//! The Mann-Kendall test checks whether chance explains the order of the values (Mann, 1945;
//! Kendall, Rank Correlation Methods, 1975). The Theil-Sen slope gives the size of the change (Sen,
//! 1968). Both methods use pairs of values instead of a fitted curve, so single outliers have
//! little influence. The test assumes independent values. A slow wave in a short series also counts
//! as drift, so a caller should require a small p-value *and* a minimum change.

use crate::quantile::{median, median_in_place};
use statrs::function::erf::erfc;

/// Minimum number of values in a series. A trend of three values can never be significant.
const VALUES_MIN: usize = 4;

/// Maximum number of values that are compared. A longer series is reduced to means of equal blocks,
/// because work and memory grow with the square of the length (4 MB at this length).
const SERIES_MAX: usize = 1000;

/// The trend of a series: its slope, and whether it is significant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// Change from the first to the last value according to the Theil-Sen slope, as a share of the
    /// median. For example, -0.1 is a loss of 10%.
    pub slope_relative: f64,
    /// Two-sided p-value of the Mann-Kendall test: the probability that a series without a trend is
    /// ordered at least this strongly.
    pub p_value: f64,
}

/// Returns the trend of a series of equally spaced values.
///
/// The p-value uses the normal approximation with tie and continuity corrections. Even for four
/// values, it is within 0.03 of the exact value. A series of more than 1000 values is reduced to at
/// most 1000 means of equal blocks. Values that do not fill the last block are left out. `None` if
/// there are fewer than four values, a value is not finite, or the median is zero.
pub fn drift(series: &[f64]) -> Option<Drift> {
    let block = series.len().div_ceil(SERIES_MAX).max(1);
    let means: Vec<f64> =
        series.chunks_exact(block).map(|b| b.iter().sum::<f64>() / block as f64).collect();
    let centre = median(&means)?;
    if means.len() < VALUES_MIN || centre == 0.0 {
        return None;
    }
    let last = (means.len() - 1) as f64;
    let slope_relative = theil_sen(&means)? * last / centre.abs();
    Some(Drift { slope_relative, p_value: mann_kendall(&means) })
}

/// Returns the median slope over all pairs of values, per step of the series.
fn theil_sen(series: &[f64]) -> Option<f64> {
    let mut slopes = Vec::with_capacity(series.len() * (series.len() - 1) / 2);
    for (i, first) in series.iter().enumerate() {
        for (step, second) in series[i + 1..].iter().enumerate() {
            slopes.push((second - first) / (step + 1) as f64);
        }
    }
    median_in_place(&mut slopes)
}

/// Returns the two-sided p-value of S, the number of rising pairs minus the number of falling
/// pairs.
fn mann_kendall(series: &[f64]) -> f64 {
    let mut s = 0.0;
    for (i, first) in series.iter().enumerate() {
        for second in &series[i + 1..] {
            s += f64::from(i8::from(second > first) - i8::from(second < first));
        }
    }
    let spread = |n: usize| (n * (n - 1) * (2 * n + 5)) as f64;
    let mut sorted = series.to_vec();
    sorted.sort_by(f64::total_cmp);
    let ties: f64 = sorted.chunk_by(|a, b| a == b).map(|tied| spread(tied.len())).sum();
    let variance = (spread(series.len()) - ties) / 18.0;
    if s == 0.0 || variance <= 0.0 {
        return 1.0;
    }
    let z = (s.abs() - 1.0) / variance.sqrt();
    erfc(z / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns all permutations of `items`.
    fn permutations(items: &[f64]) -> Vec<Vec<f64>> {
        if items.is_empty() {
            return vec![Vec::new()];
        }
        let mut all = Vec::new();
        for i in 0..items.len() {
            let mut rest = items.to_vec();
            let first = rest.remove(i);
            all.extend(permutations(&rest).into_iter().map(|tail| [vec![first], tail].concat()));
        }
        all
    }

    #[test]
    fn p_values_of_short_series_are_within_three_hundredths_of_the_exact_ones() {
        for n in 4_i32..=7 {
            let items: Vec<f64> = (0..n).map(f64::from).collect();
            let p: Vec<f64> = permutations(&items).iter().map(|s| mann_kendall(s)).collect();
            for &approximate in &p {
                let as_extreme = p.iter().filter(|&&other| other <= approximate + 1e-12).count();
                let exact = as_extreme as f64 / p.len() as f64;
                assert!((approximate - exact).abs() < 0.03, "{n}: {approximate} for {exact}");
            }
        }
    }

    #[test]
    fn ties_reduce_the_variance() {
        // Two of the five values are equal and S is 9. The variance is (5 * 4 * 15 - 2 * 1 * 9) /
        // 18 = 15.667, so z is 8 / 3.958 = 2.021 and p is 0.0433.
        let p = mann_kendall(&[1.0, 2.0, 2.0, 3.0, 4.0]);
        assert!((p - 0.0433).abs() < 5e-4, "{p}");
    }

    #[test]
    fn a_throttled_device_shows_its_loss() {
        let series: Vec<f64> = (0..40).map(|i| 1000.0 - 5.0 * f64::from(i)).collect();
        let d = drift(&series).unwrap();
        assert!((d.slope_relative + 195.0 / 902.5).abs() < 1e-9, "{d:?}");
        assert!(d.p_value < 1e-6);
    }

    #[test]
    fn one_wild_value_is_no_drift() {
        let mut series: Vec<f64> = (0..30).map(|i| 100.0 + f64::from(i * 7 % 10)).collect();
        series[29] = 1e6;
        let d = drift(&series).unwrap();
        assert!(d.p_value > 0.05 && d.slope_relative.abs() < 0.05, "{d:?}");
    }

    #[test]
    fn a_long_series_is_reduced_and_keeps_its_slope() {
        let series: Vec<f64> = (0..50_500).map(|i| 1000.0 + f64::from(i) / 100.0).collect();
        let d = drift(&series).unwrap();
        assert!((d.slope_relative - 505.0 / 1252.5).abs() < 0.002, "{d:?}");
    }

    #[test]
    fn series_without_a_trend() {
        assert_eq!(drift(&[1.0, 2.0, 3.0]), None);
        assert_eq!(drift(&[]), None);
        assert_eq!(drift(&[0.0; 10]), None);
        assert_eq!(drift(&[1.0, 2.0, f64::NAN, 4.0]), None);
        assert_eq!(drift(&[3.0; 10]), Some(Drift { slope_relative: 0.0, p_value: 1.0 }));
    }

    proptest! {
        #[test]
        fn a_reversed_series_drifts_the_other_way(
            series in proptest::collection::vec(1.0..1e6f64, 4..40),
        ) {
            let forward = drift(&series).unwrap();
            let reversed: Vec<f64> = series.iter().rev().copied().collect();
            let backward = drift(&reversed).unwrap();
            prop_assert!((forward.slope_relative + backward.slope_relative).abs() < 1e-9);
            prop_assert_eq!(forward.p_value, backward.p_value);
            prop_assert!((0.0..=1.0).contains(&forward.p_value));
        }
    }
}
