//! Tests the subcommand `whatif`: the syntax of changes, the plan, and the errors.

use crate::fixture::Place;

#[test]
fn changes_are_written_as_simulate_takes_them() {
    let place = Place::new();
    let load = "whatif nt4-ultrawide --rw read --bs 64k --size 4m";
    let changed = |how: &str| place.document(&format!("{load} {how}"))["after"].clone();
    let once = changed("--set disks=2,volume=stripe");
    assert!(once["bytes_per_s"].as_f64().unwrap() > 10e6, "{once}");
    for how in ["--set disks=2 volume=stripe", "--set disks=2 --set volume=stripe"] {
        assert_eq!(changed(how), once, "{how}");
    }
    let given = changed("--given disks=2,volume=stripe --set disks=2");
    assert_eq!(given, once);
    // The unit of the cache size is MiB in this system file, and GiB in other system files.
    let plan = place.does(&format!("{load} --buffered --cache 64m --plan")).stdout;
    assert!(plan.contains("host.cache.size=64MiB"), "{plan}");
    let line = format!("{load} --set disks");
    place.cannot(&line).with_code(2).says("'disks' is not a change", "write KEY=VALUE");
}

#[test]
fn the_plan_names_both_sides_and_refuses_what_could_not_be_simulated() {
    let place = Place::new();
    let load = "whatif nt4-ultrawide --given caching=buffered --rw read --bs 8k --plan";
    let ended = place.does(&format!("{load} --iodepth-to 4 --set disks=2"));
    for words in
        ["caching=buffered, read 8 KiB, depth 1", "read 8 KiB, depth 4", "disks=2, iodepth=4"]
    {
        assert!(ended.stdout.contains(words), "{words}: {ended}");
    }
    assert!(place.listing().is_empty());
    for (wrong, cause, remedy) in [
        ("--set caching=direct --bs-to 1000", "not a multiple of 512", "use a multiple"),
        ("--size 1t --iodepth-to 2", "but the region ends at", "use a smaller --size"),
        ("--bs-to 1g --size 4m", "too small for a request", "a larger --size"),
    ] {
        place.cannot(&format!("{load} {wrong}")).with_code(2).says(cause, remedy);
    }
}
