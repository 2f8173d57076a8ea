//! Study `depth`: throughput and latency by queue depth, and the gain from a larger depth.
//!
//! Little's law relates depth, rate and latency: depth = rate x latency. Up to the knee of the
//! curve, more depth raises the rate. Above the knee, more depth raises only the latency.

use analysis::halfpower::measured;
use analysis::units;
use lab::evidence::{Evidence, MeasuredPoint};

use crate::catalogue::Study;
use crate::conclusion::Conclusion;
use crate::curve::differ;

pub const STUDY: Study = Study {
    name: "depth",
    papers: "Riedel 1997, section 4 and Figure 6: reads reach half power at 4 KB at any depth; \
             writes need depth (8 KB writes at depth 8 are four times as fast as at depth 1)",
    needs: "",
    plan: include_str!("../../plans/depth.toml"),
    claims: &["R077", "R078", "R079", "R080", "R117", "C133", "C208"],
    rules: &["deeper-requests"],
    measure: None,
    analyse,
};

/// The knee of the curve is the smallest depth whose rate times this factor is at least the highest
/// rate.
const STEP_MIN: f64 = 1.1;
/// The factor that replaces [`STEP_MIN`] if a rate differs from the highest rate only by noise.
const NOISE_MAX: f64 = 1.3;

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    for rw in ["read", "write"] {
        for bs in sizes(evidence, rw) {
            knee(&mut found, evidence, rw, bs);
        }
        half_power_depth(&mut found, evidence, rw);
    }
    littles_law(&mut found, evidence);
    claims(&mut found, evidence);
    found
}

/// Returns the points of one direction and request size, by rising depth.
fn curve<'a>(evidence: &'a Evidence, rw: &str, bs: u64) -> Vec<&'a MeasuredPoint> {
    let mut points = evidence.all(&[("rw", rw)]);
    points.retain(|point| point.bytes() == bs);
    points.sort_by_key(|point| point.depth());
    points
}

fn sizes(evidence: &Evidence, rw: &str) -> Vec<u64> {
    let mut sizes: Vec<u64> =
        evidence.all(&[("rw", rw)]).into_iter().map(MeasuredPoint::bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Reports the knee, which is the depth above which the rate hardly rises. Also reports the median
/// latency at the knee and at the largest depth.
fn knee(found: &mut Conclusion, evidence: &Evidence, rw: &str, bs: u64) {
    let points = curve(evidence, rw, bs);
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
    if points.len() < 2 || first.depth() > 1 {
        return;
    }
    let Some(knee) = knee_of(&points) else { return };
    let latency =
        |point: &MeasuredPoint| point.latency_ns(0.5).map_or_else(|| "-".to_owned(), units::time);
    let beyond = if last.depth() == knee.depth() {
        format!("the median latency is {}", latency(knee))
    } else {
        format!(
            "the median latency is {} at this depth and {} at depth {}",
            latency(knee),
            latency(last),
            last.depth()
        )
    };
    let (size, shallow) = (units::size(bs), units::rate(first.rate()));
    let (rate, depth, least) = (units::rate(knee.rate()), knee.depth(), first.depth());
    found.find(
        "knee",
        if depth == least {
            format!("{rw}s of {size} get no faster above depth {least} ({shallow}); {beyond}")
        } else {
            format!(
                "the rate of {size} {rw}s rises from {shallow} at depth {least} to {rate} at depth \
                 {depth}, and no further; {beyond}"
            )
        },
    );
    if knee.depth() > 1 {
        let gain = knee.rate() / first.rate();
        let setting = format!("{rw}s of {} at depth {}", units::size(bs), knee.depth());
        let evidence =
            format!("{} instead of {}", units::rate(knee.rate()), units::rate(first.rate()));
        found.advise("deeper-requests", gain, &setting, evidence);
    }
}

/// Returns the point with the smallest depth that is about as fast as the fastest point. See
/// [`STEP_MIN`] and [`NOISE_MAX`].
fn knee_of<'a>(points: &[&'a MeasuredPoint]) -> Option<&'a MeasuredPoint> {
    let top = points.iter().copied().max_by(|a, b| a.rate().total_cmp(&b.rate()))?;
    let is_there = |point: &&MeasuredPoint| {
        let near = point.rate() * STEP_MIN >= top.rate();
        near || (!differ(point, top) && point.rate() * NOISE_MAX >= top.rate())
    };
    points.iter().copied().find(is_there)
}

fn half_power_depth(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    let top = evidence.fastest(&[("rw", rw)]).map_or(0.0, MeasuredPoint::rate);
    let (pap, source) = match evidence.pap_bytes_per_s {
        Some(stated) => (stated, "stated with --pap".to_owned()),
        None => (top, format!("the highest measured rate of {rw}s")),
    };
    let (mut reached, mut never) = (Vec::new(), Vec::new());
    for bs in sizes(evidence, rw) {
        let points: Vec<(u64, f64)> =
            curve(evidence, rw, bs).iter().map(|c| (u64::from(c.depth()), c.rate())).collect();
        match measured(&points, pap) {
            Some(depth) => reached.push(format!("{depth} for {}", units::size(bs))),
            None => never.push(units::size(bs)),
        }
    }
    let half = format!("more than half of {} ({source})", units::rate(pap));
    if !never.is_empty() {
        reached.push(format!("no measured depth for {}", never.join(", ")));
    }
    if reached.is_empty() {
        return;
    }
    let words = reached.join(", ");
    found.find("half-power-depth", format!("smallest depth at which {rw}s reach {half}: {words}"));
}

/// Counts the points at which the mean number of outstanding requests (rate x latency) is within
/// 10% of the depth.
fn littles_law(found: &mut Conclusion, evidence: &Evidence) {
    let kept = |point: &&MeasuredPoint| {
        let mean_ns = point.summary.latency.mean().unwrap_or_default();
        let outstanding = point.requests_per_s() * mean_ns / 1e9;
        (outstanding / f64::from(point.depth()) - 1.0).abs() <= 0.1
    };
    let (all, kept) = (evidence.usable().count(), evidence.usable().filter(kept).count());
    if all > 0 {
        found.find(
            "littles-law",
            format!(
                "at {kept} of {all} points, the mean number of outstanding requests (rate x \
                 latency) is within 10% of the depth"
            ),
        );
    }
}

fn claims(found: &mut Conclusion, evidence: &Evidence) {
    let rate = |rw: &str, bs: &str, depth: &str| {
        Some(evidence.find(&[("rw", rw), ("bs", bs), ("iodepth", depth)])?.rate())
    };
    let gain = |rw: &str, bs: &str, deep: &str| Some(rate(rw, bs, deep)? / rate(rw, bs, "1")?);
    let half = |rw: &str, bs: &str, depth: &str| {
        let pap = evidence
            .pap_bytes_per_s
            .or_else(|| evidence.fastest(&[("rw", rw)]).map(MeasuredPoint::rate))?;
        let share = rate(rw, bs, depth)? / pap;
        Some((
            share > 0.5,
            format!("{rw}s of {bs} at depth {depth} reach {:.0}% of the peak", 100.0 * share),
        ))
    };
    found.claim_if("R077", half("read", "4k", "1"));
    found.claim_if("R078", half("write", "16k", "3"));
    found.claim_if("R079", half("write", "8k", "8"));
    found.gain("R080", gain("write", "8k", "8"), "8 KiB writes at depth 8 compared with depth 1");
    found.gain("R117", gain("write", "8k", "3"), "8 KiB writes at depth 3 compared with depth 1");
    found.gain("C133", gain("read", "2k", "2"), "2 KiB reads at depth 2 compared with depth 1");
    let reads = curve(evidence, "read", 8 << 10);
    let knee = knee_of(&reads);
    found.claim_if(
        "C208",
        knee.map(|point| {
            let depth = point.depth();
            (depth <= 2, format!("the rate of 8 KiB reads rises up to depth {depth}"))
        }),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::Verdict;
    use lab::evidence::testing::{cell, evidence};

    #[test]
    fn the_knee_is_where_a_step_gains_little() {
        let at =
            |depth: &str, rate| cell(rate, &[("rw", "write"), ("bs", "8k"), ("iodepth", depth)]);
        let large = cell(300, &[("rw", "write"), ("bs", "16k"), ("iodepth", "3")]);
        let evidence =
            evidence(vec![at("1", 100), at("3", 300), at("8", 790), at("32", 800), large]);
        let found = analyse(&evidence);
        let knee = found.findings.iter().find(|finding| finding.id == "knee").unwrap();
        assert!(knee.headline.contains("at depth 8, and no further"), "{}", knee.headline);
        let claim = |id: &str| found.claims.iter().find(|claim| claim.id == id).unwrap().verdict;
        assert_eq!(claim("R080"), Verdict::Holds);
        assert_eq!(claim("R078"), Verdict::DoesNotHold);
        assert_eq!(found.advice[0].id, "deeper-requests");
    }

    #[test]
    fn a_knee_needs_several_depths_and_depth_one() {
        let at =
            |depth: &str, rate| cell(rate, &[("rw", "write"), ("bs", "8k"), ("iodepth", depth)]);
        for points in [vec![at("1", 100)], vec![at("256", 800)], vec![at("8", 700), at("32", 710)]]
        {
            let found = analyse(&evidence(points));
            assert!(found.findings.iter().all(|one| one.id != "knee"), "{:?}", found.findings);
            assert!(found.advice.is_empty(), "{:?}", found.advice);
        }
    }
}
