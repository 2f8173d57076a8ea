//! Copies standard input to files and devices, files to standard output, and files to devices.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, splice};
use seqio::copy::{Method, Watch};
use seqio::{Options, Reader};

use crate::attributes::AttributeCopy;
use crate::context::Context;
use crate::directory::{Directory, EntryInfo, split};
use crate::handle::Handle;
use crate::problem::{Problem, ProblemKind, on, on_errno};
use crate::progress::{Event, Progress};
use crate::regular::{drop_cached_pages, problem_at, read_back};
use crate::session::{Destination, Session};
use crate::settings::{Change, Existing, Settings};
use crate::staging::NewFile;
use crate::target::TargetDirectory;
use crate::watcher::Watcher;

/// Requested capacity of a pipe (bytes). Larger pipes cause fewer context switches.
const PIPE_BYTES: usize = 1 << 20;

/// An input of a copy: standard input, or an open file, pipe or device.
#[derive(Debug)]
pub struct Input {
    reader: Reader,
    name: PathBuf,
}

impl Input {
    /// Opens a file, pipe or device.
    ///
    /// # Errors
    /// Any error of opening the input. The error contains the path.
    pub fn open(path: &Path, options: &Options) -> Result<Input, Problem> {
        let reader = options.open(path).map_err(on("opening", path))?;
        Ok(Input { reader, name: path.to_path_buf() })
    }

    /// Returns an input that reads standard input from its current position. The next reader of
    /// standard input continues where this input stops.
    ///
    /// # Errors
    /// Any error of duplicating or inspecting standard input.
    pub fn stdin(options: &Options) -> Result<Input, Problem> {
        let name = PathBuf::from("standard input");
        let file = io::stdin().as_fd().try_clone_to_owned();
        let reader = file.and_then(|fd| options.reader(File::from(fd)));
        Ok(Input { reader: reader.map_err(on("reading", &name))?, name })
    }

    /// Returns how the input is read: direct or buffered, request size and queue depth.
    pub fn plan(&self) -> &seqio::Plan {
        self.reader.plan()
    }

    /// Returns the next block, or None at the end of the input.
    ///
    /// # Errors
    /// Any error of reading. The error contains the name of the input and the offset.
    pub fn next_block(&mut self) -> Result<Option<seqio::Block<'_>>, Problem> {
        // The buffer is filled first, because `failed` cannot use the reader while the returned
        // block borrows it.
        if let Err(error) = io::BufRead::fill_buf(&mut self.reader) {
            return Err(self.failed(&error));
        }
        self.reader.next_block().map_err(|error| Problem::io("reading", &self.name, &error))
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }

    pub(crate) fn reader_mut(&mut self) -> &mut Reader {
        &mut self.reader
    }

    pub(crate) fn failed(&self, error: &io::Error) -> Problem {
        let is_file = self.reader.size().is_ok();
        problem_at("reading", &self.name, is_file.then(|| self.reader.position()), error)
    }
}

/// An output that is already open: a pipe, a terminal or a file.
#[derive(Debug)]
pub struct Output {
    file: File,
    /// Capacity of the pipe (bytes). None if the output is not a pipe.
    pipe_bytes: Option<usize>,
}

/// Why a transfer stopped early.
#[derive(Debug)]
pub enum Broken {
    /// Reading the input failed.
    Reading(Problem),
    /// The read end of the pipe was closed.
    Gone,
    /// Writing the output failed.
    Writing(io::Error),
    /// The user stopped the transfer.
    Stopped,
}

impl Output {
    /// Wraps an open file. If the file is a pipe, enlarges its buffer.
    pub fn new(file: File) -> Output {
        let is_pipe = EntryInfo::of(&file).is_ok_and(|info| info.file_type() == FileType::Fifo);
        let pipe_bytes = is_pipe.then(|| {
            let _ = fcntl_setpipe_size(&file, PIPE_BYTES);
            fcntl_getpipe_size(&file).unwrap_or(64 << 10)
        });
        Output { file, pipe_bytes }
    }

    /// Returns an output that writes to standard output.
    ///
    /// # Errors
    /// Any error of duplicating the file descriptor.
    pub fn stdout() -> io::Result<Output> {
        Ok(Output::new(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
    }

    /// Sends all remaining data of an input and returns the number of bytes sent. If the output is
    /// a pipe, pages of the page cache are moved into the pipe without being copied.
    ///
    /// # Errors
    /// The reason why the transfer stopped early.
    pub fn send(&mut self, input: &mut Input, settings: &Settings) -> Result<u64, Broken> {
        let mut sent = 0;
        if let Some(pipe_bytes) = self.pipe_bytes
            && !input.reader.plan().direct
        {
            sent = self.splice(input, pipe_bytes, settings)?;
        }
        loop {
            let block = match input.reader.next_block() {
                Ok(Some(block)) => block,
                Ok(None) => return Ok(sent),
                Err(error) => return Err(Broken::Reading(input.failed(&error))),
            };
            pass(settings, block.len() as u64)?;
            self.file.write_all(&block).map_err(broken)?;
            sent += block.len() as u64;
        }
    }

    /// Moves pages into the pipe with splice(2), until the end of the input or the first error.
    /// Returns the number of bytes moved.
    fn splice(
        &mut self,
        input: &mut Input,
        pipe_bytes: usize,
        settings: &Settings,
    ) -> Result<u64, Broken> {
        let (mut sent, begin) = (0, input.reader.position());
        let has_offsets = input.reader.size().is_ok();
        let flags = SpliceFlags::MORE;
        let ended = loop {
            let mut offset = begin + sent;
            let from = has_offsets.then_some(&mut offset);
            match splice(input.reader.get_ref(), from, &self.file, None, pipe_bytes, flags) {
                Ok(0) => break Ok(()),
                Ok(moved) => {
                    sent += moved as u64;
                    pass(settings, moved as u64)?;
                }
                Err(Errno::INTR | Errno::AGAIN) => pass(settings, 0)?,
                Err(Errno::PIPE) => break Err(Broken::Gone),
                // After any other error, the caller falls back to reading and writing.
                Err(_) => break Ok(()),
            }
        };
        ended?;
        if has_offsets && sent > 0 {
            let seek = io::Seek::seek(&mut input.reader, io::SeekFrom::Start(begin + sent));
            seek.map_err(|error| Broken::Reading(input.failed(&error)))?;
        }
        Ok(sent)
    }
}

/// Counts transferred bytes and applies the rate limit. Returns an error if the user stopped the
/// transfer.
fn pass(settings: &Settings, bytes: u64) -> Result<(), Broken> {
    Progress::add(&settings.progress.moved_bytes, bytes);
    Progress::add(&settings.progress.bytes, bytes);
    settings.limiter.take(bytes, || settings.stops());
    if settings.stops() { Err(Broken::Stopped) } else { Ok(()) }
}

fn broken(error: io::Error) -> Broken {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Broken::Gone,
        _ => Broken::Writing(error),
    }
}

impl Session {
    /// Copies an input to a file. The file appears under its name only when it is complete.
    pub fn copy_input(&self, input: Input, to: &Destination) {
        if let Err(problem) = input_to_file(&self.context, input, to) {
            self.context.report(problem);
        }
    }

    /// Copies a file or device to an open block device.
    pub fn copy_to_device(&self, from: &Path, device: &File, name: &Path) {
        if let Err(problem) = file_to_device(&self.context, from, device, name) {
            self.context.report(problem);
        }
    }

    /// Copies an input to an open block device.
    pub fn copy_input_to_device(&self, input: Input, device: &File, name: &Path) {
        if let Err(problem) = input_to_device(&self.context, input, device, name) {
            self.context.report(problem);
        }
    }
}

fn input_to_file(context: &Context, input: Input, to: &Destination) -> Result<(), Problem> {
    let settings = &context.settings;
    let (parent, name) = split(&to.path).map_err(on("copying to", &to.path))?;
    let root = Arc::new(Directory::open(&parent).map_err(on_errno("opening", &parent))?);
    let failed = on_errno("opening", &root.path);
    let again = root.descend(Path::new("")).map_err(&failed)?;
    let target = TargetDirectory::new(again, Arc::clone(&root), PathBuf::new()).map_err(&failed)?;
    let replaced = target.look_up(&name).map_err(on_errno("looking at", &to.path))?;
    if let Some(there) = &replaced {
        if there.is_directory() {
            let what = format!("{} is a directory; specify a file", to.path.display());
            return Err(Problem::new(ProblemKind::Refused, &to.path, what));
        }
        if settings.existing == Existing::Leave {
            context.skipped(&to.path);
            return Ok(());
        }
        if let Err(why) = (settings.may_replace)(&to.path, there, Change::Replace) {
            return Err(Problem::new(ProblemKind::Refused, &to.path, why));
        }
    }
    let Some(place) = target.place(settings, &context.staging) else { return Ok(()) };
    let keeps = replaced.filter(EntryInfo::is_file);
    let new = NewFile::make(place, if keeps.is_some() { 0o600 } else { 0o666 })?;
    let mut watcher = Watcher::new(settings, 0);
    let from = input.name.clone();
    write_stream(context, input, &new.file, &to.path, &mut watcher)?;
    if let Some(replaced) = &keeps {
        keep_of_replaced(context, &target, &name, replaced, &new.file)?;
    }
    if settings.sync || settings.verify {
        new.file.sync_all().map_err(on("flushing", &to.path))?;
    }
    check(context, watcher, &new.file, &to.path)?;
    if !settings.cached {
        drop_cached_pages(&new.file);
    }
    new.publish(place, &name, replaced.is_some())?;
    context.flush_later(&root, false);
    Progress::add(&settings.progress.files, 1);
    settings.tell(&Event::Copied { from, to: to.path.clone() });
    Ok(())
}

fn keep_of_replaced(
    context: &Context,
    target: &TargetDirectory,
    name: &OsStr,
    replaced: &EntryInfo,
    new: &File,
) -> Result<(), Problem> {
    let Some(directory) = target.directory() else { return Ok(()) };
    let path = target.join(name);
    let old = directory.open_entry(name).map_err(on_errno("opening", &path))?;
    let giving = AttributeCopy {
        settings: &context.settings,
        left_out: &context.left_out,
        source: Handle::of_special(&old),
        info: replaced,
        target: Handle::of(new),
        path: &path,
        is_old: false,
    };
    giving.of_replaced(context.settings.force)
}

/// Writes an input to an open file or device, from its start.
fn write_stream(
    context: &Context,
    mut input: Input,
    to: &File,
    path: &Path,
    watcher: &mut Watcher,
) -> Result<u64, Problem> {
    let settings = &context.settings;
    let stopped =
        |problem: Problem| if settings.stops() { Problem::stopped(path) } else { problem };
    let options = settings.options.clone().unseen(true);
    let file = to.try_clone().map_err(on("opening", path))?;
    let mut writer = options.writer(file).map_err(on("writing", path))?;
    let mut at = 0;
    loop {
        let block = match input.reader.next_block() {
            Ok(Some(block)) => block,
            Ok(None) => break,
            Err(error) => return Err(stopped(input.failed(&error))),
        };
        let seen = if watcher.wants_data() { watcher.data(at, &block) } else { Ok(()) };
        let seen = seen.and_then(|()| watcher.moved(at, block.len() as u64));
        seen.map_err(|error| stopped(Problem::io("copying to", path, &error)))?;
        let written = writer.write_all(&block);
        written.map_err(|error| problem_at("writing", path, Some(at), &error))?;
        at += block.len() as u64;
        let seen = watcher.written(at);
        seen.map_err(|error| stopped(Problem::io("copying to", path, &error)))?;
    }
    writer.finish().map_err(|error| problem_at("writing", path, Some(at), &error))?;
    Ok(at)
}

/// Verifies the written data, if requested.
fn check(context: &Context, watcher: Watcher, file: &File, path: &Path) -> Result<(), Problem> {
    let Some(hasher) = watcher.hasher else { return Ok(()) };
    let (bytes, wanted) = (hasher.bytes(), hasher.finish());
    let found = read_back(&context.settings, file, bytes).map_err(|(at, error)| {
        if context.settings.stops() {
            Problem::stopped(path)
        } else {
            problem_at("reading back", path, Some(at), &error)
        }
    })?;
    if found == wanted {
        return Ok(());
    }
    let what = format!(
        "{}: the data read back differ from the data written; check the device and its cable, \
         then copy again",
        path.display()
    );
    Err(Problem::new(ProblemKind::Differs, path, what))
}

fn file_to_device(
    context: &Context,
    from: &Path,
    device: &File,
    name: &Path,
) -> Result<(), Problem> {
    let settings = &context.settings;
    let source = File::open(from).map_err(on("opening", from))?;
    let size = ioengine::open_file::size_bytes(&source).map_err(on("looking at", from))?;
    check_room(size, device, name)?;
    let mut watcher = Watcher::new(settings, 0);
    let copied = settings.options.copy(&source, device, 0, &mut watcher);
    let copied = copied.map_err(|error| match (settings.stops(), error.side) {
        (true, _) => Problem::stopped(from),
        (_, seqio::copy::Side::Source) => problem_at("reading", from, error.offset, error.error()),
        _ => problem_at("writing", name, error.offset, error.error()),
    })?;
    if copied.method == Method::Pipeline {
        settings.progress.note_how(&copied.how);
    }
    finish_device(context, watcher, device, name)
}

fn input_to_device(
    context: &Context,
    input: Input,
    device: &File,
    name: &Path,
) -> Result<(), Problem> {
    if let Ok(size) = input.reader.size() {
        check_room(size.saturating_sub(input.reader.position()), device, name)?;
    }
    let mut watcher = Watcher::new(&context.settings, 0);
    write_stream(context, input, device, name, &mut watcher)?;
    finish_device(context, watcher, device, name)
}

/// Refuses a source that is larger than the device, before anything is written.
fn check_room(size: u64, device: &File, name: &Path) -> Result<(), Problem> {
    let room = ioengine::open_file::size_bytes(device).map_err(on("looking at", name))?;
    if size <= room {
        return Ok(());
    }
    let shown = name.display();
    let what = format!(
        "the source has {size} bytes, but {shown} has only {room}, so nothing was written; use a \
         larger device"
    );
    Err(Problem::new(ProblemKind::Refused, name, what))
}

fn finish_device(
    context: &Context,
    watcher: Watcher,
    device: &File,
    name: &Path,
) -> Result<(), Problem> {
    let settings = &context.settings;
    if settings.sync || settings.verify {
        device.sync_all().map_err(on("flushing", name))?;
    }
    check(context, watcher, device, name)?;
    if !settings.cached {
        drop_cached_pages(device);
    }
    Progress::add(&settings.progress.files, 1);
    Ok(())
}
