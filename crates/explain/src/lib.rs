//! Texts that explain what halfpower prints: terms, reasons of verdicts, findings of surveys,
//! advice, and studies with their findings.
//!
//! The texts are Markdown files in `topics/`, one for each kind, and part of the program, so they
//! need no network. The crate imports nothing of halfpower; tests of the crates above it check that
//! everything they print has its topic.
#![forbid(unsafe_code)]

mod topic;
mod library;
mod parts;

pub use library::{Found, check_of, find, is_finding, of_kind};
pub use parts::{Block, paragraphs};
pub use topic::{Kind, Topic};
