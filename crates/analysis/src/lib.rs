//! Statistics and models: plain numbers in, values with confidence intervals out.
//!
//! [`histogram`], [`quantile`] and [`bootstrap`] summarise a trial. [`outlier`], [`drift`],
//! [`changepoint`], [`steady`] and [`littles_law`] check whether it can be trusted. [`comparison`]
//! compares two sets of trials, [`fleet`] the hosts of a fleet; [`levels`] finds two levels among
//! trials. [`lsq`],
//! [`halfpower`], [`costmodel`] and [`nonlinear`] fit models; [`popularity`] finds the law that
//! accesses follow. [`cachesteps`] finds the caches of a
//! machine, and [`ladder`] finds the bottleneck. [`units`] reads and writes sizes,
//! durations and rates as people do. Nothing here does I/O, reads a clock or keeps
//! state. Equal input gives equal output; randomness comes from a seed of the caller. Modules
//! import only modules declared above them.
//!
//! An input with a value that is not finite has no result (`None`, an error or an empty list, as
//! documented). A NaN is an arithmetic error of the caller and must not pass as a measurement.

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
