//! Answers that are given at their moment: a heap of deadlines and one thread that keeps them.
//!
//! The thread sleeps until shortly before the next deadline and spins over the rest, because an
//! idle CPU needs some 50 us to wake. An answer that is due at once is given by whoever brings it.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ioengine::{Clock, Monotonic};

/// Something to do at a moment.
type Answer = Box<dyn FnOnce() + Send>;

/// Slept no longer than until so much before a deadline (ns): waking up and the kernel's timer
/// slack of 50 us.
const SPIN_NS: u64 = 120_000;
/// Spun at one go before looking for earlier deadlines (ns).
const LOOK_NS: u64 = 10_000;

struct Due {
    at_ns: u64,
    number: u64,
    answer: Answer,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    /// The earliest is the greatest, for the heap; of two at once the one that came first.
    fn cmp(&self, other: &Due) -> Ordering {
        (other.at_ns, other.number).cmp(&(self.at_ns, self.number))
    }
}

#[derive(Default)]
struct Agenda {
    due: BinaryHeap<Due>,
    brought: u64,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    agenda: Mutex<Agenda>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module. Dropping it gives every answer that is left, at once.
pub(crate) struct Pacer {
    shared: Arc<Shared>,
    clock: Monotonic,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    /// Starts the thread.
    pub(crate) fn start() -> std::io::Result<Pacer> {
        let (shared, clock) = (Arc::new(Shared::default()), Monotonic::new());
        let mine = Arc::clone(&shared);
        let body = move || keep_time(&mine, clock);
        let thread = std::thread::Builder::new().name("pacer".to_owned()).spawn(body)?;
        Ok(Pacer { shared, clock, thread: Some(thread) })
    }

    /// Gives an answer at a moment, or now if that has passed.
    pub(crate) fn at(&self, at_ns: u64, answer: impl FnOnce() + Send + 'static) {
        if at_ns <= self.clock.now_ns() {
            answer();
            return;
        }
        let mut agenda = self.shared.lock();
        let number = agenda.brought;
        agenda.brought += 1;
        let is_next = agenda.due.peek().is_none_or(|first| at_ns < first.at_ns);
        agenda.due.push(Due { at_ns, number, answer: Box::new(answer) });
        drop(agenda);
        if is_next {
            self.shared.changed.notify_one();
        }
    }
}

fn keep_time(shared: &Shared, clock: Monotonic) {
    let mut agenda = shared.lock();
    loop {
        let closed = agenda.closed;
        let Some(at_ns) = agenda.due.peek().map(|due| due.at_ns) else {
            if closed {
                return;
            }
            agenda = shared.changed.wait(agenda).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let now = clock.now_ns();
        if at_ns <= now || closed {
            let due = agenda.due.pop();
            drop(agenda);
            if let Some(Due { answer, .. }) = due {
                answer();
            }
            agenda = shared.lock();
        } else if at_ns - now > SPIN_NS {
            let sleep = Duration::from_nanos(at_ns - now - SPIN_NS);
            let woken = shared.changed.wait_timeout(agenda, sleep);
            agenda = woken.unwrap_or_else(PoisonError::into_inner).0;
        } else {
            drop(agenda);
            let until = at_ns.min(now + LOOK_NS);
            while clock.now_ns() < until {
                std::hint::spin_loop();
            }
            agenda = shared.lock();
        }
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn answers_come_in_the_order_of_their_moments_and_never_early() {
        let (pacer, clock) = (Pacer::start().unwrap(), Monotonic::new());
        let (tell, told) = channel();
        let start = clock.now_ns();
        for ms in [30_u64, 10, 20, 0] {
            let tell = tell.clone();
            let at = start + ms * 1_000_000;
            pacer.at(at, move || tell.send((ms, clock.now_ns() >= at)).unwrap());
        }
        let order: Vec<(u64, bool)> = (0..4).map(|_| told.recv().unwrap()).collect();
        assert_eq!(order, [(0, true), (10, true), (20, true), (30, true)]);
    }

    #[test]
    fn nothing_is_left_unanswered_at_the_end() {
        let (tell, told) = channel();
        let pacer = Pacer::start().unwrap();
        let far = Monotonic::new().now_ns() + 3_600_000_000_000;
        pacer.at(far, move || tell.send(()).unwrap());
        drop(pacer);
        told.recv().unwrap();
    }
}
