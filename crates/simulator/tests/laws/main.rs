//! What no simulated run may break: closed forms, conservation, bounds, and the same bits each
//! time. Every run goes through the load generator, as the program's own runs do.

mod bench;
mod coverage;
mod bounds;
mod forms;
mod limits;
mod properties;
mod values;
