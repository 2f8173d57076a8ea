//! Writing with several requests outstanding: to one file, or to several in turn.
//!
//! A block goes out when the program has filled it up to the next line of a grid of request size,
//! so that all but the first and the last are whole and aligned. What does not fit goes through the
//! page cache, in pages that no direct write touches at the same time.
//!
//! Space is reserved ahead of what is written, in growing steps: a write within the file does not
//! wait for the one before it, as one that extends it must. What is left of it is given back.

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::MetadataExt;

use ioengine::Op;
use ioengine::stripe::Layout;

use crate::flight::{Asked, Flight, GRANULE_MOST};
use crate::opened::{self, Opened};
use crate::options::{Options, Plan};

/// The first step in which space is reserved, and the last (bytes).
const STEPS: std::ops::RangeInclusive<u64> = (64 << 20)..=(1 << 30);

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

/// See the module.
#[derive(Debug)]
pub(super) struct Deep {
    flight: Flight,
    members: Vec<Opened>,
    layout: Option<Layout>,
    grid: u64,
    free: Vec<u32>,
    out: VecDeque<u32>,
    filling: Option<Filling>,
    /// Where the next block begins (bytes).
    next: u64,
    /// How far the stream reaches (bytes).
    end: u64,
    /// How far space is reserved (bytes), and whether more is to be.
    reserved: u64,
    reserves: bool,
    /// The file is larger than what was written, or may be.
    is_ahead: bool,
}

impl Deep {
    /// A writer to one file that has places, or to several in turn; the plan becomes what is true.
    pub fn new(
        options: &Options,
        members: &[Opened],
        layout: Option<Layout>,
        plan: &mut Plan,
    ) -> io::Result<Deep> {
        let flight = opened::flight(members, options, plan)?;
        let size = members[0].file.metadata()?.size();
        let wanted = members[0].regular && layout.is_none() && !options.exact_size;
        let mut deep = Deep {
            free: (0..flight.slots()).rev().collect(),
            out: VecDeque::with_capacity(flight.slots() as usize),
            members: members.to_vec(),
            layout,
            grid: plan.request_bytes.into(),
            filling: None,
            next: 0,
            end: if members[0].regular && layout.is_none() { size } else { 0 },
            reserved: size,
            reserves: wanted,
            is_ahead: false,
            flight,
        };
        if let Some(size) = options.size {
            deep.reserve_whole(size)?;
        }
        Ok(deep)
    }

    /// Begins with what has been gathered already.
    pub fn begin_with(&mut self, begin: u64, data: &[u8]) -> io::Result<()> {
        self.next = begin;
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
        &mut self.flight.memory(slot)[filled as usize..room as usize]
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
        self.flight.go()?;
        let there = self.filling.is_some_and(|filling| filling.filled < filling.room);
        let next = || self.out.front().is_some_and(|slot| self.flight.is_back(*slot));
        Ok(there || !self.free.is_empty() || next())
    }

    pub fn is_flushed(&self) -> bool {
        self.out.is_empty() && self.filling.is_none_or(|filling| filling.flushed == filling.filled)
    }

    /// Sees to it that there is a block with space.
    pub fn make_room(&mut self) -> io::Result<()> {
        if self.filling.is_some_and(|filling| filling.filled < filling.room) {
            return Ok(());
        }
        if let Some(filling) = self.filling.take() {
            self.next = filling.begin + u64::from(filling.filled);
            match self.send(&filling)? {
                true => self.out.push_back(filling.slot),
                false => self.free.push(filling.slot),
            }
        }
        self.reap()?;
        let Some(slot) = self.free.pop() else { return Ok(()) };
        let room = (self.grid - self.next % self.grid) as u32;
        self.filling = Some(Filling { slot, begin: self.next, room, filled: 0, flushed: 0 });
        Ok(())
    }

    /// Takes back the slots whose blocks are written; waits for one where none is free.
    fn reap(&mut self) -> io::Result<()> {
        self.flight.go()?;
        while let Some(slot) = self.out.front().copied() {
            if !self.flight.is_back(slot) && !self.free.is_empty() {
                return Ok(());
            }
            self.out.pop_front();
            self.free.push(slot);
            self.flight.end(slot)?;
        }
        Ok(())
    }

    /// Sends what of a block is not written yet; false where all is.
    fn send(&mut self, filling: &Filling) -> io::Result<bool> {
        let Filling { slot, begin, filled, flushed, .. } = *filling;
        if filled == flushed {
            return Ok(false);
        }
        // From the page on in which the last flush ended: a direct write touches whole pages only.
        let begins = begin + u64::from(flushed);
        let page = begins / GRANULE_MOST * GRANULE_MOST;
        let within = page.saturating_sub(begin) as u32;
        let (from, length) = (begin + u64::from(within), filled - within);
        let end = begin + u64::from(filled);
        self.reserve_for(end);
        self.end = self.end.max(end);
        let piece = self.layout.and_then(|layout| layout.pieces(from, 1).next());
        let (road, offset) = piece.map_or((0, from), |piece| (piece.member, piece.offset));
        self.flight.ask(slot, Asked { op: Op::Write, road, offset, within, length });
        Ok(true)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        if let Some(filling) = self.filling
            && self.send(&filling)?
        {
            self.flight.end(filling.slot)?;
            self.filling = Some(Filling { flushed: filling.filled, ..filling });
        }
        while let Some(slot) = self.out.pop_front() {
            self.free.push(slot);
            self.flight.end(slot)?;
        }
        Ok(())
    }

    /// Goes on at another place; all is flushed.
    pub fn go_to(&mut self, place: u64) -> io::Result<()> {
        if let Some(filling) = self.filling.take() {
            self.free.push(filling.slot);
        }
        self.next = place;
        Ok(())
    }

    /// Reserves all of a file whose size is foretold.
    fn reserve_whole(&mut self, size: u64) -> io::Result<()> {
        let Some(layout) = self.layout else { return self.reserve_to(size) };
        let each = layout.member_bytes(size);
        for member in &self.members {
            self.is_ahead |= member.reserve(0, each)?;
        }
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
            self.reserves = self.members[0].reserve(self.reserved, end - self.reserved)?;
            self.is_ahead |= self.reserves;
            self.reserved = end;
        }
        Ok(())
    }

    /// What was reserved beyond what was written is given back; all is flushed.
    pub fn set_size(&mut self) -> io::Result<u64> {
        let is_ahead = std::mem::take(&mut self.is_ahead);
        for (member, number) in self.members.iter().zip(0_u64..) {
            let bytes = match &self.layout {
                None => self.end,
                Some(layout) => layout.bytes_on(number, self.end),
            };
            if is_ahead && member.regular {
                member.file.set_len(bytes)?;
            }
        }
        Ok(self.end)
    }
}
