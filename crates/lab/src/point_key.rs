//! The key of a point: a workload, its targets and the preparation of each trial. Results of points
//! with equal keys can be compared.

use analysis::units;
use ioengine::target::Hint;
use ioengine::{BufferPages, Caching, EngineKind, Op};
use workload::{Distribution, Pattern, Placement, Replay, Steady, Workload};

use crate::experiment::Blocks;
use crate::rank_trial::RankGroup;

/// Name that is reported for a simulated system instead of an I/O engine.
pub const SIMULATED: &str = "simulated";

/// How the targets were prepared before each trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preparation {
    /// Whether the targets were evicted from the page cache.
    pub scrubbed: bool,
    /// Whether the accessed regions of the targets were read into the page cache.
    pub warmed: bool,
    /// Access pattern that was announced to the kernel (fadvise); None if none was announced.
    pub hint: Option<Hint>,
    /// State of the file's blocks before the trial.
    pub blocks: Blocks,
}

/// Identifies a point by workload, caching mode and preparation. Points with equal keys measure the
/// same thing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointKey {
    /// The workload on each target, without data that differ between trials.
    pub workload: Workload,
    /// Number of targets that are measured together.
    pub targets: u32,
    /// Chunk size (bytes) if requests are striped over the targets; None if they are not striped.
    pub chunk_bytes: Option<u64>,
    /// Caching mode.
    pub caching: Caching,
    /// Whether the target is a simulated system, which runs in virtual time.
    pub is_simulated: bool,
    /// Preparation before each trial.
    pub preparation: Preparation,
    /// Whether kernel tracing was active.
    pub traced: bool,
    /// The ranks that measure together; None for one process.
    pub ranks: Option<RankGroup>,
}

impl PointKey {
    /// Returns the key of a workload on one target. Omits data that differ between trials, such as
    /// the start position. Also omits settings that affect only how results are recorded, such as
    /// the interval of the time series.
    pub fn of(workload: &Workload) -> PointKey {
        let workload = Workload {
            start_bytes: 0,
            written: None,
            interval_ns: Workload::default().interval_ns,
            log: workload.log.map(|_| 0),
            steady: workload.steady.map(|_| Steady::default()),
            ..workload.clone()
        };
        PointKey { workload, targets: 1, ..PointKey::default() }
    }

    /// Returns the value of fio's option `rw` for the workload, such as "randread".
    pub fn rw(&self) -> &'static str {
        self.workload.rw()
    }

    /// Returns the direction of the requests: "read", "write" or "mix".
    pub fn operation(&self) -> &'static str {
        self.op().map_or("mix", Op::name)
    }

    /// Returns the direction of the requests, or None for a mix of reads and writes.
    pub fn op(&self) -> Option<Op> {
        match self.workload.read_percent {
            100 => Some(Op::Read),
            0 => Some(Op::Write),
            _ => None,
        }
    }

    /// Returns the request size (bytes). With several sizes, returns the largest.
    pub fn request_bytes(&self) -> u64 {
        u64::from(self.workload.request_bytes)
    }

    /// Returns the queue depth of each thread.
    pub fn depth(&self) -> u32 {
        self.workload.depth
    }

    /// Returns the number of threads over all targets and ranks.
    pub fn threads(&self) -> u32 {
        self.workload.threads.saturating_mul(self.targets).saturating_mul(self.rank_count())
    }

    /// Returns the number of requests in flight over all threads. Returns None if the workload does
    /// not keep this number constant, because it is an open loop or has pauses.
    pub fn outstanding(&self) -> Option<u64> {
        let is_full = self.requests_per_s().is_none() && !self.has_pauses() && !self.is_replay();
        is_full.then(|| u64::from(self.depth()) * u64::from(self.threads()))
    }

    /// Returns the number of ranks, which is 1 for one process.
    pub fn rank_count(&self) -> u32 {
        self.ranks.map_or(1, |ranks| ranks.count.max(1))
    }

    /// Returns the size of the accessed region (bytes).
    pub fn size_bytes(&self) -> u64 {
        self.workload.region_bytes
    }

    /// Returns the share of requests that are reads (percent).
    pub fn read_percent(&self) -> u32 {
        u32::from(self.workload.read_percent)
    }

    /// Returns the rate of an open loop (requests per second), or None for a closed loop.
    pub fn requests_per_s(&self) -> Option<f64> {
        self.workload.arrival.requests_per_s()
    }

    /// Returns the seed for all random choices.
    pub fn seed(&self) -> u64 {
        self.workload.seed
    }

    /// Returns the name of the I/O engine, or [`SIMULATED`].
    pub fn ioengine(&self) -> &'static str {
        if self.is_simulated { SIMULATED } else { self.workload.engine_kind.name() }
    }

    /// Returns true if requests are issued on this host by this I/O engine.
    pub fn is_issued_by(&self, engine_kind: EngineKind) -> bool {
        !self.is_simulated && self.workload.engine_kind == engine_kind
    }

    /// Returns true if blocks are visited in random order.
    pub fn is_random(&self) -> bool {
        self.workload.pattern == Pattern::Random
    }

    /// Returns true if the user requested 4 KiB pages for the buffers.
    pub fn has_small_pages(&self) -> bool {
        self.workload.pages == BufferPages::Small
    }

    /// Returns true if writes are made durable during the trial, by FUA or by flushes between
    /// writes.
    pub fn makes_durable(&self) -> bool {
        self.workload.options.fua || self.workload.flush_every.is_some()
    }

    /// Returns true if the user enabled polling, so that a thread spins instead of sleeping.
    pub fn polls(&self) -> bool {
        self.workload.options.sq_poll || self.workload.options.io_poll
    }

    /// Returns true if some blocks are visited more often than other blocks.
    pub fn is_skewed(&self) -> bool {
        self.workload.distribution != Distribution::Even
    }

    /// Returns true if the workload may pause between requests: with think time, or in a replay.
    pub fn has_pauses(&self) -> bool {
        self.workload.think.is_some() || self.is_replay()
    }

    /// Returns true if the workload replays the recorded requests of a program.
    pub fn is_replay(&self) -> bool {
        self.workload.replay.is_some()
    }

    /// Returns true if the workload may read some blocks more often than others. The page cache is
    /// then expected to serve some of the reads.
    pub fn reads_again(&self) -> bool {
        self.is_skewed() || self.is_replay()
    }

    /// Returns true if requests bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.caching.is_direct()
    }

    /// Returns a short description, such as "randread 4 KiB, depth 32, io_uring, direct".
    pub fn describe(&self) -> String {
        let workload = &self.workload;
        let what = match (&workload.replay, &workload.distribution) {
            (Some(replay), _) => describe(replay),
            (None, Distribution::Even) => format!("{} {}", self.rw(), self.sizes()),
            (None, skewed) => format!("{} {skewed} {}", self.rw(), self.sizes()),
        };
        format!("{what}, {}", self.describe_settings())
    }

    /// Returns the part of the description after the operation and the request size, such as
    /// "depth 32, io_uring, direct".
    pub fn describe_settings(&self) -> String {
        let workload = &self.workload;
        if workload.replay.is_some() {
            let threads = match self.threads() {
                0 | 1 => String::new(),
                threads => format!("{threads} threads, "),
            };
            return format!("{threads}{}, {}", self.ioengine(), self.caching);
        }
        let is_interlocked = workload.placement == Placement::Interlocked;
        let interlocked = if is_interlocked { " interlocked" } else { "" };
        let threads = match self.threads() / self.rank_count() {
            0 | 1 => String::new(),
            threads => format!(" x {threads}{interlocked} threads"),
        };
        let pause = |ns: u64| format!(", pauses of {}", units::time(ns as f64));
        let pauses = workload.think.map(|think| pause(think.pause_ns)).unwrap_or_default();
        let process = match workload.arrival.process() {
            Some("poisson") => " (Poisson)",
            _ => "",
        };
        let rate = |rate: f64| format!(" at {rate} requests/s{process}");
        let rate = self.requests_per_s().map(rate).unwrap_or_default();
        let ranks = match self.ranks {
            Some(ranks) => {
                let count = units::counted(ranks.count.into(), "rank");
                format!(", {count} ({})", ranks.files.describe())
            }
            None => String::new(),
        };
        format!(
            "depth {}{threads}{rate}{pauses}, {}, {}{}{ranks}",
            self.depth(),
            self.ioengine(),
            self.caching,
            self.asked()
        )
    }

    /// Formats the options other than I/O engine and caching mode, such as ", fua, fsync 16".
    fn asked(&self) -> String {
        let options = self.workload.options.chosen().map(|option| option.name().to_owned());
        let flush = self.workload.flush_every;
        let flush = flush.map(|every| format!("{} {}", every.name(), every.writes));
        options.chain(flush).map(|word| format!(", {word}")).collect()
    }

    /// Formats the request size, or several sizes with their shares, such as "4 KiB/50:64 KiB/50".
    fn sizes(&self) -> String {
        match self.workload.request_sizes.as_slice() {
            [] => units::size(self.request_bytes()),
            sizes => {
                let sizes = sizes.iter().map(|size| {
                    format!("{}/{}", units::size(u64::from(size.request_bytes)), size.percent)
                });
                sizes.collect::<Vec<_>>().join(":")
            }
        }
    }
}
/// Describes a replay, such as "replay of db.parquet (1.2k requests, as recorded)".
fn describe(replay: &Replay) -> String {
    let what = &replay.description;
    let changes = match what.changes.as_str() {
        "" => String::new(),
        changes => format!(", {changes}"),
    };
    let folded = if what.folded { ", folded into the region" } else { "" };
    let requests = units::count(what.requests as f64);
    format!("replay of {} ({requests} requests, {}{changes}{folded})", what.trace, what.pace)
}
