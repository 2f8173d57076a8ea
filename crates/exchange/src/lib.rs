//! Imports and exports results and jobs of other storage tools.
//!
//! Each tool has its own module. fio's jobs become settings of `lab::experiment`, so that these
//! jobs pass the same checks as flags that a user typed. Results of other tools become points
//! ([`imported`]). [`mod@import`] recognises the format of a file, and [`mod@export`] writes stored
//! runs.

mod checked;
pub mod imported;
pub mod fio;
pub mod diskspd;
pub mod sqlio;
pub mod elbencho;
pub mod iozone;
pub mod openmetrics;
pub mod parquet_file;
pub mod import;
pub mod export;
#[doc(hidden)]
pub mod fuzz;
