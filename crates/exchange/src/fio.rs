//! Runs fio's job files and command lines with halfpower, and reads and writes fio's JSON output.
//!
//! `expression` reads numbers with fio's units. `job_file` and `command_line` read jobs with their
//! options as text. `host` supplies the files, variables and facts of the machine that job files
//! use. `keys` lists the options that are not translated, and `options` reads the options of one
//! job by type. `load` translates the requests of a job and `storage` its files. `translate`
//! combines both into a run, and `schedule` decides which jobs run together. `output` has the
//! fields of fio's JSON, and `logs` reads fio's logs over time. `jobs` makes the key of a point
//! from the options of a job. `import` converts documents and logs to points, and `export` converts
//! points to JSON.

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
pub mod logs;
mod jobs;
pub mod import;
pub mod export;
#[doc(hidden)]
pub mod fuzz;
