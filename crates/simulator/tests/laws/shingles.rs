//! Compares shingled disks with closed forms: bursts that fit into the media cache, the sustained
//! rate of random writes, and writes that need no cleaning.

use ioengine::Caching;
use simulator::System;
use workload::{Distribution, Pattern, Think, Workload, Zone};

use crate::support::{RunResult, load, named, run};

const MIB: u64 = 1 << 20;
const BAND: u64 = 16 * MIB;
const ENTRIES: u64 = 512;
const BANDS: u64 = 128;
const EXTENT_READ_NS: f64 = 7.3e6;

/// Returns a disk whose map has few entries and whose write buffer keeps the order of the writes.
fn disk() -> System {
    let entries = ENTRIES.to_string();
    let changes = [
        ("drive.shingled.media_cache", "64MiB"),
        ("drive.shingled.entries", entries.as_str()),
        ("drive.shingled.band", "16MiB"),
        ("drive.shingled.extent_read", "7.3ms"),
        ("drive.write_entries", "1"),
        ("drive.spindle_spread", "0"),
    ];
    named("sata-smr-5900", &changes)
}

/// Returns random writes of 4 KiB to `BANDS` bands. The offsets are drawn independently.
fn writes(count: u64) -> Workload {
    let all = vec![Zone { access_percent: 100, region_percent: 100 }];
    Workload {
        pattern: Pattern::Random,
        distribution: Distribution::Zoned(all),
        region_bytes: BANDS * BAND,
        ..load(0, 4096, 1, count * 4096)
    }
}

/// Returns the time spent on cleaning bands, and the time for which the media worked in the
/// background (ns).
fn cleaning_ns(ran: &RunResult) -> (u64, u64) {
    let media = ran.account.resources.iter().find(|resource| resource.name == "media");
    let media = media.expect("a disk has media");
    let clean = media.phases_ns.iter().find(|(name, _)| *name == "clean bands");
    (clean.map_or(0, |(_, ns)| *ns), media.background_ns)
}

#[test]
fn random_writes_need_no_cleaning_until_the_media_cache_is_full() {
    let burst = run(&disk(), &writes(ENTRIES - 4), Caching::Direct);
    assert_eq!(cleaning_ns(&burst).0, 0);
    let more = run(&disk(), &writes(2 * ENTRIES), Caching::Direct);
    assert!(cleaning_ns(&more).0 > 0);
}

#[test]
fn the_sustained_rate_of_random_writes_is_that_of_the_cleaning() {
    // With N map entries and B bands, the disk cleans one band after every r + sqrt(r^2 + 1)
    // writes, where r = N / B. To clean a band, the disk reads the band and its extents, and writes
    // the band. The arm is positioned three times: to read, to write, and for the next write to the
    // cache. Each time, positioning takes a short seek and half a turn on average. Reading an
    // extent takes less than a whole turn.
    let [few, many] = [3000, 9000].map(|count| run(&disk(), &writes(count), Caching::Direct));
    let found_ns = (many.elapsed_ns() - few.elapsed_ns()) as f64 / 6000.0;
    let r = ENTRIES as f64 / BANDS as f64;
    let writes = r + (r * r + 1.0).sqrt();
    let turn_ns = 60e9 / 5900.0;
    // A track has 3,900 sectors. The change to the next head takes another tenth of a turn.
    let band_ns = BAND as f64 / (3900.0 * 512.0) * turn_ns * 1.1;
    let (seek_ns, settle_ns, firmware_ns) = (0.79e6, 0.5e6, 0.1e6);
    let position_ns = 3.0 * (seek_ns + firmware_ns + turn_ns / 2.0) + 2.0 * settle_ns;
    let wanted_ns = (2.0 * band_ns + position_ns) / writes + EXTENT_READ_NS;
    assert!((found_ns / wanted_ns - 1.0).abs() < 0.05, "{found_ns} of {wanted_ns}");
}

#[test]
fn sequential_writes_need_no_cleaning_and_go_at_the_rate_of_the_media() {
    let sequential = load(0, 65_536, 4, 64 * BAND);
    let shingled = run(&disk(), &sequential, Caching::Direct);
    assert_eq!(cleaning_ns(&shingled).0, 0);
    let changes = [("drive.rotation", "5900"), ("drive.spindle_spread", "0")];
    let plain = run(&named("sata-hdd-7200", &changes), &sequential, Caching::Direct);
    let ratio = shingled.bytes_per_s() / plain.bytes_per_s();
    assert!((0.95..1.05).contains(&ratio), "{ratio}");
}

#[test]
fn bands_are_cleaned_in_pauses_so_that_no_write_waits() {
    let paused = Workload {
        think: Some(Think { pause_ns: 30_000_000_000, requests: 16 }),
        ..writes(4 * ENTRIES)
    };
    let ran = run(&disk(), &paused, Caching::Direct);
    let (clean_ns, background_ns) = cleaning_ns(&ran);
    assert!(clean_ns > 0 && background_ns >= clean_ns, "{clean_ns} of {background_ns}");
    let binding = ran.account.binding();
    assert!(binding.resource == "latency" && binding.utilisation < 0.1, "{binding:?}");
}

#[test]
fn media_that_clean_bands_while_writes_wait_are_the_limit() {
    // A cleaning that starts while the buffer still has room delays the writes that arrive when the
    // buffer is full. The media must then be reported as the bottleneck.
    let system = named("sata-smr-5900", &[("drive.shingled.entries", "512")]);
    let binding = run(&system, &writes(4 * ENTRIES), Caching::Direct).account.binding();
    assert_eq!(binding.resource, "media", "{binding:?}");
    assert!(binding.utilisation > 0.9, "{binding:?}");
}
