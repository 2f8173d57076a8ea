//! Determines the request size and depth for sequential I/O: the setting that `halfpower tune`
//! measured on this storage, or else the default for the kind of storage.
//!
//! The defaults are the smallest request size and depth that reach the maximum rate, as found by
//! `halfpower survey` with huge pages for the buffers. A rotating disk needs large requests. Flash
//! needs several requests in flight. Network storage needs enough requests in flight to hide the
//! latency.

mod text;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use ioengine::Op;

use crate::storage::{Kind, Storage};

/// Request size and depth for sequential I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Request size (bytes).
    pub request_bytes: u32,
    /// Number of requests in flight.
    pub depth: u32,
}

/// Accepted request sizes (bytes).
pub const REQUEST_BYTES: std::ops::RangeInclusive<u32> = 4096..=64 << 20;
/// Accepted numbers of requests in flight.
pub const DEPTHS: std::ops::RangeInclusive<u32> = 1..=256;

impl Setting {
    const fn new(request_kib: u32, depth: u32) -> Setting {
        Setting { request_bytes: request_kib << 10, depth }
    }

    /// Returns the default setting for a kind of storage.
    pub fn of_kind(kind: Kind) -> Setting {
        match kind {
            Kind::Memory => Setting::new(256, 1),
            Kind::Network => Setting::new(1024, 8),
            Kind::Disk => Setting::new(1024, 2),
            Kind::Flash => Setting::new(512, 4),
            Kind::Nvme | Kind::Virtual | Kind::Other => Setting::new(1024, 4),
        }
    }

    fn is_sane(&self) -> bool {
        REQUEST_BYTES.contains(&self.request_bytes)
            && self.request_bytes.is_multiple_of(4096)
            && DEPTHS.contains(&self.depth)
    }
}

/// The measured settings for one device or file system.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    /// Setting for reads. It needs the least buffer memory of all settings whose rate is within 3%
    /// of the best rate.
    pub read: Setting,
    /// Setting for writes. None if writes were not measured.
    pub write: Option<Setting>,
    /// Date of the measurement.
    pub measured: String,
}

/// Contents of the tuning file: the measured settings of each storage.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tunings {
    /// The settings, with [`Storage::identity`] as the key.
    pub storage: BTreeMap<String, Tuned>,
}

impl Tunings {
    /// Parses the tuning file, which is TOML. Entries with invalid settings are ignored.
    ///
    /// # Errors
    /// If the text cannot be parsed. The error contains the line or section, and the reason.
    pub fn read(text: &str) -> Result<Tunings, String> {
        let mut storage = text::read(text)?;
        let is_sane =
            |tuned: &Tuned| tuned.read.is_sane() && tuned.write.is_none_or(|w| w.is_sane());
        storage.retain(|_, tuned| is_sane(tuned));
        Ok(Tunings { storage })
    }

    /// Formats the tuning file.
    pub fn text(&self) -> String {
        text::write(&self.storage)
    }

    /// Reads the tuning file of this user. Returns no settings if the file does not exist or cannot
    /// be read.
    pub fn of_user() -> Tunings {
        let text = Tunings::path().and_then(|path| std::fs::read_to_string(path).ok());
        text.and_then(|text| Tunings::read(&text).ok()).unwrap_or_default()
    }

    /// Returns the path of the tuning file: `$XDG_STATE_HOME/halfpower/tune.toml`, or
    /// `~/.local/state/halfpower/tune.toml` if that variable is not set. None if `HOME` is not set
    /// either.
    pub fn path() -> Option<PathBuf> {
        let folder = |name: &str| {
            let value = PathBuf::from(std::env::var_os(name)?);
            value.is_absolute().then_some(value)
        };
        let state =
            folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
        Some(state.join("halfpower/tune.toml"))
    }
}

/// Returns the setting for `storage`, and whether the setting was measured. If not, the setting is
/// the default for the kind of storage.
pub(crate) fn setting(storage: &Storage, op: Op) -> (Setting, bool) {
    static OF_USER: OnceLock<Tunings> = OnceLock::new();
    let tuned = OF_USER.get_or_init(Tunings::of_user).storage.get(&storage.identity);
    let measured = tuned.and_then(|tuned| match op {
        Op::Read => Some(tuned.read),
        Op::Write => tuned.write,
    });
    (measured.unwrap_or_else(|| Setting::of_kind(storage.kind)), measured.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_read_back_and_impossible_settings_are_left_out() {
        let tuned = |kib, depth| Tuned {
            read: Setting::new(kib, depth),
            write: None,
            measured: "today".into(),
        };
        let mut tunings = Tunings::default();
        tunings.storage.insert("Fast S1".into(), tuned(1024, 4));
        assert_eq!(Tunings::read(&tunings.text()).unwrap(), tunings);
        tunings.storage.insert("Silly".into(), tuned(3, 4));
        tunings.storage.insert("Sillier".into(), tuned(1024, 0));
        let read = Tunings::read(&tunings.text()).unwrap();
        assert_eq!(read.storage.keys().collect::<Vec<_>>(), ["Fast S1"]);
        assert!(Tunings::read("storage = 3").is_err());
    }

    #[test]
    fn every_kind_of_storage_has_a_sane_setting() {
        assert!(Kind::ALL.into_iter().all(|kind| Setting::of_kind(kind).is_sane()));
    }
}
