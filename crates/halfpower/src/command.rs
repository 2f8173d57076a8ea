//! The subcommands, one file each. A subcommand interprets its flags, calls the crates that do the
//! work, and prints the result. Code that two subcommands share is in a crate, not here.

pub mod assist;
pub mod calibrate;
pub mod cat;
pub mod characterise;
pub mod checksum;
pub mod clean;
pub mod compare;
pub mod copy;
pub mod engines;
pub mod explain;
pub mod exchange;
pub mod target;
pub mod generate;
pub mod memory;
pub mod mount;
pub mod peer;
pub mod report;
pub mod reproduce;
pub mod restore;
pub mod run;
pub mod replay;
pub mod fio;
pub mod runs;
pub mod selftest;
pub mod serve;
pub mod simulate;
pub mod soak;
pub mod study;
pub mod survey;
pub mod tune;
pub mod watch;
pub mod whatif;
pub mod plan;
pub mod classic;
