//! `halfpower tune`: converts the command-line flags to the options of tuning. The tuning itself is
//! implemented in `lab::tuning`.

use lab::failure::Outcome;
use lab::guard::Consent;
use lab::tuning::Wish;
use lab::tuning::session::{self, TuneOptions};

use crate::cli::tune::TuneArgs;

pub fn execute(args: &TuneArgs) -> Outcome {
    let (overwrite, destroy_data_on) = (args.overwrite.clone(), args.destroy_data_on.clone());
    let wish = Wish {
        target: &args.target,
        size: args.size,
        consent: Consent { overwrite, destroy_data_on },
        seed: args.seed,
    };
    session::execute(
        &wish,
        &TuneOptions {
            no_store: args.no_store,
            json: args.output.json,
            quiet: args.output.quiet,
            plan: args.output.plan,
        },
    )
}
