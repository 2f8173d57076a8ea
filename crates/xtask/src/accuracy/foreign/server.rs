//! Devices of nbdkit and QEMU that are served as files over FUSE, and targets on top of them.
//!
//! nbdkit serves memory through filters, for example with a delay, and nbdfuse exports this memory
//! as a file. QEMU's storage daemon exports its file itself. Server processes end on drop. If a
//! program is not installed, the error is `Missing`, and the case is skipped.

use crate::bench::host;
use crate::faults::device::{LoopDevice, soon, unmount};
use crate::faults::place::Context;
use crate::faults::tally::{Missing, Stopped};
use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::any::Any;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use tempfile::TempDir;

/// A target and the layers that provide it, for example a loop device on a server. On drop, the top
/// layer is removed first.
pub struct Target {
    /// Path of a file or a block device.
    pub path: String,
    _layers: Vec<Box<dyn Any>>,
}

impl Target {
    /// Creates a target. `layers` begins with the top layer.
    pub fn new(path: String, layers: Vec<Box<dyn Any>>) -> Target {
        Target { path, _layers: layers }
    }

    /// Creates a target for the file that a server exports.
    pub fn of(server: Server) -> Target {
        Target::new(server.file(), vec![Box::new(server)])
    }

    /// Creates a loop device with direct I/O on the file of a server.
    pub fn loop_on(server: Server) -> Result<Target> {
        let device = LoopDevice::direct(PathBuf::from(server.file()))?;
        Ok(Target::new(device.path.clone(), vec![Box::new(device), Box::new(server)]))
    }
}

/// A process that is ended on drop.
struct Process(Child);

impl Process {
    fn start(context: &Context, log: &Path, words: &[String]) -> Result<Process> {
        if context.stop.load(Ordering::Relaxed) {
            return Err(Stopped.into());
        }
        let program = installed(&words[0])?;
        let output = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(program);
        // nbdkit's cache filter stores its blocks in TMPDIR.
        command.args(&words[1..]).env("TMPDIR", log.parent().unwrap_or(Path::new("/tmp")));
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        Ok(Process(command.spawn().with_context(|| format!("cannot start {}", words[0]))?))
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        // No signal is sent to a child that has ended and been waited for, because the PID may then
        // belong to another process.
        ensure!(self.is_running(), "the server has ended");
        kill(Pid::from_raw(self.0.id() as i32), signal).context("cannot send a signal to a server")
    }

    fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Ends the process with SIGTERM, or with SIGKILL if it still runs after five seconds.
    fn end(&mut self) {
        let _ = self.signal(Signal::SIGTERM);
        if !soon(|| !self.is_running()) {
            let _ = self.0.kill();
        }
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_running() {
            self.end();
        }
    }
}

/// Finds a program on the PATH or in the sbin folders.
fn installed(program: &str) -> Result<PathBuf> {
    let beside = ["/usr/sbin", "/sbin"].map(|folder| Path::new(folder).join(program));
    let found = host::on_path(program).or_else(|| beside.into_iter().find(|path| path.is_file()));
    found.ok_or_else(|| Missing(format!("{program} is not installed")).into())
}

/// Number of connections from nbdfuse to nbdkit. nbdfuse assigns requests to connections at random.
/// With the default of four, requests would queue on one connection while another one is idle.
const CONNECTIONS: &str = "16";

/// A server that exports a file.
pub struct Server {
    /// The processes of the server: nbdfuse and then nbdkit, or only QEMU. The last process holds
    /// the data.
    processes: Vec<Process>,
    /// Mount point: a folder for nbdfuse, or the exported file for QEMU.
    mounted: PathBuf,
    folder: TempDir,
}

impl Server {
    /// Starts nbdkit with the arguments in `line`, such as `--filter=delay memory 64M rdelay=2ms`,
    /// and exports its data as a file. `{folder}` is replaced by the path of the server's folder.
    pub fn nbdkit(context: &Context, line: &str) -> Result<Server> {
        let folder = tempfile::tempdir_in(&context.folder)?;
        let at = |name: &str| folder.path().join(name);
        let (log, socket, mounted) = (at("log"), at("socket"), at("mounted"));
        installed("nbdfuse")?;
        fs::create_dir(&mounted)?;
        let line = line.replace("{folder}", &folder.path().display().to_string());
        let mut words: Vec<String> =
            ["nbdkit", "--foreground", "--exit-with-parent", "--unix"].map(String::from).to_vec();
        words.push(socket.display().to_string());
        words.extend(line.split_whitespace().map(String::from));
        let mut server = Server { processes: Vec::new(), mounted, folder };
        server.add(context, &log, &words)?;
        server.wait_until(&log, |_| socket.exists())?;
        let file = format!("{}/file", server.mounted.display());
        let socket = socket.display().to_string();
        let nbdfuse = ["nbdfuse", "--connections", CONNECTIONS, &file, "--unix", &socket];
        let nbdfuse = nbdfuse.map(String::from);
        server.add(context, &log, &nbdfuse)?;
        server.wait_until(&log, |_| Path::new(&file).exists())?;
        Ok(server)
    }

    /// Starts QEMU's storage daemon with the arguments in `line`, and exports its block node `top`
    /// as a file.
    pub fn qemu(context: &Context, line: &str) -> Result<Server> {
        let folder = tempfile::tempdir_in(&context.folder)?;
        let (log, mounted) = (folder.path().join("log"), folder.path().join("file"));
        File::create(&mounted)?;
        let mut words = vec!["qemu-storage-daemon".to_string()];
        words.extend(line.split_whitespace().map(String::from));
        let point = mounted.display().to_string();
        let export = format!("type=fuse,id=export,node-name=top,mountpoint={point},writable=on");
        words.extend(["--export".to_string(), export]);
        let mut server = Server { processes: Vec::new(), mounted, folder };
        server.add(context, &log, &words)?;
        let shown = |server: &Server| fs::metadata(&server.mounted).is_ok_and(|f| f.len() > 0);
        server.wait_until(&log, shown)?;
        Ok(server)
    }

    fn add(&mut self, context: &Context, log: &Path, words: &[String]) -> Result<()> {
        self.processes.insert(0, Process::start(context, log, words)?);
        Ok(())
    }

    /// Waits until the server is ready. If the server does not become ready, the error contains the
    /// output of the server.
    fn wait_until(&mut self, log: &Path, is_ready: impl Fn(&Server) -> bool) -> Result<()> {
        let mut ended = false;
        let is_over = soon(|| {
            ended = !self.processes[0].is_running();
            ended || is_ready(self)
        });
        if is_over && !ended {
            return Ok(());
        }
        let said = fs::read_to_string(log).unwrap_or_default();
        bail!(Missing(format!("the server does not start: {}", said.trim().replace('\n', " "))))
    }

    /// Returns the path of the exported file.
    pub fn file(&self) -> String {
        let inside = self.mounted.join("file");
        let file = if self.mounted.is_dir() { &inside } else { &self.mounted };
        file.display().to_string()
    }

    /// Sends a signal to the process that holds the data (nbdkit or QEMU).
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.processes.last_mut().context("the server has no process")?.signal(signal)
    }

    /// Changes the limit of nbdkit's rate filter (bits/s). The server must have been started with
    /// `rate-file={folder}/rate`.
    pub fn set_rate(&self, bits_per_s: u64) -> Result<()> {
        let (new, file) = (self.folder.path().join("new"), self.folder.path().join("rate"));
        fs::write(&new, bits_per_s.to_string())?;
        fs::rename(&new, &file).context("cannot change the rate")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Unmounting waits for the server, so a server stopped by SIGSTOP must be continued first.
        let _ = self.signal(Signal::SIGCONT);
        unmount(&self.mounted);
        self.processes.iter_mut().for_each(Process::end);
        unmount(&self.mounted);
    }
}
