//! Reads inode numbers, birth times and mount ids with statx(2). If statx(2) is not available
//! (Linux before 4.11 and some containers), uses fstatat(2), which returns neither the birth time
//! nor the mount id.

use std::path::Path;

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Statx, StatxFlags, statat, statx};
use rustix::io::Errno;

/// The numbers that identify a file on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Device number of the file system.
    pub device: u64,
    pub number: u64,
    /// Birth time (s and ns since 1970). None if the file system or the kernel does not report it.
    /// Inode numbers are soon reused, so only the birth time distinguishes an old file from a new
    /// file with the same number.
    pub born: Option<(i64, u32)>,
    /// Id of the mount. 0 if the kernel does not report it (before Linux 5.8).
    pub mount: u64,
}

impl Inode {
    /// Reads the inode of an open file.
    ///
    /// # Errors
    /// The error of statx(2) or fstatat(2).
    pub fn of(file: impl AsFd) -> Result<Inode, Errno> {
        Inode::at(file, Path::new(""), AtFlags::EMPTY_PATH)
    }

    /// Reads the inode of a file in a directory.
    ///
    /// # Errors
    /// The error of statx(2) or fstatat(2).
    pub fn at(directory: impl AsFd, path: &Path, flags: AtFlags) -> Result<Inode, Errno> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME | StatxFlags::MNT_ID;
        match statx(&directory, path, flags, wanted) {
            Ok(found) => Ok(Inode::from(&found)),
            Err(Errno::NOSYS | Errno::PERM) => Inode::without_statx(directory, path, flags),
            Err(error) => Err(error),
        }
    }

    #[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
    fn without_statx(directory: impl AsFd, path: &Path, flags: AtFlags) -> Result<Inode, Errno> {
        let found = statat(directory, path, flags)?;
        Ok(Inode { device: found.st_dev as u64, number: found.st_ino as u64, born: None, mount: 0 })
    }
}

impl From<&Statx> for Inode {
    fn from(found: &Statx) -> Inode {
        let tells = |flag| StatxFlags::from_bits_retain(found.stx_mask).contains(flag);
        let birth = (found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
        Inode {
            device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
            number: found.stx_ino,
            born: tells(StatxFlags::BTIME).then_some(birth),
            mount: if tells(StatxFlags::MNT_ID) { found.stx_mnt_id } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_statx_all_but_the_birth_time_and_the_mount_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join("a")).unwrap();
        let new = Inode::of(&file).unwrap();
        let old = Inode::without_statx(&file, Path::new(""), AtFlags::EMPTY_PATH).unwrap();
        assert_eq!(old, Inode { born: None, mount: 0, ..new });
    }
}
