//! Creates files that get their final name only when they are complete. If the file system supports
//! O_TMPFILE, such a file has no name. Otherwise the file is in a private directory next to the
//! destination. The name of this directory cannot be guessed. In both cases no other user can open
//! the file. At the end, the file either gets its final name in one step or is removed.
//!
//! A copy that replaces an existing entry also needs a name in the private directory, because only
//! a named file can be renamed over another file. The private directory is created when it is first
//! needed, recorded in the state directory before its first use, and removed at the end.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, OFlags, linkat, openat};
use rustix::io::Errno;

use crate::directory::{Directory, EntryInfo, path_of};
use crate::inode::Inode;
use crate::problem::{Problem, ProblemKind, on_errno};
use crate::settings::Settings;
use crate::state::{PRIVATE_PREFIX, SessionNotes, State};

/// The device number and the mount id, which identify a mount. Files can be renamed only within one
/// mount.
pub(crate) type Mount = (u64, u64);

/// Returns the mount that contains a directory.
pub(crate) fn mount_of(directory: &Directory) -> Result<Mount, Errno> {
    let found = Inode::of(directory)?;
    Ok((found.device, found.mount))
}

/// A private directory. Dropping the last reference removes the directory, unless `kept` is set.
#[derive(Debug)]
pub(crate) struct PrivateDirectory {
    parent: Directory,
    name: OsString,
    inside: Directory,
    inode: u64,
    next: AtomicU64,
    /// Whether the directory is kept because it contains a resumable file.
    pub kept: AtomicBool,
    session: Arc<Mutex<Option<SessionNotes>>>,
}

impl PrivateDirectory {
    pub fn inside(&self) -> &Directory {
        &self.inside
    }

    fn new_name(&self) -> OsString {
        OsString::from(format!("{}", self.next.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        if self.kept.load(Ordering::Relaxed) {
            return;
        }
        // If the directory cannot be removed, its record stays, so that `halfpower clean` can find
        // it.
        if self.parent.remove_directory(&self.name).is_ok()
            && let Some(session) = &mut *lock(&self.session)
        {
            session.forget(self.inode);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The private directories of a session.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    directories: Mutex<HashMap<Mount, Arc<PrivateDirectory>>>,
    /// Mounts whose file system does not support O_TMPFILE.
    without_tmpfile: Mutex<HashSet<Mount>>,
    session: Arc<Mutex<Option<SessionNotes>>>,
}

impl Staging {
    /// Returns the private directory on the mount of the destination, and creates it if necessary.
    /// It is created in `anchor` if `anchor` is on that mount, otherwise in the destination
    /// directory.
    pub fn directory(&self, place: Place) -> Result<Arc<PrivateDirectory>, Problem> {
        let Place { settings, anchor, destination, mount, .. } = place;
        let mut directories = lock(&self.directories);
        if let Some(found) = directories.get(&mount) {
            return Ok(Arc::clone(found));
        }
        let is_near = mount_of(anchor).is_ok_and(|other| other == mount);
        let parent = if is_near { anchor } else { destination };
        let made = Arc::new(self.make(settings, parent)?);
        directories.insert(mount, Arc::clone(&made));
        Ok(made)
    }

    /// Creates a private directory and records it, so that `halfpower clean` can find it.
    pub fn make(
        &self,
        settings: &Settings,
        parent: &Directory,
    ) -> Result<PrivateDirectory, Problem> {
        let token = uuid::Uuid::new_v4().simple().to_string();
        let name = OsString::from(format!("{PRIVATE_PREFIX}{token}"));
        let path = parent.join(&name);
        parent.make_private(&name).map_err(on_errno("creating the directory", &path))?;
        let inside = parent.enter(&name).map_err(on_errno("opening", &path))?;
        let info = inside.info().map_err(on_errno("looking at", &path))?;
        if !is_ours(&inside, &info).map_err(on_errno("creating a file in", &path))? {
            let what =
                format!("another user replaced {} just after it was created", path.display());
            return Err(Problem::new(ProblemKind::Failed, &path, what));
        }
        self.note(settings, &token, &path, info.inode);
        let again = parent.descend(std::path::Path::new("")).map_err(on_errno("opening", &path))?;
        Ok(PrivateDirectory {
            parent: again,
            name,
            inside,
            inode: info.inode,
            next: AtomicU64::new(0),
            kept: false.into(),
            session: Arc::clone(&self.session),
        })
    }

    /// Opens a private directory of an earlier session.
    pub fn adopt(&self, parent: &Directory, name: &OsStr) -> Result<PrivateDirectory, Errno> {
        let inside = parent.enter(name)?;
        let info = inside.info()?;
        if !is_ours(&inside, &info)? {
            return Err(Errno::PERM);
        }
        Ok(PrivateDirectory {
            parent: parent.descend(std::path::Path::new(""))?,
            name: name.to_owned(),
            inside,
            inode: info.inode,
            // The numbers in new file names start above the numbers that the earlier session used.
            next: AtomicU64::new(1 << 32),
            kept: false.into(),
            session: Arc::clone(&self.session),
        })
    }

    /// Records a private directory for `halfpower clean`, if there is a state directory.
    fn note(&self, settings: &Settings, token: &str, path: &std::path::Path, inode: u64) {
        let Some(folder) = &settings.state_folder else { return };
        let mut session = lock(&self.session);
        let notes = match &mut *session {
            Some(notes) => Ok(notes),
            None => State::open(folder)
                .map_err(io::Error::other)
                .map(|state| session.insert(state.begin_session())),
        };
        let full = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        if let Err(error) = notes.and_then(|notes| notes.note(token, &full, inode)) {
            let cause = ioengine::error::cause(&error);
            settings.note(format!(
                "the directory {} could not be recorded ({cause}), so 'halfpower clean' cannot \
                 find the directory; if this copy is killed, remove the directory by hand",
                path.display()
            ));
        }
    }

    /// Drops the private directories in `directory`. Must be called before the times of `directory`
    /// are set, because the removal changes these times.
    pub fn leave(&self, directory: &Directory) {
        let Ok(info) = directory.info() else { return };
        let lies_there = |private: &PrivateDirectory| {
            private.parent.info().is_ok_and(|parent| parent.identity() == info.identity())
        };
        lock(&self.directories).retain(|_, private| !lies_there(private));
    }

    /// Drops the session's references to all private directories. Directories that no file uses are
    /// thereby removed.
    pub fn close(&self) {
        lock(&self.directories).clear();
    }

    fn unnamed(&self, place: Place, mode: u32) -> Result<Option<File>, Errno> {
        let Place { destination, mount, .. } = place;
        if lock(&self.without_tmpfile).contains(&mount) {
            return Ok(None);
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match openat(destination, c".", flags, rustix::fs::Mode::from_raw_mode(mode)) {
            Ok(file) => Ok(Some(file.into())),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT | Errno::NOSYS) => {
                lock(&self.without_tmpfile).insert(mount);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Checks whether this user owns a directory and no other user has access to it.
///
/// A file server may report another owner for this user's files (NFS with `root_squash`, or without
/// a common ID mapping domain), and some file systems have no permission bits. In these cases, a
/// new directory is created inside this directory, and the owners and modes of both are compared.
fn is_ours(directory: &Directory, info: &EntryInfo) -> Result<bool, Errno> {
    if info.uid == rustix::process::geteuid().as_raw() && is_private(info) {
        return Ok(true);
    }
    let name = OsString::from(format!("probe-{}", uuid::Uuid::new_v4().simple()));
    directory.make_private(&name)?;
    let probe = directory.look_up(&name);
    directory.remove_directory(&name)?;
    Ok(probe?.is_some_and(|probe| is_like(info, &probe)))
}

/// Checks whether the permission bits deny other users all access.
fn is_private(info: &EntryInfo) -> bool {
    info.mode & 0o077 == 0
}

/// Compares a directory with `probe`, which is a new private directory. Returns true if both have
/// the same owner, and the directory is at least as private as `probe`.
fn is_like(directory: &EntryInfo, probe: &EntryInfo) -> bool {
    directory.uid == probe.uid && (is_private(directory) || !is_private(probe))
}

/// A file that does not have its final name yet.
#[derive(Debug)]
pub(crate) struct NewFile {
    /// The file, open for reading and writing.
    pub file: File,
    /// The private directory that contains the file, and the file's name in it. None if the file
    /// has no name.
    place: Option<(Arc<PrivateDirectory>, OsString)>,
}

/// Where new files are created. A private directory is created in `anchor` if `anchor` and
/// `destination` are on the same mount.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub settings: &'a Settings,
    pub staging: &'a Staging,
    pub anchor: &'a Directory,
    pub destination: &'a Directory,
    /// The mount that contains `destination`.
    pub mount: Mount,
}

impl NewFile {
    /// Creates a file without a final name. The umask is applied to `mode`.
    pub fn make(place: Place, mode: u32) -> Result<NewFile, Problem> {
        let path = &place.destination.path;
        let failed = on_errno("creating a file in", path);
        if let Some(file) = place.staging.unnamed(place, mode).map_err(&failed)? {
            return Ok(NewFile { file, place: None });
        }
        let private = place.staging.directory(place)?;
        NewFile::within(&private, None, mode).map_err(failed)
    }

    /// Creates a file in a private directory. With `name`, opens the existing file of that name
    /// instead.
    pub fn within(
        private: &Arc<PrivateDirectory>,
        name: Option<&OsStr>,
        mode: u32,
    ) -> Result<NewFile, Errno> {
        let (name, flags) = match name {
            Some(name) => (name.to_owned(), OFlags::RDWR),
            None => (private.new_name(), OFlags::RDWR | OFlags::CREATE | OFlags::EXCL),
        };
        let file = private.inside.open_with(&name, flags, mode)?;
        Ok(NewFile { file, place: Some((Arc::clone(private), name)) })
    }

    /// Returns the name of the file in its private directory. None if the file has no name.
    pub fn name(&self) -> Option<&OsStr> {
        self.place.as_ref().map(|(_, name)| name.as_os_str())
    }

    /// Gives the file its final name. With `replaces`, an existing entry is replaced.
    pub fn publish(mut self, place: Place, name: &OsStr, replaces: bool) -> Result<(), Problem> {
        let destination = place.destination;
        let path = destination.join(name);
        let failed = on_errno("renaming the copy to", &path);
        let appeared = |error: Errno| match error {
            Errno::EXIST => appeared(&path),
            error => failed(error),
        };
        if self.place.is_none() {
            if !replaces {
                return link_file(&self.file, destination, name).map_err(appeared);
            }
            let private = place.staging.directory(place)?;
            let waiting = private.new_name();
            link_file(&self.file, &private.inside, &waiting).map_err(&failed)?;
            self.place = Some((private, waiting));
        }
        if let Some((private, waiting)) = &self.place {
            if replaces {
                private.inside.rename(waiting, destination, name).map_err(&failed)?;
            } else {
                private.inside.rename_new(waiting, destination, name).map_err(appeared)?;
            }
        }
        self.place = None;
        Ok(())
    }

    /// Keeps the file in its private directory, so that the copy can be resumed.
    pub fn keep(mut self) {
        if let Some((private, _)) = self.place.take() {
            private.kept.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some((private, name)) = &self.place {
            let _ = private.inside.remove(name);
        }
    }
}

/// Links an open file without a name into a directory.
fn link_file(file: &File, directory: &Directory, name: &OsStr) -> Result<(), Errno> {
    match linkat(file, c"", directory, name, AtFlags::EMPTY_PATH) {
        // AT_EMPTY_PATH needs a privilege or a newer kernel. The path in /proc always works.
        Err(Errno::NOENT | Errno::PERM) => {
            linkat(CWD, path_of(file), directory, name, AtFlags::SYMLINK_FOLLOW)
        }
        linked => linked,
    }
}

/// Calls `make` to create an entry under a temporary name, and then renames the entry. With
/// `replaces`, an existing entry is replaced.
pub(crate) fn make_entry(
    place: Place,
    name: &OsStr,
    replaces: bool,
    make: impl FnOnce(&Directory, &OsStr) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let destination = place.destination;
    let private = place.staging.directory(place)?;
    let waiting = private.new_name();
    make(&private.inside, &waiting)?;
    let renamed = if replaces {
        private.inside.rename(&waiting, destination, name)
    } else {
        private.inside.rename_new(&waiting, destination, name)
    };
    // If both names are links to the same file, rename(2) does nothing and the temporary name
    // remains.
    let _ = private.inside.remove(&waiting);
    match renamed {
        Err(Errno::EXIST) if !replaces => Err(appeared(&destination.join(name))),
        renamed => renamed.map_err(on_errno("renaming the copy to", &destination.join(name))),
    }
}

/// Returns the problem for a destination that another program created during the copy.
pub(crate) fn appeared(path: &std::path::Path) -> Problem {
    let shown = path.display();
    let what = format!(
        "{shown} was created by another program during the copy, so the copy was not moved \
         there; specify another destination, or run the same command again with \
         --overwrite={shown}"
    );
    Problem::new(ProblemKind::Refused, path, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;

    #[test]
    fn a_directory_that_others_may_write_to_is_not_ours() {
        let folder = tempfile::tempdir().unwrap();
        let opened = |name: &str, mode: u32| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let directory = Directory::open(&path).unwrap();
            let info = directory.info().unwrap();
            (directory, info)
        };
        let (private, info) = opened("private", 0o700);
        assert_eq!(is_ours(&private, &info), Ok(true));
        let (shared, info) = opened("shared", 0o777);
        assert_eq!(is_ours(&shared, &info), Ok(false));
        assert_eq!(fs::read_dir(folder.path().join("shared")).unwrap().count(), 0, "no probe left");
    }

    #[test]
    fn a_server_may_know_us_by_another_number() {
        let folder = tempfile::tempdir().unwrap();
        let own = Directory::open(folder.path()).unwrap().info().unwrap();
        let seen = |uid: u32, mode: u32| EntryInfo { uid, mode, ..own };
        let (private, without_bits) = (0o040_700, 0o040_755);
        assert!(is_like(&seen(65534, private), &seen(65534, private)));
        assert!(is_like(&seen(0, without_bits), &seen(0, without_bits)));
        assert!(!is_like(&seen(1000, private), &seen(65534, private)), "another user owns it");
        assert!(!is_like(&seen(65534, 0o040_777), &seen(65534, private)), "others may enter it");
    }

    struct Bench {
        folder: tempfile::TempDir,
        settings: Settings,
        staging: Staging,
    }

    impl Bench {
        fn new() -> Bench {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("to")).unwrap();
            let state_folder = Some(folder.path().join("state"));
            let settings = Settings { state_folder, ..Settings::default() };
            Bench { folder, settings, staging: Staging::default() }
        }

        fn to(&self) -> Directory {
            Directory::open(&self.folder.path().join("to")).unwrap()
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.folder.path().join("to")).unwrap();
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
        }

        fn with<T>(&self, what: impl FnOnce(Place) -> T) -> T {
            let to = self.to();
            let (settings, staging) = (&self.settings, &self.staging);
            let mount = mount_of(&to).unwrap();
            what(Place { settings, staging, anchor: &to, destination: &to, mount })
        }
    }

    fn exercise(bench: &Bench) {
        let name = OsStr::new("copy");
        bench.with(|place| drop(NewFile::make(place, 0o600).unwrap()));
        let publish = |text: &str, replaces| {
            bench.with(|place| {
                let new = NewFile::make(place, 0o600).unwrap();
                (&new.file).write_all(text.as_bytes()).unwrap();
                new.publish(place, name, replaces)
            })
        };
        publish("first", false).unwrap();
        let problem = publish("second", false).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Refused, "{problem}");
        let read = || fs::read_to_string(bench.folder.path().join("to/copy")).unwrap();
        assert_eq!(read(), "first");
        publish("third", true).unwrap();
        assert_eq!(read(), "third");
        bench.staging.close();
        assert_eq!(bench.names(), ["copy"], "only the copy is left");
        assert!(crate::state::leftovers(&bench.folder.path().join("state")).is_empty());
    }

    #[test]
    fn an_unnamed_file_becomes_the_copy_or_disappears() {
        exercise(&Bench::new());
    }

    #[test]
    fn a_file_in_a_private_directory_becomes_the_copy_or_disappears() {
        let bench = Bench::new();
        let mount = mount_of(&bench.to()).unwrap();
        lock(&bench.staging.without_tmpfile).insert(mount);
        exercise(&bench);
    }

    #[test]
    fn only_its_owner_may_enter_a_private_directory() {
        let bench = Bench::new();
        let private = bench.with(|place| place.staging.directory(place));
        let private = private.unwrap();
        let metadata = fs::metadata(&private.inside().path).unwrap();
        assert_eq!(metadata.mode() & 0o777, 0o700);
        assert!(crate::state::leftovers(&bench.folder.path().join("state"))[0].in_use);
        let name = Path::new(&private.inside().path).file_name().unwrap().to_owned();
        assert!(
            name.to_str().unwrap().len() > PRIVATE_PREFIX.len() + 30,
            "the name contains a random token"
        );
        drop(private);
        bench.staging.close();
        assert_eq!(bench.names(), [""; 0]);
    }
}
