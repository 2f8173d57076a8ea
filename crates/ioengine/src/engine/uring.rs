//! The `io_uring` I/O engine.
//!
//! The engine first tries the fastest setup flags (SINGLE_ISSUER, DEFER_TASKRUN, NO_SQARRAY). If
//! the kernel rejects them, the engine tries slower sets of flags. An engine that may move between
//! threads does not use SINGLE_ISSUER and DEFER_TASKRUN, because they tie the ring to one thread.
//! The engine registers the ring, the files and the buffers if the kernel allows this. One system
//! call submits a batch and waits for completions.
//!
//! With SQPOLL, a kernel thread submits the requests, and each engine has its own thread. The
//! engine calls the kernel only to wake this thread or to wait for completions. The thread spins
//! until it has been idle for `SQ_IDLE_MS`.
//!
//! With IOPOLL, the kernel polls the device for completions. A deadline cannot interrupt this, so
//! the engine checks the deadline only between system calls.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use io_uring::squeue::Entry;
use io_uring::types::{Fd, Fixed};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::buffer::{BufferPages, SlotBuffers};
use crate::clock::{Clock, Monotonic};
use crate::engine::{Engine, EngineKind, EngineOptions, EngineSpec, Files, Setup};
use crate::error::{Error, ErrorKind};
use crate::request::{Completion, Op, Request};
use crate::sys;
use crate::sys::ring::{ENTER_GETEVENTS, ENTER_SQ_WAKEUP, Handle};

/// The maximum size of a buffer that io_uring can register (bytes).
pub(crate) const REGISTERED_BYTES_MAX: usize = 1 << 30;
/// How long dropping an engine waits for requests in flight (ns). If requests are still in flight
/// after this time, the buffers are leaked, because the device may still write to them.
const DRAIN_NS: u64 = 30_000_000_000;
/// How long the SQPOLL thread spins without submissions before it sleeps (ms). This is longer than
/// a disk request takes, so that the thread does not sleep during a trial.
const SQ_IDLE_MS: u32 = 50;
/// The maximum number of submission queue entries of an io_uring.
const ENTRIES_MAX: u32 = 32_768;
/// The maximum depth with SQPOLL, which needs two queue entries per slot. The kernel thread frees
/// the entries of a batch only after it has submitted the whole batch. Until then, slots of the
/// batch may already be reused for new requests.
pub(crate) const SQ_POLL_DEPTH_MAX: u32 = ENTRIES_MAX / 2;

/// The features that an io_uring instance uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UringFeatures {
    /// Whether IORING_SETUP_SINGLE_ISSUER and IORING_SETUP_DEFER_TASKRUN are set.
    pub defer_taskrun: bool,
    /// Whether IORING_SETUP_COOP_TASKRUN is set.
    pub coop_taskrun: bool,
    /// Whether IORING_SETUP_NO_SQARRAY is set.
    pub no_sqarray: bool,
    /// Whether IORING_SETUP_SQPOLL is set, because the caller requested it.
    pub sq_poll: bool,
    /// Whether IORING_SETUP_IOPOLL is set, because the caller requested it.
    pub io_poll: bool,
    /// Whether the descriptor of the ring is registered (IORING_REGISTER_RING_FDS).
    pub registered_ring: bool,
    /// Whether the target files are registered (IORING_REGISTER_FILES).
    pub registered_file: bool,
    /// Whether the buffers are registered (IORING_REGISTER_BUFFERS).
    pub registered_buffers: bool,
}

impl fmt::Display for UringFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (self.defer_taskrun, "SINGLE_ISSUER, DEFER_TASKRUN"),
            (self.coop_taskrun, "COOP_TASKRUN"),
            (self.no_sqarray, "NO_SQARRAY"),
            (self.sq_poll, "SQPOLL"),
            (self.io_poll, "IOPOLL"),
            (self.registered_ring, "registered ring"),
            (self.registered_file, "registered file"),
            (self.registered_buffers, "registered buffers"),
        ];
        let list: Vec<&str> = names.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        f.write_str(&list.join(", "))
    }
}

/// The `io_uring` I/O engine.
pub struct Uring {
    ring: IoUring,
    handle: Handle,
    owner: ThreadId,
    files: Files,
    buffers: Option<SlotBuffers>,
    features: UringFeatures,
    options: EngineOptions,
    /// For each slot, whether its last request failed with EAGAIN. The next request of such a slot
    /// is passed to a kernel thread that may block (IOSQE_ASYNC). Without the kernel thread,
    /// dm-crypt on Linux 6.1 (but not on 6.12) would fail the request with EAGAIN each time,
    /// because the request cannot complete without blocking.
    refused: Vec<bool>,
    any_refused: bool,
    clock: Monotonic,
}

/// Returns the sets of setup flags to try, fastest first. Each set contains the requested options.
/// DEFER_TASKRUN and COOP_TASKRUN leave completion work to the next system call of the submitting
/// thread. They are used neither with SQPOLL (the kernel thread does this work) nor with
/// `any_thread` (the submitting thread may never make another system call).
fn flag_sets(options: EngineOptions) -> Vec<UringFeatures> {
    let flag_set = |defer_taskrun, coop_taskrun, no_sqarray| UringFeatures {
        defer_taskrun,
        coop_taskrun,
        no_sqarray,
        sq_poll: options.sq_poll,
        io_poll: options.io_poll,
        ..UringFeatures::default()
    };
    if options.sq_poll || options.any_thread {
        return vec![flag_set(false, false, true), flag_set(false, false, false)];
    }
    vec![
        flag_set(true, true, true),
        flag_set(true, true, false),
        flag_set(false, true, false),
        flag_set(false, false, false),
    ]
}

/// Creates a ring with the fastest set of flags that the kernel accepts.
pub(crate) fn build<S: squeue::EntryMarker, C: cqueue::EntryMarker>(
    slots: u32,
    options: EngineOptions,
) -> Result<(IoUring<S, C>, UringFeatures), Error> {
    let slots = slots.next_power_of_two();
    let entries = if options.sq_poll { 2 * slots } else { slots };
    let mut last = io::Error::from_raw_os_error(libc::EINVAL);
    for features in flag_sets(options) {
        let mut builder = IoUring::<S, C>::builder();
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
        if features.sq_poll {
            builder.setup_sqpoll(SQ_IDLE_MS);
        }
        if features.io_poll {
            builder.setup_iopoll();
        }
        match retry_on_enomem(|| builder.build(entries)) {
            Ok(ring) => return Ok((ring, features)),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => last = error,
            Err(error) => return Err(setup_error_with(options, error)),
        }
    }
    Err(setup_error_with(options, last))
}

/// Calls `build` and retries on ENOMEM for about two seconds. The memory of a closed ring counts
/// towards the limit on locked memory until the kernel frees it, some milliseconds later (longer on
/// a busy machine).
fn retry_on_enomem<T>(build: impl Fn() -> io::Result<T>) -> io::Result<T> {
    for wait_ms in [1, 4, 16, 64, 128, 256, 512, 1024] {
        match build() {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                sys::sleep_ns(wait_ms * 1_000_000);
            }
            other => return other,
        }
    }
    build()
}

/// Returns the error for a failed setup of a ring with the requested options.
fn setup_error_with(options: EngineOptions, source: io::Error) -> Error {
    let requested = match (options.sq_poll, options.io_poll) {
        (false, false) => return setup_error(source),
        (true, false) => ("SQPOLL", "`sqthread_poll`"),
        (false, true) => ("IOPOLL", "`hipri`"),
        (true, true) => ("SQPOLL and IOPOLL", "`sqthread_poll` or `hipri`"),
    };
    let plain = || build::<Entry, cqueue::Entry>(2, EngineOptions::default()).is_ok();
    match source.raw_os_error() {
        // io_uring works without the options, so the options cause the error.
        Some(libc::EPERM | libc::EINVAL | libc::EACCES) if plain() => {
            let what = format!("setting up io_uring with {}", requested.0);
            Error::io(what, source).of_kind(ErrorKind::Unsupported).with_remedy(format!(
                "drop {}, because this kernel does not allow this option for this user (before \
                 Linux 5.11, SQPOLL needs root)",
                requested.1
            ))
        }
        _ => setup_error(source),
    }
}

fn setup_error(source: io::Error) -> Error {
    let error = Error::io("setting up io_uring", source).of_kind(ErrorKind::Unsupported);
    match error.errno() {
        Some(libc::ENOSYS) => {
            error.with_remedy("this kernel has no io_uring (needs Linux 5.1): use `engine` libaio")
        }
        Some(libc::EPERM) => error.with_remedy(
            "the sysctl kernel.io_uring_disabled or a container's rules forbid io_uring: \
             use `engine` libaio or threads",
        ),
        Some(libc::ENOMEM) => error.with_remedy("raise the limit on locked memory (ulimit -l)"),
        _ => error.with_remedy("use `engine` libaio or threads"),
    }
}

/// Returns the names of the io_uring features that an engine uses on this host.
pub fn probe() -> Result<String, Error> {
    probe_with(EngineOptions::default())
}

/// Returns the names of the io_uring features that an engine with these options uses on this host.
pub(crate) fn probe_with(options: EngineOptions) -> Result<String, Error> {
    let (ring, mut features) = build::<Entry, cqueue::Entry>(2, options)?;
    let handle = Handle::new(ring.as_raw_fd());
    features.registered_ring = handle.is_registered();
    handle.unregister(ring.as_raw_fd());
    Ok(features.to_string())
}

/// Reads the first `bytes` of a file with polled completion, to test whether the device supports
/// polling. The file must be open for direct I/O. If the device has no poll queues, the result is
/// EOPNOTSUPP, or the kernel falls back to interrupts.
pub(crate) fn probe_polled_read(file: Arc<File>, bytes: u32) -> Result<Completion, Error> {
    let spec = EngineSpec {
        engine_kind: EngineKind::IoUring,
        depth: 1,
        slot_bytes: bytes,
        pages: BufferPages::Small,
        options: EngineOptions { io_poll: true, ..EngineOptions::default() },
    };
    let mut engine = Uring::new(file, &spec)?;
    let read = Request { offset: 0, length: bytes, within: 0, slot: 0, file: 0, op: Op::Read };
    let mut done = Vec::with_capacity(1);
    engine.submit_and_wait(&[read], 1, None, &mut done)?;
    Ok(done[0])
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uring ({})", self.features)
    }
}

impl Uring {
    /// Creates an engine on open files. Must be called by the thread that will use the engine.
    pub fn new(files: impl Into<Files>, spec: &EngineSpec) -> Result<Self, Error> {
        let files = files.into();
        let buffers = files.buffers(spec)?;
        let (ring, mut features) = build(files.slots(spec), spec.options)?;
        if !ring.params().is_feature_ext_arg() {
            let what = "this kernel's io_uring does not support wait timeouts (needs Linux 5.11)";
            return Err(Error::new(ErrorKind::Unsupported, what)
                .with_remedy("use `engine` libaio or threads"));
        }
        let handle = if spec.options.any_thread {
            Handle::of_any_thread(ring.as_raw_fd())
        } else {
            Handle::new(ring.as_raw_fd())
        };
        features.registered_ring = handle.is_registered();
        let submitter = ring.submitter();
        features.registered_file = submitter.register_files(files.descriptors()).is_ok();
        let (base, length) = buffers.region();
        if length <= REGISTERED_BYTES_MAX {
            let region = libc::iovec { iov_base: base.cast(), iov_len: length };
            // SAFETY: the region belongs to this engine and is freed after the ring.
            features.registered_buffers = unsafe { submitter.register_buffers(&[region]) }.is_ok();
        }
        let (owner, clock) = (thread::current().id(), Monotonic::new());
        let (options, refused) = (spec.options, vec![false; files.slots(spec) as usize]);
        Ok(Uring {
            ring,
            handle,
            owner,
            files,
            buffers: Some(buffers),
            features,
            options,
            refused,
            any_refused: false,
            clock,
        })
    }

    /// Adds requests to the submission queue. The kernel can see them when the function returns.
    #[inline]
    fn queue(&mut self, batch: &[Request]) {
        let buffers = self.buffers.as_mut().expect("the buffers exist until the engine is dropped");
        let mut queue = self.ring.submission();
        for request in batch {
            let memory = buffers.lend(request);
            let flags = match request.op {
                Op::Read => self.options.read_flags(),
                Op::Write => self.options.write_flags(),
            };
            let mut entry = entry(&self.features, &self.files, request, memory, flags);
            if self.any_refused && std::mem::take(&mut self.refused[request.slot as usize]) {
                entry = entry.flags(squeue::Flags::ASYNC);
            }
            // SAFETY: the slot is lent until its completion is reaped, and the engine waits for all
            // requests before its buffers are freed, so the memory outlives the request.
            let pushed = unsafe { queue.push(&entry) };
            pushed.expect("the queue has room for all slots, and no slot is lent twice");
        }
    }

    /// Submits all queued requests and waits for `wanted` completions, with one system call.
    /// Returns false if the caller has to call again, because the call was interrupted or the
    /// kernel did not accept all requests.
    #[inline]
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

    /// Wakes the SQPOLL thread if `asleep` is true, and then waits for `wanted` completions, with
    /// one system call. A call whose wait is interrupted has already woken the thread.
    fn enter_with_sqpoll(
        &mut self,
        wanted: u32,
        asleep: bool,
        until_ns: Option<u64>,
    ) -> Result<(), Error> {
        let wake = if asleep { ENTER_SQ_WAKEUP } else { 0 };
        let wait = if wanted > 0 { ENTER_GETEVENTS } else { 0 };
        let timeout_ns = match until_ns {
            Some(at) if wanted > 0 => Some(at.saturating_sub(self.clock.now_ns())),
            _ => None,
        };
        match self.handle.enter(0, wanted, wake | wait, timeout_ns) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
                _ => Err(Error::io("calling io_uring_enter", error)),
            },
        }
    }

    /// Returns true if the SQPOLL thread sleeps while requests are in the submission queue. Must be
    /// called after `queue`. Otherwise the thread could fall asleep after this check without having
    /// seen the requests.
    #[inline]
    fn must_wake_sqpoll_thread(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.need_wakeup() && !queue.is_empty()
    }

    /// With SQPOLL, waits until `done` contains `goal` completions or the deadline has passed.
    fn wait_with_sqpoll(
        &mut self,
        goal: usize,
        until_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        loop {
            self.reap(done);
            let wanted = goal.saturating_sub(done.len()) as u32;
            let asleep = self.must_wake_sqpoll_thread();
            if asleep || wanted > 0 {
                self.enter_with_sqpoll(wanted, asleep, until_ns)?;
            }
            let late = until_ns.is_some_and(|at| self.clock.now_ns() >= at);
            if wanted == 0 || late {
                self.reap(done);
                return Ok(());
            }
        }
    }

    #[inline]
    fn reap(&mut self, done: &mut Vec<Completion>) {
        let buffers = self.buffers.as_mut().expect("the buffers exist until the engine is dropped");
        for entry in self.ring.completion() {
            let slot = entry.user_data() as u32;
            buffers.take_back(slot);
            if entry.result() == -libc::EAGAIN {
                (self.refused[slot as usize], self.any_refused) = (true, true);
            }
            done.push(Completion { slot, result: entry.result() });
        }
    }
}

#[inline]
fn entry(
    features: &UringFeatures,
    files: &Files,
    request: &Request,
    memory: *mut u8,
    flags: i32,
) -> Entry {
    let (length, offset) = (request.length, request.offset);
    let fixed_buffer = features.registered_buffers;
    // A macro is used because `$fd` has a different type for registered files.
    macro_rules! build {
        ($fd:expr) => {
            match (request.op, fixed_buffer) {
                (Op::Read, true) => opcode::ReadFixed::new($fd, memory, length, 0)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
                (Op::Write, true) => opcode::WriteFixed::new($fd, memory, length, 0)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
                (Op::Read, false) => {
                    opcode::Read::new($fd, memory, length).offset(offset).rw_flags(flags).build()
                }
                (Op::Write, false) => {
                    opcode::Write::new($fd, memory, length).offset(offset).rw_flags(flags).build()
                }
            }
        };
    }
    let entry = if features.registered_file {
        build!(Fixed(u32::from(request.file)))
    } else {
        build!(Fd(files.descriptor(request)))
    };
    entry.user_data(u64::from(request.slot))
}

impl Engine for Uring {
    fn slots(&self) -> u32 {
        self.buffers.as_ref().map_or(0, SlotBuffers::slots)
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        self.buffers.as_mut().expect("the buffers exist until the engine is dropped").slot_mut(slot)
    }

    fn setup(&self) -> Setup {
        let (buffer_bytes, huge_bytes) = self.buffers.as_ref().map_or((0, 0), SlotBuffers::pages);
        let request_features = self.options.request_features();
        let features = [self.features.to_string(), request_features];
        let features: Vec<String> = features.into_iter().filter(|part| !part.is_empty()).collect();
        Setup { features: features.join(", "), buffer_bytes, huge_bytes }
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
        if self.options.sq_poll {
            return self.wait_with_sqpoll(goal, until_ns, done);
        }
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

impl Drop for Uring {
    /// Waits for all requests in flight, so that the kernel does not write to freed memory. If
    /// requests remain after `DRAIN_NS`, leaks the buffers.
    fn drop(&mut self) {
        let until = self.clock.now_ns() + DRAIN_NS;
        let mut done = Vec::new();
        while self.in_flight() > 0 && self.clock.now_ns() < until {
            let left = self.in_flight();
            if self.submit_and_wait(&[], left, Some(until), &mut done).is_err() {
                break;
            }
        }
        // The kernel destroys a ring some time after its descriptor is closed. Until then,
        // registered files stay open, so the file system cannot be unmounted and the space of
        // deleted files is not freed.
        if self.features.registered_file && self.in_flight() == 0 {
            let _ = self.ring.submitter().unregister_files();
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
    use std::io::Write;

    use super::*;
    use std::time::Duration;

    const BLOCK: u32 = 4096;

    /// Creates an engine with SQPOLL on a file of 64 blocks. None if this host does not support
    /// SQPOLL.
    fn sqpoll_engine(depth: u32) -> Option<Uring> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; 64 * BLOCK as usize]).unwrap();
        let options = EngineOptions { sq_poll: true, ..EngineOptions::default() };
        if let Err(error) = probe_with(options) {
            eprintln!("skipped: SQPOLL: {error}");
            return None;
        }
        let spec = EngineSpec {
            engine_kind: EngineKind::IoUring,
            depth,
            slot_bytes: BLOCK,
            pages: BufferPages::Small,
            options,
        };
        Some(Uring::new(Arc::new(file), &spec).unwrap())
    }

    fn read(slot: u32) -> Request {
        let offset = u64::from(slot % 64) * u64::from(BLOCK);
        Request { offset, length: BLOCK, within: 0, slot, file: 0, op: Op::Read }
    }

    #[test]
    fn a_sleeping_sqpoll_thread_is_woken_by_a_polling_call() {
        let Some(mut engine) = sqpoll_engine(1) else { return };
        let clock = Monotonic::new();
        for _ in 0..3 {
            clock.sleep(Duration::from_millis(3 * u64::from(SQ_IDLE_MS)));
            let mut done = Vec::new();
            engine.submit_and_wait(&[read(0)], 0, None, &mut done).unwrap();
            let until = clock.now_ns() + 30_000_000_000;
            while done.is_empty() {
                assert!(clock.now_ns() < until, "the sleeping thread was not woken");
                engine.submit_and_wait(&[], 0, None, &mut done).unwrap();
            }
            assert_eq!(done[0].result, BLOCK as i32);
        }
    }

    #[test]
    fn the_sqpoll_queue_has_room_for_slots_that_are_reused_at_once() {
        for depth in [1, 3, 16, 64] {
            let Some(mut engine) = sqpoll_engine(depth) else { return };
            assert!(engine.setup().features.contains("SQPOLL"));
            let mut batch: Vec<Request> = (0..depth).map(read).collect();
            let (mut done, mut count) = (Vec::new(), 0);
            while count < 20_000 {
                done.clear();
                engine.submit_and_wait(&batch, 1, None, &mut done).unwrap();
                assert!(done.iter().all(|completion| completion.result == BLOCK as i32));
                count += done.len();
                batch = done.iter().map(|completion| read(completion.slot)).collect();
            }
        }
    }

    #[test]
    fn a_request_that_was_refused_goes_to_a_thread_that_may_block() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; 64 * BLOCK as usize]).unwrap();
        let spec = EngineSpec {
            engine_kind: EngineKind::IoUring,
            depth: 2,
            slot_bytes: BLOCK,
            pages: BufferPages::Small,
            options: EngineOptions::default(),
        };
        if let Err(error) = probe() {
            eprintln!("skipped: io_uring: {error}");
            return;
        }
        let mut engine = Uring::new(Arc::new(file), &spec).unwrap();
        (engine.refused[1], engine.any_refused) = (true, true);
        let mut done = Vec::new();
        engine.submit_and_wait(&[read(0), read(1)], 2, None, &mut done).unwrap();
        assert!(done.iter().all(|completion| completion.result == BLOCK as i32), "{done:?}");
        assert_eq!(engine.refused, [false, false]);
    }

    #[test]
    fn an_any_thread_engine_moves_between_threads_with_requests_in_flight() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; 64 * BLOCK as usize]).unwrap();
        let file = Arc::new(file);
        let depth = 16;
        let options = EngineOptions { any_thread: true, ..EngineOptions::default() };
        let spec = EngineSpec {
            engine_kind: EngineKind::IoUring,
            depth,
            slot_bytes: BLOCK,
            pages: BufferPages::Small,
            options,
        };
        if let Err(error) = probe() {
            eprintln!("skipped: io_uring: {error}");
            return;
        }
        let mut engine = Uring::new(Arc::clone(&file), &spec).unwrap();
        for _ in 0..20 {
            // The thread ends with requests in flight, and the main thread reaps them.
            let handed_on = thread::spawn(move || {
                let batch: Vec<Request> = (0..depth).map(read).collect();
                engine.submit_and_wait(&batch, 0, None, &mut Vec::new()).unwrap();
                engine
            });
            engine = handed_on.join().unwrap();
            let mut done = Vec::new();
            engine.submit_and_wait(&[], depth, None, &mut done).unwrap();
            assert_eq!(engine.in_flight(), 0);
            assert!(done.iter().all(|completion| completion.result == BLOCK as i32), "{done:?}");
        }
    }

    #[test]
    fn a_polled_read_without_poll_queue_is_refused() {
        let options = EngineOptions { io_poll: true, ..EngineOptions::default() };
        if let Err(error) = probe_with(options) {
            eprintln!("skipped: IOPOLL: {error}");
            return;
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; BLOCK as usize]).unwrap();
        // The file is not open for direct I/O, so its reads cannot be polled.
        let answer = probe_polled_read(Arc::new(file), BLOCK).unwrap();
        assert_eq!(answer.result, -libc::EOPNOTSUPP);
    }
}
