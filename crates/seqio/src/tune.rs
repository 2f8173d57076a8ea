//! How large requests are and how many are outstanding: what `halfpower tune` measured on this very
//! storage, else a table by its kind.
//!
//! The table: on every kind with a device the smallest request size and depth of the plateau that
//! `halfpower survey` shows there, with huge pages behind the buffers. A disk that rotates is fast
//! when it is asked for much at once; flash wants several requests; what lies behind a network
//! wants enough in flight to cover the way.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ioengine::Op;
use serde::{Deserialize, Serialize};

use crate::storage::{Kind, Storage};

/// How sequential requests are issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Bytes of each request.
    pub request_bytes: u32,
    /// Requests outstanding.
    pub depth: u32,
}

/// The smallest and largest request size that is taken from a file or a user (bytes), and depth.
pub const REQUEST_BYTES: std::ops::RangeInclusive<u32> = 4096..=64 << 20;
/// See [`REQUEST_BYTES`].
pub const DEPTHS: std::ops::RangeInclusive<u32> = 1..=256;

impl Setting {
    const fn new(request_kib: u32, depth: u32) -> Setting {
        Setting { request_bytes: request_kib << 10, depth }
    }

    /// What is right for a kind of storage, as far as can be said without measuring.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuned {
    /// The cheapest setting within 3% of the best rate, for reading.
    pub read: Setting,
    /// The same for writing; None where only reads were allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Setting>,
    /// When, in words.
    pub measured: String,
}

/// The file: what was measured, by the identity of the storage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tunings {
    /// By [`Storage::identity`].
    #[serde(default)]
    pub storage: BTreeMap<String, Tuned>,
}

impl Tunings {
    /// Reads the text of the file; entries with sizes that cannot be are left out.
    ///
    /// # Errors
    /// What is no such text, in words with the line.
    pub fn read(text: &str) -> Result<Tunings, String> {
        let mut found: Tunings = toml::from_str(text).map_err(|error| error.to_string())?;
        let sane = |tuned: &Tuned| tuned.read.is_sane() && tuned.write.is_none_or(|w| w.is_sane());
        found.storage.retain(|_, tuned| sane(tuned));
        Ok(found)
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let body = toml::to_string(self).expect("strings and numbers can be written");
        format!("# Written by `halfpower tune`; `seqio` reads it.\n{body}")
    }

    /// What is there for this user, nothing where there is no file or no sense in it.
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
        Some(state.join(Path::new("halfpower/tune.toml")))
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
    fn what_was_measured_is_read_back_and_what_cannot_be_is_left_out() {
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
