//! What can be typed after `halfpower calibrate`: which run, what is held out, where the system
//! goes.

use std::path::PathBuf;

use clap::Args;

/// Flags of `calibrate`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower sweep . --bs 4k,64k,1m --iodepth 1,4,16 --rw randread,randwrite --size 1g
  halfpower calibrate latest --out disk.toml      a system that does what was measured
  halfpower whatif ./disk.toml --iodepth-to 32    and what it would do otherwise

Every second point is held out: the system is fitted to the others and scored on these. Only direct
I/O and closed loops tell of the device. A parameter whose 95% interval spans more than a factor of
three is flagged as unidentified: the run says too little of it. Caches, write buffers and credit
are sought in runs of up to two million requests.")]
pub struct CalibrateArgs {
    /// Which run: its number, the beginning of its uuid, its label, or latest
    #[arg(value_name = "RUN", default_value = "latest")]
    pub run: String,
    /// Where results are kept
    #[arg(long, value_name = "FILE", default_value = "halfpower.db")]
    pub db: PathBuf,
    /// The system whose other values are taken, one of flash: sata-ssd, nvme-gen4, cloud-gp-volume
    /// or a file (default: one volume on one host)
    #[arg(long, value_name = "SYSTEM")]
    pub system: Option<String>,
    /// Write the system file there, with its score in the title; it must not exist
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Share of the points that are scored and not fitted
    #[arg(long, value_name = "half|N%", value_parser = parse_share, default_value = "half")]
    pub holdout: f64,
    /// Print one JSON document instead of tables
    #[arg(long)]
    pub json: bool,
    /// Say nothing but the result, warnings and errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Print what would be done and do nothing
    #[arg(long)]
    pub plan: bool,
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
        .ok_or_else(|| "write half, or a percentage such as 25%, at most 90%".to_owned())
}
