//! Selects the points and trials of stored runs to which a simulated system is fitted.
//!
//! A point is left out, with the reason, if something other than the device determined its rate,
//! for example the page cache or an open loop. A share of the other points is held out: these
//! points are not fitted, but are used to score the fit. If several ranks (processes, possibly on
//! several hosts) ran a workload together, their hosts are counted.

use std::collections::BTreeMap;

use analysis::quantile::median;
use analysis::units;
use ioengine::engine::EngineOptions;
use ioengine::{BufferPages, EngineKind};
use lab::failure::{Failure, Outcome};
use lab::point::{Point, Trial};
use lab::point_key::PointKey;
use lab::rank_trial::RankFiles;
use workload::Workload;
use workload::random::mix;
use workload::spec::Content;

/// The median latency of a trial is fitted only if its p90 is less than this many times its p10. A
/// wider distribution is a mix, for example of cache hits and misses, and its median describes
/// neither.
const NARROW_LATENCY: f64 = 2.0;

/// The points and trials of stored runs that can be used for a fit.
#[derive(Clone, Debug)]
pub struct History {
    /// Usable points, sorted by direction, pattern, region size, request size and depth.
    pub points: Vec<MeasuredPoint>,
    /// Trials of the usable points, in chronological order.
    pub trials: Vec<MeasuredTrial>,
    /// Points that were left out, each with the reason.
    pub left_out: Vec<String>,
}

/// One workload of a stored run, with the figures that were measured for it.
#[derive(Clone, Debug)]
pub struct MeasuredPoint {
    /// Identity of the measured point: workload, caching and target.
    pub key: PointKey,
    /// The workload to simulate, with the seed and the end condition of the first trial of the
    /// point.
    pub workload: Workload,
    /// Number of hosts that ran this workload at the same time.
    pub hosts: u32,
    /// Median rate of the trials [bytes per second].
    pub bytes_per_s: f64,
    /// Highest rate of any trial [bytes per second].
    pub best_bytes_per_s: f64,
    /// Lowest median latency of any trial (ns).
    pub fresh_latency_ns: f64,
    /// Mean absolute deviation of the trials' rates from their median, as a share of the median.
    pub spread: f64,
    /// CPU time of the process per request (ns). None if it was not measured.
    pub cpu_ns: Option<f64>,
    /// 10th, 50th and 90th percentile of the latency (ns).
    pub latency_ns: [f64; 3],
    /// Whether the point is held out. The system is scored on such a point but not fitted to it.
    pub held_out: bool,
}

/// A measured trial.
#[derive(Clone, Debug)]
pub struct MeasuredTrial {
    /// Index of the trial's point in [`History::points`].
    pub point: usize,
    /// Start of the trial, relative to the start of the first trial (ns).
    pub start_ns: u64,
    /// The workload to simulate, with the seed and the end condition of this trial.
    pub workload: Workload,
    /// Number of bytes that the trial transferred.
    pub bytes: f64,
    /// The measured rates and latency, to be compared with those of a simulation.
    pub summary: TrialSummary,
    /// Length (ns) and number of transferred bytes of each interval of the trial.
    pub series: Vec<(u64, f64)>,
}

/// Rates and latency of a trial, either measured or simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialSummary {
    /// Rate of the whole trial [bytes per second].
    pub bytes_per_s: f64,
    /// Median latency (ns). None if more than one request was outstanding, or if the p90 is at
    /// least twice the p10.
    pub latency_ns: Option<f64>,
    /// Rate of the last quarter of the trial [bytes per second]. `None` if the trial has fewer than
    /// nine intervals, or if the last quarter transferred nothing.
    pub late_bytes_per_s: Option<f64>,
}

impl MeasuredPoint {
    /// Returns the number of requests per second.
    pub fn requests_per_s(&self) -> f64 {
        self.bytes_per_s / self.key.request_bytes() as f64
    }

    /// Returns the number of outstanding requests of all threads of all hosts.
    pub fn outstanding(&self) -> u32 {
        self.key.depth() * self.key.threads()
    }

    /// Returns the direction: `Some(true)` for reads only, `Some(false)` for writes only, `None`
    /// for a mix.
    pub fn reads(&self) -> Option<bool> {
        match self.key.read_percent() {
            100 => Some(true),
            0 => Some(false),
            _ => None,
        }
    }
}

impl TrialSummary {
    /// Computes the rates and the latency of a trial of the point `key`.
    pub fn of(trial: &Trial, key: &PointKey) -> TrialSummary {
        let is_single = key.depth() * key.threads() == 1;
        let latency = trial.latency();
        let at = |q| latency.quantile(q).map(|ns| ns as f64);
        let is_narrow =
            matches!((at(0.1), at(0.9)), (Some(low), Some(high)) if high < low * NARROW_LATENCY);
        TrialSummary {
            bytes_per_s: trial.bytes_per_s(),
            latency_ns: at(0.5).filter(|_| is_single && is_narrow),
            late_bytes_per_s: late_rate(trial),
        }
    }
}

/// Returns the rate of the last quarter of a trial. The last interval is left out because it is
/// incomplete.
fn late_rate(trial: &Trial) -> Option<f64> {
    let count = trial.series.len().saturating_sub(1);
    if count < 8 {
        return None;
    }
    let last = &trial.series[count - count / 4..count];
    let ns: u64 = last.iter().map(|interval| interval.length_ns).sum();
    let bytes: u64 = last.iter().map(|interval| interval.bytes).sum();
    (bytes > 0 && ns > 0).then(|| bytes as f64 * 1e9 / ns as f64)
}

impl History {
    /// Builds the history of stored points. `held_out` is the share of the points to hold out (0 to
    /// 1).
    ///
    /// # Errors
    /// If fewer than four points can be used.
    pub fn of(points: &[Point], held_out: f64) -> Outcome<History> {
        History::of_runs(points, &[], held_out)
    }

    /// Like [`History::of`], but adds the points of `checked`, which are all held out.
    ///
    /// # Errors
    /// If fewer than four of `points` can be used, or if `checked` has points but none of them can
    /// be used.
    pub fn of_runs(points: &[Point], checked: &[Point], held_out: f64) -> Outcome<History> {
        let mut left_out = Vec::new();
        let mut usable = usable_of(points, &mut left_out);
        if usable.len() < 4 {
            let why = left_out.first().map(|why| format!(" ({why})")).unwrap_or_default();
            return Err(Failure::failed(format!(
                "only {} of this run can be fitted{why}, but 4 are needed; measure more with \
                 direct I/O: halfpower sweep TARGET --bs 4k,64k,1m --iodepth 1,4,16",
                units::counted(usable.len() as u64, "point")
            )));
        }
        let mut held_out = choose_held_out(&usable, held_out);
        let checked_usable = usable_of(checked, &mut left_out);
        if checked_usable.is_empty() && !checked.is_empty() {
            let why = left_out.last().map_or("", String::as_str);
            return Err(Failure::failed(format!(
                "no point of the --check runs can be used: {why}"
            )));
        }
        usable.extend(checked_usable);
        held_out.resize(usable.len(), true);
        let first_ns = usable.iter().flat_map(|p| &p.trials).map(|t| t.started_unix_ns).min();
        let mut history = History { points: Vec::new(), trials: Vec::new(), left_out };
        for (number, (point, held_out)) in usable.into_iter().zip(held_out).enumerate() {
            history.points.push(measured_point(point, held_out));
            let hosts = history.points[number].hosts;
            history.trials.extend(point.trials.iter().filter(|t| !t.soaked).map(|trial| {
                MeasuredTrial {
                    point: number,
                    start_ns: (trial.started_unix_ns - first_ns.unwrap_or(0)).max(0) as u64,
                    workload: workload_of(&point.key, trial, hosts),
                    bytes: trial.bytes() as f64,
                    summary: TrialSummary::of(trial, &point.key),
                    series: trial.series.iter().map(|i| (i.length_ns, i.bytes as f64)).collect(),
                }
            }));
        }
        history.trials.sort_by_key(|trial| trial.start_ns);
        Ok(history)
    }

    /// Returns the trials of a point, each with its index in [`History::trials`].
    pub fn trials_of(&self, point: usize) -> impl Iterator<Item = (usize, &MeasuredTrial)> {
        self.trials.iter().enumerate().filter(move |(_, trial)| trial.point == point)
    }

    /// Returns the trials of the points that are not held out, in chronological order.
    pub fn fitted(&self) -> impl Iterator<Item = &MeasuredTrial> {
        self.trials.iter().filter(|trial| !self.points[trial.point].held_out)
    }

    /// Returns the total number of requests of all trials.
    pub fn requests(&self) -> f64 {
        let of = |trial: &MeasuredTrial| trial.bytes / f64::from(trial.workload.request_bytes);
        self.trials.iter().map(of).sum()
    }

    /// Returns the largest number of hosts of a fitted point.
    pub fn fitted_hosts(&self) -> u32 {
        let fitted = self.points.iter().filter(|point| !point.held_out);
        fitted.map(|point| point.hosts).max().unwrap_or(1)
    }

    /// Returns the largest number of hosts of any point.
    pub fn hosts(&self) -> u32 {
        self.points.iter().map(|point| point.hosts).max().unwrap_or(1)
    }

    /// Estimates the burst credit (bytes), modelled as a token bucket that refills at
    /// `bytes_per_s`. The estimate is the largest number of bytes that were missing from the bucket
    /// at any time. Pauses between trials refill the bucket too. Only points that `counts` accepts
    /// take bytes from the bucket. Held-out trials are skipped: the level of the bucket does not
    /// change during them.
    pub fn credit_bytes(&self, bytes_per_s: f64, counts: impl Fn(&MeasuredPoint) -> bool) -> f64 {
        let (mut level, mut most, mut at_ns) = (0.0_f64, 0.0_f64, 0_u64);
        for trial in &self.trials {
            if self.points[trial.point].held_out {
                // With this value, the pause before the next fitted trial is 0, because
                // `saturating_sub` returns 0.
                at_ns = u64::MAX;
                continue;
            }
            let pause_ns = trial.start_ns.saturating_sub(at_ns);
            level = (level - bytes_per_s * pause_ns as f64 / 1e9).max(0.0);
            at_ns = trial.start_ns;
            let is_counted = counts(&self.points[trial.point]);
            for (length_ns, bytes) in &trial.series {
                let bytes = if is_counted { *bytes } else { 0.0 };
                level = (level + bytes - bytes_per_s * *length_ns as f64 / 1e9).max(0.0);
                most = most.max(level);
                at_ns += length_ns;
            }
        }
        most
    }

    /// Returns the end of the highest region of any trial (bytes from the start of the target).
    pub fn extent_bytes(&self) -> u64 {
        let end =
            |trial: &MeasuredTrial| trial.workload.region_offset + trial.workload.region_bytes;
        self.trials.iter().map(end).max().unwrap_or(0)
    }
}

/// Returns the usable points, sorted. Adds the unusable points to `left_out`.
fn usable_of<'a>(points: &'a [Point], left_out: &mut Vec<String>) -> Vec<&'a Point> {
    let mut usable = Vec::new();
    for point in points {
        match why_unusable(point) {
            Some(reason) => left_out.push(format!("{}: {reason}", point.key.describe())),
            None => usable.push(point),
        }
    }
    usable.sort_by_key(|point| sort_key(&point.key));
    usable
}

/// Returns the number of hosts that measured a point. Returns `None` if ranks were lost, or if the
/// hosts had different numbers of ranks.
fn hosts_of(point: &Point) -> Option<u32> {
    let mut hosts = 1;
    for trial in point.unsoaked() {
        let mut ranks: BTreeMap<&str, u32> = BTreeMap::new();
        trial.ranks.iter().for_each(|rank| *ranks.entry(&rank.host).or_default() += 1);
        let mut counts = ranks.values();
        let first = counts.next();
        if trial.ranks.iter().any(|rank| rank.lost.is_some()) || !counts.all(|n| Some(n) == first) {
            return None;
        }
        hosts = hosts.max(ranks.len() as u32);
    }
    Some(hosts)
}

/// Returns the reason why a point cannot be used, or `None` if it can be used.
fn why_unusable(point: &Point) -> Option<&'static str> {
    let key = &point.key;
    let plain = point.trials.iter().filter(|trial| !trial.soaked);
    if plain.clone().all(|trial| trial.bytes() == 0 || trial.elapsed_ns == 0) {
        return Some("no trial of this point transferred data");
    }
    if key.requests_per_s().is_some() {
        return Some("the load (open loop) determined the rate, not the device");
    }
    if key.is_replay() {
        return Some("the replayed program determined the rate, not the device");
    }
    if key.has_pauses() {
        return Some("the think time determined the rate, not the device");
    }
    if key.is_skewed() || !key.workload.request_sizes.is_empty() {
        return Some("mixed request sizes and skewed access are not modelled");
    }
    if !key.is_direct() && !key.is_issued_by(EngineKind::Delay) {
        return Some("the requests went through the page cache");
    }
    if key.workload.may_extend {
        return Some("the writes extended a file");
    }
    if key.ranks.is_some_and(|ranks| ranks.files != RankFiles::Own) {
        return Some("ranks that share a file are not modelled");
    }
    if hosts_of(point).is_none() {
        return Some("ranks were lost, or hosts have different numbers of ranks");
    }
    None
}

/// Returns the key by which points are sorted. Points that differ only in depth are neighbours.
fn sort_key(key: &PointKey) -> (u32, String, u64, u64, u32) {
    let outstanding = key.depth() * key.threads();
    (
        100 - key.read_percent(),
        key.workload.pattern.to_string(),
        key.size_bytes(),
        key.request_bytes(),
        outstanding,
    )
}

/// Chooses the points to hold out at regular steps through the sorted points, for example every
/// second point. In every second group of points that differ only in depth, the order is reversed.
/// Otherwise all held-out points could have large depths and all fitted points small ones.
fn choose_held_out(points: &[&Point], share: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    let without_depth = |index: usize| {
        let (op, pattern, region, size, _) = sort_key(&points[index].key);
        (op, pattern, region, size)
    };
    let mut from = 0;
    let mut upward = true;
    while from < order.len() {
        let group = without_depth(order[from]);
        let length = order[from..].iter().take_while(|i| without_depth(**i) == group).count();
        if !upward {
            order[from..from + length].reverse();
        }
        upward = !upward;
        from += length;
    }
    let mut held_out = vec![false; points.len()];
    let mut owed = 0.0;
    for index in order {
        owed += share;
        if owed >= 1.0 - 1e-9 {
            owed -= 1.0;
            held_out[index] = true;
        }
    }
    held_out
}

fn measured_point(point: &Point, held_out: bool) -> MeasuredPoint {
    let trials = point.unsoaked();
    let rates: Vec<f64> = trials.iter().map(|trial| trial.bytes_per_s()).collect();
    let bytes_per_s = median(&rates).unwrap_or(0.0);
    let deviations: f64 = rates.iter().map(|rate| (rate / bytes_per_s - 1.0).abs()).sum();
    let latency = point.latency(None);
    let at = |q| latency.quantile(q).map_or(0.0, |ns| ns as f64);
    let hosts = hosts_of(point).unwrap_or(1);
    MeasuredPoint {
        workload: workload_of(&point.key, trials[0], hosts),
        hosts,
        bytes_per_s,
        best_bytes_per_s: rates.iter().copied().fold(0.0, f64::max),
        fresh_latency_ns: trials
            .iter()
            .filter_map(|trial| trial.latency().quantile(0.5))
            .min()
            .map_or(0.0, |ns| ns as f64),
        spread: deviations / rates.len() as f64,
        cpu_ns: point.cpu_lower_ns(),
        latency_ns: [at(0.1), at(0.5), at(0.9)],
        held_out,
        key: point.key.clone(),
    }
}

/// Returns the workload that each simulated host runs to replay a trial. The replay ends as the
/// trial did, after the same number of bytes or the same time. A simulation with bad parameters
/// could take very long to reach this end, so there is a second limit. A replay that ends after a
/// number of bytes also ends after 20 times the duration of the trial. A replay that ends after a
/// time also ends after 4 times the bytes of the trial.
fn workload_of(key: &PointKey, trial: &Trial, hosts: u32) -> Workload {
    let measured = &key.workload;
    let (limit_bytes, limit_ns) = match (measured.limit_bytes, measured.limit_ns) {
        (Some(bytes), None) => (bytes, trial.elapsed_ns.saturating_mul(20)),
        (_, Some(ns)) => (trial.bytes().saturating_mul(4), ns),
        (None, None) => (trial.bytes().saturating_mul(4), trial.elapsed_ns),
    };
    let seed = key.seed();
    Workload {
        engine_kind: EngineKind::IoUring,
        threads: key.threads() / hosts,
        limit_bytes: Some(limit_bytes.max(key.request_bytes())),
        limit_ns: Some(limit_ns),
        steady: None,
        content: Content::Zero,
        flush_at_end: false,
        flush_every: None,
        options: EngineOptions::default(),
        seed: if trial.ordinal == 0 { seed } else { mix(seed, u64::from(trial.ordinal)) },
        cpus: Vec::new(),
        pages: BufferPages::Huge,
        interval_ns: trial.series.first().map_or(100_000_000, |interval| interval.length_ns),
        log: None,
        ..measured.clone()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use ioengine::Caching;
    use lab::point::testing::point;

    use super::*;

    pub(crate) fn a_point(request_bytes: u64, depth: u32) -> Point {
        let mut point = point(&[request_bytes * 1000]);
        point.key.workload.request_bytes = request_bytes as u32;
        point.key.workload.depth = depth;
        point
    }

    #[test]
    fn both_parts_have_shallow_and_deep_points_of_all_sizes() {
        let mut points = Vec::new();
        for size in [4096, 65536, 1 << 20] {
            points.extend([1, 16].map(|depth| a_point(size, depth)));
        }
        let history = History::of(&points, 0.5).unwrap();
        for held_out in [true, false] {
            let half: Vec<&MeasuredPoint> =
                history.points.iter().filter(|p| p.held_out == held_out).collect();
            assert_eq!(half.len(), 3);
            assert!(
                half.iter().any(|p| p.key.depth() == 1) && half.iter().any(|p| p.key.depth() == 16)
            );
        }
    }

    #[test]
    fn buffered_points_are_left_out_with_the_reason() {
        let mut points: Vec<Point> = [1, 2, 4, 8].map(|depth| a_point(4096, depth)).into();
        let mut buffered = a_point(4096, 1);
        buffered.key.caching = Caching::Buffered;
        points.push(buffered);
        let history = History::of(&points, 0.0).unwrap();
        assert_eq!((history.points.len(), history.left_out.len()), (4, 1));
        assert!(history.left_out[0].contains("page cache"), "{:?}", history.left_out);
        let few = History::of(&points[3..], 0.0).unwrap_err();
        assert!(few.message.contains("only 1 point of"), "{}", few.message);
    }

    /// Returns a history of trials of one point, which start 1 s apart. Each inner slice holds the
    /// bytes of the intervals of one trial. An interval is 0.1 s long.
    fn history_of(trials: &[&[f64]]) -> History {
        let points: Vec<Point> = [1, 2, 4, 8].map(|depth| a_point(4096, depth)).into();
        let mut history = History::of(&points, 0.0).unwrap();
        let first = history.trials[0].clone();
        history.trials = trials
            .iter()
            .zip(0_u64..)
            .map(|(bytes, number)| MeasuredTrial {
                start_ns: number * 1_000_000_000,
                series: bytes.iter().map(|bytes| (100_000_000, *bytes)).collect(),
                ..first.clone()
            })
            .collect();
        history
    }

    pub fn with_other_held_out_points(history: &History) -> History {
        let mut other = history.clone();
        for point in other.points.iter_mut().filter(|point| point.held_out) {
            point.bytes_per_s *= 3.0;
            point.best_bytes_per_s *= 5.0;
            point.fresh_latency_ns /= 7.0;
            point.spread = 0.9;
            point.cpu_ns = Some(1.0);
            point.latency_ns = [1.0, 2.0, 30.0];
        }
        for trial in other.trials.iter_mut().filter(|trial| other.points[trial.point].held_out) {
            let bytes_per_s = trial.summary.bytes_per_s * 3.0;
            let late_bytes_per_s = Some(bytes_per_s / 20.0);
            trial.summary = TrialSummary { bytes_per_s, latency_ns: Some(1.0), late_bytes_per_s };
            trial.series.iter_mut().for_each(|(_, bytes)| *bytes *= 3.0);
            trial.bytes *= 3.0;
        }
        other
    }

    /// Returns reads of a device that has a latency of 1 ms and transfers 100 MB/s. Every second
    /// point is held out.
    pub fn example() -> History {
        let mut points = Vec::new();
        for request_bytes in [4096, 65536, 1 << 20] {
            points.extend([1, 2, 4, 8].map(|depth| a_point(request_bytes, depth)));
        }
        let mut history = History::of(&points, 0.5).unwrap();
        for point in &mut history.points {
            let single_s = 1e-3 + point.key.request_bytes() as f64 / 100e6;
            let rate = f64::from(point.key.depth()) * point.key.request_bytes() as f64 / single_s;
            point.bytes_per_s = rate.min(100e6);
            point.best_bytes_per_s = point.bytes_per_s;
            point.fresh_latency_ns = single_s * 1e9;
            point.latency_ns = [single_s * 1e9; 3];
            point.cpu_ns = Some(5000.0);
        }
        for trial in &mut history.trials {
            let bytes_per_s = history.points[trial.point].bytes_per_s;
            trial.summary = TrialSummary { bytes_per_s, latency_ns: None, late_bytes_per_s: None };
            trial.series = vec![(100_000_000, bytes_per_s / 10.0); 4];
            trial.bytes = bytes_per_s * 0.4;
        }
        history
    }

    #[test]
    fn credit_is_what_exceeded_the_sustained_rate_across_trials() {
        // At a sustained rate of 100 bytes/s, each interval of 0.1 s restores 10 bytes of credit.
        // The first trial uses 80 bytes, and the pause after it restores them. The second trial
        // uses 110 bytes, of which the pause restores 60. The third trial uses 80 bytes more, so
        // that 130 are missing.
        let history = history_of(&[&[50.0, 50.0], &[100.0, 30.0, 10.0, 10.0], &[90.0, 10.0]]);
        assert!((history.credit_bytes(100.0, |_| true) - 130.0).abs() < 1e-6);
        assert!(history.credit_bytes(100.0, |_| false) == 0.0);
        assert!(history.credit_bytes(1000.0, |_| true) == 0.0);
    }
}
