//! Reproduction of the papers in the simulator: their figures, tables and claims beside the
//! published numbers.
//!
//! Each figure is a table of points ([`figure`]), each claim a function of points ([`claim`]). The
//! [`probe::Lab`] simulates every point once, on all cores. Nothing is fitted here: a point is a
//! built-in system with the set-up that the paper states.

pub mod published;
pub mod probe;
pub mod figure;
pub mod riedel97;
pub mod chung2000;
pub mod claim;
mod riedel97_claims;
mod chung2000_claims;
pub mod fitted;
pub mod leave_out;
pub mod document;
pub mod layout;

use claim::Claims;
use figure::{ChartResult, Figure, Score};
use probe::Lab;
use published::Paper;

/// A simulated figure.
#[derive(Clone, Debug)]
pub struct FigureResult {
    /// Its definition.
    pub figure: Figure,
    /// Its simulated charts.
    pub charts: Vec<ChartResult>,
    /// Score of all published points of throughput and time; points of CPU time count only if there
    /// are no others.
    pub score: Option<Score>,
    /// The same for the naive bound.
    pub naive: Option<Score>,
}

/// A reproduced paper.
#[derive(Clone, Debug)]
pub struct Reproduction {
    /// Which paper.
    pub paper: Paper,
    /// Its figures and tables.
    pub figures: Vec<FigureResult>,
    /// Its claims; `None` if only figures were requested.
    pub claims: Option<Claims>,
}

/// The figures and tables of a paper.
pub fn figures(paper: Paper) -> Vec<Figure> {
    match paper {
        Paper::Riedel97 => riedel97::figures(),
        Paper::Chung2000 => chung2000::figures(),
    }
}

/// Simulates figures of a paper, and its claims on request.
pub fn reproduce(paper: Paper, figures: Vec<Figure>, with_claims: bool) -> Reproduction {
    let lab = Lab::default();
    let probes: Vec<probe::Probe> = figures.iter().flat_map(Figure::probes).collect();
    lab.learn(&probes);
    let known = match paper {
        Paper::Riedel97 => riedel97::EXPLANATIONS,
        Paper::Chung2000 => chung2000::EXPLANATIONS,
    };
    let measured = figures.into_iter().map(|figure| measure(&lab, figure, known)).collect();
    let (checks, reasons) = match paper {
        Paper::Riedel97 => (riedel97_claims::CHECKS, riedel97_claims::REASONS),
        Paper::Chung2000 => (chung2000_claims::CHECKS, chung2000_claims::REASONS),
    };
    let claims = with_claims.then(|| claim::score(&lab, paper, checks, reasons));
    Reproduction { paper, figures: measured, claims }
}

fn measure(lab: &Lab, figure: Figure, known: &[figure::Explanation]) -> FigureResult {
    let charts: Vec<ChartResult> = figure
        .charts
        .iter()
        .map(|chart| figure::measure(lab, &figure.key, chart.clone(), known))
        .collect();
    let (score, naive) = (together(&charts, false), together(&charts, true));
    FigureResult { figure, charts, score, naive }
}

/// The score over all charts of a figure.
fn together(charts: &[ChartResult], naive: bool) -> Option<Score> {
    let is_cpu = |chart: &ChartResult| chart.chart.title.contains("(ms/MB)");
    let any_other = charts.iter().any(|chart| !is_cpu(chart) && chart.score.is_some());
    let counted = charts.iter().filter(|chart| !any_other || !is_cpu(chart));
    Score::of(&counted.flat_map(|chart| chart.errors(naive)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::published::Role;

    #[test]
    fn every_claim_to_be_checked_has_exactly_one_check() {
        for (paper, checks) in [
            (Paper::Riedel97, riedel97_claims::CHECKS),
            (Paper::Chung2000, chung2000_claims::CHECKS),
        ] {
            let claims = published::claims(paper);
            let asked: Vec<&str> = claims
                .iter()
                .filter(|claim| claim.role == Role::Check)
                .map(|claim| claim.id.as_str())
                .collect();
            let mut computed: Vec<&str> =
                checks.iter().flat_map(|section| section.iter().map(|check| check.0)).collect();
            computed.sort_unstable();
            assert_eq!(computed, asked, "{}", paper.name());
        }
    }

    #[test]
    fn figures_have_a_cell_for_each_row_of_each_column() {
        for figure in figures(Paper::Riedel97).iter().chain(&figures(Paper::Chung2000)) {
            for chart in &figure.charts {
                for column in &chart.columns {
                    assert_eq!(
                        column.cells.len(),
                        chart.rows.len(),
                        "{} {}",
                        figure.key,
                        chart.title
                    );
                }
            }
        }
    }
}
