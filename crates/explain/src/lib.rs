//! Contains the texts that explain halfpower's output: terms, reasons of verdicts, findings of
//! surveys, advice, and studies with their findings. Each text is a topic.
//!
//! The texts are Markdown files in `topics/` that are compiled into the program. Tests of other
//! crates check that every term, reason and finding that halfpower prints has a topic.
#![forbid(unsafe_code)]

mod topic;
mod library;
mod parts;

pub use library::{Found, check_of, find, is_finding, of_kind};
pub use parts::{Block, paragraphs};
pub use topic::{Kind, Topic};
