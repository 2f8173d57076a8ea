//! What can be typed: verbs and flags, and nothing else. What they mean is decided elsewhere.
//!
//! Flags carry fio's names where fio has one. Either spelling is understood (`--time-based`,
//! `--time_based`), and booleans stand bare or with `=0` or `=1`.

pub mod calibrate;
pub mod classic;
pub mod copy;
pub mod engine;
pub mod memory;
pub mod mount;
pub mod simulate;
pub mod skew;
pub mod inputs;
pub mod study;
pub mod tune;
pub mod whatif;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum};
use ioengine::fault::FaultPlan;
use ioengine::truth::Truth;

use crate::app::{self, App};
use crate::{truth, units};

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
    /// Serve a simulated system or a device of known truth as a real file, until Ctrl-C
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
    #[arg(long, value_name = "huge|4k", default_value = "huge", help_heading = "Workload")]
    pub buffer_pages: String,
    /// Measure holes and unwritten blocks without calling the result invalid
    #[arg(long, value_name = "0|1",
          help_heading = "Safety", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = parse_bool, default_value = "false")]
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
    /// devices of known truth: truth:KEY=VALUE,.. with the keys of --truth
    #[arg(value_name = "TARGET")]
    pub targets: Vec<PathBuf>,
    /// fio's way to name a target
    #[arg(long, hide = true)]
    pub filename: Option<PathBuf>,
    /// read, write, rw, randread, randwrite or randrw
    #[arg(
        long,
        alias = "readwrite",
        value_name = "KIND",
        default_value = "read",
        help_heading = "Workload"
    )]
    pub rw: String,
    /// Request size (default 4k)
    #[arg(long, alias = "blocksize", value_name = "SIZE", help_heading = "Workload")]
    pub bs: Option<String>,
    /// Requests outstanding in each thread
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Workload")]
    pub iodepth: String,
    /// Threads
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Workload")]
    pub numjobs: String,
    /// How requests are issued: auto, null, delay, sync, mmap, threads, libaio, io_uring
    #[arg(long, value_name = "NAME", default_value = "auto", help_heading = "Workload")]
    pub ioengine: String,
    /// The device of known truth behind --ioengine delay, such as fixed=500us,rate=500MB/s; keys:
    /// fixed, rate, parallel, cache, prefetch, hit, buffer, drain, credit, sustained; span and
    /// zones (rates by position: 200MB/s@40/100MB/s@100); granule, rmw, straddle; members and
    /// chunk (a stripe); link; cpu. As a target: truth:KEY=VALUE,..
    #[arg(long, value_name = "KEY=VALUE,..", value_parser = truth::parse_truth,
          help_heading = "Known truth")]
    pub truth: Option<Truth>,
    /// Let chosen requests of each thread fail or lie, to see what becomes of them: eio, enospc,
    /// eagain, eintr, short:SIZE, late:COUNT, hang:TIME, twice, never, flip, lose,
    /// misdirect:SIZE, tear; as in write-lose@100x3
    #[arg(long, value_name = "KIND@N,..", value_parser = truth::parse_faults,
          help_heading = "Known truth")]
    pub inject: Option<FaultPlan>,
    /// Bypass the page cache (default: where the target allows it)
    #[arg(long, value_name = "0|1",
          num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = parse_bool, help_heading = "Workload")]
    pub direct: Option<bool>,
    /// Every write is durable before it completes (O_DSYNC)
    #[arg(long, alias = "sync", value_name = "0|1", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = parse_bool, default_value = "false",
          help_heading = "Workload")]
    pub write_through: bool,
    /// Share of reads in a mix (percent)
    #[arg(long, value_name = "PERCENT", default_value = "50", help_heading = "Workload")]
    pub rwmixread: String,
    /// Visit every so many bytes instead of every block
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "Workload")]
    pub stride: Option<u64>,
    /// Region of the target to work on (default: all of it; of a directory: a test file)
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "Workload")]
    pub size: Option<u64>,
    /// Stripe the targets into one, so many bytes on each in turn; requests are cut between them
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "Workload")]
    pub chunk: Option<u64>,
    /// Where the region begins
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, default_value = "0",
          help_heading = "Workload")]
    pub offset: u64,
    /// own: each thread its own part of the region; shared: all on all of it; interlocked: all
    /// together one sequential stream
    #[arg(
        long,
        value_name = "own|shared|interlocked",
        default_value = "own",
        help_heading = "Workload"
    )]
    pub placement: String,
    /// preallocated: blocks were written before; extend: writes grow a new file; truncate: a
    /// written file is cut to nothing before each trial; fallocate: blocks of a new file are
    /// reserved; last-block: its last block is written before the others
    #[arg(
        long,
        value_name = "preallocated|extend|truncate|fallocate|last-block",
        default_value = "preallocated",
        help_heading = "Workload"
    )]
    pub allocation: String,
    /// Hint to the kernel: normal, sequential, random, noreuse, willneed, dontneed
    #[arg(long, alias = "fadvise-hint", value_name = "HINT", help_heading = "Workload")]
    pub hint: Option<String>,
    /// Take the target out of the page cache before buffered reads
    #[arg(long, value_name = "0|1",
          num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = parse_bool, default_value = "true", help_heading = "Workload")]
    pub invalidate: bool,
    /// What buffered requests find in the page cache. cold: nothing, writes neither; warm: all of
    /// the region, read just before. Default: reads nothing, writes what the last trial left
    #[arg(long, value_name = "cold|warm", value_parser = ["cold", "warm"],
          help_heading = "Workload")]
    pub page_cache: Option<String>,
    /// Length of a trial (default 5 s where no --size is given)
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, help_heading = "Time")]
    pub runtime: Option<u64>,
    /// Start over at the end of the region until --runtime is over
    #[arg(long, value_name = "0|1",
          num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = parse_bool, default_value = "false", help_heading = "Time")]
    pub time_based: bool,
    /// Warm-up that is not counted
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "0",
          help_heading = "Time")]
    pub ramp_time: u64,
    /// Warm up until the rate is steady (5 s within 20%, slope within 10%), at most 10 minutes
    #[arg(long, help_heading = "Time")]
    pub steady_state: bool,
    /// How often to measure
    #[arg(long, default_value_t = 3, help_heading = "Time")]
    pub trials: u32,
    /// Open loop: issue at this rate over all threads [requests per second]
    #[arg(long, value_name = "RATE", help_heading = "Workload")]
    pub rate_iops: Option<f64>,
    /// linear: at equal distances; poisson: at random, as many independent users do
    #[arg(
        long,
        value_name = "linear|poisson",
        default_value = "linear",
        help_heading = "Workload"
    )]
    pub rate_process: String,
    /// Latency percentiles to print, and to require enough requests for (default 50,99)
    #[arg(long, alias = "percentile-list", value_name = "P,P", help_heading = "Output")]
    pub percentile: Option<String>,
    /// Pin threads to these CPUs: 0,2 or 0-3
    #[arg(long, value_name = "LIST", help_heading = "Workload")]
    pub cpus_allowed: Option<String>,
    /// Write zeros instead of incompressible data
    #[arg(long, help_heading = "Workload")]
    pub zero_buffers: bool,
    /// Write checksummed blocks and read them back; with reads, check them
    #[arg(long, help_heading = "Workload")]
    pub verify: bool,
    /// Alternate trials with an idle-priority soaker: the upper bound of the CPU cost
    #[arg(long, help_heading = "Workload")]
    pub soaker: bool,
    /// See SkewArgs.
    #[command(flatten)]
    pub skew: skew::SkewArgs,
    /// See EngineArgs.
    #[command(flatten)]
    pub engine: engine::EngineArgs,
    /// See HostArgs.
    #[command(flatten)]
    pub host: HostArgs,
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
    /// What was typed beside the plan of a study.
    #[arg(skip)]
    pub typed: Vec<OsString>,
    /// The plan file with its text, where it is the plan of a study.
    #[arg(skip)]
    pub study_plan: Option<(PathBuf, String)>,
}

/// Settings of the block device beneath the target, changed for the run and put back (root).
#[derive(Args, Debug, Clone)]
pub struct HostArgs {
    /// I/O scheduler of the device during the run, put back afterwards (root)
    #[arg(long, value_name = "NAME", help_heading = "Host")]
    pub scheduler: Option<String>,
    /// Read-ahead window of the device during the run (root)
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "Host")]
    pub read_ahead: Option<u64>,
    /// What the kernel believes of the device's write cache: with through it sends no flushes.
    /// The drive's own setting is not touched, so data may be lost at a power failure (root)
    #[arg(long, value_name = "back|through", value_parser = ["back", "through"],
          help_heading = "Host")]
    pub kernel_write_cache: Option<String>,
    /// Requests that the device's queue holds during the run (root)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(4..),
          help_heading = "Host")]
    pub nr_requests: Option<u32>,
    /// Merging of requests: 0 all, 1 simple merges only, 2 none (root)
    #[arg(long, value_name = "0|1|2", value_parser = clap::value_parser!(u8).range(0..=2),
          help_heading = "Host")]
    pub nomerges: Option<u8>,
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

/// Where devices of known truth come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// A file over FUSE: every request goes through the kernel.
    Fuse,
    /// In this process: the generator and its statistics without any kernel.
    Delay,
}

/// Flags of `selftest`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower selftest                   truth, measured and error of each quantity, in a minute
  halfpower selftest --device delay    without the kernel: only the generator and its statistics

Exit codes: 0 all within their bars, 5 some are not.")]
pub struct SelftestArgs {
    /// Where the devices come from: fuse (the default, where it can be had) or delay
    #[arg(long, value_name = "fuse|delay")]
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

/// Reads 0, 1, false, true, no, yes.
fn parse_bool(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("write 0 or 1".to_owned()),
    }
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
        assert!(run("run . --time_based --runtime=3").time_based);
        assert!(run("run . --time-based=1 --runtime 3").time_based);
        assert!(!run("run . --time_based=0").time_based);
        assert_eq!(run("run . --direct").direct, Some(true));
        assert_eq!(run("run . --direct=0").direct, Some(false));
        assert_eq!(run("run . --rate_iops=100").rate_iops, Some(100.0));
        assert_eq!(run("run . --rate_process=poisson").rate_process, "poisson");
    }

    #[test]
    fn values_keep_their_underscores() {
        assert_eq!(run("run . --ioengine=io_uring --label=a_b").ioengine, "io_uring");
        let args = normalise(["--", "--keep_this"].map(OsString::from).into_iter());
        assert_eq!(args[1], "--keep_this");
    }

    #[test]
    fn a_flag_given_twice_takes_its_last_value_and_lists_grow() {
        let args = run("run . --bs 4k --json --bs 8k --json --overwrite a --overwrite b");
        assert!(args.common.json && args.bs.as_deref() == Some("8k"));
        assert_eq!(args.common.overwrite.len(), 2);
    }

    #[test]
    fn a_wrong_flag_is_refused() {
        assert!(parse("run . --iodept 3").is_err());
        assert!(parse("survey --quick --thorough").is_err());
        assert!(parse("nonsense").is_err());
    }
}
