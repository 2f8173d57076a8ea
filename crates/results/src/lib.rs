//! Stores results in one SQLite file.
//!
//! A [`Store`] contains runs. A run contains points (one workload each). A point contains trials
//! (one timed execution each). A trial has a latency histogram and a series of intervals. Data are
//! written as soon as they are known. A trial is stored completely or not at all. Once
//! [`Store::add_trial`] has returned, the trial survives a crash of the program or the machine.
//!
//! Only this crate contains SQL. It has one struct for the rows of each table, and the program
//! converts its own types to and from these structs. The crate does not read the clock and does not
//! judge results: the caller passes times and verdicts.
//!
//! Other tools can read the file. Column names contain the unit, for example `elapsed_ns`. The
//! views `points`, `trials`, `intervals`, `latency_buckets`, `latency_percentiles`, `hosts`,
//! `latency_cumulative` and `series_rate` join the tables and compute rates.
#![forbid(unsafe_code)]

mod error;
mod row;

#[cfg(test)]
mod fixture;

mod schema;

mod store;

mod query;

mod export;

mod manage;

pub use error::Error;
pub use export::{Cell, Kind, Table};
pub use manage::{Import, ImportedTrial, Merged};
pub use query::Snapshot;
pub use row::{
    LatencyRow, NewRun, Operation, OriginRow, PointEnd, PointId, PointRow, RunBrief, RunEnd,
    RunHead, RunId, RunKind, RunRow, RunState, Seed, SeriesRow, TrialId, TrialRates, TrialRow,
    Verdict,
};
pub use schema::SCHEMA_VERSION;
pub use store::Store;

/// Default database file, in the current directory.
pub const DEFAULT_FILE: &str = "halfpower.db";
