//! What may be written: nothing that exists, unless it is named.
//!
//! A regular file needs `--overwrite` with its exact path; a block device needs
//! `--destroy-data-on` with its by-id name, its serial, or (for a device that has neither) its
//! kernel path, and is refused all the same while it, a partition or a holder of it is in use.
//! Checks are made on the open descriptor.

use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ioengine::device::Device;
use ioengine::{HostTarget, Target, TargetKind, mount};

use crate::failure::{Failure, Outcome};

/// What the user allowed on the command line.
#[derive(Clone, Debug, Default)]
pub struct Consent {
    /// Files that may be overwritten.
    pub overwrite: Vec<PathBuf>,
    /// Devices whose data may be destroyed.
    pub destroy_data_on: Vec<String>,
}

/// A device that nobody else may mount or take while it is written: a descriptor opened O_EXCL.
pub type Claim = fs::File;

/// Refuses to write to an open target that the user did not allow. What it gives back keeps a
/// device from being taken by others; hold it for as long as there are writes.
pub fn check_writable(
    target: &HostTarget,
    named: &Path,
    consent: &Consent,
) -> Outcome<Option<Claim>> {
    match target.kind() {
        TargetKind::File => check_file(target, named, consent).map(|()| None),
        TargetKind::BlockDevice => check_device(target, consent).map(Some),
        _ => Ok(None),
    }
}

fn check_file(target: &HostTarget, named: &Path, consent: &Consent) -> Outcome<()> {
    let same = |allowed: &&PathBuf| {
        allowed.as_path() == named || allowed.canonicalize().is_ok_and(|a| a == target.path())
    };
    if consent.overwrite.iter().any(|allowed| same(&allowed)) {
        return Ok(());
    }
    let path = named.display();
    Err(Failure::refused(format!(
        "{path} exists and would be overwritten; say --overwrite={path} to lose its content, or \
         name a directory to use a test file there"
    )))
}

fn check_device(target: &HostTarget, consent: &Consent) -> Outcome<Claim> {
    let shown = target.path().display();
    // By the descriptor: a name (a link, a node made elsewhere) proves nothing.
    let Some(device) = target.block_device() else {
        return Err(Failure::refused(format!(
            "the system does not tell whether {shown} is in use; name it as in lsblk"
        )));
    };
    if let Some(why) = in_use(device.folder()) {
        return Err(Failure::refused(format!(
            "{shown} is {why}: writing would destroy data in use; unmount or detach it first"
        )));
    }
    let names = names_of(target, device);
    if !consent.destroy_data_on.iter().any(|given| names.contains(given)) {
        let name = names.first().cloned().unwrap_or_default();
        return Err(Failure::refused(format!(
            "all data on {shown} would be destroyed; say --destroy-data-on={name} if that is meant"
        )));
    }
    claim(target)
}

/// Opens a device once more, for itself alone: the kernel refuses where it is mounted in another
/// namespace or held by a volume, and keeps others from taking it.
fn claim(target: &HostTarget) -> Outcome<Claim> {
    let open = fs::OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(target.path());
    let refused = |error: std::io::Error| {
        let cause = ioengine::error::cause(&error);
        let path = target.path().display();
        Failure::refused(format!(
            "{path} cannot be claimed ({cause}): something holds it; find \
                                  it with lsblk and detach it first"
        ))
    };
    let claim = open.map_err(refused)?;
    let same = claim.metadata().is_ok_and(|now| now.rdev() == number_of(target));
    if same {
        Ok(claim)
    } else {
        Err(Failure::refused(format!("{} changed while it was opened", target.path().display())))
    }
}

/// The device number of an open block device.
fn number_of(target: &HostTarget) -> u64 {
    target.file().and_then(|file| file.metadata().ok()).map_or(0, |metadata| metadata.rdev())
}

/// The names by which a device may be given up: by-id links, serial; the kernel path only where
/// there is neither.
fn names_of(target: &HostTarget, device: &Device) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir("/dev/disk/by-id").into_iter().flatten().flatten() {
        let number = fs::metadata(entry.path()).map(|metadata| metadata.rdev());
        if number.is_ok_and(|number| number == number_of(target)) {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.extend(device.info().serial);
    if names.is_empty() {
        names.push(format!("/dev/{}", name_of(device.folder())));
    }
    names
}

fn name_of(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Why a device, one of its partitions or one of its holders is in use.
fn in_use(folder: &Path) -> Option<String> {
    let mut below = vec![name_of(folder)];
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().join("partition").exists() {
            below.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    below.iter().find_map(|name| device_in_use(name))
}

fn device_in_use(name: &str) -> Option<String> {
    let device = format!("/dev/{name}");
    let number = fs::read_to_string(format!("/sys/class/block/{name}/dev")).unwrap_or_default();
    let is_it = |mount: &mount::Mount| {
        let (major, minor) = mount.device;
        number.trim() == format!("{major}:{minor}") || same_device(&mount.source, &device)
    };
    if let Some(mount) = mount::all().iter().find(|mount| is_it(mount)) {
        return Some(format!("mounted at {}", mount.mount_point.display()));
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swap = |line: &str| same_device(line.split_whitespace().next().unwrap_or(""), &device);
    if swaps.lines().skip(1).any(swap) {
        return Some("in use as swap".to_owned());
    }
    let holders = fs::read_dir(format!("/sys/class/block/{name}/holders")).ok()?;
    let holder = holders.flatten().next()?;
    Some(format!("held by {}", holder.file_name().to_string_lossy()))
}

fn same_device(one: &str, other: &str) -> bool {
    let number = |path: &str| fs::metadata(path).ok().map(|metadata| metadata.rdev());
    one.starts_with('/') && number(one).is_some_and(|n| n != 0 && Some(n) == number(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioengine::Caching;

    fn open(path: &Path) -> HostTarget {
        HostTarget::open(path, true, Caching::Buffered).unwrap()
    }

    #[test]
    fn an_existing_file_needs_its_exact_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let target = open(file.path());
        let check = |overwrite: Vec<PathBuf>| {
            let consent = Consent { overwrite, ..Consent::default() };
            check_writable(&target, file.path(), &consent)
        };
        assert_eq!(check(vec![]).unwrap_err().exit, crate::failure::Exit::Refused);
        assert!(check(vec![file.path().parent().unwrap().into()]).is_err());
        assert!(check(vec![file.path().into()]).is_ok());
    }

    #[test]
    fn the_device_of_the_root_file_system_is_in_use() {
        let root = mount::of(Path::new("/"), (0, 0)).unwrap();
        let Ok(number) = fs::metadata(&root.source).map(|metadata| metadata.rdev()) else { return };
        let (major, minor) = (libc::major(number), libc::minor(number));
        let Some(device) = Device::of((major, minor)) else { return };
        assert!(in_use(device.folder()).is_some_and(|why| why.contains("mounted")), "{device:?}");
    }
}
