//! The load generator: issues the requests of a workload, and measures them.
//!
//! A [`Workload`] describes the load. [`plan::resolve`] checks the workload against a target, with
//! all limits in one module. [`runner::run`] starts the workers ([`worker::Worker`]), which are
//! small state machines that submit and reap requests. For a replay of recorded requests
//! ([`Replay`]), a [`replayer::Replayer`] takes the role of the worker. The result is a [`Sample`].
//! This crate does not know whether the target is a disk or a simulation, and does not print or
//! store results.

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
