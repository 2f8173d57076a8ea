//! A simulated system: its parts and how they are put together.
//!
//! What a system cannot be is refused here, so that the models need not check.

use std::ops::RangeInclusive;

use serde::Deserialize;

use crate::calibration::CalibrationPoint;
use crate::models::{SECTOR_BYTES, choice, size_text, switch_text};
use crate::quantity::{BYTES_MOST, Number, Size, TIME_NS_MOST};

pub use crate::models::{
    BusModel, CacheModel, ControllerModel, Cost, DiskModel, DriveModel, FlashModel, HostModel,
    LinkModel, LinkPer, NetworkModel, Schedule, SeekCurve,
};

/// Devices of a system: more than any machine room has, few enough for memory.
const DISKS_MOST: u32 = 65_536;
/// Processors of a host, units, heads and segments of a device, for the same reasons.
const UNITS_MOST: u32 = 65_536;
/// Of parts that are there once for each of another, in all: what memory holds.
const PARTS_MOST: usize = 1 << 20;
/// Devices of a RAID 5: all places of a row on each of them are looked at together.
const RAID5_DISKS_MOST: u32 = 1024;
/// What a cache moves and keeps in one piece (bytes): it must not be cut to millions of requests.
const STRETCH: RangeInclusive<u64> = 512..=64 << 20;
/// The largest request to a device (bytes), or more than any program asks for: nothing is cut.
const TRANSFER: RangeInclusive<u64> = 512..=1 << 40;
/// The largest chunk (bytes): a row of the largest volume can still be counted.
const CHUNK_MOST: u64 = 1 << 30;
/// The shortest revolution (ns); the longest is the longest of all times.
const REVOLUTION_NS_LEAST: f64 = 1e3;
/// Skews of a track or cylinder (revolutions).
const SKEW_MOST: f64 = 10.0;
/// Bands of a disk.
const ZONES_MOST: usize = 1024;
/// Round trips, crossings and amplification.
const TIMES_MOST: f64 = 1000.0;

/// A system, ready to be built.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// What it is called.
    pub name: String,
    /// What it is, in one line.
    pub title: String,
    /// Claims and figures of the papers on which it is scored: for those who read the file.
    pub claims: Vec<String>,
    /// How it is put together.
    pub setup: Setup,
    /// The host.
    pub host: HostModel,
    /// What lies between host memory and the bus, nearest to the host first.
    pub links: Vec<LinkModel>,
    /// The bus to the devices.
    pub bus: BusModel,
    /// The devices, all alike.
    pub drive: DriveModel,
    /// A RAID controller on the adapter (raid_in=adapter).
    pub adapter: Option<ControllerModel>,
    /// A RAID controller in the array (raid_in=array).
    pub array: Option<ControllerModel>,
    /// A network between the program and the host of the devices.
    pub network: Option<NetworkModel>,
    /// The points that it was calibrated with.
    #[serde(default)]
    pub calibration: Vec<CalibrationPoint>,
}

/// How a system is put together: choices, not measurements.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Devices.
    pub disks: u32,
    /// Buses, over which the devices are spread in order; 0: one for each device.
    pub buses: u32,
    /// Hosts, each with all of the devices' share.
    pub hosts: u32,
    /// What binds the devices together.
    pub volume: VolumeKind,
    /// Who does it.
    pub raid_in: RaidIn,
    /// Stripe unit.
    #[serde(deserialize_with = "size_text")]
    pub chunk: u64,
    /// By how much the file starts after a chunk boundary.
    #[serde(deserialize_with = "size_text")]
    pub misalign: u64,
    /// Devices of the volume that have failed (RAID 1 and 5).
    pub failed: u32,
    /// Whether a failed device is being rebuilt onto a spare.
    #[serde(deserialize_with = "switch_text")]
    pub rebuilding: bool,
    /// How RAID 1 spreads reads.
    pub mirror_reads: MirrorReads,
    /// Whether the file's blocks exist.
    pub allocation: Allocated,
    /// Through the file-system cache or past it, where a target is not opened either way.
    pub caching: CachingChoice,
    /// Whether devices, and the controllers of volumes, complete writes from their caches.
    #[serde(deserialize_with = "switch_text")]
    pub write_cache: bool,
    /// Where on each device the file lies, as a share of its capacity.
    pub file_at: f64,
    /// Size of the file.
    #[serde(deserialize_with = "size_text")]
    pub file_size: u64,
    /// Whether requests go through the file system or straight to the driver.
    pub path: Path,
}

choice!(
    /// What binds devices into one volume.
    VolumeKind {
        /// Nothing: one device, or several one after the other.
        None,
        /// RAID 0.
        Stripe,
        /// Two copies.
        Raid1,
        /// Rotated parity.
        Raid5,
    }
);
choice!(
    /// Where a volume is put together.
    RaidIn {
        /// By the host's CPU.
        Host,
        /// By a processor on the adapter.
        Adapter,
        /// By the array behind the bus.
        Array,
    }
);
choice!(
    /// Which copy a mirrored read goes to.
    MirrorReads {
        /// The first one, always.
        First,
        /// The one with fewer requests outstanding.
        Shortest,
        /// As `Shortest` for random requests; the copies in turn, 256 KiB each, for sequential ones
        /// of which so much is outstanding; else the copy whose turn it was (3ware TwinStor).
        Twinstor,
    }
);
choice!(
    /// Whether the blocks of a file exist.
    Allocated {
        /// Written before.
        Existing,
        /// Writes grow the file.
        Extend,
        /// The last block was written first: each other one is zeroed before it is written.
        Zeroed,
    }
);
choice!(
    /// Through the file-system cache or past it.
    CachingChoice {
        /// Past it.
        Direct,
        /// Through it.
        Buffered,
    }
);
choice!(
    /// What requests go through.
    Path {
        /// The file system.
        FileSystem,
        /// The driver only (the papers' ASPI program): nothing is disconnected.
        Driver,
    }
);

impl Setup {
    /// Devices of each volume; without one, each device is for itself.
    pub fn volume_disks(&self) -> u32 {
        if self.volume == VolumeKind::None { 1 } else { self.disks / self.hosts }
    }

    /// Who puts the volume together; without one there is nothing for a controller to do.
    fn puts_together(&self) -> RaidIn {
        if self.volume == VolumeKind::None { RaidIn::Host } else { self.raid_in }
    }

    /// Whether a controller of volumes completes writes from its memory.
    pub fn holds_writes(&self, controller: &ControllerModel) -> bool {
        self.write_cache && controller.write_buffer.bytes() > 0
    }

    /// Files that a load works on: one for each host's volume, or without one for each device.
    pub fn files(&self) -> u32 {
        if self.volume == VolumeKind::None { self.disks } else { self.hosts }
    }
}

impl System {
    /// Who puts the volume together, where there is one and the host does not.
    pub fn controller(&self) -> Option<&ControllerModel> {
        match self.setup.puts_together() {
            RaidIn::Host => None,
            RaidIn::Adapter => self.adapter.as_ref(),
            RaidIn::Array => self.array.as_ref(),
        }
    }

    /// Buses to the devices: those of the setup, or one for each device within an array that puts
    /// a volume together.
    pub fn buses(&self) -> u32 {
        match (self.setup.puts_together(), self.setup.buses) {
            (RaidIn::Array, _) | (_, 0) => self.setup.disks,
            (_, buses) => buses,
        }
    }

    /// What cannot be, said before anything is built.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Setup { disks, buses, hosts, volume, failed, file_at, chunk, .. } = self.setup;
        let need = |least: u32, what: &str| match disks / hosts.max(1) >= least {
            true => Ok(()),
            false => Err(format!("volume={what} needs disks={least} or more for each host")),
        };
        match volume {
            VolumeKind::None => {}
            VolumeKind::Stripe => need(2, "stripe")?,
            VolumeKind::Raid1 => need(2, "raid1")?,
            VolumeKind::Raid5 => need(3, "raid5")?,
        }
        if disks == 0 || hosts == 0 || buses > disks || hosts > disks {
            return Err("disks and hosts are 1 or more, buses and hosts at most disks".into());
        }
        if disks > DISKS_MOST {
            return Err(format!("disks is at most {DISKS_MOST}"));
        }
        if failed > 1 || (failed == 1 && matches!(volume, VolumeKind::None | VolumeKind::Stripe)) {
            return Err("failed is 0, or 1 for raid1 and raid5".into());
        }
        if self.setup.rebuilding && failed == 0 {
            return Err("rebuilding=on needs failed=1".into());
        }
        if !(0.0..1.0).contains(&file_at) {
            return Err("file_at is a share of the disk, from 0 to below 1".into());
        }
        if chunk < 512 || !chunk.is_multiple_of(512) || chunk > CHUNK_MOST {
            return Err(format!("chunk is a multiple of 512 bytes, at most {CHUNK_MOST}"));
        }
        if volume == VolumeKind::Raid5 && disks / hosts > RAID5_DISKS_MOST {
            return Err(format!("volume=raid5 has at most disks={RAID5_DISKS_MOST} for each host"));
        }
        let has_controller = match self.setup.raid_in {
            RaidIn::Host => true,
            RaidIn::Adapter => self.adapter.is_some(),
            RaidIn::Array => self.array.is_some(),
        };
        if !has_controller {
            return Err("raid_in=adapter needs [adapter], raid_in=array needs [array]".into());
        }
        self.check_values()
    }

    /// Values that the models could not work with, or that memory could not hold.
    fn check_values(&self) -> Result<(), String> {
        self.check_host()?;
        let controllers = [("adapter", &self.adapter), ("array", &self.array)];
        for (name, controller) in controllers {
            if let Some(controller) = controller.as_ref().filter(|c| c.read_ahead.0 > 0.0) {
                stretch(controller.read_ahead, &format!("{name}.read_ahead, where there is any,"))?;
            }
        }
        if let Some(network) = &self.network {
            for (cost, what) in [
                (&network.client_read, "network.client_read"),
                (&network.client_write, "network.client_write"),
                (&network.server_read, "network.server_read"),
                (&network.server_write, "network.server_write"),
            ] {
                share(cost.uncharged, &format!("{what}.uncharged"))?;
            }
            few_times(network.read_round_trips, "network.read_round_trips")?;
            few_times(network.write_round_trips, "network.write_round_trips")?;
            few_times(network.crossings, "network.crossings")?;
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
        counted(host.cpus, "host.cpus")?;
        within(host.max_transfer, &TRANSFER, "host.max_transfer")?;
        stretch(host.cache.page, "host.cache.page")?;
        stretch(host.cache.read_ahead, "host.cache.read_ahead")?;
        stretch(host.cache.write_behind, "host.cache.write_behind")?;
        if host.cache.write_frame.0 > 0.0 {
            stretch(host.cache.write_frame, "host.cache.write_frame, where there is one,")?;
        }
        share(host.issue_share, "host.issue_share")?;
        share(host.direct_read.uncharged, "host.direct_read.uncharged")?;
        share(host.direct_write.uncharged, "host.direct_write.uncharged")?;
        share(host.buffered_read.uncharged, "host.buffered_read.uncharged")?;
        share(host.buffered_write.uncharged, "host.buffered_write.uncharged")
    }

    /// The file lies on its devices, and all of them together can be counted.
    fn check_sizes(&self, device_bytes: u64) -> Result<(), String> {
        let Setup { disks, file_at, chunk, .. } = self.setup;
        let before = (device_bytes as f64 * file_at) as u64 / chunk * chunk;
        if device_bytes.saturating_sub(before) < chunk {
            return Err(
                "file_at leaves less than a chunk of the device; make either smaller".into()
            );
        }
        let all = device_bytes.checked_mul(u64::from(disks));
        match all.is_some_and(|bytes| bytes as f64 <= BYTES_MOST) {
            true => Ok(()),
            false => Err(format!(
                "disks={disks} of {device_bytes} bytes hold more than can be counted; make disks, \
                 drive.zones or drive.capacity smaller"
            )),
        }
    }

    /// Each part takes memory, and some are there once for each of another.
    fn check_parts(&self) -> Result<(), String> {
        let Setup { disks, hosts, .. } = self.setup;
        let few = |a: usize, b: u32, what: &str| match a.saturating_mul(b as usize) <= PARTS_MOST {
            true => Ok(()),
            false => Err(format!("{what} are at most {PARTS_MOST} in all")),
        };
        few(self.host.cpus.count() as usize, hosts, "hosts times host.cpus")?;
        few(self.links.len(), self.buses().max(hosts), "[[links]] times buses or hosts")?;
        match &self.drive {
            DriveModel::Disk(disk) => few(disk.zones.len(), disks, "disks times drive.zones"),
            DriveModel::Flash(flash) => {
                few(flash.units.count() as usize, disks, "disks times drive.units")
            }
        }
    }
}

/// What there is once or more, as the models count it.
fn counted(value: Number, what: &str) -> Result<(), String> {
    match value.count() {
        0 => Err(format!("{what} is 1 or more")),
        count if count > UNITS_MOST => Err(format!("{what} is at most {UNITS_MOST}")),
        _ => Ok(()),
    }
}

/// What a cache moves or keeps in one piece.
fn stretch(value: Size, what: &str) -> Result<(), String> {
    within(value, &STRETCH, what)
}

fn within(value: Size, range: &RangeInclusive<u64>, what: &str) -> Result<(), String> {
    match range.contains(&value.bytes()) {
        true => Ok(()),
        false => Err(format!("{what} is from {} to {} bytes", range.start(), range.end())),
    }
}

fn share(value: Number, what: &str) -> Result<(), String> {
    match value.0 <= 1.0 {
        true => Ok(()),
        false => Err(format!("{what} is a share, from 0 to 1")),
    }
}

fn few_times(value: Number, what: &str) -> Result<(), String> {
    match value.0 <= TIMES_MOST {
        true => Ok(()),
        false => Err(format!("{what} is at most {TIMES_MOST}")),
    }
}

/// Gives the capacity of a disk (bytes).
fn check_disk(disk: &DiskModel) -> Result<u64, String> {
    let revolution_ns = 60e9 / disk.rotation.0;
    if !(REVOLUTION_NS_LEAST..=TIME_NS_MOST).contains(&revolution_ns) {
        return Err("drive.rotation is such that a revolution takes from 1 us to an hour".into());
    }
    if disk.spindle_spread.0 >= 0.5 {
        return Err("drive.spindle_spread is a share, from 0 to below 0.5".into());
    }
    counted(disk.heads, "drive.heads")?;
    counted(disk.segments, "drive.segments")?;
    if disk.write_entries.count() > UNITS_MOST {
        return Err(format!("drive.write_entries is at most {UNITS_MOST}"));
    }
    for (skew, what) in [(disk.track_skew, "track_skew"), (disk.cylinder_skew, "cylinder_skew")] {
        if skew.0 > SKEW_MOST {
            return Err(format!("drive.{what} is at most {SKEW_MOST} revolutions"));
        }
    }
    if disk.zones.is_empty() {
        return Err("the number of drive.zones must be above 0".into());
    }
    if disk.zones.iter().any(|zone| zone.contains(&0)) {
        return Err("a zone of drive.zones is empty".into());
    }
    let heads = u64::from(disk.heads.count());
    let capacity = disk.capacity();
    // The geometry multiplies the bytes of a track by a time of up to a turn with its skew.
    let cylinder_ns = revolution_ns * 1.5 * (1.0 + SKEW_MOST);
    let fits = |[cylinders, sectors]: &[u64; 2]| {
        *sectors as f64 * SECTOR_BYTES as f64 * cylinder_ns <= BYTES_MOST
            && *cylinders as f64 * heads as f64 * cylinder_ns <= BYTES_MOST / ZONES_MOST as f64
    };
    let capacity = capacity.filter(|_| disk.zones.len() <= ZONES_MOST);
    let Some(bytes) = capacity.filter(|_| disk.zones.iter().all(fits)) else {
        return Err(
            "drive.zones, drive.heads and the time of a revolution are more than can be counted; \
             make one smaller"
                .into(),
        );
    };
    let cylinders = disk.zones.iter().map(|zone| zone[0]).sum::<u64>() as f64;
    let seek = &disk.seek;
    let near_ns = seek.near_fixed.0 + seek.near_root.0 * seek.knee.0.min(cylinders).sqrt();
    if near_ns.max(seek.far_fixed.0 + seek.far_each.0 * cylinders) > TIME_NS_MOST {
        return Err("a seek of drive.seek takes more than an hour; make its times shorter".into());
    }
    Ok(bytes)
}

/// Gives the capacity of a flash device (bytes).
fn check_flash(flash: &FlashModel) -> Result<u64, String> {
    counted(flash.units, "drive.units")?;
    if flash.unit_size.bytes() < *STRETCH.start() {
        return Err(format!("drive.unit_size is {} bytes or more", STRETCH.start()));
    }
    if flash.buffer.0 > 0.0 && flash.drain.0 <= 0.0 {
        return Err("drive.drain, where drive.buffer is, must be above 0".into());
    }
    let each_ns = 1e9 / flash.requests_per_s.0;
    if flash.requests_per_s.0 > 0.0 && each_ns > TIME_NS_MOST {
        return Err("drive.requests_per_s is 0 (no limit), or one in an hour or more".into());
    }
    few_times(flash.write_amplification, "drive.write_amplification")?;
    Ok(flash.capacity.bytes())
}
