//! Waits for the end of programs that were started, and checks how the programs ended. A program
//! that still runs is killed on drop.
//!
//! The output is written to files, so that it can be read at any time and a full pipe cannot block
//! the program. A program that does not end within its time limit is killed and counts as hung.

use super::tally::{Check, Stopped, ensure};
use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time between two checks of a running program (ms).
const TICK_MS: u64 = 2;
/// Default time limit of a program (ms).
pub const PATIENCE_MS: u64 = 120_000;

/// Sleeps for about this time.
pub fn pause(milliseconds: u64) {
    std::thread::park_timeout(Duration::from_millis(milliseconds));
}

/// A started program, which is killed on drop.
pub struct Running {
    pub child: Child,
    pub stdout: PathBuf,
    pub stderr: PathBuf,
    pub stop: Arc<AtomicBool>,
}

impl Running {
    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        // The PID cannot have been reused, because the exit status has not been collected yet.
        kill(Pid::from_raw(self.child.id() as i32), signal).context("cannot send a signal")
    }

    /// Returns what the program has written to standard output so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    /// Waits until a condition is met. Returns false if the program ends first, or if the condition
    /// is not met within the time limit.
    pub fn until(&mut self, mut is_so: impl FnMut(&Self) -> bool) -> Result<bool> {
        for _ in 0..PATIENCE_MS / TICK_MS {
            if is_so(self) {
                return Ok(true);
            }
            if self.child.try_wait()?.is_some() {
                return Ok(is_so(self));
            }
            self.tick()?;
        }
        Ok(false)
    }

    /// Waits until the program ends, or until the default time limit.
    pub fn ended(self) -> Result<Ended> {
        self.ended_within(PATIENCE_MS, |_| {})
    }

    /// Waits until the program ends, but at most `patience_ms`. While waiting, regularly calls
    /// `look` with the PID of the program.
    pub fn ended_within(mut self, patience_ms: u64, mut look: impl FnMut(u32)) -> Result<Ended> {
        let mut status = None;
        for _ in 0..patience_ms / TICK_MS {
            look(self.child.id());
            status = self.child.try_wait()?;
            if status.is_some() {
                break;
            }
            self.tick()?;
        }
        let read = |path| std::fs::read(path).map(|text| String::from_utf8_lossy(&text).into());
        Ok(Ended {
            hung: status.is_none(),
            code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            stdout: read(&self.stdout)?,
            stderr: read(&self.stderr)?,
        })
    }

    fn tick(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Stopped.into());
        }
        pause(TICK_MS);
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The exit status and the output of a program.
#[derive(Debug, Default)]
pub struct Ended {
    /// Whether the program was still running at its time limit.
    pub hung: bool,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Checks that the program failed with this exit code and with a single error line that
    /// contains these words.
    pub fn fails(&self, code: i32, words: &[&str]) -> Check {
        self.ends_with(code)?;
        // The line that announces which data will be destroyed is not an error.
        let said = |line: &&str| !line.starts_with("halfpower: destroying ");
        let lines: Vec<&str> = self.stderr.lines().filter(said).collect();
        let one_line = lines.len() == 1 && lines[0].starts_with("halfpower: ");
        ensure(one_line, || format!("stderr is not a single error line: {}", self.words()))?;
        let missing = words.iter().find(|words| !self.stderr.contains(**words));
        match missing {
            Some(missing) => {
                Err(format!("'{missing}' is missing from the error: {}", self.words()))
            }
            None => Ok(()),
        }
    }

    /// Checks that the program succeeded, and returns the JSON document that it printed.
    pub fn document(&self) -> Result<Value, String> {
        self.ends_with(0)?;
        serde_json::from_str(&self.stdout)
            .map_err(|error| format!("stdout is not a JSON document: {error}"))
    }

    /// Checks that the program ended within its time limit and with this exit code.
    pub fn ends_with(&self, code: i32) -> Check {
        ensure(!self.hung, || "the program did not end within its time limit".to_string())?;
        ensure(self.code == Some(code), || {
            format!(
                "exit code {:?} and signal {:?} instead of exit code {code}: {}",
                self.code,
                self.signal,
                self.words()
            )
        })
    }

    fn words(&self) -> String {
        let text = self.stderr.trim();
        let end = text.char_indices().nth(300).map_or(text.len(), |(at, _)| at);
        text[..end].replace('\n', " | ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: i32, stderr: &str) -> Ended {
        Ended { code: Some(code), stderr: stderr.to_string(), ..Ended::default() }
    }

    #[test]
    fn a_failure_needs_its_exit_code_its_message_and_one_line() {
        let good = ended(1, "halfpower: reading at offset 0: input/output error\n");
        assert_eq!(good.fails(1, &["offset 0", "error"]), Ok(()));
        assert!(good.fails(4, &[]).unwrap_err().contains("instead of exit code 4"));
        assert!(good.fails(1, &["offset 8"]).unwrap_err().contains("offset 8"));
        assert!(ended(1, "halfpower: one\nhalfpower: two\n").fails(1, &[]).is_err());
        assert!(ended(101, "thread main panicked\n").fails(1, &[]).is_err());
        let hung = Ended { hung: true, ..Ended::default() };
        assert_eq!(
            hung.fails(1, &[]).unwrap_err(),
            "the program did not end within its time limit"
        );
    }
}
