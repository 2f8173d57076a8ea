//! The measured points that a calibrated system was compared with.
//!
//! The system file contains them, so that a prediction can be reported with the model's error near
//! that load. The simulation itself does not use them.

use serde::{Deserialize, Serialize};

/// One point of the calibration run, measured and simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibrationPoint {
    /// Share of reads (percent).
    pub read_percent: u8,
    /// `sequential`, `random` or `strided`.
    pub pattern: String,
    /// Request size (bytes).
    pub request_bytes: u64,
    /// Requests in flight over all threads of a host.
    pub outstanding: u32,
    /// Number of hosts.
    #[serde(default = "one_host", skip_serializing_if = "is_one_host")]
    pub hosts: u32,
    /// Whether the point was held out of the fit.
    pub held_out: bool,
    /// Measured throughput (bytes per second).
    pub measured_bytes_per_s: f64,
    /// Simulated throughput (bytes per second).
    pub simulated_bytes_per_s: f64,
}

fn one_host() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature is that of serde.
fn is_one_host(hosts: &u32) -> bool {
    *hosts == 1
}
