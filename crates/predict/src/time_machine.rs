//! Runs a simulated system in real time. Its virtual time follows the clock, so that requests to a
//! real file take as long as they would on the simulated system.
//!
//! A program also waits for the path to the real file: system calls, FUSE and wake-ups. The
//! simulated time already contains these costs for the simulated host, so the cost of the real path
//! must not be added. It is measured beforehand ([`PathCost::measure`]) and subtracted from the
//! arrival time of each request. The result can lie before the current clock time, so virtual time
//! stays a little behind the clock while no request is in flight. While requests are in flight, a
//! new request arrives no earlier than the last event of the simulation.

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

/// Time by which virtual time stays behind the clock while no request is in flight (ns). This is
/// longer than the overhead of any path.
const LAG_NS: u64 = 2_000_000;
/// Interval at which background activity is simulated while no request is in flight (ns).
const IDLE_INTERVAL_NS: u64 = 100_000_000;
/// Latency of the reference device with which the path is measured (ns). It is so long that CPUs
/// enter a sleep state, as they do during a disk access. The wake-up is part of the cost of the
/// path.
const PROBE_NS: u64 = 300_000;
/// Number of measured requests, from which the median is computed.
const PROBES: usize = 100;
/// Number of warm-up requests, which are not counted.
const WARM_UP_PROBES: usize = 10;
/// Sizes of the probe requests (bytes).
const PROBE_BYTES: [u32; 2] = [4096, 262_144];

/// Overhead of the path to a served file: a fixed time plus a time per byte. It is subtracted from
/// the arrival time of each request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathCost {
    /// Fixed time of a read and of a write (ns).
    pub fixed_ns: [f64; 2],
    /// Time per byte of a read and of a write (ns).
    pub each_byte_ns: [f64; 2],
}

impl PathCost {
    /// Creates an overhead of `ns` for reads and writes of every size.
    pub fn of(ns: u64) -> PathCost {
        PathCost { fixed_ns: [ns as f64; 2], each_byte_ns: [0.0; 2] }
    }

    /// Returns the overhead of a request of `length` bytes, but at most half of `LAG_NS` (ns).
    pub fn ns_for(&self, op: Op, length: u32) -> u64 {
        let direction = op as usize;
        let ns = self.fixed_ns[direction] + self.each_byte_ns[direction] * f64::from(length);
        (ns.max(0.0) as u64).min(LAG_NS / 2)
    }

    /// Measures the overhead with a reference device that is mounted in `folder` for less than a
    /// second.
    ///
    /// # Errors
    /// If nothing can be mounted in `folder`, or if a request fails.
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

/// Returns the time that the path adds to a request: the median measured latency minus the latency
/// of the reference device (ns).
fn probe(file: &File, op: Op, length: u32) -> io::Result<f64> {
    let (clock, mut buffer) = (Monotonic::new(), vec![0; length as usize]);
    let mut times_ns = Vec::new();
    for _ in 0..WARM_UP_PROBES + PROBES {
        let start_ns = clock.now_ns();
        match op {
            Op::Read => file.read_exact_at(&mut buffer, 0)?,
            Op::Write => file.write_all_at(&buffer, 0)?,
        }
        times_ns.push((clock.now_ns() - start_ns).saturating_sub(PROBE_NS) as f64);
    }
    Ok(median(&times_ns[WARM_UP_PROBES..]).unwrap_or(0.0))
}

/// A simulated system whose virtual time follows the clock.
pub struct TimeMachine {
    driver: Driver,
    /// Simulated seconds per real second.
    speed: f64,
    path: PathCost,
    /// Clock time at which virtual time is 0 (ns).
    start_ns: u64,
    /// Clock time of the last call to `advance` (ns).
    advanced_ns: u64,
}

impl TimeMachine {
    /// Creates an idle system. `speed` is the number of simulated seconds per real second.
    pub fn new(system: &System, seed: u64, speed: f64, path: PathCost) -> TimeMachine {
        let driver = Driver::new(system, simulated::caching_of(system), seed);
        let start_ns = Monotonic::new().now_ns();
        TimeMachine { driver, speed, path, start_ns, advanced_ns: start_ns }
    }

    fn virtual_ns(&self, now_ns: u64) -> u64 {
        (now_ns.saturating_sub(self.start_ns) as f64 * self.speed) as u64
    }

    /// Returns the earliest clock time at which virtual time has reached `virtual_ns`.
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
        self.advanced_ns = now_ns;
        let lag_ns = if self.driver.in_flight() == 0 { LAG_NS } else { 0 };
        self.driver.advance(self.virtual_ns(now_ns.saturating_sub(lag_ns)), done);
    }

    fn next_ns(&self) -> Option<u64> {
        let next_ns = self.real_ns(self.driver.next_ns()?);
        match self.driver.in_flight() {
            0 => Some((next_ns + LAG_NS).max(self.advanced_ns + IDLE_INTERVAL_NS)),
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

    /// Returns the latencies that a program measures for 200 reads of 2 KiB (ns). The path to the
    /// device adds `path_ns`: one third before the device receives the request, and two thirds
    /// after the device completed it.
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

    fn median_ns(times_ns: &[u64]) -> f64 {
        let times: Vec<f64> = times_ns[100..].iter().map(|ns| *ns as f64).collect();
        median(&times).unwrap()
    }

    #[test]
    fn a_program_behind_a_path_sees_the_simulated_time() {
        let without = median_ns(&reads(&mut machine(1.0, PathCost::default()), 0));
        assert!((300e3..400e3).contains(&without), "{without}");
        let credited = median_ns(&reads(&mut machine(1.0, PathCost::of(60_000)), 60_000));
        assert!((credited / without - 1.0).abs() < 0.001, "{credited} {without}");
        let charged = median_ns(&reads(&mut machine(1.0, PathCost::default()), 60_000));
        assert!(charged > without + 30e3, "{charged} {without}");
    }

    #[test]
    fn ten_times_the_speed_takes_a_tenth_of_the_time() {
        let slow = median_ns(&reads(&mut machine(1.0, PathCost::default()), 0));
        let fast = median_ns(&reads(&mut machine(10.0, PathCost::default()), 0));
        assert!((slow / fast - 10.0).abs() < 0.01, "{slow} {fast}");
    }

    #[test]
    fn an_idle_system_is_simulated_at_long_intervals() {
        let mut machine = machine(1.0, PathCost::of(40_000));
        let times_ns = reads(&mut machine, 40_000);
        let now_ns = machine.start_ns + times_ns.iter().sum::<u64>();
        let mut done = Vec::new();
        // The disk finishes its read-ahead. After that, the simulation has no more events.
        let mut calls = 0;
        while let Some(next_ns) = machine.next_ns() {
            assert!(next_ns >= now_ns + IDLE_INTERVAL_NS, "the idle system is simulated too often");
            machine.advance(next_ns, &mut done);
            calls += 1;
        }
        assert!(done.is_empty() && calls <= 3, "{calls}");
    }

    #[test]
    fn the_overhead_grows_with_the_request_size_up_to_a_limit() {
        let path = PathCost { fixed_ns: [100.0, 200.0], each_byte_ns: [0.5, 0.0] };
        assert_eq!(path.ns_for(Op::Read, 1000), 600);
        assert_eq!(path.ns_for(Op::Write, 1000), 200);
        assert_eq!(PathCost::of(u64::MAX).ns_for(Op::Read, 1), LAG_NS / 2);
    }
}
