//! Flags of `calibrate`: the stored run or the disk to measure, the share of points held out for
//! validation, and the output file.

use std::path::PathBuf;

use clap::Args;

use crate::cli::OutputArgs;

/// Flags of `calibrate`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower sweep . --bs 4k,64k,1m --iodepth 1,4,16 --rw randread,randwrite --size 1g
  halfpower calibrate latest --out disk.toml      fit a system to the measurements
  halfpower whatif ./disk.toml --iodepth-to 32    predict the effect of a change
  halfpower calibrate one two four --check eight --out nas.toml   runs of ranks on 1 to 8 hosts
  halfpower calibrate --measure /dev/sdb --out hdd.toml       a rotating disk, only read
  halfpower calibrate --measure /dev/sdb --destroy-data-on ID --out hdd.toml      also written

Every second point is held out: the system is fitted to the others and scored on these. Only points
with direct I/O and without a rate limit are used. A parameter whose 95% interval spans more than a
factor of three is flagged as unidentified: the run does not determine it. Caches, write buffers and
burst credit are fitted only for runs of up to two million requests.

Runs of ranks on several hosts (--mpi) give a system of storage that the hosts share, with a link
for each: halfpower whatif ./nas.toml --set hosts=16,disks=16 predicts more hosts. --check scores
the system on runs that it was not fitted to.

The time of a rotating disk depends on positions that no stored run determines. --measure issues
requests of its own, one at a time. The angles of sectors give the time of a revolution, the zones,
skews and surfaces; pairs of requests give the seek curve, repeated reads the buffer, and bursts of
writes the write cache. Then it measures other loads and scores the predictions. It takes about ten
minutes without writes and twenty with them, destroys the data only with --overwrite or
--destroy-data-on, and stores no run.")]
pub struct CalibrateArgs {
    /// Which runs: the number, the beginning of the uuid, or the label of each, or latest
    #[arg(value_name = "RUN", default_value = "latest")]
    pub runs: Vec<String>,
    /// Measure this rotating disk and fit a system to it: block device, file on a disk, or
    /// simulated system
    #[arg(long, value_name = "TARGET", conflicts_with_all = ["runs", "system", "check"])]
    pub measure: Option<PathBuf>,
    /// Results database
    #[arg(long, value_name = "FILE", default_value = "halfpower.db")]
    pub db: PathBuf,
    /// Flash system that supplies all values that are not fitted: sata-ssd, nvme-gen4,
    /// cloud-gp-volume or a file (default: one volume on one host)
    #[arg(long, value_name = "SYSTEM")]
    pub system: Option<String>,
    /// Path of the system file to write, with its score in the title; must not exist
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Share of the points held out for scoring (default: half; with --check, none)
    #[arg(long, value_name = "half|N%", value_parser = parse_share)]
    pub holdout: Option<f64>,
    /// A run that is only scored, such as one with more hosts; repeatable
    #[arg(long, value_name = "RUN")]
    pub check: Vec<String>,
    /// Allow writing to this existing file (exact path; repeatable)
    #[arg(long, value_name = "PATH", help_heading = "Safety", requires = "measure")]
    pub overwrite: Vec<PathBuf>,
    /// Allow destroying the data on this device (by-id name, serial or kernel path)
    #[arg(long, value_name = "ID", help_heading = "Safety", requires = "measure")]
    pub destroy_data_on: Vec<String>,
    /// How results are printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Reads a share: half, or a percentage.
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
