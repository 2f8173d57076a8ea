//! Flags of `whatif`: a simulated system, its load, and the changes whose effect is predicted.

use std::path::PathBuf;

use analysis::units;
use clap::Args;

use crate::cli::OutputArgs;
use crate::cli::replay::{HabitArgs, TraceLoadArgs};

/// Flags of `whatif`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower whatif nt4-ultrawide --rw read --bs 64k --set disks=2,volume=stripe
  halfpower whatif ./disk.toml --rw randread --bs 4k --iodepth 1 --iodepth-to 32
  halfpower whatif nvme-gen4 --set drive.units=64 --price 300 --price-to 450
  halfpower whatif sata-ssd --trace trace.parquet --flush-every 16
  halfpower whatif ./disk.toml --trace trace.parquet --buffered --cache 4g

Prints the throughput before and after the change, from closed-form bounds and from simulation; the
bottleneck; the sensitivity to each parameter of the system; and which of the important parameters
are only assumed. The time of buffered writes includes the flush, as with run. Without a volume,
each disk has its own file, and each file gets the whole load. With --trace, the requests of a
watched program are simulated, before and after the change. The trace does not show whether the
program is able to issue its requests in the changed way.")]
pub struct WhatifArgs {
    /// Built-in system, or a system file
    #[arg(value_name = "SYSTEM")]
    pub system: String,
    /// Replace values of the system file, such as disks=4, in the original and in the changed
    /// system
    #[arg(long, value_name = "KEY=VALUE", num_args = 1.., value_delimiter = ',',
          help_heading = "Before")]
    pub given: Vec<String>,
    /// A trace whose requests are the load, in place of --rw, --bs, --iodepth and --numjobs
    #[arg(long, value_name = "FILE", help_heading = "Before",
          conflicts_with_all = ["rw", "bs", "iodepth", "numjobs", "rwmixread", "size", "bs_to"])]
    pub trace: Option<PathBuf>,
    /// Which requests of the trace are issued, and when.
    #[command(flatten)]
    pub trace_load: TraceLoadArgs,
    /// Kind of requests: read, write, rw, randread, randwrite or randrw
    #[arg(
        long,
        alias = "readwrite",
        value_name = "KIND",
        default_value = "read",
        help_heading = "Before"
    )]
    pub rw: String,
    /// Request size
    #[arg(long, alias = "blocksize", value_name = "SIZE", value_parser = units::parse_size,
          default_value = "64k", help_heading = "Before")]
    pub bs: u64,
    /// Requests outstanding in each thread
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Before",
          value_parser = clap::value_parser!(u32).range(1..=32768))]
    pub iodepth: u32,
    /// Number of threads
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Before",
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub numjobs: u32,
    /// Share of reads with --rw rw or randrw (percent)
    #[arg(long, value_name = "PERCENT", default_value_t = 50, help_heading = "Before",
          value_parser = clap::value_parser!(u8).range(0..=100))]
    pub rwmixread: u8,
    /// Size of the part of the file that is accessed (default: the whole file)
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "Before")]
    pub size: Option<u64>,
    /// Price of the system
    #[arg(long, value_name = "PRICE", value_parser = parse_price, help_heading = "Before")]
    pub price: Option<f64>,
    /// Change values of the system, such as disks=4, write_cache=on or drive.rotation=5400
    #[arg(long, value_name = "KEY=VALUE", num_args = 1.., value_delimiter = ',',
          help_heading = "Change")]
    pub set: Vec<String>,
    /// Bypass the page cache after the change (same as --set caching=direct)
    #[arg(long, help_heading = "Change", conflicts_with = "buffered")]
    pub direct: bool,
    /// Use the page cache after the change (same as --set caching=buffered)
    #[arg(long, help_heading = "Change")]
    pub buffered: bool,
    /// New size of the page cache (same as --set host.cache.size=SIZE)
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "Change")]
    pub cache: Option<u64>,
    /// New queue depth
    #[arg(long, value_name = "N", help_heading = "Change",
          value_parser = clap::value_parser!(u32).range(1..=32768))]
    pub iodepth_to: Option<u32>,
    /// Changes to the recorded requests of the trace.
    #[command(flatten)]
    pub habits: HabitArgs,
    /// New request size
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "Change")]
    pub bs_to: Option<u64>,
    /// Price of the changed system (default: unchanged)
    #[arg(long, value_name = "PRICE", value_parser = parse_price, requires = "price",
          help_heading = "Change")]
    pub price_to: Option<f64>,
    /// Random seed
    #[arg(long, alias = "randseed", default_value_t = 42)]
    pub seed: u64,
    /// How results are printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Parses a price: a number above 0.
pub fn parse_price(text: &str) -> Result<f64, String> {
    let price = text.parse().ok().filter(|price: &f64| *price > 0.0 && price.is_finite());
    price.ok_or_else(|| "use a number above 0, such as 120".to_owned())
}
