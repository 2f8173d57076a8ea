//! The two papers that halfpower builds on: their published data, and their tools.
//!
//! Riedel, van Ingen and Gray, "A Performance Study of Sequential I/O on Windows NT 4.0" (1997);
//! Chung, Gray, Worthington and Horst, "Windows 2000 Disk IO Performance" (2000). [`reproduce`]
//! repeats their figures and claims in the simulator and scores the result. [`classic`] implements
//! the flags and formats of their tools. The published data is in the folder `data`.

pub mod reproduce;
pub mod classic;
