//! A block device whose rate the kernel limits: a loop device with cgroup block throttling.
//!
//! The device needs root, loop devices and a block controller (cgroup v1 `blkio`, or v2 `io`).
//! During the measurement, this process is in a separate control group. Dropping [`Throttled`]
//! removes the group, the device and its image.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Mount points of the block controllers (cgroup v1 and v2), each with the name of the file that
/// sets the rate limit.
const CONTROLLERS: [(&str, &str); 2] =
    [("/sys/fs/cgroup/blkio", "blkio.throttle.read_bps_device"), ("/sys/fs/cgroup", "io.max")];

/// A loop device with a limit on the rate at which this process reads.
pub struct Throttled {
    device: Loop,
    _group: Group,
}

impl Throttled {
    /// Creates a device of `bytes` bytes, and limits the bytes per second that this process reads
    /// from it.
    ///
    /// # Errors
    ///
    /// This host cannot provide the device. The message contains the reason and the remedy.
    pub fn new(bytes: u64, bytes_per_s: u64) -> Result<Throttled, String> {
        let device = Loop::new(bytes)?;
        let group = Group::new(&device, bytes_per_s)?;
        Ok(Throttled { device, _group: group })
    }

    /// Returns the path of the device.
    pub fn path(&self) -> &Path {
        &self.device.path
    }

    /// Lets the kernel remove the device when its last user closes it, also if this process is
    /// killed. Call this after the device was opened.
    pub fn is_open(&self) {
        self.device.let_go();
    }
}

/// A loop device whose image is a sparse file without data.
struct Loop {
    path: PathBuf,
    image: PathBuf,
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program} cannot be started: {error}; install util-linux"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().next().unwrap_or("failed").trim().to_owned();
    Err(format!("{line}; run as root on a kernel with loop devices"))
}

impl Loop {
    fn new(bytes: u64) -> Result<Loop, String> {
        let image = std::env::temp_dir().join(format!("halfpower-{}.image", uuid::Uuid::new_v4()));
        let made = File::create_new(&image).and_then(|file| file.set_len(bytes));
        made.map_err(|error| {
            format!("creating {}: {error}; set TMPDIR to a writable directory", image.display())
        })?;
        let named = image.display().to_string();
        match run("losetup", &["--find", "--show", &named]) {
            Ok(path) => Ok(Loop { path: PathBuf::from(path), image }),
            Err(why) => {
                let _ = fs::remove_file(&image);
                Err(why)
            }
        }
    }
}

impl Loop {
    fn let_go(&self) {
        // The device is detached only if it still has this image, because the numbers of loop
        // devices are reused.
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let backing = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
        let image = self.image.display().to_string();
        if backing.is_ok_and(|backing| backing.trim() == image) {
            let _ = run("losetup", &["--detach", &self.path.display().to_string()]);
        }
        let _ = fs::remove_file(&self.image);
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// The control group that this process is in during the measurement.
struct Group {
    folder: PathBuf,
    /// Path of the `cgroup.procs` file of the group to which this process returns.
    home: PathBuf,
}

impl Group {
    fn new(device: &Loop, bytes_per_s: u64) -> Result<Group, String> {
        let number = fs::metadata(&device.path).map(|m| m.rdev()).map_err(|e| e.to_string())?;
        let (major, minor) = (libc::major(number), libc::minor(number));
        let mut why = "no block controller is mounted (cgroup blkio or io)".to_owned();
        for (root, limit) in CONTROLLERS {
            if !Path::new(root).join("cgroup.procs").exists() {
                continue;
            }
            let rule = match limit {
                "io.max" => format!("{major}:{minor} rbps={bytes_per_s}"),
                _ => format!("{major}:{minor} {bytes_per_s}"),
            };
            match Group::join(Path::new(root), limit, &rule) {
                Ok(group) => return Ok(group),
                Err(error) => why = format!("{root}: {error}"),
            }
        }
        Err(format!("{why}; run as root on a host with the cgroup controller blkio or io"))
    }

    fn join(root: &Path, limit: &str, rule: &str) -> std::io::Result<Group> {
        let home = home_below(root, limit == "io.max")?;
        remove_leftovers(root);
        let folder = root.join(format!("halfpower-{}", std::process::id()));
        fs::create_dir(&folder)?;
        let group = Group { folder, home };
        fs::write(group.folder.join(limit), rule)?;
        fs::write(group.folder.join("cgroup.procs"), "0")?;
        Ok(group)
    }
}

/// Removes the empty groups that killed self-tests left behind.
fn remove_leftovers(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix("halfpower-").and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // This fails if the group still contains processes. Such a group must stay.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Returns the path of the `cgroup.procs` file of the group that this process is in.
fn home_below(root: &Path, unified: bool) -> std::io::Result<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let wanted = if unified { "" } else { "blkio" };
    let mut lines = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    });
    let mine = lines.find(|(names, _)| names.split(',').any(|name| name == wanted));
    let path = mine.map_or("/", |(_, path)| path).trim_start_matches('/');
    Ok(root.join(path).join("cgroup.procs"))
}

impl Drop for Group {
    fn drop(&mut self) {
        // The process returns to its old group, or to the root group if the old one no longer
        // exists.
        let root = self.folder.parent().unwrap_or(Path::new("/")).join("cgroup.procs");
        let _ = fs::write(&self.home, "0").or_else(|_| fs::write(root, "0"));
        let _ = fs::remove_dir(&self.folder);
    }
}
