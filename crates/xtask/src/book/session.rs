//! Runs the commands of a page, one after the other, in a temporary folder.
//!
//! The temporary folder is in the build folder, so that it is on a real disk, and is removed
//! afterwards. The command `halfpower` runs the tested program, and HOME is a temporary folder too.
//! In the output, `/data` replaces the path of the working directory, and `myhost` the host name.

use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Time limit of each command of a page (s).
const LIMIT_S: &str = "300";
/// The path that pages show instead of the working directory.
const SHOWN_FOLDER: &str = "/data";
/// The name that pages show instead of the name of this host.
const SHOWN_HOST: &str = "myhost";

/// The output of a command.
pub struct Printed {
    /// Standard output and standard error, in the order in which they were written. If the command
    /// failed, the last line contains the exit code or says that a time limit or a signal ended the
    /// command.
    pub text: String,
    /// Whether the exit code was 0.
    pub succeeded: bool,
}

/// The folder and the environment in which the commands of a page run.
pub struct Session {
    folder: TempDir,
    path: OsString,
    host: String,
}

impl Session {
    /// Creates a temporary folder in `parent`, with the subfolders for the program, HOME and the
    /// commands.
    ///
    /// # Errors
    /// If the folders cannot be created, or `program` does not exist.
    pub fn new(program: &Path, parent: &Path) -> Result<Session> {
        std::fs::create_dir_all(parent)?;
        let folder = tempfile::Builder::new().prefix("book-").tempdir_in(parent)?;
        for name in ["bin", "home", "data"] {
            std::fs::create_dir(folder.path().join(name))?;
        }
        let program = program.canonicalize().context("cannot find the program to test")?;
        std::os::unix::fs::symlink(program, folder.path().join("bin/halfpower"))?;
        let mut paths = vec![folder.path().join("bin")];
        paths.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let path = std::env::join_paths(paths)?;
        Ok(Session { folder, path, host: host.trim().to_string() })
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Runs a shell command in the working directory of the session.
    ///
    /// # Errors
    /// If the shell does not start.
    pub fn run(&self, command: &str) -> Result<Printed> {
        let mut shell = Command::new("timeout");
        // Standard error is redirected to standard output, so that the order of the lines is kept.
        shell.args([LIMIT_S, "sh", "-c", "exec 2>&1\neval \"$0\"", command]);
        shell.current_dir(self.data()).stdin(Stdio::null()).stderr(Stdio::inherit());
        let home = self.folder.path().join("home");
        shell.env("PATH", &self.path).env("HOME", &home).env("XDG_STATE_HOME", &home);
        shell.env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        shell.env_remove("RUST_LOG").env_remove("HALFPOWER_SKIP_LOG");
        let output = shell.output().context("cannot start `timeout sh`")?;
        let mut text = self.as_shown(&String::from_utf8_lossy(&output.stdout));
        if !output.status.success() {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            match output.status.code() {
                Some(124) => text.push_str("stopped at the time limit"),
                Some(code) => text.push_str(&format!("exit code {code}")),
                None => text.push_str("terminated by a signal"),
            }
        }
        Ok(Printed { text, succeeded: output.status.success() })
    }

    /// Runs a command with `--plan`. Temporary files replace the files and devices in the command.
    ///
    /// # Errors
    /// If the shell does not start, or a file cannot be created.
    pub fn plan(&self, command: &str) -> Result<Printed> {
        let (text, make) = super::stand_ins::as_plan(command);
        for command in make {
            let printed = self.run(&command)?;
            ensure!(printed.succeeded, "`{command}` failed: {}", printed.text);
        }
        self.run(&text)
    }

    fn as_shown(&self, text: &str) -> String {
        let text = text.replace(&*self.data().to_string_lossy(), SHOWN_FOLDER);
        if self.host.is_empty() {
            return text;
        }
        // Only whole words are replaced, because a short host name may be part of other words.
        let words = text.split_inclusive(|c: char| !c.is_alphanumeric() && c != '-' && c != '_');
        let host = self.host.as_str();
        words
            .map(|word| match word.strip_prefix(host) {
                Some(rest) if rest.chars().count() <= 1 && !rest.starts_with(is_word) => {
                    format!("{SHOWN_HOST}{rest}")
                }
                _ => word.to_string(),
            })
            .collect()
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '-' || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session::new(Path::new("/bin/true"), &std::env::temp_dir()).unwrap()
    }

    #[test]
    fn a_command_runs_in_the_folder_and_its_exit_code_is_shown() {
        let session = session();
        let printed = session.run("pwd; echo to-stderr >&2; echo x > file").unwrap();
        assert_eq!(printed.text, "/data\nto-stderr\n");
        let printed = session.run("cat file; exit 3").unwrap();
        assert_eq!(printed.text, "x\nexit code 3");
        assert!(!printed.succeeded);
    }

    #[test]
    fn the_host_is_shown_as_another_only_where_it_is_a_word() {
        let mut session = session();
        session.host = "vm".to_string();
        assert_eq!(
            session.as_shown("on vm, vmlinux, kvm-vm vm"),
            "on myhost, vmlinux, kvm-vm myhost"
        );
    }
}
