//! The error type of this crate: an invalid workload, or a failed engine.

use ioengine::{ErrorKind, Op};

/// Why a workload could not be planned or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The workload does not fit the target, or its options contradict each other.
    #[error("{what}; {remedy}")]
    Usage {
        /// Description of the problem.
        what: String,
        /// The remedy, as an instruction to the user.
        remedy: String,
    },
    /// The target or an I/O engine failed.
    #[error(transparent)]
    Engine(#[from] ioengine::Error),
    /// The caller could not set the common start time (see `Control::start`).
    #[error("{0}")]
    Start(String),
    /// A worker could not be pinned to its CPU.
    #[error("cannot start a worker: {0}")]
    Affinity(String),
}

impl Error {
    /// Creates a usage error with its remedy.
    pub fn usage(what: impl Into<String>, remedy: impl Into<String>) -> Error {
        Error::Usage { what: what.into(), remedy: remedy.into() }
    }

    /// Returns the category of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Usage { .. } | Error::Affinity(_) => ErrorKind::Usage,
            Error::Engine(error) => error.kind(),
            Error::Start(_) => ErrorKind::Io,
        }
    }
}

/// Creates the error for requests that do not complete within the hang limit.
pub(crate) fn hangs(in_flight: u32, seconds: u64) -> ioengine::Error {
    let what = format!("the device has not answered {in_flight} requests for {seconds} s");
    ioengine::Error::new(ErrorKind::Io, what).with_remedy("look at the kernel log (dmesg)")
}

/// Creates the error for a request that was completed a second time.
pub(crate) fn completed_twice(op: Op, offset: u64) -> ioengine::Error {
    let verb = if op == Op::Read { "read" } else { "write" };
    let what = format!("the {verb} at offset {offset} was completed twice");
    ioengine::Error::new(ErrorKind::Io, what)
        .with_remedy("no result can be trusted: look at the kernel log (dmesg)")
}
