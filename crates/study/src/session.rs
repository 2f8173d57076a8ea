//! Runs several studies in sequence: measures, analyses and stores each study. [`Session`] holds
//! the state that the studies share, and [`StudyResult`] holds the outcome of a study.

use lab::evidence::{Evidence, LeftOut, Reading, Skipped, Stated};
use lab::experiment::Experiment;
use lab::experiment::settings::Settings;
use lab::failure::{Exit, Failure, Outcome};
use lab::machine::Host;
use lab::point::{State, Verdict};
use lab::recorder::{Recorder, RunFacts, RunOptions, RunSettings};
use lab::trials::Lab;
use report::model::Chart;
use results::{RunKind, RunState};
use serde::Serialize;
use survey::document::FindingDocument;

use crate::catalogue::Study;
use crate::conclusion::Conclusion;
use crate::figure;
use crate::general;
use crate::plan::Plan;
use crate::runner::StudyRunner;
use crate::target::StudyTarget;

/// The options and targets that all studies of one command share.
pub struct Session<'a> {
    /// The state shared by all measurements.
    pub lab: &'a Lab,
    /// The machine on which the studies run.
    pub host: Host,
    /// The targets, ready to be measured.
    pub study_targets: Vec<StudyTarget>,
    /// Whether to measure fewer points in shorter trials.
    pub quick: bool,
    /// Whether a study may switch the drive's write cache. The old setting is restored afterwards.
    pub toggle_write_cache: bool,
    /// Prices, power and capacities that the user specified.
    pub stated: Stated,
    /// Database, label, and the nominal rate of the hardware (PAP).
    pub options: RunOptions,
    /// Seed, permissions and buffer pages of all points.
    pub base: Experiment,
    /// Settings from the command line, which override the plans.
    pub typed: Settings,
    /// Test file size from the command line (bytes).
    pub size: Option<u64>,
    /// The file on the server that the targets access, as a path relative to the folder of the
    /// halfpower peer. None if the user did not specify the path.
    pub peer_path: Option<String>,
}

/// What the database stores for a study in addition to the points.
#[derive(Debug, Serialize)]
struct KeptFindings<'a> {
    findings: Vec<FindingDocument>,
    readings: &'a [Reading],
    left_out: &'a [LeftOut],
}

/// The outcome of a study.
#[derive(Debug)]
pub struct StudyResult {
    /// Name of the study.
    pub name: String,
    /// The plan of the study.
    pub plan: Plan,
    /// What the papers found. Empty for a user's plan that uses no built-in study.
    pub papers: &'static str,
    /// The measurements.
    pub evidence: Evidence,
    /// The findings, claims and advice drawn from the evidence.
    pub conclusion: Conclusion,
    /// All charts: first those of the plan, then those of the analysis, then those of single
    /// requests.
    pub charts: Vec<Chart>,
    /// Why the study failed. None if it did not fail.
    pub failure: Option<String>,
    /// Whether the user interrupted the study.
    pub interrupted: bool,
    /// The exit code of the program if nothing could be measured. None if something was measured.
    pub refused: Option<Exit>,
}

impl StudyResult {
    /// Checks whether points were measured and all of them are invalid.
    pub fn is_invalid(&self) -> bool {
        let cells = &self.evidence.points;
        !cells.is_empty() && cells.iter().all(|cell| cell.summary.verdict.state == State::Invalid)
    }
}

impl Session<'_> {
    /// Runs a built-in study or a user's plan.
    ///
    /// # Errors
    /// If the user interrupts the study before anything was measured, or if the database fails.
    /// Other failures are returned in [`StudyResult::failure`], so that the next study can run.
    pub fn make(
        &self,
        name: &str,
        study: Option<&'static Study>,
        plan: Plan,
    ) -> Outcome<StudyResult> {
        self.lab.console.say(format!("{name}: {}", plan.asks));
        let mut recorder = Recorder::open(self.options.db.as_deref())?;
        self.begin(&mut recorder, name)?;
        let mut runner = StudyRunner {
            lab: self.lab,
            study_targets: &self.study_targets,
            plan: &plan,
            quick: self.quick,
            toggle_write_cache: self.toggle_write_cache,
            base: &self.base,
            typed: &self.typed,
            size: self.size,
            peer_path: self.peer_path.as_deref(),
            recorder: &mut recorder,
            evidence: self.evidence(),
            refused: None,
            charts: Vec::new(),
        };
        let measured = match study.and_then(|study| study.measure) {
            Some(measure) => measure(&mut runner),
            None => runner.measure(),
        };
        let (mut evidence, refused, charts) = (runner.evidence, runner.refused, runner.charts);
        let failure = measured.err().filter(|failure| failure.exit != Exit::Interrupted);
        let interrupted = self.lab.interrupt.is_set();
        if interrupted && evidence.points.is_empty() && evidence.readings.is_empty() {
            recorder.finish(RunState::Interrupted, None, None)?;
            return Err(Failure::interrupted());
        }
        if evidence.skipped.is_none() {
            evidence.skipped = skipped(&evidence, failure.as_ref());
        }
        let refused = refused.filter(|_| evidence.skipped.is_some());
        let mut made = self.conclude(name, study, plan, evidence, failure);
        made.refused = refused;
        made.charts.extend(charts);
        let state = match (&made.failure, interrupted) {
            (Some(_), _) => RunState::Failed,
            (None, true) => RunState::Interrupted,
            (None, false) => RunState::Finished,
        };
        let findings = KeptFindings {
            findings: made.conclusion.findings.iter().map(FindingDocument::from).collect(),
            readings: &made.evidence.readings,
            left_out: &made.evidence.left_out,
        };
        let findings_json = serde_json::to_string(&findings).ok();
        let mut verdict = Verdict::default();
        made.evidence.points.iter().for_each(|cell| verdict.merge(&cell.summary.verdict));
        recorder.finish(state, findings_json, Some(&verdict))?;
        Ok(made)
    }

    fn evidence(&self) -> Evidence {
        Evidence {
            host: self.host.clone(),
            targets: self.study_targets.iter().map(StudyTarget::facts).collect(),
            pap_bytes_per_s: self.options.pap_bytes_per_s,
            stated: self.stated.clone(),
            ..Evidence::default()
        }
    }

    fn begin(&self, recorder: &mut Recorder, name: &str) -> Outcome<()> {
        let target = self.study_targets.first().map(StudyTarget::facts);
        recorder.begin(&RunFacts {
            kind: RunKind::Study,
            command_line: None,
            label: Some(self.options.label.clone().unwrap_or_else(|| name.to_owned())),
            seed: self.base.seed,
            host: &self.host,
            target: target.as_ref(),
            settings: RunSettings {
                pap_bytes_per_s: self.options.pap_bytes_per_s,
                study: Some(name.to_owned()),
                quick: self.quick,
                ..RunSettings::default()
            },
        })
    }

    fn conclude(
        &self,
        name: &str,
        study: Option<&'static Study>,
        plan: Plan,
        evidence: Evidence,
        failure: Option<Failure>,
    ) -> StudyResult {
        let interrupted = self.lab.interrupt.is_set();
        let names: Vec<String> =
            self.study_targets.iter().map(|one| one.name.display().to_string()).collect();
        let mut conclusion = analyse(study, &plan, &evidence, &names);
        if let Some(study) = study {
            let is_priced = |id: &str| study.rules.contains(&id);
            debug_assert!(conclusion.advice.iter().all(|advice| is_priced(&advice.id)), "{name}");
            if interrupted {
                conclusion.claims.clear();
            }
            let why = if interrupted {
                "the study was interrupted".to_owned()
            } else {
                why_not(&evidence)
            };
            conclusion.complete(study.claims, &why);
        }
        let figures = plan.figures.iter().enumerate();
        let charts = figures
            .filter_map(|(number, one)| figure::chart(format!("{name}-{number}"), one, &evidence))
            .chain(std::mem::take(&mut conclusion.charts))
            .collect();
        StudyResult {
            name: name.to_owned(),
            papers: study.map_or("", |study| study.papers),
            plan,
            evidence,
            conclusion,
            charts,
            failure: failure.map(|failure| failure.message),
            interrupted,
            refused: None,
        }
    }
}

/// Analyses each target separately, or all targets together if the plan compares them. `names` are
/// the targets as given on the command line.
fn analyse(
    study: Option<&'static Study>,
    plan: &Plan,
    evidence: &Evidence,
    names: &[String],
) -> Conclusion {
    let analyse = |evidence: &Evidence, names: &[String]| match study {
        None => general::analyse(evidence),
        Some(study) => {
            let mut found = (study.analyse)(evidence);
            if evidence.skipped.is_none() {
                found.judge_as_reproduced(study.claims, names);
            }
            found
        }
    };
    if plan.compares || evidence.targets.len() < 2 {
        return analyse(evidence, names);
    }
    let of_target = |index: usize| {
        let (name, own) = evidence.of_target(index);
        (name, analyse(&own, &names[index..=index]))
    };
    Conclusion::of_each((0..evidence.targets.len()).map(of_target).collect())
}

/// Returns why nothing was measured. None if something was measured.
fn skipped(evidence: &Evidence, failure: Option<&Failure>) -> Option<Skipped> {
    if !evidence.points.is_empty() || !evidence.readings.is_empty() {
        return None;
    }
    let (reason, remedy) = match (failure, evidence.left_out.first()) {
        (Some(failure), _) => ("the study failed".to_owned(), failure.message.clone()),
        (None, Some(left_out)) => {
            ("no part of the study can run here".to_owned(), left_out.reason.clone())
        }
        (None, None) => ("nothing was measured".to_owned(), "use a longer --runtime".to_owned()),
    };
    Some(Skipped { reason, remedy })
}

/// Returns why a claim was not tested.
fn why_not(evidence: &Evidence) -> String {
    if let Some(Skipped { reason, remedy }) = &evidence.skipped {
        return format!("the study was skipped: {reason}; {remedy}");
    }
    match evidence.left_out.as_slice() {
        [] if evidence.is_simulated() => {
            "the simulated system lacks a feature that the claim needs".to_owned()
        }
        [] => "the points that the claim needs were not measured".to_owned(),
        parts => {
            let mut reasons: Vec<&str> = parts.iter().map(|part| part.reason.as_str()).collect();
            let mut seen = std::collections::BTreeSet::new();
            reasons.retain(|reason| seen.insert(*reason));
            format!("left out: {}", reasons.join("; "))
        }
    }
}
