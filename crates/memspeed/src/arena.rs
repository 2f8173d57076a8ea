//! The memory of one thread: an anonymous mapping with pages of a chosen size. The thread that uses
//! the mapping is also the first to touch the pages, so that Linux can place them on the NUMA node
//! of this thread.

use std::fs;
use std::io;
use std::ptr;

use crate::kernel::{Kernel, LINE_BYTES};
use crate::loops::{Arrays, WORD};

/// The kind of memory pages that back the arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Huge pages where Linux provides them.
    Huge,
    /// Ordinary 4 KiB pages only.
    Small,
    /// The page size that the system uses by default.
    System,
}

/// The size of an ordinary page (bytes). Arrays start at a multiple of this size plus an offset.
pub(crate) const PAGE_BYTES: usize = 4096;
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// The maximum number of arrays that a measured memory operation ([`Kernel`]) uses.
const ARRAYS: usize = 3;

/// The memory of a thread, large enough for working sets up to a maximum size.
pub(crate) struct Arena {
    mapping: *mut u8,
    mapped_bytes: usize,
    /// The first usable byte, which is aligned to a huge page.
    base: *mut u8,
    /// The number of usable bytes that start at `base`.
    bytes: usize,
}

impl Arena {
    /// Maps and touches memory for working sets of up to `set_bytes`.
    pub fn new(set_bytes: usize, pages: Pages) -> io::Result<Arena> {
        // Each array is rounded up to whole pages and may be shifted by less than a page.
        let bytes = set_bytes.checked_add(2 * ARRAYS * PAGE_BYTES);
        let mapped_bytes = bytes.and_then(|bytes| bytes.checked_add(2 * HUGE_PAGE_BYTES));
        let (Some(bytes), Some(mapped_bytes)) = (bytes, mapped_bytes) else {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: this creates a new anonymous mapping at an address that Linux chooses.
        let mapping =
            unsafe { libc::mmap(ptr::null_mut(), mapped_bytes, protection, flags, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let advice = match pages {
            Pages::Huge => Some(libc::MADV_HUGEPAGE),
            Pages::Small => Some(libc::MADV_NOHUGEPAGE),
            Pages::System => None,
        };
        if let Some(advice) = advice {
            // SAFETY: the mapping belongs to this function. If madvise fails, it changes nothing.
            unsafe { libc::madvise(mapping, mapped_bytes, advice) };
        }
        let mapping: *mut u8 = mapping.cast();
        let base = mapping.wrapping_add(mapping.align_offset(HUGE_PAGE_BYTES));
        let arena = Arena { mapping, mapped_bytes, base, bytes };
        arena.touch();
        Ok(arena)
    }

    /// Fills the arena with doubles that never become denormal. Denormal values would slow down
    /// arithmetic.
    fn touch(&self) {
        for at in (0..self.bytes).step_by(8) {
            // SAFETY: the address is in the mapping, which is two huge pages longer than `bytes`.
            unsafe { self.base.add(at).cast::<u64>().write(WORD) };
        }
    }

    /// Returns the arrays of a kernel for a working set. The arrays are consecutive, and each
    /// starts `offset_bytes` after the start of a page. Non-temporal stores need arrays that are
    /// aligned to cache lines. For kernels that use such stores, the offset is rounded down to a
    /// multiple of the line size.
    ///
    /// # Panics
    /// The working set is larger than the arena, or the offset is a page or more.
    pub fn arrays(&self, kernel: Kernel, set_bytes: usize, offset_bytes: usize) -> Arrays {
        let bytes = kernel.array_bytes(set_bytes);
        let stride = bytes.next_multiple_of(PAGE_BYTES);
        let odd = if kernel.is_non_temporal() { offset_bytes % LINE_BYTES } else { 0 };
        let stride = if offset_bytes > 0 { stride + PAGE_BYTES } else { stride };
        let start = |index: usize| index * stride + offset_bytes - odd;
        let end = start(kernel.arrays() - 1) + bytes;
        assert!(offset_bytes < PAGE_BYTES && end <= self.bytes, "the arrays exceed the memory");
        // Arrays that the kernel does not use may lie outside the arena. They are never accessed.
        let at = |index: usize| self.base.wrapping_add(start(index));
        Arrays { a: at(0), b: at(1), c: at(2), bytes }
    }

    /// Reads from /proc/self/smaps how many bytes of the arena are on huge pages. None if the file
    /// cannot be read.
    pub fn huge_bytes(&self) -> Option<u64> {
        let maps = fs::read_to_string("/proc/self/smaps").ok()?;
        let (from, to) = (self.mapping as u64, self.mapping as u64 + self.mapped_bytes as u64);
        Some(huge_bytes_between(&maps, from, to).min(self.bytes as u64))
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the arena owns the mapping, and no array outlives the arena's thread.
        unsafe { libc::munmap(self.mapping.cast(), self.mapped_bytes) };
    }
}

/// Returns the sum of `AnonHugePages` over the mappings that overlap an address range (bytes).
fn huge_bytes_between(smaps: &str, from: u64, to: u64) -> u64 {
    let mut inside = false;
    let mut bytes = 0;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some((low, high)) = first.split_once('-') {
            let bound = |text| u64::from_str_radix(text, 16).unwrap_or(0);
            inside = bound(low) < to && bound(high) > from;
        } else if inside && first == "AnonHugePages:" {
            let kib = words.next().and_then(|number| number.parse::<u64>().ok());
            bytes += kib.unwrap_or(0).saturating_mul(1024);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::SET_BYTES_MIN;

    #[test]
    fn arrays_are_disjoint_inside_the_arena_and_start_at_their_offset() {
        for set in [SET_BYTES_MIN, 20_000, 1 << 20] {
            let arena = Arena::new(set, Pages::Small).unwrap();
            for kernel in Kernel::ALL {
                for offset in [0, 8, 64, 4088] {
                    let arrays = arena.arrays(kernel, set, offset);
                    let starts = [arrays.a as usize, arrays.b as usize, arrays.c as usize];
                    let used = &starts[..kernel.arrays()];
                    for pair in used.windows(2) {
                        assert!(pair[0] + arrays.bytes <= pair[1], "{kernel} {set} {offset}");
                    }
                    let least = arena.base as usize;
                    let end = used[used.len() - 1] + arrays.bytes;
                    assert!(used[0] >= least && end <= least + arena.bytes, "{kernel} {offset}");
                    let past = if kernel.is_non_temporal() { offset / 64 * 64 } else { offset };
                    assert!(used.iter().all(|start| start % PAGE_BYTES == past), "{kernel}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "exceed the memory")]
    fn a_set_larger_than_the_arena_is_refused() {
        let arena = Arena::new(SET_BYTES_MIN, Pages::System).unwrap();
        arena.arrays(Kernel::Load, 1 << 20, 0);
    }

    #[test]
    fn ordinary_pages_are_not_huge() {
        let arena = Arena::new(8 << 20, Pages::Small).unwrap();
        if let Some(bytes) = arena.huge_bytes() {
            assert_eq!(bytes, 0);
        }
    }

    #[test]
    fn huge_pages_are_summed_over_the_mappings_of_the_arena() {
        let smaps = "1000-2000 rw-p 0 00:00 0\nAnonHugePages:   4 kB\n\
                     200000-600000 rw-p 0 00:00 0\nRss: 4096 kB\nAnonHugePages:  4096 kB\n\
                     600000-800000 rw-p 0 00:00 0\nAnonHugePages:  2048 kB\n";
        assert_eq!(huge_bytes_between(smaps, 0x20_0000, 0x80_0000), 6144 * 1024);
        assert_eq!(huge_bytes_between(smaps, 0x80_0000, 0x90_0000), 0);
    }
}
