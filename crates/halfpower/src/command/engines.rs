//! `halfpower engines`: lists the I/O engines and engine options. If an engine or option is not
//! available on this host, prints the reason.

use ioengine::{EngineKind, EngineOption};
use lab::console;
use lab::failure::{Exit, Outcome};
use lab::flag_names::in_flags;
use lab::json::{self, Program};
use serde::Serialize;

use crate::cli::EnginesArgs;

#[derive(Serialize)]
struct Document {
    halfpower: Program,
    best: &'static str,
    engines: Vec<EngineDocument>,
    options: Vec<OptionDocument>,
}

#[derive(Serialize)]
struct EngineDocument {
    name: &'static str,
    available: bool,
    summary: String,
    detail: String,
}

#[derive(Serialize)]
struct OptionDocument {
    name: &'static str,
    flag: String,
    available: bool,
    summary: &'static str,
    detail: String,
}

pub fn execute(args: &EnginesArgs) -> Outcome {
    if args.plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    let best = EngineKind::best(true).name();
    let engines = EngineKind::ALL.map(|engine_kind| {
        let found = engine_kind.availability();
        EngineDocument {
            name: engine_kind.name(),
            available: found.available,
            summary: in_flags(engine_kind.summary()),
            detail: in_flags(&found.detail),
        }
    });
    let options = EngineOption::ALL.map(|option| {
        let found = option.availability();
        OptionDocument {
            name: option.name(),
            flag: in_flags(&format!("`{}`", option.name())),
            available: found.available,
            summary: option.summary(),
            detail: in_flags(&found.detail),
        }
    });
    if args.json {
        let (halfpower, engines, options) = (Program::this(), engines.into(), options.into());
        console::data(&json::print(&Document { halfpower, best, engines, options }));
        return Ok(Exit::Ok);
    }
    for engine in engines {
        let rest = description(engine.available, &engine.summary, &engine.detail);
        console::data(&format!("{:<9} {rest}", engine.name));
    }
    console::data(&format!("\n--ioengine auto uses {best} here.\n"));
    for option in options {
        let rest = description(option.available, option.summary, &option.detail);
        console::data(&format!("{:<15} {rest}", option.flag));
    }
    Ok(Exit::Ok)
}

/// Formats the availability and the summary of an engine or option, and then `detail`. If the
/// engine or option is not available, `detail` is the reason.
fn description(available: bool, summary: &str, detail: &str) -> String {
    let word = if available { "yes" } else { "no" };
    let detail = match (available, detail.is_empty()) {
        (true, true) => String::new(),
        (true, false) => format!(" ({detail})"),
        (false, _) => format!(": {detail}"),
    };
    format!("{word:<4} {summary}{detail}")
}
