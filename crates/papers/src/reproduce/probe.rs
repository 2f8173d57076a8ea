//! Defines and simulates the measurements of the papers. A [`Probe`] is a system with its set-up
//! and a workload.
//!
//! A [`Lab`] simulates each probe only once, even if several figures and claims use the probe.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use ioengine::{Caching, Target};
use lab::simulated::{self, Simulated};
use simulator::system::{CachingChoice, DriveModel, Setup, VolumeKind};
use simulator::{Account, Description, SimWorld, System, account, geometry::Geometry};
use workload::{Arrival, Distribution, Pattern, Workload, Zone};

/// The size of a KB in the papers (bytes).
pub const KIB: f64 = 1024.0;
/// The size of a MB in the papers (bytes).
pub const MIB: f64 = 1_048_576.0;
/// The size of the file in all sequential measurements (bytes), from claim R015.
const FILE_BYTES: u64 = 100 << 20;

/// The amount of data that a probe accesses, or the time for which it issues requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// This many bytes from the start of the file are accessed once.
    Bytes(u64),
    /// Requests anywhere in the file are issued for this time (ns).
    Anywhere(u64),
    /// This many bytes from the start of the file (at least one request) are accessed repeatedly
    /// for one second of simulated time.
    Again(u64),
    /// 200 requests are issued, one in each interval of this length (ns).
    Paced(u64),
}

/// A simulated measurement: a system, changes of its settings, and a workload.
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
    /// Returns a probe that reads a file of the system sequentially, with direct 64 KB requests at
    /// depth 1.
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

    /// Returns the name of the system.
    pub fn system(&self) -> &'static str {
        self.system
    }

    /// Changes a setting of the system.
    pub fn with(mut self, key: &'static str, value: impl Display) -> Probe {
        self.sets.push((key, value.to_string()));
        self
    }

    /// Sets the request size (KB).
    pub fn kib(mut self, kib: f64) -> Probe {
        self.request_bytes = (kib * KIB) as u32;
        self
    }

    /// Sets the queue depth.
    pub fn deep(mut self, depth: u32) -> Probe {
        self.depth = depth;
        self
    }

    /// Changes reads to writes.
    pub fn writing(mut self) -> Probe {
        self.writes = true;
        self
    }

    /// Changes reads to writes, and enables the write cache of the drives (WCE).
    pub fn wce(self) -> Probe {
        self.writing().with("write_cache", "on")
    }

    /// Sends the requests through the file-system cache.
    pub fn buffered(self) -> Probe {
        self.with("caching", "buffered")
    }

    /// Makes requests write-through: they use the file-system cache, and each write is durable
    /// before it returns.
    pub fn write_through(mut self) -> Probe {
        self.write_through = true;
        self
    }

    /// Stripes the file over this many disks.
    pub fn striped(self, disks: u32) -> Probe {
        if disks == 1 { self } else { self.with("disks", disks).with("volume", "stripe") }
    }

    /// Sets the amount of data that is accessed, or the time for which requests are issued.
    pub fn over(mut self, extent: Extent) -> Probe {
        self.extent = extent;
        self
    }

    /// Changes the workload to random 8 KB requests for a minute of simulated time. As in SQLIO,
    /// the offset of each request is chosen independently, so some blocks are accessed more than
    /// once. Direct requests use files that fill the devices, as with SQLIO (paper 2, section 7.1).
    /// Buffered requests use the usual file, because the paper measured them with its tool
    /// cacheflush (section 4.1) and states no other file.
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

    fn measure(&self, changes: &[Change]) -> Result<Measured, String> {
        let mut description = self.description()?;
        for change in changes.iter().filter(|change| change.system == self.system) {
            let put = description.put(&change.key, change.value, "changed");
            put.map_err(|error| error.to_string())?;
        }
        let system = description.system().map_err(|e| e.to_string())?;
        let caching = self.caching(&system);
        let file = &SimWorld::new(&system, 0).files(caching)[0];
        let workload = self.workload(file.size_bytes(), caching);
        let simulated =
            simulated::simulate(&system, &workload, caching).map_err(|failure| failure.message)?;
        Ok(Measured::new(&system, self.request_bytes, simulated))
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
        let whole_file = Zone { access_percent: 100, region_percent: 100 };
        Workload {
            request_bytes: self.request_bytes,
            depth: self.depth,
            region_bytes,
            limit_bytes,
            limit_ns,
            arrival,
            pattern: if self.random { Pattern::Random } else { Pattern::Sequential },
            distribution: if self.random {
                Distribution::Zoned(vec![whole_file])
            } else {
                Distribution::Even
            },
            read_percent: if self.writes { 0 } else { 100 },
            flush_at_end: self.writes && !caching.is_direct(),
            ..Workload::default()
        }
    }

    /// Returns the naive bound of the throughput (MB/s). It is the minimum of three rates: depth x
    /// request size / R0, the media rate of all disks, and the bus rate. R0 is the time of a single
    /// request. None if the system has no disk model.
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

    /// Returns R0, the time of a single request (ns): the sum of CPU, bus, firmware and media time.
    /// A sequential buffered request takes only CPU time.
    ///
    /// The media time depends on the request:
    /// - random: a seek over a third of the disk, half a revolution and the transfer
    /// - sequential write without a write cache: a revolution and the transfer
    /// - other: 0
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

/// The simulated or published result of a probe. Values that are not known are NaN.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The throughput (MB/s; a MB is 2^20 bytes).
    pub mib_per_s: f64,
    /// The request rate (requests/s).
    pub requests_per_s: f64,
    /// The CPU time charged to the program for each request (ns).
    pub cpu_lower_ns: f64,
    /// The CPU time of the whole machine for each request (ns).
    pub cpu_upper_ns: f64,
    /// The median response time (ns).
    pub median_ns: f64,
    /// The time from the first request to the last completion (ns).
    pub elapsed_ns: f64,
    /// The number of requests that completed.
    pub requests: f64,
    /// The request size (bytes).
    pub request_bytes: f64,
    /// The number of processors of the host.
    pub cpus: f64,
    /// The name of the bus.
    bus: String,
    /// The busy time of each resource of the system.
    pub account: Account,
}

impl Measured {
    fn new(system: &System, request_bytes: u32, simulated: Simulated) -> Measured {
        let sample = &simulated.sample;
        Measured {
            mib_per_s: simulated.bytes_per_s() / MIB,
            requests_per_s: simulated.requests_per_s(),
            cpu_lower_ns: simulated.cpu_lower_ns(),
            cpu_upper_ns: simulated.cpu_upper_ns(),
            median_ns: sample.latency().quantile(0.5).unwrap_or(0) as f64,
            elapsed_ns: sample.end_ns.saturating_sub(sample.start_ns) as f64,
            requests: sample.requests() as f64,
            request_bytes: f64::from(request_bytes),
            cpus: system.host.cpus.0,
            bus: system.bus.name.clone(),
            account: simulated.account,
        }
    }

    /// Returns a result in which only the request size is known.
    pub fn unknown(probe: &Probe) -> Measured {
        Measured::all(f64::NAN, probe)
    }

    /// Returns a result in which every value except the request size is `value`.
    fn all(value: f64, probe: &Probe) -> Measured {
        Measured {
            mib_per_s: value,
            requests_per_s: value,
            cpu_lower_ns: value,
            cpu_upper_ns: value,
            median_ns: value,
            elapsed_ns: value,
            requests: value,
            request_bytes: f64::from(probe.request_bytes),
            cpus: value,
            bus: String::new(),
            account: Account::default(),
        }
    }

    /// Returns the CPU time charged to the program (ms/MB).
    pub fn cpu_ms_per_mib(&self) -> f64 {
        self.cpu_lower_ns / 1e6 * MIB / self.request_bytes
    }

    /// Returns the CPU time of the whole machine (ms/MB).
    pub fn soaked_ms_per_mib(&self) -> f64 {
        self.cpu_upper_ns / 1e6 * MIB / self.request_bytes
    }

    /// Returns the CPU time charged to the program, as a share of one processor (percent).
    pub fn cpu_percent(&self) -> f64 {
        self.cpu_lower_ns * self.requests_per_s / 1e7
    }

    /// Returns the utilisation of all processors together (percent).
    pub fn busy_percent(&self) -> f64 {
        self.cpu_upper_ns * self.requests_per_s / 1e7 / self.cpus
    }

    /// Returns the utilisation of a resource of the system (percent). None if there is no such
    /// resource.
    pub fn utilisation_percent(&self, name: &str) -> Option<f64> {
        let part = self.account.resources.iter().find(|part| part.name == name)?;
        Some(part.utilisation(self.account.elapsed_ns) * 100.0)
    }

    /// Returns the utilisation of the bus (percent). None if there is no bus.
    pub fn bus_percent(&self) -> Option<f64> {
        self.utilisation_percent(&self.bus)
    }

    /// Returns the share of the bus's busy time that these phases of a request take (percent). None
    /// if the bus was idle or there is no bus.
    pub fn phase_percent(&self, phases: &[&str]) -> Option<f64> {
        let bus = self.account.resources.iter().find(|part| part.name == self.bus)?;
        let of = |wanted: &dyn Fn(&str) -> bool| -> u64 {
            bus.phases_ns.iter().filter(|(name, _)| wanted(name)).map(|(_, ns)| ns).sum()
        };
        let all = of(&|_| true);
        (all > 0).then(|| of(&|name| phases.contains(&name)) as f64 * 100.0 / all as f64)
    }
}

/// The result of a probe, or the reason why the probe could not be simulated.
pub type Reading = Result<Arc<Measured>, String>;

/// A change of a value in a system file.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The name of the system.
    pub system: String,
    /// The path of the value, such as `drive.firmware_read`.
    pub key: String,
    /// The new value, in the unit of the file.
    pub value: f64,
}

/// Simulates each probe once and remembers the result.
#[derive(Debug, Default)]
pub struct Lab {
    known: Mutex<HashMap<Probe, Reading>>,
    changes: Vec<Change>,
    source: Source,
}

/// What a lab does if it has no stored result for a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Source {
    /// The lab simulates the probe.
    #[default]
    Simulation,
    /// The lab returns an error.
    None,
    /// The lab returns placeholders, to find out which probes a computation needs.
    StandIns,
}

impl Lab {
    /// Returns a lab that knows only these results and simulates nothing.
    pub fn of_published(points: HashMap<Probe, Measured>) -> Lab {
        let known = points.into_iter().map(|(probe, point)| (probe, Ok(Arc::new(point))));
        Lab { known: Mutex::new(known.collect()), source: Source::None, ..Lab::default() }
    }

    /// Returns a lab that simulates with changed values in the system files.
    pub fn with(changes: Vec<Change>) -> Lab {
        Lab { changes, ..Lab::default() }
    }

    /// Returns the result of a probe.
    ///
    /// # Errors
    /// The system cannot be set up in this way, or the result was not published.
    pub fn measure(&self, probe: &Probe) -> Reading {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reading) = known().get(probe) {
            return reading.clone();
        }
        let reading = match self.source {
            Source::None => return Err("not published".to_owned()),
            Source::StandIns => Ok(Measured::all(1.0, probe)),
            Source::Simulation => probe.measure(&self.changes),
        };
        let reading = reading.map(Arc::new);
        known().insert(probe.clone(), reading.clone());
        reading
    }

    /// Simulates many probes on all cores, so that later calls return the results immediately.
    pub fn learn(&self, probes: &[Probe]) {
        simulated::on_all_cores(probes, |probe| drop(self.measure(probe)));
    }

    /// Returns the throughput (MB/s).
    ///
    /// # Errors
    /// As for [`Lab::measure`], or the published result has no throughput.
    pub fn mib(&self, probe: &Probe) -> Result<f64, String> {
        known(self.measure(probe)?.mib_per_s)
    }

    /// Returns the request rate (requests/s).
    ///
    /// # Errors
    /// As for [`Lab::measure`], or the published result has no request rate.
    pub fn rate(&self, probe: &Probe) -> Result<f64, String> {
        known(self.measure(probe)?.requests_per_s)
    }
}

/// Returns the sorted names of the systems that `compute` measures. Nothing is simulated.
pub fn systems_of(compute: fn(&Lab) -> Result<f64, String>) -> Vec<&'static str> {
    let lab = Lab { source: Source::StandIns, ..Lab::default() };
    // The value has no meaning, because it is computed from placeholders.
    let _ = compute(&lab);
    let points = lab.known.into_inner().unwrap_or_else(PoisonError::into_inner);
    let systems: BTreeSet<&'static str> = points.keys().map(Probe::system).collect();
    systems.into_iter().collect()
}

/// Returns the value if it is known. In a published result, only the published values are known.
///
/// # Errors
/// The value is not a finite number.
pub fn known(value: f64) -> Result<f64, String> {
    if value.is_finite() { Ok(value) } else { Err("not published".to_owned()) }
}
