//! The JSON of studies (`study --json`), whose schema is published in `docs/schema`.

use std::collections::BTreeMap;

use lab::json::{PointDocument, Program};
use lab::machine::{Host, TargetFacts};
use schemars::JsonSchema;
use serde::Serialize;
use survey::advice::Advice;
use survey::document::{AdviceDocument, WroteDocument};

use crate::conclusion::{ClaimResult, Finding, Verdict, claim_of};
use crate::evidence::{LeftOut, MeasuredPoint, Reading, Skipped};
use crate::session::StudyResult;

/// What `study --json` prints.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StudiesDocument {
    /// Which program wrote it.
    pub halfpower: Program,
    /// The machine.
    pub host: Host,
    /// The targets.
    pub targets: Vec<TargetFacts>,
    /// Every study.
    pub studies: Vec<StudyDocument>,
    /// What was written where.
    pub wrote: WroteDocument,
}

/// One study.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StudyDocument {
    /// Its name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The question.
    pub asks: String,
    /// Where the papers asked it, and what they found.
    pub papers: String,
    /// What became of the papers' claims.
    pub claims: Vec<ClaimDocument>,
    /// Every point that was measured.
    pub points: Vec<StudyPointDocument>,
    /// Numbers that are no points.
    pub readings: Vec<Reading>,
    /// What was found.
    pub findings: Vec<Finding>,
    /// Rules of the papers that gain something here.
    pub advice: Vec<AdviceDocument>,
    /// Parts that could not be measured.
    pub left_out: Vec<LeftOut>,
    /// Why nothing was measured; null where something was.
    pub skipped: Option<Skipped>,
    /// Why it ended before its end; null where it did not.
    pub failure: Option<String>,
    /// Whether the user stopped it.
    pub interrupted: bool,
}

/// A claim of the papers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ClaimDocument {
    /// Its name in the published data.
    pub id: String,
    /// What it says.
    pub claim: String,
    /// The number as published.
    pub published: String,
    /// What became of it.
    pub verdict: Verdict,
    /// What was seen here, or why it cannot be tried.
    pub here: String,
}

/// A point of a study.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StudyPointDocument {
    /// The part of the plan; empty where it has none.
    pub part: String,
    /// The target, or the first of several.
    pub target: String,
    /// How many targets worked together.
    pub disks: u32,
    /// Flags that are no field of the workload.
    pub given: BTreeMap<String, String>,
    /// The point.
    #[serde(flatten)]
    pub point: PointDocument,
}

impl From<&StudyResult> for StudyDocument {
    fn from(made: &StudyResult) -> StudyDocument {
        StudyDocument {
            name: made.name.clone(),
            title: made.plan.title.clone(),
            asks: made.plan.asks.clone(),
            papers: made.papers.to_owned(),
            claims: made.conclusion.claims.iter().map(ClaimDocument::from).collect(),
            points: made.evidence.cells.iter().map(StudyPointDocument::from).collect(),
            readings: made.evidence.readings.clone(),
            findings: made.conclusion.findings.clone(),
            advice: made.conclusion.advice.iter().map(advice).collect(),
            left_out: made.evidence.left_out.clone(),
            skipped: made.evidence.skipped.clone(),
            failure: made.failure.clone(),
            interrupted: made.interrupted,
        }
    }
}

impl From<&ClaimResult> for ClaimDocument {
    fn from(tried: &ClaimResult) -> ClaimDocument {
        let claim = claim_of(tried.id);
        ClaimDocument {
            id: tried.id.to_owned(),
            claim: claim.as_ref().map(|claim| claim.text.clone()).unwrap_or_default(),
            published: claim.map(|claim| claim.published()).unwrap_or_default(),
            verdict: tried.verdict,
            here: tried.here.clone(),
        }
    }
}

impl From<&MeasuredPoint> for StudyPointDocument {
    fn from(cell: &MeasuredPoint) -> StudyPointDocument {
        StudyPointDocument {
            part: cell.part.clone(),
            target: cell.target.clone(),
            disks: cell.disks,
            given: cell.given.clone(),
            point: PointDocument::from(&cell.point),
        }
    }
}

fn advice(advice: &Advice) -> AdviceDocument {
    AdviceDocument {
        id: advice.id.clone(),
        text: advice.text.clone(),
        evidence: advice.evidence.clone(),
        gain: advice.gain,
        gain_in: advice.gain_in.to_owned(),
        how: advice.how.clone(),
    }
}
