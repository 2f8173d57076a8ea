//! Serves a file over FUSE. A model determines the latency of each request.
//!
//! The model is a reference device ([`KnownTruth`]), whose known latencies are used to test
//! halfpower's measurements, or any other [`Timing`], such as a simulated system that runs in real
//! time. Programs can read and write the file, and a loop device can use it. The contents are kept
//! while the file is mounted. Several requests can be in flight at the same time. Each request is
//! answered within microseconds of its completion time.

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
