//! A simulated system: its parts and how they are connected.
//!
//! Impossible systems are rejected here, so the models need no checks.

use std::ops::RangeInclusive;

use serde::Deserialize;

use crate::calibration::CalibrationPoint;
use crate::models::{SECTOR_BYTES, choice, size_text, switch_text};
use crate::quantity::{BYTES_MAX, Number, Size, TIME_NS_MAX};

pub use crate::models::{
    BusModel, CacheModel, Cleaning, ControllerModel, Cost, DiskModel, DriveModel, DriveState,
    FlashModel, HostModel, LinkModel, LinkPer, LinuxCacheModel, NetworkModel, Schedule, SeekCurve,
    ShingleModel, SlcFull, TranslationModel, WRITES_PER_ENTRY,
};

/// Maximum number of devices of a system, so that the simulation fits in memory.
const DISKS_MAX: u32 = 65_536;
/// Maximum number of processors of a host, and of units, heads and segments of a device.
const UNITS_MAX: u32 = 65_536;
/// Maximum product of two counts, such as hosts times processors, so that the simulation fits in
/// memory.
const PARTS_MAX: usize = 1 << 20;
/// Maximum number of devices of a RAID 5. With more devices, it would take too long to examine all
/// offsets of a stripe row.
const RAID5_DISKS_MAX: u32 = 1024;
/// Allowed sizes of cache units such as `host.cache.page` (bytes). Smaller units would split
/// requests into millions of pieces.
const CACHE_UNIT_RANGE: RangeInclusive<u64> = 512..=64 << 20;
/// Allowed values of the maximum size of a request to a device (bytes). With the largest value, no
/// request is split.
const MAX_TRANSFER_RANGE: RangeInclusive<u64> = 512..=1 << 40;
/// Maximum size of a chunk (bytes). With larger chunks, the offsets in a stripe row could overflow.
const CHUNK_MAX: u64 = 1 << 30;
/// Minimum time of a revolution (ns). The maximum is `TIME_NS_MAX`.
const REVOLUTION_NS_MIN: f64 = 1e3;
/// Maximum skew of a track or cylinder (revolutions).
const SKEW_MAX: f64 = 10.0;
/// Maximum number of zones of a disk.
const ZONES_MAX: usize = 1024;
/// Maximum of `drive.write_amplification`, `network.crossings` and the round trips of a network.
const FACTOR_MAX: f64 = 1000.0;

/// Maximum number of devices with a translation layer. Each of these devices has a map in memory.
const MAPS_MAX: u32 = 2048;
/// Minimum number of blocks of each die, because a few blocks are always free or being filled.
const BLOCKS_MIN: f64 = 32.0;
/// Maximum of `drive.capacity` divided by `drive.translation.map_unit`.
const MAP_UNITS_MAX: f64 = (1_u64 << 40) as f64;
/// Minimum of `drive.capacity` divided by `drive.translation.map_unit`.
const MAP_UNITS_MIN: f64 = 4096.0;

/// A validated description of a system.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Name of the system.
    pub name: String,
    /// One-line description.
    pub title: String,
    /// Claims and figures of the papers, for comparison with simulated results. Information only.
    pub claims: Vec<String>,
    /// The configuration, for example the number of disks.
    pub setup: Setup,
    /// The host.
    pub host: HostModel,
    /// Links between host memory and the bus, nearest to the host first.
    pub links: Vec<LinkModel>,
    /// The bus to the devices.
    pub bus: BusModel,
    /// Model of the devices, which are all alike.
    pub drive: DriveModel,
    /// RAID controller on the adapter, for `raid_in=adapter`. None if there is none.
    pub adapter: Option<ControllerModel>,
    /// RAID controller in the array, for `raid_in=array`. None if there is none.
    pub array: Option<ControllerModel>,
    /// Network between the program and the host of the devices. None if the program runs on that
    /// host.
    pub network: Option<NetworkModel>,
    /// Points at which the calibrated system was compared with measurements.
    #[serde(default)]
    pub calibration: Vec<CalibrationPoint>,
}

/// The configuration of a system. Its values are chosen, not measured.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Number of devices.
    pub disks: u32,
    /// Number of buses. Consecutive devices share a bus. 0 means one bus per device.
    pub buses: u32,
    /// Number of hosts. Each host has an equal share of the devices.
    pub hosts: u32,
    /// Kind of volume formed by the devices.
    pub volume: VolumeKind,
    /// Part that assembles the volume: host, adapter or array.
    pub raid_in: RaidIn,
    /// Size of the stripe unit (bytes).
    #[serde(deserialize_with = "size_text")]
    pub chunk: u64,
    /// Offset of the file from a chunk boundary (bytes).
    #[serde(deserialize_with = "size_text")]
    pub misalign: u64,
    /// Number of failed devices of the volume (RAID 1 and 5).
    pub failed: u32,
    /// Whether a failed device is being rebuilt onto a spare.
    #[serde(deserialize_with = "switch_text")]
    pub rebuilding: bool,
    /// How RAID 1 distributes reads over the copies.
    pub mirror_reads: MirrorReads,
    /// Whether the file's blocks are already allocated.
    pub allocation: Allocated,
    /// Whether requests are buffered or direct by default.
    pub caching: CachingChoice,
    /// Whether buffered requests are issued asynchronously. Such a request does not take the short
    /// path of the file system. It takes the CPU time of a direct request and of a copy.
    #[serde(deserialize_with = "switch_text")]
    pub overlapped: bool,
    /// Whether devices and volume controllers complete writes from their caches.
    #[serde(deserialize_with = "switch_text")]
    pub write_cache: bool,
    /// Position at which the file starts on each device, as a share of the device's capacity.
    pub file_at: f64,
    /// File size (bytes).
    #[serde(deserialize_with = "size_text")]
    pub file_size: u64,
    /// Whether requests go through the file system or directly to the driver.
    pub path: Path,
}

choice!(
    /// Kind of a volume.
    VolumeKind {
        /// No volume. Each device has a separate file.
        None,
        /// RAID 0.
        Stripe,
        /// RAID 1.
        Raid1,
        /// RAID 5 with rotated parity.
        Raid5,
    }
);
choice!(
    /// Part that assembles a volume.
    RaidIn {
        /// The CPU of the host assembles the volume.
        Host,
        /// A processor on the adapter assembles the volume.
        Adapter,
        /// The array behind the bus assembles the volume.
        Array,
    }
);
choice!(
    /// Which copy serves a mirrored read.
    MirrorReads {
        /// The first copy serves all reads.
        First,
        /// The copy with the fewest outstanding requests serves each read.
        Shortest,
        /// 3ware TwinStor. The copy with the fewest outstanding requests serves random reads.
        /// Sequential reads alternate between the copies every 256 KiB if at least 256 KiB are
        /// outstanding. Otherwise, they stay on the current copy.
        Twinstor,
    }
);
choice!(
    /// Whether the blocks of a file are allocated.
    Allocated {
        /// All blocks of the file were written before.
        Existing,
        /// Writes grow the file.
        Extend,
        /// Only the last block of the file was written, so the file has its full size. Each
        /// remaining block is filled with zeros before its first data are written.
        Zeroed,
    }
);
choice!(
    /// Whether requests use the file-system cache.
    CachingChoice {
        /// Direct requests, which bypass the file-system cache.
        Direct,
        /// Buffered requests, which use the file-system cache.
        Buffered,
    }
);
choice!(
    /// Software layers that requests pass through.
    Path {
        /// Requests pass through the file system.
        FileSystem,
        /// Requests pass through the driver, but not through the file system (the papers' ASPI
        /// program). Devices do not disconnect from the bus.
        Driver,
    }
);

impl Setup {
    /// Returns the number of devices per volume, which is 1 without volumes.
    pub fn volume_disks(&self) -> u32 {
        if self.volume == VolumeKind::None { 1 } else { self.disks / self.hosts }
    }

    /// Returns the part that assembles the volume, or the host if there is no volume.
    fn assembled_by(&self) -> RaidIn {
        if self.volume == VolumeKind::None { RaidIn::Host } else { self.raid_in }
    }

    /// Checks whether a volume controller completes writes from its memory.
    pub fn holds_writes(&self, controller: &ControllerModel) -> bool {
        self.write_cache && controller.write_buffer.bytes() > 0
    }

    /// Returns the number of files that a load uses: one per host if devices form volumes,
    /// otherwise one per device.
    pub fn files(&self) -> u32 {
        if self.volume == VolumeKind::None { self.disks } else { self.hosts }
    }
}

impl System {
    /// Returns the controller that assembles the volume. `None` if the host assembles it.
    pub fn controller(&self) -> Option<&ControllerModel> {
        match self.setup.assembled_by() {
            RaidIn::Host => None,
            RaidIn::Adapter => self.adapter.as_ref(),
            RaidIn::Array => self.array.as_ref(),
        }
    }

    /// Returns the number of buses. There is one bus per device if `buses` is 0 or an array
    /// assembles the volume.
    pub fn buses(&self) -> u32 {
        match (self.setup.assembled_by(), self.setup.buses) {
            (RaidIn::Array, _) | (_, 0) => self.setup.disks,
            (_, buses) => buses,
        }
    }

    /// Checks the configuration.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Setup { disks, buses, hosts, volume, failed, file_at, chunk, .. } = self.setup;
        let need = |least: u32, what: &str| {
            if disks / hosts.max(1) >= least {
                Ok(())
            } else {
                Err(format!("volume={what} needs {least} or more disks for each host"))
            }
        };
        match volume {
            VolumeKind::None => {}
            VolumeKind::Stripe => need(2, "stripe")?,
            VolumeKind::Raid1 => need(2, "raid1")?,
            VolumeKind::Raid5 => need(3, "raid5")?,
        }
        if disks == 0 || hosts == 0 || buses > disks || hosts > disks {
            return Err(
                "disks and hosts must be 1 or more; use no more buses or hosts than disks".into()
            );
        }
        if disks > DISKS_MAX {
            return Err(format!("disks must be at most {DISKS_MAX}"));
        }
        if failed > 1 || (failed == 1 && matches!(volume, VolumeKind::None | VolumeKind::Stripe)) {
            return Err("failed must be 0 or 1; failed=1 needs volume=raid1 or raid5".into());
        }
        if self.setup.rebuilding && failed == 0 {
            return Err("rebuilding=on needs failed=1".into());
        }
        if !(0.0..1.0).contains(&file_at) {
            return Err("file_at must be a share of the disk: 0 or more, less than 1".into());
        }
        if chunk < 512 || !chunk.is_multiple_of(512) || chunk > CHUNK_MAX {
            return Err(format!("chunk must be a multiple of 512 bytes and at most {CHUNK_MAX}"));
        }
        if volume == VolumeKind::Raid5 && disks / hosts > RAID5_DISKS_MAX {
            return Err(format!(
                "volume=raid5 allows at most {RAID5_DISKS_MAX} disks for each host"
            ));
        }
        let has_controller = match self.setup.raid_in {
            RaidIn::Host => true,
            RaidIn::Adapter => self.adapter.is_some(),
            RaidIn::Array => self.array.is_some(),
        };
        if !has_controller {
            return Err("raid_in=adapter needs [adapter], and raid_in=array needs [array]".into());
        }
        self.check_values()
    }

    /// Rejects values that the models cannot handle or that need too much memory.
    fn check_values(&self) -> Result<(), String> {
        self.check_host()?;
        let controllers = [("adapter", &self.adapter), ("array", &self.array)];
        for (name, controller) in controllers {
            if let Some(controller) = controller.as_ref().filter(|c| c.read_ahead.0 > 0.0) {
                check_cache_unit(controller.read_ahead, &format!("{name}.read_ahead, if not 0,"))?;
            }
        }
        if let Some(network) = &self.network {
            for (cost, what) in [
                (&network.client_read, "network.client_read"),
                (&network.client_write, "network.client_write"),
                (&network.server_read, "network.server_read"),
                (&network.server_write, "network.server_write"),
            ] {
                check_share(cost.uncharged, &format!("{what}.uncharged"))?;
            }
            check_factor(network.read_round_trips, "network.read_round_trips")?;
            check_factor(network.write_round_trips, "network.write_round_trips")?;
            check_factor(network.crossings, "network.crossings")?;
        }
        if let Some(queue) = self.drive.queue() {
            check_count(queue, "drive.queue, if specified,")?;
        }
        let device_bytes = match &self.drive {
            DriveModel::Disk(disk) => check_disk(disk)?,
            DriveModel::Flash(flash) => check_flash(flash)?,
        };
        self.check_sizes(device_bytes)?;
        self.check_parts()
    }

    fn check_host(&self) -> Result<(), String> {
        let host = &self.host;
        check_count(host.cpus, "host.cpus")?;
        check_range(host.max_transfer, &MAX_TRANSFER_RANGE, "host.max_transfer")?;
        check_cache_unit(host.cache.page, "host.cache.page")?;
        check_cache_unit(host.cache.read_ahead, "host.cache.read_ahead")?;
        check_cache_unit(host.cache.write_behind, "host.cache.write_behind")?;
        if host.cache.write_frame.0 > 0.0 {
            check_cache_unit(host.cache.write_frame, "host.cache.write_frame, if not 0,")?;
        }
        if let Some(linux) = &host.cache.linux {
            self.check_linux(linux)?;
        }
        check_share(host.issue_share, "host.issue_share")?;
        check_share(host.direct_read.uncharged, "host.direct_read.uncharged")?;
        check_share(host.direct_write.uncharged, "host.direct_write.uncharged")?;
        check_share(host.buffered_read.uncharged, "host.buffered_read.uncharged")?;
        check_share(host.buffered_write.uncharged, "host.buffered_write.uncharged")
    }

    /// Checks the values of the Linux page cache.
    fn check_linux(&self, linux: &LinuxCacheModel) -> Result<(), String> {
        let cache = &self.host.cache;
        if linux.read_ahead_max.0 > 0.0 {
            check_cache_unit(linux.read_ahead_max, "host.cache.linux.read_ahead_max")?;
        }
        check_cache_unit(linux.folio_max, "host.cache.linux.folio_max")?;
        check_count(linux.requests, "host.cache.linux.requests")?;
        if !cache.page.bytes().is_power_of_two() || !linux.folio_max.bytes().is_power_of_two() {
            return Err(
                "host.cache.page and host.cache.linux.folio_max must be powers of two".into()
            );
        }
        if linux.read_ahead_max.0 > 0.0 && linux.read_ahead_max.bytes() < cache.page.bytes() {
            return Err(
                "host.cache.linux.read_ahead_max must be 0, or at least host.cache.page".into()
            );
        }
        if self.host.max_transfer.bytes() < cache.page.bytes() {
            return Err("host.max_transfer must be at least host.cache.page".into());
        }
        if self.network.is_some() {
            return Err("host.cache.linux cannot be combined with [network]".into());
        }
        if matches!(&self.drive, DriveModel::Flash(flash) if flash.translation.is_some()) {
            return Err("host.cache.linux cannot be combined with [drive.translation], whose \
                 buffer cannot be flushed"
                .into());
        }
        Ok(())
    }

    /// Checks that the file has room on its devices and that the total capacity does not overflow.
    fn check_sizes(&self, device_bytes: u64) -> Result<(), String> {
        let Setup { disks, file_at, chunk, .. } = self.setup;
        let before = (device_bytes as f64 * file_at) as u64 / chunk * chunk;
        if device_bytes.saturating_sub(before) < chunk {
            return Err(
                "file_at leaves less than a chunk for the file; reduce file_at or chunk".into()
            );
        }
        let all = device_bytes.checked_mul(u64::from(disks));
        if all.is_some_and(|bytes| bytes as f64 <= BYTES_MAX) {
            Ok(())
        } else {
            Err(format!(
                "{disks} disks of {device_bytes} bytes each exceed the maximum size of a \
                 system; reduce disks, drive.zones or drive.capacity"
            ))
        }
    }

    /// Checks that all parts of the system fit in memory.
    fn check_parts(&self) -> Result<(), String> {
        let Setup { disks, hosts, .. } = self.setup;
        let few = |a: usize, b: u32, what: &str| {
            if a.saturating_mul(b as usize) <= PARTS_MAX {
                Ok(())
            } else {
                Err(format!("{what} must be at most {PARTS_MAX}"))
            }
        };
        few(self.host.cpus.count() as usize, hosts, "hosts times host.cpus")?;
        few(
            self.links.len(),
            self.buses().max(hosts),
            "the number of [[links]] times max(buses, hosts)",
        )?;
        match &self.drive {
            DriveModel::Disk(disk) => few(disk.zones.len(), disks, "disks times drive.zones"),
            DriveModel::Flash(flash) => {
                if flash.translation.is_some() && disks > MAPS_MAX {
                    return Err(format!("at most {MAPS_MAX} disks may have [drive.translation]"));
                }
                few(flash.units.count() as usize, disks, "disks times drive.units")
            }
        }
    }
}

/// Checks that a count is from 1 to `UNITS_MAX`.
fn check_count(value: Number, what: &str) -> Result<(), String> {
    match value.count() {
        0 => Err(format!("{what} must be 1 or more")),
        count if count > UNITS_MAX => Err(format!("{what} must be at most {UNITS_MAX}")),
        _ => Ok(()),
    }
}

fn check_cache_unit(value: Size, what: &str) -> Result<(), String> {
    check_range(value, &CACHE_UNIT_RANGE, what)
}

fn check_range(value: Size, range: &RangeInclusive<u64>, what: &str) -> Result<(), String> {
    if range.contains(&value.bytes()) {
        Ok(())
    } else {
        Err(format!("{what} must be from {} to {} bytes", range.start(), range.end()))
    }
}

fn check_share(value: Number, what: &str) -> Result<(), String> {
    if value.0 <= 1.0 { Ok(()) } else { Err(format!("{what} must be a share from 0 to 1")) }
}

fn check_factor(value: Number, what: &str) -> Result<(), String> {
    if value.0 <= FACTOR_MAX { Ok(()) } else { Err(format!("{what} must be at most {FACTOR_MAX}")) }
}

/// Checks a disk and returns its capacity (bytes).
fn check_disk(disk: &DiskModel) -> Result<u64, String> {
    let revolution_ns = 60e9 / disk.rotation.0;
    if !(REVOLUTION_NS_MIN..=TIME_NS_MAX).contains(&revolution_ns) {
        return Err("drive.rotation: a revolution must take from 1 us to an hour".into());
    }
    if disk.spindle_spread.0 >= 0.5 {
        return Err("drive.spindle_spread must be a share: 0 or more, less than 0.5".into());
    }
    check_count(disk.heads, "drive.heads")?;
    check_count(disk.segments, "drive.segments")?;
    if disk.write_entries.count() > UNITS_MAX {
        return Err(format!("drive.write_entries must be at most {UNITS_MAX}"));
    }
    for (skew, what) in [(disk.track_skew, "track_skew"), (disk.cylinder_skew, "cylinder_skew")] {
        if skew.0 > SKEW_MAX {
            return Err(format!("drive.{what} must be at most {SKEW_MAX} revolutions"));
        }
    }
    if disk.zones.is_empty() {
        return Err("drive.zones must have 1 or more zones".into());
    }
    if disk.zones.iter().any(|zone| zone.contains(&0)) {
        return Err("each zone of drive.zones needs 1 or more cylinders and sectors".into());
    }
    let heads = u64::from(disk.heads.count());
    let capacity = disk.capacity();
    // The geometry multiplies track sizes (bytes) and numbers of tracks by durations. A duration is
    // at most one revolution plus the skew. The products must not overflow.
    let cylinder_ns = revolution_ns * 1.5 * (1.0 + SKEW_MAX);
    let fits = |[cylinders, sectors]: &[u64; 2]| {
        *sectors as f64 * SECTOR_BYTES as f64 * cylinder_ns <= BYTES_MAX
            && *cylinders as f64 * heads as f64 * cylinder_ns <= BYTES_MAX / ZONES_MAX as f64
    };
    let capacity = capacity.filter(|_| disk.zones.len() <= ZONES_MAX);
    let Some(bytes) = capacity.filter(|_| disk.zones.iter().all(fits)) else {
        return Err("the drive is too large to simulate; reduce drive.zones (the zones, their \
             cylinders or sectors), drive.heads, or the time of a revolution"
            .into());
    };
    let cylinders = disk.zones.iter().map(|zone| zone[0]).sum::<u64>() as f64;
    let seek = &disk.seek;
    let near_ns = seek.near_fixed.0 + seek.near_root.0 * seek.knee.0.min(cylinders).sqrt();
    if near_ns.max(seek.far_fixed.0 + seek.far_each.0 * cylinders) > TIME_NS_MAX {
        return Err("a seek takes more than an hour; reduce the times in drive.seek".into());
    }
    if let Some(shingled) = &disk.shingled {
        check_shingled(shingled, bytes)?;
    }
    Ok(bytes)
}

fn check_shingled(model: &ShingleModel, bytes: u64) -> Result<(), String> {
    let sectors = |size: Size| size.bytes() > 0 && size.bytes().is_multiple_of(SECTOR_BYTES);
    if !sectors(model.band) || !sectors(model.media_cache) {
        return Err(
            "drive.shingled.band and media_cache must be positive multiples of 512 bytes".into()
        );
    }
    if model.media_cache.bytes() > bytes || model.band.bytes() > bytes {
        return Err("drive.shingled.band and media_cache must not exceed the capacity".into());
    }
    if model.entries.count() == 0 {
        return Err("drive.shingled.entries must be 1 or more".into());
    }
    Ok(())
}

/// Checks a flash device and returns its capacity (bytes).
fn check_flash(flash: &FlashModel) -> Result<u64, String> {
    check_count(flash.units, "drive.units")?;
    if flash.unit_size.bytes() < *CACHE_UNIT_RANGE.start() {
        return Err(format!("drive.unit_size must be {} bytes or more", CACHE_UNIT_RANGE.start()));
    }
    if let Some(translation) = &flash.translation {
        check_translation(flash, translation)?;
    } else if flash.buffer.0 > 0.0 && flash.drain.0 <= 0.0 {
        return Err("drive.drain must be above 0 if drive.buffer is above 0".into());
    }
    let each_ns = 1e9 / flash.requests_per_s.0;
    if flash.requests_per_s.0 > 0.0 && each_ns > TIME_NS_MAX {
        return Err("drive.requests_per_s must be 0 (no limit), or at least one per hour".into());
    }
    let each_ns = 1e9 / flash.sustained_requests_per_s.0;
    if flash.sustained_requests_per_s.0 > 0.0 && each_ns > TIME_NS_MAX {
        let key = "drive.sustained_requests_per_s";
        return Err(format!("{key} must be 0 (no limit), or at least one per hour"));
    }
    check_factor(flash.write_amplification, "drive.write_amplification")?;
    Ok(flash.capacity.bytes())
}

fn check_translation(flash: &FlashModel, model: &TranslationModel) -> Result<(), String> {
    let key = |name: &str| format!("drive.translation.{name}");
    if flash.drain.0 > 0.0 || flash.write_amplification.0 != 1.0 {
        return Err("with [drive.translation], drive.drain must be 0 and \
                    drive.write_amplification must be 1, because the model computes both"
            .into());
    }
    let sizes = [
        (model.map_unit, key("map_unit"), Size(512.0), "512 bytes"),
        (
            flash.unit_size,
            "drive.unit_size".to_owned(),
            model.map_unit,
            "drive.translation.map_unit",
        ),
        (model.program, key("program"), flash.unit_size, "drive.unit_size"),
        (model.block, key("block"), model.program, "drive.translation.program"),
    ];
    for (size, name, part, of) in sizes {
        if size.bytes() == 0 || !size.bytes().is_multiple_of(part.bytes().max(1)) {
            return Err(format!("{name} must be a multiple of {of}"));
        }
        if size.bytes() > 1 << 32 {
            return Err(format!("{name} must be at most 4 GiB"));
        }
    }
    if flash.buffer.bytes() < 2 * model.program.bytes() {
        return Err("drive.buffer must be at least twice drive.translation.program".into());
    }
    check_count(model.channels, &key("channels"))?;
    if model.channels.count() > flash.units.count() {
        return Err("drive.translation.channels must be at most drive.units".into());
    }
    check_count(model.candidates, &key("candidates"))?;
    if !(0.01..=10.0).contains(&model.over_provisioning.0) {
        return Err(format!(
            "{} must be from 0.01 to 10 (spare flash divided by capacity)",
            key("over_provisioning")
        ));
    }
    let units = flash.capacity.0 / model.map_unit.0;
    if !(MAP_UNITS_MIN..=MAP_UNITS_MAX).contains(&units) {
        return Err("drive.capacity must be at least 4096 times and at most 2^40 times \
                    drive.translation.map_unit"
            .into());
    }
    let die_bytes = flash.capacity.0 * (1.0 + model.over_provisioning.0) / flash.units.0.round();
    if die_bytes / model.block.0 < BLOCKS_MIN {
        return Err(format!(
            "{} is too large; a die needs {BLOCKS_MIN} or more blocks",
            key("block")
        ));
    }
    if model.slc_cache.0 > flash.capacity.0 {
        return Err(format!("{} must be at most drive.capacity", key("slc_cache")));
    }
    Ok(())
}
