//! Compares readers and writers with the standard library: the same bytes in every mode.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bench;
#[cfg(feature = "tokio")]
mod asynchronous;
mod changing;
mod copying;
mod examples;
mod faults;
mod as_std;
mod memory;
mod properties;
mod striped;
