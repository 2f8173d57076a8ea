//! Issues single requests to a disk and times them, for the calibration of a rotating disk. The
//! disk is either simulated in virtual time, or a disk of this host.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use cpucost::HostMeter;
use ioengine::clock::Monotonic;
use ioengine::engine::{Engine, EngineOptions, EngineSpec, HostEngine};
use ioengine::{
    BufferPages, Caching, Clock, Completion, EngineKind, HostTarget, Op, Request, Target,
    VirtualTime,
};
use lab::failure::{Failure, Outcome};
use lab::guard::{self, Consent, Permit};
use lab::interrupt::Interrupt;
use simulator::{SimClock, SimEngine, SimTarget, SimWorld, System};
use workload::{Control, Sample, Workload, plan, runner, stepper};

/// Maximum size of a request (bytes).
pub const LARGEST_BYTES: u32 = 1 << 20;
/// Pause after which a simulated disk has written all data in its cache to the media (ns).
const DRAIN_NS: u64 = 60_000_000_000;

/// The operation of a single request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A read.
    Read,
    /// A write that may complete while the data are only in the cache of the disk.
    Write,
    /// A write that completes only after the data are on the media.
    WriteThrough,
}

/// Start time and end time of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Time at which the request was issued (ns).
    pub start_ns: u64,
    /// Time at which the request completed (ns).
    pub end_ns: u64,
}

impl Timed {
    /// Returns the duration of the request (ns).
    pub fn ns(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64
    }
}

/// A disk on which requests are issued and timed. The requests bypass the page cache.
pub trait Probe {
    /// Returns the capacity of the disk (bytes).
    fn size_bytes(&self) -> u64;
    /// Returns the alignment of the offsets and lengths of requests (bytes).
    fn unit_bytes(&self) -> u64;
    /// Returns true if the data on the disk may be overwritten.
    fn may_write(&self) -> bool;
    /// Issues a request and waits for its completion.
    ///
    /// # Errors
    /// If the request failed, or if the user interrupted the program.
    fn request(&mut self, kind: Kind, offset: u64, length: u32) -> Outcome<Timed>;
    /// Waits for `ns` nanoseconds without issuing requests.
    ///
    /// # Errors
    /// If the user interrupted the program.
    fn rest(&mut self, ns: u64) -> Outcome<()>;
    /// Waits until the write cache of the disk is empty.
    ///
    /// # Errors
    /// If the disk cannot be flushed, or if the user interrupted the program.
    fn drain(&mut self) -> Outcome<()>;
    /// Runs a workload. Returns its rate [bytes per second].
    ///
    /// # Errors
    /// If the workload does not fit the disk, or if a request failed.
    fn load(&mut self, workload: &Workload) -> Outcome<f64>;

    /// Issues a read and waits for its completion.
    ///
    /// # Errors
    /// The same errors as for [`Probe::request`].
    fn read(&mut self, offset: u64, length: u32) -> Outcome<Timed> {
        self.request(Kind::Read, offset, length)
    }
}

/// Returns the rate of a finished workload [bytes per second].
fn rate_of(sample: &Sample) -> f64 {
    let ns = sample.end_ns.saturating_sub(sample.start_ns).max(1);
    sample.bytes() as f64 * 1e9 / ns as f64
}

fn single(engine_kind: EngineKind) -> EngineSpec {
    EngineSpec {
        engine_kind,
        depth: 1,
        slot_bytes: LARGEST_BYTES,
        pages: BufferPages::default(),
        options: EngineOptions::default(),
    }
}

fn request_of(kind: Kind, offset: u64, length: u32) -> Request {
    let op = if kind == Kind::Read { Op::Read } else { Op::Write };
    Request { offset, length, within: 0, slot: 0, file: 0, op }
}

/// Checks that a request transferred all its bytes.
fn check(done: &[Completion], name: &str, offset: u64, length: u32) -> Outcome<()> {
    match done.first() {
        Some(completion) if completion.result == length as i32 => Ok(()),
        other => Err(Failure::failed(format!(
            "{name}: a request of {length} bytes at offset {offset} failed ({other:?}); see the \
             kernel's log (dmesg)"
        ))),
    }
}

/// A simulated disk in virtual time. It covers the whole first device of a system.
pub struct SimulatedDisk {
    world: SimWorld,
    clock: SimClock,
    file: SimTarget,
    engines: [SimEngine; 2],
    may_write: bool,
}

impl SimulatedDisk {
    /// Creates an idle disk. The seed determines the angle of the platter at the start.
    ///
    /// # Errors
    /// If the system is not valid.
    pub fn new(system: &System, seed: u64, may_write: bool) -> Outcome<SimulatedDisk> {
        let mut system = system.clone();
        system.setup.file_at = 0.0;
        let world = SimWorld::new(&system, seed);
        let open = |caching| world.files(caching).remove(0).with_size(u64::MAX);
        let (file, through) = (open(Caching::Direct), open(Caching::DirectWriteThrough));
        let spec = single(EngineKind::IoUring);
        let engines = [file.engine(&spec)?, through.engine(&spec)?];
        Ok(SimulatedDisk { clock: world.clock(), world, file, engines, may_write })
    }
}

impl Probe for SimulatedDisk {
    fn size_bytes(&self) -> u64 {
        self.file.size_bytes()
    }

    fn unit_bytes(&self) -> u64 {
        u64::from(self.file.alignment().offset_bytes)
    }

    fn may_write(&self) -> bool {
        self.may_write
    }

    fn request(&mut self, kind: Kind, offset: u64, length: u32) -> Outcome<Timed> {
        let start_ns = self.clock.now_ns();
        let engine = &mut self.engines[usize::from(kind == Kind::WriteThrough)];
        let mut done = Vec::new();
        engine.submit_and_wait(&[request_of(kind, offset, length)], 0, None, &mut done)?;
        while done.is_empty() && self.clock.pass(u64::MAX).is_some() {
            engine.submit_and_wait(&[], 0, None, &mut done)?;
        }
        check(&done, self.file.name(), offset, length)?;
        Ok(Timed { start_ns, end_ns: self.clock.now_ns() })
    }

    fn rest(&mut self, ns: u64) -> Outcome<()> {
        let until_ns = self.clock.now_ns() + ns;
        while self.clock.now_ns() < until_ns && self.clock.pass(until_ns).is_some() {}
        Ok(())
    }

    fn drain(&mut self) -> Outcome<()> {
        self.rest(DRAIN_NS)
    }

    fn load(&mut self, workload: &Workload) -> Outcome<f64> {
        let workload = Workload { engine_kind: EngineKind::IoUring, ..workload.clone() };
        let planned = plan::resolve(&workload, &self.file)?;
        let stop = AtomicBool::new(false);
        let mut control = Control { stop: &stop, on_progress: &mut |_| {}, start: None };
        let meter = self.world.meter();
        let sample = stepper::run(&[&self.file], &planned, &self.clock, &meter, &mut control)?;
        Ok(rate_of(&sample))
    }
}

/// A disk or a file of this host, opened for direct I/O.
pub struct HostDisk {
    target: HostTarget,
    engine: HostEngine,
    /// Engine for writes that complete only after the data are on the media. `None` if the disk may
    /// not be written.
    through: Option<HostEngine>,
    clock: Monotonic,
    interrupt: Interrupt,
    /// Keeps other measurements from using the device. None if the disk is only read.
    _permit: Option<Permit>,
}

impl HostDisk {
    /// Opens a device or file for reading, and also for writing if the user allowed the data to be
    /// overwritten.
    ///
    /// # Errors
    /// If the target cannot be opened for direct I/O, or if it is to be overwritten but is in use.
    pub fn open(path: &Path, consent: &Consent, interrupt: Interrupt) -> Outcome<HostDisk> {
        let may_write = *consent != Consent::default();
        let target = HostTarget::open(path, may_write, Caching::Direct)?;
        let permit = if may_write { guard::check_writable(&target, path, consent)? } else { None };
        let spec = single(EngineKind::Sync);
        let through = match &permit {
            Some(permit) => {
                let through = HostTarget::open(path, true, Caching::DirectWriteThrough)?;
                permit.check(&through)?;
                Some(through.engine(&spec)?)
            }
            None => None,
        };
        let engine = target.engine(&spec)?;
        let clock = Monotonic::new();
        Ok(HostDisk { target, engine, through, clock, interrupt, _permit: permit })
    }

    fn check_interrupt(&self) -> Outcome<()> {
        if self.interrupt.is_set() { Err(Failure::interrupted()) } else { Ok(()) }
    }
}

impl Probe for HostDisk {
    fn size_bytes(&self) -> u64 {
        self.target.size_bytes()
    }

    fn unit_bytes(&self) -> u64 {
        u64::from(self.target.alignment().offset_bytes).max(512)
    }

    fn may_write(&self) -> bool {
        self.through.is_some()
    }

    fn request(&mut self, kind: Kind, offset: u64, length: u32) -> Outcome<Timed> {
        self.check_interrupt()?;
        let engine = match (&mut self.through, kind) {
            (_, Kind::Read) => &mut self.engine,
            (Some(_), Kind::Write) => &mut self.engine,
            (Some(through), Kind::WriteThrough) => through,
            (None, _) => return Err(Failure::refused("the disk was opened for reading only")),
        };
        let mut done = Vec::with_capacity(1);
        let request = [request_of(kind, offset, length)];
        let start_ns = self.clock.now_ns();
        engine.submit_and_wait(&request, 1, None, &mut done)?;
        let end_ns = self.clock.now_ns();
        check(&done, self.target.name(), offset, length)?;
        Ok(Timed { start_ns, end_ns })
    }

    fn rest(&mut self, ns: u64) -> Outcome<()> {
        self.clock.sleep_until(self.clock.now_ns() + ns);
        self.check_interrupt()
    }

    fn drain(&mut self) -> Outcome<()> {
        self.target.sync()?;
        self.check_interrupt()
    }

    fn load(&mut self, workload: &Workload) -> Outcome<f64> {
        let kind = EngineKind::best(true);
        let workload = Workload { engine_kind: kind, ..workload.clone() };
        let planned = plan::resolve(&workload, &self.target)?;
        let flag = self.interrupt.shared_flag();
        let mut control = Control { stop: &flag, on_progress: &mut |_| {}, start: None };
        let meter = HostMeter::new();
        let sample = runner::run(&[&self.target], &planned, self.clock, &meter, &mut control)?;
        self.check_interrupt()?;
        Ok(rate_of(&sample))
    }
}
