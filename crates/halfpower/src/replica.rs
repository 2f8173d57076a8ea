//! Copies of files and trees: whole or not there, whatever interrupts them.
//!
//! `place` is where a copy is written before it has its name; `attributes` what it keeps of its
//! source; `watch` sees the bytes go by: progress, limits, checksums, interrupts, and how far a
//! copy could be resumed; `file` and `tree` copy. How the bytes of one file are moved is the
//! business of the crate `seqio`.

mod attributes;
mod place;
mod tally;
mod resume;
mod watch;
mod file;
mod tree;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use attributes::Keep;
pub use file::{device, one, stream_in, stream_out};
pub use tally::{Counts, Tally};
pub use tree::{link, tree};
pub use watch::Limiter;

use crate::failure::{Exit, Failure};
use crate::guard::Consent;
use crate::interrupt::Interrupt;

/// How copies are made.
#[derive(Debug)]
pub struct Settings {
    /// How bytes are moved.
    pub options: seqio::Options,
    /// What is kept of the sources.
    pub keep: Keep,
    /// Read back and compared.
    pub verify: bool,
    /// Goes on from what an interrupted copy left.
    pub resume: bool,
    /// Durable before it has its name.
    pub sync: bool,
    /// What is copied stays in the page cache.
    pub cached: bool,
    /// Files at once.
    pub threads: u32,
    /// What the user allowed.
    pub consent: Consent,
    /// What has been done, for all threads.
    pub tally: Arc<Tally>,
    /// What slows them down.
    pub limiter: Limiter,
    /// The order to stop.
    pub interrupt: Interrupt,
}

impl Settings {
    /// Looks whether to stop.
    fn check(&self) -> std::io::Result<()> {
        match self.interrupt.is_set() {
            true => Err(std::io::Error::other("interrupted")),
            false => Ok(()),
        }
    }
}

/// Why a copy ended early.
#[derive(Debug)]
pub enum Broken {
    /// The user stopped it.
    Stopped,
    /// What was read back of a path is not what was written; the copy is gone, or still there.
    Differs { path: PathBuf, is_removed: bool },
    /// The system said so, with the name of the file.
    Failed(std::io::Error),
    /// It was refused.
    Refused(Failure),
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Failure {
        match broken {
            Broken::Stopped => Failure::interrupted(),
            Broken::Differs { path, is_removed } => {
                let path = path.display();
                let removed = if is_removed { ", and the copy was removed" } else { "" };
                let what = format!("{path}: what was read back is not what was written{removed}");
                let remedy = "check the device and its cable, then copy again";
                Failure::new(Exit::VerificationFailed, format!("{what}; {remedy}"))
            }
            Broken::Failed(error) => Failure::failed(with_remedy(&error)),
            Broken::Refused(failure) => failure,
        }
    }
}

/// The error with what helps, where that is known.
fn with_remedy(error: &std::io::Error) -> String {
    let remedy = match error.kind() {
        std::io::ErrorKind::StorageFull => "; free space there, and copy again",
        std::io::ErrorKind::QuotaExceeded => "; raise the quota, and copy again",
        std::io::ErrorKind::FileTooLarge => "; raise the limit on file sizes (ulimit -f)",
        std::io::ErrorKind::ReadOnlyFilesystem => "; name a destination that can be written",
        std::io::ErrorKind::PermissionDenied => "; run as the owner or as root",
        _ if seqio::raw_os_error(error) == Some(libc::EMFILE) => "; raise ulimit -n",
        _ => "",
    };
    format!("{error}{remedy}")
}

/// An error with what was attempted on which file.
fn on(doing: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Broken {
    let path = path.to_path_buf();
    move |error| {
        let text = format!("{doing} {}: {}", path.display(), ioengine::error::cause(&error));
        Broken::Failed(std::io::Error::new(error.kind(), text))
    }
}
