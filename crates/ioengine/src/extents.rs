//! Finds the disk sectors in which a file is stored, with FIEMAP. Tracing needs them, because the
//! I/O events of the kernel contain sectors of whole disks and no file names.

use std::fs::File;
use std::io;

use crate::device::Device;
use crate::sys;

/// FIEMAP_EXTENT_LAST: the flag of the last extent of a file.
const LAST: u32 = 0x1;
/// The flags of extents that have no usable disk address: `FIEMAP_EXTENT_UNKNOWN`, `DELALLOC`,
/// `ENCODED`, `NOT_ALIGNED`, `DATA_INLINE` and `DATA_TAIL`.
const NOWHERE: u32 = 0x2 | 0x4 | 0x8 | 0x100 | 0x200 | 0x400;
/// Reading stops after about this many extents. Further extents are ignored.
const EXTENTS_MAX: usize = 1 << 20;
/// The unit of sector numbers in sysfs and in kernel events (bytes). It is the same for all disks.
const SECTOR_BYTES: u64 = 512;

/// A part of a target that is stored contiguously on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskExtent {
    /// The offset of the extent in the target (bytes).
    pub offset: u64,
    /// The length of the extent (bytes).
    pub bytes: u64,
    /// The first sector of the extent on the whole disk, not on the partition (in units of 512
    /// bytes).
    pub sector: u64,
}

/// The location of a target's data on its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskExtents {
    /// The device number of the whole disk.
    pub disk: (u32, u32),
    /// The kernel name of the whole disk ("sda").
    pub name: String,
    /// The extents, in the order of their offsets in the target. Holes have no extent.
    pub extents: Vec<DiskExtent>,
}

impl DiskExtents {
    /// Returns the largest alignment that the target and its disk share (bytes). Every offset in
    /// the target that is a multiple of this number is stored at a disk offset that is also a
    /// multiple of this number. None if there are no extents.
    pub fn granule_bytes(&self) -> Option<u64> {
        let off = |extent: &DiskExtent| (extent.sector * SECTOR_BYTES).wrapping_sub(extent.offset);
        let bits = self.extents.iter().map(off).reduce(|all, one| all | one)?;
        Some(1 << bits.trailing_zeros().min(63))
    }

    /// Returns the single extent of a whole disk or partition.
    pub(crate) fn of_device(device: &Device, bytes: u64) -> Option<DiskExtents> {
        let whole = DiskExtent { offset: 0, bytes, sector: start(device)? };
        DiskExtents::on(device, vec![whole])
    }

    /// Returns the extents of a file. None if sysfs does not list the disk.
    ///
    /// # Errors
    /// If the file system does not support FIEMAP.
    pub(crate) fn of_file(device: &Device, file: &File) -> io::Result<Option<DiskExtents>> {
        let Some(start) = start(device) else { return Ok(None) };
        let (mut extents, mut at) = (Vec::new(), 0);
        loop {
            let found = sys::extents(file, at)?;
            extents.extend(found.iter().filter(|e| e.flags & NOWHERE == 0).map(|e| DiskExtent {
                offset: e.logical,
                bytes: e.length,
                sector: start + e.physical / SECTOR_BYTES,
            }));
            let Some(last) = found.last() else { break };
            at = last.logical.saturating_add(last.length);
            if last.flags & LAST != 0 || extents.len() > EXTENTS_MAX {
                break;
            }
        }
        Ok(DiskExtents::on(device, extents))
    }

    fn on(device: &Device, extents: Vec<DiskExtent>) -> Option<DiskExtents> {
        let whole = device.whole().unwrap_or_else(|| device.clone());
        Some(DiskExtents { disk: whole.number()?, name: whole.name(), extents })
    }
}

/// Returns the first sector of a partition on its disk. Returns 0 for a whole disk.
fn start(device: &Device) -> Option<u64> {
    match device.whole() {
        Some(_) => device.text("start")?.parse().ok(),
        None => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::MadeUp;

    #[test]
    fn a_partition_starts_where_sysfs_says() {
        let machine = MadeUp::new();
        machine.block("pci0/sda", "8:0", 10);
        machine.block("pci0/sda/sda1", "8:1", 1);
        machine.file("/sys/devices/pci0/sda/sda1/start", "2048\n");
        let device = |path: &str| Device::at(machine.kernel().path(path)).unwrap();
        let whole = DiskExtents::of_device(&device("/sys/devices/pci0/sda"), 10 << 30).unwrap();
        assert_eq!((whole.disk, whole.extents[0].sector), ((8, 0), 0));
        let part = DiskExtents::of_device(&device("/sys/devices/pci0/sda/sda1"), 1 << 30).unwrap();
        assert_eq!((part.disk, part.name.as_str()), ((8, 0), "sda"));
        assert_eq!(part.extents, [DiskExtent { offset: 0, bytes: 1 << 30, sector: 2048 }]);
    }

    #[test]
    fn the_worst_aligned_extent_decides_the_granule() {
        let extent = |offset, sector| DiskExtent { offset, bytes: 1 << 20, sector };
        let granule = |extents: Vec<DiskExtent>| {
            DiskExtents { disk: (8, 0), name: "sda".to_owned(), extents }.granule_bytes()
        };
        // The disk offset minus the target offset is 1 MiB for the first extent, and 2 MiB + 4 KiB
        // for the second. The largest power of two that divides both is 4 KiB.
        assert_eq!(granule(vec![extent(0, 2048)]), Some(1 << 20));
        assert_eq!(granule(vec![extent(0, 2048), extent(1 << 20, 6144 + 8)]), Some(4096));
        // The disk offset is lower than the target offset here. In the next line, both are 0.
        assert_eq!(granule(vec![extent(1 << 20, 63)]), Some(512));
        assert_eq!(granule(vec![extent(0, 0)]), Some(1 << 63));
        assert_eq!(granule(Vec::new()), None);
    }
}
