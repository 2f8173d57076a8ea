//! A figure or table of a paper, its simulated values, and the errors of these values relative to
//! the published values.
//!
//! A figure has charts, and a chart has rows and columns. Each cell has a simulated value, a
//! published value if one is known, and a naive bound if there is one. Scores use relative errors,
//! or differences in percentage points for shares of bus time.

use std::collections::HashMap;

use analysis::quantile::quantile;

use crate::reproduce::probe::{Lab, MIB, Measured, Probe};

/// The error above which a value is listed as a residual, as a share.
pub const LISTED: f64 = 0.10;

/// The quantity that a chart shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// The throughput (MB/s).
    Throughput,
    /// The request rate (requests/s).
    Requests,
    /// The CPU time charged to the program (ms/MB).
    CpuPerMib,
    /// The CPU time charged to the program (ms/request).
    CpuPerRequest,
    /// The CPU time charged to the program, as a share of one processor (percent).
    CpuShare,
    /// The CPU time of the whole machine (ms/MB).
    SoakedPerMib,
    /// The utilisation of all processors together (percent).
    BusyShare,
    /// The given price (USD) divided by the request rate.
    PricePerRequest(f64),
    /// The request rate divided by the given price (USD).
    RequestsPerPrice(f64),
    /// The median response time (ms).
    Latency,
    /// The share of the given phases in the busy time of the bus (percent).
    Phases(&'static [&'static str]),
    /// The utilisation of the bus (percent).
    BusShare,
}

impl Metric {
    /// Returns the unit, as the papers write it.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::Throughput => "MB/s",
            Metric::Requests => "IO/s",
            Metric::CpuPerMib | Metric::SoakedPerMib => "ms/MB",
            Metric::CpuPerRequest => "ms/request",
            Metric::Latency => "ms",
            Metric::PricePerRequest(_) => "USD",
            Metric::RequestsPerPrice(_) => "1/USD",
            Metric::CpuShare | Metric::BusyShare | Metric::Phases(_) | Metric::BusShare => {
                "percent"
            }
        }
    }

    /// Checks whether errors are differences in percentage points instead of relative errors.
    pub fn in_points(self) -> bool {
        matches!(self, Metric::Phases(_) | Metric::BusShare)
    }

    /// Stores a published value, and values that follow from it, in those fields of `point` that
    /// are still unknown.
    fn put(self, value: f64, point: &mut Measured) {
        let mib = point.request_bytes / MIB;
        let set = |place: &mut f64, value: f64| {
            if !place.is_finite() {
                *place = value;
            }
        };
        match self {
            Metric::Throughput => {
                set(&mut point.mib_per_s, value);
                set(&mut point.requests_per_s, value / mib);
            }
            Metric::Requests => {
                set(&mut point.mib_per_s, value * mib);
                set(&mut point.requests_per_s, value);
            }
            Metric::CpuPerMib => set(&mut point.cpu_lower_ns, value * 1e6 * mib),
            Metric::CpuPerRequest => set(&mut point.cpu_lower_ns, value * 1e6),
            Metric::SoakedPerMib => set(&mut point.cpu_upper_ns, value * 1e6 * mib),
            Metric::Latency => set(&mut point.median_ns, value * 1e6),
            Metric::PricePerRequest(price) => Metric::Requests.put(price / value, point),
            Metric::RequestsPerPrice(price) => Metric::Requests.put(price * value, point),
            Metric::CpuShare | Metric::BusyShare | Metric::Phases(_) | Metric::BusShare => {}
        }
    }

    /// Returns the value of the quantity in a simulation. None if the system does not have the
    /// quantity.
    pub fn of(self, measured: &Measured) -> Option<f64> {
        match self {
            Metric::Throughput => Some(measured.mib_per_s),
            Metric::Requests => Some(measured.requests_per_s),
            Metric::CpuPerMib => Some(measured.cpu_ms_per_mib()),
            Metric::CpuPerRequest => Some(measured.cpu_lower_ns / 1e6),
            Metric::CpuShare => Some(measured.cpu_percent()),
            Metric::SoakedPerMib => Some(measured.soaked_ms_per_mib()),
            Metric::BusyShare => Some(measured.busy_percent()),
            Metric::PricePerRequest(price) => Some(price / measured.requests_per_s),
            Metric::RequestsPerPrice(price) => Some(measured.requests_per_s / price),
            Metric::Latency => Some(measured.median_ns / 1e6),
            Metric::Phases(names) => measured.phase_percent(names),
            Metric::BusShare => measured.bus_percent(),
        }
    }
}

/// Returns a lab whose results are the published values of figures instead of simulated values.
pub fn published_lab(figures: &[Figure]) -> Lab {
    let mut points: HashMap<Probe, Measured> = HashMap::new();
    for figure in figures {
        let charts = figure.charts.iter();
        let cells = charts.flat_map(|chart| chart.columns.iter().flat_map(|column| &column.cells));
        for cell in cells.flatten() {
            let Some(value) = cell.published else { continue };
            let point = points.entry(cell.probe.clone());
            cell.metric.put(value, point.or_insert_with(|| Measured::unknown(&cell.probe)));
        }
    }
    Lab::of_published(points)
}

/// A cell of a chart, before it is simulated.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The system and the workload that are simulated.
    pub probe: Probe,
    /// The quantity that the chart shows.
    pub metric: Metric,
    /// The published value. None if it is unknown.
    pub published: Option<f64>,
}

impl Cell {
    /// Returns a cell without a published value.
    pub fn new(probe: Probe, metric: Metric) -> Cell {
        Cell { probe, metric, published: None }
    }
}

/// A column of a chart, which is one series.
#[derive(Clone, Debug)]
pub struct Column {
    /// The name of the series.
    pub name: String,
    /// A cell for each row. None if the series has no value in the row.
    pub cells: Vec<Option<Cell>>,
}

/// A chart: a column for each series, and a row for each request size or other label.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What the chart shows.
    pub title: String,
    /// The quantity that differs from row to row, such as the request size.
    pub rows_are: &'static str,
    /// The labels of the rows.
    pub rows: Vec<String>,
    /// The series of the chart, one for each column.
    pub columns: Vec<Column>,
}

/// A figure or table.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The name of the figure on the command line, such as `2` or `t3`.
    pub key: String,
    /// What the figure shows.
    pub title: String,
    /// The charts of the figure.
    pub charts: Vec<Chart>,
    /// The file of a published table that describes the set-up. The table is an input and is not
    /// scored. None if there is no such table.
    pub given: Option<&'static str>,
}

/// Returns the name of the figure with this key, such as `Figure 2` or `Table 3`.
pub fn name_of(key: &str) -> String {
    match key.strip_prefix('t') {
        Some(number) => format!("Table {number}"),
        None if key.starts_with(|c: char| c.is_ascii_digit()) => format!("Figure {key}"),
        None => format!("List {key}"),
    }
}

impl Figure {
    /// Returns the name of the figure, such as `Figure 2` or `Table 3`.
    pub fn name(&self) -> String {
        name_of(&self.key)
    }

    /// Checks whether any value of the figure was published.
    pub fn has_published(&self) -> bool {
        let columns = self.charts.iter().flat_map(|chart| &chart.columns);
        columns
            .flat_map(|column| column.cells.iter().flatten())
            .any(|cell| cell.published.is_some())
    }

    /// Returns the probes of all cells of all charts.
    pub fn probes(&self) -> Vec<Probe> {
        let columns = self.charts.iter().flat_map(|chart| &chart.columns);
        columns.flat_map(|column| column.cells.iter().flatten()).map(|c| c.probe.clone()).collect()
    }
}

/// A value of a chart: as published, as simulated, and its naive bound.
#[derive(Clone, Debug)]
pub struct Point {
    /// The simulated value. None if it could not be simulated.
    pub simulated: Option<f64>,
    /// The published value. None if it is unknown.
    pub published: Option<f64>,
    /// The naive bound for the value. None if there is no such bound.
    pub naive: Option<f64>,
    /// The relative error. For shares of bus time, this is the difference in percentage points,
    /// divided by 100.
    pub error: Option<f64>,
    /// Why the value could not be simulated. None if it was simulated.
    pub why: Option<String>,
}

/// A simulated chart.
#[derive(Clone, Debug)]
pub struct ChartResult {
    /// The definition of the chart, with the published values.
    pub chart: Chart,
    /// The values by column and row.
    pub points: Vec<Vec<Option<Point>>>,
    /// The errors of the simulated values, relative to the published values. None if no values were
    /// published.
    pub score: Option<Score>,
    /// The errors of the naive bound, relative to the published values. None if there is no bound.
    pub naive: Option<Score>,
    /// The values whose error is above [`LISTED`].
    pub residuals: Vec<Residual>,
}

/// A value of a chart with a large error.
#[derive(Clone, Debug)]
pub struct Residual {
    /// The names of the series and of the row.
    pub name: String,
    /// The error of the value, as a share.
    pub error: f64,
    /// The reason for the error. None if it is unknown.
    pub explanation: Option<&'static str>,
}

/// The errors of a set of values. An error of 0.1 means 10%.
#[derive(Clone, Debug)]
pub struct Score {
    /// The number of values that were compared.
    pub points: usize,
    /// The mean absolute error.
    pub mean: f64,
    /// The median absolute error.
    pub median: f64,
    /// The 90th percentile of the absolute errors.
    pub p90: f64,
    /// The error with the largest absolute value.
    pub worst: f64,
    /// The series and row of the value with the worst error.
    pub worst_name: String,
    /// The root mean square error.
    pub demerit: f64,
}

impl Score {
    /// Computes the score of named errors. None if there are no errors.
    pub fn of(errors: &[(String, f64)]) -> Option<Score> {
        let (name, worst) = errors.iter().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))?;
        let mut sizes: Vec<f64> = errors.iter().map(|(_, error)| error.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let count = sizes.len() as f64;
        Some(Score {
            points: sizes.len(),
            mean: sizes.iter().sum::<f64>() / count,
            median: quantile(&sizes, 0.5)?,
            p90: quantile(&sizes, 0.9)?,
            worst: *worst,
            worst_name: name.clone(),
            demerit: (sizes.iter().map(|size| size * size).sum::<f64>() / count).sqrt(),
        })
    }
}

/// An explanation of residuals: the figure, a part of the name of the series, the first row, the
/// last row, and the reason.
pub type Explanation = (&'static str, &'static str, f64, f64, &'static str);

/// Simulates a chart of a figure, and computes its errors.
pub fn measure(lab: &Lab, key: &str, chart: Chart, known: &[Explanation]) -> ChartResult {
    let point = |cell: &Cell| measure_cell(lab, cell);
    let points: Vec<Vec<Option<Point>>> = chart
        .columns
        .iter()
        .map(|column| column.cells.iter().map(|cell| cell.as_ref().map(point)).collect())
        .collect();
    let mut result = ChartResult { chart, points, score: None, naive: None, residuals: Vec::new() };
    result.score = Score::of(&result.errors(false));
    result.naive = Score::of(&result.errors(true));
    let listed = |(name, error): (String, f64)| {
        let (series, row) = name.rsplit_once(", ").unwrap_or((&name, ""));
        let explanation = explain(known, key, series, row);
        (error.abs() > LISTED).then(|| Residual { name: name.clone(), error, explanation })
    };
    result.residuals = result.errors(false).into_iter().filter_map(listed).collect();
    result
}

impl ChartResult {
    /// Returns the errors at all published values, with the names of the values. With `of_naive`,
    /// returns the errors of the naive bound instead of the simulated values.
    pub fn errors(&self, of_naive: bool) -> Vec<(String, f64)> {
        let mut errors = Vec::new();
        for (column, points) in self.chart.columns.iter().zip(&self.points) {
            for (row, point) in self.chart.rows.iter().zip(points) {
                let Some(point) = point else { continue };
                let error = if of_naive {
                    point.naive.zip(point.published).map(|(bound, is)| bound / is - 1.0)
                } else {
                    point.error
                };
                let name = if column.name.is_empty() {
                    row.clone()
                } else {
                    format!("{}, {row}", column.name)
                };
                errors.extend(error.map(|error| (name, error)));
            }
        }
        errors
    }
}

fn explain(known: &[Explanation], key: &str, series: &str, row: &str) -> Option<&'static str> {
    let row: Option<f64> = row.split_whitespace().next().and_then(|word| word.parse().ok());
    let within = |from: f64, to: f64| row.is_none_or(|row| (from..=to).contains(&row));
    let found = known.iter().find(|(figure, part, from, to, _)| {
        *figure == key && series.contains(part) && within(*from, *to)
    });
    found.map(|explanation| explanation.4)
}

/// Returns the error of the simulated value relative to the published value, as a share. None if
/// either value is missing.
pub fn error_of(lab: &Lab, cell: &Cell) -> Option<f64> {
    let measured = lab.measure(&cell.probe).ok()?;
    error_from(cell, cell.metric.of(&measured)?)
}

fn error_from(cell: &Cell, simulated: f64) -> Option<f64> {
    let published = cell.published?;
    let in_points = cell.metric.in_points();
    let relative = || simulated / published - 1.0;
    Some(if in_points { (simulated - published) / 100.0 } else { relative() })
}

fn measure_cell(lab: &Lab, cell: &Cell) -> Point {
    let measured = lab.measure(&cell.probe);
    let simulated = measured.as_ref().ok().and_then(|measured| cell.metric.of(measured));
    let error = simulated.and_then(|simulated| error_from(cell, simulated));
    let naive = (cell.metric == Metric::Throughput).then(|| cell.probe.naive_mib_per_s()).flatten();
    Point { simulated, published: cell.published, naive, error, why: measured.err() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(errors: &[f64]) -> Vec<(String, f64)> {
        errors.iter().enumerate().map(|(i, error)| (i.to_string(), *error)).collect()
    }

    #[test]
    fn a_score_names_the_worst_point_and_keeps_its_sign() {
        let score = Score::of(&named(&[0.01, -0.05, 0.03])).unwrap();
        assert_eq!((score.worst, score.worst_name.as_str()), (-0.05, "1"));
        assert!((score.mean - 0.03).abs() < 1e-12 && (score.median - 0.03).abs() < 1e-12);
        assert!(score.demerit > score.mean, "the root mean square gives large errors more weight");
        assert!(Score::of(&[]).is_none());
    }

    #[test]
    fn an_explanation_applies_to_its_series_and_rows_only() {
        let known: [Explanation; 1] = [("3", "Write", 2.0, 8.0, "why")];
        assert_eq!(explain(&known, "3", "Fast Write", "4"), Some("why"));
        assert_eq!(explain(&known, "3", "Fast Write", "16"), None);
        assert_eq!(explain(&known, "3", "Fast Read", "4"), None);
        assert_eq!(explain(&known, "6", "Fast Write", "4"), None);
    }
}
