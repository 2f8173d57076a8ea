//! Draws latency by percentile, from cumulative distributions. On the percentile axis, the distance
//! from 90% to 99% is the same as from 99% to 99.9%.
//!
//! All curves have points at the same round percentiles (50%, 60% ... 90%, 95% ... 99% ...), so
//! that they can be compared point by point. A curve ends at the last percentile that still has at
//! least one request above it.

use crate::curves::{axis, lines};
use crate::model::{Chart, Point, Scale, Series};
use crate::units::Unit;

/// Shares of requests above the percentiles 50%, 60%, 70%, 75%, 80%, 85% and 90%. If these shares
/// are divided by 10, they are the shares above the next percentiles (95%, 96% ... 99%), and so on.
const REMAINDERS: [f64; 7] = [0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1];

/// Maximum number of nines in a percentile (99.9% has three). No trial has enough requests for
/// more.
const NINES: i32 = 8;

/// Creates a chart of latency by percentile, with one curve for each distribution. A distribution
/// is given by its name, its cumulative distribution, and its number of requests. The cumulative
/// distribution lists latencies (ns) in ascending order, each with the share of requests that took
/// at most this long. Returns None if there are no data.
pub fn percentile_chart<'a>(
    id: &str,
    title: &str,
    summary: &str,
    distributions: impl IntoIterator<Item = (String, &'a [(f64, f64)], u64)>,
) -> Option<Chart> {
    let series = distributions.into_iter().map(|(name, cumulative, requests)| Series {
        name,
        points: curve(cumulative, requests),
        dashed: false,
        hue: None,
    });
    let x = axis("Percentile", Unit::Percentile, Scale::Percentile);
    let y = axis("Latency", Unit::Nanoseconds, Scale::Log10);
    let (id, title, summary) = (id.to_string(), title.to_string(), summary.to_string());
    lines(id, title, summary, (x, y), series.collect())
}

/// Returns the latency at each round percentile that has at least one request above it.
fn curve(cumulative: &[(f64, f64)], requests: u64) -> Vec<Point> {
    let reached = 1.0 - 1.0 / requests.max(2) as f64 + 1e-12;
    let percentiles = (0..NINES)
        .flat_map(|nines| REMAINDERS.map(|left| round(1.0 - left * 10f64.powi(-nines), nines)));
    percentiles
        .take_while(|share| *share <= reached)
        .filter_map(|share| {
            let (ns, _) = cumulative.iter().find(|(_, below)| *below >= share - 1e-12)?;
            Some(Point { x: share, y: *ns, ..Point::default() })
        })
        .collect()
}

/// Removes the rounding error of a share, so that the table shows round percentiles.
fn round(share: f64, nines: i32) -> f64 {
    let scale = 10f64.powi(nines + 3);
    (share * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_gives_the_smallest_latency_that_the_share_reaches() {
        let cumulative = [(100.0, 0.5), (200.0, 0.9), (300.0, 0.99), (900.0, 1.0)];
        let points = curve(&cumulative, 100);
        let at = |share| points.iter().find(|point| point.x == share).map(|point| point.y);
        assert_eq!(at(0.5), Some(100.0));
        assert_eq!(at(0.6), Some(200.0));
        assert_eq!(at(0.9), Some(200.0));
        assert_eq!(at(0.95), Some(300.0));
        assert_eq!(at(0.99), Some(300.0));
        assert_eq!(at(0.995), None, "100 requests are too few for the 99.5th percentile");
    }

    #[test]
    fn a_distribution_of_one_latency_is_a_level_line() {
        let points = curve(&[(100.0, 1.0)], 1_000);
        let last = points.last().unwrap();
        assert_eq!((points[0].x, points[0].y), (0.5, 100.0));
        assert_eq!((last.x, last.y), (0.999, 100.0));
        assert_eq!(curve(&[(100.0, 1.0)], 1).len(), 1);
        assert!(curve(&[], 0).is_empty());
    }

    #[test]
    fn the_chart_has_a_curve_for_each_distribution_and_none_without() {
        let cumulative = [(100.0, 0.5), (200.0, 0.999), (900.0, 1.0)];
        let named = ["a", "b"].map(|name| (name.to_string(), cumulative.as_slice(), 1_000));
        let chart = percentile_chart("c", "C", "C.", named).unwrap();
        assert_eq!(chart.series.len(), 2);
        assert_eq!(chart.x.scale, Scale::Percentile);
        assert!(percentile_chart("c", "C", "C.", []).is_none());
    }
}
