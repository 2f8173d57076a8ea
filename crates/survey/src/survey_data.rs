//! The data of a survey: host, target and measured points as in a study, and facts that only a
//! survey collects.

use std::collections::BTreeMap;
use std::path::Path;

use lab::evidence::{Evidence, MeasuredPoint};
use lab::failure::{Failure, Outcome};
use lab::machine::{Host, TargetFacts};
use lab::point::Point;
use lab::recorder;
use lab::resource_usage::BindingDocument;
use results::{RunKind, RunRow, Store};
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::visits::{SecondVisit, Visits};

/// The data of a survey, from which the conclusions are drawn.
#[derive(Clone, Debug)]
pub struct SurveyData {
    /// Host, target and measured points.
    pub evidence: Evidence,
    /// All other facts. The database stores them with the survey.
    pub facts: Facts,
    /// Start time of the survey (ns since 1970).
    pub started_unix_ns: i64,
}

impl SurveyData {
    /// Collects the data of a survey of one target. Points without a trial are left out.
    pub fn new(
        host: Host,
        target: TargetFacts,
        points: Vec<Point>,
        facts: Facts,
        started_unix_ns: i64,
    ) -> SurveyData {
        let measured = points.into_iter().filter(|point| !point.trials.is_empty());
        let points = measured.map(|point| MeasuredPoint::of(point, &target.name)).collect();
        let pap_bytes_per_s = facts.pap_bytes_per_s;
        let targets = vec![target];
        let evidence = Evidence { host, targets, points, pap_bytes_per_s, ..Evidence::default() };
        SurveyData { evidence, facts, started_unix_ns }
    }

    /// Loads a stored survey. `run` is the number of the run, the start of its UUID, or `latest`.
    ///
    /// # Errors
    /// If there is no such survey, or if the database cannot be read.
    pub fn load(db: &Path, run: &str) -> Outcome<SurveyData> {
        let store = Store::open_read_only(db)?;
        let row = if run == "latest" {
            let surveys = store.runs()?.into_iter().find(|run| run.kind == RunKind::Survey);
            surveys.ok_or_else(|| {
                let db = db.display();
                Failure::failed(format!("{db} contains no survey; run halfpower survey first"))
            })?
        } else {
            store.run(run)?
        };
        if row.kind != RunKind::Survey {
            return Err(Failure::usage(format!(
                "run {} is a {}, not a survey; for pages of all runs, use halfpower report --all",
                row.id, row.kind
            )));
        }
        SurveyData::of_row(&store, &row)
    }

    /// Loads a stored survey. The database contains the facts only if the survey has ended.
    /// Otherwise they are derived from the points.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn of_row(store: &Store, row: &RunRow) -> Outcome<SurveyData> {
        let host = serde_json::from_str(&row.host_json).unwrap_or_default();
        let target = serde_json::from_str(&row.target_json).unwrap_or_default();
        let facts = row.findings_json.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let points = recorder::load(store, row.id)?;
        let facts = facts.unwrap_or_else(|| Facts::of_points(&points));
        Ok(SurveyData::new(host, target, points, facts, row.started_unix_ns))
    }

    /// Returns the points, so that a test can change them. The test must call `evidence.summarise`
    /// afterwards.
    #[cfg(test)]
    pub(crate) fn points(&mut self) -> Vec<&mut Point> {
        self.evidence.points.iter_mut().map(|measured| &mut measured.point).collect()
    }

    /// Returns the target of the survey.
    pub fn target(&self) -> &TargetFacts {
        &self.evidence.targets[0]
    }
}

/// Facts about a survey other than target, host and points.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Peak rate (PAP) stated with --pap [bytes per second].
    pub pap_bytes_per_s: Option<f64>,
    /// Memory copy rate of the host [bytes per second].
    pub memory_copy_bytes_per_s: Option<f64>,
    /// CPU time that halfpower itself needs per request, measured on the null I/O engine (ns).
    pub floor_ns_per_request: Option<f64>,
    /// Why the upper bound of the CPU cost was not measured. None if it was measured.
    pub soaker_declined: Option<String>,
    /// Measurements that this host does not allow, each with the reason.
    pub missing: Vec<String>,
    /// Why writes were not measured. None if they were measured.
    pub not_written: Option<String>,
    /// Why the zones of the device prevent buffered and random writes. None if they do not.
    #[serde(default)]
    pub unordered_writes: Option<String>,
    /// Whether the target supports direct I/O.
    pub direct: bool,
    /// Size of the test file or of the measured region (bytes).
    pub region_bytes: u64,
    /// The requests that the user's program issues today. None without --app.
    #[serde(default)]
    pub app: Option<App>,
    /// Number of bytes written, including the test file. 0 if the target is simulated.
    pub written_bytes: u64,
    /// Duration of the survey (ns).
    pub elapsed_ns: u64,
    /// Whether the user interrupted the survey.
    pub interrupted: bool,
    /// The host of each rank that measured. Empty for a survey of one process.
    #[serde(default)]
    pub ranks: Vec<String>,
    /// Which rank was lost and why. None if no rank was lost.
    #[serde(default)]
    pub lost: Option<String>,
    /// CPU quota of the control group (CPUs). None unless the quota throttled the survey.
    #[serde(default)]
    pub cpu_quota: Option<f64>,
    /// The limiting resource of each sequential point of a simulated system. The keys are the
    /// descriptions of the points.
    #[serde(default)]
    pub simulated_limits: BTreeMap<String, BindingDocument>,
    /// Numbers of bytes that the sequential trials read and wrote.
    #[serde(default)]
    pub visits: Visits,
    /// Results of the test for a cache in the device. None if the test did not run.
    #[serde(default)]
    pub second_visit: Option<SecondVisit>,
    /// Rate at which the test file was written [bytes per second]. None without a test file.
    pub layout_bytes_per_s: Option<f64>,
}

impl Facts {
    /// Derives facts from the points, for a survey that has not ended.
    fn of_points(points: &[Point]) -> Facts {
        let keys = || points.iter().map(|point| &point.key);
        Facts {
            direct: keys().any(|key| key.caching == ioengine::Caching::Direct),
            region_bytes: keys().map(|key| key.workload.region_bytes).max().unwrap_or_default(),
            ..Facts::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::point::testing::point;

    #[test]
    fn a_survey_that_has_not_ended_has_the_facts_that_its_points_show() {
        let facts = Facts::of_points(&[point(&[4096])]);
        assert!(facts.direct, "the point is direct");
        assert_eq!(facts.region_bytes, 1 << 20);
        assert!(!Facts::of_points(&[]).direct);
    }
}
