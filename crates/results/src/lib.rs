//! The results of halfpower in one SQLite file.
//!
//! A [`Store`] holds runs; a run holds points (one workload each); a point holds trials (one
//! timed execution each) with their raw latency histogram and per-interval series. Everything
//! is written the moment it is known: a trial is there whole or not at all, and once
//! [`Store::add_trial`] has returned it survives a crash of the program and of the machine.
//!
//! Only this crate knows SQL. Its rows are flat and belong to the schema; the program converts
//! its working types to and from them. The crate reads no clock, judges nothing and draws
//! nothing: times and verdicts come from the caller.
//!
//! The file is meant for other tools too: tables and columns have plain names with their units,
//! and the views `trial_summary`, `point_summary`, `latency_cumulative` and `series_rate` hold
//! what one would otherwise join and divide by hand.
#![forbid(unsafe_code)]

mod error;
mod row;

#[cfg(test)]
mod fixture;

mod schema;

mod store;

mod query;

mod export;

pub use error::Error;
pub use export::Table;
pub use row::{
    LatencyRow, NewRun, Operation, PointEnd, PointId, PointRow, RunEnd, RunId, RunKind, RunRow,
    RunState, Seed, SeriesRow, TrialId, TrialRow, Verdict,
};
pub use schema::SCHEMA_VERSION;
pub use store::Store;

/// The file that the program uses when the user names none, in the current directory.
pub const DEFAULT_FILE: &str = "halfpower.db";
