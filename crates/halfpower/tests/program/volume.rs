//! Loop devices and small file systems on them. Dropping a value unmounts its file system and
//! detaches its devices, also after a panic.
//!
//! They need root and a kernel with loop devices. Without these, the functions return the reason,
//! and the caller skips the test.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::fixture::{self, noise, pause, temporary_folder};

/// Runs a system command. Returns its output, or the reason why it failed.
fn system(line: &[&str]) -> Result<String, String> {
    let output = Command::new(line[0])
        .args(&line[1..])
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .output()
        .map_err(|error| format!("needs {}: {error}", line[0]))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{}: {}", line.join(" "), said.trim().replace('\n', " ")))
    }
}

/// An attached loop device. Dropping this value detaches the device.
pub struct LoopDevice {
    path: String,
    image: PathBuf,
    _folder: TempDir,
}

impl LoopDevice {
    /// Creates a device of this size with random content.
    pub fn new(bytes: u64) -> Result<LoopDevice, String> {
        fixture::root()?;
        let folder = temporary_folder();
        let image = folder.path().join("image");
        fs::write(&image, noise(bytes)).map_err(|error| error.to_string())?;
        Ok(LoopDevice { path: attach(&image)?, image, _folder: folder })
    }

    /// Creates a device of this size that is filled with zeros.
    pub fn blank(bytes: u64) -> Result<LoopDevice, String> {
        fixture::root()?;
        let folder = temporary_folder();
        let image = folder.path().join("image");
        File::create(&image).unwrap().set_len(bytes).unwrap();
        Ok(LoopDevice { path: attach(&image)?, image, _folder: folder })
    }

    /// Attaches a loop device to an existing file or device.
    pub fn of(image: &Path) -> Result<LoopDevice, String> {
        fixture::root()?;
        let path = attach(image)?;
        Ok(LoopDevice { path, image: image.to_path_buf(), _folder: temporary_folder() })
    }

    pub fn image(&self) -> &Path {
        &self.image
    }

    /// Creates a partition and returns its path. The partition is removed with the device.
    pub fn partition(&self, number: u32, from_mib: u64, mib: u64) -> Result<String, String> {
        let sectors = |mib: u64| (mib * 2048).to_string();
        let number = number.to_string();
        system(&["addpart", &self.path, &number, &sectors(from_mib), &sectors(mib)])?;
        let path = format!("{}p{number}", self.path);
        soon(|| fs::exists(&path).unwrap());
        Ok(path)
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// Truncates the image to half its size, so that requests to the second half fail.
    pub fn breaks(&self) {
        let image = File::options().write(true).open(&self.image).unwrap();
        image.set_len(image.metadata().unwrap().len() / 2).unwrap();
    }

    pub fn content(&self) -> Vec<u8> {
        // Data may still be in the page cache of the device.
        File::open(&self.path).unwrap().sync_all().unwrap();
        fs::read(&self.image).unwrap()
    }
}

fn attach(image: &Path) -> Result<String, String> {
    // Without `--partscan`, some kernels do not look for partitions.
    system(&["losetup", "--find", "--partscan", "--show", &image.display().to_string()])
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let backing = self.path.replacen("/dev/", "/sys/block/", 1) + "/loop/backing_file";
        let backing = || fs::read_to_string(&backing).unwrap_or_default();
        let own = backing();
        // If the device is in use, the kernel detaches it later. A successful command is not
        // repeated, because another test may by then have attached a device with the same number.
        if !soon(|| system(&["losetup", "--detach", &self.path]).is_ok())
            || !soon(|| backing() != own)
        {
            eprintln!("{} is still attached", self.path);
        }
    }
}

/// Repeats an attempt for up to 5 s, because the kernel may release the files of ended programs
/// with a delay (io_uring).
fn soon(mut attempt: impl FnMut() -> bool) -> bool {
    (0..250).any(|_| {
        let done = attempt();
        if !done {
            pause(20);
        }
        done
    })
}

/// Runs a command that creates a file system, swap space or similar.
pub fn make(command: &[&str]) -> Result<(), String> {
    system(command).map(|_| ())
}

fn mount(device: &str) -> Result<Mounted, String> {
    let folder = temporary_folder();
    system(&["mount", device, &folder.path().display().to_string()])?;
    Ok(Mounted(folder))
}

/// A mounted device. Dropping this value unmounts the device.
pub struct Mounted(TempDir);

impl Mounted {
    /// Mounts a device that has a file system.
    pub fn device(device: &str) -> Result<Mounted, String> {
        mount(device)
    }

    /// Runs a mount command, to which the path of a new directory is appended.
    pub fn by(command: &[&str]) -> Result<Mounted, String> {
        fixture::root()?;
        let folder = temporary_folder();
        system(&[command, &[&*folder.path().display().to_string()]].concat())?;
        Ok(Mounted(folder))
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }
}

/// A mounted btrfs on two loop devices. Dropping this value unmounts the file system and detaches
/// the devices.
pub struct TwoDevices {
    folder: Mounted,
    pub devices: [LoopDevice; 2],
}

impl TwoDevices {
    /// Creates a btrfs with a profile such as raid1, on devices of this size.
    pub fn new(profile: &str, bytes: u64) -> Result<TwoDevices, String> {
        let devices = [LoopDevice::blank(bytes)?, LoopDevice::blank(bytes)?];
        let paths = devices.each_ref().map(LoopDevice::path);
        make(&[&["mkfs.btrfs", "-q", "-f", "-d", profile, "-m", profile], &paths[..]].concat())?;
        let folder = mount(paths[0])?;
        Ok(TwoDevices { folder, devices })
    }

    pub fn folder(&self) -> &Path {
        self.folder.folder()
    }
}

/// Swap space in use. Dropping this value turns the swap space off.
pub struct Swap(String);

impl Swap {
    /// Creates swap space on a device or file and turns it on.
    pub fn on(path: &str) -> Result<Swap, String> {
        fixture::root()?;
        system(&["mkswap", path])?;
        system(&["swapon", path])?;
        Ok(Swap(path.to_owned()))
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        if let Err(error) = system(&["swapoff", &self.0]) {
            eprintln!("{error}");
        }
    }
}

/// A small mounted file system on a loop device. Dropping this value unmounts the file system and
/// detaches the device.
pub struct Volume {
    folder: Mounted,
    pub device: LoopDevice,
}

impl Volume {
    /// Creates an empty ext4 file system on a device of this size.
    pub fn new(bytes: u64) -> Result<Volume, String> {
        let device = LoopDevice::new(bytes)?;
        // No blocks are reserved for root, so the tests can fill the file system.
        make(&["mkfs.ext4", "-q", "-F", "-m", "0", device.path()])?;
        let folder = mount(device.path())?;
        Ok(Volume { folder, device })
    }

    /// Runs this mkfs command on a device and mounts the file system.
    pub fn on(device: LoopDevice, command: &[&str]) -> Result<Volume, String> {
        make(&[command, &[device.path()]].concat())?;
        let folder = mount(device.path())?;
        Ok(Volume { folder, device })
    }

    /// Mounts the device again.
    pub fn is_back(&self) -> Result<(), String> {
        let folder = self.folder().display().to_string();
        system(&["mount", self.device.path(), &folder]).map(|_| ())
    }

    /// Unmounts the device although files on it may be open.
    pub fn is_taken_away(&self) -> Result<(), String> {
        system(&["umount", "--lazy", &self.folder().display().to_string()]).map(|_| ())
    }

    pub fn folder(&self) -> &Path {
        self.folder.folder()
    }

    pub fn is_read_only_now(&self) -> Result<(), String> {
        system(&["mount", "-o", "remount,ro", &self.folder().display().to_string()]).map(|_| ())
    }

    /// Fills the file system until only `but_bytes` bytes are free.
    pub fn fill_up(&self, but_bytes: u64) {
        let path = self.folder().join("filler");
        let mut filler = File::create(&path).unwrap();
        let chunk = noise(1 << 16);
        let mut written = 0;
        while let Ok(()) = filler.write_all(&chunk) {
            written += chunk.len() as u64;
        }
        filler.set_len(written.saturating_sub(but_bytes)).unwrap();
        filler.sync_all().unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let folder = self.folder().display().to_string();
        if !soon(|| system(&["umount", &folder]).is_ok())
            && let Err(error) = system(&["umount", "--lazy", &folder])
        {
            eprintln!("{error}");
        }
    }
}
