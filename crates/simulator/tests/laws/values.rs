//! Tests that a system with impossible values is rejected, with a message that contains the key.
//! Also tests that bounds can be computed and simulations run for all accepted values.

use ioengine::{Caching, ErrorKind, Op};
use simulator::bounds::{self, Shape};
use simulator::{Description, Driver, System};

use crate::support::{DISKS, Parts, base_with, changed, named};

/// Returns the error message of a system with these changes. None if the system is accepted.
fn refusal(mut text: Description, changes: &str) -> Option<String> {
    for (key, value) in changes.split(' ').filter_map(|change| change.split_once('=')) {
        text.set(key, value).unwrap_or_else(|error| panic!("{error}"));
    }
    let error = text.system().err()?;
    assert_eq!(error.kind(), ErrorKind::Usage, "{changes}: {error}");
    Some(error.to_string())
}

#[test]
fn out_of_range_disk_values_are_refused_by_key() {
    let cases = [
        ("drive.rotation=1000000000000", "drive.rotation"),
        ("drive.rotation=0.001", "drive.rotation"),
        ("drive.rotation=0", "drive.rotation"),
        ("drive.spindle_spread=5", "drive.spindle_spread"),
        ("drive.spindle_spread=0.5", "drive.spindle_spread"),
        ("drive.segments=0.4", "drive.segments"),
        ("drive.segments=1e9", "drive.segments"),
        ("drive.heads=0.4", "drive.heads"),
        ("drive.heads=1e30", "drive.heads"),
        ("drive.heads=65537", "drive.heads"),
        ("drive.zones.0.0=9223372036854775807", "drive.zones"),
        ("drive.zones.0.1=9223372036854775807", "drive.zones"),
        ("drive.zones.0.1=0", "drive.zones"),
        ("drive.zones.0.0=100000000000", "drive.zones"),
        ("drive.track_skew=1e10", "drive.track_skew"),
        ("drive.cylinder_skew=1e10", "drive.cylinder_skew"),
        ("drive.seek.far_each=3600s", "drive.seek"),
        ("host.cpus=0.4", "host.cpus"),
        ("host.cpus=70000", "host.cpus"),
        ("host.max_transfer=0.0001", "host.max_transfer"),
        ("host.max_transfer=1B", "host.max_transfer"),
        ("host.cache.page=0.0001", "host.cache.page"),
        ("host.cache.page=1e6GB", "host.cache.page"),
        ("host.cache.read_ahead=0.0001", "host.cache.read_ahead"),
        ("host.cache.write_behind=0.0001", "host.cache.write_behind"),
        ("host.cache.write_frame=0.0001", "host.cache.write_frame"),
        ("host.issue_share=2", "host.issue_share"),
        ("host.direct_read.fixed=1e30us", "direct_read"),
        ("host.direct_write.uncharged=1.1", "host.direct_write.uncharged"),
        ("array.read_ahead=0.0001", "array.read_ahead"),
        ("links.0.read=1e-300", "read"),
        ("chunk=2g", "chunk"),
        ("disks=65537", "disks"),
        ("disks=65536 host.cpus=65536 hosts=65536", "hosts times host.cpus"),
        ("disks=2000 volume=raid5 failed=1", "at most 1024 disks"),
        ("chunk=1g file_at=0.9999", "file_at"),
        ("disks=65536 drive.zones.0.0=100000000", "drive.zones"),
    ];
    for (changes, key) in cases {
        let message = refusal(Description::named(DISKS).unwrap(), changes);
        let message = message.unwrap_or_else(|| panic!("{changes} is accepted"));
        assert!(message.contains(key) && !message.contains('\n'), "{changes}: {message}");
    }
}

#[test]
fn out_of_range_flash_and_network_values_are_refused_by_key() {
    let cases = [
        ("drive.units=0.4", "drive.units"),
        ("drive.units=1e9", "drive.units"),
        ("drive.units=65536 disks=65536", "disks times drive.units"),
        ("drive.unit_size=0.0001", "drive.unit_size"),
        ("drive.capacity=0.0000001", "file_at"),
        ("drive.capacity=8e9 disks=65536", "drive.capacity"),
        ("drive.requests_per_s=1e-300", "drive.requests_per_s"),
        ("drive.write_amplification=1e9", "drive.write_amplification"),
        ("drive.buffer=1 drive.drain=0", "drive.drain"),
        ("network.crossings=1e9", "network.crossings"),
        ("network.read_round_trips=1e9", "network.read_round_trips"),
        ("network.write_round_trips=1e9", "network.write_round_trips"),
        ("network.server_write.uncharged=2", "network.server_write.uncharged"),
    ];
    for (changes, key) in cases {
        let message =
            refusal(base_with(Parts { flash: true, uncached: true, network: true }), changes);
        let message = message.unwrap_or_else(|| panic!("{changes} is accepted"));
        assert!(message.contains(key) && !message.contains('\n'), "{changes}: {message}");
    }
}

#[test]
fn out_of_range_values_of_a_translation_layer_are_refused_by_key() {
    let cases = [
        ("drive.drain=100", "drive.drain"),
        ("drive.write_amplification=2", "drive.write_amplification"),
        ("drive.buffer=0", "drive.buffer"),
        ("drive.buffer=100KiB", "drive.buffer"),
        ("drive.unit_size=33KiB", "drive.unit_size"),
        ("drive.capacity=1MB", "drive.capacity"),
        ("drive.capacity=8e9", "drive.capacity"),
        ("disks=4096", "disks may have [drive.translation]"),
        ("drive.translation.map_unit=100B", "drive.translation.map_unit"),
        ("drive.translation.map_unit=0", "drive.translation.map_unit"),
        ("drive.translation.program=40KiB", "drive.translation.program"),
        ("drive.translation.block=100KiB", "drive.translation.block"),
        ("drive.translation.block=3GiB", "drive.translation.block"),
        ("drive.translation.block=30GiB", "drive.translation.block"),
        ("drive.translation.channels=0", "drive.translation.channels"),
        ("drive.translation.channels=64", "drive.translation.channels"),
        ("drive.translation.candidates=0", "drive.translation.candidates"),
        ("drive.translation.over_provisioning=0", "drive.translation.over_provisioning"),
        ("drive.translation.over_provisioning=20", "drive.translation.over_provisioning"),
        ("drive.translation.slc_cache=4TB", "drive.translation.slc_cache"),
    ];
    for (changes, key) in cases {
        let message = refusal(Description::named("nvme-ftl").unwrap(), changes);
        let message = message.unwrap_or_else(|| panic!("{changes} is accepted"));
        assert!(message.contains(key) && !message.contains('\n'), "{changes}: {message}");
    }
    let mut text = Description::named("nvme-ftl").unwrap();
    text.set("drive.translation.cleaning", "thorough").unwrap();
    let said = text.system().unwrap_err().to_string();
    assert!(said.contains("greedy") && said.contains("fifo"), "{said}");
}

/// Runs one request of each kind through an accepted system, for at most 2000 events.
fn works(system: &System, what: &str) {
    for caching in [Caching::Direct, Caching::Buffered] {
        for op in [Op::Read, Op::Write] {
            let shape =
                Shape { op, random: false, request_bytes: 65536, depth: 1, caching, bytes: None };
            let bounds = bounds::of(system, &shape);
            assert!(bounds.iter().all(|bound| bound.bytes_per_s >= 0.0), "{what}: {bounds:?}");
            let mut driver = Driver::new(system, caching, 1);
            driver.submit(0, 7, op, 0, 65536);
            let mut done = Vec::new();
            for _ in 0..2000 {
                let Some(next_ns) = driver.next_ns().filter(|_| done.is_empty()) else { break };
                driver.advance(next_ns, &mut done);
            }
        }
    }
}

#[test]
fn every_value_is_refused_or_works_whatever_it_is() {
    let whole = Parts { flash: true, uncached: true, network: true };
    let uncached = Parts { uncached: true, ..Parts::default() };
    let raid = [("disks", "3"), ("volume", "raid5"), ("raid_in", "array"), ("write_cache", "on")];
    let bases = [
        (Description::named(DISKS).unwrap(), &raid[..]),
        (base_with(whole), &[]),
        (base_with(uncached), &raid[..]),
        (Description::named("nvme-slc").unwrap(), &[("drive.translation.state", "empty")]),
    ];
    let (mut refused, mut accepted) = (0, 0);
    for (mut text, changes) in bases {
        changes.iter().for_each(|(key, value)| text.set(key, value).unwrap());
        for key in text.keys() {
            for value in ["0", "1e-300", "0.4", "1", "1e3", "1e6", "1e12", "1e18", "1e300"] {
                let mut changed = text.clone();
                changed.set(&key, value).unwrap();
                match changed.system() {
                    Ok(system) => works(&system, &format!("{key}={value}")),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Usage, "{error}"),
                }
                *if changed.system().is_ok() { &mut accepted } else { &mut refused } += 1;
            }
        }
    }
    assert!(refused > 500 && accepted > 500, "{refused} refused, {accepted} accepted");
}

#[test]
fn the_extremes_of_what_is_accepted_work() {
    let many = [("disks", "8192"), ("hosts", "8192"), ("buses", "8192")];
    works(&named(DISKS, &many), "many hosts");
    let raid5 = [("disks", "1024"), ("volume", "raid5"), ("failed", "1"), ("chunk", "48k")];
    works(&named(DISKS, &raid5), "a wide RAID 5");
    assert!(refusal(Description::named(DISKS).unwrap(), "drive.rotation=0.02").is_some());
    assert!(refusal(Description::named(DISKS).unwrap(), "drive.rotation=60").is_none());
    works(&named(DISKS, &[("drive.rotation", "6e7")]), "a fast spindle");
    works(&changed(base_with(Parts::default()), &[("host.max_transfer", "512B")]), "small pieces");
}
