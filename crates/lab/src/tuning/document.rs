//! The JSON document of `tune`: the storage, the selected settings, and all measurements.

use schemars::JsonSchema;
use seqio::Storage;
use seqio::tune::Setting;
use serde::Serialize;

use super::Tuning;
use super::choice::{self, Measured};
use crate::json::Program;

/// The document that `tune --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TuneDocument {
    /// The program that wrote the document.
    pub halfpower: Program,
    /// Path of the target as typed.
    pub target: String,
    /// The storage that contains the target.
    pub storage: StorageDocument,
    /// Tuning for sequential reads.
    pub read: TuningDocument,
    /// Tuning for sequential writes. Null if nothing was written.
    pub write: Option<TuningDocument>,
    /// Why nothing was written. Null if writes were measured.
    pub not_written: Option<String>,
    /// Number of bytes that were written, including the test file.
    pub written_bytes: u64,
    /// Path of the file that stores the tuning. Null with --no-store.
    pub kept_in: Option<String>,
}

/// The storage that was tuned.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StorageDocument {
    /// Identifier of the storage. The tuning is stored under this identifier.
    pub identity: String,
    /// Kind of storage, in words.
    pub kind: String,
    /// Type of file system; empty for a bare device.
    pub file_system: String,
}

/// The tuning of reads or of writes.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TuningDocument {
    /// The setting that needs the least memory, of all settings within 3% of the best rate.
    pub cheapest: SettingDocument,
    /// The fastest setting.
    pub best: SettingDocument,
    /// All measured settings.
    pub table: Vec<SettingDocument>,
}

/// A setting and its measurements.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SettingDocument {
    /// Size of each request (bytes).
    pub request_bytes: u32,
    /// Number of outstanding requests.
    pub depth: u32,
    /// Memory for the outstanding requests (bytes).
    pub buffer_bytes: u64,
    /// Number of times that the setting was measured.
    pub probes: u64,
    /// Median rate (bytes per second).
    pub bytes_per_s: f64,
    /// Median CPU time of this process (ns per byte).
    pub cpu_ns_per_byte: f64,
}

impl From<&Storage> for StorageDocument {
    fn from(storage: &Storage) -> StorageDocument {
        StorageDocument {
            identity: storage.identity.clone(),
            kind: storage.kind.to_string(),
            file_system: storage.file_system.clone(),
        }
    }
}

impl From<&Measured> for SettingDocument {
    fn from(measured: &Measured) -> SettingDocument {
        let Setting { request_bytes, depth } = measured.setting;
        SettingDocument {
            request_bytes,
            depth,
            buffer_bytes: choice::memory(measured.setting),
            probes: measured.rates.len() as u64,
            bytes_per_s: measured.bytes_per_s(),
            cpu_ns_per_byte: measured.cpu_ns_per_byte(),
        }
    }
}

impl From<&Tuning> for TuningDocument {
    fn from(tuning: &Tuning) -> TuningDocument {
        TuningDocument {
            cheapest: (&tuning.choice.cheapest).into(),
            best: (&tuning.choice.best).into(),
            table: tuning.table.iter().map(SettingDocument::from).collect(),
        }
    }
}
