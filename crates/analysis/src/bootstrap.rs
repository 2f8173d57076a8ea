//! Confidence intervals of medians, without assuming a distribution.
//!
//! Storage throughput is rarely normal (bimodal devices, slow episodes). A point is therefore
//! reported as its median, with an interval computed from the data alone: order statistics for few
//! samples, the percentile bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, 1993,
//! chapter 13) for more. Both assume independent samples. Trials in randomised order are
//! independent. Neighbouring windows of one trial are not, and their intervals are too narrow.
//!
//! Resampling uses xoshiro256++ with the caller's seed. Equal samples and an equal seed give the
//! same interval on every machine.

use crate::interval::Interval;
use crate::quantile::{median, median_in_place, quantile};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Number of resamples. The bounds then vary between seeds by a fraction of the interval, and the
/// usual ten to thirty trials take well under a millisecond.
const RESAMPLES: usize = 2000;

/// Up to this many samples, order statistics are used, because the bootstrap is too coarse.
const ORDER_STATISTICS_MAX: usize = 8;

/// The median of independent samples and its interval at `confidence` (0.95 for 95%).
///
/// - Up to 8 samples: the narrowest pair of order statistics whose exact coverage (binomial, for
///   any continuous distribution) reaches `confidence`; otherwise the smallest and the largest
///   sample, which cover the median with probability 1 - 2^(1-n): 50%, 75%, 88%, 94% and 97% for 2
///   to 6 samples. One sample gives [`Interval::exact`], because its spread is unknown.
/// - From 9 samples: percentile bootstrap. At 95%, its true coverage is 90% to 97%, depending on
///   the number of samples, because the medians of resamples take few distinct values.
///
/// `None` if there are no samples, one is not finite, or `confidence` is not between 0 and 1.
pub fn median_interval(samples: &[f64], confidence: f64, seed: u64) -> Option<Interval> {
    let value = median(samples)?;
    if !(confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    let (low, high) = if samples.len() <= ORDER_STATISTICS_MAX {
        order_statistics(samples, confidence)
    } else {
        resampled(samples, confidence, seed)?
    };
    Some(Interval { value, low: low.min(value), high: high.max(value) })
}

/// The median of the ratios `a[i] / b[i]` of paired measurements, with an interval as in
/// [`median_interval`].
///
/// Pairing removes effects that both values of a pair share, such as a slow episode of the host.
/// `None` if the lengths differ, a ratio is not finite (for example if `b[i]` is zero), or
/// [`median_interval`] returns `None`.
pub fn paired_ratio_interval(a: &[f64], b: &[f64], confidence: f64, seed: u64) -> Option<Interval> {
    if a.len() != b.len() {
        return None;
    }
    let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
    median_interval(&ratios, confidence, seed)
}

/// Time of a measurement, on any clock, and its value.
pub type Timed = (i64, f64);

/// The median of the ratios of `a` to `b`, which were measured alternately, with an interval as in
/// [`median_interval`]. Each value of the shorter list is paired with the value of the longer list
/// that is nearest in time.
///
/// Like [`paired_ratio_interval`], this removes effects that both values of a pair share. `None` if
/// a list is empty, or under the conditions of [`paired_ratio_interval`].
pub fn nearest_ratio_interval(
    a: &[Timed],
    b: &[Timed],
    confidence: f64,
    seed: u64,
) -> Option<Interval> {
    let nearest = |to: i64, of: &[Timed]| {
        of.iter().min_by_key(|(at, _)| at.abs_diff(to)).map(|(_, value)| *value)
    };
    let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let pairs: Vec<(f64, f64)> =
        few.iter().filter_map(|(at, value)| Some((*value, nearest(*at, many)?))).collect();
    let (mut a_values, mut b_values): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    if a.len() > b.len() {
        std::mem::swap(&mut a_values, &mut b_values);
    }
    paired_ratio_interval(&a_values, &b_values, confidence, seed)
}

/// The k-th smallest and k-th largest sample, for the greatest k with sufficient coverage of the
/// median, or 1. Each end misses the median with the probability that at most k - 1 of n fair
/// coins show heads.
fn order_statistics(samples: &[f64], confidence: f64) -> (f64, f64) {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let mut skipped = 0;
    let mut ways = 1.0; // the binomial coefficient n over `skipped`
    let mut beyond = 0.5_f64.powi(n as i32);
    while skipped < (n - 1) / 2 {
        ways *= (n - skipped) as f64 / (skipped + 1) as f64;
        beyond += ways * 0.5_f64.powi(n as i32);
        if 2.0 * beyond > 1.0 - confidence {
            break;
        }
        skipped += 1;
    }
    (sorted[skipped], sorted[n - 1 - skipped])
}

/// The central `confidence` share of the medians of resamples.
fn resampled(samples: &[f64], confidence: f64, seed: u64) -> Option<(f64, f64)> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut resample = vec![0.0; samples.len()];
    let mut medians = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for slot in &mut resample {
            *slot = samples[below(&mut random, samples.len())];
        }
        medians.push(median_in_place(&mut resample)?);
    }
    medians.sort_by(f64::total_cmp);
    let tail = (1.0 - confidence) / 2.0;
    Some((quantile(&medians, tail)?, quantile(&medians, 1.0 - tail)?))
}

/// A uniform index below `n`: the high half of a product. Its bias of n / 2^64 is negligible.
fn below(random: &mut Xoshiro256PlusPlus, n: usize) -> usize {
    ((u128::from(random.next_u64()) * n as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An approximately standard normal value: the sum of twelve uniform values minus six.
    fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
        (0..12).map(|_| random.next_u64() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
    }

    /// Share of 400 normal samples of size `n` whose interval contains the true median.
    fn coverage(n: usize) -> f64 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let covered = (0..400)
            .filter(|&seed| {
                let sample: Vec<f64> = (0..n).map(|_| normal(&mut random)).collect();
                median_interval(&sample, 0.95, seed).unwrap().contains(0.0)
            })
            .count();
        covered as f64 / 400.0
    }

    #[test]
    fn a_common_slowdown_does_not_change_the_ratio() {
        // The machine slows to half its speed after the fourth pair; `b` is measured twice as
        // often.
        let speed = |at: i64| if at < 40 { 1.0 } else { 0.5 };
        let a: Vec<Timed> = (0..8).map(|i| (10 * i, 3.0 * speed(10 * i))).collect();
        let b: Vec<Timed> = (0..16).map(|i| (5 * i + 1, 2.0 * speed(5 * i + 1))).collect();
        let times = nearest_ratio_interval(&a, &b, 0.95, 1).unwrap();
        assert_eq!((times.low, times.value, times.high), (1.5, 1.5, 1.5));
        let inverse = nearest_ratio_interval(&b, &a, 0.95, 1).unwrap();
        assert!((inverse.value * 1.5 - 1.0).abs() < 1e-12);
        assert_eq!(nearest_ratio_interval(&a, &[], 0.95, 1), None);
        assert_eq!(nearest_ratio_interval(&a, &[(0, 0.0)], 0.95, 1), None);
    }

    #[test]
    fn the_bootstrap_covers_the_median_about_as_often_as_stated() {
        for n in [9, 10, 12, 13, 20, 35] {
            let covered = coverage(n);
            assert!((0.88..=0.99).contains(&covered), "{n} samples: {covered}");
        }
    }

    #[test]
    fn few_samples_cover_the_median_as_often_as_the_binomial_distribution_says() {
        for n in [2, 3, 4, 5, 6, 8] {
            let expected = 1.0 - 2.0_f64.powi(1 - n);
            let covered = coverage(n as usize);
            assert!((covered - expected).abs() < 0.06, "{n} samples: {covered}");
        }
    }

    #[test]
    fn a_single_sample_gives_an_exact_interval() {
        assert_eq!(median_interval(&[7.0], 0.95, 1), Some(Interval::exact(7.0)));
    }

    #[test]
    fn few_samples_span_from_the_smallest_to_the_largest() {
        let i = median_interval(&[3.0, 1.0, 2.0, 9.0], 0.95, 1).unwrap();
        assert_eq!((i.low, i.value, i.high), (1.0, 2.5, 9.0));
    }

    #[test]
    fn less_confidence_needs_only_the_inner_samples() {
        // k = 2 of 8: the two ends miss the median with probability 2 (1 + 8) / 256, so 93%
        // coverage.
        let samples = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let i = median_interval(&samples, 0.92, 1).unwrap();
        assert_eq!((i.low, i.high), (2.0, 7.0));
        let i = median_interval(&samples, 0.94, 1).unwrap();
        assert_eq!((i.low, i.high), (1.0, 8.0));
    }

    #[test]
    fn unusable_samples_have_no_interval() {
        assert_eq!(median_interval(&[], 0.95, 1), None);
        assert_eq!(median_interval(&[1.0, f64::NAN], 0.95, 1), None);
        assert_eq!(median_interval(&[1.0, 2.0], 1.0, 1), None);
        assert_eq!(paired_ratio_interval(&[1.0, 2.0], &[1.0], 0.95, 1), None);
        assert_eq!(paired_ratio_interval(&[1.0], &[0.0], 0.95, 1), None);
    }

    #[test]
    fn pairing_removes_what_both_members_share() {
        let host = [1.0, 0.5, 0.9, 0.4, 1.1, 0.7, 1.0, 0.6, 0.3, 1.2, 0.8];
        let a: Vec<f64> = host.iter().map(|h| 210.0 * h).collect();
        let b: Vec<f64> = host.iter().map(|h| 100.0 * h).collect();
        let i = paired_ratio_interval(&a, &b, 0.95, 1).unwrap();
        assert!((i.value - 2.1).abs() < 1e-12 && i.half_width_relative() < 1e-12);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_interval_holds_the_median_within_the_samples(
            samples in proptest::collection::vec(-1e9..1e9f64, 1..40), seed in any::<u64>(),
            confidence in 0.01..0.99f64,
        ) {
            let i = median_interval(&samples, confidence, seed).unwrap();
            prop_assert_eq!(i.value, median(&samples).unwrap());
            prop_assert!(i.contains(i.value));
            prop_assert!(samples.iter().any(|&x| x <= i.low));
            prop_assert!(samples.iter().any(|&x| x >= i.high));
            prop_assert_eq!(median_interval(&samples, confidence, seed), Some(i));
        }
    }
}
