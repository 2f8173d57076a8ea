//! The trait [`Target`]: an open file, device or simulated system that receives I/O requests. A
//! [`Target::Engine`] issues these requests. The trait contains all other operations, for example
//! allocation, flush, cache eviction and counters.
//!
//! A simulator implements [`Target`] and [`Engine`]. The caching mode and the write permission of a
//! target are fixed when the target is opened.

use std::iter::Sum;
use std::ops::Add;

pub use crate::device::{AdvertisedRate, DeviceCounters};
use crate::engine::{Engine, EngineSpec};
use crate::error::{Error, ErrorKind};
pub use crate::mode::{Caching, Hint};
use crate::zones::Zones;

/// Kind of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// No storage. The `null` I/O engine completes requests without I/O.
    Null,
    /// A reference device. The `delay` I/O engine completes requests at computed times.
    Delay,
    /// A regular file.
    File,
    /// A block device.
    BlockDevice,
    /// A file, disk or object on a server, which this program's own network clients access instead
    /// of the kernel's clients.
    Network,
    /// A simulated system.
    Simulated,
}

impl TargetKind {
    /// Returns whether the target stores data, which is false for `Null` and `Delay`.
    pub fn is_storage(self) -> bool {
        !matches!(self, TargetKind::Null | TargetKind::Delay)
    }

    /// Returns the name that results use for the kind.
    pub fn name(self) -> &'static str {
        match self {
            TargetKind::Null => "null",
            TargetKind::Delay => "delay",
            TargetKind::File => "file",
            TargetKind::BlockDevice => "block device",
            TargetKind::Network => "network",
            TargetKind::Simulated => "simulated",
        }
    }
}

/// The required alignment of offsets, lengths and buffer addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Alignment of buffer addresses (bytes).
    pub memory_bytes: u32,
    /// Alignment of offsets and lengths (bytes).
    pub offset_bytes: u32,
}

/// Amount of a target's data in the page cache before and after [`Target::scrub`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrub {
    /// Amount in the page cache before the scrub (bytes). None if the system does not report it.
    pub resident_before_bytes: Option<u64>,
    /// Amount in the page cache after the scrub (bytes). None if the system does not report it. 0
    /// proves that the next reads miss the page cache.
    pub resident_after_bytes: Option<u64>,
    /// Whether the page cache of the whole machine was dropped.
    pub dropped_all_caches: bool,
}

/// Sizes of the parts of a file or zoned device that contain no written data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Size of the holes, which have no allocated blocks (bytes).
    pub hole_bytes: u64,
    /// Size of the blocks that are allocated but were never written (bytes). Reads of these blocks
    /// return zeros without reaching the device.
    pub unwritten_bytes: u64,
}

impl Add for Coverage {
    type Output = Coverage;

    fn add(self, other: Coverage) -> Coverage {
        Coverage {
            hole_bytes: self.hole_bytes + other.hole_bytes,
            unwritten_bytes: self.unwritten_bytes + other.unwritten_bytes,
        }
    }
}

impl Sum for Coverage {
    fn sum<I: Iterator<Item = Coverage>>(each: I) -> Coverage {
        each.fold(Coverage::default(), Add::add)
    }
}

/// An open file, device or simulated system that receives I/O requests.
pub trait Target {
    /// The engine that issues requests to this target.
    type Engine: Engine;

    /// Returns the name of the target as the user specified it.
    fn name(&self) -> &str;
    /// Returns the kind of the target.
    fn kind(&self) -> TargetKind;
    /// Returns the current size of the target (bytes).
    fn size_bytes(&self) -> u64;
    /// Returns the caching mode in which the target was opened.
    fn caching(&self) -> Caching;
    /// Returns the required alignment of requests in the target's caching mode.
    fn alignment(&self) -> Alignment;

    /// Checks whether this target supports an engine. The check may send requests to the target,
    /// but measures nothing.
    ///
    /// # Errors
    /// If the engine is not supported. The error contains the reason and the remedy.
    fn check(&self, spec: &EngineSpec) -> Result<(), Error> {
        spec.check(self.caching())
    }
    /// Makes an engine for this target. The thread that will use the engine must call this.
    fn engine(&self, spec: &EngineSpec) -> Result<Self::Engine, Error>;

    /// Allocates blocks for a range without writing data.
    fn reserve(&self, offset: u64, length: u64) -> Result<(), Error>;
    /// Returns the layout of the zones that must be written sequentially, or None if there are no
    /// such zones.
    fn zones(&self) -> Option<Zones> {
        None
    }
    /// Empties the zones of a range. All data in the range are lost.
    ///
    /// # Errors
    /// If the target has no zones in the range, or refuses to empty them.
    fn reset_zones(&self, _offset: u64, _bytes: u64) -> Result<(), Error> {
        Err(Error::new(ErrorKind::Unsupported, format!("{} has no zones", self.name())))
    }
    /// Sets the size of the target.
    fn truncate(&self, size_bytes: u64) -> Result<(), Error>;
    /// Makes all written data durable.
    fn sync(&self) -> Result<(), Error>;
    /// Makes all written data durable (fdatasync(2)). Metadata are made durable only if they are
    /// needed to read the data. The default implementation calls [`Target::sync`].
    fn sync_data(&self) -> Result<(), Error> {
        self.sync()
    }
    /// Makes all data written to several targets durable. By default, one target is flushed after
    /// the other. Simulated targets are flushed concurrently, as if each had a thread that calls
    /// fsync(2).
    ///
    /// # Errors
    /// If a target cannot be flushed. The first error is returned.
    fn sync_all(targets: &[&Self]) -> Result<(), Error>
    where
        Self: Sized,
    {
        targets.iter().try_for_each(|target| target.sync())
    }
    /// Passes a hint about future accesses to `bytes` bytes from `offset` (posix_fadvise(2)). If
    /// `bytes` is 0, the range extends to the end. Only `WillNeed` and `DontNeed` accept a part of
    /// the target. All other hints apply to the whole target.
    fn advise(&self, hint: Hint, offset: u64, bytes: u64) -> Result<(), Error>;
    /// Evicts the target's data from the page cache and checks that no data remain there.
    fn scrub(&self) -> Result<Scrub, Error>;
    /// Returns the amount of the target's data in the page cache (bytes), or None if the system
    /// does not report it.
    fn resident_bytes(&self) -> Option<u64>;
    /// Returns the size of the holes and unwritten extents in a range, or None if the system does
    /// not report them.
    fn coverage(&self, offset: u64, length: u64) -> Option<Coverage>;
    /// Returns the device number (major, minor) of the underlying device, or None if there is no
    /// device. Targets on the same device share the device's counters.
    fn device_number(&self) -> Option<(u32, u32)>;
    /// Returns the counters of the underlying device, or None if there are no counters.
    fn device_counters(&self) -> Option<DeviceCounters>;
    /// Returns the nominal rates of the links to the device. The link nearest to the device is
    /// first.
    fn advertised(&self) -> Vec<AdvertisedRate>;
    /// Returns the mode that the kernel assumes for the device's write cache, or None if the mode
    /// is unknown.
    fn write_cache(&self) -> Option<String>;
}
