//! Copies a file with concurrent reads and writes through the same buffers (slots). A buffer is
//! filled from the source, shown to the watcher in file order, written to the destination, and
//! reused.
//!
//! If other programs may read the destination, only one write is in flight at a time, so that the
//! file size never covers unwritten data. These writes are larger, to make up for the lower depth.

use std::collections::VecDeque;

use ioengine::Op;

use super::{Copied, Copying, Method, Result, Watch, by_watcher, on_source, on_target};
use crate::holes::Holes;
use crate::memory::Grant;
use crate::options::Plan;
use crate::requests::{Requests, Transfer};

const SOURCE: u16 = 0;
const TARGET: u16 = 1;
/// Request size if only one write is in flight at a time (bytes).
const ONE_BY_ONE_BYTES: u32 = 4 << 20;
/// Number of slots if only one write is in flight at a time.
const ONE_BY_ONE_SLOTS: u32 = 4;

/// A piece of the file that is being read, waits to be written, or is being written.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Slot that holds the piece. None for a hole.
    slot: Option<u32>,
    offset: u64,
    length: u64,
}

/// A copy with reads and writes in flight at the same time.
#[derive(Debug)]
struct Pipeline {
    requests: Requests,
    holes: Holes,
    request_bytes: u64,
    /// Maximum number of pieces that are read ahead.
    depth: usize,
    free: Vec<u32>,
    reading: VecDeque<Part>,
    /// Pieces that were read and shown to the watcher, but whose writes were not issued yet.
    waiting: VecDeque<Part>,
    writing: VecDeque<Part>,
    /// Offset of the next read (bytes).
    next: u64,
    /// Offset before which all data have been written (bytes).
    written: u64,
    moved_bytes: u64,
    /// Size of the destination as other programs see it (bytes). A write beyond this size extends
    /// the file, so the write waits until no other write is in flight. `u64::MAX` if no write needs
    /// to wait.
    seen_end: u64,
}

/// Copies the data and sets the size of the destination. Returns None if there is no memory for
/// requests.
pub(super) fn run(
    copying: &mut Copying,
    reading: &Plan,
    writing: &Plan,
    watch: &mut dyn Watch,
) -> Result<Option<Copied>> {
    let options = copying.options;
    let one_by_one = copying.target.is_regular && !options.unseen;
    let mut request_bytes = reading.request_bytes.max(writing.request_bytes);
    let mut slots = reading.depth + writing.depth;
    if one_by_one && !options.asks_for_memory() {
        request_bytes = request_bytes.max(ONE_BY_ONE_BYTES);
        slots = ONE_BY_ONE_SLOTS;
    }
    let blocks = (copying.size - copying.begin.min(copying.size)) / u64::from(request_bytes) + 2;
    slots = u64::from(slots.max(2)).min(blocks) as u32;
    let memory = if options.asks_for_memory() {
        Some(Grant::whole(request_bytes, slots))
    } else {
        Grant::up_to(request_bytes, slots)
    };
    let Some(memory) = memory else { return Ok(None) };
    let (request_bytes, slots) = (memory.request_bytes, memory.slots);
    let paths = [copying.source.paths(reading.direct), copying.target.paths(writing.direct)];
    let requests = Requests::new(&paths, &options.setup(), memory).map_err(on_source(None))?;
    let mut pipeline = Pipeline {
        requests,
        holes: copying.holes(),
        request_bytes: request_bytes.into(),
        depth: (slots - slots / 2) as usize,
        free: (0..slots).rev().collect(),
        reading: VecDeque::with_capacity(slots as usize),
        waiting: VecDeque::with_capacity(slots as usize),
        writing: VecDeque::with_capacity(slots as usize),
        next: copying.begin,
        written: copying.begin,
        moved_bytes: 0,
        seen_end: if one_by_one { copying.begin } else { u64::MAX },
    };
    copying.make_room(pipeline.holes.may_exist()).map_err(on_target(None))?;
    let copied = pipeline.pump(copying, watch);
    // All requests must end before this function returns, even after an error.
    pipeline.requests.drain();
    let bytes = match copied {
        Ok(bytes) => bytes,
        Err(error) => {
            if one_by_one {
                // Setting the size also releases blocks that were reserved beyond the end.
                let _ = copying.set_size(pipeline.written);
            }
            return Err(error);
        }
    };
    copying.set_size(bytes).map_err(on_target(None))?;
    let moved_bytes = pipeline.moved_bytes;
    let how = pipeline.description(slots);
    Ok(Some(Copied { bytes, moved_bytes, method: Method::Pipeline, how }))
}

impl Pipeline {
    fn description(&self, slots: u32) -> String {
        let way = |file| if self.requests.is_direct(file) { "direct" } else { "buffered" };
        let (source, target, kib) = (way(SOURCE), way(TARGET), self.request_bytes >> 10);
        let engine_kind = self.requests.engine_kind();
        format!("{source} reads, {target} writes, {kib} KiB x {slots}, {engine_kind}")
    }

    /// Copies the data until the end of the source. Returns the offset of this end (bytes).
    fn pump(&mut self, copying: &mut Copying, watch: &mut dyn Watch) -> Result<u64> {
        loop {
            self.read_ahead(copying.size);
            self.submit()?;
            while self.take_written()? {}
            self.start_writes();
            self.submit()?;
            watch.written(self.written).map_err(by_watcher)?;
            let Some(part) = self.reading.front().copied() else {
                if !self.writing.is_empty() {
                    self.wait()?;
                } else if self.waiting.is_empty() && self.next >= copying.size {
                    if !copying.has_grown().map_err(on_source(None))? {
                        return Ok(self.next);
                    }
                    self.holes.forget();
                }
                continue;
            };
            match part.slot {
                None => watch.hole(part.offset, part.length).map_err(by_watcher)?,
                Some(slot) if !self.requests.is_done(slot) => {
                    self.wait()?;
                    continue;
                }
                Some(slot) => {
                    if !self.part_was_read(copying, part, slot, watch)? {
                        continue;
                    }
                }
            }
            self.reading.pop_front();
            if part.slot.is_none() {
                self.waiting.push_back(part);
            }
        }
    }

    fn submit(&mut self) -> Result<()> {
        self.requests.submit().map_err(on_source(None))
    }

    fn wait(&mut self) -> Result<()> {
        self.requests.wait().map_err(on_source(None))
    }

    /// Handles a completed read: shows the piece to the watcher and queues its write. Returns false
    /// if the file ended within the piece. The reads beyond the end are then discarded.
    fn part_was_read(
        &mut self,
        copying: &mut Copying,
        part: Part,
        slot: u32,
        watch: &mut dyn Watch,
    ) -> Result<bool> {
        let finished = self.requests.finish(slot);
        let moved = finished.map_err(|failed| on_source(failed.offset)(failed.error))?;
        let length = u64::from(moved).min(part.length);
        if length > 0 {
            if watch.wants_data() {
                let data = &self.requests.memory(slot)[..length as usize];
                watch.data(part.offset, data).map_err(by_watcher)?;
            }
            watch.moved(part.offset, length).map_err(by_watcher)?;
            self.waiting.push_back(Part { length, ..part });
            self.moved_bytes += length;
        } else {
            self.free.push(slot);
        }
        if length == part.length {
            return Ok(true);
        }
        self.reading.pop_front();
        for beyond in std::mem::take(&mut self.reading) {
            if let Some(slot) = beyond.slot {
                drop(self.requests.finish(slot));
                self.free.push(slot);
            }
        }
        self.next = part.offset + length;
        copying.size = self.next;
        Ok(false)
    }

    /// Issues the queued writes in order. A write that extends the file waits until no other write
    /// is in flight.
    fn start_writes(&mut self) {
        while let Some(part) = self.waiting.front().copied() {
            let extends = part.offset + part.length > self.seen_end;
            if let Some(slot) = part.slot {
                if extends && self.writing.iter().any(|other| other.slot.is_some()) {
                    return;
                }
                let (offset, length) = (part.offset, part.length as u32);
                let transfer = Transfer { op: Op::Write, file: TARGET, offset, within: 0, length };
                self.requests.enqueue(slot, transfer);
            }
            self.waiting.pop_front();
            self.writing.push_back(part);
        }
    }

    /// Removes the first piece from the queue of writes if its write has completed. Returns whether
    /// a piece was removed.
    fn take_written(&mut self) -> Result<bool> {
        let Some(part) = self.writing.front().copied() else { return Ok(false) };
        if let Some(slot) = part.slot {
            if !self.requests.is_done(slot) {
                return Ok(false);
            }
            let finished = self.requests.finish(slot);
            let moved = finished.map_err(|failed| on_target(failed.offset)(failed.error))?;
            debug_assert_eq!(u64::from(moved), part.length, "a write moves all bytes or fails");
            self.free.push(slot);
        }
        self.writing.pop_front();
        self.written = part.offset + part.length;
        if self.seen_end < u64::MAX && part.slot.is_some() {
            self.seen_end = self.seen_end.max(self.written);
        }
        Ok(true)
    }

    /// Issues further reads. A piece ends where a hole begins, so that holes are preserved.
    fn read_ahead(&mut self, size: u64) {
        while self.next < size && self.reading.len() < self.depth {
            let offset = self.next;
            let stretch = self.holes.at(offset, size);
            if stretch.is_hole {
                let length = stretch.until - offset;
                self.reading.push_back(Part { slot: None, offset, length });
                self.next = stretch.until;
                continue;
            }
            let Some(slot) = self.free.pop() else { return };
            let end_of_block = (offset / self.request_bytes + 1) * self.request_bytes;
            let end = end_of_block.min(stretch.until);
            let length = (end - offset) as u32;
            let transfer = Transfer { op: Op::Read, file: SOURCE, offset, within: 0, length };
            self.requests.enqueue(slot, transfer);
            self.reading.push_back(Part { slot: Some(slot), offset, length: length.into() });
            self.next = end;
        }
    }
}
