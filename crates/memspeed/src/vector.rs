//! The vector operations that the loops need, and a portable implementation.

/// A vector register that holds 64-bit words.
///
/// # Safety
/// Methods may only be called on a CPU that supports the instructions of the implementation.
/// Pointers must be valid for `BYTES` bytes. The pointer passed to `stream` must be aligned to
/// `BYTES`.
pub(crate) unsafe trait Vector: Copy {
    /// The width of the vector (bytes).
    const BYTES: usize;
    /// Returns a vector in which every word is `word`.
    unsafe fn splat(word: u64) -> Self;
    /// Loads a vector from an address of any alignment.
    unsafe fn load(from: *const u8) -> Self;
    /// Stores the vector to an address of any alignment.
    unsafe fn store(self, to: *mut u8);
    /// Stores the vector with a non-temporal store, which bypasses the caches. The address must be
    /// a multiple of `BYTES`.
    unsafe fn stream(self, to: *mut u8);
    /// Adds two vectors word by word, with wrap-around.
    unsafe fn add(self, other: Self) -> Self;
    /// Returns `self + s * c`, with all words as doubles.
    unsafe fn triad(self, s: Self, c: Self) -> Self;
    /// Orders non-temporal stores before all later stores.
    unsafe fn fence();
    /// Returns the sum of the vector's words, with wrap-around.
    unsafe fn sum(self) -> u64;
}

// SAFETY: this is plain Rust, which runs on every CPU.
unsafe impl Vector for u64 {
    const BYTES: usize = 8;

    #[inline(always)]
    unsafe fn splat(word: u64) -> u64 {
        word
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> u64 {
        // SAFETY: the caller's pointer is valid for 8 bytes.
        unsafe { from.cast::<u64>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's pointer is valid for 8 bytes.
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
