//! Further paths to the bytes of a file: a bind mount of its folder, a loop device over it. Each is
//! only there as long as its value lives, even where the process is killed: the kernel takes it
//! away when its descriptor is closed, so nothing has to be cleaned up. Both need root.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::sys;

/// How often a free loop device is asked for: another program may be faster.
const TRIES: u32 = 8;
/// The error of a device that was taken in between.
const BUSY: i32 = libc::EBUSY;

/// A bind mount of a folder, nowhere in the tree of files.
#[derive(Debug)]
pub struct BindMount {
    tree: OwnedFd,
}

impl BindMount {
    /// Mounts a folder.
    ///
    /// # Errors
    /// No rights (root), or a kernel before 5.2.
    pub fn of(folder: &Path) -> io::Result<BindMount> {
        let folder = CString::new(folder.as_os_str().as_bytes())?;
        Ok(BindMount { tree: sys::clone_tree(&folder)? })
    }

    /// The path of a file of the folder through this mount, for this process.
    pub fn path(&self, file: &str) -> PathBuf {
        Path::new("/proc/self/fd").join(self.tree.as_raw_fd().to_string()).join(file)
    }
}

/// A loop device over a file, for reading; it passes the page cache by where it can.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    _device: File,
}

impl LoopDevice {
    /// Puts a file behind a free loop device.
    ///
    /// # Errors
    /// No rights (root), no module `loop`, a kernel before 5.8, a file system that cannot.
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

    /// The device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A folder with a file of so many bytes that are not all alike.
    fn folder() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bytes");
        let bytes: Vec<u8> = (0..64 << 10).map(|at: u32| (at / 7) as u8).collect();
        let mut file = File::create(&path).unwrap();
        file.write_all(&bytes).unwrap();
        file.sync_all().unwrap();
        (folder, path, bytes)
    }

    /// What needs root ends a test as skipped.
    fn or_skip<T>(made: io::Result<T>) -> Option<T> {
        made.inspect_err(|error| eprintln!("skipped: {error} (needs root, loop devices)")).ok()
    }

    #[test]
    fn a_bind_mount_shows_the_same_bytes_and_is_gone_with_its_value() {
        let (folder, _, bytes) = folder();
        let Some(mount) = or_skip(BindMount::of(folder.path())) else { return };
        let path = mount.path("bytes");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(folder.path().to_str().unwrap()), "it is nowhere in the tree");
        drop(mount);
        assert!(std::fs::read(&path).is_err());
    }

    #[test]
    fn a_loop_device_shows_the_same_bytes_and_lets_go_of_the_file() {
        let (_folder, path, bytes) = folder();
        let Some(device) = or_skip(LoopDevice::over(&File::open(&path).unwrap())) else { return };
        assert_eq!(std::fs::read(device.path()).unwrap(), bytes);
        let name = device.path().file_name().unwrap().to_owned();
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        let is_ours =
            || std::fs::read_to_string(&backing).is_ok_and(|text| Path::new(text.trim()) == path);
        assert!(is_ours());
        drop(device);
        // The kernel lets go in its own time.
        for _ in 0..100 {
            if !is_ours() {
                return;
            }
            sys::sleep_ns(10_000_000);
        }
        panic!("{} is still held", path.display());
    }
}
