//! Finds the caches of a machine in a curve of the access rate over the working-set size.
//!
//! While the working set fits into a cache, the rate is constant. For larger working sets, the rate
//! falls to the rate of the next cache by the time the size has doubled. [`crate::changepoint`]
//! does not suit this curve, because it expects a long series with sudden steps. Here, a plateau
//! may have only five points, and the points on the ramp between two plateaus belong to neither of
//! them.
//!
//! The curve is divided into plateaus by optimal partitioning of the logarithm of the rate (Jackson
//! et al., An algorithm for optimal partitioning of data on an interval, 2005). The cost of a
//! partition is the sum of the squared deviations from the plateau medians, in units of the noise,
//! plus a penalty per plateau. The cost of a point is limited to that of a deviation of three
//! standard deviations (the bounded loss of Fearnhead and Rigaill, Changepoint detection in the
//! presence of outliers, 2019), so a ramp or an outlier does not become a plateau. Neighbouring
//! plateaus whose rates differ by a factor of less than [`STEP_MIN`] are merged.

use crate::quantile::median;

/// Minimum ratio between the rates of two neighbouring plateaus.
pub const STEP_MIN: f64 = 1.15;
/// Minimum number of points on a plateau. With four points per doubling of the size, these points
/// span one doubling.
pub const SHORTEST: usize = 5;
/// Lower limit of the estimated noise (standard deviation), as a share of the rate.
const NOISE_MIN: f64 = 0.02;
/// Upper limit of the estimated noise, as a share of the rate, so that steps are not mistaken for
/// noise.
const NOISE_MAX: f64 = 0.1;
/// Factor from the median absolute difference between neighbouring points to the standard deviation
/// of normally distributed noise.
const MEDIAN_TO_DEVIATION: f64 = 1.0 / (0.6745 * std::f64::consts::SQRT_2);
/// Maximum cost of one point: that of a deviation of three standard deviations.
const POINT_COST_MAX: f64 = 9.0;
/// Penalty per plateau: 4.5 times the maximum cost of one point.
const PLATEAU_PENALTY: f64 = 4.5 * POINT_COST_MAX;

/// A range of working-set sizes with about the same rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plateau {
    /// Size of the smallest working set on the plateau (bytes).
    pub from_bytes: u64,
    /// Size of the largest working set on the plateau (bytes). The step to the next plateau lies
    /// between this size and the next plateau's `from_bytes`.
    pub to_bytes: u64,
    /// Median rate on the plateau, in the unit of the curve.
    pub rate: f64,
}

/// Returns the plateaus of a curve of (working-set size in bytes, rate), in ascending order of
/// size.
///
/// The result is empty if there are fewer than [`SHORTEST`] points, if the sizes do not ascend, or
/// if a rate is not positive and finite.
pub fn plateaus(curve: &[(u64, f64)]) -> Vec<Plateau> {
    let ascending = curve.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let rates = curve.iter().all(|(_, rate)| rate.is_finite() && *rate > 0.0);
    if curve.len() < SHORTEST || !ascending || !rates {
        return Vec::new();
    }
    let logs: Vec<f64> = curve.iter().map(|(_, rate)| rate.ln()).collect();
    let noise = noise(&logs);
    let mut cuts = partition(&logs, noise);
    while let Some(index) = cut_to_merge(&logs, &cuts) {
        cuts.remove(index);
    }
    cuts.windows(2).map(|cut| plateau(curve, &logs, noise, cut[0], cut[1])).collect()
}

/// Estimates the standard deviation of the noise from the median difference between neighbouring
/// points. Steps hardly influence this median, because few of the differences are steps.
fn noise(logs: &[f64]) -> f64 {
    let differences: Vec<f64> = logs.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    (median(&differences).unwrap_or(0.0) * MEDIAN_TO_DEVIATION).clamp(NOISE_MIN, NOISE_MAX)
}

/// Returns the partition with the lowest cost: the start index of each plateau, followed by the end
/// of the last plateau.
fn partition(logs: &[f64], noise: f64) -> Vec<usize> {
    let count = logs.len();
    // `best[end]` contains the lowest cost of a partition of the points before `end`, and the start
    // of the last plateau of this partition.
    let mut best = vec![(f64::INFINITY, 0); count + 1];
    best[0] = (0.0, 0);
    for end in SHORTEST..=count {
        for start in 0..=end - SHORTEST {
            let cost = best[start].0 + PLATEAU_PENALTY + cost(&logs[start..end], noise);
            if cost < best[end].0 {
                best[end] = (cost, start);
            }
        }
    }
    let mut cuts = vec![count];
    while cuts[cuts.len() - 1] > 0 {
        cuts.push(best[cuts[cuts.len() - 1]].1);
    }
    cuts.reverse();
    cuts
}

fn cost(logs: &[f64], noise: f64) -> f64 {
    let level = median(logs).unwrap_or(0.0);
    logs.iter().map(|log| ((log - level) / noise).powi(2).min(POINT_COST_MAX)).sum()
}

/// Returns the index in `cuts` of the boundary between the two neighbouring plateaus whose rates
/// differ least. None if the rates of all neighbouring plateaus differ by at least [`STEP_MIN`].
fn cut_to_merge(logs: &[f64], cuts: &[usize]) -> Option<usize> {
    let level = |cut: &[usize]| median(&logs[cut[0]..cut[1]]).unwrap_or(0.0);
    let levels: Vec<f64> = cuts.windows(2).map(level).collect();
    let differences: Vec<f64> = levels.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    let least =
        (0..differences.len()).min_by(|&a, &b| differences[a].total_cmp(&differences[b]))?;
    (differences[least] < STEP_MIN.ln()).then_some(least + 1)
}

/// Returns the plateau of a segment. The plateau reaches from the first to the last size whose rate
/// is near the median of the segment.
fn plateau(curve: &[(u64, f64)], logs: &[f64], noise: f64, start: usize, end: usize) -> Plateau {
    let level = median(&logs[start..end]).unwrap_or(0.0);
    // In a segment that was merged from two plateaus, points may deviate from the median by half of
    // the smallest step.
    let most = (POINT_COST_MAX.sqrt() * noise).max(STEP_MIN.ln() / 2.0);
    let on_it = |index: &usize| (logs[*index] - level).abs() <= most;
    let first = (start..end).find(on_it).unwrap_or(start);
    let last = (start..end).rev().find(on_it).unwrap_or(end - 1);
    Plateau { from_bytes: curve[first].0, to_bytes: curve[last].0, rate: level.exp() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the working-set size at an index (bytes), with four sizes per doubling.
    fn size(index: usize) -> u64 {
        (4096.0 * 2_f64.powf(index as f64 / 4.0)) as u64
    }

    /// For each cache of a simulated machine: the number of working-set sizes that fit into the
    /// cache, the number of sizes on the ramp to the next cache, and the rate divided by the rate
    /// of the next cache.
    type Caches = Vec<(usize, usize, f64)>;

    /// Returns the curve of a machine with these caches, including the noise, and the true
    /// plateaus.
    fn curve(caches: &Caches, noise: &[f64]) -> (Vec<(u64, f64)>, Vec<Plateau>) {
        let (mut rates, mut truth, mut rate) = (Vec::new(), Vec::new(), 1e11);
        for (index, (long, ramp, ratio)) in caches.iter().enumerate() {
            let from_bytes = size(rates.len());
            rates.extend(vec![rate; *long]);
            truth.push(Plateau { from_bytes, to_bytes: size(rates.len() - 1), rate });
            if index + 1 < caches.len() {
                let share = |k: usize| (k + 1) as f64 / (*ramp + 1) as f64;
                rates.extend((0..*ramp).map(|k| rate / ratio.powf(share(k))));
                rate /= ratio;
            }
        }
        let noisy = rates.iter().enumerate().map(|(i, rate)| (size(i), rate * (1.0 + noise[i])));
        (noisy.collect(), truth)
    }

    proptest! {
        #[test]
        fn every_cache_is_found_at_its_size_with_its_rate(
            caches in prop::collection::vec((8..20_usize, 0..4_usize, 1.5..4.0_f64), 1..5),
            noise in prop::collection::vec(-0.03..0.03_f64, 100),
        ) {
            let (curve, truth) = curve(&caches, &noise);
            let found = plateaus(&curve);
            prop_assert_eq!(found.len(), truth.len(), "{:?} for {:?}", found, truth);
            for (found, truth) in found.iter().zip(&truth) {
                prop_assert!((found.rate / truth.rate - 1.0).abs() < 0.05, "{:?}", found);
                let octaves = |a: u64, b: u64| (a as f64 / b as f64).log2().abs();
                prop_assert!(octaves(found.from_bytes, truth.from_bytes) < 0.3, "{:?}", found);
                prop_assert!(octaves(found.to_bytes, truth.to_bytes) < 0.3, "{:?}", found);
            }
        }

        #[test]
        fn a_disturbed_point_is_no_cache(
            at in 0..40_usize,
            factor in prop_oneof![0.2..0.8_f64, 1.2..2.0_f64],
            noise in prop::collection::vec(-0.03..0.03_f64, 100),
        ) {
            let (mut curve, _) = curve(&vec![(20, 0, 2.0), (20, 0, 2.0)], &noise);
            curve[at].1 *= factor;
            prop_assert_eq!(plateaus(&curve).len(), 2);
        }

        #[test]
        fn the_unit_of_the_rate_changes_nothing_else(
            unit in 1e-9..1e9_f64,
            noise in prop::collection::vec(-0.03..0.03_f64, 100),
        ) {
            let (curve, _) = curve(&vec![(9, 2, 3.0), (12, 1, 1.6), (10, 0, 2.0)], &noise);
            let scaled: Vec<_> = curve.iter().map(|(size, rate)| (*size, rate * unit)).collect();
            let (plain, scaled) = (plateaus(&curve), plateaus(&scaled));
            prop_assert_eq!(plain.len(), scaled.len());
            for (a, b) in plain.iter().zip(&scaled) {
                prop_assert_eq!((a.from_bytes, a.to_bytes), (b.from_bytes, b.to_bytes));
                prop_assert!((a.rate * unit / b.rate - 1.0).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn a_curve_that_sinks_by_less_than_a_step_is_one_plateau() {
        let curve: Vec<_> = (0..40).map(|i| (size(i), 1e10 * (1.0 - 0.002 * i as f64))).collect();
        assert_eq!(plateaus(&curve).len(), 1);
    }

    #[test]
    fn an_unusable_curve_has_no_plateaus() {
        assert_eq!(plateaus(&[]), []);
        assert_eq!(plateaus(&[(1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0)]), []);
        let flat = |rate: f64| -> Vec<_> { (0..9).map(|i| (size(i), rate)).collect() };
        assert_eq!(plateaus(&flat(f64::NAN)), []);
        assert_eq!(plateaus(&flat(0.0)), []);
        let mut unsorted = flat(1.0);
        unsorted.swap(2, 3);
        assert_eq!(plateaus(&unsorted), []);
        assert_eq!(plateaus(&flat(5.0)).len(), 1);
    }
}
