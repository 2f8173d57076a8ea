//! Formats numbers for the axes, tooltips and tables of the HTML page.
//!
//! Every quantity of the report is stored in a base unit (bytes, bytes per second, nanoseconds,
//! counts, shares) and becomes text only here. Sizes use powers of 1024. Rates are shown in MiB/s,
//! and also in MB/s where they may be compared with a data sheet. Measured values keep three
//! significant digits.

const KIB: f64 = 1024.0;
const MIB: f64 = KIB * 1024.0;
const GIB: f64 = MIB * 1024.0;
const TIB: f64 = GIB * 1024.0;

/// Text that is shown for a number that is missing, infinite or NaN: an en dash.
pub const MISSING: &str = "\u{2013}";

/// The base unit of an axis or a table column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A size in bytes, shown as B, KiB, MiB, GiB or TiB.
    Bytes,
    /// A rate in bytes per second, shown in MiB/s and MB/s.
    BytesPerSecond,
    /// A rate in requests or other events per second, shown with k and M.
    PerSecond,
    /// A duration in nanoseconds, shown as ns, us, ms or s.
    Nanoseconds,
    /// A duration in seconds, for the time axis of a trial.
    Seconds,
    /// A count, shown with k and M if it is one thousand or more.
    Count,
    /// A share, for example 0.05, shown in percent.
    Share,
    /// A percentile as a share, for example 0.9999, shown as `99.99%`.
    Percentile,
}

/// How a linear axis shows numbers: each number is divided by `divisor`, and `suffix` is written
/// once beside the axis label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AxisUnit {
    /// Number of base units in one displayed unit.
    pub divisor: f64,
    /// Name of the displayed unit, empty for plain counts.
    pub suffix: &'static str,
}

impl Unit {
    /// Formats a value with its unit, for tooltips and tables. The text has three significant
    /// digits, or is [`MISSING`] if the value is not finite.
    pub fn format(self, value: f64) -> String {
        match self {
            Unit::Bytes => bytes(value),
            Unit::BytesPerSecond => rate(value),
            Unit::PerSecond => per_second(value),
            Unit::Nanoseconds => nanoseconds(value),
            Unit::Seconds => nanoseconds(value * 1e9),
            Unit::Count => count(value),
            Unit::Share => percent(value),
            Unit::Percentile => percentile(value),
        }
    }

    /// Formats a value for an axis tick, without unneeded zeros: `64 KiB`, `10 ms`. Shares below
    /// 0.01% are shown in parts per million.
    pub fn tick(self, value: f64) -> String {
        let scaled = |units, gap| scaled(value, units, gap, Zeros::Drop);
        match self {
            Unit::Bytes => scaled(SIZES, " "),
            Unit::BytesPerSecond => scaled(RATES, " "),
            Unit::Nanoseconds => scaled(TIMES, " "),
            Unit::Seconds => self.format(value),
            Unit::Count | Unit::PerSecond => scaled(COUNTS, ""),
            Unit::Share if value.abs() > 0.0 && value.abs() < 0.99e-4 => {
                format!("{} ppm", trimmed(value * 1e6))
            }
            Unit::Share => format!("{}%", trimmed(value * 100.0)),
            Unit::Percentile => percentile(value),
        }
    }

    /// Returns the unit for a linear axis whose largest value is `largest`.
    pub fn axis_unit(self, largest: f64) -> AxisUnit {
        let pick = |units: &[(f64, &'static str)]| {
            let unit = units.iter().rev().find(|unit| largest >= unit.0).unwrap_or(&units[0]);
            AxisUnit { divisor: unit.0, suffix: unit.1 }
        };
        match self {
            Unit::Bytes => pick(SIZES),
            Unit::BytesPerSecond => pick(&[(KIB, "KiB/s"), (MIB, "MiB/s")]),
            Unit::PerSecond => pick(&[(1.0, ""), (1e3, "thousands")]),
            Unit::Nanoseconds => pick(TIMES),
            Unit::Seconds => AxisUnit { divisor: 1.0, suffix: "s" },
            Unit::Count => AxisUnit { divisor: 1.0, suffix: "" },
            Unit::Share | Unit::Percentile => AxisUnit { divisor: 0.01, suffix: "%" },
        }
    }

    /// Returns the base unit as a suffix for the name of a CSV column. Empty for counts.
    pub fn csv_suffix(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::BytesPerSecond => "bytes_per_s",
            Unit::PerSecond => "per_s",
            Unit::Nanoseconds => "ns",
            Unit::Seconds => "s",
            Unit::Count => "",
            Unit::Share | Unit::Percentile => "share",
        }
    }
}

const SIZES: &[(f64, &str)] = &[(1.0, "B"), (KIB, "KiB"), (MIB, "MiB"), (GIB, "GiB"), (TIB, "TiB")];
const RATES: &[(f64, &str)] = &[(1.0, "B/s"), (KIB, "KiB/s"), (MIB, "MiB/s"), (GIB, "GiB/s")];
const TIMES: &[(f64, &str)] = &[(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")];
const COUNTS: &[(f64, &str)] = &[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")];

/// Whether trailing zeros after the decimal point are kept (measured values) or dropped (ticks).
#[derive(Clone, Copy, PartialEq)]
enum Zeros {
    Keep,
    Drop,
}

/// Formats a size in bytes: `512 B`, `64 KiB`, `1.5 MiB`.
pub fn bytes(value: f64) -> String {
    scaled(value, SIZES, " ", Zeros::Drop)
}

/// Formats a rate in MiB/s and, for comparison with data sheets, in MB/s: `1,252 MiB/s (1,313
/// MB/s)`.
pub fn rate(bytes_per_s: f64) -> String {
    if !bytes_per_s.is_finite() {
        return MISSING.to_string();
    }
    let binary = significant(bytes_per_s / MIB, Zeros::Keep);
    let decimal = significant(bytes_per_s / 1e6, Zeros::Keep);
    format!("{binary} MiB/s ({decimal} MB/s)")
}

/// Formats a number of events per second: `76.5k/s`.
pub fn per_second(value: f64) -> String {
    if value.is_finite() { format!("{}/s", count(value)) } else { MISSING.to_string() }
}

/// Formats a duration in nanoseconds with three significant digits: `518 ns`, `1.50 ms`.
pub fn nanoseconds(value: f64) -> String {
    scaled(value, TIMES, " ", Zeros::Keep)
}

/// Formats a count. Integers below one thousand are unchanged. Other values have three significant
/// digits: `1.23k`, `76.5k`, `1.20M`.
pub fn count(value: f64) -> String {
    let zeros = if value.abs() < 1e3 && value.fract() == 0.0 { Zeros::Drop } else { Zeros::Keep };
    scaled(value, COUNTS, "", zeros)
}

/// Formats a share in percent with three significant digits: `93.1%`.
pub fn percent(share: f64) -> String {
    if !share.is_finite() {
        return MISSING.to_string();
    }
    format!("{}%", significant(share * 100.0, Zeros::Keep))
}

/// Formats a percentile, given as a share, in percent without unneeded zeros: `50%`, `99.9%`,
/// `99.995%`.
pub fn percentile(share: f64) -> String {
    if !share.is_finite() {
        return MISSING.to_string();
    }
    let nines = -(1.0 - share).max(1e-12).log10();
    let text = format!("{:.*}", nines.ceil().clamp(1.0, 12.0) as usize, share * 100.0);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}%")
}

/// Formats a number for an axis whose unit is written elsewhere: thousands are separated, and
/// unneeded zeros are dropped.
pub fn trimmed(value: f64) -> String {
    if !value.is_finite() {
        return MISSING.to_string();
    }
    significant(value, Zeros::Drop)
}

/// Formats `value` in the largest of `units` in which it is at least 1 after rounding. For example,
/// 999.9 us becomes 1 ms.
fn scaled(value: f64, units: &[(f64, &str)], gap: &str, zeros: Zeros) -> String {
    if !value.is_finite() {
        return MISSING.to_string();
    }
    let mut unit = units[0];
    for larger in &units[1..] {
        if as_shown(value.abs() / unit.0) * unit.0 >= larger.0 {
            unit = *larger;
        }
    }
    let number = significant(value / unit.0, zeros);
    if unit.1.is_empty() { number } else { format!("{number}{gap}{}", unit.1) }
}

/// Formats a number with three significant digits, but keeps all digits before the decimal point.
/// Commas separate thousands.
fn significant(value: f64, zeros: Zeros) -> String {
    if value == 0.0 {
        return "0".to_string();
    }
    let mut text = format!("{value:.*}", decimals(value));
    if zeros == Zeros::Drop && text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    let text = separate_thousands(&text);
    text.strip_prefix('-').map(|rest| format!("\u{2212}{rest}")).unwrap_or(text)
}

/// Returns the number of decimals that show three significant digits after rounding.
fn decimals(value: f64) -> usize {
    let rounded = format!("{value:.2e}");
    let exponent = rounded.rsplit_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok());
    (2 - exponent.unwrap_or(0)).clamp(0, 12) as usize
}

/// Returns `value` rounded to the digits that are shown.
fn as_shown(value: f64) -> f64 {
    format!("{value:.*}", decimals(value)).parse().unwrap_or(value)
}

/// Inserts commas between groups of three digits before the decimal point.
fn separate_thousands(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, fraction) = rest.split_once('.').map_or((rest, None), |(w, f)| (w, Some(f)));
    let mut out = sign.to_string();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(4096.0), "4 KiB");
        assert_eq!(bytes(65536.0), "64 KiB");
        assert_eq!(bytes(1.5 * MIB), "1.5 MiB");
        assert_eq!(bytes(16.0 * GIB), "16 GiB");
        assert_eq!(bytes(1000.0), "1,000 B");
    }

    #[test]
    fn rates_are_given_in_both_units() {
        assert_eq!(rate(1_313_000_000.0), "1,252 MiB/s (1,313 MB/s)");
        assert_eq!(rate(52_428_800.0), "50.0 MiB/s (52.4 MB/s)");
    }

    #[test]
    fn times_keep_three_significant_digits() {
        assert_eq!(nanoseconds(518.0), "518 ns");
        assert_eq!(nanoseconds(1500.0), "1.50 us");
        assert_eq!(nanoseconds(2.345e6), "2.35 ms");
        assert_eq!(nanoseconds(12.0e9), "12.0 s");
        assert_eq!(nanoseconds(0.0), "0 ns");
    }

    #[test]
    fn rounding_up_moves_to_the_next_unit() {
        assert_eq!(nanoseconds(999.9), "1.00 us");
        assert_eq!(nanoseconds(999.5), "1.00 us");
        assert_eq!(nanoseconds(9.996), "10.0 ns");
        assert_eq!(count(999_999.0), "1.00M");
        assert_eq!(bytes(1_048_575.9), "1 MiB");
    }

    #[test]
    fn counts_use_k_and_m() {
        assert_eq!(count(32.0), "32");
        assert_eq!(count(1234.0), "1.23k");
        assert_eq!(per_second(76_500.0), "76.5k/s");
        assert_eq!(Unit::Count.tick(128.0), "128");
    }

    #[test]
    fn shares_become_percent_and_negatives_a_true_minus() {
        assert_eq!(percent(0.931), "93.1%");
        assert_eq!(percent(-0.05), "\u{2212}5.00%");
        assert_eq!(Unit::Share.tick(0.001), "0.1%");
        assert_eq!(Unit::Share.tick(1e-6), "1 ppm");
    }

    #[test]
    fn a_percentile_keeps_its_nines() {
        for (share, text) in [
            (0.5, "50%"),
            (0.9, "90%"),
            (0.975, "97.5%"),
            (0.999_9, "99.99%"),
            (0.999_975, "99.9975%"),
            (1.0, "100%"),
            (0.0, "0%"),
        ] {
            assert_eq!(percentile(share), text);
        }
    }

    #[test]
    fn what_is_not_finite_is_a_dash() {
        for unit in
            [Unit::Percentile, Unit::Bytes, Unit::BytesPerSecond, Unit::Nanoseconds, Unit::Count]
        {
            assert_eq!(unit.format(f64::NAN), MISSING);
            assert_eq!(unit.format(f64::INFINITY), MISSING);
        }
    }

    #[test]
    fn a_linear_axis_names_its_unit_once() {
        let unit = Unit::BytesPerSecond.axis_unit(3e9);
        assert_eq!((unit.divisor, unit.suffix), (MIB, "MiB/s"));
        assert_eq!(Unit::Nanoseconds.axis_unit(5e6).suffix, "ms");
        assert_eq!(Unit::Nanoseconds.axis_unit(0.0).suffix, "ns");
    }

    proptest! {
        #[test]
        fn formatting_loses_at_most_half_of_the_third_digit(value in 1.0f64..1e12) {
            let text = nanoseconds(value);
            let (number, unit) = text.split_once(' ').unwrap();
            let factor = TIMES.iter().find(|entry| entry.1 == unit).unwrap().0;
            let read: f64 = number.replace(',', "").parse().unwrap();
            prop_assert!((read * factor / value - 1.0).abs() < 0.0051, "{text} for {value}");
        }
    }
}
