//! Issues and completes requests on a set of files. Short transfers are continued, and interrupted
//! transfers are repeated. If a file system refuses a direct request, the request is repeated
//! through the page cache. For each transfer, the caller gets the number of bytes or one error.

use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};

use ioengine::engine::{Engine, EngineSpec, HostEngine};
use ioengine::fault::FaultPlan;
use ioengine::{BufferPages, Completion, EngineKind, EngineOptions, Hint, Monotonic, Op, Request};
use rustix::io::Errno;

use crate::error;
use crate::memory::Grant;

/// Maximum number of retries of a request that the kernel did not execute (EINTR, EAGAIN).
const RETRIES_MAX: u32 = 1000;
/// Largest alignment that any device requires (bytes).
pub(crate) const ALIGNMENT_MAX: u64 = 4096;

/// The descriptors of one file.
#[derive(Clone, Debug)]
pub(crate) struct FilePaths {
    /// Descriptor that was opened with O_DIRECT, and the required alignment of offsets and lengths
    /// (bytes). None if direct I/O is not used.
    pub direct: Option<(Arc<File>, u32)>,
    /// Descriptor for buffered I/O.
    pub buffered: Arc<File>,
}

/// How requests are issued.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub engine_kind: Option<EngineKind>,
    pub faults: FaultPlan,
}

/// A read from a file into a slot (a buffer of the engine), or a write from a slot to a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub op: Op,
    /// Index in the list of files that was passed to [`Requests::new`].
    pub file: u16,
    /// Offset in the file (bytes).
    pub offset: u64,
    /// Offset in the slot (bytes). It is 0 for reads.
    pub within: u32,
    /// Length of the transfer (bytes).
    pub length: u32,
}

/// A transfer that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    /// Offset in the file at which the transfer failed (bytes).
    pub offset: u64,
    /// Number of bytes that were moved before the failure.
    pub moved: u32,
    pub error: io::Error,
}

/// A transfer in progress.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    transfer: Transfer,
    /// Start of the current request within the transfer (bytes).
    from: u32,
    /// Number of bytes of the transfer that were already moved.
    moved: u32,
    direct: bool,
    tries: u32,
    /// Number of bytes moved, or an error number. None while the transfer is in progress.
    outcome: Option<Result<u32, i32>>,
}

/// An I/O engine with its requests in flight.
#[derive(Debug)]
pub(crate) struct Requests {
    engine: HostEngine,
    engine_kind: EngineKind,
    /// Alignment of direct requests for each file (bytes). None if direct I/O is not used or was
    /// refused.
    alignments: Vec<Option<u32>>,
    slots: Vec<Option<InFlight>>,
    batch: Vec<Request>,
    done: Vec<Completion>,
    /// This field is the last one, so that the grant is released after the engine.
    _memory: Grant,
}

/// Returns the best engine of this host. The choice is made once per process.
pub(crate) fn best_engine_kind(direct: bool) -> EngineKind {
    static BEST: [OnceLock<EngineKind>; 2] = [OnceLock::new(), OnceLock::new()];
    *BEST[usize::from(direct)].get_or_init(|| EngineKind::best(direct))
}

impl Requests {
    /// Starts an engine on these files, with the granted slots.
    ///
    /// # Errors
    /// If the requested engine is not available, or there is not enough memory.
    pub fn new(files: &[FilePaths], setup: &Setup, memory: Grant) -> io::Result<Requests> {
        // This call skips the calibration of the clock, which would take too long here.
        Monotonic::uncalibrated();
        let direct = files.iter().any(|file| file.direct.is_some());
        let mut engine_kind = setup.engine_kind.unwrap_or_else(|| best_engine_kind(direct));
        if !engine_kind.does_io() || engine_kind == EngineKind::Mmap {
            let what =
                format!("{engine_kind} is not supported; use io_uring, libaio, threads or sync");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let both = |paths: &FilePaths| {
            let direct = paths.direct.as_ref().map_or(&paths.buffered, |(file, _)| file);
            [Arc::clone(direct), Arc::clone(&paths.buffered)]
        };
        let descriptors: Vec<Arc<File>> = files.iter().flat_map(both).collect();
        let make = |engine_kind| {
            let spec = EngineSpec {
                engine_kind,
                depth: memory.slots,
                slot_bytes: memory.request_bytes,
                pages: BufferPages::Huge,
                options: EngineOptions { any_thread: true, ..EngineOptions::default() },
            };
            HostEngine::on_files(descriptors.clone(), &spec, Hint::Normal)
        };
        let engine = match make(engine_kind) {
            // The first engine may have failed because this user has too many io_uring rings.
            // Threads need no ring.
            Err(_) if setup.engine_kind.is_none() && engine_kind != EngineKind::Threads => {
                engine_kind = EngineKind::Threads;
                make(engine_kind)
            }
            made => made,
        };
        let slots = memory.slots as usize;
        Ok(Requests {
            engine: engine.map_err(error::of_engine)?.suffering(&setup.faults),
            engine_kind,
            alignments: files.iter().map(|paths| Some(paths.direct.as_ref()?.1)).collect(),
            slots: vec![None; slots],
            batch: Vec::with_capacity(slots),
            done: Vec::with_capacity(slots),
            _memory: memory,
        })
    }

    pub fn engine_kind(&self) -> EngineKind {
        self.engine_kind
    }

    /// Returns whether requests to a file still use direct I/O.
    pub fn is_direct(&self, file: u16) -> bool {
        self.alignments[usize::from(file)].is_some()
    }

    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns the memory of a slot that has no transfer in progress.
    pub fn memory(&mut self, slot: u32) -> &mut [u8] {
        self.engine.buffer(slot)
    }

    /// Adds a transfer to the next batch. The batch is submitted by [`Requests::submit`], or when
    /// the caller waits.
    pub fn enqueue(&mut self, slot: u32, transfer: Transfer) {
        let fresh =
            InFlight { transfer, from: 0, moved: 0, direct: false, tries: 0, outcome: None };
        self.slots[slot as usize] = Some(fresh);
        self.request(slot);
    }

    /// Submits the batch and collects completions without waiting.
    pub fn submit(&mut self) -> io::Result<()> {
        if self.batch.is_empty() { Ok(()) } else { self.enter(0) }
    }

    /// Returns whether the transfer of a slot is complete.
    pub fn is_done(&self, slot: u32) -> bool {
        self.slots[slot as usize].is_some_and(|slot| slot.outcome.is_some())
    }

    /// Waits until at least one more request completes, if any request is in flight.
    pub fn wait(&mut self) -> io::Result<()> {
        self.enter(1)
    }

    /// Waits for the transfer of a slot and frees the slot. Returns the number of bytes moved.
    pub fn finish(&mut self, slot: u32) -> Result<u32, Failed> {
        loop {
            let Some(in_flight) = self.slots[slot as usize] else { return Ok(0) };
            let (offset, moved) = (in_flight.transfer.offset, in_flight.moved);
            let failed = |error| Failed { offset: offset + u64::from(moved), moved, error };
            if let Some(outcome) = in_flight.outcome {
                self.slots[slot as usize] = None;
                return outcome.map_err(|number| failed(io::Error::from_raw_os_error(number)));
            }
            self.enter(1).map_err(failed)?;
        }
    }

    /// Waits until no request is in flight. The results are ignored.
    pub fn drain(&mut self) {
        for slot in 0..self.slots() {
            drop(self.finish(slot));
        }
    }

    /// Submits the batch, waits for `at_least` completions, and handles all completions.
    fn enter(&mut self, at_least: u32) -> io::Result<()> {
        let entered = self.engine.submit_and_wait(&self.batch, at_least, None, &mut self.done);
        self.batch.clear();
        entered.map_err(error::of_engine)?;
        let mut done = std::mem::take(&mut self.done);
        for completion in done.drain(..) {
            self.complete(completion);
        }
        self.done = done;
        Ok(())
    }

    /// Adds a request to the batch. The request is for the remaining bytes of a slot's transfer.
    fn request(&mut self, slot: u32) {
        let Some(in_flight) = &mut self.slots[slot as usize] else { return };
        let Transfer { op, file, offset, within, length } = in_flight.transfer;
        let alignment = self.alignments[usize::from(file)];
        let (mut from, mut left) = (in_flight.moved, length - in_flight.moved);
        in_flight.direct = false;
        if let Some(alignment) = alignment {
            // A direct read continues at the last aligned offset, so some bytes are read twice.
            let back = from % alignment;
            let fits = |bytes: u64| bytes.is_multiple_of(u64::from(alignment));
            if op == Op::Read && fits(offset) {
                (from, left) = (from - back, (left + back).next_multiple_of(alignment));
                in_flight.direct = true;
            } else {
                let aligned = fits(offset) && fits(within.into()) && fits(left.into());
                in_flight.direct = aligned && back == 0;
            }
        }
        in_flight.from = from;
        self.batch.push(Request {
            offset: offset + u64::from(from),
            length: left,
            within: within + from,
            slot,
            file: 2 * file + u16::from(!in_flight.direct),
            op,
        });
    }

    /// Handles a completed request. Either the transfer is done, or another request continues the
    /// transfer.
    fn complete(&mut self, Completion { slot, result }: Completion) {
        let Some(in_flight) = &mut self.slots[slot as usize] else { return };
        let Transfer { op, file, length, .. } = in_flight.transfer;
        let refused = [Errno::INVAL, Errno::OPNOTSUPP].map(Errno::raw_os_error);
        let again = [Errno::INTR, Errno::AGAIN, Errno::CANCELED].map(Errno::raw_os_error);
        if result < 0 {
            let number = -result;
            in_flight.tries += 1;
            if in_flight.direct && refused.contains(&number) {
                self.alignments[usize::from(file)] = None;
            } else if !again.contains(&number) || in_flight.tries > RETRIES_MAX {
                in_flight.outcome = Some(Err(number));
                return;
            }
            return self.request(slot);
        }
        let reached = (in_flight.from + result as u32).min(length);
        let progressed = reached > in_flight.moved;
        in_flight.moved = in_flight.moved.max(reached);
        let at_end = op == Op::Read && !progressed;
        if in_flight.moved == length || at_end {
            in_flight.outcome = Some(Ok(in_flight.moved));
        } else if !progressed {
            in_flight.outcome = Some(Err(Errno::IO.raw_os_error()));
        } else {
            self.request(slot);
        }
    }
}
