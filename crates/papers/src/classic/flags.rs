//! Parses the flags of SQLIO, as its readme of 1999 defines them. A flag is a letter that is
//! directly followed by its value, such as `-b64`.
//!
//! Supported flags become fields of [`Flags`]. An unsupported flag is never ignored: it is an error
//! with the reason and an alternative.

use analysis::units;
use std::path::PathBuf;

use ioengine::Caching;
use lab::failure::{Failure, Outcome};

/// The maximum number of threads, as in SQLIO.
pub const THREADS_MAX: u64 = 256;
/// The maximum block size (KiB), which is 1 GiB.
const BLOCK_KIB_MAX: u64 = 1 << 20;
/// The maximum file size and the maximum offset (bytes).
pub const BYTES_MAX: u64 = 1 << 62;
/// The default number of rows of a stripe (flag -i), as in SQLIO.
pub const ROWS: u64 = 64;
/// The default number of blocks in a row (flag -f), as in SQLIO.
const COLUMNS: u64 = 64;

/// The order in which blocks are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The blocks are accessed in random order (flag -frandom).
    Random,
    /// The blocks are accessed sequentially (flag -fsequential).
    Sequential,
    /// The blocks form rows of N blocks and are accessed column by column (flag -fN). For example,
    /// -f64 accesses blocks 0, 64, 128, ..., then blocks 1, 65, 129, ...
    Stripe {
        /// The number of blocks in a row.
        columns: u64,
        /// The number of rows (flag -i).
        rows: u64,
    },
}

/// The parsed flags, with SQLIO's defaults for missing flags.
#[derive(Clone, Debug, PartialEq)]
pub struct Flags {
    /// Whether the test writes (flag -kW) instead of reading.
    pub writes: bool,
    /// The number of threads (flag -t). None means 1, or the number in the parameter file.
    pub threads: Option<u32>,
    /// The length of the test, as the user typed it (s; flag -s).
    pub seconds: String,
    /// The order in which blocks are accessed (flags -f and -i).
    pub order: Order,
    /// The number of outstanding requests (flag -o). 0 means synchronous requests.
    pub outstanding: u32,
    /// The block size (KiB; flag -b).
    pub block_kib: u64,
    /// The number of blocks before the first block that is accessed (flag -S).
    pub start_blocks: u64,
    /// The caching mode (flag -B).
    pub caching: Caching,
    /// Whether latencies are printed (flag -L).
    pub latencies: bool,
    /// Whether the CPU utilisation is printed (flag -U).
    pub utilisation: bool,
    /// The CPUs that threads are pinned to, round-robin (flags -p and -aR). Empty if threads are
    /// not pinned.
    pub cpus: Vec<usize>,
    /// The parameter file (flag -F). None if the flag was not specified.
    pub param_file: Option<PathBuf>,
}

/// The unsupported flags of SQLIO. Each entry has the letter, the reason, and the alternative.
const REFUSED: [(&str, &str, &str); 7] = [
    ("d", "Linux has no drive letters", "specify each file with its path instead"),
    ("R", "halfpower has no separate flag for raw drives", "specify the device, as in /dev/sdb"),
    ("m", "each request of halfpower has one buffer", "drop the flag"),
    ("v", "halfpower does not reproduce the bug of SQLIO 1.1.1", "drop the flag"),
    ("6", "memory is always copied with the fastest instructions of this CPU", "drop the flag"),
    ("D", "halfpower has no debugging levels", "drop the flag"),
    ("?", "halfpower has another flag for help", "use halfpower classic sqlio --help"),
];

/// The flags that were parsed so far. The flags -f and -i can only be checked together, so `order`
/// and `rows` hold their values until the last flag was parsed.
#[derive(Default)]
struct RawFlags {
    order: Option<OrderFlag>,
    rows: Option<u64>,
    flags: Flags,
}

/// The value of -f.
enum OrderFlag {
    /// -fN: the number of blocks in a row.
    Columns(u64),
    /// -frandom or -fsequential.
    Plain(Order),
}

impl Default for Flags {
    fn default() -> Flags {
        Flags {
            writes: false,
            threads: None,
            seconds: "30".to_owned(),
            order: Order::Stripe { columns: COLUMNS, rows: ROWS },
            outstanding: 0,
            block_kib: 2,
            start_blocks: 0,
            caching: Caching::DirectWriteThrough,
            latencies: false,
            utilisation: false,
            cpus: Vec::new(),
            param_file: None,
        }
    }
}

impl Flags {
    /// Parses flags such as `-kR` and `-frandom`. If a flag is repeated, the last value counts.
    ///
    /// # Errors
    /// `Exit::Usage`, if a flag or value is unknown, or if a flag is not supported. The message
    /// contains the alternative.
    pub fn parse(words: &[String]) -> Outcome<Flags> {
        let mut raw = RawFlags::default();
        words.iter().try_for_each(|word| raw.take(word))?;
        raw.finish()
    }

    /// Returns the block size (bytes).
    pub fn block_bytes(&self) -> u64 {
        self.block_kib * 1024
    }

    /// Returns the offset of the first block that is accessed (bytes).
    ///
    /// # Errors
    /// `Exit::Usage`, if the offset is larger than [`BYTES_MAX`].
    pub fn start_bytes(&self) -> Outcome<u64> {
        let bytes = self.start_blocks.checked_mul(self.block_bytes());
        let bytes = bytes.filter(|bytes| *bytes <= BYTES_MAX);
        bytes.ok_or_else(|| wrong("S", &self.start_blocks.to_string(), "no file is that large"))
    }

    /// Returns the letter of the caching mode in SQLIO's flag -B.
    pub fn buffering(&self) -> char {
        buffering(self.caching)
    }
}

/// Returns the letter of a caching mode in SQLIO's flag -B.
pub fn buffering(caching: Caching) -> char {
    match caching {
        Caching::Buffered => 'Y',
        Caching::Direct => 'H',
        Caching::WriteThrough => 'S',
        Caching::DirectWriteThrough => 'N',
    }
}

/// Returns the caching mode for a letter of SQLIO's flag -B. None if the letter is unknown.
pub fn caching_of(letter: &str) -> Option<Caching> {
    let found = |caching: &Caching| buffering(*caching).to_string() == letter.to_ascii_uppercase();
    Caching::ALL.into_iter().find(found)
}

fn wrong(letter: &str, value: &str, what: &str) -> Failure {
    Failure::usage(format!("-{letter}{value}: {what}; see halfpower classic sqlio --help"))
}

/// Parses the value of a flag as a whole number from `least` to `most`.
fn number(letter: &str, value: &str, least: u64, most: u64) -> Outcome<u64> {
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| {
        let most = if most == u64::MAX { "2^64 - 1".to_owned() } else { most.to_string() };
        wrong(letter, value, &format!("use -{letter} with a number from {least} to {most}"))
    })
}

/// Checks that a text is a positive number of seconds, such as `30` or `0.5`. Returns the text
/// unchanged.
fn seconds(value: &str) -> Outcome<String> {
    let digits = value.chars().all(|c| c.is_ascii_digit() || c == '.');
    let found = units::parse_duration(value).ok().filter(|ns| digits && *ns > 0);
    match found {
        Some(_) => Ok(value.to_owned()),
        None => Err(wrong("s", value, "specify the duration in seconds, as in -s30")),
    }
}

/// Returns the CPUs of an affinity mask, such as CPUs 0 and 2 for `0x5`. The mask is a decimal
/// number, or a hexadecimal number with the prefix 0x.
///
/// # Errors
/// The text is not a mask.
pub fn mask(text: &str) -> Result<Vec<usize>, String> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let bits = hex.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    let bits: u64 = bits.map_err(|_| format!("'{text}' is not a mask such as 0x3"))?;
    Ok((0..64).filter(|cpu| bits >> cpu & 1 == 1).collect())
}

impl RawFlags {
    fn take(&mut self, word: &str) -> Outcome<()> {
        let flags = &mut self.flags;
        let body = word.strip_prefix('-').unwrap_or(word);
        let letter: String = body.chars().take(1).collect();
        let value = &body[letter.len()..];
        if let Some((_, why, remedy)) = REFUSED.iter().find(|(known, ..)| *known == letter) {
            return Err(Failure::usage(format!("{word}: {why}; {remedy}")));
        }
        match letter.as_str() {
            "k" => {
                flags.writes = match value.to_ascii_uppercase().as_str() {
                    "R" => false,
                    "W" => true,
                    _ => return Err(wrong("k", value, "use -kR to read or -kW to write")),
                }
            }
            "t" => flags.threads = Some(number("t", value, 1, THREADS_MAX)? as u32),
            "s" => flags.seconds = seconds(value)?,
            "f" => self.order = Some(order(value)?),
            "i" => self.rows = Some(number("i", value, 1, u64::MAX)?),
            "o" => flags.outstanding = number("o", value, 0, u64::from(u32::MAX))? as u32,
            "b" => flags.block_kib = number("b", value, 1, BLOCK_KIB_MAX)?,
            "S" => flags.start_blocks = number("S", value, 0, u64::MAX)?,
            "B" => {
                let what = "use -BY (all caches), -BH (no file cache), -BS (write-through) or -BN \
                            (no file cache, write-through)";
                flags.caching = caching_of(value).ok_or_else(|| wrong("B", value, what))?;
            }
            "L" => flags.latencies = latencies(word, value)?,
            "U" if value.is_empty() => flags.utilisation = true,
            "p" => flags.cpus = vec![cpu(word, value)?],
            "a" => flags.cpus = round_robin(word, value)?,
            "F" if value.is_empty() => return Err(wrong("F", "", "specify the parameter file")),
            "F" => flags.param_file = Some(PathBuf::from(value)),
            _ => {
                return Err(Failure::usage(format!(
                    "{word}: SQLIO has no such flag; see halfpower classic sqlio --help"
                )));
            }
        }
        Ok(())
    }

    fn finish(self) -> Outcome<Flags> {
        let mut flags = self.flags;
        flags.order = match (self.order, self.rows) {
            (Some(OrderFlag::Plain(order)), None) => order,
            (Some(OrderFlag::Plain(order)), Some(rows)) => {
                let order = if order == Order::Random { "-frandom" } else { "-fsequential" };
                let message =
                    format!("-i{rows} sets the number of rows for -fN, but the specified order is");
                return Err(Failure::usage(format!("{message} {order}; drop -i")));
            }
            (Some(OrderFlag::Columns(columns)), rows) => {
                Order::Stripe { columns, rows: rows.unwrap_or(ROWS) }
            }
            (None, rows) => Order::Stripe { columns: COLUMNS, rows: rows.unwrap_or(ROWS) },
        };
        if flags.param_file.is_some() && (flags.threads.is_some() || !flags.cpus.is_empty()) {
            return Err(Failure::usage(
                "the parameter file (-F) already sets threads and CPUs; drop -t, -p and -a",
            ));
        }
        Ok(flags)
    }
}

/// Parses the value of -f.
fn order(value: &str) -> Outcome<OrderFlag> {
    match value.to_ascii_lowercase().as_str() {
        "random" => Ok(OrderFlag::Plain(Order::Random)),
        "sequential" => Ok(OrderFlag::Plain(Order::Sequential)),
        _ => match value.parse() {
            Ok(columns) if columns > 0 => Ok(OrderFlag::Columns(columns)),
            _ => Err(wrong("f", value, "use -frandom, -fsequential or -f with a number")),
        },
    }
}

fn latencies(word: &str, value: &str) -> Outcome<bool> {
    match value {
        "S" | "P" => Ok(true),
        "Si" | "Pi" => Err(Failure::usage(format!(
            "{word}: halfpower does not measure the time to initiate a request; use -LS"
        ))),
        _ => Err(wrong("L", value, "use -LS or -LP")),
    }
}

fn cpu(word: &str, value: &str) -> Outcome<usize> {
    match value.strip_prefix('I') {
        Some(cpu) => Err(Failure::usage(format!(
            "{word} sets an ideal CPU, but Linux can only pin threads; use -p{cpu}"
        ))),
        None => Ok(number("p", value, 0, 65_535)? as usize),
    }
}

fn round_robin(word: &str, value: &str) -> Outcome<Vec<usize>> {
    match value.strip_prefix('R') {
        Some(rest) if rest.starts_with('I') => Err(Failure::usage(format!(
            "{word} sets an ideal CPU, but Linux can only pin threads; use -aR{}",
            &rest[1..]
        ))),
        Some(rest) => match mask(rest) {
            Ok(cpus) if !cpus.is_empty() => Ok(cpus),
            _ => Err(wrong("a", value, "specify a CPU mask, as in -aR0x3")),
        },
        None => Err(Failure::usage(format!(
            "{word} lets each thread run on several CPUs, but here each thread is pinned to one \
             CPU; use -aR{value}, or run the command under taskset {value}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::failure::Exit;

    fn parse(line: &str) -> Outcome<Flags> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Flags::parse(&words)
    }

    #[test]
    fn the_defaults_are_those_of_sqlio() {
        let flags = parse("").unwrap();
        assert_eq!(flags, Flags::default());
        let same = parse("-kR -s30 -f64 -b2 -i64 -BN").unwrap();
        assert_eq!(same, flags);
    }

    #[test]
    fn each_flag_has_its_meaning_of_sqlio() {
        let flags = parse("-kW -t4 -s360 -o8 -b64 -frandom -S16 -BH -LS -U -aR0x5").unwrap();
        assert!(flags.writes && flags.latencies && flags.utilisation);
        assert_eq!((flags.threads, flags.outstanding, flags.block_kib), (Some(4), 8, 64));
        assert_eq!((flags.order, flags.seconds.as_str()), (Order::Random, "360"));
        assert_eq!((flags.caching, flags.cpus.as_slice()), (Caching::Direct, &[0, 2][..]));
        assert_eq!(flags.start_bytes().unwrap(), 16 * 65536);
        assert_eq!(parse("-f32 -i8").unwrap().order, Order::Stripe { columns: 32, rows: 8 });
        assert_eq!(parse("-b2 -b8").unwrap().block_kib, 8);
    }

    #[test]
    fn every_letter_of_the_caching_mode_survives_a_round_trip() {
        for letter in ["Y", "H", "S", "N"] {
            let flags = parse(&format!("-B{letter}")).unwrap();
            assert_eq!(flags.buffering().to_string(), letter);
        }
    }

    #[test]
    fn flags_without_a_meaning_are_refused_with_a_remedy() {
        for line in [
            "-dDEF",
            "-R1,2",
            "-mS4",
            "-U5",
            "-v1.1.1",
            "-64",
            "-D50",
            "-?",
            "-LSi",
            "-pI1",
            "-a0x3",
            "-aRI0x3",
            "-aR0",
            "-x",
            "-kX",
            "-k",
            "-t0",
            "-t257",
            "-s0",
            "-s1e9",
            "-s.",
            "-f0",
            "-fback",
            "-i0",
            "-b0",
            "-b2k",
            "-BX",
            "-F",
            "-i8 -frandom",
            "-Fp -t2",
            "-S18446744073709551616",
            "-o-1",
            "-",
            "",
        ] {
            let words = vec![line.to_owned()];
            let failure = if line.contains(' ') {
                parse(line).unwrap_err()
            } else {
                Flags::parse(&words).unwrap_err()
            };
            assert_eq!(failure.exit, Exit::Usage, "{line}");
            assert!(failure.message.contains("; "), "the message has no remedy: {failure}");
        }
    }

    #[test]
    fn masks_are_decimal_or_hexadecimal() {
        assert_eq!(mask("0x5"), Ok(vec![0, 2]));
        assert_eq!(mask("6"), Ok(vec![1, 2]));
        assert_eq!(mask("0"), Ok(vec![]));
        assert!(mask("0xg").is_err() && mask("").is_err());
    }
}
