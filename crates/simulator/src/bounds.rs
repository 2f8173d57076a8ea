//! Computes upper bounds on the throughput of a system from its parameters, without a simulation.
//! Each bound includes the part that sets it.
//!
//! There are two kinds of bounds (asymptotic bounds of operational analysis). First, a part cannot
//! serve more requests than if it were busy all the time. Second, a fixed number of requests in
//! flight completes no faster than the minimum latency allows. All costs are those of the cheapest
//! offset, so a bound is never below the true maximum. In a run of known length, the bounds do not
//! count data that may still be buffered at the end, nor requests that the burst credit covers.
//!
//! The bounds share two models with the event simulation: `volume`, which splits requests, and
//! `geometry`, which gives the size and speed of tracks. A comparison of bounds and simulation
//! cannot find errors in these two models, so the models have separate tests.

mod flash;

use ioengine::Op;
use ioengine::target::Caching;

use crate::geometry::Geometry;
use crate::system::{
    Allocated, Cost, DiskModel, DriveModel, LinkModel, LinkPer, MirrorReads, Path, RaidIn, System,
    VolumeKind,
};
use crate::volume::{Piece, Pieces, Volume};

/// The load for which bounds are computed. All requests have the same size and direction, and no
/// byte is requested twice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Read or write.
    pub op: Op,
    /// Whether the access pattern is random. If not, each thread accesses sequential offsets.
    pub random: bool,
    /// Request size (bytes).
    pub request_bytes: u32,
    /// Number of requests in flight, over all threads and hosts.
    pub depth: u32,
    /// How requests are cached: buffered or direct, with or without write-through.
    pub caching: Caching,
    /// Total size of all requests (bytes). `None` for an endless run, for which buffers and burst
    /// credit do not change the bounds. If an endless run is buffered, all its requests may be
    /// served from memory, so only the bounds of the host apply.
    pub bytes: Option<u64>,
}

/// The part that sets a bound. Unlike [`Bound::name`], this value identifies the part. A system
/// file may contain two parts with the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The CPUs of the hosts. Only the work for requests counts.
    Cpu,
    /// The CPUs of the hosts. The system's own work counts too, for example cache transfers.
    CpuAndOwnWork,
    /// The processor of a RAID controller.
    Controller,
    /// The CPUs of a file server's client.
    ClientCpu,
    /// The network to a file server.
    Network,
    /// The limit of one write at a time in a file server.
    WriteTurn,
    /// The link with this index, between host and buses.
    Link(usize),
    /// The buses, at their own rate.
    Bus,
    /// The buses, at the rate of a slower link.
    BusAtPaceOfLink,
    /// The controllers of disks.
    DriveController,
    /// The media of disks.
    Media,
    /// The disk, because each write waits for a revolution.
    Revolutions,
    /// The limit of flash devices on requests per second after the burst credit is spent.
    SustainedRequests,
    /// The limit of flash devices on requests per second.
    Requests,
    /// The units of flash devices.
    FlashUnits,
    /// The rate at which the write buffers of flash devices drain.
    Drain,
    /// The channels of flash devices for reads. Reads and writes use separate channels.
    ReadChannels,
    /// The channels of flash devices for writes.
    WriteChannels,
    /// The limit of flash devices on bytes per second after the burst credit is spent.
    SustainedRate,
    /// The number of requests in flight.
    Outstanding,
    /// The read-ahead or the lazy writer of the file-system cache.
    CacheTransfers,
    /// The growth of a file, one write at a time.
    Growth,
}

/// An upper bound on throughput.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The part that sets the bound.
    pub part: Part,
    /// Name of the limit: a resource, or a phrase such as "requests outstanding".
    pub name: String,
    /// Maximum throughput (bytes per second).
    pub bytes_per_s: f64,
}

/// Maximum number of offsets in a stripe row for which the pieces of a transfer are computed. If
/// more offsets are possible, the bounds use a transfer of complete stripe rows instead.
const POSITIONS_MAX: u64 = 2048;

/// Returns all bounds of a load, the tightest first.
pub fn of(system: &System, shape: &Shape) -> Vec<Bound> {
    let load = Load::new(system, shape);
    let mut all = Vec::new();
    load.processors(&mut all);
    if !load.may_hit() {
        load.paths(&mut all);
        match &system.drive {
            DriveModel::Disk(disk) => load.disk(disk, &mut all),
            DriveModel::Flash(flash) => load.flash(flash, &mut all),
        }
    }
    load.latency(&mut all);
    all.retain(|bound| bound.bytes_per_s.is_finite());
    all.sort_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s));
    all
}

/// A load on a system, with values derived from both.
struct Load<'a> {
    system: &'a System,
    shape: &'a Shape,
    /// Whether the file-system cache moves data between program and devices.
    cached: bool,
    /// Whether a RAID controller merges requests.
    joins: bool,
    /// Whether transfers are modelled as complete stripe rows.
    rows: bool,
    /// The pieces of a transfer, for each possible offset in the volume's repeating pattern.
    positions: Vec<Pieces>,
    /// Size of a transfer (bytes).
    unit: u64,
    /// Number of devices that can work on the load.
    devices: u32,
    buses: u32,
    files: u32,
}

impl<'a> Load<'a> {
    fn new(system: &'a System, shape: &'a Shape) -> Load<'a> {
        let setup = &system.setup;
        let remote = system.network.is_some();
        let cached = !remote && !shape.caching.is_direct();
        let through = shape.caching.is_write_through();
        let write = shape.op == Op::Write;
        // If requests are buffered, the cache of the controller is not modelled.
        let controller = system.controller().filter(|_| shape.caching.is_direct());
        let joins = controller.is_some_and(|controller| match shape.op {
            Op::Read => controller.read_ahead.0 > 0.0,
            Op::Write => setup.holds_writes(controller) && !through,
        });
        let first_only = setup.mirror_reads == MirrorReads::First && !write;
        // During a rebuild, writes for the failed device go to the spare, so no device is missing.
        let lost = if setup.rebuilding && write { 0 } else { setup.failed };
        let of_each = match setup.volume {
            VolumeKind::Raid1 if first_only => lost..lost + 1,
            _ => lost..setup.volume_disks(),
        };
        let used: Vec<u32> = (0..setup.files())
            .flat_map(|file| of_each.clone().map(move |device| (file, device)))
            .map(|(file, device)| file * setup.volume_disks() + device)
            .collect();
        let bus_of =
            |device: &u32| u64::from(*device) * u64::from(system.buses()) / u64::from(setup.disks);
        let mut buses: Vec<u64> = used.iter().map(bus_of).collect();
        buses.dedup();
        let cache = &system.host.cache;
        let request = u64::from(shape.request_bytes);
        let linux = cache.linux.as_ref().filter(|_| cached && !(write && through));
        let unit = match (cached, shape.op) {
            (true, Op::Read) if shape.depth == 1 && !shape.random => cache.read_ahead.bytes(),
            // Requests smaller than a page share the transfer of the page.
            (true, Op::Read) => cache.read_ahead.bytes().max(request).max(cache.page.bytes()),
            (true, Op::Write) if !through => cache.write_behind.bytes(),
            _ => request,
        };
        // The unit of the Linux page cache is the largest of transfer, read-ahead and request size.
        let unit = linux.map_or(unit, |linux| {
            let most = system.host.max_transfer.bytes().max(linux.read_ahead_max.bytes());
            most.max(request).next_multiple_of(cache.page.bytes())
        });
        let files = setup.files();
        let (devices, buses) = (used.len() as u32, buses.len() as u32);
        let mut load = Load {
            system,
            shape,
            cached,
            joins,
            rows: false,
            positions: Vec::new(),
            unit,
            devices,
            buses,
            files,
        };
        load.cut_at_each_position();
        load
    }

    /// Computes the pieces of a transfer at each possible offset in a stripe row. If there are too
    /// many offsets, or if transfers are merged, uses a transfer of complete stripe rows instead,
    /// because complete rows have the lowest cost per byte.
    fn cut_at_each_position(&mut self) {
        let setup = &self.system.setup;
        let most = self.system.host.max_transfer.bytes();
        let disks = u64::from(setup.volume_disks());
        let data = match setup.volume {
            VolumeKind::None | VolumeKind::Raid1 => 0,
            VolumeKind::Stripe => disks,
            VolumeKind::Raid5 => disks - 1,
        };
        // With a failed device, the pattern repeats after as many rows as there are devices.
        let rows = if setup.failed > 0 { disks } else { 1 };
        let row = (data * setup.chunk * rows).max(1);
        let positions = if data == 0 { 1 } else { row / gcd(row, self.unit) };
        let mut setup = setup.clone();
        let whole = self.joins || positions > POSITIONS_MAX;
        self.rows = whole;
        let most = if whole { most.max(setup.chunk) } else { most };
        if whole {
            self.unit = self.unit.next_multiple_of(if data == 0 { most } else { row });
            setup.misalign = 0;
        }
        let far = u64::MAX >> 1;
        let mut volume = Volume::new(&setup, 0, far, most);
        for position in 0..if whole { 1 } else { positions } {
            let mut pieces = Pieces::default();
            let offset = position * self.unit;
            volume.split(self.shape.op, offset, self.unit, &|_| 0, &mut pieces);
            self.positions.push(pieces);
        }
    }

    /// Checks whether all requests may be cache hits. An endless buffered load may start again at
    /// the beginning of the file, whose data may still be cached.
    fn may_hit(&self) -> bool {
        let through = self.shape.op == Op::Write && self.shape.caching.is_write_through();
        self.cached && self.shape.bytes.is_none() && !through
    }

    /// Returns the minimum cost of a request over all possible offsets.
    fn min_demand(&self, cost: impl Fn(&Pieces) -> f64) -> f64 {
        let min_demand = self.positions.iter().map(cost).fold(f64::INFINITY, f64::min);
        min_demand * f64::from(self.shape.request_bytes) / self.unit as f64
    }

    fn min_demand_of_pieces(&self, cost: impl Fn(&Piece) -> u64) -> f64 {
        let sum = |pieces: &Pieces| {
            let all = pieces.first.iter().chain(&pieces.then);
            all.map(&cost).sum::<u64>() as f64
        };
        self.min_demand(sum)
    }

    /// Returns the throughput if each request occupies one of `servers` servers for `demand_ns`.
    fn rate(&self, demand_ns: f64, servers: f64) -> f64 {
        f64::from(self.shape.request_bytes) * servers * 1e9 / demand_ns
    }

    /// Converts the rate of a part to a bound for the whole run. `exempt` bytes need not pass the
    /// part during the run, for example because they may still be buffered at the end.
    fn rate_with_exempt(&self, rate: f64, exempt: f64) -> f64 {
        match self.shape.bytes.map(|bytes| bytes as f64) {
            Some(bytes) if bytes > exempt => rate * bytes / (bytes - exempt),
            Some(_) => f64::INFINITY,
            None => rate,
        }
    }

    /// Returns how many bytes the caches above the devices may hold after the last write.
    fn held_bytes(&self) -> f64 {
        let mut held = 0.0;
        if self.shape.op == Op::Write && !self.shape.caching.is_write_through() {
            let request = f64::from(self.shape.request_bytes);
            if self.cached {
                held += self.system.host.cache.dirty_limit.0.max(request) * f64::from(self.files);
            }
            if let Some(controller) = self.system.controller().filter(|_| self.joins) {
                held += controller.write_buffer.0 + request;
            }
        }
        held
    }

    fn add(&self, all: &mut Vec<Bound>, (part, name): (Part, &str), rate: f64, exempt: f64) {
        let bytes_per_s = self.rate_with_exempt(rate, exempt);
        all.push(Bound { part, name: name.to_owned(), bytes_per_s });
    }

    fn cost(&self) -> Cost {
        let host = &self.system.host;
        let (cached, write) = (self.cached, self.shape.op == Op::Write);
        match (&self.system.network, cached, write) {
            (Some(network), _, false) => network.server_read,
            (Some(network), _, true) => network.server_write,
            (None, true, false) => host.buffered_read,
            (None, true, true) => host.buffered_write,
            (None, false, false) => host.direct_read,
            (None, false, true) => host.direct_write,
        }
    }

    /// Adds the bounds set by CPUs, the processor of a RAID controller, and the network.
    fn processors(&self, all: &mut Vec<Bound>) {
        let (system, shape) = (self.system, self.shape);
        let request = u64::from(shape.request_bytes);
        let cpus = system.host.cpus.count().max(1);
        let hosts = if system.network.is_some() { 1 } else { system.setup.hosts };
        let own_ns = self.cost().ns_for(request) as f64;
        let servers = if system.network.is_some() { cpus } else { (cpus * hosts).min(shape.depth) };
        self.add(all, (Part::Cpu, "CPU"), self.rate(own_ns, f64::from(servers)), 0.0);
        if self.may_hit() {
            return;
        }
        let background_cpu_ns = self.background_cpu_ns();
        if background_cpu_ns > 0.0 {
            // This work may still be pending at the end of the run. It does not run in the threads
            // of the program, so it can use all CPUs at any depth.
            let own = self.rate(own_ns + background_cpu_ns, f64::from(cpus * hosts));
            let part = (Part::CpuAndOwnWork, "CPU, including cache transfers and host RAID work");
            self.add(all, part, own, self.held_bytes());
        }
        if let Some(controller) = self.system.controller() {
            let each = if shape.op == Op::Read { controller.read } else { controller.write };
            // Merged requests may be sent one piece at a time, without the cost of further pieces.
            let piece_ns = if self.joins { 0 } else { controller.piece.ns() };
            let demand = self.min_demand(|pieces| {
                (controller.fixed.ns()
                    + piece_ns * (first_stage_len(pieces) - 1)
                    + each.ns_for(self.unit)
                    + controller.parity.ns_for(pieces.parity_bytes)) as f64
            });
            let part = (Part::Controller, controller.name.as_str());
            self.add(all, part, self.rate(demand, 1.0), self.held_bytes());
        }
        if let Some(network) = &system.network {
            let client =
                if shape.op == Op::Read { network.client_read } else { network.client_write };
            let servers = f64::from(cpus.min(shape.depth));
            let client_ns = client.ns_for(request) as f64;
            self.add(all, (Part::ClientCpu, "client CPU"), self.rate(client_ns, servers), 0.0);
            let wire_ns = network.rate.ns_for(request) as f64;
            self.add(all, (Part::Network, &network.name), self.rate(wire_ns, 1.0), 0.0);
            if shape.op == Op::Write {
                let turn_ns = network.write_turn.ns() as f64;
                let part = (Part::WriteTurn, "a file server takes one write at a time");
                self.add(all, part, self.rate(turn_ns, 1.0), 0.0);
            }
        }
    }

    /// Returns the CPU time of cache transfers and of a software volume (ns per request).
    fn background_cpu_ns(&self) -> f64 {
        let (setup, host) = (&self.system.setup, &self.system.host);
        let own =
            self.cached && !(self.shape.op == Op::Write && self.shape.caching.is_write_through());
        let fetch_ns = if own { host.piece.ns() } else { 0 };
        let volume = setup.raid_in == RaidIn::Host && setup.volume != VolumeKind::None;
        self.min_demand(|pieces| {
            let piece = host.volume_piece.unwrap_or(host.piece);
            let pieces_ns = piece.ns() * (first_stage_len(pieces) - 1);
            let volume_ns = pieces_ns + host.parity.ns_for(pieces.parity_bytes);
            (fetch_ns + if volume { volume_ns } else { 0 }) as f64
        })
    }

    /// Adds the bounds set by links and buses.
    fn paths(&self, all: &mut Vec<Bound>) {
        let system = self.system;
        let held = self.held_bytes();
        let request = u64::from(self.shape.request_bytes);
        for (index, link) in system.links.iter().enumerate() {
            let copies = match link.per {
                LinkPer::System => 1,
                LinkPer::Bus => self.buses,
                LinkPer::Host if system.network.is_some() => 1,
                LinkPer::Host => system.setup.hosts,
            };
            let mut demand = self.min_demand_of_pieces(|piece| link_ns(link, piece));
            if let Some(network) = system.network.as_ref().filter(|_| index == 0) {
                let rate = if self.shape.op == Op::Read { link.read } else { link.write };
                let more = (network.crossings.0 - 1.0).max(0.0);
                demand += (rate.ns_for(request) as f64 * more).floor();
            }
            self.add(
                all,
                (Part::Link(index), &link.name),
                self.rate(demand, f64::from(copies)),
                held,
            );
        }
        self.buses(all);
    }

    /// Adds the bound set by the buses at their own rate. If a link is slower, also adds the bound
    /// at the rate of the link, because the bus is busy until the link has moved the data.
    fn buses(&self, all: &mut Vec<Bound>) {
        let system = self.system;
        let (buses, held) = (f64::from(self.buses), self.held_bytes());
        let own = self.min_demand_of_pieces(|piece| {
            self.bus_ns(piece) - self.data_ns(piece) + self.own_data_ns(piece)
        });
        self.add(all, (Part::Bus, &system.bus.name), self.rate(own, buses), held);
        let occupied = self.min_demand_of_pieces(|piece| self.bus_ns(piece));
        let demand = |link: &LinkModel| self.min_demand_of_pieces(|piece| link_ns(link, piece));
        let slowest = system.links.iter().max_by(|a, b| demand(a).total_cmp(&demand(b)));
        if let Some(link) = slowest.filter(|_| occupied > own) {
            let name = format!("{} at the pace of {}", system.bus.name, link.name);
            self.add(all, (Part::BusAtPaceOfLink, &name), self.rate(occupied, buses), held);
        }
    }

    /// Returns the time to move a command's data at the rate of the bus (ns).
    fn own_data_ns(&self, piece: &Piece) -> u64 {
        let bus = &self.system.bus;
        let rate = if piece.op == Op::Read { bus.read } else { bus.write };
        rate.ns_for(piece.length)
    }

    /// Returns the time to move a command's data at the rate of the slowest bus or link (ns).
    fn data_ns(&self, piece: &Piece) -> u64 {
        let links = self.system.links.iter().map(|link| link_ns(link, piece));
        links.fold(self.own_data_ns(piece), u64::max)
    }

    /// Returns the minimum bus time of a command, summed over all phases (ns).
    fn bus_ns(&self, piece: &Piece) -> u64 {
        let bus = &self.system.bus;
        let command =
            bus.arbitrate.ns() + bus.select.ns() + bus.message_out.ns() + bus.command.ns();
        command + self.data_tenure_ns(piece) + self.report_ns(piece)
    }

    /// Returns the bus time for moving the data and ending the connection (ns).
    fn data_tenure_ns(&self, piece: &Piece) -> u64 {
        let bus = &self.system.bus;
        let ends = bus.status.ns() + bus.message_in.ns();
        let back = bus.arbitrate.ns() + bus.reselect.ns() + bus.disconnect.ns();
        let disconnects = self.system.setup.path == Path::FileSystem;
        self.data_ns(piece)
            + match piece.op {
                Op::Read if disconnects && !self.inline() => back + ends,
                Op::Read => ends,
                Op::Write if self.write_back() => ends,
                Op::Write => bus.disconnect.ns(),
            }
    }

    /// Returns the bus time for reporting that a write is on the media (ns).
    fn report_ns(&self, piece: &Piece) -> u64 {
        let bus = &self.system.bus;
        match piece.op {
            Op::Write if !self.write_back() && !is_flash(self.system) => {
                bus.arbitrate.ns() + bus.reselect.ns() + bus.status.ns() + bus.message_in.ns()
            }
            _ => 0,
        }
    }

    /// Checks whether a device can answer without disconnecting from the bus.
    fn inline(&self) -> bool {
        matches!(&self.system.drive, DriveModel::Disk(disk) if disk.answers_inline)
    }

    /// Checks whether the devices complete writes before the data is on the media.
    fn write_back(&self) -> bool {
        let through = self.shape.caching.is_write_through();
        !through && (self.system.setup.write_cache || is_flash(self.system))
    }

    fn controller_ns(&self, disk: &DiskModel, piece: &Piece) -> u64 {
        let disconnects = self.system.setup.path == Path::FileSystem;
        let firmware = match piece.op {
            Op::Write => disk.firmware_write.ns(),
            Op::Read if disconnects && !disk.answers_inline => {
                disk.firmware_read.ns() + disk.disconnect_delay.ns()
            }
            Op::Read => disk.firmware_read.ns(),
        };
        firmware + self.data_tenure_ns(piece) + self.report_ns(piece)
    }

    /// Adds the bounds set by the controllers and media of disks.
    fn disk(&self, disk: &DiskModel, all: &mut Vec<Bound>) {
        let devices = f64::from(self.devices);
        let held = self.held_bytes();
        let demand = self.min_demand_of_pieces(|piece| self.controller_ns(disk, piece));
        self.add(
            all,
            (Part::DriveController, "drive controller"),
            self.rate(demand, devices),
            held,
        );
        let request = f64::from(self.shape.request_bytes);
        let written = |pieces: &Pieces| {
            let all = pieces.first.iter().chain(&pieces.then).filter(|piece| piece.op == Op::Write);
            all.map(|piece| piece.length).sum::<u64>() as f64
        };
        let media = match self.shape.op {
            Op::Read => request,
            Op::Write => self.min_demand(written),
        };
        let rate = self.media_rate() * devices * request / media;
        let room = disk.write_buffer.0 + 2.0 * self.system.host.max_transfer.0;
        let dirty =
            if self.shape.op == Op::Write && self.write_back() { room * devices } else { 0.0 };
        let exempt = held + dirty * request / media + self.skew_bytes();
        self.add(all, (Part::Media, "media"), rate, exempt);
        if let Some(rate) = self.revolution_per_write(disk) {
            let part = (Part::Revolutions, "a revolution for each write");
            self.add(all, part, rate.0, rate.1);
        }
    }

    fn geometry(&self) -> Option<Geometry> {
        let DriveModel::Disk(disk) = &self.system.drive else { return None };
        Some(Geometry::new(disk, 1.0 - disk.spindle_spread.0))
    }

    /// Checks whether each device transfers long contiguous extents that cross tracks.
    fn in_stretches(&self) -> bool {
        let setup = &self.system.setup;
        let one_copy = setup.volume == VolumeKind::Raid1
            && (self.shape.op == Op::Write || setup.mirror_reads == MirrorReads::First);
        !self.shape.random
            && (matches!(setup.volume, VolumeKind::None | VolumeKind::Stripe) || one_copy)
    }

    /// Returns the best media rate of one disk at or after the file's start (bytes per second).
    fn media_rate(&self) -> f64 {
        let Some(geometry) = self.geometry() else { return f64::INFINITY };
        if self.system.drive.is_shingled() {
            // The data may be in the media cache of the disk, which is on the outermost tracks.
            return geometry.best_rate_from(0, false);
        }
        geometry.best_rate_from(self.file_start(), self.in_stretches())
    }

    /// Returns the offset at which the file starts on each disk (bytes).
    fn file_start(&self) -> u64 {
        let bytes = self.geometry().map_or(0, |geometry| geometry.bytes());
        let setup = &self.system.setup;
        (bytes as f64 * setup.file_at) as u64 / setup.chunk * setup.chunk
    }

    /// Returns how many bytes a run may transfer in excess of the sustained rate, because its
    /// contiguous extents may cross fewer track skews than average.
    fn skew_bytes(&self) -> f64 {
        let (Some(geometry), true) = (self.geometry(), self.in_stretches()) else { return 0.0 };
        let stretches = f64::from(self.shape.depth.max(self.files)) * f64::from(self.devices);
        stretches * self.media_rate() * geometry.skew_ns() as f64 / 1e9
    }

    /// Returns the rate of sequential writes at depth 1 if each write must wait for a revolution. A
    /// write waits, because the previous write must be on the media first. Also returns the number
    /// of bytes that are exempt from this rate. `None` if writes need not wait.
    fn revolution_per_write(&self, disk: &DiskModel) -> Option<(f64, f64)> {
        let setup = &self.system.setup;
        let one = self.shape.depth == 1 && self.files == 1 && !self.shape.random;
        let whole = matches!(setup.volume, VolumeKind::None | VolumeKind::Raid1);
        // A zero-latency write can start at any of its sectors, so it need not wait.
        let waits = !self.write_back()
            && !self.joins
            && !disk.zero_latency_write
            && disk.shingled.is_none();
        let applies = self.shape.op == Op::Write && waits;
        // The head misses the next sector only if some time passes between two writes.
        let away = self.system.bus.status.ns() + self.system.bus.command.ns() > 0;
        if !(one && whole && applies && away) {
            return None;
        }
        let geometry = self.geometry()?;
        let revolution_ns = geometry.revolution_ns() as f64;
        let transfer_ns = self.unit as f64 * 1e9 / self.media_rate();
        // A write at the start of a track may not have to wait, because of the track skew.
        let starts = |track: u64| gcd(self.unit, track) as f64 / track as f64;
        let in_time = geometry.tracks_from(self.file_start()).map(starts).fold(0.0, f64::max);
        let each_ns = revolution_ns * (1.0 - in_time) + transfer_ns;
        let first = self.unit as f64 * revolution_ns / each_ns;
        let exempt = self.held_bytes() + first + self.skew_bytes();
        Some((self.unit as f64 * 1e9 / each_ns, exempt))
    }

    /// Adds the bounds that follow from the number of requests in flight and the minimum latency.
    fn latency(&self, all: &mut Vec<Bound>) {
        let size = f64::from(self.shape.request_bytes);
        let depth = f64::from(self.shape.depth);
        let rate = depth * size * 1e9 / self.least_ns();
        self.add(all, (Part::Outstanding, "requests outstanding"), rate, 0.0);
        let through = self.shape.caching.is_write_through();
        let write = self.shape.op == Op::Write;
        let in_order = self.shape.bytes.is_some() && !self.shape.random;
        let alone = self.system.host.cache.linux.is_none();
        if self.cached && in_order && alone && !(write && through) {
            let name = if write { "lazy writer" } else { "read-ahead" };
            let least_ns = self.system.host.piece.ns() as f64 + self.device_ns();
            let rate = f64::from(self.files) * self.unit as f64 * 1e9 / least_ns;
            self.add(all, (Part::CacheTransfers, name), rate, self.held_bytes());
        } else if write
            && self.system.setup.allocation == Allocated::Extend
            && !self.cached
            && self.system.network.is_none()
        {
            let rate = f64::from(self.files) * size * 1e9 / self.device_ns();
            self.add(all, (Part::Growth, "writes that extend a file run one at a time"), rate, 0.0);
        }
    }

    /// Returns the minimum latency of a single request (ns).
    fn least_ns(&self) -> f64 {
        let request = u64::from(self.shape.request_bytes);
        let own_ns = self.cost().ns_for(request) as f64;
        let write = self.shape.op == Op::Write;
        let waits = !self.cached || write && self.shape.caching.is_write_through();
        let device_ns = if waits { self.device_ns() } else { 0.0 };
        let Some(network) = &self.system.network else { return own_ns + device_ns };
        let (client, trips) = if write {
            (network.client_write, network.write_round_trips)
        } else {
            (network.client_read, network.read_round_trips)
        };
        let slow_from = network.slow_write_from.bytes();
        let slow = write && slow_from > 0 && request >= slow_from;
        let slow_ns = if slow { network.slow_write.ns_for(request) } else { 0 };
        let turn_ns = if write { network.write_turn.ns() } else { 0 };
        let waits_ns = slow_ns + turn_ns;
        let client_ns = (client.ns_for(request) + network.rate.ns_for(request) + waits_ns) as f64;
        let travel_ns = (network.latency.0 * (trips.0 * 2.0 - 1.0)).floor().max(0.0);
        own_ns + device_ns + client_ns + travel_ns + network.latency.ns() as f64
    }

    /// Returns the minimum device time of a request (ns): the sum of each stage's slowest piece.
    fn device_ns(&self) -> f64 {
        if self.rows {
            return 0.0;
        }
        let longest =
            |pieces: &[Piece]| pieces.iter().map(|piece| self.piece_ns(piece)).fold(0.0, f64::max);
        let both = |pieces: &Pieces| longest(&pieces.first) + longest(&pieces.then);
        self.positions.iter().map(both).fold(f64::INFINITY, f64::min)
    }

    fn piece_ns(&self, piece: &Piece) -> f64 {
        match &self.system.drive {
            DriveModel::Disk(disk) => {
                let bus = &self.system.bus;
                let command =
                    bus.arbitrate.ns() + bus.select.ns() + bus.message_out.ns() + bus.command.ns();
                // A zero-latency write starts on the media while its data still arrive.
                let early_ns =
                    if disk.zero_latency_write { self.data_ns(piece) as f64 } else { 0.0 };
                let media = if piece.op == Op::Write && !self.write_back() {
                    (piece.length as f64 * 1e9 / self.track_rate() - early_ns).max(0.0)
                } else {
                    0.0
                };
                (command + self.controller_ns(disk, piece)) as f64 + media
            }
            DriveModel::Flash(flash) => self.bus_ns(piece) as f64 + flash::flash_ns(flash, piece),
        }
    }

    fn track_rate(&self) -> f64 {
        let Some(geometry) = self.geometry() else { return f64::INFINITY };
        geometry.best_rate_from(0, false)
    }
}

fn is_flash(system: &System) -> bool {
    matches!(system.drive, DriveModel::Flash(_))
}

fn link_ns(link: &LinkModel, piece: &Piece) -> u64 {
    let rate = if piece.op == Op::Read { link.read } else { link.write };
    link.fixed.ns() + rate.ns_for(piece.length)
}

/// Returns the number of `first` pieces, or of `then` pieces if `first` is empty. At least 1.
fn first_stage_len(pieces: &Pieces) -> u64 {
    let first = if pieces.first.is_empty() { &pieces.then } else { &pieces.first };
    first.len().max(1) as u64
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
