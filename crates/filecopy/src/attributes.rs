//! Sets the owner, permission bits, ACLs, extended attributes and times of copies, by the rules of
//! [`Keep`].
//!
//! Attributes that the destination's file system does not support, or that this user may not set,
//! are left out and counted. Any other failure is reported as a problem of the file, but the file
//! is still copied.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, Gid, Timespec, Timestamps, Uid, XattrFlags, chownat, lgetxattr, llistxattr, lsetxattr,
    utimensat,
};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use crate::directory::{Directory, EntryInfo, path_of};
use crate::handle::Handle;
use crate::problem::{Problem, ProblemKind};
use crate::settings::{Keep, Settings};

/// Maximum size of an attribute's value and of a list of attribute names (bytes). XATTR_SIZE_MAX
/// and XATTR_LIST_MAX in limits.h.
const VALUE_BYTES: usize = 64 << 10;
/// Extended attribute that holds the access ACL.
const ACCESS_ACL: &CStr = c"system.posix_acl_access";
/// Extended attribute that holds the default ACL of a directory.
const DEFAULT_ACL: &CStr = c"system.posix_acl_default";
const CAPABILITY: &CStr = c"security.capability";
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;

/// Counts the attributes that were not copied, by reason. Each counter also keeps the path of the
/// first affected file.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    unsupported: Counter,
    not_permitted: Counter,
    flags: Counter,
    owners: Counter,
}

#[derive(Debug, Default)]
struct Counter {
    number: AtomicU64,
    first: Mutex<PathBuf>,
}

impl Counter {
    fn add(&self, path: &Path) {
        if self.number.fetch_add(1, Ordering::Relaxed) == 0
            && let Ok(mut first) = self.first.lock()
        {
            path.clone_into(&mut first);
        }
    }

    fn note(&self, settings: &Settings, what: &str) {
        let number = self.number.load(Ordering::Relaxed);
        if number > 0 {
            let first = self.first.lock().map(|path| path.display().to_string());
            let first = first.unwrap_or_default();
            settings.note(format!("{number} {what} (first: {first})"));
        }
    }
}

impl LeftOut {
    /// Reports how many attributes were not copied, for each reason.
    pub fn note(&self, settings: &Settings) {
        self.unsupported.note(
            settings,
            "extended attributes were not kept, because the destination's file system does not \
             support this kind of attribute",
        );
        self.not_permitted.note(
            settings,
            "extended attributes were not kept, because this user may not read or set them",
        );
        self.flags.note(
            settings,
            "entries have the flag `immutable` or `append-only` (lsattr), but their copies do not",
        );
        self.owners.note(
            settings,
            "copies have another owner or group than their sources, because only root may change \
             owners",
        );
    }
}

/// The group that a new file in a directory gets, and whether the directory has a default ACL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inherited {
    gid: u32,
    has_default_acl: bool,
}

impl Inherited {
    /// Determines the group that new files in a directory get, and whether they inherit a default
    /// ACL.
    pub fn of(directory: &Directory) -> Inherited {
        let info = directory.info().ok();
        let gives_group = info.is_some_and(|info| info.mode & SET_GROUP_ID != 0);
        let gid = match info {
            Some(info) if gives_group => info.gid,
            _ => getegid().as_raw(),
        };
        let has_default_acl = Handle::of(directory).attribute(DEFAULT_ACL, &mut []).is_ok();
        Inherited { gid, has_default_acl }
    }
}

/// Returns the group's permission bits in an ACL, limited by the ACL's mask. None if the ACL has no
/// entry for the group.
fn group_bits_of_acl(acl: &[u8]) -> Option<u32> {
    const GROUP_OBJ: u16 = 4;
    const MASK: u16 = 16;
    let entries = acl.get(4..)?.chunks_exact(8);
    let number = |entry: &[u8], at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
    let (mut group, mut mask) = (None, 7);
    for entry in entries {
        match number(entry, 0) {
            GROUP_OBJ => group = Some(u32::from(number(entry, 2))),
            MASK => mask = u32::from(number(entry, 2)),
            _ => {}
        }
    }
    Some(group? & mask & 7)
}

/// Returns the mode with which a new file is created. With [`Keep::Mode`], the file gets the
/// permission bits of the source. Otherwise only the owner may access the file until its attributes
/// are set.
///
/// A copy must not allow more than its source. If the copy has another group or inherits an ACL
/// from its directory, the group therefore gets only permissions that all other users have too.
pub(crate) fn creation_mode(
    keep: Keep,
    source: &EntryInfo,
    source_file: Handle,
    inherited: Inherited,
) -> u32 {
    if keep > Keep::Mode {
        return 0o600;
    }
    let bits = source.mode & 0o777;
    let (group, others) = (bits >> 3 & 7, bits & 7);
    if group & !others == 0 {
        return bits;
    }
    let group = if source.gid != inherited.gid || inherited.has_default_acl {
        group & others
    } else {
        // If the source has an ACL, the group bits of its mode are the ACL's mask, so the
        // permissions of the group must be read from the ACL.
        let mut acl = [0; 4096];
        match source_file.attribute(ACCESS_ACL, &mut acl) {
            Ok(length) => group_bits_of_acl(&acl[..length]).unwrap_or(0) & group,
            Err(Errno::NODATA | Errno::OPNOTSUPP) => group,
            Err(_) => group & others,
        }
    };
    bits & 0o707 | group << 3
}

/// Returns the mode of a new directory: the mode that a new file gets with [`Keep::Mode`], minus
/// the umask if there is no default ACL.
pub(crate) fn directory_mode(
    source: &EntryInfo,
    source_file: Handle,
    inherited: Inherited,
    umask: u32,
) -> u32 {
    let mode = creation_mode(Keep::Mode, source, source_file, inherited);
    if inherited.has_default_acl { mode } else { mode & !umask }
}

/// Returns true if an existing entry already has the attributes that a copy would get.
pub(crate) fn are_same(keep: Keep, source: &EntryInfo, target: &EntryInfo) -> bool {
    if keep == Keep::Mode {
        return true;
    }
    let is_root = geteuid().is_root();
    let own = (geteuid().as_raw(), target.gid);
    let owner_is_kept = (target.uid, target.gid) == (source.uid, source.gid);
    let owner = owner_is_kept || (!is_root && target.uid == own.0);
    let mode = !owner_is_kept || source.permissions() == target.permissions();
    owner && mode && are_same_times(source, target)
}

/// Returns true if the modification times are equal. The file system of the target may have rounded
/// the target's time down to a multiple of 100 ns or to whole seconds.
pub(crate) fn are_same_times(source: &EntryInfo, target: &EntryInfo) -> bool {
    let ((seconds, ns), (other, other_ns)) = (source.modified, target.modified);
    let is_cut = other_ns % 100 == 0 && ns / 100 == other_ns / 100;
    seconds == other && (ns == other_ns || other_ns == 0 || is_cut)
}

/// Copies attributes from an open source to its open copy.
pub(crate) struct AttributeCopy<'a> {
    pub settings: &'a Settings,
    pub left_out: &'a LeftOut,
    pub source: Handle<'a>,
    /// The metadata of the source.
    pub info: &'a EntryInfo,
    pub target: Handle<'a>,
    /// The path of the copy, for messages.
    pub path: &'a Path,
    /// Whether the copy existed before. If so, `user.*` attributes that the source does not have
    /// are removed.
    pub is_old: bool,
}

impl AttributeCopy<'_> {
    /// Sets all attributes that the settings require.
    pub fn all(&self) -> Result<(), Problem> {
        let keep = self.settings.keep;
        if keep == Keep::Mode {
            return Ok(());
        }
        let (uid, gid) = (self.info.uid, self.info.gid);
        let (has_owner, has_group) = self.owner(uid, gid)?;
        let attributes = self.attributes(keep == Keep::All, &[]);
        let mut mode = self.info.permissions();
        if !has_owner {
            mode &= !(SET_USER_ID | SET_GROUP_ID);
        }
        if !has_group {
            mode &= !SET_GROUP_ID;
            mode &= !0o070 | (mode & 0o007) << 3;
        }
        self.mode(mode)?;
        if keep == Keep::All && self.source.is_locked() {
            self.left_out.flags.add(self.path);
        }
        self.times()?;
        attributes
    }

    /// Gives the copy the owner, mode and extended attributes of the file that it replaces.
    /// Set-user-ID, set-group-ID and capabilities are left out, so that the new content gets no
    /// privileges.
    pub fn of_replaced(&self, force: bool) -> Result<(), Problem> {
        let (has_owner, has_group) = self.owner(self.info.uid, self.info.gid)?;
        let has_both = has_owner && has_group;
        if !has_both && !force {
            return Err(Problem::new(
                ProblemKind::Failed,
                self.path,
                format!(
                    "{} belongs to another user or group, and replacing it would change its owner \
                     or group; run as its owner or as root, or use --force",
                    self.path.display()
                ),
            ));
        }
        let attributes = self.attributes(true, &[CAPABILITY]);
        let mut mode = self.info.permissions() & !(SET_USER_ID | SET_GROUP_ID);
        if !has_group {
            mode &= !0o070 | (mode & 0o007) << 3;
        }
        self.mode(mode)?;
        attributes
    }

    /// Sets the owner and the group. Returns two flags: whether the copy now has the owner `uid`,
    /// and whether it has the group `gid`.
    fn owner(&self, uid: u32, gid: u32) -> Result<(bool, bool), Problem> {
        let kept = match self.target.set_owner(Some(uid), Some(gid)) {
            Ok(()) => (true, true),
            // Only root may change the owner, but a user may set any group that the user belongs
            // to. The group is therefore set separately.
            Err(Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP) => {
                (uid == geteuid().as_raw(), self.target.set_owner(None, Some(gid)).is_ok())
            }
            Err(error) => return Err(self.failed("setting the owner of", error)),
        };
        if kept != (true, true) {
            self.left_out.owners.add(self.path);
        }
        Ok(kept)
    }

    fn mode(&self, mode: u32) -> Result<(), Problem> {
        match self.target.set_mode(mode) {
            // vfat and other file systems without permission bits return EOPNOTSUPP.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(Errno::PERM) if self.info.uid != geteuid().as_raw() => Ok(()),
            Err(error) => Err(self.failed("setting the mode of", error)),
        }
    }

    /// Sets the access and modification times of the copy to those of the source.
    pub fn times(&self) -> Result<(), Problem> {
        let set = self.target.set_times(&timestamps(self.info));
        set.map_err(|error| self.failed("setting the times of", error))
    }

    /// Copies the ACLs. If `all` is true, copies the other extended attributes too. Attributes in
    /// `except` are not copied. ACLs that the source does not have are removed, because the copy
    /// may have inherited them from its directory.
    fn attributes(&self, all: bool, except: &[&CStr]) -> Result<(), Problem> {
        let is_kept = |name: &CString| {
            let name = name.as_c_str();
            let of_overlay = name.to_bytes().starts_with(b"trusted.overlay.");
            (all || name == ACCESS_ACL || name == DEFAULT_ACL)
                && !except.contains(&name)
                && !of_overlay
        };
        let names = names(|buffer| self.source.list_attributes(buffer));
        let names = names.map_err(|error| self.failed("listing the attributes of", error))?;
        let mut problem = None;
        for name in names.iter().filter(|name| is_kept(name)) {
            let mut value = vec![0; VALUE_BYTES];
            match self.source.attribute(name, &mut value) {
                Ok(length) => {
                    if let Err(error) = self.target.set_attribute(name, &value[..length]) {
                        problem = self.attribute_failed(name, error).or(problem);
                    }
                }
                Err(Errno::PERM | Errno::ACCESS) => self.left_out.not_permitted.add(self.path),
                // Another program removed the attribute after the names were listed.
                Err(Errno::NODATA) => {}
                Err(error) => problem = self.attribute_failed(name, error).or(problem),
            }
        }
        if all && self.is_old {
            let own = self::names(|buffer| self.target.list_attributes(buffer)).unwrap_or_default();
            let is_extra =
                |name: &&CString| name.to_bytes().starts_with(b"user.") && !names.contains(name);
            for name in own.iter().filter(is_extra) {
                if let Err(error) = self.target.remove_attribute(name) {
                    problem = self.attribute_failed(name, error).or(problem);
                }
            }
        }
        for inherited in [ACCESS_ACL, DEFAULT_ACL] {
            if !names.iter().any(|name| name.as_c_str() == inherited) {
                // The call fails if the copy has no such ACL, which is harmless.
                let _ = self.target.remove_attribute(inherited);
            }
        }
        problem.map_or(Ok(()), Err)
    }

    fn attribute_failed(&self, name: &CStr, error: Errno) -> Option<Problem> {
        match error {
            Errno::OPNOTSUPP => self.left_out.unsupported.add(self.path),
            Errno::PERM | Errno::ACCESS => self.left_out.not_permitted.add(self.path),
            error => {
                let (name, path) = (name.to_string_lossy(), self.path.display());
                let cause = ioengine::error::cause(&io::Error::from(error));
                let message = format!(
                    "the attribute {name} of {path} was not kept: {cause}; it may be too \
                             large for the destination's file system"
                );
                let kind = ProblemKind::Failed;
                return Some(Problem::new(kind, self.path, message));
            }
        }
        None
    }

    fn failed(&self, doing: &str, error: Errno) -> Problem {
        Problem::io(doing, self.path, &error.into())
    }
}

/// Sets the owner, extended attributes and times of a symbolic link. A link has no permission bits
/// and cannot be opened, so its attributes are accessed by name in the open directory.
pub(crate) fn set_link_attributes(
    settings: &Settings,
    left_out: &LeftOut,
    (source_directory, source_name): (&Directory, &OsStr),
    info: &EntryInfo,
    (directory, name): (&Directory, &OsStr),
) -> Result<(), Problem> {
    let path = directory.join(name);
    let failed = |doing: &str, error: Errno| Problem::io(doing, &path, &error.into());
    if settings.keep == Keep::Mode {
        return Ok(());
    }
    let (uid, gid) = (Some(Uid::from_raw(info.uid)), Some(Gid::from_raw(info.gid)));
    match chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(()) => {}
        Err(Errno::PERM) => left_out.owners.add(&path),
        Err(error) => return Err(failed("setting the owner of", error)),
    }
    if settings.keep == Keep::All {
        let (source, target) =
            (path_of(source_directory).join(source_name), path_of(directory).join(name));
        for attribute in names(|buffer| llistxattr(&source, buffer)).unwrap_or_default() {
            let mut value = vec![0; VALUE_BYTES];
            let read = lgetxattr(&source, attribute.as_c_str(), &mut value[..]);
            let Ok(length) = read else { continue };
            let value = &value[..length];
            let set = lsetxattr(&target, attribute.as_c_str(), value, XattrFlags::empty());
            match set {
                Ok(()) => {}
                Err(Errno::OPNOTSUPP) => left_out.unsupported.add(&path),
                Err(Errno::PERM | Errno::ACCESS) => left_out.not_permitted.add(&path),
                Err(error) => return Err(failed("keeping the attributes of", error)),
            }
        }
    }
    match utimensat(directory, name, &timestamps(info), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::PERM) => Ok(()),
        Err(error) => Err(failed("setting the times of", error)),
    }
}

fn timestamps(info: &EntryInfo) -> Timestamps {
    let time = |(seconds, ns): (i64, i64)| Timespec { tv_sec: seconds, tv_nsec: ns as _ };
    Timestamps { last_access: time(info.accessed), last_modification: time(info.modified) }
}

/// Returns the names of the extended attributes. The list is empty if the file system has no
/// attributes or this user may not read them.
fn names(list: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<CString>, Errno> {
    // The length is not queried first, because this buffer is large enough for most files.
    let mut buffer = vec![0; 1024];
    loop {
        let length = match list(&mut buffer) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::ACCESS | Errno::PERM) => 0,
            Err(Errno::RANGE) if buffer.len() < VALUE_BYTES => {
                buffer.resize(VALUE_BYTES, 0);
                continue;
            }
            Err(error) => return Err(error),
        };
        let parts = buffer[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
        return Ok(parts.filter_map(|name| CString::new(name).ok()).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn info(mode: u32, gid: u32) -> EntryInfo {
        EntryInfo {
            mode: 0o100_000 | mode,
            gid,
            ..EntryInfo::of(File::open("/").unwrap()).unwrap()
        }
    }

    #[test]
    fn a_copy_never_permits_more_than_its_source() {
        let file = tempfile::tempfile().unwrap();
        let own = Inherited { gid: 7, has_default_acl: false };
        let handle = Handle::of(&file);
        let mode =
            |bits, gid, inherited| creation_mode(Keep::Mode, &info(bits, gid), handle, inherited);
        assert_eq!(mode(0o644, 1, own), 0o644);
        assert_eq!(mode(0o640, 7, own), 0o640, "the same group");
        assert_eq!(mode(0o640, 1, own), 0o600, "another group");
        assert_eq!(mode(0o675, 1, own), 0o655);
        assert_eq!(mode(0o660, 7, Inherited { has_default_acl: true, ..own }), 0o600);
        assert_eq!(mode(0o4755, 7, own), 0o755, "no set-user-ID");
        assert_eq!(
            creation_mode(Keep::All, &info(0o644, 7), handle, own),
            0o600,
            "private until its attributes are set"
        );
    }

    #[test]
    fn group_bits_are_limited_by_the_acl_mask() {
        let entry = |tag: u16, bits: u16| {
            [&tag.to_le_bytes()[..], &bits.to_le_bytes()[..], &[0; 4]].concat()
        };
        let acl = |entries: &[(u16, u16)]| {
            let body = entries.iter().flat_map(|(tag, bits)| entry(*tag, *bits));
            [2, 0, 0, 0].into_iter().chain(body).collect::<Vec<u8>>()
        };
        assert_eq!(group_bits_of_acl(&acl(&[(1, 6), (2, 6), (4, 0), (16, 6), (32, 0)])), Some(0));
        assert_eq!(group_bits_of_acl(&acl(&[(4, 6), (16, 4)])), Some(4));
        assert_eq!(group_bits_of_acl(&acl(&[(4, 5)])), Some(5));
        assert_eq!(group_bits_of_acl(&[2, 0]), None);
    }

    #[test]
    fn times_are_compared_at_the_coarser_resolution() {
        let at = |seconds, ns| EntryInfo { modified: (seconds, ns), ..info(0o644, 0) };
        assert!(are_same_times(&at(5, 123_456_789), &at(5, 123_456_789)));
        assert!(are_same_times(&at(5, 123_456_789), &at(5, 123_456_700)), "100 ns (NTFS)");
        assert!(are_same_times(&at(5, 123_456_789), &at(5, 0)), "whole seconds");
        assert!(!are_same_times(&at(5, 123_456_789), &at(6, 123_456_789)));
        assert!(!are_same_times(&at(5, 0), &at(5, 7)));
    }
}
