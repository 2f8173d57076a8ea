//! `halfpower watch`: what a running program asks of storage, what it gets, and where its time
//! goes.
//!
//! [`session`] runs or attaches to a program, or watches a file system ([`target_filter`]), and
//! stores the trace. [`stored`] shows, imports and exports traces. [`summary`] goes through a trace
//! once and counts: it serves the trace of any tool. [`totals`] are what the kernel counts without
//! a recording. [`document`] is the result as JSON, [`text`] as lines for the terminal; [`against`]
//! compares it with a stored survey, and [`gains`] says what changes would gain. [`waits`] divides
//! the time of a program. [`page`] is the result as HTML, with charts; [`timeline`] counts requests
//! over time. [`characterise`] turns a trace into a load that halfpower and fio can run.
#![forbid(unsafe_code)]

pub mod waits;
pub mod timeline;
pub mod summary;
pub mod totals;
pub mod document;
pub mod gains;
pub mod against;
pub mod text;
pub mod page;
pub mod target_filter;
pub mod session;
pub mod stored;
pub mod characterise;
