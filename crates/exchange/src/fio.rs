//! fio's job files and command line as runs of halfpower.
//!
//! `expression` reads numbers with fio's units; `job_file` and `command_line` read jobs with their
//! options as text.

pub mod expression;
pub mod job_file;
pub mod command_line;
