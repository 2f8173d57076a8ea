//! Tests `halfpower study` and plans of studies: the points that are measured or left out, and the
//! results that are concluded, stored and shown. Results of simulated systems are exact. Results of
//! this host are only compared with each other.

use serde_json::Value;

use crate::fixture::{MIB, Place, list, or_skip, text, whole};
use crate::volume::LoopDevice;

const ULTRA: &str = "sim:nt4-ultrawide";

fn study<'a>(document: &'a Value, name: &str) -> &'a Value {
    list(&document["studies"]).iter().find(|study| study["name"] == name).unwrap()
}

fn verdict<'a>(study: &'a Value, id: &str) -> &'a Value {
    &list(&study["claims"]).iter().find(|claim| claim["id"] == id).unwrap()["verdict"]
}

#[test]
fn the_papers_claims_about_depth_hold_on_the_papers_machine() {
    let place = Place::new();
    // Figure 6 of the paper varies the queue depth on the Fast-Wide disk.
    let document = place.document("study depth sim:nt4-fastwide --quick --no-store");
    let depth = study(&document, "depth");
    for id in ["R077", "R078", "R079", "R117"] {
        assert_eq!(verdict(depth, id), "holds", "{id}");
    }
    // The number in the paper's text contradicts the paper's own figure.
    assert_eq!(verdict(depth, "R080"), "does-not-hold");
    let document = place.document(&format!("study depth {ULTRA} --quick --no-store"));
    assert_eq!(verdict(study(&document, "depth"), "R077"), "cannot-be-tried");
    assert!(depth["skipped"].is_null());
    assert_eq!(place.listing(), ["halfpower-study.html"]);
}

#[test]
fn a_study_of_a_directory_leaves_only_page_and_database() {
    let place = Place::new();
    let line = "study depth . --quick --size 16m --runtime 20ms --trials 1";
    let ended = place.does(line);
    ended.prints("smallest depth at which reads");
    assert_eq!(place.listing(), ["halfpower-study.html", "halfpower.db"]);
    place.is_tidy();
    let page = std::fs::read_to_string(place.path("halfpower-study.html")).unwrap();
    assert!(page.contains("id=\"depth\"") && page.contains("R080") && page.contains("<svg"));
}

#[test]
fn what_would_write_to_a_file_that_was_not_named_is_left_out_with_the_remedy() {
    let place = Place::new();
    let data = place.file("data", 16 * MIB);
    let before = place.snapshot();
    let line = "study depth data --quick --runtime 20ms --trials 1 --no-store";
    let document = place.document(line);
    let left_out = list(&study(&document, "depth")["left_out"]);
    assert!(left_out.iter().any(|part| text(&part["reason"]).contains("--overwrite")));
    assert!(place.snapshot()[&data] == before[&data], "the file was written");
    assert_eq!(place.listing(), ["data", "halfpower-study.html"]);
}

#[test]
fn a_plan_of_the_user_has_parts_figures_a_quick_form_and_lists_for_any_flag() {
    let place = Place::new();
    let plan = "title = 'Strides'\nasks = 'Does a stride cost?'\nsize = '8m'\ntrials = 1\n\
                bs = ['4k', '64k']\nquick = {bs = '4k'}\n\
                [[part]]\nname = 'plain'\n[[part]]\nname = 'strided'\nstride = ['128k', '256k']\n\
                [[figure]]\ntitle = 'Rate'\nx = 'bs'\ny = 'throughput'\nby = ['part', 'stride']\n";
    std::fs::write(place.path("mine.toml"), plan).unwrap();
    let line = format!("sweep mine.toml {ULTRA} --no-store");
    let document = place.document(&format!("{line} --html mine.html"));
    let points = list(&study(&document, "mine")["points"]);
    assert_eq!(points.len(), 6);
    assert_eq!(points[5]["given"]["stride"], "256k");
    assert_eq!(points[5]["part"], "strided");
    let page = std::fs::read_to_string(place.path("mine.html")).unwrap();
    assert!(page.contains("strided, stride 256k"), "the figure lacks a curve");
    let quick = place.document(&format!("{line} --quick"));
    assert_eq!(list(&study(&quick, "mine")["points"]).len(), 3);
}

#[test]
fn a_plan_may_borrow_the_findings_of_a_study() {
    let place = Place::new();
    let shown = place.does("study depth --show").stdout;
    let changed = shown.replace("iodepth = [1, 2, 3, 8, 32, 256]", "iodepth = [1, 8]");
    assert_ne!(shown, changed);
    std::fs::write(place.path("mine.toml"), changed).unwrap();
    let document = place.document("sweep mine.toml sim:nt4-fastwide --quick --no-store");
    let mine = study(&document, "mine");
    assert_eq!(verdict(mine, "R079"), "holds");
    assert!(list(&mine["points"]).iter().all(|p| whole(&p["workload"]["depth"]) != 32));
}

#[test]
fn a_plan_file_is_a_study_like_the_built_in_ones() {
    let place = Place::new();
    let plan = "title = 'mine'\nrw = 'read'\nbs = ['4k', '8k']\ntrials = 1\n";
    std::fs::write(place.path("mine.toml"), plan).unwrap();
    let line = format!("study depth,mine.toml {ULTRA} --quick --no-store");
    let document = place.document(&line);
    assert_eq!(list(&study(&document, "mine")["points"]).len(), 2);
    assert_eq!(list(&document["studies"]).len(), 2);
    let bad = format!("{plan}[[part]]\nname = 'a'\nbz = 1\n");
    std::fs::write(place.path("bad.toml"), bad).unwrap();
    let ended = place.cannot(&format!("study bad.toml {ULTRA}")).with_code(2);
    ended.says("bad.toml: line 7: part a: sweep has no flag 'bz'", "--help");
    place.cannot(&format!("study nowhere.toml {ULTRA}")).says("nowhere.toml", "plan file");
}

#[test]
fn the_plan_tells_points_time_and_bytes_before_anything_is_done() {
    let place = Place::new();
    let line = "study depth,zones . --quick --size 1m --trials 2 --runtime 0.5 --plan";
    let ended = place.does(line);
    let ended = ended.prints("depth: 60 points, 120 trials in 60 s, at most 60 MiB written");
    ended.prints("chosen during the study");
    assert_eq!(place.listing(), [""; 0]);
}

#[test]
fn a_device_that_was_given_up_is_written_by_all_parts_of_a_study() {
    let device = or_skip!(LoopDevice::new(32 * MIB));
    let place = Place::new();
    let line = format!(
        "study alignment,random,write-through {0} --destroy-data-on {0} --quick --size 8m \
         --runtime 5ms --trials 1 --no-store",
        device.path()
    );
    let document = place.document(&line);
    for one in list(&document["studies"]) {
        let left_out = one["left_out"].to_string();
        assert!(!left_out.contains("cannot be claimed"), "{left_out}");
        let writes = |point: &&Value| text(&point["workload"]["rw"]).contains("write");
        assert!(list(&one["points"]).iter().filter(writes).count() > 3, "{}", one["name"]);
    }
}

#[test]
fn a_size_that_was_typed_bounds_files_that_grow_too() {
    let place = Place::new();
    let line = "study out-of-box . --quick --size 4m --runtime 20ms --trials 1 --no-store";
    let document = place.document(line);
    let points = list(&study(&document, "out-of-box")["points"]);
    let grown: Vec<_> = points.iter().filter(|point| point["part"] == "phases").collect();
    assert!(!grown.is_empty());
    for point in points {
        assert!(whole(&point["workload"]["size_bytes"]) <= 4 * MIB, "{point}");
    }
}

#[test]
fn several_targets_are_measured_side_by_side() {
    let place = Place::new();
    let line = format!("study depth {ULTRA} sim:w2k-atlas10k --quick --no-store");
    let document = place.document(&line);
    let points = list(&study(&document, "depth")["points"]);
    let of = |name: &str| points.iter().filter(|point| point["target"] == name).count();
    assert_eq!((of(ULTRA), of("sim:w2k-atlas10k")), (60, 60));
}

#[test]
fn findings_are_of_each_target_by_itself() {
    let place = Place::new();
    let line = format!("study depth {ULTRA} sim:w2k-atlas10k --quick --no-store");
    let document = place.document(&line);
    let depth = study(&document, "depth");
    for finding in list(&depth["findings"]) {
        assert!(text(&finding["text"]).starts_with("sim:"), "{finding}");
    }
    let alone = place.document(&format!("study depth {ULTRA} --quick --no-store"));
    let first = text(&study(&alone, "depth")["findings"][0]["text"]).to_owned();
    assert_eq!(text(&depth["findings"][0]["text"]), format!("{ULTRA}: {first}"));
}

#[test]
fn typed_flags_win_over_those_of_a_plan() {
    let place = Place::new();
    std::fs::write(place.path("mine.toml"), "title = 'x'\nbs = ['4k', '64k']\nsize = '1m'\n")
        .unwrap();
    let line = format!("sweep mine.toml {ULTRA} --bs 1m --trials 2 --no-store");
    let document = place.document(&line);
    let points = list(&study(&document, "mine")["points"]);
    assert_eq!(points.len(), 1);
    assert_eq!(points[0]["workload"]["request_bytes"], 1 << 20);
    assert_eq!(list(&points[0]["trials"]).len(), 2);
    std::fs::write(place.path("bad.toml"), "title = 'x'\nplan = true\n").unwrap();
    place.cannot(&format!("sweep bad.toml {ULTRA}")).with_code(2).says("plan", "flag --plan");
}

#[test]
fn an_order_to_stop_keeps_what_was_measured_and_claims_nothing() {
    let place = Place::new();
    let device = "truth:fixed=1ms";
    let line = format!("study burst,depth {device} --quick --runtime 2 --no-store");
    let mut running = place.start(&line);
    running.until_it_says("depth: ");
    crate::fixture::pause(1000);
    running.signal("INT");
    let ended = running.ended();
    assert_eq!(ended.status.code(), Some(130), "{ended}");
    assert!(ended.stdout.contains("burst: "), "{ended}");
    assert!(!ended.stdout.contains("claim "), "{ended}");
    assert_eq!(place.listing(), ["halfpower-study.html"]);
    place.is_tidy();
}

#[test]
fn a_file_of_holes_is_no_measurement() {
    let place = Place::new();
    place.file_of_holes("holes", 64 * MIB);
    let ended = place.halfpower("study random holes --quick --runtime 20ms --trials 1 --no-store");
    assert_eq!(ended.status.code(), Some(5), "{ended}");
    assert!(ended.stdout.contains("are invalid"), "{ended}");
}

#[test]
fn what_cannot_be_is_refused_with_the_remedy() {
    let place = Place::new();
    for (line, words) in [
        ("study nothing .", "use all, "),
        ("study depth missing", "missing"),
        ("study depth . --price 0", "--price 0"),
        ("study depth . --price nan", "--price NaN"),
        ("study depth . --trials 0", "--trials 0"),
        ("study depth sim:nope", "nt4-ultrawide"),
        ("study depth . --runtime soon", "runtime"),
    ] {
        place.cannot(line).with_code(2).says("", words);
    }
    std::fs::write(place.path("bad.toml"), "title = 'x'\nstudy = 'nothing'").unwrap();
    place.cannot("sweep bad.toml .").with_code(2).says("bad.toml", "unknown study");
    std::fs::write(place.path("none.toml"), "title = 'x'").unwrap();
    place.cannot("sweep none.toml").with_code(2).says("no target", "target = ");
}

#[test]
fn a_plan_and_a_list_do_nothing() {
    let place = Place::new();
    place.does("study all . --quick --plan").prints("nothing was done");
    place.does("study --list").prints("depth");
    assert_eq!(place.listing(), [""; 0]);
    assert!(!place.has_made_a_test_file());
}

#[test]
fn a_study_that_fails_ends_with_a_line_that_names_study_and_cause() {
    let device = or_skip!(LoopDevice::new(64 * MIB));
    device.breaks();
    let line = format!("study request-size,depth {} --quick --no-store", device.path());
    let ended = Place::new().halfpower(&line).with_code(1);
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(last.contains("study depth: ") && last.contains("input/output error"), "{ended}");
    assert!(ended.stderr.contains("study request-size: "), "{ended}");
}

#[test]
fn a_study_is_kept_as_a_run_of_its_own_kind() {
    let place = Place::new();
    place.does(&format!("study depth {ULTRA} --quick --trials 1"));
    let runs = place.does("runs list").stdout;
    assert!(runs.contains("study") && runs.contains("depth"), "{runs}");
    let points = place.stored_points();
    assert_eq!(points.len(), 60);
    assert!(points.iter().all(|point| point.trials.len() == 1));
}
