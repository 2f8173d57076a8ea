//! What may be written: nothing that exists, unless it is named.
//!
//! A regular file needs `--overwrite` with its exact path; a block device needs
//! `--destroy-data-on` with its by-id name, its serial, or (for a device that has neither) its
//! kernel path, and is refused all the same while it, a partition or a holder of it is in use.
//! Checks are made on the open descriptor.

use std::fs;
use std::path::{Path, PathBuf};

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

/// Refuses to write to an open target that the user did not allow.
pub fn check_writable(target: &HostTarget, named: &Path, consent: &Consent) -> Outcome<()> {
    match target.kind() {
        TargetKind::File => check_file(target, named, consent),
        TargetKind::BlockDevice => check_device(target, consent),
        _ => Ok(()),
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

fn check_device(target: &HostTarget, consent: &Consent) -> Outcome<()> {
    let path = target.path();
    if let Some(why) = in_use(path) {
        return Err(Failure::refused(format!(
            "{} is {why}: writing would destroy data in use; unmount or detach it first",
            path.display()
        )));
    }
    let names = names_of(target);
    if consent.destroy_data_on.iter().any(|given| names.contains(given)) {
        return Ok(());
    }
    let name = names.first().cloned().unwrap_or_default();
    Err(Failure::refused(format!(
        "all data on {} would be destroyed; say --destroy-data-on={name} if that is meant",
        path.display()
    )))
}

/// The names by which a device may be given up: by-id links, serial; the kernel path only where
/// there is neither.
fn names_of(target: &HostTarget) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir("/dev/disk/by-id").into_iter().flatten().flatten() {
        if entry.path().canonicalize().is_ok_and(|path| path == target.path()) {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.extend(target.device_info().and_then(|info| info.serial));
    if names.is_empty() {
        names.push(target.path().display().to_string());
    }
    names
}

/// Why a device, one of its partitions or one of its holders is in use.
fn in_use(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let folder = fs::canonicalize(format!("/sys/class/block/{name}")).ok()?;
    let mut below = vec![name.clone()];
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        if entry.path().join("partition").exists() {
            below.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    for name in below {
        if let Some(why) = device_in_use(&name) {
            return Some(why);
        }
    }
    None
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
    let real = |path: &str| fs::canonicalize(path).ok();
    one.starts_with('/') && real(one).is_some_and(|path| Some(path) == real(other))
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
        let Ok(device) = fs::canonicalize(&root.source) else { return };
        assert!(in_use(&device).is_some_and(|why| why.contains("mounted")), "{device:?}");
    }
}
