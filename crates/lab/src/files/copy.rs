//! `halfpower copy`: checks the options, displays the progress, and prints the result. The crate
//! `filecopy` copies the data.

pub mod options;
mod work;
pub mod document;

use analysis::units;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use cpucost::rusage::ProcessTime;
use filecopy::stream::{Broken, Output};
use filecopy::{Event, Problem, ProblemKind, Session, Settings, inputs};
use ioengine::{Clock, Monotonic};

use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Outcome};
use crate::guard;
use crate::interrupt::Interrupt;
use crate::json;
use document::{document, plan_summary, summary};
use options::CopyOptions;
use work::{Work, is_stream, resolve, sources_and_destination, tree_destinations};

const TICK: Duration = Duration::from_millis(50);

/// Runs `halfpower copy`.
///
/// # Errors
/// A copy is impossible, not allowed or incomplete.
pub fn execute(options: &CopyOptions) -> Outcome {
    let interrupt = Interrupt::install();
    let (sources, to) = sources_and_destination(options)?;
    if sources.len() > 1 && to != Path::new("-") && !to.is_dir() {
        let what = if to.exists() { "is not a directory" } else { "does not exist" };
        let to = to.display();
        return Err(Failure::usage(format!("{to} {what}; specify an existing directory")));
    }
    let mut problems = Vec::new();
    let mut works = Vec::new();
    for from in sources {
        match resolve(options, from, to, sources.len() > 1) {
            Ok(work) => works.push(work),
            // If one of several sources causes a usage error, the remaining sources are still
            // copied. Any other failure ends the command.
            Err(failure) if sources.len() == 1 || failure.exit != Exit::Usage => {
                return Err(failure);
            }
            Err(failure) => {
                console::error(&failure.message);
                problems.push(Problem::new(ProblemKind::Failed, from, failure.message));
            }
        }
    }
    let is_output = matches!(works.first(), Some(Work::Output { .. }));
    let is_many = sources.len() > 1 || works.iter().any(Work::is_tree);
    let settings = settings(options, &interrupt, &works, is_many)?;
    let progress = Arc::clone(&settings.progress);
    let clock = Monotonic::uncalibrated();
    let (start_ns, before) = (clock.now_ns(), ProcessTime::now());
    problems.extend(run_with_progress(options, settings, &works)?);
    let elapsed_ns = clock.now_ns() - start_ns;
    let cpu_ns = ProcessTime::now().total_ns - before.total_ns;
    let counts = progress.counts();
    if options.plan {
        console::data(&plan_summary(&counts));
        return exit(options, &problems, is_many);
    }
    let document = document(options, counts, &problems, elapsed_ns, cpu_ns);
    let console = Console::new(options.quiet);
    if options.json {
        console::data(&json::print(&document));
    } else if !is_output && (problems.is_empty() || is_many) {
        console.say(summary(&document));
    }
    exit(options, &problems, is_many)
}

/// Returns the outcome of a copy. The most severe problem determines the exit code.
fn exit(options: &CopyOptions, problems: &[Problem], is_many: bool) -> Outcome {
    let kinds = || problems.iter().map(|problem| problem.kind);
    let Some(most_severe) = kinds().max() else { return Ok(Exit::Ok) };
    let any = |kind| kinds().any(|other| other == kind);
    let code = match most_severe {
        ProblemKind::Stopped => return Err(interrupted(options, is_many)),
        ProblemKind::Differs => Exit::VerificationFailed,
        _ if any(ProblemKind::Failed) => Exit::Failed,
        _ => Exit::Refused,
    };
    if let ([problem], false) = (problems, is_many) {
        return Err(Failure::new(code, problem.to_string()));
    }
    let (number, verb) = match problems.len() {
        1 => ("1 entry".to_owned(), "was"),
        number => (format!("{number} entries"), "were"),
    };
    let rest = match (options.all_or_nothing, options.plan) {
        (_, true) => "; nothing was done",
        (true, _) => ", so nothing was copied; fix the cause and run the same command again",
        _ => {
            "; all other entries were copied; fix the cause and run the same command again to \
             copy the rest"
        }
    };
    Err(Failure::new(code, format!("{number} {verb} not copied completely (see above){rest}")))
}

fn interrupted(options: &CopyOptions, is_many: bool) -> Failure {
    let what = match (is_many && !options.all_or_nothing, options.resume) {
        (_, true) => "interrupted; run the same command again to resume",
        (true, _) => {
            "interrupted; complete files were kept; run the same command again to copy the rest"
        }
        (false, _) => "interrupted; no part of the copy was kept",
    };
    Failure::new(Exit::Interrupted, what)
}

fn settings(
    options: &CopyOptions,
    interrupt: &Interrupt,
    works: &[Work],
    is_many: bool,
) -> Outcome<Settings> {
    let (verbose, plan) = (options.verbose, options.plan);
    Ok(Settings {
        may_replace: guard::replacing(&options.consent, &tree_destinations(works)),
        listener: Arc::new(move |event| print_event(event, verbose, plan, is_many)),
        stop: interrupt.shared_flag(),
        ..options.settings()?
    })
}

fn print_event(event: &Event, verbose: bool, plan: bool, is_many: bool) {
    let pair = |from: &Path, to: &Path| format!("{} -> {}", from.display(), to.display());
    match event {
        Event::Copied { from, to } if verbose => console::data(&pair(from, to)),
        Event::Deleted(path) if verbose => console::data(&format!("removed {}", path.display())),
        Event::Skipped(path) if verbose => {
            console::data(&format!("skipped {}", path.display()));
        }
        Event::WouldCopy { from, to, replaces } if plan => {
            let how = if *replaces { "replace" } else { "copy" };
            console::data(&format!("{how} {}", pair(from, to)));
        }
        Event::WouldDelete(path) if plan => console::data(&format!("remove {}", path.display())),
        // If only one file is copied, its problem is printed at the end, as the error of the
        // program.
        Event::Problem(problem) if is_many => console::error(&problem.to_string()),
        Event::Note(what) => Console::new(false).warn(what),
        _ => {}
    }
}

fn run_with_progress(
    options: &CopyOptions,
    settings: Settings,
    works: &[Work],
) -> Outcome<Vec<Problem>> {
    let progress = Arc::clone(&settings.progress);
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        let show = move || {
            let (clock, mut bar) =
                (Monotonic::uncalibrated(), Console::new(options.quiet).open_progress());
            let start_ns = clock.now_ns();
            // When the copy is complete, `done` is dropped. This ends the wait immediately.
            while is_done.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                let counts = progress.counts();
                let elapsed_ns = (clock.now_ns() - start_ns).max(1);
                let rate = units::rate(counts.new_bytes() as f64 * 1e9 / elapsed_ns as f64);
                let (size, files) = (units::size(counts.bytes), counts.files);
                let files = if files > 1 { format!(", {files} files") } else { String::new() };
                bar.advance(progress.share(), &format!("{size}{files}, {rate}"));
            }
            bar.finish();
        };
        // If this thread cannot be started, the copy runs without a progress display.
        let _ = std::thread::Builder::new().name("progress".into()).spawn_scoped(scope, show);
        let problems = run_all(options, settings, works);
        drop(done);
        problems
    })
}

fn run_all(options: &CopyOptions, settings: Settings, works: &[Work]) -> Outcome<Vec<Problem>> {
    let session = Session::new(settings);
    if works.len() > 1 {
        session.expect_many();
    }
    for work in works {
        announce_size(work, session.settings());
        match work {
            Work::Entry { from, to } => session.copy(from, to),
            Work::Stream { from, to } if options.plan => {
                let (from, to) = (inputs::shown(from), to.path.display());
                console::data(&format!("copy {from} -> {to}"));
            }
            Work::Stream { from, to } => match inputs::open(from, &session.settings().options) {
                Ok(input) => session.copy_input(input, to),
                Err(problem) => return Ok(vec![problem]),
            },
            Work::Device { from, target, name, permit } => {
                if options.plan {
                    let destroys = permit.as_ref().and_then(|permit| permit.destroys.as_deref());
                    let (from, what) = (inputs::shown(from), destroys.unwrap_or("all data on it"));
                    console::data(&format!("copy {from} -> {}, destroying {what}", name.display()));
                    continue;
                }
                let Some(device) = target.file() else { continue };
                if inputs::is_stdin(from) || is_stream(from) {
                    match inputs::open(from, &session.settings().options) {
                        Ok(input) => session.copy_input_to_device(input, device, name),
                        Err(problem) => return Ok(vec![problem]),
                    }
                } else {
                    session.copy_to_device(from, device, name);
                }
            }
            Work::Output { from } if options.plan => {
                console::data(&format!("copy {} -> standard output", inputs::shown(from)));
            }
            Work::Output { from } => send_to_output(from, session.settings())?,
        }
    }
    Ok(session.finish())
}

fn send_to_output(from: &Path, settings: &Settings) -> Outcome<()> {
    console::check_stdout()?;
    let mut output = Output::stdout().map_err(|error| console::cannot_write(&error))?;
    let input = inputs::open(from, &settings.options);
    let sent =
        input.map_err(Broken::Reading).and_then(|mut input| output.send(&mut input, settings));
    match sent {
        Ok(_) | Err(Broken::Gone) => Ok(()),
        Err(Broken::Reading(problem)) => Err(Failure::failed(problem.to_string())),
        Err(Broken::Writing(error)) => Err(console::cannot_write(&error)),
        Err(Broken::Stopped) => Err(Failure::interrupted()),
    }
}

/// If the size of the source is known, uses it as the expected size in the progress display.
fn announce_size(work: &Work, settings: &Settings) {
    let from = match work {
        Work::Entry { from, .. } | Work::Device { from, .. } | Work::Output { from } => from,
        Work::Stream { .. } => return,
    };
    if let Some(bytes) = inputs::size_of(from) {
        settings.progress.expect_bytes(bytes);
        settings.progress.set_counted(true);
    }
}
