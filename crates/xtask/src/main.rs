//! Developer commands of the halfpower workspace, run as `cargo xtask COMMAND`.
//!
//! This file is the table of contents: one module for each command, and `repository` for what
//! they share. Nothing here is shipped, and nothing here is imported by the shipped crates.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "commands speak on the terminal")]
#![forbid(unsafe_code)]

mod repository;

mod bench;
mod faults;
mod mounted;
mod packages;
mod repeat;
mod tidy;
mod time_machine;

mod accuracy;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Developer commands of the halfpower workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check the rules of the house that the compiler does not check
    Tidy(tidy::Options),
    /// Check that every published crate builds from the files in its package
    Packages,
    /// Try the real program against faults, and count what it loses or does not see
    Faults(faults::Faults),
    /// Measure halfpower against its peers, by ratio
    #[command(subcommand)]
    Bench(bench::Command),
    /// Hold the program against devices whose truth is known, many times; 1 if a bar is missed
    Accuracy(accuracy::Options),
    /// Survey steady devices and the disk many times; 1 if too few surveys say the same
    Repeat(repeat::Options),
    /// What halfpower and fio see of a published figure on a mounted system; 1 if beyond 10%
    TimeMachine(time_machine::Options),
}

/// 0: all is well; 1: a rule or a bar is missed; 2: the command could not do its work.
fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Tidy(options) => tidy::run(&options),
        Command::Packages => packages::run(),
        Command::Faults(options) => faults::run(&options),
        Command::Bench(command) => bench::run(&command),
        Command::Accuracy(options) => accuracy::run(&options),
        Command::Repeat(options) => repeat::run(&options),
        Command::TimeMachine(options) => time_machine::run(&options),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}
