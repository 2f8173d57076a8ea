//! Computes how well each figure is predicted if its own published values are left out
//! (leave-one-out cross-validation). Every parameter that was fitted to the figure is fitted again
//! without the values of the figure. The figure is then simulated with the new parameters.
//!
//! The new fit uses all remaining published values: those of the other figures, and all rates,
//! times and costs in the text, including those about the left-out figure. If another figure
//! repeats a value of the left-out figure, that value is also left out. For example, Figure 5
//! repeats values of Figures 2 to 4.
//!
//! A parameter is determined by the remaining values if a step of the parameter changes at least
//! two of them by more than 1%. The search for a determined parameter starts at the value in the
//! system file. In smaller and smaller steps, it reduces the mean error of the values that the
//! parameter changes. A parameter that is not determined gets a neutral value: 0 for a time or a
//! size, and the advertised rate for a rate. Settings that are not numbers are not fitted again,
//! for example the setting that states which requests keep the bus. The zone tables of the disks,
//! which were fitted to Figure 14, are not fitted again either.

use lab::simulated::on_all_cores;

use crate::reproduce::claim::Stated;
use crate::reproduce::figure::{self, Cell, Figure, Score};
use crate::reproduce::fitted::Parameter;
use crate::reproduce::probe::{self, Change, Lab, Probe};

/// A parameter is determined if a step of the parameter changes at least this many published
/// values.
const LEAST_POINTS: usize = 2;
/// A step changes a value if the simulated value differs by more than this share.
const MOVED: f64 = 0.01;
/// The step of each round of the search: a parameter is multiplied or divided by this factor.
const ROUNDS: [f64; 2] = [1.25, 1.08];

/// A figure that was predicted without its own published values.
#[derive(Clone, Debug)]
pub struct LeftOut {
    /// The name of the figure, such as `Figure 10`.
    pub name: String,
    /// The score of the figure with the parameters of the system files.
    pub fitted: Score,
    /// The score of the figure with the parameters that were fitted without the figure.
    pub predicted: Score,
    /// The parameters that were fitted to the figure.
    pub parameters: Vec<Refit>,
}

/// A parameter that was fitted to a figure, and its value if the figure is left out.
#[derive(Clone, Debug)]
pub struct Refit {
    /// The keys of the parameter and the systems that have it, for example
    /// `drive.start_read (fastwide, narrow)`.
    pub name: String,
    /// The value of the parameter in the system file.
    pub of_file: f64,
    /// The value that the other published values determine, or the neutral value.
    pub found: f64,
    /// Whether the other published values determine the parameter.
    pub is_determined: bool,
    /// The mean error of the figure (a share) if this parameter keeps its value from the system
    /// file and all other parameters have their new values. If this error is less than the mean
    /// error of the prediction, the new value of this parameter makes the prediction worse.
    pub error_as_in_file: f64,
}

/// A published value, either in a figure or in the text. `figure` is the index of the figure.
enum Point<'a> {
    Plotted { figure: usize, cell: &'a Cell },
    Stated { stated: &'a Stated, systems: Vec<&'static str> },
}

impl Point<'_> {
    fn value(&self, lab: &Lab) -> Option<f64> {
        match self {
            Point::Plotted { cell, .. } => {
                cell.metric.of(lab.measure(&cell.probe).ok().as_ref()?)
            }
            Point::Stated { stated, .. } => (stated.check)(lab).ok(),
        }
    }

    fn error(&self, lab: &Lab) -> Option<f64> {
        match self {
            Point::Plotted { cell, .. } => figure::error_of(lab, cell),
            Point::Stated { stated, .. } => {
                Some(stated.claim.distance((stated.check)(lab).ok()?)).filter(|e| e.is_finite())
            }
        }
    }

    fn is_of(&self, number: usize) -> bool {
        matches!(self, Point::Plotted { figure, .. } if *figure == number)
    }

    /// Returns false if this value and the value in `other` are from the same measurement.
    fn differs_from(&self, other: &Cell) -> bool {
        match self {
            Point::Plotted { cell, .. } => other.probe != cell.probe || other.metric != cell.metric,
            Point::Stated { .. } => true,
        }
    }
}

/// The input of the search: the parameters and the published values.
struct Search<'a> {
    parameters: &'a [Parameter],
    points: Vec<Point<'a>>,
    /// For each parameter, the indices of the published values that a step of the parameter
    /// changes.
    moves: Vec<Vec<usize>>,
}

/// Predicts every figure that has fitted parameters, using only the other figures and the numbers
/// in the text. `progress` is called with the share of the work done and the name of the current
/// step.
pub fn leave_out(
    figures: &[Figure],
    parameters: &[Parameter],
    text: &[Stated],
    mut progress: impl FnMut(f64, &str),
) -> Vec<LeftOut> {
    let search = Search::new(figures, parameters, text, &mut progress);
    let fitted_to = |key: &str| -> Vec<usize> {
        let cites = |index: &usize| parameters[*index].figures().iter().any(|cited| cited == key);
        (0..parameters.len()).filter(cites).collect()
    };
    let all: Vec<(usize, Vec<usize>)> = figures
        .iter()
        .enumerate()
        .map(|(number, figure)| (number, fitted_to(&figure.key)))
        .filter(|(number, fitted)| {
            !fitted.is_empty() && search.points.iter().any(|point| point.is_of(*number))
        })
        .collect();
    let count = all.len() as f64;
    let predict = |(at, (number, fitted)): (usize, (usize, Vec<usize>))| {
        let name = figures[number].name();
        progress(0.2 + 0.8 * at as f64 / count, &format!("predicting {name} from other values"));
        search.predict(name, number, &fitted)
    };
    all.into_iter().enumerate().filter_map(predict).collect()
}

impl<'a> Search<'a> {
    fn new(
        figures: &'a [Figure],
        parameters: &'a [Parameter],
        text: &'a [Stated],
        progress: &mut impl FnMut(f64, &str),
    ) -> Search<'a> {
        let of_text =
            |stated: &'a Stated| Point::Stated { stated, systems: probe::systems_of(stated.check) };
        let mut points: Vec<Point> = text.iter().map(of_text).collect();
        for (number, figure) in figures.iter().enumerate() {
            let cells = figure.charts.iter().flat_map(|chart| &chart.columns);
            let cells = cells.flat_map(|column| column.cells.iter().flatten());
            let published = cells.filter(|cell| cell.published.is_some());
            points.extend(published.map(|cell| Point::Plotted { figure: number, cell }));
        }
        let mut search = Search { parameters, points, moves: Vec::new() };
        let base = Lab::default();
        let every: Vec<usize> = (0..search.points.len()).collect();
        let before = search.values(&base, &every);
        for (at, parameter) in parameters.iter().enumerate() {
            let share = 0.2 * at as f64 / parameters.len() as f64;
            progress(share, &format!("effects of {}", parameter.key()));
            let of_systems: Vec<usize> = every
                .iter()
                .copied()
                .filter(|point| parameter.concerns(&search.points[*point]))
                .collect();
            let changed = parameter.changed(parameter.value * parameter.wide_step());
            let after = search.values(&Lab::with(changed), &of_systems);
            let moved = of_systems.into_iter().zip(after).filter(|(point, after)| {
                let both = before[*point].zip(*after);
                both.is_some_and(|(was, is)| (is - was).abs() > MOVED * was.abs().max(1e-9))
            });
            let moved = moved.map(|(point, _)| point).collect();
            search.moves.push(moved);
        }
        search
    }

    fn values(&self, lab: &Lab, points: &[usize]) -> Vec<Option<f64>> {
        self.learn(lab, points);
        points.iter().map(|point| self.points[*point].value(lab)).collect()
    }

    fn learn(&self, lab: &Lab, points: &[usize]) {
        let mut probes: Vec<&Probe> = Vec::new();
        let mut of_text: Vec<&Point> = Vec::new();
        for point in points {
            match &self.points[*point] {
                Point::Plotted { cell, .. } if !probes.contains(&&cell.probe) => {
                    probes.push(&cell.probe);
                }
                Point::Plotted { .. } => (),
                stated => of_text.push(stated),
            }
        }
        on_all_cores(&probes, |probe| drop(lab.measure(probe)));
        on_all_cores(&of_text, |point| point.value(lab));
    }

    /// Returns the mean absolute error of the published values with these indices, after `changes`.
    fn mean_error(&self, changes: &[Change], points: &[usize]) -> f64 {
        let lab = Lab::with(changes.to_vec());
        self.learn(&lab, points);
        let errors = points.iter().map(|point| {
            // A value that cannot be simulated counts as an error of 1000%.
            self.points[*point].error(&lab).map_or(10.0, f64::abs)
        });
        errors.sum::<f64>() / points.len().max(1) as f64
    }

    fn score(&self, changes: &[Change], figure: usize) -> Option<Score> {
        let of_figure = |point: &usize| self.points[*point].is_of(figure);
        let points: Vec<usize> = (0..self.points.len()).filter(of_figure).collect();
        let lab = Lab::with(changes.to_vec());
        self.learn(&lab, &points);
        let errors = points
            .iter()
            .filter_map(|point| Some((String::new(), self.points[*point].error(&lab)?)));
        Score::of(&errors.collect::<Vec<_>>())
    }

    /// Fits the parameters of a figure again without the values of the figure, and predicts the
    /// figure with the new parameters.
    fn predict(&self, name: String, figure: usize, fitted: &[usize]) -> Option<LeftOut> {
        let is_kept = |point: &usize| {
            let point = &self.points[*point];
            self.points.iter().all(|left| match left {
                Point::Plotted { figure: number, cell } if *number == figure => {
                    point.differs_from(cell)
                }
                _ => true,
            })
        };
        let kept: Vec<Vec<usize>> = fitted
            .iter()
            .map(|index| self.moves[*index].iter().copied().filter(&is_kept).collect())
            .collect();
        let is_determined = |at: usize| kept[at].len() >= LEAST_POINTS;
        let of_file = |at: usize| self.parameters[fitted[at]].value;
        let neutral = |at: usize| self.parameters[fitted[at]].neutral();
        let start = |at: usize| if is_determined(at) { of_file(at) } else { neutral(at) };
        let mut values: Vec<f64> = (0..fitted.len()).map(start).collect();
        for factor in ROUNDS {
            for (at, points) in kept.iter().enumerate() {
                if is_determined(at) {
                    self.descend(fitted, &mut values, at, factor, points);
                }
            }
        }
        let refit = |at: usize| {
            let mut with_file = values.clone();
            with_file[at] = of_file(at);
            Some(Refit {
                name: self.parameters[fitted[at]].name(),
                of_file: of_file(at),
                found: values[at],
                is_determined: is_determined(at),
                error_as_in_file: self.score(&self.changes(fitted, &with_file), figure)?.mean,
            })
        };
        Some(LeftOut {
            name,
            fitted: self.score(&[], figure)?,
            predicted: self.score(&self.changes(fitted, &values), figure)?,
            parameters: (0..fitted.len()).map(refit).collect::<Option<_>>()?,
        })
    }

    fn changes(&self, fitted: &[usize], values: &[f64]) -> Vec<Change> {
        let all = fitted.iter().zip(values);
        all.flat_map(|(index, value)| self.parameters[*index].changed(*value)).collect()
    }

    /// Increases one parameter by up to four steps while the mean error of the published values
    /// `points` decreases. If the first step does not reduce the error, tries to decrease the
    /// parameter instead.
    fn descend(
        &self,
        fitted: &[usize],
        values: &mut [f64],
        at: usize,
        factor: f64,
        points: &[usize],
    ) {
        let mut least = self.mean_error(&self.changes(fitted, values), points);
        for step in [factor, 1.0 / factor] {
            let mut moved = false;
            for _ in 0..4 {
                let before = values[at];
                values[at] *= step;
                let error = self.mean_error(&self.changes(fitted, values), points);
                if error >= least {
                    values[at] = before;
                    break;
                }
                (least, moved) = (error, true);
            }
            if moved {
                return;
            }
        }
    }
}

impl Parameter {
    fn concerns(&self, point: &Point) -> bool {
        let systems = self.systems();
        match point {
            Point::Plotted { cell, .. } => systems.contains(cell.probe.system()),
            Point::Stated { systems: of_text, .. } => of_text.iter().any(|s| systems.contains(s)),
        }
    }

    /// Returns a factor that changes the parameter enough to have an effect. A parameter in bytes
    /// is divided by 4. Such a parameter is often compared with request sizes, which are powers of
    /// 2, so a small change may have no effect.
    fn wide_step(&self) -> f64 {
        if self.unit.ends_with('B') { 0.25 } else { 1.3 }
    }

    fn changed(&self, value: f64) -> Vec<Change> {
        let change = |(system, key): &(String, String)| {
            let (system, key) = (system.clone(), key.clone());
            Change { system, key, value }
        };
        self.places.iter().map(change).collect()
    }

    fn name(&self) -> String {
        let systems = self.systems();
        let systems: Vec<&str> = systems.iter().map(|s| s.trim_start_matches("nt4-")).collect();
        let mut keys: Vec<&str> = self.places.iter().map(|(_, key)| key.as_str()).collect();
        keys.sort_unstable();
        keys.dedup();
        format!("{} ({})", keys.join(" = "), systems.join(", "))
    }
}

/// Formats the predictions as text: a table with a line for each figure, then the parameters of
/// each figure with their new values.
pub fn text(all: &[LeftOut]) -> String {
    let share = |score: &Score| format!("{:.1}%", score.mean * 100.0);
    let mut lines = vec![
        "Mean absolute error of each figure: fitted with all points, and predicted without the \
         points of that figure"
            .to_owned(),
        format!("  {:10} {:>6} {:>8} {:>10}", "figure", "points", "fitted", "predicted"),
    ];
    for left in all {
        let (fitted, predicted) = (share(&left.fitted), share(&left.predicted));
        let points = left.fitted.points;
        lines.push(format!("  {:10} {points:>6} {fitted:>8} {predicted:>10}", left.name));
    }
    let mean =
        |of: fn(&LeftOut) -> f64| all.iter().map(of).sum::<f64>() / all.len().max(1) as f64 * 100.0;
    lines.push(format!(
        "  {:10} {:>6} {:>7.1}% {:>9.1}%",
        "mean",
        "",
        mean(|left| left.fitted.mean),
        mean(|left| left.predicted.mean)
    ));
    for left in all {
        lines.push(format!("Without {}:", left.name));
        let is_same = |of: &&Refit| of.found == of.of_file;
        for of in left.parameters.iter().filter(|of| !is_same(of)) {
            let Refit { name, of_file, found, .. } = of;
            let found = if of.is_determined {
                format!("{found:.4} from the other published values")
            } else {
                format!("not determined by other values, set to {found}")
            };
            let percent = of.error_as_in_file * 100.0;
            lines.push(format!(
                "  {name}: {found}; with the value of the system file ({of_file}), the mean error \
                 is {percent:.1}%"
            ));
        }
        let same = left.parameters.iter().filter(is_same).map(|of| of.name.as_str());
        let same: Vec<&str> = same.collect();
        if !same.is_empty() {
            lines.push(format!("  same value as in the system file: {}", same.join("; ")));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::figures;
    use crate::reproduce::fitted::parameters;
    use crate::reproduce::published::Paper;

    fn only(keys: &[&str]) -> Vec<Figure> {
        let all = figures(Paper::Riedel97).into_iter();
        all.filter(|figure| keys.contains(&figure.key.as_str())).collect()
    }

    fn of(keys: &[&str]) -> Vec<Parameter> {
        let all = parameters(&figures(Paper::Riedel97)).into_iter();
        all.filter(|parameter| keys.contains(&parameter.key())).collect()
    }

    #[test]
    fn a_parameter_that_only_the_figure_left_out_determines_is_said_to_be_undetermined() {
        let left = leave_out(&only(&["10"]), &of(&["drive.start_read"]), &[], |_, _| ());
        assert_eq!(left.len(), 1);
        let [only] = &left[0].parameters[..] else { panic!("{left:?}") };
        assert_eq!(only.name, "drive.start_read (fastwide, narrow, ultrawide)");
        assert_eq!((only.is_determined, only.found), (false, 0.0));
        assert!(left[0].predicted.mean > left[0].fitted.mean, "the fit should reduce the error");
        assert!((only.error_as_in_file - left[0].fitted.mean).abs() < 1e-9, "nothing else differs");
    }

    #[test]
    fn a_wrong_value_is_found_again_from_the_other_figure() {
        let mut parameters = of(&["drive.firmware_queued_write"]);
        let right = parameters[0].value;
        parameters[0].value = right * 1.6;
        let left = leave_out(&only(&["10", "13"]), &parameters, &[], |_, _| ());
        let found = left.iter().find(|left| left.name == "Figure 10").unwrap().parameters[0].found;
        assert!((found / right - 1.0).abs() < 0.35, "the search found {found} instead of {right}");
    }

    #[test]
    fn points_that_another_figure_repeats_are_left_out_with_it() {
        let left =
            leave_out(&only(&["2", "5"]), &of(&["host.buffered_read.fixed"]), &[], |_, _| ());
        let mut all = left.iter().flat_map(|left| &left.parameters);
        assert!(all.all(|parameter| !parameter.is_determined), "{left:?}");
    }
}
