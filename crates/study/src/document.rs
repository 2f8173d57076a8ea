//! The JSON document of `study --json`: the results of each study, the machine and the targets.
//!
//! The schema in `docs/schema/study.schema.json` repeats the doc comments of this file.

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

/// The document that `study --json` prints.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StudiesDocument {
    /// The program and its version.
    pub halfpower: Program,
    /// The machine on which the studies ran.
    pub host: Host,
    /// The targets of the studies.
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
    /// Measured numbers that are not rates of a workload, such as the time of an object upload.
    pub readings: Vec<Reading>,
    /// The findings, most important first.
    pub findings: Vec<FindingDocument>,
    /// Advice whose gain was measured on this machine.
    pub advice: Vec<Advice>,
    /// The parts of the plan that could not be measured, with the reasons.
    pub left_out: Vec<LeftOut>,
    /// Why nothing was measured. Null if something was measured.
    pub skipped: Option<Skipped>,
    /// Why the study failed. Null if it did not fail.
    pub failure: Option<String>,
    /// Whether the user interrupted the study.
    pub interrupted: bool,
}

/// A claim of the papers, and the verdict on it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ClaimDocument {
    /// Id of the claim, such as R080.
    pub id: String,
    /// The statement of the paper.
    pub claim: String,
    /// The published number, with its unit.
    pub published: String,
    /// Whether the claim holds on this machine.
    pub verdict: Verdict,
    /// What was measured here, or why the claim is not testable.
    pub here: String,
}

/// A measured point of a study.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StudyPointDocument {
    /// The part of the plan to which the point belongs. Empty if the plan has no parts.
    pub part: String,
    /// The target, or the first target if the point used several targets.
    pub target: String,
    /// Number of targets that the point used at the same time.
    pub disks: u32,
    /// Values of the flags that the plan sets in addition to the fields of the workload, by flag.
    pub given: BTreeMap<String, String>,
    /// The workload, with its trials and their summary.
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
