//! `halfpower cat`: converts the flags to the options of `lab::files::cat`.

use lab::failure::Outcome;
use lab::files::cat::{self, CatOptions};

use crate::cli::inputs::CatArgs;
use crate::inputs::named;

pub fn execute(args: &CatArgs) -> Outcome {
    cat::execute(&CatOptions {
        files: named(&args.files),
        direct: args.direct,
        cached: args.cached,
        quiet: args.quiet,
        plan: args.plan,
    })
}
