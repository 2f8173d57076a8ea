//! Copies of random trees, compared with `cp -a` and `rsync`; with faults, kills, concurrent
//! changes and hostile users.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "what is skipped is said, and what a campaign counted")]

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
