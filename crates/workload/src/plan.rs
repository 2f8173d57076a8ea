//! Resolves a workload against a target: checks every limit and assigns each worker its region,
//! seed and share.

use ioengine::{Target, TargetKind};

use crate::arrival::{Process, Rate};
use crate::content::block_bytes;
use crate::cursor::Cursor;
use crate::error::Error;
use crate::random;
use crate::skew;
use crate::spec::{Arrival, Content, Distribution, Pattern, Placement, Workload, Zone};

/// Maximum depth of a thread: the largest io_uring queue.
pub const DEPTH_MAX: u32 = 32_768;
/// Maximum number of threads; with more, a test would measure the scheduler.
pub const THREADS_MAX: u32 = 4_096;
/// Maximum request size (bytes): the largest power of two in the 31 bits of a completion's result.
pub const REQUEST_BYTES_MAX: u32 = 1 << 30;
/// Maximum size of the buffers of all threads (bytes): half the memory of a small server.
pub const BUFFER_BYTES_MAX: u64 = 16 << 30;
/// Maximum number of sizes or zones, as shares are whole percents.
pub const SHARES_MAX: usize = 100;
/// Maximum exponent of Zipf's law, which gives the first block 99.9% of the accesses.
pub const THETA_MAX: f64 = 10.0;
/// Derives the seed of a worker's arrivals from the worker's seed.
const ARRIVAL_SEED: u64 = 0xA771;

/// The plan of one worker.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerPlan {
    /// Start of the worker's region (bytes).
    pub region_offset: u64,
    /// Length of the worker's region (bytes), a multiple of the smallest request size.
    pub region_bytes: u64,
    /// Offset within its region at which a sequential worker starts (bytes).
    pub start_bytes: u64,
    /// Seed of the worker's random choices.
    pub seed: u64,
    /// The CPU that the worker is pinned to; set by the runner, which numbers workers across all
    /// targets.
    pub cpu: Option<usize>,
    /// The worker stops when it has issued this many bytes.
    pub limit_bytes: Option<u64>,
    /// The worker's requests of an open loop; None for a closed loop.
    pub rate: Option<Rate>,
    /// Index of the worker's target; set by the runner.
    pub target: usize,
    /// Number of the worker across all targets; set by the runner.
    pub number: u32,
    /// The sequential stream shared with the other workers of the target; set by the runner.
    pub cursor: Option<Cursor>,
}

/// A workload that was checked against its target.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The workload.
    pub workload: Workload,
    /// One plan per thread.
    pub workers: Vec<WorkerPlan>,
}

/// Checks a workload against a target and divides it among its threads.
///
/// # Errors
/// [`Error::Usage`] with the problem and the remedy.
pub fn resolve<T: Target>(workload: &Workload, target: &T) -> Result<Plan, Error> {
    check_shape(workload)?;
    if workload.replay.is_some() {
        return resolve_replay(workload, target);
    }
    check_sizes(workload)?;
    check_distribution(workload)?;
    check_loop(workload)?;
    check_alignment(workload, target)?;
    check_region(workload, target)?;
    target.check(&workload.engine_spec())?;
    check_flushes(workload)?;
    let workers = (0..workload.threads).map(|index| worker(workload, index)).collect();
    Ok(Plan { workload: workload.clone(), workers })
}

/// Checks that a replay fits its region, and the region its target.
fn check_room<T: Target>(workload: &Workload, target: &T) -> Result<(), Error> {
    let Workload { region_offset, region_bytes, request_bytes, .. } = *workload;
    let (name, size) = (target.name(), target.size_bytes());
    let replay = workload.replay.as_ref().filter(|replay| !replay.description.folded);
    let span_bytes = replay.map_or(0, |replay| replay.span_bytes);
    if span_bytes > region_bytes {
        let what =
            format!("the trace needs {span_bytes} bytes, but has a region of {region_bytes}");
        return Err(Error::usage(what, "use `folded`, or a larger `region_bytes`"));
    }
    let end = region_offset.saturating_add(region_bytes);
    if end > size && !workload.may_extend {
        let what = format!("{name} has {size} bytes, but the trace needs {end}");
        return Err(Error::usage(what, "use `folded`, or a larger target"));
    }
    if region_bytes < u64::from(request_bytes) {
        let what = format!(
            "a region of {region_bytes} bytes is too small for requests of {request_bytes}"
        );
        return Err(Error::usage(what, "use a larger `region_bytes`"));
    }
    Ok(())
}

/// The plan of a replay, whose requests bring their own offsets, sizes and gaps. All workers use
/// the whole region.
fn resolve_replay<T: Target>(workload: &Workload, target: &T) -> Result<Plan, Error> {
    if workload.warm_up_ns > 0 || workload.steady.is_some() {
        let what = "a replay has no warm-up: each request is issued once";
        return Err(Error::usage(what, "drop the warm-up"));
    }
    let granule = u64::from(target.alignment().offset_bytes.max(1));
    let unaligned = [u64::from(workload.request_bytes), workload.region_offset]
        .into_iter()
        .find(|bytes| !bytes.is_multiple_of(granule));
    if let Some(bytes) = unaligned {
        let what = format!("{bytes} is not a multiple of {granule}, as {} requires", target.name());
        return Err(Error::usage(what, "use a multiple"));
    }
    check_room(workload, target)?;
    target.check(&workload.engine_spec())?;
    let whole =
        Workload { placement: Placement::Shared, request_sizes: Vec::new(), ..workload.clone() };
    let workers = (0..workload.threads).map(|index| WorkerPlan {
        region_bytes: workload.region_bytes,
        start_bytes: 0,
        limit_bytes: None,
        rate: None,
        ..worker(&whole, index)
    });
    Ok(Plan { workload: workload.clone(), workers: workers.collect() })
}

fn check_shape(workload: &Workload) -> Result<(), Error> {
    let Workload { request_bytes, depth, threads, .. } = *workload;
    let within = |value: u32, most: u32| (1..=most).contains(&value);
    if !within(request_bytes, REQUEST_BYTES_MAX) {
        let what = format!("`request_bytes` {request_bytes} is not between 1 byte and 1 GiB");
        return Err(Error::usage(what, "use a request size such as 64k"));
    }
    if !within(depth, DEPTH_MAX) {
        let what = format!("`depth` {depth} is not between 1 and {DEPTH_MAX}");
        return Err(Error::usage(what, "use a depth in that range"));
    }
    if !within(threads, THREADS_MAX) {
        let what = format!("`threads` {threads} is not between 1 and {THREADS_MAX}");
        return Err(Error::usage(what, "use a number of threads in that range"));
    }
    let buffers = u64::from(request_bytes) * u64::from(depth) * u64::from(threads);
    if buffers > BUFFER_BYTES_MAX {
        let gib = buffers as f64 / f64::from(1 << 30);
        let what =
            format!("request size x depth x threads needs {gib:.1} GiB of buffers, at most 16 GiB");
        return Err(Error::usage(what, "lower `request_bytes`, `depth` or `threads`"));
    }
    if workload.content == Content::Verified && block_bytes(request_bytes).is_none() {
        let what =
            format!("`request_bytes` {request_bytes} cannot be divided into verified blocks");
        return Err(Error::usage(what, "with `verify` use a multiple of 64 bytes"));
    }
    if workload.read_percent > 100 {
        let what = format!("`read_percent` {} is over 100", workload.read_percent);
        return Err(Error::usage(what, "use a share from 0 to 100"));
    }
    Ok(())
}

fn check_sizes(workload: &Workload) -> Result<(), Error> {
    let sizes = &workload.request_sizes;
    if sizes.is_empty() {
        return Ok(());
    }
    let percent: u32 = sizes.iter().map(|size| u32::from(size.percent)).sum();
    if percent != 100 || sizes.len() > SHARES_MAX {
        let what =
            format!("`request_sizes`: the shares of {} sizes add up to {percent}%", sizes.len());
        let remedy = format!(
            "use at most {SHARES_MAX} sizes with shares that add up to 100, as in 4k/60:64k/40"
        );
        return Err(Error::usage(what, remedy));
    }
    let (smallest, largest) = (workload.granule_bytes(), workload.request_bytes);
    let is_odd = |bytes: &u32| smallest == 0 || !bytes.is_multiple_of(smallest) || *bytes > largest;
    if let Some(odd) = sizes.iter().map(|size| size.request_bytes).find(is_odd) {
        let what =
            format!("`request_sizes`: {odd} is not a multiple of the smallest size, {smallest}");
        return Err(Error::usage(
            what,
            "offsets are aligned to the smallest size: use multiples of {smallest}",
        ));
    }
    if workload.content == Content::Verified {
        let what = "`verify` checks blocks of one size, but `request_sizes` has several";
        return Err(Error::usage(what, "use `request_bytes`, or drop `verify`"));
    }
    Ok(())
}

fn check_distribution(workload: &Workload) -> Result<(), Error> {
    let refuse = |what: &str, remedy: &str| {
        let what = format!("`distribution` {} {what}", workload.distribution);
        Err(Error::usage(what, remedy))
    };
    match &workload.distribution {
        Distribution::Even => return Ok(()),
        Distribution::Zipf { theta } if !(*theta > 0.0 && *theta <= THETA_MAX) => {
            return refuse("needs an exponent above 0 and up to 10", "use one such as zipf:1.2");
        }
        Distribution::Pareto { h } if !(*h > 0.0 && *h < 1.0) => {
            return refuse("needs a share between 0 and 1", "use one such as pareto:0.2 (80/20)");
        }
        Distribution::Zoned(zones) => {
            let sum = |of: fn(&Zone) -> u8| zones.iter().map(|z| u32::from(of(z))).sum();
            let sums: [u32; 2] = [sum(|zone| zone.access_percent), sum(|zone| zone.region_percent)];
            if sums != [100, 100] || zones.len() > SHARES_MAX {
                let remedy = "make both add up to 100, as in zoned:60/10:30/20:10/70";
                return refuse(
                    "has shares of accesses or of the region that do not add up to 100%",
                    remedy,
                );
            }
        }
        _ => {}
    }
    Ok(())
}

/// Checks the end of the trial, the arrival rate, think time and interlocked placement.
fn check_loop(workload: &Workload) -> Result<(), Error> {
    if workload.limit_bytes.is_none() && workload.limit_ns.is_none() {
        return Err(Error::usage(
            "the workload would never end",
            "give `limit_ns` or `region_bytes`",
        ));
    }
    let rate = workload.arrival.requests_per_s();
    if rate.is_some_and(|rate| rate <= 0.0 || !rate.is_finite()) {
        return Err(Error::usage("`arrival` must be above 0", "use a rate such as 1000"));
    }
    if rate.is_some() && workload.think.is_some() {
        let what = "`think` is for a closed loop, but `arrival` makes it an open one";
        return Err(Error::usage(what, "drop one of them"));
    }
    if workload.think.is_some_and(|think| think.requests == 0) {
        return Err(Error::usage("`think.requests` 0 never sends a request", "use 1 or more"));
    }
    if workload.placement == Placement::Interlocked && workload.pattern != Pattern::Sequential {
        let what = "`placement` interlocked is one sequential stream shared by all threads";
        return Err(Error::usage(
            what,
            "use `rw` read or write without `stride_bytes`, or `placement` shared",
        ));
    }
    Ok(())
}

fn check_flushes(workload: &Workload) -> Result<(), Error> {
    let Some(flush) = workload.flush_every else { return Ok(()) };
    let name = flush.name();
    if flush.writes == 0 {
        let what = format!("`{name}` 0 never flushes");
        return Err(Error::usage(what, format!("drop it, or use `{name}` 1 or more")));
    }
    if !workload.writes() {
        let what = format!("`{name}` flushes after writes, but {} has no writes", workload.rw());
        return Err(Error::usage(what, format!("use `rw` write, or drop `{name}`")));
    }
    if workload.read_percent == 0 && flush.writes < workload.depth {
        let (writes, depth) = (flush.writes, workload.depth);
        let what = format!(
            "`{name}` {writes} allows {writes} writes in flight, so `depth` {depth} is never \
             reached"
        );
        let remedy = format!("use a `depth` of at most {writes}, or `{name}` {depth} or more");
        return Err(Error::usage(what, remedy));
    }
    Ok(())
}

fn check_alignment<T: Target>(workload: &Workload, target: &T) -> Result<(), Error> {
    let granule = u64::from(target.alignment().offset_bytes.max(1));
    let stride = match workload.pattern {
        Pattern::Strided { stride_bytes } => stride_bytes,
        _ => 0,
    };
    let one_size = workload.request_sizes.is_empty();
    let size = if one_size { "`request_bytes`" } else { "`request_sizes`" };
    let wanted = [
        (size, u64::from(workload.granule_bytes())),
        ("`region_offset`", workload.region_offset),
        ("`stride_bytes`", stride),
    ];
    for (flag, bytes) in wanted {
        if !bytes.is_multiple_of(granule) {
            let what = format!(
                "{flag} {bytes} is not a multiple of {granule}, which direct I/O on {} requires",
                target.name()
            );
            let remedy = format!("use a multiple of {granule}, or `direct=false`");
            return Err(Error::usage(what, remedy));
        }
    }
    if stride > 0 && stride < u64::from(workload.request_bytes) {
        let request_bytes = workload.request_bytes;
        let what =
            format!("`stride_bytes` {stride} is smaller than `request_bytes` {request_bytes}");
        return Err(Error::usage(what, "use a stride of at least the request size"));
    }
    Ok(())
}

fn check_region<T: Target>(workload: &Workload, target: &T) -> Result<(), Error> {
    let Workload { region_offset, region_bytes, request_bytes, threads, .. } = *workload;
    let size = target.size_bytes();
    let end = region_offset.saturating_add(region_bytes);
    if end > size && !(workload.may_extend && target.kind() == TargetKind::File) {
        let what = format!("{} has {size} bytes, but the region ends at {end}", target.name());
        let remedy = "use a smaller `region_bytes` or `region_offset`, or a larger target";
        return Err(Error::usage(what, remedy));
    }
    let parts = if workload.placement == Placement::Own { u64::from(threads) } else { 1 };
    if region_bytes / parts < u64::from(request_bytes) {
        let what = format!(
            "a region of {region_bytes} bytes is too small for a request of {request_bytes} in \
             each of {parts} parts"
        );
        let remedy = "use a larger `region_bytes`, a smaller `request_bytes` or fewer `threads`";
        return Err(Error::usage(what, remedy));
    }
    let blocks = region_bytes / parts / u64::from(workload.granule_bytes());
    if let Distribution::Zoned(zones) = &workload.distribution {
        let is_lost =
            |(zone, span): (&Zone, skew::Span)| zone.access_percent > 0 && span.count == 0;
        if zones.iter().zip(skew::spans(zones, blocks)).any(is_lost) {
            let what = format!(
                "`distribution` {} makes a zone that is smaller than a block",
                workload.distribution
            );
            return Err(Error::usage(
                what,
                "use a larger `region_bytes`, or zones of a larger share",
            ));
        }
    }
    Ok(())
}

fn worker(workload: &Workload, index: u32) -> WorkerPlan {
    let request = u64::from(workload.granule_bytes());
    let (threads, index_64) = (u64::from(workload.threads), u64::from(index));
    let whole = |bytes: u64| bytes / request * request;
    let start_in = |bytes: u64, own: u64| whole((workload.start_bytes + own) % bytes.max(1));
    let (region_offset, region_bytes, start_bytes) = match workload.placement {
        Placement::Own => {
            let each = whole(workload.region_bytes / threads);
            (workload.region_offset + each * index_64, each, start_in(each, 0))
        }
        Placement::Shared => {
            let all = whole(workload.region_bytes);
            (workload.region_offset, all, start_in(all, all / threads * index_64))
        }
        Placement::Interlocked => (workload.region_offset, whole(workload.region_bytes), 0),
    };
    // The share consists of whole requests, so that no more bytes are moved than requested.
    let share = |bytes: u64| {
        let requests = bytes / request;
        (requests / threads + u64::from(index_64 < requests % threads)) * request
    };
    let seed = random::mix(workload.seed, index_64);
    let process = match workload.arrival {
        // A separate stream, so that arrival times and offsets are independent.
        Arrival::Poisson { .. } => Process::Poisson { seed: random::mix(seed, ARRIVAL_SEED) },
        _ => Process::Constant { offset: f64::from(index) / f64::from(workload.threads) },
    };
    let share_of =
        |total: f64| Rate { requests_per_s: total / f64::from(workload.threads), process };
    WorkerPlan {
        region_offset,
        region_bytes,
        start_bytes,
        seed,
        cpu: None,
        limit_bytes: workload.limit_bytes.map(share),
        rate: workload.arrival.requests_per_s().map(share_of),
        target: 0,
        number: index,
        cursor: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{FlushEvery, SizeShare, Think};
    use ioengine::{EngineKind, HostTarget};

    fn null_workload() -> Workload {
        Workload {
            engine_kind: EngineKind::Null,
            region_bytes: 1 << 20,
            limit_ns: Some(1),
            ..Workload::default()
        }
    }

    fn refused(change: impl FnOnce(&mut Workload)) -> String {
        let mut workload = null_workload();
        change(&mut workload);
        resolve(&workload, &HostTarget::null(1 << 20)).unwrap_err().to_string()
    }

    #[test]
    fn threads_divide_the_region_and_the_bytes() {
        let limit_bytes = Some(7 * 65536 + 100);
        let workload = Workload { threads: 3, limit_bytes, ..null_workload() };
        let plan = resolve(&workload, &HostTarget::null(1 << 20)).unwrap();
        let regions: Vec<u64> = plan.workers.iter().map(|w| w.region_offset).collect();
        assert_eq!(regions, [0, 5 * 65536, 10 * 65536]);
        assert_eq!(plan.workers.iter().filter_map(|w| w.limit_bytes).sum::<u64>(), 7 * 65536);
        let seeds: Vec<u64> = plan.workers.iter().map(|w| w.seed).collect();
        assert!(seeds[0] != seeds[1] && seeds[1] != seeds[2]);
    }

    #[test]
    fn shared_threads_start_at_different_offsets_of_the_whole_region() {
        let workload = Workload { threads: 2, placement: Placement::Shared, ..null_workload() };
        let plan = resolve(&workload, &HostTarget::null(1 << 20)).unwrap();
        assert_eq!(plan.workers[1].start_bytes, 1 << 19);
        assert_eq!(plan.workers[1].region_bytes, 1 << 20);
    }

    #[test]
    fn invalid_workloads_are_refused_with_a_remedy() {
        assert!(refused(|w| w.region_bytes = 2 << 20).contains("but the region ends at 2097152"));
        assert!(refused(|w| w.depth = 0).contains("`depth` 0"));
        assert!(refused(|w| w.limit_ns = None).contains("`limit_ns`"));
        assert!(refused(|w| w.request_bytes = 2 << 20).contains("too small"));
        assert!(refused(|w| w.threads = 9999).contains("`threads`"));
        assert!(
            refused(|w| {
                w.request_bytes = 64 << 20;
                w.depth = 1024;
            })
            .contains("GiB of buffers")
        );
        let every = |writes| Some(FlushEvery { writes, data_only: true });
        assert!(
            refused(|w| {
                w.read_percent = 0;
                w.depth = 8;
                w.flush_every = every(4);
            })
            .contains("use a `depth` of at most 4, or `fdatasync` 8")
        );
        assert!(refused(|w| w.flush_every = every(4)).contains("`fdatasync` flushes after"));
        assert!(
            refused(|w| {
                w.read_percent = 0;
                w.flush_every = every(0);
            })
            .contains("`fdatasync` 0")
        );
        assert!(
            refused(|w| w.arrival = Arrival::Constant { requests_per_s: 0.0 }).contains("rate")
        );
        let zone = |access_percent, region_percent| Zone { access_percent, region_percent };
        let skewed = |distribution: Distribution| {
            refused(|w| {
                w.pattern = Pattern::Random;
                w.distribution = distribution;
            })
        };
        assert!(skewed(Distribution::Zipf { theta: 0.0 }).contains("zipf:1.2"));
        assert!(skewed(Distribution::Zipf { theta: f64::NAN }).contains("zipf:1.2"));
        assert!(skewed(Distribution::Pareto { h: 1.0 }).contains("pareto:0.2"));
        assert!(skewed(Distribution::Zoned(vec![zone(90, 100)])).contains("zoned:60/10"));
        let thin = Distribution::Zoned(vec![zone(50, 0), zone(50, 100)]);
        assert!(skewed(thin).contains("smaller than a block"));
        let split = |sizes: &[(u32, u8)]| {
            let share = |&(request_bytes, percent)| SizeShare { request_bytes, percent };
            refused(|w| w.request_sizes = sizes.iter().map(share).collect())
        };
        assert!(split(&[(4096, 50)]).contains("4k/60:64k/40"));
        assert!(split(&[(4096, 50), (6000, 50)]).contains("6000 is not a multiple"));
        assert!(
            refused(|w| w.think = Some(Think { pause_ns: 1, requests: 0 })).contains("1 or more")
        );
        assert!(
            refused(|w| {
                w.pattern = Pattern::Random;
                w.placement = Placement::Interlocked;
            })
            .contains("`rw` read or write")
        );
    }

    #[test]
    fn threads_start_at_start_bytes_within_their_parts() {
        let of = |start_bytes, placement| {
            let workload = Workload { threads: 2, placement, start_bytes, ..null_workload() };
            let plan = resolve(&workload, &HostTarget::null(1 << 20)).unwrap();
            [0, 1].map(|worker: usize| plan.workers[worker].start_bytes >> 16)
        };
        // With requests of 64 KiB there are eight in each thread's part and sixteen in the region.
        assert_eq!(of(3 << 16, Placement::Own), [3, 3]);
        assert_eq!(of((9 << 16) + 100, Placement::Own), [1, 1]);
        assert_eq!(of(3 << 16, Placement::Shared), [3, 11]);
        assert_eq!(of(10 << 16, Placement::Shared), [10, 2]);
    }

    #[test]
    fn interlocked_threads_have_the_whole_region_and_one_start() {
        let placement = Placement::Interlocked;
        let workload = Workload { threads: 2, placement, ..null_workload() };
        let plan = resolve(&workload, &HostTarget::null(1 << 20)).unwrap();
        for worker in &plan.workers {
            assert_eq!((worker.start_bytes, worker.region_bytes), (0, 1 << 20));
        }
    }
}
