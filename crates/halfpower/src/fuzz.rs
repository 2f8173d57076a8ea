//! Fuzz targets for all parsers of external input. Each target takes arbitrary bytes and panics if
//! an invariant is violated. Only the fuzzing crate `fuzz/` and the test `mutations` use this
//! module.
//!
//! Only the target `database` has side effects: it writes a file to the temporary directory and
//! removes the file again.

mod classic;

use analysis::units;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use analysis::histogram::{BUCKETS, Exact, Histogram, bucket_bounds};
use clap::Parser;
use filecopy::{Filter, FilterRule};
use ioengine::fault::FaultCounter;
use ioengine::truth::{Schedule, Truth};
use ioengine::{HostTarget, Op};
use lab::date;
use lab::fuzz::Bytes;
use lab::job::Job;
use lab::journal;
use lab::truth;
use seqio::tune::Tunings;
use serve::route::{Address, Route, RunName};
use workload::plan::{self, WorkerPlan};

use crate::cli::{self, Cli, Verb};
use crate::plan_file::PlanFile;
use filecopy::checksum_file::{self, Sum};

/// A fuzz target: accepts any bytes and panics only on a bug.
pub type Target = fn(&[u8]);

/// All fuzz targets by name. The directories of seeds and regressions in `fuzz/` have the same
/// names.
pub const TARGETS: &[(&str, Target)] = &[
    ("units", numbers),
    ("truth", known_truth),
    ("command_line", command_line),
    ("plan_file", plan_file),
    ("journal", journal_entry),
    ("histogram", histogram),
    ("survey", survey::fuzz::survey),
    ("database", survey::fuzz::database),
    ("host_texts", host_texts),
    ("network_server", network_server),
    ("system", lab::fuzz::system),
    ("peer", lab::fuzz::peer),
    ("trace_page", iotrace::fuzz::page),
    ("sqlio", classic::sqlio),
    ("sums", lines_of_sums),
    ("filters", filters),
    ("tunings", tunings),
    ("need", need),
    ("address", address),
    ("fio", exchange::fio::fuzz::job_files),
    ("import", exchange::fuzz::imports),
    ("trace_file", trace::fuzz::file),
    ("trace_import", trace::fuzz::imports),
];

/// Runs the fuzz target `name` of [`TARGETS`] on `data`.
///
/// # Panics
/// If an invariant is violated, or if no target has this name.
pub fn run(name: &str, data: &[u8]) {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.expect("the name is one of `TARGETS`").1(data);
}

/// Fuzzes the two parsers of `plan`. The first line of the input is the `--need`, and the rest is a
/// price list. An accepted need must have positive rates, and an accepted price list must have no
/// negative price.
fn need(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (need, prices) = text.split_once('\n').unwrap_or((&text, ""));
    if let Ok(need) = predict::plan::need::Need::parse(need) {
        assert!(need.streams.iter().all(|stream| stream.requests_per_s > 0.0), "{need:?}");
    }
    if let Ok(prices) = predict::plan::prices::Prices::parse(prices) {
        let price = |system: &predict::plan::prices::SystemPrices| system.of(system.most, true);
        assert!(prices.systems.iter().all(|system| price(system) >= 0.0), "{prices:?}");
    }
}

/// Fuzzes the URLs of `serve`. The first line of the input is the path of a request, and the rest
/// is its query. A URL that selects runs must identify them by number or UUID.
fn address(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (path, query) = text.split_once('\n').unwrap_or((&text, ""));
    let names = match Address::of(path, query).route {
        Some(Route::Run(name)) => vec![name],
        Some(Route::Compare(names)) => names,
        Some(Route::List(part) | Route::Json(part)) => {
            assert!(part.most > 0 && path.len() <= "/api/runs".len(), "{path}");
            return;
        }
        Some(Route::Target { .. }) | None => return,
    };
    for name in names {
        let is_of_name = |c: char| matches!(c, '0'..='9' | 'a'..='f' | '-');
        assert!(name.text().chars().all(is_of_name), "{name:?}");
        assert_eq!(RunName::of(&name.text()), Some(name));
    }
}

/// Fuzzes the rules of `copy --include` and `--exclude`. Each line of the input is a rule, or a
/// colon and a path to match. A filter must be deterministic. If the first rule includes
/// everything, the filter must accept every path.
fn filters(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (paths, patterns): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with(':'));
    let rules = patterns.iter().enumerate();
    let rules: Vec<FilterRule> =
        rules.filter_map(|(i, text)| FilterRule::new(i % 2 == 0, text).ok()).collect();
    let all = FilterRule::new(true, "**").expect("** is a valid pattern");
    let open = Filter::new([vec![all], rules.clone()].concat());
    let filter = Filter::new(rules);
    for path in paths.iter().map(|line| Path::new(&line[1..])) {
        for is_directory in [false, true] {
            let accepted = filter.accepts(path, is_directory);
            assert_eq!(filter.accepts(path, is_directory), accepted);
            assert!(open.accepts(path, is_directory), "{path:?}");
        }
    }
}

/// Fuzzes the file in which `tune` saves its results. An accepted file must stay the same when it
/// is written and parsed again.
fn tunings(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(tunings) = Tunings::read(&text) {
        let written = tunings.text();
        let again = Tunings::read(&written).expect("a written file can be parsed");
        assert_eq!(again.text(), written);
        assert_eq!(again.storage.len(), tunings.storage.len());
    }
}

/// Fuzzes the parsers and formatters of sizes, durations, rates, lists and dates.
fn numbers(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let first = data.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    assert!(date::utc(first as i64).len() >= "1970-01-01 00:00".len());
    if let Ok(bytes) = units::parse_size(&text) {
        assert_eq!(units::parse_size(&format!("{bytes}")), Ok(bytes));
        check_printed(&units::size(bytes), bytes, units::parse_size);
        check_monotone(&text, bytes, units::parse_size);
    }
    if let Ok(ns) = units::parse_duration(&text) {
        assert_eq!(units::parse_duration(&format!("{ns}ns")), Ok(ns));
        let printed = units::time(ns as f64);
        check_printed(&printed, ns, units::parse_duration);
        assert!(units::parse_duration(&printed).is_ok() || ns > 8_900_000_000_000_000_000);
        check_monotone(&text, ns, units::parse_duration);
    }
    if let Ok(rate) = units::parse_rate(&text) {
        assert!(rate.is_finite() && rate > 0.0);
    }
    if let Ok(values) = units::parse_list(&text, units::parse_size) {
        assert!(!values.is_empty() && values.len() <= 64 * data.len().max(1));
    }
}

/// If the printed text can be parsed, checks that the result differs from `value` only by rounding
/// to three digits.
fn check_printed(printed: &str, value: u64, parse: fn(&str) -> Result<u64, String>) {
    if let Ok(back) = parse(printed) {
        let off = back.abs_diff(value) as f64;
        assert!(off <= 0.0051 * value as f64, "{value} is printed as {printed}, parsed as {back}");
    }
}

/// Checks that the parsed number does not become smaller if a 9 is put in front of the text.
fn check_monotone(text: &str, value: u64, parse: fn(&str) -> Result<u64, String>) {
    if let Ok(larger) = parse(&format!("9{}", text.trim_start())) {
        assert!(larger >= value, "{text} parses as {value}, but 9{text} as {larger}");
    }
}

/// Fuzzes the descriptions of reference devices and of injected faults. Every request must complete
/// at or after its arrival.
fn known_truth(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(truth) = truth::parse_truth(&text) {
        assert!(!truth::describe(&truth).is_empty());
        let mut schedule = Schedule::new(Truth { parallelism: truth.parallelism.min(64), ..truth });
        for (number, byte) in data.iter().take(32).enumerate() {
            let (now, op) = (number as u64 * 1000, [Op::Read, Op::Write][usize::from(byte & 1)]);
            let at = schedule.admit(now, op, u64::from(*byte) << 16, 1 << (byte % 21));
            assert!(at >= now);
        }
    }
    if let Ok(plan) = truth::parse_faults(&text) {
        let mut counter = FaultCounter::new(plan);
        for byte in data.iter().take(32) {
            let op = [Op::Read, Op::Write][usize::from(byte & 1)];
            let _ = counter.next(op);
        }
    }
}

/// Fuzzes whole command lines. Each line of the input is one word. Checks that the workloads of a
/// valid command stay within the region of the target. Nothing is measured.
fn command_line(data: &[u8]) {
    let words = data.split(|byte| *byte == b'\n').map(|word| OsString::from_vec(word.to_vec()));
    let words = cli::normalise(std::iter::once(OsString::from("halfpower")).chain(words));
    assert_eq!(cli::normalise(words.iter().cloned()), words, "normalised words were changed again");
    let verb = match Cli::try_parse_from(words) {
        Ok(cli) => cli.verb,
        Err(error) => {
            assert!(!error.render().to_string().is_empty());
            return;
        }
    };
    let resolved = match verb {
        Verb::Run(args) => args.experiment().and_then(|found| Job::resolve(&found, false)),
        Verb::Sweep(args) => args.experiment().and_then(|found| Job::resolve(&found, true)),
        _ => return,
    };
    let job = match resolved {
        Ok(job) => job,
        Err(failure) => {
            // A list of valid values after a colon also counts as a remedy.
            assert!(failure.message.contains([';', ':']), "the message has no remedy: {failure}");
            return;
        }
    };
    let region_bytes = job.size.unwrap_or(1 << 30);
    let target = HostTarget::null(region_bytes.saturating_add(job.base.region_offset));
    for axes in job.axes.iter().take(16) {
        let workload = job.workload(axes, region_bytes, true);
        if let Ok(plan) = plan::resolve(&workload, &target) {
            assert_eq!(plan.workers.len(), axes.threads as usize);
            let end = job.base.region_offset + region_bytes;
            let within = |w: &WorkerPlan| w.region_offset + w.region_bytes <= end;
            assert!(plan.workers.iter().all(within), "a worker exceeds the region: {workload:?}");
        }
    }
}

/// Fuzzes plan files. The flags of an accepted file must be valid on the command line and must
/// never permit writing.
fn plan_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let plan = match PlanFile::parse(Path::new("plan.toml"), &text) {
        Ok(plan) => plan,
        Err(failure) => {
            let line = failure.message.strip_prefix("plan.toml:").and_then(|m| m.split_once(':'));
            let line: usize = line.and_then(|(line, _)| line.parse().ok()).unwrap_or(0);
            assert!((1..=text.lines().count().max(1)).contains(&line), "{failure}");
            return;
        }
    };
    let words = ["halfpower", "sweep"].map(str::to_owned).into_iter().chain(plan.words());
    let cli = Cli::try_parse_from(words).expect("the flags are valid together");
    let Verb::Sweep(args) = cli.verb else { unreachable!("the subcommand is sweep") };
    assert!(args.common.overwrite.is_empty() && args.common.destroy_data_on.is_empty());
    assert!(args.targets.is_empty(), "a flag's value was parsed as a target");
    let experiment = args.experiment().expect("each value was accepted");
    if let Err(failure) = Job::resolve(&experiment, true) {
        let message = failure.message.clone();
        assert!(plan.place(failure).message.ends_with(&message));
    }
}

/// Checks that an accepted journal entry stays the same when it is written and read again.
fn journal_entry(data: &[u8]) {
    let Some(entry) = journal::parse(data) else { return };
    let text = serde_json::to_vec(&entry).expect("a parsed entry can be written");
    assert_eq!(journal::parse(&text), Some(entry));
}

/// Fuzzes the loading of histograms from stored buckets. An accepted histogram must be consistent
/// and stay the same when its buckets are stored and loaded again.
fn histogram(data: &[u8]) {
    let mut bytes = Bytes(data);
    let exact = bytes.flag().then(|| Exact {
        overflow: bytes.number(),
        min_ns: bytes.number(),
        max_ns: bytes.number(),
        sum_ns: u128::from(bytes.number()) << (bytes.byte() % 65),
    });
    let mut buckets = Vec::new();
    while !bytes.is_empty() {
        let low_ns = if bytes.flag() {
            bytes.number()
        } else {
            bucket_bounds(bytes.number() as usize % BUCKETS).map_or(0, |(low, _)| low)
        };
        buckets.push((low_ns, bytes.number()));
    }
    let Ok(read) = Histogram::from_buckets(buckets, exact) else { return };
    let stored = read.buckets().map(|bucket| (bucket.low_ns, bucket.count));
    assert_eq!(Histogram::from_buckets(stored, read.exact()), Ok(read.clone()));
    let quantiles = [0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0].map(|q| read.quantile(q));
    assert!(quantiles.is_sorted(), "{quantiles:?} of {read:?}");
    assert!(quantiles.iter().flatten().all(|ns| (read.min()..=read.max()).contains(&Some(*ns))));
    let mut twice = read.clone();
    twice.merge(&read);
    assert_eq!((twice.min(), twice.max()), (read.min(), read.max()));
}

/// Checks that an accepted checksum file stays the same when it is written and read again.
fn lines_of_sums(data: &[u8]) {
    match checksum_file::parse(data) {
        Ok(read) => {
            let text: Vec<Vec<u8>> = read.iter().map(Sum::line).collect();
            assert_eq!(checksum_file::parse(&text.join(&b'\n')), Ok(read));
        }
        Err((line, why)) => {
            let lines = data.split(|byte| *byte == b'\n').count();
            assert!((1..=lines).contains(&line) && !why.is_empty());
        }
    }
}

/// Passes the input to the clients of network protocols as if a server had sent it.
fn network_server(data: &[u8]) {
    ioengine::fuzz::network_server(data);
}

/// Fuzzes the parsers of kernel files about mounts, memory, devices, CPUs and tracepoints.
fn host_texts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    ioengine::fuzz::texts(&text);
    cpucost::fuzz::texts(&text);
    iotrace::fuzz::texts(&text);
}
