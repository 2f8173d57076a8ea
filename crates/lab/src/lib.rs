//! The laboratory: everything that an experiment on storage needs, whoever asks for it.
//!
//! [`experiment`] says what is to be measured, [`job`] resolves it into workloads, [`mod@bench`]
//! opens its targets, [`guard`] and [`journal`] keep data safe, [`trials`] makes one trial,
//! [`verdict`] judges it, [`point`] holds it, [`record`] and [`recorder`] keep it. Surveys, studies
//! and the verbs of the program are built on top.
//!
//! The modules below stand in the order in which they may import each other.

pub mod date;
pub mod truth;
pub mod skew;
pub mod flag_names;
pub mod failure;
pub mod interrupt;
pub mod console;
pub mod machine;
pub mod journal;
pub mod settings;
pub mod signature;
pub mod memory_limit;
pub mod guard;
pub mod experiment;
pub mod page;
pub mod point_key;
pub mod workload_document;
pub mod point;
pub mod evidence;
pub mod request_log;
pub mod record;
pub mod verdict;
pub mod recorder;
pub mod json;
pub mod simulated_target;
pub mod reference_device;
pub mod target;
pub mod simulated;
pub mod trials;
pub mod fuse_server;
pub mod scratch;
pub mod engine_flags;
pub mod job;
pub mod bench;
pub mod rounds;
pub mod resource_usage;
pub mod memory;
pub mod soak;
pub mod tuning;
pub mod selftest;
