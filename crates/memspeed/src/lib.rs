//! Rates of memory and caches: the `memspeed` program of the two papers, on today's machines.
//!
//! A [`Kernel`] walks over a working set (all its arrays together) repeatedly. [`measure`] runs it
//! on one or more threads together, each with its own arrays, and times it. Rates are given in two
//! conventions, which are never mixed:
//!
//! - **once**: as rates of the kernel are usually quoted. A load counts the bytes read, a store the
//!   bytes written, a copy its bytes once (like `memcpy` and `mbw`), the triad 24 bytes per element
//!   (like STREAM), and a touch the whole cache line of [`LINE_BYTES`] that it moves.
//! - **traffic**: what the program's instructions read and write, which for a copy is twice its
//!   bytes. Lines that a store fetches before changing them (write-allocate) are not counted in
//!   either convention.
//!
//! No clock is read here: callers pass a clock, and may pin threads. All `unsafe` code is in
//! `arena`, `loops`, `x86` and `file`. Linux only; vector loops on x86-64 (AVX2 or AVX-512,
//! depending on the CPU), portable loops elsewhere.

pub mod kernel;

mod vector;

mod x86;

mod loops;

mod arena;

mod threads;

pub mod caches;

pub mod file;

pub use arena::Pages;
pub use kernel::{Kernel, LINE_BYTES, SET_BYTES_MIN};
pub use loops::Isa;
pub use threads::{Case, Plan, Reading, World, measure};
