//! A device of known truth at work: moments of arrival become moments of completion.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::request::Op;
use crate::truth::{BufferTruth, PrefetchTruth, StripeTruth, Truth, moving_ns};

/// Granularity of the cache (bytes).
const BLOCK_BYTES: u64 = 4096;

/// The device at work: requests come in the order of their arrival.
#[derive(Clone, Debug)]
pub struct Schedule {
    truth: Truth,
    members: Vec<Member>,
    link: Line,
}

impl Schedule {
    /// A device at rest: caches and buffers empty, credit whole.
    pub fn new(truth: Truth) -> Schedule {
        let members = truth.stripe.map_or(1, |stripe| stripe.members.max(1));
        let members = (0..members).map(|_| Member::new(&truth)).collect();
        Schedule { members, link: Line::default(), truth }
    }

    /// The parameters.
    pub fn truth(&self) -> &Truth {
        &self.truth
    }

    /// When a request that arrives now will be complete (ns, of the caller's clock).
    pub fn admit(&mut self, now_ns: u64, op: Op, offset: u64, length: u32) -> u64 {
        let mut last = now_ns;
        for piece in Pieces::of(self.truth.stripe, offset, length) {
            let member = &mut self.members[piece.member];
            let done = member.admit(&self.truth, now_ns, op, (piece.offset, piece.length));
            last = last.max(done);
        }
        match self.truth.link_bytes_per_s {
            Some(_) => {
                let ns = moving_ns(u64::from(length), self.truth.link_bytes_per_s);
                self.link.carry(now_ns, last, ns)
            }
            None => last,
        }
    }
}

/// What of a request goes to one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    member: usize,
    /// On that member (bytes).
    offset: u64,
    length: u32,
}

/// The pieces of a request, in the order of their offsets; one at least.
#[derive(Clone, Copy, Debug)]
struct Pieces {
    members: u64,
    chunk_bytes: u64,
    offset: u64,
    left: Option<u32>,
}

impl Pieces {
    fn of(stripe: Option<StripeTruth>, offset: u64, length: u32) -> Pieces {
        let (members, chunk_bytes) = match stripe {
            Some(stripe) => (u64::from(stripe.members.max(1)), stripe.chunk_bytes.max(1)),
            None => (1, u64::MAX),
        };
        Pieces { members, chunk_bytes, offset, left: Some(length) }
    }
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let left = self.left?;
        let (chunk, within) = (self.offset / self.chunk_bytes, self.offset % self.chunk_bytes);
        let length = u64::from(left).min(self.chunk_bytes - within) as u32;
        let piece = Piece {
            member: (chunk % self.members) as usize,
            offset: chunk / self.members * self.chunk_bytes + within,
            length,
        };
        self.left = Some(left - length).filter(|left| *left > 0);
        self.offset = self.offset.saturating_add(u64::from(length));
        Some(piece)
    }
}

/// One device of a stripe, or all there is.
#[derive(Clone, Debug)]
struct Member {
    /// When each server is free again (ns).
    servers: Vec<u64>,
    bus: Line,
    cache: Lru,
    ahead: Ahead,
    buffered: Level,
    tokens: Level,
}

impl Member {
    fn new(truth: &Truth) -> Member {
        let tokens = truth.credit.map_or(0.0, |credit| credit.bytes as f64);
        Member {
            servers: vec![0; truth.parallelism.max(1) as usize],
            bus: Line::default(),
            cache: Lru::new(truth.cache.map_or(0, |cache| cache.bytes / BLOCK_BYTES)),
            ahead: Ahead::default(),
            buffered: Level::default(),
            tokens: Level { amount: tokens, at_ns: 0 },
        }
    }

    /// When a request for `(offset, length)` that arrives now will be complete (ns).
    fn admit(&mut self, truth: &Truth, now_ns: u64, op: Op, range: (u64, u32)) -> u64 {
        let earliest = (0..self.servers.len()).min_by_key(|i| self.servers[*i]).unwrap_or(0);
        let begin = now_ns.max(self.servers[earliest]);
        let served = match self.hit_ns(truth, begin, op, range) {
            Some(hit_ns) => begin.saturating_add(hit_ns),
            None => {
                let served = self.serve(truth, (now_ns, begin), op, range);
                self.ahead.missed(op, range, served);
                served
            }
        };
        self.ahead.passed(op, range);
        let done = self.spend(truth, begin, served, range.1);
        self.servers[earliest] = done;
        done
    }

    /// What a read costs that finds its data there; None where it does not (ns).
    fn hit_ns(&mut self, truth: &Truth, begin: u64, op: Op, range: (u64, u32)) -> Option<u64> {
        let cached = self.cache.touch(range.0, range.1);
        if op == Op::Write {
            return None;
        }
        let prefetch = truth.prefetch.filter(|what| {
            let rate = truth.rate_at(self.ahead.from);
            self.ahead.has(what, rate, begin, range)
        });
        let cache = truth.cache.filter(|_| cached).map(|cache| cache.hit_ns);
        cache.or(prefetch.map(|prefetch| prefetch.hit_ns))
    }

    /// Server, buffer and bus, from the moment at which a server begins.
    fn serve(&mut self, truth: &Truth, at: (u64, u64), op: Op, range: (u64, u32)) -> u64 {
        let ((now_ns, begin), (offset, length)) = (at, range);
        let held_ns = truth.fixed_ns.saturating_add(truth.alignment_ns(op, offset, length));
        let mut ready = begin.saturating_add(held_ns);
        if let Some(buffer) = truth.buffer.filter(|_| op == Op::Write) {
            ready = self.buffer(ready, buffer, length);
        }
        self.bus.carry(now_ns, ready, truth.transfer_at_ns(offset, length))
    }

    /// When the write buffer has room; the room is taken.
    fn buffer(&mut self, ready: u64, buffer: BufferTruth, length: u32) -> u64 {
        let BufferTruth { bytes, drain_bytes_per_s } = buffer;
        let level = &mut self.buffered;
        let from = ready.max(level.at_ns);
        level.advance(from, -drain_bytes_per_s, f64::MAX);
        level.amount = level.amount.max(0.0);
        let excess = (level.amount + f64::from(length) - bytes as f64).max(0.0);
        let room_at = from.saturating_add((excess / drain_bytes_per_s * 1e9).round() as u64);
        level.advance(room_at, -drain_bytes_per_s, f64::MAX);
        level.amount = level.amount.max(0.0) + f64::from(length);
        room_at
    }

    /// When the bucket has the tokens for a request; they are spent.
    fn spend(&mut self, truth: &Truth, begin: u64, served: u64, length: u32) -> u64 {
        let Some(credit) = truth.credit else { return served };
        let rate = credit.sustained_bytes_per_s;
        self.tokens.advance(begin, rate, credit.bytes as f64);
        self.tokens.amount -= f64::from(length);
        let missing = (-self.tokens.amount).max(0.0);
        served.max(self.tokens.at_ns.saturating_add((missing / rate * 1e9).round() as u64))
    }
}

/// What carries one transfer at a time: each as soon as it is ready and there is room between
/// those that are known already.
#[derive(Clone, Debug, Default)]
struct Line {
    /// When it is taken, in order, apart from each other (ns).
    taken: VecDeque<(u64, u64)>,
}

impl Line {
    /// When a transfer of `ns` is over that is ready at `ready`, not before now; the time is taken.
    fn carry(&mut self, now_ns: u64, ready: u64, ns: u64) -> u64 {
        if ns == 0 {
            return ready;
        }
        while self.taken.front().is_some_and(|(_, until)| *until <= now_ns) {
            self.taken.pop_front();
        }
        let (mut begin, mut place) = (ready, 0_usize);
        for (from, until) in &self.taken {
            if begin.saturating_add(ns) <= *from {
                break;
            }
            begin = begin.max(*until);
            place += 1;
        }
        let end = begin.saturating_add(ns);
        match place.checked_sub(1).and_then(|before| self.taken.get_mut(before)) {
            Some(before) if before.1 == begin => before.1 = end,
            _ => {
                self.taken.insert(place, (begin, end));
                place += 1;
            }
        }
        if let Some(after) = self.taken.get(place).copied().filter(|after| after.0 == end) {
            self.taken[place - 1].1 = after.1;
            self.taken.remove(place);
        }
        end
    }
}

/// What the device reads on its own behind a sequential reader.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead {
    /// Where the last read ended, if there was one (bytes).
    read_end: Option<u64>,
    /// Since when it reads on, if it does (ns) ...
    since_ns: Option<u64>,
    /// ... and from where (bytes).
    from: u64,
}

impl Ahead {
    /// Whether a range has been read by now.
    fn has(&self, what: &PrefetchTruth, rate: Option<f64>, now: u64, range: (u64, u32)) -> bool {
        let end = range.0.saturating_add(u64::from(range.1));
        let (Some(since_ns), Some(far)) = (self.since_ns, end.checked_sub(self.from)) else {
            return false;
        };
        let passed_ns = now.checked_sub(since_ns);
        range.0 >= self.from
            && far <= what.bytes
            && passed_ns.is_some_and(|passed_ns| passed_ns >= moving_ns(far, rate))
    }

    /// The medium was needed for a request, until `done`.
    fn missed(&mut self, op: Op, range: (u64, u32), done: u64) {
        let continues = op == Op::Read && self.read_end == Some(range.0);
        self.since_ns = continues.then_some(done);
        self.from = range.0.saturating_add(u64::from(range.1));
    }

    /// A request, hit or miss, has come.
    fn passed(&mut self, op: Op, range: (u64, u32)) {
        if op == Op::Read {
            self.read_end = Some(range.0.saturating_add(u64::from(range.1)));
        }
    }
}

/// An amount that changes at a constant rate and was last looked at some time ago.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    amount: f64,
    at_ns: u64,
}

impl Level {
    /// Moves on to a moment, never back, staying between 0 and `most`.
    fn advance(&mut self, to_ns: u64, per_s: f64, most: f64) {
        let passed = to_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        self.amount = (self.amount + passed * per_s).clamp(self.amount.min(0.0), most);
        self.at_ns = self.at_ns.max(to_ns);
    }
}

/// The blocks in the cache, by how long ago they were touched.
#[derive(Clone, Debug, Default)]
struct Lru {
    most: u64,
    stamp: u64,
    stamp_of: HashMap<u64, u64>,
    block_of: BTreeMap<u64, u64>,
}

impl Lru {
    fn new(most: u64) -> Lru {
        Lru { most, ..Lru::default() }
    }

    /// Brings a range in; whether all of it was there already.
    fn touch(&mut self, offset: u64, length: u32) -> bool {
        if self.most == 0 {
            return false;
        }
        let last = (offset.saturating_add(u64::from(length))).div_ceil(BLOCK_BYTES);
        let mut all = true;
        for block in offset / BLOCK_BYTES..last {
            self.stamp += 1;
            match self.stamp_of.insert(block, self.stamp) {
                Some(old) => {
                    self.block_of.remove(&old);
                }
                None => all = false,
            }
            self.block_of.insert(self.stamp, block);
            if self.stamp_of.len() as u64 > self.most
                && let Some((_, evicted)) = self.block_of.pop_first()
            {
                self.stamp_of.remove(&evicted);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::{CacheTruth, CreditTruth, GranuleTruth, Zone};
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    /// Keeps `depth` requests outstanding for `count` requests; when the last is complete (ns),
    /// and the moment at which each was.
    fn closed_loop(truth: &Truth, op: Op, length: u32, depth: u32, count: u64) -> Vec<u64> {
        let mut schedule = Schedule::new(truth.clone());
        let mut outstanding = std::collections::BinaryHeap::new();
        let mut done = Vec::new();
        for number in 0..count {
            let now = if (outstanding.len() as u32) < depth {
                0
            } else {
                let std::cmp::Reverse(at) = outstanding.pop().unwrap();
                done.push(at);
                at
            };
            let at = schedule.admit(now, op, number * u64::from(length), length);
            outstanding.push(std::cmp::Reverse(at));
        }
        done.extend(outstanding.into_sorted_vec().into_iter().rev().map(|r| r.0));
        done.sort_unstable();
        done
    }

    fn rate(done: &[u64]) -> f64 {
        done.len() as f64 * 1e9 / done[done.len() - 1] as f64
    }

    #[test]
    fn one_outstanding_request_takes_fixed_plus_transfer() {
        let truth = Truth {
            fixed_ns: 500_000,
            bytes_per_s: Some(500e6),
            parallelism: 8,
            ..Truth::default()
        };
        let done = closed_loop(&truth, Op::Read, 250_000, 1, 100);
        assert_eq!(done[0], 1_000_000);
        assert_eq!(done[99], 100_000_000);
        assert_eq!(truth.half_power_bytes(), Some(250_000.0));
    }

    #[test]
    fn throughput_follows_the_closed_form_at_every_depth() {
        let truth = Truth {
            fixed_ns: 1_000_000,
            bytes_per_s: Some(400e6),
            parallelism: 6,
            ..Truth::default()
        };
        for depth in 1..12 {
            let measured = rate(&closed_loop(&truth, Op::Read, 65536, depth, 20_000));
            let expected = truth.requests_per_s(65536, depth);
            assert!((measured / expected - 1.0).abs() < 0.002, "{depth}: {measured} {expected}");
        }
    }

    #[test]
    fn the_bus_is_the_limit_beyond_the_half_power_depth_twice_over() {
        let truth = Truth {
            fixed_ns: 900_000,
            bytes_per_s: Some(655.36e6),
            parallelism: 64,
            ..Truth::default()
        };
        let half = truth.half_power_depth(65536).unwrap();
        assert!((half - 5.0).abs() < 1e-9, "{half}");
        let full = truth.requests_per_s(65536, 64);
        assert!((truth.requests_per_s(65536, 5) / full - 0.5).abs() < 1e-9);
        assert!((truth.requests_per_s(65536, 10) / full - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_cyclic_reader_hits_up_to_the_cache_size_and_never_beyond() {
        let cache = Some(CacheTruth { bytes: 8 * MIB, hit_ns: 10 });
        let truth = Truth { fixed_ns: 1000, cache, ..Truth::default() };
        for (region, hits) in [(8 * MIB, true), (8 * MIB + 65536, false)] {
            let mut schedule = Schedule::new(truth.clone());
            let requests = region / 65536;
            let mut took = Vec::new();
            for pass in 0..3 {
                for number in 0..requests {
                    let now = (pass * requests + number) * 10_000;
                    took.push(schedule.admit(now, Op::Read, number * 65536, 65536) - now);
                }
            }
            let second_pass = &took[requests as usize..];
            assert!(second_pass.iter().all(|ns| (*ns == 10) == hits), "{region}");
        }
    }

    #[test]
    fn a_write_buffer_takes_its_size_at_full_speed_and_then_drains() {
        let buffer = Some(BufferTruth { bytes: 64 * MIB, drain_bytes_per_s: 50e6 });
        let truth = Truth { bytes_per_s: Some(200e6), buffer, ..Truth::default() };
        let length = 65536_u32;
        let done = closed_loop(&truth, Op::Write, length, 4, 4000);
        // Full after B / (in - out) seconds, having taken B in / (in - out) bytes.
        let full_s = (64 * MIB) as f64 / 150e6;
        let before = done.iter().filter(|at| (**at as f64) < full_s * 1e9).count() as f64;
        assert!((before * f64::from(length) / (full_s * 200e6) - 1.0).abs() < 0.01, "{before}");
        let last = &done[3000..];
        let seconds = (last[last.len() - 1] - last[0]) as f64 / 1e9;
        let drained = (last.len() - 1) as f64 * f64::from(length) / seconds;
        assert!((drained / 50e6 - 1.0).abs() < 0.001, "{drained}");
        assert!(
            (rate(&closed_loop(&truth, Op::Read, length, 4, 4000)) * f64::from(length) / 200e6
                - 1.0)
                .abs()
                < 0.001,
            "reads pass the buffer by"
        );
    }

    #[test]
    fn credit_is_spent_at_the_burst_rate_and_leaves_the_sustained_one() {
        let credit = Some(CreditTruth { bytes: 100_000_000, sustained_bytes_per_s: 50e6 });
        let truth = Truth { bytes_per_s: Some(200e6), credit, ..Truth::default() };
        let done = closed_loop(&truth, Op::Read, 100_000, 2, 4000);
        let spent_s = 100e6 / 150e6;
        let before = done.iter().filter(|at| (**at as f64) < spent_s * 1e9).count() as f64;
        assert!((before * 1e5 / (spent_s * 200e6) - 1.0).abs() < 0.01, "{before}");
        let last = &done[3000..];
        let seconds = (last[last.len() - 1] - last[0]) as f64 / 1e9;
        assert!(((last.len() - 1) as f64 * 1e5 / seconds / 50e6 - 1.0).abs() < 0.001);
    }

    #[test]
    fn credit_comes_back_at_rest_but_never_more_than_the_bucket() {
        let credit = Some(CreditTruth { bytes: 1_000_000, sustained_bytes_per_s: 1e6 });
        let mut schedule = Schedule::new(Truth { credit, ..Truth::default() });
        assert_eq!(schedule.admit(0, Op::Read, 0, 1_000_000), 0);
        assert_eq!(schedule.admit(0, Op::Read, 0, 500_000), 500_000_000);
        assert_eq!(schedule.admit(100_000_000_000, Op::Read, 0, 1_000_000), 100_000_000_000);
        assert_eq!(schedule.admit(100_000_000_000, Op::Read, 0, 1000), 100_001_000_000);
    }

    /// One request after the other, each `think_ns` after the one before was complete; how long
    /// each took (ns).
    fn reader(truth: &Truth, length: u32, think_ns: u64, count: u64) -> Vec<u64> {
        let (mut schedule, mut now) = (Schedule::new(truth.clone()), 0);
        let took = |number: u64| {
            let done = schedule.admit(now, Op::Read, number * u64::from(length), length);
            let took = done - now;
            now = done + think_ns;
            took
        };
        (0..count).map(took).collect()
    }

    #[test]
    fn a_pause_shows_the_depth_of_the_prefetch() {
        let prefetch = Some(PrefetchTruth { bytes: MIB, hit_ns: 10 });
        let truth =
            Truth { fixed_ns: 5_000_000, bytes_per_s: Some(100e6), prefetch, ..Truth::default() };
        let mut schedule = Schedule::new(truth);
        let mut hits = |begin: u64, number: u64| {
            // Never two at once.
            let now = begin + number * 20_000_000;
            schedule.admit(now, Op::Read, number * 65536, 65536) - now == 10
        };
        assert!(!hits(0, 0) && !hits(0, 1), "the second read continues the first");
        let hits = (2..40).take_while(|number| hits(1_000_000_000, *number)).count();
        assert_eq!(hits as u64, MIB / 65536);
    }

    #[test]
    fn what_was_read_ahead_is_lost_to_a_write_and_to_a_reader_elsewhere() {
        let prefetch = Some(PrefetchTruth { bytes: MIB, hit_ns: 10 });
        let truth = Truth { bytes_per_s: Some(1e9), prefetch, ..Truth::default() };
        for (op, offset) in [(Op::Write, 0), (Op::Read, 1 << 30)] {
            let mut schedule = Schedule::new(truth.clone());
            let mut took =
                |now: u64, op: Op, offset: u64| schedule.admit(now, op, offset, 4000) - now;
            took(0, Op::Read, 0);
            took(10_000_000, Op::Read, 4000);
            assert_eq!(took(20_000_000, Op::Read, 8000), 10);
            took(30_000_000, op, offset);
            assert_eq!(took(40_000_000, Op::Read, 12_000), 4000, "{op:?}");
        }
    }

    #[test]
    fn hits_pass_the_link_and_nothing_else() {
        let cache = Some(CacheTruth { bytes: MIB, hit_ns: 1000 });
        let truth = Truth {
            fixed_ns: 5_000_000,
            bytes_per_s: Some(10e6),
            cache,
            link_bytes_per_s: Some(100e6),
            ..Truth::default()
        };
        let mut schedule = Schedule::new(truth.clone());
        assert_eq!(schedule.admit(0, Op::Read, 0, 100_000), truth.alone_ns(100_000));
        let later = 1_000_000_000;
        assert_eq!(schedule.admit(later, Op::Read, 0, 100_000) - later, 1000 + 1_000_000);
    }

    #[test]
    fn whoever_is_ready_first_passes_the_link_first() {
        let stripe = Some(StripeTruth { members: 2, chunk_bytes: 4096 });
        let truth = Truth {
            fixed_ns: 1_000_000,
            stripe,
            link_bytes_per_s: Some(4.096e9),
            ..Truth::default()
        };
        let mut schedule = Schedule::new(truth);
        // The first member is busy for three requests, the second is not.
        let first = [0, 2, 4].map(|chunk| schedule.admit(0, Op::Read, chunk * 4096, 4096));
        assert_eq!(first, [1_001_000, 2_001_000, 3_001_000]);
        assert_eq!(schedule.admit(0, Op::Read, 4096, 4096), 1_002_000);
    }

    #[test]
    fn a_line_carries_one_at_a_time_and_wastes_no_room() {
        let mut line = Line::default();
        assert_eq!(line.carry(0, 100, 10), 110);
        assert_eq!(line.carry(0, 0, 95), 95, "fits before");
        assert_eq!(line.carry(0, 90, 6), 116, "does not fit between");
        assert_eq!(line.carry(0, 90, 5), 100, "does");
        assert_eq!(line.taken, [(0, 116)]);
        assert_eq!(line.carry(116, 0, 4), 4, "what is over is forgotten");
    }

    /// Devices with several servers, a bus and perhaps a stripe and a link; every chunk takes
    /// whole nanoseconds on the bus.
    fn striped() -> impl Strategy<Value = Truth> {
        let stripe = (1_u32..6, 1_u64..5)
            .prop_map(|(members, chunk)| StripeTruth { members, chunk_bytes: chunk * 4096 });
        let rates = prop_oneof![Just(None), (1_u32..2000).prop_map(|mb| Some(f64::from(mb) * 1e6))];
        (0_u64..300_000, rates.clone(), 1_u32..6, prop::option::of(stripe), rates).prop_map(
            |(fixed_ns, bytes_per_s, parallelism, stripe, link_bytes_per_s)| Truth {
                fixed_ns,
                bytes_per_s,
                parallelism,
                stripe,
                link_bytes_per_s,
                ..Truth::default()
            },
        )
    }

    proptest! {
        #[test]
        fn a_request_alone_takes_what_the_closed_form_says(
            truth in striped(),
            length in 1_u32..200_000,
            turn in 0_u64..1000,
        ) {
            let offset = turn * truth.stripe.map_or(1, |s| s.chunk_bytes * u64::from(s.members));
            let mut schedule = Schedule::new(truth.clone());
            let now = 1_000_000;
            prop_assert_eq!(
                schedule.admit(now, Op::Read, offset, length) - now,
                truth.alone_ns(length)
            );
            let idle = 100_000_000_000;
            prop_assert_eq!(
                schedule.admit(idle, Op::Write, offset, length) - idle,
                truth.alone_ns(length)
            );
        }

        #[test]
        fn many_requests_saturate_what_the_closed_form_says(
            truth in striped(),
            pieces in 1_u32..5,
        ) {
            let chunk = truth.stripe.map_or(8192, |stripe| stripe.chunk_bytes as u32);
            for length in [chunk * pieces, chunk / 4] {
                let expected = truth.saturated_bytes_per_s(length);
                prop_assume!(truth.alone_ns(length) > 0 && expected.is_finite());
                let done = closed_loop(&truth, Op::Read, length, 300, 6000);
                // Between two moments far from both ends.
                let seconds = (done[5000] - done[1000]) as f64 / 1e9;
                let measured = 4000.0 * f64::from(length) / seconds;
                prop_assert!((measured / expected - 1.0).abs() < 0.03, "{measured} {expected}");
            }
        }

        #[test]
        fn every_byte_of_a_request_goes_to_one_place_of_one_member(
            members in 1_u32..6,
            chunk_bytes in 1_u64..1000,
            offset in 0_u64..10_000,
            length in 1_u32..3000,
        ) {
            let stripe = StripeTruth { members, chunk_bytes };
            let mut at = offset;
            for piece in Pieces::of(Some(stripe), offset, length) {
                for byte in 0..u64::from(piece.length) {
                    let (chunk, within) = ((at + byte) / chunk_bytes, (at + byte) % chunk_bytes);
                    prop_assert_eq!(piece.member as u64, chunk % u64::from(members));
                    let own = chunk / u64::from(members) * chunk_bytes + within;
                    prop_assert_eq!(piece.offset + byte, own);
                }
                at += u64::from(piece.length);
            }
            prop_assert_eq!(at, offset + u64::from(length));
        }

        #[test]
        fn the_rate_is_that_of_the_zone_in_which_a_request_begins(
            ends in prop::collection::btree_set(1_u64..1 << 30, 1..6),
            offset in 0_u64..1 << 31,
            length in 1_u32..1_000_000,
        ) {
            let rate = |number: usize| 1e6 * (100 - number) as f64;
            let zones: Vec<Zone> = ends
                .iter()
                .enumerate()
                .map(|(number, end)| Zone { end_bytes: *end, bytes_per_s: rate(number) })
                .collect();
            let number = ends.iter().filter(|end| **end <= offset).count().min(ends.len() - 1);
            let truth = Truth { fixed_ns: 1000, zones, ..Truth::default() };
            prop_assert_eq!(truth.rate_at(offset), Some(rate(number)));
            let took = Schedule::new(truth).admit(0, Op::Read, offset, length);
            let expected = (f64::from(length) * 1e9 / rate(number)).round() as u64;
            prop_assert_eq!(took, 1000 + expected);
        }

        #[test]
        fn a_request_pays_for_each_granule_it_writes_in_part_and_for_straddling(
            bytes in 1_u64..600,
            offset in 0_u64..2000,
            length in 1_u32..2000,
        ) {
            let granule = Some(GranuleTruth { bytes, rewrite_ns: 1000, straddle_ns: 7 });
            let truth = Truth { fixed_ns: 5, granule, ..Truth::default() };
            let end = offset + u64::from(length);
            // Counted granule by granule.
            let touched = (0..end.div_ceil(bytes)).filter(|g| (g + 1) * bytes > offset);
            let (mut count, mut partial) = (0, 0);
            for granule in touched {
                count += 1;
                let whole = offset <= granule * bytes && (granule + 1) * bytes <= end;
                partial += u64::from(!whole);
            }
            let straddles = u64::from(count > u64::from(length).div_ceil(bytes));
            for (op, rewritten) in [(Op::Read, 0), (Op::Write, partial)] {
                let took = Schedule::new(truth.clone()).admit(0, op, offset, length);
                prop_assert_eq!(took, 5 + 1000 * rewritten + 7 * straddles);
                prop_assert_eq!(truth.alignment_ns(op, offset, length), took - 5);
            }
        }

        #[test]
        fn thinking_turns_misses_into_as_many_hits_as_the_prefetch_holds(
            bytes in 1_u64..40_000,
            hit_ns in 0_u64..50,
            ns_per_byte in 1_u32..20,
            length in 1_u32..3000,
            think_ns in 0_u64..60_000,
        ) {
            let truth = Truth {
                fixed_ns: 1000,
                bytes_per_s: Some(1e9 / f64::from(ns_per_byte)),
                prefetch: Some(PrefetchTruth { bytes, hit_ns }),
                ..Truth::default()
            };
            let took = reader(&truth, length, think_ns, 200);
            // Hits cost less than the fixed time of every miss; the first read continues none.
            let misses: Vec<usize> = (1..took.len()).filter(|i| took[*i] >= 1000).collect();
            prop_assert_eq!(misses[0], 1);
            let hits = truth.hits_per_miss(length, think_ns);
            let apart = misses.windows(2).all(|pair| (pair[1] - pair[0]) as u64 == hits + 1);
            prop_assert!(apart, "{hits} hits, misses at {misses:?}");
            prop_assert!(misses.len() > 1 || hits >= 198);
        }
    }
}
