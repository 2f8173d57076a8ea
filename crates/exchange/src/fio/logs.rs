//! Converts fio's logs (`write_bw_log`, `write_iops_log`, `write_lat_log`) to time series.
//!
//! A line is `time (ms), value, direction, size, ...`. Further columns (offset, priority, issue
//! time) are ignored. With `log_avg_msec`, a line has the mean over the time since the previous
//! line, and its size is 0. Without `log_avg_msec`, a line describes one request. A log of several
//! threads (`per_job_logs=0`) has all lines of the first thread, then all lines of the next thread.
//!
//! If logs are imported together with fio's JSON output from the same directory, they are added to
//! the job that wrote them. Otherwise they become a separate run.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use lab::failure::{Failure, Outcome};
use lab::point::Trial;

use crate::checked::{self, NUMBER_MAX};
use crate::imported::Imported;

use self::line::Line;
use self::rates::{Known, Rates, Window};

mod line;
mod rates;
mod alone;

/// Name of this format in the database.
pub const FORMAT: &str = "fio-log";
/// Maximum number of lines in all logs together. This limits the memory use.
const LINES_MAX: usize = 20_000_000;
/// Maximum relative difference between the totals in the logs and in fio's JSON output.
const DIFFERENCE_MAX: f64 = 0.2;

/// The quantity in the value column of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bandwidth,
    Requests,
    Latency,
    Completion,
    Submission,
}

/// Suffixes in the names of logs. If several kinds of logs have individual requests, the first kind
/// in this list is used.
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
    /// None for a histogram log.
    kind: Option<Kind>,
    /// Number of the thread, from 1. None if the name has no number.
    number: Option<u32>,
}

impl Name {
    /// Parses a file name. None if the file is not a log of fio.
    fn of(path: &Path) -> Option<Name> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".log")?;
        let (stem, number) = match stem.rsplit_once('.') {
            Some((rest, number)) if number.parse::<u32>().is_ok() => (rest, number.parse().ok()),
            _ => (stem, None),
        };
        let folder = real(path.parent().unwrap_or(Path::new("")));
        if let Some(prefix) = stem.strip_suffix("_clat_hist") {
            return Some(Name { folder, prefix: prefix.to_owned(), kind: None, number });
        }
        let (prefix, kind) =
            KINDS.iter().find_map(|(end, kind)| Some((stem.strip_suffix(end)?, Some(*kind))))?;
        Some(Name { folder, prefix: prefix.to_owned(), kind, number })
    }
}

/// Resolves symbolic links and dots in the path of a directory, so that different spellings of the
/// path are equal. Returns the path unchanged if the directory does not exist.
fn real(folder: &Path) -> PathBuf {
    let named = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    named.canonicalize().unwrap_or_else(|_| folder.to_path_buf())
}

impl Kind {
    /// Returns true if the means in a log of this kind are rates, false if they are latencies.
    fn is_rate(self) -> bool {
        matches!(self, Kind::Bandwidth | Kind::Requests)
    }

    /// Returns the factor that converts a logged rate to bytes per ms (bandwidth) or requests per
    /// ms (IOPS).
    fn scale(self) -> f64 {
        if self == Kind::Bandwidth { 1.024 } else { 1e-3 }
    }

    /// Returns the factor that converts a logged rate to bytes per ms, for the check of the total.
    /// Each request of an IOPS log counts as 4 KiB.
    fn most_bytes(self) -> f64 {
        if self == Kind::Bandwidth { 1.024 } else { 1e-3 * rates::REQUEST_BYTES }
    }
}

#[derive(Clone, Debug)]
struct Log {
    path: PathBuf,
    name: Name,
    kind: Kind,
    lines: Vec<Line>,
    /// Usual time between two lines (ms). `u64::MAX` if the log does not contain mean rates.
    step_ms: u64,
    text: String,
}

/// The logs of an import that are not assigned to a job yet.
#[derive(Debug, Default)]
pub struct Logs {
    logs: Vec<Log>,
    /// The error for the first log that contradicts its job. None if no log contradicts its job.
    failure: Option<Failure>,
}

/// Returns true if a file name is that of a log of fio, such as `a_bw.1.log`.
pub fn is_log(path: &Path) -> bool {
    Name::of(path).is_some()
}

impl Logs {
    /// Adds a log.
    ///
    /// # Errors
    /// The log is a histogram log, was added before, or has a damaged line. The message has one
    /// line.
    pub fn add(&mut self, path: &Path, text: String) -> Outcome<()> {
        let Some((name, kind)) = Name::of(path).and_then(|name| Some((name.clone(), name.kind?)))
        else {
            return Err(Failure::failed(
                "histogram logs (log_hist_msec) cannot be imported; import the output of \
                 --output-format=json+, which has the histogram",
            ));
        };
        if self.logs.iter().any(|known| known.name == name) {
            return Err(Failure::failed("the log is specified twice; specify it once"));
        }
        checked::is_complete(&text)?;
        let others = self.logs.iter().map(|log| log.lines.len()).sum();
        let lines = read(&text, &name, kind, others)?;
        if lines.iter().any(|line| line.bytes() == 0) && lines.iter().any(|line| line.bytes() > 0) {
            return Err(Failure::failed(
                "the log mixes means and individual requests, unlike fio's logs; create it again",
            ));
        }
        let mut log = Log { path: path.to_path_buf(), name, kind, lines, step_ms: u64::MAX, text };
        log.step_ms = log.usual_step_ms();
        self.logs.push(log);
        Ok(())
    }

    /// Returns true if every log was assigned to a job.
    pub fn is_empty(&self) -> bool {
        self.logs.is_empty()
    }

    /// Removes the logs of a job from the list and returns them. Their names have one of `prefixes`
    /// (relative to `folder`) and a thread number in `threads`. A log without a number may have
    /// lines of all threads, so it is taken only if no other job has the same prefix (`is_only`).
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
                let folders = [real(folder), real(given.parent().unwrap_or(folder))];
                stem == name.prefix.as_str() && folders.contains(&name.folder)
            };
            prefixes.iter().any(is_prefix)
                && name.number.map_or(is_only, |number| threads.contains(&number))
        };
        let (ours, others) = self.logs.drain(..).partition(|log| is_ours(&log.name));
        self.logs = others;
        ours
    }

    /// Stores the time series of the logs in a trial. Returns the text of the logs that were used.
    /// If the logs do not belong to the trial, [`Logs::rest`] fails later.
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
        let known = Known {
            mean_bytes: Some(mean_bytes).filter(|bytes| *bytes > 0.0),
            elapsed_ms: Some(trial.elapsed_ns.div_ceil(1_000_000)),
            end_ms: rates::complete_ms(&all),
        };
        match belong(trial, &all) {
            Ok(()) => {
                if let Some(rates) = Rates::of(&all, known) {
                    trial.series = rates.series();
                }
            }
            Err(failure) => self.failure = self.failure.take().or(Some(failure)),
        }
        logs.into_iter().map(|log| log.text).collect()
    }

    /// Converts the remaining logs to runs: for each prefix, a run with one point.
    ///
    /// # Errors
    /// The logs are empty, have latencies but no rates, or belong to different jobs, or
    /// [`Logs::attach`] found logs that contradict their job.
    pub fn rest(mut self) -> Outcome<Vec<(PathBuf, Imported)>> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let mut runs = Vec::new();
        while let Some(first) = self.logs.first() {
            let (path, name) = (first.path.clone(), first.name.clone());
            let is_ours =
                |log: &Log| (&log.name.folder, &log.name.prefix) == (&name.folder, &name.prefix);
            let (ours, others): (Vec<Log>, Vec<Log>) = self.logs.drain(..).partition(is_ours);
            self.logs = others;
            let run = alone::run(&name.prefix, &path, ours).map_err(|failure| {
                Failure::new(failure.exit, format!("{}: {}", path.display(), failure.message))
            })?;
            runs.push((path, run));
        }
        Ok(runs)
    }
}

/// Finds the start time and the thread of each line of a log. The lines are visited in order.
struct Cursor {
    /// Whether the log may have several threads. True for a log without a thread number.
    may_restart: bool,
    /// Whether the lines are mean rates. If so, a second line with the same time and direction
    /// begins another thread.
    is_rate: bool,
    before_ms: [u64; 3],
    latest_ms: u64,
    thread: u32,
}

impl Cursor {
    fn new(name: &Name, is_rate: bool) -> Cursor {
        let may_restart = name.number.is_none();
        Cursor { may_restart, is_rate, before_ms: [0; 3], latest_ms: 0, thread: 0 }
    }

    /// Returns the start of the interval that a line covers (ms): the time of the previous line
    /// with the same direction and thread, or 0 if there is none.
    ///
    /// # Errors
    /// The log belongs to a single thread, but a time is lower than the previous time or occurs
    /// twice.
    fn start_ms(&mut self, line: Line) -> Result<u64, &'static str> {
        let (ms, direction) = (line.ms(), line.direction());
        let goes_back = ms < self.latest_ms;
        let is_twice = self.is_rate && ms > 0 && ms == self.before_ms[direction];
        if goes_back || is_twice {
            if !self.may_restart && goes_back {
                return Err(
                    "the time is lower than in an earlier line, although the log has one thread",
                );
            }
            if !self.may_restart {
                return Err("two lines have the same time and direction");
            }
            self.before_ms = [0; 3];
            self.thread = self.thread.saturating_add(1);
        }
        self.latest_ms = ms;
        Ok(std::mem::replace(&mut self.before_ms[direction], ms))
    }
}

/// Reads and checks the lines of a log. `others` is the number of lines in all other logs.
fn read(text: &str, name: &Name, kind: Kind, others: usize) -> Outcome<Vec<Line>> {
    let (mut lines, mut amount) = (Vec::new(), 0.0);
    let mut cursors = [true, false].map(|is_rate| Cursor::new(name, is_rate));
    for (number, text) in (1..).zip(text.lines()) {
        if text.trim().is_empty() {
            continue;
        }
        let failed =
            |what: &str, remedy: &str| Failure::failed(format!("line {number}: {what}; {remedy}"));
        let line = Line::read(number, text)?;
        let damaged = |what| failed(what, "the log is damaged, so create it again");
        if line.bytes() > 0 || !kind.is_rate() {
            cursors[1].start_ms(line).map_err(damaged)?;
        } else {
            let start_ms = cursors[0].start_ms(line).map_err(damaged)?;
            if line.ms() == 0 {
                return Err(failed(
                    "the mean at time 0 covers no interval, so it cannot be used",
                    "use a longer log_avg_msec",
                ));
            }
            amount += line.value() as f64 * kind.most_bytes() * (line.ms() - start_ms) as f64;
        }
        if amount >= NUMBER_MAX as f64 {
            return Err(damaged("the logged rates add up to more bytes than can be stored"));
        }
        if others + lines.len() >= LINES_MAX {
            let what = format!("all logs together have more than {LINES_MAX} lines");
            return Err(failed(&what, "use a longer log_avg_msec, or import fewer logs at once"));
        }
        lines.push(line);
    }
    lines.shrink_to_fit();
    Ok(lines)
}

/// Total bytes or requests of one thread in a log of means.
#[derive(Clone, Copy, Debug)]
struct ThreadSum {
    amount: f64,
    end_ms: u64,
}

impl Log {
    fn has_means(&self) -> bool {
        self.lines.first().is_some_and(|line| line.bytes() == 0)
    }

    fn is_single(&self) -> bool {
        self.lines.first().is_some_and(|line| line.bytes() > 0)
    }

    /// Returns the lines of reads and writes.
    fn transfers(&self) -> impl Iterator<Item = Line> {
        self.lines.iter().copied().filter(|line| line.direction() < 2)
    }

    /// Converts the lines of a log of means to time windows. A window begins at the previous line
    /// of the same direction, or at the start of the thread. fio writes no lines while there are no
    /// requests, and the mean after such a gap covers only the usual step. So a window after a gap
    /// begins one step before its line.
    fn windows(&self) -> impl Iterator<Item = Window> {
        let mut cursor = Cursor::new(&self.name, true);
        let scale = self.kind.scale();
        let all = self.lines.iter().map(move |line| {
            // The order of the lines was checked when the log was read, so this cannot fail.
            let start_ms = cursor.start_ms(*line).unwrap_or(line.ms());
            (*line, start_ms, cursor.thread)
        });
        let ours = all.filter(|(line, start_ms, _)| line.direction() < 2 && line.ms() > *start_ms);
        ours.map(move |(line, start_ms, thread)| {
            let (end_ms, length_ms) = (line.ms(), line.ms() - start_ms);
            // A window longer than 1.9 steps includes a gap without requests.
            let is_long = length_ms.saturating_mul(10) > self.step_ms.saturating_mul(19);
            let length_ms = if is_long { self.step_ms } else { length_ms };
            let amount = line.value() as f64 * scale * length_ms as f64;
            let (start_ms, direction) = (end_ms - length_ms, line.direction());
            Window { start_ms, end_ms, direction, amount, thread }
        })
    }

    /// Returns the usual length of a window (ms). The lower quartile of all lengths is used,
    /// because windows that include a gap without requests are longer.
    fn usual_step_ms(&self) -> u64 {
        if !self.has_means() || !self.kind.is_rate() {
            return u64::MAX;
        }
        let windows = self.windows();
        let mut lengths: Vec<u64> = windows.map(|window| window.end_ms - window.start_ms).collect();
        // Fewer than four windows have no quartile, so the longest length is used.
        let place = match lengths.len() {
            0 => return u64::MAX,
            few @ 1..4 => few - 1,
            many => many / 4,
        };
        *lengths.select_nth_unstable(place).1
    }

    /// Sums the bytes or requests of each thread in a log of means.
    fn threads(&self) -> Vec<ThreadSum> {
        let mut threads: Vec<ThreadSum> = Vec::new();
        let mut latest = None;
        for window in self.windows() {
            if latest != Some(window.thread) {
                threads.push(ThreadSum { amount: 0.0, end_ms: 0 });
            }
            latest = Some(window.thread);
            if let Some(thread) = threads.last_mut() {
                thread.amount += window.amount;
                thread.end_ms = window.end_ms;
            }
        }
        threads
    }

    fn thread_count(&self) -> u32 {
        let mut cursor = Cursor::new(&self.name, self.has_means() && self.kind.is_rate());
        self.lines.iter().for_each(|line| _ = cursor.start_ms(*line));
        cursor.thread.saturating_add(1)
    }
}

/// Checks that the logs have about as many bytes or requests as the trial. The logs may have fewer,
/// because the last line of a thread may be missing.
fn belong(trial: &Trial, logs: &[&Log]) -> Outcome<()> {
    let elapsed_ms = trial.elapsed_ns.div_ceil(1_000_000);
    for (_, kind) in KINDS {
        let ours = || logs.iter().filter(move |log| log.kind == kind);
        let Some(first) = ours().find(|log| !log.lines.is_empty()) else { continue };
        let counts_requests = kind == Kind::Requests;
        let (mut least, mut most) = (0.0, 0.0);
        for log in ours() {
            if log.is_single() {
                let bytes: f64 = log.transfers().map(|line| f64::from(line.bytes())).sum();
                let amount = if counts_requests { log.transfers().count() as f64 } else { bytes };
                least += amount;
                most += amount;
            } else if log.lines.is_empty() {
                // The log is empty because its thread ended before fio wrote the first line. Any
                // number of bytes or requests may be missing.
                most = f64::INFINITY;
            } else if kind.is_rate() {
                for thread in log.threads() {
                    let rest_ms = elapsed_ms.saturating_sub(thread.end_ms);
                    let rest_ms = rest_ms.min(log.step_ms.saturating_mul(2)) as f64;
                    least += thread.amount;
                    most += thread.amount * (1.0 + rest_ms / thread.end_ms.max(1) as f64);
                }
            } else {
                // The number of transferred bytes cannot be computed from mean latencies.
                (least, most) = (0.0, f64::INFINITY);
            }
        }
        let stated = if counts_requests { trial.requests() } else { trial.bytes() } as f64;
        if least > stated * (1.0 + DIFFERENCE_MAX) || most < stated * (1.0 - DIFFERENCE_MAX) {
            let unit = if counts_requests { "requests" } else { "bytes" };
            return Err(Failure::failed(format!(
                "{}: the logs have {least:.0} {unit}, but the job in fio's JSON output has \
                 {stated:.0}; import all logs of this run, or the JSON output without logs",
                first.path.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::point::{Direction, SeriesPoint};

    /// Bandwidth log of fio 3.33 with `log_avg_msec=250`: a mix of reads and writes, with 500
    /// requests of 4 KiB per second in each direction.
    const MIX_BW: &str = "250, 2016, 0, 0, 0\n250, 2016, 1, 0, 0\n500, 2000, 0, 0, 0\n\
                          500, 2000, 1, 0, 0\n755, 1992, 0, 0, 0\n755, 1992, 1, 0, 0\n";
    const MIX_IOPS: &str = "250, 504, 0, 0, 0\n250, 504, 1, 0, 0\n500, 500, 0, 0, 0\n\
                            500, 500, 1, 0, 0\n755, 498, 0, 0, 0\n755, 498, 1, 0, 0\n";
    /// Log of individual requests with offset and priority (`log_offset`, `log_prio`).
    const EACH: &str = "0, 217317, 1, 16384, 0, 0x0000\n3, 441915, 1, 16384, 16384, 0x0000\n\
                        150, 506805, 1, 4096, 32768, 0x0000, 99\n151, 1, 2, 4096, 0, 0x0000\n";
    /// Log of two threads with `per_job_logs=0`: first all lines of the first thread,
    /// then all lines of the second thread.
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
        // Reads and writes together have 2 x 498 requests per second, for 255 ms.
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
        let (one, two) = (lines[..2].join("\n") + "\n", lines[2..].join("\n") + "\n");
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
        trial.directions[0] = Direction { bytes: 3_092_000, requests: 755, ..Direction::default() };
        trial.elapsed_ns = 755_000_000;
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
            ("1, 1, 0, 0\n2, 1, 0, 4096", "means and individual requests"),
            ("", "empty"),
            ("1, 5, 2, 0", "no rates"),
            ("100, 0, 0, 0", "no request"),
        ] {
            let text = if text.is_empty() { text.to_owned() } else { format!("{text}\n") };
            let failure = run(&[("a_bw.1.log", &text)]).unwrap_err();
            assert!(failure.message.contains(cause), "{failure}");
            assert!(failure.message.contains(';') && failure.message.lines().count() == 1);
        }
        let twice = run(&[("a_bw.1.log", MIX_BW), ("a_bw.1.log", MIX_BW)]).unwrap_err();
        assert!(twice.message.contains("specified twice"));
        let histogram = run(&[("a_clat_hist.1.log", "500, 0, 4096, 0\n")]).unwrap_err();
        assert!(histogram.message.contains("json+"), "{histogram}");
        let latencies = run(&[("a_lat.1.log", "250, 5000, 0, 0, 0\n")]).unwrap_err();
        assert!(latencies.message.contains("bw or iops"), "{latencies}");
    }

    #[test]
    fn many_windows_over_many_intervals_take_little_time() {
        let mut text: String = (1..50_000).map(|ms| format!("{ms}, 8000, 0, 0\n")).collect();
        // The time decreases in each line, so each line is a separate thread that began at time 0.
        text.extend((0..200_000).map(|at| format!("{}, 8000, 0, 0\n", 250_000 - at)));
        let run = run(&[("a_bw.log", &text)]).unwrap();
        let trial = &run.points[0].trials[0];
        assert_eq!(trial.series.len(), 50_000);
        assert!((total(trial).0 as f64 / trial.bytes() as f64 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn three_years_of_requests_are_no_more_intervals_than_allowed() {
        let text = format!("0, 1, 0, 4096\n{}, 1, 0, 4096\n", line::TIME_MAX_MS);
        let run = run(&[("a_bw.1.log", &text)]).unwrap();
        assert!(run.points[0].trials[0].series.len() as u64 <= rates::COUNTED_MAX + 1);
    }
    fn trial(bytes: u64, requests: u64, elapsed_ms: u64) -> Trial {
        let mut trial = Trial { elapsed_ns: elapsed_ms * 1_000_000, ..Trial::default() };
        trial.directions[0] = Direction { bytes, requests, ..Direction::default() };
        trial
    }

    fn attached(files: &[(&str, &str)], trial: &mut Trial) -> Outcome<()> {
        let mut all = logs(files)?;
        all.attach(trial, Path::new(""), &["a"], &(1..=9), true);
        all.rest().map(drop)
    }

    #[test]
    fn single_requests_end_with_the_last_one_or_with_the_run() {
        // 100 requests completed within 8 ms.
        let text: String = (0..100).map(|at| format!("{}, 62000, 0, 4096, 0\n", at / 13)).collect();
        let run = run(&[("a_lat.1.log", &text)]).unwrap();
        let alone = &run.points[0].trials[0];
        assert_eq!((alone.elapsed_ns, alone.bytes_per_s()), (8_000_000, 51_200_000.0));
        assert_eq!(alone.series.len(), 1);
        let mut trial = trial(409_600, 100, 9);
        attached(&[("a_lat.1.log", &text)], &mut trial).unwrap();
        assert_eq!(trial.series[0].length_ns, 9_000_000);
    }

    /// Log of two threads, each with 1000 requests of 4 KiB per second. The last line of the second
    /// thread is missing.
    const CUT: &str = "200, 4000, 0, 0, 0\n400, 4000, 0, 0, 0\n600, 4000, 0, 0, 0\n\
                       800, 4000, 0, 0, 0\n1000, 4000, 0, 0, 0\n200, 4000, 0, 0, 0\n\
                       400, 4000, 0, 0, 0\n600, 4000, 0, 0, 0\n800, 4000, 0, 0, 0\n";

    #[test]
    fn a_last_line_that_a_thread_lacks_is_no_idle_time() {
        let alone = run(&[("a_bw.log", CUT)]).unwrap();
        let point = &alone.points[0];
        assert_eq!(point.key.threads(), 2);
        assert!((point.trials[0].bytes_per_s() / (8000.0 * 1024.0) - 1.0).abs() < 1e-3);
        let mut trial = trial(8_192_000, 2000, 1001);
        attached(&[("a_bw.log", CUT)], &mut trial).unwrap();
        for trial in [&trial, &point.trials[0]] {
            assert_eq!(trial.series.len(), 4);
            assert!(trial.series.iter().all(|part| part.bytes == 1_638_400), "{:?}", trial.series);
        }
        let early = CUT.replace("600, 4000, 0, 0, 0\n800, 4000, 0, 0, 0\n1000", "1000");
        let idle = run(&[("a_bw.log", &early)]).unwrap();
        assert_eq!(idle.points[0].trials[0].elapsed_ns, 800_000_000);
    }

    #[test]
    fn a_thread_that_ended_early_counts_as_idle() {
        let (long, short) = CUT.split_at(CUT.match_indices('\n').nth(4).unwrap().0 + 1);
        let short = &short[..short.find("600").unwrap()];
        let run = run(&[("a_bw.1.log", long), ("a_bw.2.log", short)]).unwrap();
        let trial = &run.points[0].trials[0];
        assert_eq!((trial.elapsed_ns, trial.series.len()), (1_000_000_000, 5));
        assert_eq!(trial.series[4].bytes, 819_200);
    }

    #[test]
    fn the_time_of_one_thread_must_increase() {
        let back = "100, 1000, 0, 0, 0\n200, 1000, 0, 0, 0\n199, 1000, 0, 0, 0\n";
        let twice = "100, 1000, 0, 0, 0\n100, 1000, 0, 0, 0\n200, 1000, 0, 0, 0\n";
        for (text, cause) in [
            (back, "line 3: the time is lower than in"),
            (&*back.replace("1000, 0, 0,", "1, 0, 4096,"), "line 3: the time is lower than in"),
            (twice, "line 2: two lines have the same time"),
            ("0, 1000, 0, 0, 0\n", "line 1: the mean at time 0"),
        ] {
            let failure = run(&[("a_bw.1.log", text)]).unwrap_err();
            assert!(failure.message.contains(cause), "{failure}");
        }
        // In a log of all threads, a second mean with the same time belongs to another thread.
        let all = run(&[("a_bw.log", twice)]).unwrap();
        assert_eq!(all.points[0].key.threads(), 2);
        assert_eq!(all.points[0].trials[0].bytes(), 204_800);
    }

    #[test]
    fn logs_of_jobs_with_different_loads_are_not_added_up() {
        let reads = "200, 4000, 0, 0, 0\n400, 4000, 0, 0, 0\n";
        let writes = reads.replace(" 0, 0, 0", " 1, 0, 0");
        let files = [("a_bw.1.log", reads), ("a_bw.2.log", reads), ("a_bw.3.log", &writes)];
        let failure = run(&files).unwrap_err();
        assert!(failure.message.contains("logs 1 and 3 have different loads"), "{failure}");
        assert!(failure.message.contains("json"), "{failure}");
        let same = run(&files[..2]).unwrap();
        assert!(same.missing.iter().any(|text| text.contains("at the same time")));
        let early = "0, 1, 0, 4096\n100, 1, 0, 4096\n";
        let late = "500, 1, 0, 4096\n600, 1, 0, 4096\n";
        let failure = run(&[("a_bw.1.log", early), ("a_bw.2.log", late)]).unwrap_err();
        assert!(failure.message.contains("a_bw.2.log begins after the end"), "{failure}");
    }

    #[test]
    fn logs_of_another_run_are_refused() {
        for (bytes, requests) in [(81_920_000, 2000), (819_200, 2000)] {
            let mut trial = trial(bytes, requests, 1001);
            let failure = attached(&[("a_bw.log", CUT)], &mut trial).unwrap_err();
            assert!(failure.message.starts_with("a_bw.log: the logs have"), "{failure}");
            assert!(trial.series.is_empty());
        }
        let single = "1, 62000, 0, 4096, 0\n2, 62000, 0, 4096, 0\n";
        assert!(attached(&[("a_lat.1.log", single)], &mut trial(40_960, 10, 3)).is_err());
        assert!(attached(&[("a_lat.1.log", single)], &mut trial(8192, 2, 3)).is_ok());
        // Logs of mean latencies are accepted for every trial, because the number of transferred
        // bytes cannot be computed from them.
        let means = "100, 62000, 0, 0, 0\n";
        assert!(attached(&[("a_lat.1.log", means)], &mut trial(8192, 2, 3)).is_ok());
    }

    #[test]
    fn a_mean_after_a_time_without_requests_counts_for_its_own_time_only() {
        // fio with thinktime issued 200 requests of 4 KiB every 602 ms.
        let text = "142, 4028, 0, 0, 0\n243, 2280, 0, 0, 0\n845, 8000, 0, 0, 0\n\
                    1448, 8000, 0, 0, 0\n2050, 8000, 0, 0, 0\n2652, 7760, 0, 0, 0\n\
                    2752, 240, 0, 0, 0\n";
        attached(&[("a_bw.1.log", text)], &mut trial(4_096_000, 1000, 3253)).unwrap();
    }

    #[test]
    fn a_log_that_is_cut_or_too_large_to_store_is_refused() {
        let cut = run(&[("a_lat.1.log", "100, 1000, 0, 4096, 0\n300, 1000, 0, 40")]).unwrap_err();
        assert!(cut.message.starts_with("line 2: the last line has no line end"), "{cut}");
        for name in ["a_bw.1.log", "a_iops.1.log"] {
            let huge = "100000000000, 1000000000000000, 0, 0, 0\n";
            let failure = run(&[(name, huge)]).unwrap_err();
            assert!(failure.message.starts_with("line 1: the logged rates add up"), "{failure}");
        }
    }

    #[test]
    fn many_lines_are_refused_in_one_line() {
        let name = Name::of(Path::new("a_bw.1.log")).unwrap();
        let failure = read("1, 1, 0, 0\n", &name, Kind::Bandwidth, LINES_MAX).unwrap_err();
        assert!(failure.message.contains("more than 20000000 lines"), "{failure}");
    }
}
