//! Finds steps between two levels of a series, for example where a device throttles or burst credit
//! is used up.
//!
//! For each candidate split, a straight line with a step at the split is fitted and compared with a
//! straight line without a step (Student's t). A ramp is therefore not mistaken for a step, and a
//! slow drift does not hide a step. The significance of the best split of an interval follows from
//! the Bonferroni bound on the greatest t (Worsley, On the likelihood ratio test for a shift in
//! location of normal populations, 1979). With discrete or heavy-tailed noise, t is unreliable in
//! short intervals. The p-value is therefore never lower than the lowest p-value that a permutation
//! test could give, because that test does not assume normal noise.
//!
//! Several steps are found by binary segmentation over seeded intervals (Kovács, Bühlmann, Li and
//! Munk, Seeded binary segmentation, 2023). Before the search, single outliers are pulled towards
//! the median of their neighbours (Hampel identifier; Davies and Gather, The identification of
//! multiple outliers, 1993).
//!
//! The noise of neighbouring values is assumed to be independent. A slow wave can look like steps,
//! so callers should also require a minimum change, as with [`crate::drift`].

use crate::bootstrap::median_interval;
use crate::interval::{CONFIDENCE, Interval};
use crate::quantile::{median, quantile};
use statrs::function::beta::beta_reg;
use statrs::function::factorial::ln_binomial;

/// Maximum number of values that are searched. A longer series is first reduced to means of equal
/// blocks.
const SERIES_MAX: usize = 1024;
/// Minimum number of values in a searched interval. In a shorter interval, no step can be
/// significant.
const SHORTEST: usize = 15;
/// Minimum number of values on each side of a split.
const SIDE_MIN: usize = 3;
/// Limit of the p-value of a step. A series without a step shows a false step with at most this
/// probability.
const P_MAX: f64 = 0.01;
/// A value is compared with the median of this many neighbours on each side.
const NEIGHBOURS: usize = 2;
/// Maximum share of outliers in a series. If more values deviate, they are considered normal for
/// the series.
const OUTLIER_SHARE_MAX: f64 = 0.1;
/// Minimum distance of an outlier from the median of its neighbours, as a multiple of the 90th
/// percentile of these distances. For normal noise, this is about four standard deviations.
const OUTLIER_RATIO: f64 = 2.5;
/// Minimum distance of an outlier from the median of its neighbours, as a share of that median.
/// Without this limit, any small change in a series of equal values would be an outlier.
const OUTLIER_SHARE_MIN: f64 = 0.05;
/// Lower limit of the sum of squared residuals, as a share of the sum of all squares. Smaller sums
/// are rounding errors of the running sums.
const ROUNDING: f64 = 1e-12;
/// Minimum jump directly at a split, as a share of the difference between the levels. A change with
/// a smaller jump is a slope and not a step.
const JUMP_SHARE_MIN: f64 = 0.5;
/// Number of values on each side of a split whose means give the jump directly at the split.
const NEAR_VALUES: usize = 4;
/// Minimum drop in rate that counts as throttling, as a share of the earlier rate.
const FALL_MIN: f64 = 0.1;
/// Minimum size of a burst, as a multiple of the noise (both as defined at [`early_burst`]).
const EXCESS_TIMES: f64 = 3.0;
/// Minimum size of a burst, as a share of the total amount that was moved.
const EXCESS_SHARE_MIN: f64 = 0.02;
/// The excess is the amount moved since the start, minus what the later rate would have moved. A
/// burst ends where the excess first reaches this share of its maximum.
const PEAK_SHARE: f64 = 0.98;

/// A step between two levels of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Index of the first value of the later level.
    pub index: usize,
    /// Median of the values between the previous step (or the start) and this step, with its 95%
    /// interval.
    pub before: Interval,
    /// Median of the values between this step and the next step (or the end), with its 95%
    /// interval.
    pub after: Interval,
    /// Upper bound of the probability that noise around a straight line shows such a step anywhere
    /// in the series.
    pub p_value: f64,
}

/// Returns the steps of a series of equally spaced values, in the order of their positions. Each
/// step has a p-value below 0.01.
///
/// A step needs about four values on each side and about twenty values in total. For example, a
/// step of 20% is found in 40 values with 5% noise. A series of more than 1024 values is first
/// reduced to means of blocks, and the index of a step is then a multiple of the block length. The
/// result is empty if a value is not finite.
pub fn steps(series: &[f64]) -> Vec<Step> {
    let block = series.len().div_ceil(SERIES_MAX).max(1);
    let means: Vec<f64> =
        series.chunks_exact(block).map(|b| b.iter().sum::<f64>() / block as f64).collect();
    if means.iter().any(|value| !value.is_finite()) {
        return Vec::new();
    }
    let without_outliers = without_outliers(&means);
    let mut found = Vec::new();
    search(&Sums::new(&without_outliers), 0, without_outliers.len(), &mut found);
    found.sort_by_key(|split| split.index);
    let jumps = abrupt(&without_outliers, &found);
    (0..jumps.len())
        .filter_map(|number| {
            let (before, after) = sides(&means, &jumps, number);
            Some(Step {
                index: jumps[number].index * block,
                before: median_interval(before, CONFIDENCE)?,
                after: median_interval(after, CONFIDENCE)?,
                p_value: jumps[number].p_value,
            })
        })
        .collect()
}

/// A permanent change of the rate of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Break {
    /// Time of the change since the start of the series (ns). If the change lies within an
    /// interval, the time is computed from the amount that was moved in this interval.
    pub at_ns: f64,
    /// Amount per second before the change.
    pub before_per_s: f64,
    /// Amount per second after the change.
    pub after_per_s: f64,
}

/// Finds the greatest significant change of rate in a series of intervals (length in nanoseconds,
/// amount moved). The size of a change is measured as a share of the higher rate.
///
/// The rates before and after the change are means over the intervals up to the neighbouring
/// changes. The time of the change is more precise than the interval length, because it is computed
/// from the amounts in the intervals around the change. The caller should drop an incomplete last
/// interval. None if there is no significant change.
pub fn greatest_break(series: &[(u64, f64)]) -> Option<Break> {
    let rates: Vec<f64> =
        series.iter().map(|&(length_ns, amount)| amount / length_ns.max(1) as f64 * 1e9).collect();
    let found = steps(&rates);
    let change = |step: &Step| {
        let (before, after) = (step.before.value, step.after.value);
        (after - before).abs() / before.abs().max(after.abs())
    };
    let greatest =
        (0..found.len()).max_by(|&a, &b| change(&found[a]).total_cmp(&change(&found[b])))?;
    let from = if greatest == 0 { 0 } else { found[greatest - 1].index };
    let to = found.get(greatest + 1).map_or(series.len(), |next| next.index);
    // The intervals around the break are excluded from both rates, because the index may be off by
    // one, and the interval that contains the break mixes both rates.
    let near = found[greatest].index.saturating_sub(2).max(from + 1);
    let far = (found[greatest].index + 2).min(to - 1);
    let (before_per_s, after_per_s) = (rate(&series[from..near]), rate(&series[far..to]));
    let (length_ns, amount) = total(&series[near..far]);
    // `early_ns` is the part of `length_ns` before the change. It solves the equations length =
    // early + late and amount = before_per_s * early + after_per_s * late.
    let early_ns = (amount * 1e9 - after_per_s * length_ns) / (before_per_s - after_per_s);
    let at_ns = total(&series[..near]).0 + early_ns.clamp(0.0, length_ns);
    Some(Break { at_ns, before_per_s, after_per_s })
}

/// A drop in rate, either because burst credit was used up or because the device throttled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    /// Time of the drop since the start of the series (ns).
    pub at_ns: u64,
    /// Amount per second before the drop.
    pub before_per_s: f64,
    /// Amount per second after the drop.
    pub after_per_s: f64,
    /// Part of the amount moved before the drop that exceeds what the later rate would have moved:
    /// (before - after) x time. This is the credit of a token bucket that refills at the later
    /// rate.
    pub credit: f64,
}

/// Returns the drop in a series of intervals (length in nanoseconds; amount moved, in bytes,
/// requests or another unit). None unless the [`greatest_break`] is a drop of at least a tenth.
pub fn throttle(series: &[(u64, f64)]) -> Option<Throttle> {
    let Break { at_ns, before_per_s, after_per_s } = greatest_break(series)?;
    let falls = after_per_s < (1.0 - FALL_MIN) * before_per_s;
    falls.then(|| Throttle {
        at_ns: at_ns as u64,
        before_per_s,
        after_per_s,
        credit: (before_per_s - after_per_s) * at_ns / 1e9,
    })
}

/// Finds a burst at the start of a series that is too short for [`throttle`].
///
/// The excess is the amount moved since the start, minus what the mean rate of the second half
/// would have moved. The burst ends where the excess first reaches 98% of its maximum in the first
/// half. The excess at this point is the size of the burst. A burst must meet these conditions:
/// - The burst ends within the first three quarters of the first half. A rate that falls steadily
///   does not meet this condition.
/// - The size is more than 2% of the total amount, and more than three times the noise. The noise
///   is the range of the excess that is summed over the second half alone.
/// - The mean rate of the second half is more than a tenth below the mean rate of the burst.
pub fn early_burst(series: &[(u64, f64)]) -> Option<Throttle> {
    let (early, late) = series.split_at(series.len() / 2);
    let (late_ns, late_amount) = total(late);
    if early.len() < SIDE_MIN + 1 || late_ns <= 0.0 || !total(series).1.is_finite() {
        return None;
    }
    let floor_per_ns = late_amount / late_ns;
    let beyond = |part: &[(u64, f64)]| -> Vec<f64> {
        let mut sum = 0.0;
        let each = part.iter().map(|&(length_ns, amount)| {
            sum += amount - floor_per_ns * length_ns as f64;
            sum
        });
        each.collect()
    };
    let excess = beyond(early);
    let highest = excess.iter().copied().fold(0.0, f64::max);
    let peak = excess.iter().position(|sum| *sum >= PEAK_SHARE * highest)?;
    let noise = beyond(late);
    let range =
        noise.iter().copied().fold(0.0, f64::max) - noise.iter().copied().fold(0.0, f64::min);
    let (at_ns, amount) = total(&early[..=peak]);
    let (before_per_s, after_per_s) = (amount / at_ns.max(1.0) * 1e9, floor_per_ns * 1e9);
    let is_burst = excess[peak] > EXCESS_TIMES * range
        && excess[peak] > EXCESS_SHARE_MIN * total(series).1
        && (peak + 1) * 4 <= early.len() * 3
        && after_per_s < (1.0 - FALL_MIN) * before_per_s;
    is_burst.then_some(Throttle {
        at_ns: at_ns as u64,
        before_per_s,
        after_per_s,
        credit: excess[peak],
    })
}

/// Returns the total length (ns) and the total amount of some intervals.
fn total(series: &[(u64, f64)]) -> (f64, f64) {
    series.iter().fold((0.0, 0.0), |(length_ns, sum), &(length, amount)| {
        (length_ns + length as f64, sum + amount)
    })
}

/// Returns the amount per second over some intervals.
fn rate(series: &[(u64, f64)]) -> f64 {
    let (length_ns, amount) = total(series);
    amount / length_ns.max(1.0) * 1e9
}

/// Pulls single outliers towards the median of their neighbours. Deviations are relative to this
/// median, because the noise of a rate is proportional to the rate.
fn without_outliers(series: &[f64]) -> Vec<f64> {
    let around = |index: usize| {
        let last = (index + NEIGHBOURS).min(series.len() - 1);
        median(&series[index.saturating_sub(NEIGHBOURS)..=last]).unwrap_or(series[index])
    };
    let medians: Vec<f64> = (0..series.len()).map(around).collect();
    let mut away: Vec<f64> = series
        .iter()
        .zip(&medians)
        .map(|(x, m)| if x == m { 0.0 } else { ((x - m) / m).abs().min(1.0) })
        .collect();
    away.sort_by(f64::total_cmp);
    let usual = quantile(&away, 1.0 - OUTLIER_SHARE_MAX).unwrap_or(0.0);
    let most = (OUTLIER_RATIO * usual).max(OUTLIER_SHARE_MIN);
    series
        .iter()
        .zip(&medians)
        .map(|(x, m)| x.clamp(m - most * m.abs(), m + most * m.abs()))
        .collect()
}

/// Running sums, with which a line is fitted to any interval in constant time.
struct Sums {
    y: Vec<f64>,
    iy: Vec<f64>,
    yy: Vec<f64>,
}

/// A cut of an interval into two parts, and the probability that the difference between them is due
/// to chance.
#[derive(Clone, Copy)]
struct Split {
    index: usize,
    p_value: f64,
}

impl Sums {
    fn new(series: &[f64]) -> Sums {
        let mean = series.iter().sum::<f64>() / series.len().max(1) as f64;
        let running = |term: &dyn Fn(f64, f64) -> f64| {
            let mut sums = vec![0.0];
            let mut sum = 0.0;
            for (i, value) in series.iter().enumerate() {
                sum += term(i as f64, value - mean);
                sums.push(sum);
            }
            sums
        };
        Sums { y: running(&|_, y| y), iy: running(&|i, y| i * y), yy: running(&|_, y| y * y) }
    }

    /// Returns the split of an interval at which a straight line with a step fits best. The p-value
    /// is not corrected for the number of possible splits.
    fn best(&self, start: usize, end: usize) -> Option<Split> {
        let n = (end - start) as f64;
        let sum_y = self.y[end] - self.y[start];
        let centre = start as f64 + (n - 1.0) / 2.0;
        let sxy = self.iy[end] - self.iy[start] - centre * sum_y;
        let sxx = n * (n * n - 1.0) / 12.0;
        // Sum of squared residuals of one straight line, without a step.
        let left = self.yy[end] - self.yy[start] - sum_y * sum_y / n - sxy * sxy / sxx;
        let mut best = (0.0, start);
        for index in start + SIDE_MIN..=end - SIDE_MIN {
            let (k, rest) = ((index - start) as f64, (end - index) as f64);
            // The step is a variable that is 0 before the split and 1 after it. The part of the
            // variable that a straight line explains is subtracted. `own` is the sum of squares of
            // the remainder. `shared` is the sum of the products of the remainder with the values.
            let overlap = k * rest / 2.0 / sxx;
            let own = k * rest / n - overlap * overlap * sxx;
            let shared = self.y[end] - self.y[index] - sum_y * rest / n - overlap * sxy;
            let explained = shared * shared / own;
            if explained > best.0 {
                best = (explained, index);
            }
        }
        let (explained, index) = best;
        let unexplained = (left - explained).max(ROUNDING * self.yy[self.yy.len() - 1]);
        if unexplained <= 0.0 || !explained.is_finite() {
            return None; // all values are equal, or their squares overflow
        }
        let freedom = n - 3.0;
        let t2 = explained / unexplained * freedom;
        let by_t = beta_reg(freedom / 2.0, 0.5, freedom / (freedom + t2));
        let apart = 2.0 * (-ln_binomial((end - start) as u64, (index - start) as u64)).exp();
        Some(Split { index, p_value: by_t.max(apart) })
    }
}

/// Returns the intervals of a segment that are searched for a step: the segment itself, followed by
/// layers of shorter intervals. All intervals of a layer have the same length and overlap by half.
/// From layer to layer, the length shrinks by a factor of the square root of two.
fn intervals(start: usize, end: usize) -> Vec<(usize, usize)> {
    let whole = end - start;
    let mut all = vec![(start, end)];
    let mut length = whole as f64 / std::f64::consts::SQRT_2;
    while length.ceil() as usize >= SHORTEST {
        let size = length.ceil() as usize;
        let count = (2.0 * whole as f64 / length).ceil() as usize - 1;
        let shift = (whole - size) as f64 / (count - 1).max(1) as f64;
        all.extend((0..count).map(|i| {
            let from = start + (i as f64 * shift) as usize;
            (from, from + size)
        }));
        length /= std::f64::consts::SQRT_2;
    }
    all
}

/// Finds the most significant step of a segment, then searches the parts before and after this
/// step.
fn search(sums: &Sums, start: usize, end: usize, found: &mut Vec<Split>) {
    if end - start < SHORTEST {
        return;
    }
    let all = intervals(start, end);
    let splits = |&(from, to): &(usize, usize)| (to - from - 2 * SIDE_MIN + 1) as f64;
    // Half of the allowed error probability is used for the whole segment, and half for all shorter
    // intervals together.
    let of_whole = 2.0 * splits(&all[0]);
    let of_parts = 2.0 * all[1..].iter().map(splits).sum::<f64>();
    let clearest = all
        .iter()
        .enumerate()
        .filter_map(|(number, &(from, to))| {
            let split = sums.best(from, to)?;
            let tries = if number == 0 { of_whole } else { of_parts };
            Some(Split { p_value: (split.p_value * tries).min(1.0), ..split })
        })
        .min_by(|one, two| one.p_value.total_cmp(&two.p_value));
    if let Some(split) = clearest.filter(|split| split.p_value < P_MAX) {
        found.push(split);
        search(sums, start, split.index, found);
        search(sums, split.index, end, found);
    }
}

/// Returns the values before and after split `number`, up to the neighbouring splits.
fn sides<'a>(series: &'a [f64], splits: &[Split], number: usize) -> (&'a [f64], &'a [f64]) {
    let from = if number == 0 { 0 } else { splits[number - 1].index };
    let to = splits.get(number + 1).map_or(series.len(), |next| next.index);
    let at = splits[number].index;
    (&series[from..at], &series[at..to])
}

/// Keeps the splits at which at least half of the change is abrupt. Two jumps are measured: between
/// the values next to the split, and between the regression lines of the two sides. Both jumps must
/// be large enough. A smooth curve that was cut into levels does not pass this test.
fn abrupt(series: &[f64], splits: &[Split]) -> Vec<Split> {
    let is_abrupt = |number: &usize| {
        let (before, after) = sides(series, splits, *number);
        let (Some(low), Some(high)) = (median(before), median(after)) else { return false };
        let reversed: Vec<f64> = before.iter().rev().copied().collect();
        let near = |values: &[f64]| mean(&values[..values.len().min(NEAR_VALUES)]);
        let least = JUMP_SHARE_MIN * (high - low).abs();
        let at_once = near(after) - near(&reversed);
        let gap = start_of_line(after) - start_of_line(&reversed);
        [at_once, gap].iter().all(|jump| jump * (high - low).signum() >= least)
    };
    let kept: Vec<Split> = (0..splits.len()).filter(is_abrupt).map(|n| splits[n]).collect();
    // Dropping a split makes the sides of its neighbours longer, so the remaining splits are
    // checked again.
    if kept.len() == splits.len() { kept } else { abrupt(series, &kept) }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Fits a least-squares line to the values on one side of a split, beginning with the value next to
/// the split. Returns the value of the line at the split, half a position before the first value.
fn start_of_line(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = mean(values);
    let along = |i: usize| i as f64 - (n - 1.0) / 2.0;
    let sxy: f64 = values.iter().enumerate().map(|(i, y)| along(i) * (y - mean)).sum();
    mean - sxy / (n * (n * n - 1.0) / 12.0) * n / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::tests::normal;
    use proptest::prelude::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;

    fn noisy(n: usize, noise: f64, seed: u64, level: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..n).map(|i| level(i) * (1.0 + noise * normal(&mut random))).collect()
    }

    /// Returns the number of series, out of 200, in which a step is found.
    fn alarms(n: usize, noise: f64, level: impl Fn(usize) -> f64) -> usize {
        (0..200).filter(|&seed| !steps(&noisy(n, noise, seed, &level)).is_empty()).count()
    }

    #[test]
    fn a_burst_of_one_interval_is_found_and_its_credit_is_what_it_moved_beyond_the_rest() {
        let series: Vec<(u64, f64)> =
            (0..40).map(|i| (100_000_000, if i == 0 { 70.0 } else { 3.0 })).collect();
        let found = early_burst(&series).unwrap();
        assert_eq!((found.at_ns, found.credit), (100_000_000, 67.0));
        assert!((found.after_per_s - 30.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn noise_a_slow_fall_and_a_slow_start_are_no_early_burst() {
        let of = |rate: &dyn Fn(f64) -> f64| -> Vec<(u64, f64)> {
            (0..40).map(|i| (100_000_000, rate(f64::from(i)))).collect()
        };
        let noise = |i: f64| 100.0 + 20.0 * (i * 12.9898).sin();
        assert_eq!(early_burst(&of(&noise)), None);
        assert_eq!(early_burst(&of(&|i| 100.0 - i)), None);
        assert_eq!(early_burst(&of(&|i| if i < 2.0 { 10.0 } else { 100.0 })), None);
        assert_eq!(early_burst(&of(&|_| 100.0)), None);
        assert_eq!(early_burst(&[]), None);
    }

    #[test]
    fn noise_alone_is_called_a_step_in_fewer_than_one_of_a_hundred_series() {
        for noise in [0.01, 0.05, 0.2] {
            let wrong: usize = [16, 40, 100].iter().map(|&n| alarms(n, noise, |_| 100.0)).sum();
            assert!(wrong < 6, "{wrong} of 600 with noise {noise}");
        }
    }

    #[test]
    fn two_valued_noise_is_not_a_step() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut either = || [60.0, 100.0][(random.next_u64() >> 63) as usize];
        let mut bimodal = || (0..40).map(|_| either()).collect::<Vec<f64>>();
        let wrong = (0..300).filter(|_| !steps(&bimodal()).is_empty()).count();
        assert!(wrong <= 3, "{wrong} of 300");
    }

    #[test]
    fn ramps_and_curves_are_not_called_steps() {
        let along = |i: usize| i as f64 / 100.0;
        let ramp = |i| 100.0 - 60.0 * along(i);
        let kink = |i| 100.0 - 120.0 * (along(i) - 0.5).max(0.0);
        let decay = |i| 30.0 + 70.0 * (-5.0 * along(i)).exp();
        for noise in [0.0, 0.01, 0.05] {
            let wrong =
                [alarms(100, noise, ramp), alarms(100, noise, kink), alarms(100, noise, decay)];
            assert!(wrong.iter().all(|&wrong| wrong <= 2), "{wrong:?} of 200 with noise {noise}");
        }
    }

    #[test]
    fn a_step_of_a_fifth_is_found_in_noise_of_a_twentieth_within_two_values() {
        for (n, at) in [(40, 16), (50, 25), (60, 44), (200, 20)] {
            let near = (0..200).filter(|&seed| {
                let series = noisy(n, 0.05, seed, |i| if i < at { 100.0 } else { 80.0 });
                steps(&series).iter().any(|step| step.index.abs_diff(at) <= 2)
            });
            let near = near.count();
            assert!(near >= 196, "{near} of 200 with {n} values and the step at {at}");
        }
    }

    #[test]
    fn a_step_is_found_beside_wild_values_and_on_a_slow_drift() {
        let mut series = noisy(60, 0.03, 5, |i| if i < 20 { 100.0 } else { 60.0 } - 0.3 * i as f64);
        (series[7], series[33], series[50]) = (1e6, 0.0, 900.0);
        let found = steps(&series);
        assert_eq!(found.len(), 1, "{found:?}");
        let Step { index, before, after, p_value } = found[0];
        assert!(index.abs_diff(20) <= 1 && p_value < 1e-6, "{found:?}");
        assert!(before.contains(97.0) && after.contains(48.0), "{found:?}");
    }

    #[test]
    fn two_steps_are_both_found() {
        let level = |i| if (25..60).contains(&i) { 50.0 } else { 100.0 };
        let both = (0..100).filter(|&seed| {
            let found = steps(&noisy(90, 0.05, seed, level));
            matches!(found[..], [a, b] if a.index.abs_diff(25) <= 1 && b.index.abs_diff(60) <= 1)
        });
        assert!(both.count() >= 97);
    }

    #[test]
    fn a_long_series_is_reduced_and_its_index_is_its_own() {
        let series = noisy(5000, 0.05, 1, |i| if i < 3000 { 10.0 } else { 4.0 });
        let found = steps(&series);
        assert!(found.len() == 1 && found[0].index.abs_diff(3000) <= 5, "{found:?}");
    }

    #[test]
    fn short_flat_or_non_finite_series_have_no_steps() {
        assert_eq!(steps(&[]), []);
        assert_eq!(steps(&[100.0, 100.0, 100.0, 1.0, 1.0, 1.0]), []);
        assert_eq!(steps(&[3.0; 100]), []);
        assert_eq!(steps(&[0.0; 100]), []);
        let mut broken = vec![1.0; 40];
        broken[20] = f64::NAN;
        assert_eq!(steps(&broken), []);
        assert_eq!(throttle(&[(0, 1.0); 40]), None);
    }

    /// Returns the output of a token bucket in intervals of 100 ms: `before` per second until
    /// `at_s`, then `after` per second.
    fn bucket(n: usize, before: f64, after: f64, at_s: f64) -> Vec<(u64, f64)> {
        let given = |t: f64| before * t.min(at_s) + after * (t - at_s).max(0.0);
        let edge = |i: usize| given(i as f64 * 0.1);
        (0..n).map(|i| (100_000_000, edge(i + 1) - edge(i))).collect()
    }

    #[test]
    fn a_rise_is_a_break_but_no_throttling() {
        let rising = bucket(40, 100.0, 500.0, 1.23);
        assert_eq!(throttle(&rising), None);
        let Break { at_ns, before_per_s, after_per_s } = greatest_break(&rising).unwrap();
        assert!((at_ns / 1e9 - 1.23).abs() < 1e-3);
        assert!((after_per_s / before_per_s - 5.0).abs() < 1e-6);
    }

    #[test]
    fn noise_moves_the_credit_little() {
        for seed in 0..20 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut series = bucket(50, 500e6, 100e6, 1.57);
            series.iter_mut().for_each(|(_, amount)| *amount *= 1.0 + 0.03 * normal(&mut random));
            let credit = throttle(&series).unwrap().credit;
            assert!((credit / (400e6 * 1.57) - 1.0).abs() < 0.03, "{credit}");
        }
    }

    proptest! {
        #[test]
        fn the_credit_of_a_clean_step_is_right_wherever_in_an_interval_it_falls(
            before in 10.0..1e9f64, share in 0.0..0.8f64, at_s in 0.5..3.5f64,
        ) {
            let after = before * share;
            let found = throttle(&bucket(40, before, after, at_s)).unwrap();
            prop_assert!((found.before_per_s / before - 1.0).abs() < 0.01, "{:?}", found);
            prop_assert!((found.after_per_s - after).abs() < 0.01 * before, "{:?}", found);
            prop_assert!((found.at_ns as f64 / 1e9 - at_s).abs() < 0.01, "{:?}", found);
            prop_assert!((found.credit / ((before - after) * at_s) - 1.0).abs() < 0.01);
        }

        #[test]
        fn steps_come_in_order_with_intervals_that_hold_their_levels(
            series in proptest::collection::vec(0.0..1e9f64, 0..120),
        ) {
            let found = steps(&series);
            prop_assert!(found.is_sorted_by(|a, b| a.index < b.index));
            for step in found {
                prop_assert!((1..series.len()).contains(&step.index) && step.p_value < P_MAX);
                prop_assert!(step.before.contains(step.before.value));
                prop_assert!(step.after.contains(step.after.value));
            }
        }
    }
}
