//! fio's job files and command line as runs of halfpower.
//!
//! `expression` reads numbers with fio's units; `job_file` and `command_line` read jobs with their
//! options as text; `host` answers what job files ask of the machine. `keys` lists the options
//! without a translation, and `options` reads those of one job by type. `load` and `storage`
//! translate what requests a job issues and where, `translate` makes a run of it, and `schedule`
//! decides which jobs run together.

pub mod expression;
pub mod job_file;
pub mod command_line;
pub mod host;
pub mod keys;
pub mod options;
pub mod load;
pub mod storage;
pub mod translate;
pub mod schedule;
#[doc(hidden)]
pub mod fuzz;
