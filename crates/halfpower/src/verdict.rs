//! Whether a trial measured what was meant (design: trust).
//!
//! Invalid means that the wrong thing was measured; suspect means noise, drift, too few samples.
//! Every reason carries the numbers that a reader needs to check it.

use analysis::drift::drift;
use analysis::littles_law;
use ioengine::Caching;
use ioengine::target::Coverage;

use crate::point::{PointKey, State, Trial, Verdict};
use crate::units;

/// What is known about the circumstances of a trial.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// Holes and unwritten blocks of the target, where the system tells.
    pub coverage: Option<Coverage>,
    /// Size of the target (bytes).
    pub target_bytes: u64,
    /// The user means to measure holes.
    pub allow_holes: bool,
    /// Whether reads were meant to come from the device: the cache was scrubbed, or bypassed.
    pub cold: bool,
    /// Whether a block device with counters lies beneath.
    pub counted: bool,
    /// CPUs that the process may use.
    pub cpus: u32,
    /// Whether the rate became steady, where that was waited for.
    pub became_steady: Option<bool>,
    /// The clock's error against the system's.
    pub clock_drift: f64,
    /// The run was cut short.
    pub interrupted: bool,
    /// Trials are long enough for drift and sample counts to mean something.
    pub long_trial: bool,
}

/// Share of the bytes that the device must have seen for a cold read to be one.
const DEVICE_SHARE_MIN: f64 = 0.9;
/// Share of the bytes read that may have stayed in the page cache after a scrub.
const RESIDENT_SHARE_MAX: f64 = 0.01;
/// Share of the rate asked for that an open loop must deliver.
const RATE_SHARE_MIN: f64 = 0.95;
/// Share of its CPUs that the generator may use before it is the limit.
const GENERATOR_SHARE_MAX: f64 = 0.9;
/// Trials from this length on show the depth that was held (ns).
const DEPTH_TRIAL_NS: u64 = 50_000_000;
/// A change within a trial that counts as drift, as a share of its median.
const DRIFT_MIN: f64 = 0.15;
const DRIFT_P_MAX: f64 = 0.01;
/// Requests below which the 99th percentile is not worth its name.
const REQUESTS_MIN: u64 = 100;
const DRIFT_OF_TIME_MAX: f64 = 1e-3;
/// Requests up to this size fit into few memory segments whatever the pages (bytes).
const SEGMENT_BYTES: u64 = 256 << 10;

/// Judges one trial.
pub fn judge(key: &PointKey, trial: &Trial, around: &Circumstances) -> Verdict {
    let mut verdict = Verdict::default();
    if around.interrupted {
        verdict.add(State::Suspect, "interrupted before its end");
    }
    if around.clock_drift.abs() > DRIFT_OF_TIME_MAX {
        let ppm = around.clock_drift * 1e6;
        verdict.add(State::Suspect, format!("the clock is off by {ppm:.0} parts in a million"));
    }
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
    if matches!(key.ioengine.as_str(), "null" | "delay") {
        return verdict;
    }
    check_holes(key, around, &mut verdict);
    check_device(key, trial, around, &mut verdict);
    check_depth(key, trial, &mut verdict);
    check_rate(key, trial, &mut verdict);
    check_pages(key, trial, &mut verdict);
    if around.long_trial {
        check_series(trial, &mut verdict);
        check_generator(key, trial, around, &mut verdict);
        if trial.requests() < REQUESTS_MIN {
            let requests = trial.requests();
            let text = format!("only {requests} requests: too few for a 99th percentile");
            verdict.add(State::Suspect, text);
        }
    }
    verdict
}

fn check_holes(key: &PointKey, around: &Circumstances, verdict: &mut Verdict) {
    let Some(coverage) = around.coverage.filter(|_| !around.allow_holes) else { return };
    let empty = coverage.hole_bytes + coverage.unwritten_bytes;
    if key.read_percent > 0 && empty > 0 {
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
    let Some(device) = trial.device.filter(|_| around.counted && around.cold) else { return };
    let seen = device.read_sectors * 512;
    if key.read_percent > 0 && !around.allow_holes && (seen as f64) < read as f64 * DEVICE_SHARE_MIN
    {
        let text = format!(
            "the device read {} of the {} that were asked for: the rest came from a cache",
            units::size(seen),
            units::size(read)
        );
        verdict.add(State::Invalid, text);
    }
}

/// Little's law: rate times latency is what was in flight.
fn check_depth(key: &PointKey, trial: &Trial, verdict: &mut Verdict) {
    let outstanding = u64::from(key.depth) * u64::from(key.threads);
    let Some(mean) = trial.latency().mean().filter(|_| key.rate_requests_per_s.is_none()) else {
        return;
    };
    // A flush at the end is time without requests.
    let elapsed = trial.accepted_ns.unwrap_or(trial.elapsed_ns).max(1);
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
    let Some(asked) = key.rate_requests_per_s else { return };
    let due = asked * trial.elapsed_ns as f64 / 1e9;
    // As many more may be missing by chance: three standard deviations of their number.
    let chance = if key.is_poisson() { 3.0 * due.sqrt() } else { 0.0 };
    if due >= 20.0 && (trial.requests() as f64) < due * RATE_SHARE_MIN - chance {
        let delivered = units::count(trial.requests_per_s());
        let text = format!(
            "{delivered} requests/s were delivered of the {} asked for: the rest waited; raise \
             --iodepth or --numjobs, or lower --rate-iops",
            units::count(asked)
        );
        verdict.add(State::Suspect, text);
    }
}

/// A request on ordinary pages runs into the device's segment limit: say so where huge ones were
/// asked for and refused.
fn check_pages(key: &PointKey, trial: &Trial, verdict: &mut Verdict) {
    let (got, wanted) = (trial.setup.huge_bytes, trial.setup.buffer_bytes);
    let asked = key.is_direct() && !key.has_small_pages() && key.request_bytes > SEGMENT_BYTES;
    if asked && wanted > 0 && got < wanted / 2 {
        let (got, wanted) = (units::size(got), units::size(wanted));
        let text = format!(
            "only {got} of the {wanted} of buffers lie on huge pages; enable transparent huge \
             pages (madvise), or say --buffer-pages 4k if that is meant"
        );
        verdict.add(State::Suspect, text);
    }
}

fn check_series(trial: &Trial, verdict: &mut Verdict) {
    // The last interval is not a whole one.
    let whole = trial.series.len().saturating_sub(1);
    let rates: Vec<f64> = trial.series[..whole].iter().map(|p| p.bytes as f64).collect();
    let Some(found) = drift(&rates).filter(|_| whole >= 10) else { return };
    if found.slope_relative.abs() > DRIFT_MIN && found.p_value < DRIFT_P_MAX {
        let percent = found.slope_relative * 100.0;
        let text = format!("the rate drifted by {percent:+.0}% within a trial");
        verdict.add(State::Suspect, text);
    }
}

fn check_generator(key: &PointKey, trial: &Trial, around: &Circumstances, verdict: &mut Verdict) {
    let pool = if key.ioengine == "threads" { key.depth } else { 1 };
    let cpus = (key.threads * pool).min(around.cpus.max(1));
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
    use crate::point::tests::point;
    use ioengine::target::{DeviceCounters, Scrub};

    fn judged(change: impl FnOnce(&mut Trial, &mut Circumstances)) -> Verdict {
        let mut point = point(&[4096 * 1000]);
        let mut around =
            Circumstances { cold: true, counted: true, long_trial: true, ..Default::default() };
        point.trials[0].directions[0].latency.record_n(1_000_000, 1000);
        point.trials[0].device =
            Some(DeviceCounters { reads: 1000, read_sectors: 8000, ..Default::default() });
        change(&mut point.trials[0], &mut around);
        judge(&point.key, &point.trials[0], &around)
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

    #[test]
    fn drift_and_too_few_requests_are_suspect() {
        let drifting = judged(|trial, _| {
            trial.series = (0..20)
                .map(|i| crate::point::SeriesPoint {
                    start_ns: i,
                    length_ns: 1,
                    bytes: 1000 - 30 * i,
                    requests: 1,
                })
                .collect();
        });
        assert_eq!(drifting.state, State::Suspect, "{drifting:?}");
        let few = judged(|trial, _| {
            trial.directions[0].requests = 10;
            trial.device =
                Some(DeviceCounters { read_sectors: 1 << 20, ..DeviceCounters::default() });
        });
        assert_eq!(few.state, State::Suspect, "{few:?}");
    }

    #[test]
    fn an_open_loop_that_falls_behind_is_suspect() {
        let mut point = point(&[4096 * 1000]);
        point.key.rate_requests_per_s = Some(5000.0);
        let around = Circumstances::default();
        assert_eq!(judge(&point.key, &point.trials[0], &around).state, State::Suspect);
        point.key.rate_requests_per_s = Some(1000.0);
        assert_eq!(judge(&point.key, &point.trials[0], &around).state, State::Valid);
        point.key.rate_requests_per_s = Some(1100.0);
        assert_eq!(judge(&point.key, &point.trials[0], &around).state, State::Suspect);
        point.key.workload_json = r#"{"rate_process": "poisson"}"#.into();
        assert_eq!(judge(&point.key, &point.trials[0], &around).state, State::Valid, "chance");
    }

    #[test]
    fn failed_requests_are_invalid() {
        assert_eq!(judged(|trial, _| trial.errors = 1).state, State::Invalid);
    }
}
