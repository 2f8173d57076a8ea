//! The vector operations that the loops need, and a portable implementation.

/// A register of 64-bit words.
///
/// # Safety
/// Methods may only be called on a CPU that has the instructions of the implementation. Pointers
/// must be valid for `BYTES` bytes; pointers of `stream` must be aligned to `BYTES`.
pub(crate) unsafe trait Vector: Copy {
    /// Width of the vector (bytes).
    const BYTES: usize;
    /// Sets every word to `word`.
    unsafe fn splat(word: u64) -> Self;
    /// Loads from any address.
    unsafe fn load(from: *const u8) -> Self;
    /// Stores to any address.
    unsafe fn store(self, to: *mut u8);
    /// Stores to any address that is a multiple of `BYTES`, past the caches (non-temporal).
    unsafe fn stream(self, to: *mut u8);
    /// Adds word by word, with wrap-around.
    unsafe fn add(self, other: Self) -> Self;
    /// `self + s * c`, with words as doubles.
    unsafe fn triad(self, s: Self, c: Self) -> Self;
    /// Orders non-temporal stores before all later stores.
    unsafe fn fence();
    /// The sum of the vector's words.
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
        // SAFETY: as for `store`; Rust has no portable non-temporal store.
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
