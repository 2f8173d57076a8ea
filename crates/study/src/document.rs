//! The JSON document of `study --json`: results of each study, the machine and the targets.
//!
//! Its schema is published in `docs/schema/study.schema.json`; the texts of this file appear there.

use std::collections::BTreeMap;

use lab::evidence::{LeftOut, MeasuredPoint, Reading, Skipped};
use lab::json::{PointDocument, Program};
use lab::machine::{Host, TargetFacts};
use schemars::JsonSchema;
use serde::Serialize;
use survey::advice::Advice;
use survey::document::{FindingDocument, WroteDocument};

use crate::conclusion::{ClaimResult, Verdict, claim_of};
use crate::session::StudyResult;

/// What `study --json` prints.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StudiesDocument {
    /// The program and its version.
    pub halfpower: Program,
    /// The machine.
    pub host: Host,
    /// The targets.
    pub targets: Vec<TargetFacts>,
    /// The studies, in the order in which they ran.
    pub studies: Vec<StudyDocument>,
    /// The files that were written.
    pub wrote: WroteDocument,
}

/// The results of one study.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StudyDocument {
    /// Name of the study.
    pub name: String,
    /// Title of the study.
    pub title: String,
    /// The question that the study answers.
    pub asks: String,
    /// Where the papers describe the experiment, and what they found.
    pub papers: String,
    /// Verdicts on the papers' claims.
    pub claims: Vec<ClaimDocument>,
    /// Every point that was measured.
    pub points: Vec<StudyPointDocument>,
    /// Measured numbers that are not rates of a workload.
    pub readings: Vec<Reading>,
    /// The findings, most important first.
    pub findings: Vec<FindingDocument>,
    /// Rules of the papers that bring a gain here.
    pub advice: Vec<Advice>,
    /// Parts of the plan that could not be measured, with the reason.
    pub left_out: Vec<LeftOut>,
    /// Why nothing was measured; null otherwise.
    pub skipped: Option<Skipped>,
    /// Why the study ended early; null otherwise.
    pub failure: Option<String>,
    /// Whether the user interrupted the study.
    pub interrupted: bool,
}

/// A claim of the papers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ClaimDocument {
    /// Name of the claim in the published data, such as R080.
    pub id: String,
    /// The statement of the paper.
    pub claim: String,
    /// The published number.
    pub published: String,
    /// Whether the claim holds on this machine.
    pub verdict: Verdict,
    /// What was measured here, or why the claim is not testable.
    pub here: String,
}

/// A measured point of a study.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StudyPointDocument {
    /// The part of the plan that the point belongs to; empty if the plan has no parts.
    pub part: String,
    /// The target, or the first of several.
    pub target: String,
    /// Number of targets that worked together.
    pub disks: u32,
    /// Flags that are not fields of the workload.
    pub given: BTreeMap<String, String>,
    /// The workload, its trials and the summary.
    #[serde(flatten)]
    pub point: PointDocument,
}

impl From<&StudyResult> for StudyDocument {
    fn from(study: &StudyResult) -> StudyDocument {
        StudyDocument {
            name: study.name.clone(),
            title: study.plan.title.clone(),
            asks: study.plan.asks.clone(),
            papers: study.papers.to_owned(),
            claims: study.conclusion.claims.iter().map(ClaimDocument::from).collect(),
            points: study.evidence.points.iter().map(StudyPointDocument::from).collect(),
            readings: study.evidence.readings.clone(),
            findings: study.conclusion.findings.iter().map(FindingDocument::from).collect(),
            advice: study.conclusion.advice.clone(),
            left_out: study.evidence.left_out.clone(),
            skipped: study.evidence.skipped.clone(),
            failure: study.failure.clone(),
            interrupted: study.interrupted,
        }
    }
}

impl From<&ClaimResult> for ClaimDocument {
    fn from(result: &ClaimResult) -> ClaimDocument {
        let claim = claim_of(result.id);
        ClaimDocument {
            id: result.id.to_owned(),
            claim: claim.as_ref().map(|claim| claim.text.clone()).unwrap_or_default(),
            published: claim.map(|claim| claim.published()).unwrap_or_default(),
            verdict: result.verdict,
            here: result.here.clone(),
        }
    }
}

impl From<&MeasuredPoint> for StudyPointDocument {
    fn from(point: &MeasuredPoint) -> StudyPointDocument {
        StudyPointDocument {
            part: point.part.clone(),
            target: point.target.clone(),
            disks: point.disks,
            given: point.given.clone(),
            point: PointDocument::from(&point.point),
        }
    }
}
