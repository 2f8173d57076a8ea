//! Closed-form bounds: what no run of a system can exceed, each with the part that sets it.
//!
//! A request demands so much of each part; a part that is all busy lets through its capacity over
//! that demand (asymptotic bounds of operational analysis), and so many requests outstanding come
//! back no faster than they can. Everything errs towards the system: a demand is the least that a
//! request can cost, wherever it lies. What need not be done when the clock stops (bytes in write
//! buffers, saved-up credit) is taken off where the run's length is known.
//!
//! Two models are shared with the events, and neither lets time pass: `volume` says how a request
//! is cut, `geometry` how large and fast the tracks of a disk are. A mistake in those breaks no
//! bound; their own tests have to find it. All the rest is worked out here from the values of the
//! system.

use ioengine::Op;
use ioengine::target::Caching;

use crate::geometry::Geometry;
use crate::system::{
    Allocated, Cost, DiskModel, DriveModel, FlashModel, LinkPer, MirrorReads, Path, RaidIn, System,
    VolumeKind,
};
use crate::volume::{Piece, Pieces, Volume};

/// The load that is bounded: requests of one size and direction, each byte asked for once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Direction.
    pub op: Op,
    /// In random order; else each thread in sequence.
    pub random: bool,
    /// Size of each request (bytes).
    pub request_bytes: u32,
    /// Requests outstanding, over all threads and hosts.
    pub depth: u32,
    /// Through the cache or past it.
    pub caching: Caching,
    /// Bytes moved in all; None: a run without end, in which buffers and credit do not count.
    pub bytes: Option<u64>,
}

/// A rate that no run exceeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The part or law that sets it.
    pub name: String,
    /// The rate (bytes per second).
    pub bytes_per_s: f64,
}

/// Where the places of a request in the pattern of a volume are too many to look at all.
const PLACES_MOST: u64 = 2048;
/// The grain of a flash device's read cache (bytes).
const LINE_BYTES: u64 = 4096;

/// All bounds of a load, the tightest first.
pub fn of(system: &System, shape: &Shape) -> Vec<Bound> {
    let load = Load::new(system, shape);
    let mut all = Vec::new();
    load.processors(&mut all);
    load.paths(&mut all);
    match &system.drive {
        DriveModel::Disk(disk) => load.disk(disk, &mut all),
        DriveModel::Flash(flash) => load.flash(flash, &mut all),
    }
    load.latency(&mut all);
    all.retain(|bound| bound.bytes_per_s.is_finite());
    all.sort_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s));
    all
}

/// A load on a system, with what both together decide.
struct Load<'a> {
    system: &'a System,
    shape: &'a Shape,
    /// The file-system cache moves data between program and devices.
    cached: bool,
    /// A RAID controller joins requests.
    joins: bool,
    /// Transfers are looked at as whole rows.
    rows: bool,
    /// What a transfer to the devices can come to, by its place, ...
    places: Vec<Pieces>,
    /// ... and its size (bytes).
    unit: u64,
    /// Devices and buses that can work on it.
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
        // Behind the file system's cache the controller's own has no part.
        let controller = system.controller().filter(|_| shape.caching.is_direct());
        let joins = controller.is_some_and(|controller| match shape.op {
            Op::Read => controller.read_ahead.0 > 0.0,
            Op::Write => setup.holds_writes(controller) && !through,
        });
        let first_only = setup.mirror_reads == MirrorReads::First && !write;
        // What is written during a rebuild goes to the spare too.
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
        let unit = match (cached, shape.op) {
            (true, Op::Read) if shape.depth == 1 && !shape.random => cache.read_ahead.bytes(),
            (true, Op::Read) => cache.read_ahead.bytes().max(request),
            (true, Op::Write) if !through => cache.write_behind.bytes(),
            _ => request,
        };
        let files = setup.files();
        let (devices, buses) = (used.len() as u32, buses.len() as u32);
        let mut load = Load {
            system,
            shape,
            cached,
            joins,
            rows: false,
            places: Vec::new(),
            unit,
            devices,
            buses,
            files,
        };
        load.look_at_places();
        load
    }

    /// Cuts a transfer at every place that it can have in a row of the volume; where they are too
    /// many, or are joined, whole rows, which cost the least.
    fn look_at_places(&mut self) {
        let setup = &self.system.setup;
        let most = self.system.host.max_transfer.bytes();
        let disks = u64::from(setup.volume_disks());
        let data = match setup.volume {
            VolumeKind::None | VolumeKind::Raid1 => 0,
            VolumeKind::Stripe => disks,
            VolumeKind::Raid5 => disks - 1,
        };
        // A failed device is another one's place in each row.
        let rows = if setup.failed > 0 { disks } else { 1 };
        let row = (data * setup.chunk * rows).max(1);
        let places = if data == 0 { 1 } else { row / divisor(row, self.unit) };
        let mut setup = setup.clone();
        let whole = self.joins || places > PLACES_MOST;
        self.rows = whole;
        let most = if whole { most.max(setup.chunk) } else { most };
        if whole {
            self.unit = self.unit.next_multiple_of(if data == 0 { most } else { row });
            setup.misalign = 0;
        }
        let far = u64::MAX >> 1;
        let mut volume = Volume::new(&setup, 0, far, most);
        for place in 0..if whole { 1 } else { places } {
            let mut pieces = Pieces::default();
            let request = (self.shape.op, place * self.unit, self.unit);
            volume.cut(request, &|_| 0, &mut pieces);
            self.places.push(pieces);
        }
    }

    /// The least that a transfer costs anywhere, for each request.
    fn least(&self, cost: impl Fn(&Pieces) -> f64) -> f64 {
        let least = self.places.iter().map(cost).fold(f64::INFINITY, f64::min);
        least * f64::from(self.shape.request_bytes) / self.unit as f64
    }

    fn least_of_pieces(&self, cost: impl Fn(&Piece) -> u64) -> f64 {
        let sum = |pieces: &Pieces| {
            let all = pieces.first.iter().chain(&pieces.then);
            all.map(&cost).sum::<u64>() as f64
        };
        self.least(sum)
    }

    /// The rate at which a demand of so many ns for each request fills so many servers.
    fn rate(&self, demand_ns: f64, servers: f64) -> f64 {
        f64::from(self.shape.request_bytes) * servers * 1e9 / demand_ns
    }

    /// The same where so many bytes need not be through when the clock stops.
    fn rate_after(&self, rate: f64, spared: f64) -> f64 {
        match self.shape.bytes.map(|bytes| bytes as f64) {
            Some(bytes) if bytes > spared => rate * bytes / (bytes - spared),
            Some(_) => f64::INFINITY,
            None => rate,
        }
    }

    /// Bytes that are not yet on their way to the devices when the last write is accepted.
    fn held_above(&self) -> f64 {
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

    fn add(&self, all: &mut Vec<Bound>, name: &str, rate: f64, spared: f64) {
        let bytes_per_s = self.rate_after(rate, spared);
        all.push(Bound { name: name.to_owned(), bytes_per_s });
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

    /// CPUs, the processor of a RAID controller, and the network.
    fn processors(&self, all: &mut Vec<Bound>) {
        let (system, shape) = (self.system, self.shape);
        let request = u64::from(shape.request_bytes);
        let cpus = system.host.cpus.count().max(1);
        let hosts = if system.network.is_some() { 1 } else { system.setup.hosts };
        let own_ns = self.cost().ns_for(request) as f64;
        let servers = if system.network.is_some() { cpus } else { (cpus * hosts).min(shape.depth) };
        self.add(all, "CPU", self.rate(own_ns, f64::from(servers)), 0.0);
        let unasked_ns = self.unasked_ns();
        if unasked_ns > 0.0 {
            // The system's own work may be still to do, and needs no thread of the program.
            let own = self.rate(own_ns + unasked_ns, f64::from(cpus * hosts));
            self.add(all, "CPU with the system's own work", own, self.held_above());
        }
        if let Some(controller) = self.system.controller() {
            let each = if shape.op == Op::Read { controller.read } else { controller.write };
            // What it joins it may cut again, at worst to pieces that go alone, which are free.
            let piece_ns = if self.joins { 0 } else { controller.piece.ns() };
            let demand = self.least(|pieces| {
                (controller.fixed.ns()
                    + piece_ns * (sent_at_once(pieces) - 1)
                    + each.ns_for(self.unit)
                    + controller.parity.ns_for(pieces.parity_bytes)) as f64
            });
            self.add(all, &controller.name, self.rate(demand, 1.0), self.held_above());
        }
        if let Some(network) = &system.network {
            let client =
                if shape.op == Op::Read { network.client_read } else { network.client_write };
            let servers = f64::from(cpus.min(shape.depth));
            let client_ns = client.ns_for(request) as f64;
            self.add(all, "client CPU", self.rate(client_ns, servers), 0.0);
            let wire_ns = network.rate.ns_for(request) as f64;
            self.add(all, &network.name, self.rate(wire_ns, 1.0), 0.0);
            if shape.op == Op::Write {
                let turn_ns = network.write_turn.ns() as f64;
                self.add(
                    all,
                    "a file server takes one write at a time",
                    self.rate(turn_ns, 1.0),
                    0.0,
                );
            }
        }
    }

    /// CPU time of the cache's own transfers and of a volume that the host puts together (ns for
    /// each request).
    fn unasked_ns(&self) -> f64 {
        let (setup, host) = (&self.system.setup, &self.system.host);
        let own =
            self.cached && !(self.shape.op == Op::Write && self.shape.caching.is_write_through());
        let fetch_ns = if own { host.piece.ns() } else { 0 };
        let volume = setup.raid_in == RaidIn::Host && setup.volume != VolumeKind::None;
        self.least(|pieces| {
            let pieces_ns = host.piece.ns() * (sent_at_once(pieces) - 1);
            let volume_ns = pieces_ns + host.parity.ns_for(pieces.parity_bytes);
            (fetch_ns + if volume { volume_ns } else { 0 }) as f64
        })
    }

    /// Links and buses.
    fn paths(&self, all: &mut Vec<Bound>) {
        let system = self.system;
        let held = self.held_above();
        let request = u64::from(self.shape.request_bytes);
        for (index, link) in system.links.iter().enumerate() {
            let copies = match link.per {
                LinkPer::System => 1,
                LinkPer::Bus => self.buses,
                LinkPer::Host if system.network.is_some() => 1,
                LinkPer::Host => system.setup.hosts,
            };
            let mut demand = self.least_of_pieces(|piece| link_ns(link, piece));
            if let Some(network) = system.network.as_ref().filter(|_| index == 0) {
                let rate = if self.shape.op == Op::Read { link.read } else { link.write };
                let more = (network.crossings.0 - 1.0).max(0.0);
                demand += (rate.ns_for(request) as f64 * more).floor();
            }
            self.add(all, &link.name, self.rate(demand, f64::from(copies)), held);
        }
        let demand = self.least_of_pieces(|piece| self.bus_ns(piece));
        self.add(all, &system.bus.name, self.rate(demand, f64::from(self.buses)), held);
    }

    /// How long a command's data occupy the bus (ns): as long as the slowest link on the way.
    fn data_ns(&self, piece: &Piece) -> u64 {
        let bus = &self.system.bus;
        let rate = if piece.op == Op::Read { bus.read } else { bus.write };
        let links = self.system.links.iter().map(|link| link_ns(link, piece));
        links.fold(rate.ns_for(piece.length), u64::max)
    }

    /// The least time of a command on its bus (ns), by phases.
    fn bus_ns(&self, piece: &Piece) -> u64 {
        let bus = &self.system.bus;
        let command =
            bus.arbitrate.ns() + bus.select.ns() + bus.message_out.ns() + bus.command.ns();
        command + self.data_tenure_ns(piece) + self.report_ns(piece)
    }

    /// The tenure in which the data move.
    fn data_tenure_ns(&self, piece: &Piece) -> u64 {
        let bus = &self.system.bus;
        let ends = bus.status.ns() + bus.message_in.ns();
        let back = bus.arbitrate.ns() + bus.reselect.ns() + bus.disconnect.ns();
        let breaks = self.system.setup.path == Path::FileSystem;
        self.data_ns(piece)
            + match piece.op {
                Op::Read if breaks && !self.inline() => back + ends,
                Op::Read => ends,
                Op::Write if self.device_behind() => ends,
                Op::Write => bus.disconnect.ns(),
            }
    }

    /// The tenure in which a disk says that a write is on the media.
    fn report_ns(&self, piece: &Piece) -> u64 {
        let bus = &self.system.bus;
        match piece.op {
            Op::Write if !self.device_behind() && !is_flash(self.system) => {
                bus.arbitrate.ns() + bus.reselect.ns() + bus.status.ns() + bus.message_in.ns()
            }
            _ => 0,
        }
    }

    /// Whether a device can answer without letting go of the bus.
    fn inline(&self) -> bool {
        matches!(&self.system.drive, DriveModel::Disk(disk) if disk.answers_inline)
    }

    /// Whether devices complete writes before they are on the media.
    fn device_behind(&self) -> bool {
        let through = self.shape.caching.is_write_through();
        !through && (self.system.setup.write_cache || is_flash(self.system))
    }

    fn controller_ns(&self, disk: &DiskModel, piece: &Piece) -> u64 {
        let breaks = self.system.setup.path == Path::FileSystem;
        let firmware = match piece.op {
            Op::Write => disk.firmware_write.ns(),
            Op::Read if breaks && !disk.answers_inline => {
                disk.firmware_read.ns() + disk.disconnect_delay.ns()
            }
            Op::Read => disk.firmware_read.ns(),
        };
        firmware + self.data_tenure_ns(piece) + self.report_ns(piece)
    }

    /// Controllers and media of disks.
    fn disk(&self, disk: &DiskModel, all: &mut Vec<Bound>) {
        let devices = f64::from(self.devices);
        let held = self.held_above();
        let demand = self.least_of_pieces(|piece| self.controller_ns(disk, piece));
        self.add(all, "drive controller", self.rate(demand, devices), held);
        let request = f64::from(self.shape.request_bytes);
        let written = |pieces: &Pieces| {
            let all = pieces.first.iter().chain(&pieces.then).filter(|piece| piece.op == Op::Write);
            all.map(|piece| piece.length).sum::<u64>() as f64
        };
        let media = match self.shape.op {
            Op::Read => request,
            Op::Write => self.least(written),
        };
        let rate = self.media_rate() * devices * request / media;
        let room = disk.write_buffer.0 + 2.0 * self.system.host.max_transfer.0;
        let dirty =
            if self.shape.op == Op::Write && self.device_behind() { room * devices } else { 0.0 };
        let spared = held + dirty * request / media + self.skew_bytes();
        self.add(all, "media", rate, spared);
        if let Some(rate) = self.write_law(disk) {
            self.add(all, "a revolution for each write", rate.0, rate.1);
        }
    }

    fn geometry(&self) -> Option<Geometry> {
        let DriveModel::Disk(disk) = &self.system.drive else { return None };
        Some(Geometry::new(disk, 1.0 - disk.spindle_spread.0))
    }

    /// Whether a device transfers what it does in long stretches, across tracks.
    fn in_stretches(&self) -> bool {
        let setup = &self.system.setup;
        let one_copy = setup.volume == VolumeKind::Raid1
            && (self.shape.op == Op::Write || setup.mirror_reads == MirrorReads::First);
        !self.shape.random
            && (matches!(setup.volume, VolumeKind::None | VolumeKind::Stripe) || one_copy)
    }

    /// The best rate of one disk's media where the file lies (bytes per second).
    fn media_rate(&self) -> f64 {
        let Some(geometry) = self.geometry() else { return f64::INFINITY };
        geometry.best_rate_from(self.file_start(), self.in_stretches())
    }

    /// Where the file begins on its disks (bytes).
    fn file_start(&self) -> u64 {
        let bytes = self.geometry().map_or(0, |geometry| geometry.bytes());
        let setup = &self.system.setup;
        (bytes as f64 * setup.file_at) as u64 / setup.chunk * setup.chunk
    }

    /// What skews that a stretch does not meet are worth (bytes).
    fn skew_bytes(&self) -> f64 {
        let (Some(geometry), true) = (self.geometry(), self.in_stretches()) else { return 0.0 };
        let stretches = f64::from(self.shape.depth.max(self.files)) * f64::from(self.devices);
        stretches * self.media_rate() * geometry.skew_ns() as f64 / 1e9
    }

    /// One sequential write at a time, on the media before the next: it has to wait for the
    /// platter to come round. Gives the rate and the bytes that are spared.
    fn write_law(&self, disk: &DiskModel) -> Option<(f64, f64)> {
        let setup = &self.system.setup;
        let one = self.shape.depth == 1 && self.files == 1 && !self.shape.random;
        let whole = matches!(setup.volume, VolumeKind::None | VolumeKind::Raid1);
        // A disk that begins anywhere in a write is where the next one starts, now and then.
        let waits = !self.device_behind() && !self.joins && !disk.zero_latency_write;
        let applies = self.shape.op == Op::Write && waits;
        // The time between two writes must not be nothing.
        let away = self.system.bus.status.ns() + self.system.bus.command.ns() > 0;
        if !(one && whole && applies && away) {
            return None;
        }
        let geometry = self.geometry()?;
        let revolution_ns = geometry.revolution_ns() as f64;
        let transfer_ns = self.unit as f64 * 1e9 / self.media_rate();
        // One that begins a track may come in time, since the skew lets the platter wait for it.
        let starts = |track: u64| divisor(self.unit, track) as f64 / track as f64;
        let in_time = geometry.tracks_from(self.file_start()).map(starts).fold(0.0, f64::max);
        let each_ns = revolution_ns * (1.0 - in_time) + transfer_ns;
        let first = self.unit as f64 * revolution_ns / each_ns;
        let spared = self.held_above() + first + self.skew_bytes();
        Some((self.unit as f64 * 1e9 / each_ns, spared))
    }

    /// Units, channels, limits and credit of flash.
    fn flash(&self, flash: &FlashModel, all: &mut Vec<Bound>) {
        let devices = f64::from(self.devices);
        let (held, write) = (self.held_above(), self.shape.op == Op::Write);
        let request = f64::from(self.shape.request_bytes);
        let rate = if write { flash.write_rate } else { flash.read_rate };
        let units = |piece: &Piece| piece.length.div_ceil(flash.unit_size.bytes().max(1));
        let time = if write {
            flash.unit_write.0 * flash.write_amplification.0.max(1.0)
        } else {
            flash.unit_read.0
        };
        let of_op = |piece: &Piece| piece.op == self.shape.op;
        let missed = if write { 1.0 } else { self.least_missed(flash) };
        let commands = self.least_of_pieces(|_| 1);
        if flash.requests_per_s.0 > 0.0 {
            let each_ns = (1e9 / flash.requests_per_s.0).floor();
            let spared = held + request / commands * devices;
            self.add(all, "requests per second", self.rate(commands * each_ns, devices), spared);
        }
        if write && flash.buffer.0 > 0.0 {
            let moved = self.least_of_pieces(|piece| if of_op(piece) { piece.length } else { 0 });
            let drain = (flash.drain.0 / flash.write_amplification.0.max(1.0)).max(1.0);
            let spared = held + flash.buffer.0 * devices * request / moved;
            self.add(all, "drain", drain * devices * request / moved, spared);
        } else {
            let demand = self
                .least_of_pieces(|piece| if of_op(piece) { units(piece) * time as u64 } else { 0 });
            let servers = devices * f64::from(flash.units.count().max(1));
            self.add(all, "flash units", self.rate(demand * missed, servers), held);
        }
        let demand =
            self.least_of_pieces(|piece| if of_op(piece) { rate.ns_for(piece.length) } else { 0 });
        self.add(all, "flash channels", self.rate(demand * missed, devices), held);
        if flash.sustained.0 > 0.0 {
            let spent = |piece: &Piece| if of_op(piece) { piece.length } else { 0 };
            let moved = self.least_of_pieces(spent) * missed;
            let spared = held + flash.credit.0 * devices * request / moved;
            self.add(all, "sustained rate", flash.sustained.0 * devices * request / moved, spared);
        }
    }

    /// Of the reads, the share that the device's cache cannot have, since each byte is read once.
    fn least_missed(&self, flash: &FlashModel) -> f64 {
        if flash.cache.bytes() < LINE_BYTES {
            return 1.0;
        }
        let share = |pieces: &Pieces| {
            let lines =
                |piece: &Piece| piece.length as f64 / (piece.length / LINE_BYTES + 2) as f64;
            pieces.first.iter().map(|piece| lines(piece) / LINE_BYTES as f64).fold(1.0, f64::min)
        };
        self.places.iter().map(share).fold(1.0, f64::min)
    }

    /// So many requests outstanding, over the least time of one.
    fn latency(&self, all: &mut Vec<Bound>) {
        let size = f64::from(self.shape.request_bytes);
        let depth = f64::from(self.shape.depth);
        self.add(all, "requests outstanding", depth * size * 1e9 / self.least_ns(), 0.0);
        let through = self.shape.caching.is_write_through();
        let write = self.shape.op == Op::Write;
        if self.cached && !self.shape.random && !(write && through) {
            let name = if write { "lazy writer" } else { "read-ahead" };
            let least_ns = self.system.host.piece.ns() as f64 + self.device_ns();
            let rate = f64::from(self.files) * self.unit as f64 * 1e9 / least_ns;
            self.add(all, name, rate, self.held_above());
        } else if write
            && self.system.setup.allocation == Allocated::Extend
            && !self.cached
            && self.system.network.is_none()
        {
            let rate = f64::from(self.files) * size * 1e9 / self.device_ns();
            self.add(all, "a file grows by one write at a time", rate, 0.0);
        }
    }

    /// The least time of a request alone (ns).
    fn least_ns(&self) -> f64 {
        let request = u64::from(self.shape.request_bytes);
        let own_ns = self.cost().ns_for(request) as f64;
        let write = self.shape.op == Op::Write;
        let waits = !self.cached || write && self.shape.caching.is_write_through();
        let device_ns = if waits { self.device_ns() } else { 0.0 };
        let Some(network) = &self.system.network else { return own_ns + device_ns };
        let (client, trips) = match write {
            false => (network.client_read, network.read_round_trips),
            true => (network.client_write, network.write_round_trips),
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

    /// The least time of a transfer on the way from the host to the media and back (ns).
    fn device_ns(&self) -> f64 {
        if self.rows {
            return 0.0;
        }
        let longest =
            |pieces: &[Piece]| pieces.iter().map(|piece| self.piece_ns(piece)).fold(0.0, f64::max);
        let both = |pieces: &Pieces| longest(&pieces.first) + longest(&pieces.then);
        self.places.iter().map(both).fold(f64::INFINITY, f64::min)
    }

    fn piece_ns(&self, piece: &Piece) -> f64 {
        match &self.system.drive {
            DriveModel::Disk(disk) => {
                let bus = &self.system.bus;
                let command =
                    bus.arbitrate.ns() + bus.select.ns() + bus.message_out.ns() + bus.command.ns();
                // A disk that begins anywhere in a write begins while the data come.
                let early_ns =
                    if disk.zero_latency_write { self.data_ns(piece) as f64 } else { 0.0 };
                let media = if piece.op == Op::Write && !self.device_behind() {
                    (piece.length as f64 * 1e9 / self.track_rate() - early_ns).max(0.0)
                } else {
                    0.0
                };
                (command + self.controller_ns(disk, piece)) as f64 + media
            }
            DriveModel::Flash(flash) => self.bus_ns(piece) as f64 + flash_ns(flash, piece),
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

fn link_ns(link: &crate::system::LinkModel, piece: &Piece) -> u64 {
    let rate = if piece.op == Op::Read { link.read } else { link.write };
    link.fixed.ns() + rate.ns_for(piece.length)
}

/// The least time of a command in a flash device (ns).
fn flash_ns(flash: &FlashModel, piece: &Piece) -> f64 {
    let (fixed, unit, rate) = match piece.op {
        Op::Read => (flash.fixed_read, flash.unit_read.0, flash.read_rate),
        Op::Write if flash.buffer.0 > 0.0 => (flash.fixed_write, 0.0, flash.write_rate),
        Op::Write => {
            let amplified = flash.unit_write.0 * flash.write_amplification.0.max(1.0);
            (flash.fixed_write, amplified, flash.write_rate)
        }
    };
    let missed = (fixed.ns() + unit as u64 + rate.ns_for(piece.length)) as f64;
    let may_hit = piece.op == Op::Read && flash.cache.bytes() >= LINE_BYTES;
    if may_hit { missed.min(flash.cache_hit.ns() as f64) } else { missed }
}

/// How many pieces go first.
fn sent_at_once(pieces: &Pieces) -> u64 {
    let first = if pieces.first.is_empty() { &pieces.then } else { &pieces.first };
    first.len().max(1) as u64
}

/// The greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}
