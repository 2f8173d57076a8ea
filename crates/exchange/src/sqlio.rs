//! The papers' SQLIO: the trace lines of fourteen fields that `classic sqlio` writes, in and out.
//!
//! Lines with the same settings are trials of one point. A line does not say whether requests were
//! sequential or random, and has no latencies.

use cpucost::CpuUsage;
use ioengine::EngineKind;
use lab::failure::{Failure, Outcome};
use lab::machine::{Host, TargetFacts};
use lab::point::{Direction, Point, Trial};
use lab::point_key::PointKey;
use papers::classic::trace::{self, TraceLine};
use workload::Workload;

use crate::imported::{self, Imported, Trials, UNKNOWN_HOST};

/// Format of the document.
pub const FORMAT: &str = "sqlio-csv";
/// Bytes of a MB and a KB in the papers.
const MB: f64 = 1_048_576.0;
const KB: f64 = 1024.0;
/// Maximum number of different tests in a trace.
const POINTS_MAX: usize = 100_000;

/// Whether a text is a trace file.
pub fn is_trace(text: &str) -> bool {
    text.lines().next().is_some_and(|line| line.trim_end() == trace::header())
}

/// Reads a trace file.
///
/// # Errors
/// One line with the number of the damaged line.
pub fn read(text: &str) -> Outcome<Vec<Imported>> {
    let mut trials = Trials::default();
    let (mut title, mut has_mix) = (String::new(), false);
    for (number, line) in (2..).zip(text.lines().skip(1)) {
        if line.trim().is_empty() {
            continue;
        }
        let line: TraceLine = line.parse().map_err(|why| {
            Failure::failed(format!("line {number}: {why}; restore the line or remove it"))
        })?;
        if line.threads == 0 || line.block_kb == 0.0 || line.clock_s == 0.0 {
            return Err(Failure::failed(format!(
                "line {number}: no threads, block size or time; restore the line or remove it"
            )));
        }
        let (key, trial) = (key(&line), trial(&line)?);
        has_mix |= line.operation == "mix";
        if title.is_empty() {
            title.clone_from(&line.comment);
        }
        trials.add(key, trial);
        if trials.points.len() > POINTS_MAX {
            return Err(Failure::failed(format!(
                "more than {POINTS_MAX} different tests; split the trace"
            )));
        }
    }
    let points = trials.points;
    let started = points.iter().flat_map(|point| &point.trials).map(|t| t.started_unix_ns).min();
    let Some(started_unix_ns) = started else {
        return Err(Failure::failed("the trace has no line; nothing to import"));
    };
    let missing = ["whether requests were random", "latencies", "the rate over time"];
    let share = has_mix.then_some("the share of reads (half is assumed)");
    Ok(vec![Imported {
        tool: "sqlio".to_owned(),
        format: FORMAT,
        title: if title.is_empty() { "trace".to_owned() } else { title },
        started_unix_ns,
        host: Host { name: UNKNOWN_HOST.to_owned(), ..Host::default() },
        target: TargetFacts::default(),
        points,
        missing: missing.into_iter().chain(share).map(str::to_owned).collect(),
        document: text.to_owned(),
        supplement: String::new(),
    }])
}

fn key(line: &TraceLine) -> PointKey {
    let workload = Workload {
        engine_kind: if line.outstanding == 0 { EngineKind::Sync } else { EngineKind::Libaio },
        read_percent: match line.operation.as_str() {
            "write" => 0,
            "read" => 100,
            _ => 50,
        },
        request_bytes: (line.block_kb * KB) as u32,
        depth: line.outstanding.max(1),
        threads: line.threads,
        region_bytes: (line.file_kb * KB) as u64,
        limit_ns: line.time_s.map(|seconds| (seconds * 1e9) as u64),
        ..Workload::default()
    };
    let caching = trace::caching(line.buffering);
    PointKey { caching, ..PointKey::of(&workload) }
}

fn trial(line: &TraceLine) -> Outcome<Trial> {
    let elapsed_ns = imported::time_ns("Clock(s)", line.clock_s)?;
    let user_ns = imported::time_ns("User(ms)", line.user_ms / 1e3)?;
    let system_ns = imported::time_ns("Kernel(ms)", line.kernel_ms / 1e3)?;
    let bytes = (line.mb_per_s * MB * line.clock_s).round() as u64;
    let requests = (line.io_per_s * line.clock_s).round() as u64;
    let all = Direction { bytes, requests, ..Direction::default() };
    let half = Direction { bytes: bytes / 2, requests: requests / 2, ..Direction::default() };
    let (bytes, requests) = (bytes - half.bytes, requests - half.requests);
    let rest = Direction { bytes, requests, ..Direction::default() };
    let directions = match line.operation.as_str() {
        "read" => [all, Direction::default()],
        "write" => [Direction::default(), all],
        _ => [half, rest],
    };
    Ok(Trial {
        started_unix_ns: line.started_unix_ns,
        directions,
        elapsed_ns,
        cpu: CpuUsage {
            elapsed_ns,
            process_ns: user_ns.saturating_add(system_ns),
            user_ns,
            system_ns,
            ..CpuUsage::default()
        },
        ..Trial::default()
    })
}

/// The trace of points: a header, and a line for each trial without a soaker.
pub fn trace(points: &[Point], label: Option<&str>) -> String {
    let mut lines = vec![trace::header()];
    for point in points {
        let file_bytes = point.key.size_bytes().saturating_mul(u64::from(point.key.targets));
        let comment = label.unwrap_or_default();
        let line =
            |trial: &&Trial| TraceLine::of(&point.key, trial, file_bytes, comment).to_string();
        lines.extend(point.unsoaked().iter().map(line));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::point::testing::point;

    #[test]
    fn what_is_exported_is_imported_with_the_same_rates() {
        let mut measured = point(&[65536 * 1000, 65536 * 1010]);
        measured.key.workload.request_bytes = 65536;
        measured.key.workload.region_bytes = 1 << 30;
        let text = trace(std::slice::from_ref(&measured), Some("a, b"));
        assert!(is_trace(&text));
        let back = read(&text).unwrap().remove(0);
        assert_eq!((back.points.len(), back.points[0].trials.len()), (1, 2));
        for (ours, theirs) in measured.trials.iter().zip(&back.points[0].trials) {
            assert!((ours.whole_bytes_per_s() / theirs.bytes_per_s() - 1.0).abs() < 1e-3);
        }
        assert_eq!(trace(&back.points, Some("a; b")), text);
    }

    #[test]
    fn a_damaged_line_is_named() {
        let text = format!("{}\n1,2,3\n", trace::header());
        assert!(read(&text).unwrap_err().message.starts_with("line 2: 3 fields"));
        let idle = "10,160,mix,64,8,H,0,30,1,30,1,2,2026-11-21 20:45:08,";
        let text = format!("{}\n{idle}\n", trace::header());
        assert!(read(&text).unwrap_err().message.starts_with("line 2: no threads"));
        let mix = read(&text.replace("H,0", "H,1")).unwrap().remove(0);
        assert_eq!(mix.points[0].trials[0].requests(), 4800);
        assert!(mix.missing.iter().any(|text| text.contains("share of reads")));
        assert!(read(&trace::header()).unwrap_err().message.contains("nothing to import"));
    }
}
