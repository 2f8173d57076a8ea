//! Splits the time of each storage request into phases, with the tracepoints of the kernel.
//!
//! A [`Tracer`] creates a trace instance that is independent of other traces. It enables
//! tracepoints of the block layer, io_uring and the scheduler, and collects their events while a
//! workload runs. The result, a [`Trace`], is a list of events in order of time. [`phases::split`]
//! finds the events of each request. It divides the time from submission to reaping into phases:
//! submit, queue, scheduler, device, completion, wake-up. Time that no event explains is the
//! remainder. Lost events are counted.
//!
//! The formats of events and pages are read from the kernel, never assumed. All timestamps are
//! nanoseconds of `CLOCK_MONOTONIC`. Tracing needs root and a mounted tracefs. The error
//! [`Declined`] reports what is missing and what to do.
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
mod lifecycle;
pub mod phases;
#[doc(hidden)]
pub mod fuzz;

pub use declined::Declined;
pub use event::{Event, Op, Range, What};
pub use extent::Extent;
pub use phases::{AppRequest, Phase, PhaseTime, Phases, Unmatched};
pub use tracer::{Lost, Trace, TraceSpec, Tracer};
