//! Tests `compare`: with stored runs, with runs of several databases, and with workloads that it
//! measures in alternation. Also tests its reports, and its exit codes for CI systems.

use crate::fixture::{MIB, Place, list, or_skip, real, text, whole};

/// Command lines of runs on simulated systems. Their results are the same on every machine and in
/// every trial.
const SLOW: &str = "run sim:sata-hdd-7200 --rw randread --bs 8k --size 64m --trials 2 --quiet";
const FAST: &str = "run sim:sata-ssd --rw randread --bs 8k --size 64m --trials 2 --quiet";

fn with_two_runs() -> Place {
    let place = Place::new();
    place.does(&format!("{SLOW} --label disk"));
    place.does(&format!("{FAST} --label flash"));
    place
}

#[test]
fn a_faster_system_is_faster_and_what_differs_is_listed() {
    let place = with_two_runs();
    let document = place.document("compare 1 2");
    let comparison = &document["comparisons"][0];
    let change = &comparison["points"][0]["changes"][0];
    assert_eq!(change["quantity"], "rate");
    assert_eq!(change["verdict"], "better");
    assert!(real(&change["ratio"]) > 10.0, "{change}");
    assert!(real(&change["ratio_low"]) <= real(&change["ratio"]));
    let facts: Vec<&str> =
        list(&comparison["facts"]).iter().map(|fact| text(&fact["name"])).collect();
    assert!(facts.contains(&"target simulated system"), "{facts:?}");
}

#[test]
fn a_run_compared_with_itself_is_the_same_in_everything() {
    let place = with_two_runs();
    let document = place.document("compare 2 latest");
    let changes = list(&document["comparisons"][0]["points"][0]["changes"]);
    assert!(changes.len() >= 3, "{changes:?}");
    assert!(changes.iter().all(|change| change["verdict"] == "same"), "{changes:?}");
}

#[test]
fn labels_hosts_and_other_databases_name_a_side() {
    let place = with_two_runs();
    std::fs::copy(place.path("halfpower.db"), place.path("other.db")).unwrap();
    place.does("compare label:disk label:flash").prints("faster");
    place.does("compare other.db:1 other.db").prints("faster");
    place.does("compare 1 other.db:label:flash").prints("faster");
    place
        .cannot("compare label:tape 1")
        .says("no run with the label 'tape'", "halfpower runs list");
    place.cannot("compare 1").says("two sides", "halfpower compare 1 latest");
    place.cannot("compare 1 9").says("no run \"9\"", "specify a run's number");
}

#[test]
fn a_regression_beyond_the_limit_ends_with_6() {
    let place = with_two_runs();
    place.halfpower("compare 2 1 --fail-on 5%").with_code(6).prints("regression of 1: rate");
    place.halfpower("compare 2 1 --fail-on p50:5%").with_code(6).prints("regression of 1: p50");
    place.does("compare 1 2 --fail-on 5%");
    place.does("compare 2 1 --fail-on 1000%");
    place.halfpower("compare 2 1 --fail-on 5").with_code(2);
}

#[test]
fn reports_for_other_programs_are_written_and_replace_nothing_else() {
    let place = with_two_runs();
    place
        .does("compare 2 1 --fail-on 1000% --junit result.xml --html page.html --markdown")
        .prints("| rate |");
    let xml = std::fs::read_to_string(place.path("result.xml")).unwrap();
    assert!(xml.contains("failures=\"0\""), "{xml}");
    place.halfpower("compare 2 1 --fail-on 5% --junit result.xml").with_code(6);
    let xml = std::fs::read_to_string(place.path("result.xml")).unwrap();
    assert!(xml.contains("failures=\"1\""), "{xml}");
    std::fs::write(place.path("notes.txt"), "mine").unwrap();
    place.halfpower("compare 2 1 --junit notes.txt").with_code(3);
    place.halfpower("compare 2 1 --html notes.txt").with_code(3);
    std::os::unix::fs::symlink("elsewhere", place.path("dangling")).unwrap();
    place.halfpower("compare 2 1 --junit dangling").with_code(3);
    assert!(!place.path("elsewhere").exists());
    assert_eq!(std::fs::read_to_string(place.path("notes.txt")).unwrap(), "mine");
}

#[test]
fn workloads_are_measured_in_turn_and_stored_as_a_run_each() {
    let place = Place::new();
    let (disk, flash) = ("sim:sata-hdd-7200", "sim:sata-ssd");
    let load = "--rw randread --bs 8k --size 8m";
    let sides = format!("--run '{disk} {load}' --run '{flash} {load}'");
    let command = format!("compare {sides} --until 5% --json");
    let ended = place.halfpower_after(":", &command);
    let document = ended.with_code(0).json();
    let change = &document["comparisons"][0]["points"][0]["changes"][0];
    assert_eq!(
        (change["verdict"].as_str(), change["paired"].as_bool()),
        (Some("better"), Some(true))
    );
    let runs = place.document("runs list");
    assert_eq!(list(&runs).len(), 2);
    assert!(whole(&runs[0]["trials"]) >= 10, "{runs}");
    // The command line of each run must contain only the load that this run measured.
    let mut lines: Vec<&str> = list(&runs).iter().map(|run| text(&run["command_line"])).collect();
    lines.sort_unstable();
    let wanted = [disk, flash].map(|target| format!("halfpower run {target} {load}"));
    assert_eq!(lines, wanted, "{runs}");
    // A comparison of the two stored runs must find the same change.
    let again = place.document("compare 1 2");
    assert_eq!(again["comparisons"][0]["points"][0]["changes"][0], *change);
}

#[test]
fn a_side_that_could_destroy_data_is_refused_before_anything_is_measured() {
    let place = Place::new();
    let file = place.file("precious", 1 << 20);
    let before = std::fs::read(&file).unwrap();
    let sides = "--run 'sim:sata-ssd --size 1m' --run 'precious --rw write --size 1m'";
    place.halfpower_after(":", &format!("compare {sides}")).with_code(3);
    place.halfpower_after(":", "compare --run '. --verify' --run '.'").with_code(2);
    place.halfpower_after(":", "compare --run '. --bs 4q' --run '.'").with_code(2);
    assert_eq!(std::fs::read(&file).unwrap(), before);
    place.is_tidy();
}

#[test]
fn a_history_is_that_of_one_host_and_one_target() {
    let place = Place::new();
    for setting in ["", "", "", ",drive.rotation=5400"] {
        let load = "--rw randread --bs 8k --size 8m --trials 2 --quiet";
        place.does(&format!("run sim:sata-hdd-7200{setting} {load}"));
    }
    // A simulated system with a changed setting is a different target.
    let newest = place.document("history");
    assert_eq!(newest["target"], "sim:sata-hdd-7200,drive.rotation=5400");
    assert_eq!(list(&newest["points"][0]["runs"]).len(), 1);
    let first = place.document("history --target sim:sata-hdd-7200");
    assert_eq!(list(&first["points"][0]["runs"]).len(), 3);
    assert_eq!(list(&first["points"][0]["changes"]).len(), 0);
    place.does("history randread").prints("too few runs");
    place.cannot("history randwrite").says("contains 'randwrite'", "shows all points");
    place.cannot("history --host elsewhere").says("no such run", "--target");
}

#[test]
fn the_odd_one_of_a_fleet_is_named_with_what_distinguishes_it() {
    let place = Place::new();
    let mut databases = String::new();
    for disk in 1..=7 {
        let slower = if disk == 7 { ",drive.rotation=5400" } else { "" };
        let load = "--rw randread --bs 8k --size 1g --runtime 20 --trials 3 --quiet";
        let system = format!("sim:sata-hdd-7200,file_at=0.{disk}{slower}");
        place.does(&format!("run {system} {load} --db disk{disk}.db"));
        databases += &format!(" disk{disk}.db");
    }
    let fleet = place.document(&format!("fleet{databases}"));
    let model = &fleet["models"][0];
    let verdicts: Vec<&str> =
        list(&model["hosts"]).iter().map(|host| text(&host["verdict"])).collect();
    assert_eq!(verdicts, [&["slower"][..], &["alike"; 6]].concat(), "{model}");
    let facts = list(&model["hosts"][0]["unusual"]);
    let is_speed = |fact: &serde_json::Value| text(&fact["value"]) == "5400";
    assert!(facts.iter().any(is_speed), "{facts:?}");
    // A database that is listed twice must count once.
    let line = format!("fleet{databases} disk1.db --html fleet.html");
    place.does(&line).prints("1 of 7 hosts are odd").prints("slower in 1 of 1 workload");
    place.does(&line).prints("= 5400 (on 1 of 7 hosts").prints("6 other hosts: no difference");
    let page = std::fs::read_to_string(place.path("fleet.html")).unwrap();
    assert!(page.contains("5400") && page.contains("<svg"), "no chart");
    place.does("fleet disk1.db disk2.db").prints("needs 5 hosts");
    place.cannot("fleet disk1.db --only randwrite").says("contains 'randwrite'", "leave out");
    place.cannot("fleet none.db").says("none.db", "");
}

#[test]
fn a_history_names_the_first_run_after_a_change() {
    let place = Place::new();
    let system = place.does("simulate --show sata-hdd-7200").stdout;
    let slower = system.replace("rotation = { value = 7200", "rotation = { value = 5400");
    assert_ne!(system, slower);
    for content in [&system, &slower] {
        std::fs::write(place.path("disk.toml"), content).unwrap();
        for seed in 1..=3 {
            let load = "--rw randread --bs 8k --size 4g --runtime 20 --trials 2 --quiet";
            place.does(&format!("run sim:./disk.toml {load} --seed {seed}"));
        }
    }
    let history = place.document("history");
    let changes = list(&history["points"][0]["changes"]);
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(whole(&changes[0]["run"]), 4);
    assert!(real(&changes[0]["ratio_high"]) < 0.95, "{changes:?}");
    place.does("history").prints("with run 4");
}

#[test]
fn an_interrupted_comparison_shows_and_keeps_its_complete_rounds() {
    let place = Place::new();
    let mut command = place.command("compare --budget 600 --until 0.001%");
    for size in ["4k", "8k"] {
        command.args(["--run", &format!("truth:fixed=1ms --bs {size} --size 1m --runtime 20ms")]);
    }
    let mut running = place.start_command(command, "compare, interrupted");
    running.until("some rounds are stored", || place.stored_trials_so_far() > 5);
    running.signal("INT");
    running.ended().was_interrupted().prints("compared by rate");
    let runs = place.document("runs list");
    assert!(list(&runs).iter().all(|run| run["state"] == "interrupted"), "{runs}");
    place.is_tidy();
}

#[test]
fn a_command_of_another_tool_is_a_side() {
    let place = Place::new();
    let json = r#"{"fio version": "fio-3.33", "jobs": [{"jobname": "a",
        "job options": {"rw": "randread", "bs": "8k"},
        "read": {"io_bytes": 81920000, "total_ios": 10000, "runtime": 1000}}]}"#;
    std::fs::write(place.path("fio.json"), json).unwrap();
    let sides = "--run 'sim:sata-ssd --rw randread --bs 8k --size 8m' --command 'cat fio.json'";
    let line = format!("compare {sides} --budget 1s --no-store --quiet --json");
    let document = place.halfpower_after("true", &line).with_code(0).json();
    let comparison = &document["comparisons"][0];
    assert!(text(&comparison["after"]).contains("cat fio.json"), "{comparison}");
    assert_eq!(comparison["points"][0]["changes"][0]["after"], 81_920_000.0);
    assert_eq!(place.listing(), ["fio.json"]);
    place.does("import fio.json");
    place.does("compare latest fio.json").prints("1 point compared");
    let line = "compare --command true --command 'cat fio.json'";
    let ended = place.halfpower_after("true", line).with_code(1);
    ended.says("--command 'true'", "--output-format=json");
    let plan = place.halfpower_after("true", &format!("{line} --plan")).with_code(0);
    assert!(plan.stdout.contains("run the command true"), "{plan}");
}

#[test]
fn a_baseline_is_measured_again_and_a_regression_ends_with_6() {
    let place = Place::new();
    place.does("run sim:sata-ssd --rw randread --bs 8k --runtime 1 --trials 3 --quiet");
    place.does("baseline set disk");
    place.does("baseline list").prints("disk: 1 ");
    place.does("baseline check disk --budget 2s").prints("no regression");
    place.does("runs list").prints("[check of disk]");
    // Doubles the stored rate of the baseline, so that the new measurement is a regression.
    let faster = "UPDATE trial SET bytes = bytes * 2, full_queue_bytes_per_s = NULL WHERE id = 1;
        UPDATE trial SET full_queue_start_ns = NULL, full_queue_end_ns = NULL,
        full_queue_bytes_per_s = NULL, full_queue_requests_per_s = NULL,
        read_bytes = read_bytes * 2 WHERE point_id = 1";
    or_skip!(place.sqlite3("halfpower.db", faster));
    let ended = place.halfpower("baseline check disk --budget 2s --no-store").with_code(6);
    assert!(ended.stdout.contains("regression of now: rate"), "{ended}");
    place.does("baseline remove disk");
    place
        .cannot("baseline check disk")
        .with_code(2)
        .says("no baseline 'disk'", "baseline set disk");
}

#[test]
fn a_baseline_with_writes_needs_the_consent_of_any_other_run() {
    let place = Place::new();
    place.file("data", MIB);
    place.does("run data --overwrite data --rw write --bs 64k --trials 1 --runtime 100ms --quiet");
    place.does("baseline set disk");
    let ended = place.halfpower("baseline check disk --budget 1s").with_code(3);
    assert!(ended.stderr.contains("--overwrite"), "{ended}");
    place.does("baseline check disk --plan --overwrite data").prints("nothing was done");
}
