//! Computes quantiles, medians and median absolute deviations of samples in memory.
//!
//! These functions suit tens to thousands of values, such as the rates of trials or intervals. For
//! millions of latencies, use [`crate::histogram`].

/// Returns the quantile `q` of values sorted in ascending order, by linear interpolation between
/// the two nearest values (type 7 of Hyndman and Fan, Sample Quantiles in Statistical Packages,
/// 1996: the default of R and NumPy).
///
/// `None` if there are no values, if one of the two nearest values is not finite, or if `q` is not
/// between 0 and 1. The caller must sort the values. Otherwise the result is meaningless.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    if sorted.is_empty() || !(0.0..=1.0).contains(&q) {
        return None;
    }
    let position = q * (sorted.len() - 1) as f64;
    let below = sorted[position.floor() as usize];
    let above = sorted[position.ceil() as usize];
    let share = position.fract();
    // Unlike `below + share * (above - below)`, this sum cannot overflow. Rounding could move the
    // sum out of the range from `below` to `above`, so the sum is clamped.
    let between = (below * (1.0 - share) + above * share).max(below).min(above);
    (below.is_finite() && above.is_finite()).then_some(between)
}

/// Returns the median of values in any order. `None` if there are no values or a value is not
/// finite.
pub fn median(samples: &[f64]) -> Option<f64> {
    median_in_place(&mut samples.to_vec())
}

/// Returns the median absolute deviation from the median, in the unit of the samples.
///
/// The result is not scaled: multiply it by 1.4826 to estimate the standard deviation of a normal
/// sample. `None` if there are no values or a value is not finite.
pub fn median_absolute_deviation(samples: &[f64]) -> Option<f64> {
    let centre = median(samples)?;
    let mut deviations: Vec<f64> = samples.iter().map(|x| (x - centre).abs()).collect();
    median_in_place(&mut deviations)
}

/// Returns the median by selection, in linear time and without allocation. Reorders the values.
pub(crate) fn median_in_place(samples: &mut [f64]) -> Option<f64> {
    if samples.is_empty() || samples.iter().any(|x| !x.is_finite()) {
        return None;
    }
    let middle = samples.len() / 2;
    let odd = samples.len() % 2 == 1;
    let (lower_half, upper, _) = samples.select_nth_unstable_by(middle, f64::total_cmp);
    let upper = *upper;
    if odd {
        return Some(upper);
    }
    let lower = lower_half.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(lower * 0.5 + upper * 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn interpolates_as_type_seven() {
        // The expected values are those of R: quantile(c(1, 2, 4, 8), c(0, 0.1, 0.25, 0.5, 0.9,
        // 1)).
        let sorted = [1.0, 2.0, 4.0, 8.0];
        for (q, expected) in [(0.0, 1.0), (0.1, 1.3), (0.25, 1.75), (0.5, 3.0), (0.9, 6.8)] {
            assert!((quantile(&sorted, q).unwrap() - expected).abs() < 1e-12, "at {q}");
        }
        assert_eq!(quantile(&sorted, 1.0), Some(8.0));
    }

    #[test]
    fn no_values_or_a_nan_have_no_quantile() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[1.0], 1.5), None);
        assert_eq!(quantile(&[1.0], f64::NAN), None);
        assert_eq!(quantile(&[1.0, f64::NAN], 0.5), None);
        assert_eq!(median(&[1.0, f64::NAN, 2.0]), None);
        assert_eq!(median(&[]), None);
        assert_eq!(median_absolute_deviation(&[]), None);
    }

    #[test]
    fn the_deviation_ignores_one_wild_value() {
        assert_eq!(median_absolute_deviation(&[1.0, 2.0, 3.0, 4.0, 1e9]), Some(1.0));
    }

    proptest! {
        #[test]
        fn the_median_is_the_middle_quantile(
            mut v in proptest::collection::vec(-1e12..1e12f64, 1..60),
        ) {
            let found = median(&v).unwrap();
            v.sort_by(f64::total_cmp);
            let expected = quantile(&v, 0.5).unwrap();
            prop_assert!((found - expected).abs() <= 1e-12 * expected.abs());
        }

        #[test]
        fn quantiles_rise_with_the_share(
            mut v in proptest::collection::vec(-1e12..1e12f64, 1..60), a in 0.0..=1.0f64,
            b in 0.0..=1.0f64,
        ) {
            v.sort_by(f64::total_cmp);
            let (low, high) = (quantile(&v, a.min(b)).unwrap(), quantile(&v, a.max(b)).unwrap());
            // Interpolation rounds its result, so equal quantiles may differ in the last digits.
            prop_assert!(low <= high + 1e-9 * high.abs());
            prop_assert!(v[0] <= low && high <= v[v.len() - 1]);
        }
    }
}
