//! Study `competing`: several streams of requests on one device. The study measures how much rate
//! each stream loses to the others, how much the latency grows, and what I/O priorities change.
//!
//! Each part of the plan is a stream. If a flag has several values, the stream uses the first
//! value. The study runs every stream alone, every pair of streams together, and all streams
//! together. Each stream has separate threads and engines. The rates are measured only while all
//! streams of a mix run. Runs alone and together alternate, and every other round is reversed, so
//! that a drift of the machine does not look like interference.
//!
//! In a simulated system, all streams share one simulation. With several ranks, each rank runs
//! every stream, and the result of a stream is the sum over all ranks.
//!
//! The share that a stream keeps is its rate in the mix divided by its rate alone. Fairness is
//! Jain's index of these shares: 1 if they are equal, 1/n if one of n streams keeps everything.

use analysis::units;
use std::slice;
use std::thread;

use analysis::quantile::median;
use cpucost::{CpuMeter, CpuSample};
use ioengine::clock::Clocks;
use ioengine::priority::IoPriority;
use ioengine::{Clock, Target};
use lab::evidence::{Evidence, MeasuredPoint};
use lab::failure::{Failure, Outcome};
use lab::point::{Point, Trial, Verdict};
use lab::ranks::merge::RankResult;
use lab::rounds;
use lab::simulated;
use lab::trials::{Lab, Place, Setting};
use report::model::{Cell as TableCell, Column, Table};
use report::units::Unit;
use workload::random::mix;
use workload::{Control, Sample, Workload};

use crate::catalogue::Study;
use crate::common_start::CommonStart;
use crate::conclusion::Conclusion;
use crate::runner::{Ready, StudyRunner};
use crate::target::{Kind, StudyTarget};

pub const STUDY: Study = Study {
    name: "competing",
    papers: "named as future work: several applications on one device",
    needs: "",
    plan: include_str!("../../plans/competing.toml"),
    claims: &[],
    rules: &[],
    measure: Some(measure),
    analyse,
};

/// If a stream is faster in a mix than alone by more than this factor, the report points out noise.
const NOISE: f64 = 1.1;
/// A stream counts as unaffected if its rate in a mix is at least this share of its rate alone.
const UNTOUCHED: f64 = 0.9;
/// Schedulers that respect I/O priorities.
const HONOURING: [&str; 2] = ["bfq", "mq-deadline"];
/// Values of the label `priority`: no priorities, or priority for the stream with the smallest
/// requests.
const NO_PRIORITY: &str = "none";
const SMALL_FIRST: &str = "small first";

/// A stream that is ready to run.
struct Stream<'a> {
    owner: &'a Ready,
    setting: Setting<'a>,
    /// Collects the trials of the stream alone. `number` identifies this point in the store.
    alone: Point,
    number: usize,
}

impl Stream<'_> {
    fn part(&self) -> &str {
        self.owner.part()
    }
}

/// The result of one stream in one run of a mix.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct StreamResult {
    bytes_per_s: f64,
    p50_ns: Option<f64>,
    p99_ns: Option<f64>,
}

/// A CPU meter that measures nothing, because the CPU time of the process cannot be divided among
/// its streams.
struct NoMeter;

impl CpuMeter for NoMeter {
    fn sample(&self, now_ns: u64) -> CpuSample {
        CpuSample { at_ns: now_ns, ..CpuSample::default() }
    }
}

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    let (study_targets, groups) = (runner.study_targets, runner.groups()?);
    for study_target in study_targets {
        runner.measure_groups_by(&groups, slice::from_ref(study_target), &compete)?;
    }
    Ok(())
}

/// Measures all streams of a target, alone and together.
fn compete(runner: &mut StudyRunner<'_>, ready: &[Ready]) -> Outcome<()> {
    let study_target = &runner.study_targets[ready[0].first()];
    let mut streams = Vec::new();
    for owner in ready {
        let Some(setting) = owner.settings().into_iter().next() else { continue };
        let key = setting.key();
        let number = runner.recorder.add_point(&key)?;
        streams.push(Stream { owner, setting, alone: Point { key, trials: Vec::new() }, number });
    }
    if streams.len() < 2 {
        let reason = "fewer than two streams can run on the target; see the reasons why the \
                      other streams were left out";
        runner.leave_out("together", reason);
    }
    let scheduler = study_target.facts().device.and_then(|device| device.scheduler);
    let why = if study_target.is_simulated() {
        Some("a simulated system has no I/O priorities; specify a file on a device".to_owned())
    } else {
        no_priorities(scheduler.as_deref())
    };
    let why = runner.lab.agree(why)?;
    let priorities: &[&str] =
        if why.is_none() { &[NO_PRIORITY, SMALL_FIRST] } else { &[NO_PRIORITY] };
    let is_known = matches!(study_target.kind, Kind::Reference { .. });
    if is_known {
        let reason = "each stream would open a separate reference device; mount one device as a \
                      file (halfpower mount) and use that file";
        runner.leave_out("together", reason);
    }
    let measured =
        take_turns(runner, study_target, &mut streams, if is_known { &[] } else { priorities });
    for stream in streams {
        runner.recorder.judge(stream.number, slice::from_ref(&stream.alone));
        runner.add(stream.owner, &[], stream.alone);
    }
    if let Some(reason) = why {
        runner.leave_out("priorities", &reason);
    }
    measured
}

/// Returns why priorities have no effect with this scheduler. `None` if they have an effect.
fn no_priorities(scheduler: Option<&str>) -> Option<String> {
    match scheduler {
        Some(name) if HONOURING.contains(&name) => None,
        Some(name) => Some(format!(
            "the I/O scheduler {name} ignores priorities; choose bfq or mq-deadline (echo bfq > \
             /sys/block/DEVICE/queue/scheduler)"
        )),
        None => {
            Some("this target has no I/O scheduler; use a file on a device that has one".into())
        }
    }
}

/// Returns the mixes to run, each as the indices of its streams: every pair and, if there are more
/// than two streams, all streams together.
fn subsets(count: usize) -> Vec<Vec<usize>> {
    let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| vec![one, other]));
    let mut all: Vec<Vec<usize>> = pairs.collect();
    if count > 2 {
        all.push((0..count).collect());
    }
    all
}

/// One run in a round.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Turn {
    /// One stream runs alone. The value is the index of the stream.
    Alone(usize),
    /// A mix of streams runs. The value is the index of the mix.
    Together(usize),
}

/// Returns the runs of a round. Runs of single streams alternate with runs of mixes. When one kind
/// is used up, the rest of the other kind follows. Rounds with an odd number run in reverse order.
fn turns(streams: usize, mixes: usize, round: u32) -> Vec<Turn> {
    let at = |number: usize| {
        let alone = (number < streams).then_some(Turn::Alone(number));
        let together = (number < mixes).then_some(Turn::Together(number));
        alone.into_iter().chain(together)
    };
    let mut turns: Vec<Turn> = (0..streams.max(mixes)).flat_map(at).collect();
    if round % 2 == 1 {
        turns.reverse();
    }
    turns
}

/// All runs of one mix of streams, with or without priorities.
struct MixRuns {
    /// The indices of the streams.
    places: Vec<usize>,
    priority: &'static str,
    /// The results of each round, in the order of `places`.
    rounds: Vec<Vec<StreamResult>>,
}

/// Runs every stream alone and every mix once per round. The number of rounds is the number of
/// trials in the plan. Records the median results of each mix.
fn take_turns(
    runner: &mut StudyRunner<'_>,
    study_target: &StudyTarget,
    streams: &mut [Stream<'_>],
    priorities: &[&'static str],
) -> Outcome<()> {
    let mixed = |places: Vec<usize>| {
        let of = move |priority: &&'static str| MixRuns {
            places: places.clone(),
            priority,
            rounds: Vec::new(),
        };
        priorities.iter().map(of).collect::<Vec<MixRuns>>()
    };
    let mut mixes: Vec<MixRuns> = subsets(streams.len()).into_iter().flat_map(mixed).collect();
    let trials = streams.iter().map(|stream| stream.owner.trials()).max().unwrap_or(0);
    let all = f64::from(trials) * (streams.len() + mixes.len()) as f64;
    let (mut progress, mut done) = (runner.lab.console.open_progress(), 0.0);
    for round in 0..trials {
        for (stream, place) in streams.iter_mut().zip(1..) {
            // The seeds differ, so that two equal streams do not read the same blocks.
            stream.setting.workload.seed = mix(rounds::seed_of(runner.base.seed, round), place);
        }
        for turn in turns(streams.len(), mixes.len(), round) {
            if runner.lab.must_stop()? {
                progress.finish();
                runner.lab.check_ranks()?;
                return Err(Failure::interrupted());
            }
            match turn {
                Turn::Alone(place) => {
                    progress.advance(Some(done / all), &streams[place].alone.key.describe());
                    run_alone(runner, &mut streams[place], round)?;
                }
                Turn::Together(number) => {
                    let mix = &mut mixes[number];
                    let together: Vec<&Stream<'_>> =
                        mix.places.iter().map(|place| &streams[*place]).collect();
                    let label = format!("together: {}", name_of(&together));
                    progress.advance(Some(done / all), &label);
                    mix.rounds.push(run(runner, &together, mix.priority == SMALL_FIRST)?);
                }
            }
            done += 1.0;
        }
    }
    progress.finish();
    mixes.iter().for_each(|mix| note(&mut runner.evidence, study_target, streams, mix));
    Ok(())
}

/// Runs one trial of a stream alone.
fn run_alone(runner: &mut StudyRunner<'_>, stream: &mut Stream<'_>, round: u32) -> Outcome<()> {
    let trial = runner.lab.trial(&stream.setting, &mut |_| {})?;
    rounds::fail_on_errors(&trial, &stream.alone.key.describe())?;
    if trial.requests() > 0 {
        let trial = Trial { ordinal: round, ..trial };
        runner.recorder.add_trial(stream.number, &trial)?;
        stream.alone.trials.push(trial);
    }
    Ok(())
}

/// Records the median over all rounds for each stream of a mix.
fn note(
    evidence: &mut Evidence,
    study_target: &StudyTarget,
    streams: &[Stream<'_>],
    mix: &MixRuns,
) {
    let together: Vec<&Stream<'_>> = mix.places.iter().map(|place| &streams[*place]).collect();
    for (place, stream) in together.iter().enumerate() {
        let of = |value: fn(&StreamResult) -> Option<f64>| {
            let values: Vec<f64> =
                mix.rounds.iter().filter_map(|round| value(&round[place])).collect();
            median(&values)
        };
        let labels = [
            ("target", study_target.name.display().to_string()),
            ("mix", name_of(&together)),
            ("stream", stream.part().to_owned()),
            ("priority", mix.priority.to_owned()),
        ];
        let values = [
            ("rate", "bytes/s", of(|done| Some(done.bytes_per_s))),
            ("p50", "ns", of(|done| done.p50_ns)),
            ("p99", "ns", of(|done| done.p99_ns)),
        ];
        for (quantity, unit, value) in values {
            if let Some(value) = value {
                evidence.note(quantity, unit, &labels, value);
            }
        }
    }
}

fn name_of(streams: &[&Stream<'_>]) -> String {
    streams.iter().map(|stream| stream.part()).collect::<Vec<_>>().join(" + ")
}

/// Runs streams at the same time. Returns the result of each stream. The rates cover only the time
/// during which all streams ran.
fn run(
    runner: &StudyRunner<'_>,
    streams: &[&Stream<'_>],
    prioritised: bool,
) -> Outcome<Vec<StreamResult>> {
    let clocks = runner.lab.clock.clocks();
    let samples = if streams.iter().any(|one| matches!(one.setting.place, Place::Simulated(_))) {
        in_one_world(runner, streams)?
    } else {
        on_threads(runner, streams, prioritised)?
    };
    let (samples, from, to) = of_all_ranks(runner.lab, samples, &clocks)?;
    for (sample, stream) in samples.iter().zip(streams) {
        if sample.errors > 0 {
            return Err(Failure::failed(format!(
                "{}: {} requests failed; look at the kernel log (dmesg)",
                stream.part(),
                sample.errors
            )));
        }
    }
    Ok(samples.iter().map(|sample| done_between(sample, from, to)).collect())
}

/// Merges the samples of each stream over all ranks. Also returns the start and end of the time
/// during which all streams ran (ns).
fn of_all_ranks(
    lab: &Lab,
    samples: Vec<Sample>,
    clocks: &Clocks,
) -> Outcome<(Vec<Sample>, u64, u64)> {
    let (mut all, mut from, mut to) = (Vec::new(), 0, u64::MAX);
    let later = lab.clock.clocks();
    for mut sample in samples {
        let (mut latest, mut soonest) = (sample.start_ns, sample.end_ns);
        if let Some(ranks) = &lab.ranks {
            sample.convert_times(|ns| clocks.system_ns(&later, ns));
            let (devices, verdict) = (String::new(), Verdict::default());
            let merged = ranks.merge(RankResult { sample, devices, verdict })?;
            lab.check_ranks()?;
            sample = merged.sample;
            let starts = || merged.ranks.iter().map(|rank| sample.start_ns + rank.start_ns);
            let ends = starts().zip(&merged.ranks).map(|(start, rank)| start + rank.elapsed_ns);
            latest = starts().max().unwrap_or(latest);
            soonest = ends.min().unwrap_or(soonest);
        }
        (from, to) = (from.max(latest), to.min(soonest));
        all.push(sample);
    }
    Ok((all, from, to))
}

/// Runs the streams in one simulated system.
fn in_one_world(runner: &StudyRunner<'_>, streams: &[&Stream<'_>]) -> Outcome<Vec<Sample>> {
    let places = streams.iter().filter_map(|stream| match stream.setting.place {
        Place::Simulated(place) => Some(place),
        Place::Host(_) => None,
    });
    let mut places = places.collect::<Vec<_>>().into_iter();
    let Some(first) = places.next() else { return Ok(Vec::new()) };
    let mut system = first.system.clone();
    for place in places {
        if place.caching != first.caching {
            return Err(Failure::usage(
                "all streams of a simulated system must use the same caching; specify the same \
                 --direct and --write-through for all",
            ));
        }
        system.setup.file_size = system.setup.file_size.max(place.system.setup.file_size);
    }
    let workloads: Vec<_> = streams.iter().map(|one| one.setting.workload.clone()).collect();
    let stop = runner.lab.interrupt.flag();
    Ok(simulated::together(&system, &workloads, first.caching, stop)?.samples)
}

/// Runs the streams on this host. With priorities, the streams with the smallest requests get
/// best-effort level 0, and the other streams get the idle class.
fn on_threads(
    runner: &StudyRunner<'_>,
    streams: &[&Stream<'_>],
    prioritised: bool,
) -> Outcome<Vec<Sample>> {
    let (lab, stop) = (runner.lab, runner.lab.interrupt.flag());
    let clock = lab.clock;
    let smallest = streams.iter().map(|stream| stream.setting.workload.request_bytes).min();
    let start = CommonStart::default();
    let one = |(stream, seed): (&Stream<'_>, u64)| -> Outcome<Sample> {
        // If this stream fails early, dropping `place` reports the failure. Otherwise the other
        // streams would wait forever.
        let mut place = start.place();
        let workload = Workload { seed, ..stream.setting.workload.clone() };
        let Place::Host(targets) = &stream.setting.place else { return Ok(Sample::new(1)) };
        let planned = workload::plan::resolve(&workload, targets[0])?;
        let first = Some(workload.request_bytes) == smallest;
        let priority = if first { IoPriority::First } else { IoPriority::Idle };
        if prioritised {
            priority.set()?;
        }
        let mut wait = || place.wait();
        let mut control = Control { stop, on_progress: &mut |_| {}, start: Some(&mut wait) };
        Ok(workload::run(targets, &planned, clock, &NoMeter, &mut control)?)
    };
    // Evict the pages that earlier runs left in the page cache, so that reads reach the device.
    for stream in streams.iter().filter(|stream| stream.setting.scrub) {
        if let Place::Host(targets) = &stream.setting.place {
            for target in targets.iter().filter(|target| target.kind().is_storage()) {
                target.scrub()?;
            }
        }
    }
    let what = format!("together: {}", name_of(streams));
    let (begun, samples) = thread::scope(|scope| {
        let one = &one;
        let seed = |stream: &Stream<'_>| lab.seed_of_rank(stream.setting.workload.seed);
        let with_seed = streams.iter().map(|stream| (*stream, seed(stream)));
        let threads: Vec<_> = with_seed.map(|input| scope.spawn(move || one(input))).collect();
        start.wait_for_all(streams.len());
        let begun = match &lab.ranks {
            Some(ranks) => ranks.start_together(&what),
            None => Ok(clock.now_ns()),
        };
        start.begin(begun.as_ref().ok().copied());
        let lost = || Err(Failure::failed("the thread of a stream panicked; try again"));
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost()));
        (begun, joined.collect::<Vec<Outcome<Sample>>>())
    });
    begun?;
    samples.into_iter().collect()
}

/// Returns the result of a stream. The rate covers only the intervals that lie completely between
/// the two times. The latencies cover the whole run.
fn done_between(sample: &Sample, from_ns: u64, to_ns: u64) -> StreamResult {
    let interval_ns = sample.series.interval_ns;
    let (mut bytes, mut time_ns) = (0, 0);
    for (number, interval) in sample.series.intervals.iter().enumerate() {
        let start_ns = sample.start_ns + number as u64 * interval_ns;
        if start_ns >= from_ns && start_ns + interval_ns <= to_ns {
            bytes += interval.bytes;
            time_ns += interval_ns;
        }
    }
    let mut latency = sample.operations[0].latency.clone();
    latency.merge(&sample.operations[1].latency);
    let quantile = |share| latency.quantile(share).map(|ns| ns as f64);
    StreamResult {
        bytes_per_s: bytes as f64 * 1e9 / time_ns.max(1) as f64,
        p50_ns: quantile(0.5),
        p99_ns: quantile(0.99),
    }
}

/// The result of a stream in a mix, and the measurement of the same stream alone.
struct StreamInMix<'a> {
    stream: String,
    alone: &'a MeasuredPoint,
    rate: f64,
    p99_ns: Option<f64>,
}

impl StreamInMix<'_> {
    /// Returns the stream's rate in the mix divided by its rate alone.
    fn keeps(&self) -> f64 {
        self.rate / self.alone.rate().max(1.0)
    }
}

/// Streams that ran at the same time.
struct Mix<'a> {
    target: String,
    name: String,
    priority: String,
    streams: Vec<StreamInMix<'a>>,
}

impl Mix<'_> {
    /// Returns Jain's fairness index of the values of [`StreamInMix::keeps`].
    fn fairness(&self) -> f64 {
        let kept: Vec<f64> = self.streams.iter().map(StreamInMix::keeps).collect();
        let (sum, squares) = (kept.iter().sum::<f64>(), kept.iter().map(|x| x * x).sum::<f64>());
        if squares > 0.0 { sum * sum / (kept.len() as f64 * squares) } else { 0.0 }
    }

    /// Returns the rate of all streams together (bytes per second).
    fn rate(&self) -> f64 {
        self.streams.iter().map(|stream| stream.rate).sum()
    }

    /// Returns the stream with the smallest requests.
    fn small(&self) -> Option<&StreamInMix<'_>> {
        self.streams.iter().min_by_key(|stream| stream.alone.bytes())
    }
}

fn mixes_of(evidence: &Evidence) -> Vec<Mix<'_>> {
    let mut mixes: Vec<Mix<'_>> = Vec::new();
    for reading in evidence.read("rate", &[]) {
        let label = |name: &str| reading.labels.get(name).cloned().unwrap_or_default();
        let (target, name, priority) = (label("target"), label("mix"), label("priority"));
        let stream = label("stream");
        let alone = evidence.all(&[("part", &stream), ("target", &target)]);
        let Some(alone) = alone.first().copied() else { continue };
        let labels: Vec<(&str, &str)> =
            reading.labels.iter().map(|(name, word)| (name.as_str(), word.as_str())).collect();
        let p99_ns = evidence.value("p99", &labels);
        let one = StreamInMix { stream, alone, rate: reading.value, p99_ns };
        let same = |mix: &&mut Mix<'_>| {
            mix.target == target && mix.name == name && mix.priority == priority
        };
        match mixes.iter_mut().find(same) {
            Some(mix) => mix.streams.push(one),
            None => mixes.push(Mix { target, name, priority, streams: vec![one] }),
        }
    }
    mixes
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    let mixes = mixes_of(evidence);
    for mix in mixes.iter().filter(|mix| mix.priority == NO_PRIORITY) {
        describe(&mut found, mix);
        let first = mixes.iter().find(|other| {
            other.target == mix.target && other.name == mix.name && other.priority == SMALL_FIRST
        });
        if let Some(first) = first {
            prioritise(&mut found, mix, first);
        }
    }
    found.tables.extend(table(&mixes));
    found
}

/// Formats the tail latency of a stream, such as " (99th percentile 1.2 ms, alone 300 us)". The
/// text is empty if the latency was not measured.
fn waits(one: &StreamInMix<'_>) -> String {
    let alone = one.alone.latency_ns(0.99).map(|ns| format!(", alone {}", units::time(ns)));
    let alone = alone.unwrap_or_default();
    one.p99_ns
        .map_or_else(String::new, |ns| format!(" (99th percentile {}{alone})", units::time(ns)))
}

fn describe(found: &mut Conclusion, mix: &Mix<'_>) {
    let each: Vec<String> = mix
        .streams
        .iter()
        .map(|one| {
            format!("{} keeps {:.0}% of its rate{}", one.stream, 100.0 * one.keeps(), waits(one))
        })
        .collect();
    let untouched = mix.streams.iter().all(|one| one.keeps() >= UNTOUCHED);
    let noisy = mix.streams.iter().any(|one| one.keeps() > NOISE);
    let change = if noisy {
        "; a share above 110% is caused by noise or by a change in the speed of the device during \
         the study: measure for longer (--runtime, --trials)"
            .to_owned()
    } else if untouched {
        "; every stream keeps at least 90% of its rate".to_owned()
    } else {
        let share = |one: &&StreamInMix<'_>| one.keeps();
        let worst = mix.streams.iter().min_by(|a, b| share(a).total_cmp(&share(b)));
        let name = worst.map(|one| one.stream.as_str()).unwrap_or_default();
        format!("; {name} suffers most")
    };
    found.find(
        "together",
        format!(
            "{}: {}; total rate {}, fairness {:.2}{change}",
            mix.name,
            each.join(", "),
            units::rate(mix.rate()),
            mix.fairness()
        ),
    );
}

/// If priorities cost the other streams more than this share of their rate (percent), the report
/// says that these streams nearly stop.
const NEARLY_ALL: f64 = 90.0;

/// Reports how the rates change if the stream with the smallest requests gets priority.
fn prioritise(found: &mut Conclusion, plain: &Mix<'_>, first: &Mix<'_>) {
    let (Some(before), Some(after)) = (plain.small(), first.small()) else { return };
    let times = after.rate / before.rate.max(1.0);
    let rest = |mix: &Mix<'_>| mix.rate() - mix.small().map_or(0.0, |small| small.rate);
    let lost = 100.0 * (1.0 - rest(first) / rest(plain).max(1.0));
    let change = match times {
        gain if gain > 1.2 && lost > NEARLY_ALL => {
            "the idle class (ionice -c 3) nearly stops the other streams: use it only for work \
             that may wait"
        }
        gain if gain > 1.2 => "run the other streams in the idle class (ionice -c 3)",
        loss if loss < 1.0 / 1.2 => "do not use priorities here, because they do harm",
        _ => "priorities change little here; limit the depth or rate of the other streams instead",
    };
    let others = match lost {
        gain if gain < 0.0 => "the other streams are not slower".to_owned(),
        lost => format!("the other streams lose {lost:.0}% of their rate"),
    };
    found.find(
        "priority",
        format!(
            "{}: with the other streams in the idle I/O class, the rate of {} is {times:.2} times \
             the rate without priorities{}, and {others}; {change}",
            plain.name,
            before.stream,
            waits(after),
        ),
    );
}

/// Builds a table with a row for every stream of every mix.
fn table(mixes: &[Mix<'_>]) -> Option<Table> {
    let rows = |mix: &Mix<'_>| -> Vec<Vec<TableCell>> {
        let row = |one: &StreamInMix<'_>| {
            vec![
                TableCell::Text(mix.name.clone()),
                TableCell::Text(mix.priority.clone()),
                TableCell::Text(one.stream.clone()),
                TableCell::Number(one.alone.rate()),
                TableCell::Number(one.rate),
                TableCell::Number(one.keeps()),
                TableCell::Number(one.rate / mix.rate().max(1.0)),
                one.alone.latency_ns(0.99).into(),
                one.p99_ns.into(),
                TableCell::Number(mix.fairness()),
            ]
        };
        mix.streams.iter().map(row).collect()
    };
    let rows: Vec<Vec<TableCell>> = mixes.iter().flat_map(rows).collect();
    let column = |(label, unit): (&str, Option<Unit>)| Column { label: label.to_owned(), unit };
    (!rows.is_empty()).then(|| Table {
        id: "competing-streams".to_owned(),
        caption: "Each stream alone and in each mix of streams".to_owned(),
        columns: [
            ("Mix", None),
            ("Priority", None),
            ("Stream", None),
            ("Rate alone", Some(Unit::BytesPerSecond)),
            ("Rate in the mix", Some(Unit::BytesPerSecond)),
            ("Share of rate alone", Some(Unit::Share)),
            ("Share of total rate", Some(Unit::Share)),
            ("99th percentile alone", Some(Unit::Nanoseconds)),
            ("99th percentile in the mix", Some(Unit::Nanoseconds)),
            ("Fairness", Some(Unit::Count)),
        ]
        .map(column)
        .into(),
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::evidence::testing::{cell, evidence};
    use workload::sample::Interval;

    /// Builds evidence of two streams that reach 1000 B/s and 3000 B/s alone. `small` and `large`
    /// are their rates in the mix, and `first` holds their rates with priorities.
    fn streams(small: f64, large: f64, first: Option<(f64, f64)>) -> Evidence {
        let mut evidence = evidence(vec![
            cell(1000, &[("part", "random"), ("rw", "randread"), ("bs", "8k")]),
            cell(3000, &[("part", "scan"), ("rw", "read"), ("bs", "1m")]),
        ]);
        let mut note = |priority: &str, stream: &str, rate| {
            let labels = [
                ("target", "t".to_owned()),
                ("mix", "random + scan".to_owned()),
                ("stream", stream.to_owned()),
                ("priority", priority.to_owned()),
            ];
            evidence.note("rate", "bytes/s", &labels, rate);
            evidence.note("p99", "ns", &labels, 5e6);
        };
        note(NO_PRIORITY, "random", small);
        note(NO_PRIORITY, "scan", large);
        if let Some((small, large)) = first {
            note(SMALL_FIRST, "random", small);
            note(SMALL_FIRST, "scan", large);
        }
        evidence
    }

    fn words(found: &Conclusion, id: &str) -> String {
        let found = found.findings.iter().find(|finding| finding.id == id);
        found.map(|finding| finding.headline.clone()).unwrap_or_default()
    }

    #[test]
    fn fairness_is_one_where_all_keep_the_same_share_and_half_where_one_has_it_all() {
        let fairness = |small, large| {
            let evidence = streams(small, large, None);
            mixes_of(&evidence)[0].fairness()
        };
        assert!((fairness(500.0, 1500.0) - 1.0).abs() < 1e-9);
        assert!((fairness(0.0, 3000.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn each_stream_is_reported_and_the_worst_is_named() {
        let text = words(&analyse(&streams(250.0, 2400.0, None)), "together");
        assert!(text.contains("random keeps 25%") && text.contains("scan keeps 80%"), "{text}");
        assert!(text.contains("99th percentile 5 ms"), "{text}");
        assert!(text.ends_with("random suffers most"), "{text}");
        let text = words(&analyse(&streams(990.0, 2990.0, None)), "together");
        assert!(text.ends_with("every stream keeps at least 90% of its rate"), "{text}");
    }

    #[test]
    fn a_stream_faster_beside_others_than_alone_is_noise() {
        let text = words(&analyse(&streams(1500.0, 2400.0, None)), "together");
        assert!(text.contains("above 110% is caused by noise"), "{text}");
        assert!(!text.contains("suffers most"), "{text}");
    }

    #[test]
    fn priorities_are_advised_only_if_they_help() {
        let after = |small, large| {
            words(&analyse(&streams(250.0, 2400.0, Some((small, large)))), "priority")
        };
        assert!(
            after(750.0, 1800.0).contains("3.00 times") && after(750.0, 1800.0).contains("25%")
        );
        assert!(after(750.0, 1800.0).ends_with("(ionice -c 3)"));
        assert!(after(260.0, 2400.0).contains("change little"));
        assert!(after(100.0, 2400.0).contains("do harm"));
    }

    #[test]
    fn every_pair_and_all_together_run() {
        assert_eq!(subsets(2), [[0, 1]]);
        assert_eq!(subsets(3), [vec![0, 1], vec![0, 2], vec![1, 2], vec![0, 1, 2]]);
        assert!(subsets(1).is_empty());
    }

    #[test]
    fn runs_alone_and_together_take_turns_forwards_and_backwards() {
        use Turn::{Alone, Together};
        let wanted = [Alone(0), Together(0), Alone(1), Together(1), Together(2)];
        assert_eq!(turns(2, 3, 0), wanted);
        let mut backwards = turns(2, 3, 1);
        backwards.reverse();
        assert_eq!(backwards, wanted);
        assert_eq!(turns(1, 0, 0), [Alone(0)], "a single stream is measured too");
    }

    #[test]
    fn only_the_common_time_counts() {
        let mut sample = Sample::new(10);
        (sample.start_ns, sample.end_ns) = (100, 140);
        sample.series.intervals =
            [7, 20, 30, 9].map(|bytes| Interval { bytes, requests: 1 }).into();
        let done = done_between(&sample, 105, 135);
        assert_eq!(done.bytes_per_s, 50.0 * 1e9 / 20.0);
    }

    #[test]
    fn schedulers_without_priorities_are_named_with_the_remedy() {
        assert_eq!(no_priorities(Some("bfq")), None);
        assert!(no_priorities(Some("none")).unwrap().contains("choose bfq"));
        assert!(no_priorities(None).unwrap().contains("use a file"));
    }
}
