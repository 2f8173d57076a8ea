//! `halfpower watch`: records the storage requests of a running program, and reports their
//! performance and the time that the program waits for them.
//!
//! [`session`] runs or attaches to a program, or watches a file system ([`target_filter`]), and
//! stores the trace. [`stored`] shows, imports and exports traces. [`summary`] computes statistics
//! in one pass over a trace. [`totals`] reads the kernel's I/O counters, which need no recording.
//! [`document`] contains the result as JSON, and [`text`] formats the result for the terminal.
//! [`against`] compares the result with a stored survey, and [`gains`] predicts the gain of
//! changes. [`waits`] computes how long the program waits for each class of requests. [`page`]
//! formats the result as HTML with charts, for which [`timeline`] counts requests over time.
//! [`characterise`] turns a trace into a workload that halfpower and fio can run.
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
