//! Summarises a stored trace of any known format, converts it to halfpower's own format, or exports
//! it to a format of another tool.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter};
use std::path::Path;

use lab::failure::{Failure, Outcome, check_not_under_dev};
use lab::trace_file::{TraceFile, failed, format_of, is_own};
use trace::import::{self, Format};
use trace::{TraceReader, export};

use crate::document::TraceDocument;
use crate::session::summarise;

/// A format to which traces can be exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// A log that `fio --read_iolog` replays.
    FioLog,
    /// Comma-separated values.
    Csv,
}

impl ExportFormat {
    /// All export formats.
    pub const ALL: [ExportFormat; 2] = [ExportFormat::FioLog, ExportFormat::Csv];

    /// Returns the name of the format on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ExportFormat::FioLog => "fio-iolog",
            ExportFormat::Csv => "csv",
        }
    }
}

/// Reads a trace of any known format and summarises it. `format` overrides the detected format. If
/// `output` is given, converts a trace of another tool to halfpower's format and writes it there.
///
/// # Errors
/// The file cannot be read or is damaged, its format is unknown, or `output` exists.
pub fn show(path: &Path, format: Option<Format>, output: Option<&Path>) -> Outcome<TraceDocument> {
    if let Some(output) = output {
        check_not_under_dev(output, "--output")?;
    }
    if format.is_none() && is_own(path)? {
        return match output {
            None => summarise(path),
            Some(_) => Err(Failure::usage(format!(
                "{}: this is already a halfpower trace; drop --output, or use --export to write \
                 the trace in another format",
                path.display()
            ))),
        };
    }
    if let Some(output) = output {
        import::convert(path, format_of(path, format)?, output).map_err(|error| failed(&error))?;
        return summarise(output);
    }
    let mut document = summarise(TraceFile::open(path, format)?.path())?;
    document.trace = path.display().to_string();
    Ok(document)
}

/// Exports a trace to a new file in another format. Returns a message for the user.
///
/// # Errors
/// The trace cannot be read, or `output` exists or cannot be written. After an error, no incomplete
/// output remains.
pub fn write(path: &Path, format: ExportFormat, output: &Path) -> Outcome<String> {
    check_not_under_dev(output, "--output")?;
    let trace = TraceReader::open(path).map_err(|error| failed(&error))?;
    let name = output.display().to_string();
    let file = OpenOptions::new().write(true).create_new(true).open(output);
    let file = file.map_err(|error| cannot_make(&name, &error))?;
    let mut out = BufWriter::new(file);
    let exported = match format {
        ExportFormat::FioLog => export::fio_log(trace, &mut out, &name),
        ExportFormat::Csv => export::csv(trace, &mut out, &name),
    };
    let exported = exported.map_err(|error| {
        // If the incomplete output file cannot be removed, only the export error is reported.
        let _ = fs::remove_file(output);
        failed(&error)
    })?;
    let left_out = match exported.left_out {
        0 => String::new(),
        count => format!(
            "; {count} requests were left out, because {} cannot express them or because a replay \
             does not need them",
            format.name()
        ),
    };
    Ok(format!("Wrote {} requests to {name}{left_out}.", exported.requests))
}

fn cannot_make(name: &str, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        io::ErrorKind::AlreadyExists => "specify a new file",
        _ => "specify a file in a directory that you may write to",
    };
    Failure::usage(format!("{name}: {}; {remedy}", ioengine::error::cause(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "fio version 2 iolog\n/data/f add\n/data/f open\n/data/f read 0 4096\n\
                       /data/f write 8192 512\n/data/f close\n";

    #[test]
    fn a_log_of_fio_is_shown_stored_and_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let [log, stored, csv] =
            ["fio.log", "t.parquet", "t.csv"].map(|name| folder.path().join(name));
        fs::write(&log, LOG).unwrap();
        let shown = show(&log, None, None).unwrap();
        assert_eq!(shown.source, "fio-iolog");
        let stored_document = show(&log, None, Some(&stored)).unwrap();
        assert_eq!(shown.requests, stored_document.requests);
        assert!(show(&log, None, Some(&stored)).is_err(), "the file exists");
        let line = write(&stored, ExportFormat::Csv, &csv).unwrap();
        assert!(line.starts_with("Wrote "), "{line}");
        assert_eq!(show(&csv, None, None).unwrap().requests, shown.requests);
        let again = write(&stored, ExportFormat::Csv, &csv).unwrap_err();
        assert!(again.message.ends_with("specify a new file"), "{}", again.message);
    }

    #[test]
    fn a_file_of_no_format_is_refused_with_the_known_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "nothing of that kind\n").unwrap();
        let failure = show(&path, None, None).unwrap_err();
        assert!(failure.message.contains("blkparse"), "{}", failure.message);
        assert!(show(&folder.path().join("y"), None, None).is_err());
    }
}
