//! The command line: subcommands and flags. Other modules implement the subcommands.
//!
//! Flags have fio's names where fio has the same flag. Dashes and underscores are equivalent
//! (`--time-based`, `--time_based`). A boolean flag may be followed by `=0` or `=1`.

pub mod assist;
pub mod calibrate;
pub mod compare;
pub mod classic;
pub mod copy;
pub mod explain;
pub mod help;
pub mod exchange;
pub mod memory;
pub mod mount;
pub mod peer;
mod parameters;
pub mod replay;
pub mod serve;
pub mod simulate;
pub mod inputs;
pub mod study;
pub mod tune;
pub mod watch;
pub mod characterise;
pub mod whatif;
pub mod plan;

use analysis::units;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use ioengine::BufferPages;
use lab::experiment::Experiment;
use lab::experiment::parameters as experiment_parameters;
use lab::failure::{Failure, Outcome};
use lab::guard::Consent;
use lab::recorder::RunOptions;
use lab::selftest::devices::Source;
use lab::terminal::Charts;
use survey::app::{self, App};

use self::parameters::ParameterArgs;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// A storage I/O laboratory: what the hardware can do, what an application gets, what it costs in
/// CPU, where the bottleneck is, and what the application should change
#[derive(Parser, Debug)]
#[command(name = "halfpower", version, styles = STYLES, max_term_width = 100)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:
  halfpower survey                     characterise the file system of this directory
  halfpower survey /data --quick       a survey of /data in about 20 s
  halfpower run /data --rw randread --bs 4k --iodepth 32
  halfpower engines                    the I/O engines that this kernel offers
  halfpower target /data               the devices under /data, and whether writing is safe

Exit codes: 0 ok, 1 run failed, 2 usage, 3 refused for safety, 4 data verification failed,
5 completed but the result is invalid, 6 regression found, 130 interrupted.")]
pub struct Cli {
    /// The subcommand to run.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Characterise a target in a minute or two, and write a database and an HTML report
    Survey(SurveyArgs),
    /// Measure one workload
    Run(RunArgs),
    /// Measure the jobs of a fio command line
    Fio(FioArgs),
    /// Measure all combinations of several request sizes, queue depths, thread counts ...
    Sweep(RunArgs),
    /// Run one of the papers' experiments, or all of them, on any target
    Study(Box<study::StudyArgs>),
    /// Predict the rate and the bottleneck of a workload on a simulated system
    Simulate(Box<simulate::SimulateArgs>),
    /// Measure memory, cache and page-cache bandwidth, by working set and thread count
    Memory(memory::MemoryArgs),
    /// Run any command and report lower and upper bounds of its CPU cost
    Soak(SoakArgs),
    /// Watch a program: its requests, their latency, and where its time is spent
    Watch(watch::WatchArgs),
    /// Show, import or export a trace of requests
    Trace(watch::TraceArgs),
    /// Replay the requests of a trace on a disk or in a simulated system
    Replay(Box<replay::ReplayArgs>),
    /// Describe the load in a trace as a plan file for sweep, or as a fio job
    Characterise(characterise::CharacteriseArgs),
    /// Run a tool of the papers: sqlio, memspeed, diskcache, cacheflush, soaker, cmdgen
    Classic(Box<classic::ClassicArgs>),
    /// Explain a term, finding, verdict reason, advice, study or claim
    Explain(explain::ExplainArgs),
    /// List the I/O engines, and why some are not available on this host
    Engines(EnginesArgs),
    /// Describe each layer of a target, and print whether writing to the target is safe
    Target(TargetArgs),
    /// Regenerate the HTML page of a stored survey
    Report(serve::ReportArgs),
    /// Show the pages of a database in a browser on this machine, until Ctrl-C
    Serve(serve::ServeArgs),
    /// Compare stored runs, or measure workloads alternately and compare them
    Compare(Box<compare::CompareArgs>),
    /// Show stored points over time, and when they changed
    History(compare::HistoryArgs),
    /// Find which hosts of a fleet differ, in which results, since when, and why
    Fleet(compare::FleetArgs),
    /// Keep a run as a baseline, measure it again later, and report what became slower
    Baseline(compare::BaselineArgs),
    /// List, show, label, delete and merge stored runs
    Runs(RunsArgs),
    /// Store results of other tools, such as fio's JSON
    Import(exchange::ImportArgs),
    /// Write stored runs as fio's JSON, CSV, NDJSON or metrics
    Export(exchange::ExportArgs),
    /// Check measurements against reference devices with known timing
    Selftest(SelftestArgs),
    /// Fit a simulated system to a stored run
    Calibrate(calibrate::CalibrateArgs),
    /// Reproduce the figures and claims of a paper in the simulator
    Reproduce(ReproduceArgs),
    /// Predict the effect of a change to a simulated system or its load
    Whatif(whatif::WhatifArgs),
    /// Find the cheapest simulated configurations that meet your requirements
    Plan(plan::PlanArgs),
    /// Copy files, trees and devices at the speed of the storage; durable, never partial
    Copy(copy::CopyArgs),
    /// Serve a simulated system or a reference device as a real file, until Ctrl-C
    Mount(mount::MountArgs),
    /// Report this server's counters to the client of a network study, until Ctrl-C
    Peer(peer::PeerArgs),
    /// Print files, reading at the speed of the storage
    Cat(inputs::CatArgs),
    /// Print or check BLAKE3 checksums of files and directories
    Checksum(inputs::ChecksumArgs),
    /// Find and save the request size and depth that reach 97% of the best rate with least memory
    Tune(tune::TuneArgs),
    /// Remove test files and mounts that a killed program left behind
    Clean(CleanArgs),
    /// Restore device settings that a killed run left changed
    Restore(RestoreArgs),
    /// Print a manual page, shell completions or the JSON Schema
    #[command(hide = true)]
    Generate(GenerateArgs),
    /// Burn CPU time for each byte read from standard input
    #[command(hide = true)]
    Assist(assist::AssistArgs),
}

/// Flags of every subcommand that measures.
#[derive(Args, Debug, Clone)]
pub struct CommonArgs {
    /// Print one JSON document instead of text
    #[arg(long, default_value_t = false, help_heading = "Output")]
    pub json: bool,
    /// Charts in the text of surveys and studies: auto (on a terminal), unicode, ascii or never
    #[arg(long, value_name = "WHEN", default_value = "auto", help_heading = "Output",
          value_parser = str::parse::<Charts>)]
    pub charts: Charts,
    /// Print only warnings and errors
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
    /// Only print what would be done (bytes, writes, time, files and devices)
    #[arg(long, help_heading = "Output")]
    pub plan: bool,
    /// Results database
    #[arg(long, value_name = "FILE", default_value = "halfpower.db", help_heading = "Output")]
    pub db: PathBuf,
    /// Do not store results
    #[arg(long, help_heading = "Output")]
    pub no_store: bool,
    /// A name for this run
    #[arg(long, alias = "name", value_name = "TEXT", help_heading = "Output")]
    pub label: Option<String>,
    /// Random seed
    #[arg(long, alias = "randseed", default_value_t = 42, help_heading = "Workload")]
    pub seed: u64,
    /// Nominal rate of the hardware (PAP), such as 600MB/s; half of it is the half-power point
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate, help_heading = "Workload")]
    pub pap: Option<f64>,
    /// Page size of the buffers
    #[arg(long, value_name = "huge|4k", default_value = "huge", help_heading = "Workload",
          value_parser = experiment_parameters::buffer_pages)]
    pub buffer_pages: BufferPages,
    /// Do not mark the result as invalid if holes or unwritten blocks are read
    #[arg(long, value_name = "0|1",
          help_heading = "Safety", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = experiment_parameters::boolean,
          default_value = "false")]
    pub allow_holes: bool,
    /// Rated endurance of the drive, such as 600TB (TBW); --plan prints the share that the run uses
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "Safety")]
    pub endurance: Option<u64>,
    /// Measure with all processes (ranks) that mpirun or srun started; rank 0 prints and stores the
    /// results. Needs a build with the feature mpi
    #[arg(long, help_heading = "Ranks")]
    pub mpi: bool,
    /// Allow writing to this existing file (exact path; repeatable)
    #[arg(long, value_name = "PATH", help_heading = "Safety")]
    pub overwrite: Vec<PathBuf>,
    /// Allow destroying the data on this device (by-id name, serial or device path)
    #[arg(long, value_name = "ID", help_heading = "Safety")]
    pub destroy_data_on: Vec<String>,
}

/// Flags of `run` and `sweep`. `run` takes one value where `sweep` takes a list.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower run . --rw randread --bs 4k --iodepth 32 --runtime 10
  halfpower run big.dat --rw read --bs 1m --iodepth 8 --direct=0
  halfpower run . --rw write --bs 64k --size 1g --verify
  halfpower run --ioengine null --bs 4k --iodepth 32     the overhead of halfpower itself
  halfpower run --ioengine delay --truth fixed=1ms --iodepth 4
  halfpower run truth:fixed=1ms,rate=100MB/s --bs 64k    a reference device as a target
  halfpower run /dev/sdb /dev/sdc --chunk 64k --bs 128k --iodepth 3    both striped into one target
  halfpower run /dev/nvme1n1 --rw randread --bs 4k --iodepth 64 --numjobs 4
  halfpower sweep . --bs 4k,64k,1m --iodepth 1..32
  halfpower sweep sim:nt4-ultrawide,disks=4,volume=stripe --bs 4k,64k --iodepth 8
  halfpower sweep plan.toml --runtime 5                  flags as TOML: bs = [\"4k\", \"64k\"]
  halfpower run job.fio --section seq --runtime 5        a job file of fio; flags override it

In a directory, a test file is created and removed afterwards. Reading needs no permission. Writing
to an existing file needs --overwrite, and writing to a device needs --destroy-data-on.")]
pub struct RunArgs {
    /// File, block device or directory; file or disk of a server, such as nbd://HOST/EXPORT or
    /// smb://HOST/SHARE/FILE (also nfs, iscsi, s3); simulated system sim:SYSTEM,key=value,.. (see
    /// halfpower simulate --list); or reference device truth:KEY=VALUE,.. with the keys of --truth.
    /// Several targets are measured at the same time, each by the full number of threads, unless
    /// --chunk stripes them into one
    #[arg(value_name = "TARGET")]
    pub targets: Vec<PathBuf>,
    /// fio's flag for the target
    #[arg(long, hide = true)]
    pub filename: Option<PathBuf>,
    /// Parameters of the experiment.
    #[command(flatten)]
    pub parameters: ParameterArgs,
    /// Flags of every subcommand that measures.
    #[command(flatten)]
    pub common: CommonArgs,
    /// fio's flag, ignored: results are always reported together
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub group_reporting: Option<String>,
    /// fio's flag, ignored: halfpower needs no random map
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub norandommap: Option<String>,
    /// Use the table named quick in the plan file, with fewer points and shorter trials
    #[arg(long, help_heading = "Time")]
    pub quick: bool,
    /// Path of the HTML page (only for plan files with figures)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Flags for job files of fio.
    #[command(flatten)]
    pub jobs: JobFileArgs,
    /// Flags from a plan file, stored with the results.
    #[arg(skip)]
    pub planned: Vec<String>,
    /// Path and text of the plan file, if it is the plan of a study.
    #[arg(skip)]
    pub study_plan: Option<(PathBuf, String)>,
}

/// Flags of `run` for job files of fio.
#[derive(Args, Debug, Clone, Default, PartialEq)]
pub struct JobFileArgs {
    /// Run only the job with this name (repeatable)
    #[arg(long, value_name = "NAME", help_heading = "Job files of fio")]
    pub section: Vec<String>,
    /// Refuse jobs with options that halfpower can only approximate
    #[arg(long, help_heading = "Job files of fio")]
    pub strict: bool,
    /// Run jobs one after another if fio would run them at the same time
    #[arg(long, help_heading = "Job files of fio")]
    pub serial: bool,
    /// Print the equivalent halfpower commands and run nothing
    #[arg(long, help_heading = "Job files of fio")]
    pub showcmd: bool,
    /// Format of the output; json and json+ print one document with all jobs, as fio does
    #[arg(long, value_name = "FORMAT", help_heading = "Job files of fio",
          value_parser = ["normal", "json", "json+"])]
    pub output_format: Option<String>,
}

/// A command line of fio, and flags of `run` after `--`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Example:
  halfpower fio --name=x --filename=data --rw=write -- --overwrite data --no-store")]
pub struct FioArgs {
    /// Options of fio, optionally followed by -- and flags of `halfpower run`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub words: Vec<String>,
}

impl RunArgs {
    /// Returns the experiment that the flags describe.
    ///
    /// # Errors
    /// When a parameter is invalid.
    pub fn experiment(&self) -> Outcome<Experiment> {
        let mut experiment = self.common.experiment();
        self.parameters.given.apply(&mut experiment)?;
        experiment.targets.extend(self.targets.iter().chain(&self.filename).cloned());
        Ok(experiment)
    }

    /// Refuses flags that need a plan file or a job file of fio, if there is none.
    ///
    /// # Errors
    /// A usage error if such a flag was given.
    pub fn check_without_plan(&self) -> Outcome<()> {
        if self.study_plan.is_some() || !self.planned.is_empty() {
            return Ok(());
        }
        if self.quick {
            return Err(Failure::usage(
                "--quick needs a plan file with a [quick] table; drop --quick",
            ));
        }
        if self.jobs != JobFileArgs::default() {
            return Err(Failure::usage(
                "--section, --strict, --serial, --showcmd and --output-format need a job file of \
                 fio; specify a job file, or drop these flags",
            ));
        }
        if self.html.is_some() {
            return Err(Failure::usage(
                "--html works only with a plan file that has figures, or with halfpower survey; \
                 drop --html",
            ));
        }
        Ok(())
    }
}

impl CommonArgs {
    /// Returns an experiment with only these flags set.
    pub fn experiment(&self) -> Experiment {
        Experiment {
            seed: self.seed,
            buffer_pages: self.buffer_pages,
            allow_holes: self.allow_holes,
            consent: self.consent(),
            endurance_bytes: self.endurance,
            ..Experiment::default()
        }
    }

    /// Returns the files and devices that the user allows to be overwritten.
    pub fn consent(&self) -> Consent {
        let (overwrite, destroy_data_on) = (self.overwrite.clone(), self.destroy_data_on.clone());
        Consent { overwrite, destroy_data_on }
    }

    /// Returns the database, the label, and the nominal rate of the hardware (PAP).
    pub fn run_options(&self) -> RunOptions {
        RunOptions {
            db: (!self.no_store).then(|| self.db.clone()),
            label: self.label.clone(),
            pap_bytes_per_s: self.pap,
        }
    }
}

/// Flags of `survey`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower survey                  the current directory, 90 s
  halfpower survey /data --quick    about 20 s
  halfpower survey /dev/sdb         a device; only reads unless --destroy-data-on names it
  halfpower survey --app 8k,direct  what to change in a program that issues direct 8 KiB requests
  halfpower survey sim:nt4-ultrawide,disks=4,volume=stripe    a simulated system

A survey of a directory creates a test file there and removes it afterwards. It writes
halfpower.db and halfpower.html to the current directory.")]
pub struct SurveyArgs {
    /// Directory, file or block device; file or disk of a server (nbd://HOST/EXPORT); or simulated
    /// system (sim:SYSTEM,key=value,..)
    #[arg(value_name = "TARGET", default_value = ".")]
    pub target: PathBuf,
    /// Time limit of the survey
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, help_heading = "Time")]
    pub budget: Option<u64>,
    /// Measure for about 20 s, with fewer points and wider confidence intervals
    #[arg(long, conflicts_with_all = ["thorough", "budget"], help_heading = "Time")]
    pub quick: bool,
    /// Measure for about 10 min, with more points and narrower confidence intervals
    #[arg(long, conflicts_with = "budget", help_heading = "Time")]
    pub thorough: bool,
    /// Size of the test file (default: 1 GiB, or 4 GiB if the budget is at least 5 min; at most 10%
    /// of the free space, half of --max-write, and what 10% of the budget can write)
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "Workload")]
    pub size: Option<u64>,
    /// How your program does I/O today, such as bs=8k,iodepth=4,direct; the advice compares other
    /// settings with it (default: bs=64k,iodepth=1,buffered)
    #[arg(long, value_name = "REQUESTS", value_parser = app::parse, help_heading = "Workload")]
    pub app: Option<App>,
    /// Maximum bytes to write, including the test file
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, default_value = "16g",
          help_heading = "Safety")]
    pub max_write: u64,
    /// Path of the HTML page
    #[arg(long, value_name = "FILE", default_value = "halfpower.html", help_heading = "Output")]
    pub html: PathBuf,
    /// Flags of every subcommand that measures.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Output flags that several subcommands share.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputArgs {
    /// Print one JSON document instead of text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print only the result, warnings and errors
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
    /// Only print what would be done (bytes, writes, time, files and devices)
    #[arg(long, help_heading = "Output")]
    pub plan: bool,
}

/// Flags of `soak`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower soak -- dd if=big.dat of=/dev/null bs=1M
  halfpower soak --settle 5 -- make          a longer baseline, for noisy machines
  halfpower soak --json -- sort big.txt > cost.json

The CPU cost of the command lies between two bounds. The lower bound is the CPU time that the system
charges to the command and its children. For the upper bound, a spinner process with idle priority
uses all idle time of each CPU. The upper bound is the CPU time that the spinners lose while the
command runs, minus the CPU time that they would lose to the background load in the same time. The
background load is measured before and after the command, and the smaller value counts. The upper
bound includes kernel threads, interrupts and work delegated to other processes. The report is
written to stderr and the command's output is unchanged. With --json the document is written to
stdout and the command's output to stderr. The exit code is that of the command, 127 if it is not
found, or 126 if it is not executable.")]
pub struct SoakArgs {
    /// Print one JSON document; the command's output goes to stderr
    #[arg(long)]
    pub json: bool,
    /// Print only the report, warnings and errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Only print what would be done
    #[arg(long)]
    pub plan: bool,
    /// Duration of each of the two baseline measurements, before and after the command
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "1")]
    pub settle: u64,
    /// Measure only the lower bound, without loading the CPUs with idle-priority spinners
    #[arg(long)]
    pub unsoaked: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Flags of `engines`.
#[derive(Args, Debug, Clone)]
pub struct EnginesArgs {
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// Only print what would be done
    #[arg(long)]
    pub plan: bool,
}

/// Flags of `target`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower target .              all layers from the file system to the bus
  halfpower target /dev/nvme0n1
  halfpower target big.dat --json")]
pub struct TargetArgs {
    /// File, block device or directory, or a file or disk of a server, such as nbd://HOST/EXPORT
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// Only print what would be done
    #[arg(long)]
    pub plan: bool,
}

/// Flags of `runs`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower runs list
  halfpower runs show latest               facts, and a line for each point
  halfpower runs tag 12 before             compare it later as label:before
  halfpower runs merge host1.db host2.db   copies runs that halfpower.db lacks
  halfpower runs prune --older-than 365    lists old runs; --yes deletes them

Specify a run by its number, the beginning of its uuid, its label, or latest.")]
pub struct RunsArgs {
    /// The subcommand of `runs`.
    #[command(subcommand)]
    pub verb: RunsVerb,
    /// Results database
    #[arg(long, value_name = "FILE", default_value = "halfpower.db", global = true)]
    pub db: PathBuf,
    /// Only print what would be done
    #[arg(long, global = true)]
    pub plan: bool,
}

/// Subcommands of `runs`.
#[derive(Subcommand, Debug, Clone)]
pub enum RunsVerb {
    /// List stored runs, newest first
    List {
        /// Print one JSON document instead of text
        #[arg(long)]
        json: bool,
    },
    /// Show a run with all its points
    Show {
        /// The run: its number, the beginning of its uuid, its label, or latest
        run: String,
    },
    /// Set the label of a run, or remove it
    Tag {
        /// The run: its number, the beginning of its uuid, its label, or latest
        run: String,
        /// The new label (default: remove the label)
        label: Option<String>,
    },
    /// Set or remove the note on a run; runs show prints it
    Note {
        /// The run: its number, the beginning of its uuid, its label, or latest
        run: String,
        /// The new note (default: remove the note)
        text: Option<String>,
    },
    /// List the runs to delete; with --yes, delete them
    Prune {
        /// The runs to delete
        runs: Vec<String>,
        /// Delete runs older than this number of days
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(..=36500))]
        older_than: Option<u32>,
        /// Delete all runs except the newest N; with --older-than, delete only runs that both
        /// options select
        #[arg(long, value_name = "N")]
        keep: Option<usize>,
        /// Delete the runs instead of listing them
        #[arg(long)]
        yes: bool,
    },
    /// Copy runs from other databases if this database does not have them yet
    Merge {
        /// Databases to read
        #[arg(required = true)]
        from: Vec<PathBuf>,
    },
    /// Return the space of deleted runs to the file system
    Vacuum,
}

/// Flags of `selftest`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower selftest                   true value, measured value and error of each quantity, 1 min
  halfpower selftest --device delay    without the kernel: only the load generator and statistics

Exit codes: 0 if all quantities are within their limits, 5 if some are not.")]
pub struct SelftestArgs {
    /// Kind of reference device: fuse (default where FUSE is available) or delay
    #[arg(long, value_name = "fuse|delay", hide_possible_values = true,
          value_parser = PossibleValuesParser::new(["fuse", "delay"]).map(|word| source(&word)))]
    pub device: Option<Source>,
    /// Check only quantities whose name contains this word, such as latency or cache
    #[arg(long, value_name = "WORD")]
    pub only: Option<String>,
    /// How results are printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// A paper that can be reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PaperName {
    /// Riedel, van Ingen, Gray: A Performance Study of Sequential I/O on Windows NT 4.0 (1997)
    Riedel97,
    /// Chung, Gray, Worthington, Horst: Windows 2000 Disk IO Performance (2000)
    Chung2000,
}

/// Flags of `reproduce`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower reproduce riedel97              all figures and tables, simulated next to published
  halfpower reproduce riedel97 --figure 6   one figure; tables are t1, t2 ...
  halfpower reproduce riedel97 --leave-out  each figure, predicted by a fit without this figure
  halfpower reproduce chung2000 --claims    every number in the text, with its simulated value

Each cell has the simulated value, the published value and the error. Nothing is measured: the
machines are simulated.")]
pub struct ReproduceArgs {
    /// The paper to reproduce
    #[arg(value_name = "PAPER")]
    pub paper: PaperName,
    /// Reproduce only this figure (such as 6) or table (such as t3)
    #[arg(long, value_name = "N", conflicts_with = "claims")]
    pub figure: Option<String>,
    /// Reproduce only the claims in the text of the paper
    #[arg(long)]
    pub claims: bool,
    /// Predict each figure with parameters fitted only to the other figures
    #[arg(long, conflicts_with_all = ["claims", "figure", "json"])]
    pub leave_out: bool,
    /// How results are printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Flags of `clean`.
#[derive(Args, Debug, Clone)]
pub struct CleanArgs {
    /// Print what would be removed and remove nothing
    #[arg(long)]
    pub plan: bool,
}

/// Flags of `restore`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower restore --plan     show the settings that a killed run left changed
  halfpower restore            restore these settings (needs root)

A run restores the settings that --scheduler, --read-ahead and the other flags under Host changed.
If the run was killed, use this command. Settings that were changed again since then are left
alone.")]
pub struct RestoreArgs {
    /// Print what would be restored and restore nothing
    #[arg(long)]
    pub plan: bool,
}

/// Flags of `generate`.
#[derive(Args, Debug, Clone)]
pub struct GenerateArgs {
    /// What to print: man, schema, papers, or completions for bash, zsh, fish, elvish
    pub what: String,
    /// Only print what would be done
    #[arg(long)]
    pub plan: bool,
}

/// Parses `fuse` or `delay`; clap accepts nothing else.
fn source(word: &str) -> Source {
    if word == Source::Delay.name() { Source::Delay } else { Source::Fuse }
}

/// Replaces underscores in flag names by dashes (`--time_based`). Values, and arguments after `--`,
/// are unchanged. SQLIO's flags become values of `--sqlio`.
pub fn normalise(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut literal = false;
    let dashed = args.map(|arg| {
        literal |= arg == "--";
        let Some(text) = arg.to_str().filter(|text| text.starts_with("--") && !literal) else {
            return arg;
        };
        match text.split_once('=') {
            Some((name, value)) => format!("{}={value}", name.replace('_', "-")).into(),
            None => text.replace('_', "-").into(),
        }
    });
    classic::name_flags(dashed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use ioengine::EngineKind;
    use lab::experiment::RateProcess;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        let words = std::iter::once("halfpower").chain(line.split_whitespace());
        Cli::try_parse_from(normalise(words.map(OsString::from)))
    }

    fn run(line: &str) -> RunArgs {
        match parse(line).unwrap().verb {
            Verb::Run(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_table_of_flags_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn both_spellings_and_all_forms_of_booleans_are_understood() {
        let experiment = |line| run(line).experiment().unwrap();
        assert!(experiment("run . --time_based --runtime=3").time_based);
        assert!(experiment("run . --time-based=1 --runtime 3").time_based);
        assert!(!experiment("run . --time_based=0").time_based);
        assert_eq!(experiment("run . --direct").direct, Some(true));
        assert_eq!(experiment("run . --direct=0").direct, Some(false));
        assert_eq!(experiment("run . --rate_iops=100").rate_iops, Some(100.0));
        assert_eq!(experiment("run . --rate_process=poisson").rate_process, RateProcess::Poisson);
    }

    #[test]
    fn values_keep_their_underscores() {
        let experiment = run("run . --ioengine=io_uring --label=a_b").experiment().unwrap();
        assert_eq!(experiment.engine_kinds, [Some(EngineKind::IoUring)]);
        let args = normalise(["--", "--keep_this"].map(OsString::from).into_iter());
        assert_eq!(args[1], "--keep_this");
    }

    #[test]
    fn a_flag_given_twice_takes_its_last_value_and_lists_grow() {
        let args = run("run . --bs 4k --json --bs 8k --json --overwrite a --overwrite b");
        assert_eq!(args.experiment().unwrap().request_bytes, Some(vec![8192]));
        assert!(args.common.json);
        assert_eq!(args.common.overwrite.len(), 2);
    }

    #[test]
    fn a_wrong_flag_is_refused() {
        assert!(parse("run . --iodept 3").is_err());
        assert!(parse("survey --quick --thorough").is_err());
        assert!(parse("nonsense").is_err());
    }
}
