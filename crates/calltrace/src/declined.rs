//! The error type of this crate: the reason why recording is not possible, and a remedy.

use std::fmt;
use std::io;

/// The reason why recording could not start or continue, with a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declined {
    what: String,
    remedy: &'static str,
    is_about_rights: bool,
}

impl Declined {
    /// Creates an error from a cause and its remedy.
    pub(crate) fn new(what: impl Into<String>, remedy: &'static str) -> Declined {
        Declined { what: what.into(), remedy, is_about_rights: false }
    }

    /// Creates an error for a missing permission, with its remedy.
    pub(crate) fn of_rights(what: impl Into<String>, remedy: &'static str) -> Declined {
        Declined { is_about_rights: true, ..Declined::new(what, remedy) }
    }

    /// Creates an error for a failed call of bpf(2). `doing` describes the step that failed, for
    /// example `creating BPF maps`.
    pub(crate) fn bpf(doing: &str, error: &io::Error) -> Declined {
        let what = format!("{doing}: {error}");
        if error.kind() == io::ErrorKind::PermissionDenied {
            return Declined::of_rights(
                what,
                "recording needs root, or the capabilities CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE",
            );
        }
        match error.raw_os_error() {
            Some(libc::ENOSYS) => {
                Declined::new(what, "use a kernel with bpf(2) (CONFIG_BPF_SYSCALL)")
            }
            Some(libc::ENOMEM) => Declined::new(what, "free some memory"),
            _ => Declined::new(what, "recording needs Linux 5.8 or later"),
        }
    }

    /// Returns whether the cause is a missing permission. Recording may then be possible as root,
    /// or outside of a container.
    pub fn is_about_rights(&self) -> bool {
        self.is_about_rights
    }

    /// Returns the cause.
    pub fn cause(&self) -> &str {
        &self.what
    }

    /// Returns what the user can do, for example `free some memory`.
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
