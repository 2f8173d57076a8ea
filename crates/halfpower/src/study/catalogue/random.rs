//! Random requests: how many a device takes, what the depth of the queue gains, and what the page
//! cache does with them.

use crate::study::catalogue::{Study, plan};
use crate::study::conclusion::{Conclusion, words_of_times};
use crate::study::curve::{self, Told};
use crate::study::evidence::{Cell, Evidence};
use crate::units;

/// See the module.
pub const STUDY: Study = Study {
    name: "random",
    papers: "Chung 2000, section 7.1, Table 9 and Figures 11 and 12: a disk of 10,000 revolutions \
             takes 105 random requests of 8 KB per second one at a time; from three outstanding on \
             reordering gains; the file system's cache costs twice the CPU",
    needs: "",
    plan: r#"
title = "Random requests"
asks = "How many random requests per second, at which latency, and what does the queue gain?"
direct = true
rw = ["randread", "randwrite"]
bs = "8k"
runtime = 1
trials = 3

[quick]
runtime = 0.2
trials = 2

[[part]]
name = "past the cache"
iodepth = [1, 2, 4, 8, 16, 32, 64, 128, 256]
quick = {iodepth = [1, 2, 4, 8, 32]}

[[part]]
name = "large"
bs = "1m"
iodepth = [1, 8, 32]
quick = {iodepth = [1, 8]}

[[part]]
name = "through the cache"
direct = false
rw = "randread"
iodepth = [1, 8, 32]
quick = {iodepth = [1, 32]}

[[part]]
name = "through the cache"
direct = false
rw = "randwrite"
iodepth = 1
page-cache = "cold"
size = "128m"
quick = {size = "16m"}

[[figure]]
title = "Random requests of 8 KiB per second"
x = "iodepth"
y = "iops"
by = ["rw", "part"]
where = {bs = "8k"}

[[figure]]
title = "Latency of random requests of 8 KiB"
x = "iodepth"
y = "latency"
log = true
by = ["rw", "part"]
where = {bs = "8k"}
"#,
    claims: &["C100", "C101", "C104", "C108", "C109", "C189"],
    measure: plan,
    analyse,
};

const DIRECT: &str = "past the cache";
const BUFFERED: &str = "through the cache";
/// A step of depth that brings less than this is beyond the knee.
const STEP_MIN: f64 = 1.1;

fn analyse(evidence: &Evidence) -> Conclusion {
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

fn at<'a>(evidence: &'a Evidence, part: &str, rw: &str, depth: &str) -> Option<&'a Cell> {
    evidence.find(&[("part", part), ("rw", rw), ("iodepth", depth)])
}

/// The points of a part in rising depth.
fn by_depth<'a>(evidence: &'a Evidence, part: &str, rw: &str) -> Vec<&'a Cell> {
    let mut cells = evidence.all(&[("part", part), ("rw", rw)]);
    cells.sort_by_key(|cell| cell.depth());
    cells
}

fn latency(cell: &Cell, quantile: f64) -> String {
    cell.latency_ns(quantile).map_or_else(|| "-".to_owned(), units::time)
}

/// KAPS and MAPS, one at a time and at best.
fn accesses(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    for (part, name, size) in [(DIRECT, "KAPS", "8 KiB"), ("large", "MAPS", "1 MiB")] {
        let cells = by_depth(evidence, part, rw);
        let Some(one) = cells.first() else { continue };
        let best = cells.iter().max_by(|a, b| a.rate().total_cmp(&b.rate())).unwrap_or(one);
        let count = |cell: &Cell| units::count(cell.requests_per_s());
        let text = format!(
            "{name}, {rw} of {size}: {} per second at depth {} (median {}), {} at depth {} (median \
             {}, 99th percentile {})",
            count(one),
            one.depth(),
            latency(one, 0.5),
            count(best),
            best.depth(),
            latency(best, 0.5),
            latency(best, 0.99)
        );
        found.find(&name.to_lowercase(), text);
    }
}

/// What more requests outstanding gain, and up to where.
fn queue(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    let cells = by_depth(evidence, DIRECT, rw);
    let Some(one) = cells.first() else { return };
    let Some(top) = cells.iter().max_by(|a, b| a.rate().total_cmp(&b.rate())) else { return };
    let Some(knee) = cells.iter().find(|cell| !curve::differ(cell, top)) else { return };
    let gain = knee.rate() / one.rate().max(1.0);
    if knee.depth() == one.depth() {
        let text = match curve::told(top, one) {
            Told::Unclear(wide) if wide.is_finite() => {
                format!(
                    "what more requests outstanding gain is lost in noise (+-{:.0}%)",
                    100.0 * wide
                )
            }
            Told::Unclear(_) => "what more requests outstanding gain is lost in noise".to_owned(),
            _ => "more requests outstanding gain nothing (less than 10%)".to_owned(),
        };
        found.find("queue", format!("{rw} of 8 KiB: {text}"));
        return;
    }
    let rotates = per_revolution(evidence, Some(one)).is_some();
    let why = if rotates { ", by reordering" } else { "" };
    let more = match cells.last().is_some_and(|last| last.depth() > knee.depth()) {
        true => "more gives nothing beyond noise",
        false => "none deeper was measured",
    };
    let text = format!(
        "{rw} of 8 KiB: depth {} gives {} of depth 1{why}; {more}",
        knee.depth(),
        words_of_times(gain)
    );
    found.find("queue", text.clone());
    found.advise("deeper-random", gain, &format!("{rw} at depth {}", knee.depth()), text);
}

/// Requests in the time of a revolution, where they are of one device and it says how fast it
/// rotates.
fn per_revolution(evidence: &Evidence, cell: Option<&Cell>) -> Option<f64> {
    let rotation = evidence.device()?.revolutions_per_min?;
    Some(cell.filter(|cell| cell.disks == 1)?.requests_per_s() * 60.0 / f64::from(rotation))
}

fn revolutions(found: &mut Conclusion, evidence: &Evidence) {
    let Some(one) = at(evidence, DIRECT, "randread", "1") else { return };
    let device = evidence.device();
    let rotates = device.and_then(|device| device.rotational);
    let rotation = device.and_then(|device| device.revolutions_per_min);
    if one.disks > 1 || (evidence.is_simulated() && rotates == Some(true) && rotation.is_none()) {
        let text = "no requests for each revolution: they are of several disks";
        found.find("revolutions", text);
        return;
    }
    let text = match (rotates, rotation) {
        (_, Some(rotation)) => {
            let deep = by_depth(evidence, DIRECT, "randread");
            let last = deep.last().copied().unwrap_or(one);
            format!(
                "{:.2} random reads for each revolution at depth 1, {:.2} at depth {} ({rotation} \
                 revolutions per minute)",
                per_revolution(evidence, Some(one)).unwrap_or_default(),
                per_revolution(evidence, Some(last)).unwrap_or_default(),
                last.depth()
            )
        }
        (Some(false), None) => {
            "no requests for each revolution: the system says that the device does not rotate"
                .to_owned()
        }
        (Some(true), None) => "no requests for each revolution: the system calls the device \
                               rotating, but the device does not say how fast, as a virtual one \
                               does not"
            .to_owned(),
        (None, None) => "no requests for each revolution: no device beneath is known".to_owned(),
    };
    found.find("revolutions", text);
}

/// The same requests through the page cache.
fn cached(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    let (Some(with), Some(past)) = (at(evidence, BUFFERED, rw, "1"), at(evidence, DIRECT, rw, "1"))
    else {
        return;
    };
    let rate = format!("rate beside direct ones: {}", curve::told(with, past).words());
    let cost = costs(with, past)
        .map_or_else(String::new, |times| format!(", {} the CPU", words_of_times(times)));
    let moved = moved(with).map_or_else(String::new, |(requests, bytes)| {
        format!(
            "; for each the device got {requests:.2} requests, {} in all",
            units::size(bytes.round() as u64)
        )
    });
    let region = match rw {
        "randwrite" => format!(" on {}, flush included", units::size(with.point.key.size_bytes)),
        _ => " of a cold file".to_owned(),
    };
    found.find("buffered", format!("buffered {rw} of 8 KiB{region}: {rate}{cost}{moved}"));
}

/// CPU of a buffered request over that of a direct one.
fn costs(with: &Cell, past: &Cell) -> Option<f64> {
    Some(with.cpu_ns()? / past.cpu_ns()?.max(1.0))
}

/// Device requests and bytes, both ways, for each request.
fn moved(cell: &Cell) -> Option<(f64, f64)> {
    let counted = cell.point.trials.iter().filter_map(|trial| Some((trial.device?, trial)));
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

fn claims(found: &mut Conclusion, evidence: &Evidence) {
    let read = |depth: &str| at(evidence, DIRECT, "randread", depth);
    let gain = |deep: &str| Some(curve::told(read(deep)?, read("1")?));
    if let Some((two, four)) = gain("2").zip(gain("4")) {
        let text = format!("beside depth 1, depth 2: {}, depth 4: {}", two.words(), four.words());
        match (two.times(), four.times()) {
            (Some(two), Some(four)) => {
                found.claim("C100", two < STEP_MIN && four >= STEP_MIN, text);
            }
            _ => found.cannot(&["C100"], &format!("noise: {text}")),
        }
    }
    let buffered = at(evidence, BUFFERED, "randread", "1");
    let told = buffered.zip(read("1")).map(|(with, past)| curve::told(with, past));
    if let Some(why) = told.and_then(Told::noise) {
        found.cannot(&["C101", "C109"], &why);
    }
    let times = told.and_then(Told::times);
    for id in ["C101", "C109"] {
        found.gain(id, times, "buffered random reads over direct ones, one at a time");
    }
    let turns = |cell: Option<&Cell>, published: f64, what: &str| {
        let each = per_revolution(evidence, cell)?;
        let holds = (published / 1.3..=published * 1.3).contains(&each);
        Some((holds, format!("{what}: {each:.2} for each revolution")))
    };
    found.claim_if("C104", turns(buffered, 1.3, "buffered random reads"));
    if buffered.is_some() && per_revolution(evidence, buffered).is_none() {
        let why = "no one disk that says how fast it rotates; a disk of SCSI or SATA, or \
                   sim:w2k-atlas10k, does";
        found.cannot(&["C104"], why);
    }
    let write = at(evidence, BUFFERED, "randwrite", "1");
    found.claim_if(
        "C108",
        write.and_then(moved).map(|(requests, _)| {
            let text = format!("{requests:.2} device requests for each buffered random write");
            (requests >= 1.5, text)
        }),
    );
    let saved =
        buffered.zip(read("1")).and_then(|(with, past)| Some(1.0 - 1.0 / costs(with, past)?));
    found.loss("C189", saved, "CPU that direct random reads save over buffered ones");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{DeviceFacts, TargetFacts};
    use crate::study::conclusion::Verdict;
    use crate::study::evidence::tests::{cell, evidence};

    fn read(part: &str, depth: &str, per_s: u64) -> Cell {
        let flags = [("part", part), ("rw", "randread"), ("bs", "8k"), ("iodepth", depth)];
        cell(per_s * 8192, &flags)
    }

    /// A disk of 10,000 revolutions that reorders from three requests on.
    fn disk() -> Evidence {
        let cells = vec![
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
        Evidence { targets: vec![target], ..evidence(cells) }
    }

    fn verdict(found: &Conclusion, id: &str) -> Verdict {
        found.claims.iter().find(|claim| claim.id == id).unwrap().verdict
    }

    #[test]
    fn a_disk_has_accesses_for_each_revolution_and_a_queue_that_gains() {
        let found = analyse(&disk());
        let text = |id: &str| &found.findings.iter().find(|one| one.id == id).unwrap().text;
        assert!(
            text("revolutions").starts_with("0.60 random reads for each revolution at depth 1")
        );
        assert!(text("queue").contains("depth 32 gives 1.80 times of depth 1, by reordering"));
        assert_eq!(found.advice[0].id, "deeper-random");
        assert_eq!(verdict(&found, "C100"), Verdict::Holds);
        assert_eq!(verdict(&found, "C104"), Verdict::DoesNotHold);
        assert_eq!(verdict(&found, "C101"), Verdict::DoesNotHold);
    }

    #[test]
    fn what_does_not_rotate_has_no_accesses_for_each_revolution() {
        let mut evidence = disk();
        let device = DeviceFacts { rotational: Some(false), ..DeviceFacts::default() };
        evidence.targets[0].device = Some(device);
        let found = analyse(&evidence);
        assert!(found.findings.iter().any(|one| one.text.contains("does not rotate")));
        assert_eq!(verdict(&found, "C104"), Verdict::CannotBeTried);
    }

    #[test]
    fn several_disks_have_no_accesses_for_a_revolution_and_no_word_of_reordering() {
        let mut evidence = disk();
        evidence.cells.iter_mut().for_each(|cell| cell.disks = 3);
        let found = analyse(&evidence);
        assert!(found.findings.iter().any(|one| one.text.contains("of several disks")));
        assert!(found.findings.iter().all(|one| !one.text.contains("reordering")));
        assert_eq!(verdict(&found, "C104"), Verdict::CannotBeTried);
    }

    #[test]
    fn the_knee_is_the_first_depth_that_cannot_be_told_from_the_top() {
        let mut evidence = disk();
        evidence.cells[1].summary.bytes_per_s.low /= 2.0;
        evidence.cells[2].summary.bytes_per_s.high *= 2.0;
        let found = analyse(&evidence);
        let queue = &found.findings.iter().find(|one| one.id == "queue").unwrap().text;
        assert!(queue.contains("depth 4 gives 1.30 times"), "{queue}");
        assert_eq!(verdict(&found, "C100"), Verdict::CannotBeTried);
    }
}
