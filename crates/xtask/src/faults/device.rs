//! Temporary devices that are removed on drop: loop devices, file systems on loop devices, and
//! files that another halfpower process serves over FUSE.
//!
//! If the machine does not support such a device, the error is `Missing`, and the fault class is
//! skipped.

use super::place::{Context, Place, noise};
use super::running::{Running, pause};
use super::tally::Missing;
use anyhow::{Result, bail};
use nix::sys::signal::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Runs a system command and returns its output. If the command fails, the error is `Missing`, so
/// that the fault class is skipped.
pub fn system(line: &[&str]) -> Result<String> {
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => bail!(Missing(format!("needs {}: {error}", line[0]))),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
        bail!(Missing(format!("{}: {said}", line.join(" "))));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Repeats an attempt for up to five seconds, because the kernel may release a file late. Returns
/// whether an attempt succeeded.
pub fn soon(mut attempt: impl FnMut() -> bool) -> bool {
    (0..250).any(|_| {
        let done = attempt();
        if !done {
            pause(20);
        }
        done
    })
}

/// A loop device, detached on drop.
pub struct LoopDevice {
    /// Path of the device.
    pub path: String,
    image: PathBuf,
    /// Temporary folder of the image. None for an image that already existed.
    folder: Option<TempDir>,
}

impl LoopDevice {
    /// Attaches a loop device to an existing file. The file is kept on drop.
    pub fn on(image: PathBuf) -> Result<LoopDevice> {
        let path = system(&["losetup", "--find", "--show", &image.display().to_string()])?;
        Ok(LoopDevice { path, image, folder: None })
    }

    /// Attaches a loop device to an existing file, with direct I/O to that file.
    pub fn direct(image: PathBuf) -> Result<LoopDevice> {
        let device = LoopDevice::on(image)?;
        system(&["losetup", "--direct-io=on", &device.path])?;
        Ok(device)
    }

    /// Creates a loop device of `bytes` bytes, filled with random data.
    pub fn new(context: &Context, bytes: u64) -> Result<LoopDevice> {
        let folder = tempfile::tempdir_in(&context.folder)?;
        let image = folder.path().join("image");
        fs::write(&image, noise(bytes))?;
        let mut device = LoopDevice::on(image)?;
        device.folder = Some(folder);
        Ok(device)
    }

    /// Truncates the image to half its size, so that requests to the second half fail.
    pub fn break_half(&self) -> Result<()> {
        let image = File::options().write(true).open(&self.image)?;
        Ok(image.set_len(image.metadata()?.len() / 2)?)
    }

    /// Tells the kernel to detach the device as soon as no process has the device open.
    pub fn detach(&self) -> Result<String> {
        system(&["losetup", "--detach", &self.path])
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let backing = self.path.replacen("/dev/", "/sys/block/", 1) + "/loop/backing_file";
        let image = self.image.display().to_string();
        // Another program may already use the same device number, so the image file is compared.
        let ours = || fs::read_to_string(&backing).is_ok_and(|file| file.trim() == image);
        let gone = soon(|| {
            if ours() {
                let _ = system(&["losetup", "--detach", &self.path]);
            }
            !ours()
        });
        if !gone {
            eprintln!("{0} is still attached; run: losetup --detach {0}", self.path);
        }
    }
}

/// A mounted file system on a loop device, unmounted on drop.
pub struct Volume {
    folder: TempDir,
    device: LoopDevice,
}

impl Volume {
    /// Creates an empty ext4 file system on a new loop device of `bytes` bytes and mounts it.
    pub fn new(context: &Context, bytes: u64) -> Result<Volume> {
        // No blocks are reserved for root, so that the file system can be filled completely.
        let ext4 = ["mkfs.ext4", "-q", "-F", "-m", "0"];
        Volume::on(context, LoopDevice::new(context, bytes)?, &ext4)
    }

    /// Creates an empty file system on a device and mounts it. `mkfs` is the command without the
    /// device, for example `mkfs.ext4 -q`.
    pub fn on(context: &Context, device: LoopDevice, mkfs: &[&str]) -> Result<Volume> {
        system(&[mkfs, &[device.path.as_str()]].concat())?;
        let folder = tempfile::tempdir_in(&context.folder)?;
        let volume = Volume { folder, device };
        volume.mount()?;
        Ok(volume)
    }

    /// Mounts the file system. Can be called again after an unmount.
    pub fn mount(&self) -> Result<String> {
        system(&["mount", &self.device.path, &self.folder().display().to_string()])
    }

    /// Returns the mount point.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Creates a file `filler` that fills the file system except for `free_bytes` bytes.
    pub fn fill_up(&self, free_bytes: u64) -> Result<()> {
        let mut filler = File::create(self.folder().join("filler"))?;
        let chunk = noise(1 << 16);
        let mut written = 0;
        while filler.write_all(&chunk).is_ok() {
            written += chunk.len() as u64;
        }
        filler.set_len(written.saturating_sub(free_bytes))?;
        Ok(filler.sync_all()?)
    }

    /// Unmounts the file system lazily: open files remain usable, but no path leads to the file
    /// system any more.
    pub fn unmount_lazily(&self) -> Result<String> {
        system(&["umount", "--lazy", &self.folder().display().to_string()])
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        unmount(self.folder());
    }
}

/// Unmounts a folder or a file if it is a mount point.
pub fn unmount(folder: &Path) {
    let name = folder.display().to_string();
    let mounted = || {
        let all = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        all.lines().any(|line| line.split(' ').nth(1) == Some(name.as_str()))
    };
    if !soon(|| !mounted() || system(&["umount", &name]).is_ok()) {
        let _ = system(&["umount", "--lazy", &name]);
    }
}

/// A reference device that another halfpower process serves as a file over FUSE.
pub struct Served<'a> {
    server: Option<Running>,
    folder: TempDir,
    /// The folders of the server process. The tested run must use other folders, because the server
    /// adds an entry to the journal, which would count as a leftover of the run.
    _place: Place<'a>,
}

impl<'a> Served<'a> {
    /// Runs `halfpower mount truth:TRUTH` with additional flags, and waits until the file is
    /// served.
    pub fn new(context: &'a Context, truth: &str, flags: &str) -> Result<Served<'a>> {
        let place = context.place()?;
        let folder = tempfile::tempdir_in(&context.folder)?;
        let line = format!("mount truth:{truth} {} {flags}", folder.path().display());
        let mut server = place.start(&line)?;
        if !server.until(|server| server.said().contains('\n'))? {
            let said = fs::read_to_string(&server.stderr).unwrap_or_default();
            bail!(Missing(format!("cannot serve a file over FUSE: {}", said.trim())));
        }
        Ok(Served { server: Some(server), folder, _place: place })
    }

    /// Returns the path of the served file.
    pub fn file(&self) -> String {
        self.folder.path().join("device").display().to_string()
    }

    /// Kills the FUSE server.
    pub fn kill_server(&mut self) {
        self.server = None;
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let _ = server.signal(Signal::SIGTERM);
            let _ = server.ended_within(5000, |_| {});
        }
        unmount(self.folder.path());
    }
}
