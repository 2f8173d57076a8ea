//! Measures how much of a file consists of holes and unwritten extents. Reads of these parts return
//! zeros without reaching the device. The file system reports them through FIEMAP (kernel document
//! filesystems/fiemap).

use std::fs::File;
use std::io;

use crate::sys;
use crate::target::Coverage;

/// The flag of the last extent of a file, from linux/fiemap.h.
const FIEMAP_EXTENT_LAST: u32 = 0x1;
/// The flag of an extent that holds no written data, from linux/fiemap.h.
const FIEMAP_EXTENT_UNWRITTEN: u32 = 0x800;
/// Reading stops after about this many extents, because more would take seconds.
const EXTENTS_MAX: usize = 1 << 20;

/// Returns the total size of the holes and of the unwritten extents between `start` and `size`
/// (bytes).
pub fn of_file(file: &File, start: u64, size: u64) -> io::Result<Coverage> {
    let (mut at, mut checked) = (start, 0_usize);
    let mut coverage = Coverage::default();
    while at < size && checked < EXTENTS_MAX {
        let extents = sys::extents(file, at)?;
        for extent in &extents {
            coverage.hole_bytes += extent.logical.min(size).saturating_sub(at);
            let end = (extent.logical + extent.length).min(size);
            if extent.flags & FIEMAP_EXTENT_UNWRITTEN != 0 {
                coverage.unwritten_bytes += end.saturating_sub(extent.logical.max(at));
            }
            at = at.max(end);
        }
        checked += extents.len();
        let last = extents.last().is_none_or(|e| e.flags & FIEMAP_EXTENT_LAST != 0);
        if last {
            coverage.hole_bytes += size - at;
            break;
        }
    }
    Ok(coverage)
}
