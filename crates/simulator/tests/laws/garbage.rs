//! Tests the cost of garbage collection and of the SLC cache in systems with a translation layer.

use ioengine::{Caching, Op};
use simulator::{Account, Driver, Resource, System};
use workload::{Distribution, Pattern, Workload, Zone};

use crate::support::{RunResult, load, named, relative_difference, run};

const MIB: u64 = 1 << 20;

/// A small device with 28% over-provisioning. Only its dies limit writes.
const SMALL: [(&str, &str); 8] = [
    ("drive.capacity", "1GiB"),
    ("drive.units", "8"),
    ("drive.buffer", "4MiB"),
    ("drive.read_rate", "0"),
    ("drive.write_rate", "0"),
    ("drive.translation.channels", "8"),
    ("drive.translation.block", "1.5MiB"),
    ("host.direct_write.fixed", "0"),
];

fn small(changes: &[(&str, &str)]) -> System {
    let all = [&SMALL[..], changes].concat();
    named("nvme-ftl", &all)
}

/// Changes a load so that its offsets are drawn independently and uniformly from the first
/// `region_bytes`.
fn draws(load: Workload, region_bytes: u64) -> Workload {
    let all = Zone { access_percent: 100, region_percent: 100 };
    let distribution = Distribution::Zoned(vec![all]);
    Workload { pattern: Pattern::Random, distribution, region_bytes, ..load }
}

/// Returns random writes of 4 KiB to the whole small device.
fn random_writes(bytes: u64) -> Workload {
    draws(load(0, 4096, 32, bytes), 1 << 30)
}

fn dies(account: &Account) -> &Resource {
    account.resources.iter().find(|part| part.name == "flash units").expect("the device is flash")
}

fn amplification(ran: &RunResult) -> f64 {
    ran.account.write_cost().expect("the run has written").write_amplification
}

/// Returns the share of the dies' busy time that one phase takes.
fn phase(account: &Account, name: &str) -> f64 {
    let dies = dies(account);
    let found = dies.phases_ns.iter().find(|(phase, _)| *phase == name);
    found.expect("the phase exists").1 as f64 / dies.busy_ns as f64
}

/// Returns the write amplification A of first-in, first-out garbage collection. A is the fixed
/// point of A = 1 / (1 - e^(-alpha / A)).
fn fifo(alpha: f64) -> f64 {
    (0..10_000).fold(3.0_f64, |found, _| 1.0 / (1.0 - (-alpha / found).exp()))
}

#[test]
fn random_writes_run_at_the_rate_that_their_amplification_leaves() {
    let cases = [("greedy", "0.28", 0.03), ("fifo", "0.28", 0.03), ("fifo", "0.12", 0.04)];
    for (cleaning, spare, tolerance) in cases {
        let changes = [
            ("drive.translation.cleaning", cleaning),
            ("drive.translation.over_provisioning", spare),
        ];
        let system = small(&changes);
        let ran = run(&system, &random_writes(4 << 30), Caching::Direct);
        let spare: f64 = spare.parse().unwrap();
        // With blocks of 512 slots, the write amplification of greedy garbage collection differs by
        // less than 1% from that of first-in, first-out garbage collection.
        let wanted = fifo(1.0 + spare);
        let found = amplification(&ran);
        let what = format!("{changes:?}: {found} where {wanted} was expected");
        assert!(relative_difference(found, wanted) < tolerance, "{what}");
        // Each byte is programmed `found` times, and read and moved `found - 1` times.
        let program_ns = 561e3 + 98304.0 / 1.2;
        let valid = 1.0 - 1.0 / found;
        let pages_per_unit = (1.0 - (1.0 - valid).powi(8)) / (8.0 * valid);
        let each_ns = found * program_ns / 98304.0
            + (found - 1.0) * pages_per_unit * 50e3 / 4096.0
            + found * 3.8e6 / (1.5 * MIB as f64);
        let rate = 8.0 * 1e9 / each_ns;
        let what = format!("{changes:?}: {} where {rate} was expected", ran.bytes_per_s());
        assert!(relative_difference(ran.bytes_per_s(), rate) < 0.03, "{what}");
        let most = ran.account.write_cost().unwrap().most_bytes_per_s;
        assert!(relative_difference(most, rate) < 0.03, "{most} where {rate} was expected");
        let binding = ran.account.binding();
        assert_eq!(binding.resource, "flash units", "{binding:?}");
        assert!(phase(&ran.account, "garbage collection") > 0.5, "{:?}", dies(&ran.account));
    }
}

#[test]
fn a_device_that_was_never_written_writes_as_fast_as_its_dies_program() {
    let system = small(&[("drive.translation.state", "empty")]);
    let ran = run(&system, &random_writes(256 * MIB), Caching::Direct);
    let rate = 8.0 * 98304.0 * 1e9 / (561e3 + 98304.0 / 1.2);
    // When the run ends, the last 4 MiB are still in the buffer, so the dies have programmed only
    // 252 of the 256 MiB.
    let difference = relative_difference(ran.bytes_per_s(), rate * 256.0 / 252.0);
    assert!(difference < 0.01, "{} where {rate} was expected", ran.bytes_per_s());
    assert_eq!(amplification(&ran), 1.0);
    let reads = draws(load(100, 4096, 1, 4 * MIB), 1 << 30);
    let read = run(&system, &reads, Caching::Direct);
    assert_eq!(dies(&read.account).busy_ns, 0, "reads of unwritten data need no flash");
}

#[test]
fn sequential_writes_cost_nothing_more_once_they_have_passed_the_whole_device() {
    let system = small(&[("drive.translation.state", "filled")]);
    let writes = Workload { limit_bytes: Some(3 << 30), ..load(0, 131_072, 8, 1 << 30) };
    let ran = run(&system, &writes, Caching::Direct);
    assert!(amplification(&ran) < 1.001, "{}", amplification(&ran));
    assert!(phase(&ran.account, "erase") > 0.03, "blocks are still erased");
}

#[test]
fn reads_wait_for_writes_less_if_the_device_can_suspend() {
    // Half of the requests are writes, which the buffer accepts immediately.
    let mean_ns = |changes: &[(&str, &str)], read_percent: u8| {
        let mixed = draws(load(read_percent, 4096, 4, 128 * MIB), 1 << 30);
        run(&small(changes), &mixed, Caching::Direct).account.mean_residence_ns
    };
    let [suspends, filled] =
        [[("drive.translation.suspend", "20")], [("drive.translation.state", "filled")]];
    let (alone, written) = (mean_ns(&[], 100), mean_ns(&[], 0));
    let reads_ns = |changes| 2.0 * mean_ns(changes, 50) - written.min(20e3);
    let (mixed, suspended, fresh) = (reads_ns(&[]), reads_ns(&suspends), reads_ns(&filled));
    assert!(mixed > 1.5 * alone, "reads wait for programs: {mixed} beside writes, {alone} alone");
    assert!(suspended < 0.75 * mixed, "{suspended} instead of {mixed}");
    assert!(fresh < 0.9 * mixed, "{fresh} without garbage collection, {mixed} with it");
}

#[test]
fn a_drive_with_published_parameters_is_as_fast_as_its_data_sheet_says() {
    // NVMeVirt fitted these parameters to a Samsung 970 PRO of 512 GB (ssd_config.h,
    // SAMSUNG_970PRO). The other parameters have no effect here, because the writes fit into free
    // blocks.
    let parameters = [
        ("drive.capacity", "512GB"),
        ("drive.units", "16"),
        ("drive.unit_size", "32KiB"),
        ("drive.unit_read", "36.013"),
        ("drive.unit_write", "185"),
        ("drive.fixed_read", "30.49"),
        ("drive.fixed_write", "4"),
        ("drive.read_rate", "3360"),
        ("drive.write_rate", "3360"),
        ("drive.buffer", "1MiB"),
        ("drive.translation.channels", "8"),
        ("drive.translation.channel_rate", "800"),
        ("drive.translation.program", "32KiB"),
        ("drive.translation.block", "32MiB"),
        ("drive.translation.over_provisioning", "0.07"),
        ("drive.translation.state", "filled"),
    ];
    let system = named("nvme-ftl", &parameters);
    // The data sheet gives 3,500 MB/s for sequential reads and 2,300 MB/s for sequential writes.
    for (read_percent, published) in [(100, 3500e6), (0, 2300e6)] {
        let ran = run(&system, &load(read_percent, 131_072, 32, 2 << 30), Caching::Direct);
        let rate = ran.bytes_per_s();
        assert!(relative_difference(rate, published) < 0.05, "{rate}, published {published}");
    }
}

/// Returns a device with an SLC cache of 128 MiB and no garbage collection.
fn cached(changes: &[(&str, &str)]) -> System {
    let own = [
        ("drive.translation.state", "empty"),
        ("drive.translation.slc_cache", "0.125GiB"),
        ("drive.translation.slc_program", "200"),
        ("drive.translation.slc_idle", "10"),
        ("drive.translation.program", "32KiB"),
        ("drive.unit_write", "500"),
    ];
    small(&[&own[..], changes].concat())
}

#[test]
fn writes_slow_down_when_the_slc_cache_is_full() {
    let rate = |system: &System, bytes: u64| {
        let writes = load(0, 131_072, 8, bytes);
        let ran = run(system, &writes, Caching::Direct);
        (ran.elapsed_ns() as f64, ran)
    };
    let transfer_ns = 32768.0 / 1.2;
    let slc = 8.0 * 32768.0 * 1e9 / (200e3 + transfer_ns);
    let direct = 8.0 * 32768.0 * 1e9 / (500e3 + transfer_ns);
    let system = cached(&[]);
    let (first_ns, first) = rate(&system, 100 * MIB);
    let wanted_ns = 96.0 * MIB as f64 * 1e9 / slc;
    assert!(relative_difference(first_ns, wanted_ns) < 0.02, "{first_ns} not {wanted_ns}");
    assert_eq!(amplification(&first), 1.0, "nothing was folded yet");
    // When the cache is full, data are written directly to the blocks.
    let (all_ns, _) = rate(&system, 600 * MIB);
    let wanted_ns = (128.0 / slc + 468.0 / direct) * MIB as f64 * 1e9;
    assert!(relative_difference(all_ns, wanted_ns) < 0.03, "{all_ns} not {wanted_ns}");
    // With `slc_full=fold`, all data pass through the cache, so the cache must be emptied while it
    // is filled.
    let (folds_ns, folds) = rate(&cached(&[("drive.translation.slc_full", "fold")]), 600 * MIB);
    let fold_ns = (50e3 + transfer_ns + 500e3 + transfer_ns) / (8.0 * 32768.0);
    let wanted_ns = (596.0 / slc * 1e9 + 468.0 * fold_ns) * MIB as f64;
    assert!(relative_difference(folds_ns, wanted_ns) < 0.03, "{folds_ns} not {wanted_ns}");
    let wanted = 1.0 + 468.0 / 596.0;
    assert!(relative_difference(amplification(&folds), wanted) < 0.02, "{}", amplification(&folds));
}

#[test]
fn the_slc_cache_is_emptied_while_the_device_is_idle() {
    // Repeated bursts of 64 MiB fit into the cache only if the cache is emptied between them.
    let burst_ns = |pause_ns: u64| {
        let mut driver = Driver::new(&cached(&[]), Caching::Direct, 1);
        let (mut now_ns, mut last, mut done) = (0, 0, Vec::new());
        for burst in 0..6_u64 {
            let begun_ns = now_ns;
            for number in 0..512 {
                let at = burst * 64 * MIB + number * 131_072;
                driver.submit(now_ns, number as u32, Op::Write, at, 131_072);
            }
            while done.len() < 512 {
                now_ns = driver.next_ns().expect("writes are in flight");
                driver.advance(now_ns, &mut done);
            }
            done.clear();
            last = now_ns - begun_ns;
            now_ns += pause_ns;
        }
        last
    };
    let (short, long) = (burst_ns(1_000_000), burst_ns(1_000_000_000));
    assert!(short > long + long / 20, "{short} ns after short pauses, {long} ns after long ones");
}
