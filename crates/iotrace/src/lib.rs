//! Where the time of each storage request goes, from the kernel's own tracepoints.
//!
//! A [`Tracer`] opens a trace of its own beside all others of the machine, lets the block layer,
//! io_uring and the scheduler tell into it what they do, and gathers that while a load runs. The
//! [`Trace`] that it ends with is a list of events in order of time. [`phases::split`] finds the
//! events of every request of the load and divides the time between its submission and its reaping
//! into phases: submit, queue, scheduler, device, completion, wake-up; what nothing explains is the
//! remainder, and what was lost is counted.
//!
//! Formats of events and pages are read from the kernel, never assumed. All stamps are
//! nanoseconds of `CLOCK_MONOTONIC`. Needs root and a mounted tracefs; [`Declined`] says what is
//! missing and what to do.
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("iotrace reads Linux tracepoints");

pub mod declined;
pub mod format;
pub mod event;
pub mod page;
mod tracefs;
pub mod tracer;
pub mod extent;
mod passage;
pub mod phases;
#[doc(hidden)]
pub mod fuzz;

pub use declined::Declined;
pub use event::{Event, Op, Range, What};
pub use extent::Extent;
pub use phases::{AppRequest, Phase, PhaseTime, Phases, Unmatched};
pub use tracer::{Lost, Trace, TraceSpec, Tracer};
