//! What can be typed after `halfpower simulate`: which system, and those flags of `sweep` that mean
//! something in it, with the same names and meanings.

use clap::{Arg, Args};

use super::RunArgs;

/// Where `simulate` keeps results unless `--db` names a file: nowhere.
pub const NO_DATABASE: &str = "none";

/// Flags of `simulate`: those of `sweep` that mean something in a simulated system, and which one.
#[derive(Args, Debug, Clone)]
#[command(mut_args(simulated))]
#[command(after_help = "Examples:
  halfpower simulate --list
  halfpower simulate --system nt4-ultrawide --rw read --bs 2k,64k --size 10m
  halfpower simulate --system nt4-ultrawide --set disks=4 volume=stripe --bs 64k --iodepth 8
  halfpower simulate --show nt4-ultrawide > mine.toml      every value with its source
  halfpower simulate --system ./mine.toml --set drive.rotation=10000 --rw randread

Time is virtual: a trial takes as long as the machine needs to compute it. The same system, flags
and seed give the same bits. Lists give one point for each combination, as with sweep. No database
is kept unless --db names one. Exit code 1 where a run would break a law of physics.")]
pub struct SimulateArgs {
    /// A system that comes with the program, or a file of your own (./mine.toml)
    #[arg(long, value_name = "NAME|FILE", help_heading = "System")]
    pub system: Option<String>,
    /// Change values of the system, such as disks=4, write_cache=on or drive.rotation=5400
    #[arg(long, value_name = "KEY=VALUE", num_args = 1.., value_delimiter = ',',
          help_heading = "System")]
    pub set: Vec<String>,
    /// List the systems that come with the program
    #[arg(long, help_heading = "System")]
    pub list: bool,
    /// Print the file of a system
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "list", help_heading = "System")]
    pub show: Option<String>,
    /// See RunArgs.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Hides what is about this host, and keeps no database unless it is asked for.
fn simulated(arg: Arg) -> Arg {
    const HIDDEN: [&str; 12] = [
        "targets",
        "ioengine",
        "hint",
        "invalidate",
        "page-cache",
        "cpus-allowed",
        "zero-buffers",
        "verify",
        "soaker",
        "no_store",
        "endurance",
        "buffer_pages",
    ];
    let heading = arg.get_help_heading().unwrap_or_default();
    let foreign = matches!(heading, "Host" | "Safety" | "Reference device");
    let hidden = foreign || HIDDEN.contains(&arg.get_id().as_str());
    match arg.get_id().as_str() {
        // Without what is about files and folders of this host.
        "allocation" => arg
            .value_name("preallocated|extend")
            .help("preallocated: blocks were written before; extend: writes grow a new file"),
        "size" => arg.help(
            "Region of the file to work on (default: all of it); the file is as large as needed",
        ),
        "direct" => arg.help("Past the system's cache, or through it (default: as it is set up)"),
        "db" => arg.default_value(NO_DATABASE),
        _ if hidden => arg.hide(true),
        _ => arg,
    }
}
