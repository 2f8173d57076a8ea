//! What can be typed: verbs and flags, and nothing else. What they mean is decided elsewhere.
//!
//! Flags carry fio's names where fio has one. Either spelling is understood (`--time-based`,
//! `--time_based`), and booleans stand bare or with `=0` or `=1`.

pub mod calibrate;
pub mod classic;
pub mod copy;
pub mod memory;
pub mod mount;
mod parameters;
pub mod simulate;
pub mod inputs;
pub mod study;
pub mod tune;
pub mod whatif;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{Args, Parser, Subcommand, ValueEnum};
use ioengine::BufferPages;
use lab::experiment::Experiment;
use lab::experiment::parameters as experiment_parameters;
use lab::failure::{Failure, Outcome};
use lab::guard::Consent;
use lab::recorder::RunOptions;
use lab::selftest::devices::Source;
use survey::app::{self, App};

use self::parameters::ParameterArgs;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// A storage I/O laboratory: what does the hardware promise, what does an application get, what
/// does it cost in CPU, what is the limit, and what should the application change.
#[derive(Parser, Debug)]
#[command(name = "halfpower", version, styles = STYLES, max_term_width = 100)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:
  halfpower survey                     characterise the file system of this directory
  halfpower survey /data --quick       the same for /data in about 20 s
  halfpower run /data --rw randread --bs 4k --iodepth 32
  halfpower engines                    what this kernel offers
  halfpower target /data               what lies beneath /data, and whether it is safe to write

Exit codes: 0 ok, 1 run failed, 2 usage, 3 refused for safety, 4 data verification failed,
5 completed but the result is invalid, 6 regression found, 130 interrupted.")]
pub struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Characterise a target in a minute or two: findings, database and report
    Survey(SurveyArgs),
    /// Measure one workload
    Run(RunArgs),
    /// Measure the product of lists of request sizes, depths, threads ...
    Sweep(RunArgs),
    /// One experiment of the papers, or all of them, on any target
    Study(Box<study::StudyArgs>),
    /// Ask a simulated system what a workload would give, and what would limit it
    Simulate(Box<simulate::SimulateArgs>),
    /// Memory and cache bandwidth: kernels by working set and threads, caches, files in memory
    Memory(memory::MemoryArgs),
    /// Run any command and bound the CPU that it cost, from below and from above
    Soak(SoakArgs),
    /// The papers' tools by name: sqlio, memspeed, diskcache, cacheflush, soaker, cmdgen
    Classic(Box<classic::ClassicArgs>),
    /// Which I/O engines this host offers, and why one is missing
    Engines(EnginesArgs),
    /// What a target is, layer by layer, and whether writing to it is safe
    Target(TargetArgs),
    /// Write the page of a stored survey again
    Report(ReportArgs),
    /// List stored runs
    Runs(RunsArgs),
    /// Hold the instrument against devices whose truth is known
    Selftest(SelftestArgs),
    /// Fit a simulated system to a stored run
    Calibrate(calibrate::CalibrateArgs),
    /// Run the figures and claims of a paper again, in the simulator
    Reproduce(ReproduceArgs),
    /// What a change to a simulated system or its load would do
    Whatif(whatif::WhatifArgs),
    /// Copy files, trees and devices at the speed of the storage: durable, whole or not at all
    Copy(copy::CopyArgs),
    /// Serve a simulated system or a reference device as a real file, until Ctrl-C
    Mount(mount::MountArgs),
    /// Print files, read as fast as their storage can
    Cat(inputs::CatArgs),
    /// BLAKE3 of files and directories, or whether they are as they were
    Checksum(inputs::ChecksumArgs),
    /// Find the cheapest request size and depth within 3% of the best rate, and keep it
    Tune(tune::TuneArgs),
    /// Remove test files and mounts that a killed program left behind
    Clean(CleanArgs),
    /// Put back settings of devices that a killed run left changed
    Restore(RestoreArgs),
    /// Print a manual page, shell completions or the JSON Schema
    #[command(hide = true)]
    Generate(GenerateArgs),
    /// Burn CPU for each byte on standard input
    #[command(hide = true)]
    Assist(AssistArgs),
}

/// Flags of every verb that measures.
#[derive(Args, Debug, Clone)]
pub struct CommonArgs {
    /// Print one JSON document instead of text
    #[arg(long, default_value_t = false, help_heading = "Output")]
    pub json: bool,
    /// Say nothing but warnings and errors
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
    /// Print what would be done (bytes, writes, time, what is touched) and do nothing
    #[arg(long, help_heading = "Output")]
    pub plan: bool,
    /// Where results are kept
    #[arg(long, value_name = "FILE", default_value = "halfpower.db", help_heading = "Output")]
    pub db: PathBuf,
    /// Keep no database
    #[arg(long, help_heading = "Output")]
    pub no_store: bool,
    /// A name for this run
    #[arg(long, alias = "name", value_name = "TEXT", help_heading = "Output")]
    pub label: Option<String>,
    /// Seed of every random choice
    #[arg(long, alias = "randseed", default_value_t = 42, help_heading = "Workload")]
    pub seed: u64,
    /// What the hardware promises, such as 600MB/s: half of it is the half-power point
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate, help_heading = "Workload")]
    pub pap: Option<f64>,
    /// Memory pages behind the buffers
    #[arg(long, value_name = "huge|4k", default_value = "huge", help_heading = "Workload",
          value_parser = experiment_parameters::buffer_pages)]
    pub buffer_pages: BufferPages,
    /// Measure holes and unwritten blocks without calling the result invalid
    #[arg(long, value_name = "0|1",
          help_heading = "Safety", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = experiment_parameters::boolean,
          default_value = "false")]
    pub allow_holes: bool,
    /// Bytes that may be written to the drive in its life as rated, such as 600TB: --plan says
    /// which share of them goes
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "Safety")]
    pub endurance: Option<u64>,
    /// Allow writing to this existing file (exact path; repeatable)
    #[arg(long, value_name = "PATH", help_heading = "Safety")]
    pub overwrite: Vec<PathBuf>,
    /// Allow destroying the data on this device (by-id name, serial or kernel path)
    #[arg(long, value_name = "ID", help_heading = "Safety")]
    pub destroy_data_on: Vec<String>,
}

/// Flags of `run` and `sweep`. Where `sweep` takes a list, `run` takes one value.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower run . --rw randread --bs 4k --iodepth 32 --runtime 10
  halfpower run big.dat --rw read --bs 1m --iodepth 8 --direct=0
  halfpower run . --rw write --bs 64k --size 1g --verify
  halfpower run --ioengine null --bs 4k --iodepth 32     the instrument's own cost
  halfpower run --ioengine delay --truth fixed=1ms --iodepth 4
  halfpower run truth:fixed=1ms,rate=100MB/s --bs 64k    the same as a target; several are several
  halfpower run /dev/sdb /dev/sdc --chunk 64k --bs 128k --iodepth 3    the two striped into one
  halfpower run /dev/nvme1n1 --rw randread --bs 4k --iodepth 64 --numjobs 4
  halfpower sweep . --bs 4k,64k,1m --iodepth 1..32
  halfpower sweep sim:nt4-ultrawide,disks=4,volume=stripe --bs 4k,64k --iodepth 8
  halfpower sweep plan.toml --runtime 5                  flags as TOML: bs = [\"4k\", \"64k\"]

A directory gets a test file, which is removed afterwards. Reading needs no permission; writing
to an existing file needs --overwrite, to a device --destroy-data-on.")]
pub struct RunArgs {
    /// File, block device or directory; several at once get all threads each, unless --chunk makes
    /// one of them; or a simulated system: sim:SYSTEM,key=value,.. (halfpower simulate --list); or
    /// reference devices: truth:KEY=VALUE,.. with the keys of --truth
    #[arg(value_name = "TARGET")]
    pub targets: Vec<PathBuf>,
    /// fio's way to name a target
    #[arg(long, hide = true)]
    pub filename: Option<PathBuf>,
    /// What to measure and how.
    #[command(flatten)]
    pub parameters: ParameterArgs,
    /// See CommonArgs.
    #[command(flatten)]
    pub common: CommonArgs,
    /// fio's flag; results are always reported together
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub group_reporting: Option<String>,
    /// fio's flag; the random order of halfpower needs no map
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub norandommap: Option<String>,
    /// Of a plan with a quick form: fewer points and shorter trials
    #[arg(long, help_heading = "Time")]
    pub quick: bool,
    /// Of a plan with figures: where the page goes
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// The flags that came from a plan file, to be kept with the results.
    #[arg(skip)]
    pub planned: Vec<String>,
    /// The plan file with its text, where it is the plan of a study.
    #[arg(skip)]
    pub study_plan: Option<(PathBuf, String)>,
}

impl RunArgs {
    /// What is to be measured.
    ///
    /// # Errors
    /// None for what clap let through.
    pub fn experiment(&self) -> Outcome<Experiment> {
        let mut experiment = self.common.experiment();
        self.parameters.given.apply(&mut experiment)?;
        experiment.targets.extend(self.targets.iter().chain(&self.filename).cloned());
        Ok(experiment)
    }

    /// Refuses flags that only a plan file gives a meaning.
    ///
    /// # Errors
    /// Usage.
    pub fn check_without_plan(&self) -> Outcome<()> {
        if self.study_plan.is_some() || !self.planned.is_empty() {
            return Ok(());
        }
        if self.quick {
            return Err(Failure::usage(
                "--quick takes the quick form of a plan file, and there is none; drop it",
            ));
        }
        if self.html.is_some() {
            return Err(Failure::usage(
                "--html is for plan files with figures, and for survey; drop it",
            ));
        }
        Ok(())
    }
}

impl CommonArgs {
    /// An experiment that has nothing but what every verb says of it.
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

    /// What the user allowed to be written.
    pub fn consent(&self) -> Consent {
        let (overwrite, destroy_data_on) = (self.overwrite.clone(), self.destroy_data_on.clone());
        Consent { overwrite, destroy_data_on }
    }

    /// Where results are kept, under which name, and what the user says of the hardware.
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

A survey of a directory lays a test file out in it and removes it afterwards. It writes
halfpower.db and halfpower.html into the current directory.")]
pub struct SurveyArgs {
    /// Directory, file, block device or simulated system (sim:SYSTEM,key=value,..)
    #[arg(value_name = "TARGET", default_value = ".")]
    pub target: PathBuf,
    /// Time to spend
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, help_heading = "Time")]
    pub budget: Option<u64>,
    /// About 20 s: fewer points, wider intervals
    #[arg(long, conflicts_with_all = ["thorough", "budget"], help_heading = "Time")]
    pub quick: bool,
    /// About 10 min: more points, narrower intervals
    #[arg(long, conflicts_with = "budget", help_heading = "Time")]
    pub thorough: bool,
    /// Size of the test file (default: the least of 1 GiB (4 GiB from a budget of 5 min on), a
    /// tenth of the free space, half of --max-write and what a tenth of the budget can write)
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "Workload")]
    pub size: Option<u64>,
    /// What your program issues today, to price advice against: its request size, whether direct,
    /// its depth; such as 8k or 8k,direct,4 (default: buffered 64 KiB one at a time)
    #[arg(long, value_name = "REQUESTS", value_parser = app::parse, help_heading = "Workload")]
    pub app: Option<App>,
    /// Bytes to write at the most, test file included
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, default_value = "16g",
          help_heading = "Safety")]
    pub max_write: u64,
    /// Where the page goes
    #[arg(long, value_name = "FILE", default_value = "halfpower.html", help_heading = "Output")]
    pub html: PathBuf,
    /// See CommonArgs.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Flags of `soak`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower soak -- dd if=big.dat of=/dev/null bs=1M
  halfpower soak --settle 5 -- make          a steadier background
  halfpower soak --json -- sort big.txt > cost.json

The lower bound is what the system charges to the command and all that it started. The upper
bound is what idle-priority spinners lose meanwhile, less what they lose when nothing is run: it
holds kernel threads, interrupts and whatever was left to other processes too. The report goes to
stderr and the command's output through unchanged; with --json the document is on stdout and the
command's output on stderr. Ends as the command does; 127 not found, 126 not executable.")]
pub struct SoakArgs {
    /// Print one JSON document; the command's output goes to stderr
    #[arg(long)]
    pub json: bool,
    /// Say nothing but the report, warnings and errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Print what would be done and do nothing
    #[arg(long)]
    pub plan: bool,
    /// How long the background is watched before and after
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "1")]
    pub settle: u64,
    /// No soaker: the lower bound only, on an undisturbed machine
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
    /// Print what would be done and do nothing
    #[arg(long)]
    pub plan: bool,
}

/// Flags of `target`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower target .              from the file system down to the bus
  halfpower target /dev/nvme0n1
  halfpower target big.dat --json")]
pub struct TargetArgs {
    /// File, block device or directory
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// Print what would be done and do nothing
    #[arg(long)]
    pub plan: bool,
}

/// Flags of `report`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower report                     the latest survey of halfpower.db
  halfpower report 12 --html disk.html")]
pub struct ReportArgs {
    /// Which survey: its number, the beginning of its uuid, or latest
    #[arg(value_name = "RUN", default_value = "latest")]
    pub run: String,
    /// Where results are kept
    #[arg(long, value_name = "FILE", default_value = "halfpower.db")]
    pub db: PathBuf,
    /// Where the page goes
    #[arg(long, value_name = "FILE", default_value = "halfpower.html")]
    pub html: PathBuf,
    /// Print what would be done and do nothing
    #[arg(long)]
    pub plan: bool,
}

/// Flags of `runs`.
#[derive(Args, Debug, Clone)]
pub struct RunsArgs {
    /// What to do with them
    #[command(subcommand)]
    pub verb: RunsVerb,
}

/// What to do with stored runs.
#[derive(Subcommand, Debug, Clone)]
pub enum RunsVerb {
    /// List them, newest first
    List {
        /// Where results are kept
        #[arg(long, value_name = "FILE", default_value = "halfpower.db")]
        db: PathBuf,
        /// Print one JSON document instead of text
        #[arg(long)]
        json: bool,
        /// Print what would be done and do nothing
        #[arg(long)]
        plan: bool,
    },
}

/// Flags of `selftest`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower selftest                   truth, measured and error of each quantity, in a minute
  halfpower selftest --device delay    without the kernel: only the generator and its statistics

Exit codes: 0 all within their bars, 5 some are not.")]
pub struct SelftestArgs {
    /// Where the devices come from: fuse (the default, where it can be had) or delay
    #[arg(long, value_name = "fuse|delay", hide_possible_values = true,
          value_parser = PossibleValuesParser::new(["fuse", "delay"]).map(|word| source(&word)))]
    pub device: Option<Source>,
    /// Only the quantities whose name holds this word, such as latency or cache
    #[arg(long, value_name = "WORD")]
    pub only: Option<String>,
    /// Print one JSON document instead of a table
    #[arg(long)]
    pub json: bool,
    /// Say nothing but warnings and errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Print what would be done and do nothing
    #[arg(long)]
    pub plan: bool,
}

/// A paper that can be run again.
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
  halfpower reproduce riedel97              every figure and table beside what was published
  halfpower reproduce riedel97 --figure 6   one of them; tables are t1, t2 ...
  halfpower reproduce chung2000 --claims    every number of the prose, and what came of it

Cells are simulated, published and error. Nothing is measured: the machines are simulated.")]
pub struct ReproduceArgs {
    /// The paper
    #[arg(value_name = "PAPER")]
    pub paper: PaperName,
    /// Only this figure, such as 6, or table, such as t3
    #[arg(long, value_name = "N", conflicts_with = "claims")]
    pub figure: Option<String>,
    /// Only the claims of the prose, all of them
    #[arg(long)]
    pub claims: bool,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// As without it: nothing is said but the result and errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Print what would be done and do nothing
    #[arg(long)]
    pub plan: bool,
}

/// Flags of `assist`.
#[derive(Args, Debug, Clone)]
pub struct AssistArgs {
    /// CPU time for each byte
    #[arg(value_name = "TIME", value_parser = units::parse_duration)]
    pub cpu_ns: u64,
}

/// Flags of `clean`.
#[derive(Args, Debug, Clone)]
pub struct CleanArgs {
    /// Say what would be removed and remove nothing
    #[arg(long)]
    pub plan: bool,
}

/// Flags of `restore`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower restore --plan     what a killed run left changed
  halfpower restore            put it back (root)

A run puts back what --scheduler, --read-ahead and the other flags under Host changed, however it
ends; only a kill leaves it to this verb. A value that somebody else has set since stays.")]
pub struct RestoreArgs {
    /// Say what would be put back and put nothing back
    #[arg(long)]
    pub plan: bool,
}

/// Flags of `generate`.
#[derive(Args, Debug, Clone)]
pub struct GenerateArgs {
    /// What to print: man, schema, or completions for bash, zsh, fish, elvish
    pub what: String,
    /// Print what would be done and do nothing
    #[arg(long)]
    pub plan: bool,
}

/// A wrong value of a flag in one line: "--bs 4x: '4x' is not a size; write 4k, ..". None for any
/// other error.
pub fn wrong_value(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.as_str()),
        _ => None,
    };
    let flag = text(ContextKind::InvalidArg)?.split(' ').next()?;
    let value = text(ContextKind::InvalidValue)?;
    let why = std::error::Error::source(error)?.to_string();
    let remedy = if why.contains("; ") { "" } else { "; --help says what fits" };
    Some(format!("{flag} {value}: {why}{remedy}"))
}

/// One of the two words that clap lets through.
fn source(word: &str) -> Source {
    if word == Source::Delay.name() { Source::Delay } else { Source::Fuse }
}

/// Accepts `--time_based` for `--time-based`: underscores in a flag's name become dashes, its
/// value stays as it is, and nothing changes behind a bare `--`. SQLIO's flags get a name.
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
