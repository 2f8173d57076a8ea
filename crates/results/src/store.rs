//! Opens, writes and closes a database.
//!
//! While a [`Store`] is open for writing, the database is in write-ahead mode with full
//! synchronisation. Other programs can read at the same time, and stored data survive a crash of
//! the program or the machine. Closing the store checkpoints the log and leaves write-ahead mode.
//! The database is then a single file that can be copied and read from read-only media.
//!
//! On file systems with blocks smaller than 4 KiB, the database uses a rollback journal instead
//! (see `has_small_blocks`). Readers and the writer then wait for each other.
//!
//! Every call that writes is one transaction. Reading is implemented in `query.rs` and `export.rs`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::ToSql;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use crate::error::Error;
use crate::row::{
    Columns, LatencyRow, NewRun, PointEnd, PointId, PointRow, RunEnd, RunId, RunState, SeriesRow,
    TrialId, TrialRow,
};
use crate::schema::{self, FileState, MIGRATIONS};

/// Maximum time that the store waits for another program's lock. The checkpoint of a large log on a
/// slow disk takes less time.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of attempts to enter write-ahead mode. In a test in which six processes opened
/// and closed one database all the time, one attempt in two thousand failed.
const MODE_CHANGE_ATTEMPTS: u32 = 4;

/// Smallest size of a memory page on any supported machine (bytes).
const PAGE_BYTES: u64 = 4096;

/// An open results database. Dropping the value closes the database like [`Store::close`], but
/// ignores errors.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
    writable: bool,
}

impl Store {
    /// Opens the database at `path` for writing. Creates the database if it does not exist, and
    /// migrates an older schema.
    ///
    /// # Errors
    /// If the folder is missing or not writable, the disk is full, or the file belongs to another
    /// program or to a newer halfpower. Such files are not changed.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = absolute(path.as_ref())?;
        schema::check_beside(&path)?;
        if schema::recognise(&path)? == FileState::Nothing {
            check_folder(&path)?;
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut connection = connect(&path, flags)?;
        let failed = |error| Error::from_sqlite(&path, error);
        if connection.is_readonly("main").map_err(failed)? {
            return Err(Error::ReadOnly { path });
        }
        // The tables are created before the database enters write-ahead mode, so that the
        // application id is in the file header itself and not only in the log.
        schema::migrate(&mut connection, &path, MIGRATIONS)?;
        schema::check_tables(&connection, &path)?;
        // The rollback journal is used on file systems with small blocks. SQLite itself keeps the
        // rollback journal on file systems without shared memory (some network file systems). With
        // the rollback journal, readers and the writer wait for each other. A power failure may
        // undo the last commit, because SQLite does not sync the directory after a commit.
        if has_small_blocks(&path) {
            set_journal_mode(&connection, "delete").map_err(failed)?;
        } else {
            enter_write_ahead_mode(&connection).map_err(failed)?;
        }
        connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        Ok(Self { connection, path, writable: true })
    }

    /// Opens the same database again in the same mode, to write a second run at the same time or to
    /// read in another thread.
    ///
    /// A process that has the database open must not call [`Store::open`] or
    /// [`Store::open_read_only`] for the same file, because these functions read the header without
    /// SQLite. When a process closes any descriptor of a file, the process loses all its locks on
    /// that file (fcntl(2)). Another program could then truncate the shared memory that is still in
    /// use.
    ///
    /// # Errors
    /// If the database is locked or damaged.
    pub fn open_again(&self) -> Result<Self, Error> {
        if !self.writable {
            return Self::reopen_read_only(&self.path);
        }
        let connection = connect(&self.path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(|error| self.error(error))?;
        Ok(Self { connection, path: self.path.clone(), writable: self.writable })
    }

    /// Checks that opening a database at `path` would not delete another program's file.
    ///
    /// # Errors
    /// [`Error::InTheWay`] if a file would be deleted.
    pub fn check_beside(path: impl AsRef<Path>) -> Result<(), Error> {
        schema::check_beside(&absolute(path.as_ref())?)
    }

    /// Opens an existing database read-only. Calls that write then fail with [`Error::ReadOnly`].
    /// Another program may write to the database at the same time.
    ///
    /// # Errors
    /// The errors of [`Store::open`]. Other errors if the database does not exist, has an older
    /// schema, or needs recovery but is in a folder that is not writable.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = absolute(path.as_ref())?;
        if schema::recognise(&path)? == FileState::Nothing {
            return Err(Error::NotFound { path });
        }
        let read = || {
            let connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            let found = schema::version(&connection, &path, MIGRATIONS)?;
            Ok((connection, found))
        };
        // `Error::ReadOnly` means here that a killed program left a journal or log, which only a
        // writer can process. When a writer opens and reads the database, SQLite undoes or
        // completes the last commit of the killed program.
        let read = read().or_else(|error| match error {
            Error::ReadOnly { .. } => {
                let writer = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
                schema::version(&writer, &path, MIGRATIONS)?;
                drop(writer);
                read()
            }
            error => Err(error),
        });
        let (connection, found) = read.map_err(|error| match error {
            Error::ReadOnly { path } => Error::NotClosed { path },
            error => error,
        })?;
        if found < MIGRATIONS.len() {
            let needed = schema::SCHEMA_VERSION;
            return Err(Error::OlderSchema { path, found: found as i64, needed });
        }
        schema::check_tables(&connection, &path)?;
        Ok(Self { connection, path, writable: false })
    }

    /// Opens a database that this process has already checked with [`Store::open_read_only`].
    /// Unlike that function, this one may be called while another thread has the database open (see
    /// [`Store::open_again`]).
    ///
    /// # Errors
    /// If the database is locked or damaged, or was deleted.
    pub fn reopen_read_only(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = absolute(path.as_ref())?;
        let connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        Ok(Self { connection, path, writable: false })
    }

    /// Creates a temporary store in memory, for tests and for runs that are not kept.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn in_memory() -> Result<Self, Error> {
        let path = PathBuf::from("(in memory)");
        let failed = |error| Error::from_sqlite(&path, error);
        let mut connection = Connection::open_in_memory().map_err(failed)?;
        connection.pragma_update(None, "foreign_keys", true).map_err(failed)?;
        schema::migrate(&mut connection, &path, MIGRATIONS)?;
        Ok(Self { connection, path, writable: true })
    }

    /// Returns the absolute path of the database.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records the start of a run, with the state [`RunState::Running`].
    ///
    /// # Errors
    /// [`Error::Conflict`] if the uuid already exists. Other errors if the disk is full, or the
    /// database is locked or damaged.
    pub fn begin_run(&mut self, run: &NewRun) -> Result<RunId, Error> {
        self.write(|transaction| {
            insert(transaction, "run", ("state", &RunState::Running), [run])?;
            Ok(RunId(transaction.last_insert_rowid()))
        })
    }

    /// Adds a point to a run.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the run does not exist or the ordinal is already used. Other errors
    /// if the disk is full, or the database is locked or damaged.
    pub fn add_point(&mut self, run: RunId, point: &PointRow) -> Result<PointId, Error> {
        self.write(|transaction| {
            insert(transaction, "point", ("run_id", &run), [point])?;
            Ok(PointId(transaction.last_insert_rowid()))
        })
    }

    /// Adds a trial with its histogram and series in one transaction. Once this returns, the trial
    /// survives a crash.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the point does not exist or the ordinal is already used. Other errors
    /// if the disk is full, or the database is locked or damaged. Earlier trials are always kept.
    pub fn add_trial(
        &mut self,
        point: PointId,
        trial: &TrialRow,
        latency: &[LatencyRow],
        series: &[SeriesRow],
    ) -> Result<TrialId, Error> {
        self.write(|transaction| {
            insert(transaction, "trial", ("point_id", &point), [trial])?;
            let id = transaction.last_insert_rowid();
            insert(transaction, "latency", ("trial_id", &id), latency)?;
            insert(transaction, "series", ("trial_id", &id), series)?;
            Ok(TrialId(id))
        })
    }

    /// Records the end of a run and the verdicts of its points.
    ///
    /// # Errors
    /// [`Error::RunNotFound`] if the run does not exist. Other errors if the disk is full, or the
    /// database is locked or damaged.
    pub fn finish_run(
        &mut self,
        run: RunId,
        end: &RunEnd,
        points: &[(PointId, PointEnd)],
    ) -> Result<(), Error> {
        let changed = self.write(|transaction| {
            for (point, end) in points {
                update(transaction, "point", point, end)?;
            }
            update(transaction, "run", &run, end)
        })?;
        if changed == 0 { Err(self.no_run(&run.to_string())) } else { Ok(()) }
    }

    /// Sets the state [`RunState::Interrupted`] of each running run whose process has died, and
    /// returns these runs. `is_alive` gets the process id and the boot id of a run. The end time of
    /// these runs remains unknown.
    ///
    /// # Errors
    /// If the disk is full, or the database is locked or damaged.
    pub fn mark_interrupted_runs(
        &mut self,
        is_alive: impl Fn(u32, &str) -> bool,
    ) -> Result<Vec<RunId>, Error> {
        self.write(|transaction| {
            let mut running =
                transaction.prepare("SELECT id, pid, boot_id FROM run WHERE state = ?")?;
            let mut update = transaction.prepare("UPDATE run SET state = ? WHERE id = ?")?;
            let processes: Vec<(RunId, u32, String)> = running
                .query_map([RunState::Running], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect::<Result<_, _>>()?;
            let mut interrupted = Vec::new();
            for (run, pid, boot_id) in processes {
                if !is_alive(pid, &boot_id) {
                    update.execute((RunState::Interrupted, run))?;
                    interrupted.push(run);
                }
            }
            Ok(interrupted)
        })
    }

    /// Closes the store and deletes the `-wal` and `-shm` files. While another program has the
    /// database open, the files remain. A later writer then deletes them.
    ///
    /// # Errors
    /// If the checkpoint fails, for example because the disk is full. No data are lost, because the
    /// checkpoint is repeated when the database is opened again.
    pub fn close(self) -> Result<(), Error> {
        self.checkpoint_and_leave_wal().map_err(|error| self.error(error))
    }

    /// Checkpoints the log and leaves write-ahead mode, which also deletes the log.
    fn checkpoint_and_leave_wal(&self) -> rusqlite::Result<()> {
        if !self.writable {
            return Ok(());
        }
        match set_journal_mode(&self.connection, "delete") {
            // If another program has the database open, SQLite can checkpoint only a part of the
            // log.
            Err(error) if is_busy(&error) => {
                self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
            }
            other => other,
        }
    }

    /// Runs `body` in one transaction, which is rolled back on failure.
    pub(crate) fn write<T>(
        &mut self,
        body: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let outcome = (|| {
            let transaction =
                self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = body(&transaction)?;
            transaction.commit()?;
            Ok(value)
        })();
        outcome.map_err(|error| self.error(error))
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn error(&self, source: rusqlite::Error) -> Error {
        Error::from_sqlite(&self.path, source)
    }

    pub(crate) fn no_run(&self, selector: &str) -> Error {
        Error::RunNotFound { path: self.path.clone(), selector: selector.to_owned() }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The error can be ignored, because the checkpoint is repeated when the database is opened
        // again.
        let _ = self.checkpoint_and_leave_wal();
    }
}

/// Makes a path absolute, so that SQLite does not interpret names such as `:memory:`.
fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path)
        .map_err(|source| Error::Unreadable { path: path.to_path_buf(), source })
}

fn check_folder(path: &Path) -> Result<(), Error> {
    match path.parent() {
        Some(folder) if !folder.is_dir() => {
            Err(Error::FolderNotFound { path: path.to_path_buf(), folder: folder.to_path_buf() })
        }
        _ => Ok(()),
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, Error> {
    let failed = |error| Error::from_sqlite(path, error);
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(failed)?;
    // Without this setting, SQLite plans a query again whenever its parameters change.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(failed)?;
    // SQLite recommends these two settings for untrusted or damaged files
    // (<https://www.sqlite.org/security.html>).
    connection.pragma_update(None, "trusted_schema", false).map_err(failed)?;
    connection.pragma_update(None, "cell_size_check", true).map_err(failed)?;
    Ok(connection)
}

/// Checks whether the file system has blocks smaller than a memory page. A page of SQLite's shared
/// memory (the `-shm` file) may then be only partly allocated. If the disk is full, an access to
/// the unallocated part kills the process (SIGBUS). The rollback journal uses no shared memory.
fn has_small_blocks(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.blksize() < PAGE_BYTES)
}

/// Enters write-ahead mode. SQLite waits for locks at the start of a transaction, but not while it
/// changes the mode. If another program opens or closes the database at the same time, this
/// function starts an empty transaction, which waits for the lock, and tries again.
fn enter_write_ahead_mode(connection: &Connection) -> rusqlite::Result<()> {
    for _ in 1..MODE_CHANGE_ATTEMPTS {
        match set_journal_mode(connection, "wal") {
            Err(error) if is_busy(&error) => connection.execute_batch("BEGIN IMMEDIATE; COMMIT")?,
            other => return other,
        }
    }
    set_journal_mode(connection, "wal")
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

fn set_journal_mode(connection: &Connection, mode: &str) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", mode, |_| Ok(()))
}

/// Writes the fields of `row` to the row of `table` that has this `id`. Returns the number of
/// changed rows.
pub(crate) fn update<R: Columns>(
    transaction: &Transaction<'_>,
    table: &str,
    id: &dyn ToSql,
    row: &R,
) -> rusqlite::Result<usize> {
    let assignments: Vec<_> = R::COLUMNS.iter().map(|column| format!("{column} = ?")).collect();
    let sql = format!("UPDATE {table} SET {} WHERE id = ?", assignments.join(", "));
    let mut values = row.values();
    values.push(id);
    transaction.execute(&sql, values.as_slice())
}

/// Inserts rows into `table`. `shared` is the name and value of an additional column, for example
/// the number of the run. All rows get this value.
pub(crate) fn insert<'r, R: Columns + 'r>(
    transaction: &Transaction<'_>,
    table: &str,
    shared: (&str, &dyn ToSql),
    rows: impl IntoIterator<Item = &'r R>,
) -> rusqlite::Result<()> {
    let columns = [&[shared.0], R::COLUMNS].concat();
    let mut statement = transaction.prepare(&format!(
        "INSERT INTO {table} ({}) VALUES ({})",
        columns.join(", "),
        vec!["?"; columns.len()].join(", ")
    ))?;
    for row in rows {
        let mut values = row.values();
        values.insert(0, shared.1);
        statement.execute(values.as_slice())?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::fixture::{
        a_point, a_series, an_end, files_in, sample_histogram, sample_run, sample_trial,
        temp_database,
    };
    use crate::row::{Operation, Verdict};

    /// Creates a store in memory with one run that has one point.
    pub(crate) fn a_store_with_a_point() -> (Store, RunId, PointId) {
        with_a_point(Store::in_memory().unwrap())
    }

    fn with_a_point(mut store: Store) -> (Store, RunId, PointId) {
        let run = store.begin_run(&sample_run("11111111-aaaa", 10)).unwrap();
        let point = store.add_point(run, &a_point(0)).unwrap();
        (store, run, point)
    }

    const BUCKETS: u64 = 40;
    const INTERVALS: u32 = 20;

    fn add_trials(store: &mut Store, point: PointId, ordinals: std::ops::Range<u32>) {
        for ordinal in ordinals {
            let (histogram, series) = (sample_histogram(BUCKETS), a_series(INTERVALS));
            store.add_trial(point, &sample_trial(ordinal), &histogram, &series).unwrap();
        }
    }

    #[test]
    fn files_with_the_names_of_a_log_are_not_removed() {
        let (place, path) = temp_database();
        for there in [false, true] {
            if there {
                Store::open(&path).unwrap().close().unwrap();
            }
            for suffix in ["-journal", "-wal", "-shm"] {
                let name = path.file_name().unwrap().to_str().unwrap();
                let beside = place.path().join(format!("{name}{suffix}"));
                fs::write(&beside, "dear diary").unwrap();
                let refused = Store::open(&path).unwrap_err();
                assert!(matches!(refused, Error::InTheWay { .. }), "{refused}");
                assert_eq!(fs::read(&beside).unwrap(), b"dear diary");
                fs::remove_file(&beside).unwrap();
            }
        }
        Store::open(&path).unwrap();
    }

    /// Counts the trials of a point. Asserts that each trial is complete and that the database is
    /// not damaged.
    fn whole_trials(store: &Store, point: PointId) -> usize {
        let sound: String =
            store.connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        let trials = store.trials(point).unwrap();
        for (ordinal, (id, trial)) in trials.iter().enumerate() {
            assert_eq!(*trial, sample_trial(ordinal as u32));
            assert_eq!(store.latency(*id).unwrap(), sample_histogram(BUCKETS));
            assert_eq!(store.series(*id).unwrap(), a_series(INTERVALS));
        }
        trials.len()
    }

    fn count(store: &Store, table: &str) -> u32 {
        let sql = format!("SELECT count(*) FROM {table}");
        store.connection.query_row(&sql, [], |row| row.get(0)).unwrap()
    }

    fn log_of(database: &Path) -> PathBuf {
        let mut name = database.as_os_str().to_owned();
        name.push("-wal");
        name.into()
    }

    /// Copies the files of an open database, as if its program had been killed.
    fn a_crashed_copy(path: &Path) -> (tempfile::TempDir, PathBuf) {
        let (folder, copy) = temp_database();
        fs::copy(path, &copy).unwrap();
        fs::copy(log_of(path), log_of(&copy)).unwrap();
        (folder, copy)
    }

    #[test]
    fn a_database_whose_runs_are_an_endless_view_is_refused() {
        let (_folder, path) = temp_database();
        Store::open(&path).unwrap().close().unwrap();
        let connection = Connection::open(&path).unwrap();
        let endless = "DROP TABLE run; CREATE VIEW run AS WITH RECURSIVE n(id) AS \
                       (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT * FROM n";
        connection.execute_batch(&format!("PRAGMA foreign_keys = OFF; {endless}")).unwrap();
        drop(connection);
        assert!(matches!(Store::open_read_only(&path).unwrap_err(), Error::Corrupt { .. }));
        assert!(matches!(Store::open(&path).unwrap_err(), Error::Corrupt { .. }));
    }

    #[test]
    fn a_database_is_made_where_there_is_none_or_an_empty_file() {
        let (_folder, path) = temp_database();
        Store::open(&path).unwrap().close().unwrap();
        assert_eq!(Store::open_read_only(&path).unwrap().runs().unwrap(), []);
        fs::write(&path, "").unwrap();
        assert_eq!(Store::open(&path).unwrap().runs().unwrap(), []);
    }

    #[test]
    fn a_closed_or_dropped_store_leaves_one_plain_file_that_reading_does_not_change() {
        let (folder, path) = temp_database();
        for (uuid, close) in [("a", true), ("b", false)] {
            let mut store = Store::open(&path).unwrap();
            store.begin_run(&sample_run(uuid, 1)).unwrap();
            assert!(files_in(folder.path()).contains(&"halfpower.db-wal".to_owned()));
            if close {
                store.close().unwrap();
            } else {
                drop(store);
            }
            assert_eq!(files_in(folder.path()), ["halfpower.db"]);
        }
        let before = fs::read(&path).unwrap();
        let reader = Store::open_read_only(&path).unwrap();
        assert_eq!(reader.runs().unwrap().len(), 2);
        assert_eq!(files_in(folder.path()), ["halfpower.db"]);
        reader.close().unwrap();
        assert!(before == fs::read(&path).unwrap());
    }

    #[test]
    fn what_was_stored_is_there_when_the_file_is_opened_again() {
        let (_folder, path) = temp_database();
        let (mut store, run, point) = with_a_point(Store::open(&path).unwrap());
        add_trials(&mut store, point, 0..3);
        store.finish_run(run, &an_end(), &[]).unwrap();
        let runs = store.runs().unwrap();
        store.close().unwrap();
        let store = Store::open(&path).unwrap();
        assert_eq!(store.runs().unwrap(), runs);
        assert_eq!(store.points(run).unwrap(), [(point, a_point(0))]);
        assert_eq!(whole_trials(&store, point), 3);
    }

    #[test]
    fn the_database_is_synchronised_on_every_commit_while_it_is_open() {
        let (_folder, path) = temp_database();
        let store = Store::open(&path).unwrap();
        let mode: String =
            store.connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        let synchronous: u32 =
            store.connection.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap();
        assert_eq!((mode.as_str(), synchronous), ("wal", 2));
    }

    #[test]
    fn odd_file_names_are_names_and_not_commands_to_sqlite() {
        let (folder, path) = temp_database();
        for name in [":memory:", "file:x?mode=memory", "100% ?#.db"] {
            let odd = path.with_file_name(name);
            Store::open(&odd).unwrap().close().unwrap();
            assert_eq!(files_in(folder.path()), [name]);
            fs::remove_file(odd).unwrap();
        }
    }

    #[test]
    fn a_missing_folder_is_named_and_not_made() {
        let (folder, path) = temp_database();
        let missing = folder.path().join("missing");
        let error = Store::open(missing.join("halfpower.db")).unwrap_err();
        assert!(matches!(&error, Error::FolderNotFound { folder, .. } if *folder == missing));
        assert!(error.to_string().contains("create it"), "{error}");
        assert!(!missing.exists() && !path.exists());
    }

    #[test]
    fn a_folder_or_a_device_is_refused() {
        let (folder, path) = temp_database();
        for not_a_file in [folder.path(), Path::new("/dev/null")] {
            let error = Store::open(not_a_file).unwrap_err();
            assert!(matches!(error, Error::NotAFile { .. }), "{error}");
        }
        let error = Store::open_read_only(&path).unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
        assert_eq!(files_in(folder.path()), [""; 0]);
    }

    #[test]
    fn a_foreign_database_is_refused_and_stays_as_it_is_with_its_log() {
        let (_folder, path) = temp_database();
        let foreign = Connection::open(&path).unwrap();
        set_journal_mode(&foreign, "wal").unwrap();
        foreign.execute_batch("CREATE TABLE notes (text); INSERT INTO notes VALUES (1)").unwrap();
        let (folder, copy) = a_crashed_copy(&path);
        let before = (fs::read(&copy).unwrap(), fs::read(log_of(&copy)).unwrap());
        for opened in [Store::open(&copy), Store::open_read_only(&copy)] {
            let error = opened.unwrap_err();
            assert!(matches!(error, Error::NotHalfpower { .. }), "{error}");
        }
        assert!(before == (fs::read(&copy).unwrap(), fs::read(log_of(&copy)).unwrap()));
        assert_eq!(files_in(folder.path()), ["halfpower.db", "halfpower.db-wal"]);
    }

    #[test]
    fn a_newer_schema_is_refused_and_stays_as_it_is() {
        let (folder, path) = temp_database();
        let store = Store::open(&path).unwrap();
        store.connection.pragma_update(None, "user_version", 99).unwrap();
        store.close().unwrap();
        let before = fs::read(&path).unwrap();
        for opened in [Store::open(&path), Store::open_read_only(&path)] {
            let error = opened.unwrap_err();
            assert!(matches!(error, Error::NewerSchema { found: 99, .. }), "{error}");
            assert!(error.to_string().contains("update halfpower"), "{error}");
        }
        assert!(before == fs::read(&path).unwrap());
        assert_eq!(files_in(folder.path()), ["halfpower.db"]);
    }

    #[test]
    fn an_older_schema_is_brought_up_to_date_by_a_writer_and_refused_by_a_reader() {
        let (_folder, path) = temp_database();
        // No release wrote schema 0, but the test needs a schema that is always too old.
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "application_id", schema::APPLICATION_ID).unwrap();
        drop(connection);
        let error = Store::open_read_only(&path).unwrap_err();
        assert!(matches!(error, Error::OlderSchema { found: 0, .. }), "{error}");
        Store::open(&path).unwrap().close().unwrap();
        assert_eq!(Store::open_read_only(&path).unwrap().runs().unwrap(), []);
    }

    #[test]
    fn a_damaged_database_is_reported_as_damaged() {
        let (_folder, path) = temp_database();
        Store::open(&path).unwrap().close().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[100..].fill(0xA5);
        fs::write(&path, bytes).unwrap();
        let error = Store::open(&path).and_then(|store| store.runs()).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }

    // /sys is used because not even root can create files there.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_that_cannot_be_written_is_reported_as_read_only() {
        let error = Store::open("/sys/halfpower.db").unwrap_err();
        assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
        assert!(error.to_string().contains("choose another path"), "{error}");
    }

    /// Calls `body` while `folder` is read-only. The argument of `body` says whether writes are
    /// denied, which is false for root.
    #[cfg(unix)]
    fn while_read_only<T>(folder: &Path, body: impl FnOnce(bool) -> T) -> T {
        use std::os::unix::fs::PermissionsExt;
        let permit = |mode| fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        permit(0o555);
        let denied = fs::write(folder.join("probe"), "").is_err();
        let value = body(denied);
        permit(0o755);
        value
    }

    #[cfg(unix)]
    #[test]
    fn a_database_in_a_read_only_folder_is_read_but_not_opened_for_writing() {
        let (folder, path) = temp_database();
        let (store, run, point) = with_a_point(Store::open(&path).unwrap());
        store.close().unwrap();
        while_read_only(folder.path(), |denied| {
            let points = Store::open_read_only(&path).unwrap().points(run).unwrap();
            assert_eq!(points, [(point, a_point(0))]);
            let opened = Store::open(&path);
            assert_eq!(matches!(opened, Err(Error::ReadOnly { .. })), denied, "{opened:?}");
        });
    }

    #[cfg(unix)]
    #[test]
    fn a_killed_writers_database_in_a_read_only_folder_says_to_copy_it() {
        let (_folder, path) = temp_database();
        let (_killed, run, point) = with_a_point(Store::open(&path).unwrap());
        let (folder, copy) = a_crashed_copy(&path);
        while_read_only(folder.path(), |denied| match Store::open_read_only(&copy) {
            Ok(store) => {
                assert!(!denied);
                assert_eq!(store.points(run).unwrap(), [(point, a_point(0))]);
            }
            Err(error) => {
                assert!(denied && matches!(error, Error::NotClosed { .. }), "{error}");
            }
        });
        assert!(log_of(&copy).exists());
    }

    /// Copies a database and its rollback journal in the middle of a transaction, as if the writer
    /// had been killed.
    fn a_copy_with_a_hot_journal(path: &Path) -> (tempfile::TempDir, PathBuf) {
        let writer = Connection::open(path).unwrap();
        set_journal_mode(&writer, "delete").unwrap();
        // A cache of one page makes SQLite write pages before the commit.
        writer.pragma_update(None, "cache_size", 1).unwrap();
        writer.execute_batch("BEGIN; UPDATE run SET label = 'undone'").unwrap();
        for table in 0..40 {
            writer.execute_batch(&format!("CREATE TABLE undone_{table} (a)")).unwrap();
        }
        let (folder, copy) = temp_database();
        fs::copy(path, &copy).unwrap();
        let beside = |path: &Path| PathBuf::from(format!("{}-journal", path.display()));
        fs::copy(beside(path), beside(&copy)).unwrap();
        (folder, copy)
    }

    #[test]
    fn a_reader_undoes_the_commit_that_a_power_cut_interrupted() {
        let (_folder, path) = temp_database();
        let (store, run, point) = with_a_point(Store::open(&path).unwrap());
        store.close().unwrap();
        let (folder, copy) = a_copy_with_a_hot_journal(&path);
        let store = Store::open_read_only(&copy).unwrap();
        assert_eq!(store.points(run).unwrap(), [(point, a_point(0))]);
        assert_ne!(store.runs().unwrap()[0].label.as_deref(), Some("undone"));
        store.close().unwrap();
        assert_eq!(files_in(folder.path()), ["halfpower.db"]);
    }

    #[test]
    fn a_read_only_store_refuses_to_write() {
        let (_folder, path) = temp_database();
        Store::open(&path).unwrap().close().unwrap();
        let mut store = Store::open_read_only(&path).unwrap();
        let error = store.begin_run(&sample_run("u", 1)).unwrap_err();
        assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
    }

    #[test]
    fn a_reader_sees_each_trial_as_soon_as_it_is_stored() {
        let (folder, path) = temp_database();
        let (mut store, _, point) = with_a_point(Store::open(&path).unwrap());
        let reader = Store::open_read_only(&path).unwrap();
        for trials in 1..=5_u32 {
            add_trials(&mut store, point, trials - 1..trials);
            assert_eq!(whole_trials(&reader, point), trials as usize);
        }
        // The log remains because a reader is open. The next writer removes the log.
        store.close().unwrap();
        assert_eq!(whole_trials(&reader, point), 5);
        reader.close().unwrap();
        Store::open(&path).unwrap().close().unwrap();
        assert_eq!(files_in(folder.path()), ["halfpower.db"]);
        assert_eq!(whole_trials(&Store::open_read_only(&path).unwrap(), point), 5);
    }

    #[test]
    fn a_reader_in_the_midst_of_reading_keeps_its_view_and_does_not_hold_up_the_writer() {
        let (_folder, path) = temp_database();
        let (mut store, _, point) = with_a_point(Store::open(&path).unwrap());
        add_trials(&mut store, point, 0..1);
        let reader = Store::open_read_only(&path).unwrap();
        let view = reader.connection.unchecked_transaction().unwrap();
        assert_eq!(whole_trials(&reader, point), 1);
        add_trials(&mut store, point, 1..2);
        store.close().unwrap();
        assert_eq!(whole_trials(&reader, point), 1);
        drop(view);
        assert_eq!(whole_trials(&reader, point), 2);
    }

    #[test]
    fn two_writers_take_turns() {
        let (_folder, path) = temp_database();
        let (mut first, _, point) = with_a_point(Store::open(&path).unwrap());
        let mut second = Store::open(&path).unwrap();
        add_trials(&mut first, point, 0..1);
        add_trials(&mut second, point, 1..2);
        first.close().unwrap();
        assert_eq!(whole_trials(&second, point), 2);
    }

    #[test]
    fn many_writers_may_open_and_close_one_new_database_at_once() {
        let (folder, path) = temp_database();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for turn in 0..10 {
                        let mut store = Store::open(path).unwrap();
                        store.begin_run(&sample_run(&format!("{writer}-{turn}"), 1)).unwrap();
                        store.close().unwrap();
                    }
                });
            }
        });
        assert_eq!(Store::open(&path).unwrap().runs().unwrap().len(), 40);
        assert_eq!(files_in(folder.path()), ["halfpower.db"]);
    }

    #[test]
    fn a_lock_that_is_not_released_is_reported_as_such() {
        let (_folder, path) = temp_database();
        let mut first = Store::open(&path).unwrap();
        let mut second = Store::open(&path).unwrap();
        second.connection.busy_timeout(Duration::ZERO).unwrap();
        let _held = first.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let error = second.begin_run(&sample_run("u", 1)).unwrap_err();
        assert!(matches!(error, Error::Busy { .. }), "{error}");
    }

    #[test]
    fn a_transaction_that_is_dropped_leaves_no_part_of_a_trial() {
        let (_folder, path) = temp_database();
        let (mut store, _, point) = with_a_point(Store::open(&path).unwrap());
        add_trials(&mut store, point, 0..2);
        let open = store.connection.transaction().unwrap();
        insert(&open, "trial", ("point_id", &point), [&sample_trial(2)]).unwrap();
        drop(open);
        drop(store);
        assert_eq!(whole_trials(&Store::open(&path).unwrap(), point), 2);
    }

    #[test]
    fn a_killed_process_loses_no_stored_trial_and_leaves_no_half_one() {
        let (_folder, path) = temp_database();
        let (mut store, _, point) = with_a_point(Store::open(&path).unwrap());
        add_trials(&mut store, point, 0..4);
        // A cache of one page makes SQLite write the open transaction to the log before the commit.
        store.connection.pragma_update(None, "cache_size", 1).unwrap();
        let open = store.connection.transaction().unwrap();
        insert(&open, "trial", ("point_id", &point), [&sample_trial(4)]).unwrap();
        let trial = TrialId(open.last_insert_rowid());
        let log_before = fs::metadata(log_of(&path)).unwrap().len();
        insert(&open, "latency", ("trial_id", &trial), &sample_histogram(20_000)).unwrap();
        assert!(fs::metadata(log_of(&path)).unwrap().len() > log_before);

        let (crashed, copy) = a_crashed_copy(&path);
        assert_eq!(whole_trials(&Store::open_read_only(&copy).unwrap(), point), 4);
        let survivor = Store::open(&copy).unwrap();
        assert_eq!(whole_trials(&survivor, point), 4);
        survivor.close().unwrap();
        assert_eq!(files_in(crashed.path()), ["halfpower.db"]);
    }

    #[test]
    fn a_log_cut_off_anywhere_holds_only_whole_trials_and_all_that_came_before_the_cut() {
        let (_folder, path) = temp_database();
        let (mut store, _, point) = with_a_point(Store::open(&path).unwrap());
        store.connection.query_row("PRAGMA wal_checkpoint", [], |_| Ok(())).unwrap();
        // `stored_at` contains the length of the log after each trial.
        let mut stored_at = Vec::new();
        let mut longest = 0;
        for ordinal in 0..6 {
            add_trials(&mut store, point, ordinal..ordinal + 1);
            longest = fs::metadata(log_of(&path)).unwrap().len();
            stored_at.push(longest);
        }
        let log = fs::read(log_of(&path)).unwrap();
        let crashed = tempfile::tempdir().unwrap();
        let copy = crashed.path().join("halfpower.db");
        for cut in (0..=longest).step_by(longest as usize / 60).chain(stored_at.clone()) {
            fs::copy(&path, &copy).unwrap();
            fs::write(log_of(&copy), &log[..cut as usize]).unwrap();
            let survivors = whole_trials(&Store::open(&copy).unwrap(), point);
            let reported = stored_at.iter().filter(|length| **length <= cut).count();
            assert!(
                survivors >= reported,
                "log cut at byte {cut}: {reported} trials were reported, but {survivors} survive"
            );
        }
    }

    #[test]
    fn a_full_disk_is_reported_and_leaves_all_earlier_trials_readable() {
        let (_folder, path) = temp_database();
        let (mut store, run, point) = with_a_point(Store::open(&path).unwrap());
        add_trials(&mut store, point, 0..2);
        let pages: u32 =
            store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        let limit = |store: &Store, pages: u32| {
            let set = |_: &rusqlite::Row<'_>| Ok(());
            store.connection.pragma_update_and_check(None, "max_page_count", pages, set).unwrap();
        };
        limit(&store, pages);
        let error =
            store.add_trial(point, &sample_trial(2), &sample_histogram(20_000), &[]).unwrap_err();
        assert!(matches!(error, Error::DiskFull { .. }), "{error}");
        assert!(error.to_string().contains("free space"), "{error}");
        assert_eq!(whole_trials(&store, point), 2);
        store.finish_run(run, &an_end(), &[]).unwrap();

        limit(&store, u32::MAX - 1);
        add_trials(&mut store, point, 2..3);
        store.close().unwrap();
        assert_eq!(whole_trials(&Store::open_read_only(&path).unwrap(), point), 3);
    }

    #[test]
    fn a_trial_with_a_bad_histogram_is_refused_whole() {
        let (mut store, _, point) = a_store_with_a_point();
        let mut twice = sample_histogram(2);
        twice[1].low_ns = twice[0].low_ns;
        let mut mixed = sample_histogram(2);
        mixed[1].operation = Operation::Mix;
        for bad in [twice, mixed] {
            let error = store.add_trial(point, &sample_trial(0), &bad, &[]).unwrap_err();
            assert!(matches!(error, Error::Conflict { .. }), "{error}");
        }
        assert_eq!((count(&store, "trial"), count(&store, "latency")), (0, 0));
    }

    #[test]
    fn rows_without_a_parent_and_taken_ordinals_are_refused() {
        let (mut store, run, point) = a_store_with_a_point();
        add_trials(&mut store, point, 0..1);
        let refused = [
            store.begin_run(&sample_run("11111111-aaaa", 10)).map(|_| ()),
            store.add_point(run, &a_point(0)).map(|_| ()),
            store.add_point(RunId(99), &a_point(1)).map(|_| ()),
            store.add_trial(point, &sample_trial(0), &[], &[]).map(|_| ()),
            store.add_trial(PointId(99), &sample_trial(0), &[], &[]).map(|_| ()),
        ];
        for (i, outcome) in refused.into_iter().enumerate() {
            assert!(matches!(outcome, Err(Error::Conflict { .. })), "{i}: {outcome:?}");
        }
        assert_eq!((count(&store, "point"), count(&store, "trial")), (1, 1));
    }

    #[test]
    fn a_number_that_sqlite_cannot_hold_is_refused_and_the_greatest_it_can_is_kept() {
        let (mut store, _, point) = a_store_with_a_point();
        let greatest = TrialRow { bytes: i64::MAX as u64, ..sample_trial(0) };
        store.add_trial(point, &greatest, &[], &[]).unwrap();
        assert_eq!(store.trials(point).unwrap()[0].1, greatest);
        let too_large = TrialRow { bytes: i64::MAX as u64 + 1, ..sample_trial(1) };
        let error = store.add_trial(point, &too_large, &[], &[]).unwrap_err();
        assert!(matches!(error, Error::NumberTooLarge { .. }), "{error}");
    }

    #[test]
    fn deleting_a_run_deletes_everything_under_it_and_its_number_is_not_used_again() {
        let (mut store, run, point) = a_store_with_a_point();
        add_trials(&mut store, point, 0..2);
        store.connection.execute("DELETE FROM run", []).unwrap();
        for table in ["point", "trial", "latency", "series"] {
            assert_eq!(count(&store, table), 0, "{table}");
        }
        assert!(store.begin_run(&sample_run("next", 20)).unwrap() > run);
    }

    #[test]
    fn a_point_has_a_verdict_once_its_run_is_over() {
        let (mut store, run, judged) = a_store_with_a_point();
        let other = store.add_point(run, &a_point(1)).unwrap();
        let nothing = PointEnd { verdict: None, verdict_reasons_json: "[]".into() };
        assert_eq!(store.point_end(judged).unwrap(), nothing);
        let suspect = PointEnd {
            verdict: Some(Verdict::Suspect),
            verdict_reasons_json: r#"["noisy"]"#.into(),
        };
        store.finish_run(run, &an_end(), &[(judged, suspect.clone())]).unwrap();
        assert_eq!(store.point_end(judged).unwrap(), suspect);
        add_trials(&mut store, judged, 0..1);
        let sql = "SELECT verdict FROM point_summary";
        let shown: String = store.connection.query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(shown, "suspect");
        assert_eq!(store.point_end(other).unwrap(), nothing);
    }

    #[test]
    fn finishing_a_run_that_does_not_exist_is_an_error() {
        let (mut store, run, _) = a_store_with_a_point();
        let error = store.finish_run(RunId(99), &an_end(), &[]).unwrap_err();
        assert!(matches!(error, Error::RunNotFound { .. }), "{error}");
        store.finish_run(run, &an_end(), &[]).unwrap();
    }

    #[test]
    fn runs_of_dead_processes_are_marked_interrupted_and_no_others() {
        let mut store = Store::in_memory().unwrap();
        let mut begin = |uuid: &str, pid, boot_id: &str| {
            let run = NewRun { pid, boot_id: boot_id.into(), ..sample_run(uuid, 1) };
            store.begin_run(&run).unwrap()
        };
        let alive = begin("a", 1, "now");
        let dead = begin("b", 2, "now");
        let from_an_earlier_boot = begin("c", 1, "before");
        let finished = begin("d", 2, "now");
        store.finish_run(finished, &an_end(), &[]).unwrap();

        let is_alive = |pid, boot_id: &str| pid == 1 && boot_id == "now";
        let marked = store.mark_interrupted_runs(is_alive).unwrap();
        assert_eq!(marked, [dead, from_an_earlier_boot]);
        assert_eq!(store.mark_interrupted_runs(is_alive).unwrap(), []);
        let state = |id: RunId| store.run(&id.to_string()).unwrap().state;
        assert_eq!(state(alive), RunState::Running);
        assert_eq!(state(dead), RunState::Interrupted);
        assert_eq!(state(from_an_earlier_boot), RunState::Interrupted);
        assert_eq!(state(finished), RunState::Finished);
        assert_eq!(store.run(&dead.to_string()).unwrap().finished_unix_ns, None);
    }
}
