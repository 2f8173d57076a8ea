//! Devices made for the campaign and always taken away again: loop devices, file systems on them,
//! and files served over FUSE by another process of the program.
//!
//! What this machine does not offer is an error of the kind `Missing`, which skips the class.

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

/// Runs a system command for what it prints; a failure skips the class.
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

/// Tries for a few seconds: the kernel lets go of files in its own time.
pub fn soon(mut attempt: impl FnMut() -> bool) -> bool {
    (0..250).any(|_| {
        let done = attempt();
        if !done {
            pause(20);
        }
        done
    })
}

/// A block device that is a file; dropping it detaches it.
pub struct LoopDevice {
    /// Its kernel path.
    pub path: String,
    image: PathBuf,
    /// Where the image lies, if it was made for this device.
    folder: Option<TempDir>,
}

impl LoopDevice {
    /// A device on a file that exists and stays.
    pub fn on(image: PathBuf) -> Result<LoopDevice> {
        let path = system(&["losetup", "--find", "--show", &image.display().to_string()])?;
        Ok(LoopDevice { path, image, folder: None })
    }

    /// The same, past the page cache of the file system in which the file lies.
    pub fn direct(image: PathBuf) -> Result<LoopDevice> {
        let device = LoopDevice::on(image)?;
        system(&["losetup", "--direct-io=on", &device.path])?;
        Ok(device)
    }

    /// A device of this size, full of noise.
    pub fn new(context: &Context, bytes: u64) -> Result<LoopDevice> {
        let folder = tempfile::tempdir_in(&context.folder)?;
        let image = folder.path().join("image");
        fs::write(&image, noise(bytes))?;
        let mut device = LoopDevice::on(image)?;
        device.folder = Some(folder);
        Ok(device)
    }

    /// Takes the second half of the medium away: requests there fail from now on.
    pub fn breaks(&self) -> Result<()> {
        let image = File::options().write(true).open(&self.image)?;
        Ok(image.set_len(image.metadata()?.len() / 2)?)
    }

    /// Asks the kernel to take the device away, which it does when nobody has it open.
    pub fn detach(&self) -> Result<String> {
        system(&["losetup", "--detach", &self.path])
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let backing = self.path.replacen("/dev/", "/sys/block/", 1) + "/loop/backing_file";
        let image = self.image.display().to_string();
        // Only while it is ours: after a detach the number may be somebody else's.
        let ours = || fs::read_to_string(&backing).is_ok_and(|file| file.trim() == image);
        let gone = soon(|| {
            if ours() {
                let _ = system(&["losetup", "--detach", &self.path]);
            }
            !ours()
        });
        if !gone {
            eprintln!("{} is still attached", self.path);
        }
    }
}

/// A small file system on a loop device, mounted; dropping it unmounts it.
pub struct Volume {
    folder: TempDir,
    device: LoopDevice,
}

impl Volume {
    /// An empty ext4 on a device of this size.
    pub fn new(context: &Context, bytes: u64) -> Result<Volume> {
        // Without blocks for root alone, so that full is full.
        let ext4 = ["mkfs.ext4", "-q", "-F", "-m", "0"];
        Volume::on(context, LoopDevice::new(context, bytes)?, &ext4)
    }

    /// An empty file system on a device, made by this command with the device behind it.
    pub fn on(context: &Context, device: LoopDevice, mkfs: &[&str]) -> Result<Volume> {
        system(&[mkfs, &[device.path.as_str()]].concat())?;
        let folder = tempfile::tempdir_in(&context.folder)?;
        let volume = Volume { folder, device };
        volume.mount()?;
        Ok(volume)
    }

    /// Mounts it, for the first time or again.
    pub fn mount(&self) -> Result<String> {
        system(&["mount", &self.device.path, &self.folder().display().to_string()])
    }

    /// Where it is mounted.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Fills it up but for so many bytes; the filler is `filler`.
    pub fn fill_up(&self, but_bytes: u64) -> Result<()> {
        let mut filler = File::create(self.folder().join("filler"))?;
        let chunk = noise(1 << 16);
        let mut written = 0;
        while filler.write_all(&chunk).is_ok() {
            written += chunk.len() as u64;
        }
        filler.set_len(written.saturating_sub(but_bytes))?;
        Ok(filler.sync_all()?)
    }

    /// Unmounts it while files in it are open: they stay, their names go.
    pub fn unmount_lazily(&self) -> Result<String> {
        system(&["umount", "--lazy", &self.folder().display().to_string()])
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        unmount(self.folder());
    }
}

/// Unmounts a folder or a file if something is mounted there.
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

/// A reference device, served as a file by a process of the program.
pub struct Served {
    server: Option<Running>,
    folder: TempDir,
}

impl Served {
    /// Mounts `truth:TRUTH` with more flags.
    pub fn new(context: &Context, place: &Place<'_>, truth: &str, flags: &str) -> Result<Served> {
        let folder = tempfile::tempdir_in(&context.folder)?;
        let line = format!("mount truth:{truth} {} {flags}", folder.path().display());
        let mut server = place.start(&line)?;
        if !server.until(|server| server.said().contains('\n'))? {
            let said = fs::read_to_string(&server.stderr).unwrap_or_default();
            bail!(Missing(format!("FUSE: {}", said.trim())));
        }
        Ok(Served { server: Some(server), folder })
    }

    /// The file.
    pub fn file(&self) -> String {
        self.folder.path().join("device").display().to_string()
    }

    /// Kills its server: the device is gone without a word.
    pub fn dies(&mut self) {
        self.server = None;
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let _ = server.signal(Signal::SIGTERM);
            let _ = server.ended_within(5000, |_| {});
        }
        unmount(self.folder.path());
    }
}
