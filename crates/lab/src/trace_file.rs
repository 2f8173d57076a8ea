//! Opens traces of any known format. A trace in halfpower's format is opened directly. A trace of
//! another tool is first converted into a temporary file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use trace::TraceError;
use trace::import::{self, Format};

use crate::failure::{Failure, Outcome};

/// The first bytes of a Parquet file. Traces in halfpower's format are Parquet files.
const OWN_FORMAT: &[u8] = b"PAR1";

/// A trace file. If the file is temporary, dropping this value removes it.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    _folder: Option<TempDir>,
}

impl TraceFile {
    /// Opens a trace of any known format. Without `format`, the format is detected.
    ///
    /// # Errors
    /// The file cannot be read or is damaged, or its format is unknown.
    pub fn open(path: &Path, format: Option<Format>) -> Outcome<TraceFile> {
        if format.is_none() && is_own(path)? {
            return Ok(TraceFile { path: path.to_owned(), _folder: None });
        }
        let format = format_of(path, format)?;
        let folder = tempfile::tempdir()
            .map_err(|error| Failure::failed(format!("creating a temporary directory: {error}")))?;
        let stored = folder.path().join("trace.parquet");
        import::convert(path, format, &stored).map_err(|error| failed(&error))?;
        Ok(TraceFile { path: stored, _folder: Some(folder) })
    }

    /// Returns the path of the trace file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether a file begins with the magic bytes of halfpower's trace format.
///
/// # Errors
/// The file cannot be read.
pub fn is_own(path: &Path) -> Outcome<bool> {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4).read_to_end(&mut head));
    read.map_err(|error| {
        let cause = ioengine::error::cause(&error);
        Failure::usage(format!("{}: {cause}; specify a trace file", path.display()))
    })?;
    Ok(head == OWN_FORMAT)
}

/// Returns the format that the user specified, or else detects the format of the file.
///
/// # Errors
/// The file cannot be read, or its format is unknown.
pub fn format_of(path: &Path, format: Option<Format>) -> Outcome<Format> {
    let found = || import::detect_file(path).map_err(|error| failed(&error));
    format.map_or_else(found, Ok)
}

/// Converts an error from reading a trace into a failure.
pub fn failed(error: &TraceError) -> Failure {
    Failure::failed(error.to_string())
}
