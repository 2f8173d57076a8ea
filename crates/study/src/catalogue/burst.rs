//! Burst credit: storage that is fast until something is spent, and slower for good.
//!
//! One long trial as fast as it goes. Where its series falls, the credit is what was moved until
//! then beyond the rate that lasts: that of a token bucket. If it fills at the later rate, an empty
//! one is full again after credit / floor; a rest shows at which rate it does. Cloud volumes,
//! throttled containers, and drives with a fast cache before slow media all look like that.

use std::time::Duration;

use analysis::changepoint::{Throttle, early_burst, throttle};
use ioengine::Clock;
use lab::failure::Outcome;

use crate::catalogue::Study;
use crate::conclusion::Conclusion;
use crate::evidence::{Evidence, MeasuredPoint};
use crate::runner::StudyRunner;

/// The study `burst`.
pub const STUDY: Study = Study {
    name: "burst",
    papers: "not there: the disks of 1997 and 2000 had no credit to spend; the nearest thing is \
             the write cache of the drive",
    needs: "",
    plan: r#"
title = "Burst: credit, floor and refill"
asks = "Does the rate last, and if not, how much is there to spend and how soon does it come back?"
# What spends its credit is given half the rest that it needs, and measured once more.
direct = true
bs = "1m"
iodepth = 8
runtime = 60
time_based = true
trials = 1

[quick]
runtime = 4

[[part]]
name = "reads"
rw = "randread"

[[part]]
name = "writes"
rw = "randwrite"
"#,
    claims: &[],
    rules: &[],
    measure: Some(measure),
    analyse,
};

/// The longest rest (ns), in the quick form and otherwise.
const REST_NS: [u64; 2] = [4_000_000_000, 120_000_000_000];
/// What a part is called that began after a rest.
const RESTED: &str = " after a rest";

/// Each part by itself, for one spends the credit of the other; what was spent gets a rest and is
/// measured once more.
fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    let study_targets = runner.study_targets;
    for group in runner.groups()? {
        for study_target in study_targets {
            let mut ready = Vec::new();
            runner.prepare(&group, std::slice::from_ref(study_target), &mut ready)?;
            let Some(one) = ready.first_mut() else { continue };
            runner.run(std::slice::from_ref(one))?;
            let spent = runner.evidence.cells.last().and_then(spent);
            let Some(throttle) = spent.filter(|_| !runner.lab.interrupt.is_set()) else { continue };
            // Half of what it takes to be full again, so that the bucket is not.
            let half_ns = (refill_ns(&throttle) / 2.0) as u64;
            let rest_ns = half_ns.min(REST_NS[usize::from(!runner.quick)]);
            rest(runner, rest_ns);
            one.call(&format!("{}{RESTED}", group.part));
            let part = one.part().to_owned();
            runner.run(std::slice::from_ref(one))?;
            runner.evidence.note("rest", "ns", &[("part", part)], rest_ns as f64);
            // The next part shall not begin with what this one left.
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

/// How long it takes an empty bucket to be full again (ns).
fn refill_ns(throttle: &Throttle) -> f64 {
    throttle.credit / throttle.after_per_s.max(1.0) * 1e9
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    for cell in evidence.usable().filter(|cell| !cell.part.ends_with(RESTED)) {
        match spent(cell) {
            Some(throttle) => found.find("credit", words(cell, &throttle)),
            None => found.find("lasts", lasts(cell)),
        }
    }
    for cell in evidence.usable().filter(|cell| cell.part.ends_with(RESTED)) {
        let rest = evidence.value("rest", &[("part", &cell.part)]);
        let (Some(rest_ns), Some(throttle)) = (rest, spent(cell)) else { continue };
        let per_s = throttle.credit / rest_ns * 1e9;
        let (credit, rest) = (units::decimal_size(throttle.credit as u64), units::time(rest_ns));
        let rate = units::rate(per_s);
        let text = format!("{}: a rest of {rest} brought back {credit}, at {rate}", cell.part);
        found.find("refill", text);
    }
    found
}

/// The fall of a point's rate; its first trial began with all the credit there was.
pub fn spent(cell: &MeasuredPoint) -> Option<Throttle> {
    let series = moved(cell)?;
    throttle(&series).or_else(|| early_burst(&series))
}

/// Length (ns) and bytes of the intervals of a point's first trial.
fn moved(cell: &MeasuredPoint) -> Option<Vec<(u64, f64)>> {
    let whole = cell.point.trials.first()?.series_until(cell.point.key.workload.limit_ns);
    Some(whole.iter().map(|i| (i.length_ns, i.bytes as f64)).collect())
}

fn words(cell: &MeasuredPoint, throttle: &Throttle) -> String {
    let Throttle { at_ns, before_per_s, after_per_s, credit } = *throttle;
    format!(
        "{}: {} for {}, then {}: a credit of {}, full again after {} at rest if it fills at the \
         lower rate; size what must last for that rate",
        cell.part,
        units::rate(before_per_s),
        units::time(at_ns as f64),
        units::rate(after_per_s),
        units::decimal_size(credit as u64),
        units::time(refill_ns(throttle))
    )
}

fn lasts(cell: &MeasuredPoint) -> String {
    let trials = cell.point.trials.first();
    let (ns, bytes) = trials.map_or((0, 0), |trial| (trial.elapsed_ns, trial.bytes()));
    let (amount, time) = (units::size(bytes), units::time(ns as f64));
    let part = &cell.part;
    let series = moved(cell).unwrap_or_default();
    let halves = series.split_at(series.len() / 2);
    let [first, second] = [halves.0, halves.1].map(|half| {
        let sums = half.iter().fold((0.0, 0.0), |(ns, sum), i| (ns + i.0 as f64, sum + i.1));
        if sums.0 > 0.0 { sums.1 / sums.0 } else { 0.0 }
    });
    let drift = if first > 0.0 {
        let percent = 100.0 * (second / first - 1.0);
        format!("; the second half moved {percent:+.0}% against the first")
    } else {
        String::new()
    };
    format!("{part}: no credit was spent in {time} and {amount}{drift}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::tests::{cell, evidence};
    use lab::point::SeriesPoint;

    /// A trial of so many intervals of 100 ms at a rate that depends on the time (s).
    fn long(rate: impl Fn(f64) -> f64) -> MeasuredPoint {
        let mut cell = cell(1 << 20, &[("part", "reads"), ("rw", "randread")]);
        let interval = |number: u64| SeriesPoint {
            start_ns: number * 100_000_000,
            length_ns: 100_000_000,
            bytes: (rate(number as f64 / 10.0) / 10.0) as u64,
            requests: 1,
        };
        cell.point.trials[0].series = (0..60).map(interval).collect();
        cell
    }

    #[test]
    fn credit_is_what_was_moved_beyond_the_rate_that_lasts() {
        let cell = long(|at| if at < 2.0 { 200e6 } else { 50e6 });
        let throttle = spent(&cell).unwrap();
        assert!((throttle.credit / 300e6 - 1.0).abs() < 0.05, "{throttle:?}");
        let found = analyse(&evidence(vec![cell]));
        assert!(found.findings[0].text.contains("full again after 6"), "{:?}", found.findings);
    }

    #[test]
    fn a_burst_that_is_over_after_one_interval_is_a_credit() {
        let cell = long(|at| if at < 0.1 { 640e6 } else { 30e6 });
        let throttle = spent(&cell).unwrap();
        assert!((throttle.credit / 61e6 - 1.0).abs() < 0.02, "{throttle:?}");
        assert!((throttle.after_per_s / 30e6 - 1.0).abs() < 0.01, "{throttle:?}");
    }

    #[test]
    fn what_was_moved_in_the_halves_is_told_by_their_sums() {
        // The first interval stands still, and all others are alike.
        let cell = long(|at| if at < 0.1 { 0.0 } else { 100e6 });
        let found = analyse(&evidence(vec![cell]));
        let text = &found.findings[0].text;
        assert!(text.contains("no credit") && text.contains("+4%"), "{text}");
    }

    #[test]
    fn a_rate_that_lasts_has_no_credit() {
        let found = analyse(&evidence(vec![long(|_| 200e6)]));
        assert!(found.findings[0].text.contains("no credit"), "{:?}", found.findings);
    }
}
