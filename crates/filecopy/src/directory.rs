//! Accesses entries by name in an open directory. Symbolic links are followed only on request, so
//! that nobody can redirect a copy by replacing an entry with a link.

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

/// Metadata of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryInfo {
    /// Device number of the entry's file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// File type and permission bits.
    pub mode: u32,
    /// Number of hard links.
    pub links: u64,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the entry.
    pub gid: u32,
    /// Device number that a device file refers to.
    pub rdev: u64,
    /// Size of the entry (bytes).
    pub size: u64,
    /// Size of the allocated storage (bytes).
    pub stored_bytes: u64,
    /// Time of the last access (s and ns since 1970).
    pub accessed: (i64, i64),
    /// Time of the last modification of the content (s and ns since 1970).
    pub modified: (i64, i64),
    /// Time of the last change of content or attributes (s and ns since 1970).
    pub changed: (i64, i64),
}

impl EntryInfo {
    /// Reads the metadata of an open file.
    ///
    /// # Errors
    /// The error of fstat(2).
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

    /// Returns the type of the entry.
    pub fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    /// Returns true if the entry is a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    /// Returns true if the entry is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type() == FileType::RegularFile
    }

    /// Returns the device and inode numbers, which identify the entry on this machine.
    pub fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Returns the permission bits, including set-user-ID, set-group-ID and sticky.
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// Returns true if the file may have holes.
    pub fn is_sparse(&self) -> bool {
        self.stored_bytes < self.size && self.size > 4096
    }
}

pub(crate) fn type_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "an entry of an unknown type",
    }
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    /// Path of the directory, for messages.
    pub path: PathBuf,
}

const OPEN: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);

impl Directory {
    /// Opens a directory by path. Symbolic links are followed.
    pub fn open(path: &Path) -> Result<Directory, Errno> {
        let named = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let fd = openat(CWD, named, OPEN, Mode::empty())?;
        Ok(Directory { fd, path: path.to_path_buf() })
    }

    /// Opens a subdirectory. Fails if the name is a symbolic link.
    pub fn enter(&self, name: &OsStr) -> Result<Directory, Errno> {
        let fd = openat(&self.fd, name, OPEN | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Directory { fd, path: self.path.join(name) })
    }

    /// Opens a subdirectory. A symbolic link is followed.
    pub fn enter_following(&self, name: &OsStr) -> Result<Directory, Errno> {
        let fd = openat(&self.fd, name, OPEN, Mode::empty())?;
        Ok(Directory { fd, path: self.path.join(name) })
    }

    /// Opens a directory by its path relative to this directory. Symbolic links are not followed.
    pub fn descend(&self, relative: &Path) -> Result<Directory, Errno> {
        let again = openat(&self.fd, c".", OPEN, Mode::empty())?;
        let mut directory = Directory { fd: again, path: self.path.clone() };
        for component in relative.components() {
            let Component::Normal(name) = component else { return Err(Errno::INVAL) };
            directory = directory.enter(name)?;
        }
        Ok(directory)
    }

    /// Returns the path of an entry, for messages.
    pub fn join(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }

    pub fn info(&self) -> Result<EntryInfo, Errno> {
        EntryInfo::of(&self.fd)
    }

    /// Reads the metadata of an entry. `None` if the entry does not exist.
    pub fn look_up(&self, name: &OsStr) -> Result<Option<EntryInfo>, Errno> {
        self.stat(name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Reads the metadata of an entry. A symbolic link is followed.
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

    /// Opens an entry for reading. Opening a named pipe does not block, and a terminal does not
    /// become the controlling terminal.
    pub fn open_file(&self, name: &OsStr, follows: bool) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = if follows { flags } else { flags | OFlags::NOFOLLOW };
        Ok(openat(&self.fd, name, flags, Mode::empty())?.into())
    }

    /// Opens an entry with the given flags. Fails if the entry is a symbolic link.
    pub fn open_with(&self, name: &OsStr, flags: OFlags, mode: u32) -> Result<File, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(openat(&self.fd, name, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Opens an entry with O_PATH, which gives access to its metadata only. A symbolic link is not
    /// followed.
    pub fn open_entry(&self, name: &OsStr) -> Result<File, Errno> {
        self.open_with(name, OFlags::PATH, 0)
    }

    /// Creates a directory that only its owner may access.
    pub fn make_private(&self, name: &OsStr) -> Result<(), Errno> {
        mkdirat(&self.fd, name, Mode::RWXU)
    }

    /// Removes an entry that is not a directory.
    pub fn remove(&self, name: &OsStr) -> Result<(), Errno> {
        unlinkat(&self.fd, name, AtFlags::empty())
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, name: &OsStr) -> Result<(), Errno> {
        unlinkat(&self.fd, name, AtFlags::REMOVEDIR)
    }

    /// Removes a directory and its contents.
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

    /// Returns the target of a symbolic link.
    pub fn read_link(&self, name: &OsStr) -> Result<CString, Errno> {
        readlinkat(&self.fd, name, Vec::with_capacity(256))
    }

    /// Moves an entry to another directory and replaces an existing entry there.
    pub fn rename(&self, name: &OsStr, to: &Directory, new_name: &OsStr) -> Result<(), Errno> {
        renameat(&self.fd, name, &to.fd, new_name)
    }

    /// Moves an entry to another directory. Fails if the new name exists.
    pub fn rename_new(&self, name: &OsStr, to: &Directory, new_name: &OsStr) -> Result<(), Errno> {
        match renameat_with(&self.fd, name, &to.fd, new_name, RenameFlags::NOREPLACE) {
            // The file system does not support RENAME_NOREPLACE, so the new name is checked before
            // the rename. Another program can still create the name in between.
            Err(Errno::INVAL | Errno::NOSYS) => match to.look_up(new_name)? {
                Some(_) => Err(Errno::EXIST),
                None => self.rename(name, to, new_name),
            },
            renamed => renamed,
        }
    }

    /// Lists the entries of the directory, except `.` and `..`.
    pub fn entries(&self) -> Result<Entries, Errno> {
        Ok(Entries { inner: Dir::read_from(&self.fd)? })
    }

    /// Flushes the directory.
    pub fn sync(&self) -> Result<(), Errno> {
        rustix::fs::fsync(&self.fd)
    }

    /// Flushes the whole file system.
    pub fn sync_file_system(&self) -> Result<(), Errno> {
        rustix::fs::syncfs(&self.fd)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns a path in /proc that refers to an open file, for system calls that accept only paths.
pub(crate) fn path_of(file: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

/// An entry in the listing of a directory.
#[derive(Debug)]
pub(crate) struct DirectoryEntry {
    pub name: OsString,
    /// File type. `FileType::Unknown` if the file system does not report the type in listings.
    pub kind: FileType,
}

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

/// Splits a path into its directory and its last component.
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
        let what = format!("{} has no file name", path.display());
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
