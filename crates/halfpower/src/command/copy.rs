//! `halfpower copy`: files, trees, devices and streams, as fast as their storage can, whole or not
//! at all.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use cpucost::rusage::ProcessTime;
use ioengine::{Caching, Clock, HostTarget, Monotonic, Personality};
use schemars::JsonSchema;
use seqio::{Cache, Options};
use serde::Serialize;

use crate::cli::copy::CopyArgs;
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Outcome, check_not_under_dev};
use crate::guard::{self, Consent};
use crate::interrupt::Interrupt;
use crate::json::{self, Program};
use crate::replica::{self, Counts, Keep, Limiter, Settings, Tally};
use crate::units;

/// How often progress is shown.
const TICK: Duration = Duration::from_millis(50);

/// What `--json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CopyDocument {
    /// The program.
    pub halfpower: Program,
    /// What was copied.
    #[serde(flatten)]
    pub counts: Counts,
    /// Time until all was durable, or accepted with --no-sync (ns).
    pub elapsed_ns: u64,
    /// Bytes, less those that were there before, over that time (bytes per second).
    pub bytes_per_s: f64,
    /// CPU time of this process meanwhile (ns).
    pub cpu_ns: u64,
    /// Read back and compared.
    pub verified: bool,
    /// On the device, whatever happens now.
    pub durable: bool,
}

/// What is to become of one source.
#[derive(Debug, PartialEq, Eq)]
enum Work {
    /// A file to a file; whether one is replaced.
    File { from: PathBuf, to: PathBuf, replaces: bool },
    /// A folder to a new one, or into one.
    Tree { from: PathBuf, to: PathBuf, exists: bool },
    /// A symbolic link as such.
    Link { from: PathBuf, to: PathBuf },
    /// Anything to a block device.
    Device { from: PathBuf, to: PathBuf },
    /// Standard input to a file.
    StreamIn { to: PathBuf, replaces: bool },
    /// A file to standard output.
    StreamOut { from: PathBuf },
}

/// Copies and says what was copied.
pub fn execute(args: &CopyArgs) -> Outcome {
    let interrupt = Interrupt::install();
    let (to, sources) = args.paths.split_last().expect("at least two paths are required");
    let resolve = |from: &PathBuf| resolve(args, from, to, sources.len() > 1);
    let works: Vec<Work> = sources.iter().map(resolve).collect::<Outcome<_>>()?;
    if args.plan {
        works.iter().for_each(|work| console::data(&work.plan(args)));
        return Ok(Exit::Ok);
    }
    let settings = settings(args, interrupt)?;
    let clock = Monotonic::uncalibrated();
    let (start_ns, before) = (clock.now_ns(), ProcessTime::now());
    let outcome = watched(args, &settings, &works);
    let elapsed_ns = clock.now_ns() - start_ns;
    let cpu_ns = ProcessTime::now().total_ns - before.total_ns;
    let counts = settings.tally.counts();
    let console = Console::new(args.quiet);
    counts.notes.iter().for_each(|what| console.warn(what));
    outcome.map_err(|failure| with_advice(args, failure))?;
    let document = document(args, counts, elapsed_ns, cpu_ns);
    if args.json {
        console::data(&json::print(&document));
    } else if !works.iter().any(|work| matches!(work, Work::StreamOut { .. })) {
        console.say(summary(&document));
    }
    Ok(Exit::Ok)
}

/// What an interrupted copy leaves, and what can be done with it.
fn with_advice(args: &CopyArgs, failure: Failure) -> Failure {
    match (failure.exit, args.resume) {
        (Exit::Interrupted, true) => Failure::new(
            Exit::Interrupted,
            "interrupted; the same command goes on from what was copied",
        ),
        (Exit::Interrupted, false) => {
            Failure::new(Exit::Interrupted, "interrupted; nothing of the copy is left")
        }
        _ => failure,
    }
}

fn document(args: &CopyArgs, counts: Counts, elapsed_ns: u64, cpu_ns: u64) -> CopyDocument {
    CopyDocument {
        halfpower: Program::this(),
        elapsed_ns,
        bytes_per_s: counts.new_bytes() as f64 * 1e9 / elapsed_ns.max(1) as f64,
        cpu_ns,
        verified: args.verify,
        durable: !args.no_sync,
        counts,
    }
}

/// One line for a person.
fn summary(document: &CopyDocument) -> String {
    let counts = &document.counts;
    let what = match (counts.files, counts.folders) {
        (1, 0) => String::new(),
        (files, 0) => format!("{}, ", units::counted(files, "file")),
        (files, folders) => {
            let (files, folders) =
                (units::counted(files, "file"), units::counted(folders, "folder"));
            format!("{files} in {folders}, ")
        }
    };
    let (size, time) = (units::size(counts.bytes), units::time(document.elapsed_ns as f64));
    let rate = units::rate(document.bytes_per_s);
    let gib = counts.bytes as f64 / (1_u64 << 30) as f64;
    let cpu = units::time(document.cpu_ns as f64 / gib.max(1e-9));
    let mut parts = vec![format!("{what}{size} in {time}: {rate}")];
    if counts.bytes >= 1 << 26 {
        parts.push(format!("{cpu} of CPU for each GiB"));
    }
    if counts.resumed_bytes > 0 {
        parts.push(format!("{} were there already", units::size(counts.resumed_bytes)));
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

fn settings(args: &CopyArgs, interrupt: Interrupt) -> Outcome<Settings> {
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
        let personality: Personality = name.parse()?;
        if !personality.does_io() || personality == Personality::Mmap {
            return Err(Failure::usage(format!(
                "--ioengine {name} does not stream; use io_uring, threads, libaio or sync"
            )));
        }
        options = options.personality(personality);
    }
    Ok(Settings {
        options,
        keep: if args.archive { Keep::Everything } else { Keep::Modes },
        verify: args.verify,
        resume: args.resume,
        sync: !args.no_sync,
        cached: args.cached,
        threads: args.numjobs,
        consent: consent(args),
        tally: Arc::new(Tally::default()),
        limiter: Limiter::new(args.limit_rate),
        interrupt,
    })
}

fn consent(args: &CopyArgs) -> Consent {
    Consent { overwrite: args.overwrite.clone(), destroy_data_on: args.destroy_data_on.clone() }
}

/// Does the work while its progress is shown.
fn watched(args: &CopyArgs, settings: &Settings, works: &[Work]) -> Outcome<()> {
    let (over, is_over) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (clock, mut progress) =
                (Monotonic::uncalibrated(), Console::new(args.quiet).open_progress());
            let start_ns = clock.now_ns();
            // Woken as soon as the work is over: a copy of a millisecond takes no tick.
            while is_over.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                let counts = settings.tally.counts();
                let passed_ns = (clock.now_ns() - start_ns).max(1);
                let rate = units::rate(counts.new_bytes() as f64 * 1e9 / passed_ns as f64);
                let (size, files) = (units::size(counts.bytes), counts.files);
                let files = if files > 1 { format!(", {files} files") } else { String::new() };
                progress.advance(settings.tally.share(), &format!("{size}{files}, {rate}"));
            }
            progress.finish();
        });
        let done = works.iter().try_for_each(|work| work.run(settings));
        drop(over);
        done
    })
}

impl Work {
    fn run(&self, settings: &Settings) -> Outcome<()> {
        if settings.interrupt.is_set() {
            return Err(Failure::interrupted());
        }
        self.expect(settings);
        match self {
            Work::File { from, to, replaces } => {
                replica::one(settings, from, true, to, *replaces)?;
            }
            Work::Tree { from, to, exists } => replica::tree(settings, from, to, *exists)?,
            Work::Link { from, to } => replica::link(settings, from, to)?,
            Work::Device { from, to } => replica::device(settings, from, to)?,
            Work::StreamIn { to, replaces } => replica::stream_in(settings, to, *replaces)?,
            Work::StreamOut { from } => replica::stream_out(settings, from)?,
        }
        Ok(())
    }

    /// Tells the tally how much there is to come, where that is known.
    fn expect(&self, settings: &Settings) {
        let from = match self {
            Work::File { from, .. } | Work::Device { from, .. } | Work::StreamOut { from } => from,
            _ => return,
        };
        let file = fs::File::open(from);
        if let Ok(bytes) = file.and_then(|file| ioengine::open_file::size_bytes(&file)) {
            Tally::add(&settings.tally.expected_bytes, bytes);
            settings.tally.is_counted.store(true, Ordering::Relaxed);
        }
    }

    fn plan(&self, args: &CopyArgs) -> String {
        let size = |path: &Path| {
            let file = fs::File::open(path);
            let bytes = file.and_then(|file| ioengine::open_file::size_bytes(&file));
            bytes.map_or_else(|_| "what it holds".to_owned(), units::size)
        };
        let durable = if args.no_sync { "" } else { ", durable" };
        let name = |path: &Path| path.display().to_string();
        match self {
            Work::File { from, to, replaces } => {
                let how = if *replaces { "replace" } else { "write" };
                let (bytes, from, to) = (size(from), name(from), name(to));
                format!("copy {from} ({bytes}): {how} {to}{durable}; nothing was done")
            }
            Work::Tree { from, to, exists } => {
                let how = if *exists { "into the folder" } else { "to a new folder" };
                let (from, to) = (name(from), name(to));
                format!("copy all that is in {from} {how} {to}{durable}; nothing was done")
            }
            Work::Link { from, to } => {
                format!("make the link {} as {}; nothing was done", name(to), name(from))
            }
            Work::Device { from, to } => {
                let (bytes, from, to) = (size(from), name(from), name(to));
                format!("copy {from} ({bytes}) over the data on {to}{durable}; nothing was done")
            }
            Work::StreamIn { to, .. } => {
                format!("copy standard input to {}{durable}; nothing was done", name(to))
            }
            Work::StreamOut { from } => {
                format!("copy {} to standard output; nothing was done", name(from))
            }
        }
    }
}

/// Decides what is to become of a source, and refuses what cannot be or is not allowed.
fn resolve(args: &CopyArgs, from: &Path, to: &Path, many: bool) -> Outcome<Work> {
    let (from_stream, to_stream) = (from == Path::new("-"), to == Path::new("-"));
    if to_stream {
        if many {
            return Err(Failure::usage("several files to standard output: use halfpower cat"));
        }
        return Ok(Work::StreamOut { from: from.to_path_buf() });
    }
    let source = if from_stream { None } else { Some(look_at(from)?) };
    let there = fs::metadata(to).ok();
    let kind = there.as_ref().map(fs::Metadata::file_type);
    if kind.is_some_and(|kind| kind.is_block_device()) {
        return to_device(args, from, to, from_stream || many);
    }
    let is_folder = kind.is_some_and(|kind| kind.is_dir());
    let named_as_folder = to.as_os_str().as_encoded_bytes().ends_with(b"/");
    if !is_folder && (many || named_as_folder) {
        let to = to.display();
        let what = if kind.is_some() { "is no folder" } else { "does not exist" };
        return Err(Failure::usage(format!("{to} {what}; name a folder that exists")));
    }
    check_not_under_dev(to, "DST")?;
    let Some(source) = source else {
        if is_folder {
            return Err(Failure::usage(format!(
                "{} is a folder; name the file that standard input is to become",
                to.display()
            )));
        }
        let replaces = check_free(args, None, to)?;
        return Ok(Work::StreamIn { to: to.to_path_buf(), replaces });
    };
    let target = if is_folder { to.join(name_of(from)?) } else { to.to_path_buf() };
    let (from, kind) = (from.to_path_buf(), source.file_type());
    let as_link = args.archive && fs::symlink_metadata(&from).is_ok_and(|m| m.is_symlink());
    if as_link {
        check_free(args, None, &target)?;
        return Ok(Work::Link { from, to: target });
    }
    if kind.is_dir() {
        let exists = check_folder(args, &target)?;
        return Ok(Work::Tree { from, to: target, exists });
    }
    if !kind.is_file() && !kind.is_block_device() {
        let from = from.display();
        return Err(Failure::usage(format!(
            "{from} is no file, folder or block device; give it as standard input: - < {from}"
        )));
    }
    let replaces = check_free(args, Some(&source), &target)?;
    Ok(Work::File { from, to: target, replaces })
}

fn look_at(path: &Path) -> Outcome<fs::Metadata> {
    fs::metadata(path).map_err(|error| {
        let (path, cause) = (path.display(), ioengine::error::cause(&error));
        Failure::usage(format!("{path}: {cause}; name an existing file, folder or device"))
    })
}

/// The name that a source gets in a folder.
fn name_of(path: &Path) -> Outcome<std::ffi::OsString> {
    let own = path.file_name().map(ToOwned::to_owned);
    own.or_else(|| Some(path.canonicalize().ok()?.file_name()?.to_owned())).ok_or_else(|| {
        let path = path.display();
        Failure::usage(format!("{path} has no name of its own; name the folder that it becomes"))
    })
}

/// Refuses a destination that exists and was not named; whether one is replaced.
fn check_free(args: &CopyArgs, source: Option<&fs::Metadata>, to: &Path) -> Outcome<bool> {
    let shown = to.display();
    if fs::symlink_metadata(to).is_err() {
        return Ok(false);
    }
    let Ok(there) = fs::metadata(to) else {
        return Err(Failure::usage(format!(
            "{shown} is a link to nothing; remove it, or name another destination"
        )));
    };
    if source.is_some_and(|source| (source.dev(), source.ino()) == (there.dev(), there.ino())) {
        return Err(Failure::usage(format!("{shown} is the source itself; name another one")));
    }
    if there.is_dir() {
        return Err(Failure::usage(format!(
            "{shown} is a folder, the source is none; name another destination"
        )));
    }
    if !there.is_file() {
        return Err(Failure::usage(format!(
            "{shown} is neither a file nor a block device; use - and redirect standard output"
        )));
    }
    let target = HostTarget::open(to, false, Caching::Buffered)?;
    guard::check_writable(&target, to, &consent(args))?;
    Ok(true)
}

fn same(a: &Path, b: &Path) -> bool {
    let full = |path: &Path| {
        if path.as_os_str().is_empty() { Path::new(".") } else { path }.canonicalize()
    };
    matches!((full(a), full(b)), (Ok(a), Ok(b)) if a == b)
}

/// Refuses a folder that exists and was not named; whether it exists.
fn check_folder(args: &CopyArgs, to: &Path) -> Outcome<bool> {
    let shown = to.display();
    let Ok(there) = fs::symlink_metadata(to) else { return Ok(false) };
    if args.overwrite.iter().any(|named| same(named, to)) && there.is_dir() {
        return Ok(true);
    }
    Err(match there.is_dir() {
        true => Failure::refused(format!(
            "{shown} exists; name another folder, or allow replacing what the copy has in it with \
             --overwrite={shown}"
        )),
        false => Failure::usage(format!("{shown} is no folder; name another destination")),
    })
}

/// Anything over a block device that was given up.
fn to_device(args: &CopyArgs, from: &Path, to: &Path, impossible: bool) -> Outcome<Work> {
    if impossible {
        return Err(Failure::usage("a device takes one file or device; write others to a file"));
    }
    if !look_at(from)?.file_type().is_file() && !look_at(from)?.file_type().is_block_device() {
        return Err(Failure::usage("a device takes one file or device; write others to a file"));
    }
    let target = HostTarget::open(to, false, Caching::Buffered)?;
    guard::check_writable(&target, to, &consent(args))?;
    let (source, there) = (look_at(from)?, look_at(to)?);
    if source.file_type().is_block_device() && source.rdev() == there.rdev() {
        return Err(Failure::usage("source and destination are the same device"));
    }
    Ok(Work::Device { from: from.to_path_buf(), to: to.to_path_buf() })
}
