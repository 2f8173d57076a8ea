//! The load generator: what to send, where, when and until when, and what came of it.
//!
//! A [`Workload`] says what is wanted; [`plan::resolve`] checks it against a target, all limits
//! in one place; [`runner::run`] starts the workers, each of which is a small state machine that
//! issues and reaps ([`worker::Worker`]); a [`Sample`] is what was measured. Nothing here knows
//! whether the target is a disk or a simulation, prints, or keeps results.

pub mod error;
pub mod written;
pub mod spec;
pub mod random;
pub mod skew;
pub mod content;
pub mod arrival;
pub mod think;
pub mod cursor;
pub mod plan;
pub mod pattern;
pub mod sample;
pub mod log;
mod full_queue;
pub mod worker;
pub mod runner;
pub mod stepper;

pub use error::Error;
pub use plan::Plan;
pub use runner::{Control, Progress, run};
pub use sample::{FullQueue, LoggedRequest, OperationSample, Sample};
pub use spec::{
    Arrival, Distribution, FlushEvery, Pattern, Placement, SizeShare, Steady, Think, Workload, Zone,
};
pub use written::Written;
