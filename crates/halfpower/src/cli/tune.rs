//! What can be typed after `halfpower tune`: a target, and what may be done to it.

use std::path::PathBuf;

use clap::Args;

/// Flags of `tune`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower tune                       the storage of this directory, for reads and writes
  halfpower tune /data --plan          say what would be read and written, and do nothing
  halfpower tune /dev/nvme1n1          a device, for reads only
  halfpower tune . --no-store --json   every setting that was measured; nothing is kept

Finds the request size and depth that read and write in sequence within 3% of the best rate at the
least cost: memory (request size x depth) first, then CPU. It measures for less than 5 s, direct, in
rounds that visit all settings still worth it in random order, and compares medians. What was found
is kept for the device in $XDG_STATE_HOME/halfpower/tune.toml (by default ~/.local/state/..), where
cat, checksum, copy and every program that uses seqio look for it.

A directory gets a test file, which is removed afterwards. A file or device is only read, unless
--overwrite or --destroy-data-on names it.")]
pub struct TuneArgs {
    /// Directory, file or block device
    #[arg(value_name = "TARGET", default_value = ".")]
    pub target: PathBuf,
    /// Size of the test file, 64m or more [default: 512m, or a tenth of the free space]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub size: Option<u64>,
    /// Seed of the order of settings and of what is written
    #[arg(long, alias = "randseed", default_value_t = 42)]
    pub seed: u64,
    /// Allow writing to this existing file (exact path; repeatable)
    #[arg(long, value_name = "PATH", help_heading = "Safety")]
    pub overwrite: Vec<PathBuf>,
    /// Allow destroying the data on this device (by-id name, serial or kernel path)
    #[arg(long, value_name = "ID", help_heading = "Safety")]
    pub destroy_data_on: Vec<String>,
    /// Measure and keep nothing
    #[arg(long, help_heading = "Output")]
    pub no_store: bool,
    /// Print one JSON document instead of text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Say nothing but the result, warnings and errors
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
    /// Print what would be done (bytes, writes, time, what is touched) and do nothing
    #[arg(long, help_heading = "Output")]
    pub plan: bool,
}
