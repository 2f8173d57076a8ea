//! The error of this crate: why a program cannot be watched, and what to do.

use std::fmt;
use std::io;

/// Recording could not start or go on: cause and remedy in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declined {
    what: String,
    remedy: &'static str,
    is_about_rights: bool,
}

impl Declined {
    /// A cause with its remedy.
    pub(crate) fn new(what: impl Into<String>, remedy: &'static str) -> Declined {
        Declined { what: what.into(), remedy, is_about_rights: false }
    }

    /// A missing right with its remedy.
    pub(crate) fn of_rights(what: impl Into<String>, remedy: &'static str) -> Declined {
        Declined { is_about_rights: true, ..Declined::new(what, remedy) }
    }

    /// A failed call of bpf(2).
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
                Declined::new(what, "this kernel has no bpf(2) (CONFIG_BPF_SYSCALL)")
            }
            Some(libc::ENOMEM) => Declined::new(what, "free some memory"),
            _ => Declined::new(what, "recording needs Linux 5.8 or later"),
        }
    }

    /// Whether recording lacks rights, which it may have as another user or outside of the
    /// container.
    pub fn is_about_rights(&self) -> bool {
        self.is_about_rights
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
