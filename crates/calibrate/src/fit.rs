//! Weighted least squares over the logarithms of parameters, for functions that can only be
//! evaluated: many starts, damped Gauss-Newton steps with numerical derivatives, and the interval
//! of each parameter by its profile.
//!
//! Every parameter has a weak log-normal prior around its start, so that one that the data say
//! nothing about stays where it is instead of running away; its interval then tells that. Large
//! residuals count less than their squares (Huber), so that a few odd points do not bend the rest.
//! Nothing here is random: perturbed starts come from the caller's seed.

use lab::simulated::on_all_cores;
use workload::random::Stream;

/// Width of the priors, as a logarithm: one standard deviation is a factor of ten.
const PRIOR: f64 = 2.3;
/// Residuals beyond so many standard errors count linearly (Huber).
const HUBER: f64 = 3.0;
/// Steps of one descent at the most.
const STEPS: usize = 12;
/// A descent ends when a step improves by less than this share.
const GAIN: f64 = 0.002;
/// Dampings that are tried in each step, at the same time.
const DAMPINGS: [f64; 4] = [1e-3, 0.1, 1.0, 10.0];
/// The profile goes no further than this factor to either side.
const PROFILE: f64 = 20.0;
/// The 95% quantile of chi-squared with one degree of freedom.
const CHI2: f64 = 3.841;

/// How derivatives are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Differences {
    /// From one evaluation beside the place: good for a direction downhill.
    Forward,
    /// From one on either side: twice the work.
    Central,
}

/// A residual, as far as it counts (Huber): large ones count less than their squares.
pub fn huber(r: f64) -> f64 {
    match r.abs() {
        size if size > HUBER => r.signum() * (2.0 * HUBER * size - HUBER * HUBER).sqrt(),
        _ => r,
    }
}

/// Residuals at a place, as far as they are worth it.
type Residuals<'a> = dyn Fn(&[f64], f64) -> Option<Vec<f64>> + Sync + 'a;

/// What is to be fitted.
pub struct Problem<'a> {
    /// Residuals at the logarithms of parameters, in standard errors; None where it cannot be. It
    /// may give up as soon as the sum of their squares exceeds the second argument.
    pub residuals: &'a Residuals<'a>,
    /// Centres of the priors (ln).
    pub centre: Vec<f64>,
    /// Least change that has an effect (ln); for counts.
    pub grain: Vec<f64>,
}

/// A place in the space of parameters.
#[derive(Clone, Debug)]
pub struct Place {
    /// Logarithms of the parameters.
    pub at: Vec<f64>,
    /// Residuals, priors included.
    pub residuals: Vec<f64>,
}

impl Place {
    /// Sum of squares.
    pub fn objective(&self) -> f64 {
        self.residuals.iter().map(|r| r * r).sum()
    }
}

/// A fitted parameter's interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Lower end (ln).
    pub low: f64,
    /// Upper end (ln).
    pub high: f64,
    /// Whether the objective did not rise enough on either side within the range looked at.
    pub open: bool,
}

impl Problem<'_> {
    /// The residuals at a place, priors included.
    fn place(&self, at: Vec<f64>) -> Option<Place> {
        self.place_below(at, f64::INFINITY)
    }

    /// The same, unless the objective is found to exceed `most`.
    fn place_below(&self, at: Vec<f64>, most: f64) -> Option<Place> {
        let data = (self.residuals)(&at, most)?;
        let mut residuals: Vec<f64> = data.into_iter().map(huber).collect();
        residuals.extend(at.iter().zip(&self.centre).map(|(at, centre)| (at - centre) / PRIOR));
        residuals.iter().all(|r| r.is_finite()).then_some(Place { at, residuals })
    }

    /// The best of several places, as far as they can be evaluated, best first.
    pub fn rank(&self, starts: &[Vec<f64>]) -> Vec<Place> {
        self.rank_below(starts, f64::INFINITY)
    }

    /// The same, without those whose objective exceeds `most`.
    pub fn rank_below(&self, starts: &[Vec<f64>], most: f64) -> Vec<Place> {
        let places = on_all_cores(starts, |start| self.place_below(start.clone(), most));
        let mut places: Vec<Place> = places.into_iter().flatten().collect();
        places.sort_by(|a, b| a.objective().total_cmp(&b.objective()));
        places
    }

    /// Derivatives of the residuals: a row for each parameter.
    fn jacobian(&self, here: &Place, differences: Differences) -> Vec<Vec<f64>> {
        let numbers: Vec<usize> = (0..here.at.len()).collect();
        on_all_cores(&numbers, |j| {
            let step = self.grain[*j].max(0.02);
            let moved = |by: f64| {
                let mut at = here.at.clone();
                at[*j] += by;
                self.place(at)
            };
            let down = (differences == Differences::Central).then(|| moved(-step)).flatten();
            match (moved(step), down) {
                (Some(up), Some(down)) => difference(&up, &down, 2.0 * step),
                (Some(up), None) => difference(&up, here, step),
                (None, Some(down)) => difference(here, &down, step),
                (None, None) => vec![0.0; here.residuals.len()],
            }
        })
    }

    /// Goes downhill from a place, so many steps at the most.
    pub fn descend(&self, from: Place, steps: usize, differences: Differences) -> Place {
        let mut here = from;
        for _ in 0..steps {
            let jacobian = self.jacobian(&here, differences);
            let (normal, gradient) = normal_equations(&jacobian, &here.residuals);
            let steps: Vec<Vec<f64>> = DAMPINGS
                .iter()
                .filter_map(|damping| {
                    let mut damped = normal.clone();
                    for (j, row) in damped.iter_mut().enumerate() {
                        row[j] *= 1.0 + damping;
                    }
                    let step = solve(damped, gradient.clone())?;
                    let along = |share: f64| {
                        let limit = |s: f64| (s * share).clamp(-1.5, 1.5);
                        here.at.iter().zip(&step).map(|(at, s)| at - limit(*s)).collect()
                    };
                    Some([along(1.0), along(0.3)])
                })
                .flatten()
                .collect();
            let before = here.objective();
            match self.rank_below(&steps, before).into_iter().next() {
                Some(best) if best.objective() < before => here = best,
                _ => break,
            }
            if here.objective() > before * (1.0 - GAIN) {
                break;
            }
        }
        here
    }

    /// Moves one parameter at a time while that helps; counts move by whole ones.
    fn polish(&self, from: Place) -> Place {
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
            if here.objective() > before * (1.0 - GAIN) {
                break;
            }
        }
        here
    }

    /// Goes downhill from a place to the end, and again from the best of some places around it.
    pub fn search(&self, start: Vec<f64>, seed: u64) -> Option<Place> {
        let mut stream = Stream::new(seed);
        let mut share = || stream.next_u64() as f64 / u64::MAX as f64 - 0.5;
        let around: Vec<Vec<f64>> =
            (0..8).map(|_| start.iter().map(|at| at + 1.4 * share()).collect()).collect();
        let starts = [self.rank(&[start]), self.rank(&around)];
        let firsts = starts.into_iter().filter_map(|ranked| ranked.into_iter().next());
        let ends =
            firsts.map(|first| self.polish(self.descend(first, STEPS, Differences::Central)));
        ends.min_by(|a, b| a.objective().total_cmp(&b.objective()))
    }

    /// How far each parameter can be moved, the others following, until the objective has risen
    /// by the 95% step at the scale of the residuals.
    pub fn profiles(&self, best: &Place) -> Vec<Profile> {
        let jacobian = self.jacobian(best, Differences::Central);
        let (normal, _) = normal_equations(&jacobian, &best.residuals);
        let data = best.residuals.len() - best.at.len();
        let freedom = data.saturating_sub(best.at.len()).max(1);
        let scale = (best.objective() / freedom as f64).max(0.05);
        let limit = best.objective() + CHI2 * scale;
        let numbers: Vec<usize> = (0..best.at.len()).collect();
        on_all_cores(&numbers, |j| {
            let ways = direction(&normal, *j);
            let end = |sign: f64| self.edge(best, (*j, &ways), sign, limit);
            let ((low, low_open), (high, high_open)) = (end(-1.0), end(1.0));
            Profile {
                low: best.at[*j] - low,
                high: best.at[*j] + high,
                open: low_open || high_open,
            }
        })
    }

    /// How far one parameter goes to one side (ln), and whether there was no end.
    fn edge(&self, best: &Place, (j, ways): (usize, &[f64]), sign: f64, limit: f64) -> (f64, bool) {
        let most = PROFILE.ln();
        let is_above = |by: f64| {
            let follow = |with: f64| {
                let mut at = best.at.clone();
                for (at, way) in at.iter_mut().zip(ways) {
                    *at += sign * by * way * with;
                }
                at[j] = best.at[j] + sign * by;
                self.place(at).map(|place| place.objective())
            };
            // The others follow as the derivatives say, half as far, or stay: whatever is best.
            let least = [1.0, 0.5, 0.0].into_iter().filter_map(follow).fold(f64::MAX, f64::min);
            least > limit
        };
        let (mut inside, mut outside) = (0.0, self.grain[j].max(0.01));
        while !is_above(outside) {
            inside = outside;
            outside *= 2.0;
            if inside >= most {
                return (most, true);
            }
        }
        for _ in 0..4 {
            let middle = (inside + outside) / 2.0;
            match is_above(middle) {
                true => outside = middle,
                false => inside = middle,
            }
        }
        (outside.min(most), false)
    }
}

fn difference(up: &Place, down: &Place, step: f64) -> Vec<f64> {
    up.residuals.iter().zip(&down.residuals).map(|(up, down)| (up - down) / step).collect()
}

fn normal_equations(jacobian: &[Vec<f64>], residuals: &[f64]) -> (Vec<Vec<f64>>, Vec<f64>) {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let normal = jacobian.iter().map(|a| jacobian.iter().map(|b| dot(a, b)).collect()).collect();
    (normal, jacobian.iter().map(|row| dot(row, residuals)).collect())
}

/// How the others follow when one parameter moves by one, to first order.
fn direction(normal: &[Vec<f64>], j: usize) -> Vec<f64> {
    let others: Vec<usize> = (0..normal.len()).filter(|i| *i != j).collect();
    let matrix = others.iter().map(|a| others.iter().map(|b| normal[*a][*b]).collect()).collect();
    let right = others.iter().map(|a| -normal[*a][j]).collect();
    let mut ways = vec![0.0; normal.len()];
    if let Some(solved) = solve(matrix, right) {
        for (other, way) in others.iter().zip(solved) {
            ways[*other] = way.clamp(-3.0, 3.0);
        }
    }
    ways[j] = 1.0;
    ways
}

/// Solves linear equations by elimination with pivots; None where they are singular.
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

    /// T = f + s S in microseconds and KiB, in 2% standard errors; the third parameter does
    /// nothing.
    fn line(at: &[f64], _most: f64) -> Option<Vec<f64>> {
        let truth = |size: f64| 100.0 + 2.0 * size;
        let time = |size: f64| at[0].exp() + at[1].exp() * size;
        let sizes = [4.0, 16.0, 64.0, 256.0, 1024.0];
        Some(sizes.iter().map(|size| (time(*size) / truth(*size)).ln() / 0.02).collect())
    }

    fn problem() -> Problem<'static> {
        let centre = vec![30_f64.ln(), 10_f64.ln(), 0.0];
        Problem { residuals: &line, centre, grain: vec![0.0; 3] }
    }

    #[test]
    fn a_line_is_found_from_a_wrong_start() {
        let problem = problem();
        let best = problem.search(problem.centre.clone(), 1).unwrap();
        let found: Vec<f64> = best.at.iter().map(|at| at.exp()).collect();
        assert!((found[0] / 100.0 - 1.0).abs() < 0.01, "{found:?}");
        assert!((found[1] / 2.0 - 1.0).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn what_the_data_determine_has_an_interval_and_the_rest_has_none() {
        let problem = problem();
        let best = problem.search(problem.centre.clone(), 1).unwrap();
        let profiles = problem.profiles(&best);
        let holds =
            |j: usize, truth: f64| (profiles[j].low..profiles[j].high).contains(&truth.ln());
        assert!(holds(0, 100.0) && holds(1, 2.0), "{profiles:?}");
        assert!(profiles[0].high - profiles[0].low < 0.2, "{profiles:?}");
        assert!(!profiles[0].open && !profiles[1].open, "{profiles:?}");
        // Only the prior holds the third: more than a factor of a hundred from end to end.
        assert!(profiles[2].high - profiles[2].low > 100_f64.ln(), "{profiles:?}");
    }

    #[test]
    fn singular_equations_have_no_solution() {
        assert!(solve(vec![vec![1.0, 1.0], vec![1.0, 1.0]], vec![1.0, 2.0]).is_none());
        let found = solve(vec![vec![0.0, 2.0], vec![1.0, 1.0]], vec![4.0, 3.0]).unwrap();
        assert_eq!(found, [1.0, 2.0]);
    }
}
