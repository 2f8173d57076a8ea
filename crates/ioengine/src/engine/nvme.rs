//! The `nvme` I/O engine: sends commands to an NVMe namespace through io_uring
//! (`IORING_OP_URING_CMD`), without the kernel's block layer.
//!
//! The commands are sent to the character device of the namespace (`/dev/ng0n1`). This needs Linux
//! 5.19 or later (`linux/nvme_ioctl.h`, NVME_URING_CMD_IO). The kernel does not split, merge or
//! schedule the commands, so a request must not exceed the drive's limit on the size of a command.
//! Registered buffers and polled completions need Linux 6.1 or later.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread::{self, ThreadId};

use io_uring::squeue::Entry128;
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode};

use crate::buffer::SlotBuffers;
use crate::clock::{Clock, Monotonic};
use crate::engine::uring::{REGISTERED_BYTES_MAX, build};
use crate::engine::{Engine, EngineOptions, EngineSpec, Setup, UringFeatures};
use crate::error::{Error, ErrorKind};
use crate::nvme_ioctl;
use crate::request::{Completion, Op, Request};
use crate::sys::ring::{ENTER_GETEVENTS, Handle};

/// `_IOWR('N', 0x80, struct nvme_uring_cmd)` of linux/nvme_ioctl.h.
const URING_COMMAND: u32 = 0xC048_4E80;
/// The opcodes Write and Read of the NVM command set.
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
/// The opcode Zone Append of the Zoned Namespace command set.
const ZONE_APPEND: u8 = 0x7d;
/// The bit Force Unit Access in command word 12.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// How long dropping an engine waits for commands in flight (ns). If commands are still in flight
/// after this time, the buffers are leaked, because the drive may still write to them.
const DRAIN_NS: u64 = 30_000_000_000;

/// The `nvme` I/O engine: sends commands to an NVMe namespace through io_uring.
pub struct Nvme {
    ring: IoUring<Entry128, cqueue::Entry32>,
    handle: Handle,
    owner: ThreadId,
    file: File,
    form: Form,
    buffers: Option<SlotBuffers>,
    /// The length of the request in each slot (bytes).
    lengths: Vec<u32>,
    features: UringFeatures,
    options: EngineOptions,
    clock: Monotonic,
}

/// The parameters that are the same for all commands of an engine.
#[derive(Clone, Copy, Debug)]
struct Form {
    namespace: u32,
    block_shift: u32,
    /// Whether writes have the bit Force Unit Access.
    is_durable: bool,
    /// The size of a zone (bytes) if writes use Zone Append. None if writes use the Write command.
    appends_to: Option<u64>,
}

/// Returns the path of a namespace's character device, for example `/dev/ng0n1` for the block
/// device `nvme0n1`.
pub(crate) fn character_device(block: &str) -> Option<PathBuf> {
    let rest = block.strip_prefix("nvme")?;
    Some(Path::new("/dev").join(format!("ng{rest}")))
}

/// Returns the names of the NVMe namespaces of this host that accept commands through io_uring.
pub fn probe() -> Result<String, Error> {
    let ring = build::<Entry128, cqueue::Entry32>(2, EngineOptions::default());
    if ring.is_err() {
        let what = "this kernel's io_uring does not support NVMe commands";
        return unavailable(what, "use `engine` io_uring, or Linux 5.19 or later");
    }
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| is_namespace(name))
        .collect();
    names.sort();
    if names.is_empty() {
        let what = "this host has no NVMe namespace (such as /dev/ng0n1)";
        return unavailable(what, "use `engine` io_uring");
    }
    Ok(names.join(", "))
}

/// Returns the names of this host's NVMe namespaces that support Zone Append.
pub fn probe_appends() -> Result<String, Error> {
    probe()?;
    let names = zoned_namespaces(Path::new("/sys/block"));
    if names.is_empty() {
        return unavailable("this host has no NVMe namespace with zones", "drop `zone_append`");
    }
    Ok(names.join(", "))
}

/// Returns the NVMe block devices that support Zone Append, sorted by name (`zone_append_max_bytes`
/// in Documentation/ABI/stable/sysfs-block).
fn zoned_namespaces(block_devices: &Path) -> Vec<String> {
    let entries = fs::read_dir(block_devices).into_iter().flatten().flatten();
    let takes_appends = |entry: &fs::DirEntry| {
        let most = fs::read_to_string(entry.path().join("queue/zone_append_max_bytes"));
        most.is_ok_and(|most| most.trim() != "0")
    };
    let zoned = entries.filter(takes_appends);
    let names = zoned.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| character_device(name).is_some()).collect();
    names.sort();
    names
}

fn unavailable(what: &str, remedy: &str) -> Result<String, Error> {
    Err(Error::new(ErrorKind::Unsupported, what).with_remedy(remedy))
}

/// Returns true if `name` is the name of a namespace's character device, for example `ng0n1`.
fn is_namespace(name: &str) -> bool {
    let numbers = name.strip_prefix("ng").and_then(|rest| rest.split_once('n'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(drive, namespace)| is_number(drive) && is_number(namespace))
}

impl fmt::Debug for Nvme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nvme (namespace {}, {})", self.form.namespace, self.features)
    }
}

impl Nvme {
    /// Creates an engine on a namespace. Must be called by the thread that will use the engine.
    /// `block` is the kernel name of the namespace's block device, for example `nvme0n1`.
    /// `block_bytes` is the size of a logical block. `zone_bytes` is the size of a zone, or None if
    /// the namespace has no zones.
    ///
    /// # Errors
    /// If the drive is missing, the caller has no permission to open it, or the kernel does not
    /// support NVMe commands through io_uring.
    pub fn new(
        block: &str,
        block_bytes: u32,
        zone_bytes: Option<u64>,
        spec: &EngineSpec,
    ) -> Result<Self, Error> {
        let path = character_device(block).ok_or_else(|| {
            Error::new(ErrorKind::Usage, format!("`engine` nvme needs an NVMe drive, not {block}"))
                .with_remedy("use `engine` io_uring")
        })?;
        let what = || format!("opening {}", path.display());
        // Write commands need a descriptor that is open for writing. Other commands work with any
        // descriptor.
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.or_else(|_| File::open(&path)).map_err(|e| Error::io(what(), e))?;
        let namespace = nvme_ioctl::namespace(&file)
            .map_err(|e| Error::io(format!("reading the namespace ID of {block}"), e))?;
        let buffers = SlotBuffers::new(spec.depth, spec.slot_bytes as usize, spec.pages)?;
        let (ring, mut features) = build(spec.depth, spec.options)?;
        let handle = Handle::new(ring.as_raw_fd());
        features.registered_ring = handle.is_registered();
        let (base, length) = buffers.region();
        if length <= REGISTERED_BYTES_MAX {
            let region = libc::iovec { iov_base: base.cast(), iov_len: length };
            // SAFETY: the region belongs to this engine and is freed after the ring.
            let registered = unsafe { ring.submitter().register_buffers(&[region]) };
            features.registered_buffers = registered.is_ok();
        }
        Ok(Nvme {
            ring,
            handle,
            owner: thread::current().id(),
            file,
            form: Form {
                namespace,
                block_shift: block_bytes.max(512).ilog2(),
                is_durable: spec.options.fua,
                appends_to: zone_bytes.filter(|_| spec.options.zone_append),
            },
            lengths: vec![0; spec.depth as usize],
            buffers: Some(buffers),
            features,
            options: spec.options,
            clock: Monotonic::new(),
        })
    }

    fn memory(&mut self) -> &mut SlotBuffers {
        self.buffers.as_mut().expect("the buffers exist until the engine is dropped")
    }

    fn queue(&mut self, batch: &[Request]) {
        for request in batch {
            let memory = self.memory().lend(request);
            self.lengths[request.slot as usize] = request.length;
            let command = command(request, &self.form, memory as u64);
            let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), URING_COMMAND)
                .cmd(command)
                .buf_index(self.features.registered_buffers.then_some(0))
                .build()
                .user_data(u64::from(request.slot));
            // SAFETY: the slot is lent until its completion is reaped, and the engine waits for all
            // commands before its buffers are freed, so the memory outlives the command.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("the queue has room for all slots, and no slot is lent twice");
        }
    }

    /// Submits all queued commands and waits for `wanted` completions, with one system call.
    /// Returns false if the caller has to call again, because the call was interrupted or the
    /// kernel did not accept all commands.
    fn enter(&mut self, wanted: u32, until_ns: Option<u64>) -> Result<bool, Error> {
        let to_submit = self.ring.submission().len() as u32;
        let timeout_ns = match until_ns {
            Some(at) if wanted > 0 => Some(at.saturating_sub(self.clock.now_ns())),
            _ => None,
        };
        match self.handle.enter(to_submit, wanted, ENTER_GETEVENTS, timeout_ns) {
            Ok(taken) => Ok(taken == to_submit),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME) => Ok(true),
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(false),
                _ => Err(Error::io("calling io_uring_enter", error)),
            },
        }
    }

    fn reap(&mut self, done: &mut Vec<Completion>) {
        let buffers = self.buffers.as_mut().expect("the buffers exist until the engine is dropped");
        for entry in self.ring.completion() {
            let slot = entry.user_data() as u32;
            buffers.take_back(slot);
            let result = match entry.result() {
                0 => self.lengths[slot as usize] as i32,
                // Status codes of the drive are positive. Errors of the kernel are negative.
                status if status > 0 => -errno_of(status as u32),
                error => error,
            };
            done.push(Completion { slot, result });
        }
    }
}

/// Converts an NVMe status to the error number that the block layer uses (`nvme_error_status`).
fn errno_of(status: u32) -> i32 {
    // The low 11 bits contain the status code type and the status code.
    match status & 0x7ff {
        // Invalid Command Opcode, Invalid Field, Invalid Namespace or Format, Conflicting
        // Attributes.
        0x001 | 0x002 | 0x00b | 0x180 => libc::EOPNOTSUPP,
        // LBA Out of Range.
        0x080 => libc::EREMOTEIO,
        // Capacity Exceeded.
        0x081 => libc::ENOSPC,
        // Attempted Write to Read Only Range, Write Fault, Unrecovered Read Error, Compare Failure,
        // Access Denied, Deallocated or Unwritten Logical Block.
        0x182 | 0x280 | 0x281 | 0x285 | 0x286 | 0x287 => libc::ENODATA,
        // Too Many Active Zones, Too Many Open Zones.
        0x1bd => libc::EOVERFLOW,
        0x1be => libc::ETOOMANYREFS,
        _ => libc::EIO,
    }
}

/// Encodes a command as struct nvme_uring_cmd, which uses 72 of the 80 bytes.
fn command(request: &Request, form: &Form, address: u64) -> [u8; 80] {
    let Form { namespace, block_shift, is_durable, appends_to } = *form;
    let is_write = request.op == Op::Write;
    // A Zone Append command contains the first block of the zone, not the offset of the data.
    let (opcode, offset) = match appends_to.filter(|_| is_write) {
        Some(zone_bytes) => (ZONE_APPEND, request.offset / zone_bytes * zone_bytes),
        None if is_write => (WRITE, request.offset),
        None => (READ, request.offset),
    };
    let first = offset >> block_shift;
    let blocks = (request.length >> block_shift).saturating_sub(1);
    let durable = if is_durable && is_write { FORCE_UNIT_ACCESS } else { 0 };
    let mut bytes = [0; 80];
    bytes[0] = opcode;
    bytes[4..8].copy_from_slice(&namespace.to_ne_bytes());
    bytes[24..32].copy_from_slice(&address.to_ne_bytes());
    bytes[36..40].copy_from_slice(&request.length.to_ne_bytes());
    // Words 10 and 11 contain the first block, and word 12 contains the number of blocks minus 1.
    bytes[40..48].copy_from_slice(&first.to_le_bytes());
    bytes[48..52].copy_from_slice(&(blocks | durable).to_ne_bytes());
    bytes
}

impl Engine for Nvme {
    fn slots(&self) -> u32 {
        self.buffers.as_ref().map_or(0, SlotBuffers::slots)
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        self.memory().slot_mut(slot)
    }

    fn setup(&self) -> Setup {
        let (buffer_bytes, huge_bytes) = self.buffers.as_ref().map_or((0, 0), SlotBuffers::pages);
        let durable = if self.options.fua { "FUA on writes" } else { "" };
        let appends = if self.options.zone_append { "zone append" } else { "" };
        let features = [self.features.to_string(), durable.to_owned(), appends.to_owned()];
        let features: Vec<String> = features.into_iter().filter(|part| !part.is_empty()).collect();
        Setup { features: features.join(", "), buffer_bytes, huge_bytes }
    }

    fn in_flight(&self) -> u32 {
        self.buffers.as_ref().map_or(0, SlotBuffers::in_flight)
    }

    fn submit_and_wait(
        &mut self,
        batch: &[Request],
        at_least: u32,
        until_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        self.queue(batch);
        let goal = done.len() + at_least.min(self.in_flight()) as usize;
        loop {
            let wanted = goal.saturating_sub(done.len()) as u32;
            let all_submitted = self.enter(wanted, until_ns)?;
            self.reap(done);
            let late = until_ns.is_some_and(|at| self.clock.now_ns() >= at);
            if (all_submitted && done.len() >= goal) || (late && self.ring.submission().is_empty())
            {
                return Ok(());
            }
        }
    }
}

impl Drop for Nvme {
    /// Waits for all commands in flight, so that the drive does not write to freed memory. If
    /// commands remain after `DRAIN_NS`, leaks the buffers.
    fn drop(&mut self) {
        let until = self.clock.now_ns() + DRAIN_NS;
        let mut done = Vec::new();
        while self.in_flight() > 0 && self.clock.now_ns() < until {
            let left = self.in_flight();
            if self.submit_and_wait(&[], left, Some(until), &mut done).is_err() {
                break;
            }
        }
        // The kernel registers ring descriptors per thread. In another thread, the same index may
        // belong to another ring.
        if self.owner == thread::current().id() {
            self.handle.unregister(self.ring.as_raw_fd());
        }
        if let Some(buffers) = self.buffers.take().filter(|buffers| buffers.in_flight() > 0) {
            buffers.leak();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: Op, offset: u64, length: u32) -> Request {
        Request { offset, length, within: 0, slot: 0, file: 0, op }
    }

    #[test]
    fn a_command_names_blocks_and_memory() {
        let form = |namespace, block_shift, is_durable| Form {
            namespace,
            block_shift,
            is_durable,
            appends_to: None,
        };
        let bytes = command(&request(Op::Read, 8192, 4096), &form(3, 9, false), 0x1234_5678);
        let number = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((bytes[0], number(4), number(24)), (READ, 3, 0x1234_5678));
        // The request starts at 8 KiB, which is block 16, and has 8 blocks of 512 bytes (encoded as
        // 7).
        assert_eq!((number(36), number(40), number(44), number(48)), (4096, 16, 0, 7));
        let far = command(&request(Op::Write, 5 << 44, 4096), &form(1, 12, true), 0);
        assert_eq!(far[0], WRITE);
        assert_eq!(u64::from_le_bytes(far[40..48].try_into().unwrap()), 5 << 32);
        assert_eq!(u32::from_ne_bytes(far[48..52].try_into().unwrap()), FORCE_UNIT_ACCESS);
        let read = command(&request(Op::Read, 0, 4096), &form(1, 12, true), 0);
        assert_eq!(u32::from_ne_bytes(read[48..52].try_into().unwrap()), 0, "no FUA on reads");
        let appends = Form { appends_to: Some(4 << 20), ..form(1, 12, false) };
        let append = command(&request(Op::Write, (9 << 20) + 4096, 4096), &appends, 0);
        assert_eq!(append[0], ZONE_APPEND);
        assert_eq!(u64::from_le_bytes(append[40..48].try_into().unwrap()), (8 << 20) >> 12);
        assert_eq!(command(&request(Op::Read, 0, 4096), &appends, 0)[0], READ);
    }

    #[test]
    fn namespaces_have_a_character_device() {
        assert_eq!(character_device("nvme0n1").unwrap(), Path::new("/dev/ng0n1"));
        assert_eq!(character_device("sda"), None);
        assert!(is_namespace("ng0n1") && is_namespace("ng10n12"));
        assert!(!is_namespace("ngn1") && !is_namespace("ng0") && !is_namespace("tty0n1"));
    }

    #[test]
    fn namespaces_that_take_appends_are_named() {
        let folder = tempfile::tempdir().unwrap();
        for (name, most) in [("nvme1n1", "131072"), ("nvme0n1", "0"), ("nullb0", "131072")] {
            let queue = folder.path().join(name).join("queue");
            fs::create_dir_all(&queue).unwrap();
            fs::write(queue.join("zone_append_max_bytes"), format!("{most}\n")).unwrap();
        }
        fs::create_dir(folder.path().join("nvme2n1")).unwrap();
        assert_eq!(zoned_namespaces(folder.path()), ["nvme1n1"]);
    }

    #[test]
    fn the_status_of_a_drive_becomes_the_error_of_the_block_layer() {
        assert_eq!(errno_of(0x4281), libc::ENODATA, "unrecovered read error, do not retry");
        assert_eq!(errno_of(0x0006), libc::EIO);
        assert_eq!((errno_of(0x1bd), errno_of(0x1be)), (libc::EOVERFLOW, libc::ETOOMANYREFS));
    }

    #[test]
    fn a_disk_of_another_kind_is_refused_with_the_remedy() {
        let spec = EngineSpec {
            engine_kind: crate::engine::EngineKind::Nvme,
            depth: 1,
            slot_bytes: 4096,
            pages: crate::buffer::BufferPages::Small,
            options: EngineOptions::default(),
        };
        let error = Nvme::new("vda", 512, None, &spec).unwrap_err().to_string();
        assert!(error.contains("; use `engine` io_uring"), "{error}");
    }
}
