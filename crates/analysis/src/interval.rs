//! A value with its confidence interval.
//!
//! Every estimate of this crate is an [`Interval`], so that no number is shown without its
//! uncertainty. Each function that returns an interval documents the method and the confidence
//! level.

/// Confidence level of all fits in this crate: 95%. The repeatability rule (the interval of the
/// median must be within 3%) uses the same level.
pub const CONFIDENCE: f64 = 0.95;

/// An estimate and the bounds of its interval, in the unit of the estimate.
///
/// `low <= high` always holds. In every interval that this crate computes, `value` lies between the
/// two bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Lower bound of the interval.
    pub low: f64,
    /// Upper bound of the interval.
    pub high: f64,
}

impl Interval {
    /// Creates an interval of zero width, for a value that is known exactly, or for a single
    /// measurement whose spread is unknown.
    pub fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// Creates the interval from `value - half_width` to `value + half_width`.
    pub fn symmetric(value: f64, half_width: f64) -> Self {
        Self { value, low: value - half_width, high: value + half_width }
    }

    /// Returns half of the width as a share of the absolute value: 0.03 means "within 3%".
    ///
    /// The result is zero for an interval of zero width, and infinite for any other interval whose
    /// value is zero.
    pub fn half_width_relative(&self) -> f64 {
        let half_width = (self.high - self.low) / 2.0;
        if half_width == 0.0 { 0.0 } else { half_width / self.value.abs() }
    }

    /// Checks whether `x` lies in the interval, bounds included.
    pub fn contains(&self, x: f64) -> bool {
        (self.low..=self.high).contains(&x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_width_is_relative_to_the_magnitude_of_the_value() {
        let i = Interval { value: -200.0, low: -206.0, high: -194.0 };
        assert!((i.half_width_relative() - 0.03).abs() < 1e-12);
        assert_eq!(Interval::symmetric(0.0, 1.0).half_width_relative(), f64::INFINITY);
        assert_eq!(Interval::exact(0.0).half_width_relative(), 0.0);
    }

    #[test]
    fn contains_its_bounds_and_nothing_beyond() {
        let i = Interval::symmetric(10.0, 2.0);
        assert!(i.contains(8.0) && i.contains(12.0) && i.contains(i.value));
        assert!(!i.contains(7.99) && !i.contains(12.01) && !i.contains(f64::NAN));
    }
}
