//! `halfpower checksum`: converts the flags to the options of `lab::files::checksum`.

use lab::failure::Outcome;
use lab::files::checksum::{self, ChecksumOptions};

use crate::cli::inputs::ChecksumArgs;
use crate::inputs::named;

pub fn execute(args: &ChecksumArgs) -> Outcome {
    checksum::execute(&ChecksumOptions {
        files: named(&args.files),
        check: args.check.clone(),
        json: args.json,
        quiet: args.quiet,
        plan: args.plan,
    })
}
