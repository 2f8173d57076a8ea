//! fio's job files and command line as runs of halfpower, and its JSON output in and out.
//!
//! `expression` reads numbers with fio's units; `job_file` and `command_line` read jobs with their
//! options as text; `host` answers what job files ask of the machine. `keys` lists the options
//! without a translation, and `options` reads those of one job by type. `load` and `storage`
//! translate what requests a job issues and where, `translate` makes a run of it, and `schedule`
//! decides which jobs run together. `output` has the fields of fio's JSON; `import` makes points of
//! it, and `export` makes it of points.

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
pub mod output;
pub mod import;
pub mod export;
#[doc(hidden)]
pub mod fuzz;
