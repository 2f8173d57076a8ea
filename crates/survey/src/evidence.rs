//! What a survey measured, before anybody says what it means: points, host, target, and the facts
//! that were measured once.

use lab::machine::{Host, TargetFacts};
use lab::point::Point;
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::visits::{SecondVisit, Visits};

/// Everything that the analysis of a survey starts from.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The machine.
    pub host: Host,
    /// The target.
    pub target: TargetFacts,
    /// All points with their trials.
    pub points: Vec<Point>,
    /// Everything else; kept in the database beside the points.
    pub facts: Facts,
    /// When it began [ns since 1970].
    pub started_unix_ns: i64,
}

/// What is known beyond target, host and points.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// What the user says the hardware promises [bytes per second].
    pub pap_bytes_per_s: Option<f64>,
    /// Copy rate of the memory [bytes per second].
    pub memory_copy_bytes_per_s: Option<f64>,
    /// Cost of a request on the null I/O engine: the instrument's floor (ns).
    pub floor_ns_per_request: Option<f64>,
    /// Why there is no upper bound of the CPU cost.
    pub soaker_declined: Option<String>,
    /// What the meters could not tell.
    pub missing: Vec<String>,
    /// Whether writes were measured, and if not why.
    pub not_written: Option<String>,
    /// Whether direct I/O was offered.
    pub direct: bool,
    /// Size of the test file or region (bytes).
    pub region_bytes: u64,
    /// What the user's program issues today; None: not said.
    #[serde(default)]
    pub app: Option<App>,
    /// Bytes written, test file included; none where the target is simulated.
    pub written_bytes: u64,
    /// Time it took (ns).
    pub elapsed_ns: u64,
    /// Whether it was cut short.
    pub interrupted: bool,
    /// The CPU quota of the control group (CPUs), where it held the survey back.
    #[serde(default)]
    pub cpu_quota: Option<f64>,
    /// How much of the region sequential trials went over.
    #[serde(default)]
    pub visits: Visits,
    /// Whether the device answers faster what it has just answered; None where that was not tried.
    #[serde(default)]
    pub second_visit: Option<SecondVisit>,
    /// Rate at which the test file was laid out [bytes per second].
    pub layout_bytes_per_s: Option<f64>,
}
