//! How fast memory and caches move bytes: the `memspeed` of the two papers, on today's machines.
//!
//! A [`Kernel`] walks over a working set (all its arrays together) again and again; [`measure`]
//! does so on one or more threads at once, each with arrays of its own, and times it. Rates come
//! in two conventions, never mixed:
//!
//! - **once**: as the kernel is usually quoted. A load counts the bytes read, a store those
//!   written, a copy its bytes once (as `memcpy` and `mbw` do), the triad 24 bytes for each
//!   element (as STREAM does), a touch the whole line of [`LINE_BYTES`] that it moves.
//! - **traffic**: what the program's instructions read and write, so twice the bytes of a copy.
//!   Lines that a store fetches before it changes them are counted in neither.
//!
//! No clock is read here: callers pass their time in, and may pin threads. All `unsafe` code is in
//! `arena`, `loops`, `x86` and `file`. Linux only; vectors on x86-64 (AVX2 or AVX-512, whichever
//! the CPU has), portable loops elsewhere.

pub mod kernel;

mod vector;

mod x86;

mod loops;

mod arena;

mod crew;

pub mod caches;

pub mod file;

pub use arena::Pages;
pub use crew::{Case, Plan, Reading, World, measure};
pub use kernel::{Kernel, LEAST_SET_BYTES, LINE_BYTES};
pub use loops::Isa;
