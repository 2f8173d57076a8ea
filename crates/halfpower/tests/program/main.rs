//! Tests of the whole program: the real executable on real files, loop devices and the null I/O
//! engine.
//!
//! This is one test executable with one module for each subcommand or promise. The modules
//! `fixture`, `rank_checks` and `volume` contain helpers for all other modules. A test that needs
//! something that this host lacks, such as root or loop devices, reports this and counts as
//! skipped. Tests change only what they created, and no test asserts a time or a rate of real
//! storage.
#![cfg(test)]

mod fixture;
mod rank_checks;
mod volume;
mod whatif;
mod plan;

mod calibrate;
mod characterise;
mod campaign;
mod classic;
mod command_line;
mod compare;
mod consent;
mod copying;
mod database;
mod devices;
mod engine_flags;
mod errors;
mod exchange;
mod explain;
mod faults;
mod few_calls;
mod from_fio;
mod host_settings;
mod hosts;
mod in_use;
mod interrupt;
mod json;
mod known_truth;
mod memory;
mod network;
mod objects;
mod pages;
mod peer;
mod ranks;
mod real_programs;
mod replay;
mod reproduce;
mod run;
mod serve;
mod simulated;
mod skew;
mod soak;
mod streams;
mod striping;
mod study;
mod study_requests;
mod study_raid;
mod study_stripe;
mod study_phases;
mod study_truth;
mod study_write_cache;
mod study_alignment;
mod study_costs;
mod survey;
mod sweep;
mod target;
mod terminal;
mod time_machine;
mod truth_targets;
mod tune;
mod watch;
