//! `cargo xtask accuracy`: how accurately the program measures devices with known properties.
//!
//! `selftest` runs the program's own self-test many times. `foreign` uses independent devices made
//! with nbdkit, QEMU and the kernel. `pagecache` compares the simulated page cache with the
//! kernel's. `compare` counts how often comparisons are right, `fleet` how often the bad hosts of a
//! fleet are found. `fio-agreement` runs the same job files with fio. `network` measures servers of
//! NBD, NFS, SMB and iSCSI over paths with a known delay or rate. All print tables; `--write` puts
//! them into docs/accuracy.md, that of fio into docs/compare-with-fio.md.

mod selftest;

mod foreign;

mod pagecache;

mod compare;

mod fleet;

mod fio;

mod network;

use crate::repository;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of the command.
#[derive(clap::Args)]
pub struct Options {
    /// Which campaign
    #[arg(long, value_enum, default_value_t = Campaign::Selftest)]
    only: Campaign,
    /// selftest, foreign: number of runs (a self-test takes about a minute; foreign: of each stable
    /// device); fio-agreement, network: rounds of each load or case; fleet: number of fleets
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// foreign: repetitions of each situation
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    tries: u32,
    /// foreign: only one of the two parts
    #[arg(long)]
    part: Option<foreign::Part>,
    /// foreign, pagecache, fio-agreement, network: only devices, situations, loads or cases whose
    /// name contains this; repeatable
    #[arg(long)]
    case: Vec<String>,
    /// foreign, compare, fleet, fio-agreement, network: where to create a temporary folder, removed
    /// at the end (needs 2 GiB)
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Test this program instead of the release build
    #[arg(long)]
    program: Option<PathBuf>,
    /// Put the tables into docs/accuracy.md
    #[arg(long)]
    write: bool,
    /// foreign: only list the names of devices and situations
    #[arg(long)]
    list: bool,
}

/// The campaigns.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Campaign {
    /// The program's own self-test, many times
    Selftest,
    /// Stable devices and situations that must raise an alarm, with nbdkit, QEMU and the kernel
    Foreign,
    /// Compare the simulated page cache with that of this kernel, on a reference device; needs root
    Pagecache,
    /// How often comparisons are right: false differences, changes found, true ratios covered
    Compare,
    /// How often the bad hosts of a fleet are found and named, and how often a healthy one is odd
    Fleet,
    /// The same job files with fio and halfpower, on reference devices and this disk; root
    FioAgreement,
    /// Clients of NBD, NFS, SMB and iSCSI over paths with a known delay or rate, and their CPU
    /// cost; root
    Network,
}

/// Returns 0 if all limits are met, 1 if one is missed.
///
/// # Errors
/// A program that does not build, or a campaign that cannot run.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.only == Campaign::Foreign && options.list {
        return foreign::list(options.part, &options.case);
    }
    // Campaigns start the program from other folders, so its path must be absolute.
    let named = |path: &PathBuf| {
        path.canonicalize().with_context(|| format!("--program {}", path.display()))
    };
    let program = options.program.as_ref().map_or_else(repository::release_build, named)?;
    match options.only {
        Campaign::Compare => compare::run(&program, &options.dir, options.write),
        Campaign::Fleet => fleet::run(&program, options.runs, &options.dir, options.write),
        Campaign::FioAgreement => fio::run(&fio::Settings {
            program: &program,
            rounds: options.runs,
            case: &options.case,
            dir: &options.dir,
            write: options.write,
        }),
        Campaign::Network => network::run(&network::Settings {
            program: &program,
            rounds: options.runs,
            case: &options.case,
            dir: &options.dir,
            write: options.write,
        }),
        Campaign::Pagecache => pagecache::run(&program, &options.case, options.write),
        Campaign::Selftest => selftest::run(&program, options.runs, options.write),
        Campaign::Foreign => foreign::run(&foreign::Settings {
            program: &program,
            runs: options.runs,
            tries: options.tries,
            part: options.part,
            case: &options.case,
            dir: &options.dir,
            write: options.write,
        }),
    }
}
