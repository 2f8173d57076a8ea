//! Flags of `characterise`: the trace, and the output format of its model.

use std::path::PathBuf;

use clap::Args;
use trace::replay::Level;
use watch::characterise::OutputFormat;

use super::watch::import_format;

/// Flags of `characterise`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower characterise halfpower-trace.parquet > plan.toml    the load of a watched program
  halfpower sweep plan.toml /data                               the same load on another target
  halfpower sweep plan.toml sim:nvme-gen4                       the same load on a simulated system
  halfpower characterise t.parquet --output-format fio > job.fio
  halfpower characterise t.parquet --file /data/table           one file, or a folder
  halfpower characterise blkparse.txt --level block             requests that reached the device

Models the requests of a trace: sizes with their shares, share of reads, order, popularity of blocks
(even, zipf, pareto or zoned), depth, threads, pauses or a rate, flushes, direct or buffered, and
the size of the region. Files and threads that behave differently become separate workloads. In a
plan, the workloads are measured one after another; in a job file of fio, they run at the same time.
Comments in the output say what was counted and what the model leaves out. All trace formats that
halfpower trace reads are accepted.")]
pub struct CharacteriseArgs {
    /// Trace file of halfpower or of another tool
    #[arg(value_name = "TRACE")]
    pub file: PathBuf,
    /// The format of the trace [default: recognised from its content]
    #[arg(long, value_name = "FORMAT", value_parser = import_format)]
    pub format: Option<trace::import::Format>,
    /// What to write: plan (for halfpower sweep) or fio (a job file)
    #[arg(long, value_name = "FORMAT", value_parser = output_format, default_value = "plan")]
    pub output_format: OutputFormat,
    /// Requests to model: calls (I/O calls of the program) or block (block-layer requests of all
    /// programs) [default: calls, if the trace has any]
    #[arg(long, value_name = "LEVEL", value_parser = super::replay::level)]
    pub level: Option<Level>,
    /// Model only the requests of this file, or of the files below this folder; repeatable
    #[arg(long = "file", value_name = "PATH")]
    pub only: Vec<String>,
    /// Only print what would be done
    #[arg(long)]
    pub plan: bool,
}

fn output_format(name: &str) -> Result<OutputFormat, String> {
    let found = OutputFormat::ALL.into_iter().find(|format| format.name() == name);
    found.ok_or_else(|| format!("unknown output format '{name}'; use plan or fio"))
}
