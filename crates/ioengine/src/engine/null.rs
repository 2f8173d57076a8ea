//! The `null` I/O engine: does no I/O and no system call. Every request completes in full
//! immediately.
//!
//! The engine measures halfpower's own overhead per request, which every report prints.

use crate::buffer::SlotBuffers;
use crate::engine::{Engine, EngineSpec, Setup};
use crate::error::Error;
use crate::request::{Completion, Request};

/// The `null` I/O engine: does no I/O and no system call. Every request completes in full
/// immediately.
#[derive(Debug)]
pub struct Null {
    buffers: SlotBuffers,
}

impl Null {
    /// Creates an engine with the buffers that `spec` requires. The engine has no target.
    pub fn new(spec: &EngineSpec) -> Result<Self, Error> {
        let buffers = SlotBuffers::new(spec.depth, spec.slot_bytes as usize, spec.pages)?;
        Ok(Null { buffers })
    }
}

impl Engine for Null {
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

    #[inline]
    fn in_flight(&self) -> u32 {
        0
    }

    #[inline]
    fn submit_and_wait(
        &mut self,
        batch: &[Request],
        _at_least: u32,
        _until_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        for request in batch {
            // The measured overhead includes the management of the slots, as in other engines.
            self.buffers.lend(request);
            self.buffers.take_back(request.slot);
            done.push(Completion { slot: request.slot, result: request.length as i32 });
        }
        Ok(())
    }
}
