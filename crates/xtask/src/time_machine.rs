//! `cargo xtask time-machine`: compares a mounted simulated system with a published figure.
//!
//! The command mounts `sim:nt4-ultrawide` with a release build of `halfpower`. It then measures the
//! points of Figure 3 of the paper `riedel97` (unbuffered, one request at a time), first with
//! `halfpower run` and then with fio. It prints each rate next to the published rate. Every rate
//! must be within 10% of the published rate. The command takes about ten minutes and needs fio and
//! FUSE. The machine must be idle, because other load slows down the requests to the mounted file.

use crate::mounted::{Mounted, Priority};
use crate::repository;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Options of `cargo xtask time-machine`.
#[derive(clap::Args)]
pub struct Options {
    /// CSV file with the published rates
    #[arg(long, default_value = "crates/papers/data/riedel97_fig03_unbuffered_single_disk.csv")]
    data: PathBuf,
    /// Duration of one run (s)
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Write the table into docs/accuracy.md
    #[arg(long)]
    write: bool,
}

/// The drive whose points are compared, as it is called in the CSV file.
const DRIVE: &str = "Seagate ST34371W (Ultra-Wide)";
/// The simulated system that contains this drive.
const SYSTEM: &str = "sim:nt4-ultrawide";
/// Maximum allowed relative difference between a measured rate and the published rate.
const DIFFERENCE_MAX: f64 = 0.1;
/// Number of bytes in a MB, as the papers define it.
const MB: f64 = 1_048_576.0;

/// A published point: a workload and its rate on the drive.
#[derive(Debug, PartialEq)]
struct Point {
    series: String,
    operation: String,
    write_cache: String,
    request_kib: u32,
    mb_per_s: f64,
}

/// Measures all points with `halfpower run` and fio, and prints the table. The exit code is 0 if
/// all rates are within [`DIFFERENCE_MAX`] of the published rates, and 1 otherwise.
pub fn run(options: &Options) -> Result<ExitCode> {
    let data = repository::root().join(&options.data);
    let text = std::fs::read_to_string(&data)
        .with_context(|| format!("cannot read {}", data.display()))?;
    let points = parse(&text)?;
    let program = repository::release_build()?;
    let mut table = "| series | KiB | published, MB/s | halfpower run | difference | fio | \
                     difference |\n|---|---|---|---|---|---|---|\n"
        .to_string();
    let mut worst: f64 = 0.0;
    for point in &points {
        let mounted = System::new(&program, &point.write_cache)?;
        let measured = [
            mounted.by_halfpower(&program, point, options.seconds)?,
            mounted.by_fio(point, options.seconds)?,
        ];
        let [ours, fio] = measured.map(|mb_per_s| mb_per_s / point.mb_per_s - 1.0);
        worst = worst.max(ours.abs()).max(fio.abs());
        let Point { series, request_kib, mb_per_s, .. } = point;
        let [by_ours, by_fio] = measured;
        let row = format!(
            "| {series} | {request_kib} | {mb_per_s:.3} | {by_ours:.3} | {:+.1}% | {by_fio:.3} | \
             {:+.1}% |",
            ours * 100.0,
            fio * 100.0
        );
        eprintln!("{row}");
        writeln!(table, "{row}")?;
    }
    let heading = format!("{} points, largest difference {:.1}%.", points.len(), worst * 100.0);
    let text = format!("{heading}\n\n{table}");
    println!("{text}");
    if options.write {
        repository::write_section("docs/accuracy.md", "time machine", &text)?;
    }
    Ok(if worst <= DIFFERENCE_MAX { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Parses the CSV file and returns the points of [`DRIVE`], in the order of the file.
fn parse(csv: &str) -> Result<Vec<Point>> {
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().context("the file is empty")?.split(',').collect();
    let column = |name: &str| {
        let at = names.iter().position(|known| *known == name);
        at.with_context(|| format!("the file has no column {name}"))
    };
    let (series, drive, operation) = (column("series")?, column("drive")?, column("operation")?);
    let (cache, size, value) = (column("wce")?, column("request_kib")?, column("value")?);
    let mut points = Vec::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        if fields.len() != names.len() {
            bail!("the number of fields differs from the number of columns: {line}");
        }
        if fields[drive] != DRIVE {
            continue;
        }
        points.push(Point {
            series: fields[series].to_string(),
            operation: fields[operation].to_string(),
            write_cache: if fields[cache] == "on" { "on" } else { "off" }.to_string(),
            request_kib: fields[size].parse().with_context(|| line.to_string())?,
            mb_per_s: fields[value].parse().with_context(|| line.to_string())?,
        });
    }
    if points.is_empty() {
        bail!("the file has no points of {DRIVE}");
    }
    Ok(points)
}

/// The simulated system, mounted as a file.
struct System(Mounted);

impl System {
    fn new(program: &Path, write_cache: &str) -> Result<System> {
        let set = format!("write_cache={write_cache}");
        Mounted::new(program, &[SYSTEM, "--set", &set], Priority::RealTime).map(System)
    }

    /// Measures the rate of a point with `halfpower run` (MB/s).
    fn by_halfpower(&self, program: &Path, point: &Point, seconds: u32) -> Result<f64> {
        let mut command = Command::new(program);
        command.args(["run", &self.0.file, "--rw", &point.operation, "--iodepth", "1"]);
        command.args(["--bs", &format!("{}k", point.request_kib)]);
        command.args(["--runtime", &seconds.to_string(), "--trials", "1", "--no-store"]);
        command.args(["--json", "--quiet", &format!("--overwrite={}", self.0.file)]);
        let json = json_of(&mut command)?;
        rate(&json["summary"]["throughput_bytes_per_s"]["median"])
    }

    /// Measures the rate of a point with fio (MB/s).
    fn by_fio(&self, point: &Point, seconds: u32) -> Result<f64> {
        let mut command = Command::new("fio");
        command.args(["--name=figure3", "--direct=1", "--ioengine=psync", "--time_based"]);
        command.args(["--output-format=json", &format!("--filename={}", self.0.file)]);
        command.args([&format!("--rw={}", point.operation), &format!("--runtime={seconds}")]);
        command.arg(format!("--bs={}k", point.request_kib));
        let json = json_of(&mut command)?;
        rate(&json["jobs"][0][&point.operation]["bw_bytes"])
    }
}

fn rate(bytes_per_s: &Value) -> Result<f64> {
    Ok(bytes_per_s.as_f64().context("a run reported no rate")? / MB)
}

/// Runs a command and parses the JSON that it prints. Text before the JSON, such as warnings, is
/// skipped.
fn json_of(command: &mut Command) -> Result<Value> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let start = text
        .find('{')
        .with_context(|| format!("{command:?} printed no JSON ({})", output.status))?;
    serde_json::from_str(&text[start..])
        .with_context(|| format!("{command:?} printed invalid JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_points_of_the_drive_are_taken() {
        let csv = format!(
            "series,drive,operation,wce,request_kib,value\n\
             Fast Read,another,read,n/a,2,2.4690\n\
             Ultra Write WCE,{DRIVE},write,on,64,8.9584\n"
        );
        let points = parse(&csv).unwrap();
        assert_eq!(points.len(), 1);
        let Point { operation, write_cache, request_kib, mb_per_s, .. } = &points[0];
        assert_eq!((operation.as_str(), write_cache.as_str()), ("write", "on"));
        assert_eq!((*request_kib, *mb_per_s), (64, 8.9584));
        assert!(parse("series,drive\n").is_err() && parse("").is_err());
    }
}
