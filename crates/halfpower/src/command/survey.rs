//! `halfpower survey`: the main job. Checks everything that can be wrong, lays out the test file,
//! has the spots measured, and turns the evidence into words, a page and database rows.

use std::path::{Path, PathBuf};

use ioengine::clock::unix_ns;
use ioengine::{Clock, Target, TargetKind};
use lab::bench;
use lab::console::{self, Console};
use lab::failure::{Exit, Failure, Outcome};
use lab::guard::{self, Permit};
use lab::interrupt::Interrupt;
use lab::json;
use lab::machine::{Host, TargetFacts};
use lab::memory_limit;
use lab::page;
use lab::point::State;
use lab::recorder::{Recorder, RunFacts};
use lab::scratch::{self, LaidOut, Scratch};
use lab::settings;
use lab::sim_target::SimPlace;
use lab::trials::Lab;
use results::{RunKind, RunState};
use survey::consistency;
use survey::document::{self, WroteDocument};
use survey::evidence::{Evidence, Facts};
use survey::findings;
use survey::grid::{self, Budget};
use survey::insight::Insight;
use survey::measure::{self, Bounds, Subject, Survey, Surveyed};
use survey::memory;
use survey::view;

use crate::cli::SurveyArgs;

/// What a survey takes for buffers and results at the least (bytes).
const MEMORY_LEAST_BYTES: u64 = 32 << 20;
/// The rate of writes where nothing has been written yet, for bounding the first ones
/// [bytes per second].
const SLOW_DISK: f64 = 100e6;
/// What a test file may take of the budget, as a share.
const LAYOUT_SHARE: f64 = 0.1;

/// Where a survey works.
enum Place {
    /// A test file is laid out there.
    Directory(PathBuf),
    /// It is there already.
    Existing(PathBuf),
    /// Nothing of this host is touched.
    Simulated(Box<SimPlace>),
}

/// Measures, analyses, writes and prints.
pub fn execute(args: &SurveyArgs) -> Outcome {
    let console = Console::new(args.common.quiet);
    let mut effort = Budget::of(args.quick, args.thorough, args.budget).for_app(args.app);
    if effort.budget_ns < 5_000_000_000 {
        return Err(Failure::usage("--budget is too short for a survey; give at least 5s"));
    }
    let place = place_of(args)?;
    if matches!(place, Place::Simulated(_)) {
        effort = effort.in_virtual_time();
    }
    let pages = args.common.buffer_pages;
    let size = size_of(&place, args, &effort)?;
    if args.common.plan {
        return plan(args, &place, size, &effort);
    }
    settings::warn_of_left_behind(&console);
    check_size(&place, size, args)?;
    let (write, not_written, permit) = may_write(&place, args)?;
    let interrupt = Interrupt::install();
    let db = check_outputs(args)?;
    let lab = Lab::new(console, interrupt);
    let (start_ns, started_unix_ns) = (lab.clock.now_ns(), unix_ns());
    if let Some(what) = permit.as_ref().and_then(|permit| permit.destroys.as_ref()) {
        console.warn(format!("destroying {what}"));
    }
    announce(&console, args, &place, size, &effort);
    let (scratch, laid_out) = lay_out(&lab, &place, size, args, &effort)?.unzip();
    let size = laid_out.map(|laid_out| laid_out.bytes).or(size);
    let path = scratch.as_ref().map_or(args.target.as_path(), Scratch::path);
    let subject = subject_of(&place, path, write, size)?;
    check_again(&subject, scratch.as_ref(), permit.as_ref())?;
    let host = Host::read();
    let target = TargetFacts { name: name_of(&args.target), ..subject.facts() };
    let mut recorder = Recorder::open(db)?;
    begin(&mut recorder, args, &host, &target)?;
    let mut facts = measure::notes(&lab, &subject, &effort, args.common.pap);
    facts.not_written = not_written;
    facts.layout_bytes_per_s = laid_out.map(|laid_out| laid_out.bytes_per_s);
    let written = laid_out.map_or(0, |laid_out| laid_out.bytes);
    let prepared = prepare(&lab, &subject, &mut facts);
    let bounds = Bounds {
        deadline_ns: start_ns + effort.budget_ns,
        write_left: write_left(args, &subject, written),
        write_rate: facts.layout_bytes_per_s.unwrap_or(SLOW_DISK),
        soak: facts.soaker_declined.is_none() && !subject.is_simulated(),
        seed: args.common.seed,
        allow_holes: args.common.allow_holes,
        pages,
    };
    let survey = Survey::new(&lab, &subject, effort, &bounds, &mut recorder);
    let measured = prepared.and_then(|()| survey.run());
    let Surveyed { points, write_left, visits, second_visit } = match measured {
        Ok(measured) => measured,
        Err(failure) => {
            recorder.finish(RunState::Failed, None, None)?;
            return Err(failure);
        }
    };
    (facts.visits, facts.second_visit) = (visits, second_visit);
    let is_simulated = subject.is_simulated();
    let made_bytes = written + bounds.write_left - write_left;
    facts.written_bytes = if is_simulated { 0 } else { made_bytes };
    drop(subject);
    drop(scratch);
    facts.elapsed_ns = lab.clock.now_ns() - start_ns;
    facts.interrupted = lab.interrupt.is_set();
    facts.cpu_quota = quota_felt(&lab, facts.elapsed_ns).filter(|_| !is_simulated);
    let evidence = Evidence { host, target, points, facts, started_unix_ns };
    conclude(args, &console, recorder, &evidence)
}

/// The CPU quota of the control group (CPUs), if it held the program back.
fn quota_felt(lab: &Lab, elapsed_ns: u64) -> Option<f64> {
    let throttled = lab.throttled()?;
    throttled.felt_share(elapsed_ns).map(|_| throttled.cpus)
}

/// Refuses to begin what a limit on memory would end without a word.
fn check_memory() -> Outcome<()> {
    match memory_limit::narrowest() {
        Some(limit) if limit.bytes < MEMORY_LEAST_BYTES => Err(Failure::failed(format!(
            "{} leaves {} for buffers and results, and a survey takes {}; raise it",
            limit.what,
            units::size(limit.bytes),
            units::size(MEMORY_LEAST_BYTES)
        ))),
        _ => Ok(()),
    }
}

/// What the target is.
fn place_of(args: &SurveyArgs) -> Outcome<Place> {
    if let Some(place) = SimPlace::of_survey(&args.experiment())? {
        return Ok(Place::Simulated(Box::new(place)));
    }
    bench::check_path(&args.target, &args.common.consent())?;
    match args.target.is_dir() {
        true => Ok(Place::Directory(args.target.clone())),
        false => Ok(Place::Existing(args.target.clone())),
    }
}

/// The target in both caching modes.
fn subject_of(place: &Place, path: &Path, write: bool, size: Option<u64>) -> Outcome<Subject> {
    match place {
        Place::Simulated(place) => Ok(Subject::simulated(place, size)),
        _ => Subject::open(path, write, size),
    }
}

/// Refuses too little memory, and a page or a database that could not be written, or would be each
/// other; where the database goes.
fn check_outputs(args: &SurveyArgs) -> Outcome<Option<&Path>> {
    check_memory()?;
    page::check(&args.html)?;
    if !args.common.no_store && page::is_beside(&args.html, &args.common.db) {
        return Err(Failure::usage(format!(
            "--html {} and --db {} are in each other's way; give them different names",
            args.html.display(),
            args.common.db.display()
        )));
    }
    let db = (!args.common.no_store).then_some(args.common.db.as_path());
    Recorder::check(db, std::slice::from_ref(&args.target))?;
    Ok(db)
}

/// What was opened again may be something else by now, so it is checked again.
fn check_again(
    subject: &Subject,
    scratch: Option<&Scratch>,
    permit: Option<&Permit>,
) -> Outcome<()> {
    for target in subject.opened() {
        scratch.map_or(Ok(()), |scratch| scratch.check(target))?;
        permit.map_or(Ok(()), |permit| permit.check(target))?;
    }
    Ok(())
}

/// Analysis, database, page and words.
fn conclude(
    args: &SurveyArgs,
    console: &Console,
    mut recorder: Recorder,
    evidence: &Evidence,
) -> Outcome {
    let insight = Insight::of(evidence);
    let interrupted = evidence.facts.interrupted;
    let state = if interrupted { RunState::Interrupted } else { RunState::Finished };
    let findings_json = serde_json::to_string(&evidence.facts).ok();
    recorder.judge(0, &evidence.points);
    // The page is worth having even if the database is full, and the words even without the page.
    let kept = recorder.finish(state, findings_json, Some(&insight.verdict));
    let page = if insight.seen.is_empty() {
        Ok(())
    } else {
        page::write(&args.html, &view::html(evidence, &insight))
    };
    let wrote = WroteDocument {
        db: (!args.common.no_store && kept.is_ok()).then(|| args.common.db.display().to_string()),
        html: (page.is_ok() && !insight.seen.is_empty()).then(|| args.html.display().to_string()),
    };
    if args.common.json {
        console::data(&json::print(&document::of(evidence, &insight, wrote)));
    } else if !insight.seen.is_empty() {
        console::data(&findings::text(evidence, &insight));
        let places: Vec<String> = [wrote.html, wrote.db].into_iter().flatten().collect();
        if !places.is_empty() {
            console.say(format!("\nWrote {}.", places.join(" and ")));
        }
    }
    for what in consistency::contradictions(evidence, &insight) {
        console.warn(format!("this survey contradicts itself ({what}); please report it"));
    }
    kept?;
    page?;
    match (interrupted, insight.verdict.state) {
        (true, _) => Ok(Exit::Interrupted),
        (false, State::Invalid) => Ok(Exit::Invalid),
        _ => Ok(Exit::Ok),
    }
}

/// The test file's size, or the part of an existing target to work on (None: all of it).
fn size_of(place: &Place, args: &SurveyArgs, effort: &Budget) -> Outcome<Option<u64>> {
    let Place::Directory(folder) = place else { return Ok(args.size) };
    folder.read_dir().map_err(|e| {
        Failure::failed(format!(
            "looking into {}: {}",
            folder.display(),
            ioengine::error::cause(&e)
        ))
    })?;
    if let Some(size) = args.size {
        if size < 1 << 20 {
            return Err(Failure::usage("--size is too small for a survey; give at least 1m"));
        }
        return Ok(Some(size));
    }
    let most = if effort.budget_ns >= 300_000_000_000 { 4 << 30 } else { 1 << 30 };
    let free = ioengine::host::free_bytes_at(folder)?;
    let size: u64 = most.min(free / 10).min(args.max_write / 2);
    Ok(Some((size >> 20 << 20).max(1 << 20)))
}

fn plan(args: &SurveyArgs, place: &Place, size: Option<u64>, effort: &Budget) -> Outcome {
    match place {
        Place::Directory(folder) => {
            let bytes = size.unwrap_or(0);
            check_size(place, size, args)?;
            let (size, folder) = (units::size(bytes), folder.display());
            console::data(&format!(
                "lay out a test file of {size} in {folder}, and remove it after"
            ));
        }
        Place::Existing(path) => {
            let (write, why, permit) = may_write(place, args)?;
            let subject = Subject::open(path, write, size)?;
            let verb = if write { "read and overwrite" } else { "only read" };
            let kind = subject.facts().kind;
            console::data(&format!("{verb} the {kind} {}", path.display()));
            let destroys = permit.and_then(|permit| permit.destroys);
            destroys.iter().for_each(|what| console::data(&format!("destroy {what}")));
            why.iter().for_each(|why| console::data(why));
        }
        Place::Simulated(place) => {
            let (name, title) = (&place.name, &place.system.title);
            console::data(&format!("simulate {name}: {title}; nothing is touched"));
        }
    }
    let limits = grid::Limits {
        request_bytes_min: 512,
        region_bytes: size.unwrap_or(u64::MAX),
        in_flight_bytes_max: match place {
            Place::Simulated(_) => grid::IN_FLIGHT_BYTES_MAX,
            _ => measure::in_flight_bytes_max(),
        },
        direct: true,
        write: true,
    };
    page::check(&args.html)?;
    let spots = grid::first(effort, &limits).len();
    let trials = format!("measure up to {spots} workloads, {} times or more each", effort.rounds);
    if let Place::Simulated(_) = place {
        let (each, most) = (units::time(effort.trial_ns as f64), effort.budget_ns as f64);
        let most = units::time(most);
        console::data(&format!(
            "{trials}, {each} of virtual time a trial; ends when all is settled, after {most} here \
             at the latest"
        ));
    } else {
        console::data(&format!("{trials}, in {} in all", units::time(effort.budget_ns as f64)));
        let share = units::share_of_endurance(args.max_write, args.common.endurance);
        console::data(&format!("write at most {} in all{share}", units::size(args.max_write)));
    }
    let (html, db) = (args.html.display(), args.common.db.display());
    console::data(&format!("write the page {html} and the database {db}; nothing was done"));
    Ok(Exit::Ok)
}

fn announce(
    console: &Console,
    args: &SurveyArgs,
    place: &Place,
    size: Option<u64>,
    effort: &Budget,
) {
    let seconds = effort.budget_ns / 1_000_000_000;
    let target = args.target.display();
    if let Place::Simulated(place) = place {
        let title = &place.system.title;
        return console.say(format!("survey of {target}: {title}; time is virtual"));
    }
    let what = match (place, size) {
        (Place::Directory(_), Some(size)) => format!(
            "a test file of {} there, removed afterwards; writes at most {}",
            units::size(size),
            units::size(args.max_write)
        ),
        _ => "nothing is created there".to_owned(),
    };
    console.say(format!("survey of {target}, about {seconds} s: {what}"));
}

/// Refuses a test file that has no room or would write too much.
fn check_size(place: &Place, size: Option<u64>, args: &SurveyArgs) -> Outcome<()> {
    let (Place::Directory(folder), Some(bytes)) = (place, size) else { return Ok(()) };
    if bytes > args.max_write {
        return Err(Failure::usage(format!(
            "a test file of {} is over --max-write {}; give a smaller --size",
            units::size(bytes),
            units::size(args.max_write)
        )));
    }
    scratch::check_room(folder, bytes)
}

/// Makes the test file; one of the default size takes a tenth of the budget at the most.
fn lay_out(
    lab: &Lab,
    place: &Place,
    size: Option<u64>,
    args: &SurveyArgs,
    effort: &Budget,
) -> Outcome<Option<(Scratch, LaidOut)>> {
    let (Place::Directory(folder), Some(bytes)) = (place, size) else { return Ok(None) };
    let scratch = Scratch::make(folder, bytes)?;
    let limit_ns = (effort.budget_ns as f64 * LAYOUT_SHARE) as u64;
    let limit_ns = args.size.is_none().then_some(limit_ns);
    let laid_out = scratch.lay_out(lab, bytes, args.common.seed, limit_ns)?;
    Ok(Some((scratch, laid_out)))
}

/// Bytes that may be written once the test file is laid out; a simulated system writes none.
fn write_left(args: &SurveyArgs, subject: &Subject, written: u64) -> u64 {
    match subject.is_simulated() {
        true => u64::MAX,
        false => args.max_write.saturating_sub(written),
    }
}

/// Whether writes are measured, and if not why.
fn may_write(place: &Place, args: &SurveyArgs) -> Outcome<(bool, Option<String>, Option<Permit>)> {
    let Place::Existing(path) = place else { return Ok((true, None, None)) };
    let consent = args.common.consent();
    let buffered = ioengine::HostTarget::open(path, false, ioengine::Caching::Buffered)?;
    let asked = !consent.overwrite.is_empty() || !consent.destroy_data_on.is_empty();
    match guard::check_writable(&buffered, path, &consent) {
        Ok(permit) => Ok((true, None, permit)),
        Err(failure) if asked => Err(failure),
        Err(_) if buffered.kind() == TargetKind::BlockDevice => {
            let why = "a device is only read unless --destroy-data-on names it";
            Ok((false, Some(why.to_owned()), None))
        }
        Err(_) => {
            let why = "a file is only read unless --overwrite names it";
            Ok((false, Some(why.to_owned()), None))
        }
    }
}

/// The target's full path, so that a result says what it is of wherever it is read.
fn name_of(target: &Path) -> String {
    target.canonicalize().unwrap_or_else(|_| target.to_path_buf()).display().to_string()
}

fn begin(
    recorder: &mut Recorder,
    args: &SurveyArgs,
    host: &Host,
    target: &TargetFacts,
) -> Outcome<()> {
    recorder.begin(&RunFacts {
        kind: RunKind::Survey,
        label: args.common.label.clone(),
        seed: args.common.seed,
        host,
        target_json: serde_json::to_string(target).unwrap_or_default(),
        settings_json: serde_json::json!({ "pap_bytes_per_s": args.common.pap }).to_string(),
    })
}

/// Everything that is measured once: memory, the instrument's floor, the soaker's calibration.
fn prepare(lab: &Lab, subject: &Subject, facts: &mut Facts) -> Outcome<()> {
    if subject.is_simulated() {
        return Ok(());
    }
    facts.soaker_declined = lab.prepare_soaker().err();
    facts.memory_copy_bytes_per_s = memory::copy_bytes_per_s(lab.clock);
    facts.floor_ns_per_request = measure::floor_ns_per_request(lab)?;
    Ok(())
}
