//! fio's JSON and JSON+ output: its fields, for reading and for writing.
//!
//! Names and units are those of fio 3 (`stat.c`, and outputs of fio 3.33): rates `bw` in KiB/s,
//! times `_ns` in ns, `runtime` in ms. fio prints messages before the document, and with
//! `--status-interval` several documents; the last complete document is used.

use std::collections::BTreeMap;

use lab::failure::{Failure, Outcome};
use serde::{Deserialize, Serialize};

/// Maximum number of positions at which a document is searched for, so that hostile texts take
/// little time.
const ATTEMPTS_MAX: usize = 1000;

/// Names and values.
pub type Texts = BTreeMap<String, String>;
/// Shares (percent) by the upper end of an interval.
pub type Shares = BTreeMap<String, f64>;

/// One document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Version of fio, such as `fio-3.33`.
    #[serde(rename = "fio version")]
    pub version: String,
    /// End (s since 1970).
    #[serde(default)]
    pub timestamp: i64,
    /// End (ms since 1970).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_ms: Option<i64>,
    /// End, as readable text.
    #[serde(default)]
    pub time: String,
    /// Options of all jobs.
    #[serde(rename = "global options", default, skip_serializing_if = "Option::is_none")]
    pub global_options: Option<Globals>,
    /// The jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<Job>>,
    /// The jobs of all servers, in client mode; the last entry is their sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_stats: Option<Vec<Job>>,
}

/// Global options, either of one server or of each server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Globals {
    /// Options of fio itself, or of the only server.
    One(Texts),
    /// Options of several servers.
    Each(Vec<Texts>),
}

/// One job, thread or group of threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Job {
    /// Name.
    pub jobname: String,
    /// Group; jobs of one group ran at the same time.
    pub groupid: u64,
    /// Start (ms since 1970).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_start: Option<i64>,
    /// Error number; 0 if there was none.
    pub error: i64,
    /// Estimated time left (s).
    pub eta: u64,
    /// Time since the start of fio (s).
    pub elapsed: u64,
    /// The job's own options.
    #[serde(rename = "job options", skip_serializing_if = "Option::is_none")]
    pub options: Option<Texts>,
    /// Reads.
    pub read: Direction,
    /// Writes.
    pub write: Direction,
    /// Trims.
    pub trim: Direction,
    /// Flushes.
    pub sync: Flushes,
    /// Time of all threads (ms).
    pub job_runtime: u64,
    /// User time (percent of `job_runtime`).
    pub usr_cpu: f64,
    /// System time (percent of `job_runtime`).
    pub sys_cpu: f64,
    /// Context switches.
    pub ctx: u64,
    /// Major page faults.
    pub majf: u64,
    /// Minor page faults.
    pub minf: u64,
    /// Depth when requests were submitted.
    pub iodepth_level: Shares,
    /// Requests in a submission.
    pub iodepth_submit: Shares,
    /// Requests in a completion.
    pub iodepth_complete: Shares,
    /// Latencies below 1 us.
    pub latency_ns: Shares,
    /// Latencies below 1 ms.
    pub latency_us: Shares,
    /// Latencies of 1 ms and more.
    pub latency_ms: Shares,
    /// Queue depth.
    pub latency_depth: u64,
    /// Latency target (us).
    pub latency_target: u64,
    /// Percentile of the latency target.
    pub latency_percentile: f64,
    /// Window of the latency target (us).
    pub latency_window: u64,
    /// Errors of all requests, with `continue_on_error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_err: Option<u64>,
    /// Server, in client mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

/// Requests of one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Direction {
    /// Bytes transferred.
    pub io_bytes: u64,
    /// KiB transferred.
    pub io_kbytes: u64,
    /// Bytes per second.
    pub bw_bytes: u64,
    /// KiB per second.
    pub bw: u64,
    /// Requests per second.
    pub iops: f64,
    /// Length of the job (ms).
    pub runtime: u64,
    /// Number of requests.
    pub total_ios: u64,
    /// Short transfers.
    pub short_ios: u64,
    /// Dropped requests.
    pub drop_ios: u64,
    /// Time to submit.
    pub slat_ns: Latency,
    /// Time from submission to completion.
    pub clat_ns: Latency,
    /// Time from the start of the submission to completion.
    pub lat_ns: Latency,
    /// Lowest rate of an interval (KiB/s).
    pub bw_min: u64,
    /// Highest rate of an interval (KiB/s).
    pub bw_max: u64,
    /// Share of the group's rate (percent).
    pub bw_agg: f64,
    /// Mean rate of the intervals (KiB/s).
    pub bw_mean: f64,
    /// Standard deviation of the intervals (KiB/s).
    pub bw_dev: f64,
    /// Number of intervals.
    pub bw_samples: u64,
    /// Lowest requests per second of an interval.
    pub iops_min: u64,
    /// Highest requests per second of an interval.
    pub iops_max: u64,
    /// Mean requests per second of the intervals.
    pub iops_mean: f64,
    /// Standard deviation of the intervals (requests per second).
    pub iops_stddev: f64,
    /// Number of intervals.
    pub iops_samples: u64,
}

/// Latencies (ns).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// Smallest.
    pub min: u64,
    /// Largest.
    pub max: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Number of requests.
    #[serde(rename = "N")]
    pub count: u64,
    /// Latencies by percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentile: Option<BTreeMap<String, u64>>,
    /// Number of requests by the midpoint of their bucket (JSON+).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bins: Option<BTreeMap<String, u64>>,
}

/// Flushes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flushes {
    /// Number of flushes.
    pub total_ios: u64,
    /// Latencies of flushes.
    pub lat_ns: Latency,
}

impl Output {
    /// All jobs; in client mode without the sum over the servers.
    pub fn all_jobs(&self) -> impl Iterator<Item = &Job> {
        let jobs = self.jobs.iter().chain(&self.client_stats).flatten();
        jobs.filter(|job| job.hostname.is_none() || job.jobname != "All clients")
    }

    /// The options of all jobs. If there are several servers, the options of the first.
    pub fn globals(&self) -> Texts {
        match &self.global_options {
            Some(Globals::One(options)) => options.clone(),
            Some(Globals::Each(all)) => all.first().cloned().unwrap_or_default(),
            None => Texts::new(),
        }
    }
}

/// Whether a text is output of fio.
pub fn is_output(text: &str) -> bool {
    text.contains("\"fio version\"")
}

/// A document that was found.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// Content of the document.
    pub output: Output,
    /// Text of the document.
    pub text: &'a str,
    /// Number of complete documents up to and including this one.
    pub documents: usize,
}

/// The last complete document of a text.
///
/// # Errors
/// There is no document, or the first one is damaged.
pub fn parse(text: &str) -> Outcome<Found<'_>> {
    let (mut last, mut documents, mut from) = (None, 0, 0);
    let mut why: Option<Failure> = None;
    for _ in 0..ATTEMPTS_MAX {
        let Some(at) = next_brace(text, from) else { break };
        let mut stream = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Output>();
        match stream.next() {
            Some(Ok(output)) => {
                from = at + stream.byte_offset().max(1);
                documents += 1;
                last = Some(Found { output, text: &text[at..from], documents });
            }
            Some(Err(error)) => {
                let line = text[..at].matches('\n').count() + error.line();
                let cause = error.to_string();
                let cause = cause.split(" at line").next().unwrap_or_default();
                why.get_or_insert_with(|| {
                    Failure::failed(format!(
                        "line {line}: {cause}; import the complete output of fio 3 with \
                         --output-format=json or json+"
                    ))
                });
                if last.is_some() {
                    break;
                }
                from = at + 1;
            }
            None => break,
        }
    }
    let none = || Failure::failed("not a JSON document of fio; use --output-format=json or json+");
    last.ok_or_else(|| why.unwrap_or_else(none))
}

/// The next `{` at the beginning of a line, after optional spaces.
fn next_brace(text: &str, from: usize) -> Option<usize> {
    let is_first = |at: usize| {
        let before = text.as_bytes()[..at].iter().rev().find(|byte| !matches!(byte, b' ' | b'\t'));
        before.is_none_or(|byte| *byte == b'\n')
    };
    text.get(from..)?.match_indices('{').map(|(at, _)| from + at).find(|at| is_first(*at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"{"fio version": "fio-3.33", "jobs": [{"jobname": "a"}]}"#;

    #[test]
    fn messages_before_the_document_are_passed_over() {
        let text = format!("fio: a warning {{x}}\n  {SMALL}\n");
        let found = parse(&text).unwrap();
        assert_eq!((found.output.all_jobs().count(), found.documents), (1, 1));
        assert_eq!(found.text, SMALL);
    }

    #[test]
    fn of_several_documents_the_last_complete_one_counts() {
        let second = SMALL.replace("\"a\"", "\"b\"");
        let text = format!("{SMALL}\n{second}\n{}", &SMALL[..40]);
        let found = parse(&text).unwrap();
        let name = &found.output.all_jobs().next().unwrap().jobname;
        assert_eq!((name.as_str(), found.documents), ("b", 2));
    }

    #[test]
    fn the_sum_of_the_servers_is_not_a_job() {
        let text = r#"{"fio version": "fio-3.33", "client_stats": [
            {"jobname": "a", "hostname": "one"}, {"jobname": "All clients", "hostname": ""}]}"#;
        assert_eq!(parse(text).unwrap().output.all_jobs().count(), 1);
    }

    #[test]
    fn damaged_and_foreign_texts_give_one_line_with_a_remedy() {
        let bomb = format!("{{\"fio version\":\"x\",\"jobs\":{}", "[".repeat(100_000));
        let negative = SMALL.replace("\"a\"", "\"a\", \"error\": 1e999");
        let twice = SMALL.replace("\"jobs\"", "\"fio version\": \"x\", \"jobs\"");
        let cut = &SMALL[..SMALL.len() - 3];
        for text in ["", "{}", "{\n{\n{", "[1]", &bomb, &negative, &twice, cut] {
            let failure = parse(text).unwrap_err();
            assert!(failure.message.contains("--output-format=json"), "{}", failure.message);
            assert_eq!(failure.message.lines().count(), 1);
        }
    }

    #[test]
    fn many_braces_cost_little_time() {
        assert!(parse(&"{\n".repeat(1_000_000)).is_err());
    }
}
