//! Computes bytes and requests over time from the logs of one run. In a log of means, a line covers
//! the time since the previous line, but at most the usual step. In a log of individual requests,
//! the requests in each interval are counted. The end of the run is cut off, because the last lines
//! of some threads may be missing.

use std::collections::BTreeMap;

use lab::point::SeriesPoint;

use super::{KINDS, Kind, Log};

/// Minimum length of the intervals in which individual requests are counted (ms). halfpower's own
/// runs have intervals of this length.
const INTERVAL_MS: u64 = 100;
/// Approximate maximum number of intervals in which individual requests are counted. Longer logs
/// get longer intervals.
pub const COUNTED_MAX: u64 = 10_000;
/// Maximum number of intervals of a log of means. If there are more, neighbours are merged.
pub const INTERVALS_MAX: usize = 1_000_000;
/// Request size that is assumed if the logs do not state the size (bytes). This is fio's default.
pub const REQUEST_BYTES: f64 = 4096.0;

/// A time window with the number of bytes or requests that completed in this time.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub start_ms: u64,
    pub end_ms: u64,
    pub direction: usize,
    pub amount: f64,
    /// Number of the thread in the log, from 0.
    pub thread: u32,
}

impl Window {
    /// Clips the window at `end_ms`. None if the window begins at `end_ms` or later.
    fn until(self, end_ms: u64) -> Option<Window> {
        if self.end_ms <= end_ms {
            return Some(self);
        }
        let length_ms = end_ms.checked_sub(self.start_ms).filter(|length_ms| *length_ms > 0)?;
        let share = length_ms as f64 / (self.end_ms - self.start_ms) as f64;
        Some(Window { end_ms, amount: self.amount * share, ..self })
    }
}

/// The source of time windows. Windows of means are computed from the log lines on each use, to
/// save memory.
#[derive(Clone, Debug)]
enum Source<'a> {
    Means(Vec<&'a Log>),
    Counted(Vec<Window>),
}

/// Time windows of logs, clipped at `end_ms`. Each amount is multiplied by `factor`.
#[derive(Clone, Debug)]
struct Windows<'a> {
    source: Source<'a>,
    factor: f64,
    end_ms: u64,
}

impl Windows<'_> {
    fn is_empty(&self) -> bool {
        match &self.source {
            Source::Means(logs) => logs.iter().all(|log| log.windows().next().is_none()),
            Source::Counted(windows) => windows.is_empty(),
        }
    }

    fn each(&self, mut take: impl FnMut(Window)) {
        let mut clip = |window: Window| {
            let window = Window { amount: window.amount * self.factor, ..window };
            window.until(self.end_ms).into_iter().for_each(&mut take);
        };
        match &self.source {
            Source::Means(logs) => {
                logs.iter().flat_map(|log| log.windows()).for_each(&mut clip);
            }
            Source::Counted(windows) => windows.iter().copied().for_each(&mut clip),
        }
    }
}

/// Bytes and requests over time, computed from logs.
pub struct Rates<'a> {
    bytes: Windows<'a>,
    requests: Windows<'a>,
    /// Ends of the intervals in ascending order (ms).
    pub edges: Vec<u64>,
    /// Whether the number of requests was logged. If false, it was computed from the bytes.
    pub has_requests: bool,
    /// Whether the number of bytes was logged. If false, it was computed from the requests.
    pub has_bytes: bool,
}

/// Facts about a run that are needed to evaluate its logs.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Mean request size (bytes). None if unknown.
    pub mean_bytes: Option<f64>,
    /// Length of the run (ms). None if unknown.
    pub elapsed_ms: Option<u64>,
    /// Time at which the last interval ends (ms). [`complete_ms`] computes this time.
    pub end_ms: u64,
}

impl<'a> Rates<'a> {
    /// Computes bytes and requests over time from logs. None if the logs have no rates.
    pub fn of(logs: &[&'a Log], known: Known) -> Option<Rates<'a>> {
        let of_kind = |kind| -> Vec<&'a Log> {
            logs.iter().copied().filter(|log| log.kind == kind && log.has_means()).collect()
        };
        let end_ms = known.end_ms;
        let windows = |source| Windows { source, factor: 1.0, end_ms };
        let (bandwidth, iops) = (of_kind(Kind::Bandwidth), of_kind(Kind::Requests));
        let mut edges = ends(bandwidth.iter().chain(&iops).copied());
        let mut bytes = windows(Source::Means(bandwidth));
        let mut requests = windows(Source::Means(iops));
        let single = KINDS.iter().find_map(|(_, kind)| {
            let is_single = |log: &&&Log| log.kind == *kind && log.is_single();
            let logs: Vec<&Log> = logs.iter().filter(is_single).copied().collect();
            (!logs.is_empty()).then_some(logs)
        });
        if let Some(single) = single {
            let (all_bytes, all_requests, all_edges) = counted(&single, known.elapsed_ms);
            if bytes.is_empty() {
                bytes = windows(Source::Counted(all_bytes));
            }
            if requests.is_empty() {
                requests = windows(Source::Counted(all_requests));
            }
            edges = if edges.is_empty() { all_edges } else { edges };
        }
        let (has_bytes, has_requests) = (!bytes.is_empty(), !requests.is_empty());
        let mean_bytes = known.mean_bytes.unwrap_or(REQUEST_BYTES);
        match (has_bytes, has_requests) {
            (false, false) => return None,
            (true, false) => requests = Windows { factor: 1.0 / mean_bytes, ..bytes.clone() },
            (false, true) => bytes = Windows { factor: mean_bytes, ..requests.clone() },
            (true, true) => {}
        }
        let mut last_ms = 0;
        bytes.each(|window| last_ms = last_ms.max(window.end_ms));
        requests.each(|window| last_ms = last_ms.max(window.end_ms));
        if last_ms == 0 {
            return None;
        }
        edges.truncate(edges.partition_point(|edge| *edge < end_ms.min(last_ms)));
        edges.push(last_ms);
        Some(Rates { bytes, requests, edges, has_requests, has_bytes })
    }

    /// Returns the bytes and requests of each interval.
    pub fn series(&self) -> Vec<SeriesPoint> {
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

    /// Returns the amount in each interval. A window that overlaps several intervals is divided in
    /// proportion to time. Only the first and the last interval of a window are visited: the rate
    /// is added at the start of the window and subtracted at the end. A running sum of these
    /// changes gives the rate in each interval between them. Long windows therefore cost no more
    /// than short windows.
    fn spread(&self, windows: &Windows<'_>) -> Vec<f64> {
        let edges = &self.edges;
        let mut amounts = vec![0.0; edges.len()];
        let mut rates = vec![0.0; edges.len() + 1];
        windows.each(|window| {
            let first = edges.partition_point(|edge| *edge <= window.start_ms);
            let last = edges.partition_point(|edge| *edge < window.end_ms);
            if first == last {
                amounts[first] += window.amount;
                return;
            }
            let rate = window.amount / (window.end_ms - window.start_ms) as f64;
            amounts[first] += rate * (edges[first] - window.start_ms) as f64;
            amounts[last] += rate * (window.end_ms - edges[last - 1]) as f64;
            rates[first + 1] += rate;
            rates[last] -= rate;
        });
        let (mut rate, mut start_ms) = (0.0, 0);
        for ((amount, edge), change) in amounts.iter_mut().zip(edges).zip(rates) {
            rate += change;
            // Each rate is added and later subtracted, so rounding errors can make the sum
            // negative.
            *amount += f64::max(rate, 0.0) * (edge - start_ms) as f64;
            start_ms = *edge;
        }
        amounts
    }

    /// Returns the total bytes and requests of a direction (0 for reads, 1 for writes).
    pub fn totals(&self, direction: usize) -> (f64, f64) {
        let total = |windows: &Windows<'_>| {
            let mut total = 0.0;
            windows.each(|window| {
                total += if window.direction == direction { window.amount } else { 0.0 };
            });
            total
        };
        (total(&self.bytes), total(&self.requests))
    }
}

/// Returns the time until which the logs of means are complete (ms). `u64::MAX` if the logs have no
/// mean rates.
///
/// fio often omits the last line of a thread. A thread may lack this line if its log ends less than
/// two steps before the end of the last thread. The result is the earliest end of all such threads.
/// A thread that ends earlier counts as idle after its end.
pub fn complete_ms(logs: &[&Log]) -> u64 {
    let is_rate = |log: &&&Log| matches!(log.kind, Kind::Bandwidth | Kind::Requests);
    let mut ends: Vec<(u64, u64)> = Vec::new();
    for log in logs.iter().filter(is_rate).filter(|log| log.has_means()) {
        ends.extend(log.threads().into_iter().map(|thread| (thread.end_ms, log.step_ms)));
    }
    let last_ms = ends.iter().map(|(end_ms, _)| *end_ms).max().unwrap_or(u64::MAX);
    let is_cut = |(end_ms, step_ms): &&(u64, u64)| last_ms - end_ms < step_ms.saturating_mul(2);
    ends.iter().filter(is_cut).map(|(end_ms, _)| *end_ms).min().unwrap_or(u64::MAX)
}

/// Counts individual requests in intervals of equal length. Returns the bytes in each interval, the
/// requests in each interval, and the ends of the intervals. The last interval ends with the run if
/// the length of the run is known, otherwise with the last request.
fn counted(logs: &[&Log], elapsed_ms: Option<u64>) -> (Vec<Window>, Vec<Window>, Vec<u64>) {
    let lines = || logs.iter().flat_map(|log| log.transfers());
    let last_ms = lines().map(|line| line.ms()).max().unwrap_or(0);
    let step = INTERVAL_MS.max((last_ms / COUNTED_MAX).next_multiple_of(INTERVAL_MS));
    // fio truncates times to whole milliseconds, so the last request ended before `last_ms + 1`.
    let end_ms = elapsed_ms.unwrap_or(0).clamp(last_ms + 1, (last_ms / step + 1) * step);
    let mut sums: BTreeMap<(u64, usize), (f64, f64)> = BTreeMap::new();
    for line in lines() {
        let (bytes, requests) = sums.entry((line.ms() / step, line.direction())).or_default();
        *bytes += f64::from(line.bytes());
        *requests += 1.0;
    }
    let window = |index: u64, direction, amount| {
        let start_ms = index * step;
        Window { start_ms, end_ms: (start_ms + step).min(end_ms), direction, amount, thread: 0 }
    };
    let all = sums.iter().map(|((index, direction), (bytes, requests))| {
        (window(*index, *direction, *bytes), window(*index, *direction, *requests))
    });
    let (bytes, requests) = all.unzip();
    let edges = (1..=last_ms / step).map(|index| index * step).chain([end_ms]);
    (bytes, requests, edges.collect())
}

/// Returns the ends of the intervals (ms). The intervals are the windows of the first thread in the
/// log with the most lines. If there are more than [`INTERVALS_MAX`] windows, neighbours are
/// merged.
fn ends<'a>(logs: impl Iterator<Item = &'a Log>) -> Vec<u64> {
    let longer =
        |best: &'a Log, log: &'a Log| if log.lines.len() > best.lines.len() { log } else { best };
    let Some(log) = logs.reduce(longer) else { return Vec::new() };
    let mut edges = Vec::new();
    for window in log.windows().take_while(|window| window.thread == 0) {
        if edges.last().is_none_or(|last| *last < window.end_ms) {
            edges.push(window.end_ms);
        }
    }
    let joined = edges.len().div_ceil(INTERVALS_MAX).max(1);
    if joined > 1 {
        edges = edges.into_iter().skip(joined - 1).step_by(joined).collect();
    }
    edges
}
