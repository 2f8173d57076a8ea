//! Tests with random directory trees: comparison with `cp -a` and `rsync`, faults, kills,
//! concurrent changes and hostile users.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "reports skipped tests, and the counts of campaigns")]

mod random;
mod snapshot;
mod generator;
mod bench;
mod archive;
mod rules;
mod trouble;
mod hostile;
mod killed;
mod campaign;
