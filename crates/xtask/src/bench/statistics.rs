//! Computes quantiles, and bootstrap intervals of the median, for samples of about a dozen values.
//!
//! This module does not use the crate `analysis`, so that the benchmarks are independent of the
//! code under test.

/// Number of resamples of one bootstrap.
const RESAMPLES: usize = 10_000;
/// Seed of the bootstrap, which is fixed so that intervals are reproducible.
const SEED: u64 = 20;

/// A median with its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Median of the sample.
    pub median: f64,
    /// 2.5% quantile of the resampled medians.
    pub low: f64,
    /// 97.5% quantile of the resampled medians.
    pub high: f64,
}

/// Computes a quantile of a sample by linear interpolation (type 7 of Hyndman and Fan 1996).
///
/// Panics if the sample is empty or `share` is outside 0 to 1.
pub fn quantile(sample: &[f64], share: f64) -> f64 {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

/// Computes the median with its percentile bootstrap interval (Efron 1979). Panics on an empty
/// sample.
pub fn estimate(sample: &[f64]) -> Estimate {
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut resample = || {
        let drawn: Vec<f64> = sample.iter().map(|_| sample[random.usize(..sample.len())]).collect();
        quantile(&drawn, 0.5)
    };
    let medians: Vec<f64> = (0..RESAMPLES).map(|_| resample()).collect();
    Estimate {
        median: quantile(sample, 0.5),
        low: quantile(&medians, 0.025),
        high: quantile(&medians, 0.975),
    }
}

/// Computes the range that contains 95% of the ratios of identical runs. The inverse of each ratio
/// is included, because the order of two identical runs does not matter. The ends of the range are
/// therefore inverses of each other, apart from interpolation.
pub fn spread_of_identical(ratios: &[f64]) -> (f64, f64) {
    let both: Vec<f64> = ratios.iter().flat_map(|ratio| [*ratio, ratio.recip()]).collect();
    (quantile(&both, 0.025), quantile(&both, 0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated_between_ranks() {
        let sample = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&sample, 0.5), 2.5);
        assert_eq!(quantile(&sample, 0.0), 1.0);
        assert_eq!(quantile(&sample, 1.0), 4.0);
        assert_eq!(quantile(&[7.0], 0.975), 7.0);
    }

    #[test]
    fn the_interval_holds_the_median_and_shrinks_to_a_point_without_noise() {
        let noisy: Vec<f64> = (0..11).map(|index| 1.0 + f64::from(index) / 100.0).collect();
        let found = estimate(&noisy);
        assert_eq!(found.median, 1.05);
        assert!(1.0 < found.low && found.low < 1.05 && 1.05 < found.high && found.high < 1.10);
        assert_eq!(estimate(&[2.0; 11]), Estimate { median: 2.0, low: 2.0, high: 2.0 });
    }

    #[test]
    fn intervals_cover_the_true_median_about_as_often_as_they_say() {
        let mut random = fastrand::Rng::with_seed(1);
        let covers = |_: &usize| {
            let sample: Vec<f64> = (0..11).map(|_| random.f64()).collect();
            let found = estimate(&sample);
            found.low <= 0.5 && 0.5 <= found.high
        };
        let covered = (0..60).filter(covers).count();
        assert!(covered >= 51, "{covered} of 60");
    }

    #[test]
    fn the_spread_does_not_depend_on_which_twin_came_first() {
        let (low, high) = spread_of_identical(&[0.8, 1.0, 1.1]);
        assert!((low * high - 1.0).abs() < 0.02, "{low} {high}");
        assert_eq!(spread_of_identical(&[0.8, 1.0]), spread_of_identical(&[1.25, 1.0]));
    }
}
