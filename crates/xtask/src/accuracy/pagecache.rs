//! `accuracy --only pagecache`: compares the simulated page cache with that of this kernel.
//!
//! A reference device is served as a file over FUSE. A loop device on this file holds an ext4 file
//! system. The same workload runs on this file system and on the simulated system of
//! `pagecache/system.toml`. The simulated device has the rate of the reference device. Two other
//! settings of the simulated device are measured on the reference device: the duration of a flush,
//! and the duration of a direct request of one page at the queue depth of the workload. The
//! overhead of FUSE thus counts as part of the device.
//!
//! The kernel's rate is the median of several trials. When hit ratios are compared, a memory cgroup
//! limits the page cache. Writers are throttled by dirty limits of the device (`/sys/class/bdi`).
//! The campaign needs root. It removes what it creates and restores the settings that it changes.

use crate::bench::clock;
use crate::mounted::{Mounted, Priority};
use crate::repository;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Fixed part of the reference device's service time, which does not depend on the request size.
const FIXED: &str = "1ms";
/// Size of the reference device.
const DEVICE: &str = "1g";
/// Maximum request size of the loop device and of the simulated system (KiB).
const REQUEST_KIB: &str = "1024";
/// Maximum relative difference between a simulated rate and the kernel's rate.
const RATE_MAX: f64 = 0.10;
/// Maximum difference between a simulated hit ratio and the hit ratio of the kernel.
const HITS_MAX: f64 = 0.02;
/// Memory limit of the cgroup (MiB).
const MEMORY_MIB: u64 = 64;
/// Size of the file region for random reads in the memory cgroup: twice the memory limit.
const REGION: &str = "128m";
/// Amount of dirty data at which the kernel throttles writers to the device (MiB).
const DIRTY_MIB: u64 = 16;
/// Number of trials for each median.
const TRIALS: usize = 3;
/// Number of flushes to time. Their median duration is used.
const FLUSHES: usize = 500;

/// A workload that runs on the kernel and on the simulated system.
struct Load {
    name: String,
    /// Flags of `halfpower run`.
    flags: String,
    read_ahead_kib: u32,
    depth: u32,
    /// Whether the workload runs in the memory cgroup. If true, hit ratios are compared, otherwise
    /// rates.
    grouped: bool,
}

fn load(name: &str, flags: &str) -> Load {
    let (name, flags) = (name.to_string(), flags.to_string());
    Load { name, flags, read_ahead_kib: 128, depth: 1, grouped: false }
}

/// Returns the workloads for a device with a rate of 100 MB/s.
fn fast_loads() -> Vec<Load> {
    let mut all = Vec::new();
    for read_ahead_kib in [16, 128, 1024] {
        for size in ["4k", "64k", "1m"] {
            let name = format!("sequential reads of {size}, read-ahead {read_ahead_kib} KiB");
            let flags = format!("--rw read --bs {size} --size 64m");
            all.push(Load { read_ahead_kib, ..load(&name, &flags) });
        }
    }
    for (size, depth) in [("4k", 1), ("4k", 4), ("64k", 1), ("64k", 4)] {
        let name = format!("random reads of {size}, depth {depth}, each block once");
        let flags = format!("--rw randread --bs {size} --iodepth {depth} --size 128m --runtime 5");
        all.push(Load { depth, ..load(&name, &flags) });
    }
    let hits = "--bs 4k --rw randread --ramp-time 40 --runtime 20 --time-based";
    for (law, name) in [("zoned:100/100", "uniform"), ("zipf:1.0", "Zipf, theta 1")] {
        let name = format!("random reads of 4k in a region of {REGION}, {name}");
        let flags = format!("{hits} --size {REGION} --random-distribution {law}");
        all.push(Load { grouped: true, ..load(&name, &flags) });
    }
    for (size, bytes) in [("4k", "128m"), ("64k", "256m"), ("1m", "256m")] {
        let name = format!("sequential writes of {size} past the dirty limit");
        all.push(load(&name, &format!("--rw write --bs {size} --size {bytes}")));
    }
    for (what, flag) in
        [("fsync", "--fsync 1"), ("fdatasync", "--fdatasync 1"), ("O_DSYNC", "--write-through")]
    {
        let name = format!("writes of 4k, each made durable ({what})");
        all.push(load(&name, &format!("--rw write --bs 4k --size 4m {flag}")));
    }
    all
}

/// Returns the workload for a device with a rate of 10 MB/s. On a device with 100 MB/s, this
/// workload would issue thousands of requests per second and mostly measure the overhead of FUSE.
fn slow_loads() -> Vec<Load> {
    vec![load(
        "random writes of 4k past the dirty limit, 10 MB/s",
        "--rw randwrite --bs 4k --size 64m",
    )]
}

/// Runs all selected workloads. Returns 0 if all differences are within their limits, otherwise 1.
///
/// # Errors
/// If the devices cannot be created on this machine, or a run fails.
pub fn run(program: &Path, case: &[String], write: bool) -> Result<ExitCode> {
    let mut table = "| load | kernel | simulated | error |\n|---|---|---|---|\n".to_string();
    let (mut rows, mut beyond) = (0, Vec::new());
    for (rate_mb, loads) in [(100, fast_loads()), (10, slow_loads())] {
        let wanted = |load: &Load| case.is_empty() || case.iter().any(|c| load.name.contains(c));
        let loads: Vec<Load> = loads.into_iter().filter(wanted).collect();
        if loads.is_empty() {
            continue;
        }
        let device = Device::new(program, rate_mb)?;
        let mut timings: BTreeMap<u32, String> = BTreeMap::new();
        for load in loads {
            let timing = match timings.get(&load.depth) {
                Some(timing) => timing.clone(),
                None => device.timing(program, load.depth)?,
            };
            eprintln!("{rate_mb} MB/s, depth {}: {timing}", load.depth);
            timings.insert(load.depth, timing.clone());
            let (kernel, simulated) = device.compare(program, &load, &timing)?;
            let (text, error, most) = if load.grouped {
                let points = (simulated - kernel) * 100.0;
                let text = format!(
                    "{:.1}% hits | {:.1}% hits | {points:+.1} points",
                    kernel * 100.0,
                    simulated * 100.0
                );
                (text, simulated - kernel, HITS_MAX)
            } else {
                let error = simulated / kernel - 1.0;
                let text =
                    format!("{kernel:.2} MB/s | {simulated:.2} MB/s | {:+.1}%", error * 100.0);
                (text, error, RATE_MAX)
            };
            rows += 1;
            let row = format!("| {} | {text} |", load.name);
            eprintln!("{row}");
            writeln!(table, "{row}")?;
            if error.abs() > most {
                beyond.push(load.name);
            }
        }
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let busy = fs::read_to_string("/proc/loadavg")?;
    let busy = busy.split(' ').nth(1).unwrap_or_default();
    let mut text = format!(
        "Linux {}, 5-minute load average {busy}. Loads within the limit (10% for rates, 2 points \
         for hit ratios): {} of {rows}.",
        release.trim(),
        rows - beyond.len()
    );
    if !beyond.is_empty() {
        write!(text, " Not within the limit: {}.", beyond.join("; "))?;
    }
    let text = format!("{text}\n\n{table}");
    println!("{text}");
    if write {
        repository::write_section("docs/accuracy.md", "page cache", &text)?;
    }
    Ok(if beyond.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A changed setting in `/sys`. Dropping the value restores the old setting.
struct Setting {
    path: PathBuf,
    old: String,
}

impl Setting {
    fn new(path: PathBuf, value: &str) -> Result<Setting> {
        let old =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let setting = Setting { path, old: old.trim().to_string() };
        setting.set(value)?;
        Ok(setting)
    }

    fn set(&self, value: &str) -> Result<()> {
        fs::write(&self.path, value)
            .with_context(|| format!("cannot write {value} to {}", self.path.display()))
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.old) {
            eprintln!("cannot restore {} to {}: {error}", self.path.display(), self.old);
        }
    }
}

/// A loop device, detached on drop.
struct LoopDevice(String);

impl Drop for LoopDevice {
    fn drop(&mut self) {
        report(tool(&["losetup", "--detach", &self.0]));
    }
}

/// A mounted file system, unmounted on drop.
struct FileSystem(tempfile::TempDir);

impl Drop for FileSystem {
    fn drop(&mut self) {
        report(tool(&["umount", &self.0.path().display().to_string()]));
    }
}

/// A memory cgroup, removed on drop.
struct Group(PathBuf);

impl Group {
    fn new() -> Result<Group> {
        let (parent, limit) = if Path::new("/sys/fs/cgroup/memory").is_dir() {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            ("/sys/fs/cgroup", "memory.max")
        };
        let path = Path::new(parent).join(format!("halfpower-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let group = Group(path);
        fs::write(group.0.join(limit), (MEMORY_MIB << 20).to_string())
            .context("this machine has no memory cgroups")?;
        Ok(group)
    }

    /// Returns how much of the page cache belongs to this cgroup (bytes).
    fn cached(&self) -> Result<u64> {
        let text = fs::read_to_string(self.0.join("memory.stat"))?;
        let value = |name| text.lines().find_map(|line| line.strip_prefix(name));
        let bytes = value("cache ").or(value("file ")).context("memory.stat has no cache")?;
        Ok(bytes.trim().parse()?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// The reference device with its file system. Fields are dropped in the order of declaration, so
/// the file system is unmounted before the loop device is detached.
pub struct Device {
    /// Path of the test file. Its size is 64 MiB if the device's rate is below 50 MB/s, otherwise
    /// 256 MiB.
    pub file: String,
    _file_system: FileSystem,
    read_ahead: Setting,
    _settings: Vec<Setting>,
    loop_device: LoopDevice,
    _served: Mounted,
    rate_mb: u32,
}

impl Device {
    /// Creates a device with the rate `rate_mb` (MB/s), and a test file of zeros on it.
    ///
    /// # Errors
    /// If the program does not run as root, or the device cannot be created.
    pub fn new(program: &Path, rate_mb: u32) -> Result<Device> {
        let truth = format!("truth:fixed={FIXED},rate={rate_mb}MB/s,parallel=64");
        let served = Mounted::new(program, &[&truth, "--size", DEVICE], Priority::RealTime)?;
        let path = tool(&["losetup", "--find", "--show", "--direct-io=on", &served.file])?;
        let loop_device = LoopDevice(path.trim().to_string());
        let name = loop_device.0.trim_start_matches("/dev/").to_string();
        let queue = PathBuf::from(format!("/sys/block/{name}/queue"));
        let number = fs::read_to_string(format!("/sys/block/{name}/dev"))?;
        let bdi = PathBuf::from(format!("/sys/class/bdi/{}", number.trim()));
        let read_ahead = Setting::new(queue.join("read_ahead_kb"), "128")?;
        let dirty = (DIRTY_MIB << 20).to_string();
        let mut settings = vec![
            Setting::new(queue.join("max_sectors_kb"), REQUEST_KIB)?,
            Setting::new(bdi.join("strict_limit"), "1")?,
        ];
        // Setting the limits in bytes also changes the ratios, so the old ratios are saved here and
        // restored on drop.
        for ratio in ["max_ratio_fine", "min_ratio_fine"] {
            let old = fs::read_to_string(bdi.join(ratio))?.trim().to_string();
            settings.push(Setting { path: bdi.join(ratio), old });
        }
        // The kernel rejects a maximum below the minimum. An earlier device may have left a
        // minimum, so the minimum is set to 0 first.
        fs::write(bdi.join("min_bytes"), "0")?;
        fs::write(bdi.join("max_bytes"), &dirty)?;
        fs::write(bdi.join("min_bytes"), &dirty)?;
        // mkfs.ext4 initialises all tables now, so that no kernel thread does this during the runs.
        let lazy = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        tool(&["mkfs.ext4", "-q", "-F", "-m", "0", "-E", lazy, &loop_device.0])?;
        let folder = tempfile::tempdir()?;
        let at = folder.path().display().to_string();
        tool(&["mount", &loop_device.0, &at])?;
        let file_system = FileSystem(folder);
        let file = format!("{at}/file");
        let mib = if rate_mb < 50 { 64 } else { 256 };
        let count = format!("count={mib}");
        let output = format!("of={file}");
        tool(&["dd", "if=/dev/zero", &output, "bs=1M", &count, "oflag=direct", "status=none"])?;
        Ok(Device {
            file,
            _file_system: file_system,
            read_ahead,
            _settings: settings,
            loop_device,
            _served: served,
            rate_mb,
        })
    }

    /// Measures the reference device and returns settings of a simulated device. With these
    /// settings, a flush and a direct request of one page at depth `depth` take as long as on the
    /// reference device. The measured times include the overhead of FUSE.
    fn timing(&self, program: &Path, depth: u32) -> Result<String> {
        let rates = format!("drive.read_rate={0}MB/s,drive.write_rate={0}MB/s", self.rate_mb);
        let mut keys = format!("{rates},host.cache.linux.flush={:.1}us", self.flush_us()?);
        for (word, key) in [("randread", "fixed_read"), ("randwrite", "fixed_write")] {
            let flags =
                format!("--rw {word} --bs 4k --size 16m --runtime 2 --direct=1 --iodepth {depth}");
            let us = |trial: &Value| {
                Ok(number(&trial["elapsed_ns"])? / number(&trial["requests"])? / 1e3
                    * f64::from(depth))
            };
            let device_us = median(|| us(&trial(&mut self.command(program, &flags))?))?;
            // `guess_us` is a first estimate of the fixed time. A simulated run measures the error
            // of the estimate. `own_us` is the corrected time.
            let guess_us = device_us - 4096.0 / f64::from(self.rate_mb);
            let mut command = Command::new(program);
            let target =
                format!("sim:{},{rates},drive.{key}={guess_us:.1}us", system_file().display());
            command.args(["run", &target]).args(flags.split_whitespace());
            let own_us = guess_us + device_us - us(&trial(&mut command)?)?;
            write!(keys, ",drive.{key}={own_us:.1}us")?;
        }
        Ok(keys)
    }

    /// Measures how long a flush of the loop device takes without data to write (us). A pause
    /// before each flush lets the CPUs become idle, as they are while a program waits for a
    /// request. Without the pauses, a flush would take only a fifth of this time.
    fn flush_us(&self) -> Result<f64> {
        let device = fs::OpenOptions::new().write(true).open(&self.loop_device.0)?;
        let mut us = Vec::new();
        for _ in 0..FLUSHES {
            clock::pause(0.001);
            let (flushed, seconds) = clock::timed(|| device.sync_data());
            flushed.context("cannot flush the loop device")?;
            us.push(seconds * 1e6);
        }
        us.sort_by(f64::total_cmp);
        Ok(us[us.len() / 2])
    }

    /// Returns the command that runs halfpower on the file of the reference device.
    fn command(&self, program: &Path, flags: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["run", &self.file, &format!("--overwrite={}", self.file)]);
        command.args(flags.split_whitespace());
        command
    }

    /// Runs a workload on this kernel and on the simulated system. Returns both hit ratios if the
    /// workload runs in the memory cgroup, otherwise both rates (MB/s).
    fn compare(&self, program: &Path, load: &Load, timing: &str) -> Result<(f64, f64)> {
        self.read_ahead.set(&load.read_ahead_kib.to_string())?;
        let flags = format!("{} --direct=0", load.flags);
        let mut cache_bytes = 8 << 30;
        let kernel = if load.grouped {
            let group = Group::new()?;
            let enter = r#"echo $$ > "$0" && exec "$@""#;
            let mut command = Command::new("sh");
            command.args(["-c", enter]).arg(group.0.join("cgroup.procs"));
            let inner = self.command(program, &flags);
            command.arg(inner.get_program()).args(inner.get_args());
            let trial = trial(&mut command)?;
            cache_bytes = group.cached()?;
            1.0 - number(&trial["device"]["reads"])? / number(&trial["requests"])?
        } else {
            median(|| rate_mb_per_s(&trial(&mut self.command(program, &flags))?))?
        };
        let half = DIRTY_MIB / 2;
        let target = format!(
            "sim:{},{timing},host.max_transfer={REQUEST_KIB}KiB,host.cache.size={cache_bytes}B,\
             host.cache.linux.read_ahead_max={}KiB,host.cache.dirty_limit={DIRTY_MIB}MiB,\
             host.cache.linux.dirty_background={half}MiB",
            system_file().display(),
            load.read_ahead_kib
        );
        let mut command = Command::new(program);
        command.args(["run", &target]).args(flags.split_whitespace());
        let simulated = trial(&mut command)?;
        let simulated = if load.grouped {
            1.0 - number(&simulated["device"]["reads"])? / number(&simulated["requests"])?
        } else {
            rate_mb_per_s(&simulated)?
        };
        Ok((kernel, simulated))
    }
}

fn system_file() -> PathBuf {
    repository::root().join("crates/xtask/src/accuracy/pagecache/system.toml")
}

fn rate_mb_per_s(trial: &Value) -> Result<f64> {
    Ok(number(&trial["bytes"])? * 1e3 / number(&trial["elapsed_ns"])?)
}

/// Calls `measure` several times and returns the median.
fn median(mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
    let mut all = (0..TRIALS).map(|_| measure()).collect::<Result<Vec<f64>>>()?;
    all.sort_by(f64::total_cmp);
    Ok(all[TRIALS / 2])
}

/// Runs a halfpower command with one trial and returns the JSON of this trial.
fn trial(command: &mut Command) -> Result<Value> {
    command.args(["--trials", "1", "--no-store", "--json", "--quiet"]);
    let output = command.stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let json: Value =
        serde_json::from_str(&text).with_context(|| format!("{command:?} printed no JSON"))?;
    Ok(json["trials"][0].clone())
}

fn number(value: &Value) -> Result<f64> {
    value.as_f64().context("a trial lacks a number")
}

/// Runs a system tool and returns its output.
fn tool(line: &[&str]) -> Result<String> {
    let output = Command::new(line[0])
        .args(&line[1..])
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .output()
        .with_context(|| format!("cannot start {}", line[0]))?;
    if !output.status.success() {
        bail!("{}: {}", line.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn report(result: Result<String>) {
    if let Err(error) = result {
        eprintln!("{error:#}");
    }
}
