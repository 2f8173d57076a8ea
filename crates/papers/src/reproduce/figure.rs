//! Figures and tables of a paper: the simulated values, the published values, and the errors.
//!
//! A figure has charts, and a chart has rows and columns. Errors are relative to the published
//! value. Errors of shares of bus time are differences in percentage points.

use std::collections::HashMap;

use analysis::quantile::quantile;

use crate::reproduce::probe::{Lab, MIB, Measured, Probe};

/// Values with an error above this are listed as residuals (0.10 means 10%).
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
    /// The price divided by the request rate. The field is the price (USD).
    PricePerRequest(f64),
    /// The request rate divided by the price. The field is the price (USD).
    RequestsPerPrice(f64),
    /// The median response time (ms).
    Latency,
    /// The share of the bus's busy time that these phases of a request take (percent).
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

    /// Returns true if errors are differences in percentage points. Otherwise, errors are relative.
    pub fn in_points(self) -> bool {
        matches!(self, Metric::Phases(_) | Metric::BusShare)
    }

    /// Fills in the fields of `point` that follow from a published value and are still unknown. For
    /// example, the request rate follows from the throughput.
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

    /// Returns the value of this quantity in a result. None if the system does not have the
    /// quantity. For example, a system may have no bus.
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

/// Returns a lab that answers with the published values of these figures. It simulates nothing.
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

/// A cell of a chart: what to simulate, and the published value.
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

/// A column of a chart. Each column shows one series.
#[derive(Clone, Debug)]
pub struct Column {
    /// The name of the series.
    pub name: String,
    /// One cell for each row. None if the series has no value in that row.
    pub cells: Vec<Option<Cell>>,
}

/// A chart with a column for each series and a row for each request size or other label.
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
    /// The text of a published table (CSV) that is an input of the simulator and is not scored.
    /// None for other figures.
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

/// A value of a chart: the simulated value, the published value, and the naive bound.
#[derive(Clone, Debug)]
pub struct Point {
    /// The simulated value. None if it could not be simulated.
    pub simulated: Option<f64>,
    /// The published value. None if it is unknown.
    pub published: Option<f64>,
    /// A simple upper bound of the throughput, see [`Probe::naive_mib_per_s`]. None if there is no
    /// such bound.
    pub naive: Option<f64>,
    /// The relative error of the simulated value. For shares of bus time, the difference in
    /// percentage points divided by 100. None if the simulated or the published value is missing.
    pub error: Option<f64>,
    /// Why the value could not be simulated. None if it was simulated.
    pub why: Option<String>,
}

/// A simulated chart.
#[derive(Clone, Debug)]
pub struct ChartResult {
    /// The definition of the chart, with the published values.
    pub chart: Chart,
    /// For each column, one value per row. None for an empty cell.
    pub points: Vec<Vec<Option<Point>>>,
    /// The errors of the simulated values, relative to the published values. None if no values were
    /// published.
    pub score: Option<Score>,
    /// The errors of the naive bound, relative to the published values. None if there is no bound.
    pub naive: Option<Score>,
    /// The values whose error is above [`LISTED`].
    pub residuals: Vec<Residual>,
}

/// A value of a chart whose error is above [`LISTED`].
#[derive(Clone, Debug)]
pub struct Residual {
    /// The series and the row of the value, separated by a comma.
    pub name: String,
    /// The error of the value (0.1 means 10%).
    pub error: f64,
    /// The reason for the error. None if it is unknown.
    pub explanation: Option<&'static str>,
}

/// Statistics of the errors of a set of values. An error of 0.1 means 10%.
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
    /// Computes the statistics of errors with the names of their values. None if there are no
    /// errors.
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

/// The reason for large errors in a part of a figure. The fields are the key of the figure, a part
/// of the series' name, the first row, the last row, and the reason.
pub type Explanation = (&'static str, &'static str, f64, f64, &'static str);

/// Simulates a chart of the figure `key`, and computes the errors of the chart.
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
    /// Returns the name and the error of each published value. If `of_naive` is true, the errors
    /// are those of the naive bound instead of the simulated value.
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

/// Simulates a cell and returns the error of the value (0.1 means 10%). None if the simulated or
/// the published value is missing.
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
