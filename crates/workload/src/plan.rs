//! Turns a workload into a plan for a target: checks all limits, and gives each worker its region,
//! its seed and its share of the load.

use ioengine::zones::Zones;
use ioengine::{Target, TargetKind};

use crate::arrival::{Process, Rate};
use crate::content::block_bytes;
use crate::cursor::Cursor;
use crate::error::Error;
use crate::random;
use crate::skew;
use crate::spec::{Arrival, Content, Distribution, Pattern, Placement, Workload, Zone};

/// Maximum queue depth of a thread, which is the maximum size of an io_uring queue.
pub const DEPTH_MAX: u32 = 32_768;
/// Maximum number of threads. With more threads, a test would measure the scheduler.
pub const THREADS_MAX: u32 = 4_096;
/// Maximum request size (bytes). This is the largest power of two that fits into the result of a
/// completion, a signed 32-bit number.
pub const REQUEST_BYTES_MAX: u32 = 1 << 30;
/// Maximum total size of the buffers of all threads (bytes). The limit, 16 GiB, is half the memory
/// of a small server.
pub const BUFFER_BYTES_MAX: u64 = 16 << 30;
/// Maximum number of request sizes, or of zones of a distribution. Their shares are whole percents,
/// which add up to 100.
pub const SHARES_MAX: usize = 100;
/// Maximum exponent of Zipf's law. With this exponent, the most popular block gets 99.9% of the
/// accesses.
pub const THETA_MAX: f64 = 10.0;
/// Constant that is mixed with the worker's seed to get the seed of the worker's arrivals.
const ARRIVAL_SEED: u64 = 0xA771;

/// The plan of one worker.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerPlan {
    /// Start of the worker's region (bytes).
    pub region_offset: u64,
    /// Length of the worker's region, a multiple of the smallest request size (bytes).
    pub region_bytes: u64,
    /// Offset within the region at which sequential requests start (bytes).
    pub start_bytes: u64,
    /// Seed of the worker's random choices.
    pub seed: u64,
    /// The CPU to which the worker is pinned. None if the worker is not pinned. Set by the runner.
    pub cpu: Option<usize>,
    /// Number of bytes after which the worker stops. None for no limit.
    pub limit_bytes: Option<u64>,
    /// Rate and arrival process of the worker's open loop. None for a closed loop.
    pub rate: Option<Rate>,
    /// Index of the worker's target. Set by the runner.
    pub target: usize,
    /// Number of the worker, counted across all targets. Set by the runner.
    pub number: u32,
    /// The sequential stream that all workers of the target share. None if the placement is not
    /// interlocked. Set by the runner.
    pub cursor: Option<Cursor>,
    /// Zones of the target, which the worker's writes must fill in order. None if any order is
    /// allowed.
    pub zones: Option<Zones>,
}

/// A workload that was checked against its target.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The workload.
    pub workload: Workload,
    /// The plan of each thread.
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
    let zones = target.zones().filter(|_| workload.writes());
    let zones = zones.filter(|zones| !is_before(workload, zones));
    if workload.options.zone_append && zones.is_none() {
        let what =
            format!("`zone_append`: the region of {} has no zones to append to", target.name());
        return Err(Error::usage(what, "drop `zone_append`, or use another `region_offset`"));
    }
    if let Some(zones) = &zones {
        check_zones(workload, zones, target.name(), target.caching().is_direct())?;
    }
    let of = |index| match &zones {
        Some(zones) => worker_of_zones(workload, index, zones),
        None => worker(workload, index),
    };
    let workers = (0..workload.threads).map(of).collect();
    Ok(Plan { workload: workload.clone(), workers })
}

/// Checks that a replay fits into its region, and that the region fits into its target.
fn check_room<T: Target>(workload: &Workload, target: &T) -> Result<(), Error> {
    let Workload { region_offset, region_bytes, request_bytes, .. } = *workload;
    let (name, size) = (target.name(), target.size_bytes());
    let replay = workload.replay.as_ref().filter(|replay| !replay.description.folded);
    let span_bytes = replay.map_or(0, |replay| replay.span_bytes);
    if span_bytes > region_bytes {
        let what =
            format!("the trace needs {span_bytes} bytes, but the region has {region_bytes} bytes");
        let remedy = "replay only some files with `files`, wrap around at the end of the region \
                      with `folded`, or use a larger `region_bytes`";
        return Err(Error::usage(what, remedy));
    }
    let end = region_offset.saturating_add(region_bytes);
    if end > size && !workload.may_extend {
        // The region may be larger than the trace needs.
        if replay.is_none() || region_offset.saturating_add(span_bytes) <= size {
            let what = format!("{name} has {size} bytes, but the region ends at {end}");
            let remedy = "use a smaller `region_bytes` or `region_offset`, or a larger target";
            return Err(Error::usage(what, remedy));
        }
        let what = format!("{name} has {size} bytes, but the trace needs {end}");
        let remedy = "replay only some files with `files`, wrap around at the end of the target \
                      with `folded`, or use a larger target";
        return Err(Error::usage(what, remedy));
    }
    if region_bytes < u64::from(request_bytes) {
        let what = format!(
            "a region of {region_bytes} bytes is too small for requests of {request_bytes} bytes"
        );
        return Err(Error::usage(what, "use a larger `region_bytes`"));
    }
    Ok(())
}

/// Plans a replay. The trace determines the offsets, the sizes and the gaps of the requests, so
/// each worker gets the whole region.
fn resolve_replay<T: Target>(workload: &Workload, target: &T) -> Result<Plan, Error> {
    if workload.warm_up_ns > 0 || workload.steady.is_some() {
        let what = "a replay has no warm-up: each request is issued once";
        return Err(Error::usage(what, "drop the warm-up"));
    }
    let granule = u64::from(target.alignment().offset_bytes.max(1));
    let request_bytes = u64::from(workload.request_bytes);
    let unaligned = [("request_bytes", request_bytes), ("region_offset", workload.region_offset)]
        .into_iter()
        .find(|(_, bytes)| !bytes.is_multiple_of(granule));
    if let Some((name, bytes)) = unaligned {
        let what = format!(
            "`{name}` {bytes} is not a multiple of {granule}, which {} requires",
            target.name()
        );
        return Err(Error::usage(what, format!("use a multiple of {granule}")));
    }
    check_room(workload, target)?;
    if target.zones().is_some_and(|zones| workload.writes() && !is_before(workload, &zones)) {
        let what = format!("{} accepts writes only in order within its zones", target.name());
        return Err(Error::usage(what, "replay a trace without writes, or use another target"));
    }
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
        let what = format!(
            "request size x depth x threads needs {gib:.1} GiB of buffers, but the limit is 16 GiB"
        );
        return Err(Error::usage(what, "lower `request_bytes`, `depth` or `threads`"));
    }
    if workload.content == Content::Verified && block_bytes(request_bytes).is_none() {
        let what = format!(
            "`request_bytes` {request_bytes} cannot be divided into blocks that `verify` can check"
        );
        return Err(Error::usage(what, "with `verify`, use a multiple of 64 bytes"));
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
        if odd > largest {
            let what = format!("`request_sizes`: {odd} is larger than `request_bytes`, {largest}");
            return Err(Error::usage(what, "set `request_bytes` to the largest of the sizes"));
        }
        let what =
            format!("`request_sizes`: {odd} is not a multiple of the smallest size, {smallest}");
        return Err(Error::usage(
            what,
            "use multiples of the smallest size, because offsets are aligned to it",
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
            return refuse(
                "needs an exponent above 0 and up to 10",
                "use a distribution such as zipf:1.2",
            );
        }
        Distribution::Pareto { h } if !(*h > 0.0 && *h < 1.0) => {
            return refuse(
                "needs a share between 0 and 1",
                "use a distribution such as pareto:0.2 (80% of the accesses to 20% of the region)",
            );
        }
        Distribution::Zoned(zones) => {
            let sum = |of: fn(&Zone) -> u8| zones.iter().map(|z| u32::from(of(z))).sum();
            let sums: [u32; 2] = [sum(|zone| zone.access_percent), sum(|zone| zone.region_percent)];
            if zones.len() > SHARES_MAX {
                return refuse(&format!("has more than {SHARES_MAX} zones"), "combine zones");
            }
            if sums != [100, 100] {
                let remedy = "make the access shares add up to 100 and the region shares add up \
                              to 100, as in zoned:60/10:30/20:10/70";
                return refuse(
                    "has access shares or region shares that do not add up to 100%",
                    remedy,
                );
            }
        }
        _ => {}
    }
    Ok(())
}

/// Checks that the trial has a limit, and checks arrival rate, think time and placement.
fn check_loop(workload: &Workload) -> Result<(), Error> {
    if workload.limit_bytes.is_none() && workload.limit_ns.is_none() {
        return Err(Error::usage(
            "the workload would never end",
            "specify `limit_ns` or `region_bytes`",
        ));
    }
    let rate = workload.arrival.requests_per_s();
    if rate.is_some_and(|rate| rate <= 0.0 || !rate.is_finite()) {
        return Err(Error::usage("`arrival` must be above 0", "use a rate such as 1000"));
    }
    if rate.is_some() && workload.think.is_some() {
        let what = "`think` needs a closed loop, but `arrival` makes an open loop";
        return Err(Error::usage(what, "drop `think` or `arrival`"));
    }
    if workload.think.is_some_and(|think| think.requests == 0) {
        return Err(Error::usage("with `think.requests` 0, no request is sent", "use 1 or more"));
    }
    if workload.placement == Placement::Interlocked && workload.pattern != Pattern::Sequential {
        let what = "`placement` interlocked is only for sequential requests";
        return Err(Error::usage(
            what,
            "use sequential requests (`rw` read or write, without `stride_bytes`), or use \
             `placement` shared",
        ));
    }
    Ok(())
}

/// Checks whether each block of the region is visited at most once.
fn is_one_pass(workload: &Workload) -> bool {
    workload.limit_bytes.is_some_and(|bytes| bytes <= workload.region_bytes)
}

/// Returns true if the region ends before the zones that must be written in order.
fn is_before(workload: &Workload, zones: &Zones) -> bool {
    let end = workload.region_offset.saturating_add(workload.region_bytes);
    end <= zones.sequential_from_bytes
}

/// Checks writes to a device whose zones must be written in order.
fn check_zones(
    workload: &Workload,
    zones: &Zones,
    name: &str,
    is_direct: bool,
) -> Result<(), Error> {
    let Workload { region_offset, region_bytes, request_bytes, depth, threads, .. } = *workload;
    let Zones { zone_bytes, capacity_bytes, sequential_from_bytes: from, open_max } = *zones;
    let refuse = |what: String, remedy: String| Err(Error::usage(what, remedy));
    let is_ordered = workload.pattern == Pattern::Sequential && workload.read_percent == 0;
    if !is_ordered || !workload.request_sizes.is_empty() {
        let what = format!("{name} accepts writes only in order, in zones of {zone_bytes} bytes");
        let remedy = "use `rw` read, or use `rw` write with a single request size";
        return refuse(what, remedy.to_owned());
    }
    if !is_direct {
        let what =
            format!("{name} accepts writes only in order, but the page cache may reorder them");
        return refuse(what, "use `direct`".to_owned());
    }
    if region_offset < from || !(region_offset - from).is_multiple_of(zone_bytes) {
        let what = format!("`region_offset` {region_offset} is not the start of a zone of {name}");
        return refuse(what, format!("use {from} plus a multiple of {zone_bytes}"));
    }
    if !capacity_bytes.is_multiple_of(request_bytes.into()) {
        let what = format!(
            "the capacity of each zone of {name} is {capacity_bytes} bytes, which is not a \
             multiple of `request_bytes` {request_bytes}"
        );
        return refuse(what, "use a smaller `request_bytes` that is a power of two".to_owned());
    }
    let appends = workload.options.zone_append;
    let zones_of_thread = if appends { 1 } else { u64::from(depth) };
    let open = zones_of_thread * u64::from(threads);
    let most = region_bytes / u64::from(threads) / zone_bytes * u64::from(threads);
    let most = open_max.map_or(most, |open_max| most.min(open_max.into()));
    if open > most {
        let what = format!(
            "with this `depth` and `threads`, {open} zones are written at once, but {name} allows \
             {most} in the region"
        );
        let fewer = if appends { "fewer `threads`" } else { "a lower `depth` or fewer `threads`" };
        let is_device_limit = open_max.is_some_and(|open_max| u64::from(open_max) == most);
        let larger = if is_device_limit { "" } else { ", or a larger `region_bytes`" };
        return refuse(what, format!("use {fewer}{larger}"));
    }
    if threads > 1 && workload.placement != Placement::Own {
        let what = "`placement`: threads that share a zone would write to this zone out of order";
        return refuse(what.to_owned(), "use `placement` own".to_owned());
    }
    if appends && workload.content == Content::Verified {
        let what = "`verify` cannot check appends, because the drive chooses their offsets";
        return refuse(what.to_owned(), "drop `zone_append` or `verify`".to_owned());
    }
    if workload.content == Content::Verified && !is_one_pass(workload) {
        let what = "`verify` cannot check zones that are reset and written again".to_owned();
        let remedy = "use `region_bytes` without `limit_ns`, so that each zone is written once";
        return refuse(what, remedy.to_owned());
    }
    Ok(())
}

fn check_flushes(workload: &Workload) -> Result<(), Error> {
    let Some(flush) = workload.flush_every else { return Ok(()) };
    let name = flush.name();
    if flush.writes == 0 {
        let what = format!("`{name}` 0 never flushes");
        return Err(Error::usage(what, format!("drop `{name}`, or set `{name}` to 1 or more")));
    }
    if !workload.writes() {
        let what = format!("`{name}` flushes after writes, but {} has no writes", workload.rw());
        return Err(Error::usage(what, format!("use `rw` write, or drop `{name}`")));
    }
    if workload.read_percent == 0 && flush.writes < workload.depth {
        let (writes, depth) = (flush.writes, workload.depth);
        let what = format!(
            "`{name}` {writes} allows only {writes} writes in flight, so `depth` {depth} is never \
             reached"
        );
        let remedy =
            format!("use a `depth` of at most {writes}, or set `{name}` to {depth} or more");
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
        let each = if parts > 1 { format!(" in each of {parts} parts") } else { String::new() };
        let what = format!(
            "a region of {region_bytes} bytes is too small for a request of {request_bytes} \
             bytes{each}"
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
                "`distribution` {} has a zone that is smaller than a block",
                workload.distribution
            );
            return Err(Error::usage(
                what,
                "use a larger `region_bytes`, or give the zone a larger share",
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
    // Each worker's share of the limit is a whole number of requests, and the sum of the shares
    // does not exceed the limit.
    let share = |bytes: u64| {
        let requests = bytes / request;
        (requests / threads + u64::from(index_64 < requests % threads)) * request
    };
    let seed = random::mix(workload.seed, index_64);
    let process = match workload.arrival {
        // Arrival times have a separate random stream, so that they are independent of offsets.
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
        zones: None,
    }
}

/// Plans a worker that fills zones. The worker's region consists of whole zones.
fn worker_of_zones(workload: &Workload, index: u32, zones: &Zones) -> WorkerPlan {
    let each = workload.region_bytes / u64::from(workload.threads) / zones.zone_bytes;
    let region_bytes = each * zones.zone_bytes;
    let plan = worker(workload, index);
    WorkerPlan {
        // A zone's capacity may be less than its length, so one pass writes only the capacity.
        limit_bytes: match is_one_pass(workload) {
            true => plan.limit_bytes.map(|bytes| bytes.min(each * zones.capacity_bytes)),
            false => plan.limit_bytes,
        },
        region_offset: workload.region_offset + u64::from(index) * region_bytes,
        region_bytes,
        start_bytes: 0,
        zones: Some(*zones),
        ..plan
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

    const ZONES: Zones = Zones {
        zone_bytes: 4 << 20,
        capacity_bytes: 3 << 20,
        sequential_from_bytes: 8 << 20,
        open_max: Some(4),
    };

    #[test]
    fn writes_that_a_zoned_device_would_refuse_are_refused_with_the_remedy() {
        let good = Workload {
            read_percent: 0,
            region_offset: 8 << 20,
            region_bytes: 40 << 20,
            request_bytes: 65536,
            depth: 2,
            threads: 2,
            ..null_workload()
        };
        let check = |change: &dyn Fn(&mut Workload), is_direct| {
            let mut workload = good.clone();
            change(&mut workload);
            check_zones(&workload, &ZONES, "zoned", is_direct).map_err(|error| error.to_string())
        };
        let one_pass = |load: &mut Workload| {
            (load.content, load.limit_bytes) = (Content::Verified, Some(load.region_bytes));
        };
        assert_eq!(check(&|_| {}, true), Ok(()));
        let says = |words: &str, change: &dyn Fn(&mut Workload)| {
            let why = check(change, true).unwrap_err();
            assert!(why.contains(words), "{why}");
        };
        says("only in order, in zones of 4194304", &|load| load.pattern = Pattern::Random);
        says("only in order", &|load| load.read_percent = 50);
        says("use 8388608 plus a multiple of 4194304", &|load| load.region_offset = 4096);
        says("is 3145728 bytes, which is not a multiple", &|load| load.request_bytes = 5 << 20);
        says("use a lower `depth` or fewer `threads`", &|load| load.depth = 3);
        says("`placement` own", &|load| load.placement = Placement::Shared);
        says("`verify`", &|load| load.content = Content::Verified);
        let append = |load: &mut Workload| load.options.zone_append = true;
        let deep = |load: &mut Workload| {
            append(load);
            load.depth = 64;
        };
        assert_eq!(check(&deep, true), Ok(()), "one zone for each thread");
        says("use fewer `threads`", &|load| {
            append(load);
            load.threads = 5;
        });
        says("drop `zone_append`", &|load| {
            append(load);
            one_pass(load);
        });
        assert_eq!(check(&one_pass, true), Ok(()));
        assert!(check(&|_| {}, false).unwrap_err().contains("use `direct`"));
        let low = Workload { region_offset: 0, region_bytes: 8 << 20, ..good.clone() };
        assert!(is_before(&low, &ZONES) && !is_before(&good, &ZONES));
    }

    #[test]
    fn workers_fill_whole_zones_of_their_own() {
        let workload = Workload {
            region_offset: 8 << 20,
            region_bytes: 23 << 20,
            limit_bytes: Some(23 << 20),
            threads: 2,
            ..null_workload()
        };
        let plans = [0, 1].map(|index| worker_of_zones(&workload, index, &ZONES));
        let regions = plans.map(|plan| (plan.region_offset >> 20, plan.region_bytes >> 20));
        assert_eq!(regions, [(8, 8), (16, 8)]);
        let plan = worker_of_zones(&workload, 0, &ZONES);
        assert_eq!(plan.limit_bytes, Some(6 << 20), "two zones of 3 MiB");
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
            .contains("use a `depth` of at most 4, or set `fdatasync` to 8")
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
        assert!(split(&[(4096, 50), (1 << 30, 50)]).contains("is larger than `request_bytes`"));
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
        // With requests of 64 KiB, each thread's part has eight blocks, and the whole region has
        // sixteen blocks.
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
