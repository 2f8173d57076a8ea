//! Failures and exit codes of the program.
//!
//! Exit codes are a stable interface: 0 success, 1 failure, 2 usage error, 3 refused for safety, 4
//! failed data verification, 5 invalid result, 6 regression, 130 interrupted. `soak` returns the
//! exit code of the command that it ran.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use ioengine::ErrorKind;

use crate::flag_names::in_flags;

/// Exit codes of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded.
    Ok,
    /// The run failed.
    Failed,
    /// The command line is invalid.
    Usage,
    /// The command was refused, because it could destroy data.
    Refused,
    /// The data that were read back differ from the written data.
    VerificationFailed,
    /// The run completed, but its result is invalid.
    Invalid,
    /// A comparison found a regression that is larger than the limit.
    Regression,
    /// The user stopped the command. Partial results are kept.
    Interrupted,
    /// Exit code of the command that `soak` ran; 126 or 127 if the command could not be run.
    Command(u8),
}

impl Exit {
    /// Returns the number of the exit code.
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

/// An error that ends the program: an exit code and a message with the cause and the remedy.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What failed, why, and what the user can do.
    pub message: String,
}

impl Failure {
    /// Makes a failure with an exit code.
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into() }
    }

    /// Makes a failure for an invalid command line.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    /// Makes a failure for a run that failed.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Failed, message)
    }

    /// Makes a failure for a command that was refused for safety.
    pub fn refused(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Refused, message)
    }

    /// Makes a failure for a run that the user stopped before anything was measured.
    pub fn interrupted() -> Failure {
        Failure::new(Exit::Interrupted, "interrupted")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Refuses to create a file under /dev, because the user probably mistyped the name of a device.
pub fn check_not_under_dev(path: &Path, flag: &str) -> Outcome<()> {
    if !ioengine::host::is_under_dev(path) {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "{}: halfpower creates no files under /dev; specify another file with {flag}",
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
