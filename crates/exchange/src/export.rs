//! Writes stored runs in the formats of other tools.
//!
//! A run that was imported from the same format is written with the numbers that were read.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use lab::failure::{Failure, Outcome, check_not_under_dev};
use lab::recorder;
use results::{RunId, RunRow, Store, Table};

use crate::fio;
use crate::openmetrics;
use crate::parquet_file;
use crate::sqlio;

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// fio's JSON+.
    FioJson,
    /// A table as comma-separated values.
    Csv,
    /// A table as one JSON object a row.
    Ndjson,
    /// A table as an Apache Parquet file.
    Parquet,
    /// Metrics for Prometheus.
    Prometheus,
    /// Trace lines of the papers' SQLIO.
    Sqlio,
}

impl Format {
    /// All formats with their names.
    pub const NAMED: [(&'static str, Format); 6] = [
        ("fio-json", Format::FioJson),
        ("csv", Format::Csv),
        ("ndjson", Format::Ndjson),
        ("parquet", Format::Parquet),
        ("prometheus", Format::Prometheus),
        ("sqlio", Format::Sqlio),
    ];

    /// Whether the user must choose one of several tables for this format.
    pub fn has_tables(self) -> bool {
        matches!(self, Format::Csv | Format::Ndjson | Format::Parquet)
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        one_of(&Format::NAMED, text)
    }
}

/// The value with this name in a list of names and values.
///
/// # Errors
/// No value has this name; the message lists all names.
pub fn one_of<T: Copy>(all: &[(&str, T)], text: &str) -> Result<T, String> {
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let found = all.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    found.ok_or_else(|| format!("one of {}", names.join(", ")))
}

/// Writes runs in a format. `table` selects the table of the formats CSV and NDJSON.
///
/// # Errors
/// The database cannot be read; the destination cannot be written.
pub fn write(
    store: &Store,
    runs: &[RunRow],
    format: Format,
    table: Table,
    out: &mut (impl Write + Send),
) -> Outcome<()> {
    let ids: Vec<RunId> = runs.iter().map(|run| run.id).collect();
    match format {
        Format::Csv => Ok(store.export_csv(&ids, table, out)?),
        Format::Ndjson => Ok(store.export_ndjson(&ids, table, out)?),
        Format::Parquet => parquet_file::write(store, &ids, table, out),
        Format::FioJson | Format::Sqlio => written(writeln!(out, "{}", text(store, runs, format)?)),
        Format::Prometheus => {
            let all: Outcome<Vec<_>> = runs.iter().map(|run| metrics(store, run)).collect();
            written(out.write_all(openmetrics::text(&all?).as_bytes()))
        }
    }
}

fn written(result: io::Result<()>) -> Outcome<()> {
    result.map_err(|error| Failure::failed(format!("writing: {}", ioengine::error::cause(&error))))
}

/// The runs in the format of one tool: the original text if they were imported from this format,
/// else converted from the points.
fn text(store: &Store, runs: &[RunRow], format: Format) -> Outcome<String> {
    let name = if format == Format::Sqlio { sqlio::FORMAT } else { fio::import::FORMAT };
    if let [run] = runs
        && let Some(origin) = store.origin(run.id)?
        && origin.format == name
    {
        return Ok(origin.document.trim_end().to_owned());
    }
    let mut points = Vec::new();
    for run in runs {
        let loaded = recorder::load(store, run.id)?;
        let label = run.label.clone().filter(|_| loaded.len() == 1);
        points.extend(loaded.into_iter().map(|point| (label.clone(), point)));
    }
    let Some(last) = runs.last() else { return Err(Failure::usage("name a run to export")) };
    if format == Format::Sqlio {
        let points: Vec<_> = points.into_iter().map(|(_, point)| point).collect();
        return Ok(sqlio::trace(&points, last.label.as_deref()));
    }
    let end = last.finished_unix_ns.unwrap_or(last.started_unix_ns);
    let output = fio::export::output(&last.version, end, &points);
    Ok(serde_json::to_string_pretty(&output).unwrap_or_default())
}

fn metrics(store: &Store, run: &RunRow) -> Outcome<openmetrics::Run> {
    Ok(openmetrics::Run {
        label: run.label.clone(),
        started_unix_ns: run.started_unix_ns,
        host: serde_json::from_str(&run.host_json).unwrap_or_default(),
        target: serde_json::from_str(&run.target_json).unwrap_or_default(),
        points: recorder::load(store, run.id)?,
    })
}

/// Writes a file completely or not at all: it is written under a temporary name in the same folder,
/// and then renamed. An existing file is replaced only if `overwrite` names it.
///
/// # Errors
/// The file exists or cannot be written, or `write` fails.
pub fn to_file(
    path: &Path,
    overwrite: Option<&PathBuf>,
    write: impl FnOnce(&mut BufWriter<File>) -> Outcome<()>,
) -> Outcome<()> {
    check_not_under_dev(path, "--output")?;
    let replace = overwrite.is_some_and(|named| named == path);
    let shown = path.display();
    let failed = |error: &dyn Display| Failure::failed(format!("writing {shown}: {error}"));
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => {
            return Err(Failure::refused(format!("{shown} is not a file; give another --output")));
        }
        Ok(_) if !replace => {
            return Err(Failure::refused(format!(
                "{shown} exists; give another --output, or --overwrite {shown}"
            )));
        }
        _ => {}
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside: PathBuf = path.with_file_name(name);
    let file = OpenOptions::new().write(true).create_new(true).open(&beside);
    let file = file.map_err(|error| failed(&ioengine::error::cause(&error)))?;
    let mut out = BufWriter::new(file);
    let result = write(&mut out).and_then(|()| {
        let done = out.flush().and_then(|()| out.get_ref().sync_all());
        let done = done.and_then(|()| match replace {
            true => fs::rename(&beside, path),
            // `hard_link` fails if a file with this name was created in the meantime.
            false => fs::hard_link(&beside, path).and_then(|()| fs::remove_file(&beside)),
        });
        done.map_err(|error| failed(&ioengine::error::cause(&error)))
    });
    if result.is_err() {
        let _ = fs::remove_file(&beside);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::{Destination, import};

    #[test]
    fn what_fio_printed_is_exported_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (file, db) = (folder.path().join("a.json"), folder.path().join("a.db"));
        let text = r#"{"fio version": "fio-3.33", "unknown": [1.50], "jobs": [{"jobname": "a",
            "read": {"io_bytes": 4096000, "total_ios": 1000, "runtime": 500}}]}"#;
        fs::write(&file, format!("fio: a warning\n{text}\n")).unwrap();
        let to = Destination { db: db.clone(), label: None, host: None };
        import(&[file], &to, false).unwrap();
        let store = Store::open_read_only(&db).unwrap();
        let mut out = Vec::new();
        let runs = store.runs().unwrap();
        write(&store, &runs, Format::FioJson, Table::Points, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap().trim_end(), text);
    }

    #[test]
    fn a_file_is_replaced_only_on_request_and_only_if_the_export_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let put = |text: &'static str, named: Option<&PathBuf>| {
            to_file(&path, named, |out| written(out.write_all(text.as_bytes())))
        };
        put("one", None).unwrap();
        assert!(put("two", None).unwrap_err().message.contains("--overwrite"));
        assert!(put("two", Some(&folder.path().join("b.csv"))).is_err());
        put("two", Some(&path)).unwrap();
        assert!(to_file(&path, Some(&path), |_| Err(Failure::failed("no"))).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        assert!(
            to_file(&link, Some(&link), |_| Ok(())).unwrap_err().message.contains("not a file")
        );
    }
}
