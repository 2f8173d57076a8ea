//! Checks of a trial's rate over time: pauses without a completion, sudden changes, and drift.
//!
//! An interval without a completion has a rate of 0. If requests take longer than an interval, many
//! intervals are empty, and neighbouring intervals are joined before the drift is computed.

use analysis::changepoint::{Break, Throttle, early_burst, greatest_break};
use analysis::drift::drift;
use analysis::units;
use ioengine::Caching;

use crate::check::Check;
use crate::point::{State, Trial, Verdict};
use crate::point_key::PointKey;

/// The minimum change within a trial that is reported, as a share. For a drift, it is a share of
/// the median rate. For a sudden change, it is a share of the higher of the two rates. For an early
/// burst, it is a share of the trial's bytes. The size of an early burst is the number of bytes
/// that the burst moved minus the number of bytes that the later rate would have moved in the same
/// time.
const DRIFT_MIN: f64 = 0.15;
/// The p-value below which a drift is reported.
const DRIFT_P_MAX: f64 = 0.01;
/// A pause of at least this length (ns) can count as a stall, however long the trial is. A shorter
/// pause must last at least 5% of the trial.
const LONG_STALL_NS: u64 = 10_000_000_000;
/// The number of open-loop requests that must be due during a pause before it counts as a stall.
const DUE_IN_STALL: f64 = 20.0;
/// The minimum length of a stall (ns). A stall must also be long compared with the trial and with
/// the median latency.
const STALL_NS: u64 = 500_000_000;
/// The minimum number of intervals that a series needs to be checked for drift.
const DRIFT_INTERVALS_MIN: usize = 10;
/// The maximum length of an early burst that `end_of_burst` looks for (intervals). `sudden_change`
/// finds longer bursts.
const BURST_INTERVALS_MAX: usize = 3;
/// The maximum share of empty intervals. If more are empty, neighbouring intervals are joined.
const EMPTY_SHARE_MAX: f64 = 0.1;

/// Marks a trial as suspect if no request completed for a long time. The mean rate of such a trial
/// is meaningless.
pub(super) fn check_stall(key: &PointKey, trial: &Trial, verdict: &mut Verdict) {
    let (mut longest_ns, mut still_ns) = (0, 0);
    for part in &trial.series {
        still_ns = if part.requests == 0 { still_ns + part.length_ns } else { 0 };
        longest_ns = longest_ns.max(still_ns);
    }
    // A pause is normal if requests usually take long, or if few requests of an open loop were due.
    let usual_ns = trial.latency().quantile(0.5).unwrap_or(0);
    let much = longest_ns >= LONG_STALL_NS || longest_ns >= trial.elapsed_ns / 20;
    let long = longest_ns >= STALL_NS.max(10 * usual_ns) && much;
    let due = key.requests_per_s().map_or(f64::MAX, |rate| rate * longest_ns as f64 / 1e9);
    if long && due >= DUE_IN_STALL && !key.has_pauses() {
        let (still, all) = (units::time(longest_ns as f64), units::time(trial.elapsed_ns as f64));
        verdict.flag(
            State::Suspect,
            Check::Stall,
            format!("no request completed for {still} in a trial of {all}"),
        );
    }
}

/// Checks for sudden changes of the rate. Gradual drift is checked only if there is no sudden
/// change.
pub(super) fn check_series(key: &PointKey, trial: &Trial, verdict: &mut Verdict) {
    if key.is_replay() {
        // A replayed program may change its rate at any time.
        return;
    }
    let whole = trial.series_until(key.workload.limit_ns);
    let each: Vec<(u64, f64)> = whole.iter().map(|p| (p.length_ns, p.bytes as f64)).collect();
    if let Some(change) = sudden_change(&each).or_else(|| end_of_burst(&each)) {
        verdict.flag(State::Suspect, Check::RateChange, break_text(key, &change));
        return;
    }
    let bytes: Vec<f64> = joined(each).into_iter().map(|(_, bytes)| bytes).collect();
    let Some(drift) = drift(&bytes).filter(|_| bytes.len() >= DRIFT_INTERVALS_MIN) else { return };
    if drift.slope_relative.abs() > DRIFT_MIN && drift.p_value < DRIFT_P_MAX {
        let percent = drift.slope_relative * 100.0;
        let text = format!("the rate drifted by {percent:+.0}% within a trial");
        verdict.flag(State::Suspect, Check::Drift, text);
    }
}

/// Joins pairs of neighbouring intervals until at most a tenth of the intervals are empty, or too
/// few intervals remain. Each interval has a length (ns) and a number of bytes.
fn joined(mut moved: Vec<(u64, f64)>) -> Vec<(u64, f64)> {
    let is_sparse = |moved: &[(u64, f64)]| {
        let empty = moved.iter().filter(|(_, bytes)| *bytes == 0.0).count();
        empty as f64 > EMPTY_SHARE_MAX * moved.len() as f64
    };
    while is_sparse(&moved) && moved.len() >= 2 * DRIFT_INTERVALS_MIN {
        let pairs = moved.chunks_exact(2);
        moved = pairs.map(|pair| (pair[0].0 + pair[1].0, pair[0].1 + pair[1].1)).collect();
    }
    moved
}

/// Returns the greatest sudden change of the rate. None if the change is too small to report.
fn sudden_change(moved: &[(u64, f64)]) -> Option<Break> {
    greatest_break(moved).filter(|change| {
        let (before, after) = (change.before_per_s, change.after_per_s);
        (after - before).abs() > DRIFT_MIN * before.max(after)
    })
}

/// Returns the end of a burst at the start of the trial, if the burst is too short for
/// `sudden_change` to find. None if there is no such burst.
fn end_of_burst(moved: &[(u64, f64)]) -> Option<Break> {
    let bytes: f64 = moved.iter().map(|(_, bytes)| bytes).sum();
    let short_ns: u64 =
        moved.iter().take(BURST_INTERVALS_MAX).map(|(length_ns, _)| length_ns).sum();
    let is_short = |burst: &Throttle| burst.at_ns <= short_ns;
    let burst = early_burst(moved).filter(is_short)?;
    if burst.credit <= DRIFT_MIN * bytes {
        return None;
    }
    let Throttle { at_ns, before_per_s, after_per_s, .. } = burst;
    Some(Break { at_ns: at_ns as f64, before_per_s, after_per_s })
}

/// If the verdict has the reason that the rate fell suddenly, returns the text of this reason, such
/// as "the rate fell from 250 MB/s to 125 MB/s after 2 s: ..". Otherwise returns None.
pub fn fall(verdict: &Verdict) -> Option<&str> {
    let reason = verdict.reason(Check::RateChange)?;
    let text = reason.split_once(": ").map_or(reason, |(_, text)| text);
    text.starts_with("the rate fell ").then_some(text)
}

fn break_text(key: &PointKey, change: &Break) -> String {
    let at = units::time(change.at_ns);
    let [before, after] = [change.before_per_s, change.after_per_s].map(units::rate_mb);
    let falls = change.after_per_s < change.before_per_s;
    let buffered_writes = key.read_percent() < 100 && key.caching == Caching::Buffered;
    let (moved, why) = match (falls, buffered_writes) {
        (true, true) => ("fell", "the page cache was full, or the device throttled"),
        (true, false) => ("fell", "throttled, or out of burst credit"),
        (false, _) => ("rose", "warm-up or a burst; exclude it with --ramp-time"),
    };
    format!("the rate {moved} from {before} to {after} after {at}: {why}")
}
