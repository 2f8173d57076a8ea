//! Reads, writes and converts traces of storage requests. For each request, a trace records the
//! operation, the file, the offset, the start time and the latency.
//!
//! A [`Request`] is one row of a trace: a system call of a program, or a request of the block
//! layer. A trace is stored as a Parquet file, which pandas and DuckDB can read. [`writer`] and
//! [`reader`] stream this file, so a trace can be larger than memory. `import` converts traces of
//! other tools to this format, and `export` writes traces for other tools.
//!
//! The crate does not record traces, start programs or issue requests.
#![forbid(unsafe_code)]

pub mod error;
pub mod request;
pub mod statistics;
pub mod replay;
mod columns;
pub mod writer;
mod source;
mod pages;
pub mod reader;
pub mod import;
pub mod export;
#[doc(hidden)]
pub mod fuzz;

#[cfg(test)]
mod testing;

pub use error::TraceError;
pub use reader::TraceReader;
pub use request::{Call, File, FileId, Header, Loss, Operation, Process, Request};
pub use writer::TraceWriter;
