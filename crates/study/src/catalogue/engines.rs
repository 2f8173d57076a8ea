//! Study `engines`: compares the I/O engines of this host by request size and depth, and recommends
//! an engine.
//!
//! Each engine has a separate part of the plan, so that a missing engine does not affect the other
//! engines. io_uring has three parts: without polling, with a kernel thread that polls for
//! submissions (SQPOLL), and with polled completions (IOPOLL, for devices with poll queues). The
//! kernel charges the CPU time of the SQPOLL thread to the process. The reads are random, so that
//! read-ahead does not add requests.

use analysis::units;
use lab::evidence::{Evidence, MeasuredPoint};
use lab::failure::Outcome;
use lab::point::Trial;
use report::model::{Cell as TableCell, Column, Table};
use report::units::Unit;
use survey::advice;
use survey::half_power::REPEATABLE;

use crate::catalogue::Study;
use crate::conclusion::Conclusion;
use crate::curve::{self, Comparison};
use crate::runner::StudyRunner;
use crate::target::StudyTarget;

pub const STUDY: Study = Study {
    name: "engines",
    papers: "named as future work: a comparison of completion routines, events, completion ports \
             and threads",
    needs: "",
    plan: include_str!("../../plans/engines.toml"),
    claims: &[],
    rules: &["queue-of-the-kernel", "poll-submissions", "poll-completions"],
    measure: Some(measure),
    analyse,
};

/// If the median page fault takes less time than this (ns), the pages were already in memory. No
/// device is that fast.
const FOUND_NS: f64 = 1000.0;

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    if !runner.study_targets.iter().any(StudyTarget::is_real) {
        let reason = "simulated systems and reference devices do not use this host's I/O engines";
        runner.skip(reason, "specify a file, device or directory of this host");
        return Ok(());
    }
    runner.measure()
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    for rw in ["randread", "randwrite"] {
        for bs in values(evidence, rw, |point| point.bytes()) {
            for depth in values(evidence, rw, |point| u64::from(point.depth())) {
                race(&mut found, evidence, rw, bs, depth as u32);
            }
            blocking(&mut found, evidence, rw, bs);
            for polled in [SQ_POLL, IO_POLL] {
                polling(&mut found, evidence, polled, rw, bs);
            }
        }
    }
    mapped(&mut found, evidence);
    advise(&mut found, evidence);
    // The recommendation for the largest depth matters most, so it is listed first.
    found.findings.sort_by_key(|finding| finding.id != "use");
    found.tables.extend(table(evidence));
    found
}

/// Returns the distinct values of `of` over all points with the given `rw`, in rising order.
fn values(evidence: &Evidence, rw: &str, of: impl Fn(&MeasuredPoint) -> u64) -> Vec<u64> {
    let mut values: Vec<u64> = evidence.all(&[("rw", rw)]).into_iter().map(of).collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// The criterion by which an engine is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rate,
    Cpu,
    Latency,
}

impl By {
    /// Returns the criterion as a time per request (ns): the inverse of the rate, the CPU time, or
    /// the median latency. Less is better.
    fn ns(self, point: &MeasuredPoint) -> f64 {
        match self {
            By::Rate => 1e9 / point.requests_per_s().max(f64::MIN_POSITIVE),
            By::Cpu => point.cpu_ns().unwrap_or(f64::MAX),
            By::Latency => point.latency_ns(0.5).unwrap_or(f64::MAX),
        }
    }

    /// Returns the second criterion, which decides between engines that are equal by the first.
    fn tie_breaker(self) -> By {
        if self == By::Cpu { By::Rate } else { By::Cpu }
    }

    /// Returns the lowest and the highest value of the criterion (ns per request). For the rate,
    /// these are the ends of the confidence interval. For CPU time and latency, they are the lowest
    /// and the highest value of a trial.
    fn range(self, point: &MeasuredPoint) -> Option<(f64, f64)> {
        let rate = point.summary.requests_per_s;
        let of = |trial: &Trial| match self {
            By::Cpu => Some(trial.cpu.process_ns as f64 / trial.requests().max(1) as f64),
            _ => trial.latency().quantile(0.5).map(|ns| ns as f64),
        };
        if self == By::Rate {
            return (rate.low > 0.0).then(|| (1e9 / rate.high, 1e9 / rate.low));
        }
        let each = point.point.trials.iter().filter(|trial| !trial.soaked).map(of);
        let each = each.collect::<Option<Vec<f64>>>()?;
        let least = each.iter().copied().reduce(f64::min)?;
        Some((least, each.iter().copied().reduce(f64::max)?))
    }

    /// Checks whether `one` is better than `other` by more than the noise of both points.
    fn is_better(self, one: &MeasuredPoint, other: &MeasuredPoint) -> bool {
        let (Some((_, high)), Some((low, _))) = (self.range(one), self.range(other)) else {
            return false;
        };
        high < low && self.ns(one) < (1.0 - REPEATABLE) * self.ns(other)
    }

    /// Returns the best point, and whether all other points are worse by more than noise. If
    /// several points are equally good within noise, [`By::tie_breaker`] decides.
    fn choose<'a>(self, points: &[&'a MeasuredPoint]) -> Option<(&'a MeasuredPoint, bool)> {
        let known = |point: &&&MeasuredPoint| self.ns(point) < f64::MAX;
        let first =
            *points.iter().filter(known).min_by(|a, b| self.ns(a).total_cmp(&self.ns(b)))?;
        let is_alike = |point: &&&MeasuredPoint| !self.is_better(first, point);
        let alike: Vec<&MeasuredPoint> = points.iter().filter(is_alike).copied().collect();
        let tie_breaker = self.tie_breaker();
        let chosen = alike.iter().min_by(|a, b| tie_breaker.ns(a).total_cmp(&tie_breaker.ns(b)))?;
        Some((chosen, alike.len() == 1))
    }
}

/// Compares the engines with direct I/O at one size and depth. Recommends the fastest engine. If
/// several engines are equally fast, recommends the engine with the least CPU time per request.
/// Also reports the engines with the least CPU time and with the lowest latency.
fn race(found: &mut Conclusion, evidence: &Evidence, rw: &str, bs: u64, depth: u32) {
    let mut points = evidence.all(&[("rw", rw)]);
    points.retain(|point| point.bytes() == bs && point.depth() == depth && is_direct(point));
    if points.len() < 2 {
        return;
    }
    let Some((fast, alone)) = By::Rate.choose(&points) else { return };
    points.sort_by(|a, b| b.requests_per_s().total_cmp(&a.requests_per_s()));
    let others = points.iter().filter(|point| !std::ptr::eq(**point, fast));
    let others: Vec<String> = others.map(|point| brief(point)).collect();
    let deepest = values(evidence, rw, |point| u64::from(point.depth())).last().copied();
    let id = if deepest == Some(u64::from(depth)) { "use" } else { "race" };
    let why =
        if alone { "the fastest" } else { "which uses the least CPU of the equally fast engines" };
    let also = |by: By, what: &str| {
        let chosen = by.choose(&points).filter(|(point, _)| by.is_better(point, fast));
        chosen.map_or_else(String::new, |(point, _)| format!("; {what}, use {}", name(point)))
    };
    found.find(
        id,
        format!(
            "{rw} of {} at depth {depth}: use {}, {why}{}{}; other engines: {}",
            units::size(bs),
            brief(fast),
            also(By::Cpu, "for the least CPU"),
            also(By::Latency, "for the lowest median latency"),
            others.join(", ")
        ),
    );
}

/// Reports whether blocking calls or asynchronous I/O is faster with one request outstanding.
fn blocking(found: &mut Conclusion, evidence: &Evidence, rw: &str, bs: u64) {
    let at_one = |part: &str| {
        let points = evidence.all(&[("part", part), ("rw", rw), ("iodepth", "1")]);
        points.into_iter().find(|point| point.bytes() == bs)
    };
    let Some(sync) = at_one("sync") else { return };
    let queued = ["io_uring", "libaio"].into_iter().filter_map(at_one);
    let Some(best) = queued.max_by(|a, b| a.requests_per_s().total_cmp(&b.requests_per_s())) else {
        return;
    };
    let text = match (By::Rate.is_better(sync, best), By::Rate.is_better(best, sync)) {
        (true, _) => "blocking calls are faster than io_uring and libaio",
        (_, true) => "asynchronous I/O is faster even with one request",
        _ => match curve::compare(sync, best) {
            Comparison::Unclear(_) => {
                "no measurable difference between blocking and asynchronous calls"
            }
            _ => "blocking and asynchronous calls are equally fast, within 10%",
        },
    };
    found.find(
        "one-at-a-time",
        format!(
            "{rw} of {} at depth 1: {text} ({} compared with {})",
            units::size(bs),
            brief(sync),
            brief(best)
        ),
    );
}

/// Compares a memory mapping with read and write calls, both through the page cache.
fn mapped(found: &mut Conclusion, evidence: &Evidence) {
    for map in evidence.all(&[("part", "mmap")]) {
        let same = |point: &&&MeasuredPoint| {
            point.bytes() == map.bytes() && point.word("rw") == map.word("rw")
        };
        let calls = evidence.all(&[("part", "buffered sync")]);
        let Some(call) = calls.iter().find(same) else { continue };
        if map.latency_ns(0.5).is_some_and(|ns| ns < FOUND_NS) {
            let text = format!(
                "mmap in blocks of {} cannot be compared with system calls: the pages were already \
                 in memory (median page fault {}), because at each page fault, the kernel also \
                 reads the pages around it; use a larger file (--size)",
                units::size(map.bytes()),
                units::time(map.latency_ns(0.5).unwrap_or_default())
            );
            found.find("mapped", text);
            continue;
        }
        let times = curve::compare(map, call).words();
        found.find(
            "mapped",
            format!(
                "rate of mmap for cold {} of {} through the page cache, compared with system \
                 calls: {times} ({} and {})",
                map.word("rw"),
                units::size(map.bytes()),
                brief(map),
                brief(call)
            ),
        );
    }
}

/// Compares io_uring with and without polling at one request size, for each depth.
fn polling(found: &mut Conclusion, evidence: &Evidence, polled: Polled, rw: &str, bs: u64) {
    let pairs: Vec<(&MeasuredPoint, &MeasuredPoint)> =
        pairs(evidence, |point| polls(point) == Some(polled), plain)
            .into_iter()
            .filter(|(point, _)| point.word("rw") == rw && point.bytes() == bs)
            .collect();
    if pairs.is_empty() {
        return;
    }
    let time = |point: &MeasuredPoint, by: By| units::time(by.ns(point));
    let each: Vec<String> = pairs
        .iter()
        .map(|(point, without)| {
            let busy = curve::utilisation(point).zip(curve::utilisation(without));
            let busy = busy.map_or_else(String::new, |(with, without)| {
                format!(" ({with:.2} CPUs busy instead of {without:.2})")
            });
            let cpu = point.cpu_ns().and(without.cpu_ns()).map_or_else(String::new, |_| {
                let (with, without) = (time(point, By::Cpu), time(without, By::Cpu));
                format!(", CPU per request {with} instead of {without}{busy}")
            });
            format!(
                "depth {}: rate {}, median latency {} instead of {}{cpu}",
                point.depth(),
                curve::compare(point, without).words(),
                time(point, By::Latency),
                time(without, By::Latency)
            )
        })
        .collect();
    let (what, id) = (polled.what, polled.id);
    let (size, each) = (units::size(bs), each.join("; "));
    found.find(id, format!("{rw} of {size} with {what}, compared with no polling: {each}"));
}

/// A polling mode of io_uring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Polled {
    flag: &'static str,
    /// Id of the finding that compares this mode with io_uring without polling.
    id: &'static str,
    what: &'static str,
    /// Id of the rule that advises to use this mode.
    rule: &'static str,
}

const SQ_POLL: Polled = Polled {
    flag: "sqthread-poll",
    id: "sqpoll",
    what: "SQPOLL (the CPU time of its kernel thread is charged to the process)",
    rule: "poll-submissions",
};
const IO_POLL: Polled = Polled {
    flag: "hipri",
    id: "iopoll",
    what: "polled completions (IOPOLL)",
    rule: "poll-completions",
};

/// Returns the polling mode of a point. None if the point uses neither mode or both modes.
fn polls(point: &MeasuredPoint) -> Option<Polled> {
    let is_on = |polled: &Polled| matches!(&*point.word(polled.flag), "true" | "1");
    let modes: Vec<Polled> = [SQ_POLL, IO_POLL].into_iter().filter(is_on).collect();
    match modes.as_slice() {
        [one] => Some(*one),
        _ => None,
    }
}

/// Checks whether a point uses direct I/O and io_uring without polling.
fn plain(point: &MeasuredPoint) -> bool {
    is_direct(point) && point.word("ioengine") == "io_uring" && name(point) == "io_uring"
}

/// Pairs each point for which `one` is true with a point for which `other` is true. Both points of
/// a pair have the same direction, request size and depth.
fn pairs(
    evidence: &Evidence,
    one: impl Fn(&MeasuredPoint) -> bool,
    other: impl Fn(&MeasuredPoint) -> bool,
) -> Vec<(&MeasuredPoint, &MeasuredPoint)> {
    let load = |point: &MeasuredPoint| (point.word("rw"), point.bytes(), point.depth());
    let mut ones: Vec<&MeasuredPoint> = evidence.usable().filter(|point| one(point)).collect();
    ones.sort_by_key(|point| point.depth());
    let partner = |point: &MeasuredPoint| {
        evidence.usable().find(|found| other(found) && load(found) == load(point))
    };
    ones.into_iter().filter_map(|point| Some((point, partner(point)?))).collect()
}

/// The gain from changing the engine, at one request size and depth.
struct Gain<'a> {
    times: f64,
    by: By,
    to: &'a MeasuredPoint,
    from: &'a MeasuredPoint,
}

/// Advises to use an engine or a polling mode that gains enough. Each rule is reported once, for
/// the point with the largest gain in throughput. If no point gains enough throughput, the rule is
/// reported for the point with the largest saving of CPU time.
fn advise(found: &mut Conclusion, evidence: &Evidence) {
    let is = |engine_kind: &'static str| {
        move |point: &MeasuredPoint| is_direct(point) && point.word("ioengine") == engine_kind
    };
    let is_queue = |point: &MeasuredPoint| plain(point) || is("libaio")(point);
    let of = |polled: Polled| pairs(evidence, move |point| polls(point) == Some(polled), plain);
    let rules = [
        // At depth 1, a program would use a blocking call instead of a pool of threads, so the
        // comparison starts above depth 1.
        (
            "queue-of-the-kernel",
            pairs(evidence, move |point| point.depth() > 1 && is_queue(point), is("threads")),
        ),
        (SQ_POLL.rule, of(SQ_POLL)),
        (IO_POLL.rule, of(IO_POLL)),
    ];
    for (rule, pairs) in rules {
        let gain = |by: By| {
            let better = pairs.iter().filter(|(to, from)| by.is_better(to, from));
            let gains =
                better.map(|(to, from)| Gain { times: by.ns(from) / by.ns(to), by, to, from });
            gains.max_by(|a, b| a.times.total_cmp(&b.times))
        };
        let worth = |gain: &Gain<'_>| gain.times >= advice::GAIN_MIN;
        let best = gain(By::Rate).filter(worth).or_else(|| gain(By::Cpu).filter(worth));
        let Some(Gain { times, by, to, from }) = best else { continue };
        let load = format!("{} of {}", to.word("rw"), units::size(to.bytes()));
        let setting = format!("{}, {load} at depth {}", name(to), to.depth());
        let text = format!("{} instead of {}", brief(to), brief(from));
        let gain_in = if by == By::Cpu { "CPU" } else { "throughput" };
        found.advise_in(gain_in, rule, times, &setting, text);
    }
}

fn is_direct(point: &MeasuredPoint) -> bool {
    point.point.key.is_direct()
}

/// Returns the name of a point's engine, such as "io_uring" or "io_uring with SQPOLL".
fn name(point: &MeasuredPoint) -> String {
    let is_on = |flag: &str| matches!(&*point.word(flag), "true" | "1");
    let modes = match (is_on(SQ_POLL.flag), is_on(IO_POLL.flag)) {
        (true, true) => " with SQPOLL and IOPOLL",
        (true, false) => " with SQPOLL",
        (false, true) => " with IOPOLL",
        (false, false) => "",
    };
    format!("{}{modes}", point.word("ioengine"))
}

/// Summarizes a point, such as "sync (9k/s, 5 us of CPU per request, median latency 80 us)".
fn brief(point: &MeasuredPoint) -> String {
    let cpu = point.cpu_ns().map(|ns| format!(", {} of CPU per request", units::time(ns)));
    let median = point.latency_ns(0.5).map(|ns| format!(", median latency {}", units::time(ns)));
    let rate = units::count(point.requests_per_s());
    format!("{} ({rate}/s{}{})", name(point), cpu.unwrap_or_default(), median.unwrap_or_default())
}

/// Builds a table with a row for every point.
fn table(evidence: &Evidence) -> Option<Table> {
    let mut points: Vec<&MeasuredPoint> = evidence.usable().collect();
    let key = |point: &MeasuredPoint| {
        (point.word("rw"), point.bytes(), point.depth(), point.part.clone())
    };
    points.sort_by_key(|point| key(point));
    let row = |point: &&MeasuredPoint| {
        vec![
            TableCell::Text(point.word("rw")),
            TableCell::Number(point.bytes() as f64),
            TableCell::Number(f64::from(point.depth())),
            TableCell::Text(point.part.clone()),
            TableCell::Number(point.requests_per_s()),
            point.latency_ns(0.5).into(),
            point.latency_ns(0.99).into(),
            point.cpu_ns().into(),
        ]
    };
    let column = |(label, unit): (&str, Option<Unit>)| Column { label: label.to_owned(), unit };
    (!points.is_empty()).then(|| Table {
        id: "engines-side-by-side".to_owned(),
        caption: "All I/O engines, by request size and depth".to_owned(),
        columns: [
            ("Direction", None),
            ("Request size", Some(Unit::Bytes)),
            ("Depth", Some(Unit::Count)),
            ("I/O engine", None),
            ("Requests", Some(Unit::PerSecond)),
            ("Median latency", Some(Unit::Nanoseconds)),
            ("99th percentile", Some(Unit::Nanoseconds)),
            ("CPU per request", Some(Unit::Nanoseconds)),
        ]
        .map(column)
        .into(),
        rows: points.iter().map(row).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::evidence::testing::{cell, evidence};

    /// Builds a point of random 4 KiB reads. `requests` is the rate per second, and `cpu_ns` is the
    /// CPU time per request.
    fn point(part: &str, depth: &str, requests: u64, cpu_ns: u64) -> MeasuredPoint {
        let caching = if part == "mmap" || part == "buffered sync" { "buffered" } else { "direct" };
        let (ioengine, polled) = match part.strip_prefix("io_uring ") {
            Some(way) => ("io_uring", if way == "SQPOLL" { SQ_POLL.flag } else { IO_POLL.flag }),
            None => (part.trim_start_matches("buffered "), "other"),
        };
        let flags = [
            ("part", part),
            ("ioengine", ioengine),
            ("rw", "randread"),
            ("bs", "4k"),
            ("iodepth", depth),
            ("caching", caching),
            (polled, "true"),
        ];
        let mut point = cell(requests * 4096, &flags);
        let latency_ns = 1_000_000_000 * u64::from(point.depth()) / requests;
        for trial in &mut point.point.trials {
            trial.cpu.process_ns = cpu_ns * requests;
            trial.directions[0].latency.record(latency_ns);
        }
        point.summary = point.point.summary();
        point
    }

    fn words(found: &Conclusion, id: &str) -> String {
        let found = found.findings.iter().find(|finding| finding.id == id);
        found.map(|finding| finding.headline.clone()).unwrap_or_default()
    }

    #[test]
    fn the_fastest_engine_is_named_with_its_cost() {
        let found = analyse(&evidence(vec![
            point("threads", "16", 40_000, 20_000),
            point("io_uring", "16", 100_000, 3_000),
            point("libaio", "16", 90_000, 4_000),
        ]));
        let text = words(&found, "use");
        let wanted = "use io_uring (100k/s, 3 us of CPU per request, median latency 160 us), the \
                      fastest; other";
        assert!(text.contains(wanted), "{text}");
        assert!(text.contains("libaio (90k/s, 4 us of CPU per request, median"), "{text}");
        assert!(text.contains("threads (40k/s, 20 us of CPU per request, median"), "{text}");
    }

    #[test]
    fn among_equally_fast_engines_the_leanest_is_named() {
        let found = analyse(&evidence(vec![
            point("threads", "16", 50_000, 20_000),
            point("io_uring", "16", 50_000, 3_000),
        ]));
        let text = words(&found, "use");
        assert!(text.contains("use io_uring") && text.contains("least CPU"), "{text}");
    }

    #[test]
    fn depth_one_needs_a_queue_only_if_it_is_faster() {
        let at_one = |queued| {
            let points =
                vec![point("sync", "1", 9_000, 5_000), point("io_uring", "1", queued, 6_000)];
            words(&analyse(&evidence(points)), "one-at-a-time")
        };
        assert!(at_one(9_000).contains("are equally fast"), "{}", at_one(9_000));
        assert!(at_one(8_000).contains("blocking calls are faster"), "{}", at_one(8_000));
        assert!(at_one(12_000).contains("asynchronous I/O is faster"), "{}", at_one(12_000));
    }

    #[test]
    fn a_mapping_is_compared_with_buffered_calls_only() {
        let found = analyse(&evidence(vec![
            point("mmap", "1", 5_000, 9_000),
            point("buffered sync", "1", 10_000, 9_000),
            point("sync", "1", 20_000, 9_000),
        ]));
        let text = words(&found, "mapped");
        assert!(text.contains("compared with system calls: 0.50 times ("), "{text}");
        assert_eq!(words(&found, "race"), "", "a race needs two engines with direct I/O");
    }

    #[test]
    fn the_best_by_rate_and_by_cpu_are_both_named() {
        let found = analyse(&evidence(vec![
            point("io_uring", "16", 100_000, 3_000),
            point("io_uring SQPOLL", "16", 130_000, 15_000),
            point("libaio", "16", 99_000, 4_000),
        ]));
        let text = words(&found, "use");
        assert!(text.contains("use io_uring with SQPOLL (130k/s, 15 us"), "{text}");
        assert!(
            text.contains("fastest; for the least CPU, use io_uring; other engines: io_uring (")
        );
        assert!(!text.contains("for the lowest"), "the fastest has the lowest latency: {text}");
    }

    #[test]
    fn polling_is_compared_with_interrupts_at_each_depth() {
        let found = analyse(&evidence(vec![
            point("io_uring", "1", 10_000, 5_000),
            point("io_uring", "16", 100_000, 3_000),
            point("io_uring SQPOLL", "1", 12_500, 80_000),
            point("io_uring SQPOLL", "16", 100_000, 10_000),
            point("io_uring IOPOLL", "1", 20_000, 50_000),
        ]));
        let text = words(&found, "sqpoll");
        assert!(text.contains("compared with no polling: depth 1: rate 1.25 times, "), "{text}");
        assert!(text.contains("CPU per request 80 us instead of 5 us (1.00 CPUs busy instead of"));
        assert!(text.contains("depth 16: rate the same within 10%"), "{text}");
        assert!(words(&found, "iopoll").contains("depth 1: rate 2.00 times"), "{found:?}");
        let gains: Vec<(&str, f64)> =
            found.advice.iter().map(|one| (one.id.as_str(), one.gain)).collect();
        assert_eq!(gains, [("poll-submissions", 1.25), ("poll-completions", 2.0)]);
        assert!(found.advice[0].evidence.contains("80 us of CPU per request"), "{found:?}");
    }

    #[test]
    fn a_queue_is_advised_for_its_rate_or_otherwise_for_its_cpu() {
        let advice = |queued| {
            let points =
                vec![point("threads", "16", 50_000, 20_000), point("libaio", "16", queued, 4_000)];
            analyse(&evidence(points)).advice
        };
        let [faster, leaner] = [100_000, 50_000].map(|queued| advice(queued)[0].clone());
        assert_eq!(
            (faster.id.as_str(), faster.gain_in, faster.gain),
            ("queue-of-the-kernel", "throughput", 2.0)
        );
        assert_eq!((leaner.gain_in, leaner.gain), ("CPU", 5.0));
        assert!(leaner.text.ends_with("libaio, randread of 4 KiB at depth 16"), "{leaner:?}");
    }
}
