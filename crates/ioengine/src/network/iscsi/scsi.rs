//! The SCSI commands for disks, and the interpretation of their answers.
//!
//! The sources are SPC-4 (INCITS 513) for INQUIRY, MODE SENSE and sense data; SBC-3 (INCITS 514)
//! for commands of disks; and SAM-5 (INCITS 515) for status codes and logical unit numbers.
//! Comments cite the names of commands and pages, because section numbers differ between revisions.
//! All numbers are big-endian.

use std::fmt;

use crate::network::wire::printable;
use crate::request::Op;

/// A command descriptor block, which contains the operation code and parameters of a command.
pub(super) type CommandBlock = [u8; 16];

/// The sizes of the answers that this client requests (bytes): standard INQUIRY data up to the
/// product revision, "READ CAPACITY (16) parameter data", "Block Limits VPD page", and MODE SENSE
/// with one block descriptor and the caching page.
pub(super) const INQUIRY_BYTES: u8 = 36;
pub(super) const CAPACITY_BYTES: u8 = 32;
pub(super) const LIMITS_BYTES: u8 = 64;
pub(super) const MODE_BYTES: u8 = 64;

/// The code of the "Block Limits VPD page" (SBC-3).
pub(super) const LIMITS_PAGE: u8 = 0xb0;
/// The code of the "Caching mode page" (SBC-3).
pub(super) const CACHING_PAGE: u8 = 0x08;
/// The code that requests all mode pages (SPC-4, "MODE SENSE (6) command").
pub(super) const ALL_PAGES: u8 = 0x3f;

/// Status codes (SAM-5, "Status codes").
pub(super) const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;
const BUSY: u8 = 0x08;
const RESERVATION_CONFLICT: u8 = 0x18;
const TASK_SET_FULL: u8 = 0x28;

/// Sense keys (SPC-4, "Sense key and additional sense code definitions").
const RECOVERED_ERROR: u8 = 0x1;
const ILLEGAL_REQUEST: u8 = 0x5;
const UNIT_ATTENTION: u8 = 0x6;
const DATA_PROTECT: u8 = 0x7;
const ABORTED_COMMAND: u8 = 0xb;
const VOLUME_OVERFLOW: u8 = 0xd;

/// Encodes a logical unit number in eight bytes (SAM-5, "Logical unit numbers"). Numbers up to 255
/// use peripheral device addressing. Numbers up to 16383 use flat space addressing. None for larger
/// numbers.
pub(super) fn lun_bytes(lun: u16) -> Option<[u8; 8]> {
    let [high, low] = lun.to_be_bytes();
    match lun {
        0..=0xff => Some([0, low, 0, 0, 0, 0, 0, 0]),
        0x100..=0x3fff => Some([0x40 | high, low, 0, 0, 0, 0, 0, 0]),
        _ => None,
    }
}

/// Builds an "INQUIRY command" (SPC-4). The command requests a page of vital product data or, if
/// `page` is None, the standard data.
pub(super) fn inquiry(page: Option<u8>, bytes: u8) -> CommandBlock {
    let mut block = [0; 16];
    (block[0], block[4]) = (0x12, bytes);
    if let Some(page) = page {
        (block[1], block[2]) = (1, page);
    }
    block
}

/// Builds a "TEST UNIT READY command" (SPC-4).
pub(super) fn test_unit_ready() -> CommandBlock {
    [0; 16]
}

/// Builds a "READ CAPACITY (16) command" (SBC-3), which is service action 0x10 of SERVICE ACTION IN
/// (16).
pub(super) fn read_capacity() -> CommandBlock {
    let mut block = [0; 16];
    (block[0], block[1], block[13]) = (0x9e, 0x10, CAPACITY_BYTES);
    block
}

/// Builds a "MODE SENSE (6) command" (SPC-4), for the current values of a page.
pub(super) fn mode_sense(page: u8) -> CommandBlock {
    let mut block = [0; 16];
    (block[0], block[2], block[4]) = (0x1a, page, MODE_BYTES);
    block
}

/// Builds a "READ (16) command" or "WRITE (16) command" (SBC-3). With FUA (force unit access), the
/// disk reports success of a write only when the data is on the medium.
pub(super) fn transfer(op: Op, first_block: u64, blocks: u32, fua: bool) -> CommandBlock {
    let mut block = [0; 16];
    block[0] = match op {
        Op::Read => 0x88,
        Op::Write => 0x8a,
    };
    block[1] = if fua { 0x08 } else { 0 };
    block[2..10].copy_from_slice(&first_block.to_be_bytes());
    block[10..14].copy_from_slice(&blocks.to_be_bytes());
    block
}

/// Builds a "SYNCHRONIZE CACHE (16) command" (SBC-3) for all blocks.
pub(super) fn synchronize_cache() -> CommandBlock {
    let mut block = [0; 16];
    block[0] = 0x91;
    block
}

/// The data about a logical unit that INQUIRY returns ("Standard INQUIRY data", SPC-4).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// Whether a unit with this number exists.
    pub is_present: bool,
    /// The "Peripheral device type", which is 0 for a disk.
    pub device_type: u8,
    /// The names of the vendor and the product.
    pub name: String,
}

impl Unit {
    pub(super) fn parse(data: &[u8]) -> Option<Unit> {
        let (first, names) = (*data.first()?, data.get(8..32)?);
        let text = |bytes: &[u8]| bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        let word = |bytes: &[u8]| printable(&bytes[..text(bytes)]).trim().to_owned();
        let name = format!("{} {}", word(&names[..8]), word(&names[8..])).trim().to_owned();
        Some(Unit { is_present: first >> 5 == 0, device_type: first & 0x1f, name })
    }

    /// Returns true if the unit is a disk with random access ("direct access block device").
    pub(super) fn is_disk(&self) -> bool {
        self.device_type == 0
    }
}

/// The number of the last block, and the block size ("READ CAPACITY (16) parameter data", SBC-3).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Capacity {
    pub last_block: u64,
    pub block_bytes: u32,
}

impl Capacity {
    pub(super) fn parse(data: &[u8]) -> Option<Capacity> {
        let last_block = u64::from_be_bytes(data.get(..8)?.try_into().ok()?);
        Some(Capacity { last_block, block_bytes: be32(data.get(8..12)?)? })
    }

    /// Returns the size of the disk (bytes). None if the size is 2^63 or more.
    pub(super) fn bytes(&self) -> Option<u64> {
        let bytes = self.last_block.checked_add(1)?.checked_mul(self.block_bytes.into())?;
        (bytes <= i64::MAX as u64).then_some(bytes)
    }
}

fn be32(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_be_bytes)
}

/// Whether a disk can be written, and how it caches writes, according to MODE SENSE (6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mode {
    pub is_read_only: bool,
    /// Whether the disk supports the FUA bit.
    pub has_fua: bool,
    /// Whether the write cache is on. None if the disk does not report it.
    pub write_cache: Option<bool>,
}

impl Mode {
    /// Parses the answer to MODE SENSE (6): the bits WP and DPOFUA (SBC-3) of the "Mode parameter
    /// header(6)" (SPC-4), and the bit WCE of the caching page.
    pub(super) fn parse(data: &[u8]) -> Option<Mode> {
        let (specific, descriptors) = (*data.get(2)?, usize::from(*data.get(3)?));
        let mut mode = Mode {
            is_read_only: specific & 0x80 != 0,
            has_fua: specific & 0x10 != 0,
            write_cache: None,
        };
        let mut pages = data.get(4 + descriptors..).unwrap_or_default();
        while let [code, length, rest @ ..] = pages {
            if code & 0x3f == CACHING_PAGE && code & 0x40 == 0 {
                mode.write_cache = rest.first().map(|bits| bits & 0x04 != 0);
                break;
            }
            pages = rest.get(usize::from(*length)..).unwrap_or_default();
        }
        Some(mode)
    }
}

/// Returns the maximum number of blocks that one command may transfer ("Block Limits VPD page",
/// SBC-3). None if there is no limit.
pub(super) fn blocks_max(page: &[u8]) -> Option<u32> {
    if page.get(1) != Some(&LIMITS_PAGE) {
        return None;
    }
    be32(page.get(8..12)?).filter(|blocks| *blocks > 0)
}

/// The reason why a command failed: key, additional code and qualifier ("Sense data", SPC-4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sense {
    key: u8,
    code: u8,
    qualifier: u8,
}

impl Sense {
    /// Parses sense data in the fixed format (response codes 0x70, 0x71) or in the descriptor
    /// format (0x72, 0x73). Missing fields count as 0.
    fn parse(data: &[u8]) -> Sense {
        let at = |position: usize| data.get(position).copied().unwrap_or(0);
        match at(0) & 0x7f {
            0x70 | 0x71 => Sense { key: at(2) & 0xf, code: at(12), qualifier: at(13) },
            0x72 | 0x73 => Sense { key: at(1) & 0xf, code: at(2), qualifier: at(3) },
            _ => Sense::default(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    status: u8,
    sense: Sense,
}

impl Failure {
    /// Returns the failure that a status and its sense data describe. None if the command
    /// succeeded. A recovered error counts as success, because the data was transferred.
    pub(super) fn of(status: u8, sense_data: &[u8]) -> Option<Failure> {
        let sense = Sense::parse(sense_data);
        match status {
            GOOD => None,
            CHECK_CONDITION if sense.key == RECOVERED_ERROR => None,
            CHECK_CONDITION => Some(Failure { status, sense }),
            _ => Some(Failure { status, sense: Sense::default() }),
        }
    }

    /// Returns the failure of a command that failed in the target, before the disk could answer.
    pub(super) fn of_target() -> Failure {
        Failure { status: CHECK_CONDITION, sense: Sense::default() }
    }

    /// Returns true if the disk reported a change, such as a reset, instead of executing the
    /// command.
    pub(super) fn is_unit_attention(&self) -> bool {
        self.status == CHECK_CONDITION && self.sense.key == UNIT_ATTENTION
    }

    /// Returns true if the disk does not know the command ("INVALID COMMAND OPERATION CODE").
    pub(super) fn is_unknown_command(&self) -> bool {
        self.sense == Sense { key: ILLEGAL_REQUEST, code: 0x20, qualifier: 0 }
    }

    /// Returns true if the unit does not exist ("LOGICAL UNIT NOT SUPPORTED").
    pub(super) fn is_unknown_unit(&self) -> bool {
        (self.sense.key, self.sense.code) == (ILLEGAL_REQUEST, 0x25)
    }

    /// Returns the corresponding error number of Linux (positive). EAGAIN means that the command
    /// was not executed and may be sent again.
    pub(super) fn errno(&self) -> i32 {
        let Sense { key, code, qualifier } = self.sense;
        match (self.status, key) {
            (BUSY | TASK_SET_FULL, _) => libc::EAGAIN,
            (RESERVATION_CONFLICT, _) => libc::EBUSY,
            // The protection information is damaged, so sending the command again does not help.
            (CHECK_CONDITION, ABORTED_COMMAND) if code == 0x10 => libc::EILSEQ,
            (CHECK_CONDITION, UNIT_ATTENTION | ABORTED_COMMAND) => libc::EAGAIN,
            (CHECK_CONDITION, ILLEGAL_REQUEST) => match code {
                0x20 => libc::EOPNOTSUPP,
                0x25 => libc::ENXIO,
                _ => libc::EINVAL,
            },
            // A thinly provisioned disk has no space left ("SPACE ALLOCATION FAILED WRITE
            // PROTECT").
            (CHECK_CONDITION, DATA_PROTECT) if (code, qualifier) == (0x27, 0x07) => libc::ENOSPC,
            (CHECK_CONDITION, DATA_PROTECT) => libc::EROFS,
            (CHECK_CONDITION, VOLUME_OVERFLOW) => libc::ENOSPC,
            _ => libc::EIO,
        }
    }
}

impl fmt::Display for Failure {
    /// Formats the failure, for example as "illegal request (5/25/00)" or "status 08 (busy)".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const KEYS: [&str; 16] = [
            "no sense",
            "recovered error",
            "not ready",
            "medium error",
            "hardware error",
            "illegal request",
            "unit attention",
            "data protect",
            "blank check",
            "vendor specific",
            "copy aborted",
            "aborted command",
            "reserved",
            "volume overflow",
            "miscompare",
            "completed",
        ];
        let Sense { key, code, qualifier } = self.sense;
        match self.status {
            CHECK_CONDITION => {
                let name = KEYS[usize::from(key & 0xf)];
                write!(f, "{name} ({key:x}/{code:02x}/{qualifier:02x})")
            }
            BUSY => f.write_str("status 08 (busy)"),
            RESERVATION_CONFLICT => f.write_str("status 18 (reserved by another initiator)"),
            TASK_SET_FULL => f.write_str("status 28 (task set full)"),
            status => write!(f, "status {status:02x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_bytes_of_the_specification() {
        let read = transfer(Op::Read, 0x0102_0304_0506, 8, false);
        assert_eq!(read, [0x88, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0, 0, 8, 0, 0]);
        let write = transfer(Op::Write, 1, 0x1_0000, true);
        assert_eq!(write, [0x8a, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(inquiry(Some(0xb0), 64)[..6], [0x12, 1, 0xb0, 0, 64, 0]);
        assert_eq!(inquiry(None, 36)[..6], [0x12, 0, 0, 0, 36, 0]);
        assert_eq!(read_capacity(), [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0]);
        assert_eq!(mode_sense(8)[..6], [0x1a, 0, 8, 0, 64, 0]);
        assert_eq!(synchronize_cache()[0], 0x91);
    }

    #[test]
    fn unit_numbers_use_two_addressing_methods() {
        assert_eq!(lun_bytes(5), Some([0, 5, 0, 0, 0, 0, 0, 0]));
        assert_eq!(lun_bytes(300), Some([0x41, 0x2c, 0, 0, 0, 0, 0, 0]));
        assert_eq!(lun_bytes(0x4000), None);
    }

    #[test]
    fn answers_are_read_and_short_ones_refused() {
        let mut inquiry = vec![0_u8, 0, 5, 0, 31, 0, 0, 0];
        inquiry.extend(b"IET     VIRTUAL-DISK    0001");
        let unit = Unit::parse(&inquiry).unwrap();
        assert_eq!(
            (unit.is_present, unit.is_disk(), &*unit.name),
            (true, true, "IET VIRTUAL-DISK")
        );
        inquiry[0] = 0x7f;
        assert!(!Unit::parse(&inquiry).unwrap().is_present);
        assert_eq!(Unit::parse(&inquiry[..31]), None);

        let capacity = Capacity::parse(&[0, 0, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 2, 0]).unwrap();
        assert_eq!((capacity.block_bytes, capacity.bytes()), (512, Some(64 << 20)));
        assert_eq!(Capacity::parse(&[0; 11]), None);
        let absurd = Capacity { last_block: u64::MAX, block_bytes: 512 };
        assert_eq!(absurd.bytes(), None);
        assert_eq!(Capacity { last_block: 1 << 60, block_bytes: 512 }.bytes(), None);

        assert_eq!(blocks_max(&[0, 0xb0, 0, 60, 0, 0, 0, 0, 0, 0, 0x40, 0]), Some(0x4000));
        assert_eq!(blocks_max(&[0, 0xb0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(blocks_max(&[0, 0xb0, 0, 60]), None);
    }

    #[test]
    fn mode_pages_are_found_behind_descriptors_and_other_pages() {
        let mut data = vec![0, 0, 0x90, 8];
        data.extend([0; 8]);
        data.extend([0x01, 2, 0xff, 0xff, 0x88, 18, 0x04]);
        let all = Mode { is_read_only: true, has_fua: true, write_cache: Some(true) };
        assert_eq!(Mode::parse(&data), Some(all));
        assert_eq!(Mode::parse(&[3, 0, 0, 0]), Some(Mode::default()));
        let beyond = Mode::parse(&[0, 0, 0x80, 200, 8, 18, 4]).unwrap();
        assert_eq!((beyond.is_read_only, beyond.write_cache), (true, None));
        let truncated = Mode::parse(&[0, 0, 0, 0, 8, 18]).unwrap();
        assert_eq!(truncated.write_cache, None);
        assert_eq!(Mode::parse(&[0, 0, 0]), None);
    }

    fn failure(sense: [u8; 3]) -> Failure {
        let [key, code, qualifier] = sense;
        let descriptor = Failure::of(CHECK_CONDITION, &[0x72, key, code, qualifier]).unwrap();
        let mut fixed = [0; 18];
        (fixed[0], fixed[2], fixed[12], fixed[13]) = (0xf0, 0xe0 | key, code, qualifier);
        assert_eq!(Failure::of(CHECK_CONDITION, &fixed), Some(descriptor));
        descriptor
    }

    #[test]
    fn sense_data_becomes_an_error_number_and_a_text() {
        assert_eq!(Failure::of(GOOD, &[]), None);
        assert_eq!(Failure::of(CHECK_CONDITION, &[0x72, 1, 0x17, 1]), None, "recovered");
        assert_eq!(failure([3, 0x11, 0]).errno(), libc::EIO);
        assert_eq!(failure([5, 0x21, 0]).errno(), libc::EINVAL);
        assert_eq!(failure([5, 0x20, 0]).errno(), libc::EOPNOTSUPP);
        assert_eq!(failure([6, 0x29, 0]).errno(), libc::EAGAIN);
        assert_eq!(failure([7, 0x27, 0]).errno(), libc::EROFS);
        assert_eq!(failure([7, 0x27, 7]).errno(), libc::ENOSPC);
        assert_eq!(failure([5, 0x25, 0]).to_string(), "illegal request (5/25/00)");
        assert!(
            failure([6, 0x29, 0]).is_unit_attention() && failure([5, 0x25, 0]).is_unknown_unit()
        );
        assert_eq!(Failure::of(TASK_SET_FULL, &[]).unwrap().errno(), libc::EAGAIN);
        assert_eq!(Failure::of(RESERVATION_CONFLICT, &[]).unwrap().errno(), libc::EBUSY);
        assert_eq!(Failure::of(CHECK_CONDITION, &[]).unwrap().errno(), libc::EIO);
    }
}
