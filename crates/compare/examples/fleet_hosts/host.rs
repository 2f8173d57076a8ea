//! The hosts of the simulated fleet: their hardware, how they differ, and what is wrong with the
//! bad hosts.
//!
//! All spreads are standard deviations of logarithms. The speed of a host has two random factors
//! with a spread of 1.7% each. The first factor is common to all workloads, and the second differs
//! between workloads. Both have heavier tails than a normal distribution. Runs and trials vary too,
//! so the measured spread between hosts is 3% in a single run.

use std::collections::BTreeMap;

use fastrand::Rng;
use lab::machine::{DeviceFacts, Host, LinkFacts, TargetFacts};

use crate::Options;
use crate::chance::{between, choice, happens, heavy};
use crate::measurement::WORKLOADS;

/// Number of runs of each host, a week apart.
pub const RUNS: usize = 8;
const WEEK_NS: i64 = 7 * 86_400_000_000_000;
/// Start of the first run of the fleet: 2025-01-06 (ns since 1970).
const FIRST_RUN_UNIX_NS: i64 = 1_736_121_600_000_000_000;

/// Host-to-host spread of the speed factor that is common to all workloads.
const SPREAD_SHARED: f64 = 0.017;
/// Host-to-host spread of the speed factor that differs between workloads.
const SPREAD_ALONE: f64 = 0.017;
/// Host-to-host spread of tail latency.
const SPREAD_TAIL: f64 = 0.10;
/// Degrees of freedom of Student's distribution for the spreads between hosts.
const SPREAD_FREEDOM: u32 = 10;

/// What is wrong with a bad host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ailment {
    /// All rates are 15% lower.
    Slow,
    /// Every other trial is 25% slower.
    Bimodal,
    /// The firmware is old: 12% fewer random requests per second.
    OldFirmware,
    /// The PCIe link runs at half of its speed, so sequential rates are halved.
    HalfLink,
    /// The p99.9 latency of random requests is tripled. The median is normal.
    Tail,
    /// After a minute of load, the rate falls by 40%.
    Throttled,
    /// The I/O scheduler is `mq-deadline` instead of `none`: 10% fewer random requests per second.
    Scheduler,
}

impl Ailment {
    const ALL: [Ailment; 7] = [
        Ailment::Slow,
        Ailment::Bimodal,
        Ailment::OldFirmware,
        Ailment::HalfLink,
        Ailment::Tail,
        Ailment::Throttled,
        Ailment::Scheduler,
    ];

    fn name(self) -> &'static str {
        match self {
            Ailment::Slow => "slow",
            Ailment::Bimodal => "bimodal",
            Ailment::OldFirmware => "old firmware",
            Ailment::HalfLink => "half link",
            Ailment::Tail => "latency tail",
            Ailment::Throttled => "throttled",
            Ailment::Scheduler => "scheduler",
        }
    }
}

/// A device model.
#[derive(Debug)]
pub struct Model {
    /// Name of the model, as the device reports it.
    pub name: &'static str,
    /// Requests per second in each of the `WORKLOADS`.
    pub requests_per_s: [f64; WORKLOADS.len()],
    firmwares: [(&'static str, f64); 2],
    old_firmware: &'static str,
}

/// The device models, with their shares of the fleet.
static MODELS: [(Model, f64); 3] = [
    (
        Model {
            name: "NVME-A 3840G",
            requests_per_s: [12_500.0, 320_000.0, 210_000.0, 6100.0, 3800.0],
            firmwares: [("GDC5602Q", 0.7), ("GDC5702Q", 0.3)],
            old_firmware: "GDC5302Q",
        },
        0.5,
    ),
    (
        Model {
            name: "NVME-B 7680G",
            requests_per_s: [11_000.0, 250_000.0, 140_000.0, 4800.0, 2100.0],
            firmwares: [("2CV10100", 0.6), ("2CV10131", 0.4)],
            old_firmware: "2CV10007",
        },
        0.3,
    ),
    (
        Model {
            name: "NVME-C 3840G",
            requests_per_s: [14_000.0, 400_000.0, 250_000.0, 6500.0, 4100.0],
            firmwares: [("ACV1R340", 0.8), ("ACV1R351", 0.2)],
            old_firmware: "ACV1R120",
        },
        0.2,
    ),
];

/// A host of the simulated fleet.
#[derive(Debug)]
pub struct Machine {
    /// Number of the host.
    pub number: usize,
    /// Model of the host's device.
    pub model: &'static Model,
    /// What is wrong with the host, and the index of the first affected run. None for a healthy
    /// host.
    pub ailment: Option<(Ailment, usize)>,
    /// Logarithm of the host's speed in each workload, relative to its model.
    pub speeds: [f64; WORKLOADS.len()],
    /// Logarithm of the host's tail latency in each workload, relative to the workload's normal
    /// tail.
    pub tails: [f64; WORKLOADS.len()],
    /// Start of each run (ns since 1970).
    pub starts_unix_ns: [i64; RUNS],
    firmware: &'static str,
    file_system: &'static str,
    kernels: [&'static str; RUNS],
    memory_gib: u64,
    governor: &'static str,
}

/// Generates all hosts of the fleet.
pub fn fleet(options: &Options) -> Vec<Machine> {
    let mut random = Rng::with_seed(options.seed);
    let mut order: Vec<usize> = (0..options.hosts).collect();
    random.shuffle(&mut order);
    let ailments: BTreeMap<usize, Ailment> =
        order.into_iter().take(options.bad).zip(Ailment::ALL.into_iter().cycle()).collect();
    let machine = |number| machine(options.seed, number, ailments.get(&number).copied());
    (0..options.hosts).map(machine).collect()
}

fn machine(seed: u64, number: usize, ailment: Option<Ailment>) -> Machine {
    let mut random = random_of(seed, number, 0);
    let random = &mut random;
    let shares: Vec<(usize, f64)> =
        MODELS.iter().enumerate().map(|(index, (_, share))| (index, *share)).collect();
    let model = &MODELS[choice(random, &shares)].0;
    let shared = SPREAD_SHARED * heavy(random, SPREAD_FREEDOM);
    let speeds = std::array::from_fn(|_| shared + SPREAD_ALONE * heavy(random, SPREAD_FREEDOM));
    let tail = SPREAD_TAIL * heavy(random, SPREAD_FREEDOM);
    let tails = std::array::from_fn(|_| tail + SPREAD_TAIL / 2.0 * heavy(random, SPREAD_FREEDOM));
    // About half of the bad hosts are bad in all runs. The remaining bad hosts become bad in one of
    // the middle runs.
    let first = if happens(random, 0.5) { 0 } else { 3 + random.usize(..3) };
    let hour_ns = between(random, 0.0, 24.0 * 3_600e9) as i64;
    // Most hosts get a new kernel between two runs. One host in a hundred has a special kernel in
    // all runs. The kernel does not change the results.
    let replaced = 1 + random.usize(..RUNS + 2);
    let special = happens(random, 0.01);
    let kernel = |run| match (special, run >= replaced) {
        (true, _) => "6.9.3-test",
        (false, true) => "6.6.44",
        (false, false) => "6.1.90",
    };
    Machine {
        number,
        model,
        ailment: ailment.map(|ailment| (ailment, first)),
        speeds,
        tails,
        starts_unix_ns: std::array::from_fn(|run| {
            FIRST_RUN_UNIX_NS + run as i64 * WEEK_NS + hour_ns
        }),
        firmware: choice(random, &model.firmwares),
        file_system: choice(random, &[("xfs", 0.8), ("ext4", 0.2)]),
        kernels: std::array::from_fn(kernel),
        memory_gib: choice(random, &[(256, 0.9), (512, 0.09), (128, 0.01)]),
        governor: choice(random, &[("performance", 0.99), ("powersave", 0.01)]),
    }
}

/// Returns the random number generator of a host for one purpose. Each purpose has a separate
/// sequence of random numbers.
pub fn random_of(seed: u64, number: usize, purpose: u64) -> Rng {
    // Hosts have consecutive numbers. Each number passes through a generator, so that the random
    // numbers of different hosts are unrelated.
    let mut mixed = Rng::with_seed(seed);
    let mut mixed = Rng::with_seed(mixed.u64(..) ^ number as u64);
    Rng::with_seed(mixed.u64(..) ^ purpose)
}

impl Machine {
    /// Returns the name of the host.
    pub fn name(&self) -> String {
        format!("node{:05}", self.number + 1)
    }

    /// Returns what is wrong with the host in a run. None if the host is healthy in this run.
    pub fn ailment_in(&self, run: usize) -> Option<Ailment> {
        self.ailment.filter(|(_, first)| run >= *first).map(|(ailment, _)| ailment)
    }

    /// Returns the facts about the host in a run.
    pub fn facts(&self, run: usize) -> Host {
        let kernel = self.kernels[run];
        Host {
            name: self.name(),
            kernel: kernel.to_owned(),
            system: "Debian GNU/Linux 12 (bookworm)".to_owned(),
            cpu: "AMD EPYC 9354 32-Core Processor".to_owned(),
            cpus: 64,
            governor: Some(self.governor.to_owned()),
            memory_bytes: self.memory_gib << 30,
            clock: "tsc".to_owned(),
            huge_pages: Some("madvise".to_owned()),
            boot_id: format!("boot-{}-{kernel}", self.number),
            root: true,
        }
    }

    /// Returns the facts about the target and its device in a run.
    pub fn target(&self, run: usize) -> TargetFacts {
        let ailment = self.ailment_in(run);
        let is = |what| ailment == Some(what);
        let (gt_per_s, bytes_per_s) =
            if is(Ailment::HalfLink) { ("8.0", 3.938e9) } else { ("16.0", 7.877e9) };
        let firmware =
            if is(Ailment::OldFirmware) { self.model.old_firmware } else { self.firmware };
        let scheduler = if is(Ailment::Scheduler) { "mq-deadline" } else { "none" };
        let device = DeviceFacts {
            name: "nvme0n1".to_owned(),
            model: Some(self.model.name.to_owned()),
            serial: Some(format!("S{:07}", 7919 * (self.number + 1))),
            firmware: Some(firmware.to_owned()),
            rotational: Some(false),
            revolutions_per_min: None,
            transfer_mode: None,
            nvme: None,
            scheduler: Some(scheduler.to_owned()),
            write_cache: Some("write through".to_owned()),
            size_bytes: Some(3_840_755_982_336),
            logical_block_bytes: Some(512),
            physical_block_bytes: Some(4096),
            max_request_bytes: Some(131_072),
            max_segments: Some(127),
            read_ahead_bytes: Some(131_072),
        };
        TargetFacts {
            name: format!("/data/halfpower-{:05}-{run}.test", self.number),
            kind: "file".to_owned(),
            size_bytes: crate::measurement::REGION_BYTES,
            file_system: Some(self.file_system.to_owned()),
            mount_options: Some("rw,noatime".to_owned()),
            device: Some(device),
            links: vec![LinkFacts {
                component: format!("PCIe link {gt_per_s} GT/s x4"),
                bytes_per_s,
                source: "/sys/block/nvme0n1/device/device/current_link_speed".to_owned(),
            }],
            simulated: None,
            network: None,
        }
    }
}

/// Returns the list of bad hosts as JSON.
pub fn truth(hosts: &[Machine]) -> String {
    let bad = hosts.iter().filter_map(|host| {
        let (ailment, first) = host.ailment?;
        Some(serde_json::json!({
            "host": host.name(),
            "model": host.model.name,
            "ailment": ailment.name(),
            "since_unix_ns": (first > 0).then(|| host.starts_unix_ns[first]),
        }))
    });
    serde_json::Value::from(bad.collect::<Vec<_>>()).to_string()
}
