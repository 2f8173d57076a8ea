//! What can be typed behind `study`: which studies, where, how long, and what only the user knows
//! of the targets. What it means is decided by the verb.

use std::path::PathBuf;

use clap::Args;

use crate::cli::CommonArgs;

/// Flags of `study`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower study --list                 what each study asks and needs
  halfpower study depth .                one of them, on a test file here
  halfpower study all --quick /data      all of them, in less than 8 minutes
  halfpower study stripe /dev/sdb /dev/sdc /dev/sdd
  halfpower study depth sim:nt4-ultrawide    the same on a machine of the papers
  halfpower study depth --show > mine.toml   its plan, to be changed ...
  halfpower study mine.toml .                ... and run: same points, figures and findings

A directory gets a test file, which is removed afterwards. Existing files and devices are only read
unless --overwrite or --destroy-data-on names them: what would write is left out with the reason.
Writes halfpower.db and halfpower-study.html into the current directory.")]
pub struct StudyArgs {
    /// Which: a name, a plan.toml, several separated by commas, or all
    #[arg(value_name = "NAME", required_unless_present = "list")]
    pub name: Option<String>,
    /// Files, block devices, directories or simulated systems (default: the current directory)
    #[arg(value_name = "TARGET")]
    pub targets: Vec<PathBuf>,
    /// List the studies: what each asks, what it needs
    #[arg(long, help_heading = "Output")]
    pub list: bool,
    /// Print the plan as TOML, to be changed and run with sweep
    #[arg(long, help_heading = "Output")]
    pub show: bool,
    /// Fewer points and shorter trials: up to about 20 s each
    #[arg(long, help_heading = "Time")]
    pub quick: bool,
    /// Length of a trial, whatever the plan says
    #[arg(long, value_name = "TIME", help_heading = "Time")]
    pub runtime: Option<String>,
    /// How often to measure, whatever the plan says
    #[arg(long, value_name = "N", help_heading = "Time")]
    pub trials: Option<u32>,
    /// Size of the test file (default: 1 GiB or a tenth of the free space; half as much with
    /// --quick)
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "Workload")]
    pub size: Option<u64>,
    /// Switch the drive's own write cache off and on (root); put back afterwards
    #[arg(long, help_heading = "Host")]
    pub toggle_write_cache: bool,
    /// What each target costs, in any money: 209 or 209,534
    #[arg(long, value_name = "PRICE,..", value_delimiter = ',', help_heading = "Stated")]
    pub price: Vec<f64>,
    /// Electrical power of each target, in watts
    #[arg(long, value_name = "WATTS,..", value_delimiter = ',', help_heading = "Stated")]
    pub power: Vec<f64>,
    /// Capacity of each target, where it is not what the system tells
    #[arg(long, value_name = "SIZE,..", value_delimiter = ',', value_parser = units::parse_size,
          help_heading = "Stated")]
    pub capacity: Vec<u64>,
    /// Where the page goes
    #[arg(
        long,
        value_name = "FILE",
        default_value = "halfpower-study.html",
        help_heading = "Output"
    )]
    pub html: PathBuf,
    /// See CommonArgs.
    #[command(flatten)]
    pub common: CommonArgs,
}
