//! Tests `halfpower survey` and `halfpower report`: the findings, the database and the page.
//!
//! Many tests share one short survey of a directory.

use std::sync::OnceLock;

use results::{RunKind, RunState};
use serde_json::Value;

use crate::fixture::{Ended, KIB, MIB, Place, list, measure_until, noise, or_skip, real, whole};
use crate::json::Schema;
use crate::volume::LoopDevice;

const SIZE: u64 = 32 * MIB;
const MAX_WRITE: u64 = 1024 * MIB;

/// The results of a survey and the files that it created.
struct Survey {
    document: Value,
    /// The output of `halfpower report`, and the page that it wrote.
    report: Ended,
    report_page: String,
    page: String,
    listing: Vec<String>,
    run: results::RunRow,
    /// The stored points with their trials.
    points: Vec<(results::PointRow, Vec<results::TrialRow>)>,
}

fn survey() -> &'static Survey {
    static SURVEY: OnceLock<Survey> = OnceLock::new();
    // On a very busy machine, eight seconds may be enough for only a few points.
    SURVEY.get_or_init(|| measure_until(measured, |survey| has_several_sizes(&survey.document)))
}

fn measured() -> Survey {
    let place = Place::new();
    let ended = place.does("survey . --budget 8s --size 32m --max-write 1g --json");
    place.is_tidy();
    let listing = place.listing();
    let report = place.does("report --html again.html");
    let read = |name| std::fs::read_to_string(place.path(name)).unwrap();
    let points = place.stored_points().into_iter();
    let rows = |point: crate::fixture::StoredPoint| {
        (point.row, point.trials.into_iter().map(|(_, row)| row).collect())
    };
    Survey {
        document: ended.json(),
        report,
        report_page: read("again.html"),
        page: read("halfpower.html"),
        listing,
        run: place.stored_run(),
        points: points.map(rows).collect(),
    }
}

/// Checks whether direct reads, buffered reads and direct writes were each measured with more than
/// one request size.
fn has_several_sizes(document: &Value) -> bool {
    let workloads = || list(&document["points"]).iter().map(|point| &point["workload"]);
    [("read", "direct"), ("read", "buffered"), ("write", "direct")].iter().all(|(rw, caching)| {
        let is_it = |w: &&Value| w["rw"] == *rw && w["caching"] == *caching;
        let sizes: Vec<u64> =
            workloads().filter(is_it).map(|w| whole(&w["request_bytes"])).collect();
        sizes.iter().min() < sizes.iter().max()
    })
}

// ---- the output

#[test]
fn a_survey_prints_a_document_that_fits_the_schema() {
    Schema::of("survey").fits(&survey().document);
}

#[test]
fn a_survey_measures_reads_and_writes_buffered_and_direct_over_sizes_and_depths() {
    let workloads: Vec<&Value> =
        list(&survey().document["points"]).iter().map(|point| &point["workload"]).collect();
    assert!(has_several_sizes(&survey().document), "{workloads:?}");
    assert!(workloads.iter().any(|w| whole(&w["depth"]) > 1), "{workloads:?}");
    let random = |w: &&Value| w["rw"] == "randread" && whole(&w["request_bytes"]) == 8 * KIB;
    assert!(workloads.iter().any(random), "no random 8 KiB depth curve: {workloads:?}");
    for point in list(&survey().document["points"]) {
        assert!(!list(&point["trials"]).is_empty(), "a point without a trial: {point}");
    }
}

#[test]
fn a_half_power_point_is_reached_or_its_absence_has_a_reason() {
    let found = list(&survey().document["half_power"]);
    assert!(!found.is_empty());
    for one in found {
        assert!(real(&one["pap_bytes_per_s"]) > 0.0, "{one}");
        assert!(one["pap_source"].as_str().is_some_and(|source| !source.is_empty()), "{one}");
        if one["request_bytes_measured"].is_null() {
            assert!(one["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{one}");
        } else {
            let half = real(&one["pap_bytes_per_s"]) / 2.0;
            assert!(real(&one["throughput_bytes_per_s"]) >= half, "{one}");
        }
    }
}

#[test]
fn a_survey_gives_the_cost_model_with_intervals() {
    // On a busy machine, a survey of the disk may have too few valid points for a cost model, so
    // the number of models is checked on a simulated system.
    let simulated = Place::new().document("survey sim:sata-ssd --quick");
    let models = list(&simulated["cost_model"]);
    assert_eq!(models.len(), 4, "reads and writes, buffered and direct: {models:?}");
    for model in list(&survey().document["cost_model"]).iter().chain(models) {
        for term in ["fixed_ns", "marginal_ns_per_kib"] {
            let [low, value, high] = ["low", "value", "high"].map(|name| real(&model[term][name]));
            assert!(low <= value && value <= high, "{term}: {model}");
        }
        assert!(real(&model["r2"]) <= 1.0, "{model}");
    }
}

#[test]
fn a_survey_gives_a_ladder_and_the_best_and_the_defaults() {
    let document = &survey().document;
    let ladder = list(&document["ladder"]);
    assert!(!ladder.is_empty());
    for rung in ladder {
        assert!(rung["component"].as_str().is_some_and(|name| !name.is_empty()), "{rung}");
        assert!(rung["binding"].is_boolean(), "{rung}");
    }
    assert!(ladder.iter().filter(|rung| rung["binding"] == true).count() <= 1, "{ladder:?}");
    assert!(!document["out_of_box"].is_null() && !document["best"].is_null());
}

#[test]
fn advice_is_never_empty_and_always_has_its_evidence() {
    let advice = list(&survey().document["advice"]);
    assert!(!advice.is_empty());
    for one in advice {
        for field in ["id", "text", "evidence", "how"] {
            assert!(one[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {one}");
        }
        assert!(one.get("gain").is_some(), "{one}");
    }
}

// ---- files that a survey creates

#[test]
fn a_survey_leaves_its_database_and_its_page_and_nothing_else() {
    assert_eq!(survey().listing, ["halfpower.db", "halfpower.html"]);
}

#[test]
fn a_survey_is_stored_whole() {
    let survey = survey();
    assert_eq!(survey.run.kind, RunKind::Survey);
    assert_eq!(survey.run.state, RunState::Finished);
    let stored: Value = serde_json::from_str(survey.run.findings_json.as_ref().unwrap()).unwrap();
    assert_eq!(stored["findings"], survey.document["findings"], "the view findings needs these");
    assert!(!list(&stored["findings"]).is_empty());
    let reported = list(&survey.document["points"]);
    let trials = |point: &Value| list(&point["trials"]).len();
    let stored = survey.points.iter().map(|(_, trials)| trials.len());
    // Points that were planned but not measured are stored without trials, and are not reported.
    let measured: Vec<usize> = stored.filter(|trials| *trials > 0).collect();
    assert_eq!(measured, reported.iter().map(trials).collect::<Vec<_>>());
}

#[test]
fn a_survey_writes_no_more_than_it_may() {
    let trials = survey().points.iter().flat_map(|(_, trials)| trials);
    let written: u64 = trials.map(|trial| trial.write_bytes).sum();
    assert!(written > 0, "a survey of a directory measures writes too");
    let said = whole(&survey().document["written_bytes"]);
    assert!((written..=MAX_WRITE).contains(&said), "says {said}, wrote {written}");
    let all = written + SIZE;
    assert!(all <= MAX_WRITE, "{all} bytes written of {MAX_WRITE} allowed");
}

#[test]
fn a_survey_that_may_write_no_more_goes_on_reading() {
    let place = Place::new();
    let line = "survey . --size 4m --max-write 5m --budget 12s --no-store --json";
    let trials_of = |document: &Value, share: u64| -> Vec<usize> {
        let points = list(&document["points"]).iter();
        let chosen = points.filter(|point| whole(&point["workload"]["read_percent"]) == share);
        chosen.map(|point| list(&point["trials"]).len()).collect()
    };
    // Every setting gets three trials: one in each of two rounds, and one that measures CPU time.
    // Only selected settings get more, if a busy machine leaves time for them.
    let goes_on = |document: &Value| trials_of(document, 100).iter().any(|trials| *trials > 3);
    let document = measure_until(|| place.document(line), goes_on);
    assert!(whole(&document["written_bytes"]) <= 5 * MIB, "{}", document["written_bytes"]);
    let (read, written) = (trials_of(&document, 100), trials_of(&document, 0));
    assert!(goes_on(&document), "read {read:?}, wrote {written:?}");
}

#[test]
fn the_page_is_whole_and_needs_nothing_from_elsewhere() {
    for page in [&survey().page, &survey().report_page] {
        assert!(page.trim_start().to_lowercase().starts_with("<!doctype html>"));
        assert!(page.contains("<svg") && page.trim_end().ends_with("</html>"));
        for outside in ["src=\"http", "src=\"//", "@import", "rel=\"stylesheet\"", "url(http"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}

#[test]
fn a_report_is_written_again_from_the_database() {
    let survey = survey();
    assert!(survey.report.stderr.is_empty() || survey.report.stderr.contains("again.html"));
    assert!(survey.report_page.len() > 1000);
}

#[test]
fn a_report_needs_a_survey() {
    let place = Place::new();
    place.cannot("report").with_code(1).says("no database", "run");
    place.does("run --ioengine null --runtime 0.2 --trials 1");
    place.cannot("report").says("survey", "halfpower survey");
    // Run identifiers are hexadecimal, so no identifier begins with `zz`.
    place.cannot("report zz").says("zz", "");
}

// ---- what a survey must not do

#[test]
fn a_planned_survey_does_nothing() {
    let place = Place::new();
    let ended = place.does("survey --plan --size 32m");
    assert!(ended.stdout.contains("nothing was done"), "{ended}");
    assert_eq!(place.listing(), [""; 0]);
    assert!(!place.has_made_a_test_file());
}

#[test]
fn a_survey_of_a_file_reads_it_and_prints_its_findings() {
    let place = Place::new();
    let path = place.file("data", 8 * MIB);
    let ended = place.does("survey data --budget 15s --no-store");
    assert!(std::fs::read(path).unwrap() == noise(8 * MIB), "the file was written");
    assert!(ended.stdout.contains("MiB/s") && ended.stdout.lines().count() > 5, "{ended}");
    assert_eq!(place.listing(), ["data", "halfpower.html"]);
}

#[test]
fn a_survey_that_measured_the_wrong_thing_ends_with_five_and_says_so_first() {
    let place = Place::new();
    place.file_of_holes("data", 32 * MIB);
    let ended = place.halfpower("survey data --budget 15s").with_code(5);
    let first = ended.stdout.lines().take(3).collect::<Vec<_>>().join("\n");
    assert!(first.contains("invalid") && first.contains("no sequential read"), "{ended}");
    let page = std::fs::read_to_string(place.path("halfpower.html")).unwrap();
    let body = &page[page.find("<header").unwrap()..];
    let place_of = |words: &str| body.find(words).unwrap_or(usize::MAX);
    assert!(place_of("do not use") < place_of("</header>"), "the page does not say so");
    assert!(place_of("holes or unwritten") < place_of("</header>"), "the page says no reason");
    let document = place.halfpower("survey data --budget 15s --json").with_code(5).json();
    assert_eq!(document["verdict"]["state"], "invalid");
    let meant = place.does("survey data --budget 15s --allow-holes --json").json();
    assert_ne!(meant["verdict"]["state"], "invalid", "{}", meant["verdict"]);
}

#[test]
fn a_survey_of_a_device_only_reads_without_permission() {
    let device = or_skip!(LoopDevice::new(8 * MIB));
    let place = Place::new();
    let document = place.document(&format!("survey {} --budget 15s", device.path()));
    assert!(device.content() == noise(8 * MIB), "the device was written");
    for point in list(&document["points"]) {
        assert_eq!(whole(&point["workload"]["read_percent"]), 100, "{point}");
    }
}

#[test]
fn a_survey_that_cannot_be_made_says_why_and_changes_nothing() {
    let place = Place::new();
    place.cannot("survey missing").with_code(2).says("missing does not exist", "specify");
    let device = place.cannot("survey /dev/halfpower-no-such-device");
    device.with_code(3).says("does not exist", "creates no files under /dev");
    place.cannot("survey /dev").with_code(3).says("creates no files there", "use a");
    place.cannot("survey sim:nt4").with_code(2).says("no simulated system", "one of nt4-");
    place.cannot("survey --size 1000000g").says("", "--size");
    place.cannot("survey --size 32m --max-write 16m").says("", "--max-write");
    std::fs::write(place.path("notes"), "dear diary").unwrap();
    place.cannot("survey --size 32m --db notes").with_code(1).says("notes", "another path");
    assert!(!place.has_made_a_test_file());
}

#[test]
fn an_interrupt_of_a_survey_at_any_moment_leaves_order() {
    for milliseconds in [30, 150, 600] {
        let place = Place::new();
        let running = place.start("survey . --budget 20s --size 64m --json");
        crate::fixture::pause(milliseconds);
        running.signal("INT");
        let ended = running.ended().was_interrupted();
        place.is_tidy();
        if place.path("halfpower.db").exists() {
            assert_eq!(place.stored_run().state, RunState::Interrupted, "{ended}");
        }
        assert!(ended.stdout.is_empty() || ended.json().is_object(), "{ended}");
    }
}

#[test]
fn an_interrupted_survey_keeps_its_trials_and_its_database() {
    let place = Place::new();
    let mut running = place.start("survey . --budget 20s --size 16m");
    running.until("three trials are stored", || place.stored_trials_so_far() >= 3);
    running.signal("INT");
    running.ended().with_code(130);
    place.is_tidy();
    assert_eq!(place.stored_run().state, RunState::Interrupted);
    let trials: usize = place.stored_points().iter().map(|point| point.trials.len()).sum();
    assert!(trials >= 3);
}
