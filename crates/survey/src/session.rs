//! Runs a survey completely: checks the options, writes the test file, measures the grid points,
//! prints the results, and writes the HTML page and the database.

use analysis::units;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::consistency;
use crate::document::{self, FindingDocument, WroteDocument};
use crate::findings;
use crate::grid::{self, Budget};
use crate::insight::Insight;
use crate::measure::{self, Bounds, Survey, Surveyed};
use crate::memory;
use crate::rank_limits::RankLimits;
use crate::subject::{self, Subject};
use crate::survey_data::{Facts, SurveyData};
use crate::view;
use ioengine::clock::unix_ns;
use ioengine::network::Address;
use ioengine::{Clock, Target, TargetKind};
use lab::bench;
use lab::console::{self, Console};
use lab::experiment::Experiment;
use lab::failure::{Exit, Failure, Outcome};
use lab::guard::{self, Consent, Permit};
use lab::interrupt::Interrupt;
use lab::json;
use lab::machine::{Host, TargetFacts};
use lab::memory_limit;
use lab::network_target;
use lab::page;
use lab::point::{Point, State};
use lab::ranks::{self, Ranks, share};
use lab::recorder::{Recorder, RunFacts, RunOptions, RunSettings};
use lab::resource_usage::{self, BindingDocument};
use lab::scratch::{self, LaidOut, Scratch};
use lab::settings;
use lab::simulated_target::SimulatedTarget;
use lab::target::TargetSpec;
use lab::terminal::Charts;
use lab::trials::Lab;
use results::{RunKind, RunState};
use serde::Serialize;

/// Minimum memory that a survey needs for buffers and results (bytes).
const MEMORY_MIN_BYTES: u64 = 32 << 20;
/// Write rate that is assumed before the first write trial [bytes per second]. It limits the bytes
/// of the first write trials.
const SLOW_DISK: f64 = 100e6;
/// Maximum share of the time budget that writing the test file may use.
const LAYOUT_SHARE: f64 = 0.1;

/// Options of a survey.
#[derive(Clone, Debug)]
pub struct SurveyOptions {
    /// The target: a directory, file, block device, network target or simulated system.
    pub target: PathBuf,
    /// Time limit of the survey, and the number and length of trials.
    pub budget: Budget,
    /// Size of the test file, or of the measured region of an existing target (bytes).
    pub size: Option<u64>,
    /// Maximum number of bytes to write, including the test file.
    pub max_write: u64,
    /// Path of the HTML page. None if no page is written.
    pub html: Option<PathBuf>,
    /// Whether the results are printed. False for `watch`, which only stores the survey in the
    /// database.
    pub prints: bool,
    /// Whether charts are printed, and with which characters.
    pub charts: Charts,
    /// Whether one JSON document is printed instead of text.
    pub json: bool,
    /// Whether only warnings and errors are printed.
    pub quiet: bool,
    /// Whether the survey only prints what it would do.
    pub plan: bool,
    /// Whether this process is one of several MPI ranks that measure together.
    pub mpi: bool,
    /// Seed, permissions to overwrite, and page size of the buffers, for all points.
    pub base: Experiment,
    /// Path of the database, label of the run, and the nominal rate of the hardware (PAP).
    pub run: RunOptions,
}

impl SurveyOptions {
    /// Returns the options for this rank. Replaces `{rank}` and `{host}` in the paths of targets,
    /// and divides `max_write` by the number of ranks.
    fn of_rank(&self) -> SurveyOptions {
        let consent = share::consent_of_rank(&self.base.consent, 0);
        SurveyOptions {
            target: share::path_of_rank(&self.target, 0),
            max_write: self.max_write / rank_count(),
            base: Experiment { consent, ..self.base.clone() },
            ..self.clone()
        }
    }
}

/// Returns the number of MPI ranks, or 1 if no MPI launcher started the process.
fn rank_count() -> u64 {
    ranks::of_environment().map_or(1, |(_, count)| count.into())
}

enum SurveyTarget {
    /// A directory, in which a test file is created.
    Directory(PathBuf),
    /// An existing file or device.
    Existing(PathBuf),
    /// A file or disk on a server.
    Network(Box<Address>),
    /// A simulated system, which needs no storage of this host.
    Simulated(Box<SimulatedTarget>),
}

impl SurveyTarget {
    fn of(options: &SurveyOptions) -> Outcome<SurveyTarget> {
        match TargetSpec::of(&options.target)? {
            TargetSpec::Simulated(_) => {
                let experiment = Experiment {
                    targets: vec![options.target.clone()],
                    size_bytes: options.size,
                    ..options.base.clone()
                };
                let system = SimulatedTarget::of_survey(&experiment)?;
                let missing = || Failure::usage("no such system; see halfpower simulate --list");
                system.map(|system| SurveyTarget::Simulated(Box::new(system))).ok_or_else(missing)
            }
            TargetSpec::Network(address) => Ok(SurveyTarget::Network(address)),
            spec => {
                bench::check_path(&options.target, &options.base.consent)?;
                Ok(match spec {
                    TargetSpec::Directory(folder) => SurveyTarget::Directory(folder),
                    _ => SurveyTarget::Existing(options.target.clone()),
                })
            }
        }
    }

    /// Returns the budget. For a simulated system, the budget is adapted to virtual time.
    fn budget(&self, options: &SurveyOptions) -> Outcome<Budget> {
        match self {
            SurveyTarget::Simulated(_) if options.mpi => Err(Failure::usage(
                "a simulated system has its own hosts and cannot use MPI ranks; drop --mpi",
            )),
            SurveyTarget::Simulated(place) => {
                Ok(options.budget.in_virtual_time(place.system.setup.files()))
            }
            _ => Ok(options.budget),
        }
    }

    /// Opens the target. If the target is a directory, `path` must be the path of the test file.
    fn open(
        &self,
        path: &Path,
        write: bool,
        size: Option<u64>,
        consent: &Consent,
    ) -> Outcome<Subject> {
        match self {
            SurveyTarget::Network(address) => {
                let target = network_target::open(address, write, false, consent)?;
                Subject::network(target, write, size)
            }
            SurveyTarget::Simulated(system) => Ok(Subject::simulated(system, size)),
            _ => Subject::open(path, write, size),
        }
    }
}

/// Returns the path of the database as text. None with `--no-store`.
fn db_name(options: &SurveyOptions) -> Option<String> {
    options.run.db.as_ref().map(|db| db.display().to_string())
}

/// Runs a survey: measures the target, analyses the data, and prints and stores the results.
///
/// # Errors
/// If the options are wrong, if writing is refused, or if an I/O error of the target, the page or
/// the database occurs.
pub fn execute(options: &SurveyOptions) -> Outcome {
    let options = &options.of_rank();
    let console = Console::new(options.quiet);
    if options.budget.budget_ns < 5_000_000_000 {
        return Err(Failure::usage("--budget is too short for a survey; specify at least 5s"));
    }
    let survey_target = SurveyTarget::of(options)?;
    let budget = survey_target.budget(options)?;
    let size = size_of(&survey_target, options, &budget)?;
    if options.plan {
        return plan(options, &survey_target, size, &budget);
    }
    settings::warn_of_left_behind(&console);
    check_size(&survey_target, size, options)?;
    let (write, not_written, permit) = may_write(&survey_target, options)?;
    let interrupt = Interrupt::install();
    let db = check_outputs(options)?;
    let ranks = options.mpi.then(|| Ranks::meet(console, &interrupt)).transpose()?;
    let lab = Lab::of_rank(console, interrupt, ranks);
    let (start_ns, started_unix_ns) = (lab.clock.now_ns(), unix_ns());
    if let Some(what) = permit.as_ref().and_then(|permit| permit.destroys.as_ref()) {
        console.warn(format!("destroying {what}"));
    }
    let size = size.map(|size| lab.smallest(size)).transpose()?;
    announce(&console, options, &survey_target, size, &budget);
    let (scratch, laid_out) = lay_out(&lab, &survey_target, size, options, &budget)?.unzip();
    let size = laid_out.map(|laid_out| laid_out.bytes).or(size);
    let path = scratch.as_ref().map_or(&*options.target, Scratch::path);
    let mut subject = survey_target.open(path, write, size, &options.base.consent)?;
    check_again(&subject, scratch.as_ref(), permit.as_ref())?;
    let offer = offer_of_all(&lab, options, &mut subject, (laid_out, not_written))?;
    let host = Host::read();
    let target = TargetFacts { name: name_of(&options.target), ..subject.facts() };
    let mut recorder = Recorder::open(db)?;
    begin(&mut recorder, options, &host, &target)?;
    let mut facts = measure::notes(&lab, &subject, &budget, options.run.pap_bytes_per_s);
    facts.not_written.clone_from(&offer.not_written);
    facts.layout_bytes_per_s = laid_out.map(|laid_out| laid_out.bytes_per_s);
    let (prepared, is_simulated) = (prepare(&lab, &subject, &mut facts), subject.is_simulated());
    let bounds = Bounds {
        deadline_ns: start_ns + budget.budget_ns,
        engine_kind: offer.engine_kind,
        write_left: offer.write_left,
        write_rate: offer.layout_bytes_per_s.unwrap_or(SLOW_DISK),
        soak: facts.soaker_declined.is_none() && !is_simulated,
        seed: options.base.seed,
        allow_holes: options.base.allow_holes,
        pages: options.base.buffer_pages,
    };
    let survey = Survey::new(&lab, &subject, budget, &bounds, &mut recorder);
    let surveyed = match prepared.and_then(|()| survey.run()) {
        Ok(surveyed) => surveyed,
        Err(failure) => {
            recorder.finish(RunState::Failed, None, None)?;
            return Err(failure);
        }
    };
    drop((subject, scratch));
    if !lab.is_first() {
        return Ok(Exit::Ok);
    }
    let points = finish_facts(&lab, surveyed, &offer, &mut facts, start_ns);
    recorder.judge(0, &points);
    let data = SurveyData::new(host, target, points, facts, started_unix_ns);
    conclude(options, &lab, recorder, &data)
}

/// Completes `facts` with the facts that are known only after the last trial. Returns the points.
fn finish_facts(
    lab: &Lab,
    surveyed: Surveyed,
    offer: &RankLimits,
    facts: &mut Facts,
    start_ns: u64,
) -> Vec<Point> {
    let Surveyed { points, written_bytes, visits, second_visit } = surveyed;
    let is_simulated = points.iter().any(|point| point.key.is_simulated);
    (facts.visits, facts.second_visit) = (visits, second_visit);
    let written_bytes = offer.written_bytes.saturating_add(written_bytes);
    facts.written_bytes = if is_simulated { 0 } else { written_bytes };
    facts.simulated_limits = limits_of(&points, is_simulated);
    facts.elapsed_ns = lab.clock.now_ns() - start_ns;
    facts.interrupted = lab.interrupt.is_set();
    facts.lost = lab.check_ranks().err().map(|failure| failure.message);
    facts.cpu_quota = quota_felt(lab, facts.elapsed_ns).filter(|_| !is_simulated);
    points
}

/// Combines the limits of all ranks, and restricts `subject` to the combined limits. Returns the
/// combined limits. Without ranks, returns the limits of `subject`.
fn offer_of_all(
    lab: &Lab,
    options: &SurveyOptions,
    subject: &mut Subject,
    (laid_out, not_written): (Option<LaidOut>, Option<String>),
) -> Outcome<RankLimits> {
    let written_bytes = laid_out.map_or(0, |laid_out| laid_out.bytes);
    let offer = RankLimits {
        limits: subject.limits,
        engine_kind: subject.engine_kind(),
        layout_bytes_per_s: laid_out.map(|laid_out| laid_out.bytes_per_s),
        written_bytes,
        write_left: write_left(options, subject, written_bytes),
        not_written,
    };
    let Some(ranks) = &lab.ranks else { return Ok(offer) };
    let name = name_of(&options.target);
    bench::check_own(ranks, &name, subject.opened(), "or use a directory")?;
    let all = RankLimits::of_all(&ranks.gather(&offer)?).unwrap_or(offer);
    subject.narrow(all.limits);
    Ok(all)
}

/// Returns the limiting resource of each sequential point of a simulated system. The keys are the
/// descriptions of the points. Empty for other targets.
fn limits_of(points: &[Point], is_simulated: bool) -> BTreeMap<String, BindingDocument> {
    let limit = |point: &Point| (point.key.describe(), resource_usage::of(point).binding);
    let sequential = points.iter().filter(|point| is_simulated && !point.key.is_random());
    sequential.map(limit).collect()
}

/// Returns the CPU quota of the control group (CPUs). None unless the quota throttled the program.
fn quota_felt(lab: &Lab, elapsed_ns: u64) -> Option<f64> {
    let throttled = lab.throttled()?;
    throttled.felt_share(elapsed_ns).map(|_| throttled.cpus)
}

/// Fails if a memory limit is so low that the kernel would kill the survey.
fn check_memory() -> Outcome<()> {
    match memory_limit::narrowest() {
        Some(limit) if limit.bytes < MEMORY_MIN_BYTES => Err(Failure::failed(format!(
            "{} leaves {} for buffers and results, but a survey needs {}; raise that limit",
            limit.what,
            units::size(limit.bytes),
            units::size(MEMORY_MIN_BYTES)
        ))),
        _ => Ok(()),
    }
}

/// Checks that there is enough memory, and that the HTML page and the database are different files
/// that can be written. Returns the path of the database.
fn check_outputs(options: &SurveyOptions) -> Outcome<Option<&Path>> {
    check_memory()?;
    let db = options.run.db.as_deref();
    if !ranks::is_first_or_only() {
        return Ok(db);
    }
    let html = options.html.as_deref();
    html.map_or(Ok(()), page::check)?;
    let same = html.zip(db).filter(|(html, db)| page::is_beside(html, db));
    if let Some((html, db)) = same {
        return Err(Failure::usage(format!(
            "--html {} and --db {} would overwrite each other; specify different files",
            html.display(),
            db.display()
        )));
    }
    Recorder::check(db, std::slice::from_ref(&options.target))?;
    Ok(db)
}

/// Checks the opened files again, because a path may have been replaced after the first check.
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

/// Data stored with a survey in addition to its points. `halfpower serve` and comparisons of runs
/// read the stored findings. The text, the JSON document and the page of a survey show findings
/// that are computed again from the points.
#[derive(Serialize)]
struct Kept<'a> {
    #[serde(flatten)]
    facts: &'a Facts,
    findings: Vec<FindingDocument>,
}

/// Analyses the measurements, writes database and page, and prints the results.
fn conclude(options: &SurveyOptions, lab: &Lab, recorder: Recorder, data: &SurveyData) -> Outcome {
    let (insight, console) = (Insight::of(data), &lab.console);
    let interrupted = data.facts.interrupted;
    let state = match (&data.facts.lost, interrupted) {
        (Some(_), _) => RunState::Failed,
        (None, true) => RunState::Interrupted,
        (None, false) => RunState::Finished,
    };
    let findings = findings::of(data, &insight).iter().map(FindingDocument::from).collect();
    let findings_json = serde_json::to_string(&Kept { facts: &data.facts, findings }).ok();
    // The page is written even if the database fails, and the text is printed even if the page
    // fails.
    let kept = recorder.finish(state, findings_json, Some(&insight.verdict));
    let html = options.html.as_deref().filter(|_| !insight.seen.is_empty());
    let page = html.map_or(Ok(()), |html| page::write(html, &view::html(data, &insight)));
    let wrote = WroteDocument {
        db: db_name(options).filter(|_| kept.is_ok()),
        html: html.filter(|_| page.is_ok()).map(|html| html.display().to_string()),
    };
    if !options.prints {
        if let (false, Some(db)) = (interrupted, wrote.db) {
            let target = options.target.display();
            console.say(format!("The survey of {target} is in {db}."));
        }
    } else if options.json {
        console::data(&json::print(&document::of(data, &insight, wrote)));
    } else if !insight.seen.is_empty() {
        let charts = view::charts(data, &insight, options.charts);
        console::result(&findings::text(data, &insight, &charts));
        let places: Vec<String> = [wrote.html, wrote.db].into_iter().flatten().collect();
        if !places.is_empty() {
            console.say(format!("\nWrote {}.", places.join(" and ")));
        }
    }
    if insight.seen.is_empty() && state == RunState::Finished {
        console.warn("no trial finished in time; specify a longer --budget");
    }
    for what in consistency::contradictions(data, &insight) {
        console.warn(format!("this survey contradicts itself ({what}); please report it"));
    }
    kept?;
    page?;
    lab.check_ranks()?;
    match (interrupted, insight.verdict.state) {
        (true, _) => Ok(Exit::Interrupted),
        (false, State::Invalid) => Ok(Exit::Invalid),
        _ => Ok(Exit::Ok),
    }
}

/// Returns the size of the test file, or of the measured region of an existing target (bytes). None
/// if an existing target is measured completely.
fn size_of(
    survey_target: &SurveyTarget,
    options: &SurveyOptions,
    budget: &Budget,
) -> Outcome<Option<u64>> {
    let SurveyTarget::Directory(folder) = survey_target else { return Ok(options.size) };
    folder.read_dir().map_err(|e| {
        Failure::failed(format!(
            "cannot list the directory {}: {}",
            folder.display(),
            ioengine::error::cause(&e)
        ))
    })?;
    if let Some(size) = options.size {
        if size < 1 << 20 {
            return Err(Failure::usage("--size is too small for a survey; specify at least 1m"));
        }
        return Ok(Some(size));
    }
    let most = if budget.budget_ns >= 300_000_000_000 { 4 << 30 } else { 1 << 30 };
    let free = ioengine::host::free_bytes_at(folder)?;
    let size: u64 = most.min(free / 10 / rank_count()).min(options.max_write / 2);
    Ok(Some((size >> 20 << 20).max(1 << 20)))
}

fn plan(
    options: &SurveyOptions,
    survey_target: &SurveyTarget,
    size: Option<u64>,
    budget: &Budget,
) -> Outcome {
    plan_target(options, survey_target, size)?;
    let limits = grid::Limits {
        request_bytes_min: 512,
        region_bytes: size.unwrap_or(u64::MAX),
        in_flight_bytes_max: match survey_target {
            SurveyTarget::Simulated(_) => grid::IN_FLIGHT_BYTES_MAX,
            _ => subject::in_flight_bytes_max(),
        },
        buffered: !matches!(survey_target, SurveyTarget::Network(_)),
        direct: true,
        write: true,
        zones: None,
    };
    options.html.as_deref().map_or(Ok(()), page::check)?;
    let workloads = grid::first(budget, &limits).len();
    let trials = format!(
        "measure up to {workloads} workloads, {} each",
        match budget.rounds {
            1 => "once".to_owned(),
            rounds => format!("{rounds} times or more"),
        }
    );
    if let SurveyTarget::Simulated(_) = survey_target {
        let (each, most) = (units::time(budget.trial_ns as f64), budget.budget_ns as f64);
        let most = units::time(most);
        console::data(&format!(
            "{trials}, with {each} of virtual time per trial; the survey ends when results are \
             stable, or after {most} of real time"
        ));
    } else {
        console::data(&format!("{trials}, within {}", units::time(budget.budget_ns as f64)));
        let all = options.max_write.saturating_mul(rank_count());
        let share = units::share_of_endurance(all, options.base.endurance_bytes);
        let by = if options.mpi { "on each rank" } else { "in total" };
        console::data(&format!("write at most {} {by}{share}", units::size(options.max_write)));
    }
    console::plan_to_write(options.html.as_deref(), options.run.db.as_deref());
    Ok(Exit::Ok)
}

/// Prints what a survey would do with its target.
fn plan_target(
    options: &SurveyOptions,
    survey_target: &SurveyTarget,
    size: Option<u64>,
) -> Outcome<()> {
    match survey_target {
        SurveyTarget::Directory(folder) => {
            let bytes = size.unwrap_or(0);
            check_size(survey_target, size, options)?;
            let (size, folder) = (units::size(bytes), folder.display());
            console::data(&format!(
                "lay out a test file of {size} in {folder}, and remove it afterwards"
            ));
        }
        SurveyTarget::Existing(path) => {
            let (write, why, permit) = may_write(survey_target, options)?;
            let subject = Subject::open(path, write, size)?;
            let verb = if write { "read and overwrite" } else { "only read" };
            let kind = subject.facts().kind;
            console::data(&format!("{verb} the {kind} {}", path.display()));
            let destroys = permit.and_then(|permit| permit.destroys);
            destroys.iter().for_each(|what| console::data(&format!("destroy {what}")));
            why.iter().for_each(|why| console::data(why));
        }
        SurveyTarget::Network(address) => {
            let (write, why, _) = may_write(survey_target, options)?;
            survey_target.open(&options.target, write, size, &options.base.consent)?;
            let verb = if write { "read and overwrite" } else { "only read" };
            console::data(&format!("{verb} {address} over the network"));
            why.iter().for_each(|why| console::data(why));
        }
        SurveyTarget::Simulated(system) => {
            let (name, title) = (&system.name, &system.system.title);
            console::data(&format!("simulate {name}: {title}; nothing is touched"));
        }
    }
    Ok(())
}

fn announce(
    console: &Console,
    options: &SurveyOptions,
    survey_target: &SurveyTarget,
    size: Option<u64>,
    budget: &Budget,
) {
    let seconds = budget.budget_ns / 1_000_000_000;
    let target = options.target.display();
    if let SurveyTarget::Simulated(system) = survey_target {
        let title = &system.system.title;
        return console.say(format!("survey of {target}: {title}; time is virtual"));
    }
    let what = match (survey_target, size) {
        (SurveyTarget::Directory(_), Some(size)) => format!(
            "creates a test file of {} there and removes it afterwards; at most {} are written{}",
            units::size(size),
            units::size(options.max_write),
            if options.mpi { " by each rank" } else { "" }
        ),
        _ => "nothing is created there".to_owned(),
    };
    let ranks = match options.mpi {
        true => format!(" on {}", units::counted(rank_count(), "rank")),
        false => String::new(),
    };
    console.say(format!("survey of {target}{ranks}, about {seconds} s: {what}"));
}

/// Fails if the test file does not fit into the directory or exceeds --max-write.
fn check_size(
    survey_target: &SurveyTarget,
    size: Option<u64>,
    options: &SurveyOptions,
) -> Outcome<()> {
    let (SurveyTarget::Directory(folder), Some(bytes)) = (survey_target, size) else {
        return Ok(());
    };
    if bytes > options.max_write {
        let share = if options.mpi { " (the share of each rank)" } else { "" };
        return Err(Failure::usage(format!(
            "a test file of {} exceeds --max-write {}{share}; specify a smaller --size",
            units::size(bytes),
            units::size(options.max_write)
        )));
    }
    scratch::check_room(folder, bytes)
}

/// Writes the test file. Without --size, writing stops after a tenth of the time budget.
fn lay_out(
    lab: &Lab,
    survey_target: &SurveyTarget,
    size: Option<u64>,
    options: &SurveyOptions,
    budget: &Budget,
) -> Outcome<Option<(Scratch, LaidOut)>> {
    let (SurveyTarget::Directory(folder), Some(bytes)) = (survey_target, size) else {
        return Ok(None);
    };
    let scratch = Scratch::make(folder, bytes)?;
    let limit_ns = (budget.budget_ns as f64 * LAYOUT_SHARE) as u64;
    let limit_ns = options.size.is_none().then_some(limit_ns);
    let laid_out = scratch.lay_out(lab, bytes, options.base.seed, limit_ns)?;
    Ok(Some((scratch, laid_out)))
}

/// Returns how many bytes may be written in addition to the test file. Unlimited for a simulated
/// system.
fn write_left(options: &SurveyOptions, subject: &Subject, written: u64) -> u64 {
    if subject.is_simulated() { u64::MAX } else { options.max_write.saturating_sub(written) }
}

/// Returns whether writes are measured, the reason if they are not, and the permit to write.
fn may_write(
    survey_target: &SurveyTarget,
    options: &SurveyOptions,
) -> Outcome<(bool, Option<String>, Option<Permit>)> {
    let consent = &options.base.consent;
    let path = match survey_target {
        SurveyTarget::Existing(path) => path,
        SurveyTarget::Network(_) if consent.overwrite.is_empty() => {
            let why = "halfpower does not write to a network target unless --overwrite names it";
            return Ok((false, Some(why.to_owned()), None));
        }
        _ => return Ok((true, None, None)),
    };
    let buffered = ioengine::HostTarget::open(path, false, ioengine::Caching::Buffered)?;
    let asked = !consent.overwrite.is_empty() || !consent.destroy_data_on.is_empty();
    match guard::check_writable(&buffered, path, consent) {
        Ok(permit) => Ok((true, None, permit)),
        Err(failure) if asked => Err(failure),
        Err(_) if buffered.kind() == TargetKind::BlockDevice => {
            let why = "halfpower does not write to a device unless --destroy-data-on names it";
            Ok((false, Some(why.to_owned()), None))
        }
        Err(_) => {
            let why = "halfpower does not write to a file unless --overwrite names it";
            Ok((false, Some(why.to_owned()), None))
        }
    }
}

/// Returns the absolute path of the target, which identifies it independently of the working
/// directory.
fn name_of(target: &Path) -> String {
    target.canonicalize().unwrap_or_else(|_| target.to_path_buf()).display().to_string()
}

fn begin(
    recorder: &mut Recorder,
    options: &SurveyOptions,
    host: &Host,
    target: &TargetFacts,
) -> Outcome<()> {
    recorder.begin(&RunFacts {
        kind: RunKind::Survey,
        command_line: None,
        label: options.run.label.clone(),
        seed: options.base.seed,
        host,
        target: Some(target),
        settings: RunSettings {
            pap_bytes_per_s: options.run.pap_bytes_per_s,
            ..RunSettings::default()
        },
    })
}

/// Makes one-time measurements: soaker calibration, memory copy rate, and halfpower's overhead.
fn prepare(lab: &Lab, subject: &Subject, facts: &mut Facts) -> Outcome<()> {
    if subject.is_simulated() {
        return Ok(());
    }
    let Some(ranks) = &lab.ranks else {
        facts.soaker_declined = lab.prepare_soaker().err();
        facts.memory_copy_bytes_per_s = memory::copy_bytes_per_s(lab.clock);
        facts.floor_ns_per_request = measure::floor_ns_per_request(lab)?;
        return Ok(());
    };
    facts.ranks.clone_from(&ranks.hosts);
    let why = "the threads that measure the upper bound of the CPU cost (the soaker) would take \
               the CPUs that other ranks on this host need";
    facts.soaker_declined = Some(why.to_owned());
    facts.missing.push("memory copy rate: only measured in a survey without --mpi".to_owned());
    // Only the first rank measures the overhead. The other ranks wait for the result.
    let floor = if ranks.is_first() { measure::floor_ns_per_request(lab) } else { Ok(None) };
    facts.floor_ns_per_request = ranks.agree(floor?)?;
    Ok(())
}
