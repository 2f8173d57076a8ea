//! Simulates the dies and channels of a flash device: when each physical operation runs.
//!
//! A die runs one operation at a time. A read for the host overtakes queued programs and erases,
//! but waits for the operation in progress. If that operation consists of page reads, the host's
//! read waits only for the current page. If the device can suspend an operation, the host's read
//! waits only for the suspension. After [`PASSED_MAX`] reads have delayed an operation, further
//! reads wait for this operation, so that writes make progress. A channel moves the data of its
//! dies, one transfer at a time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Maximum number of reads that may delay an operation of a die. The value is an assumption,
/// because manufacturers do not publish it.
const PASSED_MAX: u32 = 16;

/// Activity of a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The die reads data for the host.
    Read,
    /// The die programs data of the host.
    Write,
    /// The die reads or programs data for garbage collection.
    Collect,
    /// The die erases a block.
    Erase,
    /// The die moves data out of the SLC cache.
    Fold,
}

/// Names of the phases, in the order of [`Phase`].
pub(crate) const PHASE_NAMES: [&str; 5] =
    ["read", "write", "garbage collection", "erase", "SLC fold"];

/// An operation of a die: a transfer over the channel, and one or more equal steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub phase: Phase,
    /// Earliest time at which the operation may start (ns).
    pub ready_ns: u64,
    /// Time to transfer the operation's data over the channel (ns). For a program, the transfer
    /// precedes the steps.
    pub transfer_ns: u64,
    /// Duration of a step (ns). Reads of the host may run between two steps.
    pub step_ns: u64,
    pub steps: u64,
    /// Number of bytes of the write buffer that become free when the operation ends.
    pub frees: u64,
}

/// The booked transfers of a channel. A transfer uses the first gap between earlier bookings that
/// is long enough, so that data that are ready now do not wait for data that are ready only later.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calendar {
    /// Start and end of each booked interval, in order of time (ns).
    booked: VecDeque<(u64, u64)>,
    sum_ns: u64,
}

impl Calendar {
    /// Books a transfer of `length_ns` at `ready_ns` or later. Forgets intervals that ended before
    /// `now_ns`. Returns the start and the end of the transfer (ns).
    pub fn book(&mut self, now_ns: u64, ready_ns: u64, length_ns: u64) -> (u64, u64) {
        if length_ns == 0 {
            return (ready_ns, ready_ns);
        }
        self.sum_ns += length_ns;
        while self.booked.front().is_some_and(|(_, end)| *end <= now_ns) {
            self.booked.pop_front();
        }
        let (mut at_ns, mut place) = (ready_ns, self.booked.len());
        for (index, (start, end)) in self.booked.iter().enumerate() {
            if at_ns + length_ns <= *start {
                place = index;
                break;
            }
            at_ns = at_ns.max(*end);
        }
        let end_ns = at_ns + length_ns;
        match place.checked_sub(1).map(|before| &mut self.booked[before]) {
            Some((_, end)) if *end == at_ns => *end = end_ns,
            _ => self.booked.insert(place, (at_ns, end_ns)),
        }
        (at_ns, end_ns)
    }

    /// Returns how long the channel was busy up to `now_ns` (ns).
    pub fn busy_ns(&self, now_ns: u64) -> u64 {
        let later = |(start, end): &(u64, u64)| end.saturating_sub((*start).max(now_ns));
        self.sum_ns - self.booked.iter().map(later).sum::<u64>()
    }
}

#[derive(Clone, Debug, Default)]
struct Die {
    /// Phase of the operation in progress. The next four fields describe the same operation: the
    /// start of its first step, the duration of a step, whether it has several steps, and its end
    /// (ns).
    phase: Option<Phase>,
    steps_from_ns: u64,
    step_ns: u64,
    has_steps: bool,
    op_end_ns: u64,
    /// Number of bytes of the write buffer that become free when the operation ends.
    frees: u64,
    /// Start of the reads in progress (ns). These reads run without a gap until `reads_end_ns`.
    reads_from_ns: u64,
    reads_end_ns: u64,
    /// Whether the reads in progress interrupt the operation in progress.
    interrupts: bool,
    /// Number of reads that have delayed the operation in progress or the next operation.
    passed: u32,
    queue: VecDeque<Op>,
    /// Whether an event of this die is scheduled.
    scheduled: bool,
}

impl Die {
    /// Returns the time at which the die will have finished all operations in progress (ns).
    fn free_ns(&self) -> u64 {
        self.op_end_ns.max(self.reads_end_ns)
    }

    /// Returns two times (ns): how long a read waits until the operation in progress stops, and how
    /// much the interruption delays the operation, not counting the time of the read. `None` if the
    /// read must wait for the end of the operation.
    fn stops(&self, now_ns: u64, suspend_ns: u64) -> Option<(u64, u64)> {
        let left_ns = self.op_end_ns - now_ns;
        let done_ns = now_ns.checked_sub(self.steps_from_ns);
        let (wait_ns, lost_ns) = match done_ns {
            Some(done_ns) if self.has_steps => {
                (done_ns.next_multiple_of(self.step_ns.max(1)) - done_ns, 0)
            }
            _ => (suspend_ns, suspend_ns),
        };
        let can = (self.has_steps && done_ns.is_some()) || suspend_ns > 0;
        (can && self.passed < PASSED_MAX && wait_ns < left_ns).then_some((wait_ns, lost_ns))
    }
}

/// All dies and channels of a device.
#[derive(Clone, Debug)]
pub(crate) struct Nand {
    dies: Vec<Die>,
    channels: Vec<Calendar>,
    /// Times at which a die may start its next operation (ns), each with the number of the die.
    events: BinaryHeap<Reverse<(u64, u32)>>,
    read_ns: u64,
    suspend_ns: u64,
    /// Busy time of all dies by phase, including time that is booked for later (ns).
    busy_ns: [u64; 5],
    /// Number of bytes of the write buffer that have become free since the last call of
    /// `take_freed`.
    freed: u64,
    /// Time of the last event (ns).
    last_ns: u64,
}

impl Nand {
    /// Creates idle dies that are spread over the channels.
    pub fn new(dies: u32, channels: u32, read_ns: u64, suspend_ns: u64) -> Nand {
        Nand {
            dies: vec![Die::default(); dies as usize],
            channels: vec![Calendar::default(); channels as usize],
            events: BinaryHeap::new(),
            read_ns,
            suspend_ns,
            busy_ns: [0; 5],
            freed: 0,
            last_ns: 0,
        }
    }

    pub fn dies(&self) -> u32 {
        self.dies.len() as u32
    }

    /// Returns the time of the next event of any die (ns): a queued operation may start, or the
    /// last operation ends. `None` if all dies are idle.
    pub fn next_ns(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// Returns the end of the last operation (ns). `None` if an operation is queued or in progress.
    pub fn idle_since_ns(&self) -> Option<u64> {
        self.events.is_empty().then_some(self.last_ns)
    }

    /// Returns the number of bytes of the write buffer that have become free since the last call.
    pub fn take_freed(&mut self) -> u64 {
        std::mem::take(&mut self.freed)
    }

    /// Queues an operation on a die.
    pub fn enqueue(&mut self, die: u32, op: Op) {
        let entry = &mut self.dies[die as usize];
        entry.queue.push_back(op);
        if !entry.scheduled {
            entry.scheduled = true;
            self.events.push(Reverse((entry.free_ns().max(op.ready_ns), die)));
        }
    }

    /// Runs all operations that start at or before `now_ns`.
    pub fn advance(&mut self, now_ns: u64) {
        while let Some(Reverse((at_ns, die))) = self.events.peek().copied() {
            if at_ns > now_ns {
                return;
            }
            self.events.pop();
            self.last_ns = self.last_ns.max(at_ns);
            let entry = &mut self.dies[die as usize];
            if entry.op_end_ns <= at_ns {
                self.freed += std::mem::take(&mut entry.frees);
            }
            let next_ns = match entry.queue.front() {
                // Reads for the host have delayed the end of the operation.
                _ if entry.op_end_ns > at_ns => entry.op_end_ns,
                Some(_) if entry.reads_end_ns > at_ns => entry.reads_end_ns,
                Some(op) if op.ready_ns > at_ns => op.ready_ns,
                _ => {
                    let Some(op) = entry.queue.pop_front() else {
                        entry.scheduled = false;
                        continue;
                    };
                    self.start(die, op, at_ns, at_ns)
                }
            };
            self.events.push(Reverse((next_ns, die)));
        }
    }

    /// Starts an operation at `at_ns`, which is `now_ns` or later. Returns the operation's end
    /// (ns).
    fn start(&mut self, die: u32, op: Op, now_ns: u64, at_ns: u64) -> u64 {
        let channel = die as usize % self.channels.len();
        let (_, moved_ns) = self.channels[channel].book(now_ns, at_ns, op.transfer_ns);
        let entry = &mut self.dies[die as usize];
        self.freed += std::mem::replace(&mut entry.frees, op.frees);
        entry.has_steps = op.steps > 1;
        // In an operation with several steps, the data of a page are transferred while the die
        // reads the next page, so the steps do not wait for the transfer.
        entry.steps_from_ns = if entry.has_steps { at_ns } else { moved_ns };
        entry.step_ns = op.step_ns;
        entry.op_end_ns = entry.steps_from_ns + op.steps * op.step_ns;
        entry.phase = Some(op.phase);
        entry.passed = 0;
        entry.interrupts = false;
        self.busy_ns[op.phase as usize] += entry.op_end_ns - at_ns;
        entry.op_end_ns
    }

    /// Reads a page of a die for the host. The transfer of the data over the channel of the die
    /// takes `transfer_ns`. `advance(now_ns)` must have been called before. Returns when the data
    /// have left the channel (ns).
    pub fn read(&mut self, die: u32, now_ns: u64, transfer_ns: u64) -> u64 {
        let (read_ns, suspend_ns) = (self.read_ns, self.suspend_ns);
        let entry = &mut self.dies[die as usize];
        let is_next = entry.reads_end_ns > now_ns && entry.op_end_ns <= now_ns;
        if is_next && entry.passed >= PASSED_MAX {
            let at_ns = entry.reads_end_ns;
            if entry.queue.front().is_some_and(|op| op.ready_ns <= at_ns)
                && let Some(op) = entry.queue.pop_front()
            {
                self.start(die, op, now_ns, at_ns);
                // No read may interrupt this operation. Otherwise the queue would never advance.
                self.dies[die as usize].passed = PASSED_MAX;
            }
        }
        let entry = &mut self.dies[die as usize];
        let mut start_ns = now_ns.max(entry.reads_end_ns);
        if entry.op_end_ns > now_ns {
            let may_pass = entry.passed < PASSED_MAX;
            if may_pass && entry.interrupts && entry.reads_end_ns > now_ns {
                entry.op_end_ns += read_ns;
                entry.steps_from_ns += read_ns;
            } else if let Some((wait_ns, lost_ns)) = entry.stops(now_ns, suspend_ns) {
                start_ns = now_ns + wait_ns;
                entry.interrupts = true;
                entry.op_end_ns += read_ns + lost_ns;
                entry.steps_from_ns += read_ns + lost_ns;
                let phase = entry.phase.unwrap_or(Phase::Write);
                self.busy_ns[phase as usize] += lost_ns;
            } else {
                entry.interrupts = false;
                start_ns = entry.op_end_ns.max(entry.reads_end_ns);
            }
        }
        entry.passed += u32::from(entry.op_end_ns > now_ns || !entry.queue.is_empty());
        if start_ns > entry.reads_end_ns {
            entry.reads_from_ns = start_ns;
        }
        entry.reads_end_ns = start_ns + read_ns;
        self.busy_ns[Phase::Read as usize] += read_ns;
        let end_ns = entry.reads_end_ns;
        let channel = die as usize % self.channels.len();
        self.channels[channel].book(now_ns, end_ns, transfer_ns).1
    }

    /// Returns the busy time of all dies by phase up to `now_ns` (ns).
    pub fn busy_until(&self, now_ns: u64) -> [u64; 5] {
        let mut busy_ns = self.busy_ns;
        for die in &self.dies {
            let later_ns = die.free_ns().saturating_sub(now_ns);
            if later_ns == 0 {
                continue;
            }
            // The operation and the reads in progress run without a gap until the die is free.
            let reads_ns = die.reads_end_ns.saturating_sub(die.reads_from_ns.max(now_ns));
            let reads_ns = reads_ns.min(later_ns);
            busy_ns[Phase::Read as usize] -= reads_ns;
            if let Some(phase) = die.phase {
                let sum = &mut busy_ns[phase as usize];
                *sum = sum.saturating_sub(later_ns - reads_ns);
            }
        }
        busy_ns
    }

    /// Returns the busy time of all channels up to `now_ns` (ns).
    pub fn channels_busy_ns(&self, now_ns: u64) -> u64 {
        self.channels.iter().map(|channel| channel.busy_ns(now_ns)).sum()
    }

    pub fn channels(&self) -> u32 {
        self.channels.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_NS: u64 = 50;

    fn program(ready_ns: u64) -> Op {
        Op { phase: Phase::Write, ready_ns, transfer_ns: 10, step_ns: 600, steps: 1, frees: 4096 }
    }

    fn moves(steps: u64) -> Op {
        Op { phase: Phase::Collect, ready_ns: 0, transfer_ns: 0, step_ns: 50, steps, frees: 0 }
    }

    fn read(nand: &mut Nand, die: u32, now_ns: u64) -> u64 {
        nand.advance(now_ns);
        nand.read(die, now_ns, 5)
    }

    #[test]
    fn a_read_waits_for_the_program_in_progress_and_passes_those_in_the_queue() {
        let mut nand = Nand::new(2, 1, READ_NS, 0);
        (0..3).for_each(|_| nand.enqueue(0, program(0)));
        assert_eq!(read(&mut nand, 0, 100), 610 + 50 + 5);
        assert_eq!(read(&mut nand, 1, 100), 100 + 50 + 5, "another die is free");
        assert_eq!(read(&mut nand, 0, 120), 610 + 100 + 5, "reads are served in order");
        nand.advance(10_000);
        assert_eq!(nand.take_freed(), 3 * 4096);
        // The second program starts after both reads. Its data are transferred after the data of
        // the second read.
        assert_eq!(nand.busy_until(10_000), [150, 1835, 0, 0, 0]);
        assert_eq!(nand.idle_since_ns(), Some(710 + 5 + 2 * 610));
    }

    #[test]
    fn a_device_that_can_suspend_reads_at_once_and_programs_longer() {
        let mut nand = Nand::new(1, 1, READ_NS, 20);
        nand.enqueue(0, program(0));
        assert_eq!(read(&mut nand, 0, 100), 100 + 20 + 50 + 5);
        assert_eq!(read(&mut nand, 0, 130), 170 + 50 + 5, "the program is still suspended");
        assert_eq!(nand.busy_until(150), [30, 120, 0, 0, 0]);
        nand.advance(10_000);
        assert_eq!(nand.idle_since_ns(), Some(610 + 20 + 2 * 50));
    }

    #[test]
    fn reads_pass_between_the_pages_that_garbage_collection_reads() {
        let mut nand = Nand::new(1, 1, READ_NS, 0);
        nand.enqueue(0, moves(10));
        assert_eq!(read(&mut nand, 0, 120), 150 + 50 + 5);
        assert_eq!(read(&mut nand, 0, 260), 300 + 50 + 5);
        nand.advance(10_000);
        assert_eq!(nand.idle_since_ns(), Some(600));
    }

    #[test]
    fn many_reads_do_not_keep_a_program_from_running() {
        for suspend_ns in [0, 5] {
            let mut nand = Nand::new(1, 1, READ_NS, suspend_ns);
            (0..5).for_each(|_| nand.enqueue(0, program(0)));
            // A read of 50 ns starts every 50 ns, so reads alone could keep the die busy.
            for number in 0..800 {
                read(&mut nand, 0, number * 50);
            }
            let freed = nand.take_freed();
            assert_eq!(freed, 5 * 4096, "suspension {suspend_ns}");
        }
    }

    #[test]
    fn data_that_are_ready_pass_data_that_are_not() {
        let mut channel = Calendar::default();
        assert_eq!(channel.book(0, 1000, 50), (1000, 1050));
        assert_eq!(channel.book(0, 100, 50), (100, 150));
        assert_eq!(channel.book(0, 120, 50), (150, 200));
        assert_eq!(channel.book(0, 980, 50), (1050, 1100), "the gap is too short");
        assert_eq!(channel.busy_ns(1025), 125);
        assert_eq!(channel.book(1100, 1100, 1), (1100, 1101));
        assert_eq!(channel.busy_ns(2000), 201);
    }
}
