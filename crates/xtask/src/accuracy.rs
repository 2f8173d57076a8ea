//! `cargo xtask accuracy`: how close the instrument comes to devices whose truth is known.
//!
//! `selftest` runs the program's own self-test many times over. `foreign` holds the program against
//! devices that others made: nbdkit, QEMU, the kernel. Both print tables, and with `--write` put
//! them into docs/accuracy.md.

mod selftest;

mod foreign;

use crate::repository;
use anyhow::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// What to measure, and how often.
#[derive(clap::Args)]
pub struct Options {
    /// Which campaign
    #[arg(long, value_enum, default_value_t = Campaign::Selftest)]
    only: Campaign,
    /// Runs of the self-test (each about a minute), or of each stable device
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// foreign: tries of each situation
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    tries: u32,
    /// foreign: one of its two parts alone
    #[arg(long)]
    part: Option<foreign::Part>,
    /// foreign: only devices and situations whose word has this in it; may be given more than once
    #[arg(long)]
    case: Vec<String>,
    /// foreign: where everything is made, in a folder that is removed at the end (2 GiB free)
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Try this program instead of the release build
    #[arg(long)]
    program: Option<PathBuf>,
    /// Put the tables into docs/accuracy.md
    #[arg(long)]
    write: bool,
    /// foreign: print the words of all devices and situations, and do nothing
    #[arg(long)]
    list: bool,
}

/// The two campaigns.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Campaign {
    /// The program's own self-test, many times over
    Selftest,
    /// Stable devices, and situations that must raise an alarm, made with nbdkit, QEMU, the kernel
    Foreign,
}

/// 0 if all bars are met, 1 if one is missed.
///
/// # Errors
/// When the program does not build, or a campaign cannot do its work.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.only == Campaign::Foreign && options.list {
        return foreign::list(options.part, &options.case);
    }
    let program = options.program.clone().map_or_else(repository::release_build, Ok)?;
    match options.only {
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
