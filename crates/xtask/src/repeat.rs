//! `cargo xtask repeat`: repeats surveys and counts how often they agree.
//!
//! The release program runs `halfpower survey --quick` on five reference devices, which are served
//! over FUSE, and on a test file on the real disk. For each target, the command counts the runs
//! that have the same verdict, the same best settings and the same first three pieces of advice. It
//! also counts the runs whose intervals of the best rate overlap. On a reference device, 19 of 20
//! runs must agree. On the disk, 16 must agree, because the rate of the disk changes. The intervals
//! of 19 runs must overlap.

use crate::mounted::{Mounted, Priority};
use crate::repository;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Options of `cargo xtask repeat`.
#[derive(clap::Args)]
pub struct Options {
    /// Number of surveys per target (about 20 s each)
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..))]
    runs: u32,
    /// Only survey these targets: numbers of reference devices from 1 to 5, or disk
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Directory for the test file on the disk (needs 1 GiB)
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Put the table into docs/reliability.md
    #[arg(long)]
    write: bool,
}

/// Reference devices, in the order of their numbers in `--only`.
const DEVICES: [&str; 5] = [
    "truth:fixed=1ms,rate=100MB/s,parallel=8",
    "truth:fixed=200us,rate=400MB/s,parallel=4",
    "truth:fixed=5ms,rate=40MB/s",
    "truth:fixed=100us,rate=200MB/s,parallel=32",
    "truth:fixed=500us,rate=1GB/s,parallel=16",
];
/// Minimum fractions of the runs that must agree: for a reference device, and for the disk.
const AGREEMENT_MIN: [f64; 2] = [0.95, 0.8];
/// Minimum fraction of the runs whose intervals of the best rate must overlap.
const OVERLAP_MIN: f64 = 0.95;
const OPERATIONS: [&str; 2] = ["read", "write"];

/// Repeats the surveys and prints the table. The exit code is 0 if enough runs agree, and 1
/// otherwise.
///
/// # Errors
/// If a device cannot be mounted, or a survey ends without JSON.
pub fn run(options: &Options) -> Result<ExitCode> {
    let program = repository::release_build()?;
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|o| o == name);
    let devices = (1..).map(|number: usize| number.to_string()).zip(DEVICES);
    let mut subjects: Vec<(String, Option<&str>)> = devices
        .filter(|(number, _)| wanted(number))
        .map(|(_, device)| (format!("`{device}`"), Some(device)))
        .collect();
    if wanted("disk") {
        subjects.push(("the disk".to_string(), None));
    }
    let mut all: Vec<Vec<Value>> = vec![Vec::new(); subjects.len()];
    // The targets are surveyed in turns, so that a slow period of the machine affects all targets.
    for number in 1..=options.runs {
        for ((name, device), documents) in subjects.iter().zip(&mut all) {
            let document = survey(&program, *device, &options.dir)?;
            eprintln!("run {number} of {}, {name}: {}", options.runs, summary(&document));
            documents.push(document);
        }
    }
    let text = table(&subjects, &all)?;
    println!("{text}");
    if options.write {
        repository::write_section("docs/reliability.md", "repeat", &text)?;
    }
    let is_met = |((_, device), documents): (&(String, Option<&str>), &Vec<Value>)| {
        let bar = AGREEMENT_MIN[usize::from(device.is_none())];
        let agree = same(documents).iter().all(|(count, _)| reaches(*count, documents.len(), bar));
        let overlaps = OPERATIONS.map(|operation| overlap(documents, operation));
        agree && overlaps.into_iter().all(|(count, of)| reaches(count, of, OVERLAP_MIN))
    };
    let met = subjects.iter().zip(&all).all(is_met);
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one survey of a reference device, or of a test file in `dir`. Returns its JSON document.
fn survey(program: &Path, device: Option<&str>, dir: &Path) -> Result<Value> {
    let mounted = device.map(|device| Mounted::new(program, &[device], Priority::Plain));
    let mounted = mounted.transpose()?;
    let page = tempfile::tempdir().context("cannot create a folder for the HTML page")?;
    let mut command = Command::new(program);
    match &mounted {
        Some(mounted) => command.args(["survey", &mounted.file]),
        None => command.arg("survey").arg(dir),
    };
    command.args(["--quick", "--no-store", "--json", "--quiet", "--html"]);
    command.arg(page.path().join("survey.html"));
    let output = command.stderr(Stdio::inherit()).output().context("cannot start halfpower")?;
    let text = String::from_utf8_lossy(&output.stdout);
    match serde_json::from_str(&text) {
        Ok(document) => Ok(document),
        Err(_) => bail!("a survey printed no JSON ({})", output.status),
    }
}

fn verdict(document: &Value) -> String {
    document["verdict"]["state"].as_str().unwrap_or("?").to_string()
}

fn best(document: &Value, operation: &str) -> String {
    let best = &document["best"][operation];
    match best["request_bytes"].as_u64() {
        Some(bytes) => {
            let caching = best["caching"].as_str().unwrap_or("?");
            format!("{caching} {} KiB x {}", bytes / 1024, best["depth"])
        }
        None => "-".to_string(),
    }
}

fn advice(document: &Value) -> String {
    let advice = document["advice"].as_array().into_iter().flatten().take(3);
    let ids: Vec<&str> = advice.filter_map(|advice| advice["id"].as_str()).collect();
    ids.join(", ")
}

fn summary(document: &Value) -> String {
    let [read, write] = OPERATIONS.map(|operation| best(document, operation));
    format!("{}; {read}; {write}; {}", verdict(document), advice(document))
}

/// Returns the most frequent answer, preceded by the number of times that it occurs.
fn most_frequent(answers: impl Iterator<Item = String>) -> (usize, String) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    answers.for_each(|answer| *counts.entry(answer).or_default() += 1);
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(answer, count)| (count, answer)).unwrap_or_default()
}

/// Returns the largest number of intervals that contain a common value. Only the lower ends are
/// tried as common values, because intervals that share a value also share the largest of their
/// lower ends.
fn overlapping(intervals: &[(f64, f64)]) -> usize {
    let holding = |point: f64| intervals.iter().filter(|(l, h)| (*l..=*h).contains(&point)).count();
    intervals.iter().map(|(low, _)| holding(*low)).max().unwrap_or(0)
}

/// Returns the most frequent verdict, best read setting, best write setting and advice. The number
/// before each answer is how often the answer occurs.
fn same(documents: &[Value]) -> [(usize, String); 4] {
    let all = || documents.iter();
    [
        most_frequent(all().map(verdict)),
        most_frequent(all().map(|document| best(document, "read"))),
        most_frequent(all().map(|document| best(document, "write"))),
        most_frequent(all().map(advice)),
    ]
}

/// Returns the number of runs whose intervals of the best rate overlap, and the number of runs that
/// have such an interval. `operation` is `read` or `write`.
fn overlap(documents: &[Value], operation: &str) -> (usize, usize) {
    let interval = |document: &Value| {
        let rate = &document["best"][operation]["throughput_bytes_per_s"];
        Some((rate["low"].as_f64()?, rate["high"].as_f64()?))
    };
    let intervals: Vec<(f64, f64)> = documents.iter().filter_map(interval).collect();
    (overlapping(&intervals), intervals.len())
}

/// Returns whether `count` / `of` is at least `share`, or `of` is 0.
fn reaches(count: usize, of: usize, share: f64) -> bool {
    count as f64 >= share * of as f64 - 1e-9
}

fn table(subjects: &[(String, Option<&str>)], all: &[Vec<Value>]) -> Result<String> {
    let host = &all.iter().flatten().next().context("nothing was measured")?["host"];
    let text = |name: &str| host[name].as_str().unwrap_or("?").to_string();
    let mut lines = format!(
        "{} x {}, Linux {}.\n\n\
         | target | runs | verdict | best reads | best writes | first three pieces of advice | \
         runs whose intervals of the best rate overlap: reads, writes \
         |\n|---|---|---|---|---|---|---|\n",
        host["cpus"],
        text("cpu"),
        text("kernel")
    );
    for ((name, _), documents) in subjects.iter().zip(all) {
        let [verdict, read, write, advice] = same(documents);
        let cell = |(count, answer): (usize, String)| format!("{count}: {answer}");
        let [reads, writes] = OPERATIONS.map(|operation| match overlap(documents, operation) {
            (_, 0) => "-".to_string(),
            (count, of) => format!("{count} of {of}"),
        });
        writeln!(
            lines,
            "| {name} | {} | {} | {} | {} | {} | {}, {} |",
            documents.len(),
            cell(verdict),
            cell(read),
            cell(write),
            cell(advice),
            reads,
            writes
        )?;
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_answer_is_counted() {
        let answers = ["a", "b", "b"].map(str::to_string);
        assert_eq!(most_frequent(answers.into_iter()), (2, "b".to_string()));
        assert_eq!(most_frequent(std::iter::empty()), (0, String::new()));
    }

    #[test]
    fn nineteen_of_twenty_meet_the_limit_and_eighteen_do_not() {
        assert!(reaches(19, 20, 0.95) && !reaches(18, 20, 0.95) && reaches(0, 0, 0.95));
    }

    #[test]
    fn intervals_overlap_that_have_a_point_in_common() {
        assert_eq!(overlapping(&[(1.0, 3.0), (2.0, 4.0), (3.5, 5.0), (2.5, 2.6)]), 3);
        assert_eq!(overlapping(&[]), 0);
    }
}
