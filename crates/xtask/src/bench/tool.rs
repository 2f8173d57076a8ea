//! Runs a tool once, measures its CPU time, and parses the results that the tool prints.
//!
//! The CPU time is that of the tool and of all its child processes, including their start-up. It is
//! measured in the same way for every tool. The rate is the one that the tool reports.

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// The results that a tool prints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Number of completed requests.
    pub requests: f64,
    /// Number of completed requests per second, as the tool measured it.
    pub requests_per_s: f64,
}

/// The rate and the CPU time of one run of a tool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// Number of completed requests per second, as the tool reports it.
    pub requests_per_s: f64,
    /// User and system CPU time of the whole process, divided by the number of requests (ns).
    pub cpu_ns_per_request: f64,
}

/// A function that parses the standard output of a tool.
pub type Parser = fn(&str) -> Result<Report>;

/// A tool and its command line in one case of a benchmark.
pub struct Contestant {
    /// Name of the tool in messages and in the table.
    pub name: &'static str,
    /// The program, followed by its arguments.
    pub command: Vec<OsString>,
    /// Parser of the tool's standard output.
    pub parse: Parser,
}

impl Contestant {
    /// Runs the tool on one core with the working directory `folder`, and waits until it exits.
    pub fn run(&self, core: usize, folder: &Path) -> Result<Measurement> {
        let mut command = Command::new("taskset");
        command.arg("--cpu-list").arg(core.to_string()).args(&self.command).current_dir(folder);
        let before = cpu_ns_of_children()?;
        let output = command.output().context("cannot start taskset; install `util-linux`")?;
        let cpu_ns = cpu_ns_of_children()? - before;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            bail!("{} failed ({}): {command:?}\n{}", self.name, output.status, words.trim());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let report = (self.parse)(&text)
            .with_context(|| format!("cannot parse the output of {} ({command:?})", self.name))?;
        if report.requests < 1.0 {
            bail!("{} completed no requests: {command:?}", self.name);
        }
        Ok(Measurement {
            requests_per_s: report.requests_per_s,
            cpu_ns_per_request: cpu_ns as f64 / report.requests,
        })
    }
}

/// Returns the total CPU time of all child processes that have ended and were waited for (ns). Runs
/// are sequential, so the increase of this value during a run is the CPU time of the run.
pub fn cpu_ns_of_children() -> Result<i64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage failed")?;
    let nanoseconds = |time: fn(&Usage) -> TimeVal| time(&usage).num_nanoseconds();
    Ok(nanoseconds(Usage::user_time) + nanoseconds(Usage::system_time))
}

/// Parses the JSON of `halfpower run --json`. Returns an error if a request failed.
pub fn parse_halfpower(text: &str) -> Result<Report> {
    let json: Value = serde_json::from_str(text).context("the output is not JSON")?;
    let trials = json["trials"].as_array().context("the JSON has no array `trials`")?;
    let sum = |field: &str| -> Result<f64> {
        let values = trials.iter().map(|trial| trial[field].as_f64());
        values.sum::<Option<f64>>().with_context(|| format!("a trial has no `{field}`"))
    };
    let (requests, errors) = (sum("requests")?, sum("errors")?);
    if errors > 0.0 {
        bail!("{errors} requests failed");
    }
    Ok(Report { requests, requests_per_s: requests / (sum("elapsed_ns")? / 1e9) })
}

/// Accepts any JSON and counts the whole command as one request. The CPU time per request is then
/// the CPU time of the command.
pub fn parse_whole(text: &str) -> Result<Report> {
    let _: Value = serde_json::from_str(text).context("the output is not JSON")?;
    Ok(Report { requests: 1.0, requests_per_s: 1.0 })
}

/// Parses the output of `fio --output-format=json`. Warnings before the JSON are skipped.
pub fn parse_fio(text: &str) -> Result<Report> {
    let start = text.find('{').ok_or_else(|| anyhow!("the output has no JSON"))?;
    let json: Value = serde_json::from_str(&text[start..]).context("the output is not JSON")?;
    let jobs = json["jobs"].as_array().context("the JSON has no array `jobs`")?;
    let mut report = Report { requests: 0.0, requests_per_s: 0.0 };
    for job in jobs {
        if job["error"].as_i64() != Some(0) {
            bail!("a job failed with error {}", job["error"]);
        }
        for direction in ["read", "write"] {
            let figures = &job[direction];
            report.requests += figures["total_ios"].as_f64().context("a job has no `total_ios`")?;
            report.requests_per_s += figures["iops"].as_f64().context("a job has no `iops`")?;
        }
    }
    Ok(report)
}

/// Parses the lines `IOPS=1.95M, BW=...` that t/io_uring prints once per second. The tool does not
/// print the number of requests, so this number is computed as the sum of the rates.
pub fn parse_t_io_uring(text: &str) -> Result<Report> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("IOPS="));
    let rates: Vec<f64> =
        lines.map(|line| scaled(line.split(',').next().unwrap_or(line))).collect::<Result<_>>()?;
    if rates.is_empty() {
        bail!("the output has no line `IOPS=...`");
    }
    let requests: f64 = rates.iter().sum();
    Ok(Report { requests, requests_per_s: requests / rates.len() as f64 })
}

/// Parses a number with an optional decimal suffix K, M or G.
fn scaled(text: &str) -> Result<f64> {
    let (digits, scale) = match text.trim() {
        text if text.ends_with('K') => (text.trim_end_matches('K'), 1e3),
        text if text.ends_with('M') => (text.trim_end_matches('M'), 1e6),
        text if text.ends_with('G') => (text.trim_end_matches('G'), 1e9),
        text => (text, 1.0),
    };
    let number: f64 = digits.parse().with_context(|| format!("not a rate: {text}"))?;
    Ok(number * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halfpower_is_read_as_the_sum_of_its_trials() {
        let json = r#"{"trials": [
            {"bytes": 4096, "requests": 1000, "errors": 0, "elapsed_ns": 500000000},
            {"bytes": 4096, "requests": 2000, "errors": 0, "elapsed_ns": 1000000000}],
            "verdict": {"state": "valid", "reasons": []}}"#;
        let report = parse_halfpower(json).unwrap();
        assert_eq!(report, Report { requests: 3000.0, requests_per_s: 2000.0 });
    }

    #[test]
    fn failed_requests_and_missing_fields_are_errors() {
        let failed = r#"{"trials": [{"requests": 1, "errors": 2, "elapsed_ns": 1}]}"#;
        assert!(parse_halfpower(failed).unwrap_err().to_string().contains("2 requests failed"));
        let missing = r#"{"trials": [{"requests": 1, "errors": 0}]}"#;
        assert!(parse_halfpower(missing).unwrap_err().to_string().contains("elapsed_ns"));
        assert!(parse_halfpower("no").is_err());
    }

    #[test]
    fn fio_is_read_after_its_warnings_and_over_both_directions() {
        let json = r#"fio: a warning
            {"jobs": [{"error": 0,
                "read": {"total_ios": 300, "iops": 100.5, "bw_bytes": 1},
                "write": {"total_ios": 30, "iops": 10.0, "bw_bytes": 1}}]}"#;
        let report = parse_fio(json).unwrap();
        assert_eq!(report, Report { requests: 330.0, requests_per_s: 110.5 });
        assert!(parse_fio(r#"{"jobs": [{"error": 28}]}"#).is_err());
    }

    #[test]
    fn t_io_uring_is_read_with_its_suffixes() {
        let text = "submitter=0\nIOPS=1.90M, BW=7.42GiB/s, IOS/call=32/32\n\
                    IOPS=1900K, BW=7GiB/s, IOS/call=32/31\nExiting on timeout\n\
                    Maximum IOPS=1.90M\n";
        assert_eq!(parse_t_io_uring(text).unwrap().requests_per_s, 1.9e6);
        assert!(parse_t_io_uring("Maximum IOPS=1.90M\n").is_err());
    }

    #[test]
    fn a_run_is_charged_the_cpu_time_of_the_child() {
        let spin = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done";
        let contestant = Contestant {
            name: "spin",
            command: ["sh", "-c", spin].map(OsString::from).to_vec(),
            parse: |text| {
                assert_eq!(text, "done\n");
                Ok(Report { requests: 1.0, requests_per_s: 7.0 })
            },
        };
        let core = super::super::host::last_allowed_core().unwrap();
        let measured = contestant.run(core, Path::new(".")).unwrap();
        assert_eq!(measured.requests_per_s, 7.0);
        assert!(measured.cpu_ns_per_request > 0.0);
    }

    #[test]
    fn a_failing_tool_is_reported_with_its_output() {
        let contestant = Contestant {
            name: "broken",
            command: ["sh", "-c", "echo because >&2; exit 3"].map(OsString::from).to_vec(),
            parse: parse_fio,
        };
        let core = super::super::host::last_allowed_core().unwrap();
        let error = contestant.run(core, Path::new(".")).unwrap_err().to_string();
        assert!(error.contains("broken") && error.contains("because"), "{error}");
    }
}
