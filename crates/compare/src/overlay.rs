//! Draws all sides of a comparison in the same charts: rate by request size, and latency by
//! percentile.
//!
//! The baseline is dashed. Points that differ only in request size form a curve. Latencies are
//! drawn only for the request size with the largest difference in p99, because the latencies of all
//! request sizes in one chart would hide the difference.

use std::collections::BTreeMap;

use analysis::units::counted;
use lab::point_key::PointKey;
use report::model::{Axis, Block, Chart, Kind, Point as Mark, Scale, Section, Series};
use report::units::{Unit, bytes};

use crate::quantity::Quantity;
use crate::verdict::{Comparison, Distribution, PointChange};

/// A point, with the index of its comparison.
type Placed<'a> = (usize, &'a PointChange);

/// Makes the section with the curves of all sides. `None` if no curve has two points and no
/// distribution is known.
pub fn section(comparisons: &[Comparison]) -> Option<Section> {
    let mut curves: BTreeMap<String, Vec<Placed<'_>>> = BTreeMap::new();
    for (number, comparison) in comparisons.iter().enumerate() {
        for point in &comparison.points {
            curves.entry(curve_of(&point.key)).or_default().push((number, point));
        }
    }
    let charts = curves.into_iter().enumerate().flat_map(|(index, (title, points))| {
        let id = format!("sides-{index}");
        let rates = rates(comparisons, &id, &title, &points);
        rates.into_iter().chain(latency(comparisons, &id, &title, &points))
    });
    let blocks: Vec<Block> = charts.map(Block::Chart).collect();
    (!blocks.is_empty()).then(|| Section {
        id: "sides".to_owned(),
        title: "Curves of all sides".to_owned(),
        lead: "Each curve shows one side of the comparison. The baseline is dashed. Click on a \
               name in a legend to hide or show its curve."
            .to_owned(),
        blocks,
    })
}

/// Returns the name of the curve of a point: the description of the point without its request size.
pub(crate) fn curve_of(key: &PointKey) -> String {
    let threads = counted(u64::from(key.threads()), "thread");
    format!("{}, {}, depth {}, {threads}", key.rw(), key.caching.name(), key.depth())
}

/// Returns the axis of request sizes.
pub(crate) fn size_axis() -> Axis {
    Axis { label: "Request size".to_owned(), unit: Unit::Bytes, scale: Scale::Log2 }
}

/// Returns the names of the sides, the baseline first.
fn names(comparisons: &[Comparison]) -> Vec<&str> {
    let baseline = comparisons.first().map(|found| found.before_name.as_str());
    baseline.into_iter().chain(comparisons.iter().map(|found| found.after_name.as_str())).collect()
}

/// Draws the rate by request size, with one line for each side. `None` if no side has two points.
fn rates(
    comparisons: &[Comparison],
    id: &str,
    title: &str,
    points: &[Placed<'_>],
) -> Option<Chart> {
    let line = |side: usize| {
        let mut marks: Vec<Mark> = points
            .iter()
            // The baseline is part of every comparison, so its points occur several times. The
            // duplicates are removed below.
            .filter(|(number, _)| side == 0 || side == number + 1)
            .map(|(_, point)| {
                let rate = point.rates[usize::from(side > 0)];
                let x = point.key.request_bytes() as f64;
                let (low, high) = (Some(rate.low), Some(rate.high));
                Mark { x, y: rate.value, low, high, ..Mark::default() }
            })
            .collect();
        marks.sort_by(|a, b| a.x.total_cmp(&b.x));
        marks.dedup_by(|a, b| a.x == b.x);
        marks
    };
    let names = names(comparisons);
    let series: Vec<Series> =
        names.iter().enumerate().map(|(side, name)| series(name, side, line(side))).collect();
    let is_curve = series.iter().any(|one| one.points.len() > 1);
    is_curve.then(|| Chart {
        id: format!("{id}-rate"),
        title: title.to_owned(),
        summary: format!("Rate by request size for {}.", names.join(", ")),
        x: size_axis(),
        y: Axis { label: "Rate".to_owned(), unit: Unit::BytesPerSecond, scale: Scale::Linear },
        series,
        guides: Vec::new(),
        kind: Kind::Lines,
    })
}

fn series(name: &str, side: usize, points: Vec<Mark>) -> Series {
    Series { name: name.to_owned(), points, dashed: side == 0, hue: None }
}

/// Converts a side to the form that [`report::percentile_chart`] takes.
fn named<'a>(name: &str, side: &'a Distribution) -> (String, &'a [(f64, f64)], u64) {
    (name.to_owned(), &side.cumulative, side.requests)
}

/// Draws latency by percentile at the request size whose 99th percentile differs most. `None` if
/// the sides were read without distributions.
fn latency(
    comparisons: &[Comparison],
    id: &str,
    title: &str,
    points: &[Placed<'_>],
) -> Option<Chart> {
    let known = |point: &PointChange| point.latency.iter().all(|side| side.requests > 0);
    let differs = |point: &PointChange| {
        let tail = point.change(Quantity::P99).or_else(|| point.change(Quantity::P50));
        tail.map_or(0.0, |change| change.ratio.value.ln().abs())
    };
    let with_latency = points.iter().filter(|(_, point)| known(point));
    let (_, most) = with_latency.max_by(|(_, a), (_, b)| differs(a).total_cmp(&differs(b)))?;
    let size = most.key.request_bytes();
    let at_size = |(_, point): &&Placed<'_>| point.key.request_bytes() == size && known(point);
    let chosen: Vec<&Placed<'_>> = points.iter().filter(at_size).collect();
    let baseline = named(&comparisons.first()?.before_name, &most.latency[0]);
    let others = chosen
        .iter()
        .map(|(number, point)| named(&comparisons[*number].after_name, &point.latency[1]));
    let mut chart = report::percentile_chart(
        &format!("{id}-latency"),
        &format!("Latency of {} requests: {title}", bytes(size as f64)),
        "Latency of each side by percentile, at the request size with the largest difference in \
         tail latency.",
        std::iter::once(baseline).chain(others),
    )?;
    if let Some(first) = chart.series.first_mut() {
        first.dashed = true;
    }
    Some(chart)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side::Side;
    use crate::verdict::compare;
    use lab::machine::{Host, TargetFacts};
    use lab::point::testing::point;

    /// Returns a side with three request sizes. In each trial, 990 requests have the latency
    /// `latency_ns` and 10 requests are much slower.
    fn side(name: &str, latency_ns: u64) -> Side {
        let sized = |request_bytes: u32| {
            let mut point = point(&[4096 * 100, 4096 * 101]);
            point.key.workload.request_bytes = request_bytes;
            for trial in &mut point.trials {
                trial.directions[0].latency = Default::default();
                trial.directions[0].latency.record_n(latency_ns, 990);
                trial.directions[0].latency.record_n(latency_ns * u64::from(request_bytes), 10);
            }
            point
        };
        let points = [4096, 8192, 65536].map(sized).to_vec();
        Side::of(name, Host::default(), TargetFacts::default(), points)
    }

    #[test]
    fn every_side_is_a_curve_of_the_same_charts() {
        let sides = [side("old", 10_000), side("new", 20_000), side("newest", 30_000)];
        let found = [1, 2].map(|other| compare(&sides[0], &sides[other], 0.02));
        let section = section(&found).unwrap();
        let [Block::Chart(rates), Block::Chart(latency)] = section.blocks.as_slice() else {
            panic!("rate and latency of one curve: {section:?}")
        };
        for chart in [rates, latency] {
            let names: Vec<_> = chart.series.iter().map(|one| one.name.as_str()).collect();
            assert_eq!(names, ["old", "new", "newest"]);
            let dashed: Vec<_> = chart.series.iter().map(|one| one.dashed).collect();
            assert_eq!(dashed, [true, false, false]);
        }
        assert_eq!(rates.series[0].points.len(), 3, "a size of the baseline is drawn once");
        let medians: Vec<_> = latency.series.iter().map(|one| one.points[0].y / 1e4).collect();
        for (median, wanted) in medians.iter().zip([1.0, 2.0, 3.0]) {
            assert!((median / wanted - 1.0).abs() < 0.02, "{medians:?}");
        }
    }

    #[test]
    fn without_distributions_only_rates_are_drawn() {
        let mut found = compare(&side("old", 10_000), &side("new", 20_000), 0.02);
        found.points.iter_mut().for_each(|point| point.latency = Default::default());
        let section = section(&[found]).unwrap();
        assert_eq!(section.blocks.len(), 1);
    }
}
