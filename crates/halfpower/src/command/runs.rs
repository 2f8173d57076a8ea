//! `halfpower runs`: lists, shows, labels, deletes and merges stored runs. Nothing is deleted
//! without `--yes`.

use analysis::units;
use std::path::Path;

use lab::console;
use lab::failure::{Exit, Failure, Outcome};
use lab::json;
use lab::recorder::Recorder;
use lab::run_text::{ListedRun, run_in_full, run_line};
use results::{RunId, RunRow, RunState, Store};

use crate::cli::{RunsArgs, RunsVerb};

const DAY_NS: i64 = 86_400_000_000_000;

pub fn execute(args: &RunsArgs) -> Outcome {
    let (db, verb) = (&args.db, &args.verb);
    if args.plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    match verb {
        RunsVerb::List { json } => list(&Store::open_read_only(db)?, *json)?,
        RunsVerb::Show { run } => {
            let store = Store::open_read_only(db)?;
            let lines = run_in_full(&store, &store.run(run)?)?;
            lines.iter().for_each(|line| console::data(line));
        }
        RunsVerb::Tag { run, label } => {
            let mut store = to_change(db)?;
            let id = store.run(run)?.id;
            store.set_label(id, label.as_deref())?;
            store.close()?;
        }
        RunsVerb::Prune { runs, older_than, keep, yes } => {
            let mut store = to_change(db)?;
            let rows = chosen(&store, runs, *older_than, *keep)?;
            rows.iter().for_each(|row| console::data(&run_line(row)));
            let count = units::counted(rows.len() as u64, "run");
            if *yes {
                let ids: Vec<RunId> = rows.iter().map(|row| row.id).collect();
                store.delete_runs(&ids)?;
                console::data(&format!("{count} deleted; halfpower runs vacuum frees the space"));
            } else {
                console::data(&format!("would delete {count}; add --yes"));
            }
            store.close()?;
        }
        RunsVerb::Merge { from } => {
            Recorder::check(Some(db), &[])?;
            let others: Result<Vec<Store>, _> = from.iter().map(Store::open_read_only).collect();
            let (others, mut store) = (others?, Store::open(db)?);
            for (path, other) in from.iter().zip(others) {
                let merged = store.merge(&other)?;
                let (added, path) = (units::counted(merged.added, "run"), path.display());
                let (known, replaced) = (merged.known, merged.replaced);
                console::data(&format!(
                    "{path}: {added} added, {known} known, {replaced} replaced"
                ));
            }
            store.close()?;
        }
        RunsVerb::Vacuum => {
            let mut store = to_change(db)?;
            store.vacuum()?;
            store.close()?;
        }
    }
    Ok(Exit::Ok)
}

/// Opens a database that must exist.
fn to_change(db: &Path) -> Outcome<Store> {
    match Store::open_read_only(db) {
        Ok(_) | Err(results::Error::OlderSchema { .. }) => Ok(Store::open(db)?),
        Err(error) => Err(error.into()),
    }
}

fn list(store: &Store, as_json: bool) -> Outcome<()> {
    let rows = store.runs()?;
    if !as_json {
        rows.iter().for_each(|row| console::data(&run_line(row)));
        return Ok(());
    }
    let documents: Outcome<Vec<ListedRun>> = rows
        .into_iter()
        .map(|row| {
            let (points, trials) = store.counts(row.id)?;
            Ok(ListedRun::new(row, points, trials))
        })
        .collect();
    console::data(&json::print(&documents?));
    Ok(())
}

/// The runs to delete, newest first; never one in progress.
fn chosen(
    store: &Store,
    names: &[String],
    older_than_days: Option<u32>,
    keep: Option<usize>,
) -> Outcome<Vec<RunRow>> {
    if names.is_empty() && older_than_days.is_none() && keep.is_none() {
        return Err(Failure::usage("name runs, or give --older-than 90 (days) or --keep 100"));
    }
    let named: Result<Vec<RunId>, _> =
        names.iter().map(|name| store.run(name).map(|row| row.id)).collect();
    let (named, now_ns) = (named?, ioengine::clock::unix_ns());
    let is_old = |row: &RunRow| {
        let limit_ns = older_than_days.map(|days| now_ns - i64::from(days) * DAY_NS);
        limit_ns.is_some_and(|limit_ns| row.started_unix_ns < limit_ns)
    };
    let rows = store.runs()?.into_iter().enumerate().filter(|(index, row)| {
        let is_over = keep.is_some_and(|count| *index >= count);
        // With both limits, a run goes only if both say so.
        let is_beyond = match (older_than_days, keep) {
            (Some(_), Some(_)) => is_old(row) && is_over,
            _ => is_old(row) || is_over,
        };
        (named.contains(&row.id) || is_beyond) && row.state != RunState::Running
    });
    Ok(rows.map(|(_, row)| row).collect())
}
