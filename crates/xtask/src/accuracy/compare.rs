//! `cargo xtask accuracy --only compare`: how often `halfpower compare` is right.
//!
//! Each comparison is one call of `halfpower compare` with one `--run` for each of the two sides.
//!
//! In a null comparison, both sides have the same target and workload, but different seeds. The
//! targets are a simulated disk whose rate varies by 3% between trials, a reference device, and a
//! file on the local disk. The other comparisons measure two different simulated disks. Long runs
//! determine the true ratio of their rates.
//!
//! The table counts false differences, changes that were found, and intervals that contain the true
//! ratio.

use crate::repository;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// Flags for random reads of a simulated disk. In trials of one second (of virtual time), the rate
/// varies by 3%.
const LOAD: &str = "--rw randread --bs 8k --size 16g";
/// The simulated disk that is compared with itself (null comparisons) and with `FASTER`.
const DISK: &str = "sim:sata-hdd-7200";
/// `DISK` with a faster spindle. It completes about 5% more requests per second.
const FASTER: &str = "sim:sata-hdd-7200,drive.rotation=7650";

/// Maximum share of null comparisons that may show a difference.
const FALSE_MAX: f64 = 0.05;
/// Minimum share of true changes that must be found.
const FOUND_MIN: f64 = 0.90;
/// Minimum share of intervals that must contain the true ratio.
const COVERED_MIN: f64 = 0.93;

/// A comparison that is repeated with different seeds.
struct Case {
    name: &'static str,
    /// The target and flags of each side. `{seed}` is replaced by the seed of the side.
    sides: [String; 2],
    /// Further flags of `halfpower compare`.
    flags: &'static str,
    count: u32,
    /// True ratio of the rates. None if it is unknown, because the rate of a real target may change
    /// between the measurements of the two sides.
    truth: Option<f64>,
}

/// The results of all comparisons of a case.
#[derive(Default)]
struct Counts {
    all: u32,
    faster: u32,
    slower: u32,
    covered: u32,
    rounds: u64,
}

/// Runs all cases. Returns exit code 0 if all shares are within their limits, otherwise 1.
///
/// # Errors
/// If a comparison fails.
pub fn run(program: &Path, dir: &Path, write: bool) -> Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("halfpower-compare-").tempdir_in(dir)?;
    let cases = cases(program)?;
    make_file(folder.path())?;
    let mut table =
        "| case | comparisons | mean rounds | true ratio | reported faster | reported slower | \
         intervals that contain the true ratio |\n|---|---|---|---|---|---|---|\n"
            .to_string();
    let mut missed = Vec::new();
    let (mut nulls, mut wrong, mut covered, mut with_truth) = (0, 0, 0, 0);
    for case in &cases {
        let counts = counted(program, folder.path(), case)?;
        eprintln!("{}: {} faster, {} slower", case.name, counts.faster, counts.slower);
        let known = case.truth.map_or("1".to_owned(), |truth| format!("{truth:.3}"));
        let share =
            case.truth.map_or("-".to_owned(), |_| format!("{} of {}", counts.covered, counts.all));
        writeln!(
            table,
            "| {} | {} | {:.0} | {known} | {} | {} | {share} |",
            case.name,
            counts.all,
            counts.rounds as f64 / f64::from(counts.all),
            counts.faster,
            counts.slower
        )?;
        if case.truth.is_some() {
            covered += counts.covered;
            with_truth += counts.all;
        }
        if case.truth.is_none_or(|truth| truth == 1.0) {
            nulls += counts.all;
            wrong += counts.faster + counts.slower;
        } else if f64::from(counts.faster) < FOUND_MIN * f64::from(counts.all) {
            missed.push("true changes found");
        }
    }
    if f64::from(wrong) > FALSE_MAX * f64::from(nulls) {
        missed.push("false differences");
    }
    if f64::from(covered) < COVERED_MIN * f64::from(with_truth) {
        missed.push("intervals that contain the true ratio");
    }
    let text = format!(
        "False differences (reported although both sides are the same): {wrong} of {nulls} \
         (limit: at most 5%). Intervals that contain the true ratio: {covered} of {with_truth} \
         (limit: at least 93%). Limits that are not met: {}.\n\n{table}",
        if missed.is_empty() { "none".to_owned() } else { missed.join(", ") }
    );
    println!("{text}");
    if write {
        repository::write_section("docs/accuracy.md", "compare", &text)?;
    }
    Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns all cases. Measures the true ratio of the two simulated disks in long runs.
fn cases(program: &Path) -> Result<[Case; 4]> {
    let truth = long_rate(program, FASTER)? / long_rate(program, DISK)?;
    let second = |target: &str| format!("{target} {LOAD} --runtime 1 --seed {{seed}}");
    let file = "file.dat --rw randread --bs 4k --iodepth 4 --runtime 30ms --seed {seed}";
    let device = "truth:fixed=200us --bs 4k --size 64m --runtime 10ms --seed {seed}".to_owned();
    Ok([
        Case {
            name: "the same simulated disk twice",
            sides: [second(DISK), second(DISK)],
            flags: "",
            count: 700,
            truth: Some(1.0),
        },
        Case {
            name: "the same reference device twice",
            sides: [device.clone(), device],
            flags: "--budget 1",
            count: 200,
            truth: None,
        },
        Case {
            name: "the same file on this disk twice",
            sides: [file.to_owned(), file.to_owned()],
            flags: "--budget 1500ms",
            count: 100,
            truth: None,
        },
        Case {
            name: "a simulated disk with a faster spindle",
            sides: [second(DISK), second(FASTER)],
            flags: "",
            count: 300,
            truth: Some(truth),
        },
    ])
}

fn counted(program: &Path, folder: &Path, case: &Case) -> Result<Counts> {
    let mut counts = Counts::default();
    for number in 0..case.count {
        let mut command = Command::new(program);
        command.args(["compare", "--json", "--quiet", "--no-store"]).current_dir(folder);
        for (side, arguments) in case.sides.iter().enumerate() {
            let seed = 2 * u64::from(number) + side as u64 + 1;
            command.args(["--run", &arguments.replace("{seed}", &seed.to_string())]);
        }
        command.args(case.flags.split_whitespace());
        let document = document(&mut command)?;
        let point = &document["comparisons"][0]["points"][0];
        let change = &point["changes"][0];
        let number = |name: &str| {
            change[name].as_f64().with_context(|| format!("the JSON has no number `{name}`"))
        };
        counts.all += 1;
        counts.rounds += change["trials"].as_u64().unwrap_or_default();
        match change["verdict"].as_str() {
            Some("better") => counts.faster += 1,
            Some("worse") => counts.slower += 1,
            _ => {}
        }
        let (low, high) = (number("ratio_low")?, number("ratio_high")?);
        counts.covered += u32::from(case.truth.is_some_and(|truth| low <= truth && truth <= high));
    }
    Ok(counts)
}

/// Measures the rate of a simulated disk over an hour of virtual time (bytes/s).
fn long_rate(program: &Path, target: &str) -> Result<f64> {
    let mut command = Command::new(program);
    command.args(["run", target, "--json", "--quiet", "--no-store", "--trials", "4"]);
    command.args(LOAD.split_whitespace()).args(["--runtime", "900"]);
    let document = document(&mut command)?;
    document["summary"]["throughput_bytes_per_s"]["median"].as_f64().context("the run has no rate")
}

/// Creates the file that one of the cases reads.
fn make_file(folder: &Path) -> Result<()> {
    let path = folder.join("file.dat");
    let text: Vec<u8> =
        (0..64_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    std::fs::File::open(&path)?.sync_all()?;
    Ok(())
}

fn document(command: &mut Command) -> Result<Value> {
    let output = command.stderr(Stdio::inherit()).output().context("cannot start halfpower")?;
    match serde_json::from_slice(&output.stdout) {
        Ok(document) => Ok(document),
        Err(_) => bail!("{command:?} printed no JSON document ({})", output.status),
    }
}
