//! What a stored run measured, as a calibration needs it: its points, and its trials in the order
//! in which they happened.

use analysis::quantile::median;
use ioengine::engine::EngineOptions;
use ioengine::{BufferPages, EngineKind};
use lab::failure::{Failure, Outcome};
use lab::point::{Point, Trial};
use lab::point_key::PointKey;
use workload::Workload;
use workload::random::mix;
use workload::spec::Content;

/// A latency whose 90th percentile is so many times its 10th has more than one cause, and its
/// median says little.
const ONE_CAUSE: f64 = 2.0;

/// A stored run.
#[derive(Clone, Debug)]
pub struct History {
    /// The points that a system can be fitted to, in the order of [`PointKey`].
    pub points: Vec<Observed>,
    /// All their trials in the order of time.
    pub trials: Vec<Moment>,
    /// Points that were left out, and why.
    pub left_out: Vec<String>,
}

/// A point.
#[derive(Clone, Debug)]
pub struct Observed {
    /// What it measured.
    pub key: PointKey,
    /// The workload of its first trial.
    pub workload: Workload,
    /// Median over its trials.
    pub bytes_per_s: f64,
    /// The best of its trials.
    pub best_bytes_per_s: f64,
    /// Median latency in the trial that has the least (ns).
    pub fresh_latency_ns: f64,
    /// How far its trials lie from their median, as a share of it, on average.
    pub spread: f64,
    /// CPU charged to the program for each request (ns).
    pub cpu_ns: Option<f64>,
    /// Latency at 10%, 50% and 90% (ns).
    pub latency_ns: [f64; 3],
    /// Whether it is scored and not fitted.
    pub held_out: bool,
}

/// A trial.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Which point.
    pub point: usize,
    /// When it began, from the first trial on (ns).
    pub start_ns: u64,
    /// What it did, with its own seed and its end.
    pub workload: Workload,
    /// Bytes that it moved.
    pub bytes: f64,
    /// What is compared.
    pub seen: TrialSummary,
    /// Its intervals: length (ns) and bytes.
    pub series: Vec<(u64, f64)>,
}

/// What is compared of a trial, measured or simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialSummary {
    /// Rate of the whole trial.
    pub bytes_per_s: f64,
    /// Median latency, where one request was outstanding at a time (ns).
    pub latency_ns: Option<f64>,
    /// Rate of its last quarter.
    pub late_bytes_per_s: Option<f64>,
}

impl Observed {
    /// Requests per second.
    pub fn requests_per_s(&self) -> f64 {
        self.bytes_per_s / self.key.request_bytes() as f64
    }

    /// Requests outstanding in all.
    pub fn outstanding(&self) -> u32 {
        self.key.depth() * self.key.threads()
    }

    /// Whether it only reads (true), only writes (false), or both (None).
    pub fn reads(&self) -> Option<bool> {
        match self.key.read_percent() {
            100 => Some(true),
            0 => Some(false),
            _ => None,
        }
    }
}

impl TrialSummary {
    /// What a trial shows.
    pub fn of(trial: &Trial, key: &PointKey) -> TrialSummary {
        let alone = key.depth() * key.threads() == 1;
        let latency = trial.latency();
        let at = |q| latency.quantile(q).map(|ns| ns as f64);
        let one_cause =
            matches!((at(0.1), at(0.9)), (Some(low), Some(high)) if high < low * ONE_CAUSE);
        TrialSummary {
            bytes_per_s: trial.bytes_per_s(),
            latency_ns: at(0.5).filter(|_| alone && one_cause),
            late_bytes_per_s: late_rate(trial),
        }
    }
}

/// The rate of the last quarter of a trial, whose last interval is left out: it is cut short.
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
    /// The history of stored points; `held_out` is the share of them that is scored.
    ///
    /// # Errors
    /// When fewer than four points can be used.
    pub fn of(points: &[Point], held_out: f64) -> Outcome<History> {
        let mut left_out = Vec::new();
        let mut usable: Vec<&Point> = Vec::new();
        for point in points {
            match unusable(point) {
                Some(why) => left_out.push(format!("{}: {why}", point.key.describe())),
                None => usable.push(point),
            }
        }
        usable.sort_by_key(|point| rank(&point.key));
        if usable.len() < 4 {
            let why = left_out.first().map(|why| format!(" ({why})")).unwrap_or_default();
            return Err(Failure::failed(format!(
                "only {} points of this run can be fitted{why}; measure more of them with direct \
                 I/O: halfpower sweep TARGET --bs 4k,64k,1m --iodepth 1,4,16",
                usable.len()
            )));
        }
        let held = held_out_of(&usable, held_out);
        let first_ns = usable.iter().flat_map(|p| &p.trials).map(|t| t.started_unix_ns).min();
        let mut history = History { points: Vec::new(), trials: Vec::new(), left_out };
        for (number, (point, held_out)) in usable.into_iter().zip(held).enumerate() {
            history.points.push(observed(point, held_out));
            history.trials.extend(point.trials.iter().filter(|t| !t.soaked).map(|trial| Moment {
                point: number,
                start_ns: (trial.started_unix_ns - first_ns.unwrap_or(0)).max(0) as u64,
                workload: workload_of(&point.key, trial),
                bytes: trial.bytes() as f64,
                seen: TrialSummary::of(trial, &point.key),
                series: trial.series.iter().map(|i| (i.length_ns, i.bytes as f64)).collect(),
            }));
        }
        history.trials.sort_by_key(|trial| trial.start_ns);
        Ok(history)
    }

    /// The trials of a point.
    pub fn trials_of(&self, point: usize) -> impl Iterator<Item = (usize, &Moment)> {
        self.trials.iter().enumerate().filter(move |(_, trial)| trial.point == point)
    }

    /// The trials of points that are not held out, in the order of time.
    pub fn fitted(&self) -> impl Iterator<Item = &Moment> {
        self.trials.iter().filter(|trial| !self.points[trial.point].held_out)
    }

    /// Requests of all trials.
    pub fn requests(&self) -> f64 {
        let of = |trial: &Moment| trial.bytes / f64::from(trial.workload.request_bytes);
        self.trials.iter().map(of).sum()
    }

    /// The most that some trials in a row moved beyond what a rate allows, pauses included: the
    /// depth of a bucket that fills at this rate, if it was ever empty (bytes). What a trial did
    /// that is held out is not looked at: the level stays as it was.
    pub fn beyond_bytes(&self, bytes_per_s: f64, counts: impl Fn(&Observed) -> bool) -> f64 {
        let (mut level, mut most, mut at_ns) = (0.0_f64, 0.0_f64, 0_u64);
        for trial in &self.trials {
            if self.points[trial.point].held_out {
                at_ns = u64::MAX;
                continue;
            }
            let pause_ns = trial.start_ns.saturating_sub(at_ns);
            level = (level - bytes_per_s * pause_ns as f64 / 1e9).max(0.0);
            at_ns = trial.start_ns;
            let takes = counts(&self.points[trial.point]);
            for (length_ns, bytes) in &trial.series {
                let bytes = if takes { *bytes } else { 0.0 };
                level = (level + bytes - bytes_per_s * *length_ns as f64 / 1e9).max(0.0);
                most = most.max(level);
                at_ns += length_ns;
            }
        }
        most
    }

    /// Bytes from the start of the device to the end of what was used.
    pub fn extent_bytes(&self) -> u64 {
        let end = |trial: &Moment| trial.workload.region_offset + trial.workload.region_bytes;
        self.trials.iter().map(end).max().unwrap_or(0)
    }
}

/// Why a point says nothing about the device.
fn unusable(point: &Point) -> Option<&'static str> {
    let key = &point.key;
    let plain = point.trials.iter().filter(|trial| !trial.soaked);
    if plain.clone().all(|trial| trial.bytes() == 0 || trial.elapsed_ns == 0) {
        return Some("it has no trial");
    }
    if key.requests_per_s().is_some() {
        return Some("an open loop shows the load, not the device");
    }
    if key.has_pauses() {
        return Some("its users pause, which shows the load, not the device");
    }
    if key.is_skewed() || !key.workload.request_sizes.is_empty() {
        return Some("its requests differ in size, or visit some blocks more often than others");
    }
    if !key.is_direct() && !key.is_issued_by(EngineKind::Delay) {
        return Some("it went through the page cache");
    }
    if key.workload.may_extend {
        return Some("it grew a file");
    }
    None
}

/// Where a point stands among the others: like by like.
fn rank(key: &PointKey) -> (u32, String, u64, u64, u32) {
    let outstanding = key.depth() * key.threads();
    (
        100 - key.read_percent(),
        key.workload.pattern.to_string(),
        key.size_bytes(),
        key.request_bytes(),
        outstanding,
    )
}

/// Which points are held out: evenly spread over the order, whose depths run up and down in turn
/// so that neither half has only shallow ones.
fn held_out_of(points: &[&Point], share: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    let without_depth = |index: usize| {
        let (op, pattern, region, size, _) = rank(&points[index].key);
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
    let mut held = vec![false; points.len()];
    let mut owed = 0.0;
    for index in order {
        owed += share;
        if owed >= 1.0 - 1e-9 {
            owed -= 1.0;
            held[index] = true;
        }
    }
    held
}

fn observed(point: &Point, held_out: bool) -> Observed {
    let trials = point.unsoaked();
    let rates: Vec<f64> = trials.iter().map(|trial| trial.bytes_per_s()).collect();
    let bytes_per_s = median(&rates).unwrap_or(0.0);
    let away: f64 = rates.iter().map(|rate| (rate / bytes_per_s - 1.0).abs()).sum();
    let latency = point.latency(None);
    let at = |q| latency.quantile(q).map_or(0.0, |ns| ns as f64);
    Observed {
        workload: workload_of(&point.key, trials[0]),
        bytes_per_s,
        best_bytes_per_s: rates.iter().copied().fold(0.0, f64::max),
        fresh_latency_ns: trials
            .iter()
            .filter_map(|trial| trial.latency().quantile(0.5))
            .min()
            .map_or(0.0, |ns| ns as f64),
        spread: away / rates.len() as f64,
        cpu_ns: point.cpu_lower_ns(),
        latency_ns: [at(0.1), at(0.5), at(0.9)],
        held_out,
        key: point.key.clone(),
    }
}

/// The workload of a trial, to be replayed in a simulated system. It ends as the trial did, by
/// bytes or by time. A cap of four times its bytes or twenty times its time stops replays of badly
/// fitted models.
fn workload_of(key: &PointKey, trial: &Trial) -> Workload {
    let measured = &key.workload;
    let (limit_bytes, limit_ns) = match (measured.limit_bytes, measured.limit_ns) {
        (Some(bytes), None) => (bytes, trial.elapsed_ns.saturating_mul(20)),
        (_, Some(ns)) => (trial.bytes().saturating_mul(4), ns),
        (None, None) => (trial.bytes().saturating_mul(4), trial.elapsed_ns),
    };
    let seed = key.seed();
    Workload {
        engine_kind: EngineKind::IoUring,
        threads: key.threads(),
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

    fn a_point(request_bytes: u64, depth: u32) -> Point {
        let mut point = point(&[request_bytes * 1000]);
        point.key.workload.request_bytes = request_bytes as u32;
        point.key.workload.depth = depth;
        point
    }

    #[test]
    fn each_half_has_shallow_and_deep_points_of_all_sizes() {
        let mut points = Vec::new();
        for size in [4096, 65536, 1 << 20] {
            points.extend([1, 16].map(|depth| a_point(size, depth)));
        }
        let history = History::of(&points, 0.5).unwrap();
        for held_out in [true, false] {
            let half: Vec<&Observed> =
                history.points.iter().filter(|p| p.held_out == held_out).collect();
            assert_eq!(half.len(), 3);
            assert!(
                half.iter().any(|p| p.key.depth() == 1) && half.iter().any(|p| p.key.depth() == 16)
            );
        }
    }

    #[test]
    fn what_the_page_cache_answered_is_left_out_and_said() {
        let mut points: Vec<Point> = [1, 2, 4, 8].map(|depth| a_point(4096, depth)).into();
        let mut buffered = a_point(4096, 1);
        buffered.key.caching = Caching::Buffered;
        points.push(buffered);
        let history = History::of(&points, 0.0).unwrap();
        assert_eq!((history.points.len(), history.left_out.len()), (4, 1));
        assert!(history.left_out[0].contains("page cache"), "{:?}", history.left_out);
        let few = History::of(&points[3..], 0.0).unwrap_err();
        assert!(few.message.contains("only 1 points"), "{}", few.message);
    }

    /// A history of one point whose trials moved so much in intervals of 0.1 s, 1 s apart.
    fn moved(trials: &[&[f64]]) -> History {
        let points: Vec<Point> = [1, 2, 4, 8].map(|depth| a_point(4096, depth)).into();
        let mut history = History::of(&points, 0.0).unwrap();
        let first = history.trials[0].clone();
        history.trials = trials
            .iter()
            .zip(0_u64..)
            .map(|(bytes, number)| Moment {
                start_ns: number * 1_000_000_000,
                series: bytes.iter().map(|bytes| (100_000_000, *bytes)).collect(),
                ..first.clone()
            })
            .collect();
        history
    }

    /// The same history with every point that is held out measured otherwise.
    pub fn held_out_otherwise(history: &History) -> History {
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
            let bytes_per_s = trial.seen.bytes_per_s * 3.0;
            let late_bytes_per_s = Some(bytes_per_s / 20.0);
            trial.seen = TrialSummary { bytes_per_s, latency_ns: Some(1.0), late_bytes_per_s };
            trial.series.iter_mut().for_each(|(_, bytes)| *bytes *= 3.0);
            trial.bytes *= 3.0;
        }
        other
    }

    /// Reads of a device of 1 ms and 100 MB/s, every second point held out.
    pub fn measured() -> History {
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
            trial.seen = TrialSummary { bytes_per_s, latency_ns: None, late_bytes_per_s: None };
            trial.series = vec![(100_000_000, bytes_per_s / 10.0); 4];
            trial.bytes = bytes_per_s * 0.4;
        }
        history
    }

    #[test]
    fn what_was_moved_beyond_the_lasting_rate_is_the_credit_however_many_trials_it_took() {
        // 10 bytes in each interval last: 80, then 110 after a pause that gave all back, of which
        // 50 are left after the next one, and 80 more.
        let history = moved(&[&[50.0, 50.0], &[100.0, 30.0, 10.0, 10.0], &[90.0, 10.0]]);
        assert!((history.beyond_bytes(100.0, |_| true) - 130.0).abs() < 1e-6);
        assert!(history.beyond_bytes(100.0, |_| false) == 0.0);
        assert!(history.beyond_bytes(1000.0, |_| true) == 0.0);
    }
}
