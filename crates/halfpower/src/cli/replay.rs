//! Flags of `replay`: the trace, the target, the timing of requests, and changes to the recorded
//! requests. `whatif` has the same flags for changes.

use std::path::PathBuf;

use analysis::units;
use clap::Args;
use ioengine::{EngineKind, Hint};
use lab::experiment::parameters as experiment_parameters;
use lab::experiment::{Experiment, ReplayParameters};
use trace::replay::{Changes, Level, Selection};
use workload::Pace;

use super::CommonArgs;

/// Flags of `replay`.
#[derive(Args, Debug, Clone)]
// The default is 4k because the I/O buffers of most programs are on 4k pages.
#[command(mut_arg("buffer_pages", |arg| arg.default_value("4k")))]
#[command(after_help = "Examples:
  halfpower replay trace.parquet /data                what a watched program did, on another disk
  halfpower replay trace.parquet sim:nvme-gen4 --fast   in a simulated system, without pauses
  halfpower replay trace.parquet /data --flush-every 16 --no-store   with fewer flushes
  halfpower replay blkparse.txt /dev/sdb --fold       reads only, unless --destroy-data-on

Replays the requests of a trace of halfpower watch, or of another tool (as in halfpower trace).
Before each request, a thread waits until it has at most as many outstanding requests as at the
same point of the recording. It then pauses as long as in the recording; --fast omits the pauses.
The files of the trace are placed one after another in the target. If the target is a directory,
they are placed in a test file that is removed afterwards. The result is stored, judged and compared
like that of any other run.")]
pub struct ReplayArgs {
    /// A trace file, or a trace of another tool
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Directory, file, block device, simulated system (sim:SYSTEM,key=value,..), reference device
    /// (truth:KEY=VALUE,..) or disk of a server
    #[arg(value_name = "TARGET", default_value = ".")]
    pub target: PathBuf,
    /// Which requests of the trace are issued, and when.
    #[command(flatten)]
    pub load: TraceLoadArgs,
    /// Keep N requests of each thread in flight, even where the program waited for requests to end
    #[arg(long, value_name = "N", help_heading = "Change",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub iodepth_to: Option<u32>,
    /// Other changes to the recorded requests.
    #[command(flatten)]
    pub habits: HabitArgs,
    /// Number of trials (default: 3, or 1 if the trace lasts longer than 60 s)
    #[arg(long, value_name = "N", help_heading = "Time",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub trials: Option<u32>,
    /// Size of the test file in a directory (default: as large as the trace needs)
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "Target")]
    pub size: Option<u64>,
    /// Bypass the page cache (default: as the program did)
    #[arg(long, value_name = "0|1", help_heading = "Target", num_args = 0..=1,
          require_equals = true, default_missing_value = "true",
          value_parser = experiment_parameters::boolean)]
    pub direct: Option<bool>,
    /// State of the page cache before each trial: cold or warm (default: as in the recording)
    #[arg(long, value_name = "cold|warm", help_heading = "Target",
          value_parser = experiment_parameters::page_cache)]
    pub page_cache: Option<lab::experiment::PageCache>,
    /// Hint to the kernel before each trial, such as normal, sequential or random; random turns
    /// read-ahead off (default: random if the program read several files and read-ahead did not
    /// help, otherwise no hint)
    #[arg(long, value_name = "HINT", help_heading = "Target", value_parser = str::parse::<Hint>)]
    pub hint: Option<Hint>,
    /// I/O engine (default: the engine that matches the system calls of the program)
    #[arg(long, value_name = "ENGINE", help_heading = "Target",
          value_parser = str::parse::<EngineKind>)]
    pub ioengine: Option<EngineKind>,
    /// Flags of every subcommand that measures.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Flags that select the requests to replay, and their timing.
#[derive(Args, Debug, Clone)]
pub struct TraceLoadArgs {
    /// The format of the trace [default: recognised from its content]
    #[arg(long, value_name = "FORMAT", value_parser = super::watch::import_format,
          requires = "trace", help_heading = "Trace")]
    pub format: Option<trace::import::Format>,
    /// Which requests to issue: calls (I/O calls of the program) or block (block-layer requests of
    /// all programs) [default: calls, if the trace has any]
    #[arg(long, value_name = "calls|block", value_parser = level, requires = "trace",
          help_heading = "Trace")]
    pub level: Option<Level>,
    /// Issue only requests to this file, or to files below this folder (repeatable)
    #[arg(long, value_name = "PATH", requires = "trace", help_heading = "Trace")]
    pub file: Vec<String>,
    /// Move requests that are beyond the end of the target into the target
    #[arg(long, requires = "trace", help_heading = "Trace")]
    pub fold: bool,
    /// Omit the pauses that the program made between requests
    #[arg(long, conflicts_with = "speed", requires = "trace", help_heading = "Time")]
    pub fast: bool,
    /// Divide the pauses that the program made between requests by this factor
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = speed,
          requires = "trace", help_heading = "Time")]
    pub speed: f64,
}

/// Flags that change the sizes of the recorded requests and the positions of flushes.
#[derive(Args, Debug, Clone)]
pub struct HabitArgs {
    /// Merge contiguous requests, up to this size
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, requires = "trace",
          help_heading = "Change")]
    pub merge_to: Option<u64>,
    /// Flush after every N writes of a thread, instead of where the program flushed
    #[arg(long, value_name = "N", requires = "trace", help_heading = "Change",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub flush_every: Option<u32>,
}

impl HabitArgs {
    /// Returns the changes to the recorded requests. `depth` is the new queue depth.
    pub fn changes(&self, depth: Option<u32>) -> Changes {
        Changes { depth, merge_bytes: self.merge_to, flush_every: self.flush_every }
    }
}

impl TraceLoadArgs {
    /// Returns the parameters of a replay of `trace`.
    pub fn parameters(&self, trace: PathBuf, changes: Changes) -> ReplayParameters {
        ReplayParameters {
            trace,
            format: self.format,
            selection: Selection { level: self.level, files: self.file.clone() },
            pace: if self.fast { Pace::Fast } else { Pace::Gaps { speed: self.speed } },
            changes,
            folds: self.fold,
            trials: None,
        }
    }
}

impl ReplayArgs {
    /// Returns the experiment that the flags describe.
    pub fn experiment(&self) -> Experiment {
        let changes = self.habits.changes(self.iodepth_to);
        Experiment {
            targets: vec![self.target.clone()],
            replay: Some(ReplayParameters {
                trials: self.trials,
                ..self.load.parameters(self.trace.clone(), changes)
            }),
            engine_kinds: vec![self.ioengine],
            direct: self.direct,
            page_cache: self.page_cache,
            hint: self.hint,
            size_bytes: self.size,
            ..self.common.experiment()
        }
    }
}

/// Parses the value of `--level`: `calls` or `block`.
pub fn level(name: &str) -> Result<Level, String> {
    Level::named(name).ok_or_else(|| format!("unknown level '{name}'; use calls or block"))
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed: &f64| *speed > 0.0 && speed.is_finite());
    speed.ok_or_else(|| "use a factor above 0, such as 2 or 0.5".to_owned())
}
