//! `halfpower run` and `halfpower sweep`: measure one workload, or all combinations of lists of
//! parameters. `simulate` uses the same code.

use std::sync::Arc;

use ioengine::Caching;
use lab::bench::{self, Bench};
use lab::console::{self, Console};
use lab::failure::{Exit, Failure, Outcome};
use lab::interrupt::Interrupt;
use lab::job::Job;
use lab::journal::settings::Change;
use lab::json::{self, PointDocument, Program, RunDocument, SweepDocument};
use lab::machine::{Host, TargetFacts};
use lab::point::{Point, State, Verdict};
use lab::recorder::{HostSettingDocument, Recorder, RunFacts, RunSettings};
use lab::request_log::RequestLog;
use lab::resource_usage::{self, SimulateDocument, SimulatedPoint};
use lab::rounds::{self, Rounds, bytes_of, fail_on_errors, share_of};
use lab::settings::{self, Changed};
use lab::trials::{Lab, Setting};
use results::{RunKind, RunState};
use workload::spec::Content;
use workload::{Workload, Written, content};

use crate::cli::RunArgs;

/// The command for which a job is resolved, printed and stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One workload.
    Run,
    /// All combinations of the lists.
    Sweep,
    /// All combinations in a simulated system, with its resource usage.
    Simulate,
}

/// The measured points, for callers with their own output format.
pub struct Measured<'a> {
    /// The targets.
    pub facts: &'a [TargetFacts],
    /// All points, including those without trials.
    pub points: &'a [Point],
}

/// Prints measured points.
pub type Show<'a> = &'a dyn Fn(&Measured<'_>) -> Outcome<()>;

/// Measures and prints.
pub fn execute(args: &RunArgs, form: Form) -> Outcome {
    conduct(args, form, None)
}

/// Measures one workload and prints it with `show`; with `--json` also prints the document.
pub fn execute_shown_by(args: &RunArgs, show: Show<'_>) -> Outcome {
    conduct(args, Form::Run, Some(show))
}

fn conduct(args: &RunArgs, form: Form, show: Option<Show<'_>>) -> Outcome {
    let console = Console::new(args.common.quiet);
    args.check_without_plan()?;
    if form == Form::Run {
        args.parameters.given.check_one_workload()?;
    }
    let job = Job::resolve(&args.experiment()?, form != Form::Run)?;
    if args.common.plan {
        return print_plan(&job, args.common.endurance);
    }
    settings::warn_of_left_behind(&console);
    // Report all usage errors before anything is created.
    let preparation = bench::preparation(&job)?;
    let db = (!args.common.no_store).then_some(args.common.db.as_path());
    let interrupt = Interrupt::install();
    Recorder::check(db, job.targets.paths())?;
    job.log.iter().try_for_each(|log| RequestLog::check(log, job.targets.paths()))?;
    preparation.destroys.iter().for_each(|what| console.warn(format!("destroying {what}")));
    let lab = Lab::new(console, interrupt);
    let changed = Changed::apply(job.targets.paths(), &job.host)?;
    let made: Vec<Change> = changed.iter().flat_map(Changed::made).cloned().collect();
    let ended = measure_and_print(args, (form, show), &job, &lab, &made);
    match (changed.is_none_or(Changed::restore), ended) {
        (false, Ok(_)) => Ok(Exit::Failed),
        (_, ended) => ended,
    }
}

fn measure_and_print(
    args: &RunArgs,
    (form, show): (Form, Option<Show<'_>>),
    job: &Job,
    lab: &Lab,
    made: &[Change],
) -> Outcome {
    let db = (!args.common.no_store).then_some(args.common.db.as_path());
    let bench = Bench::ready(job, lab)?;
    let mut recorder = Recorder::open(db)?;
    recorder.log_to(job.log.as_deref())?;
    let host = Host::read();
    let facts = bench.facts();
    let mut settings: Vec<Setting<'_>> =
        job.axes.iter().map(|axes| bench.setting(job, axes)).collect();
    let written = job.verify.then(|| note_writes(&mut settings)).flatten();
    // Report workloads that do not fit before anything is stored or measured.
    for setting in &settings {
        setting.place.check_fit(&setting.workload)?;
    }
    announce(&lab.console, job, &settings, &facts, made);
    if job.soaker {
        lab.prepare_soaker().map_err(Failure::failed)?;
    }
    begin(&mut recorder, args, form, (&host, made), &facts)?;
    let rounds = Rounds { trials: job.trials, soaker: job.soaker, seed: job.base.seed };
    let (mut points, measured) = rounds::measure(lab, &rounds, settings, &mut recorder);
    if let Err(failure) = measured {
        // A database error must not hide the first failure, and is not reported twice.
        match recorder.finish(RunState::Failed, None, None) {
            Err(also) if also.message != failure.message => lab.console.warn(&also.message),
            _ => {}
        }
        return Err(failure);
    }
    let checked = written.as_ref().map_or(Ok(()), |written| read_back(lab, job, &bench, written));
    if let Err(failure) = &checked {
        distrust(&mut points, &failure.message);
        recorder.judge(0, &points);
    }
    let state = match checked {
        Err(_) => RunState::Failed,
        Ok(()) if lab.interrupt.is_set() => RunState::Interrupted,
        Ok(()) => RunState::Finished,
    };
    warn_of_lost(&lab.console, job, recorder.log_lost());
    let kept = recorder.finish(state, None, Some(&verdict_of(&points)));
    let shown = show.map(|show| show(&Measured { facts: &facts, points: &points }));
    if show.is_none() || args.common.json {
        print(args, job, form, (&host, made), facts, &points);
    }
    checked?;
    kept?;
    shown.transpose()?;
    exit_of(lab, &points)
}

/// Makes verified writes record what they wrote; None if nothing is written.
fn note_writes(settings: &mut [Setting<'_>]) -> Option<Arc<Written>> {
    let workload = &settings.iter().find(|setting| setting.workload.writes())?.workload;
    let block_bytes = content::block_bytes(workload.request_bytes)? as u64;
    let region = workload.region_offset..workload.region_offset + workload.region_bytes;
    let written = Arc::new(Written::new(block_bytes, region));
    for setting in settings.iter_mut() {
        setting.workload.written = Some(Arc::clone(&written));
    }
    Some(written)
}

/// Warns that the request log is incomplete.
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

fn print_plan(job: &Job, endurance: Option<u64>) -> Outcome {
    let preparation = bench::preparation(job)?;
    let changes = settings::plan(job.targets.paths(), &job.host)?;
    for line in preparation.lines.iter().chain(&changes) {
        console::data(line);
    }
    preparation.destroys.iter().for_each(|what| console::data(&format!("destroy {what}")));
    let (mut seconds, mut endless, mut writes) = (0.0, false, preparation.write_bytes);
    let mut at_least = "";
    for axes in &job.axes {
        let workload = job.workload(axes, preparation.region_bytes, job.direct.unwrap_or(true));
        let trials = u64::from(job.trials) * if job.soaker { 2 } else { 1 };
        match workload.limit_ns {
            Some(ns) => seconds += trials as f64 * (ns + workload.warm_up_ns) as f64 / 1e9,
            None => endless = true,
        }
        let share = f64::from(100 - axes.read_percent) / 100.0;
        let warms_up = workload.warm_up_ns > 0 || workload.steady.is_some();
        if share > 0.0 && (workload.limit_bytes.is_none() || warms_up) {
            at_least = "at least ";
        }
        // Each target gets the whole workload.
        let targets = job.targets.count() as u64;
        let written = (workload.limit_bytes.unwrap_or(0) as f64 * share) as u64;
        writes = writes.saturating_add(written.saturating_mul(trials * targets));
        console::data(&format!(
            "{} {} x depth {} x {} threads, {trials} trials",
            workload.rw(),
            units::size(u64::from(axes.request_bytes)),
            axes.depth,
            axes.threads
        ));
    }
    if !job.targets.paths().is_empty() {
        let share = units::share_of_endurance(writes, endurance);
        console::data(&format!("writes {at_least}{} in all{share}", units::size(writes)));
    }
    let spent = if job.targets.simulated().is_some() { "virtual time" } else { "measuring" };
    let time = if endless && job.targets.simulated().is_some() {
        "the virtual time needed to move those bytes".to_owned()
    } else if endless {
        "as long as it takes to move those bytes".to_owned()
    } else if job.base.steady.is_some() {
        format!("{seconds} s of {spent}, and up to 10 min before each trial to reach steady state")
    } else {
        format!("{seconds} s of {spent}")
    };
    console::data(&format!("would take {time}; nothing was done"));
    Ok(Exit::Ok)
}

/// Prints what is about to be measured, with all defaults.
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
        (None, Caching::Buffered) => " (no direct I/O here)",
        _ => "",
    };
    let length = match (first.workload.limit_ns, first.workload.limit_bytes) {
        (Some(ns), _) => units::time(ns as f64),
        (None, Some(bytes)) => units::size(bytes),
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
}

fn begin(
    recorder: &mut Recorder,
    args: &RunArgs,
    form: Form,
    (host, made): (&Host, &[Change]),
    facts: &[TargetFacts],
) -> Outcome<()> {
    recorder.begin(&RunFacts {
        kind: if form == Form::Run { RunKind::Run } else { RunKind::Sweep },
        label: args.common.label.clone(),
        seed: args.common.seed,
        host,
        target: facts.first(),
        settings: RunSettings {
            pap_bytes_per_s: args.common.pap,
            plan_file: args.planned.clone(),
            host_settings: documents(made),
            ..RunSettings::default()
        },
    })
}

fn documents(made: &[Change]) -> Vec<HostSettingDocument> {
    made.iter().map(HostSettingDocument::of).collect()
}

/// After verified writes, reads back and checks exactly the written blocks.
fn read_back(lab: &Lab, job: &Job, bench: &Bench, written: &Arc<Written>) -> Outcome<()> {
    let end = written.end_of_last_block();
    let whole = end > 0 && job.targets.does_io() && !lab.interrupt.is_set();
    let Some(axes) = job.axes.first().filter(|_| whole) else { return Ok(()) };
    let direct = bench.place().caching().is_direct();
    let of_writes = job.workload(axes, bench.region_bytes, direct);
    let (offset, request) = (of_writes.region_offset, u64::from(of_writes.request_bytes));
    let region = end.saturating_sub(offset).next_multiple_of(request);
    let region = region.min(bench.region_bytes / request * request);
    let workload = Workload {
        read_percent: 100,
        content: Content::Verified,
        written: Some(Arc::clone(written)),
        engine_kind: of_writes.engine_kind,
        options: of_writes.options,
        request_bytes: of_writes.request_bytes,
        depth: of_writes.depth,
        region_offset: offset,
        region_bytes: region,
        limit_bytes: Some(region),
        pages: of_writes.pages,
        ..Workload::default()
    };
    let setting = Setting {
        scrub: !direct && bench.can_scrub(),
        allow_holes: true,
        ..Setting::at(bench.place(), workload)
    };
    let mut progress = lab.console.open_progress();
    let bounds = (None, bytes_of(&setting), 0);
    let trial = lab.trial(&setting, &mut |at| {
        progress.advance(Some(share_of(at, bounds)), "reading back");
    })?;
    progress.finish();
    fail_on_errors(&trial, "reading back")?;
    lab.console.say(format!("verified {}: every block is correct", units::size(trial.bytes())));
    Ok(())
}

/// Marks every point that wrote as invalid, because verification failed.
fn distrust(points: &mut [Point], why: &str) {
    let wrote = points.iter_mut().filter(|point| point.key.read_percent() < 100);
    for trial in wrote.filter_map(|point| point.trials.last_mut()) {
        trial.verdict.add(State::Invalid, why);
    }
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
    args: &RunArgs,
    job: &Job,
    form: Form,
    (host, made): (&Host, &[Change]),
    facts: Vec<TargetFacts>,
    points: &[Point],
) {
    let measured: Vec<&Point> = points.iter().filter(|point| !point.trials.is_empty()).collect();
    if !args.common.json {
        for point in measured {
            console::data(&line(point, args.common.pap, job.percentiles()));
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

/// The output line of a point.
fn line(point: &Point, pap: Option<f64>, percentiles: &[f64]) -> String {
    let summary = point.summary();
    let percentile = |p: &f64| {
        let found = summary.latency.quantile(p / 100.0);
        let time = found.map_or_else(|| "-".into(), |ns| units::time(ns as f64));
        format!("p{p} {time}")
    };
    let percentiles: Vec<String> = percentiles.iter().map(percentile).collect();
    let rate = summary.bytes_per_s;
    let spread = match point.unsoaked().len() {
        1 => String::new(),
        _ => format!(" +-{:.1}%", 100.0 * rate.half_width_relative()),
    };
    let cpu = match (summary.cpu_lower_ns, summary.cpu_upper_ns) {
        (Some(low), Some(high)) => format!("{} to {}", units::time(low), units::time(high)),
        (Some(low), None) => units::time(low),
        _ => "-".to_owned(),
    };
    let share = pap.map(|pap| format!(", {:.0}% of PAP", 100.0 * rate.value / pap));
    let reasons = match summary.verdict.reasons.as_slice() {
        [] => String::new(),
        reasons => format!(" ({})", reasons.join("; ")),
    };
    format!(
        "{}: {}{spread}{}, {} requests/s, {}, CPU {cpu}/request, {}{reasons}",
        point.key.describe(),
        units::rate(rate.value),
        share.unwrap_or_default(),
        units::count(summary.requests_per_s.value),
        percentiles.join(", "),
        summary.verdict.state.word(),
    )
}
