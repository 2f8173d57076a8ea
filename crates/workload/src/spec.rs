//! The description of a workload: plain data, no side effects.
//!
//! Names follow fio where fio has one (docs/vocabulary.md). Sizes are bytes, times nanoseconds.

use std::fmt;
use std::sync::Arc;

use ioengine::{BufferPages, EngineKind, EngineOptions, EngineSpec};

use crate::replay::Replay;
use crate::written::Written;

/// The order in which the blocks of the region are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Pattern {
    /// In order of offset; the pattern starts over at the end of the region.
    Sequential,
    /// At a fixed distance. Each pass over the region is shifted by one request, until all blocks
    /// have been visited.
    Strided {
        /// From the start of one request to the start of the next (bytes).
        stride_bytes: u64,
    },
    /// Every block exactly once in each pass, in an order drawn from the seed.
    Random,
}

/// How a random pattern distributes accesses over the blocks.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Distribution {
    /// Every block exactly once per pass.
    #[default]
    Even,
    /// Zipf's law: the k-th most popular block is accessed k^`theta` times less often than the most
    /// popular one. Popular blocks are scattered over the region.
    Zipf {
        /// The exponent, above 0.
        theta: f64,
    },
    /// A fraction `h` of the blocks gets the fraction `1 - h` of the accesses, and the same holds
    /// recursively within that fraction (80/20 is `h` = 0.2). Popular blocks are scattered over the
    /// region.
    Pareto {
        /// The fraction of popular blocks, between 0 and 1.
        h: f64,
    },
    /// Parts of the region, in order of offset, with uniform access within each.
    Zoned(Vec<Zone>),
}

/// A zone of the region with its share of the accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Share of the accesses (percent); the sum over all zones is 100.
    pub access_percent: u8,
    /// Share of the region (percent); the sum over all zones is 100.
    pub region_percent: u8,
}

/// A request size with its share of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeShare {
    /// Size of the request (bytes).
    pub request_bytes: u32,
    /// Share of the requests (percent); the sum over all sizes is 100.
    pub percent: u8,
}

/// Think time: a pause between the completion of a request and the next request in its slot, so
/// that each of the `depth` slots behaves like an interactive user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Think {
    /// Length of the pause (ns).
    pub pause_ns: u64,
    /// Number of requests of a slot between two pauses.
    pub requests: u32,
}

/// How threads share the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Placement {
    /// Each thread has its own part of the region.
    #[default]
    Own,
    /// All threads use the whole region; sequential threads start at different offsets.
    Shared,
    /// All threads take requests from one sequential stream over the region.
    Interlocked,
}

/// When requests are issued: closed or open loop.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Arrival {
    /// Closed loop: each completion is followed by a new request, so `depth` stay outstanding.
    #[default]
    Closed,
    /// Open loop: requests are due at a constant rate, whatever the device does. Latency is
    /// measured from the time a request was due, so that a stall is not hidden.
    Constant {
        /// Rate over all threads.
        requests_per_s: f64,
    },
    /// Open loop as a Poisson process: requests are due at random, independent times.
    Poisson {
        /// Mean rate over all threads.
        requests_per_s: f64,
    },
}

impl Arrival {
    /// The rate of an open loop over all threads.
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
    /// Number of consecutive one-second rates that are compared.
    pub window: usize,
    /// Maximum wait for a steady rate (ns). After that the measurement starts anyway and is marked
    /// as unsteady.
    pub wait_ns: u64,
    /// Maximum difference within the window, as a fraction of its mean.
    pub excursion: f64,
    /// Maximum change of the fitted line over the window, as a fraction of the mean.
    pub slope: f64,
}

impl Default for Steady {
    /// The numbers of the specification: five rounds, 20% excursion, 10% slope.
    fn default() -> Self {
        Steady { window: 5, wait_ns: 600_000_000_000, excursion: 0.2, slope: 0.1 }
    }
}

/// What the written blocks contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Content {
    /// Incompressible data, different in each block.
    #[default]
    Random,
    /// Zeros.
    Zero,
    /// Self-describing blocks with a checksum, which reads verify.
    Verified,
}

/// Periodic flushes: after a number of writes a thread waits for them, flushes, and continues, as a
/// database does when it commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushEvery {
    /// Writes of one thread between two flushes, at least 1.
    pub writes: u32,
    /// Use fdatasync(2) instead of fsync(2): only the metadata needed to find the data is flushed.
    pub data_only: bool,
}

impl FlushEvery {
    /// fio's name of the option.
    pub fn name(self) -> &'static str {
        if self.data_only { "fdatasync" } else { "fsync" }
    }
}

/// One workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// How requests are issued.
    pub engine_kind: EngineKind,
    /// The order in which blocks are visited.
    pub pattern: Pattern,
    /// How a random pattern distributes accesses over the blocks.
    pub distribution: Distribution,
    /// Share of reads (percent): 100 reads only, 0 writes only.
    pub read_percent: u8,
    /// Size of each request, or of the largest request if `request_sizes` is not empty (bytes).
    pub request_bytes: u32,
    /// Sizes drawn per request; empty: all requests have `request_bytes`.
    pub request_sizes: Vec<SizeShare>,
    /// Queue depth of each thread.
    pub depth: u32,
    /// Number of threads.
    pub threads: u32,
    /// The recorded requests of a program, which are issued again in place of a pattern. The
    /// pattern, sizes and arrivals of the workload then only describe them; `request_bytes` is the
    /// size of a slot, `depth` the number of slots and `threads` the number of workers.
    pub replay: Option<Replay>,
    /// Start of the region (bytes).
    pub region_offset: u64,
    /// Length of the region (bytes).
    pub region_bytes: u64,
    /// Offset within a thread's part of the region at which its sequential requests start (bytes;
    /// rounded down to whole requests). The requests wrap around at the end of the part.
    /// Interlocked threads and strided patterns start at the beginning.
    pub start_bytes: u64,
    /// How threads share the region.
    pub placement: Placement,
    /// When requests are issued.
    pub arrival: Arrival,
    /// Think time of a closed loop.
    pub think: Option<Think>,
    /// The trial stops after this many bytes of all threads.
    pub limit_bytes: Option<u64>,
    /// Stop after this time, counted from the end of the warm-up (ns).
    pub limit_ns: Option<u64>,
    /// Extend the warm-up until the rate is steady.
    pub steady: Option<Steady>,
    /// Warm-up at the start that is not measured (ns).
    pub warm_up_ns: u64,
    /// Content of the blocks that are written.
    pub content: Content,
    /// The blocks that verified writes have written. Verified reads read and check only these
    /// blocks; without this record they check everything they read.
    pub written: Option<Arc<Written>>,
    /// Flush (fsync) after the last write; its duration counts.
    pub flush_at_end: bool,
    /// Also flush periodically.
    pub flush_every: Option<FlushEvery>,
    /// Further options of the I/O engine.
    pub options: EngineOptions,
    /// Whether writes may grow the file beyond its current end.
    pub may_extend: bool,
    /// Seed of all random choices.
    pub seed: u64,
    /// Thread i is pinned to the i-th of these CPUs (round robin); empty: not pinned.
    pub cpus: Vec<usize>,
    /// Memory pages that back the buffers.
    pub pages: BufferPages,
    /// Interval of the time series (ns); doubled as often as needed to limit its length.
    pub interval_ns: u64,
    /// Record each request, up to this many per worker.
    pub log: Option<usize>,
}

impl Default for Workload {
    /// Sequential reads of 64 KiB at depth 1 on an empty region: the caller must set the region and
    /// a limit.
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
            replay: None,
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
    /// fio's name for pattern and direction: read, write, rw, randread, randwrite, randrw; replay
    /// for the requests of a program.
    pub fn rw(&self) -> &'static str {
        match (self.pattern, self.read_percent) {
            _ if self.replay.is_some() => "replay",
            (Pattern::Random, 100) => "randread",
            (Pattern::Random, 0) => "randwrite",
            (Pattern::Random, _) => "randrw",
            (_, 100) => "read",
            (_, 0) => "write",
            (_, _) => "rw",
        }
    }

    /// The parameters of the engine of each thread.
    pub fn engine_spec(&self) -> EngineSpec {
        EngineSpec {
            engine_kind: self.engine_kind,
            depth: self.depth,
            slot_bytes: self.request_bytes,
            pages: self.pages,
            options: self.options,
        }
    }

    /// Size of the smallest request; offsets are multiples of it (bytes).
    pub fn granule_bytes(&self) -> u32 {
        let sizes = self.request_sizes.iter().map(|size| size.request_bytes);
        sizes.min().unwrap_or(self.request_bytes)
    }

    /// Whether any request writes.
    pub fn writes(&self) -> bool {
        self.read_percent < 100
    }

    /// Whether `depth` requests are outstanding all the time: a closed loop without pauses and
    /// flushes.
    pub fn keeps_queue_full(&self) -> bool {
        self.replay.is_none()
            && self.arrival == Arrival::Closed
            && self.think.is_none()
            && self.flush_every.is_none()
    }
}

impl fmt::Display for Distribution {
    /// The distribution as fio writes it: `random`, `zipf:1.2`, `pareto:0.2`, `zoned:60/10:40/90`.
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
