//! Permission to write: existing files and devices are overwritten only if the user allows it.
//!
//! To overwrite a regular file, the user must specify its path with `--overwrite`. Symbolic links,
//! files with several hard links, swap files and images of loop devices are always refused. A file
//! that another program has open for writing is refused too, except as the destination of a copy,
//! because a copy creates a new file with the same name.
//!
//! To overwrite a block device, the user must specify its by-id name with `--destroy-data-on`. Its
//! serial number is also accepted if no other disk has the same number. If a device has neither a
//! by-id name nor such a serial number, its path under /dev is accepted. A block device that is in
//! use ([`ioengine::usage`]) is always refused.
//!
//! The checks use the open file descriptor, because the path may lead to another file at any time.
//! If a target is opened again, it is compared with its [`Permit`].

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use filecopy::Change;
use ioengine::device::Device;
use ioengine::kernel::{Backing, Kernel};
use ioengine::{HostTarget, Target, TargetKind, usage};

use crate::failure::{Failure, Outcome};
use crate::signature;

/// Permissions to write that the user gave on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consent {
    /// Files that may be overwritten.
    pub overwrite: Vec<PathBuf>,
    /// Names of the devices whose data may be destroyed.
    pub destroy_data_on: Vec<String>,
}

impl Consent {
    /// Returns the first permission as a command-line flag, such as `--overwrite=FILE`. Returns an
    /// empty string if there is none.
    pub fn flag(&self) -> String {
        match (self.destroy_data_on.first(), self.overwrite.first()) {
            (Some(name), _) => format!("--destroy-data-on={name}"),
            (None, Some(path)) => format!("--overwrite={}", path.display()),
            (None, None) => String::new(),
        }
    }
}

/// Permission to write one file or device. While the permit for a device exists, no other process
/// can mount the device or open it exclusively.
#[derive(Debug)]
pub struct Permit {
    /// Description of the data that will be destroyed; None for a file.
    pub destroys: Option<String>,
    may_write: Backing,
    _claim: Option<Arc<fs::File>>,
}

impl Permit {
    /// Checks that a target that was opened again is still the file or device of this permit.
    pub fn check(&self, target: &HostTarget) -> Outcome<()> {
        if backing_of(target) == Some(self.may_write) {
            return Ok(());
        }
        Err(Failure::refused(format!(
            "{} changed while it was opened; use a directory that only you can write to",
            target.path().display()
        )))
    }
}

/// Checks that the user allowed writing to an open target. Returns None if the target is neither a
/// file nor a device. The caller must keep the permit until all writes are done.
pub fn check_writable(
    target: &HostTarget,
    named: &Path,
    consent: &Consent,
) -> Outcome<Option<Permit>> {
    let Some(may_write) = backing_of(target) else { return Ok(None) };
    let claim = match target.kind() {
        TargetKind::BlockDevice => Some(check_device(target, named, consent)?),
        _ => {
            check_file(target, named, consent)?;
            None
        }
    };
    let destroys =
        claim.as_ref().map(|_| format!("all data on {}; {}", shown(target), holds(target)));
    Ok(Some(Permit { destroys, may_write, _claim: claim }))
}

/// Returns a function that decides whether a copy may replace or remove an existing file. The user
/// must specify the file itself with `--overwrite`, or the destination directory that contains it.
/// `trees` are the destination directories. Swap files and images of loop devices are never
/// replaced.
pub fn replacing(consent: &Consent, trees: &[PathBuf]) -> filecopy::MayReplace {
    // A path that ends in a slash allows replacing only a directory, not a file.
    let ends_in_slash = |path: &&PathBuf| path.as_os_str().as_encoded_bytes().ends_with(b"/");
    let typed = consent.overwrite.iter().filter(|path| !ends_in_slash(path) || path.is_dir());
    let named: Vec<PathBuf> = typed.flat_map(|path| full_paths(path)).collect();
    let is_named = |path: &Path| full_paths(path).iter().any(|full| named.contains(full));
    let trees: Vec<PathBuf> =
        trees.iter().filter(|tree| is_named(tree)).flat_map(|tree| full_paths(tree)).collect();
    let kernel = std::sync::OnceLock::new();
    Arc::new(move |path, info, change| {
        let shown = path.display();
        let full = full_paths(path);
        let is_named_itself = full.iter().any(|full| named.contains(full));
        let is_in_tree = |full: &PathBuf| trees.iter().any(|tree| full.starts_with(tree));
        if !is_named_itself && !full.iter().any(is_in_tree) {
            return Err(match change {
                Change::Replace => format!(
                    "{shown} exists and would be overwritten; use --overwrite={shown} to \
                     allow this, or specify another file or a directory"
                ),
                Change::Remove => format!(
                    "{shown} is not in the source and would be removed; to allow that, use \
                     --overwrite with the destination directory"
                ),
            });
        }
        if is_named_itself && info.file_type() == filecopy::FileType::Symlink {
            return Err(format!(
                "{shown} is a symbolic link; specify the file itself, or remove the link"
            ));
        }
        if is_named_itself && info.is_file() && info.links > 1 {
            return Err(format!(
                "{shown} has {} names (hard links), and only one of them would be replaced; copy \
                 the file and specify the copy, or remove the other names",
                info.links
            ));
        }
        let file = Backing::File(info.device, info.inode);
        match usage::of_file(kernel.get_or_init(Kernel::of_host), file) {
            Some(why) => Err(format!(
                "{shown} {why}: replacing it would destroy data in use; first turn off the swap \
                 (swapoff) or detach the loop device (losetup -d)"
            )),
            None => Ok(()),
        }
    })
}

/// Returns the absolute path twice: unchanged, and with the symbolic links in its parent directory
/// resolved. If the last component is a symbolic link, it is not resolved.
fn full_paths(path: &Path) -> Vec<PathBuf> {
    let named = std::path::absolute(path).ok();
    let real = named.as_ref().and_then(|named| {
        let (parent, name) = (named.parent()?, named.file_name()?);
        Some(parent.canonicalize().ok()?.join(name))
    });
    [named, real].into_iter().flatten().collect()
}

/// Returns the flag that allows writing to a target, or None if no flag does. Also returns why
/// writing is refused without the flag.
pub fn advice(target: &HostTarget, named: &Path) -> (Option<String>, String) {
    let why = match check_writable(target, named, &Consent::default()) {
        Ok(_) => return (None, "the target is neither a file nor a device".to_owned()),
        Err(failure) => failure.message,
    };
    let device = target.block_device().filter(|_| target.kind() == TargetKind::BlockDevice);
    let name = device.and_then(|device| names_of(target, device).into_iter().next());
    let consent = Consent {
        overwrite: vec![named.to_path_buf()],
        destroy_data_on: name.iter().cloned().collect(),
    };
    match check_writable(target, named, &consent) {
        Ok(_) => (Some(consent.flag()), why),
        Err(failure) => (None, failure.message),
    }
}

fn shown(target: &HostTarget) -> String {
    target.path().display().to_string()
}

/// Describes the data on an open device, such as "it holds a GPT partition table with ext4 'root'".
pub fn holds(target: &HostTarget) -> String {
    // The device is opened again, because a descriptor for direct I/O reads only aligned blocks.
    let again = target.file().map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
    let file = fs::File::open(again.unwrap_or_else(|| shown(target)));
    match file.and_then(|file| signature::describe(&file, target.size_bytes())) {
        Ok(Some(what)) => format!("it holds {what}"),
        Ok(None) => "it holds no data of a known format".to_owned(),
        Err(error) => format!("its content cannot be read ({})", ioengine::error::cause(&error)),
    }
}

/// Returns the inode or device number of an open target. Returns None if the target has no file
/// descriptor.
fn backing_of(target: &HostTarget) -> Option<Backing> {
    target.file()?.metadata().ok().map(|metadata| Backing::of(&metadata))
}

/// Returns the inode of a regular file, or None for other files. Does not follow a symbolic link.
fn itself(path: &Path) -> Option<Backing> {
    let metadata = fs::symlink_metadata(path).ok()?;
    metadata.is_file().then(|| Backing::of(&metadata))
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
}

fn check_file(target: &HostTarget, named: &Path, consent: &Consent) -> Outcome<()> {
    let path = named.display();
    let metadata = target.file().and_then(|file| file.metadata().ok());
    let Some(metadata) = metadata else {
        return Err(Failure::refused(format!("{path} cannot be examined; use another file")));
    };
    let file = Backing::of(&metadata);
    if is_link(named) {
        let real = target.path().display();
        return Err(Failure::refused(format!(
            "{path} is a symbolic link; specify the file itself, {real}, as the target, and use \
             --overwrite={real} to allow overwriting it"
        )));
    }
    if metadata.nlink() > 1 {
        return Err(Failure::refused(format!(
            "{path} has {} names (hard links), and writing would change the file under all of \
             them; copy the file and specify the copy, or remove the other names",
            metadata.nlink()
        )));
    }
    let kernel = Kernel::of_host();
    let in_use = usage::of_file(&kernel, file);
    let in_use = in_use.or_else(|| usage::by_writer(&kernel, file));
    if let Some(why) = in_use {
        return Err(Failure::refused(format!(
            "{path} {why}: writing would destroy data in use; first turn off the swap (swapoff), \
             detach the loop device (losetup -d) or end the program that writes to the file"
        )));
    }
    // If the file was replaced after the target was opened, the inodes differ, and the target is
    // refused.
    if consent.overwrite.iter().any(|allowed| itself(allowed) == Some(file)) {
        return Ok(());
    }
    let leads_to_it = |allowed: &&PathBuf| {
        is_link(allowed) && fs::metadata(allowed).is_ok_and(|found| Backing::of(&found) == file)
    };
    if let Some(link) = consent.overwrite.iter().find(leads_to_it) {
        return Err(Failure::refused(format!(
            "--overwrite={} is a symbolic link; use --overwrite={path} to overwrite the file \
             itself",
            link.display()
        )));
    }
    Err(Failure::refused(format!(
        "{path} exists and would be overwritten; use --overwrite={path} to allow this, or \
         specify another file or a directory"
    )))
}

fn check_device(target: &HostTarget, named: &Path, consent: &Consent) -> Outcome<Arc<fs::File>> {
    let shown = target.path().display();
    // The device is identified by the open file descriptor, because its path may be a symbolic link
    // or a device node outside /dev.
    let Some(device) = target.block_device() else {
        return Err(Failure::refused(format!(
            "cannot determine whether {shown} is in use; specify the name that lsblk lists"
        )));
    };
    if device.text("ro").is_some_and(|flag| flag == "1") {
        return Err(Failure::refused(format!(
            "{shown} is read-only; make it writable with blockdev --setrw, or use another device"
        )));
    }
    if let Some(why) = usage::of_device(&Kernel::of_host(), device) {
        return Err(Failure::refused(format!(
            "{shown} {why}: writing would destroy data in use; first unmount or detach the device, \
             or end the program that uses it"
        )));
    }
    let names = names_of(target, device);
    let name = names.first().cloned().unwrap_or_default();
    if !consent.destroy_data_on.iter().any(|given| names.contains(given)) {
        let alias = named != target.path() || target.path() != real_path(device);
        let what =
            if alias { format!(" ({})", real_path(device).display()) } else { String::new() };
        return Err(Failure::refused(format!(
            "all data on {}{what} would be destroyed: {}; use --destroy-data-on={name} if that is \
             intended",
            named.display(),
            holds(target)
        )));
    }
    claim(target)
}

/// Devices that this process has opened exclusively.
static CLAIMS: Mutex<Vec<(Backing, Weak<fs::File>)>> = Mutex::new(Vec::new());

/// Opens a device exclusively (O_EXCL). The kernel refuses this if the device is mounted in any
/// namespace or is part of a volume. While the device is open, no other program can mount it or
/// open it exclusively. All permits for the same device share one file descriptor.
fn claim(target: &HostTarget) -> Outcome<Arc<fs::File>> {
    let path = target.path().display();
    let wanted = backing_of(target);
    let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
    claims.retain(|(_, claim)| claim.strong_count() > 0);
    let held = claims.iter().find(|(backing, _)| Some(*backing) == wanted);
    if let Some(claim) = held.and_then(|(_, claim)| claim.upgrade()) {
        return Ok(claim);
    }
    let open = fs::OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(target.path());
    let claim = open.map_err(|error| {
        let cause = ioengine::error::cause(&error);
        Failure::refused(format!(
            "{path} cannot be claimed ({cause}) because it is in use; find what uses it with \
             lsblk, and detach it first"
        ))
    })?;
    let claimed = claim.metadata().ok().map(|metadata| Backing::of(&metadata));
    match claimed.filter(|_| claimed == wanted) {
        Some(backing) => {
            let claim = Arc::new(claim);
            claims.push((backing, Arc::downgrade(&claim)));
            Ok(claim)
        }
        None => Err(Failure::refused(format!("{path} changed while it was opened; try again"))),
    }
}

/// Returns the names that `--destroy-data-on` accepts for a device: the names of its links in
/// /dev/disk/by-id, and its serial number if no other disk has the same number. A device without
/// such names has one name: its path below /dev/mapper if it is a device-mapper volume, otherwise
/// its kernel path, such as /dev/sda.
fn names_of(target: &HostTarget, device: &Device) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir("/dev/disk/by-id").into_iter().flatten().flatten() {
        // The name of a link does not prove which device the link leads to, so device numbers are
        // compared.
        let found = fs::metadata(entry.path()).ok().map(|metadata| Backing::of(&metadata));
        if found.is_some() && found == backing_of(target) {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    // Some adapters give all drives the same serial number, so it does not identify a drive.
    if let Some(serial) = device.info().serial {
        let disk = device.whole().unwrap_or_else(|| device.clone());
        let mut others = Kernel::of_host().all();
        others.retain(|other| *other != disk && other.info().serial.as_ref() == Some(&serial));
        if others.is_empty() {
            names.push(serial);
        }
    }
    if names.is_empty() {
        // The path of a volume below /dev/mapper is stable. Its kernel name, such as dm-0, may
        // change at each boot.
        let volume = device.text("dm/name").map(|name| format!("/dev/mapper/{name}"));
        names.push(volume.unwrap_or_else(|| real_path(device).display().to_string()));
    }
    names
}

fn real_path(device: &Device) -> PathBuf {
    Path::new("/dev").join(device.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;
    use ioengine::Caching;
    use std::os::unix::fs::symlink;

    fn open(path: &Path) -> HostTarget {
        HostTarget::open(path, true, Caching::Buffered).unwrap()
    }

    fn check(target: &HostTarget, named: &Path, overwrite: &[&Path]) -> Outcome<Option<Permit>> {
        let overwrite = overwrite.iter().map(PathBuf::from).collect();
        check_writable(target, named, &Consent { overwrite, ..Consent::default() })
    }

    #[track_caller]
    fn refused(outcome: Outcome<Option<Permit>>, words: &str) {
        let failure = outcome.expect_err("this was allowed");
        assert_eq!(failure.exit, Exit::Refused);
        assert!(failure.message.contains(words), "{failure}");
    }

    fn folder_with(name: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, "precious").unwrap();
        (folder, path)
    }

    #[test]
    fn an_existing_file_needs_its_exact_name() {
        let (folder, file) = folder_with("file");
        let target = open(&file);
        refused(check(&target, &file, &[]), "--overwrite=");
        refused(check(&target, &file, &[folder.path()]), "--overwrite=");
        assert!(check(&target, &file, &[&folder.path().join("./file")]).is_ok());
        assert!(check(&target, &file, &[&file]).is_ok());
    }

    #[test]
    fn a_symbolic_link_is_refused_as_a_target_and_as_a_permission() {
        let (folder, file) = folder_with("file");
        let link = folder.path().join("link");
        symlink(&file, &link).unwrap();
        let real = format!("--overwrite={}", file.canonicalize().unwrap().display());
        refused(check(&open(&link), &link, &[&link]), &real);
        refused(check(&open(&link), &link, &[&file]), &real);
        refused(check(&open(&file), &file, &[&link]), "is a symbolic link; use --overwrite=");
    }

    #[test]
    fn a_file_with_several_hard_links_is_refused_even_if_all_are_named() {
        let (folder, file) = folder_with("file");
        let other = folder.path().join("other");
        fs::hard_link(&file, &other).unwrap();
        refused(check(&open(&file), &file, &[&file, &other]), "2 names");
        fs::remove_file(&other).unwrap();
        assert!(check(&open(&file), &file, &[&file]).is_ok());
    }

    #[test]
    fn a_file_that_was_replaced_after_it_was_opened_is_refused() {
        let (folder, file) = folder_with("file");
        let target = open(&file);
        let permit = check(&target, &file, &[&file]).unwrap().unwrap();
        fs::rename(&file, folder.path().join("aside")).unwrap();
        fs::write(&file, "another").unwrap();
        refused(check(&target, &file, &[&file]), "would be overwritten");
        assert!(permit.check(&target).is_ok());
        assert_eq!(permit.check(&open(&file)).unwrap_err().exit, Exit::Refused);
    }
}
