//! Fuzz target for system files and changes to them: accepted systems can be built and simulated,
//! and system files round-trip.

use std::fmt::Write;

use crate::simulated::caching_of;
use ioengine::Op;
use simulator::bounds::{self, Shape};
use simulator::{Description, Driver, System};

/// Maximum number of disks of a system that is built here.
const DISKS_BUILT: u32 = 64;
/// Maximum number of events simulated for one request.
const EVENTS_MAX: usize = 2000;

/// The first line names a built-in system and the others change it; or all lines are a system
/// file.
pub fn system(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let named = Description::named(lines.next().unwrap_or_default().trim());
    let (mut description, changes) = match named {
        Ok(description) => (description, lines),
        Err(_) => match Description::read(&text, "system.toml") {
            Ok(description) => (description, "".lines()),
            Err(refused) => return assert!(!refused.to_string().contains('\n'), "{refused}"),
        },
    };
    for (key, value) in changes.filter_map(|line| line.split_once('=')) {
        let before = description.keys();
        if let Err(refused) = description.set(key, value) {
            assert!(refused.to_string().contains(key), "{refused}");
        }
        assert_eq!(description.keys(), before, "a change adds and removes nothing");
    }
    read_again(&description);
    if let Ok(system) = description.system() {
        work(&system, data.first().copied().unwrap_or(0));
    }
}

fn read_again(description: &Description) {
    let text = description.text();
    let again = Description::read(&text, "again").expect("what was written can be read");
    assert_eq!(again.text(), text);
    let seen = |of: &Description| {
        let line = |text: &mut String, key: String| {
            let _ = write!(text, "{key} {:?} ", of.value_of(&key));
        };
        of.keys().into_iter().fold(String::new(), |mut text, key| {
            line(&mut text, key);
            text
        })
    };
    assert_eq!(seen(&again), seen(description));
}

/// Builds an accepted system and simulates one request, up to a limit of events.
fn work(system: &System, choice: u8) {
    if system.setup.disks > DISKS_BUILT {
        return;
    }
    let op = [Op::Read, Op::Write][usize::from(choice & 1)];
    let caching = caching_of(system);
    let request_bytes = 4096;
    let shape =
        Shape { op, random: choice & 2 != 0, request_bytes, depth: 1, caching, bytes: None };
    let bounds = bounds::of(system, &shape);
    assert!(bounds.iter().all(|bound| bound.bytes_per_s >= 0.0), "{bounds:?}");
    let mut driver = Driver::new(system, caching, 1);
    if driver.most_bytes() < u64::from(request_bytes) {
        return;
    }
    driver.submit(0, 7, op, 0, request_bytes);
    let mut done = Vec::new();
    for _ in 0..EVENTS_MAX {
        let Some(next_ns) = driver.next_ns().filter(|_| done.is_empty()) else { break };
        driver.advance(next_ns, &mut done);
    }
    assert!(done.len() <= 1 && driver.in_flight() as usize + done.len() == 1);
}
