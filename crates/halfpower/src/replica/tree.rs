//! Copies of folders with all that is in them.
//!
//! One thread walks, several copy. A tree that is new is made in a folder of another name beside
//! its place, whose files need no names of their own before they are whole: the folder gets its
//! name when all are there, and durable. A tree that is put over one which exists, and one that can
//! be resumed, is made file by file, each whole or not there.

mod queue;
mod small;

use std::collections::HashMap;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, FileType, FlockOperation, Mode, RenameFlags, flock, mknodat, renameat_with};
use rustix::io::Errno;

use super::attributes::{self, Keep};
use super::file::{self, Source, broken, read_back};
use super::place::{in_use, partial_path, sync_folder_of};
use super::watch::Eyes;
use super::{Broken, Settings, Tally, on};
use crate::failure::Failure;
use queue::{Job, Queue};
use small::Buffer;

/// What all threads of one tree share.
#[derive(Debug)]
struct Common<'a> {
    settings: &'a Settings,
    /// Files get their names one by one.
    one_by_one: bool,
    stop: AtomicBool,
    broken: Mutex<Option<Broken>>,
    /// Where a file with several names was copied first.
    names: Mutex<HashMap<(u64, u64), PathBuf>>,
    /// Names that are given when all files are there.
    links: Mutex<Vec<(PathBuf, PathBuf)>>,
    /// Checksums that are to be held against what the device gives back.
    sums: Mutex<Vec<(PathBuf, blake3::Hash)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Common<'_> {
    /// Why everything ends; the first reason counts.
    fn fail(&self, broken: Broken) {
        lock(&self.broken).get_or_insert(broken);
        self.stop.store(true, Ordering::Relaxed);
    }

    fn stops(&self) -> bool {
        if self.settings.interrupt.is_set() {
            self.fail(Broken::Stopped);
        }
        self.stop.load(Ordering::Relaxed)
    }
}

/// Copies a folder to a new one, or into the one that is there and may be changed.
pub fn tree(settings: &Settings, from: &Path, to: &Path, exists: bool) -> Result<(), Broken> {
    check_apart(from, to)?;
    let root = if exists { to.to_path_buf() } else { partial_path(to) };
    let fresh = !exists && !settings.resume;
    if !exists {
        make_root(&root, settings.resume)?;
    }
    let folder = File::open(&root).map_err(on("opening", &root))?;
    // Where there are no locks there is none to be seen.
    if let Err(Errno::WOULDBLOCK) = flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        return Err(in_use(to));
    }
    if fresh {
        empty(&root)?;
    }
    let copied = fill(settings, from, &root, !fresh, &folder);
    if let Err(broken) = copied {
        if fresh {
            let _ = fs::remove_dir_all(&root);
        }
        return Err(broken);
    }
    if !exists {
        name(&root, to)?;
        if settings.sync {
            sync_folder_of(to)?;
        }
    }
    Ok(())
}

/// Everything that is in a folder.
fn fill(
    settings: &Settings,
    from: &Path,
    root: &Path,
    one_by_one: bool,
    folder: &File,
) -> Result<(), Broken> {
    let common = Common {
        settings,
        one_by_one,
        stop: AtomicBool::new(false),
        broken: Mutex::new(None),
        names: Mutex::default(),
        links: Mutex::default(),
        sums: Mutex::default(),
    };
    let threads = settings.threads.max(1) as usize;
    let queue = Queue::new(threads);
    let mut folders = Vec::new();
    std::thread::scope(|scope| {
        let (common, queue) = (&common, &queue);
        for thread in 0..threads {
            scope.spawn(move || work(common, queue, thread));
        }
        let walked = walk(common, queue, from, root, &mut folders);
        settings.tally.is_counted.store(true, Ordering::Relaxed);
        if let Err(broken) = walked {
            common.fail(broken);
        }
        queue.close();
    });
    let _ = common.stops();
    if let Some(broken) = lock(&common.broken).take() {
        return Err(broken);
    }
    for (first, name) in lock(&common.links).drain(..) {
        hard_link(&first, &name, one_by_one)?;
        Tally::add(&settings.tally.links, 1);
    }
    // What lies within a folder changes its times, so it comes last, the innermost first.
    for (source, target) in folders.iter().rev() {
        finish_folder(settings, source, target)?;
    }
    Tally::add(&settings.tally.folders, folders.len() as u64);
    if settings.sync || settings.verify {
        rustix::fs::syncfs(folder).map_err(|e| on("flushing", root)(e.into()))?;
    }
    for (path, sum) in lock(&common.sums).drain(..) {
        if read_back(settings, &path, u64::MAX)? != sum {
            return Err(Broken::Differs { path, is_removed: !one_by_one });
        }
    }
    Ok(())
}

/// Goes through a folder: makes its folders and links, hands its files to the threads.
fn walk(
    common: &Common,
    queue: &Queue,
    from: &Path,
    to: &Path,
    folders: &mut Vec<(PathBuf, PathBuf)>,
) -> Result<(), Broken> {
    let folder = folders.len();
    folders.push((from.to_path_buf(), to.to_path_buf()));
    let reading = on("reading", from);
    for entry in fs::read_dir(from).map_err(&reading)? {
        if common.stops() {
            return Ok(());
        }
        let entry = entry.map_err(&reading)?;
        let kind = entry.file_type().map_err(&reading)?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if kind.is_dir() {
            make_folder(common, &from, &to)?;
            walk(common, queue, &from, &to, folders)?;
        } else if kind.is_file() {
            Tally::add(&common.settings.tally.expected_files, 1);
            queue.push(Job { folder, from, to });
        } else if kind.is_symlink() {
            copy_link(common, &from, &to)?;
        } else {
            copy_special(common, &from, &to)?;
        }
    }
    Ok(())
}

/// The life of a thread.
fn work(common: &Common, queue: &Queue, thread: usize) {
    let mut buffer = Buffer::new(common.settings);
    while let Some(Job { from, to, .. }) = queue.take(thread) {
        // After a failure the jobs that wait are only taken out of the way.
        if common.stops() {
            continue;
        }
        let copied = match common.one_by_one {
            true => merge_file(common, &from, &to),
            false => fresh_file(common, &mut buffer, &from, &to),
        };
        if let Err(broken) = copied {
            common.fail(broken);
        }
    }
}

/// A file of a tree that gets its name as a whole.
fn fresh_file(common: &Common, buffer: &mut Buffer, from: &Path, to: &Path) -> Result<(), Broken> {
    let settings = common.settings;
    let mut source = Source::open(from, false)?;
    if has_its_name_elsewhere(common, &source.metadata, to) {
        return Ok(());
    }
    if !Buffer::suits(&source.metadata) {
        source.look_at_cache(settings);
    }
    let private = settings.keep == Keep::Everything;
    let mode = if private { 0o600 } else { source.metadata.mode() & 0o777 };
    let target = OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(to);
    let target = target.map_err(on("creating", to))?;
    let mut eyes = Eyes::new(settings, 0);
    let (read, written) = ((&source.file, from), (&target, to));
    if Buffer::suits(&source.metadata) {
        let copied = buffer.copy(read, written, &mut eyes);
        copied.map_err(|error| broken(settings, error))?;
    } else {
        let copied = settings.options.copy(read, written, 0, &mut eyes);
        file::tell(settings, &copied.map_err(|error| broken(settings, error))?);
        source.leave();
        source.check_unchanged(from, settings);
    }
    attributes::give(settings.keep, &source.metadata, &source.file, &target, to)?;
    if let Some(hasher) = eyes.hasher.take() {
        lock(&common.sums).push((to.to_path_buf(), hasher.finalize()));
    }
    Tally::add(&settings.tally.files, 1);
    Ok(())
}

/// A file of a tree that is made file by file.
fn merge_file(common: &Common, from: &Path, to: &Path) -> Result<(), Broken> {
    let settings = common.settings;
    let source = fs::symlink_metadata(from).map_err(on("looking at", from))?;
    if has_its_name_elsewhere(common, &source, to) {
        return Ok(());
    }
    if settings.resume
        && let Ok(there) = fs::symlink_metadata(to)
        && is_copy_of(&there, &source)
    {
        Tally::add(&settings.tally.bytes, there.size());
        Tally::add(&settings.tally.resumed_bytes, there.size());
        Tally::add(&settings.tally.files, 1);
        return Ok(());
    }
    file::one(settings, from, false, to, true)?;
    if settings.resume {
        // By its size and its time the next attempt knows that it is there.
        let copy = OpenOptions::new().write(true).open(to);
        let set = copy.and_then(|copy| attributes::set_times(&copy, &source));
        set.map_err(on("keeping the times of", to))?;
    }
    Ok(())
}

fn is_copy_of(there: &Metadata, source: &Metadata) -> bool {
    let seen = |metadata: &Metadata| (metadata.size(), metadata.mtime(), metadata.mtime_nsec());
    there.is_file() && seen(there) == seen(source)
}

/// Whether a file was copied already under another of its names, and is to have this one too.
fn has_its_name_elsewhere(common: &Common, source: &Metadata, to: &Path) -> bool {
    if common.settings.keep == Keep::Modes || source.nlink() < 2 {
        return false;
    }
    let mut names = lock(&common.names);
    match names.get(&(source.dev(), source.ino())) {
        Some(first) => {
            lock(&common.links).push((first.clone(), to.to_path_buf()));
            true
        }
        None => {
            names.insert((source.dev(), source.ino()), to.to_path_buf());
            false
        }
    }
}

fn hard_link(first: &Path, name: &Path, replaces: bool) -> Result<(), Broken> {
    if replaces {
        remove_old_name(name)?;
    }
    fs::hard_link(first, name).map_err(on("linking", name))
}

/// Makes way for a link; only what is no folder is replaced.
fn remove_old_name(path: &Path) -> Result<(), Broken> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(on("replacing", path)(error)),
        _ => Ok(()),
    }
}

fn make_folder(common: &Common, from: &Path, to: &Path) -> Result<(), Broken> {
    let mode = fs::metadata(from).map_err(on("looking at", from))?.mode();
    // Until all is in it, this user must be able to write to it.
    let made = fs::DirBuilder::new().mode(mode & 0o777 | 0o700).create(to);
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && common.one_by_one => {
            match fs::symlink_metadata(to).is_ok_and(|there| there.is_dir()) {
                true => Ok(()),
                false => Err(on("creating the folder", to)(error)),
            }
        }
        made => made.map_err(on("creating the folder", to)),
    }
}

fn finish_folder(settings: &Settings, from: &Path, to: &Path) -> Result<(), Broken> {
    let looking = on("looking at", from);
    let source = File::open(from).map_err(&looking)?;
    let metadata = source.metadata().map_err(&looking)?;
    let target = File::open(to).map_err(on("opening", to))?;
    if settings.keep == Keep::Modes {
        let now = target.metadata().map_err(on("looking at", to))?.mode() & 0o7777;
        let wanted = now & (metadata.mode() | !0o700) & 0o7777;
        if wanted != now {
            let set = target.set_permissions(Permissions::from_mode(wanted));
            set.map_err(on("setting the mode of", to))?;
        }
    }
    attributes::give(settings.keep, &metadata, &source, &target, to)
}

/// Copies a symbolic link as such; what has its name was allowed to go.
pub fn link(settings: &Settings, from: &Path, to: &Path) -> Result<(), Broken> {
    remove_old_name(to)?;
    make_link(settings, from, to)?;
    if settings.sync { sync_folder_of(to) } else { Ok(()) }
}

fn copy_link(common: &Common, from: &Path, to: &Path) -> Result<(), Broken> {
    if common.one_by_one {
        remove_old_name(to)?;
    }
    make_link(common.settings, from, to)
}

fn make_link(settings: &Settings, from: &Path, to: &Path) -> Result<(), Broken> {
    let text = fs::read_link(from).map_err(on("reading", from))?;
    std::os::unix::fs::symlink(text, to).map_err(on("creating the link", to))?;
    if settings.keep == Keep::Everything {
        let metadata = fs::symlink_metadata(from).map_err(on("looking at", from))?;
        attributes::give_link(&metadata, from, to)?;
    }
    Tally::add(&settings.tally.links, 1);
    Ok(())
}

/// Pipes, sockets and devices: made anew where everything is kept, else left out.
fn copy_special(common: &Common, from: &Path, to: &Path) -> Result<(), Broken> {
    let metadata = fs::symlink_metadata(from).map_err(on("looking at", from))?;
    let kind = metadata.file_type();
    let (kind, words) = if kind.is_fifo() {
        (FileType::Fifo, "a named pipe")
    } else if kind.is_char_device() {
        (FileType::CharacterDevice, "a device")
    } else if kind.is_block_device() {
        (FileType::BlockDevice, "a device")
    } else {
        (FileType::Socket, "a socket")
    };
    if common.settings.keep == Keep::Modes {
        let from = from.display();
        let what = format!("{from} is {words} and was left out (--archive makes it anew)");
        common.settings.tally.note(what);
        return Ok(());
    }
    if common.one_by_one {
        remove_old_name(to)?;
    }
    let mode = Mode::from_raw_mode(metadata.mode() & 0o7777);
    let made = mknodat(CWD, to, kind, mode, metadata.rdev());
    made.map_err(|error| on("creating", to)(error.into()))?;
    attributes::give_link(&metadata, from, to)
}

/// Refuses to copy a folder into itself.
fn check_apart(from: &Path, to: &Path) -> Result<(), Broken> {
    let from_full = from.canonicalize().map_err(on("looking at", from))?;
    let parent = super::place::folder_of(to);
    let to_full = parent.canonicalize().map_err(on("looking at", parent))?;
    if to_full.starts_with(&from_full) {
        let (from, to) = (from.display(), to.display());
        return Err(Broken::Refused(Failure::usage(format!(
            "{to} lies in {from}: a folder cannot be copied into itself; name another destination"
        ))));
    }
    Ok(())
}

/// The folder in which a tree is made; a resumed one is there already.
fn make_root(root: &Path, resume: bool) -> Result<(), Broken> {
    match fs::DirBuilder::new().mode(0o700).create(root) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(on("creating the folder", root)(error))
        }
        Err(_) if !resume && fs::symlink_metadata(root).is_ok_and(|there| !there.is_dir()) => {
            remove_old_name(root)?;
            make_root(root, resume)
        }
        _ => Ok(()),
    }
}

/// Removes what a killed copy left in its folder.
fn empty(root: &Path) -> Result<(), Broken> {
    let removing = on("removing what an interrupted copy left in", root);
    for entry in fs::read_dir(root).map_err(&removing)? {
        let entry = entry.map_err(&removing)?;
        let is_dir = entry.file_type().map_err(&removing)?.is_dir();
        let path = entry.path();
        let removed = if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        removed.map_err(&removing)?;
    }
    Ok(())
}

/// A whole tree gets its name.
fn name(root: &Path, to: &Path) -> Result<(), Broken> {
    match renameat_with(CWD, root, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // A folder is never renamed over one that has something in it.
        Err(Errno::INVAL | Errno::NOSYS) => fs::rename(root, to).map_err(on("naming", to)),
        Err(error) => {
            let _ = fs::remove_dir_all(root);
            Err(on("naming", to)(error.into()))
        }
    }
}
