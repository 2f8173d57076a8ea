//! Copies single files. The data are copied to an unnamed file and verified, the attributes are
//! set, and finally the file gets its name.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ioengine::open_file;
use rustix::fs::{Advice, OFlags, fadvise, linkat};
use rustix::fs::{AtFlags, CWD};
use seqio::copy::{Copied, Method, Side};
use seqio::{Cache, Options};

use crate::attributes::{AttributeCopy, are_same, are_same_times, creation_mode};
use crate::content::ContentHasher;
use crate::context::Context;
use crate::directory::{Directory, EntryInfo, path_of, type_name};
use crate::existing::{Comparison, Decision, decide};
use crate::handle::Handle;
use crate::links::FirstCopy;
use crate::problem::{Problem, ProblemKind, on, on_errno};
use crate::progress::{Event, Progress};
use crate::resume::{self, Resumable};
use crate::settings::{Existing, Keep, Settings};
use crate::small::Buffer;
use crate::staging::{NewFile, Place, make_entry};
use crate::target::TargetDirectory;
use crate::watcher::Watcher;

/// Maximum number of attempts if the source changes while it is copied.
const ATTEMPTS_MAX: u32 = 3;
/// Maximum size of a file that is copied again if the source changes during the copy (bytes).
const RETRY_SIZE_MAX: u64 = 256 << 20;

/// A source entry, identified by its name in an open directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceEntry<'a> {
    pub directory: &'a Directory,
    pub name: &'a OsStr,
    /// Whether the entry is followed if it is a symbolic link.
    pub follows: bool,
}

impl SourceEntry<'_> {
    pub fn path(&self) -> PathBuf {
        self.directory.join(self.name)
    }
}

/// Copies a regular file, or the contents of a block device, to a regular file.
pub(crate) fn copy(
    context: &Context,
    buffer: &mut Buffer,
    source: SourceEntry,
    target: &TargetDirectory,
    name: &OsStr,
) -> Result<(), Problem> {
    let from = source.path();
    let file = source.directory.open_file(source.name, source.follows);
    let file = file.map_err(on_errno("opening", &from))?;
    let info = EntryInfo::of(&file).map_err(on_errno("looking at", &from))?;
    if !info.is_file() && !(info.file_type() == rustix::fs::FileType::BlockDevice) {
        let (shown, kind) = (from.display(), type_name(info.file_type()));
        let what = format!("{shown} was a file when the copy began, but is {kind} now");
        return Err(Problem::new(ProblemKind::Failed, &from, what));
    }
    let job = Job { context, file, info, from, target, name, to: target.join(name) };
    if context.settings.keep < Keep::All || job.info.links < 2 {
        return job.run(buffer).map(drop);
    }
    match context.links.claim(&job.info) {
        Ok(claim) => {
            if let Some(copy) = job.run(buffer)? {
                claim.settle(FirstCopy::new(&target.root, target.relative_of(name), &copy));
            }
            Ok(())
        }
        Err(first) => {
            if link(context, &first, &job.info, target, name)? {
                Ok(())
            } else {
                // A hard link to the copy is not possible, so this name becomes a separate file.
                job.run(buffer).map(drop)
            }
        }
    }
}

/// Creates a hard link to a copy. Returns false if a link is not possible.
pub(crate) fn link(
    context: &Context,
    first: &FirstCopy,
    source: &EntryInfo,
    target: &TargetDirectory,
    name: &OsStr,
) -> Result<bool, Problem> {
    let to = target.join(name);
    let same = |existing_info: &EntryInfo| {
        let is_same = existing_info.identity() == first.identity();
        Ok(if is_same { Comparison::Same } else { Comparison::Different })
    };
    let replaces = match decide(&context.settings, source, target, name, same)? {
        Decision::UpToDate => {
            context.is_up_to_date(&to);
            return Ok(true);
        }
        Decision::Leave => {
            context.skipped(&to);
            return Ok(true);
        }
        Decision::Replace(_) | Decision::Refresh => true,
        Decision::Create => false,
    };
    let Some(place) = target.place(&context.settings, &context.staging) else { return Ok(true) };
    let Some(file) = first.open() else { return Ok(false) };
    let make = |directory: &Directory, name: &OsStr| {
        let made = linkat(CWD, path_of(&file), directory, name, AtFlags::SYMLINK_FOLLOW);
        made.map_err(on_errno("linking", &to))
    };
    let made =
        if replaces { make_entry(place, name, true, make) } else { make(place.destination, name) };
    match made {
        Ok(()) => {
            Progress::add(&context.settings.progress.links, 1);
            context.settings.tell(&Event::Copied { from: to.clone(), to });
            Ok(true)
        }
        // The file may have too many links, the destination may be on another file system, or its
        // file system may not support hard links.
        Err(_) => Ok(false),
    }
}

struct UnnamedCopy {
    new: NewFile,
    resumable: Option<Resumable>,
    /// Size of the copy (bytes).
    bytes: u64,
}

/// A file to copy.
struct Job<'a> {
    context: &'a Context,
    file: File,
    info: EntryInfo,
    from: PathBuf,
    target: &'a TargetDirectory,
    name: &'a OsStr,
    to: PathBuf,
}

impl Job<'_> {
    fn settings(&self) -> &Settings {
        &self.context.settings
    }

    /// Returns which attributes the copy keeps. A copy of a device's contents keeps only permission
    /// bits.
    fn keep(&self) -> Keep {
        if self.info.is_file() { self.settings().keep } else { Keep::Mode }
    }

    /// Copies the file, unless the destination is up to date or the settings skip it. Returns the
    /// metadata of the copy or of the up-to-date entry. None if the file was skipped, or in a dry
    /// run.
    fn run(&self, buffer: &mut Buffer) -> Result<Option<EntryInfo>, Problem> {
        let settings = self.settings();
        let decided = decide(settings, &self.info, self.target, self.name, |existing_info| {
            self.compare(existing_info)
        })?;
        let replaced = match decided {
            Decision::Create => None,
            Decision::Replace(replaced) => Some(replaced),
            Decision::Leave => {
                self.context.skipped(&self.to);
                return Ok(None);
            }
            Decision::Refresh => {
                self.refresh()?;
                self.context.is_up_to_date(&self.to);
                return self.existing_info();
            }
            Decision::UpToDate => {
                Progress::add(&settings.progress.bytes, self.info.size);
                Progress::add(&settings.progress.resumed_bytes, self.info.size);
                self.context.is_up_to_date(&self.to);
                return self.existing_info();
            }
        };
        let (from, to) = (self.from.clone(), self.to.clone());
        let Some(place) = self.target.place(settings, &self.context.staging) else {
            self.would_copy(replaced.is_some());
            return Ok(None);
        };
        if settings.dry_run {
            self.would_copy(replaced.is_some());
            return Ok(None);
        }
        let is_cold = self.is_cold();
        let copy = self.copy(buffer, place, replaced.as_ref())?;
        if is_cold {
            drop_cached_pages(&self.file);
        }
        Progress::add(&settings.progress.files, 1);
        settings.tell(&Event::Copied { from, to });
        Ok(Some(copy))
    }

    fn would_copy(&self, replaces: bool) {
        let settings = self.settings();
        Progress::add(&settings.progress.files, 1);
        Progress::add(&settings.progress.bytes, self.info.size);
        let (from, to) = (self.from.clone(), self.to.clone());
        settings.tell(&Event::WouldCopy { from, to, replaces });
    }

    fn existing_info(&self) -> Result<Option<EntryInfo>, Problem> {
        self.target.look_up(self.name).map_err(on_errno("looking at", &self.to))
    }

    /// Returns true if the pages of the source must be dropped from the page cache after the copy,
    /// because none of them were there before.
    fn is_cold(&self) -> bool {
        if self.settings().cached || Buffer::suits(&self.info) {
            return false;
        }
        let seems_cold = open_file::about_resident_bytes(&self.file, self.info.size);
        seems_cold.is_ok_and(|bytes| bytes == 0)
            && open_file::resident_bytes(&self.file).is_ok_and(|bytes| bytes == 0)
    }

    /// Copies the data to an unnamed file and then gives this file its name. Copies again if the
    /// source changes during the copy.
    fn copy(
        &self,
        buffer: &mut Buffer,
        place: Place,
        replaced: Option<&EntryInfo>,
    ) -> Result<EntryInfo, Problem> {
        let mut before = self.info;
        for attempt in 1.. {
            let UnnamedCopy { new, resumable, bytes } =
                self.make(place, replaced, &before, buffer)?;
            let after = EntryInfo::of(&self.file).map_err(on_errno("looking at", &self.from))?;
            let has_changed = (after.size, after.modified, after.changed)
                != (before.size, before.modified, before.changed);
            let is_last = attempt == ATTEMPTS_MAX || after.size > RETRY_SIZE_MAX;
            if has_changed && !is_last {
                if let Some(resumable) = resumable {
                    resumable.forget();
                }
                self.settings().progress.take_back_bytes(bytes);
                before = after;
                continue;
            }
            let attributes = self.finish(&new.file, &after, replaced)?;
            let copy = EntryInfo::of(&new.file).map_err(on_errno("looking at", &self.to))?;
            new.publish(place, self.name, replaced.is_some())?;
            if let Some(resumable) = resumable {
                resumable.forget();
            }
            if has_changed {
                let shown = self.from.display();
                let what = format!(
                    "{shown} changed while it was copied, so the copy may be a mixture of old and \
                     new data; copy it again when no program writes to it"
                );
                self.context.report(Problem::new(ProblemKind::Failed, &self.from, what));
            }
            if let Some(problem) = attributes {
                self.context.report(problem);
            }
            return Ok(copy);
        }
        unreachable!("the last attempt returns")
    }

    /// Copies the data to an unnamed file and, if requested, verifies the copied data.
    fn make(
        &self,
        place: Place,
        replaced: Option<&EntryInfo>,
        before: &EntryInfo,
        buffer: &mut Buffer,
    ) -> Result<UnnamedCopy, Problem> {
        let settings = self.settings();
        let handle = Handle::of(&self.file);
        let mode = match replaced {
            // Only the owner may access the copy until it has the attributes of the replaced file.
            Some(replaced) if replaced.is_file() => 0o600,
            _ => creation_mode(self.keep(), before, handle, self.target.inherited()),
        };
        let is_large = before.is_file() && before.size >= resume::SIZE_MIN_BYTES;
        let begun = if settings.resume && is_large {
            resume::begin(place, self.name, &self.from, before)?
        } else {
            None
        };
        let (new, begin, resumable) = match begun {
            Some((new, done, resumable)) => (new, done, Some(resumable)),
            None => (NewFile::make(place, mode)?, 0, None),
        };
        let mut watcher = Watcher::new(settings, begin);
        watcher.resumable = resumable.map(|resumable| (resumable, &new.file));
        Progress::add(&settings.progress.bytes, begin);
        Progress::add(&settings.progress.resumed_bytes, begin);
        let copied = match &mut watcher.hasher {
            // The hash must cover the whole file, so the part that an earlier session copied is
            // hashed too.
            Some(hasher) if begin > 0 => hash_prefix(settings, &self.file, begin, hasher)
                .map_err(|(at, error)| self.failed(Side::Source, Some(at), &error)),
            _ => Ok(()),
        };
        let copied = copied.and_then(|()| self.bytes(&new.file, begin, buffer, &mut watcher));
        let (bytes, hasher) = (watcher.written, watcher.hasher.take());
        let resumable = watcher.resumable.take().map(|(resumable, _)| resumable);
        if let Err(problem) = copied {
            settings.progress.take_back_bytes(bytes);
            return Err(self.abandon(new, resumable, bytes, problem));
        }
        if resumable.is_some() && self.keep() == Keep::Mode && replaced.is_none() {
            let set = Handle::of(&new.file).set_mode(mode & !umask());
            set.map_err(on_errno("setting the mode of", &self.to))?;
        }
        let verified = hasher.map_or(Ok(()), |hasher| self.verify(&new.file, hasher));
        if let Err(problem) = verified {
            if let Some(resumable) = resumable {
                resumable.forget();
            }
            return Err(problem);
        }
        Ok(UnnamedCopy { new, resumable, bytes })
    }

    /// Copies the data, beginning at the offset `begin`.
    fn bytes(
        &self,
        new: &File,
        begin: u64,
        buffer: &mut Buffer,
        watcher: &mut Watcher,
    ) -> Result<(), Problem> {
        if begin == 0 && Buffer::suits(&self.info) {
            let copied = buffer.copy(&self.file, new, watcher);
            return copied.map_err(|(side, at, error)| self.failed(side, Some(at), &error));
        }
        let options = self.settings().options.clone().unseen(true);
        match options.copy(&self.file, new, begin, watcher) {
            Ok(copied) => {
                self.count(&copied);
                Ok(())
            }
            Err(error) => Err(self.failed(error.side, error.offset, error.error())),
        }
    }

    fn count(&self, copied: &Copied) {
        let progress = &self.settings().progress;
        match copied.method {
            Method::Reflink => Progress::add(&progress.reflinks, 1),
            Method::Server => Progress::add(&progress.by_server, 1),
            Method::Pipeline | Method::Cached => {}
        }
        progress.note_how(&copied.how);
    }

    /// Returns the problem for a failed read of the source or a failed write of the copy.
    fn failed(&self, side: Side, offset: Option<u64>, error: &io::Error) -> Problem {
        if self.settings().stops() {
            return Problem::stopped(&self.from);
        }
        let path = if side == Side::Source { &self.from } else { &self.to };
        let doing = if side == Side::Source { "reading" } else { "writing" };
        problem_at(doing, path, offset, error)
    }

    /// Handles a failed copy. Keeps the unfinished file if a later session can resume the copy.
    fn abandon(
        &self,
        new: NewFile,
        resumable: Option<Resumable>,
        written: u64,
        problem: Problem,
    ) -> Problem {
        if let Some(mut resumable) = resumable {
            resumable.note(&new.file, written);
            if resumable.is_noted() {
                new.keep();
            }
        }
        problem
    }

    /// Reads the copy back from its storage and compares checksums.
    fn verify(&self, new: &File, hasher: ContentHasher) -> Result<(), Problem> {
        new.sync_all().map_err(on("flushing", &self.to))?;
        let bytes = hasher.bytes();
        let wanted = hasher.finish();
        let found = read_back(self.settings(), new, bytes)
            .map_err(|(at, error)| self.read_back_failed(at, &error))?;
        if found == wanted {
            return Ok(());
        }
        let shown = self.to.display();
        let what = format!(
            "{shown}: the data read back differ from the data that were written, so the copy was \
             discarded; check the device and its cable, then copy again"
        );
        Err(Problem::new(ProblemKind::Differs, &self.to, what))
    }

    fn read_back_failed(&self, at: u64, error: &io::Error) -> Problem {
        if self.settings().stops() {
            Problem::stopped(&self.to)
        } else {
            problem_at("reading back", &self.to, Some(at), error)
        }
    }

    /// Sets the attributes and flushes the copy if required. If an attribute cannot be set, the
    /// copy is still published, and the problem is returned in `Ok`.
    fn finish(
        &self,
        new: &File,
        source: &EntryInfo,
        replaced: Option<&EntryInfo>,
    ) -> Result<Option<Problem>, Problem> {
        let settings = self.settings();
        let problem = match (self.keep(), replaced) {
            (Keep::Mode, Some(replaced)) => self.keep_of_replaced(new, replaced)?,
            (Keep::Mode, None) => None,
            _ => self.giving(Handle::of(&self.file), source, new).all().err(),
        };
        if settings.resume && self.keep() == Keep::Mode && source.is_file() {
            // The next session recognises a finished copy by its size and modification time.
            self.giving(Handle::of(&self.file), source, new).times()?;
        }
        let risks_size = source.is_sparse();
        let at_once = !self.context.is_tree() || replaced.is_some() || risks_size;
        if settings.sync && at_once {
            new.sync_all().map_err(on("flushing", &self.to))?;
        }
        if !settings.cached && !Buffer::suits(source) {
            drop_cached_pages(new);
        }
        Ok(problem)
    }

    fn giving<'b>(
        &'b self,
        source: Handle<'b>,
        info: &'b EntryInfo,
        target: &'b File,
    ) -> AttributeCopy<'b> {
        AttributeCopy {
            settings: self.settings(),
            left_out: &self.context.left_out,
            source,
            info,
            target: Handle::of(target),
            path: &self.to,
            is_old: false,
        }
    }

    /// Gives the copy the attributes of the file that it replaces.
    fn keep_of_replaced(
        &self,
        new: &File,
        replaced: &EntryInfo,
    ) -> Result<Option<Problem>, Problem> {
        let directory = self.target.directory();
        let old = directory.and_then(|directory| directory.open_entry(self.name).ok());
        let old =
            old.filter(|old| EntryInfo::of(old).is_ok_and(|i| i.identity() == replaced.identity()));
        let Some(old) = old else {
            let shown = self.to.display();
            let what = format!("another program replaced {shown} during the copy; try again");
            return Err(Problem::new(ProblemKind::Failed, &self.to, what));
        };
        if !replaced.is_file() {
            return Ok(None);
        }
        let giving = self.giving(Handle::of_special(&old), replaced, new);
        giving.of_replaced(self.settings().force).map(|()| None)
    }

    /// Sets the attributes of an existing copy.
    fn refresh(&self) -> Result<(), Problem> {
        if self.settings().dry_run {
            return Ok(());
        }
        let Some(directory) = self.target.directory() else { return Ok(()) };
        let existing_info = directory.open_with(self.name, OFlags::RDONLY | OFlags::NONBLOCK, 0);
        let existing_info = existing_info.map_err(on_errno("opening", &self.to))?;
        let giving = self.giving(Handle::of(&self.file), &self.info, &existing_info);
        AttributeCopy { is_old: true, ..giving }.all()
    }

    fn compare(&self, existing_info: &EntryInfo) -> Result<Comparison, Problem> {
        let settings = self.settings();
        if existing_info.size != self.info.size || !self.info.is_file() {
            return Ok(Comparison::Different);
        }
        let trusts_times = settings.resume && are_same_times(&self.info, existing_info);
        if !trusts_times && !self.has_same_content()? {
            return Ok(Comparison::Different);
        }
        let is_same = are_same(settings.keep, &self.info, existing_info)
            || settings.existing == Existing::Leave;
        Ok(if is_same { Comparison::Same } else { Comparison::OtherAttributes })
    }

    /// Returns true if the source and the existing file have the same bytes.
    fn has_same_content(&self) -> Result<bool, Problem> {
        let Some(directory) = self.target.directory() else { return Ok(false) };
        let Ok(existing_info) = directory.open_file(self.name, false) else { return Ok(false) };
        let open = |file: &File, path: &Path| {
            let file = file.try_clone().map_err(on("opening", path))?;
            Options::new().leave_cache(true).reader(file).map_err(on("reading", path))
        };
        if self.info.size <= 64 << 10 {
            let read = |file: &File| {
                let mut bytes = vec![0; self.info.size as usize];
                file.read_exact_at(&mut bytes, 0).map(|()| bytes)
            };
            return Ok(
                matches!((read(&self.file), read(&existing_info)), (Ok(a), Ok(b)) if a == b),
            );
        }
        let (mut ours, mut theirs) =
            (open(&self.file, &self.from)?, open(&existing_info, &self.to)?);
        loop {
            if self.settings().stops() {
                return Err(Problem::stopped(&self.from));
            }
            let one = io::BufRead::fill_buf(&mut ours).map_err(on("reading", &self.from))?;
            let other = io::BufRead::fill_buf(&mut theirs).map_err(on("reading", &self.to))?;
            let length = one.len().min(other.len());
            if length == 0 || one[..length] != other[..length] {
                return Ok(one.is_empty() && other.is_empty());
            }
            io::BufRead::consume(&mut ours, length);
            io::BufRead::consume(&mut theirs, length);
        }
    }
}

/// Describes a failed operation on a file, with the offset of the failure.
pub(crate) fn problem_at(
    doing: &str,
    path: &Path,
    offset: Option<u64>,
    error: &io::Error,
) -> Problem {
    match offset {
        // If the file system is full, the offset is omitted, because it does not help the user.
        Some(offset) if error.kind() != io::ErrorKind::StorageFull => {
            Problem::io(&format!("{doing} at byte {offset} of"), path, error)
        }
        _ => Problem::io(doing, path, error),
    }
}

/// Drops the clean pages of a file from the page cache.
pub(crate) fn drop_cached_pages(file: &File) {
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}

/// Returns the umask of this process.
pub(crate) fn umask() -> u32 {
    static MASK: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *MASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o077)
    })
}

type At<T> = Result<T, (u64, io::Error)>;

/// Adds the first `bytes` bytes of a file to a checksum.
pub(crate) fn hash_prefix(
    settings: &Settings,
    file: &File,
    bytes: u64,
    hasher: &mut ContentHasher,
) -> At<()> {
    sum_up_with(settings, &Options::new(), file, bytes, hasher)
}

fn sum_up_with(
    settings: &Settings,
    options: &Options,
    file: &File,
    bytes: u64,
    hasher: &mut ContentHasher,
) -> At<()> {
    // The file is opened again so that the position of `file` does not change.
    let mut reader = options.open(path_of(file)).map_err(|error| (0, error))?;
    let mut left = bytes;
    while left > 0 {
        if settings.stops() {
            return Err((bytes - left, io::Error::other("stopped")));
        }
        let at = reader.position();
        let Some(block) = reader.next_block().map_err(|error| (at, error))? else { break };
        let part = left.min(block.len() as u64);
        if block.is_hole() {
            hasher.zeros(part);
        } else {
            hasher.data(&block[..part as usize]);
        }
        left -= part;
    }
    Ok(())
}

/// Computes the checksum of the first `bytes` bytes of a file, as read from the storage.
pub(crate) fn read_back(settings: &Settings, file: &File, bytes: u64) -> At<blake3::Hash> {
    let mut hasher = ContentHasher::new();
    // Cached pages are dropped and direct I/O is used if possible, so that the data come from the
    // storage.
    drop_cached_pages(file);
    let options = Options::new().cache(Cache::Direct);
    sum_up_with(settings, &options, file, bytes, &mut hasher)?;
    Ok(hasher.finish())
}
