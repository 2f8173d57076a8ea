//! A wrapper that makes one target of several: requests are cut at chunk boundaries, and each is
//! complete when its last piece is back.
//!
//! One engine serves all members, so that a batch still enters the kernel once. Each piece has a
//! slot of its own in it; the pieces of a request share its memory, each at its place.

use crate::clock::{Clock, Monotonic};
use crate::engine::{Engine, Setup};
use crate::error::{Error, ErrorKind};
use crate::request::{Completion, Request};
use crate::stripe::Layout;

/// The most pieces in flight: what one ring of the kernel holds, twice.
const PIECES_MAX: u64 = 16_384;

/// A wrapper that makes one target of several: requests are cut at chunk boundaries, and each is
/// complete when its last piece is back.
#[derive(Debug)]
pub struct Striped<E> {
    inner: E,
    layout: Layout,
    pieces_bits: u32,
    /// By slot: the request and how many of its pieces are not back.
    requests: Vec<(Option<Request>, u32)>,
    /// By slot of the engine within: what became of the piece.
    results: Vec<i32>,
    /// Those of `requests` that are in flight.
    in_flight: u32,
    pieces: Vec<Request>,
    arrived: Vec<Completion>,
    clock: Monotonic,
}

/// How many pieces a slot must have room for, as a power of two.
///
/// # Errors
/// Usage, when depth, request size and chunk make more pieces than can be in flight.
pub fn pieces_bits(layout: &Layout, depth: u32, request_bytes: u32) -> Result<u32, Error> {
    let pieces = layout.pieces_max(request_bytes).next_power_of_two();
    if pieces.saturating_mul(u64::from(depth)) > PIECES_MAX {
        let what = format!(
            "requests of {request_bytes} bytes at depth {depth} fall into more than {PIECES_MAX} \
             pieces of {} bytes",
            layout.chunk_bytes()
        );
        return Err(Error::new(ErrorKind::Usage, what)
            .with_remedy("use a larger `chunk_bytes`, or a smaller `request_bytes` or `depth`"));
    }
    Ok(pieces.trailing_zeros())
}

impl<E: Engine> Striped<E> {
    /// Wraps an engine on all members, whose every `1 << pieces_bits` slots share their memory.
    pub fn new(inner: E, layout: Layout, pieces_bits: u32) -> Self {
        let slots = (inner.slots() >> pieces_bits) as usize;
        Striped {
            layout,
            pieces_bits,
            requests: vec![(None, 0); slots],
            results: vec![0; inner.slots() as usize],
            in_flight: 0,
            pieces: Vec::with_capacity(inner.slots() as usize),
            arrived: Vec::with_capacity(inner.slots() as usize),
            clock: Monotonic::new(),
            inner,
        }
    }

    /// Cuts a request.
    fn cut(&mut self, request: &Request) {
        let first = request.slot << self.pieces_bits;
        let mut within = request.within;
        let mut count = 0;
        for piece in self.layout.pieces(request.offset, request.length) {
            self.pieces.push(Request {
                offset: piece.offset,
                length: piece.length,
                within,
                slot: first + count,
                file: piece.member,
                op: request.op,
            });
            within += piece.length;
            count += 1;
        }
        let entry = &mut self.requests[request.slot as usize];
        assert!(entry.0.is_none(), "the slot is already in flight");
        assert!(count > 0 && count <= 1 << self.pieces_bits, "the request does not fit its slot");
        *entry = (Some(*request), count);
        self.in_flight += 1;
    }

    /// Takes the pieces that are back; what is whole goes to `done`.
    fn gather(&mut self, done: &mut Vec<Completion>) {
        for at in 0..self.arrived.len() {
            let Completion { slot, result } = self.arrived[at];
            self.results[slot as usize] = result;
            let slot = slot >> self.pieces_bits;
            let (request, left) = &mut self.requests[slot as usize];
            *left = left.saturating_sub(1);
            if *left == 0
                && let Some(request) = request.take()
            {
                self.in_flight -= 1;
                done.push(Completion { slot, result: self.outcome(&request) });
            }
        }
        self.arrived.clear();
    }

    /// What a program would see of the pieces together: the bytes from the beginning up to the
    /// first piece that fell short, or its error where nothing lies before it.
    fn outcome(&self, request: &Request) -> i32 {
        let first = (request.slot << self.pieces_bits) as usize;
        let mut moved = 0;
        let pieces = self.layout.pieces(request.offset, request.length);
        for (piece, result) in pieces.zip(&self.results[first..]) {
            match *result {
                result if result == piece.length as i32 => moved += result,
                result if result >= 0 => return moved + result,
                _ if moved > 0 => return moved,
                error => return error,
            }
        }
        moved
    }

    /// So many pieces must come back at least before `wanted` more requests can be complete.
    fn pieces_wanted(&self, wanted: u32) -> u32 {
        if wanted == 0 {
            return 0;
        }
        let left = self.requests.iter().filter(|(request, _)| request.is_some());
        wanted * left.map(|(_, left)| *left).min().unwrap_or(0)
    }
}

impl<E: Engine> Engine for Striped<E> {
    fn slots(&self) -> u32 {
        self.requests.len() as u32
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        self.inner.buffer(slot << self.pieces_bits)
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn setup(&self) -> Setup {
        self.inner.setup()
    }

    fn submit_and_wait(
        &mut self,
        batch: &[Request],
        at_least: u32,
        until_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        for request in batch {
            self.cut(request);
        }
        let goal = done.len() + at_least.min(self.in_flight) as usize;
        loop {
            let wanted = self.pieces_wanted(goal.saturating_sub(done.len()) as u32);
            self.inner.submit_and_wait(&self.pieces, wanted, until_ns, &mut self.arrived)?;
            self.pieces.clear();
            self.gather(done);
            if done.len() >= goal || until_ns.is_some_and(|at| self.clock.now_ns() >= at) {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::BufferPages;
    use crate::engine::{Delay, DelayDevice, EngineKind, EngineOptions, EngineSpec};
    use crate::request::Op;
    use crate::truth::Truth;

    /// An engine that answers at once what it is told to, last piece first.
    struct ScriptedEngine {
        slots: u32,
        answers: Vec<i32>,
        asked: Vec<Request>,
    }

    impl Engine for ScriptedEngine {
        fn slots(&self) -> u32 {
            self.slots
        }

        fn buffer(&mut self, _slot: u32) -> &mut [u8] {
            &mut []
        }

        fn in_flight(&self) -> u32 {
            0
        }

        fn submit_and_wait(
            &mut self,
            batch: &[Request],
            _at_least: u32,
            _until_ns: Option<u64>,
            done: &mut Vec<Completion>,
        ) -> Result<(), Error> {
            self.asked.extend(batch);
            let answers = batch.iter().zip(&self.answers).rev();
            done.extend(answers.map(|(r, result)| Completion { slot: r.slot, result: *result }));
            Ok(())
        }
    }

    fn layout() -> Layout {
        Layout::new(2, 4096).unwrap()
    }

    fn read(offset: u64, length: u32, slot: u32) -> Request {
        Request { offset, length, within: 0, slot, file: 0, op: Op::Read }
    }

    #[test]
    fn a_request_tells_what_arrived_before_the_first_gap() {
        for (answers, wanted) in [
            ([2048, 4096, 2048], 8192),
            ([2048, 4096, 0], 6144),
            ([2048, 512, 2048], 2560),
            ([2048, -libc::EIO, 2048], 2048),
            ([-libc::EIO, 4096, 2048], -libc::EIO),
            ([0, 4096, 2048], 0),
        ] {
            let told = ScriptedEngine { slots: 8, answers: answers.to_vec(), asked: Vec::new() };
            let mut engine = Striped::new(told, layout(), 2);
            let mut done = Vec::new();
            let batch = [read(2048, 8192, 1)];
            engine.submit_and_wait(&batch, 1, None, &mut done).unwrap();
            assert_eq!(done, [Completion { slot: 1, result: wanted }], "{answers:?}");
            assert_eq!(engine.in_flight(), 0);
        }
    }

    #[test]
    fn pieces_go_to_their_members_and_lie_behind_each_other_in_memory() {
        let told = ScriptedEngine { slots: 8, answers: vec![2048, 4096, 2048], asked: Vec::new() };
        let mut engine = Striped::new(told, layout(), 2);
        engine.submit_and_wait(&[read(2048, 8192, 1)], 1, None, &mut Vec::new()).unwrap();
        let asked: Vec<_> = engine.inner.asked.iter().map(|r| (r.file, r.offset)).collect();
        assert_eq!(asked, [(0, 2048), (1, 0), (0, 4096)]);
        let placed: Vec<_> = engine.inner.asked.iter().map(|r| (r.slot, r.within)).collect();
        assert_eq!(placed, [(4, 0), (5, 2048), (6, 6144)]);
    }

    #[test]
    fn members_work_at_the_same_time() {
        // Of 16 chunks each of 4 members serves 4, one by one.
        let truth = Truth { fixed_ns: 2_000_000, ..Truth::default() };
        let devices = (0..4).map(|_| DelayDevice::new(truth.clone())).collect();
        let spec = EngineSpec {
            engine_kind: EngineKind::Delay,
            depth: 16,
            slot_bytes: 4096,
            pages: BufferPages::Small,
            options: EngineOptions::default(),
        };
        let layout = Layout::new(4, 4096).unwrap();
        let bits = pieces_bits(&layout, 16, 4096).unwrap();
        let mut engine = Striped::new(Delay::over(devices, bits, &spec).unwrap(), layout, bits);
        let clock = Monotonic::new();
        let batch: Vec<Request> = (0..16).map(|n| read(u64::from(n) * 4096, 4096, n)).collect();
        let mut once = || {
            let (start, mut done) = (clock.now_ns(), Vec::new());
            engine.submit_and_wait(&batch, 16, None, &mut done).unwrap();
            assert_eq!(done.len(), 16);
            clock.now_ns() - start
        };
        let fastest = (0..5).map(|_| once()).min().unwrap();
        assert!((8_000_000..32_000_000).contains(&fastest), "{fastest} ns, alone 32 ms");
    }

    #[test]
    fn more_pieces_than_a_ring_holds_are_refused_with_a_remedy() {
        assert_eq!(pieces_bits(&layout(), 16, 4096).unwrap(), 1);
        let error = pieces_bits(&layout(), 1024, 1 << 20).unwrap_err().to_string();
        assert!(error.contains("; use a larger `chunk_bytes`"), "{error}");
    }
}
