//! Parses and formats sizes, durations and rates.
//!
//! On input, k, m, g, t, KiB, MiB ... are powers of 1024, and KB, MB ... are powers of 1000. A time
//! without a unit is in seconds. Rates that may be compared with advertised rates are shown in
//! MiB/s and MB/s. The functions here format values for the terminal. The functions of [`page`]
//! format values for charts and tables of the HTML page, with commas between thousands.

pub mod page;

/// Exclusive upper limit of sizes (bytes) and times (ns). Larger values are refused, because a file
/// cannot have such a size and the database cannot store such a value.
const LIMIT: u128 = 9_000_000_000_000_000_000;

/// Parses a size such as `4k`, `64KiB`, `1.5g`, `512` or `10MB`, and returns bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "ki" | "kib" => 1 << 10,
        "m" | "mi" | "mib" => 1 << 20,
        "g" | "gi" | "gib" => 1 << 30,
        "t" | "ti" | "tib" => 1 << 40,
        "p" | "pi" | "pib" => 1 << 50,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "pb" => 1_000_000_000_000_000,
        _ => return Err(format!("'{text}' is not a size; write 4k, 64KiB, 1m, 1.5g or 10MB")),
    };
    let (bytes, rest) = number.times(factor).ok_or_else(|| format!("'{text}' is too large"))?;
    if rest > 0 { Err(format!("'{text}' is not a whole number of bytes")) } else { Ok(bytes) }
}

/// Parses a time such as `10`, `500ms`, `2m` or `1h`, and returns whole nanoseconds (rounded). A
/// number without a unit is in seconds.
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "" | "s" | "sec" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return Err(format!("'{text}' is not a time; write 10 (seconds), 500ms, 2m or 1h")),
    };
    let (ns, rest) =
        number.times(factor).ok_or_else(|| format!("the time '{text}' is too long"))?;
    Ok(ns + u64::from(rest >= number.parts - rest))
}

/// Parses a rate such as `600M`, `3.5GB/s` or `250MiB/s`, and returns bytes per second.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    if let Some(number) = text.chars().all(|c| c.is_ascii_digit() || c == '.').then_some(text)
        && number != "0"
    {
        return Err(format!("'{number}' has no unit; add one, for example {number}MB/s"));
    }
    let size = text.strip_suffix("/s").or_else(|| text.strip_suffix("ps")).unwrap_or(text);
    match parse_size(size)? {
        0 => Err(format!("'{text}' is not a rate: it must be above 0")),
        bytes => Ok(bytes as f64),
    }
}

/// An exact decimal number: `count / parts`, where `parts` is a power of ten.
struct Decimal {
    count: u128,
    parts: u128,
}

impl Decimal {
    /// Parses digits with at most one decimal point.
    fn parse(text: &str) -> Option<Decimal> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = format!("{whole}{}", fraction.trim_end_matches('0'));
        let decimals = digits.len() - whole.len();
        let count = if digits.is_empty() && !fraction.is_empty() { "0" } else { &digits };
        let parts = 10_u128.checked_pow(u32::try_from(decimals).ok()?)?;
        Some(Decimal { count: count.parse().ok()?, parts })
    }

    /// Multiplies by `factor`. Returns the integer part of the product, and the remainder in units
    /// of `1 / parts`. None if the integer part is [`LIMIT`] or more.
    fn times(&self, factor: u64) -> Option<(u64, u128)> {
        let product = self.count.checked_mul(u128::from(factor))?;
        let whole = Some(product / self.parts).filter(|whole| *whole < LIMIT)?;
        Some((whole as u64, product % self.parts))
    }
}

fn split(text: &str) -> Result<(Decimal, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = match text[..end].bytes().filter(u8::is_ascii_digit).count() {
        0 => return Err(format!("'{text}' does not begin with a number")),
        _ => Decimal::parse(&text[..end]),
    };
    let number =
        number.ok_or_else(|| format!("'{text}' is not a number, or has too many digits"))?;
    Ok((number, text[end..].trim()))
}

/// Parses a list of values such as `4k,64k,1m`. The range `1..32` means 1, 2, 4 ... 32.
pub fn parse_list(
    text: &str,
    parse: impl Fn(&str) -> Result<u64, String>,
) -> Result<Vec<u64>, String> {
    let mut values = Vec::new();
    for part in text.split(',') {
        let Some((first, last)) = part.split_once("..") else {
            values.push(parse(part)?);
            continue;
        };
        let (mut value, last) = (parse(first)?, parse(last)?);
        if value == 0 || value > last {
            return Err(format!(
                "'{part}' is not an ascending range; write a range such as 1..32, or a list such \
                 as 1,2,8"
            ));
        }
        while let Some(next) = doubled(value, last) {
            values.push(value);
            value = next;
        }
        values.push(value);
    }
    Ok(values)
}

/// Returns `2 * value`. None if the result is above `last`.
fn doubled(value: u64, last: u64) -> Option<u64> {
    value.checked_mul(2).filter(|next| *next <= last)
}

/// Formats a number with a noun: `1 point`, `2 points`.
pub fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Formats a size in binary units: `4 KiB`, `1 MiB`, `1.5 GiB`.
pub fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_digits(value), units[unit])
}

/// Formats a size in decimal units, as in data sheets: `600 TB`, `1.5 PB`.
pub fn decimal_size(bytes: u64) -> String {
    let units = [(1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")];
    let value = bytes as f64;
    match units.iter().find(|(factor, _)| value >= *factor * 0.9995) {
        Some((factor, unit)) => format!("{} {unit}", three_digits(value / factor)),
        None => format!("{bytes} B"),
    }
}

/// Formats the share of a drive's rated endurance that was written: `, 0.002% of the rated 600 TB`.
/// The result is empty if the endurance is unknown.
pub fn share_of_endurance(bytes: u64, rated: Option<u64>) -> String {
    let Some(rated) = rated.filter(|rated| *rated > 0) else { return String::new() };
    let percent = 100.0 * bytes as f64 / rated as f64;
    // Shares below 0.1% are shown with one significant digit, and shares below 1e-10% as zero.
    let tiny = (1e-10..0.1).contains(&percent);
    let decimals = if tiny { -percent.log10().floor() } else { 1.0 };
    let decimals = decimals as usize;
    format!(", {percent:.decimals$}% of the rated {}", decimal_size(rated))
}

/// Formats a rate in binary and decimal units: `1234 MiB/s (1294 MB/s)`.
pub fn rate(bytes_per_s: f64) -> String {
    let mib = bytes_per_s / 1048576.0;
    format!("{} MiB/s ({} MB/s)", three_digits(mib), three_digits(bytes_per_s / 1e6))
}

/// Formats a rate in binary units, for tables: `1234 MiB/s`.
pub fn rate_mib(bytes_per_s: f64) -> String {
    format!("{} MiB/s", three_digits(bytes_per_s / 1048576.0))
}

/// Formats a rate in decimal units, as in data sheets: `500 MB/s`.
pub fn rate_mb(bytes_per_s: f64) -> String {
    format!("{} MB/s", three_digits(bytes_per_s / 1e6))
}

/// Formats a time: `85 ns`, `12.3 us`, `4.56 ms`, `1.2 s`.
pub fn time(ns: f64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];
    match units.iter().find(|(factor, _)| ns.abs() >= *factor * 0.9995) {
        Some((factor, unit)) => format!("{} {unit}", three_digits(ns / factor)),
        None => format!("{} ns", three_digits(ns)),
    }
}

/// Formats a factor with as many digits as its relative error `half_width` allows: `2.6 times`, `13
/// times`, `about 3 times`.
pub fn times(factor: f64, half_width: f64) -> String {
    // Factors below 2 keep two digits, because "about 1 times" would look like no change.
    let digits = if half_width > 0.25 && factor.abs() >= 2.0 { 1 } else { 2 };
    let decimals = digits - 1 - (factor.abs().max(1e-9).log10().floor() as i32);
    let about = if half_width > 0.25 { "about " } else { "" };
    match usize::try_from(decimals) {
        Ok(decimals) => format!("{about}{factor:.decimals$} times"),
        Err(_) => {
            let unit = 10_f64.powi(-decimals);
            format!("{about}{:.0} times", (factor / unit).round() * unit)
        }
    }
}

/// Formats a count: `950`, `12.3k`, `4.56M`.
pub fn count(value: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e4, "k")];
    match units.iter().find(|(least, _)| value.abs() >= *least) {
        Some((least, "k")) => format!("{}k", three_digits(value / least * 10.0)),
        Some((least, unit)) => format!("{}{unit}", three_digits(value / least)),
        None => three_digits(value),
    }
}

/// Formats a number with three significant digits, but keeps all digits before the decimal point.
/// Trailing zeros after the decimal point are dropped.
fn three_digits(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = if magnitude >= 99.95 || magnitude == 0.0 {
        0
    } else if magnitude >= 9.995 {
        1
    } else {
        2
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bare_letters_and_kib_are_binary_and_kb_is_decimal() {
        let sizes = ["4k", "4K", "4KiB", "4KB", "1.5g", "512", "1m", "2TiB", "512b"];
        let bytes: Vec<u64> = sizes.iter().map(|s| parse_size(s).unwrap()).collect();
        assert_eq!(bytes, [4096, 4096, 4096, 4000, 3 << 29, 512, 1 << 20, 2 << 40, 512]);
    }

    #[test]
    fn nonsense_sizes_are_refused_with_an_example() {
        for text in ["", ".", "k", "4x", "-1k", "0.3", "1.2.3", "1e9g", "99999999t"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_digit_of_a_number_is_lost() {
        assert_eq!(parse_size("9007199254740993"), Ok(9_007_199_254_740_993));
        assert_eq!(parse_size("1.001GB"), Ok(1_001_000_000));
        assert_eq!(parse_size("1.500000000000000000000000000000000000000000k"), Ok(1536));
        assert_eq!(parse_size("00000000000000000000000000000000000000000000004k"), Ok(4096));
        assert_eq!(parse_size(".5k"), Ok(512));
        assert_eq!((parse_size("0.0"), parse_size("0.")), (Ok(0), Ok(0)));
        for thousandths in 0..10_000_u64 {
            let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
            assert_eq!(parse_size(&format!("{text}KB")), Ok(thousandths));
            assert_eq!(parse_duration(&format!("{text}us")), Ok(thousandths));
        }
    }

    #[test]
    fn times_are_rounded_to_the_nearest_nanosecond() {
        let times =
            ["0.4ns", "0.5ns", "1.49ns", "0.0000000016"].map(|t| parse_duration(t).unwrap());
        assert_eq!(times, [0, 1, 1, 2]);
    }

    #[test]
    fn sizes_that_are_printed_are_read_back() {
        for bytes in [0, 1, 1023, 1536, 10 << 20, 3 << 29, 1 << 50, 7 << 50] {
            assert_eq!(parse_size(&size(bytes)), Ok(bytes));
        }
    }

    #[test]
    fn bare_times_are_seconds() {
        assert_eq!(parse_duration("10"), Ok(10_000_000_000));
        assert_eq!(parse_duration("500ms"), Ok(500_000_000));
        assert_eq!(parse_duration("2m"), Ok(120_000_000_000));
        assert!(parse_duration("2 weeks").is_err());
    }

    #[test]
    fn lists_take_commas_and_doubling_ranges() {
        let list = |text| parse_list(text, parse_size);
        assert_eq!(list("4k,64k"), Ok(vec![4096, 65536]));
        assert_eq!(list("1..8"), Ok(vec![1, 2, 4, 8]));
        assert_eq!(list("1,4..16"), Ok(vec![1, 4, 8, 16]));
        assert_eq!(list("8..8"), Ok(vec![8]));
        for text in ["4k,,8k", "0..8", "8..1", "1..", "..", "1..2..4"] {
            assert!(list(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_range_to_the_largest_number_ends() {
        let number = |text: &str| text.parse().map_err(|_| String::new());
        let all = parse_list("1..18446744073709551615", number).unwrap();
        assert_eq!((all.len(), all.last()), (64, Some(&(1 << 63))));
    }

    #[test]
    fn people_read_three_digits() {
        assert_eq!(size(4096), "4 KiB");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(rate(1048576.0 * 500.0), "500 MiB/s (524 MB/s)");
        assert_eq!(time(85.0), "85 ns");
        assert_eq!(time(12_345.0), "12.3 us");
        assert_eq!(time(999_960.0), "1 ms");
        assert_eq!(count(950.0), "950");
        assert_eq!(count(76_500.0), "76.5k");
        assert_eq!(count(4_560_000.0), "4.56M");
    }

    #[test]
    fn writes_are_a_share_of_the_rated_endurance() {
        let share = |bytes, rated| share_of_endurance(bytes, Some(rated));
        assert_eq!(share(12 << 30, 600_000_000_000_000), ", 0.002% of the rated 600 TB");
        assert_eq!(share(6_000_000_000, 1_200_000_000_000), ", 0.5% of the rated 1.2 TB");
        assert_eq!(share(0, 1_500_000_000_000_000), ", 0.0% of the rated 1.5 PB");
        assert_eq!(share_of_endurance(1, None), "");
        assert_eq!(share(1, 0), "");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in ".{0,20}") {
            let _ = (parse_size(&text), parse_duration(&text), parse_rate(&text));
            let _ = parse_list(&text, parse_size);
        }

        #[test]
        fn a_whole_number_of_kib_is_read_back(kib in 0_u64..1 << 40) {
            prop_assert_eq!(parse_size(&format!("{kib}k")), Ok(kib * 1024));
        }
    }
}
