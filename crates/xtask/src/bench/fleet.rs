//! `cargo xtask bench fleet`: measures time and memory of `halfpower fleet` and `halfpower runs
//! merge`, with the results of ten thousand hosts and with a thousand databases.
//!
//! The example `fleet_hosts` of the crate `compare` creates the databases. Each host has eight runs
//! with five workloads and 23 trials. The histograms and series have a tenth of the usual rows.
//! `halfpower fleet` runs three times on each set of databases. The median wall time (including
//! start-up) and the maximum peak memory are compared with limits. Each measured program may have
//! at most 64 files open.

use super::clock::timed;
use super::host;
use crate::repository;
use anyhow::{Context, Result, ensure};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of hosts in each database of the large fleet.
const HOSTS_PER_DATABASE: u32 = 500;
/// Number of executions of each `fleet` command.
const REPETITIONS: usize = 3;
/// Maximum wall time for the large fleet (s).
const SECONDS_MAX: f64 = 10.0;
/// Maximum peak memory for the large fleet (bytes).
const PEAK_MAX: u64 = 500_000_000;
/// Maximum number of files that a measured program may have open.
const OPEN_FILES: u32 = 64;

/// Settings of the benchmark.
pub struct Fleet {
    /// The program under test.
    pub halfpower: PathBuf,
    /// Temporary folder for the databases.
    pub folder: PathBuf,
    /// Number of hosts in the large fleet.
    pub hosts: u32,
    /// Number of databases with one host each.
    pub databases: u32,
    /// Flag that a signal sets to stop the benchmark.
    pub stop: Arc<AtomicBool>,
}

struct Measured {
    what: String,
    seconds: f64,
    peak_bytes: u64,
    is_limited: bool,
}

impl Measured {
    fn is_met(&self) -> bool {
        !self.is_limited || self.seconds < SECONDS_MAX && self.peak_bytes <= PEAK_MAX
    }
}

impl Fleet {
    /// Creates the databases and measures the commands. Returns the table, and whether the limits
    /// are met.
    pub fn run(&self) -> Result<(String, bool)> {
        let large = self.made("large", self.hosts, HOSTS_PER_DATABASE)?;
        let many = self.made("many", self.databases, 1)?;
        let (hosts, parts, databases) = (self.hosts, large.len(), many.len());
        let all = self.folder.join("all.db");
        let merged = self.folder.join("merged.db");
        let rows = [
            self.merge(&format!("`runs merge` of {parts} databases, {hosts} hosts"), &large, &all)?,
            self.fleet(&format!("`fleet` of {hosts} hosts in one database"), &[all], true)?,
            self.fleet(&format!("`fleet` of {hosts} hosts in {parts} databases"), &large, true)?,
            self.merge(&format!("`runs merge` of {databases} databases"), &many, &merged)?,
            self.fleet(&format!("`fleet` of {databases} databases"), &many, false)?,
        ];
        let mut text = format!(
            "`cargo xtask bench fleet` on {}. Each host has 8 runs; each run has 5 workloads and \
             23 trials in total. Times are medians of {REPETITIONS} executions and include the \
             start-up; merges are executed only once. A program may have at most {OPEN_FILES} \
             files open. Limits for {hosts} hosts: {SECONDS_MAX} s and {} MB.\n\n\
             | command | seconds | peak memory, MB | met |\n|---|---:|---:|---|\n",
            host::machine(&self.folder),
            PEAK_MAX / 1_000_000
        );
        for row in &rows {
            let met = match (row.is_limited, row.is_met()) {
                (false, _) => "-",
                (true, true) => "yes",
                (true, false) => "**no**",
            };
            let mb = row.peak_bytes as f64 / 1e6;
            writeln!(text, "| {} | {:.1} | {mb:.0} | {met} |", row.what, row.seconds)?;
        }
        Ok((text, rows.iter().all(Measured::is_met)))
    }

    /// Creates databases in a folder and returns their paths.
    fn made(&self, name: &str, hosts: u32, hosts_per_file: u32) -> Result<Vec<PathBuf>> {
        let generator = repository::release_example("halfpower-compare", "fleet_hosts")?;
        let folder = self.folder.join(name);
        std::fs::create_dir(&folder)?;
        eprintln!("creating the databases of {hosts} hosts");
        let mut command = Command::new(generator);
        command.args(["--thin", "--seed", "1", "--hosts", &hosts.to_string()]);
        command.args(["--bad", &(hosts / 150).to_string()]);
        command.args(["--hosts-per-file", &hosts_per_file.to_string()]).arg(&folder);
        let status =
            command.stdout(Stdio::null()).status().context("cannot start the generator")?;
        ensure!(status.success(), "{command:?} ended with {status}");
        ensure!(!self.stop.load(Ordering::Relaxed), "interrupted");
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&folder)? {
            files.push(entry?.path());
        }
        files.sort();
        Ok(files)
    }

    fn fleet(&self, what: &str, files: &[PathBuf], is_limited: bool) -> Result<Measured> {
        let mut times = Vec::new();
        let mut peak_bytes = 0;
        for _ in 0..REPETITIONS {
            let (seconds, peak) = self.measured(&["fleet"], files)?;
            times.push(seconds);
            peak_bytes = peak_bytes.max(peak);
        }
        times.sort_by(f64::total_cmp);
        let seconds = times[REPETITIONS / 2];
        Ok(Measured { what: what.to_owned(), seconds, peak_bytes, is_limited })
    }

    fn merge(&self, what: &str, files: &[PathBuf], into: &Path) -> Result<Measured> {
        let into = into.to_str().context("the path of the merged database is not UTF-8")?;
        let (seconds, peak_bytes) = self.measured(&["runs", "merge", "--db", into], files)?;
        Ok(Measured { what: what.to_owned(), seconds, peak_bytes, is_limited: false })
    }

    /// Runs the program. Returns its wall time (s) and its peak memory (bytes).
    fn measured(&self, words: &[&str], files: &[PathBuf]) -> Result<(f64, u64)> {
        ensure!(!self.stop.load(Ordering::Relaxed), "interrupted");
        let limited = format!("ulimit -n {OPEN_FILES} && exec \"$0\" \"$@\"");
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "peak", "sh", "-c", &limited]);
        command.arg(&self.halfpower).args(words).args(files).stderr(Stdio::inherit());
        let (output, seconds) = timed(|| command.output());
        let output = output.context("cannot start the measurement")?;
        ensure!(output.status.success(), "halfpower {} failed", words.join(" "));
        let kib: u64 = String::from_utf8_lossy(&output.stdout).trim().parse()?;
        Ok((seconds, kib * 1024))
    }
}
