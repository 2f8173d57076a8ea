//! `halfpower classic diskcache`: measures the cache of a device as the papers' program did: with
//! repeated reads of one block, with sequential reads, and with two outstanding requests.
//!
//! The study `device-cache` measures the repeated reads, and the plan of `study::disk_cache_table`
//! measures the rest.

use ioengine::clock::unix_ns;
use lab::console::{self, Console};
use lab::evidence::Stated;
use lab::experiment::settings::Settings;
use lab::failure::{Exit, Failure, Outcome};
use lab::interrupt::Interrupt;
use lab::json;
use lab::machine::Host;
use lab::recorder::Recorder;
use lab::settings;
use lab::trials::Lab;
use study::catalogue::{self, Study};
use study::disk_cache_table::{self, DiskCacheTable};
use study::plan::Plan;
use study::session::Session;
use study::target::StudyTarget;

use crate::cli::classic::DiskcacheArgs;

/// The study that measures repeated reads.
const STUDY: &str = "device-cache";
/// Name of the run with sequential reads.
const IN_ORDER: &str = "diskcache-sequential";
/// Default size of a test file (bytes).
const FILE_BYTES: u64 = 1 << 30;
/// Default size of a test file with --quick (bytes).
const QUICK_FILE_BYTES: u64 = 256 << 20;

/// Measures the device cache and prints the table.
pub fn execute(args: &DiskcacheArgs) -> Outcome {
    let study = catalogue::named(STUDY).ok_or_else(|| {
        Failure::failed(
            "this version of halfpower lacks the study device-cache; use another version of \
             halfpower",
        )
    })?;
    let plan = Plan::parse(&disk_cache_table::plan(args.quick))?;
    if args.common.plan {
        return print_plan(args, study, &plan);
    }
    let console = Console::new(args.common.quiet);
    settings::warn_of_left_behind(&console);
    let db = (!args.common.no_store).then_some(args.common.db.as_path());
    let interrupt = Interrupt::install();
    Recorder::check(db, std::slice::from_ref(&args.target))?;
    let lab = Lab::new(console, interrupt);
    let most = if args.quick { QUICK_FILE_BYTES } else { FILE_BYTES };
    let consent = args.common.consent();
    let study_target =
        StudyTarget::ready(&args.target, args.size, (most, args.common.seed), &consent, &lab)?;
    let session = Session {
        lab: &lab,
        host: Host::read(),
        study_targets: vec![study_target],
        quick: args.quick,
        toggle_write_cache: false,
        stated: Stated::default(),
        options: args.common.run_options(),
        base: args.common.experiment(),
        typed: Settings::default(),
        size: args.size,
        peer_path: None,
    };
    let rereads = session.make(STUDY, Some(study), Plan::parse(study.plan)?)?;
    let in_order = session.make(IN_ORDER, None, plan)?;
    let table = DiskCacheTable::of(&rereads.evidence, &in_order.evidence);
    json::answer(args.common.json, &table.document(unix_ns()), || table.lines(&rereads));
    let left_out = [&rereads, &in_order].into_iter().flat_map(|made| &made.evidence.left_out);
    left_out.for_each(|part| console.say(format!("left out {}: {}", part.part, part.reason)));
    match [rereads.failure, in_order.failure].into_iter().flatten().next() {
        _ if lab.interrupt.is_set() => Ok(Exit::Interrupted),
        Some(failure) => Err(Failure::failed(failure)),
        None => Ok(Exit::Ok),
    }
}

fn print_plan(args: &DiskcacheArgs, study: &Study, plan: &Plan) -> Outcome {
    let target = args.target.display();
    console::data(&format!(
        "target {target}; if it is a directory, a temporary test file is created in it"
    ));
    console::data(&format!("run the study {}, which only reads; then measure:", study.name));
    let groups = plan.groups(args.quick, &Settings::default())?;
    for group in groups {
        console::data(&format!("  {} {}", group.part, group.words.join(" ")));
    }
    console::data("nothing was done");
    Ok(Exit::Ok)
}
