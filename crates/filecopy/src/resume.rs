//! Makes copies of large files resumable. During a copy, the path of the unfinished file and the
//! number of durable bytes are recorded in the state directory.
//!
//! A session resumes an unfinished file only if it is the recorded file, if only this user can
//! access it, and if the source has not changed.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ioengine::{Clock, Monotonic};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::directory::{Directory, EntryInfo, path_of};
use crate::problem::{Problem, ProblemKind, on, on_errno};
use crate::staging::{NewFile, Place};
use crate::state::{Identity, PRIVATE_PREFIX, PartialRecord, State, inode_and_birth};

/// Minimum size of a file whose copy is resumable (bytes). Smaller files are always copied from the
/// start.
pub(crate) const SIZE_MIN_BYTES: u64 = 8 << 20;
/// Progress is recorded each time this number of bytes was copied.
const NOTE_BYTES: u64 = 256 << 20;
/// Progress is also recorded when this time has passed since the last record (ns).
const NOTE_NS: u64 = 2_000_000_000;
/// Maximum time to wait for the lock of an unfinished file (ns).
const DYING_NS: u64 = 2_000_000_000;
/// Pause between two attempts to lock an unfinished file.
const TICK: Duration = Duration::from_millis(10);

/// Records the progress of a copy, so that a later session can resume the copy.
#[derive(Debug)]
pub(crate) struct Resumable {
    state: State,
    target: PathBuf,
    record: PartialRecord,
    noted_ns: u64,
    clock: Monotonic,
}

/// An unfinished file, the number of bytes that were already copied, and the recorder of the
/// progress.
pub(crate) type Begun = (NewFile, u64, Resumable);

/// Opens the unfinished file of an earlier session, or creates a new file. If progress cannot be
/// recorded, reports the reason and returns `None`.
pub(crate) fn begin(
    place: Place,
    name: &OsStr,
    source_path: &Path,
    source: &EntryInfo,
) -> Result<Option<Begun>, Problem> {
    let settings = place.settings;
    let folder = settings.state_folder.as_deref();
    let state = folder.map_or_else(|| Err("there is no state directory".to_owned()), State::open);
    let identity = Identity::of(source_path).map_err(|e| ioengine::error::cause(&e));
    let (state, identity) = match (state, identity) {
        (Ok(state), Ok(identity)) => (state, identity),
        (Err(why), _) | (_, Err(why)) => {
            let path = place.destination.join(name);
            let path = path.display();
            settings
                .note(format!("the copy of {path} cannot be resumed if it is interrupted: {why}"));
            return Ok(None);
        }
    };
    let target = full_path(place.destination, name);
    let clock = Monotonic::uncalibrated();
    let fresh = |directory: PathBuf, name: String, (inode, born)| PartialRecord {
        source: identity.clone(),
        size: source.size,
        modified: source.modified,
        changed: source.changed,
        directory,
        name,
        inode,
        born,
        done_bytes: 0,
    };
    if let Some(record) = state.partial(&target)
        && (PartialRecord { done_bytes: 0, ..record.clone() })
            == fresh(record.directory.clone(), record.name.clone(), (record.inode, record.born))
        && let Some(file) = reopen(place, &record, &target)?
    {
        let (done, noted_ns) = (record.done_bytes, clock.now_ns());
        return Ok(Some((file, done, Resumable { state, target, record, noted_ns, clock })));
    }
    let private = Arc::new(place.staging.make(settings, place.anchor)?);
    let failed = on_errno("creating a file in", &private.inside().path);
    let file = NewFile::within(&private, None, 0o600).map_err(failed)?;
    let _ = flock(&file.file, FlockOperation::NonBlockingLockExclusive);
    let born = inode_and_birth(&file.file).map_err(on("looking at", &private.inside().path))?;
    let file_name = file.name().unwrap_or_default().to_string_lossy().into_owned();
    let directory = full_path_of(private.inside());
    let record = fresh(directory, file_name, born);
    let noted_ns = clock.now_ns();
    Ok(Some((file, 0, Resumable { state, target, record, noted_ns, clock })))
}

fn full_path(directory: &Directory, name: &OsStr) -> PathBuf {
    full_path_of(directory).join(name)
}

/// Returns the absolute path of an open directory.
fn full_path_of(directory: &Directory) -> PathBuf {
    std::fs::read_link(path_of(directory)).unwrap_or_else(|_| directory.path.clone())
}

/// Opens the unfinished file of a record. `None` if the recorded file no longer exists or cannot be
/// used.
fn reopen(place: Place, record: &PartialRecord, target: &Path) -> Result<Option<NewFile>, Problem> {
    let (Some(parent), Some(name)) = (record.directory.parent(), record.directory.file_name())
    else {
        return Ok(None);
    };
    let is_ours = name.as_encoded_bytes().starts_with(PRIVATE_PREFIX.as_bytes());
    if !is_ours || full_path_of(place.anchor) != parent {
        return Ok(None);
    }
    let Ok(private) = place.staging.adopt(place.anchor, name) else { return Ok(None) };
    let file_name = OsString::from(&record.name);
    let private = Arc::new(private);
    let Ok(file) = NewFile::within(&private, Some(&file_name), 0) else { return Ok(None) };
    let user = rustix::process::geteuid().as_raw();
    let fits = EntryInfo::of(&file.file).is_ok_and(|info| {
        info.is_file()
            && info.uid == user
            && info.links == 1
            && info.mode & 0o077 == 0
            && info.size >= record.done_bytes
    });
    let is_it = inode_and_birth(&file.file).is_ok_and(|it| it == (record.inode, record.born));
    if !fits || !is_it {
        // This is not the recorded file, so it must not be deleted.
        file.keep();
        return Ok(None);
    }
    if lock(&file) {
        return Ok(Some(file));
    }
    file.keep();
    let shown = target.display();
    let what = format!(
        "another copy is writing to {shown}; wait until it ends, or specify another destination"
    );
    Err(Problem::new(ProblemKind::Refused, target, what))
}

/// Locks an unfinished file. Returns false if another copy has the lock. If a copy was killed, the
/// kernel keeps its lock until its last requests are completed, so the function waits up to
/// [`DYING_NS`].
fn lock(file: &NewFile) -> bool {
    let clock = Monotonic::uncalibrated();
    let until_ns = clock.now_ns() + DYING_NS;
    loop {
        match flock(&file.file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if clock.now_ns() < until_ns => clock.sleep(TICK),
            Err(Errno::WOULDBLOCK) => return false,
            // If the file system does not support locks, the file is used without a lock.
            _ => return true,
        }
    }
}

impl Resumable {
    /// Records that all data before the offset `up_to` are written, unless the last record is
    /// recent.
    pub fn written(&mut self, file: &std::fs::File, up_to: u64) {
        let now_ns = self.clock.now_ns();
        let is_far = up_to.saturating_sub(self.record.done_bytes) >= NOTE_BYTES;
        let is_late = now_ns - self.noted_ns >= NOTE_NS;
        if up_to > self.record.done_bytes && (is_far || is_late) {
            self.note(file, up_to);
        }
    }

    /// Flushes the file and records the offset `up_to`. If this fails, a resumed copy starts at the
    /// last recorded offset.
    pub fn note(&mut self, file: &std::fs::File, up_to: u64) {
        self.noted_ns = self.clock.now_ns();
        if file.sync_data().is_ok() {
            let record = PartialRecord { done_bytes: up_to, ..self.record.clone() };
            if self.state.keep_partial(&self.target, &record).is_ok() {
                self.record = record;
            }
        }
    }

    /// Returns true if progress was recorded.
    pub fn is_noted(&self) -> bool {
        self.record.done_bytes > 0
    }

    /// Removes the record. Must be called when the copy has its final name or is discarded.
    pub fn forget(&self) {
        self.state.forget_partial(&self.target);
    }
}
