//! A wrapper around any engine that makes chosen requests fail, fall short or come late.
//!
//! For tests of what stands above an engine: the fault of each request is decided by the closure
//! given, from the number of the request (counted from 0) and the request itself, so a test says
//! exactly what happens where.

use crate::engine::Engine;
use crate::error::Error;
use crate::request::{Completion, Request};

/// What is to happen to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: pass it on.
    None,
    /// Answer with this error number; the request never reaches the engine.
    Errno(i32),
    /// Move only so many bytes.
    Short(u32),
    /// Hold the completion back until so many others have passed it.
    Late(u32),
}

/// See the module.
pub struct Faulty<E, F> {
    inner: E,
    fault_of: F,
    number: u64,
    faults: Vec<Fault>,
    held: Vec<(Completion, u32)>,
    failed: Vec<Completion>,
}

impl<E: Engine, F: FnMut(u64, &Request) -> Fault> Faulty<E, F> {
    /// Wraps an engine.
    pub fn new(inner: E, fault_of: F) -> Self {
        let faults = vec![Fault::None; inner.slots() as usize];
        Faulty { inner, fault_of, number: 0, faults, held: Vec::new(), failed: Vec::new() }
    }

    /// The request as it goes on to the engine, or None where it fails here.
    fn admit(&mut self, request: &Request) -> Option<Request> {
        let fault = (self.fault_of)(self.number, request);
        self.number += 1;
        self.faults[request.slot as usize] = fault;
        match fault {
            Fault::Errno(errno) => {
                self.failed.push(Completion { slot: request.slot, result: -errno });
                None
            }
            Fault::Short(length) => {
                Some(Request { length: length.min(request.length), ..*request })
            }
            Fault::None | Fault::Late(_) => Some(*request),
        }
    }

    fn deliver(&mut self, arrived: Vec<Completion>, done: &mut Vec<Completion>) {
        for completion in arrived {
            match self.faults[completion.slot as usize] {
                Fault::Late(after) => self.held.push((completion, after)),
                _ => done.push(completion),
            }
        }
        let passed = done.len() as u32;
        let idle = self.inner.in_flight() == 0;
        for (completion, left) in std::mem::take(&mut self.held) {
            if left <= passed || idle {
                done.push(completion);
            } else {
                self.held.push((completion, left - passed));
            }
        }
    }
}

impl<E: Engine, F: FnMut(u64, &Request) -> Fault> Engine for Faulty<E, F> {
    fn slots(&self) -> u32 {
        self.inner.slots()
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        self.inner.buffer(slot)
    }

    fn in_flight(&self) -> u32 {
        self.inner.in_flight() + (self.held.len() + self.failed.len()) as u32
    }

    fn submit_and_wait(
        &mut self,
        batch: &[Request],
        at_least: u32,
        until_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        let passed: Vec<Request> = batch.iter().filter_map(|r| self.admit(r)).collect();
        done.append(&mut self.failed);
        let wanted = at_least.saturating_sub(done.len() as u32);
        let mut arrived = Vec::new();
        self.inner.submit_and_wait(&passed, wanted, until_ns, &mut arrived)?;
        self.deliver(arrived, done);
        Ok(())
    }
}
