//! Chooses a structure, fits it, and holds it against the points that it has not seen.

use std::sync::{Mutex, PoisonError};

use analysis::quantile::median;
use lab::failure::{Failure, Outcome};
use lab::simulated::on_all_cores;
use simulator::{Description, System};

use crate::fit::{self, Differences, Place, Problem, Profile};
use crate::history::{History, Observed, TrialSummary};
use crate::ladder::{Direction, Ladder, Take};
use crate::replay::{replay, replay_while};
use crate::structure::{Memory, Structure};

/// What a model of a few parameters cannot be better than (share): the least standard error.
const LEAST_ERROR: f64 = 0.02;
/// Trials that differ more than this do so for a reason that a model must explain.
const LARGEST_ERROR: f64 = 0.05;
/// Weight of a latency, which says nearly the same as the rate of a single request.
const LATENCY: f64 = 0.3;
/// Weight of the rate of a trial's last quarter.
const LATE: f64 = 0.5;
/// A parameter whose interval spans more than this factor is not known.
pub const UNIDENTIFIED: f64 = 3.0;
/// Steps downhill after which promising structures are compared ...
const FIRST_STEPS: usize = 2;
/// ... and those after which the best of them is compared with others of its kind.
const TRY_OUT: usize = 6;
/// A structure whose sum of squares exceeds that of the last promising one by this factor is not
/// looked at to its end: its number of parameters cannot make up for it.
const AS_PROMISING: f64 = 3.0;
/// Residuals of this mean square, in standard errors, are explained: no other guess is needed.
const EXPLAINED: f64 = 1.5;
/// Requests of a run that are replayed in a second or so: a memory is only sought in these.
const REPLAYED: f64 = 2e6;
/// A further part must lower the information criterion by so much.
const WORTH: f64 = 6.0;

/// A fitted structure.
#[derive(Clone, Debug)]
pub struct Fit {
    /// What was fitted.
    pub structure: Structure,
    /// Where.
    pub place: Place,
    /// Its information criterion (BIC); less is better.
    pub criterion: f64,
}

impl Fit {
    /// Residuals without those of the priors.
    fn points(&self) -> f64 {
        (self.place.residuals.len() - self.structure.parameters.len()).max(1) as f64
    }

    /// Mean of the squared residuals (squared standard errors).
    fn mean_square(&self) -> f64 {
        self.place.objective() / self.points()
    }
}

/// What a point came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scored {
    /// Measured: the median over trials (bytes per second).
    pub measured: f64,
    /// Simulated: the median over trials (bytes per second).
    pub simulated: f64,
    /// What the naive bound says (bytes per second).
    pub naive: f64,
    /// Whether it was not fitted.
    pub held_out: bool,
}

/// Errors of some points.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Errors {
    /// Number of points.
    pub points: usize,
    /// Mean of the absolute relative errors.
    pub mean: f64,
    /// Their median.
    pub median: f64,
    /// The worst.
    pub worst: f64,
}

impl Errors {
    /// Of pairs of what is said and what is so.
    pub fn of(pairs: impl Iterator<Item = (f64, f64)>) -> Errors {
        let errors: Vec<f64> = pairs.map(|(said, is)| (said / is - 1.0).abs()).collect();
        Errors {
            points: errors.len(),
            mean: errors.iter().sum::<f64>() / errors.len().max(1) as f64,
            median: median(&errors).unwrap_or(0.0),
            worst: errors.iter().copied().fold(0.0, f64::max),
        }
    }
}

/// Differences between what a system does and what was measured on the fitted points, in
/// standard errors.
fn residuals(history: &History, simulated: &[TrialSummary]) -> Vec<f64> {
    let mut all = Vec::new();
    for (number, point) in history.points.iter().enumerate().filter(|(_, p)| !p.held_out) {
        let error = error_of(history, number, point);
        for (index, _) in history.trials_of(number) {
            all.extend(residuals_of(history, index, &simulated[index], error));
        }
    }
    all
}

/// The standard error of a trial of a point.
fn error_of(history: &History, number: usize, point: &Observed) -> f64 {
    let trials = history.trials_of(number).count().max(1) as f64;
    point.spread.clamp(LEAST_ERROR, LARGEST_ERROR) * trials.sqrt()
}

/// Those of one trial.
fn residuals_of(
    history: &History,
    index: usize,
    said: &TrialSummary,
    error: f64,
) -> impl Iterator<Item = f64> {
    let seen = history.trials[index].seen;
    let said = *said;
    let of = move |said: f64, seen: f64, weight: f64| weight * (said.max(1e-9) / seen).ln() / error;
    let rate = of(said.bytes_per_s, seen.bytes_per_s, 1.0);
    let latency = seen.latency_ns.map(|ns| of(said.latency_ns.unwrap_or(ns), ns, LATENCY));
    let late = |rate| of(said.late_bytes_per_s.unwrap_or(said.bytes_per_s), rate, LATE);
    [Some(rate), latency, seen.late_bytes_per_s.map(late)].into_iter().flatten()
}

/// The fitting of one structure.
struct Fitting<'a> {
    history: &'a History,
    base: &'a Description,
    seed: u64,
}

impl Fitting<'_> {
    /// The residuals at the logarithms of parameters; `None` where that cannot be simulated, or as
    /// soon as the sum of their squares exceeds `most`.
    fn residuals(&self, structure: &Structure, at: &[f64], most: f64) -> Option<Vec<f64>> {
        let system = structure.system(self.base, at).ok()?;
        let mut sum = 0.0;
        let simulated = replay_while(&system, self.history, |index, seen| {
            let number = self.history.trials[index].point;
            let point = &self.history.points[number];
            if !point.held_out {
                let error = error_of(self.history, number, point);
                let all = residuals_of(self.history, index, seen, error);
                sum += all.map(fit::huber).map(|r| r * r).sum::<f64>();
            }
            sum <= most
        });
        Some(residuals(self.history, &simulated.ok()??))
    }

    /// Does something with the problem of a structure.
    fn with<T>(&self, structure: &Structure, what: impl FnOnce(&Problem<'_>) -> T) -> T {
        let evaluate = |at: &[f64], most: f64| self.residuals(structure, at, most);
        let centre = structure.start();
        let pairs = structure.parameters.iter().zip(&centre);
        let grain = pairs.map(|(parameter, at)| parameter.grain(*at)).collect();
        what(&Problem { residuals: &evaluate, centre, grain })
    }

    /// The structure fitted to the end.
    fn fit(&self, structure: &Structure) -> Option<Fit> {
        let place =
            self.with(structure, |problem| problem.search(problem.centre.clone(), self.seed));
        Some(self.judged(structure, place?))
    }

    /// The structure at its start, if it is among the `most` best so far that were looked at.
    fn glance(&self, structure: &Structure, seen: &Mutex<Vec<f64>>, most: usize) -> Option<Fit> {
        let lock = || seen.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = lock().get(most - 1).map_or(f64::INFINITY, |worst| worst * AS_PROMISING);
        let place = self.with(structure, |problem| {
            problem.rank_below(std::slice::from_ref(&problem.centre), limit).into_iter().next()
        })?;
        let mut seen = lock();
        seen.push(place.objective());
        seen.sort_by(f64::total_cmp);
        Some(self.judged(structure, place))
    }

    /// A fit some steps further downhill.
    fn further(&self, fit: &Fit, steps: usize) -> Fit {
        let place = self.with(&fit.structure, |problem| {
            problem.descend(fit.place.clone(), steps, Differences::Forward)
        });
        self.judged(&fit.structure, place)
    }

    /// The best of several structures: the most promising ones go some steps downhill, and
    /// the best of them goes on.
    fn best(&self, structures: &[Structure], most: usize) -> Option<Fit> {
        let better = |a: &Fit, b: &Fit| a.criterion.total_cmp(&b.criterion);
        let seen = Mutex::new(Vec::new());
        let glances = on_all_cores(structures, |structure| self.glance(structure, &seen, most));
        let mut glances: Vec<Fit> = glances.into_iter().flatten().collect();
        glances.sort_by(better);
        glances.truncate(most);
        let first = glances.iter().map(|fit| self.further(fit, FIRST_STEPS)).min_by(better)?;
        Some(self.further(&first, TRY_OUT - FIRST_STEPS))
    }

    fn judged(&self, structure: &Structure, place: Place) -> Fit {
        let mut fit = Fit { structure: structure.clone(), place, criterion: 0.0 };
        let (points, parameters) = (fit.points(), structure.parameters.len() as f64);
        // Below a hundredth of the standard error nothing is learned.
        fit.criterion = points * (fit.mean_square() + 0.01).ln() + parameters * points.ln();
        fit
    }
}

/// The structure that explains the fitted points best, with its parameters.
///
/// # Errors
/// When none can be simulated.
pub fn choose(
    history: &History,
    base: &Description,
    seed: u64,
    tell: &mut dyn FnMut(&str),
) -> Outcome<Fit> {
    let fitting = Fitting { history, base, seed };
    let replays = history.requests() < REPLAYED;
    let mut best: Option<Fit> = None;
    for take in [Take::Mean, Take::Fresh] {
        let ladder = Ladder::of(history, take);
        let remembers = ladder.remembers && replays;
        let explained = best.as_ref().is_some_and(|fit| fit.mean_square() < EXPLAINED);
        if take == Take::Fresh && (!remembers || explained) {
            break;
        }
        tell("structures");
        let Some(plain) = fitting.best(&Structure::all(&ladder), 5) else { continue };
        let found = if remembers { remember(&fitting, &ladder, plain, tell) } else { plain };
        if best.as_ref().is_none_or(|best| found.criterion < best.criterion) {
            best = Some(found);
        }
    }
    tell("parameters");
    let fitted = best.and_then(|best| fitting.fit(&moved_to(&best)));
    fitted
        .ok_or_else(|| Failure::failed("no structure of a device fits this run; measure it again"))
}

/// What is not sought in a run that is too long to be replayed as often as that takes, where
/// anything speaks of it.
pub fn not_sought(history: &History) -> Option<String> {
    let requests = history.requests();
    let remembers = Ladder::of(history, Take::Mean).remembers;
    (remembers && requests >= REPLAYED).then(|| {
        format!(
            "no cache, write buffer or credit was sought, though rates fall or differ: the run has \
             {:.1} million requests, more than {:.0} million; measure less, with --runtime or \
             --trials",
            requests / 1e6,
            REPLAYED / 1e6
        )
    })
}

/// Adds what remembers, one after the other: the best of what was found on the way, so that two
/// which explain something only together are found too.
fn remember(fitting: &Fitting<'_>, ladder: &Ladder, plain: Fit, tell: &mut dyn FnMut(&str)) -> Fit {
    let mut best = plain.clone();
    let mut here = plain;
    let mut left: Vec<Memory> = Memory::ALL.into();
    // The plain device was fitted to what a memory did, so it starts again from the guesses too.
    let mut bases = Structure::all(ladder);
    while !left.is_empty() {
        bases.push(moved_to(&here));
        let mut candidates: Vec<(Memory, Fit)> = Vec::new();
        for memory in &left {
            tell(&format!("{memory:?}").to_lowercase());
            let structures: Vec<Structure> =
                bases.iter().flat_map(|base| base.with(*memory, ladder)).collect();
            candidates.extend(fitting.best(&structures, 3).map(|fit| (*memory, fit)));
        }
        let next = candidates.into_iter().min_by(|a, b| a.1.criterion.total_cmp(&b.1.criterion));
        let Some((memory, fit)) = next else { break };
        if fit.criterion < best.criterion - WORTH {
            best = fit.clone();
        }
        here = fit;
        bases.clear();
        left.retain(|other| *other != memory);
    }
    best
}

/// The structure that starts where a fit ended.
fn moved_to(fit: &Fit) -> Structure {
    let mut structure = fit.structure.clone();
    for (parameter, at) in structure.parameters.iter_mut().zip(&fit.place.at) {
        parameter.start = parameter.value(*at);
    }
    structure
}

/// The interval of every parameter of a fit.
pub fn profiles(history: &History, base: &Description, fit: &Fit) -> Vec<Profile> {
    let fitting = Fitting { history, base, seed: 1 };
    let moved = moved_to(fit);
    fitting.with(&moved, |problem| {
        let place = problem.rank(&[moved.start()]).into_iter().next();
        problem.profiles(&place.unwrap_or_else(|| fit.place.clone()))
    })
}

/// What every point comes to on a system.
///
/// # Errors
/// When it cannot be simulated.
pub fn score(history: &History, system: &System) -> Outcome<Vec<Scored>> {
    let simulated = replay(system, history)?;
    let naive = Naive::of(history);
    Ok(history
        .points
        .iter()
        .enumerate()
        .map(|(number, point)| {
            let rates: Vec<f64> =
                history.trials_of(number).map(|(index, _)| simulated[index].bytes_per_s).collect();
            Scored {
                measured: point.bytes_per_s,
                simulated: median(&rates).unwrap_or(0.0),
                naive: naive.bytes_per_s(point),
                held_out: point.held_out,
            }
        })
        .collect())
}

/// What anybody would say without a model: outstanding requests over the time of a single one, at
/// most the best rate that was seen. Read off the fitted points only.
struct Naive {
    /// Reads, writes, mixes.
    directions: [Option<Direction>; 3],
}

impl Naive {
    fn of(history: &History) -> Naive {
        let ladder = Ladder::of(history, Take::Mean);
        let any = ladder.read.or(ladder.write);
        Naive { directions: [ladder.read.or(any), ladder.write.or(any), any] }
    }

    fn bytes_per_s(&self, point: &Observed) -> f64 {
        let index = match point.reads() {
            Some(true) => 0,
            Some(false) => 1,
            None => 2,
        };
        let Some(direction) = self.directions[index] else { return 0.0 };
        let bytes = point.key.request_bytes() as f64;
        let single_s = direction.fixed_ns / 1e9 + bytes / direction.single_bytes_per_s;
        (f64::from(point.outstanding()) * bytes / single_s).min(direction.most_bytes_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::measured;

    #[test]
    fn a_run_too_long_to_seek_a_memory_in_says_so() {
        let mut history = measured();
        assert_eq!(not_sought(&history), None);
        for trial in &mut history.trials {
            trial.seen.late_bytes_per_s = Some(trial.seen.bytes_per_s / 2.0);
        }
        assert_eq!(not_sought(&history), None);
        history.trials[0].bytes = 3e6 * f64::from(history.trials[0].workload.request_bytes);
        let said = not_sought(&history).unwrap();
        assert!(said.contains("3.0 million requests") && said.contains("--runtime"), "{said}");
    }
}
