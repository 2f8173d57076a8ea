//! Finds the odd hosts in a fleet of hosts that should be alike, and what the odd hosts have in
//! common.
//!
//! The hosts are compared in one value at a time, such as a rate. The distance of a host's value
//! from the median of all hosts is measured in units of the scatter between hosts. A minority of
//! odd hosts hardly influences the median and the scatter. Values vary by factors, so logarithms
//! are compared.
//!
//! The scatter is 1.4826 times the median absolute deviation, corrected for small numbers of hosts
//! (Croux and Rousseeuw, Time-Efficient Algorithms for Two Highly Robust Estimators of Scale,
//! COMPSTAT 1992). This estimate is as uncertain as a standard deviation that was computed from 37%
//! of the hosts, so the p-values come from Student's distribution with 37% of the degrees of
//! freedom. The degrees of freedom also have an upper limit, because the values of hosts without a
//! fault have heavier tails than a normal distribution.
//!
//! Each host has many values: a rate and a tail latency in each workload, and means over workloads.
//! [`any_of`] combines their p-values into one p-value for the host. False discoveries are then
//! counted by host and not by value.

use statrs::distribution::{ContinuousCDF, DiscreteCDF, Hypergeometric};

use crate::comparison::{Noise, p_value, student};
use crate::interval::{CONFIDENCE, Interval};
use crate::outlier::MEDIAN_DEVIATION_TO_SIGMA;
use crate::quantile::{median, median_absolute_deviation};

/// Minimum number of hosts for a comparison.
pub const HOSTS_MIN: usize = 5;

/// Efficiency of the median absolute deviation as an estimate of scatter, compared with the
/// standard deviation.
const EFFICIENCY: f64 = 0.37;
/// Maximum degrees of freedom for single values. Student's distribution then has a kurtosis of
/// 3.75, compared with 3 for a normal distribution.
const FREEDOM_MAX: f64 = 12.0;
/// Ratio of the standard error of a median to that of a mean: the square root of pi / 2.
const ERROR_OF_MEDIAN: f64 = 1.253_314;

/// Location parameter of a Landau distribution. The mean of n values 1 / p, minus the logarithm of
/// n, follows this distribution if n is large (see [`any_of`]).
const LOCATION: f64 = 0.874;

/// The value of a host compared with all hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// The host's value divided by the median of all hosts, with its 95% interval. The interval
    /// covers the error of the host's value and the error of the median.
    pub ratio: Interval,
    /// Probability that the value of a host without a fault is at least as far from the median as
    /// the value of this host.
    pub p_value: f64,
}

/// Compares the value of each host with all hosts. `errors` are the standard errors of the
/// logarithms of `values`. Each value is the mean of `parts` independent values (1 for a single
/// value). More parts make the tails lighter: a mean of k values has 1 / k of the excess kurtosis
/// of a single value.
///
/// `None` if there are fewer than [`HOSTS_MIN`] hosts, the lengths differ, a value is not positive
/// and finite, or an error is not finite.
pub fn standings(values: &[f64], errors: &[f64], parts: usize) -> Option<Vec<Standing>> {
    let are_usable = values.iter().all(|value| *value > 0.0 && value.is_finite())
        && errors.iter().all(|error| *error >= 0.0 && error.is_finite());
    if values.len() < HOSTS_MIN || values.len() != errors.len() || !are_usable {
        return None;
    }
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let hosts = logs.len() as f64;
    let centre = median(&logs)?;
    let small = hosts / (hosts - 0.8);
    let scatter = median_absolute_deviation(&logs)? * MEDIAN_DEVIATION_TO_SIGMA * small;
    let of_centre = ERROR_OF_MEDIAN * scatter / hosts.sqrt();
    // The excess kurtosis of Student's distribution is 6 / (freedom - 4).
    let freedom_max = 4.0 + parts.max(1) as f64 * (FREEDOM_MAX - 4.0);
    let freedom = (EFFICIENCY * (hosts - 1.0)).clamp(1.0, freedom_max);
    let factor = student(freedom).inverse_cdf(f64::midpoint(1.0, CONFIDENCE));
    let standing = |(log, error): (&f64, &f64)| {
        let distance = log - centre;
        // The scatter between hosts already contains the error of a typical host, so an error
        // counts only if it is larger than the scatter.
        let error_of_test = scatter.max(*error).hypot(of_centre);
        let half = factor * error.hypot(of_centre);
        let p_value = p_value(distance, error_of_test, freedom);
        let ratio = Interval {
            value: distance.exp(),
            low: (distance - half).exp(),
            high: (distance + half).exp(),
        };
        Standing { ratio, p_value }
    };
    Some(logs.iter().zip(errors).map(standing).collect())
}

/// Estimates the noise that all series have in common, from the median of all steps between
/// successive values. Level changes and a few noisy hosts hardly influence this median. The caller
/// combines the common noise with the noise of each single series ([`Noise::variance_with`]).
/// `freedom_max` limits the weight of the common noise in this combination. With few steps, the
/// weight is lower.
///
/// `None` if fewer than [`HOSTS_MIN`] series have two successive positive values, or if most steps
/// are zero.
pub fn common_noise(series: &[Vec<f64>], freedom_max: f64) -> Option<Noise> {
    let steps_of = |values: &Vec<f64>| {
        let steps = values.windows(2).map(|pair| (pair[1] / pair[0]).ln().abs());
        steps.filter(|step| step.is_finite()).collect::<Vec<f64>>()
    };
    let of_hosts: Vec<Vec<f64>> = series.iter().map(steps_of).filter(|s| !s.is_empty()).collect();
    if of_hosts.len() < HOSTS_MIN {
        return None;
    }
    let steps = of_hosts.concat();
    // The variance of a step is the sum of the variances of its two values.
    let variance = (median(&steps)? * MEDIAN_DEVIATION_TO_SIGMA).powi(2) / 2.0;
    let freedom = (EFFICIENCY * steps.len() as f64).min(freedom_max);
    (variance > 0.0).then_some(Noise { variance, freedom })
}

/// Combines the p-values of a host into the probability that chance explains all of its values. The
/// result is a harmonic mean (Wilson, The harmonic mean p-value for combining dependent tests, PNAS
/// 116, 2019). It is low if several values are each a little improbable. Dependence between the
/// values hardly matters. If n is large, the mean of n values 1 / p has the same tail as a single
/// value 1 / p, but shifted by the logarithm of n. This shift is subtracted.
///
/// Returns 1 if there are no values.
pub fn any_of(p_values: &[f64]) -> f64 {
    if let [] | [_] = p_values {
        return p_values.first().copied().unwrap_or(1.0);
    }
    let count = p_values.len() as f64;
    let mean = p_values.iter().map(|p| 1.0 / p).sum::<f64>() / count;
    let beyond = mean - count.ln() - LOCATION;
    if beyond > 1.0 { 1.0 / beyond } else { 1.0 }
}

/// Returns the probability that `odd_with` or more of the odd hosts share a property by chance
/// (one-sided exact test of Fisher). `odd` is the number of odd hosts, `with` is the number of
/// hosts that have the property, and `all` is the number of all hosts.
///
/// Returns 1 if the counts contradict each other.
pub fn chance_of_association(odd_with: u64, odd: u64, with: u64, all: u64) -> f64 {
    if odd_with == 0 || odd > all || with > all || odd_with > odd.min(with) {
        return 1.0;
    }
    let law = Hypergeometric::new(all, with, odd);
    law.map_or(1.0, |law| law.sf(odd_with - 1)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::tests::normal;
    use crate::comparison::{FALSE_DISCOVERIES, false_discovery, student};
    use proptest::prelude::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;

    /// Returns rates of hosts with a scatter of 3%.
    fn alike(hosts: usize, random: &mut Xoshiro256PlusPlus) -> Vec<f64> {
        (0..hosts).map(|_| 1e9 * (0.03 * normal(random)).exp()).collect()
    }

    fn corrected(values: &[f64]) -> Vec<f64> {
        let errors = vec![0.0; values.len()];
        let found = standings(values, &errors, 1).unwrap();
        false_discovery(&found.iter().map(|host| host.p_value).collect::<Vec<f64>>())
    }

    #[test]
    fn fleets_of_equal_hosts_rarely_have_an_odd_one() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for hosts in [5, 8, 20, 100] {
            let tries = 1000;
            let wrong = (0..tries).filter(|_| {
                let found = corrected(&alike(hosts, &mut random));
                found.iter().any(|p_value| *p_value <= FALSE_DISCOVERIES)
            });
            let wrong = wrong.count();
            assert!(wrong <= tries / 14, "{wrong} of {tries} fleets of {hosts} hosts");
        }
    }

    #[test]
    fn hosts_with_a_fifth_less_are_found_even_if_a_quarter_is_odd() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        for odd in [1, 5, 25] {
            let found: usize = (0..100)
                .map(|_| {
                    let mut values = alike(100, &mut random);
                    values[..odd].iter_mut().for_each(|value| *value *= 0.8);
                    let found = corrected(&values);
                    found[..odd].iter().filter(|p_value| **p_value <= FALSE_DISCOVERIES).count()
                })
                .sum();
            assert!(found as f64 >= 0.9 * (100 * odd) as f64, "{found} of {}", 100 * odd);
        }
    }

    #[test]
    fn equal_values_have_a_ratio_of_one_and_any_other_value_is_odd() {
        let found = standings(&[5.0, 5.0, 5.0, 5.0, 6.0], &[0.0; 5], 1).unwrap();
        assert_eq!((found[0].ratio.value, found[0].p_value), (1.0, 1.0));
        assert!((found[4].ratio.value - 1.2).abs() < 1e-9);
        assert_eq!(found[4].p_value, 0.0);
        assert_eq!(standings(&[5.0; 4], &[0.0; 4], 1), None, "too few");
        assert_eq!(standings(&[5.0, 5.0, 5.0, 5.0, 0.0], &[0.0; 5], 1), None);
        assert_eq!(standings(&[5.0; 5], &[f64::NAN; 5], 1), None);
    }

    #[test]
    fn a_host_that_varies_much_itself_is_not_odd() {
        let values = [100.0, 101.0, 99.0, 100.0, 102.0, 98.0, 70.0];
        let p_value = |error: f64| {
            let mut errors = [0.01; 7];
            errors[6] = error;
            standings(&values, &errors, 1).unwrap()[6].p_value
        };
        assert!(p_value(0.01) < 0.01 && p_value(0.4) > 0.3);
    }

    #[test]
    fn hosts_with_heavy_tails_are_not_odd() {
        // The values follow Student's distribution with 10 degrees of freedom. Each fleet contains
        // values that a normal distribution practically never produces.
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let heavy = |random: &mut Xoshiro256PlusPlus| {
            let squares: f64 = (0..10).map(|_| normal(random).powi(2)).sum();
            1e9 * (0.03 * normal(random) / (squares / 10.0).sqrt()).exp()
        };
        let tries = 200;
        let wrong = (0..tries).filter(|_| {
            let values: Vec<f64> = (0..500).map(|_| heavy(&mut random)).collect();
            corrected(&values).iter().any(|p_value| *p_value <= FALSE_DISCOVERIES)
        });
        let wrong = wrong.count();
        assert!(wrong <= tries / 10, "{wrong} of {tries}");
    }

    #[test]
    fn means_of_several_values_need_less_distance() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
        let mut values = alike(300, &mut random);
        values[0] = 0.86e9;
        let p_value = |parts| standings(&values, &vec![0.0; 300], parts).unwrap()[0].p_value;
        assert!(p_value(3) < p_value(2) && p_value(2) < p_value(1), "{}", p_value(1));
    }

    #[test]
    fn the_common_noise_is_that_of_most_hosts_and_without_their_changes() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(6);
        let mut series: Vec<Vec<f64>> = (0..100).map(|_| alike(8, &mut random)).collect();
        // Each host becomes slower at a different time, and a tenth of the hosts varies ten times
        // as much.
        for (host, values) in series.iter_mut().enumerate() {
            values[1 + host % 7..].iter_mut().for_each(|value| *value *= 0.5);
            if host % 10 == 0 {
                values.iter_mut().for_each(|value| *value *= (0.3 * normal(&mut random)).exp());
            }
        }
        let noise = common_noise(&series, 6.0).unwrap();
        let sigma = noise.variance.sqrt();
        assert!((0.025..0.045).contains(&sigma) && noise.freedom == 6.0, "{noise:?}");
        let short: Vec<Vec<f64>> = series.iter().map(|values| values[..2].to_vec()).collect();
        let few = common_noise(&short[1..6], 6.0).unwrap();
        assert!(few.freedom < 3.0, "{few:?}");
        assert_eq!(common_noise(&series[1..5], 6.0), None, "too few hosts");
        assert_eq!(common_noise(&vec![vec![1.0; 8]; 9], 6.0), None, "no noise");
        assert_eq!(common_noise(&vec![vec![0.0; 2]; 9], 6.0), None);
    }

    #[test]
    fn any_of_several_values_is_improbable_as_often_as_it_says() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let law = student(1e6);
        for (count, shared) in [(2, 0.0), (5, 0.0), (20, 0.0), (5, 0.7), (20, 0.7)] {
            let tries = 20_000;
            let low = (0..tries).filter(|_| {
                let common = shared * normal(&mut random);
                let p_values: Vec<f64> = (0..count)
                    .map(|_| common + (1.0_f64 - shared * shared).sqrt() * normal(&mut random))
                    .map(|distance| 2.0 * law.cdf(-distance.abs()))
                    .collect();
                any_of(&p_values) <= 0.01
            });
            let share = low.count() as f64 / f64::from(tries);
            assert!(share < 0.013, "{share} of {count} values, {shared} in common");
        }
    }

    #[test]
    fn several_values_that_are_a_little_improbable_count_together() {
        assert_eq!((any_of(&[]), any_of(&[0.04]), any_of(&[0.0, 0.5])), (1.0, 0.04, 0.0));
        assert_eq!(any_of(&[0.9, 0.6, 1.0]), 1.0);
        let together = any_of(&[0.001, 0.001, 0.001, 0.9]);
        assert!(together < 0.5 * any_of(&[0.001, 0.9, 0.9, 0.9]), "{together}");
    }

    #[test]
    fn a_property_that_only_the_odd_hosts_have_is_no_chance() {
        // One of ten hosts is odd, and only that host has the property. The probability is 1/10.
        assert!((chance_of_association(1, 1, 1, 10) - 0.1).abs() < 1e-9);
        // Two of ten hosts are odd, and only these two have the property. They are one of 45
        // possible pairs.
        assert!((chance_of_association(2, 2, 2, 10) - 1.0 / 45.0).abs() < 1e-9);
        assert!((chance_of_association(2, 2, 10, 10) - 1.0).abs() < 1e-9);
        assert_eq!(chance_of_association(0, 2, 5, 10), 1.0);
        assert_eq!(chance_of_association(3, 2, 5, 10), 1.0);
    }

    proptest! {
        #[test]
        fn the_ratio_lies_in_its_interval_and_the_unit_does_not_matter(
            values in prop::collection::vec(1.0e3..1.0e9_f64, 5..40),
            error in 0.0..0.5_f64,
            unit in 1.0e-3..1.0e3_f64,
        ) {
            let errors = vec![error; values.len()];
            let found = standings(&values, &errors, 1).unwrap();
            let scaled: Vec<f64> = values.iter().map(|value| value * unit).collect();
            let again = standings(&scaled, &errors, 1).unwrap();
            for (a, b) in found.iter().zip(&again) {
                prop_assert!(a.ratio.low <= a.ratio.value && a.ratio.value <= a.ratio.high);
                prop_assert!((0.0..=1.0).contains(&a.p_value));
                prop_assert!((a.ratio.value / b.ratio.value - 1.0).abs() < 1e-6);
            }
        }
    }
}
