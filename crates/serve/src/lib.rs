//! Shows the runs of a database: a gallery of pages, in a folder or over HTTP on this machine.
//!
//! [`command`] has the two commands, `report --all` and `serve`. Both make the same pages:
//! `gallery` the list of runs with its hosts and targets, `run_page` a run of any kind,
//! `target_page` the rates of a target over time; comparisons are those of the crate `compare`.
//! [`folder`] writes them as files.
//!
//! The server reads nothing but the database and writes nothing. [`access`] decides whether a
//! request may be answered, [`route`] which page it wants; `pages` makes one page at a time on a
//! thread of its own, and keeps the last ones; [`server`] speaks HTTP and limits what clients can
//! make it do. HTTP itself is that of hyper.
#![forbid(unsafe_code)]

mod place;
mod gallery;
mod run_page;
mod target_page;
pub mod folder;
pub mod access;
pub mod route;
mod pages;
mod answer;
pub mod server;
pub mod command;
