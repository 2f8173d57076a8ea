//! Gives access to the data of a file through a bind mount of its directory, or through a loop
//! device. The kernel removes the bind mount or loop device when its descriptor is closed, even if
//! the process is killed, so no cleanup is necessary. Bind mounts and loop devices need root.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::sys;

/// The number of attempts to get a free loop device. Another program may take a free device first.
const TRIES: u32 = 8;
/// The error number if another program took the loop device first.
const BUSY: i32 = libc::EBUSY;

/// A detached bind mount of a directory. The mount is not visible in the directory tree.
#[derive(Debug)]
pub struct BindMount {
    tree: OwnedFd,
}

impl BindMount {
    /// Creates a bind mount of a directory.
    ///
    /// # Errors
    /// If the process is not root, or if the kernel is older than 5.2.
    pub fn of(folder: &Path) -> io::Result<BindMount> {
        let folder = CString::new(folder.as_os_str().as_bytes())?;
        Ok(BindMount { tree: sys::clone_tree(&folder)? })
    }

    /// Returns the path of a file in the directory through this mount. The path is valid only in
    /// this process.
    pub fn path(&self, file: &str) -> PathBuf {
        Path::new("/proc/self/fd").join(self.tree.as_raw_fd().to_string()).join(file)
    }
}

/// A read-only loop device over a file. The device uses direct I/O on the file if possible.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    _device: File,
}

impl LoopDevice {
    /// Attaches a file to a free loop device.
    ///
    /// # Errors
    /// If the process is not root, the `loop` module is missing, the kernel is older than 5.8, or
    /// the file system does not support loop devices.
    pub fn over(file: &File) -> io::Result<LoopDevice> {
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
        let mut last = io::Error::from_raw_os_error(BUSY);
        for _ in 0..TRIES {
            let path = PathBuf::from(format!("/dev/loop{}", sys::free_loop(&control)?));
            let device = File::open(&path)?;
            match sys::configure_loop(&device, file) {
                Ok(()) => return Ok(LoopDevice { path, _device: device }),
                Err(error) if error.raw_os_error() == Some(BUSY) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Returns the path of the device node.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Creates a file of 64 KiB. Returns its directory, its path and its content.
    fn folder() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bytes");
        let bytes: Vec<u8> = (0..64 << 10).map(|at: u32| (at / 7) as u8).collect();
        let mut file = File::create(&path).unwrap();
        file.write_all(&bytes).unwrap();
        file.sync_all().unwrap();
        (folder, path, bytes)
    }

    /// Returns None on an error, and prints that the test is skipped.
    fn or_skip<T>(made: io::Result<T>) -> Option<T> {
        made.inspect_err(|error| eprintln!("skipped: {error} (needs root, loop devices)")).ok()
    }

    #[test]
    fn a_bind_mount_shows_the_same_bytes_and_vanishes_on_drop() {
        let (folder, _, bytes) = folder();
        let Some(mount) = or_skip(BindMount::of(folder.path())) else { return };
        let path = mount.path("bytes");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(folder.path().to_str().unwrap()), "no mount in the tree");
        drop(mount);
        assert!(std::fs::read(&path).is_err());
    }

    #[test]
    fn a_loop_device_shows_the_same_bytes_and_releases_the_file_on_drop() {
        let (_folder, path, bytes) = folder();
        let Some(device) = or_skip(LoopDevice::over(&File::open(&path).unwrap())) else { return };
        assert_eq!(std::fs::read(device.path()).unwrap(), bytes);
        let name = device.path().file_name().unwrap().to_owned();
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        let is_ours =
            || std::fs::read_to_string(&backing).is_ok_and(|text| Path::new(text.trim()) == path);
        assert!(is_ours());
        drop(device);
        // The kernel detaches the file asynchronously.
        for _ in 0..100 {
            if !is_ours() {
                return;
            }
            sys::sleep_ns(10_000_000);
        }
        panic!("{} is still attached", path.display());
    }
}
