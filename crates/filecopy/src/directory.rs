//! Open directories, and what is done to the entries in them by name. Nothing here follows a
//! symbolic link, so that nobody can lead a copy elsewhere by exchanging one.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, fstat, mkdirat, openat,
    readlinkat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

/// What the system says of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryInfo {
    /// The number of its file system.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// How many names it has.
    pub links: u64,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Of a device file, the device.
    pub rdev: u64,
    /// Its size (bytes).
    pub size: u64,
    /// What is stored of it (bytes).
    pub stored_bytes: u64,
    /// Last access (s, ns).
    pub accessed: (i64, i64),
    /// Last change of its content (s, ns).
    pub modified: (i64, i64),
    /// Last change of it, attributes included (s, ns).
    pub changed: (i64, i64),
}

impl EntryInfo {
    /// An open file.
    ///
    /// # Errors
    /// What the system says.
    pub fn of(file: impl AsFd) -> Result<EntryInfo, Errno> {
        Ok(EntryInfo::from_stat(&fstat(file)?))
    }

    #[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
    fn from_stat(stat: &Stat) -> EntryInfo {
        EntryInfo {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            mode: stat.st_mode as u32,
            links: stat.st_nlink as u64,
            uid: stat.st_uid,
            gid: stat.st_gid,
            rdev: stat.st_rdev as u64,
            size: stat.st_size as u64,
            stored_bytes: stat.st_blocks as u64 * 512,
            accessed: (stat.st_atime as i64, stat.st_atime_nsec as i64),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }

    /// What it is.
    pub fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type() == FileType::RegularFile
    }

    /// Which entry of the machine it is.
    pub fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Its permission bits, with set-user-ID, set-group-ID and sticky.
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// Whether it may have holes.
    pub fn is_sparse(&self) -> bool {
        self.stored_bytes < self.size && self.size > 4096
    }
}

/// What an entry is, in words.
pub(crate) fn type_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "something of an unknown kind",
    }
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    /// For messages.
    pub path: PathBuf,
}

const OPEN: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);

impl Directory {
    /// Opens a directory that the program named; links in its path are followed.
    pub fn open(path: &Path) -> Result<Directory, Errno> {
        let named = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let fd = openat(CWD, named, OPEN, Mode::empty())?;
        Ok(Directory { fd, path: path.to_path_buf() })
    }

    /// Opens a directory in this one.
    pub fn enter(&self, name: &OsStr) -> Result<Directory, Errno> {
        let fd = openat(&self.fd, name, OPEN | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Directory { fd, path: self.path.join(name) })
    }

    /// The same, where a link in its place is followed.
    pub fn enter_following(&self, name: &OsStr) -> Result<Directory, Errno> {
        let fd = openat(&self.fd, name, OPEN, Mode::empty())?;
        Ok(Directory { fd, path: self.path.join(name) })
    }

    /// Opens a directory some levels below this one.
    pub fn descend(&self, relative: &Path) -> Result<Directory, Errno> {
        let again = openat(&self.fd, c".", OPEN, Mode::empty())?;
        let mut directory = Directory { fd: again, path: self.path.clone() };
        for component in relative.components() {
            let Component::Normal(name) = component else { return Err(Errno::INVAL) };
            directory = directory.enter(name)?;
        }
        Ok(directory)
    }

    /// The path of an entry, for messages.
    pub fn join(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }

    pub fn info(&self) -> Result<EntryInfo, Errno> {
        EntryInfo::of(&self.fd)
    }

    /// What the system says of an entry; None where there is none.
    pub fn look_up(&self, name: &OsStr) -> Result<Option<EntryInfo>, Errno> {
        self.stat(name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// The same, where a link is followed.
    pub fn look_up_following(&self, name: &OsStr) -> Result<Option<EntryInfo>, Errno> {
        self.stat(name, AtFlags::empty())
    }

    fn stat(&self, name: &OsStr, flags: AtFlags) -> Result<Option<EntryInfo>, Errno> {
        match statat(&self.fd, name, flags) {
            Ok(stat) => Ok(Some(EntryInfo::from_stat(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens an entry for reading. A named pipe does not make it wait, and a terminal does not
    /// become that of this process.
    pub fn open_file(&self, name: &OsStr, follows: bool) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = if follows { flags } else { flags | OFlags::NOFOLLOW };
        Ok(openat(&self.fd, name, flags, Mode::empty())?.into())
    }

    /// Opens an entry with other flags.
    pub fn open_with(&self, name: &OsStr, flags: OFlags, mode: u32) -> Result<File, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(openat(&self.fd, name, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Opens an entry, a link too, only to ask for and to set what belongs to it.
    pub fn open_entry(&self, name: &OsStr) -> Result<File, Errno> {
        self.open_with(name, OFlags::PATH, 0)
    }

    /// Makes a directory that only its owner may use.
    pub fn make_private(&self, name: &OsStr) -> Result<(), Errno> {
        mkdirat(&self.fd, name, Mode::RWXU)
    }

    /// Removes an entry that is no directory.
    pub fn remove(&self, name: &OsStr) -> Result<(), Errno> {
        unlinkat(&self.fd, name, AtFlags::empty())
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, name: &OsStr) -> Result<(), Errno> {
        unlinkat(&self.fd, name, AtFlags::REMOVEDIR)
    }

    /// Removes a directory with all that is in it.
    pub fn remove_all(&self, name: &OsStr) -> Result<(), Errno> {
        match self.remove_directory(name) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            removed => return removed,
        }
        let inside = self.enter(name)?;
        for entry in inside.entries()? {
            let entry = entry?;
            match inside.look_up(&entry.name)? {
                Some(info) if info.is_directory() => inside.remove_all(&entry.name)?,
                Some(_) => inside.remove(&entry.name)?,
                None => {}
            }
        }
        self.remove_directory(name)
    }

    /// Where a symbolic link leads.
    pub fn read_link(&self, name: &OsStr) -> Result<CString, Errno> {
        readlinkat(&self.fd, name, Vec::with_capacity(256))
    }

    /// Renames an entry into another directory, over what has that name there.
    pub fn rename(&self, name: &OsStr, to: &Directory, new_name: &OsStr) -> Result<(), Errno> {
        renameat(&self.fd, name, &to.fd, new_name)
    }

    /// Renames an entry into another directory, where nothing has that name.
    pub fn rename_new(&self, name: &OsStr, to: &Directory, new_name: &OsStr) -> Result<(), Errno> {
        match renameat_with(&self.fd, name, &to.fd, new_name, RenameFlags::NOREPLACE) {
            // The file system does not know the flag: the look before is all there is.
            Err(Errno::INVAL | Errno::NOSYS) => match to.look_up(new_name)? {
                Some(_) => Err(Errno::EXIST),
                None => self.rename(name, to, new_name),
            },
            renamed => renamed,
        }
    }

    /// The entries, without `.` and `..`.
    pub fn entries(&self) -> Result<Entries, Errno> {
        Ok(Entries { inner: Dir::read_from(&self.fd)? })
    }

    /// Writes its names to the storage.
    pub fn sync(&self) -> Result<(), Errno> {
        rustix::fs::fsync(&self.fd)
    }

    /// Writes all of its file system to the storage.
    pub fn sync_file_system(&self) -> Result<(), Errno> {
        rustix::fs::syncfs(&self.fd)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The path by which calls that take only paths reach an open file.
pub(crate) fn path_of(file: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

/// A name in a directory.
#[derive(Debug)]
pub(crate) struct DirectoryEntry {
    pub name: OsString,
    /// Unknown where the file system does not tell.
    pub kind: FileType,
}

/// The names in a directory, as they are read.
pub(crate) struct Entries {
    inner: Dir,
}

impl Iterator for Entries {
    type Item = Result<DirectoryEntry, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.inner.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let (name, kind) = (OsString::from_vec(name.to_vec()), entry.file_type());
            return Some(Ok(DirectoryEntry { name, kind }));
        }
    }
}

/// The directory and the name in it of a path that a program named.
pub(crate) fn split(path: &Path) -> io::Result<(PathBuf, OsString)> {
    let text = path.as_os_str().as_bytes();
    let end = text.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let trimmed = &text[..end];
    let slash = trimmed.iter().rposition(|byte| *byte == b'/');
    let (parent, name) = match slash {
        Some(0) => (&b"/"[..], &trimmed[1..]),
        Some(at) => (&trimmed[..at], &trimmed[at + 1..]),
        None => (&b""[..], trimmed),
    };
    if name.is_empty() || name == b"." || name == b".." {
        let what = format!("{} has no name of its own", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok((PathBuf::from(OsStr::from_bytes(parent)), OsStr::from_bytes(name).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_path_is_split_as_the_system_would() {
        let of = |path: &str| {
            split(Path::new(path)).map(|(parent, name)| {
                (parent.to_str().unwrap().to_owned(), name.into_string().unwrap())
            })
        };
        assert_eq!(of("/a/b").unwrap(), ("/a".into(), "b".into()));
        assert_eq!(of("a/b//").unwrap(), ("a".into(), "b".into()));
        assert_eq!(of("/a").unwrap(), ("/".into(), "a".into()));
        assert_eq!(of("a").unwrap(), ("".into(), "a".into()));
        assert!(of("/").is_err() && of("..").is_err() && of("a/.").is_err() && of("").is_err());
    }

    #[test]
    fn links_are_never_followed_below_an_open_directory() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("real")).unwrap();
        fs::write(folder.path().join("file"), "x").unwrap();
        symlink("real", folder.path().join("link")).unwrap();
        symlink("file", folder.path().join("to-file")).unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        assert!(directory.enter(OsStr::new("real")).is_ok());
        assert!(directory.enter(OsStr::new("link")).is_err());
        assert!(directory.descend(Path::new("link")).is_err());
        assert!(directory.descend(Path::new("real/../link")).is_err());
        assert_eq!(directory.open_file(OsStr::new("to-file"), false).unwrap_err(), Errno::LOOP);
        let names = directory.entries().unwrap().map(|entry| entry.unwrap().name);
        assert_eq!(names.count(), 4);
        directory.remove_all(OsStr::new("real")).unwrap();
        assert!(directory.look_up(OsStr::new("real")).unwrap().is_none());
    }
}
