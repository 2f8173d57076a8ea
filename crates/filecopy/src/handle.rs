//! Reads and sets the metadata of open entries. Special files are open only with O_PATH, so their
//! metadata are accessed through a path in /proc.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, StatxFlags, Timestamps, Uid, XattrFlags, chmodat, chownat, fchmod,
    fchown, fgetxattr, flistxattr, fremovexattr, fsetxattr, futimens, getxattr, listxattr,
    removexattr, setxattr, statx, utimensat,
};
use rustix::io::Errno;

use crate::directory::path_of;

/// An open entry whose attributes can be read and set. The entry cannot be a symbolic link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle<'a> {
    fd: BorrowedFd<'a>,
    by_path: bool,
}

type Result<T> = std::result::Result<T, Errno>;

impl<'a> Handle<'a> {
    /// Wraps a file or directory that is open for reading or writing.
    pub fn of(file: &'a impl AsFd) -> Handle<'a> {
        Handle { fd: file.as_fd(), by_path: false }
    }

    /// Wraps an entry that is open with O_PATH.
    pub fn of_special(file: &'a impl AsFd) -> Handle<'a> {
        Handle { fd: file.as_fd(), by_path: true }
    }

    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        if self.by_path {
            chownat(CWD, path_of(self.fd), uid, gid, AtFlags::empty())
        } else {
            fchown(self.fd, uid, gid)
        }
    }

    pub fn set_mode(&self, mode: u32) -> Result<()> {
        let mode = Mode::from_raw_mode(mode);
        if self.by_path {
            chmodat(CWD, path_of(self.fd), mode, AtFlags::empty())
        } else {
            fchmod(self.fd, mode)
        }
    }

    pub fn set_times(&self, times: &Timestamps) -> Result<()> {
        if self.by_path {
            utimensat(CWD, path_of(self.fd), times, AtFlags::empty())
        } else {
            futimens(self.fd, times)
        }
    }

    pub fn list_attributes(&self, into: &mut [u8]) -> Result<usize> {
        if self.by_path { listxattr(path_of(self.fd), into) } else { flistxattr(self.fd, into) }
    }

    pub fn attribute(&self, name: &CStr, into: &mut [u8]) -> Result<usize> {
        if self.by_path {
            getxattr(path_of(self.fd), name, into)
        } else {
            fgetxattr(self.fd, name, into)
        }
    }

    pub fn set_attribute(&self, name: &CStr, value: &[u8]) -> Result<()> {
        if self.by_path {
            setxattr(path_of(self.fd), name, value, XattrFlags::empty())
        } else {
            fsetxattr(self.fd, name, value, XattrFlags::empty())
        }
    }

    pub fn remove_attribute(&self, name: &CStr) -> Result<()> {
        if self.by_path { removexattr(path_of(self.fd), name) } else { fremovexattr(self.fd, name) }
    }

    /// Returns true if the entry has the immutable or append-only flag (`chattr +i` or `+a`), and
    /// false if the file system does not report flags.
    pub fn is_locked(&self) -> bool {
        const IMMUTABLE: u64 = 0x10;
        const APPEND: u64 = 0x20;
        let found = statx(self.fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MODE);
        found.is_ok_and(|found| found.stx_attributes.bits() & (IMMUTABLE | APPEND) != 0)
    }
}
