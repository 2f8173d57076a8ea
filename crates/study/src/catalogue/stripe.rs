//! Study `stripe`: how many targets are worth striping over, which depth keeps them busy, and what
//! limits all targets together. For a single target, the study finds out whether the target is
//! striped internally, and with which chunk size.
//!
//! Several targets are measured as independent streams, each at the full depth, and as a stripe
//! that halfpower creates. A single target is probed with bursts of small reads. The second half of
//! a burst is some distance away from the first half. If both halves are in the same chunk, one
//! member serves them, and the reads wait for each other. At a larger distance, another member
//! serves the second half at the same time.

use analysis::units;
use ioengine::engine::EngineOptions;
use ioengine::{
    BufferPages, Caching, Clock, Engine, EngineKind, EngineSpec, HostEngine, HostTarget, Monotonic,
    Op, Request, Target, TargetKind,
};
use lab::evidence::{Evidence, MeasuredPoint};
use lab::failure::Outcome;
use lab::resource_usage;

use crate::catalogue::Study;
use crate::conclusion::{Conclusion, words_of_times};
use crate::runner::StudyRunner;
use crate::target::{Kind, StudyTarget};

pub const STUDY: Study = Study {
    name: "stripe",
    papers: "Riedel 1997, section 4, Figures 8 to 11, and section 6: three disks saturate a SCSI \
             bus, N + 1 requests keep N disks busy; Chung 2000, section 7.4 and Figure 17: two \
             disks at depth 3 reach twice the rate of one disk",
    needs: "one target to find its internal chunk size, or up to four targets to measure scaling",
    plan: include_str!("../../plans/stripe.toml"),
    claims: &[
        "R118", "C147", "R175", "R176", "R008", "R130", "R177", "R097", "R101", "R100", "R106",
    ],
    rules: &["stripe-width"],
    measure: Some(measure),
    analyse,
};

/// The difference (share) below which two rates count as equal.
const SAME: f64 = 0.1;
/// Several targets share a limit if together they reach less than this share of the sum of their
/// separate rates.
const FULL: f64 = 0.85;

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    runner.measure()?;
    if let [study_target] = runner.study_targets {
        probe_structure(runner, study_target);
    }
    Ok(())
}

// ---- internal striping of a single target

/// Maximum number of requests in a burst.
const BURST_MAX: u32 = 64;
/// Requests wait for each other if a burst takes at least this many times as long as a burst of
/// half as many requests.
const WAITS: f64 = 1.6;
/// The largest chunk size that can be found (bytes).
const CHUNK_MAX: u64 = 16 << 20;
/// The largest number of members that can be found.
const MEMBERS_MAX: u64 = 64;
/// Number of repetitions of each burst. The median of their times is used.
const TIMES: usize = 7;
/// The distance between successive bursts (bytes). It is a multiple of all usual chunk sizes. It is
/// also large enough that no cache already holds the data of the next burst.
const STEP_BYTES: u64 = 48 << 20;

/// The internal structure of a target, derived from the times of bursts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Structure {
    /// Even adjacent requests do not wait for each other, so the chunk size cannot be found.
    NoQueue,
    /// Requests wait for each other at every distance measured, so the target is a single device.
    OneMember { up_to_bytes: u64 },
    /// The target is a stripe. `members` is None if the number of members was not found.
    Stripe { chunk_bytes: u64, members: Option<u64> },
    /// Repeated measurements contradict each other.
    Unclear,
}

/// Issues bursts of small reads to a target.
struct Prober {
    engine: HostEngine,
    clock: Monotonic,
    granule: u64,
    /// Offsets at which bursts may start (bytes).
    bases: Vec<u64>,
    turn: usize,
}

fn probe_structure(runner: &mut StudyRunner<'_>, study_target: &StudyTarget) {
    let part = "chunk within";
    if study_target.is_simulated() {
        return runner.leave_out(
            part,
            "the chunk size of a simulated system is part of its definition (see halfpower \
             simulate --show NAME)",
        );
    }
    let found = match &study_target.kind {
        Kind::Reference { device } => structure_of(device),
        _ => HostTarget::open(study_target.path(), false, Caching::Direct)
            .and_then(|t| structure_of(&t)),
    };
    let mut note = |quantity: &str, unit: &str, value: u64| {
        runner.evidence.note(quantity, unit, &[], value as f64);
    };
    match found {
        Ok(Structure::Stripe { chunk_bytes, members }) => {
            note("stripe-chunk", "bytes", chunk_bytes);
            members.into_iter().for_each(|members| note("stripe-members", "count", members));
        }
        Ok(Structure::OneMember { up_to_bytes }) => note("one-member", "bytes", up_to_bytes),
        Ok(Structure::NoQueue) => runner.leave_out(
            part,
            "even adjacent requests do not wait for each other, so the chunk size cannot be found; \
             use halfpower target to see what the volume reports",
        ),
        Ok(Structure::Unclear) => runner.leave_out(
            part,
            "the distance at which requests wait for each other is not consistent; stop other load \
             on the device and measure again",
        ),
        Err(error) => runner.leave_out(part, &error.to_string()),
    }
}

/// Determines whether a target is internally striped.
///
/// # Errors
/// The engine cannot be created, or a read fails.
fn structure_of(target: &HostTarget) -> Result<Structure, ioengine::Error> {
    let mut prober = Prober::new(target)?;
    let Some((count, threshold_ns)) = prober.calibrate()? else { return Ok(Structure::NoQueue) };
    let granule = prober.granule;
    let room = target.size_bytes().min(STEP_BYTES) / 2;
    let waits = |prober: &mut Prober, distance: u64| -> Result<bool, ioengine::Error> {
        Ok(prober.apart(count, distance)? > threshold_ns)
    };
    let mut low = u64::from(count / 2).next_power_of_two() * granule;
    if !waits(&mut prober, low)? {
        return Ok(Structure::Unclear);
    }
    while low * 2 <= room.min(CHUNK_MAX) && waits(&mut prober, low * 2)? {
        low *= 2;
    }
    let mut high = low * 2;
    if high > room.min(CHUNK_MAX) {
        return Ok(Structure::OneMember { up_to_bytes: low });
    }
    while high - low > granule {
        let middle = low + (high - low) / 2 / granule * granule;
        if waits(&mut prober, middle)? { low = middle } else { high = middle }
    }
    if !waits(&mut prober, high - granule)? || waits(&mut prober, high)? {
        return Ok(Structure::Unclear);
    }
    let chunk_bytes = high;
    let mut members = None;
    for number in 2..=MEMBERS_MAX {
        if number * chunk_bytes > room {
            break;
        }
        if waits(&mut prober, number * chunk_bytes)? {
            members = Some(number);
            break;
        }
    }
    Ok(Structure::Stripe { chunk_bytes, members })
}

impl Prober {
    fn new(target: &HostTarget) -> Result<Prober, ioengine::Error> {
        let known = target.kind() == TargetKind::Delay;
        let granule = u64::from(target.alignment().offset_bytes.max(512));
        let engine_kind =
            if known { EngineKind::Delay } else { EngineKind::best(target.caching().is_direct()) };
        let engine = target.engine(&EngineSpec {
            engine_kind,
            depth: BURST_MAX,
            slot_bytes: granule as u32,
            pages: BufferPages::Small,
            options: EngineOptions::default(),
        })?;
        // A reference device has no cache outside of its model, so all bursts may start at the same
        // offset. On other devices, a cache might answer repeated reads.
        let count = if known { 1 } else { (target.size_bytes() / STEP_BYTES).max(1) };
        let bases = (0..count).map(|number| number * STEP_BYTES).collect();
        Ok(Prober { engine, clock: Monotonic::new(), granule, bases, turn: 0 })
    }

    /// Finds the smallest burst whose requests wait for each other. Returns its number of requests,
    /// and the burst time above which requests have waited (ns). None if requests never wait for
    /// each other.
    fn calibrate(&mut self) -> Result<Option<(u32, f64)>, ioengine::Error> {
        let mut half_ns = self.apart(1, 0)?;
        let mut count = 2;
        while count <= BURST_MAX {
            let whole_ns = self.apart(count, u64::from(count / 2) * self.granule)?;
            if whole_ns >= WAITS * half_ns {
                return Ok(Some((count, (whole_ns * half_ns).sqrt())));
            }
            (half_ns, count) = (whole_ns, count * 2);
        }
        Ok(None)
    }

    /// Measures the median time of a burst whose halves start `distance` bytes apart (ns).
    fn apart(&mut self, count: u32, distance: u64) -> Result<f64, ioengine::Error> {
        let mut times = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            let base = self.bases[self.turn % self.bases.len()];
            self.turn += 1;
            let first = count.div_ceil(2);
            let place = |number: u32| {
                if number < first {
                    base + u64::from(number) * self.granule
                } else {
                    base + distance + u64::from(number - first) * self.granule
                }
            };
            let batch: Vec<Request> = (0..count)
                .map(|slot| Request {
                    offset: place(slot),
                    length: self.granule as u32,
                    within: 0,
                    slot,
                    file: 0,
                    op: Op::Read,
                })
                .collect();
            let (begun_ns, mut done) = (self.clock.now_ns(), Vec::new());
            self.engine.submit_and_wait(&batch, count, None, &mut done)?;
            times.push((self.clock.now_ns() - begun_ns) as f64);
            for completion in done {
                let read = |e| ioengine::Error::io("reading a block of a burst", e);
                completion.outcome().map_err(read)?;
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(times[TIMES / 2])
    }
}

// ---- analysis

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    for rw in ["read", "write"] {
        scaling(&mut found, evidence, rw);
        limit(&mut found, evidence, rw);
        depth_needed(&mut found, evidence, rw);
        streams(&mut found, evidence, rw);
        chunks(&mut found, evidence, rw);
    }
    chunk_within(&mut found, evidence);
    claims(&mut found, evidence);
    found
}

/// Returns the fastest point on this many targets, striped or as independent streams.
fn best<'a>(evidence: &'a Evidence, rw: &str, disks: u32) -> Option<&'a MeasuredPoint> {
    let disks = disks.to_string();
    evidence.fastest(&[("rw", rw), ("disks", &disks)])
}

fn measured_disks(evidence: &Evidence) -> Vec<u32> {
    let mut disks: Vec<u32> = evidence.usable().map(|point| point.disks).collect();
    disks.sort_unstable();
    disks.dedup();
    disks
}

/// Reports the gain from each further target, and the common limit of all targets.
fn scaling(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    let Some(one) = best(evidence, rw, 1).map(MeasuredPoint::rate).filter(|rate| *rate > 0.0)
    else {
        return;
    };
    let rates: Vec<(u32, f64)> = measured_disks(evidence)
        .into_iter()
        .filter(|disks| *disks > 1)
        .filter_map(|disks| Some((disks, best(evidence, rw, disks)?.rate())))
        .collect();
    let Some((most, top)) = rates.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return;
    };
    let each: Vec<String> = rates
        .iter()
        .map(|(disks, rate)| format!("{} with {disks} targets", words_of_times(rate / one)))
        .collect();
    let one_rate = units::rate(one);
    found.find("scaling", format!("{rw}s: {one_rate} with one target; {}", each.join(", ")));
    let (last, rate) = rates[rates.len() - 1];
    if rate < FULL * f64::from(last) * one {
        let first = std::iter::once((1, one)).chain(rates.iter().copied());
        let near = first.filter(|(_, rate)| *rate >= (1.0 - SAME) * top).map(|(disks, _)| disks);
        let from = near.min().unwrap_or(most);
        found.find(
            "ceiling",
            format!(
                "{rw}s do not exceed {} with {from} {} or more; {last} targets reach {} of {last} \
                 times the rate of one target, because {}",
                units::rate(top),
                if from == 1 { "target" } else { "targets" },
                share_of(rate, f64::from(last) * one),
                shared(evidence)
            ),
        );
    }
    if most > 1 {
        let point = best(evidence, rw, most);
        let depth = point.map_or(1, MeasuredPoint::depth);
        let setting = format!("{rw}s over {most} targets at depth {depth}");
        let text = format!("{} instead of {one_rate}", units::rate(top));
        found.advise("stripe-width", top / one, &setting, text);
    }
}

/// Formats a part of a whole as a percentage.
fn share_of(part: f64, whole: f64) -> String {
    format!("{:.0}%", 100.0 * part / whole)
}

/// Reports which resource limits the fastest point on all targets of a simulated system. The text
/// is the same as in the output of `simulate`.
fn limit(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    let most = measured_disks(evidence).into_iter().next_back();
    let point = most.and_then(|disks| best(evidence, rw, disks));
    let Some(point) = point.filter(|_| evidence.is_simulated()) else { return };
    let balance = resource_usage::of(&point.point);
    if !balance.resources.is_empty() {
        let text = balance.binding.text();
        found.find("limit", format!("{rw}s over {} targets are limited by {text}", point.disks));
    }
}

/// Describes the shared hardware that limits all targets, if the system reports it.
fn shared(evidence: &Evidence) -> String {
    if evidence.is_simulated() {
        return "a part that the targets share is saturated (see halfpower simulate)".to_owned();
    }
    match evidence.shared_device() {
        Some(name) => format!("the targets are on one device, {name}"),
        None => "a shared link, controller or CPU is saturated".to_owned(),
    }
}

/// Returns the points on a stripe over this many targets with chunks of 64 KiB, sorted by depth.
fn striped<'a>(evidence: &'a Evidence, rw: &str, disks: u32) -> Vec<&'a MeasuredPoint> {
    let disks = disks.to_string();
    let flags = [("part", "striped"), ("rw", rw), ("disks", &*disks), ("chunk", "64k")];
    let mut points = evidence.all(&flags);
    points.sort_by_key(|point| point.depth());
    points
}

/// Returns the smallest depth whose rate is at most 10% below the best rate.
fn sufficient(points: &[&MeasuredPoint]) -> Option<u32> {
    let top = points.iter().map(|point| point.rate()).fold(0.0, f64::max);
    points.iter().find(|point| point.rate() >= (1.0 - SAME) * top).map(|point| point.depth())
}

fn depth_needed(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    let needed: Vec<String> = measured_disks(evidence)
        .into_iter()
        .filter_map(|disks| {
            let depth = sufficient(&striped(evidence, rw, disks))?;
            Some(format!("depth {depth} for {disks} targets"))
        })
        .collect();
    if !needed.is_empty() {
        found.find(
            "depth-needed",
            format!(
                "striped {rw}s of 64 KiB in chunks of 64 KiB reach 90% of their highest rate at {}",
                needed.join(", ")
            ),
        );
    }
}

/// Compares a stripe with independent streams, both at their best depths.
fn streams(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    let Some(disks) = measured_disks(evidence).into_iter().next_back() else { return };
    let count = disks.to_string();
    let of = |part: &str| evidence.fastest(&[("part", part), ("rw", rw), ("disks", &count)]);
    let (Some(streams), Some(striped)) = (of("streams"), of("striped")) else { return };
    let times = striped.rate() / streams.rate().max(1.0);
    let words = if (times - 1.0).abs() < SAME {
        "the same within 10%".to_owned()
    } else {
        format!("the stripe has {} the throughput of the streams", words_of_times(times))
    };
    found.find(
        "streams",
        format!(
            "{rw}s over {disks} targets: one stripe reaches {} at depth {}, independent streams \
             reach {} at depth {} each: {words}",
            units::rate(striped.rate()),
            striped.depth(),
            units::rate(streams.rate()),
            streams.depth()
        ),
    );
}

/// Reports the effect of the chunk size.
fn chunks(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    let Some(disks) = measured_disks(evidence).into_iter().next_back() else { return };
    let count = disks.to_string();
    let mut rates: Vec<(f64, String)> = Vec::new();
    for point in evidence.all(&[("part", "striped"), ("rw", rw), ("disks", &count)]) {
        let chunk = point.word("chunk");
        match rates.iter_mut().find(|(_, name)| *name == chunk) {
            Some((rate, _)) => *rate = rate.max(point.rate()),
            None => rates.push((point.rate(), chunk)),
        }
    }
    rates.sort_by(|a, b| b.0.total_cmp(&a.0));
    if let ([(high, fast), .., (low, slow)], true) = (&*rates, rates.len() > 1) {
        let text = if *high < (1.0 + SAME) * low {
            format!("{rw}s over {disks} targets: the chunk size changes the rate by less than 10%")
        } else {
            format!(
                "{rw}s over {disks} targets: {} with chunks of {fast}, {} with chunks of {slow}",
                units::rate(*high),
                units::rate(*low)
            )
        };
        found.find("chunk", text);
    }
}

fn chunk_within(found: &mut Conclusion, evidence: &Evidence) {
    if let Some(chunk) = evidence.value("stripe-chunk", &[]) {
        let members = match evidence.value("stripe-members", &[]) {
            Some(members) => format!("over {members:.0} members"),
            None => "over an unknown number of members".to_owned(),
        };
        let chunk = units::size(chunk as u64);
        found.find(
            "chunk-within",
            format!(
                "the target is striped internally in chunks of {chunk} {members}; align requests \
                 to the chunks"
            ),
        );
    }
    if let Some(bytes) = evidence.value("one-member", &[]) {
        let bytes = units::size(bytes as u64);
        found.find(
            "chunk-within",
            format!(
                "no internal striping was found: bursts of reads at distances up to {bytes} take \
                 as long as bursts of adjacent reads"
            ),
        );
    }
}

fn claims(found: &mut Conclusion, evidence: &Evidence) {
    let rate = |disks: u32| best(evidence, "read", disks).map(MeasuredPoint::rate);
    let times = |of: u32| Some(rate(of)? / rate(1)?);
    found.gain("R118", times(3), "reads over three targets compared with one target");
    let deep = |disks: &str| {
        let flags = [("rw", "read"), ("disks", disks), ("iodepth", "3")];
        let points = evidence.all(&flags).into_iter().filter(|point| point.part != "streams");
        points.map(MeasuredPoint::rate).max_by(f64::total_cmp)
    };
    let two = deep("2").zip(deep("1")).map(|(two, one)| two / one);
    found.gain("C147", two, "striped reads over two targets compared with one target, at depth 3");
    n_plus_one(found, evidence);
    let three = striped(evidence, "read", 3);
    let top = three.iter().map(|point| point.rate()).fold(0.0, f64::max);
    let four_deep = three.iter().find(|point| point.depth() == 4);
    found.claim_if(
        "R176",
        four_deep.map(|point| {
            let share = point.rate() / top;
            let text = format!(
                "with 256 KiB outstanding, three striped targets reach {:.0}% of their best rate",
                100.0 * share
            );
            (share >= 1.0 - SAME, text)
        }),
    );
    let fourth = rate(3).zip(rate(4)).map(|(three, four)| four / three - 1.0);
    for id in ["R008", "R130", "R177"] {
        let text = |more: f64| format!("a fourth target raises the rate by {:.0}%", 100.0 * more);
        found.claim_if(id, fourth.map(|more| (more < SAME, text(more))));
    }
    if let Some(pap) = evidence.pap_bytes_per_s {
        for (id, most) in [("R097", 2), ("R101", 3)] {
            let share = rate(most).map(|rate| rate / pap);
            let text =
                |share: f64| format!("{most} targets reach {:.0}% of the PAP", 100.0 * share);
            found.claim_if(id, share.map(|share| (share > 0.5, text(share))));
        }
        found.loss(
            "R100",
            rate(3).map(|rate| rate / pap),
            "rate of three targets as a share of the PAP",
        );
    } else {
        let why = "the claim needs the advertised rate of the bus; specify it with --pap";
        found.cannot(&["R097", "R101", "R100"], why);
    }
    let why = "the system does not report which targets share a bus; measure targets on one bus \
               and targets on separate buses, and compare the rates";
    found.cannot(&["R106"], why);
}

/// Judges claim R175, which says that N + 1 requests keep N targets busy.
fn n_plus_one(found: &mut Conclusion, evidence: &Evidence) {
    let mut shares = Vec::new();
    for disks in measured_disks(evidence).into_iter().filter(|disks| *disks > 1) {
        let points = striped(evidence, "read", disks);
        let top = points.iter().map(|point| point.rate()).fold(0.0, f64::max);
        if let Some(point) = points.iter().find(|point| point.depth() == disks + 1) {
            shares.push((disks, point.rate() / top));
        }
    }
    let holds = shares.iter().all(|(_, share)| *share >= 1.0 - SAME);
    let each = shares.iter().map(|(disks, share)| {
        format!("{disks} targets at depth {}: {:.0}%", disks + 1, 100.0 * share)
    });
    let text = format!("share of the best rate: {}", each.collect::<Vec<_>>().join(", "));
    found.claim_if("R175", (!shares.is_empty()).then_some((holds, text)));
}

#[cfg(test)]
mod tests {
    use ioengine::engine::DelayDevice;
    use ioengine::truth::Truth;

    use super::*;
    use crate::conclusion::Verdict;
    use lab::evidence::testing::{cell, evidence};

    fn device(truth: Truth) -> HostTarget {
        HostTarget::delay(256 << 20, DelayDevice::new(truth))
    }

    #[test]
    fn the_chunk_and_the_members_of_a_stripe_are_found_exactly() {
        for (members, chunk_kib, parallelism) in [(2, 64, 1), (3, 20, 1), (4, 256, 2)] {
            let truth = Truth { fixed_ns: 400_000, parallelism, ..Truth::default() };
            let devices = (0..members).map(|_| device(truth.clone())).collect();
            let stripe = HostTarget::striped(devices, chunk_kib << 10).unwrap();
            let wanted =
                Structure::Stripe { chunk_bytes: chunk_kib << 10, members: Some(members as u64) };
            // A stall of the machine may spoil one of the three attempts.
            let found: Vec<Structure> = (0..3).map(|_| structure_of(&stripe).unwrap()).collect();
            assert!(found.contains(&wanted), "{wanted:?} {found:?}");
        }
    }

    #[test]
    fn a_device_that_is_not_a_stripe_is_not_called_one() {
        let one = structure_of(&device(Truth { fixed_ns: 400_000, ..Truth::default() })).unwrap();
        assert!(matches!(one, Structure::OneMember { .. } | Structure::Unclear), "{one:?}");
    }

    /// Builds results of one to four targets. Each target reaches 100 MiB/s, but all together reach
    /// at most 300 MiB/s.
    fn points() -> Evidence {
        let mut points = Vec::new();
        for disks in 1..=4_u64 {
            for depth in [1, 2, 3, 4, 5, 16_u64] {
                let rate = depth.min(disks).min(3) * 100 - u64::from(depth <= disks && depth < 4);
                let (disks, depth) = (disks.to_string(), depth.to_string());
                let flags = [("rw", "read"), ("bs", "64k"), ("disks", &*disks)];
                let more = match disks.as_str() {
                    "1" => vec![("part", "one")],
                    _ => vec![("part", "striped"), ("chunk", "64k")],
                };
                let flags = [&flags[..], &[("iodepth", &*depth)], &more].concat();
                points.push(cell(rate << 20, &flags));
            }
        }
        evidence(points)
    }

    #[test]
    fn scaling_the_ceiling_and_the_depth_are_named() {
        let found = analyse(&points());
        let text = |id: &str| &found.findings.iter().find(|one| one.id == id).unwrap().headline;
        assert!(
            text("scaling").contains("3.00 times with 3 targets, 3.00 times with 4 targets"),
            "{found:?}"
        );
        assert!(text("ceiling").contains("75% of 4 times the rate of one target,"), "{found:?}");
        assert!(text("depth-needed").contains("depth 3 for 3 targets"), "{found:?}");
        assert_eq!(found.advice[0].id, "stripe-width");
    }

    #[test]
    fn claims_about_disks_are_tested() {
        let found = analyse(&points());
        let claim = |id: &str| found.claims.iter().find(|claim| claim.id == id).unwrap().verdict;
        for id in ["R118", "R175", "R176", "R008", "R177"] {
            assert_eq!(claim(id), Verdict::Holds, "{id}");
        }
        assert_eq!(claim("R097"), Verdict::CannotBeTried);
        let mut evidence = points();
        evidence.pap_bytes_per_s = Some((500 << 20) as f64);
        let found = analyse(&evidence);
        let claim = |id: &str| found.claims.iter().find(|claim| claim.id == id).unwrap().verdict;
        assert_eq!((claim("R097"), claim("R101")), (Verdict::DoesNotHold, Verdict::Holds));
    }
}
