//! The papers' own tools in the words of this program: what their flags mean, and what they wrote.
//!
//! Pure translations, without side effects. `flags` reads what is typed to SQLIO and `params` the
//! file of its -F; `sqlio` says them as flags of `run`. `trace` is the line that the papers' SQLIO
//! wrote for each test, of any trial; `text` is what SQLIO printed. `cmdgen` makes the command
//! lines of a whole set of tests. What is done with them is decided by `command::classic`.

pub mod flags;
pub mod params;
pub mod sqlio;
pub mod trace;
pub mod text;
pub mod cmdgen;
