//! Converts points to fio's JSON+ output, for programs that read this format.
//!
//! Each point becomes a job. A job sums the counts, histograms and durations of the trials without
//! a soaker. halfpower measures only one latency, from submission to completion. This latency is
//! written as both `lat_ns` and `clat_ns`, and `slat_ns` is empty. In a mix, halfpower measures
//! only the total rate over time. The export divides this rate between reads and writes in
//! proportion to their bytes.

use std::collections::BTreeMap;

use analysis::histogram::Histogram;
use lab::date;
use lab::point::{Point, Trial};

use crate::fio::load::size;
use crate::fio::output::{Direction, Job, Latency, Output, Shares, Texts};

/// Percentiles that fio prints by default.
const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];
/// Levels of fio's `iodepth_level`, with their names.
const DEPTHS: [(u64, &str); 7] =
    [(1, "1"), (2, "2"), (4, "4"), (8, "8"), (16, "16"), (32, "32"), (u64::MAX, ">=64")];
/// Levels of fio's `iodepth_submit` and `iodepth_complete` (requests per call), with their names.
const BATCHES: [(u64, &str); 7] =
    [(0, "0"), (4, "4"), (8, "8"), (16, "16"), (32, "32"), (64, "64"), (u64::MAX, ">=64")];
/// Upper limits of the intervals of fio's `latency_ns`, `latency_us` and `latency_ms` (ns, us, ms).
const LATENCIES: [u64; 12] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000, u64::MAX];

/// Creates fio's JSON document for points with optional names. `finished_unix_ns` is the end of the
/// measurement (ns since 1970). Points without trials are omitted.
pub fn output(version: &str, finished_unix_ns: i64, points: &[(Option<String>, Point)]) -> Output {
    let measured = points.iter().filter(|(_, point)| !point.trials.is_empty());
    let total = measured.clone().map(|(_, point)| point.bytes_per_s().value).sum();
    let jobs = (0..).zip(measured);
    let jobs = jobs.map(|(number, (name, point))| job(number, name.as_deref(), point, total));
    Output {
        version: format!("halfpower-{version}"),
        timestamp: finished_unix_ns.div_euclid(1_000_000_000),
        timestamp_ms: Some(finished_unix_ns.div_euclid(1_000_000)),
        time: format!("{} UTC", date::utc(finished_unix_ns)),
        jobs: Some(jobs.collect()),
        ..Output::default()
    }
}

/// Creates the JSON text for jobs that were just measured.
pub fn json_of(points: &[(String, Point)]) -> String {
    let named: Vec<(Option<String>, Point)> =
        points.iter().map(|(name, point)| (Some(name.clone()), point.clone())).collect();
    let now_ns = ioengine::clock::unix_ns();
    let output = output(env!("CARGO_PKG_VERSION"), now_ns, &named);
    serde_json::to_string_pretty(&output).unwrap_or_default()
}

fn job(number: u64, label: Option<&str>, point: &Point, total_bytes_per_s: f64) -> Job {
    let trials = point.unsoaked();
    let sum = |of: &dyn Fn(&Trial) -> u64| trials.iter().map(|trial| of(trial)).sum::<u64>();
    let elapsed_ns = sum(&|trial| trial.elapsed_ns);
    let all_threads_ns = elapsed_ns as f64 * f64::from(point.key.threads().max(1));
    let percent =
        |ns: u64| if all_threads_ns > 0.0 { 100.0 * ns as f64 / all_threads_ns } else { 0.0 };
    let latency = point.latency(None);
    let requests = sum(&|trial| trial.requests());
    let batch = |calls: u64| requests.checked_div(calls).unwrap_or(1);
    let depth = u64::from(point.key.depth());
    let [read, write] = [0, 1].map(|index| direction(point, index, elapsed_ns, total_bytes_per_s));
    let started = trials.iter().map(|trial| trial.started_unix_ns).min().unwrap_or(0);
    Job {
        jobname: label.map_or_else(|| name(point), str::to_owned),
        groupid: number,
        job_start: Some(started.div_euclid(1_000_000)),
        error: i64::from(sum(&|trial| trial.errors) > 0),
        elapsed: elapsed_ns.div_ceil(1_000_000_000),
        options: Some(options(point)),
        read,
        write,
        job_runtime: (all_threads_ns / 1e6).round() as u64,
        usr_cpu: percent(sum(&|trial| trial.cpu.user_ns)),
        sys_cpu: percent(sum(&|trial| trial.cpu.system_ns)),
        iodepth_level: level(&DEPTHS, depth, true),
        iodepth_submit: level(&BATCHES, batch(sum(&|trial| trial.submit_calls)), false),
        iodepth_complete: level(&BATCHES, batch(sum(&|trial| trial.reap_calls)), false),
        latency_ns: shares(&latency, 1, 0, 10),
        latency_us: shares(&latency, 1_000, 1, 10),
        latency_ms: shares(&latency, 1_000_000, 1, 12),
        latency_depth: depth,
        latency_percentile: 100.0,
        ..Job::default()
    }
}

fn name(point: &Point) -> String {
    let (rw, bytes) = (point.key.rw(), size(point.key.request_bytes()));
    format!("{rw}-{bytes}-iodepth-{}-numjobs-{}", point.key.depth(), point.key.threads())
}

/// Returns the settings of a point as fio's options. Options with fio's default values are
/// included, because programs rely on them.
fn options(point: &Point) -> Texts {
    let (key, workload) = (&point.key, &point.key.workload);
    let mut all = vec![
        ("name", name(point)),
        ("rw", key.rw().to_owned()),
        ("bs", size(key.request_bytes())),
        ("iodepth", key.depth().to_string()),
        ("numjobs", key.threads().to_string()),
        ("ioengine", if key.ioengine() == "sync" { "psync" } else { key.ioengine() }.to_owned()),
        ("direct", u8::from(key.caching.is_direct()).to_string()),
        ("sync", u8::from(key.caching.is_write_through()).to_string()),
        ("size", size(key.size_bytes())),
        ("group_reporting", "1".to_owned()),
    ];
    if key.operation() == "mix" {
        all.push(("rwmixread", key.read_percent().to_string()));
    }
    if workload.region_offset > 0 {
        all.push(("offset", size(workload.region_offset)));
    }
    let time = |ns: u64| format!("{}us", ns / 1000);
    all.extend(workload.limit_ns.map(|ns| ("runtime", time(ns))));
    all.extend((workload.warm_up_ns > 0).then(|| ("ramp_time", time(workload.warm_up_ns))));
    all.extend(key.requests_per_s().map(|rate| ("rate_iops", rate.round().to_string())));
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn direction(point: &Point, index: usize, elapsed_ns: u64, total_bytes_per_s: f64) -> Direction {
    let trials = point.unsoaked();
    let sum = |of: &dyn Fn(&Trial) -> u64| trials.iter().map(|trial| of(trial)).sum::<u64>();
    let bytes = sum(&|trial| trial.directions[index].bytes);
    let requests = sum(&|trial| trial.directions[index].requests);
    if requests == 0 || elapsed_ns == 0 {
        return Direction::default();
    }
    let mut histogram = Histogram::new();
    trials.iter().for_each(|trial| histogram.merge(&trial.directions[index].latency));
    let seconds = elapsed_ns as f64 / 1e9;
    let (bytes_per_s, iops) = (bytes as f64 / seconds, requests as f64 / seconds);
    let share = bytes as f64 / sum(&|trial| trial.bytes()).max(1) as f64;
    let rates = |of: &dyn Fn(&lab::point::SeriesPoint) -> u64| -> Vec<f64> {
        let intervals = trials.iter().flat_map(|trial| trial.series_until(None));
        let full = intervals.filter(|interval| interval.length_ns > 0);
        full.map(|interval| share * of(interval) as f64 * 1e9 / interval.length_ns as f64).collect()
    };
    let kib = Spread::of(&rates(&|interval| interval.bytes), bytes_per_s).divided(1024.0);
    let per_s = Spread::of(&rates(&|interval| interval.requests), iops);
    let latency = latency(&histogram);
    Direction {
        io_bytes: bytes,
        io_kbytes: bytes >> 10,
        bw_bytes: bytes_per_s as u64,
        bw: bytes_per_s as u64 >> 10,
        iops,
        runtime: (elapsed_ns as f64 / 1e6).round() as u64,
        total_ios: requests,
        short_ios: if share == 1.0 { sum(&|trial| trial.short_transfers) } else { 0 },
        clat_ns: latency.clone(),
        lat_ns: latency,
        bw_min: kib.min as u64,
        bw_max: kib.max as u64,
        bw_agg: 100.0 * bytes_per_s / total_bytes_per_s.max(bytes_per_s).max(1.0),
        bw_mean: kib.mean,
        bw_dev: kib.deviation,
        bw_samples: kib.count,
        iops_min: per_s.min as u64,
        iops_max: per_s.max as u64,
        iops_mean: per_s.mean,
        iops_stddev: per_s.deviation,
        iops_samples: per_s.count,
        ..Direction::default()
    }
}

/// Statistics of the rates in all intervals.
struct Spread {
    min: f64,
    max: f64,
    mean: f64,
    deviation: f64,
    count: u64,
}

impl Spread {
    /// Computes the statistics of `values`. If there are no values, uses `whole` instead.
    fn of(values: &[f64], whole: f64) -> Spread {
        let values = if values.is_empty() { &[whole] } else { values };
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Spread {
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(0.0, f64::max),
            mean,
            deviation: if count > 1.0 { (squares / (count - 1.0)).sqrt() } else { 0.0 },
            count: values.len() as u64,
        }
    }

    fn divided(self, by: f64) -> Spread {
        let Spread { min, max, mean, deviation, count } = self;
        Spread { min: min / by, max: max / by, mean: mean / by, deviation: deviation / by, count }
    }
}

fn latency(histogram: &Histogram) -> Latency {
    let Some(exact) = histogram.exact() else { return Latency::default() };
    let mean = histogram.mean().unwrap_or(0.0);
    let midpoint = |low: u64, high: u64| low + (high - low) / 2;
    let mut bins: BTreeMap<String, u64> = BTreeMap::new();
    let mut squares = 0.0;
    for bucket in histogram.buckets() {
        let ns = midpoint(bucket.low_ns, bucket.high_ns);
        squares += bucket.count as f64 * (ns as f64 - mean).powi(2);
        bins.insert(ns.to_string(), bucket.count);
    }
    if exact.overflow > 0 {
        bins.insert(exact.max_ns.to_string(), exact.overflow);
    }
    let percentile = PERCENTILES.iter().filter_map(|percent| {
        Some((format!("{percent:.6}"), histogram.quantile(percent / 100.0)?))
    });
    Latency {
        min: exact.min_ns,
        max: exact.max_ns,
        mean,
        stddev: (squares / histogram.count() as f64).sqrt(),
        count: histogram.count(),
        percentile: Some(percentile.collect()),
        bins: Some(bins),
    }
}

/// Returns 100 percent for the level of `value`, and 0 for all other levels. If `value` is between
/// two levels, the lower level is used if `floor` is true, otherwise the higher level.
fn level(levels: &[(u64, &str); 7], value: u64, floor: bool) -> Shares {
    let found = if floor {
        levels.iter().rposition(|(limit, _)| *limit <= value).unwrap_or(0)
    } else {
        levels.iter().position(|(limit, _)| value <= *limit).unwrap_or(levels.len() - 1)
    };
    let found = if floor && value >= 64 { levels.len() - 1 } else { found };
    let share = |(index, (_, name)): (usize, &(u64, &str))| {
        ((*name).to_owned(), if index == found { 100.0 } else { 0.0 })
    };
    levels.iter().enumerate().map(share).collect()
}

/// Returns the share of latencies (percent) in each of the first `count` intervals of
/// [`LATENCIES`], in units of `unit_ns`. The first interval begins at `from` units. The upper limit
/// of an interval belongs to the next interval.
fn shares(histogram: &Histogram, unit_ns: u64, from: u64, count: usize) -> Shares {
    let total = histogram.count().max(1) as f64;
    let mut below = from;
    let shares = LATENCIES[..count].iter().map(|end| {
        let range = below..*end;
        below = *end;
        let inside = histogram.buckets().filter(|bucket| {
            let ns = bucket.low_ns + (bucket.high_ns - bucket.low_ns) / 2;
            range.contains(&(ns / unit_ns))
        });
        let requests: u64 = inside.map(|bucket| bucket.count).sum();
        let beyond = if *end == u64::MAX { histogram.overflow() } else { 0 };
        let name = if *end == u64::MAX { ">=2000".to_owned() } else { end.to_string() };
        (name, 100.0 * (requests + beyond) as f64 / total)
    });
    shares.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::point::testing::point;

    fn measured() -> Point {
        let mut point = point(&[4096 * 1000, 4096 * 1010]);
        point.key.workload.request_bytes = 4096;
        point.key.workload.depth = 16;
        point.key.workload.engine_kind = ioengine::EngineKind::Libaio;
        for trial in &mut point.trials {
            let requests = trial.directions[0].requests;
            trial.directions[0].latency = Histogram::new();
            for index in 0..requests {
                trial.directions[0].latency.record(50_000 + 1000 * index);
            }
        }
        point
    }

    #[test]
    fn what_is_exported_is_imported_with_the_same_numbers() {
        let point = measured();
        let output = output("1.0", 5_000_000_000, &[(Some("x".to_owned()), point.clone())]);
        let text = serde_json::to_string(&output).unwrap();
        let back = crate::import::read_text("a.json", &text).unwrap();
        let (key, trial) = (&back[0].points[0].key, &back[0].points[0].trials[0]);
        assert_eq!((key.rw(), key.request_bytes(), key.depth()), (point.key.rw(), 4096, 16));
        assert_eq!(trial.bytes(), point.trials.iter().map(Trial::bytes).sum::<u64>());
        assert_eq!(trial.requests(), point.trials.iter().map(Trial::requests).sum::<u64>());
        let latency = point.latency(None);
        assert_eq!(trial.latency().quantile(0.99), latency.quantile(0.99));
        assert_eq!(trial.latency().max(), latency.max());
    }

    #[test]
    fn the_shares_of_all_latencies_are_100_percent() {
        let latency = measured().latency(None);
        let all: f64 = [shares(&latency, 1, 0, 10), shares(&latency, 1_000, 1, 10)]
            .iter()
            .chain([&shares(&latency, 1_000_000, 1, 12)])
            .flat_map(BTreeMap::values)
            .sum();
        assert!((all - 100.0).abs() < 1e-6, "{all}");
    }

    #[test]
    fn a_depth_has_the_level_that_fio_gives_it() {
        let at = |levels, value, floor| {
            level(levels, value, floor).into_iter().find(|(_, share)| *share > 0.0).unwrap().0
        };
        assert_eq!(
            [1, 3, 16, 63, 64, 256].map(|depth| at(&DEPTHS, depth, true)),
            ["1", "2", "16", "32", ">=64", ">=64"]
        );
        assert_eq!(
            [0, 1, 4, 5, 64, 65].map(|batch| at(&BATCHES, batch, false)),
            ["0", "4", "4", "8", "64", ">=64"]
        );
    }
}
