//! AVX2 and AVX-512 vectors.
//!
//! The methods must be inlined into functions of `loops` that have the attribute `target_feature`.
//! Otherwise, each intrinsic would be a function call.
#![cfg(target_arch = "x86_64")]

use std::arch::x86_64::*;

use crate::vector::Vector;

/// An AVX2 vector (32 bytes).
#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256i);

/// An AVX-512 vector (64 bytes).
#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512i);

// SAFETY: the methods use only AVX2, FMA and SSE instructions.
unsafe impl Vector for Avx2 {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn splat(word: u64) -> Avx2 {
        // SAFETY: the caller ensures that the CPU has AVX2.
        Avx2(unsafe { _mm256_set1_epi64x(word as i64) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Avx2 {
        // SAFETY: the caller ensures that the pointer is valid for 32 bytes.
        Avx2(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller ensures that the pointer is valid for 32 bytes.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) };
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller ensures that the pointer is valid for 32 bytes and aligned to 32.
        unsafe { _mm256_stream_si256(to.cast(), self.0) };
    }

    #[inline(always)]
    unsafe fn add(self, other: Avx2) -> Avx2 {
        // SAFETY: the caller ensures that the CPU has AVX2.
        Avx2(unsafe { _mm256_add_epi64(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn triad(self, s: Avx2, c: Avx2) -> Avx2 {
        // SAFETY: the caller ensures that the CPU has AVX2 and FMA.
        Avx2(unsafe {
            let [b, s, c] = [self.0, s.0, c.0].map(|words| _mm256_castsi256_pd(words));
            _mm256_castpd_si256(_mm256_fmadd_pd(s, c, b))
        })
    }

    #[inline(always)]
    unsafe fn fence() {
        // SAFETY: every x86-64 CPU has SSE.
        unsafe { _mm_sfence() };
    }

    #[inline(always)]
    unsafe fn sum(self) -> u64 {
        let mut words = [0_u64; 4];
        // SAFETY: `words` is 32 bytes long.
        unsafe { self.store(words.as_mut_ptr().cast()) };
        words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
    }
}

// SAFETY: the methods use only AVX-512F and SSE instructions.
unsafe impl Vector for Avx512 {
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn splat(word: u64) -> Avx512 {
        // SAFETY: the caller ensures that the CPU has AVX-512F.
        Avx512(unsafe { _mm512_set1_epi64(word as i64) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Avx512 {
        // SAFETY: the caller ensures that the pointer is valid for 64 bytes.
        Avx512(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller ensures that the pointer is valid for 64 bytes.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) };
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller ensures that the pointer is valid for 64 bytes and aligned to 64.
        unsafe { _mm512_stream_si512(to.cast(), self.0) };
    }

    #[inline(always)]
    unsafe fn add(self, other: Avx512) -> Avx512 {
        // SAFETY: the caller ensures that the CPU has AVX-512F.
        Avx512(unsafe { _mm512_add_epi64(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn triad(self, s: Avx512, c: Avx512) -> Avx512 {
        // SAFETY: the caller ensures that the CPU has AVX-512F.
        Avx512(unsafe {
            let [b, s, c] = [self.0, s.0, c.0].map(|words| _mm512_castsi512_pd(words));
            _mm512_castpd_si512(_mm512_fmadd_pd(s, c, b))
        })
    }

    #[inline(always)]
    unsafe fn fence() {
        // SAFETY: every x86-64 CPU has SSE.
        unsafe { _mm_sfence() };
    }

    #[inline(always)]
    unsafe fn sum(self) -> u64 {
        let mut words = [0_u64; 8];
        // SAFETY: `words` is 64 bytes long.
        unsafe { self.store(words.as_mut_ptr().cast()) };
        words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
    }
}
