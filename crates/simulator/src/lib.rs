//! Discrete-event models of disks, SSDs, caches, buses, volumes, hosts and networks.
//!
//! A [`System`] is read from a file in which every value has its unit and source; a [`SimWorld`]
//! is that system at work. It gives a target, engines, a clock and a CPU meter, so that whatever
//! measures a real device measures a simulated one, in virtual time: integer nanoseconds, events
//! in the order of (time, number), every random choice from one seed, the same to the bit on
//! every run.

mod agenda;
mod random;
mod server;
pub mod quantity;
mod written;
mod models;
pub mod calibration;
pub mod system;
pub mod description;
pub mod geometry;
mod disk;
mod flash;
mod volume;
mod machine;
pub mod account;
pub mod target;
pub mod driver;
pub mod bounds;

pub use account::{Account, Binding, Resource, ResourceKind};
pub use calibration::CalibrationPoint;
pub use description::Description;
pub use driver::Driver;
pub use system::System;
pub use target::{Mark, SimClock, SimEngine, SimMeter, SimTarget, SimWorld};
