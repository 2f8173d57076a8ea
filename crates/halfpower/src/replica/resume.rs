//! How far a copy has come durably, kept beside it: what it takes to go on after a kill or a power
//! failure.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Device number and inode of the source.
    source: (u64, u64),
    /// Its size (bytes), and when it was changed last (s, ns).
    bytes: u64,
    changed: (i64, i64),
    /// So much from the beginning of the copy is whole and durable (bytes).
    pub done_bytes: u64,
}

impl State {
    /// Nothing of a source has been copied.
    pub fn of(source: &Metadata) -> State {
        State {
            source: (source.dev(), source.ino()),
            bytes: source.size(),
            changed: (source.mtime(), source.mtime_nsec()),
            done_bytes: 0,
        }
    }

    /// What an earlier copy of the same source, unchanged since, brought into a file; else nothing.
    pub fn found(partial: &Path, file: &File, source: &Metadata) -> State {
        let fresh = State::of(source);
        let found = fs::read(path(partial)).ok().and_then(|text| parse(&text));
        let fits = |state: &State| {
            let there = file.metadata().map_or(0, |metadata| metadata.len());
            State { done_bytes: 0, ..state.clone() } == fresh && state.done_bytes <= there
        };
        found.filter(fits).unwrap_or(fresh)
    }

    /// Keeps it, durably.
    pub fn keep(&self, partial: &Path) -> io::Result<()> {
        let path = path(partial);
        // Written beside and renamed, so that nobody ever finds half of it.
        let half = path.with_extension("half");
        let mut file = File::create(&half)?;
        file.write_all(serde_json::to_string(self)?.as_bytes())?;
        file.sync_all()?;
        fs::rename(&half, &path)
    }

    /// Forgets what was kept.
    pub fn forget(partial: &Path) {
        let _ = fs::remove_file(path(partial));
    }
}

/// Reads what was kept; None where it is not that.
pub fn parse(text: &[u8]) -> Option<State> {
    serde_json::from_slice(text).ok()
}

fn path(partial: &Path) -> PathBuf {
    let mut name = partial.as_os_str().to_owned();
    name.push(".state");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_goes_on_only_from_the_same_unchanged_source() {
        let folder = tempfile::tempdir().unwrap();
        let (source, partial) = (folder.path().join("source"), folder.path().join("partial"));
        fs::write(&source, [1; 100]).unwrap();
        fs::write(&partial, [1; 60]).unwrap();
        let file = File::open(&partial).unwrap();
        let metadata = fs::metadata(&source).unwrap();
        let found = |metadata: &Metadata| State::found(&partial, &file, metadata).done_bytes;
        assert_eq!(found(&metadata), 0, "nothing was kept");
        State { done_bytes: 50, ..State::of(&metadata) }.keep(&partial).unwrap();
        assert_eq!(found(&metadata), 50);
        State { done_bytes: 61, ..State::of(&metadata) }.keep(&partial).unwrap();
        assert_eq!(found(&metadata), 0, "more than there is");
        State { done_bytes: 50, ..State::of(&metadata) }.keep(&partial).unwrap();
        fs::write(&source, [2; 101]).unwrap();
        assert_eq!(found(&fs::metadata(&source).unwrap()), 0, "it has changed");
        State::forget(&partial);
        assert_eq!(found(&metadata), 0);
    }
}
