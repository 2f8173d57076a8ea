//! Problems with single paths: what failed, why, and the remedy if known. A copy continues with
//! everything else.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Kind of problem; determines the exit code of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// The destination exists and must not be replaced.
    Refused,
    /// A system call failed, or the source changed.
    Failed,
    /// Data read back from the storage differ from what was written.
    Differs,
    /// The user stopped the copy.
    Stopped,
}

/// A path that could not be copied as requested, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Kind of the problem.
    pub kind: ProblemKind,
    /// The path, in the source or in the destination.
    pub path: PathBuf,
    /// What failed, for which path, and why.
    pub what: String,
    /// A remedy, if known and not reported before.
    pub remedy: Option<&'static str>,
    /// Error number of a failed system call.
    pub errno: Option<i32>,
}

impl Problem {
    /// A problem that does not come from a system call.
    pub fn new(kind: ProblemKind, path: &Path, what: impl Into<String>) -> Problem {
        let (path, what) = (path.to_path_buf(), what.into());
        Problem { kind, path, what, remedy: None, errno: None }
    }

    /// Adds a remedy.
    #[must_use]
    pub fn with_remedy(self, remedy: &'static str) -> Problem {
        Problem { remedy: Some(remedy), ..self }
    }

    /// A failed system call: what was attempted on which path.
    pub fn io(doing: &str, path: &Path, error: &io::Error) -> Problem {
        let cause = ioengine::error::cause(error);
        let shown = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let what = format!("{doing} {}: {cause}", shown.display());
        let mut problem = Problem::new(ProblemKind::Failed, path, what);
        (problem.errno, problem.remedy) = (error.raw_os_error(), remedy(error));
        problem
    }

    /// The user stopped the copy.
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

/// The remedy for an error of a system call, if known.
fn remedy(error: &io::Error) -> Option<&'static str> {
    let errno = Errno::from_io_error(error)?;
    Some(match errno {
        Errno::NOSPC => "free space there and run the same command again",
        Errno::DQUOT => "raise the quota and run the same command again",
        Errno::FBIG => "the file system or ulimit -f does not allow so large a file",
        Errno::ROFS => "name a destination that can be written",
        Errno::ACCESS | Errno::PERM => "run as the owner or as root",
        Errno::MFILE | Errno::NFILE => "raise the limit on open files (ulimit -n)",
        Errno::IO => "the device failed; see dmesg",
        Errno::NAMETOOLONG => "the destination allows only shorter names",
        _ => return None,
    })
}

/// Converts an error of an operation on a path.
pub(crate) fn on(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Problem {
    let path = path.to_path_buf();
    move |error| Problem::io(doing, &path, &error)
}

/// Converts an error of a `rustix` call on a path.
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
            "writing /data/x: no space left on device; free space there and run the same command \
             again"
        );
        assert_eq!(problem.errno, Some(28));
    }
}
