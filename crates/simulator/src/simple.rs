//! The simple model of the papers: the time of a single request if none of its steps overlap.
//!
//! Section 5.2 of the first paper adds up the fixed overhead, the seek, the rotation, the transfer
//! from the media and the transfer over the bus. Real drives overlap or avoid some of these steps.
//! The difference between this model and a simulation shows how much time caches and pipelining
//! save.

use ioengine::Op;

use crate::bounds::Shape;
use crate::geometry::Geometry;
use crate::system::{DiskModel, DriveModel, System, VolumeKind};

/// Number of steps of the numerical integration in `mean_seek_ns`.
const STEPS: u32 = 1000;

/// The time of a request, split into steps (ns).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimpleModel {
    /// CPU time, bus phases without data, and firmware time of the drive.
    pub fixed_ns: f64,
    /// Mean seek time plus half a revolution. 0 for sequential requests.
    pub position_ns: f64,
    /// Transfer time from or to the media.
    pub media_ns: f64,
    /// Transfer time over the bus or over one of its links, whichever takes longest.
    pub bus_ns: f64,
}

impl SimpleModel {
    /// Computes the model of a load whose random requests lie in a file of `region_bytes`. Returns
    /// `None` unless the requests are direct and the system is a single disk without a network.
    pub fn of(system: &System, shape: &Shape, region_bytes: u64) -> Option<SimpleModel> {
        let DriveModel::Disk(disk) = &system.drive else { return None };
        let setup = &system.setup;
        let is_single = setup.disks == 1 && setup.volume == VolumeKind::None;
        if !is_single || system.network.is_some() || !shape.caching.is_direct() {
            return None;
        }
        let geometry = Geometry::new(disk, 1.0);
        let start = (geometry.bytes() as f64 * setup.file_at) as u64;
        let bytes = u64::from(shape.request_bytes);
        let position_ns = if shape.random {
            let end = (start + region_bytes).min(geometry.bytes().saturating_sub(1));
            let cylinders = geometry.cylinder_of(end) - geometry.cylinder_of(start);
            let settle_ns = if shape.op == Op::Write { disk.write_settle.0 } else { 0.0 };
            mean_seek_ns(&geometry, cylinders) + settle_ns + geometry.revolution_ns() as f64 / 2.0
        } else {
            0.0
        };
        Some(SimpleModel {
            fixed_ns: fixed_ns(system, disk, shape),
            position_ns,
            media_ns: bytes as f64 * 1e9 / geometry.rate_at(start),
            bus_ns: bus_ns(system, shape.op, bytes),
        })
    }

    /// Returns the sum of the steps (ns).
    pub fn sum_ns(&self) -> f64 {
        self.fixed_ns + self.position_ns + self.media_ns + self.bus_ns
    }
}

/// Returns the mean seek time between two random positions within n = `cylinders` cylinders (ns).
/// The probability density of the seek distance d is 2 (1 - d/n) / n.
fn mean_seek_ns(geometry: &Geometry, cylinders: u64) -> f64 {
    let step = |number: u32| {
        let share = (f64::from(number) + 0.5) / f64::from(STEPS);
        let distance = (share * cylinders as f64).round() as u64;
        2.0 * (1.0 - share) * geometry.seek_ns(distance) as f64
    };
    (0..STEPS).map(step).sum::<f64>() / f64::from(STEPS)
}

/// Returns the CPU time of a request, plus the times of bus phases and firmware (ns).
fn fixed_ns(system: &System, disk: &DiskModel, shape: &Shape) -> f64 {
    let (host, bus) = (&system.host, &system.bus);
    let (cost, firmware) = match shape.op {
        Op::Read => (host.direct_read, disk.firmware_read),
        Op::Write => (host.direct_write, disk.firmware_write),
    };
    let extra_ns = if shape.random { host.random.ns() + disk.firmware_miss.ns() } else { 0 };
    let phases =
        [bus.arbitrate, bus.select, bus.message_out, bus.command, bus.status, bus.message_in];
    let phases_ns: u64 = phases.iter().map(|phase| phase.ns()).sum();
    let cpu_ns = cost.ns_for(u64::from(shape.request_bytes));
    (cpu_ns + extra_ns + phases_ns + firmware.ns()) as f64
}

/// Returns the transfer time over the bus or over one of its links, whichever takes longest (ns).
fn bus_ns(system: &System, op: Op, bytes: u64) -> f64 {
    let of = |read: crate::quantity::Rate, write: crate::quantity::Rate| {
        if op == Op::Read { read.ns_for(bytes) } else { write.ns_for(bytes) }
    };
    let links = system.links.iter().map(|link| link.fixed.ns() + of(link.read, link.write));
    links.fold(of(system.bus.read, system.bus.write), u64::max) as f64
}
