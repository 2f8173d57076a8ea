//! Devices of known truth, made for a self-test and taken away after it: FUSE files served by a
//! second process, or the personality `delay` in this one.
//!
//! The second process is this program (`halfpower mount`), so that what it does is charged to it
//! and not to the generator. It ends when its standard input does, so it cannot outlive us.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use ioengine::engine::DelayDevice;
use ioengine::truth::Truth;
use ioengine::{Caching, HostTarget, Personality, mount};

use crate::cli::Source;
use crate::failure::{Failure, Outcome};

/// A device with the truth it was made from; dropping it takes it away.
pub struct Device {
    /// To be measured.
    pub target: HostTarget,
    /// How requests are issued to it.
    pub personality: Personality,
    _served: Option<Served>,
}

/// Makes a device of so many bytes.
///
/// # Errors
/// Where FUSE files cannot be mounted.
pub fn open(source: Source, truth: &str, bytes: u64) -> Outcome<Device> {
    match source {
        Source::Delay => {
            let device = DelayDevice::new(parse(truth)?);
            let target = HostTarget::delay(bytes, device);
            Ok(Device { target, personality: Personality::Delay, _served: None })
        }
        Source::Fuse => {
            let served = Served::start(truth, bytes)?;
            let target = HostTarget::open(&served.file, true, Caching::Direct)?;
            let personality = Personality::best(true);
            Ok(Device { target, personality, _served: Some(served) })
        }
    }
}

/// The parameters, as they are typed.
pub fn parse(truth: &str) -> Outcome<Truth> {
    crate::truth::parse_truth(truth).map_err(Failure::usage)
}

/// A process of this program at normal or real-time priority: a device does not wait for its CPU.
fn ourselves(realtime: bool) -> Outcome<Command> {
    let program = std::env::current_exe()
        .map_err(|e| Failure::failed(format!("finding this program: {e}")))?;
    if !realtime {
        return Ok(Command::new(program));
    }
    let mut command = Command::new("chrt");
    command.args(["--fifo", "10"]).arg(program);
    Ok(command)
}

/// Whether this user may give a process real-time priority.
fn may_be_realtime() -> bool {
    let tried = Command::new("chrt")
        .args(["--fifo", "10", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

/// A FUSE file served by a process of its own.
struct Served {
    server: Child,
    folder: PathBuf,
    file: PathBuf,
}

impl Served {
    fn start(truth: &str, bytes: u64) -> Outcome<Served> {
        let folder = std::env::temp_dir().join(format!("halfpower-{}", uuid::Uuid::new_v4()));
        fs::create_dir(&folder).map_err(|e| {
            let cause = ioengine::error::cause(&e);
            Failure::failed(format!("making {}: {cause}; set TMPDIR", folder.display()))
        })?;
        let mut command = ourselves(may_be_realtime())?;
        command.args(["mount", "--until-eof", "--size", &bytes.to_string()]);
        command.arg(format!("truth:{truth}")).arg(&folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let server = command
            .spawn()
            .map_err(|e| Failure::failed(format!("starting the server of a device: {e}")))?;
        let mut served = Served { server, folder, file: PathBuf::new() };
        let mut ready = String::new();
        let stdout = served.server.stdout.take();
        let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut ready));
        if ready.trim().is_empty() {
            let mut said = String::new();
            if let Some(stderr) = served.server.stderr.take() {
                let _ = BufReader::new(stderr).read_line(&mut said);
            }
            let said = said.trim().trim_start_matches("halfpower: ");
            let cause = if said.is_empty() { format!("{read:?}") } else { said.to_owned() };
            return Err(Failure::failed(cause));
        }
        served.file = PathBuf::from(ready.trim());
        Ok(served)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The end of its input tells it to unmount.
        drop(self.server.stdin.take());
        let ended = self.server.wait().is_ok_and(|status| status.success());
        if !ended {
            // It was killed: the mount is still there, without a server.
            let _ = mount::unmount(&self.folder, true);
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

/// A process that burns CPU for each byte it is sent: the part of a device's work that is
/// charged to somebody else, as interrupts and kernel threads are.
pub struct Assistant {
    process: Child,
}

impl Assistant {
    /// Starts it; gives back the pipe to tell it through.
    pub fn start(cpu_ns: u64) -> Outcome<(Assistant, File)> {
        let failed = |e| Failure::failed(format!("starting the device's assistant: {e}"));
        let mut command = ourselves(false)?;
        command.args(["assist", &format!("{cpu_ns}ns")]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn().map_err(failed)?;
        let stdin = process.stdin.take().map(|stdin| File::from(OwnedFd::from(stdin)));
        let pipe = stdin.ok_or_else(|| Failure::failed("the device's assistant has no input"))?;
        Ok((Assistant { process }, pipe))
    }
}

impl Drop for Assistant {
    fn drop(&mut self) {
        // The pipe may have been closed with its device, or not yet.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
