//! Reads what the kernel reports about block devices, mounts and swap in `/sys` and `/proc`.
//!
//! All paths are relative to a root directory, which is `/`. Tests use a directory of simulated
//! files instead, and can thus use volumes that this machine does not have. The module writes
//! nothing. Entries that cannot be read are treated as missing.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::device::Device;
use crate::mount::{self, Mount};
use crate::sys;

/// A reader of the kernel's files in `/sys` and `/proc`.
#[derive(Clone, Debug)]
pub struct Kernel {
    root: PathBuf,
    /// The block devices that other programs have open for writing. The list is built at the first
    /// use.
    device_writers: Arc<OnceLock<Vec<Writer>>>,
}

/// A file or device that another program has open for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The file or device that is open.
    pub of: Backing,
    /// The name of the program.
    pub program: String,
    /// The process ID of the program.
    pub process: u32,
}

/// An attached loop device.
#[derive(Clone, Debug)]
pub struct LoopDevice {
    /// The loop device.
    pub device: Device,
    /// The path of the file or device behind the loop device, according to sysfs.
    pub backing: PathBuf,
    /// The identity of the file or device behind the loop device. None if it is unknown.
    pub identity: Option<Backing>,
}

/// The identity of a file or device, independent of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A regular file, identified by the device number of its file system and its inode number.
    File(u64, u64),
    /// A block device, identified by its device number.
    Device(u64),
}

impl Backing {
    /// Returns the identity of the file or device with this metadata.
    pub fn of(metadata: &fs::Metadata) -> Backing {
        if metadata.file_type().is_block_device() {
            Backing::Device(metadata.rdev())
        } else {
            Backing::File(metadata.dev(), metadata.ino())
        }
    }
}

/// A mounted btrfs file system and its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Btrfs {
    /// The UUID of the file system.
    pub uuid: String,
    /// The label of the file system. None if it has no label.
    pub label: Option<String>,
    /// The kernel names of the devices of the file system.
    pub members: Vec<String>,
}

impl Kernel {
    /// Creates a reader of the kernel files of this machine.
    pub fn of_host() -> Kernel {
        Kernel::below(Path::new("/"))
    }

    /// Creates a reader of kernel files below another root directory, for tests.
    pub fn below(root: &Path) -> Kernel {
        Kernel { root: root.to_path_buf(), device_writers: Arc::default() }
    }

    /// Converts an absolute path to the path below this root.
    pub fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        self.root.join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// Returns the device with this device number (major, minor).
    pub fn numbered(&self, (major, minor): (u32, u32)) -> Option<Device> {
        let link = self.path(format!("/sys/dev/block/{major}:{minor}"));
        Device::at(fs::canonicalize(link).ok()?)
    }

    /// Returns the device with this kernel name ("sda1").
    pub fn named(&self, name: &str) -> Option<Device> {
        let link = self.path(format!("/sys/class/block/{name}"));
        Device::at(fs::canonicalize(link).ok()?)
    }

    /// Returns the device at a path, which may be a symbolic link or a device node with another
    /// name.
    pub fn at(&self, path: &Path) -> Option<Device> {
        if !path.is_absolute() {
            return None;
        }
        let found = fs::metadata(self.path(path)).ok();
        if let Some(Backing::Device(number)) = found.as_ref().map(Backing::of) {
            return self.numbered((libc::major(number), libc::minor(number)));
        }
        // The device node may be missing, for example in another mount namespace, so the device is
        // looked up by name.
        let name = path.strip_prefix("/dev").ok()?.to_str()?;
        match name.strip_prefix("mapper/") {
            None => self.named(name),
            Some(mapped) => {
                self.all().into_iter().find(|d| volume_name(d).as_deref() == Some(mapped))
            }
        }
    }

    /// Returns all whole disks and volumes, sorted by name.
    pub fn all(&self) -> Vec<Device> {
        let entries = fs::read_dir(self.path("/sys/block")).into_iter().flatten().flatten();
        let folders = entries.filter_map(|entry| fs::canonicalize(entry.path()).ok());
        let mut devices: Vec<Device> = folders.filter_map(Device::at).collect();
        devices.sort_by_key(Device::name);
        devices
    }

    /// Returns the persistent names of a device: the names of its links in /dev/disk/by-id.
    pub fn by_id(&self, device: &Device) -> Vec<String> {
        let entries = fs::read_dir(self.path("/dev/disk/by-id")).into_iter().flatten().flatten();
        let leads_to_it = |entry: &fs::DirEntry| {
            let to = fs::read_link(entry.path()).unwrap_or_default();
            to.file_name().is_some_and(|name| name.to_string_lossy() == device.name())
        };
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<String> = entries.filter(leads_to_it).map(name).collect();
        names.sort();
        names
    }

    /// Returns the mounts in the mount namespace of this process, in the order of mounting.
    pub fn mounts(&self) -> Vec<Mount> {
        mount::parse(&self.read("/proc/self/mountinfo"))
    }

    /// Returns the paths of the files and devices that are used as swap.
    pub fn swaps(&self) -> Vec<PathBuf> {
        let first = |line: &str| line.split_whitespace().next().map(mount::unescape);
        let text = self.read("/proc/swaps");
        text.lines().skip(1).filter_map(first).map(PathBuf::from).collect()
    }

    /// Returns the attached loop devices.
    pub fn loops(&self) -> Vec<LoopDevice> {
        let attached = |device: Device| {
            let backing = PathBuf::from(device.text("loop/backing_file")?);
            // Another file may now have the path that sysfs shows. LOOP_GET_STATUS identifies the
            // backing file correctly, but needs permission to open the device.
            let node = File::open(self.path(format!("/dev/{}", device.name())));
            let status = node.ok().and_then(|node| sys::loop_backing(&node).ok());
            let identity = match status {
                Some((dev, inode, 0)) => Some(Backing::File(dev, inode)),
                Some((_, _, number)) => Some(Backing::Device(number)),
                None => self.backing_at(&backing),
            };
            Some(LoopDevice { device, backing, identity })
        };
        self.all().into_iter().filter_map(attached).collect()
    }

    /// Returns the identity of the file or device at a path.
    pub fn backing_at(&self, path: &Path) -> Option<Backing> {
        if let Some((major, minor)) = self.at(path).as_ref().and_then(Device::number) {
            return Some(Backing::Device(libc::makedev(major, minor)));
        }
        fs::metadata(self.path(path)).ok().map(|metadata| Backing::of(&metadata))
    }

    /// Returns the mounted btrfs file systems, each of which may have several devices.
    pub fn btrfs(&self) -> Vec<Btrfs> {
        let systems = fs::read_dir(self.path("/sys/fs/btrfs")).into_iter().flatten().flatten();
        let read = |entry: fs::DirEntry| {
            let names = fs::read_dir(entry.path().join("devices")).ok()?;
            let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
            let mut members: Vec<String> = names.flatten().map(name).collect();
            members.sort();
            let label = fs::read_to_string(entry.path().join("label")).unwrap_or_default();
            let label = Some(label.trim().to_owned()).filter(|label| !label.is_empty());
            Some(Btrfs { uuid: name(entry), label, members })
        };
        systems.filter_map(read).collect()
    }
}

/// The configfs directory of nvmet, with which the kernel exports devices and files over NVMe.
const NVME_TARGET: &str = "/sys/kernel/config/nvmet/subsystems";

/// The access mode in the flags of open(2): read, write or both.
const ACCESS_BITS: u32 = libc::O_ACCMODE as u32;

impl Kernel {
    /// Returns the devices and files that the kernel exports over NVMe (nvmet). The kernel opens
    /// them without exclusive access, so they do not appear to be in use.
    pub fn exported_by_nvme_target(&self) -> Vec<PathBuf> {
        let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
        let subsystems = entries(self.path(NVME_TARGET));
        let namespaces = subsystems.flat_map(|one| entries(one.path().join("namespaces")));
        let exported = |namespace: fs::DirEntry| {
            let text = |name: &str| fs::read_to_string(namespace.path().join(name)).ok();
            let is_enabled = text("enable")?.trim() == "1";
            is_enabled.then_some(PathBuf::from(text("device_path")?.trim()))
        };
        namespaces.filter_map(exported).collect()
    }

    /// Returns a process of another program that has a block device open for writing. `number` is
    /// the device number. Only root can find processes of other users.
    pub fn writer_of_device(&self, number: u64) -> Option<&Writer> {
        let is_device = |backing| matches!(backing, Backing::Device(_));
        let writers = self.device_writers.get_or_init(|| self.writers(is_device));
        writers.iter().find(|writer| writer.of == Backing::Device(number))
    }

    /// Returns a process of another program that has a regular file open for writing. Only root can
    /// find processes of other users.
    pub fn writer_of_file(&self, file: Backing) -> Option<Writer> {
        self.writers(|backing| backing == file).into_iter().next()
    }

    /// Returns the files and block devices that other programs have open for writing. Only those
    /// for which `is_wanted` returns true are included.
    fn writers(&self, is_wanted: impl Fn(Backing) -> bool) -> Vec<Writer> {
        let proc = self.path("/proc");
        let own_program = backing_of_descriptor(&proc.join("self/exe"));
        let mut found = Vec::new();
        for process in fs::read_dir(&proc).into_iter().flatten().flatten() {
            let name = process.file_name();
            let Some(id) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            let folder = process.path();
            let program = backing_of_descriptor(&folder.join("exe"));
            if id == std::process::id() || (program.is_some() && program == own_program) {
                continue;
            }
            for descriptor in fs::read_dir(folder.join("fd")).into_iter().flatten().flatten() {
                let Some(of) = backing_of_descriptor(&descriptor.path()) else { continue };
                let info = folder.join("fdinfo").join(descriptor.file_name());
                if is_wanted(of) && may_write(&fs::read_to_string(info).unwrap_or_default()) {
                    let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
                    found.push(Writer { of, program: name.trim().to_owned(), process: id });
                }
            }
        }
        found
    }
}

/// Returns the identity of the file behind a link such as /proc/PID/fd/3 or /proc/PID/exe. None if
/// it is neither a regular file nor a block device.
fn backing_of_descriptor(link: &Path) -> Option<Backing> {
    let known = sys::known_attributes(link)?;
    match known.mode & libc::S_IFMT {
        libc::S_IFREG => Some(Backing::File(known.device, known.inode)),
        libc::S_IFBLK => Some(Backing::Device(known.rdev)),
        _ => None,
    }
}

/// Returns true if a descriptor is open for writing. `info` is the content of its file in
/// /proc/PID/fdinfo (proc_pid_fdinfo(5)).
fn may_write(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & ACCESS_BITS != libc::O_RDONLY as u32)
}

/// Returns the name of a device-mapper volume ("vg-root"). None for other devices.
pub fn volume_name(device: &Device) -> Option<String> {
    device.text("dm/name")
}
