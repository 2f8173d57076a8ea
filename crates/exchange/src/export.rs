//! Writes stored runs in the formats of other tools.
//!
//! If a single run is exported in the format that it was imported from, the original text is
//! written.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use lab::failure::{Failure, Outcome, check_not_under_dev};
use lab::interrupt::Interrupt;
use lab::recorder;
use results::{RunId, RunRow, Store, Table};

use crate::fio;
use crate::openmetrics;
use crate::parquet_file;
use crate::sqlio;

/// A format in which runs are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// fio's JSON+.
    FioJson,
    /// A table as comma-separated values.
    Csv,
    /// A table with one JSON object per row.
    Ndjson,
    /// A table as an Apache Parquet file.
    Parquet,
    /// Metrics for Prometheus.
    Prometheus,
    /// Trace lines in the format of SQLIO, the disk benchmark of Chung et al. (2000).
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

    /// Checks whether this format exports a table, which the user selects with `--table`.
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

/// Returns the value with the name `text` from a list of names and values.
///
/// # Errors
/// No value has this name. The message lists all names.
pub fn one_of<T: Copy>(all: &[(&str, T)], text: &str) -> Result<T, String> {
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let found = all.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    found.ok_or_else(|| format!("use one of {}", names.join(", ")))
}

/// Writes runs in a format. A run that is listed twice is written once. `table` is used only by the
/// formats CSV, NDJSON and Parquet.
///
/// # Errors
/// The database cannot be read, or the destination cannot be written.
pub fn write(
    store: &Store,
    runs: &[RunRow],
    format: Format,
    table: Table,
    out: &mut (impl Write + Send),
) -> Outcome<()> {
    let mut known = HashSet::new();
    let runs: Vec<RunRow> = runs.iter().filter(|run| known.insert(run.id)).cloned().collect();
    let ids: Vec<RunId> = runs.iter().map(|run| run.id).collect();
    match format {
        Format::Csv => Ok(store.export_csv(&ids, table, out)?),
        Format::Ndjson => Ok(store.export_ndjson(&ids, table, out)?),
        Format::Parquet => parquet_file::write(store, &ids, table, out),
        Format::FioJson | Format::Sqlio => {
            written(writeln!(out, "{}", text(store, &runs, format)?))
        }
        Format::Prometheus => {
            let all: Outcome<Vec<_>> = runs.iter().map(|run| metrics(store, run)).collect();
            written(out.write_all(openmetrics::text(&all?).as_bytes()))
        }
    }
}

fn written(result: io::Result<()>) -> Outcome<()> {
    result.map_err(|error| {
        let cause = ioengine::error::cause(&error);
        Failure::failed(format!("cannot write the export: {cause}; specify another --output"))
    })
}

/// Returns the runs as text in the format of another tool. For a single run that was imported from
/// this format, this is the original text. Otherwise the points are converted.
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
    let Some(last) = runs.last() else { return Err(Failure::usage("specify a run to export")) };
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

/// A file that refuses writes after a signal has arrived.
#[derive(Debug)]
pub struct Interruptible<'a> {
    file: File,
    interrupt: &'a Interrupt,
}

impl Write for Interruptible<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The error must not have the kind `Interrupted`, because writers repeat a write after such
        // an error.
        if self.interrupt.is_set() {
            Err(io::Error::other("interrupted"))
        } else {
            self.file.write(bytes)
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The destination of an export.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// Path of the file.
    pub path: &'a Path,
    /// The existing file that may be replaced (`--overwrite`). None if no file may be replaced.
    pub overwrite: Option<&'a Path>,
    /// The database that is exported. The database and its log are never replaced.
    pub db: &'a Path,
}

impl Output<'_> {
    /// Checks whether the file may be written. Returns true if it replaces an existing file.
    fn replaces(&self) -> Outcome<bool> {
        check_not_under_dev(self.path, "--output")?;
        let shown = self.path.display();
        let refused =
            |why: &str| Err(Failure::refused(format!("{shown} {why}; specify another --output")));
        if lab::page::is_beside(self.path, self.db) {
            return refused("belongs to the database that is exported");
        }
        if let Some(named) = self.overwrite.filter(|named| *named != self.path) {
            let named = named.display();
            return Err(Failure::usage(format!(
                "--overwrite {named} is not the file of --output; use --overwrite {shown}"
            )));
        }
        match fs::symlink_metadata(self.path) {
            Ok(found) if !found.is_file() => refused("is not a file"),
            Ok(_) if self.overwrite.is_none() => Err(Failure::refused(format!(
                "{shown} exists; specify another --output, or use --overwrite {shown}"
            ))),
            Ok(_) if is_database(self.path) => refused("is a database"),
            found => Ok(found.is_ok()),
        }
    }
}

/// Checks whether a file is an SQLite database.
fn is_database(path: &Path) -> bool {
    let mut head = [0; 16];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head.starts_with(b"SQLite format 3")
}

/// Writes a file completely or not at all. The data is written under a temporary name in the same
/// directory, and the file is then renamed. An existing file is replaced only if `overwrite` is its
/// path. After a signal, the temporary file is removed.
///
/// # Errors
/// The file exists or cannot be written, `write` fails, or a signal arrived.
pub fn to_file(
    to: Output<'_>,
    interrupt: &Interrupt,
    write: impl FnOnce(&mut BufWriter<Interruptible<'_>>) -> Outcome<()>,
) -> Outcome<()> {
    let (path, replace) = (to.path, to.replaces()?);
    let shown = path.display();
    let failed = |error: &io::Error| {
        let cause = ioengine::error::cause(error);
        Failure::failed(format!("cannot write {shown}: {cause}; specify another --output"))
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside: PathBuf = path.with_file_name(name);
    let file = OpenOptions::new().write(true).create_new(true).open(&beside);
    let file = file.map_err(|error| failed(&error))?;
    let mut out = BufWriter::new(Interruptible { file, interrupt });
    let result = write(&mut out).and_then(|()| {
        let done = out.flush().and_then(|()| out.get_ref().file.sync_all());
        let done = done.and_then(|()| match replace {
            true => fs::rename(&beside, path),
            // `hard_link` fails if a file with this name was created in the meantime.
            false => fs::hard_link(&beside, path).and_then(|()| fs::remove_file(&beside)),
        });
        done.map_err(|error| failed(&error))
    });
    if result.is_err() {
        let _ = fs::remove_file(&beside);
    }
    if interrupt.is_set() && result.is_err() { Err(Failure::interrupted()) } else { result }
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
        let (db, interrupt) = (folder.path().join("x.db"), Interrupt::default());
        let put = |text: &'static str, named: Option<&Path>| {
            let to = Output { path: &path, overwrite: named, db: &db };
            to_file(to, &interrupt, |out| written(out.write_all(text.as_bytes())))
        };
        put("one", None).unwrap();
        assert!(put("two", None).unwrap_err().message.contains("--overwrite"));
        assert!(put("two", Some(&folder.path().join("b.csv"))).is_err());
        put("two", Some(&path)).unwrap();
        let failing = |_: &mut BufWriter<Interruptible<'_>>| Err(Failure::failed("no"));
        let to = Output { path: &path, overwrite: Some(&path), db: &db };
        assert!(to_file(to, &interrupt, failing).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        let link = Output { path: &link, overwrite: Some(&link), db: &db };
        let refused = to_file(link, &interrupt, |_| Ok(())).unwrap_err().message;
        assert!(refused.contains("not a file"), "{refused}");
    }

    #[test]
    fn a_database_is_never_replaced_by_an_export() {
        let folder = tempfile::tempdir().unwrap();
        let (db, other) = (folder.path().join("a.db"), folder.path().join("b.db"));
        for path in [&db, &other] {
            Store::open(path).unwrap().close().unwrap();
        }
        let (copy, wal) = (fs::read(&db).unwrap(), folder.path().join("a.db-wal"));
        for path in [&db, &other, &wal, &folder.path().join("./a.db")] {
            let to = Output { path, overwrite: Some(path), db: &db };
            let refused = to_file(to, &Interrupt::default(), |_| Ok(())).unwrap_err();
            assert_eq!(refused.exit, lab::failure::Exit::Refused, "{refused}");
        }
        assert_eq!(fs::read(&db).unwrap(), copy);
    }

    #[test]
    fn a_signal_ends_an_export_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (path, db) = (folder.path().join("a.csv"), folder.path().join("a.db"));
        let interrupt = Interrupt::default();
        let ended = to_file(Output { path: &path, overwrite: None, db: &db }, &interrupt, |out| {
            interrupt.flag().store(true, std::sync::atomic::Ordering::Relaxed);
            (0..100_000).try_for_each(|_| written(out.write_all(b"a line\n")))
        });
        assert_eq!(ended.unwrap_err().exit, lab::failure::Exit::Interrupted);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
