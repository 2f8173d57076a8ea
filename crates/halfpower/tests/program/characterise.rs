//! Tests `characterise`, which turns a trace into a plan. Most tests measure a known load on a
//! simulated system and characterise its trace. The plan must have the parameters of the load, and
//! reach the same throughput on the same system.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::fixture::{MIB, Place, list, or_skip, real, text};
use crate::replay::median;
use crate::watch::{LOADS, Load, watching};

/// Measures a load on a simulated system and writes its requests to `trace.csv`. Returns the rate
/// (requests per second).
fn known_load(place: &Place, system: &str, flags: &str) -> f64 {
    let line = format!("run {system} {flags} --trials 1 --no-store --log log.csv");
    let document = place.document(&line);
    let log = fs::read_to_string(place.path("log.csv")).unwrap();
    let mut requests: Vec<Vec<&str>> =
        log.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let time = |field: &str| field.parse::<i64>().unwrap();
    requests.sort_by_key(|fields| time(fields[6]));
    let first = time(requests[0][6]);
    let mut trace = "start_ns,latency_ns,thread,operation,file,offset,bytes,direct\n".to_owned();
    for fields in &requests {
        let [thread, operation, offset, bytes] = [2, 3, 4, 5].map(|field| fields[field]);
        let (start, end) = (time(fields[6]), time(fields[7]));
        trace.push_str(&format!(
            "{},{},{},{operation},/data/table,{offset},{bytes},1\n",
            start - first,
            end - start,
            time(thread) + 1
        ));
    }
    fs::write(place.path("trace.csv"), trace).unwrap();
    rate(&document["summary"])
}

fn rate(summary: &Value) -> f64 {
    summary["requests_per_s"]["median"].as_f64().unwrap_or_else(|| panic!("{summary:#}"))
}

fn plan(place: &Place) -> String {
    let plan = place.does("characterise trace.csv").stdout;
    fs::write(place.path("plan.toml"), &plan).unwrap();
    plan
}

#[track_caller]
fn value<'a>(plan: &'a str, key: &str) -> &'a str {
    let mut lines = plan.lines().filter_map(|line| line.split_once(" = "));
    let found = lines.find(|(name, _)| *name == key);
    found.unwrap_or_else(|| panic!("no {key} in {plan}")).1.trim_matches('"')
}

/// Checks that the plan for this load has the expected values and reaches the same rate on this
/// system.
#[track_caller]
fn is_the_load(system: &str, flags: &str, expected: &[(&str, &str)]) -> String {
    let place = Place::new();
    let known = known_load(&place, system, flags);
    let plan = plan(&place);
    for (key, wanted) in expected {
        assert_eq!(value(&plan, key), *wanted, "{key}\n{plan}");
    }
    let document = place.document(&format!("sweep plan.toml {system} --trials 1 --no-store"));
    let points = list(&document["points"]);
    assert_eq!(points.len(), 1, "{document:#}");
    let model = rate(&points[0]["summary"]);
    let off = model / known - 1.0;
    assert!(off.abs() < 0.15, "the plan has {model} requests/s, the load {known}\n{plan}");
    plan
}

#[test]
fn a_random_load_of_several_threads_is_modelled() {
    for system in ["sim:nvme-gen4", "sim:sata-hdd-7200"] {
        let plan = is_the_load(
            system,
            "--rw randread --bs 8k --iodepth 4 --numjobs 2 --size 64m --runtime 2",
            &[
                ("rw", "randread"),
                ("bs", "8k"),
                ("iodepth", "4"),
                ("numjobs", "2"),
                ("direct", "true"),
            ],
        );
        // The random requests may have missed the first and the last block of the region, so the
        // size may be slightly too small.
        let region = analysis::units::parse_size(value(&plan, "size")).unwrap() as f64;
        assert!((region / (64 * MIB) as f64 - 1.0).abs() < 0.01, "{plan}");
    }
}

#[test]
fn a_mix_of_sizes_and_directions_is_modelled() {
    let flags = "--rw randrw --rwmixread 70 --bssplit 4k/60:16k/40 --iodepth 8 --size 64m \
                 --runtime 1 --time-based";
    let plan = is_the_load("sim:nvme-gen4", flags, &[("rw", "randrw"), ("iodepth", "8")]);
    let within = |text: &str, wanted: u8| text.parse::<u8>().unwrap().abs_diff(wanted) <= 1;
    assert!(within(value(&plan, "rwmixread"), 70), "{plan}");
    let (small, large) = value(&plan, "bssplit").split_once(':').unwrap();
    assert!(within(small.strip_prefix("4k/").unwrap(), 60), "{plan}");
    assert!(within(large.strip_prefix("16k/").unwrap(), 40), "{plan}");
}

#[test]
fn popular_blocks_are_modelled_by_their_law() {
    let flags = "--rw randread --bs 4k --iodepth 16 --size 64m --runtime 1 --time-based";
    for (law, parameter) in [("zipf", 1.1), ("pareto", 0.2)] {
        let flags = format!("{flags} --random-distribution {law}:{parameter}");
        let plan = is_the_load("sim:nvme-gen4", &flags, &[]);
        let found = value(&plan, "random-distribution").strip_prefix(&format!("{law}:"));
        let found: f64 = found.unwrap_or_else(|| panic!("{plan}")).parse().unwrap();
        assert!((found / parameter - 1.0).abs() < 0.1, "{found} for {law}:{parameter}");
    }
    let zoned = format!("{flags} --random-distribution zoned:60/10:30/20:10/70");
    let plan = is_the_load("sim:nvme-gen4", &zoned, &[]);
    let zones = value(&plan, "random-distribution").strip_prefix("zoned:").unwrap();
    let numbers: Vec<u8> = zones.split(['/', ':']).map(|part| part.parse().unwrap()).collect();
    let expected = [60, 10, 30, 20, 10, 70];
    assert_eq!(numbers.len(), expected.len(), "{zones}");
    assert!(numbers.iter().zip(expected).all(|(one, other)| one.abs_diff(other) <= 1), "{zones}");
}

#[test]
fn pauses_of_a_sequential_writer_are_modelled() {
    for (thinktime, blocks) in [(500.0, 1), (2000.0, 8)] {
        let flags = format!(
            "--rw write --bs 64k --size 64m --runtime 2 --time-based --thinktime {thinktime}us \
             --thinktime-blocks {blocks}"
        );
        let plan = is_the_load("sim:nvme-gen4", &flags, &[("rw", "write"), ("bs", "64k")]);
        let found: f64 = value(&plan, "thinktime").strip_suffix("ns").unwrap().parse().unwrap();
        assert!((found / (thinktime * 1e3) - 1.0).abs() < 0.05, "{plan}");
        if blocks > 1 {
            assert_eq!(value(&plan, "thinktime-blocks"), blocks.to_string());
        }
    }
}

/// Writes a trace in which two threads read a table at random, and a third thread writes a log and
/// flushes it after every four writes.
fn database(place: &Place) {
    let mut lines = Vec::new();
    let mut state = 7_u64;
    for number in 0..4000_u64 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let offset = (state >> 40) % 8192 * 8192;
        let (start, thread) = (number / 2 * 100_000, number % 2 + 1);
        lines.push((
            start,
            format!("{start},100000,{thread},pread64,read,/data/table,{offset},8192,1"),
        ));
    }
    for number in 0..1000_u64 {
        let (start, offset) = (number * 150_000, number * 4096);
        lines.push((start, format!("{start},30000,3,pwrite64,write,/data/wal,{offset},4096,0")));
        if number % 4 == 3 {
            let start = start + 30_000;
            lines.push((start, format!("{start},120000,3,fdatasync,flush,/data/wal,,0,0")));
        }
    }
    lines.sort();
    let mut trace =
        "start_ns,latency_ns,thread,call,operation,file,offset,bytes,direct\n".to_owned();
    lines.iter().for_each(|(_, line)| trace.push_str(&format!("{line}\n")));
    fs::write(place.path("trace.csv"), trace).unwrap();
}

#[test]
fn a_table_and_its_log_become_two_parts_or_two_jobs() {
    let place = Place::new();
    database(&place);
    let plan = plan(&place);
    let parts: Vec<&str> = plan.split("[[part]]").skip(1).collect();
    assert_eq!(parts.len(), 2, "{plan}");
    assert_eq!((value(parts[0], "rw"), value(parts[0], "numjobs")), ("randread", "2"));
    assert_eq!((value(parts[1], "rw"), value(parts[1], "fdatasync")), ("write", "4"));
    assert!(plan.contains("measured one after another"), "{plan}");
    let line = "sweep plan.toml . --trials 1 --runtime 50ms --no-store";
    let document = place.document(line);
    let points = list(&document["studies"][0]["points"]).iter();
    let names: Vec<&str> = points.map(|point| text(&point["part"])).collect();
    assert_eq!(names, ["random reads of 8 KiB", "sequential writes of 4 KiB"], "{document:#}");
    place.is_tidy();
    let job = place.does("characterise trace.csv --output-format fio").stdout;
    fs::write(place.path("job.fio"), &job).unwrap();
    assert_eq!(job.lines().filter(|line| line.starts_with('[')).count(), 3, "{job}");
    assert!(job.contains("fdatasync=4\n") && job.contains("bs=8k\n"), "{job}");
    let shown = place.does("run job.fio --serial --showcmd").stdout;
    assert_eq!(shown.lines().count(), 2, "{shown}");
}

#[test]
fn one_file_of_several_is_modelled_alone() {
    let place = Place::new();
    database(&place);
    let names = ["table", "wal"].map(|name| format!("/data/{name}"));
    let both = place.does("characterise trace.csv").stdout;
    assert_eq!(both.matches("[[part]]").count(), 2, "{both}");
    for name in &names {
        let one = place.does(&format!("characterise trace.csv --file {name}")).stdout;
        assert_eq!(one.matches("rw = ").count(), 1, "{one}");
        assert!(one.contains(&format!("Only requests of {name} are included.")), "{one}");
    }
    assert_eq!(
        place.does("characterise trace.csv --file /data/").stdout.matches("[[part]]").count(),
        2
    );
    let none = place.cannot("characterise trace.csv --file /dat").with_code(2);
    none.says("no reads and writes of /dat", "halfpower trace trace.csv");
}

#[test]
fn what_cannot_be_modelled_is_refused_with_the_remedy() {
    let place = Place::new();
    fs::write(place.path("trace.csv"), "start_ns,operation,file\n0,open,/data/x\n").unwrap();
    place
        .cannot("characterise trace.csv")
        .with_code(2)
        .says("no reads and writes", "halfpower trace");
    database(&place);
    place
        .cannot("characterise trace.csv --level block")
        .with_code(2)
        .says("of level block", "trace");
    place.cannot("characterise none").with_code(2).says("none", "specify a trace file");
    let place = Place::new();
    database(&place);
    place.halfpower("characterise trace.csv --output-format toml").with_code(2);
}

#[test]
fn the_predicted_gain_of_depth_is_the_one_that_is_measured() {
    let place = Place::new();
    let system = "sim:nvme-gen4";
    place.does(&format!("survey {system} --quick --quiet"));
    let flags = "--rw randread --bs 8k --size 64m --runtime 0.5 --time-based";
    let known = known_load(&place, system, flags);
    let document = place.document("trace trace.csv --against latest");
    let gain = list(&document["gains"]).iter().find(|gain| gain["rule"] == "deeper-random");
    let gain = gain.unwrap_or_else(|| panic!("{document:#}"));
    assert!(gain["share_of_time"].as_f64().unwrap() > 0.95, "the share is low: {gain:#}");
    let depth = text(&gain["text"]).split(" x depth ").nth(1).unwrap();
    let depth = depth.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    let measured =
        place.document(&format!("run {system} {flags} --iodepth {depth} --trials 1 --no-store"));
    let times = rate(&measured["summary"]) / known;
    let predicted = gain["gain"].as_f64().unwrap();
    assert!((predicted / times - 1.0).abs() < 0.15, "{predicted} predicted, {times} measured");
}

#[test]
fn a_page_of_a_trace_has_its_charts_and_replaces_no_other_file() {
    let place = Place::new();
    database(&place);
    place.does("trace trace.csv --html trace.html");
    let page = fs::read_to_string(place.path("trace.html")).unwrap();
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    for id in ["rate", "depth", "latency", "sizes", "by-file", "files-table"] {
        assert!(page.contains(&format!("id=\"{id}\"")), "{id} is missing");
    }
    assert!(page.contains("/data/wal") && page.contains("sequential writes of 4 KiB"));
    // A trace has no verdict, so the page must not claim that checks passed.
    assert!(!page.contains("every check passed"));
    place.cannot("trace trace.csv --html trace.csv").with_code(3).says("not a page", "--html");
}

#[test]
#[ignore = "takes some minutes and needs fio"]
fn models_of_twelve_known_loads_are_as_fast_on_the_same_disk() {
    or_skip!(watching());
    let place = Place::new();
    fs::create_dir(place.path("data")).unwrap();
    let mut met = 0;
    for Load { name, flags } in LOADS {
        let line = format!(
            "fio --name=a --directory=data --bs=8k --size=64m --number_ios=20000 --io_size=640m \
             {flags} --group_reporting --fallocate=none --output-format=json --output=fio.json"
        );
        let made = format!("{line} --create_only=1");
        let made = Command::new("sh").args(["-c", &made]).current_dir(place.path("")).output();
        assert!(made.unwrap().status.success(), "{name}");
        let only = format!("--file {}", place.path("data").display());
        let mut ratios = Vec::new();
        for _ in 0..3 {
            place.does(&format!("watch --quiet --output t.parquet -- {line}"));
            let report = fs::read_to_string(place.path("fio.json")).unwrap();
            let report: Value = serde_json::from_str(&report).unwrap();
            let job = &list(&report["jobs"])[0];
            let theirs: f64 = ["read", "write"].iter().map(|of| real(&job[of]["bw_bytes"])).sum();
            let plan = place.does(&format!("characterise t.parquet {only}")).stdout;
            fs::write(place.path("plan.toml"), &plan).unwrap();
            let swept = place.halfpower("sweep plan.toml . --trials 1 --no-store --quiet --json");
            assert!(matches!(swept.status.code(), Some(0 | 5)), "{name}: {swept}\n{plan}");
            let swept = swept.json();
            // A plan with several workloads is measured as a study with one part for each workload.
            let points = match &swept["studies"] {
                Value::Null => &swept["points"],
                studies => &list(studies)[0]["points"],
            };
            let rate = |point: &Value| real(&point["summary"]["throughput_bytes_per_s"]["median"]);
            ratios.push(list(points).iter().map(rate).sum::<f64>() / theirs);
            fs::remove_file(place.path("t.parquet")).unwrap();
        }
        let ratio = median(ratios);
        met += usize::from((ratio - 1.0).abs() <= 0.15);
        println!("{name}: {ratio:.3} of the program's rate");
    }
    println!("{met} of {} models within 15% of the program's rate", LOADS.len());
    // A busy machine may slow down some of the models. The test therefore passes if at least three
    // quarters of the models have a rate within 15% of the program's rate.
    assert!(met * 4 >= LOADS.len() * 3);
}
