//! The loops of the kernels, and the instruction sets that the loops use.
//!
//! Each kernel has one generic loop, which is compiled for each instruction set. The instruction
//! set is selected once per batch of passes. Each loop iteration processes eight vectors.
//! `black_box` hides the arrays from the compiler in each pass, so that the compiler neither drops
//! nor merges passes. `black_box` also hides the stored words, so that no loop is replaced by a
//! library call.

use std::hint::black_box;

use crate::kernel::{Kernel, LINE_BYTES};
use crate::vector::Vector;
#[cfg(target_arch = "x86_64")]
use crate::x86::{Avx2, Avx512};

/// The word that is written to memory. It is the double 1.0, which is not zero, denormal or large.
pub(crate) const WORD: u64 = 0x3ff0_0000_0000_0000;
/// The factor `s` of the triad.
const FACTOR: f64 = 3.0;
/// The number of vectors that a loop iteration processes.
const UNROLL: usize = 8;

/// The instruction set of the loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// The instructions that the compiler generates from plain Rust.
    Portable,
    /// AVX2 and FMA of x86-64: 32 bytes per instruction.
    Avx2,
    /// AVX-512F of x86-64: 64 bytes per instruction.
    Avx512,
}

impl Isa {
    /// Returns the widest instruction set that this CPU supports.
    pub fn detect() -> Isa {
        Isa::available().pop().unwrap_or(Isa::Portable)
    }

    /// Returns all instruction sets that this CPU supports, the widest last.
    pub fn available() -> Vec<Isa> {
        #[allow(unused_mut)] // Nothing is added on architectures without vector loops.
        let mut isas = vec![Isa::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                isas.push(Isa::Avx2);
            }
            if is_x86_feature_detected!("avx512f") {
                isas.push(Isa::Avx512);
            }
        }
        isas
    }

    /// Returns the name of the instruction set.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// Checks whether a kernel is available with this instruction set. Non-temporal stores need
    /// vector instructions.
    pub fn has(self, kernel: Kernel) -> bool {
        self != Isa::Portable || !kernel.is_non_temporal()
    }
}

/// The arrays of a kernel, each `bytes` long. A kernel with fewer than three arrays ignores the
/// other pointers.
#[derive(Clone, Copy)]
pub(crate) struct Arrays {
    /// The array that the kernel writes, or its only array.
    pub a: *mut u8,
    /// The array that a copy or triad reads.
    pub b: *const u8,
    /// The second array that a triad reads.
    pub c: *const u8,
    /// The length of each array (bytes).
    pub bytes: usize,
}

/// Runs `count` passes of a kernel. Returns the sum of the words that a load or a touch-read has
/// read, and 0 for all other kernels.
///
/// # Safety
/// The arrays that the kernel uses must be disjoint. Each must be valid for `bytes` bytes, and only
/// this thread may use it. `bytes` must be a multiple of `GRANULE_BYTES`. Arrays that a
/// non-temporal kernel writes must be aligned to cache lines. `isa` must be one of
/// [`Isa::available`].
pub(crate) unsafe fn passes(kernel: Kernel, isa: Isa, arrays: Arrays, count: u64) -> u64 {
    // SAFETY: the caller keeps the promises above, and the CPU supports the instructions of `isa`.
    unsafe {
        match (kernel, isa) {
            (Kernel::Copy, _) => memcpy(arrays, count),
            (Kernel::Memset, _) => memset(arrays, count),
            (Kernel::TouchRead, _) => touch_read(arrays, count),
            (Kernel::TouchWrite, _) => touch_write(arrays, count),
            #[cfg(target_arch = "x86_64")]
            (_, Isa::Avx2) => avx2(kernel, arrays, count),
            #[cfg(target_arch = "x86_64")]
            (_, Isa::Avx512) => avx512(kernel, arrays, count),
            _ => vectors::<u64>(kernel, arrays, count),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(kernel: Kernel, arrays: Arrays, count: u64) -> u64 {
    // SAFETY: the caller keeps the promises of `passes`, and AVX2 is enabled here.
    unsafe { vectors::<Avx2>(kernel, arrays, count) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512(kernel: Kernel, arrays: Arrays, count: u64) -> u64 {
    // SAFETY: the caller keeps the promises of `passes`, and AVX-512 is enabled here.
    unsafe { vectors::<Avx512>(kernel, arrays, count) }
}

#[inline(always)]
unsafe fn vectors<V: Vector>(kernel: Kernel, arrays: Arrays, count: u64) -> u64 {
    // SAFETY: the caller keeps the promises of `passes`, which are all that the loops require.
    unsafe {
        match kernel {
            Kernel::Load => load::<V>(arrays, count),
            Kernel::Store => store::<V>(arrays, count),
            Kernel::NtStore => nt_store::<V>(arrays, count),
            Kernel::NtCopy => nt_copy::<V>(arrays, count),
            _ => triad::<V>(arrays, count),
        }
    }
}

#[inline(always)]
unsafe fn load<V: Vector>(arrays: Arrays, count: u64) -> u64 {
    // SAFETY: every address is inside the array, whose length is a multiple of the bytes that an
    // iteration accesses.
    unsafe {
        let mut sums = [V::splat(0); UNROLL];
        for _ in 0..count {
            let a: *const u8 = black_box(arrays.a);
            for at in (0..arrays.bytes).step_by(UNROLL * V::BYTES) {
                for (k, sum) in sums.iter_mut().enumerate() {
                    *sum = sum.add(V::load(a.add(at + k * V::BYTES)));
                }
            }
        }
        sums.into_iter().fold(0, |sum, part| sum.wrapping_add(part.sum()))
    }
}

#[inline(always)]
unsafe fn store<V: Vector>(arrays: Arrays, count: u64) -> u64 {
    // SAFETY: every address is inside the array, whose length is a multiple of the bytes that an
    // iteration accesses.
    unsafe {
        let value = V::splat(black_box(WORD));
        for _ in 0..count {
            let a = black_box(arrays.a);
            for at in (0..arrays.bytes).step_by(UNROLL * V::BYTES) {
                for k in 0..UNROLL {
                    value.store(a.add(at + k * V::BYTES));
                }
            }
        }
        black_box(arrays.a);
    }
    0
}

#[inline(always)]
unsafe fn nt_store<V: Vector>(arrays: Arrays, count: u64) -> u64 {
    // SAFETY: as in `store`. The array starts at a cache line, so every address is a multiple of
    // the vector size.
    unsafe {
        let value = V::splat(black_box(WORD));
        for _ in 0..count {
            let a = black_box(arrays.a);
            for at in (0..arrays.bytes).step_by(UNROLL * V::BYTES) {
                for k in 0..UNROLL {
                    value.stream(a.add(at + k * V::BYTES));
                }
            }
            V::fence();
        }
        black_box(arrays.a);
    }
    0
}

#[inline(always)]
unsafe fn nt_copy<V: Vector>(arrays: Arrays, count: u64) -> u64 {
    // SAFETY: as in `nt_store`; both arrays have the same length.
    unsafe {
        for _ in 0..count {
            let (a, b) = black_box((arrays.a, arrays.b));
            for at in (0..arrays.bytes).step_by(UNROLL * V::BYTES) {
                let mut values = [V::splat(0); UNROLL];
                for (k, value) in values.iter_mut().enumerate() {
                    *value = V::load(b.add(at + k * V::BYTES));
                }
                for (k, value) in values.into_iter().enumerate() {
                    value.stream(a.add(at + k * V::BYTES));
                }
            }
            V::fence();
        }
        black_box(arrays.a);
    }
    0
}

#[inline(always)]
unsafe fn triad<V: Vector>(arrays: Arrays, count: u64) -> u64 {
    // SAFETY: every address is inside one of the arrays, which have the same length.
    unsafe {
        let factor = V::splat(black_box(FACTOR.to_bits()));
        for _ in 0..count {
            let (a, b, c) = black_box((arrays.a, arrays.b, arrays.c));
            for at in (0..arrays.bytes).step_by(UNROLL * V::BYTES) {
                for k in 0..UNROLL {
                    let at = at + k * V::BYTES;
                    V::load(b.add(at)).triad(factor, V::load(c.add(at))).store(a.add(at));
                }
            }
        }
        black_box(arrays.a);
    }
    0
}

unsafe fn memcpy(arrays: Arrays, count: u64) -> u64 {
    for _ in 0..count {
        let (a, b) = black_box((arrays.a, arrays.b));
        // SAFETY: the caller's arrays are disjoint and have the same length.
        unsafe { std::ptr::copy_nonoverlapping(b, a, black_box(arrays.bytes)) };
    }
    black_box(arrays.a);
    0
}

unsafe fn memset(arrays: Arrays, count: u64) -> u64 {
    for _ in 0..count {
        let (a, byte) = black_box((arrays.a, (WORD >> 56) as u8));
        // SAFETY: the caller's array has this length.
        unsafe { a.write_bytes(byte, black_box(arrays.bytes)) };
    }
    black_box(arrays.a);
    0
}

/// Reads one word per cache line. The reads are volatile, so that the compiler cannot combine them.
unsafe fn touch_read(arrays: Arrays, count: u64) -> u64 {
    let mut sums = [0_u64; UNROLL];
    for _ in 0..count {
        let a: *const u8 = black_box(arrays.a);
        for at in (0..arrays.bytes).step_by(UNROLL * LINE_BYTES) {
            for (k, sum) in sums.iter_mut().enumerate() {
                // SAFETY: the address is inside the array and is a multiple of the word size.
                let word = unsafe { a.add(at + k * LINE_BYTES).cast::<u64>().read_volatile() };
                *sum = sum.wrapping_add(word);
            }
        }
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}

/// Writes one word per cache line. The writes are volatile, so that the compiler cannot combine
/// them.
unsafe fn touch_write(arrays: Arrays, count: u64) -> u64 {
    let word = black_box(WORD);
    for _ in 0..count {
        let a = black_box(arrays.a);
        for at in (0..arrays.bytes).step_by(UNROLL * LINE_BYTES) {
            for k in 0..UNROLL {
                // SAFETY: the address is inside the array and is a multiple of the word size.
                unsafe { a.add(at + k * LINE_BYTES).cast::<u64>().write_volatile(word) };
            }
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::GRANULE_BYTES;

    /// Three arrays of doubles with a guard line before and after each array. The guard lines must
    /// not change. The doubles are small integers, so that sums and products are exact with and
    /// without fused multiply-add.
    struct Guarded {
        words: Vec<u64>,
        start: usize,
        each: usize,
    }

    const GUARD: usize = LINE_BYTES / 8;

    impl Guarded {
        fn new(granules: usize) -> Guarded {
            let each = granules * GRANULE_BYTES / 8;
            let words: Vec<u64> =
                (0..3 * (each + GUARD) + 2 * GUARD).map(|i| ((i % 977) as f64).to_bits()).collect();
            let start = words.as_ptr().align_offset(LINE_BYTES) + GUARD;
            Guarded { words, start, each }
        }

        fn array(&self, index: usize) -> &[u64] {
            &self.words[self.start + index * (self.each + GUARD)..][..self.each]
        }

        fn run(&mut self, kernel: Kernel, isa: Isa) -> u64 {
            let (start, each) = (self.start, self.each);
            let base = self.words.as_mut_ptr().wrapping_add(start);
            let at = |index: usize| base.wrapping_add(index * (each + GUARD)).cast::<u8>();
            let arrays = Arrays { a: at(0), b: at(1), c: at(2), bytes: each * 8 };
            // SAFETY: the arrays lie inside `words`, disjoint and line-aligned, and `isa` is
            // available.
            unsafe { passes(kernel, isa, arrays, 2) }
        }
    }

    fn expected(kernel: Kernel, before: &Guarded) -> (Vec<u64>, u64) {
        let [a, b, c] = [0, 1, 2].map(|index| before.array(index).to_vec());
        let double = f64::from_bits;
        let sum = |words: &mut dyn Iterator<Item = &u64>| {
            words.fold(0_u64, |sum, word| sum.wrapping_add(*word)).wrapping_mul(2)
        };
        match kernel {
            Kernel::Load => (a.clone(), sum(&mut a.iter())),
            Kernel::TouchRead => (a.clone(), sum(&mut a.iter().step_by(LINE_BYTES / 8))),
            Kernel::Store | Kernel::NtStore => (vec![WORD; a.len()], 0),
            Kernel::Memset => (vec![0x3f3f_3f3f_3f3f_3f3f; a.len()], 0),
            Kernel::Copy | Kernel::NtCopy => (b, 0),
            Kernel::TouchWrite => {
                let touched = |(i, word): (usize, &u64)| if i % 8 == 0 { WORD } else { *word };
                (a.iter().enumerate().map(touched).collect(), 0)
            }
            Kernel::Triad => {
                let of = |(b, c): (&u64, &u64)| (double(*b) + FACTOR * double(*c)).to_bits();
                (b.iter().zip(&c).map(of).collect(), 0)
            }
        }
    }

    #[test]
    fn every_kernel_gives_the_same_result_in_every_instruction_set() {
        for isa in Isa::available() {
            for kernel in Kernel::ALL {
                for granules in [1, 2, 7] {
                    let mut memory = Guarded::new(granules);
                    let before = memory.words.clone();
                    let (array, sum) = expected(kernel, &memory);
                    assert_eq!(memory.run(kernel, isa), sum, "{kernel} {isa:?}");
                    assert_eq!(memory.array(0), array, "{kernel} {isa:?}");
                    let (from, to) = (memory.start, memory.start + memory.each);
                    let same = memory.words[..from] == before[..from];
                    let same = same && memory.words[to..] == before[to..];
                    assert!(same, "{kernel} {isa:?} wrote outside its array");
                }
            }
        }
    }

    #[test]
    fn the_portable_loops_are_always_available_without_non_temporal_stores() {
        assert_eq!(Isa::available()[0], Isa::Portable);
        assert!(!Isa::Portable.has(Kernel::NtStore) && Isa::Portable.has(Kernel::Triad));
        assert!(Isa::available().contains(&Isa::detect()));
    }
}
