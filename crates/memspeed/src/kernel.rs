//! The memory operations that are measured, which are called kernels. This module defines how many
//! arrays each kernel uses, and how many bytes count as moved.

use std::fmt;
use std::str::FromStr;

/// The size of a cache line (bytes). It is 64 bytes on all x86-64 CPUs and on nearly all others. On
/// CPUs with longer lines, the touch kernels move more bytes than are counted.
pub const LINE_BYTES: usize = 64;
/// Array sizes are multiples of this size (bytes). It is the size of eight of the widest vectors,
/// so that no loop has a remainder.
pub(crate) const GRANULE_BYTES: usize = 8 * LINE_BYTES;
/// The minimum working set (bytes). It has room for three arrays of at least one granule.
pub const SET_BYTES_MIN: usize = 4096;

/// A memory operation that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Sums an array with vector loads.
    Load,
    /// Fills an array with vector stores.
    Store,
    /// Fills an array with the C library's `memset`.
    Memset,
    /// Copies one array to another with the C library's `memcpy`.
    Copy,
    /// Computes `a[i] = b[i] + s * c[i]` over doubles, as in STREAM.
    Triad,
    /// Reads one word of each cache line.
    TouchRead,
    /// Writes one word of each cache line.
    TouchWrite,
    /// Fills an array with non-temporal stores, which bypass the caches.
    NtStore,
    /// Copies one array to another with non-temporal stores.
    NtCopy,
}

impl Kernel {
    /// All kernels, in display order.
    pub const ALL: [Kernel; 9] = [
        Kernel::Load,
        Kernel::TouchRead,
        Kernel::Store,
        Kernel::TouchWrite,
        Kernel::NtStore,
        Kernel::Memset,
        Kernel::Copy,
        Kernel::NtCopy,
        Kernel::Triad,
    ];

    /// Returns the name of the kernel on the command line, such as `touch-read`.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Load => "load",
            Kernel::Store => "store",
            Kernel::Memset => "memset",
            Kernel::Copy => "copy",
            Kernel::Triad => "triad",
            Kernel::TouchRead => "touch-read",
            Kernel::TouchWrite => "touch-write",
            Kernel::NtStore => "nt-store",
            Kernel::NtCopy => "nt-copy",
        }
    }

    /// Returns the number of arrays that the kernel uses. Each array gets the same share of the
    /// working set.
    pub fn arrays(self) -> usize {
        match self {
            Kernel::Triad => 3,
            Kernel::Copy | Kernel::NtCopy => 2,
            _ => 1,
        }
    }

    /// Checks whether the kernel uses non-temporal stores.
    pub fn is_non_temporal(self) -> bool {
        matches!(self, Kernel::NtStore | Kernel::NtCopy)
    }

    /// Returns the size of each array for a working set (bytes).
    pub fn array_bytes(self, set_bytes: usize) -> usize {
        set_bytes / self.arrays() / GRANULE_BYTES * GRANULE_BYTES
    }

    /// Returns the number of bytes that one pass over a working set moves, in the convention "once"
    /// (see the crate's documentation).
    pub fn once_bytes(self, set_bytes: usize) -> u64 {
        let arrays = if self == Kernel::Triad { 3 } else { 1 };
        (arrays * self.array_bytes(set_bytes)) as u64
    }

    /// Returns the number of bytes that one pass over a working set moves, in the convention
    /// "traffic". All bytes that are read or written are counted.
    pub fn traffic_bytes(self, set_bytes: usize) -> u64 {
        (self.arrays() * self.array_bytes(set_bytes)) as u64
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kernel {
    type Err = String;

    fn from_str(text: &str) -> Result<Kernel, String> {
        Kernel::ALL.into_iter().find(|kernel| kernel.name() == text).ok_or_else(|| {
            let names = Kernel::ALL.map(Kernel::name).join(", ");
            format!("unknown kernel '{text}'; one of {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_counts_once_and_moves_twice_and_a_triad_counts_24_bytes_an_element() {
        let set = 3 << 20;
        assert_eq!(Kernel::Copy.once_bytes(set), 3 << 19);
        assert_eq!(Kernel::Copy.traffic_bytes(set), 3 << 20);
        let elements = Kernel::Triad.array_bytes(set) as u64 / 8;
        assert_eq!(Kernel::Triad.once_bytes(set), 24 * elements);
        assert_eq!(Kernel::Load.once_bytes(set), Kernel::Load.traffic_bytes(set));
    }

    #[test]
    fn every_kernel_has_arrays_in_the_smallest_set() {
        for kernel in Kernel::ALL {
            let bytes = kernel.array_bytes(SET_BYTES_MIN);
            assert!(bytes > 0 && bytes % GRANULE_BYTES == 0, "{kernel}");
            assert!(bytes * kernel.arrays() <= SET_BYTES_MIN, "{kernel}");
        }
    }

    #[test]
    fn a_name_is_read_back() {
        for kernel in Kernel::ALL {
            assert_eq!(kernel.name().parse(), Ok(kernel));
        }
        assert!("stream".parse::<Kernel>().unwrap_err().contains("triad"));
    }
}
