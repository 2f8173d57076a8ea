//! Flags of `calibrate`: the input (stored runs, or a disk to measure), the share of points held
//! out for validation, and the output file.

use std::path::PathBuf;

use clap::Args;

use crate::cli::OutputArgs;

/// Flags of `calibrate`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower sweep . --bs 4k,64k,1m --iodepth 1,4,16 --rw randread,randwrite --size 1g
  halfpower calibrate latest --out disk.toml      fit a system to the measurements
  halfpower whatif ./disk.toml --iodepth-to 32    predict the effect of a change
  halfpower calibrate one two four --check eight --out nas.toml   runs with --mpi on 1 to 8 hosts
  halfpower calibrate --measure /dev/sdb --out hdd.toml       a rotating disk; only reads
  halfpower calibrate --measure /dev/sdb --destroy-data-on ID --out hdd.toml      also writes

Every second point is held out. The system is fitted to the other points and scored on the held-out
points. Only points with direct I/O and without a rate limit are used. If the 95% interval of a
parameter spans more than a factor of three, the parameter is flagged as unidentified, because the
run does not determine it. Caches, write buffers and burst credit are fitted only for runs of up to
two million requests.

From runs on several hosts (--mpi), a system with shared storage and one link per host is fitted.
Then halfpower whatif ./nas.toml --set hosts=16,disks=16 predicts more hosts. --check scores the
system on runs to which it was not fitted.

The latency of a rotating disk depends on positions that no stored run contains. Therefore --measure
issues its own requests, one at a time. The angles of sectors determine the revolution time, the
zones, the skews and the surfaces. Pairs of requests determine the seek curve, repeated reads the
buffer, and bursts of writes the write cache. Then other loads are measured to score the
predictions. This takes about ten minutes without writes and twenty with writes, destroys data only
with --overwrite or --destroy-data-on, and stores no run.")]
pub struct CalibrateArgs {
    /// Runs to fit: number, beginning of the uuid, label, or latest
    #[arg(value_name = "RUN", default_value = "latest")]
    pub runs: Vec<String>,
    /// Measure this rotating disk and fit a system to the disk. TARGET is a block device, a file on
    /// the disk, or a simulated rotating disk
    #[arg(long, value_name = "TARGET", conflicts_with_all = ["runs", "system", "check"])]
    pub measure: Option<PathBuf>,
    /// Results database
    #[arg(long, value_name = "FILE", default_value = "halfpower.db")]
    pub db: PathBuf,
    /// Flash system to start from: sata-ssd, nvme-gen4, cloud-gp-volume or a file (default: a
    /// built-in flash volume). It supplies the parameters that are not fitted
    #[arg(long, value_name = "SYSTEM")]
    pub system: Option<String>,
    /// Write the fitted system, with its score in the title, to this file, which must not exist
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Share of the points to hold out for scoring (default: half; with --check, none)
    #[arg(long, value_name = "half|N%", value_parser = parse_share)]
    pub holdout: Option<f64>,
    /// Also compare the fitted system with this run, which is not used for the fit, such as a run
    /// with more hosts (repeatable)
    #[arg(long, value_name = "RUN")]
    pub check: Vec<String>,
    /// Allow writing to this existing file (exact path; repeatable)
    #[arg(long, value_name = "PATH", help_heading = "Safety", requires = "measure")]
    pub overwrite: Vec<PathBuf>,
    /// Allow destroying the data on this device (by-id name, serial or device path)
    #[arg(long, value_name = "ID", help_heading = "Safety", requires = "measure")]
    pub destroy_data_on: Vec<String>,
    /// How results are printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Parses a share: half, or a percentage.
fn parse_share(text: &str) -> Result<f64, String> {
    let percent = match text {
        "half" => Some(50.0),
        _ => text.strip_suffix('%').unwrap_or(text).parse().ok(),
    };
    let share = percent.map(|percent: f64| percent / 100.0);
    share
        .filter(|share| (0.0..=0.9).contains(share))
        .ok_or_else(|| "use `half` or a percentage up to 90%, such as 25%".to_owned())
}
