//! `halfpower peer`: reports counters of this machine to the client of a network study. The server
//! is in `lab::peer`.

use lab::failure::Outcome;
use lab::peer::server::{self, PeerOptions};

use crate::cli::peer::PeerArgs;

pub fn execute(args: &PeerArgs) -> Outcome {
    server::serve(&PeerOptions {
        folder: args.dir.clone(),
        listen: args.listen,
        key_file: args.key_file.clone(),
        bytes_per_s_max: args.max_rate,
        quiet: args.quiet,
        plan: args.plan,
    })
}
