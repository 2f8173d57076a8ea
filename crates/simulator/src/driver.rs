//! Drives a simulated system without an engine or a clock. The caller submits each request with its
//! arrival time, and advances the virtual time.
//!
//! The driver is intended for callers that follow a real clock. [`Driver::advance`] sets the
//! virtual time only to the times of events. A request may therefore arrive at any time after the
//! last event, even if the caller has already advanced to a later time.

use ioengine::{Caching, Op, Request};

use crate::machine::Machine;
use crate::system::System;

/// A simulated system with one open file.
pub struct Driver {
    machine: Machine,
    issuer: u32,
    in_flight: u32,
    size_bytes: u64,
    most_bytes: u64,
}

impl Driver {
    /// Creates an idle system at time 0. One thread of the first host has opened the system's file.
    pub fn new(system: &System, caching: Caching, seed: u64) -> Driver {
        let mut machine = Machine::new(system, seed);
        let file = machine.open(0, 0, !caching.is_direct(), caching.is_write_through());
        let issuer = machine.issuer(file);
        let most_bytes = machine.files[file as usize].volume.bytes();
        let size_bytes = system.setup.file_size.min(most_bytes);
        Driver { machine, issuer, in_flight: 0, size_bytes, most_bytes }
    }

    /// Returns the file size that the system file specifies (bytes).
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the maximum size of the file (bytes).
    pub fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// Returns the number of requests that have not completed.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Submits a request at its arrival time, or at the time of the last event if that is later.
    /// First runs all events before the arrival.
    pub fn submit(&mut self, at_ns: u64, tag: u32, op: Op, offset: u64, length: u32) {
        while self.machine.advance(at_ns) {}
        self.machine.events.advance_to(at_ns);
        self.in_flight += 1;
        self.machine
            .submit(self.issuer, &Request { offset, length, within: 0, slot: tag, file: 0, op });
    }

    /// Returns the time of the next event (ns). None if no event is scheduled.
    pub fn next_ns(&self) -> Option<u64> {
        self.machine.events.next_ns()
    }

    /// Runs all events up to the time `until_ns`, and appends the tags of completed requests to
    /// `done`.
    pub fn advance(&mut self, until_ns: u64, done: &mut Vec<u32>) {
        while self.machine.advance(until_ns) {}
        self.machine.woken.clear();
        let ready = &mut self.machine.issuers[self.issuer as usize].ready;
        self.in_flight -= ready.len() as u32;
        done.extend(ready.drain(..).map(|completion| completion.slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::Description;

    fn ultra() -> Driver {
        let system = Description::named("nt4-ultrawide").unwrap().system().unwrap();
        Driver::new(&system, Caching::Direct, 1)
    }

    /// Returns the completion times of `count` reads (ns). Each read is issued `pause_ns` after the
    /// completion of the previous read.
    fn reads(driver: &mut Driver, count: u32, pause_ns: u64) -> Vec<u64> {
        let (mut now_ns, mut done, mut moments) = (0, Vec::new(), Vec::new());
        for tag in 0..count {
            driver.submit(now_ns, tag, Op::Read, u64::from(tag) * 65536, 65536);
            while done.is_empty() {
                now_ns = driver.next_ns().unwrap();
                driver.advance(now_ns, &mut done);
            }
            assert_eq!(std::mem::take(&mut done), [tag]);
            moments.push(now_ns);
            now_ns += pause_ns;
        }
        moments
    }

    #[test]
    fn a_driven_disk_reads_at_the_rate_of_its_media() {
        let moments = reads(&mut ultra(), 160, 0);
        let ns = moments[159] - moments[31];
        let mib_per_s = 128.0 * 65536.0 / 1_048_576.0 / (ns as f64 / 1e9);
        assert!((8.5..9.2).contains(&mib_per_s), "{mib_per_s}");
    }

    #[test]
    fn advancing_without_an_event_changes_nothing() {
        let (mut plain, mut ahead) = (ultra(), ultra());
        let mut done = Vec::new();
        for (tag, at_ns) in [(0, 1_000_000), (1, 40_000_000)] {
            for driver in [&mut plain, &mut ahead] {
                driver.submit(at_ns, tag, Op::Write, 0, 4096);
            }
            let next_ns = plain.next_ns().unwrap();
            ahead.advance(next_ns - 1, &mut done);
            assert!(done.is_empty() && ahead.in_flight() == 1);
            for driver in [&mut plain, &mut ahead] {
                driver.advance(at_ns + 30_000_000, &mut done);
                assert_eq!((std::mem::take(&mut done), driver.in_flight()), (vec![tag], 0));
            }
            assert_eq!(plain.next_ns(), ahead.next_ns());
        }
    }

    #[test]
    fn a_driver_may_live_in_any_thread() {
        let mut driver = ultra();
        let moments = std::thread::spawn(move || reads(&mut driver, 2, 0)).join().unwrap();
        assert!(moments[0] < moments[1]);
    }
}
