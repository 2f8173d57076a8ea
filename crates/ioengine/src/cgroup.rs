//! Reads the memory, CPU and I/O limits of this process's control groups (cgroups(7); kernel
//! documents admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst).
//!
//! A limit applies if it is set on the group of this process or on any ancestor of this group. In a
//! container, the ancestors above the container's own group are not visible.

use std::fs;
use std::path::{Path, PathBuf};

/// The control groups of this process: one group in each cgroup hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    hierarchies: Vec<Hierarchy>,
}

/// A mounted cgroup hierarchy and the group of this process in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    /// Controllers of a cgroup v1 hierarchy, for example `memory`. Empty for cgroup v2.
    controllers: Vec<String>,
    mount_point: PathBuf,
    /// Directory of the group, which is `mount_point` or a directory below it.
    group: PathBuf,
}

/// The CPU quota of a control group, and how long its threads were throttled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuLimit {
    /// The quota (CPUs), for example 0.2. None without a limit.
    pub cpus: Option<f64>,
    /// Time for which the threads of the group were throttled since the group was created (ns).
    pub throttled_ns: u64,
}

/// The cgroup limits on requests to one block device. A field is None if the limit is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoLimit {
    /// Maximum read throughput (bytes per second).
    pub read_bytes_per_s: Option<u64>,
    /// Maximum write throughput (bytes per second).
    pub write_bytes_per_s: Option<u64>,
    /// Maximum number of reads per second.
    pub reads_per_s: Option<u64>,
    /// Maximum number of writes per second.
    pub writes_per_s: Option<u64>,
}

impl IoLimit {
    /// Returns true if no limit is set.
    pub fn is_none(&self) -> bool {
        *self == IoLimit::default()
    }
}

/// Returns the memory of this machine, or the memory limit of this process's control groups if it
/// is smaller (bytes). None if neither is known.
pub fn memory_limit_bytes() -> Option<u64> {
    let of_groups = Groups::of_this_process().memory_limit_bytes();
    match (of_groups, machine_memory_bytes()) {
        (Some(limit), Some(all)) => Some(limit.min(all)),
        (limit, all) => limit.or(all),
    }
}

/// Returns the memory of this machine (bytes), from /proc/meminfo.
pub fn machine_memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

impl Groups {
    /// Finds the control groups of this process.
    pub fn of_this_process() -> Groups {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Groups::parse(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
    }

    /// Parses /proc/self/cgroup and /proc/self/mountinfo (proc(5)).
    pub fn parse(cgroup: &str, mountinfo: &str) -> Groups {
        let mounts: Vec<MountLine> = mountinfo.lines().filter_map(mount_line).collect();
        let hierarchies = cgroup.lines().filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, group) = rest.split_once(':')?;
            let controllers: Vec<String> =
                controllers.split(',').filter(|c| !c.is_empty()).map(String::from).collect();
            let mount = mounts.iter().find(|mount| mount.serves(&controllers))?;
            // In a container, the mount contains only the container's group. The path of this group
            // is removed from `group` to get the path below the mount point.
            let group = Path::new(group);
            let below = group.strip_prefix(&mount.root).unwrap_or(Path::new(""));
            let group = mount.mount_point.join(below);
            let mount_point = mount.mount_point.clone();
            Some(Hierarchy { controllers, mount_point, group })
        });
        Groups { hierarchies: hierarchies.collect() }
    }

    /// Returns the directories of this process's group and of its ancestors, the group first.
    /// `controller` is the name of a cgroup v1 controller. None selects cgroup v2.
    fn folders(&self, controller: Option<&str>) -> Vec<PathBuf> {
        let is_wanted = |hierarchy: &&Hierarchy| match controller {
            Some(name) => hierarchy.controllers.iter().any(|c| c == name),
            None => hierarchy.controllers.is_empty(),
        };
        let Some(hierarchy) = self.hierarchies.iter().find(is_wanted) else { return Vec::new() };
        let within = |folder: &&Path| folder.starts_with(&hierarchy.mount_point);
        hierarchy.group.ancestors().take_while(within).map(Path::to_path_buf).collect()
    }

    /// Returns the smallest memory limit of this process's group and its ancestors (bytes). None
    /// without a limit.
    pub fn memory_limit_bytes(&self) -> Option<u64> {
        let number = |folder: &PathBuf, name| read_number(&folder.join(name));
        let second = self.folders(None);
        let first = self.folders(Some("memory"));
        let high = second.iter().flat_map(|f| [number(f, "memory.max"), number(f, "memory.high")]);
        let old = first.iter().map(|f| number(f, "memory.limit_in_bytes"));
        // In cgroup v1, the largest multiple of the page size (almost 2^63) means "no limit".
        high.chain(old).flatten().filter(|bytes| *bytes < 1 << 62).min()
    }

    /// Returns how much more anonymous memory the limits allow (bytes). For each group, this is the
    /// limit minus the anonymous memory in use, and the smallest value is returned. None without a
    /// limit. Page cache does not count as used, because the kernel reclaims it first.
    pub fn memory_left_bytes(&self) -> Option<u64> {
        let left = |folder: &PathBuf, limit: Option<u64>, held: &str| {
            let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
            Some(limit?.saturating_sub(field(&stat, held).unwrap_or(0)))
        };
        let number = |folder: &PathBuf, name| read_number(&folder.join(name));
        let second = self.folders(None);
        let new = second.iter().flat_map(|folder| {
            ["memory.max", "memory.high"].map(|name| left(folder, number(folder, name), "anon"))
        });
        let first = self.folders(Some("memory"));
        let old = first.iter().map(|folder| {
            let limit = number(folder, "memory.limit_in_bytes");
            left(folder, limit.filter(|bytes| *bytes < 1 << 62), "total_rss")
        });
        new.chain(old).flatten().min()
    }

    /// Returns how much more memory the limits allow (bytes). For each group, this is the limit
    /// minus all memory in use except page cache, and the smallest value is returned. None without
    /// a limit. Unlike [`Groups::memory_left_bytes`], this method counts kernel memory as used, for
    /// example the buffers of a closed io_uring that the kernel has not freed yet.
    pub fn memory_free_bytes(&self) -> Option<u64> {
        let free = |folder: &PathBuf, names: [&str; 3]| {
            let [limit, used, cached] = names;
            let number = |name| read_number(&folder.join(name));
            let limit = number(limit).filter(|bytes| *bytes < 1 << 62)?;
            let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
            let held = number(used)?.saturating_sub(field(&stat, cached).unwrap_or(0));
            Some(limit.saturating_sub(held))
        };
        let second = self.folders(None);
        let new = second.iter().map(|f| free(f, ["memory.max", "memory.current", "file"]));
        let first = self.folders(Some("memory"));
        let old = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"];
        new.chain(first.iter().map(|f| free(f, old))).flatten().min()
    }

    /// Returns the smallest CPU quota and the longest throttled time of this process's group and
    /// its ancestors.
    pub fn cpu_limit(&self) -> CpuLimit {
        let mut limit = CpuLimit::default();
        let mut note = |cpus: Option<f64>, throttled_ns: Option<u64>| {
            limit.cpus = match (limit.cpus, cpus) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            limit.throttled_ns = limit.throttled_ns.max(throttled_ns.unwrap_or(0));
        };
        for folder in self.folders(None) {
            let cpus = fs::read_to_string(folder.join("cpu.max")).ok().and_then(|t| cpu_max(&t));
            let stat = fs::read_to_string(folder.join("cpu.stat")).unwrap_or_default();
            let throttled = field(&stat, "throttled_usec").map(|us| us.saturating_mul(1000));
            note(cpus, throttled);
        }
        for folder in self.folders(Some("cpu")) {
            let quota = read_signed(&folder.join("cpu.cfs_quota_us"));
            let period = read_number(&folder.join("cpu.cfs_period_us"));
            let cpus = match (quota, period) {
                (Some(quota), Some(period)) if quota > 0 && period > 0 => {
                    Some(quota as f64 / period as f64)
                }
                _ => None,
            };
            let stat = fs::read_to_string(folder.join("cpu.stat")).unwrap_or_default();
            note(cpus, field(&stat, "throttled_time"));
        }
        limit
    }

    /// Returns the smallest limits on requests to the block device with this number (major, minor).
    pub fn io_limit(&self, device: (u32, u32)) -> IoLimit {
        let mut limit = IoLimit::default();
        for folder in self.folders(None) {
            let text = fs::read_to_string(folder.join("io.max")).unwrap_or_default();
            io_max(&text, device, &mut limit);
        }
        for folder in self.folders(Some("blkio")) {
            let read = |name: &str| {
                let name = format!("blkio.throttle.{name}_device");
                let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
                throttle_of(&text, device)
            };
            keep_smaller(&mut limit.read_bytes_per_s, read("read_bps"));
            keep_smaller(&mut limit.write_bytes_per_s, read("write_bps"));
            keep_smaller(&mut limit.reads_per_s, read("read_iops"));
            keep_smaller(&mut limit.writes_per_s, read("write_iops"));
        }
        limit
    }
}

/// The line of a cgroup mount in /proc/self/mountinfo.
#[derive(Debug)]
struct MountLine {
    root: PathBuf,
    mount_point: PathBuf,
    is_version_2: bool,
    options: Vec<String>,
}

impl MountLine {
    fn serves(&self, controllers: &[String]) -> bool {
        if controllers.is_empty() {
            self.is_version_2
        } else {
            !self.is_version_2 && controllers.iter().all(|c| self.options.contains(c))
        }
    }
}

fn mount_line(line: &str) -> Option<MountLine> {
    let (before, after) = line.split_once(" - ")?;
    let mut after = after.split_whitespace();
    let kind = after.next().filter(|kind| kind.starts_with("cgroup"))?;
    let options = after.nth(1).unwrap_or_default().split(',').map(String::from).collect();
    let mut before = before.split_whitespace().skip(3);
    let (root, mount_point) = (before.next()?.into(), before.next()?.into());
    Some(MountLine { root, mount_point, is_version_2: kind == "cgroup2", options })
}

/// Reads a number from a file. None if the file contains "max" or other text.
fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn read_signed(path: &Path) -> Option<i64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Parses the file `cpu.max`, which contains `QUOTA PERIOD` (µs) or `max PERIOD`. Returns the quota
/// (CPUs). None without a limit.
fn cpu_max(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next()?.parse().ok()?;
    (period > 0.0).then_some(quota / period)
}

/// Returns the value of a field in a file with lines of the form `name value`.
fn field(text: &str, name: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(value)
}

fn keep_smaller(limit: &mut Option<u64>, found: Option<u64>) {
    *limit = match (*limit, found) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
}

/// Parses the file `io.max`, with lines such as `8:16 rbps=2097152 wbps=max riops=max wiops=120`.
/// Lowers each field of `limit` to the device's limit if this is smaller.
fn io_max(text: &str, (major, minor): (u32, u32), limit: &mut IoLimit) {
    let number = format!("{major}:{minor}");
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some(number.as_str()) {
            continue;
        }
        for word in words {
            let Some((name, value)) = word.split_once('=') else { continue };
            let value = value.parse().ok();
            match name {
                "rbps" => keep_smaller(&mut limit.read_bytes_per_s, value),
                "wbps" => keep_smaller(&mut limit.write_bytes_per_s, value),
                "riops" => keep_smaller(&mut limit.reads_per_s, value),
                "wiops" => keep_smaller(&mut limit.writes_per_s, value),
                _ => {}
            }
        }
    }
}

/// Returns the limit of a device from a file with lines such as `8:16 2097152`.
fn throttle_of(text: &str, (major, minor): (u32, u32)) -> Option<u64> {
    let number = format!("{major}:{minor} ");
    text.lines().find_map(|line| line.strip_prefix(&number)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(folder: &Path, options: &str, kind: &str) -> String {
        let folder = folder.display();
        format!("30 23 0:26 / {folder} rw,nosuid shared:9 - {kind} {kind} {options}\n")
    }

    #[test]
    fn the_smallest_limit_between_a_group_and_the_root_applies() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("outer/inner");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("memory.max"), "max\n").unwrap();
        fs::write(root.path().join("outer/memory.max"), "134217728\n").unwrap();
        fs::write(group.join("cpu.max"), "max 100000\n").unwrap();
        fs::write(root.path().join("outer/cpu.max"), "20000 100000\n").unwrap();
        fs::write(group.join("cpu.stat"), "usage_usec 5\nthrottled_usec 7\n").unwrap();
        fs::write(group.join("io.max"), "8:16 rbps=2097152 wbps=max riops=max wiops=120\n")
            .unwrap();
        let mounts = mount(root.path(), "rw", "cgroup2");
        let groups = Groups::parse("0::/outer/inner\n", &mounts);
        assert_eq!(groups.memory_limit_bytes(), Some(128 << 20));
        assert_eq!(groups.memory_left_bytes(), Some(128 << 20));
        let stat = "anon 4096\nfile 1000000\n";
        fs::write(root.path().join("outer/memory.stat"), stat).unwrap();
        assert_eq!(groups.memory_left_bytes(), Some((128 << 20) - 4096));
        let cpu = groups.cpu_limit();
        assert_eq!((cpu.cpus, cpu.throttled_ns), (Some(0.2), 7000));
        let io = groups.io_limit((8, 16));
        assert_eq!((io.read_bytes_per_s, io.writes_per_s), (Some(2 << 20), Some(120)));
        assert!(groups.io_limit((8, 0)).is_none());
    }

    #[test]
    fn version_one_has_a_hierarchy_for_each_controller() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for folder in ["memory/g", "cpu/g", "blkio/g"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("memory/g/memory.limit_in_bytes"), "67108864\n").unwrap();
        fs::write(at("memory/memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        fs::write(at("cpu/g/cpu.cfs_quota_us"), "50000\n").unwrap();
        fs::write(at("cpu/g/cpu.cfs_period_us"), "100000\n").unwrap();
        fs::write(at("cpu/g/cpu.stat"), "nr_periods 9\nthrottled_time 12\n").unwrap();
        fs::write(at("blkio/g/blkio.throttle.read_bps_device"), "8:0 1000\n").unwrap();
        let mounts = mount(&at("memory"), "rw,memory", "cgroup")
            + &mount(&at("cpu"), "rw,cpu,cpuacct", "cgroup")
            + &mount(&at("blkio"), "rw,blkio", "cgroup");
        let groups = Groups::parse("4:cpu,cpuacct:/g\n3:memory:/g\n2:blkio:/g\n", &mounts);
        assert_eq!(groups.memory_limit_bytes(), Some(64 << 20));
        fs::write(at("memory/g/memory.stat"), "rss 1\ntotal_rss 67108865\n").unwrap();
        assert_eq!(groups.memory_left_bytes(), Some(0));
        assert_eq!(groups.memory_free_bytes(), None);
        fs::write(at("memory/g/memory.usage_in_bytes"), "67108864\n").unwrap();
        fs::write(at("memory/g/memory.stat"), "total_cache 4096\ntotal_rss 1\n").unwrap();
        assert_eq!(groups.memory_free_bytes(), Some(4096));
        let cpu = groups.cpu_limit();
        assert_eq!((cpu.cpus, cpu.throttled_ns), (Some(0.5), 12));
        assert_eq!(groups.io_limit((8, 0)).read_bytes_per_s, Some(1000));
    }

    #[test]
    fn without_groups_only_the_machine_limits_memory() {
        let none = Groups::parse("", "");
        assert_eq!((none.memory_limit_bytes(), none.memory_left_bytes()), (None, None));
        assert_eq!(none.cpu_limit(), CpuLimit::default());
        assert!(machine_memory_bytes().is_none_or(|bytes| bytes > 1 << 20));
        assert!(memory_limit_bytes() <= machine_memory_bytes());
    }

    #[test]
    fn a_container_reads_limits_from_its_own_root() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("memory.max"), "1048576\n").unwrap();
        let folder = root.path().display();
        let mounts = format!("30 23 0:26 /docker/x {folder} rw - cgroup2 cgroup2 rw\n");
        let groups = Groups::parse("0::/docker/x\n", &mounts);
        assert_eq!(groups.memory_limit_bytes(), Some(1 << 20));
    }
}
