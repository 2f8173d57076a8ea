//! Watches a command from its first instruction to its end, or running processes or a file system
//! for a while, and stores the trace.

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

/// Pause before the buffer is read again, if it was empty (ns).
const POLL_NS: u64 = 5_000_000;
/// Records that are read at a time.
const BATCH: usize = 4096;
/// Calls of one measurement of the cost of recording, and number of measurements.
const COST_CALLS: u64 = 4000;
const COST_ROUNDS: u32 = 5;
/// Space in the buffer for each of these calls (bytes): several times the length of a record.
const COST_RECORD_BYTES: u32 = 1024;
/// Name of the trace, if none is given.
const DEFAULT_NAME: &str = "halfpower-trace";

/// Whom to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// A command and its arguments, at least one word.
    Command(Vec<OsString>),
    /// Running processes, by their ids.
    Processes(Vec<u32>),
    /// All processes, as far as they use this file system (a folder or file on it) or block device.
    Target(PathBuf),
}

/// What to watch, and how.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Whom to watch.
    pub whom: Whom,
    /// How long running processes are watched at most (ns); None: until they end, or an interrupt.
    pub limit_ns: Option<u64>,
    /// The file for the trace; None: `halfpower-trace.parquet`, with a number if that exists.
    pub output: Option<PathBuf>,
    /// Send what the command writes to standard output to standard error.
    pub stdout_to_stderr: bool,
    /// Print only warnings and errors.
    pub quiet: bool,
    /// Size of the buffer between the kernel and this program (bytes), a power of two.
    pub buffer_bytes: u32,
}

impl Whom {
    /// The command as one line; empty for running processes.
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
    /// Whether watching ends now: the limit is reached, or the user interrupted it.
    fn is_over(&self, begun_ns: u64, now_ns: u64, interrupt: &Interrupt) -> bool {
        interrupt.is_set() || self.limit_ns.is_some_and(|ns| now_ns - begun_ns >= ns)
    }
}

/// What came out.
#[derive(Debug)]
pub struct Watched {
    /// The result.
    pub document: TraceDocument,
    /// How the command ended; None for running processes.
    pub status: Option<ExitStatus>,
}

/// Watches. Without the rights to record, the result has only totals, and a warning says why.
///
/// # Errors
/// The command cannot be run, or the trace cannot be written.
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

/// The result of a trace that is stored.
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

/// The file for the trace.
fn output(named: Option<&Path>) -> Outcome<PathBuf> {
    if let Some(path) = named {
        check_not_under_dev(path, "--output")?;
        return Ok(path.to_owned());
    }
    let numbered = (2_u32..).map(|number| format!("{DEFAULT_NAME}-{number}.parquet"));
    let mut names = std::iter::once(format!("{DEFAULT_NAME}.parquet")).chain(numbered);
    // A trace that is being written has the ending `.PID.partial`.
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
    let remedy = "pgrep NAME and ps show the processes that run";
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
            "--pid {process}: is a thread; use --pid {group}, its process"
        ))),
        _ => Ok(()),
    }
}

/// The files and devices of a target.
fn filter(path: &Path) -> Outcome<(Filter, String)> {
    target_filter::of(path).map_err(|error| {
        Failure::usage(format!(
            "--target {}: {}; name a folder, a file or a block device",
            path.display(),
            ioengine::error::cause(&error)
        ))
    })
}

/// A recorder, and the time that it adds to a call (ns).
fn start(spec: &RecorderSpec) -> Result<(Recorder, f64), Declined> {
    // As many calls as the buffer holds without loss.
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

/// Time of a read that needs no device (ns): the lowest of a few means.
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

/// How watching ended.
struct EndOfWatch {
    /// How the command ended.
    status: Option<ExitStatus>,
    /// What the kernel counted.
    totals: Option<TotalsDocument>,
}

/// A watch in progress: the progress line, the recorder, and the signals to pass on to the command.
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
        // The command inherits the current folder and open files; it may be gone before they could
        // be looked up in its own name.
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

    /// Records until the time is over, the user interrupts, or `is_over` returns true.
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

    /// Takes all that was recorded until now.
    fn take_rest(&mut self, recording: &mut Recording) {
        let end = self.recorder.end_so_far();
        while !self.recorder.has_read(end) {
            recording.take(self.recorder);
        }
    }
}

/// Runs the command or waits for the process without recording, and reports only what the kernel
/// counts in any case.
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
            // The totals of a child that was waited for are added to those of this process, which
            // does little meanwhile.
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
    // The warning has the reason; a document of its own needs it too.
    document.notes.push(match options.stdout_to_stderr {
        true => why.to_string(),
        false => "only totals: nothing was recorded".to_owned(),
    });
    Ok(Watched { document, status: ended.status })
}

/// Passes SIGTERM and SIGHUP on to the command, which decides when it ends.
fn pass_on(signals: &Signals, child: &Child) {
    if let (Some(signal), Some(pid)) = (signals.take(), Pid::from_raw(child.id() as i32)) {
        let signal = if signal == Signals::HANG_UP { Signal::HUP } else { Signal::TERM };
        // A command that has just ended needs no signal.
        let _ = kill_process(pid, signal);
    }
}

/// Whether the command has ended; it is not reaped, so that its totals can still be read.
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
    Failure::failed(format!("waiting for the command: {error}"))
}

/// Starts the command.
fn spawn(words: &[OsString], stdout_to_stderr: bool) -> Outcome<Child> {
    let name = words.first().ok_or_else(|| Failure::usage("name a command after --"))?;
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
                format!("{name}: not found; name a program in the PATH, or give its path"),
            ),
            _ => {
                let cause = ioengine::error::cause(&error);
                let remedy = "make it an executable program (chmod +x)";
                Failure::new(Exit::Command(126), format!("running {name}: {cause}; {remedy}"))
            }
        }
    })
}

/// The progress line.
struct Live {
    clock: Monotonic,
    progress: Progress,
}

impl Live {
    fn new(quiet: bool) -> Live {
        Live { clock: Monotonic::new(), progress: Console::new(quiet).open_progress() }
    }

    /// Shows the state, and pauses if there was nothing to read.
    fn show(&mut self, recording: &Recording, recorder: &Recorder, read: usize) {
        if read == 0 {
            let lost: u64 = recorder.lost().iter().map(|(_, count)| count).sum();
            let calls = units::counted(recording.calls, "call");
            self.progress.update(&format!("watching: {calls}, {lost} lost"));
            self.clock.sleep_until(self.clock.now_ns() + POLL_NS);
        }
    }
}

/// A trace that is being written.
struct Recording {
    requests: Requests,
    writer: TraceWriter,
    /// The number of each file in the trace.
    files: Vec<FileId>,
    made: Vec<Request>,
    /// Requests of the watched program.
    calls: u64,
    /// Length of the watch (ns), exact to the pause between two reads of the buffer.
    watched_ns: u64,
    /// The process of the command, with the times of its creation and its end.
    command: Option<u32>,
    created_ns: Option<u64>,
    ended_ns: Option<u64>,
    /// The folder, file or device that is watched; empty if a program is watched.
    target: String,
    /// The processes that made requests.
    active: HashSet<u32>,
    /// Why the trace cannot be written any more. The program runs on.
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

    /// Takes the records that are there. Returns their number.
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

    /// Writes the requests that were made.
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
        // If a target was watched, only processes that used it are listed.
        let is_program = self.target.is_empty();
        let processes = processes.filter(|one| is_program || self.active.contains(&one.id));
        header.processes = processes.collect();
        header.target = self.target;
        header.processes.sort_by_key(|process| process.id);
        let lost = recorder.lost();
        let lost = lost.into_iter().map(|(cause, count)| (cause.to_owned(), count));
        let unmatched = ("completions of libaio without their submission".to_owned(), unmatched);
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
