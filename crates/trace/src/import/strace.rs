//! Imports the output of `strace -ttt -T`, whose format is described in strace(1). The options `-f`
//! and `-y` make the imported trace more complete.
//!
//! Each call that opens, closes, reads, writes, flushes or truncates a file, reserves space in a
//! file, or advises the kernel about a file (fadvise64) becomes a request. The two parts of an
//! interrupted call (`<unfinished ...>`) are joined. If a read or write has no offset argument, its
//! offset is derived from earlier calls, such as open, lseek, dup and read. The offset is unknown
//! for descriptors that were open before the trace began, and for writes that append. With `-y`,
//! file names are the paths that strace prints. Without `-y`, they are the paths that the program
//! passed.
//!
//! Other calls are skipped. Calls on sockets, pipes and terminals are skipped too, if the trace
//! shows what the descriptor refers to. Asynchronous calls (io_submit, io_uring_enter) and splice
//! calls count as lost, because strace does not show their requests. Without `-T`, requests have no
//! latency.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;
use std::rc::Rc;

use crate::error::TraceError;
use crate::import::lines::Lines;
use crate::import::sink::{Sink, bare};
use crate::request::{Call, FileId, Operation, Request};
use descriptors::{Descriptors, OpenFile, Shared};
use syntax::{Parts, Said, descriptor, parts, quoted};

mod descriptors;
mod syntax;

/// Maximum total length of the unfinished calls that are held in memory (bytes).
const UNFINISHED_MOST: usize = 16 << 20;

const EXPECTED: &str = "a call such as '4711 1700000000.000001 close(3) = 0 <0.000010>' (-ttt)";

/// Returns whether the line is a call as strace prints it with `-ttt`.
pub(crate) fn is_call(text: &str) -> bool {
    match syntax::line(text).map(|line| line.said) {
        Some(Said::Call(_, rest)) => parts(rest).is_some(),
        Some(Said::Unfinished(..) | Said::Resumed(..)) => true,
        _ => false,
    }
}

/// Reads the output of strace.
///
/// # Errors
/// If a line does not match the format, or if the trace cannot be written.
pub(crate) fn read<W: Write + Send>(
    lines: &mut Lines<'_>,
    sink: &mut Sink<W>,
) -> Result<(), TraceError> {
    sink.times_since_1970();
    let mut calls = Calls { descriptors: Descriptors::default(), sink, other: 0 };
    let mut unfinished: HashMap<u32, (u64, String)> = HashMap::new();
    let mut unfinished_bytes = 0;
    while lines.next()? {
        let text = lines.text().trim();
        if text.is_empty() || text.starts_with("strace: ") {
            continue;
        }
        let line = syntax::line(text).ok_or_else(|| lines.bad(EXPECTED))?;
        let thread = line.thread;
        match line.said {
            Said::Call(name, rest) => {
                let parts = parts(rest).ok_or_else(|| lines.bad("a call with its result"))?;
                calls.call(thread, line.at_ns, name, &parts)?;
            }
            Said::Unfinished(_, begun) => {
                if unfinished_bytes + begun.len() > UNFINISHED_MOST {
                    calls.sink.lose("calls left out because of too many unfinished calls", 1);
                    continue;
                }
                unfinished_bytes += begun.len();
                let before = unfinished.insert(thread, (line.at_ns, begun.to_owned()));
                if let Some((_, before)) = before {
                    unfinished_bytes -= before.len();
                    calls.sink.lose("calls that did not return", 1);
                }
            }
            Said::Resumed(name, rest) => {
                let Some((at_ns, mut whole)) = unfinished.remove(&thread) else {
                    calls.sink.lose("calls that began before the trace", 1);
                    continue;
                };
                unfinished_bytes -= whole.len();
                whole.push_str(rest);
                let parts = parts(&whole).ok_or_else(|| lines.bad("the rest of a call"))?;
                calls.call(thread, at_ns, name, &parts)?;
            }
            Said::Exited => calls.descriptors.end(thread),
            Said::Signal => {}
        }
    }
    let other = calls.other;
    sink.lose("calls that did not return", unfinished.len() as u64);
    if other > 0 {
        sink.note(format!("{other} reads and writes of sockets, pipes or devices are left out"));
    }
    Ok(())
}

/// Converts system calls to requests.
struct Calls<'a, W: Write + Send> {
    descriptors: Descriptors,
    sink: &'a mut Sink<W>,
    /// Number of reads and writes of sockets, pipes, and devices that are not storage.
    other: u64,
}

/// A completed call with its parsed parts.
struct Made<'a> {
    thread: u32,
    at_ns: u64,
    name: &'a str,
    parts: &'a Parts<'a>,
    result: i64,
}

impl Made<'_> {
    fn argument(&self, at: usize) -> &str {
        self.parts.arguments.get(at).copied().unwrap_or_default()
    }

    fn number(&self, at: usize) -> Option<u64> {
        number(self.argument(at))
    }
}

/// Parses a decimal or hexadecimal number. If an argument is a pointer to a number, strace prints
/// this number in brackets, for example `[4096]`. In `[4096] => [8192]`, the first number is the
/// value before the call, and is returned.
fn number(text: &str) -> Option<u64> {
    let text = text.split("=>").next().unwrap_or_default().trim();
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl<W: Write + Send> Calls<'_, W> {
    fn call(
        &mut self,
        thread: u32,
        at_ns: u64,
        name: &str,
        parts: &Parts<'_>,
    ) -> Result<(), TraceError> {
        let Some(result) = parts.result else {
            if !matches!(name, "exit" | "exit_group" | "execve") {
                self.sink.lose("calls that did not return", 1);
            }
            return Ok(());
        };
        let made = &Made { thread, at_ns, name, parts, result };
        match name {
            "open" | "creat" | "openat" | "openat2" => self.open(made),
            "read" | "readv" | "pread64" | "preadv" | "preadv2" => {
                self.transfer(made, Operation::Read)
            }
            "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" => {
                self.transfer(made, Operation::Write)
            }
            "sendfile" => {
                self.part_of_copy(made, Operation::Read, (1, Some(2)), 3)?;
                self.part_of_copy(made, Operation::Write, (0, None), 3)
            }
            "copy_file_range" => {
                self.part_of_copy(made, Operation::Read, (0, Some(1)), 4)?;
                self.part_of_copy(made, Operation::Write, (2, Some(3)), 4)
            }
            "fsync" | "fdatasync" | "syncfs" | "sync_file_range" | "sync" | "msync" => {
                self.flush(made)
            }
            "ftruncate" | "truncate" | "fallocate" | "fadvise64" | "readahead" => self.range(made),
            "close" => self.close(made),
            "clone" | "clone3" | "fork" | "vfork" => {
                let flags = |flag: &str| parts.arguments.iter().any(|text| text.contains(flag));
                if let Some(child) = u32::try_from(result).ok().filter(|child| *child > 0) {
                    let (shares, is_thread) = (flags("CLONE_FILES"), flags("CLONE_THREAD"));
                    self.descriptors.begin(thread, child, shares, is_thread);
                }
                Ok(())
            }
            "io_submit" | "io_uring_enter" | "splice" | "vmsplice" | "tee" => {
                self.sink.lose(
                    "asynchronous calls and splices (strace does not show the resulting requests)",
                    1,
                );
                Ok(())
            }
            _ => {
                self.bookkeeping(made);
                Ok(())
            }
        }
    }

    /// Sets the position of a descriptor after a seek. lseek returns the new position, which may
    /// exceed 2 GiB. _llseek stores it in the third argument.
    fn seek(&mut self, made: &Made<'_>) {
        let position = match made.name {
            "lseek" => u64::try_from(made.result).ok(),
            _ => made.number(2),
        };
        if let Some(open) = self.descriptor(made, 0) {
            open.borrow_mut().position = position;
        }
    }

    /// Updates the descriptors after a call that is not a request, such as dup or pipe.
    fn bookkeeping(&mut self, made: &Made<'_>) {
        let thread = made.thread;
        if made.result < 0 {
            return;
        }
        if matches!(made.name, "lseek" | "_llseek") {
            self.seek(made);
            return;
        }
        let Ok(returned) = i32::try_from(made.result) else { return };
        let argument = |at| descriptor(made.argument(at)).map(|(number, _)| number);
        match made.name {
            "dup" | "dup2" | "dup3" => self.duplicate(made, returned),
            "fcntl" | "fcntl64" => match made.argument(1) {
                "F_DUPFD" | "F_DUPFD_CLOEXEC" => self.duplicate(made, returned),
                "F_SETFL" => {
                    if let Some(open) = argument(0).and_then(|fd| self.descriptors.get(thread, fd))
                    {
                        let flags = made.argument(2);
                        open.borrow_mut().direct = flags.contains("O_DIRECT");
                        open.borrow_mut().append = flags.contains("O_APPEND");
                    }
                }
                _ => {}
            },
            "socket" | "accept" | "accept4" | "eventfd" | "eventfd2" | "epoll_create"
            | "epoll_create1" | "timerfd_create" | "signalfd" | "signalfd4" | "inotify_init"
            | "inotify_init1" | "memfd_create" | "pidfd_open" | "userfaultfd" => {
                self.not_storage(thread, returned);
            }
            "pipe" | "pipe2" | "socketpair" => {
                let at = if made.name == "socketpair" { 3 } else { 0 };
                let both = made.argument(at).trim_start_matches('[').trim_end_matches(']');
                for (number, _) in both.split(", ").filter_map(descriptor) {
                    self.not_storage(thread, number);
                }
            }
            _ => {}
        }
    }

    fn not_storage(&mut self, thread: u32, number: i32) {
        let open = OpenFile { storage: false, ..unknown(FileId(0)) };
        self.descriptors.set(thread, number, Rc::new(RefCell::new(open)));
    }

    fn duplicate(&mut self, made: &Made<'_>, returned: i32) {
        if let Some(open) = self.descriptor(made, 0) {
            self.descriptors.set(made.thread, returned, open);
        }
    }

    /// Returns the open file of the descriptor in argument `at`. If the trace does not show how
    /// this file was opened, its position is unknown.
    fn descriptor(&mut self, made: &Made<'_>, at: usize) -> Option<Shared> {
        let (number, name) = descriptor(made.argument(at))?;
        let known = self.descriptors.get(made.thread, number);
        let name = name.map(str::to_owned).map(|name| unescaped(&name));
        let open = match (known, &name) {
            (Some(known), None) => return Some(known),
            (Some(known), Some(name)) => {
                let storage = known.borrow().storage;
                if storage == is_storage(name)
                    && (!storage || known.borrow().file == self.sink.file(name))
                {
                    return Some(known);
                }
                OpenFile { storage: is_storage(name), ..unknown(self.sink.file(name)) }
            }
            (None, Some(name)) if is_storage(name) => unknown(self.sink.file(name)),
            (None, Some(_)) => OpenFile { storage: false, ..unknown(FileId(0)) },
            (None, None) => {
                let process = self.descriptors.process(made.thread);
                let name = match number {
                    0 => "stdin".to_owned(),
                    1 => "stdout".to_owned(),
                    2 => "stderr".to_owned(),
                    _ => format!("descriptor {number} of process {process}"),
                };
                unknown(self.sink.file(&name))
            }
        };
        let open = Rc::new(RefCell::new(open));
        self.descriptors.set(made.thread, number, Rc::clone(&open));
        Some(open)
    }

    fn open(&mut self, made: &Made<'_>) -> Result<(), TraceError> {
        let (path_at, flags_at) = match made.name {
            "open" => (0, Some(1)),
            "creat" => (0, None),
            _ => (1, Some(2)),
        };
        let path = quoted(made.argument(path_at)).unwrap_or_default();
        let folder = made.argument(0).split_once('<');
        let folder = folder.and_then(|(_, name)| Some(&name[..name.rfind('>')?]));
        let name = match (made.parts.returned, folder) {
            (Some(returned), _) if returned.starts_with('/') => unescaped(returned),
            (_, Some(folder)) if path_at == 1 && !path.starts_with('/') => {
                format!("{}/{path}", unescaped(folder).trim_end_matches('/'))
            }
            _ => path,
        };
        let file = self.sink.file(&name);
        let flags = flags_at.map_or("", |at| made.argument(at));
        let has = |flag: &str| {
            let words = flags.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            words.into_iter().any(|word| word == flag)
        };
        let open = OpenFile {
            position: Some(0),
            direct: has("O_DIRECT"),
            durable: has("O_SYNC") || has("O_DSYNC"),
            append: has("O_APPEND"),
            storage: is_storage(&name) || !name.starts_with('/'),
            ..unknown(file)
        };
        if let Ok(number) = i32::try_from(made.result)
            && number >= 0
        {
            self.descriptors.set(made.thread, number, Rc::new(RefCell::new(open)));
        }
        if open.storage { self.push(made, Operation::Open, open, None, 0) } else { Ok(()) }
    }

    /// Adds a read or write. The offset is an argument of the call, or the position of the open
    /// file.
    fn transfer(&mut self, made: &Made<'_>, operation: Operation) -> Result<(), TraceError> {
        let Some(open) = self.descriptor(made, 0) else { return Ok(()) };
        if !open.borrow().storage {
            self.other += 1;
            return Ok(());
        }
        let moved = u64::try_from(made.result).unwrap_or(0);
        let bytes = match made.name.contains('v') {
            true => vector_bytes(made.argument(1)).max(moved),
            false => made.number(2).unwrap_or(moved),
        };
        let flags = made.argument(4);
        let offset = made.name.starts_with('p').then(|| made.argument(3)).filter(|at| *at != "-1");
        let mut seen = *open.borrow();
        seen.durable |= flags.contains("RWF_SYNC") || flags.contains("RWF_DSYNC");
        let offset = match offset {
            Some(offset) => number(offset),
            None => advance(&open, operation, moved),
        };
        self.push(made, operation, seen, offset, bytes)
    }

    /// Adds the read or the write of a copy within the kernel. `descriptor_at`, `offset_at` and
    /// `length_at` are indices of arguments.
    fn part_of_copy(
        &mut self,
        made: &Made<'_>,
        operation: Operation,
        (descriptor_at, offset_at): (usize, Option<usize>),
        length_at: usize,
    ) -> Result<(), TraceError> {
        let Some(open) = self.descriptor(made, descriptor_at) else { return Ok(()) };
        if !open.borrow().storage {
            self.other += 1;
            return Ok(());
        }
        let moved = u64::try_from(made.result).unwrap_or(0);
        let offset = match offset_at.and_then(|at| made.number(at)) {
            Some(offset) => Some(offset),
            None => advance(&open, operation, moved),
        };
        let seen = *open.borrow();
        self.push(made, operation, seen, offset, made.number(length_at).unwrap_or(moved))
    }

    fn flush(&mut self, made: &Made<'_>) -> Result<(), TraceError> {
        let open = match made.name {
            "sync" | "msync" => None,
            _ => self.descriptor(made, 0),
        };
        let seen = open.map_or_else(|| unknown(self.sink.file("")), |open| *open.borrow());
        let (offset, bytes) = match made.name {
            "sync_file_range" => (made.number(1), made.number(2).unwrap_or(0)),
            _ => (None, 0),
        };
        self.push(made, Operation::Flush, seen, offset, bytes)
    }

    /// Adds a call that applies to a range of a file, such as fallocate, or sets the length of a
    /// file, such as ftruncate.
    fn range(&mut self, made: &Made<'_>) -> Result<(), TraceError> {
        let seen = if made.name == "truncate" {
            let path = quoted(made.argument(0)).unwrap_or_default();
            unknown(self.sink.file(&path))
        } else {
            match self.descriptor(made, 0) {
                Some(open) => *open.borrow(),
                None => return Ok(()),
            }
        };
        let (operation, offset_at, bytes_at) = match made.name {
            "fallocate" if made.argument(1).contains("PUNCH_HOLE") => (Operation::Discard, 2, 3),
            "fallocate" => (Operation::Allocate, 2, 3),
            "fadvise64" | "readahead" => (Operation::Advise, 1, 2),
            _ => (Operation::Truncate, 1, usize::MAX),
        };
        let bytes = made.number(bytes_at).unwrap_or(0);
        self.push(made, operation, seen, made.number(offset_at), bytes)
    }

    fn close(&mut self, made: &Made<'_>) -> Result<(), TraceError> {
        let Some(open) = self.descriptor(made, 0) else { return Ok(()) };
        let seen = *open.borrow();
        if let (0.., Some((number, _))) = (made.result, descriptor(made.argument(0))) {
            self.descriptors.remove(made.thread, number);
        }
        if seen.storage { self.push(made, Operation::Close, seen, None, 0) } else { Ok(()) }
    }

    fn push(
        &mut self,
        made: &Made<'_>,
        operation: Operation,
        open: OpenFile,
        offset: Option<u64>,
        bytes: u64,
    ) -> Result<(), TraceError> {
        self.sink.push(&Request {
            latency_ns: made.parts.latency_ns,
            process: self.descriptors.process(made.thread),
            thread: made.thread,
            call: Call::named(made.name).unwrap_or(Call::UNKNOWN),
            offset,
            bytes,
            result: Some(made.result),
            direct: open.direct,
            durable: open.durable,
            ..bare(made.at_ns, operation, open.file)
        })
    }
}

/// Returns whether a name is the path of a file or a disk. Sockets and pipes have no path, and the
/// listed devices store nothing.
fn is_storage(name: &str) -> bool {
    let devices =
        ["/dev/null", "/dev/zero", "/dev/tty", "/dev/pts/", "/dev/random", "/dev/urandom"];
    name.starts_with('/') && !devices.iter().any(|device| name.starts_with(device))
}

/// Returns an open file with unknown position and default flags.
fn unknown(file: FileId) -> OpenFile {
    let (position, direct, durable, append, storage) = (None, false, false, false, true);
    OpenFile { file, position, direct, durable, append, storage }
}

/// Returns the position of the open file, and then advances the position by the bytes moved.
fn advance(open: &Shared, operation: Operation, moved: u64) -> Option<u64> {
    let mut open = open.borrow_mut();
    if open.append && operation == Operation::Write {
        // The write is at the end of the file, and the trace does not show where the end is.
        open.position = None;
    }
    let at = open.position;
    open.position = at.map(|at| at.saturating_add(moved));
    at
}

/// Sums the buffer lengths of an iovec array. If the array is long, strace prints only the first
/// elements.
fn vector_bytes(vector: &str) -> u64 {
    let lengths = vector.split("iov_len=").skip(1);
    let digits = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse::<u64>().unwrap_or(0)
    };
    lengths.map(digits).fold(0, u64::saturating_add)
}

/// Resolves the escape sequences in a path that strace prints with `-y`.
fn unescaped(name: &str) -> String {
    quoted(&format!("\"{name}\"")).unwrap_or_else(|| name.to_owned())
}
