//! The JSON document of `reproduce --json`: every value, score and claim.
//!
//! Its schema is published in `docs/schema/reproduce.schema.json`; the texts of this file appear
//! there.

use lab::json::Program;
use schemars::JsonSchema;
use serde::Serialize;

use crate::reproduce::claim::{Claims, Contradicted, Scored};
use crate::reproduce::figure::{ChartResult, Column, Point, Residual, Score};
use crate::reproduce::published::{self, Claim};
use crate::reproduce::{FigureResult, Reproduction};

/// A paper reproduced in the simulator.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReproduceDocument {
    /// The program and its version.
    pub halfpower: Program,
    /// The name of the paper.
    pub paper: String,
    /// Authors, title and year.
    pub title: String,
    /// Figures and tables of the paper.
    pub figures: Vec<FigureDocument>,
    /// Results for the claims in the text; absent if only one figure was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claims: Option<ClaimsDocument>,
}

/// A figure or table.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FigureDocument {
    /// Name of the figure on the command line, such as 2 or t3.
    pub key: String,
    /// Name of the figure in the paper.
    pub name: String,
    /// What the figure shows.
    pub title: String,
    /// How far the simulated values are from the published ones; absent if no values were
    /// published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<ScoreDocument>,
    /// How far the naive bound is from the published values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub naive_score: Option<ScoreDocument>,
    /// Charts of the figure.
    pub charts: Vec<ChartDocument>,
    /// A published table that describes the set-up, with the names of its columns first. It is an
    /// input and not scored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<Vec<String>>,
}

/// A chart of a figure.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChartDocument {
    /// What the chart shows, with the unit.
    pub title: String,
    /// The quantity that differs from row to row, such as the request size.
    pub rows_are: String,
    /// The labels of the rows.
    pub rows: Vec<String>,
    /// The series of the chart, one for each column.
    pub columns: Vec<ColumnDocument>,
    /// How far the simulated values of the chart are from the published ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<ScoreDocument>,
    /// How far the naive bound is from the published values of the chart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub naive_score: Option<ScoreDocument>,
    /// Values of the chart that are off by more than a tenth.
    pub residuals: Vec<ResidualDocument>,
}

/// A series of a chart.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ColumnDocument {
    /// Name of the series.
    pub name: String,
    /// A value for each row; null if the series has no value in that row.
    pub points: Vec<Option<PointDocument>>,
}

/// A value of a published chart, and what the simulation gives for it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PointDocument {
    /// The simulated value.
    pub simulated: Option<f64>,
    /// The published value.
    pub published: Option<f64>,
    /// The naive bound: min(depth x size / R0, disks x media, bus), where R0 is the time of a
    /// single request.
    pub naive: Option<f64>,
    /// Relative error; for shares in percent, the difference in percentage points divided by 100.
    pub error: Option<f64>,
    /// Why there is no simulated value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Errors of a set of values, as shares.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ScoreDocument {
    /// Number of values compared.
    pub points: u64,
    /// Mean absolute error.
    pub mean: f64,
    /// Median absolute error.
    pub median: f64,
    /// 90th percentile of the absolute errors.
    pub p90: f64,
    /// The worst error, with its sign.
    pub worst: f64,
    /// Series and row of the value with the worst error.
    pub worst_point: String,
    /// Root of the mean square error.
    pub demerit: f64,
}

/// A value of a chart with a large error.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResidualDocument {
    /// Names of the series and of the row.
    pub point: String,
    /// Relative error.
    pub error: f64,
    /// The reason, if known.
    pub explanation: Option<String>,
}

/// Results for the numbers in the paper's text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ClaimsDocument {
    /// Claims that are inputs of the simulator and not scored.
    pub inputs: u64,
    /// Claims that were checked and passed. A group of contradicting claims counts once.
    pub passed: u64,
    /// Claims that were checked and failed. A group of contradicting claims counts once.
    pub failed: u64,
    /// Checked claims whose kind is measured or derived; a group counts once.
    pub measured_checked: u64,
    /// Number of those claims that passed.
    pub measured_passed: u64,
    /// Claims that a simulation of storage cannot check.
    pub out: u64,
    /// All checked claims, including every claim of a group.
    pub checked: Vec<ClaimDocument>,
    /// Checked claims that the paper's own numbers contradict; they are not counted.
    pub contradicted: Vec<ContradictedDocument>,
    /// Claims that contradict an input of the simulator, with the reason.
    pub contradict_inputs: Vec<OutDocument>,
    /// Claims about something that no system file describes, with the reason.
    pub not_simulated: Vec<OutDocument>,
    /// The claims that are out of scope, with the reason.
    pub out_of_scope: Vec<OutDocument>,
}

/// A claim that was checked.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ClaimDocument {
    /// Name of the claim: R or C and a number.
    pub id: String,
    /// Section of the paper that states the claim.
    pub section: String,
    /// The statement of the paper.
    pub claim: String,
    /// The published value or range, unit and qualifier.
    pub published: String,
    /// Unit of the value.
    pub unit: String,
    /// Kind of the claim: measured, derived and so on.
    pub kind: String,
    /// The simulated value.
    pub simulated: Option<f64>,
    /// How the quantity is measured, where the statement leaves that open.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub quantity: String,
    /// Whether the simulated value matches the published one.
    pub pass: bool,
    /// The claim of the same group that is counted in place of this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_as: Option<String>,
    /// Why the claim does not pass; absent if it passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A claim that the paper's own numbers contradict.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ContradictedDocument {
    /// The claim with its simulated value.
    pub claim: ClaimDocument,
    /// The value that the paper's own figures, tables or other claims give.
    pub own: f64,
    /// Where the contradicting value is from.
    pub source: String,
}

/// A claim that is not checked.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OutDocument {
    /// Name of the claim: R or C and a number.
    pub id: String,
    /// The statement of the paper.
    pub claim: String,
    /// Why the claim is not checked.
    pub why: String,
}

impl ReproduceDocument {
    /// The document of a reproduction.
    pub fn of(reproduction: &Reproduction) -> ReproduceDocument {
        ReproduceDocument {
            halfpower: Program::this(),
            paper: reproduction.paper.name().to_owned(),
            title: reproduction.paper.title().to_owned(),
            figures: reproduction.figures.iter().map(figure).collect(),
            claims: reproduction.claims.as_ref().map(claims),
        }
    }
}

fn figure(result: &FigureResult) -> FigureDocument {
    FigureDocument {
        key: result.figure.key.clone(),
        name: result.figure.name(),
        title: result.figure.title.clone(),
        score: result.score.as_ref().map(score),
        naive_score: result.naive.as_ref().map(score),
        charts: result.charts.iter().map(chart).collect(),
        given: result.figure.given.map(published::cells_of).unwrap_or_default(),
    }
}

fn chart(result: &ChartResult) -> ChartDocument {
    let columns = result.chart.columns.iter().zip(&result.points);
    let column = |(column, points): (&Column, &Vec<Option<Point>>)| {
        let points = points.iter().map(|at| at.as_ref().map(point)).collect();
        ColumnDocument { name: column.name.clone(), points }
    };
    ChartDocument {
        title: result.chart.title.clone(),
        rows_are: result.chart.rows_are.to_owned(),
        rows: result.chart.rows.clone(),
        columns: columns.map(column).collect(),
        score: result.score.as_ref().map(score),
        naive_score: result.naive.as_ref().map(score),
        residuals: result.residuals.iter().map(residual).collect(),
    }
}

fn point(point: &Point) -> PointDocument {
    let Point { simulated, published, naive, error, ref why } = *point;
    PointDocument { simulated, published, naive, error, why: why.clone() }
}

fn score(score: &Score) -> ScoreDocument {
    ScoreDocument {
        points: score.points as u64,
        mean: score.mean,
        median: score.median,
        p90: score.p90,
        worst: score.worst,
        worst_point: score.worst_name.clone(),
        demerit: score.demerit,
    }
}

fn residual(residual: &Residual) -> ResidualDocument {
    ResidualDocument {
        point: residual.name.clone(),
        error: residual.error,
        explanation: residual.explanation.map(str::to_owned),
    }
}

fn claims(claims: &Claims) -> ClaimsDocument {
    let out = |claim: &Claim| OutDocument {
        id: claim.id.clone(),
        claim: claim.text.clone(),
        why: claim.why.clone(),
    };
    let contradicted = |one: &Contradicted| ContradictedDocument {
        claim: claim(&one.scored),
        own: one.own,
        source: one.source.clone(),
    };
    let (all, measured) = (claims.all(), claims.measured());
    ClaimsDocument {
        inputs: claims.inputs as u64,
        passed: all.passed as u64,
        failed: (all.of - all.passed) as u64,
        measured_checked: measured.of as u64,
        measured_passed: measured.passed as u64,
        out: claims.out.len() as u64,
        checked: claims.scored.iter().map(claim).collect(),
        contradicted: claims.contradicted.iter().map(contradicted).collect(),
        contradict_inputs: claims.contradict_inputs.iter().map(out).collect(),
        not_simulated: claims.not_simulated.iter().map(out).collect(),
        out_of_scope: claims.out.iter().map(out).collect(),
    }
}

fn claim(scored: &Scored) -> ClaimDocument {
    let claim = &scored.claim;
    ClaimDocument {
        id: claim.id.clone(),
        section: claim.section.clone(),
        claim: claim.text.clone(),
        published: claim.published(),
        unit: claim.unit.clone(),
        kind: claim.kind.clone(),
        simulated: scored.answer.as_ref().ok().copied(),
        quantity: claim.quantity.clone(),
        pass: scored.pass,
        counted_as: scored.counted_as.clone(),
        reason: scored.reason.clone(),
    }
}
