//! Imports iozone's table of rates, as iozone prints it with `-a`, or with `-s`, `-r` and `-i`.
//!
//! A row has the file size (KiB), the record size (KiB), and rates (KiB/s) in columns of equal
//! width. A column is blank if the test was not run. `rewrite`, `read` and the random columns
//! become points. `write`, which includes the creation of the file, is used only in rows without
//! `rewrite`.

use cpucost::CpuUsage;
use ioengine::{Caching, EngineKind};
use lab::date;
use lab::failure::{Failure, Outcome};
use lab::machine::{Host, TargetFacts};
use lab::point::{Direction, Trial};
use lab::point_key::PointKey;
use workload::{Pattern, Workload};

use crate::imported::{self, Imported, Trials, UNKNOWN_HOST};

/// Text at the start of iozone's output.
const BANNER: &str = "Performance Test of File I/O";
const REMEDY: &str = "import the unchanged output of iozone, including all spaces";

/// Name of this format in the database.
pub const FORMAT: &str = "iozone-table";
const KIB: u64 = 1024;
/// Maximum of a size (KiB) or a rate (KiB/s) in the table. This is 1 PiB or 1 PiB/s.
const NUMBER_MAX: u64 = 1 << 40;
/// Maximum number of different tests in a table.
const POINTS_MAX: usize = 100_000;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Returns true if a text is the output of iozone.
pub fn is_table(text: &str) -> bool {
    text.contains(BANNER) || text.lines().any(|line| ends(line).is_some())
}

/// Returns the positions at which the first three columns of the table end. None if the line is not
/// the header of a table. The third column and all later columns have the same width.
fn ends(line: &str) -> Option<[usize; 3]> {
    let words: Vec<&str> = line.split_whitespace().take(5).collect();
    if words.as_slice() != ["kB", "reclen", "write", "rewrite", "read"]
        && words.as_slice() != ["KB", "reclen", "write", "rewrite", "read"]
    {
        return None;
    }
    let reclen = line.find("reclen")? + "reclen".len();
    let write = line.get(reclen..)?.find("write")? + "write".len();
    Some([line.find(words[0])? + 2, reclen, reclen + write])
}

/// The settings that iozone prints above a table.
#[derive(Clone, Debug, Default)]
struct Section {
    is_direct: bool,
    is_through: bool,
    has_other_unit: bool,
    started_unix_ns: Option<i64>,
    /// End positions of the first three columns. None outside of a table.
    ends: Option<[usize; 3]>,
}

impl Section {
    /// Parses a line that is not a row of a table.
    fn note(&mut self, line: &str) {
        if line.contains(BANNER) {
            *self = Section::default();
        }
        self.is_direct |= line.contains("O_DIRECT feature enabled");
        self.is_through |= line.contains("O_SYNC") || line.contains("SYNC Mode");
        self.started_unix_ns = began(line).or(self.started_unix_ns);
        if let Some((_, unit)) = line.split_once("Output is in ") {
            self.has_other_unit = !unit.to_ascii_lowercase().starts_with("kbytes/sec");
        }
        self.ends = ends(line);
    }

    /// Returns the end positions of the first three columns. None if the line is not a row of a
    /// table.
    fn is_row(&self, line: &str) -> Option<[usize; 3]> {
        self.ends.filter(|_| line.trim_start().starts_with(|c: char| c.is_ascii_digit()))
    }
}

/// Parses the output of one or several runs of iozone. The runs may differ in caching and start
/// time.
///
/// # Errors
/// There is no table, a table is not in kBytes/sec, or a row is damaged.
pub fn read(text: &str) -> Outcome<Vec<Imported>> {
    let trials = trials(text)?;
    let starts = || trials.points.iter().flat_map(|point| &point.trials);
    let is_unknown = starts().any(|trial| trial.started_unix_ns == 0);
    let version =
        text.split_once("$Revision: ").and_then(|(_, rest)| rest.split_whitespace().next());
    let missing = [
        "the rate of the first write of a file that was also rewritten",
        "results of rereads, and of the tests backward, stride, record rewrite, fwrite and fread",
        "latencies",
        "CPU time",
        "the rate over time",
        "the time zone (UTC is assumed)",
    ];
    let start = is_unknown.then_some("the start time (no readable date; 1970 is stored)");
    Ok(vec![Imported {
        tool: format!("iozone-{}", version.unwrap_or("unknown")),
        format: FORMAT,
        title: "table".to_owned(),
        started_unix_ns: starts().map(|trial| trial.started_unix_ns).min().unwrap_or(0),
        host: Host { name: UNKNOWN_HOST.to_owned(), ..Host::default() },
        target: TargetFacts::default(),
        points: trials.points,
        missing: missing.into_iter().chain(start).map(str::to_owned).collect(),
        document: text.to_owned(),
        supplement: String::new(),
    }])
}

/// Collects the trials of all tables.
fn trials(text: &str) -> Outcome<Trials> {
    let (mut trials, mut section) = (Trials::default(), Section::default());
    let last = text.lines().count();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(ends) = section.is_row(line) else {
            section.note(line);
            if section.has_other_unit && section.ends.is_some() {
                return Err(Failure::failed(format!(
                    "line {number}: the table is not in kBytes/sec; run iozone without -O and -N"
                )));
            }
            continue;
        };
        if number == last && !text.ends_with('\n') {
            return Err(Failure::failed(format!(
                "line {number}: the row has no line end, so the file may be truncated; create the \
                 output again, or add a newline if the row is complete"
            )));
        }
        let failed = |what: String| Failure::failed(format!("line {number}: {what}; {REMEDY}"));
        let row = Row::read(line, ends).map_err(failed)?;
        let caching = Caching::of(section.is_direct, section.is_through);
        let started_unix_ns = section.started_unix_ns.unwrap_or(0);
        for (key, trial) in row.trials(caching)? {
            trials.add(key, Trial { started_unix_ns, ..trial });
        }
        if trials.points.len() > POINTS_MAX {
            return Err(Failure::failed(format!("more than {POINTS_MAX} tests; split the output")));
        }
    }
    if trials.points.is_empty() {
        return Err(Failure::failed(
            "no table with rates (columns kB, reclen, write ...); import the output of iozone with \
             -a, or with -s, -r and -i",
        ));
    }
    Ok(trials)
}

/// Parses the start of a run from a line such as `Run began: Sun Mar  5 12:56:17 2023` (ns since
/// 1970).
fn began(line: &str) -> Option<i64> {
    let words: Vec<&str> = line.trim().strip_prefix("Run began:")?.split_whitespace().collect();
    let [_, month, day, time, year] = words.as_slice() else { return None };
    let month = MONTHS.iter().position(|known| known == month)? + 1;
    let day: u32 = day.parse().ok()?;
    date::parse_utc(&format!("{year}-{month:02}-{day:02} {time}"))
}

struct Row {
    file_kib: u64,
    record_kib: u64,
    record_bytes: u32,
    /// Rates (KiB/s) in this order: write, rewrite, read, reread, random read, random write. None
    /// if the test was not run.
    rates: [Option<u64>; 6],
}

impl Row {
    fn read(line: &str, ends: [usize; 3]) -> Result<Row, String> {
        let line = line.trim_end();
        if !line.is_ascii() {
            return Err("the row has characters that are not ASCII".to_owned());
        }
        // iozone aligns each number with the right edge of its column.
        let number = |from: usize, to: usize| -> Result<Option<u64>, String> {
            let cell = line.get(from..to.min(line.len())).unwrap_or_default();
            let text = cell.trim_start();
            if text.is_empty() {
                return Ok(None);
            }
            let is_digit = |at: usize| line.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
            if !is_digit(to - 1) || is_digit(to) {
                let text = text.trim_end().escape_debug();
                return Err(format!("'{text}' does not end where its column ends"));
            }
            let number = text.parse().ok().filter(|number| *number <= NUMBER_MAX);
            number.map(Some).ok_or_else(|| format!("'{}' is not a number", text.escape_debug()))
        };
        let size = |from: usize, to: usize| {
            let size = number(from, to)?.filter(|size| *size > 0);
            size.ok_or_else(|| "the file size or the record size is missing or 0".to_owned())
        };
        let (file_kib, record_kib) = (size(0, ends[0])?, size(ends[0], ends[1])?);
        if record_kib > file_kib {
            return Err(format!("the record size ({record_kib} KiB) is larger than the file"));
        }
        let record_bytes = record_kib.checked_mul(KIB).and_then(|bytes| bytes.try_into().ok());
        let record_bytes = record_bytes
            .ok_or_else(|| format!("the record size ({record_kib} KiB) is over 4 GiB"))?;
        let mut rates = [None; 6];
        for (index, rate) in rates.iter_mut().enumerate() {
            let width = ends[2] - ends[1];
            let from = ends[1] + index * width;
            *rate = number(from, from + width)?.filter(|rate| *rate > 0);
        }
        Ok(Row { file_kib, record_kib, record_bytes, rates })
    }

    /// Builds a trial for each test of the row. A test transfers the whole file once, at the
    /// printed rate.
    fn trials(&self, caching: Caching) -> Outcome<Vec<(PointKey, Trial)>> {
        let [write, rewrite, read, _, random_read, random_write] = self.rates;
        let tests = [
            (0, Pattern::Sequential, rewrite.or(write)),
            (100, Pattern::Sequential, read),
            (100, Pattern::Random, random_read),
            (0, Pattern::Random, random_write),
        ];
        let mut trials = Vec::new();
        for (read_percent, pattern, rate) in tests {
            let Some(rate) = rate else { continue };
            let elapsed_ns =
                imported::time_ns("the duration of a test", self.file_kib as f64 / rate as f64)?
                    .max(1);
            let workload = Workload {
                engine_kind: EngineKind::Sync,
                pattern,
                read_percent,
                request_bytes: self.record_bytes,
                region_bytes: self.file_kib * KIB,
                ..Workload::default()
            };
            let (bytes, requests) = (self.file_kib * KIB, self.file_kib.div_ceil(self.record_kib));
            let whole = Direction { bytes, requests, ..Direction::default() };
            let directions = match read_percent {
                100 => [whole, Direction::default()],
                _ => [Direction::default(), whole],
            };
            let cpu = CpuUsage { elapsed_ns, ..CpuUsage::default() };
            let trial = Trial { directions, elapsed_ns, cpu, ..Trial::default() };
            trials.push((PointKey { caching, ..PointKey::of(&workload) }, trial));
        }
        Ok(trials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of iozone 3. The second row is from a run with `-i 0 -i 2`, so it has no sequential
    /// reads.
    const TABLE: &str = "\
\tIozone: Performance Test of File I/O
\t        Version $Revision: 3.489 $
\tRun began: Sun Mar  5 12:56:17 2023
\tO_DIRECT feature enabled
\tOutput is in kBytes/sec
                                                              random    random     bkwd
              kB  reclen    write  rewrite    read    reread    read     write     read
          102400       4     2689     3151     9640     9720     8995     2452         
          102400    1024   314600   325053                     374715   325762         

iozone test complete.
";

    #[test]
    fn rates_stand_where_their_column_is() {
        assert!(is_table(TABLE));
        let run = read(TABLE).unwrap().remove(0);
        assert_eq!((run.tool.as_str(), run.points.len()), ("iozone-3.489", 4 + 3));
        let rate = |rw: &str, request_bytes: u64| {
            let is_it = |key: &PointKey| key.rw() == rw && key.request_bytes() == request_bytes;
            let point = run.points.iter().find(|point| is_it(&point.key)).unwrap();
            (point.trials[0].bytes_per_s() / 1024.0).round() as u64
        };
        assert_eq!((rate("write", 4096), rate("read", 4096)), (3151, 9640));
        assert_eq!((rate("randread", 4096), rate("randwrite", 4096)), (8995, 2452));
        assert_eq!((rate("randread", 1 << 20), rate("randwrite", 1 << 20)), (374_715, 325_762));
        assert!(run.points.iter().all(|point| point.key.caching.is_direct()));
        assert_eq!(date::utc(run.started_unix_ns), "2023-03-05 12:56");
        assert!(run.missing.iter().any(|text| text.contains("rereads")));
    }

    #[test]
    fn without_a_rewrite_the_first_write_counts() {
        let row = "          102400       4     2689";
        let table = format!("              kB  reclen    write  rewrite    read\n{row}\n");
        let run = read(&table).unwrap().remove(0);
        assert_eq!((run.points.len(), run.points[0].key.rw()), (1, "write"));
    }

    #[test]
    fn damaged_tables_are_refused_with_the_line() {
        for (from, to, cause) in [
            ("     2689", "      NaN", "line 8: 'NaN'"),
            ("     2689", "    -2689", "line 8: '-2689' is not a number"),
            ("       4  ", "       0  ", "line 8: the file size"),
            ("          102400       4", "99999999999999999999   4", "line 8: "),
            ("          102400", "          1024é0", "line 8: "),
            ("kB  reclen", "kb  reclan", "no table with rates"),
            ("kBytes/sec", "ops/sec", "not in kBytes/sec"),
        ] {
            let failure = read(&TABLE.replacen(from, to, 1)).unwrap_err();
            assert!(failure.message.contains(cause), "{to}: {failure}");
            assert_eq!(failure.message.lines().count(), 1);
        }
        let cut = &TABLE[..TABLE.find("          102400").unwrap()];
        assert!(read(cut).unwrap_err().message.contains("no table"));
    }
    const NAMES: &str = "              kB  reclen    write  rewrite    read    reread    read\n";

    #[test]
    fn rows_whose_columns_are_shifted_or_spill_are_refused() {
        let trimmed = "kB  reclen    write  rewrite    read    reread    read     write";
        for (names, row, cause) in [
            (trimmed, "102400       4     2689     3151     9640", "does not end where"),
            (NAMES.trim_end(), "         102400       4     2689     3151", "does not end where"),
            (NAMES.trim_end(), "           102400       4     2689     3151", "does not end where"),
            (NAMES.trim_end(), "          102400       412345678901234567890", "does not end"),
            (NAMES.trim_end(), "          102400       4 1234567890", "does not end where"),
            (NAMES.trim_end(), "          102400  204800     2689", "larger than the file"),
            (NAMES.trim_end(), "         9999999 9999999     2689", "over 4 GiB"),
        ] {
            let failure = read(&format!("{names}\n{row}\n")).unwrap_err();
            assert!(failure.message.starts_with("line 2: "), "{failure}");
            assert!(failure.message.contains(cause), "{row}: {failure}");
        }
    }

    #[test]
    fn each_output_has_its_own_unit_caching_and_start() {
        let buffered = TABLE.replace("\tO_DIRECT feature enabled\n", "");
        let later = buffered.replace("Mar  5", "Mar  6");
        let run = read(&format!("{TABLE}{later}")).unwrap().remove(0);
        let direct = run.points.iter().filter(|point| point.key.caching.is_direct()).count();
        assert_eq!((run.points.len(), direct), (14, 7));
        let last = run.points.last().unwrap();
        assert_eq!(date::utc(last.trials[0].started_unix_ns), "2023-03-06 12:56");
        assert_eq!(date::utc(run.started_unix_ns), "2023-03-05 12:56");
        let other = buffered.replace("kBytes/sec", "operations per second");
        let failure = read(&format!("{TABLE}{other}")).unwrap_err();
        assert!(failure.message.contains("not in kBytes/sec"), "{failure}");
        let before = format!("\tOutput is in kBytes/sec\n{other}");
        assert!(read(&before).unwrap_err().message.contains("line 7: the table is not"));
    }

    #[test]
    fn a_table_that_is_cut_in_a_row_is_refused() {
        for cut in ["          102400       4     26", "          102400       4     2689     3151"]
        {
            let failure = read(&format!("{NAMES}{cut}")).unwrap_err();
            assert!(failure.message.contains("line 2: the row has no line end"), "{failure}");
        }
    }

    #[test]
    fn a_start_that_cannot_be_read_is_said() {
        let run = read(&TABLE.replace("2023", "99999")).unwrap().remove(0);
        assert!(run.missing.iter().any(|text| text.contains("the start")));
    }
}
