//! Reads with several requests in flight, from one file or round-robin from several files.
//!
//! Requests start at multiples of the request size, so that only the first and the last block can
//! be shorter than a request. Blocks that were read ahead wait in a queue in file order. The
//! program uses the buffer of one block while the other buffers are filled. Holes are also in the
//! queue, but need no request.

use std::collections::VecDeque;
use std::io;

use ioengine::Op;
use ioengine::stripe::Layout;

use crate::ahead::Depth;
use crate::holes::Holes;
use crate::memory::Grant;
use crate::opened::Opened;
use crate::options::{Options, Plan};
use crate::requests::{FilePaths, Requests, Transfer};

/// An entry of the queue: a block whose read was requested, or a hole.
#[derive(Clone, Copy, Debug)]
enum Ahead {
    Slot { slot: u32, offset: u64, skip: u32, length: u32 },
    Hole { offset: u64, length: u32 },
}

impl Ahead {
    fn end(&self) -> u64 {
        match *self {
            Ahead::Slot { offset, length, .. } | Ahead::Hole { offset, length } => {
                offset + u64::from(length)
            }
        }
    }
}

/// The block that the program is using.
#[derive(Clone, Copy, Debug)]
enum Present {
    Nothing,
    Slot { slot: u32, from: u32, to: u32 },
    Hole { length: u32 },
}

/// A reader that keeps several requests in flight.
#[derive(Debug)]
pub(super) struct Deep {
    requests: Requests,
    members: Vec<Opened>,
    layout: Option<Layout>,
    plan: Plan,
    depth: Depth,
    holes: Holes,
    zeros: Vec<u8>,
    free: Vec<u32>,
    queue: VecDeque<Ahead>,
    /// Number of queue entries that are blocks and not holes.
    in_flight: u32,
    present: Present,
    /// Offset of the current block (bytes).
    offset: u64,
    /// Offset of the next request (bytes).
    next: u64,
    /// Size of the stream when the size was last checked (bytes).
    size: u64,
    /// Offset at which a read returned no bytes although the reported file size is larger. None if
    /// no read did this.
    nothing_at: Option<u64>,
}

impl Deep {
    /// Creates a reader of one file. Returns None if there is no memory for requests.
    pub fn new(options: &Options, opened: &Opened, plan: &Plan) -> io::Result<Option<Deep>> {
        Deep::of(options, vec![opened.clone()], None, opened.size()?, plan.clone())
    }

    /// Creates a reader of a stream that is striped over several files.
    pub fn striped(options: &Options, members: &[Opened], chunk_bytes: u64) -> io::Result<Deep> {
        let layout = Layout::new(members.len(), chunk_bytes).map_err(crate::error::of_engine)?;
        let size = striped_size(members, &layout)?;
        let sizes = members.iter().map(Opened::size).collect::<io::Result<Vec<u64>>>()?;
        let mut plan = options.plan(Op::Read, &members[0], sizes.into_iter().min());
        plan.fit_chunk(chunk_bytes, members.len());
        let deep = Deep::of(options, members.to_vec(), Some(layout), size, plan)?;
        deep.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn of(
        options: &Options,
        members: Vec<Opened>,
        layout: Option<Layout>,
        size: u64,
        mut plan: Plan,
    ) -> io::Result<Option<Deep>> {
        // The file needs at most one slot for each of its blocks, plus one slot that is lent to the
        // program.
        let blocks = size.div_ceil(plan.request_bytes.into()).max(1);
        let slots = u64::from(plan.depth_most).min(blocks) as u32 + 1;
        let memory = if options.asks_for_memory() || layout.is_some() {
            Grant::whole(plan.request_bytes, slots)
        } else {
            match Grant::up_to(plan.request_bytes, slots) {
                Some(memory) => memory,
                None => return Ok(None),
            }
        };
        plan.request_bytes = memory.request_bytes;
        plan.depth_most = memory.slots - 1;
        plan.depth = plan.depth.min(plan.depth_most);
        let paths: Vec<FilePaths> = members.iter().map(|m| m.paths(plan.direct)).collect();
        let requests = Requests::new(&paths, &options.setup(), memory)?;
        plan.engine_kind = requests.engine_kind();
        plan.direct &= requests.is_direct(0);
        let sparse = options.keep_holes.unwrap_or(true) && layout.is_none();
        let apart = if sparse { members[0].with_own_position() } else { None };
        Ok(Some(Deep {
            free: (0..requests.slots()).rev().collect(),
            depth: Depth::new(plan.depth, plan.depth_most),
            holes: apart.map_or_else(Holes::none, |file| Holes::of(&file)),
            zeros: Vec::new(),
            queue: VecDeque::with_capacity(requests.slots() as usize),
            in_flight: 0,
            present: Present::Nothing,
            offset: 0,
            next: 0,
            nothing_at: None,
            requests,
            members,
            layout,
            plan,
            size,
        }))
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn is_hole(&self) -> bool {
        matches!(self.present, Present::Hole { .. })
    }

    pub fn data(&mut self) -> &[u8] {
        match self.present {
            Present::Nothing => &[],
            Present::Slot { slot, from, to } => {
                &self.requests.memory(slot)[from as usize..to as usize]
            }
            Present::Hole { length } => &self.zeros[..length as usize],
        }
    }

    pub fn size(&self) -> io::Result<u64> {
        match &self.layout {
            None => self.members[0].size(),
            Some(layout) => striped_size(&self.members, layout),
        }
    }

    /// Discards all blocks, and continues at another offset.
    pub fn move_to(&mut self, offset: u64) {
        self.stop();
        (self.offset, self.next) = (offset, offset);
    }

    /// Skips to an offset in a block or hole of the queue. Returns false for any other offset.
    pub fn skip_to(&mut self, offset: u64) -> bool {
        if offset < self.offset || offset >= self.next {
            return false;
        }
        self.release();
        while self.queue.front().is_some_and(|ahead| ahead.end() <= offset) {
            if let Some(Ahead::Slot { slot, .. }) = self.queue.pop_front() {
                drop(self.requests.finish(slot));
                self.free.push(slot);
                self.in_flight -= 1;
            }
        }
        match self.queue.front_mut() {
            Some(Ahead::Slot { offset: begin, skip, .. }) => *skip = (offset - *begin) as u32,
            Some(Ahead::Hole { offset: begin, length }) => {
                (*length, *begin) = (*length - (offset - *begin) as u32, offset);
            }
            None => return false,
        }
        self.offset = offset;
        true
    }

    /// Discards the current block and all blocks read ahead.
    pub fn stop(&mut self) {
        self.release();
        self.give_up_queue();
    }

    fn give_up_queue(&mut self) {
        self.requests.drain();
        for ahead in self.queue.drain(..) {
            if let Ahead::Slot { slot, .. } = ahead {
                self.free.push(slot);
            }
        }
        self.in_flight = 0;
        self.next = self.offset;
        self.holes.forget();
        self.depth.restart();
    }

    fn release(&mut self) {
        let length = match std::mem::replace(&mut self.present, Present::Nothing) {
            Present::Nothing => 0,
            Present::Hole { length } => length,
            Present::Slot { slot, from, to } => {
                self.free.push(slot);
                to - from
            }
        };
        self.offset += u64::from(length);
    }

    /// Moves to the next block. Returns false at the end of the stream.
    pub fn advance(&mut self) -> io::Result<bool> {
        self.release();
        loop {
            self.read_ahead();
            match self.queue.pop_front() {
                Some(Ahead::Hole { offset, length }) => {
                    if self.zeros.len() < length as usize {
                        self.zeros.resize(length as usize, 0);
                    }
                    (self.present, self.offset) = (Present::Hole { length }, offset);
                    self.requests.submit()?;
                    return Ok(true);
                }
                Some(Ahead::Slot { slot, offset, skip, length }) => {
                    if self.take(slot, offset, skip, length)? {
                        return Ok(true);
                    }
                }
                // The size is checked again, because the file may have grown. If the last read at
                // this offset returned no bytes, the stream ends regardless of the size.
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

    /// Returns whether the next block is available without waiting.
    pub fn is_at_hand(&mut self) -> io::Result<bool> {
        self.requests.submit()?;
        Ok(match self.queue.front() {
            None => false,
            Some(Ahead::Hole { .. }) => true,
            Some(Ahead::Slot { slot, .. }) => self.requests.is_done(*slot),
        })
    }

    /// Waits for the read of a slot and makes its data the current block. Returns false if the read
    /// returned no bytes because the file has ended. If bytes were read before an error, they
    /// become a block, and the next call tries again at the offset of the error.
    fn take(&mut self, slot: u32, offset: u64, skip: u32, length: u32) -> io::Result<bool> {
        self.in_flight -= 1;
        self.requests.submit()?;
        let waited = !self.requests.is_done(slot);
        let finished = self.requests.finish(slot);
        self.depth.count(waited);
        self.offset = offset + u64::from(skip);
        let moved = match finished {
            Ok(moved) => moved.max(skip),
            Err(failed) if failed.moved > skip => {
                self.give_up_queue();
                self.next = offset + u64::from(failed.moved);
                self.present = Present::Slot { slot, from: skip, to: failed.moved };
                return Ok(true);
            }
            Err(failed) => {
                self.free.push(slot);
                self.give_up_queue();
                return Err(failed.error);
            }
        };
        if moved < length {
            // The file was truncated, so the blocks requested after this block are missing too.
            self.give_up_queue();
            (self.next, self.size) = (offset + u64::from(moved), offset + u64::from(moved));
        }
        if moved == skip {
            self.free.push(slot);
            self.nothing_at = Some(self.offset);
            return Ok(false);
        }
        self.present = Present::Slot { slot, from: skip, to: moved };
        Ok(true)
    }

    /// Issues requests until the current depth is reached.
    fn read_ahead(&mut self) {
        let holes_most = 2 * self.requests.slots() as usize;
        while self.next < self.size && self.queue.len() - (self.in_flight as usize) < holes_most {
            let grid = u64::from(self.plan.request_bytes);
            let begin = self.next / grid * grid;
            let end = (begin + grid).min(self.size);
            let stretch = self.holes.at(self.next, self.size);
            if stretch.is_hole && stretch.until >= end {
                let length = (end - self.next) as u32;
                self.queue.push_back(Ahead::Hole { offset: self.next, length });
                self.next = end;
                continue;
            }
            if self.in_flight >= self.depth.now() {
                return;
            }
            let Some(slot) = self.free.pop() else { return };
            let (skip, length) = ((self.next - begin) as u32, (end - begin) as u32);
            let (file, offset) = self.locate(begin);
            let transfer = Transfer { op: Op::Read, file, offset, within: 0, length };
            self.requests.enqueue(slot, transfer);
            self.queue.push_back(Ahead::Slot { slot, offset: begin, skip, length });
            self.in_flight += 1;
            self.next = end;
        }
    }

    /// Returns the file of the stripe that contains an offset of the stream, and the offset in this
    /// file.
    fn locate(&self, offset: u64) -> (u16, u64) {
        let piece = self.layout.and_then(|layout| layout.pieces(offset, 1).next());
        piece.map_or((0, offset), |piece| (piece.member, piece.offset))
    }
}

/// Returns the size of a stream that is striped over several files (bytes). If any of the files is
/// not a regular file (for example a block device), every file contributes as many whole chunks as
/// the smallest file has.
///
/// # Errors
/// If the sizes of the files do not form a stripe.
fn striped_size(members: &[Opened], layout: &Layout) -> io::Result<u64> {
    let sizes = members.iter().map(Opened::size).collect::<io::Result<Vec<u64>>>()?;
    if !members.iter().all(|member| member.is_regular) {
        return Ok(layout.bytes(sizes.iter().copied().min().unwrap_or(0)));
    }
    let total: u64 = sizes.iter().sum();
    let wanted = |member: u64| layout.bytes_on(member, total);
    match sizes.iter().zip(0_u64..).find(|(size, member)| **size != wanted(*member)) {
        None => Ok(total),
        Some((size, member)) => {
            let (number, wanted) = (member + 1, wanted(member));
            let chunk = layout.chunk_bytes();
            let what = format!(
                "file {number} has {size} bytes, but a stripe of {total} bytes with chunks of \
                 {chunk} bytes needs {wanted} bytes in this file; specify all files in the order \
                 of the stripe, and the chunk size of the stripe"
            );
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    }
}
