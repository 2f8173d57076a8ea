//! Coverage of the confidence interval of a rate: how often the interval contains the rate of a
//! long run.

use analysis::bootstrap::median_interval;
use analysis::interval::{CONFIDENCE, Interval};
use ioengine::Caching;
use simulator::System;
use workload::{Pattern, Sample, Workload};

use crate::support::{load, named, run};

/// Number of runs per case.
const RUNS: u64 = 200;
/// Number of trials per run.
const TRIALS: u64 = 6;
/// Minimum number of runs whose interval must contain the long-run rate (93%).
const COVERED_MIN: u64 = 186;

struct Case {
    system: System,
    load: Workload,
    trial_ns: u64,
    long_run_ns: u64,
}

impl Case {
    /// Returns a case of random reads. The long run is as long as 400 trials.
    fn random(name: &str, request_bytes: u32, depth: u32, trial_ms: u64) -> Case {
        let system = named(name, &[]);
        let region_bytes = 8 << 30;
        let load = load(100, request_bytes, depth, region_bytes);
        let load = Workload { pattern: Pattern::Random, limit_bytes: None, ..load };
        let trial_ns = trial_ms * 1_000_000;
        Case { system, load, trial_ns, long_run_ns: trial_ns * 400 }
    }

    /// Returns a case of sequential reads. The long run is only 20 trials long, so that it stays
    /// within the first zone of a disk.
    fn sequential(name: &str, request_bytes: u32, depth: u32, trial_ms: u64) -> Case {
        let case = Case::random(name, request_bytes, depth, trial_ms);
        let load = Workload { pattern: Pattern::Sequential, ..case.load };
        Case { load, long_run_ns: case.trial_ns * 20, ..case }
    }

    fn sample(&self, seed: u64, limit_ns: u64) -> Sample {
        let load = Workload { seed, limit_ns: Some(limit_ns), ..self.load.clone() };
        run(&self.system, &load, Caching::Direct).sample
    }

    /// Returns the interval that is reported for a run: the confidence interval of the median,
    /// widened by half a request, because trials count only whole requests.
    fn reported_interval(&self, run: u64) -> Interval {
        let trials = (0..TRIALS).map(|trial| self.sample(run * 1000 + trial + 1, self.trial_ns));
        let (mut rates, mut resolution) = (Vec::new(), 0.0_f64);
        for sample in trials {
            rates.push(sample.bytes_per_s());
            let counted = sample.full_queue.map_or(f64::INFINITY, |full| full.requests());
            resolution = resolution.max(0.5 / counted);
        }
        let Interval { value, low, high } =
            median_interval(&rates, CONFIDENCE).expect("rates are finite");
        Interval { value, low: low * (1.0 - resolution), high: high * (1.0 + resolution) }
    }

    fn assert_coverage(&self) {
        let long_run = self.sample(7_777_777, self.long_run_ns);
        let long_run_rate = long_run.bytes() as f64 * 1e9 / long_run.elapsed_ns() as f64;
        let covered = (0..RUNS)
            .filter(|run| self.reported_interval(*run).contains(long_run_rate))
            .count() as u64;
        let Workload { pattern, request_bytes, depth, .. } = &self.load;
        assert!(
            covered >= COVERED_MIN,
            "{} {pattern:?} {request_bytes} bytes, depth {depth}: {covered} of {RUNS} intervals \
             contain {long_run_rate:.0} bytes/s, for example {:?}",
            self.system.name,
            self.reported_interval(1),
        );
    }
}

#[test]
fn intervals_of_a_disk_hold_its_rate_in_the_long_run_at_any_depth() {
    Case::random("sata-hdd-7200", 4096, 1, 1000).assert_coverage();
    Case::random("sata-hdd-7200", 4096, 8, 1000).assert_coverage();
    Case::random("sata-hdd-7200", 4096, 32, 2000).assert_coverage();
    Case::random("w2k-atlas10k", 8192, 4, 1000).assert_coverage();
}

#[test]
fn intervals_of_flash_hold_its_rate_in_the_long_run_although_they_have_no_width() {
    Case::random("sata-ssd", 4096, 4, 30).assert_coverage();
    Case::random("sata-ssd", 65_536, 32, 100).assert_coverage();
    Case::random("nvme-gen4", 4096, 8, 5).assert_coverage();
    Case::random("nvme-gen4", 131_072, 32, 20).assert_coverage();
    Case::random("cloud-gp-volume", 16_384, 16, 300).assert_coverage();
}

#[test]
fn intervals_of_sequential_reads_hold_the_rate_of_the_zone() {
    Case::sequential("w2k-atlas10k", 65_536, 8, 500).assert_coverage();
}

/// This test is slow, because the simulated scheduler examines the whole queue for each request.
#[test]
#[ignore = "takes about a minute"]
fn intervals_of_very_deep_queues_hold_the_rate_in_the_long_run() {
    Case::random("sata-hdd-7200", 4096, 128, 2000).assert_coverage();
    Case::random("sata-hdd-7200", 4096, 256, 5000).assert_coverage();
}
