//! Compares the trials of matched points, and decides whether the points differ.
//!
//! Among many points, some differ by chance. For each quantity, the probabilities of all points are
//! therefore corrected for false discoveries.

use analysis::comparison::{Difference, RatioTest, false_discovery, paired_ratio_test, ratio_test};
use analysis::interval::Interval;
use analysis::quantile::median;
use lab::point::{Point, Trial};
use lab::point_key::PointKey;
use schemars::JsonSchema;
use serde::Serialize;

use crate::matching::{self, Matched};
use crate::quantity::Quantity;
use crate::side::{self, Side};

/// Verdict on the change of one quantity of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The second side is better: a higher rate, or less time.
    Better,
    /// The second side is worse.
    Worse,
    /// The interval of the ratio lies within the tolerated change.
    Same,
    /// More trials are needed to decide.
    CannotTell,
}

/// The comparison of one quantity of a point.
#[derive(Clone, Debug)]
pub struct Change {
    /// The quantity that is compared.
    pub quantity: Quantity,
    /// Median of the first side's trials.
    pub before: f64,
    /// Median of the second side's trials.
    pub after: f64,
    /// Ratio of the second side to the first. The interval is infinitely wide if each side has only
    /// one trial.
    pub ratio: Interval,
    /// The statistical test of the ratio. None if each side has only one trial.
    pub test: Option<RatioTest>,
    /// Probability that the difference is due to chance, corrected for the number of points.
    pub probability: f64,
    /// Verdict on the change.
    pub verdict: Verdict,
    /// Number of further trials that each side needs for a clear verdict. None if the verdict is
    /// clear, or if more than 10,000 trials would be needed.
    pub more_trials: Option<u32>,
}

/// The latencies of a point's requests.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    /// Latencies (ns) in ascending order, each with the share of requests at or below it.
    pub cumulative: Vec<(f64, f64)>,
    /// Number of requests.
    pub requests: u64,
}

/// The comparison of one point.
#[derive(Clone, Debug)]
pub struct PointChange {
    /// Description of the workload. If the sides differ, the descriptions of both sides.
    pub workload: String,
    /// The workload of the first side.
    pub key: PointKey,
    /// Rates of both sides (bytes per second).
    pub rates: [Interval; 2],
    /// Latencies of both sides. Empty for a side that was read without its distributions.
    pub latency: [Distribution; 2],
    /// One change for each quantity that both sides measured, the rate first.
    pub changes: Vec<Change>,
}

/// The comparison of two sides.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Description of the baseline in one line.
    pub before: String,
    /// Description of the other side in one line.
    pub after: String,
    /// Name of the baseline.
    pub before_name: String,
    /// Name of the other side.
    pub after_name: String,
    /// One sentence for each run of either side whose verdict is not valid.
    pub doubts: Vec<String>,
    /// Maximum change that counts as no change, as a share (0.05 is 5%).
    pub tolerated: f64,
    /// The points that both sides measured.
    pub points: Vec<PointChange>,
    /// Settings that have one value in all points of the baseline and a different value in all
    /// points of the other side: name, before, after.
    pub settings: Vec<(String, String, String)>,
    /// Facts about program, host and target that differ: name, before, after.
    pub facts: Vec<(String, String, String)>,
    /// Conclusions of surveys or studies that differ: name, before, after.
    pub conclusions: Vec<(String, String, String)>,
    /// Workloads that only the baseline measured.
    pub only_before: Vec<String>,
    /// Workloads that only the other side measured.
    pub only_after: Vec<String>,
}

/// Compares a side with the baseline. Changes up to the share `tolerated` count as no change.
pub fn compare(before: &Side, after: &Side, tolerated: f64) -> Comparison {
    let Matched { pairs, settings, only_first, only_second } =
        matching::matched(&before.points, &after.points);
    let mut points: Vec<PointChange> =
        pairs.into_iter().map(|(a, b)| point_change(&before.points[a], &after.points[b])).collect();
    for quantity in Quantity::ALL {
        decide(&mut points, quantity, tolerated);
    }
    let named = |points: &[Point], indices: Vec<usize>| {
        indices.into_iter().map(|index| points[index].key.describe()).collect()
    };
    Comparison {
        before: before.describe(),
        after: after.describe(),
        before_name: before.name.clone(),
        after_name: after.name.clone(),
        doubts: before.doubts().chain(after.doubts()).collect(),
        tolerated,
        points,
        settings,
        facts: side::differences(before, after),
        conclusions: side::conclusions_that_differ(before, after),
        only_before: named(&before.points, only_first),
        only_after: named(&after.points, only_second),
    }
}

impl Comparison {
    /// Returns the number of points whose change of `quantity` has this verdict.
    pub fn count(&self, quantity: Quantity, verdict: Verdict) -> usize {
        let of = |point: &&PointChange| {
            point.change(quantity).is_some_and(|change| change.verdict == verdict)
        };
        self.points.iter().filter(of).count()
    }
}

impl Distribution {
    fn of(point: &Point) -> Distribution {
        let latency = point.latency(None);
        Distribution { cumulative: latency.cumulative().collect(), requests: latency.count() }
    }
}

impl PointChange {
    /// Returns the change of a quantity. None if a side lacks the quantity.
    pub fn change(&self, quantity: Quantity) -> Option<&Change> {
        self.changes.iter().find(|change| change.quantity == quantity)
    }
}

fn point_change(before: &Point, after: &Point) -> PointChange {
    let changes = Quantity::ALL.into_iter().filter_map(|what| change(before, after, what));
    let (of_a, of_b) = (before.key.describe(), after.key.describe());
    PointChange {
        workload: if of_a == of_b { of_a } else { format!("{of_a} -> {of_b}") },
        key: before.key.clone(),
        rates: [before.bytes_per_s(), after.bytes_per_s()],
        latency: [before, after].map(Distribution::of),
        changes: changes.collect(),
    }
}

fn change(before: &Point, after: &Point, quantity: Quantity) -> Option<Change> {
    let (a, b) = (values(before, quantity)?, values(after, quantity)?);
    let numbers = |of: &[(i64, f64)]| of.iter().map(|(_, value)| *value).collect::<Vec<f64>>();
    let (of_a, of_b) = (numbers(&a), numbers(&b));
    let compare = if are_pairs(&a, &b) { paired_ratio_test } else { ratio_test };
    let test = compare(&of_a, &of_b);
    let (from, to) = (median(&of_a)?, median(&of_b)?);
    let unknown = Interval { value: to / from, low: 0.0, high: f64::INFINITY };
    Some(Change {
        quantity,
        before: from,
        after: to,
        ratio: test.map_or(unknown, |test| test.ratio),
        test,
        probability: 1.0,
        verdict: Verdict::CannotTell,
        more_trials: None,
    })
}

/// Returns the start and the value of each trial without a soaker. None if a trial has no value.
fn values(point: &Point, quantity: Quantity) -> Option<Vec<(i64, f64)>> {
    let value = |trial: &&Trial| Some((trial.started_unix_ns, quantity.of(trial)?));
    point.unsoaked().iter().map(value).collect()
}

/// Checks whether the trials ran in pairs. A pair consists of one trial of each side.
fn are_pairs(a: &[(i64, f64)], b: &[(i64, f64)]) -> bool {
    let sides = a.iter().map(|(at, _)| (*at, 0)).chain(b.iter().map(|(at, _)| (*at, 1)));
    let mut order: Vec<(i64, u8)> = sides.collect();
    order.sort_unstable();
    a.len() == b.len() && a.len() > 1 && order.chunks(2).all(|pair| pair[0].1 != pair[1].1)
}

/// Corrects the probabilities of one quantity for the number of points, and decides the verdict of
/// each change.
fn decide(points: &mut [PointChange], quantity: Quantity, tolerated: f64) {
    let of = |point: &PointChange| point.changes.iter().position(|c| c.quantity == quantity);
    let places: Vec<(usize, usize, RatioTest)> = points
        .iter()
        .enumerate()
        .filter_map(|(index, point)| Some((index, of(point)?)))
        .filter_map(|(point, change)| Some((point, change, points[point].changes[change].test?)))
        .collect();
    let raw: Vec<f64> = places.iter().map(|(_, _, test)| test.p_value).collect();
    for ((point, change, test), probability) in places.into_iter().zip(false_discovery(&raw)) {
        let found = &mut points[point].changes[change];
        found.probability = probability;
        found.verdict = match (test.difference(tolerated, probability), quantity.is_higher_better())
        {
            (Difference::Same, _) => Verdict::Same,
            (Difference::Unclear, _) => Verdict::CannotTell,
            (Difference::Higher, true) | (Difference::Lower, false) => Verdict::Better,
            (Difference::Higher, false) | (Difference::Lower, true) => Verdict::Worse,
        };
        if found.verdict == Verdict::CannotTell {
            let needed = test.trials_needed(tolerated);
            found.more_trials = needed.map(|all| all.saturating_sub(test.trials).max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::machine::{Host, TargetFacts};
    use lab::point::testing::point;

    fn side(rates: &[&[u64]]) -> Side {
        let sized = |(index, rates): (usize, &&[u64])| {
            let mut point = point(rates);
            point.key.workload.request_bytes = 4096 << index;
            point
        };
        let points = rates.iter().enumerate().map(sized).collect();
        Side::of("x", Host::default(), TargetFacts::default(), points)
    }

    fn verdicts(a: &[&[u64]], b: &[&[u64]]) -> Vec<Verdict> {
        let found = compare(&side(a), &side(b), 0.02);
        found.points.iter().map(|point| point.change(Quantity::Rate).unwrap().verdict).collect()
    }

    const STEADY: &[u64] = &[409_600_000, 409_700_000, 409_500_000, 409_610_000];
    const FASTER: &[u64] = &[450_600_000, 450_700_000, 450_500_000, 450_610_000];
    const NOISY: &[u64] = &[409_600_000, 300_000_000, 500_000_000, 459_000_000];

    #[test]
    fn each_verdict_is_reached() {
        let found = verdicts(&[STEADY, STEADY, FASTER, NOISY], &[STEADY, FASTER, STEADY, STEADY]);
        assert_eq!(found, [Verdict::Same, Verdict::Better, Verdict::Worse, Verdict::CannotTell]);
    }

    #[test]
    fn an_unclear_point_says_how_many_trials_would_decide() {
        let found = compare(&side(&[NOISY]), &side(&[STEADY]), 0.02);
        let change = found.points[0].change(Quantity::Rate).unwrap();
        assert!(change.more_trials.unwrap() > 100, "{change:?}");
    }

    #[test]
    fn one_trial_on_each_side_decides_nothing() {
        let found = compare(&side(&[&[409_600_000]]), &side(&[&[819_200_000]]), 0.02);
        let change = found.points[0].change(Quantity::Rate).unwrap();
        assert_eq!(change.verdict, Verdict::CannotTell);
        assert_eq!(change.ratio.value, 2.0);
        assert!(change.ratio.high.is_infinite());
    }

    #[test]
    fn a_point_is_named_by_the_workloads_of_both_sides_if_they_differ() {
        let (before, mut after) = (side(&[STEADY]), side(&[STEADY]));
        let same = compare(&before, &after, 0.02).points.remove(0).workload;
        assert!(!same.contains("->"), "{same}");
        after.points[0].key.workload.depth = 32;
        let both = compare(&before, &after, 0.02).points.remove(0).workload;
        assert!(both.starts_with(&format!("{same} -> ")) && both.contains("depth 32"), "{both}");
    }

    #[test]
    fn less_time_is_better() {
        let (mut a, mut b) = (side(&[STEADY]), side(&[STEADY]));
        for (side, ns) in [(&mut a, 1000), (&mut b, 700)] {
            for (index, trial) in side.points[0].trials.iter_mut().enumerate() {
                trial.cpu.process_ns = trial.requests() * (ns + index as u64);
            }
        }
        let found = compare(&a, &b, 0.02);
        let change = found.points[0].change(Quantity::Cpu).unwrap();
        assert_eq!(change.verdict, Verdict::Better);
        assert!(change.ratio.high < 0.72);
    }

    #[test]
    fn alternating_trials_are_compared_in_pairs() {
        let at = |times: [i64; 3]| times.map(|time| (time, 1.0));
        assert!(are_pairs(&at([1, 4, 5]), &at([2, 3, 6])));
        assert!(!are_pairs(&at([1, 2, 5]), &at([3, 4, 6])));
        assert!(!are_pairs(&at([1, 2, 3]), &at([4, 5, 6])));
    }
}
