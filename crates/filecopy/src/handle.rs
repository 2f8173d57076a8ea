//! An open entry, for asking for and setting what belongs to it. Special files are open only for
//! that (O_PATH): the kernel takes their descriptor by its path in /proc.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, StatxFlags, Timestamps, Uid, XattrFlags, chmodat, chownat, fchmod,
    fchown, fgetxattr, flistxattr, fremovexattr, fsetxattr, futimens, getxattr, listxattr,
    removexattr, setxattr, statx, utimensat,
};
use rustix::io::Errno;

use crate::directory::path_of;

/// An open entry that is no symbolic link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle<'a> {
    fd: BorrowedFd<'a>,
    by_path: bool,
}

type Result<T> = std::result::Result<T, Errno>;

impl<'a> Handle<'a> {
    /// A file or directory that is open for reading or writing.
    pub fn of(file: &'a impl AsFd) -> Handle<'a> {
        Handle { fd: file.as_fd(), by_path: false }
    }

    /// A special file that is open only by its path.
    pub fn of_special(file: &'a impl AsFd) -> Handle<'a> {
        Handle { fd: file.as_fd(), by_path: true }
    }

    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match self.by_path {
            true => chownat(CWD, path_of(self.fd), uid, gid, AtFlags::empty()),
            false => fchown(self.fd, uid, gid),
        }
    }

    pub fn set_mode(&self, mode: u32) -> Result<()> {
        let mode = Mode::from_raw_mode(mode);
        match self.by_path {
            true => chmodat(CWD, path_of(self.fd), mode, AtFlags::empty()),
            false => fchmod(self.fd, mode),
        }
    }

    pub fn set_times(&self, times: &Timestamps) -> Result<()> {
        match self.by_path {
            true => utimensat(CWD, path_of(self.fd), times, AtFlags::empty()),
            false => futimens(self.fd, times),
        }
    }

    pub fn list_attributes(&self, into: &mut [u8]) -> Result<usize> {
        match self.by_path {
            true => listxattr(path_of(self.fd), into),
            false => flistxattr(self.fd, into),
        }
    }

    pub fn attribute(&self, name: &CStr, into: &mut [u8]) -> Result<usize> {
        match self.by_path {
            true => getxattr(path_of(self.fd), name, into),
            false => fgetxattr(self.fd, name, into),
        }
    }

    pub fn set_attribute(&self, name: &CStr, value: &[u8]) -> Result<()> {
        match self.by_path {
            true => setxattr(path_of(self.fd), name, value, XattrFlags::empty()),
            false => fsetxattr(self.fd, name, value, XattrFlags::empty()),
        }
    }

    pub fn remove_attribute(&self, name: &CStr) -> Result<()> {
        match self.by_path {
            true => removexattr(path_of(self.fd), name),
            false => fremovexattr(self.fd, name),
        }
    }

    /// Whether it has the flag immutable or append-only, where the file system tells.
    pub fn is_locked(&self) -> bool {
        const IMMUTABLE: u64 = 0x10;
        const APPEND: u64 = 0x20;
        let found = statx(self.fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MODE);
        found.is_ok_and(|found| found.stx_attributes.bits() & (IMMUTABLE | APPEND) != 0)
    }
}
