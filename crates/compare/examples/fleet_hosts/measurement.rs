//! Generates the measurements of a run: the workloads, and trials with rates, latencies and time
//! series.
//!
//! Rates vary by 1.3% from run to run and by 1.5% from trial to trial. In addition, 2% of the runs
//! are slower by 3% to 12%, and 3% of the trials are slower by 5% to 30%, as if another program
//! used the host.

use std::array;

use analysis::histogram::Histogram;
use cpucost::CpuUsage;
use fastrand::Rng;
use ioengine::device::DeviceCounters;
use ioengine::{Caching, EngineKind};
use lab::point::{LiveTrial, Point, SeriesPoint, Trial};
use lab::point_key::PointKey;
use lab::verdict::{self, Circumstances};
use workload::{FullQueue, Pattern, Workload};

use crate::chance::{between, happens, heavy, normal};
use crate::host::{Ailment, Machine, random_of};

/// Size of the test file (bytes).
pub const REGION_BYTES: u64 = 64 << 30;

/// A workload that every run measures.
#[derive(Debug)]
pub struct Task {
    pattern: Pattern,
    read_percent: u8,
    request_bytes: u32,
    depth: u32,
    seconds: u64,
    trials: u32,
    /// The p99 and p99.9 latencies, as multiples of the median.
    tail: [f64; 2],
}

/// The workloads of a run. The last workload is long enough to make a device hot.
pub const WORKLOADS: [Task; 5] = [
    Task::random(100, 1, [1.4, 2.2]),
    Task::random(100, 32, [2.0, 4.0]),
    Task::random(0, 32, [2.5, 5.0]),
    Task { read_percent: 100, seconds: 10, trials: 5, ..Task::SEQUENTIAL },
    Task { read_percent: 0, seconds: 120, trials: 3, ..Task::SEQUENTIAL },
];

impl Task {
    const SEQUENTIAL: Task = Task {
        pattern: Pattern::Sequential,
        read_percent: 100,
        request_bytes: 1 << 20,
        depth: 8,
        seconds: 10,
        trials: 5,
        tail: [1.5, 2.5],
    };

    const fn random(read_percent: u8, depth: u32, tail: [f64; 2]) -> Task {
        let pattern = Pattern::Random;
        Task { pattern, read_percent, request_bytes: 4096, depth, tail, ..Task::SEQUENTIAL }
    }

    fn key(&self) -> PointKey {
        let workload = Workload {
            engine_kind: EngineKind::IoUring,
            pattern: self.pattern,
            read_percent: self.read_percent,
            request_bytes: self.request_bytes,
            depth: self.depth,
            region_bytes: REGION_BYTES,
            limit_ns: Some(self.seconds * 1_000_000_000),
            ..Workload::default()
        };
        PointKey { caching: Caching::Direct, ..PointKey::of(&workload) }
    }
}

/// Run-to-run spread of the speed factor that is common to all workloads.
const RUN_SPREAD_SHARED: f64 = 0.012;
/// Run-to-run spread of the speed factor that differs between workloads.
const RUN_SPREAD_ALONE: f64 = 0.006;
/// Share of runs that are disturbed.
const DISTURBED_RUNS: f64 = 0.02;
/// Trial-to-trial spread of speed.
const TRIAL_SPREAD: f64 = 0.015;
/// Share of trials that are disturbed.
const DISTURBED_TRIALS: f64 = 0.03;
/// Run-to-run spread of tail latency.
const RUN_SPREAD_TAIL: f64 = 0.04;
/// Trial-to-trial spread of tail latency.
const TRIAL_SPREAD_TAIL: f64 = 0.08;
/// Degrees of freedom of Student's distribution for the spreads between trials.
const TRIAL_FREEDOM: u32 = 4;
/// Spread of the rate between the intervals of a trial.
const INTERVAL_SPREAD: f64 = 0.02;
/// Pause between trials (ns).
const PAUSE_NS: i64 = 2_000_000_000;
/// Time after which a throttling device becomes hot and slower (s).
const HOT_AFTER_S: f64 = 60.0;

/// Generates the points of one run of a host.
pub fn points(seed: u64, host: &Machine, run: usize, thin: bool) -> Vec<Point> {
    let mut random = random_of(seed, host.number, 1 + run as u64);
    let random = &mut random;
    let mut shared = RUN_SPREAD_SHARED * normal(random);
    if happens(random, DISTURBED_RUNS) {
        shared += (1.0 - between(random, 0.03, 0.12)).ln();
    }
    let mut started_unix_ns = host.starts_unix_ns[run];
    let mut all = Vec::new();
    for (index, task) in WORKLOADS.iter().enumerate() {
        let key = task.key();
        let speed = host.speeds[index] + shared + RUN_SPREAD_ALONE * normal(random);
        let tail = host.tails[index] + RUN_SPREAD_TAIL * normal(random);
        let mut trials = Vec::new();
        for ordinal in 0..task.trials {
            let ailment = host.ailment_in(run);
            let drawn = Drawn::new(random, task, ailment, (speed, tail), ordinal);
            let requests_per_s = host.model.requests_per_s[index] * drawn.speed.exp();
            let mut trial = trial(random, task, &key, (requests_per_s, &drawn), thin);
            (trial.ordinal, trial.started_unix_ns) = (ordinal, started_unix_ns);
            started_unix_ns += trial.elapsed_ns as i64 + PAUSE_NS;
            trials.push(trial);
        }
        all.push(Point { key, trials });
    }
    all
}

/// The speed and the tail latency of a trial, with random variation and the host's defect.
struct Drawn {
    /// Logarithm of the speed.
    speed: f64,
    /// Logarithm of the tail latency.
    tail: f64,
    /// Whether the device becomes hot and then slower.
    throttles: bool,
}

impl Drawn {
    fn new(
        random: &mut Rng,
        task: &Task,
        ailment: Option<Ailment>,
        (speed, tail): (f64, f64),
        ordinal: u32,
    ) -> Drawn {
        let mut speed = speed + TRIAL_SPREAD * heavy(random, TRIAL_FREEDOM);
        let mut tail = tail + TRIAL_SPREAD_TAIL * heavy(random, TRIAL_FREEDOM);
        if happens(random, DISTURBED_TRIALS) {
            speed += (1.0 - between(random, 0.05, 0.30)).ln();
            tail += between(random, 1.0, 3.0).ln();
        }
        let is_random = task.pattern == Pattern::Random;
        match ailment {
            Some(Ailment::Slow) => speed += 0.85_f64.ln(),
            Some(Ailment::Bimodal) if ordinal % 2 == 1 => speed += 0.75_f64.ln(),
            Some(Ailment::OldFirmware) if is_random => speed += 0.88_f64.ln(),
            Some(Ailment::HalfLink) if !is_random => speed += 0.5_f64.ln(),
            Some(Ailment::Tail) if is_random => tail += 3.0_f64.ln(),
            Some(Ailment::Scheduler) if is_random => speed += 0.90_f64.ln(),
            _ => {}
        }
        Drawn { speed, tail, throttles: ailment == Some(Ailment::Throttled) }
    }
}

/// Generates a trial. `requests_per_s` is the rate before the device becomes hot.
fn trial(
    random: &mut Rng,
    task: &Task,
    key: &PointKey,
    (requests_per_s, drawn): (f64, &Drawn),
    thin: bool,
) -> Trial {
    let bytes = f64::from(task.request_bytes);
    let series = series(random, task, (requests_per_s, drawn.throttles), thin);
    let requests: u64 = series.iter().map(|point| point.requests).sum();
    let elapsed_ns = task.seconds * 1_000_000_000 + 90_000;
    let mean_per_s = requests as f64 * 1e9 / elapsed_ns as f64;
    let moved = requests * u64::from(task.request_bytes);
    let is_read = task.read_percent == 100;
    let sectors = |is_of| if is_of { moved / 512 } else { 0 };
    let count = |is_of| if is_of { requests } else { 0 };
    let process_ns = requests * 2_000;
    let mut trial = Trial {
        elapsed_ns,
        series,
        full_queue: Some(FullQueue {
            start_ns: 1_000_000,
            end_ns: elapsed_ns - 1_000_000,
            bytes_per_s: mean_per_s * bytes,
            requests_per_s: mean_per_s,
        }),
        submit_calls: requests,
        reap_calls: requests,
        cpu: CpuUsage {
            elapsed_ns,
            process_ns,
            user_ns: process_ns / 4,
            system_ns: process_ns - process_ns / 4,
            machine_ns: Some(process_ns + elapsed_ns / 50),
            available_ns: 64 * elapsed_ns,
            ..CpuUsage::default()
        },
        device: Some(DeviceCounters {
            reads: count(is_read),
            read_merges: 0,
            read_sectors: sectors(is_read),
            writes: count(!is_read),
            write_merges: 0,
            write_sectors: sectors(!is_read),
        }),
        live: Some(Box::new(LiveTrial::default())),
        ..Trial::default()
    };
    let direction = &mut trial.directions[usize::from(!is_read)];
    (direction.bytes, direction.requests) = (moved, requests);
    direction.latency = latency(task, requests, mean_per_s, drawn.tail, thin);
    let around = Circumstances {
        target_bytes: REGION_BYTES,
        cold: true,
        counted: true,
        cpus: 64,
        long_trial: true,
        ..Circumstances::default()
    };
    trial.verdict = verdict::judge(key, &trial, &around);
    trial
}

/// Generates the number of requests in each interval. A hot device is 40% slower.
fn series(
    random: &mut Rng,
    task: &Task,
    (requests_per_s, throttles): (f64, bool),
    thin: bool,
) -> Vec<SeriesPoint> {
    // Halfpower keeps at most about 600 intervals per trial, so long trials have longer intervals.
    let ms = if task.seconds > 60 { 200 } else { 100 } * if thin { 10 } else { 1 };
    let length_ns = ms * 1_000_000;
    let count = task.seconds * 1000 / ms;
    let noise: Vec<f64> = (0..count).map(|_| (INTERVAL_SPREAD * normal(random)).exp()).collect();
    // The noise is divided by its mean, so that the mean rate of the trial does not change.
    let mean = noise.iter().sum::<f64>() / count as f64;
    let point = |(index, noise): (u64, f64)| {
        let start_ns = index * length_ns;
        let is_hot = throttles && start_ns as f64 / 1e9 >= HOT_AFTER_S;
        let share = if is_hot { 0.6 } else { 1.0 } * noise / mean;
        let requests = (requests_per_s * share * length_ns as f64 / 1e9).round() as u64;
        let bytes = requests * u64::from(task.request_bytes);
        SeriesPoint { start_ns, length_ns, bytes, requests }
    };
    (0..).zip(noise).map(point).collect()
}

/// Generates the latencies. Their mean obeys Little's law, and their distribution is interpolated
/// between percentiles.
fn latency(task: &Task, requests: u64, per_s: f64, tail: f64, thin: bool) -> Histogram {
    let [p99, p99_9] = task.tail;
    let p99_9 = p99_9 * tail.exp();
    // Points of the latency distribution. Each pair (power, latency) means that a share of
    // 10^-power of the requests has a higher latency. The latency is a multiple of the median.
    let shape: [(f64, f64); 7] = [
        (0.0, 0.8),
        (0.301, 1.0),
        (1.0, 1.0 + (p99 - 1.0) / 4.0),
        (2.0, p99 * (tail / 6.0).exp()),
        (3.0, p99_9),
        (4.0, 1.5 * p99_9),
        (6.0, 2.0 * p99_9),
    ];
    let at = |power: f64| {
        let next = shape.iter().position(|(to, _)| power <= *to).unwrap_or(6).max(1);
        let ((from, low), (to, high)) = (shape[next - 1], shape[next]);
        (low.ln() + (high / low).ln() * (power - from) / (to - from)).exp()
    };
    let steps_per_power: u32 = if thin { 2 } else { 12 };
    let steps = 5 * steps_per_power;
    let power = |step: u32| f64::from(step) / f64::from(steps_per_power);
    let parts: Vec<(f64, f64)> = (0..steps)
        .map(|step| {
            let [from, to] = array::from_fn(|next| power(step + next as u32));
            (10_f64.powf(-from) - 10_f64.powf(-to), at(f64::midpoint(from, to)))
        })
        .collect();
    let mean: f64 = parts.iter().map(|(share, latency)| share * latency).sum();
    let median_ns = f64::from(task.depth) * 1e9 / per_s / mean;
    let mut histogram = Histogram::new();
    let mut left = requests;
    for (share, latency) in parts {
        let count = ((share * requests as f64).round() as u64).min(left);
        histogram.record_n((latency * median_ns) as u64, count);
        left -= count;
    }
    histogram.record_n((at(2.0) * median_ns) as u64, left);
    histogram
}
