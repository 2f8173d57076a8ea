//! How a storage request reaches the kernel.
//!
//! This crate is the bottom of halfpower: it knows requests, completions, buffers, targets and
//! the clock, and nothing of workloads, statistics or printing. A *I/O engine* is one way of
//! issuing requests: `sync`, `mmap`, `threads`, `libaio`, `io_uring`; `null`, which does no I/O and
//! is the instrument's own floor; and `delay`, a device whose every answer is known. Each is one
//! file under `engine/` behind the trait [`Engine`], whose one call, [`Engine::submit_and_wait`],
//! hands over a batch and waits for at least so many completions or a deadline.
//!
//! Buffers belong to the engine: a [`Request`] names a slot, never a pointer, and dropping an
//! engine drains it, so safe code cannot free memory that the kernel still writes to.
//!
//! The traits [`Target`], [`Engine`] and [`Clock`] are the seam at which a simulator takes the
//! place of the machine.

#[cfg(not(target_os = "linux"))]
compile_error!("ioengine drives Linux storage; other systems are not ported yet");

pub mod error;
mod sys;
mod mapping;
pub mod mapped;
pub mod clock;
pub mod request;
pub mod mode;
pub mod stripe;
pub mod buffer;
pub mod truth;
pub mod priority;
pub mod layer;
pub mod fault;
pub mod engine;
pub mod device;
pub mod mount;
pub mod kernel;
#[cfg(test)]
mod made_up;
pub mod usage;
pub mod stack;
pub mod write_cache;
pub mod extents;
pub mod allocation;
pub mod target;
pub mod open_file;
pub mod cgroup;
#[cfg(feature = "stdio")]
pub mod stdio;
pub mod host;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
#[doc(hidden)]
pub mod fuzz;

pub use buffer::BufferPages;
pub use clock::{Clock, Monotonic, VirtualTime};
pub use engine::{Engine, EngineKind, EngineOption, EngineOptions, EngineSpec, HostEngine};
pub use error::{Error, ErrorKind};
pub use host::HostTarget;
pub use mode::{Caching, Hint};
pub use request::{Completion, Op, Request};
pub use target::{Target, TargetKind};
