//! Weighted linear regression.
//!
//! Lines are fitted by weighted least squares in centred form (Draper and Smith, Applied Regression
//! Analysis, 1998), with Student t intervals. The scale of the intervals comes from the scatter of
//! the points about the line, so only the ratios of the weights matter. The fit does not test for
//! outliers or curvature. Both are visible in the residuals that the fit returns.

use crate::interval::{CONFIDENCE, Interval};
use statrs::distribution::{ContinuousCDF, StudentsT};
use thiserror::Error;

/// Minimum number of points in a fit. A line through two points is exact, so its error would be
/// unknown.
pub const POINTS_MIN: usize = 3;

/// Minimum relative error of a point. A few trials may agree by chance. Without a minimum, their
/// point would get an excessive weight and determine the line.
pub const RELATIVE_ERROR_MIN: f64 = 0.01;

/// Why no line could be fitted.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum FitError {
    /// There are fewer than [`POINTS_MIN`] points.
    #[error(
        "the fit has {points} points but needs at least {POINTS_MIN}: measure more request sizes"
    )]
    TooFewPoints {
        /// Number of points in the input.
        points: usize,
    },
    /// A coordinate is not finite, a time is not positive, or an error is negative or not finite.
    #[error(
        "point {index} of the fit is not a finite, positive measurement: drop the point or \
         measure it for longer"
    )]
    UnusablePoint {
        /// Index of the point in the input.
        index: usize,
    },
    /// All points have the same x.
    #[error("all points of the fit have the same request size: measure different sizes")]
    SameSize,
    /// The time does not rise with the request size, so there is no asymptotic rate.
    #[error(
        "the time of a request does not rise with its size ({ns_per_byte} ns per byte), so the \
         rate has no half-power point: measure larger requests, or more trials"
    )]
    NotRising {
        /// The fitted slope (ns per byte), which is zero or negative.
        ns_per_byte: f64,
    },
}

/// One data point of a fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The independent variable, for example the request size.
    pub x: f64,
    /// The measured quantity.
    pub y: f64,
    /// Weight of the point: positive and proportional to 1 / (error of `y`)^2.
    pub weight: f64,
}

impl Point {
    /// Creates a point whose `y` has the error `relative_error` (0.03 for 3%), or
    /// [`RELATIVE_ERROR_MIN`] if that is larger. The point cannot be used in a fit if `y` is not
    /// positive, or if the error is negative or not finite.
    pub fn with_relative_error(x: f64, y: f64, relative_error: f64) -> Self {
        let usable = y > 0.0 && relative_error >= 0.0;
        let error = if usable { y * relative_error.max(RELATIVE_ERROR_MIN) } else { f64::NAN };
        Self { x, y, weight: error.powi(-2) }
    }
}

/// A fitted line, y = intercept + slope x.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Value of y at x = 0, with its 95% interval.
    pub intercept: Interval,
    /// Change of y per unit of x, with its 95% interval.
    pub slope: Interval,
    /// Coefficient of determination (R squared) of the weighted fit, 0 to 1. The value is 1 if all
    /// y are equal.
    pub r2: f64,
    /// Measured minus fitted y, in the order of the points.
    pub residuals: Vec<f64>,
    slope_variance: f64,
    intercept_variance: f64,
    /// Covariance of intercept and slope.
    covariance: f64,
    /// Half-width of the 95% intervals, in standard errors.
    standard_errors: f64,
}

impl Line {
    /// Returns the value of the line at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept.value + self.slope.value * x
    }

    /// Returns the intercept divided by the slope, with its 95% interval by the delta method, which
    /// linearises the ratio. The interval is accurate if the slope is many times its standard
    /// error. The result is not finite if the slope is zero.
    pub fn intercept_over_slope(&self) -> Interval {
        let slope = self.slope.value;
        let ratio = self.intercept.value / slope;
        let variance = (self.intercept_variance - 2.0 * ratio * self.covariance
            + ratio * ratio * self.slope_variance)
            / (slope * slope);
        // Rounding can make the variance of a perfect fit slightly negative.
        Interval::symmetric(ratio, self.standard_errors * variance.max(0.0).sqrt())
    }
}

/// Fits the line that minimises the weighted sum of squared residuals.
///
/// # Errors
/// [`FitError::TooFewPoints`], [`FitError::SameSize`], or [`FitError::UnusablePoint`] if a
/// coordinate is not finite or a weight is not positive and finite.
pub fn line(points: &[Point]) -> Result<Line, FitError> {
    check(points)?;
    let total: f64 = points.iter().map(|p| p.weight).sum();
    let mean = |of: fn(&Point) -> f64| points.iter().map(|p| p.weight * of(p)).sum::<f64>() / total;
    let (mean_x, mean_y) = (mean(|p| p.x), mean(|p| p.y));
    let sum = |term: &dyn Fn(&Point) -> f64| points.iter().map(|p| p.weight * term(p)).sum::<f64>();
    let sxx = sum(&|p| (p.x - mean_x).powi(2));
    let syy = sum(&|p| (p.y - mean_y).powi(2));
    let slope = sum(&|p| (p.x - mean_x) * (p.y - mean_y)) / sxx;
    let intercept = mean_y - slope * mean_x;
    let residuals: Vec<f64> = points.iter().map(|p| p.y - (intercept + slope * p.x)).collect();

    let left: f64 = points.iter().zip(&residuals).map(|(p, r)| p.weight * r * r).sum();
    let freedom = (points.len() - 2) as f64;
    let scale = left / freedom;
    let slope_variance = scale / sxx;
    let intercept_variance = scale / total + mean_x * mean_x * slope_variance;
    let standard_errors = student_t(freedom);
    Ok(Line {
        intercept: Interval::symmetric(intercept, standard_errors * intercept_variance.sqrt()),
        slope: Interval::symmetric(slope, standard_errors * slope_variance.sqrt()),
        r2: if syy > 0.0 { (1.0 - left / syy).max(0.0) } else { 1.0 },
        residuals,
        slope_variance,
        intercept_variance,
        covariance: -mean_x * slope_variance,
        standard_errors,
    })
}

fn check(points: &[Point]) -> Result<(), FitError> {
    if points.len() < POINTS_MIN {
        return Err(FitError::TooFewPoints { points: points.len() });
    }
    let usable =
        |p: &Point| p.x.is_finite() && p.y.is_finite() && p.weight.is_finite() && p.weight > 0.0;
    if let Some(index) = points.iter().position(|p| !usable(p)) {
        return Err(FitError::UnusablePoint { index });
    }
    if points.iter().all(|p| p.x == points[0].x) {
        return Err(FitError::SameSize);
    }
    Ok(())
}

/// Returns the half-width, in standard errors, of the interval that contains [`CONFIDENCE`] of a
/// Student t distribution.
fn student_t(freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom)
        .expect("scale and degrees of freedom are positive: there are at least three points")
        .inverse_cdf(f64::midpoint(1.0, CONFIDENCE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn equal_weights(xy: &[(f64, f64)]) -> Vec<Point> {
        xy.iter().map(|&(x, y)| Point { x, y, weight: 1.0 }).collect()
    }

    fn near(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= 1e-4 * expected.abs()
    }

    #[test]
    fn student_t_agrees_with_the_table() {
        for (freedom, expected) in [
            (1.0, 12.7062),
            (2.0, 4.302_65),
            (3.0, 3.182_45),
            (5.0, 2.570_58),
            (10.0, 2.228_14),
            (30.0, 2.042_27),
        ] {
            assert!(near(student_t(freedom), expected), "{freedom}: {}", student_t(freedom));
        }
    }

    #[test]
    fn agrees_with_a_fit_worked_by_hand() {
        // The fitted line is y = 2.2 + 0.6 x. The sum of squared residuals is 2.4, the scale is
        // 0.8, Sxx is 10 and r2 is 0.6.
        let points = equal_weights(&[(1.0, 2.0), (2.0, 4.0), (3.0, 5.0), (4.0, 4.0), (5.0, 5.0)]);
        let l = line(&points).unwrap();
        assert!(near(l.intercept.value, 2.2) && near(l.slope.value, 0.6) && near(l.r2, 0.6));
        assert!(near(l.slope.high - 0.6, 3.182_45 * 0.08_f64.sqrt()));
        assert!(near(l.intercept.high - 2.2, 3.182_45 * 0.88_f64.sqrt()));
        assert!(near(l.residuals[0], -0.8) && near(l.at(10.0), 8.2));
    }

    #[test]
    fn a_weight_of_two_is_as_good_as_the_point_twice() {
        let xy = [(1.0, 2.0), (2.0, 4.1), (3.0, 5.0), (7.0, 9.0)];
        let mut weighted = equal_weights(&xy);
        weighted[1].weight = 2.0;
        let twice = equal_weights(&[&xy[..], &xy[1..2]].concat());
        let (a, b) = (line(&weighted).unwrap(), line(&twice).unwrap());
        assert!(near(a.intercept.value, b.intercept.value) && near(a.slope.value, b.slope.value));
    }

    #[test]
    fn equal_heights_make_a_flat_line_without_error() {
        let l = line(&equal_weights(&[(1.0, 5.0), (2.0, 5.0), (3.0, 5.0)])).unwrap();
        assert_eq!((l.slope.value, l.intercept.value, l.r2), (0.0, 5.0, 1.0));
    }

    #[test]
    fn unusable_points_give_an_error() {
        let few = equal_weights(&[(1.0, 1.0), (2.0, 2.0)]);
        assert_eq!(line(&few), Err(FitError::TooFewPoints { points: 2 }));
        let same = equal_weights(&[(4.0, 1.0), (4.0, 2.0), (4.0, 3.0)]);
        assert_eq!(line(&same), Err(FitError::SameSize));
        let wrong = equal_weights(&[(1.0, 1.0), (2.0, f64::NAN), (3.0, 3.0)]);
        assert_eq!(line(&wrong), Err(FitError::UnusablePoint { index: 1 }));
        for (y, error) in [(0.0, 0.1), (-1.0, 0.1), (1.0, -0.1), (1.0, f64::INFINITY)] {
            let mut points = equal_weights(&[(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]);
            points[2] = Point::with_relative_error(3.0, y, error);
            assert_eq!(line(&points), Err(FitError::UnusablePoint { index: 2 }));
        }
    }

    #[test]
    fn a_point_without_any_error_does_not_dictate_the_line() {
        let exact = Point::with_relative_error(1.0, 2.0, 0.0);
        assert_eq!(exact, Point::with_relative_error(1.0, 2.0, RELATIVE_ERROR_MIN));
    }

    proptest! {
        #[test]
        fn a_generated_line_is_recovered(
            a in -1e6..1e6f64, b in -1e3..1e3f64,
            at in proptest::collection::vec((0.0..1e6f64, 0.1..10.0f64), 3..30),
        ) {
            let points: Vec<Point> = at
                .iter()
                .enumerate()
                .map(|(i, &(x, weight))| {
                    let x = x + i as f64;
                    Point { x, y: a + b * x, weight }
                })
                .collect();
            let spread = points.iter().map(|p| p.x).fold(0.0, f64::max)
                - points.iter().map(|p| p.x).fold(f64::INFINITY, f64::min);
            prop_assume!(spread > 10.0);
            let l = line(&points).unwrap();
            let scale = a.abs() + b.abs() * 1e6;
            prop_assert!((l.intercept.value - a).abs() <= 1e-5 * scale.max(1.0));
            prop_assert!((l.slope.value - b).abs() <= 1e-5 * scale.max(1.0) / spread);
            prop_assert!(points.iter().all(|p| (l.at(p.x) - p.y).abs() <= 1e-5 * scale.max(1.0)));
        }

        #[test]
        fn r2_is_a_share_and_the_intervals_hold_their_values(
            xy in proptest::collection::vec((0.0..1e6f64, -1e6..1e6f64), 3..30),
        ) {
            let l = line(&equal_weights(&xy)).unwrap();
            prop_assert!((0.0..=1.0).contains(&l.r2));
            prop_assert!(l.slope.contains(l.slope.value));
            prop_assert!(l.intercept.contains(l.intercept.value));
        }
    }
}
