//! Tests the studies of single requests: their size, the defaults, write-through, allocation,
//! hints, and random access. Simulated systems give exact results. On this host, results are
//! compared with wide margins.

use serde_json::Value;

use crate::fixture::{KIB, MIB, Place, list, real, text, whole};

const ULTRA: &str = "sim:nt4-ultrawide";
const STUDIES: [&str; 6] =
    ["request-size", "out-of-box", "write-through", "allocate", "hints", "random"];

fn only(document: &Value) -> &Value {
    &list(&document["studies"])[0]
}

fn verdicts<'a>(study: &'a Value, wanted: &str) -> Vec<&'a str> {
    let claims = list(&study["claims"]).iter().filter(|claim| claim["verdict"] == wanted);
    claims.map(|claim| text(&claim["id"])).collect()
}

#[track_caller]
fn hold(study: &Value, ids: &[&str]) {
    let found = verdicts(study, "holds");
    for id in ids {
        assert!(found.contains(id), "{id} is not in {found:?}");
    }
}

fn finding<'a>(study: &'a Value, id: &str) -> &'a str {
    let findings = list(&study["findings"]);
    let found = findings.iter().find(|found| found["id"] == id);
    text(&found.unwrap_or_else(|| panic!("no finding {id} in {findings:?}"))["text"])
}

#[test]
fn what_the_papers_say_of_single_requests_holds_on_their_machine() {
    let place = Place::new();
    for (name, ids) in [
        ("request-size", &["R042", "R050", "R051", "R064", "R179", "R180"][..]),
        ("out-of-box", &["R021", "R022", "R023", "R037", "R067", "C076"]),
        ("write-through", &["R028"]),
        ("allocate", &["R154", "C073", "R153"]),
        ("hints", &["R007", "R019", "R020", "C117"]),
        ("random", &["C100", "C108", "C189"]),
    ] {
        let document = place.document(&format!("study {name} {ULTRA} --no-store"));
        hold(only(&document), ids);
    }
    place.is_tidy();
}

#[test]
fn a_simulated_disk_sees_large_requests_in_pieces_of_64_kib() {
    let place = Place::new();
    let document = place.document(&format!("study request-size {ULTRA} --quick --no-store"));
    let split = finding(only(&document), "split");
    assert!(
        split.contains("of 128 KiB and more are split: the device sees requests of 64 KiB"),
        "{split}"
    );
}

#[test]
fn a_long_write_of_a_simulated_system_fills_is_held_back_and_flushes() {
    let place = Place::new();
    let document = place.document(&format!("study out-of-box {ULTRA} --no-store"));
    let phases = finding(only(&document), "phases");
    assert!(phases.contains("then throttled to") && phases.contains("then flushed"), "{phases}");
}

#[test]
fn a_simulated_disk_has_accesses_for_each_revolution() {
    let place = Place::new();
    let line = "study random sim:w2k-atlas10k,file_size=8g --quick --no-store";
    let document = place.document(line);
    let turns = finding(only(&document), "revolutions");
    assert!(turns.contains("at depth 32 (10025 revolutions per minute)"), "{turns}");
}

/// Returns the mean number of targets that are busy at the same time, with `disks` targets and the
/// queue depth `depth`.
fn busy(study: &Value, disks: &str, depth: &str) -> f64 {
    let is_it = |reading: &&Value| {
        let labels = &reading["labels"];
        let (rw, quantity) = (&labels["rw"], &reading["quantity"]);
        let alike = labels["disks"] == disks && labels["iodepth"] == depth;
        quantity == "busy-targets" && rw == "randread" && alike
    };
    let found = list(&study["readings"]).iter().find(is_it);
    real(&found.unwrap_or_else(|| panic!("{disks} {depth}: {}", study["readings"]))["value"])
}

#[test]
fn chance_leaves_disks_of_a_simulated_stripe_idle_as_the_closed_forms_say() {
    let place = Place::new();
    let document = place.document(&format!("study random {ULTRA},file_size=1g --no-store"));
    let study = only(&document);
    for disks in [2_u32, 3, 4] {
        for depth in [2_u32, 4, 8, 16] {
            let (n, d) = (f64::from(disks), f64::from(depth));
            let (least, most) = (n * d / (d + n - 1.0), n * (1.0 - (1.0 - 1.0 / n).powf(d)));
            let busy = busy(study, &disks.to_string(), &depth.to_string());
            assert!((0.97 * least..=1.03 * most).contains(&busy), "{disks} {depth}: {busy}");
        }
    }
    hold(study, &["C194", "C195", "C196", "C236"]);
    let text = finding(study, "spread");
    assert!(
        text.contains("over 2 targets in chunks of 64 KiB, rate compared with 2 evenly loaded"),
        "{text}"
    );
}

#[test]
#[ignore = "takes half a minute"]
fn two_requests_keep_one_and_a_half_of_two_known_devices_busy() {
    let place = Place::new();
    let document =
        place.document("study random truth:fixed=2ms truth:fixed=2ms --quick --no-store");
    let study = only(&document);
    let (two, many) = (busy(study, "2", "2"), busy(study, "2", "16"));
    // All service times are equal, so the exact number of busy targets is 1.5 at depth 2, and
    // 1.9375 at depth 16.
    assert!((1.4..=1.65).contains(&two) && many > 1.8, "{two} {many}");
    hold(study, &["C196", "C236"]);
    assert_eq!(verdicts(study, "cannot-be-tried").iter().filter(|id| **id == "C194").count(), 1);
}

#[test]
fn one_target_alone_has_no_others_to_be_idle_and_the_study_says_so() {
    let place = Place::new();
    let document = place.document("study random truth:fixed=1ms --quick --runtime 20ms --no-store");
    let left_out = only(&document)["left_out"].to_string();
    assert!(left_out.contains("list several targets"), "{left_out}");
}

#[test]
fn flags_that_a_model_does_not_know_leave_out_their_parts_only() {
    let place = Place::new();
    for (name, words) in [
        ("hints", "no kernel that takes hints"),
        ("allocate", "no blocks to reserve"),
        ("allocate", "no blocks to release"),
        ("out-of-box", "--page-cache warm"),
    ] {
        let document = place.document(&format!("study {name} {ULTRA} --quick --no-store"));
        let study = only(&document);
        let reasons: Vec<&str> =
            list(&study["left_out"]).iter().map(|part| text(&part["reason"])).collect();
        assert!(reasons.iter().any(|reason| reason.contains(words)), "{name}: {reasons:?}");
        assert!(study["skipped"].is_null() && !list(&study["points"]).is_empty());
    }
}

#[test]
fn each_is_made_in_a_directory_and_leaves_nothing_but_its_page() {
    let place = Place::new();
    for name in STUDIES {
        let line =
            format!("study {name} . --quick --size 32m --runtime 10ms --trials 1 --no-store");
        let document = place.document(&line);
        let study = only(&document);
        assert!(study["skipped"].is_null(), "{name}: {}", study["skipped"]);
        assert!(!list(&study["findings"]).is_empty(), "{name}");
        assert_eq!(place.listing(), ["halfpower-study.html"], "{name}");
        place.is_tidy();
    }
}

#[test]
fn a_file_that_was_not_named_for_writing_is_only_read() {
    let place = Place::new();
    let data = place.file("data", 8 * MIB);
    let before = place.snapshot();
    for name in STUDIES {
        let flags = "--quick --runtime 10ms --trials 1 --no-store --json";
        let ended = place.halfpower(&format!("study {name} data {flags}"));
        let document = ended.json();
        let study = only(&document);
        let nothing = list(&study["points"]).is_empty();
        // If a study has only writes, the whole study is refused.
        assert_eq!(ended.status.code(), Some(if nothing { 3 } else { 0 }), "{ended}");
        let reads = |point: &Value| whole(&point["workload"]["read_percent"]) == 100;
        assert!(list(&study["points"]).iter().all(reads), "{name}");
    }
    assert!(place.snapshot()[&data] == before[&data], "the file was written");
}

#[test]
fn parts_that_cut_a_file_are_left_out_where_others_measure_it() {
    let place = Place::new();
    place.file("data", 64 * MIB);
    let line = "study allocate data --overwrite data --quick --runtime 10ms --trials 1 --no-store";
    let document = place.document(line);
    let study = only(&document);
    let reason = text(&list(&study["left_out"])[0]["reason"]);
    assert!(reason.contains("use a directory"), "{reason}");
    assert_eq!(std::fs::metadata(place.path("data")).unwrap().len(), 64 * MIB);
}

#[test]
fn small_writes_to_pages_in_memory_wait_for_nothing() {
    let place = Place::new();
    let line = "study out-of-box . --quick --size 64m --no-store";
    let document = place.document(line);
    let points = list(&only(&document)["points"]);
    let median = |state: &str| {
        let small = points.iter().find(|point| {
            let workload = &point["workload"];
            point["part"] == "small writes"
                && point["given"]["page-cache"] == state
                && workload["rw"] == "randwrite"
                && whole(&workload["request_bytes"]) == 2 * KIB
        });
        whole(&small.unwrap()["summary"]["latency_ns"]["p50"])
    };
    let (cold, warm) = (median("cold"), median("warm"));
    // If the file is in memory, no page is cold. On a device, a read takes far longer than a copy
    // in memory.
    let on_device = !document["targets"][0]["device"].is_null();
    assert!(!on_device || cold > 3 * warm, "{cold} ns on cold pages, {warm} ns on warm ones");
}

#[test]
fn reserved_blocks_and_a_last_block_written_first_end_as_whole_files() {
    let place = Place::new();
    for allocation in ["fallocate", "last-block"] {
        place.file("data", MIB);
        let line = format!(
            "run data --overwrite data --rw write --bs 64k --size 2m --allocation {allocation} \
             --trials 2 --verify --no-store"
        );
        place.does(&line);
        assert_eq!(std::fs::metadata(place.path("data")).unwrap().len(), 2 * MIB, "{allocation}");
        place.does("run data --rw read --bs 64k --size 2m --trials 1 --verify --no-store");
    }
    let line = "run data --rw read --bs 64k --allocation last-block";
    place.cannot(line).with_code(2).says("for writes only", "--rw write");
}

#[test]
fn the_state_of_the_page_cache_is_told_with_the_results() {
    let place = Place::new();
    place.file("data", 4 * MIB);
    for (state, words) in [("cold", ["true", "false"]), ("warm", ["false", "true"])] {
        place.does(&format!("run data --rw read --direct=0 --size 4m --page-cache {state}"));
        let points = place.stored_points();
        let workload = &points[0].row.workload_json;
        for (name, word) in ["scrubbed", "warmed"].into_iter().zip(words) {
            assert!(workload.contains(&format!("\"{name}\":{word}")), "{state}: {workload}");
        }
    }
}
