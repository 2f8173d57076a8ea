//! Runs fio's job files and command lines with halfpower, and reads and writes fio's JSON output.
//!
//! Modules that run jobs:
//! - `job_file` and `command_line` parse jobs. The values of options remain text.
//! - `host` supplies the files, variables and hardware facts that job files refer to.
//! - `options` gives typed access to the options of a job, and `expression` parses their numbers.
//! - `keys` lists the options that are not translated.
//! - `load` translates the requests of a job, and `storage` translates its files. `translate`
//!   combines both into a run.
//! - `schedule` decides which jobs run together.
//!
//! Modules that read and write fio's output:
//! - `output` defines the fields of fio's JSON, and `logs` reads fio's logs over time.
//! - `jobs` converts the options of a job to the key of a point.
//! - `import` converts JSON and logs to points, and `export` converts points to JSON.

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
