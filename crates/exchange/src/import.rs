//! Imports results of other tools: recognises the format of a file, and stores its results.
//!
//! All files are read and checked before anything is stored. Only regular files and standard input
//! are read, and at most 64 MiB of each, so that memory is bounded.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use lab::failure::{Failure, Outcome};
use lab::json::Program;
use lab::recorder::Recorder;
use results::{RunId, Store};
use schemars::JsonSchema;
use serde::Serialize;

use crate::diskspd;
use crate::elbencho;
use crate::fio;
use crate::fio::logs::{self, Logs};
use crate::imported::{Imported, Stored, UNKNOWN_HOST};
use crate::iozone;
use crate::sqlio;

/// Maximum size of a file (bytes).
const BYTES_MAX: u64 = 64 << 20;

/// A file format that can be imported.
struct Format {
    /// Name of the format in messages.
    name: &'static str,
    /// Returns true if a file with this name and text has the format.
    is_it: fn(&Path, &str) -> bool,
    /// Parses the text. The parser of fio's JSON uses the logs of its jobs and removes these logs
    /// from the list.
    read: fn(&Path, &str, &mut Logs) -> Outcome<Vec<Imported>>,
}

/// All formats. The first format that recognises a file is used.
const FORMATS: [Format; 5] = [
    Format {
        name: "fio's JSON",
        is_it: |_, text| fio::output::is_output(text),
        read: |path, text, logs| fio::import::read(text, path, logs),
    },
    Format {
        name: "diskspd's XML",
        is_it: |_, text| diskspd::is_result(text),
        read: |_, text, _| diskspd::read(text),
    },
    Format {
        name: "SQLIO's traces",
        is_it: |_, text| sqlio::is_trace(text),
        read: |_, text, _| sqlio::read(text),
    },
    Format {
        name: "elbencho's CSV",
        is_it: |_, text| elbencho::is_result(text),
        read: |_, text, _| elbencho::read(text),
    },
    Format {
        name: "iozone's table",
        is_it: |_, text| iozone::is_table(text),
        read: |_, text, _| iozone::read(text),
    },
];

/// The destination of imported results.
#[derive(Clone, Debug)]
pub struct Destination {
    /// Path of the database.
    pub db: PathBuf,
    /// Label of the imported runs. None if the runs get no label.
    pub label: Option<String>,
    /// Host name to store if the tool does not report the host. If None, "unknown" is stored.
    pub host: Option<String>,
}

/// The output of `import --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ImportDocument {
    /// The program that wrote this document.
    pub halfpower: Program,
    /// The imported runs, in the order of the files.
    pub runs: Vec<ImportedRun>,
}

/// A run that was imported.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ImportedRun {
    /// Number of the run in the database.
    pub run: i64,
    /// Identifier of the run, computed from the tool's output.
    pub uuid: String,
    /// Whether this import stored the run. False if the same output was imported before.
    pub is_new: bool,
    /// Path of the imported file.
    pub file: String,
    /// Name and version of the tool.
    pub tool: String,
    /// Name of the host. "unknown" if the tool does not report the host.
    pub host: String,
    /// Number of points.
    pub points: u64,
    /// Information that the tool did not report.
    pub not_reported: Vec<String>,
    /// Description of the run in one line.
    #[serde(skip)]
    line: String,
}

impl ImportDocument {
    /// Describes each run in one line.
    pub fn lines(&self) -> Vec<String> {
        self.runs.iter().map(|run| run.line.replace(char::is_control, " ")).collect()
    }
}

impl ImportedRun {
    fn new(imported: &Imported, stored: &Stored, file: &str, label: Option<&str>) -> ImportedRun {
        let id = stored.run.id.0;
        let is_as_labelled = label.is_none() || label == stored.run.label.as_deref();
        let known = match (stored.is_new, is_as_labelled) {
            (true, _) => "",
            (false, true) => " (imported before)",
            (false, false) => " (imported before; change its label with halfpower runs tag)",
        };
        ImportedRun {
            run: id,
            uuid: stored.run.uuid.clone(),
            is_new: stored.is_new,
            file: file.to_owned(),
            tool: imported.tool.clone(),
            host: imported.host.name.clone(),
            points: imported.points.len() as u64,
            not_reported: imported.missing.clone(),
            line: format!("run {id}{known}: {}", imported.describe()),
        }
    }
}

/// Returns true if a file may be the output of another tool. Such a file is neither empty nor an
/// SQLite database.
pub fn is_foreign(path: &Path) -> bool {
    let mut head = [0; 16];
    let read = File::open(path).and_then(|mut file| file.read(&mut head));
    path.is_file() && read.is_ok_and(|bytes| bytes > 0) && !head.starts_with(b"SQLite format 3")
}

/// Reads a file of any supported format. The path `-` means standard input.
///
/// # Errors
/// The file cannot be read, is too large, has an unknown format, or is damaged. The message has one
/// line and contains the file name.
pub fn read(path: &Path) -> Outcome<Vec<Imported>> {
    let runs = read_all(&[path.to_path_buf()], text_of)?;
    Ok(runs.into_iter().map(|(_, run)| run).collect())
}

/// Parses a text of any supported format. `name` is the file name. It is used in messages and to
/// recognise fio's logs.
///
/// # Errors
/// The errors of [`read`].
pub fn read_text(name: &str, text: &str) -> Outcome<Vec<Imported>> {
    let runs = read_all(&[PathBuf::from(name)], |_| Ok(text.to_owned()))?;
    Ok(runs.into_iter().map(|(_, run)| run).collect())
}

/// Reads the files of one import. If fio's JSON output and logs are imported together, the logs are
/// added to the run of the JSON output.
fn read_all(
    files: &[PathBuf],
    text_of: impl Fn(&Path) -> Outcome<String>,
) -> Outcome<Vec<(PathBuf, Imported)>> {
    let (mut logs, mut documents, mut runs) = (Logs::default(), Vec::new(), Vec::new());
    for path in files {
        let text = without_mark(text_of(path)?);
        if logs::is_log(path) {
            logs.add(path, text).map_err(|failure| named(path, &failure))?;
        } else {
            documents.push((path, text));
        }
    }
    for (path, text) in documents {
        let Some(format) = FORMATS.iter().find(|format| (format.is_it)(path, &text)) else {
            let (path, names) = (path.display(), FORMATS.map(|format| format.name).join(", "));
            return Err(Failure::failed(format!(
                "{path}: the format is unknown; halfpower imports {names} and fio logs"
            )));
        };
        let found = (format.read)(path, &text, &mut logs);
        let found = found.map_err(|failure| named(path, &failure))?;
        runs.extend(found.into_iter().map(|run| (path.clone(), run)));
    }
    runs.extend(logs.rest()?);
    runs.iter_mut().for_each(|(_, run)| run.doubt());
    Ok(runs)
}

fn named(path: &Path, failure: &Failure) -> Failure {
    Failure::new(failure.exit, format!("{}: {}", path.display(), failure.message))
}

fn text_of(path: &Path) -> Outcome<String> {
    let failed = |error: io::Error| {
        let (cause, path) = (ioengine::error::cause(&error), path.display());
        Failure::failed(format!("reading {path}: {cause}; specify the output of a supported tool"))
    };
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        io::stdin().take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        // The file type is checked before the file is opened, because opening a pipe would block.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        let file = File::open(path).map_err(failed)?;
        file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    }
    if bytes.len() as u64 > BYTES_MAX {
        return Err(Failure::failed(format!(
            "{} is larger than {} MiB; import output with fewer jobs",
            path.display(),
            BYTES_MAX >> 20
        )));
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let path = path.display();
        return Err(Failure::failed(format!(
            "reading {path}: the file is UTF-16; save it as UTF-8"
        )));
    }
    String::from_utf8(bytes)
        .map_err(|_| failed(io::Error::new(io::ErrorKind::InvalidData, "the text is not UTF-8")))
}

/// Removes the byte order mark that some editors and shells write at the start of a file.
fn without_mark(text: String) -> String {
    text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)
}

/// Imports files. With `plan`, nothing is stored, and the result describes the runs that would be
/// stored.
///
/// # Errors
/// A file cannot be imported, or the database cannot be written.
pub fn import(files: &[PathBuf], to: &Destination, plan: bool) -> Outcome<ImportDocument> {
    let mut all = Vec::new();
    for (file, mut run) in read_all(files, text_of)? {
        run.name_host(to.host.as_deref().unwrap_or(UNKNOWN_HOST));
        all.push((file.display().to_string(), run));
    }
    let mut document = ImportDocument { halfpower: Program::this(), runs: Vec::new() };
    if plan {
        document.runs.extend(all.iter().map(|(file, run)| ImportedRun {
            run: 0,
            uuid: String::new(),
            is_new: false,
            file: file.clone(),
            tool: run.tool.clone(),
            host: run.host.name.clone(),
            points: run.points.len() as u64,
            not_reported: run.missing.clone(),
            line: format!("would import {}", run.describe()),
        }));
        return Ok(document);
    }
    document.runs = store_all(&all, files, to)?;
    Ok(document)
}

/// Stores all runs. If a run cannot be stored, removes the runs that this import stored before it.
fn store_all(
    all: &[(String, Imported)],
    files: &[PathBuf],
    to: &Destination,
) -> Outcome<Vec<ImportedRun>> {
    Recorder::check(Some(&to.db), files).map_err(|failure| without_no_store(&failure))?;
    let mut store = Store::open(&to.db)?;
    let mut runs: Vec<ImportedRun> = Vec::new();
    for (file, run) in all {
        match run.store(&mut store, file, to.label.as_deref()) {
            Ok(stored) => runs.push(ImportedRun::new(run, &stored, file, to.label.as_deref())),
            Err(failure) => {
                let new = runs.iter().filter(|run| run.is_new).map(|run| RunId(run.run));
                let new: Vec<RunId> = new.collect();
                let rest = match store.delete_runs(&new) {
                    Ok(()) => String::new(),
                    Err(error) => format!(
                        "; {} runs of this import remain stored, because removing them failed: \
                         {error}",
                        new.len()
                    ),
                };
                return Err(Failure::new(failure.exit, format!("{file}: {failure}{rest}")));
            }
        }
    }
    store.close()?;
    Ok(runs)
}

/// Removes the advice to use `--no-store` from a message, because `import` has no such flag.
fn without_no_store(failure: &Failure) -> Failure {
    let message = failure.message.replace(", or use --no-store", "");
    Failure::new(failure.exit, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const FIO: &str = r#"{"fio version": "fio-3.33", "timestamp": 1795518014, "jobs": [
        {"jobname": "a", "read": {"io_bytes": 4096000, "total_ios": 1000, "runtime": 500}}]}"#;

    fn destination(folder: &Path) -> Destination {
        Destination { db: folder.join("a.db"), label: Some("old".into()), host: None }
    }

    #[test]
    fn a_file_is_imported_once() {
        let folder = tempfile::tempdir().unwrap();
        let (file, to) = (folder.path().join("a.json"), destination(folder.path()));
        fs::write(&file, FIO).unwrap();
        let first = import(std::slice::from_ref(&file), &to, false).unwrap();
        let second = import(&[file], &to, false).unwrap();
        assert!(first.runs[0].is_new && !second.runs[0].is_new);
        assert_eq!(first.runs[0].uuid, second.runs[0].uuid);
        let store = Store::open_read_only(&to.db).unwrap();
        let runs = store.runs().unwrap();
        assert_eq!((runs.len(), runs[0].label.as_deref()), (1, Some("old")));
        assert_eq!(store.origin(runs[0].id).unwrap().unwrap().document, FIO);
    }

    #[test]
    fn a_file_that_is_not_understood_keeps_all_others_out() {
        let folder = tempfile::tempdir().unwrap();
        let (good, bad) = (folder.path().join("a.json"), folder.path().join("b.txt"));
        fs::write(&good, FIO).unwrap();
        let to = destination(folder.path());
        for text in ["", "hello", "{}", "\u{0}\u{1}", "<xml/>", "a,b,c\n1,2,3\n"] {
            fs::write(&bad, text).unwrap();
            let failure = import(&[good.clone(), bad.clone()], &to, false).unwrap_err();
            assert!(failure.message.starts_with(&bad.display().to_string()), "{failure}");
            assert!(!to.db.exists());
        }
    }

    #[test]
    fn devices_folders_and_bytes_that_are_no_text_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = folder.path().join("a.json");
        fs::write(&bytes, [0xff, 0xff, 0]).unwrap();
        for path in [Path::new("/dev/zero"), folder.path(), &bytes, Path::new("/none")] {
            assert!(read(path).unwrap_err().message.starts_with("reading "));
        }
        fs::write(&bytes, [0xff, 0xfe, b'{', 0]).unwrap();
        assert!(read(&bytes).unwrap_err().message.contains("save it as UTF-8"));
        fs::write(&bytes, format!("\u{feff}{FIO}")).unwrap();
        assert_eq!(read(&bytes).unwrap().len(), 1);
    }
}
