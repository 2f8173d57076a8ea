//! Finds the component that limits a pipeline, from the rate of each component and the delivered
//! rate.
//!
//! A pipeline is as fast as its slowest component, so the bottleneck is a component whose rate,
//! measured alone, is about the delivered rate. If the rate of every component is much higher than
//! the delivered rate, no component is the bottleneck. The requests are then too small or too few
//! to fill the pipeline.

use std::fmt;

/// Maximum difference between the delivered rate and the rate of the bottleneck, as a share of the
/// bottleneck's rate. The tolerance is larger than the variation between separate measurements, and
/// smaller than the usual difference between two components.
pub const TOLERANCE: f64 = 0.15;

/// One component of the pipeline. The components are in the order memory, CPU, interconnect,
/// controller, device, file system.
#[derive(Clone, Debug, PartialEq)]
pub struct Rung {
    /// Name of the component.
    pub component: String,
    /// Advertised rate (bytes per second). None if unknown.
    pub pap_bytes_per_s: Option<f64>,
    /// Rate measured for the component alone (bytes per second). None if the rate was not measured.
    /// This rate must come from a different workload than the delivered rate. Otherwise the two
    /// rates would always be close.
    pub rap_bytes_per_s: Option<f64>,
}

/// Why a component is the bottleneck. `Display` formats the reason as a clause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The delivered rate is close to the measured rate of the component alone.
    NearMeasured {
        /// Delivered rate divided by the measured rate, 0.85 to 1.15.
        share: f64,
    },
    /// The component was not measured alone, and the delivered rate is close to its advertised
    /// rate.
    NearAdvertised {
        /// Delivered rate divided by the advertised rate, 0.85 to 1.15.
        share: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (share, what) = match self {
            Self::NearMeasured { share } => (share, "rate measured for this component alone"),
            Self::NearAdvertised { share } => (share, "advertised rate of this component"),
        };
        write!(f, "the delivered rate is {:.0}% of the {what}", share * 100.0)
    }
}

/// The component that limits the delivered rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binding {
    /// Index of the component in the input.
    pub index: usize,
    /// Why this component is the bottleneck.
    pub reason: Reason,
}

/// Returns the bottleneck for a delivered rate (bytes per second). The delivered rate must be
/// within 15% of the bottleneck's rate. If this is true for several components, the slowest is the
/// bottleneck. If several components are equally slow, the first in pipeline order is the
/// bottleneck.
///
/// The rate of a component is the measured rate, or the advertised rate if it was not measured.
/// Components without a rate are ignored. A component is also ignored if the delivered rate exceeds
/// its rate by more than 15%, because such a component cannot be the limit. `None` if the delivered
/// rate is not close to the rate of any component. The request size or the depth is then the limit.
pub fn binding(rungs: &[Rung], delivered_bytes_per_s: f64) -> Option<Binding> {
    rungs
        .iter()
        .enumerate()
        .filter_map(|(index, rung)| {
            let own = rung.rap_bytes_per_s.or(rung.pap_bytes_per_s)?;
            let share = delivered_bytes_per_s / own;
            let near = (1.0 - TOLERANCE..=1.0 + TOLERANCE).contains(&share);
            let reason = match rung.rap_bytes_per_s {
                Some(_) => Reason::NearMeasured { share },
                None => Reason::NearAdvertised { share },
            };
            near.then_some((own, Binding { index, reason }))
        })
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, binding)| binding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rung(component: &str, pap: Option<f64>, rap: Option<f64>) -> Rung {
        Rung { component: component.into(), pap_bytes_per_s: pap, rap_bytes_per_s: rap }
    }

    fn pipeline() -> Vec<Rung> {
        vec![
            rung("memory", Some(25e9), Some(18e9)),
            rung("interconnect", Some(0.6e9), None),
            rung("controller", None, None),
            rung("device", Some(0.55e9), Some(0.52e9)),
        ]
    }

    #[test]
    fn the_slowest_component_near_the_delivered_rate_binds() {
        let b = binding(&pipeline(), 0.52e9).unwrap();
        assert_eq!(b, Binding { index: 3, reason: Reason::NearMeasured { share: 1.0 } });
        assert_eq!(
            b.reason.to_string(),
            "the delivered rate is 100% of the rate measured for this component alone"
        );
    }

    #[test]
    fn an_advertised_rate_is_evidence_where_nothing_was_measured() {
        let mut rungs = pipeline();
        rungs[3].rap_bytes_per_s = Some(3e9);
        let b = binding(&rungs, 0.57e9).unwrap();
        assert_eq!(b.index, 1);
        assert_eq!(
            b.reason.to_string(),
            "the delivered rate is 95% of the advertised rate of this component"
        );
    }

    #[test]
    fn nothing_binds_a_pipeline_that_is_not_filled() {
        assert_eq!(binding(&pipeline(), 0.1e9), None);
        assert_eq!(binding(&pipeline(), f64::NAN), None);
        assert_eq!(binding(&[], 1e9), None);
    }

    #[test]
    fn a_rate_that_was_exceeded_is_not_the_limit() {
        let rungs = [rung("file system", None, Some(0.5e9)), rung("device", None, Some(1.05e9))];
        assert_eq!(binding(&rungs, 1e9).map(|b| b.index), Some(1));
    }

    #[test]
    fn the_first_of_equals_in_pipeline_order_binds() {
        let rungs = [rung("device", None, Some(1e9)), rung("file system", None, Some(1e9))];
        assert_eq!(binding(&rungs, 0.9e9).map(|b| b.index), Some(0));
    }
}
