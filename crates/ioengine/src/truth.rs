//! A device whose every answer is known beforehand, as arithmetic: parameters and a schedule.
//!
//! What the instrument measures on such a device can be held against what it must measure. The
//! model is small enough for closed forms: a request holds one of `parallelism` servers for
//! `fixed_ns`, then the one bus for `length / bytes_per_s`; around them may lie a read cache, a
//! write buffer that drains, and a token bucket. [`Schedule`] turns arrivals into moments of
//! completion and knows no clock, so that the personality `delay`, the crate `fusefile` and a test
//! all run the same device. It shares nothing with the simulator: each checks the other.

use std::collections::{BTreeMap, HashMap};

use crate::request::Op;

/// What the device does, each part with its parameters. The default answers at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    /// How long each request holds a server before its data move (ns).
    pub fixed_ns: u64,
    /// Rate of the bus that all servers share (bytes per second); None: data move in no time.
    pub bytes_per_s: Option<f64>,
    /// Requests served at the same time.
    pub parallelism: u32,
    /// Reads of what was read or written before.
    pub cache: Option<CacheTruth>,
    /// Writes accepted before they are on the medium.
    pub buffer: Option<BufferTruth>,
    /// A token bucket over all requests.
    pub credit: Option<CreditTruth>,
    /// CPU time that the device burns for each request in the thread that submits it (ns); only
    /// the personality `delay` does.
    pub cpu_ns: u64,
}

/// A least-recently-used cache of 4 KiB blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheTruth {
    /// Its size (bytes).
    pub bytes: u64,
    /// What a read costs whose blocks are all in it, in place of everything else (ns).
    pub hit_ns: u64,
}

/// A write buffer: writes are accepted at the speed of servers and bus until it is full, then as
/// fast as it drains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BufferTruth {
    /// Its size (bytes).
    pub bytes: u64,
    /// Rate at which it empties (bytes per second).
    pub drain_bytes_per_s: f64,
}

/// Burst credit as cloud volumes have it: full at the start, spent by the bytes moved, refilled
/// at the sustained rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CreditTruth {
    /// The bucket (bytes).
    pub bytes: u64,
    /// The rate that lasts (bytes per second).
    pub sustained_bytes_per_s: f64,
}

impl Default for Truth {
    fn default() -> Self {
        Truth {
            fixed_ns: 0,
            bytes_per_s: None,
            parallelism: 1,
            cache: None,
            buffer: None,
            credit: None,
            cpu_ns: 0,
        }
    }
}

/// Granularity of the cache (bytes).
const BLOCK_BYTES: u64 = 4096;

impl Truth {
    /// Time that a request's data hold the bus (ns).
    pub fn transfer_ns(&self, length: u32) -> u64 {
        self.bytes_per_s.map_or(0, |rate| (f64::from(length) * 1e9 / rate).round() as u64)
    }

    /// Time of one request on an idle device, without cache, buffer and credit (ns).
    pub fn service_ns(&self, length: u32) -> u64 {
        self.fixed_ns.saturating_add(self.transfer_ns(length))
    }

    /// Requests per second with `depth` outstanding, without cache, buffer and credit: the
    /// asymptotic bound min(k / T, 1 / bus time), which deterministic service reaches (Denning
    /// and Buzen, The operational analysis of queueing network models, 1978).
    pub fn requests_per_s(&self, length: u32, depth: u32) -> f64 {
        let busy = f64::from(depth.min(self.parallelism)) * 1e9 / self.service_ns(length) as f64;
        match self.transfer_ns(length) {
            0 => busy,
            bus_ns => busy.min(1e9 / bus_ns as f64),
        }
    }

    /// The request size at which one outstanding request gets half of the bus's rate: T = f + s S
    /// gives n1/2 = f / s (Hockney's half-performance length). None without a bus rate.
    pub fn half_power_bytes(&self) -> Option<f64> {
        self.bytes_per_s.map(|rate| self.fixed_ns as f64 / 1e9 * rate)
    }

    /// The depth, as a real number, at which requests of this size get half of the bus's rate.
    pub fn half_power_depth(&self, length: u32) -> Option<f64> {
        let bus_ns = self.transfer_ns(length);
        (bus_ns > 0).then(|| self.service_ns(length) as f64 / bus_ns as f64 / 2.0)
    }
}

/// The device at work: requests come in the order of their arrival.
#[derive(Clone, Debug)]
pub struct Schedule {
    truth: Truth,
    /// When each server is free again (ns).
    servers: Vec<u64>,
    bus_free_ns: u64,
    cache: Lru,
    buffered: Level,
    tokens: Level,
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

impl Schedule {
    /// A device at rest: cache and buffer empty, credit whole.
    pub fn new(truth: Truth) -> Schedule {
        let tokens = truth.credit.map_or(0.0, |credit| credit.bytes as f64);
        Schedule {
            servers: vec![0; truth.parallelism.max(1) as usize],
            bus_free_ns: 0,
            cache: Lru::new(truth.cache.map_or(0, |cache| cache.bytes / BLOCK_BYTES)),
            buffered: Level::default(),
            tokens: Level { amount: tokens, at_ns: 0 },
            truth,
        }
    }

    /// The parameters.
    pub fn truth(&self) -> &Truth {
        &self.truth
    }

    /// When a request that arrives now will be complete (ns, of the caller's clock).
    pub fn admit(&mut self, now_ns: u64, op: Op, offset: u64, length: u32) -> u64 {
        let earliest = (0..self.servers.len()).min_by_key(|i| self.servers[*i]).unwrap_or(0);
        let begin = now_ns.max(self.servers[earliest]);
        let hit = self.truth.cache.filter(|_| self.cache.touch(offset, length) && op == Op::Read);
        let served = match hit {
            Some(cache) => begin.saturating_add(cache.hit_ns),
            None => self.serve(begin, op, length),
        };
        let done = self.spend(begin, served, length);
        self.servers[earliest] = done;
        done
    }

    /// Server, buffer and bus.
    fn serve(&mut self, begin: u64, op: Op, length: u32) -> u64 {
        let mut ready = begin.saturating_add(self.truth.fixed_ns);
        if let Some(buffer) = self.truth.buffer.filter(|_| op == Op::Write) {
            ready = self.buffer(ready, buffer, length);
        }
        let on_bus = ready.max(self.bus_free_ns);
        let done = on_bus.saturating_add(self.truth.transfer_ns(length));
        if self.truth.bytes_per_s.is_some() {
            self.bus_free_ns = done;
        }
        done
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
    fn spend(&mut self, begin: u64, served: u64, length: u32) -> u64 {
        let Some(credit) = self.truth.credit else { return served };
        let rate = credit.sustained_bytes_per_s;
        self.tokens.advance(begin, rate, credit.bytes as f64);
        self.tokens.amount -= f64::from(length);
        let missing = (-self.tokens.amount).max(0.0);
        served.max(self.tokens.at_ns.saturating_add((missing / rate * 1e9).round() as u64))
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
        let last = (offset + u64::from(length)).div_ceil(BLOCK_BYTES);
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

    const MIB: u64 = 1 << 20;

    /// Keeps `depth` requests outstanding for `count` requests; when the last is complete (ns),
    /// and the moment at which each was.
    fn closed_loop(truth: Truth, op: Op, length: u32, depth: u32, count: u64) -> Vec<u64> {
        let mut schedule = Schedule::new(truth);
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
        let done = closed_loop(truth, Op::Read, 250_000, 1, 100);
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
            let measured = rate(&closed_loop(truth, Op::Read, 65536, depth, 20_000));
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
            let mut schedule = Schedule::new(truth);
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
        let done = closed_loop(truth, Op::Write, length, 4, 4000);
        // Full after B / (in - out) seconds, having taken B in / (in - out) bytes.
        let full_s = (64 * MIB) as f64 / 150e6;
        let before = done.iter().filter(|at| (**at as f64) < full_s * 1e9).count() as f64;
        assert!((before * f64::from(length) / (full_s * 200e6) - 1.0).abs() < 0.01, "{before}");
        let last = &done[3000..];
        let seconds = (last[last.len() - 1] - last[0]) as f64 / 1e9;
        let drained = (last.len() - 1) as f64 * f64::from(length) / seconds;
        assert!((drained / 50e6 - 1.0).abs() < 0.001, "{drained}");
        assert!(
            (rate(&closed_loop(truth, Op::Read, length, 4, 4000)) * f64::from(length) / 200e6
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
        let done = closed_loop(truth, Op::Read, 100_000, 2, 4000);
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
}
