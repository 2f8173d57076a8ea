//! A device or system of known truth, served as a file by the program that is judged.

use crate::bench::host;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Who else the server waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Nobody, where the system lets it: what is measured depends on the server's own time.
    RealTime,
    /// Everybody, as every program does.
    Plain,
}

/// A served file; dropping it unmounts it.
pub struct Mounted {
    server: Child,
    /// Its path.
    pub file: String,
    _folder: tempfile::TempDir,
}

impl Mounted {
    /// Serves what `words` say behind `halfpower mount`: the target, then flags.
    ///
    /// # Errors
    /// When it cannot be mounted here.
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
        BufReader::new(stdout).read_line(&mut ready).context("the server says nothing")?;
        let mounted = Mounted { server, file: ready.trim().to_string(), _folder: folder };
        if mounted.file.is_empty() {
            bail!("{target} cannot be mounted here: see above");
        }
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The end of its input tells it to unmount.
        drop(self.server.stdin.take());
        let _ = self.server.wait();
    }
}
