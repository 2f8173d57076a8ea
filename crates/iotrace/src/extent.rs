//! Maps ranges of a file to sectors of its disk, because trace events contain sectors, but requests
//! contain offsets in the file. The caller supplies the file's extents.

/// Size of a sector in trace events (bytes). It is the same for all disks.
pub const SECTOR_BYTES: u64 = 512;

/// A piece of a file that is contiguous on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the piece in the file (bytes).
    pub offset: u64,
    /// Length of the piece (bytes).
    pub bytes: u64,
    /// First sector of the piece, counted from the start of the whole disk and not of the partition
    /// (sectors of 512 bytes).
    pub sector: u64,
}

/// Returns the disk locations of a range of a file as (first sector, number of sectors), in file
/// order. Adjacent pieces are merged, and holes are left out.
///
/// `extents` must be sorted by offset and must not overlap.
pub fn sectors_of(extents: &[Extent], offset: u64, bytes: u64) -> Vec<(u64, u64)> {
    let end = offset.saturating_add(bytes);
    let first =
        extents.partition_point(|extent| extent.offset.saturating_add(extent.bytes) <= offset);
    let mut pieces: Vec<(u64, u64)> = Vec::new();
    for extent in extents[first..].iter().take_while(|extent| extent.offset < end) {
        let from = offset.max(extent.offset);
        let to = end.min(extent.offset.saturating_add(extent.bytes));
        let sector = extent.sector.saturating_add((from - extent.offset) / SECTOR_BYTES);
        let sectors = to.saturating_sub(from).div_ceil(SECTOR_BYTES);
        let last = pieces.last_mut();
        match last.filter(|(start, length)| start.checked_add(*length) == Some(sector)) {
            Some((_, length)) => *length += sectors,
            None => pieces.push((sector, sectors)),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: [Extent; 2] = [
        Extent { offset: 0, bytes: 8192, sector: 1000 },
        Extent { offset: 16384, bytes: 8192, sector: 5000 },
    ];

    #[test]
    fn an_offset_is_found_in_its_extent() {
        assert_eq!(sectors_of(&TWO, 4096, 4096), [(1008, 8)]);
        assert_eq!(sectors_of(&TWO, 16384 + 512, 512), [(5001, 1)]);
    }

    #[test]
    fn ranges_across_extents_are_split_and_holes_are_left_out() {
        assert_eq!(sectors_of(&TWO, 4096, 16384), [(1008, 8), (5000, 8)]);
        assert_eq!(sectors_of(&TWO, 8192, 8192), []);
        assert_eq!(sectors_of(&TWO, 1 << 40, 4096), []);
        assert_eq!(sectors_of(&[], 0, 4096), []);
    }

    #[test]
    fn adjacent_extents_are_merged() {
        let extents = [TWO[0], Extent { offset: 8192, bytes: 4096, sector: 1016 }];
        assert_eq!(sectors_of(&extents, 0, 12288), [(1000, 24)]);
    }
}
