//! Formats the results of a benchmark as a table for the terminal. Each row contains a measured
//! figure and the limit that the figure must meet.

use super::statistics::{Estimate, estimate};

/// Range of the ratio halfpower/fio in which both tools count as equal.
const AGREEMENT: (f64, f64) = (0.93, 1.07);

/// The limit that a figure must meet to pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// There is no limit.
    None,
    /// The median must not be above this value.
    AtMost(f64),
    /// The median must not be below this value.
    AtLeast(f64),
    /// The median should reach this value. A lower median is reported, but is not a failure.
    Goal(f64),
    /// The median must differ from 1 by at most this value.
    Within(f64),
    /// The whole 95% interval must be in the range `AGREEMENT` or in the range `spread`.
    Agreement {
        /// Range of the ratios that were measured between identical runs of the same tool.
        spread: (f64, f64),
    },
}

impl Bar {
    fn is_met(self, figure: &Estimate) -> bool {
        match self {
            Self::None => true,
            Self::AtMost(limit) => figure.median <= limit,
            Self::AtLeast(limit) | Self::Goal(limit) => figure.median >= limit,
            Self::Within(limit) => (figure.median - 1.0).abs() <= limit,
            Self::Agreement { spread } => [AGREEMENT, spread]
                .iter()
                .any(|(low, high)| *low <= figure.low && figure.high <= *high),
        }
    }

    fn text(self) -> String {
        match self {
            Self::None => String::new(),
            Self::AtMost(limit) => format!("<= {limit}"),
            Self::AtLeast(limit) => format!(">= {limit}"),
            Self::Goal(limit) => format!("goal {limit}"),
            Self::Within(limit) => format!("1 +- {limit}"),
            Self::Agreement { spread: (low, high) } => {
                let (from, to) = AGREEMENT;
                format!("within {from}-{to}, or {low:.2}-{high:.2} (spread of identical runs)")
            }
        }
    }
}

/// One row of the table: a benchmark case, a measured figure, and the limit of this figure.
pub struct Row {
    case: &'static str,
    figure: String,
    value: Estimate,
    bar: Bar,
}

impl Row {
    /// Returns a row for a figure and its limit.
    pub fn new(case: &'static str, figure: &str, value: Estimate, bar: Bar) -> Self {
        Self { case, figure: figure.to_string(), value, bar }
    }

    /// Returns a row for a rate without a limit. `scale` converts the rates `per_s` into the unit
    /// that the text of `figure` contains.
    pub fn rate(case: &'static str, figure: &str, per_s: &[f64], scale: f64) -> Self {
        let scaled: Vec<f64> = per_s.iter().map(|rate| rate * scale).collect();
        Self::new(case, figure, estimate(&scaled), Bar::None)
    }

    /// Returns a row for ratios of paired runs. The row passes if the median of the ratios is at
    /// least `limit`.
    pub fn ratio(case: &'static str, figure: &str, ratios: &[f64], limit: f64) -> Self {
        Self::new(case, figure, estimate(ratios), Bar::AtLeast(limit))
    }

    /// Returns whether the limit is met. A missed goal counts as passed.
    pub fn is_passed(&self) -> bool {
        matches!(self.bar, Bar::Goal(_)) || self.bar.is_met(&self.value)
    }

    fn cells(&self) -> [String; 6] {
        let number = |value: f64| {
            if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") }
        };
        let Estimate { median, low, high } = self.value;
        let verdict = match (self.bar, self.bar.is_met(&self.value)) {
            (Bar::None, _) => "",
            (_, true) => "met",
            (_, false) => "not met",
        };
        [
            self.case.to_string(),
            self.figure.clone(),
            number(median),
            format!("{} to {}", number(low), number(high)),
            self.bar.text(),
            verdict.to_string(),
        ]
    }
}

/// Formats the rows as a table with a header and aligned columns.
pub fn render(rows: &[Row]) -> String {
    let titles = ["case", "figure", "median", "95% interval", "limit", "verdict"].map(String::from);
    let lines: Vec<[String; 6]> = [titles].into_iter().chain(rows.iter().map(Row::cells)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for line in &lines {
        let padded = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(low: f64, median: f64, high: f64, bar: Bar) -> bool {
        Row::new("case", "figure", Estimate { median, low, high }, bar).is_passed()
    }

    #[test]
    fn the_median_is_compared_with_the_limit() {
        assert!(passed(1.0, 2.0, 3.0, Bar::AtMost(2.0)));
        assert!(!passed(1.0, 2.0, 3.0, Bar::AtMost(1.9)));
        assert!(passed(1.0, 2.0, 3.0, Bar::AtLeast(2.0)));
        assert!(!passed(1.0, 2.0, 3.0, Bar::AtLeast(2.1)));
        assert!(passed(0.5, 0.95, 1.2, Bar::Within(0.1)));
        assert!(!passed(0.8, 0.85, 0.9, Bar::Within(0.1)));
        assert!(!passed(1.1, 1.15, 1.2, Bar::Within(0.1)));
    }

    #[test]
    fn a_missed_goal_is_reported_and_is_not_a_failure() {
        let row = Row::new("case", "figure", estimate(&[0.9]), Bar::Goal(1.0));
        assert!(row.is_passed());
        assert!(render(&[row]).contains("not met"));
    }

    #[test]
    fn agreement_needs_the_whole_interval() {
        let narrow = Bar::Agreement { spread: (0.99, 1.01) };
        assert!(passed(0.94, 1.0, 1.06, narrow));
        assert!(!passed(0.92, 1.0, 1.06, narrow));
        assert!(passed(0.92, 1.0, 1.06, Bar::Agreement { spread: (0.8, 1.25) }));
        assert!(!passed(0.7, 0.9, 1.0, Bar::Agreement { spread: (0.8, 1.25) }));
    }

    #[test]
    fn the_table_is_aligned_and_shows_each_limit() {
        let rows = [
            Row::ratio("seq", "rate, halfpower/fio default", &[2.5; 3], 2.0),
            Row::rate("holes", "halfpower kIOPS", &[1_900_000.0; 3], 1e-3),
        ];
        let text = render(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].ends_with(">= 2   met"), "{text}");
        assert_eq!(lines[0].find("median"), lines[2].find("1900"));
    }
}
