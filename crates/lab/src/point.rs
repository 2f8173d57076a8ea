//! A point (one workload) and its trials (timed executions of the workload).
//!
//! Points and trials are either measured by this process or read from the database (`record.rs`).
//! All results are computed from them, so a stored run gives the same results as when it was
//! measured.

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
    /// There was noise, drift or throttling, or there were too few samples.
    Suspect,
    /// Something other than the requested workload was measured.
    Invalid,
}

impl State {
    /// Returns the name of the state, such as `valid`.
    pub fn word(self) -> &'static str {
        match self {
            State::Valid => "valid",
            State::Suspect => "suspect",
            State::Invalid => "invalid",
        }
    }
}

/// Whether a result can be trusted, and the reasons if it cannot.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// The worst state of all reasons.
    pub state: State,
    /// One sentence per reason.
    pub reasons: Vec<String>,
}

impl Verdict {
    /// Adds a reason, and changes the state to `state` if `state` is worse.
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

    /// Returns the first reason that a check gave.
    pub fn reason(&self, check: Check) -> Option<&str> {
        let is_of_check = |reason: &&String| {
            reason.strip_prefix(check.name()).is_some_and(|text| text.starts_with(": "))
        };
        self.reasons.iter().find(is_of_check).map(String::as_str)
    }

    /// Adds the reasons of another verdict. Of several reasons that differ only in their numbers,
    /// only the first is kept.
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

/// Counts and latencies of either the reads or the writes of a trial.
#[derive(Clone, Debug, Default)]
pub struct Direction {
    /// Number of bytes transferred by these requests.
    pub bytes: u64,
    /// Number of completed requests.
    pub requests: u64,
    /// Latencies (ns).
    pub latency: Histogram,
}

/// Percentiles of the latencies of reads and writes together (ns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentiles {
    /// Median latency.
    pub p50_ns: u64,
    /// 99th percentile of the latencies.
    pub p99_ns: u64,
    /// 99.9th percentile of the latencies.
    pub p99_9_ns: u64,
}

/// Bytes and requests that completed in one interval of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesPoint {
    /// Start of the interval, counted from the start of the measured phase (ns).
    pub start_ns: u64,
    /// Length of the interval (ns).
    pub length_ns: u64,
    /// Number of bytes completed in the interval.
    pub bytes: u64,
    /// Number of requests completed in the interval.
    pub requests: u64,
}

/// One timed execution of a workload.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// Number of the trial within its point.
    pub ordinal: u32,
    /// Start time (ns since 1970).
    pub started_unix_ns: i64,
    /// Whether a soaker ran during the trial. A soaker is a set of processes that use all idle CPU
    /// time (see the crate `cpucost`).
    pub soaked: bool,
    /// Counts and latencies of the reads and of the writes, indexed by [`Op`].
    pub directions: [Direction; 2],
    /// Number of failed requests.
    pub errors: u64,
    /// Number of transfers that were shorter than requested. The rest was transferred by further
    /// requests.
    pub short_transfers: u64,
    /// Length of the trial, including the final flush (ns).
    pub elapsed_ns: u64,
    /// Time from the start of the trial to the completion of the last write, before the final flush
    /// (ns); None without a final flush.
    pub accepted_ns: Option<u64>,
    /// The period in which the queue was full; None if unknown.
    pub full_queue: Option<FullQueue>,
    /// Number of calls that submitted requests.
    pub submit_calls: u64,
    /// Number of calls that collected completions.
    pub reap_calls: u64,
    /// CPU use in the measured phase.
    pub cpu: CpuUsage,
    /// CPU time that the soaker lost to the trial, without the background load (ns); None without a
    /// soaker.
    pub soaker_ns: Option<u64>,
    /// I/O counters of the block device over the trial; None if there is no block device.
    pub device: Option<DeviceCounters>,
    /// Amount of the target's data in the page cache, before and after the target was evicted
    /// (scrub); None if the target was not evicted.
    pub scrub: Option<Scrub>,
    /// Time series of the completed bytes and requests.
    pub series: Vec<SeriesPoint>,
    /// Result of each rank; empty for a trial of one process.
    pub ranks: Vec<RankTrial>,
    /// Stored percentiles of a trial that was read from the database without its histograms; None
    /// for other trials.
    pub percentiles: Option<Percentiles>,
    /// Whether the trial can be trusted.
    pub verdict: Verdict,
    /// Data that are not stored; None for a trial from the database.
    pub live: Option<Box<LiveTrial>>,
}

/// Data of a trial that are not stored in the database and exist only in the process that measured
/// the trial.
#[derive(Clone, Debug, Default)]
pub struct LiveTrial {
    /// Description of the first failed request; None if no request failed.
    pub failure: Option<String>,
    /// Description of the first damaged block; None if no damage was found.
    pub damage: Option<String>,
    /// Kernel features and buffers that the I/O engines used.
    pub setup: Setup,
    /// Number of requests issued again after EAGAIN or EINTR.
    pub retries: u64,
    /// Number of requests that completed within the call that submitted them. Only calls after
    /// which no request was in flight are counted.
    pub at_once: u64,
    /// Number of requests of an open loop that were due but never issued.
    pub never_issued: u64,
    /// Start of the measured phase (ns of the monotonic clock).
    pub start_ns: u64,
    /// All requests of the trial; empty if requests are not logged.
    pub log: Vec<LoggedRequest>,
    /// Number of requests that are missing in `log` because the log was full.
    pub log_lost: u64,
    /// Durations of flushes between writes (ns).
    pub flushes: Histogram,
    /// The resources that the server of a network target used during the trial; None if
    /// `halfpower peer` was not used.
    pub server: Option<ServerUsage>,
    /// Resource use of a simulated system; None for other targets.
    pub account: Option<Account>,
    /// Upper bounds on the rate of a simulated system, the tightest first.
    pub bounds: Vec<Bound>,
    /// Time of each step of a request to a simulated disk, in a model without overlapping steps.
    /// None for other targets.
    pub simple: Option<SimpleModel>,
}

impl Trial {
    /// Returns the description of the first failed request.
    pub fn failure(&self) -> Option<&str> {
        self.live.as_ref()?.failure.as_deref()
    }

    /// Returns all requests of the trial, or an empty slice if requests are not logged.
    pub fn log(&self) -> &[LoggedRequest] {
        self.live.as_ref().map_or(&[], |live| &live.log)
    }

    /// Returns the data that are not stored. If they are None, creates empty data first.
    pub fn live_mut(&mut self) -> &mut LiveTrial {
        self.live.get_or_insert_default()
    }

    /// Returns the intervals that end by `limit_ns`. Requests are issued only until `limit_ns`.
    /// After that, the queue drains and the rate falls. The last interval of the trial is omitted,
    /// because it is incomplete.
    pub fn series_until(&self, limit_ns: Option<u64>) -> &[SeriesPoint] {
        let limit_ns = limit_ns.unwrap_or(u64::MAX);
        let whole = &self.series[..self.series.len().saturating_sub(1)];
        let ends = |point: &SeriesPoint| point.start_ns.saturating_add(point.length_ns);
        &whole[..whole.partition_point(|point| ends(point) <= limit_ns)]
    }

    /// Returns the number of bytes read and written.
    pub fn bytes(&self) -> u64 {
        self.directions.iter().map(|d| d.bytes).fold(0, u64::saturating_add)
    }

    /// Returns the minimum and the maximum number of bytes per rank. In a trial without ranks, both
    /// are the bytes of the trial.
    pub fn bytes_of_a_rank(&self) -> (u64, u64) {
        let present = self.ranks.iter().filter(|rank| rank.lost.is_none());
        let bytes = || present.clone().map(|rank| rank.bytes);
        (bytes().min().unwrap_or(self.bytes()), bytes().max().unwrap_or(self.bytes()))
    }

    /// Returns the number of completed reads and writes.
    pub fn requests(&self) -> u64 {
        self.directions.iter().map(|d| d.requests).fold(0, u64::saturating_add)
    }

    /// Returns the bytes per second while the queue was full. Uses the whole trial if the period
    /// with a full queue is unknown or if the trial ends with a flush.
    pub fn bytes_per_s(&self) -> f64 {
        self.rated().map_or_else(|| self.whole_bytes_per_s(), |full| full.bytes_per_s)
    }

    /// Returns the requests per second, over the same period as [`Trial::bytes_per_s`].
    pub fn requests_per_s(&self) -> f64 {
        self.rated().map_or_else(|| self.whole_requests_per_s(), |full| full.requests_per_s)
    }

    /// Returns the bytes per second over the whole trial, including the times in which the queue
    /// fills and drains.
    pub fn whole_bytes_per_s(&self) -> f64 {
        per_second(self.bytes(), self.elapsed_ns)
    }

    /// Returns the requests per second over the whole trial.
    pub fn whole_requests_per_s(&self) -> f64 {
        per_second(self.requests(), self.elapsed_ns)
    }

    /// Returns the period over which the trial's rates are computed. None: the whole trial.
    fn rated(&self) -> Option<&FullQueue> {
        self.full_queue.as_ref().filter(|_| self.accepted_ns.is_none())
    }

    /// Returns the relative uncertainty of the rate, which is half a request divided by the number
    /// of requests, because only whole requests are counted. Returns 0 if the rate covers the whole
    /// trial.
    fn resolution(&self) -> f64 {
        self.rated().map_or(0.0, |full| 0.5 / full.requests().max(1.0))
    }

    /// Returns the latencies of reads and writes together.
    pub fn latency(&self) -> Histogram {
        let mut all = self.directions[0].latency.clone();
        all.merge(&self.directions[1].latency);
        all
    }

    /// Returns, per request, the CPU time that the soaker lost minus the CPU time charged to the
    /// process (ns, at least 0). The result includes the calibration error of the soaker. None
    /// without a soaker or without requests.
    pub fn uncharged_ns(&self) -> Option<f64> {
        self.per_request(self.soaker_ns?.saturating_sub(self.cpu.process_ns))
    }

    fn per_request(&self, ns: u64) -> Option<f64> {
        let requests = self.requests();
        (requests > 0).then(|| ns as f64 / requests as f64)
    }
}

fn per_second(count: u64, elapsed_ns: u64) -> f64 {
    if elapsed_ns == 0 { 0.0 } else { count as f64 * 1e9 / elapsed_ns as f64 }
}

/// Maximum half-width of a rate's confidence interval, as a share of the rate. A rate with a wider
/// interval is noisy.
const NOISY: f64 = 0.15;

/// Minimum number of requests of all trials together. A point with fewer requests is suspect.
const REQUESTS_MIN: u64 = 5;

/// Reason in the verdict of a point that has only one trial.
pub const ONE_TRIAL: &str = "one trial does not show the scatter between trials; use --trials 3";

/// One workload with its trials.
#[derive(Clone, Debug)]
pub struct Point {
    /// The workload that was measured, with its targets and their preparation.
    pub key: PointKey,
    /// The trials, in the order of execution.
    pub trials: Vec<Trial>,
}

/// Results of a point. Rates and latencies are those of [`Point::unsoaked`].
#[derive(Clone, Debug)]
pub struct Summary {
    /// Median throughput of the trials, with its confidence interval (bytes per second).
    pub bytes_per_s: Interval,
    /// Median request rate of the trials, with its confidence interval (requests per second).
    pub requests_per_s: Interval,
    /// Latencies of the requests of all trials (ns).
    pub latency: Histogram,
    /// Lower bound of the CPU time per request: the time charged to the process (ns).
    pub cpu_lower_ns: Option<f64>,
    /// Upper bound of the CPU time per request (ns); None if it was not measured.
    pub cpu_upper_ns: Option<f64>,
    /// Verdict over all trials.
    pub verdict: Verdict,
}

impl Point {
    /// Returns the trials without a soaker. Rates and latencies are computed from these trials,
    /// because a soaker disturbs a trial. Returns all trials if all of them ran with a soaker.
    pub fn unsoaked(&self) -> Vec<&Trial> {
        let plain: Vec<&Trial> = self.trials.iter().filter(|t| !t.soaked).collect();
        if plain.is_empty() { self.trials.iter().collect() } else { plain }
    }

    /// Returns the median of a rate over the trials without a soaker, with its confidence interval.
    fn interval(&self, of: impl Fn(&Trial) -> f64) -> Interval {
        let values: Vec<f64> = self.unsoaked().into_iter().map(of).collect();
        let interval = median_interval(&values, CONFIDENCE);
        let Interval { value, low, high } = interval.unwrap_or(Interval::exact(0.0));
        let resolution = self.unsoaked().into_iter().map(Trial::resolution).fold(0.0, f64::max);
        Interval { value, low: low * (1.0 - resolution), high: high * (1.0 + resolution) }
    }

    /// Returns false for simulations and for the I/O engine `null`, which perform no real I/O.
    fn is_real(&self) -> bool {
        !self.key.is_simulated && self.key.ioengine() != "null"
    }

    /// Returns the median throughput with its confidence interval (bytes per second).
    pub fn bytes_per_s(&self) -> Interval {
        self.interval(Trial::bytes_per_s)
    }

    /// Returns the latencies of all trials without a soaker (ns). `op` selects reads or writes;
    /// None selects both.
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

    /// Returns the CPU time per request that was charged to the process (ns). This is the median of
    /// the trials without a soaker.
    pub fn cpu_lower_ns(&self) -> Option<f64> {
        let plain = self.unsoaked();
        let costs: Vec<f64> =
            plain.iter().filter_map(|t| t.per_request(t.cpu.process_ns)).collect();
        median(&costs)
    }

    /// Returns the upper bound of the CPU time per request (ns). This is the sum of two times. The
    /// first is the time charged to the process, from trials without a soaker. The second is the
    /// uncharged time of kernel threads and interrupts, from trials with a soaker. For the
    /// uncharged time, the upper end of the confidence interval of the median is used. Returns None
    /// if no trial had a soaker.
    ///
    /// A simulated host runs nothing but the workload, so the bound is the busy time of the host.
    pub fn cpu_upper_ns(&self) -> Option<f64> {
        if self.key.is_simulated {
            let busy = self.trials.iter().filter_map(|t| t.per_request(t.cpu.machine_ns?));
            return median(&busy.collect::<Vec<f64>>());
        }
        let uncharged: Vec<f64> = self.trials.iter().filter_map(Trial::uncharged_ns).collect();
        let uncharged = median_interval(&uncharged, CONFIDENCE)?;
        Some(self.cpu_lower_ns()? + uncharged.high)
    }

    /// Returns two ratios that show how much a soaker disturbs a trial: the rate with a soaker
    /// divided by the rate without one, and the same for the CPU time charged to the process.
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

    /// Returns the verdict over all trials. The rate is noisy if the half-width of its confidence
    /// interval exceeds `noisy` times the rate.
    pub fn verdict(&self, noisy: f64) -> Verdict {
        self.verdict_on(&self.bytes_per_s(), noisy)
    }

    /// Returns the rate with its confidence interval (bytes per second), and the verdict with the
    /// default limit on noise.
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
                "all trials together have only {requests}; use a longer --runtime or a larger \
                 --size"
            );
            verdict.flag(State::Suspect, Check::FewRequests, text);
        }
        if self.unsoaked().len() == 1 && self.is_real() {
            verdict.flag(State::Suspect, Check::OneTrial, ONE_TRIAL);
        }
        verdict
    }

    /// Returns the results of the point. The verdict uses the default limit on noise.
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

    /// Returns a point of reads. Trial `i` reads `bytes[i]` bytes in one second.
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
        // The soaker lost 150,000 ns, but only 90,000 ns were charged to the process. The
        // difference is 600 ns for each of the 100 requests.
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
