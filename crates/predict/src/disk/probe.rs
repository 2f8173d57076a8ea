//! Issues single requests to a disk and times them. The calibration of a rotating disk uses them,
//! on a simulated disk in virtual time or on a disk of this host.

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

/// The largest request of a probe (bytes).
pub const LARGEST_BYTES: u32 = 1 << 20;
/// Pause after which a simulated disk has written the content of its cache (ns).
const DRAIN_NS: u64 = 60_000_000_000;

/// What a single request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read.
    Read,
    /// Write; the disk may keep the data in its cache.
    Write,
    /// Write that is on the media before it completes.
    WriteThrough,
}

/// When a request was issued and when it was complete (ns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// When the request was issued.
    pub start_ns: u64,
    /// When the request was complete.
    pub end_ns: u64,
}

impl Timed {
    /// Duration of the request (ns).
    pub fn ns(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64
    }
}

/// A disk that serves requests one at a time, without the page cache.
pub trait Probe {
    /// Capacity (bytes).
    fn size_bytes(&self) -> u64;
    /// Offsets and lengths of requests must be multiples of this (bytes).
    fn unit_bytes(&self) -> u64;
    /// Whether the data may be overwritten.
    fn may_write(&self) -> bool;
    /// Issues a request and waits for it.
    ///
    /// # Errors
    /// The request failed, or the user interrupted the program.
    fn request(&mut self, kind: Kind, offset: u64, length: u32) -> Outcome<Timed>;
    /// Waits without issuing requests.
    ///
    /// # Errors
    /// The user interrupted the program.
    fn rest(&mut self, ns: u64) -> Outcome<()>;
    /// Waits until the write cache of the disk is empty.
    ///
    /// # Errors
    /// The disk cannot be flushed.
    fn drain(&mut self) -> Outcome<()>;
    /// Runs a workload; returns its rate [bytes per second].
    ///
    /// # Errors
    /// The workload does not fit the disk, or a request failed.
    fn load(&mut self, workload: &Workload) -> Outcome<f64>;

    /// Reads and returns the time of the request.
    ///
    /// # Errors
    /// As for [`Probe::request`].
    fn read(&mut self, offset: u64, length: u32) -> Outcome<Timed> {
        self.request(Kind::Read, offset, length)
    }
}

/// Rate of a finished workload [bytes per second].
fn rate_of(sample: &Sample) -> f64 {
    let ns = sample.end_ns.saturating_sub(sample.start_ns).max(1);
    sample.bytes() as f64 * 1e9 / ns as f64
}

/// Parameters of an engine for single requests.
fn single(engine_kind: EngineKind) -> EngineSpec {
    EngineSpec {
        engine_kind,
        depth: 1,
        slot_bytes: LARGEST_BYTES,
        pages: BufferPages::default(),
        options: EngineOptions::default(),
    }
}

/// The request that a probe issues.
fn request_of(kind: Kind, offset: u64, length: u32) -> Request {
    let op = if kind == Kind::Read { Op::Read } else { Op::Write };
    Request { offset, length, within: 0, slot: 0, file: 0, op }
}

/// Checks that a request moved all of its bytes.
fn check(done: &[Completion], name: &str, offset: u64, length: u32) -> Outcome<()> {
    match done.first() {
        Some(completion) if completion.result == length as i32 => Ok(()),
        other => Err(Failure::failed(format!(
            "{name}: a request of {length} bytes at offset {offset} failed ({other:?}); see the \
             kernel's log (dmesg)"
        ))),
    }
}

/// A simulated disk in virtual time: the whole first device of a system.
pub struct SimulatedDisk {
    world: SimWorld,
    clock: SimClock,
    file: SimTarget,
    engines: [SimEngine; 2],
    may_write: bool,
}

impl SimulatedDisk {
    /// The idle disk of a system; the seed sets the position of its platter.
    ///
    /// # Errors
    /// Never for a valid system.
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
    /// Opened for writes that are on the media before they complete; `None` without permission to
    /// write.
    through: Option<HostEngine>,
    clock: Monotonic,
    interrupt: Interrupt,
    /// Holds the device exclusively.
    _permit: Option<Permit>,
}

impl HostDisk {
    /// Opens a device or file; read-only, unless the user allows its data to be overwritten.
    ///
    /// # Errors
    /// The target cannot be opened for direct I/O, or should be written but is in use.
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
            (None, _) => return Err(Failure::refused("the disk may not be written")),
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
