//! `cargo xtask bench`: compares halfpower with other tools on this machine.
//!
//! Absolute figures drift by tens of percent from hour to hour. The compared tools therefore run in
//! turns, in alternating order, and their limits apply to ratios of neighbouring runs.
//!
//! - `peers` compares the load generator with fio, each pinned to one core. Its cases are `null`
//!   (overhead of the generator), `holes` (a sparse file, the fastest storage), `seq` (large direct
//!   reads), `agree` (same results as fio under the same conditions) and `simulator` (CPU cost of
//!   simulations, without fio). It needs fio 3.33 or later and taskset. Its limits are valid only
//!   if `--dir` is on ext4.
//! - `seqio` compares streams of the crate seqio with fio, dd, cat and cp.
//! - `mpi` compares halfpower with IOR, both with several MPI processes.
//! - `store` measures how long commands take on a large results database.
//! - `fleet` measures time and memory of commands on the results of thousands of hosts.
//!
//! The release program is built first, unless `--program` specifies another program. Results are
//! printed. With `--write`, `mpi`, `store` and `fleet` also write them into the documentation.

pub mod statistics;

pub mod clock;
pub mod turns;
pub mod host;
pub mod tool;

mod cases;
mod table;

mod streams;
mod hugepages;
mod mpi;
mod rivals;
mod scattered;
mod seqio;
mod store;
mod fleet;

use crate::repository;
use anyhow::{Context, Result, bail};
use cases::{Bench, Case};
use nix::sys::resource::{UsageWho, getrusage};
use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The benchmarks.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Compare halfpower with fio; exits with 1 if a limit is missed
    Peers(Peers),
    /// Compare the crate seqio with fio, dd, cat and cp; exits with 1 if a limit is missed
    Seqio(Seqio),
    /// Compare halfpower with IOR, both with several processes; exits with 1 if a limit is missed
    Mpi(MpiOptions),
    /// Time commands on a large results database; exits with 1 if a limit is missed
    Store(StoreOptions),
    /// Measure time and memory for a large fleet of hosts; exits with 1 if a limit is missed
    Fleet(FleetOptions),
    /// Run a command and print its peak memory (KiB)
    #[command(hide = true)]
    Peak(Peak),
}

/// Options of `bench peers`. The limits are chosen for the default values.
#[derive(clap::Args)]
pub struct Peers {
    /// Number of rounds of each case; every tool runs once per round
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Duration of one run (s)
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Folder for temporary test files, which are removed at the end (needs 3 GiB)
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Run only this case; repeatable
    #[arg(long, value_enum)]
    only: Vec<Case>,
    /// Path of fio's t/io_uring, a minimal I/O loop [default: `fio-t-io_uring` on the PATH]
    #[arg(long)]
    t_io_uring: Option<PathBuf>,
}

/// Options of `bench seqio`. The limits are chosen for the default values.
#[derive(clap::Args)]
pub struct Seqio {
    /// Number of rounds of each case; every tool runs once per round
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Folder for temporary test files, which are removed at the end (needs 4 times `--size`)
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Run only this case; repeatable
    #[arg(long, value_enum)]
    only: Vec<seqio::Case>,
    /// Size of the test file, at least 64m and a multiple of 32m
    #[arg(long, default_value = "2g", value_parser = size_bytes)]
    size: u64,
}

/// Options of `bench mpi`. The limits are chosen for the default values.
#[derive(clap::Args)]
pub struct MpiOptions {
    /// Number of rounds of each case; every tool runs once per round
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Number of MPI processes
    #[arg(long, default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(2..=mpi::RANKS_MAX as i64))]
    ranks: u32,
    /// Folder for temporary test files, which are removed at the end
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Run only this case; repeatable
    #[arg(long, value_enum)]
    only: Vec<mpi::Case>,
    /// Total amount of data of all processes, at least 64m and a multiple of 32m
    #[arg(long, default_value = "1g", value_parser = size_bytes)]
    size: u64,
    /// Path of IOR [default: `ior` on the PATH]
    #[arg(long)]
    ior: Option<PathBuf>,
    /// Test this program, built with MPI, instead of the release build
    #[arg(long)]
    program: Option<PathBuf>,
    /// Write the table into docs/measure.md
    #[arg(long, conflicts_with = "only")]
    write: bool,
}

/// Options of `bench store`. The time limits are chosen for the default values.
#[derive(clap::Args)]
pub struct StoreOptions {
    /// Number of runs in the database, each with 50 points of 10 trials
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..))]
    runs: u32,
    /// Folder for temporary test files, which are removed at the end (needs 3 GB)
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Test this program instead of the release build
    #[arg(long)]
    program: Option<PathBuf>,
    /// Write the table into docs/results.md
    #[arg(long)]
    write: bool,
}

/// Options of `bench fleet`. The limits are chosen for the default values.
#[derive(clap::Args)]
pub struct FleetOptions {
    /// Number of hosts in the large fleet
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(500..))]
    hosts: u32,
    /// Number of databases with one host each
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..))]
    databases: u32,
    /// Folder for temporary test files, which are removed at the end (needs 6 GB)
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Test this program instead of the release build
    #[arg(long)]
    program: Option<PathBuf>,
    /// Write the table into docs/compare.md
    #[arg(long)]
    write: bool,
}

/// Options of `bench peak`.
#[derive(clap::Args)]
pub struct Peak {
    /// Command to run, with its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Runs a benchmark and prints its table. Returns 0 if every limit is met, 1 if a limit is missed,
/// and 130 after Ctrl-C.
pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Peers(options) => peers(options),
        Command::Seqio(options) => seqio(options),
        Command::Mpi(options) => mpi(options),
        Command::Store(options) => store(options),
        Command::Fleet(options) => fleet(options),
        Command::Peak(options) => peak(options),
    }
}

fn store(options: &StoreOptions) -> Result<ExitCode> {
    let halfpower = options.program.clone().map_or_else(repository::release_build, Ok)?;
    in_a_folder(&options.dir, |folder, stop| {
        let (folder, runs) = (folder.to_path_buf(), options.runs);
        let (text, is_met) = store::Store { halfpower, folder, runs, stop }.run()?;
        print!("{text}");
        if options.write {
            repository::write_section("docs/results.md", "store", &text)?;
        }
        Ok(is_met)
    })
}

fn fleet(options: &FleetOptions) -> Result<ExitCode> {
    let halfpower = options.program.clone().map_or_else(repository::release_build, Ok)?;
    let (hosts, databases) = (options.hosts, options.databases);
    in_a_folder(&options.dir, |folder, stop| {
        let folder = folder.to_path_buf();
        let fleet = fleet::Fleet { halfpower, folder, hosts, databases, stop };
        let (text, is_met) = fleet.run()?;
        print!("{text}");
        if options.write {
            repository::write_section("docs/compare.md", "fleet", &text)?;
        }
        Ok(is_met)
    })
}

fn mpi(options: &MpiOptions) -> Result<ExitCode> {
    let installed = |names: &[&str]| names.iter().find_map(|name| host::on_path(name));
    let ior = options.ior.clone().or_else(|| installed(&["ior"]));
    let ior =
        ior.context("IOR is needed: build github.com/hpc/ior and pass its path with --ior")?;
    let ior = ior.canonicalize().with_context(|| format!("cannot find {}", ior.display()))?;
    if !options.size.is_multiple_of(u64::from(options.ranks) << 20) {
        bail!(
            "--size is not a multiple of {} MiB (1 MiB for each of the --ranks processes); use \
             --ranks 2, 4 or 8",
            options.ranks
        );
    }
    let mpirun = installed(&["mpirun.openmpi", "mpirun"]);
    let mpirun = mpirun.context("mpirun is needed: install `openmpi-bin libopenmpi-dev`")?;
    let program = options.program.as_ref().map(|program| program.canonicalize());
    let program = program.transpose().context("cannot find the program given with --program")?;
    let halfpower = program.map_or_else(repository::release_build_with_mpi, Ok)?;
    in_a_folder(&options.dir, |folder, stop| {
        let bench = mpi::Bench {
            rounds: options.pairs,
            ranks: options.ranks,
            bytes: options.size,
            folder: folder.to_path_buf(),
            halfpower,
            ior,
            mpirun,
            stop,
        };
        let (machine, ranks) = (host::machine(folder), options.ranks);
        let lead = format!("{machine}, {ranks} processes, {} MiB in total", options.size >> 20);
        println!("{lead}");
        let mut rows = Vec::new();
        for case in mpi::Case::ALL {
            if options.only.is_empty() || options.only.contains(&case) {
                rows.extend(bench.run(case)?);
            }
        }
        let table = table::render(&rows);
        print!("{table}");
        if options.write {
            let text = format!("`cargo xtask bench mpi` on {lead}:\n\n```\n{table}```");
            repository::write_section("docs/measure.md", "mpi", &text)?;
        }
        Ok(rows.iter().all(table::Row::is_passed))
    })
}

fn peers(options: &Peers) -> Result<ExitCode> {
    let halfpower = repository::release_build()?;
    in_a_folder(&options.dir, |folder, stop| {
        let bench = Bench {
            rounds: options.pairs,
            seconds: options.seconds,
            core: host::last_allowed_core()?,
            folder: folder.to_path_buf(),
            halfpower,
            t_io_uring: options.t_io_uring.clone().or_else(|| host::on_path("fio-t-io_uring")),
            stop,
        };
        println!("{}", host::description(&bench.folder, bench.core)?);
        measure(&bench, &options.only)
    })
}

fn seqio(options: &Seqio) -> Result<ExitCode> {
    in_a_folder(&options.dir, |folder, stop| {
        let random = RefCell::new(fastrand::Rng::new());
        let (rounds, folder) = (options.pairs, folder.to_path_buf());
        println!("{}, files of {} MiB", host::machine(&folder), options.size >> 20);
        let stage = streams::Stage { rounds, folder, stop, random };
        let (rows, skipped) = seqio::Lab::new(stage, options.size)?.run(&options.only)?;
        print!("{}", table::render(&rows));
        skipped.iter().for_each(|what| println!("skipped: {what}"));
        Ok(rows.iter().all(table::Row::is_passed))
    })
}

/// Runs a command and prints the peak memory of its largest process (KiB). This can be a child
/// process of the command.
fn peak(options: &Peak) -> Result<ExitCode> {
    let mut command = std::process::Command::new(&options.command[0]);
    let status = command.args(&options.command[1..]).stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot start {command:?}"))?;
    println!("{}", getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage failed")?.max_rss());
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs `work` in a temporary folder, which is removed afterwards, even after Ctrl-C. `work`
/// returns whether every limit is met.
fn in_a_folder(
    dir: &Path,
    work: impl FnOnce(&Path, Arc<AtomicBool>) -> Result<bool>,
) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    let folder = tempfile::Builder::new()
        .prefix("halfpower-bench-")
        .tempdir_in(dir)
        .with_context(|| format!("cannot create a folder in {}", dir.display()))?;
    let path = folder.path().canonicalize().context("cannot find the folder for test files")?;
    let outcome = work(&path, Arc::clone(&stop));
    folder.close().context("cannot remove the test files")?;
    if stop.load(Ordering::Relaxed) {
        eprintln!("interrupted; the test files are removed");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(if outcome? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Parses a size such as `2g` or `256m`. The size must be a multiple of 32 MiB, so that every tool
/// issues only whole requests.
fn size_bytes(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let shift = match &text[number.len()..] {
        "m" => 20,
        "g" => 30,
        _ => return Err("use a number with m or g, as in 2g".to_string()),
    };
    let number: u64 = number.parse().map_err(|_| format!("{number} is not a whole number"))?;
    match number.checked_mul(1 << shift) {
        Some(bytes) if bytes >= 64 << 20 && bytes % (32 << 20) == 0 => Ok(bytes),
        _ => Err("use a multiple of 32 MiB, at least 64m".to_string()),
    }
}

/// Runs the cases and prints their rows. Returns whether every limit is met.
fn measure(bench: &Bench, only: &[Case]) -> Result<bool> {
    let mut rows = Vec::new();
    for case in Case::ALL {
        if only.is_empty() || only.contains(&case) {
            rows.extend(bench.run(case)?);
        }
    }
    print!("{}", table::render(&rows));
    Ok(rows.iter().all(table::Row::is_passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_and_are_whole_requests() {
        assert_eq!(size_bytes("2g"), Ok(2 << 30));
        assert_eq!(size_bytes("256m"), Ok(256 << 20));
        for wrong in ["2", "m", "65m", "32m", "99999999999g", "2k", ""] {
            assert!(size_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
