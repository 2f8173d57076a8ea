//! `cargo xtask accuracy --only foreign`: tests halfpower with devices of nbdkit, QEMU and
//! the kernel.
//!
//! The campaign has two parts. `stable` measures stable devices, and counts how many intervals
//! contain the true rate and how many verdicts are false alarms. In each case of `situations`,
//! something goes wrong that halfpower must report. Cases whose tools are not installed are
//! skipped. All files are created in one temporary folder, which is removed at the end.

mod server;

mod stable;

mod situations;

mod table;

use crate::bench::host;
use crate::faults::place::Context;
use crate::faults::tally::{Missing, Stopped};
use crate::repository;
use anyhow::{Context as _, Result};
use situations::Situation;
use stable::Device;
use std::path::Path;
use std::process::{Command, ExitCode};
use table::{Outcome, Tried};

/// One of the two parts of the campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Stable devices.
    Devices,
    /// Situations that must raise an alarm.
    Situations,
}

/// Settings of the campaign.
pub struct Settings<'a> {
    /// The program under test.
    pub program: &'a Path,
    /// Number of runs of each stable device.
    pub runs: u32,
    /// Number of repetitions of each situation.
    pub tries: u32,
    /// Part to run. None for both parts.
    pub part: Option<Part>,
    /// Only cases whose name contains one of these texts run. Empty for all cases.
    pub case: &'a [String],
    /// Folder in which the temporary folder is created.
    pub dir: &'a Path,
    /// Whether to write the tables into docs/accuracy.md.
    pub write: bool,
}

/// Exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

fn wanted(case: &[String], word: &str) -> bool {
    case.is_empty() || case.iter().any(|part| word.contains(part.as_str()))
}

/// Returns the selected devices and situations.
fn choose(
    part: Option<Part>,
    case: &[String],
) -> Result<(Vec<&'static Device>, Vec<&'static Situation>)> {
    let is_wanted = |of: Part, word: &str| part.is_none_or(|part| part == of) && wanted(case, word);
    let devices: Vec<_> =
        stable::ALL.iter().filter(|device| is_wanted(Part::Devices, device.word)).collect();
    let all = situations::ALL.iter().flat_map(|part| part.iter());
    let situations: Vec<_> =
        all.filter(|situation| is_wanted(Part::Situations, situation.word)).collect();
    let some = !devices.is_empty() || !situations.is_empty();
    anyhow::ensure!(some, "no case matches {case:?}; use --list to see all cases");
    Ok((devices, situations))
}

/// Prints the names of the selected cases.
///
/// # Errors
/// If no case matches.
pub fn list(part: Option<Part>, case: &[String]) -> Result<ExitCode> {
    let (devices, situations) = choose(part, case)?;
    devices.iter().for_each(|device| println!("{:16} {}", device.word, device.what));
    situations.iter().for_each(|situation| println!("{:16} {}", situation.word, situation.wrong));
    Ok(ExitCode::SUCCESS)
}

/// Measures the selected cases and prints the tables. Returns exit code 0 if all limits are met, 1
/// if not, and 130 after Ctrl-C.
///
/// # Errors
/// If the campaign cannot run. A skipped case or a failed run is not an error.
pub fn run(settings: &Settings) -> Result<ExitCode> {
    let (devices, situations) = choose(settings.part, settings.case)?;
    let whole = settings.case.is_empty();
    anyhow::ensure!(whole || !settings.write, "--write needs all cases; remove --case");
    let (folder, context) = Context::prepare("halfpower-foreign-", settings.program, settings.dir)?;
    let machine = machine(&context);
    let outcome = campaign(&context, settings, &devices, &situations);
    folder.close().context("cannot remove the temporary folder")?;
    match outcome {
        Err(error) if error.is::<Stopped>() => {
            eprintln!("interrupted; all temporary files are removed");
            Ok(ExitCode::from(INTERRUPTED))
        }
        Err(error) => Err(error),
        Ok((measured, tried)) => {
            let ((device_table, devices_are_met), (situation_table, missed)) =
                (table::devices(&measured), table::situations(&tried));
            let (runs, tries) = (settings.runs, settings.tries);
            let of_devices = format!("{runs} runs of each device. {machine}\n\n{device_table}");
            let of_situations =
                format!("{tries} tries of each situation. {machine}\n\n{situation_table}");
            let parts = [
                ("foreign devices", !measured.is_empty(), of_devices),
                ("foreign situations", !tried.is_empty(), of_situations),
            ];
            for (section, _, text) in parts.iter().filter(|(_, is_there, _)| *is_there) {
                println!("{text}");
                if settings.write {
                    repository::write_section("docs/accuracy.md", section, text)?;
                }
            }
            let are_met = (measured.is_empty() || devices_are_met) && missed == 0;
            Ok(if are_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

type Results = (Vec<table::Measured>, Vec<(&'static Situation, Outcome<Tried>)>);

fn campaign(
    context: &Context,
    settings: &Settings,
    devices: &[&'static Device],
    situations: &[&'static Situation],
) -> Result<Results> {
    let mut measured = Vec::new();
    for device in devices {
        eprintln!("{:16} {} runs", device.word, settings.runs);
        let found = stable::measure(context, device, settings.runs);
        let outcome = outcome(found)?;
        eprintln!("{:16} {}", device.word, table::device_line(device, &outcome));
        measured.push((*device, outcome));
    }
    let mut tried = Vec::new();
    for situation in situations {
        let outcome = outcome(repeat(context, situation, settings.tries))?;
        eprintln!("{:16} {}", situation.word, table::situation_line(&outcome));
        tried.push((*situation, outcome));
    }
    Ok((measured, tried))
}

/// Converts the result of a case into an outcome. Returns an error only after an interrupt.
fn outcome<T>(result: Result<T>) -> Result<Outcome<T>> {
    match result {
        Ok(found) => Ok(Outcome::Found(found)),
        Err(error) if error.is::<Stopped>() => Err(error),
        Err(error) if error.is::<Missing>() => Ok(Outcome::Skipped(error.to_string())),
        Err(error) => Ok(Outcome::Failed(format!("{error:#}"))),
    }
}

/// Runs a situation `tries` times and collects the missed alarms.
fn repeat(context: &Context, situation: &Situation, tries: u32) -> Result<Tried> {
    let mut tried = Tried { tries, ..Tried::default() };
    for number in 1..=tries {
        if let Err(missed) = (situation.run)(context, situation.says)? {
            eprintln!("  the alarm was missed in try {number}: {missed}");
            tried.missed.push(missed);
        }
    }
    Ok(tried)
}

/// Describes the machine and the versions of the tools on one line.
fn machine(context: &Context) -> String {
    let version = |program: &str, flag: &str| {
        let output = Command::new(program).arg(flag).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let words = text.lines().next()?.split(" (").next()?.trim().to_string();
        Some(words)
    };
    let missing = |name: &str| format!("no {name}");
    let versions = [
        version("nbdkit", "--version").unwrap_or_else(|| missing("nbdkit")),
        version("qemu-storage-daemon", "--version").unwrap_or_else(|| missing("QEMU")),
        version("fio", "--version").unwrap_or_else(|| missing("fio")),
    ];
    format!("{}; {}.", host::machine(&context.folder), versions.join(", "))
}
