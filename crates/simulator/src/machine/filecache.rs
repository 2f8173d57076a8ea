//! Simulates the path of requests through the cache of a file system or of a RAID controller:
//! copying, read-ahead, the lazy writer, and pages that must be read before a partial write.
//!
//! A cache fetches data in units of the read-ahead size. The file system fetches one unit at a time
//! and stays one unit ahead of a sequential reader. The lazy writer of the file system merges
//! adjacent dirty data and keeps one request in flight (paper 1, section 2). It writes in order of
//! offset, and starts again at the beginning of the file after the last dirty data. Data that were
//! read or written stay in host memory (`pages`), and a read whose pages are all in memory costs
//! only the copy. A controller keeps one request in flight per device, and keeps the data that it
//! reads ahead. Writers block while too much data is dirty.

use std::collections::{HashMap, VecDeque};

use ioengine::Op;

use super::pages::{Pages, Ranges};
use super::{Event, Io, Machine, Origin};
use crate::server::Gauge;
use crate::system::{Allocated, CacheModel, ControllerModel, Setup};

/// Each scan of the lazy writer writes the amount of dirty data divided by this number. Windows NT
/// writes an eighth once a second (Solomon, *Inside Windows NT*, 1998).
const SCANNED_PART: u64 = 8;

/// State of a read-ahead unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Fetching,
    Cached,
}

/// The layer to which a cache belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// The file system: the cache is in host memory, and the CPU copies the data.
    FileSystem,
    /// A RAID controller, whose processor moves the data.
    Controller,
}

/// The cache of one open file.
#[derive(Debug)]
pub(crate) struct FileCache {
    pub layer: Layer,
    page: u64,
    unit: u64,
    /// Maximum size of a write of the lazy writer (bytes).
    write_behind_bytes: u64,
    /// Maximum number of fetches in flight. The same limit applies to the writes of the lazy
    /// writer.
    pub parallel_requests: u32,
    /// Highest number of concurrent fetches so far.
    pub most_fetches: u32,
    dirty_limit: u64,
    frame: u64,
    first_delay_ns: u64,
    gap_ns: u64,
    /// Interval between two scans of the lazy writer for scattered dirty data (ns; 0: no scans).
    scan_ns: u64,
    /// Amount of scattered dirty data that the lazy writer may still write before the next scan
    /// (bytes).
    scanned_bytes: u64,
    read_ahead_bug: (u64, u64),
    reads: bool,
    writes: bool,
    /// Maximum number of units in the cache. A file system keeps only the units that readers wait
    /// for. A controller also keeps other units.
    max_units: usize,
    units: HashMap<u64, Unit>,
    order: VecDeque<u64>,
    /// Requests of programs in the order of arrival. The first request is being served.
    queue: VecDeque<u32>,
    /// Number of fetches in progress.
    pub fetching: Gauge,
    read_end: u64,
    write_end: u64,
    /// The pages that were last fetched for a partial write. Both ends of the write may need a
    /// page.
    fetched_pages: [Option<u64>; 2],
    /// Dirty extents of a controller's cache (first byte and length), oldest first.
    dirty: VecDeque<(u64, u64)>,
    /// Dirty ranges of a file system's cache.
    dirty_set: Ranges,
    /// File offset at which the file system's lazy writer continues (bytes).
    sweep_at: u64,
    dirty_bytes: u64,
    /// Number of requests that the lazy writer has in progress. The pause after a request counts
    /// as part of the request.
    writing: u32,
    awake: bool,
    /// Whether the lazy writer is scheduled to start.
    scheduled: bool,
    flushing: bool,
    /// 1 while a writer waits for dirty data to be written.
    pub writer_blocked: Gauge,
    /// Whether the last request was not sequential.
    random: bool,
}

impl FileCache {
    /// Creates an empty cache for the file system.
    pub fn of_file_system(model: &CacheModel) -> FileCache {
        FileCache {
            layer: Layer::FileSystem,
            page: model.page.bytes(),
            write_behind_bytes: model.write_behind.bytes(),
            parallel_requests: 1,
            dirty_limit: model.dirty_limit.bytes(),
            frame: model.write_frame.bytes(),
            first_delay_ns: model.first_delay.ns(),
            gap_ns: model.write_behind_gap.ns(),
            scan_ns: model.scan.map_or(0, |scan| scan.ns()),
            read_ahead_bug: (model.read_ahead_bug_from.bytes(), model.read_ahead_bug.ns()),
            ..FileCache::empty(model.read_ahead.bytes(), 0)
        }
    }

    /// Creates an empty cache for a controller. `None` if the controller has no cache.
    pub fn of_controller(model: &ControllerModel, setup: &Setup) -> Option<FileCache> {
        let reads = model.read_ahead.0 > 0.0;
        let writes = setup.holds_writes(model);
        if !reads && !writes {
            return None;
        }
        let disks = u64::from(setup.volume_disks());
        let unit = if reads { model.read_ahead.bytes() } else { setup.chunk };
        Some(FileCache {
            write_behind_bytes: setup.chunk,
            parallel_requests: setup.volume_disks(),
            dirty_limit: model.write_buffer.bytes().max(2 * setup.chunk),
            reads,
            writes,
            ..FileCache::empty(unit, unit * disks * 4)
        })
    }

    fn empty(unit: u64, bytes: u64) -> FileCache {
        FileCache {
            layer: Layer::Controller,
            page: 512,
            unit,
            write_behind_bytes: unit,
            parallel_requests: 1,
            most_fetches: 1,
            dirty_limit: 0,
            frame: 0,
            first_delay_ns: 0,
            gap_ns: 0,
            scan_ns: 0,
            scanned_bytes: 0,
            read_ahead_bug: (0, 0),
            reads: true,
            writes: true,
            max_units: (bytes / unit).max(2) as usize,
            units: HashMap::new(),
            order: VecDeque::new(),
            queue: VecDeque::new(),
            fetching: Gauge::default(),
            read_end: 0,
            write_end: 0,
            fetched_pages: [None; 2],
            dirty: VecDeque::new(),
            dirty_set: Ranges::default(),
            sweep_at: 0,
            dirty_bytes: 0,
            writing: 0,
            awake: false,
            scheduled: false,
            flushing: false,
            writer_blocked: Gauge::default(),
            random: false,
        }
    }

    /// Checks whether requests of type `op` use the cache.
    pub fn takes(&self, op: Op) -> bool {
        if op == Op::Read { self.reads } else { self.writes }
    }

    /// Returns the number of units that may be fetched at the same time. If requests are
    /// asynchronous, each waiting request may fetch a unit.
    fn fetches(&self, overlapped: bool) -> u32 {
        let waiting = if overlapped { self.queue.len() as u32 } else { 0 };
        self.parallel_requests.max(waiting)
    }

    fn has(&self, unit: u64) -> bool {
        self.units.get(&unit) == Some(&Unit::Cached)
    }

    fn insert(&mut self, unit: u64) {
        if self.units.insert(unit, Unit::Fetching).is_none() {
            self.order.push_back(unit);
        }
        while self.order.len() > self.max_units {
            if let Some(oldest) = self.order.pop_front() {
                self.units.remove(&oldest);
            }
        }
    }

    /// Marks a range as dirty. The cache of a file system counts each dirty byte once, even if the
    /// byte changes again before the lazy writer writes it.
    fn mark_dirty(&mut self, offset: u64, length: u64) {
        let end = offset + length;
        if self.layer == Layer::FileSystem {
            let dirty_bytes = &mut self.dirty_bytes;
            return self.dirty_set.insert(offset, end, |from, to| *dirty_bytes += to - from);
        }
        self.dirty_bytes += length;
        // An extent that continues the last extent is merged with it.
        match self.dirty.back_mut() {
            Some((first, so_far)) if *first + *so_far == offset => *so_far += length,
            _ => self.dirty.push_back((offset, length)),
        }
    }

    /// Returns the extent that the lazy writer writes next: its first byte, its length, and whether
    /// there is no other dirty extent. A controller writes the oldest extent first. A file system
    /// writes in order of offset.
    fn next_dirty(&self) -> Option<(u64, u64, bool)> {
        if self.layer == Layer::Controller {
            let (from, length) = self.dirty.front().copied()?;
            return Some((from, length, self.dirty.len() == 1));
        }
        let (from, to) = self.dirty_set.next(self.sweep_at)?;
        Some((from, to - from, self.dirty_set.count() == 1))
    }

    /// Removes the first `length` bytes of the next dirty extent, which the lazy writer now writes.
    fn take_dirty(&mut self, from: u64, length: u64) {
        if self.layer == Layer::FileSystem {
            self.dirty_set.remove(from, from + length);
            self.sweep_at = from + length;
        } else if let Some((first, left)) = self.dirty.front_mut() {
            (*first, *left) = (*first + length, *left - length);
            if *left == 0 {
                self.dirty.pop_front();
            }
        }
    }
}

impl Machine {
    fn cache(&mut self, file: u32) -> Option<&mut FileCache> {
        self.files[file as usize].cache.as_mut()
    }

    /// Returns the file system's cache of a file, and the pages in the host's memory.
    fn file_system(&mut self, file: u32) -> Option<(&mut FileCache, &mut Pages)> {
        let entry = &mut self.files[file as usize];
        let cache = entry.cache.as_mut().filter(|cache| cache.layer == Layer::FileSystem)?;
        Some((cache, &mut self.pages[entry.host as usize]))
    }

    /// Checks whether all pages of a range of a file are in host memory. The part of the range
    /// beyond the maximum size of the file is ignored.
    fn is_resident(&mut self, file: u32, from: u64, to: u64) -> bool {
        let to = to.min(self.files[file as usize].volume.bytes());
        self.file_system(file).is_some_and(|(_, pages)| pages.missing(file, from, to).is_none())
    }

    /// Queues a program's request for a cached file.
    pub(crate) fn cached(&mut self, io: u32) {
        let file = self.ios[io].file;
        let Some(cache) = self.cache(file) else { return };
        cache.queue.push_back(io);
        if cache.queue.len() == 1 {
            self.serve_first(file);
        }
    }

    /// Serves the first queued request.
    fn serve_first(&mut self, file: u32) {
        let Some(io) = self.cache(file).and_then(|cache| cache.queue.front().copied()) else {
            return;
        };
        match self.ios[io].op {
            Op::Read => self.serve_read(io),
            Op::Write => self.serve_write(io),
        }
    }

    fn serve_read(&mut self, io: u32) {
        let Io { file, offset, length, stage, begun_ns, .. } = self.ios[io];
        let now_ns = self.now_ns();
        let (bug_from, bug_ns) = self.cache(file).map_or((0, 0), |cache| cache.read_ahead_bug);
        let end = offset + length;
        let is_hit = stage == 0 && self.is_resident(file, offset, end);
        let hits_bug = bug_from > 0 && length >= bug_from && !is_hit;
        if hits_bug && stage == 0 {
            // The request first waits for the delay of the read-ahead bug. The delays of concurrent
            // requests overlap.
            self.ios[io].stage = 3;
            self.events.schedule((begun_ns + bug_ns).max(now_ns), Event::CacheResume(file));
        }
        if stage == 3 || (hits_bug && stage == 0) {
            return;
        }
        let overlapped = self.system.setup.overlapped;
        let Some(cache) = self.cache(file) else { return };
        let sequential = offset == cache.read_end || stage > 0;
        cache.random = stage == 2 || !sequential;
        if !sequential && cache.layer == Layer::Controller {
            // Read-ahead does not help a random read, so the read bypasses the cache.
            cache.read_end = end;
            cache.queue.pop_front();
            self.dispatch(io);
            return self.serve_first(file);
        }
        if !sequential && !is_hit {
            if cache.fetching.count() == 0 {
                self.ios[io].stage = 2;
                self.fetch_missing(file, offset, end);
            }
            return;
        }
        let (first, last) = (offset / cache.unit, (end - 1) / cache.unit);
        // All units of a request must be cached before the request is copied. The cache must have
        // room for these units and for the units that are read ahead.
        let together = last - first + 2 + u64::from(cache.fetches(overlapped));
        cache.max_units = cache.max_units.max(together as usize);
        let random = cache.random;
        if stage == 2 {
            if cache.fetching.count() > 0 {
                return;
            }
        } else if !is_hit && self.fetch(io, !hits_bug) {
            return;
        }
        if let Some((_, pages)) = self.file_system(file) {
            pages.touch(file, offset, end);
        }
        let Some(cache) = self.cache(file) else { return };
        cache.read_end = end;
        cache.queue.pop_front();
        // A file system starts read-ahead before the copy. A controller starts it after the copy.
        let copies_first = cache.layer == Layer::Controller;
        if copies_first {
            self.copy(io, Event::Completed(io));
        }
        if !random && !hits_bug {
            self.read_ahead(file, (end - 1) / self.unit_of(file));
        }
        if !copies_first {
            self.copy(io, Event::Completed(io));
        }
        self.serve_first(file);
    }

    fn unit_of(&self, file: u32) -> u64 {
        self.files[file as usize].cache.as_ref().map_or(1, |cache| cache.unit)
    }

    /// Fetches the units that a read needs. Returns true if a unit is still missing. The request's
    /// `progress` is the number of leading units that were found in the cache. These units stay
    /// cached, so they are not looked up again when another unit arrives.
    fn fetch(&mut self, io: u32, ahead: bool) -> bool {
        let Io { file, offset, length, progress, .. } = self.ios[io];
        let overlapped = self.system.setup.overlapped;
        let unit = self.unit_of(file);
        let (first, last) = (offset / unit, (offset + length - 1) / unit);
        let mut missing = false;
        for step in progress..=last - first {
            // Without read-ahead, the last unit of a request is fetched first.
            let number = if ahead { first + step } else { last - step };
            let (from, to) = (number * unit, (number + 1) * unit);
            let Some(cache) = self.cache(file) else { return false };
            let is_cached = cache.has(number);
            if is_cached && step == self.ios[io].progress {
                self.ios[io].progress += 1;
            }
            if is_cached || self.is_resident(file, from.max(offset), to.min(offset + length)) {
                continue;
            }
            missing = true;
            let Some(cache) = self.cache(file) else { return false };
            if cache.fetching.count() >= cache.fetches(overlapped) {
                break;
            }
            if !cache.units.contains_key(&number) {
                cache.insert(number);
                self.ios[io].stage = 1;
                self.fetch_into_cache(file, number * unit, unit);
            }
        }
        if missing
            && ahead
            && self.files[file as usize].cache.as_ref().is_some_and(|c| c.parallel_requests > 1)
        {
            self.read_ahead(file, last);
        }
        missing
    }

    /// Reads ahead for a sequential reader that has reached unit `last`.
    fn read_ahead(&mut self, file: u32, last: u64) {
        let unit = self.unit_of(file);
        let most = self.files[file as usize].volume.bytes();
        let overlapped = self.system.setup.overlapped;
        for number in last + 1.. {
            let Some(cache) = self.cache(file) else { return };
            let fetches = cache.fetches(overlapped);
            let enough = number > last + u64::from(fetches);
            if enough || cache.fetching.count() >= fetches || number * unit >= most {
                return;
            }
            let known = cache.units.contains_key(&number);
            if !known && !self.is_resident(file, number * unit, (number + 1) * unit) {
                if let Some(cache) = self.cache(file) {
                    cache.insert(number);
                }
                self.fetch_into_cache(file, number * unit, unit);
            }
        }
    }

    fn serve_write(&mut self, io: u32) {
        let Io { file, offset, length, .. } = self.ios[io];
        let exists = self.system.setup.allocation == Allocated::Existing;
        let now_ns = self.now_ns();
        let extend_ns = if exists { 0 } else { self.system.host.cache.extend.ns() };
        let Some(cache) = self.cache(file) else { return };
        let (page, frame, limit) = (cache.page, cache.frame, cache.dirty_limit);
        let end = offset + length;
        let sequential = offset == cache.write_end;
        cache.random = !sequential;
        let (needed, bytes) = if !sequential && length < frame {
            ([Some(offset / frame * frame), None], frame)
        } else {
            // The first and the last page of the write may be covered only in part.
            let page_of = |at: u64| (!at.is_multiple_of(page)).then_some(at / page * page);
            ([page_of(offset), page_of(end)], page)
        };
        let fetched = cache.fetched_pages;
        let mut missing = |from: &u64| {
            !fetched.contains(&Some(*from)) && !self.is_resident(file, *from, *from + bytes)
        };
        let missed = needed.into_iter().flatten().find(|from| exists && missing(from));
        let Some(cache) = self.cache(file) else { return };
        if let Some(from) = missed {
            if cache.fetching.count() == 0 {
                let kept = cache.fetched_pages.into_iter().find(|page| needed.contains(page));
                cache.fetched_pages = [kept.flatten(), Some(from)];
                self.fetch_into_cache(file, from, bytes);
            }
            return;
        }
        if cache.fetching.count() > 0 {
            return;
        }
        let writer_blocked = cache.dirty_bytes > 0 && cache.dirty_bytes + length > limit;
        cache.writer_blocked.set(now_ns, u32::from(writer_blocked));
        if writer_blocked {
            self.wake_writer(file);
            return;
        }
        cache.write_end = end;
        cache.queue.pop_front();
        if extend_ns > 0 {
            self.run_system_work(file, extend_ns);
        }
        let through = self.files[file as usize].through;
        if let Some((_, pages)) = self.file_system(file) {
            pages.hold(file, offset, end, !through);
        }
        if through {
            // A write-through write completes when its own data are on the device.
            self.copy(io, Event::Issued(io));
        } else {
            if let Some(cache) = self.cache(file) {
                cache.mark_dirty(offset, length);
            }
            self.copy(io, Event::Completed(io));
            self.schedule_writer(file);
        }
        self.serve_first(file);
    }

    /// Runs the copy between the cache and the program on the CPU, and schedules `next` for the end
    /// of the copy. For a controller, runs the transfer on the controller's processor instead.
    fn copy(&mut self, io: u32, next: Event) {
        let Io { op, length, origin, file, .. } = self.ios[io];
        let Origin::App { engine, .. } = origin else { return };
        let layer = self.files[file as usize].cache.as_ref().map(|cache| cache.layer);
        if layer == Some(Layer::Controller)
            && let Some(controller) = self.system.controller()
        {
            let each = if op == Op::Read { controller.read } else { controller.write };
            let ns = controller.fixed.ns() + each.ns_for(length);
            let (_, end_ns) = self.raid.serve(self.events.now_ns(), ns);
            self.events.schedule(end_ns, Event::Stored(io));
            return;
        }
        let host = &self.system.host;
        let cost = if op == Op::Read { host.buffered_read } else { host.buffered_write };
        let random = self.files[file as usize].cache.as_ref().is_some_and(|cache| cache.random);
        let view_ns = if random { host.cache.random_view.ns() } else { 0 };
        let packet_ns =
            if self.system.setup.overlapped { self.direct_cost(op).fixed.ns() } else { 0 };
        let ns = host.cache.copy_ns(&cost, length) + view_ns + packet_ns;
        let end_ns = self.work_for(engine, cost, ns, ns);
        self.events.schedule(end_ns, next);
    }

    /// Fetches the pages of a range that are not in memory, with one request that extends from the
    /// first to the last missing page.
    fn fetch_missing(&mut self, file: u32, from: u64, to: u64) {
        let Some((_, pages)) = self.file_system(file) else { return };
        let (first, last) = pages.missing(file, from, to).unwrap_or((from, to));
        self.fetch_into_cache(file, first, last - first);
    }

    /// Fetches a range into the cache. A range that extends beyond the end of the volume is cut
    /// there.
    fn fetch_into_cache(&mut self, file: u32, offset: u64, length: u64) {
        let length = length.min(self.files[file as usize].volume.bytes() - offset);
        let now_ns = self.now_ns();
        if let Some(cache) = self.cache(file) {
            cache.fetching.set(now_ns, cache.fetching.count() + 1);
            cache.most_fetches = cache.most_fetches.max(cache.fetching.count());
        }
        self.transfer(file, Op::Read, offset, length, Origin::CacheFetch);
    }

    /// Starts a transfer between the cache and the devices.
    fn transfer(&mut self, file: u32, op: Op, offset: u64, length: u64, origin: Origin) {
        let now_ns = self.now_ns();
        let io = self.ios.insert(Io::new(origin, op, (file, offset, length), now_ns));
        let layer = self.files[file as usize].cache.as_ref().map(|cache| cache.layer);
        if layer == Some(Layer::Controller) {
            self.dispatch(io);
            return;
        }
        let host = &self.system.host;
        let each = if op == Op::Read { host.direct_read.each } else { host.direct_write.each };
        let random = self.files[file as usize].cache.as_ref().is_some_and(|cache| cache.random);
        let random_ns = if random { host.random.ns() } else { 0 };
        let ns = host.piece.ns() + each.ns_for(length) + random_ns;
        let end_ns = self.run_system_work(file, ns);
        self.events.schedule(end_ns, Event::Issued(io));
    }

    /// Updates the cache after a transfer between the cache and the devices has completed.
    pub(crate) fn cache_transfer_done(&mut self, io: u32) {
        let Io { file, offset, length, origin, .. } = self.ios[io];
        self.ios.release(io);
        let most = self.files[file as usize].volume.bytes();
        let now_ns = self.now_ns();
        let Some(cache) = self.cache(file) else { return };
        if origin == Origin::CacheFetch {
            cache.fetching.set(now_ns, cache.fetching.count() - 1);
            let unit = offset / cache.unit;
            let whole = offset % cache.unit == 0 && length == cache.unit.min(most - offset);
            if whole && cache.units.contains_key(&unit) {
                cache.units.insert(unit, Unit::Cached);
            }
            if let Some((_, pages)) = self.file_system(file) {
                pages.hold(file, offset, offset + length, false);
            }
        } else {
            cache.dirty_bytes -= length;
            let gap_ns = cache.gap_ns;
            self.events.schedule(now_ns + gap_ns, Event::WriterPauseOver(file));
            if let Some((cache, pages)) = self.file_system(file) {
                let dirty = &cache.dirty_set;
                pages.written(file, offset, offset + length, |from, to| dirty.overlaps(from, to));
            }
        }
        self.serve_first(file);
    }

    /// Schedules the start or the next scan of the lazy writer, and runs the lazy writer if it has
    /// already started.
    fn schedule_writer(&mut self, file: u32) {
        let now_ns = self.now_ns();
        let Some(cache) = self.cache(file) else { return };
        let awake = cache.awake;
        let wait_ns = if awake { cache.scan_ns } else { cache.first_delay_ns };
        if !cache.scheduled && (!awake || wait_ns > 0) {
            cache.scheduled = true;
            self.events.schedule(now_ns + wait_ns, Event::LazyWriter(file));
        }
        if awake {
            self.write_behind(file);
        }
    }

    /// Resumes the first queued request after the delay of the read-ahead bug.
    pub(crate) fn cache_resume(&mut self, file: u32) {
        if let Some(io) = self.cache(file).and_then(|cache| cache.queue.front().copied()) {
            self.ios[io].stage = 1;
        }
        self.serve_first(file);
    }

    /// Starts the lazy writer after the initial delay, or performs a scan.
    pub(crate) fn lazy_writer(&mut self, file: u32) {
        let Some(cache) = self.cache(file) else { return };
        cache.scheduled = false;
        cache.awake = true;
        cache.scanned_bytes = cache.dirty_bytes.div_ceil(SCANNED_PART);
        if cache.dirty_bytes > 0 {
            self.schedule_writer(file);
        }
    }

    /// Continues the lazy writer after the pause that follows a write.
    pub(crate) fn writer_pause_over(&mut self, file: u32) {
        if let Some(cache) = self.cache(file) {
            cache.writing -= 1;
        }
        self.write_behind(file);
    }

    fn wake_writer(&mut self, file: u32) {
        if let Some(cache) = self.cache(file) {
            cache.awake = true;
        }
        self.write_behind(file);
    }

    /// Starts all writes that the lazy writer may start now.
    fn write_behind(&mut self, file: u32) {
        loop {
            let Some(cache) = self.cache(file) else { return };
            if cache.writing >= cache.parallel_requests {
                return;
            }
            let Some((from, length, only)) = cache.next_dirty() else { return };
            let most = cache.write_behind_bytes;
            let now = length.min(most - from % most);
            let hurries = cache.flushing || cache.writer_blocked.count() > 0;
            let scattered = cache.scan_ns > 0 && now < most;
            if scattered && cache.scanned_bytes == 0 && !hurries {
                return;
            }
            // An extent that is still growing is not written until it fills a whole write.
            let filling = only && from + now == cache.write_end;
            if filling && now < most && !hurries {
                return;
            }
            if scattered {
                cache.scanned_bytes = cache.scanned_bytes.saturating_sub(now);
            }
            cache.writing += 1;
            cache.take_dirty(from, now);
            self.transfer(file, Op::Write, from, now, Origin::WriteBehind);
        }
    }

    /// Starts to write all dirty data.
    pub(crate) fn begin_flush(&mut self, file: u32) {
        if let Some(cache) = self.cache(file) {
            cache.flushing = true;
        }
        self.wake_writer(file);
    }

    /// Checks whether all dirty data have been written. If so, ends the flush.
    pub(crate) fn is_flushed(&mut self, file: u32) -> bool {
        let Some(cache) = self.cache(file) else { return true };
        let clean = cache.dirty_bytes == 0;
        if clean {
            cache.flushing = false;
            cache.awake = false;
        }
        clean
    }
}
