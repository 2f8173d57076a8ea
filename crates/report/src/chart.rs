//! Renders a chart as an HTML figure: caption, legend, SVG drawing, and a data table below.
//!
//! The drawing has fixed coordinates and is scaled to the width of its column. On narrow screens,
//! the style sheet enlarges the text of the drawing, so the margins are wide enough for enlarged
//! text. Each point that can be drawn is an element of class `mark`. Its attribute `data-r`
//! contains the row of the point in the data table, from which the script reads the values. Colours
//! and dashes are CSS classes, so all themes and the printed page use the same drawing.

use maud::{Markup, html};

use crate::heat_map::{moment_width, shaded};
use crate::model::{Axis, Chart, Direction, Guide, Kind, Scale, Series};
use crate::reading::reading;
use crate::scale::{Projection, Tick};
use crate::svg::{DOT, HUES, error_bars, line, marker, number, translate};
use crate::table::{chart_data, csv_button};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 350.0;
const LEFT: f64 = 68.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 54.0;

/// Height of the label of a guide line at the font size of a phone (SVG user units). The labels of
/// vertical guide lines are above the plot area, where no data line can cross them.
const GUIDE_LINE: f64 = 20.0;
/// Width of a character in the label of a horizontal guide line at the font size of a phone (SVG
/// user units).
const GUIDE_LETTER: f64 = 12.0;

/// Maximum number of points in a series whose markers are always visible. The points of a longer
/// series are dots that appear only under the pointer.
const DENSE: usize = 60;

const BAR: f64 = 18.0;
const BAR_GAP: f64 = 5.0;
const GROUP_LABEL: f64 = 24.0;
const GROUP_GAP: f64 = 14.0;
/// Width of the space to the right of the longest bar, for the number that labels the bar (SVG user
/// units).
const BAR_TEXT: f64 = 270.0;

/// Renders a chart as an HTML figure.
pub(crate) fn chart(chart: &Chart) -> Markup {
    html! {
        figure.chart id=(chart.id) data-x=(chart.x.label) data-y=(chart.y.label) {
            figcaption { h3 { (chart.title) } }
            p.summary { (chart.summary) " " span.reading { (reading(chart)) } }
            (legend(chart))
            div.plot {
                @if let Kind::Bars = chart.kind { (bars(chart)) } @else { (plot(chart)) }
                div.tip role="status" aria-live="polite" hidden="" {}
            }
            (tools(chart))
            (chart_data(chart))
        }
    }
}

/// Renders the buttons that zoom and save the chart, and a field that shows the visible range. All
/// of them are hidden until the script runs.
fn tools(chart: &Chart) -> Markup {
    let zoom = |key: &str, sign: &str, what: &str| {
        html! {
            button.quiet type="button" data-zoom=(key) hidden=[(key == "0").then_some("")]
                aria-label=(format!("{what}: {}", chart.title)) { (sign) }
        }
    };
    let picture = |kind: &str| {
        html! {
            button.quiet.picture type="button" data-name=(format!("{}.{kind}", chart.id))
                aria-label=(format!("Download {} as {}", chart.id, kind.to_uppercase())) {
                (kind.to_uppercase())
            }
        }
    };
    html! {
        div.tools {
            @if is_zoomable(chart) {
                (zoom("+", "+", "Zoom in"))
                (zoom("-", "\u{2212}", "Zoom out"))
                (zoom("0", "All", "Show the whole chart"))
                span.range role="status" {}
            }
            span.files {
                (csv_button(&chart.id))
                (picture("svg"))
                (picture("png"))
            }
        }
    }
}

/// Returns true if the script can zoom into the chart. Charts with bars or categories cannot be
/// zoomed.
fn is_zoomable(chart: &Chart) -> bool {
    chart.kind != Kind::Bars && !matches!(chart.x.scale, Scale::Category(_))
}

/// Renders the legend, whose buttons show and hide series. Without the script, the legend is plain
/// text.
fn legend(chart: &Chart) -> Markup {
    html! {
        ul.legend {
            @for (index, series) in chart.series.iter().enumerate() {
                li {
                    button type="button" aria-pressed="true" data-s=(index) {
                        (swatch(chart, series, hue(series, index)))
                        (series.name)
                    }
                }
            }
        }
    }
}

fn swatch(chart: &Chart, series: &Series, hue: usize) -> Markup {
    let bar = matches!(chart.kind, Kind::Bars | Kind::HeatMap);
    let lined = !bar && (chart.kind != Kind::Scatter || series.dashed);
    let marked = !bar && !dotted(chart, series);
    html! {
        svg class=(classes(series, hue)) viewBox="0 0 28 12" width="28" height="12"
            aria-hidden="true" {
            @if bar { path.mark.bar d="M4 1h20v10h-20z" {} }
            @if lined { path.line d="M1 6H27" {} }
            @if marked { path.mark transform="translate(14 6)" d=(marker(hue)) {} }
        }
    }
}

/// Returns true if the points of a series are dots that appear only under the pointer.
fn dotted(chart: &Chart, series: &Series) -> bool {
    let fitted = chart.kind == Kind::Scatter && series.dashed;
    // Step charts and percentile charts have many points only so that their curves look smooth.
    let smooth = chart.kind == Kind::Steps || chart.x.scale == Scale::Percentile;
    fitted || smooth || series.points.len() > DENSE
}

fn hue(series: &Series, index: usize) -> usize {
    series.hue.unwrap_or(index)
}

fn classes(series: &Series, hue: usize) -> String {
    let dashed = if series.dashed { " dashed" } else { "" };
    let second_round = if hue >= HUES { " hollow" } else { "" };
    format!("series c{}{dashed}{second_round}", hue % HUES)
}

struct Frame {
    x: Projection,
    y: Projection,
    top: f64,
    right: f64,
}

impl Frame {
    fn new(chart: &Chart) -> Option<Self> {
        let points = || chart.series.iter().flat_map(|series| &series.points);
        let guides =
            |direction| chart.guides.iter().filter(move |guide| guide.direction == direction);
        let at = |direction| guides(direction).map(|guide| guide.at);
        let cells = chart.kind == Kind::HeatMap;
        let ends = points().map(|point| point.x + if cells { moment_width(chart) } else { 0.0 });
        let xs = points().map(|point| point.x).chain(ends).chain(at(Direction::Vertical));
        let ys = points()
            .flat_map(|point| [Some(point.y).filter(|_| !cells), point.low, point.high])
            .flatten()
            .chain(at(Direction::Horizontal));
        let letters = guides(Direction::Horizontal).map(|guide| guide.label.chars().count()).max();
        let beside = letters.unwrap_or(0) as f64 * GUIDE_LETTER;
        let right = WIDTH - RIGHT.max(beside.min(WIDTH / 4.0));
        let top = TOP + guides(Direction::Vertical).count() as f64 * GUIDE_LINE;
        let x = Projection::new(&chart.x.scale, chart.x.unit, xs, (LEFT, right))?;
        let y = Projection::new(&chart.y.scale, chart.y.unit, ys, (HEIGHT - BOTTOM, top))?;
        let frame = Self { x, y, top, right };
        let drawn = |y: Option<f64>, x| y.is_some_and(|y| frame.place(x, y).is_some());
        let any =
            points().any(|point| drawn(if cells { point.low } else { Some(point.y) }, point.x));
        any.then_some(frame)
    }

    /// Formats the left, right, top and bottom edge of the data area, for the script.
    fn edges(&self) -> String {
        format!("{LEFT} {} {} {}", self.right, self.top, HEIGHT - BOTTOM)
    }

    fn place(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        Some((self.x.position(x)?, self.y.position(y)?))
    }
}

fn plot(chart: &Chart) -> Markup {
    let view = format!("0 0 {WIDTH} {HEIGHT}");
    let frame = Frame::new(chart);
    let zoomed = frame.as_ref().filter(|_| is_zoomable(chart));
    let steps = (chart.kind == Kind::Steps).then_some("steps");
    html! {
        svg role="img" aria-label=(chart.summary) viewBox=(view) data-kind=[steps]
            data-x=[zoomed.map(|frame| frame.x.for_script())]
            data-y=[zoomed.filter(|_| chart.kind != Kind::HeatMap).map(|f| f.y.for_script())]
            data-frame=[zoomed.map(Frame::edges)] {
            @if let Some(frame) = &frame {
                (axes(chart, frame))
                (guides(chart, frame))
                (within(frame, &all_series(chart, frame)))
            } @else {
                text.empty x=(WIDTH / 2.0) y=(HEIGHT / 2.0) { "No data" }
            }
        }
    }
}

/// Puts the content into a nested SVG element with the coordinates of the chart. When the chart is
/// zoomed, the script makes this element hide everything outside the axes.
fn within(frame: &Frame, content: &Markup) -> Markup {
    let (width, height) = (frame.right - LEFT, HEIGHT - BOTTOM - frame.top);
    html! {
        svg.inner overflow="visible" x=(LEFT) y=(frame.top) width=(width) height=(height)
            viewBox=(format!("{LEFT} {} {width} {height}", frame.top)) { (content) }
    }
}

fn axes(chart: &Chart, frame: &Frame) -> Markup {
    let (x_ticks, y_ticks) = (frame.x.ticks(), frame.y.ticks());
    let (bottom, right) = (HEIGHT - BOTTOM, frame.right);
    html! {
        g.axes {
            path.grid.minor d=(grid(frame, &x_ticks, &y_ticks, false)) {}
            path.grid d=(grid(frame, &x_ticks, &y_ticks, true)) {}
            path.base d=(format!("M{LEFT} {bottom}H{right}")) {}
            @for tick in &x_ticks {
                @if let Some(label) = &tick.label {
                    text.x.spare[tick.spare] x=(number(tick.position)) y=(bottom + 20.0) {
                        (label)
                    }
                }
            }
            @for tick in &y_ticks {
                @if let Some(label) = &tick.label {
                    text.y x=(LEFT - 8.0) y=(number(tick.position + 4.0)) { (label) }
                }
            }
            text.name.x x=((LEFT + right) / 2.0) y=(HEIGHT - 8.0) { (title(&chart.x, &frame.x)) }
            text.name x="2" y="14" { (title(&chart.y, &frame.y)) }
        }
    }
}

fn title(axis: &Axis, projection: &Projection) -> String {
    match projection.suffix() {
        "" => axis.label.clone(),
        suffix => format!("{}, {suffix}", axis.label),
    }
}

/// Returns the SVG path of the grid lines, either for the ticks with labels or for those without.
fn grid(frame: &Frame, x_ticks: &[Tick], y_ticks: &[Tick], labelled: bool) -> String {
    let (top, bottom, right) = (frame.top, HEIGHT - BOTTOM, frame.right);
    let chosen = |tick: &&Tick| tick.label.is_some() == labelled;
    let down = x_ticks.iter().filter(chosen);
    let across = y_ticks.iter().filter(chosen);
    let down = down.map(|tick| format!("M{} {top}V{bottom}", number(tick.position)));
    let across = across.map(|tick| format!("M{LEFT} {}H{right}", number(tick.position)));
    down.chain(across).collect()
}

/// Draws the guide lines with their labels. The label of a horizontal line is to its right. The
/// labels of vertical lines are stacked above the drawing.
fn guides(chart: &Chart, frame: &Frame) -> Markup {
    let (right, top, bottom) = (frame.right, frame.top, HEIGHT - BOTTOM);
    let upright = chart.guides.iter().filter(|guide| guide.direction == Direction::Vertical);
    let upright = upright.filter_map(|guide| Some((frame.x.position(guide.at)?, guide)));
    html! {
        @for (y, text_y, guide) in level_guides(chart, frame) {
            g data-guide=(format!("y {}", guide.at)) {
                path.guide d=(format!("M{LEFT} {}H{right}", number(y))) {}
                text.guide x=(right + 6.0) y=(number(text_y + 4.0)) { (guide.label) }
            }
        }
        @for (index, (x, guide)) in upright.enumerate() {
            @let text_y = TOP - 6.0 + (index + 1) as f64 * GUIDE_LINE;
            g data-guide=(format!("x {}", guide.at)) {
                path.guide d=(format!("M{} {top}V{bottom}", number(x))) {}
                text.guide.middle[x > WIDTH / 3.0].end[x > WIDTH / 1.5]
                    x=(number(x)) y=(number(text_y)) { (guide.label) }
            }
        }
    }
}

/// Returns the horizontal guides that can be drawn, from bottom to top. Each guide has the y
/// position of its line and the y position of its label. Labels are moved up if they would overlap.
fn level_guides<'a>(chart: &'a Chart, frame: &Frame) -> Vec<(f64, f64, &'a Guide)> {
    let level = chart.guides.iter().filter(|guide| guide.direction == Direction::Horizontal);
    let placed = level.filter_map(|guide| Some((frame.y.position(guide.at)?, guide)));
    let mut placed: Vec<_> = placed.collect();
    placed.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut lowest = HEIGHT - BOTTOM;
    let labelled = placed.into_iter().map(|(y, guide)| {
        let text_y = y.min(lowest);
        lowest = text_y - GUIDE_LINE;
        (y, text_y, guide)
    });
    labelled.collect()
}

fn all_series(chart: &Chart, frame: &Frame) -> Markup {
    let first_rows = chart.series.iter().scan(0, |next, series| {
        let first = *next;
        *next += series.points.len();
        Some(first)
    });
    html! {
        @for ((index, series), first_row) in chart.series.iter().enumerate().zip(first_rows) {
            (one_series(chart, frame, series, index, first_row))
        }
    }
}

fn one_series(
    chart: &Chart,
    frame: &Frame,
    series: &Series,
    index: usize,
    first_row: usize,
) -> Markup {
    let hue = hue(series, index);
    if chart.kind == Kind::HeatMap {
        let cells = shaded(chart, series, (&frame.x, &frame.y), first_row);
        return html! { g class=(classes(series, hue)) data-s=(index) { (cells) } };
    }
    let places: Vec<_> = series.points.iter().map(|point| frame.place(point.x, point.y)).collect();
    let bars: Vec<_> = series
        .points
        .iter()
        .filter_map(|point| {
            let x = frame.x.position(point.x)?;
            Some((x, frame.y.position(point.low?)?, frame.y.position(point.high?)?))
        })
        .collect();
    let lined = chart.kind != Kind::Scatter || series.dashed;
    let dotted = dotted(chart, series);
    let shape = if dotted { DOT } else { marker(hue) };
    html! {
        g class=(classes(series, hue)) data-s=(index)
            data-rows=(format!("{first_row} {}", series.points.len())) {
            @if !bars.is_empty() { path.error d=(error_bars(&bars)) {} }
            @if lined { path.line d=(line(&places, chart.kind == Kind::Steps)) {} }
            @for (row, place) in places.iter().enumerate() {
                @if let Some((x, y)) = place {
                    path.mark.dot[dotted] d=(shape) transform=(translate(*x, *y))
                        data-r=(first_row + row) {}
                }
            }
        }
    }
}

/// Draws grouped horizontal bars. Each group has the name of a category, and below it one bar for
/// each series that has a value in the category. The number is to the right of each bar.
fn bars(chart: &Chart) -> Markup {
    let no_names = Vec::new();
    let names = match &chart.x.scale {
        Scale::Category(names) => names,
        _ => &no_names,
    };
    let values = chart.series.iter().flat_map(|series| &series.points).map(|point| point.y);
    let range = (2.0, WIDTH - BAR_TEXT);
    let width = Projection::new(&chart.y.scale, chart.y.unit, values, range);
    let rows = bar_rows(chart, names.len());
    let height = rows.last().map_or(60.0, |row| row.y + BAR + 8.0);
    html! {
        svg role="img" aria-label=(chart.summary)
            viewBox=(format!("0 0 {WIDTH} {}", number(height))) {
            @if rows.is_empty() { text.empty x=(WIDTH / 2.0) y="34" { "No data" } }
            @for (index, name) in names.iter().enumerate() {
                (category(name, rows.iter().filter(|row| row.category == index)))
            }
            @if let Some(width) = &width {
                @for (index, series) in chart.series.iter().enumerate() {
                    g class=(classes(series, hue(series, index))) data-s=(index) {
                        @for row in rows.iter().filter(|row| row.series == index) {
                            (bar(chart, row, width))
                        }
                    }
                }
            }
        }
    }
}

/// Draws the name of a category above its bars, followed by the notes of the bars.
fn category<'a>(name: &str, group: impl Iterator<Item = &'a BarRow<'a>> + Clone) -> Markup {
    let Some(first) = group.clone().next() else { return html! {} };
    html! {
        text.category x="2" y=(number(first.y - 7.0)) {
            (name)
            @for note in group.filter_map(|row| row.note) { tspan.note dx="10" { (note) } }
        }
    }
}

struct BarRow<'a> {
    category: usize,
    series: usize,
    /// Row of the value in the data table.
    data_row: usize,
    y: f64,
    value: f64,
    note: Option<&'a str>,
}

/// Returns the bars from top to bottom.
fn bar_rows(chart: &Chart, categories: usize) -> Vec<BarRow<'_>> {
    let mut rows = Vec::new();
    let mut data_row = 0;
    for (series, one) in chart.series.iter().enumerate() {
        for point in &one.points {
            let known = point.x >= 0.0 && point.x.fract() == 0.0 && point.y.is_finite();
            if known && (point.x as usize) < categories {
                let (category, value, note) = (point.x as usize, point.y, point.note.as_deref());
                rows.push(BarRow { category, series, data_row, y: 0.0, value, note });
            }
            data_row += 1;
        }
    }
    rows.sort_by_key(|row| (row.category, row.series));
    let mut y = -GROUP_GAP;
    let mut previous = None;
    for row in &mut rows {
        if previous != Some(row.category) {
            y += GROUP_GAP + GROUP_LABEL;
        }
        row.y = y;
        y += BAR + BAR_GAP;
        previous = Some(row.category);
    }
    rows
}

fn bar(chart: &Chart, row: &BarRow<'_>, width: &Projection) -> Markup {
    let zero = width.position(0.0).unwrap_or(2.0);
    let Some(end) = width.position(row.value) else { return html! {} };
    let (left, right) = (zero.min(end), zero.max(end).max(zero.min(end) + 1.0));
    let (x, y) = (number(left), number(row.y));
    let path = format!("M{x} {y}H{}v{BAR}H{x}z", number(right));
    let text = chart.y.unit.format(row.value);
    html! {
        path.mark.bar d=(path) data-r=(row.data_row) data-x=(number(right))
            data-y=(number(row.y + BAR / 2.0)) {}
        text.value x=(number(right + 7.0)) y=(number(row.y + BAR - 5.0)) { (text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Point;
    use crate::units::Unit;

    fn axis(unit: Unit, scale: Scale) -> Axis {
        Axis { label: "axis".into(), unit, scale }
    }

    fn sample(kind: Kind, ys: &[f64]) -> Chart {
        let points = ys.iter().enumerate().map(|(index, y)| Point {
            x: 4096.0 * 2f64.powi(index as i32),
            y: *y,
            low: Some(y * 0.9),
            high: Some(y * 1.1),
            note: None,
        });
        let points: Vec<_> = points.collect();
        let series = |name: &str, hue| Series {
            name: name.into(),
            points: points.clone(),
            dashed: hue == Some(0),
            hue,
        };
        Chart {
            id: "sample".into(),
            title: "Sample".into(),
            summary: "What it shows.".into(),
            x: axis(Unit::Bytes, Scale::Log2),
            y: axis(Unit::BytesPerSecond, Scale::Linear),
            series: vec![series("first", None), series("second", Some(0))],
            guides: vec![],
            kind,
        }
    }

    fn marks(html: &str) -> usize {
        html.matches("data-r=").count()
    }

    #[test]
    fn every_point_has_a_mark_and_a_row() {
        for kind in [Kind::Lines, Kind::Scatter, Kind::Steps] {
            let html = chart(&sample(kind, &[1e8, 2e8, 3e8])).into_string();
            assert_eq!(marks(&html), 6, "{kind:?}");
            assert_eq!(html.matches("<tr>").count(), 7, "{kind:?}");
            assert!(html.contains("data-r=\"5\""));
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out_but_stays_in_the_table() {
        let html = chart(&sample(Kind::Lines, &[1e8, f64::NAN, f64::INFINITY, 1e9])).into_string();
        assert_eq!(marks(&html), 4);
        assert_eq!(html.matches("<tr>").count(), 9);
        assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
    }

    #[test]
    fn a_chart_without_points_says_so() {
        for kind in [Kind::Lines, Kind::Scatter, Kind::Steps, Kind::Bars] {
            let html = chart(&sample(kind, &[])).into_string();
            assert!(html.contains("No data"), "{kind:?}");
            assert_eq!(marks(&html), 0);
        }
    }

    #[test]
    fn bars_are_grouped_by_category_and_show_their_numbers() {
        let mut bars = sample(Kind::Bars, &[]);
        bars.x.scale = Scale::Category(vec!["memory".into(), "device".into()]);
        for (index, series) in bars.series.iter_mut().enumerate() {
            let point = |x, y| Point { x, y, ..Point::default() };
            series.points = vec![point(0.0, 4e10), point(1.0, 1e9 * (index + 1) as f64)];
        }
        bars.series[0].points[1].note = Some("binding".into());
        bars.series[1].points.push(Point { x: 9.0, y: 1.0, ..Point::default() });
        let html = chart(&bars).into_string();
        assert_eq!(marks(&html), 4);
        assert!(html.contains("954 MiB/s (1,000 MB/s)</text>"), "{html}");
        assert!(html.contains(">device<tspan class=\"note\" dx=\"10\">binding</tspan>"), "{html}");
    }

    #[test]
    fn guides_are_drawn_with_their_labels_and_widen_the_axis() {
        let mut guided = sample(Kind::Lines, &[1e8, 2e8]);
        let guide = |label: &str, at, direction| Guide { label: label.into(), at, direction };
        guided.guides = vec![
            guide("PAP", 4e9, Direction::Horizontal),
            guide("PAP/2", 2e9, Direction::Horizontal),
            guide("half-power point", 65536.0, Direction::Vertical),
            guide("nowhere", f64::NAN, Direction::Vertical),
        ];
        let html = chart(&guided).into_string();
        assert_eq!(html.matches("class=\"guide\" d=").count(), 3);
        assert!(html.contains(">PAP/2</text>") && !html.contains("nowhere"));
        assert!(html.contains(">4,000</text>"));
    }

    #[test]
    fn guide_labels_stand_outside_the_drawing_and_apart() {
        let mut guided = sample(Kind::Lines, &[1e8, 9e10]);
        let guide = |label: &str, at, direction| Guide { label: label.into(), at, direction };
        guided.guides = vec![
            guide("PAP", 4e8, Direction::Horizontal),
            guide("PAP/2", 2e8, Direction::Horizontal),
            guide("half power", 8192.0, Direction::Vertical),
        ];
        let frame = Frame::new(&guided).unwrap();
        let bare = Frame::new(&sample(Kind::Lines, &[1e8, 9e10])).unwrap();
        assert!(frame.right < bare.right - 30.0 && frame.top > bare.top);
        let level = level_guides(&guided, &frame);
        let [(low, low_text, half), (high, high_text, _)] = level[..] else { panic!("two") };
        assert_eq!(half.label, "PAP/2");
        assert!(low - high < 1.0, "the lines nearly coincide");
        assert!(low_text - high_text >= GUIDE_LINE && low_text <= HEIGHT - BOTTOM);
    }

    #[test]
    fn dense_series_have_dots_and_error_bars_only_where_both_ends_are_known() {
        let mut dense = sample(Kind::Lines, &[1e8; 20]);
        let points = dense.series[0].points.clone();
        dense.series[0].points = points.iter().cycle().take(DENSE + 1).cloned().collect();
        dense.series[1].points.iter_mut().for_each(|point| point.high = None);
        let html = chart(&dense).into_string();
        assert_eq!(html.matches("class=\"mark dot\"").count(), DENSE + 1);
        assert_eq!(html.matches("class=\"error\"").count(), 1);
    }

    #[test]
    fn every_cell_is_drawn_with_its_row_and_a_larger_share_is_stronger() {
        // In the first half, all requests take 12 us. In the second half, every fourth request
        // takes 1.2 ms.
        let is_slow = |index: u64| index > 4_800 && index.is_multiple_of(4);
        let request = |index| (index, if is_slow(index) { 1_200_000 } else { 12_000 });
        let requests = (0..9_600).map(request).collect();
        let map = crate::heat_map::latency_heat_map("h", "H", [("read".into(), requests)]).unwrap();
        let cells = map.series[0].points.len();
        let html = chart(&map).into_string();
        assert_eq!(html.matches("class=\"mark cell\"").count(), cells);
        assert_eq!(html.matches("<tr>").count(), cells + 1);
        assert!(html.contains("fill-opacity=\"1.00\"") && html.contains("fill-opacity=\"0.57\""));
        assert!(
            html.contains("data-csv=\"latency__low_ns\"") && html.contains("share_of_requests")
        );
    }
}
