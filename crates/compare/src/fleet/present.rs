//! Computes the present values of a host in a workload, and whether the rate of the host changed
//! differently from the rates of the other hosts.
//!
//! A present value is computed from the runs since the last change of the value (see
//! [`crate::history`]). The noise of a host is uncertain if it has few runs, so it is combined with
//! the noise of all hosts. A cause often changes several workloads of a host, and their mean shows
//! such a change more clearly than a single workload. If no change is found in a workload, the time
//! of the last change of the mean is used.
//!
//! A change that all hosts show, for example after a kernel update, does not make a host odd. The
//! change of a host is therefore compared with the changes of the other hosts at the same time.

use std::collections::BTreeMap;

use analysis::comparison::Noise;
use analysis::fleet::{HOSTS_MIN, Standing, common_noise, standings};
use analysis::quantile::median;

use super::contents::Measurement;
use crate::history::{self, RUNS_MIN};

/// Maximum weight (degrees of freedom) of the common noise of all hosts when the common noise is
/// combined with the noise of one host. The weight is small, so that a host with many runs is
/// judged mainly by its own noise, which may be unusual.
const COMMON_FREEDOM: f64 = 2.0 * RUNS_MIN as f64;
/// Maximum number of other hosts with which a change is compared. More hosts would hardly make the
/// comparison more certain.
const REFERENCES_MAX: usize = 200;

/// The present value of a host.
#[derive(Clone, Copy, Debug)]
pub struct Present {
    /// Median or geometric mean of the runs since the last change.
    pub value: f64,
    /// Standard error of the logarithm of the value.
    pub error: f64,
    /// Number of runs since the last change.
    pub runs: usize,
    /// Start of the first run since the last change (ns since 1970). None if the value never
    /// changed.
    pub since_unix_ns: Option<i64>,
}

/// How the values of several runs are combined into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Centre {
    Median,
    /// Used for the scatter, because rare large values would hardly influence a median.
    GeometricMean,
}

/// The times at which the mean rate, the mean tail latency and the mean scatter of a host last
/// changed (ns since 1970). Each mean covers all workloads of the host. None if the mean never
/// changed, or if the host has only one workload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moments {
    rate: Option<i64>,
    tail: Option<i64>,
    scatter: Option<i64>,
}

/// The start of each run (ns since 1970), and a value that was measured in this run.
type Series = Vec<(i64, f64)>;

impl Moments {
    /// Finds the times of the last changes of each host. `hosts` has the results of each host in
    /// each of its workloads. All hosts must have the same model.
    pub fn of_hosts(hosts: &[Vec<&[Measurement]>]) -> Vec<Moments> {
        let tail = |result: &Measurement| result.tails_ns[1].or(result.tails_ns[0]);
        let rates = shared(hosts, |result| Some(result.bytes_per_s));
        let tails = shared(hosts, |result| tail(result).map(f64::from));
        let scatters = shared(hosts, |result| result.scatter.map(f64::from));
        let moments = |((rate, tail), scatter)| Moments { rate, tail, scatter };
        rates.into_iter().zip(tails).zip(scatters).map(moments).collect()
    }
}

/// For each host, finds the time of the last change in the mean over its workloads.
fn shared(
    hosts: &[Vec<&[Measurement]>],
    value: impl Fn(&Measurement) -> Option<f64>,
) -> Vec<Option<i64>> {
    let of_host = |workloads: &Vec<&[Measurement]>| match workloads.len() {
        0 | 1 => Series::new(),
        _ => mean(workloads, &value),
    };
    let all: Vec<Series> = hosts.iter().map(of_host).collect();
    let noise = noise(&all);
    let last = |means: &Series| {
        let place = last_change(&numbers(means), noise.as_ref())?;
        Some(means[place].0)
    };
    all.iter().map(last).collect()
}

/// Computes for each run the mean of its values over all workloads. Each value is relative to the
/// mean of the same workload over all runs.
fn mean(workloads: &[&[Measurement]], value: impl Fn(&Measurement) -> Option<f64>) -> Series {
    let mut runs: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
    for results in workloads {
        let log = |result: &Measurement| Some((result.started_unix_ns, value(result)?.ln()));
        let logs: Vec<(i64, f64)> = results.iter().filter_map(log).collect();
        let mean = logs.iter().map(|(_, log)| log).sum::<f64>() / logs.len() as f64;
        for (at, log) in logs {
            let (sum, count) = runs.entry(at).or_default();
            *sum += log - mean;
            *count += 1.0;
        }
    }
    runs.into_iter().map(|(at, (sum, count))| (at, (sum / count).exp())).collect()
}

fn numbers(series: &Series) -> Vec<f64> {
    series.iter().map(|(_, value)| *value).collect()
}

fn noise(all: &[Series]) -> Option<Noise> {
    common_noise(&all.iter().map(numbers).collect::<Vec<_>>(), COMMON_FREEDOM)
}

fn last_change(numbers: &[f64], noise: Option<&Noise>) -> Option<usize> {
    history::change_indices(numbers, noise).last().copied()
}

/// Computes the present rate of each host in a workload (bytes per second). `moments` has one entry
/// for each host.
pub fn rates(hosts: &[&[Measurement]], moments: &[Moments]) -> Vec<Option<Present>> {
    let value = |result: &Measurement| Some(result.bytes_per_s);
    let mut all = of_hosts(hosts, value, Centre::Median, |host| moments[host].rate);
    for (present, results) in all.iter_mut().zip(hosts) {
        if let (Some(present), [only]) = (present, results) {
            present.error = f64::from(only.error);
        }
    }
    all
}

/// Computes the present tail latency of each host in a workload (ns). `which` selects p99 (0) or
/// p99.9 (1).
pub fn tails(hosts: &[&[Measurement]], moments: &[Moments], which: usize) -> Vec<Option<Present>> {
    let value = |result: &Measurement| result.tails_ns[which].map(f64::from);
    of_hosts(hosts, value, Centre::Median, |host| moments[host].tail)
}

/// Computes the present scatter of each host in a workload (see [`Measurement::scatter`]).
pub fn scatters(hosts: &[&[Measurement]], moments: &[Moments]) -> Vec<Option<Present>> {
    let value = |result: &Measurement| result.scatter.map(f64::from);
    of_hosts(hosts, value, Centre::GeometricMean, |host| moments[host].scatter)
}

fn of_hosts(
    hosts: &[&[Measurement]],
    value: impl Fn(&Measurement) -> Option<f64>,
    centre: Centre,
    moment: impl Fn(usize) -> Option<i64>,
) -> Vec<Option<Present>> {
    let dated = |result: &Measurement| Some((result.started_unix_ns, value(result)?));
    let series = |results: &&[Measurement]| results.iter().filter_map(dated).collect();
    let all: Vec<Series> = hosts.iter().map(series).collect();
    let noise = noise(&all);
    let present = |(host, values)| present(values, centre, moment(host), noise.as_ref());
    all.iter().enumerate().map(present).collect()
}

/// Computes the present value of a host in a workload, from the runs since the last change. If the
/// workload shows no change, `moment` is used instead: the time at which the host's mean over all
/// workloads last changed. With only one run, the error is 0.
fn present(
    values: &Series,
    centre: Centre,
    moment: Option<i64>,
    noise: Option<&Noise>,
) -> Option<Present> {
    let numbers = numbers(values);
    let own = last_change(&numbers, noise);
    let of_host = || {
        let place = values.partition_point(|(at, _)| Some(*at) < moment);
        (place >= RUNS_MIN && values.len() - place >= RUNS_MIN).then_some(place)
    };
    let change = own.or_else(of_host);
    let now = &numbers[change.unwrap_or(0)..];
    let logs: Vec<f64> = now.iter().map(|value| value.ln()).collect();
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    // With few runs, a single disturbed run could make the error so large that it hides a real
    // difference from other hosts. Therefore the estimate also uses the noise of all hosts.
    let freedom = logs.len() as f64 - 1.0;
    let variance = match noise {
        Some(noise) if freedom > 0.0 => noise.variance_with(squares, freedom),
        _ => squares / freedom,
    };
    let error = (variance / logs.len() as f64).sqrt();
    Some(Present {
        value: match centre {
            Centre::Median => median(now)?,
            Centre::GeometricMean if now.is_empty() => return None,
            Centre::GeometricMean => mean.exp(),
        },
        error: if error.is_finite() { error } else { 0.0 },
        runs: now.len(),
        since_unix_ns: change.map(|place| values[place].0),
    })
}

/// Compares a change of a host's rate with the changes of the other hosts at the same time.
/// `results` has the results of all hosts. None if fewer than five other hosts have enough runs
/// before and after the change.
pub fn change(results: &[&[Measurement]], host: usize, since_unix_ns: i64) -> Option<Standing> {
    let others = (0..results.len()).filter(|other| *other != host);
    let stride = results.len().div_ceil(REFERENCES_MAX).max(1);
    let own = over(results[host], since_unix_ns)?;
    let others = others.step_by(stride).filter_map(|other| over(results[other], since_unix_ns));
    let (mut changes, mut errors) = (vec![own.0], vec![own.1]);
    for (change, _) in others {
        changes.push(change);
        errors.push(0.0);
    }
    if changes.len() <= HOSTS_MIN {
        return None;
    }
    let standing = standings(&changes, &errors, 1)?.swap_remove(0);
    // The change was placed between the two runs where the rate changed most. The probability is
    // therefore corrected for the number of places between runs where the change could lie.
    let moments = (results[host].len() + 1).saturating_sub(2 * RUNS_MIN).max(1) as f64;
    Some(Standing { p_value: (standing.p_value * moments).min(1.0), ..standing })
}

/// Compares the median rates before and after a time. Returns the later rate divided by the earlier
/// rate, and the standard error of the logarithm of this ratio. None if there are fewer than three
/// runs before or after the time.
fn over(results: &[Measurement], since_unix_ns: i64) -> Option<(f64, f64)> {
    let cut = results.partition_point(|result| result.started_unix_ns < since_unix_ns);
    let part = |results: &[Measurement]| {
        let rates: Vec<f64> = results.iter().map(|result| result.bytes_per_s).collect();
        let centre = median(&rates).filter(|_| rates.len() >= RUNS_MIN)?;
        let squares: f64 = rates.iter().map(|rate| (rate / centre).ln().powi(2)).sum();
        Some((centre, squares / (rates.len() - 1) as f64 / rates.len() as f64))
    };
    let ((before, of_before), (after, of_after)) = (part(&results[..cut])?, part(&results[cut..])?);
    Some((after / before, (of_before + of_after).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(rates: &[f64]) -> Vec<Measurement> {
        let result = |(run, rate): (usize, &f64)| Measurement {
            started_unix_ns: run as i64,
            bytes_per_s: *rate,
            error: 0.005,
            tails_ns: [Some(1000.0), None],
            scatter: Some(0.02),
        };
        rates.iter().enumerate().map(result).collect()
    }

    /// Returns the present rate of the only host of a fleet.
    fn rate(results: &[Measurement], moments: Moments) -> Option<Present> {
        rates(&[results], &[moments])[0]
    }

    #[test]
    fn a_single_run_counts_with_the_error_of_its_trials() {
        let now = rate(&results(&[1e9]), Moments::default()).unwrap();
        assert!((now.error - 0.005).abs() < 1e-6, "{now:?}");
        assert_eq!((now.runs, now.since_unix_ns), (1, None));
        let none = Moments::default();
        assert!(rate(&[], none).is_none());
        assert!(scatters(&[&[]], &[none])[0].is_none());
        assert!(tails(&[&results(&[1e9])], &[none], 1)[0].is_none());
    }

    #[test]
    fn the_present_rate_is_that_since_the_last_change() {
        let results = results(&[1.0, 1.01, 0.99, 1.0, 0.7, 0.71, 0.69, 0.7]);
        let now = rate(&results, Moments::default()).unwrap();
        assert_eq!((now.value, now.runs, now.since_unix_ns), (0.7, 4, Some(4)));
    }

    #[test]
    fn a_change_that_no_workload_shows_alone_is_found_in_their_mean() {
        let workload = |disturbed: usize| {
            let rate = |run: usize| match run {
                run if run == disturbed => 0.9,
                run if run >= 5 => 0.96 + run as f64 / 1000.0,
                run => 1.0 + run as f64 / 1000.0,
            };
            results(&(0..8).map(rate).collect::<Vec<f64>>())
        };
        let workloads: Vec<Vec<Measurement>> = (0..5).map(workload).collect();
        let all: Vec<&[Measurement]> = workloads.iter().map(Vec::as_slice).collect();
        let alone = rate(all[4], Moments::default()).unwrap();
        assert_eq!(alone.since_unix_ns, None);
        let last = all[4];
        let one = vec![last];
        let moments = Moments::of_hosts(&[all, one]);
        let now = rate(last, moments[0]).unwrap();
        assert_eq!((now.runs, now.since_unix_ns), (3, Some(5)));
        assert!(moments[1].rate.is_none(), "the mean needs several workloads");
    }

    #[test]
    fn the_noise_of_other_hosts_shows_a_change_that_few_runs_alone_do_not() {
        // The last three rates are about 20% lower, but they also differ from each other by 8%.
        let changed = results(&[1.0, 1.004, 1.032, 1.026, 0.99, 0.81, 0.83, 0.765]);
        assert_eq!(rate(&changed, Moments::default()).unwrap().since_unix_ns, None);
        let noise = |number: usize, run: usize| ((number * 7 + run * 3) % 11) as f64 - 5.0;
        let since = |share: f64| {
            let rate = |number: usize, run: usize| 1.0 + share * noise(number, run);
            let host = |number| results(&(0..8).map(|run| rate(number, run)).collect::<Vec<_>>());
            let mut hosts: Vec<Vec<Measurement>> = (0..20).map(host).collect();
            hosts.push(changed.clone());
            let hosts: Vec<&[Measurement]> = hosts.iter().map(Vec::as_slice).collect();
            let now = rates(&hosts, &vec![Moments::default(); hosts.len()]);
            assert!(now[..20].iter().flatten().all(|now| now.since_unix_ns.is_none()));
            now[20].unwrap().since_unix_ns
        };
        assert_eq!(since(0.005), Some(5));
        assert_eq!(since(0.05), None, "the other hosts vary as much");
    }

    #[test]
    fn one_disturbed_run_of_few_makes_the_error_less_than_it_would_alone() {
        let disturbed = results(&[0.99, 1.0, 1.01, 0.85]);
        let host = |number: usize| {
            let noise = |run: usize| 1.0 + ((number * 7 + run * 3) % 11) as f64 / 1000.0;
            results(&(0..4).map(noise).collect::<Vec<f64>>())
        };
        let hosts: Vec<Vec<Measurement>> = (0..20).map(host).chain([disturbed.clone()]).collect();
        let hosts: Vec<&[Measurement]> = hosts.iter().map(Vec::as_slice).collect();
        let now = rates(&hosts, &vec![Moments::default(); hosts.len()]);
        let (among, usual) = (now[20].unwrap(), now[0].unwrap());
        let alone = rate(&disturbed, Moments::default()).unwrap();
        assert!(among.error < 0.8 * alone.error, "{among:?} {alone:?}");
        assert!(among.error > 3.0 * usual.error, "the host's runs count too: {among:?} {usual:?}");
    }

    #[test]
    fn a_change_of_all_hosts_makes_none_odd_and_one_of_a_single_host_does() {
        let host = |number: usize, after: f64| {
            let noise = |run: usize| 1.0 + ((number * 7 + run * 3) % 11) as f64 / 1000.0;
            let level = |run: usize| if run >= 4 { after } else { 1.0 };
            results(&(0..8).map(|run| level(run) * noise(run)).collect::<Vec<f64>>())
        };
        let fleet = |own: f64, others: f64| {
            let hosts: Vec<Vec<Measurement>> = (0..20)
                .map(|number| host(number, if number == 3 { own } else { others }))
                .collect();
            let hosts: Vec<&[Measurement]> = hosts.iter().map(Vec::as_slice).collect();
            change(&hosts, 3, 4).unwrap()
        };
        assert!(fleet(0.9, 1.0).p_value < 1e-4);
        assert!(fleet(0.9, 0.9).p_value > 0.1);
        assert!((fleet(0.9, 1.0).ratio.value - 0.9).abs() < 0.01);
        let few: Vec<Vec<Measurement>> = (0..5).map(|number| host(number, 1.0)).collect();
        let few: Vec<&[Measurement]> = few.iter().map(Vec::as_slice).collect();
        assert!(change(&few, 3, 4).is_none());
    }
}
