//! `halfpower study`, and `halfpower sweep` with the plan of a study: converts the flags to the
//! options of the studies. The studies are in the crate `study`.

use analysis::units;
use std::path::PathBuf;

use lab::console;
use lab::evidence::Stated;
use lab::experiment::settings::Settings;
use lab::failure::{Exit, Failure, Outcome};
use lab::json;
use lab::peer::client::PeerAddress;
use study::command::{self, StudyOptions};
use study::requested::{RequestedStudy, StudyList};

use crate::cli::study::StudyArgs;
use crate::cli::{CommonArgs, RunArgs};

/// Runs the named studies.
pub fn execute(args: &StudyArgs) -> Outcome {
    if args.list {
        let list = StudyList::of_catalogue()?;
        json::answer(args.common.json, &list, || list.lines());
        return Ok(Exit::Ok);
    }
    let requested = RequestedStudy::named(args.name.as_deref().unwrap_or_default())?;
    if args.show {
        let studies = requested.iter().filter_map(|one| one.study);
        studies.for_each(|study| console::data(study.plan.trim()));
        return Ok(Exit::Ok);
    }
    let mut targets = args.targets.clone();
    if targets.is_empty() {
        targets = requested.iter().flat_map(|one| one.plan.targets.clone()).collect();
    }
    if targets.is_empty() {
        targets.push(PathBuf::from("."));
    }
    let options = StudyOptions {
        size: args.size,
        quick: args.quick,
        toggle_write_cache: args.toggle_write_cache,
        stated: stated(args)?,
        typed: typed(args)?,
        html: Some(args.html.clone()),
        peer: peer(args),
        ..options(targets, &args.common)
    };
    command::execute(requested, &options)
}

/// Runs the study that a plan file defines.
pub fn sweep(args: &RunArgs, (path, text): &(PathBuf, String)) -> Outcome {
    let requested = RequestedStudy::of_file(path, text)?;
    let experiment = args.experiment()?;
    let mut targets = experiment.targets;
    if targets.is_empty() {
        targets.clone_from(&requested.plan.targets);
    }
    if targets.is_empty() {
        return Err(Failure::usage(
            "no target; specify one after the plan file, or in the file: target = \"/data\"",
        ));
    }
    let options = StudyOptions {
        size: experiment.size_bytes,
        quick: args.quick,
        typed: args.parameters.given.clone(),
        html: args.html.clone(),
        ..options(targets, &args.common)
    };
    command::execute(vec![requested], &options)
}

/// Returns the options of a study, with the values of the flags that all measuring subcommands
/// share. The callers set the other options.
fn options(targets: Vec<PathBuf>, common: &CommonArgs) -> StudyOptions {
    StudyOptions {
        targets,
        size: None,
        quick: false,
        toggle_write_cache: false,
        stated: Stated::default(),
        typed: Settings::default(),
        html: None,
        charts: common.charts,
        json: common.json,
        quiet: common.quiet,
        plan: common.plan,
        mpi: common.mpi,
        base: common.experiment(),
        run: common.run_options(),
        peer: None,
    }
}

/// Returns the address and the key file of the peer, and the path of the file that the peer reads.
/// None without `--peer`. clap accepts `--peer` and `--peer-key` only together.
fn peer(args: &StudyArgs) -> Option<PeerAddress> {
    let (address, key_file) = (args.peer.clone()?, args.peer_key.clone()?);
    Some(PeerAddress { address, key_file, path: args.peer_path.clone() })
}

fn stated(args: &StudyArgs) -> Outcome<Stated> {
    let is_wrong = |value: &&f64| !value.is_finite() || **value <= 0.0;
    let positive = |flag: &str, values: &[f64]| match values.iter().find(is_wrong) {
        Some(value) => Err(Failure::usage(format!("{flag} {value}: use a number above 0"))),
        None => Ok(()),
    };
    positive("--price", &args.price)?;
    positive("--power", &args.power)?;
    Ok(Stated {
        prices: args.price.clone(),
        power_watts: args.power.clone(),
        capacities: args.capacity.clone(),
    })
}

/// Returns the flags that override the plans of the studies.
fn typed(args: &StudyArgs) -> Outcome<Settings> {
    if args.trials == Some(0) {
        return Err(Failure::usage("--trials 0 measures nothing; use 1 or more"));
    }
    if args.runtime.as_deref().is_some_and(|time| units::parse_duration(time) == Ok(0)) {
        return Err(Failure::usage("--runtime 0 measures nothing; use a time such as 1 or 200ms"));
    }
    if args.size == Some(0) {
        return Err(Failure::usage("--size 0 measures nothing; use a size such as 1g"));
    }
    let mut settings = Settings::default();
    if let Some(runtime) = &args.runtime {
        settings.add("runtime", &runtime.clone().into())?;
    }
    if let Some(trials) = args.trials {
        settings.add("trials", &i64::from(trials).into())?;
    }
    Ok(settings)
}
