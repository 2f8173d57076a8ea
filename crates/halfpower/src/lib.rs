//! The program `halfpower`: parses the command line, runs the subcommand, and returns the exit
//! code.
//!
//! The program is a library so that fuzz targets can call its parsers. `main.rs` only calls
//! [`main`]. Each subcommand has a file in `command/`. Modules are listed in dependency order.

mod inputs;
mod cli;
mod plan_file;
mod command;
mod mpi;
#[doc(hidden)]
pub mod fuzz;

use std::process::ExitCode;

use clap::FromArgMatches;

use cli::{Cli, Verb};
use command::run::Form;
use lab::failure::{Exit, Failure, Outcome};
use mpi::Scope;

/// Runs the program.
pub fn main() -> ExitCode {
    let words = cli::normalise(std::env::args_os());
    let (command, asked) = cli::help::command(&words);
    let parsed = command.try_get_matches_from(&asked);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            if !mpi::is_left_to_another(&words, Scope::Everywhere) {
                print(&error);
            }
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    let planned = plan_file::expand(cli, &words);
    let asked = planned.and_then(|(cli, plan)| Ok((mpi::is_asked(&cli.verb)?, cli, plan)));
    let outcome = match asked {
        Err(failure) if mpi::is_left_to_another(&words, Scope::Host) => {
            return failure.exit.into();
        }
        asked => asked,
    };
    let outcome = outcome.and_then(|(on_ranks, cli, plan)| {
        if on_ranks && lab::ranks::of_environment().is_none() {
            return mpi::relay();
        }
        match command::fio::execute(&cli.verb, &words) {
            Some(outcome) => outcome,
            None => execute(&cli.verb).map_err(|failure| plan.place(failure)),
        }
    });
    exit(outcome)
}

/// Prints the requested help, or the reason why the command line is invalid.
fn print(error: &clap::Error) {
    match cli::help::wrong_value(error) {
        Some(text) => lab::console::error(&text),
        // clap prints help to stdout and errors to stderr.
        None => drop(error.print()),
    }
}

/// Prints the error message of a failure and returns the exit code.
fn exit(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(_) if lab::console::lost_data() => {
            lab::console::error("the results could not be written to stdout; free some space");
            Exit::Failed.into()
        }
        Ok(exit) => exit.into(),
        Err(Failure { exit, message }) => {
            let message = lab::similar::with_offer(&message);
            lab::console::error(&format!("{message}{}", deleted_folder()));
            exit.into()
        }
    }
}

/// Returns a text to add to error messages if the working directory was deleted.
fn deleted_folder() -> &'static str {
    match std::env::current_dir() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "; the current directory has been deleted, so change to another directory"
        }
        _ => "",
    }
}

fn execute(verb: &Verb) -> Outcome<Exit> {
    match verb {
        Verb::Survey(args) => command::survey::execute(args),
        Verb::Run(args) => command::run::execute(args, Form::Run),
        // `command::fio` has already run this subcommand, because it needs the words as typed.
        Verb::Fio(_) => Ok(Exit::Ok),
        Verb::Sweep(args) => match &args.study_plan {
            Some(plan) => command::study::sweep(args, plan),
            None => command::run::execute(args, Form::Sweep),
        },
        Verb::Study(args) => command::study::execute(args),
        Verb::Simulate(args) => command::simulate::execute(args),
        Verb::Memory(args) => command::memory::execute(args),
        Verb::Soak(args) => command::soak::execute(args),
        Verb::Watch(args) => command::watch::execute(args),
        Verb::Trace(args) => command::watch::trace(args),
        Verb::Replay(args) => command::replay::execute(args),
        Verb::Characterise(args) => command::characterise::execute(args),
        Verb::Classic(args) => command::classic::execute(args),
        Verb::Explain(args) => command::explain::execute(args),
        Verb::Engines(args) => command::engines::execute(args),
        Verb::Target(args) => command::target::execute(args),
        Verb::Report(args) => command::report::execute(args),
        Verb::Serve(args) => command::serve::execute(args),
        Verb::Compare(args) => command::compare::execute(args),
        Verb::History(args) => command::compare::history(args),
        Verb::Fleet(args) => command::compare::fleet(args),
        Verb::Baseline(args) => command::compare::baseline(args),
        Verb::Runs(args) => command::runs::execute(args),
        Verb::Import(args) => command::exchange::import(args),
        Verb::Export(args) => command::exchange::export(args),
        Verb::Selftest(args) => command::selftest::execute(args),
        Verb::Reproduce(args) => command::reproduce::execute(args),
        Verb::Assist(args) => command::assist::execute(args),
        Verb::Calibrate(args) => command::calibrate::execute(args),
        Verb::Whatif(args) => command::whatif::execute(args),
        Verb::Plan(args) => command::plan::execute(args),
        Verb::Copy(args) => command::copy::execute(args),
        Verb::Mount(args) => command::mount::execute(args),
        Verb::Peer(args) => command::peer::execute(args),
        Verb::Cat(args) => command::cat::execute(args),
        Verb::Checksum(args) => command::checksum::execute(args),
        Verb::Tune(args) => command::tune::execute(args),
        Verb::Clean(args) => command::clean::execute(args),
        Verb::Restore(args) => command::restore::execute(args),
        Verb::Generate(args) => command::generate::execute(args),
    }
}
