//! Fits a simulated system to a real device, predicts the effect of a change, and finds the
//! cheapest configuration that meets a need.
//!
//! - `history` reads the measured points and trials of a stored run.
//! - `replay` simulates these trials in virtual time, in the same order and with the same pauses.
//!   The state of caches, write buffers and burst credit thus carries over between trials.
//! - `structure` lists the device models. `initial` estimates starting values for their parameters.
//!   `score` selects and fits a model and scores it on held-out points.
//! - `result` builds the system file and gives each fitted parameter an interval.
//! - `rotating` recognises rotating disks, which cannot be fitted to a stored run. `disk` measures
//!   and fits them.
//! - `trust` estimates the error of a prediction for a given load. `whatif` predicts the effect of
//!   changes.
//! - `time_machine` runs a system in real time.
//! - `session` implements the subcommand `calibrate`. `plan` searches for configurations.

pub mod history;
pub mod rotating;
pub mod replay;
pub mod initial;
pub mod structure;
pub mod score;
pub mod result;
pub mod trust;
pub mod time_machine;
pub mod whatif;
pub mod whatif_text;
pub mod disk;
pub mod session;
pub mod plan;
