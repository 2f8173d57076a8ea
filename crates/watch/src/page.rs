//! The HTML page of a trace: the report as text, and charts of throughput and depth over time,
//! latencies, sizes and files.

use std::path::Path;

use analysis::histogram::Histogram;
use analysis::units;
use lab::failure::Outcome;
use lab::trace_file::failed;
use report::frame::Frame;
use report::model::{
    Advice, Axis, Block, Cell, Chart, Column, Finding, KeyFigure, Kind, Page, Point, Scale,
    Section, Series, State, Table, Tone, Verdict,
};
use report::units::Unit;
use trace::{Call, Operation, TraceReader};

use crate::document::{DataDocument, FileDocument, TraceDocument};
use crate::text;
use crate::timeline::Timeline;

/// Maximum number of files in the table of files. The chart of files shows half as many files.
const FILES_SHOWN: usize = 30;
/// Maximum number of request sizes in the chart of sizes.
const SIZES_SHOWN: usize = 24;

/// Chart data that the document does not contain.
#[derive(Debug, Default)]
struct Shown {
    timeline: Timeline,
    latencies: [Histogram; 3],
}

/// The operations in the latency chart, with their labels.
const OPERATIONS: [(Operation, &str); 3] =
    [(Operation::Read, "reads"), (Operation::Write, "writes"), (Operation::Flush, "flushes")];

/// Formats the page of a trace file as HTML.
///
/// # Errors
/// The trace cannot be read.
pub fn html(document: &TraceDocument, trace: &Path) -> Outcome<String> {
    let mut shown = Shown::default();
    // If a trace has no requests of a program, the page shows those of the block layer.
    let is_block = document.calls() == 0;
    for request in TraceReader::open(trace).map_err(|error| failed(&error))? {
        let request = request.map_err(|error| failed(&error))?;
        if (request.call == Call::BLOCK) != is_block || request.call == Call::PAGE_FAULT {
            continue;
        }
        shown.timeline.take(&request);
        let at = OPERATIONS.iter().position(|(operation, _)| *operation == request.operation);
        if let Some((at, latency)) = at.zip(request.latency_ns) {
            shown.latencies[at].record(latency);
        }
    }
    // The page shows a verdict only if events were lost, which makes the trace suspect.
    let frame = Frame { is_list: document.lost.is_empty(), ..Frame::default() };
    Ok(report::render_in(&frame, &page(document, &shown)))
}

fn page(document: &TraceDocument, shown: &Shown) -> Page {
    let command = document.command.lines().next().unwrap_or_default();
    let name = if command.is_empty() { document.trace.as_str() } else { command };
    let finding = |headline: String| Finding {
        id: "watch".to_owned(),
        headline,
        detail: String::new(),
        tone: Tone::Note,
    };
    let against = document.against.iter().map(|one| one.text.clone());
    let places = document.places.iter().map(|one| one.text.clone());
    let reasons: Vec<String> =
        document.lost.iter().map(|loss| format!("lost: {} {}", loss.count, loss.cause)).collect();
    Page {
        title: format!("Requests of {name}"),
        subtitle: format!("halfpower {}; trace {}", document.halfpower.version, document.trace),
        verdict: Verdict {
            state: if reasons.is_empty() { State::Valid } else { State::Suspect },
            reasons,
            in_doubt: None,
        },
        key_figures: key_figures(document),
        findings: against.chain(places).map(finding).collect(),
        advice: document.gains.iter().map(advice).collect(),
        sections: sections(document, shown),
        provenance: Vec::new(),
    }
}

fn advice(gain: &crate::document::GainDocument) -> Advice {
    Advice {
        id: gain.rule.clone(),
        text: gain.text.clone(),
        gain: format!("{:.1}x, predicted", gain.gain),
        how: gain.how.clone(),
        evidence: format!("Amdahl's law: {}", gain.computed),
    }
}

fn key_figures(document: &TraceDocument) -> Vec<KeyFigure> {
    let figure = |label: &str, value: String, note: &str| KeyFigure {
        label: label.to_owned(),
        value,
        note: note.to_owned(),
    };
    let share = document.outstanding_ns as f64 / document.duration_ns.max(1) as f64;
    let mut figures = vec![
        figure("Time", units::time(document.duration_ns as f64), "watched"),
        figure("Waiting", format!("{:.0}%", share * 100.0), "of the time"),
    ];
    for (operation, label) in [(Operation::Read, "Read"), (Operation::Write, "Written")] {
        let data = document.operation(operation).and_then(|of| of.data.as_ref());
        figures.extend(data.map(|data| {
            let note = format!("in {}", units::counted(data.count, "request"));
            figure(label, units::size(data.moved_bytes), &note)
        }));
    }
    if let Some(share) = document.share_of_device {
        let share = format!("{:.0}%", share * 100.0);
        figures.push(figure(
            "Share of device",
            share,
            "of the device's best rate, while the program waits for storage",
        ));
    }
    figures
}

fn sections(document: &TraceDocument, shown: &Shown) -> Vec<Section> {
    let section = |id: &str, title: &str, lead: &str, blocks| Section {
        id: id.to_owned(),
        title: title.to_owned(),
        lead: lead.to_owned(),
        blocks,
    };
    let said = text::whole_lines(document);
    let charts = |charts: Vec<Option<Chart>>| {
        charts.into_iter().flatten().map(Block::Chart).collect::<Vec<Block>>()
    };
    let over_time = charts(vec![rates(&shown.timeline), depths(&shown.timeline)]);
    let requests = charts(vec![latencies(shown), sizes(document)]);
    let mut sections = vec![section("report", "Report", "", vec![Block::List(said)])];
    let time = "All bytes of a request are counted in the interval in which the request starts. \
                The depth is the mean in each interval.";
    for (id, title, lead, blocks) in
        [("time", "Over time", time, over_time), ("requests", "Latencies and sizes", "", requests)]
    {
        if !blocks.is_empty() {
            sections.push(section(id, title, lead, blocks));
        }
    }
    let files = if document.files.is_empty() { &document.devices } else { &document.files };
    if !files.is_empty() {
        let mut blocks = charts(vec![file_chart(files)]);
        blocks.push(Block::Table(file_table(files)));
        let lead = "Files are sorted by the time spent in calls.";
        sections.push(section("files", "Files", lead, blocks));
    }
    sections
}

fn axis(label: &str, unit: Unit, scale: Scale) -> Axis {
    Axis { label: label.to_owned(), unit, scale }
}

fn series(name: &str, points: Vec<(f64, f64)>) -> Series {
    let points = points.into_iter().map(|(x, y)| Point { x, y, ..Point::default() }).collect();
    Series { name: name.to_owned(), points, dashed: false, hue: None }
}

/// Returns a chart of the series that have a value above zero. None if there is no such series.
fn chart(
    (id, title, summary): (&str, &str, &str),
    (x, y): (Axis, Axis),
    kind: Kind,
    series: Vec<Series>,
) -> Option<Chart> {
    let has_value = |one: &Series| one.points.iter().any(|point| point.y > 0.0);
    let series: Vec<Series> = series.into_iter().filter(has_value).collect();
    let (id, title, summary) = (id.to_owned(), title.to_owned(), summary.to_owned());
    let guides = Vec::new();
    let chart = Chart { id, title, summary, x, y, series, guides, kind };
    (!chart.series.is_empty()).then_some(chart)
}

/// Returns the start time (s) and the rate (per second) of each interval.
fn over_time(timeline: &Timeline, of: fn(&crate::timeline::Interval) -> f64) -> Vec<(f64, f64)> {
    let length_s = timeline.interval_ns as f64 / 1e9;
    let intervals = timeline.intervals.iter().enumerate();
    intervals.map(|(number, one)| (number as f64 * length_s, of(one) / length_s)).collect()
}

fn rates(timeline: &Timeline) -> Option<Chart> {
    let axes = (
        axis("Time", Unit::Seconds, Scale::Linear),
        axis("Rate", Unit::BytesPerSecond, Scale::Linear),
    );
    let lines = vec![
        series("reads", over_time(timeline, |one| one.read_bytes)),
        series("writes", over_time(timeline, |one| one.write_bytes)),
    ];
    chart(("rate", "Rate", "Throughput of reads and writes."), axes, Kind::Steps, lines)
}

fn depths(timeline: &Timeline) -> Option<Chart> {
    let axes =
        (axis("Time", Unit::Seconds, Scale::Linear), axis("Depth", Unit::Count, Scale::Linear));
    let depth = over_time(timeline, |one| one.outstanding_ns / 1e9);
    let lines = vec![series("outstanding", depth)];
    chart(("depth", "Depth", "Mean number of outstanding requests."), axes, Kind::Steps, lines)
}

fn latencies(shown: &Shown) -> Option<Chart> {
    let curves: Vec<Vec<(f64, f64)>> =
        shown.latencies.iter().map(|of| of.cumulative().collect()).collect();
    let named = OPERATIONS.iter().zip(&shown.latencies).zip(&curves);
    let known = named.filter(|((_, of), _)| of.count() > 0);
    let distributions =
        known.map(|(((_, name), of), curve)| ((*name).to_owned(), &curve[..], of.count()));
    report::percentile_chart(
        "latency",
        "Latency by percentile",
        "Latencies of reads, writes and flushes.",
        distributions,
    )
}

fn sizes(document: &TraceDocument) -> Option<Chart> {
    let of = |operation| document.operation(operation).and_then(|of| of.data.as_ref());
    let [reads, writes] = [of(Operation::Read), of(Operation::Write)];
    let mut all: Vec<(u64, u64)> = Vec::new();
    for size in [reads, writes].into_iter().flatten().flat_map(|data| &data.sizes) {
        match all.iter_mut().find(|(bytes, _)| *bytes == size.bytes) {
            Some((_, count)) => *count += size.count,
            None => all.push((size.bytes, size.count)),
        }
    }
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all.truncate(SIZES_SHOWN);
    all.sort_unstable();
    let names = all.iter().map(|(bytes, _)| units::size(*bytes)).collect();
    let counts = |data: Option<&DataDocument>| {
        let count = |bytes: u64| {
            let found = data.and_then(|data| data.sizes.iter().find(|size| size.bytes == bytes));
            found.map_or(0.0, |size| size.count as f64)
        };
        all.iter().enumerate().map(|(at, (bytes, _))| (at as f64, count(*bytes))).collect()
    };
    let axes = (
        axis("Request size", Unit::Count, Scale::Category(names)),
        axis("Requests", Unit::Count, Scale::Linear),
    );
    let bars = vec![series("reads", counts(reads)), series("writes", counts(writes))];
    chart(("sizes", "Sizes", "Requests of the most common sizes."), axes, Kind::Bars, bars)
}

fn name_of(file: &FileDocument) -> String {
    if file.name.is_empty() { "(unknown file)".to_owned() } else { file.name.clone() }
}

fn file_chart(files: &[FileDocument]) -> Option<Chart> {
    let shown = &files[..files.len().min(FILES_SHOWN / 2)];
    let axes = (
        axis("File", Unit::Count, Scale::Category(shown.iter().map(name_of).collect())),
        axis("Requests", Unit::Count, Scale::Linear),
    );
    let bars = |of: fn(&FileDocument) -> u64| {
        shown.iter().enumerate().map(|(at, file)| (at as f64, of(file) as f64)).collect()
    };
    let count = |data: &Option<DataDocument>| data.as_ref().map_or(0, |data| data.count);
    let all = vec![
        series("reads", bars(|file| file.reads.as_ref().map_or(0, |data| data.count))),
        series("writes", bars(|file| file.writes.as_ref().map_or(0, |data| data.count))),
        series("flushes", bars(|file| file.flushes)),
    ];
    let any = shown.iter().any(|file| count(&file.reads) + count(&file.writes) > 0);
    let text = ("by-file", "Requests by file", "Reads, writes and flushes.");
    any.then(|| chart(text, axes, Kind::Bars, all)).flatten()
}

fn file_table(files: &[FileDocument]) -> Table {
    let column = |label: &str, unit| Column { label: label.to_owned(), unit };
    let part = |data: &Option<DataDocument>| match data {
        Some(data) => [
            Cell::Number(data.count as f64),
            Cell::Number(data.moved_bytes as f64),
            Cell::Number(data.busy_ns as f64),
        ],
        None => [Cell::Missing, Cell::Missing, Cell::Missing],
    };
    let row = |file: &FileDocument| {
        let mut row = vec![Cell::Text(name_of(file))];
        row.extend(part(&file.reads));
        row.extend(part(&file.writes));
        row.extend([Cell::Number(file.flushes as f64), Cell::Number(file.flush_ns as f64)]);
        row
    };
    let (count, bytes, time) = (Some(Unit::Count), Some(Unit::Bytes), Some(Unit::Nanoseconds));
    Table {
        id: "files-table".to_owned(),
        caption: format!("The {} files with the most time in calls", files.len().min(FILES_SHOWN)),
        columns: vec![
            column("file", None),
            column("reads", count),
            column("bytes read", bytes),
            column("time in reads", time),
            column("writes", count),
            column("bytes written", bytes),
            column("time in writes", time),
            column("flushes", count),
            column("time in flushes", time),
        ],
        rows: files.iter().take(FILES_SHOWN).map(row).collect(),
    }
}
