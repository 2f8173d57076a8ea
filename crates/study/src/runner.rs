//! Runs the plan of a study on its targets. The trials of all points are interleaved. Only points
//! that need different host settings, such as another I/O scheduler, run separately.

use std::path::PathBuf;

use ioengine::EngineKind;
use lab::bench::{self, Bench};
use lab::evidence::{Evidence, LeftOut, MeasuredPoint, Skipped};
use lab::experiment::settings::Settings;
use lab::experiment::{Allocation, Experiment};
use lab::failure::{Exit, Failure, Outcome};
use lab::job::Job;
use lab::point::{Point, State, Trial};
use lab::recorder::Recorder;
use lab::rounds::{self, Rounds};
use lab::settings::{Changed, HostSetting};
use lab::simulated;
use lab::trials::{Lab, Setting};
use report::model::Chart;
use workload::Workload;

use crate::plan::{Group, Plan};
use crate::target::StudyTarget;

/// Minimum length of a time-limited trial of a simulated system (ns).
const SIMULATED_NS: u64 = 2_000_000_000;

/// Runs the plan of a study on its targets and collects the evidence.
pub struct StudyRunner<'a> {
    /// The state shared by all measurements.
    pub lab: &'a Lab,
    /// The targets, in the order of the command line.
    pub study_targets: &'a [StudyTarget],
    /// The plan to run.
    pub plan: &'a Plan,
    /// Whether to measure fewer points in shorter trials.
    pub quick: bool,
    /// Whether the study may switch the drive's write cache. The old setting is restored
    /// afterwards.
    pub toggle_write_cache: bool,
    /// Seed, permissions and buffer pages of all points.
    pub base: &'a Experiment,
    /// Settings from the command line, which override the plan.
    pub typed: &'a Settings,
    /// Test file size from the command line (bytes). A file that grows during a trial grows at most
    /// to this size. None if the user did not specify the size.
    pub size: Option<u64>,
    /// The file on the server that the targets access, as a path relative to the folder of the
    /// halfpower peer. None if the user did not specify the path.
    pub peer_path: Option<&'a str>,
    /// The recorder, which stores finished trials.
    pub recorder: &'a mut Recorder,
    /// The measurements so far.
    pub evidence: Evidence,
    /// Exit code of the first error that prevented the measurement of a group of points. None if
    /// there was no such error.
    pub refused: Option<Exit>,
    /// Charts of data that the evidence does not contain, such as single requests.
    pub charts: Vec<Chart>,
}

/// A group of points whose targets are open.
pub struct Ready {
    group: Group,
    first: usize,
    disks: u32,
    job: Job,
    bench: Bench,
}

impl Ready {
    /// Changes the name of the part under which the next points are recorded.
    pub fn call(&mut self, part: &str) {
        self.group.part = part.to_owned();
    }

    /// Returns the part of the plan to which the points belong.
    pub fn part(&self) -> &str {
        &self.group.part
    }

    /// Returns the number of targets that each point uses at the same time.
    pub fn disks(&self) -> u32 {
        self.disks
    }

    /// Returns a label of the points, such as the value of a flag that is not an axis of `sweep`.
    /// Empty if there is no such label.
    pub fn given(&self, flag: &str) -> &str {
        self.group.given.get(flag).map_or("", String::as_str)
    }

    /// Returns the values that two groups must share so that their trials can be interleaved: the
    /// host settings, the targets to which these settings apply, and whether the target is
    /// simulated.
    fn surroundings(&self) -> (bool, Vec<HostSetting>, Vec<PathBuf>) {
        let host = self.job.host.clone();
        // Without host settings, trials on different targets can be interleaved.
        let targets = if host.is_empty() { &[] } else { self.job.targets.paths() };
        (self.job.targets.simulated().is_some(), host, targets.to_vec())
    }

    /// Returns the settings of all points, for studies that run their own trials.
    pub fn settings(&self) -> Vec<Setting<'_>> {
        self.job.axes.iter().map(|axes| self.bench.setting(&self.job, axes)).collect()
    }

    /// Returns the index of the group's first target in [`StudyRunner::study_targets`].
    pub fn first(&self) -> usize {
        self.first
    }

    /// Returns the number of trials per point.
    pub fn trials(&self) -> u32 {
        self.job.trials
    }
}

impl StudyRunner<'_> {
    /// Measures all points of the plan on each target. If the plan sets `disks`, each point uses
    /// several targets at the same time. A part of the plan that does not fit a target is left out,
    /// and the reason is recorded.
    ///
    /// # Errors
    /// If a request fails, or the user interrupts the study.
    pub fn measure(&mut self) -> Outcome<()> {
        self.measure_groups(&self.groups()?)
    }

    /// Returns the groups of the plan.
    ///
    /// # Errors
    /// A usage error if there are too many groups.
    pub fn groups(&self) -> Outcome<Vec<Group>> {
        self.plan.groups(self.quick, self.typed)
    }

    /// Measures the parts of the plan whose names `wanted` accepts.
    ///
    /// # Errors
    /// As for [`StudyRunner::measure`].
    pub fn measure_parts(&mut self, wanted: &dyn Fn(&str) -> bool) -> Outcome<()> {
        let mut groups = self.groups()?;
        groups.retain(|group| wanted(&group.part));
        self.measure_groups(&groups)
    }

    /// Measures the given groups like [`StudyRunner::measure`].
    ///
    /// # Errors
    /// If a request fails, or the user interrupts the study.
    pub fn measure_groups(&mut self, groups: &[Group]) -> Outcome<()> {
        self.measure_groups_on(groups, self.study_targets)
    }

    /// Measures the given groups on the given targets.
    ///
    /// # Errors
    /// If a request fails, or the user interrupts the study.
    pub fn measure_groups_on(
        &mut self,
        groups: &[Group],
        study_targets: &[StudyTarget],
    ) -> Outcome<()> {
        self.measure_groups_by(groups, study_targets, &Self::run)
    }

    /// Measures the given groups on the given targets. The function `run` measures the opened
    /// groups, instead of [`StudyRunner::run`].
    ///
    /// # Errors
    /// If a request fails, or the user interrupts the study.
    pub fn measure_groups_by(
        &mut self,
        groups: &[Group],
        study_targets: &[StudyTarget],
        run: &dyn Fn(&mut Self, &[Ready]) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut ready = Vec::new();
        for group in groups {
            self.prepare(group, study_targets, &mut ready)?;
        }
        while !ready.is_empty() && !self.lab.must_stop()? {
            let together = ready[0].surroundings();
            let (now, later) = ready.into_iter().partition(|one| one.surroundings() == together);
            ready = later;
            self.run_changed(now, run)?;
        }
        Ok(())
    }

    /// Measures groups that need the same host settings, and restores the settings afterwards.
    fn run_changed(
        &mut self,
        mut ready: Vec<Ready>,
        run: &dyn Fn(&mut Self, &[Ready]) -> Outcome<()>,
    ) -> Outcome<()> {
        let job = &ready[0].job;
        match Changed::apply(job.targets.paths(), &job.host) {
            Ok(None) => run(self, &ready)?,
            Ok(Some(changed)) => {
                // A file that is already open keeps its old read-ahead setting, so the targets are
                // opened again.
                for one in &mut ready {
                    one.bench = Bench::ready(&one.job, self.lab)?;
                }
                run(self, &ready)?;
                changed.restore();
            }
            Err(failure) => {
                ready.iter().for_each(|one| self.leave_out(&one.group.part, &failure.message));
            }
        }
        Ok(())
    }

    /// Opens the targets of a group. A group with targets that cannot be opened is left out.
    ///
    /// # Errors
    /// If the user interrupts the study.
    pub fn prepare(
        &mut self,
        group: &Group,
        study_targets: &[StudyTarget],
        ready: &mut Vec<Ready>,
    ) -> Outcome<()> {
        let sets: Vec<&[StudyTarget]> = match group.disks {
            None => study_targets.iter().map(std::slice::from_ref).collect(),
            Some(_) if study_targets.iter().all(StudyTarget::is_simulated) => {
                // A simulated system provides any number of disks, so one target is enough.
                let first = &study_targets[0].name;
                if let Some(other) =
                    study_targets.iter().find(|study_target| study_target.name != *first)
                {
                    let (first, other) = (first.display(), other.name.display());
                    let reason = format!(
                        "simulated disks of {first} and {other} cannot be combined, so only \
                         {first} was measured; study each system separately"
                    );
                    self.leave_out(&group.part, &reason);
                }
                vec![&study_targets[..1]]
            }
            Some(_) if study_targets.iter().any(StudyTarget::is_simulated) => {
                let reason = "simulated and real targets cannot be combined; use only one kind";
                self.leave_out(&group.part, reason);
                return Ok(());
            }
            Some(disks) => match study_targets.get(..disks as usize) {
                Some(together) => vec![together],
                None => {
                    let count = study_targets.len();
                    let reason = format!(
                        "this part needs {disks} targets, but {count} were specified; list all \
                         targets on the command line"
                    );
                    self.leave_out(&group.part, &reason);
                    return Ok(());
                }
            },
        };
        for set in sets {
            match self.open(group, set) {
                Ok(opened) => ready.push(opened),
                Err(failure) if failure.exit == Exit::Interrupted => return Err(failure),
                Err(failure) => {
                    self.refused = self.refused.or(Some(failure.exit));
                    self.leave_out(&group.part, &failure.message);
                }
            }
        }
        Ok(())
    }

    /// Opens the targets of a group, for studies that run their own trials.
    ///
    /// # Errors
    /// If flags contradict each other or do not fit the targets.
    pub fn bench(&mut self, group: &Group, set: &[StudyTarget]) -> Outcome<(Job, Bench)> {
        let mut job = Job::resolve(&self.experiment(group, set)?, true)?;
        self.keep_what_fits(&group.part, &mut job)?;
        let bench = Bench::ready(&job, self.lab)?;
        Ok((job, bench))
    }

    fn open(&mut self, group: &Group, set: &[StudyTarget]) -> Outcome<Ready> {
        let (job, bench) = self.bench(group, set)?;
        let first =
            self.study_targets.iter().position(|study_target| study_target.name == set[0].name);
        let disks = group.disks.unwrap_or(set.len() as u32);
        Ok(Ready { group: group.clone(), first: first.unwrap_or(0), disks, job, bench })
    }

    /// Leaves out points that cannot be measured on the targets, for example because the request
    /// size is not supported or writes are not allowed.
    ///
    /// # Errors
    /// If no point can be measured.
    fn keep_what_fits(&mut self, part: &str, job: &mut Job) -> Outcome<()> {
        let Err(first) = bench::preparation(job) else { return Ok(()) };
        let (mut fitting, mut others) = (Vec::new(), Vec::new());
        for axes in &job.axes {
            let mut alone = job.clone();
            alone.axes = vec![axes.clone()];
            match bench::preparation(&alone) {
                Ok(_) => fitting.push(axes.clone()),
                Err(failure) => others.push(failure.message),
            }
        }
        if fitting.is_empty() {
            return Err(first);
        }
        others.iter().for_each(|reason| self.leave_out(part, reason));
        job.axes = fitting;
        Ok(())
    }

    /// Builds the experiment that measures a group on the given targets.
    ///
    /// # Errors
    /// A usage error if parameters contradict each other.
    pub fn experiment(&self, group: &Group, set: &[StudyTarget]) -> Outcome<Experiment> {
        let mut experiment = self.with_base(group);
        let simulated = set.iter().any(StudyTarget::is_simulated);
        // The soaker uses up idle CPU time to measure the upper bound of the CPU cost. Simulated
        // systems know this bound. With several ranks on a host, a soaker would take the CPUs of
        // the other ranks.
        experiment.soaker &= !simulated && self.lab.ranks.is_none();
        if simulated && experiment.engine_kinds == [Some(EngineKind::Sync)] {
            // In the simulator, all engines behave the same with one request at a time, so the
            // default engine is used.
            experiment.engine_kinds = vec![None];
        }
        for study_target in set {
            self.add_target(group, study_target, &mut experiment)?;
        }
        if simulated {
            // The disks of the papers need seconds to reach a steady state. Such long trials are
            // possible because simulated time takes little real time.
            experiment.runtime_ns = experiment.runtime_ns.map(|ns| ns.max(SIMULATED_NS));
        }
        let bytes: Option<Vec<u64>> = set.iter().map(StudyTarget::bytes).collect();
        let most = bytes.and_then(|bytes| bytes.into_iter().min());
        let room = if experiment.allocation.grows() { self.size } else { most };
        let offset = experiment.offset_bytes;
        if let (Some(size), Some(most)) = (experiment.size_bytes, room) {
            // If the plan sets a size larger than the target, the whole target is used.
            experiment.size_bytes = Some(size.min(most.saturating_sub(offset)));
        }
        if experiment.size_bytes.is_none() && !experiment.time_based {
            // A trial makes at most one pass over the target, because a second pass might be served
            // from a cache.
            experiment.size_bytes = match most {
                Some(bytes) => Some(bytes.saturating_sub(offset)),
                None => simulated_bytes(&experiment),
            };
        }
        Ok(experiment)
    }

    /// Returns the experiment of a group, with defaults from `base` for flags that the plan does
    /// not set.
    fn with_base(&self, group: &Group) -> Experiment {
        let own = &group.experiment;
        let sets_pages = group.given.contains_key("buffer-pages");
        Experiment {
            seed: self.base.seed,
            consent: self.base.consent.clone(),
            buffer_pages: if sets_pages { own.buffer_pages } else { self.base.buffer_pages },
            allow_holes: own.allow_holes || self.base.allow_holes,
            endurance_bytes: self.base.endurance_bytes,
            ..own.clone()
        }
    }

    fn add_target(
        &self,
        group: &Group,
        study_target: &StudyTarget,
        experiment: &mut Experiment,
    ) -> Outcome<()> {
        let grows = experiment.allocation != Allocation::Existing;
        if grows && study_target.folder().is_none() && study_target.is_real() {
            return Err(Failure::usage(format!(
                "--allocation {} truncates the file that other parts measure; use a directory",
                experiment.allocation.name()
            )));
        }
        let folder = study_target.folder().filter(|_| grows);
        let mut target = folder.unwrap_or(study_target.path()).to_path_buf();
        if folder.is_none() && study_target.folder().is_some() {
            // halfpower itself created this test file, so the user need not permit the overwrite.
            experiment.consent.overwrite.push(study_target.path().to_path_buf());
        }
        if study_target.is_simulated() {
            let disks = group.disks.map(|disks| format!("disks={disks}"));
            let whole = self.whole_device(group, study_target).into_iter().flatten();
            let whole: Vec<String> = whole.map(str::to_owned).collect();
            for change in whole.iter().chain(&disks).chain(&group.changes) {
                target = format!("{},{change}", target.display()).into();
            }
        }
        experiment.targets.push(target);
        Ok(())
    }

    /// Returns the two settings of a simulated system with which the test file fills the whole
    /// device, as in the papers. None if the plan does not set `whole_device`, if
    /// requests are not direct, or if the user specified the size or position of the file.
    fn whole_device(&self, group: &Group, target: &StudyTarget) -> Option<[&'static str; 2]> {
        let name = target.name.to_string_lossy();
        let names_a_file = name.contains("file_size") || name.contains("file_at");
        let is_direct = group.experiment.direct == Some(true);
        let asked = self.plan.whole_device && is_direct && self.size.is_none();
        // The file size may exceed the device, because the simulator cuts the file off at the end
        // of the device.
        (asked && !names_a_file).then_some(["file_at=0", "file_size=1t"])
    }

    /// Measures groups whose targets are open. All trials are interleaved.
    ///
    /// # Errors
    /// If a request fails, or the user interrupts the study.
    pub fn run(&mut self, ready: &[Ready]) -> Outcome<()> {
        let mut settings: Vec<Setting<'_>> = Vec::new();
        let mut owners = Vec::new();
        for one in ready {
            for axes in &one.job.axes {
                settings.push(one.bench.setting(&one.job, axes));
                owners.push(one);
            }
        }
        let job = &ready[0].job;
        let soaker = job.soaker && self.lab.prepare_soaker().is_ok();
        let rounds = Rounds { trials: job.trials, soaker, seed: job.base.seed };
        let (points, measured) = rounds::measure(self.lab, &rounds, settings, self.recorder);
        for (owner, point) in owners.into_iter().zip(points) {
            self.add(owner, &[], point);
        }
        measured
    }

    /// Runs one trial of the given workload on an open target.
    ///
    /// # Errors
    /// If the workload does not fit the target, a request fails, the result is invalid, or the user
    /// interrupts the study.
    pub fn trial(&self, job: &Job, bench: &Bench, workload: Workload) -> Outcome<Trial> {
        let setting = Setting { workload, ..bench.setting(job, &job.axes[0]) };
        setting.place.check_fit(&setting.workload)?;
        let trial = self.lab.trial(&setting, &mut |_| {})?;
        if self.lab.must_stop()? {
            self.lab.check_ranks()?;
            return Err(Failure::interrupted());
        }
        if let Some(failure) = trial.failure() {
            return Err(Failure::failed(failure));
        }
        if trial.verdict.state == State::Invalid {
            let reasons = trial.verdict.reasons.join("; ");
            return Err(Failure::failed(format!(
                "the result is invalid: {reasons}; use a fully written file or the device"
            )));
        }
        Ok(trial)
    }

    /// Adds a measured point to the evidence. `notes` are labels that distinguish the point from
    /// other points of its group.
    pub fn add(&mut self, owner: &Ready, notes: &[(&str, &str)], point: Point) {
        if let Some(simulated) = owner.bench.facts().into_iter().find(|f| f.simulated.is_some())
            && let Some(target) = self.evidence.targets.get_mut(owner.first)
            && target.simulated.is_none()
        {
            *target = simulated;
        }
        if point.trials.is_empty() {
            return;
        }
        let summary = point.summary();
        let mut given = owner.group.given.clone();
        given.extend(notes.iter().map(|(name, word)| ((*name).to_owned(), (*word).to_owned())));
        self.evidence.points.push(MeasuredPoint {
            part: owner.group.part.clone(),
            target: self.study_targets[owner.first].name.display().to_string(),
            target_index: owner.first,
            disks: owner.disks,
            given,
            point,
            summary,
        });
    }

    /// Records that a part of the plan was left out. The same reason is recorded only once for each
    /// part.
    pub fn leave_out(&mut self, part: &str, reason: &str) {
        let left_out = LeftOut { part: part.to_owned(), reason: reason.to_owned() };
        if !self.evidence.left_out.contains(&left_out) {
            self.evidence.left_out.push(left_out);
        }
    }

    /// Records that the study was skipped.
    pub fn skip(&mut self, reason: impl Into<String>, remedy: impl Into<String>) {
        self.evidence.skipped = Some(Skipped { reason: reason.into(), remedy: remedy.into() });
    }
}

/// Returns the number of bytes in the simulated file after the offset of the experiment.
fn simulated_bytes(experiment: &Experiment) -> Option<u64> {
    let job = Job::resolve(experiment, true).ok()?;
    let bytes = simulated::facts(job.targets.simulated()?).size_bytes;
    Some(bytes.saturating_sub(experiment.offset_bytes))
}
