//! Records what a running program asks of storage: system calls that read, write, flush and open
//! files, requests of libaio and io_uring, page faults in mapped files, and the requests of the
//! block layer that follow.
//!
//! A [`Recorder`] loads small BPF programs into the kernel, which run at its tracepoints and write
//! [`Record`]s into a ring buffer. They are written here, instruction by instruction
//! (`assembler.rs`), and adapt to the kernel through its own type information (`btf.rs`), so
//! neither a compiler nor a prepared object file is needed. Each record has the identity of the
//! file (file system and inode), its flags and its position, which the program reads from the
//! kernel: closing, duplicating or inheriting descriptors cannot mislead it. [`Requests`] turns
//! records into the requests of a trace.
//!
//! Needs root (or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE) and Linux 5.8 or later with type
//! information; [`Declined`] says what is missing. Nothing stays in the kernel after the recorder
//! is dropped or its process is killed.
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(target_os = "linux"))]
compile_error!("calltrace records Linux system calls");

pub mod declined;
mod assembler;
mod btf;
mod layout;
mod calls;
pub mod record;
mod sys;
mod programs;
pub mod recorder;
mod names;
pub mod filter;
pub mod requests;

pub use declined::Declined;
pub use filter::Filter;
pub use record::Record;
pub use recorder::{RecordedEnd, Recorder, RecorderSpec};
pub use requests::Requests;
