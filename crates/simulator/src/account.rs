//! Where the time went: every resource with its utilisation, which one binds, and the laws that
//! no run may break.

use crate::geometry::Geometry;
use crate::machine::{Count, Machine, Mechanism, PHASE_NAMES};

/// A part of the system that can be busy.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// What it is called.
    pub name: String,
    /// How long it was busy (ns), over all of its servers.
    pub busy_ns: u64,
    /// How many servers it has.
    pub servers: u32,
    /// Bytes that it moved.
    pub bytes: u64,
    /// The busy time by phase (ns), where it has phases.
    pub phases_ns: Vec<(&'static str, u64)>,
}

/// What happened between two moments.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// Length of the interval (ns).
    pub elapsed_ns: u64,
    /// Requests completed for programs.
    pub requests: u64,
    /// Bytes of those requests.
    pub bytes: u64,
    /// Bytes that devices moved: read, written.
    pub device_bytes: [u64; 2],
    /// Requests of devices: reads, writes.
    pub device_requests: [u64; 2],
    /// Requests in the system on average, by time.
    pub mean_inside: f64,
    /// Time in the system on average, by request (ns).
    pub mean_residence_ns: f64,
    /// All parts.
    pub resources: Vec<Resource>,
}

/// What limits a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    /// The resource, or "latency" where none is near its limit: more requests outstanding help.
    pub resource: String,
    /// Utilisation of the busiest resource, 0 to 1.
    pub utilisation: f64,
}

/// A resource that is busy for less than this share does not bind.
const BINDS: f64 = 0.9;

impl Resource {
    /// Share of an interval in which it was busy.
    pub fn utilisation(&self, elapsed_ns: u64) -> f64 {
        let capacity = elapsed_ns as f64 * f64::from(self.servers.max(1));
        if capacity > 0.0 { self.busy_ns as f64 / capacity } else { 0.0 }
    }
}

/// The counters of a machine at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    at_ns: u64,
    count: Count,
    device_bytes: [u64; 2],
    device_requests: [u64; 2],
    resources: Vec<Resource>,
}

impl Reading {
    /// Reads all counters.
    pub fn of(machine: &Machine) -> Reading {
        let at_ns = machine.now_ns();
        let mut count = machine.count;
        count.presence_ns += u128::from(count.inside) * u128::from(at_ns - count.changed_ns);
        count.changed_ns = at_ns;
        Reading {
            at_ns,
            count,
            device_bytes: machine.device_bytes,
            device_requests: machine.device_requests,
            resources: resources(machine, at_ns),
        }
    }

    /// What happened since an earlier reading.
    pub fn since(&self, earlier: &Reading) -> Account {
        let pair = |now: [u64; 2], then: [u64; 2]| [now[0] - then[0], now[1] - then[1]];
        let elapsed_ns = self.at_ns - earlier.at_ns;
        let requests = self.count.requests - earlier.count.requests;
        let presence = self.count.presence_ns - earlier.count.presence_ns;
        let residence = self.count.residence_ns - earlier.count.residence_ns;
        let resources = self.resources.iter().zip(&earlier.resources).map(|(now, then)| Resource {
            busy_ns: now.busy_ns.saturating_sub(then.busy_ns),
            bytes: now.bytes - then.bytes,
            phases_ns: now
                .phases_ns
                .iter()
                .zip(&then.phases_ns)
                .map(|(now, then)| (now.0, now.1.saturating_sub(then.1)))
                .collect(),
            ..now.clone()
        });
        Account {
            elapsed_ns,
            requests,
            bytes: self.count.bytes - earlier.count.bytes,
            device_bytes: pair(self.device_bytes, earlier.device_bytes),
            device_requests: pair(self.device_requests, earlier.device_requests),
            mean_inside: presence as f64 / elapsed_ns.max(1) as f64,
            mean_residence_ns: residence as f64 / requests.max(1) as f64,
            resources: resources.collect(),
        }
    }
}

fn resources(machine: &Machine, now_ns: u64) -> Vec<Resource> {
    let plain = |name: String, busy_ns: u64, servers: u32, bytes: u64| Resource {
        name,
        busy_ns,
        servers,
        bytes,
        phases_ns: Vec::new(),
    };
    let mut all = Vec::new();
    let cpus: u32 = machine.hosts.iter().map(crate::machine::Host::cpus).sum();
    let busy: u64 = machine.hosts.iter().map(|host| host.busy_ns(now_ns)).sum();
    all.push(plain("CPU".to_owned(), busy, cpus, 0));
    if let Some(remote) = &machine.remote {
        let client = remote.client.busy_ns(now_ns);
        all.push(plain("client CPU".to_owned(), client, remote.client.cpus(), 0));
        let wire = remote.wire.iter().map(|wire| wire.busy_ns(now_ns)).max();
        all.push(plain(remote.model.name.clone(), wire.unwrap_or(0), 1, 0));
    }
    let raid_ns = machine.raid.busy_ns(now_ns);
    if let Some(controller) = machine.system.controller() {
        all.push(plain(controller.name.clone(), raid_ns, 1, 0));
    }
    // Parts of a kind are one resource: the busiest of them speaks for it.
    for model in &machine.system.links {
        let same = machine.links.iter().filter(|link| link.model.name == model.name);
        let busiest = same.max_by_key(|link| link.server.busy_ns(now_ns));
        if let Some(link) = busiest {
            let bytes = link.bytes[0] + link.bytes[1];
            all.push(plain(model.name.clone(), link.server.busy_ns(now_ns), 1, bytes));
        }
    }
    all.extend(bus(machine, now_ns));
    all.extend(devices(machine, now_ns));
    all
}

/// All buses as one resource with several servers.
fn bus(machine: &Machine, now_ns: u64) -> Option<Resource> {
    let mut phases_ns: Vec<(&'static str, u64)> = PHASE_NAMES.map(|name| (name, 0)).to_vec();
    for bus in &machine.buses {
        for (sum, ns) in phases_ns.iter_mut().zip(bus.phases_until(now_ns)) {
            sum.1 += ns;
        }
    }
    let busy_ns = phases_ns.iter().map(|(_, ns)| ns).sum();
    let bytes = machine.device_bytes[0] + machine.device_bytes[1];
    let servers = machine.buses.len() as u32;
    let name = machine.system.bus.name.clone();
    (servers > 0).then_some(Resource { name, busy_ns, servers, bytes, phases_ns })
}

fn devices(machine: &Machine, now_ns: u64) -> Vec<Resource> {
    let (mut controller_ns, mut seek_ns, mut rotate_ns, mut transfer_ns) = (0, 0, 0, 0);
    let (mut disks, mut flash_ns, mut flashes) = (0, 0, 0);
    for device in &machine.devices {
        controller_ns += device.controller_ns;
        match &device.mechanism {
            Mechanism::Disk(disk) => {
                let times = disk.times_until(now_ns);
                disks += 1;
                seek_ns += times.seek_ns;
                rotate_ns += times.rotate_ns;
                transfer_ns += times.transfer_ns;
            }
            Mechanism::Flash(flash) => {
                flashes += 1;
                flash_ns += flash.busy_ns(now_ns);
            }
        }
    }
    let mut all = Vec::new();
    let bytes = machine.device_bytes[0] + machine.device_bytes[1];
    if disks > 0 {
        let name = "drive controller".to_owned();
        let phases_ns = Vec::new();
        all.push(Resource { name, busy_ns: controller_ns, servers: disks, bytes, phases_ns });
        all.push(Resource {
            name: "media".to_owned(),
            busy_ns: seek_ns + rotate_ns + transfer_ns,
            servers: disks,
            bytes,
            phases_ns: vec![("seek", seek_ns), ("rotate", rotate_ns), ("transfer", transfer_ns)],
        });
    }
    if flashes > 0 {
        let (name, phases_ns) = ("flash".to_owned(), Vec::new());
        all.push(Resource { name, busy_ns: flash_ns, servers: flashes, bytes, phases_ns });
    }
    all
}

impl Account {
    /// What limits.
    pub fn binding(&self) -> Binding {
        let share = |resource: &Resource| resource.utilisation(self.elapsed_ns);
        let busiest = self.resources.iter().max_by(|a, b| share(a).total_cmp(&share(b)));
        let utilisation = busiest.map_or(0.0, share);
        let resource = match busiest {
            Some(resource) if utilisation >= BINDS => resource.name.clone(),
            _ => "latency".to_owned(),
        };
        Binding { resource, utilisation }
    }

    /// Bytes per second that programs got.
    pub fn bytes_per_s(&self) -> f64 {
        if self.elapsed_ns == 0 { 0.0 } else { self.bytes as f64 * 1e9 / self.elapsed_ns as f64 }
    }

    /// Which laws of physics this run breaks; an interval that begins and ends with nothing under
    /// way must break none.
    pub fn violations(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for resource in &self.resources {
            let utilisation = resource.utilisation(self.elapsed_ns);
            if utilisation > 1.0 + 1e-9 {
                let percent = utilisation * 100.0;
                broken.push(format!("{} was busy for {percent:.2}% of the time", resource.name));
            }
        }
        // Little's law: N = X R, exactly, where nothing is under way at either end.
        let by_request = self.mean_residence_ns * self.requests as f64;
        let by_time = self.mean_inside * self.elapsed_ns as f64;
        if (by_request - by_time).abs() > 1e-6 * by_time.max(1.0) {
            broken.push(format!("Little's law: {by_time} is not {by_request} request-ns"));
        }
        broken
    }
}

/// The sustained rate of a disk at a share of its capacity (bytes per second).
pub fn media_rate(geometry: &Geometry, at: f64) -> f64 {
    geometry.rate_at((geometry.bytes() as f64 * at) as u64)
}
