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
//! The table compares other programs with seqio. The table was measured with `cargo xtask bench
//! seqio` on two virtual CPUs (AMD EPYC), with Linux 6.18, ext4 on a virtio disk, a file of 2 GiB,
//! and fio 3.33. The caches were dropped before each run, except in the row "read a file in the
//! page cache". The two programs of a row ran alternately, 11 times each, and the table shows the
//! medians. "fio (1 MiB)" is fio with direct reads of 1 MiB, io_uring, a queue depth of 8, and
//! defaults for all other settings. With these settings, the rate of fio depends on the free
//! memory, which is contiguous on a fresh machine, and fragmented on a machine that has been up for
//! days. In the row "CPU time of reading a cold file", the two programs ran 5 times each, with a
//! pause before each run, so that the hypervisor could take back free memory. The copy with seqio
//! is `halfpower copy`:
//!
//! | test | other program | other | seqio |
//! |---|---|---|---|
//! | read a cold file, fragmented memory | fio (1 MiB) | 1900 MB/s | 4530 MB/s |
//! | read a cold file, contiguous memory | fio (1 MiB) | 3860 MB/s | 4600 MB/s |
//! | read a cold file, huge pages | best of 24 settings of fio, dd, cat | 4770 MB/s | 4600 MB/s |
//! | CPU time of reading a cold file | `cat FILE >/dev/null` | 0.570 s/GiB | 0.008 s/GiB |
//! | read a file in the page cache | `cat` | 30.6 GB/s | 33.1 GB/s |
//! | write a new durable file | best of 38 settings of fio | 6970 MB/s | 6490 MB/s |
//! | CPU time of writing a new durable file | `dd bs=64k conv=fsync` | 0.147 s/GiB | 0.011 s/GiB |
//! | copy a cold file durably | `cp && sync` | 1390 MB/s | 2200 MB/s |
//! | CPU time of copying a cold file durably | `cp && sync` | 0.312 s/GiB | 0.008 s/GiB |
//!
//! The directory `examples/` contains the sample programs of Riedel, van Ingen and Gray (1997). The
//! sample programs ran with requests of 64 KiB on a file of 1 GiB. In the median of 5 runs, seqio
//! increases the rate of the buffered read from 2880 to 4180 MB/s, of the unbuffered write from 630
//! to 4210 MB/s, of the asynchronous write from 620 to 3820 MB/s, and of the asynchronous read from
//! 1640 to 4270 MB/s.
//!
//! The disk of such a virtual machine is shared with other machines. Its rate changes by a factor
//! of two within minutes, so only ratios of consecutive runs are meaningful. Run the same commands
//! to measure your machine.
//!
//! In the cases of the next table, the median time with seqio was at most 1.05 times that of the
//! program that it replaces. The table shows the elapsed time with seqio divided by the elapsed
//! time of the replaced program, and 95% confidence intervals in parentheses. Hot files are in the
//! page cache, and cold files are not. The table was measured with the parts `random`, `small`,
//! `pipe`, `tmpfs` and `checksum` of `cargo xtask bench seqio --pairs 7`, on two virtual CPUs
//! (Intel Xeon), with a file of 2 GiB:
//!
//! | test | replaced program | time with seqio / time of the program (95%) |
//! |---|---|---|
//! | random reads of 4 KiB from a cold file | `BufReader` | 0.97 (0.91 to 1.01) |
//! | reads of hot files of 1 to 64 KiB | `BufReader` | 1.044 (1.040 to 1.076) |
//! | `halfpower cat` of a hot file into a pipe | `cat` | 0.12 |
//! | `halfpower cat` of a cold file into a pipe | `cat` | 0.36 |
//! | `halfpower cat` of a hot file into a pipe | `pv -q` | 0.21 |
//! | `halfpower cat` of a cold file into a pipe | `pv -q` | 0.32 |
//! | `halfpower copy` in memory (tmpfs) | `cp` | 1.01 (0.70 to 1.11) |
//! | `halfpower checksum` of a hot file | `b3sum` | 1.03 (1.01 to 1.04) |
//! | `halfpower checksum` of a cold file | `b3sum` | 0.66 |
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
