//! Anonymous memory from mmap(2): zeroed, page-aligned, optionally on huge pages, and not shared
//! with a forked child.

use std::io;
use std::ptr;

/// An anonymous private mapping, unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u8,
    length: usize,
    huge: bool,
}

// SAFETY: the mapping is plain memory owned by this value; nothing in it is tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives out no access to the memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps zeroed memory; `huge` asks for huge pages before the first touch.
    pub fn new(length: usize, huge: bool) -> io::Result<Mapping> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: advice on our own mapping; refusal is harmless. A forked child (the soaker)
        // must not share pages that the kernel has pinned for I/O.
        unsafe {
            libc::madvise(base, length, advice);
            libc::madvise(base, length, libc::MADV_DONTFORK);
        }
        Ok(Mapping { base: base.cast(), length, huge })
    }

    /// Address of the first byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Length of the mapping (bytes).
    pub fn length(&self) -> usize {
        self.length
    }

    /// Whether huge pages were asked for.
    pub fn is_huge(&self) -> bool {
        self.huge
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and length are those of our own mapping, unmapped once.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}
