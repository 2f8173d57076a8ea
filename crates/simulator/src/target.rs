//! A simulated system as a benchmark target, with an engine, a clock and a CPU meter.
//!
//! Target, engine, clock and meter share one simulated machine. Only [`SimClock::pass`] and flushes
//! ([`SimTarget::sync`]) advance the virtual time. An engine only accepts requests and returns
//! completed requests.

use std::cell::RefCell;
use std::rc::Rc;

use cpucost::{CpuMeter, CpuSample};
use ioengine::engine::{Engine, EngineSpec, Setup as EngineSetup};
use ioengine::target::{
    AdvertisedRate, Alignment, Caching, Coverage, DeviceCounters, Hint, Scrub, Target, TargetKind,
};
use ioengine::{Clock, Completion, Error, ErrorKind, Request, VirtualTime};

use crate::account::{Account, Reading};
use crate::machine::Machine;
use crate::system::{DriveModel, Setup, System, VolumeKind};

/// A running simulated system, from which targets, a clock and a CPU meter are created.
#[derive(Clone)]
pub struct SimWorld {
    machine: Rc<RefCell<Machine>>,
}

impl SimWorld {
    /// Builds a system. The seed sets the rotational positions of its disks.
    pub fn new(system: &System, seed: u64) -> SimWorld {
        SimWorld { machine: Rc::new(RefCell::new(Machine::new(system, seed))) }
    }

    /// Opens all files of the system: one per host if devices form volumes, otherwise one per
    /// device.
    pub fn files(&self, caching: Caching) -> Vec<SimTarget> {
        let setup = self.machine.borrow().system.setup.clone();
        let Setup { disks, hosts, .. } = setup;
        match setup.volume {
            VolumeKind::None => {
                (0..disks).map(|disk| self.open(disk, disk * hosts / disks, caching)).collect()
            }
            _ => (0..hosts).map(|host| self.open(host * (disks / hosts), host, caching)).collect(),
        }
    }

    /// Opens a file of host `host`. `home` is the first device of the file.
    fn open(&self, home: u32, host: u32, caching: Caching) -> SimTarget {
        let mut machine = self.machine.borrow_mut();
        let file = machine.open(home, host, !caching.is_direct(), caching.is_write_through());
        let setup = machine.system.setup.clone();
        let name = format!("sim:{}", machine.system.name);
        let most = machine.files[file as usize].volume.bytes();
        let size = setup.file_size.min(most);
        drop(machine);
        SimTarget { machine: Rc::clone(&self.machine), file, name, size, most, caching }
    }

    /// Returns the virtual clock.
    pub fn clock(&self) -> SimClock {
        SimClock { machine: Rc::clone(&self.machine) }
    }

    /// Returns the CPU meter of the host that runs the program.
    pub fn meter(&self) -> SimMeter {
        SimMeter { machine: Rc::clone(&self.machine) }
    }

    /// Reads the counters, so that [`SimWorld::account_since`] can report the activity since then.
    pub fn mark(&self) -> Mark {
        Mark(Reading::of(&self.machine.borrow()))
    }

    /// Returns the activity since a mark.
    pub fn account_since(&self, mark: &Mark) -> Account {
        Reading::of(&self.machine.borrow()).since(&mark.0)
    }
}

/// A reading of the counters at one moment.
#[derive(Clone, Debug)]
pub struct Mark(Reading);

/// A file on a simulated system.
pub struct SimTarget {
    machine: Rc<RefCell<Machine>>,
    file: u32,
    name: String,
    size: u64,
    most: u64,
    caching: Caching,
}

impl SimTarget {
    /// Sets the size of the file, limited to the capacity of the devices.
    #[must_use]
    pub fn with_size(mut self, bytes: u64) -> SimTarget {
        self.size = bytes.min(self.most);
        self
    }
}

impl Target for SimTarget {
    type Engine = SimEngine;

    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> TargetKind {
        TargetKind::Simulated
    }

    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn caching(&self) -> Caching {
        self.caching
    }

    fn alignment(&self) -> Alignment {
        let offset_bytes = if self.caching.is_direct() { 512 } else { 1 };
        Alignment { memory_bytes: 1, offset_bytes }
    }

    fn engine(&self, spec: &EngineSpec) -> Result<SimEngine, Error> {
        let number = self.machine.borrow_mut().issuer(self.file);
        Ok(SimEngine {
            machine: Rc::clone(&self.machine),
            number,
            slots: spec.depth,
            slot_bytes: spec.slot_bytes as usize,
            memory: Vec::new(),
            in_flight: 0,
        })
    }

    fn reserve(&self, _offset: u64, _length: u64) -> Result<(), Error> {
        Ok(())
    }

    fn truncate(&self, _size_bytes: u64) -> Result<(), Error> {
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        self.machine.borrow_mut().flush(&[self.file], false);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), Error> {
        self.machine.borrow_mut().flush(&[self.file], true);
        Ok(())
    }

    /// Flushes several targets, which must all belong to the same system.
    fn sync_all(targets: &[&SimTarget]) -> Result<(), Error> {
        let files: Vec<u32> = targets.iter().map(|target| target.file).collect();
        if let Some(first) = targets.first() {
            first.machine.borrow_mut().flush(&files, false);
        }
        Ok(())
    }

    fn advise(&self, hint: Hint, offset: u64, bytes: u64) -> Result<(), Error> {
        self.machine.borrow_mut().advise(self.file, hint, (offset, bytes));
        Ok(())
    }

    fn scrub(&self) -> Result<Scrub, Error> {
        let what = "cannot drop simulated caches; each simulated trial starts with cold caches";
        Err(Error::new(ErrorKind::Unsupported, what))
    }

    fn resident_bytes(&self) -> Option<u64> {
        None
    }

    fn coverage(&self, _offset: u64, _length: u64) -> Option<Coverage> {
        None
    }

    fn device_number(&self) -> Option<(u32, u32)> {
        Some((0, 0))
    }

    fn device_counters(&self) -> Option<DeviceCounters> {
        let machine = self.machine.borrow();
        Some(DeviceCounters {
            reads: machine.device_requests[0],
            read_sectors: machine.device_bytes[0] / 512,
            writes: machine.device_requests[1],
            write_sectors: machine.device_bytes[1] / 512,
            ..DeviceCounters::default()
        })
    }

    fn advertised(&self) -> Vec<AdvertisedRate> {
        let machine = self.machine.borrow();
        let system = &machine.system;
        let source = format!("system {}", system.name);
        let rate = |component: &str, bytes_per_s: f64| AdvertisedRate {
            component: component.to_owned(),
            bytes_per_s,
            source: source.clone(),
        };
        let links = system.links.iter().rev().map(|link| rate(&link.name, link.advertised.0));
        let bus = rate(&system.bus.name, system.bus.advertised.0);
        // The media rate of one device does not limit a system with several devices.
        let media = match &system.drive {
            DriveModel::Disk(disk) if system.setup.disks == 1 => disk.advertised.0,
            _ => 0.0,
        };
        let own = [rate("drive, media", media), bus];
        own.into_iter().chain(links).filter(|rate| rate.bytes_per_s > 0.0).collect()
    }

    fn write_cache(&self) -> Option<String> {
        let on = self.machine.borrow().system.setup.write_cache;
        Some(if on { "write back" } else { "write through" }.to_owned())
    }
}

/// The engine of one thread on a simulated file.
pub struct SimEngine {
    machine: Rc<RefCell<Machine>>,
    number: u32,
    slots: u32,
    slot_bytes: usize,
    memory: Vec<u8>,
    in_flight: u32,
}

impl Engine for SimEngine {
    const MOVES_DATA: bool = false;

    fn slots(&self) -> u32 {
        self.slots
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        // The data of a simulated request are normally not used, so memory is allocated only when a
        // buffer is requested.
        self.memory.resize(self.slots as usize * self.slot_bytes, 0);
        let from = slot as usize * self.slot_bytes;
        &mut self.memory[from..from + self.slot_bytes]
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn setup(&self) -> EngineSetup {
        let features = "virtual time".to_owned();
        let buffer_bytes = u64::from(self.slots) * self.slot_bytes as u64;
        EngineSetup { features, buffer_bytes, huge_bytes: 0 }
    }

    /// Submits the batch and returns the completed requests. Never waits, and ignores `at_least`,
    /// because this call does not advance the virtual time.
    #[inline]
    fn submit_and_wait(
        &mut self,
        batch: &[Request],
        _at_least: u32,
        _until_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        let mut machine = self.machine.borrow_mut();
        for request in batch {
            machine.submit(self.number, request);
        }
        self.in_flight += batch.len() as u32;
        let ready = &mut machine.issuers[self.number as usize].ready;
        self.in_flight -= ready.len() as u32;
        done.append(ready);
        Ok(())
    }
}

/// A clock of virtual time. Sleeping has no effect, because [`SimClock::pass`] advances the time.
#[derive(Clone)]
pub struct SimClock {
    machine: Rc<RefCell<Machine>>,
}

impl Clock for SimClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.machine.borrow().now_ns()
    }

    fn sleep_until(&self, _until_ns: u64) {}
}

impl VirtualTime for SimClock {
    fn engines(&self) -> u32 {
        self.machine.borrow().issuers.len() as u32
    }

    fn pass(&self, until_ns: u64) -> Option<u32> {
        let mut machine = self.machine.borrow_mut();
        loop {
            if let Some(engine) = machine.woken.pop_front() {
                return Some(engine);
            }
            if !machine.advance(until_ns) {
                if until_ns != u64::MAX {
                    machine.events.advance_to(until_ns);
                }
                return None;
            }
        }
    }
}

/// CPU time of the simulated host.
#[derive(Clone)]
pub struct SimMeter {
    machine: Rc<RefCell<Machine>>,
}

impl CpuMeter for SimMeter {
    fn sample(&self, now_ns: u64) -> CpuSample {
        let machine = self.machine.borrow();
        let hosts: Vec<_> = match &machine.remote {
            Some(remote) => vec![&remote.client],
            None => machine.hosts.iter().collect(),
        };
        let charged_ns: u64 = hosts.iter().map(|host| host.charged_ns).sum();
        let uncharged_ns: u64 = hosts.iter().map(|host| host.uncharged_ns).sum();
        let cpus: u32 = hosts.iter().map(|host| host.cpus()).sum();
        let busy_ns: u64 = hosts.iter().map(|host| host.busy_ns(now_ns)).sum();
        let all_ns = now_ns * u64::from(cpus);
        CpuSample {
            at_ns: now_ns,
            process_ns: charged_ns,
            process_user_ns: 0,
            process_system_ns: charged_ns,
            machine_idle_ns: Some(all_ns.saturating_sub(busy_ns)),
            cpus,
            interrupt_ns: Some(uncharged_ns),
            machine_user_ns: Some(0),
            ..CpuSample::default()
        }
    }
}
