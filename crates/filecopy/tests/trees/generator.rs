//! Random trees with all types of files, links, holes, odd names, modes, owners, times, attributes
//! and ACLs.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use crate::random::Random;

/// Parameters of a random tree.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    pub entries: u64,
    /// Whether to create devices and set owners and attributes, which requires root.
    pub as_root: bool,
    /// Share of files that are larger than 1 MiB (%).
    pub large_percent: u64,
}

/// Creates a random tree in an existing directory. Returns the paths of all entries.
pub fn grow(root: &Path, recipe: Recipe, random: &mut Random) -> Vec<PathBuf> {
    let mut directories = vec![root.to_path_buf()];
    let mut entries = Vec::new();
    let mut linkable: Vec<PathBuf> = Vec::new();
    for number in 0..recipe.entries {
        let parent = random.pick(&directories).clone();
        let path = parent.join(name(random, number));
        if path.symlink_metadata().is_ok() {
            continue;
        }
        if random.percent(10) && !linkable.is_empty() {
            let first = random.pick(&linkable).clone();
            if fs::hard_link(&first, &path).is_ok() {
                entries.push(path);
            }
            continue;
        }
        match random.below(100) {
            0..20 => {
                if parent.components().count() > root.components().count() + 6 {
                    continue;
                }
                fs::create_dir(&path).unwrap();
                directories.push(path.clone());
            }
            20..32 => {
                let to = link_target(random, &entries);
                symlink(to, &path).unwrap();
                linkable.push(path.clone());
            }
            32..37 => {
                make_special(&path, FileType::Fifo, 0);
                linkable.push(path.clone());
            }
            37..40 => drop(UnixListener::bind(&path).ok().filter(|_| true)),
            40..43 if recipe.as_root => {
                let (kind, device) = *random.pick(&[
                    (FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
                    (FileType::BlockDevice, rustix::fs::makedev(7, 200)),
                ]);
                make_special(&path, kind, device);
            }
            43..55 => {
                sparse_file(&path, random);
                linkable.push(path.clone());
            }
            _ => {
                let size = size(random, recipe.large_percent);
                fs::write(&path, random.bytes(size)).unwrap();
                linkable.push(path.clone());
            }
        }
        if path.symlink_metadata().is_ok() {
            entries.push(path);
        }
    }
    for path in &entries {
        dress(path, recipe, random);
    }
    // Directories get their attributes last, innermost first, because creating entries changes
    // their times.
    directories.sort();
    for path in directories.iter().rev() {
        dress(path, recipe, random);
    }
    entries
}

fn make_special(path: &Path, kind: FileType, device: u64) {
    // The error is ignored, because devices cannot be created in some containers.
    let _ = rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), device);
}

/// Returns a name for an entry. A quarter of the names are hard to handle, for example because of
/// line breaks.
fn name(random: &mut Random, number: u64) -> OsString {
    if random.percent(75) {
        return OsString::from(format!("entry-{number}"));
    }
    let odd: &[&[u8]] = &[
        b" leading and trailing ",
        b"new\nline",
        b"-rf",
        b"--archive",
        b"\xff\xfe not text \x80",
        "ünïcödé-名前".as_bytes(),
        b"quote'\"back\\slash",
        b".hidden",
        b".halfpower-0123456789abcdef",
        b".x.halfpower-partial",
        b"*?[a-z]",
        b"tab\there",
        b"a:b",
        b"...",
        b"~",
    ];
    let mut name = random.pick(odd).to_vec();
    if random.percent(20) {
        // Names may have up to 255 bytes. A number may be appended to these 250 bytes.
        name = vec![b'n'; 250];
    }
    if !random.percent(30) {
        name.extend_from_slice(format!("{number}").as_bytes());
    }
    OsString::from_vec(name)
}

fn link_target(random: &mut Random, entries: &[PathBuf]) -> PathBuf {
    match random.below(5) {
        0 => PathBuf::from("nowhere at all"),
        1 => PathBuf::from("/etc/hostname"),
        2 => PathBuf::from("../.."),
        3 => PathBuf::from(OsStr::from_bytes(&[b'x'; 3000])),
        _ => entries.get(random.below(entries.len().max(1) as u64) as usize).map_or_else(
            || PathBuf::from("."),
            |path| PathBuf::from(path.file_name().unwrap_or_default()),
        ),
    }
}

fn size(random: &mut Random, large_percent: u64) -> usize {
    if random.percent(large_percent) {
        return ((1 << 20) + random.below(6 << 20)) as usize;
    }
    let sizes = [0, 1, 511, 512, 4095, 4096, 4097, 65_536, 70_001, 300_000];
    *random.pick(&sizes)
}

fn sparse_file(path: &Path, random: &mut Random) {
    let file = File::create(path).unwrap();
    let size = *random.pick(&[4096_u64, 65_536, 1 << 20, 10 << 20, 32 << 20, (1 << 20) + 777]);
    file.set_len(size).unwrap();
    for _ in 0..random.below(4) {
        let length = *random.pick(&[1_usize, 4096, 65_536, 200_000]);
        let at = random.below(size.saturating_sub(length as u64).max(1));
        let fits = length.min((size - at) as usize);
        file.write_all_at(&random.bytes(fits), at).unwrap();
    }
}

/// Sets owner, attributes, mode and times of an entry.
fn dress(path: &Path, recipe: Recipe, random: &mut Random) {
    let metadata = fs::symlink_metadata(path).unwrap();
    let kind = metadata.file_type();
    if recipe.as_root && random.percent(40) {
        let id = |random: &mut Random| *random.pick(&[0_u32, 1, 1000, 1001, 65_534, 4_000_000]);
        let (uid, gid) = (id(random), id(random));
        std::os::unix::fs::lchown(path, Some(uid), Some(gid)).unwrap();
    }
    if !kind.is_symlink() {
        let modes = [0o644, 0o600, 0o755, 0o640, 0o444, 0o4755, 0o2755, 0o6711, 0o666, 0o1777, 0];
        let mut mode =
            if random.percent(60) { *random.pick(&modes) } else { random.below(0o10000) as u32 };
        if kind.is_dir() && !recipe.as_root {
            mode |= 0o700;
        }
        if !recipe.as_root {
            mode |= 0o400;
        }
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    if (kind.is_file() || kind.is_dir()) && random.percent(25) {
        attributes(path, kind.is_dir(), recipe, random);
    }
    if random.percent(70) {
        let seconds = *random.pick(&[0_i64, 1, 951_782_400, 1_700_000_000, 4_102_444_800, -1]);
        let ns = *random.pick(&[0_i64, 1, 123_456_789, 999_999_999]);
        let time = Timespec { tv_sec: seconds, tv_nsec: ns };
        let times = Timestamps { last_access: time, last_modification: time };
        let _ = rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
    }
}

fn attributes(path: &Path, is_directory: bool, recipe: Recipe, random: &mut Random) {
    // Errors are ignored, because some file systems have no extended attributes.
    let set = |name: &str, value: &[u8]| {
        let _ = rustix::fs::setxattr(path, name, value, XattrFlags::empty());
    };
    let length = *random.pick(&[0_usize, 1, 100, 1000]);
    set("user.note", &random.bytes(length));
    if random.percent(30) {
        set("user.\u{e9}", b"another");
    }
    if recipe.as_root && random.percent(30) {
        set("trusted.secret", b"of root");
    }
    if recipe.as_root && !is_directory && random.percent(30) {
        // The capability cap_net_raw+ep in the format VFS_CAP_REVISION_2 (linux/capability.h).
        let mut capability = vec![0; 20];
        capability[..8].copy_from_slice(&[1, 0, 0, 2, 0, 0x20, 0, 0]);
        set("security.capability", &capability);
    }
    if random.percent(50) {
        set("system.posix_acl_access", &acl(random));
    }
    if is_directory && random.percent(50) {
        set("system.posix_acl_default", &acl(random));
    }
}

/// Encodes an ACL with random permissions and with entries for one user and one group (acl(5),
/// linux/posix_acl_xattr.h).
fn acl(random: &mut Random) -> Vec<u8> {
    let mut bits = || random.below(8) as u16;
    let nobody = u32::MAX;
    let entries = [
        (1_u16, bits(), nobody),
        (2, bits(), 1234),
        (4, bits(), nobody),
        (8, bits(), 4321),
        (16, bits(), nobody),
        (32, bits(), nobody),
    ];
    let mut acl = vec![2, 0, 0, 0];
    for (tag, bits, id) in entries {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&bits.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    acl
}
