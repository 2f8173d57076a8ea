//! Properties of many systems and loads: runs are reproducible, every request completes, and more
//! hardware is never slower.

use ioengine::Caching;
use proptest::prelude::*;
use simulator::geometry::Geometry;
use simulator::system::DriveModel;
use simulator::{Description, System};
use workload::{Pattern, Workload};

use crate::support::{
    DISKS, Parts, all, base_with, changed, load, named, relative_difference, run, threads,
};

const MIB: u64 = 1 << 20;

#[test]
fn runs_are_reproducible_and_a_seed_only_changes_rotational_positions() {
    let stripe = [("volume", "stripe"), ("disks", "3")];
    for system in [named(DISKS, &stripe), changed(base_with(Parts::default()), &[])] {
        for caching in [Caching::Direct, Caching::Buffered] {
            let mixed = Workload { read_percent: 50, ..load(50, 16384, 4, 8 * MIB) };
            let (one, two) = (run(&system, &mixed, caching), run(&system, &mixed, caching));
            assert_eq!(one.account, two.account);
            assert_eq!(one.elapsed_ns(), two.elapsed_ns());
        }
        let long = load(100, 65536, 4, 64 * MIB);
        let first = run(&system, &long, Caching::Direct).bytes_per_s();
        let other = run(&system, &Workload { seed: 7, ..long }, Caching::Direct).bytes_per_s();
        assert!(first != other && relative_difference(first, other) < 0.01, "{first} and {other}");
    }
}

#[test]
fn more_disks_and_more_buses_are_never_worse_for_a_stream() {
    for name in all() {
        // The depth is high enough to keep all devices busy. At a low depth, requests to idle
        // devices would wait on the bus behind other requests, because a bus serves commands and
        // data in FIFO order.
        for (op, depth) in [(100, 64), (0, 64)] {
            let rate = |disks: &str, buses: &str| {
                let one = [("volume", "stripe"), ("hosts", "1")];
                let setup = [&one[..], &[("disks", disks), ("buses", buses)]].concat();
                let mut text = Description::named(name).unwrap();
                setup.iter().for_each(|(key, value)| text.set(key, value).unwrap());
                // The buffer must hold the data of one revolution. The next test shows why.
                let buffer = text.value_of("drive.write_buffer");
                if buffer.is_some_and(|(value, unit)| unit == "KiB" && value < 512.0) {
                    text.set("drive.write_buffer", "512KiB").unwrap();
                }
                let stream = load(op, 65536, depth, 48 * MIB);
                run(&changed(text, &[]), &stream, Caching::Direct).bytes_per_s()
            };
            let rates: Vec<f64> =
                [("2", "1"), ("3", "1"), ("4", "1"), ("4", "2"), ("6", "2"), ("6", "3")]
                    .map(|(disks, buses)| rate(disks, buses))
                    .to_vec();
            for pair in rates.windows(2) {
                assert!(pair[1] > pair[0] * 0.95, "{name} {op}% depth {depth}: {rates:?}");
            }
        }
    }
}

#[test]
fn slow_cached_writes_miss_revolutions_unless_the_buffer_holds_one() {
    let rate = |buffer: &str| {
        let stripe = [("volume", "stripe"), ("disks", "3"), ("drive.write_buffer", buffer)];
        let stream = load(0, 65536, 32, 48 * MIB);
        run(&named("w2k-fireball-3ware", &stripe), &stream, Caching::Direct).bytes_per_s()
    };
    // The RAID card gives each of the three disks 14 MB/s, which is 155 kB per revolution. A buffer
    // of 128 KiB is smaller than this, and a buffer of 256 KiB is larger.
    let (short, enough) = (rate("128KiB"), rate("256KiB"));
    assert!(short < enough * 0.85, "{short} of {enough}");
    assert!(relative_difference(enough, 41.9e6) < 0.03, "{enough} of the card's 41.9 MB/s");
}

/// Runs typical loads. The function `run` checks each result.
fn run_usual_loads(system: &System, kibs: &[u32], depths: &[u32]) {
    let (sequential, random) = (Pattern::Sequential, Pattern::Random);
    let kinds = [
        (100, sequential),
        (0, sequential),
        (70, sequential),
        (100, random),
        (0, random),
        (50, random),
    ];
    for (kib, depth) in kibs.iter().flat_map(|kib| depths.iter().map(move |depth| (*kib, *depth))) {
        for (read_percent, pattern) in kinds {
            let bytes = u64::from(kib) * 1024 * u64::from(96 / kib).max(12);
            let usual = Workload { pattern, ..load(read_percent, kib * 1024, depth, bytes) };
            for caching in Caching::ALL {
                run(system, &usual, caching);
            }
        }
    }
}

#[test]
fn the_usual_loads_break_no_law_on_any_system() {
    for name in all().into_iter().filter(|name| *name != "rack") {
        run_usual_loads(&named(name, &[]), &[2, 8, 64, 1024], &[1, 8, 32]);
    }
    // Large loads on all thousand drives would need too much memory, so these loads run on 40
    // drives.
    let some = [("buses", "4"), ("hosts", "4"), ("disks", "40")];
    run_usual_loads(&named("rack", &some), &[2, 64, 1024], &[1, 8]);
    run_usual_loads(&named("rack", &[]), &[64], &[1]);
}

#[test]
fn every_key_of_every_system_can_be_set_to_what_it_is() {
    for name in all() {
        let original = Description::named(name).unwrap();
        for key in original.keys() {
            let mut text = original.clone();
            let (value, unit) = original.value_of(&key).unwrap();
            text.set(&key, &format!("{value}{unit}")).unwrap_or_else(|error| panic!("{error}"));
            text.system().unwrap_or_else(|error| panic!("{name} {key}: {error}"));
            text.set(&key, &value.to_string()).unwrap();
            assert_eq!(text.value_of(&key), Some((value, unit)), "{name} {key}");
        }
    }
}

#[test]
fn every_choice_of_a_setup_can_be_set_and_runs() {
    let choices = [
        "buses=2",
        "hosts=2",
        "volume=stripe",
        "volume=raid1",
        "volume=raid5",
        "raid_in=adapter",
        "raid_in=array",
        "chunk=16k",
        "misalign=12k",
        "mirror_reads=shortest",
        "mirror_reads=twinstor",
        "allocation=extend",
        "caching=buffered",
        "write_cache=on",
        "file_at=0.8",
        "file_size=50m",
        "path=driver",
    ];
    for uncached in [false, true] {
        let base = base_with(Parts { uncached, ..Parts::default() });
        for choice in choices {
            let (key, value) = choice.split_once('=').unwrap();
            let system = changed(base.clone(), &[("disks", "4"), (key, value)]);
            run(&system, &load(50, 16384, 4, 2 * MIB), Caching::Direct);
            run(&system, &load(50, 16384, 4, 2 * MIB), Caching::Buffered);
        }
    }
}

#[test]
fn a_rebuild_works_beside_the_program_and_ends_with_it() {
    for (volume, disks) in [("raid1", "2"), ("raid5", "4")] {
        let setup = [("volume", volume), ("disks", disks), ("failed", "1")];
        let degraded = named(DISKS, &setup);
        let rebuilding = named(DISKS, &[&setup[..], &[("rebuilding", "on")]].concat());
        let reads = Workload { pattern: Pattern::Random, ..load(100, 8192, 2, 4 * MIB) };
        let alone = run(&degraded, &reads, Caching::Direct);
        let beside = run(&rebuilding, &reads, Caching::Direct);
        assert!(beside.bytes_per_s() < alone.bytes_per_s() * 0.95, "{volume}: no cost");
        assert_eq!(alone.account.device_bytes[1], 0);
        assert!(beside.account.device_bytes[1] > 0, "{volume}: nothing is rebuilt");
        run(&rebuilding, &load(0, 8192, 2, MIB), Caching::Buffered);
    }
}

#[test]
fn an_array_without_a_volume_leaves_the_devices_on_their_buses() {
    let plain = named(DISKS, &[("disks", "4"), ("buses", "2")]);
    let array = named(DISKS, &[("disks", "4"), ("buses", "2"), ("raid_in", "array")]);
    assert_eq!((plain.buses(), array.buses()), (2, 2));
    let stream = load(100, 65536, 4, 8 * MIB);
    let [plain, array] = [plain, array].map(|system| run(&system, &stream, Caching::Direct));
    assert_eq!(plain.elapsed_ns(), array.elapsed_ns());
}

#[test]
fn a_rebuild_of_nothing_is_refused() {
    let mut text = Description::named(DISKS).unwrap();
    text.set("rebuilding", "on").unwrap();
    assert!(text.system().unwrap_err().to_string().contains("failed=1"));
}

#[test]
fn a_request_larger_than_the_cache_comes_back() {
    let system = named(DISKS, &[("host.cache.size", "1MiB"), ("host.cache.dirty_limit", "1MiB")]);
    run(&system, &load(100, 4 << 20, 1, 16 * MIB), Caching::Buffered);
    run(&system, &load(0, 4 << 20, 2, 16 * MIB), Caching::Buffered);
}

#[test]
fn a_file_can_be_read_to_the_end_of_its_devices() {
    let end = [("file_at", "0.9995"), ("misalign", "1k"), ("volume", "stripe"), ("disks", "2")];
    let system = named(DISKS, &end);
    let DriveModel::Disk(disk) = &system.drive else { panic!("no disk") };
    let device = Geometry::new(disk, 1.0).bytes();
    let base = (device as f64 * system.setup.file_at) as u64 / 65536 * 65536;
    let bytes = (device - base) / 65536 * 65536 * 2 - 1024;
    for caching in [Caching::Direct, Caching::Buffered] {
        let ran = run(&system, &load(100, 1024, 1, bytes), caching);
        let [read, _] = ran.account.device_bytes;
        assert!((bytes..=bytes + 4096).contains(&read), "{read} of {bytes} {caching:?}");
    }
}

#[test]
fn writers_that_wait_for_the_cache_to_empty_do_not_wait_for_ever() {
    for kib in [60, 100, 1020, 1000] {
        let system = named(DISKS, &[("host.cache.dirty_limit", "1MiB")]);
        run(&system, &load(0, kib * 1024, 2, 20 * MIB), Caching::Buffered);
    }
}

#[test]
fn a_cached_read_waits_for_its_own_bytes_whatever_the_lazy_writer_does_meanwhile() {
    // The cache is so small that no read finds its data there.
    let small = [("host.cache.size", "64KiB"), ("host.cache.first_delay", "0")];
    let system = named(DISKS, &[&small[..], &[("write_cache", "on")]].concat());
    let mix = Workload { pattern: Pattern::Random, ..load(50, 4096, 1, 64 * MIB) };
    let mix = Workload { limit_bytes: Some(16 * MIB), ..mix };
    let ran = run(&system, &mix, Caching::Buffered);
    let soonest_ns = ran.sample.operations[0].latency.quantile(0.02);
    // Each read needs a seek, so it takes longer than a cached write that happens meanwhile.
    assert!(soonest_ns.is_some_and(|ns| ns > 2_000_000), "{soonest_ns:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_request_of_a_mix_comes_back(
        read_percent in 1..100_u8, kib in prop::sample::select(vec![1_u32, 2, 4, 12, 64, 200]),
        depth in 1..9_u32, workers in 1..4_u32, mode in 0..4_usize, random in any::<bool>(),
        shared in any::<bool>(), seed in any::<u64>(),
        volume in prop::sample::select(vec!["none", "stripe", "raid1", "raid5"]),
        other in prop::sample::select(vec![
            "write_cache=on", "failed=1", "allocation=extend", "mirror_reads=twinstor",
            "path=driver", "drive.retained=128", "drive.schedule=look",
            "drive.schedule=fcfs", "misalign=1k",
        ]),
    ) {
        let (key, value) = other.split_once('=').unwrap();
        let mut text = Description::named(DISKS).unwrap();
        for (key, value) in [("disks", "4"), ("buses", "2"), ("volume", volume)] {
            text.set(key, value).unwrap();
        }
        let plain = text.system().unwrap();
        text.set(key, value).unwrap();
        let system = text.system().unwrap_or(plain);
        let size = u64::from(kib) * 1024;
        let mix = load(read_percent, kib * 1024, depth, size * u64::from(workers) * 100);
        let pattern = if random { Pattern::Random } else { Pattern::Sequential };
        let mix = threads(Workload { pattern, seed, ..mix }, workers);
        let placement = if shared { workload::Placement::Shared } else { mix.placement };
        // The region is small, so that data are read and rewritten repeatedly.
        let region_bytes = mix.region_bytes / 4;
        run(&system, &Workload { placement, region_bytes, ..mix }, Caching::ALL[mode]);
    }
}
