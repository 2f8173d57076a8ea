//! How requests are issued: every personality of this host by depth and size, and which to use.
//!
//! Each personality is a part of its own, so that one that this host lacks leaves the others in
//! place. Random reads have no read-ahead that could issue requests of its own.

use report::model::{Cell as TableCell, Column, Table};
use report::units::Unit;

use crate::failure::Outcome;
use crate::study::catalogue::Study;
use crate::study::conclusion::Conclusion;
use crate::study::curve::{self, Told};
use crate::study::evidence::{Cell, Evidence};
use crate::study::ground::Ground;
use crate::study::rig::Rig;
use crate::units;

/// See the module.
pub const STUDY: Study = Study {
    name: "personalities",
    papers: "named as future work: completion routines, events and completion ports beside threads",
    needs: "",
    plan: r#"
title = "Personalities: ways to issue requests"
asks = "Which way to issue requests is fastest here, and which costs least CPU?"
direct = true
rw = ["randread", "randwrite"]
bs = ["4k", "64k"]
iodepth = [1, 4, 16, 64, 256]
runtime = 1
trials = 3

[quick]
rw = "randread"
iodepth = [1, 16]
runtime = 0.2
trials = 3

[[part]]
name = "sync"
ioengine = "sync"
iodepth = 1

[[part]]
name = "threads"
ioengine = "threads"

[[part]]
name = "libaio"
ioengine = "libaio"

[[part]]
name = "io_uring"
ioengine = "io_uring"

[[part]]
name = "buffered sync"
ioengine = "sync"
direct = false
iodepth = 1

[[part]]
name = "mmap"
ioengine = "mmap"
direct = false
iodepth = 1

[[figure]]
title = "Requests against depth"
x = "iodepth"
y = "iops"
by = ["part", "rw", "bs"]

[[figure]]
title = "CPU of a request against depth"
x = "iodepth"
y = "cpu-per-request"
by = ["part", "rw", "bs"]
"#,
    claims: &[],
    measure,
    analyse,
};

fn measure(rig: &mut Rig<'_>) -> Outcome<()> {
    if !rig.grounds.iter().any(Ground::is_real) {
        let reason =
            "a simulated system and a device of known truth issue requests in their own way";
        rig.skip(reason, "name a file, device or directory of this host");
        return Ok(());
    }
    rig.measure()
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    for rw in ["randread", "randwrite"] {
        for bs in values(evidence, rw, |cell| cell.bytes()) {
            for depth in values(evidence, rw, |cell| u64::from(cell.depth())) {
                race(&mut found, evidence, (rw, bs, depth as u32));
            }
            blocking(&mut found, evidence, rw, bs);
        }
    }
    mapped(&mut found, evidence);
    // What to use is said where it matters most: the most requests outstanding.
    found.findings.sort_by_key(|finding| finding.id != "use");
    found.tables.extend(table(evidence));
    found
}

/// What the direct points of a direction have, in rising order, each once.
fn values(evidence: &Evidence, rw: &str, of: impl Fn(&Cell) -> u64) -> Vec<u64> {
    let mut values: Vec<u64> = evidence.all(&[("rw", rw)]).into_iter().map(of).collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// Whether one point is faster than another beyond the noise of both.
fn is_faster(one: &Cell, other: &Cell) -> bool {
    one.summary.requests_per_s.low > other.summary.requests_per_s.high
}

/// All personalities that bypass the page cache at one size and depth: the fastest, and among
/// those that are as fast the one with the least CPU.
fn race(found: &mut Conclusion, evidence: &Evidence, (rw, bs, depth): (&str, u64, u32)) {
    let mut cells = evidence.all(&[("rw", rw)]);
    cells.retain(|cell| cell.bytes() == bs && cell.depth() == depth && is_direct(cell));
    cells.sort_by(|a, b| b.requests_per_s().total_cmp(&a.requests_per_s()));
    let [first, rest @ ..] = cells.as_slice() else { return };
    if rest.is_empty() {
        return;
    }
    let alike = std::iter::once(first).chain(rest.iter().filter(|cell| !is_faster(first, cell)));
    let lean = alike.min_by(|a, b| cpu(a).total_cmp(&cpu(b))).unwrap_or(first);
    let others = cells.iter().filter(|cell| cell.word("ioengine") != lean.word("ioengine"));
    let others: Vec<String> = others.map(|cell| in_short(cell)).collect();
    let deepest = values(evidence, rw, |cell| u64::from(cell.depth())).last().copied();
    let id = if deepest == Some(u64::from(depth)) { "use" } else { "race" };
    let why = match (std::ptr::eq(*lean, *first), is_faster(first, rest[0])) {
        (true, true) => "fastest",
        (true, false) => "not beaten by any beyond noise, with the least CPU",
        (false, _) => "not slower than any beyond noise, with the least CPU",
    };
    found.find(
        id,
        format!(
            "{rw} of {} at depth {depth}: use {}, {why}; the others: {}",
            units::size(bs),
            in_short(lean),
            others.join(", ")
        ),
    );
}

/// What one request at a time costs through a queue that could hold more.
fn blocking(found: &mut Conclusion, evidence: &Evidence, rw: &str, bs: u64) {
    let at_one = |part: &str| {
        let cells = evidence.all(&[("part", part), ("rw", rw), ("iodepth", "1")]);
        cells.into_iter().find(|cell| cell.bytes() == bs)
    };
    let Some(sync) = at_one("sync") else { return };
    let queued = ["io_uring", "libaio"].into_iter().filter_map(at_one);
    let Some(best) = queued.max_by(|a, b| a.requests_per_s().total_cmp(&b.requests_per_s())) else {
        return;
    };
    let text = match (is_faster(sync, best), is_faster(best, sync)) {
        (true, _) => "blocking calls are faster than any queue",
        (_, true) => "a queue is faster even with one request in it",
        _ => match curve::told(sync, best) {
            Told::Unclear(_) => "noise hides whether a queue is faster than blocking calls",
            _ => "blocking calls do as well as a queue, within 10%",
        },
    };
    found.find(
        "one-at-a-time",
        format!(
            "{rw} of {}, one at a time: {text} ({} against {})",
            units::size(bs),
            in_short(sync),
            in_short(best)
        ),
    );
}

/// A mapping beside calls through the same page cache.
fn mapped(found: &mut Conclusion, evidence: &Evidence) {
    for map in evidence.all(&[("part", "mmap")]) {
        let same = |cell: &&&Cell| cell.bytes() == map.bytes() && cell.word("rw") == map.word("rw");
        let calls = evidence.all(&[("part", "buffered sync")]);
        let Some(call) = calls.iter().find(same) else { continue };
        let times = curve::told(map, call).words();
        found.find(
            "mapped",
            format!(
                "cold {} of {} through the page cache, a mapping beside calls: {times} ({} against \
                 {})",
                map.word("rw"),
                units::size(map.bytes()),
                in_short(map),
                in_short(call)
            ),
        );
    }
}

fn is_direct(cell: &Cell) -> bool {
    cell.point.key.is_direct()
}

fn cpu(cell: &Cell) -> f64 {
    cell.cpu_ns().unwrap_or(f64::MAX)
}

/// "io_uring (120k/s, 3.2 us of CPU each)".
fn in_short(cell: &Cell) -> String {
    let cpu = cell.cpu_ns().map(|ns| format!(", {} of CPU each", units::time(ns)));
    let rate = units::count(cell.requests_per_s());
    format!("{} ({rate}/s{})", cell.word("ioengine"), cpu.unwrap_or_default())
}

/// Everything side by side.
fn table(evidence: &Evidence) -> Option<Table> {
    let mut cells: Vec<&Cell> = evidence.usable().collect();
    let key = |cell: &Cell| (cell.word("rw"), cell.bytes(), cell.depth(), cell.part.clone());
    cells.sort_by_key(|cell| key(cell));
    let row = |cell: &&Cell| {
        vec![
            TableCell::Text(cell.word("rw")),
            TableCell::Number(cell.bytes() as f64),
            TableCell::Number(f64::from(cell.depth())),
            TableCell::Text(cell.part.clone()),
            TableCell::Number(cell.requests_per_s()),
            cell.latency_ns(0.5).into(),
            cell.latency_ns(0.99).into(),
            cell.cpu_ns().into(),
        ]
    };
    let column = |(label, unit): (&str, Option<Unit>)| Column { label: label.to_owned(), unit };
    (!cells.is_empty()).then(|| Table {
        id: "personalities-side-by-side".to_owned(),
        caption: "Every personality at the same size and depth".to_owned(),
        columns: [
            ("Direction", None),
            ("Request size", Some(Unit::Bytes)),
            ("Depth", Some(Unit::Count)),
            ("Personality", None),
            ("Requests", Some(Unit::PerSecond)),
            ("Median latency", Some(Unit::Nanoseconds)),
            ("99th percentile", Some(Unit::Nanoseconds)),
            ("CPU of a request", Some(Unit::Nanoseconds)),
        ]
        .map(column)
        .into(),
        rows: cells.iter().map(row).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::evidence::tests::{cell, evidence};

    /// A point of 4 KiB reads of a personality, with so many requests in its second and so much
    /// CPU for each (ns).
    fn point(part: &str, depth: &str, requests: u64, cpu_ns: u64) -> Cell {
        let caching = if part == "mmap" || part == "buffered sync" { "buffered" } else { "direct" };
        let flags = [
            ("part", part),
            ("ioengine", part.trim_start_matches("buffered ")),
            ("rw", "randread"),
            ("bs", "4k"),
            ("iodepth", depth),
            ("caching", caching),
        ];
        let mut cell = cell(requests * 4096, &flags);
        cell.point.trials.iter_mut().for_each(|trial| trial.cpu.process_ns = cpu_ns * requests);
        cell.summary = cell.point.summary();
        cell
    }

    fn words(found: &Conclusion, id: &str) -> String {
        let found = found.findings.iter().find(|finding| finding.id == id);
        found.map(|finding| finding.text.clone()).unwrap_or_default()
    }

    #[test]
    fn the_fastest_is_named_with_what_it_costs() {
        let found = analyse(&evidence(vec![
            point("threads", "16", 40_000, 20_000),
            point("io_uring", "16", 100_000, 3_000),
            point("libaio", "16", 90_000, 4_000),
        ]));
        let text = words(&found, "use");
        assert!(text.contains("use io_uring (100k/s, 3 us of CPU each), fastest"), "{text}");
        assert!(
            text.ends_with("libaio (90k/s, 4 us of CPU each), threads (40k/s, 20 us of CPU each)")
        );
    }

    #[test]
    fn among_those_that_are_as_fast_the_leanest_is_named() {
        let found = analyse(&evidence(vec![
            point("threads", "16", 50_000, 20_000),
            point("io_uring", "16", 50_000, 3_000),
        ]));
        let text = words(&found, "use");
        assert!(text.contains("use io_uring") && text.contains("least CPU"), "{text}");
    }

    #[test]
    fn one_request_at_a_time_needs_no_queue_where_a_queue_is_no_faster() {
        let at_one = |queued| {
            let cells =
                vec![point("sync", "1", 9_000, 5_000), point("io_uring", "1", queued, 6_000)];
            words(&analyse(&evidence(cells)), "one-at-a-time")
        };
        assert!(at_one(9_000).contains("do as well as a queue"), "{}", at_one(9_000));
        assert!(at_one(8_000).contains("blocking calls are faster"), "{}", at_one(8_000));
        assert!(at_one(12_000).contains("a queue is faster"), "{}", at_one(12_000));
    }

    #[test]
    fn a_mapping_is_held_against_calls_and_never_against_direct_requests() {
        let found = analyse(&evidence(vec![
            point("mmap", "1", 5_000, 9_000),
            point("buffered sync", "1", 10_000, 9_000),
            point("sync", "1", 20_000, 9_000),
        ]));
        let text = words(&found, "mapped");
        assert!(text.contains("a mapping beside calls: 0.50 times ("), "{text}");
        assert_eq!(words(&found, "race"), "", "one direct personality is no race");
    }
}
