//! Contains the texts that explain the output of halfpower: terms, reasons of verdicts, findings of
//! surveys, advice, and studies with their findings.
//!
//! The texts are Markdown files in `topics/`. They are compiled into the program, so they need no
//! network. This crate depends on no other crate of halfpower. Tests of the crates that use this
//! crate check that there is a topic for every term, reason and finding that they print.
#![forbid(unsafe_code)]

mod topic;
mod library;
mod parts;

pub use library::{Found, check_of, find, is_finding, of_kind};
pub use parts::{Block, paragraphs};
pub use topic::{Kind, Topic};
