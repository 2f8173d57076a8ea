//! The `sync` personality: one blocking pread(2) or pwrite(2) at a time.
//!
//! What a plain program does. A deadline cannot interrupt a request that blocks; it is looked at
//! between requests.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::buffer::SlotBuffers;
use crate::engine::{Engine, EngineSpec, Setup};
use crate::error::Error;
use crate::request::{Completion, Op, Request};

/// See the module.
#[derive(Debug)]
pub struct Sync {
    file: Arc<File>,
    buffers: SlotBuffers,
}

impl Sync {
    /// An engine on an open file.
    pub fn new(file: Arc<File>, spec: &EngineSpec) -> Result<Self, Error> {
        let buffers = SlotBuffers::new(spec.depth, spec.slot_bytes as usize, spec.pages)?;
        Ok(Sync { file, buffers })
    }

    fn transfer(&mut self, request: &Request) -> i32 {
        let from = request.within as usize;
        let memory = &mut self.buffers.slot_mut(request.slot)[from..from + request.length as usize];
        let moved = match request.op {
            Op::Read => self.file.read_at(memory, request.offset),
            Op::Write => self.file.write_at(memory, request.offset),
        };
        match moved {
            Ok(bytes) => bytes as i32,
            Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
        }
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
            let result = self.transfer(request);
            done.push(Completion { slot: request.slot, result });
        }
        Ok(())
    }
}
