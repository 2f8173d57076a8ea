//! Measures the read-ahead of a device: how far the device prefetches for a sequential reader, and
//! at which stride prefetching stops.
//!
//! Sequential reads are issued in bursts with pauses between them. Data that the device prefetches
//! during a pause make the first reads of the next burst fast. Reads in growing strides show where
//! prefetching stops. Random reads with the same pauses show whether an idle device becomes faster
//! for another reason, such as a burst credit. No part of the region is read twice, so no read hits
//! data that an earlier read left in a cache.

use analysis::quantile::median;
use analysis::units;
use lab::bench::Bench;
use lab::evidence::{Evidence, Reading};
use lab::failure::Outcome;
use lab::job::Job;
use report::model::{Axis, Chart, Kind, Point, Scale, Series};
use report::units::Unit;
use workload::{Pattern, Think, Workload};

use crate::conclusion::Conclusion;
use crate::curve;
use crate::runner::StudyRunner;

/// A read counts as a miss if it takes at least this many times as long as a hit.
pub const HIT_GAIN: f64 = 1.5;
/// Number of sequential reads between two pauses. If the device prefetches less than this in a
/// pause, only the first reads after the pause are fast.
const BURST: usize = 64;
/// Number of pauses. A burst precedes the first pause, and a burst follows each pause.
const BURSTS: usize = 3;
/// Request sizes, smallest first. A size is only tried if nearly all reads of the previous size
/// were fast.
const REQUEST_BYTES: [u32; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Pauses between bursts (ns), longest first. The longest pause shows how far the device reads
/// ahead, and the other pauses show how fast.
const PAUSES_NS: [u64; 4] = [320_000_000, 80_000_000, 20_000_000, 5_000_000];
/// At least this share of a burst's reads must follow the pattern "fast reads, then slow reads".
/// Otherwise, the burst is noise.
const ORDER_MIN: f64 = 0.8;
/// Number of first reads of a burst. These reads show whether the burst found prefetched data.
const FIRST_READS: usize = 4;
/// Size of a strided read (bytes).
const STRIDE_REQUEST: u32 = 4 << 10;
/// Distances between the starts of two strided reads (in requests).
const STRIDES: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const STRIDE_READS: u64 = 32;
/// Pause before each strided read, in which the device may prefetch (ns).
const STRIDE_PAUSE_NS: u64 = 4_000_000;
/// Number of sequential reads of each size that measure prefetch hits.
const HIT_READS: u64 = 16;
/// Pause before each read that measures prefetch hits (ns). After such pauses, all reads except the
/// first read are hits. The papers measured hits with "delay inserted between requests" (Riedel
/// 1997, section 5.2).
const HIT_PAUSE_NS: u64 = 20_000_000;
/// Number of rounds in which sequential and random reads alternate, without pauses.
const ROUNDS: usize = 3;
/// Minimum and maximum gap between the regions of two strides (bytes), so that no read hits data
/// that were prefetched for the previous stride.
const GAP: [u64; 2] = [1 << 20, 4 << 20];

/// An opened target on which the reads are measured, with its job.
#[derive(Clone, Copy)]
pub struct ReadTarget<'a> {
    /// Label of the target in the readings.
    pub name: &'a str,
    /// The job of the plan.
    pub job: &'a Job,
    /// The opened target.
    pub bench: &'a Bench,
}

/// The part of the region that has not been read yet.
struct UnreadRegion {
    at: u64,
    end: u64,
}

impl UnreadRegion {
    fn left(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }

    /// Takes the next `bytes` bytes from the unread range and returns their offset. `None` if fewer
    /// bytes remain.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let at = self.at;
        let next = at.checked_add(bytes).filter(|next| *next <= self.end)?;
        self.at = next;
        Some(at)
    }
}

/// Runs one trial and returns the latency of each request (ns), in the order of submission.
fn latencies(
    runner: &StudyRunner<'_>,
    job: &Job,
    bench: &Bench,
    requests: u64,
    workload: Workload,
) -> Outcome<Vec<f64>> {
    let workload = Workload {
        limit_bytes: Some(requests * u64::from(workload.request_bytes)),
        log: Some(requests as usize),
        ..workload
    };
    let trial = runner.trial(job, bench, workload)?;
    let ns = |one: &workload::LoggedRequest| one.complete_ns.saturating_sub(one.submit_ns) as f64;
    Ok(trial.log().iter().map(ns).collect())
}

/// Measures how far and how fast the device reads ahead, at which stride read-ahead stops, and the
/// latency of a prefetch hit for several request sizes. The region must not have been read before.
///
/// # Errors
/// When a request fails, or the user interrupts.
pub fn measure(
    runner: &mut StudyRunner<'_>,
    ReadTarget { name, job, bench }: ReadTarget<'_>,
    sizes: &[u32],
) -> Outcome<()> {
    let plain = bench.setting(job, &job.axes[0]).workload;
    // With this alignment, all strides and bursts are aligned too.
    let from = plain.region_offset.next_multiple_of(u64::from(REQUEST_BYTES[3]));
    let mut unread = UnreadRegion { at: from, end: plain.region_offset + plain.region_bytes };
    let mut found = None;
    for bytes in REQUEST_BYTES {
        let Some(burst) =
            burst(runner, ReadTarget { name, job, bench }, bytes, PAUSES_NS[0], &mut unread)?
        else {
            break;
        };
        // Prefetching would make larger reads fast too. If they are slow, the small reads were fast
        // for another reason. Therefore, the largest size that was tried decides.
        found = burst.is_helped().then_some((bytes, burst));
        if found.as_ref().is_some_and(|(_, burst)| !burst.is_whole()) {
            break;
        }
    }
    let depth =
        found.as_ref().map_or(0.0, |(bytes, burst)| prefetched(u64::from(*bytes), burst).most);
    let found = found.map(|(bytes, _)| bytes);
    strides(
        runner,
        ReadTarget { name, job, bench },
        (2 * depth as u64).clamp(GAP[0], GAP[1]),
        &mut unread,
    )?;
    if let Some(bytes) = found {
        hits_by_size(runner, ReadTarget { name, job, bench }, sizes, &mut unread)?;
        for pause_ns in &PAUSES_NS[1..] {
            burst(runner, ReadTarget { name, job, bench }, bytes, *pause_ns, &mut unread)?;
        }
    }
    alternate(runner, ReadTarget { name, job, bench }, &mut unread)?;
    random_bursts(runner, ReadTarget { name, job, bench }, found, &unread)
}

/// Latencies of a trial that pauses between bursts.
#[derive(Clone, Debug, PartialEq)]
struct Burst {
    /// Median latency of reads without a pause (ns). This is the higher of two medians: the median
    /// of the first burst, and the median of the last quarters of the later bursts.
    unpaused_ns: f64,
    /// Median latency of the first reads after a pause (ns).
    paused_ns: f64,
    /// Share of the reads of a burst that follow the pattern "fast reads, then slow reads".
    order: f64,
    /// Number of fast reads at the start of a burst after a pause. `quick_ns` is their total time.
    quick: usize,
    quick_ns: f64,
}

impl Burst {
    /// Splits the latencies into bursts. `None` if there are too few latencies.
    fn of(latencies: &[f64]) -> Option<Burst> {
        let (unpaused, others) = latencies.split_at_checked(BURST)?;
        let bursts: Vec<&[f64]> = others.chunks_exact(BURST).collect();
        let of_each = |part: std::ops::Range<usize>| {
            let part = |burst: &&[f64]| burst[part.clone()].to_vec();
            bursts.iter().flat_map(part).collect::<Vec<f64>>()
        };
        let paused_ns = median(&of_each(0..FIRST_READS))?;
        // If a read in the first burst stalls, the device prefetches meanwhile and the next reads
        // are fast, so the estimate for reads without a pause is too low. Therefore, the last reads
        // of the later bursts count too. They are slow unless the whole burst was prefetched.
        let last_ns = median(&of_each(BURST * 3 / 4..BURST))?;
        let unpaused_ns = median(unpaused)?.max(last_ns);
        let between = (unpaused_ns * paused_ns).sqrt();
        let of_bursts = |of: &dyn Fn(&[f64]) -> f64| {
            median(&bursts.iter().map(|burst| of(burst)).collect::<Vec<f64>>())
        };
        let quick = of_bursts(&|burst| fast_prefix(burst, between) as f64)? as usize;
        let quick_ns = of_bursts(&|burst| burst[..quick].iter().sum())?;
        let order = of_bursts(&|burst| in_order(burst, quick, between))?;
        Some(Burst { unpaused_ns, paused_ns, order, quick, quick_ns })
    }

    /// Checks whether pauses speed up the first reads of a burst, but not the last reads.
    fn is_helped(&self) -> bool {
        let slow = self.unpaused_ns >= HIT_GAIN * self.paused_ns;
        self.quick > 0 && slow && self.order >= ORDER_MIN
    }

    fn is_whole(&self) -> bool {
        is_whole(self.quick)
    }
}

/// Checks whether nearly all reads of a burst were fast (more than three quarters).
fn is_whole(quick: usize) -> bool {
    quick * 4 > BURST * 3
}

/// Returns the share of reads that follow the pattern "`quick` fast reads, then slow reads".
fn in_order(burst: &[f64], quick: usize, between: f64) -> f64 {
    let right = |(index, ns): (usize, &f64)| (*ns < between) == (index < quick);
    burst.iter().enumerate().filter(|one| right(*one)).count() as f64 / burst.len().max(1) as f64
}

/// Returns the number of fast reads at the start: the length of the prefix with the largest surplus
/// of fast over slow reads. A single stalled read therefore does not end the prefix.
fn fast_prefix(latencies: &[f64], between: f64) -> usize {
    let (mut best, mut sum) = ((0, 0), 0);
    for (index, ns) in latencies.iter().enumerate() {
        sum += if *ns < between { 1 } else { -1 };
        if sum > best.0 {
            best = (sum, index + 1);
        }
    }
    best.1
}

/// Measures bursts of sequential reads with pauses. Returns `None` if the target does not support
/// these reads, or if too little of the region is unread.
fn burst(
    runner: &mut StudyRunner<'_>,
    ReadTarget { name, job, bench }: ReadTarget<'_>,
    bytes: u32,
    pause_ns: u64,
    unread: &mut UnreadRegion,
) -> Outcome<Option<Burst>> {
    let requests = (BURST * (1 + BURSTS)) as u64;
    let region_bytes = requests * u64::from(bytes);
    let plain = bench.setting(job, &job.axes[0]).workload;
    let workload = Workload {
        request_bytes: bytes,
        region_bytes,
        think: Some(Think { pause_ns, requests: BURST as u32 }),
        ..plain
    };
    if bench.setting(job, &job.axes[0]).place.check_fit(&workload).is_err() {
        return Ok(None);
    }
    // Half of the unread range is reserved for the strided and random reads. Only the bursts with
    // the longest pause, which run first, may use the whole range.
    let most = if pause_ns == PAUSES_NS[0] { unread.left() } else { unread.left() / 2 };
    if region_bytes > most {
        return Ok(None);
    }
    let Some(region_offset) = unread.take(region_bytes) else { return Ok(None) };
    let workload = Workload { region_offset, ..workload };
    let latencies_ns = latencies(runner, job, bench, requests, workload)?;
    let Some(burst) = Burst::of(&latencies_ns) else { return Ok(None) };
    note_burst(runner, "in order", name, bytes, pause_ns, &burst);
    Ok(Some(burst))
}

fn note_burst(
    runner: &mut StudyRunner<'_>,
    order: &str,
    name: &str,
    bytes: u32,
    pause_ns: u64,
    burst: &Burst,
) {
    let labels = [
        ("target", name.to_owned()),
        ("order", order.to_owned()),
        ("request", bytes.to_string()),
        ("pause", pause_ns.to_string()),
    ];
    let evidence = &mut runner.evidence;
    evidence.note("unpaused", "ns", &labels, burst.unpaused_ns);
    evidence.note("paused", "ns", &labels, burst.paused_ns);
    evidence.note("quick-first", "share", &labels, burst.order);
    evidence.note("quick", "requests", &labels, burst.quick as f64);
    evidence.note("quick-time", "ns", &labels, burst.quick_ns);
}

/// Measures reads of one size in growing strides, with a pause before each read.
fn strides(
    runner: &mut StudyRunner<'_>,
    ReadTarget { name, job, bench }: ReadTarget<'_>,
    gap: u64,
    unread: &mut UnreadRegion,
) -> Outcome<()> {
    let plain = bench.setting(job, &job.axes[0]).workload;
    for times in STRIDES {
        let stride_bytes = times * u64::from(STRIDE_REQUEST);
        let region_bytes = STRIDE_READS * stride_bytes;
        // Half of the unread range is reserved for the random reads that follow.
        if gap + region_bytes > unread.left() / 2 || unread.take(gap).is_none() {
            break;
        }
        let Some(region_offset) = unread.take(region_bytes) else { break };
        let workload = Workload {
            request_bytes: STRIDE_REQUEST,
            region_offset,
            region_bytes,
            pattern: Pattern::Strided { stride_bytes },
            think: Some(Think { pause_ns: STRIDE_PAUSE_NS, requests: 1 }),
            ..plain.clone()
        };
        if bench.setting(job, &job.axes[0]).place.check_fit(&workload).is_err() {
            break;
        }
        let latencies_ns = latencies(runner, job, bench, STRIDE_READS, workload)?;
        if let Some(ns) = median(&latencies_ns) {
            let labels = [("target", name.to_owned()), ("stride", stride_bytes.to_string())];
            runner.evidence.note("stride", "ns", &labels, ns);
        }
    }
    Ok(())
}

/// Measures prefetch hits: sequential reads of several sizes, each after a pause.
fn hits_by_size(
    runner: &mut StudyRunner<'_>,
    ReadTarget { name, job, bench }: ReadTarget<'_>,
    sizes: &[u32],
    unread: &mut UnreadRegion,
) -> Outcome<()> {
    let setting = bench.setting(job, &job.axes[0]);
    for bytes in sizes.iter().copied() {
        let region_bytes = HIT_READS * u64::from(bytes);
        let workload = Workload {
            request_bytes: bytes,
            region_offset: unread.at,
            region_bytes,
            think: Some(Think { pause_ns: HIT_PAUSE_NS, requests: 1 }),
            ..setting.workload.clone()
        };
        if setting.place.check_fit(&workload).is_err() || unread.take(region_bytes).is_none() {
            continue;
        }
        let latencies_ns = latencies(runner, job, bench, HIT_READS, workload)?;
        if let Some(ns) = median(&latencies_ns) {
            let labels = [("target", name.to_owned()), ("bytes", bytes.to_string())];
            runner.evidence.note("read-ahead", "ns", &labels, ns);
        }
    }
    Ok(())
}

/// Alternates sequential and random reads without pauses, so that a target that is slow for a while
/// is not mistaken for a target that reads ahead.
fn alternate(
    runner: &mut StudyRunner<'_>,
    ReadTarget { name, job, bench }: ReadTarget<'_>,
    unread: &mut UnreadRegion,
) -> Outcome<()> {
    let setting = bench.setting(job, &job.axes[0]);
    let request_bytes = REQUEST_BYTES[0];
    let each = BURST as u64 * u64::from(request_bytes);
    for round in 0..ROUNDS {
        let Some(region_offset) = unread.take(each) else { break };
        let in_order = Workload {
            request_bytes,
            region_offset,
            region_bytes: each,
            ..setting.workload.clone()
        };
        let at_random = Workload {
            region_offset: unread.at,
            region_bytes: unread.left() / each * each,
            pattern: Pattern::Random,
            // Each round has a different seed, so that it reads other offsets.
            seed: setting.workload.seed + round as u64,
            ..in_order.clone()
        };
        if at_random.region_bytes < 2 * each || setting.place.check_fit(&in_order).is_err() {
            break;
        }
        for (order, workload) in [("in order", in_order), ("at random", at_random)] {
            let latencies_ns = latencies(runner, job, bench, BURST as u64, workload)?;
            if let Some(ns) = median(&latencies_ns) {
                let labels = [
                    ("target", name.to_owned()),
                    ("order", order.to_owned()),
                    ("round", round.to_string()),
                ];
                runner.evidence.note("turn", "ns", &labels, ns);
            }
        }
    }
    Ok(())
}

/// Returns two latencies of the alternating reads (ns): the highest median of a sequential round,
/// and the lowest median of a random round.
fn turns(evidence: &Evidence, target: &str) -> Option<(f64, f64)> {
    let of = |order: &str| -> Vec<f64> {
        let readings = evidence.read("turn", &[("target", target), ("order", order)]);
        readings.iter().map(|reading| reading.value).collect()
    };
    let most = of("in order").into_iter().reduce(f64::max)?;
    Some((most, of("at random").into_iter().reduce(f64::min)?))
}

/// Measures random reads with the same pauses as the sequential reads, in the unread rest of the
/// region.
fn random_bursts(
    runner: &mut StudyRunner<'_>,
    ReadTarget { name, job, bench }: ReadTarget<'_>,
    found: Option<u32>,
    unread: &UnreadRegion,
) -> Outcome<()> {
    let requests = (BURST * (1 + BURSTS)) as u64;
    let mut sizes = vec![REQUEST_BYTES[0]];
    sizes.extend(found.filter(|bytes| *bytes != REQUEST_BYTES[0]));
    for bytes in sizes {
        let region_bytes = unread.left() / u64::from(bytes) * u64::from(bytes);
        let workload = Workload {
            request_bytes: bytes,
            region_offset: unread.at,
            region_bytes,
            pattern: Pattern::Random,
            think: Some(Think { pause_ns: PAUSES_NS[0], requests: BURST as u32 }),
            ..bench.setting(job, &job.axes[0]).workload
        };
        let enough = region_bytes / u64::from(bytes) >= requests;
        if !enough || bench.setting(job, &job.axes[0]).place.check_fit(&workload).is_err() {
            continue;
        }
        let latencies_ns = latencies(runner, job, bench, requests, workload)?;
        if let Some(burst) = Burst::of(&latencies_ns) {
            note_burst(runner, "at random", name, bytes, PAUSES_NS[0], &burst);
        }
    }
    Ok(())
}

/// Returns the bursts of a target with one order of offsets ("in order" or "at random"), sorted by
/// request size and then by pause.
fn bursts(evidence: &Evidence, target: &str, order: &str) -> Vec<(u64, u64, Burst)> {
    let burst = |reading: &&Reading| {
        let (request, pause) = (reading.labels.get("request")?, reading.labels.get("pause")?);
        let labels = [("target", target), ("order", order), ("request", request), ("pause", pause)];
        let burst = Burst {
            unpaused_ns: reading.value,
            paused_ns: evidence.value("paused", &labels)?,
            order: evidence.value("quick-first", &labels)?,
            quick: evidence.value("quick", &labels)? as usize,
            quick_ns: evidence.value("quick-time", &labels)?,
        };
        Some((request.parse().ok()?, pause.parse().ok()?, burst))
    };
    let readings = evidence.read("unpaused", &[("target", target), ("order", order)]);
    let mut bursts: Vec<_> = readings.iter().filter_map(burst).collect();
    bursts.sort_by_key(|(request, pause, _)| (*request, *pause));
    bursts
}

/// A number of bytes of which only a lower and an upper bound are known.
struct ByteRange {
    least: f64,
    most: f64,
}

impl ByteRange {
    /// Formats the range: "1 MiB", or "384 KiB to 512 KiB" if its ends differ by more than 10%.
    fn words(&self) -> String {
        let size = |bytes: f64| units::size((bytes / 4096.0).round() as u64 * 4096);
        if self.least < 0.9 * self.most {
            format!("{} to {}", size(self.least), size(self.most))
        } else {
            size(self.most)
        }
    }
}

/// Returns how many bytes the device had prefetched at the end of a pause. The upper bound counts
/// all fast reads. The lower bound excludes the bytes that the medium may have delivered during
/// these reads.
fn prefetched(request: u64, burst: &Burst) -> ByteRange {
    let most = request as f64 * burst.quick as f64;
    let meanwhile = request as f64 * burst.quick_ns / burst.unpaused_ns;
    ByteRange { least: (most - meanwhile).max(0.0), most }
}

/// Adds the findings about the read-ahead of one target.
pub fn conclude(found: &mut Conclusion, evidence: &Evidence, target: &str) {
    prefetch(found, evidence, target);
    stride(found, evidence, target);
}

fn prefetch(found: &mut Conclusion, evidence: &Evidence, target: &str) {
    let in_order = bursts(evidence, target, "in order");
    let at_random = bursts(evidence, target, "at random");
    let Some((smallest, _, first)) = in_order.first() else { return };
    let random = at_random.first().map(|(_, _, burst)| burst.unpaused_ns);
    if let Some((_, _, burst)) = at_random.iter().find(|(_, _, burst)| burst.is_helped()) {
        let (slow, quick) = (units::time(burst.unpaused_ns), units::time(burst.paused_ns));
        found.find(
            "idle-credit",
            format!(
                "{target}: pauses also make random reads faster ({quick} instead of {slow}), \
                 perhaps because of a burst credit or a power state, so the read-ahead distance \
                 cannot be measured"
            ),
        );
        return;
    }
    // The study tries a larger size only if nearly all reads of the previous size were fast.
    // Therefore the bursts of the largest size show how far the device reads ahead.
    if let Some((request, _, _)) = in_order.last().filter(|(_, _, burst)| burst.is_helped()) {
        let of_size: Vec<_> = in_order.iter().filter(|(size, _, _)| size == request).collect();
        depth(found, target, &of_size);
        let smallest = in_order.iter().find(|(_, _, burst)| burst.is_helped());
        if let Some((bytes, _, burst)) = smallest {
            hits(found, evidence, target, *bytes, burst, random);
        }
        return;
    }
    let (request, unpaused) = (units::size(*smallest), units::time(first.unpaused_ns));
    let keeps_up = |(in_order, random): &(f64, f64)| *random >= HIT_GAIN * *in_order;
    let text = match turns(evidence, target).filter(keeps_up) {
        Some((unpaused, random)) => format!(
            "{target}: the device reads ahead and keeps up with the reader, so the read-ahead \
             distance cannot be measured: sequential reads of {request} take only {unpaused} \
             without pauses, but random reads take {}",
            units::time(random),
            unpaused = units::time(unpaused)
        ),
        None => format!(
            "{target}: no read-ahead is visible: sequential reads of {request} take {unpaused} \
             without a pause and {} after a pause{}",
            units::time(first.paused_ns),
            random
                .map_or_else(String::new, |ns| format!("; random reads take {}", units::time(ns)))
        ),
    };
    found.find("no-prefetch-depth", text);
}

/// Adds findings about how far the device reads ahead. All bursts have the same request size, and
/// are sorted by pause.
fn depth(found: &mut Conclusion, target: &str, bursts: &[&(u64, u64, Burst)]) {
    let Some((request, pause, burst)) = bursts.last() else { return };
    let after = units::time(*pause as f64);
    let size = prefetched(*request, burst).words();
    let reads = format!("{} reads of {}", burst.quick, units::size(*request));
    let text = if burst.is_whole() {
        format!(
            "{target}: during a pause of {after}, the device reads at least {size} ahead: after \
             the pause, nearly all {BURST} reads of {} were fast; a larger region (--size) may \
             show the limit",
            units::size(*request)
        )
    } else {
        format!(
            "{target}: during a pause of {after}, the device reads {size} ahead, so the next \
             {reads} are fast; a sequential reader that computes for this long gets these data \
             without waiting"
        )
    };
    let had = |index: usize| bursts.get(index).map(|(_, _, burst)| burst.quick);
    let still = bursts.len() > 1
        && had(bursts.len() - 2).is_some_and(|before| before + 1 < burst.quick)
        && !burst.is_whole();
    found.find("prefetch-depth", text);
    if still {
        found.find(
            "prefetch-grows",
            format!(
                "{target}: read-ahead was still growing at the longest pause tested, so the device \
                 may read further ahead in a longer pause"
            ),
        );
    }
    let shorter = |one: &Burst| one.quick * 10 < burst.quick * 9 && one.is_helped();
    if let Some((_, pause, one)) = bursts.iter().rev().find(|(_, _, one)| shorter(one)) {
        found.find(
            "prefetch-rate",
            format!(
                "{target}: during a pause of {}, the device reads {} ahead",
                units::time(*pause as f64),
                prefetched(*request, one).words()
            ),
        );
    }
}

/// Adds a finding about the latency of a prefetch hit, compared with a cache hit and a miss.
fn hits(
    found: &mut Conclusion,
    evidence: &Evidence,
    target: &str,
    bytes: u64,
    burst: &Burst,
    random: Option<f64>,
) {
    let block = evidence.curve("same-block", "bytes", target);
    let block = block.iter().find(|(size, _)| *size == bytes).map(|(_, ns)| *ns);
    let unpaused = units::time(burst.unpaused_ns);
    let mut others = vec![format!("{unpaused} in sequential order without a pause")];
    others.extend(
        random
            .filter(|_| bytes == u64::from(REQUEST_BYTES[0]))
            .map(|ns| format!("{} in random order", units::time(ns))),
    );
    let block = block.map_or_else(String::new, |ns| {
        format!(", {} if the same block is read again", units::time(ns))
    });
    found.find(
        "prefetch-hit",
        format!(
            "{target}: {} reads take {} if the data are prefetched{block}, {}",
            units::size(bytes),
            units::time(burst.paused_ns),
            others.join(", ")
        ),
    );
}

/// Adds a finding about the stride at which read-ahead stops.
fn stride(found: &mut Conclusion, evidence: &Evidence, target: &str) {
    let by_stride = evidence.curve("stride", "stride", target);
    let (Some(first), Some(last)) = (by_stride.first(), by_stride.last()) else { return };
    if let Some((helped, given_up, _)) = curve::edge(&by_stride, HIT_GAIN) {
        let ns = |stride| by_stride.iter().find(|one| one.0 == stride).map_or(0.0, |one| one.1);
        found.find(
            "stride",
            format!(
                "{target}: read-ahead works for 4 KiB reads at a stride of {} ({} per read) and \
                 stops at a stride of {} ({} per read); to benefit from read-ahead, place data \
                 that a program reads in sequence at a smaller stride",
                units::size(helped),
                units::time(ns(helped)),
                units::size(given_up),
                units::time(ns(given_up))
            ),
        );
        return;
    }
    let random = turns(evidence, target).map(|(_, random)| random);
    if random.is_some_and(|random| random >= HIT_GAIN * last.1) && last.1 < HIT_GAIN * first.1 {
        found.find(
            "stride-beyond",
            format!(
                "{target}: read-ahead works at every stride tested: 4 KiB reads at a stride of {} \
                 still take only {}",
                units::size(last.0),
                units::time(last.1)
            ),
        );
    }
}

/// Builds a chart of the latency of reads by stride, with a line for each target.
pub fn chart(evidence: &Evidence, targets: &[&str]) -> Option<Chart> {
    let series = |target: &&str| {
        let by_stride = evidence.curve("stride", "stride", target);
        let point = |(x, y): (u64, f64)| Point { x: x as f64, y, ..Point::default() };
        let points: Vec<Point> = by_stride.into_iter().map(point).collect();
        let name = (*target).to_owned();
        (points.len() > 1).then_some(Series { name, points, dashed: false, hue: None })
    };
    let series: Vec<Series> = targets.iter().filter_map(series).collect();
    let axis = |label: &str, unit, scale| Axis { label: label.to_owned(), unit, scale };
    (!series.is_empty()).then(|| Chart {
        id: "device-cache-stride".to_owned(),
        title: "Latency of 4 KiB reads by stride, with a pause before each read".to_owned(),
        summary: "Read-ahead stops at the stride at which the latency rises.".to_owned(),
        x: axis("Stride", Unit::Bytes, Scale::Log2),
        y: axis("Latency", Unit::Nanoseconds, Scale::Linear),
        series,
        guides: Vec::new(),
        kind: Kind::Lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn concluded(evidence: &Evidence) -> Conclusion {
        let mut found = Conclusion::default();
        conclude(&mut found, evidence, "t");
        found
    }

    /// Returns latencies on a device that prefetches `ahead` requests in a pause. A hit takes 50
    /// us, a miss 1 ms.
    fn reader(ahead: usize) -> Vec<f64> {
        let burst =
            |quick: usize| (0..BURST).map(move |index| if index < quick { 50e3 } else { 1e6 });
        burst(0).chain((0..BURSTS).flat_map(|_| burst(ahead))).collect()
    }

    #[test]
    fn fast_reads_are_counted_past_a_single_stalled_one() {
        assert_eq!(fast_prefix(&[1.0, 1.0, 1.0, 9.0, 9.0, 9.0], 3.0), 3);
        assert_eq!(fast_prefix(&[1.0, 9.0, 1.0, 1.0, 9.0, 9.0], 3.0), 4);
        assert_eq!(fast_prefix(&[9.0, 9.0, 1.0], 3.0), 0);
    }

    #[test]
    fn a_burst_shows_the_prefetched_reads_and_noise_shows_none() {
        for ahead in [4, 17, 40] {
            let burst = Burst::of(&reader(ahead)).unwrap();
            assert!(burst.is_helped() && !burst.is_whole() && burst.quick == ahead, "{burst:?}");
        }
        assert!(Burst::of(&reader(BURST)).unwrap().is_whole());
        assert!(!Burst::of(&reader(0)).unwrap().is_helped());
        // Fast and slow reads alternate regardless of the pauses.
        let mut wild = reader(10);
        for burst in wild.chunks_exact_mut(BURST).skip(1) {
            burst[BURST / 4..].iter_mut().step_by(3).for_each(|ns| *ns = 50e3);
        }
        assert!(!Burst::of(&wild).unwrap().is_helped());
        // A stall before the first pause lets the device prefetch.
        let mut held_up = reader(20);
        held_up[10..50].fill(50e3);
        let burst = Burst::of(&held_up).unwrap();
        assert!(burst.is_helped() && burst.quick == 20, "{burst:?}");
        assert_eq!(Burst::of(&reader(3)[..BURST]), None);
    }

    fn bursts_of(order: &str, trials: &[(u64, u64, &[f64])]) -> Evidence {
        let mut evidence = Evidence::default();
        for (request, pause, latencies) in trials {
            let burst = Burst::of(latencies).unwrap();
            for (quantity, value) in [
                ("unpaused", burst.unpaused_ns),
                ("paused", burst.paused_ns),
                ("quick-first", burst.order),
                ("quick", burst.quick as f64),
                ("quick-time", burst.quick_ns),
            ] {
                let words = [("order", order), ("target", "t")].map(|(a, b)| (a, b.to_owned()));
                let numbers = [("request", request), ("pause", pause)];
                let numbers = numbers.map(|(name, number)| (name, number.to_string()));
                evidence.note(quantity, "ns", &[words, numbers].concat(), value);
            }
        }
        evidence
    }

    fn text_of(evidence: &Evidence, id: &str) -> String {
        let found = concluded(evidence);
        let finding = found.findings.iter().find(|finding| finding.id == id);
        finding.map_or_else(|| panic!("{:?}", found.findings), |finding| finding.headline.clone())
    }

    #[test]
    fn the_distance_comes_from_the_longest_pause_and_the_largest_requests() {
        let (whole, some, few) = (reader(BURST), reader(20), reader(8));
        let trials: [(u64, u64, &[f64]); 3] = [
            (4096, PAUSES_NS[0], &whole),
            (16384, PAUSES_NS[0], &some),
            (16384, PAUSES_NS[3], &few),
        ];
        let evidence = bursts_of("in order", &trials);
        let text = text_of(&evidence, "prefetch-depth");
        assert!(text.contains("pause of 320 ms, the device reads 320 KiB ahead"), "{text}");
        assert!(
            text_of(&evidence, "prefetch-rate").contains("5 ms, the device reads 128 KiB ahead")
        );
        assert!(text_of(&evidence, "prefetch-hit").contains("4 KiB reads take 50 us"));
        // If larger requests find no prefetched data, the small reads were fast by chance.
        let none = reader(0);
        let trials: [(u64, u64, &[f64]); 2] =
            [(4096, PAUSES_NS[0], &whole), (16384, PAUSES_NS[0], &none)];
        let text = text_of(&bursts_of("in order", &trials), "no-prefetch-depth");
        assert!(text.contains("no read-ahead is visible"), "{text}");
    }

    #[test]
    fn a_pause_that_also_helps_random_reads_is_not_read_ahead() {
        let some = reader(20);
        let mut evidence = bursts_of("in order", &[(4096, PAUSES_NS[0], &some)]);
        evidence.readings.extend(bursts_of("at random", &[(4096, PAUSES_NS[0], &some)]).readings);
        assert!(text_of(&evidence, "idle-credit").contains("burst credit"));
        assert!(concluded(&evidence).findings.iter().all(|one| one.id != "prefetch-depth"));
    }

    #[test]
    fn a_device_that_is_always_fast_in_sequence_keeps_up() {
        let quick: Vec<f64> = vec![50e3; BURST * (1 + BURSTS)];
        let slow: Vec<f64> = vec![1e6; BURST * (1 + BURSTS)];
        let mut evidence = bursts_of("in order", &[(4096, PAUSES_NS[0], &quick)]);
        evidence.readings.extend(bursts_of("at random", &[(4096, PAUSES_NS[0], &slow)]).readings);
        let turn = |evidence: &mut Evidence, order: &str, round: &str, ns| {
            let labels = [("target", "t"), ("order", order), ("round", round)];
            evidence.note("turn", "ns", &labels.map(|(a, b)| (a, b.to_owned())), ns);
        };
        for round in ["0", "1"] {
            turn(&mut evidence, "in order", round, 50e3);
            turn(&mut evidence, "at random", round, 1e6);
        }
        assert!(text_of(&evidence, "no-prefetch-depth").contains("keeps up"));
        // One sequential round was slow too, so the device does not read ahead.
        turn(&mut evidence, "in order", "2", 1e6);
        assert!(text_of(&evidence, "no-prefetch-depth").contains("no read-ahead is visible"));
    }

    #[test]
    fn what_the_medium_may_have_delivered_widens_the_range() {
        let burst = |quick_ns| Burst {
            unpaused_ns: 1e6,
            paused_ns: 0.5e6,
            order: 1.0,
            quick: 10,
            quick_ns,
        };
        assert_eq!(prefetched(65536, &burst(0.5e6)).words(), "640 KiB");
        assert_eq!(prefetched(65536, &burst(5e6)).words(), "320 KiB to 640 KiB");
    }

    #[test]
    fn the_stride_at_which_read_ahead_stops_is_named() {
        let mut evidence = Evidence::default();
        for (stride, ns) in [(4096, 50e3), (8192, 51e3), (16384, 1e6), (32768, 1e6)] {
            let labels = [("target", "t".to_owned()), ("stride", stride.to_string())];
            evidence.note("stride", "ns", &labels, ns);
        }
        let flat = reader(0);
        evidence.readings.extend(bursts_of("in order", &[(4096, PAUSES_NS[0], &flat)]).readings);
        let text = text_of(&evidence, "stride");
        assert!(
            text.contains("a stride of 8 KiB (51 us ") && text.contains("stride of 16 KiB (1 ms ")
        );
    }
}
