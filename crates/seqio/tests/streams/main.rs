//! Tests that readers and writers handle the same bytes as the standard library, in every mode.
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
