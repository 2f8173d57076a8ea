//! Experiments on storage, from the description of an experiment to stored results.
//!
//! [`experiment`] describes what to measure. [`job`] resolves the description into workloads.
//! [`mod@bench`] opens the targets. [`guard`] and [`journal`] protect the user's data. [`trials`]
//! runs a trial, [`verdict`] judges the trial, [`point`] holds the result, and [`record`] and
//! [`recorder`] store the result. Surveys, studies and the subcommands of the program are built on
//! top.
//!
//! A module imports only from modules that are declared above it.

pub mod date;
pub mod truth;
pub mod skew;
pub mod flag_names;
pub mod failure;
pub mod text_file;
pub mod interrupt;
pub mod terminal;
pub mod console;
pub mod similar;
pub mod machine;
pub mod journal;
pub mod settings;
pub mod signature;
pub mod memory_limit;
pub mod guard;
pub mod peer;
pub mod rank_trial;
pub mod experiment;
pub mod page;
pub mod point_key;
pub mod workload_document;
pub mod check;
pub mod point;
pub mod ranks;
pub mod evidence;
pub mod request_log;
pub mod record;
pub mod verdict;
pub mod recorder;
pub mod json;
pub mod network_target;
pub mod target_description;
pub mod run_text;
pub mod simulated_target;
pub mod reference_device;
pub mod target;
pub mod simulated;
pub mod trials;
pub mod fuse_server;
pub mod scratch;
pub mod engine_flags;
pub mod trace_file;
pub mod trace_load;
pub mod job;
pub mod bench;
pub mod rounds;
pub mod read_back;
pub mod job_plan;
pub mod resource_usage;
pub mod memory;
pub mod soak;
pub mod tuning;
pub mod files;
pub mod selftest;
#[doc(hidden)]
pub mod fuzz;
