//! Whether a trial measured what was meant (design: trust).
//!
//! Invalid means that the wrong thing was measured; suspect means noise, drift, too few samples.
//! Every reason carries the numbers that a reader needs to check it.

use analysis::changepoint::{Break, greatest_break};
use analysis::drift::drift;
use analysis::littles_law;
use ioengine::cgroup::IoLimit;
use ioengine::clock::Disagreement;
use ioengine::device::DeviceCounters;
use ioengine::target::Coverage;
use ioengine::{Caching, EngineKind};
use workload::{Arrival, Pattern};

use crate::point::{State, Trial, Verdict};
use crate::point_key::PointKey;

/// What is known about the circumstances of a trial.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// Holes and unwritten blocks of the target, where the system tells.
    pub coverage: Option<Coverage>,
    /// Size of the target (bytes).
    pub target_bytes: u64,
    /// The most that the page cache can hold (bytes), where the system tells.
    pub page_cache_bytes: Option<u64>,
    /// What the devices moved on which the images of loop devices lie, where the target lies on
    /// such.
    pub beneath_images: Option<DeviceCounters>,
    /// How much of the page cache was made dirty while it ran, by anybody (bytes).
    pub dirtied_bytes: Option<u64>,
    /// A loop device beneath the target that caches its image, of which nothing tells what reaches
    /// storage.
    pub unseen_image: Option<String>,
    /// The target lies in memory.
    pub in_memory: bool,
    /// The user means to measure holes.
    pub allow_holes: bool,
    /// Whether reads were meant to come from the device: the cache was scrubbed, or bypassed.
    pub cold: bool,
    /// Whether a block device with counters lies beneath.
    pub counted: bool,
    /// CPUs that the process may use.
    pub cpus: u32,
    /// What a CPU quota held back while it ran.
    pub throttled: Option<Throttled>,
    /// What the control group allows of the device, where there is one device.
    pub io_limit: Option<IoLimit>,
    /// Whether the rate became steady, where that was waited for.
    pub became_steady: Option<bool>,
    /// How the clocks went apart while it ran.
    pub clocks: Disagreement,
    /// The highest percentile that is looked at.
    pub tail: Tail,
    /// The run was cut short.
    pub interrupted: bool,
    /// Trials are long enough for drift and sample counts to mean something.
    pub long_trial: bool,
}

/// A CPU quota, and what it held back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttled {
    /// CPUs' worth of time that the control group may use, such as 0.2.
    pub cpus: f64,
    /// How long its threads were kept waiting for more (ns).
    pub waited_ns: u64,
}

impl Throttled {
    /// The share of a time (ns) in which threads were kept waiting, if it is enough to be felt.
    pub fn felt_share(&self, elapsed_ns: u64) -> Option<f64> {
        let share = (self.waited_ns as f64 / elapsed_ns.max(1) as f64).min(1.0);
        (share > THROTTLED_SHARE_MAX).then_some(share)
    }
}

/// The highest percentile that is looked at, and over how many trials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// Such as 99.9.
    pub percentile: f64,
    /// Their latencies are taken together.
    pub trials: u32,
    /// Named by the user, so that short trials are judged by it too.
    pub asked: bool,
}

impl Default for Tail {
    /// The 99th percentile of one trial, as every line shows it.
    fn default() -> Self {
        Tail { percentile: 99.0, trials: 1, asked: false }
    }
}

impl Tail {
    /// Requests that a trial must contribute: ten beyond the percentile over all of them.
    fn requests_min(&self) -> u64 {
        let all = BEYOND_MIN * 100.0 / (100.0 - self.percentile);
        (all / f64::from(self.trials.max(1)) - 1e-6).ceil() as u64
    }
}

/// Share of the bytes that the device must have seen for a cold read to be one.
const DEVICE_SHARE_MIN: f64 = 0.9;
/// Share of the bytes read that may have stayed in the page cache after a scrub.
const RESIDENT_SHARE_MAX: f64 = 0.01;
/// A region is read again from so many times its bytes on.
const REVISITED_MIN: f64 = 1.1;
/// Share of the rate asked for that an open loop must deliver.
const RATE_SHARE_MIN: f64 = 0.95;
/// Share of its CPUs that the generator may use before it is the limit.
const GENERATOR_SHARE_MAX: f64 = 0.9;
/// Trials from this length on show the depth that was held (ns).
const DEPTH_TRIAL_NS: u64 = 50_000_000;
/// A change within a trial that counts as drift, as a share of its median.
const DRIFT_MIN: f64 = 0.15;
const DRIFT_P_MAX: f64 = 0.01;
/// Requests that must lie beyond a percentile for it to be worth its name.
const BEYOND_MIN: f64 = 10.0;
/// The measuring clock may differ from the system's by this share ...
const APART_SHARE_MAX: f64 = 1e-3;
/// ... and by so much in any case: reading several clocks takes time (ns).
const APART_MIN_NS: u64 = 100_000;
/// A suspended machine or a wall clock that was set: less is slewing (ns).
const ASLEEP_MIN_NS: i64 = 1_000_000;
const WALL_MIN_NS: u64 = 1_000_000_000;
/// What a device may move beyond what was asked for, as a share of it ...
const EXTRA_SHARE_MAX: f64 = 0.1;
/// ... and in any case, for the metadata of the file system (bytes).
const EXTRA_MIN_BYTES: u64 = 1 << 20;
/// What the kernel may read ahead of each thread of buffered sequential reads (bytes).
const READ_AHEAD_BYTES: u64 = 16 << 20;
/// User time of other processes, as a share of all CPUs.
const OTHERS_SHARE_MAX: f64 = 0.2;
/// Time that a hypervisor took, as a share of all CPUs.
const STOLEN_SHARE_MAX: f64 = 0.02;
/// Requests are judged by where they were served from so many bytes on ...
const MEMORY_LEAST_BYTES: u64 = 4 << 20;
/// ... and are served by memory where the storage beneath saw less than this share of them, or the
/// page cache more.
const MEMORY_SHARE_MAX: f64 = 0.5;
/// Time for which a CPU quota may hold threads back, as a share of the trial.
const THROTTLED_SHARE_MAX: f64 = 0.02;
/// Shorter trials hold too few ticks of the accounting of CPU time (ns).
const LOAD_TRIAL_NS: u64 = 200_000_000;
/// A pause from this length on is one however long the trial is (ns).
const LONG_STALL_NS: u64 = 10_000_000_000;
/// A rate from this share of a limit on requests on is the limit's.
const IO_LIMIT_SHARE: f64 = 0.9;
/// Share of a trial that its threads may wait for a CPU.
const RUN_DELAY_SHARE_MAX: f64 = 0.2;
/// Requests of an open loop that must be due in a trial for its rate to be one.
const REQUESTS_MIN: f64 = 3.0;
/// Requests of an open loop that must have been due in a pause.
const DUE_IN_STALL: f64 = 20.0;
/// Share of requests that may come back within the call that submits them.
const AT_ONCE_SHARE_MAX: f64 = 0.5;
/// A pause from this length on is a stall (ns), if it is long for the device and the trial.
const STALL_NS: u64 = 500_000_000;
/// Requests up to this size fit into few memory segments whatever the pages (bytes).
const SEGMENT_BYTES: u64 = 256 << 10;

/// Judges one trial.
pub fn judge(key: &PointKey, trial: &Trial, around: &Circumstances) -> Verdict {
    let mut verdict = Verdict::default();
    if around.interrupted {
        verdict.add(State::Suspect, "interrupted before its end");
    }
    check_clocks(around, &mut verdict);
    if around.became_steady == Some(false) {
        verdict.add(State::Suspect, "the rate did not become steady");
    }
    if trial.errors > 0 {
        verdict.add(State::Invalid, format!("{} requests failed", trial.errors));
    }
    if trial.requests() == 0 {
        verdict.add(State::Invalid, "no request completed");
        return verdict;
    }
    if key.is_issued_by(EngineKind::Null) {
        return verdict;
    }
    if key.is_simulated {
        // Nothing disturbs a simulated system, and what it does is what it is asked about.
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
    // A reference device has time, but neither blocks nor caches, and spins to be on time.
    let real = !key.is_issued_by(EngineKind::Delay);
    if real {
        check_holes(key, around, &mut verdict);
        check_device(key, trial, around, &mut verdict);
        check_memory(key, trial, around, &mut verdict);
        check_pages(key, trial, &mut verdict);
        check_device_load(key, trial, around, &mut verdict);
    }
    check_depth(key, trial, &mut verdict);
    if real {
        check_at_once(key, trial, around, &mut verdict);
    }
    check_rate(key, trial, &mut verdict);
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

/// Whether time went as it should.
fn check_clocks(around: &Circumstances, verdict: &mut Verdict) {
    let Disagreement { elapsed_ns, ours_ns, asleep_ns, wall_ns } = around.clocks;
    let allowed_ns = (elapsed_ns as f64 * APART_SHARE_MAX) as u64;
    let signed = |ns: i64| {
        let sign = if ns < 0 { '-' } else { '+' };
        format!("{sign}{}", units::time(ns.unsigned_abs() as f64))
    };
    if ours_ns.unsigned_abs() > allowed_ns.max(APART_MIN_NS) {
        let (off, of) = (signed(ours_ns), units::time(elapsed_ns as f64));
        let text = format!("the measuring clock was off the system's by {off} in {of}");
        verdict.add(State::Suspect, text);
    }
    if asleep_ns > ASLEEP_MIN_NS {
        let asleep = units::time(asleep_ns as f64);
        let text = format!("the machine was suspended for {asleep} while it was measured");
        verdict.add(State::Suspect, text);
    }
    if wall_ns.unsigned_abs() > WALL_MIN_NS {
        let text = format!(
            "the wall clock was set by {} meanwhile: its date is off, the measurement is not",
            signed(wall_ns)
        );
        verdict.add(State::Suspect, text);
    }
}

fn check_holes(key: &PointKey, around: &Circumstances, verdict: &mut Verdict) {
    let Some(coverage) = around.coverage.filter(|_| !around.allow_holes) else { return };
    let empty = coverage.hole_bytes + coverage.unwritten_bytes;
    if key.read_percent() > 0 && empty > 0 {
        let share = 100.0 * empty as f64 / around.target_bytes.max(1) as f64;
        let text = format!(
            "{share:.1}% of the file are holes or unwritten blocks ({}), which are read without \
             touching the device; write the file first, or say --allow-holes",
            units::size(empty)
        );
        verdict.add(State::Invalid, text);
    }
}

/// Reads that were meant for the device must have reached it.
fn check_device(key: &PointKey, trial: &Trial, around: &Circumstances, verdict: &mut Verdict) {
    let read = trial.directions[0].bytes;
    let left = trial.scrub.and_then(|scrub| scrub.resident_after_bytes).unwrap_or(0);
    if left as f64 > read as f64 * RESIDENT_SHARE_MAX {
        let left = units::size(left);
        verdict.add(State::Invalid, format!("{left} stayed in the page cache after the scrub"));
    }
    // Blocks that are asked for again and again come from the page cache, as they are meant to.
    let cold = around.cold && (key.is_direct() || !key.is_skewed());
    let Some(device) = trial.device.filter(|_| around.counted && cold) else { return };
    let seen = device.read_sectors * 512;
    if key.read_percent() > 0
        && !around.allow_holes
        && (seen as f64) < read as f64 * DEVICE_SHARE_MIN
    {
        let text = format!(
            "the device read {} of the {} that were asked for: the rest came from a cache",
            units::size(seen),
            units::size(read)
        );
        verdict.add(State::Invalid, text);
    }
}

/// Buffered reads that have come to the end of their region find it in the page cache from then on,
/// whatever the device would do; whether they did. A device with counters tells more of it, and a
/// cache that cannot hold the region gives nothing back.
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
    let buffered = !key.is_direct() && around.cold && !key.is_skewed();
    let revisits = buffered && again && held && !around.counted && !around.allow_holes;
    if revisits {
        let text = format!(
            "{} were read of a region of {}: what is read again comes from the page cache; use a \
             larger --size, or one without --runtime, which is read once",
            units::size(read),
            units::size(around.target_bytes)
        );
        verdict.add(State::Invalid, text);
    }
    revisits
}

/// What the device moved beyond what was asked for was for somebody else, as far as it can be told
/// from what the system adds: reading ahead and whole pages to buffered requests, the journal to
/// writes that are made durable one by one or let the file grow.
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
    let told = only_reads || quiet;
    let read = ahead.map_or(0, |ahead| (device.read_sectors * 512).saturating_sub(reads + ahead));
    let written = if told { (device.write_sectors * 512).saturating_sub(writes) } else { 0 };
    let asked = reads + writes;
    if read + written > EXTRA_MIN_BYTES.max((asked as f64 * EXTRA_SHARE_MAX) as u64) {
        let text = format!(
            "others used the device: beyond the {} asked for it read {} and wrote {}",
            units::size(asked),
            units::size(read),
            units::size(written)
        );
        verdict.add(State::Suspect, text);
    }
}

/// Other programs that compute, and a hypervisor that serves others. Kernel threads that work for
/// the requests have no user time, so it is others' alone.
fn check_host_load(trial: &Trial, verdict: &mut Verdict) {
    if trial.soaked || trial.elapsed_ns < LOAD_TRIAL_NS {
        return;
    }
    let share = |ns: Option<u64>| ns.unwrap_or(0) as f64 / trial.cpu.available_ns.max(1) as f64;
    let (others, stolen) = (share(trial.cpu.others_user_ns), share(trial.cpu.stolen_ns));
    if others > OTHERS_SHARE_MAX {
        let text = format!("other programs used {:.0}% of the machine's CPUs", others * 100.0);
        verdict.add(State::Suspect, text);
    }
    if stolen > STOLEN_SHARE_MAX {
        let text = format!("the hypervisor took {:.1}% of the CPU time (steal)", stolen * 100.0);
        verdict.add(State::Suspect, text);
    }
}

/// Time in which the threads could have run and something else did: what is measured is its CPU
/// time too. Where there are more threads than CPUs they wait for each other.
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
            "its threads waited for a CPU for {:.0}% of the trial, on which something else ran; \
             stop it, or keep to other CPUs (--cpus-allowed)",
            share.min(1.0) * 100.0
        );
        verdict.add(State::Suspect, text);
    }
}

/// A limit of the control group on requests to the device: a rate at the limit is the limit's.
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
                "the control group allows {name} of {allowed} (io.max, blkio.throttle), which is \
                 what was measured"
            );
            verdict.add(State::Suspect, text);
        }
    }
}

/// A CPU quota of the control group: what was measured is the quota.
fn check_throttling(trial: &Trial, around: &Circumstances, verdict: &mut Verdict) {
    let Some(throttled) = around.throttled else { return };
    if let Some(share) = throttled.felt_share(trial.elapsed_ns) {
        let text = format!(
            "the CPU quota of the control group ({:.2} CPUs) held the program back for {:.0}% of \
             the trial; raise cpu.max",
            throttled.cpus,
            share * 100.0
        );
        verdict.add(State::Suspect, text);
    }
}

/// A percentile needs requests beyond it.
fn check_tail(trial: &Trial, tail: Tail, verdict: &mut Verdict) {
    let (requests, least) = (trial.requests(), tail.requests_min());
    if requests < least {
        let text = format!(
            "only {requests} requests in a trial: too few for the percentile {}, which takes \
             {least}",
            tail.percentile
        );
        verdict.add(State::Suspect, text);
    }
}

/// Requests that come back in the very call that submits them were never outstanding together,
/// whatever Little's law makes of stamps that a whole batch shares.
fn check_at_once(key: &PointKey, trial: &Trial, around: &Circumstances, verdict: &mut Verdict) {
    let Some(live) = &trial.live else { return };
    let share = live.at_once as f64 / trial.requests().max(1) as f64;
    let closed = key.requests_per_s().is_none();
    if closed && key.depth() > 1 && share > AT_ONCE_SHARE_MAX && !around.allow_holes {
        let text = format!(
            "{:.0}% of the requests came back within the call that submitted them: the depth of {} \
             was not reached, and their latency is that of whole batches",
            share * 100.0,
            key.depth()
        );
        verdict.add(State::Suspect, text);
    }
}

/// Little's law: rate times latency is what was in flight.
fn check_depth(key: &PointKey, trial: &Trial, verdict: &mut Verdict) {
    let outstanding = u64::from(key.depth()) * u64::from(key.threads());
    let full = key.requests_per_s().is_none() && !key.has_pauses();
    let Some(mean) = trial.latency().mean().filter(|_| full) else { return };
    // A flush, at the end or before it, is time without requests.
    let flushed = trial
        .live
        .as_ref()
        .map_or(0.0, |live| live.flushes.mean().unwrap_or(0.0) * live.flushes.count() as f64);
    let flushed = (flushed / f64::from(key.threads().max(1))) as u64;
    let elapsed = trial.accepted_ns.unwrap_or(trial.elapsed_ns).saturating_sub(flushed).max(1);
    let rate = trial.requests() as f64 * 1e9 / elapsed as f64;
    let check = littles_law::check(rate, mean, outstanding);
    // In a short trial the threads' starts and ends weigh too much.
    let enough = trial.requests() >= 20 * outstanding && elapsed >= DEPTH_TRIAL_NS;
    if enough && outstanding > 1 && check.share_of_depth < 0.5 {
        let text = format!(
            "{:.1} requests were in flight on average, not the {outstanding} asked for",
            check.mean_in_flight
        );
        verdict.add(State::Invalid, text);
    }
}

/// An open loop that falls behind measures a backlog, not the rate that was asked for.
fn check_rate(key: &PointKey, trial: &Trial, verdict: &mut Verdict) {
    let Some(asked) = key.requests_per_s() else { return };
    let due = asked * trial.elapsed_ns as f64 / 1e9;
    // As many more may be missing by chance: three standard deviations of their number.
    let is_poisson = matches!(key.workload.arrival, Arrival::Poisson { .. });
    let chance = if is_poisson { 3.0 * due.sqrt() } else { 0.0 };
    if due >= 20.0 && (trial.requests() as f64) < due * RATE_SHARE_MIN - chance {
        let delivered = units::count(trial.requests_per_s());
        let text = format!(
            "{delivered} requests/s were delivered of the {} asked for; raise --iodepth or \
             --numjobs, or lower --rate-iops",
            units::count(asked)
        );
        verdict.add(State::Suspect, text);
    } else if due < REQUESTS_MIN {
        let text = format!(
            "at {} requests/s only {due:.2} are due in a trial; give a longer --runtime",
            units::count(asked)
        );
        verdict.add(State::Suspect, text);
    }
    let never_issued = trial.live.as_ref().map_or(0, |live| live.never_issued);
    if never_issued > 0 {
        let text = format!(
            "{} requests were due and never issued: the backlog at the end was too long",
            units::count(never_issued as f64)
        );
        verdict.add(State::Suspect, text);
    }
}

/// Requests that were to reach storage and were served by memory: a file system in memory, a file
/// system that falls back to its page cache (btrfs for checksummed data), the cached image of a
/// loop device.
fn check_memory(key: &PointKey, trial: &Trial, around: &Circumstances, verdict: &mut Verdict) {
    if around.in_memory {
        verdict.add(State::Suspect, "the target lies in memory (tmpfs): no storage was measured");
        return;
    }
    let [read, written] = [0, 1].map(|direction| trial.directions[direction].bytes);
    if !key.is_direct() || read + written < MEMORY_LEAST_BYTES {
        return;
    }
    if let Some(beneath) = around.beneath_images {
        let moved = (beneath.read_sectors + beneath.write_sectors) * 512;
        if (moved as f64) < (read + written) as f64 * MEMORY_SHARE_MAX {
            let (moved, asked) = (units::size(moved), units::size(read + written));
            let text = format!(
                "the image of the loop device is in the page cache of its host: the device beneath \
                 it moved {moved} of {asked}; attach it with losetup --direct-io=on"
            );
            verdict.add(State::Suspect, text);
            return;
        }
    }
    if let Some(name) = &around.unseen_image {
        let text = format!(
            "{name} reads and writes its image through the page cache, and no device beneath tells \
             what reached storage; attach it with losetup --direct-io=on"
        );
        verdict.add(State::Suspect, text);
        return;
    }
    let dirtied = around.dirtied_bytes.unwrap_or(0);
    if written > MEMORY_LEAST_BYTES && dirtied as f64 > written as f64 * MEMORY_SHARE_MAX {
        let (dirtied, written) = (units::size(dirtied), units::size(written));
        let text = format!(
            "direct writes went through the page cache: {dirtied} of it became dirty for {written} \
             written; the file system cannot bypass it here (btrfs cannot for checksummed data), \
             or others wrote"
        );
        verdict.add(State::Suspect, text);
    }
}

/// A request on ordinary pages runs into the device's segment limit: say so where huge ones were
/// asked for and refused.
fn check_pages(key: &PointKey, trial: &Trial, verdict: &mut Verdict) {
    let Some(live) = &trial.live else { return };
    let (got, wanted) = (live.setup.huge_bytes, live.setup.buffer_bytes);
    let asked = key.is_direct() && !key.has_small_pages() && key.request_bytes() > SEGMENT_BYTES;
    if asked && wanted > 0 && got < wanted / 2 {
        let (got, wanted) = (units::size(got), units::size(wanted));
        let text = format!(
            "only {got} of the {wanted} of buffers lie on huge pages; enable transparent huge \
             pages (madvise), or say --buffer-pages 4k if that is meant"
        );
        verdict.add(State::Suspect, text);
    }
}

/// A device that stood still for a good part of a trial: its mean rate is one that nobody meets.
fn check_stall(key: &PointKey, trial: &Trial, verdict: &mut Verdict) {
    let (mut longest_ns, mut still_ns) = (0, 0);
    for part in &trial.series {
        still_ns = if part.requests == 0 { still_ns + part.length_ns } else { 0 };
        longest_ns = longest_ns.max(still_ns);
    }
    // A slow device is not a stalled one, and in an open loop there may have been nothing to do.
    let usual_ns = trial.latency().quantile(0.5).unwrap_or(0);
    let much = longest_ns >= LONG_STALL_NS || longest_ns >= trial.elapsed_ns / 20;
    let long = longest_ns >= STALL_NS.max(10 * usual_ns) && much;
    let due = key.requests_per_s().map_or(f64::MAX, |rate| rate * longest_ns as f64 / 1e9);
    if long && due >= DUE_IN_STALL && !key.has_pauses() {
        let (still, all) = (units::time(longest_ns as f64), units::time(trial.elapsed_ns as f64));
        verdict.add(State::Suspect, format!("nothing completed for {still} of {all}"));
    }
}

/// A rate that breaks is said to break, and only one that does not to drift.
fn check_series(key: &PointKey, trial: &Trial, verdict: &mut Verdict) {
    let whole = trial.series_until(key.workload.limit_ns);
    let moved: Vec<(u64, f64)> = whole.iter().map(|p| (p.length_ns, p.bytes as f64)).collect();
    let is_large = |found: &Break| {
        let (before, after) = (found.before_per_s, found.after_per_s);
        (after - before).abs() > DRIFT_MIN * before.max(after)
    };
    if let Some(found) = greatest_break(&moved).filter(is_large) {
        verdict.add(State::Suspect, break_text(key, &found));
        return;
    }
    let rates: Vec<f64> = whole.iter().map(|p| p.bytes as f64).collect();
    let Some(found) = drift(&rates).filter(|_| whole.len() >= 10) else { return };
    if found.slope_relative.abs() > DRIFT_MIN && found.p_value < DRIFT_P_MAX {
        let percent = found.slope_relative * 100.0;
        let text = format!("the rate drifted by {percent:+.0}% within a trial");
        verdict.add(State::Suspect, text);
    }
}

fn break_text(key: &PointKey, found: &Break) -> String {
    let at = units::time(found.at_ns);
    let [before, after] = [found.before_per_s, found.after_per_s].map(units::rate_mb);
    let falls = found.after_per_s < found.before_per_s;
    let buffered_writes = key.read_percent() < 100 && key.caching == Caching::Buffered;
    let (moved, why) = match (falls, buffered_writes) {
        (true, true) => ("fell", "the page cache was full, or the device throttled"),
        (true, false) => ("fell", "throttled, or out of burst credit"),
        (false, _) => ("rose", "warming up, or a burst; a --ramp-time leaves that out"),
    };
    format!("the rate {moved} from {before} to {after} after {at}: {why}")
}

fn check_generator(key: &PointKey, trial: &Trial, around: &Circumstances, verdict: &mut Verdict) {
    if key.polls() {
        // Who polls uses a whole CPU, whatever the limit is.
        return;
    }
    let pool = if key.is_issued_by(EngineKind::Threads) { key.depth() } else { 1 };
    let cpus = (key.threads() * pool).min(around.cpus.max(1));
    let available = trial.elapsed_ns as f64 * f64::from(cpus);
    let share = trial.cpu.process_ns as f64 / available.max(1.0);
    if share > GENERATOR_SHARE_MAX && key.is_direct() && !around.allow_holes {
        let text = format!(
            "its threads used {:.0}% of their CPUs: the CPU may be the limit, not the device; \
             try more --numjobs or a larger --bs",
            share * 100.0
        );
        verdict.add(State::Suspect, text);
    }
}

/// Whether reads in a caching mode, after a scrub where there is one, must reach the device.
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

    /// As `judged`, of another workload.
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
        // A thousand reads of 1 ms, four at a time, take 250 ms of 1 s; the rest is flushes.
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
    fn the_journal_of_durable_writes_is_nobody_elses() {
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
        let others = |verdict: &Verdict| verdict.reasons.concat().contains("others used");
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
    fn who_polls_uses_its_cpus_without_being_the_limit() {
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
    fn what_is_read_again_from_the_page_cache_is_invalid_and_no_warm_up() {
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
        assert!(again.reasons.concat().contains("comes from the page cache"), "{again:?}");
        assert!(!again.reasons.concat().contains("ramp-time"), "{again:?}");
        // A region that is read once, or that the page cache cannot hold, or counters that tell.
        for (region, counted) in [(8 << 20, false), (1 << 31, false), (1 << 20, true)] {
            let reasons = read(region, counted).reasons.concat();
            assert!(!reasons.contains("comes from the page cache"), "{region} {reasons}");
        }
    }

    #[test]
    fn a_rate_at_the_limit_of_the_control_group_is_the_limits() {
        let limited = |bytes_per_s: u64| {
            judged(|trial, around| {
                trial.elapsed_ns = 1_000_000_000;
                around.io_limit =
                    Some(IoLimit { read_bytes_per_s: Some(bytes_per_s), ..IoLimit::default() });
            })
        };
        let said = |verdict: &Verdict| verdict.reasons.concat().contains("control group allows");
        assert!(said(&limited(4_100_000)), "{:?}", limited(4_100_000));
        assert!(!said(&limited(8_000_000)));
    }

    #[test]
    fn an_ordinary_trial_is_valid() {
        assert_eq!(judged(|_, _| {}), Verdict::default());
    }

    #[test]
    fn holes_are_invalid_unless_they_are_meant() {
        let holes = |_: &mut Trial, around: &mut Circumstances| {
            around.coverage = Some(Coverage { hole_bytes: 4096, unwritten_bytes: 0 });
            around.target_bytes = 8192;
        };
        let verdict = judged(holes);
        assert_eq!(verdict.state, State::Invalid);
        assert!(verdict.reasons[0].contains("50.0%"), "{verdict:?}");
        let meant = judged(|trial, around| {
            holes(trial, around);
            around.allow_holes = true;
        });
        assert_eq!(meant.state, State::Valid);
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
    fn pages_that_survive_the_scrub_are_invalid() {
        let scrub = Scrub {
            resident_before_bytes: Some(1 << 20),
            resident_after_bytes: Some(1 << 20),
            dropped_all_caches: false,
        };
        assert_eq!(judged(|trial, _| trial.scrub = Some(scrub)).state, State::Invalid);
    }

    /// A trial whose intervals of 100 ms moved so many bytes each.
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
    fn a_rate_that_stays_or_changes_little_is_valid() {
        assert_eq!(with_series(|_| 5000).state, State::Valid);
        assert_eq!(with_series(|i| 10_000 + 500 * (i % 3)).state, State::Valid);
        assert_eq!(with_series(|i| if i < 20 { 10_000 } else { 9_000 }).state, State::Valid);
    }

    #[test]
    fn a_percentile_takes_ten_requests_beyond_it() {
        let few = |percentile, trials, asked, long_trial| {
            judged(|trial, around| {
                trial.directions[0].requests = 400;
                trial.directions[0].bytes = 400 * 4096;
                trial.device = None;
                around.tail = Tail { percentile, trials, asked };
                around.long_trial = long_trial;
            })
        };
        is_suspect(&few(99.0, 1, false, true), "400 requests in a trial: too few");
        assert_eq!(few(99.0, 3, false, true).state, State::Valid, "1000 in three trials");
        assert_eq!(few(90.0, 1, true, true).state, State::Valid);
        assert_eq!(few(99.0, 1, false, false).state, State::Valid, "a short trial");
        is_suspect(&few(99.9, 3, true, false), "percentile 99.9, which takes 3334");
    }

    #[test]
    fn what_the_device_did_for_others_is_told_from_what_was_asked_of_it() {
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
        is_suspect(&with(130, 0, direct, random), "read 30 MiB and wrote 0 B");
        is_suspect(&with(100, 12, direct, sequential), "wrote 12 MiB");
        assert_eq!(with(120, 0, buffered, sequential).state, State::Valid, "read ahead");
        is_suspect(&with(200, 0, buffered, sequential), "others used the device");
        assert_eq!(with(900, 0, buffered, random).state, State::Valid, "read around");
        is_suspect(&with(0, 90, buffered, random), "wrote 90 MiB");
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
        assert_eq!(load(900, 0, true).state, State::Valid, "the soaker is ours");
    }

    #[test]
    fn trouble_with_the_clock_is_named_with_its_size() {
        let with = |clocks| judged(|_, around| around.clocks = clocks);
        let second = Disagreement { elapsed_ns: 1_000_000_000, ..Disagreement::default() };
        assert_eq!(with(Disagreement { ours_ns: 900_000, ..second }).state, State::Valid);
        let text = "off the system's by -1.5 ms in 1 s";
        is_suspect(&with(Disagreement { ours_ns: -1_500_000, ..second }), text);
        is_suspect(&with(Disagreement { asleep_ns: 3_000_000_000, ..second }), "suspended for 3 s");
        is_suspect(&with(Disagreement { wall_ns: 3_600_000_000_000, ..second }), "set by +3600 s");
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
        assert!(stalled.reasons[0].contains("nothing completed for 600 ms"), "{stalled:?}");
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
    fn requests_that_come_back_in_the_submitting_call_were_never_outstanding_together() {
        let at_once = |depth: u32, rate: Option<f64>| {
            let mut point = point(&[4096 * 1000]);
            point.key.workload.depth = depth;
            point.key.workload.arrival =
                rate.map_or(Arrival::Closed, |requests_per_s| Arrival::Constant { requests_per_s });
            point.trials[0].live_mut().at_once = 600;
            let verdict = judge(&point.key, &point.trials[0], &Circumstances::default());
            verdict.reasons.iter().any(|reason| reason.contains("the depth of 8 was not reached"))
        };
        assert!(at_once(8, None));
        assert!(!at_once(1, None), "at depth 1 there is nothing to miss");
        assert!(!at_once(8, Some(1000.0)), "an open loop waits for what is due");
    }

    #[test]
    fn requests_that_were_due_and_never_issued_are_told() {
        let mut point = point(&[4096 * 1000]);
        point.key.workload.arrival = Arrival::Constant { requests_per_s: 1000.0 };
        point.trials[0].live_mut().never_issued = 3;
        let told = |point: &crate::point::Point| {
            let verdict = judge(&point.key, &point.trials[0], &Circumstances::default());
            let never = "3 requests were due and never issued";
            assert!(verdict.reasons.iter().any(|one| one.contains(never)), "{verdict:?}");
            verdict.reasons.len()
        };
        assert_eq!(told(&point), 1);
        point.key.workload.arrival = Arrival::Constant { requests_per_s: 50_000.0 };
        assert_eq!(told(&point), 2, "and that it fell behind");
    }

    #[test]
    fn failed_requests_are_invalid() {
        assert_eq!(judged(|trial, _| trial.errors = 1).state, State::Invalid);
    }
}
