//! Anonymous memory from mmap(2). The memory is zeroed, page-aligned, optionally on huge pages, and
//! not shared with a forked child.

use std::io;
use std::ptr;

/// An anonymous private mapping, which is unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u8,
    length: usize,
    huge: bool,
}

// SAFETY: this value owns the mapping, which is plain memory. Nothing in it is tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives no access to the memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps zeroed memory. If `huge` is true, requests huge pages before the first access.
    pub fn new(length: usize, huge: bool) -> io::Result<Mapping> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the call creates an anonymous mapping at an address that the kernel chooses.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the advice is for the new mapping, and a refusal is harmless. A forked child must
        // not share pages that the kernel has pinned for I/O.
        unsafe {
            libc::madvise(base, length, advice);
            libc::madvise(base, length, libc::MADV_DONTFORK);
        }
        Ok(Mapping { base: base.cast(), length, huge })
    }

    /// Returns the address of the first byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns the length of the mapping (bytes).
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns true if huge pages were requested.
    pub fn is_huge(&self) -> bool {
        self.huge
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and length are those of this value's mapping, which is unmapped only here.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}
