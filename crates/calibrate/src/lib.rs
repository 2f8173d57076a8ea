//! Fits a simulated system to a stored run of a real device, and says how well each of its
//! parameters is known.
//!
//! `history` reads what was measured, `replay` lets a system go through the same trials in
//! virtual time, in the same order with the same pauses, so that caches, buffers and credit carry
//! over as they did. `structure` names what a device may consist of, `ladder` guesses where to
//! start, `fit` minimises the residuals from many starts, `score` judges on points held out,
//! `result` is what comes of it, `trust` how far to believe it of a load.

pub mod history;
pub mod replay;
pub mod ladder;
pub mod structure;
pub mod fit;
pub mod score;
pub mod result;
pub mod trust;
pub mod time_machine;
pub mod whatif;
