//! A trace instance is a directory in tracefs with its own ring buffers and settings. Other users
//! of tracing are not disturbed. Dropping the value removes the instance.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::declined::Declined;

/// Prefix of the names of halfpower's instances. A name is, for example, `halfpower-1234-0`, where
/// 1234 is the process ID.
const INSTANCE_PREFIX: &str = "halfpower-";
/// Size of each read of a tracefs file (bytes).
const CHUNK_BYTES: usize = 1 << 16;

/// A trace instance of this process. Dropping the value removes the instance.
#[derive(Debug)]
pub struct Instance {
    folder: PathBuf,
}

impl Instance {
    /// Creates an instance. First removes the instances of halfpower processes that no longer
    /// exist.
    pub fn new() -> Result<Instance, Declined> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let instances = tracefs_path()?.join("instances");
        remove_stale(&instances, |process| Path::new("/proc").join(process).exists());
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = instances.join(format!("{INSTANCE_PREFIX}{}-{number}", std::process::id()));
        fs::create_dir(&folder).map_err(|e| Declined::file("creating the trace", &folder, &e))?;
        Ok(Instance { folder })
    }

    /// Returns the path of a file of the trace instance.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Reads a file of the trace instance.
    pub fn text(&self, name: &str) -> Result<String, Declined> {
        let path = self.path(name);
        text(&path).map_err(|e| Declined::file("reading", &path, &e))
    }

    /// Writes a file of the trace instance.
    pub fn write(&self, name: &str, text: &str) -> Result<(), Declined> {
        let path = self.path(name);
        fs::write(&path, text).map_err(|e| Declined::file("writing", &path, &e))
    }

    /// Returns the numbers of the CPUs that have a ring buffer.
    pub fn cpus(&self) -> Result<Vec<u32>, Declined> {
        let path = self.path("per_cpu");
        let entries = fs::read_dir(&path).map_err(|e| Declined::file("reading", &path, &e))?;
        let number = |entry: io::Result<fs::DirEntry>| {
            entry.ok()?.file_name().to_str()?.strip_prefix("cpu")?.parse().ok()
        };
        let mut cpus: Vec<u32> = entries.filter_map(number).collect();
        cpus.sort_unstable();
        Ok(cpus)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // A failure cannot be reported here. A later halfpower process removes the instance.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Reads a file of tracefs in large chunks, because some files return only the data that fit into
/// the first read.
fn text(path: &Path) -> io::Result<String> {
    let (mut file, mut text) = (File::open(path)?, Vec::new());
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            read => text.extend_from_slice(&chunk[..read]),
        }
    }
}

/// Returns the mount point of tracefs.
fn tracefs_path() -> Result<PathBuf, Declined> {
    let path = Path::new("/proc/self/mounts");
    let mounts = fs::read_to_string(path).map_err(|e| Declined::file("reading", path, &e))?;
    mount_point(&mounts).ok_or_else(|| {
        Declined::new(
            "tracefs is not mounted",
            "mount it as root: mount -t tracefs tracefs /sys/kernel/tracing",
        )
    })
}

/// Returns the mount point of tracefs in a mount table, or None if tracefs is not mounted.
pub(crate) fn mount_point(mounts: &str) -> Option<PathBuf> {
    let found = mounts.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (folder, kind) = (words.next()?, words.next()?);
        (kind == "tracefs").then_some(folder)
    });
    found.map(|folder| PathBuf::from(folder.replace("\\040", " ")))
}

/// Returns the process ID in the name of an instance, or None if halfpower did not create the
/// instance.
fn owner_pid(name: &str) -> Option<&str> {
    let (process, number) = name.strip_prefix(INSTANCE_PREFIX)?.split_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(process) && digits(number)).then_some(process)
}

fn remove_stale(instances: &Path, is_alive: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().and_then(owner_pid).is_some_and(|process| !is_alive(process)) {
            // The removal fails while another process reads the instance.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracefs_is_found_wherever_it_is_mounted() {
        let mounts = "sysfs /sys sysfs rw 0 0\ntracefs /my\\040traces tracefs rw 0 0\n";
        assert_eq!(mount_point(mounts), Some(PathBuf::from("/my traces")));
        assert_eq!(mount_point("sysfs /sys sysfs rw 0 0\nx"), None);
    }

    #[test]
    fn only_instances_of_dead_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["halfpower-1-0", "halfpower-2-7", "halfpower-x-1", "other-2-1"];
        names.iter().for_each(|name| fs::create_dir(folder.path().join(name)).unwrap());
        remove_stale(folder.path(), |process| process == "1");
        let left = names.map(|name| folder.path().join(name).exists());
        assert_eq!(left, [true, false, true, true]);
    }
}
