//! Runs `halfpower mount` in a second process, which serves a file on a reference device over FUSE.
//!
//! Because the server runs in a second process, its CPU time is not charged to the load generator,
//! and the server still answers requests if the load generator is killed. The server ends when its
//! standard input is closed, so the server does not outlive the load generator. The server removes
//! its folder when it ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ioengine::mount;

use crate::failure::{Failure, Outcome};

/// Returns a command that runs this program, at real-time priority if `realtime` is true. A server
/// with real-time priority does not wait for a CPU.
///
/// # Errors
///
/// The path of this program is unknown.
pub fn ourselves(realtime: bool) -> Outcome<Command> {
    let program = std::env::current_exe().map_err(|e| {
        Failure::failed(format!("finding the path of this program: {e}; mount /proc"))
    })?;
    if !realtime {
        return Ok(Command::new(program));
    }
    let mut command = Command::new("chrt");
    command.args(["--fifo", "10"]).arg(program);
    Ok(command)
}

fn may_be_realtime() -> bool {
    let tried = Command::new("chrt")
        .args(["--fifo", "10", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

/// A file that a second process serves over FUSE. Dropping this value unmounts the file and removes
/// its folder.
#[derive(Debug)]
pub struct Served {
    server: Child,
    folder: PathBuf,
    file: PathBuf,
}

impl Served {
    /// Serves a file of `bytes` bytes on a reference device.
    ///
    /// # Errors
    ///
    /// The folder cannot be created, or the server cannot be started or cannot mount the file.
    pub fn start(truth: &str, bytes: u64) -> Outcome<Served> {
        let folder = std::env::temp_dir().join(format!("halfpower-{}", uuid::Uuid::new_v4()));
        fs::create_dir(&folder).map_err(|e| {
            let cause = ioengine::error::cause(&e);
            Failure::failed(format!(
                "creating {}: {cause}; set TMPDIR to a writable folder",
                folder.display()
            ))
        })?;
        let mut command = ourselves(may_be_realtime())?;
        command.args(["mount", "--until-eof", "--remove-folder", "--size", &bytes.to_string()]);
        command.arg(format!("truth:{truth}")).arg(&folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let server = command.spawn().map_err(|e| {
            Failure::failed(format!("starting the process that serves a reference device: {e}"))
        })?;
        let mut served = Served { server, folder, file: PathBuf::new() };
        let mut ready = String::new();
        let stdout = served.server.stdout.take();
        let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut ready));
        if ready.trim().is_empty() {
            let mut said = String::new();
            if let Some(stderr) = served.server.stderr.take() {
                let _ = BufReader::new(stderr).read_line(&mut said);
            }
            let said = said.trim().trim_start_matches("halfpower: ");
            let cause = if said.is_empty() { format!("{read:?}") } else { said.to_owned() };
            return Err(Failure::failed(cause));
        }
        served.file = PathBuf::from(ready.trim());
        Ok(served)
    }

    /// Returns the path of the served file.
    pub fn path(&self) -> &Path {
        &self.file
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The server unmounts the file and ends when its standard input is closed.
        drop(self.server.stdin.take());
        let ended = self.server.wait().is_ok_and(|status| status.success());
        if !ended {
            // The server was killed or failed, so its mount may still exist.
            let _ = mount::unmount(&self.folder, true);
        }
        let _ = fs::remove_dir(&self.folder);
    }
}
