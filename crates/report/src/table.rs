//! Renders tables, and the data table of a chart.
//!
//! A number cell shows a readable number and has the exact value in the attribute `data-v`. Sorting
//! and CSV download read this attribute, so the page needs no second copy of the data. A column
//! heading has the CSV name of its column in the attribute `data-csv`.

use maud::{Markup, html};

use crate::model::{Cell, Chart, Column, Kind, Scale, Series, Table};
use crate::units::{MISSING, Unit};

/// Maximum length of a text cell that is not wrapped (characters).
const PROSE: usize = 24;

/// Renders a table with its caption and a download button. A large table scrolls within the page.
pub(crate) fn table(table: &Table) -> Markup {
    html! {
        figure.table id=(table.id) {
            figcaption {
                p { (table.caption) }
                (csv_button(&table.id))
            }
            (scroller(&table.caption, &grid(&table.columns, &table.rows, true)))
        }
    }
}

/// Renders the collapsible data table of a chart. It has a row for each data point, in drawing
/// order. Each mark of the drawing contains the index of its row.
pub(crate) fn chart_data(chart: &Chart) -> Markup {
    let (columns, rows) = chart_rows(chart);
    html! {
        details.data {
            summary { "Data" span.unseen { " of " (chart.title) } }
            (scroller(&format!("Data of {}", chart.title), &grid(&columns, &rows, false)))
        }
    }
}

/// Renders a button that saves the numbers of a figure as CSV. The button is hidden until the
/// script runs.
pub(crate) fn csv_button(id: &str) -> Markup {
    html! {
        button.quiet.csv type="button" data-name=(format!("{id}.csv"))
            aria-label=(format!("Download {id} as CSV")) { "CSV" }
    }
}

/// Renders a scrollable frame around a table. Its ARIA role is `group` and not a landmark, because
/// a landmark for each table would make the other landmarks hard to find.
pub(crate) fn scroller(label: &str, grid: &Markup) -> Markup {
    html! { div.scroller role="group" tabindex="0" aria-label=(label) { (grid) } }
}

fn grid(columns: &[Column], rows: &[Vec<Cell>], sortable: bool) -> Markup {
    html! {
        table.sortable[sortable] {
            thead { tr { (heads(columns)) } }
            tbody {
                @for row in rows {
                    tr {
                        @for (index, column) in columns.iter().enumerate() {
                            (cell(column, row.get(index).unwrap_or(&Cell::Missing)))
                        }
                    }
                }
            }
        }
    }
}

/// Renders the column headings.
pub(crate) fn heads(columns: &[Column]) -> Markup {
    html! {
        @for column in columns {
            th.n[column.unit.is_some()] scope="col" data-csv=(csv_name(column)) { (column.label) }
        }
    }
}

pub(crate) fn cell(column: &Column, cell: &Cell) -> Markup {
    match cell {
        Cell::Text(text) => html! { td.prose[text.chars().count() > PROSE] { (text) } },
        Cell::Number(value) if value.is_finite() => {
            let text = column.unit.map_or_else(|| value.to_string(), |unit| unit.format(*value));
            html! { td.n data-v=(value) { (text) } }
        }
        Cell::Number(_) | Cell::Missing => html! { td.n[column.unit.is_some()] { (MISSING) } },
    }
}

/// Returns the CSV name of a column: its label in lower case and the base unit, such as
/// `throughput_bytes_per_s`.
fn csv_name(column: &Column) -> String {
    let letters = |c: char| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let mut name: String = column.label.chars().map(letters).collect();
    let suffix = column.unit.map_or("", |unit| unit.csv_suffix());
    if !suffix.is_empty() {
        name.push('_');
        name.push_str(suffix);
    }
    name
}

/// Returns the columns and rows of a chart's data table. The columns are the series, x and y.
/// Columns for the interval and the note are added if any point has them. For a heat map, y is the
/// share of requests, and the interval is the latency range.
fn chart_rows(chart: &Chart) -> (Vec<Column>, Vec<Vec<Cell>>) {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let intervals = points().any(|point| point.low.is_some() || point.high.is_some());
    let notes = points().any(|point| point.note.is_some());
    let column = |label: &str, unit| Column { label: label.to_string(), unit };
    let x_unit = match chart.x.scale {
        Scale::Category(_) => None,
        _ => Some(chart.x.unit),
    };
    let mut columns = vec![column("Series", None), column(&chart.x.label, x_unit)];
    if chart.kind == Kind::HeatMap {
        columns.push(column("Share of requests", Some(Unit::Share)));
        columns.push(column(&format!("{}, low", chart.y.label), Some(chart.y.unit)));
        columns.push(column(&format!("{}, high", chart.y.label), Some(chart.y.unit)));
    } else {
        columns.push(column(&chart.y.label, Some(chart.y.unit)));
    }
    if intervals && chart.kind != Kind::HeatMap {
        columns.push(column("Low", Some(chart.y.unit)));
        columns.push(column("High", Some(chart.y.unit)));
    }
    if notes {
        columns.push(column("Note", None));
    }
    let rows = chart.series.iter().flat_map(|series| point_rows(chart, series, intervals, notes));
    (columns, rows.collect())
}

fn point_rows<'a>(
    chart: &'a Chart,
    series: &'a Series,
    intervals: bool,
    notes: bool,
) -> impl Iterator<Item = Vec<Cell>> + 'a {
    series.points.iter().map(move |point| {
        let x = match &chart.x.scale {
            Scale::Category(names) => category(names, point.x).into(),
            _ => Cell::Number(point.x),
        };
        let mut row = vec![Cell::Text(series.name.clone()), x, Cell::Number(point.y)];
        if intervals {
            row.extend([point.low.into(), point.high.into()]);
        }
        if notes {
            row.push(Cell::Text(point.note.clone().unwrap_or_default()));
        }
        row
    })
}

/// Returns the name at index `x`, or a dash if there is no such name.
fn category(names: &[String], x: f64) -> &str {
    let known = x >= 0.0 && x.fract() == 0.0;
    known.then(|| names.get(x as usize)).flatten().map_or(MISSING, String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cells: Vec<Cell>) -> String {
        let columns = vec![
            Column { label: "Caching".into(), unit: None },
            Column { label: "CPU per request".into(), unit: Some(Unit::Nanoseconds) },
        ];
        let rows = vec![cells];
        table(&Table { id: "t".into(), caption: "All".into(), columns, rows }).into_string()
    }

    #[test]
    fn a_number_is_shown_for_people_and_kept_exact_for_csv() {
        let html = sample(vec!["direct".into(), Cell::Number(1518.25)]);
        assert!(html.contains("data-v=\"1518.25\">1.52 us<"), "{html}");
        assert!(html.contains("data-csv=\"cpu_per_request_ns\""), "{html}");
    }

    #[test]
    fn a_short_row_and_a_number_that_is_none_show_dashes() {
        let html = sample(vec![Cell::Number(f64::NAN)]);
        assert_eq!(html.matches(&format!(">{MISSING}</td>")).count(), 2, "{html}");
        assert!(!html.contains("NaN"), "{html}");
    }

    #[test]
    fn a_category_outside_its_names_is_a_dash() {
        let names = ["device".to_string()];
        assert_eq!(category(&names, 0.0), "device");
        for x in [1.0, -1.0, 0.5, f64::NAN] {
            assert_eq!(category(&names, x), MISSING);
        }
    }
}
