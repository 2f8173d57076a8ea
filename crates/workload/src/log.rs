//! The log of individual requests. Its memory is allocated before the first request.

use ioengine::Op;

use crate::sample::{LoggedRequest, Sample};

/// The log of one worker.
#[derive(Debug)]
pub struct Log {
    worker: u32,
    /// For each slot, the time at which its request was first submitted (ns of the clock).
    submitted_ns: Vec<u64>,
    requests: Vec<LoggedRequest>,
    most: usize,
    lost: u64,
}

impl Log {
    /// Creates a log for at most `most` requests of a worker. The memory is allocated and touched
    /// now, so that the trial has no page faults.
    pub fn new(worker: u32, slots: u32, most: usize) -> Log {
        let (submit_ns, complete_ns, offset, length) = (0, 0, 0, 0);
        let (op, failed) = (Op::Read, false);
        let empty = LoggedRequest { worker, op, failed, offset, length, submit_ns, complete_ns };
        // The value must not be zero, because `vec!` does not touch the memory that it allocates
        // for zeros.
        let mut requests = vec![LoggedRequest { worker: u32::MAX, ..empty }; most];
        requests.clear();
        Log { worker, submitted_ns: vec![0; slots as usize], requests, most, lost: 0 }
    }

    /// Records the submission of the request in a slot.
    #[inline]
    pub fn submit(&mut self, slot: u32, now_ns: u64) {
        self.submitted_ns[slot as usize] = now_ns;
    }

    /// Logs the completion of the request in a slot.
    #[inline]
    pub fn complete(
        &mut self,
        slot: u32,
        now_ns: u64,
        (op, offset, length): (Op, u64, u32),
        failed: bool,
    ) {
        if self.requests.len() == self.most {
            self.lost += 1;
            return;
        }
        self.requests.push(LoggedRequest {
            worker: self.worker,
            op,
            failed,
            offset,
            length,
            submit_ns: self.submitted_ns[slot as usize],
            complete_ns: now_ns,
        });
    }

    /// Discards all records at the end of the warm-up, but keeps the memory.
    pub fn restart(&mut self) {
        self.requests.clear();
        self.lost = 0;
    }

    /// Moves the logged requests into the sample.
    pub fn give(self, sample: &mut Sample) {
        sample.log = self.requests;
        sample.log_lost = self.lost;
    }
}
