//! The published data and the tools of the two papers that halfpower builds on.
//!
//! The first paper is Riedel, van Ingen and Gray, "A Performance Study of Sequential I/O on Windows
//! NT 4.0" (1997). The second paper is Chung, Gray, Worthington and Horst, "Windows 2000 Disk IO
//! Performance" (2000). [`claims`] has the numbers in the text of the papers, and judges whether a
//! value agrees with such a number. [`reproduce`] simulates the figures and claims of the papers,
//! and compares the results with the published values. [`classic`] implements the flags and formats
//! of the papers' tools. The published data is in the directory `data` of this crate.

mod data_file;
pub mod claims;
pub mod reproduce;
pub mod classic;
