//! `halfpower simulate`: predicts the rate and the bottleneck of a workload on a simulated system.
//! Also lists the built-in systems and prints their files.

use std::path::{Path, PathBuf};

use lab::console;
use lab::failure::{Exit, Failure, Outcome};
use lab::json;
use lab::simulated_target::{self, PREFIX};
use serde::Serialize;
use simulator::Description;

use crate::cli::RunArgs;
use crate::cli::simulate::{NO_DATABASE, SimulateArgs};
use crate::command::run::{self, Form};

/// The document of `--list --json`.
#[derive(Debug, Serialize)]
struct Systems {
    systems: Vec<Listed>,
}

/// A built-in system in the list.
#[derive(Debug, Serialize)]
struct Listed {
    name: &'static str,
    title: String,
}

/// Lists systems, prints the file of a system, or simulates a sweep.
pub fn execute(args: &SimulateArgs) -> Outcome {
    let prints_only = args.list || args.show.is_some();
    if prints_only && args.run.common.plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    if let Some(system) = &args.show {
        return show(system, &args.set);
    }
    if args.list {
        return list(args.run.common.json);
    }
    let targets = vec![target(args)?];
    let mut run = RunArgs { targets, filename: None, ..args.run.clone() };
    run.common.no_store |= run.common.db == Path::new(NO_DATABASE);
    run::execute(&run, Form::Simulate)
}

/// Builds the target for `run` from `--system` and `--set`.
fn target(args: &SimulateArgs) -> Outcome<PathBuf> {
    let named = args.run.targets.iter().chain(&args.run.filename);
    let named: Vec<String> = named.map(|name| name.to_string_lossy().into_owned()).collect();
    let system = match (&args.system, named.as_slice()) {
        (Some(system), []) => system.strip_prefix(PREFIX).unwrap_or(system).to_owned(),
        (None, [name]) if name.starts_with(PREFIX) => name[PREFIX.len()..].to_owned(),
        (None, []) => {
            return Err(Failure::usage(
                "no system; specify one with --system (see halfpower simulate --list)",
            ));
        }
        (_, [name, ..]) => {
            return Err(Failure::usage(format!(
                "simulate takes no target; drop {name}, and specify the system with --system"
            )));
        }
    };
    let parts: Vec<&str> =
        std::iter::once(system.as_str()).chain(args.set.iter().map(String::as_str)).collect();
    Ok(format!("{PREFIX}{}", parts.join(",")).into())
}

/// Prints the file of a system, with the given changes and the source of every value.
fn show(system: &str, changes: &[String]) -> Outcome {
    let text = if changes.is_empty() && !system.contains(',') {
        simulated_target::file_of(system.strip_prefix(PREFIX).unwrap_or(system))?
    } else {
        let description = simulated_target::parse(system, changes)?;
        description.system()?;
        description.text()
    };
    console::data(text.trim_end());
    Ok(Exit::Ok)
}

fn list(as_json: bool) -> Outcome {
    let listed = |name| -> Outcome<Listed> {
        let description = Description::named(name)?;
        Ok(Listed { name, title: description.title().unwrap_or_default().to_owned() })
    };
    let systems: Vec<Listed> = Description::names().map(listed).collect::<Outcome<_>>()?;
    if as_json {
        console::data(&json::print(&Systems { systems }));
        return Ok(Exit::Ok);
    }
    for Listed { name, title } in systems {
        console::data(format!("{name:<20} {title}").trim_end());
    }
    Ok(Exit::Ok)
}
