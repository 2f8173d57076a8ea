//! The `delay` I/O engine: simulates a reference device inside the process, without any system call
//! per request.
//!
//! A [`Schedule`], which all workers of a target share, computes when each request completes. The
//! engine sleeps until shortly before this time and then spins, so that the completion is accurate
//! to about a microsecond and the latency does not include the wake-up time of an idle CPU. Reads
//! leave the buffer unchanged. Writes are discarded.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use crate::buffer::SlotBuffers;
use crate::clock::{Clock, Monotonic, thread_cpu_ns};
use crate::engine::{Engine, EngineSpec, Setup};
use crate::error::Error;
use crate::request::{Completion, Request};
use crate::truth::{Schedule, Truth};

/// The simulated device that all engines of a target share.
#[derive(Clone, Debug)]
pub struct DelayDevice {
    schedule: Arc<Mutex<Schedule>>,
    truth: Arc<Truth>,
    assistant: Option<Arc<File>>,
}

impl DelayDevice {
    /// Creates an idle device with these parameters.
    pub fn new(truth: Truth) -> DelayDevice {
        let schedule = Arc::new(Mutex::new(Schedule::new(truth.clone())));
        DelayDevice { schedule, truth: Arc::new(truth), assistant: None }
    }

    /// Gives the device a pipe that leads to an assistant process. The process reads one byte per
    /// request, and uses CPU time as interrupts and kernel threads do for a real device.
    #[must_use]
    pub fn with_assistant(mut self, pipe: File) -> DelayDevice {
        self.assistant = Some(Arc::new(pipe));
        self
    }

    /// Returns the parameters of the device.
    pub fn truth(&self) -> &Truth {
        &self.truth
    }
}

/// The `delay` I/O engine: simulates a reference device inside the process.
#[derive(Debug)]
pub struct Delay {
    devices: Vec<DelayDevice>,
    clock: Monotonic,
    buffers: SlotBuffers,
    /// The completion time (ns), slot and length (bytes) of each request in flight. The request
    /// that completes first is on top.
    due: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// The number of requests for which no byte was written to the assistant process yet.
    unreported: usize,
}

/// The number of requests that one write to the assistant process reports. Waking the process takes
/// some microseconds, so it is not woken for every request.
const NOTIFY_BATCH: usize = 16;

impl Delay {
    /// Creates an engine on the device.
    pub fn new(device: &DelayDevice, spec: &EngineSpec) -> Result<Self, Error> {
        Delay::over(vec![device.clone()], 0, spec)
    }

    /// Creates an engine on the devices of a stripe. Each request is split into at most
    /// `1 << pieces_bits` pieces.
    pub(crate) fn over(
        devices: Vec<DelayDevice>,
        pieces_bits: u32,
        spec: &EngineSpec,
    ) -> Result<Self, Error> {
        let (depth, bytes) = (spec.depth, spec.slot_bytes as usize);
        let buffers = SlotBuffers::shared(depth, pieces_bits, bytes, spec.pages, false)?;
        let due = BinaryHeap::with_capacity(buffers.slots() as usize);
        Ok(Delay { devices, clock: Monotonic::new(), buffers, due, unreported: 0 })
    }

    fn admit(&mut self, batch: &[Request]) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        for of_one_device in batch.chunk_by(|one, next| one.file == next.file) {
            let shared = &self.devices[usize::from(of_one_device[0].file)].schedule;
            let mut schedule = shared.lock().unwrap_or_else(PoisonError::into_inner);
            for request in of_one_device {
                let Request { op, offset, length, slot, .. } = *request;
                self.buffers.lend(request);
                let at = schedule.admit(self.clock.now_ns(), op, offset, length);
                self.due.push(Reverse((at, slot, length)));
            }
        }
        self.consume_cpu(batch.len())
    }

    /// Writes one byte per request into the pipe of the assistant process.
    fn notify_assistant(&mut self, requests: usize) -> Result<(), Error> {
        self.unreported -= requests;
        let Some(mut pipe) = self.devices[0].assistant.as_deref() else { return Ok(()) };
        pipe.write_all(&[0_u8; NOTIFY_BATCH][..requests]).map_err(|e| {
            Error::io("writing to the process that uses CPU time for a simulated device", e)
        })
    }

    /// Consumes in this thread the CPU time that the device model assigns to these requests, and
    /// tells the assistant process to consume CPU time. Uses the parameters of the first device,
    /// because all devices of a stripe have the same parameters.
    fn consume_cpu(&mut self, requests: usize) -> Result<(), Error> {
        self.unreported += requests;
        while self.unreported >= NOTIFY_BATCH {
            self.notify_assistant(NOTIFY_BATCH)?;
        }
        let cpu_ns = self.devices[0].truth.cpu_ns;
        if cpu_ns > 0 {
            burn_cpu(cpu_ns * requests as u64);
        }
        Ok(())
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        // The call fails only if the assistant process has exited, which is harmless.
        let _ = self.notify_assistant(self.unreported);
    }
}

/// Spins until the calling thread has used `cpu_ns` of CPU time. Time during which the thread is
/// preempted does not count.
pub fn burn_cpu(cpu_ns: u64) {
    let end = thread_cpu_ns() + cpu_ns;
    while thread_cpu_ns() < end {
        std::hint::spin_loop();
    }
}

impl Engine for Delay {
    fn slots(&self) -> u32 {
        self.buffers.slots()
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        self.buffers.slot_mut(slot)
    }

    fn setup(&self) -> Setup {
        let (buffer_bytes, huge_bytes) = self.buffers.pages();
        Setup { buffer_bytes, huge_bytes, ..Setup::default() }
    }

    fn in_flight(&self) -> u32 {
        self.due.len() as u32
    }

    fn submit_and_wait(
        &mut self,
        batch: &[Request],
        at_least: u32,
        until_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        self.admit(batch)?;
        let wanted = done.len() + (at_least as usize).min(self.due.len());
        loop {
            let now = self.clock.now_ns();
            while let Some(Reverse((at, slot, length))) = self.due.peek().copied() {
                if at > now {
                    break;
                }
                self.due.pop();
                self.buffers.take_back(slot);
                done.push(Completion { slot, result: length as i32 });
            }
            let next = self.due.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
            let past_deadline = until_ns.is_some_and(|until| now >= until);
            if done.len() >= wanted || next == u64::MAX || past_deadline {
                return Ok(());
            }
            self.clock.sleep_sharply_until(next.min(until_ns.unwrap_or(u64::MAX)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::BufferPages;
    use crate::engine::{EngineKind, EngineOptions};
    use crate::request::Op;

    fn engine(truth: Truth, depth: u32) -> Delay {
        let spec = EngineSpec {
            engine_kind: EngineKind::Delay,
            depth,
            slot_bytes: 4096,
            pages: BufferPages::Small,
            options: EngineOptions::default(),
        };
        Delay::new(&DelayDevice::new(truth), &spec).unwrap()
    }

    fn read(slot: u32) -> Request {
        Request { offset: 0, length: 4096, within: 0, slot, file: 0, op: Op::Read }
    }

    #[test]
    fn all_requests_complete_and_none_early() {
        let truth = Truth { fixed_ns: 3_000_000, parallelism: 2, ..Truth::default() };
        let (mut engine, clock) = (engine(truth, 4), Monotonic::new());
        let start = clock.now_ns();
        let mut done = Vec::new();
        let batch: Vec<Request> = (0..4).map(read).collect();
        engine.submit_and_wait(&batch, 2, None, &mut done).unwrap();
        assert!(clock.now_ns() - start >= 3_000_000);
        // More than two completions are ready if this thread was preempted.
        assert!(done.len() >= 2 && done.len() + engine.in_flight() as usize == 4);
        let left = engine.in_flight();
        engine.submit_and_wait(&[], left, None, &mut done).unwrap();
        assert!(clock.now_ns() - start >= 6_000_000);
        assert_eq!((done.len(), engine.in_flight()), (4, 0));
    }

    #[test]
    fn a_deadline_ends_the_wait() {
        let truth = Truth { fixed_ns: 60_000_000_000, ..Truth::default() };
        let (mut engine, clock) = (engine(truth, 1), Monotonic::new());
        let until = clock.now_ns() + 1_000_000;
        let mut done = Vec::new();
        engine.submit_and_wait(&[read(0)], 1, Some(until), &mut done).unwrap();
        assert!(done.is_empty() && clock.now_ns() >= until);
    }

    #[test]
    fn burning_uses_the_cpu_time_asked_for() {
        let before = thread_cpu_ns();
        burn_cpu(2_000_000);
        assert!(thread_cpu_ns() - before >= 2_000_000);
    }
}
