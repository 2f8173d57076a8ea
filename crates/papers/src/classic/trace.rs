//! Formats and parses the lines of the papers' trace files. SQLIO wrote such a line for each test.
//! A line has fourteen fields that are separated by commas.
//!
//! The fields and units are those of Table 8 of the second paper: a MB is 2^20 bytes, a KB is 1024
//! bytes, and CPU times are in milliseconds.

use std::fmt;
use std::str::FromStr;

use ioengine::{Caching, EngineKind};

use lab::date;
use lab::point::Trial;
use lab::point_key::PointKey;

/// The names of a line's fields, in order.
pub const FIELDS: [&str; 14] = [
    "MB/s",
    "IO/s",
    "Operation",
    "BlockSize",
    "OutstandingIOs",
    "Buffering",
    "NumThreads",
    "Time",
    "FileSize",
    "Clock(s)",
    "User(ms)",
    "Kernel(ms)",
    "Time Stamp",
    "Comment",
];

/// The size of a MB in the papers (bytes).
const MB: f64 = 1048576.0;
/// The size of a KB in the papers (bytes).
const KB: f64 = 1024.0;

/// Returns the first line of a trace file, which has the names of the fields.
pub fn header() -> String {
    FIELDS.join(",")
}

/// A line of a trace file: the result of one test.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceLine {
    /// The throughput (MB/s; a MB is 2^20 bytes).
    pub mb_per_s: f64,
    /// The number of requests completed per second.
    pub io_per_s: f64,
    /// The operation: read, write or mix.
    pub operation: String,
    /// The request size (KB).
    pub block_kb: f64,
    /// The queue depth. 0 means synchronous requests.
    pub outstanding: u32,
    /// The letter of the caching mode: Y, H, S or N, as in SQLIO's flag -B.
    pub buffering: char,
    /// The number of threads.
    pub threads: u32,
    /// The requested duration of the test (s). None if no duration was requested.
    pub time_s: Option<f64>,
    /// The total size of all files (KB).
    pub file_kb: f64,
    /// The actual duration of the test (s).
    pub clock_s: f64,
    /// The CPU time charged to the process in user mode (ms).
    pub user_ms: f64,
    /// The CPU time charged to the process in kernel mode (ms).
    pub kernel_ms: f64,
    /// The start of the test (ns since 1970).
    pub started_unix_ns: i64,
    /// The user's comment. Its commas become semicolons in the file.
    pub comment: String,
}

impl TraceLine {
    /// Returns the line of a trial. `file_bytes` is the total size of all files. The field
    /// `outstanding` is 0 only for the I/O engines `Sync` and `Mmap`, which wait for each request.
    /// A caller that knows the requested depth can replace this value.
    pub fn of(key: &PointKey, trial: &Trial, file_bytes: u64, comment: &str) -> TraceLine {
        let waits = key.is_issued_by(EngineKind::Sync) || key.is_issued_by(EngineKind::Mmap);
        TraceLine {
            mb_per_s: trial.whole_bytes_per_s() / MB,
            io_per_s: trial.whole_requests_per_s(),
            operation: key.operation().to_owned(),
            block_kb: key.request_bytes() as f64 / KB,
            outstanding: if waits { 0 } else { key.depth() },
            buffering: letter(key),
            threads: key.threads(),
            time_s: key.workload.limit_ns.map(|ns| ns as f64 / 1e9),
            file_kb: file_bytes as f64 / KB,
            clock_s: trial.elapsed_ns as f64 / 1e9,
            user_ms: trial.cpu.user_ns as f64 / 1e6,
            kernel_ms: trial.cpu.system_ns as f64 / 1e6,
            started_unix_ns: trial.started_unix_ns,
            comment: comment.to_owned(),
        }
    }
}

impl FromStr for TraceLine {
    type Err = String;

    fn from_str(line: &str) -> Result<TraceLine, String> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let fields: [&str; FIELDS.len()] = fields.try_into().map_err(|fields: Vec<&str>| {
            format!("the line has {} fields instead of {}", fields.len(), FIELDS.len())
        })?;
        let number = |index: usize| -> Result<f64, String> {
            let value: Option<f64> = fields[index].parse().ok();
            let value = value.filter(|value| value.is_finite() && *value >= 0.0);
            value.ok_or_else(|| {
                let text: String = fields[index].escape_debug().take(40).collect();
                format!("{} '{text}' is not a number", FIELDS[index])
            })
        };
        let whole = |index: usize| -> Result<u32, String> {
            fields[index].parse().map_err(|_| format!("{} is not a whole number", FIELDS[index]))
        };
        let operation = ["read", "write", "mix"].into_iter().find(|word| *word == fields[2]);
        let mut letters = fields[5].chars();
        let buffering = letters.next().filter(|letter| "YHSN".contains(*letter));
        Ok(TraceLine {
            mb_per_s: number(0)?,
            io_per_s: number(1)?,
            operation: operation.ok_or("the operation is not read, write or mix")?.to_owned(),
            block_kb: number(3)?,
            outstanding: whole(4)?,
            buffering: buffering.ok_or("the buffering is not Y, H, S or N")?,
            threads: whole(6)?,
            time_s: (!fields[7].is_empty()).then(|| number(7)).transpose()?,
            file_kb: number(8)?,
            clock_s: number(9)?,
            user_ms: number(10)?,
            kernel_ms: number(11)?,
            started_unix_ns: date::parse_utc(fields[12]).ok_or("the time stamp is not a date")?,
            comment: fields[13].to_owned(),
        })
    }
}

/// Returns the caching mode for a letter of SQLIO's flag -B. An unknown letter counts as Y.
pub fn caching(buffering: char) -> Caching {
    let (direct, through) = (matches!(buffering, 'H' | 'N'), matches!(buffering, 'S' | 'N'));
    Caching::of(direct, through)
}

/// Returns the letter of a point's caching mode in SQLIO's flag -B.
fn letter(key: &PointKey) -> char {
    match (key.is_direct(), key.caching.is_write_through()) {
        (false, false) => 'Y',
        (true, false) => 'H',
        (false, true) => 'S',
        (true, true) => 'N',
    }
}

/// Formats a number with at most three digits after the decimal point and without trailing zeros.
fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl fmt::Display for TraceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.started_unix_ns.div_euclid(1_000_000_000).rem_euclid(60);
        let stamp = format!("{}:{seconds:02}", date::utc(self.started_unix_ns));
        let one_field = |c: char| {
            if c == ',' {
                ';'
            } else if c.is_control() {
                ' '
            } else {
                c
            }
        };
        let comment: String = self.comment.chars().map(one_field).collect();
        let fields: [String; FIELDS.len()] = [
            format!("{:.3}", self.mb_per_s),
            format!("{:.3}", self.io_per_s),
            self.operation.clone(),
            short(self.block_kb),
            self.outstanding.to_string(),
            self.buffering.to_string(),
            self.threads.to_string(),
            self.time_s.map(short).unwrap_or_default(),
            short(self.file_kb),
            format!("{:.3}", self.clock_s),
            format!("{:.3}", self.user_ms),
            format!("{:.3}", self.kernel_ms),
            stamp,
            comment,
        ];
        f.write_str(&fields.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpucost::CpuUsage;
    use lab::point::Direction;
    use proptest::prelude::*;
    use workload::Workload;

    fn key() -> PointKey {
        let workload = Workload {
            engine_kind: EngineKind::IoUring,
            request_bytes: 65536,
            depth: 8,
            threads: 2,
            limit_ns: Some(30_000_000_000),
            ..Workload::default()
        };
        PointKey { caching: Caching::Direct, ..PointKey::of(&workload) }
    }

    fn trial() -> Trial {
        let reads = Direction { bytes: 300 << 20, requests: 4800, ..Direction::default() };
        Trial {
            started_unix_ns: 1_795_293_908_000_000_000,
            directions: [reads, Direction::default()],
            elapsed_ns: 30_000_000_000,
            cpu: CpuUsage { user_ns: 1_500_000, system_ns: 2_000_250, ..CpuUsage::default() },
            ..Trial::default()
        }
    }

    #[test]
    fn the_line_has_the_fields_and_units_of_the_published_table() {
        let line = TraceLine::of(&key(), &trial(), 100 << 20, "new-new").to_string();
        assert_eq!(
            line,
            "10.000,160.000,read,64,8,H,2,30,102400,30.000,1.500,2.000,2026-11-21 20:45:08,new-new"
        );
        let table = include_str!("../../data/chung2000_table08_sqlio_trace_format.csv");
        let published: Vec<&str> =
            table.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
        assert_eq!(FIELDS.to_vec(), published);
    }

    #[test]
    fn a_synchronous_engine_has_nothing_outstanding() {
        let sync = PointKey::of(&Workload { engine_kind: EngineKind::Sync, ..Workload::default() });
        assert_eq!(TraceLine::of(&sync, &trial(), 0, "").outstanding, 0);
    }

    #[test]
    fn each_caching_mode_has_its_letter() {
        for (caching, letter) in [
            (Caching::Buffered, 'Y'),
            (Caching::Direct, 'H'),
            (Caching::WriteThrough, 'S'),
            (Caching::DirectWriteThrough, 'N'),
        ] {
            let key = PointKey { caching, ..key() };
            assert_eq!(TraceLine::of(&key, &trial(), 0, "").buffering, letter, "{caching}");
        }
    }

    #[test]
    fn without_a_requested_length_the_field_is_empty() {
        let mut key = key();
        key.workload.limit_ns = None;
        let line = TraceLine::of(&key, &trial(), 512, "").to_string();
        assert_eq!(line.split(',').nth(7), Some(""));
        assert_eq!(line.split(',').nth(8), Some("0.5"));
    }

    #[test]
    fn a_line_that_is_none_is_refused() {
        let line = TraceLine::of(&key(), &trial(), 100 << 20, "x").to_string();
        for (from, to) in [("10.000,", "-1,"), (",H,", ",Z,"), ("read", "trim"), (",x", ",x,y")] {
            assert!(line.replacen(from, to, 1).parse::<TraceLine>().is_err(), "{to}");
        }
        assert!(line.replacen("30.000", "NaN", 1).parse::<TraceLine>().is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            numbers in proptest::collection::vec(0_u32..1_000_000, 8),
            letter in proptest::sample::select(vec!['Y', 'H', 'S', 'N']),
            has_time in any::<bool>(),
        ) {
            let of = |index: usize| f64::from(numbers[index]) / 8.0;
            let line = TraceLine {
                mb_per_s: of(0),
                io_per_s: of(1),
                operation: "write".to_owned(),
                block_kb: of(2),
                outstanding: numbers[3],
                buffering: letter,
                threads: numbers[4],
                time_s: has_time.then(|| of(5)),
                file_kb: of(6),
                clock_s: of(7),
                user_ms: of(0),
                kernel_ms: of(1),
                started_unix_ns: i64::from(numbers[2]) * 1_000_000_000,
                comment: "a comment".to_owned(),
            };
            prop_assert_eq!(line.to_string().parse::<TraceLine>(), Ok(line));
        }

        #[test]
        fn no_comment_adds_a_field_or_line(comment in "\\PC{0,20}|[,\n\r\"]{0,9}") {
            let line = TraceLine::of(&key(), &trial(), 1, &comment).to_string();
            prop_assert_eq!(line.split(',').count(), FIELDS.len());
            prop_assert_eq!(line.lines().count(), 1);
        }
    }
}
