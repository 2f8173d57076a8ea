//! The mathematics of halfpower: slices and numbers in, values with intervals out.
//!
//! What a trial yields is summarised by [`histogram`], [`quantile`] and [`bootstrap`]; whether it
//! may be trusted is asked of [`outlier`], [`drift`], [`changepoint`], [`steady`] and
//! [`littles_law`]; what it means is fitted by [`lsq`], [`halfpower`] and [`costmodel`];
//! [`cachesteps`] finds the caches of a machine, and [`ladder`] names what binds. Nothing here
//! performs I/O, reads a clock or keeps state: equal input gives equal output, and every random
//! choice comes from a seed of the caller. Modules import only those declared above them.
//!
//! Throughout, an input that holds a value which is not finite has no result (`None`, an error or
//! an empty list, as the function states): a NaN is a fault of the caller's arithmetic and must
//! not pass as a measurement.

#![forbid(unsafe_code)]

pub mod interval;

pub mod histogram;
pub mod quantile;

pub mod bootstrap;

pub mod changepoint;
pub mod drift;
pub mod outlier;
pub mod steady;

pub mod lsq;

pub mod costmodel;
pub mod halfpower;
pub mod ties;

pub mod cachesteps;
pub mod ladder;
pub mod littles_law;
