//! What CPU an interval used.
//!
//! Two bounds, because no single account is right. The lower one is what the system charges to the
//! process ([`HostMeter`]): it misses kernel threads and interrupts. The upper one is what an
//! idle-priority [`Soaker`] loses while the work runs. Beside them stand the busy time of the
//! whole machine (time minus idle, since the kernel's busy time is only sampled) and, where the
//! host has counters, instructions and cycles.
//!
//! No clock is read here: callers pass their monotonic time in, so that a simulator can implement
//! [`CpuMeter`] as well. All `unsafe` code is in `sys`. Linux only.

pub mod meter;

mod sys;

pub mod rusage;

pub mod descendants;

mod schedstat;

pub mod procstat;

pub mod perf;

pub mod host;

pub mod affinity;

mod crew;

mod isolation;

pub mod soaker;

#[doc(hidden)]
pub mod fuzz;

pub use host::HostMeter;
pub use meter::{CpuMeter, CpuSample, CpuUsage};
pub use soaker::{Declined, Soaker, SoakerReading};
