//! Tests the command line: help, spellings of flags, generated documents, and closed output pipes.

use std::process::Stdio;

use crate::fixture::{Place, whole};

#[test]
fn every_verb_has_help_with_examples_on_stdout() {
    let place = Place::new();
    for verb in ["", "survey", "run", "sweep", "report", "restore", "soak", "memory", "classic"] {
        let ended = place.does(&format!("{verb} --help"));
        assert!(ended.stdout.contains("Examples:"), "{ended}");
        assert_eq!(ended.stderr, "");
    }
    for verb in ["engines", "runs", "clean"] {
        assert!(place.does(&format!("{verb} --help")).stdout.contains("Usage:"));
    }
    assert!(place.does("--version").stdout.contains(env!("CARGO_PKG_VERSION")));
    assert_eq!(place.listing(), [""; 0]);
}

#[test]
fn a_wrong_flag_is_a_usage_error_that_names_the_right_one() {
    let place = Place::new();
    let ended = place.halfpower("run . --iodept 4").with_code(2);
    assert!(ended.stderr.contains("--iodept") && ended.stderr.contains("'--iodepth'"), "{ended}");
    assert_eq!(ended.stdout, "");
    for line in ["", "nonsense", "run . --bs", "survey --quick --thorough", "run . --runtime x"] {
        let ended = place.halfpower(line).with_code(2);
        assert_eq!(ended.stdout, "", "{ended}");
    }
    assert_eq!(place.listing(), [""; 0]);
}

#[test]
fn flags_are_understood_with_dashes_and_with_underscores() {
    let place = Place::new();
    let spellings = [
        "--time-based --ramp-time 0.01 --rate-iops 5000 --buffer-pages 4k --group-reporting",
        "--time_based --ramp_time 0.01 --rate_iops 5000 --buffer_pages 4k --group_reporting",
        "--time_based=1 --ramp_time=0.01 --rate_iops=5000 --buffer_pages=4k --group_reporting=1",
    ];
    let workloads = spellings.map(|flags| {
        let line = format!("run --ioengine=null --runtime 0.2 --trials 1 --no_store {flags}");
        place.document(&line)["workload"].clone()
    });
    assert_eq!(workloads[0], workloads[1]);
    assert_eq!(workloads[0], workloads[2]);
    assert_eq!(whole(&workloads[0]["settings"]["warm_up_ns"]), 10_000_000);
    assert_eq!(workloads[0]["settings"]["buffer_pages"], "4k");
}

#[test]
fn the_names_of_fio_are_understood() {
    let place = Place::new();
    place.file("data", 1 << 20);
    let document = place.document(
        "run --name=job1 --filename=data --readwrite=randread --blocksize=8k --iodepth=4 \
         --numjobs=1 --ioengine=libaio --direct=1 --size=1m --randseed=7 --norandommap=1 \
         --trials=1",
    );
    let workload = &document["workload"];
    assert_eq!(workload["rw"], "randread");
    assert_eq!(workload["request_bytes"], 8192);
    assert_eq!(workload["ioengine"], "libaio");
    assert_eq!(workload["seed"], 7);
    assert_eq!(place.stored_run().label.as_deref(), Some("job1"));
}

#[test]
fn words_that_mean_nothing_are_refused_with_those_that_do() {
    let place = Place::new();
    for (flags, remedy) in [
        ("--rw sideways", "randread"),
        ("--bs 4x", "4k"),
        ("--ioengine spdk", "io_uring"),
        ("--buffer-pages 1g", "huge or 4k"),
        ("--placement here", "own, shared or interlocked"),
        ("--allocation none", "truncate, fallocate or last-block"),
        ("--hint maybe", "sequential"),
        ("--rwmixread 101", "0 to 100"),
        ("--trials 0", "1 or more"),
        ("--runtime 0", "500ms"),
        ("--time-based", "--runtime"),
        ("--bs 0", "64k"),
        ("--iodepth 0", "depth"),
        ("--numjobs 0", "threads"),
        ("--rate-iops 0", "1000"),
        ("--pap 0", "rate"),
        ("--stride 0", "stride"),
        ("--cpus-allowed 0-9999", "use CPUs in"),
        ("--zero-buffers", "drop it"),
        ("--rw randread --stride 64k", "drop it"),
        ("--quick", "drop --quick"),
        ("--html page.html", "drop --html"),
        ("--page-cache warm", "--direct=0"),
        ("--verify --zero-buffers", "drop one"),
    ] {
        let line = format!("run . {flags} --quiet --no-store");
        let ended = place.halfpower(&line).with_code(2);
        let at = ended.stderr.find(remedy);
        assert!(at.is_some() && ended.stdout.is_empty(), "{remedy:?} is not in stderr: {ended}");
    }
    assert_eq!(place.listing(), [""; 0]);
}

#[test]
fn documents_are_generated_on_stdout() {
    let place = Place::new();
    for (what, words) in [("man", ".TH"), ("bash", "complete"), ("zsh", "#compdef")] {
        let ended = place.does(&format!("generate {what}"));
        assert!(ended.stdout.contains(words), "{what}");
        assert_eq!(ended.stderr, "");
    }
    place.cannot("generate nonsense").with_code(2).says("nonsense", "schema-run");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::new();
    let mut child = place
        .command("generate man")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn data_that_cannot_be_written_is_a_failure() {
    let place = Place::new();
    let mut command = place.command("run --ioengine null --runtime 0.2 --trials 1 --json");
    command.stdout(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let output = command.stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "lost output without an error: {output:?}");
}

#[test]
fn engines_tells_what_is_offered_and_why_something_is_missing() {
    let place = Place::new();
    let document = place.document("engines");
    let engines = document["engines"].as_array().unwrap();
    let names: Vec<&str> = engines.iter().map(|engine| engine["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["null", "delay", "sync", "mmap", "threads", "libaio", "io_uring", "nvme", "network"]
    );
    for engine in engines {
        let reason = engine["detail"].as_str().unwrap();
        assert!(engine["available"] == true || !reason.is_empty(), "{engine}");
    }
    let text = place.does("engines").stdout;
    assert!(names.iter().all(|name| text.contains(name)), "{text}");
    assert!(text.contains("--ioengine auto uses"), "{text}");
}
