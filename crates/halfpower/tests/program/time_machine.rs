//! Tests simulated systems that are mounted as real files, in real time.
//!
//! Unit tests in virtual time and `cargo xtask time-machine` check exact results. These tests
//! compare results with wide margins, because other tests run at the same time.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ioengine::{Caching, Op};
use simulator::{Description, Driver};

use crate::fixture::{Place, measure_until, or_skip, pause, wait_until};
use crate::known_truth::{Served, requests_per_s};

const MIB: u64 = 1 << 20;

/// Returns the rate of sequential 64 KiB reads at depth 1 in virtual time (requests per second).
fn simulated_requests_per_s() -> f64 {
    let system = Description::named("nt4-ultrawide").unwrap().system().unwrap();
    let mut driver = Driver::new(&system, Caching::Direct, 42);
    let (mut now_ns, mut done) = (0, Vec::new());
    for tag in 0..160 {
        driver.submit(now_ns, tag, Op::Read, u64::from(tag) * 65536, 65536);
        while std::mem::take(&mut done).is_empty() {
            now_ns = driver.next_ns().unwrap();
            driver.advance(now_ns, &mut done);
        }
    }
    160.0 * 1e9 / now_ns as f64
}

/// Returns the rate of 4 KiB writes at depth 1 on a system that is mounted with these flags.
fn writes_per_s(words: &str) -> Result<f64, String> {
    let mut served = Served::of(&format!("sim:nt4-ultrawide mounted {words}"))?;
    let line = "run mounted/device --overwrite=mounted/device --rw write --bs 4k --runtime 1";
    let document = served.place.document(&format!("{line} --trials 1 --no-store"));
    served.ends();
    Ok(requests_per_s(&document))
}

#[test]
fn a_program_sees_the_rate_of_the_simulated_disk() {
    let served = or_skip!(Served::of("sim:nt4-ultrawide mounted"));
    let device = served.place.path("mounted/device");
    assert_eq!(fs::metadata(device).unwrap().len(), 100 * MIB, "not the file size of the system");
    let line = "run mounted/device --bs 64k --runtime 2 --trials 1 --no-store";
    let simulated = simulated_requests_per_s();
    // Other programs can only make the disk slower. The measurement is therefore repeated only if
    // the rate is too low.
    let is_near = |real: &f64| real / simulated > 0.75;
    let real = measure_until(|| requests_per_s(&served.place.document(line)), is_near);
    assert!((0.75..1.25).contains(&(real / simulated)), "{real} {simulated}");
}

#[test]
fn time_passes_as_fast_as_it_is_told_and_a_value_may_be_changed() {
    // Each write waits for a revolution of 8.3 ms.
    or_skip!(writes_per_s(""));
    for (words, ratios) in [("--speed 8", 4.0..10.0), ("--set drive.rotation=1800", 0.2..0.4)] {
        let ratio = || writes_per_s(words).unwrap() / writes_per_s("").unwrap();
        let ratio = measure_until(ratio, |ratio| ratios.contains(ratio));
        assert!(ratios.contains(&ratio), "{words}: {ratio}");
    }
}

#[test]
fn an_order_to_stop_unmounts_also_under_a_reader() {
    let mut served = or_skip!(Served::of("sim:nt4-ultrawide mounted"));
    let device = File::open(served.place.path("mounted/device")).unwrap();
    let read = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&read);
    let reader = std::thread::spawn(move || {
        let mut buffer = vec![0; 65536];
        // The reader ends when the device is removed.
        while device.read_at(&mut buffer, count.load(Ordering::Relaxed) % 1024 * 65536).is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    wait_until("it reads", || read.load(Ordering::Relaxed) > 5);
    let server = served.server.take().unwrap();
    server.signal("TERM");
    server.ended().with_code(0);
    assert_eq!(fs::read_dir(served.place.path("mounted")).unwrap().count(), 0);
    reader.join().unwrap();
}

#[test]
fn a_second_order_leaves_no_mount_behind() {
    let mut served = or_skip!(Served::of("sim:nt4-ultrawide mounted"));
    let _busy = File::open(served.place.path("mounted/device")).unwrap();
    let server = served.server.take().unwrap();
    server.signal("INT");
    let folder = served.place.path("mounted");
    wait_until("the device is no longer visible", || {
        fs::read_dir(&folder).is_ok_and(|entries| entries.count() == 0)
    });
    // The server waits, because the file is still open.
    pause(100);
    server.signal("INT");
    server.ended();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn orders_to_stop_in_quick_succession_leave_no_mount_behind() {
    for milliseconds in [0, 1, 2, 4, 8] {
        let mut served = or_skip!(Served::of("truth:fixed=1ms mounted --size 1m"));
        let server = served.server.take().unwrap();
        server.signal("INT");
        pause(milliseconds);
        server.signal("INT");
        server.signal("TERM");
        server.ended().with_code(0);
        assert_eq!(fs::read_dir(served.place.path("mounted")).unwrap().count(), 0);
        assert_eq!(served.place.journal(), [""; 0]);
    }
}

#[test]
fn what_a_killed_server_left_mounted_is_named_and_taken_away_by_clean() {
    let mut served = or_skip!(Served::of("truth:fixed=1ms mounted --size 1m"));
    let clean = || served.place.does("clean");
    assert!(clean().stdout.contains("in use"), "the mount is in use");
    let server = served.server.take().unwrap();
    server.signal("KILL");
    server.ended();
    let again = served.place.halfpower("mount truth:fixed=1ms mounted").with_code(1);
    again.says("left its mount there", "fusermount3 -u mounted");
    let plan = served.place.does("clean --plan");
    assert!(plan.stdout.contains("unmount") && served.place.path("mounted/x").metadata().is_err());
    let ended = served.place.does("clean");
    assert!(ended.stdout.contains("unmounted"), "{ended}");
    assert_eq!(fs::read_dir(served.place.path("mounted")).unwrap().count(), 0);
    assert!(served.place.does("clean").stdout.contains("nothing to clean"));
    assert_eq!(served.place.journal(), [""; 0]);
}

#[test]
fn what_would_be_served_is_said_and_what_cannot_be_refused() {
    let place = Place::new();
    let plan = place.does("mount sim:nt4-ultrawide,disks=2,volume=stripe . --speed 10 --plan");
    assert!(plan.stdout.contains("100 MiB, nt4-ultrawide: "), "{plan}");
    assert!(plan.stdout.contains("speed 10"), "{plan}");
    place.cannot("mount sim:nt5 .").with_code(2).says("'nt5'", "nt4-ultrawide");
    place.cannot("mount sim:nt4-ultrawide,disk=2 .").with_code(2).says("disk", "disks");
    place.halfpower("mount sim:nt4-ultrawide . --speed 0").with_code(2).says("0.001", "1000");
    place.cannot("mount truth:fixed=1ms . --speed 2").with_code(2).says("--speed", "sim:");
    place
        .cannot("mount sim:nt4-ultrawide . --size 1t")
        .with_code(2)
        .says("the capacity of nt4-ultrawide", "add disks");
}
