//! The JSON document of `reproduce --json`: every value, score and claim.
//!
//! The schema of the document is published in `docs/schema/reproduce.schema.json`. The doc comments
//! of this file are the descriptions in the schema.

use lab::json::Program;
use schemars::JsonSchema;
use serde::Serialize;

use crate::reproduce::claim::{Claims, Contradicted, Scored};
use crate::reproduce::figure::{ChartResult, Column, Point, Residual, Score};
use crate::reproduce::published::{self, Claim};
use crate::reproduce::{FigureResult, Reproduction};

/// The results of simulating the figures and claims of a paper.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReproduceDocument {
    /// The program that wrote the document, and its version.
    pub halfpower: Program,
    /// The short name of the paper, such as riedel97.
    pub paper: String,
    /// The authors, the title and the year of the paper.
    pub title: String,
    /// The figures and tables of the paper.
    pub figures: Vec<FigureDocument>,
    /// The results for the claims in the text. Absent if only figures were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claims: Option<ClaimsDocument>,
}

/// A figure or table.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FigureDocument {
    /// The name of the figure on the command line, such as 2 or t3.
    pub key: String,
    /// The name of the figure in the paper, such as Figure 2 or Table 3.
    pub name: String,
    /// What the figure shows.
    pub title: String,
    /// The errors of the simulated values, relative to the published values. Absent if no values
    /// were published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<ScoreDocument>,
    /// The errors of the naive bound, relative to the published values. The bound is a simple
    /// estimate of each value. Absent if there is no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub naive_score: Option<ScoreDocument>,
    /// The charts of the figure.
    pub charts: Vec<ChartDocument>,
    /// A published table that describes the set-up. The first row has the names of the columns. The
    /// table is an input and is not scored.
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
    /// The errors of the chart's simulated values, relative to the published values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<ScoreDocument>,
    /// The errors of the naive bound in this chart, relative to the published values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub naive_score: Option<ScoreDocument>,
    /// The values of the chart whose error is larger than 10%.
    pub residuals: Vec<ResidualDocument>,
}

/// A series of a chart.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ColumnDocument {
    /// The name of the series.
    pub name: String,
    /// A value for each row. Null if the series has no value in the row.
    pub points: Vec<Option<PointDocument>>,
}

/// A value of a chart, as published and as simulated.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PointDocument {
    /// The simulated value. Null if it could not be simulated.
    pub simulated: Option<f64>,
    /// The published value. Null if it is unknown.
    pub published: Option<f64>,
    /// The naive bound of the throughput: min(depth x request size / R0, disks x media rate, bus
    /// rate). R0 is the time of a single request. Null if there is no such bound.
    pub naive: Option<f64>,
    /// The relative error of the simulated value. For shares of bus time, this is the difference in
    /// percentage points, divided by 100.
    pub error: Option<f64>,
    /// Why the value could not be simulated. Absent if it was simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The errors of a set of values. An error of 0.1 means 10%.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ScoreDocument {
    /// The number of values that were compared.
    pub points: u64,
    /// The mean absolute error.
    pub mean: f64,
    /// The median absolute error.
    pub median: f64,
    /// The 90th percentile of the absolute errors.
    pub p90: f64,
    /// The error with the largest absolute value.
    pub worst: f64,
    /// The series and row of the value with the worst error.
    pub worst_point: String,
    /// The root mean square error.
    pub demerit: f64,
}

/// A value of a chart with a large error.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResidualDocument {
    /// The names of the series and of the row.
    pub point: String,
    /// The error of the value, defined like the error of a point.
    pub error: f64,
    /// The reason for the error. Null if it is unknown.
    pub explanation: Option<String>,
}

/// The results for the claims, which are the numbers in the paper's text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ClaimsDocument {
    /// The number of claims that are inputs of the simulator. They are not scored.
    pub inputs: u64,
    /// The number of checked claims that passed. A group of contradicting claims counts once.
    pub passed: u64,
    /// The number of checked claims that failed. A group of contradicting claims counts once.
    pub failed: u64,
    /// The number of checked claims whose kind is measured or derived. A group counts once.
    pub measured_checked: u64,
    /// The number of measured or derived claims that passed.
    pub measured_passed: u64,
    /// The number of claims that a simulation of storage cannot check.
    pub out: u64,
    /// The checked claims that are not in `contradicted`. All claims of a group are listed.
    pub checked: Vec<ClaimDocument>,
    /// The checked claims that the paper's own numbers contradict. They are not counted.
    pub contradicted: Vec<ContradictedDocument>,
    /// The claims that contradict an input of the simulator, with the reason.
    pub contradict_inputs: Vec<OutDocument>,
    /// The claims about a set-up that no system file describes, with the reason.
    pub not_simulated: Vec<OutDocument>,
    /// The claims that a simulation of storage cannot check, with the reason.
    pub out_of_scope: Vec<OutDocument>,
}

/// A claim that was checked.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ClaimDocument {
    /// The name of the claim: the letter R or C, followed by a number.
    pub id: String,
    /// The section of the paper that states the claim.
    pub section: String,
    /// What the number describes, in words.
    pub claim: String,
    /// The published value or range with its unit and qualifier.
    pub published: String,
    /// The unit of the value.
    pub unit: String,
    /// The kind of the claim, such as measured or derived.
    pub kind: String,
    /// The simulated value. Null if there is none.
    pub simulated: Option<f64>,
    /// How the simulator measures the quantity. Absent if `claim` is precise enough.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub quantity: String,
    /// Whether the simulated value meets the claim.
    pub pass: bool,
    /// The claim of the same group that is counted instead of this claim. Absent if this claim is
    /// counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_as: Option<String>,
    /// Why the claim does not pass. Absent if the claim passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A claim that the paper's own numbers contradict.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ContradictedDocument {
    /// The claim with its simulated value.
    pub claim: ClaimDocument,
    /// The value of the claim as it follows from the paper's own figures, tables or other claims.
    pub own: f64,
    /// The source of `own`, such as the paper's figures and tables.
    pub source: String,
}

/// A claim that is not checked.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OutDocument {
    /// The name of the claim: the letter R or C, followed by a number.
    pub id: String,
    /// What the number describes, in words.
    pub claim: String,
    /// Why the claim is not checked.
    pub why: String,
}

impl ReproduceDocument {
    /// Returns the document of a reproduction.
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
