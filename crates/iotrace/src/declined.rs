//! The error type of this crate. An error contains the reason why a trace is not available, and the
//! remedy. Tracing needs root, and kernels differ in their tracepoints.

use std::fmt;
use std::io;
use std::path::Path;

/// The error of a trace that could not be started or ended: cause and remedy in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declined {
    what: String,
    remedy: &'static str,
}

impl Declined {
    /// Makes an error from a cause and its remedy.
    pub(crate) fn new(what: impl Into<String>, remedy: &'static str) -> Declined {
        Declined { what: what.into(), remedy }
    }

    /// Makes an error from a failed access to a file of tracefs.
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
            io::ErrorKind::OutOfMemory => {
                Declined::new(what, "the trace needs more memory than is free: use smaller buffers")
            }
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
