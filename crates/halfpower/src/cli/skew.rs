//! Flags of loads that are not even: hot blocks, sizes by chance, pauses, and the log that tells
//! each request.

use std::path::PathBuf;

use clap::Args;
use workload::Distribution;

use crate::skew::{self, Split};

/// Flags of `run` and `sweep` that skew a load.
#[derive(Args, Debug, Clone)]
pub struct SkewArgs {
    /// Which blocks random requests visit: random: each once in a pass; zipf:THETA, pareto:H: some
    /// often, scattered; zoned:ACCESSES/REGION:.. (percents): parts of the region in order
    #[arg(long, value_name = "LAW", value_parser = skew::parse_distribution,
          default_value = "random", help_heading = "Workload")]
    pub random_distribution: Distribution,
    /// Several request sizes with their shares of the requests, instead of --bs: 4k/50:64k/50
    #[arg(long, value_name = "SIZE/PERCENT:..", help_heading = "Workload")]
    pub bssplit: Option<Split>,
    /// Pause after each completion before the next request in its place (closed loop), with a unit:
    /// 100us; each of --iodepth pauses by itself
    #[arg(long, value_name = "TIME", value_parser = skew::parse_pause, help_heading = "Workload")]
    pub thinktime: Option<u64>,
    /// Pause only after so many requests
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub thinktime_blocks: Option<u32>,
    /// Write every request to this file as CSV, times from the start of its trial
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub log: Option<PathBuf>,
}
