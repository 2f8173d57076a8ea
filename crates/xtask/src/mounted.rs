//! Mounts a reference device or a simulated system as a file with `halfpower mount`. The file is
//! unmounted when [`Mounted`] is dropped.

use crate::bench::host;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Scheduling priority of `halfpower mount`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Real-time priority if chrt is installed, so that other programs do not delay the requests.
    RealTime,
    /// The default priority.
    Plain,
}

/// A mounted file, which is unmounted on drop.
pub struct Mounted {
    server: Child,
    pub file: String,
    _folder: tempfile::TempDir,
}

impl Mounted {
    /// Runs `halfpower mount`. `words` contains the target, followed by flags.
    ///
    /// # Errors
    /// If the target cannot be mounted.
    pub fn new(program: &Path, words: &[&str], priority: Priority) -> Result<Mounted> {
        let folder = tempfile::tempdir().context("cannot create a mount point")?;
        let chrt = host::on_path("chrt").filter(|_| priority == Priority::RealTime);
        let mut command = match chrt {
            Some(chrt) => {
                let mut command = Command::new(chrt);
                command.args(["--fifo", "10"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        let (target, flags) = words.split_first().context("no target to mount")?;
        command.args(["mount", target, "--quiet", "--until-eof"]).arg(folder.path()).args(flags);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = command.spawn().context("cannot start `halfpower mount`")?;
        let mut ready = String::new();
        let stdout = server.stdout.take().context("the server has no output")?;
        BufReader::new(stdout)
            .read_line(&mut ready)
            .context("cannot read the output of the server")?;
        let mounted = Mounted { server, file: ready.trim().to_string(), _folder: folder };
        if mounted.file.is_empty() {
            bail!("{target} cannot be mounted; see the messages above");
        }
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // At the end of its standard input, `halfpower mount` unmounts the file and exits
        // (`--until-eof`).
        drop(self.server.stdin.take());
        let _ = self.server.wait();
    }
}
