//! Determines the kind of storage that contains a file, such as a disk or a network file system.
//! The result is cached for each file system and device.

use std::collections::HashMap;
use std::fmt;
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ioengine::device::{Device, DeviceInfo};
use ioengine::mount;

/// A kind of storage. The default request size and depth depend on this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Memory: tmpfs, ramfs, hugetlbfs, and RAM disks (ram, zram).
    Memory,
    /// Network storage (NFS, SMB, nbd, rbd and similar), and file systems in user space (FUSE).
    Network,
    /// A rotating disk.
    Disk,
    /// Flash with a SATA or SAS interface.
    Flash,
    /// Flash with an NVMe interface.
    Nvme,
    /// A virtual disk of a hypervisor (virtio, Xen), on unknown hardware.
    Virtual,
    /// A volume of several devices, a loop device, or storage of unknown kind.
    Other,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 7] = [
        Kind::Memory,
        Kind::Network,
        Kind::Disk,
        Kind::Flash,
        Kind::Nvme,
        Kind::Virtual,
        Kind::Other,
    ];

    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Memory => "memory",
            Kind::Network => "network",
            Kind::Disk => "disk",
            Kind::Flash => "flash",
            Kind::Nvme => "NVMe flash",
            Kind::Virtual => "virtual disk",
            Kind::Other => "storage of unknown kind",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The storage that contains a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Kind of the storage.
    pub kind: Kind,
    /// Identifier under which measurements are stored. The identifier stays the same after a
    /// reboot. For a device, the identifier consists of the model and serial number. If the model
    /// or serial number is unknown, the identifier contains the kernel's name of the device. For a
    /// loop device, the identifier contains the path of the image file. Without a device, the
    /// identifier contains the source of the mount.
    pub identity: String,
    /// Name of the file system, for example `ext4`. Empty for a bare device.
    pub file_system: String,
}

impl Storage {
    /// Returns the storage that contains an open file.
    pub fn of(file: &File) -> std::io::Result<Arc<Storage>> {
        Ok(Storage::beneath(file, &file.metadata()?))
    }

    fn beneath(file: &File, metadata: &Metadata) -> Arc<Storage> {
        type Known = Mutex<HashMap<(bool, u64), Arc<Storage>>>;
        static KNOWN: OnceLock<Known> = OnceLock::new();
        let on_disk = metadata.file_type().is_block_device();
        let number = if on_disk { metadata.rdev() } else { metadata.dev() };
        let known = KNOWN.get_or_init(Mutex::default);
        let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = lock().get(&(on_disk, number)) {
            return Arc::clone(found);
        }
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let found = Arc::new(look_up(&path.unwrap_or_default(), number, on_disk));
        lock().insert((on_disk, number), Arc::clone(&found));
        found
    }
}

fn look_up(path: &Path, number: u64, on_disk: bool) -> Storage {
    let number = (rustix::fs::major(number), rustix::fs::minor(number));
    let mount = if on_disk { None } else { mount::of(path, number) };
    let file_system = mount.as_ref().map_or_else(String::new, |m| m.file_system.clone());
    let options = mount.as_ref().map_or_else(String::new, |m| m.options.clone());
    let source = mount.map_or_else(String::new, |mount| mount.source);
    let by_source = || {
        let metadata = std::fs::metadata(PathBuf::from(&source)).ok()?;
        let number = metadata.rdev();
        let is_device = metadata.file_type().is_block_device();
        is_device.then(|| Device::of((rustix::fs::major(number), rustix::fs::minor(number))))?
    };
    match Device::of(number).or_else(by_source) {
        Some(device) => {
            let info = device.info();
            let identity = device.text("loop/backing_file").map_or_else(
                || identity_of(&info),
                // The number of a loop device changes with every use, but the path of its image
                // file does not.
                |image| format!("loop over {image}"),
            );
            Storage { kind: kind_of(&device, &info), identity, file_system }
        }
        None => {
            let kind = kind_of_file_system(&file_system);
            let from = upper_folder(&options).unwrap_or(source);
            let identity = format!("{file_system} from {from}");
            Storage { kind, identity, file_system }
        }
    }
}

/// Returns the upper directory of an overlay file system. The source of the mount is not an
/// identifier, because it is "overlay" for every overlay.
fn upper_folder(options: &str) -> Option<String> {
    options.split(',').find_map(|option| option.strip_prefix("upperdir=")).map(str::to_owned)
}

fn identity_of(info: &DeviceInfo) -> String {
    let model = info.model.as_deref().map(str::trim).filter(|model| !model.is_empty());
    let serial = info.serial.as_deref().map(str::trim).filter(|serial| !serial.is_empty());
    match (model, serial) {
        (Some(model), Some(serial)) => format!("{model} {serial}"),
        (None, Some(serial)) => format!("{} {serial}", info.name),
        _ => info.name.clone(),
    }
}

fn kind_of(device: &Device, info: &DeviceInfo) -> Kind {
    let name = info.name.as_str();
    let begins = |with: &[&str]| with.iter().any(|with| name.starts_with(with));
    if begins(&["ram", "zram"]) {
        Kind::Memory
    } else if begins(&["nvme"]) {
        Kind::Nvme
    } else if begins(&["vd", "xvd"]) {
        Kind::Virtual
    } else if begins(&["nbd", "rbd"]) {
        Kind::Network
    } else if begins(&["md", "dm-", "loop"]) || !device.slaves().is_empty() {
        Kind::Other
    } else {
        match info.rotational {
            Some(true) => Kind::Disk,
            Some(false) => Kind::Flash,
            None => Kind::Other,
        }
    }
}

fn kind_of_file_system(name: &str) -> Kind {
    match name {
        "tmpfs" | "ramfs" | "hugetlbfs" => Kind::Memory,
        _ if mount::is_network(name) || name.starts_with("fuse") => Kind::Network,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_memory_is_recognised() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return };
        let storage = Storage::of(&file).unwrap();
        if storage.file_system == "tmpfs" {
            assert_eq!(storage.kind, Kind::Memory);
        }
        assert_eq!(Storage::of(&file).unwrap(), storage, "the second result is the same");
    }

    #[test]
    fn the_identity_of_a_device_survives_a_reboot() {
        let info = |model: Option<&str>, serial: Option<&str>| DeviceInfo {
            name: "sda".into(),
            model: model.map(Into::into),
            serial: serial.map(Into::into),
            ..DeviceInfo::default()
        };
        assert_eq!(identity_of(&info(Some("Fast "), Some("S1"))), "Fast S1");
        assert_eq!(identity_of(&info(None, Some("S1"))), "sda S1");
        assert_eq!(identity_of(&info(Some("Fast"), Some(" "))), "sda");
    }

    #[test]
    fn overlays_are_identified_by_their_upper_directory() {
        let upper = |options| upper_folder(options);
        assert_eq!(upper("rw,lowerdir=/a,upperdir=/b/c,workdir=/d"), Some("/b/c".into()));
        assert_eq!(upper("rw,relatime"), None);
    }

    #[test]
    fn file_systems_without_a_device_have_a_kind_too() {
        assert_eq!(kind_of_file_system("nfs4"), Kind::Network);
        assert_eq!(kind_of_file_system("fuse.sshfs"), Kind::Network);
        assert_eq!(kind_of_file_system("overlay"), Kind::Other);
    }
}
