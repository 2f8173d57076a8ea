//! `halfpower serve`: shows the pages of a database over HTTP. The server is in the crate `serve`.

use lab::failure::Outcome;
use serve::command::{self, ServeOptions};

use crate::cli::serve::ServeArgs;

pub fn execute(args: &ServeArgs) -> Outcome {
    command::serve(&ServeOptions {
        db: args.db.clone(),
        listen: args.listen,
        unix: args.unix.clone(),
        allow_remote: args.allow_remote,
        quiet: args.quiet,
        plan: args.plan,
    })
}
