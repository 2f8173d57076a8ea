//! The model: workloads that load a device as the traced program did. Each workload lists the
//! measurements from which it was derived, and what it leaves out.
//!
//! A workload is a closed loop: each thread keeps `depth` requests in flight and pauses before each
//! request. This depth is the 98th percentile of the depths of the requests in the trace. The pause
//! follows from Little's law: it is `depth * thread_time / requests - latency`. Here, `thread_time`
//! is the active time of all threads, without flushes, and `latency` is the mean latency. On the
//! same device, the workload therefore has the request rate of the program. If the trace has no
//! latencies, the workload is an open loop with the request rate of the trace.

use std::collections::BTreeMap;

use analysis::popularity::{self, Law};
use analysis::units;
use trace::{FileId, Header};

use super::groups::{Group, Groups, Interface, OrderKind};
use super::measure::{Measured, Times};
use super::shapes::{Direction, Flushes, Shapes};

/// The depth of a workload is this quantile of the depths of its requests in the trace.
const DEPTH_SHARE: f64 = 0.98;
/// Minimum ratio of the pause to the sum of pause and latency. Shorter pauses are ignored. The
/// first value applies at depth 1. The second value applies at greater depths, because programs
/// then handle several completions together, which looks like a short pause.
const PAUSE_MIN: (f64, f64) = (0.03, 0.1);
/// The long gaps are the longest gaps that together make up this share of the total gap time.
const LONG_GAPS: f64 = 0.9;
/// Long gaps count as idle time instead of pauses if their number is less than the first value and
/// the number of requests is at least the second value.
const IDLE: (u64, u64) = (10, 100);
/// A group is left out if its shares of requests, bytes and time are all smaller than this.
const SHARE_MIN: f64 = 0.01;
/// Maximum number of workloads of a model.
const WORKLOADS_MAX: usize = 8;
/// If at least this share of the flushes has the same number of writes since the previous flush,
/// the model uses this number. Otherwise, it uses the mean number.
const SAME_INTERVAL: f64 = 0.8;
/// Coefficient of variation above which the times between requests count as random.
const VARIATION_OF_CHANCE: f64 = 0.5;
/// Maximum length of a region, and maximum stride, in a model (bytes).
const REGION_MAX: u64 = 1 << 60;
/// Minimum number of accesses to a region. With fewer accesses, all blocks of the region count as
/// equally popular.
const ACCESSES_MIN: u64 = 1_000;

/// The access order of a workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Each thread accesses its region from start to end.
    Sequential,
    /// All threads together access the region from start to end, as one stream.
    Common,
    /// Distance between the starts of successive requests (bytes).
    Strided(u64),
    /// Requests start at random offsets. The law defines how popular each block is.
    Random(Law),
}

/// When requests are issued: after completions, or at a given rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// A request is issued when an earlier request completes, after a pause.
    Closed {
        /// Duration of a pause; 0 if there are no pauses (ns).
        pause_ns: u64,
        /// Number of requests between two pauses.
        every: u32,
    },
    /// Requests are issued at a given rate, independently of completions.
    Open {
        /// Mean request rate (requests/s).
        requests_per_s: f64,
        /// Whether requests are issued at random times rather than at regular ones.
        poisson: bool,
    },
}

/// How the threads of a workload share its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Each thread accesses a separate part.
    Own,
    /// All threads access the whole region.
    Shared,
}

/// A workload of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelWorkload {
    /// A name that is unique in the model, such as `random reads of 8 KiB`.
    pub name: String,
    /// The names of up to three accessed files, and the number of all accessed files.
    pub files: (Vec<String>, usize),
    /// Number of requests.
    pub requests: u64,
    /// Share of all requests in the trace.
    pub share: f64,
    /// Share of all bytes in the trace.
    pub share_of_bytes: f64,
    /// Share of reads (percent).
    pub read_percent: u8,
    /// The access order.
    pub order: Order,
    /// Mean number of requests in a sequential run.
    pub run_length: f64,
    /// Request sizes (bytes) with their shares (percent), in ascending order.
    pub sizes: Vec<(u32, u8)>,
    /// Length of the accessed region (bytes).
    pub region_bytes: u64,
    /// Number of threads.
    pub threads: u32,
    /// Number of requests that each thread keeps in flight.
    pub depth: u32,
    /// How the threads share the region.
    pub sharing: Sharing,
    /// When requests are issued: after completions, or at a given rate.
    pub pace: Pace,
    /// Number of writes between two flushes of a thread, and whether the flushes are `fdatasync`
    /// calls. None if the workload does not flush.
    pub flush: Option<(u32, bool)>,
    /// Whether writes are durable on completion, without a separate flush.
    pub durable: bool,
    /// Whether requests bypass the page cache.
    pub direct: bool,
    /// Whether reads are served from the page cache.
    pub cached: bool,
    /// The interface by which requests were issued.
    pub interface: Interface,
    /// Time from the start of the first request to the end of the last request (ns).
    pub duration_ns: u64,
    /// Sentences about what was measured.
    pub counted: Vec<String>,
    /// Sentences about what the model leaves out of this workload.
    pub left_out: Vec<String>,
}

/// The workloads of a trace, sorted by their largest share of requests, bytes or time, in
/// descending order.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The workloads.
    pub workloads: Vec<ModelWorkload>,
    /// Sentences about what the model leaves out of the whole trace.
    pub left_out: Vec<String>,
}

impl Model {
    /// Builds the model from the results of the two passes.
    pub fn of(shapes: &Shapes, groups: &Groups, measured: &[Measured], header: &Header) -> Model {
        let total = Total::of(groups);
        let mut ranked: Vec<(&Group, &Measured)> = groups.groups.iter().zip(measured).collect();
        ranked.sort_by(|a, b| total.weight(b.0).total_cmp(&total.weight(a.0)));
        let is_large = |(group, _): &&(&Group, &Measured)| total.weight(group) >= SHARE_MIN;
        let kept: Vec<_> = ranked.iter().filter(is_large).take(WORKLOADS_MAX).collect();
        let mut workloads: Vec<ModelWorkload> = kept
            .iter()
            .map(|(group, measured)| workload(group, measured, &total, header))
            .collect();
        tell_apart(&mut workloads);
        let mut left_out = Vec::new();
        let counted: u64 = kept.iter().map(|(group, _)| group.count).sum();
        let mut add = |count: u64, what: &str| {
            if count > 0 {
                left_out.push(format!("{} {what}", units::count(count as f64)));
            }
        };
        add(total.requests - counted, "requests to files that were rarely used");
        add(shapes.empty, "reads and writes that failed or moved no data");
        add(shapes.page_faults, "page faults in mapped files");
        add(shapes.others, "other operations, such as opening and allocating files");
        add(header.lost.iter().map(|loss| loss.count).sum(), "events that the trace lost");
        if shapes.collapsed > 0 {
            let what = "some files, because only 8192 pairs of file and thread are tracked";
            left_out.push(what.to_owned());
        }
        Model { workloads, left_out }
    }
}

/// Sums over all groups.
struct Total {
    requests: u64,
    bytes: f64,
    latency_ns: f64,
}

impl Total {
    fn of(groups: &Groups) -> Total {
        let sum = |of: fn(&Group) -> f64| groups.groups.iter().map(of).sum();
        Total {
            requests: groups.groups.iter().map(|group| group.count).sum(),
            bytes: sum(|group| group.bytes as f64),
            latency_ns: sum(|group| group.latency_ns as f64),
        }
    }

    /// Returns the largest of a group's shares of requests, bytes and time. Shares of bytes and
    /// time count as 0 if they are unknown.
    fn weight(&self, group: &Group) -> f64 {
        let share = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
        let requests = share(group.count as f64, self.requests as f64);
        let bytes = share(group.bytes as f64, self.bytes);
        requests.max(bytes).max(share(group.latency_ns as f64, self.latency_ns))
    }
}

/// Makes the names unique by appending a number to repeated names.
fn tell_apart(workloads: &mut [ModelWorkload]) {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for workload in workloads {
        let count = seen.entry(workload.name.clone()).or_default();
        *count += 1;
        if *count > 1 {
            workload.name = format!("{}, {count}", workload.name);
        }
    }
}

fn workload(group: &Group, measured: &Measured, total: &Total, header: &Header) -> ModelWorkload {
    let mut notes = Notes::default();
    let threads = threads(group, measured, &mut notes);
    let (depth, pace) = pace(group, measured, threads, &mut notes);
    let order = order(group, measured, &mut notes);
    let largest = group.sizes.iter().map(|(bytes, _)| u64::from(*bytes)).max().unwrap_or(1);
    let least = largest.saturating_mul(u64::from(threads));
    let region = group.region_bytes().max(least);
    let runs = (group.count - group.sequential.min(group.count)).max(1);
    let reads = group.reads as f64 / group.count.max(1) as f64;
    let common = group.sizes.iter().max_by_key(|(_, percent)| *percent);
    let size = common.map_or(String::new(), |(bytes, _)| units::size(u64::from(*bytes)));
    let files = files(group, header);
    describe(group, measured, &files, &mut notes);
    let only_writes = group.kind.direction != Direction::Read;
    let flush = only_writes.then(|| flush(group, &mut notes)).flatten();
    if group.kind.flushed && flush.is_none() {
        notes.left_out.push("flushes (there are too few to derive a flush interval)".to_owned());
    }
    ModelWorkload {
        name: format!("{} of {size}", name(group)),
        files,
        requests: group.count,
        share: group.count as f64 / total.requests.max(1) as f64,
        share_of_bytes: if total.bytes > 0.0 { group.bytes as f64 / total.bytes } else { 0.0 },
        read_percent: match group.kind.direction {
            Direction::Read => 100,
            Direction::Write => 0,
            Direction::Both => ((reads * 100.0).round() as u8).clamp(1, 99),
        },
        order,
        run_length: group.count as f64 / runs as f64,
        sizes: group.sizes.clone(),
        region_bytes: rounded(region, group.unit_bytes()),
        threads,
        depth,
        sharing: if group.has_own_ranges() { Sharing::Own } else { Sharing::Shared },
        pace,
        flush,
        durable: group.kind.durable,
        direct: group.kind.direct,
        cached: group.kind.cached,
        interface: group.kind.interface,
        duration_ns: measured.duration_ns(),
        counted: notes.counted,
        left_out: notes.left_out,
    }
}

/// Rounds the length of a region up to a multiple of `unit` (bytes).
fn rounded(bytes: u64, unit: u64) -> u64 {
    let most = REGION_MAX / unit * unit;
    bytes.div_ceil(unit).saturating_mul(unit).min(most)
}

/// Sentences about a workload.
#[derive(Default)]
struct Notes {
    counted: Vec<String>,
    left_out: Vec<String>,
}

fn name(group: &Group) -> String {
    let order = match group.kind.order {
        OrderKind::Sequential | OrderKind::Common => "sequential",
        OrderKind::Strided => "strided",
        OrderKind::Random => "random",
    };
    let what = match group.kind.direction {
        Direction::Read => "reads",
        Direction::Write => "writes",
        Direction::Both => "reads and writes",
    };
    format!("{order} {what}")
}

/// Returns the names of the first three files, and the number of all files.
fn files(group: &Group, header: &Header) -> (Vec<String>, usize) {
    let named = |file: &Option<FileId>| {
        let name = file.map_or("", |file| header.file_name(file));
        if name.is_empty() { "(unknown file)".to_owned() } else { name.to_owned() }
    };
    (group.ranges.keys().take(3).map(named).collect(), group.ranges.len())
}

fn percent(part: f64, whole: f64) -> String {
    format!("{:.0}%", part / whole.max(f64::MIN_POSITIVE) * 100.0)
}

/// Adds the sentences about counts, order and sizes.
fn describe(group: &Group, measured: &Measured, files: &(Vec<String>, usize), notes: &mut Notes) {
    let names = files.0.join(", ");
    let more = files.1.saturating_sub(files.0.len());
    let more = if more > 0 { format!(" and {more} more files") } else { String::new() };
    notes.counted.insert(
        0,
        format!(
            "{} {} of {names}{more} by {}, in {}",
            units::count(group.count as f64),
            if group.kind.direction == Direction::Both { "requests" } else { "of them" },
            units::counted(group.threads() as u64, "thread"),
            units::time(measured.duration_ns() as f64)
        )
        .replace("of them of", "requests of"),
    );
    let (ordered, following) = (group.ordered as f64, group.following as f64);
    if group.following > 0 && group.kind.order != OrderKind::Common {
        let what = match group.kind.order {
            OrderKind::Strided => "at a constant distance from the previous request",
            OrderKind::Random => "at an offset unrelated to the previous request",
            _ => "where the previous request ended",
        };
        notes.counted.push(format!("{} of the requests start {what}", percent(ordered, following)));
    }
    if group.kind.order == OrderKind::Common {
        notes.counted.push("all threads share one sequential stream".to_owned());
    }
    if group.kind.order == OrderKind::Random && group.sequential > group.count / 10 {
        notes.left_out.push(format!(
            "{} of the requests start where the previous request ended; a plan cannot express \
             this, but a fio job approximates it with sequential runs of the same mean length",
            percent(group.sequential as f64, group.count as f64)
        ));
    }
    if group.sizes_seen > group.sizes.len() {
        notes.left_out.push(format!(
            "{} different request sizes, which are approximated by {}",
            group.sizes_seen,
            units::counted(group.sizes.len() as u64, "size")
        ));
    }
    if group.ranges.len() > 1 {
        notes.left_out.push(format!(
            "the positions of the {} files; the model uses one region, whose length is the sum of \
             all accessed ranges",
            group.ranges.len()
        ));
    }
}

/// Returns the mean number of threads that were active at the same time, rounded.
fn threads(group: &Group, measured: &Measured, notes: &mut Notes) -> u32 {
    let all = group.threads().max(1) as u32;
    let span = measured.duration_ns() as f64;
    let mean = if span > 0.0 { measured.thread_ns / span } else { 1.0 };
    let threads = (mean.round() as u32).clamp(1, all);
    if threads < all {
        notes.left_out.push(format!(
            "{all} threads made these requests; on average, {mean:.1} threads were active at the \
             same time"
        ));
    }
    threads
}

/// Returns the depth of each thread, and the pauses or the rate.
fn pace(group: &Group, measured: &Measured, threads: u32, notes: &mut Notes) -> (u32, Pace) {
    if group.timed * 2 < group.count || measured.duration_ns() == 0 {
        let (sum, squares) = measured.between_starts;
        let count = group.count.saturating_sub(1).max(1) as f64;
        let mean = sum / count;
        let deviation = (squares / count - mean * mean).max(0.0).sqrt();
        let rate = if mean > 0.0 { 1e9 / mean } else { 1.0 };
        let depth = 32_u32.div_ceil(threads);
        notes.left_out.push(
            "the trace has no latencies, so the model issues requests at the rate of the trace; it \
             does not wait for completions unless about 32 requests are outstanding"
                .to_owned(),
        );
        let poisson = deviation > VARIATION_OF_CHANCE * mean;
        return (depth, Pace::Open { requests_per_s: rate.clamp(0.001, 1e9), poisson });
    }
    let depth = depth_of(&measured.depths);
    let latency = group.latency_ns as f64 / group.timed.max(1) as f64;
    let (every, idle_ns) = pauses(&measured.gaps, group.count, depth, notes);
    let count = group.count.max(1) as f64;
    let active_ns = (measured.thread_ns - measured.flush_ns - idle_ns).max(0.0);
    let each = f64::from(depth) * active_ns / count - latency;
    let mean = {
        let sum: f64 =
            measured.depths.iter().enumerate().map(|(n, of)| n as f64 * *of as f64).sum();
        sum / count
    };
    notes.counted.push(format!(
        "the queue depth of a thread is {mean:.1} on average, and at most {depth} for 98% of the \
         requests; the mean latency is {}",
        units::time(latency)
    ));
    let least = if depth > 1 { PAUSE_MIN.1 } else { PAUSE_MIN.0 };
    if each < least * (each + latency) {
        return (depth, Pace::Closed { pause_ns: 0, every: 1 });
    }
    let pause_ns = (each * f64::from(every)).round().min(1e15) as u64;
    notes.left_out.push(
        "the reasons why a thread pauses, such as computation or requests of other workloads"
            .to_owned(),
    );
    (depth, Pace::Closed { pause_ns, every })
}

/// Returns the quantile `DEPTH_SHARE` of the depths of the requests, at least 1. `depths` has the
/// number of requests at each depth.
fn depth_of(depths: &[u64]) -> u32 {
    let all: u64 = depths.iter().sum();
    let mut sum = 0;
    let is_enough = |count: &u64| {
        sum += count;
        sum as f64 >= DEPTH_SHARE * all as f64
    };
    depths.iter().position(is_enough).unwrap_or(1).max(1) as u32
}

/// Returns the number of requests between two pauses, and the idle time that is not a pause (ns).
fn pauses(gaps: &Times, requests: u64, depth: u32, notes: &mut Notes) -> (u32, f64) {
    let (mut gaps, mut idle_ns) = (*gaps, 0.0);
    let class = gaps.class_of_share(LONG_GAPS);
    let (count, sum) = gaps.at_least(class);
    if count < IDLE.0 && requests >= IDLE.1 && sum > 0.0 {
        idle_ns = sum;
        gaps = gaps.below(class);
        notes.left_out.push(format!(
            "{} without requests, {} in total",
            units::counted(count, "idle period"),
            units::time(sum)
        ));
    }
    let class = gaps.class_of_share(LONG_GAPS);
    let ((long, long_ns), (all, all_ns)) = (gaps.at_least(class), gaps.all());
    let short = all - long;
    // With several requests in flight, the gaps of a thread do not show how many requests it makes
    // between two pauses.
    if depth > 1 || long == 0 || short * 2 < long {
        return (1, idle_ns);
    }
    let is_short = (all_ns - long_ns) / short.max(1) as f64 * 10.0 < long_ns / long as f64;
    let every = if is_short { (requests as f64 / long as f64).round() } else { 1.0 };
    (every.clamp(1.0, 1e6) as u32, idle_ns)
}

fn order(group: &Group, measured: &Measured, notes: &mut Notes) -> Order {
    match group.kind.order {
        OrderKind::Sequential => Order::Sequential,
        OrderKind::Common => Order::Common,
        OrderKind::Strided => Order::Strided(group.stride_bytes.unsigned_abs().min(REGION_MAX)),
        OrderKind::Random => Order::Random(law(group, measured, notes)),
    }
}

fn law(group: &Group, measured: &Measured, notes: &mut Notes) -> Law {
    let blocks = group.region_bytes().div_ceil(group.unit_bytes()).max(1);
    let observed = measured.observed(blocks);
    if observed.accesses < ACCESSES_MIN {
        notes.left_out.push("block popularity, because there are too few requests".to_owned());
        return Law::Even;
    }
    let Some(nearest) = popularity::nearest(&observed) else { return Law::Even };
    let counted: u64 = observed.blocks_by_accesses.values().sum();
    let touched = counted as f64 / observed.counted_share;
    let most = observed.blocks_by_accesses.last_key_value().map_or(0, |(count, _)| *count);
    let sample = if measured.is_sample() { " (estimated from a sample)" } else { "" };
    notes.counted.push(format!(
        "{} of {} blocks of {} were accessed, each at most {} times{sample}; the chi-squared \
         distance of the access counts from the chosen distribution is {:.0}, and from a uniform \
         distribution {:.0}",
        units::count(touched),
        units::count(observed.blocks as f64),
        units::size(group.unit_bytes()),
        units::count(most as f64),
        nearest.distance,
        nearest.even_distance
    ));
    if nearest.law != Law::Even {
        let what = "changes in the popularity of blocks over time";
        notes.left_out.push(what.to_owned());
    }
    nearest.law
}

/// Returns the number of writes between two flushes, and whether the flushes are `fdatasync` calls.
/// None without flushes.
fn flush(group: &Group, notes: &mut Notes) -> Option<(u32, bool)> {
    let Flushes { count, data_only, writes, .. } = group.flushes;
    if count == 0 {
        return None;
    }
    let common = group.flushes.intervals.iter().max_by_key(|(_, times)| **times);
    let (interval, times) = common.map_or((1, 0), |(interval, times)| (*interval, *times));
    let mean = writes as f64 / count as f64;
    let is_same = times as f64 >= SAME_INTERVAL * count as f64;
    let every = if is_same { interval as f64 } else { mean.round() };
    notes.counted.push(format!(
        "{} flushes, on average one after {mean:.1} writes; {} of the flushes follow exactly \
         {interval} writes",
        units::count(count as f64),
        percent(times as f64, count as f64)
    ));
    if group.flushed_by_others {
        let what = "flushes by threads that do not write; in the model, the writing threads issue \
                    these flushes";
        notes.left_out.push(what.to_owned());
    }
    Some((every.clamp(1.0, f64::from(u32::MAX)) as u32, data_only * 2 > count))
}
