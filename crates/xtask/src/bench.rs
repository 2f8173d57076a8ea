//! `cargo xtask bench peers`: halfpower beside fio on this machine, by ratio.
//!
//! Absolute figures drift by tens of percent from hour to hour, so the contestants of a case take
//! turns, in alternating order, each pinned whole to one core, and only ratios of neighbouring
//! runs are judged. The cases: `null` (the generator's own cost), `holes` (a file of holes, the
//! cheapest storage), `seq` (large direct reads), `agree` (the same figures as fio under the same
//! conditions), `simulator` (what simulated requests cost, without fio). Builds the release program
//! first; needs fio 3.33 or later, taskset and, for the bars to mean what they say, ext4 below
//! `--dir`. It keeps no results.

mod statistics;

pub mod host;
mod tool;

mod cases;
mod table;

use crate::repository;
use anyhow::{Context, Result};
use cases::{Bench, Case};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The benchmarks there are.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Reproduce the bars of halfpower against fio; 1 if one is missed
    Peers(Peers),
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

/// The exit code of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Measures and prints the table; 0 if every bar is met, 1 if one is missed, 130 after Ctrl-C.
pub fn run(command: &Command) -> Result<ExitCode> {
    let Command::Peers(options) = command;
    let halfpower = repository::release_build()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    let folder = tempfile::Builder::new()
        .prefix("halfpower-bench-")
        .tempdir_in(&options.dir)
        .with_context(|| format!("cannot make a folder in {}", options.dir.display()))?;
    let bench = Bench {
        rounds: options.pairs,
        seconds: options.seconds,
        core: host::last_allowed_core()?,
        folder: folder.path().canonicalize().context("the folder for test files vanished")?,
        halfpower,
        t_io_uring: options.t_io_uring.clone().or_else(|| host::on_path("fio-t-io_uring")),
        stop,
    };
    println!("{}", host::description(&bench.folder, bench.core)?);
    let outcome = measure(&bench, &options.only);
    folder.close().context("cannot remove the test files")?;
    if bench.is_stopped() {
        eprintln!("interrupted; the test files are removed");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(if outcome? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
