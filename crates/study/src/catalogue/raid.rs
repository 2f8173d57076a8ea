//! Study `raid`: compares a RAID volume with its members. It measures the rate of the volume, the
//! rate of the members, and the CPU cost. It counts the member I/O that each small write to the
//! volume causes. It finds out whether reads use both copies of a mirror. It also reports the state
//! of the volume, for example a missing member.
//!
//! The user lists the members after the volume. Without such a list, the study uses the members
//! that the kernel reports (md, device mapper, btrfs). The study only reads members, because a
//! write to a member would destroy the volume. It reads the I/O counters of the members to find out
//! what a write to the volume causes.

use analysis::units;
use std::fs;
use std::path::{Path, PathBuf};

use ioengine::Target;
use ioengine::device::{Device, DeviceCounters};
use ioengine::kernel::{Btrfs, Kernel};
use ioengine::stack::{self, Kind as LayerKind, Value};
use lab::evidence::{Evidence, MeasuredPoint};
use lab::failure::Outcome;
use lab::simulated_target;

use crate::catalogue::Study;
use crate::conclusion::{Conclusion, words_of_times};
use crate::plan::Group;
use crate::runner::StudyRunner;
use crate::target::{Kind, StudyTarget};

pub const STUDY: Study = Study {
    name: "raid",
    papers: "Riedel 1997, section 5.8 and Figure 16: RAID 5 in the host or in the array (the array \
             reduces the CPU time of the host); Chung 2000, section 8.4, Figures 28 to 32: RAID 0 \
             and RAID 1 of two disks, and a mirror that reads from both disks",
    needs: "a volume (md, device mapper, btrfs, hardware) as first target; its members as further \
            targets, unless the kernel reports them",
    plan: include_str!("../../plans/raid.toml"),
    claims: &["C218", "C233", "R174"],
    rules: &["array-cache"],
    measure: Some(measure),
    analyse,
};

/// The part of the plan whose points are measured one at a time, so that the I/O counters of the
/// members can be read before and after each point.
const COUNTED: &str = "seen in members";
/// The part of the plan that is measured on a simulated volume with one failed device.
const DEGRADED: &str = "degraded";
/// The part of the plan that is measured on all members at the same time.
const MEMBERS: &str = "members";
/// The part that replaces [`MEMBERS`] if the members are simulated. Only one member is measured.
const ONE_MEMBER: &str = "one member";
/// A member is idle if it moves fewer bytes than this share of the mean of all members.
const IDLE: f64 = 0.5;

// ---- measurement

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    let Some(volume) = runner.study_targets.first() else { return Ok(()) };
    let found;
    let members = match &runner.study_targets[1..] {
        [] => {
            found = members_beneath(volume);
            &found[..]
        }
        named => named,
    };
    if members.is_empty() {
        runner.skip(
            format!("the system reports no members below {}", volume.name.display()),
            "list the volume and then its members: halfpower study raid VOLUME MEMBER..",
        );
        return Ok(());
    }
    let names: Vec<String> = members.iter().map(|m| m.name.display().to_string()).collect();
    let count = members.len();
    runner.evidence.note("members", "count", &[("names", names.join(", "))], count as f64);
    if volume.is_real() {
        note_state(runner, volume);
    }
    let groups = runner.groups()?;
    let of = |part: fn(&str) -> bool| -> Vec<Group> {
        groups.iter().filter(|group| part(&group.part)).cloned().collect()
    };
    let volumes = &runner.study_targets[..1];
    let whole = |part: &str| ![MEMBERS, COUNTED, DEGRADED].contains(&part);
    runner.measure_groups_on(&of(whole), volumes)?;
    match without_a_device(volume) {
        Some(degraded) => runner.measure_groups_on(&of(|part| part == DEGRADED), &[degraded])?,
        None => runner.leave_out(
            DEGRADED,
            "the study removes a device only from a simulated RAID 1 or RAID 5 that has all its \
             devices; no device is removed from a real volume",
        ),
    }
    let mut together = of(|part| part == MEMBERS);
    together.iter_mut().for_each(|group| group.disks = Some(count as u32));
    if members.iter().any(StudyTarget::is_simulated) {
        // Separate simulations cannot run at the same time. Therefore only one member is measured,
        // and `members_at` multiplies its rate by the number of members.
        for group in &mut together {
            (group.disks, group.part) = (None, ONE_MEMBER.to_owned());
        }
        runner.measure_groups_on(&together, &members[..1])?;
    } else {
        runner.measure_groups_on(&together, members)?;
    }
    let devices: Option<Vec<Device>> = members.iter().map(device_of).collect();
    match devices {
        Some(devices) => count_on_members(runner, &of(|part| part == COUNTED), &devices),
        None => {
            runner.leave_out(
                COUNTED,
                "the members are not block devices, so their requests are not counted; use members \
                 that are block devices",
            );
            Ok(())
        }
    }
}

/// Returns the simulated volume with one of its devices failed. None if the volume is real, has no
/// redundancy, or already has a failed device.
fn without_a_device(volume: &StudyTarget) -> Option<StudyTarget> {
    if !volume.is_simulated() {
        return None;
    }
    let name = volume.name.to_string_lossy();
    if simulated_target::parse(&name, &[]).ok()?.system().ok()?.setup.failed > 0 {
        return None;
    }
    let name = format!("{name},failed=1");
    simulated_target::parse(&name, &[]).ok()?.system().ok()?;
    Some(StudyTarget { name: name.into(), kind: Kind::Simulated })
}

/// Returns the block devices that make up a volume, as the kernel reports them.
fn members_beneath(volume: &StudyTarget) -> Vec<StudyTarget> {
    if !volume.is_real() {
        return Vec::new();
    }
    let path = volume.path().canonicalize().unwrap_or_else(|_| volume.path().to_path_buf());
    let study_target = |path: PathBuf| StudyTarget { name: path, kind: Kind::Existing };
    member_names(&Kernel::of_host(), &path).into_iter().map(study_target).collect()
}

/// Returns the paths of the member devices of an array, or of a btrfs file system on several
/// devices.
fn member_names(kernel: &Kernel, path: &Path) -> Vec<PathBuf> {
    let layers = stack::of(kernel, path);
    let held = layers.iter().flat_map(|layer| &layer.facts).find_map(|fact| match fact {
        ("members", Value::Text(names)) if names.contains(' ') => Some(names.clone()),
        _ => None,
    });
    let names = match held {
        Some(names) => names.split(' ').map(str::to_owned).collect(),
        None => btrfs_of(kernel, &layers).map(|btrfs| btrfs.members).unwrap_or_default(),
    };
    names.into_iter().map(|name| Path::new("/dev").join(name)).collect()
}

/// Returns the btrfs file system that uses a device in `layers` at depth 1 (directly below the
/// top). None if there is no such file system.
fn btrfs_of(kernel: &Kernel, layers: &[stack::Layer]) -> Option<Btrfs> {
    let branches = layers.iter().filter(|layer| layer.depth == 1);
    let names: Vec<&str> = branches.map(|layer| &*layer.name).collect();
    let holds = |one: &Btrfs| one.members.iter().any(|member| names.contains(&&**member));
    kernel.btrfs().into_iter().find(holds)
}

fn device_of(member: &StudyTarget) -> Option<Device> {
    let path = member.path().canonicalize().ok()?;
    Kernel::of_host().at(&path)
}

fn note_state(runner: &mut StudyRunner<'_>, volume: &StudyTarget) {
    let path = volume.path().canonicalize().unwrap_or_else(|_| volume.path().to_path_buf());
    let Some(state) = state_of(&Kernel::of_host(), &path) else { return };
    let State { kind, level, missing, action, done, errors } = state;
    let labels = [("kind", kind.to_owned()), ("level", level)];
    runner.evidence.note("missing-members", "count", &labels, missing as f64);
    if let Some(action) = action {
        runner.evidence.note("rebuilding", "share", &[("action", action)], done);
    }
    if errors > 0 {
        runner.evidence.note("member-errors", "count", &[], errors as f64);
    }
}

/// Runs one trial at a time. Notes how many bytes the members moved per byte of the trial, and how
/// many requests the members served per request of the trial.
fn count_on_members(
    runner: &mut StudyRunner<'_>,
    groups: &[Group],
    devices: &[Device],
) -> Outcome<()> {
    let volume = &runner.study_targets[..1];
    for group in groups {
        let (job, bench) = match runner.bench(group, volume) {
            Ok(ready) => ready,
            Err(failure) => {
                runner.leave_out(COUNTED, &failure.message);
                continue;
            }
        };
        for axes in &job.axes {
            if runner.lab.interrupt.is_set() {
                return Ok(());
            }
            let setting = bench.setting(&job, axes);
            let before = counters(devices);
            let trial = runner.lab.trial(&setting, &mut |_| {})?;
            // The volume may still cache writes of this trial. They are flushed first, so that the
            // counters include them.
            volume[0].open()?.sync()?;
            let (Some(before), Some(after)) = (before, counters(devices)) else { continue };
            let moved: Vec<DeviceCounters> =
                after.iter().zip(&before).map(|(after, before)| after.since(before)).collect();
            let bytes = trial.bytes();
            note_moved(runner, setting.key().rw(), axes.request_bytes, bytes, &moved);
        }
    }
    Ok(())
}

fn counters(devices: &[Device]) -> Option<Vec<DeviceCounters>> {
    devices.iter().map(Device::counters).collect()
}

fn note_moved(
    runner: &mut StudyRunner<'_>,
    rw: &str,
    bs: u32,
    bytes: u64,
    moved: &[DeviceCounters],
) {
    if bytes == 0 {
        return;
    }
    let labels = [("rw", rw.to_owned()), ("bs", units::size(u64::from(bs)))];
    let mut note = |name: &str, value: f64| runner.evidence.note(name, "ratio", &labels, value);
    let requests = bytes as f64 / f64::from(bs);
    let sum = |of: fn(&DeviceCounters) -> u64| moved.iter().map(of).sum::<u64>() as f64;
    note("member-read-bytes", sum(|c| c.read_sectors) * 512.0 / bytes as f64);
    note("member-written-bytes", sum(|c| c.write_sectors) * 512.0 / bytes as f64);
    note("member-reads", sum(|c| c.reads) / requests);
    note("member-writes", sum(|c| c.writes) / requests);
    let busy = |c: &DeviceCounters| (c.read_sectors + c.write_sectors) as f64;
    let all: f64 = moved.iter().map(busy).sum();
    if all > 0.0 {
        let least = moved.iter().map(busy).fold(f64::MAX, f64::min);
        // The value is 1 if all members moved the same number of bytes.
        note("least-member", least / all * moved.len() as f64);
    }
}

// ---- the state of the volume, from sysfs

#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    /// Kind of the volume: "md" or "btrfs".
    kind: &'static str,
    /// RAID level, such as "raid0", "raid1" or "raid5".
    level: String,
    /// Number of devices that are missing.
    missing: u64,
    /// The running background operation ("recover", "resync", "check"). None if none is running.
    action: Option<String>,
    /// Progress of the background operation (0 to 1).
    done: f64,
    /// Number of device errors that the volume has counted.
    errors: u64,
}

/// Reads the state of the md array or the btrfs file system below a path. None if there is neither.
fn state_of(kernel: &Kernel, path: &Path) -> Option<State> {
    let layers = stack::of(kernel, path);
    let arrays = layers.iter().filter(|layer| layer.kind == LayerKind::Volume);
    let mut arrays = arrays.map(|layer| format!("/sys/class/block/{}/md", layer.name));
    if let Some(folder) = arrays.find(|folder| kernel.path(folder).is_dir()) {
        return Some(md(&kernel.path(folder)));
    }
    let found = btrfs_of(kernel, &layers)?;
    Some(btrfs(&kernel.path(format!("/sys/fs/btrfs/{}", found.uuid))))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Reads the state of an md array (Documentation/admin-guide/md.rst).
fn md(folder: &Path) -> State {
    let action = Some(read(&folder.join("sync_action"))).filter(|a| !a.is_empty() && a != "idle");
    let progress = read(&folder.join("sync_completed"));
    let done = progress.split_once('/').and_then(|(done, all)| {
        let (done, all): (f64, f64) = (done.trim().parse().ok()?, all.trim().parse().ok()?);
        (all > 0.0).then_some(done / all)
    });
    let members = fs::read_dir(folder).into_iter().flatten().flatten();
    let errors = members.filter(|entry| entry.file_name().to_string_lossy().starts_with("dev-"));
    let errors = errors.map(|entry| read(&entry.path().join("errors")).parse().unwrap_or(0));
    State {
        kind: "md",
        level: read(&folder.join("level")),
        missing: read(&folder.join("degraded")).parse().unwrap_or(0),
        action,
        done: done.unwrap_or_default(),
        errors: errors.sum(),
    }
}

/// Reads the state of a mounted btrfs file system (Documentation/ABI/testing/sysfs-fs-btrfs).
fn btrfs(folder: &Path) -> State {
    let profiles = fs::read_dir(folder.join("allocation/data")).into_iter().flatten().flatten();
    let mut profiles: Vec<String> = profiles
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    profiles.sort();
    let devices = fs::read_dir(folder.join("devinfo")).into_iter().flatten().flatten();
    let devices: Vec<_> = devices.map(|entry| entry.path()).collect();
    let missing = devices.iter().filter(|device| read(&device.join("missing")) == "1").count();
    let counted = |device: &PathBuf| {
        let stats = read(&device.join("error_stats"));
        let number = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
        stats.lines().filter_map(number).sum::<u64>()
    };
    let action = Some(read(&folder.join("exclusive_operation")));
    State {
        kind: "btrfs",
        level: profiles.join(" and "),
        missing: missing as u64,
        action: action.filter(|action| !action.is_empty() && action != "none"),
        done: 0.0,
        errors: devices.iter().map(counted).sum(),
    }
}

// ---- analysis

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    state(&mut found, evidence);
    for rw in ["read", "randread"] {
        efficiency(&mut found, evidence, rw);
        both_copies(&mut found, evidence, rw);
    }
    writes(&mut found, evidence);
    cpu(&mut found, evidence);
    degraded(&mut found, evidence);
    claims(&mut found, evidence);
    found
}

fn state(found: &mut Conclusion, evidence: &Evidence) {
    if let Some(missing) = evidence.read("missing-members", &[]).first() {
        let label = |name: &str| missing.labels.get(name).cloned().unwrap_or_default();
        let (kind, level) = (label("kind"), label("level"));
        let text = match missing.value as u64 {
            0 => format!("{kind} {level} has all its members"),
            count => format!(
                "{kind} {level} is DEGRADED ({count} of its members missing), which affects all \
                 results. Replace the missing member and let the volume rebuild"
            ),
        };
        found.find("state", text);
    }
    if let Some(rebuilding) = evidence.read("rebuilding", &[]).first() {
        let action = rebuilding.labels.get("action").cloned().unwrap_or_default();
        let done = 100.0 * rebuilding.value;
        found.find(
            "rebuilding",
            format!("the volume is running {action} ({done:.0}% done), which slows it down"),
        );
    }
    if let Some(errors) = evidence.value("member-errors", &[]) {
        let text = format!(
            "the volume has counted {errors:.0} errors of its members; list them with mdadm \
             --detail or btrfs device stats"
        );
        found.find("errors", text);
    }
}

fn member_count(evidence: &Evidence) -> f64 {
    evidence.value("members", &[]).unwrap_or(1.0)
}

/// Returns only the rate of [`members_at`] (bytes per second).
fn of_members(evidence: &Evidence, flags: &[(&str, &str)]) -> Option<f64> {
    Some(members_at(evidence, flags)?.0)
}

/// Returns the rate of all members together, and the upper end of the interval of this rate (bytes
/// per second). If only one simulated member was measured, both values are multiplied by the number
/// of members.
fn members_at(evidence: &Evidence, flags: &[(&str, &str)]) -> Option<(f64, f64)> {
    let at = |part| evidence.fastest(&[&[("part", part)], flags].concat());
    let one = at(ONE_MEMBER);
    let point = one.or_else(|| at(MEMBERS))?;
    // In results of earlier versions, the part "members" contains a single simulated member.
    let alone = one.is_some() || (evidence.is_simulated() && point.disks == 1);
    let times = if alone { member_count(evidence) } else { 1.0 };
    Some((point.rate() * times, point.summary.bytes_per_s.high * times))
}

/// Formats a direction as a plural, such as "random reads".
fn spoken(rw: &str) -> String {
    format!("{}s", rw.replace("rand", "random "))
}

fn efficiency(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    let mut words = Vec::new();
    for bs in ["4k", "64k", "1m"] {
        let flags = [("rw", rw), ("bs", bs), ("iodepth", "8")];
        let volume = evidence.find(&[&[("part", "volume")], &flags[..]].concat());
        let Some((volume, (members, at_most))) = volume.zip(members_at(evidence, &flags)) else {
            continue;
        };
        let share = 100.0 * volume.rate() / members.max(1.0);
        // A volume that is faster than all its members together must have a cache or read-ahead.
        if !evidence.is_simulated() && volume.summary.bytes_per_s.low > at_most {
            let setting = format!("{} of {}", spoken(rw), units::size(volume.bytes()));
            let text = format!("{share:.0}% of the rate of all members together");
            found.advise("array-cache", share / 100.0, &setting, text);
        }
        words.push(format!(
            "{share:.0}% at {} ({} of {})",
            units::size(volume.bytes()),
            units::rate(volume.rate()),
            units::rate(members)
        ));
    }
    if !words.is_empty() {
        let members = member_count(evidence);
        let together = match evidence.find(&[("part", ONE_MEMBER)]) {
            Some(_) => format!("{members:.0} times the rate of one simulated member at depth 8"),
            None => format!("{members:.0} members together at depth 8 each"),
        };
        let text =
            format!("{} at depth 8, compared with {together}: {}", spoken(rw), words.join(", "));
        found.find("efficiency", text);
    }
}

/// Reports how much faster two threads read than one, and whether the reads are spread over all
/// members of the mirror.
fn both_copies(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    let of = |threads: &str| {
        evidence
            .find(&[("part", "two readers"), ("rw", rw), ("numjobs", threads)])
            .map(MeasuredPoint::rate)
    };
    let Some((one, two)) = of("1").zip(of("2")) else { return };
    let least_share = evidence.value("least-member", &[("rw", "randread"), ("bs", "64 KiB")]);
    let shared = match least_share {
        Some(share) if share < IDLE => {
            "; at depth 4, one member served less than half of an equal share of the random \
             reads, so the reads are not spread over all copies"
        }
        Some(_) => {
            "; at depth 4, every member served at least half of an equal share of the random reads"
        }
        None => "",
    };
    let times = words_of_times(two / one.max(1.0));
    let text = format!("64 KiB {}: two threads reach {times} the rate of one{shared}", spoken(rw));
    found.find("two-readers", text);
}

/// Reports the rates of writes to the volume, and the bytes and requests that these writes cause on
/// the members.
fn writes(found: &mut Conclusion, evidence: &Evidence) {
    for rw in ["write", "randwrite"] {
        let rate = |bs: &str| {
            let flags = [("part", "volume writes"), ("rw", rw), ("bs", bs), ("iodepth", "8")];
            let point = evidence.find(&flags)?;
            Some(format!("{} at {}", units::rate(point.rate()), units::size(point.bytes())))
        };
        let rates: Vec<String> = ["4k", "64k", "1m"].into_iter().filter_map(rate).collect();
        if !rates.is_empty() {
            let text = format!("{} at depth 8: {}", spoken(rw), rates.join(", "));
            found.find("write-rates", text);
        }
    }
    for written in evidence.read("member-written-bytes", &[]) {
        let label = |name: &str| written.labels.get(name).cloned().unwrap_or_default();
        let (rw, bs) = (label("rw"), label("bs"));
        if !rw.contains("write") {
            continue;
        }
        let flags = [("rw", &*rw), ("bs", &*bs)];
        let value = |name: &str| evidence.value(name, &flags).unwrap_or_default();
        let read = value("member-read-bytes");
        let first = if read >= 0.25 {
            format!(
                "; for each byte written, the members first read {read:.2} bytes \
                 (read-modify-write); write full stripes, or use RAID 1 or 10 for small writes"
            )
        } else {
            String::new()
        };
        found.find(
            "writes",
            format!(
                "{} of {bs}: for each byte written to the volume, the members write {:.2} bytes; \
                 for each request to the volume, the members serve {:.1} requests{first}",
                spoken(&rw),
                written.value,
                value("member-writes") + value("member-reads")
            ),
        );
    }
}

/// Returns the CPU time of the whole machine per request (ns). It includes the CPU time of kernel
/// threads that compute parity and write copies. If it is unknown, returns the CPU time charged to
/// the process.
fn whole_cpu_ns(point: &MeasuredPoint) -> Option<f64> {
    point.summary.cpu_upper_ns.or(point.cpu_ns())
}

fn cpu(found: &mut Conclusion, evidence: &Evidence) {
    let of_rw = |part: &str, rw: &str, bs: &str| {
        let flags = [("part", part), ("rw", rw), ("bs", bs), ("iodepth", "8")];
        let point = evidence.find(&flags)?;
        Some(whole_cpu_ns(point)? * f64::from(1 << 20) / point.bytes() as f64)
    };
    let of = |part: &str| of_rw(part, "read", "1m");
    let known = evidence.points.iter().any(|point| point.summary.cpu_upper_ns.is_some());
    let charged = if known || evidence.is_simulated() {
        ""
    } else {
        " (CPU time charged to the process; a plan with soaker = true also counts kernel threads)"
    };
    let of_members = of(MEMBERS).or_else(|| of(ONE_MEMBER));
    if let Some((volume, members)) = of("volume").zip(of_members) {
        found.find(
            "cpu",
            format!(
                "1 MiB reads cost {} of CPU per MiB from the volume and {} from its \
                 members{charged}",
                units::time(volume),
                units::time(members)
            ),
        );
    }
    let written = |bs: &str| of_rw("volume writes", "write", bs);
    if let (Some(small), Some(large)) = (written("4k"), written("1m")) {
        let read = of("volume").map_or(String::new(), |read| {
            format!(" ({:.1} times the CPU of reading 1 MiB)", large / read)
        });
        found.find(
            "cpu-writes",
            format!(
                "writing 1 MiB costs {} of CPU with requests of 1 MiB{read} and {} with requests \
                 of 4 KiB{charged}",
                units::time(large),
                units::time(small)
            ),
        );
    }
}

/// Reports the rate of a volume with a failed device, as a share of its rate with all devices.
fn degraded(found: &mut Conclusion, evidence: &Evidence) {
    let share = |part: &str, rw: &str| {
        let flags = [("rw", rw), ("bs", "64k"), ("iodepth", "8")];
        let of = |part: &str| evidence.find(&[&[("part", part)], &flags[..]].concat());
        let (without, whole) = (of(DEGRADED)?, of(part)?);
        let cpu = whole_cpu_ns(without).zip(whole_cpu_ns(whole).filter(|ns| *ns > 0.0));
        let cpu = cpu.map_or(String::new(), |(more, less)| {
            format!(" and take {:.1} times the CPU time", more / less)
        });
        let rate = 100.0 * without.rate() / whole.rate();
        Some(format!("{} reach {rate:.0}% of the rate{cpu}", spoken(rw)))
    };
    let loads = [("volume", "read"), ("volume", "randread"), ("volume writes", "randwrite")];
    let shares: Vec<String> = loads.iter().filter_map(|(part, rw)| share(part, rw)).collect();
    if !shares.is_empty() {
        let headline = format!(
            "with one failed device, compared with the whole volume (64 KiB, depth 8): {}",
            shares.join("; ")
        );
        found.find("degraded", headline);
    }
}

fn level_is(evidence: &Evidence, level: &str) -> bool {
    let readings = evidence.read("missing-members", &[]);
    readings.iter().any(|reading| reading.labels.get("level").is_some_and(|l| l == level))
}

fn claims(found: &mut Conclusion, evidence: &Evidence) {
    let count = member_count(evidence);
    let one_member = of_members(evidence, &[("rw", "read"), ("bs", "64k"), ("iodepth", "8")])
        .map(|rate| rate / count);
    let mut points = evidence.all(&[("part", "volume"), ("rw", "read"), ("bs", "64k")]);
    points.sort_by_key(|point| point.depth());
    let second = one_member
        .and_then(|one| points.iter().find(|point| point.rate() >= 1.5 * one))
        .map(|point| point.depth());
    let striped = level_is(evidence, "raid0");
    if striped && count >= 2.0 && one_member.is_some() {
        let here = match second {
            Some(depth) => {
                format!("at depth {depth}, 64 KiB reads reach 1.5 times the rate of one member")
            }
            None => {
                "64 KiB reads do not reach 1.5 times the rate of one member at any depth".to_owned()
            }
        };
        found.claim("C218", second.is_some_and(|depth| (4..=8).contains(&depth)), here);
    } else {
        let why = "this claim can only be checked on a RAID 0 of two disks; use such a volume";
        found.cannot(&["C218"], why);
    }
    if level_is(evidence, "raid1") && one_member.is_some() {
        let here = match second {
            Some(depth) => format!(
                "with {} KiB outstanding, the mirror reaches 1.5 times the rate of one copy",
                64 * depth
            ),
            None => {
                "the mirror does not reach 1.5 times the rate of one copy at any depth measured"
                    .to_owned()
            }
        };
        found.claim("C233", second.is_some_and(|depth| depth >= 4), here);
    } else {
        found.cannot(&["C233"], "this claim can only be checked on a RAID 1; use such a volume");
    }
    let why = "the claim compares RAID 5 in the host with RAID 5 in an array controller; measure \
               both on the same disks";
    found.cannot(&["R174"], why);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure;
    use crate::plan::Plan;
    use lab::evidence::testing::{cell, evidence};

    #[test]
    fn a_volume_is_compared_with_the_sum_of_its_members() {
        let flags = |part| [("part", part), ("rw", "read"), ("bs", "64k"), ("iodepth", "8")];
        let mut evidence =
            evidence(vec![cell(150 << 20, &flags("volume")), cell(200 << 20, &flags("members"))]);
        evidence.note("members", "count", &[], 2.0);
        let found = analyse(&evidence);
        let text = &found.findings.iter().find(|one| one.id == "efficiency").unwrap().headline;
        assert!(text.contains("75% at 64 KiB"), "{text}");
    }

    #[test]
    fn one_simulated_member_stands_for_all_and_is_named_so() {
        let flags = |part| [("part", part), ("rw", "read"), ("bs", "64k"), ("iodepth", "8")];
        let cells = [("volume", 150 << 20), (ONE_MEMBER, 100 << 20)];
        let mut evidence = evidence(cells.map(|(part, rate)| cell(rate, &flags(part))).to_vec());
        evidence.note("members", "count", &[], 2.0);
        let text = analyse(&evidence).findings[0].headline.clone();
        assert!(text.contains("2 times the rate of one simulated member"), "{text}");
        assert!(text.contains("75% at 64 KiB (150 MiB/s (157 MB/s) of 200 MiB/s"), "{text}");
        let plan = Plan::parse(STUDY.plan).unwrap();
        let chart = figure::chart("c".to_owned(), &plan.figures[0], &evidence).unwrap();
        let names: Vec<&str> = chart.series.iter().map(|one| one.name.as_str()).collect();
        assert!(names.contains(&"one member, read, depth 8"), "{names:?}");
    }

    #[test]
    fn a_volume_faster_than_its_members_has_a_cache() {
        let flags = |part| [("part", part), ("rw", "read"), ("bs", "64k"), ("iodepth", "8")];
        let advised = |rate: u64| {
            let members = cell(200 << 20, &flags("members"));
            let found = analyse(&evidence(vec![cell(rate, &flags("volume")), members]));
            found.advice.iter().map(|one| one.id.clone()).collect::<Vec<_>>()
        };
        assert_eq!(advised(300 << 20), ["array-cache"]);
        assert!(advised(190 << 20).is_empty());
    }

    #[test]
    fn the_cpu_time_of_writes_is_given_beside_that_of_reads() {
        let point = |part, rw, bs, cpu_ns: f64| {
            let mut point =
                cell(1 << 30, &[("part", part), ("rw", rw), ("bs", bs), ("iodepth", "8")]);
            point.summary.cpu_lower_ns = Some(cpu_ns);
            point
        };
        let found = analyse(&evidence(vec![
            point("volume", "read", "1m", 1.0),
            point("volume writes", "write", "1m", 3.0),
            point("volume writes", "write", "4k", 9.0),
        ]));
        let text = &found.findings.iter().find(|one| one.id == "cpu-writes").unwrap().headline;
        assert!(text.contains("3.0 times the CPU of reading 1 MiB"), "{text}");
    }

    #[test]
    fn a_simulated_volume_loses_a_device_once_and_only_if_it_is_redundant() {
        let target = |name: &str| StudyTarget { name: name.into(), kind: Kind::Simulated };
        let without =
            |name: &str| without_a_device(&target(name)).map(|one| one.name.display().to_string());
        let raid5 = "sim:nt4-ultrawide,disks=4,volume=raid5";
        assert_eq!(without(raid5), Some(format!("{raid5},failed=1")));
        assert_eq!(without(&format!("{raid5},failed=1")), None);
        assert_eq!(without("sim:nt4-ultrawide,disks=4,volume=stripe"), None);
        let real = StudyTarget { name: raid5.into(), kind: Kind::Existing };
        assert!(without_a_device(&real).is_none());
    }

    #[test]
    fn a_failed_device_is_compared_with_the_whole_volume() {
        let flags = |part, rw| [("part", part), ("rw", rw), ("bs", "64k"), ("iodepth", "8")];
        let found = analyse(&evidence(vec![
            cell(200 << 20, &flags("volume", "randread")),
            cell(100 << 20, &flags(DEGRADED, "randread")),
        ]));
        let text = &found.findings.iter().find(|one| one.id == "degraded").unwrap().headline;
        assert!(text.contains("random reads reach 50% of the rate"), "{text}");
    }

    #[test]
    fn read_modify_write_is_named_if_a_write_reads_members() {
        let mut evidence = Evidence::default();
        for (bs, read, written) in [("4 KiB", 2.0, 2.0), ("1 MiB", 0.0, 1.33)] {
            let labels = [("rw", "randwrite".to_owned()), ("bs", bs.to_owned())];
            evidence.note("member-read-bytes", "ratio", &labels, read);
            evidence.note("member-written-bytes", "ratio", &labels, written);
        }
        let found = analyse(&evidence);
        let texts: Vec<&str> = found.findings.iter().map(|one| &*one.headline).collect();
        assert!(texts[0].contains("the members write 2.00 bytes"), "{texts:?}");
        assert!(texts[0].contains("read-modify-write"), "{texts:?}");
        assert!(!texts[1].contains("read-modify-write"), "{texts:?}");
    }

    #[test]
    fn a_degraded_volume_is_the_first_finding() {
        let mut evidence = Evidence::default();
        let labels = [("kind", "md".to_owned()), ("level", "raid5".to_owned())];
        evidence.note("missing-members", "count", &labels, 1.0);
        evidence.note("rebuilding", "share", &[("action", "recover".to_owned())], 0.25);
        let found = analyse(&evidence);
        assert!(found.findings[0].headline.contains("md raid5 is DEGRADED (1 of"), "{found:?}");
        assert!(found.findings[1].headline.contains("recover (25% done)"), "{found:?}");
    }

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        folder
    }

    #[test]
    fn an_array_that_rebuilds_shows_its_progress() {
        let array = tree(&[
            ("level", "raid5\n"),
            ("degraded", "1\n"),
            ("sync_action", "recover\n"),
            ("sync_completed", "250 / 1000\n"),
            ("dev-sda/errors", "2\n"),
            ("dev-sdb/errors", "0\n"),
        ]);
        let wanted = State {
            kind: "md",
            level: "raid5".to_owned(),
            missing: 1,
            action: Some("recover".to_owned()),
            done: 0.25,
            errors: 2,
        };
        assert_eq!(md(array.path()), wanted);
    }

    #[test]
    fn an_idle_array_is_whole_and_has_no_operation() {
        let files = [
            ("level", "raid1\n"),
            ("degraded", "0\n"),
            ("sync_action", "idle\n"),
            ("sync_completed", "none\n"),
        ];
        let state = md(tree(&files).path());
        assert_eq!((state.missing, state.action, state.errors), (0, None, 0));
    }

    #[test]
    fn a_btrfs_with_a_missing_device_is_degraded() {
        let system = tree(&[
            ("allocation/data/raid1/total_bytes", "1"),
            ("allocation/data/flags", "17"),
            ("devinfo/1/missing", "0\n"),
            ("devinfo/1/error_stats", "write_errs 0\nread_errs 3\n"),
            ("devinfo/2/missing", "1\n"),
            ("exclusive_operation", "none\n"),
        ]);
        let state = btrfs(system.path());
        assert_eq!((&*state.level, state.missing, state.errors), ("raid1", 1, 3));
        assert_eq!(state.action, None);
    }
}
