//! The error of this crate: a workload that cannot be, or an engine that cannot go on.

use ioengine::ErrorKind;

/// Why a workload could not be planned or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The workload does not fit the target or contradicts itself.
    #[error("{what}; {remedy}")]
    Usage {
        /// What does not fit.
        what: String,
        /// What to do about it.
        remedy: String,
    },
    /// The target or an I/O engine failed.
    #[error(transparent)]
    Engine(#[from] ioengine::Error),
    /// A worker could not be pinned.
    #[error("pinning a worker: {0}")]
    Affinity(String),
}

impl Error {
    /// A contradiction with its remedy.
    pub fn usage(what: impl Into<String>, remedy: impl Into<String>) -> Error {
        Error::Usage { what: what.into(), remedy: remedy.into() }
    }

    /// What sort of failure this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Usage { .. } | Error::Affinity(_) => ErrorKind::Usage,
            Error::Engine(error) => error.kind(),
        }
    }
}
