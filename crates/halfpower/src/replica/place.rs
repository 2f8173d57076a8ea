//! Where a copy is written before it has its name: a file beside it, held by a lock for as long as
//! somebody writes it, which becomes the copy by being renamed or is taken away.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ioengine::{Clock, Monotonic};
use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

use super::{Broken, on};
use crate::failure::Failure;

/// How the name of a copy ends that is not whole yet.
pub const SUFFIX: &str = ".halfpower-partial";
/// The longest name of a file (bytes), limits.h NAME_MAX.
const NAME_BYTES: usize = 255;

/// How long the requests of a killed copy may take to their end (ns), and how often that is looked
/// for.
const DYING_NS: u64 = 2_000_000_000;
const TICK: Duration = Duration::from_millis(10);

/// The name under which a copy is written.
pub fn partial_name(name: &OsStr) -> OsString {
    let room = NAME_BYTES - 1 - SUFFIX.len() - ".state".len();
    let name = &name.as_bytes()[..name.len().min(room)];
    OsString::from_vec([b".", name, SUFFIX.as_bytes()].concat())
}

/// The path under which a copy is written.
pub fn partial_path(path: &Path) -> PathBuf {
    path.with_file_name(partial_name(path.file_name().unwrap_or_default()))
}

/// See the module.
#[derive(Debug)]
pub struct Place {
    /// The open file.
    pub file: File,
    /// Its path, and the one that it will have.
    pub partial: PathBuf,
    target: PathBuf,
    /// Something may be there and be replaced.
    replaces: bool,
    /// It stays when it does not become the copy.
    keeps: bool,
    is_done: bool,
}

impl Place {
    /// Makes a place for a copy, or takes the one that an interrupted copy left.
    pub fn make(target: &Path, mode: u32, replaces: bool, keeps: bool) -> Result<Place, Broken> {
        let partial = partial_path(target);
        loop {
            let file = open(&partial, mode).map_err(on("creating", &partial))?;
            lock(&file, &partial, target)?;
            // Somebody may have renamed or removed it between opening and locking.
            if is_at(&file, &partial) {
                let target = target.to_path_buf();
                return Ok(Place { file, partial, target, replaces, keeps, is_done: false });
            }
        }
    }

    /// Gives it its name, durably if that is wanted: it is whole.
    pub fn finish(mut self, sync: bool) -> Result<(), Broken> {
        let named = |error| on("naming", &self.target)(error);
        if self.replaces {
            fs::rename(&self.partial, &self.target).map_err(named)?;
        } else {
            match renameat_with(CWD, &self.partial, CWD, &self.target, RenameFlags::NOREPLACE) {
                Ok(()) => {}
                Err(Errno::INVAL | Errno::NOSYS) if fs::symlink_metadata(&self.target).is_err() => {
                    fs::rename(&self.partial, &self.target).map_err(named)?;
                }
                Err(Errno::EXIST | Errno::INVAL) => return Err(appeared(&self.target)),
                Err(error) => return Err(named(error.into())),
            }
        }
        self.is_done = true;
        if sync { sync_folder_of(&self.target) } else { Ok(()) }
    }

    /// It is not to be kept after all: gives the name that it would have had.
    pub fn give_up(mut self) -> PathBuf {
        self.keeps = false;
        self.target.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_done && !self.keeps && is_at(&self.file, &self.partial) {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Takes the lock of a place. What a killed copy had on its way is brought to its end by the
/// kernel, which holds the lock until then: that is waited for.
fn lock(file: &File, partial: &Path, target: &Path) -> Result<(), Broken> {
    let clock = Monotonic::uncalibrated();
    let until_ns = clock.now_ns() + DYING_NS;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => return Ok(()),
            Err(Errno::WOULDBLOCK) if clock.now_ns() < until_ns => clock.sleep(TICK),
            Err(Errno::WOULDBLOCK) => return Err(in_use(target)),
            Err(error) => return Err(on("locking", partial)(error.into())),
        }
    }
}

/// Makes the names in the folder of a path durable.
pub fn sync_folder_of(path: &Path) -> Result<(), Broken> {
    let folder = folder_of(path);
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(on("flushing", folder))
}

/// The folder that a path lies in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn open(path: &Path, mode: u32) -> io::Result<File> {
    // Readable for reading it back, writable for going on with it.
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(mode & 0o777 | 0o600)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path)
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (open, there) = (file.metadata().map(identity), fs::symlink_metadata(path).map(identity));
    matches!((open, there), (Ok(open), Ok(there)) if open == there)
}

/// Why nothing is written where somebody else is at work.
pub fn in_use(target: &Path) -> Broken {
    let target = target.display();
    Broken::Refused(Failure::refused(format!(
        "{target}: another copy is being written there; wait for it, or name another destination"
    )))
}

fn appeared(target: &Path) -> Broken {
    let target = target.display();
    Broken::Refused(Failure::refused(format!(
        "{target} was made by somebody else meanwhile and is left alone; name another destination, \
         or allow replacing it with --overwrite={target}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_becomes_the_copy_or_is_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("copy");
        let count = || fs::read_dir(folder.path()).unwrap().count();
        drop(Place::make(&target, 0o644, false, false).unwrap());
        assert_eq!(count(), 0);
        drop(Place::make(&target, 0o644, false, true).unwrap());
        assert_eq!(count(), 1, "kept for going on");
        Place::make(&target, 0o644, false, false).unwrap().finish(true).unwrap();
        assert!(target.exists() && count() == 1);
        let place = Place::make(&target, 0o644, false, false).unwrap();
        assert!(matches!(place.finish(false), Err(Broken::Refused(_))), "it appeared meanwhile");
        Place::make(&target, 0o644, true, false).unwrap().finish(false).unwrap();
        assert_eq!(count(), 1);
    }

    #[test]
    fn two_do_not_write_in_one_place() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("copy");
        let _first = Place::make(&target, 0o644, false, false).unwrap();
        let second = Place::make(&target, 0o644, false, false);
        assert!(matches!(second, Err(Broken::Refused(_))));
    }

    #[test]
    fn long_names_have_room_for_what_is_added() {
        for length in [1, 200, 255] {
            let name = partial_name(OsStr::new(&"x".repeat(length)));
            assert!(name.len() + ".state".len() <= NAME_BYTES);
        }
    }
}
