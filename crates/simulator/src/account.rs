//! Where the time went: every resource with its utilisation, which one binds, and the laws that
//! no run may break.
//!
//! A part that is busy nearly all the time limits. So does a reserve that is spent most of the
//! time, and where no part does, an order in which requests go through one after the other. Only
//! where none of them does more requests outstanding may help.

use crate::flash::FlashTimes;
use crate::geometry::Geometry;
use crate::machine::{Count, Link, Machine, Mechanism, PHASE_NAMES};
use crate::system::{Allocated, DriveModel};

/// A part of the system that can be busy.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// What it is called.
    pub name: String,
    /// What its time means.
    pub kind: ResourceKind,
    /// How long it was busy (ns), over all of its servers.
    pub busy_ns: u64,
    /// How many servers it has.
    pub servers: u32,
    /// Bytes that it moved.
    pub bytes: u64,
    /// The busy time by phase (ns), where it has phases.
    pub phases_ns: Vec<(&'static str, u64)>,
}

/// What the busy time of a resource means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// A part that works.
    Part,
    /// A rate or a drain from which requests take what is saved up first: busy while nothing is.
    Reserve,
    /// So many at once: busy while they are under way, whatever parts work for them.
    Order,
}

impl ResourceKind {
    /// A resource that is busy for less than this share does not bind.
    fn binds(self) -> f64 {
        match self {
            ResourceKind::Part | ResourceKind::Order => 0.9,
            // Until it is spent something else limits.
            ResourceKind::Reserve => 0.5,
        }
    }
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
    /// The resource, or "latency" where none is near its limit: more requests outstanding may
    /// help.
    pub resource: String,
    /// Its utilisation, or that of the busiest resource where none binds, 0 to 1.
    pub utilisation: f64,
}

impl Resource {
    /// Share of an interval in which it was busy.
    pub fn utilisation(&self, elapsed_ns: u64) -> f64 {
        let capacity = elapsed_ns as f64 * f64::from(self.servers.max(1));
        if capacity > 0.0 { self.busy_ns as f64 / capacity } else { 0.0 }
    }

    fn new(name: &str, kind: ResourceKind, busy_ns: u64, servers: u32, bytes: u64) -> Resource {
        Resource { name: name.to_owned(), kind, busy_ns, servers, bytes, phases_ns: Vec::new() }
    }

    /// A part without phases.
    fn part(name: &str, busy_ns: u64, servers: u32, bytes: u64) -> Resource {
        Resource::new(name, ResourceKind::Part, busy_ns, servers, bytes)
    }

    /// What has come since an earlier reading of the same resource.
    fn since(&self, earlier: Option<&Resource>) -> Resource {
        let Some(then) = earlier else { return self.clone() };
        let phases = self.phases_ns.iter().zip(&then.phases_ns);
        Resource {
            busy_ns: self.busy_ns.saturating_sub(then.busy_ns),
            bytes: self.bytes - then.bytes,
            phases_ns: phases.map(|(now, then)| (now.0, now.1.saturating_sub(then.1))).collect(),
            ..self.clone()
        }
    }
}

/// The counters of a machine at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    at_ns: u64,
    count: Count,
    device_bytes: [u64; 2],
    device_requests: [u64; 2],
    /// Parts of a kind are one resource: the busiest of them speaks for it.
    resources: Vec<Vec<Resource>>,
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
        let resources = self.resources.iter().zip(&earlier.resources);
        let resources = resources.filter_map(|(now, then)| {
            // What was opened meanwhile had done nothing before.
            let then = then.iter().map(Some).chain(std::iter::repeat(None));
            let copies = now.iter().zip(then).map(|(now, then)| now.since(then));
            copies.max_by_key(|resource| resource.busy_ns)
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

/// All resources in the order of a request's way, each with those parts of which the busiest
/// speaks for it.
fn resources(machine: &Machine, now_ns: u64) -> Vec<Vec<Resource>> {
    let mut all = Vec::new();
    let thread = |busy_ns| Resource::new("issuing thread", ResourceKind::Order, busy_ns, 1, 0);
    let threads = machine.issuers.iter().map(|issuer| thread(issuer.thread.busy_ns(now_ns)));
    all.push(threads.collect());
    let cpus: u32 = machine.hosts.iter().map(crate::machine::Host::cpus).sum();
    let busy: u64 = machine.hosts.iter().map(|host| host.busy_ns(now_ns)).sum();
    all.push(vec![Resource::part("CPU", busy, cpus, 0)]);
    all.extend(orders(machine, now_ns));
    if let Some(remote) = &machine.remote {
        let client = &remote.client;
        all.push(vec![Resource::part("client CPU", client.busy_ns(now_ns), client.cpus(), 0)]);
        let wire = |busy_ns| Resource::part(&remote.model.name, busy_ns, 1, 0);
        all.push(remote.wire.iter().map(|way| wire(way.busy_ns(now_ns))).collect());
        all.push(vec![Resource::part("write turn", remote.turn.busy_ns(now_ns), 1, 0)]);
    }
    let raid_ns = machine.raid.busy_ns(now_ns);
    if let Some(controller) = machine.system.controller() {
        all.push(vec![Resource::part(&controller.name, raid_ns, 1, 0)]);
    }
    for (model, copies) in machine.system.links.iter().zip(&machine.links) {
        let copy = |link: &Link| {
            let bytes = link.bytes[0] + link.bytes[1];
            Resource::part(&model.name, link.server.busy_ns(now_ns), 1, bytes)
        };
        all.push(copies.iter().map(copy).collect());
    }
    all.push(bus(machine, now_ns).into_iter().collect());
    all.extend(disks(machine, now_ns));
    all.extend(flashes(machine, now_ns));
    all
}

/// What lets requests of a file through one after the other.
fn orders(machine: &Machine, now_ns: u64) -> [Vec<Resource>; 3] {
    let order = |name, ns, servers| Resource::new(name, ResourceKind::Order, ns, servers, 0);
    let caches = || machine.files.iter().filter_map(|file| file.cache.as_ref());
    let grows = machine.system.setup.allocation != Allocated::Existing;
    let growing = machine.files.iter().filter(|_| grows);
    let growing = growing.map(|file| order("growth of the file", file.growing.sum_ns(now_ns), 1));
    let fetches = caches().map(|c| order("cache fetches", c.fetching.sum_ns(now_ns), c.at_once));
    let writers = caches().map(|cache| order("lazy writer", cache.starved.sum_ns(now_ns), 1));
    [growing.collect(), fetches.collect(), writers.collect()]
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
    let bus = Resource::part(&machine.system.bus.name, busy_ns, servers, bytes);
    (servers > 0).then_some(Resource { phases_ns, ..bus })
}

/// The disks with their controllers.
fn disks(machine: &Machine, now_ns: u64) -> Vec<Vec<Resource>> {
    let (mut controller_ns, mut disks) = (0, 0);
    let (mut seek_ns, mut rotate_ns, mut transfer_ns) = (0, 0, 0);
    for device in &machine.devices {
        controller_ns += device.controller_ns;
        if let Mechanism::Disk(disk) = &device.mechanism {
            let times = disk.times_until(now_ns);
            disks += 1;
            seek_ns += times.seek_ns;
            rotate_ns += times.rotate_ns;
            transfer_ns += times.transfer_ns;
        }
    }
    if disks == 0 {
        return Vec::new();
    }
    let bytes = machine.device_bytes[0] + machine.device_bytes[1];
    let media = Resource::part("media", seek_ns + rotate_ns + transfer_ns, disks, bytes);
    let phases_ns = vec![("seek", seek_ns), ("rotate", rotate_ns), ("transfer", transfer_ns)];
    let controller = Resource::part("drive controller", controller_ns, disks, bytes);
    vec![vec![controller], vec![Resource { phases_ns, ..media }]]
}

/// The devices of flash: what they work with, and the limits that they have.
fn flashes(machine: &Machine, now_ns: u64) -> Vec<Vec<Resource>> {
    let DriveModel::Flash(model) = &machine.system.drive else { return Vec::new() };
    let flash = machine.devices.iter().filter_map(|device| match &device.mechanism {
        Mechanism::Flash(flash) => Some(flash.times_until(now_ns)),
        Mechanism::Disk(_) => None,
    });
    let times: Vec<FlashTimes> = flash.collect();
    let sum = |part: fn(&FlashTimes) -> u64| times.iter().map(part).sum::<u64>();
    let devices = times.len() as u32;
    let [read, written] = machine.device_bytes;
    let channel = |busy_ns, bytes| Resource::part("flash channels", busy_ns, devices, bytes);
    let units = devices * model.units.count().max(1);
    let mut all = vec![
        vec![Resource::part("flash units", sum(|t| t.units_ns), units, read + written)],
        vec![channel(sum(|t| t.channel_ns[0]), read), channel(sum(|t| t.channel_ns[1]), written)],
    ];
    let mut limit = |is_set: bool, name: &str, kind, busy_ns, bytes| {
        if is_set {
            all.push(vec![Resource::new(name, kind, busy_ns, devices, bytes)]);
        }
    };
    let (part, reserve) = (ResourceKind::Part, ResourceKind::Reserve);
    let (paced, drains) = (model.requests_per_s.0 > 0.0, model.buffer.0 > 0.0);
    limit(paced, "requests per second", part, sum(|t| t.paced_ns), read + written);
    limit(drains, "drain", reserve, sum(|t| t.full_ns), written);
    let lasts = model.sustained.0 > 0.0;
    limit(lasts, "sustained rate", reserve, sum(|t| t.spent_ns), read + written);
    all
}

impl Account {
    /// What limits.
    pub fn binding(&self) -> Binding {
        let share = |resource: &Resource| resource.utilisation(self.elapsed_ns);
        let nearness = |resource: &&Resource| share(resource) / resource.kind.binds();
        let nearest = |of_orders: bool| {
            let is_of = move |kind: ResourceKind| (kind == ResourceKind::Order) == of_orders;
            let all = self.resources.iter().filter(|resource| is_of(resource.kind));
            all.max_by(|a, b| nearness(a).total_cmp(&nearness(b)))
        };
        let binds = |resource: &&Resource| nearness(resource) >= 1.0;
        // An order is full also while it waits for a part.
        match nearest(false).filter(binds).or_else(|| nearest(true).filter(binds)) {
            Some(found) => Binding { resource: found.name.clone(), utilisation: share(found) },
            None => {
                let utilisation = self.resources.iter().map(share).fold(0.0, f64::max);
                Binding { resource: "latency".to_owned(), utilisation }
            }
        }
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
