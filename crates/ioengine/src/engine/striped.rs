//! An engine that combines several files into one striped target. It splits each request at chunk
//! boundaries into pieces. A request completes when its last piece completes.
//!
//! One inner engine issues the pieces for all files, so each batch still needs only one system
//! call. Each piece has its own slot in the inner engine.

use crate::clock::{Clock, Monotonic};
use crate::engine::{Engine, Setup};
use crate::error::{Error, ErrorKind};
use crate::request::{Completion, Request};
use crate::stripe::Layout;

/// The maximum number of pieces in flight. It equals the maximum depth of io_uring with SQPOLL.
const PIECES_MAX: u64 = 16_384;

/// An engine that combines several files into one striped target. It splits each request at chunk
/// boundaries into pieces. A request completes when its last piece completes.
#[derive(Debug)]
pub struct Striped<E> {
    inner: E,
    layout: Layout,
    pieces_bits: u32,
    requests: Vec<PendingRequest>,
    /// For each slot of the inner engine, the result of its piece.
    results: Vec<i32>,
    in_flight: u32,
    pieces: Vec<Request>,
    arrived: Vec<Completion>,
    clock: Monotonic,
}

/// The request in a slot, and the number of its pieces in flight. The request is None if the slot
/// is free.
#[derive(Clone, Copy, Debug, Default)]
struct PendingRequest {
    request: Option<Request>,
    pieces_left: u32,
}

/// Returns the base-2 logarithm of the maximum number of pieces per request. The number is first
/// rounded up to a power of two.
///
/// # Errors
/// `ErrorKind::Usage` if more than 16384 pieces could be in flight.
pub fn pieces_bits(layout: &Layout, depth: u32, request_bytes: u32) -> Result<u32, Error> {
    let pieces = layout.pieces_max(request_bytes).next_power_of_two();
    if pieces.saturating_mul(u64::from(depth)) > PIECES_MAX {
        let what = format!(
            "`depth` {depth} with requests of {request_bytes} bytes gives more than {PIECES_MAX} \
             pieces in flight, of up to {} bytes each",
            layout.chunk_bytes()
        );
        return Err(Error::new(ErrorKind::Usage, what)
            .with_remedy("use a larger `chunk_bytes`, or a smaller `request_bytes` or `depth`"));
    }
    Ok(pieces.trailing_zeros())
}

impl<E: Engine> Striped<E> {
    /// Wraps an engine on all files of the stripe. Each group of `1 << pieces_bits` slots of
    /// `inner` must share one memory area.
    pub fn new(inner: E, layout: Layout, pieces_bits: u32) -> Self {
        let slots = (inner.slots() >> pieces_bits) as usize;
        Striped {
            layout,
            pieces_bits,
            requests: vec![PendingRequest::default(); slots],
            results: vec![0; inner.slots() as usize],
            in_flight: 0,
            pieces: Vec::with_capacity(inner.slots() as usize),
            arrived: Vec::with_capacity(inner.slots() as usize),
            clock: Monotonic::new(),
            inner,
        }
    }

    /// Splits a request into pieces and appends them to `pieces`.
    fn split(&mut self, request: &Request) {
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
        assert!(entry.request.is_none(), "the slot is already in flight");
        assert!(count > 0 && count <= 1 << self.pieces_bits, "the request does not fit its slot");
        *entry = PendingRequest { request: Some(*request), pieces_left: count };
        self.in_flight += 1;
    }

    /// Processes completed pieces. Appends the requests whose pieces are all complete to `done`.
    fn process_arrived(&mut self, done: &mut Vec<Completion>) {
        for at in 0..self.arrived.len() {
            let Completion { slot, result } = self.arrived[at];
            self.results[slot as usize] = result;
            let slot = slot >> self.pieces_bits;
            let pending = &mut self.requests[slot as usize];
            pending.pieces_left = pending.pieces_left.saturating_sub(1);
            if pending.pieces_left == 0
                && let Some(request) = pending.request.take()
            {
                self.in_flight -= 1;
                done.push(Completion { slot, result: self.outcome(&request) });
            }
        }
        self.arrived.clear();
    }

    /// Combines the results of a request's pieces. Returns the number of bytes before the first
    /// byte that was not transferred. If no byte was transferred before a piece failed, returns the
    /// negated error number of that piece.
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

    /// Returns a lower bound on the number of pieces that must complete before `wanted` more
    /// requests can complete.
    fn pieces_wanted(&self, wanted: u32) -> u32 {
        if wanted == 0 {
            return 0;
        }
        let pending = self.requests.iter().filter(|pending| pending.request.is_some());
        wanted * pending.map(|pending| pending.pieces_left).min().unwrap_or(0)
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

    fn flush(&mut self) -> Result<bool, Error> {
        self.inner.flush()
    }

    fn submit_and_wait(
        &mut self,
        batch: &[Request],
        at_least: u32,
        until_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        for request in batch {
            self.split(request);
        }
        let goal = done.len() + at_least.min(self.in_flight) as usize;
        loop {
            let wanted = self.pieces_wanted(goal.saturating_sub(done.len()) as u32);
            self.inner.submit_and_wait(&self.pieces, wanted, until_ns, &mut self.arrived)?;
            self.pieces.clear();
            self.process_arrived(done);
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

    /// An engine that completes requests immediately with given results, in reverse order of
    /// submission.
    struct ScriptedEngine {
        slots: u32,
        answers: Vec<i32>,
        submitted: Vec<Request>,
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
            self.submitted.extend(batch);
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
    fn a_request_reports_the_bytes_before_the_first_short_piece() {
        for (answers, wanted) in [
            ([2048, 4096, 2048], 8192),
            ([2048, 4096, 0], 6144),
            ([2048, 512, 2048], 2560),
            ([2048, -libc::EIO, 2048], 2048),
            ([-libc::EIO, 4096, 2048], -libc::EIO),
            ([0, 4096, 2048], 0),
        ] {
            let scripted =
                ScriptedEngine { slots: 8, answers: answers.to_vec(), submitted: Vec::new() };
            let mut engine = Striped::new(scripted, layout(), 2);
            let mut done = Vec::new();
            let batch = [read(2048, 8192, 1)];
            engine.submit_and_wait(&batch, 1, None, &mut done).unwrap();
            assert_eq!(done, [Completion { slot: 1, result: wanted }], "{answers:?}");
            assert_eq!(engine.in_flight(), 0);
        }
    }

    #[test]
    fn pieces_go_to_their_members_and_are_contiguous_in_memory() {
        let scripted =
            ScriptedEngine { slots: 8, answers: vec![2048, 4096, 2048], submitted: Vec::new() };
        let mut engine = Striped::new(scripted, layout(), 2);
        engine.submit_and_wait(&[read(2048, 8192, 1)], 1, None, &mut Vec::new()).unwrap();
        let submitted: Vec<_> = engine.inner.submitted.iter().map(|r| (r.file, r.offset)).collect();
        assert_eq!(submitted, [(0, 2048), (1, 0), (0, 4096)]);
        let placed: Vec<_> = engine.inner.submitted.iter().map(|r| (r.slot, r.within)).collect();
        assert_eq!(placed, [(4, 0), (5, 2048), (6, 6144)]);
    }

    #[test]
    fn members_work_at_the_same_time() {
        // Each of the 4 devices serves 4 of the 16 requests, one after the other.
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
        assert!((8_000_000..32_000_000).contains(&fastest), "{fastest} ns, not 8 to 32 ms");
    }

    #[test]
    fn more_pieces_than_a_ring_holds_are_refused_with_a_remedy() {
        assert_eq!(pieces_bits(&layout(), 16, 4096).unwrap(), 1);
        let error = pieces_bits(&layout(), 1024, 1 << 20).unwrap_err().to_string();
        assert!(error.contains("; use a larger `chunk_bytes`"), "{error}");
    }
}
