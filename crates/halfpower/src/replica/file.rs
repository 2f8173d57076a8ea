//! Copies of one file: to a file, to a device, from standard input, to standard output.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ioengine::{Caching, HostTarget, open_file};
use rustix::fs::{Advice, OFlags, fadvise};
use seqio::Cache;
use seqio::copy::{Copied, Method, Watch};

use super::place::Place;
use super::resume::State;
use super::watch::{Eyes, Notes};
use super::{Broken, Settings, Tally, attributes, on};
use crate::guard;

/// A source that is open, with what was seen of it at that moment.
#[derive(Debug)]
pub struct Source {
    /// The open file.
    pub file: File,
    /// What it was.
    pub metadata: Metadata,
    /// None of it was in the page cache.
    is_cold: bool,
}

impl Source {
    /// Opens a file; links are followed only where they were named.
    pub fn open(path: &Path, follows: bool) -> Result<Source, Broken> {
        let opening = on("opening", path);
        let flags = if follows { OFlags::empty() } else { OFlags::NOFOLLOW };
        let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
        let file = file.map_err(&opening)?;
        let metadata = file.metadata().map_err(&opening)?;
        Ok(Source { file, metadata, is_cold: false })
    }

    /// Looks whether the page cache has any of it, so that it can be left so.
    pub fn look_at_cache(&mut self, settings: &Settings) {
        let nothing = |bytes| bytes == 0;
        self.is_cold = !settings.cached && open_file::resident_bytes(&self.file).is_ok_and(nothing);
    }

    /// Leaves the page cache as it was found.
    pub fn leave(&self) {
        if self.is_cold {
            forget(&self.file);
        }
    }

    /// Notes where it is not any more what it was.
    pub fn check_unchanged(&self, path: &Path, settings: &Settings) {
        let seen = |metadata: &Metadata| (metadata.size(), metadata.mtime(), metadata.mtime_nsec());
        if self.file.metadata().is_ok_and(|now| seen(&now) != seen(&self.metadata)) {
            let path = path.display();
            settings.tally.skip(format!("{path} changed while it was copied"));
        }
    }
}

/// Takes what is clean of a file out of the page cache.
pub fn forget(file: &File) {
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}

/// Copies a file to one of a name, which it gets when it is whole.
pub fn one(
    settings: &Settings,
    from: &Path,
    follows: bool,
    to: &Path,
    replaces: bool,
) -> Result<(), Broken> {
    let mut source = Source::open(from, follows)?;
    source.look_at_cache(settings);
    let mode = fs::metadata(to).map_or(source.metadata.mode(), |replaced| replaced.mode());
    let place = Place::make(to, source.metadata.mode(), replaces, settings.resume)?;
    let state = match settings.resume {
        true => State::found(&place.partial, &place.file, &source.metadata),
        false => State::of(&source.metadata),
    };
    let begin = state.done_bytes;
    let mut eyes = Eyes::new(settings, begin);
    Tally::add(&settings.tally.bytes, begin);
    Tally::add(&settings.tally.resumed_bytes, begin);
    if begin > 0 && settings.verify {
        sum_up_prefix(from, begin, &mut eyes).map_err(|error| broken(settings, error))?;
    }
    if settings.resume {
        let file = place.file.try_clone().map_err(on("copying to", to))?;
        eyes.notes = Some(Notes::new(state, file, place.partial.clone()));
    }
    let (read, written) = ((&source.file, from), (&place.file, place.partial.as_path()));
    let copied = settings.options.copy(read, written, begin, &mut eyes);
    let copied = match copied {
        Ok(copied) => copied,
        Err(error) => {
            if let Some(notes) = &mut eyes.notes {
                // What could not be noted is copied again.
                let _ = notes.note(eyes.seen);
            }
            return Err(broken(settings, error));
        }
    };
    tell(settings, &copied);
    source.check_unchanged(from, settings);
    let replaced = replaces.then_some(mode);
    finish(settings, &source, place, &mut eyes, replaced)?;
    State::forget(&super::place::partial_path(to));
    Ok(())
}

/// All that is left to do when the bytes are there.
fn finish(
    settings: &Settings,
    source: &Source,
    place: Place,
    eyes: &mut Eyes,
    replaced_mode: Option<u32>,
) -> Result<(), Broken> {
    let path = place.partial.clone();
    give_mode(&place.file, &source.metadata, replaced_mode).map_err(on("naming", &path))?;
    attributes::give(settings.keep, &source.metadata, &source.file, &place.file, &path)?;
    if settings.sync || settings.verify {
        place.file.sync_all().map_err(on("flushing", &path))?;
    }
    if let Some(hasher) = eyes.hasher.take() {
        let found = read_back(settings, &path)?;
        if found != hasher.finalize() {
            place.give_up();
            return Err(Broken::Differs(path));
        }
    }
    if !settings.cached {
        source.leave();
        forget(&place.file);
    }
    place.finish(settings.sync)?;
    Tally::add(&settings.tally.files, 1);
    Ok(())
}

/// The bits that a file of this user would have been made with, or that the replaced one had.
fn give_mode(file: &File, source: &Metadata, replaced: Option<u32>) -> io::Result<()> {
    let now = file.metadata()?.mode() & 0o7777;
    // What was made has no more than this user allows; only what was added for writing goes.
    let wanted = replaced.map_or(now & (source.mode() | !0o600), |mode| mode) & 0o7777;
    match wanted == now {
        true => Ok(()),
        false => file.set_permissions(Permissions::from_mode(wanted)),
    }
}

/// Notes how a file was copied.
pub fn tell(settings: &Settings, copied: &Copied) {
    match copied.method {
        Method::Reflink => Tally::add(&settings.tally.reflinks, 1),
        Method::Server => {
            Tally::add(&settings.tally.by_server, 1);
            Tally::add(&settings.tally.moved_bytes, copied.moved_bytes);
        }
        _ => {}
    }
    settings.tally.note_how(&copied.how);
}

/// Why the bytes did not get there.
pub fn broken(settings: &Settings, error: io::Error) -> Broken {
    match settings.interrupt.is_set() {
        true => Broken::Stopped,
        false => Broken::Failed(error),
    }
}

/// Sums up what an earlier copy brought over, from the source.
fn sum_up_prefix(path: &Path, bytes: u64, eyes: &mut Eyes) -> io::Result<()> {
    let mut reader = seqio::Reader::open(path)?;
    let mut left = bytes;
    while left > 0 {
        eyes.check()?;
        let Some(block) = reader.next_block()? else { break };
        let part = left.min(block.len() as u64);
        if let Some(hasher) = &mut eyes.hasher {
            hasher.update(&block[..part as usize]);
        }
        left -= part;
    }
    Ok(())
}

/// The checksum of what a device gives back of a file.
pub fn read_back(settings: &Settings, path: &Path) -> Result<blake3::Hash, Broken> {
    let sum = || -> io::Result<blake3::Hash> {
        // What the page cache holds is dropped, and passed by where that can be.
        forget(&File::open(path)?);
        let mut reader = seqio::Options::new().cache(Cache::Direct).keep_holes(false).open(path)?;
        let mut hasher = blake3::Hasher::new();
        while let Some(block) = reader.next_block()? {
            Eyes::new(settings, 0).check()?;
            hasher.update(&block);
        }
        Ok(hasher.finalize())
    };
    sum().map_err(|error| broken(settings, error))
}

/// Copies a file or device over a block device that was given up.
pub fn device(settings: &Settings, from: &Path, to: &Path) -> Result<(), Broken> {
    let refused = |failure: crate::failure::Failure| Broken::Refused(failure);
    let target = HostTarget::open(to, true, Caching::Buffered).map_err(|e| refused(e.into()))?;
    let _permit = guard::check_writable(&target, to, &settings.consent).map_err(refused)?;
    let mut source = Source::open(from, true)?;
    source.look_at_cache(settings);
    let Some(file) = target.file() else { return Ok(()) };
    let mut eyes = Eyes::new(settings, 0);
    let copied = settings.options.copy((&source.file, from), (file, to), 0, &mut eyes);
    let copied = copied.map_err(|error| broken(settings, error))?;
    tell(settings, &copied);
    if settings.sync || settings.verify {
        file.sync_all().map_err(on("flushing", to))?;
    }
    if let Some(hasher) = eyes.hasher.take()
        && read_back_from(settings, to, copied.bytes)? != hasher.finalize()
    {
        return Err(Broken::Differs(to.to_path_buf()));
    }
    if !settings.cached {
        source.leave();
        forget(file);
    }
    Tally::add(&settings.tally.files, 1);
    Ok(())
}

/// The checksum of the first bytes of a device.
fn read_back_from(settings: &Settings, path: &Path, bytes: u64) -> Result<blake3::Hash, Broken> {
    let mut eyes = Eyes::new(settings, 0);
    forget(&File::open(path).map_err(on("opening", path))?);
    sum_up_prefix(path, bytes, &mut eyes).map_err(|error| broken(settings, error))?;
    Ok(eyes.hasher.take().map_or_else(|| blake3::hash(&[]), |hasher| hasher.finalize()))
}

/// Copies standard input to a file of a name, which it gets when it is whole.
pub fn stream_in(settings: &Settings, to: &Path, replaces: bool) -> Result<(), Broken> {
    let place = Place::make(to, 0o666, replaces, false)?;
    place.file.set_len(0).map_err(on("emptying", &place.partial))?;
    let mut eyes = Eyes::new(settings, 0);
    let stop = |error| broken(settings, error);
    let mut reader = standard_input(settings).map_err(stop)?;
    let file = place.file.try_clone().map_err(stop)?;
    let mut writer = settings.options.writer(file).map_err(stop)?;
    let mut pump = || -> io::Result<()> {
        let mut end = 0;
        while let Some(block) = reader.next_block()? {
            eyes.data(end, &block)?;
            end += block.len() as u64;
            writer.write_all(&block)?;
            eyes.written(end)?;
        }
        Ok(())
    };
    pump().map_err(stop)?;
    writer.finish().map_err(stop)?;
    if settings.sync || settings.verify {
        place.file.sync_all().map_err(on("flushing", &place.partial))?;
    }
    if let Some(hasher) = eyes.hasher.take()
        && read_back(settings, &place.partial)? != hasher.finalize()
    {
        return Err(Broken::Differs(to.to_path_buf()));
    }
    if !settings.cached {
        forget(&place.file);
    }
    place.finish(settings.sync)?;
    Tally::add(&settings.tally.files, 1);
    Ok(())
}

/// Standard input, from where it stands.
fn standard_input(settings: &Settings) -> io::Result<seqio::Reader> {
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let position = input.stream_position().ok();
    let mut reader = settings.options.reader(input)?;
    if let Some(position) = position.filter(|position| *position > 0) {
        reader.seek(SeekFrom::Start(position))?;
    }
    Ok(reader)
}

/// Copies a file to standard output.
pub fn stream_out(settings: &Settings, from: &Path) -> Result<(), Broken> {
    let stop = |error| broken(settings, error);
    let mut reader = match from == Path::new("-") {
        true => standard_input(settings),
        false => settings.options.open(from),
    }
    .map_err(stop)?;
    let output = io::stdout().as_fd().try_clone_to_owned();
    let mut output = File::from(output.map_err(stop)?);
    let mut eyes = Eyes::new(settings, 0);
    let mut pump = || -> io::Result<()> {
        let mut end = 0;
        while let Some(block) = reader.next_block()? {
            eyes.data(end, &block)?;
            end += block.len() as u64;
            output.write_all(&block)?;
            eyes.written(end)?;
        }
        output.flush()
    };
    pump().map_err(stop)?;
    Tally::add(&settings.tally.files, 1);
    Ok(())
}
