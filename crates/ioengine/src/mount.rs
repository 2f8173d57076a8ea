//! Finds the mount of a file in /proc/self/mountinfo (proc(5)), and unmounts directories.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::sys;

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The device number of the files on the mount (major, minor).
    pub device: (u32, u32),
    /// The directory on which the file system is mounted.
    pub mount_point: PathBuf,
    /// The type of the file system, such as "ext4" or "xfs".
    pub file_system: String,
    /// The device or export that is mounted.
    pub source: String,
    /// The options of the mount and of the file system, separated by commas.
    pub options: String,
}

/// Returns true if a file system of this type stores its files on a server. File systems in user
/// space (FUSE) are not included, because their files may be anywhere.
#[must_use]
pub fn is_network(file_system: &str) -> bool {
    const TYPES: [&str; 7] = ["9p", "afs", "ceph", "cifs", "lustre", "smb3", "virtiofs"];
    TYPES.contains(&file_system) || file_system.starts_with("nfs")
}

/// The maximum number of layers that are followed in a stack of file systems. Real stacks have
/// fewer layers.
const STACK_MAX: usize = 8;

impl Mount {
    /// Returns the path at which a stacked file system stores the file `path`. For an overlay, the
    /// returned path is in the topmost layer that contains the file. For a FUSE mirror (bindfs),
    /// the returned path is in the source directory.
    pub(crate) fn beneath(&self, path: &Path, exists: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        let inside = path.strip_prefix(&self.mount_point).ok()?;
        let at = |folder: PathBuf| {
            if inside.as_os_str().is_empty() { folder } else { folder.join(inside) }
        };
        self.folders_beneath().into_iter().map(at).find(|path| exists(path))
    }

    /// Returns the directories on which a file system is stacked, topmost first. Empty if it is not
    /// stacked.
    fn folders_beneath(&self) -> Vec<PathBuf> {
        if self.file_system == "overlay" {
            let options = || self.options.split(',');
            let upper = options().filter_map(|option| option.strip_prefix("upperdir="));
            let lower = options().filter_map(|option| option.strip_prefix("lowerdir="));
            let lower = lower.flat_map(|list| list.split(':'));
            let folders = upper.chain(lower).map(unescape).map(PathBuf::from);
            return folders.filter(|folder| folder.is_absolute()).collect();
        }
        let source = PathBuf::from(&self.source);
        let mirrors = self.file_system.split('.').next() == Some("fuse");
        let is_folder = source.is_absolute() && !source.starts_with("/dev");
        if mirrors && is_folder { vec![source] } else { Vec::new() }
    }
}

/// Returns the mount that stores the data of a file. If file systems are stacked, returns the
/// lowest mount.
pub(crate) fn of_data(path: &Path, device: (u32, u32)) -> Option<Mount> {
    let mounts = all();
    let mut mount = find(&mounts, path, device)?;
    let mut path = path.to_path_buf();
    for _ in 0..STACK_MAX {
        let Some(below) = mount.beneath(&path, Path::exists) else { break };
        let Ok(metadata) = std::fs::metadata(&below) else { break };
        let number = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
        let Some(lower) = find(&mounts, &below, number) else { break };
        (mount, path) = (lower, below);
    }
    Some(mount)
}

/// Returns all mounts in the mount namespace of this process, in the order of mounting.
pub fn all() -> Vec<Mount> {
    parse(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// Returns the mount that contains the file at `path`. `device` is the device number of the file's
/// file system.
pub fn of(path: &Path, device: (u32, u32)) -> Option<Mount> {
    find(&all(), path, device)
}

/// Works like [`of`], but searches the given mounts.
pub(crate) fn find(mounts: &[Mount], path: &Path, device: (u32, u32)) -> Option<Mount> {
    let holds = |mount: &Mount| path.starts_with(&mount.mount_point);
    let same_device = mounts.iter().filter(|m| m.device == device && holds(m));
    let deepest = same_device.max_by_key(|m| m.mount_point.as_os_str().len());
    let by_path =
        || mounts.iter().filter(|m| holds(m)).max_by_key(|m| m.mount_point.as_os_str().len());
    deepest.or_else(by_path).cloned()
}

pub(crate) fn parse(mountinfo: &str) -> Vec<Mount> {
    mountinfo.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let right: Vec<&str> = right.split(' ').collect();
    let (major, minor) = left.get(2)?.split_once(':')?;
    let options = [*left.get(5)?, right.get(2).copied().unwrap_or("")];
    let mut seen: Vec<&str> = Vec::new();
    for option in options.iter().flat_map(|list| list.split(',')).filter(|o| !o.is_empty()) {
        if !seen.contains(&option) {
            seen.push(option);
        }
    }
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        mount_point: PathBuf::from(unescape(left.get(4)?)),
        file_system: (*right.first()?).to_owned(),
        source: unescape(right.get(1)?),
        options: seen.join(","),
    })
}

/// Decodes the kernel's octal escapes (`\040` is a space).
pub(crate) fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let octal = octal.filter(|digits| digits.iter().all(u8::is_ascii_digit));
        let code = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Unmounts a directory. A lazy unmount hides the directory immediately and completes when no
/// process uses it any more. If the user has no permission to unmount, the function tries
/// `fusermount3`, which can unmount the user's own FUSE file systems.
///
/// # Errors
/// If the mount is in use, or the user has no permission to unmount it.
pub fn unmount(folder: &Path, lazily: bool) -> io::Result<()> {
    let name = CString::new(folder.as_os_str().as_bytes())?;
    match sys::unmount(&name, lazily) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            let how = if lazily { "-uz" } else { "-u" };
            let mut helper = Command::new("fusermount3");
            let asked = helper.arg(how).arg(folder).stderr(Stdio::null()).status();
            if asked.is_ok_and(|status| status.success()) { Ok(()) } else { Err(error) }
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_read_with_its_escapes() {
        let line = "36 35 98:0 / /mnt/my\\040disk rw,noatime shared:1 - ext4 /dev/root rw,errors=x";
        let mounts = parse(line);
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].device, (98, 0));
        assert_eq!(mounts[0].mount_point, PathBuf::from("/mnt/my disk"));
        assert_eq!(mounts[0].file_system, "ext4");
        assert_eq!(mounts[0].options, "rw,noatime,errors=x");
    }

    #[test]
    fn a_file_of_an_overlay_is_in_the_topmost_layer_that_has_it() {
        let line = "36 35 0:40 / /merged rw - overlay overlay \
                    rw,lowerdir=/a\\040b:/c,upperdir=/up,workdir=/work";
        let mount = parse(line).remove(0);
        let path = Path::new("/merged/x/y");
        let in_folder = |folder: &str| {
            let there = Path::new(folder).join("x/y");
            mount.beneath(path, |path| path == there)
        };
        for folder in ["/up", "/a b", "/c"] {
            assert_eq!(in_folder(folder), Some(Path::new(folder).join("x/y")));
        }
        assert_eq!(in_folder("/work"), None);
        assert_eq!(mount.beneath(path, |_| true), Some(PathBuf::from("/up/x/y")));
    }

    #[test]
    fn only_a_fuse_mirror_lies_on_its_source() {
        let beneath = |kind: &str, source: &str| {
            let line = format!("36 35 0:40 / /shown rw - {kind} {source} rw,user_id=0");
            parse(&line).remove(0).beneath(Path::new("/shown/f"), |_| true)
        };
        assert_eq!(beneath("fuse", "/data"), Some(PathBuf::from("/data/f")));
        assert_eq!(beneath("fuse.mirror", "/data"), Some(PathBuf::from("/data/f")));
        assert_eq!(beneath("fuse.sshfs", "user@host:/data"), None);
        assert_eq!(beneath("fuse", "/dev/fuse"), None);
        assert_eq!(beneath("ext4", "/data"), None);
    }

    #[test]
    fn only_three_digits_behind_a_backslash_are_an_escape() {
        assert_eq!(unescape(r"a\+12\400\08\0"), r"a\+12\400\08\0");
        assert_eq!(unescape(r"\134\040"), r"\ ");
    }

    #[test]
    fn nonsense_is_skipped() {
        assert!(parse("\n - \nx y z\n1 2 3:a / / - ext4\n").is_empty());
    }

    #[test]
    fn the_root_directory_lies_on_a_mount() {
        assert!(of(Path::new("/"), (0, 0)).is_some());
    }
}
