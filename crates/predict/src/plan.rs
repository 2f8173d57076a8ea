//! Capacity planning: finds the cheapest configurations of simulated systems that meet a stated
//! need.
//!
//! `need` parses the need, and `prices` the price list. `candidate` enumerates configurations,
//! which differ in kind and number of devices, volume, controller and write cache. `judge` decides
//! whether a configuration meets the need, first by closed-form bounds and then by simulation.
//! `ranking` finds the cheapest configurations, and `document` prints them.

pub mod need;
pub mod prices;
pub mod candidate;
pub mod judge;
pub mod ranking;
pub mod document;
