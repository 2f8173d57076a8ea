//! In which units a file system gives space to a file and takes it back.
//!
//! What a file system says of its blocks is not always what it gives: clusters, hints on the size
//! of extents and records are larger. The space that a file of one's own has (st_blocks) tells the
//! unit to the byte: what the first byte in a hole takes, and what the smallest punched hole that
//! gives anything back is.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::sys;

/// How long the file becomes meanwhile (bytes).
pub const NEEDS_BYTES: u64 = 8 << 20;
/// A larger unit than this is not found (bytes).
const UNIT_MAX: u64 = 1 << 20;
/// Holes where a first byte is written, one at an odd place, for the unit begins where it wants.
/// No more than these: from the fifth piece of a file on, ext4 needs a block to know its pieces.
const PLACES: [u64; 2] = [0, (2 << 20) + 70_001];
/// Where the unit that was found is tried.
const TRIED_AT: u64 = 6 << 20;
/// Smallest hole that is punched (bytes).
const HOLE_MIN: u64 = 512;

/// In which units a file system gives space to a file and takes it back. None: the file system does
/// not tell, or does it without any unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units {
    /// Blocks as the file system calls them (statvfs) (bytes).
    pub told_bytes: Option<u64>,
    /// What the first byte in a hole takes (bytes).
    pub given_bytes: Option<u64>,
    /// The smallest hole, at a multiple of its size, that gives space back (bytes).
    pub taken_bytes: Option<u64>,
}

/// Measures both units on a new file that is open for writing; what it held is lost, and it is
/// empty afterwards.
///
/// # Errors
/// When writing or flushing fails; not where holes cannot be punched.
pub fn units_of(file: &File) -> io::Result<Units> {
    let given_bytes = given(file)?;
    let taken_bytes = taken(file)?;
    file.set_len(0)?;
    Ok(Units { told_bytes: sys::block_bytes(file).ok(), given_bytes, taken_bytes })
}

/// What the file takes up (bytes), everything that waits included.
fn taken_up(file: &File) -> io::Result<u64> {
    file.sync_all()?;
    Ok(file.metadata()?.blocks() * 512)
}

/// What a byte at a place takes besides (bytes).
fn cost_of_byte(file: &File, at: u64) -> io::Result<u64> {
    let before = taken_up(file)?;
    file.write_all_at(&[0xA5], at)?;
    Ok(taken_up(file)?.saturating_sub(before))
}

fn given(file: &File) -> io::Result<Option<u64>> {
    file.set_len(0)?;
    file.set_len(NEEDS_BYTES)?;
    let mut costs = Vec::new();
    for at in PLACES {
        costs.push(cost_of_byte(file, at)?);
    }
    // The file system may need a block of its own now and then to know where the file is.
    let unit = costs.into_iter().min().unwrap_or(0);
    if unit == 0 || unit > UNIT_MAX {
        return Ok(None);
    }
    let first = cost_of_byte(file, TRIED_AT)?;
    let last = cost_of_byte(file, TRIED_AT + unit - 1)?;
    let next = cost_of_byte(file, TRIED_AT + unit)?;
    Ok((first >= unit && last == 0 && next > 0).then_some(unit))
}

fn taken(file: &File) -> io::Result<Option<u64>> {
    file.set_len(0)?;
    // Nothing that could be compressed or be the same twice.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut noise = vec![0_u8; 2 * UNIT_MAX as usize];
    for word in noise.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    file.write_all_at(&noise, 0)?;
    let whole = taken_up(file)?;
    let mut hole = HOLE_MIN;
    while hole <= UNIT_MAX {
        match sys::punch(file, UNIT_MAX, hole) {
            Ok(()) if taken_up(file)? < whole => return Ok(Some(hole)),
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
    fn a_file_in_memory_is_given_pages() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return };
        let units = units_of(&file).unwrap();
        assert!(units.given_bytes.is_some_and(|b| b >= sys::page_bytes()), "{units:?}");
        assert_eq!(units.given_bytes, units.taken_bytes);
    }
}
