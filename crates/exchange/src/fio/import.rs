//! fio's JSON output as points and trials.
//!
//! A job becomes a point with one trial. Entries with the same name and group are threads of one
//! job, and their counts are summed. In client mode, each server becomes a separate run. The
//! completion latency of fio (`clat`) is imported as the latency if it has percentiles, because fio
//! prints percentiles of the total latency only on request. Logs over time that are imported with
//! the document become the intervals of their job.

use std::collections::BTreeMap;
use std::path::Path;

use analysis::histogram::Histogram;
use cpucost::CpuUsage;
use ioengine::{Caching, EngineKind};
use lab::failure::{Failure, Outcome};
use lab::machine::{Host, TargetFacts};
use lab::point::{Direction, Point, State, Trial};
use lab::point_key::PointKey;
use lab::skew::{self, Split};
use workload::{Arrival, Distribution, Pattern, Workload};

use crate::fio::expression::{Quantity, evaluate};
use crate::fio::keys;
use crate::fio::logs::Logs;
use crate::fio::output::{self, Found, Job, Latency, Output, Texts};
use crate::imported::{self, Imported, UNKNOWN_HOST};

/// Format of the document.
pub const FORMAT: &str = "fio-json";
/// What is missing without logs.
const NO_SERIES: &str = "the rate over time (import it with the logs of write_bw_log)";
/// Options that name the prefix of a log. Without a value, the prefix is the name of the job, and
/// fio does not print the option.
const LOG_OPTIONS: [&str; 3] = ["write_bw_log", "write_iops_log", "write_lat_log"];
/// Maximum number of jobs and threads.
const JOBS_MAX: usize = 10_000;
/// Names of fio's engines that wait for each request.
const SYNCHRONOUS: [&str; 6] = ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"];

/// Reads the last document in fio's output; returns one run for each server, else a single run.
/// Jobs take their logs of `logs` that lie in the folder of the document.
///
/// # Errors
/// One line: the text has no document, a damaged document, or a document without requests.
pub fn read(text: &str, path: &Path, logs: &mut Logs) -> Outcome<Vec<Imported>> {
    let Found { output, text, documents } = output::parse(text)?;
    if output.all_jobs().count() > JOBS_MAX {
        return Err(Failure::failed(format!("more than {JOBS_MAX} jobs; use --group_reporting")));
    }
    let mut by_host: BTreeMap<&str, Vec<&Job>> = BTreeMap::new();
    for job in output.all_jobs() {
        let host = job.hostname.as_deref().filter(|name| !name.is_empty());
        by_host.entry(host.unwrap_or(UNKNOWN_HOST)).or_default().push(job);
    }
    let runs: Outcome<Vec<Imported>> =
        by_host.into_iter().map(|(host, jobs)| run(text, &output, host, &jobs)).collect();
    let mut runs = runs?;
    if let ([run], false) = (runs.as_mut_slice(), logs.is_empty()) {
        let jobs: Vec<&Job> = output.all_jobs().collect();
        let entries = entries(&jobs, &output.globals());
        attach(run, &entries, path.parent().unwrap_or(Path::new("")), logs);
    }
    let mut runs: Vec<Imported> = runs.into_iter().filter(|run| !run.points.is_empty()).collect();
    if runs.is_empty() {
        return Err(Failure::failed("no job of fio completed a request; nothing to import"));
    }
    if documents > 1 {
        let earlier = format!("{} earlier documents of the file", documents - 1);
        runs.iter_mut().for_each(|run| run.missing.push(earlier.clone()));
    }
    Ok(runs)
}

fn run(text: &str, output: &Output, host: &str, jobs: &[&Job]) -> Outcome<Imported> {
    let globals = output.globals();
    let mut points: Vec<((u64, &str), Point)> = Vec::new();
    let mut missing = Vec::new();
    let mut target = TargetFacts::default();
    for job in jobs {
        let requests = job.read.total_ios.saturating_add(job.write.total_ios);
        if requests == 0 {
            continue;
        }
        let mut options = globals.clone();
        options.extend(job.options.clone().unwrap_or_default());
        let given = Given::of(&options);
        let mut trial = trial(job, requests)?;
        trial.started_unix_ns = started_unix_ns(output, job, trial.elapsed_ns);
        if target.name.is_empty() {
            target = given.target();
        }
        let latency = [&job.read, &job.write].map(|direction| &direction.clat_ns);
        if latency.iter().any(|latency| latency.count > 0 && latency.bins.is_none()) {
            missing.push("the latency histogram (use json+)".to_owned());
        }
        let identity = (job.groupid, job.jobname.as_str());
        match points.iter_mut().find(|(known, _)| *known == identity) {
            Some((_, point)) => imported::add_threads(&mut point.trials[0], &trial),
            None => {
                let key = given.key(&trial, &mut missing);
                points.push((identity, Point { key, trials: vec![trial] }));
            }
        }
    }
    missing.push(NO_SERIES.to_owned());
    missing.sort();
    missing.dedup();
    let names: Vec<&str> = points.iter().map(|((_, name), _)| *name).collect();
    Ok(Imported {
        tool: output.version.clone(),
        format: FORMAT,
        title: match names.as_slice() {
            [one] => format!("job {one}"),
            [first, rest @ ..] if rest.len() > 2 => {
                format!("jobs {first} and {} more", rest.len())
            }
            few => format!("jobs {}", few.join(", ")),
        },
        started_unix_ns: points.iter().map(|(_, p)| p.trials[0].started_unix_ns).min().unwrap_or(0),
        host: Host { name: host.to_owned(), ..Host::default() },
        target,
        points: points.into_iter().map(|(_, point)| point).collect(),
        missing,
        document: text.to_owned(),
        supplement: String::new(),
    })
}

/// A job with its threads, as far as its logs need it.
struct Entry<'a> {
    identity: (u64, &'a str),
    threads: u32,
    has_requests: bool,
    /// What the names of its logs may begin with.
    prefixes: Vec<String>,
}

/// The jobs. An entry with `group_reporting` stands for all threads of its job.
fn entries<'a>(jobs: &[&'a Job], globals: &Texts) -> Vec<Entry<'a>> {
    let mut entries: Vec<Entry<'a>> = Vec::new();
    let mut stated = Vec::new();
    for job in jobs {
        let identity = (job.groupid, job.jobname.as_str());
        let has_requests = job.read.total_ios.saturating_add(job.write.total_ios) > 0;
        if let Some(entry) = entries.iter_mut().find(|entry| entry.identity == identity) {
            entry.threads += 1;
            entry.has_requests |= has_requests;
            continue;
        }
        let mut options = globals.clone();
        options.extend(job.options.clone().unwrap_or_default());
        let named = LOG_OPTIONS.iter().filter_map(|option| options.get(*option).cloned());
        let named = named.filter(|prefix| !prefix.is_empty());
        let prefixes = named.chain([job.jobname.clone()]).collect();
        stated.push(Given::of(&options).number("numjobs").unwrap_or(1).min(JOBS_MAX as u64) as u32);
        entries.push(Entry { identity, threads: 1, has_requests, prefixes });
    }
    for (entry, stated) in entries.iter_mut().zip(stated) {
        entry.threads = entry.threads.max(stated);
    }
    entries
}

/// Gives the points of a run their logs. fio numbers the threads of all jobs from 1.
fn attach(run: &mut Imported, entries: &[Entry<'_>], folder: &Path, logs: &mut Logs) {
    let (mut points, mut next) = (run.points.iter_mut(), 1_u32);
    for entry in entries {
        let numbers = next..=next.saturating_add(entry.threads - 1);
        next = next.saturating_add(entry.threads);
        // A job without requests has no point.
        let Some(point) = entry.has_requests.then(|| points.next()).flatten() else { continue };
        let ours: Vec<&str> = entry.prefixes.iter().map(String::as_str).collect();
        let others = entries.iter().filter(|other| other.identity != entry.identity);
        let is_only =
            !others.flat_map(|other| &other.prefixes).any(|other| ours.contains(&other.as_str()));
        let text = logs.attach(&mut point.trials[0], folder, &ours, &numbers, is_only);
        run.supplement.push_str(&text);
    }
    if run.points.iter().all(|point| !point.trials[0].series.is_empty()) {
        run.missing.retain(|text| text != NO_SERIES);
    }
}

/// The start of a job: as reported by fio 3.34 and later, else its end minus its length.
fn started_unix_ns(output: &Output, job: &Job, elapsed_ns: u64) -> i64 {
    let end_ms = output.timestamp_ms.unwrap_or(output.timestamp.saturating_mul(1000));
    match job.job_start.filter(|start_ms| *start_ms > 0) {
        Some(start_ms) => start_ms.saturating_mul(1_000_000),
        None => end_ms.saturating_mul(1_000_000).saturating_sub_unsigned(elapsed_ns),
    }
}

fn trial(job: &Job, requests: u64) -> Outcome<Trial> {
    let length_ms = job.read.runtime.max(job.write.runtime);
    let length_ms = if length_ms == 0 { job.job_runtime } else { length_ms };
    let elapsed_ns = imported::time_ns("runtime", length_ms.max(1) as f64 / 1e3)?;
    let directions = [&job.read, &job.write].map(|direction| Direction {
        bytes: direction.io_bytes,
        requests: direction.total_ios,
        latency: histogram(latency_of(&direction.clat_ns, &direction.lat_ns), direction.total_ios),
    });
    let cpu_ns = |percent: f64| {
        imported::time_ns("CPU time", percent / 100.0 * job.job_runtime as f64 / 1e3)
    };
    let (user_ns, system_ns) = (cpu_ns(job.usr_cpu)?, cpu_ns(job.sys_cpu)?);
    let short = job.read.short_ios.saturating_add(job.write.short_ios);
    let mut trial = Trial {
        directions,
        errors: job.total_err.unwrap_or_else(|| u64::from(job.error != 0)),
        short_transfers: short,
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
    if job.error != 0 {
        let (name, error, requests) = (&job.jobname, job.error, requests);
        let text = format!("job {name} ended with error {error} after {requests} requests");
        trial.verdict.add(State::Invalid, text);
    }
    Ok(trial)
}

/// The completion latency if it has percentiles, else the total latency.
fn latency_of<'a>(completion: &'a Latency, whole: &'a Latency) -> &'a Latency {
    let has_shape = |latency: &Latency| latency.bins.is_some() || latency.percentile.is_some();
    if has_shape(completion) || (!has_shape(whole) && whole.count == 0) {
        completion
    } else {
        whole
    }
}

fn histogram(latency: &Latency, requests: u64) -> Histogram {
    if latency.count == 0 {
        return Histogram::new();
    }
    if let Some(bins) = &latency.bins {
        let mut rough = Histogram::new();
        for (midpoint, count) in bins {
            let ns = midpoint.trim().parse().unwrap_or(0);
            // The midpoint of an outermost bucket may lie beyond minimum or maximum.
            rough.record_n(u64::clamp(ns, latency.min, latency.max.max(latency.min)), *count);
        }
        return imported::exact(&rough, latency.min, latency.max, latency.mean);
    }
    let shares: Vec<(f64, u64)> = latency
        .percentile
        .iter()
        .flatten()
        .filter_map(|(percent, ns)| Some((percent.trim().parse::<f64>().ok()? / 100.0, *ns)))
        .collect();
    imported::histogram(
        latency.count.min(requests),
        (latency.min, latency.max),
        latency.mean,
        &shares,
    )
}

/// The options of a job, under their main names.
struct Given<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Given<'a> {
    fn of(options: &'a Texts) -> Given<'a> {
        Given(options.iter().map(|(k, v)| (keys::main_name(k), v.trim())).collect())
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.0.get(key).copied()
    }

    fn is_on(&self, key: &str) -> bool {
        self.text(key).is_some_and(|text| !matches!(text, "0" | "false" | "none"))
    }

    /// A number; None if the option is missing or not a plain number.
    fn number(&self, key: &str) -> Option<u64> {
        let kb_base = if self.text("kb_base") == Some("1000") { 1000 } else { 1024 };
        // If the values for reads, writes and trims differ, only the first is used.
        let first = self.text(key)?.split([',', ':']).next()?;
        evaluate(first, Quantity::Bytes { kb_base }).ok()
    }

    fn time_ns(&self, key: &str) -> Option<u64> {
        let us = evaluate(self.text(key)?, Quantity::Time { bare_us: 1_000_000 }).ok()?;
        us.checked_mul(1000)
    }

    fn engine(&self) -> &'a str {
        self.text("ioengine").unwrap_or("psync")
    }

    fn target(&self) -> TargetFacts {
        let name = self.text("filename").or(self.text("directory")).unwrap_or_default();
        let kind = match name {
            name if name.starts_with("/dev/") => "block device",
            _ => "file",
        };
        TargetFacts {
            name: name.to_owned(),
            kind: kind.to_owned(),
            size_bytes: self.number("size").unwrap_or(0),
            ..TargetFacts::default()
        }
    }

    /// The key of the point. Settings that are not known exactly are added to `missing`.
    fn key(&self, trial: &Trial, missing: &mut Vec<String>) -> PointKey {
        let rw = self.text("rw").unwrap_or_default();
        let [read, write] = &trial.directions;
        let measured = match (read.requests, write.requests) {
            (_, 0) => 100,
            (0, _) => 0,
            (read, write) => (100.0 * read as f64 / (read as f64 + write as f64)).round() as u64,
        };
        let stated = self
            .number("rwmixread")
            .or_else(|| self.number("rwmixwrite").map(|percent| 100_u64.saturating_sub(percent)));
        let is_mix = read.requests > 0 && write.requests > 0;
        let read_percent = stated.filter(|percent| is_mix && *percent <= 100).unwrap_or(measured);
        let mean_bytes = trial.bytes() / trial.requests().max(1);
        let split = self.split();
        let has_sizes = self.text("bssplit").or(self.text("bsrange")).is_some();
        let request_bytes = match &split {
            Some(split) => u64::from(split.largest_bytes()),
            None => self.number("bs").filter(|_| !has_sizes).unwrap_or(mean_bytes),
        };
        if has_sizes && split.is_none() {
            missing.push("the size of each request (the mean is stored)".to_owned());
        }
        if self.0.is_empty() {
            missing.push("the job's options (depth and engine are assumed)".to_owned());
        }
        let waits = SYNCHRONOUS.contains(&self.engine());
        let depth = if waits { 1 } else { self.number("iodepth").unwrap_or(1) };
        let caching = Caching::of(self.is_on("direct"), self.is_on("sync"));
        let workload = Workload {
            engine_kind: self.engine_kind(missing),
            pattern: if rw.starts_with("rand") { Pattern::Random } else { Pattern::Sequential },
            read_percent: read_percent as u8,
            request_bytes: u32::try_from(request_bytes).unwrap_or(u32::MAX),
            request_sizes: split.map(|split| split.0).unwrap_or_default(),
            distribution: self.distribution(),
            depth: u32::try_from(depth).unwrap_or(u32::MAX),
            threads: u32::try_from(self.number("numjobs").unwrap_or(1)).unwrap_or(u32::MAX),
            region_offset: self.number("offset").unwrap_or(0),
            region_bytes: self.number("size").unwrap_or_else(|| trial.bytes()),
            arrival: match self.number("rate_iops") {
                Some(rate) if rate > 0 => {
                    // fio's rate applies to each thread.
                    let threads = self.number("numjobs").unwrap_or(1);
                    Arrival::Constant { requests_per_s: rate as f64 * threads as f64 }
                }
                _ => Arrival::Closed,
            },
            limit_ns: self.time_ns("runtime"),
            warm_up_ns: self.time_ns("ramp_time").unwrap_or(0),
            ..Workload::default()
        };
        PointKey { caching, ..PointKey::of(&workload) }
    }

    /// The request sizes of `bssplit`, if the requests had them: fio shortens random requests that
    /// meet visited blocks of its random map.
    fn split(&self) -> Option<Split> {
        let is_random = self.text("rw").is_some_and(|rw| rw.starts_with("rand"));
        let has_map = is_random && self.text("norandommap").is_none_or(|text| text == "0");
        self.text("bssplit").filter(|_| !has_map)?.parse().ok()
    }

    /// The distribution of random requests; even if fio's has no equivalent.
    fn distribution(&self) -> Distribution {
        let text = self.text("random_distribution").unwrap_or("random");
        skew::parse_distribution(text).unwrap_or(Distribution::Even)
    }

    fn engine_kind(&self, missing: &mut Vec<String>) -> EngineKind {
        match self.engine() {
            "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" => EngineKind::Sync,
            "libaio" => EngineKind::Libaio,
            "io_uring" => EngineKind::IoUring,
            "posixaio" => EngineKind::Threads,
            "mmap" => EngineKind::Mmap,
            "null" => EngineKind::Null,
            other => {
                missing
                    .push(format!("an engine that halfpower has ({other} is stored as threads)"));
                EngineKind::Threads
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Outcome<Vec<Imported>> {
        super::read(text, Path::new("a.json"), &mut Logs::default())
    }

    fn job(name: &str, more: &str) -> String {
        format!(
            r#"{{"jobname": "{name}", "job options": {{"rw": "randread", "bs": "4k",
                "iodepth": "16", "ioengine": "libaio", "direct": "1", "size": "64m"}},
                "read": {{"io_bytes": 40960000, "total_ios": 10000, "runtime": 2000,
                "clat_ns": {{"min": 50000, "max": 5000000, "mean": 190000.5, "N": 10000,
                "percentile": {{"50.000000": 180000, "99.000000": 900000}}}}}},
                "job_runtime": 1990, "usr_cpu": 10.0, "sys_cpu": 20.0{more}}}"#
        )
    }

    fn output(jobs: &[String]) -> String {
        format!(
            r#"{{"fio version": "fio-3.33", "timestamp_ms": 1795518014579, "jobs": [{}]}}"#,
            jobs.join(", ")
        )
    }

    #[test]
    fn a_job_is_a_point_with_the_numbers_that_fio_printed() {
        let runs = read(&output(&[job("a", "")])).unwrap();
        let point = &runs[0].points[0];
        assert_eq!((point.key.rw(), point.key.request_bytes()), ("randread", 4096));
        assert_eq!((point.key.depth(), point.key.threads()), (16, 1));
        assert!(point.key.caching.is_direct());
        let trial = &point.trials[0];
        assert_eq!((trial.bytes(), trial.requests()), (40_960_000, 10_000));
        assert_eq!(trial.bytes_per_s(), 20_480_000.0);
        assert_eq!((trial.cpu.user_ns, trial.cpu.system_ns), (199_000_000, 398_000_000));
        assert_eq!(trial.latency().mean(), Some(190_000.5));
        assert!(runs[0].missing.iter().any(|text| text.contains("json+")));
    }

    #[test]
    fn sizes_and_distribution_are_those_of_the_options() {
        let read_with = |options: &str| {
            let options = format!("\"rw\": \"randread\", {options}");
            let text = job("a", "").replace("\"rw\": \"randread\"", &options);
            read(&output(&[text])).unwrap().remove(0)
        };
        let split = r#""bssplit": "4k/50:16k/50", "random_distribution": "zipf:1.1""#;
        let run = read_with(&format!("{split}, \"norandommap\": \"1\""));
        let workload = &run.points[0].key.workload;
        assert_eq!((workload.request_bytes, workload.request_sizes.len()), (16384, 2));
        assert_eq!(workload.distribution, Distribution::Zipf { theta: 1.1 });
        // With a random map, fio issues other sizes.
        let run = read_with(split);
        let workload = &run.points[0].key.workload;
        assert_eq!((workload.request_bytes, workload.request_sizes.len()), (4096, 0));
        assert!(run.missing.iter().any(|text| text.contains("the size of each request")));
    }

    #[test]
    fn threads_of_one_job_are_one_point() {
        let two = [job("a", ""), job("a", ""), job("b", "")];
        let runs = read(&output(&two)).unwrap();
        assert_eq!(runs[0].points.len(), 2);
        assert_eq!(runs[0].points[0].trials[0].requests(), 20_000);
        assert_eq!(runs[0].points[0].trials[0].elapsed_ns, 2_000_000_000);
    }

    #[test]
    fn a_bin_of_json_plus_is_a_bucket() {
        let bins = r#""bins": {"51000": 1, "180224": 9998, "4980000": 1}, "percentile""#;
        let runs = read(&output(&[job("a", "").replace("\"percentile\"", bins)])).unwrap();
        let latency = runs[0].points[0].trials[0].latency();
        assert_eq!(latency.count(), 10_000);
        assert!((latency.quantile(0.5).unwrap() as f64 / 180_224.0 - 1.0).abs() < 0.005);
        assert!(runs[0].missing.iter().all(|text| !text.contains("json+")));
    }

    #[test]
    fn each_server_is_a_run_of_its_own_host() {
        let jobs = ["one", "two"].map(|host| job("a", &format!(", \"hostname\": \"{host}\"")));
        let runs = read(&output(&jobs).replace("\"jobs\"", "\"client_stats\"")).unwrap();
        let hosts: Vec<&str> = runs.iter().map(|run| run.host.name.as_str()).collect();
        assert_eq!(hosts, ["one", "two"]);
    }

    #[test]
    fn a_job_that_failed_is_invalid() {
        let runs = read(&output(&[job("a", ", \"error\": 84")])).unwrap();
        let verdict = &runs[0].points[0].trials[0].verdict;
        assert_eq!(verdict.state, State::Invalid);
        assert!(verdict.reasons[0].contains("error 84"));
    }

    #[test]
    fn output_without_requests_or_with_impossible_times_is_refused() {
        let idle = job("a", "").replace("\"total_ios\": 10000", "\"total_ios\": 0");
        assert!(read(&output(&[idle])).unwrap_err().message.contains("nothing to import"));
        let backwards = job("a", "").replace("\"usr_cpu\": 10.0", "\"usr_cpu\": -10.0");
        assert!(read(&output(&[backwards])).unwrap_err().message.contains("CPU time"));
    }
}
