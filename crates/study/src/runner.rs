//! What a study measures with: the points of its plan on the targets, interleaved as far as they
//! want the same settings of the device beneath, and room for readings of its own.

use std::path::PathBuf;

use ioengine::EngineKind;
use lab::bench::{self, Bench};
use lab::experiment::settings::Settings;
use lab::experiment::{Allocation, Experiment};
use lab::failure::{Exit, Failure, Outcome};
use lab::job::Job;
use lab::point::{Point, State, Trial};
use lab::recorder::Recorder;
use lab::rounds::{self, Rounds};
use lab::settings::{Changed, HostSetting};
use lab::trials::{Lab, Setting};
use workload::Workload;

use crate::evidence::{Evidence, LeftOut, MeasuredPoint, Skipped};
use crate::plan::{Group, Plan};
use crate::target::StudyTarget;

/// A trial of a simulated system that time ends is at least so long (ns).
const SIMULATED_NS: u64 = 2_000_000_000;

/// What a study measures with: the points of its plan on the targets, interleaved as far as they
/// want the same settings of the device beneath, and room for readings of its own.
pub struct StudyRunner<'a> {
    /// The laboratory.
    pub lab: &'a Lab,
    /// The targets, in the order in which they were named.
    pub study_targets: &'a [StudyTarget],
    /// What is to be measured.
    pub plan: &'a Plan,
    /// Fewer points and shorter trials.
    pub quick: bool,
    /// The drive's own write cache may be switched and put back.
    pub toggle_write_cache: bool,
    /// Seed, permissions and memory pages, which hold for all points.
    pub base: &'a Experiment,
    /// Settings that were typed and win over those of the plan.
    pub typed: &'a Settings,
    /// The size of test files that was typed (bytes): files that grow end there too.
    pub size: Option<u64>,
    /// Where finished trials go.
    pub recorder: &'a mut Recorder,
    /// What was found so far.
    pub evidence: Evidence,
    /// How the program would end for the first part that was left out.
    pub refused: Option<Exit>,
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
    /// The part to which what is measured from now on belongs.
    pub fn call(&mut self, part: &str) {
        self.group.part = part.to_owned();
    }

    /// The part to which it belongs.
    pub fn part(&self) -> &str {
        &self.group.part
    }

    /// How many targets work together.
    pub fn disks(&self) -> u32 {
        self.disks
    }

    /// What a flag is that is no axis of `sweep`; empty where it was not set.
    pub fn given(&self, flag: &str) -> &str {
        self.group.given.get(flag).map_or("", String::as_str)
    }

    /// What must be alike for trials to be interleaved: the world, and settings of the device.
    fn surroundings(&self) -> (bool, Vec<HostSetting>, Vec<PathBuf>) {
        let host = self.job.host.clone();
        // Without settings it is all one which target is measured when.
        let targets = if host.is_empty() { &[] } else { self.job.targets.paths() };
        (self.job.targets.simulated().is_some(), host, targets.to_vec())
    }

    /// Its points as they are measured, for trials in a way of their own.
    pub fn settings(&self) -> Vec<Setting<'_>> {
        self.job.axes.iter().map(|axes| self.bench.setting(&self.job, axes)).collect()
    }

    /// The place of its target, or of the first of several, among those of the rig.
    pub fn first(&self) -> usize {
        self.first
    }

    /// How often each of them is measured.
    pub fn trials(&self) -> u32 {
        self.job.trials
    }
}

impl StudyRunner<'_> {
    /// Measures all points of the plan: on each target by itself, or on as many together as the
    /// plan says. What does not fit a target is left out with the reason.
    ///
    /// # Errors
    /// When a request fails, or the user stopped it.
    pub fn measure(&mut self) -> Outcome<()> {
        self.measure_groups(&self.groups()?)
    }

    /// The groups of the plan.
    ///
    /// # Errors
    /// Usage, when there are too many.
    pub fn groups(&self) -> Outcome<Vec<Group>> {
        self.plan.groups(self.quick, self.typed)
    }

    /// Measures the points of some parts of the plan.
    ///
    /// # Errors
    /// As for [`StudyRunner::measure`].
    pub fn measure_parts(&mut self, wanted: &dyn Fn(&str) -> bool) -> Outcome<()> {
        let mut groups = self.groups()?;
        groups.retain(|group| wanted(&group.part));
        self.measure_groups(&groups)
    }

    /// Measures some groups, as [`StudyRunner::measure`] does those of the plan.
    ///
    /// # Errors
    /// See there.
    pub fn measure_groups(&mut self, groups: &[Group]) -> Outcome<()> {
        self.measure_groups_on(groups, self.study_targets)
    }

    /// The same on some of the targets.
    ///
    /// # Errors
    /// See there.
    pub fn measure_groups_on(
        &mut self,
        groups: &[Group],
        study_targets: &[StudyTarget],
    ) -> Outcome<()> {
        self.measure_groups_by(groups, study_targets, &Self::run)
    }

    /// The same in a way of its own, which takes the place of [`StudyRunner::run`].
    ///
    /// # Errors
    /// See there.
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
        while !ready.is_empty() && !self.lab.interrupt.is_set() {
            let together = ready[0].surroundings();
            let (now, later) = ready.into_iter().partition(|one| one.surroundings() == together);
            ready = later;
            self.run_changed(now, run)?;
        }
        Ok(())
    }

    /// Measures groups that want the same of the device beneath, which is put back afterwards.
    fn run_changed(
        &mut self,
        mut ready: Vec<Ready>,
        run: &dyn Fn(&mut Self, &[Ready]) -> Outcome<()>,
    ) -> Outcome<()> {
        let job = &ready[0].job;
        match Changed::apply(job.targets.paths(), &job.host) {
            Ok(None) => run(self, &ready)?,
            Ok(Some(changed)) => {
                // An open file keeps the read-ahead with which it was opened.
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

    /// Opens the targets of a group, or leaves it out.
    ///
    /// # Errors
    /// When the user stopped it.
    pub fn prepare(
        &mut self,
        group: &Group,
        study_targets: &[StudyTarget],
        ready: &mut Vec<Ready>,
    ) -> Outcome<()> {
        let sets: Vec<&[StudyTarget]> = match group.disks {
            None => study_targets.iter().map(std::slice::from_ref).collect(),
            Some(_) if study_targets.iter().all(StudyTarget::is_simulated) => {
                // Its disks are its own: several of them are imagined, none is borrowed.
                let first = &study_targets[0].name;
                if let Some(other) =
                    study_targets.iter().find(|study_target| study_target.name != *first)
                {
                    let (first, other) = (first.display(), other.name.display());
                    let reason = format!(
                        "disks of {first} do not work with those of {other}; it is measured \
                         alone: make a study of each"
                    );
                    self.leave_out(&group.part, &reason);
                }
                vec![&study_targets[..1]]
            }
            Some(_) if study_targets.iter().any(StudyTarget::is_simulated) => {
                let reason = "simulated and real targets do not work together; name one kind";
                self.leave_out(&group.part, reason);
                return Ok(());
            }
            Some(disks) => match study_targets.get(..disks as usize) {
                Some(together) => vec![together],
                None => {
                    let count = study_targets.len();
                    let reason = format!(
                        "it needs {disks} targets and has {count}; name them one behind the other"
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

    /// Opens targets for a group, to be measured in a way of its own.
    ///
    /// # Errors
    /// When the flags do not go together, or do not fit the targets.
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

    /// Leaves out the points that do not fit the targets: a size that they refuse, writes that
    /// nobody allowed.
    ///
    /// # Errors
    /// When none fits.
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

    /// What is measured of a group on some targets.
    ///
    /// # Errors
    /// Usage, when its parameters do not go together.
    pub fn experiment(&self, group: &Group, set: &[StudyTarget]) -> Outcome<Experiment> {
        let mut experiment = self.with_base(group);
        let simulated = set.iter().any(StudyTarget::is_simulated);
        // A simulated system tells both bounds of its CPU cost without one.
        experiment.soaker &= !simulated;
        if simulated && experiment.engine_kinds == [Some(EngineKind::Sync)] {
            // There one request at a time is the same, however it is issued.
            experiment.engine_kinds = vec![None];
        }
        for study_target in set {
            self.add_target(group, study_target, &mut experiment)?;
        }
        if simulated {
            // Virtual time costs nothing, and disks of the papers need seconds to get going.
            experiment.runtime_ns = experiment.runtime_ns.map(|ns| ns.max(SIMULATED_NS));
        }
        let bytes: Option<Vec<u64>> = set.iter().map(StudyTarget::bytes).collect();
        let most = bytes.and_then(|bytes| bytes.into_iter().min());
        let room = if experiment.allocation.grows() { self.size } else { most };
        let offset = experiment.offset_bytes;
        if let (Some(size), Some(most)) = (experiment.size_bytes, room) {
            // A plan asks for more than a small target has; a part of it will do.
            experiment.size_bytes = Some(size.min(most.saturating_sub(offset)));
        }
        if experiment.size_bytes.is_none() && !experiment.time_based {
            // Once through all of it at the most: a second pass may be a pass over some cache.
            experiment.size_bytes = match most {
                Some(bytes) => Some(bytes.saturating_sub(offset)),
                None => simulated_bytes(&experiment),
            };
        }
        Ok(experiment)
    }

    /// The experiment of a group, with what holds for all points unless the plan sets it.
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
                "--allocation {} cuts the file that other parts measure; name a directory",
                experiment.allocation.name()
            )));
        }
        let folder = study_target.folder().filter(|_| grows);
        let mut target = folder.unwrap_or(study_target.path()).to_path_buf();
        if folder.is_none() && study_target.folder().is_some() {
            // Our own test file, so there is nothing to ask.
            experiment.consent.overwrite.push(study_target.path().to_path_buf());
        }
        if study_target.is_simulated() {
            let disks = group.disks.map(|disks| format!("disks={disks}"));
            for change in disks.iter().chain(&group.changes) {
                target = format!("{},{change}", target.display()).into();
            }
        }
        experiment.targets.push(target);
        Ok(())
    }

    /// Measures groups whose targets are open, all interleaved.
    ///
    /// # Errors
    /// When a request fails, or the user stopped it.
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

    /// One trial of a workload of its own on an open target.
    ///
    /// # Errors
    /// When it does not fit or fails, measured the wrong thing, or the user stopped it.
    pub fn trial(&self, job: &Job, bench: &Bench, workload: Workload) -> Outcome<Trial> {
        let setting = Setting { workload, ..bench.setting(job, &job.axes[0]) };
        setting.place.check_fit(&setting.workload)?;
        let trial = self.lab.trial(&setting, &mut |_| {})?;
        if self.lab.interrupt.is_set() {
            return Err(Failure::interrupted());
        }
        if let Some(failure) = trial.failure() {
            return Err(Failure::failed(failure));
        }
        if trial.verdict.state == State::Invalid {
            let reasons = trial.verdict.reasons.join("; ");
            return Err(Failure::failed(format!(
                "it would measure the wrong thing: {reasons}; name a file that is written whole, \
                 or the device"
            )));
        }
        Ok(trial)
    }

    /// Adds a point of a group that was measured, with what tells it from others of the group.
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
        self.evidence.cells.push(MeasuredPoint {
            part: owner.group.part.clone(),
            target: self.study_targets[owner.first].name.display().to_string(),
            target_index: owner.first,
            disks: owner.disks,
            given,
            point,
            summary,
        });
    }

    /// Leaves a part out, once for each reason.
    pub fn leave_out(&mut self, part: &str, reason: &str) {
        let left_out = LeftOut { part: part.to_owned(), reason: reason.to_owned() };
        if !self.evidence.left_out.contains(&left_out) {
            self.evidence.left_out.push(left_out);
        }
    }

    /// Gives the study up.
    pub fn skip(&mut self, reason: impl Into<String>, remedy: impl Into<String>) {
        self.evidence.skipped = Some(Skipped { reason: reason.into(), remedy: remedy.into() });
    }
}

/// The size of the file of a simulated system, behind the offset (bytes).
fn simulated_bytes(experiment: &Experiment) -> Option<u64> {
    let job = Job::resolve(experiment, true).ok()?;
    Some(job.targets.simulated()?.system.setup.file_size.saturating_sub(experiment.offset_bytes))
}
