//! Measures the CPU cost of an interval.
//!
//! No single counter is complete, so the cost is measured as a lower and an upper bound. The lower
//! bound is the CPU time charged to the process ([`HostMeter`]), which misses kernel threads and
//! interrupts. The upper bound is the CPU time that an idle-priority [`Soaker`] loses while the
//! work runs. [`HostMeter`] also reports the busy time of the whole machine, and the instructions
//! and cycles if the host has hardware counters.
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
