//! Study `random`: the rate of random requests at each queue depth, the effect of the page cache,
//! and the load balance of random requests over striped targets (`study::stripe_load`).

use analysis::units;
use std::slice;

use ioengine::Op;
use ioengine::stripe::Layout;
use lab::evidence::{Evidence, MeasuredPoint};
use lab::failure::Outcome;
use lab::point::Point;
use lab::rounds::{self, Rounds};
use lab::simulated_target;
use report::model::Chart;
use workload::LoggedRequest;

use crate::catalogue::Study;
use crate::conclusion::{Conclusion, words_of_times};
use crate::curve::{self, Comparison};
use crate::plan::Group;
use crate::runner::{Ready, StudyRunner};
use crate::stripe_load::{StripeLoad, busy_closed, busy_open};

pub const STUDY: Study = Study {
    name: "random",
    papers: "Chung 2000, section 7.1, Table 9 and Figures 11 and 12: a disk of 10,000 revolutions \
             per minute serves 105 random requests of 8 KB per second at depth 1; reordering \
             raises the rate from depth 3; the file system's cache costs twice the CPU; sections \
             8.1 and 8.4: four disks with one request each reach four times the rate of one disk, \
             and two striped disks with two requests reach 1.5 times the rate of one disk",
    needs: "one target, or several targets to measure the load balance of a stripe",
    plan: include_str!("../../plans/random.toml"),
    claims: &["C100", "C101", "C104", "C108", "C109", "C189", "C194", "C195", "C196", "C236"],
    rules: &["deeper-random"],
    measure: Some(measure),
    analyse,
};

const DIRECT: &str = "past the cache";
const BUFFERED: &str = "through the cache";
/// A larger depth counts as faster if its rate is at least this many times the rate of depth 1.
const STEP_MIN: f64 = 1.1;

/// The part of the plan with random requests to one stripe over several targets.
const SPREAD: &str = "spread";
/// The part of the plan with random requests to several targets, each with its own queue.
const APART: &str = "apart";
/// Maximum number of requests that are logged in each trial.
const LOGGED_MAX: usize = 1 << 16;
/// A depth is sufficient if striped targets reach at least this share of the rate of evenly loaded
/// targets.
const ENOUGH: f64 = 0.9;
/// A rate is judged only if the half-width of its interval is at most this share of the rate.
const KNOWN: f64 = 0.15;
/// If the number of busy targets is less than this share of the minimum expected number, a cache is
/// assumed to answer some requests.
const ANSWERED: f64 = 0.9;
/// All targets count as busy if at least this share of them is busy.
const ALL_BUSY: f64 = 0.95;

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    let (study_targets, mut groups) = (runner.study_targets, runner.groups()?);
    let count = study_targets.len() as u32;
    if study_targets.iter().any(|target| target.is_simulated()) {
        let (together, alone): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|group| group.disks.is_some());
        runner.measure_groups(&alone)?;
        // Each simulated system is measured alone, because it provides all disks that a part needs.
        for target in study_targets.iter().filter(|target| target.is_simulated()) {
            let groups = as_large_on_each(&together, &target.name.to_string_lossy())?;
            runner.measure_groups_by(&groups, slice::from_ref(target), &logged)?;
        }
        return Ok(());
    }
    // On real targets, the parts for several targets always use all targets.
    groups.retain_mut(|group| match group.disks {
        None => true,
        Some(disks) => {
            group.disks = Some(count);
            disks == 2 && count > 1
        }
    });
    if count < 2 {
        let reason = "load balance needs more than one target; list several targets, as in \
                      halfpower study random DIR1 DIR2";
        runner.leave_out(SPREAD, reason);
    }
    runner.measure_groups_by(&groups, study_targets, &logged)
}

/// Sets the file sizes so that a striped file occupies as much of each simulated disk as a file on
/// a single disk. Otherwise, seeks in the two files would differ in length. Each system gets one
/// host. The number of its buses is at most the number of disks.
fn as_large_on_each(groups: &[Group], system: &str) -> Outcome<Vec<Group>> {
    let setup = simulated_target::parse(system, &[])?.system()?.setup;
    let sized = |group: &Group| {
        let disks = group.disks.unwrap_or(1);
        let files = u64::from(if group.part == SPREAD { disks } else { 1 });
        let bytes = setup.file_size.saturating_mul(files);
        let changes = format!("file_size={bytes},buses={},hosts=1", setup.buses.min(disks));
        Group { changes: Some(changes), ..group.clone() }
    };
    Ok(groups.iter().map(sized).collect())
}

/// Measures groups like [`StudyRunner::run`]. Also evaluates the request logs of points on striped
/// targets.
fn logged(runner: &mut StudyRunner<'_>, ready: &[Ready]) -> Outcome<()> {
    let (mut settings, mut owners) = (Vec::new(), Vec::new());
    for one in ready {
        for mut setting in one.settings() {
            if one.part() == SPREAD {
                setting.workload.log = Some(LOGGED_MAX);
            }
            settings.push(setting);
            owners.push(one);
        }
    }
    let trials = ready.iter().map(Ready::trials).max().unwrap_or(1);
    let rounds = Rounds { trials, soaker: false, seed: runner.base.seed };
    let (points, measured) = rounds::measure(runner.lab, &rounds, settings, runner.recorder);
    for (owner, mut point) in owners.into_iter().zip(points) {
        note_stripe_load(runner, owner, &point);
        draw_latency(runner, &point);
        point.trials.iter_mut().for_each(|trial| trial.live_mut().log = Vec::new());
        runner.add(owner, &[], point);
    }
    measured
}

/// Draws a heat map of latency over time from the first trial of a striped point. Replaces the heat
/// map of an earlier point only if the new one has more cells, because a map with few cells shows
/// little.
fn draw_latency(runner: &mut StudyRunner<'_>, point: &Point) {
    let Some(trial) = point.trials.first() else { return };
    let start = trial.log().iter().map(|one| one.submit_ns).min().unwrap_or_default();
    let requests = |op: Op| {
        let done = trial.log().iter().filter(|one| one.op == op && !one.failed);
        let latency = |one: &LoggedRequest| {
            (one.complete_ns - start, one.complete_ns.saturating_sub(one.submit_ns))
        };
        (op.to_string(), done.map(latency).collect())
    };
    let title = format!("Latency over time: {}", point.key.describe());
    let named = Op::ALL.map(requests);
    let cells = |chart: &Chart| chart.series.iter().map(|one| one.points.len()).sum::<usize>();
    let drawn = report::latency_heat_map("random-latency-over-time", &title, named);
    let most = runner.charts.iter().map(cells).max().unwrap_or_default();
    if let Some(chart) = drawn.filter(|chart| cells(chart) > most) {
        runner.charts = vec![chart];
    }
}

/// Notes the load balance of a striped point, as the mean of its trials.
fn note_stripe_load(runner: &mut StudyRunner<'_>, owner: &Ready, point: &Point) {
    let chunk_bytes = units::parse_size(owner.given("chunk")).unwrap_or(0);
    let Ok(layout) = Layout::new(owner.disks() as usize, chunk_bytes) else { return };
    let loads = point.trials.iter().filter_map(|trial| StripeLoad::of(trial.log(), &layout));
    let loads: Vec<StripeLoad> = loads.collect();
    if loads.is_empty() {
        return;
    }
    let mean = |of: fn(&StripeLoad) -> f64| loads.iter().map(of).sum::<f64>() / loads.len() as f64;
    let labels = [
        ("target", runner.study_targets[owner.first()].name.display().to_string()),
        ("rw", point.key.rw().to_owned()),
        ("disks", owner.disks().to_string()),
        ("iodepth", point.key.depth().to_string()),
    ];
    runner.evidence.note("busy-targets", "count", &labels, mean(|load| load.busy));
    runner.evidence.note("requests-imbalance", "times", &labels, mean(|load| load.imbalance));
}

// ---- analysis

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = match evidence.targets.len() {
        0 | 1 => of_one(evidence),
        count => {
            let of_target = |index| {
                let (name, own) = evidence.of_target(index);
                (name, of_one(&own))
            };
            Conclusion::of_each((0..count).map(of_target).collect())
        }
    };
    for rw in ["randread", "randwrite"] {
        spread(&mut found, evidence, rw);
    }
    claims_of_several(&mut found, evidence);
    found
}

/// Analyses a single target.
fn of_one(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    for rw in ["randread", "randwrite"] {
        accesses(&mut found, evidence, rw);
        queue(&mut found, evidence, rw);
    }
    revolutions(&mut found, evidence);
    for rw in ["randread", "randwrite"] {
        cached(&mut found, evidence, rw);
    }
    claims(&mut found, evidence);
    found
}

fn at<'a>(evidence: &'a Evidence, part: &str, rw: &str, depth: &str) -> Option<&'a MeasuredPoint> {
    evidence.find(&[("part", part), ("rw", rw), ("iodepth", depth)])
}

/// Returns the points of a part of the plan, sorted by depth.
fn by_depth<'a>(evidence: &'a Evidence, part: &str, rw: &str) -> Vec<&'a MeasuredPoint> {
    let mut points = evidence.all(&[("part", part), ("rw", rw)]);
    points.sort_by_key(|point| point.depth());
    points
}

fn latency(point: &MeasuredPoint, quantile: f64) -> String {
    point.latency_ns(quantile).map_or_else(|| "-".to_owned(), units::time)
}

/// Reports KAPS and MAPS (random accesses of 8 KiB and of 1 MiB per second) at depth 1 and at the
/// best depth.
fn accesses(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    for (part, name, size) in [(DIRECT, "KAPS", "8 KiB"), ("large", "MAPS", "1 MiB")] {
        let points = by_depth(evidence, part, rw);
        let Some(one) = points.first() else { continue };
        let best = points.iter().max_by(|a, b| a.rate().total_cmp(&b.rate())).unwrap_or(one);
        let count = |point: &MeasuredPoint| units::count(point.requests_per_s());
        let more = if best.depth() == one.depth() {
            format!(", 99th percentile {}), no gain from depth", latency(one, 0.99))
        } else {
            format!(
                "), {} at depth {} (median latency {}, 99th percentile {})",
                count(best),
                best.depth(),
                latency(best, 0.5),
                latency(best, 0.99)
            )
        };
        let text = format!(
            "{name}, {rw} of {size}: {} per second at depth {} (median latency {}{more}",
            count(one),
            one.depth(),
            latency(one, 0.5)
        );
        found.find(&name.to_lowercase(), text);
    }
}

/// Reports how much a larger depth gains, and the smallest depth that reaches this gain.
fn queue(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    let points = by_depth(evidence, DIRECT, rw);
    let Some(one) = points.first() else { return };
    let Some(top) = points.iter().max_by(|a, b| a.rate().total_cmp(&b.rate())) else { return };
    let Some(knee) = points.iter().find(|point| !curve::differ(point, top)) else { return };
    let gain = knee.rate() / one.rate().max(1.0);
    if knee.depth() == one.depth() {
        let text = match curve::compare(top, one) {
            Comparison::Unclear(wide) if wide.is_finite() => {
                format!("no measurable gain from depth (±{:.0}%)", 100.0 * wide)
            }
            Comparison::Unclear(_) => "no measurable gain from depth".to_owned(),
            _ => "a larger depth gains less than 10%".to_owned(),
        };
        found.find("queue", format!("{rw} of 8 KiB: {text}"));
        return;
    }
    let rotates = per_revolution(evidence, Some(one)).is_some();
    let why = if rotates { ", by reordering" } else { "" };
    let more = if points.last().is_some_and(|last| last.depth() > knee.depth()) {
        "a larger depth brings no measurable gain"
    } else {
        "no larger depth was measured"
    };
    let text = format!(
        "{rw} of 8 KiB: depth {} reaches {} the rate of depth 1{why}; {more}",
        knee.depth(),
        words_of_times(gain)
    );
    found.find("queue", text.clone());
    found.advise("deeper-random", gain, &format!("{rw} at depth {}", knee.depth()), text);
}

/// Returns the requests per revolution of a point. None if the point used several devices or if the
/// rotation speed is unknown.
fn per_revolution(evidence: &Evidence, point: Option<&MeasuredPoint>) -> Option<f64> {
    let rotation = evidence.device()?.revolutions_per_min?;
    Some(point.filter(|point| point.disks == 1)?.requests_per_s() * 60.0 / f64::from(rotation))
}

fn revolutions(found: &mut Conclusion, evidence: &Evidence) {
    let Some(one) = at(evidence, DIRECT, "randread", "1") else { return };
    let device = evidence.device();
    let rotates = device.and_then(|device| device.rotational);
    let rotation = device.and_then(|device| device.revolutions_per_min);
    if one.disks > 1 || (evidence.is_simulated() && rotates == Some(true) && rotation.is_none()) {
        let text = "requests per revolution unknown: the rate is the sum of several disks";
        found.find("revolutions", text);
        return;
    }
    let text = match (rotates, rotation) {
        (_, Some(rotation)) => {
            let deep = by_depth(evidence, DIRECT, "randread");
            let last = deep.last().copied().unwrap_or(one);
            format!(
                "{:.2} random reads per revolution at depth 1, {:.2} at depth {} ({rotation} \
                 revolutions per minute)",
                per_revolution(evidence, Some(one)).unwrap_or_default(),
                per_revolution(evidence, Some(last)).unwrap_or_default(),
                last.depth()
            )
        }
        (Some(false), None) => "requests per revolution unknown: no rotating device".to_owned(),
        (Some(true), None) => "requests per revolution unknown: the system reports that the \
                               device rotates, but not its speed, which is common for virtual disks"
            .to_owned(),
        (None, None) => "requests per revolution unknown: the device is unknown".to_owned(),
    };
    found.find("revolutions", text);
}

/// Compares random requests through the page cache with direct requests.
fn cached(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    let (Some(with), Some(past)) = (at(evidence, BUFFERED, rw, "1"), at(evidence, DIRECT, rw, "1"))
    else {
        return;
    };
    let rate = format!("rate compared with direct I/O: {}", curve::compare(with, past).words());
    let cost = costs(with, past)
        .map_or_else(String::new, |times| format!(", {} the CPU time", words_of_times(times)));
    let moved = device_requests(with).map_or_else(String::new, |(requests, bytes)| {
        format!(
            "; each request caused {requests:.2} device requests, which moved {} in total",
            units::size(bytes.round() as u64)
        )
    });
    let region = match rw {
        "randwrite" => format!(
            " in a region of {}, including the flush",
            units::size(with.point.key.size_bytes())
        ),
        _ => " of a cold file".to_owned(),
    };
    found.find("buffered", format!("buffered {rw} of 8 KiB{region}: {rate}{cost}{moved}"));
}

/// Returns the CPU time of a buffered request divided by the CPU time of a direct request.
fn costs(with: &MeasuredPoint, past: &MeasuredPoint) -> Option<f64> {
    Some(with.cpu_ns()? / past.cpu_ns()?.max(1.0))
}

/// Returns how many device requests and device bytes each request caused (reads and writes
/// together). None if no device requests were counted.
fn device_requests(point: &MeasuredPoint) -> Option<(f64, f64)> {
    let counted = point.point.trials.iter().filter_map(|trial| Some((trial.device?, trial)));
    let (moved, sectors, requests) =
        counted.fold((0, 0, 0), |(moved, sectors, requests), (c, t)| {
            (
                moved + c.reads + c.writes,
                sectors + c.read_sectors + c.write_sectors,
                requests + t.requests(),
            )
        });
    let each = |count: u64| count as f64 / requests as f64;
    (requests > 0 && moved > 0).then(|| (each(moved), each(sectors) * 512.0))
}

/// Returns the points of a part that used several targets. Each list contains the points with the
/// same first target and the same number of targets, sorted by depth.
fn together<'a>(evidence: &'a Evidence, part: &str, rw: &str) -> Vec<Vec<&'a MeasuredPoint>> {
    let mut points = evidence.all(&[("part", part), ("rw", rw)]);
    points.retain(|point| point.disks > 1);
    points.sort_by_key(|point| (point.target_index, point.disks, point.depth()));
    let alike = |a: &&MeasuredPoint, b: &&MeasuredPoint| {
        (a.target_index, a.disks) == (b.target_index, b.disks)
    };
    points.chunk_by(alike).map(<[&MeasuredPoint]>::to_vec).collect()
}

/// Returns the rate of a single target at each depth (requests per second). On a simulated system,
/// this is the rate of one disk. Otherwise it is the mean of all targets.
fn alone(evidence: &Evidence, of: &MeasuredPoint) -> Vec<(u32, f64)> {
    let rw = of.word("rw");
    let mut points = evidence.all(&[("part", APART), ("rw", &rw), ("disks", "1")]);
    points.retain(|point| point.target_index == of.target_index);
    if points.is_empty() {
        points = evidence.all(&[("part", DIRECT), ("rw", &rw)]);
    }
    points.sort_by_key(|point| point.depth());
    let mean = |points: &[&MeasuredPoint]| {
        let sum: f64 = points.iter().map(|point| point.requests_per_s()).sum();
        (points[0].depth(), sum / points.len() as f64)
    };
    points.chunk_by(|a, b| a.depth() == b.depth()).map(mean).collect()
}

/// Returns the rate that a point would reach if its requests were spread evenly over the targets
/// (requests per second). The rate is interpolated between the depths that were measured on a
/// single target. None outside of these depths.
fn even_rate(evidence: &Evidence, point: &MeasuredPoint) -> Option<f64> {
    let curve = alone(evidence, point);
    let targets = f64::from(point.disks);
    let each = (f64::from(point.depth()) / targets).max(1.0);
    let above = curve.iter().position(|(depth, _)| f64::from(*depth) >= each)?;
    let (depth, rate) = curve[above];
    let rate = match above.checked_sub(1).map(|below| curve[below]) {
        // The interpolation is linear in the logarithm of the depth.
        Some((below, from)) if f64::from(depth) > each => {
            let whole = f64::from(depth) / f64::from(below);
            let share = (each / f64::from(below)).ln() / whole.ln();
            from + (rate - from) * share
        }
        _ if f64::from(depth) > each => return None,
        _ => rate,
    };
    Some(rate * targets.min(f64::from(point.depth())))
}

fn reading(evidence: &Evidence, quantity: &str, point: &MeasuredPoint) -> Option<f64> {
    let words = ["target", "rw", "disks", "iodepth"].map(|flag| (flag, point.word(flag)));
    let labels: Vec<(&str, &str)> = words.iter().map(|(name, word)| (*name, &**word)).collect();
    evidence.value(quantity, &labels)
}

/// Compares the rate of random requests to striped targets with the rate of the same number of
/// evenly loaded targets.
fn spread(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    let all = together(evidence, SPREAD, rw);
    let widest = all.iter().map(|points| points[0].disks).max();
    for points in all {
        let targets = points[0].disks;
        let shares: Vec<(&MeasuredPoint, f64)> = points
            .iter()
            // Points with fewer requests than targets are left out, because some targets are then
            // idle or, with a write cache, still work on earlier writes.
            .filter(|point| point.depth() >= targets)
            .filter_map(|point| {
                Some((*point, point.requests_per_s() / even_rate(evidence, point)?))
            })
            .collect();
        if shares.is_empty() {
            continue;
        }
        let each: Vec<String> =
            shares.iter().map(|(point, share)| share_in_words(evidence, point, *share)).collect();
        let most = shares.iter().filter_map(|(c, _)| reading(evidence, "requests-imbalance", c));
        let most = most.reduce(f64::max).map_or_else(String::new, |most| {
            format!("; over a whole trial, the busiest target got {most:.2} times the mean load")
        });
        let lead = if evidence.targets.len() > 1 && evidence.is_of_simulated(points[0]) {
            format!("{}: ", points[0].target)
        } else {
            String::new()
        };
        found.find(
            "spread",
            format!(
                "{lead}{rw} of {} over {targets} targets in chunks of {}, rate compared with \
                 {targets} evenly loaded targets: {}{most}{}",
                units::size(points[0].bytes()),
                units::size(points[0].number("chunk").unwrap_or_default() as u64),
                each.join("; "),
                change(evidence, &shares, targets)
            ),
        );
        if Some(targets) == widest {
            deeper(found, &points, rw);
        }
    }
}

/// Describes the rate of a point, as a share of the rate of evenly loaded targets, and the number
/// of busy targets. For example: "depth 2: 75%, 1.49 targets busy (1.33 to 1.50 expected)".
fn share_in_words(evidence: &Evidence, point: &MeasuredPoint, share: f64) -> String {
    let (targets, depth) = (point.disks, point.depth());
    let noise = if is_known(point) {
        format!(": {:.0}%", 100.0 * share)
    } else {
        ": hidden by noise".to_owned()
    };
    let busy = reading(evidence, "busy-targets", point).map_or_else(String::new, |busy| {
        let (least, most) = (busy_closed(targets, depth), busy_open(targets, depth));
        if busy < ANSWERED * least {
            format!(", {busy:.2} targets busy: a cache answers instead of the disks")
        } else {
            format!(", {busy:.2} targets busy ({least:.2} to {most:.2} expected)")
        }
    });
    format!("depth {depth}{noise}{busy}")
}

/// Returns advice to use a larger depth or more queues, or the reason why neither helps. Empty if
/// no rate is lost.
fn change(evidence: &Evidence, points: &[(&MeasuredPoint, f64)], targets: u32) -> String {
    if let Some(device) = evidence.shared_device() {
        let why = "so neither a larger depth nor more queues raise the rate";
        return format!("; the targets share a device ({device}), {why}");
    }
    let known = points.iter().filter(|(point, _)| is_known(point));
    let are_busy = |point: &MeasuredPoint| {
        reading(evidence, "busy-targets", point)
            .is_some_and(|busy| busy >= ALL_BUSY * f64::from(targets))
    };
    let (full, idle): (Vec<_>, Vec<_>) =
        known.clone().filter(|(_, share)| *share < ENOUGH).partition(|(point, _)| are_busy(point));
    let queue = match known
        .clone()
        .find(|(point, share)| point.depth() >= targets && (*share >= ENOUGH || are_busy(point)))
    {
        _ if idle.is_empty() => String::new(),
        Some((point, _)) => {
            format!("; use depth {} or more, or a queue for each target", point.depth())
        }
        None => "; a queue for each target would keep all targets busy".to_owned(),
    };
    let shared = full.first().map_or_else(String::new, |(point, _)| {
        let depth = point.depth();
        format!(
            "; at depth {depth}, all targets are busy, so shared hardware or queues of unequal \
             length cause the loss"
        )
    });
    format!("{queue}{shared}")
}

/// Checks whether the noise is small enough to judge the rate of a point.
fn is_known(point: &MeasuredPoint) -> bool {
    point.summary.requests_per_s.half_width_relative() <= KNOWN
}

/// Advises to use more than one request for each target if this raises the rate.
fn deeper(found: &mut Conclusion, points: &[&MeasuredPoint], rw: &str) {
    let targets = points[0].disks;
    let Some(base) = points.iter().find(|point| point.depth() >= targets) else { return };
    let Some(top) = points.iter().find(|point| {
        points.iter().all(|other| !curve::differ(point, other) || point.rate() > other.rate())
    }) else {
        return;
    };
    if let (Comparison::Times(gain), true) = (curve::compare(top, base), top.depth() > base.depth())
    {
        let setting = format!("{rw} over {targets} targets at depth {}", top.depth());
        let rate = |point: &MeasuredPoint| units::count(point.requests_per_s());
        let text = format!("{}/s; at depth {}, only {}/s", rate(top), base.depth(), rate(base));
        found.advise("deeper-random", gain, &setting, text);
    }
}

fn claims_of_several(found: &mut Conclusion, evidence: &Evidence) {
    let is_shared = evidence.shared_device().is_some();
    if is_shared {
        found.cannot(&["C194", "C195", "C236"], "the targets share one device; use other targets");
    }
    for (id, rw) in [("C194", "randread"), ("C195", "randwrite")] {
        let four = together(evidence, APART, rw).into_iter().find(|points| points[0].disks == 4);
        let share = four.as_ref().filter(|_| !is_shared).and_then(|points| {
            let point = points.iter().find(|point| point.depth() == 1)?;
            Some(point.requests_per_s() / independent_rate(evidence, point)?)
        });
        let text = |share: f64| {
            let times = words_of_times(4.0 * share);
            format!(
                "four targets, one request each: {times} the rate of one target (published 3.9)"
            )
        };
        found.claim_if(id, share.map(|share| (share >= ENOUGH, text(share))));
    }
    let two =
        together(evidence, SPREAD, "randread").into_iter().find(|points| points[0].disks == 2);
    let pair = two.as_ref().and_then(|points| points.iter().find(|point| point.depth() == 2));
    if let Some(busy) = pair.and_then(|point| reading(evidence, "busy-targets", point)) {
        let share = 2.0 - busy;
        let text = format!(
            "the two outstanding requests were on the same target {:.0}% of the time",
            100.0 * share
        );
        found.value("C196", Some(100.0 * share), text);
    }
    if is_shared {
        return;
    }
    let pair = pair.filter(|point| {
        if !is_known(point) {
            found.cannot(&["C236"], "too noisy; measure for longer (--runtime, --trials)");
        }
        is_known(point)
    });
    let times =
        pair.and_then(|point| Some(2.0 * point.requests_per_s() / even_rate(evidence, point)?));
    let text = |times: f64| {
        let times = words_of_times(times);
        let one = "the rate of one target at depth 1";
        format!("two striped targets at depth 2 reach {times} {one} (published: 1.5)")
    };
    found.claim_if("C236", times.map(|times| ((1.25..=1.75).contains(&times), text(times))));
    let are_real = evidence.targets.iter().all(|target| target.simulated.is_none());
    if evidence.targets.len() > 1 && are_real {
        let count = evidence.targets.len();
        let unless = |ids: &[&'static str], wanted: usize, found: &mut Conclusion| {
            if count != wanted {
                found.cannot(ids, &format!("the claim needs {wanted} targets, not {count}"));
            }
        };
        unless(&["C194", "C195"], 4, found);
        unless(&["C196", "C236"], 2, found);
    }
}

/// Returns the rate that the targets would reach if they shared no hardware (requests per second):
/// the rate of a single target at the same depth, times the number of targets.
fn independent_rate(evidence: &Evidence, point: &MeasuredPoint) -> Option<f64> {
    let curve = alone(evidence, point);
    let one = curve.iter().find(|(depth, _)| *depth == point.depth())?.1;
    Some(one * f64::from(point.disks))
}

fn claims(found: &mut Conclusion, evidence: &Evidence) {
    let read = |depth: &str| at(evidence, DIRECT, "randread", depth);
    let gain = |deep: &str| Some(curve::compare(read(deep)?, read("1")?));
    if let Some((two, four)) = gain("2").zip(gain("4")) {
        let (two_words, four_words) = (two.words(), four.words());
        let text =
            format!("rate compared with depth 1: {two_words} at depth 2, {four_words} at depth 4");
        match (two.times(), four.times()) {
            (Some(two), Some(four)) => {
                found.claim("C100", two < STEP_MIN && four >= STEP_MIN, text);
            }
            _ => found.cannot(&["C100"], &format!("noise: {text}")),
        }
    }
    let buffered = at(evidence, BUFFERED, "randread", "1");
    let comparison = buffered.zip(read("1")).map(|(with, past)| curve::compare(with, past));
    if let Some(why) = comparison.and_then(Comparison::noise) {
        found.cannot(&["C101", "C109"], &why);
    }
    let times = comparison.and_then(Comparison::times);
    for id in ["C101", "C109"] {
        found.gain(id, times, "buffered random reads compared with direct ones, at depth 1");
    }
    let each = per_revolution(evidence, buffered);
    let text = |each: f64| format!("buffered random reads: {each:.2} per revolution");
    found.value_if("C104", each.map(|each| (each, text(each))));
    if buffered.is_some() && per_revolution(evidence, buffered).is_none() {
        let why = "the target is not a single disk with a known rotation speed; use a SCSI or \
                   SATA disk, or sim:w2k-atlas10k";
        found.cannot(&["C104"], why);
    }
    let write = at(evidence, BUFFERED, "randwrite", "1");
    found.value_if(
        "C108",
        write.and_then(device_requests).map(|(requests, _)| {
            let text = format!("{requests:.2} device requests per buffered random write");
            (100.0 * (requests - 1.0), text)
        }),
    );
    let saved =
        buffered.zip(read("1")).and_then(|(with, past)| Some(1.0 - 1.0 / costs(with, past)?));
    found.loss("C189", saved, "CPU time that direct random reads save compared with buffered ones");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::Verdict;
    use lab::evidence::testing::{cell, evidence};
    use lab::machine::{DeviceFacts, TargetFacts};

    fn read(part: &str, depth: &str, per_s: u64) -> MeasuredPoint {
        let flags = [("part", part), ("rw", "randread"), ("bs", "8k"), ("iodepth", depth)];
        cell(per_s * 8192, &flags)
    }

    /// Builds measurements of a disk with 10,000 revolutions per minute that gains from reordering
    /// only above depth 2.
    fn disk() -> Evidence {
        let points = vec![
            read(DIRECT, "1", 100),
            read(DIRECT, "2", 104),
            read(DIRECT, "4", 130),
            read(DIRECT, "32", 180),
            read(BUFFERED, "1", 101),
        ];
        let device = DeviceFacts {
            rotational: Some(true),
            revolutions_per_min: Some(10_000),
            ..DeviceFacts::default()
        };
        let target = TargetFacts { device: Some(device), ..TargetFacts::default() };
        Evidence { targets: vec![target], ..evidence(points) }
    }

    fn verdict(found: &Conclusion, id: &str) -> Verdict {
        found.claims.iter().find(|claim| claim.id == id).unwrap().verdict
    }

    #[test]
    fn a_disk_has_reads_per_revolution_and_gains_from_depth() {
        let found = analyse(&disk());
        let text = |id: &str| &found.findings.iter().find(|one| one.id == id).unwrap().headline;
        assert!(text("revolutions").starts_with("0.60 random reads per revolution at depth 1"));
        assert!(
            text("queue")
                .contains("depth 32 reaches 1.80 times the rate of depth 1, by reordering")
        );
        assert_eq!(found.advice[0].id, "deeper-random");
        assert_eq!(verdict(&found, "C100"), Verdict::Holds);
        assert_eq!(verdict(&found, "C104"), Verdict::CannotBeTried, "absolute value");
        assert_eq!(verdict(&found, "C101"), Verdict::DoesNotHold);
    }

    #[test]
    fn targets_on_one_device_are_not_several_disks() {
        let verdicts = |names: [&str; 2]| {
            let mut apart = read(APART, "1", 190);
            apart.disks = 4;
            let mut evidence = evidence(vec![read(DIRECT, "1", 100), apart]);
            evidence.targets = Vec::from(names.map(|name| TargetFacts {
                device: Some(DeviceFacts { name: name.to_owned(), ..DeviceFacts::default() }),
                ..TargetFacts::default()
            }));
            let mut found = Conclusion::default();
            claims_of_several(&mut found, &evidence);
            found.complete(STUDY.claims, "not measured");
            let here = |id| found.claims.iter().find(|one| one.id == id).unwrap().here.clone();
            ["C194", "C195", "C236"].map(here)
        };
        let same = verdicts(["vda", "vda"]);
        assert!(same.iter().all(|why| why.contains("share one device")), "{same:?}");
        let other = verdicts(["sda", "sdb"]);
        assert!(other[0].contains("1.90 times"), "{other:?}");
    }

    #[test]
    fn a_device_that_does_not_rotate_has_no_reads_per_revolution() {
        let mut evidence = disk();
        let device = DeviceFacts { rotational: Some(false), ..DeviceFacts::default() };
        evidence.targets[0].device = Some(device);
        let found = analyse(&evidence);
        assert!(found.findings.iter().any(|one| one.headline.contains("no rotating device")));
        assert_eq!(verdict(&found, "C104"), Verdict::CannotBeTried);
    }

    #[test]
    fn several_disks_have_no_reads_per_revolution_and_no_reordering() {
        let mut evidence = disk();
        evidence.points.iter_mut().for_each(|point| point.disks = 3);
        let found = analyse(&evidence);
        assert!(found.findings.iter().any(|one| one.headline.contains("of several disks")));
        assert!(found.findings.iter().all(|one| !one.headline.contains("reordering")));
        assert_eq!(verdict(&found, "C104"), Verdict::CannotBeTried);
    }

    #[test]
    fn the_knee_is_the_first_depth_as_fast_as_the_fastest() {
        let mut evidence = disk();
        evidence.points[1].summary.bytes_per_s.low /= 2.0;
        evidence.points[2].summary.bytes_per_s.high *= 2.0;
        let found = analyse(&evidence);
        let queue = &found.findings.iter().find(|one| one.id == "queue").unwrap().headline;
        assert!(queue.contains("depth 4 reaches 1.30 times"), "{queue}");
        assert_eq!(verdict(&found, "C100"), Verdict::CannotBeTried);
    }

    /// Builds measurements of two striped targets. A single target serves 100 requests per second.
    fn two() -> Evidence {
        let on = |part, disks, depth, per_s: u64| {
            let flags = [("rw", "randread"), ("bs", "8k"), ("chunk", "64k")];
            let own = [("part", part), ("disks", disks), ("iodepth", depth)];
            cell(per_s * 8192, &[&flags[..], &own].concat())
        };
        let mut points = vec![read(DIRECT, "1", 100), read(DIRECT, "8", 100)];
        points.extend(vec![
            on(SPREAD, "2", "2", 150),
            on(SPREAD, "2", "8", 188),
            on(APART, "4", "1", 396),
        ]);
        let mut evidence = evidence(points);
        let labels = [("target", "t"), ("rw", "randread"), ("disks", "2"), ("iodepth", "2")];
        let labels = labels.map(|(name, word)| (name, word.to_owned()));
        evidence.note("busy-targets", "count", &labels, 1.5);
        evidence
    }

    #[test]
    fn the_loss_over_several_targets_is_reported_with_the_depth_that_avoids_it() {
        let found = analyse(&two());
        let text = &found.findings.iter().find(|one| one.id == "spread").unwrap().headline;
        assert!(text.contains("depth 2: 75%, 1.50 targets busy (1.33 to 1.50 expected)"), "{text}");
        assert!(text.contains("depth 8: 94%"), "{text}");
        assert!(text.ends_with("use depth 8 or more, or a queue for each target"), "{text}");
        for id in ["C194", "C196", "C236"] {
            assert_eq!(verdict(&found, id), Verdict::Holds, "{id}");
        }
        let deeper = found.advice.iter().find(|one| one.setting.contains("over 2 targets"));
        assert!(deeper.is_some_and(|one| one.id == "deeper-random"), "{found:?}");
    }

    #[test]
    fn the_rate_between_two_depths_is_interpolated() {
        let mut evidence = two();
        evidence.points[1] = read(DIRECT, "4", 200);
        let spread = evidence.points.iter().find(|point| point.depth() == 8).unwrap();
        assert_eq!(even_rate(&evidence, spread), Some(400.0));
        let mut halfway = spread.clone();
        halfway.point.key.workload.depth = 4;
        assert!((even_rate(&evidence, &halfway).unwrap() - 300.0).abs() < 1e-6);
        halfway.point.key.workload.depth = 16;
        assert_eq!(even_rate(&evidence, &halfway), None, "depth 8 was not measured");
    }
}
