//! `halfpower engines`: what this host offers, and why something is missing.

use ioengine::Personality;
use serde::Serialize;

use crate::cli::EnginesArgs;
use crate::console;
use crate::failure::{Exit, Outcome};
use crate::json::{self, Program};

#[derive(Serialize)]
struct Document {
    halfpower: Program,
    best: &'static str,
    engines: Vec<EngineDocument>,
}

#[derive(Serialize)]
struct EngineDocument {
    name: &'static str,
    available: bool,
    summary: &'static str,
    detail: String,
}

/// Prints the personalities.
pub fn execute(args: &EnginesArgs) -> Outcome {
    if args.plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    let best = Personality::best(true).name();
    let engines = Personality::ALL.map(|personality| {
        let found = personality.availability();
        EngineDocument {
            name: personality.name(),
            available: found.available,
            summary: personality.summary(),
            detail: found.detail,
        }
    });
    if args.json {
        let document = Document { halfpower: Program::this(), best, engines: engines.into() };
        console::data(&json::print(&document));
        return Ok(Exit::Ok);
    }
    for engine in engines {
        let word = if engine.available { "yes" } else { "no" };
        let detail = match (engine.available, engine.detail.is_empty()) {
            (true, true) => String::new(),
            (true, false) => format!(" ({})", engine.detail),
            (false, _) => format!(": {}", engine.detail),
        };
        console::data(&format!("{:<9} {word:<4} {}{detail}", engine.name, engine.summary));
    }
    console::data(&format!("\n--ioengine auto uses {best} here."));
    Ok(Exit::Ok)
}
