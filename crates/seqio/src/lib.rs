//! The fastest sequential reader and writer of files on Linux, behind the traits of the standard
//! library.
//!
//! A program that reads or writes a large file the usual way has one request outstanding, and pays
//! for moving every byte through the page cache. [`Reader`] and [`Writer`] keep several large
//! requests outstanding, past the page cache where that pays, through io_uring with memory in huge
//! pages, and lend the program the very memory that the storage filled. Whether it pays, and
//! how large and how many requests are, is decided for each file by a stated policy
//! ([`Options`]); [`Reader::plan`] tells what was decided and why. Holes, tails, files that grow or
//! shrink, file systems without direct I/O and kernels without io_uring are the crate's business.
//!
//! # One line changes
//! ```
//! # fn main() -> std::io::Result<()> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("data");
//! # std::fs::write(&path, "one\ntwo\n")?;
//! use std::io::BufRead;
//!
//! // Before: let file = std::io::BufReader::new(std::fs::File::open(&path)?);
//! let file = seqio::Reader::open(&path)?;
//! assert_eq!(file.lines().count(), 2);
//! # Ok(())
//! # }
//! ```
//! [`Writer`] takes the place of `BufWriter<File>` likewise, with a [`Writer::finish`] that says
//! whether all went well, and [`copy()`] that of `std::fs::copy`.
//!
//! # No byte is moved in memory
//! ```
//! # fn main() -> std::io::Result<()> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("data");
//! let mut writer = seqio::Options::new().size(3 << 20).durable(true).create(&path)?;
//! while writer.position() < 3 << 20 {
//!     let space = writer.space()?; // memory to fill
//!     let filled = space.len().min(4096);
//!     space[..filled].fill(7);
//!     writer.advance(filled);
//! }
//! writer.finish()?;
//!
//! let (mut reader, mut sum) = (seqio::Reader::open(&path)?, 0_u64);
//! while let Some(block) = reader.next_block()? {
//!     sum += block.iter().map(|byte| u64::from(*byte)).sum::<u64>();
//! }
//! assert_eq!(sum, 7 * (3 << 20));
//! # Ok(())
//! # }
//! ```
//!
//! # Before and after
//! Two virtual CPUs (AMD EPYC), Linux 6.18, ext4 on a virtio disk, a file of 2 GiB, fio 3.33,
//! medians of 11 alternating pairs (after a rest 5) of `cargo xtask bench seqio`, caches dropped:
//!
//! | | before | with seqio |
//! |---|---|---|
//! | read a cold file: fio's defaults, 1 MiB x 8 direct, scattered memory | 1900 MB/s | 4530 MB/s |
//! | the same on a fresh machine, whose free pages follow each other | 3860 MB/s | 4600 MB/s |
//! | the same: the best of 24 settings of fio, dd, cat (huge pages) | 4770 MB/s | 4600 MB/s |
//! | the same, CPU: `cat FILE >/dev/null`, after a rest | 0.570 s/GiB | 0.008 s/GiB |
//! | read a file in the page cache: `cat` | 30.6 GB/s | 33.1 GB/s |
//! | write a new durable file: the best of 38 settings of fio | 6970 MB/s | 6490 MB/s |
//! | the same, CPU: `dd bs=64k conv=fsync` | 0.147 s/GiB | 0.011 s/GiB |
//! | copy a cold file until it is durable, `halfpower copy`: `cp && sync` | 1390 MB/s | 2200 MB/s |
//! | the same, CPU | 0.312 s/GiB | 0.008 s/GiB |
//!
//! and the sample programs of Riedel, van Ingen and Gray (1997) in `examples/`, 64 KiB requests, on
//! 1 GiB, median of 5: buffered read 2880 to 4180 MB/s, unbuffered write 630 to 4210, asynchronous
//! write 620 to 3820, asynchronous read 1640 to 4270. The disk of such a machine is shared and
//! its rate changes by a factor of two within minutes: only ratios of neighbouring runs mean
//! anything, and yours come from the same commands.
//!
//! It is nowhere more than 5% slower than what it replaces. Time as a share of that, by
//! `cargo xtask bench seqio --pairs 7` with `--only random`, `small`, `pipe`, `tmpfs` and
//! `checksum`, on two virtual CPUs (Intel Xeon), a file of 2 GiB:
//!
//! | | share of the time (95%) |
//! |---|---|
//! | random cold reads of 4 KiB, `BufReader` | 0.97 (0.91 to 1.01) |
//! | hot files of 1 to 64 KiB, `BufReader` | 1.044 (1.040 to 1.076) |
//! | `halfpower cat` into a pipe, `cat`: hot, cold | 0.12, 0.36 |
//! | the same, `pv -q` | 0.21, 0.32 |
//! | `halfpower copy` in memory (tmpfs), `cp` | 1.01 (0.70 to 1.11) |
//! | `halfpower checksum`, `b3sum`: hot, cold | 1.03 (1.01 to 1.04), 0.66 |
//!
//! # What the traits cost
//! `BufRead` lends the block as it is: no more CPU than [`Reader::next_block`]. `Read` and `Write`
//! copy each byte once, at the speed of memory (here 0.02 to 0.05 s/GiB): beside a program that
//! counts lines, `Read` costs 1.14 of the CPU with pieces of 32 KiB, which stay in the first-level
//! cache, and 1.19 with 128 KiB; `tokio`'s `AsyncRead` 1.15 and 1.16, its `AsyncBufRead` 1.02.
//! Beside a program that looks at nothing that is 4 to 7 times the CPU of the blocks: use those.
//!
//! # When it does not help
//! - Small files (less than 1 MiB), files in the page cache, files in memory and pipes: they are
//!   read and written as `std` does it, at the same rate and cost.
//! - A program that is slower than its storage gains the CPU time and the waiting, not more.
//! - A file that is read again soon is better left in the page cache, where a direct read does not
//!   put it: [`Cache::Buffered`].
//! - Random access: after a seek a reader reads as `std` does, until it is read on for some MiB.
//!
//! # Features
//! - `tokio`: `tokio::AsyncReader` and `tokio::AsyncWriter`, for `AsyncRead`, `AsyncBufRead` and
//!   `AsyncWrite`.
//!
//! Several files or devices make one stream by [`Options::open_striped`]. `halfpower tune` measures
//! a storage once; this crate reads what it found ([`tune`]). `examples/` counts lines, hashes,
//! copies, and writes a database's log.
//!
//! # Inside
//! What they do is in the modules `reader` and `writer`; how they go about it is decided in
//! `options` by what `opened`, `storage` and `tune` know. `ahead` finds the depth, `requests`
//! brings requests to their end, `memory` keeps the buffers of all readers.
#![forbid(unsafe_code)]

mod error;
mod storage;
pub mod tune;
mod holes;
mod ahead;
mod memory;
mod requests;
mod opened;
mod options;
mod reader;
mod writer;
pub mod copy;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use copy::copy;
pub use ioengine::EngineKind;
pub use memory::set_memory_limit;
pub use options::{Cache, Options, Plan};
pub use reader::{Block, Reader};
pub use storage::{Kind, Storage};
pub use writer::Writer;

/// The examples of the README, tried as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
