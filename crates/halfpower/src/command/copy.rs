//! `halfpower copy`: copies files, directory trees, devices and streams at the speed of the
//! storage. A file gets its name only when its copy is complete.

use analysis::units;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use cpucost::rusage::ProcessTime;
use filecopy::stream::{Broken, Output};
use filecopy::{
    Counts, Destination, Event, Existing, Filter, FilterRule, Keep, Limiter, Links, Problem,
    ProblemKind, Progress, Session, Settings,
};
use ioengine::{Caching, Clock, EngineKind, HostTarget, Monotonic};
use lab::console::{self, Console};
use lab::failure::{Exit, Failure, Outcome, check_not_under_dev};
use lab::guard::{self, Consent, Permit};
use lab::interrupt::Interrupt;
use lab::journal;
use lab::json::{self, Program};
use schemars::JsonSchema;
use seqio::{Cache, Options};
use serde::Serialize;

use crate::cli::copy::CopyArgs;
use crate::inputs;

/// Interval of progress updates.
const TICK: Duration = Duration::from_millis(50);

/// What `--json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CopyDocument {
    /// The program.
    pub halfpower: Program,
    /// Counts of what was copied.
    #[serde(flatten)]
    pub counts: Counts,
    /// Paths that could not be copied as asked, each with the reason.
    pub failures: Vec<FailureDocument>,
    /// Time until all data were durable, or written with --no-sync (ns).
    pub elapsed_ns: u64,
    /// Bytes copied by this run over that time (bytes per second).
    pub bytes_per_s: f64,
    /// CPU time of this process (ns).
    pub cpu_ns: u64,
    /// Whether the copies were read back and compared.
    pub verified: bool,
    /// Whether the data are flushed to the device.
    pub durable: bool,
}

/// One path that could not be copied as asked.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FailureDocument {
    /// Path of the source or of the destination.
    pub path: String,
    /// Kind of the failure: "refused", "failed" or "differs".
    pub kind: String,
    /// What failed, and the remedy.
    pub message: String,
}

/// How one source is copied.
#[derive(Debug)]
enum Work {
    /// A file, tree, link or special file.
    Entry { from: PathBuf, to: Destination },
    /// Standard input, a named pipe or a character device to a file.
    Stream { from: PathBuf, to: Destination },
    /// Any source to a block device.
    Device { from: PathBuf, target: Box<HostTarget>, name: PathBuf, permit: Option<Permit> },
    /// Any source to standard output.
    Output { from: PathBuf },
}

pub fn execute(args: &CopyArgs) -> Outcome {
    let interrupt = Interrupt::install();
    let (sources, to) = sources_and_destination(args)?;
    if sources.len() > 1 && to != Path::new("-") && !to.is_dir() {
        let what = if to.exists() { "is not a directory" } else { "does not exist" };
        let to = to.display();
        return Err(Failure::usage(format!("{to} {what}; name a directory that exists")));
    }
    let mut problems = Vec::new();
    let mut works = Vec::new();
    for from in sources {
        match resolve(args, from, to, sources.len() > 1) {
            Ok(work) => works.push(work),
            // With several sources, the others are still copied.
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
    let is_many = sources.len() > 1 || works.iter().any(is_tree);
    let settings = settings(args, &interrupt, &works, is_many)?;
    let progress = Arc::clone(&settings.progress);
    let clock = Monotonic::uncalibrated();
    let (start_ns, before) = (clock.now_ns(), ProcessTime::now());
    problems.extend(run_with_progress(args, settings, &works)?);
    let elapsed_ns = clock.now_ns() - start_ns;
    let cpu_ns = ProcessTime::now().total_ns - before.total_ns;
    let counts = progress.counts();
    if args.plan {
        console::data(&plan_summary(&counts));
        return exit(args, &problems, is_many);
    }
    let document = document(args, counts, &problems, elapsed_ns, cpu_ns);
    let console = Console::new(args.quiet);
    if args.json {
        console::data(&json::print(&document));
    } else if !is_output && (problems.is_empty() || is_many) {
        console.say(summary(&document));
    }
    exit(args, &problems, is_many)
}

fn sources_and_destination(args: &CopyArgs) -> Outcome<(&[PathBuf], &Path)> {
    if let Some(directory) = &args.target_directory {
        if !directory.is_dir() {
            let shown = directory.display();
            let what = format!("-t {shown}: not a directory; name an existing one");
            return Err(Failure::usage(what));
        }
        return Ok((&args.paths, directory));
    }
    match args.paths.split_last() {
        Some((to, sources)) if !sources.is_empty() => Ok((sources, to)),
        _ => Err(Failure::usage("name source and destination: halfpower copy SRC DST")),
    }
}

fn is_tree(work: &Work) -> bool {
    matches!(work, Work::Entry { from, .. } if from.is_dir())
}

/// Exit code by the most severe problem.
fn exit(args: &CopyArgs, problems: &[Problem], is_many: bool) -> Outcome {
    let kinds = || problems.iter().map(|problem| problem.kind);
    let Some(most_severe) = kinds().max() else { return Ok(Exit::Ok) };
    let any = |kind| kinds().any(|other| other == kind);
    let code = match most_severe {
        ProblemKind::Stopped => return Err(interrupted(args, is_many)),
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
    let rest = match (args.all_or_nothing, args.plan) {
        (_, true) => "nothing was done",
        (true, _) => "so nothing was copied; fix the cause and run the same command again",
        _ => "all others were; fix the cause and run the same command again to copy the rest",
    };
    Err(Failure::new(code, format!("{number} {verb} not copied completely (see above), {rest}")))
}

/// What an interrupted copy has left, and how to continue.
fn interrupted(args: &CopyArgs, is_many: bool) -> Failure {
    let what = match (is_many && !args.all_or_nothing, args.resume) {
        (_, true) => "interrupted; run the same command again to resume",
        (true, _) => {
            "interrupted; complete files were kept, run the same command again to copy the rest"
        }
        (false, _) => "interrupted; no part of the copy was kept",
    };
    Failure::new(Exit::Interrupted, what)
}

fn document(
    args: &CopyArgs,
    counts: Counts,
    problems: &[Problem],
    elapsed_ns: u64,
    cpu_ns: u64,
) -> CopyDocument {
    let kind = |kind| match kind {
        ProblemKind::Refused => "refused",
        ProblemKind::Differs => "differs",
        ProblemKind::Failed | ProblemKind::Stopped => "failed",
    };
    let failure = |problem: &Problem| FailureDocument {
        path: problem.path.display().to_string(),
        kind: kind(problem.kind).to_owned(),
        message: problem.to_string(),
    };
    CopyDocument {
        halfpower: Program::this(),
        failures: problems.iter().map(failure).collect(),
        elapsed_ns,
        bytes_per_s: counts.new_bytes() as f64 * 1e9 / elapsed_ns.max(1) as f64,
        cpu_ns,
        verified: args.verify,
        durable: !args.no_sync,
        counts,
    }
}

/// One line for the terminal.
fn summary(document: &CopyDocument) -> String {
    let counts = &document.counts;
    let what = match (counts.files, counts.directories) {
        (1, 0) => String::new(),
        (files, 0) => format!("{}, ", units::counted(files, "file")),
        (files, directories) => {
            let files = units::counted(files, "file");
            let noun = if directories == 1 { "directory" } else { "directories" };
            format!("{files} in {directories} {noun}, ")
        }
    };
    let (size, time) = (units::size(counts.bytes), units::time(document.elapsed_ns as f64));
    let rate = units::rate(document.bytes_per_s);
    let mut parts = vec![format!("{what}{size} in {time}: {rate}")];
    if counts.bytes >= 1 << 26 {
        let gib = counts.bytes as f64 / (1_u64 << 30) as f64;
        let cpu = units::time(document.cpu_ns as f64 / gib);
        parts.push(format!("{cpu} of CPU per GiB"));
    }
    if counts.resumed_bytes > 0 {
        parts.push(format!("{} already there", units::size(counts.resumed_bytes)));
    }
    for (number, what) in [(counts.skipped, "skipped"), (counts.deleted, "removed")] {
        if number > 0 {
            parts.push(format!("{number} {what}"));
        }
    }
    if !counts.how.is_empty() {
        parts.push(counts.how.clone());
    }
    if document.verified {
        parts.push("read back and compared".to_owned());
    }
    parts.push(if document.durable { "durable" } else { "not yet durable" }.to_owned());
    parts.join("; ")
}

fn plan_summary(counts: &Counts) -> String {
    let (files, size) = (units::counted(counts.files, "file"), units::size(counts.bytes));
    format!("{files}, {size}: nothing was done")
}

/// The destinations of directory trees.
fn tree_destinations(works: &[Work]) -> Vec<PathBuf> {
    let tree = |work: &Work| match work {
        Work::Entry { to, .. } if is_tree(work) => Some(to.path.clone()),
        _ => None,
    };
    works.iter().filter_map(tree).collect()
}

fn settings(
    args: &CopyArgs,
    interrupt: &Interrupt,
    works: &[Work],
    is_many: bool,
) -> Outcome<Settings> {
    let rule = |(includes, text): &(bool, String)| FilterRule::new(*includes, text);
    let rules = args.filter.patterns.iter().map(rule).collect::<Result<Vec<_>, String>>();
    let (verbose, plan) = (args.verbose, args.plan);
    Ok(Settings {
        options: options(args)?,
        keep: match (args.archive, args.preserve) {
            (true, _) => Keep::All,
            (_, true) => Keep::Basics,
            _ => Keep::Mode,
        },
        links: if args.dereference { Links::Follow } else { Links::Keep },
        one_file_system: args.one_file_system,
        filter: Filter::new(rules.map_err(Failure::usage)?),
        existing: match (args.no_clobber, args.update) {
            (true, _) => Existing::Leave,
            (_, true) => Existing::Update,
            _ => Existing::Replace,
        },
        delete: args.delete,
        force: args.force,
        all_or_nothing: args.all_or_nothing,
        verify: args.verify,
        resume: args.resume,
        sync: !args.no_sync,
        cached: args.cached,
        dry_run: args.plan,
        threads: args.numjobs,
        state_folder: journal::copies_folder(),
        may_replace: guard::replacing(&consent(args), &tree_destinations(works)),
        listener: Arc::new(move |event| print_event(event, verbose, plan, is_many)),
        progress: Arc::new(Progress::default()),
        limiter: Limiter::new(args.limit_rate),
        stop: interrupt.shared_flag(),
    })
}

fn options(args: &CopyArgs) -> Outcome<Options> {
    let cache = if args.cached { Cache::Buffered } else { Cache::Auto };
    let mut options = Options::new().cache(cache).keep_holes(args.sparse);
    if let Some(bytes) = args.bs {
        let most = *seqio::tune::REQUEST_BYTES.end();
        let fits = u32::try_from(bytes).ok().filter(|bytes| (1..=most).contains(bytes));
        let bytes = fits.ok_or_else(|| {
            let most = units::size(most.into());
            Failure::usage(format!("--bs {bytes}: use 4k to {most}"))
        })?;
        options = options.request_bytes(bytes);
    }
    if let Some(depth) = args.iodepth {
        options = options.depth(depth);
    }
    if let Some(name) = args.ioengine.as_deref().filter(|name| *name != "auto") {
        let engine_kind: EngineKind = name.parse()?;
        if !engine_kind.does_io() || engine_kind == EngineKind::Mmap {
            return Err(Failure::usage(format!(
                "--ioengine {name} cannot stream; use io_uring, threads, libaio or sync"
            )));
        }
        options = options.engine_kind(engine_kind);
    }
    Ok(options)
}

fn consent(args: &CopyArgs) -> Consent {
    Consent { overwrite: args.overwrite.clone(), destroy_data_on: args.destroy_data_on.clone() }
}

/// Prints the events of the copy that the flags select.
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
        // The problem of a single file is the error of the program, printed at its end.
        Event::Problem(problem) if is_many => console::error(&problem.to_string()),
        Event::Note(what) => Console::new(false).warn(what),
        _ => {}
    }
}

/// Runs all work with a progress display; returns the problems.
fn run_with_progress(args: &CopyArgs, settings: Settings, works: &[Work]) -> Outcome<Vec<Problem>> {
    let progress = Arc::clone(&settings.progress);
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        let show = move || {
            let (clock, mut bar) =
                (Monotonic::uncalibrated(), Console::new(args.quiet).open_progress());
            let start_ns = clock.now_ns();
            // Dropping the sender ends the wait immediately, so a short copy waits for no tick.
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
        // Without a thread there is no progress display.
        let _ = std::thread::Builder::new().name("progress".into()).spawn_scoped(scope, show);
        let problems = run_all(args, settings, works);
        drop(done);
        problems
    })
}

fn run_all(args: &CopyArgs, settings: Settings, works: &[Work]) -> Outcome<Vec<Problem>> {
    let session = Session::new(settings);
    if works.len() > 1 {
        session.expect_many();
    }
    for work in works {
        announce_size(work, session.settings());
        match work {
            Work::Entry { from, to } => session.copy(from, to),
            Work::Stream { from, to } if args.plan => {
                let (from, to) = (inputs::shown(from), to.path.display());
                console::data(&format!("copy {from} -> {to}"));
            }
            Work::Stream { from, to } => match inputs::open(from, &session.settings().options) {
                Ok(input) => session.copy_input(input, to),
                Err(problem) => return Ok(vec![problem]),
            },
            Work::Device { from, target, name, permit } => {
                if args.plan {
                    let destroys = permit.as_ref().and_then(|permit| permit.destroys.as_deref());
                    let (from, what) = (inputs::shown(from), destroys.unwrap_or("all data on it"));
                    console::data(&format!("copy {from} -> {}: destroys {what}", name.display()));
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
            Work::Output { from } if args.plan => {
                console::data(&format!("copy {} -> standard output", inputs::shown(from)));
            }
            Work::Output { from } => send_to_output(from, session.settings())?,
        }
    }
    Ok(session.finish())
}

fn send_to_output(from: &Path, settings: &Settings) -> Outcome<()> {
    inputs::check_stdout()?;
    let mut output = Output::stdout().map_err(|error| cannot_write(&error))?;
    let input = inputs::open(from, &settings.options);
    let sent =
        input.map_err(Broken::Reading).and_then(|mut input| output.send(&mut input, settings));
    match sent {
        Ok(_) | Err(Broken::Gone) => Ok(()),
        Err(Broken::Reading(problem)) => Err(Failure::failed(problem.to_string())),
        Err(Broken::Writing(error)) => Err(cannot_write(&error)),
        Err(Broken::Stopped) => Err(Failure::interrupted()),
    }
}

/// The failure of a write to standard output.
pub fn cannot_write(error: &io::Error) -> Failure {
    let cause = ioengine::error::cause(error);
    Failure::failed(format!("writing to standard output: {cause}; redirect it elsewhere"))
}

/// Tells the progress display the size of the source, if known.
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

/// Decides how a source is copied.
///
/// # Errors
/// A copy that is impossible or not allowed.
fn resolve(args: &CopyArgs, from: &Path, to: &Path, many: bool) -> Outcome<Work> {
    let is_stdin = inputs::is_stdin(from);
    if to == Path::new("-") {
        return to_output(args, from, many);
    }
    let source = if is_stdin { None } else { Some(metadata_of(args, from)?) };
    let existing = fs::metadata(to).ok();
    let kind = existing.as_ref().map(fs::Metadata::file_type);
    if kind.is_some_and(|kind| kind.is_block_device()) {
        return to_device(args, from, source.as_ref(), to, many);
    }
    let is_directory = kind.is_some_and(|kind| kind.is_dir());
    let named_as_directory = to.as_os_str().as_encoded_bytes().ends_with(b"/");
    let is_tree = source.as_ref().is_some_and(fs::Metadata::is_dir);
    let into = args.target_directory.is_some() || (is_directory && !args.no_target_directory);
    if !is_directory && named_as_directory && !is_tree {
        let to = to.display();
        let what = if kind.is_some() { "is not a directory" } else { "does not exist" };
        return Err(Failure::usage(format!("{to} {what}; name a directory that exists")));
    }
    if many && args.no_target_directory {
        return Err(Failure::usage("-T takes only one source; drop -T to copy into the directory"));
    }
    check_not_under_dev(to, "DST")?;
    check_link(to)?;
    let Some(source) = source else {
        if into {
            let to = to.display();
            let what = format!("{to} is a directory; name the file to write standard input to");
            return Err(Failure::usage(what));
        }
        return Ok(Work::Stream { from: from.to_path_buf(), to: destination(to) });
    };
    let is_merged = is_tree && (holds_contents(from) || (!many && was_made_from(from, to)));
    let path = if into && !is_merged { to.join(name_of(from)?) } else { to.to_path_buf() };
    if !is_tree && path.is_dir() {
        let shown = path.display();
        let what =
            format!("{shown} is a directory but the source is not; name another destination");
        return Err(Failure::usage(what));
    }
    if is_tree && fs::symlink_metadata(&path).is_ok() && !path.is_dir() {
        let shown = path.display();
        let what =
            format!("{shown} is not a directory but the source is; name another destination");
        return Err(Failure::usage(what));
    }
    if fs::metadata(&path).is_ok_and(|existing| is_same(&existing, &source)) {
        let shown = path.display();
        return Err(Failure::usage(format!(
            "{shown} is the source itself; name another destination"
        )));
    }
    let (from, to) = (from.to_path_buf(), destination(&path));
    let kind = source.file_type();
    if (kind.is_fifo() || kind.is_char_device()) && !args.archive {
        return Ok(Work::Stream { from, to });
    }
    if is_tree {
        filecopy::check_tree(&from, &to, args.all_or_nothing).map_err(|problem| {
            let exit =
                if problem.kind == ProblemKind::Refused { Exit::Refused } else { Exit::Failed };
            Failure::new(exit, problem.to_string())
        })?;
    }
    Ok(Work::Entry { from, to })
}

/// Refuses a destination that is a symbolic link of another user, since it may point anywhere. Own
/// links and those of root are followed.
fn check_link(to: &Path) -> Outcome<()> {
    let own = rustix::process::geteuid().as_raw();
    let is_foreign = |link: fs::Metadata| link.is_symlink() && link.uid() != own && link.uid() != 0;
    if fs::symlink_metadata(to).is_ok_and(is_foreign) {
        return Err(Failure::refused(format!(
            "{} is a symbolic link of another user; name the directory that it points to",
            to.display()
        )));
    }
    Ok(())
}

fn destination(path: &Path) -> Destination {
    Destination { path: path.to_path_buf() }
}

/// Whether a source means the content of a directory: `DIR/.`.
fn holds_contents(from: &Path) -> bool {
    let text = from.as_os_str().as_encoded_bytes();
    text == b"." || text.ends_with(b"/.") || text.ends_with(b"/./")
}

/// Whether an earlier copy of the same source created the directory `to`. Then the copy is repeated
/// there instead of in a subdirectory.
fn was_made_from(from: &Path, to: &Path) -> bool {
    journal::copies_folder().is_some_and(|folder| filecopy::is_copy_of(&folder, from, to))
}

fn is_same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Whether a path is a stream, without offsets: a named pipe or a character device.
fn is_stream(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_fifo() || kind.is_char_device()
    })
}

/// Metadata of a source; with --archive a link is not followed.
fn metadata_of(args: &CopyArgs, path: &Path) -> Outcome<fs::Metadata> {
    let is_itself = args.archive && !args.dereference;
    let found = if is_itself { fs::symlink_metadata(path) } else { fs::metadata(path) };
    found.map_err(|error| {
        let shown = path.display();
        if !is_itself && fs::symlink_metadata(path).is_ok_and(|link| link.is_symlink()) {
            return Failure::usage(format!(
                "{shown} is a dangling symbolic link; --archive copies it as a link"
            ));
        }
        let cause = ioengine::error::cause(&error);
        Failure::usage(format!("{shown}: {cause}; name an existing file, directory or device"))
    })
}

/// The name of a source within a destination directory.
fn name_of(path: &Path) -> Outcome<std::ffi::OsString> {
    let own = path.file_name().map(ToOwned::to_owned);
    own.or_else(|| Some(path.canonicalize().ok()?.file_name()?.to_owned())).ok_or_else(|| {
        let path = path.display();
        Failure::usage(format!("{path} has no file name; name the copy with -T"))
    })
}

fn to_output(args: &CopyArgs, from: &Path, many: bool) -> Outcome<Work> {
    if many {
        return Err(Failure::usage(
            "standard output takes one source; use halfpower cat for several files",
        ));
    }
    if args.json || args.verbose {
        return Err(Failure::usage(
            "standard output carries the data; drop --json and --verbose, or name a file",
        ));
    }
    if from.is_dir() {
        let from = from.display();
        return Err(Failure::usage(format!("{from} is a directory; pack it with tar first")));
    }
    Ok(Work::Output { from: from.to_path_buf() })
}

/// Any source to a block device, whose data the user has given up.
fn to_device(
    args: &CopyArgs,
    from: &Path,
    source: Option<&fs::Metadata>,
    to: &Path,
    many: bool,
) -> Outcome<Work> {
    if many || source.is_some_and(fs::Metadata::is_dir) {
        return Err(Failure::usage("a device takes one source: a file, device or stream"));
    }
    let target = HostTarget::open(to, false, Caching::Buffered)?;
    guard::check_writable(&target, to, &consent(args))?;
    if let Some(source) = source {
        let device = metadata_of(args, to)?;
        let size = inputs::size_of(from);
        if source.file_type().is_block_device() && source.rdev() == device.rdev() {
            return Err(Failure::usage("source and destination are the same device"));
        }
        if size.is_some_and(|size| size > ioengine::Target::size_bytes(&target)) {
            let (from, to) = (from.display(), to.display());
            let (size, room) = (size.unwrap_or(0), ioengine::Target::size_bytes(&target));
            return Err(Failure::usage(format!(
                "{from} has {size} bytes but {to} only {room}; nothing was written, name a larger \
                 device"
            )));
        }
    }
    // Opened for writing only after all checks, and checked again, as it may have changed.
    let target = Box::new(HostTarget::open(to, !args.plan, Caching::Buffered)?);
    let permit = guard::check_writable(&target, to, &consent(args))?;
    let (from, name) = (from.to_path_buf(), to.to_path_buf());
    Ok(Work::Device { from, target, name, permit })
}
