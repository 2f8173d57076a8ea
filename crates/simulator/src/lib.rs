//! Discrete-event models of disks, SSDs, caches, buses, volumes, hosts and networks.
//!
//! A [`System`] is read from a file in which every value has a unit and a source. A [`SimWorld`]
//! runs it and provides a target, engines, a clock and a CPU meter, so code that measures real
//! devices can measure simulated ones. Time is virtual, in integer nanoseconds. Events run in
//! order of time and insertion, and all randomness comes from one seed, so runs repeat bit for
//! bit.

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
