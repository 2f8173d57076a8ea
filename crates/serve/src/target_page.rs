//! Generates the page that shows how the rates of a target changed over time. Each workload that
//! was measured in at least two runs has a chart, with the changes that `halfpower history`
//! finds.

use analysis::units;
use compare::history::{HistoryDocument, PointHistory};
use lab::date;
use report::model::{
    Axis, Block, Cell, Chart, Column, Direction, Finding, Guide, KeyFigure, Kind, LinkRow,
    LinkTable, LinkedCell, Page, Point as Mark, Scale, Section, Series, State, Tone, Verdict,
};
use report::units::Unit;

use crate::place::Place;

/// Maximum number of charts. If there are more workloads, the page shows those with the most
/// changes and, among workloads with equally many changes, those with the most runs.
const CHARTS_MAX: usize = 24;
/// Maximum number of runs that the page uses, newest first.
pub const RUNS_MAX: usize = 1000;
/// Maximum number of rows in the table of newest results. Also the maximum number of changes that
/// are reported for a workload.
const CHANGES_MAX: usize = 500;

/// The units of the time axis, each with its length (ns).
const TIMES: [(f64, &str); 3] = [(60e9, "minutes"), (3600e9, "hours"), (86_400e9, "days")];

/// Returns the page of a target, generated from the target's history.
pub fn of(history: &HistoryDocument, place: &Place) -> Page {
    let mut points: Vec<&PointHistory> =
        history.points.iter().filter(|point| point.runs.len() > 1).collect();
    points.sort_by_key(|point| std::cmp::Reverse((point.changes.len(), point.runs.len())));
    let left_out = points.len().saturating_sub(CHARTS_MAX);
    points.truncate(CHARTS_MAX);
    let starts =
        || history.points.iter().flat_map(|point| &point.runs).map(|run| run.started_unix_ns);
    let (first, last) = (starts().min().unwrap_or_default(), starts().max().unwrap_or_default());
    let scale = TimeScale::of(first, last);
    let chart = |(number, point): (usize, &&PointHistory)| {
        Block::Chart(chart(point, &format!("trend-{number}"), &scale))
    };
    let mut blocks: Vec<Block> = points.iter().enumerate().map(chart).collect();
    if blocks.is_empty() {
        let text = "No workload was measured in more than one run on this target, so there is no \
                    trend yet.";
        blocks.push(Block::Text(text.to_owned()));
    }
    if left_out > 0 {
        let left_out = units::counted(left_out as u64, "workload");
        blocks.push(Block::Text(format!(
            "This page has no chart for {left_out}; see halfpower history."
        )));
    }
    let trends = Section {
        id: "trends".to_owned(),
        title: "Rates over time".to_owned(),
        lead: "Each mark shows the median of a run's trials, with a 95% confidence interval. A \
               vertical line marks a change that chance does not explain."
            .to_owned(),
        blocks,
    };
    let figure = |label: &str, value: usize| KeyFigure {
        label: label.to_owned(),
        value: value.to_string(),
        note: String::new(),
    };
    let changes = history.points.iter().map(|point| point.changes.len()).sum();
    Page {
        title: format!("{} on {}", history.target, history.host),
        subtitle: format!("{} to {} UTC", date::utc(first), date::utc(last)),
        verdict: Verdict { state: State::Valid, reasons: Vec::new(), in_doubt: None },
        key_figures: vec![figure("Workloads", history.points.len()), figure("Changes", changes)],
        findings: history.points.iter().flat_map(findings).collect(),
        advice: Vec::new(),
        sections: vec![trends, changes_section(history, place)],
        provenance: Vec::new(),
    }
}

/// A time axis that starts at the first run. The unit is days if the runs span at least three days,
/// hours if they span at least three hours, and otherwise minutes.
struct TimeScale {
    first_unix_ns: i64,
    unit_ns: f64,
    label: String,
}

impl TimeScale {
    fn of(first: i64, last: i64) -> TimeScale {
        let passed = last.saturating_sub(first) as f64;
        let fits = |(unit_ns, _): &&(f64, &str)| passed >= 3.0 * unit_ns;
        let (unit_ns, name) = TIMES.iter().rev().find(fits).copied().unwrap_or(TIMES[0]);
        let label = format!("{name} since {} UTC", date::utc(first));
        TimeScale { first_unix_ns: first, unit_ns, label }
    }

    fn place(&self, unix_ns: i64) -> f64 {
        unix_ns.saturating_sub(self.first_unix_ns) as f64 / self.unit_ns
    }
}

fn chart(point: &PointHistory, id: &str, scale: &TimeScale) -> Chart {
    let mark = |run: &compare::history::PastResult| Mark {
        x: scale.place(run.started_unix_ns),
        y: run.bytes_per_s,
        low: Some(run.bytes_per_s_low),
        high: Some(run.bytes_per_s_high),
        note: Some(format!(
            "run {}, {} UTC, {}",
            run.run,
            date::utc(run.started_unix_ns),
            run.verdict
        )),
    };
    let guide = |change: &compare::history::ChangeOverTime| Guide {
        label: format!("run {}", change.run),
        at: scale.place(change.started_unix_ns),
        direction: Direction::Vertical,
    };
    let axis = |label: &str, unit| Axis { label: label.to_owned(), unit, scale: Scale::Linear };
    let name = "rate".to_owned();
    let points = point.runs.iter().map(mark).collect();
    Chart {
        id: id.to_owned(),
        title: point.workload.clone(),
        summary: format!("Rate of this workload in {} runs, over time.", point.runs.len()),
        x: axis(&scale.label, Unit::Count),
        y: axis("rate", Unit::BytesPerSecond),
        series: vec![Series { name, points, dashed: false, hue: None }],
        guides: point.changes.iter().map(guide).collect(),
        kind: Kind::Lines,
    }
}

fn findings(point: &PointHistory) -> Vec<Finding> {
    let finding = |change: &compare::history::ChangeOverTime| {
        let percent = 100.0 * (change.ratio - 1.0);
        let fact = |(name, old, new): &(String, String, String)| format!("{name}: {old} -> {new}");
        let facts: Vec<String> = change.facts.iter().map(fact).collect();
        Finding {
            id: "change".to_owned(),
            headline: format!(
                "{}: the rate changed by {percent:+.1}% at run {}",
                point.workload, change.run
            ),
            detail: facts.join("; "),
            tone: if change.ratio < 1.0 { Tone::Warn } else { Tone::Good },
        }
    };
    point.changes.iter().take(CHANGES_MAX).map(finding).collect()
}

/// Returns the section "Newest results", which shows the newest result of each workload. At most
/// [`CHANGES_MAX`] workloads are shown.
fn changes_section(history: &HistoryDocument, place: &Place) -> Section {
    let column = |label: &str, unit| Column { label: label.to_owned(), unit };
    let row = |point: &PointHistory| {
        let last = point.runs.last()?;
        let number = Cell::Text(last.run.to_string());
        let cells = vec![
            Cell::Text(point.workload.clone()).into(),
            Cell::Number(point.runs.len() as f64).into(),
            Cell::Number(last.bytes_per_s).into(),
            Cell::from(last.verdict).into(),
            LinkedCell { cell: number, href: place.run(last.run) },
            Cell::Text(date::utc(last.started_unix_ns)).into(),
        ];
        Some(LinkRow { value: None, cells })
    };
    let mut rows: Vec<LinkRow> = history.points.iter().filter_map(row).collect();
    let left_out = rows.len().saturating_sub(CHANGES_MAX);
    rows.truncate(CHANGES_MAX);
    let table = LinkTable {
        id: "newest".to_owned(),
        caption: match left_out {
            0 => "The newest result of each workload".to_owned(),
            left_out => format!("The newest results; {left_out} workloads are not shown"),
        },
        columns: vec![
            column("workload", None),
            column("runs", Some(Unit::Count)),
            column("rate", Some(Unit::BytesPerSecond)),
            column("verdict", None),
            column("run", None),
            column("started (UTC)", None),
        ],
        rows,
        choice: None,
        search: None,
    };
    Section {
        id: report::model::POINTS_SECTION.to_owned(),
        title: "Newest results".to_owned(),
        lead: String::new(),
        blocks: vec![Block::Links(table)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use compare::history::{ChangeOverTime, PastResult};
    use lab::json::Program;

    const HOUR_NS: i64 = 3_600_000_000_000;

    fn history() -> HistoryDocument {
        let run = |run: i64| PastResult {
            run,
            started_unix_ns: run * HOUR_NS,
            bytes_per_s: if run < 4 { 100.0 } else { 50.0 },
            bytes_per_s_low: 49.0,
            bytes_per_s_high: 101.0,
            verdict: "valid",
        };
        let change = ChangeOverTime {
            run: 4,
            started_unix_ns: 4 * HOUR_NS,
            ratio: 0.5,
            ratio_low: 0.4,
            ratio_high: 0.6,
            probability: 0.001,
            facts: vec![("kernel".into(), "6.1".into(), "<6.12>".into())],
        };
        let point = |workload: &str, runs: Vec<PastResult>, changes| PointHistory {
            workload: workload.to_owned(),
            runs,
            changes,
        };
        let points = vec![
            point("once", vec![run(1)], Vec::new()),
            point("steady", (1..=3).map(run).collect(), Vec::new()),
            point("changed", (1..=6).map(run).collect(), vec![change]),
        ];
        HistoryDocument {
            halfpower: Program::this(),
            host: "h".into(),
            target: "ext4 on <sda>".into(),
            points,
        }
    }

    #[test]
    fn workloads_of_several_runs_have_a_chart_and_those_that_changed_come_first() {
        let page = of(&history(), &Place::Server);
        let charts: Vec<&Chart> = page.sections[0]
            .blocks
            .iter()
            .filter_map(|block| match block {
                Block::Chart(chart) => Some(chart),
                _ => None,
            })
            .collect();
        let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert_eq!(titles, ["changed", "steady"]);
        assert_eq!(charts[0].x.label, "hours since 1970-01-01 01:00 UTC");
        let marks: Vec<f64> = charts[0].series[0].points.iter().map(|mark| mark.x).collect();
        assert_eq!(marks, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(charts[0].guides[0].at, 3.0);
        assert_eq!(page.findings.len(), 1);
        let html = report::render(&page);
        assert!(html.contains("6.1 -&gt; &lt;6.12&gt;") && html.contains("href=\"/run/6\""));
    }

    #[test]
    fn a_target_with_one_run_says_that_there_is_no_trend() {
        let mut history = history();
        history.points.truncate(1);
        let html = report::render(&of(&history, &Place::Server));
        assert!(html.contains("there is no trend yet"), "{html}");
    }
}
