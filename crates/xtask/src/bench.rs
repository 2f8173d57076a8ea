//! `cargo xtask bench`: halfpower beside its peers on this machine, by ratio.
//!
//! Absolute figures drift by tens of percent from hour to hour, so the contestants of a case take
//! turns, in alternating order, and only ratios of neighbouring runs are judged. `peers` holds the
//! load generator against fio, each pinned whole to one core; its cases: `null` (the generator's
//! own cost), `holes` (a file of holes, the cheapest storage), `seq` (large direct reads), `agree`
//! (the same figures as fio under the same conditions), `simulator` (what simulated requests cost,
//! without fio). `seqio` holds streams against fio, dd, cat and cp; see there. Both build the
//! release program first; `peers` needs fio 3.33 or later, taskset and, for the bars to mean what
//! they say, ext4 below `--dir`. They keep no results.

pub mod statistics;

mod clock;
mod turns;
pub mod host;
pub mod tool;

mod cases;
mod table;

mod streams;
mod hugepages;
mod rivals;
mod scattered;
mod seqio;

use crate::repository;
use anyhow::{Context, Result};
use cases::{Bench, Case};
use nix::sys::resource::{UsageWho, getrusage};
use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The benchmarks there are.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Reproduce the bars of halfpower against fio; 1 if one is missed
    Peers(Peers),
    /// Reproduce the bars of the crate seqio against fio, dd, cat and cp; 1 if one is missed
    Seqio(Seqio),
    /// Run a command and print the most memory that it held (KiB)
    #[command(hide = true)]
    Peak(Peak),
}

/// How to measure; the defaults are those that the bars are stated for.
#[derive(clap::Args)]
pub struct Peers {
    /// Rounds of each case; every contestant runs once in each
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Length of one run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Where the test files go, in a folder of their own that is removed at the end (3 GiB free)
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Only this case; may be given more than once
    #[arg(long, value_enum)]
    only: Vec<Case>,
    /// fio's t/io_uring, the leanest loop known [default: `fio-t-io_uring` on the PATH]
    #[arg(long)]
    t_io_uring: Option<PathBuf>,
}

/// How to measure streams; the defaults are those that the bars are stated for.
#[derive(clap::Args)]
pub struct Seqio {
    /// Rounds of each case; every contestant runs once in each
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Where the test files go, in a folder of their own that is removed at the end (4 times the
    /// size free)
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Only this case; may be given more than once
    #[arg(long, value_enum)]
    only: Vec<seqio::Case>,
    /// Size of the file, 64m at least
    #[arg(long, default_value = "2g", value_parser = size_bytes)]
    size: u64,
}

/// What to run.
#[derive(clap::Args)]
pub struct Peak {
    /// The command with its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// The exit code of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Measures and prints the table; 0 if every bar is met, 1 if one is missed, 130 after Ctrl-C.
pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Peers(options) => peers(options),
        Command::Seqio(options) => seqio(options),
        Command::Peak(options) => peak(options),
    }
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

/// The children that were waited for are this command, and what it waited for.
fn peak(options: &Peak) -> Result<ExitCode> {
    let mut command = std::process::Command::new(&options.command[0]);
    let status = command.args(&options.command[1..]).stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot start {command:?}"))?;
    println!("{}", getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage failed")?.max_rss());
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Does the work in a folder that is removed after it, also after Ctrl-C; the exit code says
/// whether every bar is met.
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
        .with_context(|| format!("cannot make a folder in {}", dir.display()))?;
    let path = folder.path().canonicalize().context("the folder for test files vanished")?;
    let outcome = work(&path, Arc::clone(&stop));
    folder.close().context("cannot remove the test files")?;
    if stop.load(Ordering::Relaxed) {
        eprintln!("interrupted; the test files are removed");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(if outcome? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A size as people write it: `2g`, `256m`; whole MiB, so that every tool has whole requests.
fn size_bytes(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let shift = match &text[number.len()..] {
        "m" => 20,
        "g" => 30,
        _ => return Err("a number with m or g, as in 2g".to_string()),
    };
    let number: u64 = number.parse().map_err(|_| format!("{number} is no whole number"))?;
    match number.checked_mul(1 << shift) {
        Some(bytes) if bytes >= 64 << 20 && bytes % (32 << 20) == 0 => Ok(bytes),
        _ => Err("a multiple of 32 MiB, 64m at least".to_string()),
    }
}

/// Runs the cases and prints their rows; whether every bar is met.
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
