//! The limits of a survey on several ranks. Each rank has its own target, and the survey measures
//! only what all targets support.

use ioengine::EngineKind;
use serde::{Deserialize, Serialize};

use crate::grid::Limits;

/// Limits on what a survey can measure, for one rank or for all ranks together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankLimits {
    /// The limits of the target.
    pub limits: Limits,
    /// The I/O engine for direct requests.
    pub engine_kind: EngineKind,
    /// Rate at which the test file was written [bytes per second]. None without a test file.
    pub layout_bytes_per_s: Option<f64>,
    /// Size of the test file that was written (bytes). 0 without a test file.
    pub written_bytes: u64,
    /// Number of bytes that each rank may still write.
    pub write_left: u64,
    /// Why writes are not measured. None if writes are measured.
    pub not_written: Option<String>,
}

impl RankLimits {
    /// Combines the limits of all ranks: takes the smallest region, the lowest rate and so on, and
    /// adds up the bytes written. None if `all` is empty.
    pub fn of_all(all: &[RankLimits]) -> Option<RankLimits> {
        all.iter().cloned().reduce(|one, other| RankLimits {
            limits: Limits {
                request_bytes_min: one.limits.request_bytes_min.max(other.limits.request_bytes_min),
                region_bytes: one.limits.region_bytes.min(other.limits.region_bytes),
                in_flight_bytes_max: one
                    .limits
                    .in_flight_bytes_max
                    .min(other.limits.in_flight_bytes_max),
                buffered: one.limits.buffered && other.limits.buffered,
                direct: one.limits.direct && other.limits.direct,
                write: one.limits.write && other.limits.write,
                zones: one.limits.zones.or(other.limits.zones),
            },
            // Engine kinds are in ascending order of preference. The lowest kind works on all
            // ranks.
            engine_kind: one.engine_kind.min(other.engine_kind),
            layout_bytes_per_s: match (one.layout_bytes_per_s, other.layout_bytes_per_s) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            },
            written_bytes: one.written_bytes.saturating_add(other.written_bytes),
            write_left: one.write_left.min(other.write_left),
            not_written: one.not_written.or(other.not_written),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank() -> RankLimits {
        RankLimits {
            limits: Limits {
                request_bytes_min: 512,
                region_bytes: 1 << 30,
                in_flight_bytes_max: 64 << 20,
                buffered: true,
                direct: true,
                write: true,
                zones: None,
            },
            engine_kind: EngineKind::IoUring,
            layout_bytes_per_s: Some(2e8),
            written_bytes: 1 << 30,
            write_left: 1 << 30,
            not_written: None,
        }
    }

    #[test]
    fn what_one_rank_does_not_offer_is_not_measured_on_any() {
        let lesser = RankLimits {
            limits: Limits {
                request_bytes_min: 4096,
                region_bytes: 1 << 20,
                in_flight_bytes_max: 1 << 20,
                buffered: false,
                direct: false,
                write: false,
                zones: None,
            },
            engine_kind: EngineKind::Threads,
            layout_bytes_per_s: Some(1e8),
            written_bytes: 1,
            write_left: 5,
            not_written: Some("read-only".to_owned()),
        };
        let sum = RankLimits { written_bytes: (1 << 30) + 1, ..lesser.clone() };
        assert_eq!(RankLimits::of_all(&[rank(), lesser.clone()]), Some(sum.clone()));
        assert_eq!(RankLimits::of_all(&[lesser, rank()]), Some(sum));
    }

    #[test]
    fn a_single_rank_keeps_its_own_limits() {
        assert_eq!(RankLimits::of_all(&[rank()]), Some(rank()));
        assert_eq!(RankLimits::of_all(&[]), None);
    }
}
