//! Finds the component that limits a pipeline, from the rate of each component and the delivered
//! rate.
//!
//! A chain is as fast as its slowest part, so the bottleneck is a component whose own rate is near
//! the delivered rate. If the delivered rate is well below the rate of every component, no
//! component is the bottleneck: the requests are too small or too few to fill the pipeline, as
//! Little's law and the half-power point show.

use std::fmt;

/// Maximum difference between the delivered rate and the bottleneck's own rate, as a share of the
/// latter. The limit exceeds the variation between separate measurements, and is smaller than the
/// usual difference between two components.
pub const TOLERANCE: f64 = 0.15;

/// One component of the pipeline. The order is memory, CPU, interconnect, controller, device, file
/// system.
#[derive(Clone, Debug, PartialEq)]
pub struct Rung {
    /// Name of the component.
    pub component: String,
    /// Advertised rate in bytes per second, if known.
    pub pap_bytes_per_s: Option<f64>,
    /// Rate of the component alone in bytes per second, if measured. It must come from a different
    /// workload than the delivered rate; otherwise the two rates would always be close.
    pub rap_bytes_per_s: Option<f64>,
}

/// Why a component is the bottleneck. Displays as the end of a sentence that starts with the
/// component's name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The delivered rate is close to the measured rate of the component alone.
    NearMeasured {
        /// Delivered rate divided by the measured rate, 0.85 to 1.15.
        share: f64,
    },
    /// The component was not measured alone; the delivered rate is close to its advertised rate.
    NearAdvertised {
        /// Delivered rate divided by the advertised rate, 0.85 to 1.15.
        share: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (share, what) = match self {
            Self::NearMeasured { share } => (share, "rate measured on it alone"),
            Self::NearAdvertised { share } => (share, "advertised rate"),
        };
        write!(f, "delivers {:.0}% of the {what}", share * 100.0)
    }
}

/// The component that limits the delivered rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binding {
    /// Index of the component in the input.
    pub index: usize,
    /// How the bottleneck was recognised.
    pub reason: Reason,
}

/// The bottleneck for a delivered rate in bytes per second: the slowest component whose own rate is
/// within 15% of the delivered rate. Of equally slow components, it is the first in pipeline order.
///
/// A component's own rate is the measured rate, or else the advertised rate. Components without a
/// rate are ignored, and so are components that the delivered rate exceeds by more than 15%,
/// because they cannot be the limit. `None` if no component is close; then request size or depth
/// limits the rate.
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
        assert_eq!(b.reason.to_string(), "delivers 100% of the rate measured on it alone");
    }

    #[test]
    fn an_advertised_rate_is_evidence_where_nothing_was_measured() {
        let mut rungs = pipeline();
        rungs[3].rap_bytes_per_s = Some(3e9);
        let b = binding(&rungs, 0.57e9).unwrap();
        assert_eq!(b.index, 1);
        assert_eq!(b.reason.to_string(), "delivers 95% of the advertised rate");
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
