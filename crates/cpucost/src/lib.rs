//! Measures the CPU cost of an interval.
//!
//! The cost is measured as two bounds, because no single counter is complete. The lower bound is
//! the CPU time charged to the process ([`HostMeter`]), which misses kernel threads and interrupts.
//! The upper bound is the CPU time that an idle-priority [`Soaker`] loses while the work runs. The
//! busy time of the whole machine is reported too. It is the elapsed time minus the idle time,
//! which is exact, while the busy time that the kernel reports is an estimate from samples. If the
//! host has hardware counters, instructions and cycles are also reported.
//!
//! This crate reads no clock. Callers pass their monotonic time, so that a simulator can also
//! implement [`CpuMeter`]. All `unsafe` code is in `sys`. The crate supports only Linux.

pub mod meter;

mod sys;

pub mod rusage;

pub mod descendants;

mod schedstat;

pub mod procstat;

pub mod perf;

pub mod host;

pub mod affinity;

mod spinners;

mod isolation;

pub mod soaker;

#[doc(hidden)]
pub mod fuzz;

pub use host::HostMeter;
pub use meter::{CpuMeter, CpuSample, CpuUsage};
pub use soaker::{Declined, Soaker, SoakerReading};
