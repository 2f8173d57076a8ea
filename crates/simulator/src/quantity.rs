//! Values in system files: a number, its unit and its source.
//!
//! Every value is a table `{ value = 8.333, unit = "ms", source = "..." }`. There are no defaults.
//! Each kind of quantity has a list of allowed units, and all values of this kind are stored in one
//! unit: times in ns, sizes in bytes, rates in bytes per second, costs in ns per byte. These four
//! kinds have a maximum, so that the arithmetic of the models cannot overflow. The limits of plain
//! numbers depend on the key, and `system` checks them.

use analysis::units;
use serde::Deserialize;

/// A value as written in a system file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    value: f64,
    unit: String,
    source: String,
}

/// Units of a kind of quantity. Each entry is the name of a unit, and the factor that converts a
/// value to the stored unit.
type Units = &'static [(&'static str, f64)];

/// Maximum time (ns): one hour.
pub(crate) const TIME_NS_MAX: f64 = 3.6e12;
/// Maximum size (bytes). Larger sizes would overflow file offsets and the arithmetic of the models.
pub(crate) const BYTES_MAX: f64 = 9e18;
/// Maximum rate (bytes per second).
const RATE_MAX: f64 = 1e18;
/// Minimum rate other than 0 (bytes per second). It keeps the time of a request below a few hours.
const RATE_MIN: f64 = 1e3;
/// Maximum cost per byte (ns).
const PER_BYTE_MAX: f64 = 1e6;

fn canonical(written: &Written, units: Units, range: [f64; 2]) -> Result<f64, String> {
    if written.source.trim().is_empty() {
        return Err("a value needs a source, such as source = \"data sheet\"".to_owned());
    }
    if !written.value.is_finite() || written.value < 0.0 {
        return Err(format!("{} is not a valid value; use 0 or more", written.value));
    }
    let names = || units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let found = units.iter().find(|(name, _)| *name == written.unit);
    let (_, scale) = found.ok_or_else(|| {
        format!("unit '{}' is not valid here; use one of: {}", written.unit, names())
    })?;
    let [least, most] = range;
    let (value, unit) = (written.value, &written.unit);
    match value * scale {
        canonical if canonical > most => {
            Err(format!("{value} {unit} is too large; use at most {} {unit}", most / scale))
        }
        canonical if canonical > 0.0 && canonical < least => {
            Err(format!("{value} {unit} is too small; use 0, or at least {} {unit}", least / scale))
        }
        canonical => Ok(canonical),
    }
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $range:expr, $units:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Deserialize)]
        #[serde(try_from = "Written")]
        pub struct $name(pub f64);

        impl TryFrom<Written> for $name {
            type Error = String;

            fn try_from(written: Written) -> Result<Self, String> {
                canonical(&written, $units, $range).map($name)
            }
        }
    };
}

quantity!(
    /// A time (ns).
    Time,
    [0.0, TIME_NS_MAX],
    &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)]
);
/// Units of sizes. The letters `k`, `m`, `g` and `t` alone are powers of 1024.
const SIZES: Units = &[
    ("B", 1.0),
    ("k", 1024.0),
    ("m", 1_048_576.0),
    ("g", 1_073_741_824.0),
    ("t", 1_099_511_627_776.0),
    ("sectors", 512.0),
    ("KB", 1e3),
    ("KiB", 1024.0),
    ("MB", 1e6),
    ("MiB", 1_048_576.0),
    ("GB", 1e9),
    ("GiB", 1_073_741_824.0),
    ("TB", 1e12),
    ("TiB", 1_099_511_627_776.0),
];

quantity!(
    /// A size (bytes).
    Size,
    [0.0, BYTES_MAX],
    SIZES
);
quantity!(
    /// A rate (bytes per second).
    Rate,
    [RATE_MIN, RATE_MAX],
    &[
        ("KB/s", 1e3),
        ("KiB/s", 1024.0),
        ("MB/s", 1e6),
        ("MiB/s", 1_048_576.0),
        ("GB/s", 1e9),
        ("Mbit/s", 125e3),
        ("Gbit/s", 125e6)
    ]
);
quantity!(
    /// A cost per byte (ns per byte).
    PerByte,
    [0.0, PER_BYTE_MAX],
    &[("ns/B", 1.0), ("us/KiB", 1e3 / 1024.0), ("ms/MiB", 1e6 / 1_048_576.0)]
);
quantity!(
    /// A plain number, for example a count, a share or a factor.
    Number,
    [0.0, f64::MAX],
    &[
        ("1", 1.0),
        ("percent", 0.01),
        ("disks", 1.0),
        ("buses", 1.0),
        ("heads", 1.0),
        ("CPUs", 1.0),
        ("units", 1.0),
        ("channels", 1.0),
        ("blocks", 1.0),
        ("requests", 1.0),
        ("requests/s", 1.0),
        ("sectors", 1.0),
        ("cylinders", 1.0),
        ("hosts", 1.0),
        ("rev/min", 1.0),
        ("MHz", 1.0),
        ("revolutions", 1.0)
    ]
);

/// Parses a size from the command line: `64k`, `1.5MiB`, `10MB`, `8sectors`, or a number of bytes.
pub(crate) fn bytes_of(text: &str) -> Result<u64, String> {
    match text.trim().strip_suffix("sectors") {
        Some(sectors) => {
            let sectors = units::parse_size(sectors)?;
            sectors
                .checked_mul(512)
                .ok_or_else(|| format!("'{text}' is too large; use a smaller size"))
        }
        None => units::parse_size(text),
    }
}

impl Time {
    /// Returns the time in whole nanoseconds.
    pub fn ns(self) -> u64 {
        self.0.round() as u64
    }
}

impl Size {
    /// Returns the size in whole bytes.
    pub fn bytes(self) -> u64 {
        self.0.round() as u64
    }
}

impl Rate {
    /// Returns the transfer time of `bytes` bytes (ns). The time is 0 if the rate is 0, which means
    /// no limit.
    #[inline]
    pub fn ns_for(self, bytes: u64) -> u64 {
        if self.0 > 0.0 { (bytes as f64 * 1e9 / self.0) as u64 } else { 0 }
    }
}

impl PerByte {
    /// Returns the total cost of `bytes` bytes (ns).
    #[inline]
    pub fn ns_for(self, bytes: u64) -> u64 {
        (self.0 * bytes as f64) as u64
    }
}

impl Number {
    /// Returns the number, rounded to an integer.
    pub fn count(self) -> u32 {
        self.0.round() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, String> {
        #[derive(Deserialize)]
        struct Line<T> {
            x: T,
        }
        let line: Result<Line<T>, _> = toml::from_str(&format!("x = {text}"));
        line.map(|line| line.x).map_err(|error| error.to_string())
    }

    #[test]
    fn a_value_is_kept_in_its_canonical_unit() {
        let time: Time = read(r#"{ value = 8.333, unit = "ms", source = "Table 1" }"#).unwrap();
        assert_eq!(time.ns(), 8_333_000);
        let rate: Rate = read(r#"{ value = 40, unit = "MB/s", source = "R012" }"#).unwrap();
        assert_eq!(rate.ns_for(40_000), 1_000_000);
        let cost: PerByte = read(r#"{ value = 16, unit = "us/KiB", source = "C079" }"#).unwrap();
        assert_eq!(cost.ns_for(1024), 16_000);
    }

    #[test]
    fn out_of_range_values_are_refused_with_the_allowed_range() {
        let value = |value: &str, unit: &str| {
            format!(r#"{{ value = {value}, unit = "{unit}", source = "x" }}"#)
        };
        let long = read::<Time>(&value("1e30", "us")).unwrap_err();
        assert!(long.contains("at most 3600000000 us"), "{long}");
        let slow = read::<Rate>(&value("1e-9", "MB/s")).unwrap_err();
        assert!(slow.contains("0, or at least 0.001 MB/s"), "{slow}");
        assert!(read::<Rate>(&value("0", "MB/s")).is_ok(), "0 means no limit");
        assert!(read::<Rate>(&value("1e308", "GB/s")).is_err());
        assert!(read::<Size>(&value("1e12", "GB")).is_err());
        assert!(read::<PerByte>(&value("1e12", "ns/B")).is_err());
    }

    #[test]
    fn sizes_mean_what_they_mean_on_the_command_line() {
        let sizes = ["65536", "64k", "64K", "64KiB", "64kib", "0.0625m", "128sectors", "65536 B"];
        for text in sizes {
            assert_eq!(bytes_of(text), Ok(65536), "{text}");
        }
        assert_eq!(bytes_of("64KB"), Ok(64_000));
        assert_eq!(bytes_of("1.001gb"), Ok(1_001_000_000));
        assert_eq!(bytes_of("1t"), Ok(1 << 40));
        assert_eq!(bytes_of("8999999999999999999"), Ok(8_999_999_999_999_999_999));
        for text in ["", "k", "-1", "1.5", "0.3k", "1x", "nan", "inf", "1e30", "9e6TB", "10000000t"]
        {
            assert!(bytes_of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_value_without_a_source_or_with_a_wrong_unit_is_refused() {
        let none = read::<Time>(r#"{ value = 1, unit = "ms", source = " " }"#).unwrap_err();
        assert!(none.contains("needs a source"), "{none}");
        let wrong = read::<Time>(r#"{ value = 1, unit = "MB", source = "x" }"#).unwrap_err();
        assert!(wrong.contains("ns, us, ms, s"), "{wrong}");
        assert!(read::<Size>(r#"{ value = -1, unit = "B", source = "x" }"#).is_err());
        assert!(read::<Size>(r#"{ value = 1, unit = "B", source = "x", y = 2 }"#).is_err());
    }
}
