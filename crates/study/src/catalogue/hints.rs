//! Study `hints`: the effects of access hints (`posix_fadvise`), of the read-ahead window and of
//! RWF_DONTCACHE.
//!
//! The study compares throughput and the size of the requests that reach the device.

use analysis::units;
use lab::evidence::{Evidence, MeasuredPoint};

use crate::catalogue::Study;
use crate::conclusion::Conclusion;
use crate::curve::{self, Comparison};

pub const STUDY: Study = Study {
    name: "hints",
    papers: "Riedel 1997, section 2: the sequential-scan flag gains 10% on writes, and makes the \
             write-back (in requests of 64 KB) steadier",
    needs: "root, to change the device's read-ahead",
    plan: include_str!("../../plans/hints.toml"),
    claims: &["R007", "R019", "R020", "R026", "R027", "C117"],
    rules: &["sequential-hint"],
    measure: None,
    analyse,
};

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    for (part, rw) in [("reads", "read"), ("reads", "randread"), ("writes", "write")] {
        for usual in curve::by_size(evidence, &[("part", part), ("rw", rw), ("hint", "normal")]) {
            hints(&mut found, evidence, usual);
        }
    }
    for bs in ["4k", "64k"] {
        read_ahead(&mut found, evidence, bs);
    }
    for rw in ["read", "write"] {
        uncached(&mut found, evidence, rw);
    }
    claims(&mut found, evidence);
    found
}

/// Formats the mean size of device requests, such as ", device requests of 128 KiB". The text is
/// empty if the device requests were not counted.
fn device_request(point: &MeasuredPoint) -> String {
    point.device_request_bytes().map_or_else(String::new, |bytes| {
        format!(", device requests of {}", units::size((bytes / 512.0).round() as u64 * 512))
    })
}

/// Reports the effect of each hint, compared with requests without a hint.
fn hints(found: &mut Conclusion, evidence: &Evidence, usual: &MeasuredPoint) {
    let (part, rw, bs) = (usual.word("part"), usual.word("rw"), usual.bytes().to_string());
    let mut words = Vec::new();
    for hint in ["sequential", "random", "noreuse"] {
        let flags = [("part", &*part), ("rw", &*rw), ("bs", &*bs), ("hint", hint)];
        let Some(hinted) = evidence.find(&flags) else { continue };
        let comparison = curve::compare(hinted, usual);
        words.push(format!("{hint}: {}{}", comparison.words(), device_request(hinted)));
        let Comparison::Times(times) = comparison else { continue };
        let text =
            format!("{} instead of {}", units::rate(hinted.rate()), units::rate(usual.rate()));
        let setting = format!("the hint {hint} for {rw} of {}", units::size(usual.bytes()));
        found.advise("sequential-hint", times, &setting, text);
    }
    if !words.is_empty() {
        let text = format!(
            "buffered {rw} of {}: {} without a hint{}; with hints, relative to this rate: {}",
            units::size(usual.bytes()),
            units::rate(usual.rate()),
            device_request(usual),
            words.join("; ")
        );
        found.find("hints", text);
    }
}

/// Reports the throughput for each size of the read-ahead window, smallest window first.
fn read_ahead(found: &mut Conclusion, evidence: &Evidence, bs: &str) {
    let mut points = evidence.all(&[("part", "read-ahead"), ("bs", bs)]);
    let window = |point: &MeasuredPoint| point.number("read-ahead").unwrap_or_default() as u64;
    points.sort_by_key(|point| window(point));
    let name = |point: &MeasuredPoint| match window(point) {
        0 => "no read-ahead".to_owned(),
        bytes => format!("a read-ahead window of {}", units::size(bytes)),
    };
    let (Some(first), true) = (points.first(), points.len() > 1) else { return };
    let word = |point: &&MeasuredPoint| {
        format!("{} with {}{}", units::rate_mib(point.rate()), name(point), device_request(point))
    };
    let words: Vec<String> = points.iter().map(word).collect();
    let size = units::size(first.bytes());
    found.find("read-ahead", format!("buffered reads of {size}: {}", words.join("; ")));
    let usual = evidence.find(&[("part", "without hints"), ("rw", "read"), ("bs", bs)]);
    let best = points.iter().max_by(|a, b| a.rate().total_cmp(&b.rate()));
    let Some((usual, best)) = usual.zip(best) else { return };
    if best.rate() > usual.rate() && curve::differ(best, usual) {
        let text = format!(
            "{} instead of {} (current setting)",
            units::rate(best.rate()),
            units::rate(usual.rate())
        );
        let times = best.rate() / usual.rate().max(1.0);
        found.advise("sequential-hint", times, &format!("reads with {}", name(best)), text);
    }
}

/// Compares requests that leave nothing in the page cache (RWF_DONTCACHE) with ordinary buffered
/// requests.
fn uncached(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    let at = |part: &str| evidence.find(&[("part", part), ("rw", rw), ("bs", "64k")]);
    let (Some(once), Some(usual)) = (at("uncached"), at("without hints")) else { return };
    let comparison = curve::compare(once, usual);
    let text = format!(
        "rate of 64 KiB {rw}s with RWF_DONTCACHE compared with cached {rw}s: {}{}",
        comparison.words(),
        device_request(once)
    );
    found.find("uncached", text.clone());
    if let Comparison::Times(times) = comparison {
        found.advise("sequential-hint", times, &format!("RWF_DONTCACHE for {rw}s"), text);
    }
}

fn claims(found: &mut Conclusion, evidence: &Evidence) {
    let write = |hint: &str| {
        let flags = [("part", "writes"), ("bs", "4k"), ("hint", hint)];
        evidence.find(&flags)
    };
    let pair = write("sequential").zip(write("normal"));
    let comparison = pair.map(|(hinted, usual)| curve::compare(hinted, usual));
    if let Some(why) = comparison.and_then(Comparison::noise) {
        found.cannot(&["R026"], &why);
    }
    let gain = comparison.and_then(Comparison::times);
    let what = "rate of buffered 4 KiB writes with the hint sequential, compared with no hint";
    found.gain("R026", gain, what);
    let plain = |rw: &str| {
        let point = evidence.find(&[("part", "without hints"), ("rw", rw), ("bs", "4k")])?;
        let bytes = point.device_request_bytes()?;
        let size = units::size((bytes / 512.0).round() as u64 * 512);
        Some((bytes / 1024.0, format!("buffered {rw}s of 4 KiB cause device requests of {size}")))
    };
    for (id, rw) in [("R007", "read"), ("R019", "read"), ("R020", "write"), ("C117", "write")] {
        found.value_if(id, plain(rw));
    }
    found.value_if("R027", plain("write"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::Verdict;
    use lab::evidence::testing::{cell, evidence};

    fn hinted(rw: &str, hint: &str, rate: u64) -> MeasuredPoint {
        let part = if rw == "write" { "writes" } else { "reads" };
        cell(rate, &[("part", part), ("rw", rw), ("bs", "4k"), ("hint", hint)])
    }

    #[test]
    fn a_hint_that_gains_is_advised_and_one_within_noise_is_not() {
        let points = vec![
            hinted("write", "normal", 1000),
            hinted("write", "sequential", 1200),
            hinted("write", "noreuse", 1010),
        ];
        let found = analyse(&evidence(points));
        let text = &found.findings[0].headline;
        assert!(text.contains("sequential: 1.20 times"), "{text}");
        assert!(text.contains("noreuse: the same within 10%"), "{text}");
        assert_eq!(found.advice.len(), 1);
        let claim = found.claims.iter().find(|claim| claim.id == "R026").unwrap();
        assert_eq!(claim.verdict, Verdict::Holds);
    }

    #[test]
    fn windows_are_in_order_and_the_best_is_compared_with_the_current_setting() {
        let at = |window: &str, rate| {
            let flags = [("part", "read-ahead"), ("rw", "read"), ("bs", "4k")];
            cell(rate, &[flags[0], flags[1], flags[2], ("read-ahead", window)])
        };
        let plain = cell(1000, &[("part", "without hints"), ("rw", "read"), ("bs", "4k")]);
        let found = analyse(&evidence(vec![at("4m", 3000), at("0", 100), plain]));
        let text = &found.findings[0].headline;
        assert!(text.find("no read-ahead") < text.find("a read-ahead window of 4 MiB"), "{text}");
        assert!(found.advice[0].setting.contains("a read-ahead window of 4 MiB"));
    }
}
