//! The load generator: issues requests with the given offsets, times and duration, and measures
//! them.
//!
//! A [`Workload`] describes the load. [`plan::resolve`] checks the workload against a target, with
//! all limits in one module. [`runner::run`] starts the workers ([`worker::Worker`]), which are
//! small state machines that submit and reap requests. To issue the recorded requests of a program
//! again ([`Replay`]), a [`replayer::Replayer`] is used instead of the worker. A [`Sample`] is the
//! result. Nothing in this crate knows whether the target is a disk or a simulation, and nothing
//! prints or stores results.

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
