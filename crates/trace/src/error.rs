//! Why a trace could not be read or written, as one line: the file, the place, the cause and, after
//! a semicolon, the remedy.

use std::io;

use parquet::errors::ParquetError;

/// A trace that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system refused to open, read or write a file.
    #[error("cannot {action} {name}: {cause}; {remedy}")]
    Io {
        /// What was tried, such as `read`.
        action: &'static str,
        /// The file.
        name: String,
        /// What the operating system said.
        cause: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The file that was to be written exists.
    #[error("{name} exists already; choose another name, or remove the file")]
    Exists {
        /// The file.
        name: String,
    },
    /// The file is no trace.
    #[error("{name} is not a trace: {why}; name a trace file, or import the file first")]
    NotATrace {
        /// The file.
        name: String,
        /// What is missing.
        why: String,
    },
    /// The file is a trace, and a part of it makes no sense.
    #[error("{name} is damaged {place}: {why}; record or import the trace again")]
    Damaged {
        /// The file.
        name: String,
        /// Where: in the header, or after which request.
        place: String,
        /// What makes no sense.
        why: String,
    },
    /// A trace could not be encoded.
    #[error("cannot write {name}: {why}; check the free space of its file system")]
    Encode {
        /// The file.
        name: String,
        /// What the encoder said.
        why: String,
    },
    /// A line in a trace of another tool does not match its format.
    #[error("{name}:{line}: expected {expected}, found '{found}'; {remedy}")]
    Line {
        /// The file.
        name: String,
        /// Number of the line, from 1.
        line: u64,
        /// What the format requires in this place.
        expected: &'static str,
        /// The beginning of the line.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A record in a binary trace of another tool does not match its format.
    #[error("{name}, byte {at}: {why}; record the trace again, or name another format")]
    Record {
        /// The file.
        name: String,
        /// Position of the record (bytes).
        at: u64,
        /// What makes no sense.
        why: String,
    },
    /// The file has no format that can be imported.
    #[error("the format of {name} is not known; name one of: {known}")]
    UnknownFormat {
        /// The file.
        name: String,
        /// The names of all formats.
        known: String,
    },
}

impl TraceError {
    /// A failure to read a file.
    pub(crate) fn reading(name: &str, cause: io::Error) -> TraceError {
        let remedy = "check its name and permissions";
        TraceError::Io { action: "read", name: name.to_owned(), cause, remedy }
    }

    /// A failure to write a file.
    pub(crate) fn writing(name: &str, cause: io::Error) -> TraceError {
        let remedy = "check the folder, its permissions and its free space";
        TraceError::Io { action: "write", name: name.to_owned(), cause, remedy }
    }

    /// A failure to encode a trace.
    pub(crate) fn encoding(name: &str, cause: &ParquetError) -> TraceError {
        TraceError::Encode { name: name.to_owned(), why: one_line(&cause.to_string()) }
    }
}

/// The text of a cause without line ends, and of bounded length, since it can quote the input.
pub(crate) fn one_line(text: &str) -> String {
    const MOST: usize = 120;
    let flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match flat.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}..", &flat[..at]),
        None => flat,
    }
}
