//! A zoned disk: the arm, the platter, the buffer with its read-ahead and its cached writes, and
//! the queue of what waits for the media.
//!
//! The disk decides and keeps time; the machine tells it what arrives and when. Reading ahead is
//! what the media do when nothing else waits: a *stream* whose progress follows from T(x), so
//! that it needs no events. Requests that need the arm are served one operation at a time;
//! writes that lie next to each other and wait together become one operation.

use ioengine::Op;

use crate::geometry::Geometry;
use crate::system::{DiskModel, Schedule};

/// What waits for the media. Writes from the cache belong to no command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// The command that is to be told.
    pub command: Option<u32>,
    /// First byte.
    pub from: u64,
    /// Bytes.
    pub length: u64,
    /// Direction.
    pub op: Op,
    /// When its data began to come, or it was asked for (ns).
    pub since_ns: u64,
    /// Requests of the host that it stands for.
    pub requests: u32,
}

impl Wait {
    fn end(&self) -> u64 {
        self.from + self.length
    }
}

/// What the buffer has of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is there, or will be when the stream comes by: the last byte at this moment (ns).
    Streamed(u64),
    /// It was read before and is still there.
    Again,
    /// The arm must go for it, from this byte on.
    Missed(u64),
}

/// A stretch that is read ahead.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Oldest byte that is still there.
    oldest: u64,
    /// Taken by the host up to here.
    next: u64,
    /// Where the media were ...
    base: u64,
    /// ... at this moment (ns), which may be still to come.
    base_ns: u64,
    /// The end of what commands have been told to wait for ...
    promised: u64,
    /// ... and its T (ns).
    promised_t_ns: u64,
    /// When it was used last (ns).
    used_ns: u64,
}

/// A buffer remembers so many cached writes for each that it puts into a better order.
const ENTRIES_FOR_EACH: u32 = 8;

/// Where the time of the media goes (ns).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MediaTimes {
    /// Arm moving.
    pub seek_ns: u64,
    /// Waiting for the sector.
    pub rotate_ns: u64,
    /// Transferring what was asked for.
    pub transfer_ns: u64,
}

/// A zoned disk: the arm, the platter, the buffer with its read-ahead and its cached writes, and
/// the queue of what waits for the media.
pub(crate) struct Disk {
    pub model: DiskModel,
    pub geometry: Geometry,
    times: MediaTimes,
    write_cache: bool,
    phase_ns: u64,
    /// Where the arm is (cylinder) and where the media came to rest.
    cylinder: u64,
    rest: u64,
    rest_ns: u64,
    operation: Vec<Wait>,
    queue: Vec<Wait>,
    /// The next one, chosen when the present one started: its first byte.
    committed: Option<Wait>,
    streams: Vec<Stream>,
    active: Option<usize>,
    dirty_bytes: u64,
    dirty_entries: u32,
    gap_debt_ns: u64,
    busy: bool,
    upwards: bool,
}

impl Disk {
    /// A disk whose platter stands at `phase` (share of a revolution) at time 0.
    pub fn new(model: &DiskModel, write_cache: bool, phase: f64, spindle_share: f64) -> Disk {
        let geometry = Geometry::new(model, spindle_share);
        let phase_ns = (phase * geometry.revolution_ns() as f64) as u64;
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
            busy: false,
            upwards: true,
        }
    }

    /// Whether writes complete from the buffer.
    pub fn write_cache(&self) -> bool {
        self.write_cache
    }

    /// Where the time of the media has gone up to `now_ns`, without what is still to come.
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
        for part in [&mut times.transfer_ns, &mut times.rotate_ns, &mut times.seek_ns] {
            let less = to_come.min(*part);
            *part -= less;
            to_come -= less;
        }
        times
    }

    /// Whether nothing waits for the media or is being served by them.
    fn is_idle(&self) -> bool {
        !self.busy && self.queue.is_empty() && self.committed.is_none()
    }

    /// Where the media are in the stream now.
    fn reach(&self, stream: &Stream, active: bool, now_ns: u64) -> u64 {
        if !active || now_ns <= stream.base_ns {
            return stream.base;
        }
        let limit = self.limit(stream);
        let time = self.geometry.time_of(stream.base) + (now_ns - stream.base_ns);
        self.geometry.byte_at(time).clamp(stream.base, limit)
    }

    /// Where reading ahead stops.
    #[inline]
    fn limit(&self, stream: &Stream) -> u64 {
        (stream.next + self.model.prefetch.bytes()).min(self.geometry.bytes()).max(stream.base)
    }

    /// What the buffer has of a read.
    pub fn find(&mut self, from: u64, length: u64, now_ns: u64) -> Found {
        let end = from + length;
        for index in 0..self.streams.len() {
            let active = self.active == Some(index);
            let stream = self.streams[index];
            let follows = from >= stream.next && from <= self.limit(&stream).max(stream.promised);
            if follows && active {
                self.streams[index].used_ns = now_ns;
                let end_t_ns = self.geometry.time_of(end);
                if end > stream.promised {
                    let from_t_ns = match from == stream.promised {
                        true => stream.promised_t_ns,
                        false => self.geometry.time_of(from.max(stream.promised)),
                    };
                    self.times.transfer_ns += end_t_ns - from_t_ns;
                    self.streams[index].promised = end;
                    self.streams[index].promised_t_ns = end_t_ns;
                }
                let base_t_ns = self.geometry.time_of(stream.base);
                let end_ns = stream.base_ns + end_t_ns.saturating_sub(base_t_ns);
                // What was read before the stream last stood still is there.
                let there = end <= stream.base;
                return Found::Streamed(if there { now_ns } else { end_ns.max(now_ns) });
            }
            let reach = self.reach(&stream, active, now_ns);
            if from >= stream.oldest && end <= reach {
                self.streams[index].used_ns = now_ns;
                return if from >= stream.next { Found::Streamed(now_ns) } else { Found::Again };
            }
            if follows && from < reach {
                return Found::Missed(reach);
            }
        }
        Found::Missed(from)
    }

    /// The host has taken a read: the buffer has room again, and a stream that stood still goes
    /// on when its next byte comes round.
    pub fn take(&mut self, from: u64, length: u64, now_ns: u64) {
        let end = from + length;
        let holds = |s: &Stream| from >= s.oldest && from <= self.limit(s) && end > s.next;
        let Some(index) = self.streams.iter().position(holds) else { return };
        let active = self.active == Some(index);
        let old_limit = self.limit(&self.streams[index]);
        let stream = &mut self.streams[index];
        if active {
            let geometry = &self.geometry;
            let stops = geometry.time_of(old_limit) - geometry.time_of(stream.base);
            if stream.base_ns + stops < now_ns {
                stream.base = old_limit;
                stream.base_ns = geometry.passes_at(old_limit, now_ns, self.phase_ns);
            }
        }
        stream.next = end;
        let kept = self.model.retained.bytes();
        stream.oldest = stream.oldest.max(end.saturating_sub(kept)).min(end);
    }

    /// Whether a cached write fits into the buffer.
    pub fn has_room(&self, length: u64) -> bool {
        let fits = self.dirty_bytes + length <= self.model.write_buffer.bytes();
        (fits && self.dirty_entries < self.most_entries()) || self.dirty_entries == 0
    }

    /// Keeps room for a cached write that is about to come.
    pub fn reserve(&mut self, length: u64) {
        self.dirty_bytes += length;
        self.dirty_entries += 1;
    }

    /// Takes a cached write, for which room was kept, into the buffer.
    pub fn cache_write(&mut self, from: u64, length: u64, since_ns: u64) {
        let most = self.model.write_buffer.bytes() / 2;
        let before = self.queue.iter_mut().find(|wait| {
            wait.command.is_none() && wait.end() == from && wait.length + length <= most
        });
        if let Some(before) = before {
            before.length += length;
            before.requests += 1;
            self.dirty_entries -= 1;
            return;
        }
        let (command, op) = (None, Op::Write);
        self.enqueue(Wait { command, from, length, op, since_ns, requests: 1 });
    }

    /// Something that needs the media.
    pub fn enqueue(&mut self, wait: Wait) {
        self.queue.push(wait);
    }

    /// Starts the next operation if the media are free and something waits: gives its end (ns).
    pub fn start(&mut self, now_ns: u64) -> Option<u64> {
        if self.busy || self.streams_until(now_ns).is_some() {
            return None;
        }
        let first = self.choose(now_ns)?;
        self.stop_reading_ahead(now_ns);
        self.operation.clear();
        self.operation.push(first);
        let mut end = first.end();
        if first.op == Op::Write {
            end = self.gather(first.from, end);
            self.forget(first.from, end);
        }
        self.busy = true;
        let (start_ns, end_ns) = self.time(first.op, first.from, end, now_ns);
        self.times.transfer_ns += end_ns - start_ns;
        (self.cylinder, self.rest, self.rest_ns) =
            (self.geometry.cylinder_of(end.saturating_sub(1)), end, end_ns);
        if first.op == Op::Read {
            self.begin_stream(&first, start_ns);
        }
        self.commit();
        Some(end_ns)
    }

    /// What the buffer holds of bytes that are written is old, and so is what was read ahead
    /// beyond them.
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

    /// Until when the stream goes on although something else waits for the media (ns): to the end
    /// of what commands wait for, and to the end of its room where only cached writes wait and
    /// there is room for more of them.
    pub fn streams_until(&self, now_ns: u64) -> Option<u64> {
        let stream = &self.streams[self.active.filter(|_| !self.busy)?];
        if self.is_idle() {
            return None;
        }
        let is_cached = |wait: &Wait| wait.command.is_none();
        let patient = self.queue.iter().chain(&self.committed).all(is_cached) && !self.is_crowded();
        let end = if patient { self.limit(stream) } else { stream.promised };
        let geometry = &self.geometry;
        let to_go = geometry.time_of(end).saturating_sub(geometry.time_of(stream.base));
        Some(stream.base_ns + to_go).filter(|until_ns| *until_ns > now_ns && end > stream.base)
    }

    /// How many cached writes the buffer has entries for.
    fn most_entries(&self) -> u32 {
        self.model.write_entries.count().max(1) * ENTRIES_FOR_EACH
    }

    /// Whether cached writes fill at least a third of their buffer, or of its entries.
    fn is_crowded(&self) -> bool {
        self.dirty_bytes * 3 >= self.model.write_buffer.bytes()
            || self.dirty_entries * 3 >= self.most_entries()
    }

    /// The command of the read that has just been started.
    pub fn read_under_way(&self) -> Option<u32> {
        self.operation.first().filter(|wait| wait.op == Op::Read)?.command
    }

    /// Positions the arm and gives start and end of the transfer (ns).
    fn time(&mut self, op: Op, from: u64, end: u64, now_ns: u64) -> (u64, u64) {
        let geometry = &self.geometry;
        let length_ns = geometry.time_of(end) - geometry.time_of(from);
        let distance = geometry.cylinder_of(from).abs_diff(self.cylinder);
        let follows_on = from == self.rest && now_ns == self.rest_ns;
        let requests: u64 = self.operation.iter().map(|wait| u64::from(wait.requests)).sum();
        let settle_ns =
            if op == Op::Write && !follows_on { self.model.write_settle.ns() } else { 0 };
        let think_ns = if follows_on { 0 } else { self.model.firmware_miss.ns() };
        let seek_ns = geometry.seek_ns(distance) + settle_ns + think_ns;
        self.times.seek_ns += seek_ns;
        let ready_ns = now_ns + seek_ns;
        if op == Op::Write && self.model.zero_latency_write && !follows_on {
            // It starts with whatever sector comes first, as soon as data come.
            let since_ns = self.operation.first().map_or(now_ns, |wait| wait.since_ns);
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
        if op == Op::Write && follows_on {
            self.gap_debt_ns += self.model.write_gap.ns() * requests;
            while self.gap_debt_ns >= geometry.revolution_ns() {
                self.gap_debt_ns -= geometry.revolution_ns();
                start_ns += geometry.revolution_ns();
            }
        }
        self.times.rotate_ns += start_ns - ready_ns;
        (start_ns, start_ns + length_ns)
    }

    /// Adds waiting writes that follow directly, up to the limit; gives the new end.
    fn gather(&mut self, from: u64, mut end: u64) -> u64 {
        let most = self.model.coalesce.bytes();
        while let Some(index) = self
            .queue
            .iter()
            .position(|wait| wait.op == Op::Write && wait.from == end && wait.end() - from <= most)
        {
            let next = self.queue.remove(index);
            end = next.end();
            self.operation.push(next);
        }
        end
    }

    /// Takes the next one out of the queue.
    fn choose(&mut self, now_ns: u64) -> Option<Wait> {
        // What goes straight on costs no positioning.
        let (rest, rest_ns) = (self.rest, self.rest_ns);
        if now_ns == rest_ns
            && let Some(index) = self.queue.iter().position(|wait| wait.from == rest)
        {
            return Some(self.queue.remove(index));
        }
        if let Some(next) = self.committed.take() {
            return Some(next);
        }
        let index = self.best(now_ns)?;
        Some(self.queue.remove(index))
    }

    /// Commits to the next one while the present one is under way.
    fn commit(&mut self) {
        if self.model.schedule == Schedule::Sptf && self.committed.is_none() {
            let next = self.best(self.rest_ns);
            self.committed = next.map(|index| self.queue.remove(index));
        }
    }

    /// The place in the queue of the one to serve next.
    fn best(&mut self, now_ns: u64) -> Option<usize> {
        let is_read = |wait: &Wait| wait.op == Op::Read;
        let any_read = self.queue.iter().any(is_read);
        // Cached writes wait for reads as long as there is room.
        let crowded = self.is_crowded();
        let most = self.model.write_entries.count().max(1);
        let mut cached = 0;
        let places = self.queue.iter().enumerate().filter(|(_, wait)| {
            if wait.command.is_some() {
                return true;
            }
            // Of the cached writes only the oldest are looked at.
            cached += 1;
            cached <= most && (!any_read || crowded)
        });
        match self.model.schedule {
            Schedule::Fcfs => places.map(|(index, _)| index).next(),
            Schedule::Sptf => places.min_by_key(|(_, w)| self.reaches(w, now_ns)).map(|(i, _)| i),
            Schedule::Look => {
                let here = self.cylinder;
                let key = |wait: &Wait| {
                    let there = self.geometry.cylinder_of(wait.from);
                    let behind = if self.upwards { there < here } else { there > here };
                    (behind, there.abs_diff(here))
                };
                let found = places.min_by_key(|(_, wait)| key(wait)).map(|(index, _)| index);
                if let Some(index) = found
                    && key(&self.queue[index]).0
                {
                    self.upwards = !self.upwards;
                }
                found
            }
        }
    }

    /// When the arm, settled where it is to write, and the platter reach a byte from where they
    /// rest.
    fn reaches(&self, wait: &Wait, now_ns: u64) -> u64 {
        let distance = self.geometry.cylinder_of(wait.from).abs_diff(self.cylinder);
        let settle_ns = if wait.op == Op::Write { self.model.write_settle.ns() } else { 0 };
        let think_ns = self.model.firmware_miss.ns() + settle_ns;
        let ready_ns = now_ns + self.geometry.seek_ns(distance) + think_ns;
        self.geometry.passes_at(wait.from, ready_ns, self.phase_ns)
    }

    fn stop_reading_ahead(&mut self, now_ns: u64) {
        if let Some(index) = self.active.take() {
            if now_ns == self.rest_ns {
                // Right after the read itself; its end is known to the byte.
                self.streams[index].base = self.rest;
                return;
            }
            let reach = self.reach(&self.streams[index], true, now_ns);
            self.streams[index].base = reach;
            self.cylinder = self.geometry.cylinder_of(reach.saturating_sub(1));
            (self.rest, self.rest_ns) = (reach, now_ns);
        }
    }

    /// The read that begins now becomes a stream that goes on after it.
    fn begin_stream(&mut self, wait: &Wait, start_ns: u64) {
        let continued = self.streams.iter().position(|stream| stream.base == wait.from);
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
            (stream.oldest, stream.next) = (wait.from, wait.from);
        }
        stream.promised = wait.end();
        stream.promised_t_ns = self.geometry.time_of(wait.end());
        (stream.base, stream.base_ns, stream.used_ns) = (wait.from, start_ns, start_ns);
        self.active = Some(index);
    }

    /// The operation has ended: gives what it served.
    pub fn finish(&mut self, served: &mut Vec<Wait>) {
        self.busy = false;
        for wait in self.operation.drain(..) {
            if wait.command.is_none() {
                self.dirty_bytes -= wait.length;
                self.dirty_entries -= 1;
            }
            served.push(wait);
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
        disk.enqueue(Wait { command: Some(0), from, length, op, since_ns: 0, requests: 1 });
        let end_ns = disk.start(now_ns).expect("the media are free");
        disk.finish(&mut Vec::new());
        if op == Op::Read {
            disk.take(from, length, end_ns);
        }
        end_ns
    }

    #[test]
    fn what_was_read_ahead_and_written_since_is_read_again() {
        let mut disk = disk();
        let mut now_ns = serve(&mut disk, Op::Read, 0, 8192, 0) + 100_000_000;
        now_ns = serve(&mut disk, Op::Write, 16384, 8192, now_ns);
        assert_eq!(disk.find(8192, 8192, now_ns), Found::Streamed(now_ns), "before it: there");
        assert_eq!(disk.find(16384, 8192, now_ns), Found::Missed(16384));
        assert_eq!(disk.find(24576, 8192, now_ns), Found::Missed(24576));
    }

    #[test]
    fn queued_reads_that_follow_each_other_are_read_in_one_go() {
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
                    disk.enqueue(Wait { command, from, length, op, since_ns: 0, requests: 1 });
                    // All are waiting before the first is done.
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
                assert_eq!(ends_ns[4] - ends_ns[1], media_ns, "{name} from {base}");
            }
        }
    }

    #[test]
    fn cached_writes_that_fill_the_entries_of_the_buffer_wait_for_no_read() {
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
        disk.enqueue(Wait { command, from: far, length: 2048, op, since_ns: 0, requests: 1 });
        disk.start(0).expect("the media are free");
        assert_eq!(disk.read_under_way(), None, "the write is nearer");
    }

    #[test]
    fn a_read_that_is_written_back_leaves_what_was_read_ahead() {
        let mut disk = disk();
        let mut now_ns = serve(&mut disk, Op::Read, 0, 8192, 0) + 100_000_000;
        now_ns = serve(&mut disk, Op::Write, 0, 8192, now_ns);
        assert_eq!(disk.find(8192, 8192, now_ns), Found::Streamed(now_ns));
    }

    #[test]
    fn the_media_are_never_busy_for_more_than_the_time() {
        let mut disk = disk();
        let (command, op) = (Some(0), Op::Read);
        disk.enqueue(Wait { command, from: 1 << 30, length: 65536, op, since_ns: 0, requests: 1 });
        let end_ns = disk.start(0).expect("the media are free");
        for share in 0..=10 {
            let now_ns = end_ns * share / 10;
            let times = disk.times_until(now_ns);
            assert_eq!(times.seek_ns + times.rotate_ns + times.transfer_ns, now_ns);
        }
    }
}
