//! Describes problems with single paths: what failed, why, and the remedy if known. The copy
//! continues with the other paths.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// The kind of a problem. The exit code of the program depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// The destination exists and must not be replaced.
    Refused,
    /// A system call failed, or the source changed.
    Failed,
    /// The data that were read back from the storage differ from the data that were written.
    Differs,
    /// The user stopped the copy.
    Stopped,
}

/// A path that could not be copied as requested, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The kind of the problem.
    pub kind: ProblemKind,
    /// Path of the affected entry, in the source or the destination.
    pub path: PathBuf,
    /// A message that says what failed, for which path, and why.
    pub what: String,
    /// What the user can do. None if no remedy is known, or if the same remedy was reported before.
    pub remedy: Option<&'static str>,
    /// Error number of the failed system call. None if no system call failed.
    pub errno: Option<i32>,
}

impl Problem {
    /// Creates a problem that has no error number.
    pub fn new(kind: ProblemKind, path: &Path, what: impl Into<String>) -> Problem {
        let (path, what) = (path.to_path_buf(), what.into());
        Problem { kind, path, what, remedy: None, errno: None }
    }

    /// Adds a remedy.
    #[must_use]
    pub fn with_remedy(self, remedy: &'static str) -> Problem {
        Problem { remedy: Some(remedy), ..self }
    }

    /// Describes a failed system call. `doing` is the attempted operation, such as "reading".
    pub fn io(doing: &str, path: &Path, error: &io::Error) -> Problem {
        let cause = ioengine::error::cause(error);
        let shown = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let what = format!("{doing} {}: {cause}", shown.display());
        let mut problem = Problem::new(ProblemKind::Failed, path, what);
        (problem.errno, problem.remedy) = (error.raw_os_error(), remedy(error));
        problem
    }

    /// Creates the problem for a copy that the user stopped.
    pub fn stopped(path: &Path) -> Problem {
        Problem::new(ProblemKind::Stopped, path, "stopped")
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.remedy.map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

/// Returns the remedy for an error of a system call. None if no remedy is known.
fn remedy(error: &io::Error) -> Option<&'static str> {
    let errno = Errno::from_io_error(error)?;
    Some(match errno {
        Errno::NOSPC => "free space on that file system and run the same command again",
        Errno::DQUOT => "raise the quota and run the same command again",
        Errno::FBIG => "raise ulimit -f, or use a file system that allows files of this size",
        Errno::ROFS => "specify a destination that can be written",
        Errno::ACCESS | Errno::PERM => "run as the owner or as root",
        Errno::MFILE | Errno::NFILE => "raise the limit on open files (ulimit -n)",
        Errno::IO => "the device failed; see dmesg",
        Errno::NAMETOOLONG => "shorten the name, or use a file system that allows longer names",
        _ => return None,
    })
}

/// Returns a function for `map_err` that converts an I/O error to a problem with this path. `doing`
/// is the attempted operation, such as "reading".
pub(crate) fn on(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Problem {
    let path = path.to_path_buf();
    move |error| Problem::io(doing, &path, &error)
}

/// Like [`on`], but the returned function converts errors of `rustix`.
pub(crate) fn on_errno(doing: &'static str, path: &Path) -> impl Fn(Errno) -> Problem {
    let path = path.to_path_buf();
    move |errno| Problem::io(doing, &path, &errno.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_says_what_failed_where_why_and_what_helps() {
        let full = io::Error::from_raw_os_error(28);
        let problem = Problem::io("writing", Path::new("/data/x"), &full);
        assert_eq!(
            problem.to_string(),
            "writing /data/x: no space left on device; free space on that file system and run the \
             same command again"
        );
        assert_eq!(problem.errno, Some(28));
    }
}
