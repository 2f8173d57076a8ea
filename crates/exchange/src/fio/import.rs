//! Converts fio's JSON output to points and trials.
//!
//! A job becomes a point with one trial. If several entries have the same name, group and options,
//! they are threads of one job, and their counts are summed. In client mode, each server becomes a
//! separate run. The completion latency (`clat`) is preferred over the total latency (`lat`),
//! because by default fio prints percentiles only of `clat`. Logs of fio (`write_bw_log` and
//! others) that are imported together with the document become the time series of their job. A
//! document that contradicts itself is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use analysis::histogram::Histogram;
use cpucost::CpuUsage;
use lab::check::Check;
use lab::failure::{Failure, Outcome};
use lab::machine::{Host, TargetFacts};
use lab::point::{Direction, Point, State, Trial};

use crate::checked::NUMBER_MAX;
use crate::fio::jobs::{self, Given, Options, refused, shown};
use crate::fio::logs::Logs;
use crate::fio::output::{self, Divided, Found, Job, Latency, NOT_STATED, Output, Texts};
use crate::imported::{self, Imported, UNKNOWN_HOST};

/// Name of the document's format in the database.
pub const FORMAT: &str = "fio-json";
/// Prefix of the version in the output of fio.
const FIO: &str = "fio-";
/// Entry in the list of missing information if a job has no logs.
const NO_SERIES: &str = "the rate over time (to add it, import the logs of write_bw_log too)";
/// Options that set the file name prefix of a log. If an option has no value, fio uses the name of
/// the job as the prefix and does not print the option.
const LOG_OPTIONS: [&str; 3] = ["write_bw_log", "write_iops_log", "write_lat_log"];
const SERVERS_MAX: usize = 1000;
/// Maximum number of different jobs. The latencies of a job take up to 40 KiB of memory for each
/// direction.
const POINTS_MAX: usize = 4000;
/// Maximum plausible number of requests of a job that ran for less than 1 ms.
const QUICK_REQUESTS_MAX: u64 = 1000;
/// Maximum relative error that fio's buckets and rounding cause in a latency.
const ROUNDING: f64 = 0.02;

/// Reads the last document in fio's output. Returns one run for each server in client mode,
/// otherwise a single run. If there is only one run, its logs in the directory of the document are
/// moved from `logs` to the time series of the jobs.
///
/// # Errors
/// The text has no document, a damaged document, or a document without requests. The message has
/// one line.
pub fn read(text: &str, path: &Path, logs: &mut Logs) -> Outcome<Vec<Imported>> {
    let Found { output, text, documents } = output::parse(text)?;
    check_document(&output)?;
    let mut by_host: BTreeMap<&str, Vec<&Job>> = BTreeMap::new();
    for job in output.all_jobs() {
        let host = job.hostname.as_deref().filter(|name| !name.is_empty());
        by_host.entry(host.unwrap_or(UNKNOWN_HOST)).or_default().push(job);
    }
    let servers = by_host.len();
    if servers > SERVERS_MAX {
        return Err(Failure::failed(format!(
            "the output has {servers} servers; import at most {SERVERS_MAX} servers at once"
        )));
    }
    let divided = if servers > 1 { Some(Divided::new(text, servers)?) } else { None };
    let (mut runs, mut others) = (Vec::new(), Others::new());
    for (host, jobs) in by_host {
        let globals = jobs::options(output.globals(host));
        let groups = groups(&output, &jobs, &globals, &mut others)?;
        let mut run = run(&output, host, &groups)?;
        if servers == 1 && !logs.is_empty() {
            attach(&mut run, &groups, path.parent().unwrap_or(Path::new("")), logs);
        }
        if !run.points.is_empty() {
            run.document =
                divided.as_ref().map_or_else(|| text.to_owned(), |divided| divided.of(host));
            runs.push(run);
        }
    }
    if runs.is_empty() {
        return Err(nothing(&others));
    }
    if documents > 1 {
        let earlier = format!("{} earlier documents of the file", documents - 1);
        runs.iter_mut().for_each(|run| run.missing.push(earlier.clone()));
    }
    for ((what, _), job) in &others {
        runs.iter_mut().for_each(|run| run.missing.push(format!("job {job} ({what})")));
    }
    Ok(runs)
}

/// Refuses documents of other tools, documents of fio 2 and older (which use other units),
/// documents with results in both `jobs` and `client_stats`, and documents with too many jobs.
fn check_document(output: &Output) -> Outcome<()> {
    let version = shown(&output.version);
    let major = output.version.strip_prefix(FIO).map(|rest| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        digits.parse::<u32>()
    });
    match major {
        Some(Ok(major)) if major >= 3 => {}
        Some(Ok(_)) => {
            return Err(Failure::failed(format!(
                "this is the output of {version}, which uses other units; run fio 3 or newer"
            )));
        }
        _ if output.version.starts_with("halfpower-") => {}
        _ => {
            return Err(Failure::failed(format!(
                "'{version}' is not a version of fio; import the output of fio 3 or newer"
            )));
        }
    }
    let has = |jobs: &Option<Vec<Job>>| jobs.as_ref().is_some_and(|jobs| !jobs.is_empty());
    if has(&output.jobs) && has(&output.client_stats) {
        return Err(Failure::failed(
            "the document has results both in jobs and in client_stats, which would be counted \
             twice; import the output of a single run of fio",
        ));
    }
    let different: BTreeSet<_> =
        output.all_jobs().map(|job| (&job.hostname, identity(job))).collect();
    if different.len() > POINTS_MAX {
        return Err(Failure::failed(format!(
            "the output has {} different jobs; import at most {POINTS_MAX} at once",
            different.len()
        )));
    }
    Ok(())
}

/// A kind of request that is not imported: its description for a message, and the remedy.
type Other = (&'static str, &'static str);
/// The kinds of request that are not imported, each with the name of the first job that has
/// requests of this kind.
type Others = BTreeMap<Other, String>;

/// Returns the error for a document that has no reads or writes.
fn nothing(others: &Others) -> Failure {
    match others.first_key_value() {
        Some(((what, remedy), job)) => {
            Failure::failed(format!("nothing to import: job {job} has {what}; {remedy}"))
        }
        None => Failure::failed(
            "nothing to import, because no job of fio completed a request; let the jobs run longer",
        ),
    }
}

/// Group, name and options of a job. Entries for which all three are equal are threads of one job.
type Identity<'a> = (u64, &'a str, Option<&'a Texts>);

fn identity(job: &Job) -> Identity<'_> {
    (job.groupid, &job.jobname, job.options.as_ref())
}

/// A job and its entries in the document: one for each thread, or a single entry with
/// `group_reporting`.
struct Group<'a> {
    given: Given<'a>,
    /// The entries that have reads or writes.
    entries: Vec<&'a Job>,
    /// Number of threads, including threads without requests.
    threads: u32,
    /// File name prefixes that the logs of this job may have.
    prefixes: BTreeSet<&'a str>,
}

/// Groups the entries of a server by job. Adds to `others` each kind of request that is not
/// imported, for example trims.
fn groups<'a>(
    output: &Output,
    jobs: &[&'a Job],
    globals: &'a Options<'a>,
    others: &mut Others,
) -> Outcome<Vec<Group<'a>>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut places = BTreeMap::new();
    for job in jobs {
        let place = *places.entry(identity(job)).or_insert(groups.len());
        if place == groups.len() {
            let given = Given::new(job, globals, output.version.starts_with(FIO));
            let named = LOG_OPTIONS.iter().filter_map(|option| given.text(option));
            let named = named.filter(|prefix| !prefix.is_empty());
            let prefixes = named.chain([job.jobname.as_str()]).collect();
            groups.push(Group { given, entries: Vec::new(), threads: 0, prefixes });
        }
        let group = &mut groups[place];
        group.threads = group.threads.saturating_add(1);
        if job.read.total_ios > 0 || job.write.total_ios > 0 {
            group.entries.push(job);
        } else if let Some(other) = other_requests(job) {
            others.entry(other).or_insert_with(|| shown(&job.jobname));
        }
    }
    for group in &mut groups {
        // fio also gives log numbers to threads without requests, so these threads are counted.
        let stated = match group.given.threads() {
            Err(_) if group.entries.is_empty() => 1,
            stated => stated?,
        };
        group.threads = group.threads.max(stated);
    }
    Ok(groups)
}

/// Returns the kind of request of a job that has neither reads nor writes, and the remedy. None if
/// the job has no requests at all.
fn other_requests(job: &Job) -> Option<Other> {
    if job.mixed.total_ios > 0 {
        return Some((
            "only a combined count of reads and writes",
            "run fio without unified_rw_reporting, or with unified_rw_reporting=both",
        ));
    }
    let trims = ("only trims", "import jobs that read or write");
    (job.trim.total_ios > 0).then_some(trims)
}

/// Converts the jobs of a server to a run. The field `document` remains empty.
fn run(output: &Output, host: &str, groups: &[Group<'_>]) -> Outcome<Imported> {
    let (mut points, mut names) = (Vec::new(), Vec::new());
    let mut missing = vec![NO_SERIES.to_owned()];
    let mut target = TargetFacts::default();
    for Group { given, entries, .. } in groups {
        let Some(first) = entries.first() else { continue };
        let mut all: Option<Trial> = None;
        for job in entries {
            let mut trial = trial(job, given.slack()?)?;
            trial.started_unix_ns = started_unix_ns(output, job, trial.elapsed_ns);
            missing.extend(missing_latencies(job, &trial, given.slack()?));
            match &mut all {
                Some(all) => imported::add_threads(all, &trial),
                None => all = Some(trial),
            }
        }
        if entries.iter().any(|job| job.trim.total_ios > 0) {
            missing.push("trims".to_owned());
        }
        let Some(trial) = all else { continue };
        check_numbers(&first.jobname, &trial)?;
        if target.name.is_empty() {
            target = given.target();
        }
        let key = given.key(&trial, entries.len() as u32, &mut missing)?;
        points.push(Point { key, trials: vec![trial] });
        names.push(first.jobname.as_str());
        missing.sort();
        missing.dedup();
    }
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
        started_unix_ns: points.iter().map(|p| p.trials[0].started_unix_ns).min().unwrap_or(0),
        host: Host { name: host.to_owned(), ..Host::default() },
        target,
        points,
        missing,
        document: String::new(),
        supplement: String::new(),
    })
}

/// Describes which latencies of an entry are missing. None if the latencies are complete.
fn missing_latencies(job: &Job, trial: &Trial, slack: u64) -> Option<String> {
    let is_less = |direction: &Direction| {
        direction.latency.count() < direction.requests.saturating_sub(slack)
    };
    if trial.directions.iter().any(is_less) {
        let some = if trial.latency().count() > 0 { "some" } else { "individual" };
        return Some(format!("latencies of {some} requests"));
    }
    let latency = [&job.read, &job.write].map(|from| latency_of(&from.clat_ns, &from.lat_ns));
    let has_none = |latency: &&Latency| latency.max > 0 && latency.bins.is_none();
    latency.iter().any(has_none).then(|| "the latency histogram (only json+ has it)".to_owned())
}

/// Adds the data of the logs to the points of a run. fio numbers threads consecutively across all
/// jobs, from 1, and a log has the number of its thread in its file name.
fn attach(run: &mut Imported, groups: &[Group<'_>], folder: &Path, logs: &mut Logs) {
    let mut uses: BTreeMap<&str, u32> = BTreeMap::new();
    for prefix in groups.iter().flat_map(|group| &group.prefixes) {
        *uses.entry(prefix).or_default() += 1;
    }
    let (mut points, mut next) = (run.points.iter_mut(), 1_u32);
    for group in groups {
        let numbers = next..=next.saturating_add(group.threads - 1);
        next = next.saturating_add(group.threads);
        // A job without requests has no point.
        let has_point = !group.entries.is_empty();
        let Some(point) = has_point.then(|| points.next()).flatten() else { continue };
        let prefixes: Vec<&str> = group.prefixes.iter().copied().collect();
        let is_only = prefixes.iter().all(|prefix| uses[prefix] == 1);
        let text = logs.attach(&mut point.trials[0], folder, &prefixes, &numbers, is_only);
        run.supplement.push_str(&text);
    }
    if run.points.iter().all(|point| !point.trials[0].series.is_empty()) {
        run.missing.retain(|text| text != NO_SERIES);
    }
}

/// Returns the start of a job (ns since 1970). fio 3.34 and later print the start. For older
/// versions the start is computed as the end of the run minus the length of the job.
fn started_unix_ns(output: &Output, job: &Job, elapsed_ns: u64) -> i64 {
    let end_ms = output.timestamp_ms.unwrap_or(output.timestamp.saturating_mul(1000));
    match job.job_start.filter(|start_ms| *start_ms > 0) {
        Some(start_ms) => start_ms.saturating_mul(1_000_000),
        None => end_ms.saturating_mul(1_000_000).saturating_sub_unsigned(elapsed_ns),
    }
}

/// Converts an entry to a trial. `slack` is the number of requests by which the counters of the
/// entry may differ.
fn trial(job: &Job, slack: u64) -> Outcome<Trial> {
    check_counts(job, slack)?;
    let named = |failure: Failure| refused(&job.jobname, &failure.message);
    let length_ms = job.read.runtime.max(job.write.runtime);
    let length_ms = if length_ms == 0 { job.job_runtime } else { length_ms };
    let elapsed_ns = imported::time_ns("runtime", length_ms.max(1) as f64 / 1e3).map_err(named)?;
    let unusual = job.total_err.unwrap_or(0).saturating_add(u64::from(job.error != 0));
    let mut directions = [const { None }; 2];
    for (place, from) in directions.iter_mut().zip([&job.read, &job.write]) {
        let latency = latency_of(&from.clat_ns, &from.lat_ns);
        let latency = histogram(latency, from.total_ios, slack.saturating_add(unusual))
            .map_err(|why| refused(&job.jobname, &format!("{why}; {DAMAGED}")))?;
        *place = Some(Direction { bytes: from.io_bytes, requests: from.total_ios, latency });
    }
    let cpu_ns = |percent: f64| {
        imported::time_ns("CPU time", percent / 100.0 * job.job_runtime as f64 / 1e3).map_err(named)
    };
    let (user_ns, system_ns) = (cpu_ns(job.usr_cpu)?, cpu_ns(job.sys_cpu)?);
    let mut trial = Trial {
        directions: directions.map(Option::unwrap_or_default),
        errors: job.total_err.unwrap_or_else(|| u64::from(job.error != 0)),
        short_transfers: job.read.short_ios.saturating_add(job.write.short_ios),
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
        let (name, error, requests) = (&job.jobname, job.error, trial.requests());
        let text = format!("job {name} ended with error {error} after {requests} requests");
        trial.verdict.flag(State::Invalid, Check::FailedRequests, text);
    }
    Ok(trial)
}

/// Remedy in the error messages for documents that contradict themselves.
const DAMAGED: &str = "the file is damaged, so create it again";

/// Refuses an entry that has bytes but no requests, requests but no bytes, or many requests but a
/// runtime of 0.
fn check_counts(job: &Job, slack: u64) -> Outcome<()> {
    let refused = |why: String| Err(refused(&job.jobname, &format!("{why}; {DAMAGED}")));
    let has_errors = job.error != 0 || job.total_err.unwrap_or(0) > 0;
    for (direction, name) in [(&job.read, "reads"), (&job.write, "writes")] {
        let (bytes, requests) = (direction.io_bytes, direction.total_ios);
        if bytes == 0 && requests > slack && !has_errors {
            return refused(format!("{requests} {name} transferred 0 bytes"));
        }
        if bytes > 0 && requests == 0 && slack == 1 {
            return refused(format!("0 {name} transferred {bytes} bytes"));
        }
    }
    let requests = job.read.total_ios.saturating_add(job.write.total_ios);
    let length_ms = job.read.runtime.max(job.write.runtime).max(job.job_runtime);
    if length_ms == 0 && requests > QUICK_REQUESTS_MAX {
        return refused(format!("{requests} requests completed, but the runtime is 0 ms"));
    }
    Ok(())
}

/// Refuses numbers that the database cannot store.
fn check_numbers(name: &str, trial: &Trial) -> Outcome<()> {
    let [read, write] = &trial.directions;
    for (what, number) in [
        ("bytes", read.bytes.saturating_add(write.bytes)),
        ("requests", read.requests.saturating_add(write.requests)),
        ("errors", trial.errors),
        ("short transfers", trial.short_transfers),
        ("ns of CPU time", trial.cpu.process_ns),
        ("latencies", read.latency.count().saturating_add(write.latency.count())),
        ("ns (the longest latency)", trial.latency().max().unwrap_or(0)),
    ] {
        if number > NUMBER_MAX {
            let why = format!("{number} {what} exceed the maximum of 2^63 - 1; {DAMAGED}");
            return Err(refused(name, &why));
        }
    }
    Ok(())
}

/// Returns the completion latency if it has bins or percentiles, or if the total latency is empty.
/// Otherwise returns the total latency.
fn latency_of<'a>(completion: &'a Latency, whole: &'a Latency) -> &'a Latency {
    let has_shape = |latency: &Latency| latency.bins.is_some() || latency.percentile.is_some();
    if has_shape(completion) || (!has_shape(whole) && whole.count == 0) {
        completion
    } else {
        whole
    }
}

/// Converts the latencies of a direction to a histogram.
///
/// # Errors
/// The latencies contradict each other. The error text describes the contradiction.
fn histogram(latency: &Latency, requests: u64, slack: u64) -> Result<Histogram, String> {
    let bins = bins(latency)?;
    let binned = bins.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
    let count = match latency.count {
        NOT_STATED if binned > 0 => binned,
        NOT_STATED if latency.max == 0 => 0,
        NOT_STATED => requests,
        stated => stated,
    };
    let differ = |one: u64, other: u64| one.abs_diff(other) > slack;
    if !bins.is_empty() && differ(binned, count) {
        return Err(format!("the bins have {binned} latencies, but N is {count}"));
    }
    if count == 0 {
        return Ok(Histogram::default());
    }
    if count > requests && differ(count, requests) {
        return Err(format!("there are {count} latencies, but only {requests} requests"));
    }
    let (min, max, mean) = (latency.min, latency.max, latency.mean);
    if min > max || max > NUMBER_MAX {
        return Err(format!("the shortest latency is {min} ns, and the longest is {max} ns"));
    }
    let rounded = |ns: u64| ns as f64 * (1.0 + ROUNDING) + 1.0;
    if !(min as f64 / (1.0 + ROUNDING) - 1.0..=rounded(max)).contains(&mean) {
        return Err(format!("the mean latency {mean:?} ns is not between {min} and {max} ns"));
    }
    if let Some((ns, _)) = bins.last().filter(|(ns, _)| *ns as f64 > rounded(max)) {
        return Err(format!("a bin is at {ns} ns, but the longest latency is {max} ns"));
    }
    if let Some((ns, _)) = bins.first().filter(|(ns, _)| rounded(*ns) < min as f64) {
        return Err(format!("a bin is at {ns} ns, but the shortest latency is {min} ns"));
    }
    let shares = shares(latency)?;
    if let Some((_, ns)) = shares.last().filter(|(_, ns)| *ns as f64 > rounded(max)) {
        return Err(format!("a percentile is {ns} ns, but the longest latency is {max} ns"));
    }
    if bins.is_empty() {
        return Ok(imported::histogram(count.min(requests), (min, max), mean, &shares));
    }
    // The midpoint of the first or last bucket may be outside the range from minimum to maximum.
    let bins = bins.into_iter().map(|(ns, count)| (ns.clamp(min, max), count));
    Ok(imported::of_counts(bins, (min, max), mean))
}

/// Returns the bins in ascending order, each with its latency (ns) and its number of requests.
fn bins(latency: &Latency) -> Result<Vec<(u64, u64)>, String> {
    let mut bins = Vec::new();
    for (midpoint, count) in latency.bins.iter().flatten() {
        let ns = midpoint.trim().parse::<u64>().ok().filter(|ns| *ns <= NUMBER_MAX);
        let ns =
            ns.ok_or_else(|| format!("the bin '{}' is not a latency in ns", shown(midpoint)))?;
        bins.push((ns, *count));
    }
    bins.sort_unstable();
    Ok(bins)
}

/// Returns the percentiles in ascending order, each as a share (0 to 1) and a latency (ns).
fn shares(latency: &Latency) -> Result<Vec<(f64, u64)>, String> {
    let mut shares = Vec::new();
    for (percent, ns) in latency.percentile.iter().flatten() {
        let share = percent.trim().parse::<f64>().ok().map(|percent| percent / 100.0);
        match share.filter(|share| (0.0..=1.0).contains(share)) {
            // fio before 3.2 pads the list of percentiles with entries of 0.00.
            Some(0.0) => {}
            Some(share) => shares.push((share, *ns)),
            None => return Err(format!("'{}' is not a percentile", shown(percent))),
        }
    }
    shares.sort_by(|a, b| a.0.total_cmp(&b.0));
    match shares.windows(2).find(|pair| pair[1].1 < pair[0].1) {
        Some([(_, ns), (share, less)]) => Err(format!(
            "percentile {} is {less} ns, but a lower percentile is {ns} ns",
            share * 100.0
        )),
        _ => Ok(shares),
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
        assert_eq!(workload.distribution, workload::Distribution::Zipf { theta: 1.1 });
        // Without norandommap, fio shortens some requests, so the sizes are not exactly known.
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
        for (run, other) in runs.iter().zip(["two", "one"]) {
            assert!(run.document.contains(&run.host.name) && !run.document.contains(other));
            let again = read(&run.document).unwrap();
            assert_eq!(again[0].describe(), run.describe());
            assert_eq!(again[0].document, run.document);
        }
    }

    #[test]
    fn only_output_of_fio_3_or_newer_and_of_halfpower_is_read() {
        let with = |version: &str| read(&output(&[job("a", "")]).replace("fio-3.33", version));
        for version in ["fio-3.0", "fio-3.36-48-gabc", "fio-4.1", "fio-10.0", "halfpower-1.0"] {
            assert_eq!(with(version).unwrap()[0].tool, version);
        }
        let message = with("fio-2.16").unwrap_err().message;
        assert!(message.contains("fio-2.16, which uses other units"), "{message}");
        for version in ["banana", "fio-", "fio-x3", "3.33", "", "fio-99999999999"] {
            let message = with(version).unwrap_err().message;
            assert!(message.contains("is not a version of fio"), "{message}");
        }
    }

    #[test]
    fn jobs_with_the_same_name_and_other_options_are_different_points() {
        let other = job("a", "").replace("randread", "read").replace("\"16\"", "\"8\"");
        let runs = read(&output(&[job("a", ""), other, job("a", "")])).unwrap();
        let points = &runs[0].points;
        let found = points.iter().map(|p| (p.key.rw(), p.key.depth(), p.trials[0].requests()));
        assert_eq!(found.collect::<Vec<_>>(), [("randread", 16, 20_000), ("read", 8, 10_000)]);
        assert_eq!(points[0].key.threads(), 2, "entries without numjobs are threads");
    }

    /// Returns a job of 1000 requests that transferred `bytes` bytes.
    fn sized(direction: &str, bytes: u64, options: &str) -> String {
        format!(
            r#"{{"jobname": "a", "job options": {{{options}}}, "job_runtime": 1000,
                "{direction}": {{"io_bytes": {bytes}, "total_ios": 1000, "runtime": 1000}}}}"#
        )
    }

    #[test]
    fn the_size_of_requests_is_that_of_their_direction() {
        for (direction, bs, bytes) in [
            ("read", "8k", 8192),
            ("write", "8k", 8192),
            ("read", "4k,64k", 4096),
            ("write", "4k,64k", 65536),
            ("write", "4k,64k,8k", 65536),
            ("read", ",8k", 4096),
            ("write", ",8k", 8192),
            ("write", "16k,", 4096),
            ("write", "(2*4k)", 8192),
        ] {
            let options = format!(r#""rw": "{direction}", "bs": "{bs}""#);
            let runs = read(&output(&[sized(direction, bytes * 1000, &options)])).unwrap();
            assert_eq!(runs[0].points[0].key.request_bytes(), bytes, "{direction} bs={bs}");
            assert!(runs[0].missing.iter().all(|text| !text.contains("mean")));
        }
    }

    #[test]
    fn requests_that_do_not_have_the_stated_size_are_refused_or_said() {
        let read_as = |bytes: u64, options: &str| {
            read(&output(&[sized("read", bytes, &format!("\"rw\": \"randread\", {options}"))]))
        };
        for (bytes, options, cause) in [
            (4_096_000, r#""bs": "64k""#, "size of the reads is 4096 bytes"),
            (65_536_000, r#""bs": "4k""#, "options say bs=4096"),
            (4_096_000, r#""bsrange": "64k-128k""#, "65536 to 131072"),
            (4_096_000, r#""bssplit": "64k/50:16k/50""#, "16384 to 65536"),
            (4_096_000, r#""bs": "0""#, "bs=0"),
            (4_096_000, r#""bs": "x""#, "bs=x"),
            (8_000_000_000_000, r#""bs": "8g""#, "4 GiB"),
        ] {
            let message = read_as(bytes, options).unwrap_err().message;
            assert!(message.starts_with("job a: ") && message.contains(cause), "{message}");
        }
        // fio's counters may disagree about requests that are in flight at the end of ramp_time. A
        // difference of up to the queue depth is therefore accepted.
        let options = r#""bs": "4k", "iodepth": "32", "ioengine": "libaio""#;
        let runs = read_as(4_096_000 + 31 * 4096, options);
        assert_eq!(runs.unwrap()[0].points[0].key.request_bytes(), 4096);
        // If a job has several request sizes, halfpower's output states only the largest size. A
        // mean request size below this size is therefore accepted.
        let text = output(&[sized("read", 4_096_000, r#""bs": "64k""#)]);
        let runs = read(&text.replace("fio-3.33", "halfpower-1.0")).unwrap();
        assert_eq!(runs[0].points[0].key.request_bytes(), 4096);
        // With group_reporting, fio prints the sum over a group under the name of one job, with the
        // options of another job. Such sums are accepted, but the mean size is stored.
        for options in [r#""bs": "64k", "name": "b""#, r#""bs": "5k""#] {
            let runs = read_as(4_096_000, options).unwrap();
            assert_eq!(runs[0].points[0].key.request_bytes(), 4096);
            assert!(runs[0].missing.iter().any(|text| text.contains("the mean is stored")));
        }
    }

    #[test]
    fn an_option_of_the_job_overrides_that_of_all_jobs() {
        let caching = |globals: &str, own: &str| {
            let text = output(&[sized("read", 4_096_000, own)]);
            let globals = format!("\"global options\": {{{globals}}}, \"jobs\"");
            let runs = read(&text.replace("\"jobs\"", &globals))?;
            Ok::<bool, Failure>(runs[0].points[0].key.caching.is_direct())
        };
        let (direct, buffered) = (r#""direct": "1""#, r#""buffered": "1""#);
        let not_buffered = r#""buffered": "0""#;
        assert!(caching(not_buffered, "").unwrap());
        assert!(caching("", not_buffered).unwrap());
        assert!(!caching(direct, buffered).unwrap());
        assert!(caching(buffered, direct).unwrap());
        assert!(!caching("", "").unwrap());
        let message = caching("", &format!("{direct}, {buffered}")).unwrap_err().message;
        assert!(message.contains("direct and buffered contradict each other"), "{message}");
    }

    /// Replaces a text in the output of one job and imports the result.
    fn changed(from: &str, to: &str) -> Outcome<Vec<Imported>> {
        let job = job("a", "");
        assert!(job.contains(from));
        read(&output(&[job.replace(from, to)]))
    }

    #[test]
    fn impossible_latencies_are_refused() {
        for (from, to, cause) in [
            ("\"percentile\"", r#""bins": {"abc": 10000}, "percentile""#, "the bin 'abc'"),
            ("\"percentile\"", r#""bins": {"1e5": 10000}, "percentile""#, "the bin '1e5'"),
            ("\"percentile\"", r#""bins": {"100000": 5}, "percentile""#, "5 latencies"),
            ("\"percentile\"", r#""bins": {"9000000": 10000}, "percentile""#, "9000000 ns"),
            ("\"percentile\"", r#""bins": {"40000": 10000}, "percentile""#, "40000 ns"),
            ("\"N\": 10000", "\"N\": 50000", "50000 latencies, but only 10000"),
            ("180000", "1000000", "percentile 99"),
            ("900000}", "9000000}", "a percentile is 9000000"),
            ("50.000000", "NaN", "'NaN'"),
            ("50.000000", "-3", "'-3'"),
            ("50.000000", "150", "'150'"),
            ("\"min\": 50000", "\"min\": 6000000", "shortest"),
            ("190000.5", "-5", "mean latency -5"),
            ("190000.5", "1e300", "mean latency 1e300"),
            ("\"max\": 5000000", "\"max\": 18446744073709551614", "longest"),
        ] {
            let message = changed(from, to).unwrap_err().message;
            assert!(message.starts_with("job a: ") && message.contains(cause), "{to}: {message}");
            assert!(message.contains("create it again"), "{message}");
        }
    }

    #[test]
    fn what_fio_rounds_or_omits_is_accepted() {
        let missing = |runs: &[Imported]| runs[0].missing.join(", ");
        // The outermost bins are outside the range from minimum to maximum. N exceeds the number of
        // requests by 16, because 16 requests were in flight.
        let bins = r#""bins": {"49800": 5, "180224": 9999, "5020000": 12}, "percentile""#;
        let text = job("a", "").replace("\"percentile\"", bins);
        let runs = read(&output(&[text.replace("\"N\": 10000", "\"N\": 10016")])).unwrap();
        assert_eq!(runs[0].points[0].trials[0].latency().max(), Some(5_000_000));
        // fio before 3.18 does not print N, and fio before 3.2 pads the percentiles with 0.00.
        let runs = read(&output(&[job("a", "").replace("\"N\": 10000,", "")])).unwrap();
        assert_eq!(runs[0].points[0].trials[0].latency().count(), 10_000);
        let runs = changed("\"50.000000\"", "\"0.00\": 0, \"50.000000\"").unwrap();
        assert_eq!(runs[0].points[0].trials[0].latency().min(), Some(50_000));
        let runs = changed("\"N\": 10000", "\"N\": 5").unwrap();
        assert!(missing(&runs).contains("latencies of some requests"));
        let runs = changed("\"N\": 10000", "\"N\": 0").unwrap();
        assert!(missing(&runs).contains("latencies of individual requests"));
    }

    #[test]
    fn impossible_options_and_counts_are_refused() {
        for (from, to, cause) in [
            ("\"16\"", "\"99999999999999\"", "iodepth=99999999999999"),
            ("\"16\"", "\"-4\"", "iodepth=-4"),
            ("\"16\"", "\"0\"", "iodepth=0"),
            ("\"16\"", "\"1\", \"numjobs\": \"0\"", "numjobs=0"),
            ("\"io_bytes\": 40960000", "\"io_bytes\": 0", "10000 reads transferred 0 bytes"),
            ("40960000", "9223372036854775813", "9223372036854775813 bytes"),
            ("\"total_ios\": 10000", "\"total_ios\": 18446744073709551615", "requests"),
        ] {
            let message = changed(from, to).unwrap_err().message;
            assert!(message.starts_with("job a: ") && message.contains(cause), "{to}: {message}");
        }
        let no_time = job("a", "").replace("\"runtime\": 2000", "\"runtime\": 0");
        let no_time = no_time.replace("\"job_runtime\": 1990", "\"job_runtime\": 0");
        let message = read(&output(&[no_time])).unwrap_err().message;
        assert!(message.contains("10000 requests completed, but the runtime is 0 ms"), "{message}");
        let halves = job("a", "").replace("40960000", "9000000000000000000");
        assert!(read(&output(&[halves.clone(), halves])).is_err(), "the sum is too large");
    }

    #[test]
    fn jobs_and_servers_in_one_document_are_refused() {
        let both = format!("\"client_stats\": [{}], \"jobs\"", job("a", ""));
        let text = output(&[job("a", "")]).replace("\"jobs\"", &both);
        assert!(read(&text).unwrap_err().message.contains("counted twice"));
    }

    #[test]
    fn rates_and_pauses_are_part_of_the_workload() {
        let with = |options: &str| {
            let options = format!("\"16\", \"numjobs\": \"2\", {options}");
            changed("\"16\"", &options).map(|mut runs| runs.remove(0))
        };
        let rate = |options: &str| with(options).unwrap().points[0].key.requests_per_s();
        assert_eq!(rate(r#""rate_iops": "500,100""#), Some(1000.0));
        assert_eq!(rate(r#""rate": "1m""#), Some(512.0));
        assert_eq!(rate(r#""rate": ",1m""#), None);
        assert_eq!(rate(r#""rate_iops": "0""#), None);
        let run = with(r#""thinktime": "1000", "thinktime_blocks": "4", "thinktime_spin": "1""#);
        let run = run.unwrap();
        let think = run.points[0].key.workload.think.unwrap();
        assert_eq!((think.pause_ns, think.requests), (1_000_000, 4));
        assert!(run.missing.iter().any(|text| text.contains("thinktime_spin=1")));
        let run = with(r#""thinktime": "1000", "rate_iops": "5""#).unwrap();
        assert!(run.points[0].key.workload.think.is_none());
        assert!(run.missing.iter().any(|text| text.contains("thinktime=1000")));
        for options in [r#""rate": "x""#, r#""rate_iops": "-1""#, r#""thinktime": "x""#] {
            let message = with(options).unwrap_err().message;
            assert!(message.starts_with("job a: "), "{message}");
        }
    }

    #[test]
    fn too_many_servers_or_different_jobs_are_refused() {
        let small = |name: &str, host: &str| {
            format!(r#"{{"jobname": "{name}"{host}, "read": {{"io_bytes": 1, "total_ios": 1}}}}"#)
        };
        let host = |index| format!(", \"hostname\": \"h{index}\"");
        let servers: Vec<String> = (0..=SERVERS_MAX).map(|i| small("a", &host(i))).collect();
        let text = output(&servers).replace("\"jobs\"", "\"client_stats\"");
        assert!(read(&text).unwrap_err().message.contains("at most 1000 servers"));
        let jobs: Vec<String> = (0..=POINTS_MAX).map(|i| small(&i.to_string(), "")).collect();
        let message = read(&output(&jobs)).unwrap_err().message;
        assert!(message.contains("4001 different jobs"), "{message}");
    }

    #[test]
    fn many_options_of_all_jobs_cost_little_time() {
        let globals: Vec<String> = (0..20_000).map(|i| format!("\"o{i}\": \"1\"")).collect();
        let globals = format!("\"global options\": {{{}}}, \"jobs\"", globals.join(","));
        let jobs: Vec<String> = (0..1000).map(|i| job(&i.to_string(), "")).collect();
        let runs = read(&output(&jobs).replace("\"jobs\"", &globals)).unwrap();
        assert_eq!(runs[0].points.len(), 1000);
    }

    #[test]
    fn requests_that_cannot_be_imported_are_named_with_a_remedy() {
        let requests = r#"{"io_bytes": 4096, "total_ios": 1, "runtime": 1}"#;
        for (field, cause, remedy) in [
            ("mixed", "combined count of reads and writes", "unified_rw_reporting"),
            ("trim", "trims", "read or write"),
        ] {
            let other = format!("{{\"jobname\": \"u\", \"{field}\": {requests}}}");
            let message = read(&output(std::slice::from_ref(&other))).unwrap_err().message;
            assert!(message.contains("job u has") && message.contains(cause), "{message}");
            assert!(message.contains(remedy), "{message}");
            let runs = read(&output(&[other, job("a", "")])).unwrap();
            assert!(runs[0].missing.iter().any(|text| text.contains("job u (")));
            let both = job("a", &format!(", \"{field}\": {requests}"));
            let runs = read(&output(&[both])).unwrap();
            assert_eq!(runs[0].missing.contains(&"trims".to_owned()), field == "trim");
        }
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
        let message = read(&output(&[backwards])).unwrap_err().message;
        assert!(message.starts_with("job a: CPU time"), "{message}");
    }
}
