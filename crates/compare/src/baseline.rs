//! Baselines: stored runs that are measured again to find out whether anything became slower.
//!
//! Only the most informative points of the baseline that fit into the time budget are measured:
//! first the fastest point of each kind of request, then the points with the narrowest confidence
//! intervals. At these points, a few trials suffice to show small changes. Reading a file needs no
//! permission. Writing to an existing file or device needs the same consent as in any other run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use analysis::quantile::median;
use analysis::units;
use ioengine::Caching;
use lab::bench::{self, Bench};
use lab::experiment::{Experiment, Rw};
use lab::failure::{Failure, Outcome};
use lab::guard::Consent;
use lab::job::Job;
use lab::machine::{Host, TargetFacts};
use lab::point::{Point, Trial};
use lab::recorder::{self, Recorder, RunFacts as NewRun, RunSettings};
use lab::rounds::{self, Rounds};
use lab::trials::{Lab, Setting};
use results::{RunKind, RunState, Store};
use workload::Workload;

use crate::side::{RunFacts, Side};
use crate::verdict::{self, Comparison};

/// Minimum number of trials of each point. Fewer trials do not show how much the results vary.
const TRIALS_MIN: u64 = 3;
/// Maximum number of trials of each point.
const TRIALS_MAX: u64 = 30;

/// The settings for the check of a baseline.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Time budget for the measurements (ns).
    pub budget_ns: u64,
    /// Permissions that the user gave for writing.
    pub consent: Consent,
    /// Changes of at most this share count as no change (0.05 is 5%).
    pub tolerated: f64,
    /// Whether the new results are stored.
    pub stores: bool,
}

/// The points of a baseline that are measured again.
#[derive(Debug)]
pub struct Check {
    name: String,
    side: Side,
    target: PathBuf,
    trials: u32,
    /// Number of points of the baseline that are not measured again.
    left_out: usize,
    groups: Vec<Group>,
}

/// Points with the same caching. They share an opened target.
#[derive(Debug)]
struct Group {
    caching: Caching,
    points: Vec<Point>,
}

impl Check {
    /// Reads a baseline and chooses the points that fit into the budget.
    ///
    /// # Errors
    /// If there is no such baseline, or none of its points can be measured again.
    pub fn of(db: &Path, name: &str, terms: &Terms) -> Outcome<Check> {
        let store = Store::open_read_only(db)?;
        let baselines = store.baselines()?;
        let Some((_, row)) = baselines.into_iter().find(|(known, _)| known == name) else {
            return Err(Failure::usage(format!(
                "{} has no baseline '{name}'; set one with halfpower baseline set {name} RUN",
                db.display()
            )));
        };
        let all = recorder::load(&store, row.id)?;
        let all: Vec<Point> = all.into_iter().filter(|point| !point.trials.is_empty()).collect();
        let count = all.len();
        let points: Vec<Point> = all.into_iter().filter(can_be_repeated).collect();
        let (points, trials) = chosen(points, terms.budget_ns);
        if points.is_empty() {
            return Err(Failure::failed(format!(
                "no point of baseline {name} can be measured again; set another run as baseline"
            )));
        }
        let facts = RunFacts::of(row);
        let target = target_of(&facts);
        let mut groups: Vec<Group> = Vec::new();
        for point in &points {
            let caching = point.key.caching;
            match groups.iter_mut().find(|group| group.caching == caching) {
                Some(group) => group.points.push(point.clone()),
                None => groups.push(Group { caching, points: vec![point.clone()] }),
            }
        }
        let left_out = count - points.len();
        let side = Side { name: format!("baseline {name}"), runs: vec![facts], points };
        Ok(Check { name: name.to_owned(), side, target, trials, left_out, groups })
    }

    /// Returns the planned measurements as lines of text.
    ///
    /// # Errors
    /// If the target cannot be opened, or must not be written.
    pub fn plan(&self, terms: &Terms) -> Outcome<Vec<String>> {
        let mut lines = vec![self.describe()];
        for group in &self.groups {
            let preparation = bench::preparation(&self.job(group, terms)?)?;
            lines.extend(preparation.lines.iter().map(|line| format!("  {line}")));
            lines.extend(preparation.destroys.iter().map(|what| format!("  destroy {what}")));
            lines.extend(group.points.iter().map(|point| format!("  {}", point.key.describe())));
        }
        lines.push("nothing was done".to_owned());
        Ok(lines)
    }

    /// Describes the check in one line of text.
    pub fn describe(&self) -> String {
        let points = units::counted(self.side.points.len() as u64, "point");
        let left_out = match self.left_out {
            0 => String::new(),
            count => format!(" (points left out: {count}; a longer --budget may include more)"),
        };
        let (name, target, trials) = (&self.name, self.target.display(), self.trials);
        format!("baseline {name}: {points} on {target}, {trials} trials per point{left_out}")
    }

    /// Measures the points and compares them with the baseline.
    ///
    /// # Errors
    /// If the target cannot be opened or must not be written, a request fails, the database cannot
    /// be written, or an interrupt arrives before the end of the first trial.
    pub fn measure(&self, lab: &Lab, db: &Path, terms: &Terms) -> Outcome<Comparison> {
        let jobs: Outcome<Vec<Job>> =
            self.groups.iter().map(|group| self.job(group, terms)).collect();
        let jobs = jobs?;
        let db = terms.stores.then_some(db);
        for job in &jobs {
            let preparation = bench::preparation(job)?;
            let destroyed = preparation.destroys.iter();
            destroyed.for_each(|what| lab.console.warn(format!("destroying {what}")));
            Recorder::check(db, job.targets.paths())?;
        }
        let benches: Outcome<Vec<Bench>> = jobs.iter().map(|job| Bench::ready(job, lab)).collect();
        let (benches, host) = (benches?, Host::read());
        let mut settings = Vec::new();
        for ((group, job), bench) in self.groups.iter().zip(&jobs).zip(&benches) {
            settings.extend(group.points.iter().map(|point| setting(point, job, bench)));
        }
        for setting in &settings {
            setting.place.check_fit(&setting.workload)?;
        }
        let target: TargetFacts = benches[0].facts().swap_remove(0);
        let mut recorder = Recorder::open(db)?;
        recorder.begin(&NewRun {
            kind: RunKind::Sweep,
            command_line: None,
            label: Some(format!("check of {}", self.name)),
            seed: jobs[0].base.seed,
            host: &host,
            target: Some(&target),
            settings: RunSettings::default(),
        })?;
        let rounds = Rounds { trials: self.trials, soaker: false, seed: jobs[0].base.seed };
        let (mut points, measured) = rounds::measure(lab, &rounds, settings, &mut recorder);
        let state = match (&measured, lab.interrupt.is_set()) {
            (Err(_), _) => RunState::Failed,
            (Ok(()), true) => RunState::Interrupted,
            (Ok(()), false) => RunState::Finished,
        };
        recorder.finish(state, None, None)?;
        measured?;
        points.retain(|point| !point.trials.is_empty());
        if points.is_empty() {
            return Err(Failure::interrupted());
        }
        let now = Side::of("now", host, target, points);
        Ok(verdict::compare(&self.side, &now, terms.tolerated))
    }

    /// Returns a job for all points of a group. The job reads, writes or does both, as the points
    /// require. It has the caching of the group, and the largest request size, file size and run
    /// time of the points.
    fn job(&self, group: &Group, terms: &Terms) -> Outcome<Job> {
        let workloads = || group.points.iter().map(|point| &point.key.workload);
        let reads = workloads().any(|workload| workload.read_percent > 0);
        let writes = workloads().any(Workload::writes);
        let end = |workload: &Workload| workload.region_offset + workload.region_bytes;
        let largest = workloads().map(|workload| workload.request_bytes).max().unwrap_or(4096);
        let experiment = Experiment {
            targets: vec![self.target.clone()],
            rw: vec![match (reads, writes) {
                (true, true) => Rw::RandReadWrite,
                (false, true) => Rw::RandWrite,
                _ => Rw::RandRead,
            }],
            request_bytes: Some(vec![largest]),
            direct: Some(group.caching.is_direct()),
            write_through: group.caching.is_write_through(),
            size_bytes: workloads().map(end).max(),
            trials: self.trials,
            runtime_ns: workloads().filter_map(|workload| workload.limit_ns).max(),
            consent: terms.consent.clone(),
            ..Experiment::default()
        };
        Job::resolve(&experiment, false)
    }
}

fn setting<'a>(point: &Point, job: &Job, bench: &'a Bench) -> Setting<'a> {
    let preparation = point.key.preparation;
    Setting {
        workload: point.key.workload.clone(),
        scrub: preparation.scrubbed,
        warm: preparation.warmed,
        hint: preparation.hint,
        blocks: preparation.blocks,
        ..bench.setting(job, &job.axes[0])
    }
}

/// Checks whether a point can be measured again. This is not supported for traced points, points
/// without a limit of time or bytes, and points with stripes, several targets, growing files or
/// verified content.
fn can_be_repeated(point: &Point) -> bool {
    let (key, workload) = (&point.key, &point.key.workload);
    key.targets == 1
        && key.chunk_bytes.is_none()
        && !key.traced
        && !workload.may_extend
        && workload.content != workload::spec::Content::Verified
        && (workload.limit_ns.is_some() || workload.limit_bytes.is_some())
}

/// Chooses the most informative points that fit into the budget with [`TRIALS_MIN`] trials each,
/// but at least one point. Returns these points and the number of trials per point.
fn chosen(points: Vec<Point>, budget_ns: u64) -> (Vec<Point>, u32) {
    let rate = |point: &Point| point.bytes_per_s().value;
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|a, b| rate(&points[*b]).total_cmp(&rate(&points[*a])));
    let mut kinds = BTreeSet::new();
    let (fastest, mut others): (Vec<usize>, Vec<usize>) =
        order.into_iter().partition(|index| kinds.insert(points[*index].key.rw()));
    let width = |index: &usize| points[*index].bytes_per_s().half_width_relative();
    others.sort_by(|a, b| width(a).total_cmp(&width(b)));
    let (mut used_ns, mut kept) = (0_u64, BTreeSet::new());
    for index in fastest.into_iter().chain(others) {
        let with_ns = used_ns.saturating_add(length_ns(&points[index]));
        if kept.is_empty() || with_ns.saturating_mul(TRIALS_MIN) <= budget_ns {
            used_ns = with_ns;
            kept.insert(index);
        }
    }
    let trials = (budget_ns / used_ns.max(1)).clamp(TRIALS_MIN, TRIALS_MAX) as u32;
    let points = points.into_iter().enumerate().filter(|(index, _)| kept.contains(index));
    (points.map(|(_, point)| point).collect(), trials)
}

/// Returns the duration of a trial with its warm-up (ns). A simulated point counts as 1 ns, because
/// a simulation takes almost no real time.
fn length_ns(point: &Point) -> u64 {
    if point.key.is_simulated {
        return 1;
    }
    let lengths: Vec<f64> =
        point.trials.iter().map(|trial: &Trial| trial.elapsed_ns as f64).collect();
    median(&lengths).unwrap_or(0.0) as u64 + point.key.workload.warm_up_ns
}

/// Returns the target as a user would specify it: a simulated system, the directory of a test file,
/// a file or a device.
fn target_of(facts: &RunFacts) -> PathBuf {
    if facts.target.simulated.is_some() {
        return PathBuf::from(facts.target_identity());
    }
    let path = PathBuf::from(&facts.target.name);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_test_file = name.starts_with("halfpower-") && name.ends_with(".test");
    match path.parent().filter(|_| is_test_file) {
        Some(folder) => folder.to_path_buf(),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::point::testing::point;

    fn timed(bytes: &[u64], request_bytes: u32, seconds: u64) -> Point {
        let mut point = point(bytes);
        point.key.workload.request_bytes = request_bytes;
        point.key.workload.limit_ns = Some(seconds * 1_000_000_000);
        for trial in &mut point.trials {
            trial.elapsed_ns = seconds * 1_000_000_000;
        }
        point
    }

    #[test]
    fn the_budget_chooses_the_fastest_point_first_and_then_the_steadiest() {
        let noisy = timed(&[4096 * 100, 4096 * 150, 4096 * 200], 8192, 1);
        let steady = timed(&[4096 * 100, 4096 * 100, 4096 * 100], 4096, 1);
        let fast = timed(&[4096 * 900, 4096 * 950, 4096 * 999], 65536, 1);
        let all = vec![noisy, steady, fast];
        let sizes = |seconds: u64| -> (Vec<u64>, u32) {
            let (points, trials) = chosen(all.clone(), seconds * 1_000_000_000);
            (points.iter().map(|point| point.key.request_bytes()).collect(), trials)
        };
        assert_eq!(sizes(1), (vec![65536], 3));
        assert_eq!(sizes(6), (vec![4096, 65536], 3));
        assert_eq!(sizes(9), (vec![8192, 4096, 65536], 3));
        assert_eq!(sizes(60), (vec![8192, 4096, 65536], 20));
    }

    #[test]
    fn a_test_file_is_laid_out_again_in_its_folder() {
        let named = |name: &str| {
            let target = TargetFacts { name: name.to_owned(), ..TargetFacts::default() };
            let side = Side::of("x", Host::default(), target, Vec::new());
            target_of(&side.runs[0])
        };
        assert_eq!(named("/data/halfpower-1.test"), PathBuf::from("/data"));
        assert_eq!(named("/data/mine"), PathBuf::from("/data/mine"));
    }

    #[test]
    fn a_point_that_grows_a_file_is_not_measured_again() {
        let mut grows = timed(&[4096], 4096, 1);
        assert!(can_be_repeated(&grows));
        grows.key.workload.may_extend = true;
        assert!(!can_be_repeated(&grows));
    }
}
