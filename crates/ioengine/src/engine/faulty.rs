//! A wrapper around any engine that makes chosen requests fail, fall short, come late or lie.
//!
//! For tests of what stands above an engine, and for users who want to see what a fault does: the
//! fault of each request is decided by the closure given, from the number of the request (counted
//! from 0) and the request itself, so a test says exactly what happens where.

use crate::clock::{Clock, Monotonic};
use crate::engine::{Engine, Setup};
use crate::error::Error;
use crate::fault::{Fault, FaultCounter, FaultPlan};
use crate::request::{Completion, Op, Request};

/// Decides the fault of a request.
type FaultOf = Box<dyn FnMut(u64, &Request) -> Fault + Send + Sync>;

/// A request whose fault shows only when it completes.
#[derive(Clone, Copy, Debug)]
struct Marked {
    fault: Fault,
    op: Op,
    /// What a lying device says was moved.
    pretends: u32,
}

/// Until when a completion is held back.
#[derive(Clone, Copy, Debug)]
enum Hold {
    Passed(u32),
    Until(u64),
    ForEver,
}

/// A wrapper around any engine that makes chosen requests fail, fall short, come late or lie.
pub struct Faulty<E> {
    inner: E,
    fault_of: FaultOf,
    clock: Monotonic,
    number: u64,
    marked: Vec<Option<Marked>>,
    held: Vec<(Completion, Hold)>,
    answered: Vec<Completion>,
}

impl<E: std::fmt::Debug> std::fmt::Debug for Faulty<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faulty").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<E: Engine> Faulty<E> {
    /// Wraps an engine.
    pub fn new(
        inner: E,
        fault_of: impl FnMut(u64, &Request) -> Fault + Send + Sync + 'static,
    ) -> Self {
        let marked = vec![None; inner.slots() as usize];
        let (held, answered) = (Vec::new(), Vec::new());
        let fault_of = Box::new(fault_of);
        Faulty { inner, fault_of, clock: Monotonic::new(), number: 0, marked, held, answered }
    }

    /// Wraps an engine to follow a plan.
    pub fn following(inner: E, plan: &FaultPlan) -> Self {
        let mut counter = FaultCounter::new(plan.clone());
        Faulty::new(inner, move |_, request| counter.next(request.op))
    }

    /// The request as it goes on to the engine, or None where it is answered here.
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
                self.answered.push(Completion { slot, result: -errno });
                return None;
            }
            Fault::Lose if writes => {
                self.answered.push(Completion { slot, result: length as i32 });
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
        let pretends = if matches!(fault, Fault::Tear) { length } else { passed.length };
        self.marked[slot as usize] = Some(Marked { fault, op: request.op, pretends });
        Some(passed)
    }

    /// Hands a completion up, or holds it back.
    fn deliver(&mut self, mut completion: Completion, done: &mut Vec<Completion>) {
        let Some(marked) = self.marked[completion.slot as usize].take() else {
            done.push(completion);
            return;
        };
        match marked.fault {
            Fault::Late(after) => self.held.push((completion, Hold::Passed(after))),
            Fault::Hang(ns) => {
                self.held.push((completion, Hold::Until(self.clock.now_ns().saturating_add(ns))));
            }
            Fault::Never => self.held.push((completion, Hold::ForEver)),
            Fault::Twice => done.extend([completion; 2]),
            Fault::Flip if marked.op == Op::Read => {
                // Not the bit that a write turns: two wrongs must not make a right.
                let middle = completion.result.max(0) as usize / 4;
                self.inner.buffer(completion.slot)[middle] ^= 1;
                done.push(completion);
            }
            Fault::Tear if completion.result > 0 => {
                completion.result = marked.pretends as i32;
                done.push(completion);
            }
            _ => done.push(completion),
        }
    }

    /// Lets go what has been held back long enough.
    fn release(&mut self, done: &mut Vec<Completion>) {
        let (passed, now) = (done.len() as u32, self.clock.now_ns());
        let idle = self.inner.in_flight() == 0;
        for (completion, hold) in std::mem::take(&mut self.held) {
            match hold {
                Hold::Passed(left) if left <= passed || idle => done.push(completion),
                Hold::Passed(left) => {
                    self.held.push((completion, Hold::Passed(left - passed)));
                }
                Hold::Until(at) if at <= now => done.push(completion),
                hold => self.held.push((completion, hold)),
            }
        }
    }

    /// When the next held completion is due, if any is (ns).
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
        self.inner.in_flight() + (self.held.len() + self.answered.len()) as u32
    }

    fn setup(&self) -> Setup {
        self.inner.setup()
    }

    fn submit_and_wait(
        &mut self,
        batch: &[Request],
        at_least: u32,
        until_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        let passed: Vec<Request> = batch.iter().filter_map(|r| self.admit(r)).collect();
        done.append(&mut self.answered);
        let wanted = at_least.saturating_sub(done.len() as u32);
        let due = self.next_release_ns();
        let until = [until_ns, due].into_iter().flatten().min();
        let mut arrived = Vec::new();
        self.inner.submit_and_wait(&passed, wanted, until, &mut arrived)?;
        if wanted > 0 && self.inner.in_flight() == 0 && arrived.is_empty() {
            // Everything left is held back here: wait for it as a device would make us wait.
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
