//! The error of this crate: why a trace is not available, and what to do. Tracing needs root, and
//! kernels differ in their tracepoints.

use std::fmt;
use std::io;
use std::path::Path;

/// A trace that could not be started or ended: cause and remedy in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declined {
    what: String,
    remedy: &'static str,
}

impl Declined {
    /// A cause with its remedy.
    pub(crate) fn new(what: impl Into<String>, remedy: &'static str) -> Declined {
        Declined { what: what.into(), remedy }
    }

    /// An error about a file of tracefs.
    pub(crate) fn file(doing: &str, path: &Path, error: &io::Error) -> Declined {
        let what = format!("{doing} {}: {error}", path.display());
        match error.kind() {
            io::ErrorKind::PermissionDenied => {
                Declined::new(what, "tracing needs root: run as root, or without tracing")
            }
            io::ErrorKind::NotFound => {
                Declined::new(what, "this kernel lacks it (CONFIG_BLK_DEV_IO_TRACE, CONFIG_FTRACE)")
            }
            io::ErrorKind::OutOfMemory => {
                Declined::new(what, "too little memory for the trace: ask for smaller buffers")
            }
            _ => Declined::new(what, "run without tracing"),
        }
    }

    /// The cause.
    pub fn cause(&self) -> &str {
        &self.what
    }

    /// What to do about the cause.
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
