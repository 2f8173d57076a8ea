//! What can be typed after `halfpower copy`: what is copied where, how, and what is kept.

use std::path::PathBuf;

use clap::Args;

use super::parse_bool;
use crate::units;

/// Flags of `copy`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower copy big.img /backup/             into a folder, durable when it says so
  halfpower copy --archive /data /mnt/new     a tree with modes, owners, times, attributes, links
  halfpower copy --verify big.img /mnt/usb/big.img      read back from the device and compared
  halfpower copy --resume big.img /mnt/nfs/   keeps what an interruption leaves, and goes on from it
  halfpower copy /dev/sdb disk.img            a device; to one: --destroy-data-on names it
  tar c . | halfpower copy - /backup/all.tar  standard input; DST - is standard output

A file is written under a temporary name beside DST (.NAME.halfpower-partial) and renamed when it is
whole and durable: DST is the whole copy or not there. A tree is made in a folder of that name. File
systems that can share blocks do (btrfs, xfs); else large files go past the page cache, several
requests outstanding, as tuned (halfpower tune) or as their kind of storage wants it. Holes stay
holes. What exists is not overwritten unless it is named.")]
pub struct CopyArgs {
    /// Files, folders or block devices, - for standard input; and where they go
    #[arg(value_names = ["SRC", "DST"], num_args = 2.., required = true)]
    pub paths: Vec<PathBuf>,
    /// Keep modes, owners, times, extended attributes, and links of all kinds
    #[arg(long, short, help_heading = "What is kept")]
    pub archive: bool,
    /// Folders are always copied with all that is in them
    #[arg(long, short, alias = "R", hide = true)]
    pub recursive: bool,
    /// Leave holes holes
    #[arg(long, value_name = "0|1", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = parse_bool, default_value = "true",
          help_heading = "What is kept")]
    pub sparse: bool,
    /// Checksum what is read, read the copy back from its device, and compare: exit 4 if it differs
    #[arg(long, help_heading = "Safety")]
    pub verify: bool,
    /// Go on from what an interrupted copy left, and leave something to go on from
    #[arg(long, help_heading = "Safety")]
    pub resume: bool,
    /// Do not wait until the copy is durable; small files stay in the page cache meanwhile
    #[arg(long, help_heading = "Safety")]
    pub no_sync: bool,
    /// Allow replacing this existing file, or files in this folder (exact path; repeatable)
    #[arg(long, value_name = "PATH", help_heading = "Safety")]
    pub overwrite: Vec<PathBuf>,
    /// Allow destroying the data on this device (by-id name, serial or kernel path)
    #[arg(long, value_name = "ID", help_heading = "Safety")]
    pub destroy_data_on: Vec<String>,
    /// Copy no faster than this, such as 50MB/s
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate, help_heading = "How")]
    pub limit_rate: Option<f64>,
    /// Through the page cache, and leave the copy there
    #[arg(long, help_heading = "How")]
    pub cached: bool,
    /// Request size [default: as tuned, else by the kind of storage]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "How")]
    pub bs: Option<u64>,
    /// Requests outstanding on each side [default: as tuned, else by the kind of storage]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256),
          help_heading = "How")]
    pub iodepth: Option<u32>,
    /// How requests are issued: io_uring, threads, libaio, sync [default: the best there is]
    #[arg(long, value_name = "NAME", help_heading = "How")]
    pub ioengine: Option<String>,
    /// Files of a tree that are copied at once: they wait for a device more than for a CPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64),
          default_value_t = 8, help_heading = "How")]
    pub numjobs: u32,
    /// Print one JSON document instead of text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Say nothing but warnings and errors
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
    /// Print what would be copied where, and do nothing
    #[arg(long, help_heading = "Output")]
    pub plan: bool,
}
