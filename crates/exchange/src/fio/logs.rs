//! fio's logs over time (`write_bw_log`, `write_iops_log`, `write_lat_log`) as intervals.
//!
//! A line is `time (ms), value, direction, size, ...`; further columns (offset, priority, time of
//! issue) are passed over. With `log_avg_msec`, a line has the mean of the time since the line
//! before, and its size is 0. Without it, a line is one request. Logs join the job that wrote them
//! if fio's JSON lies in the same folder and is imported with them; else they are a run of their
//! own. A file of several threads (`per_job_logs=0`) has one thread after the other.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use analysis::histogram::Histogram;
use ioengine::EngineKind;
use lab::failure::{Failure, Outcome};
use lab::machine::{Host, TargetFacts};
use lab::point::{Direction, Point, SeriesPoint, Trial};
use lab::point_key::PointKey;
use workload::Workload;

use crate::imported::{Imported, UNKNOWN_HOST};

/// Format of the document.
pub const FORMAT: &str = "fio-log";
/// Longest time (ms): three years. Times since 1970 are larger.
const TIME_MAX_MS: u64 = 100_000_000_000;
/// Largest value: 1 EB/s in KiB/s, or 11 days in ns.
const VALUE_MAX: u64 = 1_000_000_000_000_000;
/// Intervals of requests that were logged one by one: as long as those of halfpower (ms), but no
/// more than so many.
const INTERVAL_MS: u64 = 100;
const INTERVALS_MAX: u64 = 10_000;
/// Size of a request if nothing states it (bytes): the default of fio.
const REQUEST_BYTES: f64 = 4096.0;
const SECTOR_BYTES: f64 = 512.0;

/// What a log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bandwidth,
    Requests,
    Latency,
    Completion,
    Submission,
}

/// The endings of the names; logs of single requests are taken from the first kind that has some.
const KINDS: [(&str, Kind); 5] = [
    ("_bw", Kind::Bandwidth),
    ("_iops", Kind::Requests),
    ("_lat", Kind::Latency),
    ("_clat", Kind::Completion),
    ("_slat", Kind::Submission),
];

/// The name of a log: `PREFIX_KIND.NUMBER.log` or `PREFIX_KIND.log`.
#[derive(Clone, Debug, PartialEq)]
struct Name {
    folder: PathBuf,
    prefix: String,
    kind: Option<Kind>,
    /// Number of the thread, from 1.
    number: Option<u32>,
}

impl Name {
    /// None if the file is no log of fio. A histogram log has no kind.
    fn of(path: &Path) -> Option<Name> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".log")?;
        let (stem, number) = match stem.rsplit_once('.') {
            Some((rest, number)) if number.parse::<u32>().is_ok() => (rest, number.parse().ok()),
            _ => (stem, None),
        };
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        if let Some(prefix) = stem.strip_suffix("_clat_hist") {
            return Some(Name { folder, prefix: prefix.to_owned(), kind: None, number });
        }
        let (prefix, kind) =
            KINDS.iter().find_map(|(end, kind)| Some((stem.strip_suffix(end)?, Some(*kind))))?;
        Some(Name { folder, prefix: prefix.to_owned(), kind, number })
    }
}

/// A line.
#[derive(Clone, Copy, Debug)]
struct Line {
    ms: u64,
    value: u64,
    /// 0 read, 1 write, 2 trim.
    direction: usize,
    /// 0 in a log of means.
    bytes: u32,
}

/// A log.
#[derive(Clone, Debug)]
struct Log {
    path: PathBuf,
    name: Name,
    kind: Kind,
    lines: Vec<Line>,
    text: String,
}

/// The logs of an import that no job has taken yet.
#[derive(Clone, Debug, Default)]
pub struct Logs(Vec<Log>);

/// Whether a file is a log of fio by its name.
pub fn is_log(path: &Path) -> bool {
    Name::of(path).is_some()
}

impl Logs {
    /// Adds a log.
    ///
    /// # Errors
    /// One line: a histogram log, or a damaged line with its number.
    pub fn add(&mut self, path: &Path, text: String) -> Outcome<()> {
        let Some((name, kind)) = Name::of(path).and_then(|name| Some((name.clone(), name.kind?)))
        else {
            return Err(Failure::failed(
                "a histogram log (log_hist_msec) is not read; import the output of \
                 --output-format=json+, which has the histogram",
            ));
        };
        if self.0.iter().any(|known| known.name == name) {
            return Err(Failure::failed("the log is named twice; name it once"));
        }
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        let lines: Outcome<Vec<Line>> = lines.map(|(number, line)| read(number, line)).collect();
        let lines = lines?;
        if lines.iter().any(|line| line.bytes == 0) && lines.iter().any(|line| line.bytes > 0) {
            return Err(Failure::failed(
                "means and single requests in one log; fio writes one of them, so create it again",
            ));
        }
        self.0.push(Log { path: path.to_path_buf(), name, kind, lines, text });
        Ok(())
    }

    /// Whether no log is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the logs of a job: those in `folder` that begin with one of the prefixes, of threads
    /// with these numbers; logs of all threads only if `is_only` job has the prefixes.
    fn take(
        &mut self,
        folder: &Path,
        prefixes: &[&str],
        threads: &RangeInclusive<u32>,
        is_only: bool,
    ) -> Vec<Log> {
        let is_ours = |name: &Name| {
            let is_prefix = |given: &&str| {
                let given = folder.join(given);
                let stem = given.file_name().unwrap_or_default();
                let folders = [folder, given.parent().unwrap_or(folder)];
                stem == name.prefix.as_str() && folders.contains(&name.folder.as_path())
            };
            prefixes.iter().any(is_prefix)
                && name.number.map_or(is_only, |number| threads.contains(&number))
        };
        let (ours, others) = self.0.drain(..).partition(|log| is_ours(&log.name));
        self.0 = others;
        ours
    }

    /// Gives a trial the intervals of its logs; returns the text of the logs that were used.
    pub fn attach(
        &mut self,
        trial: &mut Trial,
        folder: &Path,
        prefixes: &[&str],
        threads: &RangeInclusive<u32>,
        is_only: bool,
    ) -> String {
        let logs = self.take(folder, prefixes, threads, is_only);
        let mean_bytes = trial.bytes() as f64 / trial.requests().max(1) as f64;
        let all: Vec<&Log> = logs.iter().collect();
        if let Some(rates) = Rates::of(&all, Some(mean_bytes).filter(|bytes| *bytes > 0.0)) {
            trial.series = rates.series();
        }
        logs.into_iter().map(|log| log.text).collect()
    }

    /// The logs that no job took: a run for each prefix, a point for each thread.
    ///
    /// # Errors
    /// One line with the file: empty logs, or latencies without rates.
    pub fn rest(mut self) -> Outcome<Vec<(PathBuf, Imported)>> {
        let mut runs = Vec::new();
        while let Some(first) = self.0.first() {
            let (path, name) = (first.path.clone(), first.name.clone());
            let is_ours =
                |log: &Log| (&log.name.folder, &log.name.prefix) == (&name.folder, &name.prefix);
            let (ours, others): (Vec<Log>, Vec<Log>) = self.0.drain(..).partition(is_ours);
            self.0 = others;
            let run = alone(&name.prefix, &path, &ours).map_err(|failure| {
                Failure::new(failure.exit, format!("{}: {}", path.display(), failure.message))
            })?;
            runs.push((path, run));
        }
        Ok(runs)
    }
}

fn read(number: usize, line: &str) -> Outcome<Line> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let failed = |what: &str| {
        Failure::failed(format!(
            "line {number}: {what}; create the log again with fio 3, without log_unix_epoch and \
             log_window_value"
        ))
    };
    let [ms, value, direction, bytes, ..] = fields.as_slice() else {
        return Err(failed(&format!("{} columns instead of 4 to 7", fields.len())));
    };
    let whole = |what: &str, text: &str, most: u64| {
        let number = text.parse::<u64>().ok().filter(|number| *number <= most);
        number.ok_or_else(|| {
            let text: String = text.escape_debug().take(40).collect();
            failed(&format!("{what} '{text}' is no number from 0 to {most}"))
        })
    };
    if fields.len() > 7 {
        return Err(failed(&format!("{} columns instead of 4 to 7", fields.len())));
    }
    Ok(Line {
        ms: whole("the time", ms, TIME_MAX_MS)?,
        value: whole("the value", value, VALUE_MAX)?,
        direction: whole("the direction", direction, 2)? as usize,
        bytes: whole("the size", bytes, u64::from(u32::MAX))? as u32,
    })
}

/// An amount that was transferred in a time.
#[derive(Clone, Copy, Debug)]
struct Window {
    start_ms: u64,
    end_ms: u64,
    direction: usize,
    amount: f64,
}

/// Bytes and requests over time.
struct Rates {
    bytes: Vec<Window>,
    requests: Vec<Window>,
    /// Ends of the intervals (ms), increasing.
    edges: Vec<u64>,
    /// Whether the number of requests is known, not made from the bytes.
    has_requests: bool,
    /// Whether the number of bytes is known, not made from the requests.
    has_bytes: bool,
}

impl Rates {
    /// None if the logs have no rates. `mean_bytes` of a request, where it is known.
    fn of(logs: &[&Log], mean_bytes: Option<f64>) -> Option<Rates> {
        let of_kind =
            |kind| logs.iter().copied().filter(move |log| log.kind == kind && log.has_means());
        let means = |kind, scale: f64| -> Vec<Window> {
            of_kind(kind).flat_map(|log: &Log| log.windows(scale)).collect()
        };
        let mut bytes = means(Kind::Bandwidth, 1.024);
        let mut requests = means(Kind::Requests, 1e-3);
        let mut edges = ends(of_kind(Kind::Bandwidth).chain(of_kind(Kind::Requests)));
        let single = KINDS.iter().find_map(|(_, kind)| {
            let is_single = |log: &&&Log| log.kind == *kind && log.is_single();
            let logs: Vec<&Log> = logs.iter().filter(is_single).copied().collect();
            (!logs.is_empty()).then_some(logs)
        });
        if let Some(single) = single {
            let (all_bytes, all_requests, all_edges) = counted(&single);
            let given = !edges.is_empty();
            bytes = if bytes.is_empty() { all_bytes } else { bytes };
            requests = if requests.is_empty() { all_requests } else { requests };
            edges = if given { edges } else { all_edges };
        }
        let (has_bytes, has_requests) = (!bytes.is_empty(), !requests.is_empty());
        let mean_bytes = mean_bytes.unwrap_or(REQUEST_BYTES);
        let scaled = |windows: &[Window], by: f64| -> Vec<Window> {
            windows.iter().map(|window| Window { amount: window.amount * by, ..*window }).collect()
        };
        match (has_bytes, has_requests) {
            (false, false) => return None,
            (true, false) => requests = scaled(&bytes, 1.0 / mean_bytes),
            (false, true) => bytes = scaled(&requests, mean_bytes),
            (true, true) => {}
        }
        let last_ms = bytes.iter().chain(&requests).map(|window| window.end_ms).max()?;
        if edges.last().is_none_or(|last| *last < last_ms) {
            edges.push(last_ms);
        }
        Some(Rates { bytes, requests, edges, has_requests, has_bytes })
    }

    fn series(&self) -> Vec<SeriesPoint> {
        let (bytes, requests) = (self.spread(&self.bytes), self.spread(&self.requests));
        let starts = std::iter::once(0).chain(self.edges.iter().copied());
        let points = starts.zip(&self.edges).zip(bytes.into_iter().zip(requests));
        let point = |((start, end), (bytes, requests)): ((u64, &u64), (f64, f64))| SeriesPoint {
            start_ns: start * 1_000_000,
            length_ns: (end - start) * 1_000_000,
            bytes: bytes.round() as u64,
            requests: requests.round() as u64,
        };
        points.map(point).collect()
    }

    /// The amount in each interval. A window that lies in several is divided by time: its rate is
    /// added where whole intervals begin and taken off where they end, so that the effort does not
    /// grow with their number.
    fn spread(&self, windows: &[Window]) -> Vec<f64> {
        let edges = &self.edges;
        let mut amounts = vec![0.0; edges.len()];
        let mut rates = vec![0.0; edges.len() + 1];
        for window in windows {
            let first = edges.partition_point(|edge| *edge <= window.start_ms);
            let last = edges.partition_point(|edge| *edge < window.end_ms);
            if first == last {
                amounts[first] += window.amount;
                continue;
            }
            let rate = window.amount / (window.end_ms - window.start_ms) as f64;
            amounts[first] += rate * (edges[first] - window.start_ms) as f64;
            amounts[last] += rate * (window.end_ms - edges[last - 1]) as f64;
            rates[first + 1] += rate;
            rates[last] -= rate;
        }
        let (mut rate, mut start_ms) = (0.0, 0);
        for ((amount, edge), change) in amounts.iter_mut().zip(edges).zip(rates) {
            rate += change;
            // Sums of rates that were taken off again may be a little below 0.
            *amount += f64::max(rate, 0.0) * (edge - start_ms) as f64;
            start_ms = *edge;
        }
        amounts
    }

    fn total(windows: &[Window], direction: usize) -> u64 {
        let ours = windows.iter().filter(|window| window.direction == direction);
        ours.map(|window| window.amount).sum::<f64>().round() as u64
    }
}

/// Bytes and requests of logs of single requests, in intervals of the same length, and the ends of
/// these.
fn counted(logs: &[&Log]) -> (Vec<Window>, Vec<Window>, Vec<u64>) {
    let lines = || logs.iter().flat_map(|log| log.transfers());
    let last_ms = lines().map(|line| line.ms).max().unwrap_or(0);
    let step = INTERVAL_MS.max((last_ms / INTERVALS_MAX).next_multiple_of(INTERVAL_MS));
    let mut sums: BTreeMap<(u64, usize), (f64, f64)> = BTreeMap::new();
    for line in lines() {
        let (bytes, requests) = sums.entry((line.ms / step, line.direction)).or_default();
        *bytes += f64::from(line.bytes);
        *requests += 1.0;
    }
    let window = |index: u64, direction, amount| {
        let start_ms = index * step;
        Window { start_ms, end_ms: start_ms + step, direction, amount }
    };
    let all = sums.iter().map(|((index, direction), (bytes, requests))| {
        (window(*index, *direction, *bytes), window(*index, *direction, *requests))
    });
    let (bytes, requests) = all.unzip();
    (bytes, requests, (1..=last_ms / step + 1).map(|index| index * step).collect())
}

impl Log {
    fn has_means(&self) -> bool {
        self.lines.iter().any(|line| line.bytes == 0)
    }

    fn is_single(&self) -> bool {
        self.lines.iter().any(|line| line.bytes > 0)
    }

    /// The lines of reads and writes.
    fn transfers(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.direction < 2)
    }

    /// The lines of means as windows: each reaches back to the line before of its direction, or to
    /// the start where the time goes backwards, because another thread begins there.
    fn windows(&self, scale: f64) -> Vec<Window> {
        let (mut windows, mut before_ms, mut latest_ms) = (Vec::new(), [0; 2], 0);
        for line in self.transfers() {
            if line.ms < latest_ms {
                before_ms = [0; 2];
            }
            latest_ms = line.ms;
            let start_ms = std::mem::replace(&mut before_ms[line.direction], line.ms);
            if line.ms > start_ms {
                let amount = line.value as f64 * scale * (line.ms - start_ms) as f64;
                let (end_ms, direction) = (line.ms, line.direction);
                windows.push(Window { start_ms, end_ms, direction, amount });
            }
        }
        windows
    }
}

/// The ends of the intervals of the log with the most lines, up to where a second thread begins.
fn ends<'a>(logs: impl Iterator<Item = &'a Log>) -> Vec<u64> {
    let longer =
        |best: &'a Log, log: &'a Log| if log.lines.len() > best.lines.len() { log } else { best };
    let Some(log) = logs.reduce(longer) else { return Vec::new() };
    let mut edges = Vec::new();
    for line in log.transfers() {
        match edges.last() {
            Some(last) if line.ms < *last => break,
            Some(last) if line.ms == *last => {}
            _ if line.ms == 0 => {}
            _ => edges.push(line.ms),
        }
    }
    edges
}

/// A run of logs without fio's JSON.
fn alone(prefix: &str, path: &Path, logs: &[Log]) -> Outcome<Imported> {
    if logs.iter().all(|log| log.lines.is_empty()) {
        return Err(Failure::failed("the log is empty; nothing to import"));
    }
    let mut numbers: Vec<Option<u32>> = logs.iter().map(|log| log.name.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut missing = vec!["the settings (sequential, depth 1, buffered and sync are assumed)"];
    missing.extend(["the target", "CPU time", "the start (the file's time is stored)"]);
    let mut trial: Option<Trial> = None;
    for number in &numbers {
        let ours: Vec<&Log> = logs.iter().filter(|log| log.name.number == *number).collect();
        let Some(rates) = Rates::of(&ours, None) else { continue };
        if !rates.has_bytes || !rates.has_requests {
            missing.push("the size of requests (4 KiB is assumed, the default of fio)");
        }
        let thread = thread(&rates, &ours, &mut missing);
        match &mut trial {
            Some(all) => crate::imported::add_threads(all, &thread),
            None => trial = Some(thread),
        }
    }
    let rates = Rates::of(&logs.iter().collect::<Vec<_>>(), None);
    let (Some(mut trial), Some(rates)) = (trial, rates) else {
        return Err(Failure::failed(
            "a log of mean latencies has no rates; import it with the bw or iops log of the run",
        ));
    };
    trial.series = rates.series();
    missing.sort_unstable();
    missing.dedup();
    let modified = std::fs::metadata(path).and_then(|facts| facts.modified()).ok();
    let modified = modified.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let ended_unix_ns = modified.map_or(0, |at| i64::try_from(at.as_nanos()).unwrap_or(0));
    trial.started_unix_ns = ended_unix_ns.saturating_sub_unsigned(trial.elapsed_ns).max(0);
    let text = |log: &Log| {
        let name = log.path.file_name().unwrap_or_default().to_string_lossy();
        format!("==> {name} <==\n{}", log.text)
    };
    Ok(Imported {
        tool: "fio".to_owned(),
        format: FORMAT,
        title: format!("logs of {prefix}"),
        started_unix_ns: trial.started_unix_ns,
        host: Host { name: UNKNOWN_HOST.to_owned(), ..Host::default() },
        target: TargetFacts::default(),
        points: vec![Point { key: key(&trial, numbers.len()), trials: vec![trial] }],
        missing: missing.into_iter().map(str::to_owned).collect(),
        document: logs.iter().map(text).collect(),
        supplement: String::new(),
    })
}

/// The counts of one thread, with its latencies if each was logged.
fn thread(rates: &Rates, logs: &[&Log], missing: &mut Vec<&str>) -> Trial {
    let elapsed_ns = rates.edges.last().map_or(1, |last| last.saturating_mul(1_000_000));
    let latencies = [Kind::Latency, Kind::Completion]
        .iter()
        .find_map(|kind| logs.iter().find(|log| log.kind == *kind && log.is_single()));
    if latencies.is_none() {
        missing.push("latencies of single requests");
    }
    let direction = |direction: usize| {
        let mut latency = Histogram::new();
        let lines = latencies.iter().flat_map(|log| log.transfers());
        lines
            .filter(|line| line.direction == direction)
            .for_each(|line| latency.record(line.value));
        Direction {
            bytes: Rates::total(&rates.bytes, direction),
            requests: Rates::total(&rates.requests, direction),
            latency,
        }
    };
    let mut trial =
        Trial { directions: [direction(0), direction(1)], elapsed_ns, ..Trial::default() };
    trial.cpu.elapsed_ns = elapsed_ns;
    trial
}

/// The size of requests from their mean. fio logs rates as whole numbers, so the mean is off by up
/// to a percent from a multiple of the sector.
fn size(mean_bytes: f64) -> u32 {
    let whole = ((mean_bytes / SECTOR_BYTES).round() * SECTOR_BYTES).max(SECTOR_BYTES);
    let is_off = (whole / mean_bytes - 1.0).abs() > 0.01;
    (if is_off { mean_bytes.round() } else { whole }).max(1.0) as u32
}

fn key(trial: &Trial, threads: usize) -> PointKey {
    let [read, write] = &trial.directions;
    let all = (read.requests + write.requests).max(1);
    let workload = Workload {
        engine_kind: EngineKind::Sync,
        read_percent: (100.0 * read.requests as f64 / all as f64).round() as u8,
        request_bytes: size(trial.bytes() as f64 / all as f64),
        threads: threads as u32,
        region_bytes: trial.bytes(),
        ..Workload::default()
    };
    PointKey::of(&workload)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logs of fio 3.33: a mix at 500 requests of 4 KiB per second in each direction, with
    /// `log_avg_msec=250`.
    const MIX_BW: &str = "250, 2016, 0, 0, 0\n250, 2016, 1, 0, 0\n500, 2000, 0, 0, 0\n\
                          500, 2000, 1, 0, 0\n755, 1992, 0, 0, 0\n755, 1992, 1, 0, 0\n";
    const MIX_IOPS: &str = "250, 504, 0, 0, 0\n250, 504, 1, 0, 0\n500, 500, 0, 0, 0\n\
                            500, 500, 1, 0, 0\n755, 498, 0, 0, 0\n755, 498, 1, 0, 0\n";
    /// Each request, with offset and priority (`log_offset`, `log_prio`).
    const EACH: &str = "0, 217317, 1, 16384, 0, 0x0000\n3, 441915, 1, 16384, 16384, 0x0000\n\
                        150, 506805, 1, 4096, 32768, 0x0000, 99\n151, 1, 2, 4096, 0, 0x0000\n";
    /// Two threads with `per_job_logs=0`: one after the other.
    const THREADS: &str = "202, 2000, 0, 0, 0\n407, 2009, 0, 0, 0\n101, 1000, 0, 0, 0\n\
                           407, 1000, 0, 0, 0\n";

    fn logs(files: &[(&str, &str)]) -> Outcome<Logs> {
        let mut logs = Logs::default();
        for (name, text) in files {
            logs.add(Path::new(name), (*text).to_owned())?;
        }
        Ok(logs)
    }

    fn run(files: &[(&str, &str)]) -> Outcome<Imported> {
        Ok(logs(files)?.rest()?.remove(0).1)
    }

    fn total(trial: &Trial) -> (u64, u64) {
        let sum = |of: fn(&SeriesPoint) -> u64| trial.series.iter().map(of).sum();
        (sum(|interval| interval.bytes), sum(|interval| interval.requests))
    }

    #[test]
    fn means_of_bandwidth_and_requests_become_intervals() {
        let run = run(&[("a_bw.1.log", MIX_BW), ("a_iops.1.log", MIX_IOPS)]).unwrap();
        let (key, trial) = (&run.points[0].key, &run.points[0].trials[0]);
        assert_eq!((key.rw(), key.request_bytes(), key.workload.read_percent), ("rw", 4096, 50));
        assert_eq!(trial.series.len(), 3);
        let last = trial.series[2];
        assert_eq!((last.start_ns, last.length_ns), (500_000_000, 255_000_000));
        // Both directions: 2 x 498 requests per second for 255 ms.
        assert_eq!((last.requests, last.bytes), (254, 2 * 1992 * 1024 * 255 / 1000));
        assert_eq!(trial.elapsed_ns, 755_000_000);
        assert!((trial.bytes_per_s() / (2.0 * 2002.6 * 1024.0) - 1.0).abs() < 1e-3);
        assert!(run.missing.iter().any(|text| text.contains("latencies")));
        assert!(run.missing.iter().all(|text| !text.contains("4 KiB")));
        assert!(run.document.starts_with("==> a_bw.1.log <==\n250, 2016"));
    }

    #[test]
    fn a_bandwidth_log_alone_has_the_default_size_of_requests_and_says_so() {
        let run = run(&[("a_bw.log", MIX_BW)]).unwrap();
        assert_eq!(run.points[0].key.request_bytes(), 4096);
        assert!(run.missing.iter().any(|text| text.contains("4 KiB is assumed")));
    }

    #[test]
    fn single_requests_are_counted_in_intervals_and_give_latencies() {
        let run = run(&[("a_bw.1.log", EACH), ("a_lat.1.log", EACH)]).unwrap();
        let trial = &run.points[0].trials[0];
        assert_eq!((trial.bytes(), trial.requests()), (36_864, 3), "trims are no transfers");
        let counts: Vec<u64> = trial.series.iter().map(|interval| interval.requests).collect();
        assert_eq!(counts, [2, 1]);
        let latency = &trial.directions[1].latency;
        assert_eq!((latency.count(), latency.min()), (3, Some(217_317)));
    }

    #[test]
    fn threads_are_summed_although_their_intervals_differ() {
        let one_file = run(&[("a_bw.log", THREADS)]).unwrap();
        let lines: Vec<&str> = THREADS.lines().collect();
        let (one, two) = (lines[..2].join("\n"), lines[2..].join("\n"));
        let two_files = run(&[("a_bw.1.log", &one), ("a_bw.2.log", &two)]).unwrap();
        let bytes = (202 * 2000 + 205 * 2009 + 407 * 1000) * 1024 / 1000;
        for run in [one_file, two_files] {
            let trial = &run.points[0].trials[0];
            assert!(total(trial).0.abs_diff(bytes) <= 2 && trial.bytes().abs_diff(bytes) <= 2);
            let ends = trial.series.iter().map(|part| (part.start_ns + part.length_ns) / 1_000_000);
            assert_eq!(ends.collect::<Vec<_>>(), [202, 407]);
        }
    }

    #[test]
    fn a_job_takes_only_its_own_logs() {
        let files = [
            ("in/a_bw.1.log", MIX_BW),
            ("in/a_bw.2.log", MIX_BW),
            ("in/b_bw.1.log", MIX_BW),
            ("a_bw.1.log", MIX_BW),
            ("in/a_bw.log", MIX_BW),
        ];
        let mut all = logs(&files).unwrap();
        let mut trial = Trial::default();
        trial.directions[0] = Direction { bytes: 4096, requests: 1, ..Direction::default() };
        let text = all.attach(&mut trial, Path::new("in"), &["a"], &(1..=1), false);
        assert_eq!((text.as_str(), trial.series.len()), (MIX_BW, 3));
        let rest: Vec<PathBuf> = all.rest().unwrap().into_iter().map(|(path, _)| path).collect();
        assert_eq!(rest, ["in/a_bw.2.log", "in/b_bw.1.log", "a_bw.1.log"].map(PathBuf::from));
    }

    #[test]
    fn damaged_and_hostile_logs_are_refused_in_one_line() {
        for (text, cause) in [
            ("250, NaN, 0, 0, 0", "line 1: the value 'NaN'"),
            ("250, -1, 0, 0, 0", "line 1: the value '-1'"),
            ("1, 1, 0, 0\n250, 2016, 3, 0, 0", "line 2: the direction '3'"),
            ("250, 2016", "line 1: 2 columns"),
            ("1, 2, 0, 4, 5, 6, 7, 8", "line 1: 8 columns"),
            ("1795518014579, 2016, 0, 0, 0", "line 1: the time"),
            ("1, 99999999999999999999, 0, 0", "line 1: the value"),
            ("1, 1, 0, 0\n2, 1, 0, 4096", "means and single requests"),
            ("", "empty"),
            ("1, 5, 2, 0", "no rates"),
        ] {
            let failure = run(&[("a_bw.1.log", text)]).unwrap_err();
            assert!(failure.message.contains(cause), "{failure}");
            assert!(failure.message.contains(';') && failure.message.lines().count() == 1);
        }
        let twice = run(&[("a_bw.1.log", MIX_BW), ("a_bw.1.log", MIX_BW)]).unwrap_err();
        assert!(twice.message.contains("named twice"));
        let histogram = run(&[("a_clat_hist.1.log", "500, 0, 4096, 0")]).unwrap_err();
        assert!(histogram.message.contains("json+"), "{histogram}");
        let latencies = run(&[("a_lat.1.log", "250, 5000, 0, 0, 0")]).unwrap_err();
        assert!(latencies.message.contains("bw or iops"), "{latencies}");
    }

    #[test]
    fn many_windows_over_many_intervals_take_little_time() {
        let mut text: String = (1..200_000).map(|ms| format!("{ms}, 8, 0, 0\n")).collect();
        // Each line goes backwards, so each is a thread of its own that began at the start.
        text.extend((1..100_000).map(|at| format!("{}, 8, 0, 0\n", 200_000 - at)));
        let run = run(&[("a_bw.log", &text)]).unwrap();
        let trial = &run.points[0].trials[0];
        assert_eq!(trial.series.len(), 199_999);
        assert!((total(trial).0 as f64 / trial.bytes() as f64 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn three_years_of_requests_are_no_more_intervals_than_allowed() {
        let text = format!("0, 1, 0, 4096\n{TIME_MAX_MS}, 1, 0, 4096\n");
        let run = run(&[("a_bw.1.log", &text)]).unwrap();
        assert!(run.points[0].trials[0].series.len() as u64 <= INTERVALS_MAX + 1);
    }
}
