//! `halfpower whatif`: predicts what a change of a simulated system or its load does to throughput,
//! latency and price.

use analysis::units;
use std::sync::{Mutex, PoisonError};

use lab::console::{self, Console};
use lab::failure::{Exit, Failure, Outcome};
use lab::json::{self, Program};
use lab::simulated_target;
use predict::trust::Basis;
use predict::whatif::{self, Answer, Question, SensitivityDocument, SideDocument};
use schemars::JsonSchema;
use serde::Serialize;
use simulator::Description;
use workload::spec::Content;
use workload::{Pattern, Workload};

use crate::cli::whatif::WhatifArgs;

/// Maximum simulated time (ns).
const LIMIT_NS: u64 = 20_000_000_000;
/// Simulated requests of all files together.
const REQUESTS: u64 = 5000;
/// Minimum number of simulated requests of one file.
const REQUESTS_PER_FILE: u64 = 100;
/// Minimum requests per outstanding request, so that ramp-up and drain have little weight.
const REQUESTS_PER_OUTSTANDING: u64 = 50;
/// Number of parameters printed.
const PRINTED: usize = 10;

/// What `--json` prints.
#[derive(Serialize, JsonSchema)]
pub struct WhatifDocument {
    /// The program.
    pub halfpower: Program,
    /// The system.
    pub system: String,
    /// The changes, as typed.
    pub changes: Vec<String>,
    /// Results before the change.
    pub before: SideDocument,
    /// Results after the change.
    pub after: SideDocument,
    /// Throughput after the change divided by the throughput before.
    pub ratio: f64,
    /// Sensitivity of the throughput before the change to each parameter of the system, strongest
    /// first.
    pub sensitivities: Vec<SensitivityDocument>,
    /// Sensitivity of the throughput after the change, strongest first.
    pub sensitivities_after: Vec<SensitivityDocument>,
}

pub fn execute(args: &WhatifArgs) -> Outcome {
    let question = question(args)?;
    if args.plan {
        plan(args, &question);
        return Ok(Exit::Ok);
    }
    let progress = Mutex::new(Console::new(args.quiet).open_progress());
    let tell = |share| {
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.advance(Some(share), "simulating");
    };
    let answer = whatif::answer(&question, &tell);
    progress.into_inner().unwrap_or_else(PoisonError::into_inner).finish();
    let answer = answer?;
    if args.json {
        console::data(&json::print(&document(args, answer)));
    } else {
        print(&answer);
    }
    Ok(Exit::Ok)
}

/// Prints the load and system before and after the change, and what would be simulated.
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
    console::data(&format!(
        "simulate both, and change each of their {keys} values by 5% for the sensitivities"
    ));
    console::plan_to_print();
}

/// The changes, as typed.
fn changes(args: &WhatifArgs) -> Vec<String> {
    let depth = args.iodepth_to.map(|depth| format!("iodepth={depth}"));
    let size = args.bs_to.map(|bytes| format!("bs={bytes}"));
    args.set.iter().cloned().chain(depth).chain(size).collect()
}

fn question(args: &WhatifArgs) -> Outcome<Question> {
    let both: Vec<String> = args.given.iter().chain(&args.set).cloned().collect();
    let before = simulated_target::parse(&args.system, &args.given)?;
    let after = simulated_target::parse(&args.system, &both)?;
    let no_change = changes(args).is_empty() && args.price_to.is_none();
    if no_change {
        return Err(Failure::usage(
            "whatif: no change was given; add --set KEY=VALUE, --iodepth-to N or --bs-to SIZE",
        ));
    }
    let load = load(args, &before, args.bs, args.iodepth)?;
    let (size, depth) = (args.bs_to.unwrap_or(args.bs), args.iodepth_to.unwrap_or(args.iodepth));
    let load_after = self::load(args, &after, size, depth)?;
    let prices = [args.price, args.price_to.or(args.price)];
    let are_changed = [!args.given.is_empty(), !both.is_empty()];
    let question = Question { before, after, load, load_after, prices, are_changed };
    whatif::check(&question)?;
    Ok(question)
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
    // The closed-form bounds hold only if each byte is accessed once.
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

fn document(args: &WhatifArgs, answer: Answer) -> WhatifDocument {
    WhatifDocument {
        halfpower: Program::this(),
        system: args.system.clone(),
        changes: changes(args),
        ratio: answer.after.bytes_per_s / answer.before.bytes_per_s,
        before: answer.before,
        after: answer.after,
        sensitivities: answer.sensitivities,
        sensitivities_after: answer.sensitivities_after,
    }
}

fn print(answer: &Answer) {
    let Answer { before, after, .. } = answer;
    let row = |what: &str, of: &dyn Fn(&SideDocument) -> String| {
        let (before, after) = (of(before), of(after));
        console::data(&format!("{what:<24} {before:>26} {after:>26}"));
    };
    console::data(&format!("{:<24} {:>26} {:>26}", "", "before", "after"));
    row("load", &|side| side.workload.clone());
    row("throughput", &|side| units::rate(side.bytes_per_s));
    if before.trust.is_some() {
        row("... with error", &|side| error_range(side));
    }
    row("requests per second", &|side| units::count(side.requests_per_s));
    row("latency p50", &|side| units::time(side.latency_p50_ns as f64));
    row("latency p99", &|side| units::time(side.latency_p99_ns as f64));
    row("CPU per request", &|side| units::time(side.cpu_ns_per_request));
    row("bottleneck", &|side| side.bottleneck.clone());
    row("... busy", &|side| format!("{:.0}%", side.utilisation * 100.0));
    if before.held.is_some() || after.held.is_some() {
        let held = |side: &SideDocument| side.held.as_ref().map(|held| held.resource.clone());
        row("... held up by it", &|side| held(side).unwrap_or_else(|| "-".to_owned()));
    }
    let bound = |side: &SideDocument| side.bound.clone();
    row("bound", &|side| bound(side).map_or("-".into(), |b| units::rate(b.bytes_per_s)));
    row("... set by", &|side| bound(side).map_or("-".into(), |b| b.name));
    if before.price.is_some() || after.price.is_some() {
        let price = |side: &SideDocument, of: fn(&whatif::PriceDocument) -> f64| {
            side.price.as_ref().map_or("-".into(), |price| format!("{:.4}", of(price)))
        };
        row("price per MB/s", &|side| price(side, |price| price.per_mb_per_s));
        row("price per KAPS", &|side| price(side, |price| price.per_kaps));
    }
    let ratio = after.bytes_per_s / before.bytes_per_s;
    console::data(&format!("\nthe change multiplies throughput by {ratio:.2}\n"));
    print_sensitivities(answer);
    print_trust(answer);
}

/// Range of the throughput if it is as wrong as the worst calibration point near the load.
fn error_range(side: &SideDocument) -> String {
    let trust = side.trust.as_ref();
    let ends = trust.and_then(|trust| trust.low_bytes_per_s.zip(trust.high_bytes_per_s));
    ends.map_or("unknown".into(), |(low, high)| {
        format!("{} to {}", units::rate_mb(low), units::rate_mb(high))
    })
}

/// Prints the sensitivities before and after the change, strongest of either first.
fn print_sensitivities(answer: &Answer) {
    console::data("sensitivity of the throughput: d ln(throughput) / d ln(parameter)");
    console::data(&format!("{:<28} {:>6} {:>6}", "", "before", "after"));
    let sides = [&answer.sensitivities, &answer.sensitivities_after];
    let of = |side: &[SensitivityDocument], key: &str| {
        side.iter().find(|s| s.key == key).map_or(0.0, |s| s.sensitivity)
    };
    let mut all: Vec<&SensitivityDocument> = sides.into_iter().flatten().collect();
    all.sort_by(|a, b| b.sensitivity.abs().total_cmp(&a.sensitivity.abs()));
    let mut printed: Vec<&str> = Vec::new();
    for s in all {
        if printed.len() < PRINTED && !printed.contains(&s.key.as_str()) {
            printed.push(&s.key);
            let [before, after] = sides.map(|side| of(side, &s.key));
            console::data(&format!("{:<28} {before:>+6.2} {after:>+6.2}  {}", s.key, s.source));
        }
    }
}

/// Prints the estimated error and the doubtful parameters.
fn print_trust(answer: &Answer) {
    console::data("");
    for (when, side) in [("before", &answer.before), ("after", &answer.after)] {
        if let Some(trust) = &side.trust {
            let word = match (trust.basis, trust.is_good()) {
                (Basis::Outside, _) => "none",
                (_, true) => "good",
                (_, false) => "with care",
            };
            console::data(&format!("trust {when:<7} {word}: {}", trust.text()));
        }
    }
    let doubts: Vec<&str> = answer.doubts().iter().map(|doubt| doubt.key.as_str()).collect();
    console::data(&match (doubts.is_empty(), answer.before.trust.is_some()) {
        (false, _) => format!(
            "important values that are only assumed or not identified by the calibration: {}",
            doubts.join(", ")
        ),
        (true, true) => "all important values were identified by the calibration".into(),
        (true, false) => {
            "all important values were measured or documented; halfpower calibrate compares the \
             system with a real device"
                .to_owned()
        }
    });
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
        // The rack has a thousand drives, each with its own file.
        assert_eq!(requests("whatif rack --rw randread --bs 8k --iodepth-to 4"), [100, 200]);
    }
}
