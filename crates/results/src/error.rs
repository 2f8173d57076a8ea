//! Errors of the results database. Each message gives the cause and a remedy.
//!
//! A caller need not retry after [`Error::Busy`], because SQLite has already waited for the other
//! writer.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;

/// Why a database could not be opened, written or read. The message gives the cause and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder for the new database does not exist.
    #[error(
        "cannot create the database {}: the folder {} does not exist; create it or choose \
         another path for the database",
        path.display(), folder.display()
    )]
    FolderNotFound {
        /// Path of the requested database.
        path: PathBuf,
        /// Path of the missing folder.
        folder: PathBuf,
    },

    /// The database to read does not exist.
    #[error(
        "there is no database {}: specify the path of an existing database, or create one with \
         halfpower run",
        path.display()
    )]
    NotFound {
        /// Path of the requested database.
        path: PathBuf,
    },

    /// The path is not a regular file, so it cannot hold a database.
    #[error(
        "{} is not a regular file and cannot hold the database: specify the path of a file",
        path.display()
    )]
    NotAFile {
        /// Path that was given for the database.
        path: PathBuf,
    },

    /// The file cannot be read.
    #[error("cannot read {}: {source}; check the permissions of the file and of its folder",
        path.display())]
    Unreadable {
        /// Path that was given for the database.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },

    /// The file belongs to another program. It was not changed.
    #[error(
        "{} is not a halfpower database and was not changed: choose another path for the \
         database",
        path.display()
    )]
    NotHalfpower {
        /// Path that was given for the database.
        path: PathBuf,
    },

    /// A file is named like a log of the database, for example `halfpower.db-wal`, but is not a log
    /// of it. SQLite would delete this file, so the database was not opened.
    #[error(
        "SQLite would delete the file {} when it opens the database {}: move this file to another \
         folder, or choose another path for the database",
        beside.display(), path.display()
    )]
    InTheWay {
        /// Path that was given for the database.
        path: PathBuf,
        /// Path of the file that SQLite would delete.
        beside: PathBuf,
    },

    /// A newer version of halfpower wrote the database. The database was not changed.
    #[error(
        "{} was written by a newer halfpower (the file has schema {found}, this version supports \
         schema {supported}): update halfpower, or choose another path for the database",
        path.display()
    )]
    NewerSchema {
        /// Path of the database.
        path: PathBuf,
        /// Schema version of the database.
        found: i64,
        /// The newest schema version that this program supports.
        supported: u32,
    },

    /// The database has an older schema and cannot be migrated in read-only mode.
    #[error(
        "the database {} has schema {found}, but this halfpower needs schema {needed} and cannot \
         migrate a database that is opened read-only: open the database once for writing, or open \
         a writable copy",
        path.display()
    )]
    OlderSchema {
        /// Path of the database.
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
        /// Path of the database.
        path: PathBuf,
    },

    /// The last program that wrote the database did not close it. To read it, SQLite must create
    /// files in the folder of the database, but the folder is not writable.
    #[error(
        "cannot read the database {}: the last program that wrote it did not close it, and its \
         folder is read-only; copy the database and its -wal file (if there is one) to a writable \
         folder and open the copy",
        path.display()
    )]
    NotClosed {
        /// Path of the database.
        path: PathBuf,
    },

    /// The file system is full. The current write was lost. All earlier results are stored.
    #[error(
        "the file system of the database {} is full: free space or choose another path for the \
         database; the results stored so far are safe",
        path.display()
    )]
    DiskFull {
        /// Path of the database.
        path: PathBuf,
    },

    /// The process cannot open more files. While a database is written, three files are open: the
    /// database, its write-ahead log and the index of the log.
    #[error(
        "cannot open the database {}: too many open files; raise the limit (ulimit -n), or use \
         fewer threads and targets",
        path.display()
    )]
    TooManyOpenFiles {
        /// Path of the database.
        path: PathBuf,
    },

    /// The database reached the file size limit of this process.
    #[error(
        "the database {} reached the limit on the size of files; raise the limit (ulimit -f); the \
         results stored so far are safe",
        path.display()
    )]
    FileTooLarge {
        /// Path of the database.
        path: PathBuf,
    },

    /// Another program held the lock on the database for more than five seconds.
    #[error(
        "the database {} is locked by another program: wait until that program is done, or choose \
         another path for the database",
        path.display()
    )]
    Busy {
        /// Path of the database.
        path: PathBuf,
    },

    /// The file is damaged.
    #[error(
        "the database {} is damaged: move it away, so that halfpower can create a new database; \
         `sqlite3 FILE .recover` may recover the rows of the damaged file",
        path.display()
    )]
    Corrupt {
        /// Path of the database.
        path: PathBuf,
    },

    /// A row violates a constraint: its parent row does not exist, or the row already exists.
    #[error("the database {} rejected a row: {source}; this is a fault in halfpower, report it",
        path.display())]
    Conflict {
        /// Path of the database.
        path: PathBuf,
        /// The error that SQLite returned.
        source: rusqlite::Error,
    },

    /// A number is above 2^63 - 1, the largest number that SQLite can store.
    #[error(
        "the database {} cannot hold a number above 9223372036854775807; this is a fault in \
         halfpower, report it",
        path.display()
    )]
    NumberTooLarge {
        /// Path of the database.
        path: PathBuf,
    },

    /// No run matches the selector.
    #[error(
        "no run {selector:?} in the database {}: specify a run's number, its label, the first \
         characters of its uuid, or \"latest\"",
        path.display()
    )]
    RunNotFound {
        /// Path of the database.
        path: PathBuf,
        /// The text with which the user selected a run.
        selector: String,
    },

    /// Several runs match the selector.
    #[error(
        "{selector:?} matches the label or the start of the uuid of several runs in the database \
         {} (runs {}); specify a run's number",
        path.display(), runs.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
    )]
    RunAmbiguous {
        /// Path of the database.
        path: PathBuf,
        /// The text with which the user selected a run.
        selector: String,
        /// Numbers of the matching runs.
        runs: Vec<i64>,
    },

    /// The destination of an export cannot be written.
    #[error("cannot write the export: {0}; check the destination and its free space")]
    Export(#[from] io::Error),

    /// Any other error of SQLite.
    #[error("cannot use the database {}: {source}; check the disk that holds this file",
        path.display())]
    Sqlite {
        /// Path of the database.
        path: PathBuf,
        /// The error that SQLite returned.
        source: rusqlite::Error,
    },
}

impl Error {
    /// Converts an error of SQLite on the database `path`.
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

/// Returns whether this process has a limit on file sizes. SQLite does not report that a write
/// failed because of this limit.
fn file_sizes_are_limited() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
}

/// Returns whether this process can open three more files, as many as a database needs. SQLite does
/// not report that it could not open a file because of the limit on open files.
fn can_open_more_files() -> bool {
    let opened: io::Result<Vec<File>> = (0..3).map(|_| File::open("/dev/null")).collect();
    opened.is_ok()
}
