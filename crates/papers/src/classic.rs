//! The papers' own tools, translated into commands of halfpower, and their output formats.
//!
//! Apart from `trace_file`, these modules only translate and have no side effects. `flags` parses
//! the command line of SQLIO, and `params` parses the parameter file of SQLIO's flag -F. `sqlio`
//! translates both into flags of `run`. `trace` converts a trial to the line that the papers' SQLIO
//! wrote for each test, and `trace_file` appends such lines to a file. `text` converts a trial to
//! SQLIO's output. `cmdgen` writes the command lines of a set of tests. `memspeed` prints the rows
//! of the papers' Table 2, which lists memory bandwidths. The subcommand `classic` uses these
//! modules.

pub mod flags;
pub mod params;
pub mod sqlio;
pub mod trace;
pub mod trace_file;
pub mod text;
pub mod cmdgen;
pub mod memspeed;
