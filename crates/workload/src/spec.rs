//! The description of a workload: plain data, no side effects.
//!
//! Names are those of fio wherever fio has a name for the same thing (docs/vocabulary.md). Sizes
//! are in bytes, times in nanoseconds.

use std::fmt;
use std::sync::Arc;

use ioengine::{BufferPages, EngineKind, EngineOptions, EngineSpec};

use crate::replay::Replay;
use crate::written::Written;

/// The order in which the blocks of the region are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Pattern {
    /// Blocks are visited in order of offset. At the end of the region the pattern starts again.
    Sequential,
    /// Each request starts at a fixed distance from the previous request. Each pass over the region
    /// is shifted by one request, until all blocks have been visited.
    Strided {
        /// Distance from the start of one request to the start of the next (bytes).
        stride_bytes: u64,
    },
    /// Every block is visited exactly once in each pass, in an order that depends on the seed.
    Random,
}

/// How a random pattern distributes accesses over the blocks.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Distribution {
    /// Every block is accessed exactly once per pass.
    #[default]
    Even,
    /// Zipf's law: the most popular block is accessed k^`theta` times as often as the k-th most
    /// popular block. Popular blocks are scattered over the region.
    Zipf {
        /// Exponent of the law, above 0.
        theta: f64,
    },
    /// A fraction `h` of the blocks gets the fraction `1 - h` of the accesses, and the same rule
    /// applies recursively within these blocks. For example, `h` = 0.2 is the 80/20 rule. Popular
    /// blocks are scattered over the region.
    Pareto {
        /// Fraction of popular blocks, between 0 and 1.
        h: f64,
    },
    /// The region is divided into zones, listed in order of offset. Accesses within a zone are
    /// distributed evenly.
    Zoned(Vec<Zone>),
}

/// A contiguous zone of the region with its share of the accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Share of the accesses that fall into the zone (percent). The sum over all zones is 100.
    pub access_percent: u8,
    /// Share of the region that belongs to the zone (percent). The sum over all zones is 100.
    pub region_percent: u8,
}

/// A request size with its share of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeShare {
    /// Size of the request (bytes).
    pub request_bytes: u32,
    /// Share of the requests that have this size (percent). The sum over all sizes is 100.
    pub percent: u8,
}

/// Think time: a pause between the completion of a request and the next request in its slot, so
/// that each of the `depth` slots behaves like an interactive user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Think {
    /// Length of the pause (ns).
    pub pause_ns: u64,
    /// Number of requests that a slot issues between two pauses.
    pub requests: u32,
}

/// How threads share the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Placement {
    /// Each thread has its own part of the region.
    #[default]
    Own,
    /// All threads use the whole region. Sequential threads start at different offsets.
    Shared,
    /// All threads take their requests from one sequential stream over the region.
    Interlocked,
}

/// When requests are issued: after completions (closed loop) or at given times (open loop).
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Arrival {
    /// Closed loop: each completion is followed by a new request, so that `depth` requests stay
    /// outstanding.
    #[default]
    Closed,
    /// Open loop: requests are due at a constant rate, no matter how fast the device completes
    /// them. Latency is measured from the time when a request was due, so that a stall is not
    /// hidden.
    Constant {
        /// Total rate of all threads (requests per second).
        requests_per_s: f64,
    },
    /// Open loop: requests are due at random, independent times (a Poisson process).
    Poisson {
        /// Mean total rate of all threads (requests per second).
        requests_per_s: f64,
    },
}

impl Arrival {
    /// Returns the total rate of all threads in an open loop. None for a closed loop.
    pub fn requests_per_s(self) -> Option<f64> {
        match self {
            Arrival::Closed => None,
            Arrival::Constant { requests_per_s } | Arrival::Poisson { requests_per_s } => {
                Some(requests_per_s)
            }
        }
    }

    /// Returns fio's name for the arrival process of an open loop: "linear" or "poisson". None for
    /// a closed loop.
    pub fn process(self) -> Option<&'static str> {
        match self {
            Arrival::Closed => None,
            Arrival::Constant { .. } => Some("linear"),
            Arrival::Poisson { .. } => Some("poisson"),
        }
    }
}

/// The criterion for a steady rate (SNIA Performance Test Specification, steady state).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// Number of consecutive one-second rates that are compared.
    pub window: usize,
    /// Maximum wait for a steady rate (ns). After this time the measurement starts anyway and is
    /// marked as unsteady.
    pub wait_ns: u64,
    /// Maximum difference between the highest and the lowest rate in a window, as a fraction of the
    /// mean rate.
    pub excursion: f64,
    /// Maximum rise or fall, over a window, of a straight line fitted to the rates, as a fraction
    /// of the mean rate.
    pub slope: f64,
}

impl Default for Steady {
    /// Returns the limits of the specification (five rounds, 20% excursion, 10% slope) and a
    /// maximum wait of 600 s.
    fn default() -> Self {
        Steady { window: 5, wait_ns: 600_000_000_000, excursion: 0.2, slope: 0.1 }
    }
}

/// The content of written blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Content {
    /// Incompressible data that differs in each block.
    #[default]
    Random,
    /// Only zeros.
    Zero,
    /// Blocks with a header and a checksum. Each read request verifies the header and the checksum.
    Verified,
}

/// Periodic flushes, like the commits of a database. After every `writes` writes, a thread waits
/// for their completion, flushes, and continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushEvery {
    /// Number of writes of one thread between two flushes, at least 1.
    pub writes: u32,
    /// Whether to flush with fdatasync(2) instead of fsync(2). fdatasync(2) writes only the
    /// metadata that is needed to find the data.
    pub data_only: bool,
}

impl FlushEvery {
    /// Returns fio's name for this option: "fdatasync" or "fsync".
    pub fn name(self) -> &'static str {
        if self.data_only { "fdatasync" } else { "fsync" }
    }
}

/// The complete description of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The I/O engine that issues the requests.
    pub engine_kind: EngineKind,
    /// The order in which blocks are visited.
    pub pattern: Pattern,
    /// How a random pattern distributes accesses over the blocks.
    pub distribution: Distribution,
    /// Share of reads among the requests (percent): 100 means only reads, 0 means only writes.
    pub read_percent: u8,
    /// Size of each request, or of the largest request if `request_sizes` is not empty (bytes).
    pub request_bytes: u32,
    /// Request sizes and their shares. The size of each request is drawn from these sizes. Empty if
    /// all requests have the size `request_bytes`.
    pub request_sizes: Vec<SizeShare>,
    /// Queue depth of each thread.
    pub depth: u32,
    /// Number of threads.
    pub threads: u32,
    /// Recorded requests of a program, which are replayed. None if requests are generated. In a
    /// replay, `request_bytes` is the buffer size of a slot, `depth` is the number of slots, and
    /// `threads` is the number of workers. The pattern, sizes and arrivals of the workload then
    /// only describe the recording.
    pub replay: Option<Replay>,
    /// Offset of the region in the target (bytes).
    pub region_offset: u64,
    /// Length of the region (bytes).
    pub region_bytes: u64,
    /// Offset at which sequential requests start, within the thread's part of the region (bytes).
    /// The offset is rounded down to whole requests. At the end of the part, the requests continue
    /// at the beginning of the part. Interlocked threads and strided patterns ignore this offset.
    pub start_bytes: u64,
    /// How threads share the region.
    pub placement: Placement,
    /// When requests are issued.
    pub arrival: Arrival,
    /// Think time of a closed loop. None if slots do not pause.
    pub think: Option<Think>,
    /// Number of bytes, summed over all threads, after which the trial stops. None for no limit.
    pub limit_bytes: Option<u64>,
    /// Time after which the trial stops, counted from the end of the warm-up (ns). None for no
    /// limit.
    pub limit_ns: Option<u64>,
    /// Criterion for a steady rate. The warm-up is extended until the rate meets this criterion.
    /// None if the warm-up has a fixed length.
    pub steady: Option<Steady>,
    /// Length of the warm-up, which is not measured (ns).
    pub warm_up_ns: u64,
    /// Content of the blocks that are written.
    pub content: Content,
    /// Record of the blocks that verified writes have written. Verified reads read and check only
    /// these blocks. None if there is no record: verified reads then check every block that they
    /// read.
    pub written: Option<Arc<Written>>,
    /// Whether to flush (fsync) after the last write. The flush is part of the trial's duration.
    pub flush_at_end: bool,
    /// Periodic flushes. None if there are no flushes between writes.
    pub flush_every: Option<FlushEvery>,
    /// Further options of the I/O engine.
    pub options: EngineOptions,
    /// Whether writes may grow the file beyond its current end.
    pub may_extend: bool,
    /// Seed of all random choices.
    pub seed: u64,
    /// CPUs to which threads are pinned round robin. Empty if threads are not pinned.
    pub cpus: Vec<usize>,
    /// Kind of memory pages that back the buffers.
    pub pages: BufferPages,
    /// Initial interval of the time series (ns). The interval is doubled as often as needed to
    /// limit the length of the series.
    pub interval_ns: u64,
    /// Maximum number of requests to log per worker. None if requests are not logged.
    pub log: Option<usize>,
}

impl Default for Workload {
    /// Returns sequential reads of 64 KiB at depth 1 on an empty region. The caller must set the
    /// region and a limit.
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
    /// Returns fio's name for pattern and direction (read, write, rw, randread, randwrite or
    /// randrw), or "replay" for recorded requests.
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

    /// Returns the parameters of each thread's engine.
    pub fn engine_spec(&self) -> EngineSpec {
        EngineSpec {
            engine_kind: self.engine_kind,
            depth: self.depth,
            slot_bytes: self.request_bytes,
            pages: self.pages,
            options: self.options,
        }
    }

    /// Returns the size of the smallest request (bytes). All offsets are multiples of this size.
    pub fn granule_bytes(&self) -> u32 {
        let sizes = self.request_sizes.iter().map(|size| size.request_bytes);
        sizes.min().unwrap_or(self.request_bytes)
    }

    /// Returns true if the workload contains writes.
    pub fn writes(&self) -> bool {
        self.read_percent < 100
    }

    /// Returns true if `depth` requests are outstanding at all times. This is the case in a closed
    /// loop that has no pauses and no periodic flushes and is not a replay.
    pub fn keeps_queue_full(&self) -> bool {
        self.replay.is_none()
            && self.arrival == Arrival::Closed
            && self.think.is_none()
            && self.flush_every.is_none()
    }
}

impl fmt::Display for Distribution {
    /// Formats the distribution in fio's syntax, such as `random`, `zipf:1.2`, `pareto:0.2` or
    /// `zoned:60/10:40/90`.
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
