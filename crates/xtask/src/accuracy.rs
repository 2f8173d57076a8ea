//! `cargo xtask accuracy`: how accurately the program measures devices with known properties.
//!
//! The campaigns are:
//! - `selftest` runs the program's own self-test many times.
//! - `foreign` measures devices of nbdkit, QEMU and the kernel.
//! - `pagecache` compares the simulated page cache with the page cache of the kernel.
//! - `compare` counts how often `halfpower compare` is right.
//! - `fleet` counts how often `halfpower fleet` finds the bad hosts of a fleet.
//! - `fio-agreement` runs the same job files with fio and with halfpower.
//! - `network` measures NBD, NFS, SMB and iSCSI servers over paths with a known delay or rate.
//!
//! All campaigns print tables. With `--write`, the tables are also written into docs/accuracy.md,
//! or for `fio-agreement` into docs/compare-with-fio.md.

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

/// Options of `cargo xtask accuracy`.
#[derive(clap::Args)]
pub struct Options {
    /// Campaign to run
    #[arg(long, value_enum, default_value_t = Campaign::Selftest)]
    only: Campaign,
    /// selftest: number of self-tests (about a minute each); foreign: number of runs of each stable
    /// device; fio-agreement, network: number of rounds of each load or case; fleet: number of
    /// generated fleets
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// foreign: number of repetitions of each situation
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    tries: u32,
    /// foreign: run only one of the two parts
    #[arg(long)]
    part: Option<foreign::Part>,
    /// foreign, pagecache, fio-agreement, network: run only devices, situations, loads or cases
    /// whose name contains this text; repeatable
    #[arg(long)]
    case: Vec<String>,
    /// foreign, compare, fleet, fio-agreement, network: folder for temporary files, which are
    /// removed at the end (needs 2 GiB)
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Test this program instead of the release build
    #[arg(long)]
    program: Option<PathBuf>,
    /// Write the tables into docs/accuracy.md (fio-agreement: docs/compare-with-fio.md)
    #[arg(long)]
    write: bool,
    /// foreign: only list the names of devices and situations
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Campaign {
    /// Run the program's own self-test many times
    Selftest,
    /// Measure stable devices of nbdkit, QEMU and the kernel, and produce situations in which
    /// halfpower must raise an alarm
    Foreign,
    /// Compare the simulated page cache with the page cache of this kernel, on a reference device;
    /// needs root
    Pagecache,
    /// Count the false differences of `halfpower compare`, the changes that it finds, and the
    /// intervals that contain the true ratio
    Compare,
    /// Count how often `halfpower fleet` finds bad hosts and states what is wrong with them, and
    /// how often it reports a healthy host as odd
    Fleet,
    /// Run the same job files with fio and halfpower, on reference devices and on a local disk;
    /// needs root
    FioAgreement,
    /// Measure NBD, NFS, SMB and iSCSI servers over paths with a known delay or rate, and the CPU
    /// cost of the clients; needs root
    Network,
}

/// Runs the selected campaign. Returns exit code 0 if all limits are met, otherwise 1.
///
/// # Errors
/// If the program does not build or the campaign cannot run.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.only == Campaign::Foreign && options.list {
        return foreign::list(options.part, &options.case);
    }
    // Campaigns start the program in other working directories, so its path must be absolute.
    let named = |path: &PathBuf| {
        path.canonicalize().with_context(|| format!("cannot find the program {}", path.display()))
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
