//! Converts logs without fio's JSON output to a run. All threads whose logs have the same prefix
//! become one point.
//!
//! The logs do not contain the engine, the queue depth or the order of requests. These settings are
//! assumed, and every assumption is listed in the missing information of the run. Logs with
//! different loads are refused, because they may belong to jobs that ran one after the other.

use std::path::Path;

use analysis::histogram::Histogram;
use ioengine::EngineKind;
use lab::failure::{Failure, Outcome};
use lab::machine::{Host, TargetFacts};
use lab::point::{Direction, Point, Trial};
use lab::point_key::PointKey;
use workload::Workload;

use super::rates::{self, Known, Rates};
use super::{FORMAT, Kind, Log};
use crate::checked;
use crate::imported::{self, Imported, UNKNOWN_HOST};

const SECTOR_BYTES: f64 = 512.0;
/// Maximum difference between two threads of one job in the share of reads (0 to 1).
const SHARE_MAX: f64 = 0.2;
/// Maximum ratio between the mean request sizes of two threads of one job.
const SIZE_MAX: f64 = 1.5;

/// Converts logs without fio's JSON output to a run.
///
/// # Errors
/// The logs are empty, have latencies but no rates, or belong to jobs with different loads. The
/// message has one line.
pub fn run(prefix: &str, path: &Path, logs: Vec<Log>) -> Outcome<Imported> {
    if logs.iter().all(|log| log.lines.is_empty()) {
        return Err(Failure::failed("the log is empty; import a log with at least one line"));
    }
    let mut missing = vec!["the settings (assumed: sequential, depth 1, buffered, sync engine)"];
    missing.extend(["the target", "CPU time", "the start time (computed from the file's mtime)"]);
    let (mut trial, threads) = trial(&logs, &mut missing)?;
    if threads > 1 {
        missing.push("whether the threads ran at the same time (this is assumed)");
    }
    missing.sort_unstable();
    missing.dedup();
    let modified = std::fs::metadata(path).and_then(|facts| facts.modified()).ok();
    let modified = modified.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let ended_unix_ns = modified.map_or(0, |at| i64::try_from(at.as_nanos()).unwrap_or(0));
    trial.started_unix_ns = ended_unix_ns.saturating_sub_unsigned(trial.elapsed_ns).max(0);
    Ok(Imported {
        tool: "fio".to_owned(),
        format: FORMAT,
        title: format!("logs of {prefix}"),
        started_unix_ns: trial.started_unix_ns,
        host: Host { name: UNKNOWN_HOST.to_owned(), ..Host::default() },
        target: TargetFacts::default(),
        points: vec![Point { key: key(&trial, threads), trials: vec![trial] }],
        missing: missing.into_iter().map(str::to_owned).collect(),
        document: document(logs),
        supplement: String::new(),
    })
}

/// Concatenates the texts of all logs, each after a line with the file name.
fn document(logs: Vec<Log>) -> String {
    let mut document = String::new();
    for log in logs {
        drop(log.lines);
        let name = log.path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("==> {name} <==\n");
        if document.is_empty() {
            document = log.text;
            document.insert_str(0, &name);
        } else {
            document.push_str(&name);
            document.push_str(&log.text);
        }
    }
    document
}

/// Builds one trial from the logs of all threads. Also returns the number of threads.
fn trial(logs: &[Log], missing: &mut Vec<&'static str>) -> Outcome<(Trial, u32)> {
    let all: Vec<&Log> = logs.iter().collect();
    let known = Known { mean_bytes: None, elapsed_ms: None, end_ms: rates::complete_ms(&all) };
    let mut numbers: Vec<Option<u32>> = logs.iter().map(|log| log.name.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut parts: Vec<(u32, Trial)> = Vec::new();
    let mut threads = 0_u32;
    for number in &numbers {
        let ours: Vec<&Log> = logs.iter().filter(|log| log.name.number == *number).collect();
        let count = ours.iter().map(|log| log.thread_count()).max().unwrap_or(1);
        threads = threads.saturating_add(count);
        let Some(rates) = Rates::of(&ours, known) else { continue };
        if !rates.has_bytes || !rates.has_requests {
            missing.push("the request size (4 KiB is assumed, which is fio's default)");
        }
        parts.push((number.unwrap_or(0), thread(&rates, &ours, missing)));
    }
    let rates = Rates::of(&all, known);
    let (Some(first), Some(rates)) = (parts.first(), rates) else {
        return Err(Failure::failed(
            "a log of mean latencies has no rates; import it with the bw or iops log of the run",
        ));
    };
    same_load(&parts)?;
    overlap(logs)?;
    let mut trial = first.1.clone();
    for (_, other) in parts.iter().skip(1) {
        imported::add_threads(&mut trial, other);
        if !checked::is_storable(&trial) {
            return Err(Failure::failed(
                "the logs have more bytes or requests than can be stored; create them again",
            ));
        }
    }
    if trial.requests() == 0 {
        return Err(Failure::failed("the logs contain no request; let the job run longer"));
    }
    trial.series = rates.series();
    Ok((trial, threads))
}

const REMEDY: &str = "import the logs together with the JSON output of the run \
                      (--output-format=json), or import each log separately";

/// Checks that all threads have about the same load. Threads with different loads belong to
/// different jobs, which may have run one after the other.
fn same_load(threads: &[(u32, Trial)]) -> Outcome<()> {
    let share = |trial: &Trial| trial.directions[0].bytes as f64 / trial.bytes().max(1) as f64;
    let size = |trial: &Trial| trial.bytes() as f64 / trial.requests().max(1) as f64;
    let Some((first, load)) = threads.first() else { return Ok(()) };
    for (other, other_load) in threads {
        let sizes = size(load).max(1.0) / size(other_load).max(1.0);
        let is_other_size = !(SIZE_MAX.recip()..=SIZE_MAX).contains(&sizes);
        if (share(load) - share(other_load)).abs() > SHARE_MAX || is_other_size {
            return Err(Failure::failed(format!(
                "logs {first} and {other} have different loads, so they belong to two jobs, which \
                 may have run one after the other; {REMEDY}"
            )));
        }
    }
    Ok(())
}

/// Checks that the times of all logs overlap.
fn overlap(logs: &[Log]) -> Outcome<()> {
    let with_lines = || logs.iter().filter(|log| !log.lines.is_empty());
    let start_ms = |log: &Log| {
        // A mean covers the time before its line, so the log begins one step before the first line.
        let back_ms = if log.is_single() { 0 } else { log.step_ms };
        log.lines.iter().map(|line| line.ms()).min().unwrap_or(0).saturating_sub(back_ms)
    };
    let end_ms = |log: &Log| log.lines.iter().map(|line| line.ms()).max().unwrap_or(0);
    let latest = with_lines().max_by_key(|log| start_ms(log));
    let earliest = with_lines().min_by_key(|log| end_ms(log));
    match (latest, earliest) {
        (Some(latest), Some(earliest)) if start_ms(latest) > end_ms(earliest) => {
            let name = |log: &Log| log.path.file_name().unwrap_or_default().display().to_string();
            let (before, after) = (name(earliest), name(latest));
            Err(Failure::failed(format!("{after} begins after the end of {before}; {REMEDY}")))
        }
        _ => Ok(()),
    }
}

/// Builds a trial from the logs with the same thread number. The trial has latencies only if a log
/// has the latency of each request.
fn thread(rates: &Rates, logs: &[&Log], missing: &mut Vec<&'static str>) -> Trial {
    let elapsed_ns = rates.edges.last().map_or(1, |last| last.saturating_mul(1_000_000));
    let latencies = [Kind::Latency, Kind::Completion]
        .iter()
        .find_map(|kind| logs.iter().find(|log| log.kind == *kind && log.is_single()));
    if latencies.is_none() {
        missing.push("latencies of individual requests");
    }
    let direction = |direction: usize| {
        let mut latency = Histogram::new();
        let (bytes, requests) = rates.totals(direction);
        let lines = latencies.iter().flat_map(|log| log.transfers());
        lines
            .filter(|line| line.direction() == direction)
            .for_each(|line| latency.record(line.value()));
        Direction { bytes: bytes.round() as u64, requests: requests.round() as u64, latency }
    };
    let mut trial =
        Trial { directions: [direction(0), direction(1)], elapsed_ns, ..Trial::default() };
    trial.cpu.elapsed_ns = elapsed_ns;
    trial
}

/// Rounds a mean request size to a multiple of the sector size if this changes the mean by at most
/// 1%. The mean is not exact, because fio logs rates as whole numbers.
fn size(mean_bytes: f64) -> u32 {
    let whole = ((mean_bytes / SECTOR_BYTES).round() * SECTOR_BYTES).max(SECTOR_BYTES);
    let is_off = (whole / mean_bytes - 1.0).abs() > 0.01;
    (if is_off { mean_bytes.round() } else { whole }).max(1.0) as u32
}

fn key(trial: &Trial, threads: u32) -> PointKey {
    let [read, write] = &trial.directions;
    let all = (read.requests + write.requests).max(1);
    let workload = Workload {
        engine_kind: EngineKind::Sync,
        read_percent: (100.0 * read.requests as f64 / all as f64).round() as u8,
        request_bytes: size(trial.bytes() as f64 / all as f64),
        threads,
        region_bytes: trial.bytes(),
        ..Workload::default()
    };
    PointKey::of(&workload)
}
