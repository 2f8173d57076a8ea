//! Writing with requests in flight: to one file, or to several in turn.
//!
//! A block goes out when the program has filled it up to the next multiple of the request size, so
//! that all but the first and the last are whole and aligned. What does not fit goes through the
//! page cache, in pages that no direct write touches at the same time.
//!
//! A write that extends a file is alone in flight, so that the file is never larger than what was
//! written, in whatever order requests complete. It is a large one instead: as many bytes as would
//! otherwise be in flight in several. Blocks are reserved ahead of it, beyond the end of the file,
//! in growing steps, and what is left of them is given back. Writes within a file, and to one that
//! nobody sees ([`Options::unseen`]), are in flight together.

use std::collections::VecDeque;
use std::io;

use ioengine::Op;
use ioengine::stripe::Layout;

use crate::memory::Grant;
use crate::opened::Opened;
use crate::options::{Options, Plan};
use crate::requests::{ALIGNMENT_MOST, FilePaths, Requests, Transfer};

/// The first step in which space is reserved, and the last (bytes).
const STEPS: std::ops::RangeInclusive<u64> = (64 << 20)..=(1 << 30);
/// A write that extends a file is at the least so large, where nothing else was asked for (bytes),
/// and at the most.
const EXTENDING_BYTES: std::ops::RangeInclusive<u64> = (4 << 20)..=(8 << 20);

/// A block that is being filled.
#[derive(Clone, Copy, Debug)]
struct Filling {
    slot: u32,
    /// Where in the stream it begins (bytes).
    begin: u64,
    /// How much it can hold, holds, and holds that has been written (bytes).
    room: u32,
    filled: u32,
    flushed: u32,
}

/// A stream with requests in flight.
#[derive(Debug)]
pub(super) struct Deep {
    requests: Requests,
    members: Vec<Opened>,
    layout: Option<Layout>,
    request_bytes: u64,
    free: Vec<u32>,
    in_flight: VecDeque<u32>,
    filling: Option<Filling>,
    /// Where the next block begins (bytes).
    next: u64,
    /// How far the stream reaches (bytes).
    end: u64,
    /// How far the file reaches for others, without what is in flight (bytes).
    seen_end: u64,
    /// How far blocks are reserved (bytes), and whether more are to be.
    reserved: u64,
    reserves: bool,
    /// Nobody looks at the file: its size may run ahead.
    unseen: bool,
    /// The file has blocks, or a size, beyond what was written; or may have.
    has_reserve: bool,
}

impl Deep {
    /// A writer to one file from an offset on; the plan becomes what is done. None where there is
    /// no memory for requests.
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
            let wanted = match options.asks_for_memory() {
                true => in_flight.min(*EXTENDING_BYTES.end()).max(plan.request_bytes.into()),
                false => in_flight.clamp(*EXTENDING_BYTES.start(), *EXTENDING_BYTES.end()),
            };
            plan.request_bytes = wanted as u32;
            (plan.depth, plan.depth_most) = (1, 1);
        }
        let slots = plan.depth_most + 1;
        let memory = match options.asks_for_memory() {
            true => Some(Grant::whole(plan.request_bytes, slots)),
            false => Grant::up_to(plan.request_bytes, slots),
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

    /// A writer to several new files in turn. Their sizes run ahead of what is written: a stripe
    /// is read by whoever knows all its members, and not before it is finished.
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

    /// Begins with what has been gathered already.
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

    /// How far the stream reaches (bytes).
    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn space(&mut self) -> &mut [u8] {
        let Some(Filling { slot, filled, room, .. }) = self.filling else { return &mut [] };
        &mut self.requests.memory(slot)[filled as usize..room as usize]
    }

    pub fn advance(&mut self, bytes: usize) {
        let space = self.filling.map_or(0, |filling| filling.room - filling.filled);
        assert!(bytes <= space as usize, "more than there was space for");
        if let Some(filling) = &mut self.filling {
            filling.filled += bytes as u32;
        }
    }

    /// Whether there is a block with space, or one can be had without waiting.
    pub fn has_room(&mut self) -> io::Result<bool> {
        self.requests.submit()?;
        if self.filling.is_some_and(|filling| filling.filled < filling.room) {
            return Ok(true);
        }
        // A full block that extends the file waits for what is in flight.
        let waits = self.filling.is_some_and(|filling| self.extends(filling.begin, filling.filled));
        let done = self.in_flight.iter().filter(|slot| self.requests.is_done(**slot)).count();
        match waits {
            true => Ok(done == self.in_flight.len()),
            false => {
                let next = self.in_flight.front().is_some_and(|slot| self.requests.is_done(*slot));
                Ok(!self.free.is_empty() || next)
            }
        }
    }

    pub fn is_flushed(&self) -> bool {
        let all = |filling: Filling| filling.flushed == filling.filled;
        self.in_flight.is_empty() && self.filling.is_none_or(all)
    }

    /// Sees to it that there is a block with space.
    pub fn make_room(&mut self) -> io::Result<()> {
        if self.filling.is_some_and(|filling| filling.filled < filling.room) {
            return Ok(());
        }
        if let Some(filling) = self.filling.take() {
            self.next = filling.begin + u64::from(filling.filled);
            match self.send(&filling)? {
                true => self.in_flight.push_back(filling.slot),
                false => self.free.push(filling.slot),
            }
        }
        self.reap()?;
        let Some(slot) = self.free.pop() else { return Ok(()) };
        let room = (self.request_bytes - self.next % self.request_bytes) as u32;
        self.filling = Some(Filling { slot, begin: self.next, room, filled: 0, flushed: 0 });
        Ok(())
    }

    /// Takes back the slots whose blocks are written; waits for one where none is free.
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

    /// Waits for all blocks that are in flight.
    fn finish_all(&mut self) -> io::Result<()> {
        while let Some(slot) = self.in_flight.pop_front() {
            self.free.push(slot);
            self.requests.finish(slot).map_err(|failed| failed.error)?;
        }
        self.seen_end = self.seen_end.max(self.end);
        Ok(())
    }

    /// Whether a write makes the file larger for those who look at it.
    fn extends(&self, begin: u64, bytes: u32) -> bool {
        !self.unseen && begin + u64::from(bytes) > self.seen_end
    }

    /// Sends what of a block is not written yet; false where all is.
    fn send(&mut self, filling: &Filling) -> io::Result<bool> {
        let Filling { slot, begin, filled, flushed, .. } = *filling;
        if filled == flushed {
            return Ok(false);
        }
        if self.extends(begin, filled) {
            self.finish_all()?;
        }
        // From the page on in which the last flush ended: a direct write touches whole pages only.
        let begins = begin + u64::from(flushed);
        let page = begins / ALIGNMENT_MOST * ALIGNMENT_MOST;
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

    /// Goes on at another offset; all is flushed.
    pub fn go_to(&mut self, offset: u64) -> io::Result<()> {
        if let Some(filling) = self.filling.take() {
            self.free.push(filling.slot);
        }
        self.next = offset;
        Ok(())
    }

    /// Reserves space where a write would extend the file: ahead, else as much as it needs.
    fn reserve_for(&mut self, end: u64) {
        if self.reserves && end > self.reserved {
            let step = (self.reserved / 2).clamp(*STEPS.start(), *STEPS.end());
            // Where there is no room for a step, the writes themselves find out what there is for.
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

    /// Gives back what was reserved beyond what was written; all is flushed.
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
