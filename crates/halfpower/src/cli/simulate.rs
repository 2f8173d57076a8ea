//! Flags of `simulate`: the simulated system, and all flags of `sweep` that apply to it, with the
//! same names and meanings.

use clap::{Arg, Args};

use super::RunArgs;

/// The default of `--db` for `simulate`. With this value, nothing is stored.
pub const NO_DATABASE: &str = "none";

/// Flags of `simulate`: the system, and the flags of `sweep` that apply to simulated systems.
#[derive(Args, Debug, Clone)]
#[command(mut_args(simulated))]
#[command(after_help = "Examples:
  halfpower simulate --list
  halfpower simulate --system nt4-ultrawide --rw read --bs 2k,64k --size 10m
  halfpower simulate --system nt4-ultrawide --set disks=4 volume=stripe --bs 64k --iodepth 8
  halfpower simulate --show nt4-ultrawide > mine.toml      every value with its source
  halfpower simulate --system ./mine.toml --set drive.rotation=10000 --rw randread

Time is virtual: a trial takes as long as this machine needs to compute it. The same system, flags
and seed give identical results. If flags have lists of values, each combination of the values is
one point, as with sweep. Results are stored only if --db names a database. Exit code 1 if a run
would violate a physical limit.")]
pub struct SimulateArgs {
    /// Built-in system, or a system file (./mine.toml)
    #[arg(long, value_name = "NAME|FILE", help_heading = "System")]
    pub system: Option<String>,
    /// Change values of the system, such as disks=4, write_cache=on or drive.rotation=5400
    #[arg(long, value_name = "KEY=VALUE", num_args = 1.., value_delimiter = ',',
          help_heading = "System")]
    pub set: Vec<String>,
    /// List the built-in systems
    #[arg(long, help_heading = "System")]
    pub list: bool,
    /// Print the file of a system
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "list", help_heading = "System")]
    pub show: Option<String>,
    /// Flags of `sweep`.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Hides the flags that concern this host, and changes the default of `--db` to [`NO_DATABASE`].
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
    let foreign = matches!(heading, "Host" | "Safety" | "Reference device" | "Ranks");
    let hidden = foreign || HIDDEN.contains(&arg.get_id().as_str());
    match arg.get_id().as_str() {
        // The original help texts mention files of this host, which a simulation does not use.
        "allocation" => arg
            .value_name("preallocated|extend")
            .help("preallocated: blocks are already written; extend: writes grow a new file"),
        "size" => arg.help(
            "Size of the region to access (default: the whole file); a file that is too small is \
             enlarged",
        ),
        "direct" => arg.help("Bypass the system's file cache (default: as configured)"),
        "db" => arg.default_value(NO_DATABASE),
        _ if hidden => arg.hide(true),
        _ => arg,
    }
}
