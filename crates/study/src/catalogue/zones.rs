//! Study `zones`: measures how the rate depends on the position on a target, as in the zones of a
//! rotating disk.
//!
//! The target is read at 64 positions, in random order, several times. A zone boundary is a
//! significant step of the rate. The error of its position is at most half the distance between two
//! positions. A gradual change without a step is also found.

use analysis::changepoint::{Step, steps};
use analysis::drift::drift;
use analysis::units;
use lab::evidence::{Evidence, MeasuredPoint};
use lab::failure::Outcome;
use lab::machine::TargetFacts;

use crate::catalogue::Study;
use crate::conclusion::Conclusion;
use crate::plan::Group;
use crate::runner::StudyRunner;
use crate::target::StudyTarget;

pub const STUDY: Study = Study {
    name: "zones",
    papers: "Riedel 1997, section 5.6 and Figure 14; Chung 2000, section 4.3 and Figure 2: the \
             inner tracks of a disk are 30% to 40% slower than the outer ones",
    needs: "a whole device, or a file that spans most of a device",
    plan: include_str!("../../plans/zones.toml"),
    claims: &["R163", "R170"],
    rules: &["outer-zones"],
    measure: Some(measure),
    analyse,
};

/// Number of positions at which the target is read.
const POSITIONS: u64 = 64;
/// Each position, and the length of the range that is read there, is a multiple of this size
/// (bytes).
const PLACE_BYTES: u64 = 256 << 10;
/// The length of the range that is read at each position of a simulated system (bytes).
const SIMULATED_BYTES: u64 = 16 << 20;
/// Length of a trial on a simulated system (ns).
const SIMULATED_NS: u64 = 5_000_000_000;
/// The rate counts as flat if it changes by less than this share.
const FLAT: f64 = 0.1;
/// A drift is significant if its p-value is less than this.
const P_TREND: f64 = 1e-3;

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    let (plan, study_targets) = (runner.groups()?, runner.study_targets);
    // The groups depend on the size of the target, so each target is measured separately.
    for study_target in study_targets {
        let places = |group| (0..POSITIONS).filter_map(move |n| place(group, study_target, n));
        let groups: Vec<Group> = plan.iter().flat_map(places).collect();
        let name = study_target.name.display().to_string();
        if groups.is_empty() {
            runner.leave_out(&name, "the target is too small; use a target of at least 16 MiB");
        } else {
            runner.measure_groups_on(&groups, std::slice::from_ref(study_target))?;
        }
    }
    Ok(())
}

/// Returns the group that measures position `number`. None if the target is too small.
fn place(group: &Group, study_target: &StudyTarget, number: u64) -> Option<Group> {
    let share = number as f64 / POSITIONS as f64;
    let mut group = group.clone().note("at", format!("{share:.4}"));
    let Some(bytes) = study_target.bytes() else {
        // In a simulated system, a small file is placed at the position. The trials are longer,
        // because simulated time costs little real time.
        let changes = format!("file_at={share:.4},file_size={SIMULATED_BYTES}");
        let group = Group { changes: Some(changes), ..group };
        let mut group = group.note("runtime", (SIMULATED_NS / 1_000_000_000).to_string());
        group.experiment.runtime_ns = Some(SIMULATED_NS);
        return Some(group);
    };
    let each = bytes / POSITIONS / PLACE_BYTES * PLACE_BYTES;
    let offset = (bytes as f64 * share) as u64 / PLACE_BYTES * PLACE_BYTES;
    group = group.note("offset", offset.to_string()).note("size", each.to_string());
    group.experiment.offset_bytes = offset;
    group.experiment.size_bytes = Some(each);
    (each > 0).then_some(group)
}

/// Returns the points of a target, sorted by position.
fn along<'a>(evidence: &'a Evidence, target: &str) -> Vec<&'a MeasuredPoint> {
    let mut points = evidence.all(&[("target", target)]);
    let at = |point: &MeasuredPoint| point.number("at").unwrap_or_default();
    points.sort_by(|a, b| at(a).total_cmp(&at(b)));
    points
}

/// Returns the steps of the rate, each with its position as a share of the target.
fn boundaries(points: &[&MeasuredPoint]) -> Vec<(f64, Step)> {
    let rates: Vec<f64> = points.iter().map(|point| point.rate()).collect();
    let at = |index: usize| points[index].number("at").unwrap_or_default();
    let halfway = |step: &Step| (at(step.index - 1) + at(step.index)) / 2.0;
    steps(&rates).into_iter().map(|step| (halfway(&step), step)).collect()
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    let mut targets: Vec<&str> =
        evidence.points.iter().map(|point| point.target.as_str()).collect();
    targets.dedup();
    for target in targets {
        zones_of(&mut found, evidence, target);
    }
    found
}

fn zones_of(found: &mut Conclusion, evidence: &Evidence, target: &str) {
    let points = along(evidence, target);
    let found_here = boundaries(&points);
    let rates: Vec<f64> = points.iter().map(|point| point.rate()).collect();
    let eighth = (rates.len() / 8).max(1);
    let (Some(outer), Some(inner)) = (
        analysis::quantile::median(&rates[..eighth.min(rates.len())]),
        analysis::quantile::median(&rates[rates.len() - eighth.min(rates.len())..]),
    ) else {
        return;
    };
    for (at, step) in &found_here {
        let (before, after) = (units::rate(step.before.value), units::rate(step.after.value));
        let place = format!("{:.1}% of {target}", 100.0 * at);
        found.find("boundary", format!("at {place}, the rate changes from {before} to {after}"));
    }
    let loss = 1.0 - inner / outer;
    let trend = drift(&rates).filter(|drift| drift.p_value < P_TREND);
    let (outer_rate, inner_rate) = (units::rate(outer), units::rate(inner));
    let ends = format!("{outer_rate} in the first eighth, {inner_rate} in the last eighth");
    let has_zones = found_here.iter().any(|(_, step)| change(step) >= FLAT);
    let depends = has_zones || trend.is_some_and(|drift| drift.slope_relative.abs() >= FLAT);
    let change = if loss < 0.0 {
        format!("{:.0}% more", 100.0 * (inner / outer - 1.0))
    } else {
        format!("{:.0}% less", 100.0 * loss)
    };
    let text = match (depends, found_here.len()) {
        (false, _) if loss.abs() >= FLAT => format!(
            "{target}: {ends} ({change}), but noise is as large as this difference; measure for \
             longer (--runtime, --trials)"
        ),
        (false, _) => {
            format!("{target} is equally fast everywhere, within noise: {ends}")
        }
        (true, 0) => format!("{target}: {ends} ({change}), without a clear step"),
        (true, steps) => format!("{target}: {ends} ({change}), in {} zones", steps + 1),
    };
    found.find("zones", text);
    let facts = points.first().and_then(|point| evidence.targets.get(point.target_index));
    let rotates = facts.and_then(|facts| facts.device.as_ref()?.rotational) == Some(true);
    let device = facts.and_then(spans_little);
    if let Some(device) = device {
        let text = format!(
            "{target} spans less than half of {device}, so most of {device} was not measured"
        );
        found.find("span", text);
    }
    if depends && rotates && device.is_none() {
        found.advise("outer-zones", outer / inner, target, ends);
    }
    if found.claims.is_empty() {
        if let Some(device) = device {
            let why = format!(
                "the target spans less than half of {device}; use the device itself, /dev/{device}"
            );
            found.cannot(STUDY.claims, &why);
            return;
        }
        if is_of_no_device(facts) {
            let why = "the system reports no device below the target; use a file on a device";
            found.cannot(STUDY.claims, why);
            return;
        }
        let what = "loss of rate from the first to the last eighth of the target";
        found.loss("R170", Some(loss), what);
        let longer = if depends { outer / inner } else { 1.0 };
        found.gain("R163", Some(longer), "rate of the outer end compared with the inner end");
    }
}

/// If the target spans less than half of its device, returns the name of the device. The study may
/// then have missed zones outside the target.
fn spans_little(facts: &TargetFacts) -> Option<&str> {
    let device = facts.device.as_ref()?;
    let whole = device.size_bytes?;
    let is_part = facts.simulated.is_none() && facts.size_bytes.saturating_mul(2) < whole;
    is_part.then_some(device.name.as_str())
}

/// Checks whether the target is known to have no device below it. An example is a file in memory.
/// Returns false for a reference device, which is itself a device.
fn is_of_no_device(facts: Option<&TargetFacts>) -> bool {
    facts.is_some_and(|facts| {
        facts.device.is_none() && facts.file_system.is_some() && facts.simulated.is_none()
    })
}

/// Returns the size of a step as a share of the higher rate.
fn change(step: &Step) -> f64 {
    let (before, after) = (step.before.value, step.after.value);
    (before - after).abs() / before.max(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::Verdict;
    use lab::evidence::testing::{cell, evidence};
    use lab::machine::DeviceFacts;

    /// Builds one point for each position. `rate` maps the position (share) to the rate. A ripple
    /// of half a percent imitates noise.
    fn scan(rate: impl Fn(f64) -> f64) -> Evidence {
        let points = (0..POSITIONS).map(|number| {
            let share = number as f64 / POSITIONS as f64;
            let ripple = 1.0 + 0.005 * f64::from((number * 7 % 5) as u32 as i32 - 2) / 2.0;
            cell((rate(share) * ripple) as u64, &[("at", &format!("{share:.4}"))])
        });
        evidence(points.collect())
    }

    #[test]
    fn a_boundary_is_found_within_two_percent_of_the_span() {
        for boundary in [0.2, 0.4, 0.613, 0.8] {
            let scan = scan(|at| if at < boundary { 200e6 } else { 140e6 });
            let found = boundaries(&along(&scan, "t"));
            assert_eq!(found.len(), 1, "{boundary}");
            assert!((found[0].0 - boundary).abs() < 0.02, "{boundary}: {}", found[0].0);
        }
    }

    #[test]
    fn a_flat_target_is_called_flat_and_the_papers_loss_does_not_hold() {
        let found = analyse(&scan(|_| 1e9));
        assert!(
            found
                .findings
                .iter()
                .any(|finding| finding.headline.contains("is equally fast everywhere"))
        );
        assert!(found.claims.iter().all(|claim| claim.verdict == Verdict::DoesNotHold));
        assert!(found.advice.is_empty());
    }

    #[test]
    fn a_small_part_of_a_device_does_not_show_its_zones() {
        let mut evidence = scan(|at| if at < 0.5 { 200e6 } else { 100e6 });
        let device = DeviceFacts {
            name: "sda".to_owned(),
            size_bytes: Some(1 << 40),
            ..DeviceFacts::default()
        };
        evidence.targets = vec![TargetFacts {
            name: "/the/full/path".to_owned(),
            size_bytes: 1 << 30,
            device: Some(device),
            ..TargetFacts::default()
        }];
        let found = analyse(&evidence);
        assert!(found.claims.iter().all(|claim| claim.verdict == Verdict::CannotBeTried));
        assert!(found.claims[0].here.contains("/dev/sda") && found.advice.is_empty());
        evidence.targets[0].size_bytes = 1 << 40;
        let found = analyse(&evidence);
        assert!(found.claims.iter().all(|claim| claim.verdict == Verdict::Holds));
    }

    #[test]
    fn noisy_ends_are_not_called_flat() {
        let is_slow = |number: u64| match number {
            0..8 => number < 5,
            8..56 => number.is_multiple_of(2),
            _ => number < 59,
        };
        let wild = |at: f64| if is_slow((at * 64.0).round() as u64) { 100e6 } else { 190e6 };
        let found = analyse(&scan(wild));
        let text = &found.findings.iter().find(|one| one.id == "zones").unwrap().headline;
        assert!(text.contains("noise is as large"), "{text}");
    }

    #[test]
    fn three_zones_are_found_and_the_outer_ones_are_advised() {
        let rate = |at: f64| {
            if at < 0.4 {
                200e6
            } else if at < 0.7 {
                150e6
            } else {
                100e6
            }
        };
        let rotates = DeviceFacts { rotational: Some(true), ..DeviceFacts::default() };
        let disk = TargetFacts { device: Some(rotates), ..TargetFacts::default() };
        let found = analyse(&Evidence { targets: vec![disk], ..scan(rate) });
        let text = &found.findings.last().unwrap().headline;
        assert!(text.contains("50% less") && text.contains("3 zones"), "{text}");
        assert_eq!(found.advice[0].id, "outer-zones");
        assert!(analyse(&scan(rate)).advice.is_empty(), "only a disk has outer tracks");
        assert!(found.claims.iter().all(|claim| claim.verdict == Verdict::Holds));
    }
}
