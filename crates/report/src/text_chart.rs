//! Draws a [`Chart`] as text, for a terminal of any width. The page draws the same chart as SVG.
//!
//! Each series has its own symbol, so charts need no colour. Dots connect the symbols of a series.
//! This module uses no library, because libraries for terminal charts distinguish series by colour
//! only.

use crate::model::{Chart, Direction, Kind};
use crate::scale::Projection;
use crate::wrap::wrapped;

/// Number of rows of the drawing area.
const ROWS: usize = 11;
/// Maximum number of series that are drawn, because each series needs its own symbol.
const SERIES_MAX: usize = 5;
/// Width of the labels of the vertical axis, including the axis line (characters).
const LABEL_COLUMNS: usize = 11;
/// Minimum width of the drawing area (characters).
const COLUMNS_MIN: usize = 16;

/// Character set of a text chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// Symbols and lines of Unicode.
    Unicode,
    /// Only ASCII characters.
    Ascii,
}

impl Charset {
    fn symbols(self) -> [char; SERIES_MAX] {
        match self {
            Charset::Unicode => ['●', '▲', '■', '◆', '○'],
            Charset::Ascii => ['o', 'x', '#', '+', '@'],
        }
    }

    /// Returns the characters for the vertical axis, its ticks, the corner of the axes, the
    /// horizontal axis, a guide, and the line between points, in this order.
    fn lines(self) -> [char; 6] {
        match self {
            Charset::Unicode => ['│', '┤', '└', '─', '╌', '·'],
            Charset::Ascii => ['|', '+', '+', '-', '-', '.'],
        }
    }
}

/// Draws a chart as lines of text: title, drawing, legend. The lines have at most `width`
/// characters if `width` is at least 28. Returns None for bars and heat maps, and if nothing can be
/// drawn.
pub fn text_chart(chart: &Chart, width: usize, charset: Charset) -> Option<Vec<String>> {
    if matches!(chart.kind, Kind::Bars | Kind::HeatMap) {
        return None;
    }
    let columns = width.saturating_sub(LABEL_COLUMNS + 1).max(COLUMNS_MIN);
    let series = &chart.series[..chart.series.len().min(SERIES_MAX)];
    let points = || series.iter().flat_map(|one| &one.points);
    let guides = || chart.guides.iter().filter(|g| g.direction == Direction::Horizontal);
    let x_of = Projection::new(
        &chart.x.scale,
        chart.x.unit,
        points().map(|point| point.x),
        (0.0, (columns - 1) as f64),
    )?;
    let heights = points().map(|point| point.y).chain(guides().map(|guide| guide.at));
    let y_of = Projection::new(&chart.y.scale, chart.y.unit, heights, ((ROWS - 1) as f64, 0.0))?;
    let place = |projection: &Projection, value| projection.position(value).map(|at| at.round());
    let mut canvas = Canvas::new(columns);
    let [vertical, tick_mark, corner, horizontal, guide_line, dot] = charset.lines();
    for guide in guides() {
        if let Some(row) = place(&y_of, guide.at) {
            canvas.guide(row as usize, guide_line, &guide.label);
        }
    }
    let placed: Vec<Vec<(usize, usize)>> = series
        .iter()
        .map(|one| {
            let point = |x, y| Some((place(&x_of, x)? as usize, place(&y_of, y)? as usize));
            one.points.iter().filter_map(|p| point(p.x, p.y)).collect()
        })
        .collect();
    for pair in placed.iter().flat_map(|points| points.windows(2)) {
        let (from, to) = (pair[0], pair[1]);
        match chart.kind {
            Kind::Lines => canvas.join(from, to, dot),
            Kind::Steps => {
                let corner = (to.0, from.1);
                canvas.join(from, corner, dot);
                canvas.set(corner.0, corner.1, dot);
                canvas.join(corner, to, dot);
            }
            Kind::Scatter | Kind::Bars | Kind::HeatMap => {}
        }
    }
    for (points, symbol) in placed.iter().zip(charset.symbols()) {
        points.iter().for_each(|&(x, y)| canvas.set(x, y, symbol));
    }
    let unit = match y_of.suffix() {
        "" => String::new(),
        suffix => format!(" ({suffix})"),
    };
    let mut lines = wrapped(width, "", &format!("{}{unit}", chart.title));
    let labels = row_labels(&y_of);
    for (row, cells) in canvas.cells.iter().enumerate() {
        let (label, mark) = match &labels[row] {
            Some(label) => (label.as_str(), tick_mark),
            None => ("", vertical),
        };
        let cells: String = cells.iter().collect();
        let line = format!("{label:>10} {mark}{cells}");
        lines.push(line.trim_end().to_owned());
    }
    lines.push(format!("{:>11}{corner}{}", "", horizontal.to_string().repeat(columns)));
    lines.push(format!("{:>12}{}", "", column_labels(&x_of, columns)).trim_end().to_owned());
    lines.extend(legend(chart, charset, width));
    Some(lines)
}

/// Drawing area, as rows of characters.
struct Canvas {
    cells: Vec<Vec<char>>,
}

impl Canvas {
    fn new(columns: usize) -> Canvas {
        Canvas { cells: vec![vec![' '; columns]; ROWS] }
    }

    fn set(&mut self, x: usize, y: usize, symbol: char) {
        if let Some(cell) = self.cells.get_mut(y).and_then(|row| row.get_mut(x)) {
            *cell = symbol;
        }
    }

    /// Draws a horizontal guide with its label at the right end.
    fn guide(&mut self, y: usize, line: char, label: &str) {
        let Some(row) = self.cells.get_mut(y) else { return };
        row.fill(line);
        let label: Vec<char> = format!(" {label}").chars().collect();
        if let Some(start) = row.len().checked_sub(label.len()) {
            row[start..].copy_from_slice(&label);
        }
    }

    /// Draws dots between two points. The symbols of the points are drawn later, so that no dot
    /// hides a symbol.
    fn join(&mut self, (x0, y0): (usize, usize), (x1, y1): (usize, usize), dot: char) {
        let steps = x0.abs_diff(x1).max(y0.abs_diff(y1));
        for step in 1..steps {
            let along = |from: usize, to: usize| {
                let share = step as f64 / steps as f64;
                (from as f64 + (to as f64 - from as f64) * share).round() as usize
            };
            self.set(along(x0, x1), along(y0, y1), dot);
        }
    }
}

/// Returns the label of each row. None for a row without a labelled tick.
fn row_labels(projection: &Projection) -> Vec<Option<String>> {
    let mut labels = vec![None; ROWS];
    for tick in projection.ticks() {
        let row = tick.position.round() as usize;
        if let (Some(label), Some(place)) = (tick.label, labels.get_mut(row)) {
            *place = Some(label);
        }
    }
    labels
}

/// Formats the line of labels below the horizontal axis. Labels that do not fit are left out.
fn column_labels(projection: &Projection, columns: usize) -> String {
    let mut line = String::new();
    for tick in projection.ticks() {
        let Some(label) = tick.label else { continue };
        let (at, length) = (tick.position.round() as usize, label.chars().count());
        let start = at.saturating_sub(length / 2);
        let used = line.chars().count();
        let is_free = line.is_empty() || start > used;
        if is_free && start + length <= columns {
            line.push_str(&" ".repeat(start.saturating_sub(used)));
            line.push_str(&label);
        }
    }
    line
}

/// Formats the legend, which contains the symbol and the name of each series. Each line contains as
/// many series as fit.
fn legend(chart: &Chart, charset: Charset, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let named = chart.series.iter().zip(charset.symbols());
    let mut entries: Vec<String> =
        named.map(|(series, symbol)| format!("{symbol} {}", series.name)).collect();
    if chart.series.len() > SERIES_MAX {
        entries.push(format!("(the page shows {} more series)", chart.series.len() - SERIES_MAX));
    }
    for entry in entries {
        let fits = |line: &&mut String| line.chars().count() + 3 + entry.chars().count() <= width;
        match lines.last_mut().filter(fits) {
            Some(line) => {
                line.push_str("   ");
                line.push_str(&entry);
            }
            None => lines.extend(wrapped(width, "  ", &entry)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Axis, Guide, Point, Scale, Series};
    use crate::units::Unit;

    fn chart() -> Chart {
        let series = |name: &str, rates: &[f64]| Series {
            name: name.to_owned(),
            points: rates
                .iter()
                .enumerate()
                .map(|(index, rate)| Point {
                    x: f64::from(4096_u32 << (2 * index)),
                    y: rate * 1048576.0,
                    ..Point::default()
                })
                .collect(),
            dashed: false,
            hue: None,
        };
        let axis = |unit, scale| Axis { label: "x".to_owned(), unit, scale };
        Chart {
            id: "x".to_owned(),
            title: "Throughput".to_owned(),
            summary: String::new(),
            x: axis(Unit::Bytes, Scale::Log2),
            y: axis(Unit::BytesPerSecond, Scale::Linear),
            series: vec![
                series("depth 1", &[50.0, 150.0, 350.0, 480.0]),
                series("depth 8", &[300.0, 500.0, 500.0, 500.0]),
            ],
            guides: vec![Guide {
                label: "PAP/2".to_owned(),
                at: 250.0 * 1048576.0,
                direction: Direction::Horizontal,
            }],
            kind: Kind::Lines,
        }
    }

    #[test]
    fn a_chart_fits_any_width_and_names_its_series() {
        for width in [40, 60, 80, 96] {
            for charset in [Charset::Unicode, Charset::Ascii] {
                let lines = text_chart(&chart(), width, charset).unwrap();
                let text = lines.join("\n");
                assert!(lines.iter().all(|line| line.chars().count() <= width), "{text}");
                for part in ["Throughput", "PAP/2", "depth 1", "depth 8", "4 KiB"] {
                    assert!(text.contains(part), "{part} at {width}:\n{text}");
                }
                assert_eq!(text.is_ascii(), charset == Charset::Ascii, "{text}");
            }
        }
    }

    #[test]
    fn the_highest_point_is_above_the_lowest() {
        let lines = text_chart(&chart(), 60, Charset::Ascii).unwrap();
        // The title is skipped, because its letters could be taken for symbols.
        let lines = &lines[1..];
        let row_of = |symbol| lines.iter().position(|line| line.contains(symbol)).unwrap();
        // The series `x` reaches 500 MiB/s, the series `o` only 480 MiB/s.
        assert!(row_of('x') <= row_of('o'), "{}", lines.join("\n"));
        let last = lines.iter().rposition(|line| line.contains('|') && line.contains('o'));
        assert!(last.unwrap() > row_of('x') + 5, "{}", lines.join("\n"));
    }

    #[test]
    fn a_value_of_a_distribution_holds_until_the_next_point() {
        let mut steps = chart();
        steps.series.truncate(1);
        steps.series[0].points.drain(1..3);
        let drawn = |kind| {
            let chart = Chart { kind, ..steps.clone() };
            text_chart(&chart, 60, Charset::Ascii).unwrap()[1..].join("\n")
        };
        let columns_with_dots = |text: &str| {
            let rows = text.lines().map(|row| row.match_indices('.').map(|(at, _)| at).collect());
            rows.collect::<Vec<Vec<usize>>>()
        };
        // The horizontal part of the step is the only row with more than one dot. In all remaining
        // rows with dots, the only dot is in the column where the horizontal part ends.
        let rows = columns_with_dots(&drawn(Kind::Steps));
        let long: Vec<_> = rows.iter().filter(|row| row.len() > 1).collect();
        assert_eq!(long.len(), 1, "{}", drawn(Kind::Steps));
        let end = long[0].last().unwrap();
        assert!(rows.iter().filter(|row| row.len() == 1).all(|row| row[0] == *end));
        assert_eq!(drawn(Kind::Scatter).matches('.').count(), 0);
    }

    #[test]
    fn what_cannot_be_drawn_is_no_chart() {
        let mut empty = chart();
        empty.series.clear();
        empty.guides.clear();
        assert_eq!(text_chart(&empty, 80, Charset::Unicode), None);
        for kind in [Kind::Bars, Kind::HeatMap] {
            let chart = Chart { kind, ..chart() };
            assert_eq!(text_chart(&chart, 80, Charset::Unicode), None);
        }
    }
}
