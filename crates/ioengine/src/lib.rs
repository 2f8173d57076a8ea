//! Sends storage requests to the kernel and collects their completions.
//!
//! This is the lowest layer of halfpower. It contains requests, completions, buffers, targets and
//! the clock, but nothing about workloads, statistics or output. An *I/O engine* is a method of
//! issuing requests: `sync`, `mmap`, `threads`, `libaio`, `io_uring` or `nvme`. The engine
//! `network` sends requests to a server. Two further engines do no I/O: `null` measures halfpower's
//! own overhead, and `delay` simulates a reference device whose correct results are known. Each
//! engine is one file under `engine/` and implements the trait [`Engine`]. The main function of an
//! engine, [`Engine::submit_and_wait`], submits a batch of requests. Then it waits for a minimum
//! number of completions, or until a deadline.
//!
//! Buffers belong to the engine and are called slots. A [`Request`] contains the number of a slot,
//! never a pointer. Dropping an engine waits for its requests, so safe code cannot free memory to
//! which the kernel still writes.
//!
//! A simulator replaces the real machine by implementing [`Target`], [`Engine`] and [`Clock`].

#[cfg(not(target_os = "linux"))]
compile_error!("ioengine supports only Linux; build it on Linux");

pub mod error;
mod sys;
mod mapping;
pub mod mapped;
pub mod clock;
mod nvme_ioctl;
pub mod request;
pub mod mode;
pub mod stripe;
pub mod buffer;
pub mod truth;
pub mod priority;
pub mod layer;
pub mod fault;
#[cfg(feature = "network")]
pub mod network;
pub mod engine;
pub mod device;
pub mod nvme_drive;
pub mod mount;
pub mod kernel;
#[cfg(test)]
mod made_up;
pub mod usage;
mod device_mapper;
pub mod stack;
pub mod write_cache;
pub mod zones;
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
