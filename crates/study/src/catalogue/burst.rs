//! Study `burst`: storage that is fast until a burst credit is spent, and slower after that.
//!
//! Cloud volumes, throttled containers, and drives with a fast cache on slow media behave like a
//! token bucket: a burst spends the credit in the bucket, and the bucket refills at the sustained
//! rate.
//!
//! One long trial runs at full speed. If its rate falls, the credit is (rate before the fall - rate
//! after the fall) x time until the fall. An empty bucket would be full again after credit /
//! sustained rate. A second trial after a rest shows how fast the bucket really refills.

use analysis::units;
use std::time::Duration;

use analysis::changepoint::{Throttle, early_burst, throttle};
use ioengine::Clock;
use lab::evidence::{Evidence, MeasuredPoint};
use lab::failure::Outcome;

use crate::catalogue::Study;
use crate::conclusion::Conclusion;
use crate::runner::StudyRunner;

pub const STUDY: Study = Study {
    name: "burst",
    papers: "no such experiment, because the disks of 1997 and 2000 had no burst credit; the \
             closest effect is that of the drive's write cache",
    needs: "",
    plan: include_str!("../../plans/burst.toml"),
    claims: &[],
    rules: &[],
    measure: Some(measure),
    analyse,
};

/// Maximum duration of a rest (ns). The first value applies to quick runs, the second to full runs.
const REST_NS: [u64; 2] = [4_000_000_000, 120_000_000_000];
/// Suffix of a part's name if the part was measured again after a rest.
const RESTED: &str = " after a rest";

/// Measures the parts of the plan one after the other. If a part spends the credit, the device
/// rests and the part is measured again.
fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    let study_targets = runner.study_targets;
    for group in runner.groups()? {
        for study_target in study_targets {
            let mut ready = Vec::new();
            runner.prepare(&group, std::slice::from_ref(study_target), &mut ready)?;
            let Some(one) = ready.first_mut() else { continue };
            runner.run(std::slice::from_ref(one))?;
            let spent = runner.evidence.points.last().and_then(spent);
            let Some(throttle) = spent.filter(|_| !runner.lab.interrupt.is_set()) else { continue };
            // After half the refill time, the bucket is only partly full, so the credit in it shows
            // the refill rate.
            let half_ns = (refill_ns(&throttle) / 2.0) as u64;
            let rest_ns = half_ns.min(REST_NS[usize::from(!runner.quick)]);
            rest(runner, rest_ns);
            one.call(&format!("{}{RESTED}", group.part));
            let part = one.part().to_owned();
            runner.run(std::slice::from_ref(one))?;
            runner.evidence.note("rest", "ns", &[("part", part)], rest_ns as f64);
            // The next part must start with a full bucket.
            if study_target.is_real() {
                rest(runner, (2 * half_ns).min(REST_NS[usize::from(!runner.quick)]));
            }
        }
    }
    Ok(())
}

fn rest(runner: &StudyRunner<'_>, ns: u64) {
    let until = runner.lab.clock.now_ns() + ns;
    while runner.lab.clock.now_ns() < until && !runner.lab.interrupt.is_set() {
        runner.lab.clock.sleep(Duration::from_millis(100));
    }
}

/// Returns the time to refill an empty bucket at the sustained rate (ns).
fn refill_ns(throttle: &Throttle) -> f64 {
    throttle.credit / throttle.after_per_s.max(1.0) * 1e9
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    for point in evidence.usable().filter(|point| !point.part.ends_with(RESTED)) {
        match spent(point) {
            Some(throttle) => found.find("credit", words(point, &throttle)),
            None => found.find("lasts", lasts(point)),
        }
    }
    for point in evidence.usable().filter(|point| point.part.ends_with(RESTED)) {
        let rest = evidence.value("rest", &[("part", &point.part)]);
        let (Some(rest_ns), Some(throttle)) = (rest, spent(point)) else { continue };
        let per_s = throttle.credit / rest_ns * 1e9;
        let (credit, rest) = (units::decimal_size(throttle.credit as u64), units::time(rest_ns));
        let rate = units::rate(per_s);
        let text = format!(
            "{}: a pause of {rest} restored {credit} of credit, at a rate of {rate}",
            point.part
        );
        found.find("refill", text);
    }
    found
}

/// Returns how the rate fell in the first trial of a point. `None` if the rate did not fall.
///
/// Only the first trial starts with the full credit.
pub fn spent(point: &MeasuredPoint) -> Option<Throttle> {
    let series = moved(point)?;
    throttle(&series).or_else(|| early_burst(&series))
}

/// Returns the intervals of a point's first trial: the length (ns) and the bytes of each.
fn moved(point: &MeasuredPoint) -> Option<Vec<(u64, f64)>> {
    let whole = point.point.trials.first()?.series_until(point.point.key.workload.limit_ns);
    Some(whole.iter().map(|i| (i.length_ns, i.bytes as f64)).collect())
}

fn words(point: &MeasuredPoint, throttle: &Throttle) -> String {
    let Throttle { at_ns, before_per_s, after_per_s, credit } = *throttle;
    format!(
        "{}: {} for the first {}, then {}; the burst credit is {}; if the credit refills at the \
         lower rate, a full refill without I/O takes {}; plan sustained loads for the lower rate",
        point.part,
        units::rate(before_per_s),
        units::time(at_ns as f64),
        units::rate(after_per_s),
        units::decimal_size(credit as u64),
        units::time(refill_ns(throttle))
    )
}

fn lasts(point: &MeasuredPoint) -> String {
    let trials = point.point.trials.first();
    let (ns, bytes) = trials.map_or((0, 0), |trial| (trial.elapsed_ns, trial.bytes()));
    let (amount, time) = (units::size(bytes), units::time(ns as f64));
    let part = &point.part;
    let series = moved(point).unwrap_or_default();
    let halves = series.split_at(series.len() / 2);
    let [first, second] = [halves.0, halves.1].map(|half| {
        let sums = half.iter().fold((0.0, 0.0), |(ns, sum), i| (ns + i.0 as f64, sum + i.1));
        if sums.0 > 0.0 { sums.1 / sums.0 } else { 0.0 }
    });
    let drift = if first > 0.0 {
        let percent = 100.0 * (second / first - 1.0);
        let word = if percent < 0.0 { "slower" } else { "faster" };
        format!("; the second half of the trial was {:.0}% {word}", percent.abs())
    } else {
        String::new()
    };
    format!(
        "{part}: no burst limit was found within {time} ({amount}){drift}; to find a larger \
         credit, use a longer --runtime"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::evidence::testing::{cell, evidence};
    use lab::point::SeriesPoint;

    /// Returns a point whose trial has 60 intervals of 100 ms. `rate` maps the time (s) to the
    /// rate.
    fn long(rate: impl Fn(f64) -> f64) -> MeasuredPoint {
        let mut point = cell(1 << 20, &[("part", "reads"), ("rw", "randread")]);
        let interval = |number: u64| SeriesPoint {
            start_ns: number * 100_000_000,
            length_ns: 100_000_000,
            bytes: (rate(number as f64 / 10.0) / 10.0) as u64,
            requests: 1,
        };
        point.point.trials[0].series = (0..60).map(interval).collect();
        point
    }

    #[test]
    fn the_credit_is_what_was_moved_above_the_sustained_rate() {
        let point = long(|at| if at < 2.0 { 200e6 } else { 50e6 });
        let throttle = spent(&point).unwrap();
        assert!((throttle.credit / 300e6 - 1.0).abs() < 0.05, "{throttle:?}");
        let found = analyse(&evidence(vec![point]));
        assert!(found.findings[0].headline.contains("without I/O takes 6"), "{:?}", found.findings);
    }

    #[test]
    fn a_burst_that_is_over_after_one_interval_is_a_credit() {
        let point = long(|at| if at < 0.1 { 640e6 } else { 30e6 });
        let throttle = spent(&point).unwrap();
        assert!((throttle.credit / 61e6 - 1.0).abs() < 0.02, "{throttle:?}");
        assert!((throttle.after_per_s / 30e6 - 1.0).abs() < 0.01, "{throttle:?}");
    }

    #[test]
    fn the_halves_are_compared_by_their_sums() {
        // The rate is 0 in the first 100 ms and constant after that.
        let point = long(|at| if at < 0.1 { 0.0 } else { 100e6 });
        let found = analyse(&evidence(vec![point]));
        let text = &found.findings[0].headline;
        assert!(text.contains("no burst limit") && text.contains("4% faster"), "{text}");
    }

    #[test]
    fn a_sustained_rate_has_no_credit() {
        let found = analyse(&evidence(vec![long(|_| 200e6)]));
        let text = &found.findings[0].headline;
        assert!(text.contains("no burst limit was found within "), "{text}");
        assert!(text.contains("use a longer --runtime"), "{text}");
    }
}
