//! `halfpower classic sqlio`: translates SQLIO's flags to `halfpower run`, runs the test, and
//! prints the result in SQLIO's format.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use clap::Parser;
use lab::console::{self, Console};
use lab::failure::{Failure, Outcome};
use lab::page;
use papers::classic::flags::Flags;
use papers::classic::params::{self, ParamLine};
use papers::classic::sqlio::{Translation, translate};
use papers::classic::text;
use papers::classic::trace::{TraceLine, header};
use papers::classic::trace_file;

use crate::cli::classic::SqlioArgs;
use crate::cli::{Cli, RunArgs, Verb};
use crate::command::run::{self, Measured};

/// Maximum size of a parameter file (bytes).
const PARAMS_BYTES_MAX: u64 = 1 << 20;

/// Measures the workload and prints the result.
pub fn execute(args: &SqlioArgs) -> Outcome {
    if args.note.contains([',', '\n', '\r']) {
        return Err(Failure::usage(
            "--note: a trace line is CSV, so commas and line breaks are not allowed; remove them",
        ));
    }
    let flags = Flags::parse(&args.flags)?;
    let params = flags.param_file.as_deref().map(read_params).transpose()?;
    let translation = translate(&flags, &args.files, params.as_deref())?;
    let line = translation.line();
    let console = Console::new(args.common.quiet);
    if let Some(csv) = &args.csv {
        check_csv(args, csv)?;
    }
    if args.common.plan {
        console::data(&line);
        let csv = args.csv.iter().map(|csv| format!("add trace lines to {}", csv.display()));
        csv.for_each(|text| console::data(&text));
    }
    // Errors mention the flags of `run`, so the message also shows the translated command.
    let explained = |failure: Failure| Failure {
        message: format!("{} (SQLIO's flags were translated to: {line})", failure.message),
        ..failure
    };
    translation.notes.iter().for_each(|note| console.say(format!("note: {note}")));
    let run_args = run_args(args, &translation)?;
    run::execute_shown_by(&run_args, &|measured| show(args, &flags, measured)).map_err(explained)
}

/// Checks that the trace file can be written and is not the database.
fn check_csv(args: &SqlioArgs, csv: &Path) -> Outcome<()> {
    if !args.common.no_store && page::is_beside(csv, &args.common.db) {
        return Err(Failure::usage(format!(
            "{} is both the trace file and the database; specify another file with --csv",
            csv.display()
        )));
    }
    trace_file::check(csv)
}

fn read_params(path: &Path) -> Outcome<Vec<ParamLine>> {
    let unreadable = |error: std::io::Error| {
        let (path, cause) = (path.display(), ioengine::error::cause(&error));
        Failure::failed(format!("-F{path}: {cause}; specify the parameter file directly after -F"))
    };
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(PARAMS_BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
    params::parse(&text)
}

/// Returns the flags of `run` that correspond to SQLIO's flags. Copies the common flags.
fn run_args(args: &SqlioArgs, translation: &Translation) -> Outcome<RunArgs> {
    let words = ["halfpower", "run"].map(str::to_owned).into_iter();
    let trials = format!("--trials={}", args.trials);
    let words = words.chain(translation.words.iter().cloned()).chain([trials]);
    let words = words.map(OsString::from);
    let cli = Cli::try_parse_from(words).map_err(|error| {
        let first = error.to_string().lines().next().unwrap_or_default().to_owned();
        Failure::usage(format!("{first}; see halfpower classic sqlio --help"))
    })?;
    let Verb::Run(run) = cli.verb else {
        return Err(Failure::usage("use halfpower run"));
    };
    Ok(RunArgs { targets: translation.targets.clone(), common: args.common.clone(), ..run })
}

fn show(args: &SqlioArgs, flags: &Flags, measured: &Measured<'_>) -> Outcome<()> {
    let Some(point) = measured.points.first() else { return Ok(()) };
    let file_bytes = measured.facts.iter().map(|fact| fact.size_bytes).sum();
    let line = |trial| TraceLine {
        outstanding: flags.outstanding,
        ..TraceLine::of(&point.key, trial, file_bytes, &args.note)
    };
    let lines: Vec<TraceLine> = point.trials.iter().map(line).collect();
    if let Some(csv) = args.csv.as_deref().filter(|_| !lines.is_empty()) {
        trace_file::add(csv, &lines)?;
    }
    if args.common.json || lines.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = measured.facts.iter().map(|fact| fact.name.clone()).collect();
    console::data(&format!("halfpower {} as sqlio", env!("CARGO_PKG_VERSION")));
    let threads = point.key.threads();
    text::understood(flags, threads, &names).iter().for_each(|line| console::data(line));
    for trial in &point.trials {
        text::metrics(trial, flags.latencies).iter().for_each(|line| console::data(line));
        if flags.utilisation {
            text::utilisation(trial).iter().for_each(|line| console::data(line));
        }
    }
    let verdict = point.summary().verdict;
    let reasons = match verdict.reasons.as_slice() {
        [] => String::new(),
        reasons => format!(" ({})", reasons.join("; ")),
    };
    console::data(&format!("verdict: {}{reasons}", verdict.state.word()));
    if args.csv.is_none() {
        console::data(&header());
        lines.iter().for_each(|line| console::data(&line.to_string()));
    }
    Ok(())
}
