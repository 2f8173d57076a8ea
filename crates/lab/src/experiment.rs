//! An experiment as typed values: the targets, the axes, and the settings of the trials.
//!
//! The command line, plan files and study plans fill an [`Experiment`] through the table
//! [`parameters::PARAMETERS`], which contains the name, help and parser of each parameter.
//! [`Job::resolve`](crate::job::Job::resolve) checks an experiment and converts it to workloads.

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

/// Direction and order of requests, as in fio's `rw`.
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

    /// Returns the name that fio uses, for example `randread`.
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

    /// Returns whether requests access the blocks in random order.
    pub fn is_random(self) -> bool {
        matches!(self, Rw::RandRead | Rw::RandWrite | Rw::RandReadWrite)
    }

    /// Returns whether there are both reads and writes.
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
    /// The blocks of the whole region are reserved (fallocate) but not written.
    Reserved,
    /// Only the end of the region is written, with one request. The rest of the region is a hole.
    #[serde(rename = "the last")]
    Last,
}

/// How the blocks of a file are prepared before each trial (`--allocation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// All blocks are written once before the measurement.
    #[default]
    Existing,
    /// A new file is empty before each trial, and the writes extend the file.
    Extend,
    /// A written file is truncated to zero bytes before each trial.
    Truncate,
    /// Before each trial, the blocks of a new file are reserved (fallocate) but not written.
    Reserve,
    /// Before each trial, only the last block of a new file is written.
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

    /// Returns the value of `--allocation` for the variant.
    pub fn name(self) -> &'static str {
        match self {
            Allocation::Existing => "preallocated",
            Allocation::Extend => "extend",
            Allocation::Truncate => "truncate",
            Allocation::Reserve => "fallocate",
            Allocation::LastBlock => "last-block",
        }
    }

    /// Returns whether the writes of a trial allocate blocks or extend the file.
    pub fn grows(self) -> bool {
        self != Allocation::Existing
    }

    /// Returns the state of the file's blocks when a trial begins.
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
    /// The page cache contains no data of the target.
    Cold,
    /// The page cache contains the whole region.
    Warm,
}

impl PageCache {
    /// Returns the value of `--page-cache` for the variant.
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
    /// Requests are due at equal intervals.
    #[default]
    Linear,
    /// Requests are due at random times, like the requests of many independent users.
    Poisson,
}

/// The write cache mode that the kernel assumes for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelWriteCache {
    /// The mode is write back: the kernel sends flushes to the device.
    Back,
    /// The mode is write through: the kernel sends no flushes.
    Through,
}

/// Settings of the block device below the target, which are changed for the run and restored after
/// the run. Changes need root. None leaves a setting unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostParameters {
    /// Name of the I/O scheduler.
    pub scheduler: Option<String>,
    /// Size of the read-ahead window (bytes).
    pub read_ahead_bytes: Option<u64>,
    /// Write cache mode that the kernel assumes.
    pub kernel_write_cache: Option<KernelWriteCache>,
    /// Maximum number of requests that the block layer queues (`nr_requests`).
    pub nr_requests: Option<u32>,
    /// Merging of requests (`nomerges`): 0 all merges, 1 simple merges only, 2 no merges.
    pub nomerges: Option<u8>,
}

/// Options of the I/O engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineParameters {
    /// Whether a kernel thread polls for submissions (io_uring's SQPOLL).
    pub sqthread_poll: bool,
    /// Whether the device is polled for completions (io_uring's IOPOLL).
    pub hipri: bool,
    /// Whether the data of a buffered request are removed from the page cache after the request
    /// (RWF_DONTCACHE).
    pub uncached: bool,
    /// Whether each write is durable before it completes (RWF_DSYNC).
    pub fua: bool,
    /// Whether each write specifies only a zone, and the drive chooses the position in the zone
    /// (NVMe Zone Append).
    pub zone_append: bool,
    /// Number of writes after which a thread calls fsync. None if no thread calls fsync.
    pub fsync: Option<u32>,
    /// Number of writes after which a thread calls fdatasync. None if no thread calls fdatasync.
    pub fdatasync: Option<u32>,
}

/// A replay, which repeats the recorded requests of a program. The replay takes the place of the
/// axes.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayParameters {
    /// Path of a trace file of halfpower or of another tool.
    pub trace: PathBuf,
    /// Format of the trace. None if the format is detected from the content.
    pub format: Option<Format>,
    /// Rule that selects the requests to replay.
    pub selection: Selection,
    /// Rule for when the requests are issued.
    pub pace: Pace,
    /// Changes to the recorded requests, such as another queue depth.
    pub changes: Changes,
    /// Whether requests beyond the end of the target are moved to offsets within the target.
    pub folds: bool,
    /// Number of trials. None for the default: 3 if the trace is at most one minute long, otherwise
    /// 1.
    pub trials: Option<u32>,
}

/// An experiment. It measures every combination of the values of its axes on the targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Files, devices, directories, network addresses, simulated systems or reference devices to
    /// measure.
    pub targets: Vec<PathBuf>,
    /// Replay of recorded requests, which takes the place of the axes below. None if the axes
    /// describe the load.
    pub replay: Option<ReplayParameters>,
    /// Axis: direction and order of requests.
    pub rw: Vec<Rw>,
    /// Axis: share of reads in a mix (percent). None for the default, 50.
    pub read_percents: Option<Vec<u8>>,
    /// Axis: request size (bytes). None for the default, 4 KiB.
    pub request_bytes: Option<Vec<u32>>,
    /// Axis: queue depth of each thread.
    pub depths: Vec<u32>,
    /// Axis: number of threads.
    pub threads: Vec<u32>,
    /// Axis: I/O engine. None for the best engine of this host.
    pub engine_kinds: Vec<Option<EngineKind>>,
    /// Reference device that the I/O engine `delay` imitates. None if not specified.
    pub truth: Option<Truth>,
    /// Faults that are injected into the requests of each thread. None for no faults.
    pub faults: Option<FaultPlan>,
    /// Whether I/O is direct. None to use direct I/O if the target supports it.
    pub direct: Option<bool>,
    /// Whether the target is opened with O_DSYNC.
    pub write_through: bool,
    /// Distance between the starts of sequential requests (bytes). None for the request size.
    pub stride_bytes: Option<u64>,
    /// Size of the region (bytes). None for the whole target.
    pub size_bytes: Option<u64>,
    /// Chunk size of a stripe that combines all targets (bytes). None if there is no stripe.
    pub chunk_bytes: Option<u64>,
    /// Offset of the region in the target (bytes).
    pub offset_bytes: u64,
    /// How threads share the region.
    pub placement: Placement,
    /// How the blocks of a file are prepared before each trial.
    pub allocation: Allocation,
    /// Hint to the kernel about the access pattern (fadvise). None for no hint.
    pub hint: Option<Hint>,
    /// Whether the target is evicted from the page cache before buffered reads.
    pub invalidate: bool,
    /// State of the page cache before each trial. None if `invalidate` determines the state.
    pub page_cache: Option<PageCache>,
    /// Length of a trial (ns). None for the default: one pass over the region if `size_bytes` is
    /// specified, otherwise 5 s.
    pub runtime_ns: Option<u64>,
    /// Whether a trial that reaches the end of the region continues at the beginning of the region,
    /// until `runtime_ns` has passed.
    pub time_based: bool,
    /// Length of the warm-up before the measured phase (ns).
    pub ramp_time_ns: u64,
    /// Whether the warm-up lasts until the rate is steady, but at most 10 minutes.
    pub steady_state: bool,
    /// Number of trials for each combination of the axes.
    pub trials: u32,
    /// Total rate of all threads in an open loop (requests per second). None if not specified.
    pub rate_iops: Option<f64>,
    /// Total rate of all threads in an open loop (bytes per second), as an alternative to
    /// `rate_iops`. None if not specified.
    pub rate_bytes_per_s: Option<f64>,
    /// When the requests of an open loop are due.
    pub rate_process: RateProcess,
    /// Latency percentiles to print. None for the default percentiles.
    pub percentiles: Option<Vec<f64>>,
    /// CPUs to which threads are pinned. Empty if threads are not pinned.
    pub cpus: Vec<usize>,
    /// Whether zeros are written instead of random data.
    pub zero_buffers: bool,
    /// Whether blocks are written with checksums and read back.
    pub verify: bool,
    /// Whether an idle-priority soaker runs during every second trial, to measure an upper bound of
    /// the CPU cost.
    pub soaker: bool,
    /// Distribution of random requests over the blocks.
    pub distribution: Distribution,
    /// Several request sizes with their shares, instead of `request_bytes`. None if not specified.
    pub request_sizes: Option<Split>,
    /// Pause between a completion and the next request (ns). None for no pause.
    pub think_ns: Option<u64>,
    /// Number of requests between two pauses. None for the default, 1.
    pub think_requests: Option<u32>,
    /// Path of the file in which every request is logged. None for no log.
    pub log: Option<PathBuf>,
    /// Options of the I/O engine.
    pub engine: EngineParameters,
    /// Settings of the device below the target.
    pub host: HostParameters,
    /// Seed of all random choices.
    pub seed: u64,
    /// Kind of memory pages for the I/O buffers.
    pub buffer_pages: BufferPages,
    /// Whether reads of holes and unwritten blocks are accepted.
    pub allow_holes: bool,
    /// Files and devices that the user has allowed the program to overwrite.
    pub consent: Consent,
    /// Rated endurance of the drive: the amount of data that may be written to it (bytes). None if
    /// not specified.
    pub endurance_bytes: Option<u64>,
    /// Whether each rank uses a separate file, or all ranks share one file. None for separate
    /// files.
    pub rank_files: Option<RankFiles>,
    /// Distance to the rank whose part of the data is used. Rank `r` uses the part of rank `r +
    /// rank_shift`, modulo the number of ranks.
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
