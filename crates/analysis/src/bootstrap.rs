//! Confidence intervals of medians, without assuming a distribution.
//!
//! Storage throughput is rarely normally distributed: a device may alternate between two speeds, or
//! slow down for a while. A point is therefore reported as its median. The interval of the median
//! comes from order statistics if there are few samples, and otherwise from the percentile
//! bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13). Both
//! methods assume independent samples. Trials in randomised order are independent. Neighbouring
//! windows of one trial are not independent, so intervals computed from them are too narrow.
//!
//! The bootstrap draws no random resamples, because the probability of each possible median of a
//! resample can be computed (Maritz and Jarrett, J. Amer. Statist. Assoc. 73, 1978). The same
//! samples therefore always give the same interval.

use crate::interval::Interval;
use crate::quantile::median;
use statrs::function::factorial::ln_binomial;

/// Medians of resamples with a lower probability than this are ignored.
const NEGLIGIBLE: f64 = 1e-15;

/// Maximum number of samples for which order statistics are used instead of the bootstrap, which is
/// too coarse for so few samples.
const ORDER_STATISTICS_MAX: usize = 8;

/// Returns the median of independent samples and its interval at `confidence` (0.95 for 95%).
///
/// - Up to 8 samples: the interval reaches from the k-th smallest to the k-th largest sample. k is
///   the greatest number for which the interval contains the median with at least the probability
///   `confidence` (by the binomial distribution). If no k is enough, the interval reaches from the
///   smallest to the largest sample. It then contains the median with probability 1 - 2^(1-n), for
///   example 75% for 3 samples and 94% for 5. One sample gives [`Interval::exact`], because its
///   spread is unknown.
/// - From 9 samples: percentile bootstrap. An interval at 95% then contains the true median in 90%
///   to 97% of all cases, depending on the number of samples.
///
/// `None` if there are no samples, a sample is not finite, or `confidence` is not between 0 and 1.
pub fn median_interval(samples: &[f64], confidence: f64) -> Option<Interval> {
    let value = median(samples)?;
    if !(confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    let (low, high) = if samples.len() <= ORDER_STATISTICS_MAX {
        order_statistics(samples, confidence)
    } else {
        resampled(samples, confidence)
    };
    Some(Interval { value, low: low.min(value), high: high.max(value) })
}

/// Returns the median of the ratios `a[i] / b[i]` of paired measurements, with an interval as in
/// [`median_interval`].
///
/// Pairing removes effects that both measurements of a pair share, such as a slow episode of the
/// host. `None` if the lengths differ, a ratio is not finite (for example because `b[i]` is zero),
/// or [`median_interval`] returns `None`.
pub fn paired_ratio_interval(a: &[f64], b: &[f64], confidence: f64) -> Option<Interval> {
    if a.len() != b.len() {
        return None;
    }
    let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
    median_interval(&ratios, confidence)
}

/// The time of a measurement (on any clock) and the measured value.
pub type Timed = (i64, f64);

/// Returns the median ratio of `a` to `b`, with an interval as in [`median_interval`]. `a` and `b`
/// were measured alternately. Each value of the shorter list is paired with the value of the longer
/// list that is nearest in time.
///
/// Like [`paired_ratio_interval`], this removes effects that both values of a pair share. `None` if
/// a list is empty, a ratio is not finite, or [`median_interval`] returns `None`.
pub fn nearest_ratio_interval(a: &[Timed], b: &[Timed], confidence: f64) -> Option<Interval> {
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
    paired_ratio_interval(&a_values, &b_values, confidence)
}

/// Returns the k-th smallest and the k-th largest sample, for the k described at
/// [`median_interval`]. The probability that the median lies below the k-th smallest sample equals
/// the probability of at most k - 1 heads in n tosses of a fair coin.
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

/// Returns the percentile bootstrap interval, which contains the central share `confidence` of the
/// medians of all resamples.
fn resampled(samples: &[f64], confidence: f64) -> (f64, f64) {
    let medians = medians_of_resamples(samples);
    let tail = (1.0 - confidence) / 2.0;
    (first_beyond(medians.iter(), tail), first_beyond(medians.iter().rev(), tail))
}

/// Returns the first median at which the cumulative probability reaches `tail`.
fn first_beyond<'a>(mut medians: impl Iterator<Item = &'a (f64, f64)>, tail: f64) -> f64 {
    let mut sum = 0.0;
    let found = medians.find(|(_, probability)| {
        sum += probability;
        sum >= tail
    });
    found.map_or(f64::NAN, |(value, _)| *value)
}

/// Returns all possible medians of a resample in ascending order, each with its probability.
///
/// If the number of samples is odd, the median of a resample is one of the samples. If the number
/// is even, the median is the mean of two samples, the `i`-th and the `j`-th smallest. The lower
/// half of the resample then contains the `i`-th sample and no larger one, and the upper half
/// contains the `j`-th sample and no smaller one.
fn medians_of_resamples(samples: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (n, half) = (sorted.len(), sorted.len().div_ceil(2));
    let ways = ln_binomial(n as u64, half as u64);
    let at_most = |i: usize| at_least(half, n, i as f64 / n as f64, ways);
    // `halves(i)` is the product of two factors: the probability that the largest sample of the
    // lower half is `i`, and the square root of the number of ways to divide the resample into two
    // halves. By symmetry, `halves(n - j + 1)` has the same square root and the probability that
    // the smallest sample of the upper half is `j`. The median is the mean of the samples `i` and
    // `j` with the probability `halves(i) * halves(n - j + 1)`.
    let halves = |i: usize| {
        let (power, i) = (half as i32, i as f64);
        (ways / 2.0 + f64::from(power) * (i / n as f64).ln()).exp()
            * (1.0 - ((i - 1.0) / i).powi(power))
    };
    // The standard deviation of the median's rank is about `sqrt(n) / 2`. Ranks that are more than
    // ten standard deviations from the middle are ignored.
    let far = 5 * n.isqrt() + 5;
    let places = half.saturating_sub(far).max(1)..=(half + far).min(n);
    let mut medians = Vec::new();
    for i in places {
        let lower = at_most(i) - at_most(i - 1);
        let mut equal = lower;
        if n.is_multiple_of(2) {
            for j in i + 1..=n {
                let probability = halves(i) * halves(n - j + 1);
                if probability < NEGLIGIBLE {
                    break;
                }
                equal -= probability;
                medians.push((sorted[i - 1] * 0.5 + sorted[j - 1] * 0.5, probability));
            }
        }
        medians.push((sorted[i - 1], equal.max(0.0)));
    }
    medians.sort_by(|a, b| a.0.total_cmp(&b.0));
    medians
}

/// Returns the probability that at least `count` of `n` independent draws succeed, if each draw
/// succeeds with probability `p`. `ways` is the logarithm of the binomial coefficient `n` over
/// `count`.
fn at_least(count: usize, n: usize, p: f64, ways: f64) -> f64 {
    if p <= 0.0 || p >= 1.0 {
        return p.clamp(0.0, 1.0);
    }
    let mut term = (ways + count as f64 * p.ln() + (n - count) as f64 * (1.0 - p).ln()).exp();
    let mut sum = term;
    for k in count..n {
        term *= (n - k) as f64 / (k + 1) as f64 * p / (1.0 - p);
        sum += term;
    }
    sum.min(1.0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::quantile::median_in_place;
    use proptest::prelude::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    /// Returns an approximately standard normal value: the sum of twelve uniform values minus six.
    pub fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
        (0..12).map(|_| random.next_u64() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
    }

    /// Returns the share of 400 normal samples of size `n` whose interval contains the true median.
    fn coverage(n: usize) -> f64 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let covered = (0..400)
            .filter(|_| {
                let sample: Vec<f64> = (0..n).map(|_| normal(&mut random)).collect();
                median_interval(&sample, 0.95).unwrap().contains(0.0)
            })
            .count();
        covered as f64 / 400.0
    }

    #[test]
    fn a_common_slowdown_does_not_change_the_ratio() {
        // The machine becomes half as fast after the fourth measurement of `a`. `b` is measured
        // twice as often as `a`.
        let speed = |at: i64| if at < 40 { 1.0 } else { 0.5 };
        let a: Vec<Timed> = (0..8).map(|i| (10 * i, 3.0 * speed(10 * i))).collect();
        let b: Vec<Timed> = (0..16).map(|i| (5 * i + 1, 2.0 * speed(5 * i + 1))).collect();
        let times = nearest_ratio_interval(&a, &b, 0.95).unwrap();
        assert_eq!((times.low, times.value, times.high), (1.5, 1.5, 1.5));
        let inverse = nearest_ratio_interval(&b, &a, 0.95).unwrap();
        assert!((inverse.value * 1.5 - 1.0).abs() < 1e-12);
        assert_eq!(nearest_ratio_interval(&a, &[], 0.95), None);
        assert_eq!(nearest_ratio_interval(&a, &[(0, 0.0)], 0.95), None);
    }

    #[test]
    fn the_bootstrap_covers_the_median_about_as_often_as_stated() {
        for n in [9, 10, 12, 13, 20, 35] {
            let covered = coverage(n);
            assert!((0.88..=0.99).contains(&covered), "{n} samples: {covered}");
        }
    }

    #[test]
    fn the_bounds_are_those_of_medians_of_many_resamples() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        for n in [9_usize, 10, 13, 20, 41, 200] {
            let sample: Vec<f64> = (0..n).map(|_| normal(&mut random)).collect();
            let found = median_interval(&sample, 0.95).unwrap();
            let medians: Vec<f64> = (0..20_000)
                .map(|_| {
                    let pick = |_| sample[(random.next_u64() % n as u64) as usize];
                    median_in_place(&mut (0..n).map(pick).collect::<Vec<f64>>()).unwrap()
                })
                .collect();
            let share = |is: &dyn Fn(f64) -> bool| {
                medians.iter().filter(|median| is(**median)).count() as f64 / 20_000.0
            };
            // The standard error of a share of 0.025 is 0.0011 with 20,000 resamples, so the limits
            // of 0.02 and 0.03 are more than four standard errors away.
            let (low, high) = (found.low, found.high);
            assert!(share(&|median| median < low - 1e-12) < 0.03, "{n}: {found:?}");
            assert!(share(&|median| median <= low + 1e-12) > 0.02, "{n}: {found:?}");
            assert!(share(&|median| median > high + 1e-12) < 0.03, "{n}: {found:?}");
            assert!(share(&|median| median >= high - 1e-12) > 0.02, "{n}: {found:?}");
        }
    }

    #[test]
    fn all_medians_of_resamples_have_a_probability_of_one_together() {
        for n in [2, 3, 9, 10, 99, 100, 1001, 10_000] {
            let samples: Vec<f64> = (0..n).map(f64::from).collect();
            let medians = medians_of_resamples(&samples);
            let sum: f64 = medians.iter().map(|(_, probability)| probability).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{n}: {sum}");
            let mean: f64 = medians.iter().map(|(value, probability)| value * probability).sum();
            assert!((mean - f64::from(n - 1) / 2.0).abs() < 1e-6 * f64::from(n), "{n}: {mean}");
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
        assert_eq!(median_interval(&[7.0], 0.95), Some(Interval::exact(7.0)));
    }

    #[test]
    fn few_samples_span_from_the_smallest_to_the_largest() {
        let i = median_interval(&[3.0, 1.0, 2.0, 9.0], 0.95).unwrap();
        assert_eq!((i.low, i.value, i.high), (1.0, 2.5, 9.0));
    }

    #[test]
    fn less_confidence_needs_only_the_inner_samples() {
        // The range from the second smallest to the second largest of 8 values contains the median
        // with probability 1 - 2 (1 + 8) / 256 = 93%.
        let samples = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let i = median_interval(&samples, 0.92).unwrap();
        assert_eq!((i.low, i.high), (2.0, 7.0));
        let i = median_interval(&samples, 0.94).unwrap();
        assert_eq!((i.low, i.high), (1.0, 8.0));
    }

    #[test]
    fn unusable_samples_have_no_interval() {
        assert_eq!(median_interval(&[], 0.95), None);
        assert_eq!(median_interval(&[1.0, f64::NAN], 0.95), None);
        assert_eq!(median_interval(&[1.0, 2.0], 1.0), None);
        assert_eq!(paired_ratio_interval(&[1.0, 2.0], &[1.0], 0.95), None);
        assert_eq!(paired_ratio_interval(&[1.0], &[0.0], 0.95), None);
    }

    #[test]
    fn pairing_removes_what_both_members_share() {
        let host = [1.0, 0.5, 0.9, 0.4, 1.1, 0.7, 1.0, 0.6, 0.3, 1.2, 0.8];
        let a: Vec<f64> = host.iter().map(|h| 210.0 * h).collect();
        let b: Vec<f64> = host.iter().map(|h| 100.0 * h).collect();
        let i = paired_ratio_interval(&a, &b, 0.95).unwrap();
        assert!((i.value - 2.1).abs() < 1e-12 && i.half_width_relative() < 1e-12);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_interval_holds_the_median_within_the_samples(
            samples in proptest::collection::vec(-1e9..1e9f64, 1..40), confidence in 0.01..0.99f64,
        ) {
            let i = median_interval(&samples, confidence).unwrap();
            prop_assert_eq!(i.value, median(&samples).unwrap());
            prop_assert!(i.contains(i.value));
            prop_assert!(samples.iter().any(|&x| x <= i.low));
            prop_assert!(samples.iter().any(|&x| x >= i.high));
        }
    }
}
