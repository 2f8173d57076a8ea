//! `halfpower run job.fio` and `halfpower fio`: runs the jobs of fio in sequence. All jobs are
//! translated and checked before the first one begins.

use std::cell::RefCell;
use std::ffi::OsString;

use clap::Parser;
use exchange::fio::export::json_of;
use exchange::fio::host::{Host, is_job_file, read_jobs};
use exchange::fio::job_file::Jobs;
use exchange::fio::schedule::{self, Wishes};
use exchange::fio::{command_line, translate};
use lab::bench;
use lab::console::{self, Console};
use lab::failure::{Exit, Failure, Outcome};
use lab::job::Job;

use crate::cli::{Cli, JobFileArgs, RunArgs, Verb};
use crate::command::run::{self, Form, Measured};

/// Runs fio jobs if the subcommand is `fio`, or `run` with job files. Returns None for all other
/// subcommands. `typed` is the whole command line.
pub fn execute(verb: &Verb, typed: &[OsString]) -> Option<Outcome> {
    let behind = |verb: &str| {
        let at = typed.iter().position(|word| word == verb);
        &typed[at.map_or(typed.len(), |at| at + 1)..]
    };
    match verb {
        Verb::Run(args) if args.targets.iter().any(|path| is_job_file(path)) => {
            let jobs = read_jobs(&args.targets);
            Some(jobs.and_then(|jobs| measure(&jobs, args, behind("run"))))
        }
        Verb::Fio(_) => Some(command(behind("fio"))),
        _ => None,
    }
}

/// Measures the jobs of a fio command line.
fn command(typed: &[OsString]) -> Outcome {
    let (words, flags) = command_line::split(typed);
    measure(&[command_line::parse(&words)?], &parse(&[], &flags)?, &flags)
}

/// Parses the flags of `run`. The flags in `typed` override the flags in `words`.
fn parse(words: &[String], typed: &[OsString]) -> Outcome<RunArgs> {
    let words = ["halfpower", "run"].into_iter().chain(words.iter().map(String::as_str));
    match Cli::try_parse_from(words.map(OsString::from).chain(typed.iter().cloned())) {
        Ok(Cli { verb: Verb::Run(args) }) => Ok(args),
        Ok(_) => Err(Failure::usage("the subcommand is not `run`; see halfpower run --help")),
        Err(error) => Err(Failure::usage(crate::plan_file::first_line(&error, "run"))),
    }
}

fn measure(files: &[Jobs], args: &RunArgs, typed: &[OsString]) -> Outcome {
    let JobFileArgs { section: sections, strict, serial, showcmd, output_format } =
        args.jobs.clone();
    let as_json = output_format.is_some_and(|format| format.starts_with("json"));
    let runs = schedule::plan_all(files, &Wishes { sections, strict, serial }, &Host)?;
    let mut all = Vec::new();
    for job in runs.iter().filter(|_| !showcmd) {
        let parsed = parse(&job.words(), typed)?;
        let jobs = JobFileArgs::default();
        let args = RunArgs { targets: job.targets().to_vec(), filename: None, jobs, ..parsed };
        let check = || bench::preparation(&Job::resolve(&args.experiment()?, false)?);
        check().map_err(|failure| job.explain(&failure))?;
        all.push((job, args));
    }
    let console = Console::new(args.common.quiet);
    translate::notes(&runs).for_each(|line| console.say(line));
    if showcmd {
        runs.iter().map(translate::Run::line).for_each(|line| console::data(&line));
    }
    let (mut exit, measured) = (Exit::Ok, RefCell::new(Vec::new()));
    for (job, args) in &all {
        let keep = |found: &Measured<'_>| {
            let named = found.points.iter().map(|point| (job.name.clone(), point.clone()));
            measured.borrow_mut().extend(named);
            Ok(())
        };
        let ended = match as_json {
            true => run::execute_shown_by(args, &keep),
            false => run::execute(args, Form::Run),
        };
        match ended.map_err(|failure| job.explain(&failure))? {
            Exit::Ok => {}
            other => exit = other,
        }
        if exit == Exit::Interrupted {
            break;
        }
    }
    if as_json && !showcmd {
        console::data(&json_of(&measured.into_inner()));
    }
    Ok(exit)
}
