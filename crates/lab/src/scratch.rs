//! Creates test files in a directory, fills them with data, and always removes them.
//!
//! A test file is named `halfpower-<uuid>.test` and never replaces an existing file. It is recorded
//! in the journal before it is created. It is removed when its [`Scratch`] is dropped: at the end,
//! after an error, and after Ctrl-C.

use analysis::units;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ioengine::host::{file_size_limit, free_bytes_at, offers_direct};
use ioengine::{Caching, EngineKind, Error, HostTarget, Target};
use workload::{Pattern, Workload};

use crate::failure::{Exit, Failure, Outcome};
use crate::journal::{self, Recorded};
use crate::point::Trial;
use crate::trials::{Lab, Setting};

/// Space that must remain free on the file system after a test file was written (bytes).
const SPARE_BYTES: u64 = 16 << 20;
/// Size of the requests that fill a test file (bytes). Riedel et al. (1997) and Chung et al. (2000)
/// recommend large requests.
const LAYOUT_REQUEST_BYTES: u32 = 1 << 20;
/// Queue depth of the requests that fill a test file.
const LAYOUT_DEPTH: u32 = 8;

/// Minimum size to which a test file is shortened if writing it takes too long (bytes).
pub const SIZE_MIN_BYTES: u64 = 64 << 20;

/// The size of a test file, and the rate at which it was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaidOut {
    /// Size of the file (bytes).
    pub bytes: u64,
    /// Rate of the writes (bytes per second).
    pub bytes_per_s: f64,
}

/// A test file. Dropping this value removes the file.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    identity: (u64, u64),
    journal: Recorded,
    /// The open file, which stays locked while this value exists.
    _held: File,
}

impl Scratch {
    /// Creates an empty test file, after checking that the file system has space for `bytes` bytes.
    ///
    /// # Errors
    /// There is not enough space, the file system is read-only, or a permission is missing.
    pub fn make(folder: &Path, bytes: u64) -> Outcome<Scratch> {
        check_room(folder, bytes)?;
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        let path = folder.join(format!("halfpower-{}.test", uuid::Uuid::new_v4()));
        let journal = Recorded::about_to_make(&path);
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let looked = made.and_then(|file| file.metadata().map(|metadata| (file, metadata)));
        let (file, metadata) = looked.map_err(|error| {
            journal.undone();
            cannot_make(&folder, error)
        })?;
        let identity = (metadata.dev(), metadata.ino());
        let locked = file.try_lock().is_ok();
        let mut scratch = Scratch { path, identity, journal, _held: file };
        scratch.journal.made(&metadata, locked);
        Ok(scratch)
    }

    /// Opens the test file, and checks that the path still leads to it. In a shared directory,
    /// other users may have replaced it.
    ///
    /// # Errors
    /// The file cannot be opened, or another file now has its name.
    pub fn open(&self, writable: bool, caching: Caching) -> Outcome<HostTarget> {
        let target = HostTarget::open(&self.path, writable, caching)?;
        self.check(&target)?;
        Ok(target)
    }

    /// Checks that a target is this test file, and not another file with the same name.
    pub fn check(&self, target: &HostTarget) -> Outcome<()> {
        if target.identity() == self.identity {
            return Ok(());
        }
        Err(Failure::refused(format!(
            "{} was replaced by another file while it was in use; use a directory that no other \
             user can write to",
            self.path.display()
        )))
    }

    /// Whether the path still leads to the test file.
    fn is_there(&self) -> bool {
        let now = fs::symlink_metadata(&self.path);
        now.is_ok_and(|now| (now.dev(), now.ino()) == self.identity)
    }

    /// Returns the path of the test file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills the test file with incompressible data and makes the data durable. If writing takes
    /// longer than `limit_ns`, the file is shortened, but not below [`SIZE_MIN_BYTES`]. Returns the
    /// size of the file and the rate of the writes.
    ///
    /// # Errors
    ///
    /// The disk is full, or a write fails.
    pub fn lay_out(
        &self,
        lab: &Lab,
        bytes: u64,
        seed: u64,
        limit_ns: Option<u64>,
    ) -> Outcome<LaidOut> {
        let caching = Caching::of(offers_direct(&self.path), false);
        let target = self.open(true, caching)?;
        // Space is reserved first, which reduces fragmentation. A failure is ignored, because not
        // all file systems support this.
        let _ = target.reserve(0, bytes);
        let request_bytes = u64::from(LAYOUT_REQUEST_BYTES);
        let whole = bytes / request_bytes * request_bytes;
        let least = whole.min(SIZE_MIN_BYTES);
        let mut parts = vec![
            (0, least, LAYOUT_REQUEST_BYTES, None),
            (least, whole - least, LAYOUT_REQUEST_BYTES, limit_ns),
            (whole, bytes - whole, (bytes - whole) as u32, None),
        ];
        parts.retain(|(_, length, _, _)| *length > 0);
        let (mut written, mut bytes_per_s) = (0, 0.0);
        for (offset, length, request_bytes, limit_ns) in parts {
            let workload = layout(request_bytes, (offset, length), limit_ns, seed);
            let trial = self.write(lab, &target, workload)?;
            written += trial.bytes();
            bytes_per_s = if offset < whole { trial.bytes_per_s() } else { bytes_per_s };
            if trial.bytes() < length {
                target.truncate(written)?;
                break;
            }
        }
        target.sync()?;
        Ok(LaidOut { bytes: written, bytes_per_s })
    }

    fn write(&self, lab: &Lab, target: &HostTarget, workload: Workload) -> Outcome<Trial> {
        let granule = target.alignment().offset_bytes.max(1);
        if !workload.request_bytes.is_multiple_of(granule) {
            let tail = self.open(true, Caching::Buffered)?;
            return self.write(lab, &tail, workload);
        }
        let engine_kind = EngineKind::best(target.caching().is_direct());
        let workload = Workload { engine_kind, ..workload };
        let mut progress = lab.console.open_progress();
        let bytes = workload.limit_bytes.unwrap_or(u64::MAX);
        let trial = lab.trial_alone(&Setting::new(target, workload), &mut |at| {
            let (share, written) = (at.bytes as f64 / bytes as f64, units::size(at.bytes));
            progress.advance(Some(share), &format!("laying out the test file: {written} written"));
        })?;
        progress.finish();
        if lab.interrupt.is_set() {
            return Err(Failure::interrupted());
        }
        if trial.errors > 0 {
            let why = trial.failure().unwrap_or("writing failed");
            return Err(Failure::failed(format!(
                "laying out the test file {}: {why}",
                self.path.display()
            )));
        }
        Ok(trial)
    }
}

/// Returns the workload that writes one part of a test file sequentially.
fn layout(
    request_bytes: u32,
    (region_offset, region_bytes): (u64, u64),
    limit_ns: Option<u64>,
    seed: u64,
) -> Workload {
    Workload {
        pattern: Pattern::Sequential,
        read_percent: 0,
        request_bytes,
        depth: LAYOUT_DEPTH,
        region_offset,
        region_bytes,
        limit_bytes: Some(region_bytes),
        limit_ns,
        may_extend: true,
        seed,
        ..Workload::default()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file that cannot be removed, or whose file system was unmounted, stays in the journal
        // for `halfpower clean`.
        let removed = if self.is_there() {
            fs::remove_file(&self.path).is_ok()
        } else {
            !journal::is_away(&self.path, Some(self.identity))
        };
        if removed {
            self.journal.undone();
        }
    }
}

/// Checks that the file system has space for a test file of `bytes` bytes.
pub fn check_room(folder: &Path, bytes: u64) -> Outcome<()> {
    if bytes > file_size_limit() {
        return Err(Failure::failed(format!(
            "a test file of {1} exceeds the file-size limit of {0}; raise the limit (ulimit -f), \
             or use a smaller --size",
            units::size(file_size_limit()),
            units::size(bytes)
        )));
    }
    let free = free_bytes_at(folder)?;
    if bytes.saturating_add(SPARE_BYTES) > free {
        return Err(Failure::failed(format!(
            "{} has {} of free space, which is not enough for a test file of {}, because {} must \
             remain free; use a smaller --size or another directory",
            folder.display(),
            units::size(free),
            units::size(bytes),
            units::size(SPARE_BYTES)
        )));
    }
    Ok(())
}

fn cannot_make(folder: &Path, source: std::io::Error) -> Failure {
    let what = format!("creating a test file in {}", folder.display());
    let failure = Failure::from(
        Error::io(what, source)
            .with_remedy("specify a writable directory, or an existing file to read"),
    );
    Failure {
        exit: if failure.exit == Exit::Usage { Exit::Usage } else { Exit::Failed },
        ..failure
    }
}
