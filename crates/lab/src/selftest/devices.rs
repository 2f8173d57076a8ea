//! Reference devices, made for a self-test and taken away after it: FUSE files served by a
//! second process (`served`), or the I/O engine `delay` in this one.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};

use ioengine::engine::DelayDevice;
use ioengine::truth::Truth;
use ioengine::{Caching, EngineKind, HostTarget};

use crate::failure::{Failure, Outcome};
use crate::fuse_server::{self, Served};

/// Where reference devices come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file over FUSE: every request goes through the kernel.
    Fuse,
    /// In this process: the generator and its statistics without any kernel.
    Delay,
}

impl Source {
    /// The value of `--device`.
    pub fn name(self) -> &'static str {
        match self {
            Source::Fuse => "fuse",
            Source::Delay => "delay",
        }
    }
}

/// A device with the truth it was made from; dropping it takes it away.
pub struct Device {
    /// To be measured.
    pub target: HostTarget,
    /// How requests are issued to it.
    pub engine_kind: EngineKind,
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
            Ok(Device { target, engine_kind: EngineKind::Delay, _served: None })
        }
        Source::Fuse => {
            let served = Served::start(truth, bytes)?;
            let target = HostTarget::open(served.path(), true, Caching::Direct)?;
            let engine_kind = EngineKind::best(true);
            Ok(Device { target, engine_kind, _served: Some(served) })
        }
    }
}

/// The parameters, as they are typed.
pub fn parse(truth: &str) -> Outcome<Truth> {
    crate::truth::parse_truth(truth).map_err(Failure::usage)
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
        let mut command = fuse_server::ourselves(false)?;
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
