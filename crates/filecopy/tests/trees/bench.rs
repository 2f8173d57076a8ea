//! Helpers of the tests: temporary folders, copies of trees, and reports of skipped tests.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use filecopy::{Destination, Keep, Problem, Session, Settings};

/// Creates a temporary folder in the build directory, because /tmp may not support extended
/// attributes or holes.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Reports a skipped test on standard error, and in the log file that `./test` reads.
pub fn skip(test: &str, why: &str) {
    let line = format!("skipped: trees::{test}: {why}\n");
    eprint!("{line}");
    if let Some(log) = std::env::var_os("HALFPOWER_SKIP_LOG") {
        let log = fs::OpenOptions::new().append(true).create(true).open(log);
        log.unwrap().write_all(line.as_bytes()).unwrap();
    }
}

pub fn is_on_path(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    found.is_ok_and(|output| output.status.success())
}

/// Returns settings with the state folder `state` inside `folder`.
pub fn settings(folder: &Path, keep: Keep) -> Settings {
    let state_folder = Some(folder.join("state"));
    Settings { keep, state_folder, ..Settings::default() }
}

/// Returns settings like [`settings`], with permission to replace everything.
pub fn replacing(folder: &Path, keep: Keep) -> Settings {
    Settings { may_replace: Arc::new(|_, _, _| Ok(())), ..settings(folder, keep) }
}

/// Copies one source and returns the problems.
pub fn copy(settings: Settings, from: &Path, to: &Path) -> Vec<Problem> {
    let session = Session::new(settings);
    session.copy(from, &Destination { path: to.to_path_buf() });
    session.finish()
}

/// Copies one source and asserts that there are no problems.
#[track_caller]
pub fn copies(settings: Settings, from: &Path, to: &Path) {
    let problems = copy(settings, from, to);
    assert!(problems.is_empty(), "{}", listed(&problems));
}

pub fn listed(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

/// Returns all private directories of copies below a folder.
pub fn leftovers(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let name = entry.file_name().to_string_lossy().into_owned();
        // The generator also creates names that begin with `.halfpower-`, but they are shorter.
        if is_directory && name.starts_with(".halfpower-") && name.len() == 43 {
            found.push(path.clone());
        }
        if is_directory {
            found.extend(leftovers(&path));
        }
    }
    found
}

/// Returns the number of cases to test: the environment variable HALFPOWER_CASES if set, otherwise
/// `short`.
pub fn cases(short: u64) -> u64 {
    let asked = std::env::var("HALFPOWER_CASES").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(short)
}
