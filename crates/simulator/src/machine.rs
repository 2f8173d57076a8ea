//! Simulates hosts, links, buses and devices, and the path of requests through them.
//!
//! One loop takes the next event and calls the function that handles the event. FIFO servers
//! compute the completion time of a request when the request arrives, so a request to one disk
//! takes about six events. `wire` moves commands and data between adapter and device. `pages` holds
//! the pages in a host's memory. `filecache` models the caches of file systems and RAID
//! controllers, `pagecache` models the page cache of Linux, and `remote` models the path over a
//! network.

mod slab;
mod pages;
mod filecache;
mod readahead;
mod folios;
mod writeback;
mod durable;
mod pagecache;
mod remote;
mod device;
mod links;
mod wire;

use ioengine::{Completion, Op, Request};

use crate::event_queue::EventQueue;
use crate::random::Stream;
use crate::server::{Gauge, Server};
use crate::system::{Allocated, Cost, LinkModel, LinkPer, RaidIn, System, VolumeKind};
use crate::volume::{Piece, Pieces, Volume};

pub(crate) use device::{Device, Mechanism};
pub(crate) use filecache::{FileCache, Layer};
pub(crate) use slab::Slab;
pub(crate) use wire::{Bus, PHASE_NAMES};

/// An event of the simulation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The CPU has issued a request.
    Issued(u32),
    /// A bus has become free.
    BusFree(u32),
    /// A device's controller has decoded a command.
    Processed(u32),
    /// The data transfer of a command may start.
    DataReady(u32),
    /// The media have finished an operation.
    MediaFree(u32),
    /// Media operations may start, because read-ahead ends or a shingled disk may clean bands.
    MediaRetry(u32),
    /// A flash device has finished a command, or a delayed command may leave the host.
    Answered(u32),
    /// A flash device's buffer may now have space for waiting writes.
    FlashStep(u32),
    /// The maximum time for which a device may delay completions has passed.
    CoalesceTimeout(u32),
    /// The CPU has completed a request.
    Completed(u32),
    /// The lazy writer of a file starts after its initial delay.
    LazyWriter(u32),
    /// The pause between two writes of the lazy writer is over.
    WriterPauseOver(u32),
    /// A file's first queued request continues after the delay of the NT4 read-ahead bug.
    CacheResume(u32),
    /// A RAID controller has finished its work for a request.
    Stored(u32),
    /// A network message has arrived, or the file server has finished a step.
    Remote(u32),
    /// The rebuild of a file's volume continues with the next range.
    Rebuild(u32),
    /// An event of the page cache of Linux.
    Page(PageEvent),
}

/// An event of the page cache of Linux.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PageEvent {
    /// A part of a request's data has been copied.
    Copied(u32),
    /// A transfer of the page cache is sent to the devices.
    Send(u32),
    /// The flusher of a host looks for dirty pages that have expired.
    Look(u32),
    /// The periodic commit of a host's journal is due.
    Commit(u32),
    /// A job checks again whether the devices have emptied their caches.
    Flush(u32),
    /// The journal commit of a host checks again whether the devices have emptied their caches.
    CommitFlush(u32),
}

/// The component that started a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A program.
    App {
        /// Engine number.
        engine: u32,
        /// Slot of the request in the engine.
        slot: u32,
    },
    /// A cache, which fetches data for a read, for read-ahead, or for a partial write of a page.
    CacheFetch,
    /// The lazy writer.
    WriteBehind,
    /// The rebuild of a volume.
    Rebuild,
    /// The page cache of Linux, which reads pages.
    PageRead,
    /// The flusher of the page cache, which writes dirty pages.
    PageWrite,
    /// A job of the page cache, which writes dirty pages to make them durable.
    JobWrite(u32),
    /// The page cache, which writes to the journal.
    Journal,
}

/// A request in progress.
#[derive(Clone, Debug)]
pub(crate) struct Io {
    pub op: Op,
    pub file: u32,
    pub offset: u64,
    pub length: u64,
    pub origin: Origin,
    /// Start time (ns).
    pub begun_ns: u64,
    /// Number of pieces of the current stage that are not complete.
    pub left: u32,
    /// Pieces of the second stage, which are sent when the first stage is complete.
    pub then: Vec<Piece>,
    /// Whether the second stage is sent twice, first with zeros and then with data.
    pub zeroes: bool,
    pub stage: u8,
    /// For the page cache of Linux: number of bytes copied. For other caches: number of units found
    /// in the cache.
    pub progress: u64,
}

impl Io {
    #[inline]
    fn new(origin: Origin, op: Op, (file, offset, length): (u32, u64, u64), now_ns: u64) -> Io {
        let (left, then, zeroes, stage) = (0, Vec::new(), false, 0);
        let (begun_ns, progress) = (now_ns, 0);
        Io { op, file, offset, length, origin, begun_ns, left, then, zeroes, stage, progress }
    }
}

/// A command to a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub io: u32,
    pub device: u32,
    pub at: u64,
    pub length: u64,
    pub op: Op,
    /// Whether the device answers without disconnecting from the bus.
    pub inline: bool,
    /// Whether the command had to wait in the host or for the media.
    pub waited: bool,
    pub begun_ns: u64,
}

/// The processors of a host.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    cpus: Vec<Server>,
    pub charged_ns: u64,
    pub uncharged_ns: u64,
}

impl Host {
    fn new(cpus: u32) -> Host {
        let cpus = vec![Server::default(); cpus.max(1) as usize];
        Host { cpus, charged_ns: 0, uncharged_ns: 0 }
    }

    /// Runs `ns` of work at `ready_ns` or later, on the CPU that is free first. Returns the end
    /// time (ns).
    #[inline]
    pub fn work(&mut self, ready_ns: u64, ns: u64) -> u64 {
        let mut first = 0;
        for cpu in 1..self.cpus.len() {
            if self.cpus[cpu].free_ns() < self.cpus[first].free_ns() {
                first = cpu;
            }
        }
        self.cpus[first].serve(ready_ns, ns).1
    }

    /// Runs CPU work for a thread after the thread's earlier work. Returns the end time (ns).
    #[inline]
    pub fn work_for(&mut self, thread: &mut Server, ready_ns: u64, ns: u64) -> u64 {
        let end_ns = self.work(ready_ns.max(thread.free_ns()), ns);
        thread.serve(end_ns - ns, ns).1
    }

    /// Returns the busy time up to `now_ns`, summed over all CPUs (ns).
    pub fn busy_ns(&self, now_ns: u64) -> u64 {
        self.cpus.iter().map(|cpu| cpu.busy_ns(now_ns)).sum()
    }

    pub fn cpus(&self) -> u32 {
        self.cpus.len() as u32
    }
}

/// A link, and the number of bytes that it has carried in each direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    pub server: Server,
    pub bytes: [u64; 2],
}

/// A thread that issues requests. Each engine has one thread.
#[derive(Clone, Debug)]
pub(crate) struct Issuer {
    pub file: u32,
    pub ready: Vec<Completion>,
    /// Server that runs the CPU work of the thread in order.
    pub thread: Server,
}

/// An open file.
pub(crate) struct File {
    pub volume: Volume,
    pub host: u32,
    pub cache: Option<FileCache>,
    /// State of the file in the page cache of Linux. None if the file does not use that cache.
    linux: Option<Box<pagecache::CachedFile>>,
    /// Whether writes reach the media before they complete.
    pub through: bool,
    /// Offset at which the last request ended (bytes). A sequential request starts there.
    next: u64,
    /// 1 while a write that grows the file is in progress. Such writes run one at a time.
    pub growing: Gauge,
    grow_queue: std::collections::VecDeque<u32>,
    /// Whether the volume is being rebuilt, and the offset of the rebuild on each device (bytes).
    is_rebuilding: bool,
    rebuilt: u64,
}

impl File {
    fn new(volume: Volume, host: u32, cache: Option<FileCache>, through: bool) -> File {
        let grow_queue = std::collections::VecDeque::new();
        let (next, growing, is_rebuilding, rebuilt) = (0, Gauge::default(), false, 0);
        let linux = None;
        File {
            volume,
            host,
            cache,
            linux,
            through,
            next,
            growing,
            grow_queue,
            is_rebuilding,
            rebuilt,
        }
    }
}

/// Counters of the requests of programs, for accounts and consistency checks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub requests: u64,
    pub bytes: u64,
    /// Total time that completed requests spent in the system (ns).
    pub residence_ns: u128,
    /// Integral over time of the number of requests in the system (ns).
    pub presence_ns: u128,
    pub inside: u64,
    pub changed_ns: u64,
}

impl Count {
    #[inline]
    fn change(&mut self, now_ns: u64, by: i64) {
        self.presence_ns += u128::from(self.inside) * u128::from(now_ns - self.changed_ns);
        self.changed_ns = now_ns;
        self.inside = (self.inside as i64 + by) as u64;
    }
}

/// The simulated machine and its state.
pub(crate) struct Machine {
    pub events: EventQueue<Event>,
    pub system: System,
    pub hosts: Vec<Host>,
    /// The instances of each link: one for the system, one for each bus, or one for each host.
    pub links: Vec<Vec<Link>>,
    pub buses: Vec<Bus>,
    pub devices: Vec<Device>,
    pub files: Vec<File>,
    /// The pages in the file-system cache of each host.
    pages: Vec<pages::Pages>,
    /// The page cache of each host. Empty if the system does not use the page cache of Linux.
    page_caches: Vec<pagecache::PageCache>,
    pub issuers: Vec<Issuer>,
    pub count: Count,
    pub device_bytes: [u64; 2],
    pub device_requests: [u64; 2],
    /// The processor of a RAID controller.
    pub raid: Server,
    /// The client host and the network, if the system has a network.
    pub remote: Option<remote::Remote>,
    pub ios: Slab<Io>,
    pub commands: Slab<Command>,
    scratch: Pieces,
    served: Vec<crate::disk::MediaRequest>,
    /// Writes that a flash device accepted after a wait, with the completion times (ns).
    accepted: Vec<(u32, u64)>,
    /// Engines that have completed requests, which the program has not yet collected.
    pub woken: std::collections::VecDeque<u32>,
}

impl Machine {
    /// Creates an idle machine. The seed sets the rotational position and the speed of each disk.
    pub fn new(system: &System, seed: u64) -> Machine {
        let mut random = Stream::new(seed);
        let setup = &system.setup;
        let links = system.links.len();
        let buses = (0..system.buses()).map(|_| Bus::new(links)).collect();
        let queue_max = system.drive.queue().map_or(u32::MAX, |queue| queue.count());
        let devices: Vec<Device> = (0..setup.disks)
            .map(|number| {
                let bus =
                    (u64::from(number) * u64::from(system.buses()) / u64::from(setup.disks)) as u32;
                Device::new(bus, Mechanism::new(system, &mut random), queue_max)
            })
            .collect();
        let hosts = (0..setup.hosts).map(|_| Host::new(system.host.cpus.count())).collect();
        let remote = system.network.as_ref().map(|model| remote::Remote::new(model, system));
        let cache = &system.host.cache;
        let pages = pages::Pages::new(cache.page.bytes(), cache.size.bytes());
        let linux = cache
            .linux
            .iter()
            .flat_map(|linux| (0..setup.hosts).map(|_| pagecache::PageCache::new(cache, linux)));
        Machine {
            events: EventQueue::new(),
            hosts,
            links: links_of(system),
            buses,
            devices,
            files: Vec::new(),
            pages: vec![pages; setup.hosts as usize],
            page_caches: linux.collect(),
            issuers: Vec::new(),
            count: Count::default(),
            device_bytes: [0; 2],
            device_requests: [0; 2],
            raid: Server::default(),
            remote,
            ios: Slab::new(),
            commands: Slab::new(),
            scratch: Pieces::default(),
            served: Vec::new(),
            accepted: Vec::new(),
            woken: std::collections::VecDeque::new(),
            system: system.clone(),
        }
    }

    /// Returns the virtual time (ns).
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.events.now_ns()
    }

    /// Opens a file on a device, buffered or direct. Returns the number of the file.
    pub fn open(&mut self, home: u32, host: u32, buffered: bool, through: bool) -> u32 {
        let device_bytes = self.devices[home as usize].bytes();
        let most = self.system.host.max_transfer.bytes();
        let volume = Volume::new(&self.system.setup, home, device_bytes, most);
        let system = &self.system;
        let linux = if buffered { pagecache::CachedFile::new(system) } else { None };
        let cache = match system.controller() {
            _ if linux.is_some() => None,
            _ if buffered => Some(FileCache::of_file_system(&system.host.cache)),
            Some(model) => FileCache::of_controller(model, &system.setup),
            None => None,
        };
        // With a network, host 0 is the server, and the programs run on the client.
        let host = if self.remote.is_some() { 0 } else { host };
        self.files.push(File { linux, ..File::new(volume, host, cache, through) });
        self.files.len() as u32 - 1
    }

    /// Adds a thread that issues requests to a file. Returns the thread's engine number.
    pub fn issuer(&mut self, file: u32) -> u32 {
        self.issuers.push(Issuer { file, ready: Vec::new(), thread: Server::default() });
        self.issuers.len() as u32 - 1
    }

    /// Starts a request of a program.
    pub fn submit(&mut self, engine: u32, request: &Request) {
        let file = self.issuers[engine as usize].file;
        let now_ns = self.now_ns();
        let entry = &mut self.files[file as usize];
        let random = entry.next != request.offset;
        entry.next = request.offset + u64::from(request.length);
        self.count.change(now_ns, 1);
        if self.system.setup.rebuilding {
            self.begin_rebuilds();
        }
        let origin = Origin::App { engine, slot: request.slot };
        let place = (file, request.offset, u64::from(request.length));
        let io = self.ios.insert(Io::new(origin, request.op, place, now_ns));
        if self.remote.is_some() {
            self.remote_begin(io);
        } else if self.files[file as usize].linux.is_some() {
            self.page_request(io);
        } else if self.is_cached(file, Layer::FileSystem) {
            self.cached(io);
        } else {
            let cost = self.direct_cost(request.op);
            let extra_ns = if random { self.system.host.random.ns() } else { 0 };
            let ns = cost.ns_for(u64::from(request.length));
            let share = self.system.host.issue_share.0;
            let issue_ns = (ns as f64 * share) as u64 + extra_ns;
            let end_ns = self.work_for(engine, cost, issue_ns, ns + extra_ns);
            self.events.schedule(end_ns, Event::Issued(io));
        }
    }

    fn is_cached(&self, file: u32, layer: Layer) -> bool {
        self.files[file as usize].cache.as_ref().is_some_and(|cache| cache.layer == layer)
    }

    fn direct_cost(&self, op: Op) -> Cost {
        let host = &self.system.host;
        if op == Op::Read { host.direct_read } else { host.direct_write }
    }

    /// Runs `ns` of CPU work in an engine's thread, starting now. Returns the end time (ns).
    /// Records `whole_ns` of CPU time, which `cost` splits into charged and uncharged time. If a
    /// request needs two calls, `whole_ns` is the total in the first call, and 0 in the second.
    fn work_for(&mut self, engine: u32, cost: Cost, ns: u64, whole_ns: u64) -> u64 {
        let issuer = &mut self.issuers[engine as usize];
        let host = &mut self.hosts[self.files[issuer.file as usize].host as usize];
        let end_ns = host.work_for(&mut issuer.thread, self.events.now_ns(), ns);
        if whole_ns > 0 {
            let uncharged = (cost.fixed.0 * cost.uncharged.0) as u64;
            host.uncharged_ns += uncharged.min(whole_ns);
            host.charged_ns += whole_ns - uncharged.min(whole_ns);
        }
        end_ns
    }

    /// Runs CPU work that is not charged to a process. Returns the end time (ns).
    fn run_system_work(&mut self, file: u32, ns: u64) -> u64 {
        let now_ns = self.now_ns();
        let host = &mut self.hosts[self.files[file as usize].host as usize];
        host.uncharged_ns += ns;
        host.work(now_ns, ns)
    }

    /// Runs the next event if its time is not after `until_ns`. Returns false otherwise.
    #[inline]
    pub fn advance(&mut self, until_ns: u64) -> bool {
        if self.events.next_ns().is_none_or(|next| next > until_ns) {
            return false;
        }
        let Some(event) = self.events.next() else { return false };
        match event {
            Event::Issued(io) => self.issued(io),
            Event::BusFree(bus) => self.bus_free(bus),
            Event::Processed(device) => self.processed(device),
            Event::DataReady(command) => self.data_ready(command),
            Event::MediaFree(device) => self.media_free(device),
            Event::MediaRetry(device) => self.start_media(device),
            Event::Answered(command) => self.answered(command),
            Event::FlashStep(device) => self.flash_step(device),
            Event::CoalesceTimeout(device) => self.coalesce_timeout(device),
            Event::Completed(io) => self.completed(io),
            Event::LazyWriter(file) => self.lazy_writer(file),
            Event::WriterPauseOver(file) => self.writer_pause_over(file),
            Event::CacheResume(file) => self.cache_resume(file),
            Event::Stored(io) => self.stored(io),
            Event::Remote(io) => self.remote_step(io),
            Event::Rebuild(file) => self.rebuild(file),
            Event::Page(event) => self.page_event(event),
        }
        true
    }

    /// Sends a request to the devices after the CPU has issued it. Writes that grow a file wait.
    fn issued(&mut self, io: u32) {
        let Io { op, file, origin, .. } = self.ios[io];
        let through = op == Op::Write && self.files[file as usize].through;
        if let (Origin::App { .. }, Some(cache)) = (origin, &self.files[file as usize].cache)
            && cache.layer == Layer::Controller
            && cache.takes(op)
            && !through
        {
            self.cached(io);
            return;
        }
        let grows = op == Op::Write && self.system.setup.allocation != Allocated::Existing;
        if grows {
            let now_ns = self.now_ns();
            let file = &mut self.files[file as usize];
            if file.growing.count() > 0 {
                file.grow_queue.push_back(io);
                return;
            }
            file.growing.set(now_ns, 1);
        }
        self.dispatch(io);
    }

    /// Splits a request into pieces and sends the pieces of the first stage.
    pub(crate) fn dispatch(&mut self, io: u32) {
        let Io { op, file, offset, length, .. } = self.ios[io];
        let mut pieces = std::mem::take(&mut self.scratch);
        let devices = &self.devices;
        let load = |device: u32| devices[device as usize].load();
        self.files[file as usize].volume.split(op, offset, length, &load, &mut pieces);
        if pieces.first.is_empty() {
            std::mem::swap(&mut pieces.first, &mut pieces.then);
        }
        let zeroed = self.system.setup.allocation == Allocated::Zeroed;
        if zeroed && op == Op::Write && matches!(self.ios[io].origin, Origin::App { .. }) {
            // The data are written last: after the zeros, or after the reads for the parity.
            if pieces.then.is_empty() {
                pieces.then.extend_from_slice(&pieces.first);
            } else {
                self.ios[io].zeroes = true;
            }
        }
        let parity = pieces.parity_bytes;
        let delay_ns = self.volume_work(io, pieces.first.len() as u64, parity);
        let entry = &mut self.ios[io];
        entry.left = pieces.first.len() as u32;
        entry.then.clear();
        entry.then.extend_from_slice(&pieces.then);
        for piece in &pieces.first {
            self.send(io, *piece, delay_ns);
        }
        self.scratch = pieces;
        let freeing = self.system.host.cache.write_behind_cpu;
        if let (Origin::WriteBehind, Some(freeing)) = (self.ios[io].origin, freeing) {
            // While the devices write, the system frees the pages of the cache.
            self.run_system_work(file, freeing.ns_for(length));
        }
    }

    /// Runs the CPU work of a volume (splitting, parity), on the host or on the RAID controller.
    /// Returns the time at which the pieces may be sent (ns).
    fn volume_work(&mut self, io: u32, pieces: u64, parity: u64) -> u64 {
        let now_ns = self.now_ns();
        let setup = &self.system.setup;
        if setup.volume == VolumeKind::None {
            return now_ns;
        }
        if setup.raid_in == RaidIn::Host {
            let host = &self.system.host;
            let piece = host.volume_piece.unwrap_or(host.piece);
            let ns = host.parity.ns_for(parity) + piece.ns() * pieces.saturating_sub(1);
            let file = self.ios[io].file;
            return if ns == 0 { now_ns } else { self.run_system_work(file, ns) };
        }
        let Some(controller) = self.system.controller() else { return now_ns };
        let Io { op, file, length, origin, .. } = self.ios[io];
        let each = if op == Op::Read { controller.read } else { controller.write };
        // Transfers of the controller's own cache belong to requests that were already charged.
        let from_cache = matches!(origin, Origin::CacheFetch | Origin::WriteBehind);
        let paid = from_cache && self.is_cached(file, Layer::Controller);
        let request_ns = if paid { 0 } else { controller.fixed.ns() + each.ns_for(length) };
        let ns = request_ns
            + controller.piece.ns() * pieces.saturating_sub(1)
            + controller.parity.ns_for(parity);
        self.raid.serve(now_ns, ns).1
    }

    /// Continues a request when all pieces of a stage are done.
    pub(crate) fn pieces_done(&mut self, io: u32) {
        if !self.ios[io].then.is_empty() {
            let entry = &mut self.ios[io];
            let then = if std::mem::take(&mut entry.zeroes) {
                entry.then.clone()
            } else {
                std::mem::take(&mut entry.then)
            };
            self.ios[io].left = then.len() as u32;
            let now_ns = self.now_ns();
            for piece in &then {
                self.send(io, *piece, now_ns);
            }
            return;
        }
        let Io { op, file, origin, .. } = self.ios[io];
        if self.files[file as usize].growing.count() > 0 && op == Op::Write {
            self.grown(file);
        }
        match origin {
            Origin::App { .. } if self.remote.is_some() => self.remote_stored(io),
            Origin::App { .. } if self.is_cached(file, Layer::FileSystem) => {
                self.events.schedule(self.events.now_ns(), Event::Completed(io));
            }
            Origin::App { .. } => self.stored(io),
            Origin::CacheFetch | Origin::WriteBehind => self.cache_transfer_done(io),
            Origin::PageRead => self.pages_read(io),
            Origin::PageWrite | Origin::JobWrite(_) => self.pages_stored(io),
            Origin::Journal => self.journal_written(io),
            Origin::Rebuild => {
                self.ios.release(io);
                self.events.schedule(self.events.now_ns(), Event::Rebuild(file));
            }
        }
    }

    /// Starts the CPU work that completes a direct request, after the devices have finished.
    fn stored(&mut self, io: u32) {
        let Io { op, origin, length, .. } = self.ios[io];
        let Origin::App { engine, .. } = origin else { return };
        let cost = self.direct_cost(op);
        let ns = cost.ns_for(length);
        let rest_ns = ns - (ns as f64 * self.system.host.issue_share.0) as u64;
        let end_ns = self.work_for(engine, cost, rest_ns, 0);
        self.events.schedule(end_ns, Event::Completed(io));
    }

    /// Ends a write that grew the file, and starts the next write that grows the file.
    fn grown(&mut self, file: u32) {
        let next = self.files[file as usize].grow_queue.pop_front();
        match next {
            Some(io) => self.dispatch(io),
            None => self.files[file as usize].growing.set(self.events.now_ns(), 0),
        }
    }

    /// Returns a completed request to its program.
    pub(crate) fn completed(&mut self, io: u32) {
        let now_ns = self.now_ns();
        let Io { length, origin, begun_ns, .. } = self.ios[io];
        let Origin::App { engine, slot } = origin else { return };
        self.count.change(now_ns, -1);
        self.count.requests += 1;
        self.count.bytes += length;
        self.count.residence_ns += u128::from(now_ns - begun_ns);
        let issuer = &mut self.issuers[engine as usize];
        if issuer.ready.is_empty() {
            self.woken.push_back(engine);
        }
        issuer.ready.push(Completion { slot, result: length as i32 });
        self.ios.release(io);
    }

    /// Starts a rebuild of each volume that has none. Files that share a volume share the rebuild.
    fn begin_rebuilds(&mut self) {
        let now_ns = self.now_ns();
        for file in 0..self.files.len() {
            let (before, rest) = self.files.split_at_mut(file);
            let home = rest[0].volume.home();
            if !rest[0].is_rebuilding && before.iter().all(|other| other.volume.home() != home) {
                rest[0].is_rebuilding = true;
                self.events.schedule(now_ns, Event::Rebuild(file as u32));
            }
        }
    }

    /// Rebuilds the next extent of the volume: reads from the remaining devices and writes to the
    /// spare. The rebuild pauses while no program has requests in flight. At the end of the device,
    /// it starts again, so it never completes.
    fn rebuild(&mut self, file: u32) {
        let entry = &mut self.files[file as usize];
        entry.is_rebuilding = self.count.inside > 0;
        if !entry.is_rebuilding {
            return;
        }
        let setup = &self.system.setup;
        let length = setup.chunk.min(self.system.host.max_transfer.bytes());
        let sources = if setup.volume == VolumeKind::Raid1 { 1 } else { setup.volume_disks() - 1 };
        let parity = if sources > 1 { length * u64::from(sources) } else { 0 };
        let (at, home) = (entry.rebuilt, entry.volume.home());
        entry.rebuilt = (at + length) % (self.devices[home as usize].bytes() / length * length);
        let spare = Piece { device: home, at, length, op: Op::Write };
        let io = Io::new(Origin::Rebuild, Op::Read, (file, at, length), self.now_ns());
        let io = self.ios.insert(Io { left: sources, then: vec![spare], ..io });
        let from_ns = self.volume_work(io, u64::from(sources), parity);
        for device in home + 1..=home + sources {
            self.send(io, Piece { device, op: Op::Read, ..spare }, from_ns);
        }
    }
}

/// Creates the instances of each link: one for the system, one for each bus, or one for each host.
fn links_of(system: &System) -> Vec<Vec<Link>> {
    let copies = |model: &LinkModel| match model.per {
        LinkPer::System => 1,
        LinkPer::Bus => system.buses(),
        LinkPer::Host => system.setup.hosts,
    };
    let all = system.links.iter();
    all.map(|model| vec![Link::default(); copies(model) as usize]).collect()
}
