//! How far a device reads ahead of a reader in order, and when it gives up.
//!
//! Bursts of reads in order with pauses between them: what the device reads in a pause makes the
//! next reads quick, until they outrun it. Random reads with the same pauses tell reading ahead
//! from a credit for idle time. Reads in growing strides show at which distance it gives up. Each
//! part of the region is read once, so that no read finds what an earlier one left in a cache.

use analysis::quantile::median;
use lab::bench::Bench;
use lab::failure::Outcome;
use lab::job::Job;
use report::model::{Axis, Chart, Kind, Point, Scale, Series};
use report::units::Unit;
use workload::{Pattern, Think, Workload};

use crate::conclusion::Conclusion;
use crate::curve;
use crate::evidence::{Evidence, Reading};
use crate::runner::StudyRunner;

/// A hit is at least so many times as fast as a miss.
pub const HIT_GAIN: f64 = 1.5;
/// Reads in order from one pause to the next; fewer of them are quick where the device has not read
/// so far ahead.
const BURST: usize = 64;
/// Bursts that follow a pause; one more comes before all pauses.
const BURSTS: usize = 3;
/// Sizes of these reads, smallest first: four times as large where all of a burst were quick.
const AHEAD_BYTES: [u32; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Pauses (ns), longest first: it shows how far the device reads, the others how fast.
const PAUSES_NS: [u64; 4] = [320_000_000, 80_000_000, 20_000_000, 5_000_000];
/// Reads of a burst that are quick first and slow then (share): fewer are noise.
const ORDER_MIN: f64 = 0.8;
/// The first reads of a burst, which tell whether it found anything.
const FIRST: usize = 4;
/// Reads in strides: their size and distances from start to start (bytes), how many of each, and
/// the pause before each in which the device may read on (ns).
const STRIDE_REQUEST: u32 = 4 << 10;
const STRIDES: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const STRIDE_READS: u64 = 32;
const STRIDE_PAUSE_NS: u64 = 4_000_000;
/// Reads in order of each size with a pause before each (ns), so that all but the first were read
/// ahead, and how many: the papers' prefetch hits with "delay inserted between requests".
const HIT_READS: u64 = 16;
const HIT_PAUSE_NS: u64 = 20_000_000;
/// How often reads in order and at random take turns without pauses.
const TURNS: usize = 3;
/// What is left between two strides at the least and at the most (bytes), so that none finds what
/// was read ahead for the one before.
const GAP: [u64; 2] = [1 << 20, 4 << 20];

/// The part of the region that nobody has read yet.
struct Fresh {
    at: u64,
    end: u64,
}

impl Fresh {
    /// How much of it there is (bytes).
    fn left(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }

    /// The next so many bytes of it, where they begin; None where it has no more.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let at = self.at;
        let next = at.checked_add(bytes).filter(|next| *next <= self.end)?;
        self.at = next;
        Some(at)
    }
}

/// Reads whose latencies are looked at one by one, in a part of the region.
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

/// How far the device reads ahead, how fast, at which stride it gives up, and what a hit of several
/// sizes costs there. Nobody may have read the region before.
///
/// # Errors
/// When a request fails, or the user stopped it.
pub fn measure(
    runner: &mut StudyRunner<'_>,
    (name, job, bench): (&str, &Job, &Bench),
    sizes: &[u32],
) -> Outcome<()> {
    let plain = bench.setting(job, &job.axes[0]).workload;
    // Strides that are powers of two and bursts of any size stay aligned.
    let from = plain.region_offset.next_multiple_of(u64::from(AHEAD_BYTES[3]));
    let mut fresh = Fresh { at: from, end: plain.region_offset + plain.region_bytes };
    let mut found = None;
    for bytes in AHEAD_BYTES {
        let Some(burst) = burst(runner, (name, job, bench), bytes, PAUSES_NS[0], &mut fresh)?
        else {
            break;
        };
        // What is there for small requests is there for large ones: the last word counts.
        found = burst.is_helped().then_some((bytes, burst));
        if found.as_ref().is_some_and(|(_, burst)| !burst.is_whole()) {
            break;
        }
    }
    let depth = found.as_ref().map_or(0.0, |(bytes, burst)| read_on(u64::from(*bytes), burst).1);
    let found = found.map(|(bytes, _)| bytes);
    strides(runner, (name, job, bench), (2 * depth as u64).clamp(GAP[0], GAP[1]), &mut fresh)?;
    if let Some(bytes) = found {
        hits_by_size(runner, (name, job, bench), sizes, &mut fresh)?;
        for pause_ns in &PAUSES_NS[1..] {
            burst(runner, (name, job, bench), bytes, *pause_ns, &mut fresh)?;
        }
    }
    by_turns(runner, (name, job, bench), &mut fresh)?;
    apart(runner, (name, job, bench), found, &fresh)
}

/// What the reads of a trial with pauses took.
#[derive(Clone, Debug, PartialEq)]
struct Burst {
    /// One of the first burst, before any pause, or of the last before the next one (ns).
    unpaused_ns: f64,
    /// One of the first after each pause (ns).
    paused_ns: f64,
    /// Which share of a burst is quick first and slow then.
    order: f64,
    /// How many of a burst were quick after a pause, and how long they took together (ns).
    quick: usize,
    quick_ns: f64,
}

impl Burst {
    /// None where there are not enough of them.
    fn of(latencies: &[f64]) -> Option<Burst> {
        let (unpaused, others) = latencies.split_at_checked(BURST)?;
        let bursts: Vec<&[f64]> = others.chunks_exact(BURST).collect();
        let of_each = |part: std::ops::Range<usize>| {
            let part = |burst: &&[f64]| burst[part.clone()].to_vec();
            bursts.iter().flat_map(part).collect::<Vec<f64>>()
        };
        let paused_ns = median(&of_each(0..FIRST))?;
        // A reader that is held up in the first burst has paused as well; the last reads of the
        // others are slow too, unless all were read ahead.
        let last_ns = median(&of_each(BURST * 3 / 4..BURST))?;
        let unpaused_ns = median(unpaused)?.max(last_ns);
        let between = (unpaused_ns * paused_ns).sqrt();
        let of_bursts = |of: &dyn Fn(&[f64]) -> f64| {
            median(&bursts.iter().map(|burst| of(burst)).collect::<Vec<f64>>())
        };
        let quick = of_bursts(&|burst| quick_ones(burst, between) as f64)? as usize;
        let quick_ns = of_bursts(&|burst| burst[..quick].iter().sum())?;
        let order = of_bursts(&|burst| in_order(burst, quick, between))?;
        Some(Burst { unpaused_ns, paused_ns, order, quick, quick_ns })
    }

    /// Whether pauses make reads quicker, first the quick ones and then the slow ones.
    fn is_helped(&self) -> bool {
        let slow = self.unpaused_ns >= HIT_GAIN * self.paused_ns;
        self.quick > 0 && slow && self.order >= ORDER_MIN
    }

    /// Whether there may be more than a burst asks for.
    fn is_whole(&self) -> bool {
        is_whole(self.quick)
    }
}

/// Whether nearly all of a burst are quick.
fn is_whole(quick: usize) -> bool {
    quick * 4 > BURST * 3
}

/// Which share of a burst is quick up to a number and slow from there on.
fn in_order(burst: &[f64], quick: usize, between: f64) -> f64 {
    let right = |(index, ns): (usize, &f64)| (*ns < between) == (index < quick);
    burst.iter().enumerate().filter(|one| right(*one)).count() as f64 / burst.len().max(1) as f64
}

/// How many of the first are quick: the number up to which quick ones outweigh slow ones the most,
/// so that one that was held up does not end them.
fn quick_ones(latencies: &[f64], between: f64) -> usize {
    let (mut best, mut sum) = ((0, 0), 0);
    for (index, ns) in latencies.iter().enumerate() {
        sum += if *ns < between { 1 } else { -1 };
        if sum > best.0 {
            best = (sum, index + 1);
        }
    }
    best.1
}

/// Bursts of reads in order with pauses between them; None where no fresh bytes are left.
fn burst(
    runner: &mut StudyRunner<'_>,
    (name, job, bench): (&str, &Job, &Bench),
    bytes: u32,
    pause_ns: u64,
    fresh: &mut Fresh,
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
    // Strides and random reads come after the first pause and want their part.
    let most = if pause_ns == PAUSES_NS[0] { fresh.left() } else { fresh.left() / 2 };
    if region_bytes > most {
        return Ok(None);
    }
    let Some(region_offset) = fresh.take(region_bytes) else { return Ok(None) };
    let workload = Workload { region_offset, ..workload };
    let seen = latencies(runner, job, bench, requests, workload)?;
    let Some(burst) = Burst::of(&seen) else { return Ok(None) };
    note_burst(runner, "in order", name, (bytes, pause_ns), &burst);
    Ok(Some(burst))
}

fn note_burst(
    runner: &mut StudyRunner<'_>,
    order: &str,
    name: &str,
    at: (u32, u64),
    burst: &Burst,
) {
    let labels = [
        ("target", name.to_owned()),
        ("order", order.to_owned()),
        ("request", at.0.to_string()),
        ("pause", at.1.to_string()),
    ];
    let evidence = &mut runner.evidence;
    evidence.note("unpaused", "ns", &labels, burst.unpaused_ns);
    evidence.note("paused", "ns", &labels, burst.paused_ns);
    evidence.note("quick-first", "share", &labels, burst.order);
    evidence.note("quick", "requests", &labels, burst.quick as f64);
    evidence.note("quick-time", "ns", &labels, burst.quick_ns);
}

/// Reads of one size at growing distances, with a pause before each.
fn strides(
    runner: &mut StudyRunner<'_>,
    (name, job, bench): (&str, &Job, &Bench),
    gap: u64,
    fresh: &mut Fresh,
) -> Outcome<()> {
    let plain = bench.setting(job, &job.axes[0]).workload;
    for times in STRIDES {
        let stride_bytes = times * u64::from(STRIDE_REQUEST);
        let region_bytes = STRIDE_READS * stride_bytes;
        // The random reads that follow want half of what is there.
        if gap + region_bytes > fresh.left() / 2 || fresh.take(gap).is_none() {
            break;
        }
        let Some(region_offset) = fresh.take(region_bytes) else { break };
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
        let seen = latencies(runner, job, bench, STRIDE_READS, workload)?;
        if let Some(ns) = median(&seen) {
            let labels = [("target", name.to_owned()), ("stride", stride_bytes.to_string())];
            runner.evidence.note("stride", "ns", &labels, ns);
        }
    }
    Ok(())
}

/// Reads in order of several sizes, each after a pause.
fn hits_by_size(
    runner: &mut StudyRunner<'_>,
    (name, job, bench): (&str, &Job, &Bench),
    sizes: &[u32],
    fresh: &mut Fresh,
) -> Outcome<()> {
    let setting = bench.setting(job, &job.axes[0]);
    for bytes in sizes.iter().copied() {
        let region_bytes = HIT_READS * u64::from(bytes);
        let workload = Workload {
            request_bytes: bytes,
            region_offset: fresh.at,
            region_bytes,
            think: Some(Think { pause_ns: HIT_PAUSE_NS, requests: 1 }),
            ..setting.workload.clone()
        };
        if setting.place.check_fit(&workload).is_err() || fresh.take(region_bytes).is_none() {
            continue;
        }
        let seen = latencies(runner, job, bench, HIT_READS, workload)?;
        if let Some(ns) = median(&seen) {
            let labels = [("target", name.to_owned()), ("bytes", bytes.to_string())];
            runner.evidence.note("read-ahead", "ns", &labels, ns);
        }
    }
    Ok(())
}

/// Reads in order and at random by turns, without pauses, so that a target that is slow for a while
/// is not taken for one that reads ahead.
fn by_turns(
    runner: &mut StudyRunner<'_>,
    (name, job, bench): (&str, &Job, &Bench),
    fresh: &mut Fresh,
) -> Outcome<()> {
    let setting = bench.setting(job, &job.axes[0]);
    let request_bytes = AHEAD_BYTES[0];
    let each = BURST as u64 * u64::from(request_bytes);
    for round in 0..TURNS {
        let Some(region_offset) = fresh.take(each) else { break };
        let in_order = Workload {
            request_bytes,
            region_offset,
            region_bytes: each,
            ..setting.workload.clone()
        };
        let at_random = Workload {
            region_offset: fresh.at,
            region_bytes: fresh.left() / each * each,
            pattern: Pattern::Random,
            // Not the places of the round before.
            seed: setting.workload.seed + round as u64,
            ..in_order.clone()
        };
        if at_random.region_bytes < 2 * each || setting.place.check_fit(&in_order).is_err() {
            break;
        }
        for (order, workload) in [("in order", in_order), ("at random", at_random)] {
            let seen = latencies(runner, job, bench, BURST as u64, workload)?;
            if let Some(ns) = median(&seen) {
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

/// What reads took by turns without pauses (ns): in order at the most, at random at the least.
fn turns(evidence: &Evidence, target: &str) -> Option<(f64, f64)> {
    let of = |order: &str| -> Vec<f64> {
        let readings = evidence.read("turn", &[("target", target), ("order", order)]);
        readings.iter().map(|reading| reading.value).collect()
    };
    let most = of("in order").into_iter().reduce(f64::max)?;
    Some((most, of("at random").into_iter().reduce(f64::min)?))
}

/// Random reads with the same pauses, in what is still fresh.
fn apart(
    runner: &mut StudyRunner<'_>,
    (name, job, bench): (&str, &Job, &Bench),
    found: Option<u32>,
    fresh: &Fresh,
) -> Outcome<()> {
    let requests = (BURST * (1 + BURSTS)) as u64;
    let mut sizes = vec![AHEAD_BYTES[0]];
    sizes.extend(found.filter(|bytes| *bytes != AHEAD_BYTES[0]));
    for bytes in sizes {
        let region_bytes = fresh.left() / u64::from(bytes) * u64::from(bytes);
        let workload = Workload {
            request_bytes: bytes,
            region_offset: fresh.at,
            region_bytes,
            pattern: Pattern::Random,
            think: Some(Think { pause_ns: PAUSES_NS[0], requests: BURST as u32 }),
            ..bench.setting(job, &job.axes[0]).workload
        };
        let enough = region_bytes / u64::from(bytes) >= requests;
        if !enough || bench.setting(job, &job.axes[0]).place.check_fit(&workload).is_err() {
            continue;
        }
        let seen = latencies(runner, job, bench, requests, workload)?;
        if let Some(burst) = Burst::of(&seen) {
            note_burst(runner, "at random", name, (bytes, PAUSES_NS[0]), &burst);
        }
    }
    Ok(())
}

/// The bursts of a target that were read in some order: request size, pause (ns), what was seen;
/// larger requests and longer pauses last.
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

/// What a device had read ahead when its reader came back from a pause (bytes): all that came
/// quickly, and that without what the medium may have delivered while it came.
fn read_on(request: u64, burst: &Burst) -> (f64, f64) {
    let most = request as f64 * burst.quick as f64;
    let meanwhile = request as f64 * burst.quick_ns / burst.unpaused_ns;
    ((most - meanwhile).max(0.0), most)
}

/// "1 MiB", or "384 KiB to 512 KiB" where that is not the same within 10%.
fn words_of_sizes((least, most): (f64, f64)) -> String {
    let size = |bytes: f64| units::size((bytes / 4096.0).round() as u64 * 4096);
    if least < 0.9 * most { format!("{} to {}", size(least), size(most)) } else { size(most) }
}

/// What was seen of reading ahead on a target, in findings.
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
                "{target}: a pause makes random reads quick as well ({quick} for {slow}): that is \
                 a credit for idle time or a part that wakes, and hides how far it reads ahead"
            ),
        );
        return;
    }
    // Larger requests were tried while all smaller ones were quick, and have the last word.
    if let Some((request, _, _)) = in_order.last().filter(|(_, _, burst)| burst.is_helped()) {
        let of_size: Vec<_> = in_order.iter().filter(|(size, _, _)| size == request).collect();
        depth(found, target, &of_size);
        let smallest = in_order.iter().find(|(_, _, burst)| burst.is_helped());
        if let Some((bytes, _, burst)) = smallest {
            hits(found, evidence, target, (*bytes, burst), random);
        }
        return;
    }
    let (request, unpaused) = (units::size(*smallest), units::time(first.unpaused_ns));
    let keeps_up = |(in_order, random): &(f64, f64)| *random >= HIT_GAIN * *in_order;
    let text = match turns(evidence, target).filter(keeps_up) {
        Some((unpaused, random)) => format!(
            "{target}: it reads ahead and keeps up: reads of {request} in order take {unpaused} \
             without any pause, at random {}; how far ahead it is does not show",
            units::time(random),
            unpaused = units::time(unpaused)
        ),
        None => format!(
            "{target}: no read-ahead shows: reads of {request} in order take {unpaused}, after a \
             pause {}{}",
            units::time(first.paused_ns),
            random.map_or_else(String::new, |ns| format!(", at random {}", units::time(ns)))
        ),
    };
    found.find("no-prefetch-depth", text);
}

/// How far it reads ahead, from bursts of one size with rising pauses.
fn depth(found: &mut Conclusion, target: &str, bursts: &[&(u64, u64, Burst)]) {
    let Some((request, pause, burst)) = bursts.last() else { return };
    let after = units::time(*pause as f64);
    let size = words_of_sizes(read_on(*request, burst));
    let reads = format!("{} reads of {}", burst.quick, units::size(*request));
    let text = if burst.is_whole() {
        format!(
            "{target}: it reads {size} ahead or more in a pause of {after}: nearly all of {BURST} \
             reads of {} were quick; give it a larger region (--size) to see the end",
            units::size(*request)
        )
    } else {
        format!(
            "{target}: it reads {size} ahead in a pause of {after}: the next {reads} are quick; \
             who reads in order and works in between gets so much without waiting"
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
            format!("{target}: a longer pause still gave more: it may read further than that"),
        );
    }
    let shorter = |one: &Burst| one.quick * 10 < burst.quick * 9 && one.is_helped();
    if let Some((_, pause, one)) = bursts.iter().rev().find(|(_, _, one)| shorter(one)) {
        found.find(
            "prefetch-rate",
            format!(
                "{target}: in a pause of {} it reads {} ahead",
                units::time(*pause as f64),
                words_of_sizes(read_on(*request, one))
            ),
        );
    }
}

/// What a hit in what was read ahead costs beside one in the cache and a miss.
fn hits(
    found: &mut Conclusion,
    evidence: &Evidence,
    target: &str,
    (bytes, burst): (u64, &Burst),
    random: Option<f64>,
) {
    let block = evidence.curve("same-block", "bytes", target);
    let block = block.iter().find(|(size, _)| *size == bytes).map(|(_, ns)| *ns);
    let mut others = vec![format!("{} without a pause", units::time(burst.unpaused_ns))];
    others.extend(
        random
            .filter(|_| bytes == u64::from(AHEAD_BYTES[0]))
            .map(|ns| format!("{} at random", units::time(ns))),
    );
    let block =
        block.map_or_else(String::new, |ns| format!(", the same block again {}", units::time(ns)));
    found.find(
        "prefetch-hit",
        format!(
            "{target}: a read of {} takes {} where it was read ahead{block}; {}",
            units::size(bytes),
            units::time(burst.paused_ns),
            others.join(", ")
        ),
    );
}

/// The stride at which reading ahead helps no more.
fn stride(found: &mut Conclusion, evidence: &Evidence, target: &str) {
    let seen = evidence.curve("stride", "stride", target);
    let (Some(first), Some(last)) = (seen.first(), seen.last()) else { return };
    if let Some((helped, given_up, _)) = curve::edge(&seen, HIT_GAIN) {
        let ns = |stride| seen.iter().find(|one| one.0 == stride).map_or(0.0, |one| one.1);
        found.find(
            "stride",
            format!(
                "{target}: reading ahead helps reads of 4 KiB that begin {} apart ({}), and gives \
                 up at {} ({}); keep what is read together closer than that",
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
                "{target}: reading ahead does not give up: reads of 4 KiB {} apart still take {}",
                units::size(last.0),
                units::time(last.1)
            ),
        );
    }
}

/// The latency of reads by their stride, a line for each target.
pub fn chart(evidence: &Evidence, targets: &[&str]) -> Option<Chart> {
    let series = |target: &&str| {
        let seen = evidence.curve("stride", "stride", target);
        let point = |(x, y): (u64, f64)| Point { x: x as f64, y, ..Point::default() };
        let points: Vec<Point> = seen.into_iter().map(point).collect();
        let name = (*target).to_owned();
        (points.len() > 1).then_some(Series { name, points, dashed: false, hue: None })
    };
    let series: Vec<Series> = targets.iter().filter_map(series).collect();
    let axis = |label: &str, unit, scale| Axis { label: label.to_owned(), unit, scale };
    (!series.is_empty()).then(|| Chart {
        id: "device-cache-stride".to_owned(),
        title: "Reads of 4 KiB by their distance, with a pause before each".to_owned(),
        summary: "Where the line rises, reading ahead gives up.".to_owned(),
        x: axis("From start to start", Unit::Bytes, Scale::Log2),
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

    /// A reader of a device that reads `ahead` requests on in a pause: what
    /// is quick takes 50 us, the rest 1 ms.
    fn reader(ahead: usize) -> Vec<f64> {
        let burst =
            |quick: usize| (0..BURST).map(move |index| if index < quick { 50e3 } else { 1e6 });
        burst(0).chain((0..BURSTS).flat_map(|_| burst(ahead))).collect()
    }

    #[test]
    fn quick_reads_are_counted_up_to_the_first_slow_ones_past_one_that_was_held_up() {
        assert_eq!(quick_ones(&[1.0, 1.0, 1.0, 9.0, 9.0, 9.0], 3.0), 3);
        assert_eq!(quick_ones(&[1.0, 9.0, 1.0, 1.0, 9.0, 9.0], 3.0), 4);
        assert_eq!(quick_ones(&[9.0, 9.0, 1.0], 3.0), 0);
    }

    #[test]
    fn a_burst_tells_what_was_read_ahead_and_noise_at_its_beginning_nothing() {
        for ahead in [4, 17, 40] {
            let burst = Burst::of(&reader(ahead)).unwrap();
            assert!(burst.is_helped() && !burst.is_whole() && burst.quick == ahead, "{burst:?}");
        }
        assert!(Burst::of(&reader(BURST)).unwrap().is_whole());
        assert!(!Burst::of(&reader(0)).unwrap().is_helped());
        // Now quick, now slow, whatever the pauses.
        let mut wild = reader(10);
        for burst in wild.chunks_exact_mut(BURST).skip(1) {
            burst[BURST / 4..].iter_mut().step_by(3).for_each(|ns| *ns = 50e3);
        }
        assert!(!Burst::of(&wild).unwrap().is_helped());
        // Held up once before the first pause, so that the device had time to read on.
        let mut held_up = reader(20);
        held_up[10..50].fill(50e3);
        let burst = Burst::of(&held_up).unwrap();
        assert!(burst.is_helped() && burst.quick == 20, "{burst:?}");
        assert_eq!(Burst::of(&reader(3)[..BURST]), None);
    }

    fn bursts_of(order: &str, seen: &[(u64, u64, &[f64])]) -> Evidence {
        let mut evidence = Evidence::default();
        for (request, pause, latencies) in seen {
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
        finding.map_or_else(|| panic!("{:?}", found.findings), |finding| finding.text.clone())
    }

    #[test]
    fn the_depth_is_that_of_the_longest_pause_and_the_largest_requests() {
        let (whole, some, few) = (reader(BURST), reader(20), reader(8));
        let seen: [(u64, u64, &[f64]); 3] = [
            (4096, PAUSES_NS[0], &whole),
            (16384, PAUSES_NS[0], &some),
            (16384, PAUSES_NS[3], &few),
        ];
        let evidence = bursts_of("in order", &seen);
        let text = text_of(&evidence, "prefetch-depth");
        assert!(text.contains("reads 320 KiB ahead in a pause of 320 ms"), "{text}");
        assert!(text_of(&evidence, "prefetch-rate").contains("pause of 5 ms it reads 128 KiB"));
        assert!(text_of(&evidence, "prefetch-hit").contains("4 KiB takes 50 us"));
        // Larger requests that find nothing say that the smaller ones were lucky.
        let none = reader(0);
        let seen: [(u64, u64, &[f64]); 2] =
            [(4096, PAUSES_NS[0], &whole), (16384, PAUSES_NS[0], &none)];
        let text = text_of(&bursts_of("in order", &seen), "no-prefetch-depth");
        assert!(text.contains("no read-ahead shows"), "{text}");
    }

    #[test]
    fn what_also_helps_random_reads_is_no_read_ahead() {
        let some = reader(20);
        let mut evidence = bursts_of("in order", &[(4096, PAUSES_NS[0], &some)]);
        evidence.readings.extend(bursts_of("at random", &[(4096, PAUSES_NS[0], &some)]).readings);
        assert!(text_of(&evidence, "idle-credit").contains("credit for idle time"));
        assert!(concluded(&evidence).findings.iter().all(|one| one.id != "prefetch-depth"));
    }

    #[test]
    fn a_device_whose_medium_is_as_fast_as_its_hits_keeps_up() {
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
        // Once it was slow at random, once in order: that is no read-ahead.
        turn(&mut evidence, "in order", "2", 1e6);
        assert!(text_of(&evidence, "no-prefetch-depth").contains("no read-ahead shows"));
    }

    #[test]
    fn what_the_medium_may_have_delivered_meanwhile_widens_the_depth() {
        let burst = |quick_ns| Burst {
            unpaused_ns: 1e6,
            paused_ns: 0.5e6,
            order: 1.0,
            quick: 10,
            quick_ns,
        };
        assert_eq!(words_of_sizes(read_on(65536, &burst(0.5e6))), "640 KiB");
        assert_eq!(words_of_sizes(read_on(65536, &burst(5e6))), "320 KiB to 640 KiB");
    }

    #[test]
    fn the_stride_of_no_help_is_told() {
        let mut evidence = Evidence::default();
        for (stride, ns) in [(4096, 50e3), (8192, 51e3), (16384, 1e6), (32768, 1e6)] {
            let labels = [("target", "t".to_owned()), ("stride", stride.to_string())];
            evidence.note("stride", "ns", &labels, ns);
        }
        let flat = reader(0);
        evidence.readings.extend(bursts_of("in order", &[(4096, PAUSES_NS[0], &flat)]).readings);
        let text = text_of(&evidence, "stride");
        assert!(text.contains("8 KiB apart (51 us)") && text.contains("up at 16 KiB (1 ms)"));
    }
}
