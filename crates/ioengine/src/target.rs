//! A target: an open file, device or simulated system that requests are sent to. It also has the
//! operations that are not requests, such as allocation, flush, cache eviction and counters.
//!
//! A simulator replaces the machine by implementing [`Target`] and [`Engine`]. A target is already
//! open: opening fixed its caching mode and write permission.

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
    /// Nothing: the `null` I/O engine.
    Null,
    /// A reference device: the `delay` I/O engine.
    Delay,
    /// A regular file.
    File,
    /// A block device.
    BlockDevice,
    /// A file, disk or object of a server, reached over the network without the kernel's clients.
    Network,
    /// A simulated system.
    Simulated,
}

impl TargetKind {
    /// Whether the target stores data that can be cached or damaged.
    pub fn is_storage(self) -> bool {
        !matches!(self, TargetKind::Null | TargetKind::Delay)
    }

    /// The name in results.
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

/// How much of a target was in the page cache before and after [`Target::scrub`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrub {
    /// Bytes in the page cache before the scrub, if the system reports them.
    pub resident_before_bytes: Option<u64>,
    /// Bytes in the page cache after the scrub; 0 proves that the next reads are cold.
    pub resident_after_bytes: Option<u64>,
    /// Whether all caches of the machine were dropped.
    pub dropped_all_caches: bool,
}

/// Parts of a file, or of a device with zones, without written blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Holes: nothing allocated (bytes).
    pub hole_bytes: u64,
    /// Allocated but never written: reads return zeros without reaching the device (bytes).
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

/// A target: an open file, device or simulated system that requests are sent to.
pub trait Target {
    /// The engine that issues requests to this target.
    type Engine: Engine;

    /// The name as the user gave it.
    fn name(&self) -> &str;
    /// Kind of the target.
    fn kind(&self) -> TargetKind;
    /// The current size (bytes).
    fn size_bytes(&self) -> u64;
    /// The caching mode in which the target was opened.
    fn caching(&self) -> Caching;
    /// The required alignment of requests in this mode.
    fn alignment(&self) -> Alignment;

    /// Checks that this target supports an engine. It may probe the target, but does not measure.
    ///
    /// # Errors
    /// What is not supported, with the remedy.
    fn check(&self, spec: &EngineSpec) -> Result<(), Error> {
        spec.check(self.caching())
    }
    /// Makes an engine on this target; called by the thread that will use it.
    fn engine(&self, spec: &EngineSpec) -> Result<Self::Engine, Error>;

    /// Reserves blocks for the range without writing them.
    fn reserve(&self, offset: u64, length: u64) -> Result<(), Error>;
    /// The zones that take writes only in order; None if there are none.
    fn zones(&self) -> Option<Zones> {
        None
    }
    /// Empties the zones of a range. All data in them are lost.
    ///
    /// # Errors
    /// The target has no zones there, or refuses.
    fn reset_zones(&self, _offset: u64, _bytes: u64) -> Result<(), Error> {
        Err(Error::new(ErrorKind::Unsupported, format!("{} has no zones", self.name())))
    }
    /// Sets the size of the target.
    fn truncate(&self, size_bytes: u64) -> Result<(), Error>;
    /// Makes everything written durable.
    fn sync(&self) -> Result<(), Error>;
    /// Makes written data durable, with only the metadata needed to find them again (fdatasync(2)).
    /// On a target without such metadata, the same as [`Target::sync`].
    fn sync_data(&self) -> Result<(), Error> {
        self.sync()
    }
    /// Makes everything written to several targets durable. Targets in virtual time do this at the
    /// same time, like threads that each call fsync(2).
    ///
    /// # Errors
    /// The first error of a target.
    fn sync_all(targets: &[&Self]) -> Result<(), Error>
    where
        Self: Sized,
    {
        targets.iter().try_for_each(|target| target.sync())
    }
    /// Announces coming accesses to the `bytes` bytes from `offset` on (posix_fadvise(2)); 0 bytes
    /// mean all from there on. Only `WillNeed` and `DontNeed` can be given for a part. All other
    /// hints hold for the whole target.
    fn advise(&self, hint: Hint, offset: u64, bytes: u64) -> Result<(), Error>;
    /// Evicts the target from the page cache and checks that it is gone.
    fn scrub(&self) -> Result<Scrub, Error>;
    /// How much of the target is in the page cache, if the system reports it (bytes).
    fn resident_bytes(&self) -> Option<u64>;
    /// Holes and unwritten extents of a range, if the system reports them.
    fn coverage(&self, offset: u64, length: u64) -> Option<Coverage>;
    /// The number of the underlying device; targets on the same device share its counters.
    fn device_number(&self) -> Option<(u32, u32)>;
    /// The counters of the underlying device, if any.
    fn device_counters(&self) -> Option<DeviceCounters>;
    /// The nominal rates of the links to the device, nearest to the device first.
    fn advertised(&self) -> Vec<AdvertisedRate>;
    /// What the kernel assumes about the device's write cache.
    fn write_cache(&self) -> Option<String>;
}
