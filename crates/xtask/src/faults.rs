//! `cargo xtask faults`: tests how the release program reacts to faults, for example failed
//! requests, full file systems and kill -9.
//!
//! Each fault class (`classes`) produces one kind of fault several times, by fault injection, loop
//! devices, files served over FUSE, signals or resource limits. Each repetition checks the exit
//! code, the messages, the stored results and leftover files. All files are created in one
//! temporary folder, with a separate state folder for each repetition. Devices and mounts are
//! removed at the end, also after Ctrl-C. The results are printed as a table. The exit code is 1 if
//! a fault was undetected or data were lost. Classes that need root, loop devices or FUSE are
//! skipped and reported if these are missing.

pub mod tally;

pub mod running;

pub mod place;

pub mod device;

mod classes;

mod table;

use crate::{bench, repository};
use anyhow::{Context as _, Result};
use classes::Class;
use place::Context;
use std::cell::RefCell;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use table::{Outcome, Row};
use tally::{Missing, Stopped};

/// Options of `cargo xtask faults`.
#[derive(clap::Args)]
pub struct Faults {
    /// Only test fault classes whose name or description contains this text; repeatable
    #[arg(long)]
    only: Vec<String>,
    /// Total number of runs, sweeps and surveys to kill [default: 200, with --quick 20]
    #[arg(long)]
    kills: Option<u32>,
    /// Repeat each fault less often; takes under two minutes instead of seven
    #[arg(long)]
    quick: bool,
    /// Seed of the random generator that chooses delays and offsets
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for the temporary files (needs 2 GiB); they are removed at the end
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Test this program instead of the release build
    #[arg(long)]
    program: Option<PathBuf>,
    /// Write the table of results into docs/reliability.md
    #[arg(long)]
    write: bool,
    /// List the fault classes and exit
    #[arg(long)]
    list: bool,
}

/// Exit code after Ctrl-C or SIGTERM.
const INTERRUPTED: u8 = 130;
const KILLS: u32 = 200;
const KILLS_QUICK: u32 = 20;

/// Tests the selected fault classes and prints the table of results. The exit code is 0 if nothing
/// was lost and every fault was detected, 130 after Ctrl-C or SIGTERM, and 1 otherwise.
pub fn run(options: &Faults) -> Result<ExitCode> {
    let chosen = choose(&options.only)?;
    if options.list {
        chosen.iter().for_each(|class| println!("{:18} {}", class.word, class.fault));
        return Ok(ExitCode::SUCCESS);
    }
    let program = options.program.clone().map_or_else(repository::release_build, Ok)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    let folder = tempfile::Builder::new()
        .prefix("halfpower-faults-")
        .tempdir_in(&options.dir)
        .with_context(|| format!("cannot create a folder in {}", options.dir.display()))?;
    let kills = if options.quick { KILLS_QUICK } else { KILLS };
    let context = Context {
        program: program.canonicalize().context("cannot find the program to test")?,
        folder: folder.path().canonicalize().context("cannot find the temporary folder")?,
        quick: options.quick,
        kills: options.kills.unwrap_or(kills),
        stop,
        random: RefCell::new(fastrand::Rng::with_seed(options.seed)),
    };
    let machine = bench::host::machine(&context.folder);
    let outcome = campaign(&context, &chosen);
    folder.close().context("cannot remove the temporary folder")?;
    match outcome {
        Err(error) if error.is::<Stopped>() => {
            eprintln!("interrupted; all temporary files are removed");
            Ok(ExitCode::from(INTERRUPTED))
        }
        Err(error) => Err(error),
        Ok(rows) => report(options, &machine, &rows),
    }
}

/// Returns the fault classes whose name or description contains one of the words, or all classes
/// if there are no words.
fn choose(only: &[String]) -> Result<Vec<&'static Class>> {
    let wanted = |class: &&Class| {
        only.is_empty() || only.iter().any(|o| class.word.contains(o) || class.fault.contains(o))
    };
    let all = classes::ALL.iter().flat_map(|part| part.iter());
    let chosen: Vec<&Class> = all.filter(wanted).collect();
    anyhow::ensure!(
        !chosen.is_empty(),
        "no fault class matches {only:?}; use --list to show all classes"
    );
    Ok(chosen)
}

fn campaign(context: &Context, chosen: &[&'static Class]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for class in chosen {
        eprint!("{:18} ", class.word);
        let outcome = match (class.run)(context) {
            Ok(tally) => {
                let (lost, undetected) = (tally.lost.len(), tally.undetected.len());
                eprintln!("{:4} tries; lost: {lost}; undetected: {undetected}", tally.tries);
                tally.lost.iter().for_each(|what| eprintln!("  lost: {what}"));
                tally.undetected.iter().for_each(|what| eprintln!("  undetected: {what}"));
                Outcome::Tried(tally)
            }
            Err(error) if error.is::<Missing>() => {
                eprintln!("skipped: {error}");
                Outcome::Skipped(error.to_string())
            }
            Err(error) => return Err(error.context(format!("fault class {}", class.word))),
        };
        rows.push((*class, outcome));
    }
    Ok(rows)
}

fn report(options: &Faults, machine: &str, rows: &[Row]) -> Result<ExitCode> {
    let text = table::render(rows);
    print!("{text}");
    let skipped = rows.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Skipped(_))).count();
    if skipped > 0 {
        eprintln!("{skipped} fault classes were skipped");
    }
    anyhow::ensure!(
        !options.write || skipped == 0,
        "--write needs the results of all classes, but some were skipped; run as root with FUSE, \
         loop devices and libfaketime"
    );
    if options.write {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let text = format!(
            "`cargo xtask {}` on {}, {machine}:\n\n{text}",
            words.join(" "),
            today().context("cannot run date(1)")?
        );
        repository::write_section("docs/reliability.md", "campaign", &text)?;
    }
    let clean = |(_, outcome): &Row| match outcome {
        Outcome::Tried(tally) => tally.is_clean(),
        Outcome::Skipped(_) => true,
    };
    Ok(if rows.iter().all(clean) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns today's date (UTC) from date(1), because only the crate `ioengine` may read the clock.
fn today() -> Result<String> {
    let output = Command::new("date").args(["--utc", "+%F"]).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_string())
}
