//! A simulated system: its parts and how they are put together.
//!
//! What a system cannot be is refused here, so that the models need not check.

use serde::Deserialize;

use crate::models::{choice, size_text, switch_text};

pub use crate::models::{
    BusModel, CacheModel, ControllerModel, Cost, DiskModel, DriveModel, FlashModel, HostModel,
    LinkModel, LinkPer, NetworkModel, Schedule, SeekCurve,
};

/// Devices of a system: more than any machine room has, few enough for memory.
const DISKS_MOST: u32 = 65_536;
/// Processors of a host and units of a device, for the same reasons.
const UNITS_MOST: f64 = 65_536.0;

/// A system, ready to be built.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// What it is called.
    pub name: String,
    /// What it is, in one line.
    pub title: String,
    /// Claims and figures of the papers on which it is scored.
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

    /// Files that a load works on: one for each host's volume, or without one for each device.
    pub fn files(&self) -> u32 {
        if self.volume == VolumeKind::None { self.disks } else { self.hosts }
    }
}

impl System {
    /// Who puts the volume together, where there is one and the host does not.
    pub fn controller(&self) -> Option<&ControllerModel> {
        match self.setup.raid_in {
            _ if self.setup.volume == VolumeKind::None => None,
            RaidIn::Host => None,
            RaidIn::Adapter => self.adapter.as_ref(),
            RaidIn::Array => self.array.as_ref(),
        }
    }

    /// Buses to the devices: those of the setup, or one for each device within an array.
    pub fn buses(&self) -> u32 {
        match (self.setup.raid_in, self.setup.buses) {
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
        if chunk < 512 || !chunk.is_multiple_of(512) {
            return Err("chunk is a multiple of 512 bytes".into());
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

    fn check_values(&self) -> Result<(), String> {
        let positive = |value: f64, what: &str| match value > 0.0 {
            true => Ok(()),
            false => Err(format!("{what} must be above 0")),
        };
        let few = |value: f64, what: &str| match value <= UNITS_MOST {
            true => Ok(()),
            false => Err(format!("{what} is at most {UNITS_MOST}")),
        };
        positive(self.host.cpus.0, "host.cpus")?;
        few(self.host.cpus.0, "host.cpus")?;
        positive(self.host.max_transfer.0, "host.max_transfer")?;
        positive(self.host.cache.page.0, "host.cache.page")?;
        positive(self.host.cache.read_ahead.0, "host.cache.read_ahead")?;
        positive(self.host.cache.write_behind.0, "host.cache.write_behind")?;
        match &self.drive {
            DriveModel::Disk(disk) => {
                positive(disk.rotation.0, "drive.rotation")?;
                positive(disk.segments.0, "drive.segments")?;
                positive(disk.zones.len() as f64, "the number of drive.zones")?;
                let is_empty = |[cylinders, sectors]: &[u64; 2]| cylinders * sectors == 0;
                match disk.zones.iter().any(is_empty) {
                    true => Err("a zone of drive.zones is empty".to_owned()),
                    false => Ok(()),
                }
            }
            DriveModel::Flash(flash) => {
                positive(flash.units.0, "drive.units")?;
                few(flash.units.0, "drive.units")?;
                positive(flash.unit_size.0, "drive.unit_size")?;
                if flash.buffer.0 > 0.0 {
                    positive(flash.drain.0, "drive.drain, where drive.buffer is,")?;
                }
                positive(flash.capacity.0, "drive.capacity")
            }
        }
    }
}
