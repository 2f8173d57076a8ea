//! Computes the completion times of requests to a reference device from their arrival times.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::request::Op;
use crate::truth::{BufferTruth, PrefetchTruth, StripeTruth, Truth, moving_ns};

/// Size of a cache block (bytes).
const BLOCK_BYTES: u64 = 4096;

/// The state of a reference device. Requests must be admitted in order of arrival.
#[derive(Clone, Debug)]
pub struct Schedule {
    truth: Truth,
    members: Vec<Member>,
    link: SerialResource,
}

impl Schedule {
    /// Creates an idle device with empty caches and buffers and full credit.
    pub fn new(truth: Truth) -> Schedule {
        let members = truth.stripe.map_or(1, |stripe| stripe.members.max(1));
        let members = (0..members).map(|_| Member::new(&truth)).collect();
        Schedule { members, link: SerialResource::default(), truth }
    }

    /// Returns the parameters of the device.
    pub fn truth(&self) -> &Truth {
        &self.truth
    }

    /// Returns the completion time of a request that arrives at `now_ns`. Both times are in ns of
    /// the caller's clock.
    pub fn admit(&mut self, now_ns: u64, op: Op, offset: u64, length: u32) -> u64 {
        let mut last = now_ns;
        for piece in Pieces::of(self.truth.stripe, offset, length) {
            let member = &mut self.members[piece.member];
            let done = member.admit(&self.truth, now_ns, op, piece.range);
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

/// A piece of a request, which one device of the stripe serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    member: usize,
    range: Range,
}

/// A range of bytes on one device of the stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    offset: u64,
    length: u32,
}

impl Range {
    fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }
}

/// Iterator over the pieces of a request in order of offset. A request of 0 bytes has one piece.
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
            range: Range { offset: chunk / self.members * self.chunk_bytes + within, length },
        };
        self.left = Some(left - length).filter(|left| *left > 0);
        self.offset = self.offset.saturating_add(u64::from(length));
        Some(piece)
    }
}

/// One device of a stripe, or the whole device if there is no stripe.
#[derive(Clone, Debug)]
struct Member {
    /// Time at which each server becomes free (ns).
    servers: Vec<u64>,
    bus: SerialResource,
    cache: Lru,
    prefetcher: Prefetcher,
    buffered: FillLevel,
    tokens: FillLevel,
}

impl Member {
    fn new(truth: &Truth) -> Member {
        let tokens = truth.credit.map_or(0.0, |credit| credit.bytes as f64);
        Member {
            servers: vec![0; truth.parallelism.max(1) as usize],
            bus: SerialResource::default(),
            cache: Lru::new(truth.cache.map_or(0, |cache| cache.bytes / BLOCK_BYTES)),
            prefetcher: Prefetcher::default(),
            buffered: FillLevel::default(),
            tokens: FillLevel { amount: tokens, at_ns: 0 },
        }
    }

    /// Returns the completion time of a request that arrives at `now_ns` (ns).
    fn admit(&mut self, truth: &Truth, now_ns: u64, op: Op, range: Range) -> u64 {
        let earliest = (0..self.servers.len()).min_by_key(|i| self.servers[*i]).unwrap_or(0);
        let begin = now_ns.max(self.servers[earliest]);
        let served = match self.hit_ns(truth, begin, op, range) {
            Some(hit_ns) => begin.saturating_add(hit_ns),
            None => {
                let served = self.serve(truth, now_ns, begin, op, range);
                self.prefetcher.missed(op, range, served);
                served
            }
        };
        self.prefetcher.passed(op, range);
        let done = self.spend(truth, begin, served, range.length);
        self.servers[earliest] = done;
        done
    }

    /// Returns the service time of a read that hits the cache or the prefetch (ns), or None for a
    /// miss or a write. Adds the range to the cache.
    fn hit_ns(&mut self, truth: &Truth, begin: u64, op: Op, range: Range) -> Option<u64> {
        let cached = self.cache.touch(range.offset, range.length);
        if op == Op::Write {
            return None;
        }
        let prefetch = truth.prefetch.filter(|what| {
            let rate = truth.rate_at(self.prefetcher.from);
            self.prefetcher.has(what, rate, begin, range)
        });
        let cache = truth.cache.filter(|_| cached).map(|cache| cache.hit_ns);
        cache.or(prefetch.map(|prefetch| prefetch.hit_ns))
    }

    /// Returns the time at which the server, the write buffer and the bus have finished a request
    /// that starts at `begin` (ns).
    fn serve(&mut self, truth: &Truth, now_ns: u64, begin: u64, op: Op, range: Range) -> u64 {
        let Range { offset, length } = range;
        let held_ns = truth.fixed_ns.saturating_add(truth.alignment_ns(op, offset, length));
        let mut ready = begin.saturating_add(held_ns);
        if let Some(buffer) = truth.buffer.filter(|_| op == Op::Write) {
            ready = self.buffer(ready, buffer, length);
        }
        self.bus.carry(now_ns, ready, truth.transfer_at_ns(offset, length))
    }

    /// Adds `length` bytes to the write buffer at the time `ready` or later. Returns the time at
    /// which the buffer has room for them (ns).
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

    /// Takes the tokens for a request from the bucket. Returns the later of two times (ns):
    /// `served`, and the time at which the bucket is no longer overdrawn.
    fn spend(&mut self, truth: &Truth, begin: u64, served: u64, length: u32) -> u64 {
        let Some(credit) = truth.credit else { return served };
        let rate = credit.sustained_bytes_per_s;
        self.tokens.advance(begin, rate, credit.bytes as f64);
        self.tokens.amount -= f64::from(length);
        let missing = (-self.tokens.amount).max(0.0);
        served.max(self.tokens.at_ns.saturating_add((missing / rate * 1e9).round() as u64))
    }
}

/// A bus or link that carries one transfer at a time. Each new transfer is scheduled in the first
/// sufficiently long gap between the scheduled transfers, or after the last of them.
#[derive(Clone, Debug, Default)]
struct SerialResource {
    /// Busy intervals as (start, end), in order of time, with gaps between them (ns).
    busy: VecDeque<(u64, u64)>,
}

impl SerialResource {
    /// Schedules a transfer that takes `ns` and cannot start before `ready`. Returns the time at
    /// which the transfer ends (ns). Removes busy intervals that are over at `now_ns`.
    fn carry(&mut self, now_ns: u64, ready: u64, ns: u64) -> u64 {
        if ns == 0 {
            return ready;
        }
        while self.busy.front().is_some_and(|(_, until)| *until <= now_ns) {
            self.busy.pop_front();
        }
        let (mut begin, mut place) = (ready, 0_usize);
        for (from, until) in &self.busy {
            if begin.saturating_add(ns) <= *from {
                break;
            }
            begin = begin.max(*until);
            place += 1;
        }
        let end = begin.saturating_add(ns);
        match place.checked_sub(1).and_then(|before| self.busy.get_mut(before)) {
            Some(before) if before.1 == begin => before.1 = end,
            _ => {
                self.busy.insert(place, (begin, end));
                place += 1;
            }
        }
        if let Some(after) = self.busy.get(place).copied().filter(|after| after.0 == end) {
            self.busy[place - 1].1 = after.1;
            self.busy.remove(place);
        }
        end
    }
}

/// The device's read-ahead for a sequential reader.
#[derive(Clone, Copy, Debug, Default)]
struct Prefetcher {
    /// End offset of the last read (bytes). None before the first read.
    read_end: Option<u64>,
    /// Time at which the read-ahead started (ns). None if the read-ahead is not active.
    since_ns: Option<u64>,
    /// Offset at which the read-ahead started (bytes).
    from: u64,
}

impl Prefetcher {
    /// Returns whether a range has been prefetched by `now`.
    fn has(&self, what: &PrefetchTruth, rate: Option<f64>, now: u64, range: Range) -> bool {
        let distance = range.end().checked_sub(self.from);
        let (Some(since_ns), Some(distance)) = (self.since_ns, distance) else {
            return false;
        };
        let passed_ns = now.checked_sub(since_ns);
        range.offset >= self.from
            && distance <= what.bytes
            && passed_ns.is_some_and(|passed_ns| passed_ns >= moving_ns(distance, rate))
    }

    /// Records a request that missed and used the medium until `done`. A read that continues the
    /// previous read starts the read-ahead. Any other request ends the read-ahead.
    fn missed(&mut self, op: Op, range: Range, done: u64) {
        let continues = op == Op::Read && self.read_end == Some(range.offset);
        self.since_ns = continues.then_some(done);
        self.from = range.end();
    }

    /// Records the end offset of a read. Is called for hits and for misses.
    fn passed(&mut self, op: Op, range: Range) {
        if op == Op::Read {
            self.read_end = Some(range.end());
        }
    }
}

/// An amount that changes at a constant rate, with the time of its last update.
#[derive(Clone, Copy, Debug, Default)]
struct FillLevel {
    amount: f64,
    at_ns: u64,
}

impl FillLevel {
    /// Advances the amount to a later time, with a change of `per_s` per second. The new amount is
    /// at least 0 and at most `most`. If the old amount is negative, the new amount may be negative
    /// too, but is at least the old amount.
    fn advance(&mut self, to_ns: u64, per_s: f64, most: f64) {
        let passed = to_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        self.amount = (self.amount + passed * per_s).clamp(self.amount.min(0.0), most);
        self.at_ns = self.at_ns.max(to_ns);
    }
}

/// The cached blocks, in order of last use.
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

    /// Adds a range to the cache. Returns whether the whole range was already cached.
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

    /// Sends `count` requests in a closed loop with `depth` requests outstanding. Returns the
    /// sorted completion times (ns).
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
    fn twice_the_half_power_depth_saturates_the_bus() {
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
        // With size B, input rate I and drain rate D, the buffer is full at the time B / (I - D).
        // It has then accepted B I / (I - D) bytes.
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
            "reads bypass the buffer"
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

    /// Reads sequentially with a pause of `think_ns` after each completion. Returns the latencies
    /// (ns).
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
            // The requests are far enough apart not to overlap.
            let now = begin + number * 20_000_000;
            schedule.admit(now, Op::Read, number * 65536, 65536) - now == 10
        };
        assert!(!hits(0, 0) && !hits(0, 1), "the first two reads must miss");
        let hits = (2..40).take_while(|number| hits(1_000_000_000, *number)).count();
        assert_eq!(hits as u64, MIB / 65536);
    }

    #[test]
    fn a_write_or_a_read_elsewhere_ends_the_prefetch() {
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
    fn a_cache_hit_costs_only_the_hit_and_the_link() {
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
    fn the_link_serves_requests_in_order_of_readiness() {
        let stripe = Some(StripeTruth { members: 2, chunk_bytes: 4096 });
        let truth = Truth {
            fixed_ns: 1_000_000,
            stripe,
            link_bytes_per_s: Some(4.096e9),
            ..Truth::default()
        };
        let mut schedule = Schedule::new(truth);
        // Three requests are queued at the first device, none at the second.
        let first = [0, 2, 4].map(|chunk| schedule.admit(0, Op::Read, chunk * 4096, 4096));
        assert_eq!(first, [1_001_000, 2_001_000, 3_001_000]);
        assert_eq!(schedule.admit(0, Op::Read, 4096, 4096), 1_002_000);
    }

    #[test]
    fn a_serial_resource_fills_gaps() {
        let mut bus = SerialResource::default();
        assert_eq!(bus.carry(0, 100, 10), 110);
        assert_eq!(bus.carry(0, 0, 95), 95, "fits before the first interval");
        assert_eq!(bus.carry(0, 90, 6), 116, "does not fit between the intervals");
        assert_eq!(bus.carry(0, 90, 5), 100, "fits between the intervals");
        assert_eq!(bus.busy, [(0, 116)]);
        assert_eq!(bus.carry(116, 0, 4), 4, "past intervals are removed");
    }

    /// Generates random devices with several servers, a bus, and possibly a stripe and a link.
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
                // The start and the end of the run are not measured, because not all devices are
                // busy then.
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
                for byte in 0..u64::from(piece.range.length) {
                    let (chunk, within) = ((at + byte) / chunk_bytes, (at + byte) % chunk_bytes);
                    prop_assert_eq!(piece.member as u64, chunk % u64::from(members));
                    let own = chunk / u64::from(members) * chunk_bytes + within;
                    prop_assert_eq!(piece.range.offset + byte, own);
                }
                at += u64::from(piece.range.length);
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
            // A hit takes less than 1000 ns, the fixed time of a miss. Read 1 is a miss too,
            // because read 0 continues no other read and so starts no read-ahead.
            let misses: Vec<usize> = (1..took.len()).filter(|i| took[*i] >= 1000).collect();
            prop_assert_eq!(misses[0], 1);
            let hits = truth.hits_per_miss(length, think_ns);
            let apart = misses.windows(2).all(|pair| (pair[1] - pair[0]) as u64 == hits + 1);
            prop_assert!(apart, "{hits} hits, misses at {misses:?}");
            prop_assert!(misses.len() > 1 || hits >= 198);
        }
    }
}
