//! A figure or table of a paper, regenerated, and how far it is from what was published.
//!
//! A figure has charts, a chart rows and columns, a cell a point: simulated, published where that
//! is known, and the naive bound. Scores are of relative errors, or of the points of a percentage
//! where shares are compared.

use analysis::quantile::quantile;

use crate::reproduce::probe::{Lab, Measured, Probe};

/// A residual from this share on is listed by name.
pub const LISTED: f64 = 0.10;

/// What is read off a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// Throughput (MB/s).
    Throughput,
    /// Requests per second.
    Requests,
    /// CPU time charged to the program (ms/MB).
    CpuPerMib,
    /// CPU time charged to the program (ms/request).
    CpuPerRequest,
    /// Processor time charged to the program, of one processor (percent).
    CpuShare,
    /// CPU time of the whole machine (ms/MB).
    SoakedPerMib,
    /// Median response time (ms).
    Latency,
    /// Share of phases in the activity of the bus (percent).
    Phases(&'static [&'static str]),
    /// Utilisation of the bus (percent).
    BusShare,
}

impl Metric {
    /// The unit, as the papers write it.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::Throughput => "MB/s",
            Metric::Requests => "IO/s",
            Metric::CpuPerMib | Metric::SoakedPerMib => "ms/MB",
            Metric::CpuPerRequest => "ms/request",
            Metric::Latency => "ms",
            Metric::CpuShare | Metric::Phases(_) | Metric::BusShare => "percent",
        }
    }

    /// Whether errors are points of a percentage rather than shares.
    pub fn in_points(self) -> bool {
        matches!(self, Metric::Phases(_) | Metric::BusShare)
    }

    /// Its value.
    pub fn of(self, measured: &Measured) -> Option<f64> {
        match self {
            Metric::Throughput => Some(measured.mib_per_s),
            Metric::Requests => Some(measured.requests_per_s),
            Metric::CpuPerMib => Some(measured.cpu_ms_per_mib()),
            Metric::CpuPerRequest => Some(measured.cpu_lower_ns / 1e6),
            Metric::CpuShare => Some(measured.cpu_percent()),
            Metric::SoakedPerMib => Some(measured.soaked_ms_per_mib()),
            Metric::Latency => Some(measured.median_ns / 1e6),
            Metric::Phases(names) => measured.phase_percent(names),
            Metric::BusShare => measured.bus_percent(),
        }
    }
}

/// A cell, before it is measured.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Its point.
    pub probe: Probe,
    /// What is read off it.
    pub metric: Metric,
    /// What the paper has.
    pub published: Option<f64>,
}

impl Cell {
    /// A cell that the data do not have.
    pub fn new(probe: Probe, metric: Metric) -> Cell {
        Cell { probe, metric, published: None }
    }
}

/// A column of a chart.
#[derive(Clone, Debug)]
pub struct Column {
    /// What it is called.
    pub name: String,
    /// One cell for each row.
    pub cells: Vec<Option<Cell>>,
}

/// A chart: rows, most often of request sizes, and a column for each series.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// What the rows are.
    pub rows_are: &'static str,
    /// The rows.
    pub rows: Vec<String>,
    /// The series.
    pub columns: Vec<Column>,
}

/// A figure or table.
#[derive(Clone, Debug)]
pub struct Figure {
    /// As on the command line: `2`, `t3`.
    pub key: String,
    /// What it shows.
    pub title: String,
    /// All of its charts.
    pub charts: Vec<Chart>,
    /// A published table that describes the set-up, as it is: an input, never scored.
    pub given: Option<&'static str>,
}

impl Figure {
    /// `Figure 2` or `Table 3`.
    pub fn name(&self) -> String {
        match self.key.strip_prefix('t') {
            Some(number) => format!("Table {number}"),
            None if self.key.starts_with(|c: char| c.is_ascii_digit()) => {
                format!("Figure {}", self.key)
            }
            None => format!("List {}", self.key),
        }
    }

    /// All points.
    pub fn probes(&self) -> Vec<Probe> {
        let columns = self.charts.iter().flat_map(|chart| &chart.columns);
        columns.flat_map(|column| column.cells.iter().flatten()).map(|c| c.probe.clone()).collect()
    }
}

/// A cell, measured.
#[derive(Clone, Debug)]
pub struct Point {
    /// What the simulator says; `None` where it cannot be asked.
    pub simulated: Option<f64>,
    /// What was published.
    pub published: Option<f64>,
    /// The naive bound.
    pub naive: Option<f64>,
    /// Relative error, or points of a percentage as a share.
    pub error: Option<f64>,
    /// Why there is no value.
    pub why: Option<String>,
}

/// A chart, measured.
#[derive(Clone, Debug)]
pub struct ChartResult {
    /// The chart.
    pub chart: Chart,
    /// For each column, for each row.
    pub points: Vec<Vec<Option<Point>>>,
    /// How far from the published points; `None` where there are none.
    pub score: Option<Score>,
    /// The same of the naive bound.
    pub naive: Option<Score>,
    /// What is off by more than a tenth: column, row, error, and the explanation.
    pub residuals: Vec<Residual>,
}

/// A point that is off.
#[derive(Clone, Debug)]
pub struct Residual {
    /// Series and row.
    pub name: String,
    /// The relative error.
    pub error: f64,
    /// Why, where that is known.
    pub explanation: Option<&'static str>,
}

/// How far a set of points is off, all as shares.
#[derive(Clone, Debug)]
pub struct Score {
    /// Points compared.
    pub points: usize,
    /// Mean absolute error.
    pub mean: f64,
    /// Median absolute error.
    pub median: f64,
    /// 90th percentile of the absolute errors.
    pub p90: f64,
    /// The worst error, with its sign.
    pub worst: f64,
    /// Which point that is.
    pub worst_name: String,
    /// Demerit: root of the mean square error.
    pub demerit: f64,
}

impl Score {
    /// The score of named errors; `None` without any.
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

/// Explains residuals: figure, part of the series' name, rows from and to, and why.
pub type Explanation = (&'static str, &'static str, f64, f64, &'static str);

/// Measures a chart of a figure.
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
    /// The errors of all published points, by series and row; or those of the naive bound.
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

fn measure_cell(lab: &Lab, cell: &Cell) -> Point {
    let measured = lab.measure(&cell.probe);
    let simulated = measured.as_ref().ok().and_then(|measured| cell.metric.of(measured));
    let error = simulated.zip(cell.published).map(|(simulated, published)| {
        if cell.metric.in_points() {
            (simulated - published) / 100.0
        } else {
            simulated / published - 1.0
        }
    });
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
        assert!(score.demerit > score.mean, "the square weighs large errors more");
        assert!(Score::of(&[]).is_none());
    }

    #[test]
    fn an_explanation_holds_for_its_series_and_rows_only() {
        let known: [Explanation; 1] = [("3", "Write", 2.0, 8.0, "why")];
        assert_eq!(explain(&known, "3", "Fast Write", "4"), Some("why"));
        assert_eq!(explain(&known, "3", "Fast Write", "16"), None);
        assert_eq!(explain(&known, "3", "Fast Read", "4"), None);
        assert_eq!(explain(&known, "6", "Fast Write", "4"), None);
    }
}
