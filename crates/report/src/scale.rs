//! Computes positions of values on an axis, and the ticks of the axis.
//!
//! A [`Projection`] is built from the values that an axis must show, and from the range of drawing
//! units that the axis covers. The axis is extended to round values at both ends. On a linear axis,
//! the ends are round in the displayed unit (MiB/s, not bytes/s). On a logarithmic axis, the ends
//! are powers of two, or 1, 2 or 5 times a power of ten. Values that cannot be drawn have no
//! position.

use crate::model::Scale;
use crate::units::{AxisUnit, Unit, trimmed};

/// Maximum value that is drawn. It is far above any quantity of a storage system, but small enough
/// that sums of values stay finite.
const LARGEST: f64 = 1e30;

/// Maximum number of labels on an axis whose labels are powers of two or ten.
const MAX_LABELS: usize = 9;

/// Maximum number of labels on narrow screens. If an axis has more labels, narrow screens omit the
/// labels that are marked as spare.
const MAX_LABELS_NARROW: usize = 5;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    /// Position in drawing units.
    pub position: f64,
    /// Text of the label. None for a minor tick, which has no label.
    pub label: Option<String>,
    /// Whether the label is omitted on narrow screens.
    pub spare: bool,
}

/// Mapping from the values of an axis to positions in drawing units.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Projection {
    kind: Kind,
    unit: Unit,
    first: f64,
    last: f64,
    start: f64,
    end: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Linear {
        axis_unit: AxisUnit,
        step: f64,
    },
    Log {
        base: f64,
    },
    /// Percentiles. The position of a share is its number of nines: 1 for 90%, 2 for 99%.
    Percentile,
}

impl Projection {
    /// Creates the projection of an axis that must show `values`. The axis extends from `start` to
    /// `end` in drawing units. Returns None if no value can be drawn.
    pub(crate) fn new(
        scale: &Scale,
        unit: Unit,
        values: impl Iterator<Item = f64>,
        (start, end): (f64, f64),
    ) -> Option<Self> {
        let base = match scale {
            Scale::Linear | Scale::Category(_) | Scale::Percentile => None,
            Scale::Log2 => Some(2.0),
            Scale::Log10 => Some(10.0),
        };
        let percentile = *scale == Scale::Percentile;
        let drawable = |value: &f64| {
            let scaled = !percentile || (0.0..1.0).contains(value);
            scaled && value.abs() <= LARGEST && (base.is_none() || *value >= 1.0 / LARGEST)
        };
        let (low, high) =
            values.filter(drawable).fold(None, |ends: Option<(f64, f64)>, value| {
                Some(ends.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
            })?;
        let (kind, first, last) = match base {
            None if percentile => (Kind::Percentile, nines(low), nines(high).max(nines(low) + 1.0)),
            None => linear_ends(unit, low, high),
            Some(base) => log_ends(base, low, high),
        };
        Some(Self { kind, unit, first, last, start, end })
    }

    /// Returns the position of `value`. None if the value cannot be drawn or is outside the axis.
    pub(crate) fn position(&self, value: f64) -> Option<f64> {
        let along = match self.kind {
            Kind::Linear { .. } => value,
            Kind::Log { .. } if value <= 0.0 => return None,
            Kind::Log { base } => value.ln() / base.ln(),
            Kind::Percentile if !(0.0..1.0).contains(&value) => return None,
            Kind::Percentile => nines(value),
        };
        let share = (along - self.first) / (self.last - self.first);
        let inside = (-0.001..=1.001).contains(&share);
        inside.then_some(self.start + share * (self.end - self.start))
    }

    /// Formats the axis for the script of the page. The fields are the scale, the values at both
    /// ends, the positions of both ends in the drawing, the divisor of the displayed unit, and the
    /// base unit. If the axis is not linear, the values are logarithms or numbers of nines, and the
    /// divisor is 1.
    pub(crate) fn for_script(&self) -> String {
        let (scale, divisor) = match self.kind {
            Kind::Linear { axis_unit, .. } => ("linear", axis_unit.divisor),
            Kind::Log { base: 2.0 } => ("log2", 1.0),
            Kind::Log { .. } => ("log10", 1.0),
            Kind::Percentile => ("percentile", 1.0),
        };
        let unit = match self.unit {
            Unit::PerSecond | Unit::Count => "count",
            other => other.csv_suffix(),
        };
        let Self { first, last, start, end, .. } = self;
        format!("{scale} {first} {last} {start} {end} {divisor} {unit}")
    }

    /// Returns the unit for the axis label. Empty if the tick labels contain the unit.
    pub(crate) fn suffix(&self) -> &'static str {
        match self.kind {
            Kind::Linear { axis_unit, .. } => axis_unit.suffix,
            Kind::Log { .. } | Kind::Percentile => "",
        }
    }

    /// Returns the ticks, in ascending order of value.
    pub(crate) fn ticks(&self) -> Vec<Tick> {
        let mut ticks = match self.kind {
            Kind::Linear { axis_unit, step } => self.linear_ticks(axis_unit, step),
            Kind::Log { base } if base == 2.0 => self.power_ticks(base),
            Kind::Log { .. } => self.decade_ticks(),
            Kind::Percentile => self.percentile_ticks(),
        };
        let labels = ticks.iter().filter(|tick| tick.label.is_some()).count();
        if labels <= MAX_LABELS_NARROW {
            ticks.iter_mut().for_each(|tick| tick.spare = false);
        }
        ticks
    }

    fn linear_ticks(&self, axis_unit: AxisUnit, step: f64) -> Vec<Tick> {
        let first = (self.first / step).round() as i64;
        let last = (self.last / step).round() as i64;
        let tick = |index: i64| {
            let value = index as f64 * step;
            Some(Tick {
                position: self.position(value)?,
                label: Some(trimmed(value / axis_unit.divisor)),
                spare: index % 2 != 0,
            })
        };
        (first..=last).filter_map(tick).collect()
    }

    /// Returns ticks at powers of the base. If there are too many powers to label all of them, only
    /// every second, fourth ... power has a label. The labels of a size axis may then be 4 KiB, 64
    /// KiB, 1 MiB.
    fn power_ticks(&self, base: f64) -> Vec<Tick> {
        let (first, last) = (self.first.ceil() as i64, self.last.floor() as i64);
        let span = last - first;
        let mut step = 1;
        while span / step >= MAX_LABELS as i64 {
            step *= 2;
        }
        let tick = |exponent: i64| {
            let labelled = exponent % step == 0;
            if !labelled && span > 32 {
                return None;
            }
            let value = base.powf(exponent as f64);
            Some(Tick {
                position: self.position(value)?,
                label: labelled.then(|| self.unit.tick(value)),
                spare: exponent % (2 * step) != 0,
            })
        };
        (first..=last).filter_map(tick).collect()
    }

    /// Returns ticks at 50%, 90%, 99%, 99.9% ...
    fn percentile_ticks(&self) -> Vec<Tick> {
        let nines = (self.first.ceil().max(1.0) as i32..=self.last.floor() as i32).enumerate();
        let tick = |share: f64, spare| {
            let label = Some(self.unit.tick(share));
            Some(Tick { position: self.position(share)?, label, spare })
        };
        let others =
            nines.filter_map(|(index, nines)| tick(1.0 - 10f64.powi(-nines), index % 2 != 0));
        tick(0.5, false).into_iter().chain(others).collect()
    }

    /// Returns ticks at 1, 2 ... 9 times each power of ten. Powers of ten have labels. On an axis
    /// of at most 2.5 decades, the ticks at 2 and 5 times a power of ten have labels too.
    fn decade_ticks(&self) -> Vec<Tick> {
        let span = self.last - self.first;
        if span > 4.0 {
            return self.power_ticks(10.0);
        }
        let tick = |exponent: i64, digit: i64| {
            let value = digit as f64 * 10f64.powf(exponent as f64);
            let labelled = digit == 1 || (span <= 2.5 && (digit == 2 || digit == 5));
            Some(Tick {
                position: self.position(value)?,
                label: labelled.then(|| self.unit.tick(value)),
                spare: digit != 1,
            })
        };
        let decades = self.first.floor() as i64..=self.last.ceil() as i64;
        decades
            .flat_map(|exponent| (1..10).filter_map(move |digit| tick(exponent, digit)))
            .collect()
    }
}

/// Returns the number of nines of a share below 1: 1 for 90%, 2 for 99%.
fn nines(share: f64) -> f64 {
    -(1.0 - share).log10()
}

/// Returns the step and the two ends of a linear axis. The axis includes zero, `low` and `high`.
/// The ends are multiples of the step, which is a round number and about a fifth of the range.
fn linear_ends(unit: Unit, low: f64, high: f64) -> (Kind, f64, f64) {
    let (low, high) = (low.min(0.0), high.max(0.0));
    let axis_unit = unit.axis_unit(high.max(-low));
    let span = if high > low { high - low } else { axis_unit.divisor };
    let rough = span / axis_unit.divisor / 5.0;
    let magnitude = 10f64.powf(rough.log10().floor());
    let round = [1.0, 2.0, 2.5, 5.0, 10.0];
    let factor = round.into_iter().find(|f| f * magnitude >= rough * 0.999).unwrap_or(10.0);
    let step = factor * magnitude * axis_unit.divisor;
    let last = ((high / step - 1e-9).ceil() * step).max(if low < 0.0 { 0.0 } else { step });
    (Kind::Linear { axis_unit, step }, (low / step + 1e-9).floor() * step, last)
}

/// Returns the two ends of a logarithmic axis as exponents of the base. The axis includes `low` and
/// `high`. For base 2, each end is 0.4 (a margin) beyond an integer exponent. For base 10, each end
/// is 1, 2 or 5 times a power of ten.
fn log_ends(base: f64, low: f64, high: f64) -> (Kind, f64, f64) {
    let exponent = |value: f64| value.ln() / base.ln();
    let (low, high) = (exponent(low), exponent(high));
    let (first, last) = if base == 2.0 {
        ((low + 1e-9).floor() - 0.4, (high - 1e-9).ceil() + 0.4)
    } else {
        let stops = [0.0, 2f64.log10(), 5f64.log10(), 1.0];
        let below = stops.into_iter().rev().find(|stop| *stop <= low.rem_euclid(1.0) + 1e-9);
        let above = stops.into_iter().find(|stop| *stop >= high.rem_euclid(1.0) - 1e-9);
        (low.floor() + below.unwrap_or(0.0), high.floor() + above.unwrap_or(1.0))
    };
    let last = if last > first { last } else { first + 1.0 };
    (Kind::Log { base }, first, last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(scale: &Scale, unit: Unit, values: &[f64]) -> Vec<String> {
        let axis = Projection::new(scale, unit, values.iter().copied(), (0.0, 500.0)).unwrap();
        axis.ticks().into_iter().filter_map(|tick| tick.label).collect()
    }

    #[test]
    fn a_size_axis_is_labelled_in_round_sizes() {
        let labels = labels(&Scale::Log2, Unit::Bytes, &[512.0, 16.0 * 1024.0 * 1024.0]);
        for wanted in ["4 KiB", "64 KiB", "1 MiB", "16 MiB"] {
            assert!(labels.iter().any(|label| label == wanted), "{wanted} not in {labels:?}");
        }
        assert!(labels.len() <= MAX_LABELS);
    }

    #[test]
    fn a_narrow_size_axis_keeps_every_sixteenfold_label() {
        let values = [512.0, 16.0 * 1024.0 * 1024.0];
        let axis =
            Projection::new(&Scale::Log2, Unit::Bytes, values.into_iter(), (0.0, 1.0)).unwrap();
        let kept: Vec<_> = axis.ticks().into_iter().filter(|tick| !tick.spare).collect();
        let kept: Vec<_> = kept.into_iter().filter_map(|tick| tick.label).collect();
        assert_eq!(kept, ["4 KiB", "64 KiB", "1 MiB", "16 MiB"]);
    }

    #[test]
    fn a_rate_axis_is_round_in_mib_per_second() {
        let top = 3_400.0 * 1024.0 * 1024.0;
        let labels = labels(&Scale::Linear, Unit::BytesPerSecond, &[1e6, top]);
        assert_eq!(labels, ["0", "1,000", "2,000", "3,000", "4,000"]);
    }

    #[test]
    fn a_time_axis_of_few_decades_has_twos_and_fives() {
        let labels = labels(&Scale::Log10, Unit::Nanoseconds, &[45e3, 3e6]);
        assert_eq!(
            labels,
            ["20 us", "50 us", "100 us", "200 us", "500 us", "1 ms"]
                .into_iter()
                .chain(["2 ms", "5 ms"])
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn residuals_around_zero_show_zero() {
        let labels = labels(&Scale::Linear, Unit::Share, &[-0.08, 0.11]);
        assert!(labels.contains(&"0".to_string()), "{labels:?}");
        assert!(labels.iter().any(|label| label.starts_with('\u{2212}')), "{labels:?}");
    }

    #[test]
    fn values_that_cannot_be_drawn_have_no_axis() {
        let none = [f64::NAN, f64::INFINITY, 1e300];
        for scale in [Scale::Linear, Scale::Log2, Scale::Log10] {
            assert!(Projection::new(&scale, Unit::Count, none.into_iter(), (0.0, 1.0)).is_none());
        }
        let zero = Projection::new(&Scale::Log2, Unit::Count, [0.0].into_iter(), (0.0, 1.0));
        assert!(zero.is_none());
    }

    #[test]
    fn one_value_still_makes_an_axis() {
        for scale in [Scale::Linear, Scale::Log2, Scale::Log10] {
            for value in [1.0, 4096.0, 7.0] {
                let axis =
                    Projection::new(&scale, Unit::Count, [value].into_iter(), (0.0, 1.0)).unwrap();
                assert!(axis.position(value).is_some(), "{scale:?} {value}");
                assert!(!axis.ticks().is_empty());
            }
        }
        assert!(!labels(&Scale::Linear, Unit::Count, &[0.0]).is_empty());
    }

    proptest! {
        #[test]
        fn every_drawable_value_lies_on_its_axis_and_ticks_stay_few(
            values in proptest::collection::vec(-1e12f64..1e12, 1..40),
            scale in prop_oneof![Just(Scale::Linear), Just(Scale::Log2), Just(Scale::Log10)],
        ) {
            let log = scale != Scale::Linear;
            let made = Projection::new(&scale, Unit::Count, values.iter().copied(), (0.0, 500.0));
            let Some(axis) = made else {
                prop_assert!(log && values.iter().all(|value| *value <= 0.0));
                return Ok(());
            };
            for value in values.iter().filter(|value| !log || **value > 0.0) {
                let position = axis.position(*value);
                prop_assert!(position.is_some_and(|at| (-1.0..=501.0).contains(&at)));
            }
            let ticks = axis.ticks();
            let labelled = ticks.iter().filter(|tick| tick.label.is_some()).count();
            prop_assert!((1..=10).contains(&labelled), "{labelled} labels");
            prop_assert!(ticks.windows(2).all(|pair| pair[0].position < pair[1].position));
        }
    }
}
