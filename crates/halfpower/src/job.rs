//! What the flags of `run` and `sweep` mean: resolved once, without side effects.

pub mod check;

use std::path::{Path, PathBuf};

use ioengine::fault::FaultPlan;
use ioengine::stripe::Layout;
use ioengine::target::Hint;
use ioengine::{BufferPages, EngineKind};
use workload::spec::Content;
use workload::{Arrival, Distribution, Pattern, Placement, Steady, Think, Workload};

use crate::cli::{CommonArgs, HostArgs, RunArgs};
use crate::engine_flags::EngineFlags;
use crate::failure::{Failure, Outcome};
use crate::flag_names::in_flags;
use crate::guard::Consent;
use crate::lab::Blocks;
use crate::settings::{self, HostSetting};
use crate::sim_target::{SimPlace, is_simulated};
use crate::truth_target::{self, KnownDevice};
use crate::units;

/// Length of a trial where neither size nor time is given (ns).
const RUNTIME_DEFAULT_NS: u64 = 5_000_000_000;

/// The share of reads in a mix, as the command line has it (percent).
const MIX_DEFAULT: &str = "50";
/// Request size where none is given.
const BS_DEFAULT: &str = "4k";
/// Requests of a trial that are logged at the most: 80 MiB of memory.
const LOGGED_MAX: usize = 2 << 20;
/// Latency percentiles that are printed where none are named.
const PERCENTILES: [f64; 2] = [50.0, 99.0];
/// A trial has about so many intervals, so that a break in its rate can be found ...
const INTERVALS: u64 = 50;
/// ... which are neither longer nor shorter than this (ns).
const INTERVAL_NS: std::ops::RangeInclusive<u64> = 10_000_000..=100_000_000;
/// Combinations of a sweep at the most: more than anybody has the time to measure.
const COMBINATIONS_MAX: usize = 10_000;

/// How a file's blocks come to be before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Written before (preallocated for good: written, not only reserved).
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
    /// One of the two words that clap lets through.
    fn of(word: &str) -> PageCache {
        if word == "warm" { PageCache::Warm } else { PageCache::Cold }
    }

    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            PageCache::Cold => "cold",
            PageCache::Warm => "warm",
        }
    }
}

/// One combination of the axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Axes {
    /// In which order, and the share of reads.
    pub pattern: Pattern,
    /// Share of reads (percent).
    pub read_percent: u8,
    /// Request size, of several the largest (bytes).
    pub request_bytes: u32,
    /// Requests outstanding in each thread.
    pub depth: u32,
    /// Threads.
    pub threads: u32,
    /// None: the best here.
    pub engine_kind: Option<EngineKind>,
}

/// A resolved command line.
#[derive(Clone, Debug)]
pub struct Job {
    /// Named targets.
    pub targets: Vec<PathBuf>,
    /// The simulated system, where the target is one.
    pub simulated: Option<SimPlace>,
    /// All combinations, in the order of the axes.
    pub axes: Vec<Axes>,
    /// None: where the target allows it.
    pub direct: Option<bool>,
    /// O_DSYNC.
    pub write_through: bool,
    /// Region.
    pub size: Option<u64>,
    /// How the targets are striped into one; None: each by itself.
    pub stripe: Option<Layout>,
    /// See [`Allocation`].
    pub allocation: Allocation,
    /// Announced to the kernel.
    pub hint: Option<Hint>,
    /// Scrub before buffered reads.
    pub invalidate: bool,
    /// What buffered requests find in the page cache, where that was said.
    pub page_cache: Option<PageCache>,
    /// Holes and unwritten blocks are meant.
    pub allow_holes: bool,
    /// Trials of each combination.
    pub trials: u32,
    /// Alternate soaked trials.
    pub soaker: bool,
    /// Write sealed blocks and check them.
    pub verify: bool,
    /// The devices of known truth behind the I/O engine `delay`; none where others are measured.
    pub devices: Vec<KnownDevice>,
    /// What the requests of each thread suffer.
    pub faults: FaultPlan,
    /// Latency percentiles to print, in rising order; None: the usual ones.
    pub percentiles: Option<Vec<f64>>,
    /// What may be written.
    pub consent: Consent,
    /// Settings of the device beneath, for the length of the run.
    pub host: Vec<HostSetting>,
    /// Where every request is logged.
    pub log: Option<PathBuf>,
    /// Everything that does not depend on axes or target.
    pub base: Workload,
    /// Stop after the region.
    stop_at_size: bool,
}

impl Job {
    /// Resolves the flags; `sweep` allows lists.
    ///
    /// # Errors
    /// Usage, each with the remedy.
    pub fn resolve(args: &RunArgs, sweep: bool) -> Outcome<Job> {
        let mut targets = args.targets.clone();
        targets.extend(args.filename.clone());
        let mut axes = axes(args, sweep)?;
        let engine_kinds: Vec<_> = axes.iter().map(|axes| axes.engine_kind).collect();
        let devices = truth_target::devices(args, &targets, &engine_kinds)?;
        if !devices.is_empty() {
            axes.iter_mut().for_each(|axes| axes.engine_kind = Some(EngineKind::Delay));
        }
        let nothing = touches_nothing(&axes);
        if targets.is_empty() && !nothing {
            return Err(Failure::usage(
                "no target; name a file, a block device or a directory (. for this one), or use \
                 --ioengine null",
            ));
        }
        let simulated = SimPlace::of(args, &targets)?;
        let (limit_ns, stop_at_size) = limits(args)?;
        let allocation = match simulated.as_ref().is_some_and(SimPlace::grows) {
            true => Allocation::Extend,
            false => allocation(&args.allocation)?,
        };
        if allocation.grows() && axes.iter().any(|axes| axes.read_percent > 0) {
            return Err(Failure::usage(format!(
                "--allocation {} is for writes only: an empty file has nothing to read; use \
                 --rw write or randwrite",
                if allocation == Allocation::Extend { "extend" } else { &args.allocation }
            )));
        }
        check::mapping(&axes, allocation)?;
        let engine = engine(args, &axes)?;
        let stripe = stripe(args.chunk.filter(|_| simulated.is_none()), targets.len())?;
        check::verify(args, &axes, &targets)?;
        check::skew(args, &axes)?;
        check::without_effect(args, &axes)?;
        Ok(Job {
            targets,
            axes,
            direct: engine.direct,
            write_through: args.write_through,
            size: args.size,
            stripe,
            allocation,
            hint: args.hint.as_deref().map(str::parse).transpose()?,
            invalidate: args.invalidate,
            page_cache: args.page_cache.as_deref().map(PageCache::of),
            allow_holes: args.common.allow_holes,
            trials: args.trials,
            // The busy time of a simulated host is known without one.
            soaker: args.soaker && simulated.is_none(),
            simulated,
            verify: args.verify,
            devices,
            faults: args.inject.clone().unwrap_or_default(),
            percentiles: args.percentile.as_deref().map(percentiles).transpose()?,
            consent: consent(&args.common),
            host: host(&args.host, nothing)?,
            log: args.skew.log.clone(),
            base: Workload {
                options: engine.options,
                flush_every: engine.flush_every,
                ..base(args, limit_ns)?
            },
            stop_at_size,
        })
    }

    /// The latency percentiles to print.
    pub fn percentiles(&self) -> &[f64] {
        self.percentiles.as_deref().unwrap_or(&PERCENTILES)
    }

    /// Whether any combination writes.
    pub fn writes(&self) -> bool {
        self.axes.iter().any(|axes| axes.read_percent < 100)
    }

    /// Whether no combination touches a target.
    pub fn touches_nothing(&self) -> bool {
        touches_nothing(&self.axes)
    }

    /// The workload of one combination on a region.
    pub fn workload(&self, axes: &Axes, region_bytes: u64, direct: bool) -> Workload {
        let writes = axes.read_percent < 100;
        // Each write on its own.
        let durable = self.write_through || self.base.options.fua;
        let distribution = match axes.pattern {
            Pattern::Random => self.base.distribution.clone(),
            _ => Distribution::Even,
        };
        let workload = Workload {
            engine_kind: axes.engine_kind.unwrap_or_else(|| EngineKind::best(direct)),
            pattern: axes.pattern,
            distribution,
            read_percent: axes.read_percent,
            request_bytes: axes.request_bytes,
            depth: axes.depth,
            threads: axes.threads,
            region_bytes,
            flush_at_end: !direct && !durable && writes,
            flush_every: self.base.flush_every.filter(|_| writes),
            may_extend: self.allocation.grows(),
            log: self.log.as_ref().map(|_| self.logged_by_each(axes.threads)),
            ..self.base.clone()
        };
        let granule = u64::from(workload.granule_bytes());
        let whole = region_bytes / granule * granule;
        Workload { limit_bytes: self.stop_at_size.then_some(whole), ..workload }
    }

    /// Requests that each worker logs at the most.
    fn logged_by_each(&self, threads: u32) -> usize {
        LOGGED_MAX.div_ceil(threads.max(1) as usize * self.targets.len().max(1))
    }
}

fn touches_nothing(axes: &[Axes]) -> bool {
    axes.iter().all(|axes| axes.engine_kind.is_some_and(|engine_kind| !engine_kind.does_io()))
}

/// What is asked of the I/O engines.
fn engine(args: &RunArgs, axes: &[Axes]) -> Outcome<EngineFlags> {
    let engine_kinds: Vec<_> = axes.iter().map(|axes| axes.engine_kind).collect();
    let writes = axes.iter().any(|axes| axes.read_percent < 100);
    EngineFlags::resolve(args, &engine_kinds, writes)
}

/// The pauses of a closed loop; one of no length is none.
fn think(args: &RunArgs) -> Option<Think> {
    let requests = args.skew.thinktime_blocks.unwrap_or(1);
    args.skew.thinktime.filter(|ns| *ns > 0).map(|pause_ns| Think { pause_ns, requests })
}

/// The settings of the device beneath, those first that move others.
fn host(args: &HostArgs, null: bool) -> Outcome<Vec<HostSetting>> {
    if args.read_ahead.is_some_and(|bytes| !bytes.is_multiple_of(4096)) {
        return Err(Failure::usage("--read-ahead: the kernel counts it in pages; use 128k or 4m"));
    }
    let read_ahead_kb = args.read_ahead.map(|bytes| (bytes / 1024).to_string());
    let write_cache = args.kernel_write_cache.as_ref().map(|word| format!("write {word}"));
    let wanted = [
        (settings::SCHEDULER, args.scheduler.clone()),
        (settings::WRITE_CACHE, write_cache),
        (settings::NR_REQUESTS, args.nr_requests.map(|n| n.to_string())),
        (settings::NOMERGES, args.nomerges.map(|n| n.to_string())),
        (settings::READ_AHEAD, read_ahead_kb),
    ];
    let setting = |(name, value): (_, Option<_>)| Some(HostSetting { name, value: value? });
    let wanted: Vec<HostSetting> = wanted.into_iter().filter_map(setting).collect();
    if null && !wanted.is_empty() {
        return Err(Failure::usage(
            "--ioengine null touches no device; drop the flags under Host (halfpower run --help)",
        ));
    }
    Ok(wanted)
}

/// How so many targets are striped.
fn stripe(chunk: Option<u64>, targets: usize) -> Outcome<Option<Layout>> {
    match chunk {
        Some(_) if targets < 2 => {
            Err(Failure::usage("--chunk makes one target of several; name several, or drop it"))
        }
        Some(chunk) => Ok(Some(Layout::new(targets, chunk)?)),
        None => Ok(None),
    }
}

/// Refuses simulated systems and devices of known truth where something of this host is meant.
pub fn check_real(target: &Path) -> Outcome<()> {
    if truth_target::is_truth(target) {
        return Err(Failure::usage(format!(
            "{}: devices of known truth are for run, sweep and mount; mount it (halfpower mount \
             truth:... DIR) and name the file",
            target.display()
        )));
    }
    if is_simulated(target) {
        return Err(Failure::usage(format!(
            "{}: simulated systems are for run, sweep, survey, simulate, whatif and mount; name a \
             file, device or directory",
            target.display()
        )));
    }
    Ok(())
}

/// The permissions of a command line.
pub fn consent(common: &CommonArgs) -> Consent {
    Consent { overwrite: common.overwrite.clone(), destroy_data_on: common.destroy_data_on.clone() }
}

/// The pages named by a command line.
pub fn pages(common: &CommonArgs) -> Outcome<BufferPages> {
    match common.buffer_pages.as_str() {
        "huge" => Ok(BufferPages::Huge),
        "4k" | "small" => Ok(BufferPages::Small),
        other => Err(Failure::usage(format!("--buffer-pages {other}: write huge or 4k"))),
    }
}

fn limits(args: &RunArgs) -> Outcome<(Option<u64>, bool)> {
    if args.trials == 0 {
        return Err(Failure::usage("--trials 0 measures nothing; use 1 or more"));
    }
    if args.size == Some(0) {
        return Err(Failure::usage("--size 0 measures nothing; use a size such as 1g"));
    }
    if args.time_based && args.runtime.is_none() {
        return Err(Failure::usage(
            "--time-based needs --runtime; say how long, as in --runtime 10",
        ));
    }
    if args.runtime == Some(0) {
        return Err(Failure::usage("--runtime 0 measures nothing; use a time such as 5 or 500ms"));
    }
    let stop_at_size = args.size.is_some() && !args.time_based;
    let limit_ns = match args.runtime {
        None if stop_at_size => None,
        None => Some(RUNTIME_DEFAULT_NS),
        given => given,
    };
    Ok((limit_ns, stop_at_size))
}

fn base(args: &RunArgs, limit_ns: Option<u64>) -> Outcome<Workload> {
    let content = match (args.verify, args.zero_buffers) {
        (true, _) => Content::Verified,
        (false, true) => Content::Zero,
        (false, false) => Content::Random,
    };
    Ok(Workload {
        region_offset: args.offset,
        placement: match args.placement.as_str() {
            "own" => Placement::Own,
            "shared" => Placement::Shared,
            "interlocked" => Placement::Interlocked,
            other => {
                let what = format!("--placement {other}: own, shared or interlocked");
                return Err(Failure::usage(what));
            }
        },
        arrival: arrival(args)?,
        think: think(args),
        distribution: args.skew.random_distribution.clone(),
        request_sizes: args.skew.bssplit.clone().map(|split| split.0).unwrap_or_default(),
        limit_ns,
        interval_ns: limit_ns
            .map_or(*INTERVAL_NS.end(), |ns| ns / INTERVALS)
            .clamp(*INTERVAL_NS.start(), *INTERVAL_NS.end()),
        steady: args.steady_state.then(Steady::default),
        warm_up_ns: args.ramp_time,
        content,
        seed: args.common.seed,
        cpus: args.cpus_allowed.as_deref().map(cpus).transpose()?.unwrap_or_default(),
        pages: pages(&args.common)?,
        ..Workload::default()
    })
}

/// Percentiles from a list such as `50,99.9`; fio separates them by colons.
fn percentiles(text: &str) -> Outcome<Vec<f64>> {
    let within = |p: &f64| *p > 0.0 && *p < 100.0;
    let mut found = Vec::new();
    for part in text.split([',', ':']) {
        let percentile = part.trim().parse::<f64>().ok().filter(within).ok_or_else(|| {
            Failure::usage(format!(
                "--percentile {text}: '{part}' is not between 0 and 100; write them as 50,99.9"
            ))
        })?;
        found.push(percentile);
    }
    found.sort_by(f64::total_cmp);
    found.dedup();
    Ok(found)
}

fn arrival(args: &RunArgs) -> Outcome<Arrival> {
    match (args.rate_process.as_str(), args.rate_iops) {
        ("linear", None) => Ok(Arrival::Closed),
        ("linear", Some(requests_per_s)) => Ok(Arrival::Constant { requests_per_s }),
        ("poisson", Some(requests_per_s)) => Ok(Arrival::Poisson { requests_per_s }),
        ("poisson", None) => Err(Failure::usage(
            "--rate-process poisson needs a rate; say which, as in --rate-iops 1000",
        )),
        (other, _) => Err(Failure::usage(format!("--rate-process {other}: linear or poisson"))),
    }
}

fn allocation(text: &str) -> Outcome<Allocation> {
    match text {
        "existing" | "preallocated" => Ok(Allocation::Existing),
        "extend" => Ok(Allocation::Extend),
        "truncate" => Ok(Allocation::Truncate),
        "fallocate" => Ok(Allocation::Reserve),
        "last-block" => Ok(Allocation::LastBlock),
        other => Err(Failure::usage(format!(
            "--allocation {other}: preallocated, extend, truncate, fallocate or last-block"
        ))),
    }
}

/// CPUs from a list such as `0,2` or `0-3`.
pub fn cpus(text: &str) -> Outcome<Vec<usize>> {
    let bad = || Failure::usage(format!("--cpus-allowed {text}: write CPUs as 0,2 or 0-3"));
    let allowed = cpucost::affinity::allowed_cpus();
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| bad())?;
        let last: usize = last.trim().parse().map_err(|_| bad())?;
        if last < first {
            return Err(bad());
        }
        // Before the range is spelt out: a short text can name more CPUs than memory holds.
        if let Some(cpu) = (first..=last).find(|cpu| !allowed.contains(cpu)) {
            return Err(Failure::usage(format!(
                "--cpus-allowed: CPU {cpu} is not among the CPUs of this process ({allowed:?})"
            )));
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

fn axes(args: &RunArgs, sweep: bool) -> Outcome<Vec<Axes>> {
    let number = |text: &str| {
        text.trim().parse::<u64>().map_err(|_| format!("'{text}' is not a whole number"))
    };
    let numbers =
        |flag: &str, text: &str| list(flag, text, sweep, |t| units::parse_list(t, number));
    let narrow_all = |flag: &str, values: Vec<u64>| -> Outcome<Vec<u32>> {
        values.into_iter().map(|value| narrow(flag, value)).collect()
    };
    let words = |t: &str| Ok::<_, String>(t.split(',').map(str::to_owned).collect::<Vec<_>>());
    let mixes = numbers("--rwmixread", &args.rwmixread)?;
    let mut directions = Vec::new();
    for rw in list("--rw", &args.rw, sweep, words)? {
        for mix in &mixes {
            directions.push(direction(&rw, *mix, args.stride)?);
        }
    }
    let is_mixed = directions.iter().any(|(_, share)| !matches!(share, 0 | 100));
    if !is_mixed && args.rwmixread != MIX_DEFAULT {
        return Err(Failure::usage(format!(
            "--rwmixread {} is for mixes, and --rw {} is none; use --rw rw or randrw",
            args.rwmixread, args.rw
        )));
    }
    let engines = list("--ioengine", &args.ioengine, sweep, words)?;
    let engines: Vec<_> = engines.iter().map(|name| engine_kind(name)).collect::<Outcome<_>>()?;
    let threads = narrow_all("--numjobs", numbers("--numjobs", &args.numjobs)?)?;
    let depths = narrow_all("--iodepth", numbers("--iodepth", &args.iodepth)?)?;
    let sizes = match &args.skew.bssplit {
        Some(split) => vec![split.largest_bytes()],
        None => {
            let text = args.bs.as_deref().unwrap_or(BS_DEFAULT);
            let sizes = list("--bs", text, sweep, |t| units::parse_list(t, units::parse_size))?;
            narrow_all("--bs", sizes)?
        }
    };
    product(&distinct(directions), &distinct(engines), &threads, &depths, &sizes)
}

/// Every combination, in the order of the axes.
fn product(
    directions: &[(Pattern, u8)],
    engines: &[Option<EngineKind>],
    threads: &[u32],
    depths: &[u32],
    sizes: &[u32],
) -> Outcome<Vec<Axes>> {
    let lengths = [directions.len(), engines.len(), threads.len(), depths.len(), sizes.len()];
    let count = lengths.into_iter().fold(1, usize::saturating_mul);
    if count > COMBINATIONS_MAX {
        return Err(too_many(count));
    }
    let mut all = Vec::with_capacity(count);
    for &(pattern, read_percent) in directions {
        for &engine_kind in engines {
            for &threads in threads {
                for &depth in depths {
                    all.extend(sizes.iter().map(|&request_bytes| Axes {
                        pattern,
                        read_percent,
                        request_bytes,
                        depth,
                        threads,
                        engine_kind,
                    }));
                }
            }
        }
    }
    Ok(all)
}

fn too_many(count: usize) -> Failure {
    Failure::usage(format!(
        "{count} combinations are more than {COMBINATIONS_MAX}; shorten the lists"
    ))
}

/// What was named twice is measured once.
fn distinct<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

fn list<T: PartialEq>(
    flag: &str,
    text: &str,
    sweep: bool,
    parse: impl Fn(&str) -> Result<Vec<T>, String>,
) -> Outcome<Vec<T>> {
    let values = parse(text).map_err(|error| Failure::usage(format!("{flag} {text}: {error}")))?;
    if values.len() > COMBINATIONS_MAX {
        return Err(too_many(values.len()));
    }
    if values.len() != 1 && !sweep {
        return Err(Failure::usage(format!(
            "{flag} {text}: run measures one workload; use halfpower sweep for lists"
        )));
    }
    Ok(distinct(values))
}

fn narrow(flag: &str, value: u64) -> Outcome<u32> {
    let problem = match u32::try_from(value) {
        Ok(0) => "measures nothing",
        Ok(value) => return Ok(value),
        Err(_) => "is too large",
    };
    let remedy = match flag {
        "--bs" => "a request size such as 64k",
        "--iodepth" => "a depth of 1 or more",
        _ => "1 or more threads",
    };
    Err(Failure::usage(format!("{flag} {value} {problem}; use {remedy}")))
}

fn engine_kind(text: &str) -> Outcome<Option<EngineKind>> {
    if text == "auto" {
        return Ok(None);
    }
    let engine_kind: EngineKind = text.parse()?;
    let found = engine_kind.availability();
    if found.available {
        Ok(Some(engine_kind))
    } else {
        let why = in_flags(&found.detail);
        Err(Failure::usage(format!("--ioengine {text} is not offered here: {why}")))
    }
}

fn direction(rw: &str, mix: u64, stride: Option<u64>) -> Outcome<(Pattern, u8)> {
    if mix > 100 {
        return Err(Failure::usage(format!("--rwmixread {mix}: a share from 0 to 100")));
    }
    let ordered = match stride {
        Some(0) => return Err(Failure::usage("--stride 0 goes nowhere; use at least --bs")),
        Some(stride_bytes) => Pattern::Strided { stride_bytes },
        None => Pattern::Sequential,
    };
    let mix = mix as u8;
    match rw {
        "read" => Ok((ordered, 100)),
        "write" => Ok((ordered, 0)),
        "rw" | "readwrite" => Ok((ordered, mix)),
        "randread" => Ok((Pattern::Random, 100)),
        "randwrite" => Ok((Pattern::Random, 0)),
        "randrw" => Ok((Pattern::Random, mix)),
        other => Err(Failure::usage(format!(
            "--rw {other}: read, write, rw, randread, randwrite or randrw"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb, normalise};
    use clap::Parser;
    use std::ffi::OsString;

    fn job(line: &str) -> Outcome<Job> {
        let words = std::iter::once("halfpower").chain(line.split_whitespace());
        let cli = Cli::try_parse_from(normalise(words.map(OsString::from))).unwrap();
        match cli.verb {
            Verb::Run(args) => Job::resolve(&args, false),
            Verb::Sweep(args) => Job::resolve(&args, true),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_sweep_is_the_product_of_its_axes() {
        let job = job("sweep . --bs 4k,64k --iodepth 1..8 --rw read,randread").unwrap();
        assert_eq!(job.axes.len(), 2 * 4 * 2);
    }

    #[test]
    fn run_takes_one_value_and_names_sweep() {
        let failure = job("run . --bs 4k,64k").unwrap_err();
        assert!(failure.message.contains("sweep"), "{failure}");
    }

    #[test]
    fn time_and_size_end_a_trial_as_in_fio() {
        let limits = |line: &str| {
            let job = job(line).unwrap();
            let workload = job.workload(&job.axes[0], 1 << 20, true);
            (workload.limit_bytes, workload.limit_ns)
        };
        assert_eq!(limits("run ."), (None, Some(5_000_000_000)));
        assert_eq!(limits("run . --size 1m"), (Some(1 << 20), None));
        assert_eq!(limits("run . --size 1m --runtime 2"), (Some(1 << 20), Some(2_000_000_000)));
        assert_eq!(limits("run . --size 1m --runtime 2 --time-based"), (None, Some(2_000_000_000)));
        assert!(job("run . --time-based").is_err());
    }

    #[test]
    fn no_target_is_needed_only_for_null() {
        assert!(job("run --ioengine null").unwrap().touches_nothing());
        assert!(job("run").unwrap_err().message.contains("no target"));
    }

    #[test]
    fn wrong_words_are_refused_with_the_right_ones() {
        for line in [
            "run . --rw sideways",
            "run . --ioengine spdk",
            "run . --bs 4x",
            "run . --iodepth many",
            "run . --buffer-pages 3k",
            "run . --allocation none",
            "run . --hint maybe",
            "run . --placement here",
            "run . --rate-process even --rate-iops 5",
            "run . --rate-process poisson",
            "run . --percentile 99,100",
            "run . --percentile many",
            "run . --rwmixread 101",
            "run . --cpus-allowed 0-99999",
            "run . --trials 0",
            "run sim:nt4-nowhere",
        ] {
            let failure = job(line).unwrap_err();
            assert_eq!(failure.exit, crate::failure::Exit::Usage, "{line}: {failure}");
        }
    }

    #[test]
    fn percentiles_are_listed_as_here_or_as_in_fio() {
        let asked = |line: &str| job(line).unwrap().percentiles().to_vec();
        assert_eq!(asked("run ."), [50.0, 99.0]);
        assert_eq!(asked("run . --percentile 99.99,50"), [50.0, 99.99]);
        assert_eq!(asked("run . --percentile_list=90:99.9:90"), [90.0, 99.9]);
    }

    #[test]
    fn numbers_beyond_32_bits_are_refused_with_a_remedy() {
        for flag in ["--bs 1t", "--iodepth 4294967296", "--numjobs 4294967296"] {
            let failure = job(&format!("run . {flag}")).unwrap_err();
            assert!(failure.message.contains("is too large; use "), "{failure}");
        }
    }

    #[test]
    fn a_list_of_cpus_is_checked_before_it_is_spelt_out() {
        let endless = "run . --cpus-allowed 0-18446744073709551614";
        assert!(job(endless).unwrap_err().message.contains("not among the CPUs"));
    }

    #[test]
    fn more_combinations_than_anybody_can_measure_are_refused() {
        let axis = (1..=101).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let line = format!("sweep . --bs {axis} --iodepth {axis}");
        assert!(job(&line).unwrap_err().message.contains("10201 combinations"));
        let line = format!("sweep . --bs {}", "512,".repeat(20_000) + "512");
        assert!(job(&line).unwrap_err().message.contains("20001 combinations"));
        let doubled = job("sweep . --rw read,read --iodepth 4,4").unwrap();
        assert_eq!(doubled.axes.len(), 1);
    }

    #[test]
    fn buffered_writes_are_flushed_at_the_end_and_direct_ones_are_not() {
        let job = job("run . --rw write").unwrap();
        assert!(job.workload(&job.axes[0], 1 << 20, false).flush_at_end);
        assert!(!job.workload(&job.axes[0], 1 << 20, true).flush_at_end);
    }
}
