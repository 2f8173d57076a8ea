//! What a loop needs of the widest register of a CPU, and the portable answer.

/// A register full of 64-bit words.
///
/// # Safety
/// Every method may only be called on a CPU that has the instructions of its implementation.
/// Pointers must be good for `BYTES` bytes; those of `stream` must be multiples of `BYTES`.
pub(crate) unsafe trait Vector: Copy {
    /// Its width.
    const BYTES: usize;
    /// The same word everywhere.
    unsafe fn splat(word: u64) -> Self;
    /// Reads from any address.
    unsafe fn load(from: *const u8) -> Self;
    /// Writes to any address.
    unsafe fn store(self, to: *mut u8);
    /// Writes past the caches.
    unsafe fn stream(self, to: *mut u8);
    /// Adds words, without carry between them.
    unsafe fn add(self, other: Self) -> Self;
    /// `self + s * c`, words taken as doubles.
    unsafe fn triad(self, s: Self, c: Self) -> Self;
    /// Makes streamed writes visible before any later one.
    unsafe fn fence();
    /// The sum of its words.
    unsafe fn sum(self) -> u64;
}

// SAFETY: plain Rust; it runs everywhere.
unsafe impl Vector for u64 {
    const BYTES: usize = 8;

    #[inline(always)]
    unsafe fn splat(word: u64) -> u64 {
        word
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> u64 {
        // SAFETY: the caller's pointer is good for 8 bytes.
        unsafe { from.cast::<u64>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's pointer is good for 8 bytes.
        unsafe { to.cast::<u64>().write_unaligned(self) };
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: as for `store`; Rust has no portable way past the caches.
        unsafe { self.store(to) };
    }

    #[inline(always)]
    unsafe fn add(self, other: u64) -> u64 {
        self.wrapping_add(other)
    }

    #[inline(always)]
    unsafe fn triad(self, s: u64, c: u64) -> u64 {
        (f64::from_bits(self) + f64::from_bits(s) * f64::from_bits(c)).to_bits()
    }

    #[inline(always)]
    unsafe fn fence() {}

    #[inline(always)]
    unsafe fn sum(self) -> u64 {
        self
    }
}
