//! Serves one file over FUSE whose every request takes the time that a model says.
//!
//! The model is a device of known truth ([`KnownTruth`]), against which the instrument is tested,
//! or anything else that is a [`Timing`], such as a simulated system whose time follows the clock.
//! The file is real to every program: it can be read, written, and put under a loop device, and
//! keeps what is written for as long as it is mounted. Several requests are in flight at once; a
//! request that is due at a moment is answered within microseconds of it, whatever the kernel's
//! timers do.

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
