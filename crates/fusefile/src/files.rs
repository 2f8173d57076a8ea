//! The file system: one folder with one file, served request by request.

use std::ffi::OsStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use ioengine::engine::burn_cpu;
use ioengine::fault::{Fault, FaultCounter};
use ioengine::{Clock, Monotonic, Op};

use crate::content::Content;
use crate::pacer::Pacer;
use crate::timing::Timing;

/// How long the kernel may believe what it was told of names and attributes: nothing changes.
const FOR_EVER: Duration = Duration::from_secs(86_400);
/// Block size that programs are told (bytes).
const BLOCK_BYTES: u32 = 4096;
/// The file's inode; the folder's is 1.
const FILE: INodeNo = INodeNo(2);
/// Requests that the kernel may have outstanding here.
const BACKGROUND: u16 = 4096;
/// The largest request (bytes): what the kernel's default of 256 pages allows.
const REQUEST_BYTES: u32 = 1 << 20;

/// See the module.
pub(crate) struct Files {
    name: String,
    size_bytes: u64,
    owner: (u32, u32),
    device: Mutex<DeviceState>,
    pacer: Pacer,
    clock: Monotonic,
}

/// All that requests change.
struct DeviceState {
    timing: Box<dyn Timing>,
    faults: FaultCounter,
    content: Content,
    /// Answers that will never be given, kept so that nobody gives one in their place.
    unanswered: Vec<Box<dyn Send>>,
}

impl Files {
    pub(crate) fn new(
        name: &str,
        content: Content,
        timing: Box<dyn Timing>,
        faults: FaultCounter,
        owner: (u32, u32),
    ) -> std::io::Result<Files> {
        let size_bytes = content.size();
        let unanswered = Vec::new();
        let device = Mutex::new(DeviceState { timing, faults, content, unanswered });
        let (pacer, clock) = (Pacer::start()?, Monotonic::new());
        Ok(Files { name: name.to_owned(), size_bytes, owner, device, pacer, clock })
    }

    fn lock(&self) -> MutexGuard<'_, DeviceState> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_file = inode == FILE;
        FileAttr {
            ino: inode,
            size: if is_file { self.size_bytes } else { 0 },
            blocks: if is_file { self.size_bytes / 512 } else { 0 },
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: if is_file { 0o600 } else { 0o700 },
            nlink: if is_file { 1 } else { 2 },
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }

    fn knows(inode: INodeNo) -> bool {
        inode == INodeNo::ROOT || inode == FILE
    }

    /// When a request is due that has been prepared: the time that it took to copy its data lies
    /// before its arrival, on a slow device as on one without any delay.
    fn due_ns(&self, device: &mut DeviceState, op: Op, place: (u64, u32), fault: Fault) -> u64 {
        let at_ns = device.timing.admit(self.clock.now_ns(), op, place.0, place.1);
        let cpu_ns = device.timing.cpu_ns();
        if cpu_ns > 0 {
            burn_cpu(cpu_ns);
        }
        match fault {
            Fault::Hang(ns) => at_ns.saturating_add(ns),
            _ => at_ns,
        }
    }
}

impl Filesystem for Files {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // What the kernel does not offer it does not offer: requests are then fewer or smaller.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        let _ = config.set_max_write(REQUEST_BYTES);
        let _ = config.set_max_background(BACKGROUND);
        let _ = config.set_congestion_threshold(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == self.name.as_str() {
            reply.entry(&FOR_EVER, &self.attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if Files::knows(inode) {
            reply.attr(&FOR_EVER, &self.attributes(inode));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // A device has one size, and nobody asks it for dates.
        match size {
            Some(size) if size != self.size_bytes => reply.error(Errno::EPERM),
            _ => reply.attr(&FOR_EVER, &self.attributes(inode)),
        }
    }

    fn open(&self, _request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if inode == FILE {
            let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
            reply.opened(FileHandle(0), flags);
        } else {
            reply.error(Errno::EISDIR);
        }
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut device = self.lock();
        let fault = device.faults.next(Op::Read);
        match fault {
            Fault::Errno(errno) => reply.error(Errno::from_i32(errno)),
            Fault::Never => device.unanswered.push(Box::new(reply)),
            _ => {
                let data = device.content.read(offset, size, fault);
                let at_ns = self.due_ns(&mut device, Op::Read, (offset, size), fault);
                drop(device);
                self.pacer.at(at_ns, move || reply.data(&data));
            }
        }
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut device = self.lock();
        let fault = device.faults.next(Op::Write);
        let beyond = offset.saturating_add(data.len() as u64) > self.size_bytes;
        match fault {
            _ if beyond => reply.error(Errno::ENOSPC),
            Fault::Errno(errno) => reply.error(Errno::from_i32(errno)),
            Fault::Never => device.unanswered.push(Box::new(reply)),
            _ => {
                let taken = device.content.write(offset, data, fault);
                let place = (offset, data.len() as u32);
                let at_ns = self.due_ns(&mut device, Op::Write, place, fault);
                drop(device);
                self.pacer.at(at_ns, move || reply.written(taken));
            }
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let all = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, self.name.as_str()),
        ];
        for (number, (inode, kind, name)) in all.into_iter().enumerate().skip(offset as usize) {
            if reply.add(inode, number as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        let blocks = self.size_bytes / u64::from(BLOCK_BYTES);
        reply.statfs(blocks, 0, 0, 1, 0, BLOCK_BYTES, 255, BLOCK_BYTES);
    }
}
