//! The caching mode in which a target is opened, and the hint about coming accesses.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};

/// How the kernel caches the I/O to a target: SQLIO's buffering flags Y, H, S and N.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Caching {
    /// Through the page cache; a write completes before its data is on the device.
    #[default]
    Buffered,
    /// O_DIRECT: bypasses the page cache.
    Direct,
    /// O_DSYNC: through the page cache, each write durable before it returns.
    WriteThrough,
    /// O_DIRECT and O_DSYNC.
    DirectWriteThrough,
}

impl Caching {
    /// All modes.
    pub const ALL: [Caching; 4] =
        [Caching::Buffered, Caching::Direct, Caching::WriteThrough, Caching::DirectWriteThrough];

    /// The mode with or without direct I/O, and with or without write-through.
    pub fn of(direct: bool, write_through: bool) -> Caching {
        match (direct, write_through) {
            (false, false) => Caching::Buffered,
            (true, false) => Caching::Direct,
            (false, true) => Caching::WriteThrough,
            (true, true) => Caching::DirectWriteThrough,
        }
    }

    /// Whether the page cache is bypassed.
    pub fn is_direct(self) -> bool {
        matches!(self, Caching::Direct | Caching::DirectWriteThrough)
    }

    /// Whether the mode makes each write durable before it completes.
    pub fn is_write_through(self) -> bool {
        matches!(self, Caching::WriteThrough | Caching::DirectWriteThrough)
    }

    /// The name in flags and results.
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

/// A hint about the coming accesses (posix_fadvise(2); madvise(2) for a mapping).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Hint {
    /// No announced access pattern.
    #[default]
    Normal,
    /// Sequential: read ahead further.
    Sequential,
    /// Random: no read-ahead.
    Random,
    /// The data will not be used again.
    NoReuse,
    /// The data will be used soon: the kernel starts to read it into the page cache.
    WillNeed,
    /// The data will not be used soon: the kernel drops its clean pages from the page cache.
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

    /// The name in flags and results.
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
