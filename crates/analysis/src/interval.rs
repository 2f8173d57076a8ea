//! A value with its confidence interval.
//!
//! Every estimate of this crate is an [`Interval`], so that no number is shown without its
//! uncertainty. The function that returns an interval documents its method and confidence.

/// Confidence of all fits in this crate: 95%, as in the repeatability rule (the interval of the
/// median within 3%).
pub const CONFIDENCE: f64 = 0.95;

/// An estimate and the bounds of its interval, in the unit of the estimate.
///
/// `low <= high` always holds. `value` lies between them for every interval made by this crate.
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
    /// An interval of zero width: for a value known exactly, or measured only once so that its
    /// spread is unknown.
    pub fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// The interval `value - half_width` to `value + half_width`.
    pub fn symmetric(value: f64, half_width: f64) -> Self {
        Self { value, low: value - half_width, high: value + half_width }
    }

    /// Half the width as a share of the absolute value: 0.03 is "within 3%".
    ///
    /// Zero for an interval of zero width; infinite for any other interval around zero.
    pub fn half_width_relative(&self) -> f64 {
        let half_width = (self.high - self.low) / 2.0;
        if half_width == 0.0 { 0.0 } else { half_width / self.value.abs() }
    }

    /// Whether `x` lies in the interval, bounds included.
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
