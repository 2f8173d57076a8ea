//! Calibration points: workloads whose throughput was both measured and simulated.
//!
//! The points are stored in the system file. A prediction can then be reported with the model's
//! error for a similar workload. The simulation itself does not use the points.

use serde::{Deserialize, Serialize};

/// One point of the calibration run, with measured and simulated throughput.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibrationPoint {
    /// Share of reads (percent).
    pub read_percent: u8,
    /// Access pattern: `sequential`, `random` or `strided`.
    pub pattern: String,
    /// Request size (bytes).
    pub request_bytes: u64,
    /// Number of requests in flight, over all threads of a host.
    pub outstanding: u32,
    /// Number of hosts.
    #[serde(default = "one_host", skip_serializing_if = "is_one_host")]
    pub hosts: u32,
    /// Whether the point was left out of the fit and only used to test the fit.
    pub held_out: bool,
    /// Measured throughput (bytes per second).
    pub measured_bytes_per_s: f64,
    /// Simulated throughput (bytes per second).
    pub simulated_bytes_per_s: f64,
}

fn one_host() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // Serde requires this signature.
fn is_one_host(hosts: &u32) -> bool {
    *hosts == 1
}
