//! Statistics and models. The functions take plain numbers and return values with confidence
//! intervals.
//!
//! [`histogram`], [`quantile`] and [`bootstrap`] summarise a trial. [`outlier`], [`drift`],
//! [`changepoint`], [`steady`] and [`littles_law`] check whether a trial can be trusted.
//! [`comparison`] compares two sets of trials, and [`fleet`] compares the hosts of a fleet.
//! [`levels`] finds two levels among trials. [`lsq`], [`halfpower`], [`costmodel`] and
//! [`nonlinear`] fit models. [`popularity`] finds the law that the popularity of blocks follows.
//! [`cachesteps`] finds the caches of a machine, and [`ladder`] finds the bottleneck of a pipeline.
//! [`units`] parses and formats sizes, durations and rates. This crate does no I/O, reads no clock
//! and keeps no state. Equal input gives equal output. Modules import only modules declared above
//! them.
//!
//! If an input value is not finite, there is no result (`None`, an error or an empty list, as
//! documented). A NaN is an arithmetic error of the caller and must not look like a measurement.

#![forbid(unsafe_code)]

pub mod units;

pub mod interval;

pub mod histogram;
pub mod quantile;

pub mod bootstrap;
pub mod comparison;

pub mod changepoint;
pub mod drift;
pub mod levels;
pub mod outlier;
pub mod steady;

pub mod fleet;

pub mod lsq;

pub mod costmodel;
pub mod halfpower;
pub mod nonlinear;
pub mod popularity;
pub mod ties;

pub mod cachesteps;
pub mod ladder;
pub mod littles_law;
