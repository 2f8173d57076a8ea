//! Studies: experiments of the papers and of users, on any target.
//!
//! `plan` says what to measure and `target` where. `runner` measures; `traced` measures with kernel
//! tracing; `common_start` lets streams start together; `ahead` measures a device's read-ahead;
//! `object_trials` measures requests for whole objects, which `object_store` makes and removes;
//! `server_figures` are those that a halfpower peer on the server of a network path gives.
//! `evidence` holds the results and `conclusion` their meaning. `curve` compares points along a
//! size, `stripe_load` computes how random requests spread over several targets, `figure` draws
//! charts, `extent` estimates the cost of a plan. The built-in studies are in `catalogue`, one file
//! each; `general` analyses plans of users, and `requested` finds the studies that a command names.
//! `session` runs studies one after another; `document` and `view` present them. `command` does all
//! of this from options to exit code.

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
