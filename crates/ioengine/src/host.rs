//! Targets that this host can measure: regular files, block devices, files and disks on servers,
//! and the targets of the I/O engines `null` and `delay`.
//!
//! All checks of a file use its open descriptor, so the file that is checked is the file that is
//! used. This module creates no files.

mod beneath;
mod coverage;
mod limits;
#[cfg(feature = "network")]
mod remote;
mod stripe;
mod checks;

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::linux::fs::MetadataExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::{Device, DeviceInfo};
use crate::engine::{Delay, DelayDevice, EngineKind, EngineSpec, HostEngine, Null, Nvme};
use crate::error::{Error, ErrorKind};
use crate::extents::DiskExtents;
use crate::fault::FaultPlan;
use crate::mount::{self, Mount};
#[cfg(feature = "network")]
use crate::network::Remote;
use crate::sys;
use crate::target::{
    AdvertisedRate, Alignment, Caching, Coverage, DeviceCounters, Hint, Scrub, Target, TargetKind,
};
use crate::zones::{self, Zones};
pub use beneath::device_of;
use beneath::{device_beneath, is_in_memory};
pub use limits::{address_space_left, dirtied_bytes, file_size_limit};
use stripe::Stripe;

/// The pause between attempts to evict pages that the kernel is reading ahead (ns).
const READ_AHEAD_WAIT_NS: u64 = 10_000_000;
/// Eviction is given up after this many attempts in a row that evict no page.
const READ_AHEAD_TRIES: u32 = 10;
/// The amount of a file that may stay in the page cache after eviction (bytes). If more stays, the
/// page cache of the whole machine is dropped.
const PINNED_BYTES: u64 = 1 << 20;

/// A file, device, stripe or network target, or a target without storage (`null`, `delay`).
#[derive(Debug)]
pub struct HostTarget {
    name: String,
    path: PathBuf,
    kind: TargetKind,
    identity: (u64, u64),
    caching: Caching,
    file: Option<Arc<File>>,
    virtual_bytes: u64,
    delay: Option<DelayDevice>,
    faults: FaultPlan,
    alignment: Alignment,
    device: Option<Device>,
    mount: Option<Mount>,
    in_memory: bool,
    /// The zones of a host-managed zoned device. None for other targets, or if no zones are known.
    zones: Option<Zones>,
    /// The last hint. It is also applied to each mapping that is created later.
    hint: Mutex<Hint>,
    /// The layout and members of a stripe. None for other targets.
    stripe: Option<Stripe>,
    /// The server of a network target. None for other targets.
    #[cfg(feature = "network")]
    remote: Option<Remote>,
}

impl HostTarget {
    /// Creates a target without storage, for the I/O engine `null`. No file is touched.
    pub fn null(size_bytes: u64) -> HostTarget {
        HostTarget::without_file(TargetKind::Null, size_bytes, None)
    }

    /// Creates a target that simulates `device`, for the I/O engine `delay`. No file is touched.
    pub fn delay(size_bytes: u64, device: DelayDevice) -> HostTarget {
        HostTarget::without_file(TargetKind::Delay, size_bytes, Some(device))
    }

    fn without_file(
        kind: TargetKind,
        virtual_bytes: u64,
        delay: Option<DelayDevice>,
    ) -> HostTarget {
        HostTarget {
            name: kind.name().to_owned(),
            path: PathBuf::new(),
            kind,
            identity: (0, 0),
            caching: Caching::Direct,
            file: None,
            virtual_bytes,
            delay,
            faults: FaultPlan::default(),
            alignment: Alignment { memory_bytes: 1, offset_bytes: 1 },
            device: None,
            mount: None,
            in_memory: false,
            zones: None,
            hint: Mutex::default(),
            stripe: None,
            #[cfg(feature = "network")]
            remote: None,
        }
    }

    /// Opens an existing file or block device.
    ///
    /// # Errors
    /// If the path does not exist, is neither a file nor a block device, may not be accessed, or is
    /// on a file system without direct I/O. Each error has a remedy.
    pub fn open(path: &Path, writable: bool, caching: Caching) -> Result<HostTarget, Error> {
        let file = open_file(path, writable, caching)?;
        let metadata =
            file.metadata().map_err(|e| Error::io(format!("examining {}", path.display()), e))?;
        let kind = if metadata.is_file() {
            TargetKind::File
        } else if metadata.file_type().is_block_device() {
            TargetKind::BlockDevice
        } else {
            return Err(not_a_target(path, metadata.is_dir()));
        };
        let on_disk = kind == TargetKind::BlockDevice;
        let number = if on_disk { metadata.st_rdev() } else { metadata.st_dev() };
        let number = (libc::major(number), libc::minor(number));
        let full = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let mount = if on_disk { None } else { mount::of(&full, number) };
        let data_mount = if on_disk { None } else { mount::of_data(&full, number) };
        let device = Device::of(number).or_else(|| device_beneath(data_mount.as_ref()?));
        let in_memory = is_in_memory(data_mount.as_ref());
        let refused = sys::direct_alignment(&file).is_some_and(|(_, offset)| offset == 0);
        if caching.is_direct() && refused && kind == TargetKind::File && !in_memory {
            let einval = io::Error::from_raw_os_error(libc::EINVAL);
            return Err(open_error(path, writable, caching, einval));
        }
        let alignment = alignment(&file, caching, device.as_ref());
        let zones = match device.as_ref().filter(|_| on_disk) {
            None => None,
            Some(device) => {
                let found = Zones::of(&file, &device.whole().unwrap_or_else(|| device.clone()));
                // Only writes need the zones, so a target without known zones can be opened for
                // reading. Old kernels report zones only to root.
                found.or_else(|error| if writable { Err(error) } else { Ok(None) }).map_err(
                    |e| Error::io(format!("looking up the zones of {}", path.display()), e),
                )?
            }
        };
        let identity = (metadata.st_dev(), metadata.st_ino());
        Ok(HostTarget {
            identity,
            name: path.display().to_string(),
            path: full,
            kind,
            caching,
            file: Some(Arc::new(file)),
            virtual_bytes: 0,
            delay: None,
            faults: FaultPlan::default(),
            alignment,
            device,
            mount,
            in_memory,
            zones,
            hint: Mutex::default(),
            stripe: None,
            #[cfg(feature = "network")]
            remote: None,
        })
    }

    /// Makes every engine of this target inject the faults of a plan.
    #[must_use]
    pub fn with_faults(mut self, faults: FaultPlan) -> HostTarget {
        self.faults = faults;
        self
    }

    /// Returns true if faults are injected.
    pub fn has_faults(&self) -> bool {
        !self.faults.rules.is_empty()
    }

    /// Releases the blocks of a range of a file. The range then reads as zeros. Has no effect on
    /// other targets, or if the file system cannot release blocks.
    ///
    /// # Errors
    /// If the file system reports an error.
    pub fn release(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        if self.kind != TargetKind::File || self.stripe.is_some() {
            return Ok(());
        }
        match sys::punch(self.open_handle()?, offset, bytes) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
            done => done.map_err(|e| Error::io(format!("releasing blocks of {}", self.name), e)),
        }
    }

    /// Sets the name that reports show. Does not rename a file.
    #[must_use]
    pub fn called(mut self, name: String) -> HostTarget {
        self.name = name;
        self
    }

    /// Sets the caching mode of a target without a file, to check parameters for a file that does
    /// not exist yet. Has no effect on an open file.
    #[must_use]
    pub fn in_mode(mut self, caching: Caching) -> HostTarget {
        if self.file.is_none() {
            self.caching = caching;
        }
        self
    }

    /// Returns the canonical path. Empty for targets that have no path, such as `null`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the open file. None for targets that have no single open file, such as `null`.
    pub fn file(&self) -> Option<&File> {
        self.file.as_deref()
    }

    /// Returns the device number and inode of the open file, which stay the same after a rename.
    /// For a network target, returns a hash of its server and path, which is the same on all hosts.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Returns the block device in sysfs. None if the target is not a block device.
    pub fn block_device(&self) -> Option<&Device> {
        self.device.as_ref().filter(|_| self.kind == TargetKind::BlockDevice)
    }

    /// Returns the sysfs attributes of the underlying device.
    pub fn device_info(&self) -> Option<DeviceInfo> {
        self.device.as_ref().map(Device::info)
    }

    /// Returns the devices on which the image files of the target's loop devices are stored. None
    /// if the target uses no loop device, or if one of the devices is unknown.
    pub fn devices_of_images(&self) -> Option<Vec<Device>> {
        let images: Vec<PathBuf> = self.devices().into_iter().filter_map(Device::image).collect();
        let devices: Vec<Device> = images.iter().filter_map(|image| device_of(image)).collect();
        (!images.is_empty() && images.len() == devices.len()).then_some(devices)
    }

    /// Returns the disks on which the target is stored, sorted by name. A partition, volume or loop
    /// device is replaced by the disks on which it is stored.
    pub fn disks(&self) -> Vec<Device> {
        let mut found = Vec::new();
        self.devices().into_iter().for_each(|device| add_disks_below(device, &mut found));
        found.sort_by_key(Device::name);
        found.dedup_by_key(|disk| disk.name());
        found
    }

    /// Returns the name of a loop device for which the I/O on the image file cannot be counted.
    /// Such a loop device uses the page cache, and the device that stores the image file has no
    /// I/O counters. None if the target has no such loop device.
    pub fn unseen_image(&self) -> Option<String> {
        let is_unseen = |device: &&Device| {
            let lies_on = device.image().and_then(|image| device_of(&image));
            device.caches_image() && lies_on.and_then(|device| device.counters()).is_none()
        };
        self.devices().into_iter().find(is_unseen).map(Device::name)
    }

    /// Returns true if the target's content is only in memory (tmpfs, ramfs).
    pub fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// Returns the mount of a file. None for other targets.
    pub fn mount(&self) -> Option<&Mount> {
        self.mount.as_ref()
    }

    /// Returns the extents of the target on its disk. Tracing needs them, because kernel events
    /// contain sectors of whole disks.
    ///
    /// # Errors
    /// If the target is not on a disk or is on several disks, or if the file system does not report
    /// extents. The error has a remedy.
    pub fn extents(&self) -> Result<DiskExtents, Error> {
        let refused = |what: String| {
            Err(Error::new(ErrorKind::Unsupported, what)
                .with_remedy("specify a disk, a partition, or a file on ext4 or xfs"))
        };
        let (file, Some(device)) = (self.open_handle()?, &self.device) else {
            return refused(format!("{} is not on a disk", self.name));
        };
        if !device.whole().unwrap_or_else(|| device.clone()).slaves().is_empty() {
            let volume = device.name();
            return refused(format!(
                "{} is on the volume {volume}, not on a single disk",
                self.name
            ));
        }
        let system = self.mount.as_ref().map_or("", |mount| &mount.file_system);
        if ["btrfs", "bcachefs"].contains(&system) {
            return refused(format!("{system} does not report the disk blocks of {}", self.name));
        }
        let found = match self.kind {
            TargetKind::BlockDevice => DiskExtents::of_device(device, self.size_bytes()),
            _ => DiskExtents::of_file(device, file)
                .map_err(|e| Error::io(format!("finding the disk blocks of {}", self.name), e))?,
        };
        match found {
            Some(extents) => Ok(extents),
            None => refused(format!("sysfs does not list the disk of {}", self.name)),
        }
    }

    /// Returns the free space of the file's file system (bytes).
    pub fn free_bytes(&self) -> Option<u64> {
        sys::free_bytes(self.file.as_ref()?).ok()
    }

    fn open_handle(&self) -> Result<&File, Error> {
        self.file.as_deref().ok_or_else(|| {
            Error::new(ErrorKind::Usage, "this operation needs a file, but the target has none")
        })
    }
}

/// Returns the free space of a directory's file system (bytes).
pub fn free_bytes_at(folder: &Path) -> Result<u64, Error> {
    let free = File::open(folder).and_then(|folder| sys::free_bytes(&folder));
    free.map_err(|e| Error::io(format!("reading the free space of {}", folder.display()), e))
}

/// Returns the reason why a file cannot be written, or why no file can be created in a directory: a
/// read-only mount, a virtual file system or missing permission. None if writing is possible.
pub fn unwritable(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    let full = path.canonicalize().ok()?;
    let number = (libc::major(metadata.st_dev()), libc::minor(metadata.st_dev()));
    let mount = mount::of(&full, number).filter(|_| !metadata.file_type().is_block_device());
    if mount.as_ref().is_some_and(|mount| mount.options.split(',').any(|option| option == "ro")) {
        return Some("the file system is mounted read-only".to_owned());
    }
    let virtual_kinds = ["proc", "sysfs", "cgroup", "cgroup2", "devtmpfs", "devpts", "debugfs"];
    if let Some(kind) =
        mount.map(|mount| mount.file_system).filter(|k| virtual_kinds.contains(&&**k))
    {
        return Some(format!("{kind} is a virtual file system, which stores no files"));
    }
    let name = CString::new(full.as_os_str().as_bytes()).ok()?;
    let allowed = sys::may_write(&name, metadata.is_dir());
    (!allowed).then(|| "this user has no write permission; run as the owner or as root".to_owned())
}

fn open_file(path: &Path, writable: bool, caching: Caching) -> Result<File, Error> {
    let mut flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    if caching.is_direct() {
        flags |= libc::O_DIRECT;
    }
    if caching.is_write_through() {
        flags |= libc::O_DSYNC;
    }
    let failed = |error| open_error(path, writable, caching, error);
    // The type is checked first, because opening a device can start a watchdog or rewind a tape.
    let checked =
        OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path);
    let checked = checked.map_err(failed)?;
    let kind = checked.metadata().map_err(failed)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(not_a_target(path, kind.is_dir()));
    }
    // This opens the checked file, even if its name now belongs to another file.
    let itself = PathBuf::from(format!("/proc/self/fd/{}", checked.as_raw_fd()));
    let real = if itself.exists() { itself.as_path() } else { path };
    let open = |flags| OpenOptions::new().read(true).write(writable).custom_flags(flags).open(real);
    // O_NOATIME saves 9% of the time of a cheap read, but only the owner of a file may use it.
    let opened = open(flags | libc::O_NOATIME).or_else(|error| match error.raw_os_error() {
        Some(libc::EPERM) => open(flags),
        _ => Err(error),
    });
    opened.map_err(failed)
}

fn open_error(path: &Path, writable: bool, caching: Caching, source: io::Error) -> Error {
    let what = format!("opening {}", path.display());
    match source.raw_os_error() {
        Some(libc::ENOENT) if is_under_dev(path) => {
            Error::new(ErrorKind::Refused, format!("{} does not exist", path.display()))
                .with_remedy("halfpower creates no files under /dev: check the name (lsblk)")
        }
        Some(libc::ENOENT) => {
            Error::new(ErrorKind::Usage, format!("{} does not exist", path.display())).with_remedy(
                "specify an existing file or block device, or a directory for a new test file",
            )
        }
        Some(libc::EISDIR) => not_a_target(path, true),
        Some(libc::EINVAL) if caching.is_direct() => {
            Error::new(ErrorKind::Usage, format!("{what}: the file system lacks direct I/O"))
                .with_remedy("use `direct=false`, or a target on another file system")
        }
        Some(libc::EACCES | libc::EPERM) => Error::io(what, source).with_remedy(if writable {
            "use a target that this user may write to, or run as root"
        } else {
            "use a target that this user may read, or run as root"
        }),
        Some(libc::EROFS) => Error::io(what, source)
            .with_remedy("the file system is read-only: use `rw=read`, or use another target"),
        _ => Error::io(what, source),
    }
}

/// Checks whether a path that does not exist would be under /dev, after following symbolic links.
pub fn is_under_dev(path: &Path) -> bool {
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    path.starts_with("/dev") || parent.is_some_and(|parent| parent.starts_with("/dev"))
}

fn not_a_target(path: &Path, directory: bool) -> Error {
    let what = if directory { "a directory" } else { "neither a file nor a block device" };
    Error::new(ErrorKind::Usage, format!("{} is {what}", path.display()))
        .with_remedy("specify a regular file or a block device")
}

fn alignment(file: &File, caching: Caching, device: Option<&Device>) -> Alignment {
    if !caching.is_direct() {
        return Alignment { memory_bytes: 1, offset_bytes: 1 };
    }
    match sys::direct_alignment(file) {
        Some((memory_bytes, offset_bytes)) if offset_bytes > 0 => {
            Alignment { memory_bytes, offset_bytes }
        }
        _ => {
            // If the kernel does not report the alignment (STATX_DIOALIGN), the block size is used.
            let of_file = || file.metadata().map_or(4096, |m| m.st_blksize().clamp(512, 4096));
            let block = device.and_then(|d| d.info().logical_block_bytes).unwrap_or_else(of_file);
            let block = block as u32;
            Alignment { memory_bytes: block, offset_bytes: block }
        }
    }
}

impl Target for HostTarget {
    type Engine = HostEngine;

    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> TargetKind {
        self.kind
    }

    fn size_bytes(&self) -> u64 {
        if let Some(stripe) = &self.stripe {
            return stripe.size_bytes();
        }
        let Some(file) = &self.file else { return self.virtual_bytes };
        sys::size_bytes(file).unwrap_or(0)
    }

    fn caching(&self) -> Caching {
        self.caching
    }

    fn alignment(&self) -> Alignment {
        self.alignment
    }

    fn check(&self, spec: &EngineSpec) -> Result<(), Error> {
        spec.check(self.caching)?;
        self.members().iter().try_for_each(|member| member.check(spec))?;
        let Some(file) = &self.file else { return Ok(()) };
        if spec.engine_kind == EngineKind::Nvme {
            return self.check_commands(spec);
        }
        if spec.options.io_poll {
            self.check_polled(file)?;
        }
        if spec.options.uncached {
            self.check_uncached(file)?;
        }
        Ok(())
    }

    fn engine(&self, spec: &EngineSpec) -> Result<HostEngine, Error> {
        spec.check(self.caching)?;
        if let Some(stripe) = &self.stripe {
            return Ok(stripe.engine(spec)?.suffering(&self.faults));
        }
        #[cfg(feature = "network")]
        if let Some(remote) = &self.remote {
            return Ok(remote.engine(spec)?.suffering(&self.faults));
        }
        let engine = match (spec.engine_kind, &self.delay, &self.file) {
            (EngineKind::Null, _, _) => HostEngine::Null(Null::new(spec)?),
            (EngineKind::Delay, Some(device), _) => HostEngine::Delay(Delay::new(device, spec)?),
            (EngineKind::Nvme, _, Some(_)) => {
                self.check_commands(spec)?;
                let name = self.block_device().map(Device::name).unwrap_or_default();
                let zone_bytes = self.zones.map(|zones| zones.zone_bytes);
                let block_bytes = self.alignment.offset_bytes;
                HostEngine::Nvme(Box::new(Nvme::new(&name, block_bytes, zone_bytes, spec)?))
            }
            (engine_kind, _, Some(file)) if engine_kind.does_io() => {
                let hint = *self.hint.lock().unwrap_or_else(PoisonError::into_inner);
                HostEngine::on_files(Arc::clone(file), spec, hint)?
            }
            _ => {
                let what = format!("`engine` {} needs a target", spec.engine_kind);
                return Err(Error::new(ErrorKind::Usage, what)
                    .with_remedy("specify a file, device or directory, or use `engine` null"));
            }
        };
        Ok(engine.suffering(&self.faults))
    }

    fn reserve(&self, offset: u64, length: u64) -> Result<(), Error> {
        if let Some(stripe) = &self.stripe {
            return stripe.reserve(offset, length);
        }
        let file = self.open_handle()?;
        sys::fallocate(file, 0, offset, length)
            .map_err(|e| Error::io(format!("reserving {length} bytes in {}", self.name), e))
    }

    fn zones(&self) -> Option<Zones> {
        self.zones
    }

    fn reset_zones(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        let file = self.open_handle()?;
        zones::reset(file, offset, bytes)
            .map_err(|e| Error::io(format!("resetting zones of {}", self.name), e))
    }

    fn truncate(&self, size_bytes: u64) -> Result<(), Error> {
        if let Some(stripe) = &self.stripe {
            return stripe.truncate(size_bytes);
        }
        let file = self.open_handle()?;
        file.set_len(size_bytes)
            .map_err(|e| Error::io(format!("setting the size of {}", self.name), e))
    }

    fn sync(&self) -> Result<(), Error> {
        self.members().iter().try_for_each(Target::sync)?;
        #[cfg(feature = "network")]
        self.remote.as_ref().map_or(Ok(()), Remote::flush)?;
        let Some(file) = &self.file else { return Ok(()) };
        file.sync_all().map_err(|e| Error::io(format!("flushing {}", self.name), e))
    }

    fn sync_data(&self) -> Result<(), Error> {
        self.members().iter().try_for_each(Target::sync_data)?;
        #[cfg(feature = "network")]
        self.remote.as_ref().map_or(Ok(()), Remote::flush)?;
        let Some(file) = &self.file else { return Ok(()) };
        file.sync_data().map_err(|e| Error::io(format!("flushing {}", self.name), e))
    }

    fn advise(&self, hint: Hint, offset: u64, bytes: u64) -> Result<(), Error> {
        if let Some(stripe) = &self.stripe {
            return stripe.advise(hint, offset, bytes);
        }
        let Some(file) = &self.file else { return Ok(()) };
        *self.hint.lock().unwrap_or_else(PoisonError::into_inner) = hint;
        let advice = match hint {
            Hint::Normal => libc::POSIX_FADV_NORMAL,
            Hint::Sequential => libc::POSIX_FADV_SEQUENTIAL,
            Hint::Random => libc::POSIX_FADV_RANDOM,
            Hint::NoReuse => libc::POSIX_FADV_NOREUSE,
            Hint::WillNeed => libc::POSIX_FADV_WILLNEED,
            Hint::DontNeed => libc::POSIX_FADV_DONTNEED,
        };
        sys::fadvise(file, advice, offset, bytes)
            .map_err(|e| Error::io(format!("calling posix_fadvise on {}", self.name), e))
    }

    fn scrub(&self) -> Result<Scrub, Error> {
        if let Some(stripe) = &self.stripe {
            return stripe.scrub();
        }
        let file = self.open_handle()?;
        let fail = |e| Error::io(format!("evicting {} from the page cache", self.name), e);
        let size = self.size_bytes();
        let resident_before_bytes = sys::resident_bytes(file, size).ok();
        write_back(file).map_err(fail)?;
        sys::fadvise(file, libc::POSIX_FADV_DONTNEED, 0, 0).map_err(fail)?;
        let mut resident_after_bytes = sys::resident_bytes(file, size).ok();
        // Pages that are being read ahead are locked and cannot be dropped before the read
        // completes.
        let mut tries = 0;
        while resident_after_bytes.is_some_and(|left| left > 0) && tries < READ_AHEAD_TRIES {
            sys::sleep_ns(READ_AHEAD_WAIT_NS);
            sys::fadvise(file, libc::POSIX_FADV_DONTNEED, 0, 0).map_err(fail)?;
            let left = sys::resident_bytes(file, size).ok();
            tries = if left < resident_after_bytes { 0 } else { tries + 1 };
            resident_after_bytes = left;
        }
        let mut dropped_all_caches = false;
        // A few pages may be pinned (for example the superblock of a mounted device). Dropping the
        // page cache of the whole machine for them is not worthwhile.
        if resident_after_bytes.is_some_and(|left| left > PINNED_BYTES) {
            dropped_all_caches = std::fs::write("/proc/sys/vm/drop_caches", "1").is_ok();
            resident_after_bytes = sys::resident_bytes(file, size).ok();
        }
        Ok(Scrub { resident_before_bytes, resident_after_bytes, dropped_all_caches })
    }

    fn resident_bytes(&self) -> Option<u64> {
        if let Some(stripe) = &self.stripe {
            return stripe.resident_bytes();
        }
        let file = self.file.as_ref()?;
        sys::resident_bytes(file, self.size_bytes()).ok()
    }

    fn coverage(&self, offset: u64, length: u64) -> Option<Coverage> {
        if let Some(stripe) = &self.stripe {
            return stripe.coverage(offset, length);
        }
        let file = self.file.as_ref()?;
        let end = offset.saturating_add(length).min(self.size_bytes());
        if self.kind == TargetKind::File {
            return coverage::of_file(file, offset, end).ok();
        }
        self.zones?;
        let unwritten_bytes = zones::unwritten_bytes(file, offset, end).ok()?;
        Some(Coverage { hole_bytes: 0, unwritten_bytes })
    }

    fn device_number(&self) -> Option<(u32, u32)> {
        match self.devices().as_slice() {
            [device] => device.number(),
            _ => None,
        }
    }

    fn device_counters(&self) -> Option<DeviceCounters> {
        let each = self.devices().into_iter().map(Device::counters);
        each.reduce(|sum, one| Some(sum? + one?))?
    }

    fn advertised(&self) -> Vec<AdvertisedRate> {
        match self.devices().as_slice() {
            [device] => device.advertised(),
            // The combined rate of several links is unknown.
            _ => Vec::new(),
        }
    }

    fn write_cache(&self) -> Option<String> {
        let told = self.devices().into_iter().map(|device| device.info().write_cache);
        told.reduce(|one, other| one.filter(|one| other.as_ref() == Some(one)))?
    }
}

/// Adds the disks below a device to `found`, or the device's own disk if nothing is below it.
fn add_disks_below(device: &Device, found: &mut Vec<Device>) {
    let whole = device.whole().unwrap_or_else(|| device.clone());
    let image = whole.image().and_then(|image| device_of(&image));
    let below: Vec<Device> = whole.slaves().into_iter().chain(image).collect();
    if below.is_empty() {
        found.push(whole);
    } else {
        below.iter().for_each(|device| add_disks_below(device, found));
    }
}

/// Returns true if the file at a path can be opened for direct I/O.
pub fn offers_direct(path: &Path) -> bool {
    open_file(path, false, Caching::Direct)
        .is_ok_and(|file| sys::direct_alignment(&file).is_none_or(|(_, offset)| offset > 0))
}

/// Writes back dirty pages. Ignores the errors of read-only file systems (squashfs, erofs).
fn write_back(file: &File) -> io::Result<()> {
    match file.sync_all() {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EROFS)) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::BufferPages;
    use crate::engine::EngineOptions;
    use std::io::{Seek, SeekFrom, Write};

    fn written_file(bytes: usize) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![0xA5; bytes]).unwrap();
        file.as_file().sync_all().unwrap();
        file
    }

    #[test]
    fn a_missing_path_a_directory_and_a_missing_device_are_refused_with_a_remedy() {
        let open = |path: &str| HostTarget::open(Path::new(path), true, Caching::Buffered);
        let missing = open("/tmp/no/such/file").unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Usage);
        assert!(missing.to_string().contains("does not exist;"), "{missing}");
        let device = open("/dev/no-such-device").unwrap_err();
        assert_eq!(device.kind(), ErrorKind::Refused);
        assert!(!Path::new("/dev/no-such-device").exists());
        assert_eq!(open("/tmp").unwrap_err().kind(), ErrorKind::Usage);
        assert_eq!(open("/dev/zero").unwrap_err().kind(), ErrorKind::Usage);
    }

    #[test]
    fn scrubbing_a_written_file_leaves_nothing_resident() {
        let file = written_file(1 << 20);
        let target = HostTarget::open(file.path(), false, Caching::Buffered).unwrap();
        let scrub = target.scrub().unwrap();
        assert_eq!(scrub.resident_before_bytes, Some(1 << 20));
        let tmpfs = target.mount().is_some_and(|mount| mount.file_system == "tmpfs");
        if !tmpfs {
            assert_eq!(scrub.resident_after_bytes, Some(0));
        }
    }

    #[test]
    fn holes_and_written_blocks_are_distinguished() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.seek(SeekFrom::Start(1 << 20)).unwrap();
        file.write_all(&vec![1; 1 << 20]).unwrap();
        file.as_file().set_len(3 << 20).unwrap();
        file.as_file().sync_all().unwrap();
        let target = HostTarget::open(file.path(), true, Caching::Buffered).unwrap();
        let Some(coverage) = target.coverage(0, u64::MAX) else { return };
        assert_eq!(coverage.hole_bytes, 2 << 20);
        let part = target.coverage((1 << 20) + 4096, 1 << 19);
        assert_eq!(part, Some(Coverage::default()), "the written part has no holes");
        target.reserve(0, 1 << 20).unwrap();
        let reserved = target.coverage(0, u64::MAX);
        assert!(reserved.is_some_and(|c| c.hole_bytes + c.unwritten_bytes == 2 << 20));
    }

    #[test]
    fn the_extents_of_a_written_file_cover_it() {
        let file = written_file(1 << 20);
        let target = HostTarget::open(file.path(), false, Caching::Buffered).unwrap();
        match target.extents() {
            Ok(found) => {
                let bytes: u64 = found.extents.iter().map(|extent| extent.bytes).sum();
                assert_eq!(bytes, 1 << 20);
                assert!(found.extents.is_sorted_by_key(|extent| extent.offset));
                assert!(found.extents.iter().all(|extent| extent.sector > 0));
            }
            Err(error) => assert!(error.to_string().contains("; specify a disk"), "{error}"),
        }
        assert!(HostTarget::null(1 << 20).extents().is_err());
    }

    #[test]
    fn the_null_target_has_a_size_and_no_file() {
        let target = HostTarget::null(1 << 30);
        assert_eq!(target.size_bytes(), 1 << 30);
        assert!(target.file().is_none() && target.device_counters().is_none());
    }
    fn asking(options: EngineOptions) -> EngineSpec {
        EngineSpec {
            engine_kind: EngineKind::IoUring,
            depth: 1,
            slot_bytes: 4096,
            pages: BufferPages::Small,
            options,
        }
    }

    #[test]
    fn polling_a_device_without_poll_queues_is_refused_with_the_remedy() {
        let file = written_file(8192);
        if !offers_direct(file.path()) || !EngineKind::IoUring.availability().available {
            return;
        }
        let target = HostTarget::open(file.path(), false, Caching::Direct).unwrap();
        let options = EngineOptions { io_poll: true, ..EngineOptions::default() };
        let disk = target.device.as_ref().map(|device| device.disk().join("queue/io_poll"));
        let told = disk.and_then(|path| std::fs::read_to_string(path).ok());
        match told.as_deref().map(str::trim) {
            Some("0") => {
                let error = target.check(&asking(options)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(error.to_string().contains("poll_queues=2"), "{error}");
            }
            _ => drop(target.check(&asking(options))),
        }
    }

    #[test]
    fn tmpfs_refuses_uncached_requests_with_the_remedy() {
        let Ok(file) = tempfile::NamedTempFile::new_in("/dev/shm") else { return };
        let target = HostTarget::open(file.path(), false, Caching::Buffered).unwrap();
        let options = EngineOptions { uncached: true, ..EngineOptions::default() };
        if sys::reads_uncached(file.as_file()).is_err() {
            let error = target.check(&asking(options)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("`hint` noreuse"), "{error}");
        }
    }

    #[test]
    fn files_accept_every_hint() {
        let file = written_file(1 << 20);
        let target = HostTarget::open(file.path(), true, Caching::Buffered).unwrap();
        for hint in Hint::ALL {
            target.advise(hint, 0, 0).unwrap_or_else(|error| panic!("{}: {error}", hint.name()));
            let spec = EngineSpec { engine_kind: EngineKind::Mmap, ..asking(Default::default()) };
            target.engine(&spec).unwrap();
        }
    }

    #[test]
    fn released_blocks_read_as_zeros_and_the_size_stays() {
        let file = written_file(1 << 20);
        let target = HostTarget::open(file.path(), true, Caching::Buffered).unwrap();
        target.release(1 << 19, 1 << 18).unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        assert_eq!(bytes.len(), 1 << 20);
        let is_released = bytes[1 << 19..3 << 18].iter().all(|byte| *byte == 0);
        let is_kept = bytes[..1 << 19].iter().chain(&bytes[3 << 18..]).all(|byte| *byte != 0);
        assert!(is_kept && (is_released || bytes[1 << 19] != 0), "kept: {is_kept}");
        HostTarget::null(1 << 20).release(0, 4096).unwrap();
    }

    #[test]
    fn the_dontneed_hint_evicts_data_from_the_page_cache() {
        let file = written_file(8 << 20);
        let target = HostTarget::open(file.path(), true, Caching::Buffered).unwrap();
        let in_memory = target.mount().is_some_and(|mount| mount.file_system == "tmpfs");
        if target.resident_bytes() != Some(8 << 20) || in_memory {
            return;
        }
        // The range is large because the kernel does not evict a large folio that is only partly in
        // it.
        target.advise(Hint::DontNeed, 4 << 20, 4 << 20).unwrap();
        assert_eq!(target.resident_bytes(), Some(4 << 20), "half of the file is evicted");
        target.advise(Hint::DontNeed, 0, 0).unwrap();
        assert_eq!(target.resident_bytes(), Some(0));
        target.advise(Hint::WillNeed, 0, 0).unwrap();
        let clock = crate::clock::Monotonic::new();
        for _ in 0..3000 {
            if target.resident_bytes() > Some(0) {
                return;
            }
            clock.sleep(std::time::Duration::from_millis(1));
        }
        panic!("nothing was read ahead");
    }
}
