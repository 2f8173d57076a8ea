//! Study `allocate`: the cost of writing to a growing file, and the effect of preallocation.
//!
//! The study compares writes to a file whose blocks were written before, to a file whose blocks
//! were reserved with `fallocate`, and to a file that grows.

use analysis::units;
use lab::evidence::{Evidence, MeasuredPoint};

use crate::catalogue::Study;
use crate::conclusion::Conclusion;
use crate::curve::{self, Comparison};

pub const STUDY: Study = Study {
    name: "allocate",
    papers: "Riedel 1997, section 5.4, Figure 12: writes to a growing file run one at a time, so \
             preallocate files; Chung 2000, section 4.4: extending a file halves the write rate",
    needs: "a directory, because the study writes to growing files",
    plan: include_str!("../../plans/allocate.toml"),
    claims: &["R153", "R154", "C073"],
    rules: &["preallocate"],
    measure: None,
    analyse,
};

/// The values of the label `allocation` that are compared with `preallocated`.
const METHODS: [&str; 4] = ["extend", "truncate", "fallocate", "last-block"];
/// Writes count as serialised if depth 8 gives less than this many times the rate of depth 1.
const SERIAL: f64 = 1.2;

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    let mut written: Vec<&MeasuredPoint> = evidence.all(&[("allocation", "preallocated")]);
    written.sort_by_key(|point| (point.word("caching"), point.bytes(), point.depth()));
    for base in &written {
        compare_methods(&mut found, evidence, base);
    }
    for base in written.iter().filter(|point| point.depth() == 1) {
        serial(&mut found, evidence, base);
    }
    claims(&mut found, evidence);
    found
}

/// Finds the point with the given allocation and depth, and with the request size and caching of
/// `base`.
fn like<'a>(
    evidence: &'a Evidence,
    base: &MeasuredPoint,
    allocation: &str,
    depth: &str,
) -> Option<&'a MeasuredPoint> {
    let (caching, bs) = (base.word("caching"), base.bytes().to_string());
    evidence.find(&[
        ("caching", &caching),
        ("bs", &bs),
        ("iodepth", depth),
        ("allocation", allocation),
    ])
}

/// Returns the file system of the first target, such as "ext4", or the simulated system.
fn place(evidence: &Evidence) -> String {
    let target = evidence.targets.first();
    let system = target.and_then(|target| target.file_system.clone());
    let simulated = target.and_then(|target| Some(target.simulated.as_ref()?.system.clone()));
    system.or(simulated).unwrap_or_else(|| "this target".to_owned())
}

fn name(point: &MeasuredPoint) -> String {
    let size = units::size(point.bytes());
    format!("{} writes of {size} at depth {}", point.word("caching"), point.depth())
}

fn compare_methods(found: &mut Conclusion, evidence: &Evidence, base: &MeasuredPoint) {
    let depth = base.depth().to_string();
    let points: Vec<&MeasuredPoint> =
        METHODS.iter().filter_map(|method| like(evidence, base, method, &depth)).collect();
    if points.is_empty() {
        return;
    }
    let word = |point: &&MeasuredPoint| {
        let method = point.word("allocation");
        match curve::compare(point, base) {
            Comparison::Times(times) => format!("{method} {:.0}% of this rate", 100.0 * times),
            other => format!("{method} {}", other.words()),
        }
    };
    let words: Vec<String> = points.iter().map(word).collect();
    let text = format!(
        "{}: {} reach {} on preallocated blocks; with other allocation methods: {}",
        place(evidence),
        name(base),
        units::rate(base.rate()),
        words.join(", ")
    );
    found.find("allocate", text);
    let Some(grown) = points.iter().find(|point| point.word("allocation") == "extend") else {
        return;
    };
    if base.rate() > grown.rate() && curve::differ(base, grown) {
        let text = format!(
            "{}: writes reach {} on preallocated blocks, but only {} in a growing file",
            place(evidence),
            units::rate(base.rate()),
            units::rate(grown.rate())
        );
        found.advise("preallocate", base.rate() / grown.rate().max(1.0), &name(base), text);
    }
}

/// Returns the rate at depth 8 divided by the rate at depth 1: first for a growing file, then for
/// preallocated blocks.
fn gains(evidence: &Evidence, base: &MeasuredPoint) -> Option<(f64, f64)> {
    let gain = |method: &str| {
        let (deep, one) = (like(evidence, base, method, "8")?, like(evidence, base, method, "1")?);
        Some(deep.rate() / one.rate().max(1.0))
    };
    Some((gain("extend")?, gain("preallocated")?))
}

fn serial(found: &mut Conclusion, evidence: &Evidence, base: &MeasuredPoint) {
    let Some((grown, written)) = gains(evidence, base) else { return };
    let (size, caching) = (units::size(base.bytes()), base.word("caching"));
    found.find(
        "serial",
        format!(
            "{}: compared with depth 1, {caching} writes of {size} at depth 8 are {grown:.2} times \
             as fast in a growing file, and {written:.2} times as fast on preallocated blocks",
            place(evidence)
        ),
    );
}

fn claims(found: &mut Conclusion, evidence: &Evidence) {
    let lost = |caching: &str, bs: &str, depth: &str| {
        let at = |method: &str| {
            let flags =
                [("caching", caching), ("bs", bs), ("iodepth", depth), ("allocation", method)];
            evidence.find(&flags)
        };
        Some(curve::compare(at("extend")?, at("preallocated")?))
    };
    for (id, comparison, what) in [
        (
            "R153",
            lost("buffered", "4k", "1"),
            "rate lost by buffered 4 KiB writes in a growing file",
        ),
        (
            "C073",
            lost("direct", "64k", "8"),
            "rate lost by direct 64 KiB writes at depth 8 in a growing file",
        ),
    ] {
        if let Some(why) = comparison.and_then(Comparison::noise) {
            found.cannot(&[id], &why);
        }
        found.loss(id, comparison.and_then(Comparison::times).map(|times| 1.0 - times), what);
    }
    let direct = [("caching", "direct"), ("bs", "64k"), ("allocation", "preallocated")];
    let gains_of_depth = evidence.find(&direct).and_then(|base| gains(evidence, base));
    let Some((grown, written)) = gains_of_depth else { return };
    if written < SERIAL {
        let why = "depth 8 is hardly faster than depth 1 even on preallocated blocks, so the \
                   effect of a growing file cannot be tested";
        found.cannot(&["R154"], why);
        return;
    }
    let text = format!(
        "compared with depth 1, direct 64 KiB writes at depth 8 are {grown:.2} times as fast in a \
         growing file, and {written:.2} times as fast on preallocated blocks"
    );
    found.claim("R154", grown < SERIAL, text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::Verdict;
    use lab::evidence::testing::{cell, evidence};
    use lab::machine::TargetFacts;

    fn write(allocation: &str, depth: &str, rate: u64) -> MeasuredPoint {
        let flags = [("caching", "direct"), ("rw", "write"), ("bs", "64k"), ("iodepth", depth)];
        cell(rate, &[flags[0], flags[1], flags[2], flags[3], ("allocation", allocation)])
    }

    fn serial_file_system() -> Evidence {
        let points = vec![
            write("preallocated", "1", 1000),
            write("preallocated", "8", 4000),
            write("extend", "1", 900),
            write("extend", "8", 950),
            write("fallocate", "8", 3990),
        ];
        let system = Some("ext9".to_owned());
        let targets = vec![TargetFacts { file_system: system, ..TargetFacts::default() }];
        Evidence { targets, ..evidence(points) }
    }

    #[test]
    fn a_file_system_that_serialises_growing_writes_is_named_with_advice() {
        let found = analyse(&serial_file_system());
        let text = &found.findings[1].headline;
        assert!(text.starts_with("ext9: direct writes of 64 KiB at depth 8"), "{text}");
        assert!(text.ends_with("extend 24% of this rate, fallocate the same within 10%"), "{text}");
        assert_eq!(found.advice[0].id, "preallocate");
        let verdict = |id: &str| found.claims.iter().find(|claim| claim.id == id).unwrap().verdict;
        assert_eq!(verdict("R154"), Verdict::Holds);
        assert_eq!(verdict("C073"), Verdict::Holds);
    }

    #[test]
    fn without_a_gain_of_depth_the_claim_is_not_testable() {
        let points = vec![
            write("preallocated", "1", 1000),
            write("preallocated", "8", 1000),
            write("extend", "1", 1000),
            write("extend", "8", 1000),
        ];
        let found = analyse(&evidence(points));
        let claim = found.claims.iter().find(|claim| claim.id == "R154").unwrap();
        assert_eq!(claim.verdict, Verdict::CannotBeTried);
    }

    #[test]
    fn no_advice_if_growing_costs_nothing() {
        let points = vec![write("preallocated", "8", 1000), write("extend", "8", 1000)];
        let found = analyse(&evidence(points));
        assert!(found.advice.is_empty());
        assert!(found.findings[0].headline.ends_with("extend the same within 10%"));
    }
}
