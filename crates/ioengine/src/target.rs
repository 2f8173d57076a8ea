//! A target: what requests are sent to, and everything around them that is not a request.
//!
//! The trait [`Target`] is half of the seam at which a simulator takes the place of the machine
//! (the other half is [`Engine`]). A target is open already: its caching mode and whether it may
//! be written were decided when it was opened.

use std::iter::Sum;
use std::ops::Add;

pub use crate::device::{AdvertisedRate, DeviceCounters};
use crate::engine::{Engine, EngineSpec};
use crate::error::Error;
pub use crate::mode::{Caching, Hint};

/// What kind of thing a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// Nothing: the `null` I/O engine.
    Null,
    /// A device of known truth: the `delay` I/O engine.
    Delay,
    /// A regular file.
    File,
    /// A block device.
    BlockDevice,
    /// A simulated system.
    Simulated,
}

impl TargetKind {
    /// Whether there is something that can be cached, damaged or left behind.
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
            TargetKind::Simulated => "simulated",
        }
    }
}

/// What an offset, a length and a buffer address must be a multiple of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Of buffer addresses (bytes).
    pub memory_bytes: u32,
    /// Of offsets and lengths (bytes).
    pub offset_bytes: u32,
}

/// How much of a target was in the page cache before and after a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrub {
    /// Resident before, where the system tells (bytes).
    pub resident_before_bytes: Option<u64>,
    /// Resident after: 0 is the proof that the next reads are cold (bytes).
    pub resident_after_bytes: Option<u64>,
    /// Whether the whole machine's caches had to be dropped.
    pub dropped_all_caches: bool,
}

/// How much of a file has no written blocks behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Holes: nothing allocated (bytes).
    pub hole_bytes: u64,
    /// Allocated but never written, so read as zeros without touching the device (bytes).
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

/// A target: what requests are sent to, and everything around them that is not a request.
pub trait Target {
    /// What issues requests to it.
    type Engine: Engine;

    /// What it is called.
    fn name(&self) -> &str;
    /// What it is.
    fn kind(&self) -> TargetKind;
    /// Its size now (bytes).
    fn size_bytes(&self) -> u64;
    /// The caching mode in which it was opened.
    fn caching(&self) -> Caching;
    /// What requests must be aligned to in this mode.
    fn alignment(&self) -> Alignment;

    /// Refuses an engine that this target cannot have; looks and tries, but measures nothing.
    ///
    /// # Errors
    /// What does not fit, with the remedy.
    fn check(&self, spec: &EngineSpec) -> Result<(), Error> {
        spec.check(self.caching())
    }
    /// An engine on this target, made by the thread that will use it.
    fn engine(&self, spec: &EngineSpec) -> Result<Self::Engine, Error>;

    /// Reserves blocks for the range without writing them.
    fn reserve(&self, offset: u64, length: u64) -> Result<(), Error>;
    /// Sets the size.
    fn truncate(&self, size_bytes: u64) -> Result<(), Error>;
    /// Makes everything written durable.
    fn sync(&self) -> Result<(), Error>;
    /// Makes the data that was written durable, and of what describes it only what is needed to
    /// find them again; the same as [`Target::sync`] where there is no difference.
    fn sync_data(&self) -> Result<(), Error> {
        self.sync()
    }
    /// Tells what accesses are coming.
    fn advise(&self, hint: Hint) -> Result<(), Error>;
    /// Takes the target out of the page cache and proves it.
    fn scrub(&self) -> Result<Scrub, Error>;
    /// How much of it is in the page cache, where the system tells (bytes).
    fn resident_bytes(&self) -> Option<u64>;
    /// Holes and unwritten extents of a part, where the system tells.
    fn coverage(&self, offset: u64, length: u64) -> Option<Coverage>;
    /// Which device lies beneath: targets on the same one share its counters.
    fn device_number(&self) -> Option<(u32, u32)>;
    /// The counters of the device beneath, where there is one.
    fn device_counters(&self) -> Option<DeviceCounters>;
    /// What the links on the way promise, nearest to the device first.
    fn advertised(&self) -> Vec<AdvertisedRate>;
    /// What the system believes of the device's write cache.
    fn write_cache(&self) -> Option<String>;
}
