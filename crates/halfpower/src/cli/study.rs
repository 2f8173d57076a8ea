//! Flags of `study`: names of studies, targets, duration, and facts about the targets that only
//! the user can supply (price, power, capacity).

use analysis::units;
use std::path::PathBuf;

use clap::Args;

use crate::cli::CommonArgs;

/// Flags of `study`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower study --list                 question and requirements of each study
  halfpower study depth .                one study, on a test file here
  halfpower study all --quick /data      all studies, in less than 8 minutes
  halfpower study stripe /dev/sdb /dev/sdc /dev/sdd
  halfpower study depth sim:nt4-ultrawide    the same study on a machine of the papers
  halfpower study depth --show > mine.toml   print its plan, to edit ...
  halfpower study mine.toml .                ... and run
  halfpower study network nbd://SERVER/disk --peer SERVER:7750 --peer-key halfpower-peer.key

In a directory, a test file is created and removed afterwards. Existing files and devices are only
read unless --overwrite or --destroy-data-on names them. The report names the write tests that were
left out for this reason. The results are written to halfpower.db and halfpower-study.html in the
current directory.")]
pub struct StudyArgs {
    /// Names of studies or paths of plan files, separated by commas; or all
    #[arg(value_name = "NAME", required_unless_present = "list")]
    pub name: Option<String>,
    /// Files, block devices, directories, files and disks of servers (nbd://HOST/EXPORT), or
    /// simulated systems (default: the current directory)
    #[arg(value_name = "TARGET")]
    pub targets: Vec<PathBuf>,
    /// List all studies, each with its question and its requirements
    #[arg(long, help_heading = "Output")]
    pub list: bool,
    /// Print the plan as TOML, which you can edit and then run with halfpower study
    #[arg(long, help_heading = "Output")]
    pub show: bool,
    /// Fewer points and shorter trials: up to about 20 s for each study
    #[arg(long, help_heading = "Time")]
    pub quick: bool,
    /// Length of a trial; overrides the plan
    #[arg(long, value_name = "TIME", help_heading = "Time")]
    pub runtime: Option<String>,
    /// Number of trials; overrides the plan
    #[arg(long, value_name = "N", help_heading = "Time")]
    pub trials: Option<u32>,
    /// Size of the test file (default: 1 GiB, but at most a tenth of the free space; half as
    /// much with --quick)
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "Workload")]
    pub size: Option<u64>,
    /// Switch the drive's write cache off and on, and restore it afterwards (needs root)
    #[arg(long, help_heading = "Host")]
    pub toggle_write_cache: bool,
    /// Address of a halfpower peer on the server (see halfpower peer), which reports the CPU,
    /// network and disk use of the server during the network study
    #[arg(long, value_name = "HOST:PORT", requires = "peer_key", help_heading = "Server")]
    pub peer: Option<String>,
    /// The key file of the halfpower peer, copied from the server
    #[arg(long, value_name = "FILE", requires = "peer", help_heading = "Server")]
    pub peer_key: Option<PathBuf>,
    /// Path of the file that the targets access, relative to the folder of the halfpower peer; the
    /// peer also reads this file directly, for comparison
    #[arg(long, value_name = "PATH", requires = "peer", help_heading = "Server")]
    pub peer_path: Option<String>,
    /// Prices of the targets in any currency, separated by commas: for two targets, 209,534 means
    /// 209 and 534
    #[arg(long, value_name = "PRICE,..", value_delimiter = ',', help_heading = "Target facts")]
    pub price: Vec<f64>,
    /// Electrical power of each target in watts, separated by commas
    #[arg(long, value_name = "WATTS,..", value_delimiter = ',', help_heading = "Target facts")]
    pub power: Vec<f64>,
    /// Capacity of each target, if it differs from what the system reports
    #[arg(long, value_name = "SIZE,..", value_delimiter = ',', value_parser = units::parse_size,
          help_heading = "Target facts")]
    pub capacity: Vec<u64>,
    /// Path of the HTML page
    #[arg(
        long,
        value_name = "FILE",
        default_value = "halfpower-study.html",
        help_heading = "Output"
    )]
    pub html: PathBuf,
    /// Flags of every subcommand that measures.
    #[command(flatten)]
    pub common: CommonArgs,
}
