//! Creates the reference devices of a self-test: FUSE files that a second process serves, or
//! devices of the I/O engine `delay` in this process.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};

use ioengine::engine::DelayDevice;
use ioengine::truth::Truth;
use ioengine::{Caching, EngineKind, HostTarget};

use crate::failure::{Failure, Outcome};
use crate::fuse_server::{self, Served};

/// How a reference device is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The device is a FUSE file. Every request passes through the kernel.
    Fuse,
    /// The device is emulated in this process, so that the load generator and its statistics are
    /// tested without the kernel.
    Delay,
}

impl Source {
    /// Returns the value of `--device` that selects this source.
    pub fn name(self) -> &'static str {
        match self {
            Source::Fuse => "fuse",
            Source::Delay => "delay",
        }
    }
}

/// A reference device. Dropping this value removes the device.
pub struct Device {
    /// The target to measure.
    pub target: HostTarget,
    /// The I/O engine that accesses the device.
    pub engine_kind: EngineKind,
    _served: Option<Served>,
}

/// Creates a device of `bytes` bytes.
///
/// # Errors
///
/// The parameters are invalid, or FUSE files cannot be mounted.
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

/// Parses parameters in the syntax of `--truth`.
pub fn parse(truth: &str) -> Outcome<Truth> {
    crate::truth::parse_truth(truth).map_err(Failure::usage)
}

/// A helper process that uses CPU time for each byte that it receives. It imitates the interrupts
/// and kernel threads of a real device, whose CPU time is not charged to the measured process.
pub struct Assistant {
    process: Child,
}

impl Assistant {
    /// Starts a helper process that uses `cpu_ns` nanoseconds of CPU time for each byte. Returns
    /// the pipe through which the process receives bytes.
    pub fn start(cpu_ns: u64) -> Outcome<(Assistant, File)> {
        let failed = |e| Failure::failed(format!("starting the helper process of the device: {e}"));
        let mut command = fuse_server::ourselves(false)?;
        command.args(["assist", &format!("{cpu_ns}ns")]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn().map_err(failed)?;
        let stdin = process.stdin.take().map(|stdin| File::from(OwnedFd::from(stdin)));
        let pipe = stdin.ok_or_else(|| {
            Failure::failed(
                "the helper process of the device has no \
            standard input",
            )
        })?;
        Ok((Assistant { process }, pipe))
    }
}

impl Drop for Assistant {
    fn drop(&mut self) {
        // The process would end by itself when its pipe is closed, but the device may still hold
        // the pipe open.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
