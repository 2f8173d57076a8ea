//! The verbs, one file each: a verb resolves what was typed, calls the rooms that do the work, and
//! prints what came of it. What two verbs share lives in a room of its own, not here.

pub mod assist;
pub mod calibrate;
pub mod cat;
pub mod checksum;
pub mod clean;
pub mod copy;
pub mod engines;
pub mod target;
pub mod generate;
pub mod memory;
pub mod mount;
pub mod report;
pub mod reproduce;
pub mod restore;
pub mod run;
pub mod runs;
pub mod selftest;
pub mod simulate;
pub mod soak;
pub mod study;
pub mod survey;
pub mod tune;
pub mod whatif;
pub mod classic;
