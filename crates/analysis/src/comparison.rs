//! Compares two sets of trials. The result is the ratio of their means, whether the ratio differs
//! from one, and how many trials would be needed to decide this.
//!
//! Rates and times vary by factors, so all tests use logarithms, and the ratio is that of the
//! geometric means. The interval of the ratio comes from Welch's t-test, or from the paired t-test
//! if the trials were made in pairs. The p-values of many comparisons are corrected with the method
//! of Benjamini and Hochberg (Controlling the False Discovery Rate, J. R. Statist. Soc. B 57,
//! 1995), which limits the expected share of false differences among the reported differences.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::interval::{CONFIDENCE, Interval};

/// Maximum false discovery rate: the expected share of reported differences that are due to chance.
pub const FALSE_DISCOVERIES: f64 = 0.05;

/// Probability that the number of trials from [`RatioTest::trials_needed`] is enough to find the
/// change.
pub const POWER: f64 = 0.9;

/// Minimum number of pairs before a sequential comparison may end. With fewer pairs, the spread is
/// too often small by chance, and the interval then misses the true ratio.
pub const SEQUENTIAL_PAIRS_MIN: usize = 10;

/// Maximum number of trials that [`RatioTest::trials_needed`] returns.
const TRIALS_MAX: u32 = 10_000;

/// The result of comparing a second set of trials with a first set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioTest {
    /// Geometric mean of the second set divided by that of the first, with its 95% interval. The
    /// interval has zero width if the values do not vary.
    pub ratio: Interval,
    /// Probability that chance alone gives a ratio that differs from 1 at least as much as this
    /// ratio.
    pub p_value: f64,
    /// Standard deviation of the logarithms of the values: the larger of the standard deviations
    /// of the two sets. For paired trials, it is the standard deviation of the logarithms of the
    /// ratios.
    pub deviation: f64,
    /// Number of trials on each side. If the numbers differ, the smaller number.
    pub trials: u32,
    /// Whether the trials were compared in pairs.
    pub paired: bool,
}

/// Result of comparing the second side with the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The second side is higher.
    Higher,
    /// The second side is lower.
    Lower,
    /// The whole interval of the ratio lies within the tolerated change.
    Same,
    /// The trials are too few or too noisy to decide.
    Unclear,
}

/// Compares trials that were made independently (Welch's t-test of the logarithms). The ratio is `b
/// / a`. If one side has only one value, its variance is assumed to equal that of the other side.
///
/// `None` if a side is empty, both sides have only one value, or a value is not positive and
/// finite.
pub fn ratio_test(a: &[f64], b: &[f64]) -> Option<RatioTest> {
    let (a, b) = (moments(a)?, moments(b)?);
    let (variance, freedom) = welch(&a, &b)?;
    let spread = |variance: Option<f64>| variance.unwrap_or_default();
    let deviation = spread(a.variance).max(spread(b.variance)).sqrt();
    let trials = a.count.min(b.count) as u32;
    let test = RatioTest { trials, deviation, ..RatioTest::EMPTY };
    Some(test.with(b.mean - a.mean, variance.sqrt(), freedom))
}

/// Noise that is known before a series is measured, for example from hosts of the same kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Variance of the logarithms of the values.
    pub variance: f64,
    /// Degrees of freedom of the variance. [`Noise::variance_with`] uses them as the weight of the
    /// variance.
    pub freedom: f64,
}

/// Cuts a series in two at each index that leaves at least `least` values on both sides, and
/// returns each index with the p-value of the difference between the two parts. `least` must be two
/// or more.
///
/// Without `noise`, the p-value is computed as in [`ratio_test`]. A part of three values then has
/// only two degrees of freedom, so even a large change may not be significant. With `noise`, the
/// variance is the mean of the known variance and the variances of both parts, weighted with their
/// degrees of freedom (moderated t-test: Smyth, Linear models and empirical Bayes methods, Statist.
/// Appl. Genet. Mol. Biol. 3, 2004).
///
/// The result is empty if a value is not positive and finite.
pub fn cuts(values: &[f64], least: usize, noise: Option<&Noise>) -> Vec<(usize, f64)> {
    if !values.iter().all(|value| *value > 0.0 && value.is_finite()) {
        return Vec::new();
    }
    let before = running_moments(values.iter());
    let after = running_moments(values.iter().rev());
    let indices = least..(values.len() + 1).saturating_sub(least);
    let cut = |index: usize| {
        let (a, b) = (&before[index - 1], &after[values.len() - index - 1]);
        let (variance, freedom) = match noise {
            Some(noise) => noise.moderated(a, b),
            None => welch(a, b)?,
        };
        // The mean of the first part is relative to the first value of the series, and the mean of
        // the second part is relative to the last value.
        let difference = (values[values.len() - 1] / values[0]).ln() + b.mean - a.mean;
        Some((index, p_value(difference, variance.sqrt(), freedom)))
    };
    indices.filter_map(cut).collect()
}

impl Noise {
    /// Returns the mean of the known variance and the measured variance of a series, weighted with
    /// their degrees of freedom. `squares` is the sum of the squared deviations of the series, and
    /// `freedom` is its number of degrees of freedom.
    pub fn variance_with(&self, squares: f64, freedom: f64) -> f64 {
        (self.freedom * self.variance + squares) / (self.freedom + freedom)
    }

    /// Returns the variance of the difference between the means of two parts, and its degrees of
    /// freedom. The variances of both parts are combined with the known variance.
    fn moderated(&self, a: &Moments, b: &Moments) -> (f64, f64) {
        let squares = |part: &Moments| part.variance.unwrap_or_default() * (part.count - 1.0);
        let own = a.count + b.count - 2.0;
        let variance = self.variance_with(squares(a) + squares(b), own);
        (variance * (1.0 / a.count + 1.0 / b.count), self.freedom + own)
    }
}

/// Returns the variance of the difference between the means of two parts (Welch), and its degrees
/// of freedom. None if both parts have only one value.
fn welch(a: &Moments, b: &Moments) -> Option<(f64, f64)> {
    match (a.variance, b.variance) {
        (Some(of_a), Some(of_b)) => {
            let (of_a, of_b) = (of_a / a.count, of_b / b.count);
            let welch = of_a.powi(2) / (a.count - 1.0) + of_b.powi(2) / (b.count - 1.0);
            Some((of_a + of_b, (of_a + of_b).powi(2) / welch))
        }
        (Some(of_a), None) => Some((of_a * (1.0 / a.count + 1.0), a.count - 1.0)),
        (None, Some(of_b)) => Some((of_b * (1.0 / b.count + 1.0), b.count - 1.0)),
        (None, None) => None,
    }
}

/// Returns the probability that chance gives a difference at least as far from zero as
/// `difference`. `error` is the standard error of the difference.
pub(crate) fn p_value(difference: f64, error: f64, freedom: f64) -> f64 {
    match (error == 0.0, difference == 0.0) {
        (true, true) => 1.0,
        (true, false) => 0.0,
        _ => 2.0 * student(freedom).cdf(-(difference / error).abs()),
    }
}

/// Compares trials that were made in pairs (paired t-test of the logarithms). The ratio is `b / a`,
/// and `b[i]` was measured right before or after `a[i]`. Effects that both trials of a pair share
/// do not count as noise.
///
/// `None` if the lengths differ, there are fewer than two pairs, or a value is not positive and
/// finite.
pub fn paired_ratio_test(a: &[f64], b: &[f64]) -> Option<RatioTest> {
    if a.len() != b.len() {
        return None;
    }
    let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| b / a).collect();
    let found = moments(&ratios)?;
    let variance = found.variance?;
    let test = RatioTest {
        trials: found.count as u32,
        deviation: variance.sqrt(),
        paired: true,
        ..RatioTest::EMPTY
    };
    Some(test.with(found.mean, (variance / found.count).sqrt(), found.count - 1.0))
}

/// Corrects p-values for the number of comparisons (step-up procedure of Benjamini and Hochberg).
/// The results are in the order of `p_values`. A difference may be reported if its corrected
/// p-value is at most [`FALSE_DISCOVERIES`].
pub fn false_discovery(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*b].total_cmp(&p_values[*a]));
    let mut corrected = vec![1.0; p_values.len()];
    let mut least = 1.0_f64;
    for (from_top, index) in order.into_iter().enumerate() {
        let rank = p_values.len() - from_top;
        least = least.min(p_values[index] * p_values.len() as f64 / rank as f64);
        corrected[index] = least;
    }
    corrected
}

/// Corrects p-values for the number of comparisons (Holm, A simple sequentially rejective multiple
/// test procedure, Scand. J. Statist. 6, 1979). The results are in the order of `p_values`. If all
/// differences with a corrected p-value of at most p are reported, the probability of even one
/// false difference is at most p. This is stricter than [`false_discovery`], which accepts a few
/// false differences among many real ones.
pub fn family_wise(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut corrected = vec![1.0; p_values.len()];
    let mut most = 0.0_f64;
    for (rank, index) in order.into_iter().enumerate() {
        most = most.max(p_values[index] * (p_values.len() - rank) as f64).min(1.0);
        corrected[index] = most;
    }
    corrected
}

/// Like [`false_discovery`], but with a weight for each comparison, which says how likely the
/// comparison is to find a difference (Genovese, Roeder and Wasserman, False discovery control with
/// p-value weighting, Biometrika 93, 2006). The weights must not depend on the p-values, and only
/// the ratios of the weights matter. A comparison whose weight is not positive gets a corrected
/// p-value of 1.
pub fn false_discovery_weighted(p_values: &[f64], weights: &[f64]) -> Vec<f64> {
    let mean = weights.iter().sum::<f64>() / weights.len().max(1) as f64;
    let weighted = |(p, weight): (&f64, &f64)| {
        if *weight > 0.0 { (p * mean / weight).min(1.0) } else { 1.0 }
    };
    false_discovery(&p_values.iter().zip(weights).map(weighted).collect::<Vec<f64>>())
}

impl RatioTest {
    const EMPTY: RatioTest = RatioTest {
        ratio: Interval { value: 1.0, low: 1.0, high: 1.0 },
        p_value: 1.0,
        deviation: 0.0,
        trials: 0,
        paired: false,
    };

    fn with(self, difference: f64, error: f64, freedom: f64) -> RatioTest {
        let p_value = p_value(difference, error, freedom);
        if error == 0.0 {
            return RatioTest { ratio: Interval::exact(difference.exp()), p_value, ..self };
        }
        let t = student(freedom);
        let half = error * t.inverse_cdf(f64::midpoint(1.0, CONFIDENCE));
        let ratio = Interval {
            value: difference.exp(),
            low: (difference - half).exp(),
            high: (difference + half).exp(),
        };
        RatioTest { ratio, p_value, ..self }
    }

    /// Decides the result of the comparison. The sides differ if the ratio differs from 1 by more
    /// than `tolerated` (0.05 for 5%) and the difference is significant. `corrected` is the p-value
    /// of this comparison, corrected by [`false_discovery`].
    pub fn difference(&self, tolerated: f64, corrected: f64) -> Difference {
        let limit = 1.0 + tolerated;
        if self.ratio.low >= 1.0 / limit && self.ratio.high <= limit {
            return Difference::Same;
        }
        if corrected > FALSE_DISCOVERIES {
            Difference::Unclear
        } else if self.ratio.value > limit {
            Difference::Higher
        } else if self.ratio.value < 1.0 / limit {
            Difference::Lower
        } else {
            Difference::Unclear
        }
    }

    /// Returns the number of trials on each side that are needed to find a relative change of
    /// `change` (0.05 for 5%) with probability [`POWER`], if new trials vary as much as these
    /// trials. `None` if more than 10,000 trials are needed.
    pub fn trials_needed(&self, change: f64) -> Option<u32> {
        let target = change.ln_1p();
        let sides = if self.paired { 1.0 } else { 2.0 };
        let is_enough = |trials: u32| {
            let n = f64::from(trials);
            let t = student(sides * (n - 1.0));
            let quantiles = t.inverse_cdf(f64::midpoint(1.0, CONFIDENCE)) + t.inverse_cdf(POWER);
            quantiles * self.deviation * (sides / n).sqrt() <= target
        };
        let (mut low, mut high) = (1, TRIALS_MAX);
        if !is_enough(high) {
            return None;
        }
        while high - low > 1 {
            let middle = u32::midpoint(low, high);
            if is_enough(middle) { high = middle } else { low = middle }
        }
        Some(high)
    }

    /// Checks whether a sequential comparison may end. There must be enough pairs, and the ends of
    /// the interval may differ from the ratio by at most the share `until`. The decision depends on
    /// the spread of the trials and not on their ratio, so stopping early does not favour a
    /// difference.
    ///
    /// A sequential comparison tends to stop when the spread is small by chance, and its interval
    /// is then too narrow. This check therefore uses an interval that is wider by the share 2 /
    /// pairs, as in the rule of Chow and Robbins (Ann. Math. Statist. 36, 1965).
    pub fn is_narrow(&self, until: f64) -> bool {
        let far = (self.ratio.high / self.ratio.value).ln();
        let pairs = f64::from(self.trials);
        let allowance = 1.0 + 2.0 / pairs;
        self.trials as usize >= SEQUENTIAL_PAIRS_MIN && far * allowance <= until.ln_1p()
    }
}

/// Number, mean and variance of the logarithms of some values.
struct Moments {
    count: f64,
    mean: f64,
    variance: Option<f64>,
}

fn moments(values: &[f64]) -> Option<Moments> {
    if values.is_empty() || !values.iter().all(|value| *value > 0.0 && value.is_finite()) {
        return None;
    }
    let count = values.len() as f64;
    // The values are divided by the first value, so that equal values have a variance of exactly
    // zero.
    let logarithms: Vec<f64> = values.iter().map(|value| (value / values[0]).ln()).collect();
    let offset = logarithms.iter().sum::<f64>() / count;
    let squares: f64 = logarithms.iter().map(|value| (value - offset).powi(2)).sum();
    let variance = (values.len() > 1).then(|| squares / (count - 1.0));
    Some(Moments { count, mean: values[0].ln() + offset, variance })
}

/// Returns the moments of the first value, of the first two values, and so on (Welford,
/// Technometrics 4, 1962). The means are relative to the first value.
fn running_moments<'a>(values: impl Iterator<Item = &'a f64> + Clone) -> Vec<Moments> {
    let Some(first) = values.clone().next() else { return Vec::new() };
    let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
    let mut all = Vec::new();
    for value in values {
        let logarithm = (value / first).ln();
        count += 1.0;
        let from_old_mean = logarithm - mean;
        mean += from_old_mean / count;
        squares += from_old_mean * (logarithm - mean);
        let variance = (count > 1.0).then(|| squares / (count - 1.0));
        all.push(Moments { count, mean, variance });
    }
    all
}

/// Returns Student's t distribution with `freedom` degrees of freedom (at least 1).
pub(crate) fn student(freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom.max(1.0)).expect("scale and degrees of freedom are positive")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    /// Returns a random rate around `mean`, with a relative standard deviation of `noise`.
    fn rate(random: &mut Xoshiro256PlusPlus, mean: f64, noise: f64) -> f64 {
        let normal = (0..12).map(|_| random.next_u64() as f64 / u64::MAX as f64).sum::<f64>() - 6.0;
        mean * (noise * normal).exp()
    }

    fn rates(random: &mut Xoshiro256PlusPlus, count: usize, mean: f64, noise: f64) -> Vec<f64> {
        (0..count).map(|_| rate(random, mean, noise)).collect()
    }

    #[test]
    fn weights_shift_the_limit_between_comparisons_and_equal_weights_change_nothing() {
        let p_values = [0.02, 0.02, 0.2, 0.9];
        assert_eq!(false_discovery_weighted(&p_values, &[2.0; 4]), false_discovery(&p_values));
        let found = false_discovery_weighted(&p_values, &[3.0, 1.0, 1.0, 1.0]);
        assert!(found[0] <= FALSE_DISCOVERIES && found[1] > FALSE_DISCOVERIES, "{found:?}");
        assert_eq!(false_discovery_weighted(&[0.0], &[0.0]), [1.0]);
    }

    #[test]
    fn no_difference_of_a_family_is_false_more_often_than_stated() {
        // The corrected p-values are 3 * 0.005, then 2 * 0.03. The last p-value, 0.04, is raised to
        // 0.06, because it must not be lower than the previous p-value.
        let corrected = family_wise(&[0.04, 0.005, 0.03]);
        let expected = [0.06, 0.015, 0.06];
        corrected.iter().zip(expected).for_each(|(c, e)| assert!((c - e).abs() < 1e-12));
        assert_eq!(family_wise(&[0.9, 0.8]), [1.0, 1.0]);
        assert!(family_wise(&[]).is_empty());
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut uniform = || random.next_u64() as f64 / u64::MAX as f64;
        let tries = 4000;
        // Ten real differences must not make a false difference among ten other comparisons more
        // likely.
        let wrong = (0..tries).filter(|_| {
            let chance: Vec<f64> = (0..10).map(|_| uniform()).collect();
            let all = [vec![1e-9; 10], chance].concat();
            family_wise(&all)[10..].iter().any(|p_value| *p_value <= 0.05)
        });
        let share = wrong.count() as f64 / f64::from(tries);
        assert!(share < 0.065, "{share}");
    }

    #[test]
    fn known_noise_shows_a_change_that_few_values_alone_do_not() {
        let values = [100.0, 100.4, 103.2, 102.6, 99.0, 81.0, 83.0, 76.5];
        let p_value = |noise: Option<&Noise>| {
            let found = cuts(&values, 3, noise);
            found.iter().find(|(index, _)| *index == 5).unwrap().1
        };
        let noise = Noise { variance: 0.015_f64.powi(2), freedom: 6.0 };
        assert!(p_value(None) > 0.004 && p_value(Some(&noise)) < 1e-5);
        // With 0 degrees of freedom, the noise of other hosts has no weight. The result depends
        // only on the variances of the two samples, as in Student's t-test.
        let none = Noise { variance: 1.0, freedom: 0.0 };
        let [a, b] = [1.0, 3.0].map(f64::exp);
        let found = cuts(&[a, b, b, b, a, b], 3, Some(&none));
        assert!((found[0].1 - 1.0).abs() < 1e-9, "{found:?}");
        let wild = Noise { variance: 1.0, freedom: 6.0 };
        assert!(p_value(Some(&wild)) > 0.5, "a change is less significant on noisier hosts");
    }

    #[test]
    fn welchs_test_agrees_with_a_worked_example() {
        // The logarithms are 1, 2, 3, 4 and 2, 4, 6, 8. t is 2.5 / sqrt(1.6667/4 + 6.6667/4), with
        // 4.41 degrees of freedom.
        let of = |values: [f64; 4]| values.map(f64::exp);
        let test = ratio_test(&of([1.0, 2.0, 3.0, 4.0]), &of([2.0, 4.0, 6.0, 8.0])).unwrap();
        assert!((test.ratio.value.ln() - 2.5).abs() < 1e-9);
        assert!((test.p_value - 0.151_2).abs() < 5e-3, "{}", test.p_value);
    }

    #[test]
    fn corrected_probabilities_agree_with_a_worked_example() {
        let corrected = false_discovery(&[0.01, 0.04, 0.03, 0.005]);
        let expected = [0.02, 0.04, 0.04, 0.02];
        corrected.iter().zip(expected).for_each(|(c, e)| assert!((c - e).abs() < 1e-12));
        assert!(false_discovery(&[]).is_empty());
    }

    #[test]
    fn values_that_do_not_vary_differ_or_do_not() {
        let same = ratio_test(&[3.0, 3.0], &[3.0, 3.0]).unwrap();
        assert_eq!(same.difference(0.01, same.p_value), Difference::Same);
        let other = ratio_test(&[3.0, 3.0], &[3.3, 3.3]).unwrap();
        assert_eq!(other.difference(0.01, other.p_value), Difference::Higher);
        assert_eq!(other.trials_needed(0.01), Some(2));
        assert_eq!(ratio_test(&[3.0], &[3.0]), None);
        assert_eq!(ratio_test(&[3.0, 0.0], &[3.0, 3.0]), None);
    }

    #[test]
    fn a_series_without_noise_is_cut_where_it_changes() {
        let found = cuts(&[3.0, 3.0, 3.0, 5.0, 5.0, 5.0], 2, None);
        let certain: Vec<usize> =
            found.into_iter().filter(|(_, p)| *p == 0.0).map(|(index, _)| index).collect();
        assert_eq!(certain, [3]);
        assert!(cuts(&[3.0; 6], 2, None).iter().all(|(_, p)| *p == 1.0));
        assert!(cuts(&[3.0, 3.0, 0.0, 5.0, 5.0], 2, None).is_empty());
        assert!(cuts(&[3.0; 3], 2, None).is_empty());
    }

    #[test]
    fn equal_devices_rarely_look_different() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for count in [3, 5, 10] {
            let mut wrong = 0;
            for _ in 0..2000 {
                let (a, b) =
                    (rates(&mut random, count, 1.0, 0.03), rates(&mut random, count, 1.0, 0.03));
                let test = ratio_test(&a, &b).unwrap();
                wrong += u32::from(test.p_value <= FALSE_DISCOVERIES);
            }
            assert!(wrong <= 120, "{count} trials: {wrong} of 2000");
        }
    }

    #[test]
    fn the_planned_number_of_trials_finds_the_change() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        let deviation = 0.03;
        let trials = RatioTest { deviation, ..RatioTest::EMPTY }.trials_needed(0.05).unwrap();
        let mut found = 0;
        for _ in 0..1000 {
            let a = rates(&mut random, trials as usize, 1.0, deviation);
            let b = rates(&mut random, trials as usize, 1.05, deviation);
            found += u32::from(ratio_test(&a, &b).unwrap().p_value <= 0.05);
        }
        assert!((880..=970).contains(&found), "{found} of 1000 with {trials} trials");
    }

    #[test]
    fn a_sequential_comparison_covers_the_true_ratio() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        for (truth, noise) in [(1.0, 0.03), (1.05, 0.03), (0.9, 0.06)] {
            let mut covered = 0;
            for _ in 0..10_000 {
                let (mut a, mut b) = (Vec::new(), Vec::new());
                let ratio = loop {
                    a.push(rate(&mut random, 1.0, noise));
                    b.push(rate(&mut random, truth, noise));
                    match paired_ratio_test(&a, &b) {
                        Some(test) if test.is_narrow(0.02) => break test.ratio,
                        _ => {}
                    }
                };
                covered += u32::from(ratio.contains(truth));
            }
            assert!(covered >= 9300, "{truth} with {noise}: {covered} of 10000");
        }
    }

    #[test]
    fn pairs_remove_what_both_trials_share() {
        let a = [1.0, 2.0, 4.0, 8.0];
        let b = [1.1, 2.21, 4.39, 8.8];
        let paired = paired_ratio_test(&a, &b).unwrap();
        assert_eq!(paired.difference(0.02, paired.p_value), Difference::Higher);
        let unpaired = ratio_test(&a, &b).unwrap();
        assert_eq!(unpaired.difference(0.02, unpaired.p_value), Difference::Unclear);
    }

    proptest! {
        #[test]
        fn a_ratio_and_its_inverse_agree(
            a in prop::collection::vec(0.1_f64..10.0, 2..8),
            b in prop::collection::vec(0.1_f64..10.0, 2..8),
        ) {
            let (there, back) = (ratio_test(&a, &b).unwrap(), ratio_test(&b, &a).unwrap());
            prop_assert!((there.ratio.value * back.ratio.value - 1.0).abs() < 1e-9);
            prop_assert!((there.ratio.low * back.ratio.high - 1.0).abs() < 1e-6);
            prop_assert!((there.p_value - back.p_value).abs() < 1e-9);
            prop_assert!(there.ratio.contains(there.ratio.value));
        }

        #[test]
        fn a_cut_has_the_p_value_of_its_parts(
            values in prop::collection::vec(0.1_f64..10.0, 4..30),
        ) {
            let found = cuts(&values, 2, None);
            prop_assert_eq!(found.len(), values.len() - 3);
            for (index, p_value) in found {
                let test = ratio_test(&values[..index], &values[index..]).unwrap();
                prop_assert!((test.p_value - p_value).abs() < 1e-9, "{} {}", test.p_value, p_value);
            }
        }

        #[test]
        fn correction_never_lowers_a_probability(p in prop::collection::vec(0.0_f64..1.0, 1..30)) {
            for (before, after) in p.iter().zip(false_discovery(&p)) {
                prop_assert!(after >= *before - 1e-12 && after <= 1.0);
            }
        }
    }
}
