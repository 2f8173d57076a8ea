//! Helpers for the tests with real servers: reports of skipped tests, free ports, server processes
//! that end with their test, and requests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "skipped tests are reported on stderr")]

use std::ffi::OsStr;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use ioengine::{
    BufferPages, Clock, Completion, Engine, EngineKind, EngineOptions, EngineSpec, Error,
    HostEngine, HostTarget, Monotonic, Op, Request, Target,
};

/// Maximum time from the start of a server until it accepts connections (s).
const START_S: u64 = 60;

/// Reports a skipped test on stderr, and adds the report to the file that the environment variable
/// HALFPOWER_SKIP_LOG specifies.
pub fn skipped(name: &str, reason: &str) {
    let line = format!("skipped: {name}: {reason}");
    eprintln!("{line}");
    let log = std::env::var_os("HALFPOWER_SKIP_LOG")
        .and_then(|path| std::fs::OpenOptions::new().append(true).create(true).open(path).ok());
    if let Some(mut log) = log {
        writeln!(log, "{line}").unwrap();
    }
}

/// Returns whether a program is in a directory of PATH, in /usr/sbin or in /sbin.
pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path);
    let more = ["/usr/sbin", "/sbin"].map(Into::into);
    folders.chain(more).any(|folder| folder.join(name).is_file())
}

/// Returns a TCP port of the loopback interface that no process uses at this moment.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub fn sleep_ms(ms: u64) {
    let clock = Monotonic::new();
    clock.sleep_until(clock.now_ns() + ms * 1_000_000);
}

/// A server process and its child processes. Dropping this value kills all of them. The kernel also
/// kills the server if the thread that started it ends.
pub struct Process {
    child: Child,
}

impl Process {
    pub fn start(program: &str, arguments: &[&OsStr]) -> std::io::Result<Process> {
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: between fork and exec, prctl only sets an attribute of the new process.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        Ok(Process { child: command.spawn()? })
    }

    /// Waits until the server accepts connections. Returns false if the server ends or needs more
    /// than [`START_S`] seconds.
    pub fn is_listening(&mut self, port: u16) -> bool {
        for _ in 0..START_S * 20 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return true;
            }
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return false;
            }
            sleep_ms(50);
        }
        false
    }

    /// Sends a signal to all processes of the server.
    pub fn signal(&self, signal: libc::c_int) {
        let group = -libc::pid_t::try_from(self.child.id()).unwrap();
        // SAFETY: the call only sends a signal to a process group that this test created.
        unsafe { libc::kill(group, signal) };
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Makes an engine for a network target, with `depth` slots of `slot_bytes` bytes each.
pub fn engine(target: &HostTarget, depth: u32, slot_bytes: u32) -> Result<HostEngine, Error> {
    target.engine(&EngineSpec {
        engine_kind: EngineKind::Network,
        depth,
        slot_bytes,
        pages: BufferPages::Small,
        options: EngineOptions::default(),
    })
}

/// Makes a request whose data start at the beginning of the slot's buffer.
pub fn request(op: Op, slot: u32, offset: u64, length: u32) -> Request {
    Request { offset, length, within: 0, slot, file: 0, op }
}

/// Runs requests until all are complete. Returns the completions in order of their slots.
pub fn run(engine: &mut HostEngine, batch: &[Request]) -> Result<Vec<Completion>, Error> {
    let mut done = Vec::new();
    engine.submit_and_wait(batch, batch.len() as u32, None, &mut done)?;
    assert_eq!(done.len(), batch.len());
    done.sort_by_key(|completion| completion.slot);
    Ok(done)
}
