//! Recreates hard links across all sources of a session. If a file has several names, it is copied
//! under the first name that is found. Its other names become hard links to this copy.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::directory::{Directory, EntryInfo};

/// The copy of a file that has several names. The other names become hard links to this copy.
#[derive(Clone, Debug)]
pub(crate) struct FirstCopy {
    root: Arc<Directory>,
    relative: PathBuf,
    identity: (u64, u64),
}

impl FirstCopy {
    /// Describes a copy by its path relative to the open directory `root`.
    pub fn new(root: &Arc<Directory>, relative: PathBuf, info: &EntryInfo) -> FirstCopy {
        FirstCopy { root: Arc::clone(root), relative, identity: info.identity() }
    }

    /// Opens the copy for linking. `None` if the copy no longer exists.
    pub fn open(&self) -> Option<File> {
        let name = self.relative.file_name()?;
        let parent = self.root.descend(self.relative.parent()?).ok()?;
        let file = parent.open_entry(name).ok()?;
        EntryInfo::of(&file).is_ok_and(|info| info.identity() == self.identity).then_some(file)
    }

    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }
}

#[derive(Debug)]
enum State {
    /// A thread is copying the file.
    Begun,
    Done(FirstCopy),
}

/// The files with several names that were found so far, by device and inode number.
#[derive(Debug, Default)]
pub(crate) struct HardLinks {
    met: Mutex<HashMap<(u64, u64), State>>,
    changed: Condvar,
}

/// The right to copy a file that has several names. `settle` must be called after the copy. If the
/// claim is dropped instead, another thread may copy the file.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    links: &'a HardLinks,
    source: (u64, u64),
    is_settled: bool,
}

impl HardLinks {
    /// Claims the right to copy a file. Waits while another thread copies the same file. If the
    /// file was already copied under another name, returns this copy as the error.
    pub fn claim(&self, source: &EntryInfo) -> Result<Claim<'_>, FirstCopy> {
        let source = source.identity();
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match met.get(&source) {
                Some(State::Done(first)) => return Err(first.clone()),
                Some(State::Begun) => {
                    met = self.changed.wait(met).unwrap_or_else(PoisonError::into_inner);
                }
                None => {
                    met.insert(source, State::Begun);
                    return Ok(Claim { links: self, source, is_settled: false });
                }
            }
        }
    }

    fn set(&self, source: (u64, u64), state: Option<State>) {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        match state {
            Some(state) => met.insert(source, state),
            None => met.remove(&source),
        };
        drop(met);
        self.changed.notify_all();
    }
}

impl Claim<'_> {
    /// Records the copy. The other names of the file then become links to this copy.
    pub fn settle(mut self, first: FirstCopy) {
        self.is_settled = true;
        self.links.set(self.source, Some(State::Done(first)));
    }
}

impl Drop for Claim<'_> {
    /// Gives up the right if the file was not copied, so that another thread can copy the file.
    fn drop(&mut self) {
        if !self.is_settled {
            self.links.set(self.source, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn names_wait_for_the_first_copy_and_a_failed_one_is_tried_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "x").unwrap();
        let root = Arc::new(Directory::open(folder.path()).unwrap());
        let info = root.look_up("file".as_ref()).unwrap().unwrap();
        let links = HardLinks::default();
        drop(links.claim(&info).unwrap());
        let claim = links.claim(&info).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| links.claim(&info).unwrap_err().open().is_some());
            claim.settle(FirstCopy::new(&root, "file".into(), &info));
            assert!(waiting.join().unwrap());
        });
        let first = links.claim(&info).unwrap_err();
        fs::remove_file(folder.path().join("file")).unwrap();
        fs::write(folder.path().join("file"), "another").unwrap();
        let now = root.look_up("file".as_ref()).unwrap().unwrap();
        assert_eq!(first.open().is_some(), now.identity() == first.identity());
    }
}
