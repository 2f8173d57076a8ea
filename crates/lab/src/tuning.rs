//! Implements `halfpower tune`, which selects the request size and queue depth for sequential reads
//! and writes of a target. It selects the setting that needs the least memory for a rate within 3%
//! of the best rate.
//!
//! `choice` plans the measurements and selects the setting, `probe` measures one setting, and
//! `keep` stores the result in the file that the `seqio` library reads. This module prepares the
//! target, and measures in rounds until the time limit. `session` runs the whole subcommand, and
//! `document` is its JSON.

pub mod choice;
pub mod keep;
mod probe;
pub mod document;
pub mod session;

use analysis::units;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use choice::{Choice, Measured};
use ioengine::host::{free_bytes_at, offers_direct};
use ioengine::{Caching, Clock, HostTarget, Monotonic, Op, Target, TargetKind};
use probe::Probe;
use seqio::tune::Setting;
use seqio::{Kind, Storage};
use workload::random::Stream;

use crate::bench;
use crate::failure::{Failure, Outcome};
use crate::guard::{self, Consent, Permit};
use crate::memory_limit;
use crate::scratch::{self, SIZE_MIN_BYTES, Scratch};
use crate::trials::Lab;

/// How long reads are measured, and how long writes are measured (ns). The two measurements
/// together take less than 5 s.
pub const EACH_NS: u64 = 2_200_000_000;
/// Default size of the test file (bytes).
const TEST_FILE_BYTES: u64 = 512 << 20;
/// Maximum time for writing a test file of default size (ns).
const LAYOUT_NS: u64 = 1_500_000_000;
/// Maximum number of bytes that the measurement writes, as a multiple of the region size.
const TIMES_WRITTEN_MAX: u64 = 16;
/// Maximum size of the region that is overwritten in an existing file or device (bytes).
const WRITTEN_OVER_MAX: u64 = 512 << 20;
/// Maximum share of holes and unwritten blocks in an existing file. Reads of these blocks do not
/// reach the device.
const HOLES_MAX: f64 = 0.01;

/// The arguments of `halfpower tune`.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// A directory, or an existing file or device.
    pub target: &'a Path,
    /// Size of the test file (bytes). None for the default size.
    pub size: Option<u64>,
    /// The data that the user allows the program to overwrite.
    pub consent: Consent,
    /// Seed of every random choice.
    pub seed: u64,
}

/// A target that has been examined. Nothing has been written to it yet.
#[derive(Debug)]
pub struct Prospect {
    /// The file system of the target and the device below it.
    pub storage: Arc<Storage>,
    /// Size of the test file or of the existing target (bytes).
    pub bytes: u64,
    /// The existing file or device. None for a directory.
    existing: Option<HostTarget>,
    /// Size of the region that may be written (bytes). 0 if the target is only read.
    pub writable_bytes: u64,
    /// Why nothing is written. None if writes are measured.
    pub not_written: Option<String>,
    permit: Option<Permit>,
}

impl Prospect {
    /// Examines the target without changing it.
    ///
    /// # Errors
    /// The target has nothing to tune, or the options that allow writing do not match the target.
    pub fn of(wish: &Wish) -> Outcome<Prospect> {
        bench::check_path(wish.target, &wish.consent)?;
        if !wish.target.is_dir() {
            return Prospect::of_existing(wish);
        }
        let storage = storage_of(&File::open(wish.target), wish.target)?;
        let bytes = match wish.size {
            Some(bytes) => bytes,
            None => {
                let tenth = free_bytes_at(wish.target)? / 10;
                TEST_FILE_BYTES.min(tenth >> 20 << 20).max(SIZE_MIN_BYTES)
            }
        };
        check_size("a test file", bytes, "use --size 64m or more")?;
        scratch::check_room(wish.target, bytes)?;
        Ok(Prospect {
            storage,
            bytes,
            existing: None,
            writable_bytes: bytes,
            not_written: None,
            permit: None,
        })
    }

    fn of_existing(wish: &Wish) -> Outcome<Prospect> {
        let path = wish.target;
        if wish.size.is_some() {
            return Err(Failure::usage(
                "--size sets the size of a test file, which needs a directory as the target; drop \
                 --size, or specify a directory",
            ));
        }
        let (target, permit, not_written) = open(path, &wish.consent)?;
        let file =
            target.file().ok_or_else(|| nothing(path, "the target is not a file or device"))?;
        let storage = storage_of(&file.try_clone(), path)?;
        if !offers_direct(path) {
            return Err(no_direct(path, &storage));
        }
        let bytes = target.size_bytes();
        let shown = path.display().to_string();
        check_size(
            &shown,
            bytes,
            "use a larger file, or a directory in which a test file can be created",
        )?;
        check_stored(&target, &shown, bytes)?;
        let writable_bytes = if not_written.is_some() { 0 } else { bytes.min(WRITTEN_OVER_MAX) };
        let existing = Some(target);
        Ok(Prospect { storage, bytes, existing, writable_bytes, not_written, permit })
    }

    /// Returns true if a test file will be created.
    pub fn is_test_file(&self) -> bool {
        self.existing.is_none()
    }

    /// Describes the data on the device that will be destroyed. None if no data will be destroyed.
    pub fn destroys(&self) -> Option<&str> {
        self.permit.as_ref()?.destroys.as_deref()
    }

    /// Returns the maximum number of bytes that the measurement writes.
    pub fn write_most(&self) -> u64 {
        self.writable_bytes * TIMES_WRITTEN_MAX
    }
}

/// Opens an existing file or device. If the user did not allow writing, opens it only for reading
/// and also returns the reason for not writing.
fn open(path: &Path, consent: &Consent) -> Outcome<(HostTarget, Option<Permit>, Option<String>)> {
    let readable = HostTarget::open(path, false, Caching::Buffered)?;
    let asked = !consent.overwrite.is_empty() || !consent.destroy_data_on.is_empty();
    if !asked {
        let why = match readable.kind() {
            TargetKind::BlockDevice => {
                "halfpower does not write to a device unless --destroy-data-on names it"
            }
            _ => "halfpower does not write to a file unless --overwrite names it",
        };
        return Ok((readable, None, Some(why.to_owned())));
    }
    let permit = guard::check_writable(&readable, path, consent)?;
    let target = HostTarget::open(path, true, Caching::Buffered)?;
    permit.iter().try_for_each(|permit| permit.check(&target))?;
    Ok((target, permit, None))
}

fn storage_of(file: &std::io::Result<File>, path: &Path) -> Outcome<Arc<Storage>> {
    let storage = file
        .as_ref()
        .map_err(ioengine::error::cause)
        .and_then(|file| Storage::of(file).map_err(|error| ioengine::error::cause(&error)));
    let storage = storage.map_err(|cause| {
        Failure::failed(format!("examining {}: {cause}; use another target", path.display()))
    })?;
    match storage.kind {
        Kind::Memory => Err(nothing(path, "the target is in memory")),
        _ => Ok(storage),
    }
}

fn nothing(path: &Path, why: &str) -> Failure {
    let path = path.display();
    Failure::usage(format!(
        "nothing to tune: {path}: {why}, so seqio needs no tuning for it; use a directory, file \
         or device on a disk"
    ))
}

fn no_direct(path: &Path, storage: &Storage) -> Failure {
    nothing(path, &format!("{} does not support direct I/O at this path", storage.file_system))
}

fn check_size(what: &str, bytes: u64, remedy: &str) -> Outcome<()> {
    if bytes >= SIZE_MIN_BYTES {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{what} of {} is too small to compare settings (minimum {}); {remedy}",
        units::size(bytes),
        units::size(SIZE_MIN_BYTES)
    )))
}

/// Refuses a file in which the share of holes and unwritten blocks is above `HOLES_MAX`.
fn check_stored(target: &HostTarget, shown: &str, bytes: u64) -> Outcome<()> {
    let missing = target.coverage(0, bytes).map_or(0, |c| c.hole_bytes + c.unwritten_bytes);
    if missing as f64 <= bytes as f64 * HOLES_MAX {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{shown} has {} of holes or unwritten blocks, and reads of these do not reach the device; \
         use a file without holes, or a directory",
        units::size(missing)
    )))
}

/// A target that is ready to be measured.
#[derive(Debug)]
pub struct Place {
    file: File,
    bytes: u64,
    prospect: Prospect,
    /// Number of bytes written to create the test file.
    pub laid_out_bytes: u64,
    /// The test file, which is removed when this field is dropped. None for an existing target.
    /// This is the last field, so that it is dropped after `file`.
    _scratch: Option<Scratch>,
}

impl Place {
    /// Opens the target, or creates and writes the test file.
    ///
    /// # Errors
    /// The target does not support direct I/O, there is not enough space, or a request fails.
    pub fn ready(wish: &Wish, prospect: Prospect, lab: &Lab) -> Outcome<Place> {
        let clone = |target: &HostTarget| {
            let file = target.file().map(File::try_clone);
            let why = "the target is not a file or device";
            file.and_then(Result::ok).ok_or_else(|| nothing(wish.target, why))
        };
        if let Some(target) = &prospect.existing {
            let (file, bytes) = (clone(target)?, prospect.bytes);
            return Ok(Place { file, bytes, prospect, laid_out_bytes: 0, _scratch: None });
        }
        let scratch = Scratch::make(wish.target, prospect.bytes)?;
        if !offers_direct(scratch.path()) {
            return Err(no_direct(wish.target, &prospect.storage));
        }
        let limit_ns = wish.size.is_none().then_some(LAYOUT_NS);
        let bytes = scratch.lay_out(lab, prospect.bytes, wish.seed, limit_ns)?.bytes;
        let file = clone(&scratch.open(true, Caching::Buffered)?)?;
        Ok(Place { file, bytes, prospect, laid_out_bytes: bytes, _scratch: Some(scratch) })
    }

    /// Returns the size of the region for reads or for writes (bytes).
    fn region_bytes(&self, op: Op) -> u64 {
        match op {
            Op::Read => self.bytes,
            Op::Write => self.bytes.min(self.prospect.writable_bytes),
        }
    }
}

/// The result of tuning reads or writes.
#[derive(Debug)]
pub struct Tuning {
    /// The selected setting and the fastest setting.
    pub choice: Choice,
    /// All measured settings, sorted by request size and queue depth.
    pub table: Vec<Measured>,
    /// Number of bytes that the measurement wrote, without the bytes of a new test file.
    pub written_bytes: u64,
}

/// Measures in rounds until the time is over. Each round measures its settings in a random order,
/// so that short slow periods of the target do not always affect the same setting.
///
/// # Errors
///
/// A request fails, the user interrupts the program, or the target is too slow for every setting.
pub fn tune(place: &Place, op: Op, lab: &Lab, seed: u64) -> Outcome<Tuning> {
    let region_bytes = place.region_bytes(op);
    let memory_most = memory_limit::narrowest().map_or(u64::MAX, |limit| limit.of_series());
    let grid = choice::grid(region_bytes, memory_most);
    if grid.is_empty() {
        let what = memory_limit::narrowest().map_or("", |limit| limit.what);
        return Err(Failure::failed(format!(
            "{} of memory is too little for the buffers of halfpower tune; raise {what}",
            units::size(memory_most)
        )));
    }
    let write_most = place.prospect.write_most();
    let mut probe = Probe::new(&place.file, region_bytes, write_most, seed);
    let mut progress = lab.console.progress(EACH_NS);
    let (clock, mut random) = (Monotonic::new(), Stream::new(seed));
    let end_ns = clock.now_ns() + EACH_NS;
    let mut table: Vec<Measured> = Vec::new();
    'rounds: while clock.now_ns() < end_ns {
        // New settings are explored only in the first half of the time, so that each of them can be
        // measured several times.
        let explores = clock.now_ns() < end_ns - EACH_NS / 2;
        let mut round = choice::round(&grid, &table, explores);
        shuffle(&mut round, &mut random);
        let before = table.iter().map(|measured| measured.rates.len()).sum::<usize>();
        for setting in round {
            if lab.interrupt.is_set() {
                return Err(Failure::interrupted());
            }
            if clock.now_ns() >= end_ns {
                break 'rounds;
            }
            progress.update(&format!("{} {}", doing(op), shown(setting)));
            if memory_most < u64::MAX {
                memory_limit::wait_for(2 * memory_most);
            }
            let sample = probe.measure(op, setting).map_err(|error| {
                Failure::failed(format!("{error}; look at the kernel log (dmesg)"))
            })?;
            if let Some(sample) = sample {
                note(&mut table, setting, sample);
            }
        }
        // A round without a result means that the write limit is reached, or that the target is too
        // slow for all settings.
        if table.iter().map(|measured| measured.rates.len()).sum::<usize>() == before {
            break;
        }
    }
    progress.finish();
    table.sort_by_key(|row| (row.setting.request_bytes, row.setting.depth));
    let choice = choice::choose(&table).ok_or_else(|| {
        Failure::failed(format!(
            "{} is too slow for a measurement of a few seconds; try again when it is idle",
            place.prospect.storage.identity
        ))
    })?;
    let written_bytes = write_most - probe.write_left();
    Ok(Tuning { choice, table, written_bytes })
}

fn note(table: &mut Vec<Measured>, setting: Setting, sample: probe::Sample) {
    let at = table.iter().position(|row| row.setting == setting).unwrap_or_else(|| {
        table.push(Measured { setting, rates: Vec::new(), costs: Vec::new() });
        table.len() - 1
    });
    table[at].rates.push(sample.bytes_per_s);
    table[at].costs.push(sample.cpu_ns_per_byte);
}

/// Shuffles settings uniformly (Fisher-Yates).
fn shuffle(settings: &mut [Setting], random: &mut Stream) {
    for last in (1..settings.len()).rev() {
        settings.swap(last, random.below(last as u64 + 1) as usize);
    }
}

/// Returns the first words of the progress line.
fn doing(op: Op) -> &'static str {
    match op {
        Op::Read => "reading at",
        Op::Write => "writing at",
    }
}

/// Formats a setting as request size and queue depth, such as `1 MiB x 4`.
pub fn shown(setting: Setting) -> String {
    format!("{} x {}", units::size(setting.request_bytes.into()), setting.depth)
}
