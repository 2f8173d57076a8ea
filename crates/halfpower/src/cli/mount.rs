//! Flags of `mount`: the reference device or simulated system, the mount point, and the speed of
//! simulated time.

use analysis::units;
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

  halfpower mount sim:nt4-ultrawide /tmp/slow             a disk and host of 1997
  halfpower mount sim:nt4-ultrawide,disks=2,volume=stripe /tmp/slow --speed 10
  halfpower mount sim:nt4-ultrawide /tmp/slow --set drive.rotation=5400

The file DIR/device stores written data in memory while it is mounted. Requests of up to 1 MiB are
served whole; larger requests are split. Every read and write takes as long as on the modelled
device, even without O_DIRECT. There are two exceptions, which use this machine's page cache: mmap,
and file systems on a loop device. A flush takes no time.

Times of a simulated system include the CPU time of its host. The overhead of this machine (FUSE) is
measured at the start and subtracted from each request; no request can be faster than that overhead.
On a busy machine, give the server real-time priority: chrt --fifo 10 halfpower mount ...
Ctrl-C unmounts. If the server was killed, halfpower clean unmounts.")]
pub struct MountArgs {
    /// sim:SYSTEM[,KEY=VALUE,..], or truth:KEY=VALUE,.. with the keys of run --truth
    #[arg(value_name = "SYSTEM")]
    pub system: String,
    /// Empty folder that becomes the mount point
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Size of the file [default: the system's file size; 1g for truth:]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub size: Option<u64>,
    /// Change a value of the simulated system (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Simulated seconds per real second [default: 1]
    #[arg(long, value_name = "FACTOR", value_parser = parse_speed)]
    pub speed: Option<f64>,
    /// Time to subtract from each request for the overhead of this machine [default: measured at
    /// the start]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub path_cost: Option<u64>,
    /// Random seed of a simulated system
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Faults to inject, as with run --inject, except the faults "twice" and "late"
    #[arg(long, value_name = "KIND@N,..", value_parser = truth::parse_faults)]
    pub inject: Option<FaultPlan>,
    /// Exit at the end of standard input
    #[arg(long, hide = true)]
    pub until_eof: bool,
    /// Remove the folder at the end
    #[arg(long, hide = true)]
    pub remove_folder: bool,
    /// Print only the name of the file, warnings and errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Only print what would be done
    #[arg(long)]
    pub plan: bool,
}

/// Parses the value of `--speed`.
fn parse_speed(text: &str) -> Result<f64, String> {
    let speed: Option<f64> = text.parse().ok().filter(|s| (0.001..=1000.0).contains(s));
    speed.ok_or_else(|| "the speed must be a number from 0.001 to 1000".to_owned())
}
