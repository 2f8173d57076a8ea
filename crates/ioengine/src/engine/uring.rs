//! The `io_uring` personality.
//!
//! Asks for the whole fast set (single issuer, deferred task work, no submission array) and goes
//! down a ladder where the kernel refuses; registers the ring, the file and the one contiguous
//! buffer where it may. Each call enters the kernel once: it submits the batch and waits in the
//! same system call, then reaps all that is ready.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::thread::ThreadId;

use io_uring::squeue::Entry;
use io_uring::types::{Fd, Fixed};
use io_uring::{IoUring, opcode};

use crate::buffer::SlotBuffers;
use crate::clock::{Clock, Monotonic};
use crate::engine::{Engine, EngineSpec, Setup};
use crate::error::{Error, ErrorKind};
use crate::request::{Completion, Op, Request};
use crate::sys::ring::Handle;

/// The most that the kernel registers as one buffer (bytes).
const REGISTERED_BYTES_MAX: usize = 1 << 30;
/// How long a dropped engine waits for the device before it gives up its buffers for lost.
const DRAIN_NS: u64 = 30_000_000_000;

/// What this ring got of the fast set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UringFeatures {
    /// IORING_SETUP_SINGLE_ISSUER and DEFER_TASKRUN.
    pub defer_taskrun: bool,
    /// IORING_SETUP_COOP_TASKRUN.
    pub coop_taskrun: bool,
    /// IORING_SETUP_NO_SQARRAY.
    pub no_sqarray: bool,
    /// The ring's own descriptor is registered.
    pub registered_ring: bool,
    /// The file is registered.
    pub registered_file: bool,
    /// The buffers are registered.
    pub registered_buffers: bool,
}

impl fmt::Display for UringFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (self.defer_taskrun, "SINGLE_ISSUER, DEFER_TASKRUN"),
            (self.coop_taskrun, "COOP_TASKRUN"),
            (self.no_sqarray, "NO_SQARRAY"),
            (self.registered_ring, "registered ring"),
            (self.registered_file, "registered file"),
            (self.registered_buffers, "registered buffers"),
        ];
        let list: Vec<&str> = names.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        f.write_str(&list.join(", "))
    }
}

/// See the module.
pub struct Uring {
    ring: IoUring,
    handle: Handle,
    owner: ThreadId,
    file: Arc<File>,
    /// None only while dropping.
    buffers: Option<SlotBuffers>,
    features: UringFeatures,
    clock: Monotonic,
}

/// The ladder of set-up flags, best first.
fn ladder() -> [UringFeatures; 4] {
    let rung = |defer_taskrun, coop_taskrun, no_sqarray| UringFeatures {
        defer_taskrun,
        coop_taskrun,
        no_sqarray,
        ..UringFeatures::default()
    };
    [
        rung(true, true, true),
        rung(true, true, false),
        rung(false, true, false),
        rung(false, false, false),
    ]
}

fn build(entries: u32) -> Result<(IoUring, UringFeatures), Error> {
    let mut last = io::Error::from_raw_os_error(libc::EINVAL);
    for features in ladder() {
        let mut builder = IoUring::builder();
        builder.setup_clamp();
        if features.defer_taskrun {
            builder.setup_single_issuer().setup_defer_taskrun();
        }
        if features.coop_taskrun {
            builder.setup_coop_taskrun();
        }
        if features.no_sqarray {
            builder.setup_no_sqarray();
        }
        match builder.build(entries) {
            Ok(ring) => return Ok((ring, features)),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => last = error,
            Err(error) => return Err(setup_error(error)),
        }
    }
    Err(setup_error(last))
}

fn setup_error(source: io::Error) -> Error {
    let error = Error::io("setting up io_uring", source).of_kind(ErrorKind::Unsupported);
    match error.errno() {
        Some(libc::ENOSYS) => {
            error.with_remedy("this kernel has no io_uring (5.1 and later): use --ioengine libaio")
        }
        Some(libc::EPERM) => error.with_remedy(
            "the sysctl kernel.io_uring_disabled or a container's rules forbid it: \
             use --ioengine libaio or threads",
        ),
        Some(libc::ENOMEM) => error.with_remedy("raise the limit on locked memory (ulimit -l)"),
        _ => error.with_remedy("use --ioengine libaio or threads"),
    }
}

/// What io_uring offers here.
pub fn probe() -> Result<String, Error> {
    let (ring, mut features) = build(2)?;
    let handle = Handle::new(ring.as_raw_fd());
    features.registered_ring = handle.is_registered();
    handle.unregister(ring.as_raw_fd());
    Ok(features.to_string())
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uring ({})", self.features)
    }
}

impl Uring {
    /// An engine on an open file. Must be called by the thread that will use it.
    pub fn new(file: Arc<File>, spec: &EngineSpec) -> Result<Self, Error> {
        let buffers = SlotBuffers::new(spec.depth, spec.slot_bytes as usize, spec.pages)?;
        let (ring, mut features) = build(spec.depth.next_power_of_two())?;
        if !ring.params().is_feature_ext_arg() {
            let what = "this kernel's io_uring cannot wait with a deadline (5.11 and later can)";
            return Err(Error::new(ErrorKind::Unsupported, what)
                .with_remedy("use --ioengine libaio or threads"));
        }
        let handle = Handle::new(ring.as_raw_fd());
        features.registered_ring = handle.is_registered();
        let submitter = ring.submitter();
        features.registered_file = submitter.register_files(&[file.as_raw_fd()]).is_ok();
        let (base, length) = buffers.region();
        if length <= REGISTERED_BYTES_MAX {
            let region = libc::iovec { iov_base: base.cast(), iov_len: length };
            // SAFETY: the region belongs to this engine, and the ring goes before it does.
            features.registered_buffers = unsafe { submitter.register_buffers(&[region]) }.is_ok();
        }
        let (owner, clock) = (std::thread::current().id(), Monotonic::new());
        Ok(Uring { ring, handle, owner, file, buffers: Some(buffers), features, clock })
    }

    /// Puts requests into the submission queue; its tail is published on return.
    #[inline]
    fn queue(&mut self, batch: &[Request]) {
        let buffers = self.buffers.as_mut().expect("buffers are only taken while dropping");
        let mut queue = self.ring.submission();
        for request in batch {
            let memory = buffers.lend(request);
            let entry = entry(&self.features, self.file.as_raw_fd(), request, memory);
            // SAFETY: the slot is lent until its completion is reaped, and the engine drains
            // before its buffers go, so the memory outlives the request.
            let pushed = unsafe { queue.push(&entry) };
            pushed.expect("the queue has an entry for each slot, and no slot is lent twice");
        }
    }

    /// One entry into the kernel. `Ok(false)`: come again (interrupted or short of resources).
    #[inline]
    fn enter(&mut self, wanted: u32, until_ns: Option<u64>) -> Result<bool, Error> {
        let to_submit = self.ring.submission().len() as u32;
        let timeout_ns = match until_ns {
            Some(at) if wanted > 0 => Some(at.saturating_sub(self.clock.now_ns())),
            _ => None,
        };
        match self.handle.enter(to_submit, wanted, timeout_ns) {
            Ok(taken) => Ok(taken == to_submit),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME) => Ok(true),
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(false),
                _ => Err(Error::io("entering io_uring", error)),
            },
        }
    }

    #[inline]
    fn reap(&mut self, done: &mut Vec<Completion>) {
        let buffers = self.buffers.as_mut().expect("buffers are only taken while dropping");
        for entry in self.ring.completion() {
            let slot = entry.user_data() as u32;
            buffers.take_back(slot);
            done.push(Completion { slot, result: entry.result() });
        }
    }
}

/// The submission entry of a request.
#[inline]
fn entry(features: &UringFeatures, fd: RawFd, request: &Request, memory: *mut u8) -> Entry {
    let (length, offset) = (request.length, request.offset);
    let fixed_buffer = features.registered_buffers;
    // The opcode builders are generic over the kind of descriptor, hence a macro.
    macro_rules! build {
        ($fd:expr) => {
            match (request.op, fixed_buffer) {
                (Op::Read, true) => {
                    opcode::ReadFixed::new($fd, memory, length, 0).offset(offset).build()
                }
                (Op::Write, true) => {
                    opcode::WriteFixed::new($fd, memory, length, 0).offset(offset).build()
                }
                (Op::Read, false) => opcode::Read::new($fd, memory, length).offset(offset).build(),
                (Op::Write, false) => {
                    opcode::Write::new($fd, memory, length).offset(offset).build()
                }
            }
        };
    }
    let entry = if features.registered_file { build!(Fixed(0)) } else { build!(Fd(fd)) };
    entry.user_data(u64::from(request.slot))
}

impl Engine for Uring {
    fn slots(&self) -> u32 {
        self.buffers.as_ref().map_or(0, SlotBuffers::slots)
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        self.buffers.as_mut().expect("buffers are only taken while dropping").slot_mut(slot)
    }

    fn setup(&self) -> Setup {
        let (buffer_bytes, huge_bytes) = self.buffers.as_ref().map_or((0, 0), SlotBuffers::pages);
        Setup { features: self.features.to_string(), buffer_bytes, huge_bytes }
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        self.buffers.as_ref().map_or(0, SlotBuffers::in_flight)
    }

    #[inline]
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
            let settled = self.enter(wanted, until_ns)?;
            self.reap(done);
            let late = until_ns.is_some_and(|at| self.clock.now_ns() >= at);
            if (settled && done.len() >= goal) || (late && self.ring.submission().is_empty()) {
                return Ok(());
            }
        }
    }
}

impl Drop for Uring {
    /// Waits for everything in flight, so that nothing is written into freed memory; a device
    /// that does not answer costs its buffers, which are leaked.
    fn drop(&mut self) {
        let until = self.clock.now_ns() + DRAIN_NS;
        let mut done = Vec::new();
        while self.in_flight() > 0 && self.clock.now_ns() < until {
            let left = self.in_flight();
            if self.submit_and_wait(&[], left, Some(until), &mut done).is_err() {
                break;
            }
        }
        // Rings are registered with a thread: another thread's slot of that number is not ours.
        if self.owner == std::thread::current().id() {
            self.handle.unregister(self.ring.as_raw_fd());
        }
        if let Some(buffers) = self.buffers.take().filter(|buffers| buffers.in_flight() > 0) {
            buffers.leak();
        }
    }
}
