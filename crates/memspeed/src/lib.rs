//! Measures the throughput of memory and caches, as the `memspeed` program of the two papers did.
//!
//! A [`Kernel`] passes repeatedly over a working set, which is the total of its arrays. [`measure`]
//! runs a kernel on one or more threads at the same time, each with its own arrays, and measures
//! the time. Rates are given in two conventions, which are never mixed:
//!
//! - **once**: the usual convention for the kernel. A load counts the bytes read, a store counts
//!   the bytes written, a copy counts its bytes once (like `memcpy` and `mbw`), the triad counts 24
//!   bytes per element (like STREAM), and a touch counts the whole cache line of [`LINE_BYTES`].
//! - **traffic**: all bytes that the program's instructions read and write. For a copy, this is
//!   twice the number of bytes copied.
//!
//! Neither convention counts the cache lines that a store reads from memory before it changes them
//! (write-allocate).
//!
//! This crate reads no clock. Callers pass a function that reads a clock, and a function that may
//! pin threads. All `unsafe` code is in `arena`, `loops`, `vector`, `x86`, `threads` and `file`.
//! The crate runs on Linux only. Vector loops exist for x86-64 (AVX2 or AVX-512, depending on the
//! CPU). Other CPUs use portable loops.

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
