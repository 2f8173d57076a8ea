//! Storage of results in one SQLite file.
//!
//! A [`Store`] holds runs. A run holds points (one workload each). A point holds trials (one timed
//! execution each) with their latency histogram and per-interval series. Data are written as soon
//! as they are known. A trial is stored completely or not at all; once [`Store::add_trial`] has
//! returned, it survives a crash of the program or the machine.
//!
//! Only this crate contains SQL. Its rows are flat and follow the schema; the program converts its
//! own types to and from them. The crate reads no clock and judges no results: times and verdicts
//! come from the caller.
//!
//! The file is meant for other tools too. Tables and columns have plain names with units. The views
//! `points`, `trials`, `intervals`, `latency_buckets`, `latency_percentiles`, `hosts`,
//! `latency_cumulative` and `series_rate` provide the common joins and rates.
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
