//! Runs trials with kernel tracepoints, which show how long requests spend in each phase. Trials
//! without tracing show the overhead of tracing.

use ioengine::extents::DiskExtents;
use ioengine::{EngineKind, Op};
use iotrace::{AppRequest, Declined, Extent, Phases, Trace, TraceSpec, Tracer, phases};
use lab::evidence::Evidence;
use lab::failure::{Failure, Outcome};
use lab::point::{Point, Trial};
use lab::point_key::PointKey;
use lab::rounds;
use lab::trials::{Lab, Place, Setting};

use crate::runner::{Ready, StudyRunner};

/// Maximum number of logged requests per trial, over all threads.
const LOGGED_MAX: usize = 1 << 20;
/// Pattern that matches the names of the worker threads.
const THREADS: &str = "worker-*";

/// Traces trials of one setting. The disk extents of the targets show to which target a traced
/// request belongs.
#[derive(Debug)]
pub struct Watch {
    places: Vec<DiskExtents>,
    uring: bool,
    threads: usize,
}

/// The result of tracing one trial.
#[derive(Debug, Default)]
pub struct TraceSummary {
    /// The times that the requests spent in each phase, for each target.
    pub phases: Vec<Phases>,
    /// Number of trace events that were lost, summed over all disks.
    pub lost: u64,
    /// Number of requests that did not fit into the log of the trial and are missing from the
    /// analysis.
    pub not_logged: u64,
}

impl Watch {
    /// Checks that tracing works on this host.
    ///
    /// # Errors
    /// The reason why tracing does not work, with the remedy.
    pub fn check() -> Result<(), Declined> {
        // Device 0:0 does not exist, so the trace stays empty.
        Tracer::start(&TraceSpec::new((0, 0), true, Some(THREADS))).map(drop)
    }

    /// Finds the disks of a setting's targets, and enables the log of requests.
    ///
    /// # Errors
    /// If the extents of a target on its disk are unknown. The message suggests an alternative.
    pub fn over(setting: &mut Setting<'_>) -> Outcome<Watch> {
        let Place::Host(targets) = &setting.place else {
            return Err(Failure::usage("a simulated system has no kernel to trace"));
        };
        let places = targets.iter().map(|target| Ok(target.extents()?));
        let places = places.collect::<Outcome<Vec<DiskExtents>>>()?;
        let (uring, threads) = {
            let workload = &mut setting.workload;
            let threads = workload.threads.max(1) as usize;
            workload.log = Some(LOGGED_MAX.div_ceil(threads * places.len().max(1)));
            (workload.engine_kind == EngineKind::IoUring, threads)
        };
        Ok(Watch { places, uring, threads })
    }

    /// Runs one traced trial.
    ///
    /// # Errors
    /// If the trial fails, or tracing does not work.
    pub fn trial(&self, lab: &Lab, setting: &Setting<'_>) -> Outcome<(Trial, TraceSummary)> {
        let declined = |declined: Declined| Failure::failed(declined.to_string());
        let disks = self.disks();
        let start =
            |disk: &(u32, u32)| Tracer::start(&TraceSpec::new(*disk, self.uring, Some(THREADS)));
        let tracers = disks.iter().map(start).collect::<Result<Vec<Tracer>, _>>();
        let tracers = tracers.map_err(declined)?;
        let before = lab.clock.clocks();
        let trial = lab.trial(setting, &mut |_| {})?;
        let after = lab.clock.clocks();
        let traces = tracers.into_iter().map(Tracer::stop).collect::<Result<Vec<Trace>, _>>();
        let traces = traces.map_err(declined)?;
        let kernel_ns = |ns| before.system_ns(&after, ns);
        let of_target = |(number, place): (usize, &DiskExtents)| {
            let asked = self.requests(&trial, number, &kernel_ns);
            let trace = disks.iter().zip(&traces).find(|(disk, _)| **disk == place.disk);
            trace.map(|(_, trace)| phases::split(trace, &asked, &in_trace(place)))
        };
        let phases = self.places.iter().enumerate().filter_map(of_target).collect();
        let lost = traces.iter().map(|trace| trace.lost.total()).sum();
        let seen = TraceSummary {
            phases,
            lost,
            not_logged: trial.live.as_ref().map_or(0, |live| live.log_lost),
        };
        Ok((trial, seen))
    }

    /// Returns the disks of all targets, without duplicates.
    fn disks(&self) -> Vec<(u32, u32)> {
        let mut disks: Vec<(u32, u32)> = self.places.iter().map(|place| place.disk).collect();
        disks.sort_unstable();
        disks.dedup();
        disks
    }

    /// Returns the requests that a trial sent to one target. The workers of the first target have
    /// the lowest numbers, followed by the workers of the second target, and so on.
    fn requests(
        &self,
        trial: &Trial,
        target: usize,
        kernel_ns: &dyn Fn(u64) -> u64,
    ) -> Vec<AppRequest> {
        let own = trial.log().iter().filter(|one| one.worker as usize / self.threads == target);
        let request = |one: &workload::LoggedRequest| AppRequest {
            submit_ns: kernel_ns(one.submit_ns),
            reaped_ns: kernel_ns(one.complete_ns),
            offset: one.offset,
            bytes: u64::from(one.length),
            write: one.op == Op::Write,
            user_data: None,
        };
        own.map(request).collect()
    }
}

/// Converts the extents of a target to the type of the trace.
fn in_trace(place: &DiskExtents) -> Vec<Extent> {
    let extents = place.extents.iter();
    extents.map(|e| Extent { offset: e.offset, bytes: e.bytes, sector: e.sector }).collect()
}

/// Measures each point of the groups twice, with and without tracing, in alternating trials. The
/// difference is the overhead of tracing. The label `traced` of a point is "yes" or "no". `tell` is
/// called after each traced point is added to the evidence. Points that cannot be traced are left
/// out.
///
/// # Errors
/// If a request fails, or tracing does not work.
pub fn by_turns(
    runner: &mut StudyRunner<'_>,
    ready: &[Ready],
    tell: impl Fn(&mut Evidence, &[TraceSummary]),
) -> Outcome<()> {
    let mut pairs = Vec::new();
    for owner in ready {
        for mut setting in owner.settings() {
            match Watch::over(&mut setting) {
                Ok(watch) => pairs.push(Pair::new(runner, owner, setting, watch)?),
                Err(failure) => runner.leave_out(owner.part(), &failure.message),
            }
        }
    }
    measure(runner, &mut pairs)?;
    pairs.into_iter().for_each(|pair| pair.add(runner, &tell));
    Ok(())
}

/// A point that is measured both without and with tracing.
struct Pair<'a> {
    owner: &'a Ready,
    setting: Setting<'a>,
    watch: Watch,
    /// The untraced and the traced point.
    points: [Point; 2],
    /// The numbers of the untraced and the traced point in the database.
    numbers: [usize; 2],
    seen: Vec<TraceSummary>,
}

impl<'a> Pair<'a> {
    fn new(
        runner: &mut StudyRunner<'_>,
        owner: &'a Ready,
        setting: Setting<'a>,
        watch: Watch,
    ) -> Outcome<Pair<'a>> {
        let untraced = setting.key();
        let traced = PointKey { traced: true, ..untraced.clone() };
        let numbers = [runner.recorder.add_point(&untraced)?, runner.recorder.add_point(&traced)?];
        let points = [untraced, traced].map(|key| Point { key, trials: Vec::new() });
        Ok(Pair { owner, setting, watch, points, numbers, seen: Vec::new() })
    }

    fn measure(&mut self, runner: &mut StudyRunner<'_>, round: u32, traced: bool) -> Outcome<()> {
        self.setting.workload.seed = rounds::seed_of(runner.base.seed, round);
        let trial = if traced {
            let (trial, seen) = self.watch.trial(runner.lab, &self.setting)?;
            self.seen.push(seen);
            trial
        } else {
            runner.lab.trial(&self.setting, &mut |_| {})?
        };
        let point = &mut self.points[usize::from(traced)];
        rounds::fail_on_errors(&trial, &point.key.describe())?;
        if trial.requests() > 0 {
            // The log has been evaluated, so it is dropped to save memory.
            let mut trial = Trial { ordinal: round, ..trial };
            trial.live_mut().log = Vec::new();
            runner.recorder.add_trial(self.numbers[usize::from(traced)], &trial)?;
            point.trials.push(trial);
        }
        Ok(())
    }

    fn add(self, runner: &mut StudyRunner<'_>, tell: &dyn Fn(&mut Evidence, &[TraceSummary])) {
        runner.recorder.judge(self.numbers[0], &self.points);
        let [untraced, traced] = self.points;
        runner.add(self.owner, &[("traced", "no")], untraced);
        if !traced.trials.is_empty() {
            runner.add(self.owner, &[("traced", "yes")], traced);
            tell(&mut runner.evidence, &self.seen);
        }
    }
}

/// Runs all trials, round by round. The order of the traced and the untraced trial of a pair
/// alternates between rounds.
fn measure(runner: &mut StudyRunner<'_>, pairs: &mut [Pair<'_>]) -> Outcome<()> {
    let rounds = pairs.iter().map(|pair| pair.owner.trials()).max().unwrap_or(0);
    let all = f64::from(rounds) * pairs.len() as f64 * 2.0;
    let (mut progress, mut done) = (runner.lab.console.open_progress(), 0.0);
    for round in 0..rounds {
        for (index, pair) in pairs.iter_mut().enumerate() {
            let first = (round as usize + index) % 2 == 1;
            for traced in [first, !first] {
                if !runner.lab.interrupt.is_set() {
                    pair.measure(runner, round, traced)?;
                }
                done += 1.0;
                progress.advance(Some(done / all), &pair.points[0].key.describe());
            }
        }
    }
    progress.finish();
    Ok(())
}
