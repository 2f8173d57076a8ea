//! Tests that no run exceeds a closed-form bound, for any system and load. If one component is the
//! bottleneck, the run also reaches the bound of this component.

use ioengine::{Caching, Op};
use proptest::prelude::*;
use simulator::Description;
use simulator::System;
use simulator::bounds::{self, Bound, Shape};
use workload::{Pattern, Workload};

use crate::support::{
    DISKS, Parts, RunResult, all, base_with, changed, load, named, relative_difference, run,
    threads,
};

const KIB: u64 = 1024;

#[derive(Clone)]
struct Case {
    system: System,
    load: Workload,
    caching: Caching,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Workload { pattern, read_percent, request_bytes, depth, threads, .. } = self.load;
        let (limit_bytes, seed) = (self.load.limit_bytes, self.load.seed);
        write!(
            f,
            "{} {:?}, cpus {}, {pattern} {read_percent}% reads of {request_bytes}, depth {depth} \
             x {threads}, {limit_bytes:?} bytes, {:?}, seed {seed}, drive {:?}",
            self.system.name,
            self.system.setup,
            self.system.host.cpus.0,
            self.caching,
            self.system.drive
        )
    }
}

impl Case {
    fn shape(&self) -> Shape {
        let load = &self.load;
        let files = self.system.setup.files();
        Shape {
            op: if load.read_percent == 100 { Op::Read } else { Op::Write },
            random: load.pattern == Pattern::Random,
            request_bytes: load.request_bytes,
            depth: load.depth * load.threads * files,
            caching: self.caching,
            bytes: load.limit_bytes.map(|bytes| {
                let request = u64::from(load.request_bytes);
                bytes / request * request * u64::from(files)
            }),
        }
    }

    fn run(&self) -> RunResult {
        run(&self.system, &self.load, self.caching)
    }
}

fn bases() -> Vec<Description> {
    let mut bases: Vec<Description> = all()
        .into_iter()
        .map(|name| Description::named(name).expect("the name is a built-in system"))
        .collect();
    for number in 1..8 {
        let parts =
            Parts { flash: number & 1 != 0, uncached: number & 2 != 0, network: number & 4 != 0 };
        bases.push(base_with(parts));
    }
    bases
}

/// Changes to a base system, in the order in which they are applied. The value of each change is
/// drawn independently of the others.
const CHANGES: [(&str, &[&str]); 10] = [
    ("volume", &["none", "stripe", "raid1", "raid5"]),
    ("raid_in", &["host", "adapter", "array"]),
    ("chunk", &["16k", "64k", "96k"]),
    ("misalign", &["0", "12k"]),
    ("mirror_reads", &["first", "shortest", "twinstor"]),
    ("allocation", &["existing", "extend"]),
    ("write_cache", &["on", "off"]),
    ("file_at", &["0.1", "0.9"]),
    ("path", &["driver", "file-system"]),
    ("drive.zero_latency_write", &["on", "off"]),
];
/// Further changes. Each system gets only one entry.
const OTHERS: [&str; 14] = [
    "",
    "host.cpus=2",
    "links.0.fixed=300",
    "drive.buffer=4",
    "drive.credit=3;drive.sustained=20",
    "drive.requests_per_s=3000",
    "drive.counted_size=16;drive.request_credit=50;drive.sustained_requests_per_s=700",
    "drive.cache=16",
    "drive.unit_write=0;drive.write_amplification=3",
    "drive.schedule=look",
    "drive.schedule=fcfs",
    "drive.translation.state=empty",
    "drive.translation.suspend=15;drive.buffer=1",
    "drive.translation.slc_cache=0.01GB;drive.translation.slc_program=90;\
     drive.translation.slc_full=fold",
];

/// Applies a change if the key exists and the result is valid. Returns whether the change was
/// applied.
fn set(description: &mut Description, key: &str, value: &str) -> bool {
    let mut changed = description.clone();
    let fits = changed.set(key, value).is_ok() && changed.system().is_ok();
    if fits {
        *description = changed;
    }
    fits
}

fn pairs(changes: &str) -> impl Iterator<Item = (&str, &str)> {
    changes.split(';').filter_map(|pair| pair.split_once('='))
}

fn system() -> impl Strategy<Value = System> {
    let counts = (1..7_u32, 1..4_u32, 1..3_u32);
    // A system keeps its original path with a probability of 25%, and its original setting of
    // zero-latency writes with a probability of 50%.
    let choices = any::<[prop::sample::Index; CHANGES.len()]>();
    let keeps = [prop::bool::weighted(0.25), prop::bool::weighted(0.5)];
    let rest = (0..6_u32, prop::sample::select(OTHERS.to_vec()), keeps);
    let bases = prop::sample::select(bases());
    (bases, counts, choices, rest).prop_map(|(mut text, (disks, buses, hosts), choices, rest)| {
        let (failed, others, [keeps_path, keeps_drive]) = rest;
        for (key, value) in [("buses", 1), ("hosts", 1), ("disks", disks)] {
            set(&mut text, key, &value.to_string());
        }
        set(&mut text, "buses", &buses.to_string());
        set(&mut text, "hosts", &hosts.to_string());
        for ((key, values), choice) in CHANGES.iter().zip(choices) {
            let keeps = (*key == "path" && keeps_path)
                || (*key == "drive.zero_latency_write" && keeps_drive);
            if !keeps {
                set(&mut text, key, choice.get::<&str>(values));
            }
        }
        set(&mut text, "failed", if failed < 2 { "1" } else { "0" });
        set(&mut text, "rebuilding", if failed == 0 { "on" } else { "off" });
        for (key, value) in pairs(others) {
            set(&mut text, key, value);
        }
        text.system().expect("only valid changes are kept")
    })
}

#[test]
fn every_change_of_the_property_takes_effect_somewhere() {
    let one = [("volume", "none"), ("hosts", "1"), ("buses", "1"), ("disks", "7")];
    let mirrored = [("volume", "raid1"), ("chunk", "32k"), ("misalign", "4k")];
    let degraded = [("failed", "1"), ("allocation", "extend")];
    let rebuilt = [("rebuilding", "on"), ("path", "driver"), ("mirror_reads", "shortest")];
    let mut bases = bases();
    for mut base in bases.clone() {
        for changes in [&one[..], &mirrored, &degraded, &rebuilt] {
            changes.iter().for_each(|(key, value)| assert!(set(&mut base, key, value), "{key}"));
            bases.push(base.clone());
        }
        if set(&mut base, "raid_in", "array") {
            bases.push(base);
        }
    }
    let takes_effect = |key: &str, value: &str| {
        bases.iter().any(|base| {
            let mut changed = base.clone();
            set(&mut changed, key, value) && changed.text() != base.text()
        })
    };
    let counts = ["1", "2", "3", "4", "5", "6"];
    let all_of = [
        ("disks", &counts[..]),
        ("buses", &counts[..3]),
        ("hosts", &counts[..2]),
        ("failed", &["0", "1"]),
        ("rebuilding", &["off", "on"]),
    ];
    for (key, values) in all_of.iter().chain(&CHANGES) {
        for value in *values {
            assert!(takes_effect(key, value), "{key}={value} changes no base system");
        }
    }
    for (key, value) in OTHERS.into_iter().flat_map(pairs) {
        assert!(takes_effect(key, value), "{key}={value} changes no base system");
    }
}

fn case() -> impl Strategy<Value = Case> {
    let kib = prop::sample::select(vec![2_u32, 4, 8, 16, 48, 64, 128, 192, 1024]);
    let shape = (kib, any::<bool>(), any::<bool>(), prop::sample::select(vec![1_u32, 2, 3, 8, 32]));
    let rest = (prop::sample::select(vec![1_u32, 1, 2, 4]), 0..4_u8, 1..12_u64, any::<u64>());
    (system(), shape, rest).prop_map(|(system, shape, (workers, mode, mib, seed))| {
        let (kib, write, random, depth) = shape;
        // The load consists of whole rounds of one request per thread, so that all threads get
        // equal shares. No byte is requested twice.
        let round = u64::from(kib) * KIB * u64::from(workers);
        let bytes = ((mib << 20) / round).max(2) * round;
        let load = load(if write { 0 } else { 100 }, kib * 1024, depth, bytes);
        let pattern = if random { Pattern::Random } else { Pattern::Sequential };
        let load = threads(Workload { pattern, seed, ..load }, workers);
        Case { system, load, caching: Caching::ALL[mode as usize] }
    })
}

fn rates(bounds: &[Bound]) -> String {
    let one = |bound: &Bound| format!("{} {:.0}", bound.name, bound.bytes_per_s);
    bounds.iter().map(one).collect::<Vec<_>>().join(", ")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_run_is_faster_than_a_bound(case in case()) {
        let bounds = bounds::of(&case.system, &case.shape());
        prop_assert!(!bounds.is_empty());
        let rate = case.run().bytes_per_s();
        for bound in &bounds {
            let broken = format!("{}: {rate:.0} of {:.0}", bound.name, bound.bytes_per_s);
            prop_assert!(rate <= bound.bytes_per_s * (1.0 + 1e-6), "{broken}; {}", rates(&bounds));
        }
    }
}

#[test]
fn the_last_command_need_not_wait_for_all_the_requests_that_it_counts_as() {
    // Each command of 64 KiB counts as four requests and delays the next command by the time of
    // four requests. The last command delays no command.
    let counted = [
        ("drive.counted_size", "16"),
        ("drive.request_credit", "50"),
        ("drive.sustained_requests_per_s", "700"),
    ];
    let system = named("cloud-gp-volume", &counted);
    let seed = 5_858_193_827_186_851_955;
    let load = Workload { pattern: Pattern::Random, seed, ..load(100, 64 << 10, 1, 1 << 20) };
    let case = Case { system, load, caching: Caching::Buffered };
    let bounds = bounds::of(&case.system, &case.shape());
    let rate = case.run().bytes_per_s();
    let paced = bounds.iter().find(|bound| bound.part == bounds::Part::Requests);
    let paced = paced.unwrap_or_else(|| panic!("no bound by requests: {}", rates(&bounds)));
    assert!(rate <= paced.bytes_per_s, "{rate:.0} of {}", rates(&bounds));
    // The bound assumes that the last command is as large as the read-ahead. Such a command counts
    // as 8 of the 64 requests, so the bound can exceed the rate by a factor of 64/56.
    assert!(rate > paced.bytes_per_s * 56.0 / 64.0, "{rate:.0} of {}", rates(&bounds));
}

#[test]
fn a_bound_by_cpu_has_the_cost_of_a_piece_of_a_volume_if_that_differs_from_a_cached_piece() {
    let split = [
        ("volume", "stripe"),
        ("disks", "4"),
        ("chunk", "16k"),
        ("host.piece", "5000"),
        ("host.volume_piece", "50"),
    ];
    let load = load(100, 64 << 10, 4, 16 << 20);
    let case = Case { system: named("nt4-ultrawide", &split), load, caching: Caching::Direct };
    let (bounds, rate) = (bounds::of(&case.system, &case.shape()), case.run().bytes_per_s());
    let least = bounds.iter().map(|bound| bound.bytes_per_s).fold(f64::MAX, f64::min);
    assert!(rate <= least, "{rate:.0} of {}", rates(&bounds));
}

fn tightest(system: System, load: Workload, caching: Caching) -> (Bound, f64) {
    let case = Case { system, load, caching };
    let shape = Shape { bytes: None, ..case.shape() };
    (bounds::of(&case.system, &shape)[0].clone(), case.run().bytes_per_s())
}

#[test]
fn the_tightest_bound_names_what_binds_and_the_run_comes_up_to_it() {
    let mib64 = 64 << 20;
    let stripe = [("volume", "stripe"), ("disks", "4")];
    // Consecutive requests are sent to the same drive. The drive's firmware time for queued reads
    // is set to 0, so that the CPU limits the rate and the drive does not.
    let buses = [("buses", "4"), ("drive.firmware_queued_read", "0")];
    let cases = [
        ("media", named(DISKS, &[]), load(100, 65536, 4, mib64)),
        ("a revolution for each write", named(DISKS, &[]), load(0, 8192, 1, mib64 / 8)),
        ("CPU", named(DISKS, &[&stripe[..], &buses].concat()), load(100, 2048, 32, mib64 / 8)),
        ("Ultra-Wide SCSI", named(DISKS, &stripe), load(100, 65536, 16, mib64)),
    ];
    for (name, system, load) in cases {
        let (bound, rate) = tightest(system, load, Caching::Direct);
        assert_eq!(bound.name, name);
        assert!(
            relative_difference(rate, bound.bytes_per_s) < 0.2,
            "{name}: {rate} of {}",
            bound.bytes_per_s
        );
    }
}

#[test]
fn the_bound_of_a_bus_is_that_of_its_own_rate() {
    let rate_of = |changes: &[(&str, &str)], op: Op, name: &str| {
        let stripe = [("disks", "4"), ("volume", "stripe")];
        let system = named("w2k-atlas10k", &[&stripe, changes].concat());
        let caching = Caching::Direct;
        let shape =
            Shape { op, random: false, request_bytes: 65536, depth: 8, caching, bytes: None };
        let bounds = bounds::of(&system, &shape);
        let found = bounds.iter().find(|bound| bound.name == name);
        found.unwrap_or_else(|| panic!("no {name}: {}", rates(&bounds))).bytes_per_s
    };
    let bus = "Ultra160 SCSI";
    let fast_links = [("links.0.read", "1000"), ("links.0.fixed", "0"), ("links.1.read", "1000")];
    let (slow, fast) = (rate_of(&[], Op::Read, bus), rate_of(&fast_links, Op::Read, bus));
    assert_eq!(slow, fast, "the bus bound depends on the rate of a link");
    assert!(rate_of(&[("bus.read", "320")], Op::Read, bus) > 1.2 * slow);

    // The bus waits for PCI, so a faster bus does not change this bound, but a faster PCI does.
    let paced = "Ultra160 SCSI at the pace of PCI";
    let usual = rate_of(&[], Op::Read, paced);
    assert!(usual < rate_of(&[], Op::Read, "PCI") && usual < slow, "{usual}");
    assert_eq!(usual, rate_of(&[("bus.read", "320")], Op::Read, paced));
    assert!(rate_of(&[("links.0.read", "120")], Op::Read, paced) > usual);
    rate_of(&[], Op::Write, "Ultra160 SCSI at the pace of SCSI adapter");
}

#[test]
fn an_array_that_may_not_hold_writes_waits_for_the_platter() {
    let array = [("raid_in", "array"), ("volume", "raid1"), ("disks", "2"), ("write_cache", "off")];
    let system = named(DISKS, &array);
    assert!(system.array.as_ref().is_some_and(|array| array.write_buffer.0 > 0.0));
    let (bound, rate) = tightest(system, load(0, 8192, 1, 8 << 20), Caching::Direct);
    assert_eq!(bound.name, "a revolution for each write");
    assert!(relative_difference(rate, bound.bytes_per_s) < 0.2, "{rate} of {}", bound.bytes_per_s);
}

#[test]
fn a_controller_that_reads_ahead_in_less_than_rows_is_within_its_bound() {
    // A request has twelve chunks. The bound assumes transfers of whole stripe rows (six chunks),
    // but the controller reads ahead four chunks at a time. The rate must still not exceed the
    // bound.
    let parts = Parts { flash: true, ..Parts::default() };
    let array = [("raid_in", "array"), ("volume", "stripe"), ("disks", "6"), ("chunk", "16k")];
    let system = changed(base_with(parts), &array);
    let (bytes, request) = (64 << 20, 192 * 1024);
    let case = Case { system, load: load(100, request, 1, bytes), caching: Caching::Direct };
    let bounds = bounds::of(&case.system, &case.shape());
    let rate = case.run().bytes_per_s();
    assert_eq!(bounds[0].name, "array controller");
    assert!(
        relative_difference(rate, bounds[0].bytes_per_s) < 0.1,
        "{rate:.0} of {}",
        rates(&bounds)
    );
    assert!(rate <= bounds[0].bytes_per_s, "{rate:.0} of {}", rates(&bounds));
}

#[test]
fn a_file_server_that_takes_one_write_at_a_time_binds() {
    let turns = "a file server takes one write at a time";
    let system = named("w2k-cifs-gigabit", &[]);
    let (bound, rate) = tightest(system, load(0, 8192, 8, 8 << 20), Caching::Direct);
    assert_eq!(bound.name, turns);
    assert!(relative_difference(rate, bound.bytes_per_s) < 0.05, "{rate} of {}", bound.bytes_per_s);
}
