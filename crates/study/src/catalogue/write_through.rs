//! Study `write-through`: the cost of making each write durable, and the gain if one flush makes
//! several writes durable.
//!
//! Writes are made durable by O_DSYNC, by RWF_DSYNC for each write, or by fdatasync.

use analysis::units;
use lab::evidence::{Evidence, MeasuredPoint};

use crate::catalogue::Study;
use crate::conclusion::{Conclusion, words_of_times};
use crate::curve::{self, Comparison};

pub const STUDY: Study = Study {
    name: "write-through",
    papers: "Riedel 1997, section 2: write-through makes each request almost ten times slower, \
             even with the drive's write cache on; Chung 2000, section 7",
    needs: "permission to write",
    plan: include_str!("../../plans/write-through.toml"),
    claims: &["R028"],
    rules: &["avoid-write-through"],
    measure: None,
    analyse,
};

/// Each pair names two parts of the plan that differ only in O_DSYNC, which makes every write
/// durable.
const PAIRS: [(&str, &str); 2] = [("buffered", "O_DSYNC"), ("direct", "direct, O_DSYNC")];

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    for (plain, durable) in PAIRS {
        cost(&mut found, evidence, plain, durable);
    }
    for (_, durable) in PAIRS {
        depth(&mut found, evidence, durable);
        by_request(&mut found, evidence, durable);
    }
    for caching in ["buffered", "direct"] {
        flushed(&mut found, evidence, caching);
    }
    let loss = at(evidence, "buffered", 4 << 10, 1).zip(at(evidence, "O_DSYNC", 4 << 10, 1));
    let comparison = loss.map(|(plain, durable)| curve::compare(plain, durable));
    if let Some(why) = comparison.and_then(Comparison::noise) {
        found.cannot(&["R028"], &why);
    }
    let times = comparison.and_then(Comparison::times);
    found.gain("R028", times, "plain buffered 4 KiB writes compared with write-through");
    found
}

fn at<'a>(evidence: &'a Evidence, part: &str, bytes: u64, depth: u32) -> Option<&'a MeasuredPoint> {
    evidence.find(&[("part", part), ("bs", &bytes.to_string()), ("iodepth", &depth.to_string())])
}

/// Reports the cost of durability at depth 1, by request size.
fn cost(found: &mut Conclusion, evidence: &Evidence, plain: &str, durable: &str) {
    let one = curve::by_size(evidence, &[("part", durable), ("iodepth", "1")]);
    for through in one {
        let Some(free) = at(evidence, plain, through.bytes(), 1) else { continue };
        let size = units::size(through.bytes());
        let comparison = curve::compare(free, through);
        let Comparison::Times(times) = comparison else {
            let text = format!(
                "{plain} writes of {size} at depth 1, rates without and with O_DSYNC: {}",
                comparison.words()
            );
            found.find("write-through", text);
            continue;
        };
        let latency = through.latency_ns(0.5).map_or_else(|| "-".to_owned(), units::time);
        let text = format!(
            "writes of {size} at depth 1: {} {plain}, {} with O_DSYNC (median latency {latency}), \
             {}",
            units::rate(free.rate()),
            units::rate(through.rate()),
            if times > 1.0 {
                format!("which is {} slower", words_of_times(times))
            } else {
                format!("which is {} faster", words_of_times(1.0 / times))
            }
        );
        // The advice is given in `flushed`, which measures the alternative: one flush for several
        // writes.
        found.find("write-through", text);
    }
}

/// Reports how much a larger depth gains for durable writes.
fn depth(found: &mut Conclusion, evidence: &Evidence, durable: &str) {
    for shallow in curve::by_size(evidence, &[("part", durable), ("iodepth", "1")]) {
        let same = |point: &&MeasuredPoint| point.bytes() == shallow.bytes() && point.depth() > 1;
        let deeper = evidence.all(&[("part", durable)]).into_iter().filter(same);
        let Some(best) = deeper.max_by(|a, b| a.rate().total_cmp(&b.rate())) else { continue };
        let size = units::size(shallow.bytes());
        found.find(
            "durable-depth",
            match curve::compare(best, shallow) {
                Comparison::Times(gain) if gain > 1.0 => format!(
                    "{durable} writes of {size}: depth {} reaches {} the rate of depth 1",
                    best.depth(),
                    words_of_times(gain)
                ),
                Comparison::Unclear(wide) => format!(
                    "{durable} writes of {size}, depth {} compared with depth 1: {}",
                    best.depth(),
                    Comparison::Unclear(wide).words()
                ),
                _ => format!("{durable} writes of {size}: a larger depth gains less than 10%"),
            },
        );
    }
}

/// Compares RWF_DSYNC on each write with O_DSYNC on the open file.
fn by_request(found: &mut Conclusion, evidence: &Evidence, durable: &str) {
    let asked = durable.replace("O_DSYNC", "RWF_DSYNC");
    for one in curve::by_size(evidence, &[("part", &asked)]) {
        let Some(opened) = at(evidence, durable, one.bytes(), 1) else { continue };
        let size = units::size(one.bytes());
        let effect = curve::compare(one, opened).words();
        let text =
            format!("{size} writes: rate with {asked} (FUA) compared with {durable}: {effect}");
        found.find("by-request", text);
    }
}

/// Reports the rate of writes with a flush after every N writes, for several N.
fn flushed(found: &mut Conclusion, evidence: &Evidence, caching: &str) {
    for each in curve::by_size(evidence, &[("caching", caching), ("fdatasync", "1")]) {
        let bs = each.bytes().to_string();
        let mut points = evidence.all(&[("part", "flushed"), ("caching", caching), ("bs", &bs)]);
        let count = |point: &MeasuredPoint| point.number("fdatasync").unwrap_or_default() as u64;
        points.sort_by_key(|point| count(point));
        let word = |point: &&MeasuredPoint| match count(point) {
            1 => format!("{} with a flush after each write", units::rate_mib(point.rate())),
            n => format!("{} after every {n} writes", units::rate_mib(point.rate())),
        };
        let words: Vec<String> = points.iter().map(word).collect();
        let size = units::size(each.bytes());
        found.find("flushed", format!("{caching} writes of {size}: {}", words.join(", ")));
        let best = points.iter().max_by(|a, b| a.rate().total_cmp(&b.rate()));
        let advised = found.advice.iter().any(|advice| advice.setting.starts_with(caching));
        let Some(best) = best.filter(|best| !advised && curve::differ(best, each)) else {
            continue;
        };
        let text = format!(
            "{} with a flush after every {} writes, {} with a flush after each write",
            units::rate(best.rate()),
            count(best),
            units::rate(each.rate())
        );
        let setting =
            format!("{caching} writes of {size}, flushed after every {} writes", count(best));
        found.advise("avoid-write-through", best.rate() / each.rate().max(1.0), &setting, text);
    }
}

#[cfg(test)]
mod tests {
    use ioengine::Caching;

    use super::*;
    use crate::conclusion::Verdict;
    use lab::evidence::testing::{cell, evidence};

    fn write(part: &str, depth: &str, rate: u64) -> MeasuredPoint {
        cell(rate, &[("part", part), ("rw", "write"), ("bs", "4k"), ("iodepth", depth)])
    }

    #[test]
    fn the_cost_of_write_through_is_reported() {
        let evidence = evidence(vec![
            write("buffered", "1", 5000),
            write("O_DSYNC", "1", 1000),
            write("O_DSYNC", "32", 3000),
        ]);
        let found = analyse(&evidence);
        assert!(found.findings[0].headline.ends_with("5.00 times slower"), "{:?}", found.findings);
        assert!(
            found.findings[1].headline.contains("depth 32 reaches 3.00 times the rate of depth 1")
        );
        assert!(found.advice.is_empty(), "the alternative was not measured");
        assert_eq!(found.claims[0].verdict, Verdict::Holds);
    }

    #[test]
    fn a_flush_for_several_writes_is_compared_with_one_for_each() {
        let at = |n: &str, rate| {
            let flags = [("part", "flushed"), ("rw", "write"), ("bs", "4k"), ("fdatasync", n)];
            let mut point = cell(rate, &flags);
            point.point.key.caching = Caching::Buffered;
            point
        };
        let found = analyse(&evidence(vec![at("64", 9 << 20), at("1", 1 << 20), at("8", 5 << 20)]));
        let text = &found.findings[0].headline;
        assert!(
            text.contains("1 MiB/s with a flush after each write, 5 MiB/s after every 8 writes"),
            "{text}"
        );
        assert!(found.advice[0].setting.ends_with("flushed after every 64 writes"));
    }

    #[test]
    fn a_device_with_free_durability_shows_no_cost() {
        let evidence = evidence(vec![write("buffered", "1", 1000), write("O_DSYNC", "1", 1000)]);
        let found = analyse(&evidence);
        assert!(found.findings[0].headline.ends_with("the same within 10%"));
        assert!(found.advice.is_empty());
        assert_eq!(found.claims[0].verdict, Verdict::DoesNotHold);
    }
}
