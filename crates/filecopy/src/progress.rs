//! Reports the progress of a session: counters that all threads update, and events.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Serialize;

use crate::problem::Problem;

/// An event of a session.
#[derive(Clone, Debug)]
pub enum Event {
    /// A file, directory, link or special file was copied.
    Copied {
        /// Path of the source.
        from: PathBuf,
        /// Path of the copy.
        to: PathBuf,
    },
    /// In a dry run: the entry would be copied.
    WouldCopy {
        /// Path of the source.
        from: PathBuf,
        /// Path of the copy.
        to: PathBuf,
        /// Whether an existing entry would be replaced.
        replaces: bool,
    },
    /// The destination already has the same entry.
    UpToDate(PathBuf),
    /// The existing entry is left unchanged, as requested.
    Skipped(PathBuf),
    /// The entry was removed because the source does not have it.
    Deleted(PathBuf),
    /// In a dry run: the entry would be removed.
    WouldDelete(PathBuf),
    /// The entry could not be copied.
    Problem(Problem),
    /// A message for the user.
    Note(String),
}

/// The counters of a session.
#[derive(Debug, Default)]
pub struct Progress {
    pub(crate) files: AtomicU64,
    pub(crate) directories: AtomicU64,
    pub(crate) links: AtomicU64,
    pub(crate) special: AtomicU64,
    pub(crate) up_to_date: AtomicU64,
    pub(crate) skipped: AtomicU64,
    pub(crate) deleted: AtomicU64,
    pub(crate) problems: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) moved_bytes: AtomicU64,
    pub(crate) resumed_bytes: AtomicU64,
    pub(crate) reflinks: AtomicU64,
    pub(crate) by_server: AtomicU64,
    expected_bytes: AtomicU64,
    expected_files: AtomicU64,
    is_counted: AtomicBool,
    how: Mutex<String>,
    notes: Mutex<Vec<String>>,
}

/// Snapshot of the counters of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Counts {
    /// Number of copied files.
    pub files: u64,
    /// Number of created directories.
    pub directories: u64,
    /// Number of created symbolic and hard links.
    pub links: u64,
    /// Number of created named pipes, sockets and devices.
    pub special: u64,
    /// Number of entries that already existed and were up to date.
    pub up_to_date: u64,
    /// Number of existing entries that were left unchanged, as the settings require.
    pub skipped: u64,
    /// Number of entries that were removed because the source does not have them.
    pub deleted: u64,
    /// Number of entries that could not be copied as requested.
    pub problems: u64,
    /// Total size of all copied and up-to-date files, including holes (bytes).
    pub bytes: u64,
    /// Number of bytes that were read and written. Holes and shared blocks are not counted.
    pub moved_bytes: u64,
    /// Number of bytes that an earlier session had already copied.
    pub resumed_bytes: u64,
    /// Number of files that share the blocks of their source (reflinks).
    pub reflinks: u64,
    /// Number of files whose data the file server copied (copy_file_range(2)).
    pub by_server: u64,
    /// Description of the method that copied the last large file.
    pub how: String,
    /// Messages for the user.
    pub notes: Vec<String>,
}

impl Counts {
    /// Returns the number of bytes that this session copied.
    pub fn new_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.resumed_bytes)
    }
}

impl Progress {
    pub(crate) fn add(count: &AtomicU64, number: u64) {
        count.fetch_add(number, Ordering::Relaxed);
    }

    /// Subtracts the bytes of a copy that failed.
    pub(crate) fn take_back_bytes(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the finished share of the work (0 to 1). The share is computed from files if a
    /// directory tree is copied, otherwise from bytes. None if the total is not known yet.
    pub fn share(&self) -> Option<f64> {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let done = || of(&self.files) + of(&self.up_to_date) + of(&self.skipped);
        let (done, all) = match of(&self.expected_files) {
            0 => (of(&self.bytes), of(&self.expected_bytes)),
            files => (done() + of(&self.problems), files),
        };
        (self.is_counted.load(Ordering::Relaxed) && all > 0).then(|| done as f64 / all as f64)
    }

    /// Adds to the expected number of bytes.
    pub fn expect_bytes(&self, bytes: u64) {
        Progress::add(&self.expected_bytes, bytes);
    }

    pub(crate) fn expect_file(&self) {
        Progress::add(&self.expected_files, 1);
    }

    /// Sets whether all sources have been counted, so that the total is known.
    pub fn set_counted(&self, is_counted: bool) {
        self.is_counted.store(is_counted, Ordering::Relaxed);
    }

    pub(crate) fn note_how(&self, how: &str) {
        how.clone_into(&mut self.how.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn note(&self, what: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// Returns the current counts.
    pub fn counts(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            files: of(&self.files),
            directories: of(&self.directories),
            links: of(&self.links),
            special: of(&self.special),
            up_to_date: of(&self.up_to_date),
            skipped: of(&self.skipped),
            deleted: of(&self.deleted),
            problems: of(&self.problems),
            bytes: of(&self.bytes),
            moved_bytes: of(&self.moved_bytes),
            resumed_bytes: of(&self.resumed_bytes),
            reflinks: of(&self.reflinks),
            by_server: of(&self.by_server),
            how: self.how.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            notes: self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}
