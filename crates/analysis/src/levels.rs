//! Finds two levels among the values of one quantity, such as trials that are either fast or slow.
//!
//! The values are sorted and cut in two where the sum of squared deviations within both parts is
//! smallest (the two-means method in one dimension). The parts are levels if the distance between
//! their means is more than five standard deviations of a part. Values with a single level do not
//! pass this test: the distance between the means of the two halves is 2.6 standard deviations for
//! a normal distribution, and 3.5 standard deviations for a uniform distribution.

use crate::quantile::median;

/// Minimum number of values to which the test is applied.
const VALUES_MIN: usize = 12;
/// Minimum number of values in each level.
const SIDE_MIN: usize = 3;
/// Minimum share of the values in each level. A smaller group is considered outliers.
const SHARE_MIN: f64 = 0.1;
/// Minimum distance between the means of the levels, in standard deviations of a level.
const DISTANCE_MIN: f64 = 5.0;

/// Two levels of one quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Levels {
    /// Median of the lower level.
    pub low: f64,
    /// Median of the higher level.
    pub high: f64,
    /// Share of the values that belong to the lower level.
    pub share_low: f64,
}

/// Finds two levels in positive values.
///
/// `None` if there are fewer than twelve values, a value is not positive and finite, or there is
/// only one level.
pub fn two_levels(values: &[f64]) -> Option<Levels> {
    if values.len() < VALUES_MIN || !values.iter().all(|v| *v > 0.0 && v.is_finite()) {
        return None;
    }
    let mut logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    logs.sort_by(f64::total_cmp);
    let least = SIDE_MIN.max((SHARE_MIN * logs.len() as f64).ceil() as usize);
    let within = |cut: &usize| {
        let (low, high) = logs.split_at(*cut);
        squares(low) + squares(high)
    };
    let cuts = least..(logs.len() + 1).saturating_sub(least);
    let cut = cuts.min_by(|a, b| within(a).total_cmp(&within(b)))?;
    let scatter = (within(&cut) / logs.len() as f64).sqrt();
    let (low, high) = logs.split_at(cut);
    let is_apart = mean(high) - mean(low) > DISTANCE_MIN * scatter && low[0] < high[0];
    is_apart.then_some(Levels {
        low: median(low)?.exp(),
        high: median(high)?.exp(),
        share_low: cut as f64 / logs.len() as f64,
    })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the sum of the squared distances from the mean.
fn squares(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::tests::normal;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;

    fn noisy(level: f64, random: &mut Xoshiro256PlusPlus) -> f64 {
        level * (0.03 * normal(random)).exp()
    }

    #[test]
    fn trials_of_which_some_are_a_quarter_slower_have_two_levels() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for every in [2, 3, 5] {
            let level = |trial: usize| if trial.is_multiple_of(every) { 75.0 } else { 100.0 };
            let values: Vec<f64> = (0..40).map(|t| noisy(level(t), &mut random)).collect();
            let found = two_levels(&values).unwrap();
            assert!((found.low - 75.0).abs() < 3.0 && (found.high - 100.0).abs() < 3.0);
            assert!((found.share_low - 1.0 / every as f64).abs() < 0.03, "{found:?}");
        }
    }

    #[test]
    fn one_cloud_of_values_rarely_has_two_levels_also_with_an_outlier() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        let (tries, mut wrong) = (300, 0);
        for count in [12, 20, 40, 200] {
            for _ in 0..tries {
                let mut values: Vec<f64> = (0..count).map(|_| noisy(100.0, &mut random)).collect();
                wrong += usize::from(two_levels(&values).is_some());
                values[0] = 40.0;
                wrong += usize::from(two_levels(&values).is_some());
            }
        }
        assert!(wrong <= 8 * tries / 100, "{wrong} of {}", 8 * tries);
    }

    #[test]
    fn equal_few_and_unusable_values_have_no_levels() {
        assert_eq!(two_levels(&[5.0; 20]), None);
        assert_eq!(two_levels(&[1.0, 2.0].repeat(3)), None);
        assert_eq!(two_levels(&[1.0, 2.0, 0.0].repeat(5)), None);
        let found = two_levels(&[1.0, 2.0].repeat(6)).unwrap();
        assert_eq!((found.low, found.share_low), (1.0, 0.5));
        assert!((found.high - 2.0).abs() < 1e-12);
    }
}
