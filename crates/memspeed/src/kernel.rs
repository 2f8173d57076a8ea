//! The kernels: how they access their arrays, and how many bytes each counts as moved.

use std::fmt;
use std::str::FromStr;

/// Size of a cache line (bytes). It is 64 bytes on every x86-64 and nearly every other CPU. Where
/// lines are longer, a touch moves more than is counted.
pub const LINE_BYTES: usize = 64;
/// Array sizes are multiples of this (eight of the widest vectors), so that no loop has a remainder
/// (bytes).
pub(crate) const GRANULE_BYTES: usize = 8 * LINE_BYTES;
/// Minimum working set (bytes); three granules fit into it.
pub const SET_BYTES_MIN: usize = 4096;

/// An operation on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Sums an array with vector loads.
    Load,
    /// Fills an array with vector stores.
    Store,
    /// The C library's `memset`.
    Memset,
    /// The C library's `memcpy` from one array to another.
    Copy,
    /// `a[i] = b[i] + s * c[i]` over doubles, as in STREAM.
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

    /// Name of the kernel on the command line.
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

    /// Number of arrays, which share the working set equally.
    pub fn arrays(self) -> usize {
        match self {
            Kernel::Triad => 3,
            Kernel::Copy | Kernel::NtCopy => 2,
            _ => 1,
        }
    }

    /// Whether the kernel uses non-temporal stores.
    pub fn is_non_temporal(self) -> bool {
        matches!(self, Kernel::NtStore | Kernel::NtCopy)
    }

    /// Bytes of each array in a working set.
    pub fn array_bytes(self, set_bytes: usize) -> usize {
        set_bytes / self.arrays() / GRANULE_BYTES * GRANULE_BYTES
    }

    /// Bytes that one pass over a working set counts in the convention "once" (see the crate's
    /// documentation).
    pub fn once_bytes(self, set_bytes: usize) -> u64 {
        let arrays = if self == Kernel::Triad { 3 } else { 1 };
        (arrays * self.array_bytes(set_bytes)) as u64
    }

    /// Bytes that one pass over a working set counts in the convention "traffic": all bytes read
    /// and written.
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
            format!("unknown kernel '{text}'; use {names}")
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
