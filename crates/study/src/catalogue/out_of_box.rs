//! Study `out-of-box`: the performance of a program that uses the defaults of the system. The study
//! measures buffered reads and writes one at a time, writes smaller than a page, and the phases of
//! a long write.
//!
//! The study also measures direct requests of the same sizes, to show whether direct I/O would be
//! faster.

use analysis::units;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use analysis::changepoint::throttle;
use cpucost::{CpuMeter, CpuSample, HostMeter};
use ioengine::Clock;
use ioengine::clock::unix_ns;
use lab::evidence::{Evidence, MeasuredPoint};
use lab::failure::Outcome;
use lab::point::Trial;
use report::model::{Axis, Chart, Kind, Point, Scale, Series};
use report::units::Unit;

use crate::catalogue::Study;
use crate::conclusion::{Conclusion, words_of_times};
use crate::curve::{self, Comparison};
use crate::runner::StudyRunner;
use crate::target::StudyTarget;

pub const STUDY: Study = Study {
    name: "out-of-box",
    papers: "Riedel 1997, section 2 and Figures 2 and 5; Chung 2000, section 7.2: the defaults do \
             well; a write smaller than a page reads the page first; requests of 64 KB and more \
             are faster without the file system's cache",
    needs: "a directory, because the study writes to growing files",
    plan: include_str!("../../plans/out-of-box.toml"),
    claims: &[
        "R002", "R006", "R021", "R022", "R023", "R025", "R031", "R036", "R037", "R038", "R039",
        "R061", "R067", "R068", "R076", "C007", "C076", "C120",
    ],
    rules: &["bypass-cache-large", "truncate-before-small-writes"],
    measure: Some(measure),
    analyse,
};

/// The part of the plan with one long buffered write, whose phases are measured.
const PHASES: &str = "phases";
/// The part of the plan with direct requests, for comparison.
const DIRECT: &str = "past the cache";
/// The interval at which CPU time is sampled while the phases are measured.
const PAUSE: Duration = Duration::from_millis(20);
/// A loss of at most this share counts as no loss.
const LOSS_MAX: f64 = 0.1;
/// Rates are "nearly constant" if the lowest is at least this share of the highest.
const CONSTANT: f64 = 0.8;

// ---- measuring

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    runner.measure_parts(&|part| part != PHASES)?;
    if runner.study_targets.iter().any(StudyTarget::is_simulated) {
        return runner.measure_parts(&|part| part == PHASES);
    }
    let (meter, clock, over) = (HostMeter::new(), runner.lab.clock, AtomicBool::new(false));
    let (measured, samples) = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut samples: Vec<(i64, CpuSample)> = Vec::new();
            while !over.load(Ordering::Relaxed) {
                samples.push((unix_ns(), meter.sample(clock.now_ns())));
                clock.sleep(PAUSE);
            }
            samples
        });
        let measured = runner.measure_parts(&|part| part == PHASES);
        over.store(true, Ordering::Relaxed);
        (measured, watch.join().unwrap_or_default())
    });
    let points = runner.evidence.points.iter().filter(|point| point.part == PHASES);
    let trials: Vec<Trial> = points.flat_map(|point| point.point.trials.first().cloned()).collect();
    trials.iter().for_each(|trial| note_cpu(&mut runner.evidence, trial, &samples));
    measured
}

/// Records the CPU time of each phase of a trial, as a share of one CPU.
fn note_cpu(evidence: &mut Evidence, trial: &Trial, samples: &[(i64, CpuSample)]) {
    let Some(phases) = Phases::of(trial) else { return };
    for (name, from_ns, to_ns) in phases.spans() {
        let at = |ns: u64| trial.started_unix_ns.saturating_add_unsigned(ns);
        let first = samples.iter().find(|(when, _)| *when >= at(from_ns));
        let last = samples.iter().rfind(|(when, _)| *when <= at(to_ns));
        let Some(((_, first), (_, last))) = first.zip(last) else { continue };
        let used = last.since(first);
        if used.elapsed_ns == 0 || last.at_ns <= first.at_ns {
            continue;
        }
        let share = |ns: u64| ns as f64 / used.elapsed_ns as f64;
        let mut note = |of: &str, ns: u64| {
            let labels = [("phase", name.to_owned()), ("of", of.to_owned())];
            evidence.note("CPU of a phase", "CPUs", &labels, share(ns));
        };
        note("process", used.process_ns);
        if let Some(ns) = used.machine_ns {
            note("machine", ns.saturating_sub(used.others_user_ns.unwrap_or(0)));
        }
    }
}

/// The phases of a buffered write of new data.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Phases {
    /// Bytes written.
    bytes: u64,
    /// When the kernel began to throttle the writes (ns). Equal to `accepted_ns` if the writes were
    /// never throttled.
    fill_ns: u64,
    fill_bytes_per_s: f64,
    /// When the last write returned (ns).
    accepted_ns: u64,
    /// The rate while writes were throttled. None if writes were never throttled.
    throttled_bytes_per_s: Option<f64>,
    /// When the flush ended (ns).
    elapsed_ns: u64,
}

impl Phases {
    fn of(trial: &Trial) -> Option<Phases> {
        let accepted_ns = trial.accepted_ns?;
        let whole: Vec<(u64, f64)> = trial
            .series
            .iter()
            .filter(|part| part.start_ns + part.length_ns <= accepted_ns)
            .map(|part| (part.length_ns, part.bytes as f64))
            .collect();
        let held_back = throttle(&whole);
        let bytes = trial.bytes();
        let all = bytes as f64 * 1e9 / accepted_ns.max(1) as f64;
        Some(Phases {
            bytes,
            fill_ns: held_back.map_or(accepted_ns, |found| found.at_ns),
            fill_bytes_per_s: held_back.map_or(all, |found| found.before_per_s),
            accepted_ns,
            throttled_bytes_per_s: held_back.map(|found| found.after_per_s),
            elapsed_ns: trial.elapsed_ns,
        })
    }

    /// Returns the name, the start and the end of each phase (ns).
    fn spans(&self) -> Vec<(&'static str, u64, u64)> {
        let mut spans = vec![
            ("fill", 0, self.fill_ns),
            ("throttled", self.fill_ns, self.accepted_ns),
            ("flush", self.accepted_ns, self.elapsed_ns),
        ];
        spans.retain(|(_, from, to)| to > from);
        spans
    }
}

// ---- findings

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    for rw in ["read", "write"] {
        defaults(&mut found, evidence, rw);
    }
    small_writes(&mut found, evidence);
    truncation(&mut found, evidence);
    phases(&mut found, evidence);
    rate_claims(&mut found, evidence);
    cost_claims(&mut found, evidence);
    cache_claims(&mut found, evidence);
    found
}

fn part_of(rw: &str) -> &'static str {
    if rw == "read" { "reads" } else { "writes" }
}

fn buffered<'a>(evidence: &'a Evidence, rw: &str, bs: &str) -> Option<&'a MeasuredPoint> {
    evidence.find(&[("part", part_of(rw)), ("bs", bs)])
}

fn direct<'a>(evidence: &'a Evidence, rw: &str, bs: &str) -> Option<&'a MeasuredPoint> {
    evidence.find(&[("part", DIRECT), ("rw", rw), ("bs", bs)])
}

/// Returns pairs of a buffered and a direct point of the same size, smallest size first.
fn both<'a>(evidence: &'a Evidence, rw: &str) -> Vec<(&'a MeasuredPoint, &'a MeasuredPoint)> {
    let curve = curve::by_size(evidence, &[("part", part_of(rw))]);
    let pair =
        |point: &'a MeasuredPoint| Some((point, direct(evidence, rw, &point.bytes().to_string())?));
    curve.into_iter().filter_map(pair).collect()
}

/// Reports the rates of buffered requests, and the smallest size at and above which direct requests
/// are faster.
fn defaults(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    let curve = curve::by_size(evidence, &[("part", part_of(rw))]);
    let (Some(first), Some(last)) = (curve.first(), curve.last()) else { return };
    let rates = curve.iter().map(|point| point.rate());
    let (low, high) = (rates.clone().fold(f64::MAX, f64::min), rates.fold(0.0, f64::max));
    found.find(
        "defaults",
        format!(
            "buffered {rw}s with request sizes of {} to {} reach rates of {} to {}",
            units::size(first.bytes()),
            units::size(last.bytes()),
            units::rate_mib(low),
            units::rate(high)
        ),
    );
    let faster = |(buffered, direct): &&(&MeasuredPoint, &MeasuredPoint)| {
        direct.rate() > buffered.rate() && curve::differ(buffered, direct)
    };
    let pairs = both(evidence, rw);
    // The smallest size at and above which direct requests are always faster.
    let from = pairs.iter().rev().take_while(faster).last();
    if let (Some((buffered, direct)), false) = (from, pairs.is_empty()) {
        let (size, times) = (units::size(direct.bytes()), direct.rate() / buffered.rate());
        let text = format!(
            "at {size} and above, direct {rw}s are faster than buffered {rw}s: {} at {size}, {} \
             the buffered rate",
            units::rate(direct.rate()),
            words_of_times(times)
        );
        found.find("past-the-cache", text.clone());
        let setting = format!("{rw}s of {size} and larger");
        found.advise("bypass-cache-large", times, &setting, text);
    } else if !pairs.is_empty() {
        let text = format!(
            "at depth 1, direct {rw}s of the largest size are not faster than buffered {rw}s"
        );
        found.find("past-the-cache", text);
    }
}

/// Compares two kinds of writes that are smaller than a page: to pages in memory, and to pages that
/// are not in memory (cold pages). Only the latencies are compared, because the flush at the end
/// dominates the rates.
fn small_writes(found: &mut Conclusion, evidence: &Evidence) {
    for rw in ["write", "randwrite"] {
        for bs in ["512", "2k"] {
            let at = |state: &str| {
                let part = [("part", "small writes"), ("rw", rw), ("bs", bs)];
                evidence.find(&[part[0], part[1], part[2], ("page-cache", state)])
            };
            let Some(cold) = at("cold") else { continue };
            let mut words = Vec::new();
            if let Some(((low, mean, high), warm)) = latency(cold).zip(at("warm").and_then(latency))
            {
                let (cold, usual) = (units::time(mean), units::time(warm.1));
                words.push(if low > warm.2 || high < warm.0 {
                    format!("mean latency {cold} on cold pages, {usual} on pages in memory")
                } else {
                    format!(
                        "mean latency {cold} on cold pages, no measurable difference from {usual} \
                         on pages in memory"
                    )
                });
            }
            if let Some((reads, bytes)) = device_reads(cold) {
                let size = units::size(bytes.round() as u64);
                words.push(format!(
                    "on cold pages, each write caused {reads:.2} device reads of {size}"
                ));
            }
            if !words.is_empty() {
                let size = units::size(cold.bytes());
                found.find("read-before-write", format!("{rw} of {size}: {}", words.join("; ")));
            }
        }
    }
}

/// Returns three mean latencies (ns): of the trial with the lowest mean, of all trials together,
/// and of the trial with the highest mean.
fn latency(point: &MeasuredPoint) -> Option<(f64, f64, f64)> {
    let trials = point.point.trials.iter().filter_map(|trial| trial.latency().mean());
    let (low, high) =
        trials.fold((f64::MAX, 0.0_f64), |(low, high), ns| (low.min(ns), high.max(ns)));
    Some((low, point.summary.latency.mean()?, high))
}

/// Returns the number of device reads per request, and the mean size of a device read (bytes).
fn device_reads(point: &MeasuredPoint) -> Option<(f64, f64)> {
    let counted = point.point.trials.iter().filter_map(|trial| Some((trial.device?, trial)));
    let (reads, sectors, requests) =
        counted.fold((0, 0, 0), |(reads, sectors, requests), (c, t)| {
            (reads + c.reads, sectors + c.read_sectors, requests + t.requests())
        });
    let each = |of: u64| sectors as f64 * 512.0 / of as f64;
    (requests > 0 && reads > 0).then(|| (reads as f64 / requests as f64, each(reads)))
}

/// Compares writes to a truncated file with overwriting an existing file.
fn truncation(found: &mut Conclusion, evidence: &Evidence) {
    for bs in ["2k", "64k"] {
        let at = |part: &str| evidence.find(&[("part", part), ("bs", bs)]);
        let (Some(cut), Some(kept)) = (at("truncated"), at("overwritten")) else { continue };
        let (comparison, size) = (curve::compare(cut, kept), units::size(cut.bytes()));
        let words = comparison.words();
        let text = format!(
            "rate of {size} writes to a truncated file, compared with overwriting cold pages: \
             {words}"
        );
        found.find("truncate", text.clone());
        if let (true, Comparison::Times(times)) = (bs == "2k", comparison) {
            found.advise("truncate-before-small-writes", times, "writes of 2 KiB", text);
        }
    }
}

/// Reports the phases of a long write, and the CPU time of each phase.
fn phases(found: &mut Conclusion, evidence: &Evidence) {
    let Some(point) = evidence.find(&[("part", PHASES)]) else { return };
    let Some(trial) = point.point.trials.first() else { return };
    let Some(phases) = Phases::of(trial) else { return };
    let (fill, flush_ns) = (phases.fill_ns, phases.elapsed_ns - phases.accepted_ns);
    let held_back = match phases.throttled_bytes_per_s {
        Some(rate) => format!(
            "then throttled to {} for {}",
            units::rate(rate),
            units::time((phases.accepted_ns - fill) as f64)
        ),
        None => format!(
            "never throttled ({} does not reach the limit of dirty pages, or the device keeps up)",
            units::size(phases.bytes)
        ),
    };
    found.find(
        "phases",
        format!(
            "a buffered write of {}: accepted by the kernel at {} for {}, {held_back}, then \
             flushed for {}; overall rate {}",
            units::size(phases.bytes),
            units::rate(phases.fill_bytes_per_s),
            units::time(fill as f64),
            units::time(flush_ns as f64),
            units::rate(trial.bytes_per_s())
        ),
    );
    let cpu = |phase: &str, of: &str| {
        evidence.value("CPU of a phase", &[("phase", phase), ("of", of)]).map(|share| 100.0 * share)
    };
    let word = |phase: &str| {
        let (process, machine) = (cpu(phase, "process")?, cpu(phase, "machine")?);
        Some(format!("{phase} {process:.0}% ({machine:.0}%)"))
    };
    let words: Vec<String> = ["fill", "throttled", "flush"].into_iter().filter_map(word).collect();
    found.find(
        "phases-cpu",
        if !words.is_empty() {
            format!(
                "CPU time charged to the process in each phase, in percent of one CPU (in \
                 parentheses: including all kernel work): {}",
                words.join(", ")
            )
        } else if evidence.is_simulated() {
            "the simulator reports the CPU time of the whole write, not of each phase".to_owned()
        } else {
            "the CPU time of each phase is unknown: the phases were too short, or the system does \
             not report CPU time; run without --quick to write for longer"
                .to_owned()
        },
    );
    found.value_if(
        "R036",
        cpu("throttled", "machine").map(|share| {
            (share, format!("throttled writes use {share:.0}% of one CPU, including kernel work"))
        }),
    );
    found.charts.push(chart_of(trial));
}

fn chart_of(trial: &Trial) -> Chart {
    let point = |x: u64, y| Point { x: x as f64, y, low: None, high: None, note: None };
    let accepted_ns = trial.accepted_ns.unwrap_or(trial.elapsed_ns);
    let whole = trial.series.iter().filter(|part| part.start_ns + part.length_ns <= accepted_ns);
    let mut points: Vec<Point> = whole
        .map(|part| {
            let rate = part.bytes as f64 * 1e9 / part.length_ns.max(1) as f64;
            point(part.start_ns + part.length_ns / 2, rate)
        })
        .collect();
    points.extend([point(accepted_ns, 0.0), point(trial.elapsed_ns, 0.0)]);
    let axis = |label: &str, unit| Axis { label: label.to_owned(), unit, scale: Scale::Linear };
    let name = "accepted by the kernel".to_owned();
    Chart {
        id: "out-of-box-phases".to_owned(),
        title: "A long buffered write".to_owned(),
        summary:
            "Rate at which the kernel accepts writes over time. The rate is 0 during the flush."
                .to_owned(),
        x: axis("Time", Unit::Nanoseconds),
        y: axis("Accepted", Unit::BytesPerSecond),
        series: vec![Series { name, points, dashed: false, hue: None }],
        guides: Vec::new(),
        kind: Kind::Lines,
    }
}

// ---- claims

/// Returns the lowest rate divided by the highest. None for fewer than two points.
fn evenness(points: &[&MeasuredPoint]) -> Option<f64> {
    let rates = points.iter().map(|point| point.rate());
    let top = rates.clone().reduce(f64::max)?;
    (points.len() > 1).then(|| rates.fold(f64::MAX, f64::min) / top)
}

/// Judges a claim about two points. If noise hides which point is faster, the claim is not
/// testable.
fn compared(
    found: &mut Conclusion,
    id: &'static str,
    pair: Option<(&MeasuredPoint, &MeasuredPoint)>,
    judge: impl Fn(Comparison) -> Option<(bool, String)>,
) {
    let Some((one, other)) = pair else { return };
    let comparison = curve::compare(one, other);
    match comparison.noise() {
        Some(why) => found.cannot(&[id], &why),
        None => found.claim_if(id, judge(comparison)),
    }
}

fn rate_claims(found: &mut Conclusion, evidence: &Evidence) {
    let reads = curve::by_size(evidence, &[("part", "reads")]);
    let writes = curve::by_size(evidence, &[("part", "writes")]);
    let small: Vec<&MeasuredPoint> =
        reads.iter().filter(|point| point.bytes() <= 64 << 10).copied().collect();
    let read = |bs: &str| Some(buffered(evidence, "read", bs)?.rate());
    let drop = read("128k").zip(read("64k")).map(|(large, usual)| large / usual);
    found.claim_if(
        "R021",
        evenness(&small).zip(drop).map(|(even, drop)| {
            let text = format!(
                "up to 64 KiB, the slowest request size reaches {:.0}% of the rate of the fastest; \
                 128 KiB reaches {:.0}% of the rate of 64 KiB",
                100.0 * even,
                100.0 * drop
            );
            (even >= CONSTANT && drop < CONSTANT, text)
        }),
    );
    let text = |drop: f64| format!("buffered 128 KiB reads: {drop:.2} times the rate at 64 KiB");
    // The claim says that the rate falls by a factor of 2. It holds if the measured factor is at
    // least the square root of 2, as for claims about gains.
    found.claim_if("C076", drop.map(|drop| (drop <= 0.5_f64.sqrt(), text(drop))));
    let pair = buffered(evidence, "read", "2k").zip(buffered(evidence, "read", "64k"));
    compared(found, "C007", pair, |comparison| {
        let words = comparison.words();
        let text = format!("buffered 2 KiB reads compared with 64 KiB reads: {words}");
        // In the first paper, 2 KiB reads were slower than large reads by a third or more. The
        // claim says that 2 KiB reads are no longer slower.
        comparison.times().map(|times| (times >= 1.0 - LOSS_MAX, text))
    });
    let large: Vec<&MeasuredPoint> =
        writes.iter().filter(|point| point.bytes() > 4 << 10).copied().collect();
    found.claim_if(
        "R022",
        evenness(&large).map(|even| {
            let text = format!(
                "above 4 KiB, the slowest request size reaches {:.0}% of the rate of the fastest",
                100.0 * even
            );
            (even >= CONSTANT, text)
        }),
    );
    let at = |part: &str| evidence.find(&[("part", part), ("bs", "64k")]);
    let pair = at("truncated").zip(at("overwritten"));
    let comparison = pair.map(|(cut, kept)| curve::compare(cut, kept));
    if let Some(why) = comparison.and_then(Comparison::noise) {
        found.cannot(&["R025"], &why);
    }
    let lost = comparison.and_then(Comparison::times).map(|times| 1.0 - times);
    found.loss("R025", lost, "throughput lost by truncating the file before 64 KiB writes");
    media_claims(found, evidence);
}

/// Judges the claims that compare buffered writes with the fastest direct write.
fn media_claims(found: &mut Conclusion, evidence: &Evidence) {
    let Some(limit) = evidence.fastest(&[("part", DIRECT), ("rw", "write")]) else { return };
    let cached = evidence.device().and_then(|device| device.write_cache.as_deref());
    let share = |part: &str, bs: &str| {
        let share = evidence.find(&[("part", part), ("bs", bs)])?.rate() / limit.rate();
        let size = units::size(units::parse_size(bs).unwrap_or_default());
        let percent = 100.0 * share;
        Some((
            percent,
            format!("{size} writes: {percent:.0}% of the rate of the fastest direct write"),
        ))
    };
    found.value_if("R037", share("overwritten", "2k"));
    found.value_if("R038", share("writes", "64k"));
    if cached == Some("write back") {
        let half = share("writes", "4k").map(|(percent, text)| (percent > 50.0, text));
        found.claim_if("R031", half);
        found.value_if("R039", share("writes", "64k"));
    } else {
        found.cannot(&["R031", "R039"], "the drive's write cache is off or unknown");
    }
}

fn cost_claims(found: &mut Conclusion, evidence: &Evidence) {
    let usual = buffered(evidence, "read", "64k").and_then(curve::utilisation);
    found.value_if(
        "R002",
        usual.map(|share| {
            let percent = 100.0 * share;
            (percent, format!("buffered 64 KiB reads use {percent:.0}% of one CPU"))
        }),
    );
}

/// Judges the claims about request sizes at which buffered I/O is faster than direct I/O, and about
/// device reads that small writes cause.
fn cache_claims(found: &mut Conclusion, evidence: &Evidence) {
    let helps = |found: &mut Conclusion, id: &'static str, rw: &str, bs: &str| {
        let pair = buffered(evidence, rw, bs).zip(direct(evidence, rw, bs));
        compared(found, id, pair, |comparison| {
            let words = comparison.words();
            let text = format!("buffered {rw}s of {bs} compared with direct ones: {words}");
            comparison.times().map(|times| (times > 1.0, text))
        });
    };
    for (id, rw, bs) in [
        ("R006", "write", "2k"),
        ("R061", "read", "2k"),
        ("R067", "write", "16k"),
        ("R068", "read", "4k"),
    ] {
        helps(found, id, rw, bs);
    }
    let cached = evidence.device().and_then(|device| device.write_cache.as_deref());
    match cached {
        Some("write through") => helps(found, "R076", "write", "64k"),
        _ => found.cannot(&["R076"], "the drive's write cache is on or unknown"),
    }
    let cold = [("part", "small writes"), ("rw", "write"), ("bs", "2k"), ("page-cache", "cold")];
    let page = evidence.find(&cold).and_then(device_reads).map(|(_, bytes)| {
        let size = units::size(bytes.round() as u64);
        (bytes / 1024.0, format!("2 KiB writes to cold pages cause device reads of {size}"))
    });
    found.value_if("R023", page.clone());
    found.value_if("C120", page);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::Verdict;
    use ioengine::target::DeviceCounters;
    use lab::evidence::testing::{cell, evidence};
    use lab::point::SeriesPoint;

    fn text(found: &Conclusion, id: &str) -> String {
        found.findings.iter().find(|finding| finding.id == id).unwrap().headline.clone()
    }

    /// Builds a trial that writes at these rates (MiB per interval of 10 ms) and then flushes for
    /// 100 ms.
    fn long_write(mib: &[u64]) -> Trial {
        const STEP_NS: u64 = 10_000_000;
        let interval = |(number, mib): (usize, &u64)| SeriesPoint {
            start_ns: number as u64 * STEP_NS,
            length_ns: STEP_NS,
            bytes: mib << 20,
            requests: 1,
        };
        let accepted_ns = mib.len() as u64 * STEP_NS;
        let mut trial = Trial {
            series: mib.iter().enumerate().map(interval).collect(),
            accepted_ns: Some(accepted_ns),
            elapsed_ns: accepted_ns + 100_000_000,
            ..Trial::default()
        };
        trial.directions[1].bytes = mib.iter().sum::<u64>() << 20;
        trial
    }

    #[test]
    fn a_long_write_fills_is_throttled_and_flushes() {
        let rates = [vec![20; 30], vec![2; 30]].concat();
        let phases = Phases::of(&long_write(&rates)).unwrap();
        assert!(phases.fill_ns.abs_diff(300_000_000) < 15_000_000, "{phases:?}");
        let held_back = phases.throttled_bytes_per_s.unwrap();
        assert!((held_back / (200.0 * 1_048_576.0) - 1.0).abs() < 0.05, "{phases:?}");
        let names: Vec<&str> = phases.spans().into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["fill", "throttled", "flush"]);
    }

    #[test]
    fn a_write_below_the_dirty_limit_is_not_throttled() {
        let mut written = cell(1000, &[("part", PHASES), ("rw", "write"), ("bs", "64k")]);
        written.point.trials = vec![long_write(&[20; 40])];
        let found = analyse(&evidence(vec![written]));
        let text = text(&found, "phases");
        assert!(text.contains("never throttled (800 MiB does not reach the limit"), "{text}");
        assert!(text.contains("flushed for 100 ms"), "{text}");
        assert_eq!(found.charts.len(), 1);
    }

    #[test]
    fn the_cpu_of_a_phase_comes_from_the_samples_within_it() {
        let mut trial = long_write(&[vec![20; 30], vec![2; 30]].concat());
        trial.started_unix_ns = 1_000_000_000;
        let sample = |at_ms: u64, process_ms: u64| {
            let sample = CpuSample {
                at_ns: at_ms * 1_000_000,
                process_ns: process_ms * 1_000_000,
                ..CpuSample::default()
            };
            (1_000_000_000 + at_ms as i64 * 1_000_000, sample)
        };
        // The process uses a whole CPU while the cache fills, and a tenth of a CPU while writes
        // are throttled.
        let samples: Vec<_> = (0..80)
            .map(|n| n * 10)
            .map(|ms| sample(ms, ms.min(300) + ms.saturating_sub(300) / 10))
            .collect();
        let mut evidence = Evidence::default();
        note_cpu(&mut evidence, &trial, &samples);
        let share = |phase: &str| evidence.value("CPU of a phase", &[("phase", phase)]).unwrap();
        assert!((share("fill") - 1.0).abs() < 0.1 && (share("throttled") - 0.1).abs() < 0.05);
    }

    #[test]
    fn small_writes_to_cold_pages_read_them_first() {
        let at = |state: &str, rate| {
            let flags = [("part", "small writes"), ("rw", "write"), ("bs", "2k")];
            cell(rate, &[flags[0], flags[1], flags[2], ("page-cache", state)])
        };
        let (mut cold, warm) = (at("cold", 1 << 20), at("warm", 100 << 20));
        for trial in &mut cold.point.trials {
            let reads = trial.requests();
            let counters = DeviceCounters { reads, read_sectors: 8 * reads, ..Default::default() };
            trial.device = Some(counters);
        }
        let found = analyse(&evidence(vec![cold, warm]));
        let text = text(&found, "read-before-write");
        assert!(text.contains("caused 1.00 device reads of 4 KiB"), "{text}");
        let claim = found.claims.iter().find(|claim| claim.id == "R023").unwrap();
        assert_eq!(claim.verdict, Verdict::Holds);
    }

    #[test]
    fn truncating_is_advised_if_it_gains() {
        let at = |part: &str, rate| cell(rate, &[("part", part), ("rw", "write"), ("bs", "2k")]);
        let found = analyse(&evidence(vec![at("truncated", 3000), at("overwritten", 1000)]));
        assert_eq!(found.advice[0].id, "truncate-before-small-writes");
        let found = analyse(&evidence(vec![at("truncated", 1010), at("overwritten", 1000)]));
        assert!(found.advice.is_empty());
        assert!(text(&found, "truncate").contains("the same within 10%"));
    }

    #[test]
    fn a_vanished_loss_confirms_the_second_paper_and_noise_decides_nothing() {
        let verdict = |small: u64, high: Option<f64>| {
            let read =
                |bs: &str, rate| cell(rate, &[("part", "reads"), ("rw", "read"), ("bs", bs)]);
            let mut points = vec![read("2k", small), read("64k", 1000)];
            points[0].summary.bytes_per_s.high = high.unwrap_or(small as f64);
            let found = analyse(&evidence(points));
            found.claims.iter().find(|claim| claim.id == "C007").unwrap().verdict
        };
        assert_eq!(verdict(980, None), Verdict::Holds);
        assert_eq!(verdict(500, None), Verdict::DoesNotHold);
        assert_eq!(verdict(500, Some(1500.0)), Verdict::CannotBeTried);
    }
}
