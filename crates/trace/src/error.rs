//! Errors of reading and writing traces. Each message is one line with the name of the file, the
//! position in the file and the cause. The remedy follows after a semicolon.

use std::io;

use parquet::errors::ParquetError;

/// Why a trace could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system refused to open, read or write a file.
    #[error("cannot {action} {name}: {cause}; {remedy}")]
    Io {
        /// The operation that failed, such as `read`.
        action: &'static str,
        /// Name of the file.
        name: String,
        /// Error of the operating system.
        cause: io::Error,
        /// What the user can do.
        remedy: &'static str,
    },
    /// The file to be written exists already.
    #[error("{name} exists already; choose another name, or remove the file")]
    Exists {
        /// Name of the file.
        name: String,
    },
    /// The file is not a trace.
    #[error("{name} is not a trace: {why}; specify a trace file, or import the file first")]
    NotATrace {
        /// Name of the file.
        name: String,
        /// Why the file is not a trace.
        why: String,
    },
    /// The file is a trace, but a part of it is invalid.
    #[error("{name} is damaged {place}: {why}; record or import the trace again")]
    Damaged {
        /// Name of the file.
        name: String,
        /// Position of the damage, such as "in its header" or "after request 7".
        place: String,
        /// Why this part is invalid.
        why: String,
    },
    /// A trace could not be encoded.
    #[error("cannot write {name}: {why}; check the free space of its file system")]
    Encode {
        /// Name of the file.
        name: String,
        /// Error message of the encoder.
        why: String,
    },
    /// A line of an imported trace does not match the format of the trace.
    #[error("{name}:{line}: expected {expected}, found '{found}'; {remedy}")]
    Line {
        /// Name of the file.
        name: String,
        /// Number of the line, from 1.
        line: u64,
        /// What the format requires instead of `found`.
        expected: &'static str,
        /// The beginning of the line.
        found: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// A record of an imported binary trace does not match the format of the trace.
    #[error("{name}, byte {at}: {why}; record the trace again, or specify another format")]
    Record {
        /// Name of the file.
        name: String,
        /// Position of the record in the file (bytes).
        at: u64,
        /// Why the record is invalid.
        why: String,
    },
    /// The file has none of the formats that can be imported.
    #[error("the format of {name} is not known; specify one of: {known}")]
    UnknownFormat {
        /// Name of the file.
        name: String,
        /// Names of all formats that can be imported.
        known: String,
    },
}

impl TraceError {
    /// Creates the error for a file that cannot be read.
    pub(crate) fn reading(name: &str, cause: io::Error) -> TraceError {
        let remedy = "check its name and permissions";
        TraceError::Io { action: "read", name: name.to_owned(), cause, remedy }
    }

    /// Creates the error for a file that cannot be written.
    pub(crate) fn writing(name: &str, cause: io::Error) -> TraceError {
        let remedy = "check the directory, its permissions and its free space";
        TraceError::Io { action: "write", name: name.to_owned(), cause, remedy }
    }

    /// Creates the error for a trace that cannot be encoded.
    pub(crate) fn encoding(name: &str, cause: &ParquetError) -> TraceError {
        TraceError::Encode { name: name.to_owned(), why: one_line(&cause.to_string()) }
    }
}

/// Shortens an error text to one line of bounded length. The text can quote the input, which may be
/// long and contain line breaks.
pub(crate) fn one_line(text: &str) -> String {
    const MOST: usize = 120;
    let flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match flat.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}..", &flat[..at]),
        None => flat,
    }
}
