//! Tests the studies of costs: of money, of CPU time, of competing streams, and of additional
//! layers. The simulated machines of the papers run in virtual time, so their results are exact.

use serde_json::{Value, json};

use crate::fixture::{Place, list, or_skip, real, root, whole};

/// Runs one study and returns its entry in the document.
fn study(place: &Place, line: &str) -> Value {
    let document = place.document(&format!("study {line} --no-store"));
    let [study] = list(&document["studies"]) else { panic!("{document}") };
    study.clone()
}

#[track_caller]
fn reading(study: &Value, quantity: &str, label: (&str, &str)) -> f64 {
    let is_it = |reading: &&Value| {
        let found = reading["labels"][label.0].as_str().unwrap_or_default();
        reading["quantity"] == quantity && found.starts_with(label.1)
    };
    let found = list(&study["readings"]).iter().find(is_it);
    real(&found.unwrap_or_else(|| panic!("no {quantity} of {label:?}: {study}"))["value"])
}

#[track_caller]
fn verdict<'a>(study: &'a Value, id: &str) -> &'a str {
    let claim = list(&study["claims"]).iter().find(|claim| claim["id"] == id);
    claim.unwrap_or_else(|| panic!("no {id}: {study}"))["verdict"].as_str().unwrap()
}

/// Returns the measurements that the study left out, with the reasons.
fn left_out(study: &Value) -> String {
    list(&study["left_out"]).iter().map(Value::to_string).collect()
}

#[test]
fn tables_2_and_10_of_the_second_paper_come_out_of_its_simulated_drives() {
    let table = include_str!("../../../papers/data/chung2000_table10_price_performance.csv");
    let prices = include_str!("../../../papers/data/chung2000_table02_prices.csv");
    let value_of = |table: &str, metric: &str, drive: &str| -> f64 {
        let line = table.lines().find(|line| line.contains(metric) && line.contains(drive));
        let fields: Vec<&str> = line.unwrap().rsplit(',').collect();
        fields[1].parse().unwrap()
    };
    let place = Place::new();
    let (atlas, fireball) = ("sim:w2k-atlas10k", "sim:w2k-fireball-3ware");
    let study = study(
        &place,
        &format!(
            "price {atlas},file_size=17g {fireball},file_size=25g --price 534,209 \
             --capacity 18GB,26GB --runtime 60"
        ),
    );
    for (system, drive) in [(atlas, "Atlas"), (fireball, "Fireball")] {
        let here = |quantity: &str| reading(&study, quantity, ("target", system));
        let paper = |metric: &str| value_of(table, metric, drive);
        let price = here("price");
        assert_eq!(price, value_of(prices, drive, drive), "Table 2");
        assert_eq!(price, paper("price,"));
        assert_eq!((here("gb-per-price") * 1000.0).round(), paper("MB per dollar,"));
        let near = |metric: &str, here: f64, share: f64| {
            let error = here / paper(metric) - 1.0;
            assert!(error.abs() < share, "{drive}: {metric} {here}: {error}");
        };
        near("KAPS,", here("kaps"), 0.05);
        near("KAPS per dollar,", 1.0 / here("price-per-kaps"), 0.05);
        // The paper measured MAPS only on the outer tracks. This study reads from the whole drive,
        // so a larger deviation (20%) is accepted.
        near("MAPS,", here("maps"), 0.2);
        near("MAPS per dollar,", 1.0 / here("price-per-maps"), 0.2);
    }
    let dollars = |system| reading(&study, "price-per-read-kaps", ("target", system));
    assert!((dollars(atlas) / 5.09 - 1.0).abs() < 0.1, "C175: {}", dollars(atlas));
    assert!((dollars(fireball) / 3.17 - 1.0).abs() < 0.05, "C173: {}", dollars(fireball));
    for claim in list(&study["claims"]) {
        assert_eq!(claim["verdict"], "holds", "{claim}");
    }
    let [advice] = list(&study["advice"]) else { panic!("{study}") };
    assert_eq!(advice["id"], "price-per-access");
    assert!(advice["text"].as_str().unwrap().contains(fireball), "{advice}");
}

#[test]
fn without_a_price_the_money_is_left_out_with_the_remedy() {
    let place = Place::new();
    let study = study(&place, "price sim:sata-hdd-7200 --quick");
    assert!(left_out(&study).contains("--price") && left_out(&study).contains("--capacity"));
    assert!(reading(&study, "kaps", ("target", "sim:")) > 50.0);
    assert_eq!(verdict(&study, "C178"), "cannot-be-tried");
}

#[test]
fn a_price_too_many_is_refused_before_anything_is_measured() {
    let place = Place::new();
    let line = "study price sim:w2k-atlas10k --price 209,534 --no-store";
    let ended = place.halfpower(line).with_code(1);
    assert!(ended.stdout.contains("--price has 2 values for 1 targets"), "{ended}");
}

fn points<'a>(study: &'a Value, part: &str) -> Vec<&'a Value> {
    list(&study["points"]).iter().filter(|point| point["part"] == part).collect()
}

/// Flags that make a study short, for tests that do not check its rates.
const SHORT: &str = "--quick --size 16m --runtime 0.05 --trials 1";

#[test]
fn every_engine_of_this_host_is_measured_and_the_others_are_left_out_with_the_reason() {
    let place = Place::new();
    let study = study(&place, &format!("engines . {SHORT}"));
    let polled = ["io_uring SQPOLL", "io_uring IOPOLL"];
    let plain = ["sync", "threads", "libaio", "io_uring", "buffered sync", "mmap"];
    for part in plain.into_iter().chain(polled) {
        let (found, missing) = (points(&study, part), left_out(&study));
        let is_left_out = missing.contains(&format!("\"part\":\"{part}\""));
        assert!(found.is_empty() == is_left_out, "{part}: {missing}");
    }
    assert!(!points(&study, "threads").is_empty(), "the engine threads is missing");
    let left_out = list(&study["left_out"]).iter();
    for one in left_out.filter(|one| one["part"] == "io_uring IOPOLL") {
        let reason = one["reason"].as_str().unwrap();
        let is_told = reason.contains("poll_queues=") || reason.contains("is not available here");
        assert!(is_told || reason.contains("lacks direct I/O"), "{reason}");
    }
    let polls =
        |point: &&Value| point["workload"]["settings"]["options"] == json!(["sqthread_poll"]);
    let taken = points(&study, "io_uring SQPOLL");
    assert_eq!(taken.iter().filter(|point| polls(point)).count(), taken.len());
    let told = list(&study["findings"]).iter().any(|found| found["id"] == "sqpoll");
    assert_eq!(told, !taken.is_empty(), "{}", study["findings"]);
    place.is_tidy();
}

#[test]
fn a_simulated_system_has_no_engines_to_choose_from() {
    let study = study(&Place::new(), "engines sim:nt4-ultrawide --quick");
    let remedy = study["skipped"]["remedy"].as_str().unwrap();
    assert!(remedy.contains("of this host"), "{study}");
}

#[test]
fn processors_are_counted_from_one_to_all_that_the_process_may_use() {
    let place = Place::new();
    let study = study(&place, &format!("processors . {SHORT}"));
    let cpus = cpucost::affinity::allowed_cpus().len() as u64;
    let threads = |part: &str| -> Vec<u64> {
        points(&study, part).iter().map(|p| whole(&p["workload"]["threads"])).collect()
    };
    let free = threads("free");
    assert_eq!((free[0], *free.last().unwrap()), (1, cpus));
    let pinned = points(&study, "pinned");
    assert_eq!(pinned.is_empty(), cpus == 1);
    for point in pinned {
        let list = point["given"]["cpus-allowed"].as_str().unwrap();
        let count = list.split(',').count() as u64;
        assert_eq!(count, whole(&point["workload"]["threads"]), "{list}");
    }
    for part in ["near", "far"] {
        assert!(points(&study, part).is_empty() == left_out(&study).contains(part), "{study}");
    }
    place.is_tidy();
}

#[test]
fn more_threads_fill_the_queue_of_a_simulated_disk() {
    let study = study(&Place::new(), "processors sim:nt4-ultrawide --quick --runtime 20");
    let rate = |point: &Value| real(&point["summary"]["requests_per_s"]["median"]);
    let free = points(&study, "free");
    assert_eq!(free.len(), 3);
    assert!(rate(free[2]) > rate(free[0]), "{free:?}");
    assert!(left_out(&study).contains("drop --cpus-allowed"), "{study}");
}

#[test]
fn the_costs_of_a_simulated_host_are_found_again_in_both_bounds() {
    let system = "sim:nt4-ultrawide,host.direct_read.fixed=200us,host.direct_read.each=2us/KiB,\
                  host.direct_read.uncharged=0.25";
    let study = study(&Place::new(), &format!("cpu-cost {system} --quick --runtime 5"));
    let read = |quantity: &str, bound: &str| {
        let is_it = |reading: &&Value| {
            let labels = &reading["labels"];
            let path = labels["path"] == "direct, simulated" && labels["rw"] == "read";
            reading["quantity"] == quantity && labels["bound"] == bound && path
        };
        real(&list(&study["readings"]).iter().find(is_it).unwrap()["value"])
    };
    let near = |here: f64, truth: f64| assert!((here / truth - 1.0).abs() < 0.03, "{here} {truth}");
    near(read("fixed", "upper"), 200_000.0);
    near(read("marginal", "upper"), 2_000.0);
    near(read("fixed", "lower"), 150_000.0);
    // Only the upper bounds include interrupts. Interrupts add CPU time per request (fixed cost),
    // not per byte (marginal cost), so both bounds of the marginal cost are equal.
    near(read("marginal", "lower"), 2_000.0);
}

#[test]
fn the_first_papers_claims_about_cpu_hold_on_its_machine() {
    let study = study(&Place::new(), "cpu-cost sim:nt4-ultrawide --quick --runtime 5");
    for id in ["R043", "R055", "R056", "R062", "R069", "C122", "C201"] {
        assert_eq!(verdict(&study, id), "holds", "{id}");
    }
    assert_eq!(verdict(&study, "C063"), "cannot-be-tried");
    let ids: Vec<&Value> = list(&study["advice"]).iter().map(|advice| &advice["id"]).collect();
    assert!(ids.iter().all(|id| *id == "bypass-cache-cpu") && !ids.is_empty(), "{ids:?}");
}

#[test]
fn streams_run_alone_in_pairs_and_all_together() {
    let place = Place::new();
    let study = study(&place, "competing . --quick --size 32m --runtime 0.2 --trials 1");
    let mixes = ["random + scan", "random + writer", "scan + writer", "random + scan + writer"];
    for mix in mixes {
        assert!(reading(&study, "rate", ("mix", mix)) > 0.0, "{mix}");
    }
    for stream in ["random", "scan", "writer"] {
        assert!(!points(&study, stream).is_empty(), "{stream} alone");
        assert!(reading(&study, "p99", ("stream", stream)) > 0.0, "{stream} beside others");
    }
    place.is_tidy();
}

#[test]
fn streams_on_devices_of_their_own_are_not_said_to_share_one() {
    let place = Place::new();
    let study = study(&place, "competing truth:fixed=1ms --quick --runtime 0.1 --trials 1");
    assert!(left_out(&study).contains("halfpower mount"), "{study}");
    assert!(list(&study["readings"]).is_empty(), "{study}");
    assert!(!points(&study, "random").is_empty(), "a stream alone is not measured");
}

#[test]
fn two_streams_alike_on_a_simulated_disk_are_the_same_as_one_of_two_threads() {
    let place = Place::new();
    let plan = "study = 'competing'\ndirect = true\nrw = 'randread'\nbs = '8k'\niodepth = 1\n\
                time_based = true\nruntime = 20\ntrials = 3\n\
                [[part]]\nname = 'one'\n[[part]]\nname = 'two'\n";
    std::fs::write(place.path("twins.toml"), plan).unwrap();
    let document = place.document("sweep twins.toml sim:nt4-ultrawide --no-store");
    let study = &list(&document["studies"])[0];
    let rate = |stream| reading(study, "rate", ("stream", stream));
    let (one, two) = (rate("one"), rate("two"));
    assert!((one / two - 1.0).abs() < 0.05, "{one} {two}");
    let line = "run sim:nt4-ultrawide --direct --rw randread --bs 8k --numjobs 2 \
                --placement shared --time-based --runtime 20 --trials 3";
    let both = real(&place.document(line)["summary"]["throughput_bytes_per_s"]["median"]);
    assert!(((one + two) / both - 1.0).abs() < 0.02, "{one} {two} {both}");
}

#[test]
fn in_a_simulated_system_a_scan_beside_random_requests_loses_what_the_model_says() {
    let study = study(&Place::new(), "competing sim:nt4-ultrawide --quick");
    assert!(study["skipped"].is_null() && !left_out(&study).contains("together"), "{study}");
    let of = |mix: &str, stream: &str| {
        let is_it = |reading: &&Value| {
            let labels = &reading["labels"];
            reading["quantity"] == "rate" && labels["mix"] == mix && labels["stream"] == stream
        };
        real(&list(&study["readings"]).iter().find(is_it).unwrap()["value"])
    };
    let alone =
        |part| real(&points(&study, part)[0]["summary"]["throughput_bytes_per_s"]["median"]);
    let mix = "random + scan";
    assert!(of(mix, "random") < 0.7 * alone("random"), "random requests should lose throughput");
    assert!(of(mix, "scan") <= alone("scan"), "a competing stream makes the scan faster");
    // An additional stream must not make another stream faster.
    let all = "random + scan + writer";
    assert!(of(all, "random") <= of(mix, "random") && of(all, "scan") <= of(mix, "scan"));
}

#[test]
fn streams_that_would_write_to_a_file_that_was_not_named_stay_away() {
    let place = Place::new();
    place.file("data", 16 << 20);
    let before = place.snapshot();
    let study = study(&place, "competing data --quick --runtime 0.5 --trials 1");
    assert!(left_out(&study).contains("--overwrite"), "{study}");
    assert!(reading(&study, "rate", ("mix", "random + scan")) > 0.0);
    let readings = list(&study["readings"]);
    assert!(readings.iter().all(|reading| reading["labels"]["stream"] != "writer"));
    assert!(place.snapshot()[&place.path("data")] == before[&place.path("data")]);
}

/// Returns the mounts of this machine and the image files of its loop devices.
fn layers_of_the_machine() -> String {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let backing = |entry: std::fs::DirEntry| {
        std::fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default()
    };
    mounts + &devices.map(backing).collect::<String>()
}

#[test]
fn every_layer_over_a_file_is_measured_or_left_out_and_none_stays() {
    let place = Place::new();
    let study = study(&place, "copy-cost . --quick --size 64m --runtime 0.05 --trials 1");
    assert!(!points(&study, "local").is_empty() && !points(&study, "page cache").is_empty());
    for part in ["bind mount", "loop device", "FUSE alone"] {
        let missing = left_out(&study).contains(&format!("\"part\":\"{part}\""));
        assert!(points(&study, part).is_empty() == missing, "{part}: {}", left_out(&study));
    }
    assert_eq!(verdict(&study, "C254"), "cannot-be-tried");
    place.is_tidy();
    // The kernel detaches a loop device with a delay, so the test waits until no mount and no loop
    // device refers to this directory.
    let folder = place.path("").display().to_string();
    let folder = folder.trim_end_matches('/').to_owned();
    crate::fixture::wait_until("all layers are removed", || {
        !layers_of_the_machine().contains(&folder)
    });
}

#[test]
fn without_rights_the_layers_are_left_out_with_the_remedy() {
    let place = or_skip!(Place::of_nobody());
    let study = study(&place, &format!("copy-cost . {SHORT}"));
    assert!(!points(&study, "local").is_empty());
    assert!(points(&study, "bind mount").is_empty() && points(&study, "loop device").is_empty());
    assert!(left_out(&study).contains("run as root"), "{study}");
    place.is_tidy();
}

#[test]
fn a_simulated_share_is_held_against_a_simulated_file() {
    let systems = "sim:w2k-atlas10k sim:w2k-cifs-gigabit";
    let study = study(&Place::new(), &format!("copy-cost {systems} --quick --runtime 5"));
    let finding = list(&study["findings"]).iter().find(|finding| finding["id"] == "layer");
    let text = finding.unwrap()["text"].as_str().unwrap();
    assert!(text.starts_with("sim:w2k-cifs-gigabit compared with the file itself"), "{text}");
    assert!(text.contains("ms for 1 MiB") && text.contains("CPU +"), "{text}");
    assert!(left_out(&study).contains("one path to its bytes"), "{study}");
}

#[test]
fn a_study_that_is_killed_leaves_no_mount_and_no_folder_of_its_fuse_file() {
    or_skip!(root());
    let (place, temporary) = (Place::new(), tempfile::tempdir().unwrap());
    let mut command = place.command("study copy-cost . --size 16m --no-store");
    command.env("TMPDIR", temporary.path());
    let mut running = place.start_command(command, "study copy-cost");
    let left = || std::fs::read_dir(temporary.path()).unwrap().count();
    let is_served = || {
        let folders = std::fs::read_dir(temporary.path()).unwrap().flatten();
        folders.into_iter().any(|folder| folder.path().join("device").exists())
    };
    running.until("the file is served", is_served);
    running.signal("KILL");
    running.ended();
    crate::fixture::wait_until("the server has removed its mount and directory", || left() == 0);
    place.does("clean");
    place.is_tidy();
}
