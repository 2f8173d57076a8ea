//! Developer commands of the halfpower workspace, run as `cargo xtask COMMAND`.
//!
//! There is one module per command. The module `repository` contains common code. This crate is not
//! shipped, and the shipped crates do not import it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "xtask prints to the terminal")]
#![forbid(unsafe_code)]

mod repository;

mod bench;
mod book;
mod dist;
mod faults;
mod server;

mod guest;
mod mounted;
mod packages;
mod papers;
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
    /// Check the style and layering rules that the compiler does not check
    Tidy(tidy::Options),
    /// Check that every published crate builds from the files in its package
    Packages,
    /// Check the links and commands of docs/, update the command output in the pages, and build the
    /// book
    Book(book::Options),
    /// Build the release files: static programs, Debian packages, licences, checksums
    Dist(dist::Options),
    /// Simulate the results of the two reproduced papers and put the scores into README.md and
    /// docs/predict.md
    Papers(papers::Options),
    /// Inject faults into the release program; count lost data and undetected faults
    Faults(faults::Faults),
    /// Test halfpower in QEMU with other kernels and emulated devices; exits with 1 if a check
    /// fails
    Guest(guest::Options),
    /// Compare the speed of halfpower with the speed of other tools
    #[command(subcommand)]
    Bench(bench::Command),
    /// Measure devices with known properties many times; exits with 1 if a limit is missed
    Accuracy(accuracy::Options),
    /// Repeat surveys of reference devices and of the disk; exits with 1 if too few surveys agree
    Repeat(repeat::Options),
    /// Measure a mounted simulated system with halfpower and fio, and compare the rates with a
    /// published figure; exits with 1 if a point differs by more than 10%
    TimeMachine(time_machine::Options),
}

/// Runs a command. The exit code is 0 on success, 1 if a rule or limit is violated, and 2 if the
/// command itself failed.
fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Tidy(options) => tidy::run(&options),
        Command::Packages => packages::run(),
        Command::Book(options) => book::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::Papers(options) => papers::run(&options),
        Command::Faults(options) => faults::run(&options),
        Command::Guest(options) => guest::run(&options),
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
