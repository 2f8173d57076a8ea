//! Measures the units in which a file system allocates and frees the space of a file.
//!
//! A file system may allocate larger units than the block size that it reports, for example ext4
//! clusters, XFS extent size hints or ZFS records. The units are therefore measured by the change
//! of the file's allocated size (st_blocks): one byte is written into a hole, and holes of
//! increasing size are punched until one of them frees space.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::sys;

/// Size of the test file during the measurement (bytes).
pub const NEEDS_BYTES: u64 = 8 << 20;
/// Largest allocation unit that can be detected (bytes).
const UNIT_MAX: u64 = 1 << 20;
/// Offsets at which one byte is written to measure the allocation unit (bytes). The second offset
/// is deliberately unaligned. Only two offsets are used, because ext4 allocates a block for the
/// extent tree as soon as a file has five extents.
const PLACES: [u64; 2] = [0, (2 << 20) + 70_001];
/// Offset of the writes that verify the detected allocation unit (bytes).
const TRIED_AT: u64 = 6 << 20;
/// At each of these offsets, one byte is written before holes are punched. With these extents,
/// ext4 allocates its block for the extent tree before the first hole. Otherwise the first hole
/// would cause this allocation, which would hide the space that the hole frees.
const BESIDE: [u64; 5] = [3 << 20, 4 << 20, 5 << 20, 6 << 20, 7 << 20];
/// Size of the first hole that is punched (bytes). Each further hole is twice as large.
const HOLE_MIN: u64 = 512;

/// Allocation units of a file system. A unit is None if it could not be detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units {
    /// Block size that statvfs reports (bytes).
    pub told_bytes: Option<u64>,
    /// Space that is allocated when one byte is written into a hole (bytes).
    pub given_bytes: Option<u64>,
    /// Size of the smallest aligned hole that frees space when it is punched (bytes).
    pub taken_bytes: Option<u64>,
}

/// Measures the allocation units with a new file that is open for writing. At the end, the file is
/// truncated to zero bytes.
///
/// # Errors
/// If a write or a flush failed. A file system without hole punching is not an error.
pub fn units_of(file: &File) -> io::Result<Units> {
    let given_bytes = allocation_unit(file)?;
    let taken_bytes = freeing_unit(file)?;
    file.set_len(0)?;
    Ok(Units { told_bytes: sys::block_bytes(file).ok(), given_bytes, taken_bytes })
}

/// Returns the allocated size of the file (bytes). Flushes the file first, because some file
/// systems allocate space only when they write the data back.
fn allocated(file: &File) -> io::Result<u64> {
    file.sync_all()?;
    Ok(file.metadata()?.blocks() * 512)
}

/// Writes one byte at `at` and returns the space that this write allocates (bytes).
fn allocated_by_byte(file: &File, at: u64) -> io::Result<u64> {
    let before = allocated(file)?;
    file.write_all_at(&[0xA5], at)?;
    Ok(allocated(file)?.saturating_sub(before))
}

fn allocation_unit(file: &File) -> io::Result<Option<u64>> {
    file.set_len(0)?;
    file.set_len(NEEDS_BYTES)?;
    let mut sizes = Vec::new();
    for at in PLACES {
        sizes.push(allocated_by_byte(file, at)?);
    }
    // One of the writes may also allocate a metadata block, so the minimum is used.
    let unit = sizes.into_iter().min().unwrap_or(0);
    if unit == 0 || unit > UNIT_MAX {
        return Ok(None);
    }
    let first = allocated_by_byte(file, TRIED_AT)?;
    let last = allocated_by_byte(file, TRIED_AT + unit - 1)?;
    let next = allocated_by_byte(file, TRIED_AT + unit)?;
    Ok((first >= unit && last == 0 && next > 0).then_some(unit))
}

fn freeing_unit(file: &File) -> io::Result<Option<u64>> {
    file.set_len(0)?;
    // The data are random, so that the file system can neither compress nor deduplicate them.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut noise = vec![0_u8; 2 * UNIT_MAX as usize];
    for word in noise.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    file.write_all_at(&noise, 0)?;
    for at in BESIDE {
        file.write_all_at(&[0xA5], at)?;
    }
    let whole = allocated(file)?;
    let mut hole = HOLE_MIN;
    while hole <= UNIT_MAX {
        match sys::punch(file, UNIT_MAX, hole) {
            Ok(()) if allocated(file)? < whole => return Ok(Some(hole)),
            Ok(()) => hole *= 2,
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_are_powers_of_two_and_the_file_is_empty_afterwards() {
        let file = tempfile::tempfile().unwrap();
        let units = units_of(&file).unwrap();
        for bytes in [units.given_bytes, units.taken_bytes].into_iter().flatten() {
            assert!(bytes.is_power_of_two() && (512..=UNIT_MAX).contains(&bytes), "{units:?}");
        }
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[test]
    fn a_file_in_memory_is_allocated_in_pages() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return };
        let units = units_of(&file).unwrap();
        assert!(units.given_bytes.is_some_and(|b| b >= sys::page_bytes()), "{units:?}");
        assert_eq!(units.given_bytes, units.taken_bytes);
    }
}
