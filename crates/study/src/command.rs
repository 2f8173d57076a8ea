//! Executes the `study` subcommand: checks and prepares the targets, runs the studies one after the
//! other, prints the results and writes the page.

use analysis::units;
use std::path::PathBuf;

use ioengine::clock::unix_ns;
use lab::console::{self, Console};
use lab::evidence::Stated;
use lab::experiment::Experiment;
use lab::experiment::settings::Settings;
use lab::failure::{Exit, Failure, Outcome};
use lab::interrupt::Interrupt;
use lab::json::{self, Program};
use lab::machine::Host;
use lab::page;
use lab::peer::client::{PeerAddress, ServerWatch};
use lab::ranks::{self, Ranks, share};
use lab::recorder::{Recorder, RunOptions};
use lab::settings as host_settings;
use lab::target::TargetSpec;
use lab::terminal::Charts;
use lab::trials::Lab;
use survey::document::WroteDocument;

use crate::catalogue;
use crate::document::{StudiesDocument, StudyDocument};
use crate::extent::Extent;
use crate::requested::RequestedStudy;
use crate::session::{Session, StudyResult};
use crate::target::StudyTarget;
use crate::view;

/// Default size of a test file (bytes).
const FILE_BYTES: u64 = 1 << 30;
/// Default size of a test file with `--quick` (bytes).
const QUICK_FILE_BYTES: u64 = 512 << 20;

/// The targets and options of the `study` subcommand.
#[derive(Clone, Debug)]
pub struct StudyOptions {
    /// Files, block devices, directories, network targets or simulated systems.
    pub targets: Vec<PathBuf>,
    /// Size of the test file (bytes). None selects a default size.
    pub size: Option<u64>,
    /// Whether to measure fewer points in shorter trials.
    pub quick: bool,
    /// Whether a study may switch the drive's write cache.
    pub toggle_write_cache: bool,
    /// Prices, electrical power and capacities of the targets, as specified by the user.
    pub stated: Stated,
    /// Settings from the command line, which override the plans.
    pub typed: Settings,
    /// Path of the HTML page. None if no page is written.
    pub html: Option<PathBuf>,
    /// Whether charts are printed, and with which characters.
    pub charts: Charts,
    /// Whether to print one JSON document instead of text.
    pub json: bool,
    /// Whether to print only results, warnings and errors.
    pub quiet: bool,
    /// Whether to print what the studies would do, without doing it.
    pub plan: bool,
    /// Whether this process is one of several MPI ranks that measure together.
    pub mpi: bool,
    /// Settings of all points: seed, write permissions and buffer pages.
    pub base: Experiment,
    /// Database, label, and the nominal rate of the hardware (PAP).
    pub run: RunOptions,
    /// The halfpower peer on the server, for the study `network`. None without `--peer`.
    pub peer: Option<PeerAddress>,
}

impl StudyOptions {
    /// Returns the maximum size of a test file without `--size` (bytes).
    fn file_bytes_max(&self) -> u64 {
        if self.quick { QUICK_FILE_BYTES } else { FILE_BYTES }
    }

    /// Returns the options for this MPI rank, with `{rank}` and `{host}` replaced in the targets
    /// and in the paths that may be overwritten.
    fn of_rank(&self) -> StudyOptions {
        let target = |name: &PathBuf| share::path_of_rank(name, 0);
        let consent = share::consent_of_rank(&self.base.consent, 0);
        StudyOptions {
            targets: self.targets.iter().map(target).collect(),
            base: Experiment { consent, ..self.base.clone() },
            ..self.clone()
        }
    }

    /// Refuses `--peer` if no requested study uses the peer.
    fn check_peer(&self, requested: &[RequestedStudy]) -> Outcome<()> {
        let asks =
            |one: &RequestedStudy| one.study.is_some_and(|study| study.name == catalogue::NETWORK);
        if self.peer.is_none() || requested.iter().any(asks) {
            return Ok(());
        }
        let network = catalogue::NETWORK;
        Err(Failure::usage(format!("--peer is for the study {network} only; drop --peer")))
    }

    /// Refuses `--mpi` on simulated systems or with a peer.
    fn check_ranks(&self) -> Outcome<()> {
        if self.mpi && self.peer.is_some() {
            return Err(Failure::usage(
                "several ranks load the server at the same time, so its load cannot be assigned \
                 to one rank; drop --peer or --mpi",
            ));
        }
        let is_simulated = |name: &PathBuf| {
            TargetSpec::of(name).is_ok_and(|spec| matches!(spec, TargetSpec::Simulated(_)))
        };
        if self.mpi && self.targets.iter().any(is_simulated) {
            return Err(Failure::usage(
                "a simulated system has its own hosts and cannot use MPI ranks; drop --mpi",
            ));
        }
        Ok(())
    }
}

/// Runs the studies and prints their results.
///
/// # Errors
/// The options are invalid, a target is refused, or I/O on a target, the page or the database
/// fails. A failed study does not stop the other studies, but determines the exit code.
pub fn execute(requested: Vec<RequestedStudy>, options: &StudyOptions) -> Outcome {
    let options = &options.of_rank();
    options.check_peer(&requested)?;
    if options.plan {
        return print_plan(&requested, options);
    }
    options.check_ranks()?;
    let console = Console::new(options.quiet);
    host_settings::warn_of_left_behind(&console);
    let interrupt = Interrupt::install();
    if let Some(html) = options.html.as_ref().filter(|_| ranks::is_first_or_only()) {
        page::check(html)?;
    }
    Recorder::check(options.run.db.as_deref(), &options.targets)?;
    let ranks = options.mpi.then(|| Ranks::meet(console, &interrupt)).transpose()?;
    let mut lab = Lab::of_rank(console, interrupt, ranks);
    lab.server = match &options.peer {
        Some(peer) => Some(ServerWatch::connect(peer, console)?),
        None => None,
    };
    let (started_unix_ns, host) = (unix_ns(), Host::read());
    let limits = (options.file_bytes_max(), options.base.seed);
    let consent = &options.base.consent;
    // All targets are checked before the first is prepared, because preparing a target takes time.
    options.targets.iter().try_for_each(|name| StudyTarget::check(name, consent))?;
    let ready = |name: &PathBuf| StudyTarget::ready(name, options.size, limits, consent, &lab);
    let session = Session {
        lab: &lab,
        host: host.clone(),
        study_targets: options.targets.iter().map(ready).collect::<Outcome<Vec<StudyTarget>>>()?,
        quick: options.quick,
        toggle_write_cache: options.toggle_write_cache,
        stated: options.stated.clone(),
        options: options.run.clone(),
        base: options.base.clone(),
        typed: options.typed.clone(),
        size: options.size,
        peer_path: options.peer.as_ref().and_then(|peer| peer.path.clone()),
    };
    let mut all = Vec::new();
    for RequestedStudy { name, study, plan } in requested {
        if lab.must_stop()? {
            break;
        }
        let made = match session.make(&name, study, plan) {
            // An interrupt ends the run, but the completed studies are still reported.
            Err(failure) if failure.exit == Exit::Interrupted && !all.is_empty() => break,
            made => made?,
        };
        if !options.json {
            console::result(&view::text(&made, options.charts));
        }
        all.push(made);
    }
    drop(session);
    if !lab.is_first() {
        return Ok(Exit::Ok);
    }
    show(options, &console, (&host, started_unix_ns), &all)?;
    let exit = exit_of(lab.interrupt.is_set(), &all);
    say_why(exit, &all);
    Ok(exit)
}

/// Repeats the errors at the end, because their first mention may have scrolled away.
fn say_why(exit: Exit, all: &[StudyResult]) {
    let names = |is: fn(&StudyResult) -> bool| -> String {
        let named: Vec<&str> =
            all.iter().filter(|made| is(made)).map(|made| made.name.as_str()).collect();
        named.join(", ")
    };
    match exit {
        Exit::Failed => {
            for made in all {
                if let Some(failure) = &made.failure {
                    console::error(&format!("study {}: {failure}", made.name));
                }
            }
        }
        Exit::Invalid => {
            let names = names(StudyResult::is_invalid);
            console::error(&format!("the results of {names} are invalid; the reasons are above"));
        }
        _ => {}
    }
}

fn exit_of(interrupted: bool, all: &[StudyResult]) -> Exit {
    let refused = all.iter().find_map(|made| made.refused);
    match refused.filter(|_| all.iter().all(|made| made.refused.is_some())) {
        _ if interrupted => Exit::Interrupted,
        _ if all.iter().any(|made| made.failure.is_some()) => Exit::Failed,
        Some(exit) => exit,
        None if all.iter().any(StudyResult::is_invalid) => Exit::Invalid,
        None => Exit::Ok,
    }
}

/// Writes the page. With `--json`, prints the document, otherwise the names of the written files.
fn show(
    options: &StudyOptions,
    console: &Console,
    (host, started_unix_ns): (&Host, i64),
    all: &[StudyResult],
) -> Outcome<()> {
    let html = options.html.as_deref();
    let page =
        html.map_or(Ok(()), |html| page::write(html, &view::html(host, started_unix_ns, all)));
    let html = html.filter(|_| page.is_ok()).map(|html| html.display().to_string());
    let db = options.run.db.as_ref().map(|db| db.display().to_string());
    if options.json {
        let targets = all.first().map(|made| made.evidence.targets.clone());
        console::data(&json::print(&StudiesDocument {
            halfpower: Program::this(),
            host: host.clone(),
            targets: targets.unwrap_or_default(),
            studies: all.iter().map(StudyDocument::from).collect(),
            wrote: WroteDocument { db, html },
        }));
    } else {
        let places: Vec<String> = [html, db].into_iter().flatten().collect();
        if !places.is_empty() {
            console.say(format!("Wrote {}.", places.join(" and ")));
        }
    }
    page
}

fn print_plan(requested: &[RequestedStudy], options: &StudyOptions) -> Outcome {
    let file_bytes = options.size.unwrap_or(options.file_bytes_max());
    let size = units::size(file_bytes);
    for target in &options.targets {
        StudyTarget::check(target, &options.base.consent)?;
        let name = target.display();
        console::data(&if target.is_dir() {
            format!("lay out a test file of at most {size} in {name}, and remove it afterwards")
        } else if let TargetSpec::Network(_) = TargetSpec::of(target)? {
            let makes = requested.iter().any(|one| one.name == catalogue::OBJECTS);
            let more = "; create objects in a new folder below it, and remove them afterwards";
            let more = if makes { more } else { "" };
            format!("read {name}; write to it only if --overwrite names it{more}")
        } else if TargetSpec::of(target)?.is_on_host() {
            format!("read {name}; write to it only if --overwrite or --destroy-data-on names it")
        } else {
            format!("simulate {name}; nothing is touched")
        });
    }
    if let Some(peer) = &options.peer {
        let address = &peer.address;
        let path = peer
            .path
            .as_ref()
            .map(|path| format!(" and let the peer also read {path} on its host, for comparison"));
        let path = path.unwrap_or_default();
        console::data(&format!("read the counters of the halfpower peer {address}{path}"));
    }
    for one in requested {
        print_points(one, options, file_bytes)?;
    }
    console::plan_to_write(options.html.as_deref(), options.run.db.as_deref());
    Ok(Exit::Ok)
}

/// Prints the planned points of one study, with their number, their duration and the bytes that
/// they write.
fn print_points(one: &RequestedStudy, options: &StudyOptions, file_bytes: u64) -> Outcome<()> {
    if one.study.is_some() && !one.plan.has_points() {
        console::data(&format!("{}: the trials are chosen during the study", one.name));
        return Ok(());
    }
    let (mut sum, mut lines) = (Extent::default(), Vec::new());
    for group in one.plan.groups(options.quick, &options.typed)? {
        let disks = group.disks.map(|n| format!(" on {n} targets")).unwrap_or_default();
        let points = format!("  {}{disks} {}", group.part, group.words.join(" "));
        match Extent::of(&group, &options.targets, file_bytes) {
            Ok(extent) => {
                sum = sum.and(extent);
                lines.push(points);
            }
            Err(failure) => lines.push(format!("{points}: left out: {}", failure.message)),
        }
    }
    let has_own = one.study.is_some_and(|study| study.measure.is_some());
    let more = if has_own { "; plus trials that are chosen during the study" } else { "" };
    console::data(&format!("{}: {}{more}", one.name, sum.words()));
    lines.iter().for_each(|line| console::data(line));
    Ok(())
}
