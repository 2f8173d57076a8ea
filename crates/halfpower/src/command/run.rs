//! `halfpower run` measures one workload. `halfpower sweep` measures all combinations of the values
//! in lists of parameters. `halfpower simulate` uses the same code.

use analysis::units;
use ioengine::Caching;
use lab::bench::{self, Bench};
use lab::console::{self, Console};
use lab::failure::{Exit, Failure, Outcome};
use lab::interrupt::Interrupt;
use lab::job::Job;
use lab::job_plan;
use lab::journal::settings::Change;
use lab::json::{self, PointDocument, Program, RunDocument, SweepDocument};
use lab::machine::{Host, TargetFacts};
use lab::point::{Point, State, Verdict};
use lab::rank_trial;
use lab::ranks::Ranks;
use lab::read_back::{distrust, note_writes, read_back};
use lab::recorder::{HostSettingDocument, Recorder, RunFacts, RunSettings};
use lab::request_log::RequestLog;
use lab::resource_usage::{self, SimulateDocument, SimulatedPoint};
use lab::rounds::{self, Rounds};
use lab::run_text::{point_line, replay_lines};
use lab::settings::{self, Changed};
use lab::terminal;
use lab::trace_load::TraceLoad;
use lab::trials::{Lab, Setting};
use results::{RunKind, RunState};

use crate::cli::{CommonArgs, RunArgs};

/// The subcommand that runs a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `run`: one workload is measured.
    Run,
    /// `sweep`: all combinations of the listed values are measured.
    Sweep,
    /// `simulate`: all combinations of the listed values are simulated, and the resource usage is
    /// printed.
    Simulate,
}

/// The measured points, for callers with their own output format.
pub struct Measured<'a> {
    /// Properties of the targets.
    pub facts: &'a [TargetFacts],
    /// All points, including those without trials.
    pub points: &'a [Point],
}

/// A function that prints measured points.
pub type Show<'a> = &'a dyn Fn(&Measured<'_>) -> Outcome<()>;

/// Measures the workloads and prints the results.
pub fn execute(args: &RunArgs, form: Form) -> Outcome {
    conduct(args, form, None)
}

/// Measures one workload and prints the result with `show`. With `--json`, also prints the
/// document.
pub fn execute_shown_by(args: &RunArgs, show: Show<'_>) -> Outcome {
    conduct(args, Form::Run, Some(show))
}

fn conduct(args: &RunArgs, form: Form, show: Option<Show<'_>>) -> Outcome {
    args.check_without_plan()?;
    if form == Form::Run {
        args.parameters.given.check_one_workload()?;
    }
    let job = Job::resolve(&args.experiment()?, form != Form::Run)?;
    measure_job(&Request { common: &args.common, planned: &args.planned, form, show }, &job)
}

/// Settings for [`measure_job`].
pub struct Request<'a> {
    /// Flags of every subcommand that measures.
    pub common: &'a CommonArgs,
    /// Flags from the plan file, such as `--bs=4k`. Empty if there is no plan file.
    pub planned: &'a [String],
    /// The subcommand that measures.
    pub form: Form,
    /// Prints the points. None for the usual output of the subcommand.
    pub show: Option<Show<'a>>,
}

/// Measures a job and prints the result. With `--plan`, prints what would be done instead.
pub fn measure_job(request: &Request<'_>, job: &Job) -> Outcome {
    let common = request.common;
    let console = Console::new(common.quiet);
    if common.plan {
        job_plan::lines(job, common.endurance)?.iter().for_each(|line| console::data(line));
        return Ok(Exit::Ok);
    }
    settings::warn_of_left_behind(&console);
    // All usage errors must be reported before anything is created.
    let preparation = bench::preparation(job)?;
    let db = (!common.no_store).then_some(common.db.as_path());
    let interrupt = Interrupt::install();
    Recorder::check(db, job.targets.paths())?;
    job.log.iter().try_for_each(|log| RequestLog::check(log, job.targets.paths()))?;
    preparation.destroys.iter().for_each(|what| console.warn(format!("destroying {what}")));
    let ranks = common.mpi.then(|| Ranks::meet(console, &interrupt)).transpose()?;
    let lab = Lab::of_rank(console, interrupt, ranks);
    let changed = Changed::apply(job.targets.paths(), &job.host)?;
    let made: Vec<Change> = changed.iter().flat_map(Changed::made).cloned().collect();
    let ended = measure_and_print(request, job, &lab, &made);
    match (changed.is_none_or(Changed::restore), ended) {
        (false, Ok(_)) => Ok(Exit::Failed),
        (_, ended) => ended,
    }
}

fn measure_and_print(request: &Request<'_>, job: &Job, lab: &Lab, made: &[Change]) -> Outcome {
    let Request { common, show, .. } = *request;
    let db = (!common.no_store).then_some(common.db.as_path());
    let bench = Bench::ready(job, lab)?;
    let mut recorder = Recorder::open(db)?;
    recorder.log_to(job.log.as_deref())?;
    let host = Host::read();
    let facts = bench.facts();
    let mut settings: Vec<Setting<'_>> =
        job.axes.iter().map(|axes| bench.setting(job, axes)).collect();
    let written = job.verify.then(|| note_writes(&mut settings)).flatten();
    // A workload that does not fit its target must be reported before anything is stored or
    // measured.
    for setting in &settings {
        setting.place.check_fit(&setting.workload)?;
    }
    announce(&lab.console, job, &settings, &facts, made);
    if job.soaker {
        lab.prepare_soaker().map_err(Failure::failed)?;
    }
    begin(&mut recorder, request, (&host, made), &facts)?;
    let rounds = Rounds { trials: job.trials, soaker: job.soaker, seed: job.base.seed };
    let (mut points, measured) = rounds::measure(lab, &rounds, settings, &mut recorder);
    // If a rank was lost, the points that were measured before the loss are stored and printed.
    let lost = lab.check_ranks();
    if let (Err(failure), Ok(())) = (measured, &lost) {
        // The failure of the measurement is returned. If the database also fails, its message is
        // printed as a warning, unless both messages are the same.
        match recorder.finish(RunState::Failed, None, None) {
            Err(also) if also.message != failure.message => lab.console.warn(&also.message),
            _ => {}
        }
        return Err(failure);
    }
    let written = written.as_ref().filter(|_| lost.is_ok());
    let checked = written.map_or(Ok(()), |written| read_back(lab, job, &bench, written));
    if let Err(failure) = &checked {
        distrust(&mut points, &failure.message);
        recorder.judge(0, &points);
    }
    let state = match lost.is_err() || checked.is_err() {
        true => RunState::Failed,
        false if lab.interrupt.is_set() => RunState::Interrupted,
        false => RunState::Finished,
    };
    warn_of_lost(&lab.console, job, recorder.log_lost());
    let kept = recorder.finish(state, None, Some(&verdict_of(&points)));
    let shown = show.map(|show| show(&Measured { facts: &facts, points: &points }));
    if show.is_none() || common.json {
        print(request, job, (&host, made), facts, &points);
    }
    checked?;
    kept?;
    shown.transpose()?;
    lost?;
    exit_of(lab, &points)
}

/// Warns if the request log is incomplete.
fn warn_of_lost(console: &Console, job: &Job, lost: u64) {
    if let Some(log) = job.log.as_ref().filter(|_| lost > 0) {
        console.warn(format!(
            "{} is incomplete: the last {} requests did not fit in memory; use a shorter --runtime \
            or a smaller --size",
            log.display(),
            units::count(lost as f64)
        ));
    }
}

/// Prints what will be measured.
fn announce(
    console: &Console,
    job: &Job,
    settings: &[Setting<'_>],
    facts: &[TargetFacts],
    made: &[Change],
) {
    let names: Vec<&str> = facts.iter().map(|fact| fact.name.as_str()).collect();
    let first = &settings[0];
    let caching = first.place.caching();
    let why = match (job.direct, caching) {
        _ if !job.targets.does_io() => "",
        (None, Caching::Buffered) => " (direct I/O is not available)",
        _ => "",
    };
    let length = match (first.workload.limit_ns, first.workload.limit_bytes) {
        (Some(ns), _) => units::time(ns as f64),
        (None, Some(bytes)) => units::size(bytes),
        (None, None) if first.workload.replay.is_some() => "the whole trace".to_owned(),
        (None, None) => "unbounded".to_owned(),
    };
    let what = if settings.len() == 1 {
        first.key().describe()
    } else {
        format!("{} workloads", settings.len())
    };
    let place = facts[0].place();
    let plural = if job.trials == 1 { "trial" } else { "trials" };
    let word = |change: &Change| {
        let wanted = change.wanted.as_deref().unwrap_or_default();
        format!(", {} {wanted} (was {})", change.name, change.old)
    };
    let changes: String = made.iter().map(word).collect();
    console.say(format!(
        "{what}{why} on {} ({place}), {} {plural} of {length}{changes}",
        names.join(", "),
        job.trials
    ));
    job.trace.iter().flat_map(TraceLoad::notes).for_each(|note| console.say(note));
}

fn begin(
    recorder: &mut Recorder,
    request: &Request<'_>,
    (host, made): (&Host, &[Change]),
    facts: &[TargetFacts],
) -> Outcome<()> {
    let Request { common, form, .. } = *request;
    recorder.begin(&RunFacts {
        kind: if form == Form::Run { RunKind::Run } else { RunKind::Sweep },
        command_line: None,
        label: common.label.clone(),
        seed: common.seed,
        host,
        target: facts.first(),
        settings: RunSettings {
            pap_bytes_per_s: common.pap,
            plan_file: request.planned.to_vec(),
            host_settings: documents(made),
            ..RunSettings::default()
        },
    })
}

fn documents(made: &[Change]) -> Vec<HostSettingDocument> {
    made.iter().map(HostSettingDocument::of).collect()
}

fn verdict_of(points: &[Point]) -> Verdict {
    let mut verdict = Verdict::default();
    points.iter().for_each(|point| verdict.merge(&point.summary().verdict));
    verdict
}

fn exit_of(lab: &Lab, points: &[Point]) -> Outcome {
    if lab.interrupt.is_set() {
        return Ok(Exit::Interrupted);
    }
    match verdict_of(points).state {
        State::Invalid => Ok(Exit::Invalid),
        _ => Ok(Exit::Ok),
    }
}

fn print(
    request: &Request<'_>,
    job: &Job,
    (host, made): (&Host, &[Change]),
    facts: Vec<TargetFacts>,
    points: &[Point],
) {
    let Request { common, form, .. } = *request;
    let measured: Vec<&Point> = points.iter().filter(|point| !point.trials.is_empty()).collect();
    if !common.json {
        for point in measured {
            let line = point_line(point, common.pap, job.percentiles());
            console::data(&terminal::for_stdout(&line));
            replay_lines(point).iter().for_each(|line| console::data(line));
            let last = point.trials.last();
            let last = last.map(|trial| rank_trial::lines(&trial.ranks, point.trials.len()));
            last.iter().flatten().for_each(|line| console::data(line));
            if form == Form::Simulate {
                resource_usage::of(point).lines().iter().for_each(|line| console::data(line));
            }
        }
        return;
    }
    let host_settings = documents(made);
    let document = |point: &Point| match &job.percentiles {
        Some(asked) => PointDocument::from(point).with_percentiles(point, asked),
        None => PointDocument::from(point),
    };
    let (halfpower, host, target) = (Program::this(), host.clone(), facts[0].clone());
    console::data(&match (form, points) {
        (Form::Run, [point]) => {
            let targets = if facts.len() > 1 { facts } else { Vec::new() };
            let point = document(point);
            json::print(&RunDocument { halfpower, host, target, targets, host_settings, point })
        }
        (Form::Run | Form::Sweep, points) => {
            let points = points.iter().map(document).collect();
            json::print(&SweepDocument { halfpower, host, target, host_settings, points })
        }
        (Form::Simulate, points) => {
            let point = |point| SimulatedPoint {
                point: document(point),
                balance: resource_usage::of(point),
            };
            let points = points.iter().map(point).collect();
            json::print(&SimulateDocument::new((halfpower, host, target), points))
        }
    });
}
