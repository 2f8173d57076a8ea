//! A simulated system in real time: its virtual time follows the clock, so that a real file may
//! take the time that the system would take.
//!
//! A program that waits for a request waits for the path too: system calls, FUSE, waking up. Of
//! that the program is to see nothing, since the simulated time holds the cost of the simulated
//! host already. So each request is taken to have arrived as much earlier as the path costs; the
//! path is measured on the spot ([`PathCost::measure`]). That a request arrives in the past is no
//! contradiction as long as nothing has happened there: while no request is under way the system's
//! time stays a little behind the clock, and else a request arrives after the last event.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use analysis::quantile::median;
use fusefile::{KnownTruth, Spec, Timing, mounted};
use ioengine::fault::FaultPlan;
use ioengine::truth::Truth;
use ioengine::{Clock, Monotonic, Op};
use lab::simulated;
use simulator::{Driver, System};

/// While nothing is under way the system's time stays so far behind the clock (ns): longer than
/// any path.
const BEHIND_NS: u64 = 2_000_000;
/// How often a system looks after itself while nothing is under way (ns).
const LOOK_NS: u64 = 100_000_000;
/// The device on which the path is measured takes so long (ns): long enough for CPUs to fall
/// asleep, as they do while a disk turns.
const PROBE_NS: u64 = 300_000;
/// Requests of which the median is taken, and those before them that are not counted.
const PROBES: usize = 100;
const PROBES_UNCOUNTED: usize = 10;
/// Sizes of these requests (bytes).
const PROBE_BYTES: [u32; 2] = [4096, 262_144];

/// What the path to a served file costs each request, by size: fixed + each byte.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathCost {
    /// Of reads and writes (ns).
    pub fixed_ns: [f64; 2],
    /// Of reads and writes (ns).
    pub each_byte_ns: [f64; 2],
}

impl PathCost {
    /// The same for every request.
    pub fn of(ns: u64) -> PathCost {
        PathCost { fixed_ns: [ns as f64; 2], each_byte_ns: [0.0; 2] }
    }

    /// Of one request (ns).
    pub fn ns_for(&self, op: Op, length: u32) -> u64 {
        let direction = op as usize;
        let ns = self.fixed_ns[direction] + self.each_byte_ns[direction] * f64::from(length);
        (ns.max(0.0) as u64).min(BEHIND_NS / 2)
    }

    /// Measures it with a reference device as a file, served in the folder for less than a second.
    ///
    /// # Errors
    /// Where nothing can be mounted.
    pub fn measure(folder: &Path) -> io::Result<PathCost> {
        let spec = Spec {
            name: "path".to_owned(),
            size_bytes: 1 << 20,
            block_bytes: 4096,
            timing: Box::new(KnownTruth::new(Truth { fixed_ns: PROBE_NS, ..Truth::default() })),
            faults: FaultPlan::default(),
        };
        let served = mounted::mount(folder, spec)?;
        let probed = probe_all(served.path());
        served.unmount()?;
        probed
    }
}

fn probe_all(path: &Path) -> io::Result<PathCost> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut cost = PathCost::default();
    let [small, large] = PROBE_BYTES;
    for op in [Op::Read, Op::Write] {
        let (of_small, of_large) = (probe(&file, op, small)?, probe(&file, op, large)?);
        let each_ns = ((of_large - of_small) / f64::from(large - small)).max(0.0);
        cost.each_byte_ns[op as usize] = each_ns;
        cost.fixed_ns[op as usize] = (of_small - each_ns * f64::from(small)).max(0.0);
    }
    Ok(cost)
}

/// The median time of requests beyond what the device takes (ns).
fn probe(file: &File, op: Op, length: u32) -> io::Result<f64> {
    let (clock, mut buffer) = (Monotonic::new(), vec![0; length as usize]);
    let mut times_ns = Vec::new();
    for _ in 0..PROBES_UNCOUNTED + PROBES {
        let begun_ns = clock.now_ns();
        match op {
            Op::Read => file.read_exact_at(&mut buffer, 0)?,
            Op::Write => file.write_all_at(&buffer, 0)?,
        }
        times_ns.push((clock.now_ns() - begun_ns).saturating_sub(PROBE_NS) as f64);
    }
    Ok(median(&times_ns[PROBES_UNCOUNTED..]).unwrap_or(0.0))
}

/// A system whose time follows the clock.
pub struct TimeMachine {
    driver: Driver,
    /// Virtual time for each real one.
    speed: f64,
    path: PathCost,
    /// The moment of the clock at which virtual time is 0 (ns).
    start_ns: u64,
    looked_ns: u64,
}

impl TimeMachine {
    /// A system at rest.
    pub fn new(system: &System, seed: u64, speed: f64, path: PathCost) -> TimeMachine {
        let driver = Driver::new(system, simulated::caching_of(system), seed);
        let start_ns = Monotonic::new().now_ns();
        TimeMachine { driver, speed, path, start_ns, looked_ns: start_ns }
    }

    fn virtual_ns(&self, now_ns: u64) -> u64 {
        (now_ns.saturating_sub(self.start_ns) as f64 * self.speed) as u64
    }

    /// The first moment of the clock at which a virtual one has come.
    fn real_ns(&self, virtual_ns: u64) -> u64 {
        self.start_ns + (virtual_ns as f64 / self.speed).ceil() as u64 + 1
    }
}

impl Timing for TimeMachine {
    fn submit(&mut self, now_ns: u64, tag: u32, op: Op, offset: u64, length: u32) {
        let issued_ns = now_ns.saturating_sub(self.path.ns_for(op, length));
        self.driver.submit(self.virtual_ns(issued_ns), tag, op, offset, length);
    }

    fn advance(&mut self, now_ns: u64, done: &mut Vec<u32>) {
        self.looked_ns = now_ns;
        let behind_ns = if self.driver.in_flight() == 0 { BEHIND_NS } else { 0 };
        self.driver.advance(self.virtual_ns(now_ns.saturating_sub(behind_ns)), done);
    }

    fn next_ns(&self) -> Option<u64> {
        let next_ns = self.real_ns(self.driver.next_ns()?);
        match self.driver.in_flight() {
            0 => Some((next_ns + BEHIND_NS).max(self.looked_ns + LOOK_NS)),
            _ => Some(next_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(speed: f64, path: PathCost) -> TimeMachine {
        let system = lab::simulated_target::parse("nt4-ultrawide", &[]).unwrap().system().unwrap();
        TimeMachine::new(&system, 1, speed, path)
    }

    /// How long each of some reads of 2 KiB takes for a program behind a path that costs so much,
    /// a third on the way in and two on the way back (ns).
    fn reads(machine: &mut TimeMachine, path_ns: u64) -> Vec<u64> {
        let (mut now_ns, mut done, mut times_ns) = (machine.start_ns, Vec::new(), Vec::new());
        for tag in 0..200 {
            let begun_ns = now_ns;
            now_ns += path_ns / 3;
            machine.submit(now_ns, tag, Op::Read, u64::from(tag) * 2048, 2048);
            machine.advance(now_ns, &mut done);
            while done.is_empty() {
                now_ns = now_ns.max(machine.next_ns().unwrap());
                machine.advance(now_ns, &mut done);
            }
            done.clear();
            now_ns += path_ns - path_ns / 3;
            times_ns.push(now_ns - begun_ns);
        }
        times_ns
    }

    fn middle_ns(times_ns: &[u64]) -> f64 {
        let times: Vec<f64> = times_ns[100..].iter().map(|ns| *ns as f64).collect();
        median(&times).unwrap()
    }

    #[test]
    fn a_program_behind_a_path_sees_the_simulated_time() {
        let without = middle_ns(&reads(&mut machine(1.0, PathCost::default()), 0));
        assert!((300e3..400e3).contains(&without), "{without}");
        let credited = middle_ns(&reads(&mut machine(1.0, PathCost::of(60_000)), 60_000));
        assert!((credited / without - 1.0).abs() < 0.001, "{credited} {without}");
        let charged = middle_ns(&reads(&mut machine(1.0, PathCost::default()), 60_000));
        assert!(charged > without + 30e3, "{charged} {without}");
    }

    #[test]
    fn a_tenth_of_the_time_passes_at_ten_times_the_speed() {
        let slow = middle_ns(&reads(&mut machine(1.0, PathCost::default()), 0));
        let fast = middle_ns(&reads(&mut machine(10.0, PathCost::default()), 0));
        assert!((slow / fast - 10.0).abs() < 0.01, "{slow} {fast}");
    }

    #[test]
    fn a_system_at_rest_is_looked_at_seldom_and_catches_up() {
        let mut machine = machine(1.0, PathCost::of(40_000));
        let times_ns = reads(&mut machine, 40_000);
        let now_ns = machine.start_ns + times_ns.iter().sum::<u64>();
        let mut done = Vec::new();
        // The disk reads ahead, and then there is nothing left to happen.
        let mut looks = 0;
        while let Some(next_ns) = machine.next_ns() {
            assert!(next_ns >= now_ns + LOOK_NS, "busy at rest");
            machine.advance(next_ns, &mut done);
            looks += 1;
        }
        assert!(done.is_empty() && looks <= 3, "{looks}");
    }

    #[test]
    fn a_path_costs_more_for_larger_requests_and_never_too_much() {
        let path = PathCost { fixed_ns: [100.0, 200.0], each_byte_ns: [0.5, 0.0] };
        assert_eq!(path.ns_for(Op::Read, 1000), 600);
        assert_eq!(path.ns_for(Op::Write, 1000), 200);
        assert_eq!(PathCost::of(u64::MAX).ns_for(Op::Read, 1), BEHIND_NS / 2);
    }
}
