//! What a calibrated system was compared with: the points of the run of a real device.
//!
//! Its system file keeps them, so that whoever asks the system something can be told how well it
//! did near that question. Simulating uses none of them.

use serde::{Deserialize, Serialize};

/// A point of the run, measured and simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibrationPoint {
    /// Share of reads (percent).
    pub read_percent: u8,
    /// `sequential`, `random` or `strided`.
    pub pattern: String,
    /// Request size (bytes).
    pub request_bytes: u64,
    /// Requests outstanding, of all threads together.
    pub outstanding: u32,
    /// Whether it was held out of the fit.
    pub held_out: bool,
    /// Measured throughput (bytes per second).
    pub measured_bytes_per_s: f64,
    /// Simulated throughput (bytes per second).
    pub simulated_bytes_per_s: f64,
}
