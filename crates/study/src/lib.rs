//! Studies: experiments from the papers and from users' plans, on any target.
//!
//! - Input: `plan` parses plans, which describe what to measure. `target` prepares the targets.
//!   `requested` finds the studies that the user specified. `extent` computes how much a plan
//!   measures and writes.
//! - Measurement: `runner` measures the points of a plan. `traced` measures them with kernel
//!   tracing. `common_start` lets several streams start at the same time. `ahead` measures the
//!   read-ahead of a device. `object_trials` measures requests for whole objects, and
//!   `object_store` creates and removes these objects. `server_figures` measures what network
//!   requests cost the server, through a halfpower peer on the server.
//! - Analysis: `conclusion` holds findings, verdicts and advice. `curve` compares points by request
//!   size. `stripe_load` computes how random requests spread over several targets.
//!   `disk_cache_table` builds the table of the papers' disk cache program. `figure` draws charts.
//! - Studies: each file of `catalogue` contains a built-in study. `general` analyses plans that use
//!   no built-in study.
//! - Output: `session` runs several studies. `document` and `view` present their results. `command`
//!   executes the `study` subcommand.

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
