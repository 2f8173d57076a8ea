//! Checks whether a series has reached steady state, and finds the index where this state begins.
//!
//! The criterion is from the SNIA Solid State Storage Performance Test Specification (PTS 2.0.2,
//! definition of steady state). Within a window of rounds, the values must stay close to their mean
//! and their regression line must be nearly flat. The specification uses a window of five rounds,
//! an excursion of 20% and a slope of 10%. Here the caller chooses these limits.

/// Returns the index where the steady state begins: every window of `window` values from this index
/// to the end is steady.
///
/// A window is steady if its largest minus its smallest value is at most `excursion` (for example
/// 0.2) times its mean, and its least-squares line changes by at most `slope` (for example 0.1)
/// times the mean from end to end. A window with a value that is not finite or a mean that is not
/// positive is never steady.
///
/// `None` if the last window is not steady, or if `window` is below 2 or above the length of the
/// series.
pub fn settled(series: &[f64], window: usize, excursion: f64, slope: f64) -> Option<usize> {
    if window < 2 || window > series.len() {
        return None;
    }
    let steady = series
        .windows(window)
        .rev()
        .take_while(|values| is_steady(values, excursion, slope))
        .count();
    (steady > 0).then(|| series.len() - window + 1 - steady)
}

fn is_steady(values: &[f64], excursion: f64, slope: f64) -> bool {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let middle = (n - 1.0) / 2.0;
    let along = |i: usize| i as f64 - middle;
    let sxy: f64 = values.iter().enumerate().map(|(i, y)| along(i) * (y - mean)).sum();
    let sxx: f64 = (0..values.len()).map(|i| along(i) * along(i)).sum();
    mean > 0.0
        && largest - smallest <= excursion * mean
        && (sxy / sxx).abs() * (n - 1.0) <= slope * mean
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rates of a fresh drive, which is fast at first and then reaches its steady-state rate.
    const FRESH: [f64; 10] = [900.0, 700.0, 500.0, 400.0, 310.0, 300.0, 302.0, 299.0, 301.0, 300.0];

    #[test]
    fn a_fresh_drive_is_steady_since_its_lasting_rate() {
        assert_eq!(settled(&FRESH, 5, 0.2, 0.1), Some(4));
    }

    #[test]
    fn a_series_is_not_steady_while_its_last_window_falls() {
        assert_eq!(settled(&FRESH[..7], 5, 0.2, 0.1), None);
    }

    #[test]
    fn a_series_with_a_drop_at_its_end_is_not_steady() {
        let dropped = [&FRESH[..], &[100.0]].concat();
        assert_eq!(settled(&dropped, 5, 0.2, 0.1), None);
    }

    #[test]
    fn the_slope_counts_even_within_the_excursion() {
        let rising = [100.0, 104.0, 108.0, 112.0, 116.0];
        assert_eq!(settled(&rising, 5, 0.2, 0.1), None);
        assert_eq!(settled(&rising, 5, 0.2, 0.15), Some(0));
    }

    #[test]
    fn the_excursion_counts_even_without_a_slope() {
        let peak = [100.0, 100.0, 130.0, 100.0, 100.0];
        assert_eq!(settled(&peak, 5, 0.2, 0.1), None);
        assert_eq!(settled(&peak, 5, 0.3, 0.1), Some(0));
    }

    #[test]
    fn a_short_series_or_one_without_a_rate_is_never_steady() {
        assert_eq!(settled(&[1.0; 4], 5, 0.2, 0.1), None);
        assert_eq!(settled(&[1.0; 4], 1, 0.2, 0.1), None);
        assert_eq!(settled(&[0.0; 5], 5, 0.2, 0.1), None);
        assert_eq!(settled(&[1.0, 1.0, f64::NAN], 3, 0.2, 0.1), None);
        assert_eq!(settled(&[f64::NAN, 1.0, 1.0, 1.0], 3, 0.2, 0.1), Some(1));
    }

    proptest! {
        #[test]
        fn noise_within_five_percent_is_steady_from_the_start(
            series in proptest::collection::vec(97.5..102.5f64, 5..40),
        ) {
            prop_assert_eq!(settled(&series, 5, 0.2, 0.1), Some(0));
        }
    }
}
