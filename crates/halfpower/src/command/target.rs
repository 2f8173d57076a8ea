//! `halfpower target`: describes each layer of a target, down to the bus, and the contents of the
//! target. Also prints whether writing to the target is safe. This subcommand never writes.

use lab::bench;
use lab::console::{self, Console};
use lab::failure::{Exit, Outcome};
use lab::guard::Consent;
use lab::json;
use lab::machine;
use lab::target_description::TargetDocument;

use crate::cli::TargetArgs;

pub fn execute(args: &TargetArgs) -> Outcome {
    bench::check_path(&args.target, &Consent::default())?;
    if args.plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    let document = TargetDocument::of(&args.target)?;
    json::answer(args.json, &document, || document.lines());
    for missing in document.missing.iter().filter(|_| !machine::is_root()) {
        Console::new(false).say(format!("only root can read {missing}"));
    }
    Ok(Exit::Ok)
}
