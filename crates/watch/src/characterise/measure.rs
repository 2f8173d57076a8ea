//! Second pass over a trace: the measurements that depend on the groups. For each group and thread,
//! these are the number of requests in flight, the pauses, and the time from the first to the last
//! request. For each group with random order, the accesses to each block are counted as well.
//!
//! Memory is bounded: the accesses of at most a million blocks of each group are counted. If a
//! group has more blocks, only those whose hash is below a limit are counted. The limit is halved
//! as often as needed, so the counted blocks are a random sample.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use analysis::popularity::{Observed, PARTS};
use trace::{FileId, Operation, Request};

use super::groups::{Groups, OrderKind};
use super::shapes::Shapes;

/// Maximum number of blocks of a group whose accesses are counted.
const BLOCKS_MAX: usize = 1 << 20;
/// Maximum number of threads that are tracked, over all groups.
const THREADS_MAX: usize = 1 << 13;
/// Maximum number of requests in flight that are tracked for a thread.
const DEPTH_MAX: usize = 1 << 12;

/// A histogram of durations by powers of two. Each class has the number and the sum of its
/// durations (ns).
#[derive(Clone, Copy, Debug)]
pub struct Times {
    counts: [u64; 65],
    sums: [u64; 65],
}

impl Default for Times {
    fn default() -> Times {
        Times { counts: [0; 65], sums: [0; 65] }
    }
}

impl Times {
    fn add(&mut self, ns: u64) {
        let class = (u64::BITS - ns.leading_zeros()) as usize;
        self.counts[class] += 1;
        self.sums[class] = self.sums[class].saturating_add(ns);
    }

    /// Returns the number and the sum of the durations in the given class and all higher classes.
    pub fn at_least(&self, class: usize) -> (u64, f64) {
        let sum = self.sums[class..].iter().map(|sum| *sum as f64).sum();
        (self.counts[class..].iter().sum(), sum)
    }

    /// Returns the number and the sum of all durations.
    pub fn all(&self) -> (u64, f64) {
        self.at_least(0)
    }

    /// Returns the highest class such that the durations from this class upwards make up at least
    /// the given share of the total duration.
    pub fn class_of_share(&self, share: f64) -> usize {
        let all = self.all().1;
        (0..self.counts.len())
            .rev()
            .find(|class| self.at_least(*class).1 >= share * all)
            .unwrap_or(0)
    }

    /// Returns a copy without the durations in the given class and all higher classes.
    pub fn below(&self, class: usize) -> Times {
        let mut below = *self;
        below.counts[class..].fill(0);
        below.sums[class..].fill(0);
        below
    }
}

/// The state of a thread within a group.
#[derive(Clone, Debug, Default)]
struct Thread {
    in_flight: BinaryHeap<Reverse<u64>>,
    first_ns: Option<u64>,
    end_ns: u64,
    flush_ns: u64,
}

/// Measurements of the second pass for a group.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Number of requests at each depth. The index is the depth. The depth of a request is the
    /// number of requests that its thread has in flight after the submission, including the new
    /// request.
    pub depths: Vec<u64>,
    /// Pauses between two requests of a thread, during which the thread had no request in flight.
    pub gaps: Times,
    /// Time from the start of a thread's first request to the end of its last request, summed over
    /// all threads (ns).
    pub thread_ns: f64,
    /// Total duration of the flushes of all threads (ns).
    pub flush_ns: f64,
    /// Start of the first request and end of the last request, over all threads (ns).
    pub span_ns: (u64, u64),
    /// Sum of the times between the starts of successive requests (ns), and sum of their squares.
    pub between_starts: (f64, f64),
    blocks: Blocks,
    last_start_ns: Option<u64>,
}

impl Measured {
    /// Returns the time from the start of the first request to the end of the last request (ns).
    pub fn duration_ns(&self) -> u64 {
        self.span_ns.1.saturating_sub(self.span_ns.0)
    }

    /// Returns the counted accesses to a region that has `blocks` blocks.
    pub fn observed(&self, blocks: u64) -> Observed {
        let mut blocks_by_accesses = BTreeMap::new();
        for count in self.blocks.counts.values() {
            *blocks_by_accesses.entry(u64::from(*count)).or_default() += 1;
        }
        Observed {
            blocks_by_accesses,
            blocks: blocks.max(self.blocks.counts.len() as u64),
            counted_share: 0.5_f64.powi(self.blocks.halvings as i32),
            accesses: self.blocks.accesses,
            by_part: self.blocks.by_part,
        }
    }

    /// Checks whether only a sample of the blocks was counted.
    pub fn is_sample(&self) -> bool {
        self.blocks.halvings > 0
    }

    fn start(&mut self, thread: &mut Thread, request: &Request) {
        let start = request.start_ns;
        if let Some(last) = self.last_start_ns {
            let between = start.saturating_sub(last) as f64;
            self.between_starts.0 += between;
            self.between_starts.1 += between * between;
        } else {
            self.span_ns = (start, start);
        }
        self.last_start_ns = Some(start);
        while thread.in_flight.peek().is_some_and(|Reverse(end)| *end <= start) {
            thread.in_flight.pop();
        }
        if thread.in_flight.is_empty() && thread.first_ns.is_some() {
            self.gaps.add(start.saturating_sub(thread.end_ns));
        }
        let end = request.end_ns().unwrap_or(start);
        if thread.in_flight.len() < DEPTH_MAX {
            thread.in_flight.push(Reverse(end));
        }
        let depth = thread.in_flight.len();
        if self.depths.len() <= depth {
            self.depths.resize(depth + 1, 0);
        }
        self.depths[depth] += 1;
        self.span(thread, start, end);
    }

    fn span(&mut self, thread: &mut Thread, start: u64, end: u64) {
        thread.first_ns = Some(thread.first_ns.map_or(start, |first| first.min(start)));
        thread.end_ns = thread.end_ns.max(end);
        self.span_ns = (self.span_ns.0.min(start), self.span_ns.1.max(end));
    }
}

/// Number of accesses to each block. The key is a hash of file and block.
#[derive(Clone, Debug)]
struct Blocks {
    counts: HashMap<u64, u32>,
    halvings: u32,
    accesses: u64,
    by_part: [u64; PARTS],
}

impl Default for Blocks {
    fn default() -> Blocks {
        Blocks { counts: HashMap::new(), halvings: 0, accesses: 0, by_part: [0; PARTS] }
    }
}

impl Blocks {
    fn add(&mut self, file: FileId, block: u64) {
        self.accesses += 1;
        let hash = mixed(block ^ mixed(u64::from(file.0)));
        if !self.is_counted(hash) {
            return;
        }
        let count = self.counts.entry(hash).or_default();
        *count = count.saturating_add(1);
        while self.counts.len() > BLOCKS_MAX {
            self.halvings += 1;
            let halvings = self.halvings;
            self.counts.retain(|hash, _| hash >> (64 - halvings.min(63)) == 0);
        }
    }

    fn is_counted(&self, hash: u64) -> bool {
        self.halvings == 0 || hash >> (64 - self.halvings.min(63)) == 0
    }
}

/// Hashes a value with the finaliser of SplitMix64. This is a bijection, so different values have
/// different hashes.
fn mixed(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// State of the second pass over a trace.
#[derive(Debug)]
pub struct Measure<'a> {
    shapes: &'a Shapes,
    groups: &'a Groups,
    measured: Vec<Measured>,
    threads: HashMap<(usize, u32), Thread>,
}

impl<'a> Measure<'a> {
    /// Starts the second pass over a trace.
    pub fn new(shapes: &'a Shapes, groups: &'a Groups) -> Measure<'a> {
        let measured = vec![Measured::default(); groups.groups.len()];
        Measure { shapes, groups, measured, threads: HashMap::new() }
    }

    /// Adds a request. The second pass must see the same requests as the first pass.
    pub fn take(&mut self, request: &Request) {
        if self.shapes.is_flush(request) {
            self.flush(request);
            return;
        }
        let pair = self.shapes.pair_of(request);
        let place = |pair| self.groups.place(pair, request.operation).map(|at| (pair, at));
        let Some((pair, at)) = pair.and_then(place) else { return };
        let group = &self.groups.groups[at];
        let has_room = self.threads.len() < THREADS_MAX;
        let key = (at, pair.thread);
        if has_room || self.threads.contains_key(&key) {
            let thread = self.threads.entry(key).or_default();
            self.measured[at].start(thread, request);
        }
        let is_random = matches!(group.kind.order, OrderKind::Random);
        if let Some(offset) = request.offset.filter(|_| is_random) {
            let blocks = &mut self.measured[at].blocks;
            blocks.add(request.file, offset / group.unit_bytes());
            // The accesses to each part of the region are counted only if all requests are in one
            // file.
            if let Some((low, high)) =
                group.ranges.get(&pair.file).filter(|_| group.ranges.len() == 1)
            {
                let length = u128::from(high - low).max(1);
                let part = u128::from(offset.saturating_sub(*low)) * PARTS as u128 / length;
                blocks.by_part[(part as usize).min(PARTS - 1)] += 1;
            }
        }
    }

    fn flush(&mut self, request: &Request) {
        let Some(end) = request.end_ns() else { return };
        let place = |pair| self.groups.place(pair, Operation::Write).map(|at| (at, pair));
        let Some((at, pair)) = self.shapes.flushed_pair(request).and_then(place) else { return };
        let Some(thread) = self.threads.get_mut(&(at, pair.thread)) else { return };
        thread.flush_ns = thread.flush_ns.saturating_add(end - request.start_ns);
        self.measured[at].span(thread, request.start_ns, end);
    }

    /// Returns the measurements of each group.
    pub fn finish(mut self) -> Vec<Measured> {
        for ((at, _), thread) in self.threads {
            let measured = &mut self.measured[at];
            let first = thread.first_ns.unwrap_or(thread.end_ns);
            measured.thread_ns += thread.end_ns.saturating_sub(first) as f64;
            measured.flush_ns += thread.flush_ns as f64;
        }
        self.measured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_blocks_than_fit_are_sampled() {
        let mut blocks = Blocks::default();
        let all = 3 * BLOCKS_MAX as u64;
        (0..2 * all).for_each(|access| blocks.add(FileId(3), access % all));
        assert_eq!(blocks.accesses, 2 * all);
        assert!(blocks.counts.len() <= BLOCKS_MAX && blocks.counts.len() > BLOCKS_MAX / 4);
        // Every access to a block in the sample must have been counted, including the first.
        assert!(blocks.counts.values().all(|count| *count == 2));
        let share = 0.5_f64.powi(blocks.halvings as i32);
        let counted = blocks.counts.len() as f64 / all as f64;
        assert!((counted / share - 1.0).abs() < 0.01, "{counted} instead of {share}");
    }

    #[test]
    fn times_are_divided_by_their_length() {
        let mut times = Times::default();
        (0..90).for_each(|_| times.add(100));
        (0..10).for_each(|_| times.add(100_000));
        let class = times.class_of_share(0.9);
        assert_eq!(times.at_least(class), (10, 1_000_000.0));
        assert_eq!(times.below(class).all(), (90, 9_000.0));
        times.add(u64::MAX);
        assert_eq!(times.at_least(64).0, 1);
    }
}
