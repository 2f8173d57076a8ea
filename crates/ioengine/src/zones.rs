//! Reads and resets the zones of zoned block devices, which must be written sequentially. Such
//! devices are NVMe zoned namespaces, host-managed disks and zoned null_blk devices. See
//! Documentation/block/zoned-block-devices and the ioctls of `linux/blkzoned.h`.

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;

use crate::device::Device;

/// Code of the ioctl BLKREPORTZONE, `_IOWR(0x12, 130, struct blk_zone_report)`.
const REPORT: u32 = 0xC010_1282;
/// Code of the ioctl BLKRESETZONE, `_IOW(0x12, 131, struct blk_zone_range)`.
const RESET: u32 = 0x4010_1283;
/// Maximum number of zones in one report.
const REPORT_ZONES: usize = 4096;
/// Conditions of the zones that have a write pointer: empty, implicitly open, explicitly open, or
/// closed (BLK_ZONE_COND_EMPTY to BLK_ZONE_COND_CLOSED).
const HAS_WRITE_POINTER: RangeInclusive<u8> = 1..=4;
/// Type of the zones that accept writes at any offset (BLK_ZONE_TYPE_CONVENTIONAL).
const CONVENTIONAL: u8 = 1;
/// Size of a sector, the kernel's unit for the offsets, lengths and capacities of zones (bytes).
const SECTOR_BYTES: u64 = 512;

/// The layout of the zones of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Zones {
    /// Distance from the start of a zone to the start of the next zone (bytes).
    pub zone_bytes: u64,
    /// Capacity of a zone that must be written sequentially (bytes). It may be smaller than
    /// `zone_bytes`. If the zones have different capacities, this is the smallest capacity.
    pub capacity_bytes: u64,
    /// Offset of the first zone that must be written sequentially (bytes). The device accepts
    /// writes in any order below this offset.
    pub sequential_from_bytes: u64,
    /// Maximum number of zones that can be open for writing at the same time. None if there is no
    /// limit.
    pub open_max: Option<u32>,
}

/// Layout of `struct blk_zone` in linux/blkzoned.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Zone {
    start: u64,
    length: u64,
    write_pointer: u64,
    kind: u8,
    condition: u8,
    not_sequential: u8,
    reset: u8,
    reserved: [u8; 4],
    capacity: u64,
    reserved_2: [u8; 24],
}

const _: () = assert!(size_of::<Zone>() == 64);

/// Layout of `struct blk_zone_report` in linux/blkzoned.h, with room for the reported zones.
#[repr(C)]
struct Report {
    sector: u64,
    count: u32,
    flags: u32,
    zones: [Zone; REPORT_ZONES],
}

impl Zones {
    /// Reads the layout of the zones of an open device. Returns None if no zone must be written
    /// sequentially.
    ///
    /// # Errors
    /// If the device does not report its zones.
    pub fn of(file: &File, device: &Device) -> io::Result<Option<Zones>> {
        if device.text("queue/zoned").is_none_or(|model| model != "host-managed") {
            return Ok(None);
        }
        let limits = [device.text("queue/max_open_zones"), device.text("queue/max_active_zones")];
        let limits = limits.into_iter().flatten().filter_map(|text| text.parse::<u32>().ok());
        let open_max = limits.filter(|most| *most > 0).min();
        Ok(summary(&all(file)?, open_max))
    }
}

/// Returns how many bytes from `start` to `end` are at or after the write pointer of their zone.
/// These bytes were not written since the last reset of the zone, so reads return zeros without
/// accessing the medium.
///
/// # Errors
/// If the device does not report its zones.
pub fn unwritten_bytes(file: &File, start: u64, end: u64) -> io::Result<u64> {
    let unwritten = all(file)?.into_iter().filter_map(|zone| zone.unwritten());
    Ok(unwritten.map(|(from, to)| to.min(end).saturating_sub(from.max(start))).sum())
}

impl Zone {
    /// Returns the unwritten part of the zone as (start, end), from the write pointer to the end of
    /// the zone (bytes). None if the zone has no write pointer, because it is conventional, full,
    /// read-only or offline.
    fn unwritten(&self) -> Option<(u64, u64)> {
        HAS_WRITE_POINTER.contains(&self.condition).then(|| {
            let bytes = |sectors: u64| sectors.saturating_mul(SECTOR_BYTES);
            (bytes(self.write_pointer), bytes(self.start.saturating_add(self.length)))
        })
    }
}

/// Summarizes a list of zones. Returns None if all zones are conventional.
fn summary(zones: &[Zone], open_max: Option<u32>) -> Option<Zones> {
    let is_sequential = |zone: &&Zone| zone.kind != CONVENTIONAL;
    let first = zones.iter().find(is_sequential)?;
    // The last zone may be shorter than the other zones, so its capacity is ignored.
    let whole = zones.iter().filter(is_sequential).filter(|zone| zone.length == first.length);
    let capacity = |zone: &Zone| if zone.capacity > 0 { zone.capacity } else { zone.length };
    Some(Zones {
        zone_bytes: first.length.saturating_mul(SECTOR_BYTES),
        capacity_bytes: whole.map(capacity).min()?.saturating_mul(SECTOR_BYTES),
        sequential_from_bytes: first.start.saturating_mul(SECTOR_BYTES),
        open_max,
    })
}

/// Reads all zones of a device.
fn all(file: &File) -> io::Result<Vec<Zone>> {
    let mut found: Vec<Zone> = Vec::new();
    loop {
        let sector = found.last().map_or(0, |last| last.start.saturating_add(last.length));
        let zones = [Zone::default(); REPORT_ZONES];
        let mut report = Box::new(Report { sector, count: REPORT_ZONES as u32, flags: 0, zones });
        // SAFETY: the kernel reads the header of `report` and writes at most `count` zones after
        // the header. `report` has room for these zones.
        let answered = unsafe {
            libc::ioctl(file.as_raw_fd(), REPORT as libc::Ioctl, std::ptr::from_mut(&mut *report))
        };
        if answered < 0 {
            return Err(io::Error::last_os_error());
        }
        let count = (report.count as usize).min(REPORT_ZONES);
        let more = report.zones[..count].iter().filter(|zone| zone.length > 0);
        let before = found.len();
        found.extend(more);
        if found.len() == before {
            return Ok(found);
        }
    }
}

/// Empties the zones of a range, so that the next writes start at the beginning of each zone. All
/// data in the range are lost.
///
/// # Errors
/// If the device refuses, or if the range does not start and end at zone boundaries.
pub fn reset(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let range = [offset / SECTOR_BYTES, bytes / SECTOR_BYTES];
    // SAFETY: the kernel reads one blk_zone_range, which consists of two u64.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), RESET as libc::Ioctl, range.as_ptr()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(start: u64, length: u64, kind: u8, capacity: u64) -> Zone {
        Zone { start, length, kind, capacity, ..Zone::default() }
    }

    #[test]
    fn zones_are_described_by_the_first_that_takes_writes_only_in_order() {
        let zones = [
            zone(0, 8192, CONVENTIONAL, 8192),
            zone(8192, 8192, 2, 8000),
            zone(16384, 8192, 2, 7000),
            zone(24576, 100, 2, 100),
        ];
        let expected = Zones {
            zone_bytes: 4 << 20,
            capacity_bytes: 7000 * 512,
            sequential_from_bytes: 4 << 20,
            open_max: Some(4),
        };
        assert_eq!(summary(&zones, Some(4)), Some(expected));
        assert_eq!(summary(&zones[..1], None), None, "all zones are conventional");
        // Old kernels report a capacity of 0.
        let old = summary(&[zone(0, 8192, 2, 0)], None).unwrap();
        assert_eq!(old.capacity_bytes, 4 << 20);
    }

    #[test]
    fn what_lies_behind_a_write_pointer_was_never_written() {
        let at = |write_pointer, condition| Zone { write_pointer, condition, ..zone(8, 8, 2, 8) };
        assert_eq!(at(10, 2).unwritten(), Some((10 * 512, 16 * 512)));
        assert_eq!(at(8, 1).unwritten(), Some((8 * 512, 16 * 512)), "an empty zone");
        let (not_in_order, read_only, full, offline) = (0, 13, 14, 15);
        for condition in [not_in_order, read_only, full, offline] {
            assert_eq!(at(8, condition).unwritten(), None, "{condition}");
        }
    }

    #[test]
    fn a_regular_file_has_no_zones_to_reset() {
        let file = tempfile::tempfile().unwrap();
        assert!(reset(&file, 0, 4096).is_err() && all(&file).is_err());
    }
}
