//! Laws that every simulated run obeys: closed forms, conservation, bounds and reproducibility. All
//! runs use the load generator, as the program does.

mod support;
mod coverage;
mod bounds;
mod forms;
mod garbage;
mod limits;
mod memory;
mod pagecache;
mod properties;
mod quirks;
mod sharing;
mod shingles;
mod translation;
mod values;
