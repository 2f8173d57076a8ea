//! How large sequential requests are and how many are in flight: as `halfpower tune` measured it on
//! this very storage, else by a table of kinds of storage.
//!
//! The table has for every kind the smallest request size and depth on the plateau that
//! `halfpower survey` shows there, with huge pages behind the buffers. A rotating disk is fast when
//! it is asked for much at once, flash wants several requests, and storage behind a network wants
//! enough in flight to cover the latency.

mod text;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use ioengine::Op;

use crate::storage::{Kind, Storage};

/// How sequential requests are issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Bytes of each request.
    pub request_bytes: u32,
    /// Requests in flight.
    pub depth: u32,
}

/// The request sizes that are accepted (bytes).
pub const REQUEST_BYTES: std::ops::RangeInclusive<u32> = 4096..=64 << 20;
/// The depths that are accepted.
pub const DEPTHS: std::ops::RangeInclusive<u32> = 1..=256;

impl Setting {
    const fn new(request_kib: u32, depth: u32) -> Setting {
        Setting { request_bytes: request_kib << 10, depth }
    }

    /// The setting for a kind of storage, as far as can be said without measuring.
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

/// What was measured of one storage.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    /// The cheapest setting within 3% of the best rate, for reading.
    pub read: Setting,
    /// The same for writing; None where only reads were allowed.
    pub write: Option<Setting>,
    /// When, in words.
    pub measured: String,
}

/// The file: what was measured, by the identity of the storage.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tunings {
    /// By [`Storage::identity`].
    pub storage: BTreeMap<String, Tuned>,
}

impl Tunings {
    /// Reads the text of the file, which is TOML; entries with impossible sizes are left out.
    ///
    /// # Errors
    /// The first line that is not understood, and why.
    pub fn read(text: &str) -> Result<Tunings, String> {
        let mut storage = text::read(text)?;
        let is_sane =
            |tuned: &Tuned| tuned.read.is_sane() && tuned.write.is_none_or(|w| w.is_sane());
        storage.retain(|_, tuned| is_sane(tuned));
        Ok(Tunings { storage })
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        text::write(&self.storage)
    }

    /// The tunings of this user; none where there is no file, or none that can be read.
    pub fn of_user() -> Tunings {
        let text = Tunings::path().and_then(|path| std::fs::read_to_string(path).ok());
        text.and_then(|text| Tunings::read(&text).ok()).unwrap_or_default()
    }

    /// Where the file lies: `$XDG_STATE_HOME/halfpower/tune.toml`, by default below
    /// `~/.local/state`. None without a home.
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

/// The setting for a storage: measured, else by its kind; and whether it was measured.
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
