//! Study `phases`: the time that a request spends in each phase.
//!
//! On this host, each point is measured alternately with and without the kernel's tracepoints. The
//! difference is the cost of tracing. If too few requests are found in the trace, or too much of
//! their time belongs to no phase, the study reports this problem instead of the phases.
//!
//! A simulated system needs no trace. It reports how busy its parts (disks, bus) were, and how the
//! bus was used.
//!
//! Each point has these readings:
//!
//! - `phase-mean`, `phase-median`, `phase-p99`: the mean, the median and the 99th percentile of the
//!   time of a request in a phase
//! - `phase-share`: the phase's share of the time of all requests. In a simulated system: the
//!   phase's share of the time during which the bus was busy
//! - `phase-utilisation`: the share of the run during which at least one request was in the phase.
//!   In a simulated system: the share of the run during which a part was busy
//!
//! A claim about a share holds within ten percentage points of the published value.

use analysis::units;
use std::collections::BTreeMap;

use analysis::bootstrap::median_interval;
use analysis::interval::CONFIDENCE;
use analysis::quantile::median;
use iotrace::{Phase, Phases};
use lab::evidence::{Evidence, MeasuredPoint};
use lab::failure::Outcome;
use lab::resource_usage;
use report::model::Table;
use report::model::{Axis, Cell as TableCell, Chart, Column, Kind, Point as Dot, Scale, Series};
use report::units::Unit;

use crate::catalogue::Study;
use crate::conclusion::Conclusion;
use crate::plan::Group;
use crate::runner::{Ready, StudyRunner};
use crate::target::StudyTarget;
use crate::traced::{self, TraceSummary, Watch};

pub const STUDY: Study = Study {
    name: "phases",
    papers: "Riedel 1997, section 5.3 and Table 4: the transfer of data takes 45% of the busy \
             time of the bus with requests of 8 KB, and 90% with 64 KB; with three disks, the bus \
             is 99% busy",
    needs: "root and tracefs; a disk, a partition, or a file on ext4 or xfs; several targets on \
            separate disks to measure the utilisation by number of disks; sim:nt4-ultrawide to \
            measure the phases of a bus",
    plan: include_str!("../../plans/phases.toml"),
    claims: &["R147", "R148", "R149", "R150", "R151", "R152"],
    rules: &[],
    measure: Some(measure),
    analyse,
};

/// The phases of a point are trusted only if at least this share of its requests was found in the
/// trace.
const MATCHED_MIN: f64 = 0.99;
/// The phases of a point are trusted only if less than this share of the requests' time belongs to
/// no phase.
const UNATTRIBUTED_MAX: f64 = 0.05;
/// The claims about the phases of a bus.
const OF_THE_BUS: [&str; 5] = ["R147", "R148", "R149", "R150", "R152"];
/// The flags that together identify a point.
const FLAGS: [&str; 8] = ["part", "target", "rw", "bs", "iodepth", "numjobs", "ioengine", "disks"];

// ---- measuring

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    if runner.study_targets.iter().all(StudyTarget::is_simulated) {
        return modelled(runner);
    }
    if !runner.study_targets.iter().all(StudyTarget::is_real) {
        let reason = "only requests to files and devices of this host can be traced";
        runner.skip(reason, "use only files and devices of this host, or only simulated systems");
        return Ok(());
    }
    if let Err(declined) = Watch::check() {
        runner.skip(declined.cause(), declined.remedy());
        return Ok(());
    }
    let groups = runner.groups()?;
    let by_turns = |runner: &mut StudyRunner<'_>, ready: &[Ready]| {
        traced::by_turns(runner, ready, note_phases)
    };
    runner.measure_groups_by(&groups, runner.study_targets, &by_turns)
}

/// Adds readings for each phase of the last point in the evidence. `traces` are the traces of this
/// point.
fn note_phases(evidence: &mut Evidence, traces: &[TraceSummary]) {
    let Some(point) = evidence.points.last() else { return };
    let labels = labels(point);
    let all: Vec<&Phases> = traces.iter().flat_map(|one| &one.phases).collect();
    let sum = |of: &dyn Fn(&Phases) -> u64| all.iter().map(|phases| of(phases)).sum::<u64>() as f64;
    let not_logged: u64 = traces.iter().map(|one| one.not_logged).sum();
    let lost: u64 = traces.iter().map(|one| one.lost).sum();
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

/// Measures the points of the plan in simulated systems. Several disks form a striped volume.
fn modelled(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    // A volume of NT 4 started 12 KiB after a chunk boundary, so the requests of Table 4 (first
    // paper) were misaligned.
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
    let balances = runner
        .evidence
        .points
        .iter()
        .map(|point| (labels(point), resource_usage::of(&point.point)));
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

fn labels(point: &MeasuredPoint) -> Vec<(&'static str, String)> {
    FLAGS.iter().map(|flag| (*flag, point.word(flag))).collect()
}

// ---- findings

/// A point with the readings of its phases.
struct PhasedPoint<'a> {
    point: &'a MeasuredPoint,
    /// The readings that do not belong to a phase, by quantity.
    whole: BTreeMap<&'a str, f64>,
    /// The readings of each phase (name of the phase, value), by quantity.
    phases: BTreeMap<&'a str, Vec<(&'a str, f64)>>,
}

impl PhasedPoint<'_> {
    fn of<'a>(evidence: &'a Evidence, point: &'a MeasuredPoint) -> PhasedPoint<'a> {
        let (labels, mut whole, mut phases) = (labels(point), BTreeMap::new(), BTreeMap::new());
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
        PhasedPoint { point, whole, phases }
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

    /// Returns the readings of a quantity (name of the phase, value), largest value first.
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

    /// Describes the point, such as "reads of 8 KiB at depth 8 on 2 devices".
    fn name(&self) -> String {
        let MeasuredPoint { disks, part, .. } = self.point;
        let on = if *disks > 1 { format!(" on {disks} devices") } else { String::new() };
        let (size, depth) = (units::size(self.point.bytes()), self.point.depth());
        format!("{part}s of {size} at depth {depth}{on}")
    }
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    let all: Vec<PhasedPoint<'_>> = evidence
        .usable()
        .filter(|point| point.word("traced") == "yes" || point.point.key.is_simulated)
        .map(|point| PhasedPoint::of(evidence, point))
        .filter(|phased| !phased.phases.is_empty() || phased.is_traced())
        .collect();
    let trusted: Vec<&PhasedPoint<'_>> = all.iter().filter(|phased| phased.is_trusted()).collect();
    let corners = corners(&trusted);
    for phased in &corners {
        if phased.is_traced() {
            time_by_phase(&mut found, phased);
        } else {
            parts(&mut found, phased);
        }
    }
    if all.iter().any(PhasedPoint::is_traced) {
        growth(&mut found, &trusted);
        trace(&mut found, &all);
        cost(&mut found, evidence, &all);
        let why = "only a hardware analyser shows the phases of a bus; here, the phase \"device\" \
                   is the time of link and medium together";
        found.cannot(&OF_THE_BUS, why);
    } else {
        bus_claims(&mut found, &trusted);
    }
    second_disk(&mut found, evidence);
    found.charts = charts(&trusted, &corners);
    found.tables.extend(table(&all));
    found
}

/// Chooses the points that are reported in detail: small and large requests at the smallest depth,
/// small requests at the largest depth, and requests to all devices together.
fn corners<'a>(all: &[&'a PhasedPoint<'a>]) -> Vec<&'a PhasedPoint<'a>> {
    let mut corners: Vec<&PhasedPoint<'_>> = Vec::new();
    for part in ["read", "write"] {
        let mut of: Vec<&PhasedPoint<'_>> =
            all.iter().filter(|phased| phased.point.part == part).copied().collect();
        let key = |phased: &PhasedPoint<'_>| {
            (phased.point.disks, phased.point.depth(), phased.point.bytes())
        };
        of.sort_by_key(|phased| key(phased));
        let (Some(first), Some(last)) = (of.first(), of.last()) else { continue };
        let (disks, depth) = (first.point.disks, first.point.depth());
        let alone = of.iter().filter(|phased| phased.point.disks == disks);
        let large = alone.clone().rfind(|phased| phased.point.depth() == depth);
        let deepest = alone.map(|phased| phased.point.depth()).max().unwrap_or(depth);
        let deep = of.iter().find(|t| t.point.disks == disks && t.point.depth() == deepest);
        let several = Some(last).filter(|phased| phased.point.disks > disks);
        for phased in [Some(first), large, deep, several].into_iter().flatten() {
            if corners.iter().all(|other| !std::ptr::eq(*other, *phased)) {
                corners.push(phased);
            }
        }
    }
    corners
}

/// Formats the largest shares, such as "device 90%, queue 10%". Shares below 0.5% are omitted.
fn listed(ranked: &[(&str, f64)], most: usize) -> String {
    let phased = ranked.iter().filter(|(_, share)| *share >= 0.005).take(most);
    let phased: Vec<String> =
        phased.map(|(name, share)| format!("{name} {}", percent(*share))).collect();
    phased.join(", ")
}

fn percent(share: f64) -> String {
    match 100.0 * share {
        small if small.abs() < 9.95 => format!("{small:.1}%"),
        large => format!("{large:.0}%"),
    }
}

/// Returns advice on how to shorten the longest phase.
fn remedy(phase: &str) -> &'static str {
    match phase {
        "submit" => {
            "submit more requests per call, or use SQPOLL (--sqthread-poll), to shorten the \
             longest phase"
        }
        "queue" => "lower the depth or the request size to shorten the longest phase",
        "scheduler" => "lower the depth, or use the scheduler none, to shorten the longest phase",
        "device" => "only a faster device or a lower depth would shorten the longest phase",
        "completion" => {
            "the longest phase is completion in the kernel; I/O to the device instead of a file \
             avoids the file system's completion thread"
        }
        _ => "poll for completions (--hipri, if the device supports it) to avoid the longest phase",
    }
}

/// Reports the mean time of a request, and the share of each phase.
fn time_by_phase(found: &mut Conclusion, phased: &PhasedPoint<'_>) {
    let shares = phased.ranked("phase-share");
    let Some((longest, _)) = shares.first() else { return };
    let mean_ns: f64 = phased.phases("phase-mean").iter().map(|(_, ns)| ns).sum();
    let (name, time) = (phased.name(), units::time(mean_ns));
    let text =
        format!("{name} take {time} on average: {}; {}", listed(&shares, 7), remedy(longest));
    found.find("way", text);
}

/// Reports how busy the parts of a simulated system were, and how its bus was used.
fn parts(found: &mut Conclusion, phased: &PhasedPoint<'_>) {
    let busy = listed(&phased.ranked("phase-utilisation"), 3);
    let text = match phased.phase("phase-share", "data") {
        None => format!("{}: busiest parts: {busy}", phased.name()),
        Some(data) => {
            let mut others = phased.ranked("phase-share");
            others.retain(|(phase, _)| *phase != "data");
            format!(
                "{}: the bus is {} busy (shares of the busy time: data {}, {}); busiest parts: \
                 {busy}",
                phased.name(),
                percent(phased.whole("bus-utilisation")),
                percent(data),
                listed(&others, 3)
            )
        }
    };
    found.find("busy", text);
}

/// Reports how the request size changes the time in the device and the time in all other phases.
fn growth(found: &mut Conclusion, all: &[&PhasedPoint<'_>]) {
    for part in ["read", "write"] {
        let of = all.iter().filter(|t| t.point.part == part && t.point.disks == 1);
        let Some(depth) = of.clone().map(|phased| phased.point.depth()).min() else { continue };
        let of = of.filter(|phased| phased.point.depth() == depth);
        let small = of.clone().min_by_key(|phased| phased.point.bytes());
        let large = of.max_by_key(|phased| phased.point.bytes());
        let (Some(small), Some(large)) = (small, large) else { continue };
        if small.point.bytes() == large.point.bytes() {
            continue;
        }
        let device_ns =
            |phased: &PhasedPoint<'_>| phased.phase("phase-mean", "device").unwrap_or_default();
        let others_ns = |phased: &PhasedPoint<'_>| {
            let all_ns: f64 = phased.phases("phase-mean").iter().map(|(_, ns)| ns).sum();
            all_ns - device_ns(phased)
        };
        let size = |phased: &PhasedPoint<'_>| units::size(phased.point.bytes());
        let text = format!(
            "at the smallest depth, a {part} of {} spends {} in the device and {} outside the \
             device; a {part} of {} spends {} in the device and {} outside the device",
            size(small),
            units::time(device_ns(small)),
            units::time(others_ns(small)),
            size(large),
            units::time(device_ns(large)),
            units::time(others_ns(large)),
        );
        found.find("size", text);
    }
}

/// Reports the share of requests found in the trace, and the points with unreliable phases.
fn trace(found: &mut Conclusion, all: &[PhasedPoint<'_>]) {
    let sum = |quantity: &str| all.iter().map(|phased| phased.whole(quantity)).sum::<f64>();
    let (requests, lost) = (sum("requests"), sum("lost-events"));
    let least = all.iter().map(PhasedPoint::matched_share).fold(1.0, f64::min);
    let most = all.iter().map(PhasedPoint::unattributed_share).fold(0.0, f64::max);
    found.find(
        "trace",
        format!(
            "the trace contains {:.2}% of {} requests (worst point: {:.2}%), {lost} events were \
             lost, and {:.2}% of the time belongs to no phase (worst point: {:.2}%)",
            100.0 * sum("matched") / requests.max(1.0),
            units::count(requests),
            100.0 * least,
            100.0 * sum("unattributed") / sum("time").max(1.0),
            100.0 * most,
        ),
    );
    let doubted: Vec<String> =
        all.iter().filter(|phased| !phased.is_trusted()).map(PhasedPoint::name).collect();
    if !doubted.is_empty() {
        found.find(
            "not-trusted",
            format!(
                "the phases of {} are not reliable: fewer than {:.0}% of the requests were found, \
                 or at least {:.0}% of the time belongs to no phase; use shorter trials \
                 (--runtime) or a smaller depth, or stop other load",
                doubted.join("; "),
                100.0 * MATCHED_MIN,
                100.0 * UNATTRIBUTED_MAX,
            ),
        );
    }
}

/// Reports the overhead of tracing, in rate and CPU time.
fn cost(found: &mut Conclusion, evidence: &Evidence, all: &[PhasedPoint<'_>]) {
    let (mut changes, mut cpu_ns) = (Vec::new(), Vec::new());
    for traced in all.iter().map(|phased| phased.point) {
        let mine = labels(traced);
        let is_other =
            |point: &&MeasuredPoint| point.word("traced") == "no" && labels(point) == mine;
        let Some(untraced) = evidence.usable().find(is_other) else { continue };
        if untraced.requests_per_s() > 0.0 {
            changes.push(traced.requests_per_s() / untraced.requests_per_s() - 1.0);
        }
        let both = traced.cpu_ns().zip(untraced.cpu_ns());
        cpu_ns.extend(both.map(|(with, without)| with - without));
    }
    let Some(change) = median_interval(&changes, CONFIDENCE) else { return };
    let signed = |share: f64| format!("{:+.1}%", 100.0 * share);
    let rate = if change.low <= 0.0 && change.high >= 0.0 {
        "makes no measurable difference to the rate".to_owned()
    } else {
        format!("changes the rate by {}", signed(change.value))
    };
    let points = match changes.as_slice() {
        [_] => "at one point".to_owned(),
        all => format!(
            "(median of {} points, 95% interval {} to {})",
            all.len(),
            signed(change.low),
            signed(change.high)
        ),
    };
    let cpu =
        median(&cpu_ns).map(|ns| format!(", and costs {} of CPU per request", units::time(ns)));
    found.find("cost", format!("tracing {rate} {points}{}", cpu.unwrap_or_default()));
}

// ---- the papers

/// Judges the claims about Table 4 of the first paper: the utilisation of the bus, and the share of
/// its busy time spent on data transfer.
fn bus_claims(found: &mut Conclusion, all: &[&PhasedPoint<'_>]) {
    let find = |bytes: u64, depth: u32, disks: u32| {
        all.iter().find(|phased| {
            let point = phased.point;
            let key = (point.bytes(), point.depth(), point.disks);
            point.part == "read"
                && key == (bytes, depth, disks)
                && phased.whole("bus-utilisation") > 0.0
        })
    };
    let (small, large) = (find(8 << 10, 1, 1), find(64 << 10, 1, 1));
    let (two, three) = (find(64 << 10, 8, 2), find(64 << 10, 8, 3));
    let data = |phased: &&PhasedPoint<'_>| phased.phase("phase-share", "data");
    let busy = |phased: &&PhasedPoint<'_>| phased.whole("bus-utilisation");
    for (id, share, what) in [
        ("R147", small.and_then(data), "of the bus time is data transfer, with requests of 8 KiB"),
        ("R148", large.and_then(data), "of the bus time is data transfer, with requests of 64 KiB"),
        ("R149", small.map(busy), "bus utilisation at 8 KiB"),
        ("R152", three.map(busy), "bus utilisation with three disks"),
    ] {
        let measured = share.map(|share| (100.0 * share, format!("{} {what}", percent(share))));
        found.value_if(id, measured);
    }
    let rise = two.zip(large).map(|(two, one)| busy(two) / busy(one));
    found.gain("R150", rise, "bus utilisation with two disks compared with one");
}

/// Judges the claim about the gain of a second disk at the same depth.
fn second_disk(found: &mut Conclusion, evidence: &Evidence) {
    let of = |disks| {
        let flags = [("part", "read"), ("bs", "64k"), ("iodepth", "8"), ("traced", "no")];
        evidence.find(&[flags.as_slice(), &[("disks", disks)]].concat()).map(MeasuredPoint::rate)
    };
    let times = of("2").zip(of("1")).map(|(two, one)| two / one.max(f64::MIN_POSITIVE));
    found.gain("R151", times, "64 KiB reads at depth 8 from two disks compared with one");
}

// ---- charts

fn charts(all: &[&PhasedPoint<'_>], corners: &[&PhasedPoint<'_>]) -> Vec<Chart> {
    let traced = corners.iter().any(|phased| phased.is_traced());
    let (bars, label, unit) = if traced {
        ("phase-mean", "Mean time of a request", Unit::Nanoseconds)
    } else {
        ("phase-share", "Share of the time that the bus is busy", Unit::Share)
    };
    let mut charts: Vec<Chart> = by_phase(corners, bars, label, unit).into_iter().collect();
    let reads: Vec<&PhasedPoint<'_>> =
        all.iter().filter(|t| t.point.part == "read").copied().collect();
    let shallow = reads.iter().map(|phased| phased.point.depth()).min();
    let deep = reads.iter().map(|phased| phased.point.depth()).max();
    let alone = |depth: Option<u32>| -> Vec<&PhasedPoint<'_>> {
        let is = |phased: &&&PhasedPoint<'_>| {
            phased.point.disks == 1 && Some(phased.point.depth()) == depth
        };
        reads.iter().filter(is).copied().collect()
    };
    let largest = reads.iter().map(|phased| phased.point.bytes()).max();
    let together: Vec<&PhasedPoint<'_>> = reads
        .iter()
        .filter(|phased| {
            Some(phased.point.depth()) == deep && Some(phased.point.bytes()) == largest
        })
        .copied()
        .collect();
    for (id, points, x, at) in [
        ("phases-size", alone(shallow), "Request size", "reads at the smallest depth"),
        ("phases-size-deep", alone(deep), "Request size", "reads at the largest depth"),
        ("phases-devices", together, "Number of devices", "largest reads at the largest depth"),
    ] {
        charts.extend(against(id, &points, x, at));
    }
    charts
}

/// Builds a bar chart with a group for each phase and, in each group, a bar for each point.
fn by_phase(
    corners: &[&PhasedPoint<'_>],
    quantity: &str,
    label: &str,
    unit: Unit,
) -> Option<Chart> {
    let mut names: Vec<String> = Vec::new();
    for (phase, value) in corners.iter().flat_map(|phased| phased.phases(quantity)) {
        if *value > 0.0 && names.iter().all(|name| name != phase) {
            names.push((*phase).to_owned());
        }
    }
    let line = |phased: &&PhasedPoint<'_>| {
        let at = |name: &String| phased.phase(quantity, name).unwrap_or_default();
        let dots = names.iter().enumerate().map(|(x, name)| dot(x as f64, at(name)));
        Series { name: phased.name(), points: dots.collect(), dashed: false, hue: None }
    };
    let series: Vec<Series> =
        corners.iter().filter(|phased| !phased.phases(quantity).is_empty()).map(line).collect();
    (!names.is_empty()).then(|| Chart {
        id: "phases-bars".to_owned(),
        title: format!("{label}, by phase"),
        summary: format!("{label} by phase, for the most informative points."),
        x: Axis { label: "Phase".to_owned(), unit: Unit::Count, scale: Scale::Category(names) },
        y: Axis { label: label.to_owned(), unit, scale: Scale::Linear },
        series,
        guides: Vec::new(),
        kind: Kind::Bars,
    })
}

/// Builds a line chart of the utilisation of each phase. The x axis is the request size or the
/// number of devices.
fn against(id: &str, points: &[&PhasedPoint<'_>], x: &str, at: &str) -> Option<Chart> {
    let (unit, by_size) = match x {
        "Request size" => (Unit::Bytes, true),
        _ => (Unit::Count, false),
    };
    let place = |phased: &PhasedPoint<'_>| {
        if by_size { phased.point.bytes() as f64 } else { f64::from(phased.point.disks) }
    };
    let mut lines: Vec<Series> = Vec::new();
    for phased in points {
        for (phase, share) in phased.phases("phase-utilisation") {
            let point = dot(place(phased), *share);
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
        title: format!("Utilisation of each phase by {}, {at}", x.to_lowercase()),
        summary: "The share of the time during which any request was in the phase.".to_owned(),
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

/// Builds a table with a row for every phase of every point.
fn table(all: &[PhasedPoint<'_>]) -> Option<Table> {
    let columns = [
        ("Point", None),
        ("Phase or part", None),
        ("Mean", Some(Unit::Nanoseconds)),
        ("Median", Some(Unit::Nanoseconds)),
        ("99th percentile", Some(Unit::Nanoseconds)),
        ("Share", Some(Unit::Share)),
        ("Utilisation", Some(Unit::Share)),
    ];
    let rows = |phased: &PhasedPoint<'_>| {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in phased.phases.values().flatten() {
            if !names.contains(name) {
                names.push(name);
            }
        }
        let row = |name: &str| {
            let quantities =
                ["phase-mean", "phase-median", "phase-p99", "phase-share", "phase-utilisation"];
            let numbers = quantities.map(|quantity| TableCell::from(phased.phase(quantity, name)));
            let words = [TableCell::Text(phased.name()), TableCell::from(name)];
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
    use lab::evidence::testing::cell;

    /// Builds the trace of one point. Each matched request spends 10 us in the queue and 90 us in
    /// the device.
    fn trace_summary(requests: u64, matched: u64, unattributed_ns: u64) -> TraceSummary {
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

    /// Builds evidence from tuples of request size, rate without tracing, rate with tracing, and
    /// trace. Each tuple gives two points.
    fn traced(points: &[(&str, u64, u64, TraceSummary)]) -> Evidence {
        let mut evidence = Evidence::default();
        for (bs, without, with, trace) in points {
            let flags =
                |traced| [("part", "read"), ("rw", "read"), ("bs", *bs), ("traced", traced)];
            evidence.points.push(cell(*without, &flags("no")));
            evidence.points.push(cell(*with, &flags("yes")));
            note_phases(&mut evidence, std::slice::from_ref(trace));
        }
        evidence
    }

    fn texts<'a>(found: &'a Conclusion, id: &str) -> Vec<&'a str> {
        let findings = found.findings.iter().filter(|finding| finding.id == id);
        findings.map(|finding| finding.headline.as_str()).collect()
    }

    #[test]
    fn the_time_is_reported_by_phase_and_claims_about_a_bus_are_not_testable() {
        let found = analyse(&traced(&[("8k", 1 << 30, 1 << 29, trace_summary(1000, 1000, 0))]));
        let way = texts(&found, "way")[0];
        assert!(way.contains("take 100 us on average: device 90%, queue 10%"), "{way}");
        assert!(texts(&found, "trace")[0].contains("contains 100.00% of 1000 requests"));
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
    fn points_with_an_incomplete_trace_only_raise_a_doubt() {
        let found = analyse(&traced(&[
            ("4k", 1 << 30, 1 << 30, trace_summary(1000, 980, 0)),
            ("8k", 1 << 30, 1 << 30, trace_summary(1000, 1000, 6_000_000)),
            ("64k", 1 << 30, 1 << 30, trace_summary(1000, 995, 1_000_000)),
        ]));
        let doubt = texts(&found, "not-trusted")[0];
        assert!(doubt.contains("reads of 4 KiB") && doubt.contains("reads of 8 KiB"), "{doubt}");
        assert!(!doubt.contains("64 KiB"), "{doubt}");
        let ways = texts(&found, "way");
        assert!(ways.len() == 1 && ways[0].starts_with("reads of 64 KiB"), "{ways:?}");
        let trace = texts(&found, "trace")[0];
        assert!(trace.contains("point: 98.00%") && trace.contains("point: 5.66%"), "{trace}");
    }

    #[test]
    fn requests_beyond_the_capacity_of_the_log_count_as_not_found() {
        let short = TraceSummary { not_logged: 1000, ..trace_summary(1000, 1000, 0) };
        let found = analyse(&traced(&[("4k", 1 << 30, 1 << 30, short)]));
        assert!(texts(&found, "trace")[0].contains("contains 50.00% of 2000 requests"));
        assert_eq!(texts(&found, "not-trusted").len(), 1);
    }

    #[test]
    fn times_of_several_devices_and_trials_are_combined() {
        let mut evidence = Evidence::default();
        evidence.points.push(cell(1 << 30, &[("part", "read"), ("bs", "4k"), ("traced", "yes")]));
        note_phases(
            &mut evidence,
            &[trace_summary(100, 100, 0), trace_summary(300, 300, 2_000_000)],
        );
        assert_eq!(evidence.value("requests", &[]), Some(400.0));
        assert_eq!(evidence.value("unattributed", &[]), Some(2e6));
        assert_eq!(evidence.value("phase-mean", &[("phase", "device")]), Some(90e3));
        let share = evidence.value("phase-share", &[("phase", "device")]).unwrap();
        assert!((share - 0.9 * 40.0 / 42.0).abs() < 1e-12, "{share}");
        assert_eq!(evidence.value("phase-utilisation", &[("phase", "queue")]), Some(0.5));
    }

    #[test]
    fn the_bus_of_a_model_decides_the_claims() {
        let mut evidence = Evidence::default();
        for (bs, data, busy) in [("8k", 0.47, 0.58), ("64k", 0.4, 0.4)] {
            let mut point = cell(1 << 20, &[("part", "read"), ("bs", bs), ("iodepth", "1")]);
            point.point.key.is_simulated = true;
            let mut labels = labels(&point);
            evidence.points.push(point);
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
