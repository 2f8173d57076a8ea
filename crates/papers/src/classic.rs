//! Translates the command lines of the papers' own tools into commands of halfpower, and formats
//! results as these tools did.
//!
//! The subcommand `classic` uses these modules. Only `trace_file` writes to files.
//!
//! - `flags` parses the command line of SQLIO.
//! - `params` parses the parameter file of SQLIO's flag -F.
//! - `sqlio` translates both into flags of `run`.
//! - `text` formats a trial like SQLIO's output.
//! - `trace` formats a trial as a line of SQLIO's trace file.
//! - `trace_file` appends such lines to a file.
//! - `cmdgen` generates the command lines of a set of tests.
//! - `memspeed` formats memory bandwidths like Table 2 of the first paper.

pub mod flags;
pub mod params;
pub mod sqlio;
pub mod trace;
pub mod trace_file;
pub mod text;
pub mod cmdgen;
pub mod memspeed;
