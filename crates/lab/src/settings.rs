//! Changes settings of the block device below a target for one run, and always restores them.
//!
//! A change is written to the journal before it is made, and is verified by reading the value back.
//! Dropping [`Changed`] restores the old values in reverse order. If the run was killed, the
//! command `halfpower restore` restores them from the journal. It never writes to a different
//! device with the same name, and keeps a value that another program has set since.
//!
//! A run locks the device's `queue` directory in sysfs, so that only one run at a time changes the
//! settings. When one setting changes, the kernel may reset others: the scheduler's tunables when
//! the scheduler changes, and the read-ahead when the write cache mode changes. These are recorded
//! and restored too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use ioengine::Monotonic;
use ioengine::device::Device;
use ioengine::host::device_of;
use ioengine::kernel::Kernel;
use ioengine::write_cache::{self, Means};

use crate::console::{self, Console};
use crate::failure::{Failure, Outcome};
use crate::journal::settings::{self as journal, Change, Entry, Found, Identity, Recorded};
use crate::machine;

/// Name of the setting for the I/O scheduler.
pub const SCHEDULER: &str = "scheduler";
/// Name of the setting for the size of the read-ahead window (KiB).
pub const READ_AHEAD: &str = "read_ahead_kb";
/// Name of the setting for the write cache mode that the kernel assumes for the drive.
pub const WRITE_CACHE: &str = "write_cache";
/// Name of the setting for the drive's own write cache. Its file is not in the device's `queue`
/// directory.
pub const DRIVE_CACHE: &str = "drive_cache";
/// Name of the setting for the maximum number of requests that the block layer queues.
pub const NR_REQUESTS: &str = "nr_requests";
/// Name of the setting that controls whether requests are merged.
pub const NOMERGES: &str = "nomerges";

/// Remedy for errors about a drive that cannot be found.
pub const WHEN_ABSENT: &str = "attach only that drive and run halfpower restore";

/// Maximum number of attempts to read a locked journal entry, or to write a setting that is busy.
const ATTEMPTS: u32 = 20;
/// Pause between two attempts.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(50);

/// For each setting, the other settings that the kernel may reset when this setting is changed. A
/// change of the scheduler also resets the scheduler's tunables, which are not listed here.
const MOVED: [(&str, &[&str]); 3] = [
    (SCHEDULER, &[NR_REQUESTS, "wbt_lat_usec"]),
    (WRITE_CACHE, &[READ_AHEAD, "wbt_lat_usec"]),
    (DRIVE_CACHE, &[WRITE_CACHE, READ_AHEAD, "wbt_lat_usec"]),
];

/// A requested setting of a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSetting {
    /// Name of the setting, for example [`SCHEDULER`].
    pub name: &'static str,
    /// The value that the user requested.
    pub value: String,
}

/// Settings that were changed. Dropping this value restores them.
#[derive(Debug)]
pub struct Changed {
    disk: PathBuf,
    entry: Entry,
    recorded: Option<Recorded>,
    _claim: File,
}

/// Result of undoing one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The old value was restored.
    Restored,
    /// The setting already had its old value.
    AsBefore,
    /// Another program has set the setting to this value in the meantime. The value was kept.
    Left(String),
    /// The old value could not be restored. Contains the reason.
    Failed(String),
}

/// Whether the changes in a journal entry can be undone.
#[derive(Debug)]
pub enum Standing {
    /// The changes can be undone.
    Pending {
        /// Sysfs directory of the device.
        disk: PathBuf,
        /// The changes to undo.
        changes: Vec<Change>,
    },
    /// The device cannot be found, and may still have a changed setting. Contains a description of
    /// the setting and the device.
    Absent(String),
    /// There is nothing to restore. Contains the reason.
    Forget(String),
}

// ---- before a run

/// Describes the planned changes in one sentence per setting.
///
/// # Errors
/// As for [`Changed::apply`].
pub fn plan(targets: &[PathBuf], wanted: &[HostSetting]) -> Outcome<Vec<String>> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let disk = disk_beneath(targets)?;
    let changes = changes(&disk, wanted)?;
    let line = |change: &Change| {
        let old = &change.old;
        let wanted = change.wanted.as_ref().filter(|wanted| *wanted != old)?;
        Some(format!(
            "set {} from {old} to {wanted}, and back to {old} after the run",
            what(change, &disk)
        ))
    };
    Ok(changes.iter().filter_map(line).collect())
}

impl Changed {
    /// Records the requested changes in the journal, and then changes the settings of the device.
    /// All targets must be on the same device. Returns None if no settings are requested.
    ///
    /// # Errors
    /// There is no device or there are several, root rights are missing, the kernel rejects a
    /// value, another run is using the settings, a killed run left them changed, or the journal
    /// cannot be written.
    pub fn apply(targets: &[PathBuf], wanted: &[HostSetting]) -> Outcome<Option<Changed>> {
        if wanted.is_empty() {
            return Ok(None);
        }
        let disk = disk_beneath(targets)?;
        if !machine::is_root() {
            let name = name_of(&disk);
            return Err(Failure::failed(format!(
                "changing settings of {name} needs root; run as root, or drop the flags listed \
                 under 'Host' in halfpower run --help"
            )));
        }
        let claim = claim(&disk).ok_or_else(|| held(&disk))?;
        settle_earlier(&disk)?;
        let entry = Entry {
            device: identity(&disk),
            changes: changes(&disk, wanted)?,
            pid: std::process::id(),
            boot_id: machine::boot_id(),
        };
        let recorded = Recorded::write(&entry).map_err(|error| {
            let cause = ioengine::error::cause(&error);
            Failure::failed(format!(
                "writing the settings of {} to the journal: {cause}; nothing was changed; set \
                 XDG_STATE_HOME to a writable directory",
                name_of(&disk)
            ))
        })?;
        let changed = Changed { disk, entry, recorded: Some(recorded), _claim: claim };
        // If a setting cannot be changed, dropping `changed` restores the settings changed before.
        for change in &changed.entry.changes {
            set(change, &changed.disk)?;
        }
        Ok(Some(changed))
    }

    /// Returns the requested settings whose value was changed.
    pub fn made(&self) -> impl Iterator<Item = &Change> {
        let differs = |c: &&Change| c.wanted.as_ref().is_some_and(|wanted| *wanted != c.old);
        self.entry.changes.iter().filter(differs)
    }

    /// Restores all settings. If that fails, reports the failure on stderr and returns false.
    pub fn restore(mut self) -> bool {
        self.put_back()
    }

    fn put_back(&mut self) -> bool {
        let Some(recorded) = self.recorded.take() else { return true };
        let (disk, changes) = match standing(&self.entry) {
            Standing::Pending { disk, changes } => (disk, changes),
            Standing::Forget(why) => {
                let name = name_of(&self.disk);
                console::error(&format!("the settings of {name} were not restored: {why}"));
                recorded.undone();
                return true;
            }
            Standing::Absent(what) => {
                console::error(&format!("not restored: {what}; {WHEN_ABSENT}"));
                return false;
            }
        };
        let mut failed = false;
        for (change, fate) in undo(&changes) {
            match fate {
                Fate::Restored | Fate::AsBefore => {}
                Fate::Left(_) => console::error(&said(&change, &disk, &fate)),
                Fate::Failed(_) => {
                    failed = true;
                    let text = said(&change, &disk, &fate);
                    console::error(&format!("{text}; run halfpower restore"));
                }
            }
        }
        if !failed {
            recorded.undone();
        }
        !failed
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        self.put_back();
    }
}

/// Returns the sysfs directory of the disk that holds all targets. For a partition, this is the
/// whole disk.
///
/// # Errors
/// A usage error if there is no disk or there are several.
pub fn disk_beneath(targets: &[PathBuf]) -> Outcome<PathBuf> {
    let none = |target: &Path| {
        Failure::usage(format!(
            "{}: no single block device is known below this target, so host settings cannot be \
             changed; drop the flags listed under 'Host' in halfpower run --help",
            target.display()
        ))
    };
    let mut common: Option<PathBuf> = None;
    for target in targets {
        let device = device_beneath(target).ok_or_else(|| none(target))?;
        let disk = device.disk().to_path_buf();
        match &common {
            Some(first) if *first != disk => {
                return Err(Failure::usage(format!(
                    "the targets lie on {} and {}, but host settings can be changed on only \
                     one device; measure the targets one by one",
                    name_of(first),
                    name_of(&disk)
                )));
            }
            _ => common = Some(disk),
        }
    }
    let no_target = "host settings need a target on a block device; use such a target, or drop \
                     the flags listed under 'Host' in halfpower run --help";
    common.ok_or_else(|| Failure::usage(no_target))
}

fn device_beneath(target: &Path) -> Option<Device> {
    let metadata = fs::metadata(target).ok()?;
    if metadata.file_type().is_block_device() {
        let number = metadata.rdev();
        return Device::of((libc::major(number), libc::minor(number)));
    }
    device_of(target)
}

fn name_of(disk: &Path) -> String {
    disk.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Formats a setting and its device, such as `scheduler of sda`.
fn what(change: &Change, disk: &Path) -> String {
    format!("{} of {}", change.name, name_of(disk))
}

fn identity(disk: &Path) -> Identity {
    let text = |name: &str| fs::read_to_string(disk.join(name)).ok().map(|t| t.trim().to_owned());
    let number = text("dev").unwrap_or_default();
    Identity {
        name: name_of(disk),
        serial: Device::numbered(&number).and_then(|device| device.info().serial),
        number,
        diskseq: text("diskseq"),
        queue: fs::metadata(disk.join("queue")).ok().map(|queue| queue.ino()),
    }
}

/// Locks the settings of a device for this process. None if another process holds the lock.
fn claim(disk: &Path) -> Option<File> {
    let folder = File::open(disk.join("queue")).ok()?;
    folder.try_lock().is_ok().then_some(folder)
}

fn held(disk: &Path) -> Failure {
    let name = name_of(disk);
    let owner = journal::of(&name).filter(Found::is_in_use);
    let owner = owner.map_or("another run".into(), |f| format!("process {}", f.entry.pid));
    Failure::failed(format!(
        "settings of {name} are in use by {owner}, which restores them at its end; wait until then"
    ))
}

/// Removes the journal entry of an earlier run for the same device if it is obsolete. Fails if the
/// entry contains settings that still have to be restored.
fn settle_earlier(disk: &Path) -> Outcome<()> {
    let name = name_of(disk);
    // This process holds the lock on the device, so the run that wrote the entry has ended. If the
    // entry is in use, `halfpower clean` or `restore --plan` is reading it and will release it
    // soon.
    let clock = Monotonic::new();
    let mut found = journal::of(&name);
    for _ in 0..ATTEMPTS {
        if !found.as_ref().is_some_and(Found::is_in_use) {
            break;
        }
        clock.sleep(ATTEMPT_PAUSE);
        found = journal::of(&name);
    }
    let Some(found) = found else { return Ok(()) };
    let Some((entry, recorded)) = found.of_dead_owner() else {
        return Err(held(disk));
    };
    match standing(&entry) {
        Standing::Forget(_) => {
            recorded.undone();
            Ok(())
        }
        Standing::Absent(what) => Err(Failure::failed(format!(
            "a run that was killed did not restore a setting of a drive: {what}; {WHEN_ABSENT}; to \
             keep the changed setting instead, remove the file {}",
            recorded.file().display()
        ))),
        Standing::Pending { .. } => Err(Failure::failed(format!(
            "a run that was killed did not restore settings of {name}; run halfpower restore first"
        ))),
    }
}

/// Returns the changes for the requested settings, in the order in which they are made.
fn changes(disk: &Path, wanted: &[HostSetting]) -> Outcome<Vec<Change>> {
    let mut changes = Vec::new();
    for wish in wanted {
        let path = path_of(disk, wish.name).ok_or_else(|| {
            let name = name_of(disk);
            Failure::failed(format!(
                "{name} has no write cache that can be switched on and off; drop \
                 --toggle-write-cache"
            ))
        })?;
        let listed = text(&path).map_err(|error| {
            Failure::failed(format!(
                "{} of {} cannot be read: {}; if the device lacks this setting, drop the flag that \
                 changes the setting",
                wish.name,
                name_of(disk),
                ioengine::error::cause(&error)
            ))
        })?;
        if wish.name == SCHEDULER {
            check_offered(disk, listed.trim(), &wish.value)?;
        }
        let (name, old) = (wish.name.to_owned(), in_brackets(&listed));
        let moved_by = mover(wish.name, wanted);
        changes.push(Change { name, path, old, wanted: Some(wish.value.clone()), moved_by });
        let wished = |moved: &Change| wanted.iter().any(|wish| wish.name == moved.name);
        changes.extend(moved_by_kernel(wish.name, disk).filter(|moved| !wished(moved)));
    }
    Ok(changes)
}

fn check_offered(disk: &Path, listed: &str, wanted: &str) -> Outcome<()> {
    let offered: Vec<&str> = listed.split([' ', '[', ']']).filter(|w| !w.is_empty()).collect();
    if offered.contains(&wanted) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--scheduler {wanted}: {} offers only {}; use one of these",
        name_of(disk),
        offered.join(", ")
    )))
}

/// Returns the requested setting whose change makes the kernel reset the setting `name` too.
fn mover(name: &str, wanted: &[HostSetting]) -> Option<String> {
    let mut movers = MOVED.iter().filter(|(_, moved)| moved.contains(&name));
    let wished = movers.find(|(by, _)| wanted.iter().any(|wish| wish.name == *by));
    wished.map(|(by, _)| (*by).to_owned())
}

/// Returns the settings that the kernel may reset when the setting `by` is changed, with their
/// current values.
fn moved_by_kernel(by: &str, disk: &Path) -> impl Iterator<Item = Change> {
    let queue = disk.join("queue");
    let moved = MOVED.iter().filter(|(name, _)| *name == by).flat_map(|(_, moved)| *moved);
    let mut names: Vec<String> = moved.map(|name| (*name).to_owned()).collect();
    if by == SCHEDULER {
        for tunable in fs::read_dir(queue.join("iosched")).into_iter().flatten().flatten() {
            names.push(format!("iosched/{}", tunable.file_name().to_string_lossy()));
        }
    }
    let by = by.to_owned();
    names.into_iter().filter_map(move |name| {
        let path = queue.join(&name);
        let old = value(&path).ok()?;
        Some(Change { name, path, old, wanted: None, moved_by: Some(by.clone()) })
    })
}

// ---- reading and writing

/// Returns the path of a setting's file. For the drive's own cache, it may be a device in `/dev`.
fn path_of(disk: &Path, name: &str) -> Option<PathBuf> {
    match name {
        DRIVE_CACHE => Means::of(disk).map(|means| means.path().to_path_buf()),
        name => Some(disk.join("queue").join(name)),
    }
}

fn text(path: &Path) -> io::Result<String> {
    if path.starts_with("/dev") { write_cache::state_at(path) } else { fs::read_to_string(path) }
}

/// Reads the value of a setting. If the file lists several values, returns the current one, which
/// is in brackets, as in `none [mq-deadline]`.
fn value(path: &Path) -> io::Result<String> {
    Ok(in_brackets(&text(path)?))
}

fn in_brackets(text: &str) -> String {
    text.split(['[', ']']).nth(1).unwrap_or(text).trim().to_owned()
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    if path.starts_with("/dev") {
        return write_cache::set_at(path, value);
    }
    while_busy(|| OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes()))
}

/// Repeats a write that fails with EBUSY, for up to a second. Recent kernels, such as Linux
/// 6.18.44, refuse to change the scheduler or `nr_requests` while another change is in progress on
/// a device with the same tag set (`queue_requests_store`, `elv_iosched_store`).
fn while_busy(mut write: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let clock = Monotonic::new();
    for _ in 1..ATTEMPTS {
        match write() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => clock.sleep(ATTEMPT_PAUSE),
            written => return written,
        }
    }
    write()
}

/// Changes a setting and reads the new value back. If the kernel stored a value that was not
/// requested, the old value is restored immediately. Later, `undo` would assume that another
/// program had set the stored value, and would not restore the old value.
fn set(change: &Change, disk: &Path) -> Outcome<()> {
    let Some(wanted) = &change.wanted else { return Ok(()) };
    let failed = |cause: String| {
        let what = what(change, disk);
        Failure::failed(format!(
            "setting {what} to {wanted}: {cause}; drop the flag for this setting, or use another \
             value"
        ))
    };
    write(&change.path, wanted).map_err(|error| failed(ioengine::error::cause(&error)))?;
    match value(&change.path) {
        Ok(now) if now == *wanted => Ok(()),
        Ok(now) => {
            let _ = write(&change.path, &change.old);
            Err(failed(format!("the kernel stored {now} instead")))
        }
        Err(error) => Err(failed(ioengine::error::cause(&error))),
    }
}

// ---- after a run

/// Checks whether the changes in a journal entry can be undone. The entry must belong to this
/// process or to a process that has ended.
pub fn standing(entry: &Entry) -> Standing {
    let forget = |why: &str| Standing::Forget(why.to_owned());
    if entry.boot_id != machine::boot_id() {
        return in_drive(entry, &Kernel::of_host());
    }
    let kept = || entry.device.serial.is_some() && entry.changes.iter().any(is_of_drive);
    let Some(device) = Device::numbered(&entry.device.number) else {
        if kept() {
            return in_drive(entry, &Kernel::of_host());
        }
        return forget("the device is gone");
    };
    let disk = device.disk();
    // A device can get another medium, such as another memory card or another file of a loop
    // device. Its queue and its settings stay the same, so they are still restored.
    let now = identity(disk);
    let same_queue = now.queue.is_some() && now.queue == entry.device.queue;
    if !same_queue && now != entry.device {
        if kept() {
            return in_drive(entry, &Kernel::of_host());
        }
        return forget("another device has the same name now");
    }
    // The journal can be edited by hand, so only files that are settings of this device are
    // written.
    let ours = |change: &Change| {
        let mut parts = Path::new(&change.name).components();
        let plain = parts.all(|part| matches!(part, Component::Normal(_)));
        plain && path_of(disk, &change.name).is_some_and(|path| path == change.path)
    };
    if !entry.changes.iter().all(ours) {
        return forget("the journal entry names files that do not hold settings of the device");
    }
    Standing::Pending { disk: disk.to_path_buf(), changes: entry.changes.clone() }
}

fn is_of_drive(change: &Change) -> bool {
    change.name == DRIVE_CACHE
}

/// Checks what can be undone after a reboot, or after the drive was detached. Both reset the
/// settings in the kernel. A drive may still keep the mode of its write cache: SCSI disks save
/// their caching page if they can. The drive is found by its serial number, because its name may
/// have changed.
fn in_drive(entry: &Entry, kernel: &Kernel) -> Standing {
    let forget = |why: &str| Standing::Forget(why.to_owned());
    let Some(change) = entry.changes.iter().find(|change| is_of_drive(change)) else {
        return forget("the machine was rebooted in the meantime, which reset the settings");
    };
    let Some(serial) = &entry.device.serial else {
        return forget(
            "the machine was rebooted in the meantime, and the drive cannot be found because it \
             has no serial number; check its write cache with halfpower study write-cache",
        );
    };
    let mut drives = kernel.all();
    drives.retain(|drive| drive.info().serial.as_ref() == Some(serial));
    // The namespaces of one NVMe drive have the same serial number, and count as one drive. If
    // several drives have the number, none is written to, because it is unknown which one was
    // changed.
    let controller = |drive: &Device| {
        let name = drive.name();
        name.strip_prefix("nvme").and_then(|rest| rest.split('n').next().map(str::to_owned))
    };
    drives.dedup_by_key(|drive| controller(drive).unwrap_or_else(|| drive.name()));
    let why = match drives.as_slice() {
        [drive] => match path_of(drive.disk(), DRIVE_CACHE) {
            Some(path) => {
                let changes = vec![Change { path, ..change.clone() }];
                return Standing::Pending { disk: drive.disk().to_path_buf(), changes };
            }
            None => format!(
                "{} has that serial number, but no cache that can be switched on and off",
                drive.name()
            ),
        },
        [] => "no drive with that serial number is attached".to_owned(),
        several => format!("{} drives with that serial number are attached", several.len()),
    };
    let (name, wanted) = (&entry.device.name, change.wanted.as_deref().unwrap_or_default());
    Standing::Absent(format!(
        "{DRIVE_CACHE} of {name} (serial number {serial}) was set from {} to {wanted}, and {why}",
        change.old
    ))
}

/// Undoes changes in reverse order, and returns the result of each change. A setting that the user
/// did not request, but the kernel reset, is included only if it could not be restored.
pub fn undo(changes: &[Change]) -> Vec<(Change, Fate)> {
    let fates = fates(changes);
    let mut failures: Vec<Option<String>> = vec![None; changes.len()];
    // There are two passes, because restoring one setting can reset another that is already
    // restored.
    for _ in 0..2 {
        for (index, change) in changes.iter().enumerate().rev() {
            let goal = match &fates[index] {
                Fate::Left(now) => now,
                Fate::Failed(_) => continue,
                Fate::Restored | Fate::AsBefore => &change.old,
            };
            if value(&change.path).is_ok_and(|now| now != *goal) {
                let failure = write(&change.path, goal).err();
                failures[index] = failure.map(|error| ioengine::error::cause(&error));
            }
        }
    }
    let checked = |((change, fate), failure): ((&Change, Fate), Option<String>)| {
        let fate = match (value(&change.path), failure) {
            _ if !is_undone(&fate) => fate,
            (Ok(now), _) if now == change.old => fate,
            (_, Some(cause)) => Fate::Failed(cause),
            (Ok(now), None) => Fate::Failed(format!("the kernel stored {now} instead")),
            (Err(error), None) => Fate::Failed(ioengine::error::cause(&error)),
        };
        let named = change.wanted.is_some() || matches!(fate, Fate::Failed(_));
        named.then(|| (change.clone(), fate))
    };
    changes.iter().zip(fates).zip(failures).rev().filter_map(checked).collect()
}

/// Predicts the result of undoing each change. The prediction uses the current values. If the
/// kernel resets setting A when setting B changes, A is restored whenever B is restored. The
/// current value of A is then ignored, because the kernel may have set it.
pub fn fates(changes: &[Change]) -> Vec<Fate> {
    let mut fates: Vec<Fate> = Vec::new();
    for change in changes {
        let by = changes.iter().position(|by| change.moved_by.as_ref() == Some(&by.name));
        let goes_back = by.and_then(|by| fates.get(by)).is_some_and(is_undone);
        let fate = match value(&change.path) {
            Ok(now) if now == change.old => Fate::AsBefore,
            Ok(now) if change.wanted.as_ref() == Some(&now) => Fate::Restored,
            _ if goes_back => Fate::Restored,
            Ok(now) => Fate::Left(now),
            Err(_) if change.wanted.is_none() => Fate::Left(String::new()),
            Err(error) => Fate::Failed(ioengine::error::cause(&error)),
        };
        fates.push(fate);
    }
    fates
}

fn is_undone(fate: &Fate) -> bool {
    matches!(fate, Fate::Restored | Fate::AsBefore)
}

/// Returns a sentence that describes the result of undoing a change.
pub fn said(change: &Change, disk: &Path, fate: &Fate) -> String {
    let (what, old) = (what(change, disk), &change.old);
    match fate {
        Fate::Restored => format!("restored {what} to {old}"),
        Fate::AsBefore => format!("unchanged: {what} is still {old}"),
        Fate::Left(now) => format!(
            "left {what} at {now}: another program set this value after the run had changed {old} \
             to {}",
            change.wanted.as_deref().unwrap_or(old)
        ),
        Fate::Failed(cause) => format!("failed: {what} was not restored to {old}: {cause}"),
    }
}

/// Locks the settings of a device so that they can be restored. None if another process holds the
/// lock.
pub fn claim_to_undo(disk: &Path) -> Option<File> {
    claim(disk)
}

/// Returns the names of devices whose settings a killed run did not restore.
pub fn left_behind() -> Vec<String> {
    let dead = journal::all().into_iter().filter_map(Found::of_dead_owner);
    let pending = dead.filter(|(entry, _)| matches!(standing(entry), Standing::Pending { .. }));
    pending.map(|(entry, _)| entry.device.name).collect()
}

/// Warns if a killed run did not restore settings.
pub fn warn_of_left_behind(console: &Console) {
    let devices = left_behind();
    if !devices.is_empty() {
        console.warn(format!(
            "a run that was killed did not restore settings of {}; run halfpower restore",
            devices.join(", ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioengine::write_cache::{BACK, THROUGH};

    fn file(disk: &Path, name: &str, text: &str) -> PathBuf {
        let path = disk.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_setting_that_is_busy_for_a_moment_is_written_again() {
        let mut answers = vec![Ok(()), Err(libc::EBUSY), Err(libc::EBUSY)];
        let mut write = || answers.pop().unwrap().map_err(io::Error::from_raw_os_error);
        while_busy(&mut write).unwrap();
        assert!(answers.is_empty());
    }

    #[test]
    fn a_setting_that_is_refused_for_another_reason_is_written_once() {
        let mut count = 0;
        let write = || {
            count += 1;
            Err(io::Error::from_raw_os_error(libc::EINVAL))
        };
        assert_eq!(while_busy(write).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(count, 1);
    }

    #[test]
    fn the_cache_of_a_drive_is_switched_in_the_drive_and_restored_with_dependent_settings() {
        let disk = tempfile::tempdir().unwrap();
        let cache = file(disk.path(), "device/scsi_disk/2:0:0:0/cache_type", "write back");
        let believed = file(disk.path(), "queue/write_cache", "write back");
        let wish = HostSetting { name: DRIVE_CACHE, value: THROUGH.to_owned() };
        let changes = changes(disk.path(), &[wish]).unwrap();
        assert_eq!((&changes[0].path, &*changes[0].old), (&cache, BACK));
        assert_eq!(changes[1].name, WRITE_CACHE, "the kernel sets write_cache again");
        // On a real disk, the kernel changes both files when the mode of the drive's cache changes.
        fs::write(&cache, THROUGH).unwrap();
        fs::write(&believed, THROUGH).unwrap();
        assert_eq!(value(&changes[0].path).unwrap(), THROUGH);
        fs::write(&cache, THROUGH).unwrap();
        assert_eq!(fates(&changes), [Fate::Restored, Fate::Restored]);
    }

    /// Returns the journal entry of a run that switched the write cache of a disk and was killed.
    /// The machine was rebooted since then.
    fn entry_of_earlier_boot(serial: Option<&str>) -> Entry {
        let change = |name: &str, wanted: Option<&str>| Change {
            name: name.to_owned(),
            path: Path::new("/nowhere").join(name),
            old: BACK.to_owned(),
            wanted: wanted.map(str::to_owned),
            moved_by: None,
        };
        let device = Identity {
            name: "sda".to_owned(),
            number: "8:0".to_owned(),
            serial: serial.map(str::to_owned),
            diskseq: None,
            queue: None,
        };
        let changes = vec![change(DRIVE_CACHE, Some(THROUGH)), change(WRITE_CACHE, None)];
        Entry { device, changes, pid: 1, boot_id: "an earlier boot".to_owned() }
    }

    #[test]
    fn a_drive_keeps_its_cache_mode_over_a_reboot_and_is_found_by_its_serial_number() {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join("sys/devices/sdb");
        file(&disk, "serial", "S1");
        let cache = file(&disk, "device/scsi_disk/2:0:0:0/cache_type", "write through");
        fs::create_dir_all(root.path().join("sys/block")).unwrap();
        std::os::unix::fs::symlink(&disk, root.path().join("sys/block/sdb")).unwrap();
        let kernel = Kernel::below(root.path());
        let standing = in_drive(&entry_of_earlier_boot(Some("S1")), &kernel);
        let Standing::Pending { disk: found, changes } = standing else { panic!("{standing:?}") };
        assert_eq!(found, fs::canonicalize(&disk).unwrap());
        assert_eq!(changes.len(), 1, "the reboot reset what the kernel holds: {changes:?}");
        assert_eq!(fs::canonicalize(&changes[0].path).unwrap(), fs::canonicalize(cache).unwrap());
        assert_eq!(fates(&changes), [Fate::Restored]);

        let standing = in_drive(&entry_of_earlier_boot(Some("S2")), &kernel);
        let Standing::Absent(text) = standing else { panic!("{standing:?}") };
        assert!(text.contains("sda (serial number S2) was set from write back to"), "{text}");
        assert!(text.ends_with("and no drive with that serial number is attached"), "{text}");
        let twin = root.path().join("sys/devices/sdc");
        file(&twin, "serial", "S1");
        std::os::unix::fs::symlink(&twin, root.path().join("sys/block/sdc")).unwrap();
        let standing = in_drive(&entry_of_earlier_boot(Some("S1")), &kernel);
        assert!(
            matches!(standing, Standing::Absent(text) if text.contains("2 drives with that serial"))
        );
        let standing = in_drive(&entry_of_earlier_boot(None), &kernel);
        assert!(matches!(standing, Standing::Forget(why) if why.contains("no serial number")));
    }

    #[test]
    fn a_disk_without_a_cache_of_its_own_is_refused() {
        let disk = tempfile::tempdir().unwrap();
        file(disk.path(), "queue/write_cache", "write back");
        let wish = HostSetting { name: DRIVE_CACHE, value: THROUGH.to_owned() };
        let failure = changes(disk.path(), &[wish]).unwrap_err();
        assert!(failure.message.contains("no write cache that can be switched"), "{failure}");
    }
}
