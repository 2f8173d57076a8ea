//! The FUSE file system: a folder with one file. Handles the requests of the kernel.

use std::ffi::OsStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use ioengine::engine::burn_cpu;
use ioengine::fault::{Fault, FaultCounter, FaultPlan};
use ioengine::{Clock, Monotonic, Op};

use crate::content::Content;
use crate::pacer::{Arrival, Pacer};
use crate::timing::Timing;

/// Time for which the kernel may cache names and attributes, which never change.
const CACHE_TTL: Duration = Duration::from_secs(86_400);
/// Inode number of the file. The folder has inode number 1.
const FILE: INodeNo = INodeNo(2);
/// Maximum number of requests that the kernel keeps in flight.
const MAX_BACKGROUND: u16 = 4096;
/// Maximum request size (bytes): 256 pages, which is the kernel's default limit.
const REQUEST_BYTES: u32 = 1 << 20;

/// Parameters of the served file.
pub struct Spec {
    /// Name of the file.
    pub name: String,
    /// Constant size of the file (bytes).
    pub size_bytes: u64,
    /// Alignment for direct I/O (bytes, a power of two) that is reported to programs. Unaligned
    /// requests are also served.
    pub block_bytes: u32,
    /// Model of request latencies.
    pub timing: Box<dyn Timing>,
    /// Injected faults.
    pub faults: FaultPlan,
}

pub(crate) struct Files {
    name: String,
    size_bytes: u64,
    block_bytes: u32,
    owner: (u32, u32),
    device: Mutex<DeviceState>,
    /// CPU time that each request burns (ns).
    cpu_ns: u64,
    pacer: Pacer,
    clock: Monotonic,
}

struct DeviceState {
    faults: FaultCounter,
    content: Content,
    /// Replies that are never sent. They are kept, because dropping a reply sends an error.
    unanswered: Vec<Box<dyn Send>>,
}

impl Files {
    pub(crate) fn new(spec: Spec, owner: (u32, u32)) -> std::io::Result<Files> {
        let Spec { name, size_bytes, block_bytes, timing, faults } = spec;
        let (content, faults) = (Content::new(size_bytes), FaultCounter::new(faults));
        let device = Mutex::new(DeviceState { faults, content, unanswered: Vec::new() });
        let cpu_ns = timing.cpu_ns();
        let (pacer, clock) = (Pacer::start(timing)?, Monotonic::new());
        Ok(Files { name, size_bytes, block_bytes, owner, device, cpu_ns, pacer, clock })
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
            blksize: self.block_bytes,
            flags: 0,
        }
    }

    fn knows(inode: INodeNo) -> bool {
        inode == INodeNo::ROOT || inode == FILE
    }

    /// Delays the answer to a request until its completion time. The caller must copy the data
    /// first, so that the answer can be sent without further delay.
    fn pace(
        &self,
        op: Op,
        (offset, length): (u64, u32),
        fault: Fault,
        answer: impl FnOnce() + Send + 'static,
    ) {
        let at_ns = self.clock.now_ns();
        if self.cpu_ns > 0 {
            burn_cpu(self.cpu_ns);
        }
        let hang_ns = match fault {
            Fault::Hang(ns) => ns,
            _ => 0,
        };
        self.pacer.submit(Arrival { at_ns, op, offset, length, hang_ns }, answer);
    }
}

impl Filesystem for Files {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Errors are ignored, because the file also works without these capabilities, but with
        // fewer or smaller requests in flight.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        let _ = config.set_max_write(REQUEST_BYTES);
        let _ = config.set_max_background(MAX_BACKGROUND);
        let _ = config.set_congestion_threshold(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == self.name.as_str() {
            reply.entry(&CACHE_TTL, &self.attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if Files::knows(inode) {
            reply.attr(&CACHE_TTL, &self.attributes(inode));
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
        // The size is constant, like that of a device. Changes of other attributes are ignored.
        match size {
            Some(size) if size != self.size_bytes => reply.error(Errno::EPERM),
            _ => reply.attr(&CACHE_TTL, &self.attributes(inode)),
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
                drop(device);
                let left = self.size_bytes.saturating_sub(offset);
                match left.min(u64::from(size)) as u32 {
                    // A read beyond the end of the file needs no device, so it is answered at once.
                    0 => reply.data(&data),
                    length => {
                        let answer = move || reply.data(&data);
                        self.pace(Op::Read, (offset, length), fault, answer);
                    }
                }
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
                drop(device);
                self.pace(Op::Write, place, fault, move || reply.written(taken));
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
        let blocks = self.size_bytes / u64::from(self.block_bytes);
        reply.statfs(blocks, 0, 0, 1, 0, self.block_bytes, 255, self.block_bytes);
    }
}
