//! The error type of this crate: an invalid workload, or a failed engine.

use ioengine::{ErrorKind, Op};

/// Why a workload could not be planned or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The workload does not fit the target, or contradicts itself.
    #[error("{what}; {remedy}")]
    Usage {
        /// What is wrong.
        what: String,
        /// What to do about the error.
        remedy: String,
    },
    /// The target or an I/O engine failed.
    #[error(transparent)]
    Engine(#[from] ioengine::Error),
    /// The caller could not set the common start (see `Control::start`).
    #[error("{0}")]
    Start(String),
    /// A worker could not be pinned.
    #[error("pinning a worker: {0}")]
    Affinity(String),
}

impl Error {
    /// A usage error with its remedy.
    pub fn usage(what: impl Into<String>, remedy: impl Into<String>) -> Error {
        Error::Usage { what: what.into(), remedy: remedy.into() }
    }

    /// The category of the failure.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Usage { .. } | Error::Affinity(_) => ErrorKind::Usage,
            Error::Engine(error) => error.kind(),
            Error::Start(_) => ErrorKind::Io,
        }
    }
}

/// The error of requests that the device does not answer.
pub(crate) fn hangs(in_flight: u32, seconds: u64) -> ioengine::Error {
    let what = format!("the device has not answered {in_flight} requests for {seconds} s");
    ioengine::Error::new(ErrorKind::Io, what).with_remedy("look at the kernel log (dmesg)")
}

/// The error of a request that was completed a second time.
pub(crate) fn completed_twice(op: Op, offset: u64) -> ioengine::Error {
    let verb = if op == Op::Read { "read" } else { "write" };
    let what = format!("the {verb} at offset {offset} was completed twice");
    ioengine::Error::new(ErrorKind::Io, what)
        .with_remedy("no result can be trusted: look at the kernel log (dmesg)")
}
