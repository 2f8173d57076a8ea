//! Slow block devices for tests. `SlowDevice` is a loop device on a FUSE file with known request
//! times. `Throttle` limits the rate of this process's reads with a cgroup.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fusefile::mounted::{Mounted, mount};
use fusefile::{KnownTruth, Spec};
use ioengine::fault::FaultPlan;
use ioengine::truth::Truth;
use tempfile::TempDir;

fn system(words: &[&str]) -> Result<String, String> {
    let output = Command::new(words[0]).args(&words[1..]).output().map_err(|e| e.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!("{}: {}", words[0], String::from_utf8_lossy(&output.stderr).trim()))
}

/// A loop device with known request times, which a [`Truth`] specifies.
pub struct SlowDevice {
    device: String,
    mounted: Option<Mounted>,
    _folder: TempDir,
}

impl SlowDevice {
    pub fn new(truth: Truth, size_bytes: u64) -> Result<SlowDevice, String> {
        let folder = tempfile::tempdir().unwrap();
        let (timing, faults) = (Box::new(KnownTruth::new(truth)), FaultPlan::default());
        let spec = Spec { name: "device".to_owned(), size_bytes, block_bytes: 512, timing, faults };
        let mounted = mount(folder.path(), spec).map_err(|e| format!("cannot mount FUSE: {e}"))?;
        let file = mounted.path().display().to_string();
        let device = system(&["losetup", "--find", "--show", "--direct-io=on", &file])?;
        Ok(SlowDevice { device, mounted: Some(mounted), _folder: folder })
    }

    pub fn path(&self) -> &Path {
        Path::new(&self.device)
    }

    /// Reads the maximum number of requests that the loop driver accepts concurrently
    /// (`nr_requests`).
    pub fn tags(&self) -> Result<u32, String> {
        let path = format!("{}/nr_requests", self.queue());
        let text = fs::read_to_string(&path).map_err(|error| format!("reading {path}: {error}"))?;
        text.trim().parse().map_err(|_| format!("{path} contains '{text}'"))
    }

    fn queue(&self) -> String {
        let name = self.path().file_name().unwrap().to_str().unwrap();
        format!("/sys/block/{name}/queue")
    }

    /// Changes a setting of the device's queue. The setting is lost when the device is removed.
    pub fn set(&self, setting: &str, value: &str) -> Result<(), String> {
        let path = format!("{}/{setting}", self.queue());
        fs::write(&path, value).map_err(|error| format!("writing {value} to {path}: {error}"))
    }
}

impl Drop for SlowDevice {
    fn drop(&mut self) {
        let _ = self.set("scheduler", "none");
        if let Err(why) = system(&["losetup", "--detach", &self.device]) {
            eprintln!("cannot detach {}: {why}", self.device);
        }
        if let Some(mounted) = self.mounted.take() {
            let _ = mounted.unmount();
        }
    }
}

/// Directory of the block I/O controller of cgroup v1.
const CONTROLLER: &str = "/sys/fs/cgroup/blkio";

/// Limits the rate at which this process reads from a device. Dropping the value removes the limit.
/// The limit is in bytes per second. With a limit in IOPS, the kernel would let several requests
/// pass at once, so the limit would not delay every request.
pub struct Throttle {
    folder: PathBuf,
}

impl Throttle {
    pub fn new(device: &Path, bytes_per_s: u64) -> Result<Throttle, String> {
        let number = fs::metadata(device).map_err(|e| e.to_string())?.rdev();
        let rule = format!("{}:{} {bytes_per_s}", libc::major(number), libc::minor(number));
        let folder = Path::new(CONTROLLER).join(format!("halfpower-{}", std::process::id()));
        let failed = |error| format!("cgroup v1 blkio: {error}");
        fs::create_dir(&folder).map_err(failed)?;
        let throttle = Throttle { folder };
        let limit = throttle.folder.join("blkio.throttle.read_bps_device");
        fs::write(limit, rule).map_err(failed)?;
        fs::write(throttle.folder.join("cgroup.procs"), "0").map_err(failed)?;
        Ok(throttle)
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let _ = fs::write(Path::new(CONTROLLER).join("cgroup.procs"), "0");
        let _ = fs::remove_dir(&self.folder);
    }
}
