//! Simulates storage systems with discrete-event models of disks, SSDs, caches, buses, volumes,
//! hosts and networks.
//!
//! A [`System`] is read from a file in which every value has a unit and a source. A [`SimWorld`]
//! simulates the system. It provides a target, engines, a clock and a CPU meter, so code that
//! measures real devices can also measure simulated devices. Time is virtual, in integer
//! nanoseconds. Simulations are reproducible bit for bit, because events run in order of time and
//! insertion, and one seed determines all random numbers.

mod event_queue;
mod random;
mod server;
mod nand;
pub mod translation;
pub mod quantity;
mod written;
mod models;
pub mod calibration;
pub mod system;
pub mod description;
pub mod geometry;
mod shingles;
mod disk;
mod ftl;
mod flash;
mod volume;
mod machine;
pub mod account;
pub mod target;
pub mod driver;
pub mod bounds;
pub mod simple;

pub use account::{Account, Binding, Held, Resource, ResourceKind, WriteCost};
pub use calibration::CalibrationPoint;
pub use description::Description;
pub use driver::Driver;
pub use ftl::FlashWrites;
pub use simple::SimpleModel;
pub use system::System;
pub use target::{Mark, SimClock, SimEngine, SimMeter, SimTarget, SimWorld};
