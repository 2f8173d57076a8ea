//! Readers and writers against the standard library: the same bytes on every way.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bench;
mod changing;
mod faults;
mod properties;
mod striped;
