//! Checks whether a trial measured what was intended.
//!
//! A trial is invalid if it measured the wrong thing. It is suspect if there was noise or drift, or
//! if there were too few requests. The reasons contain the numbers with which a user can check
//! them.

mod health;

mod series;

use analysis::littles_law;
use analysis::units;
use ioengine::cgroup::IoLimit;
use ioengine::clock::Disagreement;
use ioengine::device::DeviceCounters;
use ioengine::target::Coverage;
use ioengine::{Caching, EngineKind};
use workload::{Arrival, Pattern};

use crate::check::Check;
use crate::point::{State, Trial, Verdict};
use crate::point_key::PointKey;

pub use health::DriveHealth;
use health::check_drive_health;
pub use series::fall;
use series::{check_series, check_stall};

/// The conditions under which a trial ran.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// How much of the target is holes or unwritten blocks. None if unknown.
    pub coverage: Option<Coverage>,
    /// Size of the target (bytes).
    pub target_bytes: u64,
    /// Maximum size of the page cache (bytes). None if unknown.
    pub page_cache_bytes: Option<u64>,
    /// I/O during the trial on the devices that store the image files of the target's loop devices.
    /// None without loop devices.
    pub beneath_images: Option<DeviceCounters>,
    /// Number of bytes in the page cache that all programs together made dirty during the trial.
    /// None if unknown.
    pub dirtied_bytes: Option<u64>,
    /// Name of a loop device whose image file is accessed through the page cache and is stored on a
    /// device without I/O counters. None if there is no such loop device.
    pub unseen_image: Option<String>,
    /// Whether the target is in memory, such as on tmpfs.
    pub in_memory: bool,
    /// Whether the user intends to read holes (`--allow-holes`).
    pub allow_holes: bool,
    /// Whether reads must come from the device, because the page cache was scrubbed or is bypassed.
    pub cold: bool,
    /// Whether the block device of the target has I/O counters.
    pub counted: bool,
    /// Number of CPUs that the process may use.
    pub cpus: u32,
    /// How long a CPU quota throttled the trial. None without a quota.
    pub throttled: Option<Throttled>,
    /// The control group's I/O limit for the target's device. None if there is no limit, or if
    /// there are several targets.
    pub io_limit: Option<IoLimit>,
    /// The health of the NVMe drives below the targets.
    pub drives: Vec<DriveHealth>,
    /// Whether the rate became steady. None without `--steady-state`.
    pub became_steady: Option<bool>,
    /// How far the clocks of the machine diverged during the trial.
    pub clocks: Disagreement,
    /// The highest percentile that is reported.
    pub tail: Tail,
    /// Whether the trial was interrupted.
    pub interrupted: bool,
    /// Whether the trial is long enough to be checked for drift and for too few requests.
    pub long_trial: bool,
}

/// A CPU quota and the time for which it throttled threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttled {
    /// The quota of the control group in CPUs, such as 0.2.
    pub cpus: f64,
    /// Time for which the process's threads were throttled (ns).
    pub waited_ns: u64,
}

impl Throttled {
    /// Returns the share of `elapsed_ns` for which threads were throttled. None if the share is too
    /// small to matter (at most 2%).
    pub fn felt_share(&self, elapsed_ns: u64) -> Option<f64> {
        let share = (self.waited_ns as f64 / elapsed_ns.max(1) as f64).min(1.0);
        (share > THROTTLED_SHARE_MAX).then_some(share)
    }
}

/// The highest percentile that is reported, and the number of trials it is computed from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// The percentile, such as 99.9.
    pub percentile: f64,
    /// Number of trials whose latencies are merged.
    pub trials: u32,
    /// Whether the user requested this percentile. If so, short trials are also checked for too few
    /// requests.
    pub asked: bool,
}

impl Default for Tail {
    /// Selects the 99th percentile, computed from one trial. Every result line shows this
    /// percentile.
    fn default() -> Self {
        Tail { percentile: 99.0, trials: 1, asked: false }
    }
}

impl Tail {
    /// Returns the minimum number of requests per trial. All trials together then have at least ten
    /// requests that are slower than the percentile.
    fn requests_min(&self) -> u64 {
        let all = BEYOND_MIN * 100.0 / (100.0 - self.percentile);
        (all / f64::from(self.trials.max(1)) - 1e-6).ceil() as u64
    }
}

/// If the device read less than this share of the requested bytes, a cache served the rest.
const DEVICE_SHARE_MIN: f64 = 0.9;
/// Maximum amount of data that may remain in the page cache after a scrub, as a share of the bytes
/// that the trial read.
const RESIDENT_SHARE_MAX: f64 = 0.01;
/// If a trial read more than this multiple of the region size, it read blocks repeatedly.
const REVISITED_MIN: f64 = 1.1;
/// Minimum share of the requested rate that an open loop must deliver.
const RATE_SHARE_MIN: f64 = 0.95;
/// If the trial's threads use more than this share of their CPUs, the CPUs may limit the rate.
const GENERATOR_SHARE_MAX: f64 = 0.9;
/// Minimum length of a trial whose queue depth is checked (ns).
const DEPTH_TRIAL_NS: u64 = 50_000_000;
/// Minimum number of requests that must be slower than a reported percentile.
const BEYOND_MIN: f64 = 10.0;
/// Maximum difference between the measuring clock and the system clock, as a share of the trial.
const APART_SHARE_MAX: f64 = 1e-3;
/// Clock difference that is always accepted, because reading several clocks takes time (ns).
const APART_MIN_NS: u64 = 100_000;
/// A trial is suspect if the machine was suspended for more than this time (ns). Shorter times come
/// from inaccurate clocks.
const ASLEEP_MIN_NS: i64 = 1_000_000;
/// If the wall clock deviates from the monotonic clock by more than this time, the wall clock was
/// set (ns). A smaller deviation comes from slewing.
const WALL_MIN_NS: u64 = 1_000_000_000;
/// Maximum I/O on the device in addition to the requested bytes, as a share of the requested bytes.
const EXTRA_SHARE_MAX: f64 = 0.1;
/// Additional I/O on the device that is always accepted, because of file system metadata (bytes).
const EXTRA_MIN_BYTES: u64 = 1 << 20;
/// How far the kernel may read ahead for each thread of buffered sequential reads (bytes).
const READ_AHEAD_BYTES: u64 = 16 << 20;
/// Maximum user time of other processes, as a share of the time of all CPUs.
const OTHERS_SHARE_MAX: f64 = 0.2;
/// Maximum steal time, as a share of the time of all CPUs.
const STOLEN_SHARE_MAX: f64 = 0.02;
/// A trial that moved fewer bytes than this is not checked for requests that were served from
/// memory.
const MEMORY_MIN_BYTES: u64 = 4 << 20;
/// A trial counts as served from memory in two cases: storage transferred less than this share of
/// the trial's bytes, or more than this share of the written bytes went through the page cache.
const MEMORY_SHARE_MAX: f64 = 0.5;
/// Maximum time that a CPU quota may throttle threads, as a share of the trial.
const THROTTLED_SHARE_MAX: f64 = 0.02;
/// Minimum length of a trial whose CPU use is checked (ns). For shorter trials, the clock tick of
/// the kernel's CPU accounting is too coarse.
const LOAD_TRIAL_NS: u64 = 200_000_000;
/// If the rate exceeds this share of the control group's I/O limit, the limit determines the rate.
const IO_LIMIT_SHARE: f64 = 0.9;
/// Maximum share of a trial that threads may spend waiting for a CPU.
const RUN_DELAY_SHARE_MAX: f64 = 0.2;
/// Minimum number of requests that must be due in a trial of an open loop.
const REQUESTS_MIN: f64 = 3.0;
/// Maximum share of requests that may complete inside the submit call.
const AT_ONCE_SHARE_MAX: f64 = 0.5;
/// Maximum share of requests that a server may answer with "try again later".
const BUSY_SHARE_MAX: f64 = 1e-3;
/// Maximum request size (bytes) for which huge pages are not checked. Requests up to this size need
/// few memory segments, even on 4 KiB pages.
const SEGMENT_BYTES: u64 = 256 << 10;

/// Runs all checks on one trial.
pub fn judge(key: &PointKey, trial: &Trial, around: &Circumstances) -> Verdict {
    let mut verdict = Verdict::default();
    if around.interrupted {
        verdict.flag(State::Suspect, Check::Interrupted, "interrupted before its end");
    }
    check_clocks(around, &mut verdict);
    if around.became_steady == Some(false) {
        verdict.flag(State::Suspect, Check::Steady, "the rate did not become steady");
    }
    if trial.errors > 0 {
        verdict.flag(
            State::Invalid,
            Check::FailedRequests,
            format!("{} requests failed", trial.errors),
        );
    }
    if trial.requests() == 0 {
        verdict.flag(State::Invalid, Check::NoRequests, "no request completed");
        return verdict;
    }
    if key.is_issued_by(EngineKind::Null) {
        return verdict;
    }
    if key.is_simulated {
        // A simulated system has no outside load, and its caches are part of the experiment. The
        // checks of outside load and caches are therefore left out.
        check_depth(key, trial, &mut verdict);
        check_rate(key, trial, &mut verdict);
        if around.long_trial {
            check_series(key, trial, &mut verdict);
        }
        if around.tail.asked {
            check_tail(trial, around.tail, &mut verdict);
        }
        return verdict;
    }
    // An in-process reference device has no stored blocks and no page cache, and it busy-waits. The
    // checks of the device, of memory and of the CPU use of the threads are therefore left out.
    let real = !key.is_issued_by(EngineKind::Delay);
    if real {
        check_holes(key, around, &mut verdict);
        check_device(key, trial, around, &mut verdict);
        check_memory(key, trial, around, &mut verdict);
        check_pages(key, trial, &mut verdict);
        check_device_load(key, trial, around, &mut verdict);
        check_drive_health(&around.drives, &mut verdict);
    }
    check_depth(key, trial, &mut verdict);
    if real {
        check_at_once(key, trial, around, &mut verdict);
    }
    check_rate(key, trial, &mut verdict);
    check_busy(key, trial, &mut verdict);
    check_host_load(trial, &mut verdict);
    check_run_delay(key, trial, around, &mut verdict);
    check_throttling(trial, around, &mut verdict);
    check_io_limit(trial, around, &mut verdict);
    check_stall(key, trial, &mut verdict);
    let revisits = real && check_revisits(key, trial, around, &mut verdict);
    if around.long_trial && !revisits {
        check_series(key, trial, &mut verdict);
    }
    if around.long_trial && real {
        check_generator(key, trial, around, &mut verdict);
    }
    if around.long_trial || around.tail.asked {
        check_tail(trial, around.tail, &mut verdict);
    }
    verdict
}

/// Checks whether the machine was suspended, the wall clock was set, or the measuring clock
/// disagrees with the system clock.
fn check_clocks(around: &Circumstances, verdict: &mut Verdict) {
    let Disagreement { elapsed_ns, ours_ns, asleep_ns, wall_ns } = around.clocks;
    let allowed_ns = (elapsed_ns as f64 * APART_SHARE_MAX) as u64;
    let signed = |ns: i64| {
        let sign = if ns < 0 { '-' } else { '+' };
        format!("{sign}{}", units::time(ns.unsigned_abs() as f64))
    };
    if ours_ns.unsigned_abs() > allowed_ns.max(APART_MIN_NS) {
        let (off, of) = (signed(ours_ns), units::time(elapsed_ns as f64));
        let text = format!("the measuring clock deviated from the system clock by {off} in {of}");
        verdict.flag(State::Suspect, Check::Clock, text);
    }
    if asleep_ns > ASLEEP_MIN_NS {
        let asleep = units::time(asleep_ns as f64);
        let text = format!("the machine was suspended for {asleep} during the trial");
        verdict.flag(State::Suspect, Check::Suspended, text);
    }
    if wall_ns.unsigned_abs() > WALL_MIN_NS {
        let text = format!(
            "the wall clock was changed by {} during the trial; only the recorded date is wrong",
            signed(wall_ns)
        );
        verdict.flag(State::Suspect, Check::WallClock, text);
    }
}

fn check_holes(key: &PointKey, around: &Circumstances, verdict: &mut Verdict) {
    let Some(coverage) = around.coverage.filter(|_| !around.allow_holes) else { return };
    let empty = coverage.hole_bytes + coverage.unwritten_bytes;
    if key.read_percent() > 0 && empty > 0 {
        let share = 100.0 * empty as f64 / around.target_bytes.max(1) as f64;
        let text = format!(
            "{share:.1}% of the target are holes or unwritten blocks ({}), which are read without \
             reaching the device; write the target first, or use --allow-holes",
            units::size(empty)
        );
        verdict.flag(State::Invalid, Check::Holes, text);
    }
}

/// If the page cache was scrubbed or is bypassed, checks that the reads reached the device.
fn check_device(key: &PointKey, trial: &Trial, around: &Circumstances, verdict: &mut Verdict) {
    let read = trial.directions[0].bytes;
    let left = trial.scrub.and_then(|scrub| scrub.resident_after_bytes).unwrap_or(0);
    if left as f64 > read as f64 * RESIDENT_SHARE_MAX {
        let left = units::size(left);
        verdict.flag(
            State::Invalid,
            Check::CacheHits,
            format!(
                "{left} stayed in the page cache when the target was dropped from the cache; stop \
                 the program that maps or locks the file, or use --direct"
            ),
        );
    }
    // Skewed buffered reads hit the page cache by design, so they are not checked.
    let cold = around.cold && (key.is_direct() || !key.reads_again());
    let Some(device) = trial.device.filter(|_| around.counted && cold) else { return };
    let seen = device.read_sectors * 512;
    if key.read_percent() > 0
        && !around.allow_holes
        && (seen as f64) < read as f64 * DEVICE_SHARE_MIN
    {
        let text = format!(
            "the device read {} of the {} requested: the rest came from a cache{}",
            units::size(seen),
            units::size(read),
            device_remedy(key, read, around)
        );
        verdict.flag(State::Invalid, Check::CacheHits, text);
    }
}

/// Returns the remedy for buffered reads that did not reach the device. Empty for direct reads,
/// because no remedy works for all caches that can serve them.
fn device_remedy(key: &PointKey, read_bytes: u64, around: &Circumstances) -> String {
    let region = around.target_bytes;
    if key.is_direct() {
        String::new()
    } else if region > 0 && read_bytes as f64 > region as f64 * REVISITED_MIN {
        format!(
            "; the region of {} was read {:.1} times: use a larger --size, specify --size but not \
             --runtime (the region is then read only once), or use --direct",
            units::size(region),
            read_bytes as f64 / region as f64
        )
    } else {
        "; use a larger --size, or --direct".to_owned()
    }
}

/// Checks whether buffered reads wrapped around their region, so that later reads came from the
/// page cache. Returns true if the reads wrapped around. Returns false without a check if the trial
/// may read from the page cache, or if `--allow-holes` was specified. Also returns false if the
/// page cache cannot hold the region, or if the device has I/O counters, which show cache hits
/// directly.
fn check_revisits(
    key: &PointKey,
    trial: &Trial,
    around: &Circumstances,
    verdict: &mut Verdict,
) -> bool {
    let read = trial.directions[0].bytes;
    let region = around.target_bytes as f64;
    let again = region > 0.0 && read as f64 > region * REVISITED_MIN;
    let held = around.page_cache_bytes.is_none_or(|bytes| around.target_bytes < bytes);
    let buffered = !key.is_direct() && around.cold && !key.reads_again();
    let revisits = buffered && again && held && !around.counted && !around.allow_holes;
    if revisits {
        let text = format!(
            "{} were read from a region of {}: repeated reads come from the page cache; use a \
             larger --size, or specify --size but not --runtime (the region is then read only \
             once)",
            units::size(read),
            units::size(around.target_bytes)
        );
        verdict.flag(State::Invalid, Check::CacheHits, text);
    }
    revisits
}

/// Checks for I/O of other programs on the device. I/O that the system adds to the requests is not
/// reported. For buffered requests, the system adds read-ahead and rounds requests to whole pages.
/// For durable writes and growing files, the system adds writes of the journal.
fn check_device_load(key: &PointKey, trial: &Trial, around: &Circumstances, verdict: &mut Verdict) {
    let Some(device) = trial.device.filter(|_| around.counted) else { return };
    let [reads, writes] = [0, 1].map(|op: usize| trial.directions[op].bytes);
    let only_reads = key.read_percent() == 100;
    let ahead = match (key.is_direct(), only_reads && key.workload.pattern == Pattern::Sequential) {
        (true, _) => Some(0),
        (false, true) => Some(READ_AHEAD_BYTES * u64::from(key.threads())),
        (false, false) => None,
    };
    let quiet = key.caching == Caching::Direct && !key.makes_durable() && !around.allow_holes;
    let writes_known = only_reads || quiet;
    let read = ahead.map_or(0, |ahead| (device.read_sectors * 512).saturating_sub(reads + ahead));
    let written =
        if writes_known { (device.write_sectors * 512).saturating_sub(writes) } else { 0 };
    let asked = reads + writes;
    if read + written > EXTRA_MIN_BYTES.max((asked as f64 * EXTRA_SHARE_MAX) as u64) {
        let text = format!(
            "other programs used the device: {} read and {} written, in addition to the {} of this \
             trial",
            units::size(read),
            units::size(written),
            units::size(asked)
        );
        verdict.flag(State::Suspect, Check::OtherIo, text);
    }
}

/// Checks whether the server asked the client to wait. The requests were then sent again after
/// pauses, and their latencies include the pauses.
fn check_busy(key: &PointKey, trial: &Trial, verdict: &mut Verdict) {
    let retries = trial.live.as_ref().map_or(0, |live| live.retries);
    let allowed = trial.requests() as f64 * BUSY_SHARE_MAX;
    if key.is_issued_by(EngineKind::Network) && retries as f64 > allowed {
        let text = format!(
            "the server was too busy and asked to wait {retries} times: the requests were sent \
             again after pauses; use a smaller --iodepth or --numjobs, or raise the server's \
             request limit"
        );
        verdict.flag(State::Suspect, Check::ServerBusy, text);
    }
}

/// Checks the CPU use of other programs, and the steal time. Only the user time of other processes
/// counts as the CPU use of other programs. System time is left out, because kernel threads that
/// serve the requests of the trial use system time.
fn check_host_load(trial: &Trial, verdict: &mut Verdict) {
    if trial.soaked || trial.elapsed_ns < LOAD_TRIAL_NS {
        return;
    }
    let share = |ns: Option<u64>| ns.unwrap_or(0) as f64 / trial.cpu.available_ns.max(1) as f64;
    let (others, stolen) = (share(trial.cpu.others_user_ns), share(trial.cpu.stolen_ns));
    if others > OTHERS_SHARE_MAX {
        let text = format!("other programs used {:.0}% of the machine's CPUs", others * 100.0);
        verdict.flag(State::Suspect, Check::OtherCpu, text);
    }
    if stolen > STOLEN_SHARE_MAX {
        let text = format!("the hypervisor took {:.1}% of the CPU time (steal)", stolen * 100.0);
        verdict.flag(State::Suspect, Check::Steal, text);
    }
}

/// Checks how long runnable threads waited because another program used their CPU. This is not
/// checked if there are more threads than CPUs, because the threads then wait for each other.
fn check_run_delay(key: &PointKey, trial: &Trial, around: &Circumstances, verdict: &mut Verdict) {
    let pool = if key.is_issued_by(EngineKind::Threads) { key.depth() } else { 1 };
    let threads = key.threads().saturating_mul(pool).max(1);
    if trial.soaked || trial.elapsed_ns < LOAD_TRIAL_NS || threads > around.cpus {
        return;
    }
    let Some(waited_ns) = trial.cpu.run_delay_ns else { return };
    let share = waited_ns as f64 / (trial.elapsed_ns as f64 * f64::from(threads));
    if share > RUN_DELAY_SHARE_MAX {
        let text = format!(
            "the threads waited for a CPU for {:.0}% of the trial while another program used \
             that CPU; stop that program, or choose other CPUs (--cpus-allowed)",
            share.min(1.0) * 100.0
        );
        verdict.flag(State::Suspect, Check::CpuWait, text);
    }
}

/// Checks whether the I/O limit of the control group determined the rate.
fn check_io_limit(trial: &Trial, around: &Circumstances, verdict: &mut Verdict) {
    let Some(limit) = &around.io_limit else { return };
    let seconds = trial.elapsed_ns as f64 / 1e9;
    let bytes = [limit.read_bytes_per_s, limit.write_bytes_per_s];
    let requests = [limit.reads_per_s, limit.writes_per_s];
    for (index, name) in ["reads", "writes"].into_iter().enumerate() {
        let direction = &trial.directions[index];
        let reaches = |moved: u64, limit: &Option<u64>| {
            limit.filter(|limit| moved as f64 >= IO_LIMIT_SHARE * *limit as f64 * seconds)
        };
        let allowed = match reaches(direction.bytes, &bytes[index]) {
            Some(bytes) => Some(units::rate_mb(bytes as f64)),
            None => reaches(direction.requests, &requests[index])
                .map(|requests| format!("{}/s", units::count(requests as f64))),
        };
        if let Some(allowed) = allowed.filter(|_| direction.requests > 0) {
            let text = format!(
                "the control group limits {name} to {allowed} (io.max, blkio.throttle): the trial \
                 measured this limit, not the device"
            );
            verdict.flag(State::Suspect, Check::IoLimit, text);
        }
    }
}

/// Checks whether the CPU quota of the control group limited the rate.
fn check_throttling(trial: &Trial, around: &Circumstances, verdict: &mut Verdict) {
    let Some(throttled) = around.throttled else { return };
    if let Some(share) = throttled.felt_share(trial.elapsed_ns) {
        let text = format!(
            "the CPU quota of the control group ({:.2} CPUs) held the program back for {:.0}% of \
             the trial; raise cpu.max",
            throttled.cpus,
            share * 100.0
        );
        verdict.flag(State::Suspect, Check::CpuQuota, text);
    }
}

/// Checks that a trial has enough requests for the percentile to be meaningful.
fn check_tail(trial: &Trial, tail: Tail, verdict: &mut Verdict) {
    let (requests, least) = (trial.requests(), tail.requests_min());
    if requests < least {
        let text = format!(
            "a trial had only {requests} requests; percentile {} needs {least}",
            tail.percentile
        );
        verdict.flag(State::Suspect, Check::FewRequests, text);
    }
}

/// Checks for requests that completed inside the submit call and so were never in flight together.
/// Little's law does not show this, because the requests of a batch have the same timestamps.
fn check_at_once(key: &PointKey, trial: &Trial, around: &Circumstances, verdict: &mut Verdict) {
    let Some(live) = trial.live.as_ref().filter(|_| !key.is_replay()) else { return };
    let share = live.at_once as f64 / trial.requests().max(1) as f64;
    // The replies of a server can arrive in one batch, so network targets are not checked.
    let closed = key.requests_per_s().is_none() && !key.is_issued_by(EngineKind::Network);
    if closed && key.depth() > 1 && share > AT_ONCE_SHARE_MAX && !around.allow_holes {
        let text = format!(
            "{:.0}% of the requests completed inside the submit call: the depth of {} was not \
             reached, and each latency is that of a whole batch of requests",
            share * 100.0,
            key.depth()
        );
        verdict.flag(State::Suspect, Check::Batched, text);
    }
}

/// Checks the queue depth with Little's law: the mean number of requests in flight is the rate
/// times the mean latency.
fn check_depth(key: &PointKey, trial: &Trial, verdict: &mut Verdict) {
    let Some((outstanding, mean)) = key.outstanding().zip(trial.latency().mean()) else { return };
    // No requests are in flight during a flush, so the time of the flushes is subtracted.
    let flushed = trial
        .live
        .as_ref()
        .map_or(0.0, |live| live.flushes.mean().unwrap_or(0.0) * live.flushes.count() as f64);
    let flushed = (flushed / f64::from(key.threads().max(1))) as u64;
    let elapsed = trial.accepted_ns.unwrap_or(trial.elapsed_ns).saturating_sub(flushed).max(1);
    let rate = trial.requests() as f64 * 1e9 / elapsed as f64;
    let check = littles_law::check(rate, mean, outstanding);
    // In a short trial, filling and draining the queue takes too large a share of the time.
    let enough = trial.requests() >= 20 * outstanding && elapsed >= DEPTH_TRIAL_NS;
    if enough && outstanding > 1 && check.share_of_depth < 0.5 {
        let text = format!(
            "{:.1} requests were in flight on average, not {outstanding} as requested",
            check.mean_in_flight
        );
        verdict.flag(State::Invalid, Check::DepthMissed, text);
    }
}

/// Checks whether an open loop kept up with the requested rate. If it did not, the trial measured
/// the backlog.
fn check_rate(key: &PointKey, trial: &Trial, verdict: &mut Verdict) {
    let Some(asked) = key.requests_per_s() else { return };
    let due = asked * trial.elapsed_ns as f64 / 1e9;
    // The number of Poisson arrivals may deviate by three standard deviations.
    let is_poisson = matches!(key.workload.arrival, Arrival::Poisson { .. });
    let chance = if is_poisson { 3.0 * due.sqrt() } else { 0.0 };
    if due >= 20.0 && (trial.requests() as f64) < due * RATE_SHARE_MIN - chance {
        let delivered = units::count(trial.requests_per_s());
        let text = format!(
            "{delivered} requests/s were delivered of the {} requested; raise --iodepth or \
             --numjobs, or lower --rate-iops",
            units::count(asked)
        );
        verdict.flag(State::Suspect, Check::RateMissed, text);
    } else if due < REQUESTS_MIN {
        let text = format!(
            "at {} requests/s, only {due:.2} requests are due in a trial; use a longer --runtime",
            units::count(asked)
        );
        verdict.flag(State::Suspect, Check::RateMissed, text);
    }
    let never_issued = trial.live.as_ref().map_or(0, |live| live.never_issued);
    if never_issued > 0 {
        let text = format!(
            "{} requests were due and never issued: the backlog of requests at the end of the \
             trial was too long",
            units::count(never_issued as f64)
        );
        verdict.flag(State::Suspect, Check::RateMissed, text);
    }
}

/// Checks for direct requests that were served from memory: on tmpfs, on a file system that falls
/// back to the page cache (btrfs for checksummed data), or on a loop device whose image is cached.
fn check_memory(key: &PointKey, trial: &Trial, around: &Circumstances, verdict: &mut Verdict) {
    if around.in_memory {
        verdict.flag(
            State::Suspect,
            Check::InMemory,
            "the target lies in memory (tmpfs): no storage was measured",
        );
        return;
    }
    let [read, written] = [0, 1].map(|direction| trial.directions[direction].bytes);
    if !key.is_direct() || read + written < MEMORY_MIN_BYTES {
        return;
    }
    if let Some(beneath) = around.beneath_images {
        let moved = (beneath.read_sectors + beneath.write_sectors) * 512;
        if (moved as f64) < (read + written) as f64 * MEMORY_SHARE_MAX {
            let (moved, asked) = (units::size(moved), units::size(read + written));
            let text = format!(
                "the image of the loop device is in the page cache: the device that stores the \
                 image transferred only {moved} of the {asked} requested; attach the image with \
                 losetup --direct-io=on"
            );
            verdict.flag(State::Suspect, Check::InMemory, text);
            return;
        }
    }
    if let Some(name) = &around.unseen_image {
        let text = format!(
            "{name} reads and writes its image through the page cache, and the storage below the \
             image has no I/O counters that show how much data reached the storage; attach the \
             image with losetup --direct-io=on"
        );
        verdict.flag(State::Suspect, Check::InMemory, text);
        return;
    }
    // For a network target, dirty pages are ignored: the client does not cache the target, and a
    // server on this host can make pages dirty.
    let is_here = !key.is_issued_by(EngineKind::Network);
    let dirtied = around.dirtied_bytes.filter(|_| is_here).unwrap_or(0);
    if written > MEMORY_MIN_BYTES && dirtied as f64 > written as f64 * MEMORY_SHARE_MAX {
        let (dirtied, written) = (units::size(dirtied), units::size(written));
        let text = format!(
            "direct writes went through the page cache: {dirtied} of page cache became dirty while \
             the trial wrote {written}; either the file system cannot bypass the page cache (btrfs \
             with checksums), or other programs wrote"
        );
        verdict.flag(State::Suspect, Check::InMemory, text);
    }
}

/// Checks whether huge pages were requested but unavailable. On 4 KiB pages, large requests can
/// exceed the device's segment limit.
fn check_pages(key: &PointKey, trial: &Trial, verdict: &mut Verdict) {
    let Some(live) = &trial.live else { return };
    let (got, wanted) = (live.setup.huge_bytes, live.setup.buffer_bytes);
    let asked = key.is_direct() && !key.has_small_pages() && key.request_bytes() > SEGMENT_BYTES;
    if asked && wanted > 0 && got < wanted / 2 {
        let (got, wanted) = (units::size(got), units::size(wanted));
        let text = format!(
            "only {got} of the {wanted} of buffers lie on huge pages; enable transparent huge \
             pages (madvise), or use --buffer-pages 4k if this is intended"
        );
        verdict.flag(State::Suspect, Check::SmallPages, text);
    }
}

fn check_generator(key: &PointKey, trial: &Trial, around: &Circumstances, verdict: &mut Verdict) {
    if key.polls() || key.is_replay() {
        // High CPU use is normal: polling uses a whole CPU, and replays busy-wait in short pauses.
        return;
    }
    let pool = if key.is_issued_by(EngineKind::Threads) { key.depth() } else { 1 };
    let cpus = key.threads().saturating_mul(pool).min(around.cpus.max(1));
    let available = trial.elapsed_ns as f64 * f64::from(cpus);
    let share = trial.cpu.process_ns as f64 / available.max(1.0);
    if share > GENERATOR_SHARE_MAX && key.is_direct() && !around.allow_holes {
        let text = format!(
            "the threads used {:.0}% of their CPUs: the CPU may be the limit, not the device; try \
             a larger --numjobs or --bs",
            share * 100.0
        );
        verdict.flag(State::Suspect, Check::CpuBound, text);
    }
}

/// Returns true if reads must reach the device, because they are direct or the page cache was
/// scrubbed.
pub fn is_cold(caching: Caching, scrubbed: bool) -> bool {
    caching.is_direct() || scrubbed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::SeriesPoint;
    use crate::point::testing::point;
    use ioengine::target::{DeviceCounters, Scrub};
    use workload::{FlushEvery, Workload};

    fn judged(change: impl FnOnce(&mut Trial, &mut Circumstances)) -> Verdict {
        judged_as(|_| {}, change)
    }

    fn judged_as(
        rename: impl FnOnce(&mut PointKey),
        change: impl FnOnce(&mut Trial, &mut Circumstances),
    ) -> Verdict {
        let mut key = point(&[4096 * 1000]).key;
        rename(&mut key);
        let mut trial = point(&[4096 * 1000]).trials.remove(0);
        let mut around =
            Circumstances { cold: true, counted: true, long_trial: true, ..Default::default() };
        trial.directions[0].latency.record_n(1_000_000, 1000);
        trial.device =
            Some(DeviceCounters { reads: 1000, read_sectors: 8000, ..Default::default() });
        change(&mut trial, &mut around);
        judge(&key, &trial, &around)
    }

    #[test]
    fn time_in_flushes_is_time_without_requests() {
        // The trial lasts 1 s: 1000 reads of 1 ms at queue depth 4 take 250 ms, and flushes take
        // 750 ms.
        let with = |flushes_ns: u64| {
            judged_as(
                |key| key.workload.depth = 4,
                |trial, _| {
                    trial.elapsed_ns = 1_000_000_000;
                    if flushes_ns > 0 {
                        trial.live_mut().flushes.record_n(flushes_ns / 100, 100);
                    }
                },
            )
        };
        assert!(with(0).reasons.concat().contains("in flight on average"), "{:?}", with(0));
        let flushed = with(750_000_000);
        assert!(!flushed.reasons.concat().contains("in flight"), "{flushed:?}");
    }

    #[test]
    fn a_server_that_asks_to_wait_makes_a_trial_suspect() {
        let with = |engine_kind, retries| {
            judged_as(
                |key| key.workload.engine_kind = engine_kind,
                |trial, _| trial.live_mut().retries = retries,
            )
        };
        let says = |verdict: Verdict| verdict.reasons.concat().contains("asked to wait 50 times");
        assert!(says(with(EngineKind::Network, 50)));
        assert!(!says(with(EngineKind::IoUring, 50)));
        assert!(!with(EngineKind::Network, 1).reasons.concat().contains("asked to wait"));
    }

    #[test]
    fn the_journal_of_durable_writes_is_not_counted_as_other_programs() {
        let writes = |change: fn(&mut Workload)| {
            judged_as(
                |key| {
                    key.workload.read_percent = 0;
                    key.caching = Caching::Direct;
                    change(&mut key.workload);
                },
                |trial, _| {
                    trial.directions.swap(0, 1);
                    let write_sectors = 8 << 11;
                    trial.device = Some(DeviceCounters { write_sectors, ..Default::default() });
                },
            )
        };
        let others =
            |verdict: &Verdict| verdict.reasons.concat().contains("programs used the device");
        assert!(others(&writes(|_| {})), "{:?}", writes(|_| {}));
        let durable: [fn(&mut Workload); 3] = [
            |workload| workload.options.fua = true,
            |workload| workload.flush_every = Some(FlushEvery { writes: 4, data_only: false }),
            |workload| workload.flush_every = Some(FlushEvery { writes: 1, data_only: true }),
        ];
        for change in durable {
            assert!(!others(&writes(change)), "{:?}", writes(change));
        }
    }

    #[test]
    fn polling_uses_whole_cpus_without_being_the_limit() {
        let busy = |change: fn(&mut Workload)| {
            judged_as(
                |key| {
                    key.caching = Caching::Direct;
                    change(&mut key.workload);
                },
                |trial, around| {
                    around.cpus = 4;
                    trial.cpu.process_ns = trial.elapsed_ns * 2;
                },
            )
        };
        let limit = |verdict: &Verdict| verdict.reasons.concat().contains("may be the limit");
        assert!(limit(&busy(|_| {})), "{:?}", busy(|_| {}));
        assert!(!limit(&busy(|workload| workload.options.sq_poll = true)));
        assert!(!limit(&busy(|workload| workload.options.io_poll = true)));
    }

    #[test]
    fn threads_that_wait_for_a_cpu_make_a_trial_suspect_unless_they_wait_for_each_other() {
        let waited = |waited_ms: u64, threads: u32| {
            judged_as(
                |key| key.workload.threads = threads,
                |trial, around| {
                    around.cpus = 2;
                    trial.elapsed_ns = 1_000_000_000;
                    trial.cpu.run_delay_ns = Some(waited_ms * 1_000_000);
                },
            )
        };
        let said = |verdict: &Verdict| verdict.reasons.concat().contains("waited for a CPU");
        assert!(said(&waited(450, 1)), "{:?}", waited(450, 1));
        assert!(!said(&waited(100, 1)) && !said(&waited(300, 2)));
        assert!(!said(&waited(2000, 4)));
    }

    #[test]
    fn reading_a_region_again_from_the_page_cache_is_invalid() {
        let read = |region: u64, counted: bool| {
            let buffered = |key: &mut PointKey| key.caching = Caching::Buffered;
            judged_as(buffered, |trial, around| {
                around.target_bytes = region;
                around.counted = counted;
                around.page_cache_bytes = Some(1 << 30);
                trial.device = trial.device.filter(|_| counted);
                trial.series = (0..40_u64)
                    .map(|i| SeriesPoint {
                        start_ns: i * 1_000_000_000,
                        length_ns: 1_000_000_000,
                        bytes: if i < 20 { 1000 } else { 9000 },
                        requests: 1,
                    })
                    .collect();
            })
        };
        let again = read(1 << 20, false);
        assert_eq!(again.state, State::Invalid, "{again:?}");
        assert!(again.reasons.concat().contains("come from the page cache"), "{again:?}");
        assert!(!again.reasons.concat().contains("ramp-time"), "{again:?}");
        // None of these is reported: a region that is read once, a region that is too large for the
        // page cache, and a device with counters.
        for (region, counted) in [(8 << 20, false), (1 << 31, false), (1 << 20, true)] {
            let reasons = read(region, counted).reasons.concat();
            assert!(!reasons.contains("come from the page cache"), "{region} {reasons}");
        }
    }

    #[test]
    fn a_rate_at_the_limit_of_the_control_group_is_suspect() {
        let limited = |bytes_per_s: u64| {
            judged(|trial, around| {
                trial.elapsed_ns = 1_000_000_000;
                around.io_limit =
                    Some(IoLimit { read_bytes_per_s: Some(bytes_per_s), ..IoLimit::default() });
            })
        };
        let said = |verdict: &Verdict| verdict.reasons.concat().contains("control group limits");
        assert!(said(&limited(4_100_000)), "{:?}", limited(4_100_000));
        assert!(!said(&limited(8_000_000)));
    }

    #[test]
    fn an_ordinary_trial_is_valid() {
        assert_eq!(judged(|_, _| {}), Verdict::default());
    }

    #[test]
    fn holes_are_invalid_unless_they_are_allowed() {
        let holes = |_: &mut Trial, around: &mut Circumstances| {
            around.coverage = Some(Coverage { hole_bytes: 4096, unwritten_bytes: 0 });
            around.target_bytes = 8192;
        };
        let verdict = judged(holes);
        assert_eq!(verdict.state, State::Invalid);
        assert!(verdict.reasons[0].contains("50.0%"), "{verdict:?}");
        let allowed = judged(|trial, around| {
            holes(trial, around);
            around.allow_holes = true;
        });
        assert_eq!(allowed.state, State::Valid);
    }

    #[test]
    fn reads_that_never_reached_the_device_are_invalid() {
        let verdict = judged(|trial, _| trial.device = Some(DeviceCounters::default()));
        assert_eq!(verdict.state, State::Invalid);
        let warm = judged(|trial, around| {
            trial.device = Some(DeviceCounters::default());
            around.cold = false;
        });
        assert_eq!(warm.state, State::Valid);
    }

    #[test]
    fn buffered_reads_that_a_cache_served_name_the_remedy() {
        let text = |caching, region_bytes| {
            let cached = |trial: &mut Trial, around: &mut Circumstances| {
                trial.device = Some(DeviceCounters::default());
                around.target_bytes = region_bytes;
            };
            judged_as(|key| key.caching = caching, cached).reasons.concat()
        };
        // Each trial reads 4000 KiB: 1000 requests of 4 KiB.
        let again = text(Caching::Buffered, 1 << 20);
        let times = "the region of 1 MiB was read 3.9 times: use a larger --size";
        assert!(again.contains(times), "{again}");
        let once = text(Caching::Buffered, 1 << 30);
        assert!(once.contains("; use a larger --size, or --direct"), "{once}");
        let direct = text(Caching::Direct, 1 << 20);
        assert!(direct.contains("came from a cache") && !direct.contains("--direct"), "{direct}");
    }

    #[test]
    fn pages_that_survive_the_scrub_are_invalid() {
        let scrub = Scrub {
            resident_before_bytes: Some(1 << 20),
            resident_after_bytes: Some(1 << 20),
            dropped_all_caches: false,
        };
        assert_eq!(judged(|trial, _| trial.scrub = Some(scrub)).state, State::Invalid);
    }

    /// Judges a trial whose interval `i` of 100 ms moved `bytes(i)` bytes.
    fn with_series(bytes: impl Fn(u64) -> u64) -> Verdict {
        judged(|trial, _| {
            let point = |i| SeriesPoint {
                start_ns: i * 100_000_000,
                length_ns: 100_000_000,
                bytes: bytes(i),
                requests: 1,
            };
            trial.series = (0..50).map(point).collect();
        })
    }

    #[track_caller]
    fn is_suspect(verdict: &Verdict, why: &str) {
        assert_eq!(verdict.state, State::Suspect, "{verdict:?}");
        assert!(verdict.reasons.iter().any(|reason| reason.contains(why)), "{verdict:?}");
    }

    #[test]
    fn a_rate_that_falls_at_once_is_throttled_and_does_not_drift() {
        let verdict = with_series(|i| if i < 32 { 50_000_000 } else { 10_000_000 });
        is_suspect(&verdict, "fell from 500 MB/s to 100 MB/s after 3.2 s: throttled");
        assert!(!verdict.reasons.concat().contains("drift"), "{verdict:?}");
        is_suspect(&with_series(|i| if i < 8 { 10_000 } else { 90_000 }), "rose from");
    }

    #[test]
    fn a_rate_that_falls_steadily_drifts_and_is_not_throttled() {
        let verdict = with_series(|i| 100_000 - 800 * i);
        is_suspect(&verdict, "drifted by -");
        assert!(!verdict.reasons.concat().contains("throttled"), "{verdict:?}");
    }

    #[test]
    fn intervals_without_a_completion_count_as_a_rate_of_zero() {
        // The first interval has a burst. After it, every fourth interval has a request.
        let burst =
            with_series(|i| if i == 0 { 4_000_000 } else { 12_000 * u64::from(i % 4 == 0) });
        is_suspect(&burst, "fell from 40 MB/s to ");
        let fades = with_series(|i| if i % 4 == 0 { 100_000 - 1500 * i } else { 0 });
        is_suspect(&fades, "drifted by -");
        let stops = with_series(|i| if i < 20 { 100_000 } else { 0 });
        is_suspect(&stops, "to 0 MB/s after 2 s");
        assert!(fall(&stops).is_some() && fall(&fades).is_none());
        let sparse = with_series(|i| if i % 4 == 0 { 12_000 } else { 0 });
        assert_eq!(sparse, Verdict::default());
        let fills = with_series(|i| if i == 0 { 6000 } else { 5000 });
        assert_eq!(fills, Verdict::default(), "a burst of 2% is accepted");
    }

    #[test]
    fn a_rate_that_stays_or_changes_little_is_valid() {
        assert_eq!(with_series(|_| 5000).state, State::Valid);
        assert_eq!(with_series(|i| 10_000 + 500 * (i % 3)).state, State::Valid);
        assert_eq!(with_series(|i| if i < 20 { 10_000 } else { 9_000 }).state, State::Valid);
    }

    #[test]
    fn a_percentile_needs_ten_requests_beyond_it() {
        let few = |percentile, trials, asked, long_trial| {
            judged(|trial, around| {
                trial.directions[0].requests = 400;
                trial.directions[0].bytes = 400 * 4096;
                trial.device = None;
                around.tail = Tail { percentile, trials, asked };
                around.long_trial = long_trial;
            })
        };
        is_suspect(&few(99.0, 1, false, true), "400 requests; percentile 99 needs");
        assert_eq!(few(99.0, 3, false, true).state, State::Valid, "1000 in three trials");
        assert_eq!(few(90.0, 1, true, true).state, State::Valid);
        assert_eq!(few(99.0, 1, false, false).state, State::Valid, "a short trial");
        is_suspect(&few(99.9, 3, true, false), "percentile 99.9 needs 3334");
    }

    #[test]
    fn io_of_other_programs_is_separated_from_the_trials_own() {
        let counted = |read_mib: u64, written_mib: u64| DeviceCounters {
            read_sectors: read_mib << 11,
            write_sectors: written_mib << 11,
            ..DeviceCounters::default()
        };
        let (buffered, direct) = (Caching::Buffered, Caching::Direct);
        let (sequential, random) = (Pattern::Sequential, Pattern::Random);
        let with = |read_mib, written_mib, caching, pattern| {
            let mut point = point(&[100 << 20]);
            point.key.caching = caching;
            point.key.workload.pattern = pattern;
            let trial = &mut point.trials[0];
            trial.directions[0].latency.record_n(1_000_000, 25_600);
            trial.device = Some(counted(read_mib, written_mib));
            let around = Circumstances { counted: true, ..Circumstances::default() };
            judge(&point.key, &point.trials[0], &around)
        };
        assert_eq!(with(108, 1, direct, random).state, State::Valid);
        is_suspect(
            &with(130, 0, direct, random),
            "30 MiB read and 0 B written, in addition to the 100 MiB",
        );
        is_suspect(&with(100, 12, direct, sequential), "12 MiB written");
        assert_eq!(with(120, 0, buffered, sequential).state, State::Valid, "read ahead");
        is_suspect(&with(200, 0, buffered, sequential), "other programs used the device");
        assert_eq!(with(900, 0, buffered, random).state, State::Valid, "read around");
        is_suspect(&with(0, 90, buffered, random), "90 MiB written");
    }

    #[test]
    fn other_programs_and_a_hypervisor_are_named() {
        let load = |others_ms: u64, stolen_ms: u64, soaked| {
            judged(|trial, _| {
                trial.soaked = soaked;
                trial.cpu.available_ns = 2_000_000_000;
                trial.cpu.others_user_ns = Some(others_ms * 1_000_000);
                trial.cpu.stolen_ns = Some(stolen_ms * 1_000_000);
            })
        };
        is_suspect(&load(700, 0, false), "other programs used 35% of the machine's CPUs");
        is_suspect(&load(0, 70, false), "took 3.5% of the CPU time");
        assert_eq!(load(300, 30, false).state, State::Valid);
        assert_eq!(load(900, 0, true).state, State::Valid, "not another program");
    }

    #[test]
    fn trouble_with_the_clock_is_named_with_its_size() {
        let with = |clocks| judged(|_, around| around.clocks = clocks);
        let second = Disagreement { elapsed_ns: 1_000_000_000, ..Disagreement::default() };
        assert_eq!(with(Disagreement { ours_ns: 900_000, ..second }).state, State::Valid);
        let text = "the system clock by -1.5 ms in 1 s";
        is_suspect(&with(Disagreement { ours_ns: -1_500_000, ..second }), text);
        is_suspect(&with(Disagreement { asleep_ns: 3_000_000_000, ..second }), "suspended for 3 s");
        is_suspect(
            &with(Disagreement { wall_ns: 3_600_000_000_000, ..second }),
            "changed by +3600 s",
        );
        assert_eq!(with(Disagreement { wall_ns: -500_000_000, ..second }).state, State::Valid);
    }

    #[test]
    fn a_device_that_stood_still_is_suspect() {
        let with_a_gap = |gap: usize| {
            judged(|trial, _| {
                let requests = |i: usize| if (1..=gap).contains(&i) { 0 } else { 100 };
                trial.elapsed_ns = 9 * 100_000_000;
                trial.series = (0..9)
                    .map(|i| SeriesPoint {
                        start_ns: i as u64 * 100_000_000,
                        length_ns: 100_000_000,
                        bytes: requests(i) * 4096,
                        requests: requests(i),
                    })
                    .collect();
            })
        };
        assert_eq!(with_a_gap(4), Verdict::default());
        let stalled = with_a_gap(6);
        assert_eq!(stalled.state, State::Suspect);
        assert!(stalled.reasons[0].contains("no request completed for 600 ms"), "{stalled:?}");
    }

    #[test]
    fn an_open_loop_that_falls_behind_is_suspect() {
        let mut point = point(&[4096 * 1000]);
        point.key.workload.arrival = Arrival::Constant { requests_per_s: 5000.0 };
        let around = Circumstances::default();
        assert_eq!(judge(&point.key, &point.trials[0], &around).state, State::Suspect);
        point.key.workload.arrival = Arrival::Constant { requests_per_s: 1000.0 };
        assert_eq!(judge(&point.key, &point.trials[0], &around).state, State::Valid);
        point.key.workload.arrival = Arrival::Constant { requests_per_s: 1100.0 };
        assert_eq!(judge(&point.key, &point.trials[0], &around).state, State::Suspect);
        point.key.workload.arrival = Arrival::Poisson { requests_per_s: 1100.0 };
        assert_eq!(judge(&point.key, &point.trials[0], &around).state, State::Valid, "chance");
    }

    #[test]
    fn completions_inside_the_submit_call_mean_that_the_depth_was_not_reached() {
        let at_once = |depth: u32, engine_kind: EngineKind, rate: Option<f64>| {
            let mut point = point(&[4096 * 1000]);
            point.key.workload.engine_kind = engine_kind;
            point.key.workload.depth = depth;
            point.key.workload.arrival =
                rate.map_or(Arrival::Closed, |requests_per_s| Arrival::Constant { requests_per_s });
            point.trials[0].live_mut().at_once = 600;
            let verdict = judge(&point.key, &point.trials[0], &Circumstances::default());
            verdict.reasons.iter().any(|reason| reason.contains("the depth of 8 was not reached"))
        };
        assert!(at_once(8, EngineKind::IoUring, None));
        let network = at_once(8, EngineKind::Network, None);
        assert!(!network, "replies arrive together although the requests were outstanding");
        assert!(!at_once(1, EngineKind::IoUring, None), "depth 1 is always reached");
        assert!(
            !at_once(8, EngineKind::IoUring, Some(1000.0)),
            "an open loop need not fill its queue"
        );
    }

    #[test]
    fn requests_that_were_due_and_never_issued_are_reported() {
        let mut point = point(&[4096 * 1000]);
        point.key.workload.arrival = Arrival::Constant { requests_per_s: 1000.0 };
        point.trials[0].live_mut().never_issued = 3;
        let reasons = |point: &crate::point::Point| {
            let verdict = judge(&point.key, &point.trials[0], &Circumstances::default());
            let never = "3 requests were due and never issued";
            assert!(verdict.reasons.iter().any(|reason| reason.contains(never)), "{verdict:?}");
            verdict.reasons.len()
        };
        assert_eq!(reasons(&point), 1);
        point.key.workload.arrival = Arrival::Constant { requests_per_s: 50_000.0 };
        assert_eq!(reasons(&point), 2, "the rate was missed too");
    }

    #[test]
    fn failed_requests_are_invalid() {
        assert_eq!(judged(|trial, _| trial.errors = 1).state, State::Invalid);
    }
}
