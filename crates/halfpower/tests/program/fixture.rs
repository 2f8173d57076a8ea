//! Fixtures of the tests: a working directory, the program that runs in it, and the exit status and
//! output of the program.
//!
//! Every [`Place`] has its own working directory and its own state directory, so tests do not share
//! a journal. The directories are next to the build output, because the default temporary directory
//! may be in memory. The output of the program is written to files, so that a test can read it
//! while the program runs.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once};
use std::time::Duration;

use ioengine::{Clock, Monotonic};
use results::{PointRow, RunRow, Store, TrialId, TrialRow};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT};
use tempfile::TempDir;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;

/// User and group id of the user `nobody`.
const NOBODY: u32 = 65_534;
/// Maximum time to wait for the program. If it takes longer, the program counts as hung.
const PATIENCE: Duration = Duration::from_secs(900);

// ---- skipped tests

/// Evaluates to the value in `Ok`. If the value is `Err`, skips the test with this reason.
macro_rules! or_skip {
    ($wanted:expr) => {
        match $wanted {
            Ok(value) => value,
            Err(reason) => {
                $crate::fixture::skip(std::any::type_name_of_val(&|| ()), &reason.to_string());
                return;
            }
        }
    };
}
pub(crate) use or_skip;

/// Reports that a test is skipped, on stderr and in the file that HALFPOWER_SKIP_LOG specifies.
pub fn skip(closure_in_test: &str, reason: &str) {
    let test = closure_in_test.trim_end_matches("::{{closure}}");
    let line = format!("skipped: {test}: {reason}");
    eprintln!("{line}");
    if let Some(log) = std::env::var_os("HALFPOWER_SKIP_LOG") {
        let mut log = OpenOptions::new().append(true).create(true).open(log).unwrap();
        writeln!(log, "{line}").unwrap();
    }
}

/// Checks that the tests run as root. Otherwise returns the reason to skip the test.
pub fn root() -> Result<(), String> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let uids = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
    let root = uids.split_whitespace().nth(2) == Some("0");
    if root { Ok(()) } else { Err("needs root".to_owned()) }
}

// ---- working directories

/// The contents of all files below a directory, by path.
pub type Snapshot = BTreeMap<PathBuf, Vec<u8>>;

/// A working directory for the program, with its own state directory.
pub struct Place {
    folder: PathBuf,
    state: TempDir,
    program: PathBuf,
    as_nobody: bool,
    runs: Cell<u32>,
    /// Other directories that are removed together with this value.
    _owned: Vec<TempDir>,
}

pub fn temporary_folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

impl Place {
    /// Creates an empty working directory.
    pub fn new() -> Place {
        let folder = temporary_folder();
        let place = Place::within(folder.path());
        Place { _owned: vec![folder], ..place }
    }

    /// Uses an existing directory as the working directory. It is not removed at the end.
    pub fn within(folder: &Path) -> Place {
        Place {
            folder: folder.to_path_buf(),
            state: temporary_folder(),
            program: env!("CARGO_BIN_EXE_halfpower").into(),
            as_nobody: false,
            runs: Cell::new(0),
            _owned: Vec::new(),
        }
    }

    /// Creates a working directory of the user `nobody`. The program runs in it as this user.
    pub fn of_nobody() -> Result<Place, String> {
        root()?;
        // The user `nobody` may have no access to the build directory.
        let (folder, bin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let program = bin.path().join("halfpower");
        // The program is copied by another process. If this process opened the copy for writing, a
        // child process of another test could inherit the file descriptor, and the copy could not
        // be executed.
        let copy = Command::new("cp").arg(env!("CARGO_BIN_EXE_halfpower")).arg(&program).status();
        assert!(copy.unwrap().success());
        fs::set_permissions(bin.path(), Permissions::from_mode(0o755)).unwrap();
        let state = tempfile::tempdir().unwrap();
        for path in [folder.path(), state.path()] {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let place = Place::within(folder.path());
        Ok(Place { state, program, as_nobody: true, _owned: vec![folder, bin], ..place })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Creates a file without holes.
    pub fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path(name);
        let file = File::create(&path).unwrap();
        (&file).write_all(&noise(bytes)).unwrap();
        file.sync_all().unwrap();
        path
    }

    /// Creates a file that consists of one hole.
    pub fn file_of_holes(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path(name);
        File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }

    /// Returns the sorted names of all entries of the working directory.
    pub fn listing(&self) -> Vec<String> {
        let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
        let mut names: Vec<String> =
            fs::read_dir(&self.folder).unwrap().map(|entry| name(entry.unwrap())).collect();
        names.sort();
        names
    }

    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::new();
        take_snapshot(&self.folder, &mut snapshot);
        snapshot
    }

    pub fn state(&self) -> &Path {
        self.state.path()
    }

    /// Returns the names of the journal entries.
    pub fn journal(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.state.path().join("halfpower/journal")) else {
            return Vec::new();
        };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Writes a fake journal entry.
    pub fn forge_journal_entry(&self, name: &str, text: &str) {
        let folder = self.state.path().join("halfpower/journal");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{name}.json")), text).unwrap();
    }

    /// Returns true if the program ever created a test file, in any directory.
    pub fn has_made_a_test_file(&self) -> bool {
        self.state.path().join("halfpower/journal").exists()
    }

    /// Returns the names of the test files in the working directory.
    pub fn strays(&self) -> Vec<String> {
        self.listing().into_iter().filter(|name| name.ends_with(".test")).collect()
    }

    #[track_caller]
    pub fn is_tidy(&self) {
        assert_eq!(self.strays(), [""; 0], "test files left behind");
        assert_eq!(self.journal(), [""; 0], "journal entries left behind");
    }

    // ---- the program

    pub fn command(&self, line: &str) -> Command {
        let mut command = self.command_of(&self.program);
        command.args(line.split_whitespace());
        command
    }

    /// Returns a command that runs another program in the working directory.
    pub fn command_of(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        restore_signals_of_programs();
        let mut command = Command::new(program);
        command.current_dir(&self.folder);
        command.env("HOME", self.state.path()).env("XDG_STATE_HOME", self.state.path());
        command.env_remove("NO_COLOR").env_remove("RUST_BACKTRACE").stdin(Stdio::null());
        if self.as_nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Starts `halfpower LINE`.
    #[track_caller]
    pub fn start(&self, line: &str) -> Running {
        self.start_command(self.command(line), line)
    }

    pub fn start_command(&self, mut command: Command, line: &str) -> Running {
        self.runs.set(self.runs.get() + 1);
        let output = |name| self.state.path().join(format!("{name}-{}", self.runs.get()));
        let (stdout, stderr) = (output("stdout"), output("stderr"));
        command.stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
        let child = command.spawn().unwrap();
        Running { child, stdout, stderr, line: line.to_owned() }
    }

    /// Runs shell commands (for example `ulimit -n 8`) and then `halfpower LINE`, and waits for its
    /// end.
    #[track_caller]
    pub fn halfpower_after(&self, words: &str, line: &str) -> Ended {
        let mut shell = self.command_of("sh");
        shell.args(["-c", &format!("{words}; exec {} {line}", self.program.display())]);
        self.start_command(shell, line).ended()
    }

    /// Runs `halfpower LINE` to its end. Any exit code is accepted.
    #[track_caller]
    pub fn halfpower(&self, line: &str) -> Ended {
        self.start(line).ended()
    }

    /// Runs `halfpower LINE`, which must succeed.
    #[track_caller]
    pub fn does(&self, line: &str) -> Ended {
        self.halfpower(line).with_code(0)
    }

    /// Runs SQL on a database. Returns an error if the sqlite3 shell is not installed.
    pub fn sqlite3(&self, db: &str, sql: &str) -> std::io::Result<()> {
        let output = Command::new("sqlite3").arg(self.path(db)).arg(sql).output();
        let output = output.map_err(|error| {
            let text = format!("sqlite3: {error} (apt-get install sqlite3)");
            std::io::Error::new(error.kind(), text)
        })?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Runs `fio LINE` and returns what it prints. Returns an error if fio is not installed.
    pub fn fio(&self, line: &str) -> std::io::Result<String> {
        let mut command = Command::new("fio");
        command.args(line.split_whitespace()).current_dir(self.path("."));
        let output = command.output().map_err(|error| {
            std::io::Error::new(error.kind(), format!("fio: {error} (apt-get install fio)"))
        })?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs `halfpower LINE --json`, which must succeed, and returns the printed document.
    #[track_caller]
    pub fn document(&self, line: &str) -> Value {
        self.does(&format!("{line} --json")).json()
    }

    /// Runs `halfpower LINE`, which must fail with one line on stderr, print no data, and change
    /// nothing.
    #[track_caller]
    pub fn cannot(&self, line: &str) -> Ended {
        let before = self.snapshot();
        let ended = self.halfpower(line);
        assert_eq!(ended.stdout, "", "{ended}");
        assert_eq!(ended.stderr.lines().count(), 1, "stderr is not one line: {ended}");
        assert!(ended.stderr.starts_with("halfpower: "), "{ended}");
        self.is_tidy();
        assert!(self.snapshot() == before, "files were changed: {:?} {ended}", self.listing());
        ended
    }

    // ---- the database

    pub fn store(&self) -> Store {
        Store::open_read_only(self.path("halfpower.db")).unwrap()
    }

    pub fn stored_run(&self) -> RunRow {
        self.store().run("latest").unwrap()
    }

    /// Returns the points of the newest stored run, with their trials.
    pub fn stored_points(&self) -> Vec<StoredPoint> {
        points_of(&self.store())
    }

    /// Returns how many trials of the newest run are stored so far. The run may be in progress.
    pub fn stored_trials_so_far(&self) -> usize {
        let Ok(store) = Store::open_read_only(self.path("halfpower.db")) else { return 0 };
        if store.run("latest").is_err() {
            return 0;
        }
        points_of(&store).iter().map(|point| point.trials.len()).sum()
    }
}

pub struct StoredPoint {
    pub row: PointRow,
    pub end: results::PointEnd,
    pub trials: Vec<(TrialId, TrialRow)>,
}

fn points_of(store: &Store) -> Vec<StoredPoint> {
    let run = store.run("latest").unwrap();
    let points = store.points(run.id).unwrap();
    let whole = |(id, row)| {
        let (end, trials) = (store.point_end(id).unwrap(), store.trials(id).unwrap());
        StoredPoint { row, end, trials }
    };
    points.into_iter().map(whole).collect()
}

fn take_snapshot(folder: &Path, snapshot: &mut Snapshot) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            take_snapshot(&path, snapshot);
        } else if metadata.is_file() {
            let content = fs::read(&path).unwrap();
            snapshot.insert(path, content);
        } else {
            snapshot.insert(path, Vec::new());
        }
    }
}

/// Returns pseudo-random bytes. Every call returns the same bytes.
pub fn noise(bytes: u64) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut content: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| next()).collect();
    content.truncate(bytes as usize);
    content
}

/// Flips one bit of a file.
pub fn damage(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
    file.sync_all().unwrap();
}

pub fn pause(milliseconds: u64) {
    Monotonic::new().sleep(Duration::from_millis(milliseconds));
}

#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = Monotonic::new();
    let end = clock.now_ns() + PATIENCE.as_nanos() as u64;
    while !is_so() {
        assert!(clock.now_ns() < end, "waited too long until {what}");
        pause(2);
    }
}

/// Measures until `is_met` accepts the result, but at most 20 times, because other programs on this
/// machine may disturb single measurements. Returns the last result, for the test to check.
pub fn measure_until<T>(mut measure: impl FnMut() -> T, is_met: impl Fn(&T) -> bool) -> T {
    let mut measured = measure();
    for _ in 1..20 {
        if is_met(&measured) {
            break;
        }
        measured = measure();
    }
    measured
}

// ---- the running program

/// Makes sure that started programs react to SIGINT and SIGHUP, even if this process ignores these
/// signals (in the background or under nohup). exec(2) leaves an ignored signal ignored, but resets
/// a signal with a handler to its default action.
fn restore_signals_of_programs() {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        for signal in [SIGHUP, SIGINT] {
            // In this process, the signal still has its previous effect.
            let ends = Arc::new(AtomicBool::new(!is_ignored(signal)));
            signal_hook::flag::register_conditional_default(signal, ends).unwrap();
        }
    });
}

fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    ignored & (1 << (signal - 1)) != 0
}

/// The running program. Dropping this value kills the program.
pub struct Running {
    pub child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    line: String,
}

impl Running {
    /// Waits until a condition is true. Fails if the program ends before that.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut() -> bool) {
        wait_until(what, || {
            let over = self.child.try_wait().unwrap();
            let so = is_so();
            let said = || fs::read_to_string(&self.stderr).unwrap();
            assert!(so || over.is_none(), "ended before {what}: {over:?} {}", said());
            so
        });
    }

    /// Waits until the program has printed these words to stderr.
    #[track_caller]
    pub fn until_it_says(&mut self, words: &str) {
        let stderr = self.stderr.clone();
        self.until(words, || fs::read_to_string(&stderr).unwrap().contains(words));
    }

    /// Waits until stdout meets a condition.
    #[track_caller]
    pub fn until_it_prints(&mut self, mut fits: impl FnMut(&str) -> bool) {
        let stdout = self.stdout.clone();
        self.until("output", || fits(&fs::read_to_string(&stdout).unwrap()));
    }

    /// Sends a signal to the program. The name is for example `INT`.
    pub fn signal(&self, name: &str) {
        // The process was not waited for yet, so its PID cannot have been reused.
        let kill = format!("kill -{name} {}", self.child.id());
        let _ = Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status().unwrap();
    }

    /// Waits until the program ends. Returns its exit status and output.
    #[track_caller]
    pub fn ended(mut self) -> Ended {
        let mut status = None;
        wait_until(&format!("halfpower {} ends", self.line), || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        Ended {
            status: status.unwrap(),
            // `halfpower cat` may print binary data.
            stdout: String::from_utf8_lossy(&fs::read(&self.stdout).unwrap()).into_owned(),
            stderr: fs::read_to_string(&self.stderr).unwrap(),
            line: self.line.clone(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The exit status and the output of the program.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    pub line: String,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Ended { status, stdout, stderr, line } = self;
        write!(f, "\n$ halfpower {line}\n{stderr}{stdout}[{status}]")
    }
}

impl Ended {
    #[track_caller]
    pub fn with_code(self, code: i32) -> Ended {
        assert_eq!(self.status.code(), Some(code), "{self}");
        self
    }

    /// Asserts that a line of stderr contains the cause and then the remedy.
    #[track_caller]
    pub fn says(self, cause: &str, remedy: &str) -> Ended {
        let in_order = |line: &str| {
            line.find(cause).is_some_and(|at| line[at + cause.len()..].contains(remedy))
        };
        let said = self.stderr.lines().any(in_order);
        assert!(said, "no line has {cause:?}, then {remedy:?}: {self}");
        self
    }

    /// Asserts that stdout contains these words.
    #[track_caller]
    pub fn prints(self, words: &str) -> Ended {
        assert!(self.stdout.contains(words), "'{words}' was not printed: {self}");
        self
    }

    /// Asserts that SIGINT ended the program: with exit code 130, or by its default action if the
    /// signal arrived before the program had installed a handler.
    #[track_caller]
    pub fn was_interrupted(self) -> Ended {
        let by_system = self.status.signal() == Some(2);
        assert!(by_system || self.status.code() == Some(130), "{self}");
        self
    }

    /// Parses stdout, which must be exactly one JSON document.
    #[track_caller]
    pub fn json(&self) -> Value {
        match serde_json::from_str(&self.stdout) {
            Ok(document) => document,
            Err(error) => panic!("stdout is not one JSON document: {error}{self}"),
        }
    }
}

// ---- reading documents

/// Returns an unsigned integer of a JSON document.
#[track_caller]
pub fn whole(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a whole number"))
}

/// Returns a number of a JSON document.
#[track_caller]
pub fn real(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

#[track_caller]
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a text"))
}

#[track_caller]
pub fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is not a list"))
}

/// Returns true if two numbers are equal except for rounding.
pub fn about(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs())
}
