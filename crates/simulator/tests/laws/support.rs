//! Test fixtures: systems with changed parameters, and the function `run`, which checks every run.

use std::sync::atomic::AtomicBool;

use ioengine::{Caching, EngineKind};
use simulator::Description;
use simulator::{Account, SimTarget, SimWorld, System};
use workload::{Control, Placement, Sample, Workload, plan, stepper};

/// Name of the disk system that most tests use.
pub const DISKS: &str = "nt4-ultrawide";

/// Description of a flash device that replaces the disks.
const FLASH: &str = r#"
[drive]
kind = "flash"
model = "flash of the tests"
capacity = { value = 8, unit = "GB", source = "test" }
fixed_read = { value = 20, unit = "us", source = "test" }
fixed_write = { value = 10, unit = "us", source = "test" }
units = { value = 4, unit = "units", source = "test" }
unit_size = { value = 4, unit = "KiB", source = "test" }
unit_read = { value = 60, unit = "us", source = "test" }
unit_write = { value = 200, unit = "us", source = "test" }
read_rate = { value = 500, unit = "MB/s", source = "test" }
write_rate = { value = 300, unit = "MB/s", source = "test" }
requests_per_s = { value = 0, unit = "requests/s", source = "test" }
counted_size = { value = 0, unit = "KiB", source = "test" }
request_credit = { value = 0, unit = "requests", source = "test" }
sustained_requests_per_s = { value = 0, unit = "requests/s", source = "test" }
cache = { value = 0, unit = "MiB", source = "test" }
cache_hit = { value = 5, unit = "us", source = "test" }
buffer = { value = 0, unit = "MiB", source = "test" }
drain = { value = 40, unit = "MB/s", source = "test" }
write_amplification = { value = 1, unit = "1", source = "test" }
credit = { value = 0, unit = "MB", source = "test" }
sustained = { value = 0, unit = "MB/s", source = "test" }
coalesce = { value = 0, unit = "us", source = "test" }
"#;

/// Description of a RAID controller without a cache.
const CONTROLLER: &str = r#"
name = "RAID processor"
fixed = { value = 300, unit = "us", source = "test" }
piece = { value = 40, unit = "us", source = "test" }
read = { value = 5, unit = "us/KiB", source = "test" }
write = { value = 9, unit = "us/KiB", source = "test" }
parity = { value = 7, unit = "us/KiB", source = "test" }
write_buffer = { value = 0, unit = "KiB", source = "test" }
read_ahead = { value = 0, unit = "KiB", source = "test" }
"#;

const NETWORK: &str = r#"
[network]
name = "wire"
latency = { value = 40, unit = "us", source = "test" }
rate = { value = 100, unit = "Mbit/s", source = "test" }
read_round_trips = { value = 1, unit = "1", source = "test" }
write_round_trips = { value = 2, unit = "1", source = "test" }
crossings = { value = 2, unit = "1", source = "test" }
write_turn = { value = 100, unit = "us", source = "test" }
slow_write_from = { value = 0, unit = "KiB", source = "test" }
slow_write = { value = 0, unit = "us/KiB", source = "test" }
"#;

const COSTS: [&str; 4] = ["client_read", "client_write", "server_read", "server_write"];

/// Differences between a system and the base system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts {
    /// Whether flash replaces the disks.
    pub flash: bool,
    /// Whether the RAID controllers have no caches.
    pub uncached: bool,
    /// Whether the devices are behind a network.
    pub network: bool,
}

/// Returns the description of the base system with the changes in `parts`.
pub fn base_with(parts: Parts) -> Description {
    let whole = include_str!("../../systems/nt4-ultrawide.toml");
    let (host, rest) = whole.split_once("[drive]").expect("the system has a drive");
    let (drive, controllers) = rest.split_once("[adapter]").expect("the text has [adapter]");
    let mut text =
        if parts.flash { format!("{host}{FLASH}") } else { format!("{host}[drive]{drive}") };
    text.push_str(&if parts.uncached {
        format!("[adapter]{CONTROLLER}\n[array]{CONTROLLER}")
    } else {
        format!("[adapter]{controllers}")
    });
    if parts.network {
        text.push_str(NETWORK);
        for cost in COSTS {
            text.push_str(&format!(
                "[network.{cost}]\n\
                 fixed = {{ value = 90, unit = \"us\", source = \"test\" }}\n\
                 each = {{ value = 5, unit = \"us/KiB\", source = \"test\" }}\n\
                 uncharged = {{ value = 0, unit = \"1\", source = \"test\" }}\n"
            ));
        }
    }
    Description::read(&text, "test").expect("the text is a system")
}

/// Applies changes to a description and builds the system.
pub fn changed(mut description: Description, changes: &[(&str, &str)]) -> System {
    for (key, value) in changes {
        description.set(key, value).unwrap_or_else(|error| panic!("{error}"));
    }
    description.system().unwrap_or_else(|error| panic!("{error}"))
}

/// Builds a built-in system with changes.
pub fn named(name: &str, changes: &[(&str, &str)]) -> System {
    changed(Description::named(name).expect("the system is built in"), changes)
}

/// Returns the names of all built-in systems. Checks that each system can be built.
pub fn all() -> Vec<&'static str> {
    let names: Vec<&str> = Description::names().collect();
    names.iter().for_each(|name| drop(named(name, &[])));
    names
}

/// Returns a closed-loop load that ends after `bytes` bytes.
pub fn load(read_percent: u8, request_bytes: u32, depth: u32, bytes: u64) -> Workload {
    Workload {
        read_percent,
        request_bytes,
        depth,
        region_bytes: bytes,
        limit_bytes: Some(bytes),
        ..Workload::default()
    }
}

pub struct RunResult {
    pub sample: Sample,
    pub account: Account,
}

impl RunResult {
    pub fn elapsed_ns(&self) -> u64 {
        self.sample.end_ns - self.sample.start_ns
    }

    pub fn bytes_per_s(&self) -> f64 {
        self.sample.bytes() as f64 * 1e9 / self.elapsed_ns() as f64
    }

    pub fn ns_per_request(&self) -> f64 {
        self.elapsed_ns() as f64 / self.sample.requests() as f64
    }
}

/// Runs a load. Checks that all requests complete, that no resource is busy for more than the
/// elapsed time, and that Little's law holds.
pub fn run(system: &System, load: &Workload, caching: Caching) -> RunResult {
    let world = SimWorld::new(system, load.seed);
    let whole = |file: SimTarget| file.with_size(u64::MAX);
    let files: Vec<SimTarget> = world.files(caching).into_iter().map(whole).collect();
    let targets: Vec<&SimTarget> = files.iter().collect();
    let load = Workload { engine_kind: EngineKind::IoUring, ..load.clone() };
    let planned = plan::resolve(&load, targets[0]).unwrap_or_else(|error| panic!("{error}"));
    let mark = world.mark();
    let stop = AtomicBool::new(false);
    let mut control = Control { stop: &stop, on_progress: &mut |_| {}, start: None };
    let (clock, meter) = (world.clock(), world.meter());
    let sample = stepper::run(&targets, &planned, &clock, &meter, &mut control);
    let sample = sample.unwrap_or_else(|error| panic!("{error}"));
    let account = world.account_since(&mark);
    let what = || format!("{} {:?} {load:?} {caching:?}", system.name, system.setup);
    assert_eq!(account.violations(), Vec::<String>::new(), "{}", what());
    assert_eq!(account.requests, sample.requests(), "{}", what());
    if let Some(bytes) = load.limit_bytes {
        let request = u64::from(load.request_bytes);
        let wanted = bytes / request * request * files.len() as u64;
        assert_eq!(account.bytes, wanted, "requests were lost: {}", what());
    }
    RunResult { sample, account }
}

pub fn relative_difference(a: f64, b: f64) -> f64 {
    (a / b - 1.0).abs()
}

/// Returns a load with several threads, each of which has a separate region.
pub fn threads(load: Workload, threads: u32) -> Workload {
    Workload { threads, placement: Placement::Own, ..load }
}
