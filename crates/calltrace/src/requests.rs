//! Turns records into requests of a trace: finds the names of files and the offsets of requests,
//! and combines the submission and the completion of asynchronous requests.

use std::collections::{HashMap, HashSet};
use std::fs;

use trace::{Call, FileId, Operation, Request};

use crate::calls::{self, At, Kind, Traced};
use crate::filter::Filter;
use crate::names::Names;
use crate::record::{self, FileState, Inode, Record, What};

const DIRECT: u32 = libc::O_DIRECT as u32;
const APPEND: u32 = libc::O_APPEND as u32;
/// The flag that makes each write durable. O_SYNC includes this flag.
const DURABLE: u32 = libc::O_DSYNC as u32;
/// Maximum number of bytes that one call moves (`MAX_RW_COUNT`, read(2)). Programs may request
/// more.
const CALL_BYTES_MAX: u64 = 0x7FFF_F000;
/// Maximum number of libaio completions that wait for the records of their submissions.
const EARLY_MAX: usize = 1 << 16;
/// Offset that means the current file position, for example in io_uring requests.
const OWN_POSITION: u64 = u64::MAX;
/// Length of a sector of the block layer (bytes).
const SECTOR_BYTES: u64 = 512;
/// Marks a file that is not recorded.
const NOT_RECORDED: FileId = FileId(u32::MAX);

/// Turns records into requests. The start time of a request is on `CLOCK_MONOTONIC`.
#[derive(Debug)]
pub struct Requests {
    page_bytes: u64,
    /// The files and devices that are recorded. None if all are recorded.
    filter: Option<Filter>,
    calls: HashMap<u32, Traced>,
    names: Names,
    /// The current number of each file. A file that is opened with another path gets another
    /// number.
    files: HashMap<Inode, FileId>,
    /// The number of each file for each path that the file had.
    named: HashMap<(Inode, String), FileId>,
    file_names: Vec<String>,
    /// Libaio requests that were submitted but not reaped yet, by process and address.
    pending: HashMap<(u32, u64), Request>,
    /// Libaio completions whose submission was not recorded yet, by process and address. The values
    /// are the end (ns) and the result of the request. Another thread may take a completion before
    /// `io_submit` returns.
    early: HashMap<(u32, u64), (u64, i64)>,
    processes: HashMap<u32, String>,
    /// Working directory of each process, by process id.
    folders: HashMap<u32, Inode>,
    /// Processes whose open files were already looked up.
    known: HashSet<u32>,
    /// Number of libaio completions whose submission is unknown.
    unmatched: u64,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests::new()
    }
}

impl Requests {
    /// Creates a converter that knows no file and no process yet.
    pub fn new() -> Requests {
        Requests::of(None)
    }

    /// Creates a converter like [`Requests::new`]. The converter reports only requests to the files
    /// and devices of `filter`.
    pub fn only(filter: Filter) -> Requests {
        Requests::of(Some(filter))
    }

    fn of(filter: Option<Filter>) -> Requests {
        let calls = calls::all().into_iter().map(|call| (call.number, call)).collect();
        Requests {
            page_bytes: page_bytes(),
            filter,
            calls,
            names: Names::default(),
            files: HashMap::new(),
            named: HashMap::new(),
            file_names: Vec::new(),
            pending: HashMap::new(),
            early: HashMap::new(),
            processes: HashMap::new(),
            folders: HashMap::new(),
            known: HashSet::new(),
            unmatched: 0,
        }
    }

    /// Learns the name and the open files of a process that is already running.
    pub fn learn_process(&mut self, process: u32) {
        if self.known.insert(process) {
            self.names.learn_open_files(process);
            if let Some(folder) = self.names.learn_folder(process) {
                self.folders.insert(process, folder);
            }
            if let Ok(name) = fs::read_to_string(format!("/proc/{process}/comm")) {
                self.processes.entry(process).or_insert_with(|| name.trim_end().to_owned());
            }
        }
    }

    /// Processes a record. Calls `done` with each request that the record completes.
    pub fn take(&mut self, record: &Record<'_>, mut done: impl FnMut(Request)) {
        let mut done = |request: Request| {
            if request.file != NOT_RECORDED {
                done(request);
            }
        };
        match record.what {
            What::Call(call) => done(self.of_call(record, &call)),
            What::Open { call, path, .. } if self.changes_folder(&call) => {
                let before = self.folders.insert(record.process, call.file.inode);
                self.names.learn(call.file.inode, before.unwrap_or_default(), path);
            }
            What::Open { call, folder, path } => {
                if self.names.learn(call.file.inode, folder, path) {
                    self.files.remove(&call.file.inode);
                }
                if call.file.is_regular() || call.file.is_device() || call.file.is_folder() {
                    done(self.of_call(record, &call));
                }
            }
            What::AioSubmit { request, opcode, bytes, offset, file } => {
                let submitted = self.of_aio(record, opcode, (offset, bytes), file);
                submitted.and_then(|made| self.submit(request, made)).into_iter().for_each(done);
            }
            What::AioReap { request, result } => {
                self.reap(record, request, result).into_iter().for_each(done);
            }
            What::Uring { opcode, length, offset, result, file } => {
                let uring = self.of_uring(record, opcode, (length, offset), result.into(), file);
                uring.into_iter().for_each(done);
            }
            What::Block { device, flags, sector, bytes, failed } => {
                let block = self.of_block(record, (device, flags), sector, bytes, failed);
                block.into_iter().for_each(done);
            }
            What::Fork { child } => {
                if let Some(folder) = self.folders.get(&record.process) {
                    self.folders.insert(child, *folder);
                }
                if let Some(name) = self.processes.get(&record.process) {
                    self.processes.insert(child, name.clone());
                }
            }
            What::Exec(name) => {
                let name = String::from_utf8_lossy(name).into_owned();
                self.processes.insert(record.process, name);
            }
            What::Exit => {
                self.folders.remove(&record.process);
                self.known.remove(&record.process);
            }
            What::Fault { page, file } => {
                let mut made = self.blank(record, Call::PAGE_FAULT, Operation::Read, file);
                made.latency_ns = None;
                made.offset = Some(page.saturating_mul(self.page_bytes));
                made.bytes = self.page_bytes;
                done(made);
            }
        }
    }

    /// Ends the trace. Calls `done` with each request that is still in progress, and returns the
    /// number of completions whose submission is unknown.
    pub fn finish(&mut self, done: impl FnMut(Request)) -> u64 {
        let pending = self.pending.drain().map(|(_, request)| request);
        pending.filter(|request| request.file != NOT_RECORDED).for_each(done);
        self.unmatched + self.early.len() as u64
    }

    /// Returns the names of the files. The index of a name is the number of the file.
    pub fn file_names(&self) -> &[String] {
        &self.file_names
    }

    /// Returns the ids and names of the processes.
    pub fn processes(&self) -> impl Iterator<Item = trace::Process> {
        let of = |(id, name): (&u32, &String)| trace::Process { id: *id, name: name.clone() };
        self.processes.iter().map(of)
    }

    fn changes_folder(&self, call: &record::Call) -> bool {
        self.calls.get(&call.number).is_some_and(|known| known.kind == Kind::Folder)
    }

    /// Creates a request from the values that every record contains.
    fn blank(
        &mut self,
        record: &Record<'_>,
        call: Call,
        operation: Operation,
        file: FileState,
    ) -> Request {
        Request {
            start_ns: record.start_ns,
            latency_ns: Some(record.end_ns.saturating_sub(record.start_ns)),
            process: record.process,
            thread: record.thread,
            call,
            operation,
            file: self.file(record.process, file.inode),
            offset: None,
            bytes: 0,
            result: None,
            direct: file.flags & DIRECT != 0,
            durable: operation == Operation::Write && file.flags & DURABLE != 0,
            device_bytes: None,
            sleeps: None,
        }
    }

    fn of_call(&mut self, record: &Record<'_>, call: &record::Call) -> Request {
        let known = self.calls.get(&call.number).copied();
        let name = known.and_then(|known| Call::named(known.name)).unwrap_or(Call::UNKNOWN);
        let name = match name.name() {
            "fadvise64" => Call::with_advice(call.arguments[3]).unwrap_or(name),
            _ => name,
        };
        let operation = match known {
            Some(known) if call.is_second && known.kind != Kind::Plain => Operation::Write,
            Some(known) => known.operation,
            None => Operation::Advise,
        };
        let moved = u64::try_from(call.result).unwrap_or(0);
        let mut made = self.blank(record, name, operation, call.file);
        made.result = Some(call.result);
        let is_seekable = call.file.is_regular() || call.file.is_device();
        let before = is_seekable.then(|| call.file.position.saturating_sub(moved));
        let is_at_position = known.is_some_and(|known| known.offset == At::Position);
        made.offset = match known.map_or(At::Nowhere, |known| known.offset) {
            At::Argument(argument) => Some(call.arguments[argument]),
            At::PositionUnless(pointers)
                if pointers[usize::from(call.is_second)]
                    .is_some_and(|pointer| call.arguments[pointer] != 0) =>
            {
                None
            }
            At::Position | At::PositionUnless(_) => before,
            At::Nowhere => None,
        };
        if made.offset == Some(OWN_POSITION) {
            made.offset = before;
        } else if operation == Operation::Write && call.file.flags & APPEND != 0 {
            // A write with O_APPEND always writes at the end of the file. Its offset is known only
            // if the call also moves the file position.
            made.offset = made.offset.filter(|_| is_at_position).and(before);
        }
        made.bytes = match known.and_then(|known| known.length) {
            Some(argument) if operation.moves_data() => {
                call.arguments[argument].min(CALL_BYTES_MAX)
            }
            Some(argument) => call.arguments[argument],
            None if operation.moves_data() => moved,
            None => 0,
        };
        // Advice such as POSIX_FADV_WILLNEED also reads from the device.
        let asks_device = operation.moves_data() || operation == Operation::Advise;
        // A copy within the kernel, such as `sendfile`, becomes a read and a write request. Only
        // the read request gets the device bytes of the call.
        let is_second_file = call.is_second && name.is_copy();
        made.device_bytes = (asks_device && !is_second_file).then_some(call.device_bytes);
        made.sleeps = Some(call.sleeps);
        made
    }

    fn of_aio(
        &mut self,
        record: &Record<'_>,
        opcode: u16,
        (offset, bytes): (u64, u64),
        file: FileState,
    ) -> Option<Request> {
        let operation = aio_operation(opcode)?;
        let mut made = self.blank(record, Call::LIBAIO, operation, file);
        made.latency_ns = None;
        made.offset = operation.moves_data().then_some(offset);
        made.bytes = if aio_is_vectored(opcode) { 0 } else { bytes.min(CALL_BYTES_MAX) };
        Some(made)
    }

    /// Adds a submitted libaio request. Returns this request if another thread has already reaped
    /// it. Otherwise returns an earlier request at the same address, if that request was never
    /// reaped.
    fn submit(&mut self, address: u64, made: Request) -> Option<Request> {
        let key = (made.process, address);
        match self.early.remove(&key) {
            Some((end_ns, result)) if end_ns >= made.start_ns => Some(ended(made, end_ns, result)),
            _ => self.pending.insert(key, made),
        }
    }

    /// Adds a libaio completion. Returns the completed request if its submission is known.
    fn reap(&mut self, record: &Record<'_>, address: u64, result: i64) -> Option<Request> {
        let key = (record.process, address);
        if let Some(request) = self.pending.remove(&key) {
            return Some(ended(request, record.end_ns, result));
        }
        let is_kept = self.early.len() < EARLY_MAX;
        let before = is_kept.then(|| self.early.insert(key, (record.end_ns, result)));
        self.unmatched += u64::from(before != Some(None));
        None
    }

    fn of_uring(
        &mut self,
        record: &Record<'_>,
        opcode: u8,
        (length, offset): (u32, u64),
        result: i64,
        file: FileState,
    ) -> Option<Request> {
        let (operation, is_vectored) = uring_operation(opcode)?;
        let mut made = self.blank(record, Call::IO_URING, operation, file);
        let moved = u64::try_from(result).unwrap_or(0);
        made.result = Some(result);
        if operation.moves_data() {
            let before = file.position.saturating_sub(moved);
            made.offset = Some(if offset == OWN_POSITION { before } else { offset });
            made.bytes = if is_vectored { moved } else { length.into() };
        }
        Some(made)
    }

    fn of_block(
        &mut self,
        record: &Record<'_>,
        (device, flags): (u32, u32),
        sector: u64,
        bytes: u32,
        failed: bool,
    ) -> Option<Request> {
        // The numbers are those of `enum req_op` in the kernel. Driver and zone commands are
        // ignored.
        let operation = match flags & 0xFF {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Flush,
            3 | 5 | 9 => Operation::Discard,
            _ => return None,
        };
        let inode = Inode { device, number: 0 };
        if !self.is_recorded(inode) {
            return None;
        }
        // It is possible that the process that issued the request is not watched. Its open files
        // are therefore not looked up.
        self.files.entry(inode).or_insert_with(|| {
            self.file_names.push(unnamed(inode));
            FileId(self.file_names.len() as u32 - 1)
        });
        let file = FileState { inode, ..FileState::default() };
        let mut made = self.blank(record, Call::BLOCK, operation, file);
        made.offset = (operation != Operation::Flush).then(|| sector * SECTOR_BYTES);
        made.bytes = bytes.into();
        made.result = Some(if failed { -i64::from(libc::EIO) } else { bytes.into() });
        made.device_bytes = Some(bytes.into());
        Some(made)
    }

    fn is_recorded(&self, inode: Inode) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.has(inode))
    }

    /// Returns the number of a file. A new file gets the next number.
    fn file(&mut self, process: u32, inode: Inode) -> FileId {
        if !self.is_recorded(inode) {
            return NOT_RECORDED;
        }
        if let Some(file) = self.files.get(&inode) {
            return *file;
        }
        let name = match self.names.get(inode) {
            Some(name) => name.to_owned(),
            None if inode == Inode::default() => String::new(),
            None => {
                self.known.remove(&process);
                self.learn_process(process);
                let name = self.names.get(inode).map(str::to_owned);
                name.unwrap_or_else(|| unnamed(inode))
            }
        };
        let next = FileId(self.file_names.len() as u32);
        let file = *self.named.entry((inode, name.clone())).or_insert(next);
        if file == next {
            self.file_names.push(name);
        }
        self.files.insert(inode, file);
        file
    }
}

/// Completes a request with its latency and result.
fn ended(mut request: Request, end_ns: u64, result: i64) -> Request {
    request.latency_ns = Some(end_ns.saturating_sub(request.start_ns));
    request.result = Some(result);
    if request.bytes == 0 && request.operation.moves_data() {
        request.bytes = u64::try_from(result).unwrap_or(0);
    }
    request
}

/// Returns a name for a file whose path is unknown, for example `/dev/sda` for a device, or `inode
/// 1234 on device 8:1`.
fn unnamed(inode: Inode) -> String {
    let (major, minor) = (inode.device >> 20, inode.device & 0xF_FFFF);
    if inode.number != 0 {
        return format!("inode {} on device {major}:{minor}", inode.number);
    }
    let link = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok();
    let name = link.as_ref().and_then(|link| link.file_name());
    name.map_or_else(
        || format!("device {major}:{minor}"),
        |name| format!("/dev/{}", name.to_string_lossy().replace('!', "/")),
    )
}

/// Returns the operation of a libaio opcode (`linux/aio_abi.h`). None for an unknown opcode.
fn aio_operation(opcode: u16) -> Option<Operation> {
    match opcode {
        0 | 7 => Some(Operation::Read),
        1 | 8 => Some(Operation::Write),
        2 | 3 => Some(Operation::Flush),
        _ => None,
    }
}

fn aio_is_vectored(opcode: u16) -> bool {
    matches!(opcode, 7 | 8)
}

/// Returns the operation of an io_uring opcode (`enum io_uring_op`), and whether the operation is
/// vectored, so that its length is a number of buffers. None if the opcode is not a storage
/// request.
fn uring_operation(opcode: u8) -> Option<(Operation, bool)> {
    match opcode {
        1 => Some((Operation::Read, true)),
        2 => Some((Operation::Write, true)),
        3 | 8 => Some((Operation::Flush, false)),
        4 | 22 => Some((Operation::Read, false)),
        5 | 23 => Some((Operation::Write, false)),
        17 => Some((Operation::Allocate, false)),
        55 => Some((Operation::Truncate, false)),
        24 => Some((Operation::Advise, false)),
        _ => None,
    }
}

fn page_bytes() -> u64 {
    crate::sys::page_bytes() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileState = FileState {
        inode: Inode { device: 1, number: 9 },
        mode: 0o100_644,
        flags: 0,
        position: 8192,
    };

    fn record(what: What<'_>) -> Record<'_> {
        Record { process: 5, thread: 6, start_ns: 1100, end_ns: 1400, what }
    }

    fn call(number: libc::c_long, arguments: [u64; 6], result: i64) -> record::Call {
        let number = number as u32;
        record::Call {
            number,
            is_second: false,
            result,
            arguments,
            file: FILE,
            device_bytes: 0,
            sleeps: 0,
        }
    }

    fn taken(requests: &mut Requests, what: What<'_>) -> Vec<Request> {
        let mut done = Vec::new();
        requests.take(&record(what), |request| done.push(request));
        done
    }

    #[test]
    fn a_read_starts_before_the_position_that_it_leaves() {
        let mut requests = Requests::new();
        let read = call(libc::SYS_read, [3, 0, 4096, 0, 0, 0], 4096);
        let [request] = taken(&mut requests, What::Call(read))[..] else { panic!() };
        assert_eq!((request.start_ns, request.latency_ns), (1100, Some(300)));
        assert_eq!((request.offset, request.bytes, request.result), (Some(4096), 4096, Some(4096)));
        assert_eq!((request.operation, request.call.name()), (Operation::Read, "read"));
    }

    #[test]
    fn an_opened_file_has_its_name_and_another_path_is_another_file() {
        let mut requests = Requests::new();
        let open = call(libc::SYS_openat, [0; 6], 3);
        let folder = Inode::default();
        taken(&mut requests, What::Open { call: open, folder, path: b"/a" });
        let read = call(libc::SYS_pread64, [3, 0, 512, 0, 0, 0], 512);
        let first = taken(&mut requests, What::Call(read))[0].file;
        assert_eq!(requests.file_names()[first.0 as usize], "/a");
        taken(&mut requests, What::Open { call: open, folder, path: b"/a" });
        assert_eq!(taken(&mut requests, What::Call(read))[0].file, first);
        taken(&mut requests, What::Open { call: open, folder, path: b"/b" });
        let second = taken(&mut requests, What::Call(read))[0].file;
        assert_eq!(requests.file_names()[second.0 as usize], "/b");
    }

    #[test]
    fn relative_paths_follow_the_current_folder() {
        let mut requests = Requests::new();
        let folder = |number| record::Call {
            file: FileState { inode: Inode { device: 1, number }, mode: 0o040_755, ..FILE },
            ..call(libc::SYS_chdir, [0; 6], 0)
        };
        let none = Inode::default();
        taken(&mut requests, What::Open { call: folder(20), folder: none, path: b"/var" });
        taken(&mut requests, What::Open { call: folder(21), folder: none, path: b"lib" });
        let open = call(libc::SYS_openat, [0; 6], 3);
        let inside = Inode { device: 1, number: 21 };
        let opened = taken(&mut requests, What::Open { call: open, folder: inside, path: b"a" });
        assert_eq!(requests.file_names()[opened[0].file.0 as usize], "/var/lib/a");
    }

    #[test]
    fn an_asynchronous_request_lasts_until_it_is_reaped() {
        let mut requests = Requests::new();
        let submit =
            What::AioSubmit { request: 77, opcode: 1, bytes: 8192, offset: 4096, file: FILE };
        assert_eq!(taken(&mut requests, submit), []);
        let reap = What::AioReap { request: 77, result: 8192 };
        let late = Record { start_ns: 5000, end_ns: 5500, ..record(reap) };
        let mut done = Vec::new();
        requests.take(&late, |request| done.push(request));
        let [request] = done[..] else { panic!() };
        assert_eq!((request.start_ns, request.latency_ns), (1100, Some(4400)));
        assert_eq!((request.operation, request.offset), (Operation::Write, Some(4096)));
        assert_eq!(taken(&mut requests, reap), [], "reaped twice");
        assert_eq!(requests.finish(|_| panic!("nothing is outstanding")), 1);
    }

    #[test]
    fn requests_of_io_uring_and_of_the_block_layer_are_told_apart() {
        let mut requests = Requests::new();
        let uring = What::Uring { opcode: 22, length: 4096, offset: 512, result: 4096, file: FILE };
        let block =
            What::Block { device: 1 << 20, flags: 1, sector: 8, bytes: 4096, failed: false };
        let made = [taken(&mut requests, uring)[0], taken(&mut requests, block)[0]];
        assert_eq!(made.map(|r| r.call.name()), ["io_uring", "block"]);
        assert_eq!(made.map(|r| r.operation), [Operation::Read, Operation::Write]);
        assert_eq!(made.map(|r| r.offset), [Some(512), Some(4096)]);
    }
}
