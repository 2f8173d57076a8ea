//! Finds outliers among samples.
//!
//! A sample is an outlier if its distance from the median is large compared with the median
//! absolute deviation, which outliers hardly influence. No sample is removed: the caller decides
//! whether a trial was disturbed or the device is bimodal.

use crate::quantile::{median, median_absolute_deviation};

/// Modified z-score above which a sample is an outlier (Iglewicz and Hoaglin, How to Detect and
/// Handle Outliers, ASQC, 1993).
const LIMIT: f64 = 3.5;
/// Factor that converts the median absolute deviation to the standard deviation of a normal sample.
pub(crate) const MEDIAN_DEVIATION_TO_SIGMA: f64 = 1.482_602;

/// Factor that converts the mean absolute deviation to the standard deviation of a normal sample:
/// the square root of pi / 2.
const MEAN_DEVIATION_TO_SIGMA: f64 = 1.253_314;

/// Returns the indices, in ascending order, of the samples whose modified z-score, |x - median| /
/// (1.4826 MAD), exceeds 3.5.
///
/// If more than half of the samples are equal, the median absolute deviation is zero, and the mean
/// absolute deviation is used instead. The result is empty if there are fewer than three samples,
/// if all samples are equal, or if a sample is not finite.
pub fn outliers(samples: &[f64]) -> Vec<usize> {
    let (Some(centre), Some(deviation)) = (median(samples), median_absolute_deviation(samples))
    else {
        return Vec::new();
    };
    if samples.len() < 3 {
        return Vec::new();
    }
    let distance = |x: &f64| (x - centre).abs();
    let sigma = if deviation > 0.0 {
        MEDIAN_DEVIATION_TO_SIGMA * deviation
    } else {
        let mean = samples.iter().map(distance).sum::<f64>() / samples.len() as f64;
        MEAN_DEVIATION_TO_SIGMA * mean
    };
    (0..samples.len()).filter(|&i| distance(&samples[i]) > LIMIT * sigma).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_disturbed_trial_is_marked_and_its_neighbours_are_not() {
        assert_eq!(outliers(&[100.0, 101.0, 99.0, 42.0, 100.5, 99.5, 160.0]), [3, 6]);
    }

    #[test]
    fn a_sample_that_differs_from_equal_ones_is_marked() {
        assert_eq!(outliers(&[5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 6.0]), [6]);
    }

    #[test]
    fn equal_few_or_unusable_samples_have_no_outliers() {
        assert_eq!(outliers(&[5.0; 9]), [0; 0]);
        assert_eq!(outliers(&[1.0, 1000.0]), [0; 0]);
        assert_eq!(outliers(&[1.0, 1.0, 1.0, f64::NAN]), [0; 0]);
    }

    proptest! {
        #[test]
        fn less_than_half_of_the_samples_are_marked_whatever_the_scale(
            samples in proptest::collection::vec(-1e6..1e6f64, 0..40),
        ) {
            let marked = outliers(&samples);
            prop_assert!(marked.is_empty() || marked.len() * 2 < samples.len());
            let scaled: Vec<f64> = samples.iter().map(|x| x * 4.0).collect();
            prop_assert_eq!(marked, outliers(&scaled));
        }
    }
}
