//! Intervals of medians without an assumption about the distribution.
//!
//! Throughput of storage is rarely normal (bimodal devices, slow episodes), so the median stands
//! for a point, and its interval comes from the data alone: from order statistics while samples
//! are few, from the percentile bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap,
//! 1993, chapter 13) when there are more. Both take the samples to be independent: trials in
//! randomised order are, neighbouring windows of one trial are not, and intervals from such windows
//! come out too narrow.
//!
//! The samples are resampled with the generator xoshiro256++ from the caller's seed: equal samples
//! and equal seed give the same interval on every machine.

use crate::interval::Interval;
use crate::quantile::{median, median_in_place, quantile};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Resamples drawn: the bounds then repeat from seed to seed within a fraction of the interval,
/// at well under a millisecond for the usual ten to thirty trials.
const RESAMPLES: usize = 2000;

/// Up to this many samples the interval comes from order statistics: the bootstrap of so few
/// is coarser than they are.
const FEW: usize = 8;

/// The median of independent samples and its interval at `confidence` (0.95 for 95%).
///
/// - Up to 8 samples: the narrowest pair of order statistics whose exact coverage (by the binomial
///   distribution, for any continuous distribution) reaches `confidence`, else the smallest and the
///   largest sample. These cover the median with probability 1 - 2^(1-n): 50%, 75%, 88% and 94%
///   for 2, 3, 4 and 5 samples, 97% for 6. One sample gives [`Interval::exact`], as nothing is
///   known of the spread.
/// - From 9 samples: percentile bootstrap. At 95% its true coverage lies between 90% and 97%,
///   depending on the number of samples, because the median of a resample is itself one of few.
///
/// `None` when there are no samples, one is not finite, or `confidence` is not within 0 and 1.
pub fn median_interval(samples: &[f64], confidence: f64, seed: u64) -> Option<Interval> {
    let value = median(samples)?;
    if !(confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    let (low, high) = if samples.len() <= FEW {
        order_statistics(samples, confidence)
    } else {
        resampled(samples, confidence, seed)?
    };
    Some(Interval { value, low: low.min(value), high: high.max(value) })
}

/// The median of the ratios `a[i] / b[i]` of measurements taken in pairs, and its interval, as
/// [`median_interval`] gives it.
///
/// Pairing removes what both members of a pair share, such as a slow episode of the host.
/// `None` when the lengths differ, a ratio is not finite (as when `b[i]` is zero), or
/// [`median_interval`] has none.
pub fn paired_ratio_interval(a: &[f64], b: &[f64], confidence: f64, seed: u64) -> Option<Interval> {
    if a.len() != b.len() {
        return None;
    }
    let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
    median_interval(&ratios, confidence, seed)
}

/// A value and when it was measured, on any clock.
pub type Timed = (i64, f64);

/// The median of the ratios of `a` to `b`, which were measured by turns, and its interval, as
/// [`median_interval`] gives it: each of the fewer with the nearest in time of the others.
///
/// As [`paired_ratio_interval`] this removes what the members of a pair share. `None` when either
/// is empty, or as there.
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

/// The k-th smallest and k-th largest sample, with the greatest k whose coverage of the median
/// suffices, or 1. An end lies beyond the median with the probability that at most k - 1 of n fair
/// coins show heads.
fn order_statistics(samples: &[f64], confidence: f64) -> (f64, f64) {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let mut skipped = 0;
    let mut ways = 1.0; // n over `skipped`
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

/// The middle `confidence` of the medians of resamples.
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

/// A uniform index below `n`: the high half of a product, whose bias of n / 2^64 is no matter.
fn below(random: &mut Xoshiro256PlusPlus, n: usize) -> usize {
    ((u128::from(random.next_u64()) * n as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A standard normal value as the sum of twelve uniform ones less six.
    fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
        (0..12).map(|_| random.next_u64() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
    }

    /// The share of 400 normal samples of size `n` whose interval holds the true median.
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
    fn what_slows_both_by_turns_leaves_their_ratio_as_it_is() {
        // The machine halves its speed after the fourth pair; one is measured twice as often.
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
        // 2 (1 + 8) / 256 of 8 lie beyond the second smallest and largest: 93% coverage.
        let samples = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let i = median_interval(&samples, 0.92, 1).unwrap();
        assert_eq!((i.low, i.high), (2.0, 7.0));
        let i = median_interval(&samples, 0.94, 1).unwrap();
        assert_eq!((i.low, i.high), (1.0, 8.0));
    }

    #[test]
    fn what_cannot_be_estimated_has_no_interval() {
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
