//! Tests the database: every finished trial is stored with all its measurements, and files of other
//! programs are not changed.

use std::fs;
use std::os::unix::fs::FileExt;

use results::{Operation, RunKind, RunState};
use serde_json::Value;

use crate::fixture::{MIB, Place, list, skip, whole};

/// Flags for a run that is short, but long enough for hundreds of requests.
const SHORT: &str = "--size 1m --trials 2 --quiet";

#[test]
fn the_database_holds_every_trial_that_was_reported() {
    let place = Place::new();
    let document = place.document(&format!("run . --rw randread --iodepth 4 {SHORT}"));
    let points = place.stored_points();
    assert_eq!(points.len(), 1);
    let reported = list(&document["trials"]);
    assert_eq!(points[0].trials.len(), reported.len());
    for ((_, row), trial) in points[0].trials.iter().zip(reported) {
        assert_eq!(row.bytes, whole(&trial["bytes"]));
        assert_eq!(row.requests, whole(&trial["requests"]));
        assert_eq!(row.elapsed_ns, whole(&trial["elapsed_ns"]));
        assert_eq!(row.latency_p99_ns, whole(&trial["latency_ns"]["p99"]));
        assert_eq!(row.latency_max_ns, whole(&trial["latency_ns"]["max"]));
        assert_eq!(row.cpu_process_ns, whole(&trial["cpu_ns"]["process"]));
        assert_eq!(row.verdict.as_str(), trial["verdict"]["state"]);
    }
}

#[test]
fn what_a_point_came_to_is_stored_when_its_run_ends() {
    let place = Place::new();
    // A run with a single trial never gets the verdict `valid`.
    let document = place.document("sweep . --bs 4k,64k --size 1m --trials 1 --quiet");
    let points = place.stored_points();
    assert_eq!(points.len(), 2);
    for (point, reported) in points.iter().zip(list(&document["points"])) {
        let state = point.end.verdict.map(results::Verdict::as_str);
        assert_eq!(state, reported["verdict"]["state"].as_str(), "{reported}");
        assert_eq!(point.end.verdict_reasons_json, reported["verdict"]["reasons"].to_string());
        assert!(point.end.verdict_reasons_json.contains("one trial"));
    }
}

#[test]
fn histogram_and_series_of_a_stored_trial_count_all_its_requests() {
    let place = Place::new();
    place.does(&format!("run . --rw randrw --iodepth 4 {SHORT}"));
    let store = place.store();
    let point = &place.stored_points()[0];
    assert_eq!(point.row.operation, Operation::Mix);
    for (id, row) in &point.trials {
        let latency = store.latency(*id).unwrap();
        let count = |operation| -> u64 {
            latency.iter().filter(|row| row.operation == operation).map(|row| row.count).sum()
        };
        assert_eq!(count(Operation::Read), row.read_requests);
        assert_eq!(count(Operation::Write), row.write_requests);
        assert_eq!(row.read_requests + row.write_requests, row.requests);
        assert!(latency.iter().all(|row| row.low_ns <= row.high_ns && row.count > 0));
        let series = store.series(*id).unwrap();
        assert_eq!(series.iter().map(|part| part.requests).sum::<u64>(), row.requests);
        assert_eq!(series.iter().map(|part| part.bytes).sum::<u64>(), row.bytes);
    }
}

#[test]
fn a_stored_run_knows_what_was_asked_and_where() {
    let place = Place::new();
    place.does(&format!("run . --rw write --seed 7 --label first --pap 1GB/s {SHORT}"));
    let run = place.stored_run();
    assert_eq!(run.kind, RunKind::Run);
    assert_eq!(run.state, RunState::Finished);
    assert_eq!(run.seed.0, 7);
    assert_eq!(run.label.as_deref(), Some("first"));
    assert!(run.command_line.contains("--rw write --seed 7"), "{}", run.command_line);
    assert!(run.finished_unix_ns.is_some_and(|end| end > run.started_unix_ns));
    assert!(run.verdict.is_some());
    let host: Value = serde_json::from_str(&run.host_json).unwrap();
    assert!(!host["kernel"].as_str().unwrap().is_empty(), "{host}");
    let target: Value = serde_json::from_str(&run.target_json).unwrap();
    assert_eq!(whole(&target["size_bytes"]), MIB);
    assert!(target["file_system"].is_string() && target["mount_options"].is_string(), "{target}");
    let settings: Value = serde_json::from_str(&run.settings_json).unwrap();
    assert_eq!(settings["pap_bytes_per_s"], 1e9);
}

#[test]
fn a_sweep_is_stored_as_one_run_with_all_its_points() {
    let place = Place::new();
    place.does("sweep --ioengine null --bs 4k,8k --iodepth 1,2 --runtime 0.2 --trials 2");
    assert_eq!(place.stored_run().kind, RunKind::Sweep);
    let points = place.stored_points();
    assert_eq!(points.len(), 4);
    assert!(points.iter().all(|point| point.trials.len() == 2));
    assert!(points.iter().enumerate().all(|(place, point)| point.row.ordinal == place as u32));
}

#[test]
fn runs_are_listed_newest_first() {
    let place = Place::new();
    let run = "run --ioengine null --runtime 0.2 --trials 1 --db other.db --label";
    place.does(&format!("{run} one"));
    place.does(&format!("{run} two"));
    let runs = place.document("runs list --db other.db");
    let labels: Vec<&str> = list(&runs).iter().map(|run| run["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["two", "one"]);
    assert!(list(&runs).iter().all(|run| run["state"] == "finished"), "{runs}");
    let text = place.does("runs list --db other.db").stdout;
    assert_eq!(text.lines().count(), 2);
    assert!(text.lines().next().unwrap().contains("[two]"), "{text}");
    assert_eq!(place.listing(), ["other.db"]);
}

#[test]
fn two_programs_may_keep_their_runs_in_one_database() {
    let place = Place::new();
    let line = "run --ioengine null --runtime 0.2 --trials 5";
    let both = [place.start(line), place.start(line)];
    for running in both {
        running.ended().with_code(0);
    }
    let runs = place.store().runs().unwrap();
    assert_eq!(runs.len(), 2);
    assert!(runs.iter().all(|run| run.state == RunState::Finished), "{runs:?}");
}

#[test]
fn listing_without_a_database_makes_none_and_says_how_to_get_one() {
    let place = Place::new();
    place.cannot("runs list").with_code(1).says("no database", "run");
    assert_eq!(place.listing(), [""; 0]);
}

#[test]
fn a_file_of_another_program_is_no_database_and_stays_as_it_is() {
    let place = Place::new();
    fs::write(place.path("notes"), "dear diary").unwrap();
    let mut foreign = b"SQLite format 3\0".to_vec();
    foreign.resize(8192, 0);
    fs::write(place.path("foreign.db"), foreign).unwrap();
    fs::create_dir(place.path("folder")).unwrap();
    for (file, cause) in [
        ("notes", "not a halfpower database"),
        ("foreign.db", "not a halfpower database"),
        ("folder", "not a regular file"),
        ("missing/some.db", "--db"),
    ] {
        let run = format!("run --ioengine null --runtime 0.2 --quiet --db {file}");
        place.cannot(&run).with_code(1).says(file, cause);
    }
    place.cannot("runs list --db notes").with_code(1).says("notes", "another path");
}

#[test]
fn a_bad_database_is_noticed_before_a_test_file_is_laid_out() {
    let place = Place::new();
    fs::write(place.path("notes"), "dear diary").unwrap();
    place.cannot("run . --size 1m --db notes").says("notes", "not a halfpower database");
    assert!(!place.has_made_a_test_file());
}

#[test]
fn a_database_of_a_newer_program_is_left_as_it_is() {
    let place = Place::new();
    place.does("run --ioengine null --runtime 0.2 --trials 1");
    // The field user_version is in bytes 60 to 63 of the file.
    let file = fs::OpenOptions::new().write(true).open(place.path("halfpower.db")).unwrap();
    file.write_all_at(&99_u32.to_be_bytes(), 60).unwrap();
    let again = "run --ioengine null --runtime 0.2 --trials 1 --quiet";
    place.cannot(again).with_code(1).says("newer halfpower", "update halfpower");
    place.cannot("runs list").with_code(1).says("newer halfpower", "update halfpower");
}

#[test]
fn a_failed_run_is_stored_as_failed() {
    let place = Place::new();
    let path = place.file("data", MIB);
    let same = "--bs 64k --size 1m --trials 1 --verify";
    place.does(&format!("run data --overwrite=data --rw write {same}"));
    crate::fixture::damage(&path, 5000);
    place.halfpower(&format!("run data --rw read {same}")).with_code(4);
    assert_eq!(place.stored_run().state, RunState::Failed);
}

#[test]
fn a_database_is_not_its_own_target() {
    let place = Place::new();
    place.does("run --ioengine null --runtime 0.2 --trials 1");
    let line = "run halfpower.db --rw write --overwrite=halfpower.db --size 4k --direct=0";
    place.cannot(line).with_code(3).says("both the target and the database", "--db");
}

#[test]
fn runs_are_shown_labelled_merged_and_pruned_only_with_yes() {
    let place = Place::new();
    place.does(&format!("run sim:sata-ssd {SHORT} --label first"));
    place.does(&format!("run sim:sata-ssd {SHORT} --db other.db"));
    place.does("runs show first").prints("seed 42").prints("requests/s");
    place.does("runs tag latest renamed");
    place.does("runs note latest moved");
    assert!(place.does("runs show latest").stdout.contains("note: moved"));
    place.does("runs note latest");
    assert!(!place.does("runs show latest").stdout.contains("note:"));
    place.does("runs show renamed");
    place.cannot("runs show first").says("no run \"first\"", "specify a run's number");
    place.does("runs merge other.db").prints("1 run added, 0 already present, 0 replaced");
    place.does("runs merge other.db").prints("0 runs added, 1 already present");
    let both = place.document("runs list");
    assert_eq!(list(&both).len(), 2);
    assert!(list(&both).iter().all(|run| whole(&run["trials"]) == 2), "{both}");
    place.does("runs prune --keep 1").prints("would delete 1 run; add --yes");
    place.does("runs prune --keep 1 --older-than 30").prints("no run meets these conditions");
    place.halfpower("runs prune").with_code(2);
    assert_eq!(list(&place.document("runs list")).len(), 2);
    place.does("runs prune renamed --yes").prints("1 run deleted");
    place.does("runs vacuum");
    assert_eq!(list(&place.document("runs list")).len(), 1);
    std::os::unix::fs::symlink("elsewhere.db", place.path("dangling.db")).unwrap();
    place.halfpower("runs merge other.db --db dangling.db").with_code(3);
    assert!(!place.path("elsewhere.db").exists());
    place.halfpower("runs merge nowhere.db").with_code(1);
    place.halfpower("runs vacuum --db nowhere.db").with_code(1);
    assert!(!place.path("nowhere.db").exists());
}

#[test]
fn more_databases_than_open_files_are_merged_and_compared() {
    let place = Place::new();
    place.does(&format!("run sim:sata-ssd {SHORT} --db host0.db"));
    let mut databases = "host0.db".to_owned();
    for number in 1..60 {
        let name = format!("host{number}.db");
        fs::copy(place.path("host0.db"), place.path(&name)).unwrap();
        databases += &format!(" {name}");
    }
    let few_files = "ulimit -n 32";
    let line = format!("runs merge {databases} --db all.db");
    let merged = place.halfpower_after(few_files, &line).with_code(0);
    let merged =
        merged.prints("host0.db: 1 run added").prints("host59.db: 0 runs added, 1 already present");
    assert_eq!(merged.stdout.lines().count(), 60);
    let fleet = format!("fleet {databases}");
    place.halfpower_after(few_files, &fleet).with_code(0).prints("1 host;");
    place.does("runs merge host1.db all.db --db all.db").prints("all.db: skipped");
    assert_eq!(list(&place.document("runs list --db all.db")).len(), 1);
}

/// Documentation page whose SQL queries the test runs.
const RESULTS_PAGE: &str = include_str!("../../../../docs/results.md");

#[test]
fn every_query_of_the_results_page_runs_in_the_shell_of_sqlite() {
    let shell = std::process::Command::new("sqlite3").arg("--version").output();
    if shell.is_err() {
        return skip(std::any::type_name_of_val(&|| ()), "the sqlite3 shell is not installed");
    }
    let place = Place::new();
    place.does("sweep sim:sata-ssd --rw read --bs 4k,64k,1m --size 4m --trials 2 --quiet");
    let blocks = RESULTS_PAGE.split("```sql\n").skip(1);
    place.does("run sim:sata-ssd --rw randread --bssplit 4k/50:64k/50 --size 4m --quiet");
    let rates = "SELECT abs(points.requests_per_s / avg(trials.requests_per_s) - 1) < 0.05 \
                 FROM points JOIN trials USING (point_id) WHERE points.rw = 'randread'";
    let blocks = std::iter::once(rates).chain(blocks);
    let queries: Vec<&str> = blocks.map(|block| block.split("```").next().unwrap()).collect();
    assert_eq!(queries.len(), 1 + 10);
    for query in queries {
        let mut shell = std::process::Command::new("sqlite3");
        let output = shell.arg(place.path("halfpower.db")).arg(query).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{query}: {said}");
        let is_wrong = query == rates && output.stdout != b"1\n";
        assert!(!is_wrong, "wrong rate for requests of two sizes");
        // Queries for verdicts other than `valid` may return no rows, because simulated trials are
        // always valid.
        let is_answered = !output.stdout.is_empty() || query.contains("<> 'valid'");
        assert!(is_answered, "{query}: no rows");
    }
}
