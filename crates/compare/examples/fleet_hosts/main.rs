//! Generates databases of a simulated fleet, to measure the accuracy and the speed of `halfpower
//! fleet`.
//!
//! ```text
//! cargo run --release -p halfpower-compare --example fleet_hosts -- --hosts 500 --bad 7 DIR
//! ```
//!
//! Each host has several runs with several workloads. Healthy hosts differ a little, some trials
//! and runs are disturbed, and a few hosts are bad, each with one defect. The code of halfpower
//! itself judges the trials and writes the databases. The list of bad hosts is printed as JSON.
//! `cargo xtask accuracy --only fleet` runs this example.

// This example prints its result to stdout.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod chance;
mod host;
mod measurement;
mod store;

use std::path::PathBuf;
use std::process::ExitCode;

/// Options from the command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of hosts.
    pub hosts: usize,
    /// Number of bad hosts. Each has one defect. The kinds of defects are assigned in turn.
    pub bad: usize,
    /// Number of hosts in each database.
    pub hosts_per_file: usize,
    /// Seed of all random choices.
    pub seed: u64,
    /// Whether histograms and series have only about a tenth of their usual rows.
    pub thin: bool,
    /// Directory in which the databases are created. The directory must exist.
    pub folder: PathBuf,
}

fn main() -> ExitCode {
    let made = options(std::env::args().skip(1)).and_then(|options| {
        let hosts = host::fleet(&options);
        store::write(&options, &hosts)?;
        Ok(host::truth(&hosts))
    });
    match made {
        Ok(truth) => {
            println!("{truth}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("fleet_hosts: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        hosts: 500,
        bad: 7,
        hosts_per_file: 1,
        seed: 1,
        thin: false,
        folder: PathBuf::new(),
    };
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().and_then(|value| value.parse::<usize>().ok());
            value.ok_or_else(|| format!("{word} needs a number"))
        };
        match word.as_str() {
            "--hosts" => options.hosts = number()?,
            "--bad" => options.bad = number()?,
            "--hosts-per-file" => options.hosts_per_file = number()?.max(1),
            "--seed" => options.seed = number()? as u64,
            "--thin" => options.thin = true,
            other if other.starts_with('-') => return Err(format!("unknown flag {other}")),
            folder => options.folder = PathBuf::from(folder),
        }
    }
    if !options.folder.is_dir() {
        return Err("specify a directory that exists".to_owned());
    }
    if options.bad > options.hosts {
        return Err("--bad is greater than --hosts; specify fewer bad hosts".to_owned());
    }
    Ok(options)
}
