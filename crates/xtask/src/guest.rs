//! `cargo xtask guest`: halfpower on devices and kernels that this machine does not have, in QEMU.
//!
//! A guest is a kernel of Debian with the program under test and busybox in memory, emulated
//! without hardware support, so every driver and failure is the real one, and only speed is not. A
//! scenario names its devices, commands and what must come out. Nothing on this machine is changed:
//! kernels lie below `target/guest`, and a guest's files go with it.

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
use crate::faults::tally::{Missing, Stopped};
use crate::repository;
use anyhow::{Context, Result, ensure};
use kernel::{Kernel, Packages};
use machine::Laboratory;
use scenario::Scenario;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use table::Row;

/// The exit code of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Power cuts for each drive that ignores flushes.
const CUTS_PER_LIE: usize = 15;

/// Flags of `cargo xtask guest`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask guest --list\n  cargo xtask guest nvme zoned\n  \
                        cargo xtask guest --write")]
pub struct Options {
    /// Only scenarios whose name contains one of these words
    scenario: Vec<String>,
    /// Print the names of the scenarios
    #[arg(long)]
    list: bool,
    /// Only the scenarios that `./test` runs
    #[arg(long)]
    short: bool,
    /// Boot this series of Linux in place of those of the scenario
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(kernel::SERIES))]
    kernel: Option<String>,
    /// The program under test [default: a release build]
    #[arg(long)]
    program: Option<PathBuf>,
    /// Time limit of a guest
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Cut the power of a guest this many times while it copies files and stores results, and check
    /// what is left; also read back one drive that ignores flushes for every 15 cuts
    #[arg(long, value_name = "N")]
    power_cuts: Option<usize>,
    /// Print the output of every check
    #[arg(long)]
    verbose: bool,
    /// Put the table of results into docs/compatibility.md
    #[arg(long)]
    write: bool,
}

/// Runs the scenarios. Returns 1 if a check fails.
///
/// # Errors
/// QEMU, a kernel or a program is missing; a scenario's setup fails is no error, but a failure.
pub fn run(options: &Options) -> Result<ExitCode> {
    let root = repository::root();
    let mut scenarios = scenario::all(&root.join("crates/xtask/scenarios"))?;
    let is_wanted = |scenario: &Scenario| {
        let words = &options.scenario;
        let is_named = words.is_empty() || words.iter().any(|word| scenario.name.contains(word));
        is_named && (scenario.short || !options.short)
    };
    scenarios.retain(is_wanted);
    ensure!(!scenarios.is_empty(), "no scenario has such a name; --list shows all");
    if options.list {
        scenarios.iter().for_each(|one| println!("{:24} {}", one.name, one.device));
        return Ok(ExitCode::SUCCESS);
    }
    let is_whole = options.scenario.is_empty() && !options.short;
    let is_whole = is_whole || options.power_cuts.is_some();
    ensure!(is_whole || !options.write, "--write needs all scenarios");
    let cache = root.join("target/guest");
    std::fs::create_dir_all(&cache)?;
    let work = tempfile::Builder::new().prefix("work-").tempdir_in(&cache)?;
    let laboratory = laboratory(options, &cache, work.path())?;
    let outcome = match options.power_cuts {
        Some(cuts) => cut_power(options, cuts, &laboratory, &cache),
        None => run_all(options, &scenarios, &laboratory, &cache),
    };
    work.close().context("cannot remove the files of guests")?;
    match outcome {
        Err(error) if error.is::<Stopped>() => {
            eprintln!("interrupted; all temporary files are removed");
            Ok(ExitCode::from(INTERRUPTED))
        }
        outcome => outcome,
    }
}

/// Runs the scenarios, and says and writes what came of them.
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
        repository::write_section("docs/compatibility.md", "guests", &table::of(&rows))?;
        let features = table::of_features(&rows);
        repository::write_section("docs/compatibility.md", "features", &features)?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Cuts the power, and says and writes what came of it.
fn cut_power(
    options: &Options,
    cuts: usize,
    laboratory: &Laboratory,
    cache: &Path,
) -> Result<ExitCode> {
    let series = options.kernel.as_deref().unwrap_or(kernel::DEFAULT_SERIES);
    let kernel = Kernel::of_series(series, cache)?;
    let outcome = power::run(laboratory, &kernel, cuts, fastrand::u64(..))?;
    let lies = lying::run(laboratory, &kernel, cuts.div_ceil(CUTS_PER_LIE), fastrand::u64(..))?;
    let text = table::of_power_cuts(&outcome, &lies, &kernel.release);
    println!("\n{text}");
    if options.write {
        repository::write_section("docs/compatibility.md", "power cuts", &text)?;
    }
    let is_good = outcome.faults.is_empty() && lies.faults.is_empty();
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What all guests share: the program, stripped of its debug information, and busybox.
fn laboratory(options: &Options, cache: &Path, work: &Path) -> Result<Laboratory> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    let busybox = cache.join("busybox");
    if !busybox.is_dir() {
        Packages::default().unpack("busybox-static", &busybox)?;
    }
    let built = match &options.program {
        Some(program) => program.clone(),
        None => repository::release_build()?,
    };
    let program = work.join("halfpower");
    let mut strip = Command::new("strip");
    strip.arg("--strip-all").arg("-o").arg(&program).arg(&built);
    repository::output_of(&mut strip).context("strip is needed: install the package binutils")?;
    let busybox = busybox.join("bin/busybox");
    let patience_ms = options.seconds * 1000;
    Ok(Laboratory { busybox, program, work: work.to_owned(), stop, patience_ms })
}

/// Runs the scenarios one after another and says how each ended.
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
        (None, []) => vec![kernel::DEFAULT_SERIES.to_owned()],
        (None, several) => several.to_vec(),
    };
    for scenario in scenarios {
        for series in of_scenario(scenario) {
            if !kernels.contains_key(&series) {
                kernels.insert(series.clone(), Kernel::of_series(&series, cache)?);
            }
            let run = || row(scenario, &kernels[&series], laboratory, options.verbose);
            let (row, seconds) = clock::timed(run);
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

/// Runs one scenario. Only an interruption is an error.
fn row(
    scenario: &Scenario,
    kernel: &Kernel,
    laboratory: &Laboratory,
    is_verbose: bool,
) -> Result<Row> {
    let mut row = Row {
        name: scenario.name.clone(),
        device: scenario.device.clone(),
        release: kernel.release.clone(),
        features: Vec::new(),
        in_use: scenario.in_use.iter().map(|one| one.way.clone()).collect(),
        checks: scenario.check.iter().map(|check| check.what.clone()).collect(),
        failures: Vec::new(),
        skipped: None,
    };
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
