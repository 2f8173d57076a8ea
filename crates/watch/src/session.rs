//! Watches a command until it ends, or running processes or a file system for a limited time, and
//! stores the trace.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use analysis::units;
use calltrace::record::What;
use calltrace::{Declined, Filter, Record, Recorder, RecorderSpec, Requests};
use ioengine::{Clock, Monotonic};
use lab::console::{Console, Progress};
use lab::failure::{Exit, Failure, Outcome, check_not_under_dev};
use lab::interrupt::{Interrupt, Signals};
use lab::trace_file::failed;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use trace::{FileId, Header, Loss, Request, TraceReader, TraceWriter};

use crate::document::{RecordingDocument, TraceDocument};
use crate::summary::Summary;
use crate::target_filter;
use crate::totals::{Totals, TotalsDocument};

/// Pause before an empty buffer is read again (ns).
const POLL_NS: u64 = 5_000_000;
/// Maximum number of records that are read in one call.
const BATCH: usize = 4096;
/// Maximum number of system calls in a round that measures the cost of recording.
const COST_CALLS: u64 = 4000;
/// Number of rounds that measure the cost of recording. The fastest round is used.
const COST_ROUNDS: u32 = 5;
/// Buffer space that is reserved for each measured call (bytes). This is several times the length
/// of a record.
const COST_RECORD_BYTES: u32 = 1024;
/// Default name of the trace file, without its extension.
const DEFAULT_NAME: &str = "halfpower-trace";

/// What to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// A command and its arguments, at least one word.
    Command(Vec<OsString>),
    /// Running processes, given by their ids.
    Processes(Vec<u32>),
    /// All processes that use this block device, or the file system of this directory or file.
    Target(PathBuf),
}

/// Options of a watch.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// What to watch.
    pub whom: Whom,
    /// Time limit for watching processes or a target (ns). None to watch until the processes end or
    /// the user interrupts.
    pub limit_ns: Option<u64>,
    /// Path of the trace file. None for a default name: `halfpower-trace.parquet`. If this file
    /// exists, the name is `halfpower-trace-2.parquet`, and so on.
    pub output: Option<PathBuf>,
    /// Whether to redirect the standard output of the command to standard error.
    pub stdout_to_stderr: bool,
    /// Whether to print only warnings and errors.
    pub quiet: bool,
    /// Size of the buffer between the kernel and this program, a power of two (bytes).
    pub buffer_bytes: u32,
}

impl Whom {
    /// Returns the command as one line. Empty if no command was started.
    fn command(&self) -> String {
        match self {
            Whom::Command(words) => {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                words.join(" ")
            }
            Whom::Processes(_) | Whom::Target(_) => String::new(),
        }
    }
}

impl WatchOptions {
    /// Checks whether the time limit is reached or the user interrupted.
    fn is_over(&self, begun_ns: u64, now_ns: u64, interrupt: &Interrupt) -> bool {
        interrupt.is_set() || self.limit_ns.is_some_and(|ns| now_ns - begun_ns >= ns)
    }
}

/// The result of a watch.
#[derive(Debug)]
pub struct Watched {
    /// Statistics of the recorded requests.
    pub document: TraceDocument,
    /// Exit status of the command. None if no command was started.
    pub status: Option<ExitStatus>,
}

/// Watches programs and returns the result. If the user has no rights to record, prints a warning
/// and returns only the I/O totals that the kernel counts.
///
/// # Errors
/// The command cannot be run, or the trace cannot be written. Without the rights to record, it is
/// also an error if `output` is given or a target is to be watched.
pub fn run(options: &WatchOptions, interrupt: &Interrupt) -> Outcome<Watched> {
    let path = output(options.output.as_deref())?;
    let (mut requests, mut target) = (Requests::new(), String::new());
    match &options.whom {
        Whom::Command(_) => {}
        Whom::Processes(processes) => processes.iter().try_for_each(|one| check_process(*one))?,
        Whom::Target(path) => {
            let (filter, name) = filter(path)?;
            (requests, target) = (Requests::only(filter), name);
        }
    }
    let spec = RecorderSpec { buffer_bytes: options.buffer_bytes, ..RecorderSpec::default() };
    let (mut recorder, per_call_ns) = match start(&spec) {
        Ok(started) => started,
        Err(why) if why.is_about_rights() && options.output.is_none() => {
            return without_recording(options, interrupt, &why);
        }
        Err(why) => return Err(declined(&why)),
    };
    let writer = TraceWriter::create(&path).map_err(|error| failed(&error))?;
    let mut recording = Recording::new(writer, requests);
    let begun_unix_ns = u64::try_from(ioengine::clock::unix_ns()).ok();
    let signals = match options.whom {
        Whom::Command(_) => Signals::install(),
        Whom::Processes(_) | Whom::Target(_) => Signals::default(),
    };
    let mut watcher = Watcher { live: Live::new(options.quiet), recorder: &mut recorder, signals };
    let ended = match &options.whom {
        Whom::Command(words) => watcher.command(options, words, &mut recording)?,
        Whom::Processes(processes) => {
            for process in processes {
                recording.requests.learn_process(*process);
                watcher.recorder.watch(*process).map_err(|e| declined(&e))?;
            }
            let is_over = || processes.iter().all(|process| check_process(*process).is_err());
            watcher.until(options, interrupt, is_over, &mut recording)
        }
        Whom::Target(_) => {
            for process in watcher.recorder.watch_all().map_err(|e| declined(&e))? {
                recording.requests.learn_process(process);
            }
            recording.target = target;
            watcher.until(options, interrupt, || false, &mut recording)
        }
    };
    let header = Header {
        source: "watch".to_owned(),
        command: options.whom.command(),
        host: lab::machine::host_name(),
        started_unix_ns: begun_unix_ns,
        notes: notes(&recorder),
        ..Header::default()
    };
    let calls = recording.calls;
    recording.finish(&recorder, header)?;
    let mut document = summarise(&path)?;
    document.recording = Some(RecordingDocument { per_call_ns, calls });
    document.totals = ended.totals;
    Ok(Watched { document, status: ended.status })
}

/// Reads a stored trace and computes its statistics.
///
/// # Errors
/// The trace cannot be read.
pub fn summarise(path: &Path) -> Outcome<TraceDocument> {
    let mut reader = TraceReader::open(path).map_err(|error| failed(&error))?;
    let mut summary = Summary::default();
    for request in &mut reader {
        summary.take(&request.map_err(|error| failed(&error))?);
    }
    Ok(TraceDocument::of(&summary, reader.header(), path.display().to_string()))
}

fn declined(declined: &Declined) -> Failure {
    Failure::failed(declined.to_string())
}

/// Returns the path of the trace file: the given path, or a default name that is not used yet.
fn output(named: Option<&Path>) -> Outcome<PathBuf> {
    if let Some(path) = named {
        check_not_under_dev(path, "--output")?;
        return Ok(path.to_owned());
    }
    let numbered = (2_u32..).map(|number| format!("{DEFAULT_NAME}-{number}.parquet"));
    let mut names = std::iter::once(format!("{DEFAULT_NAME}.parquet")).chain(numbered);
    // While a trace is being written, its name ends with `.PID.partial`. The name without this
    // ending also counts as used.
    let entries = std::fs::read_dir(".").into_iter().flatten().flatten();
    let taken: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let is_taken = |name: &String| {
        let partial = format!("{name}.");
        taken.iter().any(|other| other == name || other.starts_with(&partial))
    };
    let free = names.find(|name| !is_taken(name));
    Ok(PathBuf::from(free.expect("the numbers do not end")))
}

fn check_process(process: u32) -> Outcome<()> {
    let remedy = "pgrep NAME and ps list the running processes";
    let Ok(status) = std::fs::read_to_string(format!("/proc/{process}/status")) else {
        return Err(Failure::usage(format!("--pid {process}: no such process; {remedy}")));
    };
    let field = |name: &str| {
        let mut lines = status.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(known, _)| *known == name).map_or("", |(_, value)| value.trim())
    };
    if field("State").starts_with('Z') {
        return Err(Failure::usage(format!("--pid {process}: the process has ended; {remedy}")));
    }
    match field("Tgid") {
        group if group != process.to_string() => Err(Failure::usage(format!(
            "--pid {process}: this is a thread of process {group}; use --pid {group}"
        ))),
        _ => Ok(()),
    }
}

/// Returns the filter for the file systems and devices of a target, and the name of the target.
fn filter(path: &Path) -> Outcome<(Filter, String)> {
    target_filter::of(path).map_err(|error| {
        Failure::usage(format!(
            "--target {}: {}; specify a directory, a file or a block device",
            path.display(),
            ioengine::error::cause(&error)
        ))
    })
}

/// Starts a recorder. Returns the recorder, and the time that recording adds to a call (ns).
fn start(spec: &RecorderSpec) -> Result<(Recorder, f64), Declined> {
    // The buffer must hold the records of all calls, so that none is lost.
    let calls = u64::from(spec.buffer_bytes / COST_RECORD_BYTES).clamp(16, COST_CALLS);
    let without = call_ns(calls, || {});
    let mut recorder = Recorder::start(spec)?;
    let own = std::process::id();
    recorder.watch(own)?;
    let with = call_ns(calls, || recorder.start_over());
    recorder.ignore(own)?;
    recorder.start_over();
    Ok((recorder, without.zip(with).map_or(0.0, |(without, with)| (with - without).max(0.0))))
}

/// Measures the time of a read from the page cache (ns). Returns the lowest mean of several rounds.
fn call_ns(calls: u64, mut between_rounds: impl FnMut()) -> Option<f64> {
    let file = File::open("/proc/self/exe").ok()?;
    let clock = Monotonic::new();
    let mean = |_| {
        between_rounds();
        let begun_ns = clock.now_ns();
        for _ in 0..calls {
            file.read_at(&mut [0], 0).ok()?;
        }
        Some((clock.now_ns() - begun_ns) as f64 / calls as f64)
    };
    (0..COST_ROUNDS).filter_map(mean).min_by(f64::total_cmp)
}

fn notes(recorder: &Recorder) -> Vec<String> {
    let missing = recorder.missing().iter();
    missing.map(|what| format!("this kernel does not show {what}")).collect()
}

/// The results of a watch that are not stored in the trace.
struct EndOfWatch {
    /// Exit status of the command. None if no command was started.
    status: Option<ExitStatus>,
    /// Totals that the kernel counted. None if they are not available.
    totals: Option<TotalsDocument>,
}

struct Watcher<'a> {
    live: Live,
    recorder: &'a mut Recorder,
    signals: Signals,
}

impl Watcher<'_> {
    fn command(
        &mut self,
        options: &WatchOptions,
        words: &[OsString],
        recording: &mut Recording,
    ) -> Outcome<EndOfWatch> {
        let own = std::process::id();
        // The command inherits the working directory and open files of this process. They are read
        // here because the command may end before its own /proc entry can be read.
        recording.requests.learn_process(own);
        self.recorder.watch_children(own).map_err(|e| declined(&e))?;
        let child = spawn(words, options.stdout_to_stderr);
        self.recorder.ignore(own).map_err(|e| declined(&e))?;
        let mut child = child?;
        let begun_ns = self.live.clock.now_ns();
        let totals = Totals::of(child.id());
        recording.command = Some(child.id());
        while !has_ended(&child)? {
            pass_on(&self.signals, &child);
            let read = recording.take(self.recorder);
            self.live.show(recording, self.recorder, read);
        }
        recording.watched_ns = self.live.clock.now_ns() - begun_ns;
        self.take_rest(recording);
        let totals = totals.read();
        Ok(EndOfWatch { status: Some(status_of(&mut child)?), totals })
    }

    /// Records until the limit is reached, the user interrupts, or `is_over` returns true.
    fn until(
        &mut self,
        options: &WatchOptions,
        interrupt: &Interrupt,
        is_over: impl Fn() -> bool,
        recording: &mut Recording,
    ) -> EndOfWatch {
        let begun_ns = self.live.clock.now_ns();
        loop {
            let is_over =
                options.is_over(begun_ns, self.live.clock.now_ns(), interrupt) || is_over();
            let read = recording.take(self.recorder);
            recording.watched_ns = self.live.clock.now_ns() - begun_ns;
            if is_over {
                self.take_rest(recording);
                return EndOfWatch { status: None, totals: None };
            }
            self.live.show(recording, self.recorder, read);
        }
    }

    /// Takes all records that have been written to the buffer.
    fn take_rest(&mut self, recording: &mut Recording) {
        let end = self.recorder.end_so_far();
        while !self.recorder.has_read(end) {
            recording.take(self.recorder);
        }
    }
}

/// Runs the command, or waits for the process, without recording. The result contains only the I/O
/// totals that the kernel counts.
fn without_recording(
    options: &WatchOptions,
    interrupt: &Interrupt,
    why: &Declined,
) -> Outcome<Watched> {
    Console::new(options.quiet).warn(format!("{why}; only totals are reported"));
    let clock = Monotonic::new();
    let begun_ns = clock.now_ns();
    let ended = match &options.whom {
        Whom::Command(words) => {
            // When a child is reaped, the kernel adds the child's totals to the totals of this
            // process. The other I/O of this process is negligible.
            let own = Totals::of(std::process::id());
            let before = own.read();
            let mut child = spawn(words, options.stdout_to_stderr)?;
            while !has_ended(&child)? {
                clock.sleep_until(clock.now_ns() + POLL_NS);
            }
            let status = Some(status_of(&mut child)?);
            let totals = before.zip(own.read()).map(|(before, after)| after.since(before));
            EndOfWatch { status, totals }
        }
        Whom::Processes(processes) => {
            let source = Totals::of(processes.first().copied().unwrap_or_default());
            let before = source.read();
            if before.is_none() {
                return Err(declined(why));
            }
            let mut totals = None;
            while let Some(now) = source.read() {
                totals = before.map(|before| now.since(before));
                if options.is_over(begun_ns, clock.now_ns(), interrupt) {
                    break;
                }
                clock.sleep_until(clock.now_ns() + POLL_NS);
            }
            EndOfWatch { status: None, totals }
        }
        Whom::Target(_) => return Err(declined(why)),
    };
    let header =
        Header { source: "proc".to_owned(), command: options.whom.command(), ..Header::default() };
    let mut document = TraceDocument::of(&Summary::default(), &header, String::new());
    document.duration_ns = clock.now_ns() - begun_ns;
    document.totals = ended.totals;
    // The warning gives the reason, but JSON output must contain the reason, too.
    document.notes.push(match options.stdout_to_stderr {
        true => why.to_string(),
        false => "only totals are shown, because no requests were recorded".to_owned(),
    });
    Ok(Watched { document, status: ended.status })
}

/// Forwards SIGTERM and SIGHUP to the command. The watch continues until the command ends.
fn pass_on(signals: &Signals, child: &Child) {
    if let (Some(signal), Some(pid)) = (signals.take(), Pid::from_raw(child.id() as i32)) {
        let signal = if signal == Signals::HANG_UP { Signal::HUP } else { Signal::TERM };
        // An error means that the command has just ended.
        let _ = kill_process(pid, signal);
    }
}

/// Checks whether the command has ended. The command is not reaped, so that its totals can still be
/// read.
fn has_ended(child: &Child) -> Outcome<bool> {
    let pid = Pid::from_raw(child.id() as i32).expect("a child has an id");
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let ended = waitid(WaitId::Pid(pid), options);
    ended.map(|ended| ended.is_some()).map_err(|error| waiting(&error.into()))
}

fn status_of(child: &mut Child) -> Outcome<ExitStatus> {
    child.wait().map_err(|error| waiting(&error))
}

fn waiting(error: &io::Error) -> Failure {
    Failure::failed(format!("cannot wait for the end of the command: {error}"))
}

fn spawn(words: &[OsString], stdout_to_stderr: bool) -> Outcome<Child> {
    let name = words.first().ok_or_else(|| Failure::usage("specify a command after --"))?;
    let mut command = Command::new(name);
    command.args(&words[1..]);
    if stdout_to_stderr {
        command.stdout(Stdio::from(io::stderr()));
    }
    command.spawn().map_err(|error| {
        let name = name.display();
        match error.kind() {
            io::ErrorKind::NotFound => Failure::new(
                Exit::Command(127),
                format!("{name}: not found; use a program in the PATH, or specify a path"),
            ),
            _ => {
                let cause = ioengine::error::cause(&error);
                let remedy = "make the file executable (chmod +x)";
                Failure::new(Exit::Command(126), format!("cannot run {name}: {cause}; {remedy}"))
            }
        }
    })
}

struct Live {
    clock: Monotonic,
    progress: Progress,
}

impl Live {
    fn new(quiet: bool) -> Live {
        Live { clock: Monotonic::new(), progress: Console::new(quiet).open_progress() }
    }

    /// If no records were read, updates the progress line and pauses.
    fn show(&mut self, recording: &Recording, recorder: &Recorder, read: usize) {
        if read == 0 {
            let lost: u64 = recorder.lost().iter().map(|(_, count)| count).sum();
            let calls = units::counted(recording.calls, "call");
            self.progress.update(&format!("watching: {calls}, {lost} events lost"));
            self.clock.sleep_until(self.clock.now_ns() + POLL_NS);
        }
    }
}

/// A trace that is being written.
struct Recording {
    requests: Requests,
    writer: TraceWriter,
    /// For each file id of `requests`, the id of the file in the trace.
    files: Vec<FileId>,
    made: Vec<Request>,
    /// Number of requests of the watched program, without those of the block layer.
    calls: u64,
    /// Duration of the watch (ns). It may include one pause between two reads of the buffer.
    watched_ns: u64,
    /// Process id of the command. None if no command was started.
    command: Option<u32>,
    created_ns: Option<u64>,
    ended_ns: Option<u64>,
    /// The file system or device that is watched. Empty if a program is watched.
    target: String,
    /// Ids of the processes that made requests.
    active: HashSet<u32>,
    /// The first error that occurred while the trace was written. None if there was no error. After
    /// an error, the watched program continues to run.
    failure: Option<Failure>,
}

impl Recording {
    fn new(mut writer: TraceWriter, requests: Requests) -> Recording {
        writer.start_at_first();
        Recording {
            requests,
            writer,
            files: Vec::new(),
            made: Vec::new(),
            calls: 0,
            watched_ns: 0,
            command: None,
            created_ns: None,
            ended_ns: None,
            target: String::new(),
            active: HashSet::new(),
            failure: None,
        }
    }

    /// Reads records, and writes the requests that were built from them to the trace. Returns the
    /// number of records.
    fn take(&mut self, recorder: &mut Recorder) -> usize {
        let Recording { requests, made, command, created_ns, ended_ns, .. } = self;
        let read = recorder.read(BATCH, |record: &Record<'_>| {
            match record.what {
                What::Fork { child } if Some(child) == *command => {
                    *created_ns = Some(record.start_ns);
                }
                What::Exit if Some(record.process) == *command => *ended_ns = Some(record.end_ns),
                _ => {}
            }
            requests.take(record, |request| made.push(request));
        });
        if self.failure.is_some() {
            self.made.clear();
        } else if let Err(failure) = self.write() {
            self.failure = Some(failure);
        }
        read
    }

    /// Writes the requests that were built from records.
    fn write(&mut self) -> Outcome<()> {
        for name in &self.requests.file_names()[self.files.len()..] {
            self.files.push(self.writer.add_file(name));
        }
        for request in self.made.drain(..) {
            if request.call != trace::Call::BLOCK {
                self.calls += 1;
                self.active.insert(request.process);
            }
            let file = self.files[request.file.0 as usize];
            let stored = self.writer.push(&Request { file, ..request });
            stored.map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    fn finish(mut self, recorder: &Recorder, mut header: Header) -> Outcome<()> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let life = self.created_ns.zip(self.ended_ns);
        let watched_ns = life.map_or(self.watched_ns, |(from, to)| to.saturating_sub(from));
        header.watched_ns = Some(watched_ns);
        let mut rest = Vec::new();
        let unmatched = self.requests.finish(|request| rest.push(request));
        self.made = rest;
        self.write()?;
        let own = std::process::id();
        let processes = self.requests.processes().filter(|one| one.id != own);
        // If a target was watched, only processes that used the target are listed.
        let is_program = self.target.is_empty();
        let processes = processes.filter(|one| is_program || self.active.contains(&one.id));
        header.processes = processes.collect();
        header.target = self.target;
        header.processes.sort_by_key(|process| process.id);
        let lost = recorder.lost();
        let lost = lost.into_iter().map(|(cause, count)| (cause.to_owned(), count));
        let unmatched = ("libaio completions without a recorded submission".to_owned(), unmatched);
        header.lost = lost
            .chain([unmatched])
            .filter(|(_, count)| *count > 0)
            .map(|(cause, count)| Loss { cause, count })
            .collect();
        self.writer.finish(header).map(drop).map_err(|error| failed(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_run_is_a_mistake_of_the_command_line() {
        let failure = check_process(u32::MAX).unwrap_err();
        assert!(failure.message.contains("no such process; pgrep"), "{}", failure.message);
        assert!(check_process(std::process::id()).is_ok());
    }

    #[test]
    fn a_trace_is_never_written_into_dev() {
        assert!(output(Some(Path::new("/dev/trace"))).is_err());
        assert_eq!(output(Some(Path::new("a"))).unwrap(), Path::new("a"));
    }
}
