//! What has been copied so far: counted by all threads, read by whoever shows it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Serialize;

/// See the module.
#[derive(Debug, Default)]
pub struct Tally {
    /// Files, folders and links that are whole.
    pub files: AtomicU64,
    /// See above.
    pub folders: AtomicU64,
    /// See above.
    pub links: AtomicU64,
    /// Bytes that the destination has, holes included (bytes).
    pub bytes: AtomicU64,
    /// Bytes that were read and written (bytes).
    pub moved_bytes: AtomicU64,
    /// Bytes that an interrupted copy had brought over before (bytes).
    pub resumed_bytes: AtomicU64,
    /// What there is to copy, as far as is known: bytes of a file (bytes), ...
    pub expected_bytes: AtomicU64,
    /// ... files of trees.
    pub expected_files: AtomicU64,
    /// Whether all that there is to copy has been seen.
    pub is_counted: AtomicBool,
    /// Files that shared blocks, and files that a server copied.
    pub reflinks: AtomicU64,
    /// See above.
    pub by_server: AtomicU64,
    /// How the last large file was copied.
    how: Mutex<String>,
    /// What was left out, or changed meanwhile.
    notes: Mutex<Vec<String>>,
}

/// The same at one moment, as `--json` prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Counts {
    /// Files that were copied.
    pub files: u64,
    /// Folders that were made, or gone through.
    pub folders: u64,
    /// Symbolic and hard links that were made.
    pub links: u64,
    /// Bytes of all files, holes included (bytes).
    pub bytes: u64,
    /// Bytes that were read and written: neither holes nor shared blocks (bytes).
    pub moved_bytes: u64,
    /// Bytes that an interrupted copy had brought over (bytes).
    pub resumed_bytes: u64,
    /// Files that share the blocks of their source.
    pub reflinks: u64,
    /// Files that a file server copied.
    pub by_server: u64,
    /// How the last large file was copied, in words.
    pub how: String,
    /// What was left out, or changed meanwhile.
    pub notes: Vec<String>,
}

impl Counts {
    /// Bytes that this copy brought over (bytes).
    pub fn new_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.resumed_bytes)
    }
}

impl Tally {
    /// Adds to one of the counts.
    pub fn add(count: &AtomicU64, number: u64) {
        count.fetch_add(number, Ordering::Relaxed);
    }

    /// How far it is, where that can be told: a share of all.
    pub fn share(&self) -> Option<f64> {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (done, all) = match of(&self.expected_files) {
            0 => (of(&self.bytes), of(&self.expected_bytes)),
            files => (of(&self.files), files),
        };
        (self.is_counted.load(Ordering::Relaxed) && all > 0).then(|| done as f64 / all as f64)
    }

    /// Notes how a large file was copied.
    pub fn note_how(&self, how: &str) {
        how.clone_into(&mut self.how.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Notes what is left out, or has changed.
    pub fn note(&self, what: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// What it comes to now.
    pub fn counts(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            files: of(&self.files),
            folders: of(&self.folders),
            links: of(&self.links),
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
