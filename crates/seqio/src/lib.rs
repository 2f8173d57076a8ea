//! Fast sequential reading and writing of files on Linux, with the traits of the standard library.
//!
//! With the standard library, a program that reads or writes a large file has one request in
//! flight, and copies every byte through the page cache. [`Reader`] and [`Writer`] keep several
//! large requests in flight through io_uring, and use direct I/O where it is faster. They lend
//! their buffers (in huge pages) to the program, so that the data need not be copied. For each
//! file, they choose direct or buffered I/O, the request size and the queue depth. The rules are
//! documented at [`Options`], and [`Reader::plan`] reports the choice and the reason. The crate
//! handles holes, files of any size, files that grow or shrink, file systems without direct I/O,
//! and kernels without io_uring.
//!
//! # Replace `BufReader` by changing one line
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
//! Likewise, [`Writer`] replaces `BufWriter<File>`, and [`copy()`] replaces `std::fs::copy`. Call
//! [`Writer::finish`] at the end, because dropping a writer ignores errors.
//!
//! # Read and write without copying in memory
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
//! The table was measured with `cargo xtask bench seqio` on two virtual CPUs (AMD EPYC) with Linux
//! 6.18, ext4 on a virtio disk, a file of 2 GiB, dropped caches, and fio 3.33. The two programs of
//! a row ran alternately, 11 times each, and the table shows the medians. For "after a rest", they
//! ran 5 times each, with a pause before each run, so that the hypervisor could take back free
//! memory:
//!
//! | test: program used before | before | with seqio |
//! |---|---|---|
//! | read a cold file: fio's defaults, 1 MiB x 8 direct, scattered memory | 1900 MB/s | 4530 MB/s |
//! | the same on a fresh machine, whose free memory is contiguous | 3860 MB/s | 4600 MB/s |
//! | the same: the best of 24 settings of fio, dd, cat (huge pages) | 4770 MB/s | 4600 MB/s |
//! | the same, CPU: `cat FILE >/dev/null`, after a rest | 0.570 s/GiB | 0.008 s/GiB |
//! | read a file in the page cache: `cat` | 30.6 GB/s | 33.1 GB/s |
//! | write a new durable file: the best of 38 settings of fio | 6970 MB/s | 6490 MB/s |
//! | the same, CPU: `dd bs=64k conv=fsync` | 0.147 s/GiB | 0.011 s/GiB |
//! | copy a cold file durably: `cp && sync`; after: `halfpower copy` | 1390 MB/s | 2200 MB/s |
//! | the same, CPU | 0.312 s/GiB | 0.008 s/GiB |
//!
//! The directory `examples/` contains the sample programs of Riedel, van Ingen and Gray (1997).
//! With 64 KiB requests on a file of 1 GiB (medians of 5 runs), seqio increases the rate of the
//! buffered read from 2880 to 4180 MB/s, of the unbuffered write from 630 to 4210 MB/s, of the
//! asynchronous write from 620 to 3820 MB/s, and of the asynchronous read from 1640 to 4270 MB/s.
//!
//! The disk of such a virtual machine is shared with other machines. Its rate changes by a factor
//! of two within minutes, so only ratios of consecutive runs are meaningful. Run the same commands
//! to measure your machine.
//!
//! In the cases of the next table, seqio was never more than 5% slower than the program that it
//! replaces. The table shows the elapsed time with seqio divided by the elapsed time of the
//! replaced program, and 95% confidence intervals in parentheses. It was measured with the parts
//! `random`, `small`, `pipe`, `tmpfs` and `checksum` of `cargo xtask bench seqio --pairs 7`, on two
//! virtual CPUs (Intel Xeon), with a file of 2 GiB:
//!
//! | test, replaced program | share of the time (95%) |
//! |---|---|
//! | random cold reads of 4 KiB, `BufReader` | 0.97 (0.91 to 1.01) |
//! | hot files of 1 to 64 KiB, `BufReader` | 1.044 (1.040 to 1.076) |
//! | `halfpower cat` into a pipe, `cat`: hot, cold | 0.12, 0.36 |
//! | the same, `pv -q` | 0.21, 0.32 |
//! | `halfpower copy` in memory (tmpfs), `cp` | 1.01 (0.70 to 1.11) |
//! | `halfpower checksum`, `b3sum`: hot, cold | 1.03 (1.01 to 1.04), 0.66 |
//!
//! # Cost of the traits
//! `BufRead` lends the block, and costs no more CPU time than [`Reader::next_block`]. `Read` and
//! `Write` copy each byte once, at memory speed (here 0.02 to 0.05 s/GiB). This table shows the CPU
//! time of a program that counts lines, divided by its CPU time with `next_block`. Pieces of 32 KiB
//! stay in the first-level cache:
//!
//! | trait | pieces of 32 KiB | pieces of 128 KiB |
//! |---|---|---|
//! | `Read` | 1.14 | 1.19 |
//! | `AsyncRead` of tokio | 1.15 | 1.16 |
//!
//! With tokio's `AsyncBufRead`, the ratio is 1.02. A program that ignores the data takes 4 to 7
//! times as much CPU time with `Read` as with `next_block`, so it should use `next_block`.
//!
//! # When it does not help
//! - Small files (less than 1 MiB), files in the page cache, files in memory and pipes. They are
//!   read and written in the same manner as by `std`, at the same rate and cost.
//! - Programs that are slower than their storage. They save only CPU time and waiting.
//! - Files that are read again soon. They should stay in the page cache, which a direct read
//!   bypasses, so use [`Cache::Buffered`].
//! - Random access. After a seek, a reader works like `std` until 512 KiB were read sequentially.
//!
//! # Features
//! - `tokio`: `tokio::AsyncReader` and `tokio::AsyncWriter`, for `AsyncRead`, `AsyncBufRead` and
//!   `AsyncWrite`.
//!
//! [`Options::open_striped`] reads several files or devices as one stream. `halfpower tune`
//! measures the storage once, and this crate then uses the result ([`tune`]). The programs in
//! `examples/` count lines, compute checksums, copy files, and write a database log.
//!
//! # Modules
//! `reader` and `writer` implement the streams. `options` chooses a plan from what `opened`,
//! `storage` and `tune` know about the file. `ahead` adapts the queue depth, `requests` issues and
//! completes requests, and `memory` limits the memory of all streams.
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

/// The examples of the README, run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
