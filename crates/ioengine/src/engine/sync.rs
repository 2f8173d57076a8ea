//! The `sync` I/O engine: issues one blocking pread(2) or pwrite(2) at a time. Requests with flags
//! use preadv2(2) or pwritev2(2).
//!
//! A deadline cannot interrupt a blocked request.

use crate::buffer::SlotBuffers;
use crate::engine::{Engine, EngineOptions, EngineSpec, Files, Setup};
use crate::error::Error;
use crate::request::{Completion, Op, Request};
use crate::sys;

/// The `sync` I/O engine: issues one blocking pread(2) or pwrite(2) at a time. Requests with flags
/// use preadv2(2) or pwritev2(2).
#[derive(Debug)]
pub struct Sync {
    files: Files,
    buffers: SlotBuffers,
    options: EngineOptions,
}

impl Sync {
    /// Creates an engine on open files.
    pub fn new(files: impl Into<Files>, spec: &EngineSpec) -> Result<Self, Error> {
        let files = files.into();
        let buffers = files.buffers(spec)?;
        Ok(Sync { files, buffers, options: spec.options })
    }

    fn transfer(&mut self, request: &Request) -> i32 {
        let (write, length) = (request.op == Op::Write, request.length as usize);
        let flags = if write { self.options.write_flags() } else { self.options.read_flags() };
        let descriptor = self.files.descriptor(request);
        let memory = self.buffers.lend(request);
        // SAFETY: `memory` is the slot of this request, which no other code can access until
        // `take_back`.
        let result =
            unsafe { sys::transfer(descriptor, write, memory, length, request.offset, flags) };
        self.buffers.take_back(request.slot);
        result
    }
}

impl Engine for Sync {
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
            let result = self.transfer(request);
            done.push(Completion { slot: request.slot, result });
        }
        Ok(())
    }
}
