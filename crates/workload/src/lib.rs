//! The load generator: which requests to send, where, when, for how long, and what was measured.
//!
//! A [`Workload`] describes the load. [`plan::resolve`] checks it against a target, with all limits
//! in one place. [`runner::run`] starts the workers ([`worker::Worker`]), small state machines that
//! submit and reap requests; [`replayer::Replayer`] takes their place where a program's requests
//! are issued again ([`Replay`]). A [`Sample`] is the result. Nothing here knows whether the target
//! is a disk or a simulation. Nothing here prints or stores results.

pub mod error;
pub mod written;
pub mod replay;
pub mod spec;
pub mod random;
pub mod skew;
pub mod content;
pub mod arrival;
pub mod think;
pub mod cursor;
pub mod plan;
mod zone_order;
pub mod pattern;
pub mod sample;
pub mod log;
mod full_queue;
mod batch_size;
mod state;
pub mod worker;
pub mod replayer;
mod thread_load;
pub mod runner;
pub mod stepper;

pub use error::Error;
pub use plan::Plan;
pub use replay::{Pace, Replay};
pub use runner::{Control, Progress, run};
pub use sample::{FullQueue, LoggedRequest, OperationSample, Sample};
pub use spec::{
    Arrival, Distribution, FlushEvery, Pattern, Placement, SizeShare, Steady, Think, Workload, Zone,
};
pub use written::Written;
