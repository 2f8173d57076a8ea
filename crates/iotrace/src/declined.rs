//! The error type of this crate. An error states why a trace is not available, and what to do. For
//! example, tracing needs root, and some kernels lack tracepoints.

use std::fmt;
use std::io;
use std::path::Path;

/// The reason why a trace could not be started or ended, and the remedy. Displayed as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declined {
    what: String,
    remedy: &'static str,
}

impl Declined {
    pub(crate) fn new(what: impl Into<String>, remedy: &'static str) -> Declined {
        Declined { what: what.into(), remedy }
    }

    /// Describes a failed access to a file of tracefs, with a remedy.
    pub(crate) fn file(doing: &str, path: &Path, error: &io::Error) -> Declined {
        let what = format!("{doing} {}: {error}", path.display());
        match error.kind() {
            io::ErrorKind::PermissionDenied => {
                Declined::new(what, "tracing needs root: run as root or without tracing")
            }
            io::ErrorKind::NotFound => Declined::new(
                what,
                "run without tracing, or on a kernel with CONFIG_BLK_DEV_IO_TRACE and \
                 CONFIG_FTRACE",
            ),
            io::ErrorKind::OutOfMemory => Declined::new(
                what,
                "the trace buffers need more memory than is free: use smaller trace buffers",
            ),
            _ => Declined::new(what, "run without tracing"),
        }
    }

    /// Returns the cause of the error.
    pub fn cause(&self) -> &str {
        &self.what
    }

    /// Returns the remedy.
    pub fn remedy(&self) -> &str {
        self.remedy
    }
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

impl std::error::Error for Declined {}
