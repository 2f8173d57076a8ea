//! Checks an experiment and converts it to a [`Job`], which contains the targets and the workloads
//! to measure. Changes nothing on the host.

pub mod check;

use std::path::PathBuf;

use ioengine::EngineKind;
use ioengine::fault::FaultPlan;
use ioengine::stripe::Layout;
use ioengine::target::Hint;
use workload::spec::Content;
use workload::{Arrival, Distribution, Pattern, SizeShare, Steady, Think, Workload};

use crate::engine_flags::EngineFlags;
use crate::experiment::parameters;
use crate::experiment::{
    Allocation, Experiment, HostParameters, KernelWriteCache, PageCache, RateProcess, Rw,
};
use crate::failure::{Failure, Outcome};
use crate::flag_names::in_flags;
use crate::guard::Consent;
use crate::network_target;
use crate::rank_trial::RankFiles;
use crate::ranks::share;
use crate::reference_device;
use crate::settings::{self, HostSetting};
use crate::simulated_target::SimulatedTarget;
use crate::target::JobTargets;
use crate::trace_load::TraceLoad;

/// Length of a trial without `--size` and `--runtime` (ns).
const RUNTIME_DEFAULT_NS: u64 = 5_000_000_000;

/// Default share of reads in mixed workloads (percent).
const READ_PERCENT_DEFAULT: u8 = 50;
const REQUEST_BYTES_DEFAULT: u32 = 4096;
/// Maximum number of requests in the log of a trial. A full log takes 80 MiB of memory.
const LOGGED_MAX: usize = 2 << 20;
const PERCENTILES: [f64; 2] = [50.0, 99.0];
/// Number of intervals in the time series of a trial. The number differs if the intervals would be
/// shorter or longer than [`INTERVAL_NS`] allows.
const INTERVALS: u64 = 50;
/// Minimum and maximum length of an interval in the time series of a trial (ns).
const INTERVAL_NS: std::ops::RangeInclusive<u64> = 10_000_000..=100_000_000;
/// Maximum number of workloads in a sweep.
const COMBINATIONS_MAX: usize = 10_000;

/// The parameters that `sweep` varies, with the values of one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Axes {
    /// Order in which blocks are accessed: sequential, strided or random.
    pub pattern: Pattern,
    /// Share of reads (percent).
    pub read_percent: u8,
    /// Request size (bytes). If requests have several sizes, this is the largest size.
    pub request_bytes: u32,
    /// Queue depth: the number of requests that each thread keeps in flight.
    pub depth: u32,
    /// Number of threads for each target.
    pub threads: u32,
    /// I/O engine. None: the best engine that works on this host.
    pub engine_kind: Option<EngineKind>,
}

/// A checked experiment that is ready to run.
#[derive(Clone, Debug)]
pub struct Job {
    /// The targets.
    pub targets: JobTargets,
    /// The workloads: each combination of the values that `sweep` varies. `run` has one workload.
    pub axes: Vec<Axes>,
    /// Whether to use direct I/O; None: use it if the target supports it.
    pub direct: Option<bool>,
    /// Whether to open the target with O_DSYNC.
    pub write_through: bool,
    /// Size of the part of the target that is accessed (bytes). None: the whole target.
    pub size: Option<u64>,
    /// Layout of a stripe over all targets; None: targets are not striped.
    pub stripe: Option<Layout>,
    /// State of a file's blocks before each trial, such as written or only reserved.
    pub allocation: Allocation,
    /// Access pattern that is announced to the kernel with fadvise. None: fadvise is not called.
    pub hint: Option<Hint>,
    /// Whether to evict the target from the page cache before buffered reads.
    pub invalidate: bool,
    /// Requested state of the page cache before each trial. None: not specified.
    pub page_cache: Option<PageCache>,
    /// Whether reads of holes and unwritten blocks are allowed.
    pub allow_holes: bool,
    /// Number of trials of each workload.
    pub trials: u32,
    /// Whether to repeat each trial with a soaker, a load that uses all idle CPU time.
    pub soaker: bool,
    /// Whether to write blocks with checksums, and check the blocks that are read.
    pub verify: bool,
    /// Faults injected into the requests of each thread.
    pub faults: FaultPlan,
    /// Latency percentiles to print, in ascending order; None: the default percentiles.
    pub percentiles: Option<Vec<f64>>,
    /// The user's permissions to write.
    pub consent: Consent,
    /// Kernel settings of the block device that are changed during the run, such as the scheduler.
    pub host: Vec<HostSetting>,
    /// File in which every request is logged; None: requests are not logged.
    pub log: Option<PathBuf>,
    /// How MPI ranks share files.
    pub rank_files: RankFiles,
    /// Value of `--rank-shift`: rank `r` uses the part of rank `r + rank_shift`, modulo the number
    /// of ranks.
    pub rank_shift: u32,
    /// The settings that all workloads have in common.
    pub base: Workload,
    /// The trace to replay. None: no trace is replayed.
    pub trace: Option<TraceLoad>,
    /// Whether a trial ends after one pass over the region. Otherwise, it repeats the pass.
    stop_at_size: bool,
    /// Value of `--rate` (bytes per second). None if the user did not specify it.
    rate_bytes_per_s: Option<f64>,
}

impl Job {
    /// Checks an experiment and converts it to a job. If `sweep` is true, lists of values are
    /// allowed.
    ///
    /// # Errors
    /// The experiment is invalid.
    pub fn resolve(experiment: &Experiment, sweep: bool) -> Outcome<Job> {
        let Some(parameters) = &experiment.replay else {
            return Job::resolve_axes(experiment, sweep);
        };
        let load = TraceLoad::open(experiment, parameters)?;
        let job = Job::resolve_axes(&load.experiment(experiment), sweep)?;
        Ok(Job { trace: Some(load), ..job })
    }

    fn resolve_axes(experiment: &Experiment, sweep: bool) -> Outcome<Job> {
        let mut axes = axes(experiment, sweep)?;
        let targets = targets(experiment, &mut axes)?;
        let (limit_ns, stop_at_size) = limits(experiment)?;
        parameters::check_cpus(&experiment.cpus)?;
        let grows = targets.simulated().is_some_and(SimulatedTarget::grows);
        let allocation = if grows { Allocation::Extend } else { experiment.allocation };
        if allocation.grows() && axes.iter().any(|axes| axes.read_percent > 0) {
            return Err(Failure::usage(format!(
                "--allocation {} is for writes only: an empty file has nothing to read; use \
                 --rw write or randwrite",
                allocation.name()
            )));
        }
        check::mapping(&axes, allocation)?;
        let engine = engine(experiment, &axes)?;
        let is_simulated = targets.simulated().is_some();
        let chunk_bytes = experiment.chunk_bytes.filter(|_| !is_simulated);
        let stripe = stripe(chunk_bytes, targets.count())?;
        check::ranks(experiment, &targets)?;
        check::verify(experiment, &axes)?;
        check::skew(experiment, &axes)?;
        check::without_effect(experiment, &axes)?;
        Ok(Job {
            host: host(&experiment.host, !targets.does_io())?,
            targets,
            axes,
            direct: engine.direct,
            write_through: experiment.write_through,
            size: experiment.size_bytes,
            stripe,
            allocation,
            hint: experiment.hint,
            invalidate: experiment.invalidate,
            page_cache: experiment.page_cache,
            allow_holes: experiment.allow_holes,
            trials: experiment.trials,
            // The busy time of a simulated host is known, so no soaker is needed.
            soaker: experiment.soaker && !is_simulated,
            verify: experiment.verify,
            faults: experiment.faults.clone().unwrap_or_default(),
            percentiles: experiment.percentiles.clone(),
            consent: share::consent_of_rank(&experiment.consent, experiment.rank_shift),
            log: experiment.log.clone(),
            rank_files: experiment.rank_files.unwrap_or_default(),
            rank_shift: experiment.rank_shift,
            base: Workload {
                options: engine.options,
                flush_every: engine.flush_every,
                ..base(experiment, limit_ns)?
            },
            trace: None,
            stop_at_size,
            rate_bytes_per_s: experiment.rate_bytes_per_s,
        })
    }

    /// Returns the latency percentiles to print.
    pub fn percentiles(&self) -> &[f64] {
        self.percentiles.as_deref().unwrap_or(&PERCENTILES)
    }

    /// Returns true if any workload writes.
    pub fn writes(&self) -> bool {
        self.axes.iter().any(|axes| axes.read_percent < 100)
    }

    /// Returns the workload with the parameters `axes` on a region of `region_bytes` bytes.
    pub fn workload(&self, axes: &Axes, region_bytes: u64, direct: bool) -> Workload {
        let writes = axes.read_percent < 100;
        // If each write is durable when it completes, no flush is needed at the end of a trial.
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
            arrival: self.arrival(axes.request_bytes),
            log: self.log.as_ref().map(|_| self.logged_by_each(axes.threads)),
            ..self.base.clone()
        };
        if let Some(load) = &self.trace {
            return load.apply(workload);
        }
        let granule = u64::from(workload.granule_bytes());
        let whole = region_bytes / granule * granule;
        Workload { limit_bytes: self.stop_at_size.then_some(whole), ..workload }
    }

    /// Returns the arrival process. A rate in bytes per second is converted to requests per second
    /// with the mean request size.
    fn arrival(&self, request_bytes: u32) -> Arrival {
        let Some(bytes_per_s) = self.rate_bytes_per_s else { return self.base.arrival };
        let share =
            |size: &SizeShare| f64::from(size.request_bytes) * f64::from(size.percent) / 100.0;
        let mean_bytes = match self.base.request_sizes.as_slice() {
            [] => f64::from(request_bytes),
            sizes => sizes.iter().map(share).sum(),
        };
        let requests_per_s = bytes_per_s / mean_bytes;
        match self.base.arrival {
            Arrival::Poisson { .. } => Arrival::Poisson { requests_per_s },
            _ => Arrival::Constant { requests_per_s },
        }
    }

    fn logged_by_each(&self, threads: u32) -> usize {
        LOGGED_MAX.div_ceil(threads.max(1) as usize * self.targets.count())
    }
}

/// Returns the targets of an experiment. Sets the I/O engine of all `axes` to `delay` if the
/// targets are reference devices, and to `network` if they are network targets.
fn targets(experiment: &Experiment, axes: &mut [Axes]) -> Outcome<JobTargets> {
    let engine_kinds: Vec<_> = axes.iter().map(|axes| axes.engine_kind).collect();
    let devices = reference_device::devices(experiment, &engine_kinds)?;
    if !devices.is_empty() {
        axes.iter_mut().for_each(|axes| axes.engine_kind = Some(EngineKind::Delay));
        return Ok(JobTargets::Reference(devices));
    }
    if let Some(system) = SimulatedTarget::of(experiment)? {
        return Ok(JobTargets::Simulated(Box::new(system)));
    }
    let path = |path: &PathBuf| share::path_of_rank(path, experiment.rank_shift);
    let paths: Vec<PathBuf> = experiment.targets.iter().map(path).collect();
    let addresses = network_target::addresses(experiment, &paths, &engine_kinds)?;
    if !addresses.is_empty() {
        axes.iter_mut().for_each(|axes| axes.engine_kind = Some(EngineKind::Network));
        return Ok(JobTargets::Network(addresses));
    }
    let is_null = |axes: &Axes| axes.engine_kind.is_some_and(|engine_kind| !engine_kind.does_io());
    if axes.iter().all(is_null) {
        return Ok(JobTargets::Nothing);
    }
    match paths.as_slice() {
        [] => Err(Failure::usage(
            "no target; specify a file, a block device or a directory (. for the working \
             directory), or use --ioengine null",
        )),
        _ => Ok(JobTargets::Host(paths)),
    }
}

fn engine(experiment: &Experiment, axes: &[Axes]) -> Outcome<EngineFlags> {
    let engine_kinds: Vec<_> = axes.iter().map(|axes| axes.engine_kind).collect();
    let writes = axes.iter().any(|axes| axes.read_percent < 100);
    EngineFlags::resolve(experiment, &engine_kinds, writes)
}

/// Returns the pauses of a closed loop, or None if the think time is zero.
fn think(experiment: &Experiment) -> Option<Think> {
    let requests = experiment.think_requests.unwrap_or(1);
    experiment.think_ns.filter(|ns| *ns > 0).map(|pause_ns| Think { pause_ns, requests })
}

/// Returns the requested kernel settings of the block device. The scheduler and the write cache are
/// first, because changing them makes the kernel reset other settings.
fn host(host: &HostParameters, null: bool) -> Outcome<Vec<HostSetting>> {
    let write_cache = host.kernel_write_cache.map(|cache| match cache {
        KernelWriteCache::Back => "write back".to_owned(),
        KernelWriteCache::Through => "write through".to_owned(),
    });
    let wanted = [
        (settings::SCHEDULER, host.scheduler.clone()),
        (settings::WRITE_CACHE, write_cache),
        (settings::NR_REQUESTS, host.nr_requests.map(|n| n.to_string())),
        (settings::NOMERGES, host.nomerges.map(|n| n.to_string())),
        (settings::READ_AHEAD, host.read_ahead_bytes.map(|bytes| (bytes / 1024).to_string())),
    ];
    let setting = |(name, value): (_, Option<_>)| Some(HostSetting { name, value: value? });
    let wanted: Vec<HostSetting> = wanted.into_iter().filter_map(setting).collect();
    if null && !wanted.is_empty() {
        return Err(Failure::usage(
            "--ioengine null uses no device, so there are no host settings to change; drop the \
             flags listed under 'Host' in halfpower run --help",
        ));
    }
    Ok(wanted)
}

fn stripe(chunk: Option<u64>, targets: usize) -> Outcome<Option<Layout>> {
    match chunk {
        Some(_) if targets < 2 => Err(Failure::usage(
            "--chunk stripes requests over several targets; specify more targets, or drop --chunk",
        )),
        Some(chunk) => Ok(Some(Layout::new(targets, chunk)?)),
        None => Ok(None),
    }
}

fn limits(experiment: &Experiment) -> Outcome<(Option<u64>, bool)> {
    let Experiment { runtime_ns, size_bytes, time_based, .. } = *experiment;
    if experiment.trials == 0 {
        return Err(Failure::usage("--trials 0 measures nothing; use 1 or more"));
    }
    if size_bytes == Some(0) {
        return Err(Failure::usage("--size 0 measures nothing; use a size such as 1g"));
    }
    if time_based && runtime_ns.is_none() {
        return Err(Failure::usage("--time-based needs --runtime; add it, such as --runtime 10"));
    }
    if runtime_ns == Some(0) {
        return Err(Failure::usage("--runtime 0 measures nothing; use a time such as 5 or 500ms"));
    }
    let stop_at_size = size_bytes.is_some() && !time_based;
    let limit_ns = match runtime_ns {
        None if stop_at_size => None,
        None => Some(RUNTIME_DEFAULT_NS),
        given => given,
    };
    Ok((limit_ns, stop_at_size))
}

fn base(experiment: &Experiment, limit_ns: Option<u64>) -> Outcome<Workload> {
    let content = match (experiment.verify, experiment.zero_buffers) {
        (true, _) => Content::Verified,
        (false, true) => Content::Zero,
        (false, false) => Content::Random,
    };
    let sizes = experiment.request_sizes.clone();
    Ok(Workload {
        region_offset: experiment.offset_bytes,
        placement: experiment.placement,
        arrival: arrival(experiment)?,
        think: think(experiment),
        distribution: experiment.distribution.clone(),
        request_sizes: sizes.map(|split| split.0).unwrap_or_default(),
        limit_ns,
        interval_ns: limit_ns
            .map_or(*INTERVAL_NS.end(), |ns| ns / INTERVALS)
            .clamp(*INTERVAL_NS.start(), *INTERVAL_NS.end()),
        steady: experiment.steady_state.then(Steady::default),
        warm_up_ns: experiment.ramp_time_ns,
        content,
        seed: experiment.seed,
        cpus: experiment.cpus.clone(),
        pages: experiment.buffer_pages,
        ..Workload::default()
    })
}

fn arrival(experiment: &Experiment) -> Outcome<Arrival> {
    let rate = match (experiment.rate_iops, experiment.rate_bytes_per_s) {
        (Some(_), Some(_)) => {
            return Err(Failure::usage("--rate and --rate-iops both set the rate; drop one"));
        }
        (None, Some(0.0)) => {
            return Err(Failure::usage("--rate must be above 0; use a rate such as 20m"));
        }
        (requests, bytes) => requests.or(bytes),
    };
    match (experiment.rate_process, rate) {
        (RateProcess::Linear, None) => Ok(Arrival::Closed),
        (RateProcess::Linear, Some(requests_per_s)) => Ok(Arrival::Constant { requests_per_s }),
        (RateProcess::Poisson, Some(requests_per_s)) => Ok(Arrival::Poisson { requests_per_s }),
        (RateProcess::Poisson, None) => Err(Failure::usage(
            "--rate-process poisson needs a rate; add one, such as --rate-iops 1000 or --rate 4m",
        )),
    }
}

fn axes(experiment: &Experiment, sweep: bool) -> Outcome<Vec<Axes>> {
    let is_mixed = experiment.rw.iter().any(|rw| rw.is_mixed());
    let percents = match &experiment.read_percents {
        None => vec![READ_PERCENT_DEFAULT],
        Some(_) if !is_mixed => {
            return Err(Failure::usage("--rwmixread needs mixed I/O; use --rw rw or randrw"));
        }
        Some(percents) => values("--rwmixread", percents, sweep)?,
    };
    let mut directions = Vec::new();
    for rw in values("--rw", &experiment.rw, sweep)? {
        for percent in &percents {
            directions.push(direction(rw, *percent, experiment.stride_bytes)?);
        }
    }
    let engine_kinds = values("--ioengine", &experiment.engine_kinds, sweep)?;
    engine_kinds.iter().flatten().try_for_each(|kind| check_available(*kind))?;
    let sizes = match (&experiment.request_sizes, &experiment.request_bytes) {
        (Some(split), _) => vec![split.largest_bytes()],
        (None, Some(sizes)) => values("--bs", sizes, sweep)?,
        (None, None) => vec![REQUEST_BYTES_DEFAULT],
    };
    let threads = values("--numjobs", &experiment.threads, sweep)?;
    let depths = values("--iodepth", &experiment.depths, sweep)?;
    product(&distinct(&directions), &engine_kinds, &threads, &depths, &sizes)
}

/// Returns each combination of the values. The request size varies fastest.
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
        "{count} combinations are too many (maximum {COMBINATIONS_MAX}); shorten the lists"
    ))
}

/// Returns the values of a flag without repetitions. Only a sweep may have several values.
fn values<T: PartialEq + Clone>(flag: &str, values: &[T], sweep: bool) -> Outcome<Vec<T>> {
    if values.len() > COMBINATIONS_MAX {
        return Err(too_many(values.len()));
    }
    if values.len() != 1 && !sweep {
        let count = values.len();
        return Err(Failure::usage(format!(
            "{flag} has {count} values, but a run measures one workload; use halfpower sweep"
        )));
    }
    Ok(distinct(values))
}

/// Removes repeated values, so that each value is measured once.
fn distinct<T: PartialEq + Clone>(values: &[T]) -> Vec<T> {
    let mut found: Vec<T> = Vec::new();
    for value in values {
        if !found.contains(value) {
            found.push(value.clone());
        }
    }
    found
}

fn check_available(engine_kind: EngineKind) -> Outcome<()> {
    let found = engine_kind.availability();
    if found.available {
        return Ok(());
    }
    let why = in_flags(&found.detail);
    Err(Failure::usage(format!("--ioengine {engine_kind} is not available here: {why}")))
}

fn direction(rw: Rw, mix_percent: u8, stride_bytes: Option<u64>) -> Outcome<(Pattern, u8)> {
    let pattern = match (rw.is_random(), stride_bytes) {
        (_, Some(0)) => {
            return Err(Failure::usage(
                "--stride 0 would repeat the same request; use a stride of at least --bs",
            ));
        }
        (true, _) => Pattern::Random,
        (false, Some(stride_bytes)) => Pattern::Strided { stride_bytes },
        (false, None) => Pattern::Sequential,
    };
    let read_percent = match rw {
        Rw::Read | Rw::RandRead => 100,
        Rw::Write | Rw::RandWrite => 0,
        Rw::ReadWrite | Rw::RandReadWrite => mix_percent,
    };
    Ok((pattern, read_percent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::parameters;

    fn job(line: &str) -> Outcome<Job> {
        let mut words = line.split_whitespace();
        let sweep = words.next() == Some("sweep");
        let mut experiment = Experiment::default();
        for word in words {
            match word.strip_prefix("--").map(|flag| flag.split_once('=').unwrap_or((flag, "1"))) {
                None => experiment.targets.push(word.into()),
                Some((name, text)) => {
                    let parameter = parameters::named(name).unwrap();
                    (parameter.set)(&mut experiment, text).map_err(Failure::usage)?;
                }
            }
        }
        Job::resolve(&experiment, sweep)
    }

    #[test]
    fn a_sweep_is_the_product_of_its_axes() {
        let job = job("sweep . --bs=4k,64k --iodepth=1..8 --rw=read,randread").unwrap();
        assert_eq!(job.axes.len(), 2 * 4 * 2);
    }

    #[test]
    fn run_takes_one_value_and_names_sweep() {
        let failure = job("run . --bs=4k,64k").unwrap_err();
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
        assert_eq!(limits("run . --size=1m"), (Some(1 << 20), None));
        assert_eq!(limits("run . --size=1m --runtime=2"), (Some(1 << 20), Some(2_000_000_000)));
        assert_eq!(limits("run . --size=1m --runtime=2 --time-based"), (None, Some(2_000_000_000)));
        assert!(job("run . --time-based").is_err());
    }

    #[test]
    fn a_rate_in_bytes_is_divided_by_the_mean_request_size() {
        let rates = |line: &str| -> Vec<Option<f64>> {
            let job = job(line).unwrap();
            let rate = |axes| job.workload(axes, 1 << 20, true).arrival.requests_per_s();
            job.axes.iter().map(rate).collect()
        };
        assert_eq!(rates("sweep . --rate=1m --bs=4k,64k"), [Some(256.0), Some(16.0)]);
        assert_eq!(rates("run . --rate=1m --bssplit=4k/50:12k/50"), [Some(128.0)]);
        let poisson = job("run . --rate=4k --bs=4k --rate-process=poisson").unwrap();
        let workload = poisson.workload(&poisson.axes[0], 1 << 20, true);
        assert_eq!(workload.arrival, Arrival::Poisson { requests_per_s: 1.0 });
    }

    #[test]
    fn a_rate_of_no_bytes_is_refused_by_the_flag_that_was_given() {
        assert!(job("run . --rate=0").unwrap_err().message.starts_with("--rate must be above 0"));
    }

    #[test]
    fn no_target_is_needed_only_for_null() {
        assert!(matches!(job("run --ioengine=null").unwrap().targets, JobTargets::Nothing));
        assert!(job("run").unwrap_err().message.contains("no target"));
    }

    #[test]
    fn contradicting_flags_are_refused() {
        for line in [
            "run . --rate-process=poisson",
            "run . --rate=1m --rate-iops=100",
            "run . --rwmixread=30",
            "run . --trials=0",
            "run . --stride=0",
            "run . --bs=4k --bssplit=4k/50:8k/50",
            "run sim:nt4-nowhere",
        ] {
            let failure = job(line).unwrap_err();
            assert_eq!(failure.exit, crate::failure::Exit::Usage, "{line}: {failure}");
        }
    }

    #[test]
    fn the_default_percentiles_are_50_and_99() {
        let asked = |line: &str| job(line).unwrap().percentiles().to_vec();
        assert_eq!(asked("run ."), [50.0, 99.0]);
        assert_eq!(asked("run . --percentile=99.9"), [99.9]);
    }

    #[test]
    fn too_many_combinations_are_refused() {
        let axis = (1..=101).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let line = format!("sweep . --bs={axis} --iodepth={axis}");
        assert!(job(&line).unwrap_err().message.contains("10201 combinations"));
        let line = format!("sweep . --bs={}", "512,".repeat(20_000) + "512");
        assert!(job(&line).unwrap_err().message.contains("20001 combinations"));
        let doubled = job("sweep . --rw=read,read --iodepth=4,4").unwrap();
        assert_eq!(doubled.axes.len(), 1);
    }

    #[test]
    fn buffered_writes_are_flushed_at_the_end_and_direct_ones_are_not() {
        let job = job("run . --rw=write").unwrap();
        assert!(job.workload(&job.axes[0], 1 << 20, false).flush_at_end);
        assert!(!job.workload(&job.axes[0], 1 << 20, true).flush_at_end);
    }
}
