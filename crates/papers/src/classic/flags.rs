//! SQLIO's flags: a letter directly followed by its value, as its readme of 1999 defines them.
//!
//! A flag with a meaning here becomes a field of [`Flags`]. Every other flag is refused with the
//! reason and the alternative, so that no test silently runs as a different one.

use analysis::units;
use std::path::PathBuf;

use ioengine::Caching;
use lab::failure::{Failure, Outcome};

/// Maximum number of threads, as in SQLIO.
pub const THREADS_MAX: u64 = 256;
/// Maximum block size (KiB): 1 GiB, more than any real test uses.
const BLOCK_KIB_MAX: u64 = 1 << 20;
/// Maximum file size and offset (bytes).
pub const BYTES_MAX: u64 = 1 << 62;
/// Default number of rows of a strip, without -i, as in SQLIO.
pub const ROWS: u64 = 64;
/// Default number of blocks in a row, without -f, as in SQLIO.
const COLUMNS: u64 = 64;

/// The order in which blocks are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The flag -frandom.
    Random,
    /// The flag -fsequential.
    Sequential,
    /// The flag -fN: rows of N blocks, accessed column by column.
    Stripe {
        /// Blocks in a row.
        columns: u64,
        /// Number of rows: the flag -i.
        rows: u64,
    },
}

/// The parsed flags, with SQLIO's defaults for missing flags.
#[derive(Clone, Debug, PartialEq)]
pub struct Flags {
    /// The flag -kW: write instead of read.
    pub writes: bool,
    /// Number of threads: the flag -t. `None` means 1, or the number in the parameter file.
    pub threads: Option<u32>,
    /// -s, as typed (s).
    pub seconds: String,
    /// Order of accesses: the flags -f and -i.
    pub order: Order,
    /// Requests outstanding: the flag -o; 0 means synchronous.
    pub outstanding: u32,
    /// Block size (KiB): the flag -b.
    pub block_kib: u64,
    /// First block: the flag -S.
    pub start_blocks: u64,
    /// Caching mode: the flag -B.
    pub caching: Caching,
    /// The flag -L: print latencies.
    pub latencies: bool,
    /// The flag -U: print the CPU utilisation.
    pub utilisation: bool,
    /// -p or -aR: CPUs that the threads are pinned to, round-robin; empty if not pinned.
    pub cpus: Vec<usize>,
    /// The parameter file: the flag -F.
    pub param_file: Option<PathBuf>,
}

/// Flags without a meaning here: the letter, the reason, and the alternative.
const REFUSED: [(&str, &str, &str); 7] = [
    ("d", "Linux has no drive letters", "name each file with its path instead"),
    ("R", "raw drives are ordinary targets here", "name the device itself, as in /dev/sdb"),
    ("m", "each request has one buffer here", "drop it"),
    ("v", "the bug of SQLIO 1.1.1 is not emulated", "drop it"),
    ("6", "memory is always copied with the fastest instructions of this CPU", "drop it"),
    ("D", "halfpower has no debugging levels", "drop it"),
    ("?", "help is another command here", "use halfpower classic sqlio --help"),
];

/// Flags whose meaning depends on other flags, as collected before all are known.
#[derive(Default)]
struct RawFlags {
    order: Option<OrderFlag>,
    rows: Option<u64>,
    flags: Flags,
}

/// The value of -f.
enum OrderFlag {
    /// Blocks of a row.
    Columns(u64),
    /// An order of accesses without rows.
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
    /// Parses flags such as `-kR` and `-frandom`; the last of repeated flags wins.
    ///
    /// # Errors
    /// Usage: an unknown flag or value, or a flag without a meaning here, with the alternative.
    pub fn parse(words: &[String]) -> Outcome<Flags> {
        let mut raw = RawFlags::default();
        words.iter().try_for_each(|word| raw.take(word))?;
        raw.finish()
    }

    /// Block size (bytes).
    pub fn block_bytes(&self) -> u64 {
        self.block_kib * 1024
    }

    /// The offset of the region (bytes).
    ///
    /// # Errors
    /// Usage, when it is larger than [`BYTES_MAX`].
    pub fn start_bytes(&self) -> Outcome<u64> {
        let bytes = self.start_blocks.checked_mul(self.block_bytes());
        let bytes = bytes.filter(|bytes| *bytes <= BYTES_MAX);
        bytes.ok_or_else(|| wrong("S", &self.start_blocks.to_string(), "no file is so large"))
    }

    /// SQLIO's letter for the caching mode.
    pub fn buffering(&self) -> char {
        buffering(self.caching)
    }
}

/// SQLIO's letter for a caching mode.
pub fn buffering(caching: Caching) -> char {
    match caching {
        Caching::Buffered => 'Y',
        Caching::Direct => 'H',
        Caching::WriteThrough => 'S',
        Caching::DirectWriteThrough => 'N',
    }
}

/// The caching mode of SQLIO's letter.
pub fn caching_of(letter: &str) -> Option<Caching> {
    let found = |caching: &Caching| buffering(*caching).to_string() == letter.to_ascii_uppercase();
    Caching::ALL.into_iter().find(found)
}

fn wrong(letter: &str, value: &str, what: &str) -> Failure {
    Failure::usage(format!("-{letter}{value}: {what}; see halfpower classic sqlio --help"))
}

/// Parses a whole number within bounds.
fn number(letter: &str, value: &str, least: u64, most: u64) -> Outcome<u64> {
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| {
        let most = if most == u64::MAX { "more".to_owned() } else { most.to_string() };
        wrong(letter, value, &format!("use -{letter} with a number from {least} to {most}"))
    })
}

/// Checks a number of seconds: digits with at most one decimal point.
fn seconds(value: &str) -> Outcome<String> {
    let digits = value.chars().all(|c| c.is_ascii_digit() || c == '.');
    let found = units::parse_duration(value).ok().filter(|ns| digits && *ns > 0);
    match found {
        Some(_) => Ok(value.to_owned()),
        None => Err(wrong("s", value, "write the seconds to run, as in -s30")),
    }
}

/// The CPUs of a mask, decimal or hexadecimal with 0x.
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
                    _ => return Err(wrong("k", value, "write -kR to read or -kW to write")),
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
                let what = "write -BY (all caches), -BH (past the file cache), -BS (write-through) \
                            or -BN (both)";
                flags.caching = caching_of(value).ok_or_else(|| wrong("B", value, what))?;
            }
            "L" => flags.latencies = latencies(word, value)?,
            "U" if value.is_empty() => flags.utilisation = true,
            "p" => flags.cpus = vec![cpu(word, value)?],
            "a" => flags.cpus = round_robin(word, value)?,
            "F" if value.is_empty() => return Err(wrong("F", "", "name the parameter file")),
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
                    format!("-i{rows} counts the rows of -fN, and there are no rows with");
                return Err(Failure::usage(format!("{message} {order}; drop it")));
            }
            (Some(OrderFlag::Columns(columns)), rows) => {
                Order::Stripe { columns, rows: rows.unwrap_or(ROWS) }
            }
            (None, rows) => Order::Stripe { columns: COLUMNS, rows: rows.unwrap_or(ROWS) },
        };
        if flags.param_file.is_some() && (flags.threads.is_some() || !flags.cpus.is_empty()) {
            return Err(Failure::usage(
                "the parameter file of -F sets threads and CPUs; drop -t, -p and -a",
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
            _ => Err(wrong("f", value, "write -frandom, -fsequential or -f with a number")),
        },
    }
}

fn latencies(word: &str, value: &str) -> Outcome<bool> {
    match value {
        "S" | "P" => Ok(true),
        "Si" | "Pi" => Err(Failure::usage(format!(
            "{word}: the time to initiate a request is not measured here; use -LS"
        ))),
        _ => Err(wrong("L", value, "write -LS or -LP")),
    }
}

fn cpu(word: &str, value: &str) -> Outcome<usize> {
    match value.strip_prefix('I') {
        Some(cpu) => Err(Failure::usage(format!(
            "{word} sets an ideal CPU, but Linux only pins threads; use -p{cpu}"
        ))),
        None => Ok(number("p", value, 0, 65_535)? as usize),
    }
}

fn round_robin(word: &str, value: &str) -> Outcome<Vec<usize>> {
    match value.strip_prefix('R') {
        Some(rest) if rest.starts_with('I') => Err(Failure::usage(format!(
            "{word} sets an ideal CPU, but Linux only pins threads; use -aR{}",
            &rest[1..]
        ))),
        Some(rest) => match mask(rest) {
            Ok(cpus) if !cpus.is_empty() => Ok(cpus),
            _ => Err(wrong("a", value, "write a mask of CPUs, as in -aR0x3")),
        },
        None => Err(Failure::usage(format!(
            "{word} allows several CPUs, but each thread is pinned to one; use -aR{value}, or run \
             the command under taskset {value}"
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
            assert!(failure.message.contains("; "), "no remedy: {failure}");
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
