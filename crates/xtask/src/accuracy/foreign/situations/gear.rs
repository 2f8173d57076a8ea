//! Helpers for the situations: check a report, keep a CPU busy, create control groups, find Python.

use crate::faults::device::soon;
use crate::faults::place::{Context, Place};
use crate::faults::running::{Ended, Running};
use crate::faults::tally::{Check, Missing, ensure};
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags for a run whose JSON document is checked.
pub const QUIET: &str = "--no-store --json --quiet";

/// Checks that halfpower reported one of the texts in `says`, either as a reason of a verdict that
/// is not valid or in the error with which it refused to run.
pub fn alarm(ended: &Ended, says: &[&str]) -> Check {
    ensure(!ended.hung, || "did not end".to_string())?;
    let Ok(document) = serde_json::from_str::<Value>(&ended.stdout) else {
        let refused = ended.code != Some(0) && contains_any(&ended.stderr, says);
        return ensure(refused, || format!("exit {:?}: {}", ended.code, short(&ended.stderr)));
    };
    let verdict = &document["verdict"];
    let doubted = ["suspect", "invalid"].iter().any(|state| verdict["state"] == *state);
    let reasons = verdict["reasons"].to_string();
    ensure(doubted && contains_any(&reasons, says), || {
        format!("{} {}; {}", verdict["state"], short(&reasons), rates(&document))
    })
}

/// Returns true if `text` contains one of the texts in `says`.
pub fn contains_any(text: &str, says: &[&str]) -> bool {
    says.iter().any(|words| text.contains(words))
}

/// Returns the first 400 characters of a text on one line. Line breaks are replaced by slashes.
pub fn short(text: &str) -> String {
    let text = text.trim().replace('\n', " / ");
    let end = text.char_indices().nth(400).map_or(text.len(), |(at, _)| at);
    text[..end].to_string()
}

/// Formats the rate of a run and the number of its trials for a message.
fn rates(document: &Value) -> String {
    let rate = document["summary"]["requests_per_s"]["median"].as_f64().unwrap_or(f64::NAN);
    let trials = document["trials"].as_array().map_or(0, Vec::len);
    format!("{rate:.1} requests/s in {trials} trials")
}

/// Runs `halfpower LINE` in a new folder and checks that it reports one of the texts in `says`.
pub fn run_and_check(context: &Context, line: &str, says: &[&str]) -> Result<Check> {
    Ok(with_command(line, alarm(&context.place()?.run(&format!("{line} {QUIET}"))?, says)))
}

/// Adds the command to the message of a failed check.
pub fn with_command(line: &str, check: Check) -> Check {
    check.map_err(|missed| format!("halfpower {line}: {missed}"))
}

/// Keeps `cpu` busy until the returned value is dropped. If `cpu` is None, any CPU is used.
pub fn hog(place: &Place<'_>, cpu: Option<usize>) -> Result<Running> {
    let mut command = match cpu {
        Some(cpu) => {
            let mut command = Command::new("taskset");
            command.args(["--cpu-list", &cpu.to_string(), "sh"]);
            command
        }
        None => Command::new("sh"),
    };
    command.args(["-c", "while :; do :; done"]);
    place.start_command(command)
}

/// Returns the path of Python. A Python in /usr/bin or /usr/local/bin has precedence over the PATH.
pub fn python() -> Result<PathBuf> {
    let found = ["/usr/bin/python3", "/usr/local/bin/python3"].map(PathBuf::from);
    let found = found.into_iter().find(|path| path.is_file());
    let found = found.or_else(|| crate::bench::host::on_path("python3"));
    found.ok_or_else(|| Missing("python3 is not installed".to_string()).into())
}

/// A control group, removed on drop.
pub struct Group(PathBuf);

/// Mount point of the cgroup file system.
const GROUPS: &str = "/sys/fs/cgroup";

impl Group {
    /// Creates a group that limits reads from a block device.
    pub fn reads(device: &str, bytes_per_s: u64) -> Result<Group> {
        let sys = device.replacen("/dev/", "/sys/block/", 1) + "/dev";
        let number = fs::read_to_string(&sys).with_context(|| format!("cannot read {sys}"))?;
        let number = number.trim();
        let old = ("blkio.throttle.read_bps_device", format!("{number} {bytes_per_s}"));
        let new = ("io.max", format!("{number} rbps={bytes_per_s}"));
        Group::with("blkio", old, "io", new)
    }

    /// Creates a group with a CPU quota (percent of one CPU).
    pub fn cpu(percent: u64) -> Result<Group> {
        let quota_us = percent * 1000;
        let old = ("cpu.cfs_quota_us", quota_us.to_string());
        Group::with("cpu", old, "cpu", ("cpu.max", format!("{quota_us} 100000")))
    }

    /// Creates a group and applies one setting: `old_setting` if the controller `old` of cgroup v1
    /// is mounted, otherwise `new_setting` of cgroup v2.
    fn with(
        old: &str,
        old_setting: (&str, String),
        new: &str,
        new_setting: (&str, String),
    ) -> Result<Group> {
        let name = format!("halfpower-accuracy-{}", std::process::id());
        let is_v1 = Path::new(GROUPS).join(old).join("cgroup.procs").exists();
        let (root, (file, value)) = if is_v1 {
            (Path::new(GROUPS).join(old), old_setting)
        } else {
            (PathBuf::from(GROUPS), new_setting)
        };
        if root == Path::new(GROUPS) {
            // An error can be ignored here: if the controller is not enabled, writing the setting
            // below fails, and that error is reported.
            let _ = fs::write(root.join("cgroup.subtree_control"), format!("+{new}"));
        }
        let group = Group(root.join(name));
        if let Err(error) = fs::create_dir(&group.0) {
            bail!(Missing(format!("cannot create a control group: {error}")));
        }
        if let Err(error) = fs::write(group.0.join(file), value) {
            bail!(Missing(format!("cannot set {file} of a control group: {error}")));
        }
        Ok(group)
    }

    /// Returns a shell command that moves the shell into the control group.
    pub fn enter(&self) -> String {
        format!("echo $$ > {}/cgroup.procs", self.0.display())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process stays in the group for a moment after its end. Until then, the group cannot be
        // removed.
        if !soon(|| fs::remove_dir(&self.0).is_ok() || !self.0.exists()) {
            eprintln!("cannot remove {}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: i32, stdout: &str, stderr: &str) -> Ended {
        let (stdout, stderr) = (stdout.to_string(), stderr.to_string());
        Ended { code: Some(code), stdout, stderr, ..Ended::default() }
    }

    #[test]
    fn only_the_expected_reason_is_an_alarm() {
        let document = r#"{"verdict": {"state": "suspect", "reasons": ["noisy: +-20%"]}}"#;
        assert_eq!(alarm(&ended(0, document, ""), &["noisy"]), Ok(()));
        assert!(alarm(&ended(0, document, ""), &["holes"]).is_err());
        let valid = r#"{"verdict": {"state": "valid", "reasons": ["noisy"]}}"#;
        assert!(alarm(&ended(0, valid, ""), &["noisy"]).is_err());
    }

    #[test]
    fn a_refusal_needs_its_message_and_its_exit_code() {
        assert_eq!(alarm(&ended(1, "", "halfpower: holes"), &["holes"]), Ok(()));
        assert!(alarm(&ended(0, "", "halfpower: holes"), &["holes"]).is_err());
        assert!(alarm(&ended(1, "", "halfpower: no"), &["holes"]).unwrap_err().contains("no"));
        let hung = Ended { hung: true, ..Ended::default() };
        assert_eq!(alarm(&hung, &[""]).unwrap_err(), "did not end");
    }

    #[test]
    fn a_long_text_is_cut_between_letters() {
        assert_eq!(short(&"ä".repeat(500)).chars().count(), 400);
        assert_eq!(short(" a\nb "), "a / b");
    }
}
