//! Reading and writing at once through the same memory: a slot is filled from the source, shown to
//! the watcher in its turn, written to the destination, and free again.

use std::collections::VecDeque;
use std::io;

use ioengine::Op;

use super::{Copied, Copying, Method, Watch};
use crate::flight::{Asked, Build, Flight};
use crate::holes::Holes;
use crate::options::Plan;

const SOURCE: u16 = 0;
const TARGET: u16 = 1;

/// A part of the file between its reading and its writing.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// None: a hole.
    slot: Option<u32>,
    offset: u64,
    length: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pipeline {
    flight: Flight,
    holes: Holes,
    request_bytes: u64,
    /// The most that are read ahead.
    depth: usize,
    free: Vec<u32>,
    reading: VecDeque<Part>,
    writing: VecDeque<Part>,
    /// Where the next read begins (bytes).
    next: u64,
    moved_bytes: u64,
}

impl Pipeline {
    /// Copies, and sets the size of the destination.
    pub fn run(
        copying: &mut Copying,
        reading: &Plan,
        writing: &Plan,
        watch: &mut dyn Watch,
    ) -> io::Result<Copied> {
        let request_bytes = reading.request_bytes.max(writing.request_bytes);
        let roads = [copying.source.road(reading.direct), copying.target.road(writing.direct)];
        let blocks =
            (copying.size - copying.begin.min(copying.size)) / u64::from(request_bytes) + 2;
        let slots = u64::from(reading.depth + writing.depth).min(blocks) as u32;
        let build = Build {
            personality: copying.options.personality,
            slots,
            slot_bytes: request_bytes,
            faults: copying.options.faults.clone(),
        };
        let mut pipeline = Pipeline {
            flight: Flight::new(&roads, &build)?,
            holes: copying.holes(),
            request_bytes: request_bytes.into(),
            depth: reading.depth as usize,
            free: (0..slots).rev().collect(),
            reading: VecDeque::with_capacity(slots as usize),
            writing: VecDeque::with_capacity(slots as usize),
            next: copying.begin,
            moved_bytes: 0,
        };
        let sparse = pipeline.holes.at(0, u64::MAX).until < copying.size;
        copying.make_room(sparse).map_err(|error| copying.on_target(error))?;
        let copied = pipeline.pump(copying, watch);
        // Nothing is written any more when the caller hears of it.
        pipeline.flight.land();
        let bytes = copied?;
        copying.set_size(bytes).map_err(|error| copying.on_target(error))?;
        let flight = &pipeline.flight;
        let way = |road| if flight.is_direct(road) { "direct" } else { "buffered" };
        let how = format!(
            "{} to {}, {} KiB x {}, {}",
            way(SOURCE),
            way(TARGET),
            request_bytes >> 10,
            slots,
            flight.personality()
        );
        let moved_bytes = pipeline.moved_bytes;
        Ok(Copied { bytes, moved_bytes, method: Method::Pipeline, how })
    }

    /// Moves everything through; gives where the source ended (bytes).
    fn pump(&mut self, copying: &mut Copying, watch: &mut dyn Watch) -> io::Result<u64> {
        let mut written = self.next;
        loop {
            self.look_ahead(copying.size);
            self.flight.go()?;
            while self.take_written(copying, &mut written)? {}
            watch.written(written)?;
            let Some(part) = self.reading.front().copied() else {
                if !self.writing.is_empty() {
                    self.flight.wait()?;
                } else if self.next >= copying.size {
                    if !copying.has_grown()? {
                        return Ok(self.next);
                    }
                    self.holes.forget();
                }
                continue;
            };
            match part.slot {
                None => watch.hole(part.offset, part.length)?,
                Some(slot) if !self.flight.is_back(slot) => {
                    self.flight.wait()?;
                    continue;
                }
                Some(slot) => {
                    let moved = self.flight.end(slot).map_err(|e| copying.on_source(e))?;
                    if !self.pass_on(copying, part, slot, moved, watch)? {
                        continue;
                    }
                }
            }
            self.reading.pop_front();
            if part.slot.is_none() {
                self.writing.push_back(part);
            }
        }
    }

    /// A part was read: it is shown and sent on. False where the file ended within it, and what
    /// was asked for beyond is given up.
    fn pass_on(
        &mut self,
        copying: &mut Copying,
        part: Part,
        slot: u32,
        moved: u32,
        watch: &mut dyn Watch,
    ) -> io::Result<bool> {
        let length = u64::from(moved).min(part.length);
        if length > 0 {
            watch.data(part.offset, &self.flight.memory(slot)[..length as usize])?;
            let (offset, length) = (part.offset, length as u32);
            let asked = Asked { op: Op::Write, road: TARGET, offset, within: 0, length };
            self.flight.ask(slot, asked);
            self.writing.push_back(Part { length: length.into(), ..part });
            self.moved_bytes += u64::from(length);
        } else {
            self.free.push(slot);
        }
        if length == part.length {
            return Ok(true);
        }
        self.reading.pop_front();
        for beyond in std::mem::take(&mut self.reading) {
            if let Some(slot) = beyond.slot {
                drop(self.flight.end(slot));
                self.free.push(slot);
            }
        }
        self.next = part.offset + length;
        copying.size = self.next;
        Ok(false)
    }

    /// Takes the first part that is written, if it is.
    fn take_written(&mut self, copying: &Copying, written: &mut u64) -> io::Result<bool> {
        let Some(part) = self.writing.front().copied() else { return Ok(false) };
        if let Some(slot) = part.slot {
            if !self.flight.is_back(slot) {
                return Ok(false);
            }
            let moved = self.flight.end(slot).map_err(|error| copying.on_target(error))?;
            debug_assert_eq!(u64::from(moved), part.length, "a write is whole or an error");
            self.free.push(slot);
        }
        self.writing.pop_front();
        *written = part.offset + part.length;
        Ok(true)
    }

    /// Asks for what comes next.
    fn look_ahead(&mut self, size: u64) {
        while self.next < size && self.reading.len() < self.depth {
            let begin = self.next / self.request_bytes * self.request_bytes;
            let end = (begin + self.request_bytes).min(size);
            let stretch = self.holes.at(self.next, size);
            let offset = self.next;
            if stretch.hole && stretch.until >= end {
                // A long hole is one part.
                let whole = stretch.until / self.request_bytes * self.request_bytes;
                let until = if stretch.until == size { size } else { whole.max(end) };
                self.reading.push_back(Part { slot: None, offset, length: until - offset });
                self.next = until;
                continue;
            }
            let Some(slot) = self.free.pop() else { return };
            let length = (end - offset) as u32;
            self.flight.ask(slot, Asked { op: Op::Read, road: SOURCE, offset, within: 0, length });
            self.reading.push_back(Part { slot: Some(slot), offset, length: length.into() });
            self.next = end;
        }
    }
}
