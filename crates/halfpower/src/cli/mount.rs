//! What can be typed after `halfpower mount`: a device or a system, a folder, how time passes.

use std::path::PathBuf;

use clap::Args;
use ioengine::fault::FaultPlan;
use lab::truth;

/// Flags of `mount`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  mkdir /tmp/slow
  halfpower mount truth:fixed=2ms,rate=100MB/s,parallel=8 /tmp/slow &
  fio --name=check --filename=/tmp/slow/device --rw=randread --bs=4k --direct=1 --runtime=5
  kill %1

  halfpower mount sim:nt4-ultrawide /tmp/slow             a disk of 1997 and its host
  halfpower mount sim:nt4-ultrawide,disks=2,volume=stripe /tmp/slow --speed 10
  halfpower mount sim:nt4-ultrawide /tmp/slow --set drive.rotation=5400

The file DIR/device keeps what is written for as long as it is mounted, in memory. Requests of up
to 1 MiB are served as one; larger ones come in parts. Each read and write of a program takes the
device's time, also without O_DIRECT; only what a program maps into memory, or a file system on a
loop device on the file, goes through this machine's page cache. A flush takes no time.

A simulated system's time holds the CPU time of its own host. What the way through this machine
costs is measured at the start and credited to each request; no request can be faster than that.
Give the server real-time priority on a busy machine: chrt --fifo 10 halfpower mount ...
Ctrl-C unmounts; what a killed server leaves mounted, halfpower clean takes away.")]
pub struct MountArgs {
    /// sim:SYSTEM[,KEY=VALUE,..], or truth:KEY=VALUE,.. with the keys of run --truth
    #[arg(value_name = "SYSTEM")]
    pub system: String,
    /// Empty folder to mount on
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Size of the file [default: the system's file size; 1g for truth:]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub size: Option<u64>,
    /// Change a value of the simulated system; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// How much faster than the clock simulated time passes [default: 1]
    #[arg(long, value_name = "FACTOR", value_parser = parse_speed)]
    pub speed: Option<f64>,
    /// What to credit to each request for its way through this machine [default: as measured]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub path_cost: Option<u64>,
    /// Seed of every random choice of a simulated system
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Faults that requests suffer, as in run --inject (not twice and late)
    #[arg(long, value_name = "KIND@N,..", value_parser = truth::parse_faults)]
    pub inject: Option<FaultPlan>,
    /// End when standard input does
    #[arg(long, hide = true)]
    pub until_eof: bool,
    /// Remove the folder at the end
    #[arg(long, hide = true)]
    pub remove_folder: bool,
    /// Say nothing but the name of the file, warnings and errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Print what would be done and do nothing
    #[arg(long)]
    pub plan: bool,
}

/// A speed of simulated time.
fn parse_speed(text: &str) -> Result<f64, String> {
    let speed: Option<f64> = text.parse().ok().filter(|s| (0.001..=1000.0).contains(s));
    speed.ok_or_else(|| "a speed is a number from 0.001 to 1000".to_owned())
}
