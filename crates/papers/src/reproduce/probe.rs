//! One point of a paper: a system as it was set up, a workload, and what came of it.
//!
//! A [`Lab`] measures each point once, however many figures and claims ask for it.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use ioengine::{Caching, Target};
use lab::simulated::{self, Simulated};
use simulator::system::{CachingChoice, DriveModel, Setup, VolumeKind};
use simulator::{Account, Description, SimWorld, System, account, geometry::Geometry};
use workload::{Arrival, Pattern, Workload};

/// 1 KB of the papers (bytes).
pub const KIB: f64 = 1024.0;
/// 1 MB of the papers (bytes).
pub const MIB: f64 = 1_048_576.0;
/// The file of all sequential measurements (bytes): R015.
const FILE_BYTES: u64 = 100 << 20;

/// How much is read or written, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// So many bytes from the beginning of the file.
    Bytes(u64),
    /// Anywhere in the file for so long (ns).
    Anywhere(u64),
    /// The same few bytes again and again, for one virtual second.
    Again(u64),
    /// One request every so often (ns), 200 of them.
    Paced(u64),
}

/// A point.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Probe {
    system: &'static str,
    sets: Vec<(&'static str, String)>,
    writes: bool,
    random: bool,
    write_through: bool,
    request_bytes: u32,
    depth: u32,
    extent: Extent,
}

impl Probe {
    /// Sequential 64 KB reads of a system's file, one outstanding, past the cache.
    pub fn of(system: &'static str) -> Probe {
        Probe {
            system,
            sets: Vec::new(),
            writes: false,
            random: false,
            write_through: false,
            request_bytes: 64 << 10,
            depth: 1,
            extent: Extent::Bytes(FILE_BYTES),
        }
    }

    /// With a value of the system changed.
    pub fn with(mut self, key: &'static str, value: impl Display) -> Probe {
        self.sets.push((key, value.to_string()));
        self
    }

    /// In requests of so many KB.
    pub fn kib(mut self, kib: f64) -> Probe {
        self.request_bytes = (kib * KIB) as u32;
        self
    }

    /// With so many requests outstanding.
    pub fn deep(mut self, depth: u32) -> Probe {
        self.depth = depth;
        self
    }

    /// Writing.
    pub fn writing(mut self) -> Probe {
        self.writes = true;
        self
    }

    /// Writing to devices that complete writes from their cache.
    pub fn wce(self) -> Probe {
        self.writing().with("write_cache", "on")
    }

    /// Through the file-system cache.
    pub fn buffered(self) -> Probe {
        self.with("caching", "buffered")
    }

    /// Through the file-system cache, each write durable before it returns.
    pub fn write_through(mut self) -> Probe {
        self.write_through = true;
        self
    }

    /// On a stripe of so many disks.
    pub fn striped(self, disks: u32) -> Probe {
        if disks == 1 { self } else { self.with("disks", disks).with("volume", "stripe") }
    }

    /// On other parts of the file, or at other times.
    pub fn over(mut self, extent: Extent) -> Probe {
        self.extent = extent;
        self
    }

    /// 8 KB requests anywhere, for a virtual minute: past the cache on files that fill the devices,
    /// as SQLIO had them (paper 2, section 7.1); through it on the ordinary file, since buffered
    /// requests were measured with cacheflush (section 4.1), and no file of its own is stated.
    pub fn random(mut self) -> Probe {
        self.random = true;
        let cached = self.sets.iter().any(|(key, value)| *key == "caching" && value == "buffered");
        let placed =
            if cached { self } else { self.with("file_at", "0.0").with("file_size", "1t") };
        placed.kib(8.0).over(Extent::Anywhere(60_000_000_000))
    }

    fn description(&self) -> Result<Description, String> {
        let mut description = Description::named(self.system).map_err(|e| e.to_string())?;
        for (key, value) in &self.sets {
            description.set(key, value).map_err(|e| e.to_string())?;
        }
        Ok(description)
    }

    fn measure(&self) -> Result<Measured, String> {
        let system = self.description()?.system().map_err(|e| e.to_string())?;
        let caching = self.caching(&system);
        let file = &SimWorld::new(&system, 0).files(caching)[0];
        let workload = self.workload(file.size_bytes(), caching);
        let simulated =
            simulated::simulate(&system, &workload, caching).map_err(|failure| failure.message)?;
        Ok(Measured::new(&system, simulated))
    }

    fn caching(&self, system: &System) -> Caching {
        if self.write_through { Caching::WriteThrough } else { simulated::caching_of(system) }
    }

    fn workload(&self, file_bytes: u64, caching: Caching) -> Workload {
        let request = u64::from(self.request_bytes);
        let whole = |bytes: u64| bytes.min(file_bytes) / request * request;
        let (region_bytes, limit_bytes, limit_ns) = match self.extent {
            Extent::Bytes(bytes) => (whole(bytes), Some(whole(bytes)), None),
            Extent::Anywhere(ns) => (whole(u64::MAX), None, Some(ns)),
            Extent::Again(bytes) => (whole(bytes.max(request)), None, Some(1_000_000_000)),
            Extent::Paced(_) => (whole(200 * request), Some(whole(200 * request)), None),
        };
        let arrival = match self.extent {
            Extent::Paced(ns) => Arrival::Constant { requests_per_s: 1e9 / ns as f64 },
            _ => Arrival::Closed,
        };
        Workload {
            request_bytes: self.request_bytes,
            depth: self.depth,
            region_bytes,
            limit_bytes,
            limit_ns,
            arrival,
            pattern: if self.random { Pattern::Random } else { Pattern::Sequential },
            read_percent: if self.writes { 0 } else { 100 },
            flush_at_end: self.writes && !caching.is_direct() && !self.random,
            ..Workload::default()
        }
    }

    /// Throughput by the naive bound (MB/s): min(depth x size / R0, disks x media, bus), where R0
    /// is the time of a lone request.
    pub fn naive_mib_per_s(&self) -> Option<f64> {
        let system = self.description().ok()?.system().ok()?;
        let DriveModel::Disk(disk) = &system.drive else { return None };
        let Setup { disks, file_at, volume, .. } = system.setup;
        let geometry = Geometry::new(disk, 1.0);
        let media = account::media_rate(&geometry, file_at);
        let spindles = if volume == VolumeKind::None { 1 } else { disks };
        let data = if self.writes && volume == VolumeKind::Raid5 { spindles - 1 } else { spindles };
        let bus = if self.writes { system.bus.write.0 } else { system.bus.read.0 };
        let bus = if bus > 0.0 { bus * f64::from(system.buses()) } else { f64::INFINITY };
        let lone = self.lone_request_ns(&system, &geometry);
        let by_depth = f64::from(self.depth) * f64::from(self.request_bytes) * 1e9 / lone;
        Some(by_depth.min(media * f64::from(data)).min(bus) / MIB)
    }

    /// R0: CPU, bus and, where the media are in the way, a revolution and the transfer (ns).
    fn lone_request_ns(&self, system: &System, geometry: &Geometry) -> f64 {
        let DriveModel::Disk(disk) = &system.drive else { return f64::INFINITY };
        let bytes = u64::from(self.request_bytes);
        let buffered = system.setup.caching == CachingChoice::Buffered;
        let cost = match (buffered, self.writes) {
            (false, false) => system.host.direct_read,
            (false, true) => system.host.direct_write,
            (true, false) => system.host.buffered_read,
            (true, true) => system.host.buffered_write,
        };
        let cpu = cost.ns_for(bytes) as f64;
        if buffered && !self.random {
            return cpu;
        }
        let bus = &system.bus;
        let rate = if self.writes { bus.write } else { bus.read };
        let firmware = if self.writes { disk.firmware_write } else { disk.firmware_read };
        let phases = [bus.arbitrate, bus.select, bus.message_out, bus.command, bus.message_in];
        let fixed: f64 = phases.iter().map(|phase| phase.0).sum();
        let wire = fixed + bus.status.0 + firmware.0 + rate.ns_for(bytes) as f64;
        let turn = geometry.revolution_ns() as f64;
        let at = (geometry.bytes() as f64 * system.setup.file_at) as u64;
        let transfer = bytes as f64 * 1e9 / geometry.rate_at(at);
        let far = geometry.seek_ns(geometry.cylinder_of(geometry.bytes() - 1) / 3) as f64;
        let media = match (self.random, self.writes && !system.setup.write_cache) {
            (true, _) => far + turn / 2.0 + transfer,
            (false, true) => turn + transfer,
            (false, false) => 0.0,
        };
        cpu + wire + media
    }
}

/// What came of a point.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Throughput (MB/s of the papers: 2^20 bytes).
    pub mib_per_s: f64,
    /// Requests per second.
    pub requests_per_s: f64,
    /// CPU time charged to the program for each request (ns).
    pub cpu_lower_ns: f64,
    /// CPU time of the whole machine for each request (ns).
    pub cpu_upper_ns: f64,
    /// Median response time (ns).
    pub median_ns: f64,
    /// From the first request to the last completion (ns).
    pub elapsed_ns: f64,
    /// Requests of programs.
    pub requests: f64,
    /// Processors of the host.
    pub cpus: f64,
    /// What the bus is called.
    bus: String,
    /// Where the time went.
    pub account: Account,
}

impl Measured {
    fn new(system: &System, simulated: Simulated) -> Measured {
        let sample = &simulated.sample;
        Measured {
            mib_per_s: simulated.bytes_per_s() / MIB,
            requests_per_s: simulated.requests_per_s(),
            cpu_lower_ns: simulated.cpu_lower_ns(),
            cpu_upper_ns: simulated.cpu_upper_ns(),
            median_ns: sample.latency().quantile(0.5).unwrap_or(0) as f64,
            elapsed_ns: sample.end_ns.saturating_sub(sample.start_ns) as f64,
            requests: sample.requests() as f64,
            cpus: system.host.cpus.0,
            bus: system.bus.name.clone(),
            account: simulated.account,
        }
    }

    /// CPU time charged to the program (ms for each MB).
    pub fn cpu_ms_per_mib(&self) -> f64 {
        self.cpu_lower_ns * self.requests_per_s / self.mib_per_s / 1e6
    }

    /// CPU time of the whole machine (ms for each MB).
    pub fn soaked_ms_per_mib(&self) -> f64 {
        self.cpu_upper_ns * self.requests_per_s / self.mib_per_s / 1e6
    }

    /// Share of one processor that is charged to the program (percent).
    pub fn cpu_percent(&self) -> f64 {
        self.cpu_lower_ns * self.requests_per_s / 1e7
    }

    /// Share of all processors that is busy (percent).
    pub fn busy_percent(&self) -> f64 {
        self.cpu_upper_ns * self.requests_per_s / 1e7 / self.cpus
    }

    /// Utilisation of a part of the system (percent).
    pub fn utilisation_percent(&self, name: &str) -> Option<f64> {
        let part = self.account.resources.iter().find(|part| part.name == name)?;
        Some(part.utilisation(self.account.elapsed_ns) * 100.0)
    }

    /// Utilisation of the bus (percent).
    pub fn bus_percent(&self) -> Option<f64> {
        self.utilisation_percent(&self.bus)
    }

    /// Share of a phase in the time that the bus is busy (percent).
    pub fn phase_percent(&self, phases: &[&str]) -> Option<f64> {
        let bus = self.account.resources.iter().find(|part| part.name == self.bus)?;
        let of = |wanted: &dyn Fn(&str) -> bool| -> u64 {
            bus.phases_ns.iter().filter(|(name, _)| wanted(name)).map(|(_, ns)| ns).sum()
        };
        let all = of(&|_| true);
        (all > 0).then(|| of(&|name| phases.contains(&name)) as f64 * 100.0 / all as f64)
    }
}

/// What a point came to, or why it could not be measured.
pub type Reading = Result<Arc<Measured>, String>;

/// Measures each point once.
#[derive(Debug, Default)]
pub struct Lab {
    known: Mutex<HashMap<Probe, Reading>>,
}

impl Lab {
    /// What a point comes to.
    ///
    /// # Errors
    /// When the system cannot be set up like that.
    pub fn measure(&self, probe: &Probe) -> Reading {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reading) = known().get(probe) {
            return reading.clone();
        }
        let reading = probe.measure().map(Arc::new);
        known().insert(probe.clone(), reading.clone());
        reading
    }

    /// Measures many points on all cores, so that they are known.
    pub fn learn(&self, probes: &[Probe]) {
        simulated::on_all_cores(probes, |probe| drop(self.measure(probe)));
    }

    /// Throughput (MB/s).
    ///
    /// # Errors
    /// See [`Lab::measure`].
    pub fn mib(&self, probe: &Probe) -> Result<f64, String> {
        Ok(self.measure(probe)?.mib_per_s)
    }

    /// Requests per second.
    ///
    /// # Errors
    /// See [`Lab::measure`].
    pub fn rate(&self, probe: &Probe) -> Result<f64, String> {
        Ok(self.measure(probe)?.requests_per_s)
    }
}
