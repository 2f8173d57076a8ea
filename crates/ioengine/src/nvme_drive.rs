//! Reads what an NVMe drive reports about itself: formats, limits and preferred sizes (Identify),
//! and its health (log page 02h).
//!
//! Source: NVM Express Base Specification 2.0, sections 5.17 and 5.16.1.3; NVM Command Set
//! Specification 1.0, section 4.1.5.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::device::Device;
use crate::nvme_ioctl;

/// The unit in which a drive reports its maximum request size (bytes). This is the smallest page
/// size of the controller, which is 4 KiB on all known drives.
const PAGE_BYTES: u64 = 4096;
/// The number of the log page with the drive's health, and the length of this page (bytes).
const HEALTH_PAGE: u8 = 0x02;
const HEALTH_BYTES: usize = 512;

/// The range of plausible block sizes, as powers of two: from 512 bytes to more than any drive
/// uses. Formats with other block sizes are ignored.
const BLOCK_SHIFT_MIN: u8 = 9;
const BLOCK_SHIFT_MAX: u8 = 24;

/// A block format that a namespace supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFormat {
    /// The size of a block's data (bytes).
    pub bytes: u64,
    /// The size of a block's metadata (bytes).
    pub metadata_bytes: u16,
    /// Whether the namespace is currently formatted with this format.
    pub in_use: bool,
}

/// The properties of a drive and of a namespace on this drive, as the drive reports them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity {
    /// The maximum size of a request (bytes). None if there is no limit.
    pub max_request_bytes: Option<u64>,
    /// Whether the drive has a volatile write cache.
    pub has_write_cache: bool,
    /// The maximum power of each power state, beginning with the fastest state (watts).
    pub power_watts: Vec<f64>,
    /// The block formats that the namespace supports.
    pub formats: Vec<BlockFormat>,
    /// The preferred granularity of writes (bytes; NPWG). None if the drive does not report it.
    pub preferred_write_bytes: Option<u64>,
    /// The preferred granularity of discards (bytes; NPDG). None if the drive does not report it.
    pub preferred_discard_bytes: Option<u64>,
    /// The optimal size of writes (bytes; NOWS). None if the drive does not report it.
    pub optimal_write_bytes: Option<u64>,
}

/// The health of a drive, from its health log page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The current warnings. Bit `n` is described by entry `n` of [`Health::WARNINGS`].
    pub warnings: u8,
    /// The temperature (kelvin). 0 if the drive does not report it.
    pub kelvin: u16,
    /// The share of the spare space that is still available (percent).
    pub spare_percent: u8,
    /// The share of the drive's rated endurance that is used up (percent). It may exceed 100.
    pub used_percent: u8,
    /// The number of media and data integrity errors.
    pub media_errors: u64,
    /// The time above the warning temperature plus the time above the critical temperature
    /// (minutes).
    pub hot_min: u32,
    /// How often the drive has throttled itself because it was too hot.
    pub throttles: u32,
    /// How long the drive has throttled itself because it was too hot (s).
    pub throttled_s: u32,
}

impl Health {
    /// The meaning of each bit of `warnings`, beginning with bit 0.
    pub const WARNINGS: [&str; 6] = [
        "the spare space is below the threshold",
        "the temperature is too high or too low",
        "the drive is less reliable because of errors",
        "the drive accepts no more writes",
        "the backup of the volatile memory has failed",
        "the persistent memory is read-only",
    ];

    /// Returns the texts of the current warnings.
    pub fn warning_texts(&self) -> impl Iterator<Item = &'static str> {
        let warnings = self.warnings;
        let texts = Health::WARNINGS.iter().enumerate();
        texts.filter(move |(bit, _)| warnings >> bit & 1 == 1).map(|(_, text)| *text)
    }
}

/// Returns the device node of a namespace. None if the device is not an NVMe namespace of this
/// host.
fn node_of(device: &Device) -> Option<PathBuf> {
    let name = device.disk().file_name()?.to_str()?.to_owned();
    let is_here = device.disk().starts_with("/sys");
    (is_here && name.starts_with("nvme")).then(|| Path::new("/dev").join(name))
}

/// Reads the properties of the NVMe drive and of the namespace that contain `device`. None if
/// `device` is not on an NVMe drive of this host.
///
/// # Errors
/// This process has no permission (it needs root), or the drive refuses the command.
pub fn identity(device: &Device) -> Option<io::Result<Identity>> {
    let node = node_of(device)?;
    let ask = || {
        let file = File::open(&node)?;
        let namespace = nvme_ioctl::namespace(&file)?;
        let controller = nvme_ioctl::identify(&file, 0, 1)?;
        Ok(read_identity(&controller, &nvme_ioctl::identify(&file, namespace, 0)?))
    };
    Some(ask())
}

/// Reads the health of the NVMe drive that contains `device`. None if `device` is not on an NVMe
/// drive of this host.
///
/// # Errors
/// This process has no permission (it needs root), or the drive refuses the command.
pub fn health(device: &Device) -> Option<io::Result<Health>> {
    let node = node_of(device)?;
    let ask = || {
        let page = nvme_ioctl::log_page(&File::open(&node)?, HEALTH_PAGE, HEALTH_BYTES)?;
        Ok(read_health(&page))
    };
    Some(ask())
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

/// Parses the Identify data structures of a controller and of a namespace (4096 bytes each).
fn read_identity(controller: &[u8], namespace: &[u8]) -> Identity {
    let state = |number: usize| {
        let at = 2048 + 32 * number;
        // If bit 0 of byte 3 is set, the unit is 0.0001 W instead of 0.01 W.
        let unit = if controller[at + 3] & 1 == 1 { 1e-4 } else { 1e-2 };
        f64::from(u16_at(controller, at)) * unit
    };
    let in_use = usize::from(namespace[26] & 0x0f) | usize::from(namespace[26] >> 5 & 3) << 4;
    let format = |number: usize| {
        let at = 128 + 4 * number;
        BlockFormat {
            bytes: 1 << namespace[at + 2].min(BLOCK_SHIFT_MAX + 1),
            metadata_bytes: u16_at(namespace, at),
            in_use: number == in_use,
        }
    };
    let formats: Vec<BlockFormat> = (0..=usize::from(namespace[25].min(63))).map(format).collect();
    let is_possible = |format: &BlockFormat| {
        (1 << BLOCK_SHIFT_MIN..=1 << BLOCK_SHIFT_MAX).contains(&format.bytes)
    };
    let used = formats.iter().find(|format| format.in_use && is_possible(format));
    let block_bytes = used.map(|format| format.bytes);
    // If bit 4 of the features is set, the fields of the preferred sizes are valid. These fields
    // contain the number of blocks minus one.
    let are_valid = namespace[24] & 0x10 != 0;
    let size = |at: usize| {
        let blocks = u64::from(u16_at(namespace, at)) + 1;
        block_bytes.filter(|_| are_valid).map(|bytes| bytes * blocks)
    };
    Identity {
        max_request_bytes: (1..=40).contains(&controller[77]).then(|| PAGE_BYTES << controller[77]),
        has_write_cache: controller[525] & 1 == 1,
        power_watts: (0..=usize::from(controller[263].min(31))).map(state).collect(),
        formats: formats.into_iter().filter(is_possible).collect(),
        preferred_write_bytes: size(64),
        preferred_discard_bytes: size(68),
        optimal_write_bytes: size(72),
    }
}

/// Parses a health log page of [`HEALTH_BYTES`] bytes.
fn read_health(page: &[u8]) -> Health {
    let media_errors = page[160..168].try_into().map_or(u64::MAX, u64::from_le_bytes);
    Health {
        warnings: page[0],
        kelvin: u16_at(page, 1),
        spare_percent: page[3],
        used_percent: page[5],
        media_errors,
        hot_min: u32_at(page, 192).saturating_add(u32_at(page, 196)),
        throttles: u32_at(page, 216).saturating_add(u32_at(page, 220)),
        throttled_s: u32_at(page, 224).saturating_add(u32_at(page, 228)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(bytes: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
        let mut page = vec![0; bytes];
        fields.iter().for_each(|(at, field)| page[*at..at + field.len()].copy_from_slice(field));
        page
    }

    #[test]
    fn a_drive_is_read_as_the_specification_lays_it_out() {
        let controller = page(
            4096,
            &[(77, &[5]), (263, &[1]), (525, &[7]), (2048, &[0xc4, 9]), (2080, &[50, 0, 0, 1])],
        );
        let namespace = page(
            4096,
            &[
                (24, &[0x10]),
                (25, &[1]),
                (26, &[1]),
                (64, &[1, 0]),
                (68, &[255, 0]),
                (72, &[31, 0]),
                (128, &[0, 0, 9, 0]),
                (132, &[8, 0, 12, 0]),
            ],
        );
        let read = read_identity(&controller, &namespace);
        assert_eq!(read.max_request_bytes, Some(128 << 10));
        assert!(read.has_write_cache);
        assert_eq!(read.power_watts, [25.0, 0.005]);
        let format = |bytes, metadata_bytes, in_use| BlockFormat { bytes, metadata_bytes, in_use };
        assert_eq!(read.formats, [format(512, 0, false), format(4096, 8, true)]);
        assert_eq!(read.preferred_write_bytes, Some(8192));
        assert_eq!(read.preferred_discard_bytes, Some(1 << 20));
        assert_eq!(read.optimal_write_bytes, Some(128 << 10));
    }

    #[test]
    fn any_answer_of_a_drive_is_read() {
        let all = read_identity(&[0xff; 4096], &[0xff; 4096]);
        assert_eq!(all.max_request_bytes, None);
        let none = read_identity(&[0; 4096], &[0; 4096]);
        assert_eq!((none.max_request_bytes, none.preferred_write_bytes), (None, None));
        assert_eq!(read_health(&[0xff; 512]).media_errors, u64::MAX);
    }

    #[test]
    fn health_is_read_with_its_warnings() {
        let read = read_health(&page(
            512,
            &[
                (0, &[0b1010]),
                (1, &[0x43, 1]),
                (3, &[90]),
                (5, &[104]),
                (160, &[7]),
                (192, &[2]),
                (196, &[1]),
                (216, &[3]),
                (220, &[4]),
                (228, &[60]),
            ],
        ));
        assert_eq!((read.kelvin, read.spare_percent, read.used_percent), (323, 90, 104));
        assert_eq!((read.media_errors, read.hot_min), (7, 3));
        assert_eq!((read.throttles, read.throttled_s), (7, 60));
        let texts: Vec<&str> = read.warning_texts().collect();
        let expected =
            ["the temperature is too high or too low", "the drive accepts no more writes"];
        assert_eq!(texts, expected);
    }
}
