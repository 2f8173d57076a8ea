//! The error type of this crate: an invalid workload, or a failed engine.

use ioengine::ErrorKind;

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
