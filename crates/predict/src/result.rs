//! Builds the result of a calibration: the fitted parameters with intervals, the score of the
//! system, and the system file.

use analysis::lsq;
use analysis::nonlinear::Profile;
use lab::failure::{Failure, Outcome};
use schemars::JsonSchema;
use serde::Serialize;
use simulator::system::DriveModel;
use simulator::{CalibrationPoint, Description};

use crate::history::{History, MeasuredPoint};
use crate::score::{self, Errors, Fit, Scored};

/// A fitted parameter of the system.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ParameterDocument {
    /// Key of the parameter in the system file, for example `drive.units`.
    pub key: String,
    /// Fitted value, in the unit of the field `unit`.
    pub value: f64,
    /// Lower end of the 95% interval of the value.
    pub low: f64,
    /// Upper end of the 95% interval of the value.
    pub high: f64,
    /// Unit of the value.
    pub unit: String,
    /// Whether the run does not determine the value: the search did not find an end of the
    /// interval, or the ends differ by more than a factor of three.
    pub unidentified: bool,
}

/// One workload of the run, with its measured and its simulated rate.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FittedPointDocument {
    /// Short description of the workload.
    pub point: String,
    /// Whether the point was held out, that is, only scored and not fitted.
    pub held_out: bool,
    /// Measured rate (bytes per second).
    pub measured_bytes_per_s: f64,
    /// Simulated rate (bytes per second).
    pub simulated_bytes_per_s: f64,
    /// Rate according to the naive bound (bytes per second): all outstanding requests complete in
    /// the time of a single request, but the rate is at most the highest measured rate.
    pub naive_bytes_per_s: f64,
    /// Relative error: the simulated rate divided by the measured rate, minus 1.
    pub error: f64,
}

/// Errors of predicted rates relative to the measured rates (0.1 is 10%).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ErrorsDocument {
    /// Number of points.
    pub points: usize,
    /// Mean absolute error.
    pub mean: f64,
    /// Median absolute error.
    pub median: f64,
    /// Largest absolute error.
    pub worst: f64,
}

impl From<Errors> for ErrorsDocument {
    fn from(errors: Errors) -> ErrorsDocument {
        let Errors { points, mean, median, worst } = errors;
        ErrorsDocument { points, mean, median, worst }
    }
}

/// How accurately the fitted system predicts the measurements.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ScoreDocument {
    /// Errors on the points that were fitted.
    pub fitted: ErrorsDocument,
    /// Errors on the points that were held out.
    pub held_out: ErrorsDocument,
    /// Errors of the naive bound on the held-out points. The naive bound assumes that all
    /// outstanding requests complete in the time of a single request, but that the rate is at most
    /// the highest measured rate.
    pub naive_held_out: ErrorsDocument,
    /// Mean relative deviation of the rate of a trial from the median of its point (0.1 is 10%). No
    /// model can be more accurate than this.
    pub repeatability: f64,
}

/// A calibrated system.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// Name of the selected structure, which is a model of the device.
    pub structure: String,
    /// The fitted parameters of that structure.
    pub parameters: Vec<ParameterDocument>,
    /// All usable points of the run, with their measured and their simulated rates.
    pub points: Vec<FittedPointDocument>,
    /// How accurately the system predicts the measurements.
    pub score: ScoreDocument,
    /// Why the search for a cache, a write buffer or burst credit was skipped. `None` if the search
    /// was made or was not needed.
    pub not_sought: Option<String>,
    /// Parameters that the measurements do not determine, each with the reason.
    pub not_determined: Vec<String>,
    /// The system file.
    pub system: Description,
}

impl ScoreDocument {
    /// Formats the score in one line, for the title of the system file.
    pub fn line(&self) -> String {
        let (what, errors) = if self.held_out.points == 0 {
            ("error on fitted points (no points were held out)", &self.fitted)
        } else {
            ("held-out error", &self.held_out)
        };
        let (mean, worst) = (errors.mean * 100.0, errors.worst * 100.0);
        format!("{what}: mean {mean:.1}%, worst {worst:.1}% ({} points)", errors.points)
    }
}

/// Fits a system to a history. `base` is the system file to start from. `source` is recorded as the
/// origin of the values. `tell` is called with the name of each step.
///
/// # Errors
/// If no structure can be fitted, or if the base has a translation layer, which cannot be fitted.
pub fn calibrate(
    history: &History,
    mut base: Description,
    source: &str,
    tell: &mut dyn FnMut(&str),
) -> Outcome<Calibrated> {
    put_cpu(&mut base, history, source)?;
    if let DriveModel::Flash(flash) = &base.system()?.drive
        && flash.translation.is_some()
    {
        return Err(Failure::usage(
            "the system has [drive.translation], which cannot be fitted; specify another --system, \
             such as nvme-gen4",
        ));
    }
    let fit = score::choose(history, &base, 42, tell)?;
    tell("intervals");
    let profiles = score::profiles(history, &base, &fit);
    let mut parameters = Vec::new();
    for (key, value) in &fit.structure.fixed {
        base.put(key, *value, &format!("{source}: set by the model structure, not fitted"))?;
    }
    for (number, parameter) in fit.structure.parameters.iter().enumerate() {
        let found = parameter_document(&base, &fit, number, profiles[number]);
        let flag = if found.unidentified { ", unidentified" } else { "" };
        let bounds = format!("{} to {}", significant(found.low), significant(found.high));
        base.put(&parameter.key, found.value, &format!("{source}: 95% interval {bounds}{flag}"))?;
        parameters.push(found);
    }
    // The score is computed from the rounded values that are written to the file.
    let scored = score::score(history, &base.system()?)?;
    let document = |(point, scored): (&MeasuredPoint, &Scored)| FittedPointDocument {
        point: point.key.describe(),
        held_out: scored.held_out,
        measured_bytes_per_s: scored.measured,
        simulated_bytes_per_s: scored.simulated,
        naive_bytes_per_s: scored.naive,
        error: scored.simulated / scored.measured - 1.0,
    };
    base.set_calibration(&calibration_points(history, &scored));
    Ok(Calibrated {
        structure: fit.structure.name.clone(),
        parameters,
        points: history.points.iter().zip(&scored).map(document).collect(),
        score: score_of(history, &scored),
        not_sought: score::not_sought(history),
        not_determined: Vec::new(),
        system: base,
    })
}

/// Returns the points in the form in which the system file stores them. `trust` uses them to
/// estimate the error of a prediction.
fn calibration_points(history: &History, scored: &[Scored]) -> Vec<CalibrationPoint> {
    let point = |(point, scored): (&MeasuredPoint, &Scored)| CalibrationPoint {
        read_percent: point.key.read_percent() as u8,
        pattern: point.key.workload.pattern.to_string(),
        request_bytes: point.key.request_bytes(),
        outstanding: point.outstanding() / point.hosts,
        hosts: point.hosts,
        held_out: scored.held_out,
        measured_bytes_per_s: scored.measured.round(),
        simulated_bytes_per_s: scored.simulated.round(),
    };
    history.points.iter().zip(scored).map(point).collect()
}

fn parameter_document(
    base: &Description,
    fit: &Fit,
    number: usize,
    profile: Profile,
) -> ParameterDocument {
    let parameter = &fit.structure.parameters[number];
    let unit = base.value_of(&parameter.key).map(|(_, unit)| unit).unwrap_or_default();
    let (low, high) = (parameter.value(profile.low), parameter.value(profile.high));
    ParameterDocument {
        key: parameter.key.clone(),
        value: round(parameter.value(fit.solution.at[number])),
        low,
        high,
        unit,
        unidentified: profile.open || high / low > score::UNIDENTIFIED,
    }
}

/// Rounds to six significant digits, so that the system file is readable.
fn round(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Formats a number with three significant digits.
pub fn significant(value: f64) -> String {
    let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
    rounded.to_string()
}

fn score_of(history: &History, scored: &[Scored]) -> ScoreDocument {
    let errors = |held_out: bool, of: fn(&Scored) -> f64| {
        let mine = scored.iter().filter(|s| s.held_out == held_out);
        Errors::of(mine.map(|s| (of(s), s.measured))).into()
    };
    let spreads: f64 = history.points.iter().map(|point| point.spread).sum();
    ScoreDocument {
        fitted: errors(false, |s| s.simulated),
        held_out: errors(true, |s| s.simulated),
        naive_held_out: errors(true, |s| s.naive),
        repeatability: spreads / history.points.len().max(1) as f64,
    }
}

/// Sets the CPU cost of requests as a linear function of the request size. The line is fitted to
/// the lowest cost at each size, because higher costs include the overhead of waiting.
fn put_cpu(base: &mut Description, history: &History, source: &str) -> Outcome<()> {
    for (reads, op) in [(true, "read"), (false, "write")] {
        let fitted = || history.points.iter().filter(|p| !p.held_out);
        let mine = || fitted().filter(|p| p.reads().is_none_or(|r| r == reads));
        let mut sizes: Vec<u64> = mine().map(|p| p.key.request_bytes()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let least = |size: u64| {
            let same = mine().filter(|p| p.key.request_bytes() == size);
            same.filter_map(|p| p.cpu_ns).fold(f64::MAX, f64::min)
        };
        let samples: Vec<lsq::Point> = sizes
            .iter()
            .map(|size| (*size as f64, least(*size)))
            .filter(|(_, ns)| *ns < f64::MAX && *ns > 0.0)
            .map(|(size, ns)| lsq::Point::with_relative_error(size, ns, 0.05))
            .collect();
        let Some(lowest) = samples.iter().map(|s| s.y).min_by(f64::total_cmp) else { continue };
        let line = lsq::line(&samples).ok().filter(|line| line.slope.value > 0.0);
        let (fixed_ns, each) = match line {
            Some(line) => (line.intercept.value.clamp(0.0, lowest), line.slope.value),
            None => (lowest, 0.0),
        };
        let fixed = round(fixed_ns / 1e3);
        base.put(
            &format!("host.direct_{op}.fixed"),
            fixed,
            &format!("{source}: process CPU time"),
        )?;
        let each = round(each * 1024.0 / 1e3);
        base.put(&format!("host.direct_{op}.each"), each, &format!("{source}: process CPU time"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::{example, with_other_held_out_points};
    use crate::structure;

    #[test]
    fn held_out_points_change_no_parameter() {
        let history = example();
        let fitted = |history: &History| {
            let base = structure::volume(history, 1).unwrap();
            let found = calibrate(history, base, "calibrated", &mut |_| {}).unwrap();
            let parameters = found.parameters.iter().map(|p| (p.key.clone(), p.value, p.low));
            let cpu = found.system.value_of("host.direct_read.fixed");
            (parameters.collect::<Vec<_>>(), cpu, found.score.held_out.mean)
        };
        let (one, other) = (fitted(&history), fitted(&with_other_held_out_points(&history)));
        assert_eq!((&one.0, &one.1), (&other.0, &other.1));
        assert!(one.2 < 0.1 && other.2 > 0.5, "{} {}", one.2, other.2);
    }

    #[test]
    fn a_translation_layer_is_refused_at_once() {
        let base = Description::named("nvme-ftl").unwrap();
        let refused = calibrate(&example(), base, "calibrated", &mut |_| {}).err();
        let message = refused.expect("a translation layer cannot be fitted").message;
        assert!(message.contains("[drive.translation]") && message.contains("nvme-gen4"));
    }

    #[test]
    fn the_title_ends_with_the_score() {
        let errors = |points, mean| ErrorsDocument { points, mean, median: mean, worst: 0.08 };
        let mut score = ScoreDocument {
            fitted: errors(21, 0.01),
            held_out: errors(20, 0.0234),
            naive_held_out: errors(20, 0.5),
            repeatability: 0.01,
        };
        assert_eq!(score.line(), "held-out error: mean 2.3%, worst 8.0% (20 points)");
        score.held_out.points = 0;
        assert!(score.line().contains("were held out): mean 1.0%"), "{}", score.line());
    }
}
