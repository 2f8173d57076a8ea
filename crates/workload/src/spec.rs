//! A workload as it is wanted: plain data, no side effects.
//!
//! Names follow fio where fio has one (docs/vocabulary.md). Sizes are bytes, times nanoseconds.

use std::fmt;
use std::sync::Arc;

use ioengine::{BufferPages, EngineKind, EngineOptions, EngineSpec};

use crate::written::Written;

/// In which order the blocks of the region are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One after the other, starting again at the end.
    Sequential,
    /// Every so many bytes; shifted by one request at each pass, until all have been visited.
    Strided {
        /// From the start of one request to the start of the next (bytes).
        stride_bytes: u64,
    },
    /// Every block exactly once in each pass, in an order drawn from the seed.
    Random,
}

/// How often a random pattern visits which block.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Distribution {
    /// Every block once in each pass.
    #[default]
    Even,
    /// The k-th most popular block k to the power of `theta` times less often than the most
    /// popular one; popular blocks lie scattered over the region.
    Zipf {
        /// The exponent, above 0.
        theta: f64,
    },
    /// A share `h` of the blocks gets the share `1 - h` of the accesses, and so again within that
    /// share (80/20 is `h` = 0.2); popular blocks lie scattered over the region.
    Pareto {
        /// Between 0 and 1.
        h: f64,
    },
    /// Parts of the region, in the order of their offsets, each visited evenly.
    Zoned(Vec<Zone>),
}

/// A part of the region with its share of the accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Share of the accesses (percent); those of all zones are 100.
    pub access_percent: u8,
    /// Share of the region (percent); those of all zones are 100.
    pub region_percent: u8,
}

/// A request size with its share of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeShare {
    /// Size of the request (bytes).
    pub request_bytes: u32,
    /// Share of the requests (percent); those of all sizes are 100.
    pub percent: u8,
}

/// A pause between the completion of a request and the next one in its slot: each of the `depth`
/// slots is a user who looks at the answer before asking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Think {
    /// Length of the pause (ns).
    pub pause_ns: u64,
    /// A pause comes after so many requests of a slot.
    pub requests: u32,
}

/// Where the threads work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Placement {
    /// Each thread has its own part of the region.
    #[default]
    Own,
    /// All threads work on the whole region, sequential ones from different starts.
    Shared,
    /// All threads take the next request of one sequential stream over the region.
    Interlocked,
}

/// When requests are issued.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Arrival {
    /// Closed loop: a new request when one completes, `depth` outstanding.
    #[default]
    Closed,
    /// Open loop: requests are due at a constant rate, whatever the device does; latency counts
    /// from the moment a request was due, so that a stall is not hidden.
    Constant {
        /// Over all threads.
        requests_per_s: f64,
    },
    /// Open loop in which requests are due at random moments, independent of each other.
    Poisson {
        /// On average, over all threads.
        requests_per_s: f64,
    },
}

impl Arrival {
    /// The rate of an open loop, over all threads.
    pub fn requests_per_s(self) -> Option<f64> {
        match self {
            Arrival::Closed => None,
            Arrival::Constant { requests_per_s } | Arrival::Poisson { requests_per_s } => {
                Some(requests_per_s)
            }
        }
    }

    /// fio's name of the process of an open loop: "linear" or "poisson".
    pub fn process(self) -> Option<&'static str> {
        match self {
            Arrival::Closed => None,
            Arrival::Constant { .. } => Some("linear"),
            Arrival::Poisson { .. } => Some("poisson"),
        }
    }
}

/// When a rate counts as steady (SNIA Performance Test Specification, steady state).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// Number of one-second rates looked at.
    pub window: usize,
    /// The longest wait for it (ns); what follows is measured all the same and said to be
    /// unsteady.
    pub wait_ns: u64,
    /// Largest difference within the window, as a share of its mean.
    pub excursion: f64,
    /// Largest change of the fitted line over the window, as a share of the mean.
    pub slope: f64,
}

impl Default for Steady {
    /// Five rounds, 20% excursion, 10% slope: the numbers of the specification.
    fn default() -> Self {
        Steady { window: 5, wait_ns: 600_000_000_000, excursion: 0.2, slope: 0.1 }
    }
}

/// What the written blocks contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Content {
    /// Incompressible, and different in each block.
    #[default]
    Random,
    /// Zeros.
    Zero,
    /// Checksummed blocks that say what they are; reads check them.
    Verified,
}

/// Flushes in the midst of writing: after so many writes a thread waits for them, flushes, and goes
/// on, as a database does that commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushEvery {
    /// Writes of one thread from one flush to the next, at least 1.
    pub writes: u32,
    /// fdatasync(2) instead of fsync(2): of what describes the data only what is needed to find
    /// them again.
    pub data_only: bool,
}

impl FlushEvery {
    /// fio's name of the flag that asks for it.
    pub fn name(self) -> &'static str {
        if self.data_only { "fdatasync" } else { "fsync" }
    }
}

/// One workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// How requests are issued.
    pub engine_kind: EngineKind,
    /// In which order blocks are visited.
    pub pattern: Pattern,
    /// How often a random pattern visits which block.
    pub distribution: Distribution,
    /// Share of reads (percent): 100 reads only, 0 writes only.
    pub read_percent: u8,
    /// Size of each request; of the largest where `request_sizes` has several (bytes).
    pub request_bytes: u32,
    /// Sizes drawn for each request; empty: all have `request_bytes`.
    pub request_sizes: Vec<SizeShare>,
    /// Requests outstanding in each thread.
    pub depth: u32,
    /// Number of threads.
    pub threads: u32,
    /// Start of the region (bytes).
    pub region_offset: u64,
    /// Length of the region (bytes).
    pub region_bytes: u64,
    /// Where in its part of the region a thread's sequential requests begin (bytes; rounded down to
    /// whole requests). At the end of the part they go on at its start. Interlocked threads and
    /// strides begin at the start.
    pub start_bytes: u64,
    /// Where threads work within the region.
    pub placement: Placement,
    /// When requests are issued.
    pub arrival: Arrival,
    /// Pauses of a closed loop.
    pub think: Option<Think>,
    /// Stop after so many bytes over all threads.
    pub limit_bytes: Option<u64>,
    /// Stop after so long, counted from the end of the warm-up (ns).
    pub limit_ns: Option<u64>,
    /// Prolong the warm-up until the rate is steady.
    pub steady: Option<Steady>,
    /// Not counted at the start (ns).
    pub warm_up_ns: u64,
    /// What is written.
    pub content: Content,
    /// Verified writes note there what they have written. Verified reads judge only what is noted
    /// there, and read nothing else; without it they judge all that they read.
    pub written: Option<Arc<Written>>,
    /// Flush (fsync) when the last write has been accepted; the flush is part of the time.
    pub flush_at_end: bool,
    /// Flush in the midst of writing too.
    pub flush_every: Option<FlushEvery>,
    /// What is asked of the I/O engine beyond issuing requests.
    pub options: EngineOptions,
    /// Writes may grow the file beyond its present end.
    pub may_extend: bool,
    /// Every random choice comes from it.
    pub seed: u64,
    /// Thread i is pinned to the i-th of these CPUs (round robin); empty: not pinned.
    pub cpus: Vec<usize>,
    /// Pages behind the buffers.
    pub pages: BufferPages,
    /// Length of the intervals of the series (ns); doubled as often as needed to keep it short.
    pub interval_ns: u64,
    /// Each request is recorded, so many of each worker at the most.
    pub log: Option<usize>,
}

impl Default for Workload {
    /// Sequential reads of 64 KiB, one outstanding, over nothing: set the region and a limit.
    fn default() -> Self {
        Workload {
            engine_kind: EngineKind::Sync,
            pattern: Pattern::Sequential,
            distribution: Distribution::Even,
            read_percent: 100,
            request_bytes: 64 * 1024,
            request_sizes: Vec::new(),
            depth: 1,
            threads: 1,
            region_offset: 0,
            region_bytes: 0,
            start_bytes: 0,
            placement: Placement::Own,
            arrival: Arrival::Closed,
            think: None,
            limit_bytes: None,
            limit_ns: None,
            steady: None,
            warm_up_ns: 0,
            content: Content::Random,
            written: None,
            flush_at_end: false,
            flush_every: None,
            options: EngineOptions::default(),
            may_extend: false,
            seed: 42,
            cpus: Vec::new(),
            pages: BufferPages::Huge,
            interval_ns: 100_000_000,
            log: None,
        }
    }
}

impl Workload {
    /// fio's name for pattern and direction: read, write, rw, randread, randwrite, randrw.
    pub fn rw(&self) -> &'static str {
        match (self.pattern, self.read_percent) {
            (Pattern::Random, 100) => "randread",
            (Pattern::Random, 0) => "randwrite",
            (Pattern::Random, _) => "randrw",
            (_, 100) => "read",
            (_, 0) => "write",
            (_, _) => "rw",
        }
    }

    /// What the engine of each thread is to provide.
    pub fn engine_spec(&self) -> EngineSpec {
        EngineSpec {
            engine_kind: self.engine_kind,
            depth: self.depth,
            slot_bytes: self.request_bytes,
            pages: self.pages,
            options: self.options,
        }
    }

    /// Size of the smallest request, to a multiple of which offsets are aligned (bytes).
    pub fn granule_bytes(&self) -> u32 {
        let sizes = self.request_sizes.iter().map(|size| size.request_bytes);
        sizes.min().unwrap_or(self.request_bytes)
    }

    /// Whether any request writes.
    pub fn writes(&self) -> bool {
        self.read_percent < 100
    }

    /// Whether each completion is followed by a new request at once, so that as many are
    /// outstanding all the time: a closed loop without pauses and flushes.
    pub fn keeps_queue_full(&self) -> bool {
        self.arrival == Arrival::Closed && self.think.is_none() && self.flush_every.is_none()
    }
}

impl fmt::Display for Distribution {
    /// As fio writes it: `random`, `zipf:1.2`, `pareto:0.2`, `zoned:60/10:40/90`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Even => f.write_str("random"),
            Distribution::Zipf { theta } => write!(f, "zipf:{theta}"),
            Distribution::Pareto { h } => write!(f, "pareto:{h}"),
            Distribution::Zoned(zones) => {
                f.write_str("zoned")?;
                zones.iter().try_for_each(|zone| {
                    write!(f, ":{}/{}", zone.access_percent, zone.region_percent)
                })
            }
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pattern::Sequential => "sequential",
            Pattern::Strided { .. } => "strided",
            Pattern::Random => "random",
        })
    }
}
