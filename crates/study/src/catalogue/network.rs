//! Study `network`: the CPU cost of a network path per request and per KiB, the latency of a
//! request, and the highest rate of the path.
//!
//! Each target is one path: an address such as `smb://server/share/file`, a file on a mounted
//! share, or a local file to compare with. Requests to an address do not use the kernel's client.
//!
//! The lower bound of the CPU cost is the CPU time charged to the process. The upper bound is the
//! CPU time that the soaker (a busy loop of the lowest priority) loses. It includes interrupts, and
//! the server if the server runs on this machine. A halfpower peer on the server measures the load
//! of the server.

use analysis::costmodel::CostModel;
use analysis::units;
use ioengine::network::round_trip_ns;
use lab::evidence::{Evidence, MeasuredPoint};
use lab::failure::Outcome;
use lab::network_target;
use report::model::{Cell as TableCell, Column, Table};
use report::units::Unit;

use crate::catalogue::{Study, copy_cost};
use crate::conclusion::{Conclusion, words_of_time, words_of_times};
use crate::curve;
use crate::runner::StudyRunner;
use crate::server_figures::{self, ONE};

pub const STUDY: Study = Study {
    name: "network",
    papers: "Chung 2000, section 9, Table 11 and Figures 36 to 38: per MB, a file on a mapped \
             drive or with a UNC name costs up to ten times the CPU time of a local file; writes \
             above 16 KB are much slower than smaller writes; a depth above 2 gains nothing",
    needs: "an existing file or disk of a server; optionally a local file to compare with",
    plan: include_str!("../../plans/network.toml"),
    claims: &[],
    rules: &["deeper-requests"],
    measure: Some(measure),
    analyse,
};

const SEVERAL: &str = "several at once";
/// The request size at which latencies are reported (bytes).
const SMALL: u64 = 4 << 10;
/// The request size at which the CPU time of paths is compared (bytes).
const LARGE: u64 = 64 << 10;
/// There is a cliff between two sizes if the rate at the larger size is below this share of the
/// rate at the smaller size.
const CLIFF_SHARE: f64 = 0.8;

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    for target in runner.study_targets.iter().filter(|target| target.is_network()) {
        let address = network_target::parse(&target.name)?;
        let name = target.name.display().to_string();
        runner.evidence.note("round-trip", "ns", &[("target", name)], round_trip_ns(&address)?);
    }
    server_figures::begin(runner);
    // After a failure, the points that were measured before it are still evaluated.
    let measured = runner.measure();
    note_costs(runner);
    server_figures::end(runner);
    measured
}

/// Records the CPU cost of each path on this host.
fn note_costs(runner: &mut StudyRunner<'_>) {
    let mut readings = Vec::new();
    for path in paths(&runner.evidence) {
        let bounds = [("lower", path.lower()), ("upper", path.upper())];
        for (bound, model) in bounds {
            let Some(model) = model else { continue };
            for (quantity, unit, of) in
                [("fixed", "ns", model.fixed_ns), ("marginal", "ns/KiB", model.marginal_ns_per_kib)]
            {
                for (value, edge) in [(of.value, "value"), (of.low, "low"), (of.high, "high")] {
                    let labels = [
                        ("target", path.name.clone()),
                        ("rw", path.rw.to_owned()),
                        ("bound", bound.to_owned()),
                        ("interval", edge.to_owned()),
                    ];
                    readings.push((quantity, unit, labels, value));
                }
            }
        }
    }
    for (quantity, unit, labels, value) in readings {
        runner.evidence.note(quantity, unit, &labels, value);
    }
}

/// The points of one target in one direction at depth 1, by rising request size.
struct NetworkPath<'a> {
    name: String,
    rw: &'static str,
    points: Vec<&'a MeasuredPoint>,
}

impl<'a> NetworkPath<'a> {
    fn at(&self, bytes: u64) -> Option<&'a MeasuredPoint> {
        self.points.iter().find(|point| point.bytes() == bytes).copied()
    }

    /// Returns the lower bound of the CPU cost, from the CPU time charged to the process.
    fn lower(&self) -> Option<CostModel> {
        curve::cost_model(&self.points, MeasuredPoint::cpu_ns)
    }

    /// Returns the upper bound of the CPU cost, from the CPU time that the soaker lost.
    fn upper(&self) -> Option<CostModel> {
        curve::cost_model(&self.points, |point| point.summary.cpu_upper_ns)
    }

    fn fastest(&self) -> Option<&'a MeasuredPoint> {
        self.points.iter().copied().max_by(|a, b| a.rate().total_cmp(&b.rate()))
    }
}

fn paths(evidence: &Evidence) -> Vec<NetworkPath<'_>> {
    let mut paths = Vec::new();
    for index in 0..evidence.targets.len().max(1) {
        for rw in ["read", "write"] {
            let mut points = evidence.all(&[("part", ONE), ("rw", rw)]);
            points.retain(|point| point.target_index == index);
            points.sort_by_key(|point| point.bytes());
            if let Some(first) = points.first() {
                paths.push(NetworkPath { name: first.target.clone(), rw, points });
            }
        }
    }
    paths
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    let paths = paths(evidence);
    for path in &paths {
        latency(&mut found, evidence, path);
        cost(&mut found, path);
        ceiling(&mut found, evidence, path);
        cliff(&mut found, path);
        depth(&mut found, evidence, path);
    }
    small_writes(&mut found, &paths);
    against_local(&mut found, evidence, &paths);
    found.tables.extend(table(&paths));
    server_figures::conclude(&mut found, evidence);
    found
}

/// Reports the latency of a small request at depth 1, and the round-trip time of the network.
fn latency(found: &mut Conclusion, evidence: &Evidence, path: &NetworkPath<'_>) {
    let Some(point) = path.at(SMALL).or(path.points.first().copied()) else { return };
    let (Some(median), Some(tail)) = (point.latency_ns(0.5), point.latency_ns(0.99)) else {
        return;
    };
    let trip = evidence.value("round-trip", &[("target", &path.name)]);
    let trips = trip.filter(|ns| *ns > 0.0).map(|ns| {
        format!("; setting up a TCP connection (one round trip) takes {}", units::time(ns))
    });
    found.find(
        "latency",
        format!(
            "{}: the median latency of a {} of {} is {} (99th percentile: {}){}",
            path.name,
            path.rw,
            units::size(point.bytes()),
            units::time(median),
            units::time(tail),
            trips.unwrap_or_default()
        ),
    );
}

/// Reports the CPU cost per request and per KiB, with 95% intervals.
fn cost(found: &mut Conclusion, path: &NetworkPath<'_>) {
    let Some(lower) = path.lower() else { return };
    let is_more = |upper: &CostModel| upper.fixed_ns.value > lower.fixed_ns.value;
    let upper = path.upper().filter(is_more).map(|upper| {
        format!(
            "; including interrupts (and the server, if it runs on this machine): {} plus {} per \
             KiB",
            units::time(upper.fixed_ns.value.max(0.0)),
            units::time(upper.marginal_ns_per_kib.value.max(0.0))
        )
    });
    found.find(
        "cost",
        format!(
            "{}: a {} costs {} of CPU time plus {} per KiB{}",
            path.name,
            path.rw,
            words_of_time(lower.fixed_ns),
            words_of_time(lower.marginal_ns_per_kib),
            upper.unwrap_or_default()
        ),
    );
}

/// Reports the highest rate and its request size and depth. Also reports the smallest request size
/// whose rate at depth 1 exceeds half of the peak.
fn ceiling(found: &mut Conclusion, evidence: &Evidence, path: &NetworkPath<'_>) {
    let mut all = evidence.all(&[("rw", path.rw)]);
    all.retain(|point| point.target == path.name);
    let Some(top) = all.into_iter().max_by(|a, b| a.rate().total_cmp(&b.rate())) else { return };
    let (pap, whole) = match evidence.pap_bytes_per_s {
        Some(pap) => (pap, format!("the PAP of {}", units::rate_mib(pap))),
        None => (top.rate(), "that rate".to_owned()),
    };
    let (measured, _) = curve::half_power(&path.points, pap);
    let half = match measured {
        Some(bytes) => {
            format!(
                "at depth 1, the rate passes half of {whole} with requests of {}",
                units::size(bytes)
            )
        }
        None if path.points.iter().any(|point| point.rate() > pap / 2.0) => format!(
            "at depth 1, the rate passes half of {whole} at one size, but not at the next larger \
             size"
        ),
        None => format!("at depth 1, the rate never passes half of {whole}"),
    };
    found.find(
        "ceiling",
        format!(
            "{}: {}s reach {} with requests of {} at depth {}; {half}",
            path.name,
            path.rw,
            units::rate_mib(top.rate()),
            units::size(top.bytes()),
            top.depth()
        ),
    );
}

/// Reports the smallest request size whose rate is clearly lower than the rate of the next smaller
/// size.
fn cliff(found: &mut Conclusion, path: &NetworkPath<'_>) {
    for pair in path.points.windows(2) {
        let (below, beyond) = (pair[0], pair[1]);
        if beyond.rate() < CLIFF_SHARE * below.rate() && curve::differ(below, beyond) {
            found.find(
                "cliff",
                format!(
                    "{0}: {1}s of {2} are slower than {1}s of {3}: {4} compared with {5}",
                    path.name,
                    path.rw,
                    units::size(beyond.bytes()),
                    units::size(below.bytes()),
                    units::rate_mib(beyond.rate()),
                    units::rate_mib(below.rate())
                ),
            );
            return;
        }
    }
}

/// Reports the gain of several outstanding requests over one request at a time, for each size.
fn depth(found: &mut Conclusion, evidence: &Evidence, path: &NetworkPath<'_>) {
    let mut gains = Vec::new();
    for one in &path.points {
        let size = one.bytes();
        let mut deeper = evidence.all(&[("part", SEVERAL), ("rw", path.rw)]);
        deeper.retain(|point| point.target == path.name && point.bytes() == size);
        deeper.sort_by_key(|point| point.depth());
        let Some(best) = deeper.iter().max_by(|a, b| a.rate().total_cmp(&b.rate())) else {
            continue;
        };
        let enough = deeper.iter().find(|point| !curve::differ(point, best)).unwrap_or(best);
        let (depth, size) = (enough.depth(), units::size(size));
        let gain = enough.rate() / one.rate().max(1.0);
        if !curve::differ(enough, one) || gain < 1.0 {
            gains.push(format!("no measurable gain with {size}"));
            continue;
        }
        gains.push(format!("{} with {size} at depth {depth}", words_of_times(gain)));
        let setting = format!("{}, {}s of {size} at depth {depth}", path.name, path.rw);
        let rates = format!(
            "{} instead of {}",
            units::rate_mib(enough.rate()),
            units::rate_mib(one.rate())
        );
        found.advise("deeper-requests", gain, &setting, rates);
    }
    if !gains.is_empty() {
        let gains = gains.join(", ");
        found.find(
            "depth",
            format!("{}: gain from a larger depth for {}s: {gains}", path.name, path.rw),
        );
    }
}

/// Compares the latency of a small write with the latency of a small read.
fn small_writes(found: &mut Conclusion, paths: &[NetworkPath<'_>]) {
    for write in paths.iter().filter(|path| path.rw == "write") {
        let read = paths.iter().find(|path| path.rw == "read" && path.name == write.name);
        let at = |path: &NetworkPath<'_>| path.at(SMALL)?.latency_ns(0.5);
        let Some((write_ns, read_ns)) = at(write).zip(read.and_then(at)) else { continue };
        if read_ns > 0.0 {
            let times = words_of_times(write_ns / read_ns);
            let size = units::size(SMALL);
            let name = &write.name;
            let text = format!("{name}: a write of {size} takes {times} as long as a read");
            found.find("small-writes", text);
        }
    }
}

/// Compares each network path with the first local target: the CPU time of 64 KiB requests, and the
/// highest rate at depth 1.
fn against_local(found: &mut Conclusion, evidence: &Evidence, paths: &[NetworkPath<'_>]) {
    let is_network = |path: &NetworkPath<'_>| {
        path.points.first().and_then(|point| evidence.targets.get(point.target_index)).is_some_and(
            |target| {
                target.network.is_some() || copy_cost::is_network(target.file_system.as_deref())
            },
        )
    };
    for path in paths.iter().filter(|path| is_network(path)) {
        let is_plain = |other: &&NetworkPath<'_>| other.rw == path.rw && !is_network(other);
        let Some(local) = paths.iter().find(is_plain) else { continue };
        let Some((there, here)) = path.at(LARGE).zip(local.at(LARGE)) else { continue };
        let cpu = there.cpu_ns().zip(here.cpu_ns().filter(|ns| *ns > 0.0));
        let cpu = cpu.map(|(there, here)| format!("{} the CPU time", words_of_times(there / here)));
        let fastest = path.fastest().zip(local.fastest());
        let rate = fastest.map(|(there, here)| {
            format!("{} the highest rate", words_of_times(there.rate() / here.rate().max(1.0)))
        });
        let words: Vec<String> = cpu.into_iter().chain(rate).collect();
        found.find(
            "against-local",
            format!(
                "{}: {}s of {}, compared with {}: {}",
                path.name,
                path.rw,
                units::size(LARGE),
                local.name,
                words.join(", ")
            ),
        );
    }
}

/// Builds a table of the CPU cost per request and per KiB of each path, like Table 11 of Chung et
/// al. 2000.
fn table(paths: &[NetworkPath<'_>]) -> Option<Table> {
    let row = |path: &NetworkPath<'_>| {
        let (lower, upper) = (path.lower()?, path.upper());
        let of_upper = |of: fn(&CostModel) -> f64| -> TableCell { upper.as_ref().map(of).into() };
        Some(vec![
            TableCell::Text(path.name.clone()),
            TableCell::Text(path.rw.to_owned()),
            TableCell::Number(lower.fixed_ns.value),
            TableCell::Number(lower.fixed_ns.low),
            TableCell::Number(lower.fixed_ns.high),
            TableCell::Number(lower.marginal_ns_per_kib.value),
            TableCell::Number(lower.marginal_ns_per_kib.low),
            TableCell::Number(lower.marginal_ns_per_kib.high),
            of_upper(|model| model.fixed_ns.value),
            of_upper(|model| model.marginal_ns_per_kib.value),
            path.at(SMALL).and_then(|point| point.latency_ns(0.5)).into(),
            path.fastest().map(MeasuredPoint::rate).into(),
        ])
    };
    let rows: Vec<Vec<TableCell>> = paths.iter().filter_map(row).collect();
    let column = |(label, unit): (&str, Unit)| Column { label: label.to_owned(), unit: Some(unit) };
    let text = |label: &str| Column { label: label.to_owned(), unit: None };
    let numbers = [
        ("CPU per request", Unit::Nanoseconds),
        ("at least", Unit::Nanoseconds),
        ("at most", Unit::Nanoseconds),
        ("CPU per KiB", Unit::Nanoseconds),
        ("at least", Unit::Nanoseconds),
        ("at most", Unit::Nanoseconds),
        ("Per request, with interrupts", Unit::Nanoseconds),
        ("Per KiB, with interrupts", Unit::Nanoseconds),
        ("Median latency of 4 KiB", Unit::Nanoseconds),
        ("Highest rate at depth 1", Unit::BytesPerSecond),
    ];
    (!rows.is_empty()).then(|| Table {
        id: "network-paths".to_owned(),
        caption: "CPU cost of each path with 95% intervals (after Table 11 of Chung et al. 2000)"
            .to_owned(),
        columns: [text("Path"), text("Direction")].into_iter().chain(numbers.map(column)).collect(),
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::evidence::testing::{cell, evidence};
    use lab::machine::{NetworkFacts, TargetFacts};

    /// Builds a point whose requests each cost 10 us of CPU plus 1 us per KiB.
    fn point(part: &str, bs: &str, depth: &str, rate: u64) -> MeasuredPoint {
        let flags = [("part", part), ("caching", "direct"), ("rw", "read"), ("bs", bs)];
        let flags: Vec<(&str, &str)> = flags.into_iter().chain([("iodepth", depth)]).collect();
        let mut point = cell(rate, &flags);
        let kib = (point.bytes() >> 10) as f64;
        for trial in &mut point.point.trials {
            let requests = trial.requests();
            trial.cpu.process_ns = ((10_000.0 + 1_000.0 * kib) * requests as f64) as u64;
        }
        point.summary = point.point.summary();
        point
    }

    fn concluded(points: Vec<MeasuredPoint>) -> Conclusion {
        let network = Some(NetworkFacts::default());
        let targets = vec![TargetFacts { network, ..TargetFacts::default() }];
        analyse(&Evidence { targets, ..evidence(points) })
    }

    fn text(found: &Conclusion, id: &str) -> String {
        let texts = found.findings.iter().filter(|finding| finding.id == id);
        texts.map(|finding| finding.headline.clone()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn fixed_and_marginal_costs_are_separated_and_tabulated() {
        let found = concluded(vec![
            point(ONE, "4k", "1", 100 << 20),
            point(ONE, "64k", "1", 500 << 20),
            point(ONE, "1m", "1", 800 << 20),
        ]);
        let cost = text(&found, "cost");
        assert!(cost.contains("a read costs 10 us (") && cost.contains("plus 1 us ("), "{cost}");
        assert_eq!(found.tables.len(), 1);
        let ceiling = text(&found, "ceiling");
        assert!(ceiling.contains("passes half of that rate with requests of 64 KiB"), "{ceiling}");
        assert!(text(&found, "cliff").is_empty());
    }

    #[test]
    fn a_size_beyond_which_requests_are_slower_is_named() {
        let found = concluded(vec![
            point(ONE, "16k", "1", 400 << 20),
            point(ONE, "64k", "1", 200 << 20),
            point(ONE, "1m", "1", 800 << 20),
        ]);
        assert!(text(&found, "cliff").contains("reads of 64 KiB are slower than reads of 16 KiB"));
    }

    #[test]
    fn depth_is_advised_where_it_gains() {
        let found = concluded(vec![
            point(ONE, "4k", "1", 100 << 20),
            point(ONE, "64k", "1", 400 << 20),
            point(SEVERAL, "4k", "4", 300 << 20),
            point(SEVERAL, "4k", "16", 800 << 20),
        ]);
        let depth = text(&found, "depth");
        assert!(
            depth.contains("gain from a larger depth for reads: 8.00 times with 4 KiB at depth 16"),
            "{depth}"
        );
        assert_eq!(found.advice.len(), 1);
    }
}
