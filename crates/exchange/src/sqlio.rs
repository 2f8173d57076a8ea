//! Imports and exports trace files in the format of SQLIO, the disk benchmark of Chung et al.
//! (2000). Each line has fourteen fields. The subcommand `classic sqlio` writes the same format.
//!
//! Lines with the same settings are trials of one point. A line does not state whether requests
//! were sequential or random, and has no latencies.

use cpucost::CpuUsage;
use ioengine::EngineKind;
use lab::failure::{Failure, Outcome};
use lab::machine::{Host, TargetFacts};
use lab::point::{Direction, Point, Trial};
use lab::point_key::PointKey;
use papers::classic::trace::{self, TraceLine};
use workload::Workload;

use crate::checked;
use crate::imported::{self, Imported, Trials, UNKNOWN_HOST};

/// Name of this format in the database.
pub const FORMAT: &str = "sqlio-csv";
/// Bytes per MB in a trace file.
const MB: f64 = 1_048_576.0;
/// Bytes per KB in a trace file.
const KB: f64 = 1024.0;
/// Maximum fraction by which MB/s may exceed IO/s times the block size.
const EXCESS_MAX: f64 = 0.02;
/// Maximum rounding error of the fields MB/s, IO/s and BlockSize, which have three decimals.
const ROUNDING: f64 = 0.000_5;
/// Maximum number of points that one trace may contain.
const POINTS_MAX: usize = 100_000;

/// Returns true if `text` starts with the header of a trace file.
pub fn is_trace(text: &str) -> bool {
    let first = text.lines().next();
    first.is_some_and(|line| line.trim_end() == trace::header())
}

/// Parses a trace file.
///
/// # Errors
/// The trace has an invalid line, too many points, or no data lines.
pub fn read(text: &str) -> Outcome<Vec<Imported>> {
    let mut trials = Trials::default();
    let (mut title, mut has_mix, mut has_sizes) = (String::new(), false, false);
    for (number, line) in (2..).zip(text.lines().skip(1)) {
        if line.trim().is_empty() {
            continue;
        }
        let failed = |why: String| {
            Failure::failed(format!("line {number}: {why}; restore the line or remove it"))
        };
        let line: TraceLine = line.parse().map_err(failed)?;
        let (key, trial) = test(&line).map_err(failed)?;
        has_sizes |= excess(&line) < -EXCESS_MAX;
        has_mix |= line.operation == "mix";
        if title.is_empty() {
            title.clone_from(&line.comment);
        }
        trials.add(key, trial);
        if trials.points.len() > POINTS_MAX {
            return Err(Failure::failed(format!(
                "the trace has more than {POINTS_MAX} different tests; split the trace"
            )));
        }
    }
    let points = trials.points;
    let started = points.iter().flat_map(|point| &point.trials).map(|t| t.started_unix_ns).min();
    let Some(started_unix_ns) = started else {
        return Err(Failure::failed(
            "nothing to import, because the trace has no data lines; specify another trace",
        ));
    };
    let missing = ["whether requests were random", "latencies", "the rate over time"];
    let share = has_mix.then_some("the share of reads (50% is assumed)");
    let sizes =
        has_sizes.then_some("the request sizes (some requests were smaller than the block)");
    Ok(vec![Imported {
        tool: "sqlio".to_owned(),
        format: FORMAT,
        title: if title.is_empty() { "trace".to_owned() } else { title },
        started_unix_ns,
        host: Host { name: UNKNOWN_HOST.to_owned(), ..Host::default() },
        target: TargetFacts::default(),
        points,
        missing: missing.into_iter().chain(share).chain(sizes).map(str::to_owned).collect(),
        document: text.to_owned(),
        supplement: String::new(),
    }])
}

/// Returns the fraction by which MB/s exceeds IO/s times the block size. The result is negative if
/// MB/s is smaller, and 0 if the rounding of the fields explains the difference.
fn excess(line: &TraceLine) -> f64 {
    let most = (line.io_per_s + ROUNDING) * (line.block_kb + ROUNDING) * KB;
    let least = (line.io_per_s - ROUNDING).max(0.0) * (line.block_kb - ROUNDING).max(0.0) * KB;
    let bytes = line.mb_per_s * MB;
    if bytes - ROUNDING * MB > most {
        bytes / most - 1.0
    } else if bytes + ROUNDING * MB < least {
        bytes / least - 1.0
    } else {
        0.0
    }
}

/// Converts a line to a trial and to the key of the point that the trial belongs to.
fn test(line: &TraceLine) -> Result<(PointKey, Trial), String> {
    let block_bytes = (line.block_kb * KB).round();
    if line.threads == 0 || block_bytes == 0.0 || line.clock_s == 0.0 {
        return Err("the number of threads, the block size or the time is 0".to_owned());
    }
    let block_bytes =
        checked::whole(block_bytes, u64::from(u32::MAX)).ok_or("BlockSize is more than 4 GiB")?;
    let file_bytes = checked::whole((line.file_kb * KB).round(), checked::NUMBER_MAX);
    let file_bytes = file_bytes.ok_or("FileSize is too large")?;
    if excess(line) > EXCESS_MAX {
        return Err("MB/s is larger than IO/s times BlockSize".to_owned());
    }
    let trial = trial(line)?;
    Ok((key(line, block_bytes as u32, file_bytes)?, trial))
}

fn time_ns(what: &str, seconds: f64) -> Result<u64, String> {
    let time = imported::time_ns(what, seconds);
    time.map_err(|_| format!("{what} is {} s", checked::short(seconds)))
}

fn key(line: &TraceLine, block_bytes: u32, file_bytes: u64) -> Result<PointKey, String> {
    let workload = Workload {
        engine_kind: if line.outstanding == 0 { EngineKind::Sync } else { EngineKind::Libaio },
        read_percent: match line.operation.as_str() {
            "write" => 0,
            "read" => 100,
            _ => 50,
        },
        request_bytes: block_bytes,
        depth: line.outstanding.max(1),
        threads: line.threads,
        region_bytes: file_bytes,
        limit_ns: line.time_s.map(|seconds| time_ns("Time", seconds)).transpose()?,
        ..Workload::default()
    };
    let caching = trace::caching(line.buffering);
    Ok(PointKey { caching, ..PointKey::of(&workload) })
}

fn trial(line: &TraceLine) -> Result<Trial, String> {
    let elapsed_ns = time_ns("Clock(s)", line.clock_s)?;
    if elapsed_ns == 0 {
        return Err("Clock(s) is less than 1 ns".to_owned());
    }
    let user_ns = time_ns("User(ms)", line.user_ms / 1e3)?;
    let system_ns = time_ns("Kernel(ms)", line.kernel_ms / 1e3)?;
    let amount = |what: &str, per_s: f64| {
        let amount = checked::whole((per_s * line.clock_s).round(), checked::NUMBER_MAX);
        amount.ok_or_else(|| format!("the product of {what} and Clock(s) is too large"))
    };
    let bytes = amount("MB/s", line.mb_per_s * MB)?;
    let requests = amount("IO/s", line.io_per_s)?;
    let all = Direction { bytes, requests, ..Direction::default() };
    let half = Direction { bytes: bytes / 2, requests: requests / 2, ..Direction::default() };
    let (bytes, requests) = (bytes - half.bytes, requests - half.requests);
    let rest = Direction { bytes, requests, ..Direction::default() };
    let directions = match line.operation.as_str() {
        "read" => [all, Direction::default()],
        "write" => [Direction::default(), all],
        _ => [half, rest],
    };
    let trial = Trial {
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
    };
    if checked::is_storable(&trial) {
        Ok(trial)
    } else {
        Err("User(ms) and Kernel(ms) are too large".to_owned())
    }
}

/// Formats points as a trace file: a header, then one line for each trial. Trials with a soaker
/// (idle-priority spinners on all CPUs) are left out, unless all trials of the point had a soaker.
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
        assert!(read(&text).unwrap_err().message.starts_with("line 2: the line has 3 fields"));
        let idle = "10,160,mix,64,8,H,0,30,1,30,1,2,2026-11-21 20:45:08,";
        let text = format!("{}\n{idle}\n", trace::header());
        assert!(read(&text).unwrap_err().message.starts_with("line 2: the number of threads"));
        let mix = read(&text.replace("H,0", "H,1")).unwrap().remove(0);
        assert_eq!(mix.points[0].trials[0].requests(), 4800);
        assert!(mix.missing.iter().any(|text| text.contains("share of reads")));
        assert!(read(&trace::header()).unwrap_err().message.contains("nothing to import"));
    }
    const GOOD: &str = "10.000,2560.000,read,4,1,H,1,2,65536,2.000,10,20,2026-11-24 10:43:16,c";

    #[test]
    fn lines_may_end_as_on_windows() {
        let text = format!("{}\r\n{GOOD}\r\n", trace::header());
        assert!(is_trace(&text));
        let trial = &read(&text).unwrap()[0].points[0].trials[0];
        assert_eq!((trial.bytes(), trial.requests()), (20 << 20, 5120));
    }

    #[test]
    fn numbers_that_contradict_each_other_or_cannot_be_stored_are_refused_with_the_line() {
        for (from, to, cause) in [
            ("10.000,", "10000,", "MB/s is larger than IO/s"),
            ("10.000,", "1e300,", "MB/s is larger than IO/s"),
            ("read,4,", "read,1e20,", "BlockSize is more than 4 GiB"),
            ("read,4,", "read,0.0001,", "the block size or the time is 0"),
            (",2.000,", ",1e-12,", "Clock(s) is less than 1 ns"),
            (",2.000,", ",1e15,", "Clock(s)"),
            ("65536", "1e300", "FileSize is too large"),
            (",2,65536", ",1e300,65536", "Time"),
            ("10.000,2560.000", "1e15,2.56e17", "the product of MB/s and Clock(s) is too large"),
            (",10,20,", ",9e12,9e12,", "User(ms) and Kernel(ms)"),
        ] {
            let text = format!("{}\n{}\n", trace::header(), GOOD.replacen(from, to, 1));
            let failure = read(&text).unwrap_err();
            assert!(failure.message.starts_with("line 2: "), "{failure}");
            assert!(failure.message.contains(cause), "{to}: {failure}");
        }
    }

    #[test]
    fn requests_smaller_than_the_block_are_accepted_and_said() {
        let line = GOOD.replacen("10.000,", "5.000,", 1);
        let run = read(&format!("{}\n{line}\n", trace::header())).unwrap().remove(0);
        assert!(run.missing.iter().any(|text| text.contains("smaller than the block")));
    }
}
