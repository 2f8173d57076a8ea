//! Study `mix`: random reads and writes in one load, compared with reads alone and writes alone.
//!
//! The expected time of a request in a mix is the mean of the times of reads alone and writes
//! alone, weighted by their shares. If requests in a mix take longer, reads and writes disturb each
//! other. Possible causes: flash cannot serve a read during a program or an erase, a bus needs time
//! to change its direction, or requests wait for a lock.

use analysis::units;
use ioengine::Op;
use lab::evidence::{Evidence, MeasuredPoint};

use crate::catalogue::Study;
use crate::conclusion::Conclusion;
use crate::curve::differ;

pub const STUDY: Study = Study {
    name: "mix",
    papers: "no such experiment; they measure reads and writes separately",
    needs: "",
    plan: include_str!("../../plans/mix.toml"),
    claims: &[],
    rules: &["separate-writes"],
    measure: None,
    analyse,
};

/// If the expected rate of a mix is at most this many times the measured rate, the difference
/// counts as noise.
const NOISE_MAX: f64 = 1.1;

/// All points with the same request size and depth.
struct Curve<'a> {
    bytes: u64,
    depth: u32,
    reads: &'a MeasuredPoint,
    writes: &'a MeasuredPoint,
    /// The points with both reads and writes, by rising share of reads.
    mixes: Vec<&'a MeasuredPoint>,
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    for curve in curves(evidence) {
        cost(&mut found, &curve);
        waiting(&mut found, &curve);
    }
    found
}

/// Builds one curve for each request size and depth. The curve needs a point of reads alone, a
/// point of writes alone and at least one mix.
fn curves(evidence: &Evidence) -> Vec<Curve<'_>> {
    let mut settings: Vec<(u64, u32)> =
        evidence.usable().map(|point| (point.bytes(), point.depth())).collect();
    settings.sort_unstable();
    settings.dedup();
    let curve = |(bytes, depth): (u64, u32)| {
        let of_setting =
            || evidence.usable().filter(move |one| (one.bytes(), one.depth()) == (bytes, depth));
        let alone = |op| of_setting().find(|one| one.key().op() == Some(op));
        let mut mixes: Vec<_> = of_setting().filter(|one| one.key().op().is_none()).collect();
        mixes.sort_by_key(|one| one.key().read_percent());
        let (reads, writes) = (alone(Op::Read)?, alone(Op::Write)?);
        (!mixes.is_empty()).then_some(Curve { bytes, depth, reads, writes, mixes })
    };
    settings.into_iter().filter_map(curve).collect()
}

impl Curve<'_> {
    /// Returns the rate that a mix would have if reads and writes did not disturb each other
    /// (requests per second).
    fn expected(&self, read_percent: u32) -> f64 {
        let reads = f64::from(read_percent) / 100.0;
        let ns = |share: f64, alone: &MeasuredPoint| share / alone.requests_per_s().max(1e-9);
        1.0 / (ns(reads, self.reads) + ns(1.0 - reads, self.writes))
    }

    /// Returns the mix with the largest loss, and its expected rate divided by its measured rate.
    fn worst(&self) -> Option<(&MeasuredPoint, f64)> {
        let loss = |mix: &MeasuredPoint| {
            self.expected(mix.key().read_percent()) / mix.requests_per_s().max(1e-9)
        };
        let mixes = self.mixes.iter().map(|mix| (*mix, loss(mix)));
        mixes.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn setting(&self) -> String {
        format!("{} at depth {}", units::size(self.bytes), self.depth)
    }
}

/// Reports the loss of throughput of the worst mix, compared with reads alone and writes alone.
fn cost(found: &mut Conclusion, curve: &Curve<'_>) {
    let Some((mix, loss)) = curve.worst() else { return };
    let (reads, setting) = (mix.key().read_percent(), curve.setting());
    let expected = curve.expected(reads);
    let rates = format!(
        "with {reads}% reads: {} requests/s; reads alone: {}; writes alone: {}",
        units::count(mix.requests_per_s()),
        units::count(curve.reads.requests_per_s()),
        units::count(curve.writes.requests_per_s())
    );
    // The expected rate lies between the rates of reads alone and writes alone. If the mix is
    // within noise of both rates, a loss cannot be proved.
    let is_known = differ(mix, curve.reads) || differ(mix, curve.writes);
    if loss <= NOISE_MAX || !is_known {
        let text =
            format!("random requests of {setting}: no mix loses throughput beyond noise; {rates}");
        found.find("mix-cost", text);
        return;
    }
    let lost = 100.0 * (1.0 - 1.0 / loss);
    let text = format!(
        "random requests of {setting}: mixed reads and writes are up to {lost:.0}% slower than if \
         they did not disturb each other; {rates}"
    );
    found.find("mix-cost", text);
    let evidence = format!(
        "{} requests/s with {reads}% reads; expected if reads and writes did not disturb each \
         other: {}",
        units::count(mix.requests_per_s()),
        units::count(expected)
    );
    found.advise("separate-writes", loss, &format!("random requests of {setting}"), evidence);
}

/// Compares the p99 latency of reads alone with the highest p99 latency of reads in a mix.
fn waiting(found: &mut Conclusion, curve: &Curve<'_>) {
    let p99 = |one: &MeasuredPoint| one.point.latency(Some(Op::Read)).quantile(0.99);
    let Some(alone) = p99(curve.reads) else { return };
    let slowest = curve.mixes.iter().filter_map(|mix| Some((mix, p99(mix)?)));
    let Some((mix, ns)) = slowest.max_by_key(|(_, ns)| *ns) else { return };
    let text = format!(
        "random reads of {}: the p99 latency is {} without writes and {} with {}% writes",
        curve.setting(),
        units::time(alone as f64),
        units::time(ns as f64),
        100 - mix.key().read_percent()
    );
    found.find("mix-read-latency", text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::evidence::testing::{cell, evidence};

    fn point(requests: u64, read_percent: u8) -> MeasuredPoint {
        let mut point = cell(requests * 4096, &[("rw", "randread"), ("bs", "4k")]);
        point.point.key.workload.read_percent = read_percent;
        point.summary = point.point.summary();
        point
    }

    fn finding<'a>(found: &'a Conclusion, id: &str) -> &'a str {
        &found.findings.iter().find(|one| one.id == id).unwrap().headline
    }

    #[test]
    fn a_mix_that_takes_the_time_of_its_parts_loses_nothing() {
        // A read takes 1 ms and a write 0.5 ms, so with 50% reads the expected time is 0.75 ms
        // (1333 requests/s).
        let found = analyse(&evidence(vec![point(1000, 100), point(1333, 50), point(2000, 0)]));
        assert!(finding(&found, "mix-cost").contains("no mix loses throughput"));
        assert!(found.advice.is_empty(), "{:?}", found.advice);
    }

    #[test]
    fn the_mix_that_loses_most_is_named_with_its_loss() {
        let points = vec![point(1000, 100), point(900, 70), point(500, 30), point(1000, 0)];
        let found = analyse(&evidence(points));
        let text = finding(&found, "mix-cost");
        assert!(
            text.contains("up to 50% slower than if they did not disturb each other"),
            "{text}"
        );
        assert!(text.contains("; with 30% reads: 500 requests/s"), "{text}");
        assert_eq!(found.advice[0].id, "separate-writes");
        assert!((found.advice[0].gain - 2.0).abs() < 0.01, "{:?}", found.advice);
    }

    #[test]
    fn a_mix_without_its_parts_says_nothing() {
        let found = analyse(&evidence(vec![point(1000, 100), point(500, 50)]));
        assert!(found.findings.is_empty() && found.advice.is_empty(), "{:?}", found.findings);
    }
}
