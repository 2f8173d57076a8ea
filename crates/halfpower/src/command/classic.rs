//! `halfpower classic`: the papers' tools. Each tool is a front end to the code of halfpower that
//! does the same work.

mod cacheflush;
mod cmdgen;
mod diskcache;
mod memspeed;
mod sqlio;

use lab::failure::Outcome;

use crate::cli::classic::{ClassicArgs, Tool};
use crate::command::soak;

/// Runs one of the papers' tools.
pub fn execute(args: &ClassicArgs) -> Outcome {
    match &args.tool {
        Tool::Sqlio(args) => sqlio::execute(args),
        Tool::Memspeed(args) => memspeed::execute(args),
        Tool::Diskcache(args) => diskcache::execute(args),
        Tool::Cacheflush(args) => cacheflush::execute(args),
        Tool::Soaker(args) => soak::execute(args),
        Tool::Cmdgen(args) => cmdgen::execute(args),
    }
}
