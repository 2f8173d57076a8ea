//! The quantities that are compared: throughput, latency percentiles, and CPU time per request.
//!
//! Each quantity has one value per trial. The interval of a quantity is computed from the scatter
//! between trials.

use analysis::units;
use lab::point::{Percentiles, Trial};
use schemars::JsonSchema;
use serde::Serialize;

/// Minimum number of requests that are slower than a percentile. If there are fewer, the percentile
/// is not used, because it would depend on single requests.
const REQUESTS_BEYOND_MIN: f64 = 5.0;

/// A measured quantity that is compared between trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Throughput (bytes per second).
    Rate,
    /// Median latency (ns).
    P50,
    /// 99th percentile of latency (ns).
    P99,
    /// 99.9th percentile of latency (ns).
    P999,
    /// CPU time of the process per request (ns).
    Cpu,
}

impl Quantity {
    /// All quantities, in the order in which they are shown.
    pub const ALL: [Quantity; 5] =
        [Quantity::Rate, Quantity::P50, Quantity::P99, Quantity::P999, Quantity::Cpu];

    /// Returns the name of the quantity on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Quantity::Rate => "rate",
            Quantity::P50 => "p50",
            Quantity::P99 => "p99",
            Quantity::P999 => "p99.9",
            Quantity::Cpu => "cpu",
        }
    }

    /// Checks whether a higher value is better.
    pub fn is_higher_better(self) -> bool {
        self == Quantity::Rate
    }

    /// Formats a value with its unit.
    pub fn shown(self, value: f64) -> String {
        match self {
            Quantity::Rate => units::rate_mib(value),
            _ => units::time(value),
        }
    }

    /// Returns the value of this quantity in a trial. None if it was not measured, or if the trial
    /// has too few requests for a percentile.
    pub fn of(self, trial: &Trial) -> Option<f64> {
        let value = match self {
            Quantity::Rate => Some(trial.bytes_per_s()),
            Quantity::P50 => percentile(trial, 0.5, |stored| stored.p50_ns),
            Quantity::P99 => percentile(trial, 0.99, |stored| stored.p99_ns),
            Quantity::P999 => percentile(trial, 0.999, |stored| stored.p99_9_ns),
            Quantity::Cpu => {
                let requests = trial.requests();
                (requests > 0).then(|| trial.cpu.process_ns as f64 / requests as f64)
            }
        };
        value.filter(|value| *value > 0.0)
    }
}

fn percentile(trial: &Trial, share: f64, stored: fn(&Percentiles) -> u64) -> Option<f64> {
    if trial.requests() as f64 * (1.0 - share) < REQUESTS_BEYOND_MIN {
        return None;
    }
    let of_histogram = || trial.latency().quantile(share);
    trial.percentiles.as_ref().map(stored).or_else(of_histogram).map(|ns| ns as f64)
}

impl std::str::FromStr for Quantity {
    type Err = String;

    fn from_str(text: &str) -> Result<Quantity, String> {
        Quantity::ALL.into_iter().find(|quantity| quantity.name() == text).ok_or_else(|| {
            let names = Quantity::ALL.map(Quantity::name).join(", ");
            format!("unknown quantity '{text}'; use one of {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_requests_beyond_it() {
        let mut trial = Trial::default();
        for ns in 1..=100 {
            trial.directions[0].latency.record(ns * 1000);
        }
        trial.directions[0].requests = 100;
        assert!(Quantity::P50.of(&trial).is_some());
        assert_eq!(Quantity::P99.of(&trial), None);
    }

    #[test]
    fn a_trial_read_without_its_histogram_has_the_stored_percentiles() {
        let mut trial = Trial::default();
        trial.directions[1].requests = 1000;
        trial.percentiles = Some(Percentiles { p50_ns: 20, p99_ns: 30, p99_9_ns: 40 });
        assert_eq!(Quantity::P50.of(&trial), Some(20.0));
        assert_eq!(Quantity::P99.of(&trial), Some(30.0));
        assert_eq!(Quantity::P999.of(&trial), None, "only one request is slower");
    }

    #[test]
    fn every_name_is_parsed_back() {
        for quantity in Quantity::ALL {
            assert_eq!(quantity.name().parse(), Ok(quantity));
        }
        assert!("p98".parse::<Quantity>().unwrap_err().contains("p99.9"));
    }
}
