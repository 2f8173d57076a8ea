//! The cheapest way to read and write a storage in sequence at nearly its best rate, found by
//! measuring: what `halfpower tune` does.
//!
//! `choice` says what to measure and decides, `probe` measures one setting, `keep` has the file in
//! which `seqio` looks for what was found. Here the target is made ready, and rounds go on until
//! their time is over.

pub mod choice;
pub mod keep;
mod probe;

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
use crate::scratch::{self, LEAST_BYTES, Scratch};
use crate::trials::Lab;

/// How long reads are measured, and how long writes (ns): both together under 5 s.
pub const EACH_NS: u64 = 2_200_000_000;
/// Size of the test file where none is given (bytes).
const TEST_FILE_BYTES: u64 = 512 << 20;
/// Laying it out ends after this long where its size was not asked for (ns).
const LAYOUT_NS: u64 = 1_500_000_000;
/// Probes write no more than so many times what they write over.
const TIMES_WRITTEN_MOST: u64 = 16;
/// An existing file or device is written over up to here (bytes).
const WRITTEN_OVER_MOST: u64 = 512 << 20;
/// What is not stored of a file may be so much of it: it is read without the device.
const HOLES_MOST: f64 = 0.01;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// A directory, or an existing file or device.
    pub target: &'a Path,
    /// Size of the test file, or of the part of the target that is used (bytes).
    pub size: Option<u64>,
    /// What may be written.
    pub consent: Consent,
    /// Seed of every random choice.
    pub seed: u64,
}

/// What would be measured.
#[derive(Debug)]
pub struct Prospect {
    /// The file system and the device beneath.
    pub storage: Arc<Storage>,
    /// The size of the test file, or of what there is (bytes).
    pub bytes: u64,
    /// None for a directory.
    existing: Option<HostTarget>,
    /// What may be written of it (bytes); 0: it is only read.
    pub writable_bytes: u64,
    /// Why nothing is written.
    pub not_written: Option<String>,
    permit: Option<Permit>,
}

impl Prospect {
    /// Looks at the target; changes nothing.
    ///
    /// # Errors
    /// Nothing is there to tune, or what was allowed is not about this target.
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
                TEST_FILE_BYTES.min(tenth >> 20 << 20).max(LEAST_BYTES)
            }
        };
        check_size("a test file", bytes, "give --size 64m or more")?;
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
            return Err(Failure::usage("--size is that of a test file; name a directory with it"));
        }
        let (target, permit, not_written) = open(path, &wish.consent)?;
        let file = target.file().ok_or_else(|| nothing(path, "it is no file or device"))?;
        let storage = storage_of(&file.try_clone(), path)?;
        if !offers_direct(path) {
            return Err(no_direct(path, &storage));
        }
        let bytes = target.size_bytes();
        let shown = path.display().to_string();
        check_size(&shown, bytes, "name a larger file, or a directory to lay a test file out in")?;
        check_stored(&target, &shown, bytes)?;
        let writable_bytes = if not_written.is_some() { 0 } else { bytes.min(WRITTEN_OVER_MOST) };
        let existing = Some(target);
        Ok(Prospect { storage, bytes, existing, writable_bytes, not_written, permit })
    }

    /// Whether it is a test file that does not exist yet.
    pub fn is_test_file(&self) -> bool {
        self.existing.is_none()
    }

    /// What is on the device and goes.
    pub fn destroys(&self) -> Option<&str> {
        self.permit.as_ref()?.destroys.as_deref()
    }

    /// What probes may write (bytes).
    pub fn write_most(&self) -> u64 {
        self.writable_bytes * TIMES_WRITTEN_MOST
    }
}

/// Opens what exists: for writing too where that was allowed, else with the reason why not.
fn open(path: &Path, consent: &Consent) -> Outcome<(HostTarget, Option<Permit>, Option<String>)> {
    let readable = HostTarget::open(path, false, Caching::Buffered)?;
    let asked = !consent.overwrite.is_empty() || !consent.destroy_data_on.is_empty();
    if !asked {
        let why = match readable.kind() {
            TargetKind::BlockDevice => "a device is only read unless --destroy-data-on names it",
            _ => "a file is only read unless --overwrite names it",
        };
        return Ok((readable, None, Some(why.to_owned())));
    }
    let permit = guard::check_writable(&readable, path, consent)?;
    let target = HostTarget::open(path, true, Caching::Buffered)?;
    permit.iter().try_for_each(|permit| permit.check(&target))?;
    Ok((target, permit, None))
}

fn storage_of(file: &std::io::Result<File>, path: &Path) -> Outcome<Arc<Storage>> {
    let found = file
        .as_ref()
        .map_err(ioengine::error::cause)
        .and_then(|file| Storage::of(file).map_err(|error| ioengine::error::cause(&error)));
    let storage = found.map_err(|cause| {
        Failure::failed(format!("looking at {}: {cause}; name another target", path.display()))
    })?;
    match storage.kind {
        Kind::Memory => Err(nothing(path, "it lies in memory")),
        _ => Ok(storage),
    }
}

fn nothing(path: &Path, why: &str) -> Failure {
    let path = path.display();
    Failure::usage(format!(
        "nothing to tune: {path}: {why}, and what seqio does there needs no tuning; name a \
         directory, file or device of a disk"
    ))
}

fn no_direct(path: &Path, storage: &Storage) -> Failure {
    nothing(path, &format!("{} offers no direct I/O there", storage.file_system))
}

fn check_size(what: &str, bytes: u64, remedy: &str) -> Outcome<()> {
    if bytes >= LEAST_BYTES {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{what} of {} is too small to tell settings apart ({} at the least); {remedy}",
        units::size(bytes),
        units::size(LEAST_BYTES)
    )))
}

/// Refuses a file of holes: they are read without the device.
fn check_stored(target: &HostTarget, shown: &str, bytes: u64) -> Outcome<()> {
    let missing = target.coverage(0, bytes).map_or(0, |c| c.hole_bytes + c.unwritten_bytes);
    if missing as f64 <= bytes as f64 * HOLES_MOST {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{shown} has {} of holes or blocks that were never written, which are read without the \
         device; name a file that is written from end to end, or a directory",
        units::size(missing)
    )))
}

/// A target that is ready.
#[derive(Debug)]
pub struct Place {
    file: File,
    bytes: u64,
    prospect: Prospect,
    /// What laying it out wrote (bytes).
    pub laid_out_bytes: u64,
    /// Dropped last: removes the test file.
    _scratch: Option<Scratch>,
}

impl Place {
    /// Opens the target, or lays the test file out.
    ///
    /// # Errors
    /// No direct I/O; no room; what the system says.
    pub fn ready(wish: &Wish, prospect: Prospect, lab: &Lab) -> Outcome<Place> {
        let clone = |target: &HostTarget| {
            let file = target.file().map(File::try_clone);
            file.and_then(Result::ok).ok_or_else(|| nothing(wish.target, "it is no file or device"))
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

    /// How much probes of this kind work on (bytes).
    fn region_bytes(&self, op: Op) -> u64 {
        match op {
            Op::Read => self.bytes,
            Op::Write => self.bytes.min(self.prospect.writable_bytes),
        }
    }
}

/// What was found for reads or for writes.
#[derive(Debug)]
pub struct Tuning {
    /// The setting, and why.
    pub choice: Choice,
    /// All settings, in the order of the grid.
    pub table: Vec<Measured>,
    /// What the probes wrote (bytes).
    pub written_bytes: u64,
}

/// Measures in rounds until the time is over. A round visits its settings in random order, so that
/// a slow spell of the storage does not decide.
///
/// # Errors
/// What the system says of reading or writing; the user stopped it; the storage is too slow for any
/// setting.
pub fn tune(place: &Place, op: Op, lab: &Lab, seed: u64) -> Outcome<Tuning> {
    let region_bytes = place.region_bytes(op);
    let memory_most = memory_limit::narrowest().map_or(u64::MAX, |limit| limit.of_series());
    let grid = choice::grid(region_bytes, memory_most);
    if grid.is_empty() {
        let what = memory_limit::narrowest().map_or("", |limit| limit.what);
        return Err(Failure::failed(format!(
            "{} is too little memory for the buffers of tune: {what} is that low; raise it",
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
        // What is found late could not be measured often enough.
        let explores = clock.now_ns() < end_ns - EACH_NS / 2;
        let mut round = choice::round(&grid, &table, explores);
        shuffle(&mut round, &mut random);
        let before = table.iter().map(|one| one.rates.len()).sum::<usize>();
        for setting in round {
            if lab.interrupt.is_set() {
                return Err(Failure::interrupted());
            }
            if clock.now_ns() >= end_ns {
                break 'rounds;
            }
            progress.update(&format!("{} {}", doing(op), shown(setting)));
            let sample = probe.measure(op, setting).map_err(|error| {
                Failure::failed(format!("{error}; look at the kernel log (dmesg)"))
            })?;
            if let Some(sample) = sample {
                note(&mut table, setting, sample);
            }
        }
        // Nothing more may be written, or the storage is too slow for all of them.
        if table.iter().map(|one| one.rates.len()).sum::<usize>() == before {
            break;
        }
    }
    progress.finish();
    table.sort_by_key(|one| (one.setting.request_bytes, one.setting.depth));
    let choice = choice::choose(&table).ok_or_else(|| {
        Failure::failed(format!(
            "{} is too slow to be measured in so short a time; try again when it is idle",
            place.prospect.storage.identity
        ))
    })?;
    let written_bytes = write_most - probe.write_left();
    Ok(Tuning { choice, table, written_bytes })
}

fn note(table: &mut Vec<Measured>, setting: Setting, sample: probe::Sample) {
    let at = table.iter().position(|one| one.setting == setting).unwrap_or_else(|| {
        table.push(Measured { setting, rates: Vec::new(), costs: Vec::new() });
        table.len() - 1
    });
    table[at].rates.push(sample.bytes_per_s);
    table[at].costs.push(sample.cpu_ns_per_byte);
}

/// Every order is as likely (Fisher and Yates).
fn shuffle(settings: &mut [Setting], random: &mut Stream) {
    for last in (1..settings.len()).rev() {
        settings.swap(last, random.below(last as u64 + 1) as usize);
    }
}

/// What is done, in a word.
fn doing(op: Op) -> &'static str {
    match op {
        Op::Read => "reading at",
        Op::Write => "writing at",
    }
}

/// A setting as people read it: `1 MiB x 4`.
pub fn shown(setting: Setting) -> String {
    format!("{} x {}", units::size(setting.request_bytes.into()), setting.depth)
}
