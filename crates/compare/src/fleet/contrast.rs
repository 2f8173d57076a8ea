//! Computes the mean rate over all workloads of a host, and ratios between the mean rates of two
//! kinds of workloads.
//!
//! A mean over several workloads scatters less than the rate of a single workload, so the mean can
//! reveal differences between hosts that are too small to be seen in a single workload. A ratio of
//! two means shows a cause that affects only one kind of workload. For example, an I/O scheduler
//! can make all random requests slower and not affect sequential requests. A cause that affects all
//! workloads of a host, such as a slow processor, does not change the ratio.

use analysis::fleet::{Standing, standings};
use lab::point_key::PointKey;
use schemars::JsonSchema;
use serde::Serialize;
use workload::Pattern;

/// Minimum scatter (0.1%) in the calculation of weights. It limits the weight of a workload that
/// hardly scatters.
const SCATTER_MIN: f64 = 0.001;

/// A mean rate over workloads, or a ratio of two mean rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Contrast {
    /// Mean rate over all workloads.
    All,
    /// Mean rate of random workloads divided by the mean rate of all other workloads.
    RandomToSequential,
    /// Mean rate of reads divided by the mean rate of writes.
    ReadsToWrites,
}

impl Contrast {
    /// All contrasts.
    pub const ALL: [Contrast; 3] =
        [Contrast::All, Contrast::RandomToSequential, Contrast::ReadsToWrites];

    /// Returns the name of the contrast for output.
    pub fn words(self) -> &'static str {
        match self {
            Contrast::All => "mean rate over all workloads",
            Contrast::RandomToSequential => {
                "rate of random requests compared with sequential requests"
            }
            Contrast::ReadsToWrites => "rate of reads compared with writes",
        }
    }

    /// Returns the index of the mean (0 or 1) that includes a workload. None if neither mean
    /// includes the workload.
    fn side(self, key: &PointKey) -> Option<usize> {
        match self {
            Contrast::All => Some(0),
            Contrast::RandomToSequential => {
                Some(usize::from(key.workload.pattern != Pattern::Random))
            }
            Contrast::ReadsToWrites => match key.read_percent() {
                100 => Some(0),
                0 => Some(1),
                _ => None,
            },
        }
    }
}

/// The rate of a host in a workload.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Settings of the workload.
    pub key: &'a PointKey,
    /// Logarithm of the ratio of the host's rate to the median of all hosts.
    pub log: f64,
    /// Standard error of `log`.
    pub error: f64,
    /// Scatter of the rates of all hosts in this workload.
    pub scatter: f64,
}

/// A mean or ratio of one host, compared with the same mean or ratio of all hosts.
#[derive(Clone, Copy, Debug)]
pub struct Contrasted {
    /// The mean or ratio that was compared.
    pub contrast: Contrast,
    /// The host's value divided by the median of all hosts, and the p-value of this ratio.
    pub standing: Standing,
    /// Whether the host is slower than a host with median rates. For a ratio of two means, only one
    /// mean is compared with the mean of such a host: the mean that deviates more.
    pub is_slower: bool,
}

/// Computes all means and ratios of each host from its rates. The hosts must have the same model.
pub fn contrasts(hosts: &[Vec<Part<'_>>]) -> Vec<Vec<Contrasted>> {
    let mut all: Vec<Vec<Contrasted>> = vec![Vec::new(); hosts.len()];
    for contrast in Contrast::ALL {
        let means: Vec<(usize, Means)> = hosts
            .iter()
            .enumerate()
            .filter_map(|(host, parts)| Some((host, Means::of(contrast, parts)?)))
            .collect();
        let values: Vec<f64> = means.iter().map(|(_, means)| means.value().exp()).collect();
        let errors: Vec<f64> = means.iter().map(|(_, means)| means.error).collect();
        // The rates of a host are not independent, because they all depend on its processor, for
        // example. Their mean therefore counts as a single value.
        let parts = match contrast {
            Contrast::All => 1,
            _ => means.iter().map(|(_, means)| means.least).min().unwrap_or(1),
        };
        for ((host, means), standing) in
            means.iter().zip(standings(&values, &errors, parts).into_iter().flatten())
        {
            all[*host].push(Contrasted { contrast, standing, is_slower: means.is_slower() });
        }
    }
    all
}

struct Means {
    /// Logarithms of the means. There is one mean for [`Contrast::All`], and two for other
    /// contrasts.
    logs: Vec<f64>,
    /// Standard error of [`Means::value`].
    error: f64,
    /// Number of workloads in the mean. If there are two means, the smaller number.
    least: usize,
}

impl Means {
    /// Computes the means. None if a mean has no workload, or if the host has only one workload.
    fn of(contrast: Contrast, parts: &[Part<'_>]) -> Option<Means> {
        let sides = if contrast == Contrast::All { 1 } else { 2 };
        let mut means = Means { logs: Vec::new(), error: 0.0, least: usize::MAX };
        for side in 0..sides {
            let of_side = || parts.iter().filter(|part| contrast.side(part.key) == Some(side));
            let weight = |part: &Part<'_>| part.scatter.max(SCATTER_MIN).powi(-2);
            let weights: f64 = of_side().map(weight).sum();
            let log = of_side().map(|part| weight(part) * part.log).sum::<f64>() / weights;
            let error = of_side().map(|part| (weight(part) * part.error / weights).powi(2));
            means.error = means.error.hypot(error.sum::<f64>().sqrt());
            means.least = means.least.min(of_side().count());
            means.logs.push(log);
        }
        (means.least > 0 && parts.len() > 1).then_some(means)
    }

    fn value(&self) -> f64 {
        self.logs[0] - self.logs.get(1).unwrap_or(&0.0)
    }

    fn is_slower(&self) -> bool {
        let farthest = self.logs.iter().max_by(|a, b| a.abs().total_cmp(&b.abs()));
        farthest.is_some_and(|log| *log < 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use workload::Workload;

    fn keys() -> Vec<PointKey> {
        let key = |pattern, read_percent| {
            PointKey::of(&Workload { pattern, read_percent, ..Workload::default() })
        };
        vec![
            key(Pattern::Random, 100),
            key(Pattern::Random, 0),
            key(Pattern::Sequential, 100),
            key(Pattern::Sequential, 0),
        ]
    }

    /// Returns the rates of 20 hosts that scatter by a few percent. Random requests of the first
    /// host are 9% slower.
    fn fleet(keys: &[PointKey]) -> Vec<Vec<Part<'_>>> {
        let host = |number: usize| {
            let shared = ((number * 7) % 20) as f64 / 200.0 - 0.05;
            let part = |(index, key)| {
                let alone = ((number * (3 + index) + index) % 11) as f64 / 1000.0 - 0.005;
                let slower = if number == 0 && index < 2 { -0.09 } else { 0.0 };
                Part { key, log: shared + alone + slower, error: 0.001, scatter: 0.05 }
            };
            keys.iter().enumerate().map(part).collect()
        };
        (0..20).map(host).collect()
    }

    #[test]
    fn a_difference_that_hides_in_the_scatter_of_hosts_shows_between_their_workloads() {
        let keys = keys();
        let found = contrasts(&fleet(&keys));
        let of = |host: usize, contrast| {
            *found[host].iter().find(|found| found.contrast == contrast).unwrap()
        };
        assert!(of(0, Contrast::All).standing.p_value > 0.01);
        assert!(of(0, Contrast::ReadsToWrites).standing.p_value > 0.01);
        let random = of(0, Contrast::RandomToSequential);
        assert!(random.standing.p_value < 1e-4 && random.is_slower, "{random:?}");
        assert!((random.standing.ratio.value - 0.914).abs() < 0.02, "{random:?}");
        assert!(of(1, Contrast::RandomToSequential).standing.p_value > 0.01);
    }

    #[test]
    fn one_workload_or_one_kind_of_workload_has_no_contrast() {
        let keys = keys();
        let first = |count: usize| -> Vec<Vec<Part<'_>>> {
            fleet(&keys).into_iter().map(|parts| parts[..count].to_vec()).collect()
        };
        assert!(contrasts(&first(1)).iter().all(Vec::is_empty));
        let names: Vec<Contrast> = contrasts(&first(2))[3].iter().map(|c| c.contrast).collect();
        assert_eq!(names, [Contrast::All, Contrast::ReadsToWrites]);
    }
}
