//! A point (one workload) and its trials (timed executions of it).
//!
//! Both come from a live measurement or from the database (`record.rs`). Every result is computed
//! from them, so a stored run gives the same results as a live one.

use analysis::bootstrap::median_interval;
use analysis::histogram::Histogram;
use analysis::interval::{CONFIDENCE, Interval};
use analysis::quantile::median;
use analysis::units;
use cpucost::CpuUsage;
use ioengine::Op;
use ioengine::engine::Setup;
use ioengine::target::{DeviceCounters, Scrub};
use serde::{Deserialize, Serialize};
use simulator::bounds::Bound;
use simulator::{Account, SimpleModel};
use workload::{FullQueue, LoggedRequest};

use crate::check::Check;
use crate::peer::counters::ServerUsage;
use crate::point_key::PointKey;
use crate::rank_trial::RankTrial;

/// Whether a result can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum State {
    /// Every check passed.
    #[default]
    Valid,
    /// Noise, drift, throttling or too few samples.
    Suspect,
    /// The wrong thing was measured.
    Invalid,
}

impl State {
    /// The name in results, such as `valid`.
    pub fn word(self) -> &'static str {
        match self {
            State::Valid => "valid",
            State::Suspect => "suspect",
            State::Invalid => "invalid",
        }
    }
}

/// A verdict on a result with its reasons.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// The worst state of all reasons.
    pub state: State,
    /// One sentence per reason.
    pub reasons: Vec<String>,
}

impl Verdict {
    /// Adds a reason, and raises the state to `state` if that is worse.
    pub fn add(&mut self, state: State, reason: impl Into<String>) {
        let reason = reason.into();
        self.state = self.state.max(state);
        if !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    /// Adds a reason that begins with the name of its check.
    pub fn flag(&mut self, state: State, check: Check, text: impl AsRef<str>) {
        self.add(state, format!("{}: {}", check.name(), text.as_ref()));
    }

    /// The first reason of a check.
    pub fn reason(&self, check: Check) -> Option<&str> {
        let is_of_check = |reason: &&String| {
            reason.strip_prefix(check.name()).is_some_and(|text| text.starts_with(": "))
        };
        self.reasons.iter().find(is_of_check).map(String::as_str)
    }

    /// Adds all reasons of another verdict, but only the first of several reasons that differ only
    /// in their numbers.
    pub fn merge(&mut self, other: &Verdict) {
        let words = |reason: &str| reason.replace(|c: char| c.is_ascii_digit() || c == '.', "");
        self.state = self.state.max(other.state);
        for reason in &other.reasons {
            if self.reasons.iter().all(|known| words(known) != words(reason)) {
                self.reasons.push(reason.clone());
            }
        }
    }
}

/// Counts and latencies of reads, or of writes.
#[derive(Clone, Debug, Default)]
pub struct Direction {
    /// Bytes moved by these requests.
    pub bytes: u64,
    /// Requests completed.
    pub requests: u64,
    /// Latencies (ns).
    pub latency: Histogram,
}

/// Percentiles of the latencies of reads and writes together (ns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentiles {
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p99_9_ns: u64,
}

/// Bytes and requests of one interval of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesPoint {
    /// Start of the interval, counted from the start of the measured phase (ns).
    pub start_ns: u64,
    /// Length of the interval (ns).
    pub length_ns: u64,
    /// Bytes completed in the interval.
    pub bytes: u64,
    /// Requests completed in the interval.
    pub requests: u64,
}

/// One timed execution of a workload.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// Number within the point.
    pub ordinal: u32,
    /// Start time (ns since 1970).
    pub started_unix_ns: i64,
    /// Whether a soaker ran during the trial.
    pub soaked: bool,
    /// Counts and latencies of the reads and of the writes, in the order of [`Op`].
    pub directions: [Direction; 2],
    /// Failed requests.
    pub errors: u64,
    /// Short transfers, each completed by further requests.
    pub short_transfers: u64,
    /// Length including the final flush (ns).
    pub elapsed_ns: u64,
    /// Time to the last accepted write (ns); None without a final flush.
    pub accepted_ns: Option<u64>,
    /// The time in which the queue was full.
    pub full_queue: Option<FullQueue>,
    /// Calls that submitted requests.
    pub submit_calls: u64,
    /// Calls that reaped completions.
    pub reap_calls: u64,
    /// CPU use in the measured phase.
    pub cpu: CpuUsage,
    /// CPU time that the soaker lost, minus the background load (ns).
    pub soaker_ns: Option<u64>,
    /// Counters of the block device.
    pub device: Option<DeviceCounters>,
    /// Page cache of the target before and after the scrub (bytes).
    pub scrub: Option<Scrub>,
    /// Bytes and requests over time.
    pub series: Vec<SeriesPoint>,
    /// The share of each rank; empty for a trial of one process.
    pub ranks: Vec<RankTrial>,
    /// Stored percentiles of a trial that was read without its histograms.
    pub percentiles: Option<Percentiles>,
    /// Whether the trial can be trusted.
    pub verdict: Verdict,
    /// Data that is not stored; None for a trial from the database.
    pub live: Option<Box<LiveTrial>>,
}

/// Data of a trial that exists only after measuring it and is not stored in the database.
#[derive(Clone, Debug, Default)]
pub struct LiveTrial {
    /// Description of the first failed request.
    pub failure: Option<String>,
    /// Description of the first damaged block.
    pub damage: Option<String>,
    /// Features and buffers that the I/O engines obtained.
    pub setup: Setup,
    /// Requests issued again after EAGAIN or EINTR.
    pub retries: u64,
    /// Requests that completed inside the submit call.
    pub at_once: u64,
    /// Requests of an open loop that were due and never issued.
    pub never_issued: u64,
    /// Start of the measured phase (ns of the monotonic clock).
    pub start_ns: u64,
    /// All requests, if they are logged.
    pub log: Vec<LoggedRequest>,
    /// Requests missing in `log` because it was full.
    pub log_lost: u64,
    /// Durations of flushes between writes (ns).
    pub flushes: Histogram,
    /// What the server of a network target used during the trial; None without a halfpower peer.
    pub server: Option<ServerUsage>,
    /// Resource use of a simulated system.
    pub account: Option<Account>,
    /// Upper bounds on the rate of a simulated system, the tightest first.
    pub bounds: Vec<Bound>,
    /// The steps of a request to a simulated disk and their times, if nothing overlaps (the papers'
    /// simple model).
    pub simple: Option<SimpleModel>,
}

impl Trial {
    /// Description of the first failed request.
    pub fn failure(&self) -> Option<&str> {
        self.live.as_ref()?.failure.as_deref()
    }

    /// All requests, if they are logged.
    pub fn log(&self) -> &[LoggedRequest] {
        self.live.as_ref().map_or(&[], |live| &live.log)
    }

    /// The data that is not stored; created empty if missing.
    pub fn live_mut(&mut self) -> &mut LiveTrial {
        self.live.get_or_insert_default()
    }

    /// The intervals that end within `limit_ns`, while requests are still issued; afterwards the
    /// queue drains and the rate falls. Omits the last interval, which is incomplete.
    pub fn series_until(&self, limit_ns: Option<u64>) -> &[SeriesPoint] {
        let limit_ns = limit_ns.unwrap_or(u64::MAX);
        let whole = &self.series[..self.series.len().saturating_sub(1)];
        let ends = |point: &SeriesPoint| point.start_ns.saturating_add(point.length_ns);
        &whole[..whole.partition_point(|point| ends(point) <= limit_ns)]
    }

    /// Bytes read and written.
    pub fn bytes(&self) -> u64 {
        self.directions.iter().map(|d| d.bytes).fold(0, u64::saturating_add)
    }

    /// The fewest and the most bytes that any rank moved. In a trial of one process, both are the
    /// bytes of the trial.
    pub fn bytes_of_a_rank(&self) -> (u64, u64) {
        let present = self.ranks.iter().filter(|rank| rank.lost.is_none());
        let bytes = || present.clone().map(|rank| rank.bytes);
        (bytes().min().unwrap_or(self.bytes()), bytes().max().unwrap_or(self.bytes()))
    }

    /// Completed reads and writes.
    pub fn requests(&self) -> u64 {
        self.directions.iter().map(|d| d.requests).fold(0, u64::saturating_add)
    }

    /// Bytes per second while the queue was full. Uses the whole trial if that time is unknown or
    /// if the trial ends with a flush.
    pub fn bytes_per_s(&self) -> f64 {
        self.rated().map_or_else(|| self.whole_bytes_per_s(), |full| full.bytes_per_s)
    }

    /// Requests per second, over the same time as [`Trial::bytes_per_s`].
    pub fn requests_per_s(&self) -> f64 {
        self.rated().map_or_else(|| self.whole_requests_per_s(), |full| full.requests_per_s)
    }

    /// Bytes per second over the whole trial, including filling and draining the queue.
    pub fn whole_bytes_per_s(&self) -> f64 {
        per_second(self.bytes(), self.elapsed_ns)
    }

    /// Requests per second over the whole trial.
    pub fn whole_requests_per_s(&self) -> f64 {
        per_second(self.requests(), self.elapsed_ns)
    }

    /// The period over which the trial's rates are computed; None: the whole trial.
    fn rated(&self) -> Option<&FullQueue> {
        self.full_queue.as_ref().filter(|_| self.accepted_ns.is_none())
    }

    /// Uncertainty of the rate because only whole requests are counted: half a request, as a share
    /// of the requests counted. 0 if the rate covers the whole trial.
    fn resolution(&self) -> f64 {
        self.rated().map_or(0.0, |full| 0.5 / full.requests().max(1.0))
    }

    /// Latencies of both directions.
    pub fn latency(&self) -> Histogram {
        let mut all = self.directions[0].latency.clone();
        all.merge(&self.directions[1].latency);
        all
    }

    /// CPU time per request that the soaker lost beyond the time charged to the process (ns).
    /// Includes the error of the soaker's calibration.
    pub fn uncharged_ns(&self) -> Option<f64> {
        self.per_request(self.soaker_ns?.saturating_sub(self.cpu.process_ns))
    }

    /// A time divided by the number of requests (ns).
    fn per_request(&self, ns: u64) -> Option<f64> {
        let requests = self.requests();
        (requests > 0).then(|| ns as f64 / requests as f64)
    }
}

fn per_second(count: u64, elapsed_ns: u64) -> f64 {
    if elapsed_ns == 0 { 0.0 } else { count as f64 * 1e9 / elapsed_ns as f64 }
}

/// Maximum half-width of a rate's confidence interval, as a share; a wider interval is noisy.
const NOISY: f64 = 0.15;

/// Minimum number of requests of all trials together; a point with fewer is suspect.
const REQUESTS_MIN: u64 = 5;

/// The reason given for a result of a single trial.
pub const ONE_TRIAL: &str = "one trial does not show the scatter between trials; use --trials 3";

/// One workload with its trials.
#[derive(Clone, Debug)]
pub struct Point {
    /// Identity of the workload that was measured.
    pub key: PointKey,
    /// The trials, in the order of execution.
    pub trials: Vec<Trial>,
}

/// Results of a point over all of its trials.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Bytes per second: median of the unsoaked trials with its confidence interval.
    pub bytes_per_s: Interval,
    /// Requests per second: median with its confidence interval.
    pub requests_per_s: Interval,
    /// Latencies of all unsoaked trials.
    pub latency: Histogram,
    /// CPU time per request charged to the process (ns).
    pub cpu_lower_ns: Option<f64>,
    /// Upper bound of the CPU time per request (ns); needs a soaked trial.
    pub cpu_upper_ns: Option<f64>,
    /// Verdict over all trials.
    pub verdict: Verdict,
}

impl Point {
    /// Trials without a soaker, the source of rates and latencies. All trials if all were soaked.
    pub fn unsoaked(&self) -> Vec<&Trial> {
        let plain: Vec<&Trial> = self.trials.iter().filter(|t| !t.soaked).collect();
        if plain.is_empty() { self.trials.iter().collect() } else { plain }
    }

    /// Median of a rate over the unsoaked trials, with its confidence interval.
    fn interval(&self, of: impl Fn(&Trial) -> f64) -> Interval {
        let values: Vec<f64> = self.unsoaked().into_iter().map(of).collect();
        let interval = median_interval(&values, CONFIDENCE);
        let Interval { value, low, high } = interval.unwrap_or(Interval::exact(0.0));
        let resolution = self.unsoaked().into_iter().map(Trial::resolution).fold(0.0, f64::max);
        Interval { value, low: low * (1.0 - resolution), high: high * (1.0 + resolution) }
    }

    /// Whether real I/O was measured: not a simulation, not the I/O engine `null`.
    fn is_real(&self) -> bool {
        !self.key.is_simulated && self.key.ioengine() != "null"
    }

    /// Bytes per second: median with its confidence interval.
    pub fn bytes_per_s(&self) -> Interval {
        self.interval(Trial::bytes_per_s)
    }

    /// Latencies of all unsoaked trials, of one operation or of both (None).
    pub fn latency(&self, op: Option<Op>) -> Histogram {
        let mut all = Histogram::new();
        for trial in self.unsoaked() {
            match op {
                Some(op) => all.merge(&trial.directions[op as usize].latency),
                None => trial.directions.iter().for_each(|d| all.merge(&d.latency)),
            }
        }
        all
    }

    /// CPU time per request charged to the process, median over the unsoaked trials (ns).
    pub fn cpu_lower_ns(&self) -> Option<f64> {
        let plain = self.unsoaked();
        let costs: Vec<f64> =
            plain.iter().filter_map(|t| t.per_request(t.cpu.process_ns)).collect();
        median(&costs)
    }

    /// Upper bound of the CPU time per request (ns): the time charged in the unsoaked trials, plus
    /// the uncharged time in the soaked trials (kernel threads, interrupts), at the upper end of
    /// its confidence interval. A soaker disturbs its trial, so soaked trials supply only the
    /// uncharged part.
    ///
    /// A simulated host runs nothing else, so its whole busy time is the bound.
    pub fn cpu_upper_ns(&self) -> Option<f64> {
        if self.key.is_simulated {
            let busy = self.trials.iter().filter_map(|t| t.per_request(t.cpu.machine_ns?));
            return median(&busy.collect::<Vec<f64>>());
        }
        let uncharged: Vec<f64> = self.trials.iter().filter_map(Trial::uncharged_ns).collect();
        let uncharged = median_interval(&uncharged, CONFIDENCE)?;
        Some(self.cpu_lower_ns()? + uncharged.high)
    }

    /// How the soaker disturbs a trial: rate and charged CPU time of the soaked trials divided by
    /// those of the unsoaked trials.
    pub fn disturbance(&self) -> Option<(f64, f64)> {
        let of = |soaked: bool, what: &dyn Fn(&Trial) -> Option<f64>| {
            let values: Vec<f64> =
                self.trials.iter().filter(|t| t.soaked == soaked).filter_map(what).collect();
            median(&values)
        };
        let rate = |t: &Trial| Some(t.bytes_per_s());
        let cpu = |t: &Trial| t.per_request(t.cpu.process_ns);
        Some((of(true, &rate)? / of(false, &rate)?, of(true, &cpu)? / of(false, &cpu)?))
    }

    /// The verdict over all trials. A rate is noisy if the half-width of its confidence interval
    /// exceeds the share `noisy`.
    pub fn verdict(&self, noisy: f64) -> Verdict {
        self.verdict_on(&self.bytes_per_s(), noisy)
    }

    /// The rate with its interval (bytes per second), and the verdict with the default limit on
    /// noise.
    pub fn rate_and_verdict(&self) -> (Interval, Verdict) {
        let rate = self.bytes_per_s();
        (rate, self.verdict_on(&rate, NOISY))
    }

    fn verdict_on(&self, bytes_per_s: &Interval, noisy: f64) -> Verdict {
        let mut verdict = Verdict::default();
        self.trials.iter().for_each(|trial| verdict.merge(&trial.verdict));
        let width = bytes_per_s.half_width_relative();
        if self.unsoaked().len() >= 3 && width > noisy {
            let (width, limit) = (width * 100.0, noisy * 100.0);
            let text = format!("+-{width:.0}% (limit {limit:.0}%)");
            verdict.flag(State::Suspect, Check::Noisy, text);
        }
        let trials = self.unsoaked().into_iter();
        let requests = trials.fold(0, |sum: u64, trial| sum.saturating_add(trial.requests()));
        if (1..REQUESTS_MIN).contains(&requests) && self.is_real() {
            let requests = units::counted(requests, "request");
            let text = format!(
                "all trials together have only {requests}; give a longer --runtime or --size"
            );
            verdict.flag(State::Suspect, Check::FewRequests, text);
        }
        // One trial shows nothing about scatter.
        if self.unsoaked().len() == 1 && self.is_real() {
            verdict.flag(State::Suspect, Check::OneTrial, ONE_TRIAL);
        }
        verdict
    }

    /// All results, with the default limit on noise.
    pub fn summary(&self) -> Summary {
        let (bytes_per_s, verdict) = self.rate_and_verdict();
        Summary {
            bytes_per_s,
            requests_per_s: self.interval(Trial::requests_per_s),
            latency: self.latency(None),
            cpu_lower_ns: self.cpu_lower_ns(),
            cpu_upper_ns: self.cpu_upper_ns(),
            verdict,
        }
    }
}

/// Points with given measurements, for tests of this crate and other crates.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use ioengine::Caching;
    use workload::Workload;

    use super::*;

    /// A point of reads. Trial `i` reads `bytes[i]` bytes in one second.
    pub fn point(bytes: &[u64]) -> Point {
        let workload =
            Workload { request_bytes: 4096, region_bytes: 1 << 20, seed: 1, ..Workload::default() };
        let key = PointKey { caching: Caching::Direct, ..PointKey::of(&workload) };
        let trial = |(ordinal, bytes): (usize, &u64)| {
            let mut trial =
                Trial { ordinal: ordinal as u32, elapsed_ns: 1_000_000_000, ..Trial::default() };
            trial.directions[0].bytes = *bytes;
            trial.directions[0].requests = bytes / 4096;
            trial.cpu.process_ns = bytes / 4096 * 1000;
            trial
        };
        Point { key, trials: bytes.iter().enumerate().map(trial).collect() }
    }
}

#[cfg(test)]
mod tests {
    use workload::{Arrival, Distribution, Placement, SizeShare, Think};

    use super::*;
    use testing::point;

    #[test]
    fn soaked_trials_count_for_the_upper_bound_only() {
        let mut point = point(&[4096 * 100, 4096 * 300, 4096 * 200]);
        assert_eq!(point.summary().verdict.state, State::Suspect, "noisy");
        let mut soaked = point.trials[0].clone();
        soaked.soaked = true;
        soaked.soaker_ns = Some(150_000);
        soaked.cpu.process_ns = 90_000;
        point.trials.push(soaked);
        let summary = point.summary();
        assert_eq!(summary.bytes_per_s.value, 4096.0 * 200.0);
        assert_eq!(summary.cpu_lower_ns, Some(1000.0));
        // 60,000 ns were lost and not charged, over 100 requests.
        assert_eq!(summary.cpu_upper_ns, Some(1600.0));
        assert!(point.disturbance().is_some());
    }

    #[test]
    fn a_reason_of_several_trials_is_listed_once() {
        let mut point = point(&[40960, 40960, 40960]);
        for (trial, percent) in point.trials.iter_mut().zip([93.5, 91.0, 8.0]) {
            trial.verdict.add(State::Suspect, format!("others used {percent}%"));
        }
        point.trials[2].verdict.add(State::Suspect, "drift");
        assert_eq!(point.summary().verdict.reasons, ["others used 93.5%", "drift"]);
    }

    #[test]
    fn the_description_of_a_rate_names_its_arrival_process() {
        let mut key = point(&[]).key;
        key.workload.arrival = Arrival::Constant { requests_per_s: 1000.0 };
        assert!(key.describe().contains(" at 1000 requests/s, "), "{}", key.describe());
        key.workload.arrival = Arrival::Poisson { requests_per_s: 1000.0 };
        assert!(key.describe().contains(" at 1000 requests/s (Poisson), "), "{}", key.describe());
    }

    #[test]
    fn the_description_of_a_skewed_load_names_its_distribution() {
        let mut key = point(&[]).key;
        key.workload.threads = 4;
        key.workload.distribution = Distribution::Zipf { theta: 1.2 };
        key.workload.think = Some(Think { pause_ns: 100_000, requests: 1 });
        key.workload.placement = Placement::Interlocked;
        let share = |request_bytes, percent| SizeShare { request_bytes, percent };
        key.workload.request_sizes = vec![share(4096, 60), share(65536, 40)];
        let text = key.describe();
        let words = "read zipf:1.2 4 KiB/60:64 KiB/40, depth 1 x 4 interlocked threads, pauses of";
        assert!(text.starts_with(words), "{text}");
        assert!(key.is_skewed() && key.has_pauses());
    }

    #[test]
    fn the_worst_trial_decides_the_verdict() {
        let mut point = point(&[4096, 4096]);
        point.trials[1].verdict.add(State::Suspect, "drift");
        assert_eq!(point.summary().verdict.state, State::Suspect);
    }
}
