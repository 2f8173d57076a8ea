//! The caching mode in which a target is opened, and hints about future accesses.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};

/// The caching mode of a target: how the kernel caches its I/O. The four modes below correspond to
/// SQLIO's buffering flags Y, H, S and N, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Caching {
    /// I/O uses the page cache. A write completes before its data is on the device.
    #[default]
    Buffered,
    /// O_DIRECT: I/O bypasses the page cache.
    Direct,
    /// O_DSYNC: I/O uses the page cache, and each write is durable before it completes.
    WriteThrough,
    /// O_DIRECT and O_DSYNC: I/O bypasses the page cache, and each write is durable before it
    /// completes.
    DirectWriteThrough,
}

impl Caching {
    /// All modes.
    pub const ALL: [Caching; 4] =
        [Caching::Buffered, Caching::Direct, Caching::WriteThrough, Caching::DirectWriteThrough];

    /// Returns the mode with or without direct I/O, and with or without write-through.
    pub fn of(direct: bool, write_through: bool) -> Caching {
        match (direct, write_through) {
            (false, false) => Caching::Buffered,
            (true, false) => Caching::Direct,
            (false, true) => Caching::WriteThrough,
            (true, true) => Caching::DirectWriteThrough,
        }
    }

    /// Returns true if the mode bypasses the page cache.
    pub fn is_direct(self) -> bool {
        matches!(self, Caching::Direct | Caching::DirectWriteThrough)
    }

    /// Returns true if the mode makes each write durable before it completes.
    pub fn is_write_through(self) -> bool {
        matches!(self, Caching::WriteThrough | Caching::DirectWriteThrough)
    }

    /// Returns the name that flags and results use.
    pub fn name(self) -> &'static str {
        match self {
            Caching::Buffered => "buffered",
            Caching::Direct => "direct",
            Caching::WriteThrough => "write-through",
            Caching::DirectWriteThrough => "direct+write-through",
        }
    }
}

impl fmt::Display for Caching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Caching {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Caching::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| {
            Error::new(ErrorKind::Usage, format!("unknown caching mode '{text}'"))
                .with_remedy("one of buffered, direct, write-through, direct+write-through")
        })
    }
}

/// A hint about future accesses (posix_fadvise(2), or madvise(2) for a mapping).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Hint {
    /// No particular access pattern is expected.
    #[default]
    Normal,
    /// Accesses will be sequential, so the kernel reads ahead further.
    Sequential,
    /// Accesses will be random, so the kernel does not read ahead.
    Random,
    /// The data will not be used again.
    NoReuse,
    /// The data will be used soon, so the kernel starts to read it into the page cache.
    WillNeed,
    /// The data will not be used soon, so the kernel drops its clean pages from the page cache.
    DontNeed,
}

impl Hint {
    /// All hints.
    pub const ALL: [Hint; 6] = [
        Hint::Normal,
        Hint::Sequential,
        Hint::Random,
        Hint::NoReuse,
        Hint::WillNeed,
        Hint::DontNeed,
    ];

    /// Returns the name that flags and results use.
    pub fn name(self) -> &'static str {
        match self {
            Hint::Normal => "normal",
            Hint::Sequential => "sequential",
            Hint::Random => "random",
            Hint::NoReuse => "noreuse",
            Hint::WillNeed => "willneed",
            Hint::DontNeed => "dontneed",
        }
    }
}

impl FromStr for Hint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Hint::ALL.into_iter().find(|hint| hint.name() == text).ok_or_else(|| {
            Error::new(ErrorKind::Usage, format!("unknown hint '{text}'"))
                .with_remedy("one of normal, sequential, random, noreuse, willneed, dontneed")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_modes_and_hints_round_trip() {
        for caching in Caching::ALL {
            assert_eq!(caching.name().parse::<Caching>().unwrap(), caching);
        }
        for hint in Hint::ALL {
            assert_eq!(hint.name().parse::<Hint>().unwrap(), hint);
        }
        assert!("maybe".parse::<Hint>().unwrap_err().to_string().contains("; one of normal"));
    }
}
