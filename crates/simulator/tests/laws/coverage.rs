//! Whether the interval that is stated for a rate holds the rate that the system has in the long
//! run, as often as its confidence says.

use analysis::bootstrap::median_interval;
use analysis::interval::{CONFIDENCE, Interval};
use ioengine::Caching;
use simulator::System;
use workload::{Pattern, Sample, Workload};

use crate::bench::{load, named, run};

/// Runs of each case, and trials of each run.
const RUNS: u64 = 200;
const TRIALS: u64 = 6;
/// Of the runs, so many must hold the rate of the long run: 93%.
const COVERED_MIN: u64 = 186;

/// A system with a load, and how long a trial and the long run are.
struct Case {
    system: System,
    load: Workload,
    trial_ns: u64,
    long_run_ns: u64,
}

impl Case {
    /// Random reads: a long run is of 400 trials.
    fn random(name: &str, request_bytes: u32, depth: u32, trial_ms: u64) -> Case {
        let system = named(name, &[]);
        let region_bytes = 8 << 30;
        let load = load(100, request_bytes, depth, region_bytes);
        let load = Workload { pattern: Pattern::Random, limit_bytes: None, ..load };
        let trial_ns = trial_ms * 1_000_000;
        Case { system, load, trial_ns, long_run_ns: trial_ns * 400 }
    }

    /// Sequential reads: a long run stays within the first zone of a disk.
    fn sequential(name: &str, request_bytes: u32, depth: u32, trial_ms: u64) -> Case {
        let case = Case::random(name, request_bytes, depth, trial_ms);
        let load = Workload { pattern: Pattern::Sequential, ..case.load };
        Case { load, long_run_ns: case.trial_ns * 20, ..case }
    }

    fn sample(&self, seed: u64, limit_ns: u64) -> Sample {
        let load = Workload { seed, limit_ns: Some(limit_ns), ..self.load.clone() };
        run(&self.system, &load, Caching::Direct).sample
    }

    /// What a run of several trials states: the interval of the median, and half a request more, as
    /// requests are counted whole.
    fn stated(&self, run: u64) -> Interval {
        let trials = (0..TRIALS).map(|trial| self.sample(run * 1000 + trial + 1, self.trial_ns));
        let (mut rates, mut resolution) = (Vec::new(), 0.0_f64);
        for sample in trials {
            rates.push(sample.bytes_per_s());
            let counted = sample.full_queue.map_or(f64::INFINITY, |full| full.requests());
            resolution = resolution.max(0.5 / counted);
        }
        let Interval { value, low, high } =
            median_interval(&rates, CONFIDENCE, run).expect("rates are finite");
        Interval { value, low: low * (1.0 - resolution), high: high * (1.0 + resolution) }
    }

    fn holds(&self) {
        let long_run = self.sample(7_777_777, self.long_run_ns);
        let truth = long_run.bytes() as f64 * 1e9 / long_run.elapsed_ns() as f64;
        let covered = (0..RUNS).filter(|run| self.stated(*run).contains(truth)).count() as u64;
        let Workload { pattern, request_bytes, depth, .. } = &self.load;
        assert!(
            covered >= COVERED_MIN,
            "{} {pattern:?} {request_bytes} bytes, depth {depth}: {covered} of {RUNS} intervals \
             hold {truth:.0} bytes/s; one is {:?}",
            self.system.name,
            self.stated(1),
        );
    }
}

#[test]
fn intervals_of_a_disk_hold_its_rate_in_the_long_run_at_any_depth() {
    Case::random("sata-hdd-7200", 4096, 1, 1000).holds();
    Case::random("sata-hdd-7200", 4096, 8, 1000).holds();
    Case::random("sata-hdd-7200", 4096, 32, 2000).holds();
    Case::random("w2k-atlas10k", 8192, 4, 1000).holds();
}

#[test]
fn intervals_of_flash_hold_its_rate_in_the_long_run_although_they_have_no_width() {
    Case::random("sata-ssd", 4096, 4, 30).holds();
    Case::random("sata-ssd", 65_536, 32, 100).holds();
    Case::random("nvme-gen4", 4096, 8, 5).holds();
    Case::random("nvme-gen4", 131_072, 32, 20).holds();
    Case::random("cloud-gp-volume", 16_384, 16, 300).holds();
}

#[test]
fn intervals_of_sequential_reads_hold_the_rate_of_the_zone() {
    Case::sequential("w2k-atlas10k", 65_536, 8, 500).holds();
}

/// The simulated scheduler of deep queues takes its time.
#[test]
#[ignore = "a campaign of a minute"]
fn intervals_of_very_deep_queues_hold_the_rate_in_the_long_run() {
    Case::random("sata-hdd-7200", 4096, 128, 2000).holds();
    Case::random("sata-hdd-7200", 4096, 256, 5000).holds();
}
