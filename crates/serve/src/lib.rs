//! Shows the runs of a database: a gallery of pages, in a folder or over HTTP on this machine.
//!
//! [`command`] has the two commands, `report --all` and `serve`. Both make the same pages:
//! `gallery` makes the list of runs with its hosts and targets, `run_page` the page of a run, and
//! `target_page` the rates of a target over time; the crate `compare` makes comparisons.
//! [`folder`] writes them as files.
//!
//! The server reads nothing but the database and writes nothing. [`access`] decides whether a
//! request may be answered, and [`route`] which page it asks for. `pages` makes one page at a time
//! in a separate thread and keeps the last ones. [`server`] handles connections, through the
//! library hyper, and limits what clients can make the server do.
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
