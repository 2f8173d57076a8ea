//! A place: the working directory and the state folder in which one repetition of a fault runs.
//!
//! All places are in the temporary folder of the campaign, which is removed at the end.

use super::running::{Ended, Running, pause};
use super::tally::{Check, Stopped, ensure};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

/// Number of bytes in a KiB.
pub const KIB: u64 = 1 << 10;
/// Number of bytes in a MiB.
pub const MIB: u64 = 1 << 20;

/// The I/O engines that access files and devices.
pub const ENGINES: [&str; 4] = ["io_uring", "libaio", "threads", "sync"];

/// The program, the folder and the settings that all fault classes share.
pub struct Context {
    /// The program under test.
    pub program: PathBuf,
    /// The temporary folder of the campaign.
    pub folder: PathBuf,
    /// Whether to repeat each fault less often (`--quick`).
    pub quick: bool,
    /// Total number of runs, sweeps and surveys to kill (`--kills`).
    pub kills: u32,
    /// Whether the campaign must stop. Signal handlers set this flag.
    pub stop: Arc<AtomicBool>,
    /// Random generator that chooses delays and offsets.
    pub random: RefCell<fastrand::Rng>,
}

impl Context {
    /// Creates the context of an accuracy campaign and catches SIGINT and SIGTERM. Copies the
    /// program into a new temporary folder in `dir`, so that a rebuild does not change the program
    /// during the campaign. Dropping the returned handle removes the folder.
    ///
    /// # Errors
    /// If the folder or the copy cannot be created, or signals cannot be caught.
    pub fn prepare(prefix: &str, program: &Path, dir: &Path) -> Result<(TempDir, Context)> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let caught = signal_hook::flag::register(signal, Arc::clone(&stop));
            caught.context("cannot catch signals")?;
        }
        let handle = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(dir)
            .with_context(|| format!("cannot create a folder in {}", dir.display()))?;
        let folder = handle.path().canonicalize().context("cannot find the temporary folder")?;
        let copy = folder.join("halfpower");
        fs::copy(program, &copy).context("cannot copy the program")?;
        let random = RefCell::new(fastrand::Rng::with_seed(1));
        Ok((handle, Context { program: copy, folder, quick: false, kills: 0, stop, random }))
    }

    /// Creates a new place, whose folders are empty.
    pub fn place(&self) -> Result<Place<'_>> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Stopped.into());
        }
        let folder = tempfile::tempdir_in(&self.folder).context("cannot create a folder")?;
        for name in ["work", "state"] {
            fs::create_dir(folder.path().join(name))?;
        }
        Ok(Place { context: self, folder, runs: Cell::new(0) })
    }

    /// Returns a random number below `limit`.
    pub fn below(&self, limit: u64) -> u64 {
        self.random.borrow_mut().u64(..limit)
    }

    /// Returns all items of a list. With `--quick`, returns only the first two.
    pub fn some<'a, T>(&self, all: &'a [T]) -> &'a [T] {
        if self.quick { &all[..all.len().min(2)] } else { all }
    }
}

/// The working directory and the state folder of one repetition of a fault.
pub struct Place<'a> {
    context: &'a Context,
    folder: TempDir,
    runs: Cell<u32>,
}

/// A stored run, as `runs list --json` prints it.
pub struct StoredRun {
    pub state: String,
    pub verdict: String,
    pub trials: u64,
}

impl Place<'_> {
    /// Returns the working directory of the program.
    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Returns the path of a file in the working directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.work().join(name)
    }

    /// Creates a file of random bytes in the working directory.
    pub fn file(&self, name: &str, bytes: u64) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, noise(bytes))?;
        File::open(&path)?.sync_all()?;
        Ok(path)
    }

    /// Returns the command `halfpower LINE`.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.context.program);
        command.args(line.split_whitespace());
        command
    }

    /// Returns a shell command that runs `setup`, for example `ulimit -n 4`, and then
    /// `halfpower LINE` with a redirection, for example `> /dev/full`.
    pub fn shell(&self, setup: &str, line: &str, redirection: &str) -> Command {
        let mut command = Command::new("sh");
        let script = format!("{setup}\nexec \"$0\" \"$@\" {redirection}");
        command.args(["-c", &script]).arg(&self.context.program).args(line.split_whitespace());
        command
    }

    /// Starts `halfpower LINE`.
    pub fn start(&self, line: &str) -> Result<Running> {
        self.start_command(self.command(line))
    }

    /// Starts a command in the working directory, with HOME and XDG_STATE_HOME set to the state
    /// folder.
    pub fn start_command(&self, mut command: Command) -> Result<Running> {
        if self.context.stop.load(Ordering::Relaxed) {
            return Err(Stopped.into());
        }
        self.runs.set(self.runs.get() + 1);
        let output = |name| self.folder.path().join(format!("{name}-{}", self.runs.get()));
        let (stdout, stderr) = (output("stdout"), output("stderr"));
        let state = self.folder.path().join("state");
        command.current_dir(self.work()).env("HOME", &state).env("XDG_STATE_HOME", &state);
        command.env_remove("RUST_BACKTRACE").stdin(Stdio::null());
        command.stdout(File::create(&stdout)?).stderr(File::create(&stderr)?);
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Running { child, stdout, stderr, stop: Arc::clone(&self.context.stop) })
    }

    /// Runs `halfpower LINE` and waits until it ends. Any exit code is accepted.
    pub fn run(&self, line: &str) -> Result<Ended> {
        self.start(line)?.ended()
    }

    /// Runs `halfpower LINE` to prepare a test. Returns an error if the command fails.
    pub fn prepare(&self, line: &str) -> Result<()> {
        let ended = self.run(line)?;
        ended.ends_with(0).map_err(|wrong| anyhow::anyhow!("halfpower {line}: {wrong}"))
    }

    /// Returns the names of all test files in the working directory and of all entries in the
    /// journal.
    pub fn leftovers(&self) -> Vec<String> {
        let journal = self.folder.path().join("state/halfpower/journal");
        let mut names = strays(&self.work());
        names.extend(names_in(&journal).into_iter().map(|name| format!("journal: {name}")));
        names
    }

    /// Checks that no test files and no journal entries remain.
    pub fn is_tidy(&self) -> Check {
        let left = self.leftovers();
        ensure(left.is_empty(), || {
            format!("test files or journal entries remain: {}", left.join(", "))
        })
    }

    /// Returns the runs of a database, newest first. Returns no runs if there is no database yet.
    pub fn runs(&self, db: &str) -> Result<Vec<StoredRun>, String> {
        // An empty file means that the database is being created.
        if fs::metadata(self.path(db)).map_or(0, |file| file.len()) == 0 {
            return Ok(Vec::new());
        }
        let ended = self.run(&format!("runs list --json --db {db}"));
        let document = ended.map_err(|error| error.to_string())?.document()?;
        let run = |value: &Value| StoredRun {
            state: value["state"].as_str().unwrap_or_default().to_string(),
            verdict: value["verdict"].as_str().unwrap_or_default().to_string(),
            trials: value["trials"].as_u64().unwrap_or(0),
        };
        Ok(document.as_array().map(|runs| runs.iter().map(run).collect()).unwrap_or_default())
    }

    /// Waits until a started run is in the default database. Its first trial then begins.
    pub fn wait_for_trial(&self, running: &mut Running) -> Result<()> {
        let stored = |_: &Running| self.runs("halfpower.db").is_ok_and(|runs| !runs.is_empty());
        running.until(stored)?;
        pause(100);
        Ok(())
    }

    /// Checks that the newest run of the default database is stored as invalid.
    pub fn newest_is_invalid(&self) -> Check {
        let runs = self.runs("halfpower.db")?;
        let newest = runs.first().map_or("missing", |run| run.verdict.as_str());
        ensure(newest == "invalid", || {
            format!("the verdict of the newest run is {newest:?}, not invalid")
        })
    }

    /// Checks that the newest run of the default database has this state.
    pub fn newest_is(&self, state: &str) -> Check {
        let runs = self.runs("halfpower.db")?;
        let newest = runs.first().map_or("missing", |run| run.state.as_str());
        ensure(newest == state, || format!("the state of the newest run is {newest}, not {state}"))
    }
}

/// Returns the names of the test files (`halfpower-*.test`) in a folder.
pub fn strays(folder: &Path) -> Vec<String> {
    let mut names = names_in(folder);
    names.retain(|name| name.starts_with("halfpower-") && name.ends_with(".test"));
    names
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns pseudo-random bytes. Two calls with the same length return the same bytes.
pub fn noise(bytes: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(bytes);
    let mut content = vec![0; bytes as usize];
    random.fill(&mut content);
    content
}

/// Flips the lowest bit of the byte at `offset` in a file.
pub fn flip_bit(path: &Path, offset: u64) -> Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset)?;
    file.write_all_at(&[byte[0] ^ 1], offset)?;
    Ok(file.sync_all()?)
}
