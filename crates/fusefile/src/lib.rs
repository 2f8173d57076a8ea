//! Serves a file over FUSE with request latencies given by a model.
//!
//! The model is a reference device ([`KnownTruth`]), against which the measuring program is tested,
//! or any other [`Timing`], such as a simulated system that follows the clock. Programs can read
//! and write the file and use it for a loop device; it keeps its contents while mounted. Several
//! requests are in flight at the same time. A request is answered within microseconds of its
//! completion time, independent of the kernel's timers.

#[cfg(not(target_os = "linux"))]
compile_error!("fusefile serves Linux FUSE");

pub mod timing;
mod content;
mod pacer;
mod files;
pub mod mounted;

pub use files::Spec;
pub use mounted::{Mounted, SOURCE};
pub use timing::{KnownTruth, Timing};
