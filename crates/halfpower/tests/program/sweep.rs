//! Tests `halfpower sweep`: it measures every combination of the values of its axes, and `--plan`
//! only prints what would be measured.

use serde_json::Value;

use crate::fixture::{MIB, Place, list, whole};

fn axis<'a>(document: &'a Value, name: &str) -> Vec<&'a Value> {
    list(&document["points"]).iter().map(|point| &point["workload"][name]).collect()
}

#[test]
fn a_sweep_measures_the_product_of_its_axes_in_their_order() {
    let document = Place::new().document(
        "sweep --ioengine null --bs 4k,64k --iodepth 1..4 --runtime 0.2 --trials 2 --no-store",
    );
    assert_eq!(axis(&document, "depth"), [1, 1, 2, 2, 4, 4]);
    assert_eq!(axis(&document, "request_bytes"), [4096, 65536, 4096, 65536, 4096, 65536]);
    for point in list(&document["points"]) {
        assert_eq!(list(&point["trials"]).len(), 2, "{}", point["workload"]);
    }
}

#[test]
fn a_sweep_prints_a_line_for_each_point_and_leaves_only_its_database() {
    let place = Place::new();
    let ended = place.does("sweep . --rw read,randwrite --bs 4k,16k --size 1m --trials 1");
    assert_eq!(ended.stdout.lines().count(), 4, "{ended}");
    assert_eq!(place.listing(), ["halfpower.db"]);
    place.is_tidy();
}

#[test]
fn every_point_of_a_sweep_moves_its_size() {
    let document =
        Place::new().document("sweep . --rw randrw --bs 4k,16k,1m --size 2m --trials 1 --no-store");
    for point in list(&document["points"]) {
        assert_eq!(whole(&point["trials"][0]["bytes"]), 2 * MIB, "{}", point["workload"]);
    }
}

#[test]
fn values_named_twice_are_measured_once() {
    let document = Place::new()
        .document("sweep --ioengine null --bs 4k,8k,4k --runtime 0.2 --trials 1 --no-store");
    assert_eq!(axis(&document, "request_bytes"), [4096, 8192]);
}

#[test]
fn the_null_engine_among_others_is_no_invalid_point() {
    let place = Place::new();
    place.file("data", MIB);
    let document = place.document("sweep data --ioengine null,sync --size 1m --trials 1");
    for point in list(&document["points"]) {
        assert_ne!(point["verdict"]["state"], "invalid", "{point}");
    }
}

#[test]
fn a_list_given_to_run_is_sent_to_sweep() {
    for flags in ["--bs 4k,8k", "--iodepth 1..4", "--rw read,write"] {
        Place::new().cannot(&format!("run . {flags}")).with_code(2).says(flags, "halfpower sweep");
    }
}

#[test]
fn a_plan_does_nothing_and_says_how_much_would_be_written() {
    let place = Place::new();
    place.file("data", MIB);
    let before = place.snapshot();
    let plans = [
        ("run . --rw read --size 8m --trials 2 --plan", "lay out a test file of 8 MiB"),
        ("run . --rw read --size 8m --trials 2 --plan", "writes 8 MiB in total"),
        ("run . --rw write --size 8m --trials 2 --plan", "writes 24 MiB in total"),
        ("run data --overwrite=data --rw write --size 1m --plan", "write to the file data"),
        ("run data --overwrite=data --rw write --runtime 2 --plan", "writes at least"),
        ("run data --plan", "writes 0 B in total"),
        ("run data --runtime 2 --trials 4 --plan", "would take 8 s"),
        ("run --ioengine null --plan", "nothing is touched"),
        ("sweep . --bs 4k,8k --rw write --size 1m --trials 1 --plan", "writes 3 MiB in total"),
    ];
    for (line, words) in plans {
        let ended = place.does(line);
        assert!(ended.stdout.contains(words), "{words:?} {ended}");
        assert!(ended.stdout.contains("nothing was done"), "{ended}");
        assert!(place.snapshot() == before, "{ended}");
    }
    place.is_tidy();
}

#[test]
fn a_plan_fails_where_the_run_would() {
    let place = Place::new();
    place.file("data", MIB);
    place.cannot("run data --rw write --plan").with_code(3).says("exists", "--overwrite=data");
    place.cannot("run missing --plan").with_code(2).says("does not exist", "specify");
    place.cannot("run . --size 1000000g --plan").with_code(1).says("not enough", "--size");
    place
        .cannot("run data --size 1g --plan")
        .with_code(2)
        .says("the region ends at", "smaller --size");
}

#[test]
fn a_plan_file_gives_the_flags_and_typed_ones_win() {
    let place = Place::new();
    let text = "ioengine = 'null'\nbs = ['4k', 65536]\niodepth = '1..2'\nruntime = 0.02\n\
                trials = 1\ntime_based = true\n";
    std::fs::write(place.path("plan.toml"), text).unwrap();
    let document = place.document("sweep plan.toml");
    assert_eq!(axis(&document, "request_bytes"), [4096, 65536, 4096, 65536]);
    assert!(place.stored_run().settings_json.contains("--bs=4k,65536"), "the plan is not stored");
    let document = place.document("sweep --bs 8k plan.toml --iodepth=4 --no-store");
    assert_eq!(axis(&document, "request_bytes"), [8192]);
    assert_eq!(axis(&document, "depth"), [4]);
}

#[test]
fn a_plan_file_names_targets_unless_they_are_typed() {
    let place = Place::new();
    place.file("data", MIB);
    place.file("other", MIB);
    std::fs::write(place.path("plan.toml"), "target = 'data'\nplan = true\n").unwrap();
    assert!(place.does("sweep plan.toml").stdout.contains("read the file data"));
    assert!(!place.does("sweep other plan.toml").stdout.contains("read the file data"));
    assert!(!place.does("sweep plan.toml --filename=other").stdout.contains("the file data"));
}

#[test]
fn a_wrong_plan_file_is_refused_with_the_line() {
    let place = Place::new();
    for (text, code, cause, remedy) in [
        ("\niodept = 4", 2, "plan.toml:2: sweep has no flag 'iodept'", "mean iodepth"),
        ("rw = 'write'\noverwrite = ['data']", 3, "plan.toml:2: overwrite is", "--overwrite"),
        ("\n\nbs = '4x'\n", 2, "plan.toml:3: --bs 4x", "4k"),
        ("runtime = 0\n", 2, "plan.toml:1: --runtime 0", "500ms"),
        ("seed = 'x'\n", 2, "plan.toml:1: --seed x: invalid digit", "--help"),
        ("bs = [4k]", 2, "plan.toml:1: ", "\"64k\""),
    ] {
        std::fs::write(place.path("plan.toml"), text).unwrap();
        place.cannot("sweep . plan.toml").with_code(code).says(cause, remedy);
    }
    place
        .cannot("run plan.toml --size 1g")
        .with_code(2)
        .says("the region ends at", "smaller --size");
    place.cannot("sweep plan.toml missing.toml").with_code(2).says("plan.toml:1", "\"64k\"");
    assert_eq!(place.listing(), ["plan.toml"]);
}

#[test]
fn the_example_of_a_plan_file_is_understood() {
    let place = Place::new();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sweep.toml");
    let plan = place.does(&format!("sweep {example} --plan")).stdout;
    assert_eq!(plan.matches("3 trials").count(), 9, "{plan}");
}
