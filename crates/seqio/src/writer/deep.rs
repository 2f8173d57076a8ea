//! Writes with requests in flight, to one file or round-robin to several files.
//!
//! Blocks end at multiples of the request size, so only the first and the last block can be
//! unaligned or shorter than a request. A full block is written. Unaligned parts are written
//! through the page cache, in pages that no direct write changes at the same time.
//!
//! A write that extends the file is never in flight together with another write. Otherwise, a later
//! write could complete first, and the file size would exceed the written bytes. Because such a
//! write is alone, it is as large as several requests. Several writes are in flight only within the
//! file size, or if nobody reads the file ([`Options::unseen`]).
//!
//! Space is reserved beyond the end of the file in growing steps. Unused space is released at the
//! end.

use std::collections::VecDeque;
use std::io;

use ioengine::Op;
use ioengine::stripe::Layout;

use crate::memory::Grant;
use crate::opened::Opened;
use crate::options::{Options, Plan};
use crate::requests::{ALIGNMENT_MAX, FilePaths, Requests, Transfer};

/// Minimum and maximum amount of disk space that is reserved at a time (bytes).
const STEPS: std::ops::RangeInclusive<u64> = (64 << 20)..=(1 << 30);
/// Minimum and maximum size of a write that extends a file (bytes). The minimum does not apply if
/// the options set the request size or the depth.
const EXTENDING_BYTES: std::ops::RangeInclusive<u64> = (4 << 20)..=(8 << 20);

/// A block that is being filled.
#[derive(Clone, Copy, Debug)]
struct Filling {
    slot: u32,
    /// Offset in the stream (bytes).
    begin: u64,
    /// Capacity of the block (bytes).
    room: u32,
    /// Number of bytes that the program has filled.
    filled: u32,
    /// Number of bytes of the block that are already written.
    flushed: u32,
}

/// A writer that keeps several requests in flight.
#[derive(Debug)]
pub(super) struct Deep {
    requests: Requests,
    members: Vec<Opened>,
    layout: Option<Layout>,
    request_bytes: u64,
    free: Vec<u32>,
    in_flight: VecDeque<u32>,
    filling: Option<Filling>,
    /// Offset of the next block (bytes).
    next: u64,
    /// End of the stream (bytes).
    end: u64,
    /// File size without the writes that are in flight (bytes).
    seen_end: u64,
    /// End of the reserved space (bytes).
    reserved: u64,
    /// Whether to reserve more space.
    reserves: bool,
    /// Whether the file size may exceed the written bytes, because nobody reads the file before it
    /// is finished.
    unseen: bool,
    /// Whether space was reserved beyond the written bytes. Such space must be released at the end.
    has_reserve: bool,
}

impl Deep {
    /// Creates a writer of one file that starts at the offset `begin`. Updates the plan. Returns
    /// None if there is no memory for requests.
    pub fn new(
        options: &Options,
        file: &Opened,
        begin: u64,
        plan: &mut Plan,
    ) -> io::Result<Option<Deep>> {
        let size = file.size()?;
        let extends = file.is_regular && begin >= size && !options.unseen;
        if extends {
            let in_flight = u64::from(plan.request_bytes) * u64::from(plan.depth);
            let wanted = if options.asks_for_memory() {
                in_flight.min(*EXTENDING_BYTES.end()).max(plan.request_bytes.into())
            } else {
                in_flight.clamp(*EXTENDING_BYTES.start(), *EXTENDING_BYTES.end())
            };
            plan.request_bytes = wanted as u32;
            (plan.depth, plan.depth_most) = (1, 1);
        }
        let slots = plan.depth_most + 1;
        let memory = if options.asks_for_memory() {
            Some(Grant::whole(plan.request_bytes, slots))
        } else {
            Grant::up_to(plan.request_bytes, slots)
        };
        let Some(memory) = memory else { return Ok(None) };
        let mut deep = Deep::of(options, std::slice::from_ref(file), None, plan, memory)?;
        deep.next = begin;
        if file.is_regular {
            (deep.end, deep.seen_end, deep.reserved) = (size, size, size);
        }
        if let Some(size) = options.size {
            deep.reserve_to(size)?;
        }
        Ok(Some(deep))
    }

    /// Creates a writer that writes several new files round-robin. The sizes of the files may
    /// exceed the written bytes, because a stripe is read only after it is finished.
    pub fn striped(
        options: &Options,
        members: &[Opened],
        layout: Layout,
        plan: &mut Plan,
    ) -> io::Result<Deep> {
        let memory = Grant::whole(plan.request_bytes, plan.depth_most + 1);
        let mut deep = Deep::of(options, members, Some(layout), plan, memory)?;
        (deep.reserves, deep.unseen) = (false, true);
        if let Some(size) = options.size {
            let each = layout.member_bytes(size);
            for member in members {
                deep.has_reserve |= member.reserve(0, each, true)?;
            }
        }
        Ok(deep)
    }

    fn of(
        options: &Options,
        members: &[Opened],
        layout: Option<Layout>,
        plan: &mut Plan,
        memory: Grant,
    ) -> io::Result<Deep> {
        plan.request_bytes = memory.request_bytes;
        plan.depth_most = memory.slots - 1;
        plan.depth = plan.depth.min(plan.depth_most);
        let paths: Vec<FilePaths> = members.iter().map(|m| m.paths(plan.direct)).collect();
        let requests = Requests::new(&paths, &options.setup(), memory)?;
        plan.engine_kind = requests.engine_kind();
        plan.direct &= requests.is_direct(0);
        Ok(Deep {
            free: (0..requests.slots()).rev().collect(),
            in_flight: VecDeque::with_capacity(requests.slots() as usize),
            members: members.to_vec(),
            layout,
            request_bytes: plan.request_bytes.into(),
            filling: None,
            next: 0,
            end: 0,
            seen_end: 0,
            reserved: 0,
            reserves: members[0].is_regular,
            unseen: options.unseen || !members[0].is_regular,
            has_reserve: false,
            requests,
        })
    }

    /// Appends the data that `plain` has buffered.
    pub fn begin_with(&mut self, data: &[u8]) -> io::Result<()> {
        let mut data = data;
        while !data.is_empty() {
            self.make_room()?;
            let space = self.space();
            let amount = space.len().min(data.len());
            space[..amount].copy_from_slice(&data[..amount]);
            self.advance(amount);
            data = &data[amount..];
        }
        Ok(())
    }

    pub fn position(&self) -> u64 {
        self.filling.map_or(self.next, |filling| filling.begin + u64::from(filling.filled))
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn space(&mut self) -> &mut [u8] {
        let Some(Filling { slot, filled, room, .. }) = self.filling else { return &mut [] };
        &mut self.requests.memory(slot)[filled as usize..room as usize]
    }

    pub fn advance(&mut self, bytes: usize) {
        let space = self.filling.map_or(0, |filling| filling.room - filling.filled);
        assert!(bytes <= space as usize, "the buffer is too small for these bytes");
        if let Some(filling) = &mut self.filling {
            filling.filled += bytes as u32;
        }
    }

    /// Returns whether a block with space is available without waiting.
    pub fn has_room(&mut self) -> io::Result<bool> {
        self.requests.submit()?;
        if self.filling.is_some_and(|filling| filling.filled < filling.room) {
            return Ok(true);
        }
        // A full block that extends the file cannot be written until all writes in flight are done.
        let waits = self.filling.is_some_and(|filling| self.extends(filling.begin, filling.filled));
        let done = self.in_flight.iter().filter(|slot| self.requests.is_done(**slot)).count();
        if waits {
            return Ok(done == self.in_flight.len());
        }
        let next = self.in_flight.front().is_some_and(|slot| self.requests.is_done(*slot));
        Ok(!self.free.is_empty() || next)
    }

    pub fn is_flushed(&self) -> bool {
        let all = |filling: Filling| filling.flushed == filling.filled;
        self.in_flight.is_empty() && self.filling.is_none_or(all)
    }

    /// Ensures that there is a block with space. Writes the current block if it is full.
    pub fn make_room(&mut self) -> io::Result<()> {
        if self.filling.is_some_and(|filling| filling.filled < filling.room) {
            return Ok(());
        }
        if let Some(filling) = self.filling.take() {
            self.next = filling.begin + u64::from(filling.filled);
            if self.send(&filling)? {
                self.in_flight.push_back(filling.slot);
            } else {
                self.free.push(filling.slot);
            }
        }
        self.reap()?;
        let Some(slot) = self.free.pop() else { return Ok(()) };
        let room = (self.request_bytes - self.next % self.request_bytes) as u32;
        self.filling = Some(Filling { slot, begin: self.next, room, filled: 0, flushed: 0 });
        Ok(())
    }

    /// Frees the slots of completed writes. If no slot is free, waits for a write to complete.
    fn reap(&mut self) -> io::Result<()> {
        self.requests.submit()?;
        while let Some(slot) = self.in_flight.front().copied() {
            if !self.requests.is_done(slot) && !self.free.is_empty() {
                return Ok(());
            }
            self.in_flight.pop_front();
            self.free.push(slot);
            self.requests.finish(slot).map_err(|failed| failed.error)?;
        }
        Ok(())
    }

    /// Waits for all writes in flight.
    fn finish_all(&mut self) -> io::Result<()> {
        while let Some(slot) = self.in_flight.pop_front() {
            self.free.push(slot);
            self.requests.finish(slot).map_err(|failed| failed.error)?;
        }
        self.seen_end = self.seen_end.max(self.end);
        Ok(())
    }

    /// Returns whether a write increases the file size.
    fn extends(&self, begin: u64, bytes: u32) -> bool {
        !self.unseen && begin + u64::from(bytes) > self.seen_end
    }

    /// Starts the write of the unwritten bytes of a block. Returns false if there are none.
    fn send(&mut self, filling: &Filling) -> io::Result<bool> {
        let Filling { slot, begin, filled, flushed, .. } = *filling;
        if filled == flushed {
            return Ok(false);
        }
        if self.extends(begin, filled) {
            self.finish_all()?;
        }
        // The write starts at the page in which the last flush ended, because a direct write covers
        // only whole pages.
        let begins = begin + u64::from(flushed);
        let page = begins / ALIGNMENT_MAX * ALIGNMENT_MAX;
        let within = page.saturating_sub(begin) as u32;
        let (from, length) = (begin + u64::from(within), filled - within);
        let end = begin + u64::from(filled);
        self.reserve_for(end);
        self.end = self.end.max(end);
        let piece = self.layout.and_then(|layout| layout.pieces(from, 1).next());
        let (file, offset) = piece.map_or((0, from), |piece| (piece.member, piece.offset));
        self.requests.enqueue(slot, Transfer { op: Op::Write, file, offset, within, length });
        Ok(true)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        if let Some(filling) = self.filling
            && self.send(&filling)?
        {
            self.requests.finish(filling.slot).map_err(|failed| failed.error)?;
            self.filling = Some(Filling { flushed: filling.filled, ..filling });
        }
        self.finish_all()
    }

    /// Moves to another offset. The caller must have flushed all data.
    pub fn move_to(&mut self, offset: u64) -> io::Result<()> {
        if let Some(filling) = self.filling.take() {
            self.free.push(filling.slot);
        }
        self.next = offset;
        Ok(())
    }

    /// Reserves disk space for data up to `end`, unless it is already reserved. More space than
    /// needed is reserved, so that few writes have to reserve space.
    fn reserve_for(&mut self, end: u64) {
        if self.reserves && end > self.reserved {
            let step = (self.reserved / 2).clamp(*STEPS.start(), *STEPS.end());
            // If there is no space for a whole step, the writer stops reserving space. A later
            // write fails when the file system is full.
            self.reserves &= self.reserve_to((self.reserved + step).max(end)).is_ok();
        }
    }

    fn reserve_to(&mut self, end: u64) -> io::Result<()> {
        if self.reserves && end > self.reserved {
            let (from, length) = (self.reserved, end - self.reserved);
            self.reserves = self.members[0].reserve(from, length, self.unseen)?;
            self.has_reserve |= self.reserves;
            self.reserved = end;
        }
        Ok(())
    }

    /// Releases the space that is reserved beyond the written bytes. The caller must have flushed
    /// all data. Returns the end of the stream (bytes).
    pub fn give_back(&mut self) -> io::Result<u64> {
        let has_reserve = std::mem::take(&mut self.has_reserve);
        for (member, number) in self.members.iter().zip(0_u64..) {
            let bytes = match &self.layout {
                None => self.end,
                Some(layout) => layout.bytes_on(number, self.end),
            };
            if has_reserve && member.is_regular {
                member.file.set_len(bytes)?;
            }
        }
        Ok(self.end)
    }
}
