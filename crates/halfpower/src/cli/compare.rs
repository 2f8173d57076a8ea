//! Flags of `compare`, `history`, `fleet` and `baseline`: what is compared, the tolerance, and the
//! limits beyond which the command fails.

use analysis::units;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use compare::limit::{Limit, parse_share};

/// Flags of `history`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower history                        all points of the host and target of the newest run
  halfpower history randread '4 KiB'       points whose description contains these words
  halfpower history --host db1 --target 'ext4 on S4EVNF0M' --json

Each run counts once, with the median of its trials. A change is recognised only if there are at
least three runs before it and three after it.")]
pub struct HistoryArgs {
    /// Show only workloads whose description contains these words, such as randread or '64 KiB'
    #[arg(value_name = "WORD")]
    pub words: Vec<String>,
    /// Host (default: the host of the newest run)
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Target: a simulated system, a device, or a file system with its device (default: target of
    /// the newest run)
    #[arg(long, value_name = "TARGET")]
    pub target: Option<String>,
    /// Results database
    #[arg(long, value_name = "FILE", default_value = "halfpower.db")]
    pub db: PathBuf,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// Only print what would be done
    #[arg(long)]
    pub plan: bool,
}

/// Flags of `compare`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower compare 12 latest                  run 12 is the baseline
  halfpower compare label:before label:after   all runs with these labels
  halfpower compare host1.db host2.db:7        two databases: latest run, run 7
  halfpower compare 12 latest --fail-on 5% --fail-on p99:10% --junit result.xml
  halfpower compare --run '. --bs 4k' --run '. --bs 4k --ioengine libaio'
  halfpower compare --run 'data --bs 4k' --command 'fio job.fio --output-format=json'
  halfpower compare --run 'sim:nvme-gen4 --bs 8k' --run 'sim:nvme-ftl --bs 8k' --until 1%

Points are matched by workload. If a setting has one value in all points of one side and another
value in all points of the other side, the setting is listed as a difference between the sides, and
is ignored when points are matched. Each ratio has its 95% interval. At most 5% of the reported
differences are expected to be false (false-discovery rate). The sides of --run are measured
alternately until the ratio of their rates is known to within --until, or until the budget is spent.

Exit codes: 0 ok, 6 a change exceeds a limit of --fail-on.")]
pub struct CompareArgs {
    /// The baseline and the runs compared with it: run number, uuid, latest, label:NAME, host:NAME,
    /// FILE, or FILE:RUN
    #[arg(value_name = "RUN", conflicts_with_all = ["run", "command"])]
    pub sides: Vec<String>,
    /// Measure with these arguments of halfpower run (repeatable; the first is the baseline)
    #[arg(long, value_name = "ARGUMENTS", help_heading = "Measure")]
    pub run: Vec<String>,
    /// Run this command of another tool, which prints results such as fio's JSON. These results are
    /// not stored (repeatable; listed after the results of --run)
    #[arg(long, value_name = "COMMAND", help_heading = "Measure")]
    pub command: Vec<String>,
    /// Stop when each ratio of rates is known to within this share (half-width of the 95%
    /// confidence interval, as a share of the ratio)
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "2%",
          help_heading = "Measure")]
    pub until: f64,
    /// Stop after this time
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "60",
          help_heading = "Measure")]
    pub budget: u64,
    /// Do not store the measurements
    #[arg(long, help_heading = "Measure")]
    pub no_store: bool,
    /// Changes up to this share count as no change
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "2%")]
    pub same_within: f64,
    /// Exit with 6 if a point is worse by more than this limit, such as 5% (rate), p50:5%, p99:5%,
    /// p99.9:5% or cpu:5% (repeatable)
    #[arg(long, value_name = "LIMIT", value_parser = str::parse::<Limit>)]
    pub fail_on: Vec<Limit>,
    /// Results database for runs that are specified without a file
    #[arg(long, value_name = "FILE", default_value = "halfpower.db")]
    pub db: PathBuf,
    /// Print Markdown, for pull requests
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub markdown: bool,
    /// Print one JSON document instead of text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Write JUnit XML, for CI systems
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub junit: Option<PathBuf>,
    /// Write an HTML page with the curves of both sides and their ratio
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Print only the result, warnings and errors
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
    /// Only print what would be done
    #[arg(long, help_heading = "Output")]
    pub plan: bool,
}

/// Flags of `fleet`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower fleet site/*.db                    databases with one or several hosts each
  halfpower fleet site/*.db --only randread    only workloads with this word
  halfpower fleet site/*.db --html fleet.html

Hosts are compared if their targets are of the same model and at least 5 of them measured the same
workload. The rate, the tail latency, the scatter between trials, the change of the rate, and means
over workloads are compared. A host is odd if it differs by more than the tolerance, and by more
than chance can explain (at most 5% of the hosts that are called odd are expected to be false
alarms).")]
pub struct FleetArgs {
    /// Results databases
    #[arg(value_name = "DB", required = true)]
    pub databases: Vec<PathBuf>,
    /// Compare only workloads whose description contains this word (repeatable)
    #[arg(long, value_name = "WORD")]
    pub only: Vec<String>,
    /// Differences of rates up to this share count as no difference
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "5%")]
    pub same_within: f64,
    /// Write an HTML page with a table of hosts and a chart of each workload
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// Only print what would be done
    #[arg(long)]
    pub plan: bool,
}

/// Flags of `baseline`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower baseline set disk latest             the newest run is the baseline named disk
  halfpower baseline check disk                  measure it again for a minute, and compare
  halfpower baseline check disk --budget 300 --fail-on 10% --fail-on p99:20%
  halfpower baseline list

The subcommand check measures the fastest point of each kind of request, then the points with the
narrowest confidence intervals, until the budget is spent. Exit codes: 0 no regression, 6 a change
exceeds a limit.")]
pub struct BaselineArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub verb: BaselineVerb,
    /// Results database
    #[arg(long, value_name = "FILE", default_value = "halfpower.db", global = true)]
    pub db: PathBuf,
    /// Only print what would be done
    #[arg(long, global = true)]
    pub plan: bool,
}

/// Subcommands of `baseline`.
#[derive(Subcommand, Debug, Clone)]
pub enum BaselineVerb {
    /// Make a stored run the baseline with this name
    Set {
        /// Name of the baseline
        name: String,
        /// The run that becomes the baseline
        #[arg(default_value = "latest")]
        run: String,
    },
    /// List the baselines
    List,
    /// Remove a baseline, but keep its run
    Remove {
        /// Name of the baseline
        name: String,
    },
    /// Measure the points of a baseline again, and compare the results
    Check(Box<BaselineCheckArgs>),
}

/// Flags of `baseline check`.
#[derive(Args, Debug, Clone)]
pub struct BaselineCheckArgs {
    /// Name of the baseline
    pub name: String,
    /// Duration of the measurement
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "60")]
    pub budget: u64,
    /// Exit with 6 if a point is worse by more than this limit, such as 5% (rate), p50:5%, p99:5%,
    /// p99.9:5% or cpu:5% (repeatable)
    #[arg(long, value_name = "LIMIT", value_parser = str::parse::<Limit>, default_value = "5%")]
    pub fail_on: Vec<Limit>,
    /// Changes up to this share count as no change
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "2%")]
    pub same_within: f64,
    /// Do not store the measurements
    #[arg(long)]
    pub no_store: bool,
    /// Allow writing to this existing file (exact path; repeatable)
    #[arg(long, value_name = "PATH")]
    pub overwrite: Vec<PathBuf>,
    /// Allow destroying the data on this device (by-id name, serial or device path)
    #[arg(long, value_name = "ID")]
    pub destroy_data_on: Vec<String>,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// Print only the result, warnings and errors
    #[arg(long, short)]
    pub quiet: bool,
}
