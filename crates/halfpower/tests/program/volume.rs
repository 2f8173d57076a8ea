//! Loop devices and small file systems on them, made by the tests and always taken away again.
//!
//! Making one needs root and a kernel with loop devices; where they are missing the caller learns
//! why and skips. Dropping a value unmounts and detaches, also after a panic.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::fixture::{self, noise, pause, temporary_folder};

/// Runs a system command for what it prints, or says why it failed.
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

/// A block device that is a file; dropping it detaches it.
pub struct LoopDevice {
    path: String,
    image: PathBuf,
    _folder: TempDir,
}

impl LoopDevice {
    /// A device of this size, full of noise.
    pub fn new(bytes: u64) -> Result<LoopDevice, String> {
        fixture::root()?;
        let folder = temporary_folder();
        let image = folder.path().join("image");
        fs::write(&image, noise(bytes)).map_err(|error| error.to_string())?;
        let path = system(&["losetup", "--find", "--show", &image.display().to_string()])?;
        Ok(LoopDevice { path, image, _folder: folder })
    }

    /// Its kernel path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Takes the second half of the medium away: requests there fail from now on.
    pub fn breaks(&self) {
        let image = File::options().write(true).open(&self.image).unwrap();
        image.set_len(image.metadata().unwrap().len() / 2).unwrap();
    }

    /// What is on it now.
    pub fn content(&self) -> Vec<u8> {
        // Whatever passed through the device's own page cache has to reach the image first.
        File::open(&self.path).unwrap().sync_all().unwrap();
        fs::read(&self.image).unwrap()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let attached = self.path.replacen("/dev/", "/sys/block/", 1) + "/loop/backing_file";
        let gone_soon = soon(|| {
            // While the device is still held this only marks it; so ask until it is gone.
            let _ = system(&["losetup", "--detach", &self.path]);
            !fs::exists(&attached).unwrap_or(true)
        });
        if !gone_soon {
            eprintln!("{} is still attached", self.path);
        }
    }
}

/// Tries for a few seconds. A program that has ended may hold its files a little longer: the
/// kernel takes rings down in its own time.
fn soon(mut attempt: impl FnMut() -> bool) -> bool {
    (0..250).any(|_| {
        let done = attempt();
        if !done {
            pause(20);
        }
        done
    })
}

/// A small ext4 on a loop device, mounted; dropping it unmounts it.
pub struct Volume {
    folder: TempDir,
    pub device: LoopDevice,
}

impl Volume {
    /// An empty file system on a device of this size.
    pub fn new(bytes: u64) -> Result<Volume, String> {
        let device = LoopDevice::new(bytes)?;
        // Without blocks for root alone, so that full is full.
        let make = ["mkfs.ext4", "-q", "-F", "-m", "0", device.path()];
        system(&make)?;
        let folder = temporary_folder();
        system(&["mount", device.path(), &folder.path().display().to_string()])?;
        Ok(Volume { folder, device })
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn is_read_only_now(&self) -> Result<(), String> {
        system(&["mount", "-o", "remount,ro", &self.folder().display().to_string()]).map(|_| ())
    }

    /// Fills it up but for so many bytes.
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

impl Drop for Volume {
    fn drop(&mut self) {
        let folder = self.folder().display().to_string();
        if !soon(|| system(&["umount", &folder]).is_ok())
            && let Err(error) = system(&["umount", "--lazy", &folder])
        {
            eprintln!("{error}");
        }
    }
}
