//! Formats the result of a self-test as a JSON document and as a table.

use schemars::JsonSchema;
use serde::Serialize;

use super::Quantity;
use crate::json::Program;
use crate::machine::Host;

/// The document that `selftest --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SelftestDocument {
    /// The program that wrote the document.
    pub halfpower: Program,
    /// The machine on which the self-test ran.
    pub host: Host,
    /// How the reference devices were served: fuse or delay.
    pub device: String,
    /// All quantities.
    pub quantities: Vec<Quantity>,
    /// Whether all quantities passed.
    pub pass: bool,
}

/// Formats the quantities as a table.
pub fn lines(quantities: &[Quantity]) -> Vec<String> {
    let row = |cells: [&str; 7]| {
        let [name, truth, measured, error, limit, path, pass] = cells;
        let line = format!("{name:<24} {truth:>9} {measured:>15} {error:>8} {limit:>6} {path:>10}");
        format!("{line}  {pass}").trim_end().to_owned()
    };
    let head = row(["quantity", "truth", "measured", "error", "limit", "path", ""]);
    let mut lines = vec![head];
    for quantity in quantities {
        let name = format!("{} ({})", quantity.quantity, quantity.unit);
        let number = |value: f64| significant(value);
        let measured = match (quantity.bounds, quantity.measured) {
            (Some((low, high)), _) => format!("{} to {}", number(low), number(high)),
            (None, Some(value)) => number(value),
            (None, None) => "-".to_owned(),
        };
        let error = quantity.error.map_or("-".to_owned(), |e| format!("{:+.2}%", e * 100.0));
        let path = quantity.path.map_or("-".to_owned(), number);
        let pass = match (&quantity.skipped, quantity.pass) {
            (Some(why), _) => format!("skipped: {why}"),
            (None, true) => "pass".to_owned(),
            (None, false) => "FAIL".to_owned(),
        };
        let limit = format!("{:.0}%", quantity.tolerance * 100.0);
        let truth = number(quantity.truth);
        lines.push(row([&name, &truth, &measured, &error, &limit, &path, &pass]));
    }
    lines.push(
        "\npath: overhead of the I/O path (system calls, FUSE, wake-ups), in the unit of the row. \
         The\noverhead was measured on a device without delay and subtracted. If a lower and an \
         upper bound were\nmeasured, the truth must lie between these bounds, and the bounds must \
         not differ by more than\nthe limit."
            .to_owned(),
    );
    lines
}

/// Formats a value with four significant digits.
fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let digits = (3.0 - value.abs().log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_significant_digits() {
        assert_eq!(significant(1000.0), "1000");
        assert_eq!(significant(2.0), "2.000");
        assert_eq!(significant(244.14), "244.1");
        assert_eq!(significant(123_456.0), "123456");
        assert_eq!(significant(0.0), "0");
    }
}
