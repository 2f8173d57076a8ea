//! Defines the fields of fio's JSON and JSON+ output, for reading and for writing.
//!
//! Names and units are those of fio 3 (`stat.c`, and outputs of fio 3.33): rates `bw` are in KiB/s,
//! times `_ns` in ns, and `runtime` in ms. fio prints messages before the document and, with
//! `--status-interval`, several documents. The last complete document is used. Fields that
//! halfpower does not need are written for other programs, but are not read.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use lab::failure::{Failure, Outcome};
use serde::de::{DeserializeOwned, Error, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::imported::UNKNOWN_HOST;

/// Maximum number of failed attempts to find a document. This limits the time that a hostile text
/// can take.
const FAILURES_MAX: usize = 1000;
/// Maximum number of entries (jobs or threads) in a document.
pub const JOBS_MAX: usize = 10_000;
/// Beginning of the error message for documents with too many jobs.
const TOO_MANY: &str = "more than 10000 jobs";
/// Value of [`Latency::count`] if the document does not state the count (fio before 3.18).
pub const NOT_STATED: u64 = u64::MAX;
/// Job name that fio gives to the sum over all servers.
const SUM: &str = "All clients";
/// Maximum total size of the copies of the common parts of a document (bytes). A document of
/// several servers is split into one document for each server, each with a copy of these parts.
const COPIES_MAX: usize = 64 << 20;

/// Values of options by option name.
pub type Texts = BTreeMap<String, String>;
/// Histogram with the share of requests (percent) by the upper limit of each bucket.
pub type Shares = BTreeMap<String, f64>;

/// One JSON document of fio.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Version of fio, such as `fio-3.33`.
    #[serde(rename = "fio version")]
    pub version: String,
    /// End of the run (s since 1970).
    #[serde(default)]
    pub timestamp: i64,
    /// End of the run (ms since 1970).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_ms: Option<i64>,
    /// End of the run, as a readable text.
    #[serde(default)]
    pub time: String,
    /// The options of the global sections.
    #[serde(rename = "global options", default, skip_serializing_if = "Option::is_none")]
    pub global_options: Option<Globals>,
    /// The jobs.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "jobs")]
    pub jobs: Option<Vec<Job>>,
    /// The jobs of all servers in client mode. The last entry is the sum over all servers.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "jobs")]
    pub client_stats: Option<Vec<Job>>,
}

/// Global options of a local run, or of the servers in client mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Globals {
    /// The run is local, or has only one server.
    One(Texts),
    /// The run has several servers, each with its options.
    Each(Vec<ServerOptions>),
}

/// Global options of one of several servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerOptions {
    /// Name of the server.
    #[serde(default)]
    pub hostname: String,
    /// Port of the server.
    #[serde(default)]
    pub port: u64,
    /// The options.
    #[serde(flatten)]
    pub options: Texts,
}

/// An entry of the document: a job, a thread of a job, or a group of jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Job {
    /// Name of the job.
    pub jobname: String,
    /// Number of the reporting group. Jobs of one group ran at the same time.
    pub groupid: u64,
    /// Start of the job (ms since 1970). None before fio 3.34.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_start: Option<i64>,
    /// Error number (errno) that ended the job. 0 if there was no error.
    pub error: i64,
    /// Estimated time left (s).
    #[serde(skip_deserializing)]
    pub eta: u64,
    /// Time since the start of fio (s).
    #[serde(skip_deserializing)]
    pub elapsed: u64,
    /// The options of the job's section. None if fio did not print them.
    #[serde(rename = "job options", skip_serializing_if = "Option::is_none")]
    pub options: Option<Texts>,
    /// Statistics of the reads.
    pub read: Direction,
    /// Statistics of the writes.
    pub write: Direction,
    /// Statistics of the trims.
    pub trim: Direction,
    /// Sum of reads, writes and trims, with `unified_rw_reporting`.
    #[serde(skip_serializing)]
    pub mixed: Mixed,
    /// Statistics of the flushes (fsync and similar).
    #[serde(skip_deserializing)]
    pub sync: Flushes,
    /// Run time, summed over all threads (ms).
    pub job_runtime: u64,
    /// CPU time in user mode (percent of `job_runtime`).
    pub usr_cpu: f64,
    /// CPU time in kernel mode (percent of `job_runtime`).
    pub sys_cpu: f64,
    /// Number of context switches.
    #[serde(skip_deserializing)]
    pub ctx: u64,
    /// Number of major page faults.
    #[serde(skip_deserializing)]
    pub majf: u64,
    /// Number of minor page faults.
    #[serde(skip_deserializing)]
    pub minf: u64,
    /// Distribution of the queue depth at the submission of requests.
    #[serde(skip_deserializing)]
    pub iodepth_level: Shares,
    /// Distribution of the number of requests per submit call.
    #[serde(skip_deserializing)]
    pub iodepth_submit: Shares,
    /// Distribution of the number of requests per completion call.
    #[serde(skip_deserializing)]
    pub iodepth_complete: Shares,
    /// Distribution of the latencies below 1 us.
    #[serde(skip_deserializing)]
    pub latency_ns: Shares,
    /// Distribution of the latencies from 1 us to 1 ms.
    #[serde(skip_deserializing)]
    pub latency_us: Shares,
    /// Distribution of the latencies of 1 ms and more.
    #[serde(skip_deserializing)]
    pub latency_ms: Shares,
    /// Queue depth that meets the latency target.
    #[serde(skip_deserializing)]
    pub latency_depth: u64,
    /// Latency target (us).
    #[serde(skip_deserializing)]
    pub latency_target: u64,
    /// Share of requests that must meet the latency target (percent).
    #[serde(skip_deserializing)]
    pub latency_percentile: f64,
    /// Time over which the latency target is checked (us).
    #[serde(skip_deserializing)]
    pub latency_window: u64,
    /// Number of failed requests. fio prints the field only with `continue_on_error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_err: Option<u64>,
    /// Name of the server in client mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

/// Sum over reads, writes and trims.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Mixed {
    /// Number of requests.
    pub total_ios: u64,
}

/// Statistics of the requests of one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Direction {
    /// Number of transferred bytes.
    pub io_bytes: u64,
    /// Number of transferred KiB.
    #[serde(skip_deserializing)]
    pub io_kbytes: u64,
    /// Throughput (bytes per second).
    #[serde(skip_deserializing)]
    pub bw_bytes: u64,
    /// Throughput (KiB/s).
    #[serde(skip_deserializing)]
    pub bw: u64,
    /// Throughput (requests per second).
    #[serde(skip_deserializing)]
    pub iops: f64,
    /// Run time of the job (ms).
    pub runtime: u64,
    /// Number of requests.
    pub total_ios: u64,
    /// Number of requests that transferred fewer bytes than requested.
    pub short_ios: u64,
    /// Number of dropped requests.
    #[serde(skip_deserializing)]
    pub drop_ios: u64,
    /// Submission latencies (fio's `slat`).
    #[serde(skip_deserializing)]
    pub slat_ns: Latency,
    /// Completion latencies: from submission to completion (fio's `clat`).
    pub clat_ns: Latency,
    /// Total latencies: from the start of the submission to completion (fio's `lat`).
    pub lat_ns: Latency,
    /// Throughput of the slowest interval (KiB/s).
    #[serde(skip_deserializing)]
    pub bw_min: u64,
    /// Throughput of the fastest interval (KiB/s).
    #[serde(skip_deserializing)]
    pub bw_max: u64,
    /// Share of this job in the total throughput of its group (percent).
    #[serde(skip_deserializing)]
    pub bw_agg: f64,
    /// Mean throughput of the intervals (KiB/s).
    #[serde(skip_deserializing)]
    pub bw_mean: f64,
    /// Standard deviation of the throughput of the intervals (KiB/s).
    #[serde(skip_deserializing)]
    pub bw_dev: f64,
    /// Number of intervals in the `bw` statistics.
    #[serde(skip_deserializing)]
    pub bw_samples: u64,
    /// Throughput of the slowest interval (requests per second).
    #[serde(skip_deserializing)]
    pub iops_min: u64,
    /// Throughput of the fastest interval (requests per second).
    #[serde(skip_deserializing)]
    pub iops_max: u64,
    /// Mean throughput of the intervals (requests per second).
    #[serde(skip_deserializing)]
    pub iops_mean: f64,
    /// Standard deviation of the throughput of the intervals (requests per second).
    #[serde(skip_deserializing)]
    pub iops_stddev: f64,
    /// Number of intervals in the `iops` statistics.
    #[serde(skip_deserializing)]
    pub iops_samples: u64,
}

/// Statistics of latencies (ns).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// Minimum latency (ns).
    pub min: u64,
    /// Maximum latency (ns).
    pub max: u64,
    /// Mean latency (ns).
    pub mean: f64,
    /// Standard deviation of the latency (ns).
    #[serde(skip_deserializing)]
    pub stddev: f64,
    /// Number of measured latencies. [`NOT_STATED`] if the document does not state the number.
    #[serde(rename = "N", default = "not_stated")]
    pub count: u64,
    /// Latency at each percentile (ns). None if fio printed no percentiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentile: Option<BTreeMap<String, u64>>,
    /// Number of requests in each bucket, by the midpoint of the bucket (ns). None without JSON+.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bins: Option<BTreeMap<String, u64>>,
}

/// Statistics of flushes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flushes {
    /// Number of flushes.
    pub total_ios: u64,
    /// Latencies of flushes.
    pub lat_ns: Latency,
}

impl Output {
    /// Returns the entries of all jobs. In client mode, skips the sum over all servers.
    pub fn all_jobs(&self) -> impl Iterator<Item = &Job> {
        let jobs = self.jobs.iter().chain(&self.client_stats).flatten();
        jobs.filter(|job| job.hostname.is_none() || job.jobname != SUM)
    }

    /// Returns the global options of a server. If the document has no options of this server,
    /// returns the options of the first server.
    pub fn globals(&self, host: &str) -> Option<&Texts> {
        match self.global_options.as_ref()? {
            Globals::One(options) => Some(options),
            Globals::Each(all) => {
                let named = all.iter().find(|server| server.hostname == host);
                named.or(all.first()).map(|server| &server.options)
            }
        }
    }
}

fn not_stated() -> u64 {
    NOT_STATED
}

/// Deserializes the list of jobs. Fails if there are more than [`JOBS_MAX`] jobs, to limit the
/// memory that a hostile text can take.
fn jobs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Job>>, D::Error> {
    struct Jobs;

    impl<'de> Visitor<'de> for Jobs {
        type Value = Option<Vec<Job>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of jobs")
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut jobs = Vec::new();
            while let Some(job) = list.next_element()? {
                if jobs.len() == JOBS_MAX {
                    return Err(A::Error::custom(TOO_MANY));
                }
                jobs.push(job);
            }
            Ok(Some(jobs))
        }
    }

    deserializer.deserialize_any(Jobs)
}

/// Returns true if a text looks like JSON output of fio.
pub fn is_output(text: &str) -> bool {
    text.contains("\"fio version\"")
}

/// A document that was found in the output of fio.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// The parsed document.
    pub output: Output,
    /// The JSON text of the document.
    pub text: &'a str,
    /// Number of complete documents up to and including this document.
    pub documents: usize,
}

/// Parses the last complete document of a text.
///
/// # Errors
/// The text has no complete document, or a document has too many jobs.
pub fn parse(text: &str) -> Outcome<Found<'_>> {
    let (mut last, mut documents, mut from, mut failures) = (None, 0, 0, 0);
    let mut why: Option<Failure> = None;
    while failures < FAILURES_MAX {
        let Some(at) = next_brace(text, from) else { break };
        let mut stream = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Output>();
        match stream.next() {
            Some(Ok(output)) => {
                from = at + stream.byte_offset().max(1);
                documents += 1;
                last = Some(Found { output, text: &text[at..from], documents });
            }
            Some(Err(error)) if error.to_string().starts_with(TOO_MANY) => {
                return Err(Failure::failed(format!(
                    "fio printed {TOO_MANY}; run fio with --group_reporting or with fewer jobs"
                )));
            }
            Some(Err(error)) => {
                failures += 1;
                from = at + 1;
                if last.is_none() && why.is_none() {
                    let line = text[..at].matches('\n').count() + error.line();
                    let cause = error.to_string();
                    let cause = cause.split(" at line").next().unwrap_or_default();
                    why = Some(Failure::failed(format!(
                        "line {line}: {cause}; import the complete output of fio 3 with \
                         --output-format=json or json+"
                    )));
                }
            }
            None => break,
        }
    }
    let none = || Failure::failed("this is not fio's JSON; use --output-format=json or json+");
    last.ok_or_else(|| why.unwrap_or_else(none))
}

/// Finds the next `{` that begins a line. Spaces and tabs may precede the `{` in its line.
fn next_brace(text: &str, from: usize) -> Option<usize> {
    let is_first = |at: usize| {
        let before = text.as_bytes()[..at].iter().rev().find(|byte| !matches!(byte, b' ' | b'\t'));
        before.is_none_or(|byte| *byte == b'\n')
    };
    text.get(from..)?.match_indices('{').map(|(at, _)| from + at).find(|at| is_first(*at))
}

/// A document with the results of several servers. The document can be split into one document for
/// each server.
#[derive(Debug)]
pub struct Divided<'a> {
    text: &'a str,
    lists: Vec<List>,
}

/// The elements of a JSON list, each with its range in the text and its owner. The range includes
/// the white space before the element.
type List = Vec<(Range<usize>, Belongs)>;

/// The server to which an element of a JSON list belongs. The document has the results of several
/// servers.
#[derive(Debug, PartialEq)]
enum Belongs {
    Server(String),
    /// The element is the sum over all servers. No copy contains the element.
    Sum,
    /// The element belongs to no server. Every copy contains the element.
    All,
}

/// The fields of an element that determine its owner.
#[derive(Deserialize)]
struct Owner {
    hostname: Option<String>,
    jobname: Option<String>,
}

impl Owner {
    fn belongs(self) -> Belongs {
        match (self.hostname.filter(|name| !name.is_empty()), self.jobname) {
            (_, Some(job)) if job == SUM => Belongs::Sum,
            (Some(host), _) => Belongs::Server(host),
            (None, Some(_)) => Belongs::Server(UNKNOWN_HOST.to_owned()),
            (None, None) => Belongs::All,
        }
    }
}

impl<'a> Divided<'a> {
    /// Finds the elements of each server in a complete document of `servers` servers.
    ///
    /// # Errors
    /// A list has unknown elements, or the parts that belong to no server are too large.
    pub fn new(text: &'a str, servers: usize) -> Outcome<Divided<'a>> {
        let lists = lists(text).ok_or_else(|| {
            Failure::failed("a list has unknown elements; import the unchanged output of fio")
        })?;
        let elements = lists.iter().flatten().filter(|(_, belongs)| *belongs != Belongs::All);
        let owned: usize = elements.map(|(range, _)| range.len()).sum();
        if text.len().saturating_sub(owned).saturating_mul(servers) > COPIES_MAX {
            return Err(Failure::failed(format!(
                "the document has {servers} servers, and the part that is common to all servers is \
                 too large to be repeated for each server; import the output of fewer servers"
            )));
        }
        Ok(Divided { text, lists })
    }

    /// Copies the document without the elements of other servers and without the sum over all
    /// servers.
    pub fn of(&self, host: &str) -> String {
        let (mut out, mut copied) = (String::new(), 0);
        for list in &self.lists {
            let Some((first, last)) = list.first().zip(list.last()) else { continue };
            out.push_str(&self.text[copied..first.0.start]);
            let ours = list.iter().filter(|(_, belongs)| match belongs {
                Belongs::Server(name) => name == host,
                Belongs::Sum => false,
                Belongs::All => true,
            });
            let ours: Vec<&str> = ours.map(|(range, _)| &self.text[range.clone()]).collect();
            out.push_str(&ours.join(","));
            copied = last.0.end;
        }
        out.push_str(&self.text[copied..]);
        out
    }
}

/// Finds the lists whose elements may belong to several servers.
fn lists(text: &str) -> Option<Vec<List>> {
    let (mut lists, mut at) = (Vec::new(), after(text, 0, '{')?);
    while after(text, at, '}').is_none() {
        let (key, end) = value::<String>(text, at)?;
        at = after(text, end, ':')?;
        let is_list = ["client_stats", "disk_util", "global options"].contains(&key.as_str());
        at = match after(text, at, '[').filter(|_| is_list) {
            Some(inside) => {
                let (list, end) = list(text, inside)?;
                lists.push(list);
                end
            }
            None => value::<IgnoredAny>(text, at)?.1,
        };
        at = after(text, at, ',').unwrap_or(at);
    }
    Some(lists)
}

/// Parses a list. `at` is the position after `[`. Returns the elements and the end of the list.
fn list(text: &str, mut at: usize) -> Option<(List, usize)> {
    let mut elements = Vec::new();
    loop {
        if let Some(end) = after(text, at, ']') {
            return Some((elements, end));
        }
        let (owner, end) = value::<Owner>(text, at)?;
        elements.push((at..end, owner.belongs()));
        at = after(text, end, ',').unwrap_or(end);
    }
}

/// Parses the JSON value at a position in the text. Also returns the end of the value.
fn value<T: DeserializeOwned>(text: &str, at: usize) -> Option<(T, usize)> {
    let mut stream = serde_json::Deserializer::from_str(text.get(at..)?).into_iter::<T>();
    let value = stream.next()?.ok()?;
    Some((value, at + stream.byte_offset()))
}

/// Skips white space and the character `wanted`. Returns the position after the character, or None
/// if another character follows the white space.
fn after(text: &str, at: usize, wanted: char) -> Option<usize> {
    let rest = text.get(at..)?;
    let found = rest.trim_ascii_start().strip_prefix(wanted)?;
    Some(at + rest.len() - found.len())
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
    fn of_very_many_documents_the_last_one_counts() {
        let last = SMALL.replace("\"a\"", "\"b\"");
        let text = format!("{}{{ a message\n{last}\n", format!("{SMALL}\n").repeat(1500));
        let found = parse(&text).unwrap();
        let name = &found.output.all_jobs().next().unwrap().jobname;
        assert_eq!((name.as_str(), found.documents), ("b", 1501));
    }

    #[test]
    fn too_many_jobs_are_refused_while_they_are_read() {
        for list in ["jobs", "client_stats"] {
            let jobs = "{},".repeat(JOBS_MAX);
            let text = format!("{{\"fio version\":\"fio-3.33\",\"{list}\":[{jobs}{{}},?");
            let message = parse(&text).unwrap_err().message;
            assert!(message.contains(TOO_MANY) && message.contains("--group_reporting"));
        }
        assert!(TOO_MANY.contains(&JOBS_MAX.to_string()));
    }

    #[test]
    fn a_copy_for_one_server_has_nothing_of_the_others() {
        let text = r#"{"fio version": "fio-3.39", "global options": [
            {"hostname": "one", "port": 8765, "rw": "read"}, {"hostname": "two", "bs": "8k"} ],
            "client_stats": [{"jobname": "a", "hostname": "one"},
            {"jobname": "b", "hostname": "two"}, {"jobname": "All clients", "hostname": "two"}],
            "disk_util": [{"name": "vda", "hostname": "two"}, {"name": "vdb"}], "n": 1}"#;
        let copy = Divided::new(text, 2).unwrap().of("two");
        let copy: serde_json::Value = serde_json::from_str(&copy).unwrap();
        let expected = serde_json::json!({
            "fio version": "fio-3.39", "global options": [{"hostname": "two", "bs": "8k"}],
            "client_stats": [{"jobname": "b", "hostname": "two"}],
            "disk_util": [{"name": "vda", "hostname": "two"}, {"name": "vdb"}], "n": 1
        });
        assert_eq!(copy, expected);
        let output = parse(text).unwrap().output;
        let globals = ["one", "two"].map(|host| output.globals(host).unwrap().len());
        assert_eq!(globals, [1, 1]);
        assert!(Divided::new(text, COPIES_MAX).unwrap_err().message.contains("fewer servers"));
    }

    #[test]
    fn many_braces_cost_little_time() {
        assert!(parse(&"{\n".repeat(1_000_000)).is_err());
    }
}
