//! What a misaligned request costs: against page, sector, the chunk of a stripe, and whatever
//! granule the storage has within.
//!
//! Large requests are shifted by powers of two. A granule shows as the smallest shift from which on
//! requests cost no more than unshifted ones, while all smaller shifts cost more. Small requests
//! and the papers' own case (64 KiB, 12 KiB off the chunk) are measured beside them.

use crate::point::Trial;
use crate::study::catalogue::{Study, plan};
use crate::study::conclusion::Conclusion;
use crate::study::curve::{self, Told};
use crate::study::evidence::{Cell, Evidence};
use crate::units;

/// See the module.
pub const STUDY: Study = Study {
    name: "alignment",
    papers: "Riedel 1997, section 5.5 and Figure 13: 64 KB requests that lie 12 KB off the chunk \
             of a stripe lose 15% to 20%, for each becomes two",
    needs: "",
    plan: r#"
title = "Alignment: what a shifted request costs"
asks = "From which granule on does the place of a request not matter, and what does it cost below?"
direct = true
iodepth = 1
runtime = 0.5
trials = 5

[quick]
runtime = 0.05
trials = 3

[[part]]
name = "large"
rw = ["read", "write"]
bs = "1m"
offset = ["0", "512", "1k", "2k", "4k", "8k", "16k", "32k", "64k", "128k", "256k", "512k"]

[[part]]
name = "small"
rw = ["randread", "randwrite"]
bs = "4k"
offset = ["0", "512", "1k", "2k"]

[[part]]
name = "chunk"
rw = ["read", "write"]
bs = "64k"
iodepth = 8
offset = ["0", "12k"]

[[part]]
name = "page cache"
direct = false
rw = "randwrite"
bs = "4k"
size = "16m"
offset = ["0", "512", "2k", "4k"]

[[figure]]
title = "Requests of 1 MiB, by shift"
x = "offset"
y = "throughput"
by = ["rw"]
where = {part = "large"}

[[figure]]
title = "Requests of 4 KiB, by shift"
x = "offset"
y = "iops"
by = ["part", "rw"]
where = {part = ["small", "page cache"]}
"#,
    claims: &["R155", "R161", "R162", "R158"],
    measure: plan,
    analyse,
};

/// A cost below this is none (share of the time of an unshifted request).
const COST_MIN: f64 = 0.03;

/// What shifts of one kind of request cost.
#[derive(Debug, PartialEq)]
enum Granule {
    /// No shift costs anything.
    None,
    /// Shifts that are no multiple of so many bytes cost so much at the most (share of the time).
    Found { bytes: u64, cost: f64 },
    /// All measured shifts cost something.
    Beyond { bytes: u64, cost: f64 },
    /// Some cost something, without order.
    Unclear { cost: f64 },
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    for part in ["large", "small", "page cache"] {
        for rw in ["read", "write", "randread", "randwrite"] {
            if let Some(granule) = granule(&shifts(evidence, part, rw)) {
                say(&mut found, part, rw, &granule);
            }
        }
    }
    told(&mut found, evidence);
    claims(&mut found, evidence);
    found
}

/// The points of a part and direction by shift, the unshifted one first.
fn shifts<'a>(evidence: &'a Evidence, part: &str, rw: &str) -> Vec<&'a Cell> {
    let mut cells = evidence.all(&[("part", part), ("rw", rw)]);
    cells.sort_by(|a, b| shift_of(a).total_cmp(&shift_of(b)));
    cells
}

fn shift_of(cell: &Cell) -> f64 {
    cell.number("offset").unwrap_or_default()
}

/// The time of a request in each trial: the median latency, the smallest and the largest (ns).
fn times_of(cell: &Cell) -> (f64, f64) {
    let time = |trial: &Trial| match trial.latency().quantile(0.5) {
        Some(ns) => ns as f64,
        None => cell.bytes() as f64 * 1e9 / trial.bytes_per_s().max(1.0),
    };
    let times = cell.point.unsoaked().into_iter().map(time);
    times.fold((f64::MAX, 0.0), |(low, high), ns| (low.min(ns), high.max(ns)))
}

/// What a shift costs over the unshifted request, as a share of its time; None where one trial of
/// either is among those of the other.
fn cost(cell: &Cell, plain: &Cell) -> Option<f64> {
    let ((low, high), (_, plain_high)) = (times_of(cell), times_of(plain));
    let (plain_low, _) = times_of(plain);
    let cost = (low + high) / (plain_low + plain_high) - 1.0;
    (low > plain_high && cost >= COST_MIN).then_some(cost)
}

fn granule(cells: &[&Cell]) -> Option<Granule> {
    let (plain, shifted) = cells.split_first()?;
    if shift_of(plain) != 0.0 || shifted.is_empty() {
        return None;
    }
    let costs: Vec<Option<f64>> = shifted.iter().map(|cell| cost(cell, plain)).collect();
    let most = costs.iter().flatten().copied().fold(0.0, f64::max);
    let first_free = costs.iter().position(Option::is_none);
    let bytes = |index: usize| shift_of(shifted[index]) as u64;
    Some(match first_free {
        None => Granule::Beyond { bytes: bytes(shifted.len() - 1), cost: most },
        Some(free) if costs[free..].iter().any(Option::is_some) => Granule::Unclear { cost: most },
        Some(0) => Granule::None,
        Some(free) => Granule::Found { bytes: bytes(free), cost: most },
    })
}

fn say(found: &mut Conclusion, part: &str, rw: &str, granule: &Granule) {
    let requests = match part {
        "large" => format!("{rw}s of 1 MiB"),
        "page cache" => "buffered random writes of 4 KiB".to_owned(),
        _ => format!("{rw}s of 4 KiB"),
    };
    let percent = |cost: &f64| format!("{:.0}%", 100.0 * cost);
    match granule {
        Granule::None => {
            found.find("aligned", format!("{requests}: no shift measured costs more than noise"));
        }
        Granule::Found { bytes, cost } => {
            let (size, cost_words) = (units::size(*bytes), percent(cost));
            found.find(
                "granule",
                format!(
                    "{requests} have a granule of {size}: off it they take up to {cost_words} \
                     longer; begin them at multiples of {size}"
                ),
            );
            let evidence = format!("off {size} they take up to {cost_words} longer");
            found.advise("align", 1.0 + cost, &format!("{requests} to {size}"), evidence);
        }
        Granule::Beyond { bytes, cost } => found.find(
            "granule-beyond",
            format!(
                "{requests} take up to {} longer at every shift up to {}: their granule is larger",
                percent(cost),
                units::size(*bytes)
            ),
        ),
        Granule::Unclear { cost } => found.find(
            "granule-unclear",
            format!(
                "{requests} take up to {} longer at some shifts, without a granule in it",
                percent(cost)
            ),
        ),
    }
}

/// What the system tells of granules.
fn told(found: &mut Conclusion, evidence: &Evidence) {
    for facts in &evidence.targets {
        let Some(device) = &facts.device else { continue };
        if device.logical_block_bytes.is_none() && device.physical_block_bytes.is_none() {
            continue;
        }
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), units::size);
        found.find(
            "told",
            format!(
                "{} says of itself: logical block {}, physical block {}",
                device.name,
                size(device.logical_block_bytes),
                size(device.physical_block_bytes)
            ),
        );
    }
}

fn claims(found: &mut Conclusion, evidence: &Evidence) {
    let at = |rw: &str, offset: &str| {
        evidence.find(&[("part", "chunk"), ("rw", rw), ("offset", offset)])
    };
    for (id, rw) in [("R155", "read"), ("R161", "read"), ("R162", "write")] {
        let told = at(rw, "12k").zip(at(rw, "0")).map(|(off, on)| curve::told(off, on));
        if let Some(why) = told.and_then(Told::noise) {
            found.cannot(&[id], &why);
        }
        let lost = told.and_then(Told::times).map(|times| 1.0 - times);
        found.loss(id, lost, &format!("{rw}s of 64 KiB, 12 KiB off the chunk"));
    }
    found.claim_if("R158", split(at("read", "12k"), at("read", "0")));
}

/// Whether misaligned requests become twice as many at the device.
fn split(off: Option<&Cell>, on: Option<&Cell>) -> Option<(bool, String)> {
    let (off, on) = (off?.device_request_bytes()?, on?.device_request_bytes()?);
    let times = on / off;
    Some((times >= 1.5, format!("{times:.2} device requests for each one when misaligned")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::conclusion::Verdict;
    use crate::study::evidence::tests::{cell, evidence};

    /// Writes of a part, whose time at a shift is a multiple of the unshifted one.
    fn scan(part: &str, shifts: &[u64], times: impl Fn(u64) -> f64) -> Evidence {
        let at = |shift: &u64| {
            let offset = shift.to_string();
            let rate = (1e9 / times(*shift)) as u64;
            cell(rate, &[("part", part), ("rw", "write"), ("bs", "1m"), ("offset", &offset)])
        };
        evidence(shifts.iter().map(at).collect())
    }

    const SHIFTS: [u64; 8] = [0, 512, 1024, 2048, 4096, 8192, 16384, 32768];

    fn granule_of(evidence: &Evidence) -> Granule {
        granule(&shifts(evidence, "large", "write")).unwrap()
    }

    #[test]
    fn a_granule_is_the_smallest_shift_that_costs_nothing() {
        for bytes in [1024_u64, 4096, 16384] {
            let at = |shift: u64| if shift.is_multiple_of(bytes) { 1.0 } else { 1.4 };
            let Granule::Found { bytes: found, cost } = granule_of(&scan("large", &SHIFTS, at))
            else {
                panic!("{bytes}");
            };
            assert!(found == bytes && (cost - 0.4).abs() < 0.01, "{found} {cost}");
        }
    }

    #[test]
    fn equal_costs_have_no_granule_and_disorder_is_called_so() {
        assert_eq!(granule_of(&scan("large", &SHIFTS, |_| 1.0)), Granule::None);
        let off = |shift: u64| if shift == 0 { 1.0 } else { 1.5 };
        assert!(matches!(granule_of(&scan("large", &SHIFTS, off)), Granule::Beyond { .. }));
        let wild = |shift: u64| if shift == 4096 { 1.5 } else { 1.0 };
        assert!(matches!(granule_of(&scan("large", &SHIFTS, wild)), Granule::Unclear { .. }));
    }

    #[test]
    fn a_loss_off_the_chunk_that_noise_hides_cannot_be_tried() {
        let chunk = |rw: &str, offset: &str, rate| {
            cell(rate, &[("part", "chunk"), ("rw", rw), ("bs", "64k"), ("offset", offset)])
        };
        let mut cells = vec![
            chunk("read", "0", 1000),
            chunk("read", "12k", 800),
            chunk("write", "0", 1000),
            chunk("write", "12k", 800),
        ];
        cells[3].summary.bytes_per_s.high = 1200.0;
        let found = analyse(&evidence(cells));
        let verdicts: Vec<_> = found.claims.iter().map(|one| (one.id, one.verdict)).collect();
        assert!(verdicts.contains(&("R155", Verdict::Holds)), "{verdicts:?}");
        assert!(verdicts.contains(&("R162", Verdict::CannotBeTried)), "{verdicts:?}");
    }

    #[test]
    fn a_granule_is_advised_with_its_cost() {
        let at = |shift: u64| if shift.is_multiple_of(4096) { 1.0 } else { 2.0 };
        let found = analyse(&scan("large", &SHIFTS, at));
        assert!(found.findings[0].text.contains("granule of 4 KiB"), "{:?}", found.findings);
        assert_eq!(found.advice[0].id, "align");
    }
}
