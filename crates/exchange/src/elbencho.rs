//! Reads elbencho's results file (`--csvfile`), which has one line for each phase of a test.
//!
//! Each line of reads or writes becomes a trial. Trials with the same settings belong to one point.
//! Results are taken from the columns `[last]`, which have the values when the last thread
//! finished. In a mix (`--rwmixpct`), the reads are in the columns `rwmix read`, and the other
//! columns have only the writes. elbencho truncates amounts and rates to whole numbers, so amounts
//! of a few MiB are computed from the IOPS.

use std::collections::HashMap;

use cpucost::CpuUsage;
use ioengine::{Caching, EngineKind};
use lab::date;
use lab::failure::{Failure, Outcome};
use lab::machine::{Host, TargetFacts};
use lab::point::{Direction, Trial};
use lab::point_key::PointKey;
use workload::{Pattern, Workload};

use crate::checked::{self, NUMBER_MAX};
use crate::imported::{Imported, Trials, UNKNOWN_HOST};

/// Name of the format that is stored with an imported document.
pub const FORMAT: &str = "elbencho-csv";
const MIB: f64 = 1_048_576.0;
/// Maximum duration of a phase (ms), which is more than a century.
const TIME_MAX_MS: u64 = 1 << 42;
/// Maximum relative difference between the amount in a line and the same amount computed from the
/// rate or the IOPS. Differences due to rounding do not count.
const TOLERANCE: f64 = 0.05;
/// Columns that the header must have.
const COLUMNS: [&str; 16] = [
    "operation",
    "ISO date",
    "path type",
    "hosts",
    "threads",
    "dirs",
    "files",
    "file size",
    "block size",
    "direct IO",
    "random",
    "IO depth",
    "time ms [last]",
    "IOPS [last]",
    "MiB/s [last]",
    "MiB [last]",
];
/// Maximum number of different tests in a file. Each test becomes a point.
const POINTS_MAX: usize = 100_000;

/// Checks whether a text is a results file of elbencho.
pub fn is_result(text: &str) -> bool {
    text.lines().next().is_some_and(|line| {
        line.contains("operation") && line.contains("time ms [last]") && line.contains("MiB [last]")
    })
}

/// Reads a results file. A header line applies to all lines below it, up to the next header.
///
/// # Errors
/// The file is damaged or has no results of reads or writes. The message has one line and contains
/// the number of the damaged line.
pub fn read(text: &str) -> Outcome<Vec<Imported>> {
    checked::is_complete(text)?;
    let mut lines =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut columns = Columns::default();
    let (mut trials, mut title, mut version) = (Trials::default(), String::new(), String::new());
    let (mut passed_over, mut is_idle) = (false, false);
    for record in lines.records() {
        let record = record.map_err(|error| damaged(&error))?;
        if columns.0.is_empty() || record.iter().any(|field| field.trim() == "time ms [last]") {
            columns = Columns::of(&record)?;
            continue;
        }
        let line = Line { columns: &columns, record: &record };
        if record.len() != columns.0.len() {
            let (fields, names) = (record.len(), columns.0.len());
            return Err(line.failed(&format!("{fields} fields, but the header has {names}")));
        }
        let operation = line.text("operation");
        if !matches!(operation, "READ" | "WRITE" | "RWMIX") {
            passed_over = true;
            continue;
        }
        let trial = line.trial(operation)?;
        if trial.requests() == 0 {
            is_idle = true;
            continue;
        }
        if title.is_empty() {
            line.text("label").clone_into(&mut title);
        }
        line.text("version").clone_into(&mut version);
        trials.add(line.key(&trial)?, trial);
        if trials.points.len() > POINTS_MAX {
            return Err(Failure::failed(format!("more than {POINTS_MAX} tests; split the file")));
        }
    }
    let starts = || trials.points.iter().flat_map(|p| &p.trials).map(|trial| trial.started_unix_ns);
    let Some(started_unix_ns) = starts().min() else {
        return Err(Failure::failed("no line has reads or writes; nothing to import"));
    };
    let has_start = starts().all(|start| start > 0);
    let missing = ["latencies (the file has no percentiles)", "CPU time", "the rate over time"];
    let others = [
        passed_over.then_some("phases of directories and files (MKDIRS, STAT ...)"),
        is_idle.then_some("read and write phases in which no request completed"),
        (!has_start).then_some("the start time (there is no readable date, so 1970 is stored)"),
    ];
    Ok(vec![Imported {
        tool: if version.is_empty() { "elbencho".into() } else { format!("elbencho-{version}") },
        format: FORMAT,
        title: if title.is_empty() { "results file".to_owned() } else { title },
        started_unix_ns,
        host: Host { name: UNKNOWN_HOST.to_owned(), ..Host::default() },
        target: TargetFacts::default(),
        points: trials.points,
        missing: missing
            .into_iter()
            .chain(others.into_iter().flatten())
            .map(str::to_owned)
            .collect(),
        document: text.to_owned(),
        supplement: String::new(),
    }])
}

fn damaged(error: &csv::Error) -> Failure {
    let line = error.position().map_or(1, csv::Position::line);
    Failure::failed(format!("line {line}: this line is not valid CSV; create the file again"))
}

/// The index of each column by name.
#[derive(Clone, Debug, Default)]
struct Columns(HashMap<String, usize>);

impl Columns {
    fn of(header: &csv::StringRecord) -> Outcome<Columns> {
        let line = header.position().map_or(1, csv::Position::line);
        let failed = |what: &str| {
            Failure::failed(format!("line {line}: {what}; import the file as elbencho wrote it"))
        };
        if let [only] = header.iter().collect::<Vec<_>>().as_slice() {
            let separators = [(';', "semicolons"), ('\t', "tabs")];
            let found = separators.iter().find(|(separator, _)| only.contains(*separator));
            let word = found.map_or("other characters", |(_, word)| *word);
            return Err(failed(&format!("the columns are separated by {word}, not by commas")));
        }
        let columns: HashMap<String, usize> =
            header.iter().map(|name| name.trim().to_owned()).zip(0..).collect();
        if columns.len() != header.len() {
            return Err(failed("a column occurs twice"));
        }
        if let Some(name) = COLUMNS.iter().find(|name| !columns.contains_key(**name)) {
            return Err(failed(&format!("there is no column '{name}'")));
        }
        Ok(Columns(columns))
    }
}

/// A line of the file, with the columns of its header.
struct Line<'a> {
    columns: &'a Columns,
    record: &'a csv::StringRecord,
}

impl<'a> Line<'a> {
    fn text(&self, column: &str) -> &'a str {
        let index = self.columns.0.get(column);
        index.and_then(|index| self.record.get(*index)).map_or("", str::trim)
    }

    /// Returns a whole number up to `most`. None if the field is empty or there is no such column.
    fn number(&self, column: &str, most: u64) -> Outcome<Option<u64>> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        let number = text.parse::<u64>().ok().filter(|number| *number <= most);
        number.map(Some).ok_or_else(|| {
            let text: String = text.escape_debug().take(40).collect();
            self.failed(&format!("{column} '{text}' is not a whole number from 0 to {most}"))
        })
    }

    /// Returns a whole number from 1 to `most`. It is an error if the field is empty or 0.
    fn setting(&self, column: &str, most: u64) -> Outcome<u64> {
        let number = self.number(column, most)?.filter(|number| *number > 0);
        number.ok_or_else(|| self.failed(&format!("{column} is empty or 0")))
    }

    fn is_on(&self, column: &str) -> Outcome<bool> {
        match self.text(column) {
            "1" => Ok(true),
            "0" => Ok(false),
            _ => Err(self.failed(&format!("{column} is neither 0 nor 1"))),
        }
    }

    fn failed(&self, what: &str) -> Failure {
        let line = self.record.position().map_or(0, csv::Position::line);
        Failure::failed(format!("line {line}: {what}; create the file again"))
    }

    fn trial(&self, operation: &str) -> Outcome<Trial> {
        let elapsed_ms = self.setting("time ms [last]", TIME_MAX_MS)?;
        if operation == "RWMIX" && !self.columns.0.contains_key("rwmix read MiB [last]") {
            return Err(self.failed("there is no column 'rwmix read MiB [last]'"));
        }
        let main = self.direction("", elapsed_ms)?;
        let directions = match operation {
            "READ" => [main, Direction::default()],
            _ => [self.direction("rwmix read ", elapsed_ms)?, main],
        };
        let elapsed_ns = elapsed_ms * 1_000_000;
        // elbencho writes the line when the phase has ended, so the date is the end of the phase.
        let at = self.text("ISO date").replace('T', " ");
        let ended = date::parse_utc(at.get(..19).unwrap_or(&at)).unwrap_or(0);
        let trial = Trial {
            started_unix_ns: ended.saturating_sub_unsigned(elapsed_ns).max(0),
            directions,
            elapsed_ns,
            cpu: CpuUsage { elapsed_ns, ..CpuUsage::default() },
            ..Trial::default()
        };
        if checked::is_storable(&trial) {
            Ok(trial)
        } else {
            Err(self.failed("the phase transferred more bytes than the database can store"))
        }
    }

    /// Returns the bytes and requests of one direction, computed from the columns with the least
    /// rounding.
    fn direction(&self, prefix: &str, elapsed_ms: u64) -> Outcome<Direction> {
        let number = |name: &str, most| self.number(&format!("{prefix}{name}"), most);
        let mib = number("MiB [last]", NUMBER_MAX >> 20)?.unwrap_or(0);
        let (iops, rate) =
            (number("IOPS [last]", NUMBER_MAX)?, number("MiB/s [last]", NUMBER_MAX)?);
        let whole = number("IOs [last]", NUMBER_MAX)?;
        let block_bytes = self.setting("block size", u64::from(u32::MAX))? as f64;
        // The last block of a file may be smaller than the block size, so the mean request size is
        // used.
        let file_bytes = self.number("file size", NUMBER_MAX)?.unwrap_or(0) as f64;
        let blocks = (file_bytes / block_bytes).ceil();
        let mean_bytes = if file_bytes > 0.0 { file_bytes / blocks } else { block_bytes };
        let seconds = [elapsed_ms as f64 / 1e3, (elapsed_ms + 1) as f64 / 1e3];
        let bytes = [mib as f64 * MIB, (mib + 1) as f64 * MIB];
        let by_rate = rate.map(|rate| [rate as f64 * MIB, (rate + 1) as f64 * MIB]);
        let by_requests =
            iops.map(|iops| [iops as f64 * mean_bytes, (iops + 1) as f64 * block_bytes]);
        for (name, per_s) in [("MiB/s", by_rate), ("IOPS", by_requests)] {
            let Some([least, most]) = per_s else { continue };
            let (least, most) = (least * seconds[0], most * seconds[1]);
            if least > bytes[1] * (1.0 + TOLERANCE) || most * (1.0 + TOLERANCE) < bytes[0] {
                return Err(self.failed(&format!(
                    "{prefix}MiB [last] = {mib} contradicts the values of {prefix}{name} [last], \
                     block size and time"
                )));
            }
        }
        let by_rounding = |number: u64| 1.0 / number as f64;
        let requests = whole.map(|whole| whole as f64).or_else(|| {
            let iops = iops.filter(|iops| {
                let unclear = 1.0 - mean_bytes / block_bytes;
                by_rounding(*iops) + by_rounding(elapsed_ms) + unclear < by_rounding(mib)
            })?;
            Some(iops as f64 * seconds[0])
        });
        let amount = match requests {
            Some(requests) => (requests * mean_bytes).clamp(bytes[0], bytes[1]),
            None => bytes[0],
        };
        let requests = match whole {
            Some(whole) => whole,
            None => (amount / mean_bytes).round() as u64,
        };
        Ok(Direction { bytes: amount as u64, requests, ..Direction::default() })
    }

    fn key(&self, trial: &Trial) -> Outcome<PointKey> {
        let most = u64::from(u32::MAX);
        let depth = self.setting("IO depth", most)? as u32;
        let [read, write] = &trial.directions;
        let all = (read.requests + write.requests) as f64;
        let threads = self.setting("threads", most)?;
        let all_threads = threads * self.setting("hosts", most)?;
        let file_bytes = self.number("file size", NUMBER_MAX)?.unwrap_or(0);
        let files = match self.text("path type") {
            "dir" => self.setting("files", most)? * self.number("dirs", most)?.unwrap_or(1).max(1),
            _ => 1,
        };
        let threads_with_files = if self.text("path type") == "dir" { threads } else { 1 };
        let region = files.checked_mul(threads_with_files).and_then(|n| n.checked_mul(file_bytes));
        let Some(region_bytes) = region.filter(|bytes| *bytes <= NUMBER_MAX) else {
            return Err(self.failed("the files are larger in total than the database can store"));
        };
        let workload = Workload {
            engine_kind: if depth > 1 { EngineKind::Libaio } else { EngineKind::Sync },
            pattern: match self.is_on("random")? {
                true => Pattern::Random,
                false => Pattern::Sequential,
            },
            read_percent: (100.0 * read.requests as f64 / all).round() as u8,
            request_bytes: self.setting("block size", most)? as u32,
            depth,
            threads: u32::try_from(all_threads)
                .map_err(|_| self.failed("the product of hosts and threads is too large"))?,
            region_bytes,
            ..Workload::default()
        };
        let caching = Caching::of(self.is_on("direct IO")?, false);
        Ok(PointKey { caching, ..PointKey::of(&workload) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns as in the documentation of elbencho 3, docs/csv-docs.md.
    const HEADER: &str = "ISO date,label,path type,paths,hosts,threads,dirs,files,file size,\
        block size,direct IO,random,random aligned,IO depth,shared paths,truncate,operation,\
        time ms [first],time ms [last],entries/s [last],IOPS [last],MiB/s [last],CPU% [last],\
        MiB [last],IO lat us [min],IO lat us [avg],IO lat us [max],rwmix read MiB [last],version";

    /// Returns a line for a phase of 1 MiB blocks that took 2.048 s.
    fn line(operation: &str, mib: &str, read_mib: &str) -> String {
        let rate = mib.parse::<u64>().map_or(0, |mib| mib * 1000 / 2048);
        format!(
            "2026-05-22T16:09:38,night,file,1,1,8,1,4,268435456,1048576,1,0,,4,1,0,{operation},\
             2134,2048,11,{rate},{rate},9,{mib},1661,9383,120903,{read_mib},3.1-1"
        )
    }

    #[test]
    fn reads_and_writes_are_trials_of_points_and_other_phases_are_named() {
        let lines = [
            HEADER.to_owned(),
            line("MKDIRS", "", ""),
            line("WRITE", "8192", ""),
            line("READ", "4096", ""),
            line("READ", "4097", ""),
            line("RWMIX", "100", "300"),
        ];
        let text = lines.join("\n") + "\n";
        assert!(is_result(&text));
        let run = read(&text).unwrap().remove(0);
        assert_eq!((run.tool.as_str(), run.title.as_str()), ("elbencho-3.1-1", "night"));
        let rws: Vec<&str> = run.points.iter().map(|point| point.key.rw()).collect();
        assert_eq!(rws, ["write", "read", "rw"]);
        let write = &run.points[0].trials[0];
        assert_eq!((write.bytes(), write.requests()), (8192 << 20, 8192));
        assert_eq!(write.bytes_per_s(), 8192.0 * MIB / 2.048);
        assert_eq!(run.points[1].trials.len(), 2);
        assert_eq!(run.points[2].key.workload.read_percent, 75);
        let key = &run.points[0].key;
        assert_eq!((key.request_bytes(), key.depth(), key.threads()), (1 << 20, 4, 8));
        assert!(key.caching.is_direct());
        assert!(run.missing.iter().any(|text| text.contains("MKDIRS")));
    }

    #[test]
    fn damaged_files_are_refused_with_the_line() {
        for (mib, cause) in [("NaN", "line 2: MiB"), ("-1", "line 2: MiB"), ("1e30", "line 2")] {
            let failure = read(&format!("{HEADER}\n{}\n", line("READ", mib, ""))).unwrap_err();
            assert!(failure.message.starts_with(cause), "{failure}");
        }
        let whole = format!("{HEADER}\n{}\n", line("READ", "1", ""));
        let cut = read(&whole[..whole.len() - 30]).unwrap_err();
        assert!(cut.message.starts_with("line 2: "), "{cut}");
        let twice = whole.replacen("label", "operation", 1);
        assert!(read(&twice).unwrap_err().message.contains("twice"));
        assert!(read(&format!("{HEADER}\n")).unwrap_err().message.contains("nothing to import"));
        assert!(read(&whole.replace("2048,11", "0,11")).unwrap_err().message.contains("time ms"));
    }
    fn one(line: &str) -> Outcome<Imported> {
        Ok(read(&format!("{HEADER}\n{line}\n"))?.remove(0))
    }

    #[test]
    fn each_header_counts_for_the_lines_below_it() {
        let line = line("READ", "4096", "");
        let other =
            HEADER.replace("time ms [first],time ms [last]", "time ms [last],time ms [first]");
        let swapped = line.replace("2134,2048", "2048,1000");
        let run = read(&format!("{HEADER}\n{line}\n{other}\n{swapped}\n")).unwrap().remove(0);
        let times: Vec<u64> = run.points[0].trials.iter().map(|trial| trial.elapsed_ns).collect();
        assert_eq!(times, [2_048_000_000; 2]);
        let more = format!("{HEADER}\n{line}\n{HEADER},command\n{line},elbencho\n");
        assert_eq!(read(&more).unwrap()[0].points[0].trials.len(), 2);
    }

    #[test]
    fn a_missing_or_renamed_column_is_named() {
        for (from, to, name) in [
            ("IO depth", "I/O depth", "IO depth"),
            ("random,", "accidental,", "random"),
            ("direct IO", "O_DIRECT", "direct IO"),
            ("threads", "workers", "threads"),
        ] {
            let text = format!("{}\n", HEADER.replacen(from, to, 1));
            let failure = read(&text).unwrap_err();
            assert!(failure.message.contains(&format!("no column '{name}'")), "{failure}");
        }
        let header = HEADER.replace("rwmix read MiB [last]", "other");
        let failure = read(&format!("{header}\n{}\n", line("RWMIX", "4", "4"))).unwrap_err();
        assert!(failure.message.contains("line 2: there is no column 'rwmix"), "{failure}");
    }

    /// Returns a line for a phase of 4 KiB blocks that took 500 ms.
    fn small(iops: u64, rate: u64, mib: &str) -> String {
        let line = line("READ", "4096", "").replace(",1048576,", ",4096,");
        line.replace("2134,2048,11,2000,2000,9,4096", &format!("500,500,11,{iops},{rate},9,{mib}"))
    }

    #[test]
    fn a_few_mib_are_made_from_the_requests() {
        let run = one(&small(1000, 3, "1")).unwrap();
        let trial = &run.points[0].trials[0];
        assert_eq!((trial.bytes(), trial.requests()), (500 * 4096, 500));
        let run = one(&small(100, 0, "0")).unwrap();
        assert_eq!(run.points[0].trials[0].bytes(), 50 * 4096);
    }

    #[test]
    fn figures_that_contradict_each_other_are_refused() {
        for line in [
            small(2000, 2000, "0"),
            line("READ", "4096", "").replace(",2000,2000,", ",5,5,"),
            line("READ", "4096", "").replace(",2000,2000,", ",2000,5,"),
            line("READ", "4096", "").replace(",2000,2000,", ",5,2000,"),
        ] {
            let failure = one(&line).unwrap_err();
            assert!(failure.message.starts_with("line 2: MiB [last]"), "{failure}");
            assert!(failure.message.contains("contradicts"), "{failure}");
        }
    }

    #[test]
    fn numbers_that_cannot_be_stored_or_are_not_whole_are_refused_with_the_line() {
        for (from, to, cause) in [
            (",1048576,", ",8589934592,", "block size"),
            (",1048576,", ",0,", "block size"),
            (",4096,", ",9e+17,", "MiB [last]"),
            (",4096,", ",8796093022208,", "MiB [last]"),
            (",4096,", ",4.096,", "MiB [last]"),
            ("1,8,1,4,", "1,100000000000000000,1,4,", "threads"),
            ("1,8,1,4,", "4294967295,8,1,4,", "the product of hosts and threads"),
            (",,4,1,0", ",,1.5,1,0", "IO depth"),
            (",,4,1,0", ",,,1,0", "IO depth"),
            (",1,0,,4", ",yes,0,,4", "direct IO"),
            ("2134,2048", "2134,900000000000000000", "time ms"),
            ("file,1,1,8,1,4,268435456", "dir,1,1,8,9999,9999,99999999999999", "in total"),
        ] {
            let failure = one(&line("READ", "4096", "").replacen(from, to, 1)).unwrap_err();
            assert!(failure.message.starts_with("line 2: "), "{failure}");
            assert!(failure.message.contains(cause), "{to}: {failure}");
        }
    }

    #[test]
    fn a_file_without_a_last_line_end_is_refused() {
        let failure = read(&format!("{HEADER}\n{}", line("READ", "4096", ""))).unwrap_err();
        assert!(failure.message.starts_with("line 2: the last line has no line end"), "{failure}");
    }

    #[test]
    fn other_separators_than_commas_are_named() {
        for (separator, word) in [(";", "semicolons"), ("\t", "tabs")] {
            let text = format!("{HEADER}\n{}\n", line("READ", "4096", "")).replace(',', separator);
            assert!(is_result(&text));
            let failure = read(&text).unwrap_err();
            assert!(failure.message.contains(word), "{failure}");
        }
    }

    #[test]
    fn a_date_that_cannot_be_read_is_said() {
        let line = line("READ", "4096", "").replace("2026-05-22T16:09:38", "garbage");
        let run = read(&format!("{HEADER}\n{line}\n")).unwrap().remove(0);
        assert!(run.missing.iter().any(|text| text.contains("the start")));
    }
}
