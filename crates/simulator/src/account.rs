//! Computes how busy each resource was during a run, finds the bottleneck, and checks the counters
//! for consistency.
//!
//! A part (for example a CPU, a bus or the media) that is busy nearly all the time is the
//! bottleneck, unless it mostly waits for a slower part. For example, a bus is busy while it moves
//! data at the rate of a slow link, but a faster bus would not increase the throughput. The slower
//! part is then the bottleneck, even if its utilisation is lower. A reserve (a write buffer or
//! burst credit) that is exhausted most of the time is also a bottleneck. If there is no such part
//! or reserve, a stage that admits a limited number of requests may be the bottleneck. Otherwise,
//! latency limits the run, and more requests in flight may help.

use crate::flash::FlashTimes;
use crate::ftl::FlashWrites;
use crate::geometry::Geometry;
use crate::machine::{Count, Link, Machine, Mechanism, PHASE_NAMES};
use crate::nand;
use crate::server::ControllerTimes;
use crate::system::{Allocated, DriveModel};

const CONTROLLER: &str = "drive controller";
const FLASH_UNITS: &str = "flash units";
const MEDIA: &str = "media";

/// A resource of the system and how long it was busy.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Name of the resource.
    pub name: String,
    /// Kind of the resource, which defines when the resource counts as busy.
    pub kind: ResourceKind,
    /// Busy time (ns), summed over the resource's servers.
    pub busy_ns: u64,
    /// Number of identical servers, for example CPUs.
    pub servers: u32,
    /// Number of bytes that the resource moved.
    pub bytes: u64,
    /// Busy time by phase, for example `seek` (ns). Empty if the resource has no phases.
    pub phases_ns: Vec<(&'static str, u64)>,
    /// Busy time during which slower resources limited this resource, by name of the slower
    /// resource (ns).
    pub paced_ns: Vec<(String, u64)>,
    /// Busy time that delayed no request (ns). For example, a disk writes buffered data to the
    /// media while the buffer still has free space.
    pub background_ns: u64,
}

/// Kind of a resource, which defines when the resource counts as busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// Hardware that does work, such as a CPU, a link or the media.
    Part,
    /// A write buffer or burst credit. Counts as busy while the buffer is full or the credit is
    /// spent.
    Reserve,
    /// A stage that admits a limited number of requests at once. Counts as busy while a request is
    /// in the stage, even if other resources do the work.
    Order,
}

impl ResourceKind {
    /// Returns the minimum utilisation at which a resource counts as the bottleneck (0 to 1).
    fn binding_threshold(self) -> f64 {
        match self {
            ResourceKind::Part | ResourceKind::Order => 0.9,
            // At the start of a run, the buffer is empty and the credit is full. A reserve is
            // therefore exhausted for only a part of the run, so half of the run is sufficient.
            ResourceKind::Reserve => 0.5,
        }
    }
}

/// Activity of a machine between two readings of the counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// Length of the interval (ns).
    pub elapsed_ns: u64,
    /// Number of completed requests.
    pub requests: u64,
    /// Total size of the completed requests (bytes).
    pub bytes: u64,
    /// Numbers of bytes that the devices read and wrote.
    pub device_bytes: [u64; 2],
    /// Numbers of reads and writes that the devices served.
    pub device_requests: [u64; 2],
    /// Mean number of requests in the system (time average).
    pub mean_inside: f64,
    /// Mean time a request spends in the system (ns).
    pub mean_residence_ns: f64,
    /// All resources.
    pub resources: Vec<Resource>,
    /// Numbers of bytes that the host wrote and that flash devices with a translation layer
    /// programmed. `None` if the system has no such device.
    pub flash_writes: Option<FlashWrites>,
}

/// The cost of a run's writes on a flash device with a translation layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteCost {
    /// Number of bytes programmed in total, per byte programmed for host writes.
    pub write_amplification: f64,
    /// Share of the dies' busy time spent on garbage collection and erases (0 to 1).
    pub collection_share: f64,
    /// Maximum rate of host writes (bytes per second). At this rate, the dies would be busy all the
    /// time if each byte cost as much as in this run.
    pub most_bytes_per_s: f64,
}

/// The bottleneck of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    /// Name of the resource, or "latency" if no resource is near its limit. More requests in flight
    /// may then help.
    pub resource: String,
    /// Utilisation of the bottleneck (0 to 1). If the bottleneck is latency, this is the highest
    /// utilisation of any resource, without background work.
    pub utilisation: f64,
    /// A resource that is busy nearly all the time, but only because it waits for the slower
    /// bottleneck. `None` if there is no such resource.
    pub held: Option<Held>,
}

/// A resource that the bottleneck keeps busy.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Name of the resource.
    pub resource: String,
    /// Utilisation of the resource (0 to 1).
    pub utilisation: f64,
}

impl Resource {
    /// Returns the share of an interval during which the resource was busy (0 to 1).
    pub fn utilisation(&self, elapsed_ns: u64) -> f64 {
        let capacity = elapsed_ns as f64 * f64::from(self.servers.max(1));
        if capacity > 0.0 { self.busy_ns as f64 / capacity } else { 0.0 }
    }

    /// Returns the part of the utilisation that is not background work (0 to 1).
    fn foreground(&self, elapsed_ns: u64) -> f64 {
        let background = self.background_ns as f64 / self.busy_ns.max(1) as f64;
        self.utilisation(elapsed_ns) * (1.0 - background)
    }

    fn new(name: &str, kind: ResourceKind, busy_ns: u64, servers: u32, bytes: u64) -> Resource {
        let (name, phases_ns, paced_ns) = (name.to_owned(), Vec::new(), Vec::new());
        Resource { name, kind, busy_ns, servers, bytes, phases_ns, paced_ns, background_ns: 0 }
    }

    /// Creates a hardware resource without phases.
    fn part(name: &str, busy_ns: u64, servers: u32, bytes: u64) -> Resource {
        Resource::new(name, ResourceKind::Part, busy_ns, servers, bytes)
    }

    /// Returns the activity since an earlier reading of the same resource. If there was no reading,
    /// returns all activity.
    fn since(&self, earlier: Option<&Resource>) -> Resource {
        let Some(then) = earlier else { return self.clone() };
        let phases = self.phases_ns.iter().zip(&then.phases_ns);
        let paced = self.paced_ns.iter().zip(&then.paced_ns);
        Resource {
            busy_ns: self.busy_ns.saturating_sub(then.busy_ns),
            background_ns: self.background_ns.saturating_sub(then.background_ns),
            bytes: self.bytes - then.bytes,
            phases_ns: phases.map(|(now, then)| (now.0, now.1.saturating_sub(then.1))).collect(),
            paced_ns: paced
                .map(|(now, then)| (now.0.clone(), now.1.saturating_sub(then.1)))
                .collect(),
            ..self.clone()
        }
    }
}

/// All counters of a machine at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    at_ns: u64,
    count: Count,
    device_bytes: [u64; 2],
    device_requests: [u64; 2],
    /// Groups of identical resources. An account contains only the busiest resource of each group.
    resources: Vec<Vec<Resource>>,
    flash_writes: Option<FlashWrites>,
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
            flash_writes: flash_writes(machine, at_ns),
        }
    }

    /// Returns the activity since an earlier reading.
    pub fn since(&self, earlier: &Reading) -> Account {
        let pair = |now: [u64; 2], then: [u64; 2]| [now[0] - then[0], now[1] - then[1]];
        let elapsed_ns = self.at_ns - earlier.at_ns;
        let requests = self.count.requests - earlier.count.requests;
        let presence = self.count.presence_ns - earlier.count.presence_ns;
        let residence = self.count.residence_ns - earlier.count.residence_ns;
        let resources = self.resources.iter().zip(&earlier.resources);
        let resources = resources.filter_map(|(now, then)| {
            // Resources that were created after the earlier reading start from zero.
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
            flash_writes: self.flash_writes.map(|now| match earlier.flash_writes {
                Some(then) => now.since(&then),
                None => now,
            }),
        }
    }
}

/// Returns all resources in the order in which a request passes them. Identical resources are in
/// one group.
fn resources(machine: &Machine, now_ns: u64) -> Vec<Vec<Resource>> {
    let mut all = Vec::new();
    let thread = |busy_ns| Resource::new("issuing thread", ResourceKind::Order, busy_ns, 1, 0);
    let threads = machine.issuers.iter().map(|issuer| thread(issuer.thread.busy_ns(now_ns)));
    all.push(threads.collect());
    let cpus: u32 = machine.hosts.iter().map(crate::machine::Host::cpus).sum();
    let busy: u64 = machine.hosts.iter().map(|host| host.busy_ns(now_ns)).sum();
    all.push(vec![Resource::part("CPU", busy, cpus, 0)]);
    all.extend(serial_stages(machine, now_ns));
    if let Some(remote) = &machine.remote {
        let client = &remote.client;
        all.push(vec![Resource::part("client CPU", client.busy_ns(now_ns), client.cpus(), 0)]);
        let wire = |busy_ns| Resource::part(&remote.model.name, busy_ns, 1, 0);
        all.push(remote.wire.iter().map(|way| wire(way.busy_ns(now_ns))).collect());
        all.push(vec![Resource::part("write turn", remote.write_turn.busy_ns(now_ns), 1, 0)]);
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

/// Returns the stages that serialise the requests of a file: file growth, cache fetches and the
/// lazy writer.
fn serial_stages(machine: &Machine, now_ns: u64) -> [Vec<Resource>; 3] {
    let order = |name, ns, servers| Resource::new(name, ResourceKind::Order, ns, servers, 0);
    let caches = || machine.files.iter().filter_map(|file| file.cache.as_ref());
    let grows = machine.system.setup.allocation != Allocated::Existing;
    let growing = machine.files.iter().filter(|_| grows);
    let growing = growing.map(|file| order("growth of the file", file.growing.sum_ns(now_ns), 1));
    let fetches = caches().map(|cache| {
        let servers = cache.parallel_requests.max(cache.most_fetches);
        order("cache fetches", cache.fetching.sum_ns(now_ns), servers)
    });
    let writers =
        caches().map(|cache| order("lazy writer", cache.writer_blocked.sum_ns(now_ns), 1));
    [growing.collect(), fetches.collect(), writers.collect()]
}

/// Returns all buses as one resource with several servers. None if there are no buses.
fn bus(machine: &Machine, now_ns: u64) -> Option<Resource> {
    let mut phases_ns: Vec<(&'static str, u64)> = PHASE_NAMES.map(|name| (name, 0)).to_vec();
    for bus in &machine.buses {
        for (sum, ns) in phases_ns.iter_mut().zip(bus.phases_until(now_ns)) {
            sum.1 += ns;
        }
    }
    let busy_ns = phases_ns.iter().map(|(_, ns)| ns).sum();
    let links = machine.system.links.iter().map(|link| link.name.clone());
    let mut paced_ns: Vec<(String, u64)> =
        links.chain([CONTROLLER.to_owned()]).map(|name| (name, 0)).collect();
    for bus in &machine.buses {
        for (sum, ns) in paced_ns.iter_mut().zip(bus.paced_until(now_ns)) {
            sum.1 += ns;
        }
    }
    let bytes = machine.device_bytes[0] + machine.device_bytes[1];
    let servers = machine.buses.len() as u32;
    let bus = Resource::part(&machine.system.bus.name, busy_ns, servers, bytes);
    (servers > 0).then_some(Resource { phases_ns, paced_ns, ..bus })
}

/// Returns the resources for the disk controllers and the disk media.
fn disks(machine: &Machine, now_ns: u64) -> Vec<Vec<Resource>> {
    let (mut own_ns, mut by_media_ns, mut by_bus_ns, mut disks) = (0, 0, 0, 0);
    let (mut seek_ns, mut rotate_ns, mut transfer_ns, mut background_ns) = (0, 0, 0, 0);
    let mut clean_ns = 0;
    for device in &machine.devices {
        let ControllerTimes { own, media, bus } = device.controller_ns;
        own_ns += own;
        by_media_ns += media;
        by_bus_ns += bus;
        if let Mechanism::Disk(disk) = &device.mechanism {
            let times = disk.times_until(now_ns);
            disks += 1;
            seek_ns += times.seek_ns;
            rotate_ns += times.rotate_ns;
            transfer_ns += times.transfer_ns;
            clean_ns += times.clean_ns;
            background_ns += times.background_ns;
        }
    }
    if disks == 0 {
        return Vec::new();
    }
    let bytes = machine.device_bytes[0] + machine.device_bytes[1];
    let busy_ns = seek_ns + rotate_ns + transfer_ns + clean_ns;
    let media = Resource::part(MEDIA, busy_ns, disks, bytes);
    let mut phases_ns = vec![("seek", seek_ns), ("rotate", rotate_ns), ("transfer", transfer_ns)];
    if machine.system.drive.is_shingled() {
        phases_ns.push(("clean bands", clean_ns));
    }
    let controller = Resource::part(CONTROLLER, own_ns + by_media_ns + by_bus_ns, disks, bytes);
    let paced_ns =
        vec![(machine.system.bus.name.clone(), by_bus_ns), (MEDIA.to_owned(), by_media_ns)];
    let media = Resource { phases_ns, background_ns, ..media };
    vec![vec![Resource { paced_ns, ..controller }], vec![media]]
}

/// Adds up the write counters of all flash devices with a translation layer.
fn flash_writes(machine: &Machine, now_ns: u64) -> Option<FlashWrites> {
    let own = machine.devices.iter().filter_map(|device| match &device.mechanism {
        Mechanism::Flash(flash) => Some(flash.times_until(now_ns).translation?.writes),
        Mechanism::Disk(_) => None,
    });
    own.reduce(|sum, writes| sum.plus(&writes))
}

/// Returns the resources of flash devices: units, channels, and the limits that the model sets.
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
    let mut dies = Resource::part(FLASH_UNITS, sum(|t| t.units_ns), units, read + written);
    let own = || times.iter().filter_map(|times| times.translation);
    if model.translation.is_some() {
        let phase = |index| own().map(|own| own.phases_ns[index]).sum::<u64>();
        let names = nand::PHASE_NAMES.iter().enumerate();
        dies.phases_ns = names.map(|(index, name)| (*name, phase(index))).collect();
        dies.background_ns = own().map(|own| own.background_ns).sum();
    }
    let nand_ns = own().map(|own| own.channels_ns).sum();
    let channels: u32 = own().map(|own| own.channels).sum();
    let nand = Resource::part("NAND channels", nand_ns, channels, 0);
    let mut all = vec![
        vec![dies],
        if channels > 0 { vec![nand] } else { Vec::new() },
        vec![channel(sum(|t| t.channel_ns[0]), read), channel(sum(|t| t.channel_ns[1]), written)],
    ];
    let mut limit = |is_set: bool, name: &str, kind, busy_ns, bytes| {
        if is_set {
            all.push(vec![Resource::new(name, kind, busy_ns, devices, bytes)]);
        }
    };
    let (part, reserve) = (ResourceKind::Part, ResourceKind::Reserve);
    let paced = model.requests_per_s.0 > 0.0;
    let drains = model.buffer.0 > 0.0 && model.translation.is_none();
    limit(paced, "requests per second", part, sum(|t| t.paced_ns), read + written);
    limit(drains, "drain", reserve, sum(|t| t.full_ns), written);
    let bursts = model.sustained_requests_per_s.0 > 0.0;
    let spent_ns = sum(|t| t.requests_spent_ns);
    limit(bursts, "sustained requests per second", reserve, spent_ns, read + written);
    let lasts = model.sustained.0 > 0.0;
    limit(lasts, "sustained rate", reserve, sum(|t| t.spent_ns), read + written);
    all
}

impl Account {
    /// Finds the bottleneck.
    pub fn binding(&self) -> Binding {
        let share = |resource: &Resource| resource.utilisation(self.elapsed_ns);
        let nearness = |resource: &&Resource| {
            resource.foreground(self.elapsed_ns) / resource.kind.binding_threshold()
        };
        let nearest = |of_orders: bool| {
            let is_of = move |kind: ResourceKind| (kind == ResourceKind::Order) == of_orders;
            let all = self.resources.iter().filter(|resource| is_of(resource.kind));
            all.max_by(|a, b| nearness(a).total_cmp(&nearness(b)))
        };
        let binds = |resource: &&Resource| nearness(resource) >= 1.0;
        // Parts and reserves are checked first, because a stage that serialises requests is also
        // busy while it waits for a part or a reserve.
        match nearest(false).filter(binds).or_else(|| nearest(true).filter(binds)) {
            Some(full) => {
                let found = self.pacemaker(full);
                let held = Held { resource: full.name.clone(), utilisation: share(full) };
                Binding {
                    resource: found.name.clone(),
                    utilisation: share(found),
                    held: (found.name != full.name).then_some(held),
                }
            }
            None => {
                let awaited = self.resources.iter().map(|r| r.foreground(self.elapsed_ns));
                let utilisation = awaited.fold(0.0, f64::max);
                Binding { resource: "latency".to_owned(), utilisation, held: None }
            }
        }
    }

    /// Returns the resource that sets the pace of `full`, directly or through other resources. A
    /// resource is limited by a slower resource if it spends more time at the slower pace than at
    /// its own pace. Returns `full` if no other resource limits it.
    fn pacemaker<'a>(&'a self, full: &'a Resource) -> &'a Resource {
        let mut found = full;
        // The number of steps is limited, because resources may pace each other in a cycle.
        for _ in 0..self.resources.len() {
            let paced_ns: u64 = found.paced_ns.iter().map(|(_, ns)| ns).sum();
            let own_ns = found.busy_ns.saturating_sub(paced_ns);
            let longest = found.paced_ns.iter().max_by_key(|(_, ns)| ns);
            let slower = longest.filter(|(_, ns)| *ns > own_ns);
            let next = slower.and_then(|(name, _)| self.resources.iter().find(|r| r.name == *name));
            match next {
                Some(next) => found = next,
                None => break,
            }
        }
        found
    }

    /// Returns the cost of writes to flash. `None` if the system has no translation layer, or if no
    /// write reached the flash.
    pub fn write_cost(&self) -> Option<WriteCost> {
        let writes = self.flash_writes?;
        let dies = self.resources.iter().find(|resource| resource.name == FLASH_UNITS)?;
        let sum = |is_of: &dyn Fn(&str) -> bool| {
            let own = dies.phases_ns.iter().filter(|(name, _)| is_of(name));
            own.map(|(_, ns)| *ns).sum::<u64>() as f64
        };
        let writing_ns = sum(&|name| name != nand::PHASE_NAMES[nand::Phase::Read as usize]);
        let collection = [nand::Phase::Collect, nand::Phase::Erase];
        let collection = collection.map(|phase| nand::PHASE_NAMES[phase as usize]);
        let programmed = writes.written_bytes + writes.folded_bytes + writes.moved_bytes;
        let has_written = writes.written_bytes > 0.0 && writing_ns > 0.0;
        has_written.then(|| WriteCost {
            write_amplification: programmed / writes.written_bytes,
            collection_share: sum(&|name| collection.contains(&name)) / dies.busy_ns.max(1) as f64,
            most_bytes_per_s: writes.written_bytes * f64::from(dies.servers) * 1e9 / writing_ns,
        })
    }

    /// Returns the throughput of the completed requests (bytes per second).
    pub fn bytes_per_s(&self) -> f64 {
        if self.elapsed_ns == 0 { 0.0 } else { self.bytes as f64 * 1e9 / self.elapsed_ns as f64 }
    }

    /// Checks that no utilisation exceeds 100% and that Little's law holds. Returns a message for
    /// each failed check. An interval that starts and ends without requests in flight must pass all
    /// checks.
    pub fn violations(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for resource in &self.resources {
            let utilisation = resource.utilisation(self.elapsed_ns);
            if utilisation > 1.0 + 1e-9 {
                let percent = utilisation * 100.0;
                broken.push(format!("{} was busy for {percent:.2}% of the time", resource.name));
            }
        }
        // Little's law, N = X R, holds exactly if no request is in flight at the start and at the
        // end of the interval.
        let by_request = self.mean_residence_ns * self.requests as f64;
        let by_time = self.mean_inside * self.elapsed_ns as f64;
        if (by_request - by_time).abs() > 1e-6 * by_time.max(1.0) {
            broken.push(format!(
                "Little's law fails: the number of requests in the system, integrated over time, \
                 is {by_time} ns, but the residence times of all requests add up to {by_request} ns"
            ));
        }
        broken
    }
}

/// Returns the sustained media rate at a position (bytes per second). The position `at` is a share
/// of the capacity (0 to 1).
pub fn media_rate(geometry: &Geometry, at: f64) -> f64 {
    geometry.rate_at((geometry.bytes() as f64 * at) as u64)
}
