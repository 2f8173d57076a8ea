//! Failures and exit codes of the program.
//!
//! Exit codes are a stable interface: 1 run failed, 2 usage, 3 refused for safety, 4 data
//! verification failed, 5 completed but the result is invalid, 6 regression found, 130
//! interrupted. `soak` returns the exit code of its command.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use ioengine::ErrorKind;

use crate::flag_names::in_flags;

/// Exit codes of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Ok,
    /// The run failed.
    Failed,
    /// A usage error: the command line is invalid.
    Usage,
    /// Refused, because it could destroy data.
    Refused,
    /// Data read back is not what was written.
    VerificationFailed,
    /// Completed, but the result is invalid.
    Invalid,
    /// A comparison found a change for the worse beyond a limit.
    Regression,
    /// Stopped by the user; partial results are kept.
    Interrupted,
    /// The exit code of the command that `soak` ran; 126 or 127 if the command could not be run.
    Command(u8),
}

impl Exit {
    /// The number of the exit code.
    pub fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Refused => 3,
            Exit::VerificationFailed => 4,
            Exit::Invalid => 5,
            Exit::Regression => 6,
            Exit::Interrupted => 130,
            Exit::Command(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// A failure: an exit code and one line with the cause and the remedy.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What failed, why, and what the user can do.
    pub message: String,
}

impl Failure {
    /// A failure with its exit code.
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into() }
    }

    /// A usage error: the command line is invalid.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    /// The run failed.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Failed, message)
    }

    /// Refused for safety.
    pub fn refused(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Refused, message)
    }

    /// The user stopped the run before anything was measured.
    pub fn interrupted() -> Failure {
        Failure::new(Exit::Interrupted, "interrupted")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Refuses to create a file under /dev, where the user probably meant a device.
pub fn check_not_under_dev(path: &Path, flag: &str) -> Outcome<()> {
    if !ioengine::host::is_under_dev(path) {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "{}: halfpower creates no files under /dev; name another file with {flag}",
        path.display()
    )))
}

fn exit_of(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::Usage | ErrorKind::Unsupported => Exit::Usage,
        ErrorKind::Refused => Exit::Refused,
        _ => Exit::Failed,
    }
}

impl From<ioengine::Error> for Failure {
    fn from(error: ioengine::Error) -> Failure {
        Failure::new(exit_of(error.kind()), in_flags(&error.to_string()))
    }
}

impl From<workload::Error> for Failure {
    fn from(error: workload::Error) -> Failure {
        Failure::new(exit_of(error.kind()), in_flags(&error.to_string()))
    }
}

impl From<results::Error> for Failure {
    fn from(error: results::Error) -> Failure {
        Failure::failed(error.to_string())
    }
}

/// The result of a command.
pub type Outcome<T = Exit> = Result<T, Failure>;
