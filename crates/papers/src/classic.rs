//! The papers' own tools, translated into commands of halfpower, and their output formats.
//!
//! Pure translations without side effects. `flags` parses the command line of SQLIO, and `params`
//! the file of its -F; `sqlio` translates both into flags of `run`. From any trial, `trace` builds
//! the line that the papers' SQLIO wrote for each test, and `text` builds SQLIO's output. `cmdgen`
//! writes the command lines of a set of tests. `memspeed` has the rows of the papers' table of
//! memory bandwidth. The command `classic` of the program uses them.

pub mod flags;
pub mod params;
pub mod sqlio;
pub mod trace;
pub mod trace_file;
pub mod text;
pub mod cmdgen;
pub mod memspeed;
