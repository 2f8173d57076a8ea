//! Settings of the block device beneath a target, changed for one run and always put back.
//!
//! What is about to change is in the journal before it changes; the value is read back after it
//! is written; dropping [`Changed`] restores, in reverse order, whatever ended the run. After a
//! kill `halfpower restore` does the same from the journal. Nothing is written to a device that is
//! not the one that was changed, and a value that somebody else has set since is left alone.
//!
//! One run at a time changes the settings of a device: it holds a lock on the device's `queue`
//! folder in sysfs, whatever its state folder. What the kernel resets along with a setting (with
//! the scheduler its tunables, with the write cache the read-ahead) is remembered and put back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use ioengine::Monotonic;
use ioengine::device::Device;
use ioengine::host::device_of;
use ioengine::write_cache::{self, Means};

use crate::console::{self, Console};
use crate::failure::{Failure, Outcome};
use crate::journal::settings::{self as journal, Change, Entry, Found, Identity, Recorded};
use crate::machine;

/// The I/O scheduler.
pub const SCHEDULER: &str = "scheduler";
/// The read-ahead window (KiB).
pub const READ_AHEAD: &str = "read_ahead_kb";
/// What the kernel believes of the device's write cache.
pub const WRITE_CACHE: &str = "write_cache";
/// The drive's own write cache, which is not below `queue`.
pub const DRIVE_CACHE: &str = "drive_cache";
/// Requests that the queue holds.
pub const NR_REQUESTS: &str = "nr_requests";
/// Whether requests are merged.
pub const NOMERGES: &str = "nomerges";

/// How often, and how long apart, an entry that somebody looks at is looked at again.
const LOOKS: u32 = 20;
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// What the kernel may reset when a setting is changed, besides the tunables of a scheduler.
const MOVED: [(&str, &[&str]); 3] = [
    (SCHEDULER, &[NR_REQUESTS, "wbt_lat_usec"]),
    (WRITE_CACHE, &[READ_AHEAD, "wbt_lat_usec"]),
    (DRIVE_CACHE, &[WRITE_CACHE, READ_AHEAD, "wbt_lat_usec"]),
];

/// A wish: a file below the device's `queue` folder and the value that it shall have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSetting {
    /// Name of the file.
    pub name: &'static str,
    /// The value, as it is read there.
    pub value: String,
}

/// Settings in force; dropping it restores.
#[derive(Debug)]
pub struct Changed {
    disk: PathBuf,
    entry: Entry,
    recorded: Option<Recorded>,
    _claim: File,
}

/// What becomes of a change that is to be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The old value is back.
    Restored,
    /// The old value was there already.
    AsBefore,
    /// Somebody else has set this value since.
    Left(String),
    /// The old value could not be put back, and why.
    Failed(String),
}

/// What can be done about an entry whose owner is dead.
#[derive(Debug)]
pub enum Standing {
    /// The device is there as it was: its folder in sysfs.
    Pending(PathBuf),
    /// There is nothing to restore, and why.
    Forget(String),
}

// ---- before a run

/// What would be changed, one sentence for each setting.
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
        Some(format!("set {} from {old} to {wanted}, and put it back", what(change, &disk)))
    };
    Ok(changes.iter().filter_map(line).collect())
}

impl Changed {
    /// Journals and sets what is wanted of the one device beneath all targets. None: nothing is.
    ///
    /// # Errors
    /// No or several devices beneath, no root, a value that the kernel does not take, settings
    /// held by another run or left by a killed one, a journal that cannot be written.
    pub fn apply(targets: &[PathBuf], wanted: &[HostSetting]) -> Outcome<Option<Changed>> {
        if wanted.is_empty() {
            return Ok(None);
        }
        let disk = disk_beneath(targets)?;
        if !machine::is_root() {
            let name = name_of(&disk);
            return Err(Failure::failed(format!(
                "changing settings of {name} needs root; run as root, or drop the flags under \
                 Host (halfpower run --help)"
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
                "journalling settings of {}: {cause}; set XDG_STATE_HOME to a folder that can be \
                 written, for nothing is changed that could not be restored",
                name_of(&disk)
            ))
        })?;
        let changed = Changed { disk, entry, recorded: Some(recorded), _claim: claim };
        // An error from here on drops, and so restores, what was set before it.
        for change in &changed.entry.changes {
            set(change, &changed.disk)?;
        }
        Ok(Some(changed))
    }

    /// What was changed: the settings that were asked for and had another value.
    pub fn made(&self) -> impl Iterator<Item = &Change> {
        let differs = |c: &&Change| c.wanted.as_ref().is_some_and(|wanted| *wanted != c.old);
        self.entry.changes.iter().filter(differs)
    }

    /// Puts everything back; false, and said on stderr, where that failed.
    pub fn restore(mut self) -> bool {
        self.put_back()
    }

    fn put_back(&mut self) -> bool {
        let Some(recorded) = self.recorded.take() else { return true };
        if let Standing::Forget(why) = standing(&self.entry) {
            console::error(&format!("settings of {} are not restored: {why}", name_of(&self.disk)));
            recorded.undone();
            return true;
        }
        let mut failed = false;
        for (change, fate) in undo(&self.entry.changes) {
            match fate {
                Fate::Restored | Fate::AsBefore => {}
                Fate::Left(_) => console::error(&said(&change, &self.disk, &fate)),
                Fate::Failed(_) => {
                    failed = true;
                    let said = said(&change, &self.disk, &fate);
                    console::error(&format!("{said}; say halfpower restore"));
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

/// The folder in sysfs of the one whole disk beneath all targets.
///
/// # Errors
/// Usage, when there is none, or several.
pub fn disk_beneath(targets: &[PathBuf]) -> Outcome<PathBuf> {
    let none = |target: &Path| {
        Failure::usage(format!(
            "{}: the system tells of no single block device beneath it whose settings could be \
             changed; drop the flags under Host (halfpower run --help)",
            target.display()
        ))
    };
    let mut found: Option<PathBuf> = None;
    for target in targets {
        let device = device_beneath(target).ok_or_else(|| none(target))?;
        let disk = device.disk().to_path_buf();
        match &found {
            Some(first) if *first != disk => {
                return Err(Failure::usage(format!(
                    "the targets lie on {} and {}: host settings are changed on one device; \
                     measure them one by one",
                    name_of(first),
                    name_of(&disk)
                )));
            }
            _ => found = Some(disk),
        }
    }
    let no_target = "host settings need a target on a block device; name one, or drop the flags \
                     under Host (halfpower run --help)";
    found.ok_or_else(|| Failure::usage(no_target))
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

/// A setting and its device in words.
fn what(change: &Change, disk: &Path) -> String {
    format!("{} of {}", change.name, name_of(disk))
}

fn identity(disk: &Path) -> Identity {
    let text = |name: &str| fs::read_to_string(disk.join(name)).ok().map(|t| t.trim().to_owned());
    Identity {
        name: name_of(disk),
        number: text("dev").unwrap_or_default(),
        serial: text("serial").or_else(|| text("device/serial")).filter(|s| !s.is_empty()),
        diskseq: text("diskseq"),
        queue: fs::metadata(disk.join("queue")).ok().map(|queue| queue.ino()),
    }
}

/// Takes the settings of a device for this process, if nobody has them.
fn claim(disk: &Path) -> Option<File> {
    let folder = File::open(disk.join("queue")).ok()?;
    folder.try_lock().is_ok().then_some(folder)
}

fn held(disk: &Path) -> Failure {
    let name = name_of(disk);
    let owner = journal::of(&name).filter(Found::is_in_use);
    let owner = owner.map_or("another run".into(), |f| format!("process {}", f.entry.pid));
    Failure::failed(format!(
        "settings of {name} are held by {owner}, which will put them back; wait for its end"
    ))
}

/// Sees to an entry that a dead run left for the same device.
fn settle_earlier(disk: &Path) -> Outcome<()> {
    let name = name_of(disk);
    // Whoever holds the settings of the device now is dead, since they are ours; one who only
    // looks at its entry (clean, restore --plan) is gone in a moment.
    let clock = Monotonic::new();
    let mut found = journal::of(&name);
    for _ in 0..LOOKS {
        if !found.as_ref().is_some_and(Found::is_in_use) {
            break;
        }
        clock.sleep(LOOK_PAUSE);
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
        Standing::Pending(_) => Err(Failure::failed(format!(
            "a run that was killed left settings of {name} changed; say halfpower restore first"
        ))),
    }
}

/// What has to change for the wishes to come true, in the order in which they are made.
fn changes(disk: &Path, wanted: &[HostSetting]) -> Outcome<Vec<Change>> {
    let mut changes = Vec::new();
    for wish in wanted {
        let path = path_of(disk, wish.name).ok_or_else(|| {
            let name = name_of(disk);
            Failure::failed(format!("{name} has no write cache that the system could switch"))
        })?;
        let listed = text(&path).map_err(|error| {
            Failure::failed(format!(
                "{} of {} cannot be read: {}; this device has no such setting, drop its flag",
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
        "--scheduler {wanted}: {} offers {}",
        name_of(disk),
        offered.join(", ")
    )))
}

/// The one of the wishes that moves this setting.
fn mover(name: &str, wanted: &[HostSetting]) -> Option<String> {
    let mut movers = MOVED.iter().filter(|(_, moved)| moved.contains(&name));
    let wished = movers.find(|(by, _)| wanted.iter().any(|wish| wish.name == *by));
    wished.map(|(by, _)| (*by).to_owned())
}

/// What has to be put back with a setting.
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

/// The file of a setting; of the drive's own cache, where the drive is asked.
fn path_of(disk: &Path, name: &str) -> Option<PathBuf> {
    match name {
        DRIVE_CACHE => Means::of(disk).map(|means| means.path().to_path_buf()),
        name => Some(disk.join("queue").join(name)),
    }
}

fn text(path: &Path) -> io::Result<String> {
    match path.starts_with("/dev") {
        true => write_cache::state_at(path),
        false => fs::read_to_string(path),
    }
}

/// The value of a setting: of a list, the chosen one.
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
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

/// Sets what is wanted and reads it back. A value that the kernel made of it goes at once, for
/// nobody could tell later whose it is.
fn set(change: &Change, disk: &Path) -> Outcome<()> {
    let Some(wanted) = &change.wanted else { return Ok(()) };
    let failed = |cause: String| {
        let what = what(change, disk);
        Failure::failed(format!("setting {what} to {wanted}: {cause}; drop its flag or change it"))
    };
    write(&change.path, wanted).map_err(|error| failed(ioengine::error::cause(&error)))?;
    match value(&change.path) {
        Ok(now) if now == *wanted => Ok(()),
        Ok(now) => {
            let _ = write(&change.path, &change.old);
            Err(failed(format!("the kernel made it {now}")))
        }
        Err(error) => Err(failed(ioengine::error::cause(&error))),
    }
}

// ---- after a run

/// Whether the entry of a dead owner, or of this process, can be undone.
pub fn standing(entry: &Entry) -> Standing {
    let forget = |why: &str| Standing::Forget(why.to_owned());
    if entry.boot_id != machine::boot_id() {
        return forget("the machine was started anew since, which undid them");
    }
    let number = entry.device.number.split_once(':');
    let number = number.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let Some(device) = number.and_then(Device::of) else {
        return forget("the device is gone");
    };
    let disk = device.disk();
    // A device may be taken away and given to another (a loop device's file, a card) while its
    // queue, and what was set in it, stays.
    let now = identity(disk);
    let same_queue = now.queue.is_some() && now.queue == entry.device.queue;
    if !same_queue && now != entry.device {
        return forget("another device has that name now");
    }
    // The journal is a file that can be edited; only what it may name is ever written.
    let ours = |change: &Change| {
        let mut parts = Path::new(&change.name).components();
        let plain = parts.all(|part| matches!(part, Component::Normal(_)));
        plain && path_of(disk, &change.name).is_some_and(|path| path == change.path)
    };
    if !entry.changes.iter().all(ours) {
        return forget("the entry names files that are no settings of the device");
    }
    Standing::Pending(disk.to_path_buf())
}

/// Undoes changes, last first, and says what became of each. What the kernel may have moved with
/// the scheduler is named only where it could not be put back.
pub fn undo(changes: &[Change]) -> Vec<(Change, Fate)> {
    let fates = fates(changes);
    let mut failures: Vec<Option<String>> = vec![None; changes.len()];
    // Twice, because putting one setting back moves others that were put back before it.
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
            (Ok(now), None) => Fate::Failed(format!("the kernel made it {now}")),
            (Err(error), None) => Fate::Failed(ioengine::error::cause(&error)),
        };
        let named = change.wanted.is_some() || matches!(fate, Fate::Failed(_));
        named.then(|| (change.clone(), fate))
    };
    changes.iter().zip(fates).zip(failures).rev().filter_map(checked).collect()
}

/// What is to become of each change, by the values of now. What the kernel moves along with a
/// change goes back with it, whatever its value: it may be the kernel's.
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

/// What became of a change, in words.
pub fn said(change: &Change, disk: &Path, fate: &Fate) -> String {
    let (what, old) = (what(change, disk), &change.old);
    match fate {
        Fate::Restored => format!("restored {what} to {old}"),
        Fate::AsBefore => format!("unchanged {what}, {old} as before"),
        Fate::Left(now) => format!(
            "left {what} at {now}: somebody has changed it since, from {} (before: {old})",
            change.wanted.as_deref().unwrap_or(old)
        ),
        Fate::Failed(cause) => format!("failed: {what} is not back at {old}: {cause}"),
    }
}

/// Takes the settings of a device to undo them; None while another process has them.
pub fn claim_to_undo(disk: &Path) -> Option<File> {
    claim(disk)
}

/// The devices with settings that a dead run left changed.
pub fn left_behind() -> Vec<String> {
    let dead = journal::all().into_iter().filter_map(Found::of_dead_owner);
    let pending = dead.filter(|(entry, _)| matches!(standing(entry), Standing::Pending(_)));
    pending.map(|(entry, _)| entry.device.name).collect()
}

/// Says once that there is something to restore.
pub fn warn_of_left_behind(console: &Console) {
    let devices = left_behind();
    if !devices.is_empty() {
        console.warn(format!(
            "a run that was killed left settings of {} changed; say halfpower restore",
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
    fn the_cache_of_a_drive_is_switched_by_its_own_means_and_put_back_with_what_moved() {
        let disk = tempfile::tempdir().unwrap();
        let cache = file(disk.path(), "device/scsi_disk/2:0:0:0/cache_type", "write back");
        let believed = file(disk.path(), "queue/write_cache", "write back");
        let wish = HostSetting { name: DRIVE_CACHE, value: THROUGH.to_owned() };
        let changes = changes(disk.path(), &[wish]).unwrap();
        assert_eq!((&changes[0].path, &*changes[0].old), (&cache, BACK));
        assert_eq!(changes[1].name, WRITE_CACHE, "the kernel looks at the drive again");
        // A file keeps what is longer; the kernel's does not.
        fs::write(&cache, THROUGH).unwrap();
        fs::write(&believed, THROUGH).unwrap();
        assert_eq!(value(&changes[0].path).unwrap(), THROUGH);
        fs::write(&cache, THROUGH).unwrap();
        assert_eq!(fates(&changes), [Fate::Restored, Fate::Restored]);
    }

    #[test]
    fn a_disk_without_a_cache_of_its_own_is_refused_whatever_the_kernel_believes() {
        let disk = tempfile::tempdir().unwrap();
        file(disk.path(), "queue/write_cache", "write back");
        let wish = HostSetting { name: DRIVE_CACHE, value: THROUGH.to_owned() };
        let failure = changes(disk.path(), &[wish]).unwrap_err();
        assert!(
            failure.message.contains("no write cache that the system could switch"),
            "{failure}"
        );
    }
}
