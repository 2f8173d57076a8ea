//! Generates the page of a stored run of any kind. For a survey, this is the report of the survey,
//! regenerated from the stored results. For any other run, the page has a table of the points,
//! charts of the rates by request size, and the stored findings.

use std::collections::BTreeMap;

use analysis::units;
use lab::date;
use lab::failure::Outcome;
use lab::json;
use lab::machine::{Host, TargetFacts};
use lab::point::{Point, Summary};
use lab::point_key::PointKey;
use lab::record::{self, StoredFinding};
use lab::recorder;
use report::model::{
    Axis, Block, Cell, Chart, Column, Finding, KeyFigure, Kind, POINTS_SECTION, Page,
    Point as Mark, Scale, Section, Series, State, Table, Tone, Verdict,
};
use report::units::Unit;
use results::{RunKind, RunRow, RunState, Store};
use survey::insight::Insight;
use survey::survey_data::SurveyData;
use survey::view;

/// Maximum number of rows in the table of points.
const ROWS_MAX: usize = 2000;
/// Maximum number of charts.
const CHARTS_MAX: usize = 12;
/// Maximum number of curves in a chart.
const CURVES_MAX: usize = 8;

/// Returns the page of a stored run.
///
/// # Errors
/// If the database cannot be read.
pub fn of(store: &Store, row: &RunRow) -> Outcome<Page> {
    if row.kind == RunKind::Survey {
        let data = SurveyData::of_row(store, row)?;
        let insight = Insight::of(&data);
        if !insight.seen.is_empty() {
            let mut page = report::survey_page(&view::of(&data, &insight));
            add_progress(&mut page.verdict, row);
            return Ok(page);
        }
    }
    let mut points = Vec::new();
    let mut left_out = 0;
    recorder::each_point(store, row.id, |point| {
        if point.trials.is_empty() || points.len() >= ROWS_MAX {
            left_out += usize::from(!point.trials.is_empty());
        } else {
            points.push(MeasuredRow::of(&point));
        }
    })?;
    Ok(page(row, &points, left_out))
}

/// A measured point, without the data of its trials.
#[derive(Clone, Debug)]
struct MeasuredRow {
    key: PointKey,
    trials: usize,
    summary: Summary,
}

impl MeasuredRow {
    fn of(point: &Point) -> MeasuredRow {
        MeasuredRow { key: point.key.clone(), trials: point.trials.len(), summary: point.summary() }
    }

    fn rate(&self) -> f64 {
        self.summary.bytes_per_s.value
    }
}

fn page(row: &RunRow, points: &[MeasuredRow], left_out: usize) -> Page {
    let host: Host = serde_json::from_str(&row.host_json).unwrap_or_default();
    let target: TargetFacts = serde_json::from_str(&row.target_json).unwrap_or_default();
    let label = row.label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
    let mut sections: Vec<Section> = charts(points).into_iter().collect();
    sections.push(table(points, left_out));
    Page {
        title: format!("Run {}: {} of {}{label}", row.id, row.kind, target.name),
        subtitle: format!(
            "{}, {}, Linux {} \u{b7} {} UTC",
            host.name,
            host.cpu,
            host.kernel,
            date::utc(row.started_unix_ns)
        ),
        verdict: verdict(row),
        key_figures: key_figures(row, points, left_out),
        findings: findings(row),
        advice: Vec::new(),
        sections,
        provenance: provenance(row, &host, &target),
    }
}

fn verdict(row: &RunRow) -> Verdict {
    let state = match row.verdict {
        Some(results::Verdict::Valid) => State::Valid,
        Some(results::Verdict::Invalid) => State::Invalid,
        Some(results::Verdict::Suspect) | None => State::Suspect,
    };
    let reasons = serde_json::from_str(&row.verdict_reasons_json).unwrap_or_default();
    let mut verdict = Verdict { state, reasons, in_doubt: None };
    add_progress(&mut verdict, row);
    if row.verdict.is_none() && verdict.reasons.is_empty() {
        verdict.reasons.push("nothing was measured".to_owned());
    }
    verdict
}

/// Adds a reason to a verdict if the run has not finished successfully. A valid verdict then
/// becomes suspect.
fn add_progress(verdict: &mut Verdict, row: &RunRow) {
    let why = match row.state {
        RunState::Finished => return,
        RunState::Running => "this run has not ended: it is in progress, or it was killed",
        RunState::Interrupted => "this run was interrupted; its finished trials are shown",
        RunState::Failed => "this run ended with an error; its finished trials are shown",
    };
    if verdict.state == State::Valid {
        verdict.state = State::Suspect;
    }
    verdict.reasons.insert(0, why.to_owned());
}

fn key_figures(row: &RunRow, points: &[MeasuredRow], left_out: usize) -> Vec<KeyFigure> {
    let figure = |label: &str, value: String, note: String| KeyFigure {
        label: label.to_owned(),
        value,
        note,
    };
    let trials: usize = points.iter().map(|point| point.trials).sum();
    let count = (points.len() + left_out) as u64;
    let trials_note = match left_out {
        0 => units::counted(trials as u64, "trial"),
        _ => String::new(),
    };
    let mut all = vec![figure("Points", count.to_string(), trials_note)];
    let usable =
        points.iter().filter(|point| point.summary.verdict.state != lab::point::State::Invalid);
    if let Some(best) = usable.max_by(|a, b| a.rate().total_cmp(&b.rate())) {
        let rate = Unit::BytesPerSecond.format(best.rate());
        all.push(figure("Highest rate", rate, best.key.describe()));
    }
    if let Some(end) = row.finished_unix_ns {
        let ns = end.saturating_sub(row.started_unix_ns).max(0);
        all.push(figure("Duration", units::time(ns as f64), String::new()));
    }
    all
}

/// Returns the stored findings of a study, a survey or an import.
fn findings(row: &RunRow) -> Vec<Finding> {
    let finding = |StoredFinding { id, text }: StoredFinding| Finding {
        id,
        headline: text,
        detail: String::new(),
        tone: Tone::Note,
    };
    let stored = record::stored_findings(row.findings_json.as_deref());
    stored.into_iter().map(finding).collect()
}

/// Returns charts of the rate by request size. There is one chart for each value of `rw`, with a
/// curve for each combination of the other settings. None if no curve has at least two points.
fn charts(points: &[MeasuredRow]) -> Option<Section> {
    let mut groups: BTreeMap<String, BTreeMap<String, Vec<&MeasuredRow>>> = BTreeMap::new();
    for point in points {
        let key = &point.key;
        let settings = key.describe_settings();
        let curve = if key.is_skewed() {
            format!("{}, {settings}", key.workload.distribution)
        } else {
            settings
        };
        groups.entry(key.rw().to_owned()).or_default().entry(curve).or_default().push(point);
    }
    let mut blocks = Vec::new();
    for (number, (rw, curves)) in groups.into_iter().enumerate() {
        let all = curves.into_iter().map(|(name, points)| series(name, points));
        let mut series: Vec<Series> = all.filter(|series| series.points.len() > 1).collect();
        let left_out = series.len().saturating_sub(CURVES_MAX);
        series.truncate(CURVES_MAX);
        if !series.is_empty() && blocks.len() < CHARTS_MAX {
            blocks.push(Block::Chart(chart(number, &rw, series, left_out)));
        }
    }
    (!blocks.is_empty()).then(|| Section {
        id: "curves".to_owned(),
        title: "Rates by request size".to_owned(),
        lead: "Bars show 95% confidence intervals.".to_owned(),
        blocks,
    })
}

fn series(name: String, mut points: Vec<&MeasuredRow>) -> Series {
    points.sort_by_key(|point| point.key.request_bytes());
    points.dedup_by_key(|point| point.key.request_bytes());
    let mark = |point: &&MeasuredRow| Mark {
        x: point.key.request_bytes() as f64,
        y: point.rate(),
        low: Some(point.summary.bytes_per_s.low),
        high: Some(point.summary.bytes_per_s.high),
        note: Some(point.summary.verdict.state.word().to_owned()),
    };
    Series { name, points: points.iter().map(mark).collect(), dashed: false, hue: None }
}

fn chart(number: usize, rw: &str, series: Vec<Series>, left_out: usize) -> Chart {
    let summary = match left_out {
        0 => format!("Rate of {rw} by request size."),
        left_out => format!("Rate of {rw} by request size. Curves that are not shown: {left_out}."),
    };
    let axis = |label: &str, unit, scale| Axis { label: label.to_owned(), unit, scale };
    Chart {
        id: format!("rates-{number}"),
        title: rw.to_owned(),
        summary,
        x: axis("request size", Unit::Bytes, Scale::Log2),
        y: axis("rate", Unit::BytesPerSecond, Scale::Linear),
        series,
        guides: Vec::new(),
        kind: Kind::Lines,
    }
}

fn table(points: &[MeasuredRow], left_out: usize) -> Section {
    let column = |label: &str, unit| Column { label: label.to_owned(), unit };
    let rows = points.iter().map(|point| {
        let Summary { bytes_per_s, requests_per_s, latency, cpu_lower_ns, verdict, .. } =
            &point.summary;
        let quantile = |of: f64| Cell::from(latency.quantile(of).map(|ns| ns as f64));
        vec![
            Cell::Text(point.key.describe()),
            Cell::Number(bytes_per_s.value),
            Cell::Number(bytes_per_s.low),
            Cell::Number(bytes_per_s.high),
            Cell::Number(requests_per_s.value),
            quantile(0.5),
            quantile(0.99),
            Cell::from(*cpu_lower_ns),
            Cell::Number(point.trials as f64),
            Cell::Text(verdict.state.word().to_owned()),
            Cell::Text(verdict.reasons.join("; ")),
        ]
    });
    let table = Table {
        id: "points".to_owned(),
        caption: match left_out {
            0 => "All points".to_owned(),
            left_out => format!("The first {} points; {left_out} more are not shown", points.len()),
        },
        columns: vec![
            column("workload", None),
            column("rate", Some(Unit::BytesPerSecond)),
            column("low", Some(Unit::BytesPerSecond)),
            column("high", Some(Unit::BytesPerSecond)),
            column("requests", Some(Unit::PerSecond)),
            column("median latency", Some(Unit::Nanoseconds)),
            column("p99 latency", Some(Unit::Nanoseconds)),
            column("CPU per request", Some(Unit::Nanoseconds)),
            column("trials", Some(Unit::Count)),
            column("verdict", None),
            column("reasons", None),
        ],
        rows: rows.collect(),
    };
    Section {
        id: POINTS_SECTION.to_owned(),
        title: "All points".to_owned(),
        lead: "Rates are medians of the trials. Low and high are the limits of the 95% confidence \
               interval of the rate."
            .to_owned(),
        blocks: vec![Block::Table(table)],
    }
}

fn provenance(
    row: &RunRow,
    host: &Host,
    target: &TargetFacts,
) -> Vec<(String, Vec<(String, String)>)> {
    let fact = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut run = vec![
        fact("number", &row.id.to_string()),
        fact("uuid", &row.uuid),
        fact("state", row.state.as_str()),
        fact("command", &row.command_line),
        fact("version", &row.version),
        fact("seed", &row.seed.0.to_string()),
    ];
    let optional = [("label", &row.label), ("note", &row.note)];
    run.extend(optional.iter().filter_map(|(name, text)| Some(fact(name, text.as_deref()?))));
    vec![("Run".to_owned(), run), json::facts("Host", host), json::facts("Target", target)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioengine::EngineKind;
    use lab::point::testing::point;
    use results::{RunId, Seed};

    fn row(state: RunState, verdict: Option<results::Verdict>) -> RunRow {
        RunRow {
            id: RunId(7),
            uuid: "u".into(),
            kind: RunKind::Sweep,
            command_line: "halfpower sweep <script>".into(),
            label: Some("'; DROP TABLE run; --".into()),
            started_unix_ns: 0,
            finished_unix_ns: Some(5_000_000_000),
            state,
            version: "1".into(),
            schema: 1,
            seed: Seed(1),
            pid: 1,
            boot_id: String::new(),
            host_json: "not json".into(),
            target_json: "{\"name\": 1}".into(),
            settings_json: "{}".into(),
            findings_json: Some(r#"{"findings": [{"id": "a", "text": "it <b> is"}]}"#.into()),
            verdict,
            verdict_reasons_json: "[\"noisy\"]".into(),
            note: None,
        }
    }

    fn measured() -> Vec<MeasuredRow> {
        let sized = |request_bytes: u32| {
            let mut point = point(&[u64::from(request_bytes) * 100, 4096 * 101]);
            point.key.workload.request_bytes = request_bytes;
            MeasuredRow::of(&point)
        };
        [4096, 8192, 65536].map(sized).to_vec()
    }

    #[test]
    fn a_run_shows_its_curve_its_points_and_its_stored_findings() {
        let page = page(&row(RunState::Finished, Some(results::Verdict::Valid)), &measured(), 0);
        let [curves, points] = page.sections.as_slice() else { panic!("two sections") };
        let Block::Chart(chart) = &curves.blocks[0] else { panic!("a chart") };
        assert_eq!(chart.series[0].points.len(), 3);
        let Block::Table(table) = &points.blocks[0] else { panic!("a table") };
        assert_eq!(table.rows.len(), 3);
        assert_eq!(page.findings[0].headline, "it <b> is");
        assert_eq!((page.verdict.state, page.verdict.reasons.len()), (State::Valid, 1));
        let html = report::render(&page);
        assert!(html.contains("it &lt;b&gt; is") && !html.contains("sweep <script>"));
    }

    #[test]
    fn points_that_differ_only_in_the_io_engine_are_on_two_curves() {
        let mut points = measured();
        for mut point in measured() {
            point.key.workload.engine_kind = EngineKind::Mmap;
            points.push(point);
        }
        let page = page(&row(RunState::Finished, None), &points, 0);
        let Block::Chart(chart) = &page.sections[0].blocks[0] else { panic!("a chart") };
        let curves: Vec<(&str, usize)> =
            chart.series.iter().map(|curve| (&*curve.name, curve.points.len())).collect();
        assert_eq!(curves, [("depth 1, mmap, direct", 3), ("depth 1, sync, direct", 3)]);
    }

    #[test]
    fn a_run_that_has_not_ended_is_suspect_and_says_so() {
        for state in [RunState::Running, RunState::Interrupted, RunState::Failed] {
            let page = page(&row(state, None), &[], 0);
            assert_eq!(page.verdict.state, State::Suspect);
            assert!(page.verdict.reasons[0].starts_with("this run "), "{:?}", page.verdict);
        }
    }

    #[test]
    fn points_beyond_the_limit_are_counted() {
        let page = page(&row(RunState::Finished, None), &measured(), 5);
        assert_eq!(page.key_figures[0].value, "8");
        let html = report::render(&page);
        assert!(html.contains("The first 3 points; 5 more are not shown"), "{html}");
    }
}
