//! Writes the results of the fleet to databases, with the same code as halfpower.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use lab::point::{Point, Verdict};
use lab::record;
use lab::recorder::{JSON_SCHEMA, RunSettings};
use lab::workload_document::WorkloadDocument;
use results::{NewRun, RunEnd, RunKind, RunState, Seed, Store};

use crate::Options;
use crate::host::{Machine, RUNS, random_of};
use crate::measurement;

/// Writes the databases in parallel.
pub fn write(options: &Options, hosts: &[Machine]) -> Result<(), String> {
    let files: Vec<&[Machine]> = hosts.chunks(options.hosts_per_file).collect();
    let next = AtomicUsize::new(0);
    let worker = || -> Result<(), String> {
        while let Some(hosts) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            database(options, hosts).map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))
        };
        workers.into_iter().try_for_each(join)
    })
}

fn path(options: &Options, hosts: &[Machine]) -> PathBuf {
    options.folder.join(format!("{}.db", hosts[0].name()))
}

fn database(options: &Options, hosts: &[Machine]) -> Result<(), results::Error> {
    let mut all = Store::open(path(options, hosts))?;
    for host in hosts {
        // Adding trials to a database in memory is fast, because nothing waits for the disk. One
        // transaction then merges this database into the file.
        let mut store = Store::in_memory()?;
        for run in 0..RUNS {
            add_run(options, host, run, &mut store)?;
        }
        all.merge(&store)?;
    }
    all.close()
}

fn add_run(
    options: &Options,
    host: &Machine,
    run: usize,
    store: &mut Store,
) -> Result<(), results::Error> {
    let points = measurement::points(options.seed, host, run, options.thin);
    let mut random = random_of(options.seed, host.number, 1000 + run as u64);
    let facts = host.facts(run);
    let json = |text: Result<String, _>| text.unwrap_or_default();
    let id = store.begin_run(&NewRun {
        uuid: format!("{:016x}-{:016x}", random.u64(..), random.u64(..)),
        kind: RunKind::Sweep,
        command_line: "halfpower sweep --plan-file acceptance.toml /data".to_owned(),
        label: Some("weekly".to_owned()),
        started_unix_ns: host.starts_unix_ns[run],
        version: env!("CARGO_PKG_VERSION").to_owned(),
        schema: JSON_SCHEMA,
        seed: Seed(random.u64(..)),
        pid: 4242,
        boot_id: facts.boot_id.clone(),
        host_json: json(serde_json::to_string(&facts)),
        target_json: json(serde_json::to_string(&host.target(run))),
        settings_json: json(serde_json::to_string(&RunSettings::default())),
    })?;
    let mut ends = Vec::new();
    let mut whole = Verdict::default();
    for (ordinal, point) in points.iter().enumerate() {
        let row = WorkloadDocument::from(&point.key).row(ordinal as u32);
        let number = store.add_point(id, &row)?;
        for trial in &point.trials {
            let (row, latency, series) = record::trial_rows(trial);
            store.add_trial(number, &row, &latency, &series)?;
        }
        let verdict = point.summary().verdict;
        whole.merge(&verdict);
        ends.push((number, record::point_end(Some(&verdict))));
    }
    let (word, reasons) = record::verdict_row(&whole);
    let end = RunEnd {
        state: RunState::Finished,
        finished_unix_ns: finished_unix_ns(&points),
        findings_json: None,
        verdict: Some(word),
        verdict_reasons_json: reasons,
    };
    store.finish_run(id, &end, &ends)
}

fn finished_unix_ns(points: &[Point]) -> i64 {
    let ends = points.iter().flat_map(|point| &point.trials);
    ends.map(|trial| trial.started_unix_ns + trial.elapsed_ns as i64).max().unwrap_or_default()
}
