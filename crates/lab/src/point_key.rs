//! What a point measures: a workload on its targets, and what was done before each trial.

use ioengine::target::Hint;
use ioengine::{BufferPages, Caching, EngineKind};
use workload::{Distribution, Pattern, Placement, Steady, Workload};

use crate::experiment::Blocks;

/// How requests are issued in a simulated system: the name in place of an I/O engine's.
pub const SIMULATED: &str = "simulated";

/// What was done before each trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preparation {
    /// The targets were taken out of the page cache ...
    pub scrubbed: bool,
    /// ... or their regions read into it.
    pub warmed: bool,
    /// What was announced to the kernel.
    pub hint: Option<Hint>,
    /// What of the file was there.
    pub blocks: Blocks,
}

/// What a point measures. Two points are the same when this is the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointKey {
    /// The workload on each target, without what differs from trial to trial.
    pub workload: Workload,
    /// Targets that are measured together.
    pub targets: u32,
    /// The targets are striped into one, so many bytes on each in turn.
    pub chunk_bytes: Option<u64>,
    /// Caching mode.
    pub caching: Caching,
    /// Whether it took place in a simulated system, in virtual time.
    pub is_simulated: bool,
    /// What was done before each trial.
    pub preparation: Preparation,
    /// Whether the kernel was traced meanwhile.
    pub traced: bool,
}

impl PointKey {
    /// A workload on a target, without what differs from trial to trial: where it starts, what it
    /// has written, how it is recorded.
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

    /// fio's name of pattern and direction.
    pub fn rw(&self) -> &'static str {
        self.workload.rw()
    }

    /// "read", "write" or "mix".
    pub fn operation(&self) -> &'static str {
        match self.workload.read_percent {
            100 => "read",
            0 => "write",
            _ => "mix",
        }
    }

    /// Size of each request, of the largest where there are several (bytes).
    pub fn request_bytes(&self) -> u64 {
        u64::from(self.workload.request_bytes)
    }

    /// Requests outstanding in each thread.
    pub fn depth(&self) -> u32 {
        self.workload.depth
    }

    /// Threads over all targets.
    pub fn threads(&self) -> u32 {
        self.workload.threads.saturating_mul(self.targets)
    }

    /// Region worked on (bytes).
    pub fn size_bytes(&self) -> u64 {
        self.workload.region_bytes
    }

    /// Share of reads (percent).
    pub fn read_percent(&self) -> u32 {
        u32::from(self.workload.read_percent)
    }

    /// Rate of an open loop.
    pub fn requests_per_s(&self) -> Option<f64> {
        self.workload.arrival.requests_per_s()
    }

    /// Seed of every random choice.
    pub fn seed(&self) -> u64 {
        self.workload.seed
    }

    /// How requests are issued: the name of an I/O engine, or [`SIMULATED`].
    pub fn ioengine(&self) -> &'static str {
        if self.is_simulated { SIMULATED } else { self.workload.engine_kind.name() }
    }

    /// Whether requests are issued on this host by an I/O engine.
    pub fn is_issued_by(&self, engine_kind: EngineKind) -> bool {
        !self.is_simulated && self.workload.engine_kind == engine_kind
    }

    /// Whether blocks are visited in random order.
    pub fn is_random(&self) -> bool {
        self.workload.pattern == Pattern::Random
    }

    /// Whether ordinary pages were asked for behind the buffers.
    pub fn has_small_pages(&self) -> bool {
        self.workload.pages == BufferPages::Small
    }

    /// Whether writes are made durable one by one or a few at a time, by what goes with them.
    pub fn makes_durable(&self) -> bool {
        self.workload.options.fua || self.workload.flush_every.is_some()
    }

    /// Whether a thread spins while nothing is to be done, by the user's wish.
    pub fn polls(&self) -> bool {
        self.workload.options.sq_poll || self.workload.options.io_poll
    }

    /// Whether some blocks are visited more often than others.
    pub fn is_skewed(&self) -> bool {
        self.workload.distribution != Distribution::Even
    }

    /// Whether requests wait for a pause that nothing but the load wants.
    pub fn has_pauses(&self) -> bool {
        self.workload.think.is_some()
    }

    /// Whether the page cache is passed by.
    pub fn is_direct(&self) -> bool {
        self.caching.is_direct()
    }

    /// In a few words: "randread 4 KiB, depth 32, io_uring, direct".
    pub fn describe(&self) -> String {
        let workload = &self.workload;
        let is_interlocked = workload.placement == Placement::Interlocked;
        let interlocked = if is_interlocked { " interlocked" } else { "" };
        let threads = match self.threads() {
            0 | 1 => String::new(),
            threads => format!(" x {threads}{interlocked} threads"),
        };
        let distribution = match &workload.distribution {
            Distribution::Even => String::new(),
            skewed => format!(" {skewed}"),
        };
        let pause = |ns: u64| format!(", pauses of {}", units::time(ns as f64));
        let pauses = workload.think.map(|think| pause(think.pause_ns)).unwrap_or_default();
        let process = match workload.arrival.process() {
            Some("poisson") => " (Poisson)",
            _ => "",
        };
        let rate = |rate: f64| format!(" at {rate} requests/s{process}");
        let rate = self.requests_per_s().map(rate).unwrap_or_default();
        format!(
            "{}{distribution} {}, depth {}{threads}{rate}{pauses}, {}, {}{}",
            self.rw(),
            self.sizes(),
            self.depth(),
            self.ioengine(),
            self.caching,
            self.asked()
        )
    }

    /// What was asked for beyond the I/O engine and the caching mode: ", fua, fsync 16".
    fn asked(&self) -> String {
        let options = self.workload.options.chosen().map(|option| option.name().to_owned());
        let flush = self.workload.flush_every;
        let flush = flush.map(|every| format!("{} {}", every.name(), every.writes));
        options.chain(flush).map(|word| format!(", {word}")).collect()
    }

    /// Request size, or sizes with their shares as in "4 KiB/50:64 KiB/50".
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
