//! `halfpower import`: stores results of other tools. `halfpower export`: writes stored runs in
//! formats that other tools read.

use std::io::Write;

use exchange::export::{self, Output};
use exchange::import;
use lab::console;
use lab::failure::{Exit, Failure, Outcome};
use lab::interrupt::Interrupt;
use lab::json;
use results::{RunRow, Store, Table};

use crate::cli::exchange::{ExportArgs, ImportArgs};

pub fn import(args: &ImportArgs) -> Outcome {
    let (db, label, host) = (args.db.clone(), args.label.clone(), args.host.clone());
    let to = import::Destination { db, label, host };
    let document = import::import(&args.files, &to, args.plan)?;
    json::answer(args.json, &document, || document.lines());
    Ok(Exit::Ok)
}

pub fn export(args: &ExportArgs) -> Outcome {
    if args.table.is_some() && !args.format.has_tables() {
        return Err(Failure::usage("--table is only for csv, ndjson and parquet; drop --table"));
    }
    if args.plan {
        let to = args.output.as_ref().map(|path| path.display().to_string());
        let to = to.unwrap_or_else(|| "standard output".to_owned());
        let runs = args.runs.join(", ");
        console::data(&format!(
            "would export {runs} of {} to {to}; nothing was done",
            args.db.display()
        ));
        return Ok(Exit::Ok);
    }
    let store = Store::open_read_only(&args.db)?;
    let runs: Result<Vec<RunRow>, _> = args.runs.iter().map(|name| store.run(name)).collect();
    let (runs, table) = (runs?, args.table.unwrap_or(Table::Points));
    match &args.output {
        Some(path) => {
            let to = Output { path, overwrite: args.overwrite.as_deref(), db: &args.db };
            export::to_file(to, &Interrupt::install(), |out| {
                export::write(&store, &runs, args.format, table, out)
            })?;
        }
        None => {
            let mut out = console::DataStream::new();
            export::write(&store, &runs, args.format, table, &mut out)?;
            out.flush().map_err(|error| Failure::failed(error.to_string()))?;
        }
    }
    Ok(Exit::Ok)
}
