//! `bench mpi`: compares halfpower with IOR, the usual benchmark of parallel file systems. Both
//! tools run several processes on one file system. The three cases are those of IOR: one file for
//! each process, one shared file in segments, and one shared file in strides.
//!
//! Both tools use the same launcher, number of processes and files. The files are written
//! completely beforehand. Each process issues one direct request of 1 MiB at a time, and there is
//! no flush at the end. As in the reports of IOR, the rate is the total number of bytes divided by
//! the time from the start of the first process to the end of the last process.
//!
//! IOR uses buffers of ordinary pages, so the limit applies to halfpower with the same buffers.
//! halfpower also runs with huge pages, its default. Large requests then have fewer memory
//! segments. The benchmark needs mpirun of Open MPI and IOR 4 (github.com/hpc/ior).

use super::host;
use super::statistics::estimate;
use super::table::{Bar, Row};
use super::turns::take_turns;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum difference between the rates of halfpower and IOR, as a fraction of IOR's rate.
const AGREEMENT: f64 = 0.1;
const MIB: f64 = 1024.0 * 1024.0;
const REQUEST_BYTES: u64 = 1 << 20;
/// Maximum number of processes. IOR appends the number of the process to file names, with eight
/// digits. `own_file` requires that the first seven digits are zero.
pub const RANKS_MAX: u32 = 10;

/// How the processes share files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// A separate file for each process
    Own,
    /// One file that is divided into one part for each process
    Segmented,
    /// One file, in which the requests of the processes alternate
    Strided,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Write,
    Read,
}

/// The size of the memory pages in halfpower's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    /// Ordinary pages of 4 KiB, which IOR uses.
    Ordinary,
    /// Huge pages, the default of halfpower.
    Huge,
}

/// Settings of all cases.
pub struct Bench {
    /// Number of rounds of each case.
    pub rounds: u32,
    /// Number of processes of each run.
    pub ranks: u32,
    /// Total number of bytes that the processes of a run read or write.
    pub bytes: u64,
    /// Absolute path of the folder for test files, and the working directory of the tools.
    pub folder: PathBuf,
    /// The program under test, built with MPI.
    pub halfpower: PathBuf,
    /// The program `ior`.
    pub ior: PathBuf,
    /// The launcher `mpirun`.
    pub mpirun: PathBuf,
    /// Flag that a signal sets to stop the benchmark.
    pub stop: Arc<AtomicBool>,
}

impl Case {
    /// All cases, in the order in which they run.
    pub const ALL: [Case; 3] = [Case::Own, Case::Segmented, Case::Strided];

    fn name(self) -> &'static str {
        match self {
            Case::Own => "own",
            Case::Segmented => "segmented",
            Case::Strided => "strided",
        }
    }

    fn is_shared(self) -> bool {
        self != Case::Own
    }
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Direction::Write => "write",
            Direction::Read => "read",
        }
    }
}

impl Pages {
    fn name(self) -> &'static str {
        match self {
            Pages::Ordinary => "4k",
            Pages::Huge => "huge",
        }
    }
}

impl Bench {
    /// Measures a case, first with writes and then with reads, and returns its rows.
    pub fn run(&self, case: Case) -> Result<Vec<Row>> {
        let files = self.lay_out(case)?;
        let mut rows = Vec::new();
        for direction in [Direction::Write, Direction::Read] {
            let name = format!("{} {}", case.name(), direction.name());
            let rounds = take_turns(&name, self.rounds, 3, &self.stop, |place| match place {
                0 => self.halfpower(case, direction, Pages::Ordinary),
                1 => self.ior(case, direction),
                _ => self.halfpower(case, direction, Pages::Huge),
            })?;
            let rates = |place: usize| rounds.iter().map(move |round| round[place]);
            let ratios = |place: usize| -> Vec<f64> {
                rates(place).zip(rates(1)).map(|(ours, iors)| ours / iors).collect()
            };
            let figure = |text: &str| format!("{}: {text}", direction.name());
            let tools = ["halfpower, 4k pages, MB/s", "IOR MB/s", "halfpower, huge pages, MB/s"];
            for (place, tool) in tools.into_iter().enumerate() {
                let rates: Vec<f64> = rates(place).collect();
                rows.push(Row::rate(case.name(), &figure(tool), &rates, 1e-6));
            }
            let row = |text, place, bar| {
                Row::new(case.name(), &figure(text), estimate(&ratios(place)), bar)
            };
            rows.push(row("rate, halfpower/IOR, 4k pages", 0, Bar::Within(AGREEMENT)));
            rows.push(row("rate, halfpower/IOR, huge pages", 2, Bar::None));
        }
        files.iter().try_for_each(|file| host::remove(file))?;
        Ok(rows)
    }

    /// Creates the files of a case, writes them completely, and returns their paths.
    fn lay_out(&self, case: Case) -> Result<Vec<PathBuf>> {
        let files: Vec<(PathBuf, u64)> = match case.is_shared() {
            true => vec![(self.folder.join("shared"), self.bytes)],
            false => (0..self.ranks)
                .map(|rank| (self.folder.join(own_file(&rank.to_string())), self.share()))
                .collect(),
        };
        for (file, bytes) in &files {
            host::make_full_file(file, *bytes, || self.stop.load(Ordering::Relaxed))?;
        }
        Ok(files.into_iter().map(|(file, _)| file).collect())
    }

    /// Returns the number of bytes that each process reads or writes.
    fn share(&self) -> u64 {
        self.bytes / u64::from(self.ranks)
    }

    /// Runs halfpower once and returns its rate (bytes per second).
    fn halfpower(&self, case: Case, direction: Direction, pages: Pages) -> Result<f64> {
        let mut command = self.launch(&self.halfpower);
        command.args(self.words_of_halfpower(case, direction, pages));
        rate_of_halfpower(&output_of(&mut command)?, self.ranks, self.bytes)
    }

    fn words_of_halfpower(&self, case: Case, direction: Direction, pages: Pages) -> Vec<String> {
        let file = if case.is_shared() { "shared".to_owned() } else { own_file("{rank}") };
        let size = if case.is_shared() { self.bytes } else { self.share() };
        let flags = format!(
            "run {file} --mpi --rw {} --bs {REQUEST_BYTES} --size {size} --ioengine sync \
             --direct=1 --trials 1 --rank-files {} --buffer-pages {} --no-store --json --quiet",
            direction.name(),
            case.name(),
            pages.name()
        );
        let mut words: Vec<String> = flags.split_whitespace().map(String::from).collect();
        if direction == Direction::Write {
            words.extend(["--overwrite".to_owned(), file]);
        }
        words
    }

    /// Runs IOR once and returns its rate (bytes per second).
    fn ior(&self, case: Case, direction: Direction) -> Result<f64> {
        let summary = self.folder.join("summary");
        let mut command = self.launch(&self.ior);
        command.args(self.words_of_ior(case, direction, &summary));
        output_of(&mut command)?;
        let text = std::fs::read_to_string(&summary).context("IOR wrote no summary")?;
        host::remove(&summary)?;
        rate_of_ior(&text, direction.name())
    }

    fn words_of_ior(&self, case: Case, direction: Direction, summary: &Path) -> Vec<String> {
        let requests = self.share() / REQUEST_BYTES;
        // In IOR, a segment of a file consists of one block of each process.
        let (block, segments) = match case {
            Case::Strided => (REQUEST_BYTES, requests),
            _ => (self.share(), 1),
        };
        let flags = format!(
            "-a POSIX --posix.odirect -t {REQUEST_BYTES} -b {block} -s {segments} -E -k -O \
             summaryFormat=JSON -O summaryFile={}",
            summary.display()
        );
        let mut words: Vec<String> = flags.split_whitespace().map(String::from).collect();
        words.extend(match case {
            Case::Own => ["-F", "-o", "own"].map(String::from).to_vec(),
            _ => ["-o", "shared"].map(String::from).to_vec(),
        });
        words.extend(match direction {
            Direction::Write => ["-w".to_owned()],
            Direction::Read => ["-r".to_owned()],
        });
        words
    }

    /// Returns the `mpirun` command that starts one process of a program for each rank.
    fn launch(&self, program: &Path) -> Command {
        let mut command = Command::new(&self.mpirun);
        // Without these variables, Open MPI refuses to start as root.
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.args(["--oversubscribe", "-n", &self.ranks.to_string()]).arg(program);
        command.current_dir(&self.folder);
        command
    }
}

/// Returns the name that IOR gives to the file of a process.
fn own_file(rank: &str) -> String {
    format!("own.0000000{rank}")
}

/// Runs a command and returns its standard output. The exit code for an invalid result is not an
/// error, because short trials can make a result invalid.
fn output_of(command: &mut Command) -> Result<String> {
    /// Exit code of halfpower if the verdict is invalid.
    const INVALID: i32 = 5;
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() && output.status.code() != Some(INVALID) {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} failed ({}): {}", output.status, words.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Parses the JSON of `halfpower run --mpi` and returns the total rate until the end of the last
/// rank (bytes per second).
fn rate_of_halfpower(text: &str, ranks: u32, bytes: u64) -> Result<f64> {
    let start = text.find('{').context("halfpower printed no JSON")?;
    let json: Value = serde_json::from_str(&text[start..]).context("halfpower: invalid JSON")?;
    let trial = &json["trials"][0];
    let summary = &trial["ranks_summary"];
    if summary["ranks"].as_u64() != Some(ranks.into()) || summary["lost"] != Value::Array(vec![]) {
        bail!("halfpower did not run on {ranks} ranks: {summary}");
    }
    if trial["errors"].as_u64() != Some(0) || trial["bytes"].as_u64() != Some(bytes) {
        bail!("halfpower did not transfer {bytes} bytes without errors: {}", trial["bytes"]);
    }
    summary["last_done_bytes_per_s"].as_f64().context("halfpower printed no last_done_bytes_per_s")
}

/// Parses the JSON of IOR and returns the rate (bytes per second).
fn rate_of_ior(text: &str, access: &str) -> Result<f64> {
    let json: Value = serde_json::from_str(text).context("IOR: invalid JSON")?;
    let results = json["tests"][0]["Results"].as_array().context("IOR wrote no results")?;
    let result = results.iter().find(|result| result["access"] == access);
    let result = result.with_context(|| format!("IOR wrote no result for {access}"))?;
    Ok(result["bwMiB"].as_f64().context("IOR wrote no bwMiB")? * MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench() -> Bench {
        Bench {
            rounds: 1,
            ranks: 4,
            bytes: 64 << 20,
            folder: PathBuf::from("/folder"),
            halfpower: PathBuf::from("halfpower"),
            ior: PathBuf::from("ior"),
            mpirun: PathBuf::from("mpirun"),
            stop: Arc::default(),
        }
    }

    #[test]
    fn both_tools_use_the_same_files_in_the_same_shape() {
        let bench = bench();
        let ours =
            |case| bench.words_of_halfpower(case, Direction::Write, Pages::Ordinary).join(" ");
        let iors = |case| bench.words_of_ior(case, Direction::Write, Path::new("s")).join(" ");
        assert!(ours(Case::Own).contains("own.0000000{rank} --mpi --rw write --bs 1048576"));
        assert!(ours(Case::Own).contains("--size 16777216"));
        assert!(iors(Case::Own).contains("-b 16777216 -s 1 "));
        assert!(iors(Case::Own).ends_with("-F -o own -w"));
        assert!(ours(Case::Strided).contains("run shared "));
        assert!(ours(Case::Strided).contains("--size 67108864"));
        assert!(iors(Case::Strided).contains("-b 1048576 -s 16 "));
        assert!(iors(Case::Segmented).contains("-b 16777216 -s 1 "));
    }

    #[test]
    fn rates_are_those_until_the_last_rank_was_done() {
        let json = r#"{"trials": [{"bytes": 8, "errors": 0, "ranks_summary":
            {"ranks": 2, "lost": [], "last_done_bytes_per_s": 5.0}}]}"#;
        assert_eq!(rate_of_halfpower(json, 2, 8).unwrap(), 5.0);
        assert!(rate_of_halfpower(json, 3, 8).is_err(), "a rank is missing");
        assert!(rate_of_halfpower(json, 2, 16).is_err(), "bytes are missing");
        let json = r#"{"tests": [{"Results": [{"access": "write", "bwMiB": 2.0}]}]}"#;
        assert_eq!(rate_of_ior(json, "write").unwrap(), 2.0 * MIB);
        assert!(rate_of_ior(json, "read").is_err());
    }
}
