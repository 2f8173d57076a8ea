//! `cargo xtask bench store`: measures how long halfpower's commands take on a large results
//! database.
//!
//! halfpower stores a simulated sweep of 50 points. The `sqlite3` shell then copies this run many
//! times and gives each copy a different host, label, time and rate. Each command runs five times.
//! The median wall time, including the start-up, is compared with a limit.

use super::clock::timed;
use super::host;
use anyhow::{Context, Result, ensure};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of points of a run.
const POINTS: u32 = 50;
/// Number of trials of a point.
const TRIALS: u32 = 10;
/// Number of hosts over which the runs are distributed.
const HOSTS: u32 = 20;
/// Number of runs that share a label.
const RUNS_PER_LABEL: u32 = 100;
/// Number of executions of each command.
const REPETITIONS: usize = 5;

/// A command line and its time limit (s). None if there is no limit.
type Question = (&'static str, Option<f64>);

/// The measured commands. Spaces separate arguments. `~` is a space within an argument.
const QUESTIONS: [Question; 10] = [
    ("--version", None),
    ("runs list", Some(0.2)),
    ("runs list --json", None),
    ("runs show 7", Some(1.0)),
    ("compare 7 8", Some(1.0)),
    ("compare label:a7 label:a8", Some(1.0)),
    ("history --host host7 randread 64 depth~1,", Some(1.0)),
    ("history --host host7", Some(1.0)),
    ("export 9 --table trials", Some(1.0)),
    ("runs tag 9 again", Some(0.02)),
];

/// Settings of the benchmark.
pub struct Store {
    /// The program under test.
    pub halfpower: PathBuf,
    /// Temporary folder for the database.
    pub folder: PathBuf,
    /// Number of runs in the database.
    pub runs: u32,
    /// Flag that a signal sets to stop the benchmark.
    pub stop: Arc<AtomicBool>,
}

impl Store {
    /// Creates the database and times the commands. Returns the table, and whether every limit is
    /// met.
    pub fn run(&self) -> Result<(String, bool)> {
        let bytes = self.make()?;
        let mut text = format!(
            "`cargo xtask bench store` on {}. The database has {} points in {} runs, {} trials and \
             {:.1} GB. Times are medians of {REPETITIONS} executions and include the start-up.\n\n\
             | command | seconds | limit | met |\n|---|---:|---:|---|\n",
            host::machine(&self.folder),
            self.runs * POINTS,
            self.runs,
            self.runs * POINTS * TRIALS,
            bytes as f64 / 1e9
        );
        let mut is_met = true;
        for (words, limit) in QUESTIONS {
            let seconds = self.time(words)?;
            let met = limit.map(|limit| seconds < limit);
            is_met &= met != Some(false);
            let (limit, met) = match (limit, met) {
                (Some(limit), Some(met)) => (limit.to_string(), if met { "yes" } else { "**no**" }),
                _ => ("-".to_owned(), "-"),
            };
            let shown = words.replace('~', " ");
            let _ = writeln!(text, "| `halfpower {shown}` | {seconds:.3} | {limit} | {met} |");
        }
        Ok((text, is_met))
    }

    /// Creates the database and returns its size (bytes).
    fn make(&self) -> Result<u64> {
        let path = self.folder.join("halfpower.db");
        let sweep = "sweep sim:sata-ssd --rw randread --size 8m --runtime 10ms --trials 1 --quiet \
                     --bs 512,1k,2k,4k,8k,16k,32k,64k,128k,256k --iodepth 1,2,4,8,16";
        let made = Command::new(&self.halfpower)
            .args(sweep.split_whitespace())
            .current_dir(&self.folder)
            .stdout(Stdio::null())
            .status();
        ensure!(made.context("cannot start halfpower")?.success(), "the sweep failed");
        eprintln!("creating {} runs", self.runs);
        sqlite3(&path, &self.copies(&path)?)?;
        Ok(std::fs::metadata(&path)?.len())
    }

    /// Returns the SQL statements that create all other runs as copies of the first run.
    fn copies(&self, path: &Path) -> Result<String> {
        let columns = |table: &str, without: &str| {
            let sql = format!(
                "SELECT group_concat(name) FROM pragma_table_info('{table}') \
                 WHERE name NOT IN ({without})"
            );
            Ok::<_, anyhow::Error>(sqlite3(path, &sql)?.trim().to_owned())
        };
        let run = columns("run", "'id','uuid','label','started_unix_ns','host_json'")?;
        let point = columns("point", "'id','run_id'")?;
        let trial = columns("trial", "'id','point_id','ordinal','elapsed_ns'")?;
        let of_trial: Vec<String> = trial.split(',').map(|name| format!("trial.{name}")).collect();
        let of_trial = of_trial.join(", ");
        let (runs, last) = (self.runs - 1, TRIALS - 1);
        Ok(format!(
            "PRAGMA journal_mode = off; PRAGMA synchronous = off; BEGIN;
             CREATE TEMP TABLE n AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n
                 WHERE i < {runs}) SELECT i FROM n;
             CREATE TEMP TABLE k AS WITH RECURSIVE k(j) AS (SELECT 0 UNION ALL SELECT j + 1 FROM k
                 WHERE j < {last}) SELECT j FROM k;
             INSERT INTO run (uuid, label, started_unix_ns, host_json, {run})
                 SELECT lower(hex(randomblob(16))), 'a' || (i / {RUNS_PER_LABEL}),
                     started_unix_ns - i * 3600000000000,
                     json_set(host_json, '$.name', 'host' || (i % {HOSTS})), {run}
                 FROM n, run WHERE run.id = 1;
             INSERT INTO point (run_id, {point})
                 SELECT n.i + 1, {point} FROM n, point WHERE point.run_id = 1 ORDER BY n.i, ordinal;
             INSERT INTO trial (point_id, ordinal, elapsed_ns, {trial})
                 SELECT point.id, k.j, elapsed_ns + abs(random() % 200000), {of_trial}
                 FROM point, k, trial
                 WHERE point.id > {POINTS} AND trial.point_id = (point.id - 1) % {POINTS} + 1
                 ORDER BY point.id, k.j;
             COMMIT;"
        ))
    }

    /// Measures the median wall time of a command (s).
    fn time(&self, words: &str) -> Result<f64> {
        let mut seconds = Vec::new();
        for _ in 0..REPETITIONS {
            ensure!(!self.stop.load(Ordering::Relaxed), "interrupted");
            let mut command = Command::new(&self.halfpower);
            command.args(words.split_whitespace().map(|word| word.replace('~', " ")));
            command.current_dir(&self.folder).stdout(Stdio::null());
            let (status, elapsed_s) = timed(|| command.status());
            ensure!(status.context("cannot start halfpower")?.success(), "`{words}` failed");
            seconds.push(elapsed_s);
        }
        seconds.sort_by(f64::total_cmp);
        Ok(seconds[REPETITIONS / 2])
    }
}

/// Runs SQL statements with the `sqlite3` shell and returns the output of the shell.
fn sqlite3(path: &Path, sql: &str) -> Result<String> {
    let output = Command::new("sqlite3").arg(path).arg(sql).output();
    let output = output.context("sqlite3 is needed: install the package `sqlite3`")?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "sqlite3: {}", message.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
