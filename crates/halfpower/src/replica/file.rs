//! Copies of one file: to a file, to a device, from standard input, to standard output.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ioengine::{Caching, HostTarget, open_file};
use rustix::fs::{Advice, OFlags, fadvise};
use seqio::copy::{Copied, Method, Watch};
use seqio::{Cache, Options};

use super::place::{Place, partial_path};
use super::resume::State;
use super::watch::{Eyes, Notes};
use super::{Broken, Settings, Tally, attributes, on};
use crate::guard;
use crate::streams;

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
        // What a few places tell of a hot file need not be counted page by page.
        let seems_cold = open_file::about_resident_bytes(&self.file, self.metadata.size());
        self.is_cold = !settings.cached
            && seems_cold.is_ok_and(nothing)
            && open_file::resident_bytes(&self.file).is_ok_and(nothing);
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
            settings.tally.note(format!("{path} changed while it was copied"));
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
    if let Some(hasher) = &mut eyes.hasher {
        // What an earlier copy brought over is summed up from the source.
        let summed = sum_up(settings, from, &Options::new(), begin, hasher);
        summed.map_err(|error| broken(settings, error))?;
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
    let finished = finish(settings, Some(&source), place, &mut eyes, replaces.then_some(mode));
    if matches!(finished, Ok(()) | Err(Broken::Differs { .. })) {
        State::forget(&partial_path(to));
    }
    finished
}

/// All that is left to do when the bytes are there.
fn finish(
    settings: &Settings,
    source: Option<&Source>,
    place: Place,
    eyes: &mut Eyes,
    replaced_mode: Option<u32>,
) -> Result<(), Broken> {
    let path = place.partial.clone();
    let asked = source.map_or(0o666, |source| source.metadata.mode());
    give_mode(&place.file, asked, replaced_mode).map_err(on("setting the mode of", &path))?;
    if let Some(Source { file, metadata, .. }) = source {
        attributes::give(settings.keep, metadata, file, &place.file, &path)?;
    }
    if settings.sync || settings.verify {
        place.file.sync_all().map_err(on("flushing", &path))?;
    }
    if let Some(hasher) = eyes.hasher.take()
        && read_back(settings, &path, u64::MAX)? != hasher.finalize()
    {
        let path = place.give_up();
        return Err(Broken::Differs { path, is_removed: true });
    }
    if !settings.cached {
        source.iter().for_each(|source| source.leave());
        forget(&place.file);
    }
    place.finish(settings.sync)?;
    Tally::add(&settings.tally.files, 1);
    Ok(())
}

/// The bits that a file of this user would have been made with, or that the replaced one had.
fn give_mode(file: &File, asked: u32, replaced: Option<u32>) -> io::Result<()> {
    let now = file.metadata()?.mode() & 0o7777;
    // What was made has no more than this user allows; only what was added for writing goes.
    let wanted = replaced.unwrap_or(now & (asked | !0o600)) & 0o7777;
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

/// Sums up what a file begins with, up to so many bytes.
fn sum_up(
    settings: &Settings,
    path: &Path,
    options: &Options,
    bytes: u64,
    hasher: &mut blake3::Hasher,
) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let (mut reader, mut left) = (options.open(path)?, bytes);
    while left > 0 {
        settings.check()?;
        let Some(block) = reader.next_block()? else { break };
        let part = left.min(block.len() as u64);
        hasher.update(&block[..part as usize]);
        left -= part;
    }
    Ok(())
}

/// The checksum of what a device gives back of a file, up to so many bytes.
pub fn read_back(settings: &Settings, path: &Path, bytes: u64) -> Result<blake3::Hash, Broken> {
    let mut hasher = blake3::Hasher::new();
    // What the page cache holds is dropped, and passed by where that can be.
    forget(&File::open(path).map_err(on("opening", path))?);
    let options = Options::new().cache(Cache::Direct).keep_holes(false);
    let summed = sum_up(settings, path, &options, bytes, &mut hasher);
    summed.map_err(|error| broken(settings, error))?;
    Ok(hasher.finalize())
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
        && read_back(settings, to, copied.bytes)? != hasher.finalize()
    {
        return Err(Broken::Differs { path: to.to_path_buf(), is_removed: false });
    }
    if !settings.cached {
        source.leave();
        forget(file);
    }
    Tally::add(&settings.tally.files, 1);
    Ok(())
}

/// Copies standard input to a file of a name, which it gets when it is whole.
pub fn stream_in(settings: &Settings, to: &Path, replaces: bool) -> Result<(), Broken> {
    let replaced = fs::metadata(to).ok().map(|replaced| replaced.mode());
    let place = Place::make(to, 0o666, replaces, false)?;
    place.file.set_len(0).map_err(on("emptying", &place.partial))?;
    let mut eyes = Eyes::new(settings, 0);
    let stop = |error| broken(settings, error);
    let file = place.file.try_clone().map_err(stop)?;
    let mut writer = settings.options.writer(file).map_err(stop)?;
    let pumped = pump(settings, Path::new("-"), &mut eyes, &mut writer);
    pumped.and_then(|()| writer.finish()).map_err(stop)?;
    finish(settings, None, place, &mut eyes, replaced)
}

/// Copies a file, or standard input, to standard output.
pub fn stream_out(settings: &Settings, from: &Path) -> Result<(), Broken> {
    let stop = |error| broken(settings, error);
    let output = io::stdout().as_fd().try_clone_to_owned();
    let mut output = File::from(output.map_err(stop)?);
    let mut eyes = Eyes::new(settings, 0);
    pump(settings, from, &mut eyes, &mut output).map_err(stop)?;
    Tally::add(&settings.tally.files, 1);
    Ok(())
}

/// Moves all that there is to read.
fn pump(settings: &Settings, from: &Path, eyes: &mut Eyes, to: &mut impl Write) -> io::Result<()> {
    let mut source = streams::Source::open(from, &settings.options)?;
    let mut end = 0;
    while let Some(block) = source.next_block()? {
        eyes.data(end, &block)?;
        end += block.len() as u64;
        to.write_all(&block)?;
        eyes.written(end)?;
    }
    Ok(())
}
