//! Defines limits for regressions. The user specifies a limit with `--fail-on`, for example `5%`,
//! `p99:10%` or `cpu:20%`.
//!
//! A change exceeds a limit if its verdict is worse and the change is larger than the limit.

use analysis::units;
use std::str::FromStr;

use crate::quantity::Quantity;
use crate::verdict::{Change, Comparison, PointChange, Verdict};

/// The largest regression of a quantity that is accepted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// The quantity to which the limit applies.
    pub quantity: Quantity,
    /// The largest accepted regression, as a share.
    pub share: f64,
}

impl Limit {
    /// Checks whether a change exceeds the limit.
    pub fn is_exceeded(&self, change: &Change) -> bool {
        let is_worse = change.quantity == self.quantity && change.verdict == Verdict::Worse;
        is_worse && (change.ratio.value - 1.0).abs() > self.share
    }

    /// Formats the limit as on the command line, such as `p99:10%`.
    pub fn describe(&self) -> String {
        format!("{}:{}%", self.quantity.name(), units::count(100.0 * self.share))
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        let (name, share) = text.split_once(':').unwrap_or((Quantity::Rate.name(), text));
        Ok(Limit { quantity: name.parse()?, share: parse_share(share)? })
    }
}

/// Reads a share such as `5%`.
///
/// # Errors
/// The text does not end with `%`, or the number is not above 0 and at most 1000.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let share =
        number.map(|percent| percent / 100.0).filter(|share| *share > 0.0 && *share <= 10.0);
    share.ok_or_else(|| {
        format!("'{text}' is not valid; use a percentage above 0% and up to 1000%, such as 5%")
    })
}

/// Returns the changes that exceed a limit, each with its point.
pub fn exceeded<'a>(
    comparison: &'a Comparison,
    limits: &[Limit],
) -> Vec<(&'a PointChange, &'a Change)> {
    let exceeds = |change: &&Change| limits.iter().any(|limit| limit.is_exceeded(change));
    let of = |point: &'a PointChange| {
        point.changes.iter().filter(exceeds).map(move |change| (point, change))
    };
    comparison.points.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_names_its_quantity_or_means_the_rate() {
        let rate = "5%".parse::<Limit>().unwrap();
        assert_eq!(rate, Limit { quantity: Quantity::Rate, share: 0.05 });
        let p99 = "p99:10%".parse::<Limit>().unwrap();
        assert_eq!(p99, Limit { quantity: Quantity::P99, share: 0.1 });
        assert_eq!(p99.describe(), "p99:10%");
        for wrong in ["5", "p98:5%", "-1%", "%", "nan%", "inf%", ""] {
            assert!(wrong.parse::<Limit>().is_err(), "{wrong}");
        }
    }
}
