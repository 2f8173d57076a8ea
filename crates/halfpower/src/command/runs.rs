//! `halfpower runs`: lists, shows, labels, deletes and merges stored runs. Nothing is deleted
//! without `--yes`.

use analysis::units;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lab::console;
use lab::failure::{Exit, Failure, Outcome};
use lab::recorder::Recorder;
use lab::run_text::{run_in_full, run_line, write_list};
use results::{RunId, Store};

use crate::cli::{RunsArgs, RunsVerb};

const DAY_NS: i64 = 86_400_000_000_000;

pub fn execute(args: &RunsArgs) -> Outcome {
    let (db, verb) = (&args.db, &args.verb);
    if args.plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    match verb {
        RunsVerb::List { json } => {
            let store = Store::open_read_only(db)?;
            write_list(&store, *json, &mut console::DataStream::new())?;
        }
        RunsVerb::Show { run } => {
            let store = Store::open_read_only(db)?;
            let lines = run_in_full(&store, &store.run(run)?)?;
            lines.iter().for_each(|line| console::data(line));
        }
        RunsVerb::Tag { run, label: text } | RunsVerb::Note { run, text } => {
            let mut store = to_change(db)?;
            let id = store.run(run)?.id;
            match verb {
                RunsVerb::Tag { .. } => store.set_label(id, text.as_deref())?,
                _ => store.set_note(id, text.as_deref())?,
            }
            store.close()?;
        }
        RunsVerb::Prune { runs, older_than, keep, yes } => {
            let mut store = to_change(db)?;
            if runs.is_empty() && older_than.is_none() && keep.is_none() {
                let how = "specify runs, or use --older-than 90 (days) or --keep 100";
                return Err(Failure::usage(how));
            }
            let age_ns = older_than.map(|days| i64::from(days) * DAY_NS);
            let before_unix_ns = age_ns.map(|age_ns| ioengine::clock::unix_ns() - age_ns);
            let rows = store.runs_to_delete(runs, before_unix_ns, *keep)?;
            rows.iter().for_each(|row| console::data(&run_line(row)));
            let count = units::counted(rows.len() as u64, "run");
            if *yes {
                let ids: Vec<RunId> = rows.iter().map(|row| row.id).collect();
                store.delete_runs(&ids)?;
                console::data(&format!("{count} deleted; halfpower runs vacuum frees the space"));
            } else if rows.is_empty() {
                console::data("no run meets these conditions; nothing to delete");
            } else {
                console::data(&format!("would delete {count}; add --yes to delete"));
            }
            store.close()?;
        }
        RunsVerb::Merge { from } => merge(db, from)?,
        RunsVerb::Vacuum => {
            let mut store = to_change(db)?;
            store.vacuum()?;
            store.close()?;
        }
    }
    Ok(Exit::Ok)
}

/// Adds the runs of the databases `from` to the database `db`.
fn merge(db: &Path, from: &[PathBuf]) -> Outcome<()> {
    Recorder::check(Some(db), &[])?;
    // All databases are checked before anything changes. Each is closed after its check, because
    // the number of databases may exceed the limit of open files.
    for path in from {
        Store::open_read_only(path)?;
    }
    let mut store = Store::open(db)?;
    for path in from {
        // A database that is open must not be opened again (see Store::open_again).
        if is_same_file(path, db) {
            console::data(&format!(
                "{}: skipped, because this database is the destination of the merge",
                path.display()
            ));
            continue;
        }
        let merged = store.merge(&Store::open_read_only(path)?)?;
        let (added, path) = (units::counted(merged.added, "run"), path.display());
        let (known, replaced) = (merged.known, merged.replaced);
        console::data(&format!(
            "{path}: {added} added, {known} already present, {replaced} replaced"
        ));
    }
    Ok(store.close()?)
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    identity(a).is_some_and(|a| identity(b) == Some(a))
}

/// Opens an existing database for changes.
fn to_change(db: &Path) -> Outcome<Store> {
    match Store::open_read_only(db) {
        Ok(_) | Err(results::Error::OlderSchema { .. }) => Ok(Store::open(db)?),
        Err(error) => Err(error.into()),
    }
}
