//! Selects a structure (a model of the device) by an information criterion, fits it, and scores it
//! on all points.
//!
//! A residual is the logarithm of a ratio: the simulated rate or latency divided by the measured
//! rate or latency. The unit of a residual is the standard error. Only fitted points have
//! residuals.

use std::sync::{Mutex, PoisonError};

use analysis::nonlinear::{self, Candidate, Differences, Parallel, Problem, Profile};
use analysis::quantile::median;
use lab::failure::{Failure, Outcome};
use lab::simulated::on_all_cores;
use simulator::{Description, System};
use workload::random::Stream;

use crate::history::{History, MeasuredPoint, TrialSummary};
use crate::initial::{Direction, InitialGuess, Source};
use crate::replay::{replay, replay_while};
use crate::structure::{StatefulPart, Structure};

/// Minimum standard error of a trial (share of the rate). A model with few parameters is not more
/// accurate than this.
const MIN_ERROR: f64 = 0.02;
/// Maximum standard error of a trial (share of the rate). A larger scatter has a cause that the
/// model must explain.
const MAX_ERROR: f64 = 0.05;
/// Weight of the residual of a latency. It is low because the rate at depth 1 contains nearly the
/// same information.
const LATENCY_WEIGHT: f64 = 0.3;
/// Weight of the residual of the rate in a trial's last quarter.
const LATE_WEIGHT: f64 = 0.5;
/// A parameter is reported as unidentified if the ends of its interval differ by more than this
/// factor.
pub const UNIDENTIFIED: f64 = 3.0;
/// Number of descent steps for each promising structure.
const FIRST_STEPS: usize = 2;
/// Number of descent steps for the best structure, including the first steps.
const BEST_STEPS: usize = 6;
/// The simulation of a structure stops as soon as the sum of squared residuals exceeds a limit. The
/// limit is this factor times the sum of the worst structure that is still kept. A smaller number
/// of parameters cannot make up for such a difference.
const GIVE_UP_FACTOR: f64 = 3.0;
/// A fit is good enough if the mean of its squared residuals is below this value. No other starting
/// values are then tried.
const GOOD_MEAN_SQUARE: f64 = 1.5;
/// A cache, buffer or credit is searched for only if a run has fewer requests than this. Replaying
/// this number of requests takes about a second, and the search replays the run many times.
const MAX_REPLAYED: f64 = 2e6;
/// A cache, buffer or credit is kept only if it lowers the information criterion by more than this.
const MIN_IMPROVEMENT: f64 = 6.0;

/// A structure with fitted parameters.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The fitted structure.
    pub structure: Structure,
    /// The fitted parameters and the residuals.
    pub solution: Candidate,
    /// Bayesian information criterion (BIC). A lower value is better.
    pub criterion: f64,
}

impl Fit {
    /// Returns the number of residuals of measured points. The residuals of the priors, one for
    /// each parameter, are not counted.
    fn points(&self) -> f64 {
        (self.solution.residuals.len() - self.structure.parameters.len()).max(1) as f64
    }

    /// Returns the mean of the squared residuals.
    fn mean_square(&self) -> f64 {
        self.solution.objective() / self.points()
    }
}

/// The measured and simulated rates of one point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scored {
    /// Measured rate: the median of the trials [bytes per second].
    pub measured: f64,
    /// Simulated rate: the median of the trials [bytes per second].
    pub simulated: f64,
    /// Rate according to the naive bound, a prediction without a device model [bytes per second].
    pub naive: f64,
    /// Whether the point was held out, that is, not fitted.
    pub held_out: bool,
}

/// Errors of predicted rates relative to the measured rates (0.1 is 10%).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Errors {
    /// Number of points.
    pub points: usize,
    /// Mean absolute error.
    pub mean: f64,
    /// Median absolute error.
    pub median: f64,
    /// Largest absolute error.
    pub worst: f64,
}

impl Errors {
    /// Summarises the errors of pairs of a predicted and a true value.
    pub fn of(pairs: impl Iterator<Item = (f64, f64)>) -> Errors {
        let errors: Vec<f64> =
            pairs.map(|(predicted, truth)| (predicted / truth - 1.0).abs()).collect();
        Errors {
            points: errors.len(),
            mean: errors.iter().sum::<f64>() / errors.len().max(1) as f64,
            median: median(&errors).unwrap_or(0.0),
            worst: errors.iter().copied().fold(0.0, f64::max),
        }
    }
}

/// Returns the residuals of all fitted points.
fn residuals(history: &History, simulated: &[TrialSummary]) -> Vec<f64> {
    let mut all = Vec::new();
    for (number, point) in history.points.iter().enumerate().filter(|(_, p)| !p.held_out) {
        let error = standard_error(history, number, point);
        for (index, _) in history.trials_of(number) {
            all.extend(residuals_of(history, index, &simulated[index], error));
        }
    }
    all
}

/// Returns the standard error of one trial of a point (share of the rate). It grows with the number
/// of trials of the point, so that every point has the same weight.
fn standard_error(history: &History, number: usize, point: &MeasuredPoint) -> f64 {
    let trials = history.trials_of(number).count().max(1) as f64;
    point.spread.clamp(MIN_ERROR, MAX_ERROR) * trials.sqrt()
}

/// Returns the residuals of one trial: of its rate and, if they were measured, of its latency and
/// of the rate of its last quarter.
fn residuals_of(
    history: &History,
    index: usize,
    simulated: &TrialSummary,
    error: f64,
) -> impl Iterator<Item = f64> {
    let (measured, simulated) = (history.trials[index].summary, *simulated);
    let residual = move |simulated: f64, measured: f64, weight: f64| {
        weight * (simulated.max(1e-9) / measured).ln() / error
    };
    let rate = residual(simulated.bytes_per_s, measured.bytes_per_s, 1.0);
    let latency = measured
        .latency_ns
        .map(|ns| residual(simulated.latency_ns.unwrap_or(ns), ns, LATENCY_WEIGHT));
    let late = measured.late_bytes_per_s.map(|rate| {
        let simulated = simulated.late_bytes_per_s.unwrap_or(simulated.bytes_per_s);
        residual(simulated, rate, LATE_WEIGHT)
    });
    [Some(rate), latency, late].into_iter().flatten()
}

/// Evaluates the candidates of a search on all CPUs.
struct AllCores;

impl Parallel for AllCores {
    fn map<I: Sync, O: Send>(&self, inputs: &[I], work: impl Fn(&I) -> O + Sync) -> Vec<O> {
        on_all_cores(inputs, work)
    }
}

/// Returns eight sets of random starting values around `start`. All values are logarithms.
fn perturbed(start: &[f64], seed: u64) -> Vec<Vec<f64>> {
    let mut stream = Stream::new(seed);
    let mut share = || stream.next_u64() as f64 / u64::MAX as f64 - 0.5;
    (0..8).map(|_| start.iter().map(|at| at + 1.4 * share()).collect()).collect()
}

/// Fits structures to a history.
struct Fitting<'a> {
    history: &'a History,
    base: &'a Description,
    seed: u64,
}

impl Fitting<'_> {
    /// Returns the residuals of a structure whose parameters have the logarithms `at`. Returns
    /// `None` if the system with these parameters is not valid, or as soon as the sum of the
    /// squared residuals exceeds `limit`.
    fn residuals(&self, structure: &Structure, at: &[f64], limit: f64) -> Option<Vec<f64>> {
        let system = structure.system(self.base, at).ok()?;
        let mut sum = 0.0;
        let simulated = replay_while(&system, self.history, |index, summary| {
            let number = self.history.trials[index].point;
            let point = &self.history.points[number];
            if !point.held_out {
                let error = standard_error(self.history, number, point);
                let all = residuals_of(self.history, index, summary, error);
                sum += all.map(nonlinear::huber).map(|r| r * r).sum::<f64>();
            }
            sum <= limit
        });
        Some(residuals(self.history, &simulated.ok()??))
    }

    /// Builds the least-squares problem of a structure and calls `search` with it.
    fn with<T>(
        &self,
        structure: &Structure,
        search: impl FnOnce(&Problem<'_, AllCores>) -> T,
    ) -> T {
        let evaluate = |at: &[f64], limit: f64| self.residuals(structure, at, limit);
        let centre = structure.start();
        let pairs = structure.parameters.iter().zip(&centre);
        let grain = pairs.map(|(parameter, at)| parameter.grain(*at)).collect();
        search(&Problem { residuals: &evaluate, centre, grain, parallel: &AllCores })
    }

    /// Fits a structure until the search converges.
    fn fit(&self, structure: &Structure) -> Option<Fit> {
        let solution = self.with(structure, |problem| {
            problem.search(problem.centre.clone(), &perturbed(&problem.centre, self.seed))
        });
        Some(self.scored(structure, solution?))
    }

    /// Evaluates a structure at its starting values. `objectives` holds the sums of squared
    /// residuals of the structures evaluated so far, in ascending order. Returns `None` if the
    /// structure is clearly worse than the best `count` structures.
    fn at_start(
        &self,
        structure: &Structure,
        objectives: &Mutex<Vec<f64>>,
        count: usize,
    ) -> Option<Fit> {
        let lock = || objectives.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = lock().get(count - 1).map_or(f64::INFINITY, |worst| worst * GIVE_UP_FACTOR);
        let start = self.with(structure, |problem| {
            problem.rank_below(std::slice::from_ref(&problem.centre), limit).into_iter().next()
        })?;
        let mut objectives = lock();
        objectives.push(start.objective());
        objectives.sort_by(f64::total_cmp);
        Some(self.scored(structure, start))
    }

    /// Improves a fit by `steps` more descent steps.
    fn descend(&self, fit: &Fit, steps: usize) -> Fit {
        let solution = self.with(&fit.structure, |problem| {
            problem.descend(fit.solution.clone(), steps, Differences::Forward)
        });
        self.scored(&fit.structure, solution)
    }

    /// Returns the fit of the best of several structures. All structures are evaluated at their
    /// starting values. The best `count` structures are then fitted with [`FIRST_STEPS`] descent
    /// steps, and only the best of these fits is continued.
    fn best(&self, structures: &[Structure], count: usize) -> Option<Fit> {
        let better = |a: &Fit, b: &Fit| a.criterion.total_cmp(&b.criterion);
        let objectives = Mutex::new(Vec::new());
        let starts = on_all_cores(structures, |one| self.at_start(one, &objectives, count));
        let mut starts: Vec<Fit> = starts.into_iter().flatten().collect();
        starts.sort_by(better);
        starts.truncate(count);
        let first = starts.iter().map(|fit| self.descend(fit, FIRST_STEPS)).min_by(better)?;
        Some(self.descend(&first, BEST_STEPS - FIRST_STEPS))
    }

    /// Computes the information criterion of a solution.
    fn scored(&self, structure: &Structure, solution: Candidate) -> Fit {
        let mut fit = Fit { structure: structure.clone(), solution, criterion: 0.0 };
        let (points, parameters) = (fit.points(), structure.parameters.len() as f64);
        // The constant 0.01 keeps the logarithm of a nearly perfect fit finite.
        fit.criterion = points * (fit.mean_square() + 0.01).ln() + parameters * points.ln();
        fit
    }
}

/// Selects the structure that explains the fitted points best, and fits its parameters. `tell` is
/// called with the name of each step.
///
/// # Errors
/// If no structure can be simulated.
pub fn choose(
    history: &History,
    base: &Description,
    seed: u64,
    tell: &mut dyn FnMut(&str),
) -> Outcome<Fit> {
    let fitting = Fitting { history, base, seed };
    let is_short = history.requests() < MAX_REPLAYED;
    let mut best: Option<Fit> = None;
    for source in [Source::Mean, Source::Fresh] {
        let guess = InitialGuess::of(history, source);
        let is_stateful = guess.is_stateful && is_short;
        let is_good = best.as_ref().is_some_and(|fit| fit.mean_square() < GOOD_MEAN_SQUARE);
        if source == Source::Fresh && (!is_stateful || is_good) {
            break;
        }
        tell("structures");
        let Some(plain) = fitting.best(&Structure::candidates(history, &guess), 5) else {
            continue;
        };
        let found = if is_stateful { add_parts(&fitting, &guess, plain, tell) } else { plain };
        if best.as_ref().is_none_or(|best| found.criterion < best.criterion) {
            best = Some(found);
        }
    }
    tell("parameters");
    let fitted = best.and_then(|best| fitting.fit(&restarted(&best)));
    fitted.ok_or_else(|| Failure::failed("no device model fits this run; repeat the run"))
}

/// Returns a message for users if the rates vary as if the device had a cache, a write buffer or
/// burst credit, but the run is too long for a search. Returns `None` otherwise.
pub fn not_sought(history: &History) -> Option<String> {
    let requests = history.requests();
    let is_stateful = InitialGuess::of(history, Source::Mean).is_stateful;
    (is_stateful && requests >= MAX_REPLAYED).then(|| {
        format!(
            "rates vary, but the search for a cache, a write buffer and burst credit was skipped: \
             the run has {:.1} million requests, and the search is limited to {:.0} million; \
             measure again with a shorter --runtime or fewer --trials",
            requests / 1e6,
            MAX_REPLAYED / 1e6
        )
    })
}

/// Adds a cache, a buffer and a credit one after another, and returns the best fit of all. Each
/// round adds the part that gives the best fit. The part stays for the next round even if it does
/// not improve the fit alone, because two parts may explain the data only together.
fn add_parts(
    fitting: &Fitting<'_>,
    guess: &InitialGuess,
    plain: Fit,
    tell: &mut dyn FnMut(&str),
) -> Fit {
    let mut best = plain.clone();
    let mut here = plain;
    let mut left: Vec<StatefulPart> = StatefulPart::ALL.into();
    // If the device has a part that the structure lacks, the fitted parameters can be far off. The
    // parts are therefore also added to structures with unfitted starting values.
    let mut bases = Structure::candidates(fitting.history, guess);
    while !left.is_empty() {
        bases.push(restarted(&here));
        let mut candidates: Vec<(StatefulPart, Fit)> = Vec::new();
        for part in &left {
            tell(&format!("{part:?}").to_lowercase());
            let structures: Vec<Structure> =
                bases.iter().flat_map(|base| base.with(*part, guess)).collect();
            candidates.extend(fitting.best(&structures, 3).map(|fit| (*part, fit)));
        }
        let next = candidates.into_iter().min_by(|a, b| a.1.criterion.total_cmp(&b.1.criterion));
        let Some((part, fit)) = next else { break };
        if fit.criterion < best.criterion - MIN_IMPROVEMENT {
            best = fit.clone();
        }
        here = fit;
        bases.clear();
        left.retain(|other| *other != part);
    }
    best
}

/// Returns the structure of a fit, with the fitted values as starting values.
fn restarted(fit: &Fit) -> Structure {
    let mut structure = fit.structure.clone();
    for (parameter, at) in structure.parameters.iter_mut().zip(&fit.solution.at) {
        parameter.start = parameter.value(*at);
    }
    structure
}

/// Returns the 95% interval of every parameter of a fit, in the order of the parameters.
pub fn profiles(history: &History, base: &Description, fit: &Fit) -> Vec<Profile> {
    let fitting = Fitting { history, base, seed: 1 };
    let restarted = restarted(fit);
    fitting.with(&restarted, |problem| {
        // The priors are now centred on the solution, which changes the residuals, so the solution
        // is evaluated again.
        let solution = problem.rank(&[restarted.start()]).into_iter().next();
        problem.profiles(&solution.unwrap_or_else(|| fit.solution.clone()))
    })
}

/// Simulates every point. The results are in the order of [`History::points`].
///
/// # Errors
/// If the system cannot run a workload.
pub fn score(history: &History, system: &System) -> Outcome<Vec<Scored>> {
    let simulated = replay(system, history)?;
    let naive = NaiveBound::of(history);
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

/// A prediction without a model: all outstanding requests complete in the time of a single request,
/// but the rate is at most the highest measured rate. The prediction is computed only from the
/// fitted points.
struct NaiveBound {
    /// Estimates for reads, for writes, and for mixes of reads and writes.
    directions: [Option<Direction>; 3],
}

impl NaiveBound {
    fn of(history: &History) -> NaiveBound {
        let guess = InitialGuess::of(history, Source::Mean);
        let any = guess.read.or(guess.write);
        NaiveBound { directions: [guess.read.or(any), guess.write.or(any), any] }
    }

    fn bytes_per_s(&self, point: &MeasuredPoint) -> f64 {
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
    use crate::history::tests::example;

    #[test]
    fn a_run_too_long_for_the_search_of_stateful_parts_says_so() {
        let mut history = example();
        assert_eq!(not_sought(&history), None);
        for trial in &mut history.trials {
            trial.summary.late_bytes_per_s = Some(trial.summary.bytes_per_s / 2.0);
        }
        assert_eq!(not_sought(&history), None);
        history.trials[0].bytes = 3e6 * f64::from(history.trials[0].workload.request_bytes);
        let text = not_sought(&history).unwrap();
        assert!(text.contains("3.0 million requests") && text.contains("--runtime"), "{text}");
    }
}
