//! The survey: the whole characterisation of a target within a budget.
//!
//! `grid` says what to measure first, `schedule` what to measure next, `visits` which blocks, and
//! `measure` does it. `evidence` is what came of it, `insight` what it means, `advice` and
//! `findings` say it in words, `consistency` holds them against each other, `document` says it in
//! JSON and `view` on the page. Everything from `insight` on is a pure function of the evidence,
//! so that a stored survey gives the same page again.

pub mod app;
pub mod grid;
pub mod schedule;
pub mod memory;
pub mod visits;
pub mod evidence;
pub mod measure;
pub mod half_power;
pub mod insight;
pub mod advice;
pub mod findings;
pub mod consistency;
pub mod document;
pub mod view;
pub mod session;
