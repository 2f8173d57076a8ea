//! Migrates the schema, and recognises database files of halfpower.
//!
//! The header of an SQLite file has two fields for applications: `application_id` identifies
//! halfpower, and `user_version` is the schema version. The application id is read without SQLite,
//! because SQLite may change a database when it opens it, and another program's database must not
//! be changed.
//!
//! A released migration is never edited. Each change of the schema is a new file in `migration/`.
//! All missing migrations run in one transaction, so that a failure leaves the database unchanged.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, TransactionBehavior};

use crate::error::Error;

/// The texts of the files in `migration/`, in the order of their numbers. File 0001 is at index 0.
pub(crate) const MIGRATIONS: &[&str] = include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// The current schema version, stored in `PRAGMA user_version`.
pub const SCHEMA_VERSION: u32 = MIGRATIONS.len() as u32;

/// `PRAGMA application_id` of a halfpower database: "HPWR".
pub(crate) const APPLICATION_ID: u32 = u32::from_be_bytes(*b"HPWR");

/// The first bytes of an SQLite file
/// (<https://www.sqlite.org/fileformat2.html#the_database_header>).
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Offset of the page size in the header of an SQLite file (bytes).
const PAGE_SIZE_AT: usize = 16;
/// Offset of the application id in the header of an SQLite file (bytes).
const APPLICATION_ID_AT: usize = 68;
const HEADER_BYTES: u64 = 100;

/// Suffixes and magic numbers of the files that SQLite keeps beside a database: the rollback
/// journal, the write-ahead log, and its index. The magic numbers are from the same document as
/// `MAGIC`.
const LOGS: [(&str, &[&[u8]]); 3] = [
    ("-journal", &[b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"]),
    ("-wal", &[b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"]),
    ("-shm", &[&3_007_000_u32.to_ne_bytes()]),
];

/// What exists at the path of a database.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileState {
    /// No file, or an empty file.
    Nothing,
    /// A halfpower database of any version.
    Database,
}

/// Examines the file at `path` without changing it. Returns an error if a file exists that is
/// neither empty nor a halfpower database.
pub(crate) fn recognise(path: &Path) -> Result<FileState, Error> {
    let unreadable = |source| Error::Unreadable { path: path.to_path_buf(), source };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FileState::Nothing),
        Err(error) => return Err(unreadable(error)),
        Ok(metadata) if !metadata.is_file() => {
            return Err(Error::NotAFile { path: path.to_path_buf() });
        }
        Ok(metadata) if metadata.len() == 0 => return Ok(FileState::Nothing),
        Ok(_) => {}
    }
    let mut header = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(HEADER_BYTES).read_to_end(&mut header).map_err(unreadable)?;
    let application_id = header.get(APPLICATION_ID_AT..APPLICATION_ID_AT + 4);
    if !header.starts_with(MAGIC) || application_id != Some(&APPLICATION_ID.to_be_bytes()) {
        return Err(Error::NotHalfpower { path: path.to_path_buf() });
    }
    if is_cut_off(path, &header) {
        return Err(Error::Corrupt { path: path.to_path_buf() });
    }
    Ok(FileState::Database)
}

/// Returns whether a database file ends in the middle of a page. SQLite would silently read the
/// missing bytes as zeros and lose rows. Returns false if a log exists, because SQLite may complete
/// the page from the log.
fn is_cut_off(path: &Path, header: &[u8]) -> bool {
    let Some(&[high, low]) = header.get(PAGE_SIZE_AT..PAGE_SIZE_AT + 2) else { return true };
    let page_bytes = match u64::from(u16::from_be_bytes([high, low])) {
        // A page size of 65536 is stored as 1, because the field has only two bytes.
        1 => 1 << 16,
        bytes => bytes,
    };
    let has_log = ["-wal", "-journal"].iter().any(|suffix| {
        let mut log = path.as_os_str().to_owned();
        log.push(suffix);
        Path::new(&log).exists()
    });
    let length = fs::metadata(path).map_or(0, |metadata| metadata.len());
    !has_log && (page_bytes == 0 || !length.is_multiple_of(page_bytes))
}

/// Returns an error if SQLite would delete a file of another program when it opens the database.
/// SQLite deletes a file that is named like a log of the database, but is not a log. If the
/// database does not exist, SQLite deletes every file with such a name.
pub(crate) fn check_beside(path: &Path) -> Result<(), Error> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    for (suffix, magic) in LOGS {
        let mut name = real.clone().into_os_string();
        name.push(suffix);
        let beside = PathBuf::from(name);
        if fs::symlink_metadata(&beside).is_err() {
            continue;
        }
        // The check above may have found the log of a database that another process was creating.
        // SQLite creates the database before the log, so the database exists now.
        let is_log = real.exists() && begins_like(&beside, magic);
        if !is_log {
            return Err(Error::InTheWay { path: path.to_path_buf(), beside });
        }
    }
    Ok(())
}

/// Returns whether a file can be a log. A log is empty or starts with a magic number. Until SQLite
/// writes the header of a log, the log can also start with zeros. A file that no longer exists is
/// accepted.
fn begins_like(path: &Path, magic: &[&[u8]]) -> bool {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(8).read_to_end(&mut head));
    match read {
        Err(error) => error.kind() == io::ErrorKind::NotFound,
        Ok(_) => head.iter().all(|byte| *byte == 0) || magic.iter().any(|m| head.starts_with(m)),
    }
}

/// Returns the schema version of an open database. The version of an empty database is 0.
///
/// # Errors
/// [`Error::NewerSchema`] if this program does not support the version.
pub(crate) fn version(
    connection: &Connection,
    path: &Path,
    migrations: &[&str],
) -> Result<usize, Error> {
    let found: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(|error| Error::from_sqlite(path, error))?;
    usize::try_from(found).ok().filter(|found| *found <= migrations.len()).ok_or_else(|| {
        Error::NewerSchema {
            path: path.to_path_buf(),
            found,
            supported: u32::try_from(migrations.len()).unwrap_or(u32::MAX),
        }
    })
}

/// Returns an error if one of the tables is missing. A damaged database may contain a view of the
/// same name instead, and a query on such a view may never end.
pub(crate) fn check_tables(connection: &Connection, path: &Path) -> Result<(), Error> {
    const SQL: &str = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' \
                       AND name IN ('run', 'point', 'trial', 'latency', 'series')";
    let tables: i64 = connection
        .query_row(SQL, [], |row| row.get(0))
        .map_err(|error| Error::from_sqlite(path, error))?;
    if tables == 5 { Ok(()) } else { Err(Error::Corrupt { path: path.to_path_buf() }) }
}

/// Applies all missing `migrations` to an open database in one transaction. If two processes do
/// this at the same time, the second process finds nothing left to do.
pub(crate) fn migrate(
    connection: &mut Connection,
    path: &Path,
    migrations: &[&str],
) -> Result<(), Error> {
    if version(connection, path, migrations)? == migrations.len() {
        return Ok(());
    }
    let failed = |error| Error::from_sqlite(path, error);
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    for migration in &migrations[version(&transaction, path, migrations)?..] {
        transaction.execute_batch(migration).map_err(failed)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    transaction.pragma_update(None, "user_version", migrations.len()).map_err(failed)?;
    transaction.commit().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::temp_database;
    use crate::row::{Columns, LatencyRow, PointEnd, PointRow, RunRow, SeriesRow, TrialRow};

    fn migrated(migrations: &[&str]) -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, Path::new("test"), migrations).unwrap();
        connection
    }

    fn columns(connection: &Connection, table: &str) -> Vec<String> {
        let sql = format!("SELECT name FROM pragma_table_info('{table}')");
        let mut statement = connection.prepare(&sql).unwrap();
        let names = statement.query_map([], |row| row.get(0)).unwrap();
        names.map(Result::unwrap).collect()
    }

    fn add_minimal_run(connection: &Connection) {
        let sql = "INSERT INTO run (uuid, kind, command_line, started_unix_ns, state, version, \
                   schema, seed, pid, boot_id, host_json, target_json, settings_json) VALUES \
                   ('u', 'run', 'c', 1, 'running', 'v', 1, '7', 1, 'b', '{}', '{}', '{}')";
        connection.execute(sql, []).unwrap();
    }

    fn version_of(connection: &Connection) -> usize {
        version(connection, Path::new("test"), &[""; 9]).unwrap()
    }

    #[test]
    fn an_empty_database_gets_the_current_schema_and_our_application_id() {
        let connection = migrated(MIGRATIONS);
        assert_eq!(version_of(&connection), MIGRATIONS.len());
        let id: u32 =
            connection.pragma_query_value(None, "application_id", |row| row.get(0)).unwrap();
        assert_eq!(id, APPLICATION_ID);
    }

    #[test]
    fn every_row_has_exactly_the_columns_of_its_table() {
        let connection = migrated(MIGRATIONS);
        let with = |keys: &[&str], columns: &[&str]| -> Vec<String> {
            [keys, columns].concat().into_iter().map(String::from).collect()
        };
        let point = [PointRow::COLUMNS, PointEnd::COLUMNS].concat();
        assert_eq!(columns(&connection, "point"), with(&["id", "run_id"], &point));
        assert_eq!(columns(&connection, "trial"), with(&["id", "point_id"], TrialRow::COLUMNS));
        assert_eq!(columns(&connection, "latency"), with(&["trial_id"], LatencyRow::COLUMNS));
        assert_eq!(columns(&connection, "series"), with(&["trial_id"], SeriesRow::COLUMNS));
        assert_eq!(columns(&connection, "run"), with(&[], RunRow::COLUMNS));
    }

    #[test]
    fn a_version_1_database_with_rows_is_brought_to_a_later_schema_and_keeps_them() {
        let mut connection = migrated(&MIGRATIONS[..1]);
        add_minimal_run(&connection);
        let later = [MIGRATIONS[0], "ALTER TABLE run ADD COLUMN note TEXT"];
        migrate(&mut connection, Path::new("test"), &later).unwrap();
        assert_eq!(version_of(&connection), 2);
        assert_eq!(columns(&connection, "run").last().unwrap(), "note");
        let uuid: String =
            connection.query_row("SELECT uuid FROM run", [], |row| row.get(0)).unwrap();
        assert_eq!(uuid, "u");
    }

    #[test]
    fn a_migration_that_fails_leaves_the_database_at_its_old_version() {
        let mut connection = migrated(&MIGRATIONS[..1]);
        let before = columns(&connection, "run");
        let broken = [MIGRATIONS[0], "ALTER TABLE run ADD COLUMN note TEXT; ALTER TABLE no_table"];
        migrate(&mut connection, Path::new("test"), &broken).unwrap_err();
        assert_eq!(version_of(&connection), 1);
        assert_eq!(columns(&connection, "run"), before);
    }

    #[test]
    fn migrating_twice_changes_nothing() {
        let mut connection = migrated(MIGRATIONS);
        add_minimal_run(&connection);
        migrate(&mut connection, Path::new("test"), MIGRATIONS).unwrap();
        let runs: u32 =
            connection.query_row("SELECT count(*) FROM run", [], |row| row.get(0)).unwrap();
        assert_eq!(runs, 1);
    }

    #[test]
    fn a_schema_version_that_is_not_known_is_refused_as_newer() {
        for unknown in [MIGRATIONS.len() as i64 + 1, -1] {
            let mut connection = migrated(MIGRATIONS);
            connection.pragma_update(None, "user_version", unknown).unwrap();
            let error = migrate(&mut connection, Path::new("test"), MIGRATIONS).unwrap_err();
            assert!(matches!(error, Error::NewerSchema { found, .. } if found == unknown));
        }
    }

    #[test]
    fn a_database_that_ends_in_the_midst_of_a_page_is_damaged_unless_a_log_may_complete_it() {
        let (_folder, path) = temp_database();
        migrate(&mut Connection::open(&path).unwrap(), &path, MIGRATIONS).unwrap();
        let whole = fs::metadata(&path).unwrap().len();
        for cut in [1, 1000, 4095] {
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(whole - cut).unwrap();
            assert!(matches!(recognise(&path).unwrap_err(), Error::Corrupt { .. }), "{cut}");
        }
        let log = format!("{}-wal", path.display());
        fs::write(log, "").unwrap();
        assert_eq!(recognise(&path).unwrap(), FileState::Database);
    }

    #[test]
    fn only_nothing_an_empty_file_and_our_own_databases_are_recognised() {
        let (folder, path) = temp_database();
        assert_eq!(recognise(&path).unwrap(), FileState::Nothing);
        fs::write(&path, "").unwrap();
        assert_eq!(recognise(&path).unwrap(), FileState::Nothing);
        migrate(&mut Connection::open(&path).unwrap(), &path, MIGRATIONS).unwrap();
        assert_eq!(recognise(&path).unwrap(), FileState::Database);

        for foreign in ["notes", "SQLite format 3\0", &"x".repeat(4096)] {
            fs::write(&path, foreign).unwrap();
            assert!(matches!(recognise(&path).unwrap_err(), Error::NotHalfpower { .. }));
        }
        assert!(matches!(recognise(folder.path()).unwrap_err(), Error::NotAFile { .. }));
    }
}
