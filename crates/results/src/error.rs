//! Errors of the store; each names its cause and a remedy.
//!
//! [`Error::from_sqlite`] translates SQLite result codes. There are no retries here: when
//! [`Error::Busy`] appears, SQLite has already waited for the other writer.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;

/// Why a store could not be opened, written or read. The message names the cause and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder for the new database does not exist.
    #[error(
        "cannot create the database {}: the folder {} does not exist; create it or choose \
         another place for the database",
        path.display(), folder.display()
    )]
    FolderNotFound {
        /// The requested database.
        path: PathBuf,
        /// The missing folder.
        folder: PathBuf,
    },

    /// The database to read does not exist.
    #[error(
        "there is no database {}: give the path of an existing database, or create one with \
         halfpower run",
        path.display()
    )]
    NotFound {
        /// The requested database.
        path: PathBuf,
    },

    /// The path is not a regular file, so it cannot hold a database.
    #[error(
        "{} is not a regular file and cannot hold the database: give the path of a file",
        path.display()
    )]
    NotAFile {
        /// The given path.
        path: PathBuf,
    },

    /// The file cannot be read.
    #[error("cannot read {}: {source}; check its permissions and those of its folder",
        path.display())]
    Unreadable {
        /// The given path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },

    /// The file belongs to another program; it was not changed.
    #[error(
        "{} is not a halfpower database and was left as it is: choose another path for the \
         database",
        path.display()
    )]
    NotHalfpower {
        /// The given path.
        path: PathBuf,
    },

    /// A file that does not belong to SQLite has the name of one of the database's log files. It
    /// was not changed.
    #[error(
        "{} would be removed by opening the database {}: move that file away, or choose another \
         path for the database",
        beside.display(), path.display()
    )]
    InTheWay {
        /// The given path.
        path: PathBuf,
        /// The conflicting file.
        beside: PathBuf,
    },

    /// A newer program wrote the database; it was not changed.
    #[error(
        "{} was written by a newer halfpower (schema {found}, this one knows {supported}): \
         update halfpower, or choose another path for the database",
        path.display()
    )]
    NewerSchema {
        /// The database.
        path: PathBuf,
        /// Schema version of the database.
        found: i64,
        /// The newest schema version that this program supports.
        supported: u32,
    },

    /// The database has an older schema and cannot be migrated in read-only mode.
    #[error(
        "{} has the older schema {found} (this halfpower needs {needed}) and was opened for \
         reading only: open it once for writing, or make a copy that can be written",
        path.display()
    )]
    OlderSchema {
        /// The database.
        path: PathBuf,
        /// Schema version of the database.
        found: i64,
        /// The schema version that this program needs.
        needed: u32,
    },

    /// The file, its folder or its file system is not writable for this user.
    #[error(
        "cannot write the database {}: the file, its folder or its file system is read-only for \
         this user; change the permissions or choose another path for the database",
        path.display()
    )]
    ReadOnly {
        /// The database.
        path: PathBuf,
    },

    /// Reading needs log files beside the database, but its folder is not writable.
    #[error(
        "cannot read the database {}: the last program that wrote it did not close it, and its \
         folder is read-only; copy it, with its -wal file if that exists, to a writable folder and \
         open the copy",
        path.display()
    )]
    NotClosed {
        /// The database.
        path: PathBuf,
    },

    /// The file system is full. The current write was lost; all earlier results are stored.
    #[error(
        "the file system of the database {} is full: free space or choose another path for the \
         database; the results stored so far are safe",
        path.display()
    )]
    DiskFull {
        /// The database.
        path: PathBuf,
    },

    /// The limit on open files is reached. A database needs three: itself, and its log and index
    /// while it is written.
    #[error(
        "cannot open the database {}: too many open files; raise the limit (ulimit -n), or use \
         fewer threads and targets",
        path.display()
    )]
    TooManyOpenFiles {
        /// The database.
        path: PathBuf,
    },

    /// The database reached the file size limit of this process.
    #[error(
        "the database {} reached the limit on the size of files; raise it (ulimit -f); the \
         results stored so far are safe",
        path.display()
    )]
    FileTooLarge {
        /// The database.
        path: PathBuf,
    },

    /// Another program held the lock for longer than the store waits.
    #[error(
        "the database {} is locked by another program: wait until it is done, or choose another \
         path for the database",
        path.display()
    )]
    Busy {
        /// The database.
        path: PathBuf,
    },

    /// The file is damaged.
    #[error(
        "the database {} is damaged: move it away to start a new one; \
         `sqlite3 FILE .recover` may save its rows",
        path.display()
    )]
    Corrupt {
        /// The database.
        path: PathBuf,
    },

    /// A row violates a constraint: the row that it belongs to does not exist, or the row itself
    /// exists already.
    #[error("the database {} refuses a row: {source}; this is a fault in halfpower, report it",
        path.display())]
    Conflict {
        /// The database.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },

    /// A number is above 2^63 - 1, the largest that SQLite can store.
    #[error(
        "the database {} cannot hold a number above 9223372036854775807; this is a fault in \
         halfpower, report it",
        path.display()
    )]
    NumberTooLarge {
        /// The database.
        path: PathBuf,
    },

    /// No run matches the selector.
    #[error(
        "no run {selector:?} in the database {}: give a run's number, the first characters of \
         its uuid, or \"latest\"",
        path.display()
    )]
    RunNotFound {
        /// The database.
        path: PathBuf,
        /// The selector.
        selector: String,
    },

    /// Several runs match the selector.
    #[error(
        "{selector:?} is the label or the beginning of the uuid of several runs in the database \
         {}: {}; give a run's number",
        path.display(), runs.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
    )]
    RunAmbiguous {
        /// The database.
        path: PathBuf,
        /// The selector.
        selector: String,
        /// Numbers of the matching runs.
        runs: Vec<i64>,
    },

    /// The destination of an export cannot be written.
    #[error("cannot write the export: {0}; check the destination and its free space")]
    Export(#[from] io::Error),

    /// Any other error of SQLite.
    #[error("the database {} failed: {source}; check the disk it is on", path.display())]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
}

impl Error {
    /// Translates an error of SQLite for the database `path`.
    pub(crate) fn from_sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_path_buf();
        if matches!(source, rusqlite::Error::ToSqlConversionFailure(_)) {
            return Self::NumberTooLarge { path };
        }
        let failure = source.sqlite_error();
        if failure.is_some_and(|failure| failure.extended_code == SQLITE_IOERR_SHMSIZE) {
            return Self::DiskFull { path };
        }
        let code = failure.map(|failure| failure.code);
        if code == Some(ErrorCode::CannotOpen) && !can_open_more_files() {
            return Self::TooManyOpenFiles { path };
        }
        if code == Some(ErrorCode::SystemIoFailure) && file_sizes_are_limited() {
            return Self::FileTooLarge { path };
        }
        match code {
            Some(ErrorCode::DiskFull) => Self::DiskFull { path },
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                Self::ReadOnly { path }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { path },
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt { path },
            Some(ErrorCode::ConstraintViolation) => Self::Conflict { path, source },
            _ => Self::Sqlite { path, source },
        }
    }
}

/// Whether this process has a file size limit. SQLite does not report why a write failed.
fn file_sizes_are_limited() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
}

/// Whether this process can open the three files a database needs. SQLite does not report why it
/// cannot open a file.
fn can_open_more_files() -> bool {
    let opened: io::Result<Vec<File>> = (0..3).map(|_| File::open("/dev/null")).collect();
    opened.is_ok()
}
