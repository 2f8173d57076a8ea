//! The measurements of a survey, input of all analysis: points, host, target, and facts measured
//! once.

use std::collections::BTreeMap;

use lab::machine::{Host, TargetFacts};
use lab::point::Point;
use lab::resource_usage::BindingDocument;
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::visits::{SecondVisit, Visits};

/// The measurements of a survey.
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
    /// Start of the survey (ns since 1970).
    pub started_unix_ns: i64,
}

/// Facts beside target, host and points.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// PAP as stated with --pap [bytes per second].
    pub pap_bytes_per_s: Option<f64>,
    /// Copy rate of the memory [bytes per second].
    pub memory_copy_bytes_per_s: Option<f64>,
    /// CPU time per request on the null I/O engine: the overhead of the instrument (ns).
    pub floor_ns_per_request: Option<f64>,
    /// Why there is no upper bound of the CPU cost.
    pub soaker_declined: Option<String>,
    /// Measurements that were not available, each with the reason.
    pub missing: Vec<String>,
    /// Why writes were not measured; `None` if they were.
    pub not_written: Option<String>,
    /// Whether the target supports direct I/O.
    pub direct: bool,
    /// Size of the test file or region (bytes).
    pub region_bytes: u64,
    /// Requests of the user's program, if stated with --app.
    #[serde(default)]
    pub app: Option<App>,
    /// Bytes written, test file included; none where the target is simulated.
    pub written_bytes: u64,
    /// Duration of the survey (ns).
    pub elapsed_ns: u64,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// CPU quota of the control group (CPUs), if the survey was throttled by it.
    #[serde(default)]
    pub cpu_quota: Option<f64>,
    /// The limiting resource of each sequential point of a simulated system, by the description of
    /// the point.
    #[serde(default)]
    pub simulated_limits: BTreeMap<String, BindingDocument>,
    /// How much of the region sequential trials accessed.
    #[serde(default)]
    pub visits: Visits,
    /// Test for a cache in the device; `None` if not made.
    #[serde(default)]
    pub second_visit: Option<SecondVisit>,
    /// Rate at which the test file was written [bytes per second].
    pub layout_bytes_per_s: Option<f64>,
}
