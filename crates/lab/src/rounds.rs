//! Runs the trials of a run in rounds. Each round runs one trial of every point.
//!
//! On this host, trials run one at a time. Simulated trials cannot disturb each other, so they run
//! in parallel on all cores. Their results are stored round by round, in the order of the points.

use analysis::units;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use workload::random::{Stream, mix};
use workload::{Progress, Workload};

use crate::failure::{Exit, Failure, Outcome};
use crate::point::{Point, Trial};
use crate::recorder::Recorder;
use crate::trials::{Lab, Place, Setting, simulated_trial};

/// How many trials of each setting run, and whether each trial is repeated with a soaker (see
/// [`Trial::soaked`]).
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// Number of trials of each setting.
    pub trials: u32,
    /// Whether each trial runs once without and once with a soaker.
    pub soaker: bool,
    /// Seed of the first round, from which the seeds of later rounds are derived.
    pub seed: u64,
}

/// Runs the trials of all settings in rounds, and returns a point for each setting. Either all
/// settings use this host, or all use simulated systems. On this host, each round has a different
/// order. If a trial fails, returns the completed trials together with the failure.
pub fn measure(
    lab: &Lab,
    rounds: &Rounds,
    settings: Vec<Setting<'_>>,
    recorder: &mut Recorder,
) -> (Vec<Point>, Outcome<()>) {
    let mut points: Vec<Point> =
        settings.iter().map(|s| Point { key: s.key(), trials: Vec::new() }).collect();
    let measured = fill(lab, rounds, settings, recorder, &mut points);
    (points, measured)
}

fn fill(
    lab: &Lab,
    rounds: &Rounds,
    settings: Vec<Setting<'_>>,
    recorder: &mut Recorder,
    points: &mut [Point],
) -> Outcome<()> {
    // A run may call this function several times. The points of all calls are numbered
    // consecutively.
    let numbers = points.iter().map(|point| recorder.add_point(&point.key));
    let first = numbers.collect::<Outcome<Vec<usize>>>()?.first().copied().unwrap_or(0);
    let mut book = Book { points, first, recorder };
    let measured = all_rounds(lab, rounds, settings, &mut book);
    book.recorder.judge(first, book.points);
    measured
}

fn all_rounds(
    lab: &Lab,
    rounds: &Rounds,
    mut settings: Vec<Setting<'_>>,
    book: &mut Book<'_>,
) -> Outcome<()> {
    if settings.iter().any(|setting| matches!(setting.place, Place::Simulated(_))) {
        return measure_simulated(lab, rounds, &settings, book);
    }
    let Rounds { soaker, seed, .. } = *rounds;
    let rounds = rounds.trials.saturating_mul(if soaker { 2 } else { 1 });
    let trials = u64::from(rounds).saturating_mul(settings.len() as u64);
    let mut progress = match time_of(&settings) {
        Some(ns) => lab.console.progress(ns.saturating_mul(u64::from(rounds))),
        None => lab.console.open_progress(),
    };
    let (mut done, mut best) = (0.0, Best::default());
    let mut stream = Stream::new(seed);
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..settings.len()).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, stream.next_u64() as usize % (last + 1));
        }
        for index in order {
            let setting = &mut settings[index];
            setting.soaked = soaker && round % 2 == 1;
            setting.workload.seed = order_of(seed, round, book.first + index);
            let label = book.points[index].key.describe();
            let bounds =
                (setting.workload.limit_ns, bytes_of(setting), setting.workload.warm_up_ns);
            let outstanding = book.points[index].key.outstanding();
            let mut trial = lab.trial(setting, &mut |at| {
                let share = (done + share_of(at, bounds)) / trials as f64;
                progress.observe(at, outstanding);
                progress.advance(Some(share), &label);
            })?;
            done += 1.0;
            trial.ordinal = round;
            best.offer(trial.bytes_per_s(), &label);
            book.keep(trial, index)?;
            progress.so_far(&best.text());
            if lab.must_stop()? {
                progress.finish();
                return lab.check_ranks();
            }
        }
    }
    progress.finish();
    Ok(())
}

/// The fastest trial so far.
#[derive(Default)]
struct Best {
    bytes_per_s: f64,
    label: String,
}

impl Best {
    fn offer(&mut self, bytes_per_s: f64, label: &str) {
        if bytes_per_s > self.bytes_per_s {
            self.bytes_per_s = bytes_per_s;
            label.clone_into(&mut self.label);
        }
    }

    /// Formats the fastest trial. Empty before the first trial.
    fn text(&self) -> String {
        match self.label.as_str() {
            "" => String::new(),
            label => format!("{} ({label})", units::rate_mib(self.bytes_per_s)),
        }
    }
}

/// Returns the duration of a round, in which one trial of each setting runs (ns). None if a trial
/// has no time limit.
fn time_of(settings: &[Setting<'_>]) -> Option<u64> {
    settings.iter().try_fold(0_u64, |sum, setting| {
        let workload = &setting.workload;
        Some(sum.saturating_add(workload.limit_ns?.saturating_add(workload.warm_up_ns)))
    })
}

/// Returns the number of bytes, summed over all targets, after which a trial ends. None without
/// such a limit.
pub fn bytes_of(setting: &Setting<'_>) -> Option<u64> {
    Some(setting.workload.limit_bytes?.saturating_mul(setting.place.count() as u64))
}

/// Returns the share of a trial that is done, from 0 to 1. If both time and bytes are limited, the
/// larger share counts.
pub fn share_of(at: Progress, (ns, bytes, warm_up_ns): (Option<u64>, Option<u64>, u64)) -> f64 {
    let time = ns.map_or(0.0, |ns| at.elapsed_ns as f64 / (ns.saturating_add(warm_up_ns)) as f64);
    let moved = bytes.map_or(0.0, |bytes| at.bytes as f64 / bytes.max(1) as f64);
    time.max(moved).min(1.0)
}

/// Returns the seed of a trial of a point. Each round visits the blocks of a point in a different
/// order, so that requests do not hit data that earlier trials left in a cache.
fn order_of(seed: u64, round: u32, point: usize) -> u64 {
    match point {
        0 => seed_of(seed, round),
        point => mix(seed_of(seed, round), point as u64),
    }
}

/// Derives the seed of a round from the seed of the run.
pub fn seed_of(seed: u64, round: u32) -> u64 {
    match round {
        0 => seed,
        round => mix(seed, u64::from(round)),
    }
}

/// Fails if a request of the trial failed or data was damaged. This ends the run, because the trial
/// did not measure the requested workload.
pub fn fail_on_errors(trial: &Trial, label: &str) -> Outcome<()> {
    let Some(live) = &trial.live else { return Ok(()) };
    match (&live.failure, &live.damage) {
        (Some(failure), _) => Err(Failure::failed(format!("{label}: {failure}"))),
        (None, Some(damage)) => Err(Failure::new(Exit::VerificationFailed, damage.clone())),
        (None, None) => Ok(()),
    }
}

/// Stores finished trials, and adds them to their points.
struct Book<'a> {
    points: &'a mut [Point],
    /// Number of `points[0]` within the run.
    first: usize,
    recorder: &'a mut Recorder,
}

impl Book<'_> {
    fn keep(&mut self, mut trial: Trial, index: usize) -> Outcome<()> {
        let point = &mut self.points[index];
        let kept = if trial.requests() > 0 || trial.errors > 0 {
            self.recorder.add_trial(self.first + index, &trial)
        } else {
            Ok(())
        };
        // A failed request takes precedence over an error of the database.
        fail_on_errors(&trial, &point.key.describe())?;
        kept?;
        if self.recorder.has_log() {
            // The log is already on disk. It is removed from memory, because the logs of all trials
            // would need too much memory.
            trial.live_mut().log = Vec::new();
        }
        point.trials.push(trial);
        Ok(())
    }
}

/// A message from a thread that runs simulated trials.
enum ProgressEvent {
    /// The number of a trial, and the share of its work that is done.
    Share(usize, f64),
    /// The number of a finished trial, and its result.
    Over(usize, Box<Outcome<Trial>>),
}

/// Runs all trials on simulated systems, in parallel on all cores.
fn measure_simulated(
    lab: &Lab,
    rounds: &Rounds,
    settings: &[Setting<'_>],
    book: &mut Book<'_>,
) -> Outcome<()> {
    let round = |round| (0..settings.len()).map(move |index| (round, index));
    let turns: Vec<(u32, usize)> = (0..rounds.trials).flat_map(round).collect();
    let stop = lab.interrupt.flag();
    let (next, (sender, told)) = (AtomicUsize::new(0), channel());
    let work = |sender: Sender<ProgressEvent>| {
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((round, index)) = turns.get(number) else { return };
            let workload = Workload {
                seed: seed_of(rounds.seed, *round),
                ..settings[*index].workload.clone()
            };
            let setting = Setting { workload, ..settings[*index].clone() };
            let Place::Simulated(place) = setting.place else { return };
            let limit = &setting.workload;
            let bounds = (limit.limit_ns, bytes_of(&setting), limit.warm_up_ns);
            let trial = simulated_trial(&setting, place, stop, &mut |at| {
                let _ = sender.send(ProgressEvent::Share(number, share_of(at, bounds)));
            });
            let ordinal = |trial| Trial { ordinal: *round, ..trial };
            let _ = sender.send(ProgressEvent::Over(number, Box::new(trial.map(ordinal))));
        }
    };
    let threads = thread::available_parallelism().map_or(1, |count| count.get());
    let mut progress = lab.console.open_progress();
    let outcome = thread::scope(|scope| {
        for _ in 0..threads.min(turns.len()) {
            let (work, sender) = (&work, sender.clone());
            scope.spawn(move || work(sender));
        }
        drop(sender);
        let (mut shares, mut done) = (vec![0.0; turns.len()], 0.0);
        let (mut waiting, mut first) = (BTreeMap::new(), 0);
        for news in told {
            let (number, share) = match news {
                ProgressEvent::Share(number, share) => (number, share),
                ProgressEvent::Over(number, trial) => {
                    waiting.insert(number, trial);
                    (number, 1.0)
                }
            };
            done += share - shares[number];
            shares[number] = share;
            while let Some(trial) = waiting.remove(&first) {
                let kept = (*trial).and_then(|trial| book.keep(trial, turns[first].1));
                if kept.is_err() {
                    next.store(turns.len(), Ordering::Relaxed);
                    return kept;
                }
                first += 1;
            }
            let share = done / turns.len() as f64;
            progress.advance(Some(share), &book.points[turns[number].1].key.describe());
        }
        Ok(())
    });
    progress.finish();
    outcome
}
