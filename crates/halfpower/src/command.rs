//! The verbs, one file each.

pub mod clean;
pub mod engines;
pub mod generate;
pub mod report;
pub mod run;
pub mod runs;
pub mod survey;
