//! `halfpower whatif`: predicts how a change of a simulated system or of its load affects
//! throughput, latency and price.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lab::console::{self, Console};
use lab::experiment::Experiment;
use lab::failure::{Exit, Failure, Outcome};
use lab::json;
use lab::simulated_target;
use lab::trace_load::TraceLoad;
use predict::whatif::{self, Question};
use predict::whatif_text::{self, WhatifDocument};
use simulator::Description;
use trace::replay::Changes;
use workload::spec::Content;
use workload::{Pattern, Workload};

use crate::cli::whatif::WhatifArgs;

/// Maximum simulated time (ns).
const LIMIT_NS: u64 = 20_000_000_000;
/// Number of requests to simulate, in total over all files.
const REQUESTS: u64 = 5000;
/// Minimum number of requests to simulate per file.
const REQUESTS_PER_FILE: u64 = 100;
/// Minimum ratio of simulated requests to outstanding requests. A large ratio keeps the effect of
/// ramp-up and drain on the result small.
const REQUESTS_PER_OUTSTANDING: u64 = 50;

pub fn execute(args: &WhatifArgs) -> Outcome {
    let question = question(args)?;
    if args.output.plan {
        plan(args, &question);
        return Ok(Exit::Ok);
    }
    let progress = Mutex::new(Console::new(args.output.quiet).open_progress());
    let tell = |share| {
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.advance(Some(share), "simulating");
    };
    let answer = whatif::answer(&question, &tell);
    progress.into_inner().unwrap_or_else(PoisonError::into_inner).finish();
    let answer = answer?;
    let lines = whatif_text::lines(&answer);
    let document = WhatifDocument::new(args.system.clone(), changes(args), answer);
    json::answer(args.output.json, &document, || lines);
    Ok(Exit::Ok)
}

/// Prints the system and the load before and after the change, and lists the simulations to run.
fn plan(args: &WhatifArgs, question: &Question) {
    let keys = question.before.keys().len() + question.after.keys().len();
    let [before, after] = [&question.load, &question.load_after].map(whatif::describe);
    let given = if args.given.is_empty() {
        String::new()
    } else {
        format!(" with {}", args.given.join(", "))
    };
    let changes = match changes(args).as_slice() {
        [] => "the price".to_owned(),
        changes => changes.join(", "),
    };
    console::data(&format!("before:  {}{given}, {before}", args.system));
    console::data(&format!("after:   {after}"));
    console::data(&format!("changes: {changes}"));
    console::data(&match whatif::has_sensitivities(&question.load) {
        true => format!(
            "simulate the system before and after the change, then vary each of the {keys} values \
             by 5% to compute sensitivities"
        ),
        false => "simulate the system before and after the change; the trace is too long to \
                  compute sensitivities"
            .to_owned(),
    });
    console::plan_to_print();
}

/// Returns the changes of system settings that the flags request, as `KEY=VALUE`.
fn settings(args: &WhatifArgs) -> Vec<String> {
    let direct = args.direct.then(|| "caching=direct".to_owned());
    let buffered = args.buffered.then(|| "caching=buffered".to_owned());
    // Without a unit, the value would have the unit of the system file, which may be MiB or GiB.
    let mib = |bytes: u64| format!("host.cache.size={}MiB", bytes as f64 / f64::from(1 << 20));
    let cache = args.cache.map(mib);
    args.set.iter().cloned().chain(direct).chain(buffered).chain(cache).collect()
}

/// Returns all requested changes of the system and the load, as `KEY=VALUE`.
fn changes(args: &WhatifArgs) -> Vec<String> {
    let depth = args.iodepth_to.map(|depth| format!("iodepth={depth}"));
    let size = args.bs_to.map(|bytes| format!("bs={bytes}"));
    let merge = args.habits.merge_to.map(|bytes| format!("merge={bytes}"));
    let flushes = args.habits.flush_every.map(|writes| format!("flush-every={writes}"));
    settings(args).into_iter().chain(depth).chain(size).chain(merge).chain(flushes).collect()
}

fn question(args: &WhatifArgs) -> Outcome<Question> {
    let both: Vec<String> = args.given.iter().cloned().chain(settings(args)).collect();
    let mut before = simulated_target::parse(&args.system, &args.given)?;
    let mut after = simulated_target::parse(&args.system, &both)?;
    let no_change = changes(args).is_empty() && args.price_to.is_none();
    if no_change {
        return Err(Failure::usage(
            "whatif: no change was given; add --set KEY=VALUE, --direct, --buffered, --cache SIZE, \
             --iodepth-to N or --bs-to SIZE; with --trace also --merge-to SIZE or --flush-every N",
        ));
    }
    let (load, load_after) = match &args.trace {
        Some(trace) => {
            let load = trace_of(args, trace)?;
            let changed = load.with_changes(args.habits.changes(args.iodepth_to));
            let before = workload_of(&load, args, (&mut before, &args.given))?;
            (before, workload_of(&changed, args, (&mut after, &both))?)
        }
        None => {
            let depth = args.iodepth_to.unwrap_or(args.iodepth);
            let load = load(args, &before, args.bs, args.iodepth)?;
            (load, self::load(args, &after, args.bs_to.unwrap_or(args.bs), depth)?)
        }
    };
    let prices = [args.price, args.price_to.or(args.price)];
    let are_changed = [&args.given, &both].map(|set| whatif::is_changed_by(&before, set));
    let question = Question { before, after, load, load_after, prices, are_changed };
    whatif::check(&question)?;
    Ok(question)
}

/// Opens the trace whose requests are simulated.
fn trace_of(args: &WhatifArgs, trace: &Path) -> Outcome<TraceLoad> {
    let parameters = args.trace_load.parameters(trace.to_owned(), Changes::default());
    TraceLoad::open(&on_system(args), &parameters)
}

/// Returns an experiment with the simulated system as its target and without a load.
fn on_system(args: &WhatifArgs) -> Experiment {
    let target = PathBuf::from(format!("{}{}", simulated_target::PREFIX, args.system));
    Experiment { targets: vec![target], seed: args.seed, ..Experiment::default() }
}

/// Returns the workload of a trace. Enlarges the simulated file if it is too small for the trace.
/// If `settings` do not specify a caching mode, sets the caching mode that the traced program used.
fn workload_of(
    load: &TraceLoad,
    args: &WhatifArgs,
    (description, settings): (&mut Description, &[String]),
) -> Outcome<Workload> {
    let experiment = load.experiment(&on_system(args));
    let needed_bytes = experiment.size_bytes.unwrap_or(0);
    if needed_bytes > description.system()?.setup.file_size {
        description.set("file_size", &needed_bytes.to_string()).map_err(|_| {
            Failure::usage(format!(
                "the trace needs a file of {needed_bytes} bytes, but the file of the simulated \
                 system is smaller and cannot be enlarged; add --fold, which moves requests \
                 that are beyond the end into the file"
            ))
        })?;
    }
    let mut words = settings.iter().flat_map(|setting| setting.split(','));
    if !words.any(|word| word.trim().starts_with("caching=")) {
        let direct = experiment.direct == Some(true);
        description.set("caching", if direct { "direct" } else { "buffered" })?;
    }
    Ok(load.apply(Workload {
        pattern: Pattern::Random,
        read_percent: load.read_percent(),
        request_bytes: load.piece_bytes(),
        depth: load.depth(),
        region_bytes: description.system()?.setup.file_size,
        content: Content::Zero,
        seed: args.seed,
        ..Workload::default()
    }))
}

fn load(args: &WhatifArgs, system: &Description, size: u64, depth: u32) -> Outcome<Workload> {
    let (pattern, read_percent) = match args.rw.as_str() {
        "read" => (Pattern::Sequential, 100),
        "write" => (Pattern::Sequential, 0),
        "rw" => (Pattern::Sequential, args.rwmixread),
        "randread" => (Pattern::Random, 100),
        "randwrite" => (Pattern::Random, 0),
        "randrw" => (Pattern::Random, args.rwmixread),
        other => {
            return Err(Failure::usage(format!(
                "unknown --rw '{other}'; use read, write, rw, randread, randwrite or randrw"
            )));
        }
    };
    let request_bytes = u32::try_from(size).ok().filter(|bytes| *bytes > 0);
    let request_bytes = request_bytes
        .ok_or_else(|| Failure::usage(format!("--bs {size}: use a request size such as 64k")))?;
    let system = system.system()?;
    let region_bytes = args.size.unwrap_or(system.setup.file_size) / size * size;
    let outstanding = u64::from(depth) * u64::from(args.numjobs);
    let files = whatif::files(&system).max(1);
    let requests =
        (REQUESTS / files).max(REQUESTS_PER_FILE).max(REQUESTS_PER_OUTSTANDING * outstanding);
    // The closed-form bounds hold only if each byte is accessed at most once. The amount of data is
    // therefore limited to the size of the region. A region with room for fewer than
    // REQUESTS_PER_FILE requests is accessed several times instead.
    let bytes = if region_bytes >= REQUESTS_PER_FILE * size {
        region_bytes.min(requests * size)
    } else {
        requests * size
    };
    Ok(Workload {
        pattern,
        read_percent,
        request_bytes,
        depth,
        threads: args.numjobs,
        region_bytes,
        limit_bytes: Some(bytes),
        limit_ns: Some(LIMIT_NS),
        content: Content::Zero,
        seed: args.seed,
        ..Workload::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb, normalise};
    use clap::Parser;
    use std::ffi::OsString;

    fn question_of(line: &str) -> Question {
        let words = std::iter::once("halfpower").chain(line.split_whitespace());
        match Cli::try_parse_from(normalise(words.map(OsString::from))).unwrap().verb {
            Verb::Whatif(args) => question(&args).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn requests_are_divided_among_files() {
        let requests = |line: &str| {
            let Question { load, load_after, .. } = question_of(line);
            [load, load_after].map(|load| load.limit_bytes.unwrap() / 8192)
        };
        let one = requests("whatif sata-ssd --rw randread --bs 8k --iodepth-to 200");
        assert_eq!(one, [5000, 10_000]);
        // Each of the rack's thousand drives has its own file, so the minimum per file applies.
        assert_eq!(requests("whatif rack --rw randread --bs 8k --iodepth-to 4"), [100, 200]);
    }
}
