//! The ladder: what each component of the pipeline can do, against what the whole delivers.
//!
//! A chain is as fast as its slowest part, so the component that binds is the one whose own rate
//! the delivered rate comes up to. It is named only on that evidence. When the delivered rate stays
//! well below every component none of them binds: the requests are too small or too few to fill the
//! pipeline, which Little's law and the half-power point then quantify.

use std::fmt;

/// How near the delivered rate must come to a component's own rate for the component to bind, as a
/// share of that rate: beyond the repeatability of separate measurements, short of the next rung.
pub const TOLERANCE: f64 = 0.15;

/// One component, in pipeline order (memory, CPU, interconnect, controller, device, file system).
#[derive(Clone, Debug, PartialEq)]
pub struct Rung {
    /// Its name.
    pub component: String,
    /// Advertised rate in bytes per second, where one is known.
    pub pap_bytes_per_s: Option<f64>,
    /// Rate measured on it alone in bytes per second, where it could be. It must come from another
    /// workload than the one explained, which would always be found near itself.
    pub rap_bytes_per_s: Option<f64>,
}

/// Why a component binds. Displayed as the end of a sentence that begins with its name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The delivered rate is this share of what the component was measured to do alone.
    NearMeasured {
        /// Delivered over measured rate, 0.85 to 1.15.
        share: f64,
    },
    /// The component could not be measured alone; the delivered rate is this share of its
    /// advertised rate.
    NearAdvertised {
        /// Delivered over advertised rate, 0.85 to 1.15.
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

/// The component that binds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binding {
    /// Its place in the rungs given.
    pub index: usize,
    /// The evidence.
    pub reason: Reason,
}

/// The component that binds a delivered rate in bytes per second: of those whose own rate it comes
/// within 15% of, the slowest, and the first in pipeline order among equals.
///
/// The own rate is the measured one, else the advertised one; a rung with neither is passed over,
/// and so is one that the delivered rate exceeds by more, as that rate is evidently not its limit.
/// `None` when no rung is near: the pipeline is not filled, and request size or depth binds.
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
