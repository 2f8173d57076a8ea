//! elbencho's results file (`--csvfile`): a line for each phase of a test.
//!
//! Reads and writes become trials; lines with the same settings belong to one point. The figures of
//! the last thread that was done count. In a mix (`--rwmixpct`), the main columns are the writes.

use std::collections::HashMap;

use cpucost::CpuUsage;
use ioengine::{Caching, EngineKind};
use lab::date;
use lab::failure::{Failure, Outcome};
use lab::machine::{Host, TargetFacts};
use lab::point::{Direction, Trial};
use lab::point_key::PointKey;
use workload::{Pattern, Workload};

use crate::imported::{self, Imported, Trials, UNKNOWN_HOST};

/// Format of the document.
pub const FORMAT: &str = "elbencho-csv";
const MIB: f64 = 1_048_576.0;
/// Largest number in the file: more bytes than any test moves.
const NUMBER_MAX: f64 = 1e18;
/// Maximum number of different tests in a file.
const POINTS_MAX: usize = 100_000;

/// Whether a text is a results file.
pub fn is_result(text: &str) -> bool {
    text.lines().next().is_some_and(|line| {
        line.contains("operation") && line.contains("time ms [last]") && line.contains("MiB [last]")
    })
}

/// Reads a results file.
///
/// # Errors
/// One line with the number of the damaged line.
pub fn read(text: &str) -> Outcome<Vec<Imported>> {
    let mut lines = csv::Reader::from_reader(text.as_bytes());
    let header = lines.headers().map_err(|error| damaged(&error))?.clone();
    let columns: HashMap<&str, usize> =
        header.iter().enumerate().map(|(index, name)| (name.trim(), index)).collect();
    if columns.len() != header.len() {
        return Err(Failure::failed(
            "a column is there twice; import the file as elbencho wrote it",
        ));
    }
    let (mut trials, mut title, mut version) = (Trials::default(), String::new(), String::new());
    let mut passed_over = false;
    for record in lines.records() {
        let record = record.map_err(|error| damaged(&error))?;
        let line = Line { columns: &columns, record: &record };
        let operation = line.text("operation");
        if !matches!(operation, "READ" | "WRITE" | "RWMIX") {
            passed_over = true;
            continue;
        }
        let trial = line.trial(operation == "READ")?;
        if trial.requests() == 0 {
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
    let all = trials.points.iter().flat_map(|point| &point.trials);
    let Some(started_unix_ns) = all.map(|trial| trial.started_unix_ns).min() else {
        return Err(Failure::failed("no line of reads or writes; nothing to import"));
    };
    let missing = ["latencies (the file has no percentiles)", "CPU time", "the rate over time"];
    let others = passed_over.then_some("phases of directories and files (MKDIRS, STAT ...)");
    Ok(vec![Imported {
        tool: if version.is_empty() { "elbencho".into() } else { format!("elbencho-{version}") },
        format: FORMAT,
        title: if title.is_empty() { "results file".to_owned() } else { title },
        started_unix_ns,
        host: Host { name: UNKNOWN_HOST.to_owned(), ..Host::default() },
        target: TargetFacts::default(),
        points: trials.points,
        missing: missing.into_iter().chain(others).map(str::to_owned).collect(),
        document: text.to_owned(),
        supplement: String::new(),
    }])
}

fn damaged(error: &csv::Error) -> Failure {
    let line = error.position().map_or(1, csv::Position::line);
    Failure::failed(format!("line {line}: no CSV of elbencho; create the file again"))
}

/// A line with its columns by name.
struct Line<'a> {
    columns: &'a HashMap<&'a str, usize>,
    record: &'a csv::StringRecord,
}

impl<'a> Line<'a> {
    fn text(&self, column: &str) -> &'a str {
        let index = self.columns.get(column);
        index.and_then(|index| self.record.get(*index)).map_or("", str::trim)
    }

    /// A number; 0 if the field is empty or there is no such column.
    fn number(&self, column: &str) -> Outcome<f64> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(0.0);
        }
        let number = text.parse::<f64>().ok().filter(|number| (0.0..NUMBER_MAX).contains(number));
        number.ok_or_else(|| self.failed(&format!("{column} '{}'", text.escape_debug())))
    }

    fn failed(&self, what: &str) -> Failure {
        let line = self.record.position().map_or(0, csv::Position::line);
        let what: String = what.chars().take(60).collect();
        Failure::failed(format!("line {line}: {what} is no usable number; create the file again"))
    }

    fn trial(&self, is_read: bool) -> Outcome<Trial> {
        let block_bytes = self.number("block size")?;
        let elapsed_ms = self.number("time ms [last]")?;
        if block_bytes < 1.0 || elapsed_ms < 1.0 {
            return Err(self.failed("block size or time ms [last]"));
        }
        let direction = |column: &str| -> Outcome<Direction> {
            let bytes = self.number(column)? * MIB;
            let requests = (bytes / block_bytes).round() as u64;
            Ok(Direction { bytes: bytes as u64, requests, ..Direction::default() })
        };
        let main = direction("MiB [last]")?;
        let directions = match is_read {
            true => [main, Direction::default()],
            false => [direction("rwmix read MiB [last]")?, main],
        };
        let elapsed_ns = imported::time_ns("time ms [last]", elapsed_ms / 1e3)?;
        // The line was written when the phase had ended.
        let at = self.text("ISO date").replace('T', " ");
        let ended = date::parse_utc(at.get(..19).unwrap_or(&at)).unwrap_or(0);
        Ok(Trial {
            started_unix_ns: ended.saturating_sub_unsigned(elapsed_ns).max(0),
            directions,
            elapsed_ns,
            cpu: CpuUsage { elapsed_ns, ..CpuUsage::default() },
            ..Trial::default()
        })
    }

    fn key(&self, trial: &Trial) -> Outcome<PointKey> {
        let narrow = |number: f64| number.clamp(0.0, f64::from(u32::MAX)) as u32;
        let depth = narrow(self.number("IO depth")?).max(1);
        let [read, write] = &trial.directions;
        let all = (read.requests + write.requests) as f64;
        let (files, threads) = (self.number("files")?.max(1.0), self.number("threads")?.max(1.0));
        let dirs =
            if self.text("path type") == "dir" { self.number("dirs")?.max(1.0) } else { 1.0 };
        let files = if self.text("path type") == "dir" { files * dirs * threads } else { 1.0 };
        let workload = Workload {
            engine_kind: if depth > 1 { EngineKind::Libaio } else { EngineKind::Sync },
            pattern: match self.text("random") {
                "1" => Pattern::Random,
                _ => Pattern::Sequential,
            },
            read_percent: (100.0 * read.requests as f64 / all).round() as u8,
            request_bytes: narrow(self.number("block size")?),
            depth,
            threads: narrow(threads * self.number("hosts")?.max(1.0)),
            region_bytes: (self.number("file size")? * files) as u64,
            ..Workload::default()
        };
        let caching = Caching::of(self.text("direct IO") == "1", false);
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

    fn line(operation: &str, mib: &str, read_mib: &str) -> String {
        format!(
            "2026-05-22T16:09:38,night,file,1,1,8,1,4,268435456,1048576,1,0,,4,1,0,{operation},\
             2134,2048,11,2941,2941,9,{mib},1661,9383,120903,{read_mib},3.1-1"
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
        let text = lines.join("\n");
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
            let failure = read(&format!("{HEADER}\n{}", line("READ", mib, ""))).unwrap_err();
            assert!(failure.message.starts_with(cause), "{failure}");
        }
        let whole = format!("{HEADER}\n{}\n", line("READ", "1", ""));
        let cut = read(&whole[..whole.len() - 30]).unwrap_err();
        assert!(cut.message.starts_with("line 2: "), "{cut}");
        let twice = whole.replacen("label", "operation", 1);
        assert!(read(&twice).unwrap_err().message.contains("twice"));
        assert!(read(HEADER).unwrap_err().message.contains("nothing to import"));
        assert!(read(&whole.replace("2048,11", "0,11")).unwrap_err().message.contains("time ms"));
    }
}
