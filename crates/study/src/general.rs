//! Analyses a user's plan that uses no built-in study: finds the fastest point, its gain over the
//! slowest point, and the point with the least CPU time per byte.

use analysis::units;
use lab::evidence::{Evidence, MeasuredPoint};

use crate::conclusion::Conclusion;
use crate::curve;

/// Reports the fastest point, its gain over the slowest point, and the point with the least CPU
/// time per byte, separately for each direction (for example `randread`).
pub fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    let mut kinds: Vec<String> = evidence.usable().map(|point| point.word("rw")).collect();
    kinds.sort();
    kinds.dedup();
    for rw in kinds {
        let points = evidence.all(&[("rw", &rw)]);
        let by_rate = |a: &&&MeasuredPoint, b: &&&MeasuredPoint| a.rate().total_cmp(&b.rate());
        let (Some(fast), Some(slow)) =
            (points.iter().max_by(by_rate), points.iter().min_by(by_rate))
        else {
            continue;
        };
        let against = match points.len() {
            1 => String::new(),
            _ => {
                format!("; compared with the slowest point: {}", curve::compare(fast, slow).words())
            }
        };
        let rate = units::rate(fast.rate());
        found.find("fastest", format!("{}: {rate}, the fastest point{against}", name(fast)));
        let per_byte = |point: &MeasuredPoint| point.cpu_ns().map(|ns| ns / point.bytes() as f64);
        let costs = points.iter().filter_map(|point| Some((per_byte(point)?, *point)));
        if let Some((ns, lean)) = costs.min_by(|a, b| a.0.total_cmp(&b.0)) {
            let cost = units::time(ns * (1 << 20) as f64);
            found.find(
                "cheapest",
                format!("{}: {cost} of CPU per MiB, the lowest cost", name(lean)),
            );
        }
    }
    found
}

/// Formats the name of a point: its part of the plan and its workload.
pub fn name(point: &MeasuredPoint) -> String {
    let part = match point.part.as_str() {
        "" => String::new(),
        part => format!("{part}: "),
    };
    format!("{part}{}", point.point.key.describe())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::evidence::testing::{cell, evidence};

    #[test]
    fn the_fastest_and_the_cheapest_of_each_direction_are_named() {
        let points = vec![cell(8192, &[("part", "a")]), cell(4096 * 8, &[("part", "b")])];
        let found = analyse(&evidence(points));
        assert!(found.findings[0].headline.starts_with("b: read"), "{:?}", found.findings);
        assert!(
            found.findings[0].headline.ends_with("compared with the slowest point: 4.00 times")
        );
    }

    #[test]
    fn a_single_point_is_compared_with_none() {
        let found = analyse(&evidence(vec![cell(8192, &[("part", "a")])]));
        assert!(!found.findings[0].headline.contains("slowest"), "{:?}", found.findings);
    }
}
