//! `halfpower whatif`: a change to a simulated system or its load, before it is made.

use schemars::JsonSchema;
use serde::Serialize;
use simulator::Description;
use workload::spec::Content;
use workload::{Pattern, Workload};

use crate::cli::whatif::WhatifArgs;
use crate::console;
use crate::failure::{Exit, Failure, Outcome};
use crate::json::{self, Program};
use crate::sim_target;
use crate::units;
use crate::whatif::{self, Answer, Question, SensitivityDocument, SideDocument};

/// The longest stretch of virtual time that is simulated (ns) ...
const LIMIT_NS: u64 = 20_000_000_000;
/// ... and the most requests, for each that is outstanding at least so many.
const REQUESTS: u64 = 5000;
const REQUESTS_FOR_EACH: u64 = 50;
/// Parameters that are printed.
const PRINTED: usize = 10;

/// What `--json` prints.
#[derive(Serialize, JsonSchema)]
pub struct WhatifDocument {
    /// The program.
    pub halfpower: Program,
    /// The system.
    pub system: String,
    /// The changes, as they were typed.
    pub changes: Vec<String>,
    /// Before the change.
    pub before: SideDocument,
    /// After the change.
    pub after: SideDocument,
    /// Throughput after over throughput before.
    pub ratio: f64,
    /// How the throughput before the change answers to the parameters of the system, the
    /// strongest first.
    pub sensitivities: Vec<SensitivityDocument>,
}

/// Answers and prints.
pub fn execute(args: &WhatifArgs) -> Outcome {
    let question = question(args)?;
    if args.plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    let answer = whatif::answer(&question)?;
    if args.json {
        console::data(&json::print(&document(args, answer)));
    } else {
        print(&answer);
    }
    Ok(Exit::Ok)
}

/// The changes as they were typed.
fn changes(args: &WhatifArgs) -> Vec<String> {
    let depth = args.iodepth_to.map(|depth| format!("iodepth={depth}"));
    let size = args.bs_to.map(|bytes| format!("bs={bytes}"));
    args.set.iter().cloned().chain(depth).chain(size).collect()
}

fn question(args: &WhatifArgs) -> Outcome<Question> {
    let mut before = sim_target::parse(&args.system, &[])?;
    change(&mut before, &args.given)?;
    let mut after = before.clone();
    change(&mut after, &args.set)?;
    let no_change = changes(args).is_empty() && args.price_to.is_none();
    if no_change {
        return Err(Failure::usage(
            "whatif: nothing changes; add --set KEY=VALUE, --iodepth-to N or --bs-to SIZE",
        ));
    }
    let load = load(args, &before, args.bs, args.iodepth)?;
    let (size, depth) = (args.bs_to.unwrap_or(args.bs), args.iodepth_to.unwrap_or(args.iodepth));
    let load_after = self::load(args, &after, size, depth)?;
    let prices = [args.price, args.price_to.or(args.price)];
    Ok(Question { before, after, load, load_after, prices })
}

fn change(system: &mut Description, changes: &[String]) -> Outcome<()> {
    for change in changes {
        let (key, value) = change.split_once('=').ok_or_else(|| {
            Failure::usage(format!("--set {change}: write KEY=VALUE, as in --set disks=2"))
        })?;
        system.set(key, value)?;
    }
    Ok(())
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
                "--rw {other}: read, write, rw, randread, randwrite or randrw"
            )));
        }
    };
    let request_bytes = u32::try_from(size).ok().filter(|bytes| *bytes > 0);
    let request_bytes = request_bytes
        .ok_or_else(|| Failure::usage(format!("--bs {size}: use a request size such as 64k")))?;
    let file_bytes = system.system()?.setup.file_size;
    let region_bytes = args.size.unwrap_or(file_bytes) / size * size;
    let outstanding = u64::from(depth) * u64::from(args.numjobs);
    let requests = REQUESTS.max(REQUESTS_FOR_EACH * outstanding);
    Ok(Workload {
        pattern,
        read_percent,
        request_bytes,
        depth,
        threads: args.numjobs,
        region_bytes,
        limit_bytes: Some(requests * size),
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
    }
}

fn print(answer: &Answer) {
    let Answer { before, after, sensitivities } = answer;
    let row = |what: &str, of: &dyn Fn(&SideDocument) -> String| {
        let (before, after) = (of(before), of(after));
        console::data(&format!("{what:<24} {before:>26} {after:>26}"));
    };
    console::data(&format!("{:<24} {:>26} {:>26}", "", "before", "after"));
    row("load", &|side| side.workload.clone());
    row("throughput", &|side| units::rate(side.bytes_per_s));
    row("requests per second", &|side| units::count(side.requests_per_s));
    row("latency p50", &|side| units::time(side.latency_p50_ns as f64));
    row("latency p99", &|side| units::time(side.latency_p99_ns as f64));
    row("CPU per request", &|side| units::time(side.cpu_ns_per_request));
    row("bottleneck", &|side| side.bottleneck.clone());
    row("busiest part", &|side| format!("{:.0}%", side.utilisation * 100.0));
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
    console::data("sensitivity of the throughput before: d ln(throughput) / d ln(parameter)");
    for s in sensitivities.iter().take(PRINTED) {
        console::data(&format!("{:<28} {:>+6.2}  {}", s.key, s.sensitivity, s.source));
    }
    let doubts = answer.doubts();
    let text = if doubts.is_empty() {
        "trust: every parameter that matters was measured or is documented".to_owned()
    } else {
        let keys: Vec<&str> = doubts.iter().map(|doubt| doubt.key.as_str()).collect();
        format!("trust: with care; these matter and are only assumed: {}", keys.join(", "))
    };
    console::data(&format!("\n{text}"));
}
