//! The CPU cost of an interval.
//!
//! It is measured as two bounds, because no single counter is complete. The lower bound is the CPU
//! time charged to the process ([`HostMeter`]), which misses kernel threads and interrupts. The
//! upper bound is the CPU time that an idle-priority [`Soaker`] loses while the work runs. Also
//! reported are the busy time of the whole machine (elapsed time minus idle time, which is exact;
//! the kernel's own busy time is an estimate from samples) and, if the host has hardware counters,
//! instructions and cycles.
//!
//! No clock is read here: callers pass their monotonic time, so that a simulator can also implement
//! [`CpuMeter`]. All `unsafe` code is in `sys`. Linux only.

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
