//! An experiment as typed values: targets, axes and how trials run.
//!
//! The command line, plan files and study plans fill an [`Experiment`] through one table of
//! parameters ([`parameters::PARAMETERS`]) with their names, help and parsers.
//! [`Job::resolve`](crate::job::Job::resolve) checks it and turns it into workloads.

mod numbers;
pub mod parameters;
pub mod settings;

use std::path::PathBuf;

use ioengine::fault::FaultPlan;
use ioengine::target::Hint;
use ioengine::truth::Truth;
use ioengine::{BufferPages, EngineKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trace::import::Format;
use trace::replay::{Changes, Selection};
use workload::{Distribution, Pace, Placement};

use crate::guard::Consent;
use crate::rank_trial::RankFiles;
use crate::skew::Split;

/// Direction and order of requests, with fio's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rw {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Sequential reads and writes.
    ReadWrite,
    /// Random reads.
    RandRead,
    /// Random writes.
    RandWrite,
    /// Random reads and writes.
    RandReadWrite,
}

impl Rw {
    /// All variants.
    pub const ALL: [Rw; 6] =
        [Rw::Read, Rw::Write, Rw::ReadWrite, Rw::RandRead, Rw::RandWrite, Rw::RandReadWrite];

    /// fio's name.
    pub fn name(self) -> &'static str {
        match self {
            Rw::Read => "read",
            Rw::Write => "write",
            Rw::ReadWrite => "rw",
            Rw::RandRead => "randread",
            Rw::RandWrite => "randwrite",
            Rw::RandReadWrite => "randrw",
        }
    }

    /// Whether blocks are visited in random order.
    pub fn is_random(self) -> bool {
        matches!(self, Rw::RandRead | Rw::RandWrite | Rw::RandReadWrite)
    }

    /// Whether requests are both reads and writes.
    pub fn is_mixed(self) -> bool {
        matches!(self, Rw::ReadWrite | Rw::RandReadWrite)
    }
}

/// The state of a file's blocks when a trial begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Blocks {
    /// The blocks are unchanged since the last trial.
    #[default]
    #[serde(rename = "as they are")]
    AsTheyAre,
    /// The file is empty.
    None,
    /// The whole region is reserved (fallocate) and not written.
    Reserved,
    /// The last request of the region is written; the rest is a hole.
    #[serde(rename = "the last")]
    Last,
}

/// How a file's blocks are allocated before each trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// All blocks are written before the measurement, not only reserved.
    #[default]
    Existing,
    /// A new file, empty before each trial; the writes extend it.
    Extend,
    /// A written file that is truncated to zero bytes before each trial.
    Truncate,
    /// A new file; before each trial its blocks are reserved but not written.
    Reserve,
    /// A new file; before each trial only its last block is written.
    LastBlock,
}

impl Allocation {
    /// All variants.
    pub const ALL: [Allocation; 5] = [
        Allocation::Existing,
        Allocation::Extend,
        Allocation::Truncate,
        Allocation::Reserve,
        Allocation::LastBlock,
    ];

    /// The value of `--allocation`.
    pub fn name(self) -> &'static str {
        match self {
            Allocation::Existing => "preallocated",
            Allocation::Extend => "extend",
            Allocation::Truncate => "truncate",
            Allocation::Reserve => "fallocate",
            Allocation::LastBlock => "last-block",
        }
    }

    /// Whether the writes grow the file.
    pub fn grows(self) -> bool {
        self != Allocation::Existing
    }

    /// The state of the file's blocks when a trial begins.
    pub fn blocks(self) -> Blocks {
        match self {
            Allocation::Existing => Blocks::AsTheyAre,
            Allocation::Extend | Allocation::Truncate => Blocks::None,
            Allocation::Reserve => Blocks::Reserved,
            Allocation::LastBlock => Blocks::Last,
        }
    }
}

/// State of the page cache when a trial begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCache {
    /// The page cache holds nothing of the target.
    Cold,
    /// The page cache holds the whole region.
    Warm,
}

impl PageCache {
    /// The value of `--page-cache`.
    pub fn name(self) -> &'static str {
        match self {
            PageCache::Cold => "cold",
            PageCache::Warm => "warm",
        }
    }
}

/// When the requests of an open loop are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateProcess {
    /// At equal intervals.
    #[default]
    Linear,
    /// At random times, like requests of many independent users.
    Poisson,
}

/// Write cache mode that the kernel assumes for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelWriteCache {
    /// Write back: the kernel sends flushes.
    Back,
    /// Write through: the kernel sends no flushes.
    Through,
}

/// Settings of the block device below the target, changed for the run and restored after it. Needs
/// root.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostParameters {
    /// I/O scheduler.
    pub scheduler: Option<String>,
    /// Read-ahead window (bytes).
    pub read_ahead_bytes: Option<u64>,
    /// Write cache mode that the kernel assumes.
    pub kernel_write_cache: Option<KernelWriteCache>,
    /// Number of requests in the device's queue.
    pub nr_requests: Option<u32>,
    /// Merging of requests: 0 all, 1 simple merges only, 2 none.
    pub nomerges: Option<u8>,
}

/// Options of the I/O engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineParameters {
    /// A kernel thread polls for submissions (io_uring's SQPOLL).
    pub sqthread_poll: bool,
    /// The device is polled for completions (io_uring's IOPOLL).
    pub hipri: bool,
    /// Buffered requests leave nothing in the page cache (RWF_DONTCACHE).
    pub uncached: bool,
    /// Each write is durable before it completes (RWF_DSYNC).
    pub fua: bool,
    /// Each write names a zone, and the drive chooses the position in it (NVMe Zone Append).
    pub zone_append: bool,
    /// Writes of a thread between two calls of fsync.
    pub fsync: Option<u32>,
    /// Writes of a thread between two calls of fdatasync.
    pub fdatasync: Option<u32>,
}

/// A replay of the recorded requests of a program, in place of axes.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayParameters {
    /// A trace file, or a trace of another tool.
    pub trace: PathBuf,
    /// Format of the trace; None: detected from its content.
    pub format: Option<Format>,
    /// Which of its requests are replayed.
    pub selection: Selection,
    /// When the requests are issued.
    pub pace: Pace,
    /// Changes to what the program did.
    pub changes: Changes,
    /// Move requests beyond the end of the target into it.
    pub folds: bool,
    /// Number of trials; None: several for a short trace, one for a long trace.
    pub trials: Option<u32>,
}

/// An experiment: every combination of the axes on the targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Files, devices, directories, simulated systems or reference devices.
    pub targets: Vec<PathBuf>,
    /// A replay of a program, which sets the axes below; None: the axes describe the load.
    pub replay: Option<ReplayParameters>,
    /// Axis: direction and order.
    pub rw: Vec<Rw>,
    /// Axis: share of reads in a mix (percent); None: 50.
    pub read_percents: Option<Vec<u8>>,
    /// Axis: request sizes (bytes); None: 4 KiB.
    pub request_bytes: Option<Vec<u32>>,
    /// Axis: requests outstanding in each thread.
    pub depths: Vec<u32>,
    /// Axis: threads.
    pub threads: Vec<u32>,
    /// Axis: I/O engines; None: the best engine of this host.
    pub engine_kinds: Vec<Option<EngineKind>>,
    /// The reference device behind the I/O engine `delay`.
    pub truth: Option<Truth>,
    /// Faults injected into the requests of each thread.
    pub faults: Option<FaultPlan>,
    /// Whether to bypass the page cache; None: bypass it if the target supports that.
    pub direct: Option<bool>,
    /// Open the target with O_DSYNC.
    pub write_through: bool,
    /// Distance between starts of sequential requests (bytes); None: their size.
    pub stride_bytes: Option<u64>,
    /// Size of the region (bytes); None: the whole target.
    pub size_bytes: Option<u64>,
    /// Stripes the targets into one, with chunks of this size (bytes).
    pub chunk_bytes: Option<u64>,
    /// Start of the region (bytes).
    pub offset_bytes: u64,
    /// How threads share the region.
    pub placement: Placement,
    /// How the blocks of a file are allocated.
    pub allocation: Allocation,
    /// Access pattern announced to the kernel (fadvise).
    pub hint: Option<Hint>,
    /// Evict the target from the page cache before buffered reads.
    pub invalidate: bool,
    /// Requested state of the page cache; None: not specified.
    pub page_cache: Option<PageCache>,
    /// Length of a trial (ns).
    pub runtime_ns: Option<u64>,
    /// Whether to start over at the end of the region until the runtime is over.
    pub time_based: bool,
    /// Warm-up before the measured phase (ns).
    pub ramp_time_ns: u64,
    /// Warm up until the rate is steady.
    pub steady_state: bool,
    /// Trials of each combination.
    pub trials: u32,
    /// Rate of an open loop (requests per second); None: a closed loop.
    pub rate_iops: Option<f64>,
    /// Rate of an open loop (bytes per second), in place of `rate_iops`: requests per second times
    /// the mean request size.
    pub rate_bytes_per_s: Option<f64>,
    /// When requests of an open loop are due.
    pub rate_process: RateProcess,
    /// Latency percentiles to print; None: the usual ones.
    pub percentiles: Option<Vec<f64>>,
    /// CPUs that threads are pinned to; empty: not pinned.
    pub cpus: Vec<usize>,
    /// Write zeros instead of random data.
    pub zero_buffers: bool,
    /// Write checksummed blocks and read them back.
    pub verify: bool,
    /// Run every other trial with an idle-priority soaker.
    pub soaker: bool,
    /// Which blocks random requests visit.
    pub distribution: Distribution,
    /// Request sizes with their shares, instead of `request_bytes`.
    pub request_sizes: Option<Split>,
    /// Pause after completions (ns).
    pub think_ns: Option<u64>,
    /// Number of requests between pauses.
    pub think_requests: Option<u32>,
    /// File in which every request is logged.
    pub log: Option<PathBuf>,
    /// Options of the I/O engine.
    pub engine: EngineParameters,
    /// Settings of the device below the target.
    pub host: HostParameters,
    /// Seed of every random choice.
    pub seed: u64,
    /// Memory pages behind the buffers.
    pub buffer_pages: BufferPages,
    /// Accept reads of holes and unwritten blocks.
    pub allow_holes: bool,
    /// The user's permissions to write.
    pub consent: Consent,
    /// Rated endurance of the drive (bytes written).
    pub endurance_bytes: Option<u64>,
    /// How ranks share files; None: each rank has its own.
    pub rank_files: Option<RankFiles>,
    /// Rank `r` uses the part of rank `r + rank_shift`, modulo the number of ranks.
    pub rank_shift: u32,
}

impl Default for Experiment {
    fn default() -> Experiment {
        Experiment {
            targets: Vec::new(),
            replay: None,
            rw: vec![Rw::Read],
            read_percents: None,
            request_bytes: None,
            depths: vec![1],
            threads: vec![1],
            engine_kinds: vec![None],
            truth: None,
            faults: None,
            direct: None,
            write_through: false,
            stride_bytes: None,
            size_bytes: None,
            chunk_bytes: None,
            offset_bytes: 0,
            placement: Placement::default(),
            allocation: Allocation::default(),
            hint: None,
            invalidate: true,
            page_cache: None,
            runtime_ns: None,
            time_based: false,
            ramp_time_ns: 0,
            steady_state: false,
            trials: 3,
            rate_iops: None,
            rate_bytes_per_s: None,
            rate_process: RateProcess::default(),
            percentiles: None,
            cpus: Vec::new(),
            zero_buffers: false,
            verify: false,
            soaker: false,
            distribution: Distribution::Even,
            request_sizes: None,
            think_ns: None,
            think_requests: None,
            log: None,
            engine: EngineParameters::default(),
            host: HostParameters::default(),
            seed: 42,
            buffer_pages: BufferPages::default(),
            rank_files: None,
            rank_shift: 0,
            allow_holes: false,
            consent: Consent::default(),
            endurance_bytes: None,
        }
    }
}
