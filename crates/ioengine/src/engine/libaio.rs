//! The `libaio` I/O engine: the kernel's aio (io_submit(2), io_getevents(2)).
//!
//! libaio is asynchronous only with direct I/O. With buffered I/O, io_submit blocks until the data
//! is transferred, so only depth 1 is allowed. If the kernel does not accept all requests of a
//! batch, the engine submits the other requests again later.

use std::io;

use crate::buffer::SlotBuffers;
use crate::clock::{Clock, Monotonic};
use crate::engine::{Engine, EngineOptions, EngineSpec, Files, Setup};
use crate::error::{Error, ErrorKind};
use crate::request::{Completion, Op, Request};
use crate::sys::aio::{Context, Event, Iocb};

/// The `libaio` I/O engine: the kernel's aio (io_submit(2), io_getevents(2)).
#[derive(Debug)]
pub struct Libaio {
    // This field is declared first, because fields are dropped in the order of their declaration.
    // Dropping the context waits for the requests in flight, which use the other fields.
    context: Context,
    files: Files,
    iocbs: Box<[Iocb]>,
    /// The requests that the kernel has not accepted yet.
    waiting: Vec<*mut Iocb>,
    /// The completions of requests that io_submit rejected, until they are reaped.
    refused: Vec<Completion>,
    events: Vec<Event>,
    buffers: SlotBuffers,
    options: EngineOptions,
    clock: Monotonic,
}

// SAFETY: the pointers in `waiting` point to elements of `iocbs`, which the same value owns.
unsafe impl Send for Libaio {}
// SAFETY: only methods that take `&mut self` follow the pointers.
unsafe impl Sync for Libaio {}

/// Returns an error if the kernel does not support aio.
pub fn probe() -> Result<String, Error> {
    Context::new(1).map(|_| String::new()).map_err(setup_error)
}

fn setup_error(source: io::Error) -> Error {
    let error = Error::io("setting up the kernel's aio (io_setup)", source);
    match error.errno() {
        Some(libc::EAGAIN) => error
            .of_kind(ErrorKind::Unsupported)
            .with_remedy("raise the sysctl fs.aio-max-nr, or use `engine` io_uring"),
        Some(libc::ENOSYS) => {
            error.with_remedy("this kernel was built without aio: use `engine` threads")
        }
        _ => error,
    }
}

impl Libaio {
    /// Creates an engine on open files.
    pub fn new(files: impl Into<Files>, spec: &EngineSpec) -> Result<Self, Error> {
        let files = files.into();
        let buffers = files.buffers(spec)?;
        let slots = files.slots(spec);
        let context = Context::new(slots).map_err(setup_error)?;
        let depth = slots as usize;
        Ok(Libaio {
            context,
            files,
            iocbs: vec![Iocb::default(); depth].into_boxed_slice(),
            waiting: Vec::with_capacity(depth),
            refused: Vec::with_capacity(depth),
            events: vec![Event::default(); depth],
            buffers,
            options: spec.options,
            clock: Monotonic::new(),
        })
    }

    fn prepare(&mut self, request: &Request) {
        let memory = self.buffers.lend(request);
        let rw_flags = match request.op {
            Op::Read => self.options.read_flags(),
            Op::Write => self.options.write_flags(),
        };
        let iocb = &mut self.iocbs[request.slot as usize];
        *iocb = Iocb {
            data: u64::from(request.slot),
            rw_flags: rw_flags as u32,
            opcode: u16::from(request.op == Op::Write),
            fd: self.files.descriptor(request) as u32,
            buffer: memory as u64,
            length: u64::from(request.length),
            offset: request.offset as i64,
            ..Iocb::default()
        };
        self.waiting.push(iocb);
    }

    /// Submits the waiting requests. Requests that the kernel does not accept stay in `waiting`.
    fn submit(&mut self) {
        while !self.waiting.is_empty() {
            // SAFETY: each pointer refers to an iocb of this engine, whose slot is lent until the
            // event of the iocb has been reaped. The context is destroyed (and drained) before
            // iocbs and slots are freed.
            let taken = unsafe { self.context.submit(&self.waiting) };
            match taken {
                0 => break,
                taken if taken > 0 => drop(self.waiting.drain(..taken as usize)),
                error if error == -libc::EINTR => {}
                error if error == -libc::EAGAIN => break,
                error => self.fail_first(error),
            }
        }
    }

    /// Completes the first waiting request with `error`.
    fn fail_first(&mut self, error: i32) {
        let first = self.waiting.remove(0);
        // SAFETY: the pointer refers to an iocb of this engine that the kernel did not accept.
        let slot = unsafe { (*first).data };
        self.refused.push(Completion { slot: slot as u32, result: error });
    }

    /// Waits for `at_least` completions or the deadline, and reaps all completions that are ready.
    /// An interrupted wait returns early.
    fn reap(
        &mut self,
        at_least: u32,
        until_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        for completion in self.refused.drain(..) {
            self.buffers.take_back(completion.slot);
            done.push(completion);
        }
        let left_ns = until_ns.map(|at| at.saturating_sub(self.clock.now_ns()));
        let timeout_ns = if at_least == 0 { Some(0) } else { left_ns };
        let got = self.context.events(at_least, &mut self.events, timeout_ns);
        if got < 0 && got != -libc::EINTR {
            let source = io::Error::from_raw_os_error(-got);
            return Err(Error::io("waiting for the kernel's aio (io_getevents)", source));
        }
        for event in &self.events[..got.max(0) as usize] {
            let slot = event.data as u32;
            self.buffers.take_back(slot);
            done.push(Completion { slot, result: event.result as i32 });
        }
        Ok(())
    }
}

impl Engine for Libaio {
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
        for request in batch {
            self.prepare(request);
        }
        let wanted = done.len() + at_least.min(self.buffers.in_flight()) as usize;
        loop {
            self.submit();
            // Only requests that the kernel has accepted can complete.
            let missing = wanted.saturating_sub(done.len() + self.refused.len());
            let taken = self.buffers.in_flight() as usize - self.waiting.len() - self.refused.len();
            self.reap(missing.min(taken) as u32, until_ns, done)?;
            let late = until_ns.is_some_and(|at| self.clock.now_ns() >= at);
            if done.len() >= wanted || late {
                return Ok(());
            }
        }
    }
}
