//! `halfpower runs`: lists the stored runs, newest first, as a table or as JSON. It reads the
//! database only.

use lab::console;
use lab::failure::{Exit, Outcome};
use lab::json;
use results::{RunRow, Store};
use serde::Serialize;

use crate::cli::{RunsArgs, RunsVerb};

#[derive(Serialize)]
struct RunDocument {
    id: i64,
    uuid: String,
    kind: &'static str,
    state: &'static str,
    label: Option<String>,
    started_unix_ns: i64,
    finished_unix_ns: Option<i64>,
    command_line: String,
    points: u64,
    trials: u64,
    verdict: Option<&'static str>,
    verdict_reasons: Vec<String>,
}

impl RunDocument {
    fn new(row: RunRow, points: u64, trials: u64) -> Self {
        RunDocument {
            id: row.id.0,
            uuid: row.uuid,
            kind: row.kind.as_str(),
            state: row.state.as_str(),
            label: row.label,
            started_unix_ns: row.started_unix_ns,
            finished_unix_ns: row.finished_unix_ns,
            command_line: row.command_line,
            points,
            trials,
            verdict_reasons: serde_json::from_str(&row.verdict_reasons_json).unwrap_or_default(),
            verdict: row.verdict.map(results::Verdict::as_str),
        }
    }
}

pub fn execute(args: &RunsArgs) -> Outcome {
    let RunsVerb::List { db, json, plan } = &args.verb;
    if *plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    let store = Store::open_read_only(db)?;
    let rows = store.runs()?;
    if *json {
        let documents: Outcome<Vec<RunDocument>> = rows
            .into_iter()
            .map(|row| {
                let (points, trials) = store.counts(row.id)?;
                Ok(RunDocument::new(row, points, trials))
            })
            .collect();
        console::data(&json::print(&documents?));
        return Ok(Exit::Ok);
    }
    for row in rows {
        let verdict = row.verdict.map_or("-", results::Verdict::as_str);
        let date = lab::date::utc(row.started_unix_ns);
        let label = row.label.map(|label| format!("  [{label}]")).unwrap_or_default();
        console::data(&format!(
            "{:>4}  {date}  {:<6} {:<11} {verdict:<7} {}{label}",
            row.id.0, row.kind, row.state, row.command_line
        ));
    }
    Ok(Exit::Ok)
}
