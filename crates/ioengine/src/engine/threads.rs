//! The `threads` I/O engine: a pool of threads that keeps `depth` blocking requests in flight.
//!
//! Each thread takes requests from a queue, transfers the data with pread(2) or pwrite(2), and
//! appends the result to a list. The engine works on every kernel and every file. Its overhead is
//! high, because each request is passed to another thread and its result is passed back.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::buffer::SlotBuffers;
use crate::clock::{Clock, Monotonic};
use crate::engine::{Engine, EngineOptions, EngineSpec, Files, Setup};
use crate::error::Error;
use crate::request::{Completion, Op, Request};
use crate::sys;

/// The `threads` I/O engine: a pool of threads that keeps `depth` blocking requests in flight.
#[derive(Debug)]
pub struct Threads {
    pool: Arc<Pool>,
    handles: Vec<JoinHandle<()>>,
    buffers: SlotBuffers,
    options: EngineOptions,
    clock: Monotonic,
}

#[derive(Debug)]
struct Job {
    request: Request,
    memory: *mut u8,
}

// SAFETY: the memory is lent to the pool until the completion is reaped; see SlotBuffers::lend.
unsafe impl Send for Job {}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Pool {
    queue: Mutex<Queue>,
    work: Condvar,
    done: Mutex<Vec<Completion>>,
    ready: Condvar,
}

/// Locks a mutex. Ignores poisoning, because no code in this module panics while it holds a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Processes requests until the queue is closed. Each thread of the pool runs this loop.
    fn serve(&self, files: &Files, options: EngineOptions) {
        while let Some(job) = self.next_job() {
            let Job { request, memory } = job;
            let (write, length) = (request.op == Op::Write, request.length as usize);
            let flags = if write { options.write_flags() } else { options.read_flags() };
            let (fd, offset) = (files.descriptor(&request), request.offset);
            // SAFETY: the slot is lent until this completion is reaped, so the memory is valid and
            // no other code accesses it.
            let result = unsafe { sys::transfer(fd, write, memory, length, offset, flags) };
            lock(&self.done).push(Completion { slot: request.slot, result });
            self.ready.notify_one();
        }
    }

    fn next_job(&self) -> Option<Job> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Threads {
    /// Creates an engine on open files and starts one thread per slot.
    pub fn new(files: impl Into<Files>, spec: &EngineSpec) -> Result<Self, Error> {
        let files = files.into();
        let buffers = files.buffers(spec)?;
        let pool = Arc::new(Pool::default());
        let (options, clock) = (spec.options, Monotonic::new());
        let mut engine = Threads { pool, handles: Vec::new(), buffers, options, clock };
        for number in 0..files.slots(spec) {
            let (pool, files) = (Arc::clone(&engine.pool), files.clone());
            let thread = std::thread::Builder::new()
                .name(format!("request-{number}"))
                .stack_size(64 * 1024)
                .spawn(move || pool.serve(&files, options))
                .map_err(|e| {
                    Error::io(format!("starting thread {number} of the pool"), e)
                        .with_remedy("use a smaller `depth` or raise the limit on processes")
                })?;
            engine.handles.push(thread);
        }
        Ok(engine)
    }

    fn submit(&mut self, batch: &[Request]) {
        let mut queue = lock(&self.pool.queue);
        for request in batch {
            let memory = self.buffers.lend(request);
            queue.jobs.push_back(Job { request: *request, memory });
        }
        drop(queue);
        match batch.len() {
            0 => {}
            1 => self.pool.work.notify_one(),
            _ => self.pool.work.notify_all(),
        }
    }
}

impl Engine for Threads {
    fn slots(&self) -> u32 {
        self.buffers.slots()
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        self.buffers.slot_mut(slot)
    }

    fn setup(&self) -> Setup {
        let (buffer_bytes, huge_bytes) = self.buffers.pages();
        Setup { features: self.options.request_features(), buffer_bytes, huge_bytes }
    }

    fn in_flight(&self) -> u32 {
        self.buffers.in_flight()
    }

    fn submit_and_wait(
        &mut self,
        batch: &[Request],
        at_least: u32,
        until_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        self.submit(batch);
        let wanted = at_least.min(self.buffers.in_flight()) as usize;
        let mut ready = lock(&self.pool.done);
        while ready.len() < wanted {
            let left_ns = until_ns.map_or(u64::MAX, |at| at.saturating_sub(self.clock.now_ns()));
            if left_ns == 0 {
                break;
            }
            let left = Duration::from_nanos(left_ns.min(3_600_000_000_000));
            let woken = self.pool.ready.wait_timeout(ready, left);
            ready = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        for completion in ready.drain(..) {
            self.buffers.take_back(completion.slot);
            done.push(completion);
        }
        Ok(())
    }
}

impl Drop for Threads {
    /// Waits until all threads have ended, because the buffers are freed next.
    fn drop(&mut self) {
        lock(&self.pool.queue).closed = true;
        self.pool.work.notify_all();
        for handle in self.handles.drain(..) {
            // An error means that the thread panicked, which was already printed.
            let _ = handle.join();
        }
    }
}
