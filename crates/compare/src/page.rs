//! Makes the page of a comparison. For each group of points that differ only in request size, it
//! shows the curves of all sides (`overlay`), and the ratio of each side to the baseline. A table
//! of all points follows, and then the differences between the sides.

use std::collections::BTreeMap;

use report::model::{
    Axis, Block, Cell, Chart, Column, Direction, Finding, Guide, KeyFigure, Kind, POINTS_SECTION,
    Page, Point as Mark, Scale, Section, Series, State, Table, Tone, Verdict as Trust,
};
use report::units::Unit;

use crate::overlay::{self, curve_of, size_axis};
use crate::quantity::Quantity;
use crate::text;
use crate::verdict::{Comparison, PointChange, Verdict};

/// Renders the page of the comparisons as HTML.
pub fn html(comparisons: &[Comparison], program: &str) -> String {
    report::render(&page(comparisons, program))
}

/// Makes the page of the comparisons. `program` is the name and version of this program, for the
/// subtitle.
pub fn page(comparisons: &[Comparison], program: &str) -> Page {
    let names: Vec<&str> = comparisons.iter().map(|found| found.after_name.as_str()).collect();
    let baseline = comparisons.first().map_or("", |found| &found.before_name);
    let mut sections: Vec<Section> = overlay::section(comparisons).into_iter().collect();
    for (number, comparison) in comparisons.iter().enumerate() {
        sections.extend(charts(comparison, number));
        sections.push(all_points(comparison, number));
    }
    Page {
        title: format!("{} compared with {baseline}", names.join(", ")),
        subtitle: sides(comparisons, program),
        verdict: trust(comparisons),
        key_figures: comparisons.first().map(key_figures).unwrap_or_default(),
        findings: comparisons.iter().flat_map(findings).collect(),
        advice: Vec::new(),
        sections,
        provenance: comparisons.iter().map(provenance).collect(),
    }
}

/// Describes all sides and the program, separated by semicolons.
fn sides(comparisons: &[Comparison], program: &str) -> String {
    let baseline = comparisons.first().map(|found| found.before.as_str());
    let others = comparisons.iter().map(|found| found.after.as_str());
    let all: Vec<&str> = baseline.into_iter().chain(others).chain([program]).collect();
    all.join("; ")
}

/// Returns the verdict of the page. It is suspect if a run of a side is not valid.
fn trust(comparisons: &[Comparison]) -> Trust {
    let mut reasons: Vec<String> =
        comparisons.iter().flat_map(|found| found.doubts.clone()).collect();
    reasons.dedup();
    let state = if reasons.is_empty() { State::Valid } else { State::Suspect };
    Trust { state, reasons, in_doubt: None }
}

fn key_figures(comparison: &Comparison) -> Vec<KeyFigure> {
    let tolerated = 100.0 * comparison.tolerated;
    let kinds = [
        (Verdict::Better, "Faster", String::new()),
        (Verdict::Worse, "Slower", String::new()),
        (Verdict::Same, "Same", format!("within {tolerated}%")),
        (Verdict::CannotTell, "Undecided", "more trials needed".to_owned()),
    ];
    let points = comparison.points.len();
    kinds
        .into_iter()
        .map(|(verdict, label, note)| {
            let count = comparison.count(Quantity::Rate, verdict);
            KeyFigure { label: label.to_owned(), value: format!("{count} of {points}"), note }
        })
        .collect()
}

fn findings(comparison: &Comparison) -> Vec<Finding> {
    let mut found = vec![Finding {
        id: "summary".to_owned(),
        headline: format!("{}: {}", comparison.after_name, text::summary(comparison)),
        detail: String::new(),
        tone: Tone::Note,
    }];
    for (name, before, after) in &comparison.settings {
        found.push(Finding {
            id: "setting".to_owned(),
            headline: format!(
                "{name}: {before} in all points of the baseline, {after} in all points of the \
                 other side"
            ),
            detail: String::new(),
            tone: Tone::Note,
        });
    }
    found
}

fn charts(comparison: &Comparison, number: usize) -> Option<Section> {
    let mut curves: BTreeMap<String, Vec<&PointChange>> = BTreeMap::new();
    for point in &comparison.points {
        curves.entry(curve_of(&point.key)).or_default().push(point);
    }
    let mut blocks = Vec::new();
    for (index, (title, mut points)) in curves.into_iter().enumerate() {
        points.sort_by_key(|point| point.key.request_bytes());
        points.dedup_by_key(|point| point.key.request_bytes());
        if points.len() > 1 {
            let id = format!("curve-{number}-{index}");
            let title = format!("{} to {}: {title}", comparison.after_name, comparison.before_name);
            blocks.push(Block::Chart(ratios(&id, &title, &points)));
        }
    }
    (!blocks.is_empty()).then(|| Section {
        id: format!("curves-{number}"),
        title: format!("{} compared with {}", comparison.after_name, comparison.before_name),
        lead: "Rate divided by the rate of the baseline. A ratio above 1 is faster.".to_owned(),
        blocks,
    })
}

fn ratios(id: &str, title: &str, points: &[&PointChange]) -> Chart {
    let mark = |point: &&PointChange| {
        let change = point.change(Quantity::Rate)?;
        let bound = |value: f64| change.test.map(|_| value);
        Some(Mark {
            x: point.key.request_bytes() as f64,
            y: change.ratio.value,
            low: bound(change.ratio.low),
            high: bound(change.ratio.high),
            note: Some(text::verdict(change)),
        })
    };
    let points = points.iter().filter_map(mark).collect();
    Chart {
        id: format!("{id}-ratio"),
        title: format!("Ratio of {title}"),
        summary: "Ratio of the rates. A ratio of 1 means no difference.".to_owned(),
        x: size_axis(),
        y: Axis { label: "Ratio".to_owned(), unit: Unit::Count, scale: Scale::Linear },
        series: vec![Series { name: "ratio".to_owned(), points, dashed: false, hue: Some(2) }],
        guides: vec![Guide { label: "1".to_owned(), at: 1.0, direction: Direction::Horizontal }],
        kind: Kind::Lines,
    }
}

fn all_points(comparison: &Comparison, number: usize) -> Section {
    let column = |label: &str, unit| Column { label: label.to_owned(), unit };
    let rows = comparison.points.iter().flat_map(|point| {
        point.changes.iter().map(|change| {
            let quantity = change.quantity;
            vec![
                Cell::Text(point.workload.clone()),
                Cell::Text(quantity.name().to_owned()),
                Cell::Text(quantity.shown(change.before)),
                Cell::Text(quantity.shown(change.after)),
                Cell::Number(change.ratio.value),
                Cell::from(change.test.map(|test| test.ratio.low)),
                Cell::from(change.test.map(|test| test.ratio.high)),
                Cell::Text(text::verdict(change)),
            ]
        })
    });
    let table = Table {
        id: format!("points-{number}"),
        caption: format!("{} compared with {}", comparison.after_name, comparison.before_name),
        columns: vec![
            column("workload", None),
            column("quantity", None),
            column("before", None),
            column("after", None),
            column("ratio", Some(Unit::Count)),
            column("ratio, lower bound", Some(Unit::Count)),
            column("ratio, upper bound", Some(Unit::Count)),
            column("verdict", None),
        ],
        rows: rows.collect(),
    };
    let id = if number == 0 { POINTS_SECTION.to_owned() } else { format!("all-points-{number}") };
    let mut blocks = vec![Block::Table(table)];
    let only = [
        (&comparison.before_name, &comparison.only_before),
        (&comparison.after_name, &comparison.only_after),
    ];
    for (name, points) in only.into_iter().filter(|(_, points)| !points.is_empty()) {
        blocks.push(Block::Text(format!("Only {name} measured these points:")));
        blocks.push(Block::List(points.clone()));
    }
    let lead = "Verdicts are corrected for the number of points (false-discovery rate 5%).";
    let title = format!("All points of {}", comparison.after_name);
    Section { id, title, lead: lead.to_owned(), blocks }
}

fn provenance(comparison: &Comparison) -> (String, Vec<(String, String)>) {
    let mut facts = vec![
        ("before".to_owned(), comparison.before.clone()),
        ("after".to_owned(), comparison.after.clone()),
    ];
    for (name, before, after) in comparison.settings.iter().chain(&comparison.facts) {
        facts.push((name.clone(), format!("{before} -> {after}")));
    }
    (format!("Differences from {}", comparison.before_name), facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side::Side;
    use crate::verdict::compare;
    use lab::machine::{Host, TargetFacts};
    use lab::point::testing::point;

    #[test]
    fn the_page_has_both_curves_their_ratio_and_all_points() {
        let side = |name: &str, faster: u64| {
            let sized = |request_bytes: u32| {
                let mut point = point(&[4096 * 100 * faster, 4096 * 101 * faster]);
                point.key.workload.request_bytes = request_bytes;
                point
            };
            let points = [4096, 8192, 65536].map(sized).to_vec();
            Side::of(name, Host::default(), TargetFacts::default(), points)
        };
        let found = compare(&side("old <disk>", 1), &side("new", 2), 0.02);
        let page = page(std::slice::from_ref(&found), "halfpower");
        let [curves, ratios, points] = page.sections.as_slice() else { panic!("three sections") };
        let [Block::Chart(rates), ..] = curves.blocks.as_slice() else { panic!("curves") };
        assert_eq!((rates.series.len(), rates.series[0].points.len()), (2, 3));
        let [Block::Chart(ratio)] = ratios.blocks.as_slice() else { panic!("a chart") };
        assert!((ratio.series[0].points[2].y - 2.0).abs() < 1e-9);
        assert_eq!(points.id, POINTS_SECTION);
        let html = html(&[found], "halfpower");
        assert!(html.contains("old &lt;disk&gt;") && !html.contains("old <disk>"));
    }
}
