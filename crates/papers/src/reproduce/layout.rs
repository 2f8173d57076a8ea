//! Formats the reproduction of a paper as text. Each chart becomes a table, usually with request
//! sizes as rows and series as columns.
//!
//! A cell shows the simulated value. If a published value is known, the cell also shows the
//! published value and the error.

use crate::reproduce::claim::{Claims, Contradicted, Count, Scored};
use crate::reproduce::figure::{ChartResult, Point, Score};
use crate::reproduce::fitted;
use crate::reproduce::published::{self, Claim};
use crate::reproduce::{FigureResult, Reproduction};

/// The minimum width of a column with published values (characters).
const PAIR: usize = 22;
/// The minimum width of a column without published values (characters).
const SINGLE: usize = 14;

/// Formats all figures, then the scores, then the claims.
pub fn text(reproduction: &Reproduction) -> String {
    let mut lines = vec![reproduction.paper.title().to_owned()];
    for figure in &reproduction.figures {
        lines.extend(figure_lines(figure));
    }
    if reproduction.figures.len() > 1 {
        lines.extend(summary(&reproduction.figures));
        lines.push(parameter_line(reproduction));
    }
    if let Some(claims) = &reproduction.claims {
        lines.extend(claim_lines(claims, false));
    }
    lines.join("\n")
}

/// Formats all claims, including those that pass.
pub fn claims_text(claims: &Claims) -> String {
    claim_lines(claims, true).join("\n").trim_start().to_owned()
}

fn figure_lines(figure: &FigureResult) -> Vec<String> {
    let mut lines =
        vec![String::new(), format!("{}: {}", figure.figure.name(), figure.figure.title)];
    for chart in &figure.charts {
        lines.extend(chart_lines(chart));
    }
    lines.extend(figure.figure.given.into_iter().flat_map(given_lines));
    lines
}

/// Formats a published table in aligned columns.
fn given_lines(file: &'static str) -> Vec<String> {
    let table = published::cells_of(file);
    let columns = table.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = table.iter().filter_map(|row| row.get(column));
        cells.map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("  {}", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    table.iter().map(line).collect()
}

fn chart_lines(result: &ChartResult) -> Vec<String> {
    let chart = &result.chart;
    let has_published =
        |points: &[Option<Point>]| points.iter().flatten().any(|point| point.published.is_some());
    let first = chart.rows.iter().map(String::len).max().unwrap_or(0).max(chart.rows_are.len());
    let widths: Vec<usize> = chart
        .columns
        .iter()
        .zip(&result.points)
        .map(|(column, points)| {
            let least = if has_published(points) { PAIR } else { SINGLE };
            least.max(column.name.len() + 2)
        })
        .collect();
    let mut head = format!("{:first$}", chart.rows_are);
    for (column, width) in chart.columns.iter().zip(&widths) {
        head.push_str(&format!("{:>width$}", column.name));
    }
    let mut lines = vec![format!("  {}", chart.title), format!("  {}", head.trim_end())];
    for (at, row) in chart.rows.iter().enumerate() {
        let mut line = format!("{row:first$}");
        for (points, width) in result.points.iter().zip(&widths) {
            line.push_str(&format!("{:>width$}", cell(points[at].as_ref())));
        }
        lines.push(format!("  {}", line.trim_end()));
    }
    if let Some(score) = &result.score {
        lines.push(format!("  error of the simulation: {}", score_text(score)));
    }
    if let Some(naive) = &result.naive {
        lines.push(format!("  error of the naive bound: {}", score_text(naive)));
    }
    for residual in &result.residuals {
        let why = residual.explanation.unwrap_or("unexplained");
        lines.push(format!("  large error: {} {}: {why}", residual.name, percent(residual.error)));
    }
    lines.extend(missing(result));
    lines
}

/// Returns the reasons why values could not be simulated, without duplicates.
fn missing(result: &ChartResult) -> Vec<String> {
    let reasons = result.points.iter().flatten().flatten().filter_map(|point| point.why.clone());
    let mut reasons: Vec<String> = reasons.collect();
    reasons.sort();
    reasons.dedup();
    reasons.into_iter().map(|why| format!("  not simulated: {why}")).collect()
}

fn cell(point: Option<&Point>) -> String {
    let Some(point) = point else { return String::new() };
    let simulated = point.simulated.map_or("-".to_owned(), number);
    match (point.published, point.error) {
        (Some(published), Some(error)) => {
            format!("{simulated} {} {}", number(published), percent(error))
        }
        (Some(published), None) => format!("{simulated} {}", number(published)),
        (None, _) => simulated,
    }
}

fn score_text(score: &Score) -> String {
    let share = |value: f64| format!("{:.1}%", value * 100.0);
    format!(
        "mean {}, median {}, p90 {}, worst {} ({}), demerit {}, {} points",
        share(score.mean),
        share(score.median),
        share(score.p90),
        percent(score.worst),
        score.worst_name,
        share(score.demerit),
        score.points
    )
}

fn summary(figures: &[FigureResult]) -> Vec<String> {
    let mut lines = vec![String::new(), "Scores of the figures with published points".to_owned()];
    lines.push(format!(
        "  {:10} {:>6} {:>7} {:>7} {:>7} {:>8} {:>8} {:>12}  worst point",
        "figure", "points", "mean", "median", "p90", "worst", "demerit", "naive mean"
    ));
    for figure in figures {
        let Some(score) = &figure.score else { continue };
        let share = |value: f64| format!("{:.1}%", value * 100.0);
        let naive = figure.naive.as_ref().map_or("-".to_owned(), |naive| share(naive.mean));
        lines.push(format!(
            "  {:10} {:>6} {:>7} {:>7} {:>7} {:>8} {:>8} {:>12}  {}",
            figure.figure.name(),
            score.points,
            share(score.mean),
            share(score.median),
            share(score.p90),
            percent(score.worst),
            share(score.demerit),
            naive,
            score.worst_name
        ));
    }
    lines
}

/// Formats the number of fitted parameters, and the number of values that they explain.
fn parameter_line(reproduction: &Reproduction) -> String {
    let fitted = fitted::parameters(reproduction.figures.iter().map(|result| &result.figure)).len();
    let points = |figure: &FigureResult| -> usize {
        figure.charts.iter().filter_map(|chart| chart.score.as_ref()).map(|s| s.points).sum()
    };
    let figures: usize = reproduction.figures.iter().map(points).sum();
    let claims = reproduction.claims.as_ref().map_or(0, |claims| claims.scored.len());
    format!(
        "  {fitted} parameters in the system files of this paper are fitted; {figures} points and \
         {claims} claims are compared with simulations"
    )
}

fn claim_lines(claims: &Claims, all: bool) -> Vec<String> {
    let (measured, count) = (claims.measured(), claims.all());
    let with_contradicted = claims.measured_with_contradicted();
    let mut lines = vec![
        String::new(),
        format!(
            "Claims in the text: {} checked ({} met, {} not met), {} contradicted by the paper's \
             own numbers, {} inputs, {} not simulated, {} out of scope; a group of claims that \
             contradict each other counts as one checked claim",
            count.of,
            count.passed,
            count.of - count.passed,
            claims.contradicted.len() + claims.contradict_inputs.len(),
            claims.inputs,
            claims.not_simulated.len(),
            claims.out.len()
        ),
        format!("  measured or derived claims: {} met within 10%", count_text(measured)),
        format!("  including claims that the paper contradicts: {}", count_text(with_contradicted)),
    ];
    let shown = |scored: &&Scored| all || (!scored.pass && scored.counted_as.is_none());
    lines.extend(claims.scored.iter().filter(shown).map(claim_line));
    if all {
        lines.extend(claims.contradicted.iter().map(contradicted_line));
        let listed = |word: &'static str| {
            move |claim: &Claim| format!("  {} {word}  {}: {}", claim.id, claim.text, claim.why)
        };
        lines.extend(claims.contradict_inputs.iter().map(listed("contradicted")));
        lines.extend(claims.not_simulated.iter().map(listed("not simulated")));
        lines.extend(claims.out.iter().map(listed("out of scope")));
    }
    lines
}

/// Formats a count, such as "73 of 96 (76.0%)".
pub fn count_text(count: Count) -> String {
    format!("{} of {} ({:.1}%)", count.passed, count.of, count.percent())
}

fn contradicted_line(one: &Contradicted) -> String {
    let claim = &one.scored.claim;
    format!(
        "  {} contradicted  {}: {}; {} give {}; simulated {}",
        claim.id,
        claim.text,
        claim.published(),
        one.source,
        number(one.own),
        simulated(&one.scored)
    )
}

fn simulated(scored: &Scored) -> String {
    scored.answer.as_ref().map_or("-".to_owned(), |value| number(*value))
}

fn claim_line(scored: &Scored) -> String {
    let claim = &scored.claim;
    let verdict = if scored.pass { "pass" } else { "FAIL" };
    let (published, simulated) = (claim.published(), simulated(scored));
    let line =
        format!("  {} {verdict}  {}: {published}; simulated {simulated}", claim.id, claim.text);
    match (&scored.counted_as, &scored.reason) {
        (Some(other), _) => {
            format!("{line}; not counted, because {other} of the same group is counted")
        }
        (None, Some(reason)) => format!("{line}; {reason}"),
        (None, None) => line,
    }
}

/// Formats a share as a percentage with a sign. For example, 0.1 becomes `+10.0%`.
pub fn percent(share: f64) -> String {
    format!("{:+.1}%", share * 100.0)
}

/// Formats a number. Larger numbers have fewer decimals: `0.123`, `12.34`, `123.4`, `1234`.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_shows_the_published_value_and_the_error_if_known() {
        let point = |published, error| Point {
            simulated: Some(9.0),
            published,
            naive: None,
            error,
            why: None,
        };
        assert_eq!(cell(Some(&point(Some(10.0), Some(-0.1)))), "9.00 10.00 -10.0%");
        assert_eq!(cell(Some(&point(None, None))), "9.00");
        assert_eq!(cell(None), "");
    }
}
