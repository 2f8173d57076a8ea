//! Flags of `tune`: the target, permission to write to it, and whether the result is saved for
//! other programs.

use analysis::units;
use std::path::PathBuf;

use clap::Args;

use crate::cli::OutputArgs;

/// Flags of `tune`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower tune                       the storage of this directory, for reads and writes
  halfpower tune /data --plan          only print what would be read and written
  halfpower tune /dev/nvme1n1          a device, for reads only
  halfpower tune . --no-store --json   print all measured settings; save nothing

Finds the cheapest setting (request size and depth) for sequential direct I/O. Of all settings whose
rate is within 3% of the best rate, the cheapest is the one that needs the least memory (request
size x depth). If several need the same memory, it is the one that needs the least CPU time. All
promising settings are measured in several rounds, in random order, for less than 5 s in total, and
medians are compared. The result is saved for the device in $XDG_STATE_HOME/halfpower/tune.toml
(default ~/.local/state/..), and used by cat, checksum, copy and every program that uses seqio.

In a directory, a test file is created and removed afterwards. A file or device is only read, unless
--overwrite or --destroy-data-on names it.")]
pub struct TuneArgs {
    /// Directory, file or block device
    #[arg(value_name = "TARGET", default_value = ".")]
    pub target: PathBuf,
    /// Size of the test file, 64m or more [default: 512m, but at most a tenth of the
    /// free space]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub size: Option<u64>,
    /// Random seed for the order of the settings and for the written data
    #[arg(long, alias = "randseed", default_value_t = 42)]
    pub seed: u64,
    /// Allow writing to this existing file (exact path; repeatable)
    #[arg(long, value_name = "PATH", help_heading = "Safety")]
    pub overwrite: Vec<PathBuf>,
    /// Allow destroying the data on this device (by-id name, serial or device path)
    #[arg(long, value_name = "ID", help_heading = "Safety")]
    pub destroy_data_on: Vec<String>,
    /// Do not save the result
    #[arg(long, help_heading = "Output")]
    pub no_store: bool,
    /// How results are printed.
    #[command(flatten)]
    pub output: OutputArgs,
}
