//! Traces of storage requests: what a program asked for, when, of which file, and how long it took.
//!
//! A [`Request`] is one row of a trace: a system call of a program, or a request of the block
//! layer. A trace is kept as a Parquet file ([`writer`], [`reader`]), which pandas and DuckDB read
//! as it is; both stream it, so that the size of a trace does not matter. `import` reads traces of
//! other tools into that form, `export` writes them.
//!
//! The crate does no tracing, starts no program and issues no request.
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
