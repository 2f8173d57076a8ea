//! Simulates the figures, tables and claims of the papers, and compares the results with the
//! published numbers.
//!
//! A point is a built-in system with the set-up that the paper states. Each figure is a table of
//! points ([`figure`]). For each claim, a function computes a value from points ([`claim`]). The
//! [`probe::Lab`] simulates each point only once. No parameter is fitted during a reproduction.

pub mod published;
pub mod probe;
pub mod figure;
pub mod riedel97;
pub mod chung2000;
mod chung2000_figures;
pub mod claim;
mod riedel97_claims;
mod chung2000_claims;
pub mod left_out;
pub mod fitted;
pub mod leave_out;
pub mod document;
pub mod layout;
pub mod score_table;

use claim::{Checks, Claims};
use figure::{ChartResult, Figure, Score};
use probe::Lab;
use published::Paper;

/// A figure of a paper with its simulated charts.
#[derive(Clone, Debug)]
pub struct FigureResult {
    /// The definition of the figure.
    pub figure: Figure,
    /// The simulated charts of the figure.
    pub charts: Vec<ChartResult>,
    /// The errors of the simulated values, relative to the published values. None if no values were
    /// published.
    pub score: Option<Score>,
    /// The errors of the naive bound, relative to the published values. None if there is no bound.
    pub naive: Option<Score>,
}

/// The results of simulating the figures and claims of a paper.
#[derive(Clone, Debug)]
pub struct Reproduction {
    /// The paper whose figures and claims were simulated.
    pub paper: Paper,
    /// The simulated figures and tables of the paper.
    pub figures: Vec<FigureResult>,
    /// The results for the claims in the text. None if only figures were requested.
    pub claims: Option<Claims>,
}

/// Returns the figures and tables of a paper.
pub fn figures(paper: Paper) -> Vec<Figure> {
    match paper {
        Paper::Riedel97 => riedel97::figures(),
        Paper::Chung2000 => {
            let mut all = chung2000_figures::figures();
            all.extend(chung2000::tables());
            all
        }
    }
}

/// Simulates the given figures of a paper. If `with_claims` is set, also checks the claims of the
/// paper.
pub fn reproduce(paper: Paper, figures: Vec<Figure>, with_claims: bool) -> Reproduction {
    let lab = Lab::default();
    let probes: Vec<probe::Probe> = figures.iter().flat_map(Figure::probes).collect();
    lab.learn(&probes);
    let known = match paper {
        Paper::Riedel97 => riedel97::EXPLANATIONS,
        Paper::Chung2000 => chung2000::EXPLANATIONS,
    };
    let measured = figures.into_iter().map(|figure| measure(&lab, figure, known)).collect();
    let published = || figure::published_lab(&self::figures(paper));
    let claims = with_claims.then(|| claim::score(&lab, &published(), paper, checks(paper)));
    Reproduction { paper, figures: measured, claims }
}

/// Returns the claims of a paper that state a rate, a time or a cost (see [`claim::stated`]).
pub fn stated(paper: Paper) -> Vec<claim::Stated> {
    claim::stated(&figure::published_lab(&figures(paper)), paper, checks(paper))
}

/// Simulates the value of a claim on the built-in systems. The value has the unit of the claim.
/// None if there is no function that computes this claim.
pub fn value_of(id: &str) -> Option<claim::Answer> {
    check(id).map(|check| check(&Lab::default()))
}

/// Returns the names of the built-in systems on which a claim is simulated. Empty if there is no
/// function that computes this claim.
pub fn systems_of(id: &str) -> Vec<&'static str> {
    check(id).map_or_else(Vec::new, probe::systems_of)
}

fn check(id: &str) -> Option<fn(&Lab) -> claim::Answer> {
    let mut all = checks(Paper::of_claim(id)).computed.iter().copied().flatten();
    all.find(|(name, _)| *name == id).map(|(_, check)| *check)
}

fn checks(paper: Paper) -> Checks {
    match paper {
        Paper::Riedel97 => riedel97_claims::CHECKS,
        Paper::Chung2000 => chung2000_claims::CHECKS,
    }
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

/// Returns the score of all charts of a figure together. If `naive` is set, this is the score of
/// the naive bound.
fn together(charts: &[ChartResult], naive: bool) -> Option<Score> {
    Score::of(&charts.iter().flat_map(|chart| chart.errors(naive)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::published::Role;

    #[test]
    fn every_claim_to_be_checked_has_exactly_one_check() {
        for paper in Paper::ALL {
            let claims = published::claims(paper);
            let asked: Vec<&str> = claims
                .iter()
                .filter(|claim| claim.role == Role::Check)
                .map(|claim| claim.id.as_str())
                .collect();
            let mut computed: Vec<&str> =
                checks(paper).computed.iter().copied().flatten().map(|check| check.0).collect();
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

    #[test]
    fn the_figures_of_the_second_paper_are_simulated() {
        let keys: Vec<String> = figures(Paper::Chung2000).into_iter().map(|one| one.key).collect();
        for key in 2..=38 {
            assert!(keys.contains(&key.to_string()), "Figure {key}");
        }
        let mut random = figures(Paper::Chung2000);
        random.retain(|figure| figure.key == "11");
        let random = reproduce(Paper::Chung2000, random, false);
        let reads = &random.figures[0].charts[0].points[0];
        let rate = |at: usize| reads[at].as_ref().and_then(|point| point.simulated).unwrap();
        assert!(rate(5) > 1.2 * rate(0), "no gain at depth 32: {} and {}", rate(5), rate(0));
        assert!(random.figures[0].score.is_none(), "this figure has no published values");
    }

    #[test]
    fn every_published_point_counts_in_the_score_of_its_figure() {
        let mut all = figures(Paper::Riedel97);
        all.retain(|figure| ["2", "5"].contains(&&*figure.key));
        let paper = reproduce(Paper::Riedel97, all, false);
        let points = paper.figures.iter().map(|one| one.score.as_ref().unwrap().points);
        // Each series has eight points. Figure 2 has six series: three of throughput and three of
        // CPU time. Figure 5 has eleven series: six of throughput and five of CPU time.
        assert_eq!(points.collect::<Vec<_>>(), [48, 88]);
    }

    #[test]
    fn a_claim_that_the_papers_own_figure_contradicts_is_listed_and_not_counted() {
        let paper = reproduce(Paper::Riedel97, Vec::new(), true);
        let claims = paper.claims.unwrap();
        // The caption of Figure 4 states that the CPU utilisation is below 5% from 64 KB on. In the
        // figure itself, it is already below 5% at 32 KB.
        let load = claims.contradicted.iter().find(|one| one.scored.claim.id == "R074").unwrap();
        assert_eq!(load.own, 32.0);
        assert!(claims.scored.iter().all(|one| one.claim.id != "R074"));
    }
}
