//! Imports and exports results and jobs of other storage tools.
//!
//! Each tool has its own module. A fio job becomes settings of `lab::experiment`, which are checked
//! like command-line flags. Results of other tools become points ([`imported`]). [`mod@import`]
//! detects the format of a file. [`mod@export`] writes stored runs in the formats of other tools.

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
