//! Measures two or more workloads, or commands of other tools, in turn until the ratios of their
//! rates are known accurately enough.
//!
//! A round has one trial of each side. Every second round runs in reverse order, so that a slow
//! period of the machine affects all sides. The comparison ends when the intervals of all ratios
//! are narrow enough, or when the time budget is spent.
//! [`analysis::comparison::RatioTest::is_narrow`] explains why stopping early is sound.

use analysis::units;
use std::path::PathBuf;

use ioengine::clock::Clock;
use ioengine::clock::Monotonic;
use lab::bench::{self, Bench};
use lab::failure::{Failure, Outcome};
use lab::job::Job;
use lab::machine::{Host, TargetFacts};
use lab::point::{Point, Trial};
use lab::point_key::PointKey;
use lab::recorder::{Recorder, RunFacts, RunSettings};
use lab::rounds::{fail_on_errors, seed_of};
use lab::settings::Changed;
use lab::trials::{Lab, Setting};
use results::{RunKind, RunState};

use crate::command;
use crate::quantity::Quantity;
use crate::side::Side;
use crate::verdict::{self, Comparison};

/// A side of the comparison: a workload or a command to measure.
#[derive(Debug)]
pub struct Contestant {
    /// Arguments for the workload or command, as the user typed them. They are shown as the name.
    pub name: String,
    /// Label of the side's run in the database. None if the run has no label.
    pub label: Option<String>,
    /// Seed of the first round, from which the seeds of later rounds are derived.
    pub seed: u64,
    /// The workload or command to measure.
    pub work: Work,
}

/// What a contestant measures.
#[derive(Debug)]
pub enum Work {
    /// A workload whose requests halfpower issues.
    Job(Box<Job>),
    /// A command of another tool, which is run for each trial. Its results are not stored.
    Command(Vec<String>),
}

impl Contestant {
    fn job(&self) -> Option<&Job> {
        match &self.work {
            Work::Job(job) => Some(job),
            Work::Command(_) => None,
        }
    }
}

/// When to stop, and where to store the results.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Target precision. Measuring stops when the half-width of the confidence interval of every
    /// ratio is at most this share of the ratio.
    pub until: f64,
    /// Measuring stops after the round in which this time has passed (ns).
    pub budget_ns: u64,
    /// The database for the results. None if the results are not stored.
    pub db: Option<PathBuf>,
}

/// The results of a comparison.
#[derive(Debug)]
pub struct Measured {
    /// The sides in the order of the contestants.
    pub sides: Vec<Side>,
    /// Number of complete rounds.
    pub rounds: u32,
    /// Whether all intervals are as narrow as [`Terms::until`] requires.
    pub is_narrow: bool,
}

/// A contestant with its opened target.
struct Ready<'a> {
    contestant: &'a Contestant,
    /// The workload. None for a command.
    setting: Option<Setting<'a>>,
    recorder: Recorder,
    number: usize,
    target: TargetFacts,
    /// Name and version of the other tool. None for a workload, and before the first trial of a
    /// command.
    tool: Option<String>,
    point: Point,
}

/// Describes the plan, one line per step.
///
/// # Errors
/// A workload does not fit its target, or writing to a target is not allowed.
pub fn plan(contestants: &[Contestant], terms: &Terms) -> Outcome<Vec<String>> {
    let mut lines = Vec::new();
    for contestant in contestants {
        check(contestant)?;
        let Some(job) = contestant.job() else {
            lines.push(format!("would run the command {}", contestant.name));
            continue;
        };
        let preparation = bench::preparation(job)?;
        lines.push(format!("would measure {}", contestant.name));
        lines.extend(preparation.lines.iter().map(|line| format!("  {line}")));
        lines.extend(preparation.destroys.iter().map(|what| format!("  destroy {what}")));
    }
    lines.push(format!(
        "would repeat these measurements in turn, for at most {1}, until the ratio of the rates is \
         known to within {0}%; nothing was done",
        units::count(100.0 * terms.until),
        units::time(terms.budget_ns as f64)
    ));
    Ok(lines)
}

/// Measures the contestants.
///
/// # Errors
/// A target cannot be opened, writing to it is not allowed, a request fails, or the database cannot
/// be written.
pub fn measure(lab: &Lab, contestants: &[Contestant], terms: &Terms) -> Outcome<Measured> {
    for contestant in contestants {
        check(contestant)?;
        let Some(job) = contestant.job() else { continue };
        let preparation = bench::preparation(job)?;
        preparation.destroys.iter().for_each(|what| lab.console.warn(format!("destroying {what}")));
        Recorder::check(terms.db.as_deref(), job.targets.paths())?;
    }
    let jobs = contestants.iter().map(Contestant::job);
    let benches: Outcome<Vec<Option<Bench>>> =
        jobs.map(|job| job.map(|job| Bench::ready(job, lab)).transpose()).collect();
    let (benches, host) = (benches?, Host::read());
    let has_jobs = benches.iter().any(Option::is_some);
    let db = Recorder::open(terms.db.as_deref().filter(|_| has_jobs))?;
    let mut ready: Vec<Ready<'_>> = Vec::new();
    for (contestant, bench) in contestants.iter().zip(&benches) {
        ready.push(match (contestant.job(), bench) {
            (Some(job), Some(bench)) => Ready::new(contestant, (job, bench), &host, db.another()?)?,
            _ => Ready::of_command(contestant)?,
        });
    }
    let measured = rounds(lab, &mut ready, terms);
    let state = match (&measured, lab.interrupt.is_set()) {
        (Err(_), _) => RunState::Failed,
        (Ok(_), true) => RunState::Interrupted,
        (Ok(_), false) => RunState::Finished,
    };
    let mut sides = Vec::new();
    for ready in ready {
        let Ready { contestant, mut recorder, point, target, tool, .. } = ready;
        let points = vec![point];
        recorder.judge(0, &points);
        recorder.finish(state, None, Some(&points[0].summary().verdict))?;
        let side = Side::of(&contestant.name, host.clone(), target, points);
        sides.push(match tool {
            Some(tool) => Side::of_tool(&tool, side),
            None => side,
        });
    }
    let (rounds, is_narrow) = measured?;
    Ok(Measured { sides, rounds, is_narrow })
}

/// Refuses flags that a comparison does not support.
fn check(contestant: &Contestant) -> Outcome<()> {
    let name = &contestant.name;
    let Some(job) = contestant.job() else { return Ok(()) };
    let refused = if job.verify {
        "--verify"
    } else if job.log.is_some() {
        "a log of requests"
    } else if job.soaker {
        "a soaker"
    } else {
        return Ok(());
    };
    Err(Failure::usage(format!("--run '{name}': compare does not support {refused}; remove it")))
}

/// Measures rounds until the intervals are narrow enough or the budget is spent. Returns the number
/// of rounds, and whether the intervals are narrow enough.
fn rounds(lab: &Lab, ready: &mut [Ready<'_>], terms: &Terms) -> Outcome<(u32, bool)> {
    let clock = Monotonic::new();
    let start_ns = clock.now_ns();
    let mut progress = lab.console.open_progress();
    let mut message = "first round".to_owned();
    let (mut round, mut is_narrow) = (0, false);
    while !is_narrow {
        let count = ready.len();
        for turn in 0..count {
            // Every second round runs in reverse order (AB, BA), so that a slow drift of the
            // machine affects all sides equally.
            let place = if round % 2 == 0 { turn } else { count - 1 - turn };
            let share = || (clock.now_ns() - start_ns) as f64 / terms.budget_ns as f64;
            ready[place]
                .trial(lab, round, &mut || progress.advance(Some(share().min(1.0)), &message))?;
            if lab.interrupt.is_set() {
                ready.iter_mut().for_each(|ready| ready.point.trials.truncate(round as usize));
                progress.finish();
                return Ok((round, false));
            }
        }
        round += 1;
        let (widest, narrow) = width(ready, terms.until);
        is_narrow = narrow;
        message =
            format!("round {round}: the ratio of rates is known to within {:.1}%", 100.0 * widest);
        if clock.now_ns() - start_ns >= terms.budget_ns {
            break;
        }
    }
    progress.finish();
    Ok((round, is_narrow))
}

/// Returns the half-width of the widest interval of all ratios (as a share of the ratio), and
/// whether all intervals are narrow enough.
fn width(ready: &[Ready<'_>], until: f64) -> (f64, bool) {
    let rates = |ready: &Ready<'_>| -> Vec<f64> {
        ready.point.trials.iter().filter_map(|trial| Quantity::Rate.of(trial)).collect()
    };
    let baseline = rates(&ready[0]);
    let (mut widest, mut all_narrow) = (0.0_f64, true);
    for other in &ready[1..] {
        let test = analysis::comparison::paired_ratio_test(&baseline, &rates(other));
        let far = test.map_or(f64::INFINITY, |test| test.ratio.high / test.ratio.value - 1.0);
        widest = widest.max(far);
        all_narrow &= test.is_some_and(|test| test.is_narrow(until));
    }
    (widest, all_narrow)
}

/// Compares all other sides with the first side, which is the baseline.
pub fn comparisons(measured: &Measured, tolerated: f64) -> Vec<Comparison> {
    let [baseline, others @ ..] = measured.sides.as_slice() else { return Vec::new() };
    others.iter().map(|other| verdict::compare(baseline, other, tolerated)).collect()
}

impl<'a> Ready<'a> {
    fn new(
        contestant: &'a Contestant,
        (job, bench): (&'a Job, &'a Bench),
        host: &Host,
        mut recorder: Recorder,
    ) -> Outcome<Ready<'a>> {
        let axes = job.axes.first().ok_or_else(|| Failure::usage("no workload to measure"))?;
        let setting = bench.setting(job, axes);
        setting.place.check_fit(&setting.workload)?;
        let facts = bench.facts();
        recorder.begin(&RunFacts {
            kind: RunKind::Run,
            // Each side is stored as a separate run, with a command line that measures only this
            // side.
            command_line: Some(format!("halfpower run {}", contestant.name)),
            label: contestant.label.clone(),
            seed: contestant.seed,
            host,
            target: facts.first(),
            settings: RunSettings::default(),
        })?;
        let key = setting.key();
        let number = recorder.add_point(&key)?;
        let point = Point { key, trials: Vec::new() };
        let target = bench.facts().swap_remove(0);
        Ok(Ready {
            contestant,
            setting: Some(setting),
            recorder,
            number,
            target,
            tool: None,
            point,
        })
    }

    /// Prepares a command. Its workload is known only after the first trial.
    fn of_command(contestant: &'a Contestant) -> Outcome<Ready<'a>> {
        let (recorder, target) = (Recorder::open(None)?, TargetFacts::default());
        let point = Point { key: PointKey::default(), trials: Vec::new() };
        Ok(Ready { contestant, setting: None, recorder, number: 0, target, tool: None, point })
    }

    /// Measures a trial. Stores it unless it is the trial of a command.
    fn trial(&mut self, lab: &Lab, round: u32, tell: &mut dyn FnMut()) -> Outcome<()> {
        let mut trial = match &self.contestant.work {
            Work::Job(job) => self.issue(lab, job, round, tell)?,
            Work::Command(words) => {
                tell();
                let executed = command::execute(words)?;
                let Point { key, mut trials } = executed.point;
                (self.point.key, self.target) = (key, executed.target);
                self.tool = Some(executed.tool);
                trials.swap_remove(0)
            }
        };
        trial.ordinal = round;
        if self
            .point
            .trials
            .last()
            .is_some_and(|last| last.started_unix_ns >= trial.started_unix_ns)
            || trial.started_unix_ns == 0
        {
            // A simulated system has only virtual time, so the current time becomes the start.
            trial.started_unix_ns = ioengine::clock::unix_ns();
        }
        if self.setting.is_some() {
            self.recorder.add_trial(self.number, &trial)?;
        }
        self.point.trials.push(trial);
        Ok(())
    }

    /// Issues the requests of a trial. The device settings of this side are in effect during the
    /// trial.
    fn issue(
        &mut self,
        lab: &Lab,
        job: &Job,
        round: u32,
        tell: &mut dyn FnMut(),
    ) -> Outcome<Trial> {
        let Some(setting) = &mut self.setting else {
            return Err(Failure::failed("the target is not open; run the comparison again"));
        };
        setting.workload.seed = seed_of(self.contestant.seed, round);
        let changed = Changed::apply(job.targets.paths(), &job.host)?;
        let trial = lab.trial(setting, &mut |_| tell());
        let is_restored = changed.is_none_or(Changed::restore);
        let trial = trial?;
        if !is_restored {
            return Err(Failure::failed(
                "settings of the device could not be restored; run halfpower restore",
            ));
        }
        fail_on_errors(&trial, &self.contestant.name)?;
        Ok(trial)
    }
}
