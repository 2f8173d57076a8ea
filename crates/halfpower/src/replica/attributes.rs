//! What a copy keeps of its source beside the bytes: nothing but permission bits, or owner, times
//! and extended attributes (access control lists among them) too.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Gid, Timespec, Timestamps, Uid, XattrFlags, chownat, fchown, fgetxattr,
    flistxattr, fsetxattr, futimens, lgetxattr, llistxattr, lsetxattr, utimensat,
};
use rustix::io::Errno;

use super::{Broken, on};

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The permission bits, less those that this user masks.
    Modes,
    /// All.
    Everything,
}

/// The longest value of an extended attribute (bytes), limits.h XATTR_SIZE_MAX.
const VALUE_BYTES: usize = 64 << 10;

/// Gives an open copy what it keeps.
pub fn give(
    keep: Keep,
    metadata: &Metadata,
    source: &File,
    target: &File,
    path: &Path,
) -> Result<(), Broken> {
    if keep == Keep::Modes {
        return Ok(());
    }
    let failed = on("keeping the attributes of", path);
    let owner = (Some(Uid::from_raw(metadata.uid())), Some(Gid::from_raw(metadata.gid())));
    ignoring_permission(fchown(target, owner.0, owner.1)).map_err(&failed)?;
    let names = listed(|buffer| flistxattr(source, buffer)).map_err(&failed)?;
    for name in names {
        let mut value = vec![0; VALUE_BYTES];
        let length = match fgetxattr(source, &*name, &mut value[..]) {
            Ok(length) => length,
            // Not for this user to read, or gone by now.
            Err(Errno::PERM | Errno::ACCESS | Errno::NODATA) => continue,
            Err(error) => return Err(failed(error.into())),
        };
        let set = fsetxattr(target, &*name, &value[..length], XattrFlags::empty());
        accepted(set).map_err(&failed)?;
    }
    let mode = Permissions::from_mode(metadata.mode() & 0o7777);
    target.set_permissions(mode).map_err(&failed)?;
    set_times(target, metadata).map_err(&failed)
}

/// Gives a copy the times of its source.
pub fn set_times(target: &File, metadata: &Metadata) -> io::Result<()> {
    Ok(futimens(target, &times(metadata))?)
}

/// The same for a symbolic link, which cannot be opened.
pub fn give_link(metadata: &Metadata, source: &Path, target: &Path) -> Result<(), Broken> {
    let failed = on("keeping the attributes of", target);
    let owner = (Some(Uid::from_raw(metadata.uid())), Some(Gid::from_raw(metadata.gid())));
    let owned = chownat(CWD, target, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW);
    ignoring_permission(owned).map_err(&failed)?;
    for name in listed(|buffer| llistxattr(source, buffer)).map_err(&failed)? {
        let mut value = vec![0; VALUE_BYTES];
        if let Ok(length) = lgetxattr(source, &*name, &mut value[..]) {
            let set = lsetxattr(target, &*name, &value[..length], XattrFlags::empty());
            accepted(set).map_err(&failed)?;
        }
    }
    let set = utimensat(CWD, target, &times(metadata), AtFlags::SYMLINK_NOFOLLOW);
    accepted(set).map_err(&failed)
}

fn times(metadata: &Metadata) -> Timestamps {
    let time = |seconds, nanoseconds: i64| Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ };
    Timestamps {
        last_access: time(metadata.atime(), metadata.atime_nsec()),
        last_modification: time(metadata.mtime(), metadata.mtime_nsec()),
    }
}

/// Only root gives files away; for others they are the copier's own.
fn ignoring_permission(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Err(Errno::PERM) => Ok(()),
        other => Ok(other?),
    }
}

/// What the destination's file system does not know, or this user may not set, is not kept.
fn accepted(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::ACCESS) => Ok(()),
        other => Ok(other?),
    }
}

/// The names of extended attributes; none where there are no such things.
fn listed(list: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> io::Result<Vec<std::ffi::CString>> {
    let mut names = vec![0; VALUE_BYTES];
    let length = match list(&mut names) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => 0,
        Err(error) => return Err(error.into()),
    };
    let parts = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(parts.filter_map(|name| std::ffi::CString::new(name).ok()).collect())
}
