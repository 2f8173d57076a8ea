//! Studies: experiments of the papers and of users, on any target.
//!
//! - Input: `plan` describes what to measure, `target` prepares the targets, and `requested` finds
//!   the studies that the user specified. `extent` estimates the time and the writes of a plan.
//! - Measurement: `runner` measures the points of a plan, and `traced` measures them with kernel
//!   tracing. `common_start` lets several streams start at the same time. `ahead` measures a
//!   device's read-ahead. `object_trials` measures requests for whole objects, and `object_store`
//!   creates and removes these objects. `server_figures` measures, through a halfpower peer, the
//!   load that a network path puts on its server.
//! - Analysis: `conclusion` holds findings, verdicts and advice. `curve` compares points by request
//!   size. `stripe_load` computes how random requests spread over several targets.
//!   `disk_cache_table` builds the table of the papers' disk cache program. `figure` draws charts.
//! - Studies: each file of `catalogue` contains a built-in study. `general` analyses the plans of
//!   users.
//! - Output: `session` runs several studies, and `document` and `view` present their results.
//!   `command` executes the `study` subcommand from options to exit code.

pub mod plan;
pub mod conclusion;
pub mod curve;
pub mod stripe_load;
pub mod figure;
pub mod target;
pub mod runner;
pub mod extent;
pub mod common_start;
pub mod traced;
pub mod ahead;
pub mod object_store;
pub mod object_trials;
pub mod server_figures;
pub mod general;
pub mod catalogue;
pub mod requested;
pub mod session;
pub mod disk_cache_table;
pub mod document;
pub mod view;
pub mod command;
