//! Simulates a zoned disk: the arm, the platter, the buffer with read-ahead and write cache, and
//! the queue of media operations.
//!
//! The machine delivers the commands. The disk chooses the order of the media operations, computes
//! their times, and merges adjacent queued writes. While no operation waits, the disk reads ahead.
//! Read-ahead needs no events, because the offset that it has reached can be computed for any time.

mod shingled;

use ioengine::Op;

use crate::geometry::Geometry;
use crate::shingles::Shingles;
use crate::system::{DiskModel, Schedule, WRITES_PER_ENTRY};

/// A read or write of the media. Writes from the cache belong to no command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MediaRequest {
    /// The command to notify when the request is done. `None` for a cached write.
    pub command: Option<u32>,
    /// Offset of the first byte (bytes).
    pub from: u64,
    /// Length of the request (bytes).
    pub length: u64,
    pub op: Op,
    /// Time at which the request began (ns). For a write, this is when its data began to arrive.
    /// For a read, this is when it was queued.
    pub since_ns: u64,
    /// Number of host requests merged into the write.
    pub requests: u32,
}

impl MediaRequest {
    fn end(&self) -> u64 {
        self.from + self.length
    }
}

/// Result of looking up a read in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// The data are in the buffer, or read-ahead will have read all of them by this time (ns).
    ReadAhead(u64),
    /// The host has read the data before, and they are still in the buffer.
    Reread,
    /// The data must be read from the media, starting at this byte.
    Miss(u64),
}

/// A sequential stream that is read ahead.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Offset of the oldest byte that is still in the buffer (bytes).
    oldest: u64,
    /// Offset of the first byte that the host has not yet received (bytes).
    next: u64,
    /// Offset that read-ahead reaches at the time `base_ns` (bytes).
    base: u64,
    /// Time at which read-ahead reaches `base`, possibly in the future (ns).
    base_ns: u64,
    /// End of the data that waiting commands need (bytes).
    promised: u64,
    /// Result of `Geometry::time_of(promised)` (ns).
    promised_t_ns: u64,
    /// Time of the last use (ns).
    used_ns: u64,
}

/// Maximum size of a write that is merged from cached writes (bytes). If the model's `coalesce` is
/// larger, it is the maximum instead. A merged write is never larger than half of the buffer,
/// because a larger write would keep commands waiting for too long.
const MERGED_BYTES_MAX: u64 = 1 << 20;
/// Number of revolutions after which a waiting command takes precedence over requests that need no
/// seek. Without a limit, a sequential stream would keep the arm forever. Drives therefore age
/// commands (Jacobson and Wilkes 1991; Worthington, Ganger and Patt 1994). Vendors do not publish
/// their limits. This value is a few times the duration of a random request.
const WAIT_REVOLUTIONS: u64 = 4;

/// Media time by activity (ns).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MediaTimes {
    /// Time for seeking, settling and firmware (ns).
    pub seek_ns: u64,
    /// Time of waiting until the first sector is under the head (ns).
    pub rotate_ns: u64,
    /// Time for transferring requested data (ns).
    pub transfer_ns: u64,
    /// Time for cleaning bands of a shingled disk (ns).
    pub clean_ns: u64,
    /// Part of these times spent on cached writes and cleaning while no request waited (ns).
    pub background_ns: u64,
}

/// A zoned disk.
pub(crate) struct Disk {
    pub model: DiskModel,
    pub geometry: Geometry,
    times: MediaTimes,
    write_cache: bool,
    phase_ns: u64,
    /// Cylinder at which the arm is.
    cylinder: u64,
    /// Offset (bytes) and time (ns) at which the last operation ended.
    rest: u64,
    rest_ns: u64,
    operation: Vec<MediaRequest>,
    queue: Vec<MediaRequest>,
    /// The next operation, if SPTF (shortest positioning time first) has already chosen it.
    committed: Option<MediaRequest>,
    streams: Vec<Stream>,
    active: Option<usize>,
    dirty_bytes: u64,
    dirty_entries: u32,
    gap_debt_ns: u64,
    was_idle: bool,
    busy: bool,
    /// Whether the current operation is background work: it writes cached data while the buffer has
    /// room, or cleans a band while the host is idle.
    is_background: bool,
    /// Whether the current operation is a command that had waited too long and was therefore served
    /// before a cached write.
    has_yielded: bool,
    upwards: bool,
    /// The media cache and bands of a shingled disk.
    shingles: Option<Box<Shingles>>,
    /// Time of the last use by the host (ns).
    used_ns: u64,
    /// Time of the next scheduled check for bands to clean (ns).
    look_ns: u64,
}

impl Disk {
    /// Creates a disk whose platter is at `phase` (share of a revolution) at time 0.
    pub fn new(model: &DiskModel, write_cache: bool, phase: f64, spindle_share: f64) -> Disk {
        let geometry = Geometry::new(model, spindle_share);
        let phase_ns = (phase * geometry.revolution_ns() as f64) as u64;
        let shingled = model.shingled.as_ref();
        let shingles = shingled.map(|model| Box::new(Shingles::new(model, geometry.bytes())));
        Disk {
            model: model.clone(),
            geometry,
            times: MediaTimes::default(),
            write_cache,
            phase_ns,
            cylinder: 0,
            rest: 0,
            rest_ns: 0,
            operation: Vec::new(),
            queue: Vec::new(),
            committed: None,
            streams: Vec::new(),
            active: None,
            dirty_bytes: 0,
            dirty_entries: 0,
            gap_debt_ns: 0,
            was_idle: true,
            busy: false,
            is_background: false,
            has_yielded: false,
            upwards: true,
            shingles,
            used_ns: 0,
            look_ns: 0,
        }
    }

    /// Checks whether writes complete as soon as their data are in the buffer.
    pub fn write_cache(&self) -> bool {
        self.write_cache
    }

    /// Returns the media times up to `now_ns`. The whole time of an operation is added when the
    /// operation starts, so the part after `now_ns` is subtracted.
    pub fn times_until(&self, now_ns: u64) -> MediaTimes {
        let geometry = &self.geometry;
        let to_come = match self.active.map(|index| self.streams[index]) {
            _ if self.busy => self.rest_ns.saturating_sub(now_ns),
            Some(stream) if stream.promised > stream.base => {
                let to_go = geometry.time_of(stream.promised) - geometry.time_of(stream.base);
                (stream.base_ns + to_go).saturating_sub(now_ns)
            }
            _ => 0,
        };
        let (mut times, mut to_come) = (self.times, to_come);
        if self.is_background {
            times.background_ns -= to_come.min(times.background_ns);
        }
        let MediaTimes { transfer_ns, rotate_ns, seek_ns, clean_ns, .. } = &mut times;
        for part in [transfer_ns, rotate_ns, seek_ns, clean_ns] {
            let less = to_come.min(*part);
            *part -= less;
            to_come -= less;
        }
        times
    }

    /// Checks whether the media have no work.
    fn is_idle(&self) -> bool {
        !self.busy && self.queue.is_empty() && self.committed.is_none()
    }

    /// Returns the offset that read-ahead of a stream has reached at `now_ns` (bytes).
    fn reach(&self, stream: &Stream, active: bool, now_ns: u64) -> u64 {
        if !active || now_ns <= stream.base_ns {
            return stream.base;
        }
        let prefetch_limit = self.prefetch_limit(stream);
        let time = self.geometry.time_of(stream.base) + (now_ns - stream.base_ns);
        self.geometry.byte_at(time).clamp(stream.base, prefetch_limit)
    }

    /// Returns the offset at which read-ahead of a stream stops (bytes).
    #[inline]
    fn prefetch_limit(&self, stream: &Stream) -> u64 {
        (stream.next + self.model.prefetch.bytes()).min(self.geometry.bytes()).max(stream.base)
    }

    /// Looks up a read in the buffer.
    pub fn lookup(&mut self, from: u64, length: u64, now_ns: u64) -> Lookup {
        let end = from + length;
        self.used_ns = now_ns;
        for index in 0..self.streams.len() {
            let active = self.active == Some(index);
            let stream = self.streams[index];
            let follows =
                from >= stream.next && from <= self.prefetch_limit(&stream).max(stream.promised);
            let must_queue = || self.is_late(now_ns) || self.is_wanted(stream.promised, end);
            if follows && active && end > stream.promised && must_queue() {
                return Lookup::Miss(from.max(stream.promised));
            }
            if follows && active {
                self.streams[index].used_ns = now_ns;
                let end_t_ns = self.geometry.time_of(end);
                if end > stream.promised {
                    let from_t_ns = if from == stream.promised {
                        stream.promised_t_ns
                    } else {
                        self.geometry.time_of(from.max(stream.promised))
                    };
                    self.times.transfer_ns += end_t_ns - from_t_ns;
                    self.streams[index].promised = end;
                    self.streams[index].promised_t_ns = end_t_ns;
                }
                let base_t_ns = self.geometry.time_of(stream.base);
                let end_ns = stream.base_ns + end_t_ns.saturating_sub(base_t_ns);
                // All data before `base` are already in the buffer.
                let there = end <= stream.base;
                return Lookup::ReadAhead(if there { now_ns } else { end_ns.max(now_ns) });
            }
            let reach = self.reach(&stream, active, now_ns);
            if from >= stream.oldest && end <= reach {
                self.streams[index].used_ns = now_ns;
                return if from >= stream.next {
                    Lookup::ReadAhead(now_ns)
                } else {
                    Lookup::Reread
                };
            }
            if follows && from < reach {
                return Lookup::Miss(reach);
            }
        }
        Lookup::Miss(from)
    }

    /// Frees the buffer space of a read whose data the host has received. Returns true if
    /// read-ahead had stopped at the prefetch limit. Read-ahead then resumes when the next byte
    /// passes under the head.
    pub fn take(&mut self, from: u64, length: u64, now_ns: u64) -> bool {
        let end = from + length;
        let holds = |s: &Stream| from >= s.oldest && from <= self.prefetch_limit(s) && end > s.next;
        let Some(index) = self.streams.iter().position(holds) else { return false };
        let active = self.active == Some(index);
        let mut resumes = false;
        let old_limit = self.prefetch_limit(&self.streams[index]);
        let stream = &mut self.streams[index];
        if active {
            let geometry = &self.geometry;
            let stops = geometry.time_of(old_limit) - geometry.time_of(stream.base);
            if stream.base_ns + stops < now_ns {
                stream.base = old_limit;
                stream.base_ns = geometry.passes_at(old_limit, now_ns, self.phase_ns);
                resumes = true;
            }
        }
        stream.next = end;
        let kept = self.model.retained.bytes();
        stream.oldest = stream.oldest.max(end.saturating_sub(kept)).min(end);
        resumes
    }

    /// Checks whether a cached write fits into the buffer.
    pub fn has_room(&self, length: u64) -> bool {
        let fits = self.dirty_bytes + length <= self.model.write_buffer.bytes();
        (fits && self.dirty_entries < self.max_entries()) || self.dirty_entries == 0
    }

    /// Reserves buffer space for a cached write that is about to arrive.
    pub fn reserve(&mut self, length: u64) {
        self.dirty_bytes += length;
        self.dirty_entries += 1;
    }

    /// Stores a cached write for which space was reserved.
    pub fn cache_write(&mut self, from: u64, length: u64, since_ns: u64) {
        let half = self.model.write_buffer.bytes() / 2;
        let most = half.min(self.model.coalesce.bytes().max(MERGED_BYTES_MAX));
        let before = self.queue.iter_mut().find(|request| {
            request.command.is_none() && request.end() == from && request.length + length <= most
        });
        if let Some(before) = before {
            before.length += length;
            before.requests += 1;
            self.dirty_entries -= 1;
            return;
        }
        let (command, op) = (None, Op::Write);
        self.enqueue(MediaRequest { command, from, length, op, since_ns, requests: 1 });
    }

    /// Records that a request waits for the operation in progress. The rest of the operation no
    /// longer counts as background work.
    pub fn delay_a_request(&mut self, now_ns: u64) {
        if self.busy && self.is_background {
            let to_come = self.rest_ns.saturating_sub(now_ns);
            self.times.background_ns -= to_come.min(self.times.background_ns);
            self.is_background = false;
        }
    }

    /// Queues a request for the media.
    pub fn enqueue(&mut self, request: MediaRequest) {
        self.queue.push(request);
    }

    /// Starts the next operation if the media are free. Returns the time at which it ends (ns).
    pub fn start(&mut self, now_ns: u64) -> Option<u64> {
        if self.busy || self.streams_until(now_ns).is_some() {
            return None;
        }
        let Some(first) = self.choose(now_ns) else { return self.clean_in_pause(now_ns) };
        self.was_idle = now_ns > self.rest_ns;
        self.stop_reading_ahead(now_ns);
        self.operation.clear();
        self.operation.push(first);
        let mut end = first.end();
        if first.op == Op::Write {
            end = self.merge_writes(first.from, end);
            self.forget(first.from, end);
        }
        self.busy = true;
        let (start_ns, end_ns) = match self.shingles.take() {
            Some(mut shingles) => {
                let times = self.time_shingled(&mut shingles, first.op, (first.from, end), now_ns);
                self.shingles = Some(shingles);
                times
            }
            None => {
                let times = self.time(first.op, first.from, end, now_ns);
                self.times.transfer_ns += times.1 - times.0;
                self.arrive(end, times.1);
                times
            }
        };
        self.used_ns = end_ns;
        self.is_background = first.command.is_none() && self.has_room(first.length);
        if self.is_background {
            self.times.background_ns += end_ns - now_ns;
        }
        if first.op == Op::Read && self.reads_ahead_from(first.from) {
            self.begin_stream(&first, start_ns, end_ns);
        }
        self.commit();
        Some(end_ns)
    }

    /// Sets the position of the head to the end of a transfer.
    fn arrive(&mut self, end: u64, end_ns: u64) {
        self.cylinder = self.geometry.cylinder_of(end.saturating_sub(1));
        (self.rest, self.rest_ns) = (end, end_ns);
    }

    /// Invalidates the buffered data that a write replaces. If the host has received these data,
    /// all data of the stream at lower offsets are also invalidated. If these data were read ahead,
    /// all data of the stream at higher offsets are also invalidated.
    fn forget(&mut self, from: u64, end: u64) {
        for stream in &mut self.streams {
            if from <= stream.next && end > stream.oldest {
                stream.oldest = stream.oldest.max(end.min(stream.next));
            }
            if from < stream.base && end > stream.next {
                stream.base = from.max(stream.next);
            }
        }
    }

    /// Returns the time at which read-ahead stops because requests wait (ns). Read-ahead
    /// always continues to the end of the data that commands need. If only cached writes wait and
    /// the buffer has room for more writes, read-ahead continues to the prefetch limit.
    pub fn streams_until(&self, now_ns: u64) -> Option<u64> {
        let stream = &self.streams[self.active.filter(|_| !self.busy)?];
        if self.is_idle() {
            return None;
        }
        let is_cached = |request: &MediaRequest| request.command.is_none();
        let can_continue =
            self.queue.iter().chain(&self.committed).all(is_cached) && !self.is_under_pressure();
        let end = if can_continue { self.prefetch_limit(stream) } else { stream.promised };
        let geometry = &self.geometry;
        let to_go = geometry.time_of(end).saturating_sub(geometry.time_of(stream.base));
        Some(stream.base_ns + to_go).filter(|until_ns| *until_ns > now_ns && end > stream.base)
    }

    /// Returns how many cached writes fit into the buffer.
    fn max_entries(&self) -> u32 {
        self.model.write_entries.count().max(1) * WRITES_PER_ENTRY
    }

    /// Checks whether cached writes fill at least a third of the buffer's bytes or entries.
    fn is_under_pressure(&self) -> bool {
        self.dirty_bytes * 3 >= self.model.write_buffer.bytes()
            || self.dirty_entries * 3 >= self.max_entries()
    }

    /// Checks whether the buffer holds writes that are not on the media.
    pub fn holds_writes(&self) -> bool {
        self.dirty_bytes > 0
    }

    /// Checks whether the media were idle before the operation that was just started.
    pub fn was_idle(&self) -> bool {
        self.was_idle
    }

    /// Returns the command of the read that was just started. `None` if the operation is a write.
    pub fn read_under_way(&self) -> Option<u32> {
        self.operation.first().filter(|request| request.op == Op::Read)?.command
    }

    /// Computes the seek and the rotation of an operation. Returns the start and the end of the
    /// transfer (ns).
    fn time(&mut self, op: Op, from: u64, end: u64, now_ns: u64) -> (u64, u64) {
        let geometry = &self.geometry;
        let length_ns = geometry.time_of(end) - geometry.time_of(from);
        let distance = geometry.cylinder_of(from).abs_diff(self.cylinder);
        let contiguous = from == self.rest && now_ns == self.rest_ns;
        let requests: u64 = self.operation.iter().map(|request| u64::from(request.requests)).sum();
        let settle_ns =
            if op == Op::Write && !contiguous { self.model.write_settle.ns() } else { 0 };
        let firmware_ns = if contiguous { 0 } else { self.model.firmware_miss.ns() };
        let seek_ns = geometry.seek_ns(distance) + settle_ns + firmware_ns;
        self.times.seek_ns += seek_ns;
        let ready_ns = now_ns + seek_ns;
        if op == Op::Write && self.model.zero_latency_write && !contiguous {
            // As soon as data arrive, the write starts with the sector that passes the head first.
            let since_ns = self.operation.first().map_or(now_ns, |request| request.since_ns);
            let ready_ns = since_ns.max(self.rest_ns) + seek_ns;
            let revolution_ns = geometry.revolution_ns();
            let wait_ns = geometry.passes_at(from, ready_ns, self.phase_ns) - ready_ns;
            let within = revolution_ns - wait_ns < length_ns;
            let all_ns = if within { revolution_ns.max(length_ns) } else { wait_ns + length_ns };
            let end_ns = (ready_ns + all_ns).max(now_ns + 1);
            let start_ns = end_ns.saturating_sub(length_ns).max(now_ns);
            self.times.rotate_ns += start_ns - now_ns;
            self.times.seek_ns -= seek_ns;
            return (start_ns, end_ns);
        }
        let mut start_ns = geometry.passes_at(from, ready_ns, self.phase_ns);
        let whole_turn_ns = (ready_ns + geometry.revolution_ns()).saturating_sub(length_ns);
        if op == Op::Read
            && self.model.zero_latency_read
            && start_ns > whole_turn_ns
            && geometry.is_on_one_track(from, end)
        {
            // The head starts to read in the middle of the request, and has read the whole request
            // after one revolution.
            start_ns = whole_turn_ns;
        }
        if op == Op::Write && contiguous {
            self.gap_debt_ns += self.model.write_gap.ns() * requests;
            while self.gap_debt_ns >= geometry.revolution_ns() {
                self.gap_debt_ns -= geometry.revolution_ns();
                start_ns += geometry.revolution_ns();
            }
        }
        self.times.rotate_ns += start_ns - ready_ns;
        (start_ns, start_ns + length_ns)
    }

    /// Merges queued writes into the current operation if each starts where the previous write
    /// ends, up to the model's maximum size. Returns the new end of the operation.
    fn merge_writes(&mut self, from: u64, mut end: u64) -> u64 {
        let most = self.model.coalesce.bytes();
        while let Some(index) = self.queue.iter().position(|request| {
            request.op == Op::Write && request.from == end && request.end() - from <= most
        }) {
            let next = self.queue.remove(index);
            end = next.end();
            self.operation.push(next);
        }
        end
    }

    /// Checks whether a queued command has waited so long that it takes precedence over read-ahead,
    /// cached writes and requests that need no seek.
    fn is_late(&self, now_ns: u64) -> bool {
        let limit_ns = match self.model.schedule {
            Schedule::Fcfs => 0,
            Schedule::Sptf | Schedule::Look => WAIT_REVOLUTIONS * self.geometry.revolution_ns(),
        };
        self.queue.iter().chain(&self.committed).any(|request| {
            request.command.is_some() && now_ns.saturating_sub(request.since_ns) >= limit_ns
        })
    }

    /// Checks whether a queued read begins within a range. Read-ahead must stop before such a read.
    fn is_wanted(&self, from: u64, end: u64) -> bool {
        let mut waiting = self.queue.iter().chain(&self.committed);
        waiting.any(|request| request.op == Op::Read && (from..end).contains(&request.from))
    }

    /// Checks whether a request continues the current stream or the last operation, or needs no
    /// seek.
    fn is_here(&self, request: &MediaRequest) -> bool {
        let stream = self.active.map(|index| &self.streams[index]);
        let continues = stream.is_some_and(|s| (s.base..=s.promised).contains(&request.from));
        let is_next = continues || request.from == self.rest;
        is_next || self.geometry.cylinder_of(request.from) == self.cylinder
    }

    /// Removes the oldest command from the queue and returns it.
    fn take_oldest(&mut self) -> Option<MediaRequest> {
        let commands = self.queue.iter().enumerate().filter(|(_, r)| r.command.is_some());
        let oldest = commands.min_by_key(|(_, request)| (request.since_ns, request.from));
        let index = oldest.map_or(0, |(index, _)| index);
        (!self.queue.is_empty()).then(|| self.queue.remove(index))
    }

    /// Removes the next request to serve from the queue and returns it.
    fn choose(&mut self, now_ns: u64) -> Option<MediaRequest> {
        let late = self.model.schedule != Schedule::Fcfs && self.is_late(now_ns);
        // A request that starts where the head is at this moment needs no positioning.
        let (rest, rest_ns) = (self.rest, self.rest_ns);
        if !late
            && now_ns == rest_ns
            && self.model.schedule != Schedule::Fcfs
            && let Some(index) = self.queue.iter().position(|request| request.from == rest)
        {
            return Some(self.queue.remove(index));
        }
        let next = match self.committed.take() {
            Some(next) => next,
            None => {
                let index = self.pick(now_ns)?;
                self.queue.remove(index)
            }
        };
        // A cached write yields to a late command, but never twice in a row, so that a full buffer
        // empties under any load.
        let is_cached = next.command.is_none();
        let yields = late && if is_cached { !self.has_yielded } else { self.is_here(&next) };
        self.has_yielded = yields && is_cached;
        if !yields {
            return Some(next);
        }
        self.queue.insert(0, next);
        self.take_oldest()
    }

    /// With SPTF, chooses the next operation while the current operation runs.
    fn commit(&mut self) {
        if self.model.schedule == Schedule::Sptf && self.committed.is_none() {
            let next = self.pick(self.rest_ns);
            self.committed = next.map(|index| self.queue.remove(index));
        }
    }

    /// Returns the index of the request to serve next.
    fn pick(&mut self, now_ns: u64) -> Option<usize> {
        let is_read = |request: &MediaRequest| request.op == Op::Read;
        let any_read = self.queue.iter().any(is_read);
        // While cached writes fill less than a third of the buffer, they wait for reads.
        let under_pressure = self.is_under_pressure();
        let most = self.model.write_entries.count().max(1);
        let mut cached = 0;
        let places = self.queue.iter().enumerate().filter(|(_, request)| {
            if request.command.is_some() {
                return true;
            }
            // The scheduler considers only the oldest cached writes.
            cached += 1;
            cached <= most && (!any_read || under_pressure)
        });
        match self.model.schedule {
            Schedule::Fcfs => places.map(|(index, _)| index).next(),
            Schedule::Sptf => places.min_by_key(|(_, w)| self.reach_ns(w, now_ns)).map(|(i, _)| i),
            Schedule::Look => {
                let here = self.cylinder;
                let key = |request: &MediaRequest| {
                    let there = self.geometry.cylinder_of(request.from);
                    let behind = if self.upwards { there < here } else { there > here };
                    (behind, there.abs_diff(here))
                };
                let found = places.min_by_key(|(_, request)| key(request)).map(|(index, _)| index);
                if let Some(index) = found
                    && key(&self.queue[index]).0
                {
                    self.upwards = !self.upwards;
                }
                found
            }
        }
    }

    /// Returns the time at which the head reaches the first byte of a request (ns). This includes
    /// the seek, the settling time (only for writes), the firmware time, and the rotation.
    fn reach_ns(&self, request: &MediaRequest, now_ns: u64) -> u64 {
        let distance = self.geometry.cylinder_of(request.from).abs_diff(self.cylinder);
        let settle_ns = if request.op == Op::Write { self.model.write_settle.ns() } else { 0 };
        let firmware_ns = self.model.firmware_miss.ns() + settle_ns;
        let ready_ns = now_ns + self.geometry.seek_ns(distance) + firmware_ns;
        self.geometry.passes_at(request.from, ready_ns, self.phase_ns)
    }

    fn stop_reading_ahead(&mut self, now_ns: u64) {
        if let Some(index) = self.active.take() {
            if now_ns == self.rest_ns {
                // Read-ahead has not started, so the stream ends where the read ended.
                self.streams[index].base = self.rest;
                return;
            }
            let reach = self.reach(&self.streams[index], true, now_ns);
            self.streams[index].base = reach;
            self.cylinder = self.geometry.cylinder_of(reach.saturating_sub(1));
            (self.rest, self.rest_ns) = (reach, now_ns);
        }
    }

    /// Starts a stream that reads ahead after the read that begins now.
    fn begin_stream(&mut self, request: &MediaRequest, start_ns: u64, end_ns: u64) {
        let continued = self.streams.iter().position(|stream| stream.base == request.from);
        let index = match continued {
            Some(index) => index,
            None if self.streams.len() < self.model.segments.count() as usize => {
                self.streams.push(Stream::default());
                self.streams.len() - 1
            }
            None => {
                let ages = self.streams.iter().enumerate();
                ages.min_by_key(|(_, stream)| stream.used_ns).map_or(0, |(index, _)| index)
            }
        };
        let stream = &mut self.streams[index];
        if continued.is_none() {
            (stream.oldest, stream.next) = (request.from, request.from);
        }
        stream.promised = request.end();
        stream.promised_t_ns = self.geometry.time_of(request.end());
        (stream.base, stream.base_ns, stream.used_ns) = (request.from, start_ns, start_ns);
        if self.geometry.passes_at(request.from, start_ns, self.phase_ns) != start_ns {
            // A zero-latency read starts and ends in the middle of the request. Read-ahead starts
            // when the end of the request next passes under the head.
            stream.base = request.end();
            stream.base_ns = self.geometry.passes_at(request.end(), end_ns, self.phase_ns);
        }
        self.active = Some(index);
    }

    /// Ends the current operation, and appends the requests that it served to `served`.
    pub fn finish(&mut self, served: &mut Vec<MediaRequest>) {
        self.busy = false;
        for request in self.operation.drain(..) {
            if request.command.is_none() {
                self.dirty_bytes -= request.length;
                self.dirty_entries -= 1;
            }
            served.push(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::Description;
    use crate::system::DriveModel;

    fn disk() -> Disk {
        let system = Description::named("nt4-ultrawide").unwrap().system().unwrap();
        let DriveModel::Disk(model) = system.drive else { panic!("no disk") };
        Disk::new(&model, false, 0.0, 1.0)
    }

    fn serve(disk: &mut Disk, op: Op, from: u64, length: u64, now_ns: u64) -> u64 {
        disk.enqueue(MediaRequest { command: Some(0), from, length, op, since_ns: 0, requests: 1 });
        let end_ns = disk.start(now_ns).expect("the media are free");
        disk.finish(&mut Vec::new());
        if op == Op::Read {
            disk.take(from, length, end_ns);
        }
        end_ns
    }

    #[test]
    fn a_write_invalidates_data_that_were_read_ahead() {
        let mut disk = disk();
        let mut now_ns = serve(&mut disk, Op::Read, 0, 8192, 0) + 100_000_000;
        now_ns = serve(&mut disk, Op::Write, 16384, 8192, now_ns);
        assert_eq!(disk.lookup(8192, 8192, now_ns), Lookup::ReadAhead(now_ns), "still buffered");
        assert_eq!(disk.lookup(16384, 8192, now_ns), Lookup::Miss(16384));
        assert_eq!(disk.lookup(24576, 8192, now_ns), Lookup::Miss(24576));
    }

    #[test]
    fn a_zero_latency_read_takes_one_turn_if_it_begins_under_the_head() {
        let mut model = disk().model;
        // At time 0 the head is at 63% of the track.
        for (eighths, zero_latency) in [(2, true), (4, true), (2, false), (4, false)] {
            model.zero_latency_read = zero_latency;
            let mut disk = Disk::new(&model, false, 0.37, 1.0);
            let track = disk.geometry.tracks_from(0).next().expect("the disk has tracks");
            let from = eighths * track / 8 / 512 * 512;
            let turn_ns = disk.geometry.revolution_ns() + model.firmware_miss.ns();
            let took_ns = serve(&mut disk, Op::Read, from, track - from, 0);
            assert_eq!(took_ns <= turn_ns, zero_latency, "{took_ns} ns, a turn is {turn_ns}");
            // The following data cannot be read before they first pass under the head.
            let next_ns = serve(&mut disk, Op::Read, track, 512, took_ns);
            assert!(next_ns > disk.geometry.passes_at(track, 0, disk.phase_ns));
        }
    }

    #[test]
    fn queued_sequential_reads_need_no_repositioning() {
        for name in Description::names() {
            let system = Description::named(name).unwrap().system().unwrap();
            let DriveModel::Disk(model) = system.drive else { continue };
            let mut disk = Disk::new(&model, false, 0.0, 1.0);
            for place in [0, 3, 57, 911] {
                let base = place * 12_345_344;
                let (command, op, length) = (Some(0), Op::Read, 65536);
                let mut ends_ns = vec![1_000_000_000 * (place + 1)];
                for number in 0..4 {
                    let from = base + number * length;
                    disk.enqueue(MediaRequest {
                        command,
                        from,
                        length,
                        op,
                        since_ns: 0,
                        requests: 1,
                    });
                    // All requests are queued before the first request completes.
                    if number == 0 {
                        ends_ns.push(disk.start(ends_ns[0]).expect("the media are free"));
                    }
                }
                for number in 1..4 {
                    disk.finish(&mut Vec::new());
                    ends_ns.push(disk.start(ends_ns[number]).expect("the media are free"));
                }
                disk.finish(&mut Vec::new());
                let at = |bytes| disk.geometry.time_of(base + bytes);
                let media_ns = at(4 * length) - at(length);
                // If the first read is a zero-latency read, it completes before the end of its data
                // passes under the head again.
                let passed_ns = disk.geometry.passes_at(base + length, ends_ns[1], disk.phase_ns);
                assert_eq!(ends_ns[4] - passed_ns, media_ns, "{name} from {base}");
            }
        }
    }

    #[test]
    fn a_full_write_cache_is_written_before_reads() {
        let mut text = Description::named("w2k-atlas10k").unwrap();
        text.set("drive.write_entries", "1").unwrap();
        let DriveModel::Disk(model) = text.system().unwrap().drive else { panic!("no disk") };
        let mut disk = Disk::new(&model, true, 0.0, 1.0);
        let mut from = 1 << 20;
        while disk.has_room(2048) {
            disk.reserve(2048);
            disk.cache_write(from, 2048, 0);
            from += 1 << 20;
        }
        let (command, op) = (Some(0), Op::Read);
        let far = 8 << 30;
        disk.enqueue(MediaRequest {
            command,
            from: far,
            length: 2048,
            op,
            since_ns: 0,
            requests: 1,
        });
        disk.start(0).expect("the media are free");
        assert_eq!(disk.read_under_way(), None, "a write is started");
    }

    #[test]
    fn writing_back_a_read_block_keeps_the_read_ahead() {
        let mut disk = disk();
        let mut now_ns = serve(&mut disk, Op::Read, 0, 8192, 0) + 100_000_000;
        now_ns = serve(&mut disk, Op::Write, 0, 8192, now_ns);
        assert_eq!(disk.lookup(8192, 8192, now_ns), Lookup::ReadAhead(now_ns));
    }

    #[test]
    fn media_busy_time_never_exceeds_elapsed_time() {
        let mut disk = disk();
        let (command, op) = (Some(0), Op::Read);
        disk.enqueue(MediaRequest {
            command,
            from: 1 << 30,
            length: 65536,
            op,
            since_ns: 0,
            requests: 1,
        });
        let end_ns = disk.start(0).expect("the media are free");
        for share in 0..=10 {
            let now_ns = end_ns * share / 10;
            let times = disk.times_until(now_ns);
            assert_eq!(times.seek_ns + times.rotate_ns + times.transfer_ns, now_ns);
        }
    }
}
