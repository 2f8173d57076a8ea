//! Records the storage requests of running programs: system calls that read, write, flush and open
//! files, requests of libaio and io_uring, page faults in mapped files, and requests of the block
//! layer.
//!
//! A [`Recorder`] loads small BPF programs into the kernel. They run at tracepoints and write
//! [`Record`]s into a ring buffer. This crate assembles the programs itself (`assembler.rs`) and
//! adapts them to the kernel with the kernel's type information (`btf.rs`), so no compiler is
//! needed. Each record contains the identity of the file (file system and inode), its flags and its
//! position. The programs read them from kernel memory, so the records are correct even if a
//! descriptor was duplicated, inherited or closed. [`Requests`] turns records into the requests of
//! a trace.
//!
//! Recording needs root (or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE) and Linux 5.8 or later with
//! type information. If recording is not possible, the error [`Declined`] contains the reason. The
//! programs are removed from the kernel when the recorder is dropped or its process is killed.
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(target_os = "linux"))]
compile_error!("calltrace works on Linux only");

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
