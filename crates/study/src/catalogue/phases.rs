//! Where the time of a request goes, phase by phase.
//!
//! On this host each point is measured twice as often as asked, by turns watched by the kernel's
//! tracepoints and not, so that the cost of watching shows beside what was seen. Where requests
//! were not found, or too much of their time lies in no phase, that is said and nothing else. In a
//! simulated system the model's own account tells how busy each part was, and with what the bus.
//!
//! The readings of a point: `phase-mean`, `phase-median` and `phase-p99` of a request's time in a
//! phase; `phase-share` of all requests' time, in a model of the bus's; `phase-utilisation`, the
//! share of the time in which any request was in it, in a model in which the part was busy.
//! Shares of the papers hold where they are met within ten points of a percentage.

use std::collections::BTreeMap;

use analysis::bootstrap::median_interval;
use analysis::interval::CONFIDENCE;
use analysis::quantile::median;
use iotrace::{Phase, Phases};
use lab::failure::Outcome;
use lab::resource_usage;
use report::model::Table;
use report::model::{Axis, Cell as TableCell, Chart, Column, Kind, Point as Dot, Scale, Series};
use report::units::Unit;

use crate::catalogue::Study;
use crate::conclusion::Conclusion;
use crate::evidence::{Evidence, MeasuredPoint};
use crate::plan::Group;
use crate::runner::{Ready, StudyRunner};
use crate::target::StudyTarget;
use crate::traced::{self, TraceSummary, Watch};

/// The study `phases`.
pub const STUDY: Study = Study {
    name: "phases",
    papers: "Riedel 1997, section 5.3 and Table 4: of the time that the bus is used, 45% carries \
             data with requests of 8 KB and 90% with 64 KB; three disks keep it busy to 99%",
    needs: "root and tracefs; a disk, a partition, or a file on ext4 or xfs; several on disks of \
            their own for utilisation by their number; sim:nt4-ultrawide for the phases of a bus",
    plan: r#"
title = "Phases: where the time of a request goes"
asks = "How long is a request in submission, queue, scheduler, device, completion and wake-up?"
compares = true
direct = true
bs = ["4k", "8k", "64k", "256k"]
iodepth = [1, 8, 32]
runtime = 0.4
trials = 3

[quick]
bs = ["8k", "64k"]
iodepth = [1, 8]
runtime = 0.15
trials = 2

[[part]]
name = "read"
rw = "read"
disks = [1, 2, 3]

[[part]]
name = "write"
rw = "write"
disks = 1

[[figure]]
title = "Throughput, traced and not"
x = "bs"
y = "throughput"
by = ["part", "iodepth", "disks", "traced"]
"#,
    claims: &["R147", "R148", "R149", "R150", "R151", "R152"],
    rules: &[],
    measure: Some(measure),
    analyse,
};

/// Fewer requests found in the trace than this share, and its phases are not to be trusted ...
const MATCHED_MIN: f64 = 0.99;
/// ... nor where this share of the time or more lies in no phase.
const UNATTRIBUTED_MAX: f64 = 0.05;
/// Claims about the phases of a bus.
const OF_THE_BUS: [&str; 5] = ["R147", "R148", "R149", "R150", "R152"];
/// How far a share may be from the published one.
const POINTS: f64 = 0.1;
/// Of the resampling that tells the cost of tracing from noise.
const SEED: u64 = 42;
/// What tells one point from another.
const FLAGS: [&str; 8] = ["part", "target", "rw", "bs", "iodepth", "numjobs", "ioengine", "disks"];

// ---- measuring

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    if runner.study_targets.iter().all(StudyTarget::is_simulated) {
        return modelled(runner);
    }
    if !runner.study_targets.iter().all(StudyTarget::is_real) {
        let reason = "the kernel sees no request to a target that lives in this process";
        runner.skip(reason, "name files and devices of this host, or simulated systems, alone");
        return Ok(());
    }
    if let Err(declined) = Watch::check() {
        runner.skip(declined.cause(), declined.remedy());
        return Ok(());
    }
    let groups = runner.groups()?;
    let by_turns =
        |runner: &mut StudyRunner<'_>, ready: &[Ready]| traced::by_turns(runner, ready, tell);
    runner.measure_groups_by(&groups, runner.study_targets, &by_turns)
}

/// Notes what the traces of the newest point told.
fn tell(evidence: &mut Evidence, seen: &[TraceSummary]) {
    let Some(cell) = evidence.cells.last() else { return };
    let labels = labels(cell);
    let all: Vec<&Phases> = seen.iter().flat_map(|one| &one.phases).collect();
    let sum = |of: &dyn Fn(&Phases) -> u64| all.iter().map(|phases| of(phases)).sum::<u64>() as f64;
    let not_logged: u64 = seen.iter().map(|one| one.not_logged).sum();
    let lost: u64 = seen.iter().map(|one| one.lost).sum();
    let total_ns = sum(&|phases| phases.total_ns);
    for (quantity, unit, value) in [
        ("requests", "count", sum(&|phases| phases.requests) + not_logged as f64),
        ("matched", "count", sum(&|phases| phases.matched)),
        ("lost-events", "count", lost as f64),
        ("split", "count", sum(&|phases| phases.split)),
        ("merged", "count", sum(&|phases| phases.merged)),
        ("time", "ns", total_ns),
        ("unattributed", "ns", sum(&|phases| phases.remainder_ns)),
    ] {
        evidence.note(quantity, unit, &labels, value);
    }
    for phase in Phase::ALL {
        let times: Vec<_> = all.iter().filter_map(|phases| phases.time(phase)).collect();
        let requests: u64 = times.iter().map(|time| time.requests).sum();
        if requests == 0 {
            continue;
        }
        let own_ns: u64 = times.iter().map(|time| time.total_ns).sum();
        let mut labels = labels.clone();
        labels.push(("phase", phase.name().to_owned()));
        let busy: f64 = times.iter().map(|time| time.utilisation).sum();
        let of = |value: &dyn Fn(&&iotrace::PhaseTime) -> u64| {
            let values: Vec<f64> = times.iter().map(|time| value(time) as f64).collect();
            median(&values).unwrap_or_default()
        };
        for (quantity, unit, value) in [
            ("phase-mean", "ns", own_ns as f64 / requests as f64),
            ("phase-median", "ns", of(&|time| time.p50_ns)),
            ("phase-p99", "ns", of(&|time| time.p99_ns)),
            ("phase-share", "share", own_ns as f64 / total_ns.max(1.0)),
            ("phase-utilisation", "share", busy / all.len() as f64),
        ] {
            evidence.note(quantity, unit, &labels, value);
        }
    }
}

/// The same points in simulated systems, several disks as one volume.
fn modelled(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    // NT 4 began its volumes 12 KiB off their chunks, and so they were in Table 4.
    let first =
        runner.study_targets.first().map(|study_target| study_target.name.display().to_string());
    let volume = if first.is_some_and(|name| name.starts_with("sim:nt4-")) {
        "volume=stripe,misalign=12k"
    } else {
        "volume=stripe"
    };
    let with_volume = |group: Group| {
        let several = group.disks.is_some_and(|disks| disks > 1);
        let changes = several.then(|| volume.to_owned());
        Group { changes, ..group.note("traced", "no") }
    };
    let groups: Vec<Group> = runner.groups()?.into_iter().map(with_volume).collect();
    runner.measure_groups(&groups)?;
    let balances =
        runner.evidence.cells.iter().map(|cell| (labels(cell), resource_usage::of(&cell.point)));
    for (labels, balance) in balances.collect::<Vec<_>>() {
        let named = |name: &str| {
            let mut labels = labels.clone();
            labels.push(("phase", name.to_owned()));
            labels
        };
        for part in &balance.resources {
            let labels = named(&part.name);
            runner.evidence.note("phase-utilisation", "share", &labels, part.utilisation);
        }
        let bus = balance.resources.iter().find(|part| part.phases_ns.contains_key("arbitrate"));
        let Some(bus) = bus else { continue };
        runner.evidence.note("bus-utilisation", "share", &labels, bus.utilisation);
        let all_ns: u64 = bus.phases_ns.values().sum();
        for (phase, ns) in bus.phases_ns.iter().filter(|_| all_ns > 0) {
            let share = *ns as f64 / all_ns as f64;
            runner.evidence.note("phase-share", "share", &named(phase), share);
        }
    }
    Ok(())
}

/// What tells a point from others.
fn labels(cell: &MeasuredPoint) -> Vec<(&'static str, String)> {
    FLAGS.iter().map(|flag| (*flag, cell.word(flag))).collect()
}

// ---- what it means

/// A point of which there are phases.
struct PhasedPoint<'a> {
    cell: &'a MeasuredPoint,
    /// Its readings that have no phase, and those that have, by phase.
    whole: BTreeMap<&'a str, f64>,
    phases: BTreeMap<&'a str, Vec<(&'a str, f64)>>,
}

impl PhasedPoint<'_> {
    fn of<'a>(evidence: &'a Evidence, cell: &'a MeasuredPoint) -> PhasedPoint<'a> {
        let (labels, mut whole, mut phases) = (labels(cell), BTreeMap::new(), BTreeMap::new());
        for reading in &evidence.readings {
            if labels.iter().any(|(flag, word)| reading.labels.get(*flag) != Some(word)) {
                continue;
            }
            let quantity = reading.quantity.as_str();
            match reading.labels.get("phase") {
                None => drop(whole.insert(quantity, reading.value)),
                Some(phase) => {
                    let of_quantity: &mut Vec<_> = phases.entry(quantity).or_default();
                    of_quantity.push((phase.as_str(), reading.value));
                }
            }
        }
        PhasedPoint { cell, whole, phases }
    }

    fn whole(&self, quantity: &str) -> f64 {
        self.whole.get(quantity).copied().unwrap_or_default()
    }

    fn phases(&self, quantity: &str) -> &[(&str, f64)] {
        self.phases.get(quantity).map_or(&[], Vec::as_slice)
    }

    fn phase(&self, quantity: &str, phase: &str) -> Option<f64> {
        self.phases(quantity).iter().find(|(name, _)| *name == phase).map(|(_, value)| *value)
    }

    /// The largest first.
    fn ranked(&self, quantity: &str) -> Vec<(&str, f64)> {
        let mut all = self.phases(quantity).to_vec();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all
    }

    fn is_traced(&self) -> bool {
        self.whole.contains_key("requests")
    }

    fn matched_share(&self) -> f64 {
        self.whole("matched") / self.whole("requests").max(1.0)
    }

    fn unattributed_share(&self) -> f64 {
        self.whole("unattributed") / self.whole("time").max(1.0)
    }

    fn is_trusted(&self) -> bool {
        !self.is_traced()
            || (self.matched_share() >= MATCHED_MIN && self.unattributed_share() < UNATTRIBUTED_MAX)
    }

    /// "reads of 8 KiB at depth 8 on 2 devices".
    fn name(&self) -> String {
        let MeasuredPoint { disks, part, .. } = self.cell;
        let on = if *disks > 1 { format!(" on {disks} devices") } else { String::new() };
        let (size, depth) = (units::size(self.cell.bytes()), self.cell.depth());
        format!("{part}s of {size} at depth {depth}{on}")
    }
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    let all: Vec<PhasedPoint<'_>> = evidence
        .usable()
        .filter(|cell| cell.word("traced") == "yes" || cell.point.key.is_simulated)
        .map(|cell| PhasedPoint::of(evidence, cell))
        .filter(|told| !told.phases.is_empty() || told.is_traced())
        .collect();
    let trusted: Vec<&PhasedPoint<'_>> = all.iter().filter(|told| told.is_trusted()).collect();
    let corners = corners(&trusted);
    for told in &corners {
        if told.is_traced() { way(&mut found, told) } else { parts(&mut found, told) }
    }
    if all.iter().any(PhasedPoint::is_traced) {
        growth(&mut found, &trusted);
        trace(&mut found, &all);
        cost(&mut found, evidence, &all);
        let why = "no bus of today tells its phases without an analyser on its wires; the phase \
                   device holds what link and medium take together";
        found.cannot(&OF_THE_BUS, why);
    } else {
        bus_claims(&mut found, &trusted);
    }
    second_disk(&mut found, evidence);
    found.charts = charts(&trusted, &corners);
    found.tables.extend(table(&all));
    found
}

/// The points that tell most: small and large requests alone, small ones at depth, and all devices
/// together.
fn corners<'a>(all: &[&'a PhasedPoint<'a>]) -> Vec<&'a PhasedPoint<'a>> {
    let mut corners: Vec<&PhasedPoint<'_>> = Vec::new();
    for part in ["read", "write"] {
        let mut of: Vec<&PhasedPoint<'_>> =
            all.iter().filter(|told| told.cell.part == part).copied().collect();
        let key = |told: &PhasedPoint<'_>| (told.cell.disks, told.cell.depth(), told.cell.bytes());
        of.sort_by_key(|told| key(told));
        let (Some(first), Some(last)) = (of.first(), of.last()) else { continue };
        let (disks, depth) = (first.cell.disks, first.cell.depth());
        let alone = of.iter().filter(|told| told.cell.disks == disks);
        let large = alone.clone().rfind(|told| told.cell.depth() == depth);
        let deepest = alone.map(|told| told.cell.depth()).max().unwrap_or(depth);
        let deep = of.iter().find(|t| t.cell.disks == disks && t.cell.depth() == deepest);
        let several = Some(last).filter(|told| told.cell.disks > disks);
        for told in [Some(first), large, deep, several].into_iter().flatten() {
            if corners.iter().all(|other| !std::ptr::eq(*other, *told)) {
                corners.push(told);
            }
        }
    }
    corners
}

/// The largest, as shares.
fn listed(ranked: &[(&str, f64)], most: usize) -> String {
    let told = ranked.iter().filter(|(_, share)| *share >= 0.005).take(most);
    let told: Vec<String> =
        told.map(|(name, share)| format!("{name} {}", percent(*share))).collect();
    told.join(", ")
}

fn percent(share: f64) -> String {
    match 100.0 * share {
        small if small.abs() < 9.95 => format!("{small:.1}%"),
        large => format!("{large:.0}%"),
    }
}

/// What would shorten a phase.
fn remedy(phase: &str) -> &'static str {
    match phase {
        "submit" => {
            "more requests in each call, or a thread of the kernel that submits (--sqthread-poll), \
             would shorten the longest"
        }
        "queue" => "fewer requests at once, or smaller ones, would wait less",
        "scheduler" => "fewer requests at once, or the scheduler none, would wait less",
        "device" => "only another device, or fewer requests at once, is faster",
        "completion" => {
            "the kernel's way back is the longest: a file system that finishes requests in a \
             thread of its own has no part in those to a device"
        }
        _ => "polling for completions (--hipri, where the device can) saves the longest",
    }
}

/// How long a request takes, and in which phases.
fn way(found: &mut Conclusion, told: &PhasedPoint<'_>) {
    let shares = told.ranked("phase-share");
    let Some((longest, _)) = shares.first() else { return };
    let mean_ns: f64 = told.phases("phase-mean").iter().map(|(_, ns)| ns).sum();
    let (name, time) = (told.name(), units::time(mean_ns));
    let text = format!("{name} take {time}: {}; {}", listed(&shares, 7), remedy(longest));
    found.find("way", text);
}

/// How busy the parts of a simulated system are, and with what its bus.
fn parts(found: &mut Conclusion, told: &PhasedPoint<'_>) {
    let busy = listed(&told.ranked("phase-utilisation"), 3);
    let text = match told.phase("phase-share", "data") {
        None => format!("{}: busy are {busy}", told.name()),
        Some(data) => {
            let mut others = told.ranked("phase-share");
            others.retain(|(phase, _)| *phase != "data");
            format!(
                "{}: the bus is busy for {}, {} of that with data, the rest with {}; all parts: \
                 {busy}",
                told.name(),
                percent(told.whole("bus-utilisation")),
                percent(data),
                listed(&others, 3)
            )
        }
    };
    found.find("busy", text);
}

/// What grows with the size of a request: the device, or the way to it.
fn growth(found: &mut Conclusion, all: &[&PhasedPoint<'_>]) {
    for part in ["read", "write"] {
        let of = all.iter().filter(|t| t.cell.part == part && t.cell.disks == 1);
        let Some(depth) = of.clone().map(|told| told.cell.depth()).min() else { continue };
        let of = of.filter(|told| told.cell.depth() == depth);
        let small = of.clone().min_by_key(|told| told.cell.bytes());
        let large = of.max_by_key(|told| told.cell.bytes());
        let (Some(small), Some(large)) = (small, large) else { continue };
        if small.cell.bytes() == large.cell.bytes() {
            continue;
        }
        let device_ns =
            |told: &PhasedPoint<'_>| told.phase("phase-mean", "device").unwrap_or_default();
        let others_ns = |told: &PhasedPoint<'_>| {
            let all_ns: f64 = told.phases("phase-mean").iter().map(|(_, ns)| ns).sum();
            all_ns - device_ns(told)
        };
        let size = |told: &PhasedPoint<'_>| units::size(told.cell.bytes());
        let text = format!(
            "from {} to {} a {part} alone is in the device for {} instead of {}, and elsewhere for \
             {} instead of {}",
            size(small),
            size(large),
            units::time(device_ns(large)),
            units::time(device_ns(small)),
            units::time(others_ns(large)),
            units::time(others_ns(small)),
        );
        found.find("size", text);
    }
}

/// How much of the requests was seen, and what is not to be trusted.
fn trace(found: &mut Conclusion, all: &[PhasedPoint<'_>]) {
    let sum = |quantity: &str| all.iter().map(|told| told.whole(quantity)).sum::<f64>();
    let (requests, lost) = (sum("requests"), sum("lost-events"));
    let least = all.iter().map(PhasedPoint::matched_share).fold(1.0, f64::min);
    let most = all.iter().map(PhasedPoint::unattributed_share).fold(0.0, f64::max);
    found.find(
        "trace",
        format!(
            "{:.2}% of {} requests were found in the trace (at worst {:.2}% of a point), {lost} \
             events were lost, {:.2}% of the time is in no phase (at worst {:.2}%)",
            100.0 * sum("matched") / requests.max(1.0),
            units::count(requests),
            100.0 * least,
            100.0 * sum("unattributed") / sum("time").max(1.0),
            100.0 * most,
        ),
    );
    let doubted: Vec<String> =
        all.iter().filter(|told| !told.is_trusted()).map(PhasedPoint::name).collect();
    if !doubted.is_empty() {
        found.find(
            "not-trusted",
            format!(
                "the phases of {} are not to be trusted: fewer than {:.0}% of the requests were \
                 found, or {:.0}% of the time or more is in no phase; make trials shorter \
                 (--runtime), depth smaller, or quiet the machine",
                doubted.join("; "),
                100.0 * MATCHED_MIN,
                100.0 * UNATTRIBUTED_MAX,
            ),
        );
    }
}

/// What tracing took from the load: rate, and CPU.
fn cost(found: &mut Conclusion, evidence: &Evidence, all: &[PhasedPoint<'_>]) {
    let (mut changes, mut cpu_ns) = (Vec::new(), Vec::new());
    for traced in all.iter().map(|told| told.cell) {
        let mine = labels(traced);
        let is_other = |cell: &&MeasuredPoint| cell.word("traced") == "no" && labels(cell) == mine;
        let Some(untraced) = evidence.usable().find(is_other) else { continue };
        if untraced.requests_per_s() > 0.0 {
            changes.push(traced.requests_per_s() / untraced.requests_per_s() - 1.0);
        }
        let both = traced.cpu_ns().zip(untraced.cpu_ns());
        cpu_ns.extend(both.map(|(with, without)| with - without));
    }
    let Some(change) = median_interval(&changes, CONFIDENCE, SEED) else { return };
    let signed = |share: f64| format!("{:+.1}%", 100.0 * share);
    let rate = if change.low <= 0.0 && change.high >= 0.0 {
        "makes no difference of the rate beyond noise".to_owned()
    } else {
        format!("changes the rate by {}", signed(change.value))
    };
    let points = match changes.as_slice() {
        [_] => "at one point".to_owned(),
        all => format!(
            "in the median of {} points ({} to {})",
            all.len(),
            signed(change.low),
            signed(change.high)
        ),
    };
    let cpu = median(&cpu_ns)
        .map(|ns| format!(", and costs {} of CPU for each request", units::time(ns)));
    found.find("cost", format!("tracing {rate} {points}{}", cpu.unwrap_or_default()));
}

// ---- the papers

/// Table 4: what the bus of the model does, and for how long.
fn bus_claims(found: &mut Conclusion, all: &[&PhasedPoint<'_>]) {
    let find = |bytes: u64, depth: u32, disks: u32| {
        all.iter().find(|told| {
            let cell = told.cell;
            let key = (cell.bytes(), cell.depth(), cell.disks);
            cell.part == "read"
                && key == (bytes, depth, disks)
                && told.whole("bus-utilisation") > 0.0
        })
    };
    let (small, large) = (find(8 << 10, 1, 1), find(64 << 10, 1, 1));
    let (two, three) = (find(64 << 10, 8, 2), find(64 << 10, 8, 3));
    let data = |told: &&PhasedPoint<'_>| told.phase("phase-share", "data");
    let busy = |told: &&PhasedPoint<'_>| told.whole("bus-utilisation");
    for (id, share, published, what) in [
        ("R147", small.and_then(data), 0.45, "of the bus's time carries data at 8 KiB"),
        ("R148", large.and_then(data), 0.9, "of the bus's time carries data at 64 KiB"),
        ("R149", small.map(busy), 0.6, "of the time the bus is busy at 8 KiB"),
        ("R152", three.map(busy), 0.99, "of the time the bus is busy with three disks"),
    ] {
        let seen = share.map(|share| {
            ((share - published).abs() <= POINTS, format!("{} {what}", percent(share)))
        });
        found.claim_if(id, seen);
    }
    let rise = two.zip(large).map(|(two, one)| busy(two) / busy(one));
    found.gain("R150", rise, "use of the bus with a second disk");
}

/// What a second disk brings, at the same depth.
fn second_disk(found: &mut Conclusion, evidence: &Evidence) {
    let of = |disks| {
        let flags = [("part", "read"), ("bs", "64k"), ("iodepth", "8"), ("traced", "no")];
        evidence.find(&[flags.as_slice(), &[("disks", disks)]].concat()).map(MeasuredPoint::rate)
    };
    let times = of("2").zip(of("1")).map(|(two, one)| two / one.max(f64::MIN_POSITIVE));
    found.gain("R151", times, "reads of 64 KiB at depth 8 from two disks over one");
}

// ---- pictures

fn charts(all: &[&PhasedPoint<'_>], corners: &[&PhasedPoint<'_>]) -> Vec<Chart> {
    let traced = corners.iter().any(|told| told.is_traced());
    let (bars, label, unit) = if traced {
        ("phase-mean", "Mean time of a request", Unit::Nanoseconds)
    } else {
        ("phase-share", "Share of the time that the bus is used", Unit::Share)
    };
    let mut charts: Vec<Chart> = by_phase(corners, bars, (label, unit)).into_iter().collect();
    let reads: Vec<&PhasedPoint<'_>> =
        all.iter().filter(|t| t.cell.part == "read").copied().collect();
    let shallow = reads.iter().map(|told| told.cell.depth()).min();
    let deep = reads.iter().map(|told| told.cell.depth()).max();
    let alone = |depth: Option<u32>| -> Vec<&PhasedPoint<'_>> {
        let is =
            |told: &&&PhasedPoint<'_>| told.cell.disks == 1 && Some(told.cell.depth()) == depth;
        reads.iter().filter(is).copied().collect()
    };
    let largest = reads.iter().map(|told| told.cell.bytes()).max();
    let together: Vec<&PhasedPoint<'_>> = reads
        .iter()
        .filter(|told| Some(told.cell.depth()) == deep && Some(told.cell.bytes()) == largest)
        .copied()
        .collect();
    for (id, points, x, at) in [
        ("phases-size", alone(shallow), "Request size", "reads alone"),
        ("phases-size-deep", alone(deep), "Request size", "deepest reads"),
        ("phases-devices", together, "Devices together", "largest and deepest reads"),
    ] {
        charts.extend(against(id, &points, x, at));
    }
    charts
}

/// Bars: a group for each phase, a bar for each point.
fn by_phase(
    corners: &[&PhasedPoint<'_>],
    quantity: &str,
    (label, unit): (&str, Unit),
) -> Option<Chart> {
    let mut names: Vec<String> = Vec::new();
    for (phase, value) in corners.iter().flat_map(|told| told.phases(quantity)) {
        if *value > 0.0 && names.iter().all(|name| name != phase) {
            names.push((*phase).to_owned());
        }
    }
    let line = |told: &&PhasedPoint<'_>| {
        let at = |name: &String| told.phase(quantity, name).unwrap_or_default();
        let dots = names.iter().enumerate().map(|(x, name)| dot(x as f64, at(name)));
        Series { name: told.name(), points: dots.collect(), dashed: false, hue: None }
    };
    let series: Vec<Series> =
        corners.iter().filter(|told| !told.phases(quantity).is_empty()).map(line).collect();
    (!names.is_empty()).then(|| Chart {
        id: "phases-bars".to_owned(),
        title: format!("{label}, by phase"),
        summary: format!("{label}, phase by phase, for a few points."),
        x: Axis { label: "Phase".to_owned(), unit: Unit::Count, scale: Scale::Category(names) },
        y: Axis { label: label.to_owned(), unit, scale: Scale::Linear },
        series,
        guides: Vec::new(),
        kind: Kind::Bars,
    })
}

/// Lines: the utilisation of each phase against size or number of devices.
fn against(id: &str, points: &[&PhasedPoint<'_>], x: &str, at: &str) -> Option<Chart> {
    let (unit, by_size) = match x {
        "Request size" => (Unit::Bytes, true),
        _ => (Unit::Count, false),
    };
    let place = |told: &PhasedPoint<'_>| {
        if by_size { told.cell.bytes() as f64 } else { f64::from(told.cell.disks) }
    };
    let mut lines: Vec<Series> = Vec::new();
    for told in points {
        for (phase, share) in told.phases("phase-utilisation") {
            let point = dot(place(told), *share);
            match lines.iter_mut().find(|line| line.name == *phase) {
                Some(line) => line.points.push(point),
                None => lines.push(Series {
                    name: (*phase).to_owned(),
                    points: vec![point],
                    dashed: false,
                    hue: None,
                }),
            }
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
    lines.retain(|line| line.points.len() > 1 && line.points.iter().any(|dot| dot.y > 0.0));
    let scale = if by_size { Scale::Log2 } else { Scale::Linear };
    (!lines.is_empty()).then(|| Chart {
        id: id.to_owned(),
        title: format!("Utilisation by phase against {}, {at}", x.to_lowercase()),
        summary: "The share of the time in which any request was in the phase.".to_owned(),
        x: Axis { label: x.to_owned(), unit, scale },
        y: Axis { label: "Utilisation".to_owned(), unit: Unit::Share, scale: Scale::Linear },
        series: lines,
        guides: Vec::new(),
        kind: Kind::Lines,
    })
}

fn dot(x: f64, y: f64) -> Dot {
    Dot { x, y, low: None, high: None, note: None }
}

/// Every phase of every point.
fn table(all: &[PhasedPoint<'_>]) -> Option<Table> {
    let columns = [
        ("Point", None),
        ("Phase or part", None),
        ("Mean", Some(Unit::Nanoseconds)),
        ("Median", Some(Unit::Nanoseconds)),
        ("99%", Some(Unit::Nanoseconds)),
        ("Share", Some(Unit::Share)),
        ("Utilisation", Some(Unit::Share)),
    ];
    let rows = |told: &PhasedPoint<'_>| {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in told.phases.values().flatten() {
            if !names.contains(name) {
                names.push(name);
            }
        }
        let row = |name: &str| {
            let quantities =
                ["phase-mean", "phase-median", "phase-p99", "phase-share", "phase-utilisation"];
            let numbers = quantities.map(|quantity| TableCell::from(told.phase(quantity, name)));
            let words = [TableCell::Text(told.name()), TableCell::from(name)];
            words.into_iter().chain(numbers).collect::<Vec<TableCell>>()
        };
        names.into_iter().map(row).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<TableCell>> = all.iter().flat_map(rows).collect();
    let column = |(label, unit): (&str, Option<Unit>)| Column { label: label.to_owned(), unit };
    (!rows.is_empty()).then(|| Table {
        id: "phases-all".to_owned(),
        caption: "Time, share and utilisation of each phase".to_owned(),
        columns: columns.map(column).to_vec(),
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::Verdict;
    use crate::evidence::tests::cell;

    /// A trace of one point: requests of which so many were found, that spent so long in the
    /// device and as long in the queue, and so long nowhere.
    fn seen(requests: u64, matched: u64, unattributed_ns: u64) -> TraceSummary {
        let time = |phase, each_ns: u64| iotrace::PhaseTime {
            phase,
            requests: matched,
            mean_ns: each_ns as f64,
            p50_ns: each_ns,
            p99_ns: each_ns,
            max_ns: each_ns,
            total_ns: each_ns * matched,
            share: 0.0,
            utilisation: 0.5,
        };
        let phases = Phases {
            requests,
            matched,
            times: vec![time(Phase::Queue, 10_000), time(Phase::Device, 90_000)],
            total_ns: 100_000 * matched + unattributed_ns,
            remainder_ns: unattributed_ns,
            ..Phases::default()
        };
        TraceSummary { phases: vec![phases], lost: 0, not_logged: 0 }
    }

    /// Points of one size each, untraced and traced.
    fn traced(points: &[(&str, u64, u64, TraceSummary)]) -> Evidence {
        let mut evidence = Evidence::default();
        for (bs, without, with, seen) in points {
            let flags =
                |traced| [("part", "read"), ("rw", "read"), ("bs", *bs), ("traced", traced)];
            evidence.cells.push(cell(*without, &flags("no")));
            evidence.cells.push(cell(*with, &flags("yes")));
            tell(&mut evidence, std::slice::from_ref(seen));
        }
        evidence
    }

    fn texts<'a>(found: &'a Conclusion, id: &str) -> Vec<&'a str> {
        let findings = found.findings.iter().filter(|finding| finding.id == id);
        findings.map(|finding| finding.text.as_str()).collect()
    }

    #[test]
    fn the_time_of_a_request_is_told_by_phase_and_the_claims_of_a_bus_cannot_be_tried() {
        let found = analyse(&traced(&[("8k", 1 << 30, 1 << 29, seen(1000, 1000, 0))]));
        let way = texts(&found, "way")[0];
        assert!(way.contains("take 100 us: device 90%, queue 10%"), "{way}");
        assert!(texts(&found, "trace")[0].starts_with("100.00% of 1000 requests"));
        assert!(
            texts(&found, "cost")[0].contains("changes the rate by -50.0% at one point"),
            "{:?}",
            found.findings
        );
        assert!(texts(&found, "not-trusted").is_empty());
        assert!(found.claims.iter().all(|claim| claim.verdict == Verdict::CannotBeTried));
        assert!(found.charts.iter().any(|chart| chart.id == "phases-bars"));
    }

    #[test]
    fn points_that_were_not_seen_whole_are_doubted_and_say_nothing_else() {
        let found = analyse(&traced(&[
            ("4k", 1 << 30, 1 << 30, seen(1000, 980, 0)),
            ("8k", 1 << 30, 1 << 30, seen(1000, 1000, 6_000_000)),
            ("64k", 1 << 30, 1 << 30, seen(1000, 995, 1_000_000)),
        ]));
        let doubt = texts(&found, "not-trusted")[0];
        assert!(doubt.contains("reads of 4 KiB") && doubt.contains("reads of 8 KiB"), "{doubt}");
        assert!(!doubt.contains("64 KiB"), "{doubt}");
        let ways = texts(&found, "way");
        assert!(ways.len() == 1 && ways[0].starts_with("reads of 64 KiB"), "{ways:?}");
        let trace = texts(&found, "trace")[0];
        assert!(trace.contains("at worst 98.00%") && trace.contains("at worst 5.66%"), "{trace}");
    }

    #[test]
    fn requests_for_which_the_log_had_no_room_are_not_found() {
        let short = TraceSummary { not_logged: 1000, ..seen(1000, 1000, 0) };
        let found = analyse(&traced(&[("4k", 1 << 30, 1 << 30, short)]));
        assert!(texts(&found, "trace")[0].starts_with("50.00% of 2000 requests"));
        assert_eq!(texts(&found, "not-trusted").len(), 1);
    }

    #[test]
    fn times_of_several_devices_and_trials_are_taken_together() {
        let mut evidence = Evidence::default();
        evidence.cells.push(cell(1 << 30, &[("part", "read"), ("bs", "4k"), ("traced", "yes")]));
        tell(&mut evidence, &[seen(100, 100, 0), seen(300, 300, 2_000_000)]);
        assert_eq!(evidence.value("requests", &[]), Some(400.0));
        assert_eq!(evidence.value("unattributed", &[]), Some(2e6));
        assert_eq!(evidence.value("phase-mean", &[("phase", "device")]), Some(90e3));
        let share = evidence.value("phase-share", &[("phase", "device")]).unwrap();
        assert!((share - 0.9 * 40.0 / 42.0).abs() < 1e-12, "{share}");
        assert_eq!(evidence.value("phase-utilisation", &[("phase", "queue")]), Some(0.5));
    }

    #[test]
    fn what_a_model_says_of_its_bus_decides_the_claims() {
        let mut evidence = Evidence::default();
        for (bs, data, busy) in [("8k", 0.47, 0.58), ("64k", 0.6, 0.4)] {
            let mut point = cell(1 << 20, &[("part", "read"), ("bs", bs), ("iodepth", "1")]);
            point.point.key.is_simulated = true;
            let mut labels = labels(&point);
            evidence.cells.push(point);
            evidence.note("bus-utilisation", "share", &labels, busy);
            labels.push(("phase", "data".to_owned()));
            evidence.note("phase-share", "share", &labels, data);
        }
        let found = analyse(&evidence);
        let verdicts: Vec<_> = found.claims.iter().map(|c| (c.id, c.verdict)).collect();
        let (holds, does_not) = (Verdict::Holds, Verdict::DoesNotHold);
        assert_eq!(verdicts, [("R147", holds), ("R148", does_not), ("R149", holds)]);
    }
}
