//! Where are the caches in a curve of rate against working-set size?
//!
//! While a set fits a cache the rate stays level; where it stops fitting the rate falls, over an
//! octave or so of sizes, to that of the next cache. [`crate::changepoint`] asks for jumps in a
//! long series of equal noise and takes a ramp for a slope, so it is not used: here plateaus may be
//! five points long and what lies between them belongs to none.
//!
//! The logarithm of the rate is cut into plateaus by optimal partitioning (Jackson et al., An
//! algorithm for optimal partitioning of data on an interval, 2005): the squares around the
//! plateaus' medians, in units of the noise, plus a price for each plateau. A point costs no more
//! than three standard deviations (the bounded loss of Fearnhead and Rigaill, Changepoint detection
//! in the presence of outliers, 2019), so a ramp between plateaus or a disturbed point makes no
//! plateau of its own. Plateaus whose rates differ by less than [`LEAST_STEP`] are one.

use crate::quantile::median;

/// Least ratio of two rates that is called a step.
pub const LEAST_STEP: f64 = 1.15;
/// Fewest points of a plateau: a little over an octave at four sizes to the octave.
pub const SHORTEST: usize = 5;
/// Noise of a rate is taken to be this share of it at the least: rates repeat no better.
const NOISE_MIN: f64 = 0.02;
/// ... and at the most, so that steps are not taken for noise.
const NOISE_MAX: f64 = 0.1;
/// From a median absolute difference of neighbours to their standard deviation (normal noise).
const MEDIAN_TO_DEVIATION: f64 = 1.0 / (0.6745 * std::f64::consts::SQRT_2);
/// Most that a point costs: three standard deviations, squared.
const POINT_MOST: f64 = 9.0;
/// Price of a plateau: as much as four points and a half that belong to none.
const PLATEAU_PRICE: f64 = 4.5 * POINT_MOST;

/// Working sets of about one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plateau {
    /// The smallest set on it (bytes).
    pub from_bytes: u64,
    /// The largest set on it (bytes): the step to the next plateau lies between this and the next
    /// one's smallest.
    pub to_bytes: u64,
    /// Median rate of its points, in the unit of the curve.
    pub rate: f64,
}

/// The plateaus of a curve of (set size in bytes, rate), sizes ascending; the steps lie between
/// them.
///
/// Empty for fewer than [`SHORTEST`] points, sizes that do not ascend, or a rate that is not
/// positive and finite.
pub fn plateaus(curve: &[(u64, f64)]) -> Vec<Plateau> {
    let ascending = curve.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let rates = curve.iter().all(|(_, rate)| rate.is_finite() && *rate > 0.0);
    if curve.len() < SHORTEST || !ascending || !rates {
        return Vec::new();
    }
    let logs: Vec<f64> = curve.iter().map(|(_, rate)| rate.ln()).collect();
    let noise = noise(&logs);
    let mut cuts = partition(&logs, noise);
    while let Some(index) = needless(&logs, &cuts) {
        cuts.remove(index);
    }
    cuts.windows(2).map(|cut| plateau(curve, &logs, noise, cut[0], cut[1])).collect()
}

/// Standard deviation of the noise of a point, by how neighbours differ: the few steps are no
/// majority of the differences.
fn noise(logs: &[f64]) -> f64 {
    let apart: Vec<f64> = logs.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    (median(&apart).unwrap_or(0.0) * MEDIAN_TO_DEVIATION).clamp(NOISE_MIN, NOISE_MAX)
}

/// Starts of the plateaus that cost least, and the end of the last.
fn partition(logs: &[f64], noise: f64) -> Vec<usize> {
    let count = logs.len();
    // The least cost of the points up to each, and where its last plateau starts.
    let mut best = vec![(f64::INFINITY, 0); count + 1];
    best[0] = (0.0, 0);
    for end in SHORTEST..=count {
        for start in 0..=end - SHORTEST {
            let cost = best[start].0 + PLATEAU_PRICE + cost(&logs[start..end], noise);
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
    logs.iter().map(|log| ((log - level) / noise).powi(2).min(POINT_MOST)).sum()
}

/// The cut between the two neighbours that are most alike, if they are too much so.
fn needless(logs: &[f64], cuts: &[usize]) -> Option<usize> {
    let level = |cut: &[usize]| median(&logs[cut[0]..cut[1]]).unwrap_or(0.0);
    let levels: Vec<f64> = cuts.windows(2).map(level).collect();
    let apart: Vec<f64> = levels.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    let least = (0..apart.len()).min_by(|&a, &b| apart[a].total_cmp(&apart[b]))?;
    (apart[least] < LEAST_STEP.ln()).then_some(least + 1)
}

/// The plateau of some points, from the first to the last that lies on it.
fn plateau(curve: &[(u64, f64)], logs: &[f64], noise: f64, start: usize, end: usize) -> Plateau {
    let level = median(&logs[start..end]).unwrap_or(0.0);
    // What was merged may lie as far off as a step is high.
    let most = (POINT_MOST.sqrt() * noise).max(LEAST_STEP.ln() / 2.0);
    let on_it = |index: &usize| (logs[*index] - level).abs() <= most;
    let first = (start..end).find(on_it).unwrap_or(start);
    let last = (start..end).rev().find(on_it).unwrap_or(end - 1);
    Plateau { from_bytes: curve[first].0, to_bytes: curve[last].0, rate: level.exp() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sizes at four to the octave.
    fn size(index: usize) -> u64 {
        (4096.0 * 2_f64.powf(index as f64 / 4.0)) as u64
    }

    /// A machine: for each cache how many sizes fit it, how many it takes to fall to the next, and
    /// by how much.
    type Caches = Vec<(usize, usize, f64)>;

    /// Its curve, with where the plateaus begin and end.
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
    fn nothing_is_found_in_what_is_no_curve() {
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
