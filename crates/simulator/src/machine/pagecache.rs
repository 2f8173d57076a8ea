//! Simulates the page cache of Linux: reads, read-ahead, buffered writes and the flusher.
//!
//! This module replaces `filecache` if a system file contains `[host.cache.linux]`. Requests for a
//! file are served concurrently, and each request waits only for its own pages. As in
//! `filemap_read` (`mm/filemap.c`), a read processes its pages in batches: missing pages are read
//! (`readahead`), a marked folio starts the next read-ahead, and pages in memory are copied. Writes
//! create dirty folios, which the flusher writes (`writeback`). The module `durable` implements
//! fsync and O_DSYNC.

use std::collections::VecDeque;

use ioengine::{Hint, Op};

use super::folios::{Folios, OfFile};
use super::readahead::{ReadAhead, Window, folio_at};
use super::writeback::{DirtyPages, Limits};
use super::{Event, Io, Machine, Origin, PageEvent, durable};
use crate::system::{Allocated, CacheModel, LinuxCacheModel, System};

/// Maximum number of folios in a batch of a read (`PAGEVEC_SIZE`).
const BATCH_FOLIOS: usize = 31;

/// The page cache of a host.
pub(crate) struct PageCache {
    folios: Folios,
    limits: Limits,
    /// Number of dirty pages that are not yet being written.
    dirty: u64,
    /// Number of pages that are being written.
    writing: u64,
    /// Number of flusher requests in progress.
    flushes: u64,
    /// Index of the file at which the flusher continues.
    turn: usize,
    /// Writes that wait until fewer pages are dirty.
    held_back: VecDeque<u32>,
    looks: bool,
    pub durable: durable::Durable,
}

impl PageCache {
    /// Creates an empty page cache.
    pub fn new(cache: &CacheModel, linux: &LinuxCacheModel) -> PageCache {
        let pages = |bytes: u64| (bytes / cache.page.bytes()).max(1);
        PageCache {
            folios: Folios::new(pages(cache.size.bytes())),
            limits: Limits {
                background: pages(linux.dirty_background.bytes()),
                limit: pages(cache.dirty_limit.bytes()),
            },
            dirty: 0,
            writing: 0,
            flushes: 0,
            turn: 0,
            held_back: VecDeque::new(),
            looks: false,
            durable: durable::Durable::default(),
        }
    }
}

/// Page-cache state of an open file.
pub(crate) struct CachedFile {
    ahead: ReadAhead,
    pub dirty: DirtyPages,
    /// Requests that wait until pages have been read.
    waiting: Vec<u32>,
    pub metadata: durable::Metadata,
}

impl CachedFile {
    /// Creates the state of a newly opened file. `None` if the system does not use the Linux page
    /// cache.
    pub fn new(system: &System) -> Option<Box<CachedFile>> {
        let linux = system.host.cache.linux.as_ref()?;
        let page = system.host.cache.page.bytes();
        let order = (linux.folio_max.bytes() / page).max(1).ilog2();
        let request = system.host.max_transfer.bytes() / page;
        Some(Box::new(CachedFile {
            ahead: ReadAhead::new(linux.read_ahead_max.bytes() / page, request, order),
            dirty: DirtyPages::default(),
            waiting: Vec::new(),
            metadata: durable::Metadata::default(),
        }))
    }
}

impl Machine {
    pub(super) fn page_bytes(&self) -> u64 {
        self.system.host.cache.page.bytes()
    }

    /// Returns the page cache of a file's host, and the state of the file in that page cache.
    pub(super) fn page_cache(&mut self, file: u32) -> Option<(&mut PageCache, &mut CachedFile)> {
        let entry = &mut self.files[file as usize];
        let cached = entry.linux.as_mut()?;
        Some((&mut self.page_caches[entry.host as usize], cached))
    }

    /// Applies a `posix_fadvise` hint to `bytes` bytes of a file, starting at `offset`. If `bytes`
    /// is 0, the hint applies up to the end of the file. The call itself takes no virtual time.
    pub fn advise(&mut self, file: u32, hint: Hint, (offset, bytes): (u64, u64)) {
        let page_bytes = self.page_bytes();
        let file_bytes = self.files[file as usize].volume.bytes();
        let end =
            if bytes == 0 { file_bytes } else { offset.saturating_add(bytes).min(file_bytes) };
        let Some((cache, cached)) = self.page_cache(file) else { return };
        match hint {
            Hint::WillNeed => {
                let (start, end) = (offset / page_bytes, end.div_ceil(page_bytes));
                let size = end.saturating_sub(start).min(cached.ahead.forced_max());
                self.read_window(file, Window { start, size, mark: None, order: 0 });
            }
            // Dirty pages, and pages that are only partly in the range, stay in memory
            // (`mm/fadvise.c`).
            Hint::DontNeed => {
                let is_to_end = end == file_bytes;
                let to = if is_to_end { end.div_ceil(page_bytes) } else { end / page_bytes };
                cache.folios.drop_within(file, offset.div_ceil(page_bytes), to);
            }
            Hint::Normal | Hint::Sequential | Hint::Random | Hint::NoReuse => {
                cached.ahead.advise(hint);
            }
        }
    }

    pub(super) fn page_event(&mut self, event: PageEvent) {
        match event {
            PageEvent::Copied(io) => self.pages_copied(io),
            PageEvent::Send(io) => self.dispatch(io),
            PageEvent::Look(host) => self.look_for_expired(host),
            PageEvent::Commit(host) => self.periodic_commit(host),
            PageEvent::Flush(job) => self.flush_devices(job),
            PageEvent::CommitFlush(host) => self.flush_commit(host),
        }
    }

    /// Begins a program's request, or continues it after a wait.
    pub(super) fn page_request(&mut self, io: u32) {
        match self.ios[io].op {
            Op::Read => self.read_pages(io),
            Op::Write => self.write_pages(io),
        }
    }

    /// Copies the next batch of a read, or waits until the pages of the batch have been read.
    fn read_pages(&mut self, io: u32) {
        let page_bytes = self.page_bytes();
        let Io { file, offset, length, progress, .. } = self.ios[io];
        let (at, end) = (offset + progress, offset + length);
        let (page, last) = (at / page_bytes, end.div_ceil(page_bytes));
        let Some((cache, cached)) = self.page_cache(file) else { return };
        if cache.folios.find(file, page).is_none() {
            let held = OfFile { folios: &cache.folios, file };
            let window = cached.ahead.missed(page, last - page, page_bytes, &held);
            self.read_window(file, window);
        }
        let Some((cache, cached)) = self.page_cache(file) else { return };
        // If memory is smaller than a read-ahead window, the page may already have been evicted.
        let Some(first) = cache.folios.find(file, page) else {
            cached.waiting.push(io);
            return;
        };
        let mut batch = Vec::new();
        let (mut next, mut mark) = (first, None);
        loop {
            let folio = *cache.folios.get(next);
            if folio.marked {
                cache.folios.get_mut(next).marked = false;
                mark = Some((folio.first, folio.pages));
            }
            if folio.fetching {
                break;
            }
            batch.push((next, folio.first + folio.pages));
            if mark.is_some() || batch.len() == BATCH_FOLIOS || folio.first + folio.pages >= last {
                break;
            }
            match cache.folios.find(file, folio.first + folio.pages) {
                Some(number) => next = number,
                None => break,
            }
        }
        let window = mark.and_then(|(page, pages)| {
            let held = OfFile { folios: &cache.folios, file };
            cached.ahead.reached_mark(page, pages, last.saturating_sub(page), &held)
        });
        let Some((_, stop)) = batch.last().copied() else {
            cached.waiting.push(io);
            window.into_iter().for_each(|window| self.read_window(file, window));
            return;
        };
        // If the previous batch or read ended in the first folio of this batch, that folio has
        // already been marked as used.
        let before = if progress == 0 { cached.ahead.previous_end() } else { at };
        for (index, (number, _)) in batch.iter().enumerate() {
            let known = before.checked_sub(1).map(|byte| byte / page_bytes);
            let same = known.is_some_and(|page| cache.folios.find(file, page) == Some(*number));
            if index > 0 || !same {
                cache.folios.mark_used(*number);
            }
        }
        window.into_iter().for_each(|window| self.read_window(file, window));
        let stop = end.min(stop * page_bytes);
        self.copy_pages(io, stop - at);
    }

    /// Copies the next `bytes` bytes of a request, using CPU time of the thread that issued the
    /// request.
    fn copy_pages(&mut self, io: u32, bytes: u64) {
        let Io { op, origin, progress, .. } = self.ios[io];
        let Origin::App { engine, .. } = origin else { return };
        let host = &self.system.host;
        let cost = if op == Op::Read { host.buffered_read } else { host.buffered_write };
        let fixed_ns = if progress == 0 { cost.fixed.ns() } else { 0 };
        let ns = fixed_ns + cost.each.ns_for(bytes);
        self.ios[io].progress += bytes;
        let end_ns = self.work_for(engine, cost, ns, ns);
        self.events.schedule(end_ns, Event::Page(PageEvent::Copied(io)));
    }

    /// Continues a request whose data have been copied.
    fn pages_copied(&mut self, io: u32) {
        let Io { op, file, offset, length, progress, .. } = self.ios[io];
        if op == Op::Write {
            return self.pages_written_to(io);
        }
        if progress < length {
            return self.read_pages(io);
        }
        if let Some((_, cached)) = self.page_cache(file) {
            cached.ahead.read_until(offset + length);
        }
        self.completed(io);
    }

    /// Reads the pages of a window that are not in memory, with one request for each gap.
    fn read_window(&mut self, file: u32, window: Window) {
        let page_bytes = self.page_bytes();
        let pages = self.files[file as usize].volume.bytes().div_ceil(page_bytes);
        let end = (window.start + window.size).min(pages);
        let Some((cache, _)) = self.page_cache(file) else { return };
        // If some pages of the window are in memory, the pages after the first gap are read as
        // folios of one page.
        let held = OfFile { folios: &cache.folios, file };
        let mut window = window;
        let (mut at, mut gaps) = (window.start, Vec::new());
        while at < end {
            let Some(number) = held.folios.find(file, at) else {
                let after = held.folios.within(file, at, end);
                let stop = after.first().map_or(end, |number| held.folios.get(*number).first);
                gaps.push((at, stop));
                at = stop;
                continue;
            };
            let folio = held.folios.get(number);
            at = folio.first + folio.pages;
        }
        for (from, to) in &gaps {
            let mut page = *from;
            while page < *to {
                let (pages, marked) = folio_at(&window, page, to - 1);
                let number = cache.folios.add(file, page, pages);
                let folio = cache.folios.get_mut(number);
                (folio.fetching, folio.marked) = (true, marked);
                page += pages;
            }
            window.order = 0;
        }
        for (from, to) in gaps {
            self.page_transfer(file, Op::Read, (from, to), Origin::PageRead);
        }
    }

    /// Starts a transfer of pages between memory and the devices.
    pub(super) fn page_transfer(
        &mut self,
        file: u32,
        op: Op,
        (from, to): (u64, u64),
        origin: Origin,
    ) {
        let page_bytes = self.page_bytes();
        let offset = from * page_bytes;
        let length = (to * page_bytes).min(self.files[file as usize].volume.bytes()) - offset;
        let now_ns = self.now_ns();
        let io = self.ios.insert(Io::new(origin, op, (file, offset, length), now_ns));
        let host = &self.system.host;
        let each = if op == Op::Read { host.direct_read.each } else { host.direct_write.each };
        let ns = host.piece.ns() + each.ns_for(length);
        let end_ns = self.run_system_work(file, ns);
        self.events.schedule(end_ns, Event::Page(PageEvent::Send(io)));
    }

    /// Handles the completion of a page read, and continues the requests that wait for pages of the
    /// file.
    pub(super) fn pages_read(&mut self, io: u32) {
        let page_bytes = self.page_bytes();
        let Io { file, offset, length, .. } = self.ios[io];
        self.ios.release(io);
        let Some((cache, cached)) = self.page_cache(file) else { return };
        let (from, to) = (offset / page_bytes, (offset + length).div_ceil(page_bytes));
        for number in cache.folios.within(file, from, to) {
            cache.folios.get_mut(number).fetching = false;
        }
        for io in std::mem::take(&mut cached.waiting) {
            self.page_request(io);
        }
    }

    /// Begins a write: reads pages that the write covers only in part, waits while too many pages
    /// are dirty, and then copies the data.
    fn write_pages(&mut self, io: u32) {
        let page_bytes = self.page_bytes();
        let Io { file, offset, length, .. } = self.ios[io];
        let end = offset + length;
        let exists = self.system.setup.allocation == Allocated::Existing;
        let partial = |at: u64| (exists && !at.is_multiple_of(page_bytes)).then(|| at / page_bytes);
        let Some((cache, cached)) = self.page_cache(file) else { return };
        let mut missing = Vec::new();
        let mut arriving = false;
        for page in [partial(offset), partial(end)].into_iter().flatten() {
            match cache.folios.find(file, page) {
                Some(number) => arriving |= cache.folios.get(number).fetching,
                None => missing.push(page),
            }
        }
        missing.dedup();
        if arriving || !missing.is_empty() {
            cached.waiting.push(io);
            for start in missing {
                self.read_window(file, Window { start, size: 1, mark: None, order: 0 });
            }
            return;
        }
        let pages = end.div_ceil(page_bytes) - offset / page_bytes;
        if cache.limits.holds_back(cache.dirty + cache.writing, pages) {
            cache.held_back.push_back(io);
            return self.run_flusher(file);
        }
        self.copy_pages(io, length);
    }

    /// Marks the pages of a write as dirty after the data have been copied.
    fn pages_written_to(&mut self, io: u32) {
        let (page_bytes, now_ns) = (self.page_bytes(), self.now_ns());
        let Io { file, offset, length, .. } = self.ios[io];
        let (from, to) = (offset / page_bytes, (offset + length).div_ceil(page_bytes));
        let Some(linux) = self.system.host.cache.linux.as_ref() else { return };
        let order_max = (linux.folio_max.bytes() / page_bytes).max(1).ilog2();
        let wakeup_ns = linux.wakeup.ns();
        let host = self.files[file as usize].host;
        let Some((cache, cached)) = self.page_cache(file) else { return };
        let order = (to - from).ilog2().min(order_max);
        let window = Window { start: from, size: to - from, mark: None, order };
        let mut page = from;
        while page < to {
            let number = cache.folios.find(file, page).unwrap_or_else(|| {
                let after = cache.folios.within(file, page, to);
                let stop = after.first().map_or(to, |number| cache.folios.get(*number).first);
                cache.folios.add(file, page, folio_at(&window, page, stop - 1).0)
            });
            cache.folios.mark_used(number);
            page = cache.folios.get(number).first + cache.folios.get(number).pages;
        }
        let PageCache { folios, dirty, .. } = cache;
        cached.dirty.mark(from, to, now_ns, |from, to| {
            *dirty += to - from;
            change_unwritten(folios, file, from, to, 1);
        });
        if !std::mem::replace(&mut cache.looks, true) {
            let look = Event::Page(PageEvent::Look(host));
            self.events.schedule(now_ns + wakeup_ns, look);
        }
        self.metadata_changed(file);
        if self.files[file as usize].through {
            self.write_through(io, (from, to));
        } else {
            self.completed(io);
        }
        self.run_flusher(file);
    }

    /// Writes dirty pages of a host while more pages are dirty than the background limit allows.
    /// Urgent pages are always written.
    pub(super) fn run_flusher(&mut self, file: u32) {
        let host = self.files[file as usize].host;
        let Some(linux) = self.system.host.cache.linux.as_ref() else { return };
        let requests_max = u64::from(linux.requests.count());
        let most = self.system.host.max_transfer.bytes() / self.page_bytes();
        loop {
            let cache = &self.page_caches[host as usize];
            if cache.flushes >= requests_max {
                return;
            }
            let over = cache.dirty > cache.limits.background;
            let turn = cache.turn;
            let wanted = |file: &super::File| {
                let dirty = file.linux.as_ref().filter(|_| file.host == host).map(|of| &of.dirty);
                dirty.is_some_and(|dirty| dirty.dirty() > 0 && (over || dirty.urgent))
            };
            let count = self.files.len();
            let order = (0..count).map(|step| (turn + step) % count);
            let Some(number) = order.into_iter().find(|number| wanted(&self.files[*number])) else {
                return;
            };
            let Some((cache, cached)) = self.page_cache(number as u32) else { return };
            let Some((from, to)) = cached.dirty.take(most.max(1)) else { return };
            cache.turn = number;
            cache.flushes += 1;
            cache.dirty -= to - from;
            cache.writing += to - from;
            self.page_transfer(number as u32, Op::Write, (from, to), Origin::PageWrite);
        }
    }

    /// Writes the dirty pages of a range for a job. Returns the number of requests.
    pub(super) fn write_range(&mut self, file: u32, (from, to): (u64, u64), job: u32) -> u32 {
        let most = (self.system.host.max_transfer.bytes() / self.page_bytes()).max(1);
        let mut requests = 0;
        loop {
            let Some((cache, cached)) = self.page_cache(file) else { return requests };
            let Some((from, to)) = cached.dirty.take_within(from, to, most) else {
                return requests;
            };
            cache.dirty -= to - from;
            cache.writing += to - from;
            requests += 1;
            self.page_transfer(file, Op::Write, (from, to), Origin::JobWrite(job));
        }
    }

    /// Updates the page cache after pages have been written, and continues the writes that were
    /// held back, in order.
    pub(super) fn pages_stored(&mut self, io: u32) {
        let page_bytes = self.page_bytes();
        let Io { file, offset, length, origin, .. } = self.ios[io];
        self.ios.release(io);
        let (from, to) = (offset / page_bytes, (offset + length).div_ceil(page_bytes));
        let Some((cache, cached)) = self.page_cache(file) else { return };
        cached.dirty.written(to - from);
        cache.writing -= to - from;
        change_unwritten(&mut cache.folios, file, from, to, -1);
        if origin == Origin::PageWrite {
            cache.flushes -= 1;
        }
        self.run_flusher(file);
        for _ in 0..self.page_caches[self.files[file as usize].host as usize].held_back.len() {
            let Some((cache, _)) = self.page_cache(file) else { return };
            let first = cache.held_back.front().copied();
            let (unwritten, limits) = (cache.dirty + cache.writing, cache.limits);
            let Some(first) = first else { break };
            let Io { offset, length, .. } = self.ios[first];
            let pages = (offset + length).div_ceil(page_bytes) - offset / page_bytes;
            if limits.holds_back(unwritten, pages) {
                break;
            }
            if let Some((cache, _)) = self.page_cache(file) {
                cache.held_back.pop_front();
            }
            self.write_pages(first);
        }
        self.data_stored(file, origin);
    }

    /// Checks all files of a host for expired dirty pages. The check is repeated periodically while
    /// any page is dirty.
    fn look_for_expired(&mut self, host: u32) {
        let Some(linux) = self.system.host.cache.linux.as_ref() else { return };
        let (wakeup_ns, expire_ns, now_ns) = (linux.wakeup.ns(), linux.expire.ns(), self.now_ns());
        let mut again = false;
        for file in self.files.iter_mut().filter(|file| file.host == host) {
            if let Some(cached) = &mut file.linux {
                again |= cached.dirty.look(now_ns, expire_ns);
            }
        }
        self.page_caches[host as usize].looks = again;
        if again {
            let look = Event::Page(PageEvent::Look(host));
            self.events.schedule(now_ns + wakeup_ns.max(1), look);
        }
        let first = self.files.iter().position(|file| file.host == host);
        if let Some(file) = first {
            self.run_flusher(file as u32);
        }
    }
}

/// For each page in a range, adds `by` (1 or -1) to the number of unwritten pages of the page's
/// folio.
fn change_unwritten(folios: &mut Folios, file: u32, from: u64, to: u64, by: i64) {
    for number in folios.within(file, from, to) {
        let folio = folios.get_mut(number);
        let pages = to.min(folio.first + folio.pages) - from.max(folio.first);
        let unwritten = i64::from(folio.unwritten) + by * pages as i64;
        folio.unwritten = unwritten.max(0) as u32;
    }
}
