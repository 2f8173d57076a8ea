//! The two papers that halfpower builds on: their published data, and their tools.
//!
//! Riedel, van Ingen and Gray, "A Performance Study of Sequential I/O on Windows NT 4.0" (1997);
//! Chung, Gray, Worthington and Horst, "Windows 2000 Disk IO Performance" (2000). [`claims`] has
//! every number in their text and judges values against these numbers. [`reproduce`] repeats their
//! figures and claims in the simulator and scores the result. [`classic`] implements the flags and
//! formats of their tools. The published data is in the folder `data`.

mod data_file;
pub mod claims;
pub mod reproduce;
pub mod classic;
