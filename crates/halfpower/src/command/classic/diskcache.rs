//! `halfpower classic diskcache`: measures the cache of a device like the papers' program, with
//! repeated reads of one block, sequential reads, and two outstanding requests.
//!
//! The study `device-cache` does the rereads, and a plan in this file the sequential reads. Nothing
//! is written.

use std::collections::BTreeMap;

use ioengine::clock::unix_ns;
use lab::console::{self, Console};
use lab::evidence::{Evidence, Stated};
use lab::experiment::settings::Settings;
use lab::failure::{Exit, Failure, Outcome};
use lab::interrupt::Interrupt;
use lab::json;
use lab::machine::Host;
use lab::recorder::Recorder;
use lab::settings;
use lab::trials::Lab;
use report::model::Finding;
use serde::Serialize;
use study::catalogue::{self, Study};
use study::plan::Plan;
use study::session::{Session, StudyResult};
use study::target::StudyTarget;

use crate::cli::classic::DiskcacheArgs;

/// The study that measures rereads.
const STUDY: &str = "device-cache";
/// Name of the run with sequential reads.
const IN_ORDER: &str = "diskcache-sequential";
/// Request sizes of the sequential reads, as in the papers' table.
const SIZES: [&str; 8] = ["512", "1k", "2k", "4k", "8k", "16k", "32k", "64k"];
/// The part with two outstanding requests within a small region.
const TWO_DEEP: &str = "two-deep";
/// Default size of a test file (bytes).
const FILE_BYTES: u64 = 1 << 30;
/// Default size of a test file with --quick (bytes).
const QUICK_FILE_BYTES: u64 = 256 << 20;
/// Bytes per MB as in the papers.
const MB: f64 = 1048576.0;

/// Measures and prints.
pub fn execute(args: &DiskcacheArgs) -> Outcome {
    let study = catalogue::named(STUDY)
        .ok_or_else(|| Failure::failed("the study device-cache is missing; use another version"))?;
    let plan = Plan::parse(&plan(args.quick))?;
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
    };
    let rereads = session.make(STUDY, Some(study), Plan::parse(study.plan)?)?;
    let in_order = session.make(IN_ORDER, None, plan)?;
    let table = Table::of(&rereads.evidence, &in_order.evidence);
    if args.common.json {
        console::data(&json::print(&table.document(unix_ns())));
    } else {
        table.lines(&rereads).iter().for_each(|line| console::data(line));
    }
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
    console::data(&format!("target {target}: a directory gets a test file, removed afterwards"));
    console::data(&format!("the study {}, which only reads", study.name));
    let groups = plan.groups(args.quick, &Settings::default())?;
    for group in groups {
        console::data(&format!("  {} {}", group.part, group.words.join(" ")));
    }
    console::data("nothing was done");
    Ok(Exit::Ok)
}

/// The plan of the sequential reads: one part per size, and one at depth 2 within 512 KiB.
fn plan(quick: bool) -> String {
    let runtime = if quick { 0.1 } else { 0.5 };
    let mut text = format!(
        "title = \"Disk cache\"\nasks = \"What do blocks in order cost?\"\ndirect = true\n\
         rw = \"read\"\ntrials = 1\nruntime = {runtime}\n"
    );
    for size in SIZES {
        text.push_str(&format!("\n[[part]]\nname = \"{size}\"\nbs = \"{size}\"\n"));
    }
    text.push_str(&format!(
        "\n[[part]]\nname = \"{TWO_DEEP}\"\nbs = \"64k\"\niodepth = 2\nsize = \"512k\"\n\
         time-based = true\n"
    ));
    text
}

/// The results as JSON.
#[derive(Debug, Serialize)]
struct TableDocument {
    ended_unix_ns: i64,
    rows: Vec<RowDocument>,
    regions: Vec<RegionDocument>,
    two_deep_bytes_per_s: Option<f64>,
}

#[derive(Debug, Serialize)]
struct RowDocument {
    request_bytes: u64,
    same_block_ns: Option<f64>,
    sequential_ns: Option<f64>,
}

#[derive(Debug, Serialize)]
struct RegionDocument {
    region_bytes: u64,
    reread_ns: f64,
}

/// The table of results.
struct Table {
    /// Request size (bytes) to the times of a reread and of a sequential read (ns).
    rows: BTreeMap<u64, (Option<f64>, Option<f64>)>,
    /// Region size (bytes) to the time of a 64 KiB reread (ns).
    regions: BTreeMap<u64, f64>,
    /// Rate with two outstanding requests of 64 KiB [bytes per second].
    two_deep: Option<f64>,
}

impl Table {
    fn of(rereads: &Evidence, in_order: &Evidence) -> Table {
        let number = |labels: &BTreeMap<String, String>, name: &str| {
            labels.get(name).and_then(|text| text.parse::<u64>().ok())
        };
        let mut rows: BTreeMap<u64, (Option<f64>, Option<f64>)> = BTreeMap::new();
        for reading in rereads.read("same-block", &[]) {
            if let Some(bytes) = number(&reading.labels, "bytes") {
                rows.entry(bytes).or_default().0 = Some(reading.value);
            }
        }
        for cell in in_order.points.iter().filter(|cell| cell.part != TWO_DEEP) {
            rows.entry(cell.bytes()).or_default().1 = cell.latency_ns(0.5);
        }
        let region = |reading: &lab::evidence::Reading| {
            Some((number(&reading.labels, "region")?, reading.value))
        };
        let two_deep = in_order.points.iter().find(|cell| cell.part == TWO_DEEP);
        Table {
            rows,
            regions: rereads.read("reread", &[]).into_iter().filter_map(region).collect(),
            two_deep: two_deep.map(|cell| cell.rate()),
        }
    }

    fn document(&self, ended_unix_ns: i64) -> TableDocument {
        let row = |(bytes, (same, ordered)): (&u64, &(Option<f64>, Option<f64>))| RowDocument {
            request_bytes: *bytes,
            same_block_ns: *same,
            sequential_ns: *ordered,
        };
        let region =
            |(bytes, ns): (&u64, &f64)| RegionDocument { region_bytes: *bytes, reread_ns: *ns };
        TableDocument {
            ended_unix_ns,
            rows: self.rows.iter().map(row).collect(),
            regions: self.regions.iter().map(region).collect(),
            two_deep_bytes_per_s: self.two_deep,
        }
    }

    fn lines(&self, rereads: &StudyResult) -> Vec<String> {
        let ms =
            |ns: &Option<f64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.4}", ns / 1e6));
        let rate = |bytes: &u64, ns: &Option<f64>| {
            let per_s = |ns: f64| format!("{:.1}", *bytes as f64 / MB * 1e9 / ns.max(1.0));
            ns.map_or_else(|| "-".to_owned(), per_s)
        };
        let mut lines = vec![format!(
            "{:>8} {:>16} {:>10} {:>14} {:>10}",
            "request", "same block (ms)", "MB/s", "in order (ms)", "MB/s"
        )];
        lines.extend(self.rows.iter().map(|(bytes, (same, ordered))| {
            let size = units::size(*bytes);
            let (hit, next) = (ms(same), ms(ordered));
            let (fast, stream) = (rate(bytes, same), rate(bytes, ordered));
            format!("{size:>8} {hit:>16} {fast:>10} {next:>14} {stream:>10}")
        }));
        if !self.regions.is_empty() {
            lines.push(format!("{:>8} {:>16}", "region", "64 KiB again (ms)"));
        }
        lines.extend(
            self.regions
                .iter()
                .map(|(bytes, ns)| format!("{:>8} {:>16}", units::size(*bytes), ms(&Some(*ns)))),
        );
        if let Some(rate) = self.two_deep {
            lines.push(format!("two requests of 64 KiB outstanding: {:.1} MB/s", rate / MB));
        }
        lines.extend(rereads.conclusion.findings.iter().map(Finding::text));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_plan_reads_in_order_and_writes_nothing() {
        for quick in [true, false] {
            let groups = Plan::parse(&plan(quick)).unwrap().groups(quick, &Settings::default());
            let groups = groups.unwrap();
            assert_eq!(groups.len(), SIZES.len() + 1);
            assert!(groups.iter().all(|group| group.words.contains(&"--rw=read".to_owned())));
        }
    }

    #[test]
    fn the_table_joins_rereads_and_reads_in_order() {
        let mut evidence = Evidence::default();
        let labels = [("target", "t".to_owned()), ("bytes", "2048".to_owned())];
        evidence.note("same-block", "ns", &labels, 500_000.0);
        let labels = [("target", "t".to_owned()), ("region", "262144".to_owned())];
        evidence.note("reread", "ns", &labels, 1e6);
        let table = Table::of(&evidence, &Evidence::default());
        assert_eq!(table.rows[&2048], (Some(500_000.0), None));
        assert_eq!(table.regions[&262_144], 1e6);
        assert_eq!(table.two_deep, None);
    }
}
