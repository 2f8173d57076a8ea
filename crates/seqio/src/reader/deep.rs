//! Reading with several requests ahead: of one file, or of several in turn.
//!
//! The stream is cut by a grid of request size, so that after the first block all are whole and
//! aligned. What is ahead lies in a queue in the order of the file; a slot is lent to the program
//! while another is filled for it. Holes are in the queue too, without a request.

use std::collections::VecDeque;
use std::io;

use ioengine::Op;
use ioengine::stripe::Layout;

use crate::ahead::Depth;
use crate::flight::{Asked, Flight};
use crate::holes::Holes;
use crate::opened::{self, Opened};
use crate::options::{Options, Plan};

/// A block that is on its way, or a hole.
#[derive(Clone, Copy, Debug)]
enum Ahead {
    Slot { slot: u32, offset: u64, skip: u32, length: u32 },
    Hole { offset: u64, length: u32 },
}

/// What lies before the program.
#[derive(Clone, Copy, Debug)]
enum Now {
    Nothing,
    Slot { slot: u32, from: u32, to: u32 },
    Hole { length: u32 },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Deep {
    flight: Flight,
    members: Vec<Opened>,
    layout: Option<Layout>,
    plan: Plan,
    depth: Depth,
    holes: Holes,
    zeros: Vec<u8>,
    free: Vec<u32>,
    queue: VecDeque<Ahead>,
    /// Those in the queue that have a slot.
    out: u32,
    now: Now,
    /// Where the present block begins, and where the next request will (bytes).
    offset: u64,
    next: u64,
    /// Where the stream ends, as last seen (bytes).
    size: u64,
    /// Where nothing was read, though the file was said to reach further.
    nothing_at: Option<u64>,
}

impl Deep {
    /// A reader of one file that has places.
    pub fn new(options: &Options, opened: &Opened, size: u64, plan: Plan) -> io::Result<Deep> {
        Deep::of(options, vec![opened.clone()], None, size, plan)
    }

    /// A reader of files in turn.
    pub fn striped(options: &Options, members: &[Opened], chunk_bytes: u64) -> io::Result<Deep> {
        let layout = Layout::new(members.len(), chunk_bytes).map_err(crate::error::of_engine)?;
        let size = striped_size(members, &layout)?;
        let smallest = members.iter().map(Opened::size).collect::<io::Result<Vec<u64>>>()?;
        let smallest = smallest.into_iter().min();
        let mut plan = options.plan(Op::Read, &members[0].found(smallest, options));
        plan.fit_chunk(chunk_bytes, members.len());
        Deep::of(options, members.to_vec(), Some(layout), size, plan)
    }

    fn of(
        options: &Options,
        members: Vec<Opened>,
        layout: Option<Layout>,
        size: u64,
        mut plan: Plan,
    ) -> io::Result<Deep> {
        // No more than the file can use.
        let blocks = size.div_ceil(plan.request_bytes.into()).max(1);
        plan.depth_most = u64::from(plan.depth_most).min(blocks) as u32;
        plan.depth = plan.depth.min(plan.depth_most);
        let flight = opened::flight(&members, options, &mut plan)?;
        let sparse = options.keep_holes.unwrap_or(true) && layout.is_none();
        let apart = if sparse { members[0].apart() } else { None };
        Ok(Deep {
            free: (0..flight.slots()).rev().collect(),
            depth: Depth::new(plan.depth, plan.depth_most),
            holes: apart.map_or_else(Holes::none, |file| Holes::of(&file)),
            zeros: Vec::new(),
            queue: VecDeque::with_capacity(flight.slots() as usize),
            out: 0,
            now: Now::Nothing,
            offset: 0,
            next: 0,
            nothing_at: None,
            flight,
            members,
            layout,
            plan,
            size,
        })
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn is_hole(&self) -> bool {
        matches!(self.now, Now::Hole { .. })
    }

    pub fn data(&mut self) -> &[u8] {
        match self.now {
            Now::Nothing => &[],
            Now::Slot { slot, from, to } => &self.flight.memory(slot)[from as usize..to as usize],
            Now::Hole { length } => &self.zeros[..length as usize],
        }
    }

    pub fn size(&self) -> io::Result<u64> {
        match &self.layout {
            None => self.members[0].size(),
            Some(layout) => striped_size(&self.members, layout),
        }
    }

    /// Goes on from another place.
    pub fn go_to(&mut self, place: u64) {
        self.let_go();
        self.give_up_what_is_ahead();
        (self.offset, self.next) = (place, place);
    }

    fn give_up_what_is_ahead(&mut self) {
        self.flight.land();
        for ahead in self.queue.drain(..) {
            if let Ahead::Slot { slot, .. } = ahead {
                self.free.push(slot);
            }
        }
        self.out = 0;
        self.holes.forget();
        self.depth.restart();
    }

    /// The present block is done with.
    fn let_go(&mut self) {
        let length = match std::mem::replace(&mut self.now, Now::Nothing) {
            Now::Nothing => 0,
            Now::Hole { length } => length,
            Now::Slot { slot, from, to } => {
                self.free.push(slot);
                to - from
            }
        };
        self.offset += u64::from(length);
    }

    /// Makes the next block the present one; whether there is one.
    pub fn advance(&mut self) -> io::Result<bool> {
        self.let_go();
        loop {
            self.look_ahead();
            match self.queue.pop_front() {
                Some(Ahead::Hole { offset, length }) => {
                    if self.zeros.len() < length as usize {
                        self.zeros.resize(length as usize, 0);
                    }
                    (self.now, self.offset) = (Now::Hole { length }, offset);
                    self.flight.go()?;
                    return Ok(true);
                }
                Some(Ahead::Slot { slot, offset, skip, length }) => {
                    if self.arrive(slot, offset, skip, length)? {
                        return Ok(true);
                    }
                }
                // It may have grown since its size was looked at; where nothing came, it has not.
                None => {
                    let nothing_there = std::mem::take(&mut self.nothing_at) == Some(self.next);
                    self.size = self.size()?;
                    if self.size <= self.next || nothing_there {
                        return Ok(false);
                    }
                    self.holes.forget();
                }
            }
        }
    }

    /// Whether the next block is there.
    pub fn is_at_hand(&mut self) -> io::Result<bool> {
        self.flight.go()?;
        Ok(match self.queue.front() {
            None => false,
            Some(Ahead::Hole { .. }) => true,
            Some(Ahead::Slot { slot, .. }) => self.flight.is_back(*slot),
        })
    }

    /// Takes the block of a slot; false where nothing came: the file ends before it.
    fn arrive(&mut self, slot: u32, offset: u64, skip: u32, length: u32) -> io::Result<bool> {
        self.out -= 1;
        self.flight.go()?;
        let waited = !self.flight.is_back(slot);
        let ended = self.flight.end(slot);
        self.depth.count(waited);
        let begin = offset + u64::from(skip);
        let moved = match ended {
            Ok(moved) => moved.max(skip),
            Err(error) => {
                self.free.push(slot);
                self.go_to(begin);
                return Err(error);
            }
        };
        if moved < length {
            // The file was truncated: what was asked for beyond is not there either.
            self.give_up_what_is_ahead();
            (self.next, self.size) = (offset + u64::from(moved), offset + u64::from(moved));
        }
        self.offset = begin;
        if moved == skip {
            self.free.push(slot);
            self.nothing_at = Some(begin);
            return Ok(false);
        }
        self.now = Now::Slot { slot, from: skip, to: moved };
        Ok(true)
    }

    /// Asks for what comes next, as far ahead as is right.
    fn look_ahead(&mut self) {
        let holes_most = 2 * self.flight.slots() as usize;
        while self.next < self.size && self.queue.len() - (self.out as usize) < holes_most {
            let grid = u64::from(self.plan.request_bytes);
            let begin = self.next / grid * grid;
            let end = (begin + grid).min(self.size);
            let stretch = self.holes.at(self.next, self.size);
            if stretch.hole && stretch.until >= end {
                let length = (end - self.next) as u32;
                self.queue.push_back(Ahead::Hole { offset: self.next, length });
                self.next = end;
                continue;
            }
            if self.out >= self.depth.now() {
                return;
            }
            let Some(slot) = self.free.pop() else { return };
            let (skip, length) = ((self.next - begin) as u32, (end - begin) as u32);
            let (road, offset) = self.place(begin);
            self.flight.ask(slot, Asked { op: Op::Read, road, offset, within: 0, length });
            self.queue.push_back(Ahead::Slot { slot, offset: begin, skip, length });
            self.out += 1;
            self.next = end;
        }
    }

    /// Which member holds a place, and where.
    fn place(&self, offset: u64) -> (u16, u64) {
        let piece = self.layout.and_then(|layout| layout.pieces(offset, 1).next());
        piece.map_or((0, offset), |piece| (piece.member, piece.offset))
    }
}

/// How long a stream is that lies on files in turn (bytes).
///
/// # Errors
/// Where the files are not as long as those of a stripe. Devices are taken as far as whole rows go.
fn striped_size(members: &[Opened], layout: &Layout) -> io::Result<u64> {
    let sizes = members.iter().map(Opened::size).collect::<io::Result<Vec<u64>>>()?;
    if !members.iter().all(|member| member.regular) {
        return Ok(layout.bytes(sizes.iter().copied().min().unwrap_or(0)));
    }
    let total: u64 = sizes.iter().sum();
    let wanted = |member: u64| layout.bytes_on(member, total);
    match sizes.iter().zip(0_u64..).find(|(size, member)| **size != wanted(*member)) {
        None => Ok(total),
        Some((size, member)) => {
            let (path, wanted) = (members[member as usize].path.display(), wanted(member));
            let chunk = layout.chunk_bytes();
            let what = format!(
                "{path} has {size} bytes, a stripe of {total} with chunks of {chunk} puts {wanted} \
                 there; name all members in the order in which they were written, and its chunk"
            );
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    }
}
