//! Fits a simulated system to a real device, predicts the effect of a change, and finds the
//! cheapest configuration that meets a need.
//!
//! A system is fitted to a stored run, or to a rotating disk that is measured for this purpose.
//! Each fitted parameter has an interval. `history` reads the measured points and trials. `replay`
//! runs the same trials on a simulated system in virtual time, in the same order and with the same
//! pauses, so that the state of caches, write buffers and burst credit carries over. `rotating`
//! recognises rotating disks, which cannot be fitted to a stored run. `structure` lists the device
//! models, `initial` estimates starting values, `score` selects and fits a model and scores it on
//! held-out points, and `result` builds the system file. `trust` estimates the error for a given
//! load, `whatif` predicts changes, and `time_machine` runs a system in real time. `disk` measures
//! and fits a rotating disk. `session` implements the subcommand `calibrate`. `plan` searches for
//! configurations.

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
