//! Nonlinear least squares, for models that have no formula, such as a simulation.
//!
//! The best parameters are found by a Levenberg-Marquardt search (damped Gauss-Newton steps with
//! numerical derivatives) over the logarithms of the parameters. The intervals are
//! profile-likelihood intervals. A weak log-normal prior keeps parameters near the start if the
//! data do not determine them. The intervals of such parameters are wide. Residuals are weighted by
//! Huber's function, so that a few outliers do not dominate. The search uses no random numbers: the
//! caller passes the starting points.

/// Standard deviation of the prior of each parameter (ln): a factor of ten.
const PRIOR_LN: f64 = 2.3;
/// Limit above which a residual counts linearly instead of squared (Huber), in standard errors.
const HUBER: f64 = 3.0;
/// Maximum number of steps of one descent in [`Problem::search`].
const STEPS: usize = 12;
/// Minimum relative improvement of the objective in a step. A smaller improvement ends the descent.
const MIN_GAIN: f64 = 0.002;
/// Damping factors that are tried in each step.
const DAMPINGS: [f64; 4] = [1e-3, 0.1, 1.0, 10.0];
/// Maximum change of a parameter's logarithm in one step.
const STEP_MAX_LN: f64 = 1.5;
/// Maximum factor by which a parameter is increased or decreased to find its interval.
const PROFILE_FACTOR: f64 = 20.0;
/// The 95% quantile of chi-squared with one degree of freedom.
const CHI2: f64 = 3.841;

/// How the derivatives are approximated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Differences {
    /// With one-sided differences: one evaluation per parameter, accurate enough for a descent
    /// direction.
    Forward,
    /// With central differences: two evaluations per parameter, one above and one below.
    Central,
}

/// Runs independent evaluations, possibly in parallel.
pub trait Parallel: Sync {
    /// Applies `work` to each input. The results are in the order of the inputs.
    fn map<I: Sync, O: Send>(&self, inputs: &[I], work: impl Fn(&I) -> O + Sync) -> Vec<O>;
}

/// Runs evaluations one at a time.
pub struct Sequential;

impl Parallel for Sequential {
    fn map<I: Sync, O: Send>(&self, inputs: &[I], work: impl Fn(&I) -> O + Sync) -> Vec<O> {
        inputs.iter().map(work).collect()
    }
}

/// Returns the residual weighted by Huber's function. Beyond three standard errors, the square of
/// the result grows only linearly.
pub fn huber(residual: f64) -> f64 {
    let size = residual.abs();
    if size > HUBER {
        residual.signum() * (2.0 * HUBER * size - HUBER * HUBER).sqrt()
    } else {
        residual
    }
}

/// A function that computes the residuals from the logarithms of the parameters and from a limit
/// (see [`Problem::residuals`]).
type Residuals<'a> = dyn Fn(&[f64], f64) -> Option<Vec<f64>> + Sync + 'a;

/// A least-squares problem.
pub struct Problem<'a, P: Parallel> {
    /// Computes the residuals, in standard errors, from the logarithms of the parameters. Returns
    /// `None` if the model cannot be evaluated. The second argument is a limit: as soon as the sum
    /// of the squared residuals (after [`huber`]) exceeds it, the function may stop and return
    /// `None`.
    pub residuals: &'a Residuals<'a>,
    /// Centres of the priors (ln), one per parameter.
    pub centre: Vec<f64>,
    /// Smallest change of each parameter that has an effect (ln), or 0 for a continuous parameter.
    pub grain: Vec<f64>,
    /// Runs the evaluations, possibly in parallel.
    pub parallel: &'a P,
}

/// Parameter values and their residuals.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Logarithms of the parameters.
    pub at: Vec<f64>,
    /// Residuals of the data, followed by the residuals of the priors.
    pub residuals: Vec<f64>,
}

impl Candidate {
    /// Returns the sum of the squared residuals.
    pub fn objective(&self) -> f64 {
        self.residuals.iter().map(|r| r * r).sum()
    }
}

/// The 95% interval of a fitted parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Lower end of the interval (ln).
    pub low: f64,
    /// Upper end of the interval (ln).
    pub high: f64,
    /// Whether an end of the interval lies outside of the search range. The interval is then wider
    /// than `low` to `high`.
    pub open: bool,
}

/// The lower or upper end of the interval of a parameter.
struct Edge {
    /// Distance from the best value (ln).
    distance: f64,
    open: bool,
}

impl<P: Parallel> Problem<'_, P> {
    fn evaluate(&self, at: Vec<f64>) -> Option<Candidate> {
        self.evaluate_below(at, f64::INFINITY)
    }

    /// Evaluates the parameters `at`. May return `None` if the objective exceeds `limit`.
    fn evaluate_below(&self, at: Vec<f64>, limit: f64) -> Option<Candidate> {
        let data = (self.residuals)(&at, limit)?;
        let mut residuals: Vec<f64> = data.into_iter().map(huber).collect();
        residuals.extend(at.iter().zip(&self.centre).map(|(at, centre)| (at - centre) / PRIOR_LN));
        residuals.iter().all(|r| r.is_finite()).then_some(Candidate { at, residuals })
    }

    /// Evaluates several starting points and returns them in the order of their objectives, best
    /// first. Starting points that cannot be evaluated are left out.
    pub fn rank(&self, starts: &[Vec<f64>]) -> Vec<Candidate> {
        self.rank_below(starts, f64::INFINITY)
    }

    /// Like [`rank`](Problem::rank), but may leave out starting points whose objective exceeds
    /// `limit`.
    pub fn rank_below(&self, starts: &[Vec<f64>], limit: f64) -> Vec<Candidate> {
        let evaluated =
            self.parallel.map(starts, |start| self.evaluate_below(start.clone(), limit));
        let mut ranked: Vec<Candidate> = evaluated.into_iter().flatten().collect();
        ranked.sort_by(|a, b| a.objective().total_cmp(&b.objective()));
        ranked
    }

    /// Returns the derivatives of the residuals, as a matrix with one row per parameter.
    fn jacobian(&self, here: &Candidate, differences: Differences) -> Vec<Vec<f64>> {
        let parameters: Vec<usize> = (0..here.at.len()).collect();
        self.parallel.map(&parameters, |j| {
            let step = self.grain[*j].max(0.02);
            let moved = |by: f64| {
                let mut at = here.at.clone();
                at[*j] += by;
                self.evaluate(at)
            };
            let down = (differences == Differences::Central).then(|| moved(-step)).flatten();
            match (moved(step), down) {
                (Some(up), Some(down)) => slope(&up, &down, 2.0 * step),
                (Some(up), None) => slope(&up, here, step),
                (None, Some(down)) => slope(here, &down, step),
                (None, None) => vec![0.0; here.residuals.len()],
            }
        })
    }

    /// Improves a candidate with at most `steps` steps of the Levenberg-Marquardt method.
    pub fn descend(&self, from: Candidate, steps: usize, differences: Differences) -> Candidate {
        let mut here = from;
        for _ in 0..steps {
            let jacobian = self.jacobian(&here, differences);
            let (normal, gradient) = normal_equations(&jacobian, &here.residuals);
            let trials: Vec<Vec<f64>> = DAMPINGS
                .iter()
                .filter_map(|damping| {
                    let mut damped = normal.clone();
                    for (j, row) in damped.iter_mut().enumerate() {
                        row[j] *= 1.0 + damping;
                    }
                    let step = solve(damped, gradient.clone())?;
                    let along = |share: f64| {
                        let limit = |s: f64| (s * share).clamp(-STEP_MAX_LN, STEP_MAX_LN);
                        here.at.iter().zip(&step).map(|(at, s)| at - limit(*s)).collect()
                    };
                    Some([along(1.0), along(0.3)])
                })
                .flatten()
                .collect();
            let before = here.objective();
            match self.rank_below(&trials, before).into_iter().next() {
                Some(best) if best.objective() < before => here = best,
                _ => break,
            }
            if here.objective() > before * (1.0 - MIN_GAIN) {
                break;
            }
        }
        here
    }

    /// Improves a candidate by coordinate search: moves one parameter at a time while the objective
    /// decreases. This finds the best values of integer parameters, for which derivatives are of
    /// little use.
    fn polish(&self, from: Candidate) -> Candidate {
        let mut here = from;
        for _ in 0..3 {
            let before = here.objective();
            for j in 0..here.at.len() {
                let step = self.grain[j].max(0.05);
                let moves = [-2.0 * step, -step, step, 2.0 * step].map(|by| {
                    let mut at = here.at.clone();
                    at[j] += by;
                    at
                });
                if let Some(best) = self.rank_below(&moves, here.objective()).into_iter().next()
                    && best.objective() < here.objective()
                {
                    here = best;
                }
            }
            if here.objective() > before * (1.0 - MIN_GAIN) {
                break;
            }
        }
        here
    }

    /// Descends from `start` and from the best of the `alternatives`, and returns the better
    /// result. `None` if no starting point can be evaluated.
    pub fn search(&self, start: Vec<f64>, alternatives: &[Vec<f64>]) -> Option<Candidate> {
        let ranked = [self.rank(&[start]), self.rank(alternatives)];
        let firsts = ranked.into_iter().filter_map(|ranked| ranked.into_iter().next());
        let ends =
            firsts.map(|first| self.polish(self.descend(first, STEPS, Differences::Central)));
        ends.min_by(|a, b| a.objective().total_cmp(&b.objective()))
    }

    /// Returns the 95% interval of every parameter. The interval ends where the objective has risen
    /// by the 95% quantile of chi-squared, scaled by the variance of the residuals. While one
    /// parameter is moved, the other parameters are adjusted.
    pub fn profiles(&self, best: &Candidate) -> Vec<Profile> {
        let jacobian = self.jacobian(best, Differences::Central);
        let (normal, _) = normal_equations(&jacobian, &best.residuals);
        let data = best.residuals.len() - best.at.len();
        let freedom = data.saturating_sub(best.at.len()).max(1);
        let scale = (best.objective() / freedom as f64).max(0.05);
        let limit = best.objective() + CHI2 * scale;
        let parameters: Vec<usize> = (0..best.at.len()).collect();
        self.parallel.map(&parameters, |j| {
            let direction = direction(&normal, *j);
            let low = self.edge(best, *j, &direction, -1.0, limit);
            let high = self.edge(best, *j, &direction, 1.0, limit);
            Profile {
                low: best.at[*j] - low.distance,
                high: best.at[*j] + high.distance,
                open: low.open || high.open,
            }
        })
    }

    /// Returns how far parameter `j` must change in the direction of `sign` until the objective
    /// exceeds `limit`.
    fn edge(&self, best: &Candidate, j: usize, direction: &[f64], sign: f64, limit: f64) -> Edge {
        let most = PROFILE_FACTOR.ln();
        let is_above = |by: f64| {
            let objective = |follow: f64| {
                let mut at = best.at.clone();
                for (at, slope) in at.iter_mut().zip(direction) {
                    *at += sign * by * slope * follow;
                }
                at[j] = best.at[j] + sign * by;
                self.evaluate(at).map(|candidate| candidate.objective())
            };
            // `direction` is computed from derivatives, which are valid only near the best values.
            // Three variants are therefore tried: the other parameters change by the full amount
            // that the derivatives predict, by half of this amount, or not at all.
            let least = [1.0, 0.5, 0.0].into_iter().filter_map(objective).fold(f64::MAX, f64::min);
            least > limit
        };
        let (mut inside, mut outside) = (0.0, self.grain[j].max(0.01));
        while !is_above(outside) {
            inside = outside;
            outside *= 2.0;
            if inside >= most {
                return Edge { distance: most, open: true };
            }
        }
        for _ in 0..4 {
            let middle = (inside + outside) / 2.0;
            if is_above(middle) {
                outside = middle;
            } else {
                inside = middle;
            }
        }
        Edge { distance: outside.min(most), open: false }
    }
}

fn slope(up: &Candidate, down: &Candidate, step: f64) -> Vec<f64> {
    up.residuals.iter().zip(&down.residuals).map(|(up, down)| (up - down) / step).collect()
}

/// Returns the normal matrix J J^T and the gradient J r, for a Jacobian with one row per parameter.
fn normal_equations(jacobian: &[Vec<f64>], residuals: &[f64]) -> (Vec<Vec<f64>>, Vec<f64>) {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let normal = jacobian.iter().map(|a| jacobian.iter().map(|b| dot(a, b)).collect()).collect();
    (normal, jacobian.iter().map(|row| dot(row, residuals)).collect())
}

/// Returns how much the best value of each other parameter changes, to first order, if parameter
/// `j` changes by one. Element `j` is 1.
fn direction(normal: &[Vec<f64>], j: usize) -> Vec<f64> {
    let others: Vec<usize> = (0..normal.len()).filter(|i| *i != j).collect();
    let matrix = others.iter().map(|a| others.iter().map(|b| normal[*a][*b]).collect()).collect();
    let right = others.iter().map(|a| -normal[*a][j]).collect();
    let mut direction = vec![0.0; normal.len()];
    if let Some(solved) = solve(matrix, right) {
        for (other, slope) in others.iter().zip(solved) {
            direction[*other] = slope.clamp(-3.0, 3.0);
        }
    }
    direction[j] = 1.0;
    direction
}

/// Solves linear equations by Gaussian elimination with partial pivoting. `None` if the matrix is
/// singular.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let n = right.len();
    for column in 0..n {
        let size = |row: &usize| matrix[*row][column].abs();
        let pivot = (column..n).max_by(|a, b| size(a).total_cmp(&size(b)))?;
        if size(&pivot) < 1e-12 {
            return None;
        }
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        for row in column + 1..n {
            let share = matrix[row][column] / matrix[column][column];
            let (above, below) = matrix.split_at_mut(row);
            for (value, pivot) in below[0].iter_mut().zip(&above[column]).skip(column) {
                *value -= share * pivot;
            }
            right[row] -= share * right[column];
        }
    }
    for row in (0..n).rev() {
        let rest: f64 = (row + 1..n).map(|k| matrix[row][k] * right[k]).sum();
        right[row] = (right[row] - rest) / matrix[row][row];
    }
    Some(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the residuals of the model T = f + s S (in standard errors), for sizes in KiB and
    /// times in microseconds. The standard error of each time is 2%. The true values are f = 100
    /// and s = 2. The third parameter has no effect.
    fn line(at: &[f64], _limit: f64) -> Option<Vec<f64>> {
        let truth = |size: f64| 100.0 + 2.0 * size;
        let time = |size: f64| at[0].exp() + at[1].exp() * size;
        let sizes = [4.0, 16.0, 64.0, 256.0, 1024.0];
        Some(sizes.iter().map(|size| (time(*size) / truth(*size)).ln() / 0.02).collect())
    }

    fn problem() -> Problem<'static, Sequential> {
        let centre = vec![30_f64.ln(), 10_f64.ln(), 0.0];
        Problem { residuals: &line, centre, grain: vec![0.0; 3], parallel: &Sequential }
    }

    fn search(problem: &Problem<'_, Sequential>) -> Candidate {
        let alternatives: Vec<Vec<f64>> =
            [-0.6, 0.4].map(|by| problem.centre.iter().map(|centre| centre + by).collect()).into();
        problem.search(problem.centre.clone(), &alternatives).unwrap()
    }

    #[test]
    fn a_line_is_found_from_a_wrong_start() {
        let best = search(&problem());
        let found: Vec<f64> = best.at.iter().map(|at| at.exp()).collect();
        assert!((found[0] / 100.0 - 1.0).abs() < 0.01, "{found:?}");
        assert!((found[1] / 2.0 - 1.0).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn only_parameters_that_the_data_determine_have_narrow_intervals() {
        let problem = problem();
        let profiles = problem.profiles(&search(&problem));
        let contains =
            |j: usize, truth: f64| (profiles[j].low..profiles[j].high).contains(&truth.ln());
        assert!(contains(0, 100.0) && contains(1, 2.0), "{profiles:?}");
        assert!(profiles[0].high - profiles[0].low < 0.2, "{profiles:?}");
        assert!(!profiles[0].open && !profiles[1].open, "{profiles:?}");
        // Only the prior limits the third parameter, so the interval spans more than a factor of
        // 100.
        assert!(profiles[2].high - profiles[2].low > 100_f64.ln(), "{profiles:?}");
    }

    #[test]
    fn large_residuals_count_linearly() {
        assert_eq!((huber(2.0), huber(-3.0)), (2.0, -3.0));
        assert!((huber(-6.0).powi(2) - 27.0).abs() < 1e-9);
    }

    #[test]
    fn singular_equations_have_no_solution() {
        assert!(solve(vec![vec![1.0, 1.0], vec![1.0, 1.0]], vec![1.0, 2.0]).is_none());
        let found = solve(vec![vec![0.0, 2.0], vec![1.0, 1.0]], vec![4.0, 3.0]).unwrap();
        assert_eq!(found, [1.0, 2.0]);
    }
}
