//! Injects faults into selected requests of an engine: errors, short transfers, late completions
//! and wrong data.
//!
//! The wrapper serves tests of the layers above an engine, and users who want to see the effect of
//! a fault. A closure chooses the fault of each request by its number (counted from 0), so the
//! faults are deterministic.

use crate::clock::{Clock, Monotonic};
use crate::engine::{Engine, Setup};
use crate::error::Error;
use crate::fault::{Fault, FaultCounter, FaultPlan};
use crate::request::{Completion, Op, Request};

/// A function that chooses the fault of a request. The first argument is the number of the request,
/// counted from 0.
type FaultOf = Box<dyn FnMut(u64, &Request) -> Fault + Send + Sync>;

/// A request in flight whose fault is applied when the request completes.
#[derive(Clone, Copy, Debug)]
struct FaultedRequest {
    fault: Fault,
    op: Op,
    /// The number of bytes that the completion reports as transferred.
    reported_bytes: u32,
}

/// When a delayed completion is released.
#[derive(Clone, Copy, Debug)]
enum Hold {
    /// The completion is released after this many other completions.
    AfterOthers(u32),
    /// The completion is released at this time (ns).
    Until(u64),
    Never,
}

/// An engine that injects faults into selected requests of an inner engine.
pub struct Faulty<E> {
    inner: E,
    fault_of: FaultOf,
    clock: Monotonic,
    number: u64,
    faulted: Vec<Option<FaultedRequest>>,
    held: Vec<(Completion, Hold)>,
    completed_here: Vec<Completion>,
}

impl<E: std::fmt::Debug> std::fmt::Debug for Faulty<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faulty").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<E: Engine> Faulty<E> {
    /// Wraps an engine. `fault_of` chooses the fault of each request. Its first argument is the
    /// number of the request, counted from 0.
    pub fn new(
        inner: E,
        fault_of: impl FnMut(u64, &Request) -> Fault + Send + Sync + 'static,
    ) -> Self {
        let faulted = vec![None; inner.slots() as usize];
        let (held, completed_here) = (Vec::new(), Vec::new());
        let fault_of = Box::new(fault_of);
        Faulty {
            inner,
            fault_of,
            clock: Monotonic::new(),
            number: 0,
            faulted,
            held,
            completed_here,
        }
    }

    /// Wraps an engine and injects the faults of `plan` into its requests.
    pub fn following(inner: E, plan: &FaultPlan) -> Self {
        let mut counter = FaultCounter::new(plan.clone());
        Faulty::new(inner, move |_, request| counter.next(request.op))
    }

    /// Chooses the fault of a request. Returns the request to pass to the inner engine, or None if
    /// the request completes at once, without the inner engine.
    fn admit(&mut self, request: &Request) -> Option<Request> {
        let fault = (self.fault_of)(self.number, request);
        self.number += 1;
        if fault == Fault::None {
            return Some(*request);
        }
        let (slot, length) = (request.slot, request.length);
        let writes = request.op == Op::Write;
        let mut passed = *request;
        match fault {
            Fault::Errno(errno) => {
                self.completed_here.push(Completion { slot, result: -errno });
                return None;
            }
            Fault::Lose if writes => {
                self.completed_here.push(Completion { slot, result: length as i32 });
                return None;
            }
            Fault::Short(most) => passed.length = most.clamp(1, length),
            Fault::Tear if writes => passed.length = (length / 2).max(1),
            Fault::Misdirect(bytes) if writes => passed.offset += bytes,
            Fault::Flip if writes => {
                self.inner.buffer(slot)[(request.within + length / 2) as usize] ^= 1;
            }
            _ => {}
        }
        let reported_bytes = if matches!(fault, Fault::Tear) { length } else { passed.length };
        self.faulted[slot as usize] =
            Some(FaultedRequest { fault, op: request.op, reported_bytes });
        Some(passed)
    }

    /// Applies the fault of a request to its completion. Appends the completion to `done`, or to
    /// `held` if the fault delays it.
    fn deliver(&mut self, mut completion: Completion, done: &mut Vec<Completion>) {
        let Some(faulted) = self.faulted[completion.slot as usize].take() else {
            done.push(completion);
            return;
        };
        match faulted.fault {
            Fault::Late(after) => self.held.push((completion, Hold::AfterOthers(after))),
            Fault::Hang(ns) => {
                self.held.push((completion, Hold::Until(self.clock.now_ns().saturating_add(ns))));
            }
            Fault::Never => self.held.push((completion, Hold::Never)),
            Fault::Twice => done.extend([completion; 2]),
            Fault::Flip if faulted.op == Op::Read => {
                // A fault on a write flips a bit in the middle of the data. A fault on a read flips
                // another bit, because flipping the same bit again would restore the data.
                let middle = completion.result.max(0) as usize / 4;
                self.inner.buffer(completion.slot)[middle] ^= 1;
                done.push(completion);
            }
            Fault::Tear if completion.result > 0 => {
                completion.result = faulted.reported_bytes as i32;
                done.push(completion);
            }
            _ => done.push(completion),
        }
    }

    /// Releases the delayed completions that are due.
    fn release(&mut self, done: &mut Vec<Completion>) {
        let (passed, now) = (done.len() as u32, self.clock.now_ns());
        let idle = self.inner.in_flight() == 0;
        for (completion, hold) in std::mem::take(&mut self.held) {
            match hold {
                Hold::AfterOthers(left) if left <= passed || idle => done.push(completion),
                Hold::AfterOthers(left) => {
                    self.held.push((completion, Hold::AfterOthers(left - passed)));
                }
                Hold::Until(at) if at <= now => done.push(completion),
                hold => self.held.push((completion, hold)),
            }
        }
    }

    /// Returns the time when the next delayed completion is due (ns). None if no completion has a
    /// due time.
    fn next_release_ns(&self) -> Option<u64> {
        let due = self.held.iter().filter_map(|(_, hold)| match hold {
            Hold::Until(at) => Some(*at),
            _ => None,
        });
        due.min()
    }
}

impl<E: Engine> Engine for Faulty<E> {
    fn slots(&self) -> u32 {
        self.inner.slots()
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        self.inner.buffer(slot)
    }

    fn in_flight(&self) -> u32 {
        self.inner.in_flight() + (self.held.len() + self.completed_here.len()) as u32
    }

    fn setup(&self) -> Setup {
        self.inner.setup()
    }

    fn flush(&mut self) -> Result<bool, Error> {
        self.inner.flush()
    }

    fn submit_and_wait(
        &mut self,
        batch: &[Request],
        at_least: u32,
        until_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        let passed: Vec<Request> = batch.iter().filter_map(|r| self.admit(r)).collect();
        done.append(&mut self.completed_here);
        let wanted = at_least.saturating_sub(done.len() as u32);
        let due = self.next_release_ns();
        let until = [until_ns, due].into_iter().flatten().min();
        let mut arrived = Vec::new();
        self.inner.submit_and_wait(&passed, wanted, until, &mut arrived)?;
        if wanted > 0 && self.inner.in_flight() == 0 && arrived.is_empty() {
            // Only delayed completions remain. The inner engine does not wait for them.
            if let Some(until) = until {
                self.clock.sleep_until(until);
            }
        }
        for completion in arrived {
            self.deliver(completion, done);
        }
        self.release(done);
        Ok(())
    }
}
