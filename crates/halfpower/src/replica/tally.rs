//! What has been copied so far: counted by all threads, read by whoever shows it.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
    /// What was left out, and why.
    skipped: Mutex<Vec<String>>,
}

/// The same at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files.
    pub files: u64,
    /// Folders.
    pub folders: u64,
    /// Links of both kinds.
    pub links: u64,
    /// Bytes of all files, holes included (bytes).
    pub bytes: u64,
    /// Bytes that were read and written (bytes).
    pub moved_bytes: u64,
    /// Bytes that were there before (bytes).
    pub resumed_bytes: u64,
    /// Files that share the blocks of their source.
    pub reflinks: u64,
    /// Files that a file server copied.
    pub by_server: u64,
    /// How large files were copied.
    pub how: String,
    /// What was left out, and why.
    pub skipped: Vec<String>,
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

    /// Notes what is left out.
    pub fn skip(&self, what: String) {
        self.skipped.lock().unwrap_or_else(PoisonError::into_inner).push(what);
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
            skipped: self.skipped.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}
