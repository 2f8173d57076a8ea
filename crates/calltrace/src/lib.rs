//! Records the storage requests of running programs: system calls that read, write, flush and open
//! files, requests of libaio and io_uring, page faults in mapped files, and the requests of the
//! block layer that they cause.
//!
//! A [`Recorder`] loads small BPF programs into the kernel. They run at tracepoints of the kernel
//! and write [`Record`]s into a ring buffer. The programs are assembled here, instruction by
//! instruction (`assembler.rs`), and adapt to the kernel through its type information (`btf.rs`),
//! so neither a compiler nor a prepared object file is needed. Each record contains the identity of
//! the file (file system and inode), its flags and its position. A program reads them from the
//! kernel, so closed, duplicated or inherited descriptors cannot mislead it. [`Requests`] turns
//! records into the requests of a trace.
//!
//! Recording needs root (or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE) and Linux 5.8 or later with
//! type information. If something is missing, the error [`Declined`] says what. Nothing stays in
//! the kernel after the recorder is dropped or its process is killed.
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
