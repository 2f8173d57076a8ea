//! Sends replies at their completion times. Contains the timing model, the pending replies, and one
//! thread that waits for the next completion.
//!
//! The thread sleeps until shortly before the next completion and then spins, because an idle CPU
//! takes about 50 us to wake up. A reply that is due immediately is sent by the submitting
//! thread.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ioengine::{Clock, Monotonic, Op};

use crate::timing::Timing;

/// A function that sends a reply.
type Answer = Box<dyn FnOnce() + Send>;

/// Time before a completion at which the thread stops sleeping (ns). This covers the wake-up time
/// and the kernel's timer slack of 50 us.
const SPIN_NS: u64 = 120_000;
/// Maximum time to spin before checking whether a new request completes earlier (ns).
const LOOK_NS: u64 = 10_000;

/// A request as seen by the timing model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub at_ns: u64,
    pub op: Op,
    pub offset: u64,
    pub length: u32,
    /// Additional delay of the reply after completion, caused by a fault (ns).
    pub hang_ns: u64,
}

struct Waiting {
    hang_ns: u64,
    answer: Answer,
}

struct Pending {
    timing: Box<dyn Timing>,
    /// Pending requests by tag. Tags increase in order of arrival.
    waiting: BTreeMap<u32, Waiting>,
    next_tag: u32,
    /// Completed requests whose replies are delayed by a fault: the time at which the reply is sent
    /// (ns), and the tag.
    held: BinaryHeap<Reverse<(u64, u32)>>,
    /// Scratch list for the tags of completed requests. Empty between calls.
    done: Vec<u32>,
    /// Time until which the thread sleeps (ns). None if the thread is awake.
    asleep_until_ns: Option<u64>,
    closed: bool,
}

impl Pending {
    fn submit(&mut self, arrival: Arrival, answer: Answer) {
        let Arrival { at_ns, op, offset, length, hang_ns } = arrival;
        let tag = self.next_tag;
        self.next_tag = self.next_tag.wrapping_add(1);
        self.waiting.insert(tag, Waiting { hang_ns, answer });
        self.timing.submit(at_ns, tag, op, offset, length);
    }

    /// Advances the model to `now_ns`. Removes and returns the replies that are due.
    fn ready(&mut self, now_ns: u64) -> Vec<Answer> {
        let mut done = std::mem::take(&mut self.done);
        self.timing.advance(now_ns, &mut done);
        let mut answers = Vec::new();
        for tag in done.drain(..) {
            let hang_ns = self.waiting.get(&tag).map_or(0, |waiting| waiting.hang_ns);
            if hang_ns > 0 {
                self.held.push(Reverse((now_ns.saturating_add(hang_ns), tag)));
            } else {
                answers.extend(self.waiting.remove(&tag).map(|waiting| waiting.answer));
            }
        }
        self.done = done;
        while let Some(Reverse((at_ns, tag))) = self.held.peek().copied() {
            if at_ns > now_ns {
                break;
            }
            self.held.pop();
            answers.extend(self.waiting.remove(&tag).map(|waiting| waiting.answer));
        }
        answers
    }

    /// Returns the time at which to check for completions again (ns). None if nothing is pending.
    fn next_ns(&self) -> Option<u64> {
        let held = self.held.peek().map(|Reverse((at_ns, _))| *at_ns);
        [self.timing.next_ns(), held].into_iter().flatten().min()
    }
}

struct Shared {
    pending: Mutex<Pending>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends replies at their completion times. Dropping the pacer sends all pending replies
/// immediately.
pub(crate) struct Pacer {
    shared: Arc<Shared>,
    clock: Monotonic,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    /// Starts the thread that sends replies.
    pub(crate) fn start(timing: Box<dyn Timing>) -> std::io::Result<Pacer> {
        let pending = Pending {
            timing,
            waiting: BTreeMap::new(),
            next_tag: 0,
            held: BinaryHeap::new(),
            done: Vec::new(),
            asleep_until_ns: None,
            closed: false,
        };
        let shared = Arc::new(Shared { pending: Mutex::new(pending), changed: Condvar::new() });
        let clock = Monotonic::new();
        let mine = Arc::clone(&shared);
        let body = move || keep_time(&mine, clock);
        let thread = std::thread::Builder::new().name("pacer".to_owned()).spawn(body)?;
        Ok(Pacer { shared, clock, thread: Some(thread) })
    }

    /// Submits a request. `answer` is called when the request completes.
    pub(crate) fn submit(&self, arrival: Arrival, answer: impl FnOnce() + Send + 'static) {
        let mut pending = self.shared.lock();
        pending.submit(arrival, Box::new(answer));
        let ready = pending.ready(self.clock.now_ns());
        let next_ns = pending.next_ns().unwrap_or(u64::MAX);
        let oversleeps = pending.asleep_until_ns.is_some_and(|until_ns| next_ns < until_ns);
        drop(pending);
        ready.into_iter().for_each(|answer| answer());
        if oversleeps {
            self.shared.changed.notify_one();
        }
    }
}

fn keep_time(shared: &Shared, clock: Monotonic) {
    let mut pending = shared.lock();
    while !pending.closed {
        let now_ns = clock.now_ns();
        let ready = pending.ready(now_ns);
        if !ready.is_empty() {
            drop(pending);
            ready.into_iter().for_each(|answer| answer());
            pending = shared.lock();
            continue;
        }
        let next_ns = pending.next_ns();
        let ahead_ns = next_ns.unwrap_or(u64::MAX).saturating_sub(now_ns);
        if ahead_ns > SPIN_NS {
            pending.asleep_until_ns = Some(next_ns.unwrap_or(u64::MAX));
            pending = match next_ns {
                Some(_) => {
                    let sleep = Duration::from_nanos(ahead_ns - SPIN_NS);
                    let woken = shared.changed.wait_timeout(pending, sleep);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => shared.changed.wait(pending).unwrap_or_else(PoisonError::into_inner),
            };
            pending.asleep_until_ns = None;
        } else {
            drop(pending);
            let until_ns = now_ns + ahead_ns.min(LOOK_NS);
            while clock.now_ns() < until_ns {
                std::hint::spin_loop();
            }
            pending = shared.lock();
        }
    }
    let left = std::mem::take(&mut pending.waiting);
    drop(pending);
    left.into_values().for_each(|waiting| (waiting.answer)());
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // The result is ignored, because a panic of the thread was already printed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioengine::truth::Truth;
    use std::sync::mpsc::channel;

    use crate::timing::KnownTruth;

    const MS: u64 = 1_000_000;

    /// A model in which a request at offset N takes N milliseconds. The arrival of a 512-byte
    /// request completes all pending requests, so completion times can change after submission.
    #[derive(Default)]
    struct FlushOnSmallRequest {
        waiting: Vec<(u64, u32)>,
    }

    impl Timing for FlushOnSmallRequest {
        fn submit(&mut self, now_ns: u64, tag: u32, _op: Op, offset: u64, length: u32) {
            self.waiting.push((now_ns + offset * MS, tag));
            if length == 512 {
                self.waiting.iter_mut().for_each(|waiting| waiting.0 = now_ns);
            }
        }

        fn advance(&mut self, now_ns: u64, done: &mut Vec<u32>) {
            self.waiting.sort_unstable();
            let due = self.waiting.partition_point(|(at_ns, _)| *at_ns <= now_ns);
            done.extend(self.waiting.drain(..due).map(|(_, tag)| tag));
        }

        fn next_ns(&self) -> Option<u64> {
            self.waiting.iter().map(|(at_ns, _)| *at_ns).min()
        }
    }

    fn arrival(at_ns: u64, offset: u64, length: u32) -> Arrival {
        Arrival { at_ns, op: Op::Read, offset, length, hang_ns: 0 }
    }

    fn upset() -> Pacer {
        Pacer::start(Box::<FlushOnSmallRequest>::default()).unwrap()
    }

    #[test]
    fn replies_come_in_order_of_completion_and_never_early() {
        let (pacer, clock) = (upset(), Monotonic::new());
        let (tell, told) = channel();
        let start = clock.now_ns();
        for ms in [30_u64, 10, 20, 0] {
            let tell = tell.clone();
            let at = start + ms * MS;
            let answer = move || tell.send((ms, clock.now_ns() >= at)).unwrap();
            pacer.submit(arrival(start, ms, 4096), answer);
        }
        let order: Vec<(u64, bool)> = (0..4).map(|_| told.recv().unwrap()).collect();
        assert_eq!(order, [(0, true), (10, true), (20, true), (30, true)]);
    }

    #[test]
    fn a_later_arrival_may_complete_pending_requests() {
        let (pacer, clock) = (upset(), Monotonic::new());
        let (tell, told) = channel();
        let hour = 3_600_000;
        for (offset, length) in [(hour, 4096), (2 * hour, 4096), (hour, 512)] {
            let tell = tell.clone();
            pacer.submit(arrival(clock.now_ns(), offset, length), move || {
                tell.send((offset, length)).unwrap();
            });
        }
        let order: Vec<(u64, u32)> = (0..3).map(|_| told.recv().unwrap()).collect();
        assert_eq!(order, [(hour, 4096), (2 * hour, 4096), (hour, 512)]);
    }

    #[test]
    fn a_hanging_reply_is_delayed() {
        let (tell, told) = channel();
        let clock = Monotonic::new();
        let pacer = Pacer::start(Box::new(KnownTruth::new(Truth::default()))).unwrap();
        let start = clock.now_ns();
        for (name, hang_ns) in [("hung", 20 * MS), ("not", 0)] {
            let tell = tell.clone();
            let arrival = Arrival { hang_ns, ..arrival(start, 0, 512) };
            pacer.submit(arrival, move || tell.send((name, clock.now_ns() - start)).unwrap());
        }
        assert_eq!(told.recv().unwrap().0, "not");
        let (name, took_ns) = told.recv().unwrap();
        assert!(name == "hung" && took_ns >= 20 * MS, "{name} {took_ns}");
    }

    #[test]
    fn dropping_the_pacer_sends_every_pending_reply() {
        let (tell, told) = channel();
        let pacer = upset();
        let now_ns = Monotonic::new().now_ns();
        pacer.submit(arrival(now_ns, 3_600_000, 4096), move || tell.send(()).unwrap());
        drop(pacer);
        told.recv().unwrap();
    }
}
