//! What `tune --json` prints: the storage, the selected settings, and all measurements.

use schemars::JsonSchema;
use seqio::Storage;
use seqio::tune::Setting;
use serde::Serialize;

use super::Tuning;
use super::choice::{self, Measured};
use crate::json::Program;

/// What `tune --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TuneDocument {
    /// The program.
    pub halfpower: Program,
    /// The path as typed.
    pub target: String,
    /// The storage on which the path lies.
    pub storage: StorageDocument,
    /// Tuning for sequential reads.
    pub read: TuningDocument,
    /// Tuning for sequential writes; null if nothing was written.
    pub write: Option<TuningDocument>,
    /// Why nothing was written; null if writes were measured.
    pub not_written: Option<String>,
    /// Bytes written, including the test file.
    pub written_bytes: u64,
    /// The file that stores the tuning; null with --no-store.
    pub kept_in: Option<String>,
}

/// The storage that a tuning belongs to.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StorageDocument {
    /// Key under which tunings are stored.
    pub identity: String,
    /// Kind of storage as text.
    pub kind: String,
    /// Type of file system; empty for a bare device.
    pub file_system: String,
}

/// The tuning of reads or of writes.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TuningDocument {
    /// The cheapest setting within 3% of the best rate.
    pub cheapest: SettingDocument,
    /// The fastest setting.
    pub best: SettingDocument,
    /// All measured settings.
    pub table: Vec<SettingDocument>,
}

/// A setting and its measurements.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SettingDocument {
    /// Request size.
    pub request_bytes: u32,
    /// Requests outstanding.
    pub depth: u32,
    /// Memory of the outstanding requests.
    pub buffer_bytes: u64,
    /// Number of measurements.
    pub probes: u64,
    /// Median rate.
    pub bytes_per_s: f64,
    /// Median CPU time of this process per byte.
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
