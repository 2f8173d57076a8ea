//! A reference device or simulated system, served as a file by the program under test
//! (`halfpower mount`) until the value is dropped.

use crate::bench::host;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Scheduling priority of the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Real-time, if permitted, so that other programs do not delay the measured requests.
    RealTime,
    /// The default priority.
    Plain,
}

/// A served file, unmounted on drop.
pub struct Mounted {
    server: Child,
    /// Path of the file.
    pub file: String,
    _folder: tempfile::TempDir,
}

impl Mounted {
    /// Runs `halfpower mount` with these arguments: the target, then flags.
    ///
    /// # Errors
    /// If it cannot be mounted.
    pub fn new(program: &Path, words: &[&str], priority: Priority) -> Result<Mounted> {
        let folder = tempfile::tempdir().context("cannot make a folder to mount on")?;
        let chrt = host::on_path("chrt").filter(|_| priority == Priority::RealTime);
        let mut command = match chrt {
            Some(chrt) => {
                let mut command = Command::new(chrt);
                command.args(["--fifo", "10"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        let (target, flags) = words.split_first().context("nothing to mount")?;
        command.args(["mount", target, "--quiet", "--until-eof"]).arg(folder.path()).args(flags);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = command.spawn().context("cannot start the server")?;
        let mut ready = String::new();
        let stdout = server.stdout.take().context("the server has no output")?;
        BufReader::new(stdout)
            .read_line(&mut ready)
            .context("cannot read the output of the server")?;
        let mounted = Mounted { server, file: ready.trim().to_string(), _folder: folder };
        if mounted.file.is_empty() {
            bail!("{target} cannot be mounted here: see above");
        }
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The server unmounts and ends when its input ends.
        drop(self.server.stdin.take());
        let _ = self.server.wait();
    }
}
