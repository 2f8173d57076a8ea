//! `halfpower classic memspeed`: measures memory bandwidth and prints the rows of the papers'
//! Table 2. `papers::classic::memspeed` defines the rows.

use lab::console::{self, Console};
use lab::failure::{Exit, Outcome};
use lab::interrupt::Interrupt;
use lab::json;
use lab::memory;
use lab::trials::Lab;
use papers::classic::memspeed::{self, MemspeedTable};

use crate::cli::classic::MemspeedArgs;

/// Measures memory bandwidth and prints the table.
pub fn execute(args: &MemspeedArgs) -> Outcome {
    let spec = memspeed::spec(args.size, &args.dir, args.quick)?;
    let plan = memory::plan(&spec)?;
    if args.output.plan {
        console::data(&memspeed::plan_line(&spec, &plan));
        return Ok(Exit::Ok);
    }
    let console = Console::new(args.output.quiet);
    let lab = Lab::new(console, Interrupt::install());
    let readings = memory::measure(&lab, &spec)?;
    readings.skipped.iter().for_each(|skipped| console.say(format!("left out {skipped}")));
    let table = MemspeedTable::of(&spec, &readings);
    json::answer(args.output.json, &table, || table.lines());
    Ok(if readings.interrupted { Exit::Interrupted } else { Exit::Ok })
}
