//! The result of a self-test: the JSON document, and the table as text.

use schemars::JsonSchema;
use serde::Serialize;

use super::Quantity;
use crate::json::Program;
use crate::machine::Host;

/// What `--json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SelftestDocument {
    /// The program.
    pub halfpower: Program,
    /// The machine.
    pub host: Host,
    /// How the reference devices were made: fuse or delay.
    pub device: String,
    /// All quantities.
    pub quantities: Vec<Quantity>,
    /// Whether all quantities passed.
    pub pass: bool,
}

/// The table of the quantities, as text.
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
        "\npath: cost of the same device without delay (system calls, FUSE, wake-ups), in the unit \
         of the\nrow; it is subtracted. Bounds: the truth must lie between them, and they must not \
         differ by\nmore than the limit."
            .to_owned(),
    );
    lines
}

/// The value with four significant digits.
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
