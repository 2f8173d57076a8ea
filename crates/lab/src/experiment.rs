//! What is to be measured, as typed values: targets, axes, and how trials are made.
//!
//! The command line, plan files and the plans of studies fill an [`Experiment`] through one table
//! of parameters ([`parameters::PARAMETERS`]), where each has its name, its help and its parser.
//! [`Job::resolve`](crate::job::Job::resolve) checks it and makes workloads of it.

pub mod parameters;
pub mod settings;

use std::path::PathBuf;

use ioengine::fault::FaultPlan;
use ioengine::target::Hint;
use ioengine::truth::Truth;
use ioengine::{BufferPages, EngineKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workload::{Distribution, Placement};

use crate::guard::Consent;
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
    /// All of them.
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

    /// Whether it both reads and writes.
    pub fn is_mixed(self) -> bool {
        matches!(self, Rw::ReadWrite | Rw::RandReadWrite)
    }
}

/// What of a file is there when a trial begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Blocks {
    /// What the last trial left.
    #[default]
    #[serde(rename = "as they are")]
    AsTheyAre,
    /// Nothing.
    None,
    /// All of the region, reserved and not written.
    Reserved,
    /// The last request's worth of the region, behind a hole.
    #[serde(rename = "the last")]
    Last,
}

/// How a file's blocks come to be before it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// Written before (preallocated for good: written, not only reserved).
    #[default]
    Existing,
    /// A new file, grown by the writes; each trial begins with an empty one.
    Extend,
    /// Written before, and cut to nothing before each trial.
    Truncate,
    /// A new file, whose blocks are reserved but not written before each trial.
    Reserve,
    /// A new file, of which each trial finds the last block written, behind a hole.
    LastBlock,
}

impl Allocation {
    /// All of them.
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

    /// What of the file a trial finds.
    pub fn blocks(self) -> Blocks {
        match self {
            Allocation::Existing => Blocks::AsTheyAre,
            Allocation::Extend | Allocation::Truncate => Blocks::None,
            Allocation::Reserve => Blocks::Reserved,
            Allocation::LastBlock => Blocks::Last,
        }
    }
}

/// What buffered requests find in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCache {
    /// Nothing of the target.
    Cold,
    /// All of the region.
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
    /// At equal distances.
    #[default]
    Linear,
    /// At random, as many independent users do.
    Poisson,
}

/// What the kernel is told of a device's write cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelWriteCache {
    /// There is one: flushes are sent.
    Back,
    /// There is none: no flushes are sent.
    Through,
}

/// Settings of the block device beneath the target, changed for the run and put back (root).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostParameters {
    /// I/O scheduler.
    pub scheduler: Option<String>,
    /// Read-ahead window (bytes).
    pub read_ahead_bytes: Option<u64>,
    /// What the kernel believes of the write cache.
    pub kernel_write_cache: Option<KernelWriteCache>,
    /// Requests that the queue holds.
    pub nr_requests: Option<u32>,
    /// Merging of requests: 0 all, 1 simple merges only, 2 none.
    pub nomerges: Option<u8>,
}

/// What is asked of the I/O engine beyond issuing requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineParameters {
    /// A kernel thread takes submissions (io_uring's SQPOLL).
    pub sqthread_poll: bool,
    /// Completions are polled for at the device (io_uring's IOPOLL).
    pub hipri: bool,
    /// Buffered requests leave nothing in the page cache (RWF_DONTCACHE).
    pub uncached: bool,
    /// Each write is durable before it completes (RWF_DSYNC).
    pub fua: bool,
    /// fsync after so many writes of a thread.
    pub fsync: Option<u32>,
    /// fdatasync after so many writes of a thread.
    pub fdatasync: Option<u32>,
}

/// What is to be measured: every combination of the axes on the targets, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Files, devices, directories, simulated systems or reference devices.
    pub targets: Vec<PathBuf>,
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
    /// Axis: how requests are issued; None: the best here.
    pub engine_kinds: Vec<Option<EngineKind>>,
    /// The reference device behind the I/O engine `delay`.
    pub truth: Option<Truth>,
    /// Faults that requests of each thread suffer.
    pub faults: Option<FaultPlan>,
    /// Bypass the page cache; None: where the target allows it.
    pub direct: Option<bool>,
    /// O_DSYNC.
    pub write_through: bool,
    /// Distance of sequential requests (bytes); None: their size.
    pub stride_bytes: Option<u64>,
    /// Region (bytes); None: all of the target.
    pub size_bytes: Option<u64>,
    /// The targets are striped into one, so many bytes on each in turn.
    pub chunk_bytes: Option<u64>,
    /// Where the region begins (bytes).
    pub offset_bytes: u64,
    /// How threads share the region.
    pub placement: Placement,
    /// How the blocks of a file come to be.
    pub allocation: Allocation,
    /// Announced to the kernel.
    pub hint: Option<Hint>,
    /// Take the target out of the page cache before buffered reads.
    pub invalidate: bool,
    /// What buffered requests find in the page cache, where that was said.
    pub page_cache: Option<PageCache>,
    /// Length of a trial (ns).
    pub runtime_ns: Option<u64>,
    /// Start over at the end of the region until the time is over.
    pub time_based: bool,
    /// Warm-up that is not counted (ns).
    pub ramp_time_ns: u64,
    /// Warm up until the rate is steady.
    pub steady_state: bool,
    /// Trials of each combination.
    pub trials: u32,
    /// Rate of an open loop [requests per second].
    pub rate_iops: Option<f64>,
    /// When its requests are due.
    pub rate_process: RateProcess,
    /// Latency percentiles to print; None: the usual ones.
    pub percentiles: Option<Vec<f64>>,
    /// Pin threads to these CPUs.
    pub cpus: Vec<usize>,
    /// Write zeros.
    pub zero_buffers: bool,
    /// Write checksummed blocks and read them back.
    pub verify: bool,
    /// Alternate trials with an idle-priority soaker.
    pub soaker: bool,
    /// Which blocks random requests visit.
    pub distribution: Distribution,
    /// Several request sizes with their shares, instead of `request_bytes`.
    pub request_sizes: Option<Split>,
    /// Pause after completions (ns).
    pub think_ns: Option<u64>,
    /// Pause only after so many requests.
    pub think_requests: Option<u32>,
    /// Where every request is logged.
    pub log: Option<PathBuf>,
    /// Options of the I/O engine.
    pub engine: EngineParameters,
    /// Settings of the device beneath.
    pub host: HostParameters,
    /// Seed of every random choice.
    pub seed: u64,
    /// Memory pages behind the buffers.
    pub buffer_pages: BufferPages,
    /// Holes and unwritten blocks are meant.
    pub allow_holes: bool,
    /// What may be written.
    pub consent: Consent,
    /// What a drive endures in its life as rated (bytes).
    pub endurance_bytes: Option<u64>,
}

impl Default for Experiment {
    fn default() -> Experiment {
        Experiment {
            targets: Vec::new(),
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
            allow_holes: false,
            consent: Consent::default(),
            endurance_bytes: None,
        }
    }
}
