//! `halfpower report`: writes the page of a stored survey again, with the analysis of this version.
//! It reads the database only.

use std::path::Path;

use lab::console;
use lab::failure::{Exit, Failure, Outcome};
use lab::page;
use lab::recorder;
use results::{RunKind, Store};
use survey::evidence::Evidence;
use survey::insight::Insight;
use survey::view;

use crate::cli::ReportArgs;

/// Runs the command.
pub fn execute(args: &ReportArgs) -> Outcome {
    let evidence = evidence(&args.db, &args.run)?;
    let insight = Insight::of(&evidence);
    if insight.seen.is_empty() {
        let run = &args.run;
        return Err(Failure::failed(format!("survey {run} has no finished trial")));
    }
    if args.plan {
        page::check(&args.html)?;
        let (page, run) = (args.html.display(), &args.run);
        console::data(&format!("write the page {page} of survey {run}; nothing was done"));
        return Ok(Exit::Ok);
    }
    page::write(&args.html, &view::html(&evidence, &insight))?;
    console::data(&args.html.display().to_string());
    Ok(Exit::Ok)
}

/// Loads a stored survey by number, start of the UUID, or `latest`.
///
/// # Errors
/// No such survey, or a database that cannot be read.
pub fn evidence(db: &Path, run: &str) -> Outcome<Evidence> {
    let store = Store::open_read_only(db)?;
    let row = if run == "latest" {
        let surveys = store.runs()?.into_iter().find(|run| run.kind == RunKind::Survey);
        surveys.ok_or_else(|| {
            let db = db.display();
            Failure::failed(format!("{db} contains no survey; run halfpower survey first"))
        })?
    } else {
        store.run(run)?
    };
    if row.kind != RunKind::Survey {
        return Err(Failure::usage(format!(
            "run {} is a {}, not a survey; see halfpower runs list",
            row.id, row.kind
        )));
    }
    Ok(Evidence {
        host: serde_json::from_str(&row.host_json).unwrap_or_default(),
        target: serde_json::from_str(&row.target_json).unwrap_or_default(),
        points: recorder::load(&store, row.id)?,
        facts: row
            .findings_json
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default(),
        started_unix_ns: row.started_unix_ns,
    })
}
