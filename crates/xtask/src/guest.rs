//! `cargo xtask guest`: tests halfpower in QEMU, on devices and kernels that this machine does not
//! have.
//!
//! A guest is a Debian kernel in QEMU with an in-memory root file system, which contains the
//! program under test and busybox. The CPU is emulated without hardware support, so the guest is
//! slower than real hardware. The drivers are those of a real kernel. A scenario defines the
//! devices, the commands and the expected results. Nothing is installed on this machine: kernels
//! are stored in `target/guest`, and the files of a guest are removed when the guest ends.

mod kernel;

mod image;

mod scenario;

mod service;

mod machine;

mod write_log;

mod logged;

mod lying;

mod power;

mod table;

use crate::bench::clock;
use crate::bench::host;
use crate::dist::{self, Architecture};
use crate::faults::tally::{Missing, Stopped};
use crate::repository;
use anyhow::{Context, Result, ensure};
use kernel::{Kernel, Packages};
use machine::{Laboratory, Programs};
use scenario::Scenario;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use table::Row;

/// Exit code after Ctrl-C or SIGTERM.
const INTERRUPTED: u8 = 130;

/// The page into which `--write` puts the results.
const PAGE: &str = "docs/compatibility.md";

/// Number of power cuts after which one more drive that ignores flushes is tested. With 30 power
/// cuts, two such drives are tested.
const CUTS_PER_LIE: usize = 15;

/// Options of `cargo xtask guest`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask guest --list\n  cargo xtask guest nvme zoned\n  \
                        cargo xtask guest --write")]
pub struct Options {
    /// Only run scenarios whose name contains one of these words
    scenario: Vec<String>,
    /// List the scenarios and exit
    #[arg(long)]
    list: bool,
    /// Only run the scenarios that `./test` runs, each on one kernel
    #[arg(long)]
    short: bool,
    /// Boot this Linux series instead of the series that the scenario specifies
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(kernel::SERIES))]
    kernel: Option<String>,
    /// Test this program [default: the release build]
    #[arg(long)]
    program: Option<PathBuf>,
    /// Time limit of a guest (s)
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Instead of running scenarios, simulate N power cuts while a guest copies files and stores
    /// results, and check the data that is left; for every 15 cuts, also test one drive that
    /// ignores flushes
    #[arg(long, value_name = "N")]
    power_cuts: Option<usize>,
    /// Print the output of every check
    #[arg(long)]
    verbose: bool,
    /// Put the results into docs/compatibility.md; if only some scenarios run, replace only their
    /// rows
    #[arg(long)]
    write: bool,
}

/// Runs the scenarios, or the power cuts. The exit code is 1 if a check fails.
///
/// # Errors
/// If no scenario matches, a scenario file is invalid, or the program under test does not build.
/// With `--power-cuts`, also if QEMU or a kernel is missing, or a guest fails. A scenario whose
/// setup fails is not an error: it counts as failed.
pub fn run(options: &Options) -> Result<ExitCode> {
    let root = repository::root();
    let mut scenarios = scenario::all(&root.join("crates/xtask/scenarios"))?;
    let is_wanted = |scenario: &Scenario| {
        let words = &options.scenario;
        let is_named = words.is_empty() || words.iter().any(|word| scenario.name.contains(word));
        is_named && (scenario.short || !options.short)
    };
    scenarios.retain(is_wanted);
    ensure!(!scenarios.is_empty(), "no scenario matches; use --list to show all scenarios");
    if options.list {
        scenarios.iter().for_each(|one| println!("{:24} {}", one.name, one.device));
        return Ok(ExitCode::SUCCESS);
    }
    let cache = root.join("target/guest");
    std::fs::create_dir_all(&cache)?;
    let work = tempfile::Builder::new().prefix("work-").tempdir_in(&cache)?;
    let architectures = scenarios.iter().map(|scenario| scenario.architecture).collect();
    let laboratory = laboratory(options, &architectures, &cache, work.path())?;
    let outcome = match options.power_cuts {
        Some(cuts) => cut_power(options, cuts, &laboratory, &cache),
        None => run_all(options, &scenarios, &laboratory, &cache),
    };
    work.close().context("cannot remove the files of the guests")?;
    match outcome {
        Err(error) if error.is::<Stopped>() => {
            eprintln!("interrupted; all temporary files are removed");
            Ok(ExitCode::from(INTERRUPTED))
        }
        outcome => outcome,
    }
}

/// Runs the scenarios and prints the results. With `--write`, also puts the results into [`PAGE`].
fn run_all(
    options: &Options,
    scenarios: &[Scenario],
    laboratory: &Laboratory,
    cache: &Path,
) -> Result<ExitCode> {
    let rows = all(options, scenarios, laboratory, cache)?;
    let failed = rows.iter().filter(|row| !row.failures.is_empty()).count();
    let skipped = rows.iter().filter(|row| row.skipped.is_some()).count();
    let passed = rows.len() - failed - skipped;
    println!("\n{passed} passed, {failed} failed, {skipped} skipped");
    if options.write {
        let is_whole = options.scenario.is_empty() && !options.short && options.kernel.is_none();
        let older = if is_whole { String::new() } else { repository::section(PAGE, "guests")? };
        repository::write_section(PAGE, "guests", &table::of(&rows, &older))?;
        if is_whole {
            repository::write_section(PAGE, "features", &table::of_features(&rows))?;
        }
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Simulates power cuts and prints the results. With `--write`, also puts the results into
/// [`PAGE`].
fn cut_power(
    options: &Options,
    cuts: usize,
    laboratory: &Laboratory,
    cache: &Path,
) -> Result<ExitCode> {
    let series = options.kernel.as_deref().unwrap_or(kernel::DEFAULT_SERIES);
    let kernel = Kernel::of_series(series, Architecture::X86, cache)?;
    let outcome = power::run(laboratory, &kernel, cuts, fastrand::u64(..))?;
    let lies = lying::run(laboratory, &kernel, cuts.div_ceil(CUTS_PER_LIE), fastrand::u64(..))?;
    let text = table::of_power_cuts(&outcome, &lies, &kernel.release);
    println!("\n{text}");
    if options.write {
        repository::write_section(PAGE, "power cuts", &text)?;
    }
    let is_good = outcome.faults.is_empty() && lies.faults.is_empty();
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prepares the programs and settings that all guests share.
fn laboratory(
    options: &Options,
    architectures: &BTreeSet<Architecture>,
    cache: &Path,
    work: &Path,
) -> Result<Laboratory> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    let mut programs = BTreeMap::new();
    for architecture in architectures {
        let found = match architecture {
            Architecture::X86 => {
                let halfpower = program_of_this_machine(options, work)?;
                busybox(*architecture, cache).map(|busybox| Programs { busybox, halfpower })
            }
            Architecture::Arm => programs_for_arm(cache, work),
        };
        programs.insert(*architecture, found.map_err(|why| format!("{why:#}")));
    }
    let patience_ms = options.seconds * 1000;
    Ok(Laboratory { programs, work: work.to_owned(), stop, patience_ms })
}

/// Copies the program under test into `work` without its debug information. Returns the path of the
/// copy.
fn program_of_this_machine(options: &Options, work: &Path) -> Result<PathBuf> {
    let built = match &options.program {
        Some(program) => program.clone(),
        None => repository::release_build()?,
    };
    let halfpower = work.join("halfpower");
    let mut strip = Command::new("strip");
    strip.arg("--strip-all").arg("-o").arg(&halfpower).arg(&built);
    repository::output_of(&mut strip)
        .context("cannot strip the program; install the package binutils")?;
    Ok(halfpower)
}

/// Returns the programs for ARM guests: the program that `cargo xtask dist` built, and busybox.
fn programs_for_arm(cache: &Path, work: &Path) -> Result<Programs> {
    host::on_path("qemu-system-aarch64").context("install the package qemu-system-arm")?;
    let halfpower = dist::program(Architecture::Arm, &work.join("arm64"))?;
    Ok(Programs { busybox: busybox(Architecture::Arm, cache)?, halfpower })
}

/// Returns the path of the static busybox for an architecture. Downloads the package if it is not
/// in `cache` yet.
fn busybox(architecture: Architecture, cache: &Path) -> Result<PathBuf> {
    let folder = cache.join(format!("busybox{}", kernel::suffix(architecture)));
    if !folder.is_dir() {
        Packages::of_architecture(architecture, cache)?.unpack("busybox-static", &folder)?;
    }
    Ok(folder.join("bin/busybox"))
}

/// Runs the scenarios one after another and prints the result of each. Scenarios whose kernel or
/// programs are missing are skipped.
fn all(
    options: &Options,
    scenarios: &[Scenario],
    laboratory: &Laboratory,
    cache: &Path,
) -> Result<Vec<Row>> {
    let mut kernels = BTreeMap::new();
    let mut rows = Vec::new();
    let of_scenario = |scenario: &Scenario| match (&options.kernel, scenario.kernels.as_slice()) {
        (Some(series), _) => vec![series.clone()],
        (None, several) if !several.is_empty() && !options.short => several.to_vec(),
        (None, _) => vec![kernel::DEFAULT_SERIES.to_owned()],
    };
    for scenario in scenarios {
        for series in of_scenario(scenario) {
            let architecture = scenario.architecture;
            let kernel = kernels.entry((series.clone(), architecture)).or_insert_with(|| {
                laboratory.programs(architecture)?;
                let kernel = Kernel::of_series(&series, architecture, cache);
                kernel.map_err(|why| format!("{why:#}"))
            });
            let (row, seconds) = match kernel {
                Ok(kernel) => clock::timed(|| row(scenario, kernel, laboratory, options.verbose)),
                Err(why) => {
                    let skipped = Some(why.clone());
                    (Ok(Row { skipped, ..row_of(scenario, &series) }), 0.0)
                }
            };
            let row = row?;
            println!("{:24} {:8} {:>5.1} s  {}", row.name, series, seconds, row.result());
            for failure in &row.failures {
                println!("  {}", failure.replace('\n', "\n    "));
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Returns a table row for the scenario. The row has no results yet.
fn row_of(scenario: &Scenario, release: &str) -> Row {
    Row {
        name: scenario.name.clone(),
        device: scenario.device.clone(),
        release: release.to_owned(),
        features: Vec::new(),
        in_use: scenario.in_use.iter().map(|one| one.way.clone()).collect(),
        checks: scenario.check.iter().map(|check| check.what.clone()).collect(),
        failures: Vec::new(),
        skipped: None,
    }
}

/// Runs one scenario and returns its row. Returns an error only if a signal stops the campaign.
fn row(
    scenario: &Scenario,
    kernel: &Kernel,
    laboratory: &Laboratory,
    is_verbose: bool,
) -> Result<Row> {
    let mut row = row_of(scenario, &kernel.release);
    match laboratory.run(scenario, kernel) {
        Ok(judged) => {
            for one in judged {
                if is_verbose {
                    println!("$ {}\n{}", one.check.run, one.output);
                }
                if one.check.lists_features {
                    row.features.extend(table::features_in(&one.output));
                }
                if let Err(why) = one.result {
                    let (what, run) = (&one.check.what, &one.check.run);
                    let output = machine::tail(&one.output);
                    row.failures.push(format!("{what}: {why}\n$ {run}\n{output}"));
                }
            }
        }
        Err(error) if error.is::<Stopped>() => return Err(error),
        Err(error) if error.is::<Missing>() => row.skipped = Some(format!("{error:#}")),
        Err(error) => row.failures.push(format!("{error:#}")),
    }
    Ok(row)
}
